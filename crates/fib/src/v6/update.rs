//! How a change of the routes becomes a change of the image.

use super::control::{Interval, NONE, Place, Slots, SpanId, UNBUILT, key};
use super::hosts::Hashed;
use super::layout::{Compare, Entry, MAX_OUTSIDE, POINTER, STRIDE};
use super::lone::Lone;
use super::{Fib6, RANK_FROM, Table};
use crate::{FibError, Memory6, Prefix6, TableId, Value};

/// Memory for one span's intervals that is used again and again.
pub(super) type Scratch = (Vec<Interval>, Vec<super::image::Cut>);

/// A span with background, entry, compare and slots of its hash table from before a change.
#[derive(Debug)]
pub(super) struct Before(SpanId, Value, u32, Option<Compare>, Option<Slots>);

impl<M: Memory6> Fib6<M> {
    pub(super) fn table(&self, table: TableId) -> Result<&Table, FibError> {
        let found = self.tables.get(table.at()).and_then(Option::as_ref);
        found.ok_or(FibError::NoSuchTable(table.index()))
    }

    // ---- single changes ----------------------------------------------------------------------

    /// Changes the value of one prefix whose span exists, 0 for none, and tells the one before.
    pub(super) fn change(
        &mut self,
        table: TableId,
        place: &Place,
        prefix: Prefix6,
        value: Value,
    ) -> Result<Value, FibError> {
        let (span, local) = (place.deepest(), place.local);
        let old = self.control.set_value(span, local, value);
        if old == value {
            return Ok(old);
        }
        let tally = i32::from(value != 0) - i32::from(old != 0);
        let way = &place.spans[..place.depth];
        self.control.tally(way, prefix, tally);
        self.image.begin(value == 0);
        let done = if self.control.span(span).is_empty() && place.depth > 1 {
            self.cut(table, place, prefix)
        } else {
            self.refresh_and_publish(table, place, prefix, (local.key(), local.last()))
        };
        if let Err(error) = done {
            self.control.set_value(span, local, old);
            self.control.tally(way, prefix, -tally);
            return Err(error);
        }
        Ok(old)
    }

    /// Adds a prefix together with spans that are missing.
    pub(super) fn hang(
        &mut self,
        table: TableId,
        place: &Place,
        prefix: Prefix6,
        value: Value,
    ) -> Result<(), FibError> {
        self.image.begin(false);
        self.control.add(place, prefix, value);
        self.tally_way(table, prefix, 1)?;
        let at = key(prefix.addr(), place.depth - 1);
        let done = self.refresh_and_publish(table, place, prefix, (at, at));
        if done.is_err() {
            self.tally_way(table, prefix, -1)?;
            let above = self.control.span_mut(place.deepest());
            if let Some(chain) = above.children.remove(&at) {
                // Nothing of it is in the image.
                self.control.drop_tree(chain, &mut Vec::new());
            }
        }
        done
    }

    /// Counts a route in all spans on its way.
    fn tally_way(&mut self, table: TableId, prefix: Prefix6, change: i32) -> Result<(), FibError> {
        let place = self.control.locate(self.table(table)?.root, prefix);
        self.control
            .tally(&place.spans[..place.depth], prefix, change);
        Ok(())
    }

    /// Cuts off the last span of a place, which has become empty, with all spans above it that
    /// hold nothing else.
    fn cut(&mut self, table: TableId, place: &Place, prefix: Prefix6) -> Result<(), FibError> {
        let mut depth = place.depth - 1;
        while depth > 1 && self.control.span(place.spans[depth - 1]).weight() == 1 {
            depth -= 1;
        }
        let (above, gone) = (place.spans[depth - 1], place.spans[depth]);
        let at = key(prefix.addr(), depth - 1);
        self.control.span_mut(above).children.remove(&at);
        let upto = Place { depth, ..*place };
        // Nothing is replaced before the refresh has succeeded, so it may commit first.
        let done = self.refresh_and_publish(table, &upto, prefix, (at, at));
        if done.is_err() {
            self.control.span_mut(above).children.insert(at, gone);
            return done;
        }
        let mut entries = Vec::new();
        self.control.drop_tree(gone, &mut entries);
        self.image.replace_many(&mut entries);
        self.image.commit();
        Ok(())
    }

    /// Publishes what has changed between two keys of the last span of a place: by one store into
    /// the span above, or into one further up where those in between are compares, which are made
    /// anew. Puts everything back on error.
    fn refresh_and_publish(
        &mut self,
        table: TableId,
        place: &Place,
        prefix: Prefix6,
        keys: (u16, u16),
    ) -> Result<(), FibError> {
        let done = self.refresh_upwards(table, place, prefix, keys);
        if done.is_err() {
            self.undo();
            return done;
        }
        self.changed.clear();
        self.image.commit();
        Ok(())
    }

    fn refresh_upwards(
        &mut self,
        table: TableId,
        place: &Place,
        prefix: Prefix6,
        (mut first, mut last): (u16, u16),
    ) -> Result<(), FibError> {
        // What is below a hash table is not in the image.
        let mut lowest = place.depth;
        let mut hashed = None;
        if let Some((done, depth)) = self.hash_route(place, prefix)? {
            if done == Hashed::InPlace {
                return Ok(());
            }
            (lowest, first, last) = (depth + 1, 0, u16::MAX);
            hashed = (done == Hashed::Anew).then_some(lowest);
        }
        for depth in (1..=lowest).rev() {
            let id = place.spans[depth - 1];
            if hashed != Some(depth) {
                let span = self.control.span(id);
                let before = (span.entry, span.compare);
                self.refresh(id, first, last)?;
                if depth == 1 {
                    return self.plan_root(table, id, before.0);
                }
                let span = self.control.span(id);
                if (span.entry, span.compare) == before {
                    break;
                }
            }
            let above = self.control.span(place.spans[depth - 2]);
            if above.compare.is_none() && above.entry & POINTER != 0 {
                let structure = above.entry;
                let entry = self.placed(id)?;
                self.image
                    .plan_key(structure, key(prefix.addr(), depth - 2), entry);
                break;
            }
            (first, last) = (0, u16::MAX);
        }
        Ok(())
    }

    /// Plans the entry of a root if it differs from the one before.
    fn plan_root(&mut self, table: TableId, root: SpanId, before: u32) -> Result<(), FibError> {
        let entry = self.placed(root)?;
        if entry != before {
            self.image.plan_root(table.index(), entry);
        }
        Ok(())
    }

    fn undo(&mut self) {
        self.image.abort();
        while let Some(Before(id, background, entry, compare, hashed)) = self.changed.pop() {
            let span = self.control.span_mut(id);
            (span.background, span.entry, span.compare) = (background, entry, compare);
            span.hashed = hashed;
            // What stays a hash table is not to become something else by each change, removals among them.
            span.crowded &= hashed.is_none();
        }
    }

    // ---- spans -------------------------------------------------------------------------------

    /// Brings the keys `first..=last` of a span, which are those of some prefix, up to date in the
    /// image: plans single stores where the span's structure allows it, or builds a new one.
    fn refresh(&mut self, id: SpanId, first: u16, last: u16) -> Result<(), FibError> {
        let mut scratch = self.spare.pop().unwrap_or_default();
        let done = self.refresh_with(id, first, last, &mut scratch);
        scratch.0.clear();
        scratch.1.clear();
        self.spare.push(scratch);
        done
    }

    fn refresh_with(
        &mut self,
        id: SpanId,
        first: u16,
        last: u16,
        (intervals, cuts): &mut Scratch,
    ) -> Result<(), FibError> {
        if self.hash_anew(id)? {
            return Ok(());
        }
        let span = self.control.span(id);
        let old = Entry::parse(span.entry);
        let direct = span.direct;
        let in_place = match old {
            Entry::Direct(_) => direct,
            // Fewer prefixes than that cannot make half as many intervals as a group is for.
            Entry::Rank(_) => !direct && span.weight() >= RANK_FROM / 4,
            _ => false,
        };
        let (first, last) = match old {
            Entry::Direct(_) if in_place => (first, last),
            Entry::Rank(_) if in_place => (first & !31, last | 31),
            _ => (0, u16::MAX),
        };
        self.control.sweep(id, first, last, intervals);
        for interval in intervals.iter() {
            self.settle(interval)?;
        }
        if !direct && !in_place {
            let background = self.control.span(id).background;
            let lone = Lone::of(intervals, background).filter(|lone| lone.outside < MAX_OUTSIDE);
            if let Some(lone) = lone {
                let compare = self.compare(lone)?;
                if self.control.span(id).compare != Some(compare) {
                    self.set(id, 0, Some(compare));
                }
                return Ok(());
            }
        }
        for interval in intervals.iter() {
            let entry = match interval.child {
                NONE => interval.value,
                child => self.placed(child)?,
            };
            cuts.push((interval.end, entry));
        }
        let entry = match old {
            Entry::Direct(at) if in_place => {
                self.image.plan_direct(at, first, cuts);
                return Ok(());
            }
            Entry::Rank(at) if in_place => {
                return self.image.plan_rank(at, first, cuts);
            }
            _ if direct => self.image.build_direct(cuts)?,
            _ => match cuts[..] {
                [(_, value)] => value,
                _ if cuts.len() > RANK_FROM => self.image.build_rank(cuts)?,
                _ => self.image.build_block(cuts)?,
            },
        };
        self.set(id, entry, None);
        Ok(())
    }

    /// Brings a child whose background has changed up to date.
    fn settle(&mut self, &Interval { child, value, .. }: &Interval) -> Result<(), FibError> {
        if child == NONE || self.control.span(child).background == value {
            return Ok(());
        }
        self.note(child);
        self.control.span_mut(child).background = value;
        if self.hash_outside(child) {
            return Ok(());
        }
        self.refresh(child, 0, u16::MAX)
    }

    /// The compare for a span with one way on. It takes in the compare below where both fit.
    fn compare(&mut self, lone: Lone) -> Result<Compare, FibError> {
        let mut compare = Compare {
            bits: u128::from(lone.key) << 112,
            len: lone.len,
            inside: lone.value,
            outside: lone.outside,
        };
        if lone.child == NONE {
            return Ok(compare);
        }
        match self.control.span(lone.child).compare {
            Some(below) if below.outside == lone.outside => {
                compare.bits |= below.bits >> STRIDE;
                compare.len += below.len;
                compare.inside = below.inside;
                if self.control.span(lone.child).is_placed() {
                    self.set(lone.child, 0, Some(below));
                }
            }
            _ => compare.inside = self.placed(lone.child)?,
        }
        Ok(compare)
    }

    /// The entry of a span, which gets one if it was a part of the span above.
    fn placed(&mut self, id: SpanId) -> Result<u32, FibError> {
        let span = self.control.span(id);
        match span.compare {
            Some(compare) if !span.is_placed() => {
                let entry = self.image.build_compare(compare)?;
                self.set(id, entry, Some(compare));
                Ok(entry)
            }
            _ => Ok(span.entry),
        }
    }

    /// Gives a span another entry, and what the old one points to back.
    pub(super) fn set(&mut self, id: SpanId, entry: u32, compare: Option<Compare>) {
        self.note(id);
        let span = self.control.span_mut(id);
        self.image.replace(span.entry);
        (span.entry, span.compare, span.hashed) = (entry, compare, None);
    }

    /// Remembers what the image has of a span, to put it back.
    pub(super) fn note(&mut self, id: SpanId) {
        let span = self.control.span(id);
        let before = Before(id, span.background, span.entry, span.compare, span.hashed);
        self.changed.push(before);
    }

    // ---- whole tables ------------------------------------------------------------------------

    /// Empties a table.
    pub(super) fn clear(&mut self, table: TableId, root: SpanId) {
        let wide = self.table(table).is_ok_and(|t| t.wide);
        let empty = self.control.new_root();
        self.swap_root(table, root, Table::new(empty, 0, wide));
    }

    /// Makes the whole of a root anew.
    fn refresh_root(&mut self, root: SpanId) -> Result<u32, FibError> {
        self.refresh(root, 0, u16::MAX)?;
        self.placed(root)
    }

    /// Publishes another root for a table and retires the one that it had.
    fn swap_root(&mut self, table: TableId, old: SpanId, new: Table) {
        self.image
            .plan_root(table.index(), self.control.span(new.root).entry);
        let mut entries = Vec::new();
        self.control.drop_tree(old, &mut entries);
        self.image.replace_many(&mut entries);
        self.tables[table.at()] = Some(new);
        self.changed.clear();
        self.image.commit();
    }

    /// Builds a table anew and publishes it in place of the old one.
    pub(super) fn rebuild(
        &mut self,
        table: TableId,
        routes: &[(Prefix6, Value)],
        direct: bool,
    ) -> Result<(), FibError> {
        let &Table {
            root: old, wide, ..
        } = self.table(table)?;
        let root = self.control.new_root();
        let mut count = 0;
        for &(prefix, value) in routes {
            let place = self.control.locate(root, prefix);
            count += usize::from(self.control.add(&place, prefix, value) == 0);
        }
        self.control.tally_all(root, 0);
        self.control.span_mut(root).direct = direct;
        self.image.begin(false);
        if let Err(error) = self.refresh_root(root) {
            self.undo();
            self.control.drop_tree(root, &mut Vec::new());
            return Err(error);
        }
        self.swap_root(table, old, Table::new(root, count, wide));
        Ok(())
    }

    /// Counts a route that came or went, and makes the root direct, or not, where it is time. A
    /// table that finds no room for that stays as it is for a while.
    pub(super) fn count(&mut self, table: TableId, change: isize) {
        let Some(t) = self.tables.get_mut(table.at()).and_then(Option::as_mut) else {
            return;
        };
        t.routes = t.routes.saturating_add_signed(change);
        let (routes, root) = (t.routes, t.root);
        let is_direct = self.control.span(root).direct;
        let direct = t.direct_for(routes, is_direct);
        if direct == is_direct || t.settled.contains(&routes) {
            return;
        }
        self.control.span_mut(root).direct = direct;
        self.image.begin(false);
        match self.refresh_root(root) {
            Ok(entry) => {
                self.image.plan_root(table.index(), entry);
                self.changed.clear();
                self.image.commit();
            }
            Err(_) => {
                self.undo();
                self.control.span_mut(root).direct = is_direct;
                if let Some(t) = &mut self.tables[table.at()] {
                    t.settled = routes / 2..routes * 2;
                }
            }
        }
    }
}

const _: () = assert!(UNBUILT > 0x7fff_ffff, "no value is mistaken for it");
