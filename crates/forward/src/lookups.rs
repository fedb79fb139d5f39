//! Look-ups of a vector: those in one table, done together.

use raddle_fib::{lookup4_batch, lookup6_batch};
use raddle_image::Memory;
use raddle_select::KeyBatch;

/// Frames that are under way at once.
pub const VECTOR: usize = KeyBatch::ROOM;

/// Addresses of one family in one table. Those that are the same as the one before are looked up with it.
#[derive(Debug)]
pub(crate) struct Lookups<A> {
    /// Addresses so far.
    count: usize,
    /// Of [`Lookups::addresses`].
    last: A,
    addresses: [A; VECTOR],
}

impl<A: Copy + Eq> Lookups<A> {
    pub(crate) fn new(zero: A) -> Lookups<A> {
        Lookups {
            count: 0,
            last: zero,
            addresses: [zero; VECTOR],
        }
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    /// The place of the address's value.
    #[inline(always)]
    pub(crate) fn push(&mut self, address: A) -> u8 {
        let count = self.count;
        if count == 0 || self.last != address {
            self.last = address;
            self.addresses[count] = address;
            self.count = count + 1;
        }
        (self.count - 1) as u8
    }
}

impl Lookups<u128> {
    #[inline]
    pub(crate) fn look_up(&self, memory: &Memory, table: u32, values: &mut [u32; VECTOR]) {
        let n = self.count;
        match n {
            0 => {}
            1 => values[0] = memory.route6(table, self.addresses[0]),
            _ => lookup6_batch(memory, table, &self.addresses[..n], values),
        }
    }
}

impl Lookups<u32> {
    #[inline]
    pub(crate) fn look_up(&self, memory: &Memory, table: u32, values: &mut [u32; VECTOR]) {
        lookup4_batch(memory, table, &self.addresses[..self.count], values);
    }
}
