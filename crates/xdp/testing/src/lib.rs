//! What tests and examples of the XDP engine share: namespaces and links, frames, images made by hand, and engines
//! over them.
//!
//! Everything panics with a message on failure, as is right in tests only.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

pub mod bench;
pub mod draw;
pub mod engines;
pub mod frames;
pub mod image;
pub mod net;
pub mod packets;
pub mod segments;
pub mod tables;
