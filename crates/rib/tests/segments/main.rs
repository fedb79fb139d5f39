//! Routes, nexthops and rules of SRv6: what engines read of them.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod changes;
#[path = "../common/parts.rs"]
mod common;
mod compiled;
mod groups;
mod own;
mod values;
mod world;
