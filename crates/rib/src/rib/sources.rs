//! The IPv4 sources that the kernel may refuse: a filter, and a table that says which of the filter's are meant.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;

use raddle_fib::TableId;

use super::Rib;
use crate::attrs::AttrsId;
use crate::event::{ROUTE_FPM, ROUTE_STATIC, RouteKind};
use crate::lpm::Lpm;
use crate::prefix::Prefix;
use crate::resolve::Spec;
use crate::rules::tables_for_sources;
use crate::state::{Changed, State};
use crate::table::Slot;
use raddle_image::Lack;
use raddle_image::{Reason, local_bit};

/// Prefixes of this length or more have so few addresses that each has its bit in the filter; with a
/// shorter one all sources are looked up.
const FEW_ADDRESSES: u8 = 24;

/// What the kernel may have against a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// It is an address of this machine, or a route of type `local` leads to it.
    Own,
    /// A route of type `broadcast`, `anycast` or `multicast` leads to it.
    NotUnicast,
}

/// The sources that the kernel may refuse.
///
/// What it does depends on what cannot be seen (`fib_validate_source`): with `rp_filter` off it only looks
/// whether the source is an address of this machine, until there has ever been a routing rule or a
/// route of type `local` that somebody added, or as long as there is a realm. From then on it looks the source
/// up, and refuses it unless a route of type `unicast` is found, or none. So engines leave to it what
/// either would refuse:
///
/// 1. Addresses of this machine are its own.
/// 2. So is what a route of type `local` leads to, in any table in which the kernel may look.
/// 3. What a route of type `broadcast`, `anycast` or `multicast` leads to is not unicast. That counts for
///    more than rule 2, which `accept_local` lifts.
/// 4. It makes no difference whether a longer prefix leads elsewhere: tables in which that stands may be
///    asked later, or not at all.
/// 5. Routes that the kernel does not have refuse nothing. Nor do those of type `unreachable`, `blackhole`,
///    `prohibit` and `throw`: a look-up that fails refuses no source (`last_resort`).
/// 6. Sources that may not appear on the wire at all are left out.
#[derive(Debug, Default)]
pub(super) struct Sources {
    id: Option<TableId>,
    /// Routes of these types, of all tables.
    claims: BTreeMap<(u32, Prefix<u32>), Claim>,
    /// Groups that the table leads to.
    groups: BTreeMap<Reason, u32>,
    /// What the image has.
    published: Vec<(Prefix<u32>, Claim)>,
    /// What there was no room in: every source is punted. Each commit tries again.
    pub(super) full: Option<Lack>,
}

impl Sources {
    /// The number of the table, if there is one.
    pub(super) fn table(&self) -> Option<u32> {
        self.id.map(TableId::index)
    }

    /// Follows the routes that have changed; says whether that concerns sources.
    pub(super) fn note(&mut self, state: &State) -> bool {
        match &state.v4.changed {
            Changed::Some(changed) => {
                let mut differs = false;
                for &(table, prefix) in changed {
                    let slot = state.v4.tables.get(&table).and_then(|t| t.get(prefix));
                    let slot = slot.filter(|_| may_appear(prefix));
                    let now = slot.and_then(|slot| claim_of(state, slot));
                    let before = match now {
                        Some(claim) => self.claims.insert((table, prefix), claim),
                        None => self.claims.remove(&(table, prefix)),
                    };
                    differs |= before != now;
                }
                differs
            }
            Changed::All => {
                let all = all_claims(state);
                let differs = all != self.claims;
                self.claims = all;
                differs
            }
        }
    }

    /// What there is against which sources, by prefix, the shorter ones first.
    fn wanted(&self, state: &State) -> Vec<(Prefix<u32>, Claim)> {
        let tables = tables_for_sources(&state.rules);
        let counts = |table: u32| tables.as_ref().is_none_or(|tables| tables.contains(&table));
        let mut wanted: BTreeMap<Prefix<u32>, Claim> = BTreeMap::new();
        let mut add = |prefix, claim| {
            let known = wanted.entry(prefix).or_insert(claim);
            *known = claim.max(*known);
        };
        for address in &state.addresses {
            if let IpAddr::V4(ip) = address.local {
                add(Prefix::host(ip.to_bits()), Claim::Own);
            }
        }
        for (&(table, prefix), &claim) in &self.claims {
            if counts(table) {
                add(prefix, claim);
            }
        }
        // Inside of what is not unicast nothing else counts.
        let is_covered = |prefix: Prefix<u32>| {
            let shorter = (0..prefix.len).map(|len| Prefix::new(prefix.addr, len));
            shorter
                .filter_map(|p| wanted.get(&p))
                .any(|claim| *claim == Claim::NotUnicast)
        };
        let list = wanted.iter().map(|(prefix, claim)| match claim {
            Claim::Own if is_covered(*prefix) => (*prefix, Claim::NotUnicast),
            claim => (*prefix, *claim),
        });
        list.collect()
    }
}

/// What a prefix's routes have against its addresses as sources.
fn claim_of(state: &State, slot: &Slot) -> Option<Claim> {
    let claims = slot.ids().iter().map(|id| claim_by(state, *id));
    claims.max().flatten()
}

fn claim_by(state: &State, id: AttrsId) -> Option<Claim> {
    let attrs = state.attrs.get(id);
    match attrs.kind {
        _ if attrs.flags & (ROUTE_STATIC | ROUTE_FPM) != 0 => None,
        RouteKind::Local => Some(Claim::Own),
        RouteKind::Broadcast | RouteKind::Anycast | RouteKind::Multicast => Some(Claim::NotUnicast),
        _ => None,
    }
}

/// A look at all routes; at the attributes of those that matter only.
fn all_claims(state: &State) -> BTreeMap<(u32, Prefix<u32>), Claim> {
    let refuses = [
        RouteKind::Local,
        RouteKind::Broadcast,
        RouteKind::Anycast,
        RouteKind::Multicast,
    ];
    let ids = state.attrs.numbers(|attrs| refuses.contains(&attrs.kind));
    let ids: HashSet<AttrsId> = ids.collect();
    let mut all = BTreeMap::new();
    for (number, table) in &state.v4.tables {
        for (prefix, slot) in table.iter() {
            if slot.ids().iter().any(|id| ids.contains(id))
                && may_appear(prefix)
                && let Some(claim) = claim_of(state, slot)
            {
                all.insert((*number, prefix), claim);
            }
        }
    }
    all
}

/// Whether any address of the prefix may be a source: rule 6.
fn may_appear(prefix: Prefix<u32>) -> bool {
    let inside =
        |addr: u32, len: u8| prefix.len >= len && Prefix::new(prefix.addr, len).addr == addr;
    !inside(127 << 24, 8) && !inside(224 << 24, 4) && !inside(u32::MAX, 32) && !inside(0, 32)
}

impl Rib {
    /// What the kernel may have against packets from this IPv4 address, whatever link they come in by. Costs a walk
    /// over all IPv4 routes; nothing need be committed.
    pub fn source_claim(&self, source: Ipv4Addr) -> Option<Claim> {
        let host = Prefix::host(source.to_bits());
        let lengths = (0..=32).rev();
        let covering = lengths.map(|len| Prefix::<u32>::new(host.addr, len));
        let sources = Sources {
            claims: all_claims(&self.state),
            ..Sources::default()
        };
        let list = sources.wanted(&self.state);
        let find = |prefix: Prefix<u32>| {
            let at = list.binary_search_by_key(&prefix, |(prefix, _)| *prefix);
            at.ok().map(|at| list[at].1)
        };
        covering.filter_map(find).next()
    }

    /// Writes the table of sources and the filter. What is new stands in the table before the filter leads
    /// there, and bits are set before others are cleared.
    pub(super) fn publish_sources(&mut self) {
        let wanted = self.sources.wanted(&self.state);
        let known = self.sources.id.is_some() && self.sources.full.is_none();
        if known && wanted == self.sources.published {
            return;
        }
        self.sources.full = self.write_sources(&wanted).err();
        self.write_filter(&wanted, self.sources.full.is_some());
        self.sources.published = wanted;
    }

    /// Writes the table of sources. Where there is no room every source may be refused.
    fn write_sources(&mut self, wanted: &[(Prefix<u32>, Claim)]) -> Result<(), Lack> {
        let at = publish!(self);
        let lpm = &mut self.v4.lpm;
        if self.sources.id.is_none() {
            let table = Lpm::<u32>::create_table(lpm, false);
            self.sources.id = table.ok();
        }
        let Some(id) = self.sources.id else {
            return Err(Lack::Routes4);
        };
        // One use each for good: these groups are never given back.
        let mut group = |reason| match self.sources.groups.get(&reason) {
            Some(group) => Some(*group),
            None => {
                let group = self.groups.take(Spec::Kernel(reason), &at)?;
                self.sources.groups.insert(reason, group);
                Some(group)
            }
        };
        let groups = (
            group(Reason::Local),
            group(Reason::SourceCheck),
            group(Reason::ImageFull),
        );
        let (Some(own), Some(other), Some(full)) = groups else {
            return Err(Lack::Groups);
        };
        let routes = wanted.iter().map(|(prefix, claim)| match claim {
            Claim::Own => (*prefix, own),
            Claim::NotUnicast => (*prefix, other),
        });
        if Lpm::replace_all(lpm, id, routes.collect()).is_ok() {
            return Ok(());
        }
        // One route always fits.
        let _ = Lpm::replace_all(lpm, id, vec![(Prefix::all(), full)]);
        Err(Lack::Routes4)
    }

    fn write_filter(&self, claims: &[(Prefix<u32>, Claim)], all: bool) {
        let words = self.memory.local4.words();
        let all = all || claims.iter().any(|(prefix, _)| prefix.len < FEW_ADDRESSES);
        let mut wanted = vec![if all { u64::MAX } else { 0 }; words.len()];
        if !all {
            for ip in claims.iter().flat_map(|(prefix, _)| prefix.addresses()) {
                let bit = local_bit(ip);
                wanted[bit / 64] |= 1 << (bit % 64);
            }
        }
        for (word, bits) in words.iter().zip(&wanted) {
            word.fetch_or(*bits, Ordering::Release);
        }
        for (word, bits) in words.iter().zip(&wanted) {
            word.store(*bits, Ordering::Release);
        }
    }
}
