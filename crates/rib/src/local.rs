//! What this machine's own connections need of the image beside what forwarded packets do: the sources that paths give, and where they
//! are looked up.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use raddle_image::{LinkEntry, LocalWay, link_flags};
use raddle_select::SourcePreference;

use crate::resolve::{Hop, Resolved, Spec};
use crate::rib::Rib;
use crate::rules::{Lookup, lookup_apart};
use crate::state::State;

/// The index that `lo` has in every network namespace.
pub(crate) const LOOPBACK: u32 = 1;

/// What a route says of packets of this machine; nothing in images that are for forwarded ones alone, so that routes that differ in that
/// share their groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Own {
    pub(crate) prefsrc: Option<Ipv4Addr>,
    pub(crate) scope: u8,
}

impl Rib {
    /// Has the image tell how this machine's own connections choose, on a kernel that prefers paths so: from the first route on. The
    /// memory must have room for that ([`raddle_image::Memory::with_local`]).
    pub fn set_own(&mut self, preference: SourcePreference) {
        self.state.own = Some(preference);
    }
}

/// How IPv4 connections without a source choose in a group, and whether a source that they have makes no other difference than in the hash.
/// `sources` has, for each hop that may be chosen, what its path gives and what it is preferred for.
///
/// 1. A path that gives none: unknown.
/// 2. No path is preferred ([`SourcePreference::None`]): by the second look-up. So it is where all give the same source, and either all
///    are preferred for it or none is, [`SourcePreference::Faulty`] excepted, which sends all by the last path then.
/// 3. Each gives another, and is preferred for it: the first look-up decides, as its path's source holds the second one to that path.
/// 4. Anything else: unknown.
pub(crate) fn way(
    preference: SourcePreference,
    sources: &[(Option<Ipv4Addr>, Option<Ipv4Addr>)],
) -> (LocalWay, bool) {
    let any = preference == SourcePreference::None;
    let given: Option<Vec<Ipv4Addr>> = sources.iter().map(|(given, _)| *given).collect();
    let Some(given) = given else {
        return (LocalWay::Unknown, any);
    };
    let Some(first) = given.first() else {
        return (LocalWay::Unknown, any);
    };
    let is_preferred = |(given, preferred): &(Option<Ipv4Addr>, _)| given == preferred;
    let one = LocalWay::Source(first.octets());
    let way = if given.iter().all(|source| source == first) {
        let preferred = sources.iter().filter(|hop| is_preferred(hop)).count();
        match preference {
            SourcePreference::None => one,
            _ if preferred == sources.len() => one,
            SourcePreference::Scored if preferred == 0 => one,
            _ => LocalWay::Unknown,
        }
    } else if any {
        LocalWay::Both
    } else if given.iter().collect::<BTreeSet<_>>().len() == given.len()
        && sources.iter().all(is_preferred)
    {
        LocalWay::First
    } else {
        LocalWay::Unknown
    };
    (way, any)
}

/// How connections choose in a group.
pub(crate) struct Choices<'a> {
    pub(crate) way: LocalWay,
    /// A source that they have makes no other difference than in the hash.
    pub(crate) any_source: bool,
    /// The hops that may be chosen, with the source that each is preferred for.
    pub(crate) hops: Vec<(&'a Hop, Option<Ipv4Addr>)>,
}

/// How connections choose in a group. None of groups that are not chosen in by hash-threshold.
pub(crate) fn choices<'a>(
    state: &State,
    spec: &Spec,
    resolved: &'a Resolved,
) -> Option<Choices<'a>> {
    let preference = state.own?;
    let Resolved::Many { hops, ranges, .. } = resolved else {
        return None;
    };
    let own = spec.own();
    let chosen: BTreeSet<usize> = ranges.iter().map(|(_, hop)| *hop).collect();
    let v4 = |gateway: Option<IpAddr>| match gateway {
        Some(IpAddr::V4(ip)) => Some(ip),
        _ => None,
    };
    let preferred = |hop: &Hop| state.preferred_source(hop.index, v4(hop.gateway), own.scope);
    let hops: Vec<_> = chosen
        .into_iter()
        .map(|hop| (&hops[hop], preferred(&hops[hop])))
        .collect();
    let sources: Vec<_> = hops
        .iter()
        .map(|(_, preferred)| (own.prefsrc.or(*preferred), *preferred))
        .collect();
    let (way, any_source) = way(preference, &sources);
    Some(Choices {
        way,
        any_source,
        hops,
    })
}

/// Where this machine's own packets of a family are looked up: as those that come in by `lo`. None where rules ask for what a connection
/// does not show.
pub(crate) fn lookup(state: &State, family: u8) -> Option<Lookup> {
    let lo = state.links.get(&LOOPBACK)?;
    // A forwarded packet is no user's.
    let by_user = |rule: &crate::event::Rule| rule.family == family && rule.uidrange.is_some();
    if state.rules.iter().any(by_user) {
        return None;
    }
    let apart = lookup_apart(&state.rules, family, state.arrival(lo)).ok()?;
    apart.by_packet.is_empty().then_some(apart.lookup)
}

/// The entry of `lo` with the tables that are there; packets are not forwarded from it.
pub(crate) fn entry(table4: Option<u32>, table6: Option<u32>) -> LinkEntry {
    let lacks = |table: Option<u32>, flag: u32| if table.is_none() { flag } else { 0 };
    LinkEntry {
        index: LOOPBACK,
        flags: lacks(table4, link_flags::RULES4) | lacks(table6, link_flags::RULES6),
        table4: table4.unwrap_or_default(),
        table6: table6.unwrap_or_default(),
        ..LinkEntry::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use raddle_image::{Capacity, Group, Memory};
    use raddle_select::{LocalHop, choose_local4};

    use super::*;
    use crate::TABLE_MAIN;
    use crate::event::{Address, Event, Link, Route, RouteNexthop, RouteOp, RouteTarget};

    /// Which path a connection takes: two look-ups, as the kernel does them.
    fn twice(
        preference: SourcePreference,
        uppers: &[u32],
        sources: &[(Option<Ipv4Addr>, Option<Ipv4Addr>)],
        hashes: [u32; 2],
    ) -> usize {
        let look_up = |source: Option<Ipv4Addr>, hash| {
            let hop = |(upper, (_, preferred)): (&u32, &(_, Option<Ipv4Addr>))| LocalHop {
                upper: Some(*upper),
                good: true,
                has_source: source.is_some() && *preferred == source,
            };
            let hops: Vec<_> = uppers.iter().zip(sources).map(hop).collect();
            choose_local4(preference, &hops, source.is_some(), hash)
                .unwrap()
                .member
        };
        let first = look_up(None, hashes[0]);
        look_up(sources[first].0, hashes[1])
    }

    proptest! {
        #[test]
        fn ways_are_those_of_the_two_look_ups(
            preference in prop_oneof![
                Just(SourcePreference::None),
                Just(SourcePreference::Faulty),
                Just(SourcePreference::Scored)
            ],
            prefsrc in proptest::option::weighted(0.3, 1u32..4),
            preferred in proptest::collection::vec(1u32..5, 2..6),
            hashes in [0u32..=0x7fff_ffff, 0u32..=0x7fff_ffff],
        ) {
            let ip = |n: u32| Ipv4Addr::from_bits(n);
            let count = preferred.len() as u64;
            let uppers: Vec<u32> = (1..=count).map(|n| ((n << 31) / count - 1) as u32).collect();
            let sources: Vec<_> = preferred
                .iter()
                .map(|n| (Some(ip(prefsrc.unwrap_or(*n))), Some(ip(*n))))
                .collect();
            let by = |hash: u32| uppers.iter().position(|upper| hash <= *upper).unwrap();
            let expected = twice(preference, &uppers, &sources, hashes);
            match way(preference, &sources).0 {
                LocalWay::Unknown => prop_assert!(preference != SourcePreference::None),
                LocalWay::Source(source) => {
                    prop_assert_eq!(sources[by(hashes[0])].0, Some(source.into()));
                    prop_assert_eq!(by(hashes[1]), expected);
                }
                LocalWay::First => prop_assert_eq!(by(hashes[0]), expected),
                LocalWay::Both => prop_assert_eq!(by(hashes[1]), expected),
            }
        }
    }

    /// What the image says of a route over two links.
    fn told(preference: SourcePreference, prefsrc: Option<&str>) -> (Arc<Memory>, u32) {
        let capacity = Capacity {
            nodes4: 1 << 12,
            leaves4: 1 << 12,
            words6: 1 << 12,
            groups: 64,
            members: 64,
            adjacencies: 64,
            ..Capacity::SMALL
        };
        let memory = Arc::new(Memory::heap(&capacity).with_local());
        let mut rib = Rib::new(Arc::clone(&memory), &capacity, || ());
        rib.set_own(preference);
        for (index, name) in [(1, "lo"), (2, "a"), (3, "b")] {
            rib.apply(Event::Link(Link::ethernet(index, name, [2; 6])));
        }
        for (index, local) in [(2, [10, 0, 1, 1]), (3, [10, 0, 2, 1])] {
            let local = Ipv4Addr::from(local).into();
            rib.apply(Event::Address(Address::new(index, local, 24)));
        }
        let hop = |index, gateway: [u8; 4]| RouteNexthop {
            index,
            gateway: Some(Ipv4Addr::from(gateway).into()),
            ..RouteNexthop::default()
        };
        let route = Route {
            dst: "192.0.2.0/24".parse().unwrap(),
            table: TABLE_MAIN,
            prefsrc: prefsrc.map(|text| text.parse().unwrap()),
            target: RouteTarget::Multipath(vec![hop(2, [10, 0, 1, 2]), hop(3, [10, 0, 2, 2])]),
            ..Route::default()
        };
        rib.apply(Event::Route(route, RouteOp::Add));
        rib.commit();
        let lo = memory.link(LOOPBACK);
        assert_eq!(lo.index, LOOPBACK);
        assert_eq!(lo.flags, 0, "nothing is forwarded from it");
        let group = memory.route4(lo.table4, u32::from_be_bytes([192, 0, 2, 9]));
        assert!(matches!(
            memory.group(group),
            Group::Threshold { count: 2, .. }
        ));
        (memory, group)
    }

    #[test]
    fn the_image_tells_how_connections_choose() {
        let word = |preference, prefsrc| {
            let (memory, group) = told(preference, prefsrc);
            memory.local_way(group)
        };
        let (none, scored) = (SourcePreference::None, SourcePreference::Scored);
        assert_eq!(word(none, None), LocalWay::Both.to_word(true));
        assert_eq!(word(scored, None), LocalWay::First.to_word(false));
        let own = LocalWay::Source([10, 9, 9, 9]);
        assert_eq!(word(none, Some("10.9.9.9")), own.to_word(true));
        assert_eq!(word(scored, Some("10.9.9.9")), own.to_word(false));
        let (memory, group) = told(none, None);
        let Group::Threshold { first, .. } = memory.group(group) else {
            unreachable!();
        };
        let sources: Vec<_> = (0..2)
            .map(|place| memory.local_source(memory.member(first + place).adjacency))
            .collect();
        assert_eq!(sources, [Some([10, 0, 1, 1]), Some([10, 0, 2, 1])]);
    }

    #[test]
    fn a_path_without_a_source_is_not_known() {
        let one = Some(Ipv4Addr::LOCALHOST);
        let (way, any) = way(SourcePreference::None, &[(one, one), (None, None)]);
        assert_eq!((way, any), (LocalWay::Unknown, true));
    }
}
