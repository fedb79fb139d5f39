//! The image after any sequence of changes says what the mirror says, looked up the slow way.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use common::object as nexthop;
use ipnet::IpNet;
use proptest::prelude::*;
use raddle_rib::event::{
    DeviceSettings, Encap, Event, Fpm, GroupMember, Neighbour, Nexthop, NexthopKind, ROUTE_FPM,
    Route, RouteKind, RouteNexthop, RouteOp, RouteTarget, Rule, Settings, Sweep,
};
use raddle_rib::image::{Capacity, LinkEntry, Memory};
use raddle_rib::seg6::{Behaviour, Encaps, Mode, Seg6, Sid, TableRef};
use raddle_rib::{Ports, Rib};

const LINKS: u32 = 4;

fn link(index: u32, up: bool, carrier: bool) -> Event {
    Event::Link(common::link(index, up, carrier))
}

/// Few addresses, so that prefixes nest and neighbours meet routes.
fn address(v6: bool, n: u32) -> IpAddr {
    common::address(v6, (n % 64) as u8)
}

fn prefix(v6: bool, n: u32, len: u8) -> IpNet {
    let lens = if v6 {
        [0, 16, 61, 64, 126, 128]
    } else {
        [0, 8, 21, 24, 30, 32]
    };
    IpNet::new(address(v6, n), lens[usize::from(len) % 6])
        .unwrap()
        .trunc()
}

fn hop(v6: bool) -> impl Strategy<Value = RouteNexthop> {
    (
        proptest::option::weighted(0.8, 0..64u32),
        1..=LINKS,
        1..5u16,
        proptest::option::weighted(0.2, encap()),
    )
        .prop_map(move |(gateway, index, weight, encap)| RouteNexthop {
            gateway: gateway.map(|n| address(v6, n)),
            index,
            weight,
            encap,
            ..RouteNexthop::default()
        })
}

/// SIDs and encapsulations, and what is none.
fn encap() -> impl Strategy<Value = Encap> {
    let sids = prop_oneof![
        Just(Behaviour::End),
        (250..256u32).prop_map(|table| Behaviour::T { table }),
        (252..256u32).prop_map(|table| Behaviour::Dt46 {
            table: TableRef::Table(table)
        }),
        (1..=LINKS + 1).prop_map(|oif| Behaviour::Dx2 { oif }),
        Just(Behaviour::Other(15)),
    ];
    let segments = proptest::collection::vec((0..4u16).prop_map(sid_address), 1..3);
    prop_oneof![
        sids.prop_map(|behaviour| Seg6::Sid(Sid::new(behaviour)).encode()),
        (segments, 0..5usize).prop_map(|(segments, mode)| {
            Seg6::Encaps(Encaps::new(Mode::ALL[mode], &segments).unwrap()).encode()
        }),
        Just(Encap {
            kind: 6,
            data: Vec::new()
        }),
    ]
}

fn sid_address(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfc00, n, 0, 0, 0, 0, 0, 0)
}

fn target(v6: bool) -> impl Strategy<Value = RouteTarget> {
    prop_oneof![
        hop(v6).prop_map(RouteTarget::Single),
        proptest::collection::vec(hop(v6), 2..5).prop_map(RouteTarget::Multipath),
        (1..9u32).prop_map(RouteTarget::Object),
    ]
}

fn route(v6: bool) -> impl Strategy<Value = Route> {
    let kinds = prop_oneof![
        6 => Just(RouteKind::Unicast),
        1 => Just(RouteKind::Blackhole),
        1 => Just(RouteKind::Local),
        1 => Just(RouteKind::Throw),
    ];
    let tables = prop_oneof![1 => Just(255), 5 => Just(254), 1 => Just(253)];
    (tables, 0..64u32, 0..6u8, kinds, 0..2u32, target(v6), 0..8u8).prop_map(
        move |(table, n, len, kind, metric, target, tos)| Route {
            table,
            dst: prefix(v6, n, len),
            tos: if tos == 0 && !v6 { 4 } else { 0 },
            protocol: 4,
            kind,
            metric,
            target: if kind == RouteKind::Unicast {
                target
            } else {
                RouteTarget::None
            },
            ..Route::default()
        },
    )
}

/// A single nexthop object.
fn single() -> impl Strategy<Value = (u32, NexthopKind)> {
    let gateway = proptest::option::weighted(0.8, 0..64u32);
    let encap = proptest::option::weighted(0.2, encap());
    (1..9u32, any::<bool>(), gateway, 1..=LINKS, encap).prop_map(
        |(id, v6, gateway, index, encap)| {
            let gateway = gateway.map(|n| address(v6, n));
            (
                id,
                NexthopKind::Single {
                    gateway,
                    index,
                    encap,
                },
            )
        },
    )
}

/// A group of some of them.
fn group() -> impl Strategy<Value = (u32, NexthopKind)> {
    let member = (1..9u32, 1..4u16).prop_map(|(id, weight)| GroupMember { id, weight });
    let members = proptest::collection::vec(member, 1..4);
    (1..9u32, members).prop_map(|(id, members)| (id, NexthopKind::Group(members)))
}

/// What a daemon tells by FPM.
fn told() -> impl Strategy<Value = Fpm> {
    let object = |(id, kind)| Fpm::Nexthop(Nexthop::new(id, 2, kind));
    let gone = |route: Route| Fpm::RouteGone {
        table: route.table,
        dst: route.dst,
    };
    prop_oneof![
        6 => any::<bool>().prop_flat_map(route).prop_map(Fpm::Route),
        3 => any::<bool>().prop_flat_map(route).prop_map(gone),
        3 => single().prop_map(object),
        3 => group().prop_map(object),
        1 => (1..9u32).prop_map(|id| Fpm::Nexthop(Nexthop::new(id, 2, NexthopKind::Blackhole))),
        2 => (1..9u32).prop_map(Fpm::NexthopGone),
        1 => Just(Fpm::ResyncBegin),
        1 => Just(Fpm::ResyncEnd),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let op = prop_oneof![
        Just(RouteOp::Add),
        Just(RouteOp::Replace),
        Just(RouteOp::Append),
        Just(RouteOp::Prepend)
    ];
    let any_route = any::<bool>().prop_flat_map(route);
    let single = single().prop_map(|(id, kind)| nexthop(id, kind));
    let group = group().prop_map(|(id, kind)| nexthop(id, kind));
    prop_oneof![
        10 => (any_route, op).prop_map(|(route, op)| Event::Route(route, op)),
        4 => any::<bool>().prop_flat_map(route).prop_map(Event::RouteGone),
        6 => (1..=LINKS, any::<bool>(), 0..64u32, prop_oneof![Just(2u16), Just(0x20), Just(4)])
            .prop_map(|(index, v6, n, state)| Event::Neighbour(Neighbour {
                index,
                dst: address(v6, n),
                mac: Some([4, 0, 0, 0, index as u8, n as u8]),
                state,
                flags: 0,
                protocol: 0,
            })),
        2 => (1..=LINKS, any::<bool>(), 0..64u32)
            .prop_map(|(index, v6, n)| Event::NeighbourGone(index, address(v6, n))),
        3 => single,
        3 => group,
        4 => told().prop_map(Event::Fpm),
        1 => (1..9u32).prop_map(Event::NexthopGone),
        2 => (1..=LINKS, any::<bool>(), any::<bool>()).prop_map(|(i, up, c)| link(i, up, c)),
        1 => any::<bool>().prop_map(|use_neigh| Event::Settings(Settings {
            use_neigh, hash_seed: 7, ..Settings::default() })),
        1 => (1..=LINKS, any::<bool>(), any::<bool>()).prop_map(|(index, a, b)| Event::Device(
            index,
            DeviceSettings { ignore_linkdown4: a, ignore_linkdown6: b, ..DeviceSettings::default() })),
    ]
}

fn new_rib(capacity: &Capacity) -> Rib {
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
fn compare(rib: &Rib) {
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
        let mut routes = rib.snapshot().routes;
        routes.retain(|route| route.flags & ROUTE_FPM == 0);
        prop_assert_eq!(routes, fresh.snapshot().routes);
        compare(&rib);
    }

    #[test]
    fn a_full_image_hands_over_and_recovers(batches in proptest::collection::vec(
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

/// The kernel refuses sources that a local route claims, be they on a link or not; the filter has to
/// let them through to the look-up.
#[test]
fn what_local_routes_claim_is_our_own() {
    let mut rib = new_rib(&small());
    let local = |dst: &str| Route {
        table: 255,
        dst: dst.parse().unwrap(),
        kind: RouteKind::Local,
        target: RouteTarget::None,
        ..object_route(0)
    };
    let own = |rib: &Rib, ip: &str| {
        let ip: Ipv4Addr = ip.parse().unwrap();
        rib.memory().maybe_own(ip.to_bits())
    };
    for (dst, inside) in [
        ("192.0.2.1/32", "192.0.2.1"),
        ("203.0.113.0/24", "203.0.113.77"),
        ("198.18.0.0/15", "198.19.7.7"),
    ] {
        rib.apply(Event::Route(local(dst), RouteOp::Add));
        rib.commit();
        assert!(own(&rib, inside), "{dst}");
        rib.apply(Event::RouteGone(local(dst)));
        rib.commit();
        assert!(!own(&rib, inside), "{dst}");
    }
    rib.apply(Event::Route(local("127.0.0.0/8"), RouteOp::Add));
    rib.commit();
    assert!(!own(&rib, "192.0.2.1"), "loopback claims no source");
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
    let enable = |rib: &mut Rib, indices: &[u32]| {
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
