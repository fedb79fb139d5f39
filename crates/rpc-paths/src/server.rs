//! What is asked for: a server, and how it is served.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use raddle_rpc::dispatch::Policy;
use thiserror::Error;

/// NFS's port, where none is given.
const NFS_PORT: u16 = 2049;

/// The most connections to a server.
pub const MAX_CONNECTIONS: u16 = 1024;
/// The most that [`Server::memory`] may be, in MiB.
pub const MAX_MEMORY: u32 = 65536;
/// The most that [`Server::max_record`] may be, in MiB.
pub const MAX_RECORD: u32 = 1024;
/// The lowest first table for detours.
pub const MIN_TABLE: u32 = 256;
/// The highest: the rules that lead to them stand before that of table main, which knows a way to every server.
pub const MAX_TABLE: u32 = 32_702;
/// The highest first mark of detours.
const MAX_MARK: u32 = 0xffff_ff00;

/// A server, and how it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// What status, metrics and the log call it.
    pub name: String,
    /// Where clients connect.
    pub listen: Vec<SocketAddr>,
    /// The server.
    pub server: HostPort,
    /// More addresses of it, all of one family.
    pub server_addresses: Vec<IpAddr>,
    /// Local addresses to connect from; without any, the kernel's choice.
    pub local_addresses: Vec<IpAddr>,
    /// Its port for MOUNT, if another one.
    pub mount_port: Option<u16>,
    /// Connections to it, 1 to [`MAX_CONNECTIONS`].
    pub connections: u16,
    /// Whether there is one more for small calls.
    pub lane: bool,
    /// Which connection a call takes.
    pub policy: Policy,
    /// Whether source ports are chosen so that connections lie on paths of their own.
    pub placement: bool,
    /// Whether connections come from ports that servers take for root's; clients then have to, too.
    pub privileged_ports: bool,
    /// By which tables and marks held calls are led around silent links; none if they are not.
    pub replay_routes: Option<Numbers>,
    /// MiB of calls, and as many of replies, that may be kept at once, 1 to [`MAX_MEMORY`].
    pub memory: u32,
    /// MiB that one record may have, 1 to [`MAX_RECORD`].
    pub max_record: u32,
}

impl Server {
    /// Connections, where none are asked for.
    pub const CONNECTIONS: u16 = 4;
    /// [`Server::memory`], where none is asked for.
    pub const MEMORY: u32 = 256;
    /// [`Server::max_record`], where none is asked for.
    pub const RECORD: u32 = 16;
    /// Where clients connect, where nothing is asked for.
    pub const LISTEN: SocketAddr =
        SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), NFS_PORT);

    /// One with the defaults; its name is the host.
    pub fn new(server: HostPort) -> Server {
        Server {
            name: server.host().to_owned(),
            listen: vec![Server::LISTEN],
            server,
            server_addresses: Vec::new(),
            local_addresses: Vec::new(),
            mount_port: None,
            connections: Server::CONNECTIONS,
            lane: true,
            policy: Policy::LeastBytes,
            placement: true,
            privileged_ports: false,
            replay_routes: Some(Numbers::default()),
            memory: Server::MEMORY,
            max_record: Server::RECORD,
        }
    }
}

/// Where the tables and marks of detours begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The first table, and the priority of the rule that leads there: [`MIN_TABLE`] to [`MAX_TABLE`].
    pub table: u32,
    /// The first mark.
    pub mark: Mark,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers {
            table: 8200,
            mark: Mark(0x52_0000),
        }
    }
}

/// The first firewall mark of detours, 1 to 0xffffff00.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u32);

/// What is no mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a mark is 1 to {MAX_MARK:#x}")]
pub struct NotAMark;

impl Mark {
    /// The number.
    pub fn number(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for Mark {
    type Error = NotAMark;

    fn try_from(mark: u32) -> Result<Mark, NotAMark> {
        let known = (1..=MAX_MARK).contains(&mark);
        known.then_some(Mark(mark)).ok_or(NotAMark)
    }
}

/// Decimal or by `0x`.
impl FromStr for Mark {
    type Err = NotAMark;

    fn from_str(text: &str) -> Result<Mark, NotAMark> {
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => text.parse(),
        };
        parsed.map_err(|_| NotAMark)?.try_into()
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A server with its port: `nas`, which means port 2049, `nas:2049`, `192.0.2.1`, `2001:db8::1`, `[2001:db8::1]:2049`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort(String);

/// What names no server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("write HOST or HOST:PORT, such as nas.example:2049")]
pub struct NotAServer;

impl HostPort {
    /// The host.
    pub fn host(&self) -> &str {
        self.0.rsplit_once(':').map_or(&self.0, |(host, _)| host)
    }

    /// Host and port.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostPort {
    type Err = NotAServer;

    fn from_str(text: &str) -> Result<HostPort, NotAServer> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(text).parse::<IpAddr>() {
            return Ok(SocketAddr::new(address, NFS_PORT).into());
        }
        match text.rsplit_once(':') {
            None if !text.is_empty() => Ok(HostPort(format!("{text}:{NFS_PORT}"))),
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0) => {
                Ok(HostPort(text.to_owned()))
            }
            _ => Err(NotAServer),
        }
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> HostPort {
        HostPort(address.to_string())
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_port_has_that_of_nfs() {
        for (text, want) in [
            ("nas", "nas:2049"),
            ("nas.example:20490", "nas.example:20490"),
            ("192.0.2.1", "192.0.2.1:2049"),
            ("192.0.2.1:1", "192.0.2.1:1"),
            ("2001:db8::1", "[2001:db8::1]:2049"),
            ("[2001:db8::1]", "[2001:db8::1]:2049"),
            ("[2001:db8::1]:7", "[2001:db8::1]:7"),
        ] {
            assert_eq!(text.parse::<HostPort>().unwrap().as_str(), want);
        }
        for wrong in ["", ":2049", "nas:", "nas:0", "nas:nfs", "nas:70000"] {
            assert!(wrong.parse::<HostPort>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_mark_is_decimal_or_hexadecimal() {
        for (text, mark) in [("1", 1), ("0x520000", 0x52_0000), ("0xffffff00", MAX_MARK)] {
            assert_eq!(text.parse(), Ok(Mark(mark)));
        }
        for wrong in ["", "0", "0xffffff01", "0x", "-1", "x"] {
            assert_eq!(wrong.parse::<Mark>(), Err(NotAMark), "{wrong}");
        }
    }
}
