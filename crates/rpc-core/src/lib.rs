#![doc = include_str!("../README.md")]

pub mod assemble;
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
pub mod record;
pub mod replay;
pub mod reply;
pub mod trouble;
mod wire;
pub mod xid;
