#![doc = include_str!("../README.md")]

#[cfg(test)]
#[path = "../../metrics/tests/common/proxies.rs"]
mod proxies;

mod again;
mod back;
mod candidates;
mod config;
mod connect;
mod detour;
mod dial;
mod error;
mod follow;
mod health;
mod journal;
mod missing;
mod moves;
mod place;
mod placing;
pub mod rates;
mod reload;
mod resolve;
mod serve;
mod served;
mod server;
mod servers;
pub mod show;
mod suspects;
mod trim;

pub use config::{Config, Process};
pub use error::Error;
pub use raddle_rpc::dispatch::Policy;
pub use serve::{Asked, Options, Phase, serve};
pub use server::{
    HostPort, MAX_CONNECTIONS, MAX_MEMORY, MAX_RECORD, MAX_TABLE, MIN_TABLE, Mark, NotAMark,
    NotAServer, Numbers, Server,
};
pub use servers::Servers;
