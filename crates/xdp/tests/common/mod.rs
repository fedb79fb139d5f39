//! What the tests of this folder share. Each test binary uses a part of it.
#![allow(
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "helpers of tests"
)]

pub mod frames;
pub mod image;
pub mod net;
pub mod tables;
