#![doc = include_str!("../README.md")]

mod connections;
mod daemon;
mod error;
mod lag;
mod proxies;
mod rows;
mod segments;
mod server;

pub use daemon::daemon_text;
pub use error::Error;
pub use proxies::proxies_text;
pub use server::{Endpoint, Source, check, require_loopback, serve};
