//! Segments: rules S1, S2, S7 and S10 of [`raddle_srv6`], around what it does.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use raddle_image::{
    Adjacency, Group, LINK_TABLE, LinkEntry, Memory, Reason, Segment, Wanted, link_flags,
    rules_behind, segment_flags, segment_kind,
};
use raddle_packet::{Family, checksum};
use raddle_srv6::{
    ETHERNET, Frame, Keys, MAX_CHAIN, Next, Packet, Route, Settings, Target, carry_out, spread,
};

use crate::arrive::Mac;
use crate::choose::{Chosen, OPEN, choose, hash, hashed_by, reach_tagged};
use crate::context::{Context, NO_ADJACENCY, Stop, Verdict};
use crate::counters::Counters;
use crate::detour::{self, plain_hash};
use crate::parts::Parts;
use crate::rewrite::{sent_len, set_macs};
use crate::state::State;
use crate::{ipv4, ipv6, tags, tunnel};

/// The segments that a packet has met.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    met: [(u32, u32); MAX_CHAIN],
    len: usize,
    /// Flags of any of them.
    flags: u8,
    /// Which of them count, a bit each.
    counting: u8,
}

impl Way {
    /// Rule S1.1.
    #[inline]
    fn meet(&mut self, number: u32, segment: &Segment, bytes: usize) -> Result<(), Reason> {
        let place = self.met.get_mut(self.len).ok_or(Reason::SidChain)?;
        *place = (number, bytes as u32);
        self.counting |= (segment.flags & segment_flags::HAS_COUNTERS) << self.len;
        self.flags |= segment.flags;
        self.len += 1;
        Ok(())
    }

    #[inline]
    fn never_punts(&self) -> bool {
        self.flags & segment_flags::NO_PUNT != 0
    }

    /// Rule S10; nothing where all segments have been carried out.
    #[inline]
    fn count(&self, counters: &mut Counters, failed: Option<Reason>) {
        for (i, (number, bytes)) in self.met[..self.len].iter().enumerate() {
            if self.counting >> i & 1 == 0 {
                continue;
            }
            match failed {
                Some(reason) => counters.failed(*number, reason),
                None => counters.carried(*number, (*bytes).into()),
            }
        }
    }
}

/// Where a packet leaves.
enum Exit {
    Nexthop(Chosen),
    Frame(Frame),
}

/// What becomes of the packet in `frame` after all: there may be a segment that says so.
///
/// `plans` is whether it may be one of the common cases, which are tried first then.
///
/// # Errors
/// Why it is not forwarded, where no segment has anything to do with that.
#[inline(never)]
pub(crate) fn stopped(
    context: &Context<'_>,
    parts: Parts<'_>,
    buffer: &mut [u8],
    frame: Range<usize>,
    stop: Stop,
    plans: bool,
) -> Result<Verdict, Reason> {
    let number = match stop {
        Stop::Segment(number) => number,
        Stop::Reason(Reason::TtlExceeded) => {
            match expired(context, parts.state, &buffer[frame.clone()]) {
                Stop::Segment(number) => number,
                Stop::Own(reason) => return Ok(Verdict::Drop(reason)),
                Stop::Reason(reason) => return Err(reason),
                Stop::Tagged(_) | Stop::Tunnel(_) => return Err(Reason::TtlExceeded),
            }
        }
        Stop::Own(reason) => return Ok(Verdict::Drop(reason)),
        Stop::Reason(reason) => return Err(reason),
        Stop::Tagged(number) => {
            let packet = arrived(&buffer[frame.clone()]).ok_or(Reason::Truncated)?;
            return tags::send_tagged(context, buffer, frame, packet, number).map(Verdict::from);
        }
        Stop::Tunnel(number) => {
            let packet = arrived(&buffer[frame.clone()]).ok_or(Reason::Truncated)?;
            return tunnel::send(context, parts, buffer, frame, packet, number);
        }
    };
    let never_punts = || context.memory.segment(number).flags & segment_flags::NO_PUNT != 0;
    if is_closed(context, number) {
        return match never_punts() {
            true => Ok(Verdict::Drop(Reason::Firewall)),
            false => Err(Reason::Firewall),
        };
    }
    let (family, len) = arrived(&buffer[frame.clone()]).ok_or(Reason::Truncated)?;
    if is_kept(context, family) && !never_punts() {
        return Err(Reason::RpFilter);
    }
    if plans {
        let mut whole = detour::Frame {
            buffer: &mut *buffer,
            range: frame.clone(),
            family,
            len,
        };
        let to = (&mut *parts.state, &mut *parts.counters);
        if let Some(sent) = detour::alone(context, to, number, &mut whole) {
            return Ok(sent.into());
        }
    }
    if context.memory.segment(number).kind == segment_kind::TUNNEL_END {
        return tunnel::come_in(context, parts, buffer, frame, (family, len), number);
    }
    let packet = (family, len);
    let undo = &mut parts.work.undo;
    let packet = Packet::new(buffer, frame, packet, undo).ok_or(Reason::BadLength)?;
    let keys = &parts.work.keys;
    Ok(forward(
        context,
        keys,
        parts.state,
        parts.counters,
        packet,
        number,
    ))
}

/// Whether a firewall is in the way of what comes to a segment by this link, or to an end of tunnels.
fn is_closed(context: &Context<'_>, number: u32) -> bool {
    const EITHER: u32 = link_flags::NO_SEGMENTS | link_flags::NO_TUNNELS;
    let flags = context.link.flags & EITHER;
    let closes = || match context.memory.segment(number).kind {
        segment_kind::TUNNEL_END => link_flags::NO_TUNNELS,
        _ => link_flags::NO_SEGMENTS,
    };
    flags != 0 && flags & closes() != 0
}

/// Carries out segment `number` on a packet that has passed A1 to A9 or B1 to B7, and whatever comes
/// behind it.
fn forward(
    context: &Context<'_>,
    keys: &Keys,
    state: &mut State,
    counters: &mut Counters,
    mut packet: Packet<'_>,
    number: u32,
) -> Verdict {
    let mut way = Way::default();
    let reason = match pass(context, keys, state, &mut packet, &mut way, number) {
        Ok(exit) => {
            way.count(counters, None);
            return leave(packet, &exit);
        }
        Err(reason) => reason,
    };
    packet.restore();
    let failed = (reason != Reason::Blackhole).then_some(reason);
    way.count(counters, failed);
    if reason.is_drop() || way.never_punts() {
        Verdict::Drop(reason)
    } else {
        Verdict::Kernel(reason)
    }
}

/// What becomes of a packet that its family does not forward for this reason, where no segment says so: it
/// is dropped where it was routed to what the kernel does not have.
///
/// # Errors
/// The reason, in all other cases.
#[cold]
pub(crate) fn refused(
    context: &Context<'_>,
    frame: &[u8],
    reason: Reason,
) -> Result<Verdict, Reason> {
    let owned = is_of_group(reason)
        && routed_to(context, frame).is_some_and(|to| context.memory.group_never_punts(to.value));
    match owned {
        true => Ok(Verdict::Drop(reason)),
        false => Err(reason),
    }
}

/// Whether the group that a packet is routed to may be the reason: what comes before the look-up is not.
fn is_of_group(reason: Reason) -> bool {
    use Reason::*;
    matches!(
        reason,
        NoRoute
            | Unresolved
            | OutLink
            | SeedUnknown
            | HashPolicy
            | Encap
            | RouteFeature
            | Resilient
            | ImageFull
            | DeepHeaders
            | BucketActivity
            | TtlExceeded
    )
}

/// A packet of which the lengths have been checked, and the number of the group that it is routed to.
struct Routed<'a> {
    family: Family,
    l3: &'a [u8],
    value: u32,
}

/// The table that routing rules lead a packet to.
type Guard = fn(&Context<'_>, &[u8], usize) -> Result<Option<u32>, Reason>;

fn routed_to<'a>(context: &Context<'_>, frame: &'a [u8]) -> Option<Routed<'a>> {
    let (family, len) = arrived(frame)?;
    let l3 = frame.get(ETHERNET..ETHERNET + len)?;
    // A routing rule may have led it to another table than the link's.
    let by_rule = |guard: Guard| {
        let asked = context.guarded().then(|| guard(context, frame, len));
        asked.and_then(Result::ok).flatten()
    };
    let value = match family {
        Family::V4 => {
            let dst = u32::from_be_bytes(*l3.get(16..)?.first_chunk()?);
            let table = by_rule(ipv4::guard).unwrap_or(context.link.table4);
            context.memory.route4(table, dst)
        }
        Family::V6 => {
            let dst = u128::from_be_bytes(*l3.get(24..)?.first_chunk()?);
            let table = by_rule(ipv6::guard).unwrap_or(context.link.table6);
            context.memory.route6(table, dst)
        }
    };
    Some(Routed { family, l3, value })
}

/// What stops a packet whose TTL has run out: the segment that it comes to as the member of a group, or that.
#[cold]
fn expired(context: &Context<'_>, state: &mut State, frame: &[u8]) -> Stop {
    match routed_to(context, frame) {
        None => Reason::TtlExceeded.into(),
        Some(Routed { family, l3, value }) => {
            let group = context.memory.group(value);
            member_segment(context, state, (value, group), family, l3)
        }
    }
}

/// Family and length of a packet whose lengths have been checked.
#[inline]
pub(crate) fn arrived(frame: &[u8]) -> Option<(Family, usize)> {
    let header = frame.get(ETHERNET..)?.first_chunk::<8>()?;
    Some(if header[0] >> 4 == 4 {
        (
            Family::V4,
            u16::from_be_bytes([header[2], header[3]]).into(),
        )
    } else {
        let payload = u16::from_be_bytes([header[4], header[5]]);
        (Family::V6, 40 + usize::from(payload))
    })
}

/// Rules S1 to S9.
#[inline]
fn pass(
    context: &Context<'_>,
    keys: &Keys,
    state: &mut State,
    packet: &mut Packet<'_>,
    way: &mut Way,
    mut number: u32,
) -> Result<Exit, Reason> {
    let hash31 = |family, l3: &[u8]| plain_hash(context, family, l3);
    let settings = Settings {
        memory: context.memory,
        keys,
        demand: context.demand(),
        hash31: &hash31,
    };
    loop {
        let segment = context.memory.segment(number);
        if segment.kind == segment_kind::KERNEL {
            way.flags |= segment.flags;
            return Err(Reason::from_number(segment.reason).unwrap_or(Reason::Encap));
        }
        if segment.kind == segment_kind::TUNNEL_END {
            return Err(Reason::Local);
        }
        way.meet(number, &segment, packet.len())?;
        let route = match carry_out(&settings, &segment, packet)? {
            Next::Frame(frame) => return Ok(Exit::Frame(frame)),
            Next::Route(route) => route,
        };
        match routed(context, state, packet, &route, way.never_punts()) {
            Ok(chosen) => return Ok(Exit::Nexthop(chosen)),
            Err(Stop::Segment(next)) => number = next,
            Err(Stop::Own(reason)) => {
                way.flags |= segment_flags::NO_PUNT;
                return Err(reason);
            }
            Err(Stop::Reason(reason)) => return Err(reason),
            Err(Stop::Tagged(_) | Stop::Tunnel(_)) => return Err(Reason::OutLink),
        }
    }
}

/// Rule S7.
#[inline]
fn routed(
    context: &Context<'_>,
    state: &mut State,
    packet: &Packet<'_>,
    route: &Route,
    own: bool,
) -> Result<Chosen, Stop> {
    let l3 = packet.l3();
    let family = packet.family();
    let (dst, lives) = match family {
        Family::V4 => check4(context, l3, route.table, own)?,
        Family::V6 => check6(context, l3, route.table)?,
    };
    let value = look_up(context.memory, &context.link, route, dst);
    let group = context.memory.group(value);
    let stopped = |reason| of_group(context, value, reason);
    match group {
        Group::Kernel(Reason::Unresolved) if own => {
            let address = match target_of(route, dst) {
                Target::V4(address) => Some(Ipv4Addr::from_bits(address).into()),
                Target::V6(address) if family == Family::V6 => {
                    Some(Ipv6Addr::from_bits(address).into())
                }
                _ => None,
            };
            if let Some(address) = address {
                state.want(Wanted::Host {
                    group: value,
                    address,
                });
            }
            return Err(Reason::Unresolved.into());
        }
        Group::Kernel(reason) => return Err(stopped(reason)),
        Group::Segment(number) => return Err(Stop::Segment(number)),
        Group::Neighbour(_) if route.gateway_only => return Err(Reason::Encap.into()),
        _ => {}
    }
    if lives <= 1 {
        return Err(member_segment(context, state, (value, group), family, l3));
    }
    let hash31 = hash_now(context, group, packet).map_err(stopped)?;
    let chosen = match choose(context, state, (value, group), hash31, l3.len(), OPEN) {
        Err(Stop::Tagged(number)) => {
            let chosen = reach_tagged(context, number, l3.len(), OPEN)?;
            tags::check_room(&chosen, packet.frame_start())?;
            return Ok(chosen);
        }
        chosen => chosen,
    };
    chosen.map_err(|stop| match stop {
        Stop::Reason(reason) => {
            if let (true, Reason::Unresolved, Group::Single(number) | Group::Neighbour(number)) =
                (own, reason, group)
            {
                state.want(Wanted::Adjacency(number));
            }
            stopped(reason)
        }
        stop => stop,
    })
}

/// The hash of a packet by which a group chooses: its own, or rule S9.6; 0 where none does.
#[inline]
pub(crate) fn hash_now(
    context: &Context<'_>,
    group: Group,
    packet: &Packet<'_>,
) -> Result<u32, Reason> {
    match packet.flow() {
        None => hash(context, group, packet.family(), packet.l3()),
        Some(flow) if hashed_by(group).is_some() => {
            let of = packet.bytes(flow.range.clone());
            let hash31 = plain_hash(context, flow.family, of)?;
            Ok(spread(hash31, flow.salt) >> 1)
        }
        Some(_) => Ok(0),
    }
}

/// What stops a packet that is not forwarded by the group with this number, for this reason.
#[cold]
fn of_group(context: &Context<'_>, value: u32, reason: Reason) -> Stop {
    match context.memory.group_never_punts(value) {
        true => Stop::Own(reason),
        false => Stop::Reason(reason),
    }
}

/// What stops a packet whose TTL has run out: the segment that it would have come to, or that.
#[cold]
fn member_segment(
    context: &Context<'_>,
    state: &mut State,
    group: (u32, Group),
    family: Family,
    l3: &[u8],
) -> Stop {
    let stateless = matches!(
        group.1,
        Group::Single(_) | Group::Neighbour(_) | Group::Threshold { .. }
    );
    if stateless
        && let Ok(hash31) = hash(context, group.1, family, l3)
        && let Err(stop @ Stop::Segment(_)) = choose(context, state, group, hash31, l3.len(), OPEN)
    {
        return stop;
    }
    of_group(context, group.0, Reason::TtlExceeded)
}

/// What is looked up.
#[inline]
fn target_of(route: &Route, dst: Target) -> Target {
    match route.target {
        Target::Destination => dst,
        target => target,
    }
}

/// Rule S7.2.
#[inline]
fn look_up(memory: &Memory, link: &LinkEntry, route: &Route, dst: Target) -> u32 {
    let target = target_of(route, dst);
    let table = |of_link| match route.table {
        LINK_TABLE => of_link,
        table => table,
    };
    match target {
        Target::V4(address) => memory.route4(table(link.table4), address),
        Target::V6(address) => memory.route6(table(link.table6), address),
        Target::Destination => 0,
    }
}

/// Rule S7.1: whether a packet that segments have put out is forwarded by its header and by the link that it came in on,
/// `ingress`, when it is to be looked up in this table. `own` is whether one of the segments is NO_PUNT.
///
/// # Errors
/// Why not.
pub fn check_again(
    memory: &Memory,
    ingress: u32,
    (family, l3): (Family, &[u8]),
    table: u32,
    own: bool,
) -> Result<(), Reason> {
    let link = memory.link(ingress);
    let context = Context {
        memory,
        config: memory.config_head(),
        mac: Mac::new(link.mac),
        link,
        hasher: None,
        now: 0,
    };
    match family {
        Family::V4 => check4(&context, l3, table, own).map(|_| ()),
        Family::V6 => check6(&context, l3, table).map(|_| ()),
    }
}

/// Whether the kernel looks elsewhere for the way back of some packets of this family ([`link_flags::FILTERED_APART`]): what it
/// encapsulates may be among them, since its way out is the route's, and not the engine's.
pub(crate) fn is_kept(context: &Context<'_>, family: Family) -> bool {
    family == Family::V4 && context.link.flags & link_flags::FILTERED_APART != 0
}

/// Rule S7.1 for IPv4: the destination and the TTL.
#[inline]
fn check4(context: &Context<'_>, l3: &[u8], table: u32, own: bool) -> Result<(Target, u8), Reason> {
    let header = l3.first_chunk::<20>().ok_or(Reason::Truncated)?;
    ipv4::check_header(header)?;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if total < 20 || total > l3.len() {
        return Err(Reason::BadLength);
    }
    let mut flags = rules_behind(context.link.flags, table);
    // Behind the kernel's it asks about the way back by another link at times.
    flags &= !link_flags::RP_FILTER;
    if flags & link_flags::RP_BEHIND != 0 && !own {
        flags |= link_flags::RP_FILTER;
    }
    ipv4::check_link(flags)?;
    let src = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);
    let dst = u32::from_be_bytes([header[16], header[17], header[18], header[19]]);
    ipv4::check_addresses(src, dst)?;
    ipv4::check_local(context, src)?;
    Ok((Target::V4(dst), header[8]))
}

/// The same for IPv6.
#[inline]
fn check6(context: &Context<'_>, l3: &[u8], table: u32) -> Result<(Target, u8), Reason> {
    let header = l3.first_chunk::<40>().ok_or(Reason::Truncated)?;
    if ipv6::check_header(header)? > l3.len() {
        return Err(Reason::BadLength);
    }
    ipv6::check_link(rules_behind(context.link.flags, table))?;
    let (src, dst) = (ipv6::address(header, 8), ipv6::address(header, 24));
    ipv6::check_addresses(src, dst)?;
    Ok((Target::V6(dst), header[7]))
}

/// Rules S7.7 and S8.4.
#[inline]
fn leave(packet: Packet<'_>, exit: &Exit) -> Verdict {
    match exit {
        Exit::Frame(sent) => {
            let len = sent.len;
            let have = packet.have_from(sent.start);
            Verdict::Forward {
                index: sent.out,
                adjacency: NO_ADJACENCY,
                start: sent.start,
                len: sent_len(have, len - ETHERNET),
            }
        }
        Exit::Nexthop(Chosen { number, adjacency }) => {
            let family = packet.family();
            let l3_len = packet.len();
            let (buffer, frame, have) = packet.into_frame();
            let start = frame.start;
            write_header(&mut buffer[frame.clone()], family, adjacency);
            decrease(&mut buffer[frame][ETHERNET..], family);
            if adjacency.tags == 0 {
                return Verdict::Forward {
                    index: adjacency.index,
                    adjacency: *number,
                    start,
                    len: sent_len(have, l3_len),
                };
            }
            let chosen = Chosen {
                number: *number,
                adjacency: *adjacency,
            };
            tags::put_on(buffer, start, (have, l3_len), &chosen).into()
        }
    }
}

/// A13 or B10 but for the TTL, and the EtherType.
#[inline]
pub(crate) fn write_header(frame: &mut [u8], family: Family, adjacency: &Adjacency) {
    set_macs(frame, adjacency);
    frame[ETHERNET - 2..ETHERNET].copy_from_slice(&ether_type(family));
}

/// As in an Ethernet header.
pub(crate) fn ether_type(family: Family) -> [u8; 2] {
    match family {
        Family::V4 => [0x08, 0x00],
        Family::V6 => [0x86, 0xdd],
    }
}

/// TTL or hop limit less one, which is not 0.
#[inline]
pub(crate) fn decrease(l3: &mut [u8], family: Family) {
    match family {
        Family::V4 => {
            l3[8] -= 1;
            let check = checksum::decrease_ttl(u16::from_be_bytes([l3[10], l3[11]]));
            l3[10..12].copy_from_slice(&check.to_be_bytes());
        }
        Family::V6 => l3[7] -= 1,
    }
}
