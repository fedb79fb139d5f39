//! Links, and what is on them: addresses and neighbours.

use std::net::IpAddr;

use super::{Bridge, BridgePort, Macvlan, Tunnel, TunnelKind};
use raddle_text::outside::{line, line_if_any, lines, link_name};
use serde::{Deserialize, Serialize};

/// A network device (`RTM_NEWLINK`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Name, such as `eth0`.
    #[serde(deserialize_with = "link_name")]
    pub name: String,
    /// Alternative names (`ip link property add altname`).
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lines"
    )]
    pub altnames: Vec<String>,
    /// Link-layer address, where it is 6 bytes long.
    pub mac: Option<[u8; 6]>,
    /// MTU in bytes.
    pub mtu: u32,
    /// `IFF_*` flags: 1 up, 0x40 running, 0x10000 lower up.
    pub flags: u32,
    /// `ARPHRD_*`: 1 is Ethernet, 772 loopback.
    pub arp_type: u16,
    /// `IF_OPER_*`: 6 is up.
    pub operstate: u8,
    /// Kind from `IFLA_INFO_KIND`: `veth`, `bridge`, `vlan`, ...; none for physical devices.
    #[serde(default, deserialize_with = "line_if_any")]
    pub kind: Option<String>,
    /// The bridge, bond or VRF that this device is enslaved to.
    pub master: Option<u32>,
    /// The table of a VRF (`IFLA_VRF_TABLE`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf_table: Option<u32>,
    /// What a bond is set to; none of other devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond: Option<Bond>,
    /// Of a member of a bond, whether the bond takes what comes in by it (`IFLA_BOND_SLAVE_STATE` is active): by a backup it takes
    /// nothing (`bond_should_deliver_exact_match`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond_active: Option<bool>,
    /// Of a member of a bond, the queue whose packets leave by it, whatever the hash is (`IFLA_BOND_SLAVE_QUEUE_ID`); mostly 0, for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bond_queue: u16,
    /// Of a member of a bond, whether the bond's own monitor takes the link for anything but up (`IFLA_BOND_SLAVE_MII_STATUS`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bond_down: bool,
    /// Of a member of a bond of 802.3ad, the aggregator that it is in (`IFLA_BOND_SLAVE_AD_AGGREGATOR_ID`), from 1 on; 0 of others.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bond_aggregator: u16,
    /// What a VLAN is; none of other devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vlan>,
    /// What a bridge is set to; none of other devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<Bridge>,
    /// What a port is to its bridge; none of other devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<BridgePort>,
    /// What a macvlan is set to; none of other devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub macvlan: Option<Macvlan>,
    /// What a tunnel is set to; none of other devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Tunnel>,
    /// `IFLA_LINK`: a veth's peer, a VLAN's lower device.
    pub lower: Option<u32>,
    /// `IFLA_LINK_NETNSID`: the namespace of `lower` where it is another one.
    pub lower_netns: Option<i32>,
    /// Root qdisc's kind (`IFLA_QDISC`).
    #[serde(deserialize_with = "line")]
    pub qdisc: String,
    /// Number of transmit queues.
    pub tx_queues: u32,
    /// Attached XDP program, if any.
    pub xdp: Option<XdpAttached>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u16) -> bool {
    *number == 0
}

impl Link {
    /// An Ethernet link as most are: up, with carrier, an MTU of 1500 bytes, not enslaved.
    pub fn ethernet(index: u32, name: impl Into<String>, mac: [u8; 6]) -> Link {
        Link {
            index,
            name: name.into(),
            mac: Some(mac),
            mtu: 1500,
            flags: 0x1_0041,
            arp_type: 1,
            ..Link::default()
        }
    }

    /// Administratively up (`IFF_UP`).
    pub fn is_up(&self) -> bool {
        self.flags & 1 != 0
    }

    /// Has carrier, as nexthop objects see it: `IFF_RUNNING` or `IFF_LOWER_UP`
    /// (`nh_netdev_event`).
    pub fn has_carrier(&self) -> bool {
        self.flags & (0x40 | 0x1_0000) != 0
    }

    /// Nexthop objects go when their link goes down or loses carrier (`nh_netdev_event`).
    pub(crate) fn keeps_nexthops(&self) -> bool {
        self.is_up() && self.has_carrier()
    }

    /// A VLAN, also one of which it is not known which.
    pub fn is_vlan(&self) -> bool {
        self.vlan.is_some() || self.kind.as_deref() == Some("vlan")
    }

    /// Whether packets leave by it without an address on the link, wherever they go: a tunnel that carries no frames, and what else is
    /// no Ethernet and asks for no addresses (`IFF_NOARP`).
    pub(crate) fn has_no_neighbours(&self) -> bool {
        const IFF_NOARP: u32 = 0x80;
        let carries_frames = |tunnel: &Tunnel| matches!(tunnel.kind, TunnelKind::Vxlan { .. });
        match &self.tunnel {
            Some(tunnel) => !carries_frames(tunnel),
            None => !self.is_ethernet() && self.flags & IFF_NOARP != 0,
        }
    }

    /// An Ethernet device (`ARPHRD_ETHER`).
    pub fn is_ethernet(&self) -> bool {
        self.arp_type == 1
    }
}

/// How a bond sends (`IFLA_BOND_MODE`, `IFLA_BOND_XMIT_HASH_POLICY`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bond {
    /// `BOND_MODE_*`: 0 balance-rr, 1 active-backup, 2 balance-xor, 3 broadcast, 4 802.3ad, 5 balance-tlb, 6 balance-alb.
    pub mode: u8,
    /// `BOND_XMIT_POLICY_*`: 0 layer2, 1 layer3+4, 2 layer2+3, 3 encap2+3, 4 encap3+4, 5 vlan+srcmac.
    pub policy: u8,
    /// Its members, or the active ones, are taken for alive by any packet that comes in by them: [`Bond::is_by_traffic`].
    #[serde(default)]
    pub by_traffic: bool,
    /// The active aggregator of 802.3ad (`IFLA_BOND_AD_INFO_AGGREGATOR`), from 1 on; 0 where there is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub aggregator: u16,
}

impl Bond {
    /// Whether any packet that comes in by an active member shows that it is alive (`bond_rcv_validate`): with an `arp_interval`, and an
    /// `arp_validate` (`BOND_ARP_VALIDATE_*`, `BOND_ARP_FILTER`) that is neither about active members (1) nor a filter (4).
    pub fn is_by_traffic(arp_interval: u32, arp_validate: u32) -> bool {
        arp_interval != 0 && arp_validate & 5 == 0
    }
}

/// What a VLAN device is set to (`IFLA_VLAN_PROTOCOL`, `IFLA_VLAN_ID`, `IFLA_VLAN_EGRESS_QOS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vlan {
    /// EtherType of its tags: 0x8100 (802.1Q) or 0x88a8 (802.1ad).
    pub protocol: u16,
    /// VLAN identifier, 0 to 4095.
    pub id: u16,
    /// Whether its tags get priorities from packets' (`egress-qos-map`): then they are not the same for all packets.
    #[serde(default)]
    pub egress_qos: bool,
}

/// An XDP program on a link, as `IFLA_XDP` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpAttached {
    /// `XDP_ATTACHED_*`: 1 driver, 2 generic, 3 hardware, 4 several.
    pub mode: u8,
    /// Program id; 0 when not told.
    pub program: u32,
}

/// An address of this machine (`RTM_NEWADDR`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The link that has it.
    pub index: u32,
    /// The local address (`IFA_LOCAL`, or `IFA_ADDRESS` for IPv6).
    pub local: IpAddr,
    /// The peer of a point-to-point address, where it differs from `local`.
    pub peer: Option<IpAddr>,
    /// Prefix length, 0..=32 or 0..=128.
    pub prefix_len: u8,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// `IFA_F_*` flags.
    pub flags: u32,
    /// Broadcast address (IPv4).
    pub broadcast: Option<IpAddr>,
    /// Label (IPv4).
    #[serde(default, deserialize_with = "line_if_any")]
    pub label: Option<String>,
}

impl Address {
    /// An address of universe scope with nothing else said; `prefix_len` as [`Address::prefix_len`].
    pub fn new(index: u32, local: IpAddr, prefix_len: u8) -> Address {
        Address {
            index,
            local,
            peer: None,
            prefix_len,
            scope: 0,
            flags: 0,
            broadcast: None,
            label: None,
        }
    }
}

/// A neighbour entry (`RTM_NEWNEIGH`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// The link that it is on.
    pub index: u32,
    /// Its address.
    pub dst: IpAddr,
    /// Its link-layer address, where it is 6 bytes long.
    pub mac: Option<[u8; 6]>,
    /// `NUD_*` state bits.
    pub state: u16,
    /// `NTF_*` flags (0x80 router, 0x08 proxy).
    pub flags: u8,
    /// `RTPROT_*` of who installed it.
    pub protocol: u8,
}

/// `NUD_VALID`: permanent, no-ARP, reachable, probe, stale or delay. A neighbour in one of these
/// states has a link-layer address that may be used.
pub const NUD_VALID: u16 = 0x80 | 0x40 | 0x02 | 0x10 | 0x04 | 0x08;
/// `NUD_NOARP`: it has no address of its own on the link, or all have the same.
pub const NUD_NOARP: u16 = 0x40;
/// `NUD_STALE`.
pub const NUD_STALE: u16 = 0x04;

impl Neighbour {
    /// Whether the kernel would send to it without asking (`nud_state & NUD_VALID`).
    pub fn is_valid(&self) -> bool {
        self.state & NUD_VALID != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Rule;

    /// Names are printed, and a snapshot may be anybody's.
    #[test]
    fn what_a_terminal_obeys_is_no_name() {
        let link = Link {
            altnames: vec!["uplink".into()],
            kind: Some("veth".into()),
            qdisc: "noqueue".into(),
            ..Link::ethernet(2, "eth0", [2; 6])
        };
        let json = serde_json::to_string(&link).unwrap();
        assert_eq!(serde_json::from_str::<Link>(&json).unwrap(), link);
        for word in ["eth0", "uplink", "veth", "noqueue"] {
            let bad = json.replace(&format!("\"{word}\""), r#""\u001b[2J""#);
            let error = serde_json::from_str::<Link>(&bad).unwrap_err().to_string();
            assert!(error.contains("control characters"), "{word}: {error}");
        }
        let address = Address {
            label: Some("eth0:1".into()),
            ..Address::new(2, [10, 0, 0, 1].into(), 24)
        };
        let json = serde_json::to_string(&address).unwrap();
        assert_eq!(serde_json::from_str::<Address>(&json).unwrap(), address);
        let bad = json.replace("eth0:1", "\\u009b2J");
        assert!(serde_json::from_str::<Address>(&bad).is_err());
        let rule = Rule {
            iif: Some("eth0".into()),
            oif: Some("eth1".into()),
            ..Rule::default()
        };
        let json = serde_json::to_string(&rule).unwrap();
        assert_eq!(serde_json::from_str::<Rule>(&json).unwrap(), rule);
        for word in ["eth0", "eth1"] {
            let bad = json.replace(word, "\\u001b");
            assert!(serde_json::from_str::<Rule>(&bad).is_err(), "{word}");
        }
    }
}
