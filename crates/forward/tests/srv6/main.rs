//! SRv6 in the userspace engine: packets in, packets out.
#![allow(clippy::unwrap_used)] // a test may fail

mod chains;
mod endpoints;
mod headends;
mod hmacs;
mod packets;
mod random;
mod reference;
mod router;
mod scenarios;
mod together;
mod tunnels;
