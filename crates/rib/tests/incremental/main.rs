//! The image after any sequence of changes says what the mirror says, looked up the slow way.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod bonded;
mod bonds;
#[path = "../common/mod.rs"]
mod common;
mod draw;
mod expiry;
mod hosts;
mod rp_filter;
mod sources;
mod vlans;
mod wide;

use std::sync::{Arc, Mutex};

use common::{Mirror, object as nexthop};
use draw::{LINKS, address, event, link, route};
use ipnet::IpNet;
use proptest::prelude::*;
use raddle_image::{Adjacency, Capacity, LinkEntry, Memory, Reason};
use raddle_rib::event::{
    DeviceSettings, Event, GroupMember, Neighbour, Nexthop, NexthopKind, ROUTE_FPM, Route,
    RouteNexthop, RouteOp, RouteTarget, Rule, Settings, Sweep,
};
use raddle_rib::{Ports, Rib};

fn new_rib(capacity: &Capacity) -> Mirror {
    let mut rib = common::new_rib(capacity);
    rib.apply(Event::Settings(Settings {
        hash_seed: 7,
        ..Settings::default()
    }));
    for index in 1..=LINKS {
        rib.apply(link(index, true, true));
    }
    rib.commit();
    rib
}

/// Holds the image against the mirror at all addresses.
fn compare(rib: &Mirror) {
    common::compare(
        rib,
        (0..64).flat_map(|n| [false, true].map(|v6| address(v6, n))),
    );
}

fn small() -> Capacity {
    Capacity {
        nodes4: 1 << 16,
        leaves4: 1 << 16,
        words6: 1 << 16,
        groups: 4096,
        members: 4096,
        adjacencies: 1024,
        segments: 64,
        templates: 1 << 10,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_image_follows_the_mirror(batches in proptest::collection::vec(
        proptest::collection::vec(event(), 0..12), 1..12)) {
        let mut rib = new_rib(&small());
        for batch in batches {
            for event in batch {
                rib.apply(event);
            }
            rib.commit();
            prop_assert!(!rib.is_dirty());
            compare(&rib);
        }
    }

    /// As the daemon does it: nexthops at once, the rest only where something is left to do.
    #[test]
    fn the_image_follows_when_nexthops_are_published_first(batches in proptest::collection::vec(
        proptest::collection::vec(event(), 0..4), 1..24)) {
        let mut rib = new_rib(&small());
        for batch in batches {
            for event in batch {
                let at_once = matches!(event, Event::Nexthop(_) | Event::NexthopGone(_));
                rib.apply(event);
                if at_once {
                    rib.commit_nexthops();
                }
            }
            if rib.is_dirty() {
                rib.commit();
            }
            compare(&rib);
        }
    }

    /// As the daemon does it: what follows for a lost link comes first, and before that another thread has punted
    /// what leaves by it. It may also be late, and punt what the mirror knows to be up again.
    #[test]
    fn the_image_follows_when_lost_links_are_published_first(batches in proptest::collection::vec(
        (proptest::collection::vec(event(), 0..6), 1..=LINKS, any::<bool>()), 1..24)) {
        let mut rib = new_rib(&small());
        for (batch, index, loses) in batches {
            if loses {
                for carrier in [true, false, true] {
                    if !carrier {
                        rib.memory().punt_link(index);
                        let by = |number| rib.memory().adjacency(number);
                        let leaves = |a: Adjacency| a.leaves_by() == index || a.index == index;
                        let forwards = |a: Adjacency| a.forwards() && leaves(a);
                        prop_assert!(!rib.adjacencies().any(|(number, ..)| forwards(by(number))));
                    }
                    rib.apply(link(index, true, carrier));
                    prop_assert_ne!(rib.commit_links().is_some(), carrier);
                }
            }
            batch.into_iter().for_each(|event| rib.apply(event));
            rib.commit_links();
            if rib.is_dirty() {
                rib.commit();
            }
            compare(&rib);
        }
    }

    #[test]
    fn a_snapshot_makes_the_same_mirror(events in proptest::collection::vec(event(), 0..60)) {
        let mut rib = new_rib(&small());
        events.into_iter().for_each(|event| rib.apply(event));
        let json = serde_json::to_string(&rib.snapshot()).unwrap();
        let snapshot: raddle_rib::Snapshot = serde_json::from_str(&json).unwrap();
        let mut other = Rib::detached();
        snapshot.into_events().for_each(|event| other.apply(event));
        prop_assert_eq!(rib.snapshot(), other.snapshot());
    }

    #[test]
    fn a_dump_leaves_what_it_mentions(
        before in proptest::collection::vec(event(), 0..60),
        after in proptest::collection::vec(any::<bool>().prop_flat_map(route), 0..20),
    ) {
        let mut rib = new_rib(&small());
        before.into_iter().for_each(|event| rib.apply(event));
        rib.commit();
        let mut fresh = Rib::detached();
        for sweep in [Sweep::Routes4, Sweep::Routes6] {
            rib.apply(Event::SweepBegin(sweep));
        }
        for route in after {
            rib.apply(Event::Route(route.clone(), RouteOp::Add));
            fresh.apply(Event::Route(route, RouteOp::Add));
        }
        // Nothing of a dump shows before it is complete.
        rib.commit();
        for sweep in [Sweep::Routes4, Sweep::Routes6] {
            rib.apply(Event::SweepEnd(sweep));
        }
        rib.commit();
        // Dumps are the kernel's, and of that only.
        let mut routes = [rib.snapshot().routes, fresh.snapshot().routes];
        routes[0].retain(|route| route.flags & ROUTE_FPM == 0);
        // Times are settled with what was known.
        routes.iter_mut().flatten().for_each(|route| route.expires = None);
        prop_assert_eq!(&routes[0], &routes[1]);
        compare(&rib);
    }

    #[test]
    fn notifications_count_while_a_dump_runs(
        before in proptest::collection::vec(told_route(), 0..40),
        steps in proptest::collection::vec(
            prop_oneof![2 => told_route().prop_map(Some), 3 => Just(None)], 0..60),
        again in any::<bool>(),
    ) {
        // What the kernel has, as a mirror that dumps nothing is told of it.
        let (mut kernel, mut rib) = (new_rib(&small()), new_rib(&small()));
        for (route, op) in before {
            let op = as_told(&kernel, &route, op);
            kernel.apply(notification(route.clone(), op));
            rib.apply(notification(route, op));
        }
        rib.commit();
        for sweep in [Sweep::Routes4, Sweep::Routes6] {
            rib.apply(Event::SweepBegin(sweep));
        }
        if again {
            for sweep in [Sweep::Routes4, Sweep::Routes6] {
                rib.apply(Event::SweepBegin(sweep));
            }
        }
        // A dump goes from prefix to prefix, and tells of each what there is then.
        let mut dumped: Option<(bool, u32, IpNet)> = None;
        for step in steps {
            match step {
                Some((route, op)) => {
                    let op = as_told(&kernel, &route, op);
                    kernel.apply(notification(route.clone(), op));
                    rib.apply(Event::Meanwhile(route, op));
                }
                None => dumped = dump_next(&kernel, &mut rib, dumped).or(dumped),
            }
            rib.commit();
            prop_assert_eq!(routes_of(&rib), routes_of(&kernel));
            compare(&rib);
        }
        while let Some(next) = dump_next(&kernel, &mut rib, dumped) {
            dumped = Some(next);
        }
        for sweep in [Sweep::Routes4, Sweep::Routes6] {
            rib.apply(Event::SweepEnd(sweep));
        }
        rib.commit();
        prop_assert_eq!(routes_of(&rib), routes_of(&kernel));
        compare(&rib);
    }

    #[test]
    fn a_full_image_punts_and_recovers(batches in proptest::collection::vec(
        proptest::collection::vec(event(), 0..20), 1..8)) {
        let capacity = Capacity {
            nodes4: 128, leaves4: 128, words6: 128, groups: 24, members: 16, adjacencies: 8,
 segments: 64,
 templates: 1 << 10,
        };
        let mut rib = new_rib(&capacity);
        for batch in batches {
            batch.into_iter().for_each(|event| rib.apply(event));
            rib.commit();
            compare(&rib);
        }
    }
}

/// A route that is replaced, or gone: what a dump and a notification both tell comes to the same.
fn told_route() -> impl Strategy<Value = (Route, Option<RouteOp>)> {
    let op = prop_oneof![
        3 => Just(Some(RouteOp::Replace)),
        2 => Just(Some(RouteOp::Add)),
        2 => Just(None),
    ];
    (any::<bool>().prop_flat_map(route), op)
}

/// What the kernel tells where it takes it: an IPv4 route is new only where there is none of its key. IPv6 routes of one
/// metric become one, which is told as a whole. (Others that stand beside one of their key are read again.)
fn as_told(kernel: &Rib, route: &Route, op: Option<RouteOp>) -> Option<RouteOp> {
    let key = |route: &Route| (route.table, route.dst, route.tos, route.metric);
    let routes = routes_of(kernel);
    let mut equals = routes.iter().filter(|other| key(other) == key(route));
    match op {
        Some(RouteOp::Add) if equals.next().is_none() && route.dst.addr().is_ipv4() => op,
        Some(_) => Some(RouteOp::Replace),
        None => None,
    }
}

fn notification(route: Route, op: Option<RouteOp>) -> Event {
    match op {
        Some(op) => Event::Route(route, op),
        None => Event::RouteGone(route),
    }
}

fn routes_of(rib: &Rib) -> Vec<Route> {
    rib.snapshot().routes
}

/// Tells of the prefix behind the last one.
fn dump_next(
    kernel: &Rib,
    rib: &mut Mirror,
    last: Option<(bool, u32, IpNet)>,
) -> Option<(bool, u32, IpNet)> {
    let key = |route: &Route| (route.dst.addr().is_ipv6(), route.table, route.dst);
    let routes = routes_of(kernel);
    let next = routes
        .iter()
        .map(key)
        .filter(|key| Some(*key) > last)
        .min()?;
    for route in routes.iter().filter(|route| key(route) == next) {
        rib.apply(Event::Route(route.clone(), RouteOp::Add));
    }
    Some(next)
}

/// 0.0.0.0/1 by way of a nexthop object.
fn object_route(id: u32) -> Route {
    common::route(address(false, 0), 1, RouteTarget::Object(id))
}

/// A group without any weight leads to no adjacency; the image must not keep the one that it had.
#[test]
fn a_group_that_loses_its_weights_goes_to_the_kernel() {
    let mut rib = new_rib(&small());
    let gateway = address(false, 1);
    for index in [1, 2] {
        rib.apply(nexthop(
            index,
            NexthopKind::Single {
                gateway: Some(gateway),
                index,
                encap: None,
            },
        ));
    }
    let group = |members: &[(u32, u16)]| {
        let member = |&(id, weight): &(u32, u16)| GroupMember { id, weight };
        nexthop(3, NexthopKind::Group(members.iter().map(member).collect()))
    };
    rib.apply(Event::Route(object_route(3), RouteOp::Add));
    for members in [&[(1, 1)][..], &[(1, 0), (2, 0)], &[(1, 1), (2, 1)]] {
        rib.apply(group(members));
        rib.commit();
        compare(&rib);
    }
}

/// Packets longer than IPv6's own MTU on a link, or than any path MTU that the kernel may have
/// learnt where it forwards by those, are the kernel's.
#[test]
fn smaller_mtus_than_the_links() {
    let mut rib = new_rib(&small());
    let gateway = address(false, 1);
    rib.apply(Event::Neighbour(common::neighbour(2, gateway)));
    let hop = RouteNexthop {
        gateway: Some(gateway),
        index: 2,
        weight: 1,
        ..RouteNexthop::default()
    };
    rib.apply(Event::Route(
        Route {
            target: RouteTarget::Single(hop),
            ..object_route(0)
        },
        RouteOp::Add,
    ));
    let device = |mtu6| {
        let settings = DeviceSettings {
            mtu6,
            ..DeviceSettings::default()
        };
        Event::Device(2, settings)
    };
    let learns = |forward_use_pmtu, min_pmtu| {
        Event::Settings(Settings {
            hash_seed: 7,
            forward_use_pmtu,
            min_pmtu,
            ..Settings::default()
        })
    };
    for (event, mtu) in [
        (device(0), 1500),
        (device(1500), 1500),
        (device(1300), 1300),
        (learns(false, 552), 1300),
        (learns(true, 552), 552),
        (learns(true, 0), 68),
        (learns(false, 552), 1300),
        (device(9000), 1500),
    ] {
        let text = format!("{event:?}");
        rib.apply(event);
        rib.commit();
        let (number, .., adjacency) = rib.adjacencies().next().unwrap();
        assert_eq!(adjacency.mtu, mtu, "{text}");
        assert_eq!(rib.memory().adjacency(number).mtu, mtu, "{text}");
    }
}

/// A nexthop object that gets a gateway takes the entries of its neighbours away, also when nexthops
/// are published first: packets to them are the gateway's now.
#[test]
fn a_direct_object_that_gets_a_gateway() {
    let mut rib = new_rib(&small());
    let to = |gateway| {
        let (index, encap) = (2, None);
        let kind = NexthopKind::Single {
            gateway,
            index,
            encap,
        };
        nexthop(3, kind)
    };
    for n in [1, 9] {
        rib.apply(Event::Neighbour(Neighbour {
            index: 2,
            dst: address(false, n),
            mac: Some([4, 0, 0, 0, 2, n as u8]),
            state: 2,
            flags: 0,
            protocol: 0,
        }));
    }
    rib.apply(to(None));
    rib.apply(Event::Route(object_route(3), RouteOp::Add));
    rib.commit();
    compare(&rib);
    rib.apply(to(Some(address(false, 9))));
    let commit = rib.commit_nexthops().unwrap();
    assert_eq!((commit.groups, commit.full), (1, false));
    assert_eq!(rib.commit_nexthops(), None);
    assert!(rib.is_dirty());
    rib.commit();
    compare(&rib);
}

/// An object for a forwarding database is for no route, not even to its neighbours.
#[test]
fn neighbours_by_an_object_for_a_forwarding_database_are_the_kernels() {
    let mut rib = new_rib(&small());
    let host = address(false, 1);
    let kind = NexthopKind::Single {
        gateway: None,
        index: 2,
        encap: None,
    };
    rib.apply(Event::Nexthop(Nexthop {
        fdb: true,
        ..Nexthop::new(3, 2, kind)
    }));
    rib.apply(Event::Neighbour(common::neighbour(2, host)));
    rib.apply(Event::Route(object_route(3), RouteOp::Add));
    rib.commit();
    compare(&rib);
    let seen = common::seen_by_engines(&rib, 1, host);
    assert_eq!(seen, Some(Err(Reason::RouteFeature)));
}

/// Neighbours on a direct nexthop object have entries of their own, which a dump that no longer
/// mentions the object must take away.
#[test]
fn a_dump_without_a_direct_object_takes_its_neighbours_away() {
    let mut rib = new_rib(&small());
    let kind = NexthopKind::Single {
        gateway: None,
        index: 2,
        encap: None,
    };
    rib.apply(nexthop(3, kind));
    rib.apply(Event::Neighbour(Neighbour {
        index: 2,
        dst: address(false, 1),
        mac: Some([4, 0, 0, 0, 2, 1]),
        state: 2,
        flags: 0,
        protocol: 0,
    }));
    rib.apply(Event::Route(object_route(3), RouteOp::Add));
    rib.commit();
    compare(&rib);
    rib.apply(Event::SweepBegin(Sweep::Nexthops));
    rib.apply(Event::SweepEnd(Sweep::Nexthops));
    rib.commit();
    compare(&rib);
}

/// A link's table may change only when nobody is left who saw its flags before: such a packet would
/// be looked up in a table that was never the link's.
#[test]
fn a_link_changes_its_table_while_nobody_looks() {
    let memory = Arc::new(Memory::heap(&small()));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (image, waits) = (Arc::clone(&memory), Arc::clone(&seen));
    let grace = move || waits.lock().unwrap().push(image.link(1));
    let mut rib = Rib::new(memory, &small(), grace);
    rib.apply(link(1, true, true));
    rib.set_ports(Ports {
        enabled: [1].into(),
        out: [1].into(),
    });
    rib.commit();
    let before = rib.memory().link(1);
    for (priority, table, iif) in [(0, 255, None), (9, 7, Some("l1")), (99, 254, None)] {
        rib.apply(Event::Rule(Rule {
            family: 4,
            priority,
            table,
            action: 1,
            iif: iif.map(str::to_owned),
            ..Rule::default()
        }));
    }
    seen.lock().unwrap().clear();
    rib.commit();
    let after = rib.memory().link(1);
    assert_ne!(before.table4, after.table4);
    let waited = seen.lock().unwrap().clone();
    let hidden = |entry: &LinkEntry| entry.flags == 0 && entry.table4 == before.table4;
    assert!(waited.iter().any(hidden), "{waited:?}");
    // When it goes, too.
    seen.lock().unwrap().clear();
    rib.set_ports(Ports::default());
    rib.commit();
    assert_eq!(rib.memory().link(1), LinkEntry::default());
    let waited = seen.lock().unwrap().clone();
    assert!(
        waited
            .iter()
            .any(|e| e.flags == 0 && e.table4 == after.table4)
    );
}

#[test]
fn links_count_in_slots_of_their_own() {
    let mut rib = new_rib(&small());
    let far = |n: u32| 1 + n * 1024;
    for index in (0..4).map(far) {
        rib.apply(link(index, true, true));
    }
    let enable = |rib: &mut Mirror, indices: &[u32]| {
        rib.set_ports(Ports {
            enabled: indices.iter().copied().collect(),
            out: [2].into(),
        });
        rib.commit();
        indices
            .iter()
            .map(|i| rib.memory().link(*i).slot)
            .collect::<Vec<_>>()
    };
    assert_eq!(enable(&mut rib, &[far(1)]), [1]);
    let slots = enable(&mut rib, &[far(0), far(1), far(2), 2]);
    assert_eq!((slots[1], slots[3]), (1, 2));
    let distinct: std::collections::HashSet<_> = slots.iter().collect();
    assert_eq!(distinct.len(), 4, "{slots:?}");
    assert_eq!(enable(&mut rib, &[far(2)]), [slots[2]]);
}

/// A neighbour that goes while direct nexthops change has no entry any more, either.
#[test]
fn a_neighbour_goes_while_a_direct_object_comes() {
    let mut rib = new_rib(&small());
    let direct = |index| NexthopKind::Single {
        gateway: None,
        index,
        encap: None,
    };
    rib.apply(nexthop(3, direct(2)));
    rib.apply(Event::Route(object_route(3), RouteOp::Add));
    rib.apply(Event::Neighbour(Neighbour {
        index: 2,
        dst: address(false, 1),
        mac: Some([4, 0, 0, 0, 2, 1]),
        state: 2,
        flags: 0,
        protocol: 0,
    }));
    rib.commit();
    let entries = rib.usage().entries4;
    rib.apply(Event::NeighbourGone(2, address(false, 1)));
    rib.apply(nexthop(4, direct(3)));
    rib.commit();
    assert_eq!(rib.usage().entries4, entries - 1);
    compare(&rib);
}
