//! Several frames of one link, step by step: each step is done for all of them before the next.
//!
//! Memory is read for all before anything waits for it, and everything that is hashed is hashed at once
//! ([`KeyBatch`]). Nothing else differs from frame after frame: what depends on the frames before
//! (turns, flowlets, buckets that are shown to the kernel) comes last and in the order of the frames.

use std::ops::Range;

use raddle_packet::Family;
use raddle_rib::Reason;
use raddle_rib::image::Group;
use raddle_select::{HashConfig, Hasher, KeyBatch};

use crate::arrive::family;
use crate::choose::{choose, hashed_by, hashing};
use crate::context::{Context, Passed, Sent, Stop};
use crate::counters::Counters;
use crate::detour::{Ask, Course, Detour, Frame};
use crate::lookups::{Lookups, VECTOR};
use crate::rewrite::ETHERNET;
use crate::state::State;
use crate::{ipv4, ipv6};

/// In the place of a group's number, of which there are far fewer: [`Vector::again`] has it.
const LOOKED_UP_AGAIN: u32 = u32::MAX;
const _: () = assert!(VECTOR <= 64, "a bit for each");

/// What a frame is under way by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// It is not: [`Way::stop`] says why.
    Nothing,
    /// It has been sent.
    Sent,
    Route,
    /// The segment in [`Vector::detours`].
    Detour,
}

/// How far a frame has come. Each part is written by itself where it becomes known: what is put together
/// first and copied then has to wait for its parts.
#[derive(Clone, Copy)]
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
    #[inline(always)]
    fn ends(&mut self, stop: Stop) {
        self.by = By::Nothing;
        self.stop = stop;
    }
}

/// Frames of one link, at most [`VECTOR`]. The steps are to be called in the order in which they stand
/// here, each for all frames.
pub(crate) struct Vector<'a> {
    context: &'a Context<'a>,
    ways: [Way; VECTOR],
    lookups4: Lookups<u32>,
    lookups6: Lookups<u128>,
    /// By frame; what those have that are on a detour.
    detours: [Option<Detour>; VECTOR],
    /// Behind segments, in table `.0`.
    again: (u32, Lookups<u128>),
    /// The segment and the group that were read last.
    course: Option<Course>,
    group: (u32, Group),
    hashes: [u32; VECTOR],
    /// A bit for each frame that is none.
    refused: u64,
}

impl<'a> Vector<'a> {
    #[inline(always)]
    pub(crate) fn new(context: &'a Context<'a>) -> Vector<'a> {
        Vector {
            context,
            ways: [Way {
                by: By::Nothing,
                family: Family::V6,
                len: 0,
                value: 0,
                group: Group::Kernel(Reason::NoRoute),
                stop: Stop::Reason(Reason::Held),
            }; VECTOR],
            lookups4: Lookups::new(0),
            lookups6: Lookups::new(0),
            detours: [None; VECTOR],
            again: (0, Lookups::new(0)),
            course: None,
            group: (0, context.memory.group(0)),
            hashes: [0; VECTOR],
            refused: 0,
        }
    }

    /// Of a frame that its buffer does not hold.
    #[cold]
    pub(crate) fn refuse(&mut self, at: usize) {
        self.ways[at].ends(Reason::Truncated.into());
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
                let way = &mut self.ways[at];
                way.by = By::Route;
                way.family = family;
                way.len = len as u32;
            }
            Err(reason) => self.ways[at].ends(reason.into()),
        }
    }

    #[inline(always)]
    fn checked(&mut self, at: usize, frame: &[u8]) -> Result<(Family, usize), Reason> {
        let family = family(frame, &self.context.link)?;
        let len = match family {
            Family::V4 => {
                let Passed { len, dst } = ipv4::check(self.context, frame)?;
                self.lookups4.push(dst, at);
                len
            }
            Family::V6 => {
                let Passed { len, dst } = ipv6::check(self.context, frame)?;
                self.lookups6.push(dst, at);
                len
            }
        };
        Ok((family, len))
    }

    /// Step A8 (B6).
    pub(crate) fn look_up(&mut self) {
        let (memory, link) = (self.context.memory, &self.context.link);
        self.lookups4.look_up(memory, link.table4);
        self.lookups6.look_up(memory, link.table6);
    }

    #[inline(always)]
    fn group(&mut self, value: u32) -> Group {
        if self.group.0 != value {
            self.group = (value, self.context.memory.group(value));
        }
        self.group.1
    }

    /// Steps A9 and A10 (B7 and B8), what is to be hashed for A11 (B9), and what a segment will do. What a
    /// segment sends without a look-up is sent at once.
    #[inline(always)]
    pub(crate) fn collect(
        &mut self,
        (keys, counters): (&mut KeyBatch, &mut Counters),
        at: usize,
        buffer: &mut [u8],
        range: Range<usize>,
    ) -> Option<Sent> {
        if self.ways[at].by == By::Nothing {
            return None;
        }
        match self.collected((keys, counters), at, (buffer, range)) {
            Ok(sent) => sent,
            Err(stop) => {
                self.ways[at].ends(stop);
                None
            }
        }
    }

    #[inline(always)]
    fn collected(
        &mut self,
        (keys, counters): (&mut KeyBatch, &mut Counters),
        at: usize,
        (buffer, range): (&mut [u8], Range<usize>),
    ) -> Result<Option<Sent>, Stop> {
        let (family, len) = (self.ways[at].family, self.ways[at].len as usize);
        let value = match family {
            Family::V4 => self.lookups4.value(at),
            Family::V6 => self.lookups6.value(at),
        };
        let group = self.group(value);
        self.ways[at].value = value;
        self.ways[at].group = group;
        if let Group::Segment(number) = group {
            let frame = Frame {
                buffer,
                range,
                family,
                len,
            };
            let plans = self.detour(counters, at, number, &frame);
            return plans.ok_or(Stop::Segment(number));
        }
        let frame = &buffer[range];
        match family {
            Family::V4 => ipv4::check_group(frame, group)?,
            Family::V6 => ipv6::check_group(frame, group)?,
        }
        if let Some(how) = hashed_by(group) {
            let hashing = hashing(self.context, how, family)?;
            let l3 = &frame[ETHERNET..ETHERNET + len];
            key(&mut self.hashes[at], keys, hashing, (family, l3), at)?;
        }
        Ok(None)
    }

    /// What the segment will do, or what it sends at once. None: it is not one of the common cases.
    #[inline(never)]
    fn detour(
        &mut self,
        counters: &mut Counters,
        at: usize,
        number: u32,
        frame: &Frame<'_>,
    ) -> Option<Option<Sent>> {
        let course = match &mut self.course {
            Some(course) if course.number == number => course,
            other => other.insert(Course::new(self.context, number)),
        };
        let (detour, ask) = Detour::new(self.context, course, frame)?;
        let way = &mut self.ways[at];
        let Some(Ask { table, dst }) = ask else {
            way.by = By::Sent;
            return Some(detour.leave(counters, frame));
        };
        self.detours[at] = Some(detour);
        way.by = By::Detour;
        let (of, lookups) = &mut self.again;
        if lookups.count == 0 {
            *of = table;
        }
        way.value = if *of == table {
            lookups.push(dst, at);
            LOOKED_UP_AGAIN
        } else {
            let value = self.context.memory.route6(table, dst);
            way.group = self.context.memory.group(value);
            value
        };
        Some(None)
    }

    /// Rule S7.2, and whether there is anything more to collect.
    pub(crate) fn look_up_again(&mut self) -> bool {
        let (table, lookups) = &mut self.again;
        lookups.look_up(self.context.memory, *table);
        lookups.count > 0
    }

    /// Rules S7.4 to S7.6 and S9.6, as far as the hash; where no hash chooses, all of them.
    #[inline(always)]
    pub(crate) fn collect_again(
        &mut self,
        (keys, state, counters): (&mut KeyBatch, &mut State, &mut Counters),
        at: usize,
        buffer: &mut [u8],
        range: Range<usize>,
    ) -> Option<Sent> {
        let way = &mut self.ways[at];
        if way.by != By::Detour {
            return None;
        }
        let detour = self.detours[at].as_ref()?;
        if way.value == LOOKED_UP_AGAIN {
            let value = self.again.1.value(at);
            if self.group.0 != value {
                self.group = (value, self.context.memory.group(value));
            }
            (way.value, way.group) = (value, self.group.1);
        }
        let (family, to) = (way.family, (way.value, way.group));
        let mut frame = Frame {
            buffer,
            range,
            family,
            len: way.len as usize,
        };
        let stop = Stop::Segment(detour.number());
        if !detour.turn(to.1, &mut frame) {
            way.ends(stop);
            return None;
        }
        let Some(hashing) = detour.hashing(self.context, to.1, family) else {
            let sent = detour.depart(self.context, (state, counters), to, 0, &mut frame);
            match sent {
                Some(_) => way.by = By::Sent,
                None => way.ends(stop),
            }
            return sent;
        };
        let key = hashing.and_then(|hashing| {
            let l3 = frame.l3();
            key(&mut self.hashes[at], keys, hashing, (family, l3), at)
        });
        if key.is_err() {
            detour.give_up(&mut frame);
            way.ends(stop);
        }
        None
    }

    /// Whether it has been sent.
    #[inline(always)]
    pub(crate) fn is_sent(&self, at: usize) -> bool {
        self.ways[at].by == By::Sent
    }

    /// The hashes of what was collected.
    pub(crate) fn hash(&mut self, keys: &mut KeyBatch) {
        if let Some(hasher) = self.context.hasher {
            hasher.hash31_all(keys, &mut self.hashes);
        }
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
        } = self.ways[at];
        let len = len as usize;
        if by == By::Nothing {
            return Err((stop, false));
        }
        let to = (value, group);
        if by == By::Detour
            && let Some(detour) = &self.detours[at]
        {
            let mut frame = Frame {
                buffer,
                range,
                family,
                len,
            };
            let parts = (state, counters);
            let sent = detour.depart(self.context, parts, to, self.hashes[at], &mut frame);
            return sent.ok_or((Stop::Segment(detour.number()), false));
        }
        let chosen = choose(self.context, state, to, self.hashes[at], len);
        let chosen = chosen.map_err(|stop| (stop, true))?;
        let start = range.start;
        let frame = &mut buffer[range];
        Ok(match family {
            Family::V4 => ipv4::send(frame, start, len, &chosen),
            Family::V6 => ipv6::send(frame, start, len, &chosen),
        })
    }
}

#[inline(always)]
fn key(
    hash31: &mut u32,
    keys: &mut KeyBatch,
    (hasher, config): (&Hasher, HashConfig),
    (family, l3): (Family, &[u8]),
    at: usize,
) -> Result<(), Reason> {
    let hashed = hasher.collect(keys, &config, family, l3, at as u8);
    if let Some(hashed) = hashed.map_err(|_| Reason::HashPolicy)? {
        *hash31 = hashed;
    }
    Ok(())
}
