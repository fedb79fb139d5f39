//! Captures: what we write and read again, what tcpdump makes of it, and what is no capture.

#![allow(clippy::unwrap_used)] // helpers of tests

mod files;
mod mistakes;
mod ng;
mod pcapng;
mod random;
mod tcpdump;
