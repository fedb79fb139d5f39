//! Neighbours (`RTM_NEWNEIGH`, `RTM_DELNEIGH`).

use std::net::IpAddr;

use raddle_rib::event::{Event, Neighbour};

use super::build::{Builder, EncodeError};
use super::number::rtm::{RTM_DELNEIGH, RTM_NEWNEIGH};
use super::number::{BRIDGE, INET, INET6};
use super::wire::{DecodeError, Message, read_u16, read_u32};
use super::{family_of, fdb};

pub(super) const NDA_DST: u16 = 1;
pub(super) const NDA_LLADDR: u16 = 2;
const NDA_PROTOCOL: u16 = 12;
/// Answer for others: not a neighbour to send to.
pub(crate) const NTF_PROXY: u8 = 0x08;
/// Resolve it as if there were a packet for it.
pub(crate) const NTF_USE: u8 = 0x01;

/// None for proxy entries, and for what is neither a neighbour nor an entry of an FDB (`AF_BRIDGE`, same message).
pub(super) fn decode(message: &Message<'_>) -> Result<Option<Event>, DecodeError> {
    let (head, attributes) = message.split::<12>("ndmsg")?;
    let family = head[0];
    let flags = head[10];
    if family == BRIDGE {
        return fdb::decode(message);
    }
    if (family != INET && family != INET6) || flags & NTF_PROXY != 0 {
        return Ok(None);
    }
    let index = read_u32(head, 4);
    let (mut dst, mut mac, mut protocol) = (None, None, 0);
    for attribute in attributes {
        let a = attribute?;
        match a.kind {
            NDA_DST => dst = Some(a.ip("NDA_DST")?),
            NDA_LLADDR => mac = a.payload.try_into().ok(),
            NDA_PROTOCOL => protocol = a.u8("NDA_PROTOCOL")?,
            _ => {}
        }
    }
    let Some(dst) = dst.filter(|&d| family_of(d) == family) else {
        return Err(DecodeError::Missing { what: "NDA_DST" });
    };
    if message.kind == RTM_DELNEIGH {
        return Ok(Some(Event::NeighbourGone(index, dst)));
    }
    let state = read_u16(head, 8);
    Ok(Some(Event::Neighbour(Neighbour {
        index,
        dst,
        mac,
        state,
        flags,
        protocol,
    })))
}

/// The address that this machine answers for, if this is such an entry.
pub(crate) fn proxied(message: &Message<'_>) -> Option<IpAddr> {
    let (head, attributes) = message.split::<12>("ndmsg").ok()?;
    if message.kind != RTM_NEWNEIGH || head[10] & NTF_PROXY == 0 {
        return None;
    }
    let mut attributes = attributes.filter_map(Result::ok);
    let dst = attributes.find(|a| a.kind == NDA_DST)?;
    dst.ip("NDA_DST").ok()
}

pub(super) fn encode(b: &mut Builder, n: &Neighbour, flags: u16) -> Result<(), EncodeError> {
    begin(b, RTM_NEWNEIGH, flags, n.index, n.dst, n.state, n.flags);
    if let Some(mac) = n.mac {
        b.put(NDA_LLADDR, &mac);
    }
    if n.protocol != 0 {
        b.put_u8(NDA_PROTOCOL, n.protocol);
    }
    b.end()
}

pub(super) fn encode_gone(
    b: &mut Builder,
    index: u32,
    dst: IpAddr,
    flags: u16,
) -> Result<(), EncodeError> {
    begin(b, RTM_DELNEIGH, flags, index, dst, 0, 0);
    b.end()
}

fn begin(b: &mut Builder, kind: u16, flags: u16, index: u32, dst: IpAddr, state: u16, ntf: u8) {
    let mut head = [0; 12];
    head[0] = family_of(dst);
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    head[8..10].copy_from_slice(&state.to_ne_bytes());
    head[10] = ntf;
    b.begin(kind, flags, &head).put_ip(NDA_DST, dst);
}
