//! Behaviours that go on with the packet itself: End, End.X, End.T, and their flavours.

use raddle_image::{Reason, Segment, flavours, segment_flags};
use raddle_packet::{Family, Srh, protocol};

use crate::decap;
use crate::find::{Found, find};
use crate::packet::{IPV6, Packet};
use crate::{Refusal, Rule, Settings, hmac};

/// Offset of the destination address.
const DST: usize = 24;
/// Offset of segments left in an SRH.
const LEFT: usize = 3;

const SHORT: Refusal = Rule::S4_2.gives(Reason::BadSrh);
const BEYOND: Refusal = Rule::S4_3.gives(Reason::BadSrh);

/// What a packet's SRH says.
#[derive(Clone, Copy, Debug)]
struct Facts {
    found: Found,
    len: usize,
    next_header: u8,
    left: u8,
    last: u8,
}

/// Finds the SRH and checks it, HMAC included (rule S3).
#[inline]
fn srh(settings: &Settings<'_>, l3: &[u8], skip_done: bool) -> Result<Facts, Refusal> {
    let found = find(l3, protocol::ROUTING, skip_done);
    let rule = if skip_done { Rule::S3_1 } else { Rule::S3_2 };
    let found = found.ok_or(rule.gives(Reason::NoSrh))?;
    let bytes = l3.get(found.offset..).unwrap_or_default();
    let srh = Srh::new_checked(bytes, true).map_err(|_| Rule::S3_3.gives(Reason::BadSrh))?;
    let facts = Facts {
        found,
        len: srh.bytes().len(),
        next_header: srh.next_header(),
        left: srh.segments_left(),
        last: srh.last_entry(),
    };
    let checked = hmac::check(settings.keys, settings.demand, l3, found.offset, &srh);
    checked.map_err(|reason| Rule::S3_4.gives(reason))?;
    Ok(facts)
}

/// Rule S3 for a behaviour that goes no step itself (End.B6.Insert).
pub(crate) fn check(settings: &Settings<'_>, packet: &Packet<'_>) -> Result<(), Refusal> {
    srh(settings, packet.l3(), true).map(|_| ())
}

/// Rules S3 to S5: one step along the packet's path. On return the packet has its new destination; or,
/// for USD, the outer header is off, and the family may be another.
#[inline]
pub(crate) fn step(
    settings: &Settings<'_>,
    segment: &Segment,
    packet: &mut Packet<'_>,
) -> Result<(), Refusal> {
    let flavours = segment.flavours;
    if flavours == 0 {
        let facts = srh(settings, packet.l3(), true)?;
        return advance(packet, &facts);
    }
    if flavours & flavours::NEXT_CSID != 0 && shift(segment, packet) {
        return Ok(());
    }
    let own = segment.flags & segment_flags::NO_PUNT != 0;
    if flavours & flavours::REPLACE_CSID != 0 {
        return replace(settings, segment, packet);
    }
    if flavours & (flavours::USP | flavours::USD) != 0 {
        return ultimate(settings, segment, packet);
    }
    // The kernel carries out one or the other, and looks for the SRH in two ways.
    let psp = flavours & flavours::PSP != 0 && (own || flavours & flavours::NEXT_CSID == 0);
    let facts = srh(settings, packet.l3(), !psp || own)?;
    advance(packet, &facts)?;
    if psp && facts.left == 1 {
        pop(packet, &facts);
    }
    Ok(())
}

/// Takes the next segment of the list for the destination.
#[inline]
fn advance(packet: &mut Packet<'_>, facts: &Facts) -> Result<(), Refusal> {
    let none = Rule::S3_5.gives(Reason::NoSrh);
    let left = facts.left.checked_sub(1).ok_or(none)?;
    let dst = segment_of(packet.l3(), facts, left);
    let dst = dst.ok_or(Rule::S5_1.gives(Reason::BadSrh))?;
    packet.write(facts.found.offset + LEFT, &[left]);
    packet.write(DST, &dst);
    Ok(())
}

#[inline]
fn segment_of(l3: &[u8], facts: &Facts, index: u8) -> Option<[u8; 16]> {
    let at = facts.found.offset + 8 + 16 * usize::from(index);
    l3.get(at..)?.first_chunk::<16>().copied()
}

/// Cuts the SRH out (`seg6_pop_srh`).
fn pop(packet: &mut Packet<'_>, facts: &Facts) {
    packet.write(facts.found.named_at, &[facts.next_header]);
    packet.cut(facts.found.offset, facts.len);
    let payload = (packet.len() - IPV6) as u16;
    packet.write(4, &payload.to_be_bytes());
}

/// Rule S4, NEXT-C-SID: whether there was an argument, which has moved up.
#[inline]
fn shift(segment: &Segment, packet: &mut Packet<'_>) -> bool {
    let (block, csid) = (u32::from(segment.block), u32::from(segment.csid));
    let Some(dst) = packet.l3().get(DST..).and_then(<[u8]>::first_chunk) else {
        return false;
    };
    let Some(argument_bits) = 128u32.checked_sub(8 * (block + csid)) else {
        return false;
    };
    if argument_bits == 0 || csid == 0 {
        return false;
    }
    let dst = u128::from_be_bytes(*dst);
    let argument = dst & ((1 << argument_bits) - 1);
    if argument == 0 {
        return false;
    }
    let block = match block {
        0 => 0,
        block => dst & (u128::MAX << (128 - 8 * block)),
    };
    packet.write(DST, &(block | argument << (8 * csid)).to_be_bytes());
    true
}

/// Rule S5 with USP or USD, which are not the kernel's.
fn ultimate(
    settings: &Settings<'_>,
    segment: &Segment,
    packet: &mut Packet<'_>,
) -> Result<(), Refusal> {
    let first = match srh(settings, packet.l3(), false) {
        Ok(facts) => Some(facts),
        Err(refusal) if refusal.reason == Reason::NoSrh => None,
        Err(refusal) => return Err(refusal),
    };
    if let Some(facts) = first.filter(|facts| facts.left == 0)
        && segment.flavours & flavours::USP != 0
    {
        pop(packet, &facts);
    }
    match srh(settings, packet.l3(), true) {
        Ok(facts) => {
            advance(packet, &facts)?;
            if segment.flavours & flavours::PSP != 0 && facts.left == 1 {
                pop(packet, &facts);
            }
            Ok(())
        }
        Err(refusal) if refusal.reason == Reason::NoSrh => {
            upper_layer(segment, packet, first.is_some())
        }
        Err(refusal) => Err(refusal),
    }
}

/// What follows the last extension header has been reached.
fn upper_layer(segment: &Segment, packet: &mut Packet<'_>, had_srh: bool) -> Result<(), Refusal> {
    if segment.flavours & flavours::USD != 0 {
        return decap::ip(packet, &[Family::V6, Family::V4]);
    }
    Err(Rule::S5_4.gives(if had_srh {
        Reason::Payload
    } else {
        Reason::NoSrh
    }))
}

/// Rule S4, REPLACE-C-SID (RFC 9800, section 4.2.1).
fn replace(
    settings: &Settings<'_>,
    segment: &Segment,
    packet: &mut Packet<'_>,
) -> Result<(), Refusal> {
    let (block, csid) = (usize::from(segment.block), usize::from(segment.csid));
    if csid == 0 || block + csid > 15 {
        return Err(Rule::S4_3.gives(Reason::Encap));
    }
    let facts = match srh(settings, packet.l3(), false) {
        Ok(facts) => facts,
        Err(refusal) if refusal.reason == Reason::NoSrh => {
            return upper_layer(segment, packet, false);
        }
        Err(refusal) => return Err(refusal),
    };
    let slots = 16 / csid;
    // The bits that count to 128 / LNFL, rounded up.
    let mask = (16usize.div_ceil(csid).next_power_of_two() - 1) as u8;
    let l3 = packet.l3();
    let slot = |left: u8, index: u8| {
        let list = segment_of(l3, &facts, left)?;
        let at = usize::from(index) * csid;
        list.get(at..at + csid).map(<[u8]>::to_owned)
    };
    let is_end = |left: u8, index: u8| {
        slot(left, index)
            .map(|csid| csid.iter().all(|byte| *byte == 0))
            .ok_or(BEYOND)
    };
    let mut dst = *l3
        .get(DST..)
        .and_then(<[u8]>::first_chunk::<16>)
        .ok_or(SHORT)?;
    let mut index = dst[15] & mask;
    let mut left = facts.left;
    if left == 0 && (index == 0 || is_end(0, index - 1)?) {
        if segment.flavours & flavours::USP != 0 {
            pop(packet, &facts);
        }
        return upper_layer(segment, packet, true);
    }
    let mut whole = false;
    if index != 0 {
        if left > facts.last {
            return Err(SHORT);
        }
        index -= 1;
        if is_end(left, index)? {
            left = left.checked_sub(1).ok_or(SHORT)?;
            dst = segment_of(l3, &facts, left).ok_or(SHORT)?;
            whole = true;
        }
    } else {
        left -= 1;
        index = (slots - 1) as u8;
    }
    let ends = left == 0;
    let pops = if whole {
        ends
    } else {
        let next = slot(left, index).ok_or(BEYOND)?;
        dst[block..block + csid].copy_from_slice(&next);
        dst[15] = dst[15] & !mask | index;
        ends && (index == 0 || is_end(0, index - 1)?)
    };
    packet.write(facts.found.offset + LEFT, &[left]);
    packet.write(DST, &dst);
    if pops && segment.flavours & flavours::PSP != 0 {
        pop(packet, &facts);
    }
    Ok(())
}
