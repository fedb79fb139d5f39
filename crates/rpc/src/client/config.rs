//! How a client works.

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::dispatch::Policy;
use crate::proxy::{self, Service};

/// How long a server may stall within a reply.
const STALL: Duration = Duration::from_secs(30);

/// How a client works. The default has four connections and one more for small calls.
#[derive(Clone, Debug)]
pub struct Config {
    /// Connections for all calls, 1 to 1024.
    pub connections: usize,
    /// Connections more, for calls that move at most 32 KiB both ways; 0 to 64.
    pub lanes: usize,
    /// Which connection a call takes.
    pub policy: Policy,
    /// Longest record, in bytes: 4096 to 1 GiB.
    pub most: u32,
    /// Bytes of calls, and as many of replies, that may be kept at once. One record for each connection comes on
    /// top.
    pub memory: usize,
    /// Calls that may be on their way at once, at least 1; others wait.
    pub calls: usize,
    /// How long the first connection may take.
    pub patience: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            connections: 4,
            lanes: 1,
            policy: Policy::LeastBytes,
            most: 16 << 20,
            memory: 256 << 20,
            calls: 4096,
            patience: Duration::from_secs(10),
        }
    }
}

/// Why there is no client.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// A value of [`Config`] is out of its range.
    #[error("{name} is {value}: it may be {range}")]
    Config {
        /// The field.
        name: &'static str,
        /// What it is.
        value: usize,
        /// What it may be.
        range: &'static str,
    },
    /// No connection stands.
    #[error("no connection to the server: {0}")]
    NoConnection(String),
    /// The client's thread could not be started.
    #[error("cannot start the client's thread: {0}")]
    Thread(io::Error),
}

impl Config {
    /// Whether every value is in its range.
    pub(super) fn check(&self) -> Result<(), ConnectError> {
        let most = self.most as usize;
        let range = |name, value, is_in, range| match is_in {
            true => Ok(()),
            false => Err(ConnectError::Config { name, value, range }),
        };
        let connections = self.connections;
        range(
            "connections",
            connections,
            (1..=1024).contains(&connections),
            "1 to 1024",
        )?;
        range("lanes", self.lanes, self.lanes <= 64, "0 to 64")?;
        range(
            "most",
            most,
            (4096..=1 << 30).contains(&most),
            "4096 to 2^30",
        )?;
        range("memory", self.memory, self.memory > 0, "1 at least")?;
        let calls = self.calls;
        range("calls", calls, (1..=1 << 20).contains(&calls), "1 to 2^20")
    }

    /// What the transports want to know.
    pub(super) fn of_transports(&self) -> proxy::Config {
        proxy::Config {
            services: vec![Service {
                programs: Vec::new(),
                connections: self.connections,
                lanes: self.lanes,
            }],
            policy: self.policy,
            most: self.most,
            memory: self.memory,
            patience: STALL,
            clients: 0,
            port: 0,
            below: None,
        }
    }
}
