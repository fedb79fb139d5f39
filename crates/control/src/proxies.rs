//! The answer to [`Command::Rpc`].

use std::net::SocketAddr;

use raddle_rpc_core::core::status::Status;
use serde::{Deserialize, Serialize};

use crate::{Answer, Command};

/// What the proxies of `raddle rpc` do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Proxies {
    /// One for each server, by name.
    pub servers: Vec<Proxy>,
    /// Its configuration, where it has one.
    pub config: Option<ProxyConfig>,
}

impl Answer for Proxies {
    const COMMAND: Command = Command::Rpc;
}

/// The proxy of a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Proxy {
    /// What the server is called.
    pub name: String,
    /// The server's host and port.
    pub server: Option<String>,
    /// Where clients connect.
    pub listen: Vec<SocketAddr>,
    /// What it does, if anything.
    #[serde(flatten)]
    pub serving: Serving,
}

/// What a proxy does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Serving {
    /// It cannot serve, and tries again.
    Not {
        /// Why.
        not_served: String,
    },
    /// It serves.
    Yes(Box<Status>),
}

impl Serving {
    /// What it does, where it serves.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Serving::Not { .. } => None,
            Serving::Yes(status) => Some(status),
        }
    }
}

/// A configuration that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyConfig {
    /// The file.
    pub file: String,
    /// Seconds since the configuration that holds was read.
    pub read_seconds: u64,
    /// It was read again since, and refused.
    pub refused: Option<RefusedConfig>,
}

/// A configuration that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedConfig {
    /// Seconds since.
    pub seconds: u64,
    /// Why.
    pub why: String,
}
