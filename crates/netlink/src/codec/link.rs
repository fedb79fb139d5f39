//! Links (`RTM_NEWLINK`, `RTM_DELLINK`).

use raddle_rib::event::{Bond, Event, Link, Vlan, XdpAttached};

use super::build::{Builder, EncodeError};
use super::number::rtm::{RTM_DELLINK, RTM_NEWLINK};
use super::wire::{Attribute, DecodeError, Message, read_u16, read_u32};
use super::{bridge, tunnel};

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_QDISC: u16 = 6;
pub(super) const IFLA_MASTER: u16 = 10;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_VRF_TABLE: u16 = 1;
const IFLA_BOND_MODE: u16 = 1;
const IFLA_BOND_ARP_INTERVAL: u16 = 7;
const IFLA_BOND_ARP_VALIDATE: u16 = 9;
const IFLA_BOND_XMIT_HASH_POLICY: u16 = 14;
const IFLA_BOND_AD_INFO: u16 = 23;
const IFLA_BOND_AD_INFO_AGGREGATOR: u16 = 1;
const IFLA_BOND_SLAVE_STATE: u16 = 1;
const IFLA_BOND_SLAVE_MII_STATUS: u16 = 2;
const IFLA_BOND_SLAVE_QUEUE_ID: u16 = 5;
const IFLA_BOND_SLAVE_AD_AGGREGATOR_ID: u16 = 6;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_EGRESS_QOS: u16 = 3;
const IFLA_VLAN_PROTOCOL: u16 = 5;
const IFLA_VLAN_QOS_MAPPING: u16 = 1;
/// 802.1Q, what kernels mean that do not tell.
pub(super) const ETH_P_8021Q: u16 = 0x8100;
/// Which parts of a link to tell (request).
pub(crate) const IFLA_EXT_MASK: u16 = 29;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;

/// None for what is not a whole link: what a bridge tells of its ports ([`bridge::decode_port`]; even the "gone" only means
/// that the port left its bridge), and wireless events, which have no name.
pub(super) fn decode(message: &Message<'_>) -> Result<Option<Event>, DecodeError> {
    let (head, attributes) = message.split::<16>("ifinfomsg")?;
    if head[0] != 0 {
        return Ok(None);
    }
    let index = read_u32(head, 4);
    if message.kind == RTM_DELLINK {
        return Ok(Some(Event::LinkGone(index)));
    }
    let mut link = Link {
        index,
        arp_type: read_u16(head, 2),
        flags: read_u32(head, 8),
        ..Link::default()
    };
    for attribute in attributes {
        let a = attribute?;
        match a.kind {
            IFLA_ADDRESS => link.mac = a.payload.try_into().ok(),
            IFLA_IFNAME => link.name = a.string(),
            IFLA_MTU => link.mtu = a.u32("IFLA_MTU")?,
            IFLA_LINK => link.lower = Some(a.u32("IFLA_LINK")?).filter(|&i| i != 0),
            IFLA_QDISC => link.qdisc = a.string(),
            IFLA_MASTER => link.master = Some(a.u32("IFLA_MASTER")?).filter(|&i| i != 0),
            IFLA_OPERSTATE => link.operstate = a.u8("IFLA_OPERSTATE")?,
            IFLA_LINKINFO => info(&a, &mut link)?,
            IFLA_NUM_TX_QUEUES => link.tx_queues = a.u32("IFLA_NUM_TX_QUEUES")?,
            IFLA_LINK_NETNSID => link.lower_netns = Some(a.u32("IFLA_LINK_NETNSID")? as i32),
            IFLA_XDP => link.xdp = xdp(&a)?,
            IFLA_PROP_LIST => {
                for nested in a.nested() {
                    let nested = nested?;
                    if nested.kind == IFLA_ALT_IFNAME {
                        link.altnames.push(nested.string());
                    }
                }
            }
            _ => {}
        }
    }
    if let Some(tunnel) = &mut link.tunnel {
        // Outer packets leave by, and come in to, another namespace.
        tunnel.is_special |= link.lower_netns.is_some();
    }
    Ok((!link.name.is_empty()).then_some(Event::Link(link)))
}

/// What kind of device it is, what that is set to, and what it is to the device that it is part of.
fn info(a: &Attribute<'_>, link: &mut Link) -> Result<(), DecodeError> {
    let (mut data, mut slave_kind, mut slave_data) = (None, None, None);
    for nested in a.nested() {
        let nested = nested?;
        match nested.kind {
            IFLA_INFO_KIND => link.kind = Some(nested.string()),
            IFLA_INFO_DATA => data = Some(nested),
            IFLA_INFO_SLAVE_KIND => slave_kind = Some(nested.string()),
            IFLA_INFO_SLAVE_DATA => slave_data = Some(nested),
            _ => {}
        }
    }
    match (link.kind.as_deref(), &data) {
        (Some("bridge"), Some(data)) => link.bridge = Some(bridge::decode_bridge(data)?),
        (Some("macvlan"), Some(data)) => link.macvlan = Some(bridge::decode_macvlan(data)?),
        (Some(kind), Some(data)) => {
            link.tunnel = tunnel::decode(kind, data)?;
            of_kind(data, link)?;
        }
        (None, _) | (_, None) => {}
    }
    match (slave_kind.as_deref(), &slave_data) {
        (Some("bond"), Some(data)) => of_member(data, link),
        (Some("bridge"), Some(data)) => {
            link.port = Some(bridge::decode_attributes(data.nested())?);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// What a VRF, a bond or a VLAN is set to.
fn of_kind(data: &Attribute<'_>, link: &mut Link) -> Result<(), DecodeError> {
    let (mut interval, mut validate) = (0, 0);
    for set in data.nested() {
        let set = set?;
        match (link.kind.as_deref(), set.kind) {
            (Some("vrf"), IFLA_VRF_TABLE) => link.vrf_table = Some(set.u32("IFLA_VRF_TABLE")?),
            (Some("bond"), IFLA_BOND_MODE) => bond(link).mode = set.u8("IFLA_BOND_MODE")?,
            (Some("bond"), IFLA_BOND_XMIT_HASH_POLICY) => {
                bond(link).policy = set.u8("IFLA_BOND_XMIT_HASH_POLICY")?;
            }
            (Some("bond"), IFLA_BOND_AD_INFO) => {
                for told in set.nested() {
                    let told = told?;
                    if told.kind == IFLA_BOND_AD_INFO_AGGREGATOR {
                        bond(link).aggregator = told.u16("IFLA_BOND_AD_INFO_AGGREGATOR")?;
                    }
                }
            }
            (Some("bond"), IFLA_BOND_ARP_INTERVAL) => {
                interval = set.u32("IFLA_BOND_ARP_INTERVAL")?
            }
            (Some("bond"), IFLA_BOND_ARP_VALIDATE) => {
                validate = set.u32("IFLA_BOND_ARP_VALIDATE")?
            }
            (Some("vlan"), IFLA_VLAN_ID) => vlan(link).id = set.u16("IFLA_VLAN_ID")?,
            (Some("vlan"), IFLA_VLAN_PROTOCOL) => {
                vlan(link).protocol = u16::from_be(set.u16("IFLA_VLAN_PROTOCOL")?);
            }
            (Some("vlan"), IFLA_VLAN_EGRESS_QOS) => vlan(link).egress_qos = maps(&set)?,
            _ => {}
        }
    }
    if Bond::is_by_traffic(interval, validate) {
        bond(link).by_traffic = true;
    }
    Ok(())
}

/// What a link is to its bond.
fn of_member(data: &Attribute<'_>, link: &mut Link) -> Result<(), DecodeError> {
    for told in data.nested() {
        let told = told?;
        match told.kind {
            IFLA_BOND_SLAVE_STATE => {
                link.bond_active = Some(told.u8("IFLA_BOND_SLAVE_STATE")? == 0);
            }
            // `BOND_LINK_UP` is 0.
            IFLA_BOND_SLAVE_MII_STATUS => {
                link.bond_down = told.u8("IFLA_BOND_SLAVE_MII_STATUS")? != 0;
            }
            IFLA_BOND_SLAVE_QUEUE_ID => link.bond_queue = told.u16("IFLA_BOND_SLAVE_QUEUE_ID")?,
            IFLA_BOND_SLAVE_AD_AGGREGATOR_ID => {
                link.bond_aggregator = told.u16("IFLA_BOND_SLAVE_AD_AGGREGATOR_ID")?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn bond(link: &mut Link) -> &mut Bond {
    link.bond.get_or_insert_default()
}

fn vlan(link: &mut Link) -> &mut Vlan {
    link.vlan.get_or_insert(Vlan {
        protocol: ETH_P_8021Q,
        ..Vlan::default()
    })
}

/// Whether any priority of packets becomes another one than 0 in tags.
fn maps(a: &Attribute<'_>) -> Result<bool, DecodeError> {
    let mut any = false;
    for mapping in a.nested() {
        let mapping = mapping?;
        // `ifla_vlan_qos_mapping`: from, to.
        if mapping.kind == IFLA_VLAN_QOS_MAPPING
            && let Some(to) = mapping.payload.get(4..8)
        {
            any |= to != [0; 4];
        }
    }
    Ok(any)
}

fn xdp(a: &Attribute<'_>) -> Result<Option<XdpAttached>, DecodeError> {
    let mut attached = XdpAttached {
        mode: 0,
        program: 0,
    };
    for nested in a.nested() {
        let nested = nested?;
        match nested.kind {
            IFLA_XDP_ATTACHED => attached.mode = nested.u8("IFLA_XDP_ATTACHED")?,
            IFLA_XDP_PROG_ID => attached.program = nested.u32("IFLA_XDP_PROG_ID")?,
            _ => {}
        }
    }
    Ok((attached.mode != 0).then_some(attached))
}

pub(super) fn encode(b: &mut Builder, link: &Link, flags: u16) -> Result<(), EncodeError> {
    begin(b, RTM_NEWLINK, flags, link.index, link.arp_type, link.flags);
    b.put_str(IFLA_IFNAME, &link.name);
    b.put_u32(IFLA_MTU, link.mtu);
    b.put_u8(IFLA_OPERSTATE, link.operstate);
    b.put_str(IFLA_QDISC, &link.qdisc);
    b.put_u32(IFLA_NUM_TX_QUEUES, link.tx_queues);
    if let Some(mac) = link.mac {
        b.put(IFLA_ADDRESS, &mac);
    }
    if let Some(lower) = link.lower {
        b.put_u32(IFLA_LINK, lower);
    }
    if let Some(id) = link.lower_netns {
        b.put_u32(IFLA_LINK_NETNSID, id as u32);
    }
    if let Some(master) = link.master {
        b.put_u32(IFLA_MASTER, master);
    }
    if !link.altnames.is_empty() {
        let nest = b.open(IFLA_PROP_LIST);
        link.altnames.iter().for_each(|name| {
            b.put_str(IFLA_ALT_IFNAME, name);
        });
        b.close(nest);
    }
    encode_info(b, link);
    if let Some(xdp) = link.xdp {
        let nest = b.open(IFLA_XDP);
        b.put_u8(IFLA_XDP_ATTACHED, xdp.mode);
        b.put_u32(IFLA_XDP_PROG_ID, xdp.program);
        b.close(nest);
    }
    b.end()
}

fn encode_info(b: &mut Builder, link: &Link) {
    let is_part = link.bond_active.is_some() || link.port.is_some();
    if link.kind.is_none() && !is_part {
        return;
    }
    let nest = b.open(IFLA_LINKINFO);
    if let Some(kind) = &link.kind {
        b.put_str(IFLA_INFO_KIND, kind);
    }
    let is_virtual = link.bond.is_some() || link.vlan.is_some() || link.macvlan.is_some();
    let is_virtual = is_virtual || link.tunnel.is_some();
    if is_virtual || link.bridge.is_some() || link.vrf_table.is_some() {
        let data = b.open(IFLA_INFO_DATA);
        encode_data(b, link);
        b.close(data);
    }
    if is_part {
        encode_part(b, link);
    }
    b.close(nest);
}

/// What it is set to.
fn encode_data(b: &mut Builder, link: &Link) {
    if let Some(table) = link.vrf_table {
        b.put_u32(IFLA_VRF_TABLE, table);
    }
    if let Some(bond) = link.bond {
        b.put_u8(IFLA_BOND_MODE, bond.mode);
        b.put_u8(IFLA_BOND_XMIT_HASH_POLICY, bond.policy);
        b.put_u32(IFLA_BOND_ARP_INTERVAL, bond.by_traffic.into());
        let info = b.open(IFLA_BOND_AD_INFO);
        b.put_u16(IFLA_BOND_AD_INFO_AGGREGATOR, bond.aggregator);
        b.close(info);
    }
    if let Some(bridge) = link.bridge {
        bridge::encode_bridge(b, bridge);
    }
    if let Some(macvlan) = link.macvlan {
        bridge::encode_macvlan(b, macvlan);
    }
    if let Some(tunnel) = &link.tunnel {
        tunnel::encode(b, tunnel);
    }
    if let Some(vlan) = link.vlan {
        b.put_u16(IFLA_VLAN_ID, vlan.id);
        b.put_u16(IFLA_VLAN_PROTOCOL, vlan.protocol.to_be());
        if vlan.egress_qos {
            let maps = b.open(IFLA_VLAN_EGRESS_QOS);
            // From priority 0 to 1, as an example.
            let [from, to] = [0_u32, 1].map(u32::to_ne_bytes);
            b.put(IFLA_VLAN_QOS_MAPPING, &[from, to].concat());
            b.close(maps);
        }
    }
}

/// What it is to the bond or bridge that it is part of.
fn encode_part(b: &mut Builder, link: &Link) {
    let kind = match link.port {
        Some(_) => "bridge",
        None => "bond",
    };
    b.put_str(IFLA_INFO_SLAVE_KIND, kind);
    let data = b.open(IFLA_INFO_SLAVE_DATA);
    match link.port {
        Some(port) => bridge::encode_attributes(b, port),
        None => {
            let is_backup = link.bond_active == Some(false);
            b.put_u8(IFLA_BOND_SLAVE_STATE, is_backup.into());
            b.put_u8(IFLA_BOND_SLAVE_MII_STATUS, link.bond_down.into());
            b.put_u16(IFLA_BOND_SLAVE_QUEUE_ID, link.bond_queue);
            b.put_u16(IFLA_BOND_SLAVE_AD_AGGREGATOR_ID, link.bond_aggregator);
        }
    }
    b.close(data);
}

pub(super) fn encode_gone(b: &mut Builder, index: u32, flags: u16) -> Result<(), EncodeError> {
    begin(b, RTM_DELLINK, flags, index, 0, 0);
    b.end()
}

fn begin(b: &mut Builder, kind: u16, flags: u16, index: u32, arp_type: u16, ifi_flags: u32) {
    let mut head = [0; 16];
    head[2..4].copy_from_slice(&arp_type.to_ne_bytes());
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    head[8..12].copy_from_slice(&ifi_flags.to_ne_bytes());
    b.begin(kind, flags, &head);
}
