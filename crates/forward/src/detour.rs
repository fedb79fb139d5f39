//! Packets with one segment on their way that is one of the common cases ([`raddle_srv6::plan()`]).
//!
//! Nothing is decided here that rules S1 to S10 do not say: what turns out to be uncommon, or not to be
//! forwarded, is left as it came to [`crate::srv6::stopped`]. So groups with a state are not chosen from
//! here: they would be asked twice.

use std::ops::Range;

use raddle_packet::Family;
use raddle_rib::Reason;
use raddle_rib::image::{Group, LINK_TABLE, Segment, link_flags, segment_flags, segment_kind};
use raddle_select::{HashConfig, Hasher};
use raddle_srv6::{Around, Demand, Plan, Step, Target, outer_addresses, plan, spread};

use crate::choose::{choose, hash, hashed_by, hashing};
use crate::context::{Context, NO_ADJACENCY, Sent};
use crate::counters::Counters;
use crate::ipv6;
use crate::rewrite::{ETHERNET, sent_len, set_macs};
use crate::state::State;

/// What a segment will do with a packet, and what comes behind it.
#[derive(Clone, Copy)]
pub(crate) struct Detour {
    number: u32,
    counts: bool,
    action: Action,
}

/// A [`Plan`] without what the look-up is for.
#[derive(Clone, Copy)]
enum Action {
    Step(Step),
    Frame(raddle_srv6::Frame),
    Around(Around),
}

/// What has to be looked up for a detour, if anything.
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
    #[inline]
    pub(crate) fn l3(&self) -> &[u8] {
        let start = self.range.start + ETHERNET;
        &self.buffer[start..start + self.len]
    }

    #[inline]
    fn l3_mut(&mut self) -> &mut [u8] {
        let start = self.range.start + ETHERNET;
        &mut self.buffer[start..start + self.len]
    }
}

/// A segment, and what follows from it for all of its packets.
#[derive(Clone, Copy)]
pub(crate) struct Course {
    pub(crate) number: u32,
    segment: Segment,
    demand: Demand,
    /// Of the look-up behind it.
    table: u32,
    /// Whether a packet may be looked up there.
    open: bool,
    /// Of an encapsulation: the outer destination, where a packet with the outer addresses may be routed.
    outer: Option<u128>,
}

impl Course {
    #[inline]
    pub(crate) fn new(context: &Context<'_>, number: u32) -> Course {
        let segment = context.memory.segment(number);
        let mut flags = context.link.flags;
        let mut table = segment.table6;
        if table == LINK_TABLE {
            table = context.link.table6;
        } else {
            flags &= !link_flags::RULES6;
        }
        let outer = (segment.kind == segment_kind::ENCAPS)
            .then(|| outer_addresses(context.memory, segment.template))
            .filter(|(src, dst)| ipv6::check_addresses(*src, *dst).is_ok())
            .map(|(_, dst)| dst);
        Course {
            number,
            segment,
            demand: context.demand(),
            table,
            open: ipv6::check_link(flags).is_ok(),
            outer,
        }
    }
}

impl Detour {
    /// Rules S1 to S6, S7.1, S7.2, S8 and S9.1 to S9.5 for a frame that has passed A1 to A9 or B1 to B7 and
    /// is routed to this segment.
    #[inline(always)]
    pub(crate) fn new(
        context: &Context<'_>,
        course: &Course,
        frame: &Frame<'_>,
    ) -> Option<(Detour, Option<Ask>)> {
        let segment = &course.segment;
        if segment.kind == segment_kind::KERNEL {
            return None;
        }
        let l3 = frame.l3();
        let place = frame.range.start + ETHERNET;
        let of = (frame.family, l3);
        let detour = |action| Detour {
            number: course.number,
            counts: segment.flags & segment_flags::COUNTERS != 0,
            action,
        };
        let (detour, dst, lives) = match plan(context.memory, segment, course.demand, of, place)? {
            Plan::Frame(frame) => return Some((detour(Action::Frame(frame)), None)),
            Plan::Step(step, target) => {
                let src = ipv6::address(l3.first_chunk()?, 8);
                ipv6::check_addresses(src, step.dst).ok()?;
                let dst = match target {
                    Target::V6(address) => address,
                    _ => step.dst,
                };
                (detour(Action::Step(step)), dst, l3[7].into())
            }
            Plan::Around(around) => (
                detour(Action::Around(around)),
                course.outer?,
                around.hop_limit,
            ),
        };
        if !course.open || lives <= 1 {
            return None;
        }
        let table = course.table;
        Some((detour, Some(Ask { table, dst })))
    }

    /// Whether the group that was found is one that this is for. Then the packet has its new destination, for
    /// its hash.
    #[inline]
    pub(crate) fn turn(&self, group: Group, frame: &mut Frame<'_>) -> bool {
        let stateless = matches!(
            group,
            Group::Single(_) | Group::Neighbour(_) | Group::Threshold { .. }
        );
        if stateless && let Action::Step(step) = &self.action {
            step.take(frame.l3_mut());
        }
        stateless
    }

    /// What is to be hashed, and by what; none where no hash chooses.
    #[inline]
    pub(crate) fn hashing<'a>(
        &self,
        context: &Context<'a>,
        group: Group,
        family: Family,
    ) -> Option<Result<(&'a Hasher, HashConfig), Reason>> {
        let how = hashed_by(group)?;
        let how = match self.action {
            Action::Around(_) => raddle_rib::image::How::default(),
            _ => how,
        };
        Some(hashing(context, how, family))
    }

    /// Rule S10.1 for a frame that leaves as it is; none if that is not what the segment does.
    #[inline(always)]
    pub(crate) fn leave(&self, counters: &mut Counters, frame: &Frame<'_>) -> Option<Sent> {
        let Action::Frame(sent) = &self.action else {
            return None;
        };
        self.count(counters, frame.len);
        Some(Sent {
            index: sent.out,
            adjacency: NO_ADJACENCY,
            start: sent.start,
            len: sent_len(frame.range.end - sent.start, sent.len - ETHERNET),
        })
    }

    /// Rule S10.1.
    #[inline(always)]
    fn count(&self, counters: &mut Counters, bytes: usize) {
        if self.counts {
            counters.carried(self.number, bytes as u64);
        }
    }

    /// The rest of rules S7 and S9, and S10.1. None: the frame is as it came, and is not for this.
    #[inline(always)]
    pub(crate) fn depart(
        &self,
        context: &Context<'_>,
        (state, counters): (&mut State, &mut Counters),
        to: (u32, Group),
        hash31: u32,
        frame: &mut Frame<'_>,
    ) -> Option<Sent> {
        let bytes = frame.len;
        let (start, end) = (frame.range.start, frame.range.end);
        let sent = match &self.action {
            Action::Frame(_) => return self.leave(counters, frame),
            Action::Step(step) => match choose(context, state, to, hash31, bytes) {
                Ok(chosen) => {
                    let whole = &mut frame.buffer[frame.range.clone()];
                    ipv6::send(whole, start, bytes, &chosen)
                }
                Err(_) => {
                    step.take_back(frame.l3_mut());
                    return None;
                }
            },
            Action::Around(around) => {
                let hash31 = spread(hash31, around.salt) >> 1;
                let len = around.len();
                let chosen = choose(context, state, to, hash31, len).ok()?;
                let start = start - around.size();
                let whole = &mut frame.buffer[start..end];
                let outer = &mut whole[ETHERNET..ETHERNET + around.size()];
                around.write(context.memory, outer);
                outer[7] -= 1;
                set_macs(whole, &chosen.adjacency);
                whole[12..14].copy_from_slice(&[0x86, 0xdd]);
                chosen.sent(start, end - start, len)
            }
        };
        self.count(counters, bytes);
        Some(sent)
    }

    /// All of it for one frame. None as above.
    #[inline]
    pub(crate) fn alone(
        context: &Context<'_>,
        parts: (&mut State, &mut Counters),
        number: u32,
        frame: &mut Frame<'_>,
    ) -> Option<Sent> {
        let course = Course::new(context, number);
        let (detour, ask) = Detour::new(context, &course, frame)?;
        let Some(Ask { table, dst }) = ask else {
            let none = (0, Group::Kernel(Reason::NoRoute));
            return detour.depart(context, parts, none, 0, frame);
        };
        let value = context.memory.route6(table, dst);
        let group = context.memory.group(value);
        if !detour.turn(group, frame) {
            return None;
        }
        let hash31 = match (&detour.action, hashed_by(group)) {
            (_, None) => Ok(0),
            (Action::Around(_), Some(_)) => plain_hash(context, frame.family, frame.l3()),
            _ => hash(context, group, frame.family, frame.l3()),
        };
        match hash31 {
            Ok(hash31) => detour.depart(context, parts, (value, group), hash31, frame),
            Err(_) => {
                detour.give_up(frame);
                None
            }
        }
    }

    /// After [`Detour::turn`]: the frame as it came.
    #[cold]
    pub(crate) fn give_up(&self, frame: &mut Frame<'_>) {
        if let Action::Step(step) = &self.action {
            step.take_back(frame.l3_mut());
        }
    }

    /// The segment.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

/// The hash by the namespace's policy.
pub(crate) fn plain_hash(context: &Context<'_>, family: Family, l3: &[u8]) -> Result<u32, Reason> {
    let (hasher, config) = hashing(context, raddle_rib::image::How::default(), family)?;
    let hash31 = hasher.hash31_of_packet(&config, family, l3);
    hash31.map_err(|_| Reason::HashPolicy)
}
