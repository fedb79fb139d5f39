//! Routes beside the kernel's: raddle's own, and those that a routing daemon sends by FPM (rules 4 and 6).

use std::collections::HashMap;

use super::{Family, Tables};
use crate::attrs::{Attrs, AttrsId, AttrsStore};
use crate::event::{ROUTE_FPM, ROUTE_STATIC, Route};
use crate::prefix::{Addr, Prefix};
use crate::table::Slot;

/// The most routes of a family that are taken from FPM.
const TOLD_MOST: usize = 1 << 22;

/// Table and prefix.
type Key<A> = (u32, Prefix<A>);

/// Routes of one source, each with a use of its attributes, and with the round that it came in last.
pub(super) type Beside<A> = HashMap<Key<A>, (AttrsId, u32)>;

/// The routes of a prefix by where they come from.
pub(super) struct Split {
    own: Option<AttrsId>,
    pub(super) kernel: Vec<AttrsId>,
    fpm: Option<AttrsId>,
}

impl Split {
    pub(super) fn of(store: &AttrsStore, mut ids: &[AttrsId]) -> Split {
        let is = |id: &AttrsId, flag| store.get(*id).flags & flag != 0;
        let (mut own, mut fpm) = (None, None);
        if let [first, rest @ ..] = ids
            && is(first, ROUTE_STATIC)
        {
            (own, ids) = (Some(*first), rest);
        }
        if let [rest @ .., last] = ids
            && is(last, ROUTE_FPM)
        {
            (fpm, ids) = (Some(*last), rest);
        }
        Split {
            own,
            kernel: ids.to_vec(),
            fpm,
        }
    }

    /// Whether there is an FPM route, and no other.
    pub(super) fn is_fpm_alone(&self) -> bool {
        self.own.is_none() && self.kernel.is_empty() && self.fpm.is_some()
    }

    /// All of them, in the order in which they count.
    pub(super) fn join(self) -> Vec<AttrsId> {
        let mut ids = self.kernel;
        ids.splice(..0, self.own);
        ids.extend(self.fpm);
        ids
    }

    fn place(&mut self, flag: u32) -> &mut Option<AttrsId> {
        match flag {
            ROUTE_STATIC => &mut self.own,
            _ => &mut self.fpm,
        }
    }
}

/// Which of the two flags there is.
fn source(flags: u32) -> u32 {
    match flags & ROUTE_STATIC {
        0 => ROUTE_FPM,
        _ => ROUTE_STATIC,
    }
}

/// Puts these routes among the kernel's, which have none of them yet. How many of FPM's are the only ones
/// of their prefix.
pub(super) fn join_in<A: Addr>(
    store: &mut AttrsStore,
    tables: &mut Tables<A>,
    own: &Beside<A>,
    fpm: &Beside<A>,
) -> usize {
    let mut alone = 0;
    for (flag, routes) in [(ROUTE_STATIC, own), (ROUTE_FPM, fpm)] {
        for ((number, prefix), (id, _)) in routes {
            store.keep(*id);
            let table = tables.entry(*number).or_default();
            let mut split = Split::of(store, table.get(*prefix).map_or(&[], Slot::ids));
            *split.place(flag) = Some(*id);
            alone += usize::from(split.is_fpm_alone());
            table.set(*prefix, Slot::from_ids(split.join()));
        }
    }
    alone
}

impl<A: Addr> Family<A> {
    /// Puts a route in its place beside the kernel's.
    pub(super) fn set_beside(&mut self, store: &mut AttrsStore, key: Key<A>, attrs: Attrs) {
        let flag = source(attrs.flags);
        let id = store.take(attrs);
        self.exchange(store, key, flag, Some((id, 0)));
    }

    /// Takes the route with this one of the flags away.
    pub(super) fn drop_beside(&mut self, store: &mut AttrsStore, key: Key<A>, flags: u32) {
        self.exchange(store, key, source(flags), None);
    }

    /// An FPM route of this round, in the place of the one before, whatever its flags say
    /// whose it is. Whether there was room for it.
    pub(crate) fn add_fpm(&mut self, store: &mut AttrsStore, mut route: Route, round: u32) -> bool {
        let Some(prefix) = Prefix::<A>::from_net(route.dst) else {
            return true;
        };
        let is_known = self.fpm.contains_key(&(route.table, prefix));
        if !is_known && self.fpm.len() >= TOLD_MOST {
            return false;
        }
        route.flags = route.flags & !ROUTE_STATIC | ROUTE_FPM;
        route.expires = None;
        let (number, _, attrs) = Attrs::of(route);
        let id = store.take(attrs);
        match self.fpm.get_mut(&(number, prefix)) {
            Some(known) if known.0 == id => {
                known.1 = round;
                store.drop_ref(id);
            }
            _ => self.exchange(store, (number, prefix), ROUTE_FPM, Some((id, round))),
        }
        true
    }

    /// Takes away the FPM route of this table and prefix.
    pub(crate) fn remove_fpm(&mut self, store: &mut AttrsStore, table: u32, dst: ipnet::IpNet) {
        if let Some(prefix) = Prefix::<A>::from_net(dst) {
            self.exchange(store, (table, prefix), ROUTE_FPM, None);
        }
    }

    /// Takes away the FPM routes of other rounds than this.
    pub(crate) fn forget_fpm(&mut self, store: &mut AttrsStore, round: u32) {
        let stale = self.fpm.iter().filter(|(_, (_, of))| *of != round);
        let stale: Vec<Key<A>> = stale.map(|(key, _)| *key).collect();
        for key in stale {
            self.exchange(store, key, ROUTE_FPM, None);
        }
    }

    /// The entries of FPM routes with one of these attributes are to be looked at again, where they count.
    pub(crate) fn touch_fpm(&mut self, concerned: impl Fn(AttrsId) -> bool) {
        if self.alone == 0 {
            return;
        }
        let touched = self.fpm.iter().filter(|(_, (id, _))| concerned(*id));
        let touched = touched.map(|(key, _)| *key);
        let touched: Vec<Key<A>> = touched.filter(|key| self.is_alone(key)).collect();
        for (number, prefix) in touched {
            self.changed.add(number, prefix);
        }
    }

    /// How many FPM routes there are, and how many of them are the only ones of their prefix.
    pub(crate) fn fpm_numbers(&self) -> (usize, usize) {
        (self.fpm.len(), self.alone)
    }

    /// Whether the FPM route of this is the only one.
    fn is_alone(&self, key: &Key<A>) -> bool {
        let slot = self.tables.get(&key.0).and_then(|table| table.get(key.1));
        slot.is_some_and(|slot| slot.ids().len() == 1)
    }

    /// Raddle's own routes.
    pub(crate) fn own(&self) -> impl Iterator<Item = (u32, Prefix<A>, AttrsId)> {
        let all = self.own.iter();
        all.map(|(key, (id, _))| (key.0, key.1, *id))
    }

    /// The routes of FPM that nobody else has.
    pub(crate) fn fpm_alone(&self) -> impl Iterator<Item = (u32, Prefix<A>, AttrsId)> {
        let only = self.fpm.iter().filter(|(key, _)| self.is_alone(key));
        let all = only.take(self.alone);
        all.map(|(key, (id, _))| (key.0, key.1, *id))
    }

    /// Exchanges the route of one source; `new` brings a use of its attributes along.
    fn exchange(
        &mut self,
        store: &mut AttrsStore,
        key: Key<A>,
        flag: u32,
        new: Option<(AttrsId, u32)>,
    ) {
        let routes = match flag {
            ROUTE_STATIC => &mut self.own,
            _ => &mut self.fpm,
        };
        let before = match new {
            Some(new) => {
                store.keep(new.0);
                routes.insert(key, new)
            }
            None => routes.remove(&key),
        };
        if before.is_none() && new.is_none() {
            return;
        }
        let (number, prefix) = key;
        let table = self.tables.entry(number).or_default();
        let mut split = Split::of(store, table.get(prefix).map_or(&[], Slot::ids));
        let was_alone = split.is_fpm_alone();
        let gone = std::mem::replace(split.place(flag), new.map(|(id, _)| id));
        let is_alone = split.is_fpm_alone();
        self.alone = self.alone + usize::from(is_alone) - usize::from(was_alone);
        table.set(prefix, Slot::from_ids(split.join()));
        if table.is_empty() {
            self.tables.remove(&number);
        }
        // One use is the table's, one that of the source.
        for id in [before.map(|(id, _)| id), gone].into_iter().flatten() {
            store.drop_ref(id);
        }
        // What stands behind others changes nothing.
        if flag == ROUTE_STATIC || was_alone || is_alone {
            self.changed.add(number, prefix);
        }
    }
}
