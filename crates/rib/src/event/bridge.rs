//! Bridges: what they are set to, their ports, VLANs of these, and where they have learnt which MAC addresses. And macvlans.

use serde::{Deserialize, Serialize};

/// What a bridge is set to (`IFLA_BR_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bridge {
    /// Whether it knows VLANs (`vlan_filtering`).
    pub filters_vlans: bool,
    /// EtherType of the tags that it knows then (`vlan_protocol`): 0x8100 or 0x88a8. 0x8100 where the kernel cannot filter VLANs.
    pub protocol: u16,
    /// What has it do something that engines do not: spanning trees by VLAN (`mst_enable`) and options that we do not know
    /// (`IFLA_BR_MULTI_BOOLOPT`), or rules of firewalls for what it bridges (`nf_call_iptables`, `nf_call_ip6tables`, `nf_call_arptables`).
    #[serde(default)]
    pub is_special: bool,
}

/// What a port is to its bridge (`IFLA_BRPORT_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgePort {
    /// `BR_STATE_*`: 0 disabled, 1 listening, 2 learning, 3 forwarding, 4 blocking.
    pub state: u8,
    /// Whether the bridge learns sources from it (`learning`).
    pub learns: bool,
    /// Whether only sources that are known there may send by it (`locked`, Linux 5.18).
    #[serde(default)]
    pub is_locked: bool,
    /// What has it do something that engines do not: `vlan_tunnel`, `mab`, a `backup_port`.
    #[serde(default)]
    pub is_special: bool,
}

impl BridgePort {
    /// Whether it takes and sends all frames (`BR_STATE_FORWARDING`).
    pub fn forwards(self) -> bool {
        self.state == 3
    }
}

/// A VLAN of a port of a bridge, or of the bridge itself (`RTM_NEWVLAN`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PortVlan {
    /// The port, or the bridge for what it does itself.
    pub index: u32,
    /// VLAN identifier, 1 to 4094.
    pub id: u16,
    /// What comes in without a tag is of it (`BRIDGE_VLAN_INFO_PVID`): of one VLAN there, the last that was told so.
    pub pvid: bool,
    /// Its frames leave without a tag (`BRIDGE_VLAN_INFO_UNTAGGED`).
    pub untagged: bool,
    /// `BR_STATE_*` of this VLAN there: 3 forwarding.
    pub state: u8,
}

impl PortVlan {
    /// Whether it takes and sends all frames.
    pub fn forwards(self) -> bool {
        self.state == 3
    }
}

/// Where a bridge sends frames to a MAC address (an entry of its FDB: `RTM_NEWNEIGH` of `AF_BRIDGE` with a master).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FdbEntry {
    /// The bridge.
    pub bridge: u32,
    /// The MAC address.
    pub mac: [u8; 6],
    /// VLAN identifier; 0 of a bridge that filters none, or of an entry for frames without a VLAN.
    pub vlan: u16,
    /// The port; or the bridge, for its own addresses.
    pub port: u32,
    /// An address of this machine (`NUD_PERMANENT`, `BR_FDB_LOCAL`): what comes to it goes up, and is no source.
    pub local: bool,
    /// Engines do not send to it, nor take anything from it: locked entries (`NTF_EXT_LOCKED`), and with other flags that we do not know.
    #[serde(default)]
    pub is_special: bool,
}

/// What a macvlan is set to (`IFLA_MACVLAN_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Macvlan {
    /// `MACVLAN_MODE_*`: 1 private, 2 vepa, 4 bridge, 8 passthru, 16 source.
    pub mode: u32,
}
