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

use std::collections::HashMap;

use crate::attrs::{Attrs, AttrsId, AttrsStore};
use crate::event::{ROUTE_OWN, Route, RouteNexthop, RouteOp, RouteTarget};
use crate::prefix::{Addr, Prefix};
use crate::table::{Slot, Table};

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

    /// Whether a route of this table may have changed.
    pub(crate) fn touches(&self, table: u32) -> bool {
        match self {
            Changed::Some(list) => list.iter().any(|(number, _)| *number == table),
            Changed::All => true,
        }
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
    /// Raddle's own, each with a use of its attributes.
    own: HashMap<(u32, Prefix<A>), AttrsId>,
}

impl<A> Default for Family<A> {
    fn default() -> Self {
        Family {
            tables: Tables::new(),
            changed: Changed::default(),
            incoming: None,
            own: HashMap::new(),
        }
    }
}

impl<A: Addr> Family<A> {
    /// Applies a route message of this family; others are not ours.
    pub(crate) fn apply(&mut self, store: &mut AttrsStore, route: Route, op: RouteOp) {
        let Some(prefix) = Prefix::<A>::from_net(route.dst) else {
            return;
        };
        let (number, _, attrs) = Attrs::of(route);
        if attrs.flags & ROUTE_OWN != 0 {
            let id = store.take(attrs);
            return self.set_own(store, number, prefix, Some(id));
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
        let (own, mut ids) = split_own(store, &before);
        if A::BITS == 32 {
            place4(store, &mut ids, attrs, op);
        } else {
            place6(store, &mut ids, attrs, op);
        }
        ids.splice(..0, own);
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
        if attrs.flags & ROUTE_OWN != 0 {
            return self.set_own(store, number, prefix, None);
        }
        if attrs.has_sid() {
            // Whatever is left, or comes back, counts anew.
            self.changed.add(number, prefix);
        }
        let tables = self.incoming.as_mut().unwrap_or(&mut self.tables);
        let Some(table) = tables.get_mut(&number) else {
            return;
        };
        let Some(slot) = table.get(prefix) else {
            return;
        };
        let (own, mut ids) = split_own(store, slot.ids());
        if !take_out::<A>(store, &mut ids, &attrs) {
            return;
        }
        ids.splice(..0, own);
        table.set(prefix, Slot::from_ids(ids));
        if self.incoming.is_none() {
            self.changed.add(number, prefix);
        }
    }

    /// Rule 4: puts one of raddle's own routes in its place, or takes it away.
    fn set_own(
        &mut self,
        store: &mut AttrsStore,
        number: u32,
        prefix: Prefix<A>,
        id: Option<AttrsId>,
    ) {
        let before = match id {
            Some(id) => {
                store.keep(id);
                self.own.insert((number, prefix), id)
            }
            None => self.own.remove(&(number, prefix)),
        };
        if let Some(before) = before {
            store.drop_ref(before);
        }
        let table = self.tables.entry(number).or_default();
        let ids = table.get(prefix).map_or(&[][..], Slot::ids);
        let (gone, mut ids) = split_own(store, ids);
        ids.splice(..0, id);
        table.set(prefix, Slot::from_ids(ids));
        if let Some(gone) = gone {
            store.drop_ref(gone);
        }
        self.changed.add(number, prefix);
    }

    /// Whether the table has a route of this prefix.
    pub(crate) fn has(&self, number: u32, prefix: Prefix<A>) -> bool {
        let table = self.tables.get(&number);
        table.is_some_and(|table| table.get(prefix).is_some())
    }

    pub(crate) fn sweep_begin(&mut self, store: &mut AttrsStore) {
        if let Some(abandoned) = self.incoming.replace(Tables::new()) {
            release(store, abandoned);
        }
    }

    /// Puts the dumped tables in place of the old and notes where they differ.
    pub(crate) fn sweep_end(&mut self, store: &mut AttrsStore) {
        let Some(mut new) = self.incoming.take() else {
            return;
        };
        for ((number, prefix), id) in &self.own {
            store.keep(*id);
            let table = new.entry(*number).or_default();
            let mut ids = table.get(*prefix).map_or(&[][..], Slot::ids).to_vec();
            ids.insert(0, *id);
            table.set(*prefix, Slot::from_ids(ids));
        }
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

/// Raddle's own route among those of a prefix, and the kernel's.
fn split_own(store: &AttrsStore, ids: &[AttrsId]) -> (Option<AttrsId>, Vec<AttrsId>) {
    match ids {
        [own, rest @ ..] if store.get(*own).flags & ROUTE_OWN != 0 => (Some(*own), rest.to_vec()),
        _ => (None, ids.to_vec()),
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

/// Order of IPv4 routes of one prefix: larger TOS first, then smaller metric.
fn key4(attrs: &Attrs) -> (u8, u32) {
    (u8::MAX - attrs.tos, attrs.metric)
}

/// Rule 1.
fn place4(store: &mut AttrsStore, ids: &mut Vec<AttrsId>, attrs: Attrs, op: RouteOp) {
    let key = key4(&attrs);
    let first = ids.partition_point(|id| key4(store.get(*id)) < key);
    let behind = ids.partition_point(|id| key4(store.get(*id)) <= key);
    let id = store.take(attrs);
    match op {
        RouteOp::Replace if first < behind => {
            let old = std::mem::replace(&mut ids[first], id);
            store.drop_ref(old);
        }
        RouteOp::Prepend => ids.insert(first, id),
        RouteOp::Add | RouteOp::Append | RouteOp::Replace => ids.insert(behind, id),
    }
}

/// How an IPv6 route joins others of its metric.
#[derive(PartialEq)]
enum Kind6 {
    Multipath,
    Object,
    Device(u32),
}

fn kind6(attrs: &Attrs) -> Kind6 {
    match &attrs.target {
        RouteTarget::Object(_) => Kind6::Object,
        RouteTarget::Multipath(_) => Kind6::Multipath,
        RouteTarget::Single(nh) if nh.gateway.is_some() => Kind6::Multipath,
        RouteTarget::Single(nh) => Kind6::Device(nh.index),
        RouteTarget::None => Kind6::Device(0),
    }
}

/// Rules 2 and 3. A replacement takes the place of its own kind, else of any route of its metric
/// (`fib6_add_rt2node`).
fn place6(store: &mut AttrsStore, ids: &mut Vec<AttrsId>, mut attrs: Attrs, op: RouteOp) {
    let rival = |id: &AttrsId| {
        let other = store.get(*id);
        (other.metric, other.src) == (attrs.metric, attrs.src)
    };
    let mut at = ids
        .iter()
        .position(|id| rival(id) && kind6(store.get(*id)) == kind6(&attrs));
    if at.is_none() && op == RouteOp::Replace {
        at = ids.iter().position(rival);
    }
    match at {
        Some(at) => {
            if matches!(op, RouteOp::Append | RouteOp::Prepend) {
                rotate_appended(&mut attrs.target, &store.get(ids[at]).target);
            }
            let id = store.take(attrs);
            let old = std::mem::replace(&mut ids[at], id);
            store.drop_ref(old);
        }
        None => {
            let at = ids.partition_point(|id| store.get(*id).metric <= attrs.metric);
            let id = store.take(attrs);
            ids.insert(at, id);
        }
    }
}

/// Rule 3: moves a first nexthop that is new behind the old ones.
fn rotate_appended(target: &mut RouteTarget, known: &RouteTarget) {
    let RouteTarget::Multipath(hops) = target else {
        return;
    };
    let known = hops_of(known);
    let is_known = |hop: &RouteNexthop| known.iter().any(|k| same_hop(k, hop));
    if hops.len() == known.len() + 1
        && hops.first().is_some_and(|h| !is_known(h))
        && hops[1..].iter().all(is_known)
    {
        hops.rotate_left(1);
    }
}

fn hops_of(target: &RouteTarget) -> &[RouteNexthop] {
    match target {
        RouteTarget::Single(hop) => std::slice::from_ref(hop),
        RouteTarget::Multipath(hops) => hops,
        RouteTarget::None | RouteTarget::Object(_) => &[],
    }
}

/// The same gateway, link and encapsulation (`rt6_duplicate_nexthop`); who does not say which encapsulation means
/// any.
fn same_hop(a: &RouteNexthop, b: &RouteNexthop) -> bool {
    let either = a.encap.is_none() || b.encap.is_none();
    (a.gateway, a.index) == (b.gateway, b.index) && (either || a.encap == b.encap)
}

/// Takes the route that a deletion names out of `ids`; says whether there was one.
fn take_out<A: Addr>(store: &mut AttrsStore, ids: &mut Vec<AttrsId>, gone: &Attrs) -> bool {
    let same_key = |a: &Attrs| (a.tos, a.metric, a.src) == (gone.tos, gone.metric, gone.src);
    let exact = |a: &Attrs| same_key(a) && a.kind == gone.kind && same_target(a, gone);
    let at = ids
        .iter()
        .position(|id| exact(store.get(*id)))
        .or_else(|| {
            ids.iter()
                .position(|id| holds_hops::<A>(store.get(*id), gone, same_key))
        })
        .or_else(|| ids.iter().position(|id| same_key(store.get(*id))));
    let Some(at) = at else { return false };
    let rest = rest_after::<A>(store.get(ids[at]), gone);
    let old = match rest {
        Some(rest) => {
            let id = store.take(rest);
            std::mem::replace(&mut ids[at], id)
        }
        None => ids.remove(at),
    };
    store.drop_ref(old);
    true
}

fn same_target(a: &Attrs, b: &Attrs) -> bool {
    let (x, y) = (hops_of(&a.target), hops_of(&b.target));
    match (&a.target, &b.target) {
        (RouteTarget::Object(p), RouteTarget::Object(q)) => p == q,
        _ => x.len() == y.len() && x.iter().zip(y).all(|(p, q)| same_hop(p, q)),
    }
}

/// Whether an IPv6 route is the multipath route that `gone` takes nexthops from.
fn holds_hops<A: Addr>(a: &Attrs, gone: &Attrs, same_key: impl Fn(&Attrs) -> bool) -> bool {
    let hops = hops_of(&a.target);
    let leaving = hops_of(&gone.target);
    A::BITS == 128
        && same_key(a)
        && !leaving.is_empty()
        && leaving.iter().all(|g| hops.iter().any(|h| same_hop(h, g)))
}

/// Rule 5: what is left of a route; none when it goes altogether.
fn rest_after<A: Addr>(route: &Attrs, gone: &Attrs) -> Option<Attrs> {
    if A::BITS == 32 {
        return None;
    }
    let leaving = hops_of(&gone.target);
    let mut left: Vec<RouteNexthop> = hops_of(&route.target)
        .iter()
        .filter(|h| !leaving.iter().any(|g| same_hop(h, g)))
        .cloned()
        .collect();
    let target = match left.len() {
        0 => return None,
        1 => RouteTarget::Single(left.remove(0)),
        _ => RouteTarget::Multipath(left),
    };
    (!leaving.is_empty()).then(|| Attrs {
        target,
        ..route.clone()
    })
}
