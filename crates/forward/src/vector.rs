//! Several frames of one link, step by step: each step is done for all of them before the next.
//!
//! Memory is read for all before anything waits for it, and everything that is hashed is hashed at once
//! ([`KeyBatch`]). Nothing else differs from frame after frame: what depends on the frames before
//! (turns, flowlets, buckets that are shown to the kernel) comes last and in the order of the frames.

use raddle_fib::{lookup4_batch, lookup6_batch};
use raddle_packet::Family;
use raddle_rib::Reason;
use raddle_rib::image::Group;
use raddle_select::KeyBatch;

use crate::choose::{choose, hashed_by, hashing};
use crate::engine::{Context, Passed, Verdict, family};
use crate::rewrite::ETHERNET;
use crate::srv6::Stop;
use crate::state::State;
use crate::{ipv4, ipv6};

/// Frames that are under way at once.
pub const VECTOR: usize = KeyBatch::ROOM;

/// How far a frame has come.
#[derive(Clone, Copy)]
struct Way {
    family: Family,
    /// Of the packet from its IP header on.
    len: usize,
    /// The group's number.
    value: u32,
    group: Group,
}

/// Addresses of one family, and whose they are.
struct Lookups<A> {
    count: usize,
    addresses: [A; VECTOR],
    at: [u8; VECTOR],
}

impl<A: Copy> Lookups<A> {
    fn new(zero: A) -> Lookups<A> {
        Lookups {
            count: 0,
            addresses: [zero; VECTOR],
            at: [0; VECTOR],
        }
    }

    fn push(&mut self, address: A, at: usize) {
        self.addresses[self.count] = address;
        self.at[self.count] = at as u8;
        self.count += 1;
    }
}

/// Frames of one link, at most [`VECTOR`]. The steps are to be called in the order in which they stand
/// here, each for all frames.
pub(crate) struct Vector<'a> {
    context: &'a Context<'a>,
    ways: [Result<Way, Stop>; VECTOR],
    lookups4: Lookups<u32>,
    lookups6: Lookups<u128>,
    hashes: [u32; VECTOR],
}

impl<'a> Vector<'a> {
    pub(crate) fn new(context: &'a Context<'a>) -> Vector<'a> {
        Vector {
            context,
            ways: [Err(Stop::Reason(Reason::Held)); VECTOR],
            lookups4: Lookups::new(0),
            lookups6: Lookups::new(0),
            hashes: [0; VECTOR],
        }
    }

    /// Steps P3 to P5, A1 to A7, B1 to B5: everything up to the route.
    pub(crate) fn check(&mut self, at: usize, frame: &[u8]) {
        self.ways[at] = self.checked(at, frame).map_err(Stop::Reason);
    }

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
            len,
            value: 0,
            group: Group::Kernel(Reason::NoRoute),
        })
    }

    /// Step A8 (B6).
    pub(crate) fn look_up(&mut self) {
        let (memory, link) = (self.context.memory, &self.context.link);
        let mut values = [0; VECTOR];
        let n = self.lookups4.count;
        lookup4_batch(
            memory,
            link.table4,
            &self.lookups4.addresses[..n],
            &mut values,
        );
        self.ways_to(&values[..n], self.lookups4.at);
        let n = self.lookups6.count;
        lookup6_batch(
            memory,
            link.table6,
            &self.lookups6.addresses[..n],
            &mut values,
        );
        self.ways_to(&values[..n], self.lookups6.at);
    }

    fn ways_to(&mut self, values: &[u32], at: [u8; VECTOR]) {
        for (value, at) in values.iter().zip(at) {
            if let Ok(way) = &mut self.ways[usize::from(at)] {
                way.value = *value;
                way.group = self.context.memory.group(*value);
            }
        }
    }

    /// Steps A9 and A10 (B7 and B8), and what is to be hashed for A11 (B9).
    pub(crate) fn collect(&mut self, keys: &mut KeyBatch, at: usize, frame: &[u8]) {
        if let Ok(way) = self.ways[at]
            && let Err(stop) = self.collected(keys, at, frame, way)
        {
            self.ways[at] = Err(stop);
        }
    }

    fn collected(
        &mut self,
        keys: &mut KeyBatch,
        at: usize,
        frame: &[u8],
        way: Way,
    ) -> Result<(), Stop> {
        match way.family {
            Family::V4 => ipv4::check_group(frame, way.group)?,
            Family::V6 => ipv6::check_group(frame, way.group)?,
        }
        let Some(how) = hashed_by(way.group) else {
            return Ok(());
        };
        let (hasher, config) = hashing(self.context, how, way.family)?;
        let l3 = &frame[ETHERNET..ETHERNET + way.len];
        let hash31 = hasher.collect(keys, &config, way.family, l3, at as u8);
        if let Some(hash31) = hash31.map_err(|_| Reason::HashPolicy)? {
            self.hashes[at] = hash31;
        }
        Ok(())
    }

    /// The hashes of what was collected.
    pub(crate) fn hash(&mut self, keys: &mut KeyBatch) {
        if let Some(hasher) = self.context.hasher {
            hasher.hash31_all(keys, &mut self.hashes);
        }
    }

    /// Steps A11 to A13 (B9 and B10).
    pub(crate) fn send(
        &self,
        state: &mut State,
        at: usize,
        frame: &mut [u8],
    ) -> Result<Verdict, Stop> {
        let way = self.ways[at]?;
        let to = (way.value, way.group);
        let chosen = choose(self.context, state, to, self.hashes[at], way.len)?;
        Ok(match way.family {
            Family::V4 => ipv4::send(frame, way.len, &chosen),
            Family::V6 => ipv6::send(frame, way.len, &chosen),
        })
    }
}
