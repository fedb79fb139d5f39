//! What can be wrong with a topology, and what a name or a number of it has to be.

use std::{collections::HashSet, net::IpAddr};

use ipnet::IpNet;
use thiserror::Error;

use super::{
    device::{Device, DeviceKind},
    node::Node,
};
use crate::names;

/// What is wrong with a topology.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A number is out of its range.
    #[error("{what} is {value}, but must be from {min} to {max}")]
    OutOfRange {
        /// What the number counts.
        what: &'static str,
        /// What was given.
        value: u64,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// The name cannot be a node's.
    #[error(
        "`{0}` cannot name a node: use 1 to 15 of a-z, 0-9 and _, a letter first, but not `wire`"
    )]
    BadNodeName(String),
    /// Two nodes share a name.
    #[error("two nodes are named `{0}`; names of nodes must be unique")]
    DuplicateNode(String),
    /// Something refers to a node that is not there.
    #[error("there is no node `{0}`, but a link or an expected route names it; add the node")]
    UnknownNode(String),
    /// The name cannot be a device's.
    #[error(
        "`{0}` cannot name a device: use 1 to 15 characters, no space, colon or slash, not `lo`"
    )]
    BadDevice(String),
    /// Two devices of a node share a name.
    #[error("node `{node}` has two devices named `{dev}`; device names must be unique in a node")]
    DuplicateDevice {
        /// The node.
        node: String,
        /// The device.
        dev: String,
    },
    /// A neighbour, a route or a device names a device that its node does not have, or not yet.
    #[error(
        "node `{node}` has no device `{dev}`, but a neighbour, a route or a device of it names it"
    )]
    UnknownDevice {
        /// The node.
        node: String,
        /// The device.
        dev: String,
    },
    /// A tenant names a VRF, or the number of a network, of which its node has no device.
    #[error("node `{node}` has no {what}, but a tenant of it names that; make the device")]
    UnknownNetwork {
        /// The node.
        node: String,
        /// What it lacks: ``VRF `red` ``, `VXLAN device with VNI 4001`.
        what: String,
    },
    /// A link or a device wants BGP, but its node speaks none.
    #[error("a link of `{0}` is to carry BGP, but the node speaks none; give it an AS number")]
    NotBgp(String),
    /// A route without gateways, or with a gateway or a source of the other family.
    #[error("the route to {0} of node `{1}` needs gateways of its own address family")]
    BadRoute(IpNet, String),
    /// The name cannot be that of a congestion control.
    #[error(
        "`{0}` cannot name a congestion control: use 1 to 15 of a-z, 0-9, - and _, such as cubic; \
         sysctl net.ipv4.tcp_available_congestion_control lists them"
    )]
    BadCongestionControl(String),
}

/// An error unless `min <= value <= max`.
pub(crate) fn in_range(
    what: &'static str,
    value: u64,
    min: u64,
    max: u64,
) -> Result<(), TopologyError> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(TopologyError::OutOfRange {
            what,
            value,
            min,
            max,
        })
    }
}

pub(super) fn check_node(node: &Node) -> Result<(), TopologyError> {
    let name = node.name.as_bytes();
    let inside = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_';
    let good = name.first().is_some_and(u8::is_ascii_lowercase)
        && name.len() <= 15
        && name.iter().all(inside)
        && node.name != names::WIRE;
    if !good {
        return Err(TopologyError::BadNodeName(node.name.clone()));
    }
    for route in &node.routes {
        let same = |via: &IpAddr| via.is_ipv4() == route.prefix.addr().is_ipv4();
        if route.via.is_empty() || !route.via.iter().chain(&route.source).all(same) {
            return Err(TopologyError::BadRoute(route.prefix, node.name.clone()));
        }
        let inside = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
        // The length is TCP_CA_NAME_MAX of the kernel, less the zero at the end.
        let good = |name: &&String| (1..=15).contains(&name.len()) && name.bytes().all(inside);
        if let Some(name) = route.congestion.iter().find(|name| !good(name)) {
            return Err(TopologyError::BadCongestionControl(name.clone()));
        }
    }
    Ok(())
}

/// As the kernel's `dev_valid_name`, and nothing that would need quoting in a batch of `ip`.
pub(super) fn check_device(dev: &str) -> Result<(), TopologyError> {
    let good = (1..=15).contains(&dev.len())
        && dev
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && !["lo", ".", "..", "all", "default"].contains(&dev)
        && !dev.starts_with('-');
    if good {
        Ok(())
    } else {
        Err(TopologyError::BadDevice(dev.to_owned()))
    }
}

/// Checks the devices that a node makes, and adds them to those that it has: `known`, so far its links.
///
/// 1. Names are as those of links, and unique in the node.
/// 2. What a device is upon, and what becomes part of it, is a link or was made before.
/// 3. The numbers of VLANs, of networks and of tables are such.
/// 4. Who is to hold a session over one speaks BGP.
/// 5. A tenant's VRF, and a VXLAN device with the number of its network, are among them.
pub(super) fn check_made<'a>(
    node: &'a Node,
    known: &mut HashSet<&'a str>,
) -> Result<(), TopologyError> {
    for device in &node.made {
        check_device(&device.name)?;
        let upon = device.upon();
        if let Some(dev) = upon.into_iter().find(|dev| !known.contains(dev)) {
            let (node, dev) = (node.name.clone(), dev.to_owned());
            return Err(TopologyError::UnknownDevice { node, dev });
        }
        if !known.insert(&device.name) {
            let (node, dev) = (node.name.clone(), device.name.clone());
            return Err(TopologyError::DuplicateDevice { node, dev });
        }
        match device.kind {
            DeviceKind::Vlan { id, .. } => in_range("a VLAN's number", id.into(), 1, 4094)?,
            DeviceKind::Vxlan { vni, .. } => {
                in_range("the number of a network", vni.into(), 1, (1 << 24) - 1)?;
            }
            DeviceKind::Vrf { table } => {
                in_range("a VRF's table", table.into(), 1, u32::MAX.into())?;
            }
            DeviceKind::Bond { .. } | DeviceKind::Bridge => {}
        }
        if device.bgp && node.bgp.is_none() {
            return Err(TopologyError::NotBgp(node.name.clone()));
        }
    }
    check_tenants(node)
}

fn check_tenants(node: &Node) -> Result<(), TopologyError> {
    let evpn = node.bgp.iter().filter_map(|bgp| bgp.evpn.as_ref());
    let makes = |is: &dyn Fn(&Device) -> bool| node.made.iter().any(is);
    for tenant in evpn.flat_map(|evpn| &evpn.tenants) {
        let is_vrf = |device: &Device| {
            device.name == tenant.vrf && matches!(device.kind, DeviceKind::Vrf { .. })
        };
        let is_network = |device: &Device| matches!(device.kind, DeviceKind::Vxlan { vni, .. } if vni == tenant.vni);
        let what = match (makes(&is_vrf), makes(&is_network)) {
            (true, true) => continue,
            (false, _) => format!("VRF `{}`", tenant.vrf),
            (true, false) => format!("VXLAN device with VNI {}", tenant.vni),
        };
        let node = node.name.clone();
        return Err(TopologyError::UnknownNetwork { node, what });
    }
    Ok(())
}
