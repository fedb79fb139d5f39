//! Nodes: what they are for, what they know from the start, and how they route.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{device::Device, link::LinkId};
use crate::SegmentRouting;

/// What a node is for; decides whether it forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// An end system; it does not forward.
    Host,
    /// A top-of-rack router of a Clos fabric.
    Leaf,
    /// A router of the upper stage of a Clos fabric.
    Spine,
    /// Any other router.
    Router,
}

impl Role {
    /// Whether nodes of this role forward packets.
    pub fn forwards(self) -> bool {
        self != Self::Host
    }
}

/// The kernel's `fib_multipath_hash_policy`, of both families.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HashPolicy {
    /// 0: addresses only. All connections between two hosts take one path.
    L3,
    /// 1: addresses, protocol and ports. Connections spread over the paths.
    #[default]
    L4,
    /// 2: the addresses of the inner packet, if there is one, else as 0.
    Inner,
    /// 3: the fields of `fib_multipath_hash_fields`.
    Custom,
}

impl HashPolicy {
    /// The value of the sysctl.
    pub fn sysctl(self) -> u8 {
        match self {
            Self::L3 => 0,
            Self::L4 => 1,
            Self::Inner => 2,
            Self::Custom => 3,
        }
    }
}

/// BGP on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bgp {
    /// The autonomous system number.
    pub asn: u32,
    /// The router id; also what errors in logs are told apart by.
    pub router_id: Ipv4Addr,
    /// Prefixes that the node announces; it must have a route to each (an address is one).
    pub networks: Vec<IpNet>,
    /// EVPN, if the node has tenants.
    #[serde(default)]
    pub evpn: Option<Evpn>,
}

/// EVPN on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evpn {
    /// The router ids of the nodes that it is spoken with; these and the node's own are addresses of
    /// loopbacks, between which the sessions are.
    pub peers: Vec<Ipv4Addr>,
    /// The VRFs whose routes go to the peers.
    pub tenants: Vec<Tenant>,
}

/// A VRF whose routes go to other nodes by EVPN, as IP prefixes (RFC 9136), and its packets in VXLAN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// The VRF, one of the node's [`made`](Node::made) devices.
    pub vrf: String,
    /// The number of its network (L3VNI), that of a VXLAN device of the node: 1 to 2^24 - 1.
    pub vni: u32,
    /// Prefixes that the node announces in it; the VRF must have a route to each.
    pub networks: Vec<IpNet>,
}

/// A route set at start and never changed by a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticRoute {
    /// The destination.
    pub prefix: IpNet,
    /// One or several gateways, of the prefix's family, of equal weight.
    pub via: Vec<IpAddr>,
    /// The address that sockets get that go this way (`src`), one of the node's own.
    #[serde(default)]
    pub source: Option<IpAddr>,
    /// The congestion control of TCP connections that go this way (`congctl`), such as `cubic`;
    /// without one, that of the machine. It must be there already: a lab loads no module.
    #[serde(default)]
    pub congestion: Option<String>,
}

impl StaticRoute {
    /// A route by these gateways, with nothing else said.
    pub fn new(prefix: IpNet, via: Vec<IpAddr>) -> Self {
        Self {
            prefix,
            via,
            source: None,
            congestion: None,
        }
    }
}

/// A neighbour that a node knows for good, without asking for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Its address.
    pub address: IpAddr,
    /// The device that it is behind.
    pub dev: String,
    /// The link, and the end of it (0 or 1), whose MAC address it has.
    pub end: (LinkId, usize),
}

/// A network namespace of the lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The name: a lower-case letter, then lower-case letters, digits and `_`; at most 15.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// `fib_multipath_hash_seed`; without one, a seed derived from the names of lab and node.
    pub hash_seed: Option<u32>,
    /// Addresses of the node itself, on its loopback device.
    pub addresses: Vec<IpNet>,
    /// Routes set at start.
    pub routes: Vec<StaticRoute>,
    /// BGP, if the node speaks it.
    pub bgp: Option<Bgp>,
    /// SRv6.
    #[serde(default)]
    pub segments: SegmentRouting,
    /// Neighbours that are not asked for.
    #[serde(default)]
    pub neighbours: Vec<Neighbour>,
    /// Devices that the node makes upon its links and upon each other, in this order.
    #[serde(default)]
    pub made: Vec<Device>,
}
