//! The writer's own copy of the routes, in the same shape as the image.
//!
//! Prefixes are kept where they take effect: a block holds those that end among the bits that
//! choose one of its nodes, a node those that end in its own five bits. Both number the prefixes
//! of a binary tree from the root, so that prefix `b` of length `l` is number `2^l + b`, its
//! parent half of that, and longer prefixes have higher numbers. About 20 bytes a route for a full
//! table.

use super::layout::{CHILD_WIDTH, Entries, STRIDE, below, top};
use crate::{Prefix4, Value};

/// A block that has no place in the image yet.
pub(super) const UNPLACED: u32 = u32::MAX;

/// Number of a block in [`Control`].
pub(super) type BlockId = u32;

/// What the writer knows about one node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Node {
    /// Bit `2^l + b`: the node has its own prefix `b` of length `l` (1..=5).
    pub(super) prefixes: u64,
    /// Bit `s`: slot `s` leads to a child block.
    pub(super) children: u32,
    /// Values of the prefixes in order, then the children's blocks in order.
    run: u32,
}

impl Node {
    pub(super) fn is_empty(self) -> bool {
        self.prefixes == 0 && self.children == 0
    }

    fn cells(self) -> usize {
        (self.prefixes.count_ones() + self.children.count_ones()) as usize
    }

    fn rank(self, number: u32) -> usize {
        (self.prefixes & ((1 << number) - 1)).count_ones() as usize
    }

    fn child_rank(self, slot: u32) -> usize {
        (self.prefixes.count_ones() + (self.children & ((1 << slot) - 1)).count_ones()) as usize
    }
}

/// Slots that prefix `number` of a node covers.
pub(super) const fn covers(number: u32) -> u32 {
    let len = number.ilog2();
    let size = 32 >> len;
    let first = (number - (1 << len)) * size;
    (u32::MAX >> (32 - size)) << first
}

/// Slots that the node's prefixes from `number` on cover: the longer ones, and its like.
pub(super) fn covered(node: Node, number: u32) -> u32 {
    let longer = node.prefixes & u64::MAX.checked_shl(number).unwrap_or(0);
    ones(longer).fold(0, |all, number| all | covers(number))
}

/// A set of nodes that stand side by side in the image: the root, or the child of a slot.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// Index of its first node in the image, or [`UNPLACED`].
    pub(super) first: u32,
    /// Address bits above it.
    depth: u8,
    /// Address bits that choose one of its nodes.
    pub(super) width: u8,
    /// Prefixes and children that it holds.
    entries: u32,
    /// Values of the prefixes that end above the nodes, by number; 0 for none.
    pub(super) upper: Box<[Value]>,
    pub(super) nodes: Box<[Node]>,
}

impl Block {
    /// The value of upper prefix `number` or the nearest shorter one, or else `background`.
    #[inline]
    pub(super) fn upper_match(&self, mut number: u32, background: Value) -> Value {
        while number > 0 {
            let value = self.upper[number as usize];
            if value != 0 {
                return value;
            }
            number >>= 1;
        }
        background
    }

    /// Whether there is one prefix or child and no more.
    pub(super) fn holds_one(&self) -> bool {
        self.entries == 1
    }

    /// What holds for a whole node.
    #[inline]
    pub(super) fn background(&self, node: u32, background: Value) -> Value {
        self.upper_match(1 << self.width | node, background)
    }
}

/// Where in a block a prefix belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// Above the nodes.
    Upper(u32),
    /// In a node, under this number.
    Node(u32, u32),
    /// Below this slot of a node.
    Below(u32, u32),
}

/// A slot that leads, or will lead, to a child block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) block: BlockId,
    pub(super) node: u32,
    pub(super) slot: u32,
}

/// Blocks of all tables.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// Vacant ones have no nodes.
    blocks: Vec<Block>,
    vacant: Vec<BlockId>,
    pool: Pool,
}

impl Control {
    pub(super) fn new_root(&mut self, width: u8) -> BlockId {
        self.new_block(0, width)
    }

    fn new_block(&mut self, depth: u8, width: u8) -> BlockId {
        let block = Block {
            first: UNPLACED,
            depth,
            width,
            entries: 0,
            upper: vec![0; 2 << width].into_boxed_slice(),
            nodes: vec![Node::default(); 1 << width].into_boxed_slice(),
        };
        match self.vacant.pop() {
            Some(id) => {
                self.blocks[id as usize] = block;
                id
            }
            None => {
                self.blocks.push(block);
                self.blocks.len() as BlockId - 1
            }
        }
    }

    #[inline]
    pub(super) fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id as usize]
    }

    #[inline]
    pub(super) fn block_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id as usize]
    }

    pub(super) fn spot(&self, id: BlockId, prefix: Prefix4) -> Spot {
        let block = self.block(id);
        let (len, mut bits) = (
            prefix.len() - block.depth,
            below(prefix.addr(), block.depth),
        );
        if len <= block.width {
            return Spot::Upper(1 << len | top(bits, len));
        }
        let (len, node) = (len - block.width, top(bits, block.width));
        bits = below(bits, block.width);
        if len <= STRIDE {
            Spot::Node(node, 1 << len | top(bits, len))
        } else {
            Spot::Below(node, top(bits, STRIDE))
        }
    }

    /// The value of one prefix; 0 for none. `spot` is not [`Spot::Below`].
    pub(super) fn value(&self, id: BlockId, spot: Spot) -> Value {
        let block = self.block(id);
        match spot {
            Spot::Upper(number) => block.upper[number as usize],
            Spot::Node(node, number) => self.own(block.nodes[node as usize], number),
            Spot::Below(..) => 0,
        }
    }

    /// The value of one of a node's prefixes; 0 for none.
    pub(super) fn own(&self, node: Node, number: u32) -> Value {
        if node.prefixes >> number & 1 == 0 {
            0
        } else {
            self.pool.get(node.run, node.rank(number))
        }
    }

    /// Sets the value of one prefix, 0 for none, and tells the one before.
    pub(super) fn set_value(&mut self, id: BlockId, spot: Spot, value: Value) -> Value {
        let block = &mut self.blocks[id as usize];
        let old = match spot {
            Spot::Upper(number) => std::mem::replace(&mut block.upper[number as usize], value),
            Spot::Node(node, number) => {
                let node = &mut block.nodes[node as usize];
                let (at, cells) = (node.rank(number), node.cells());
                match (node.prefixes >> number & 1 != 0, value != 0) {
                    (true, true) => self.pool.replace(node.run, at, value),
                    (false, true) => {
                        node.run = self.pool.insert(node.run, cells, at, value);
                        node.prefixes |= 1 << number;
                        0
                    }
                    (true, false) => {
                        let old = self.pool.get(node.run, at);
                        node.run = self.pool.remove(node.run, cells, at);
                        node.prefixes &= !(1 << number);
                        old
                    }
                    (false, false) => 0,
                }
            }
            Spot::Below(..) => 0,
        };
        block.entries = block.entries + u32::from(value != 0) - u32::from(old != 0);
        old
    }

    /// The block that a slot of a node leads to.
    pub(super) fn child(&self, node: Node, slot: u32) -> Option<BlockId> {
        (node.children >> slot & 1 != 0).then(|| self.pool.get(node.run, node.child_rank(slot)))
    }

    /// The value of the longest of a node's prefixes that covers `slot`, or `background`.
    pub(super) fn best(&self, node: Node, slot: u32, background: Value) -> Value {
        let ancestors =
            (1..=STRIDE).fold(0, |all, len| all | 1u64 << ((32 | slot) >> (STRIDE - len)));
        match (node.prefixes & ancestors).checked_ilog2() {
            Some(number) => self.pool.get(node.run, node.rank(number)),
            None => background,
        }
    }

    /// Hangs a block into a slot that has none.
    pub(super) fn link(&mut self, link: Link, child: BlockId) {
        let block = &mut self.blocks[link.block as usize];
        let node = &mut block.nodes[link.node as usize];
        node.run = (self.pool).insert(node.run, node.cells(), node.child_rank(link.slot), child);
        node.children |= 1 << link.slot;
        block.entries += 1;
    }

    /// Takes a block out of its slot.
    pub(super) fn unlink(&mut self, link: Link) {
        let block = &mut self.blocks[link.block as usize];
        let node = &mut block.nodes[link.node as usize];
        node.run = (self.pool).remove(node.run, node.cells(), node.child_rank(link.slot));
        node.children &= !(1 << link.slot);
        block.entries -= 1;
    }

    /// A chain of new blocks below `link` with this prefix in the last one, not linked yet.
    pub(super) fn new_chain(&mut self, link: Link, prefix: Prefix4, value: Value) -> BlockId {
        let above = self.block(link.block);
        let head = self.new_block(above.depth + above.width + STRIDE, CHILD_WIDTH);
        match self.spot(head, prefix) {
            Spot::Below(node, slot) => {
                let link = Link {
                    block: head,
                    node,
                    slot,
                };
                let next = self.new_chain(link, prefix, value);
                self.link(link, next);
            }
            spot => {
                self.set_value(head, spot, value);
            }
        }
        head
    }

    /// Whether the block holds nothing any more.
    pub(super) fn is_empty(&self, id: BlockId) -> bool {
        self.block(id).entries == 0
    }

    /// The children of a node with their slots.
    pub(super) fn children(&self, node: Node) -> impl Iterator<Item = (u32, BlockId)> + '_ {
        let first = node.prefixes.count_ones() as usize;
        ones(u64::from(node.children))
            .enumerate()
            .map(move |(i, slot)| (slot, self.pool.get(node.run, first + i)))
    }

    /// The value of each slot of a node, children left out.
    #[inline]
    pub(super) fn paint(&self, node: Node, background: Value) -> Entries {
        let mut entries = [background; 32];
        // In ascending order, so that longer prefixes cover shorter ones.
        for (i, number) in ones(node.prefixes).enumerate() {
            let len = number.ilog2();
            let size = 32usize >> len;
            let first = (number as usize - (1 << len)) * size;
            entries[first..first + size].fill(self.pool.get(node.run, i));
        }
        entries
    }

    /// Forgets a block and everything below it.
    pub(super) fn drop_tree(&mut self, id: BlockId) {
        let block = std::mem::take(&mut self.blocks[id as usize]);
        self.vacant.push(id);
        for node in block.nodes.iter().filter(|node| !node.is_empty()) {
            let children: Vec<BlockId> = self.children(*node).map(|(_, child)| child).collect();
            self.pool.free(node.run, node.cells());
            for child in children {
                self.drop_tree(child);
            }
        }
    }

    /// Bytes that the writer's copy takes, all tables together.
    pub(super) fn bytes(&self) -> usize {
        let block = |b: &Block| b.upper.len() * 4 + b.nodes.len() * size_of::<Node>();
        let blocks: usize = self.blocks.iter().map(block).sum();
        blocks + self.blocks.capacity() * size_of::<Block>() + self.pool.bytes()
    }
}

/// The bits that are set, from the lowest.
pub(super) fn ones(mut bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (bits != 0).then(|| bits.trailing_zeros());
        bits &= bits.wrapping_sub(1);
        bit
    })
}

/// Capacities of runs in the pool.
const SIZES: [u8; 13] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96];

/// The class of the smallest run that holds `cells`.
fn class(cells: usize) -> usize {
    SIZES
        .iter()
        .position(|&size| usize::from(size) >= cells)
        .unwrap_or(SIZES.len() - 1)
}

/// Small arrays of u32 by class of length, without a header of their own.
#[derive(Debug, Default)]
struct Pool {
    cells: Vec<u32>,
    vacant: [Vec<u32>; SIZES.len()],
}

impl Pool {
    fn get(&self, run: u32, at: usize) -> u32 {
        self.cells[run as usize + at]
    }

    fn replace(&mut self, run: u32, at: usize, value: u32) -> u32 {
        std::mem::replace(&mut self.cells[run as usize + at], value)
    }

    /// Puts a cell into a run of `len` cells, which may move it.
    fn insert(&mut self, run: u32, len: usize, at: usize, value: u32) -> u32 {
        let mut to = run;
        if len == 0 || class(len) != class(len + 1) {
            to = self.alloc(len + 1);
            self.cells
                .copy_within(run as usize..run as usize + len, to as usize);
            self.free(run, len);
        }
        let start = to as usize;
        self.cells
            .copy_within(start + at..start + len, start + at + 1);
        self.cells[start + at] = value;
        to
    }

    /// Takes a cell out of a run of `len` cells, which may move it.
    fn remove(&mut self, run: u32, len: usize, at: usize) -> u32 {
        let start = run as usize;
        self.cells
            .copy_within(start + at + 1..start + len, start + at);
        if len == 1 {
            self.free(run, len);
            return 0;
        }
        if class(len) == class(len - 1) {
            return run;
        }
        let to = self.alloc(len - 1);
        self.cells.copy_within(start..start + len - 1, to as usize);
        self.free(run, len);
        to
    }

    fn alloc(&mut self, len: usize) -> u32 {
        let class = class(len);
        self.vacant[class].pop().unwrap_or_else(|| {
            let run = self.cells.len();
            self.cells.resize(run + usize::from(SIZES[class]), 0);
            run as u32
        })
    }

    fn free(&mut self, run: u32, len: usize) {
        if len > 0 {
            self.vacant[class(len)].push(run);
        }
    }

    fn bytes(&self) -> usize {
        let vacant: usize = self.vacant.iter().map(Vec::capacity).sum();
        (self.cells.capacity() + vacant) * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_cover_their_slots() {
        assert_eq!(covers(1), u32::MAX);
        assert_eq!((covers(2), covers(3)), (0xffff, 0xffff_0000));
        assert_eq!((covers(32), covers(63)), (1, 1 << 31));
    }

    #[test]
    fn pool_runs_keep_their_order_whatever_moves() {
        let (mut pool, mut want, mut run) = (Pool::default(), Vec::new(), 0);
        for i in 0..90u32 {
            let at = (i as usize * 7) % (want.len() + 1);
            run = pool.insert(run, want.len(), at, i);
            want.insert(at, i);
        }
        while !want.is_empty() {
            let got: Vec<u32> = (0..want.len()).map(|i| pool.get(run, i)).collect();
            assert_eq!(got, want);
            let at = (want.len() * 5) % want.len().max(1) + want.len() / 2;
            run = pool.remove(run, want.len(), at);
            want.remove(at);
        }
        let cells = pool.cells.len();
        run = pool.insert(0, 0, 0, 1);
        assert_eq!(
            (pool.get(run, 0), pool.cells.len()),
            (1, cells),
            "room is used again"
        );
    }
}
