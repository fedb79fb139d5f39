//! Why servers are not served, and why connections are not placed.

use std::io;
use std::net::{IpAddr, SocketAddr};

use thiserror::Error;
use tokio::task::JoinError;

use crate::resolve::{CLIENTS_BELOW, PRIVILEGED};

/// Why a server is not served, or none is.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration's file.
    #[error(transparent)]
    Config(#[from] raddle_config::Error),
    /// What names the server cannot be a name.
    #[error(
        "cannot find the server '{server}': {source}; write HOST:PORT, such as nas.example:2049"
    )]
    NoName {
        /// The server.
        server: String,
        /// What the resolver says.
        source: io::Error,
    },
    /// Its name is not known, or nobody could be asked; which may be so until the network is up.
    #[error("cannot find the server '{server}': {source}")]
    NotFound {
        /// The server.
        server: String,
        /// What the resolver says.
        source: io::Error,
    },
    /// Its name has no address.
    #[error("'{0}' has no address")]
    NoAddress(String),
    /// An address of a family that the server has none of.
    #[error(
        "{option} {address} is an {} address, and the server, {server}, has none: name addresses of one family",
        family(.address)
    )]
    OtherFamily {
        /// Which option names it.
        option: &'static str,
        /// The address.
        address: IpAddr,
        /// The server's.
        server: IpAddr,
    },
    /// Addresses of two families.
    #[error(
        "{option} {address} is an {} address, and {} {} an {} one: name addresses of one family",
        family(.address), .first.0, .first.1, family(&.first.1)
    )]
    TwoFamilies {
        /// Which option names the other one.
        option: &'static str,
        /// The other one.
        address: IpAddr,
        /// The option and the address that came first.
        first: (&'static str, IpAddr),
    },
    /// One of several servers cannot be served.
    #[error("{name}: {source}")]
    OfServer {
        /// The server's name.
        name: String,
        /// Why not.
        source: Box<Error>,
    },
    /// A local address is none of this machine's.
    #[error("--local-addresses {0} is no address of this machine: ip address says which are")]
    NotLocal(IpAddr),
    /// A local address cannot be used.
    #[error("cannot bind to {address}: {source}")]
    Bind {
        /// The address.
        address: IpAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Ports that servers trust are everybody's here.
    #[error(
        "--privileged-ports takes who calls from a port below {CLIENTS_BELOW} for root, and here everybody may from {0} on: any \
         local user could be any user to the server; set net.ipv4.ip_unprivileged_port_start to {CLIENTS_BELOW}"
    )]
    PortsOfEverybody(u16),
    /// Ports that servers trust may not be used.
    #[error(
        "--privileged-ports needs CAP_NET_BIND_SERVICE for ports {} to {}: {source}; run it as root, or with that capability, or \
         leave the option out where the export allows it (insecure)",
        PRIVILEGED.0, PRIVILEGED.1
    )]
    PrivilegedPorts {
        /// What the system says.
        source: io::Error,
    },
    /// An address for clients cannot be had.
    #[error("cannot listen on {address}: {source}; choose another --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The proxy would be its own server.
    #[error(
        "the server {0} is where this proxy listens itself; name another --server, or --listen elsewhere"
    )]
    Itself(SocketAddr),
    /// A listener has failed.
    #[error("cannot accept clients: {0}")]
    Accept(io::Error),
    /// A listener is no more.
    #[error("a listener has ended")]
    ListenerEnded,
    /// The system refuses something.
    #[error(transparent)]
    System(#[from] io::Error),
    /// A task has ended early.
    #[error(transparent)]
    Task(#[from] JoinError),
}

fn family(address: &IpAddr) -> &'static str {
    if address.is_ipv6() { "IPv6" } else { "IPv4" }
}

impl Error {
    /// Whether it is the user's to correct; otherwise the system refuses, and may not later: an address of this machine may come
    /// after the start, by DHCP or VRRP.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Error::Config(_)
                | Error::NoName { .. }
                | Error::OtherFamily { .. }
                | Error::TwoFamilies { .. }
                | Error::Itself(_)
        ) || matches!(self, Error::OfServer { source, .. } if source.is_usage())
    }
}

/// Why no port with a known path is there: connections are made all the same, and what they take is the kernel's
/// choice.
#[derive(Debug, Error)]
pub(crate) enum Unplaced {
    #[error("{0} is an address of one link")]
    LinkLocal(IpAddr),
    #[error(transparent)]
    Netlink(#[from] raddle_netlink::Error),
    #[error(transparent)]
    Ports(#[from] raddle_plan::ports::Error),
    #[error("there are no ports")]
    NoPorts,
    #[error(
        "port {port} should lead by {dev}, and the kernel says {said}; raddle explain --check says more"
    )]
    Otherwise {
        port: u16,
        dev: String,
        said: String,
    },
    #[error("the kernel names no source address: add --local-addresses")]
    NoSource,
    #[error(transparent)]
    Task(#[from] JoinError),
}
