//! What links tell of bridges, their ports and macvlans, and what a bridge itself tells of its ports.

use raddle_rib::event::{Bridge, BridgePort, Macvlan};

use super::build::Builder;
use super::link::{ETH_P_8021Q, IFLA_MASTER};
use super::number::BRIDGE;
use super::number::rtm::RTM_NEWLINK;
use super::wire::{Attribute, Attributes, DecodeError, Message, read_u32};

const IFLA_PROTINFO: u16 = 12;
const IFLA_BR_VLAN_FILTERING: u16 = 7;
const IFLA_BR_VLAN_PROTOCOL: u16 = 8;
const IFLA_BR_NF_CALL_IPTABLES: u16 = 36;
const IFLA_BR_NF_CALL_IP6TABLES: u16 = 37;
const IFLA_BR_NF_CALL_ARPTABLES: u16 = 38;
const IFLA_BR_MULTI_BOOLOPT: u16 = 46;
const IFLA_BRPORT_STATE: u16 = 1;
const IFLA_BRPORT_LEARNING: u16 = 8;
const IFLA_BRPORT_VLAN_TUNNEL: u16 = 29;
const IFLA_BRPORT_BACKUP_PORT: u16 = 34;
const IFLA_BRPORT_LOCKED: u16 = 39;
const IFLA_BRPORT_MAB: u16 = 40;
const IFLA_MACVLAN_MODE: u16 = 1;
/// The bits of `IFLA_BR_MULTI_BOOLOPT` that change nothing for unicast which is routed: `BR_BOOLOPT_NO_LL_LEARN`,
/// `BR_BOOLOPT_MCAST_VLAN_SNOOPING`, `BR_BOOLOPT_MDB_OFFLOAD_FAIL_NOTIFICATION`. Spanning trees by VLAN
/// (`BR_BOOLOPT_MST_ENABLE`, 4), and what kernels newer than we know may have, do.
const PLAIN_OPTIONS: u32 = 1 | 1 << 1 | 1 << 3;

/// What a bridge tells of one of its ports (`br_ifinfo_notify`): the rest of the link it does not tell whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortChange {
    /// The port.
    pub index: u32,
    /// Its bridge.
    pub bridge: u32,
    /// What it is to the bridge now.
    pub port: BridgePort,
}

/// None for what is not a port's: bridges themselves, and a port that leaves its bridge, of which a message of the link tells, too.
pub(super) fn decode_port(message: &Message<'_>) -> Result<Option<PortChange>, DecodeError> {
    let (head, attributes) = message.split::<16>("ifinfomsg")?;
    if head[0] != BRIDGE || message.kind != RTM_NEWLINK {
        return Ok(None);
    }
    let (mut bridge, mut port) = (None, None);
    for attribute in attributes {
        let a = attribute?;
        match a.kind {
            IFLA_MASTER => bridge = Some(a.u32("IFLA_MASTER")?),
            IFLA_PROTINFO => port = Some(decode_attributes(a.nested())?),
            _ => {}
        }
    }
    Ok(bridge.zip(port).map(|(bridge, port)| PortChange {
        index: read_u32(head, 4),
        bridge,
        port,
    }))
}

/// From `IFLA_INFO_SLAVE_DATA` of a port, or `IFLA_PROTINFO`.
pub(super) fn decode_attributes(attributes: Attributes<'_>) -> Result<BridgePort, DecodeError> {
    let mut port = BridgePort {
        // What ports do unless they are told not to.
        learns: true,
        ..BridgePort::default()
    };
    for attribute in attributes {
        let a = attribute?;
        match a.kind {
            IFLA_BRPORT_STATE => port.state = a.u8("IFLA_BRPORT_STATE")?,
            IFLA_BRPORT_LEARNING => port.learns = a.u8("IFLA_BRPORT_LEARNING")? != 0,
            IFLA_BRPORT_LOCKED => port.is_locked = a.u8("IFLA_BRPORT_LOCKED")? != 0,
            IFLA_BRPORT_VLAN_TUNNEL => {
                port.is_special |= a.u8("IFLA_BRPORT_VLAN_TUNNEL")? != 0;
            }
            IFLA_BRPORT_MAB => port.is_special |= a.u8("IFLA_BRPORT_MAB")? != 0,
            IFLA_BRPORT_BACKUP_PORT => {
                port.is_special |= a.u32("IFLA_BRPORT_BACKUP_PORT")? != 0;
            }
            _ => {}
        }
    }
    Ok(port)
}

pub(super) fn encode_attributes(b: &mut Builder, port: BridgePort) {
    b.put_u8(IFLA_BRPORT_STATE, port.state);
    b.put_u8(IFLA_BRPORT_LEARNING, port.learns.into());
    b.put_u8(IFLA_BRPORT_LOCKED, port.is_locked.into());
    // As an example of what makes it special.
    b.put_u8(IFLA_BRPORT_VLAN_TUNNEL, port.is_special.into());
}

/// From `IFLA_INFO_DATA` of a bridge. A kernel that does not tell a protocol filters no VLANs (`CONFIG_BRIDGE_VLAN_FILTERING`).
pub(super) fn decode_bridge(data: &Attribute<'_>) -> Result<Bridge, DecodeError> {
    let mut bridge = Bridge {
        protocol: ETH_P_8021Q,
        ..Bridge::default()
    };
    for attribute in data.nested() {
        let a = attribute?;
        match a.kind {
            IFLA_BR_VLAN_FILTERING => {
                bridge.filters_vlans = a.u8("IFLA_BR_VLAN_FILTERING")? != 0;
            }
            IFLA_BR_VLAN_PROTOCOL => {
                bridge.protocol = u16::from_be(a.u16("IFLA_BR_VLAN_PROTOCOL")?);
            }
            IFLA_BR_NF_CALL_IPTABLES | IFLA_BR_NF_CALL_IP6TABLES | IFLA_BR_NF_CALL_ARPTABLES => {
                bridge.is_special |= a.u8("IFLA_BR_NF_CALL_IPTABLES")? != 0;
            }
            // struct br_boolopt_multi: values, and which of them are told.
            IFLA_BR_MULTI_BOOLOPT => {
                bridge.is_special |= a.u32("IFLA_BR_MULTI_BOOLOPT")? & !PLAIN_OPTIONS != 0;
            }
            _ => {}
        }
    }
    Ok(bridge)
}

pub(super) fn encode_bridge(b: &mut Builder, bridge: Bridge) {
    b.put_u8(IFLA_BR_VLAN_FILTERING, bridge.filters_vlans.into());
    b.put(IFLA_BR_VLAN_PROTOCOL, &bridge.protocol.to_be_bytes());
    // As an example of what makes it special.
    b.put_u8(IFLA_BR_NF_CALL_IPTABLES, bridge.is_special.into());
}

/// From `IFLA_INFO_DATA` of a macvlan.
pub(super) fn decode_macvlan(data: &Attribute<'_>) -> Result<Macvlan, DecodeError> {
    let mut macvlan = Macvlan::default();
    for attribute in data.nested() {
        let a = attribute?;
        if a.kind == IFLA_MACVLAN_MODE {
            macvlan.mode = a.u32("IFLA_MACVLAN_MODE")?;
        }
    }
    Ok(macvlan)
}

pub(super) fn encode_macvlan(b: &mut Builder, macvlan: Macvlan) {
    b.put_u32(IFLA_MACVLAN_MODE, macvlan.mode);
}
