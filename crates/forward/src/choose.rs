//! From a table's value to an adjacency.

use std::num::NonZeroU32;

use raddle_image::{
    ADJ_FORWARD, ADJ_SEGMENT, ADJ_TAGGED, ADJ_TUNNEL, Adjacency, BucketsHead, Group, How, Member,
    Reason, RoundRobinHead, closed_reason, config_flags,
};
use raddle_packet::Family;
use raddle_select::{HashConfig, Hasher, Policy, next_turn, search_by};

use crate::context::{Context, Sent, Stop};
use crate::rewrite::sent_len;
use crate::state::State;

/// Whether a packet that is routed to this group, and has this TTL or hop limit, goes on to a choice. A
/// segment comes first: SRv6 does not look at the outer hop limit.
#[inline(always)]
pub(crate) fn leads_on(group: Group, ttl: u8) -> Result<(), Stop> {
    match group {
        Group::Kernel(reason) => Err(reason.into()),
        Group::Segment(number) => Err(Stop::Segment(number)),
        _ if ttl <= 1 => Err(Reason::TtlExceeded.into()),
        _ => Ok(()),
    }
}

/// No zone: what a segment sends is not asked about again, see [`raddle_image::link_flags::NO_SEGMENTS`].
pub(crate) const OPEN: u64 = 0;

/// A chosen adjacency and its number.
pub(crate) struct Chosen {
    pub(crate) number: u32,
    pub(crate) adjacency: Adjacency,
}

impl Chosen {
    /// What becomes of a frame of so many bytes from `start` on that holds an IP packet of `len`.
    #[inline]
    pub(crate) fn sent(&self, start: usize, frame_len: usize, len: usize) -> Sent {
        Sent {
            index: self.adjacency.index,
            adjacency: self.number,
            start,
            len: sent_len(frame_len, len),
        }
    }
}

/// What the packets of this group are hashed by; none where no hash chooses.
#[inline]
pub(crate) fn hashed_by(group: Group) -> Option<How> {
    match group {
        Group::Threshold { how, .. } | Group::Resilient { how, .. } => Some(how),
        Group::Flowlet { .. } => Some(How::by(Policy::L4, false)),
        Group::Kernel(_)
        | Group::Single(_)
        | Group::Neighbour(_)
        | Group::Segment(_)
        | Group::RoundRobin { .. } => None,
    }
}

/// Steps A11 and A12 (B8 and B9): the group's member for this packet, and whether it can be sent to.
///
/// `value` is the group's number, `hash31` the packet's hash by [`hashed_by`] (any number where that is
/// none), `len` the length of the packet from its IP header to its IP length, `closed` the zones that are
/// the kernel's.
#[inline(always)] // the families' and the vectors' own, which a segment's call must not take from them
pub(crate) fn choose(
    context: &Context<'_>,
    state: &mut State,
    (value, group): (u32, Group),
    hash31: u32,
    len: usize,
    closed: u64,
) -> Result<Chosen, Stop> {
    let number = member(context, state, (value, group), hash31)?;
    reach(context, number, len, closed)
}

/// Step A11 (B8): the number of the adjacency that is the group's member for this packet.
#[inline(always)]
pub(crate) fn member(
    context: &Context<'_>,
    state: &mut State,
    (value, group): (u32, Group),
    hash31: u32,
) -> Result<u32, Stop> {
    Ok(match group {
        Group::Kernel(reason) => return Err(reason.into()),
        Group::Single(number) | Group::Neighbour(number) => number,
        Group::Segment(number) => return Err(Stop::Segment(number)),
        Group::Threshold { first, count, .. } => {
            let upper = |i: usize| context.memory.member(first + i as u32).upper;
            let place = search_by(usize::from(count), hash31, upper);
            context.memory.member(first + place as u32).adjacency
        }
        _ => stateful(context, state, (value, group), hash31)?,
    })
}

/// Step A12 (the rest of B9): this adjacency, if a packet of `len` bytes can be sent to it, and it is in none of these zones.
#[inline(always)]
pub(crate) fn reach(
    context: &Context<'_>,
    number: u32,
    len: usize,
    closed: u64,
) -> Result<Chosen, Stop> {
    let adjacency = context.memory.adjacency_but_tags(number);
    if adjacency.state != ADJ_FORWARD {
        if adjacency.state == ADJ_SEGMENT {
            return Err(Stop::Segment(adjacency.index));
        }
        if adjacency.state == ADJ_TAGGED {
            return Err(Stop::Tagged(number));
        }
        if adjacency.state == ADJ_TUNNEL {
            return Err(Stop::Tunnel(number));
        }
        let reason = Reason::from_number(adjacency.reason);
        return Err(reason.unwrap_or(Reason::Unresolved).into());
    }
    check_way_out(context, &adjacency, len, closed)?;
    Ok(Chosen { number, adjacency })
}

/// The same of an adjacency that is reached by another link than its own ([`Stop::Tagged`]).
pub(crate) fn reach_tagged(
    context: &Context<'_>,
    number: u32,
    len: usize,
    closed: u64,
) -> Result<Chosen, Reason> {
    reach_by(ADJ_TAGGED, context, number, len, closed)
}

/// The same of one that is in this state, which takes all of its entry.
pub(crate) fn reach_by(
    state: u8,
    context: &Context<'_>,
    number: u32,
    len: usize,
    closed: u64,
) -> Result<Chosen, Reason> {
    let adjacency = context.memory.adjacency(number);
    if adjacency.state != state {
        return Err(Reason::OutLink);
    }
    check_way_out(context, &adjacency, len, closed)?;
    Ok(Chosen { number, adjacency })
}

#[inline(always)]
fn check_way_out(
    context: &Context<'_>,
    adjacency: &Adjacency,
    len: usize,
    closed: u64,
) -> Result<(), Reason> {
    if adjacency.index == context.link.index {
        return Err(Reason::SameLink);
    }
    if len > adjacency.mtu as usize {
        return Err(Reason::Mtu);
    }
    if closed >> (adjacency.zone & 63) & 1 != 0 {
        return Err(closed_reason(&context.link, adjacency.zone));
    }
    Ok(())
}

/// The adjacency that a group gives this packet which takes more than the packet to choose.
#[inline(never)]
fn stateful(
    context: &Context<'_>,
    state: &mut State,
    (value, group): (u32, Group),
    hash31: u32,
) -> Result<u32, Reason> {
    let memory = context.memory;
    match group {
        Group::Kernel(_)
        | Group::Single(_)
        | Group::Neighbour(_)
        | Group::Segment(_)
        | Group::Threshold { .. } => Err(Reason::NoRoute),
        Group::Resilient { first, count, .. } => {
            let head = BucketsHead::from_word(memory.member_word(first));
            let place = first + 1 + head.bucket(hash31, count);
            let bucket = memory.member(place);
            if state.is_shown(place, bucket.upper, head.interval, context.now) {
                Ok(bucket.adjacency)
            } else {
                Err(Reason::BucketActivity)
            }
        }
        Group::RoundRobin { first, count } => {
            let head = turns_head(context, first);
            Ok(turn(context, state, &head, first, count).1)
        }
        Group::Flowlet { first, count } => {
            let head = turns_head(context, first);
            if let Some(place) = state.flowlet(value, hash31, head.gap, context.now)
                && place < u32::from(count)
            {
                return Ok(memory.member(first + 2 + place).adjacency);
            }
            let (place, adjacency) = turn(context, state, &head, first, count);
            state.remember(value, hash31, place, context.now);
            Ok(adjacency)
        }
    }
}

fn turns_head(context: &Context<'_>, first: u32) -> RoundRobinHead {
    let word = |i| context.memory.member_word(first + i);
    RoundRobinHead::from_words([word(0), word(1)])
}

/// The member whose turn it is: its place and its adjacency.
fn turn(
    context: &Context<'_>,
    state: &mut State,
    head: &RoundRobinHead,
    first: u32,
    count: u16,
) -> (u32, u32) {
    let total = NonZeroU32::new(head.total).unwrap_or(NonZeroU32::MIN);
    let turn = state.turn(head.slot);
    let member = |place: u32| Member::from_word(context.memory.member_word(first + 2 + place));
    let place = match head.stride {
        0 => {
            *turn = next_turn(*turn, total, 1);
            (*turn).min(u32::from(count).saturating_sub(1))
        }
        stride => {
            *turn = next_turn(*turn, total, stride);
            let x = *turn;
            search_by(usize::from(count), x, |i| member(i as u32).upper) as u32
        }
    };
    (place, member(place).adjacency)
}

/// The hash by which `group` chooses for this packet; 0 where none does.
#[inline]
pub(crate) fn hash(
    context: &Context<'_>,
    group: Group,
    family: Family,
    l3: &[u8],
) -> Result<u32, Reason> {
    let Some(how) = hashed_by(group) else {
        return Ok(0);
    };
    let (hasher, config) = hashing(context, how, family)?;
    let hash31 = hasher.hash31_of_packet(&config, family, l3);
    hash31.map_err(|_| Reason::HashPolicy)
}

/// What hashes, and what of a packet.
#[inline]
pub(crate) fn hashing<'a>(
    context: &Context<'a>,
    how: How,
    family: Family,
) -> Result<(&'a Hasher, HashConfig), Reason> {
    let Some(hasher) = context.hasher else {
        return Err(Reason::SeedUnknown);
    };
    if context.config.flags & config_flags::SEED_KNOWN == 0 {
        return Err(Reason::SeedUnknown);
    }
    let (policy, fields) = match family {
        Family::V4 => (context.config.policy4, context.config.fields4),
        Family::V6 => (context.config.policy6, context.config.fields6),
    };
    let policy = how.policy().unwrap_or(policy);
    let config = HashConfig::kernel(policy, fields.into()).ok_or(Reason::HashPolicy)?;
    let config = HashConfig {
        icmp_follows_flow: how.follows(),
        ..config
    };
    Ok((hasher, config))
}
