//! IPv4: the writer.

mod control;
mod image;
mod iter;
mod layout;
mod lookup;
mod update;

use std::ops::Range;
use std::sync::Arc;

pub use iter::Routes4;
pub use lookup::{lookup4, lookup4_batch};

use crate::table::{TableId, Usage, Value, check_value};
use crate::{FibError, Memory4, Part, Prefix4};
use control::{BlockId, Control};
use image::Image;
use layout::{UNIT, WIDTHS};
use update::Place;

/// Routes from which on a table's root has the next width: a root of 2^11 nodes takes 16 KiB, one
/// of 2^19 nodes 4 MiB. A table shrinks again at a quarter of that.
const GROW_AT: [usize; 2] = [256, 16_384];

#[derive(Debug)]
struct Table {
    root: BlockId,
    routes: usize,
    /// Width of the root, as an index into [`WIDTHS`].
    width: usize,
    /// Whether the root is to have the full width from the first route on.
    wide: bool,
    /// Numbers of routes at which another width is not tried: the last time there was no room.
    settled: Range<usize>,
}

impl Table {
    fn empty(control: &mut Control, wide: bool) -> Table {
        Table {
            root: control.new_root(WIDTHS[0]),
            routes: 0,
            width: 0,
            wide,
            settled: 0..0,
        }
    }

    /// The width for so many routes, as an index into [`WIDTHS`].
    fn width_for(&self, routes: usize) -> usize {
        if self.wide && routes > 0 {
            return WIDTHS.len() - 1;
        }
        GROW_AT.iter().take_while(|&&at| routes >= at).count()
    }

    /// The width to change to with the routes that there are now; none if it is right. A table
    /// shrinks later than it grew.
    fn other_width(&self) -> Option<usize> {
        let width = self.width_for(self.routes);
        let shrink = width < self.width && self.routes < GROW_AT[self.width - 1] / 4;
        (width > self.width || shrink).then_some(width)
    }
}

/// The writer of all IPv4 tables in one memory.
///
/// Each change is published before the call returns, by single-word stores, so that a reader finds
/// the old answer or the new one for each address. What readers may still hold is kept until
/// `grace` has returned, which is called rarely and at the latest when memory runs out.
///
/// A call that fails leaves tables and readers as they were.
pub struct Fib4<M: Memory4> {
    image: Image<M>,
    control: Control,
    tables: Vec<Option<Table>>,
}

impl<M: Memory4> Fib4<M> {
    /// Takes over a memory, whose tables are emptied.
    ///
    /// `grace` must not return before every lookup that was under way when it was called has
    /// ended: for XDP programs an RCU grace period, for threads of this process whatever they
    /// agreed on, for a single thread nothing at all.
    pub fn new(memory: Arc<M>, grace: Box<dyn Fn() + Send + Sync>) -> Self {
        Fib4 {
            image: Image::new(memory, grace),
            control: Control::default(),
            tables: Vec::new(),
        }
    }

    /// The memory, for lookups.
    pub fn memory(&self) -> &M {
        self.image.memory()
    }

    /// Makes an empty table. Its number is the lowest that is not in use.
    ///
    /// # Errors
    /// [`FibError::TooManyTables`] when there is no root left.
    pub fn create_table(&mut self) -> Result<TableId, FibError> {
        self.create(false)
    }

    /// Makes an empty table that is fast from its first route on, and takes 4 MiB from then on if
    /// they are there: look-ups of prefixes up to /24 take one step, where a small table takes three.
    ///
    /// # Errors
    /// [`FibError::TooManyTables`] when there is no root left.
    pub fn create_wide_table(&mut self) -> Result<TableId, FibError> {
        self.create(true)
    }

    fn create(&mut self, wide: bool) -> Result<TableId, FibError> {
        let table = Table::empty(&mut self.control, wide);
        let free = self.tables.iter().position(Option::is_none);
        let capacity = self.memory().roots().words().len();
        match free {
            Some(i) => {
                self.tables[i] = Some(table);
                Ok(TableId::new(i))
            }
            None if self.tables.len() < capacity => {
                self.tables.push(Some(table));
                Ok(TableId::new(self.tables.len() - 1))
            }
            None => {
                self.control.drop_tree(table.root);
                Err(FibError::TooManyTables { capacity })
            }
        }
    }

    /// Drops a table with its routes; lookups in it find nothing from here on. Nothing happens
    /// when there is no such table.
    pub fn drop_table(&mut self, table: TableId) {
        if let Ok(root) = self.table(table).map(|t| t.root) {
            self.clear(table, root);
            let empty = self.tables[table.at()].take();
            if let Some(empty) = empty {
                self.control.drop_tree(empty.root);
            }
        }
    }

    /// Adds a route or replaces its value, and tells the value that it had.
    ///
    /// Where the route makes the table outgrow its root, the table is rebuilt on the way: some
    /// milliseconds, twice in the life of a full table.
    ///
    /// # Errors
    /// [`FibError::Full`], [`FibError::NoSuchTable`], [`FibError::BadValue`].
    pub fn insert(
        &mut self,
        table: TableId,
        prefix: Prefix4,
        value: Value,
    ) -> Result<Option<Value>, FibError> {
        check_value(value)?;
        let root = self.table(table)?.root;
        let old = match self.locate(root, prefix) {
            (path, Place::Here(block, spot)) => self.change(table, &path, block, spot, value)?,
            (path, Place::Missing(link)) => {
                self.hang(table, &path, link, prefix, value)?;
                0
            }
        };
        if old == 0 {
            self.count(table, 1);
        }
        Ok((old != 0).then_some(old))
    }

    /// Removes a route and tells its value; nothing happens when there is no such route.
    ///
    /// # Errors
    /// [`FibError::Full`], [`FibError::NoSuchTable`]. A little memory is kept for removals only, so
    /// that they succeed when insertions have used up the rest.
    pub fn remove(&mut self, table: TableId, prefix: Prefix4) -> Result<Option<Value>, FibError> {
        let (root, routes) = self.table(table).map(|t| (t.root, t.routes))?;
        let (path, Place::Here(block, spot)) = self.locate(root, prefix) else {
            return Ok(None);
        };
        let old = self.control.value(block, spot);
        if old == 0 {
            return Ok(None);
        }
        if routes == 1 {
            self.clear(table, root);
        } else {
            self.change(table, &path, block, spot, 0)?;
            self.count(table, -1);
        }
        Ok(Some(old))
    }

    /// Replaces a whole table, published by one store. Routes may come in any order (sorted ones
    /// are faster); of several with the same prefix the last one counts.
    ///
    /// Needs room for the new table beside the old one.
    ///
    /// # Errors
    /// [`FibError::Full`], [`FibError::NoSuchTable`], [`FibError::BadValue`].
    pub fn replace_all(
        &mut self,
        table: TableId,
        routes: impl Iterator<Item = (Prefix4, Value)>,
    ) -> Result<(), FibError> {
        let t = self.table(table)?;
        let routes: Vec<(Prefix4, Value)> = routes.collect();
        for &(_, value) in &routes {
            check_value(value)?;
        }
        let mut width = t.width_for(routes.len());
        loop {
            match self.rebuild(table, &routes, width) {
                // A smaller root may still fit.
                Err(FibError::Full {
                    what: Part::Nodes4, ..
                }) if width > 0 => width -= 1,
                done => return done,
            }
        }
    }

    /// The value of exactly this prefix.
    pub fn get(&self, table: TableId, prefix: Prefix4) -> Option<Value> {
        let root = self.table(table).ok()?.root;
        let (_, Place::Here(block, spot)) = self.locate(root, prefix) else {
            return None;
        };
        let value = self.control.value(block, spot);
        (value != 0).then_some(value)
    }

    /// Number of routes; 0 when there is no such table.
    pub fn len(&self, table: TableId) -> usize {
        self.table(table).map_or(0, |t| t.routes)
    }

    /// Whether a table has no routes, or does not exist.
    pub fn is_empty(&self, table: TableId) -> bool {
        self.len(table) == 0
    }

    /// The routes of a table in the order of their prefixes.
    pub fn iter(&self, table: TableId) -> Routes4<'_> {
        Routes4::new(&self.control, self.table(table).ok().map(|t| t.root))
    }

    /// How full the memory is.
    pub fn usage(&self) -> [Usage; 2] {
        let (units, cells) = (self.image.units(), self.image.cells());
        let unit = UNIT as usize;
        [
            Usage::of(units, Part::Nodes4, unit),
            Usage::of(cells, Part::Leaves4, 1),
        ]
    }

    /// Bytes that the writer's own copy of the routes takes.
    pub fn control_bytes(&self) -> usize {
        self.control.bytes()
    }

    /// Waits for readers and makes everything free that they may have held.
    pub fn reclaim(&mut self) {
        self.image.reclaim();
    }
}
