//! Entries of the FDBs of bridges and VXLANs (`RTM_NEWNEIGH`, `RTM_DELNEIGH` of `AF_BRIDGE`).

use std::net::{IpAddr, Ipv4Addr};

use raddle_rib::event::{Event, FdbEntry, TunnelFdb};

use super::build::{Builder, EncodeError};
use super::neighbour::{NDA_DST, NDA_LLADDR};
use super::number::BRIDGE;
use super::number::rtm::{RTM_DELNEIGH, RTM_NEWNEIGH};
use super::wire::{DecodeError, Message, read_u16, read_u32};

const NDA_VLAN: u16 = 5;
const NDA_PORT: u16 = 6;
const NDA_VNI: u16 = 7;
const NDA_IFINDEX: u16 = 8;
const NDA_MASTER: u16 = 9;
const NDA_LINK_NETNSID: u16 = 10;
const NDA_SRC_VNI: u16 = 11;
const NDA_NH_ID: u16 = 13;
const NDA_FLAGS_EXT: u16 = 15;
/// An address of the bridge's or a port's (`BR_FDB_LOCAL`).
const NUD_PERMANENT: u16 = 0x80;
const NUD_REACHABLE: u16 = 0x02;
/// It is the device's.
const NTF_SELF: u8 = 0x02;
/// It is the bridge's and not the device's.
const NTF_MASTER: u8 = 0x04;
/// Seen at a locked port: no frame may come from there (Linux 6.2).
const NTF_EXT_LOCKED: u32 = 1 << 1;

/// None for a device's own addresses (`ndo_dflt_fdb_dump`). What leads to another machine is a VXLAN's: of one that is a port of a
/// bridge, the bridge tells its own in a message of its own.
pub(super) fn decode(message: &Message<'_>) -> Result<Option<Event>, DecodeError> {
    let (head, attributes) = message.split::<12>("ndmsg")?;
    let (mut mac, mut bridge, mut vlan, mut extended) = (None, None, 0, 0);
    let (mut dst, mut is_more) = (None, false);
    for attribute in attributes {
        let a = attribute?;
        match a.kind {
            NDA_DST => dst = Some(a.ip("NDA_DST")?),
            NDA_LLADDR => mac = a.payload.try_into().ok(),
            NDA_VLAN => vlan = a.u16("NDA_VLAN")?,
            NDA_MASTER => bridge = Some(a.u32("NDA_MASTER")?),
            NDA_FLAGS_EXT => extended = a.u32("NDA_FLAGS_EXT")?,
            NDA_NH_ID => {
                dst.get_or_insert(Ipv4Addr::UNSPECIFIED.into());
                is_more = true;
            }
            // Told only where they are not the VXLAN's own.
            NDA_PORT | NDA_VNI | NDA_IFINDEX | NDA_SRC_VNI | NDA_LINK_NETNSID => is_more = true,
            _ => {}
        }
    }
    let mac = || mac.ok_or(DecodeError::Missing { what: "NDA_LLADDR" });
    let index = read_u32(head, 4);
    let is_gone = message.kind == RTM_DELNEIGH;
    Ok(Some(match (bridge, dst) {
        (Some(bridge), _) if is_gone => Event::FdbGone(bridge, mac()?, vlan),
        (Some(bridge), _) => Event::Fdb(FdbEntry {
            bridge,
            mac: mac()?,
            vlan,
            port: index,
            local: read_u16(head, 8) & NUD_PERMANENT != 0,
            // Whatever else there may be some day is not for engines either.
            is_special: extended != 0,
        }),
        (None, Some(dst)) if is_gone => Event::TunnelFdbGone(index, mac()?, dst),
        (None, Some(dst)) => Event::TunnelFdb(TunnelFdb {
            index,
            mac: mac()?,
            dst,
            is_special: is_more || extended != 0,
        }),
        (None, None) => return Ok(None),
    }))
}

pub(super) fn encode(b: &mut Builder, entry: &FdbEntry, flags: u16) -> Result<(), EncodeError> {
    let state = match entry.local {
        true => NUD_PERMANENT,
        false => NUD_REACHABLE,
    };
    begin(b, RTM_NEWNEIGH, flags, (entry.port, NTF_MASTER), state);
    put_key(b, entry.bridge, entry.mac, entry.vlan);
    if entry.is_special {
        b.put_u32(NDA_FLAGS_EXT, NTF_EXT_LOCKED);
    }
    b.end()
}

pub(super) fn encode_gone(
    b: &mut Builder,
    bridge: u32,
    mac: [u8; 6],
    vlan: u16,
    flags: u16,
) -> Result<(), EncodeError> {
    begin(b, RTM_DELNEIGH, flags, (bridge, NTF_MASTER), 0);
    put_key(b, bridge, mac, vlan);
    b.end()
}

pub(super) fn encode_tunnel(
    b: &mut Builder,
    entry: &TunnelFdb,
    flags: u16,
) -> Result<(), EncodeError> {
    let of = (entry.index, NTF_SELF);
    begin(b, RTM_NEWNEIGH, flags, of, NUD_PERMANENT);
    b.put(NDA_LLADDR, &entry.mac).put_ip(NDA_DST, entry.dst);
    if entry.is_special {
        // As an example of what makes it special: to a port, 1.
        b.put(NDA_PORT, &1_u16.to_be_bytes());
    }
    b.end()
}

pub(super) fn encode_tunnel_gone(
    b: &mut Builder,
    index: u32,
    mac: [u8; 6],
    dst: IpAddr,
    flags: u16,
) -> Result<(), EncodeError> {
    begin(b, RTM_DELNEIGH, flags, (index, NTF_SELF), 0);
    b.put(NDA_LLADDR, &mac).put_ip(NDA_DST, dst).end()
}

/// `(index, ntf)`: the link, and whose it is (`NTF_*`).
fn begin(b: &mut Builder, kind: u16, flags: u16, (index, ntf): (u32, u8), state: u16) {
    let mut head = [0; 12];
    head[0] = BRIDGE;
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    head[8..10].copy_from_slice(&state.to_ne_bytes());
    head[10] = ntf;
    b.begin(kind, flags, &head);
}

fn put_key(b: &mut Builder, bridge: u32, mac: [u8; 6], vlan: u16) {
    b.put(NDA_LLADDR, &mac).put_u32(NDA_MASTER, bridge);
    if vlan != 0 {
        b.put_u16(NDA_VLAN, vlan);
    }
}
