//! Routes, nexthops and rules of SRv6: what engines read of them.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod changes;
#[allow(dead_code, reason = "others use the rest")]
#[path = "../common/mod.rs"]
mod common;
mod compiled;
mod groups;
mod own;
mod world;
