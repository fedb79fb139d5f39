//! IPv6: the reader. No lock, no allocation, any thread.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use super::hosts::{Host, LINE_SLOTS, MAX_LINES, Slot, first_line, line_of};
use super::layout::{Entry, POINTER, block_entries};
use crate::{Memory6, Value};

/// Addresses that a batch keeps under way at once.
const LANES: usize = 32;
/// Entries on the longest way: 16 bits each, or more.
const LEVELS: usize = 8;

/// The value of the longest prefix that covers `addr` (host order), or 0 when there is none.
///
/// A table that does not exist is empty. At most one step for every 16 bits of the longest prefix
/// around; bits that lead to one place only are one step together.
#[inline]
pub fn lookup6<M: Memory6 + ?Sized>(memory: &M, table: u32, addr: u128) -> Value {
    let walk = Walk::new(memory);
    let (mut entry, mut rest) = (walk.root(memory, table), addr);
    for _ in 0..LEVELS {
        if entry & POINTER == 0 {
            break;
        }
        entry = walk.step(entry, &mut rest);
    }
    answer(entry)
}

/// Looks up many addresses (host order) at once: `values[i]` becomes the answer to `addrs[i]`.
///
/// Faster than one at a time, since the memory reads of up to 32 lookups overlap. Where the two
/// slices differ in length, the longer one's rest is left alone.
pub fn lookup6_batch<M: Memory6 + ?Sized>(
    memory: &M,
    table: u32,
    addrs: &[u128],
    values: &mut [Value],
) {
    let n = addrs.len().min(values.len());
    let (addrs, values) = (&addrs[..n], &mut values[..n]);
    let walk = Walk::new(memory);
    let root = walk.root(memory, table);
    walk.lookup_all(root, addrs, values);
}

/// A way that does not end is one that no writer makes.
#[inline(always)]
fn answer(entry: u32) -> Value {
    if entry & POINTER == 0 { entry } else { 0 }
}

/// The arrays that lookups go through.
#[derive(Clone, Copy)]
struct Walk<'a> {
    words: &'a [AtomicU64],
    halves: &'a [AtomicU32],
    quarters: &'a [AtomicU16],
}

impl<'a> Walk<'a> {
    #[inline(always)]
    fn new<M: Memory6 + ?Sized>(memory: &'a M) -> Walk<'a> {
        let region = memory.words();
        Walk {
            words: region.words(),
            halves: region.halves(),
            quarters: region.quarters(),
        }
    }

    #[inline(always)]
    fn root<M: Memory6 + ?Sized>(&self, memory: &M, table: u32) -> u32 {
        let word = memory.roots().words().get(table as usize);
        word.map_or(0, |word| word.load(Acquire) as u32)
    }

    /// Places out of range cannot be published; they would be answered with 0.
    #[inline(always)]
    fn word(&self, at: usize) -> u64 {
        self.words.get(at).map_or(0, |word| word.load(Acquire))
    }

    #[inline(always)]
    fn half(&self, at: usize) -> u32 {
        self.halves.get(at).map_or(0, |half| half.load(Acquire))
    }

    #[inline(always)]
    fn quarter(&self, at: usize) -> u16 {
        self.quarters.get(at).map_or(0, |cell| cell.load(Acquire))
    }

    /// What an entry says about the next bits, and those behind.
    #[inline(always)]
    fn step(&self, entry: u32, rest: &mut u128) -> u32 {
        let (high, low) = ((*rest >> 64) as u64, *rest as u64);
        if let Entry::Compare(at, long) = Entry::parse(entry) {
            let (first, word) = (self.word(at), self.word(at + 1));
            let past = word as u32 & 63;
            let differ = if long {
                *rest <<= 64;
                (high ^ first) | (low ^ self.word(at + 2)) >> past
            } else {
                (high ^ first) >> past
            };
            *rest <<= 64 - past;
            return if differ == 0 {
                (word >> 32) as u32
            } else {
                word as u32 >> 6
            };
        }
        if let Entry::Hosts(at) = Entry::parse(entry) {
            return self.host(at, Host::of(*rest));
        }
        let key = (high >> 48) as u16;
        *rest <<= 16;
        match Entry::parse(entry) {
            Entry::Value(value) => value,
            // Told apart above.
            Entry::Compare(..) | Entry::Hosts(_) => 0,
            Entry::Direct(at) => self.half(2 * at + usize::from(key)),
            Entry::Rank(at) => {
                let node = self.word(at + usize::from(key >> 5));
                let upto = u32::MAX >> (31 - u32::from(key & 31));
                let rank = ((node as u32 | 1) & upto).count_ones();
                self.half((node >> 32) as usize + rank as usize - 1)
            }
            Entry::Block(at) => {
                let n = usize::from(self.quarter(4 * at)) + 1;
                self.half(2 * at + block_entries(n) + self.ends_below(4 * at + 1, n - 1, key))
            }
        }
    }

    /// The value of a host in the hash table at a word, or the table's answer for others.
    #[inline]
    fn host(&self, at: usize, host: Host) -> u32 {
        let head = self.word(at);
        let (lines, outside) = ((head >> 32) as u32, head as u32);
        let mut slot = first_line(at) + 2 * LINE_SLOTS * line_of(host, lines) as usize;
        for _ in 0..MAX_LINES * LINE_SLOTS {
            match Slot::of(self.word(slot + 1), || self.word(slot), host) {
                Slot::Other => slot += 2,
                Slot::Empty => return outside,
                Slot::Found(value) => return value.unwrap_or(outside),
            }
        }
        outside
    }

    /// How many of `n` ascending ends from `first` on are below `key`: a binary search whose
    /// number of steps depends on `n` only.
    #[inline(always)]
    fn ends_below(&self, first: usize, n: usize, key: u16) -> usize {
        let mut ends = self.quarters.get(first..first + n).unwrap_or(&[]);
        let mut below = 0;
        while ends.len() > 1 {
            let half = ends.len() / 2;
            // Both parts have one length, so that the number of steps does not depend on the key.
            let (low, high) = (&ends[..ends.len() - half], &ends[half..]);
            let up = ends[half - 1].load(Relaxed) < key;
            ends = if up { high } else { low };
            below += if up { half } else { 0 };
        }
        below + usize::from(ends.first().is_some_and(|end| end.load(Relaxed) < key))
    }

    fn lookup_all(&self, root: u32, addrs: &[u128], values: &mut [Value]) {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("popcnt") && std::is_x86_feature_detected!("bmi2") {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { self.lookup_all_popcnt(root, addrs, values) };
        }
        self.lookup_all_here(root, addrs, values);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "popcnt,bmi1,bmi2")]
    fn lookup_all_popcnt(&self, root: u32, addrs: &[u128], values: &mut [Value]) {
        self.lookup_all_here(root, addrs, values);
    }

    /// Takes all addresses one step on, then the next: reads that do not wait for each other
    /// overlap.
    #[inline(always)]
    fn lookup_all_here(&self, root: u32, addrs: &[u128], values: &mut [Value]) {
        for (addrs, values) in addrs.chunks(LANES).zip(values.chunks_mut(LANES)) {
            values.fill(root);
            let mut rests = [0; LANES];
            rests[..addrs.len()].copy_from_slice(addrs);
            for _ in 0..LEVELS {
                let mut deeper = 0;
                for (entry, rest) in values.iter_mut().zip(&mut rests) {
                    if *entry & POINTER != 0 {
                        *entry = self.step(*entry, rest);
                        deeper |= *entry;
                    }
                }
                if deeper & POINTER == 0 {
                    break;
                }
            }
            for value in values {
                *value = answer(*value);
            }
        }
    }
}
