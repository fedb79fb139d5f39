//! Links, their numbers and their ends.

use std::fmt;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::Rate;

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The node.
    pub node: String,
    /// The device in that node.
    pub dev: String,
    /// Its addresses; link-local IPv6 is always there besides.
    pub addresses: Vec<IpNet>,
    /// The link, and the end of it (0 or 1), whose MAC address the device has in place of its own.
    #[serde(default)]
    pub poses_as: Option<(LinkId, usize)>,
    /// Whether the device receives without GRO: frames stay as they were on the cable.
    #[serde(default)]
    pub gro_off: bool,
}

/// A cable between two nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The ends.
    pub ends: [End; 2],
    /// The rate of each direction; `None` is as fast as the machine can.
    pub rate: Option<Rate>,
    /// Whether the ends' routers hold an unnumbered BGP session over it.
    pub bgp: bool,
    /// The MTU in bytes, 1280 to 65535, where it is not that of the other links.
    #[serde(default)]
    pub mtu: Option<u32>,
}

/// The number of a link: its position in [`Topology::links`](super::Topology::links).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LinkId(pub usize);

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Link {
    /// Whether these are its ends, in either order.
    pub(super) fn joins(&self, a: &str, b: &str) -> bool {
        let [x, y] = [&*self.ends[0].node, &*self.ends[1].node];
        (x, y) == (a, b) || (y, x) == (a, b)
    }
}
