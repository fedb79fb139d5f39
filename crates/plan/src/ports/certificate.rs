//! The coverage certificate: what a port plan says, and by which settings, so that anyone can check it.

use std::io::{BufReader, Read};
use std::net::{IpAddr, Ipv4Addr};

use raddle_text::outside::{Bounded, line, line_if_any, link_name};
use serde::{Deserialize, Serialize};

use super::beyond::PlannedRouter;
use super::{Error, sound};
use crate::bonds::BondUse;
use crate::paths::Named;

/// A port plan and the settings that it holds for. One that is read by [`Certificate::parse`] holds together ([`Unsound`]), as all
/// do that were planned.
///
/// [`Unsound`]: super::Unsound
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// [`Certificate::FORMAT`].
    pub format: String,
    /// What was asked for.
    pub flow: PlannedFlow,
    /// What it depends on.
    pub settings: HashSettings,
    /// The route.
    #[serde(deserialize_with = "line")]
    pub route: String,
    /// The nexthop group, where it is one.
    pub group: Option<u32>,
    /// Nexthops are preferred by the source (Linux 6.16 and later), so that others have no share.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preferred: bool,
    /// The bonds that paths lead over: their members, in this order, are what it depends on, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bonds: Vec<BondUse>,
    /// The paths, in the order of selection; of a nexthop over a bond each of its members.
    pub paths: Vec<PlannedPath>,
    /// Ports that cover them.
    pub connections: Vec<PlannedConnection>,
    /// The connections at routers behind, where these were said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beyond: Vec<PlannedRouter>,
    /// For each link that may fail, what to open and close then.
    pub spares: Vec<PlannedSpare>,
}

impl Certificate {
    /// The name and version of the format.
    pub const FORMAT: &str = "raddle-ports-1";
    /// Bytes that are read at most: 65535 connections, and what becomes of each when one of 256 links fails.
    pub const MOST: u64 = 256 << 20;

    /// Reads one; `name` is what errors call it.
    ///
    /// # Errors
    /// What is read is none, is one of another version, or contradicts itself; it cannot be read.
    pub fn parse(name: &str, input: impl Read) -> Result<Certificate, Error> {
        let name = || name.to_owned();
        let input = BufReader::new(Bounded::new(input, Certificate::MOST));
        let read: Result<Certificate, _> = serde_json::from_reader(input);
        let certificate = read.map_err(|why| match why.is_io() {
            true => Error::Unread {
                name: name(),
                why: why.into(),
            },
            false => Error::NotACertificate { name: name(), why },
        })?;
        if certificate.format != Certificate::FORMAT {
            return Err(Error::Format {
                name: name(),
                format: certificate.format,
            });
        }
        match sound::check(&certificate) {
            Ok(()) => Ok(certificate),
            Err(why) => Err(Error::Unsound { name: name(), why }),
        }
    }

    /// The connections, each with its path.
    pub(super) fn on_paths(&self) -> impl Iterator<Item = (&PlannedConnection, &PlannedPath)> {
        let path = |c: &PlannedConnection| self.paths.get(c.path);
        let connections = self.connections.iter();
        connections.filter_map(move |c| Some((c, path(c)?)))
    }

    /// Whether connections are bound to a port and to no address, and get their path's.
    pub fn is_unbound(&self) -> bool {
        self.flow.iif.is_none() && self.flow.from == Ipv4Addr::UNSPECIFIED
    }

    /// Connections on each path.
    pub fn loads(&self) -> Vec<usize> {
        let on = |path: usize| self.connections.iter().filter(|c| c.path == path).count();
        (0..self.paths.len()).map(on).collect()
    }
}

/// What varies between the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Varied {
    /// The source port.
    Sport,
    /// The IPv6 flow label.
    FlowLabel,
}

/// What the connections have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedFlow {
    /// Destination.
    pub dst: IpAddr,
    /// Source; 0.0.0.0 where each connection gets that of its path.
    pub from: IpAddr,
    /// The link that their packets come in by; none for this machine's own.
    #[serde(default, deserialize_with = "line_if_any")]
    pub iif: Option<String>,
    /// Protocol number.
    pub proto: u8,
    /// Source port, where labels vary; 0 otherwise.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// What differs.
    pub vary: Varied,
}

/// The settings that the hash depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HashSettings {
    /// `fib_multipath_hash_policy` of the family.
    pub policy: u8,
    /// `fib_multipath_hash_fields` of the family; counts with policy 3.
    pub fields: u32,
    /// `fib_multipath_hash_seed`; 0 for the kernel's own key.
    pub seed: u32,
}

/// A path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedPath {
    /// Where it leads.
    #[serde(flatten)]
    pub path: Named,
    /// Its weight.
    pub weight: u16,
    /// How many of the 2^31 hashes it has; of the members of a bond, each an equal part of what their nexthop has.
    pub hashes: u64,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedConnection {
    /// Its source port or flow label.
    pub value: u32,
    /// Its 31-bit hash; none where it would give the kernel's own key away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<u32>,
    /// The number of its path.
    pub path: usize,
    /// The source address that it gets, where none is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Ipv4Addr>,
    /// The number of the link that it takes at each router behind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beyond: Vec<usize>,
}

/// What to do when a link fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedSpare {
    /// The link, or the member of a bond.
    #[serde(deserialize_with = "link_name")]
    pub dev: String,
    /// Connections to open.
    pub connections: Vec<PlannedConnection>,
    /// Connections to close, beside those that are lost: their path has more than its number by then.
    pub close: Vec<u32>,
    /// Connections whose own link lives, but that another one takes then.
    pub moved: Vec<u32>,
    /// Connections on each path when that is done.
    pub loads: Vec<usize>,
}
