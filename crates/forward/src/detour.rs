//! Packets with one segment on their way that is one of the common cases ([`raddle_srv6::Usual::plan`]).
//!
//! Nothing is decided here that rules S1 to S10 do not say: what turns out to be uncommon, or not to be
//! forwarded, is left as it came to [`crate::srv6::stopped`]. So groups with a state are not chosen from
//! here: they would be asked twice.

use std::ops::Range;

use raddle_image::{
    Group, How, LINK_TABLE, Reason, link_flags, rules_behind, segment_flags, segment_kind,
};
use raddle_packet::Family;
use raddle_srv6::{Around, Plan, Step, Usual, spread};

use crate::choose::{Chosen, OPEN, choose, hash, hashing};
use crate::context::{Context, NO_ADJACENCY, Sent};
use crate::counters::Counters;
use crate::ipv6;
use crate::rewrite::{ETHERNET, sent_len, set_macs};
use crate::srv6::is_kept;
use crate::state::State;

/// A segment, as far as it matters when its packet has left.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Met {
    pub(crate) number: u32,
    counts: bool,
}

impl Met {
    /// Rule S10.1.
    #[inline(always)]
    pub(crate) fn count(self, counters: &mut Counters, bytes: usize) {
        if self.counts {
            counters.carried(self.number, bytes as u64);
        }
    }
}

/// What has to be looked up for a detour.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) table: u32,
    pub(crate) dst: u128,
}

/// A frame in its buffer, and the packet in it: its family and its length.
pub(crate) struct Frame<'a> {
    pub(crate) buffer: &'a mut [u8],
    pub(crate) range: Range<usize>,
    pub(crate) family: Family,
    pub(crate) len: usize,
}

impl Frame<'_> {
    #[inline(always)]
    pub(crate) fn l3(&self) -> &[u8] {
        let start = self.range.start + ETHERNET;
        &self.buffer[start..start + self.len]
    }

    #[inline(always)]
    pub(crate) fn l3_mut(&mut self) -> &mut [u8] {
        let start = self.range.start + ETHERNET;
        &mut self.buffer[start..start + self.len]
    }
}

/// A segment, and what follows from it for all of its packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    pub(crate) met: Met,
    usual: Usual,
    /// A firewall is in the way: the kernel's.
    guarded: bool,
    /// `rp_filter` may be in the way of IPv4, see [`is_kept`]: whoever has no plan asks.
    kept: bool,
    /// Of the look-up behind it.
    table: u32,
    /// Whether a packet may be looked up there; of an encapsulation, one with the outer addresses.
    open: bool,
    /// What is looked up there, if that is not the packet's own destination: the segment's target, or that of the
    /// outer header.
    target: u128,
    has_target: bool,
}

impl Course {
    #[inline(always)]
    pub(crate) fn new(context: &Context<'_>, number: u32) -> Course {
        let segment = context.memory.segment(number);
        let flags = rules_behind(context.link.flags, segment.table6);
        let table = match segment.table6 {
            LINK_TABLE => context.link.table6,
            table => table,
        };
        let mut open = ipv6::check_link(flags).is_ok();
        let mut target = match segment.kind {
            segment_kind::END_X => u128::from_be_bytes(segment.target),
            _ => 0,
        };
        let usual = Usual::new(context.memory, &segment, context.demand());
        if let Some((src, dst)) = usual.outer_addresses() {
            open &= ipv6::check_addresses(src, dst).is_ok();
            target = dst;
        }
        let counts = segment.flags & segment_flags::HAS_COUNTERS != 0;
        Course {
            met: Met { number, counts },
            usual,
            guarded: context.link.flags & link_flags::NO_SEGMENTS != 0,
            kept: is_kept(context, Family::V4),
            table,
            open,
            target,
            has_target: target != 0,
        }
    }

    /// Rules S1 to S6, S8.1 to S8.3 and S9.1 to S9.5 for a frame that has passed A1 to A9 or B1 to B7 and is
    /// routed to this segment. A segment of the kernel's has no plan.
    #[inline(always)]
    pub(crate) fn plan(&self, frame: &Frame<'_>) -> Option<Plan> {
        if self.guarded || self.kept && frame.family == Family::V4 {
            return None;
        }
        let place = frame.range.start + ETHERNET;
        self.usual.plan((frame.family, frame.l3()), place)
    }

    /// Rules S8.4 and S10.1 for a frame that leaves as it is.
    #[inline(always)]
    pub(crate) fn leave(
        &self,
        counters: &mut Counters,
        frame: &Frame<'_>,
        sent: &raddle_srv6::Frame,
    ) -> Sent {
        self.met.count(counters, frame.len);
        Sent {
            index: sent.out,
            adjacency: NO_ADJACENCY,
            start: sent.start,
            len: sent_len(frame.range.end - sent.start, sent.len - ETHERNET),
        }
    }

    /// Rules S7.1 and S7.5 behind a step, whose packet's source has been checked, and what S7.2 is for.
    #[inline(always)]
    pub(crate) fn behind_step(&self, step: Step, frame: &Frame<'_>) -> Option<Ask> {
        let dst = step.dst();
        ipv6::check_destination(dst).ok()?;
        let lives = frame.l3()[7];
        match self.has_target {
            true => self.ask(self.target, lives),
            false => self.ask(dst, lives),
        }
    }

    /// The same around a packet.
    #[inline(always)]
    pub(crate) fn behind_around(&self, around: &Around) -> Option<Ask> {
        self.ask(self.target, around.hop_limit())
    }

    #[inline(always)]
    fn ask(&self, dst: u128, lives: u8) -> Option<Ask> {
        let table = self.table;
        (self.open && lives > 1).then_some(Ask { table, dst })
    }
}

/// Rule S7.7 for a packet that has taken its step, or is to take this one.
#[inline(always)]
pub(crate) fn send_step(step: Option<Step>, frame: &mut Frame<'_>, chosen: &Chosen) -> Sent {
    let start = frame.range.start;
    let whole = &mut frame.buffer[frame.range.clone()];
    if let Some(step) = step {
        step.take(&mut whole[ETHERNET..]);
    }
    ipv6::send(whole, start, frame.len, chosen)
}

/// Rules S9.2 and S7.7.
#[inline(always)]
pub(crate) fn send_around(
    context: &Context<'_>,
    around: &Around,
    frame: &mut Frame<'_>,
    chosen: &Chosen,
) -> Sent {
    let (start, end) = (frame.range.start - around.size(), frame.range.end);
    let whole = &mut frame.buffer[start..end];
    let outer = &mut whole[ETHERNET..ETHERNET + around.size()];
    around.write(context.memory, outer);
    outer[7] -= 1;
    set_macs(whole, &chosen.adjacency);
    whole[12..14].copy_from_slice(&[0x86, 0xdd]);
    chosen.sent(start, end - start, around.len())
}

/// Rules S7.6, S7.7 and S10.1 for a packet that has taken its step, and which step leads back. None: it is as it
/// came, and is not for this.
#[inline(always)]
pub(crate) fn depart_step(
    context: &Context<'_>,
    (state, counters): (&mut State, &mut Counters),
    (met, back): (Met, Step),
    (to, hash31): ((u32, Group), u32),
    frame: &mut Frame<'_>,
) -> Option<Sent> {
    match choose(context, state, to, hash31, frame.len, OPEN) {
        Ok(chosen) => {
            met.count(counters, frame.len);
            Some(send_step(None, frame, &chosen))
        }
        Err(_) => {
            back.take_back(frame.l3_mut());
            None
        }
    }
}

/// Rules S9.2, S9.6, S7.6, S7.7 and S10.1. None as above.
#[inline(always)]
pub(crate) fn depart_around(
    context: &Context<'_>,
    (state, counters): (&mut State, &mut Counters),
    (met, around): (Met, &Around),
    (to, hash31): ((u32, Group), u32),
    frame: &mut Frame<'_>,
) -> Option<Sent> {
    let hash31 = spread(hash31, around.salt) >> 1;
    let chosen = choose(context, state, to, hash31, around.len(), OPEN).ok()?;
    met.count(counters, frame.len);
    Some(send_around(context, around, frame, &chosen))
}

/// All of it for one frame. None: it is as it came, and is not for this.
#[inline]
pub(crate) fn alone(
    context: &Context<'_>,
    (state, counters): (&mut State, &mut Counters),
    number: u32,
    frame: &mut Frame<'_>,
) -> Option<Sent> {
    let course = Course::new(context, number);
    let met = course.met;
    match course.plan(frame)? {
        Plan::Frame(sent) => Some(course.leave(counters, frame, &sent)),
        Plan::Step(step) => {
            let to = look_up(context, course.behind_step(step, frame)?)?;
            let back = step.take(frame.l3_mut());
            let Ok(hash31) = hash(context, to.1, frame.family, frame.l3()) else {
                back.take_back(frame.l3_mut());
                return None;
            };
            let parts = (state, counters);
            depart_step(context, parts, (met, back), (to, hash31), frame)
        }
        Plan::Around(around) => {
            let to = look_up(context, course.behind_around(&around)?)?;
            let hash31 = match to.1 {
                Group::Threshold { .. } => plain_hash(context, frame.family, frame.l3()).ok()?,
                _ => 0,
            };
            let parts = (state, counters);
            depart_around(context, parts, (met, &around), (to, hash31), frame)
        }
    }
}

/// Rules S7.2 and S7.4: a group that this is for, and its number.
#[inline]
fn look_up(context: &Context<'_>, ask: Ask) -> Option<(u32, Group)> {
    let value = context.memory.route6(ask.table, ask.dst);
    let group = context.memory.group(value);
    let stateless = matches!(
        group,
        Group::Single(_) | Group::Neighbour(_) | Group::Threshold { .. }
    );
    stateless.then_some((value, group))
}

/// The hash by the namespace's policy.
pub(crate) fn plain_hash(context: &Context<'_>, family: Family, l3: &[u8]) -> Result<u32, Reason> {
    let (hasher, config) = hashing(context, How::default(), family)?;
    let hash31 = hasher.hash31_of_packet(&config, family, l3);
    hash31.map_err(|_| Reason::HashPolicy)
}
