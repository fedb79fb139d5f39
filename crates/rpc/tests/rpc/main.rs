//! The proxy and the client between programs of these tests: one program, so that they share their helpers.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod again;
mod backchannel;
mod client;
mod common;
mod ends;
mod fair;
mod late;
mod left;
mod proxy;
mod signed;
mod told;
