//! Several frames of one link, step by step: each step is done for all of them before the next.
//!
//! Memory is read for all before anything waits for it, and everything that is hashed is hashed at once
//! ([`KeyBatch`]). What neither a hash nor a state chooses for leaves as soon as its adjacency is known. Nothing
//! else differs from frame after frame: what depends on the frames before (turns, flowlets, buckets that are
//! shown to the kernel) comes last and in the order of the frames.

use std::ops::Range;

use raddle_image::{Group, How, Reason};
use raddle_packet::Family;
use raddle_select::KeyBatch;
use raddle_srv6::Plan;

use crate::arrive::family;
use crate::choose::{OPEN, choose, hashed_by, hashing, reach};
use crate::context::{Context, Passed, Sent, Stop, Verdict};
use crate::counters::Counters;
use crate::detour::{Ask, Course, Frame, depart_around, depart_step, send_around, send_step};
use crate::lookups::VECTOR;
use crate::parts::Parts;
use crate::slots::{By, ELSEWHERE, Frames, Slots, Way};
use crate::state::State;
use crate::{ipv4, ipv6};

const _: () = assert!(VECTOR <= 64, "a bit for each");

/// Frames of one link, at most [`VECTOR`]. The steps are to be called in the order in which they stand
/// here, each for all frames.
pub(crate) struct Vector<'a> {
    context: &'a Context<'a>,
    slots: &'a mut Slots,
    /// The group that was read last.
    group: (u32, Group),
    /// Where the first is looked up that has met a segment, and most others.
    table: u32,
    /// A bit for each frame that is none.
    refused: u64,
    /// For each that has not left.
    here: u64,
    /// For each that a segment will do something with.
    detours: u64,
}

impl<'a> Vector<'a> {
    #[inline(always)]
    pub(crate) fn new(context: &'a Context<'a>, slots: &'a mut Slots, count: usize) -> Vector<'a> {
        slots.clear();
        Vector {
            context,
            slots,
            group: (0, context.memory.group(0)),
            table: 0,
            refused: 0,
            here: u64::MAX >> (64 - count.clamp(1, 64)),
            detours: 0,
        }
    }

    /// Of a frame that its buffer does not hold.
    #[inline(always)]
    pub(crate) fn refuse(&mut self, at: usize) {
        self.slots.ways[at].ends(Reason::Truncated.into());
        self.refused |= 1 << at;
    }

    /// How many came in.
    #[inline(always)]
    pub(crate) fn frames(&self) -> usize {
        (self.here & !self.refused).count_ones() as usize
    }

    /// Of these bytes of a frame, those that came in: none where its buffer does not hold it.
    #[inline(always)]
    pub(crate) fn received(&self, at: usize, len: usize) -> usize {
        if self.refused & 1 << at == 0 { len } else { 0 }
    }

    /// Steps P3 to P5, A1 to A7, B1 to B5: everything up to the route.
    #[inline(always)]
    pub(crate) fn check(&mut self, at: usize, frame: &[u8]) {
        match self.checked(frame) {
            Ok((family, len, place)) => {
                let way = &mut self.slots.ways[at];
                way.by = By::Route;
                way.family = family;
                way.len = len as u32;
                way.place = place;
            }
            Err(reason) => self.slots.ways[at].ends(reason.into()),
        }
    }

    #[inline(always)]
    fn checked(&mut self, frame: &[u8]) -> Result<(Family, usize, u8), Reason> {
        let family = family(frame, self.context.mac)?;
        match family {
            Family::V4 => {
                let Passed { len, dst } = ipv4::check(self.context, frame)?;
                let place = match self.context.guarded() {
                    false => self.slots.lookups4.push(dst),
                    true => self.guarded4(frame, len, dst)?,
                };
                Ok((family, len, place + VECTOR as u8))
            }
            Family::V6 => {
                let Passed { len, dst } = ipv6::check(self.context, frame)?;
                let place = match self.context.guarded() {
                    false => self.slots.lookups6.push(dst),
                    true => self.guarded6(frame, len, dst)?,
                };
                Ok((family, len, place))
            }
        }
    }

    /// Where the value of an address is, or will be.
    #[inline(never)]
    fn guarded4(&mut self, frame: &[u8], len: usize, dst: u32) -> Result<u8, Reason> {
        Ok(match ipv4::guard(self.context, frame, len)? {
            None => self.slots.lookups4.push(dst),
            Some(table) => self.slots.look_up4(self.context, table, dst),
        })
    }

    #[inline(never)]
    fn guarded6(&mut self, frame: &[u8], len: usize, dst: u128) -> Result<u8, Reason> {
        Ok(match ipv6::guard(self.context, frame, len)? {
            None => self.slots.lookups6.push(dst),
            Some(table) => self.slots.look_up6(self.context, table, dst),
        })
    }

    /// Step A8 (B6).
    #[inline(always)]
    pub(crate) fn look_up(&mut self) {
        self.slots.look_up(self.context);
    }

    #[inline(always)]
    fn group(&mut self, value: u32) -> Group {
        if self.group.0 != value {
            self.group = (value, self.context.memory.group(value));
        }
        self.group.1
    }

    /// It leaves, and is counted.
    #[inline(always)]
    fn leaves(&mut self, parts: &mut Parts<'_>, at: usize, sent: Sent, verdict: &mut Verdict) {
        self.here &= !(1 << at);
        *verdict = parts.sent(sent);
    }

    /// Steps A9 and A10 (B7 and B8), what is to be hashed for A11 (B9), and what a segment will do. What leaves
    /// by an adjacency that nothing chooses is sent at once, and so is what a segment sends without a look-up.
    #[inline(always)]
    pub(crate) fn collect(
        &mut self,
        parts: &mut Parts<'_>,
        at: usize,
        (buffer, range): (&mut [u8], Range<usize>),
        verdict: &mut Verdict,
    ) {
        let way = &self.slots.ways[at];
        if way.by == By::Nothing {
            return;
        }
        let mut frame = Frame {
            buffer,
            range,
            family: way.family,
            len: way.len as usize,
        };
        let value = self.slots.value(way.place);
        let group = self.group(value);
        if let Group::Segment(number) = group {
            let plans = self.detour(parts, (at, number), &frame, verdict);
            if plans.is_none() {
                self.slots.ways[at].ends(Stop::Segment(number));
            }
            return;
        }
        let collected = self.route(parts, (at, value, group), &mut frame, verdict);
        if let Err(stop) = collected {
            self.slots.ways[at].ends(stop);
        }
    }

    #[inline(always)]
    fn route(
        &mut self,
        parts: &mut Parts<'_>,
        (at, value, group): (usize, u32, Group),
        frame: &mut Frame<'_>,
        verdict: &mut Verdict,
    ) -> Result<(), Stop> {
        let (start, len) = (frame.range.start, frame.len);
        let whole = &mut frame.buffer[frame.range.clone()];
        match frame.family {
            Family::V4 => ipv4::check_group(whole, group)?,
            Family::V6 => ipv6::check_group(whole, group)?,
        }
        // What cannot be reached is told of with those that are chosen for.
        if let Group::Single(number) | Group::Neighbour(number) = group
            && let Ok(chosen) = reach(self.context, number, len, self.context.closed(frame.family))
        {
            let sent = match frame.family {
                Family::V4 => ipv4::send(whole, start, len, &chosen),
                Family::V6 => ipv6::send(whole, start, len, &chosen),
            };
            self.leaves(parts, at, sent, verdict);
            return Ok(());
        }
        let way = &mut self.slots.ways[at];
        way.value = value;
        way.group = group;
        match hashed_by(group) {
            Some(how) => Ok(self.key(parts.keys, how, at, frame)?),
            None => Ok(()),
        }
    }

    /// What is hashed of a packet.
    #[inline(always)]
    fn key(
        &mut self,
        keys: &mut KeyBatch,
        how: How,
        at: usize,
        frame: &Frame<'_>,
    ) -> Result<(), Reason> {
        let (hasher, config) = hashing(self.context, how, frame.family)?;
        let hashed = hasher.collect(keys, &config, frame.family, frame.l3(), at as u8);
        if let Some(hashed) = hashed.map_err(|_| Reason::HashPolicy)? {
            self.slots.hashes[at] = hashed;
        }
        Ok(())
    }

    /// What the segment will do, or what it sends at once. None: it is not one of the common cases.
    #[inline(always)]
    fn detour(
        &mut self,
        parts: &mut Parts<'_>,
        (at, number): (usize, u32),
        frame: &Frame<'_>,
        verdict: &mut Verdict,
    ) -> Option<()> {
        let course = match &mut self.slots.course {
            Some(course) if course.met.number == number => course,
            other => other.insert(course(self.context, number)),
        };
        let met = course.met;
        let (by, Ask { table, dst }) = match course.plan(frame)? {
            Plan::Frame(sent) => {
                let sent = course.leave(parts.counters, frame, &sent);
                self.leaves(parts, at, sent, verdict);
                return Some(());
            }
            Plan::Step(step) => {
                let ask = course.behind_step(step, frame)?;
                self.slots.steps[at] = step;
                (By::Step, ask)
            }
            Plan::Around(around) => {
                let ask = course.behind_around(&around)?;
                self.slots.arounds[at] = around;
                (By::Around, ask)
            }
        };
        self.slots.met[at] = met;
        if self.detours == 0 {
            self.table = table;
        }
        self.detours |= 1 << at;
        let way = &mut self.slots.ways[at];
        way.by = by;
        if self.table == table {
            way.place = self.slots.again.push(dst);
        } else {
            way.place = ELSEWHERE;
            way.value = self.context.memory.route6(table, dst);
        }
        Some(())
    }

    /// Rule S7.2, and for which frames.
    #[inline(always)]
    pub(crate) fn look_up_again(&mut self) -> Frames {
        let (memory, slots) = (self.context.memory, &mut *self.slots);
        slots
            .again
            .look_up(memory, self.table, &mut slots.again_values);
        Frames(self.detours)
    }

    /// Rules S7.4 to S7.6 and S9.6, as far as the hash; where no hash chooses, all of them.
    #[inline(always)]
    pub(crate) fn collect_again(
        &mut self,
        parts: &mut Parts<'_>,
        at: usize,
        (buffer, range): (&mut [u8], Range<usize>),
        verdict: &mut Verdict,
    ) {
        let way = &self.slots.ways[at];
        let value = match way.place {
            ELSEWHERE => way.value,
            place => self.slots.again_values[usize::from(place) % VECTOR],
        };
        let (by, len) = (way.by, way.len as usize);
        let mut frame = Frame {
            buffer,
            range,
            family: way.family,
            len,
        };
        let group = self.group(value);
        let met = self.slots.met[at];
        let sent = match group {
            Group::Single(number) | Group::Neighbour(number) if by == By::Step => {
                let chosen = reach(self.context, number, len, OPEN).ok();
                let step = Some(self.slots.steps[at]);
                chosen.map(|chosen| send_step(step, &mut frame, &chosen))
            }
            Group::Single(number) | Group::Neighbour(number) => {
                let around = &self.slots.arounds[at];
                let chosen = reach(self.context, number, around.len(), OPEN).ok();
                chosen.map(|chosen| send_around(self.context, around, &mut frame, &chosen))
            }
            Group::Threshold { how, .. } => {
                let way = &mut self.slots.ways[at];
                way.value = value;
                way.group = group;
                if self.key_again((parts.keys, how), at, &mut frame).is_ok() {
                    return;
                }
                None
            }
            _ => None,
        };
        match sent {
            Some(sent) => {
                met.count(parts.counters, len);
                self.leaves(parts, at, sent, verdict);
            }
            None => self.slots.ways[at].ends(Stop::Segment(met.number)),
        }
    }

    /// What is hashed of a packet on a detour, which has its new destination then.
    #[inline(always)]
    fn key_again(
        &mut self,
        (keys, how): (&mut KeyBatch, How),
        at: usize,
        frame: &mut Frame<'_>,
    ) -> Result<(), Reason> {
        if self.slots.ways[at].by == By::Around {
            return self.key(keys, How::default(), at, frame);
        }
        let back = self.slots.steps[at].take(frame.l3_mut());
        self.slots.steps[at] = back;
        let collected = self.key(keys, how, at, frame);
        if collected.is_err() {
            back.take_back(frame.l3_mut());
        }
        collected
    }

    /// The hashes of what was collected; and which frames have not left.
    #[inline(always)]
    pub(crate) fn hash(&mut self, keys: &mut KeyBatch) -> Frames {
        if self.here != 0
            && let Some(hasher) = self.context.hasher
        {
            hasher.hash31_all(keys, &mut self.slots.hashes);
        }
        Frames(self.here)
    }

    /// Steps A11 to A13 (B9 and B10). Why not, and whether a segment may be one of the common cases.
    #[inline(always)]
    pub(crate) fn send(
        &self,
        (state, counters): (&mut State, &mut Counters),
        at: usize,
        buffer: &mut [u8],
        range: Range<usize>,
    ) -> Result<Sent, (Stop, bool)> {
        let Way {
            by,
            family,
            len,
            value,
            group,
            stop,
            ..
        } = self.slots.ways[at];
        let (context, slots) = (self.context, &*self.slots);
        let to = (value, group);
        let (hash31, met) = (slots.hashes[at], slots.met[at]);
        let mut frame = Frame {
            buffer,
            range,
            family,
            len: len as usize,
        };
        let parts = (&mut *state, counters);
        let sent = match by {
            By::Nothing => return Err((stop, false)),
            By::Step => {
                let of = (met, slots.steps[at]);
                depart_step(context, parts, of, (to, hash31), &mut frame)
            }
            By::Around => {
                let of = (met, &slots.arounds[at]);
                depart_around(context, parts, of, (to, hash31), &mut frame)
            }
            By::Route => {
                let closed = context.closed(family);
                let chosen = choose(context, state, to, hash31, frame.len, closed);
                let chosen = chosen.map_err(|stop| (stop, true))?;
                let start = frame.range.start;
                let whole = &mut frame.buffer[frame.range.clone()];
                return Ok(match family {
                    Family::V4 => ipv4::send(whole, start, frame.len, &chosen),
                    Family::V6 => ipv6::send(whole, start, frame.len, &chosen),
                });
            }
        };
        sent.ok_or((Stop::Segment(met.number), false))
    }
}

/// Out of the way of those that need not read it.
#[inline(never)]
fn course(context: &Context<'_>, number: u32) -> Course {
    Course::new(context, number)
}
