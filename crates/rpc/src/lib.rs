//! ONC RPC over many TCP connections, for NFS and every other program: a client for programs of their own
//! ([`client`]), and what the proxy `raddle rpc` is made of.
//!
//! The decisions are pure functions without I/O: how a stream falls into records ([`record`],
//! [`assemble`]), what a call is ([`message`], [`program`]), which transaction id it travels under
//! ([`xid`]), which connection it takes ([`dispatch`]), when a connection is taken for
//! dead ([`liveness`]), what becomes of its calls then ([`replay`]), which call is the
//! repetition of an earlier one ([`duplicate`]), and which client is taken in ([`limits`]).
//! [`core`] is the state machine that is made of them: events and the time go in, actions come out.
//! [`proxy`] is its driver, over sockets that it is given.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod assemble;
pub mod client;
pub mod compound;
pub mod core;
pub mod dispatch;
pub mod duplicate;
pub mod histogram;
pub mod journal;
pub mod limits;
pub mod liveness;
pub mod message;
pub mod portmap;
pub mod program;
pub mod proxy;
pub mod record;
pub mod replay;
pub mod trouble;
mod wire;
pub mod xid;
