//! Devices that a node makes of its links and upon them: VLANs, bonds, bridges, VXLANs, VRFs.

use std::{fmt, net::Ipv4Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// A device that a node makes, by the kernel's drivers for such.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The name, one that no link of the node has.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// What becomes part of it (`ip link set MEMBER master NAME`): links of the node, or devices that
    /// are made before this one.
    pub members: Vec<String>,
    /// The MTU in bytes. Without one, that of the device that it is on, or the least of its members'; a
    /// bond, which gives its members its own, should have one.
    pub mtu: Option<u32>,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// Whether the node's router holds an unnumbered BGP session over it.
    pub bgp: bool,
}

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DeviceKind {
    /// An 802.1Q VLAN.
    Vlan {
        /// The device that its tagged frames are on: a link, or made before this one.
        on: String,
        /// The number in the tags, 1 to 4094.
        id: u16,
    },
    /// A bond of mode 802.3ad whose members speak LACP every second: unlike other modes it notices a
    /// member that loses everything while its carrier stays (a link that is cut), three seconds later.
    Bond {
        /// By what it chooses the member for a packet.
        hash: BondHash,
    },
    /// A bridge that learns no addresses, for VXLANs whose far ends FRR knows. It routes for its
    /// ports, so it has a MAC address that repeats from run to run.
    Bridge,
    /// A VXLAN over IPv4 that learns nothing and floods nowhere by itself. Its MTU should be 50 bytes below
    /// that of the links that it goes over.
    Vxlan {
        /// The number of the network, 1 to 2^24 - 1.
        vni: u32,
        /// The node's own end of the tunnels.
        local: Ipv4Addr,
    },
    /// A VRF.
    Vrf {
        /// Its routing table, not 0.
        table: u32,
    },
}

/// A bond's `xmit_hash_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum BondHash {
    /// Addresses and ports. Of frames that have a tag in their bytes, as those have that XDP sends, MAC
    /// addresses.
    #[serde(rename = "layer3+4")]
    Layer34,
    /// Addresses and ports, also behind tags and of what is in tunnels.
    #[serde(rename = "encap3+4")]
    Encap34,
}

impl fmt::Display for BondHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Layer34 => "layer3+4",
            Self::Encap34 => "encap3+4",
        })
    }
}

/// What VXLAN over IPv4 puts around a packet, in bytes: a MAC header, and VXLAN, UDP and IPv4.
pub(crate) const VXLAN_ROOM: u32 = 14 + 8 + 8 + 20;

/// A driver that the kernel may lack: what it makes, where it comes from, and how it is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Feature {
    /// What it makes, for people.
    pub(crate) plural: &'static str,
    /// The module that has it.
    pub(crate) module: &'static str,
    /// The kernel's option.
    pub(crate) config: &'static str,
    /// A line of `ip` that makes one in a namespace that has a device `lower`, and no others.
    pub(crate) probe: &'static str,
}

const VLAN: Feature = Feature {
    plural: "VLANs",
    module: "8021q",
    config: "CONFIG_VLAN_8021Q",
    probe: "link add link lower name a-vlan type vlan id 1",
};
const BOND: Feature = Feature {
    plural: "bonds",
    module: "bonding",
    config: "CONFIG_BONDING",
    probe: "link add name a-bond type bond mode 802.3ad",
};
const BRIDGE: Feature = Feature {
    plural: "bridges",
    module: "bridge",
    config: "CONFIG_BRIDGE",
    probe: "link add name a-bridge type bridge",
};
const VXLAN: Feature = Feature {
    plural: "VXLANs",
    module: "vxlan",
    config: "CONFIG_VXLAN",
    probe: "link add name a-vxlan type vxlan id 1 dstport 4789",
};
const VRF: Feature = Feature {
    plural: "VRFs",
    module: "vrf",
    config: "CONFIG_NET_VRF",
    probe: "link add name a-vrf type vrf table 10",
};

impl DeviceKind {
    /// What the kernel needs for it.
    pub(crate) fn feature(&self) -> &'static Feature {
        match self {
            Self::Vlan { .. } => &VLAN,
            Self::Bond { .. } => &BOND,
            Self::Bridge => &BRIDGE,
            Self::Vxlan { .. } => &VXLAN,
            Self::Vrf { .. } => &VRF,
        }
    }
}

impl Device {
    /// A device without members and addresses.
    pub fn new(name: impl Into<String>, kind: DeviceKind) -> Self {
        Self {
            name: name.into(),
            kind,
            members: Vec::new(),
            mtu: None,
            addresses: Vec::new(),
            bgp: false,
        }
    }

    /// The devices that it is made of or upon.
    pub fn upon(&self) -> Vec<&str> {
        let lower = match &self.kind {
            DeviceKind::Vlan { on, .. } => Some(&**on),
            _ => None,
        };
        let members = self.members.iter().map(|member| &**member);
        lower.into_iter().chain(members).collect()
    }

    /// Lines of `ip` that make it and take its members in; it stays down. `mac` is what a bridge gets.
    ///
    /// 1. Members get the MTU of a bond, so it has its own first.
    /// 2. Members have to be down (`bond_enslave` refuses others), and without addresses, which IPv6
    ///    loses on the way into a VRF (`cycle_netdev`).
    /// 3. What has frames of others only, a bridge here and its ports, has no link-local address.
    /// 4. A port of a bridge learns nothing: the addresses behind it are FRR's.
    pub(crate) fn lines(&self, mac: &str) -> Vec<String> {
        let name = &self.name;
        let bridge = matches!(self.kind, DeviceKind::Bridge);
        let mtu = self.mtu.map(|mtu| format!(" mtu {mtu}"));
        let name_mtu = format!("name {name}{}", mtu.unwrap_or_default());
        let mut lines = vec![match &self.kind {
            DeviceKind::Vlan { on, id } => {
                format!("link add link {on} {name_mtu} type vlan id {id}")
            }
            DeviceKind::Bond { hash } => format!(
                "link add {name_mtu} type bond mode 802.3ad miimon 100 lacp_rate fast \
                 xmit_hash_policy {hash}"
            ),
            DeviceKind::Bridge => format!("link add {name_mtu} address {mac} type bridge"),
            DeviceKind::Vxlan { vni, local } => format!(
                "link add {name_mtu} type vxlan id {vni} local {local} dstport 4789 \
                 nolearning"
            ),
            DeviceKind::Vrf { table } => format!("link add {name_mtu} type vrf table {table}"),
        }];
        if bridge {
            lines.push(format!("link set {name} addrgenmode none"));
        }
        for member in &self.members {
            lines.push(format!("link set {member} master {name}"));
            if bridge {
                lines.push(format!("link set {member} addrgenmode none"));
                lines.push(format!("link set {member} type bridge_slave learning off"));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bond_takes_its_members_in() {
        let hash = BondHash::Encap34;
        let mut bond = Device::new("spine1", DeviceKind::Bond { hash });
        bond.mtu = Some(9000);
        bond.members = vec!["spine1-1".into(), "spine1-2".into()];
        assert_eq!(
            bond.lines("-"),
            [
                "link add name spine1 mtu 9000 type bond mode 802.3ad miimon 100 lacp_rate fast \
                 xmit_hash_policy encap3+4",
                "link set spine1-1 master spine1",
                "link set spine1-2 master spine1",
            ]
        );
        let (on, id) = ("spine1".into(), 10);
        let vlan = Device::new("spine1.10", DeviceKind::Vlan { on, id });
        assert_eq!(
            vlan.lines("-"),
            ["link add link spine1 name spine1.10 type vlan id 10"]
        );
        assert_eq!(vlan.upon(), ["spine1"]);
    }

    #[test]
    fn a_bridge_for_a_network() {
        let mut bridge = Device::new("br-red", DeviceKind::Bridge);
        bridge.members = vec!["vni-red".into()];
        assert_eq!(
            bridge.lines("0a:00:00:00:00:01"),
            [
                "link add name br-red address 0a:00:00:00:00:01 type bridge",
                "link set br-red addrgenmode none",
                "link set vni-red master br-red",
                "link set vni-red addrgenmode none",
                "link set vni-red type bridge_slave learning off",
            ]
        );
    }
}
