//! The pipeline for IPv6 (`ip6_rcv_core`, `ip6_forward`).

use raddle_image::{Group, Reason, is_cut, link_flags};
use raddle_packet::Family;

use crate::choose::{Chosen, choose, hash, leads_on};
use crate::context::{Context, Passed, Sent, Stop, shown};
use crate::rewrite::{ETHERNET, set_macs};
use crate::state::State;

/// Decides about an IPv6 frame that begins at `start` of its buffer.
///
/// 1. (B1) 40 bytes of header, version 6.
/// 2. (B2) No hop-by-hop header; the payload length fits the frame.
/// 3. (B3) IPv6 forwarding is on, and rules do not want the kernel.
/// 4. (B4, B5) Source and destination may appear on the wire, and are neither multicast nor
///    link-local. No firewall concerns them, or fragments or ICMPv6 errors where the packet may be one; no routing rule that asks for
///    the packet is the kernel's.
/// 5. (B6, B7) There is a route in the table that the rules lead to, and it leads to nexthops.
/// 6. (B8) The hop limit is above 1, unless the route leads to a segment.
/// 7. (B9) The chosen nexthop can be sent to, by another link, within its MTU, and no firewall concerns the pair of links.
/// 8. (B10) New MAC addresses, hop limit less one.
pub(crate) fn forward(
    context: &Context<'_>,
    state: &mut State,
    frame: &mut [u8],
    start: usize,
) -> Result<Sent, Stop> {
    let Passed { len, dst } = check(context, frame)?;
    let table = match context.guarded() {
        false => None,
        true => guard(context, frame, len)?,
    };
    let table = table.unwrap_or(context.link.table6);
    let value = context.memory.route6(table, dst);
    let group = context.memory.group(value);
    check_group(frame, group)?;
    let l3 = &frame[ETHERNET..ETHERNET + len];
    let hash31 = hash(context, group, Family::V6, l3)?;
    let chosen = choose(
        context,
        state,
        (value, group),
        hash31,
        len,
        context.link.closed6,
    )?;
    Ok(send(frame, start, len, &chosen))
}

/// Rules 1 to 4 of [`forward`] but for what [`guard`] asks.
#[inline]
pub(crate) fn check(context: &Context<'_>, frame: &[u8]) -> Result<Passed<u128>, Reason> {
    let packet = &frame[ETHERNET..];
    let Some(header) = packet.first_chunk::<40>() else {
        return Err(Reason::Truncated);
    };
    let len = check_header(header)?;
    if len > packet.len() {
        return Err(Reason::BadLength);
    }
    check_link(context.link.flags)?;
    let dst = address(header, 24);
    if !is_usual(header[8]) || !is_usual(header[24]) {
        check_addresses(address(header, 8), dst)?;
    }
    Ok(Passed { len, dst })
}

/// What of rule 4 few links have, of a frame that has passed [`check`]: the table that a routing rule leads it to.
#[inline(never)]
pub(crate) fn guard(
    context: &Context<'_>,
    frame: &[u8],
    len: usize,
) -> Result<Option<u32>, Reason> {
    let packet = &frame[ETHERNET..];
    let header = packet.first_chunk::<40>().ok_or(Reason::Truncated)?;
    let (memory, addresses) = (context.memory, (address(header, 8), address(header, 24)));
    let cut = is_cut(header[6], len.saturating_sub(40));
    let tracked = cut || is_tracked(header[6], packet.get(40).copied());
    memory.guards6(&context.link, addresses, tracked, || {
        let tos = header[0] << 4 | header[1] >> 4;
        shown(&packet[..len], Family::V6, tos)
    })
}

/// Whether connection tracking may do more with a packet than to let it pass: an ICMPv6 error or what is too short to
/// tell, a fragment, or another extension header, behind which either may be.
fn is_tracked(next: u8, kind: Option<u8>) -> bool {
    match next {
        0 | 43 | 44 | 51 | 60 | 135 | 139 | 140 => true,
        58 => kind.is_none_or(|kind| kind < 128),
        _ => false,
    }
}

/// Rules 5 and 6 of [`forward`], of a frame that has passed [`check`] and is routed to this group.
#[inline]
pub(crate) fn check_group(frame: &[u8], group: Group) -> Result<(), Stop> {
    leads_on(group, frame[ETHERNET + 7])
}

/// Rule 8 of [`forward`].
// By itself it is not inlined into the vectors' loop, which costs a call for each packet.
#[inline(always)]
pub(crate) fn send(frame: &mut [u8], start: usize, len: usize, chosen: &Chosen) -> Sent {
    frame[ETHERNET + 7] -= 1;
    set_macs(frame, &chosen.adjacency);
    chosen.sent(start, frame.len(), len)
}

/// Step B1 but for the bytes, and what of B2 does not depend on the frame: the packet's length.
#[inline]
pub(crate) fn check_header(header: &[u8; 40]) -> Result<usize, Reason> {
    if header[0] >> 4 != 6 {
        return Err(Reason::BadHeader);
    }
    if header[6] == 0 {
        return Err(Reason::Options);
    }
    Ok(40 + usize::from(u16::from_be_bytes([header[4], header[5]])))
}

/// Step B3.
#[inline]
pub(crate) fn check_link(flags: u32) -> Result<(), Reason> {
    if flags & link_flags::FORWARD6 == 0 {
        return Err(Reason::ForwardingOff);
    }
    if flags & link_flags::RULES6 != 0 {
        return Err(Reason::Rules);
    }
    Ok(())
}

#[inline]
pub(crate) fn address(header: &[u8; 40], at: usize) -> u128 {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&header[at..at + 16]);
    u128::from_be_bytes(bytes)
}

/// Steps B4 and B5. Addresses with an embedded IPv4 address may not be sources.
#[inline]
pub(crate) fn check_addresses(src: u128, dst: u128) -> Result<(), Reason> {
    if !is_usual((src >> 120) as u8) {
        check_unusual_source(src)?;
    }
    check_destination(dst)
}

/// Step B5.
#[inline]
pub(crate) fn check_destination(dst: u128) -> Result<(), Reason> {
    match is_usual((dst >> 120) as u8) {
        true => Ok(()),
        false => check_unusual_destination(dst),
    }
}

/// Whether an address with this first byte may be any: all that may not begin with 0x00, 0xfe or 0xff.
#[inline]
fn is_usual(first: u8) -> bool {
    first.wrapping_add(2) > 2
}

fn is_multicast(address: u128) -> bool {
    address >> 120 == 0xff
}

fn is_link_local(address: u128) -> bool {
    address >> 118 == 0xfe80 >> 6
}

#[inline(never)]
fn check_unusual_source(src: u128) -> Result<(), Reason> {
    if is_multicast(src) || src <= 1 || src >> 32 == 0xffff {
        return Err(Reason::MartianSource);
    }
    if is_link_local(src) {
        return Err(Reason::LinkLocal);
    }
    Ok(())
}

#[inline(never)]
fn check_unusual_destination(dst: u128) -> Result<(), Reason> {
    if dst <= 1 {
        return Err(Reason::MartianDestination);
    }
    if is_multicast(dst) {
        return Err(Reason::Multicast);
    }
    if is_link_local(dst) {
        return Err(Reason::LinkLocal);
    }
    Ok(())
}
