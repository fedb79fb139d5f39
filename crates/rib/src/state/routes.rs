//! The routes of one family, and what notifications do to them.
//!
//! Rules (spec: replace and append semantics, observed on Linux 6.18):
//!
//! 1. IPv4 routes of one prefix are told apart by TOS and metric; several with the same key stand
//!    in an order, and only the first counts. A new one goes behind its equals, `Replace` takes the
//!    place of the first, `Append` goes behind, `Prepend` before.
//! 2. IPv6 routes with a gateway and the same metric are one multipath route, and every
//!    notification tells the whole set; device routes are told apart by their device as well.
//! 3. An IPv6 `Append` or `Prepend` that adds one nexthop may list the new one first although it is
//!    chosen last.
//! 4. Raddle's own routes are one for each table and prefix; they stand before the kernel's, which take
//!    no notice of them, and dumps do not sweep them.
//! 5. An IPv6 deletion names the nexthops that go; the others keep their order.
//! 6. An FPM route is one for each table and prefix, too, and stands behind all others:
//!    where the kernel has a route of this prefix, it is the kernel's that counts.
//! 7. Of a route that expires the time is told, which ticks away between one telling and the next: see
//!    [`expiry::settled`]. What others tell does not expire.

mod beside;
mod place;

use std::collections::HashMap;

use crate::attrs::{Attrs, AttrsStore};
use crate::event::{ROUTE_FPM, ROUTE_STATIC, Route, RouteOp};
use crate::expiry::{self, Turns};
use crate::prefix::{Addr, Prefix};
use crate::table::{Slot, Table};
use beside::{Beside, Split};
use place::{place4, place6, take_out};

/// Which prefixes changed since the image was last brought up to date.
#[derive(Debug)]
pub(crate) enum Changed<A> {
    /// These, by table.
    Some(Vec<(u32, Prefix<A>)>),
    /// Too many to name.
    All,
}

impl<A> Default for Changed<A> {
    fn default() -> Self {
        Changed::Some(Vec::new())
    }
}

/// More changed prefixes than this, and the tables are built anew in one go.
const MANY: usize = 65_536;

impl<A> Changed<A> {
    fn add(&mut self, table: u32, prefix: Prefix<A>) {
        match self {
            Changed::Some(list) if list.len() < MANY => list.push((table, prefix)),
            Changed::Some(_) => *self = Changed::All,
            Changed::All => {}
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        matches!(self, Changed::Some(list) if list.is_empty())
    }
}

type Tables<A> = HashMap<u32, Table<A>>;

/// All tables of one family.
#[derive(Debug)]
pub(crate) struct Family<A> {
    pub(crate) tables: Tables<A>,
    pub(crate) changed: Changed<A>,
    /// Filled by a running dump; takes the place of `tables` when the dump is complete.
    incoming: Option<Tables<A>>,
    /// What was told since that dump began: it comes behind what the dump tells.
    meanwhile: Vec<(Route, Option<RouteOp>)>,
    /// Raddle's own.
    own: Beside<A>,
    /// FPM routes.
    fpm: Beside<A>,
    /// How many prefixes have an FPM route and no other.
    alone: usize,
    /// Prefixes that turn doubtful, and those of a running dump.
    turns: Turns<A>,
    incoming_turns: Turns<A>,
}

impl<A> Default for Family<A> {
    fn default() -> Self {
        Family {
            tables: Tables::new(),
            changed: Changed::default(),
            incoming: None,
            meanwhile: Vec::new(),
            own: Beside::default(),
            fpm: Beside::default(),
            alone: 0,
            turns: Turns::new(),
            incoming_turns: Turns::new(),
        }
    }
}

impl<A: Addr> Family<A> {
    /// Has the image look at a prefix again, for what is not in its routes.
    pub(crate) fn touch(&mut self, table: u32, prefix: Prefix<A>) {
        self.changed.add(table, prefix);
    }

    /// Applies a route message of this family, at the time `now`; others are not ours.
    pub(crate) fn apply(&mut self, store: &mut AttrsStore, route: Route, op: RouteOp, now: i64) {
        let Some(prefix) = Prefix::<A>::from_net(route.dst) else {
            return;
        };
        let (number, _, mut attrs) = Attrs::of(route);
        if attrs.flags & (ROUTE_STATIC | ROUTE_FPM) != 0 {
            return self.set_beside(store, (number, prefix), attrs);
        }
        if store.has_expiring() || attrs.expires.is_some() {
            self.settle(store, (number, prefix), &mut attrs, now);
        }
        let counts_anew = op == RouteOp::Replace && attrs.has_sid();
        let sweeping = self.incoming.is_some();
        let tables = self.incoming.as_mut().unwrap_or(&mut self.tables);
        let table = tables.entry(number).or_default();
        let Some(slot) = table.get(prefix) else {
            table.set(prefix, Some(Slot::One(store.take(attrs))));
            return if !sweeping {
                self.changed.add(number, prefix)
            };
        };
        let before = slot.ids().to_vec();
        let mut split = Split::of(store, &before);
        let was_alone = split.is_fpm_alone();
        if A::BITS == 32 {
            place4(store, &mut split.kernel, attrs, op);
        } else {
            place6(store, &mut split.kernel, attrs, op);
        }
        self.alone -= usize::from(was_alone);
        let ids = split.join();
        let changes = ids != before;
        if changes {
            table.set(prefix, Slot::from_ids(ids));
        }
        if counts_anew || (changes && !sweeping) {
            self.changed.add(number, prefix);
        }
    }

    /// Applies a deletion.
    pub(crate) fn remove(&mut self, store: &mut AttrsStore, route: Route) {
        let Some(prefix) = Prefix::<A>::from_net(route.dst) else {
            return;
        };
        let (number, _, attrs) = Attrs::of(route);
        if attrs.has_sid() {
            // Whatever is left, or comes back, counts anew.
            self.changed.add(number, prefix);
        }
        if attrs.flags & (ROUTE_STATIC | ROUTE_FPM) != 0 {
            return self.drop_beside(store, (number, prefix), attrs.flags);
        }
        let tables = self.incoming.as_mut().unwrap_or(&mut self.tables);
        let Some(table) = tables.get_mut(&number) else {
            return;
        };
        let Some(slot) = table.get(prefix) else {
            return;
        };
        let mut split = Split::of(store, slot.ids());
        if !take_out::<A>(store, &mut split.kernel, &attrs) {
            return;
        }
        self.alone += usize::from(split.is_fpm_alone());
        table.set(prefix, Slot::from_ids(split.join()));
        if self.incoming.is_none() {
            self.changed.add(number, prefix);
        }
    }

    /// Applies a notification that came while a dump runs: now, and to what the dump tells once it is complete, which
    /// may or may not have it.
    pub(crate) fn meanwhile(
        &mut self,
        store: &mut AttrsStore,
        route: Route,
        op: Option<RouteOp>,
        now: i64,
    ) {
        let incoming = self.incoming.take();
        self.tell(store, route.clone(), op, now);
        self.incoming = incoming;
        if self.incoming.is_some() {
            self.meanwhile.push((route, op));
        }
    }

    /// Applies it to what a dump told. An IPv4 route that is told as new was the only one of its key then: where the dump
    /// has one of that key, it came to it later.
    fn tell_again(&mut self, store: &mut AttrsStore, route: Route, op: Option<RouteOp>, now: i64) {
        let tables = self.incoming.as_ref().unwrap_or(&self.tables);
        let prefix = Prefix::<A>::from_net(route.dst);
        let slot = prefix.and_then(|prefix| tables.get(&route.table)?.get(prefix));
        let has_key = |slot: &Slot| {
            let mut known = slot.ids().iter().map(|id| store.get(*id));
            known.any(|attrs| (attrs.tos, attrs.metric) == (route.tos, route.metric))
        };
        if A::BITS == 32 && op == Some(RouteOp::Add) && slot.is_some_and(has_key) {
            return;
        }
        self.tell(store, route, op, now);
    }

    /// Whether there is no route.
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.values().all(Table::is_empty)
    }

    fn tell(&mut self, store: &mut AttrsStore, route: Route, op: Option<RouteOp>, now: i64) {
        match op {
            Some(op) => self.apply(store, route, op, now),
            None => self.remove(store, route),
        }
    }

    /// Rule 7: when a route that is told expires, and when its prefix is to be looked at because of that.
    fn settle(
        &mut self,
        store: &AttrsStore,
        (table, prefix): (u32, Prefix<A>),
        attrs: &mut Attrs,
        now: i64,
    ) {
        let known = self.tables.get(&table).and_then(|t| t.get(prefix));
        attrs.expires = expiry::settled(store, known.map_or(&[], Slot::ids), attrs, now);
        let turns = match self.incoming {
            Some(_) => &mut self.incoming_turns,
            None => &mut self.turns,
        };
        // What is past is looked at with what was told.
        let turn = attrs.expires.map(expiry::turn).filter(|at| *at > now);
        turns.extend(turn.map(|at| (at, table, prefix)));
    }

    /// The clock goes on: prefixes whose routes turn doubtful are to be looked at again.
    pub(crate) fn tick(&mut self, now: i64) {
        while self.turns.first().is_some_and(|(at, ..)| *at <= now) {
            if let Some((_, table, prefix)) = self.turns.pop_first() {
                self.changed.add(table, prefix);
            }
        }
    }

    /// Whether the table has a route of this prefix.
    pub(crate) fn has(&self, number: u32, prefix: Prefix<A>) -> bool {
        let table = self.tables.get(&number);
        table.is_some_and(|table| table.get(prefix).is_some())
    }

    pub(crate) fn sweep_begin(&mut self, store: &mut AttrsStore) {
        // What was told before a dump began is in it.
        self.meanwhile.clear();
        if let Some(abandoned) = self.incoming.replace(Tables::new()) {
            release(store, abandoned);
        }
        self.incoming_turns.clear();
    }

    /// Puts the dumped tables in place of the old and notes where they differ.
    pub(crate) fn sweep_end(&mut self, store: &mut AttrsStore, now: i64) {
        for (route, op) in std::mem::take(&mut self.meanwhile) {
            self.tell_again(store, route, op, now);
        }
        let Some(mut new) = self.incoming.take() else {
            return;
        };
        self.turns = std::mem::take(&mut self.incoming_turns);
        self.alone = beside::join_in(store, &mut new, &self.own, &self.fpm);
        let old = std::mem::replace(&mut self.tables, new);
        if old.values().all(Table::is_empty) {
            self.changed = Changed::All;
            return;
        }
        let empty = Table::default();
        let mut numbers: Vec<u32> = old.keys().chain(self.tables.keys()).copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            let before = old.get(&number).unwrap_or(&empty);
            let after = self.tables.get(&number).unwrap_or(&empty);
            compare(before, after, |prefix| self.changed.add(number, prefix));
        }
        release(store, old);
    }
}

fn release<A: Addr>(store: &mut AttrsStore, tables: Tables<A>) {
    for table in tables.values() {
        for (_, slot) in table.iter() {
            for id in slot.ids() {
                store.drop_ref(*id);
            }
        }
    }
}

/// Calls `differs` with each prefix whose routes are not the same in both tables.
fn compare<A: Addr>(before: &Table<A>, after: &Table<A>, mut differs: impl FnMut(Prefix<A>)) {
    let (mut old, mut new) = (before.iter().peekable(), after.iter().peekable());
    loop {
        match (old.peek(), new.peek()) {
            (Some((p, a)), Some((q, b))) if p == q => {
                if a != b {
                    differs(*p);
                }
                old.next();
                new.next();
            }
            (Some((p, _)), Some((q, _))) if p < q => {
                differs(*p);
                old.next();
            }
            (_, Some((q, _))) => {
                differs(*q);
                new.next();
            }
            (Some((p, _)), None) => {
                differs(*p);
                old.next();
            }
            (None, None) => return,
        }
    }
}
