//! Several frames of one link, step by step: each step is done for all of them before the next.
//!
//! Memory is read for all before anything waits for it, and everything that is hashed is hashed at once
//! ([`KeyBatch`]). What neither a hash nor a state chooses for leaves as soon as its adjacency is known. Nothing
//! else differs from frame after frame: what depends on the frames before (turns, flowlets, buckets that are
//! shown to the kernel) comes last and in the order of the frames.

use std::ops::Range;

use raddle_packet::Family;
use raddle_rib::Reason;
use raddle_rib::image::{Group, How};
use raddle_select::KeyBatch;
use raddle_srv6::{Around, Plan, Step};

use crate::arrive::family;
use crate::choose::{choose, hashed_by, hashing, reach};
use crate::context::{Context, Passed, Sent, Stop};
use crate::counters::Counters;
use crate::detour::{Ask, Course, Frame, Met, depart_around, depart_step, send_around, send_step};
use crate::lookups::{Lookups, VECTOR};
use crate::state::State;
use crate::{ipv4, ipv6};

/// In the place of a group's number, of which there are far fewer: [`Slots::again`] has it.
const LOOKED_UP_AGAIN: u32 = u32::MAX;
const _: () = assert!(VECTOR <= 64, "a bit for each");

/// What a frame is under way by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// It is not: [`Way::stop`] says why.
    Nothing,
    Route,
    /// A segment with the step in [`Slots::steps`].
    Step,
    /// One with the outer header in [`Slots::arounds`].
    Around,
}

/// How far a frame has come. Each part is written by itself where it becomes known: what is put together
/// first and copied then has to wait for its parts.
#[derive(Clone, Copy, Debug)]
struct Way {
    by: By,
    family: Family,
    /// Of the packet from its IP header on.
    len: u32,
    /// The group's number.
    value: u32,
    group: Group,
    stop: Stop,
}

impl Way {
    const NONE: Way = Way {
        by: By::Nothing,
        family: Family::V6,
        len: 0,
        value: 0,
        group: Group::Kernel(Reason::NoRoute),
        stop: Stop::Reason(Reason::Held),
    };

    #[inline(always)]
    fn ends(&mut self, stop: Stop) {
        self.by = By::Nothing;
        self.stop = stop;
    }
}

/// What is known of frames between the steps, by frame. Kept from vector to vector, so that nobody has to clear
/// it: what is read of it was written in the same vector.
#[derive(Debug)]
pub(crate) struct Slots {
    ways: [Way; VECTOR],
    lookups4: Lookups<u32>,
    lookups6: Lookups<u128>,
    /// Behind segments, in table `.0`.
    again: (u32, Lookups<u128>),
    met: [Met; VECTOR],
    steps: [Step; VECTOR],
    arounds: [Around; VECTOR],
    hashes: [u32; VECTOR],
}

impl Slots {
    pub(crate) fn new() -> Box<Slots> {
        Box::new(Slots {
            ways: [Way::NONE; VECTOR],
            lookups4: Lookups::new(0),
            lookups6: Lookups::new(0),
            again: (0, Lookups::new(0)),
            met: [Met::default(); VECTOR],
            steps: [Step::default(); VECTOR],
            arounds: [Around::default(); VECTOR],
            hashes: [0; VECTOR],
        })
    }
}

/// Frames of a vector, a bit for each.
#[derive(Clone, Copy)]
pub(crate) struct Frames(u64);

impl Iterator for Frames {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let at = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(at)
    }
}

/// Frames of one link, at most [`VECTOR`]. The steps are to be called in the order in which they stand
/// here, each for all frames.
pub(crate) struct Vector<'a> {
    context: &'a Context<'a>,
    slots: &'a mut Slots,
    /// The segment and the group that were read last.
    course: Option<Course>,
    group: (u32, Group),
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
        slots.lookups4.clear();
        slots.lookups6.clear();
        slots.again.1.clear();
        Vector {
            context,
            slots,
            course: None,
            group: (0, context.memory.group(0)),
            refused: 0,
            here: u64::MAX >> (64 - count.clamp(1, 64)),
            detours: 0,
        }
    }

    /// Of a frame that its buffer does not hold.
    #[cold]
    pub(crate) fn refuse(&mut self, at: usize) {
        self.slots.ways[at].ends(Reason::Truncated.into());
        self.refused |= 1 << at;
    }

    /// Of these bytes of a frame, those that came in: none where its buffer does not hold it.
    #[inline]
    pub(crate) fn received(&self, at: usize, len: usize) -> usize {
        if self.refused & 1 << at == 0 { len } else { 0 }
    }

    /// Steps P3 to P5, A1 to A7, B1 to B5: everything up to the route.
    #[inline(always)]
    pub(crate) fn check(&mut self, at: usize, frame: &[u8]) {
        match self.checked(at, frame) {
            Ok((family, len)) => {
                let way = &mut self.slots.ways[at];
                way.by = By::Route;
                way.family = family;
                way.len = len as u32;
            }
            Err(reason) => self.slots.ways[at].ends(reason.into()),
        }
    }

    #[inline(always)]
    fn checked(&mut self, at: usize, frame: &[u8]) -> Result<(Family, usize), Reason> {
        let family = family(frame, &self.context.link)?;
        let len = match family {
            Family::V4 => {
                let Passed { len, dst } = ipv4::check(self.context, frame)?;
                self.slots.lookups4.push(dst, at);
                len
            }
            Family::V6 => {
                let Passed { len, dst } = ipv6::check(self.context, frame)?;
                self.slots.lookups6.push(dst, at);
                len
            }
        };
        Ok((family, len))
    }

    /// Step A8 (B6).
    pub(crate) fn look_up(&mut self) {
        let (memory, link) = (self.context.memory, &self.context.link);
        self.slots.lookups4.look_up(memory, link.table4);
        self.slots.lookups6.look_up(memory, link.table6);
    }

    #[inline(always)]
    fn group(&mut self, value: u32) -> Group {
        if self.group.0 != value {
            self.group = (value, self.context.memory.group(value));
        }
        self.group.1
    }

    /// Steps A9 and A10 (B7 and B8), what is to be hashed for A11 (B9), and what a segment will do. What leaves
    /// by an adjacency that nothing chooses is sent at once, and so is what a segment sends without a look-up.
    #[inline(always)]
    pub(crate) fn collect(
        &mut self,
        (keys, counters): (&mut KeyBatch, &mut Counters),
        at: usize,
        buffer: &mut [u8],
        range: Range<usize>,
    ) -> Option<Sent> {
        let way = &self.slots.ways[at];
        if way.by == By::Nothing {
            return None;
        }
        let (family, len) = (way.family, way.len as usize);
        let mut frame = Frame {
            buffer,
            range,
            family,
            len,
        };
        match self.collected((keys, counters), at, &mut frame) {
            Ok(None) => None,
            Ok(sent) => {
                self.here &= !(1 << at);
                sent
            }
            Err(stop) => {
                self.slots.ways[at].ends(stop);
                None
            }
        }
    }

    #[inline(always)]
    fn collected(
        &mut self,
        (keys, counters): (&mut KeyBatch, &mut Counters),
        at: usize,
        frame: &mut Frame<'_>,
    ) -> Result<Option<Sent>, Stop> {
        let value = match frame.family {
            Family::V4 => self.slots.lookups4.value(at),
            Family::V6 => self.slots.lookups6.value(at),
        };
        let group = self.group(value);
        if let Group::Segment(number) = group {
            let plans = self.detour(counters, at, number, frame);
            return plans.ok_or(Stop::Segment(number));
        }
        let (start, len) = (frame.range.start, frame.len);
        let whole = &mut frame.buffer[frame.range.clone()];
        match frame.family {
            Family::V4 => ipv4::check_group(whole, group)?,
            Family::V6 => ipv6::check_group(whole, group)?,
        }
        // What cannot be reached is told of with those that are chosen for.
        if let Group::Single(number) | Group::Neighbour(number) = group
            && let Ok(chosen) = reach(self.context, number, len)
        {
            return Ok(Some(match frame.family {
                Family::V4 => ipv4::send(whole, start, len, &chosen),
                Family::V6 => ipv6::send(whole, start, len, &chosen),
            }));
        }
        let way = &mut self.slots.ways[at];
        way.value = value;
        way.group = group;
        if let Some(how) = hashed_by(group) {
            self.key(keys, how, at, frame)?;
        }
        Ok(None)
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
        counters: &mut Counters,
        at: usize,
        number: u32,
        frame: &Frame<'_>,
    ) -> Option<Option<Sent>> {
        let course = match &mut self.course {
            Some(course) if course.met.number == number => course,
            other => other.insert(Course::new(self.context, number)),
        };
        let way = &mut self.slots.ways[at];
        let Ask { table, dst } = match course.plan(self.context, frame)? {
            Plan::Frame(sent) => return Some(Some(course.leave(counters, frame, &sent))),
            Plan::Step(step, target) => {
                let ask = course.behind_step(&step, target, frame)?;
                self.slots.steps[at] = step;
                way.by = By::Step;
                ask
            }
            Plan::Around(around) => {
                let ask = course.behind_around(&around)?;
                self.slots.arounds[at] = around;
                way.by = By::Around;
                ask
            }
        };
        self.slots.met[at] = course.met;
        self.detours |= 1 << at;
        let (of, lookups) = &mut self.slots.again;
        if lookups.count == 0 {
            *of = table;
        }
        way.value = if *of == table {
            lookups.push(dst, at);
            LOOKED_UP_AGAIN
        } else {
            self.context.memory.route6(table, dst)
        };
        Some(None)
    }

    /// Rule S7.2, and for which frames.
    pub(crate) fn look_up_again(&mut self) -> Frames {
        let (table, lookups) = &mut self.slots.again;
        lookups.look_up(self.context.memory, *table);
        Frames(self.detours)
    }

    /// Rules S7.4 to S7.6 and S9.6, as far as the hash; where no hash chooses, all of them.
    #[inline(always)]
    pub(crate) fn collect_again(
        &mut self,
        (keys, counters): (&mut KeyBatch, &mut Counters),
        at: usize,
        buffer: &mut [u8],
        range: Range<usize>,
    ) -> Option<Sent> {
        let way = &self.slots.ways[at];
        let (by, family, len) = (way.by, way.family, way.len as usize);
        let value = match way.value {
            LOOKED_UP_AGAIN => self.slots.again.1.value(at),
            value => value,
        };
        let group = self.group(value);
        let mut frame = Frame {
            buffer,
            range,
            family,
            len,
        };
        let met = self.slots.met[at];
        let sent = match group {
            Group::Single(number) | Group::Neighbour(number) => match by {
                By::Step => reach(self.context, number, len).ok().map(|chosen| {
                    self.slots.steps[at].take(frame.l3_mut());
                    send_step(&mut frame, &chosen)
                }),
                By::Around => {
                    let around = &self.slots.arounds[at];
                    let chosen = reach(self.context, number, around.len()).ok();
                    chosen.map(|chosen| send_around(self.context, around, &mut frame, &chosen))
                }
                _ => None,
            },
            Group::Threshold { how, .. } => {
                let way = &mut self.slots.ways[at];
                way.value = value;
                way.group = group;
                if self.key_again((keys, how), at, &mut frame).is_ok() {
                    return None;
                }
                None
            }
            _ => None,
        };
        if sent.is_some() {
            met.count(counters, len);
            self.here &= !(1 << at);
        } else {
            self.slots.ways[at].ends(Stop::Segment(met.number));
        }
        sent
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
        self.slots.steps[at].take(frame.l3_mut());
        let collected = self.key(keys, how, at, frame);
        if collected.is_err() {
            self.slots.steps[at].take_back(frame.l3_mut());
        }
        collected
    }

    /// The hashes of what was collected; and which frames have not left.
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
                let of = (met, &slots.steps[at]);
                depart_step(context, parts, of, (to, hash31), &mut frame)
            }
            By::Around => {
                let of = (met, &slots.arounds[at]);
                depart_around(context, parts, of, (to, hash31), &mut frame)
            }
            By::Route => {
                let chosen = choose(context, state, to, hash31, frame.len);
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
