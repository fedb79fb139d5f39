//! IPv4 tables by brute force: obvious, slow, and independent of the `fib` crate; IPv6 tables by its writer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use raddle_fib::{Fib6, Prefix6};
use raddle_image::Memory;

/// A prefix with its value; the address is in host order and left-aligned.
pub type Route4 = (u32, u8, u32);
/// The same for IPv6.
pub type Route6 = (u128, u8, u32);

/// Longest match by looking at everything.
pub fn longest4(routes: &[Route4], address: u32) -> u32 {
    let matches = routes
        .iter()
        .filter(|&&(prefix, len, _)| len == 0 || (address ^ prefix) >> (32 - u32::from(len)) == 0);
    matches
        .max_by_key(|route| route.1)
        .map_or(0, |route| route.2)
}

/// Longest match by looking at everything.
pub fn longest6(routes: &[Route6], address: u128) -> u32 {
    let matches = routes
        .iter()
        .filter(|&&(prefix, len, _)| len == 0 || (address ^ prefix) >> (128 - u32::from(len)) == 0);
    matches
        .max_by_key(|route| route.1)
        .map_or(0, |route| route.2)
}

/// Writes IPv6 tables as the compiler does, the first one wide, from number 0 on.
pub fn write6(memory: &Arc<Memory>, tables: &[&[Route6]]) {
    let mut fib = Fib6::new(Arc::clone(memory), Box::new(|| {}));
    for (number, routes) in tables.iter().enumerate() {
        let table = match number {
            0 => fib.create_wide_table(),
            _ => fib.create_table(),
        };
        let table = table.unwrap();
        for &(addr, len, value) in *routes {
            let prefix = Prefix6::new(addr, len).unwrap();
            fib.insert(table, prefix, value).unwrap();
        }
    }
}

fn put(words: &[std::sync::atomic::AtomicU64], at: usize, value: u64) {
    words[at].store(value, Ordering::Relaxed);
}

/// Writes IPv4 tables into an image, one after the other.
pub struct Tables4<'a> {
    memory: &'a Memory,
    /// Next free node; a multiple of 8.
    node: usize,
    /// Next free leaf cell; even.
    cell: usize,
}

impl<'a> Tables4<'a> {
    /// None so far.
    pub fn new(memory: &'a Memory) -> Self {
        // Nothing at the very start, so that a forgotten base shows.
        Tables4 {
            memory,
            node: 8,
            cell: 2,
        }
    }

    /// Writes a table whose root covers `top` bits: 3, 11 or 19.
    pub fn table(&mut self, number: usize, top: u32, routes: &[Route4]) {
        let root = self.node;
        self.node += 1 << top;
        let shift = 32 - top - 5;
        for i in 0..1usize << top {
            let word = self.build((i as u32) << (32 - top), shift, routes);
            put(self.memory.nodes4.words(), root + i, word);
        }
        let word = u64::from(top) | (root as u64) << 8;
        put(self.memory.roots4.words(), number, word);
    }

    /// The node for the 32 slots of `1 << shift` addresses from `base` on.
    fn build(&mut self, base: u32, shift: u32, routes: &[Route4]) -> u64 {
        let slot_len = 32 - shift;
        let node_mask = (u64::from(u32::MAX) << (shift + 5)) as u32;
        let inside: Vec<Route4> = routes
            .iter()
            .copied()
            .filter(|&(prefix, len, _)| {
                (prefix ^ base) & node_mask == 0 || u32::from(len) < slot_len
            })
            .collect();
        // A leaf per slot: the top bit of the u32 says child.
        let mut leaves = Vec::new();
        for slot in 0..32u32 {
            let start = base | slot << shift;
            let deeper = inside.iter().any(|&(prefix, len, _)| {
                u32::from(len) > slot_len && (prefix ^ start) >> shift == 0
            });
            if !deeper {
                leaves.push(longest4(&inside, start));
                continue;
            }
            let child = self.node / 8;
            self.node += 8;
            for i in 0..8u32 {
                let word = self.build(start | i << (shift - 3), shift - 8, &inside);
                put(self.memory.nodes4.words(), child * 8 + i as usize, word);
            }
            leaves.push(1 << 31 | child as u32);
        }
        let mut bitmap = 1u32;
        let mut run = vec![leaves[0]];
        for slot in 1..32 {
            if leaves[slot] != leaves[slot - 1] {
                bitmap |= 1 << slot;
                run.push(leaves[slot]);
            }
        }
        if run.len() <= 2 && run.iter().all(|&leaf| leaf < 0x8000) {
            return pair(&leaves);
        }
        let base_cell = self.cell;
        if run.iter().all(|leaf| leaf & 0x7fff_ffff < 0x8000) {
            for leaf in run {
                let cell = (leaf & 0x7fff) as u16 | if leaf >> 31 != 0 { 0x8000 } else { 0 };
                self.memory.leaves4.quarters()[self.cell].store(cell, Ordering::Relaxed);
                self.cell += 1;
            }
            self.cell = self.cell.next_multiple_of(2);
        } else {
            bitmap &= !1;
            for leaf in run {
                self.memory.leaves4.halves()[self.cell / 2].store(leaf, Ordering::Relaxed);
                self.cell += 2;
            }
        }
        u64::from(bitmap) | (base_cell as u64) << 32
    }
}

/// A node that holds its values, of which there are at most two: bits say which.
fn pair(leaves: &[u32]) -> u64 {
    let (first, last) = (leaves[0], leaves[31]);
    let mut bitmap = 0u32;
    for (slot, &leaf) in leaves.iter().enumerate() {
        bitmap |= u32::from(leaf != first) << slot;
    }
    1 << 63 | u64::from(last) << 47 | u64::from(first) << 32 | u64::from(bitmap)
}
