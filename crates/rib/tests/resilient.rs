//! Resilient groups: what the mirror knows of their buckets, and what routes behind them come to.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod common;

use std::net::IpAddr;

use common::{Mirror, address, compare, link, object, route};
use proptest::prelude::*;
use raddle_image::{Capacity, Group, How, Reason};
use raddle_rib::event::{
    Bucket, Event, GroupMember, Neighbour, NexthopKind, RouteOp, RouteTarget, Settings, Sweep,
};
use raddle_rib::{AlgoRules, MpAlgo, Resolved, Rib};

const GROUP: u32 = 10;
const BUCKETS: u16 = 4;

fn single(id: u32) -> Event {
    let kind = NexthopKind::Single {
        gateway: Some(address(false, id as u8)),
        index: id,
        encap: None,
    };
    object(id, kind)
}

fn group(members: &[(u32, u16)]) -> Event {
    let members = members
        .iter()
        .map(|&(id, weight)| GroupMember { id, weight })
        .collect();
    let kind = NexthopKind::Resilient {
        members,
        buckets: BUCKETS,
        idle_timer: 100,
        unbalanced_timer: 0,
        unbalanced_time: 0,
    };
    object(GROUP, kind)
}

fn bucket(index: u16, nexthop: u32) -> Event {
    Event::Bucket(Bucket {
        group: GROUP,
        index,
        nexthop,
        idle_time: 0,
        flags: 0,
    })
}

fn resolved(rib: &Rib) -> Resolved {
    rib.trace("l1", address(false, 60)).resolved
}

/// The positions of the owners in the group; none when packets go to the kernel.
fn table(rib: &Rib) -> Option<Vec<u16>> {
    match resolved(rib) {
        Resolved::Resilient { buckets, .. } => Some(buckets),
        Resolved::Kernel(Reason::Resilient) => None,
        other => panic!("{other:?}"),
    }
}

/// Four links, a nexthop on each, the group, and a route to it.
fn new_rib(members: &[(u32, u16)]) -> Mirror {
    new_rib_with(256, members)
}

/// The same in an image with room for so many words of members.
fn new_rib_with(room: usize, members: &[(u32, u16)]) -> Mirror {
    let mut rib = common::new_rib(&Capacity {
        nodes4: 1 << 12,
        leaves4: 1 << 12,
        words6: 1 << 12,
        groups: 64,
        members: room,
        adjacencies: 64,
        segments: 64,
        templates: 1 << 10,
    });
    rib.apply(Event::Settings(Settings {
        hash_seed: 7,
        ..Settings::default()
    }));
    for id in 1..=4 {
        rib.apply(Event::Link(link(id, true, true)));
        rib.apply(single(id));
    }
    rib.apply(group(members));
    let target = RouteTarget::Object(GROUP);
    rib.apply(Event::Route(
        route(address(false, 0), 1, target),
        RouteOp::Add,
    ));
    rib
}

fn fill(rib: &mut Mirror, owners: [u32; 4]) {
    for (index, owner) in (0..).zip(owners) {
        rib.apply(bucket(index, owner));
    }
}

#[test]
fn a_table_is_followed_once_all_of_it_is_known() {
    let mut rib = new_rib(&[(1, 1), (3, 2)]);
    rib.apply(bucket(0, 3));
    rib.apply(bucket(1, 3));
    rib.apply(bucket(2, 1));
    assert_eq!(table(&rib), None);
    rib.apply(bucket(3, 3));
    assert_eq!(table(&rib), Some(vec![1, 1, 0, 1]));
    // A bucket moves, as the kernel announces it.
    rib.apply(bucket(1, 1));
    assert_eq!(table(&rib), Some(vec![1, 0, 0, 1]));
    // To one that is no member, as far as we know.
    rib.apply(bucket(1, 2));
    assert_eq!(table(&rib), None);
    rib.apply(bucket(1, 1));
    let Resolved::Resilient {
        group,
        hops,
        idle_timer,
        ..
    } = resolved(&rib)
    else {
        panic!("{:?}", resolved(&rib));
    };
    assert_eq!((group, idle_timer), (GROUP, 100));
    let seen: Vec<_> = hops
        .iter()
        .map(|h| (h.object, h.index, h.weight, h.upper))
        .collect();
    assert_eq!(seen, [(Some(1), 1, 1, None), (Some(3), 3, 2, None)]);
}

/// `nexthop_select_path_res` asks no neighbour.
#[test]
fn neighbours_do_not_matter() {
    let mut rib = new_rib(&[(1, 1), (2, 1)]);
    fill(&mut rib, [1, 1, 2, 2]);
    for state in [0x20, 0, 1, 2] {
        let known = common::neighbour(1, address(false, 1));
        rib.apply(Event::Neighbour(Neighbour { state, ..known }));
        assert_eq!(table(&rib), Some(vec![0, 0, 1, 1]));
    }
}

#[test]
fn what_moves_buckets_silently_makes_the_table_unknown() {
    let owners = [1, 1, 2, 2];
    let members = [(1, 1), (2, 1)];
    let lost: [&[Event]; 9] = [
        &[group(&members)],
        &[group(&[(1, 1), (2, 2)])],
        &[Event::NexthopGone(2)],
        &[Event::Link(link(2, false, true))],
        &[Event::Link(link(2, true, false))],
        // The kernel has taken the nexthops behind it out of groups, for good.
        &[
            Event::Link(link(2, false, true)),
            Event::Link(link(2, true, true)),
        ],
        &[
            Event::Link(link(2, true, false)),
            Event::Link(link(2, true, true)),
        ],
        &[Event::LinkGone(2), Event::Link(link(2, true, true))],
        // A dump says that the group has lost a member.
        &[
            Event::SweepBegin(Sweep::Nexthops),
            single(1),
            group(&[(1, 1)]),
            Event::SweepEnd(Sweep::Nexthops),
        ],
    ];
    for events in lost {
        let mut rib = new_rib(&members);
        fill(&mut rib, owners);
        assert!(table(&rib).is_some());
        events.iter().for_each(|e| rib.apply(e.clone()));
        assert_eq!(table(&rib), None, "{events:?}");
        assert!(rib.is_dirty());
    }
    // Neither a dump that says the same, nor news of a member, moves any.
    for events in [
        &[
            Event::SweepBegin(Sweep::Nexthops),
            single(1),
            single(2),
            group(&members),
            Event::SweepEnd(Sweep::Nexthops),
        ][..],
        &[single(1)],
        &[
            Event::Link(link(3, false, true)),
            Event::Link(link(3, true, true)),
            Event::Link(link(2, true, true)),
        ],
    ] {
        let mut rib = new_rib(&members);
        fill(&mut rib, owners);
        events.iter().for_each(|e| rib.apply(e.clone()));
        assert_eq!(table(&rib), Some(vec![0, 0, 1, 1]), "{events:?}");
    }
}

#[test]
fn a_dump_replaces_the_table_at_once() {
    let mut rib = new_rib(&[(1, 1), (2, 1)]);
    fill(&mut rib, [1, 1, 2, 2]);
    for sweep in [Sweep::Buckets, Sweep::BucketsOf(GROUP)] {
        rib.commit();
        rib.apply(Event::SweepBegin(sweep));
        fill(&mut rib, [2, 2, 1, 1]);
        assert_eq!(table(&rib), Some(vec![0, 0, 1, 1]));
        assert!(!rib.is_dirty());
        rib.apply(Event::SweepEnd(sweep));
        assert_eq!(table(&rib), Some(vec![1, 1, 0, 0]));
        assert!(rib.is_dirty());
        fill(&mut rib, [1, 1, 2, 2]);
    }
    rib.apply(Event::SweepBegin(Sweep::Buckets));
    rib.apply(Event::SweepEnd(Sweep::Buckets));
    assert_eq!(table(&rib), None);
}

#[test]
fn a_group_of_one_blackhole_drops() {
    let mut rib = new_rib(&[(1, 1)]);
    rib.apply(object(1, NexthopKind::Blackhole));
    fill(&mut rib, [1; 4]);
    assert_eq!(resolved(&rib), Resolved::Kernel(Reason::Blackhole));
}

/// What engines read for the group.
fn published(rib: &Rib) -> Group {
    let IpAddr::V4(dst) = address(false, 60) else {
        panic!("IPv4");
    };
    let memory = rib.memory();
    let table = memory.link(1).table4;
    memory.group(memory.route4(table, dst.to_bits()))
}

/// A new table comes before the old one goes. Where there is no room for both, the group is not left
/// to the kernel until something else happens.
#[test]
fn a_table_that_moves_needs_no_more_room_than_it_has() {
    let mut rib = new_rib_with(8, &[(1, 1), (2, 1)]);
    for owners in [[1, 1, 2, 2], [1, 2, 2, 2], [1, 1, 1, 2], [2; 4]] {
        fill(&mut rib, owners);
        rib.commit();
        assert!(!rib.is_dirty() && !rib.usage().full, "{owners:?}");
        let is_there = matches!(published(&rib), Group::Resilient { .. });
        assert!(is_there, "{owners:?}: {:?}", published(&rib));
        compare(&rib, [address(false, 60)]);
    }
}

/// The packets that are shown to the kernel are hashed by its own policy there: by another one they
/// would leave by another member, and keep another bucket alive.
#[test]
fn no_rule_hashes_otherwise_than_the_kernel() {
    for algo in ["l4", "inner", "round-robin", "flowlet"] {
        let mut rib = new_rib(&[(1, 1), (2, 1)]);
        let algo: MpAlgo = algo.parse().unwrap();
        rib.set_algos(AlgoRules {
            prefixes: vec![("10.0.0.0/8".parse().unwrap(), algo)],
            groups: [(GROUP, algo)].into(),
        });
        fill(&mut rib, [1, 1, 2, 2]);
        rib.commit();
        let group = published(&rib);
        assert!(
            matches!(group, Group::Resilient { count: BUCKETS, how, .. } if how == How::default()),
            "{algo}: {group:?}"
        );
        assert_eq!(rib.trace("l1", address(false, 60)).algo, None);
    }
}

fn event() -> impl Strategy<Value = Vec<Event>> {
    let members = || {
        proptest::sample::subsequence(vec![1u32, 2, 3, 4], 1..=4)
            .prop_map(|ids| ids.into_iter().map(|id| (id, 1)).collect::<Vec<_>>())
    };
    let owners = || proptest::array::uniform4(1..5u32);
    let buckets = |owners: [u32; 4]| (0..).zip(owners).map(|(i, owner)| bucket(i, owner));
    prop_oneof![
        2 => members().prop_map(|members| vec![group(&members)]),
        4 => (0..BUCKETS, 1..5u32).prop_map(|(index, owner)| vec![bucket(index, owner)]),
        4 => owners().prop_map(move |owners| buckets(owners).collect()),
        2 => (any::<bool>(), owners()).prop_map(move |(all, owners)| {
            let sweep = if all { Sweep::Buckets } else { Sweep::BucketsOf(GROUP) };
            let end = [Event::SweepEnd(sweep)];
            [Event::SweepBegin(sweep)].into_iter().chain(buckets(owners)).chain(end).collect()
        }),
        1 => (1..5u32).prop_map(|id| vec![Event::NexthopGone(id)]),
        2 => (1..5u32).prop_map(|id| vec![single(id)]),
        2 => (1..5u32, any::<bool>()).prop_map(|(id, up)| vec![Event::Link(link(id, up, true))]),
        2 => (1..5u32, prop_oneof![Just(2u16), Just(0x20)]).prop_map(|(id, state)| {
            let known = common::neighbour(id, address(false, id as u8));
            vec![Event::Neighbour(Neighbour { state, ..known })]
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_image_follows_the_mirror(batches in proptest::collection::vec(
        proptest::collection::vec(event(), 0..4), 1..12)) {
        let mut rib = new_rib(&[(1, 1), (2, 1), (3, 1), (4, 1)]);
        rib.commit();
        for batch in batches {
            batch.into_iter().flatten().for_each(|event| rib.apply(event));
            rib.commit();
            prop_assert!(!rib.is_dirty());
            let addresses: Vec<IpAddr> = (56..64).map(|n| address(false, n)).collect();
            compare(&rib, addresses);
            let json = serde_json::to_string(&rib.snapshot()).unwrap();
            let snapshot: raddle_rib::Snapshot = serde_json::from_str(&json).unwrap();
            let mut other = Rib::detached();
            snapshot.into_events().for_each(|event| other.apply(event));
            prop_assert_eq!(resolved(&rib), resolved(&other));
        }
    }
}
