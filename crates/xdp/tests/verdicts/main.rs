//! Every verdict of the program, through test runs on frames made by hand.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod bench;
mod choices;
mod gates;
mod hashes;
mod ipv4;
mod ipv6;
mod ports;
