//! Several frames of one link, step by step: each step is done for all of them before the next.
//!
//! Memory is read for all before anything waits for it, and everything that is hashed is hashed at once
//! ([`KeyBatch`]). Nothing else differs from frame after frame: what depends on the frames before
//! (turns, flowlets, buckets that are shown to the kernel) comes last and in the order of the frames.

use std::ops::Range;

use raddle_fib::{lookup4_batch, lookup6_batch};
use raddle_packet::Family;
use raddle_rib::Reason;
use raddle_rib::image::{Group, Memory, Segment};
use raddle_select::{HashConfig, Hasher, KeyBatch};

use crate::choose::{choose, hashed_by, hashing};
use crate::counters::Counters;
use crate::detour::{Ask, Detour, Frame};
use crate::engine::{Context, Passed, Verdict, family};
use crate::rewrite::ETHERNET;
use crate::srv6::Stop;
use crate::state::State;
use crate::{ipv4, ipv6};

/// Frames that are under way at once.
pub const VECTOR: usize = KeyBatch::ROOM;
/// In the place of a group's number, of which there are far fewer: [`Vector::again`] has it.
const LOOKED_UP_AGAIN: u32 = u32::MAX;
const _: () = assert!(VECTOR <= 64, "a bit for each");

/// How far a frame has come.
#[derive(Clone, Copy)]
struct Way {
    family: Family,
    /// Whether it has a segment on its way ([`Vector::detours`]).
    detours: bool,
    /// Of the packet from its IP header on.
    len: u32,
    /// The group's number.
    value: u32,
    group: Group,
}

/// Addresses of one family in one table, and whose they are. Those that are the same as the one before are
/// looked up with it.
struct Lookups<A> {
    count: usize,
    addresses: [A; VECTOR],
    values: [u32; VECTOR],
    /// By frame.
    place: [u8; VECTOR],
}

impl<A: Copy + Eq> Lookups<A> {
    fn new(zero: A) -> Lookups<A> {
        Lookups {
            count: 0,
            addresses: [zero; VECTOR],
            values: [0; VECTOR],
            place: [0; VECTOR],
        }
    }

    #[inline(always)]
    fn push(&mut self, address: A, at: usize) {
        let count = self.count;
        if count == 0 || self.addresses[count - 1] != address {
            self.addresses[count] = address;
            self.count = count + 1;
        }
        self.place[at] = (self.count - 1) as u8;
    }

    #[inline(always)]
    fn value(&self, at: usize) -> u32 {
        self.values[usize::from(self.place[at]) % VECTOR]
    }
}

impl Lookups<u128> {
    #[inline]
    fn look_up(&mut self, memory: &Memory, table: u32) {
        let n = self.count;
        match n {
            0 => {}
            1 => self.values[0] = memory.route6(table, self.addresses[0]),
            _ => lookup6_batch(memory, table, &self.addresses[..n], &mut self.values),
        }
    }
}

/// Frames of one link, at most [`VECTOR`]. The steps are to be called in the order in which they stand
/// here, each for all frames.
pub(crate) struct Vector<'a> {
    context: &'a Context<'a>,
    ways: [Result<Way, Stop>; VECTOR],
    lookups4: Lookups<u32>,
    lookups6: Lookups<u128>,
    /// By frame; what those have that are on a detour.
    detours: [Option<Detour>; VECTOR],
    /// Behind segments, in table `.0`.
    again: (u32, Lookups<u128>),
    /// The segment and the group that were read last.
    segment: (u32, Segment),
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
            ways: [Err(Stop::Reason(Reason::Held)); VECTOR],
            lookups4: Lookups::new(0),
            lookups6: Lookups::new(0),
            detours: [None; VECTOR],
            again: (0, Lookups::new(0)),
            segment: (u32::MAX, Segment::default()),
            group: (0, context.memory.group(0)),
            hashes: [0; VECTOR],
            refused: 0,
        }
    }

    /// Of a frame that its buffer does not hold.
    #[cold]
    pub(crate) fn refuse(&mut self, at: usize) {
        self.ways[at] = Err(Reason::Truncated.into());
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
        self.ways[at] = self.checked(at, frame).map_err(Stop::Reason);
    }

    #[inline(always)]
    fn checked(&mut self, at: usize, frame: &[u8]) -> Result<Way, Reason> {
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
        Ok(Way {
            family,
            detours: false,
            len: len as u32,
            value: 0,
            group: Group::Kernel(Reason::NoRoute),
        })
    }

    /// Step A8 (B6).
    pub(crate) fn look_up(&mut self) {
        let (memory, link) = (self.context.memory, &self.context.link);
        let Lookups {
            count,
            addresses,
            values,
            ..
        } = &mut self.lookups4;
        lookup4_batch(memory, link.table4, &addresses[..*count], values);
        self.lookups6.look_up(memory, link.table6);
    }

    #[inline(always)]
    fn group(&mut self, value: u32) -> Group {
        if self.group.0 != value {
            self.group = (value, self.context.memory.group(value));
        }
        self.group.1
    }

    /// Steps A9 and A10 (B7 and B8), what is to be hashed for A11 (B9), and what a segment will do.
    #[inline(always)]
    pub(crate) fn collect(
        &mut self,
        keys: &mut KeyBatch,
        at: usize,
        buffer: &mut [u8],
        range: Range<usize>,
    ) {
        if let Ok(way) = self.ways[at] {
            self.ways[at] = self.collected(keys, at, (buffer, range), way);
        }
    }

    #[inline(always)]
    fn collected(
        &mut self,
        keys: &mut KeyBatch,
        at: usize,
        (buffer, range): (&mut [u8], Range<usize>),
        way: Way,
    ) -> Result<Way, Stop> {
        let value = match way.family {
            Family::V4 => self.lookups4.value(at),
            Family::V6 => self.lookups6.value(at),
        };
        let group = self.group(value);
        let way = Way {
            value,
            group,
            ..way
        };
        if let Group::Segment(number) = group {
            return self.detour(at, number, (buffer, range), way);
        }
        let frame = &buffer[range];
        match way.family {
            Family::V4 => ipv4::check_group(frame, group)?,
            Family::V6 => ipv6::check_group(frame, group)?,
        }
        if let Some(how) = hashed_by(group) {
            let hashing = hashing(self.context, how, way.family)?;
            let l3 = &frame[ETHERNET..ETHERNET + way.len as usize];
            self.key(keys, hashing, way.family, l3, at)?;
        }
        Ok(way)
    }

    #[inline(always)]
    fn key(
        &mut self,
        keys: &mut KeyBatch,
        (hasher, config): (&Hasher, HashConfig),
        family: Family,
        l3: &[u8],
        at: usize,
    ) -> Result<(), Reason> {
        let hash31 = hasher.collect(keys, &config, family, l3, at as u8);
        if let Some(hash31) = hash31.map_err(|_| Reason::HashPolicy)? {
            self.hashes[at] = hash31;
        }
        Ok(())
    }

    #[inline(never)]
    fn detour(
        &mut self,
        at: usize,
        number: u32,
        (buffer, range): (&mut [u8], Range<usize>),
        way: Way,
    ) -> Result<Way, Stop> {
        if self.segment.0 != number {
            self.segment = (number, self.context.memory.segment(number));
        }
        let frame = Frame {
            buffer,
            range,
            family: way.family,
            len: way.len as usize,
        };
        let segment = (number, &self.segment.1);
        let detour = Detour::new(self.context, segment, &frame);
        let (detour, ask) = detour.ok_or(Stop::Segment(number))?;
        self.detours[at] = Some(detour);
        let mut way = Way {
            detours: true,
            value: 0,
            group: Group::Kernel(Reason::NoRoute),
            ..way
        };
        if let Some(Ask { table, dst }) = ask {
            let (of, lookups) = &mut self.again;
            if lookups.count == 0 {
                *of = table;
            }
            if *of == table {
                lookups.push(dst, at);
                way.value = LOOKED_UP_AGAIN;
            } else {
                way.value = self.context.memory.route6(table, dst);
                way.group = self.context.memory.group(way.value);
            }
        }
        Ok(way)
    }

    /// Rule S7.2, and whether there is anything more to collect.
    pub(crate) fn look_up_again(&mut self) -> bool {
        let (table, lookups) = &mut self.again;
        lookups.look_up(self.context.memory, *table);
        lookups.count > 0
    }

    /// Rules S7.4 to S7.6 and S9.6, as far as the hash.
    #[inline(always)]
    pub(crate) fn collect_again(
        &mut self,
        keys: &mut KeyBatch,
        at: usize,
        buffer: &mut [u8],
        range: Range<usize>,
    ) {
        let Ok(mut way) = self.ways[at] else {
            return;
        };
        if !way.detours {
            return;
        }
        let Some(detour) = self.detours[at] else {
            return;
        };
        if !detour.asks() {
            return;
        }
        if way.value == LOOKED_UP_AGAIN {
            way.value = self.again.1.value(at);
            way.group = self.group(way.value);
            self.ways[at] = Ok(way);
        }
        let mut frame = Frame {
            buffer,
            range,
            family: way.family,
            len: way.len as usize,
        };
        if !detour.turn(way.group, &mut frame) {
            self.ways[at] = Err(Stop::Segment(detour.number()));
            return;
        }
        let Some(hashing) = detour.hashing(self.context, way.group, way.family) else {
            return;
        };
        let key = hashing.and_then(|hashing| {
            let l3 = frame.l3();
            self.key(keys, hashing, way.family, l3, at)
        });
        if key.is_err() {
            detour.give_up(&mut frame);
            self.ways[at] = Err(Stop::Segment(detour.number()));
        }
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
    ) -> Result<Verdict, (Stop, bool)> {
        let way = self.ways[at].map_err(|stop| (stop, false))?;
        let to = (way.value, way.group);
        let len = way.len as usize;
        if way.detours
            && let Some(detour) = &self.detours[at]
        {
            let mut frame = Frame {
                buffer,
                range,
                family: way.family,
                len,
            };
            let parts = (state, counters);
            let verdict = detour.depart(self.context, parts, to, self.hashes[at], &mut frame);
            return verdict.ok_or((Stop::Segment(detour.number()), false));
        }
        let chosen = choose(self.context, state, to, self.hashes[at], len);
        let chosen = chosen.map_err(|stop| (stop, true))?;
        let start = range.start;
        let frame = &mut buffer[range];
        Ok(match way.family {
            Family::V4 => ipv4::send(frame, start, len, &chosen),
            Family::V6 => ipv6::send(frame, start, len, &chosen),
        })
    }
}
