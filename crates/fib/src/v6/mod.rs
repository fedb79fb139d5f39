//! IPv6: the writer.

mod control;
mod hosts;
mod image;
mod iter;
mod layout;
mod lone;
mod lookup;
mod update;

use std::ops::Range;
use std::sync::Arc;

pub use iter::Routes6;
pub use lookup::{lookup6, lookup6_batch};

use crate::table::{TableId, Usage, Value, check_value};
use crate::{FibError, Memory6, Part, Prefix6};
use control::{Control, SpanId};
use image::Image;

/// Intervals above which a span becomes a rank group of 16 KiB; a block takes 6 bytes an interval.
const RANK_FROM: usize = 256;
/// Routes from which on a table's first span is an array of 256 KiB.
const DIRECT_FROM: usize = 10_000;

#[derive(Debug)]
struct Table {
    root: SpanId,
    routes: usize,
    /// Whether the root is to be an array from the first route on.
    wide: bool,
    /// Numbers of routes at which another kind of root is not tried: there was no room.
    settled: Range<usize>,
}

impl Table {
    fn new(root: SpanId, routes: usize, wide: bool) -> Table {
        Table {
            root,
            routes,
            wide,
            settled: 0..0,
        }
    }

    /// Whether the root is to be an array with so many routes. A table shrinks later than it grew.
    fn direct_for(&self, routes: usize, is_direct: bool) -> bool {
        let from = if is_direct {
            DIRECT_FROM / 4
        } else {
            DIRECT_FROM
        };
        routes >= from || self.wide && routes > 0
    }
}

/// The writer of all IPv6 tables in one memory.
///
/// Each change is published before the call returns, by single-word stores, so that a reader finds
/// the old answer or the new one for each address. What readers may still hold is kept until
/// `grace` has returned, which is called rarely and at the latest when memory runs out.
///
/// A call that fails leaves tables and readers as they were.
pub struct Fib6<M: Memory6> {
    image: Image<M>,
    control: Control,
    tables: Vec<Option<Table>>,
    /// Spans that the change under way has touched.
    changed: Vec<update::Before>,
    spare: Vec<update::Scratch>,
}

impl<M: Memory6> Fib6<M> {
    /// Takes over a memory, whose tables are emptied.
    ///
    /// `grace` must not return before every lookup that was under way when it was called has
    /// ended: for XDP programs an RCU grace period, for threads of this process whatever they
    /// agreed on, for a single thread nothing at all.
    pub fn new(memory: Arc<M>, grace: Box<dyn Fn() + Send + Sync>) -> Self {
        Fib6 {
            image: Image::new(memory, grace),
            control: Control::default(),
            tables: Vec::new(),
            changed: Vec::new(),
            spare: Vec::new(),
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

    /// Makes an empty table that is fast from its first route on, and takes 256 KiB from then on if
    /// they are there: its root is an array, as that of a large table.
    ///
    /// # Errors
    /// [`FibError::TooManyTables`] when there is no root left.
    pub fn create_wide_table(&mut self) -> Result<TableId, FibError> {
        self.create(true)
    }

    fn create(&mut self, wide: bool) -> Result<TableId, FibError> {
        let capacity = self.memory().roots().words().len();
        let at = self.tables.iter().position(Option::is_none);
        let at = at.unwrap_or(self.tables.len());
        if at >= capacity {
            return Err(FibError::TooManyTables { capacity });
        }
        let table = Some(Table::new(self.control.new_root(), 0, wide));
        match self.tables.get_mut(at) {
            Some(free) => *free = table,
            None => self.tables.push(table),
        }
        Ok(TableId::new(at))
    }

    /// Drops a table with its routes; lookups in it find nothing from here on. Nothing happens
    /// when there is no such table.
    pub fn drop_table(&mut self, table: TableId) {
        if let Ok(root) = self.table(table).map(|t| t.root) {
            self.clear(table, root);
            if let Some(empty) = self.tables[table.at()].take() {
                self.control.drop_tree(empty.root, &mut Vec::new());
            }
        }
    }

    /// Adds a route or replaces its value, and tells the value that it had.
    ///
    /// # Errors
    /// [`FibError::Full`], [`FibError::NoSuchTable`], [`FibError::BadValue`].
    pub fn insert(
        &mut self,
        table: TableId,
        prefix: Prefix6,
        value: Value,
    ) -> Result<Option<Value>, FibError> {
        check_value(value)?;
        let place = self.control.locate(self.table(table)?.root, prefix);
        let old = match place.missing {
            0 => self.change(table, &place, prefix, value)?,
            _ => {
                self.hang(table, &place, prefix, value)?;
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
    pub fn remove(&mut self, table: TableId, prefix: Prefix6) -> Result<Option<Value>, FibError> {
        let place = self.control.locate(self.table(table)?.root, prefix);
        if place.missing > 0 {
            return Ok(None);
        }
        let old = self.change(table, &place, prefix, 0)?;
        if old != 0 {
            self.count(table, -1);
        }
        Ok((old != 0).then_some(old))
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
        routes: impl Iterator<Item = (Prefix6, Value)>,
    ) -> Result<(), FibError> {
        let t = self.table(table)?;
        let routes: Vec<(Prefix6, Value)> = routes.collect();
        for &(_, value) in &routes {
            check_value(value)?;
        }
        let direct = t.direct_for(routes.len(), false);
        match self.rebuild(table, &routes, direct) {
            // Without the array it may still fit.
            Err(FibError::Full { .. }) if direct => self.rebuild(table, &routes, false),
            done => done,
        }
    }

    /// The value of exactly this prefix.
    pub fn get(&self, table: TableId, prefix: Prefix6) -> Option<Value> {
        let place = self.control.locate(self.table(table).ok()?.root, prefix);
        let span = (place.missing == 0).then(|| self.control.span(place.deepest()))?;
        span.prefixes.get(&place.local).copied()
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
    pub fn iter(&self, table: TableId) -> Routes6<'_> {
        Routes6::new(&self.control, self.table(table).ok().map(|t| t.root))
    }

    /// How full the memory is.
    pub fn usage(&self) -> [Usage; 1] {
        [Usage::of(
            self.image.runs(),
            Part::Words6,
            layout::UNIT as usize,
        )]
    }

    /// Waits for readers and makes everything free that they may have held.
    pub fn reclaim(&mut self) {
        self.image.reclaim();
    }
}
