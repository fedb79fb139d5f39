//! Reverse-path filtering (`rp_filter`): what packets of a link need of the way back to their source.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::Rib;
use super::tables::Side;
use crate::adjacency::Publish;
use crate::attrs::Attrs;
use crate::event::{Link, NexthopKind, ROUTE_FPM, ROUTE_STATIC, RouteKind, Rule};
use crate::groups::Groups;
use crate::lpm::Lpm;
use crate::prefix::Prefix;
use crate::resolve::{Resolved, resolve};
use crate::rules::{Apart, Arrival, Lookup, lookup_apart, vrf_of};
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

/// Where the kernel looks for the way back of packets that come in by `link` and leave by `out`
/// (`__fib_validate_source`); without `out`, by a link that no rule names and that is in no VRF. It asks the rules as for
/// a packet the other way round:
///
/// 1. It comes in by the out-link, and is in the in-link's VRF. Where that is in none, in the out-link's.
/// 2. Rules that ask for what a packet shows are asked about it the other way round. Else it is [`lookup_apart`].
fn apart_back<'a>(state: &'a State, link: &Link, out: Option<&'a Link>) -> Option<Apart<'a>> {
    let by_index = |index: u32| state.links.get(&index);
    let name = out.map_or("", |out| &out.name);
    let arrival = match vrf_of(link, by_index) {
        Some(vrf) => Arrival::Vrf {
            name: &vrf.name,
            slave: name,
            table: vrf.vrf_table,
            others: [&vrf.altnames, out.map_or(&[], |out| &out.altnames)],
        },
        None => out.map_or(Arrival::Link(name, &[]), |out| state.arrival(out)),
    };
    lookup_apart(&state.rules, 4, arrival).ok()
}

fn lookup_back(state: &State, link: &Link) -> Option<Lookup> {
    apart_back(state, link, None).map(|apart| apart.lookup)
}

impl State {
    fn rp_filter(&self, link: &Link) -> u8 {
        self.devices.get(&link.index).map_or(0, |d| d.rp_filter)
    }

    /// Whether the source of IPv4 packets that come in by this link is looked up.
    pub(crate) fn filters_sources(&self, link: &Link) -> bool {
        self.rp_filter(link) > 0
    }

    /// The rules that ask for what a packet shows and that the kernel asks when it looks for the way back of what comes in by a link,
    /// about the packet the other way round.
    pub(crate) fn rules_back(&self, link: &Link) -> Vec<&Rule> {
        apart_back(self, link, None).map_or_else(Vec::new, |apart| apart.by_packet)
    }

    /// The out-links by which packets of this link are filtered otherwise than by most: by other tables, or other rules. Only the
    /// kernel forwards IPv4 to them.
    ///
    /// 1. Where nothing is filtered, or all is the kernel's: none.
    /// 2. Rules for an input link, and those of VRFs, are asked for some out-links only.
    pub(crate) fn filtered_apart(&self, link: &Link, outs: &BTreeSet<u32>) -> BTreeSet<u32> {
        let usual = match self.filters_sources(link) {
            true => apart_back(self, link, None),
            false => None,
        };
        let Some(usual) = usual else {
            return BTreeSet::new();
        };
        let by_rule = |out: &Link| {
            let mut rules = self.rules.iter().filter(|rule| rule.family == 4);
            let names = |iif: &String| *iif == out.name || out.altnames.contains(iif);
            rules.any(|rule| rule.iif.as_ref().is_some_and(names))
        };
        // Links that no rule names are alike in a VRF, and all of them where the in-link is in one.
        let in_vrf = vrf_of(link, |index| self.links.get(&index)).is_some();
        let mut known: BTreeMap<Option<u32>, bool> = BTreeMap::new();
        let mut is_apart = |out: &Link| {
            let ask = || apart_back(self, link, Some(out)).as_ref() != Some(&usual);
            match by_rule(out) {
                true => ask(),
                false => {
                    let class = out.master.filter(|_| !in_vrf);
                    *known.entry(class).or_insert_with(ask)
                }
            }
        };
        let outs = outs.iter().filter_map(|out| self.links.get(out));
        let outs = outs.filter(|out| out.master.is_some() || by_rule(out));
        outs.filter(|out| is_apart(out))
            .map(|out| out.index)
            .collect()
    }
}

/// What is known of the way back to all sources at once.
#[derive(Debug, Default)]
pub(super) struct WayBack {
    /// The prefixes of which a route may refuse, or end the look-up without a way back, in any table.
    refusing: BTreeSet<(u32, Prefix<u32>)>,
    /// These are up to date but for what has changed since.
    follows: bool,
    /// The look-ups by which every source has a route, of those that links with a loose filter need.
    complete: Vec<Lookup>,
}

impl WayBack {
    /// Follows the routes that have changed; says whether that concerns links. To be called when all that nexthops
    /// depend on is known.
    pub(super) fn note(&mut self, state: &State) -> bool {
        // Only a loose filter asks; until there is one, a change of a route costs nothing.
        let mut devices = state.devices.values();
        if !devices.any(|device| device.rp_filter > 1) {
            let before = std::mem::take(self);
            return !before.complete.is_empty();
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
        let mut complete = Vec::new();
        let mut seen = BTreeSet::new();
        for link in state.links.values() {
            // The links of a VRF look in the same tables, and so do all that are in none.
            if state.rp_filter(link) > 1
                && seen.insert(link.master)
                && let Some(lookup) = lookup_back(state, link)
                && !complete.contains(&lookup)
                && self.have_all_routes(state, &lookup)
            {
                complete.push(lookup);
            }
        }
        complete.sort();
        let before = std::mem::replace(&mut self.complete, complete);
        before != self.complete
    }

    /// What packets of this link need.
    ///
    /// 1. `rp_filter` 0: nothing. In a VRF, too, it is the link's own (`ip_rcv_finish` has taken it for the packet's
    ///    device before the VRF is).
    /// 2. Where rules make it depend on the packet: the kernel's judgement.
    /// 3. Loose, on a link with an IPv4 address: any route; nothing where every source has one.
    /// 4. Strict, or without an IPv4 address: a route by this link.
    ///
    /// That is so by most out-links; for the others see [`State::filtered_apart`].
    pub(super) fn need(&self, state: &State, link: &Link) -> Need {
        if !state.filters_sources(link) {
            return Need::Nothing;
        }
        let Some(lookup) = lookup_back(state, link) else {
            return Need::Kernel;
        };
        let mut addresses = state.addresses.iter();
        let has_address = addresses.any(|a| a.index == link.index && a.local.is_ipv4());
        match (state.rp_filter(link), has_address) {
            (2.., true) if self.complete.contains(&lookup) => Need::Behind,
            (2.., true) => Need::Route,
            _ => Need::Link,
        }
    }

    /// Whether every source has a unicast route in the tables of the way back.
    ///
    /// 1. No prefix is passed over (`suppress_prefixlength`); there is a default route, and one of its nexthops lives. What is raddle's alone leads the kernel nowhere.
    /// 2. No route of these tables refuses ([`may_refuse`]).
    /// 3. No nexthop object is a blackhole, of which routes are not announced anew.
    fn have_all_routes(&self, state: &State, lookup: &Lookup) -> bool {
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
        let Some(spec) = entry(state, &state.v4, lookup, Prefix::all()) else {
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
        link: &Link,
        groups: &mut Groups,
        at: &Publish<'_>,
    ) -> Option<(u32, usize)> {
        self.view_of(lookup_back(state, link)?, &state.v4, groups, at)
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
    /// The out-links to which only the kernel forwards IPv4 that comes in by a link, both by interface index: `rp_filter` has
    /// it look for the way back in other tables, or by other rules, than where packets leave by other links.
    pub fn filtered_apart(&self, link: u32) -> BTreeSet<u32> {
        let link = self.state.links.get(&link);
        link.map_or_else(BTreeSet::new, |link| {
            let all = self.state.links.keys().copied().collect();
            self.state.filtered_apart(link, &all)
        })
    }

    /// What the reverse-path filter of a link, by interface index, makes of IPv4 packets from this source that are
    /// routed (`__fib_validate_source`), but for those that leave by one of [`Rib::filtered_apart`]. Nothing need be committed.
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
        let lookup = match (need, lookup_back(state, link)) {
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
