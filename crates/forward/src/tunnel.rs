//! Tunnels: rules T1 to T7 of [`raddle_srv6::tunnel`], around what is put in front of a packet or taken off.

use std::ops::Range;

use raddle_image::{
    ADJ_FORWARD, ADJ_TUNNEL, ADJACENCY_COUNTERS, Group, LinkEntry, Reason, TUNNEL_MOST, Wanted,
    link_flags, segment_flags,
};
use raddle_packet::Family;
use raddle_srv6::Packet;
use raddle_srv6::tunnel::{Inside, look_into, put_in};

use crate::arrive::{Mac, family};
use crate::choose::{Chosen, OPEN, member, reach, reach_by, reach_tagged};
use crate::context::{Context, Sent, Stop, Verdict};
use crate::parts::Parts;
use crate::rewrite::{ETHERNET, sent_len};
use crate::srv6::{arrived, decrease, ether_type, hash_now, refused, write_header};
use crate::state::State;
use crate::upon::comes_in_by;
use crate::{ipv4, ipv6, tags};

/// Step A12 (B9) and rules T1 to T4 for a packet of which all else has been checked, to an adjacency that is a tunnel's.
#[cold]
pub(crate) fn send(
    context: &Context<'_>,
    parts: Parts<'_>,
    buffer: &mut [u8],
    range: Range<usize>,
    (family, len): (Family, usize),
    number: u32,
) -> Result<Verdict, Reason> {
    let closed = context.closed(family);
    let through = reach_by(ADJ_TUNNEL, context, number, len, closed)?;
    let undo = &mut parts.work.undo;
    let packet = Packet::new(buffer, range, (family, len), undo);
    let mut packet = packet.ok_or(Reason::BadLength)?;
    match outer(context, parts.state, &mut packet, &through) {
        Ok(chosen) => {
            let slot = ADJACENCY_COUNTERS + number as usize;
            parts.counters.add(slot, ETHERNET + len);
            Ok(leave(packet, &chosen))
        }
        Err(reason) => {
            packet.restore();
            Err(reason)
        }
    }
}

/// Rules T2 to T4.
fn outer(
    context: &Context<'_>,
    state: &mut State,
    packet: &mut Packet<'_>,
    through: &Chosen,
) -> Result<Chosen, Reason> {
    let family = packet.family();
    decrease(packet.kept(0..20), family);
    put_in(context.memory, &through.adjacency, packet, state.next_id())?;
    let here = Context {
        link: LinkEntry::default(),
        ..*context
    };
    let l3 = packet.l3();
    let dst = u32::from_be_bytes([l3[16], l3[17], l3[18], l3[19]]);
    let value = context.memory.route4(through.adjacency.lower, dst);
    let group = context.memory.group(value);
    if matches!(group, Group::Kernel(_) | Group::Segment(_)) {
        return Err(Reason::OutLink);
    }
    let hash31 = hash_now(&here, group, packet)?;
    let number = match member(&here, state, (value, group), hash31) {
        Ok(number) => number,
        Err(Stop::Reason(reason) | Stop::Own(reason)) => return Err(reason),
        Err(_) => return Err(Reason::OutLink),
    };
    let chosen = match reach(&here, number, packet.len(), OPEN) {
        Ok(chosen) => chosen,
        Err(Stop::Tagged(number)) => reach_tagged(&here, number, packet.len(), OPEN)?,
        Err(Stop::Reason(reason) | Stop::Own(reason)) => {
            if reason == Reason::Unresolved {
                state.want(Wanted::Adjacency(number));
            }
            return Err(reason);
        }
        Err(Stop::Segment(_) | Stop::Tunnel(_)) => return Err(Reason::OutLink),
    };
    tags::check_room(&chosen, packet.frame_start())?;
    Ok(chosen)
}

/// A packet of this machine's own leaves: as rule S7.7, but that its TTL stays.
fn leave(packet: Packet<'_>, chosen: &Chosen) -> Verdict {
    let len = packet.len();
    let family = packet.family();
    let (buffer, frame, have) = packet.into_frame();
    let start = frame.start;
    write_header(&mut buffer[frame], family, &chosen.adjacency);
    match chosen.adjacency.state {
        ADJ_FORWARD => chosen.sent(start, have, len).into(),
        _ => tags::put_on(buffer, start, (have, len), chosen).into(),
    }
}

/// What a frame has in front of what came in by a tunnel at most.
const MOST: usize = ETHERNET + TUNNEL_MOST;

/// Rules T5 to T7 for a packet that has met segment `number`, an end of tunnels.
#[cold]
pub(crate) fn come_in(
    context: &Context<'_>,
    mut parts: Parts<'_>,
    buffer: &mut [u8],
    range: Range<usize>,
    (of, len): (Family, usize),
    number: u32,
) -> Result<Verdict, Reason> {
    let start = range.start + ETHERNET;
    let segment = context.memory.segment(number);
    let inside = match of {
        Family::V4 => look_into(context.memory, &segment, &buffer[start..start + len]),
        Family::V6 => None,
    };
    let Inside { index, at, family } = inside.ok_or(Reason::Local)?;
    if context.memory.link(index).flags & link_flags::NO_TUNNELS != 0 {
        return Err(Reason::Firewall);
    }
    let inner = start + at;
    // Its own frames come back where there is a circle (`vxlan_set_mac`).
    if family.is_none() && buffer[inner + 6..inner + 12] == context.memory.link(index).mac {
        return Err(Reason::Local);
    }
    let (link, shift) = match family {
        None => comes_in_by(context.memory, index, &buffer[inner..start + len])
            .map(|(link, tags)| (link, Some(tags)))?,
        Some(_) => (context.memory.link(index), None),
    };
    if link.flags & link_flags::ENABLED == 0 {
        return Err(Reason::NotEnabled);
    }
    // What is written over is this, at most: the packet inside changes only where it is forwarded.
    let mut head = [0; MOST + tags::MOST];
    let kept = range.start..(inner + tags::MOST).min(start + len);
    let head = &mut head[..kept.len()];
    head.copy_from_slice(&buffer[kept.clone()]);
    let frame = match (family, shift) {
        (Some(family), _) => {
            let header = &mut buffer[inner - ETHERNET..inner];
            header[..6].copy_from_slice(&link.mac);
            header[ETHERNET - 2..].copy_from_slice(&ether_type(family));
            inner - ETHERNET
        }
        (None, tags) => tags::take_from(buffer, inner, tags.unwrap_or_default()),
    };
    let inside = start + len - frame;
    parts.received(&link, 1, inside);
    let here = Context {
        link,
        mac: Mac::new(link.mac),
        ..*context
    };
    let decided = forward_inside(&here, parts.state, buffer, frame..start + len, range.end);
    if !matches!(decided, Ok(Verdict::Forward { .. })) {
        buffer[kept].copy_from_slice(head);
    }
    decided
}

/// Rule T7, of a frame; behind it are bytes to `end` that came with what held it.
fn forward_inside(
    context: &Context<'_>,
    state: &mut State,
    buffer: &mut [u8],
    range: Range<usize>,
    end: usize,
) -> Result<Verdict, Reason> {
    let frame = &mut buffer[range.clone()];
    let start = range.start;
    let family = family(frame, context.mac)?;
    let decided = match family {
        Family::V4 => ipv4::forward(context, state, frame, start),
        Family::V6 => ipv6::forward(context, state, frame, start),
    };
    let sent = match decided {
        Ok(sent) => sent,
        Err(Stop::Tagged(number)) => {
            let packet = arrived(&buffer[range.clone()]).ok_or(Reason::Truncated)?;
            tags::send_tagged(context, buffer, range, packet, number)?
        }
        Err(Stop::Reason(reason)) => return refused(context, &buffer[range], reason),
        Err(Stop::Own(reason)) => return Ok(Verdict::Drop(reason)),
        // The kernel does not have what is raddle's own, and would send it elsewhere.
        Err(Stop::Segment(number))
            if context.memory.segment(number).flags & segment_flags::NO_PUNT != 0 =>
        {
            return Ok(Verdict::Drop(Reason::Local));
        }
        Err(Stop::Segment(_) | Stop::Tunnel(_)) => return Err(Reason::Local),
    };
    let padded = sent_len(end - sent.start, 0);
    Ok(Sent {
        len: sent.len.max(padded),
        ..sent
    }
    .into())
}
