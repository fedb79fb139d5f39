//! The mirror, requests and recordings against the running kernel, in network namespaces of their
//! own. Without the right to make these, every test says so and passes.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

mod announced;
mod bridges;
mod changes;
mod follow;
mod hosts;
mod record;
mod requests;
mod resilient;
mod seg6;
mod shown;
mod state;
mod support;
mod tunnels;
