//! Look-ups of a vector: those in one table, done together.

use raddle_fib::{lookup4_batch, lookup6_batch};
use raddle_rib::image::Memory;
use raddle_select::KeyBatch;

/// Frames that are under way at once.
pub const VECTOR: usize = KeyBatch::ROOM;

/// Addresses of one family in one table, and whose they are. Those that are the same as the one before are
/// looked up with it.
#[derive(Debug)]
pub(crate) struct Lookups<A> {
    /// Addresses so far.
    pub(crate) count: usize,
    addresses: [A; VECTOR],
    values: [u32; VECTOR],
    /// By frame.
    place: [u8; VECTOR],
}

impl<A: Copy + Eq> Lookups<A> {
    pub(crate) fn new(zero: A) -> Lookups<A> {
        Lookups {
            count: 0,
            addresses: [zero; VECTOR],
            values: [0; VECTOR],
            place: [0; VECTOR],
        }
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, address: A, at: usize) {
        let count = self.count;
        if count == 0 || self.addresses[count - 1] != address {
            self.addresses[count] = address;
            self.count = count + 1;
        }
        self.place[at] = (self.count - 1) as u8;
    }

    #[inline(always)]
    pub(crate) fn value(&self, at: usize) -> u32 {
        self.values[usize::from(self.place[at]) % VECTOR]
    }
}

impl Lookups<u128> {
    #[inline]
    pub(crate) fn look_up(&mut self, memory: &Memory, table: u32) {
        let n = self.count;
        match n {
            0 => {}
            1 => self.values[0] = memory.route6(table, self.addresses[0]),
            _ => lookup6_batch(memory, table, &self.addresses[..n], &mut self.values),
        }
    }
}

impl Lookups<u32> {
    #[inline]
    pub(crate) fn look_up(&mut self, memory: &Memory, table: u32) {
        lookup4_batch(
            memory,
            table,
            &self.addresses[..self.count],
            &mut self.values,
        );
    }
}
