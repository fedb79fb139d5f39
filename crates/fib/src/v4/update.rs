//! How a change of the routes becomes a change of the image.
//!
//! The writer's copy is changed first, then the nodes whose answers differ are planned; where
//! memory runs out, the plan is dropped and the copy is put back.

use super::control::{BlockId, Link, Node, Spot, UNPLACED, covered, covers, ones};
use super::layout::{CHILD, Entries, UNIT, WIDTHS, root_word};
use super::{Fib4, Table};
use crate::error::Part;
use crate::{FibError, Memory4, Prefix4, TableId, Value};

/// The slots on the way from the root to a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Path {
    links: [Option<Link>; 3],
}

impl Path {
    fn push(&mut self, link: Link) {
        if let Some(free) = self.links.iter_mut().find(|link| link.is_none()) {
            *free = Some(link);
        }
    }

    fn links(&self) -> impl DoubleEndedIterator<Item = Link> + '_ {
        self.links.iter().flatten().copied()
    }
}

/// Where a prefix belongs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Here(BlockId, Spot),
    /// Below a slot that leads nowhere yet.
    Missing(Link),
}

impl<M: Memory4> Fib4<M> {
    pub(super) fn table(&self, table: TableId) -> Result<&Table, FibError> {
        let found = self.tables.get(table.at()).and_then(Option::as_ref);
        found.ok_or(FibError::NoSuchTable(table.index()))
    }

    pub(super) fn locate(&self, root: BlockId, prefix: Prefix4) -> (Path, Place) {
        let (mut path, mut block) = (Path::default(), root);
        loop {
            let (node, slot) = match self.control.spot(block, prefix) {
                Spot::Below(node, slot) => (node, slot),
                spot => return (path, Place::Here(block, spot)),
            };
            let link = Link { block, node, slot };
            match self.control.child(self.node(link), slot) {
                Some(child) => block = child,
                None => return (path, Place::Missing(link)),
            }
            path.push(link);
        }
    }

    fn node(&self, link: Link) -> Node {
        self.control.block(link.block).nodes[link.node as usize]
    }

    /// What holds for the whole node of `link` and for the whole of its slot, coming from above.
    fn backgrounds(&self, link: Link, above: Value) -> (Value, Value) {
        let node = self.control.block(link.block).background(link.node, above);
        (node, self.control.best(self.node(link), link.slot, node))
    }

    /// What holds for the whole block that a path ends at.
    fn background(&self, path: &Path) -> Value {
        path.links()
            .fold(0, |above, link| self.backgrounds(link, above).1)
    }

    // ---- single changes ----------------------------------------------------------------------

    /// Changes the value of one prefix, 0 for none, and tells the one before.
    pub(super) fn change(
        &mut self,
        table: TableId,
        path: &Path,
        block: BlockId,
        spot: Spot,
        value: Value,
    ) -> Result<Value, FibError> {
        let old = self.control.set_value(block, spot, value);
        if old == value {
            return Ok(old);
        }
        self.image.begin(value == 0);
        let done = if value == 0 && self.control.is_empty(block) {
            self.cut(path, block)
        } else {
            self.refresh(table, path, block, spot)
        };
        match done {
            Ok(()) => Ok(old),
            Err(error) => {
                self.image.abort();
                self.control.set_value(block, spot, old);
                self.unplace_new_root(table);
                Err(error)
            }
        }
    }

    /// Publishes a changed value.
    fn refresh(
        &mut self,
        table: TableId,
        path: &Path,
        block: BlockId,
        spot: Spot,
    ) -> Result<(), FibError> {
        if self.place_new_root(table)? {
            return Ok(());
        }
        let above = self.background(path);
        let here = self.control.block(block);
        match spot {
            Spot::Upper(number) => {
                let value = here.upper_match(number, above);
                self.refresh_upper(block, number, value)?;
            }
            Spot::Node(at, number) => {
                let (node, background) = (here.nodes[at as usize], here.background(at, above));
                let slots = covers(number) & !covered(node, number + 1);
                self.refresh_node(block, at, background, slots)?;
            }
            Spot::Below(..) => {}
        }
        self.image.commit();
        Ok(())
    }

    /// Hangs a chain of new blocks with one prefix below a slot.
    pub(super) fn hang(
        &mut self,
        table: TableId,
        path: &Path,
        link: Link,
        prefix: Prefix4,
        value: Value,
    ) -> Result<(), FibError> {
        self.image.begin(false);
        let head = self.control.new_chain(link, prefix, value);
        self.control.link(link, head);
        let done = self.refresh_link(table, path, link);
        if done.is_err() {
            self.image.abort();
            self.control.unlink(link);
            self.control.drop_tree(head);
            self.unplace_new_root(table);
        }
        done
    }

    fn refresh_link(&mut self, table: TableId, path: &Path, link: Link) -> Result<(), FibError> {
        if self.place_new_root(table)? {
            return Ok(());
        }
        let (background, below) = self.backgrounds(link, self.background(path));
        if let Some(child) = self.control.child(self.node(link), link.slot) {
            self.place(child, below)?;
        }
        self.refresh_node(link.block, link.node, background, 0)?;
        self.image.commit();
        Ok(())
    }

    /// Cuts off the block at the end of a path, which has become empty, with all blocks above it
    /// that hold nothing else.
    fn cut(&mut self, path: &Path, empty: BlockId) -> Result<(), FibError> {
        let mut gone = empty;
        let mut links = path.links().rev();
        let mut at = links.next();
        // The root is not cut off: it holds at least one more route.
        for above in links {
            match at {
                Some(link) if self.control.block(link.block).holds_one() => {
                    gone = link.block;
                    at = Some(above);
                }
                _ => break,
            }
        }
        let Some(link) = at else { return Ok(()) };
        let above = path.links().take_while(|l| l.block != link.block);
        let above = above.fold(0, |above, link| self.backgrounds(link, above).1);
        let (background, _) = self.backgrounds(link, above);
        self.control.unlink(link);
        if let Err(error) = self.refresh_node(link.block, link.node, background, 0) {
            self.control.link(link, gone);
            return Err(error);
        }
        self.retire_tree(gone);
        self.control.drop_tree(gone);
        self.image.commit();
        Ok(())
    }

    // ---- parts of the image ------------------------------------------------------------------

    /// Plans all nodes that have nothing longer than upper prefix `number`, whose value (or the
    /// background, where it has none) is now `value`.
    fn refresh_upper(&mut self, block: BlockId, number: u32, value: Value) -> Result<(), FibError> {
        let here = self.control.block(block);
        if let Some(at) = number.checked_sub(1 << here.width) {
            let slots = !covered(here.nodes[at as usize], 0);
            return match slots {
                0 => Ok(()),
                _ => self.refresh_node(block, at, value, slots),
            };
        }
        for half in [2 * number, 2 * number + 1] {
            if self.control.block(block).upper[half as usize] == 0 {
                self.refresh_upper(block, half, value)?;
            }
        }
        Ok(())
    }

    /// Plans one node, and what is below those of `slots` that lead to child blocks.
    fn refresh_node(
        &mut self,
        block: BlockId,
        at: u32,
        background: Value,
        slots: u32,
    ) -> Result<(), FibError> {
        let here = self.control.block(block);
        let (node, index) = (here.nodes[at as usize], here.first + at);
        let mut entries = self.control.paint(node, background);
        for slot in ones(u64::from(node.children & slots)) {
            if let Some(child) = self.control.child(node, slot) {
                self.refresh_upper(child, 1, entries[slot as usize])?;
            }
        }
        self.add_children(node, &mut entries);
        self.image.plan(index, &entries)
    }

    /// Gives a block and everything below it a place in the image.
    fn place(&mut self, block: BlockId, above: Value) -> Result<(), FibError> {
        let count = self.control.block(block).nodes.len() as u32;
        let first = self.image.alloc_block(count)?;
        self.control.block_mut(block).first = first;
        for at in 0..count {
            let here = self.control.block(block);
            let (node, background) = (here.nodes[at as usize], here.background(at, above));
            let mut entries = self.control.paint(node, background);
            for slot in ones(u64::from(node.children)) {
                if let Some(child) = self.control.child(node, slot) {
                    self.place(child, entries[slot as usize])?;
                }
            }
            self.add_children(node, &mut entries);
            self.image.write(first + at, &entries)?;
        }
        Ok(())
    }

    fn add_children(&self, node: Node, entries: &mut Entries) {
        if node.children != 0 {
            for (slot, child) in self.control.children(node) {
                entries[slot as usize] = CHILD | (self.control.block(child).first / UNIT);
            }
        }
    }

    /// Retires the image of a block and of everything below it.
    fn retire_tree(&mut self, block: BlockId) {
        let here = self.control.block(block);
        let (first, count) = (here.first, here.nodes.len());
        if first == UNPLACED {
            return;
        }
        self.image.retire_block(first, count as u32);
        for at in 0..count {
            let node = self.control.block(block).nodes[at];
            for slot in ones(u64::from(node.children)) {
                if let Some(child) = self.control.child(node, slot) {
                    self.retire_tree(child);
                }
            }
        }
    }

    // ---- whole tables ------------------------------------------------------------------------

    /// Places and publishes the root of a table that was empty; says whether there was one.
    fn place_new_root(&mut self, table: TableId) -> Result<bool, FibError> {
        let (root, width) = self.table(table).map(|t| (t.root, t.width))?;
        if self.control.block(root).first != UNPLACED {
            return Ok(false);
        }
        self.place(root, 0)?;
        let first = self.control.block(root).first;
        self.image
            .set_root(table.index(), root_word(first, WIDTHS[width]));
        self.image.commit();
        Ok(true)
    }

    /// Takes the place from a root that could not be published.
    fn unplace_new_root(&mut self, table: TableId) {
        if let Ok(Table {
            root, routes: 0, ..
        }) = self.table(table)
        {
            let root = *root;
            self.control.block_mut(root).first = UNPLACED;
        }
    }

    /// Empties a table.
    pub(super) fn clear(&mut self, table: TableId, root: BlockId) {
        self.image.set_root(table.index(), 0);
        self.retire_tree(root);
        self.control.drop_tree(root);
        self.image.commit();
        let wide = self.table(table).is_ok_and(|t| t.wide);
        self.tables[table.at()] = Some(Table::empty(&mut self.control, wide));
    }

    /// Builds a table anew with a root of this width and publishes it in place of the old one.
    pub(super) fn rebuild(
        &mut self,
        table: TableId,
        routes: &[(Prefix4, Value)],
        width: usize,
    ) -> Result<(), FibError> {
        let &Table {
            root: old, wide, ..
        } = self.table(table)?;
        if routes.is_empty() {
            self.clear(table, old);
            return Ok(());
        }
        let (need, units) = (1 << WIDTHS[width], self.image.units());
        let capacity = units.units() * UNIT as usize;
        if need > capacity {
            // Before 12 MiB are made ready for a root that can never be placed.
            return Err(FibError::Full {
                what: Part::Nodes4,
                need,
                used: capacity - units.free() * UNIT as usize,
                capacity,
            });
        }
        let root = self.control.new_root(WIDTHS[width]);
        let mut count = 0;
        for &(prefix, value) in routes {
            count += usize::from(self.add(root, prefix, value) == 0);
        }
        self.image.begin(false);
        if let Err(error) = self.place(root, 0) {
            self.image.abort();
            self.control.drop_tree(root);
            return Err(error);
        }
        let first = self.control.block(root).first;
        self.image
            .set_root(table.index(), root_word(first, WIDTHS[width]));
        self.retire_tree(old);
        self.control.drop_tree(old);
        self.image.commit();
        self.tables[table.at()] = Some(Table {
            root,
            routes: count,
            width,
            wide,
            settled: 0..0,
        });
        Ok(())
    }

    /// Adds a route to the writer's copy only.
    fn add(&mut self, root: BlockId, prefix: Prefix4, value: Value) -> Value {
        match self.locate(root, prefix) {
            (_, Place::Here(block, spot)) => self.control.set_value(block, spot, value),
            (_, Place::Missing(link)) => {
                let head = self.control.new_chain(link, prefix, value);
                self.control.link(link, head);
                0
            }
        }
    }

    /// Counts a route that came or went, and gives the root another width where it is time. A
    /// table that finds no room for that stays as it is for a while.
    pub(super) fn count(&mut self, table: TableId, change: isize) {
        let Some(t) = self.tables.get_mut(table.at()).and_then(Option::as_mut) else {
            return;
        };
        t.routes = t.routes.saturating_add_signed(change);
        let (routes, old) = (t.routes, t.width);
        let Some(mut width) = t.other_width() else {
            return;
        };
        if t.settled.contains(&routes) {
            return;
        }
        let all: Vec<(Prefix4, Value)> = self.iter(table).collect();
        while self.rebuild(table, &all, width).is_err() {
            // A root that is not as wide may still fit.
            if width <= old + 1 {
                break;
            }
            width -= 1;
        }
        if let Some(t) = &mut self.tables[table.at()]
            && t.other_width().is_some()
        {
            t.settled = routes / 2..routes * 2;
        }
    }
}
