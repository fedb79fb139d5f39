//! Tables of both families: drawn ones, and the Internet's.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod both;
mod hosts6;
mod real;
mod tables;
mod v4;
mod v6;
