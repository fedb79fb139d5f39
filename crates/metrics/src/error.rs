//! Why metrics are not served.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

/// What is wrong, and what to do about it.
#[derive(Debug, Error)]
pub enum Error {
    /// Others could read them.
    #[error(
        "metrics address {0} is not a loopback address: metrics have no access control, so put a proxy before \
         127.0.0.1 or ::1"
    )]
    NotLoopback(SocketAddr),
    /// The address is taken, or not to be had.
    #[error("cannot serve metrics at {address}: {source}; choose another address")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The system has no thread for it.
    #[error(
        "cannot serve metrics, as there is no thread to be had: {0}; raise the limit of processes"
    )]
    Thread(io::Error),
}
