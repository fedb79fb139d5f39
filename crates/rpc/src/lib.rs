//! ONC RPC over many TCP connections, for NFS and every other program: a client for other programs
//! ([`client`]), and what the proxy `raddle rpc` is made of ([`proxy`]).
//!
//! What is decided is [`raddle_rpc_core`]'s, which has no sockets and no clock; its modules have their names here as
//! well. This crate drives it on tokio: sockets, clocks, buffers, and the journal's file.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod client;
pub mod journal;
pub mod proxy;

pub use raddle_rpc_core::{
    assemble, compound, core, dispatch, duplicate, histogram, limits, liveness, message, portmap,
    program, record, replay, trouble, xid,
};
