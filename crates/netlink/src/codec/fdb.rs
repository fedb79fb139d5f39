//! Entries of bridges' FDBs (`RTM_NEWNEIGH`, `RTM_DELNEIGH` of `AF_BRIDGE`).

use raddle_rib::event::{Event, FdbEntry};

use super::build::{Builder, EncodeError};
use super::neighbour::NDA_LLADDR;
use super::number::BRIDGE;
use super::number::rtm::{RTM_DELNEIGH, RTM_NEWNEIGH};
use super::wire::{DecodeError, Message, read_u16, read_u32};

const NDA_VLAN: u16 = 5;
const NDA_MASTER: u16 = 9;
const NDA_FLAGS_EXT: u16 = 15;
/// An address of the bridge's or a port's (`BR_FDB_LOCAL`).
const NUD_PERMANENT: u16 = 0x80;
const NUD_REACHABLE: u16 = 0x02;
/// It is the bridge's and not the device's.
const NTF_MASTER: u8 = 0x04;
/// Seen at a locked port: no frame may come from there (Linux 6.2).
const NTF_EXT_LOCKED: u32 = 1 << 1;

/// None for what is not a bridge's: a device's own addresses (`ndo_dflt_fdb_dump`) and entries of VXLANs.
pub(super) fn decode(message: &Message<'_>) -> Result<Option<Event>, DecodeError> {
    let (head, attributes) = message.split::<12>("ndmsg")?;
    let (mut mac, mut bridge, mut vlan, mut extended) = (None, None, 0, 0);
    for attribute in attributes {
        let a = attribute?;
        match a.kind {
            NDA_LLADDR => mac = a.payload.try_into().ok(),
            NDA_VLAN => vlan = a.u16("NDA_VLAN")?,
            NDA_MASTER => bridge = Some(a.u32("NDA_MASTER")?),
            NDA_FLAGS_EXT => extended = a.u32("NDA_FLAGS_EXT")?,
            _ => {}
        }
    }
    let Some(bridge) = bridge else {
        return Ok(None);
    };
    let Some(mac) = mac else {
        return Err(DecodeError::Missing { what: "NDA_LLADDR" });
    };
    if message.kind == RTM_DELNEIGH {
        return Ok(Some(Event::FdbGone(bridge, mac, vlan)));
    }
    Ok(Some(Event::Fdb(FdbEntry {
        bridge,
        mac,
        vlan,
        port: read_u32(head, 4),
        local: read_u16(head, 8) & NUD_PERMANENT != 0,
        // Whatever else there may be some day is not for engines either.
        is_special: extended != 0,
    })))
}

pub(super) fn encode(b: &mut Builder, entry: &FdbEntry, flags: u16) -> Result<(), EncodeError> {
    let state = match entry.local {
        true => NUD_PERMANENT,
        false => NUD_REACHABLE,
    };
    begin(b, RTM_NEWNEIGH, flags, entry.port, state);
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
    begin(b, RTM_DELNEIGH, flags, bridge, 0);
    put_key(b, bridge, mac, vlan);
    b.end()
}

fn begin(b: &mut Builder, kind: u16, flags: u16, index: u32, state: u16) {
    let mut head = [0; 12];
    head[0] = BRIDGE;
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    head[8..10].copy_from_slice(&state.to_ne_bytes());
    head[10] = NTF_MASTER;
    b.begin(kind, flags, &head);
}

fn put_key(b: &mut Builder, bridge: u32, mac: [u8; 6], vlan: u16) {
    b.put(NDA_LLADDR, &mac).put_u32(NDA_MASTER, bridge);
    if vlan != 0 {
        b.put_u16(NDA_VLAN, vlan);
    }
}
