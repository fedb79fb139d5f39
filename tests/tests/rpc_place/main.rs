//! Where `raddle rpc` places connections: over several links, addresses and families, and when they change.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod lab;
mod placement;
