//! IPv4: the reader. No lock, no allocation, any thread.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use super::layout::{CHILD, CHILD_WIDTH, PAIR, STRIDE, UNIT, WIDTHS, pair_value, widen};
use crate::{Memory4, Value};

/// Addresses that a batch keeps under way at once.
const LANES: usize = 64;

/// The value of the longest prefix that covers `addr` (host order), or 0 when there is none.
///
/// A table that does not exist is empty. One memory read in a wide or full table, or two where a /19
/// has more than two values, and for each level of prefixes longer than /24 (or in a small table, /8
/// or /16) two more.
#[inline]
pub fn lookup4<M: Memory4 + ?Sized>(memory: &M, table: u32, addr: u32) -> Value {
    Walk::new(memory, table).map_or(0, |walk| walk.lookup(addr))
}

/// Looks up many addresses (host order) at once: `values[i]` becomes the answer to `addrs[i]`.
///
/// Several times as fast as one at a time, since the memory reads of up to 64 lookups overlap.
/// Where the two slices differ in length, the longer one's rest is left alone.
pub fn lookup4_batch<M: Memory4 + ?Sized>(
    memory: &M,
    table: u32,
    addrs: &[u32],
    values: &mut [Value],
) {
    let n = addrs.len().min(values.len());
    let (addrs, values) = (&addrs[..n], &mut values[..n]);
    match Walk::new(memory, table) {
        Some(walk) => walk.lookup_all(addrs, values),
        None => values.fill(0),
    }
}

/// A table's root with the arrays that lookups go through.
#[derive(Clone, Copy)]
struct Walk<'a> {
    nodes: &'a [AtomicU64],
    narrow: &'a [AtomicU16],
    wide: &'a [AtomicU32],
    first: usize,
    /// How far an address is moved down to be the index of a node of the root.
    shift: u32,
}

impl<'a> Walk<'a> {
    #[inline]
    fn new<M: Memory4 + ?Sized>(memory: &'a M, table: u32) -> Option<Walk<'a>> {
        let root = memory.roots().words().get(table as usize)?.load(Acquire);
        let width = root as u8;
        if !WIDTHS.contains(&width) {
            return None;
        }
        Some(Walk {
            nodes: memory.nodes().words(),
            narrow: memory.leaves().quarters(),
            wide: memory.leaves().halves(),
            first: (root >> 8) as usize,
            shift: 32 - u32::from(width),
        })
    }

    #[inline(always)]
    fn node(&self, index: usize) -> u64 {
        // A node out of range cannot be published; it would be one that answers 0.
        self.nodes.get(index).map_or(0, |node| node.load(Acquire))
    }

    /// The entry that a node has for slot `bit`.
    #[inline(always)]
    fn entry(&self, node: u64, bit: u32) -> u32 {
        if node & PAIR != 0 {
            return pair_value(node, bit);
        }
        let bitmap = node as u32;
        let base = (node >> 32) as usize;
        let rank = ((bitmap | 1) & (u32::MAX >> (31 - bit))).count_ones() as usize - 1;
        if bitmap & 1 != 0 {
            let leaf = self.narrow.get(base + rank);
            widen(leaf.map_or(0, |leaf| leaf.load(Relaxed)))
        } else {
            let leaf = self.wide.get(base / 2 + rank);
            leaf.map_or(0, |leaf| leaf.load(Relaxed))
        }
    }

    #[inline(always)]
    fn lookup(&self, addr: u32) -> Value {
        let node = self.node(self.first + (addr >> self.shift) as usize);
        let shift = self.shift - u32::from(STRIDE);
        self.descend(self.entry(node, addr >> shift & 31), addr, shift)
    }

    /// Follows an entry to its value; `shift` is the number of address bits below it.
    #[inline(always)]
    fn descend(&self, mut entry: u32, addr: u32, mut shift: u32) -> Value {
        // `shift` is 24, 16, 8 or 0, and the writer puts no child at the end.
        while entry & CHILD != 0 && shift >= 8 {
            let block = (entry & !CHILD) as usize * UNIT as usize;
            shift -= u32::from(CHILD_WIDTH);
            let node = self.node(block + (addr >> shift & 7) as usize);
            shift -= u32::from(STRIDE);
            entry = self.entry(node, addr >> shift & 31);
        }
        entry & !CHILD
    }

    fn lookup_all(&self, addrs: &[u32], values: &mut [Value]) {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("popcnt") && std::is_x86_feature_detected!("bmi2") {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { self.lookup_all_popcnt(addrs, values) };
        }
        self.lookup_all_here(addrs, values);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "popcnt,bmi1,bmi2")]
    fn lookup_all_popcnt(&self, addrs: &[u32], values: &mut [Value]) {
        self.lookup_all_here(addrs, values);
    }

    /// Reads all nodes, then all leaves: reads that do not wait for each other overlap.
    #[inline(always)]
    fn lookup_all_here(&self, addrs: &[u32], values: &mut [Value]) {
        let shift = self.shift - u32::from(STRIDE);
        let mut nodes = [0u64; LANES];
        for (addrs, values) in addrs.chunks(LANES).zip(values.chunks_mut(LANES)) {
            for (node, addr) in nodes.iter_mut().zip(addrs) {
                *node = self.node(self.first + (addr >> self.shift) as usize);
            }
            let mut deeper = 0;
            for ((value, addr), node) in values.iter_mut().zip(addrs).zip(nodes) {
                *value = self.entry(node, addr >> shift & 31);
                deeper |= *value;
            }
            if deeper & CHILD != 0 {
                for (value, addr) in values.iter_mut().zip(addrs) {
                    *value = self.descend(*value, *addr, shift);
                }
            }
        }
    }
}
