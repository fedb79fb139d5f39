//! The published form of the IPv4 tables: makes node words with their leaf runs, and takes them
//! back.
//!
//! A change is a transaction: everything that is made is noted as fresh, node words that readers
//! can reach are noted as planned. [`Image::commit`] stores the planned words and retires what they
//! replace; [`Image::abort`] gives the fresh ones back, and nothing has happened.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::layout::{
    Entries, NodeWord, RESERVED_CELLS, UNIT, changes, fit_narrow, narrow, pair, widen,
};
use crate::alloc::Runs;
use crate::error::Part;
use crate::{FibError, Memory4};

pub(super) struct Image<M> {
    memory: Arc<M>,
    grace: Box<dyn Fn() + Send + Sync>,
    /// Units of [`UNIT`] nodes.
    units: Runs,
    cells: Runs,
    /// Cells that only removals may take.
    reserve: usize,
    /// This transaction may use the reserve.
    removing: bool,
    planned: Vec<(u32, u64)>,
    fresh_words: Vec<u64>,
    fresh_units: Vec<(u32, u32)>,
}

impl<M: Memory4> Image<M> {
    pub(super) fn new(memory: Arc<M>, grace: Box<dyn Fn() + Send + Sync>) -> Image<M> {
        let mut known = 0;
        for root in memory.roots().words() {
            known |= root.swap(0, Release);
        }
        if known != 0 {
            grace();
        }
        let cells = memory.leaves().quarters();
        for cell in cells.iter().take(RESERVED_CELLS as usize) {
            cell.store(0, Relaxed);
        }
        // A child's unit has 31 bits; so has the base of a leaf run, for the top bit says pair.
        let units = (memory.nodes().words().len() / UNIT as usize).min(1 << 29);
        let count = cells.len().min(1 << 31);
        Image {
            units: Runs::new(units, 0),
            cells: Runs::new(count, RESERVED_CELLS),
            reserve: (count / 64).min(4096),
            removing: false,
            planned: Vec::new(),
            fresh_words: Vec::new(),
            fresh_units: Vec::new(),
            memory,
            grace,
        }
    }

    pub(super) fn memory(&self) -> &M {
        &self.memory
    }

    pub(super) fn units(&self) -> &Runs {
        &self.units
    }

    pub(super) fn cells(&self) -> &Runs {
        &self.cells
    }

    /// Waits for readers and frees what is in limbo.
    pub(super) fn reclaim(&mut self) {
        if self.units.limbo() + self.cells.limbo() > 0 {
            (self.grace)();
            self.units.reclaim();
            self.cells.reclaim();
        }
    }

    // ---- transactions ------------------------------------------------------------------------

    /// Starts a change. Removals may use the last of the memory.
    pub(super) fn begin(&mut self, removing: bool) {
        self.removing = removing;
    }

    /// Publishes what was planned.
    pub(super) fn commit(&mut self) {
        self.fresh_words.clear();
        self.fresh_units.clear();
        let mut planned = std::mem::take(&mut self.planned);
        for (node, word) in planned.drain(..) {
            let old = self.memory.nodes().words()[node as usize].swap(word, Release);
            self.retire_word(old);
        }
        // Its capacity is used again, but not after a change of a whole table.
        planned.shrink_to(1 << 12);
        self.fresh_words.shrink_to(1 << 12);
        self.planned = planned;
        // A part of the memory in limbo is what it costs to wait for readers rarely.
        if self.cells.limbo() > self.cells.units() / 16
            || self.units.limbo() > self.units.units() / 8
        {
            self.reclaim();
        }
    }

    /// Forgets what was planned.
    pub(super) fn abort(&mut self) {
        self.planned.clear();
        while let Some(word) = self.fresh_words.pop() {
            self.drop_word(word, Runs::release);
        }
        for (start, n) in self.fresh_units.drain(..) {
            self.units.release(start, n);
        }
    }

    // ---- nodes -------------------------------------------------------------------------------

    /// Plans a node's new entries, unless they are the ones that it has.
    pub(super) fn plan(&mut self, node: u32, entries: &Entries) -> Result<(), FibError> {
        let old = self.memory.nodes().words()[node as usize].load(Relaxed);
        if !self.matches(old, entries) {
            let word = self.make_word(entries)?;
            self.planned.push((node, word));
        }
        Ok(())
    }

    /// Writes a node that no reader can reach yet.
    pub(super) fn write(&mut self, node: u32, entries: &Entries) -> Result<(), FibError> {
        let word = self.make_word(entries)?;
        self.memory.nodes().words()[node as usize].store(word, Relaxed);
        Ok(())
    }

    /// Room for a block of `nodes` nodes; the index of the first one.
    pub(super) fn alloc_block(&mut self, nodes: u32) -> Result<u32, FibError> {
        let n = nodes / UNIT;
        let alloc = |units: &mut Runs| match n {
            1 => units.alloc(1),
            _ => units.alloc_high(n),
        };
        let start = alloc(&mut self.units)
            .or_else(|| {
                self.reclaim();
                alloc(&mut self.units)
            })
            .ok_or_else(|| FibError::Full {
                what: Part::Nodes4,
                need: nodes as usize,
                used: (self.units.units() - self.units.free()) * UNIT as usize,
                capacity: self.units.units() * UNIT as usize,
            })?;
        self.fresh_units.push((start, n));
        Ok(start * UNIT)
    }

    /// Retires a block of nodes with their leaf runs, but not their children.
    pub(super) fn retire_block(&mut self, first: u32, nodes: u32) {
        for node in first..first + nodes {
            let word = self.memory.nodes().words()[node as usize].load(Relaxed);
            self.retire_word(word);
        }
        self.units.retire(first / UNIT, nodes / UNIT);
    }

    /// Publishes a table's root and gives the old word.
    pub(super) fn set_root(&self, table: u32, word: u64) {
        self.memory.roots().words()[table as usize].store(word, Release);
    }

    // ---- leaf runs ---------------------------------------------------------------------------

    fn make_word(&mut self, entries: &Entries) -> Result<u64, FibError> {
        let word = match pair(entries) {
            Some(word) => word,
            None => {
                let node = NodeWord {
                    bitmap: changes(entries),
                    base: 0,
                    narrow: fit_narrow(entries),
                };
                let base = self.alloc_cells(node)?;
                let node = NodeWord { base, ..node };
                self.write_leaves(node, entries);
                node.word()
            }
        };
        self.fresh_words.push(word);
        Ok(word)
    }

    fn write_leaves(&self, node: NodeWord, entries: &Entries) {
        let mut bits = node.bitmap;
        // Cells share words with the runs of other nodes, so each is stored on its own.
        if node.narrow {
            for cell in &self.memory.leaves().quarters()[node.base as usize..] {
                cell.store(narrow(entries[bits.trailing_zeros() as usize]), Relaxed);
                bits &= bits - 1;
                if bits == 0 {
                    break;
                }
            }
        } else {
            for cell in &self.memory.leaves().halves()[node.base as usize / 2..] {
                cell.store(entries[bits.trailing_zeros() as usize], Relaxed);
                bits &= bits - 1;
                if bits == 0 {
                    break;
                }
            }
        }
    }

    /// Whether a node already says just this.
    fn matches(&self, word: u64, entries: &Entries) -> bool {
        let (Some(node), None) = (NodeWord::parse(word), pair(entries)) else {
            return pair(entries) == Some(word);
        };
        let mut bits = changes(entries);
        if node.bitmap != bits || node.narrow != fit_narrow(entries) {
            return false;
        }
        for leaf in 0.. {
            let here = if node.narrow {
                widen(self.memory.leaves().quarters()[(node.base + leaf) as usize].load(Relaxed))
            } else {
                self.memory.leaves().halves()[(node.base / 2 + leaf) as usize].load(Relaxed)
            };
            if here != entries[bits.trailing_zeros() as usize] {
                return false;
            }
            bits &= bits - 1;
            if bits == 0 {
                break;
            }
        }
        true
    }

    fn alloc_cells(&mut self, node: NodeWord) -> Result<u32, FibError> {
        let n = node.cells();
        let reserve = if self.removing { 0 } else { self.reserve };
        let alloc = |cells: &mut Runs| {
            if cells.free() < n as usize + reserve {
                None
            } else if node.narrow {
                cells.alloc(n)
            } else {
                // One more, so that an even start is among them.
                let start = cells.alloc(n + 1)?;
                let odd = start & 1;
                cells.release(if odd == 1 { start } else { start + n }, 1);
                Some(start + odd)
            }
        };
        alloc(&mut self.cells)
            .or_else(|| {
                self.reclaim();
                alloc(&mut self.cells)
            })
            .ok_or_else(|| FibError::Full {
                what: Part::Leaves4,
                need: n as usize,
                used: self.cells.units() - self.cells.free(),
                capacity: self.cells.units(),
            })
    }

    fn retire_word(&mut self, word: u64) {
        self.drop_word(word, Runs::retire);
    }

    fn drop_word(&mut self, word: u64, give_back: fn(&mut Runs, u32, u32)) {
        if let Some(node) = NodeWord::parse(word) {
            give_back(&mut self.cells, node.base, node.cells());
        }
    }
}
