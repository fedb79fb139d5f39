//! The pipeline for IPv4 (`ip_rcv_core`, `ip_route_input_slow`, `ip_forward`).

use raddle_image::{Group, Reason, is_cut, link_flags};
use raddle_packet::{Family, checksum};

use crate::choose::{Chosen, choose, hash, leads_on};
use crate::context::{Context, Passed, Sent, Stop, shown};
use crate::rewrite::{ETHERNET, set_macs};
use crate::state::State;

/// Decides about an IPv4 frame that begins at `start` of its buffer.
///
/// 1. (A1) 20 bytes of header, version 4, no options.
/// 2. (A2) The header checksum is right.
/// 3. (A3) The total length holds the header and fits the frame.
/// 4. (A4) The link forwards IPv4, and neither rules nor a reverse-path filter beyond engines want the kernel.
/// 5. (A5, A6) Source and destination may appear on the wire and are unicast.
/// 6. (A7) The source is none that the kernel may refuse, and has the way back that the link's filter wants. No firewall
///    concerns the addresses, or fragments or ICMP errors where the packet is one; no routing rule that asks for the packet is the
///    kernel's.
/// 7. (A8, A9) There is a route in the table that the rules lead to, and it leads to nexthops.
/// 8. (A10) TTL is above 1, unless the route leads to a segment.
/// 9. (A11, A12) The chosen nexthop can be sent to, by another link, without fragmentation, and no firewall concerns the
///    pair of links.
/// 10. (A13) New MAC addresses, TTL less one, checksum fixed.
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
    let table = table.unwrap_or(context.link.table4);
    let value = context.memory.route4(table, dst);
    let group = context.memory.group(value);
    check_group(frame, group)?;
    let l3 = &frame[ETHERNET..ETHERNET + len];
    let hash31 = hash(context, group, Family::V4, l3)?;
    let chosen = choose(
        context,
        state,
        (value, group),
        hash31,
        len,
        context.link.closed4,
    )?;
    Ok(send(frame, start, len, &chosen))
}

/// Rules 1 to 6 of [`forward`] but for what [`guard`] asks.
#[inline]
pub(crate) fn check(context: &Context<'_>, frame: &[u8]) -> Result<Passed<u32>, Reason> {
    let packet = &frame[ETHERNET..];
    let Some(header) = packet.first_chunk::<20>() else {
        return Err(Reason::Truncated);
    };
    check_header(header)?;
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if len < 20 || len > packet.len() {
        return Err(Reason::BadLength);
    }
    check_link(context.link.flags)?;
    let src = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);
    let dst = u32::from_be_bytes([header[16], header[17], header[18], header[19]]);
    check_addresses(src, dst)?;
    check_local(context, src)?;
    if context.link.flags & link_flags::WAY_BACK != 0 {
        check_way(context, src)?;
    }
    Ok(Passed { len, dst })
}

/// What of rule 6 links with a reverse-path filter have.
#[inline(never)]
fn check_way(context: &Context<'_>, src: u32) -> Result<(), Reason> {
    match context.memory.has_way_back(&context.link, src) {
        true => Ok(()),
        false => Err(Reason::RpFilter),
    }
}

/// What of rule 6 few links have, of a frame that has passed [`check`]: the table that a routing rule leads it to.
#[inline(never)]
pub(crate) fn guard(
    context: &Context<'_>,
    frame: &[u8],
    len: usize,
) -> Result<Option<u32>, Reason> {
    let packet = &frame[ETHERNET..];
    let Some(header) = packet.first_chunk::<20>() else {
        return Err(Reason::Truncated);
    };
    let address = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|i| header[at + i]));
    let (memory, addresses) = (context.memory, (address(12), address(16)));
    let tracked = is_tracked(packet) || is_cut(header[9], len.saturating_sub(20));
    memory.guards4(&context.link, addresses, tracked, || {
        shown(&packet[..len], Family::V4, header[1])
    })
}

/// Whether connection tracking may do more with a packet than to let it pass: a fragment, or an ICMP error
/// (`icmp_is_err`); also what is too short to tell.
fn is_tracked(packet: &[u8]) -> bool {
    let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
    fragment || packet[9] == 1 && packet.get(20).is_none_or(|kind| is_icmp_error(*kind))
}

fn is_icmp_error(kind: u8) -> bool {
    matches!(kind, 3 | 4 | 5 | 11 | 12)
}

/// Rules 7 and 8 of [`forward`], of a frame that has passed [`check`] and is routed to this group.
#[inline]
pub(crate) fn check_group(frame: &[u8], group: Group) -> Result<(), Stop> {
    leads_on(group, frame[ETHERNET + 8])
}

/// Rule 10 of [`forward`].
// By itself it is not inlined into the vectors' loop, which costs a call for each packet.
#[inline(always)]
pub(crate) fn send(frame: &mut [u8], start: usize, len: usize, chosen: &Chosen) -> Sent {
    let packet = &mut frame[ETHERNET..];
    packet[8] -= 1;
    let check = checksum::decrease_ttl(u16::from_be_bytes([packet[10], packet[11]]));
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    set_macs(frame, &chosen.adjacency);
    chosen.sent(start, frame.len(), len)
}

/// Steps A1 and A2.
#[inline(always)]
pub(crate) fn check_header(header: &[u8; 20]) -> Result<(), Reason> {
    match header[0] {
        0x45 => {}
        0x46..=0x4f => return Err(Reason::Options),
        _ => return Err(Reason::BadHeader),
    }
    if !checksum::is_valid_ipv4(header) {
        return Err(Reason::BadChecksum);
    }
    Ok(())
}

/// Step A4.
pub(crate) fn check_link(flags: u32) -> Result<(), Reason> {
    if flags & link_flags::FORWARD4 == 0 {
        return Err(Reason::ForwardingOff);
    }
    if flags & link_flags::RULES4 != 0 {
        return Err(Reason::Rules);
    }
    if flags & link_flags::RP_FILTER != 0 {
        return Err(Reason::RpFilter);
    }
    Ok(())
}

/// Step A7.
#[inline(always)]
pub(crate) fn check_local(context: &Context<'_>, src: u32) -> Result<(), Reason> {
    if context.memory.maybe_local(src)
        && let Some(reason) = context.memory.refuses(&context.link, src)
    {
        return Err(reason);
    }
    Ok(())
}

/// Steps A5 and A6. Class E and 0/8 but for 0.0.0.0 are unicast to Linux.
pub(crate) fn check_addresses(src: u32, dst: u32) -> Result<(), Reason> {
    if src == 0 || src == u32::MAX || src >> 24 == 127 || src >> 28 == 0xe {
        return Err(Reason::MartianSource);
    }
    if dst == 0 || dst >> 24 == 127 {
        return Err(Reason::MartianDestination);
    }
    if dst >> 28 == 0xe {
        return Err(Reason::Multicast);
    }
    if dst == u32::MAX {
        return Err(Reason::Broadcast);
    }
    Ok(())
}
