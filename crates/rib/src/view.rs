//! What a packet sees of the tables: the tables that rules name, one after the other, as one
//! longest-prefix match.
//!
//! Rules for the entry of prefix P in a view of tables T1, T2, ... (`fib_lookup`,
//! `fib6_rule_lookup`: the first table with any match wins, however long it is):
//!
//! 1. The first table that has P gives its best route, unless an earlier table has a prefix that
//!    covers P: then P has no entry. A route that the table's rule passes over (`suppress_prefixlength`) is as if the
//!    table had none, and so are those that are shorter: the longest one decides (`fib4_rule_suppress`). P then has an
//!    entry for what the next tables say, lest a shorter prefix of this one, which refuses, has the last word.
//!    What no table has is as the rules end ([`Lookup::end`]).
//! 2. A host prefix whose match is a direct route over one link, and that is a known neighbour
//!    there, leads to that neighbour.
//! 3. The best route of an IPv4 prefix is the first by metric; a route with a TOS makes the prefix
//!    the kernel's. The best of an IPv6 prefix is the one with the least metric; several that are
//!    not one multipath route, or a source prefix, make it the kernel's.
//! 4. One of raddle's own comes before all others of its prefix.
//! 5. An FPM route counts where it is the only one, and is no route while the nexthop object that it
//!    names is not known, or its links are down. Where it is unreachable or prohibited it drops: the kernel, which
//!    would say so, does not know.
//! 6. Around the time when its best route expires, a prefix is the kernel's ([`is_doubtful`]).
//! 7. A host for which the kernel goes by more than its routes is the kernel's ([`crate::event::KernelHosts`]), and so is what an IPv4
//!    route of table local leads elsewhere than here: until the first rule has come, the kernel looks for the longest prefix of
//!    both local and main (`fib_trie_unmerge`), and nothing tells whether one has.
//! 8. At an address of this machine tunnels may end: what comes there is theirs, unless it may have come in by a VRF, from which
//!    they get nothing.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use raddle_fib::TableId;

use crate::adjacency::Publish;
use crate::attrs::{Attrs, AttrsId};
use crate::event::{ROUTE_FPM, ROUTE_STATIC, RouteKind, RouteTarget};
use crate::expiry::is_doubtful;
use crate::groups::Groups;
use crate::lpm::Lpm;
use crate::prefix::{Addr, Prefix};
use crate::resolve::Spec;
use crate::rules::{Lookup, TABLE_LOCAL, TableLookup};
use crate::state::{Changed, Family, State};
use crate::table::{Slot, Table};
use raddle_image::Lack;
use raddle_image::Reason;

/// One view, and what it holds of groups.
#[derive(Debug)]
pub(crate) struct View<A, L> {
    pub(crate) lookup: Lookup,
    pub(crate) id: TableId,
    /// How many prefixes lead to each group.
    uses: HashMap<u32, u32>,
    /// There was no room: everything goes to the kernel until a rebuild finds some.
    pub(crate) full: Option<Lack>,
    /// How many prefixes and hosts there were when there was no room.
    full_at: Size,
    _family: std::marker::PhantomData<(A, L)>,
}

/// How much there is that takes room in a view.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    /// Prefixes of all its tables.
    prefixes: usize,
    /// Hosts that may have entries of their own, of both families: which ones depends on the routes.
    hosts: usize,
}

impl Size {
    /// An eighth of either has gone.
    fn is_much_smaller(self, before: Size) -> bool {
        let gone = |now: usize, before: usize| now < before - before / 8;
        gone(self.prefixes, before.prefixes) || gone(self.hosts, before.hosts)
    }
}

/// What rules 3, 4 and 6 make of a prefix's routes.
fn best<A: Addr>(state: &State, slot: &Slot) -> Result<AttrsId, Reason> {
    let (store, mut ids) = (&state.attrs, slot.ids());
    if let [others @ .., last] = ids
        && !others.is_empty()
        && store.get(*last).flags & ROUTE_FPM != 0
    {
        ids = others;
    }
    let first = store.get(ids[0]);
    if first.flags & ROUTE_STATIC != 0 {
        return Ok(ids[0]);
    }
    if is_doubtful(first, state.now) {
        return Err(Reason::Expiring);
    }
    if A::BITS == 32 {
        return if first.tos != 0 {
            Err(Reason::RouteFeature)
        } else {
            Ok(ids[0])
        };
    }
    let rivals = ids[1..]
        .iter()
        .any(|id| store.get(*id).metric == first.metric);
    let sources = ids.iter().any(|id| store.get(*id).src.is_some());
    if rivals || sources {
        Err(Reason::RouteFeature)
    } else {
        Ok(ids[0])
    }
}

/// Whether the routes of a prefix are any: rule 5.
fn leads(state: &State, slot: &Slot) -> bool {
    match slot {
        Slot::One(id) => state.leads(state.attrs.get(*id)),
        Slot::Many(_) => true,
    }
}

/// The prefixes with routes that cover `prefix`, itself included, longest first.
fn covering<'a, A: Addr>(
    state: &'a State,
    table: &'a Table<A>,
    prefix: Prefix<A>,
) -> impl Iterator<Item = (Prefix<A>, &'a Slot)> {
    let all = table.covering(prefix);
    all.filter(|(_, slot)| leads(state, slot))
}

/// Where the routes of a prefix lead: rules 3 to 6.
pub(crate) fn best_spec<A: Addr>(
    state: &State,
    table: u32,
    prefix: Prefix<A>,
    slot: &Slot,
) -> Spec {
    let attrs = match best::<A>(state, slot) {
        Ok(id) => state.fpm.expand(state.attrs.get(id)),
        Err(reason) => return Spec::Kernel(reason),
    };
    let Some(attrs) = attrs else {
        return Spec::Kernel(Reason::NoRoute);
    };
    if A::BITS == 32 && table == TABLE_LOCAL && is_not_usual(&attrs) {
        return KERNELS;
    }
    let refuses = matches!(attrs.kind, RouteKind::Unreachable | RouteKind::Prohibit);
    if refuses && attrs.flags & ROUTE_FPM != 0 {
        return Spec::Kernel(Reason::Blackhole);
    }
    let dst = prefix.to_net();
    let spec = Spec::of(
        &attrs,
        state.route_id(table, dst),
        state.algo_of(&dst, &attrs),
    );
    match (&spec, prefix.addr.to_ip()) {
        (Spec::Kernel(Reason::Local), IpAddr::V4(local))
            if table == TABLE_LOCAL
                && prefix.is_host()
                && attrs.flags & (ROUTE_STATIC | ROUTE_FPM) == 0
                && state.tunnels_here.end_at(local) =>
        {
            Spec::TunnelEnds(local)
        }
        _ => spec,
    }
}

/// Where a route leads those that are looked up so (rule 8).
fn for_lookup(state: &State, lookup: &Lookup, spec: Spec) -> Spec {
    match spec {
        Spec::TunnelEnds(_) if state.tunnels_here.is_of_vrf(lookup) => Spec::Kernel(Reason::Local),
        spec => spec,
    }
}

/// Whether a route of the kernel's is of no type that it puts into table local itself.
fn is_not_usual(attrs: &Attrs) -> bool {
    let usual = matches!(
        attrs.kind,
        RouteKind::Local | RouteKind::Broadcast | RouteKind::Anycast | RouteKind::Multicast
    );
    attrs.flags & (ROUTE_STATIC | ROUTE_FPM) == 0 && !usual
}

/// The tables of a view that exist, in order.
fn existing<'a, A: Addr>(
    family: &'a Family<A>,
    tables: &[TableLookup],
) -> impl Iterator<Item = (TableLookup, &'a Table<A>)> {
    tables
        .iter()
        .filter_map(|look| Some((*look, family.tables.get(&look.table)?)))
        .filter(|(_, t)| !t.is_empty())
}

/// What a table has for a prefix.
pub(crate) enum Found<'a, A> {
    /// The longest prefix with routes that covers it.
    Routes(Prefix<A>, &'a Slot),
    /// That prefix, which is passed over (rule 1).
    PassedOver(Prefix<A>),
    /// That prefix, which may be passed over: a nexthop object may be one that refuses, now or later, and of several
    /// routes one does (the packet's TOS decides which counts).
    Unclear(Prefix<A>),
    /// None covers it.
    Nothing,
}

/// What the longest prefix with routes that covers `prefix` is to a look-up.
pub(crate) fn find<'a, A: Addr>(
    state: &'a State,
    (look, table): (TableLookup, &'a Table<A>),
    prefix: Prefix<A>,
) -> Found<'a, A> {
    match covering(state, table, prefix).next() {
        None => Found::Nothing,
        Some((found, slot)) => look_at(state, look, found, slot),
    }
}

/// What a prefix with routes is to a look-up.
fn look_at<'a, A: Addr>(
    state: &State,
    look: TableLookup,
    found: Prefix<A>,
    slot: &'a Slot,
) -> Found<'a, A> {
    let routes = || slot.ids().iter().map(|id| state.attrs.get(*id));
    let unclear =
        |kind, target: &RouteTarget| refuses(kind) || matches!(target, RouteTarget::Object(_));
    if !look.passes_over(found.len, routes().all(|route| refuses(route.kind))) {
        Found::Routes(found, slot)
    } else if routes().any(|route| unclear(route.kind, &route.target)) {
        Found::Unclear(found)
    } else {
        Found::PassedOver(found)
    }
}

/// Whether a route of this type makes the kernel's look-up fail.
fn refuses(kind: RouteKind) -> bool {
    matches!(
        kind,
        RouteKind::Unreachable | RouteKind::Prohibit | RouteKind::Blackhole | RouteKind::Throw
    )
}

/// Rule 7.
pub(crate) const KERNELS: Spec = Spec::Kernel(Reason::RouteFeature);

/// Rules 1, 2 and 7: where P leads in this view; none when it has no entry.
pub(crate) fn entry<A: Addr>(
    state: &State,
    family: &Family<A>,
    lookup: &Lookup,
    prefix: Prefix<A>,
) -> Option<Spec> {
    let mut passed_over = false;
    for (look, table) in existing(family, &lookup.tables) {
        let (found, slot) = match find(state, (look, table), prefix) {
            Found::Routes(found, slot) => (found, slot),
            Found::PassedOver(found) => {
                passed_over |= found == prefix;
                continue;
            }
            Found::Unclear(found) => return (found == prefix || passed_over).then_some(KERNELS),
            Found::Nothing => continue,
        };
        let spec = best_spec::<A>(state, look.table, found, slot);
        let spec = for_lookup(state, lookup, spec);
        if prefix.is_host() && state.is_kernels(prefix.addr, slot) {
            return Some(KERNELS);
        }
        if prefix.is_host()
            && let Some((index, mtu)) = spec.direct_link(state)
            && state.neighbour_at(index, prefix.addr.to_ip()).is_some()
        {
            return Some(Spec::Neighbour {
                index,
                address: prefix.addr.to_ip(),
                mtu,
            });
        }
        return (found == prefix || passed_over).then_some(spec);
    }
    let ends = lookup.end != Reason::NoRoute && prefix == Prefix::<A>::all();
    (ends || passed_over).then_some(Spec::Kernel(lookup.end))
}

/// At most so many prefixes and hosts are in a view that is small.
const SMALL: usize = 1 << 14;

/// Whether a view is small, as far as the numbers of prefixes tell: those of tables behind one with a default route, which
/// have no part in it, do not count. One that was `large` is small again when an eighth less is in it, lest one host more or less have all
/// made anew each time.
pub(crate) fn is_small<A: Addr>(
    state: &State,
    family: &Family<A>,
    lookup: &Lookup,
    was_large: bool,
) -> bool {
    let mut size = state.hosts();
    for (look, table) in existing(family, &lookup.tables) {
        size += table.len();
        if look.suppress.is_none() && table.get(Prefix::all()).is_some() {
            break;
        }
    }
    size <= if was_large { SMALL - SMALL / 8 } else { SMALL }
}

impl<A: Addr, L: Lpm<A>> View<A, L> {
    pub(crate) fn new(lookup: Lookup, id: TableId) -> Self {
        View {
            lookup,
            id,
            uses: HashMap::new(),
            full: None,
            full_at: Size::default(),
            _family: std::marker::PhantomData,
        }
    }

    /// Brings the view up to date after these changes. Returns how many entries were looked at.
    pub(crate) fn update(
        &mut self,
        lpm: &mut L,
        groups: &mut Groups,
        family: &Family<A>,
        hosts: &[IpAddr],
        at: &Publish<'_>,
    ) -> usize {
        let Changed::Some(changed) = &family.changed else {
            return self.rebuild(lpm, groups, family, at);
        };
        if self.full.is_some() {
            // Try again only when it is likely to fit: a rebuild of a large table is not cheap.
            let now = self.size(family, at.state);
            return if now.is_much_smaller(self.full_at) {
                self.rebuild(lpm, groups, family, at)
            } else {
                0
            };
        }
        let mut points: BTreeSet<Prefix<A>> = hosts
            .iter()
            .filter_map(|ip| A::from_ip(*ip))
            .map(Prefix::host)
            .collect();
        for &(table, prefix) in changed {
            let asked = &self.lookup.tables;
            let Some(place) = asked.iter().position(|look| look.table == table) else {
                continue;
            };
            points.insert(prefix);
            if prefix.is_host() {
                continue;
            }
            points.extend(at.state.hosts_inside(prefix));
            for (_, below) in existing(family, &asked[place + 1..]) {
                points.extend(below.inside(prefix).map(|(p, _)| p));
            }
            // What they pass over is looked up in this table, too.
            for look in &asked[..=place] {
                let Some(most) = look.suppress else { continue };
                let above = family.tables.get(&look.table);
                let inside = above.into_iter().flat_map(|above| above.inside(prefix));
                points.extend(inside.map(|(p, _)| p).filter(|p| p.len <= most));
            }
        }
        let count = points.len();
        if let Err(lack) = self.change(lpm, groups, family, points, at) {
            // New entries come before old ones go, which takes the most room. From an empty table,
            // with all packets at the kernel meanwhile, the view may fit.
            self.give_up(lack, lpm, groups, family, at);
            self.rebuild(lpm, groups, family, at);
        }
        count
    }

    /// Brings these entries up to date, one after the other, while there is room.
    ///
    /// At any time between, a look-up gives what it gave before all of them or what it gives after
    /// them: entries that come or change are written first, the longest prefixes first, and only
    /// then are those that go taken out, the shortest first.
    fn change(
        &mut self,
        lpm: &mut L,
        groups: &mut Groups,
        family: &Family<A>,
        points: BTreeSet<Prefix<A>>,
        at: &Publish<'_>,
    ) -> Result<(), Lack> {
        let mut points: Vec<Prefix<A>> = points.into_iter().collect();
        points.sort_by_key(|point| std::cmp::Reverse(point.len));
        let mut gone = Vec::new();
        for point in points {
            let Some(spec) = entry(at.state, family, &self.lookup, point) else {
                gone.push(point);
                continue;
            };
            self.set(lpm, groups, point, Some(spec), at)?;
        }
        gone.into_iter()
            .rev()
            .try_for_each(|point| self.set(lpm, groups, point, None, at))
    }

    /// What a table that takes no more entries lacks.
    fn lack() -> Lack {
        match A::BITS {
            32 => Lack::Routes4,
            _ => Lack::Routes6,
        }
    }

    /// Changes one entry, if there is room.
    fn set(
        &mut self,
        lpm: &mut L,
        groups: &mut Groups,
        prefix: Prefix<A>,
        spec: Option<Spec>,
        at: &Publish<'_>,
    ) -> Result<(), Lack> {
        let before = match spec {
            None => lpm.remove(self.id, prefix).map_err(|_| Self::lack())?,
            Some(spec) => {
                let group = groups.take(spec, at).ok_or(Lack::Groups)?;
                *self.uses.entry(group).or_default() += 1;
                let inserted = lpm.insert(self.id, prefix, group);
                inserted.map_err(|_| Self::lack())?
            }
        };
        if let Some(group) = before {
            self.release(groups, group, at);
        }
        Ok(())
    }

    fn release(&mut self, groups: &mut Groups, group: u32, at: &Publish<'_>) {
        if let Some(uses) = self.uses.get_mut(&group) {
            *uses -= 1;
            if *uses == 0 {
                self.uses.remove(&group);
            }
        }
        groups.give_back(group, at.memory);
    }

    /// Builds the view from nothing, in one go.
    pub(crate) fn rebuild(
        &mut self,
        lpm: &mut L,
        groups: &mut Groups,
        family: &Family<A>,
        at: &Publish<'_>,
    ) -> usize {
        let Some((routes, uses)) = self.collect(groups, family, at) else {
            self.give_up(Lack::Groups, lpm, groups, family, at);
            return 0;
        };
        let count = routes.len();
        let old = std::mem::replace(&mut self.uses, uses);
        let done = lpm.replace_all(self.id, routes).is_ok();
        release_all(groups, old, at);
        self.full = None;
        if !done {
            self.give_up(Self::lack(), lpm, groups, family, at);
        }
        count
    }

    /// All entries of the view with their groups, sorted, and how often each group occurs.
    /// None when groups ran out; none is then held.
    #[allow(clippy::type_complexity)] // two halves of one result, used in one place
    fn collect(
        &self,
        groups: &mut Groups,
        family: &Family<A>,
        at: &Publish<'_>,
    ) -> Option<(Vec<(Prefix<A>, u32)>, HashMap<u32, u32>)> {
        let mut uses = HashMap::new();
        let mut routes = Vec::new();
        let mut add = |groups: &mut Groups, spec: Spec| {
            let group = groups.take(spec, at)?;
            *uses.entry(group).or_insert(0) += 1;
            Some(group)
        };
        let mut fits = true;
        let mut hosts = BTreeSet::new();
        for host in at.state.hosts_inside(Prefix::<A>::all()) {
            let spec = entry(at.state, family, &self.lookup, host);
            if let Some(spec @ (Spec::Neighbour { .. } | KERNELS)) = spec {
                match add(groups, spec) {
                    Some(group) => routes.push((host, group)),
                    None => fits = false,
                }
                hosts.insert(host);
            }
        }
        let tables: Vec<_> = existing(family, &self.lookup.tables).collect();
        let plain = at.state.algos.prefixes.is_empty();
        let mut known: HashMap<AttrsId, u32> = HashMap::new();
        let mut more: HashMap<u32, u32> = HashMap::new();
        let mut passed_over = BTreeSet::new();
        for (i, (look, table)) in tables.iter().enumerate() {
            let is_local = look.table == TABLE_LOCAL;
            let shadowed = |p| {
                let mut before = tables[..i].iter();
                before.any(|t| {
                    let found = find(at.state, *t, p);
                    matches!(found, Found::Routes(..) | Found::Unclear(_))
                })
            };
            for (prefix, slot) in table.iter() {
                let is_none = hosts.contains(&prefix) || !leads(at.state, slot);
                if is_none || (i > 0 && shadowed(prefix)) {
                    continue;
                }
                if passed_over.contains(&prefix) {
                    continue;
                }
                if !matches!(look_at(at.state, *look, prefix, slot), Found::Routes(..)) {
                    passed_over.insert(prefix);
                    if let Some(spec) = entry(at.state, family, &self.lookup, prefix) {
                        match add(groups, spec) {
                            Some(group) => routes.push((prefix, group)),
                            None => fits = false,
                        }
                    }
                    continue;
                }
                let group = match slot {
                    // Unless the prefix or the table, too, decides where it leads, or it is a SID.
                    Slot::One(id) if plain && !is_local && known.contains_key(id) => {
                        let group = known[id];
                        *more.entry(group).or_insert(0) += 1;
                        Some(group)
                    }
                    _ => {
                        let spec = best_spec::<A>(at.state, look.table, prefix, slot);
                        add(groups, for_lookup(at.state, &self.lookup, spec))
                    }
                };
                match group {
                    Some(group) => routes.push((prefix, group)),
                    None => fits = false,
                }
                if let (Slot::One(id), Some(group)) = (slot, group)
                    && !is_local
                    && !at.state.has_sid(*id)
                {
                    known.insert(*id, group);
                }
            }
        }
        let all = Prefix::<A>::all();
        let has_default = routes.iter().any(|(prefix, _)| *prefix == all);
        if !has_default && let Some(spec) = entry(at.state, family, &self.lookup, all) {
            match add(groups, spec) {
                Some(group) => routes.push((all, group)),
                None => fits = false,
            }
        }
        for (group, extra) in more {
            groups.keep(group, extra);
            *uses.entry(group).or_insert(0) += extra;
        }
        if !fits {
            release_all(groups, uses, at);
            return None;
        }
        routes.sort_unstable_by_key(|(prefix, _)| *prefix);
        Some((routes, uses))
    }

    /// What takes room.
    fn size(&self, family: &Family<A>, state: &State) -> Size {
        let tables = existing(family, &self.lookup.tables);
        Size {
            prefixes: tables.map(|(_, table)| table.len()).sum(),
            hosts: state.hosts(),
        }
    }

    /// There is no room: one route for everything, to the kernel.
    fn give_up(
        &mut self,
        lack: Lack,
        lpm: &mut L,
        groups: &mut Groups,
        family: &Family<A>,
        at: &Publish<'_>,
    ) {
        self.full = Some(lack);
        self.full_at = self.size(family, at.state);
        let old = std::mem::take(&mut self.uses);
        // Releasing first makes room for the one group that is needed.
        let _ = lpm.replace_all(self.id, Vec::new());
        release_all(groups, old, at);
        if let Some(group) = groups.take(Spec::Kernel(Reason::ImageFull), at) {
            self.uses.insert(group, 1);
            let _ = lpm.replace_all(self.id, vec![(Prefix::all(), group)]);
        }
    }

    /// Gives back all that the view holds.
    pub(crate) fn clear(mut self, lpm: &mut L, groups: &mut Groups, at: &Publish<'_>) {
        lpm.drop_table(self.id);
        release_all(groups, std::mem::take(&mut self.uses), at);
    }

    pub(crate) fn routes(&self) -> usize {
        self.uses.values().map(|n| *n as usize).sum()
    }
}

fn release_all(groups: &mut Groups, uses: HashMap<u32, u32>, at: &Publish<'_>) {
    for (group, count) in uses {
        for _ in 0..count {
            groups.give_back(group, at.memory);
        }
    }
}

#[cfg(test)]
mod tests;
