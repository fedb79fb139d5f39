//! Reverse-path filtering (`rp_filter`): what packets of a link need of the way back to their source.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::Rib;
use super::tables::Side;
use crate::adjacency::Publish;
use crate::attrs::Attrs;
use crate::event::{
    Link, NexthopKind, ROUTE_FPM, ROUTE_STATIC, RULE_OTHER_L3MDEV, RouteKind, Rule,
};
use crate::groups::Groups;
use crate::lpm::Lpm;
use crate::prefix::Prefix;
use crate::resolve::{Resolved, resolve};
use crate::rules::{Apart, Arrival, Lookup, lookup_apart};
use crate::state::{Changed, State};
use crate::table::Slot;
use crate::view::entry;
use crate::ways::{LinkWays, ways};
use raddle_image::{ANY_WAY, Reason};

/// What IPv4 packets of a link need of the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing: there is no filter.
    Nothing,
    /// Nothing, as every source has a route; but there is a filter.
    Behind,
    /// A route to the source.
    Route,
    /// A route to the source by this link.
    Link,
    /// The kernel's judgement.
    Kernel,
}

/// Where the kernel looks for the way back of every packet that it forwards (`__fib_validate_source`). It asks the rules
/// as for a packet the other way round, which comes in by the out-link.
///
/// 1. Rules for an input link are asked for some out-links only: none. So are those of VRFs, where there is one.
/// 2. Else as for any link: [`lookup_apart`], whose rules by address are asked about the addresses the other way round.
fn apart_back(state: &State) -> Option<Apart<'_>> {
    let mut of_family = state.rules.iter().filter(|rule| rule.family == 4);
    let mut links = state.links.values();
    let has_vrf = links.any(|link| link.kind.as_deref() == Some("vrf"));
    let by_out_link =
        |rule: &Rule| rule.iif.is_some() || has_vrf && rule.other.contains(&RULE_OTHER_L3MDEV);
    if of_family.any(by_out_link) {
        return None;
    }
    lookup_apart(&state.rules, 4, Arrival::Link("")).ok()
}

fn lookup_back(state: &State) -> Option<Lookup> {
    apart_back(state).map(|apart| apart.lookup)
}

impl State {
    /// Whether the source of IPv4 packets that come in by this link is looked up: `rp_filter`, its own or its VRF's.
    pub(crate) fn filters_sources(&self, link: &Link) -> bool {
        let filter = |index: u32| self.devices.get(&index).map_or(0, |d| d.rp_filter);
        filter(link.index).max(filter(self.governing(link))) > 0
    }

    /// The rules by address that the kernel asks when it looks for the way back, about the addresses the other way round.
    pub(crate) fn rules_back(&self) -> Vec<&Rule> {
        apart_back(self).map_or_else(Vec::new, |apart| apart.by_address)
    }
}

/// What is known of the way back to all sources at once.
#[derive(Debug, Default)]
pub(super) struct WayBack {
    /// The prefixes of which a route may refuse, or end the look-up without a way back, in any table.
    refusing: BTreeSet<(u32, Prefix<u32>)>,
    /// These are up to date but for what has changed since.
    follows: bool,
    /// Every source has a route.
    all_have_routes: bool,
}

impl WayBack {
    /// Follows the routes that have changed; says whether that concerns links. To be called when all that nexthops
    /// depend on is known.
    pub(super) fn note(&mut self, state: &State) -> bool {
        let before = self.all_have_routes;
        // Only a loose filter asks; until there is one, a change of a route costs nothing.
        let mut devices = state.devices.values();
        if !devices.any(|device| device.rp_filter > 1) {
            *self = WayBack::default();
            return before;
        }
        match (&state.v4.changed, self.follows) {
            (Changed::Some(changed), true) => {
                for &(table, prefix) in changed {
                    let slot = state.v4.tables.get(&table).and_then(|t| t.get(prefix));
                    match slot.is_some_and(|slot| may_refuse(state, slot)) {
                        true => self.refusing.insert((table, prefix)),
                        false => self.refusing.remove(&(table, prefix)),
                    };
                }
            }
            _ => self.refusing = all_refusing(state),
        }
        self.follows = true;
        self.all_have_routes = self.have_all_routes(state);
        self.all_have_routes != before
    }

    /// What packets of this link need.
    ///
    /// 1. `rp_filter` 0: nothing. Of a link in a VRF, which is filtered by the VRF's, the kernel's judgement
    ///    where either is on.
    /// 2. Where rules make it depend on the packet or its way out: the kernel's judgement.
    /// 3. Loose, on a link with an IPv4 address: any route; nothing where every source has one.
    /// 4. Strict, or without an IPv4 address: a route by this link.
    pub(super) fn need(&self, state: &State, link: &Link) -> Need {
        let filter = |index: u32| state.devices.get(&index).map_or(0, |d| d.rp_filter);
        let master = link.master.and_then(|index| state.links.get(&index));
        let vrf = master.filter(|master| master.kind.as_deref() == Some("vrf"));
        let own = filter(link.index);
        if !state.filters_sources(link) {
            return Need::Nothing;
        }
        if vrf.is_some() || lookup_back(state).is_none() {
            return Need::Kernel;
        }
        let mut addresses = state.addresses.iter();
        let has_address = addresses.any(|a| a.index == link.index && a.local.is_ipv4());
        match (own, has_address) {
            (2.., true) if self.all_have_routes => Need::Behind,
            (2.., true) => Need::Route,
            _ => Need::Link,
        }
    }

    /// Whether every source has a unicast route in the tables of the way back.
    ///
    /// 1. No prefix is passed over (`suppress_prefixlength`); there is a default route, and one of its nexthops lives. What is raddle's alone leads the kernel nowhere.
    /// 2. No route of these tables refuses ([`may_refuse`]).
    /// 3. No nexthop object is a blackhole, of which routes are not announced anew.
    fn have_all_routes(&self, state: &State) -> bool {
        let Some(lookup) = lookup_back(state) else {
            return false;
        };
        if lookup.tables.iter().any(|look| look.suppress.is_some()) {
            return false;
        }
        let asks = |number: &u32| lookup.tables.iter().any(|look| look.table == *number);
        if self.refusing.iter().any(|(table, _)| asks(table)) {
            return false;
        }
        let mut objects = state.nexthops.values();
        if objects.any(|nexthop| matches!(nexthop.kind, NexthopKind::Blackhole)) {
            return false;
        }
        let Some(spec) = entry(state, &state.v4, &lookup, Prefix::all()) else {
            return false;
        };
        let ways = ways(state, &LinkWays::default(), &spec, &resolve(state, &spec));
        ways >> ANY_WAY & 1 != 0
    }
}

/// Whether a source to which this prefix leads may have no unicast route: by what is neither unicast, nor a type for
/// which engines refuse sources anyway ([`super::sources`]).
fn may_refuse(state: &State, slot: &Slot) -> bool {
    slot.ids().iter().any(|id| refuses(state.attrs.get(*id)))
}

fn refuses(attrs: &Attrs) -> bool {
    match attrs.kind {
        RouteKind::Unicast => false,
        RouteKind::Local | RouteKind::Broadcast | RouteKind::Anycast | RouteKind::Multicast => {
            attrs.flags & (ROUTE_STATIC | ROUTE_FPM) != 0
        }
        _ => true,
    }
}

/// A look at all routes; at the attributes of those that matter only.
fn all_refusing(state: &State) -> BTreeSet<(u32, Prefix<u32>)> {
    let ids: BTreeSet<_> = state.attrs.numbers(refuses).collect();
    let mut all = BTreeSet::new();
    if ids.is_empty() {
        return all;
    }
    for (number, table) in &state.v4.tables {
        let refusing = table
            .iter()
            .filter(|(_, slot)| slot.ids().iter().any(|id| ids.contains(id)));
        all.extend(refusing.map(|(prefix, _)| (*number, prefix)));
    }
    all
}

impl<L: Lpm<u32>> Side<u32, L> {
    /// The table of the way back, made if need be, and how many entries that took. None where rules make it more than
    /// one, or there is no table left.
    pub(super) fn view_back(
        &mut self,
        state: &State,
        groups: &mut Groups,
        at: &Publish<'_>,
    ) -> Option<(u32, usize)> {
        self.view_of(lookup_back(state)?, &state.v4, groups, at)
    }
}

/// What the kernel's reverse-path filter makes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Back {
    /// It passes, or there is no filter.
    Passes,
    /// There is no route to the source, or one that refuses for this reason.
    NoRoute(Reason),
    /// The route to the source leaves by these links only, by interface index, and the filter wants it by the link that
    /// the packet came in by.
    Elsewhere(BTreeSet<u32>),
    /// The mirror does not say.
    Unknown,
}

impl Rib {
    /// What the reverse-path filter of a link, by interface index, makes of IPv4 packets from this source that are
    /// routed (`__fib_validate_source`). Nothing need be committed.
    ///
    /// 1. What a link needs is what links of the image need.
    /// 2. Raddle's own routes are no way back, and may hide one.
    /// 3. Where the route is not known to live, or is of a type that is judged elsewhere, nobody knows.
    pub fn way_back(&self, link: u32, source: Ipv4Addr) -> Back {
        let state = &self.state;
        let Some(link) = state.links.get(&link) else {
            return Back::Unknown;
        };
        let need = WayBack::default().need(state, link);
        let lookup = match (need, lookup_back(state)) {
            (Need::Nothing | Need::Behind, _) => return Back::Passes,
            (Need::Route | Need::Link, Some(lookup)) => lookup,
            (Need::Kernel, _) | (_, None) => return Back::Unknown,
        };
        let prefixes = (0..=32).rev().map(|len| Prefix::new(source.to_bits(), len));
        let mut found = prefixes.filter_map(|prefix| entry(state, &state.v4, &lookup, prefix));
        let Some(spec) = found.next() else {
            return Back::NoRoute(Reason::NoRoute);
        };
        let resolved = resolve(state, &spec);
        let links: Vec<u32> = state.links.keys().copied().collect();
        let by = |link: u32| {
            let mut only = LinkWays::default();
            only.give(&[link], |_| false);
            ways(state, &only, &spec, &resolved)
        };
        let back = by(link.index);
        match resolved {
            _ if need == Need::Route && back >> ANY_WAY & 1 != 0 => Back::Passes,
            _ if back > 1 << ANY_WAY => Back::Passes,
            _ if back != 0 => {
                let others = links.into_iter().filter(|link| by(*link) > 1 << ANY_WAY);
                Back::Elsewhere(others.collect())
            }
            Resolved::Kernel(
                reason @ (Reason::Unreachable | Reason::Prohibit | Reason::Blackhole),
            ) => Back::NoRoute(reason),
            _ => Back::Unknown,
        }
    }
}
