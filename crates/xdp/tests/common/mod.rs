//! What the tests of this folder share. Each test binary uses a part of it.
#![allow(unreachable_pub, missing_docs, dead_code)]

pub mod frames;
pub mod image;
pub mod net;
pub mod tables;
