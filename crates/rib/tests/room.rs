//! How much room groups take, and what is said when there is none.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[path = "common/parts.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use raddle_image::Lack;
use raddle_image::{Capacity, Group, Reason};
use raddle_rib::Rib;
use raddle_rib::event::{
    Event, GroupMember, Nexthop, NexthopKind, Route, RouteNexthop, RouteOp, RouteTarget,
};

const HOPS: u32 = 5;
/// More than 2^18 / 8: a group of five takes eight members.
const ROUTES: u32 = 62_000;

fn new_rib(capacity: &Capacity) -> Rib {
    let mut rib = common::new_rib(capacity);
    for index in 1..=HOPS {
        rib.apply(Event::Link(common::link(index, true, true)));
    }
    rib
}

/// Route number `n`, whose weights no other has.
fn weighted(n: u32) -> Event {
    let weight = |index| match index {
        1 => 1 + (n % 250) as u16,
        2 => 1 + (n / 250) as u16,
        _ => 7,
    };
    let hop = |index| RouteNexthop {
        index,
        gateway: Some([10, 200, index as u8, 2].into()),
        weight: weight(index),
        ..RouteNexthop::default()
    };
    let [_, a, b, c] = (n << 4).to_be_bytes();
    let route = Route {
        dst: format!("20.{a}.{b}.{c}/28").parse().unwrap(),
        target: RouteTarget::Multipath((1..=HOPS).map(hop).collect()),
        ..Route::default()
    };
    Event::Route(route, RouteOp::Add)
}

/// How many of the routes are spread, and how many are the kernel's for want of room.
fn spread(rib: &Rib) -> (u32, u32) {
    let table = rib.memory().link(1).table4;
    let mut counts = (0, 0);
    for n in 0..ROUTES {
        let address = (20 << 24) + (n << 4) + 1;
        let number = rib.memory().route4(table, address);
        match rib.memory().group(number) {
            Group::Threshold { .. } => counts.0 += 1,
            Group::Kernel(Reason::ImageFull) => counts.1 += 1,
            other => panic!("{other:?}"),
        }
    }
    counts
}

#[test]
fn many_weighted_groups_want_members_and_get_them() {
    let default = Capacity::default();
    let raised = Capacity {
        members: 1 << 19,
        ..default
    };
    let fewer = Capacity {
        groups: 1000,
        ..raised
    };
    let none = BTreeSet::new();
    for (capacity, lacks) in [
        (default, [Lack::Members].into()),
        (raised, none),
        (fewer, [Lack::Groups].into()),
    ] {
        let mut rib = new_rib(&capacity);
        (0..ROUTES).for_each(|n| rib.apply(weighted(n)));
        let commit = rib.commit();
        assert_eq!(
            (rib.lacks(), commit.full),
            (lacks.clone(), !lacks.is_empty())
        );
        let (spread, full) = spread(&rib);
        match lacks.first() {
            None => assert_eq!((spread, full), (ROUTES, 0)),
            // Each group for itself: the others are as they should be.
            Some(Lack::Members) => {
                assert_eq!((spread, full), ((1 << 18) / 8, ROUTES - (1 << 18) / 8))
            }
            // Half a table would misroute.
            Some(_) => assert_eq!((spread, full), (0, ROUTES)),
        }
        // What goes makes room.
        if lacks.contains(&Lack::Members) {
            for n in 0..ROUTES / 2 {
                let Event::Route(route, _) = weighted(n) else {
                    unreachable!()
                };
                rib.apply(Event::RouteGone(route));
            }
            rib.commit();
            rib.commit();
            assert_eq!(rib.lacks(), BTreeSet::new());
        }
    }
}

#[test]
fn groups_of_equal_members_share_them() {
    let capacity = Capacity {
        nodes4: 1 << 16,
        leaves4: 1 << 16,
        words6: 1 << 16,
        groups: 4096,
        members: 16,
        adjacencies: 64,
        segments: 64,
        templates: 1 << 10,
    };
    let mut rib = new_rib(&capacity);
    for index in 1..=HOPS {
        let kind = NexthopKind::Single {
            gateway: Some([10, 200, index as u8, 2].into()),
            index,
            encap: None,
        };
        rib.apply(Event::Nexthop(Nexthop::new(index, 0, kind)));
    }
    let members = |list: &[u32]| {
        let member = |id: &u32| GroupMember { id: *id, weight: 1 };
        NexthopKind::Group(list.iter().map(member).collect())
    };
    let route = |id: u32| {
        let [_, _, a, b] = id.to_be_bytes();
        let route = Route {
            dst: format!("20.0.{a}.{b}/32").parse().unwrap(),
            target: RouteTarget::Object(id),
            ..Route::default()
        };
        Event::Route(route, RouteOp::Add)
    };
    let ids = 1000..2000u32;
    for id in ids.clone() {
        rib.apply(Event::Nexthop(Nexthop::new(id, 0, members(&[1, 2, 3, 4]))));
        rib.apply(route(id));
    }
    rib.commit();
    let firsts = |rib: &Rib| {
        let table = rib.memory().link(1).table4;
        let mut firsts: BTreeMap<u32, u32> = BTreeMap::new();
        for id in ids.clone() {
            let number = rib.memory().route4(table, (20 << 24) + id);
            match rib.memory().group(number) {
                Group::Threshold { first, .. } => *firsts.entry(first).or_default() += 1,
                other => panic!("{other:?}"),
            }
        }
        firsts.into_values().collect::<Vec<u32>>()
    };
    assert_eq!((firsts(&rib), rib.lacks()), (vec![1000], BTreeSet::new()));
    // One goes its own way, then another; the rest stay where they are, until the last has gone.
    for (count, id) in (1..).zip([1500, 1000, 1999]) {
        rib.apply(Event::Nexthop(Nexthop::new(id, 0, members(&[2, 3, 4, 5]))));
        rib.commit();
        let mut counts = firsts(&rib);
        counts.sort_unstable();
        assert_eq!(
            (counts, rib.lacks()),
            (vec![count, 1000 - count], BTreeSet::new())
        );
    }
    for id in ids.clone() {
        rib.apply(Event::Nexthop(Nexthop::new(id, 0, members(&[2, 3, 4, 5]))));
        rib.commit();
    }
    assert_eq!((firsts(&rib), rib.lacks()), (vec![1000], BTreeSet::new()));
    // The room that was given back is used again.
    for id in ids.clone() {
        rib.apply(Event::Nexthop(Nexthop::new(id, 0, members(&[1, 3, 5, 4]))));
        rib.commit();
    }
    assert_eq!((firsts(&rib), rib.lacks()), (vec![1000], BTreeSet::new()));
}

/// Neighbours have entries of their own: where these have filled a view, their going makes room as that of routes does.
#[test]
fn hosts_that_go_make_room() {
    let capacity = Capacity {
        groups: 1000,
        ..Capacity::default()
    };
    let mut rib = new_rib(&capacity);
    let connected = Route {
        dst: "10.200.0.0/16".parse().unwrap(),
        target: RouteTarget::Single(RouteNexthop {
            index: 1,
            weight: 1,
            ..RouteNexthop::default()
        }),
        ..Route::default()
    };
    rib.apply(Event::Route(connected, RouteOp::Add));
    let host = |n: u32| {
        let [_, _, a, b] = n.to_be_bytes();
        IpAddr::from([10, 200, a, b])
    };
    for n in 1..=2000 {
        rib.apply(Event::Neighbour(common::neighbour(1, host(n))));
    }
    rib.commit();
    assert_eq!(rib.lacks(), [Lack::Groups].into());
    for n in 501..=2000 {
        rib.apply(Event::NeighbourGone(1, host(n)));
    }
    rib.commit();
    rib.commit();
    assert_eq!(rib.lacks(), BTreeSet::new());
    let table = rib.memory().link(1).table4;
    let number = rib.memory().route4(table, (10 << 24) + (200 << 16) + 7);
    assert!(
        !matches!(rib.memory().group(number), Group::Kernel(_)),
        "the neighbour is forwarded to"
    );
}
