//! The published form of the IPv6 tables: builds what entries point to, and takes it back.
//!
//! Changes are transactions, as for IPv4: what is fresh and what is planned is noted, and then
//! either committed or aborted.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::layout::{
    Compare, DIRECT_WORDS, Entry, MAX_WORDS, POINTER, RANK_NODES, RESERVED_WORDS, UNIT,
    block_entries, block_words, compare_words,
};
use crate::alloc::Runs;
use crate::error::Part;
use crate::{FibError, Memory6};

/// Below this values are looked up by their number among the leaves that nodes share in which nothing else occurs; few
/// tables have larger ones, but for those that name segments.
const SHARED_VALUES: u32 = 1 << 16;

/// A leaf that many nodes point to.
#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    word: u32,
    nodes: u32,
}

/// One store that readers can see.
#[derive(Clone, Copy, Debug)]
pub(super) enum Planned {
    /// A table's root entry.
    Root(u32, u32),
    /// An entry somewhere, counted in u32.
    Entry(usize, u32),
    /// A node of a rank group.
    Node(usize, u64),
    /// A word of a hash table.
    Word(usize, u64),
}

pub(super) struct Image<M> {
    memory: Arc<M>,
    grace: Box<dyn Fn() + Send + Sync>,
    /// Runs of words, counted in units.
    runs: Runs,
    shared: Vec<Shared>,
    /// The same for larger values.
    shared_large: HashMap<u32, Shared>,
    /// Units that are kept for removals.
    reserve: usize,
    removing: bool,
    planned: Vec<Planned>,
    /// Entries that nothing points to after the commit.
    replaced: Vec<u32>,
    fresh: Vec<(u32, u32)>,
    fresh_nodes: Vec<u64>,
}

/// Keys up to `.0` have entry `.1`.
pub(super) type Cut = (u16, u32);

impl<M: Memory6> Image<M> {
    pub(super) fn new(memory: Arc<M>, grace: Box<dyn Fn() + Send + Sync>) -> Image<M> {
        let mut known = 0;
        for root in memory.roots().words() {
            known |= root.swap(0, Release);
        }
        if known != 0 {
            grace();
        }
        let words = memory.words().words();
        for word in words.iter().take(RESERVED_WORDS as usize) {
            word.store(0, Relaxed);
        }
        let count = words.len().min(MAX_WORDS);
        Image {
            runs: Runs::new(count / UNIT as usize, RESERVED_WORDS / UNIT),
            shared: Vec::new(),
            shared_large: HashMap::new(),
            reserve: (count / 64).min(4096) / UNIT as usize,
            removing: false,
            planned: Vec::new(),
            replaced: Vec::new(),
            fresh: Vec::new(),
            fresh_nodes: Vec::new(),
            memory,
            grace,
        }
    }

    pub(super) fn memory(&self) -> &M {
        &self.memory
    }

    /// Runs of [`UNIT`] words.
    pub(super) fn runs(&self) -> &Runs {
        &self.runs
    }

    pub(super) fn reclaim(&mut self) {
        if self.runs.limbo() > 0 {
            (self.grace)();
            self.runs.reclaim();
        }
    }

    // ---- transactions ------------------------------------------------------------------------

    /// Starts a change. Removals may use the last of the memory.
    pub(super) fn begin(&mut self, removing: bool) {
        self.removing = removing;
    }

    /// Whether the change is a removal.
    pub(super) fn is_removing(&self) -> bool {
        self.removing
    }

    pub(super) fn commit(&mut self) {
        self.fresh.clear();
        self.fresh_nodes.clear();
        let mut planned = std::mem::take(&mut self.planned);
        for store in planned.drain(..) {
            match store {
                Planned::Root(table, entry) => {
                    self.memory.roots().halves()[2 * table as usize].store(entry, Release);
                }
                Planned::Entry(at, entry) => {
                    self.memory.words().halves()[at].store(entry, Release);
                }
                Planned::Word(at, word) => {
                    self.memory.words().words()[at].store(word, Release);
                }
                Planned::Node(at, node) => {
                    let old = self.memory.words().words()[at].swap(node, Release);
                    self.drop_node(old, retire);
                }
            }
        }
        planned.shrink_to(1 << 12);
        self.planned = planned;
        while let Some(entry) = self.replaced.pop() {
            self.retire(entry);
        }
        self.fresh.shrink_to(1 << 12);
        self.fresh_nodes.shrink_to(1 << 12);
        if self.runs.limbo() > self.runs.units() / 8 {
            self.reclaim();
        }
    }

    pub(super) fn abort(&mut self) {
        self.planned.clear();
        self.replaced.clear();
        while let Some(node) = self.fresh_nodes.pop() {
            self.drop_node(node, release);
        }
        for (word, n) in self.fresh.drain(..) {
            release(&mut self.runs, word, n);
        }
    }

    /// Plans one store.
    pub(super) fn plan(&mut self, store: Planned) {
        self.planned.push(store);
    }

    /// Plans a table's root entry.
    pub(super) fn plan_root(&mut self, table: u32, entry: u32) {
        self.planned.push(Planned::Root(table, entry));
    }

    /// Plans the entry of one key, which must have an interval, or a place, of its own.
    pub(super) fn plan_key(&mut self, structure: u32, key: u16, entry: u32) {
        let at = match Entry::parse(structure) {
            // Changed as a whole only.
            Entry::Value(_) | Entry::Compare(..) | Entry::Hosts(_) => return,
            Entry::Direct(at) => 2 * at + usize::from(key),
            Entry::Rank(at) => {
                let node = self.memory.words().words()[at + usize::from(key >> 5)].load(Relaxed);
                let upto = u32::MAX >> (31 - (key & 31));
                let rank = ((node as u32 | 1) & upto).count_ones();
                (node >> 32) as usize + rank as usize - 1
            }
            Entry::Block(at) => {
                let cells = &self.memory.words().quarters()[4 * at..];
                let n = usize::from(cells[0].load(Relaxed)) + 1;
                let i = cells[1..n].partition_point(|end| end.load(Relaxed) < key);
                2 * at + block_entries(n) + i
            }
        };
        self.planned.push(Planned::Entry(at, entry));
    }

    /// Notes that nothing points to an entry any more.
    pub(super) fn replace(&mut self, entry: u32) {
        if entry & POINTER != 0 {
            self.replaced.push(entry);
        }
    }

    /// The same for many.
    pub(super) fn replace_many(&mut self, entries: &mut Vec<u32>) {
        self.replaced.append(entries);
    }

    // ---- structures --------------------------------------------------------------------------

    /// Builds a compare.
    pub(super) fn build_compare(&mut self, compare: Compare) -> Result<u32, FibError> {
        let (words, n) = compare.words();
        let at = self.alloc(n)? as usize;
        let cells = &self.memory.words().words()[at..at + n as usize];
        for (cell, word) in cells.iter().zip(words) {
            cell.store(word, Relaxed);
        }
        Ok(Entry::Compare(at, compare.is_long()).bits())
    }

    /// Builds a block.
    pub(super) fn build_block(&mut self, cuts: &[Cut]) -> Result<u32, FibError> {
        let n = cuts.len();
        let at = self.alloc(block_words(n as u32))? as usize;
        // The words are ours alone, so they need no care about neighbours.
        let cells = &self.memory.words().quarters()[4 * at..];
        cells[0].store((n - 1) as u16, Relaxed);
        for (cell, (end, _)) in cells[1..n].iter().zip(cuts) {
            cell.store(*end, Relaxed);
        }
        // No key is above the cells that fill the last word.
        for cell in &cells[n..2 * block_entries(n)] {
            cell.store(u16::MAX, Relaxed);
        }
        let entries = &self.memory.words().halves()[2 * at + block_entries(n)..];
        for (cell, (_, entry)) in entries.iter().zip(cuts) {
            cell.store(*entry, Relaxed);
        }
        Ok(Entry::Block(at).bits())
    }

    /// Builds a rank group of all keys.
    pub(super) fn build_rank(&mut self, cuts: &[Cut]) -> Result<u32, FibError> {
        let at = self.alloc(RANK_NODES)? as usize;
        each_node(0, cuts, |i, bitmap, run| {
            let node = self.make_node(bitmap, run)?;
            self.memory.words().words()[at + i].store(node, Relaxed);
            Ok(())
        })?;
        Ok(Entry::Rank(at).bits())
    }

    /// Plans the nodes of a rank group that differ, from the one that begins with `first` on.
    pub(super) fn plan_rank(
        &mut self,
        at: usize,
        first: u16,
        cuts: &[Cut],
    ) -> Result<(), FibError> {
        each_node(first >> 5, cuts, |i, bitmap, run| {
            let old = self.memory.words().words()[at + i].load(Relaxed);
            if !self.matches(old, bitmap, run) {
                let node = self.make_node(bitmap, run)?;
                self.planned.push(Planned::Node(at + i, node));
            }
            Ok(())
        })
    }

    /// Builds an array of all keys.
    pub(super) fn build_direct(&mut self, cuts: &[Cut]) -> Result<u32, FibError> {
        let at = self.alloc(DIRECT_WORDS)? as usize;
        let cells = &self.memory.words().halves()[2 * at..];
        let mut key = 0;
        for &(end, entry) in cuts {
            for cell in &cells[key..=usize::from(end)] {
                cell.store(entry, Relaxed);
            }
            key = usize::from(end) + 1;
        }
        Ok(Entry::Direct(at).bits())
    }

    /// Plans the entries of an array that differ, from key `first` on.
    pub(super) fn plan_direct(&mut self, at: usize, first: u16, cuts: &[Cut]) {
        let cells = &self.memory.words().halves()[2 * at..];
        let mut key = usize::from(first);
        for &(end, entry) in cuts {
            for (i, cell) in cells[..=usize::from(end)].iter().enumerate().skip(key) {
                if cell.load(Relaxed) != entry {
                    self.planned.push(Planned::Entry(2 * at + i, entry));
                }
            }
            key = usize::from(end) + 1;
        }
    }

    /// Whether a node already says just this.
    fn matches(&self, node: u64, bitmap: u32, run: &[u32]) -> bool {
        let cells = &self.memory.words().halves()[(node >> 32) as usize..];
        node as u32 | 1 == bitmap
            && cells
                .iter()
                .zip(run)
                .all(|(cell, entry)| cell.load(Relaxed) == *entry)
    }

    fn make_node(&mut self, bitmap: u32, run: &[u32]) -> Result<u64, FibError> {
        let base = match run {
            [0] => 0,
            [value] => 2 * self.share(*value)?,
            _ => {
                let word = self.alloc_run(run.len().div_ceil(2) as u32)?;
                let cells = &self.memory.words().halves()[2 * word as usize..];
                for (cell, entry) in cells.iter().zip(run) {
                    cell.store(*entry, Relaxed);
                }
                2 * word
            }
        };
        let node = u64::from(base) << 32 | u64::from(bitmap & !1);
        self.fresh_nodes.push(node);
        Ok(node)
    }

    /// The leaf of all nodes that answer `value` everywhere.
    fn share(&mut self, value: u32) -> Result<u32, FibError> {
        if self.shared_by(value).nodes == 0 {
            let word = self.alloc_run(1)?;
            self.memory.words().words()[word as usize].store(u64::from(value), Relaxed);
            self.shared_by(value).word = word;
        }
        let shared = self.shared_by(value);
        shared.nodes += 1;
        Ok(shared.word)
    }

    /// The leaf that nodes with this value share, if any has it.
    fn shared_by(&mut self, value: u32) -> &mut Shared {
        if value >= SHARED_VALUES {
            return self.shared_large.entry(value).or_default();
        }
        let i = value as usize;
        if i >= self.shared.len() {
            self.shared.resize(i + 1, Shared::default());
        }
        &mut self.shared[i]
    }

    fn drop_node(&mut self, node: u64, give_back: fn(&mut Runs, u32, u32)) {
        let (bitmap, word) = (node as u32 | 1, (node >> 33) as u32);
        if word < RESERVED_WORDS {
            return;
        }
        if bitmap == 1 {
            let value = self.memory.words().halves()[2 * word as usize].load(Relaxed);
            let shared = self.shared_by(value);
            shared.nodes -= 1;
            if shared.nodes == 0 {
                self.shared_large.remove(&value);
                give_back(&mut self.runs, word, 1);
            }
            return;
        }
        give_back(&mut self.runs, word, bitmap.count_ones().div_ceil(2));
    }

    fn retire(&mut self, entry: u32) {
        match Entry::parse(entry) {
            Entry::Value(_) => {}
            Entry::Compare(at, long) => retire(&mut self.runs, at as u32, compare_words(long)),
            Entry::Direct(at) => retire(&mut self.runs, at as u32, DIRECT_WORDS),
            Entry::Hosts(at) => {
                let words = self.hosts_len(at);
                retire(&mut self.runs, at as u32, words);
            }
            Entry::Rank(at) => {
                for i in at..at + RANK_NODES as usize {
                    let node = self.memory.words().words()[i].load(Relaxed);
                    self.drop_node(node, retire);
                }
                retire(&mut self.runs, at as u32, RANK_NODES);
            }
            Entry::Block(at) => {
                let n = self.memory.words().quarters()[4 * at].load(Relaxed);
                retire(&mut self.runs, at as u32, block_words(u32::from(n) + 1));
            }
        }
    }

    /// A run of words that is given back as a whole when the change is aborted.
    pub(super) fn alloc(&mut self, n: u32) -> Result<u32, FibError> {
        let start = self.alloc_run(n)?;
        self.fresh.push((start, n));
        Ok(start)
    }

    fn alloc_run(&mut self, n: u32) -> Result<u32, FibError> {
        let reserve = if self.removing { 0 } else { self.reserve };
        let units = n.div_ceil(UNIT);
        let alloc = |runs: &mut Runs| {
            (runs.free() >= units as usize + reserve)
                .then(|| runs.alloc(units))
                .flatten()
        };
        let unit = alloc(&mut self.runs).or_else(|| {
            self.reclaim();
            alloc(&mut self.runs)
        });
        let words = |units: usize| units * UNIT as usize;
        unit.map(|unit| unit * UNIT).ok_or_else(|| FibError::Full {
            what: Part::Words6,
            need: n as usize,
            used: words(self.runs.units() - self.runs.free()),
            capacity: words(self.runs.units()),
        })
    }
}

/// Gives back `n` words that no reader can know of.
fn release(runs: &mut Runs, word: u32, n: u32) {
    runs.release(word / UNIT, n.div_ceil(UNIT));
}

/// The same for words that readers may still hold.
fn retire(runs: &mut Runs, word: u32, n: u32) {
    runs.retire(word / UNIT, n.div_ceil(UNIT));
}

/// Splits cuts into nodes of 32 keys, from node `first` to the end of the last cut: calls `put`
/// with the node's number, its bitmap and its entries.
fn each_node(
    first: u16,
    cuts: &[Cut],
    mut put: impl FnMut(usize, u32, &[u32]) -> Result<(), FibError>,
) -> Result<(), FibError> {
    let (mut i, mut run) = (usize::from(first), [0u32; 32]);
    let (mut bitmap, mut n, mut slot) = (0u32, 0, 0u16);
    for &(end, entry) in cuts {
        while i <= usize::from(end >> 5) {
            bitmap |= 1 << slot;
            run[n] = entry;
            n += 1;
            if usize::from(end >> 5) == i && end & 31 != 31 {
                slot = (end & 31) + 1;
                break;
            }
            put(i, bitmap, &run[..n])?;
            (bitmap, n, slot) = (0, 0, 0);
            i += 1;
        }
    }
    Ok(())
}
