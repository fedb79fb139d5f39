//! Links that flap: what the kernel takes away with them without a word stays away, before any dump
//! says so.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod common;

use common::{Mirror, address, compare, link, neighbour, object, route};
use raddle_image::{Capacity, Reason};
use raddle_rib::event::{
    Address, DeviceSettings, Event, GroupMember, NexthopKind, RouteNexthop, RouteOp, RouteTarget,
    Sweep,
};
use raddle_rib::{Resolved, Rib};

const GROUP: u32 = 10;

fn single(id: u32) -> Event {
    let kind = NexthopKind::Single {
        gateway: Some(address(false, id as u8)),
        index: id,
        encap: None,
    };
    object(id, kind)
}

fn group(members: &[u32]) -> Event {
    let member = |id: &u32| GroupMember { id: *id, weight: 1 };
    object(
        GROUP,
        NexthopKind::Group(members.iter().map(member).collect()),
    )
}

/// Nothing yet, and room for small states.
fn empty() -> Mirror {
    common::new_rib(&Capacity {
        nodes4: 1 << 12,
        leaves4: 1 << 12,
        words6: 1 << 12,
        groups: 64,
        members: 256,
        adjacencies: 64,
        segments: 64,
        templates: 1 << 10,
    })
}

/// Nexthops 1 to 3 on links of these numbers, a group of the first two, and routes to the group and to
/// nexthop 2.
fn new_rib() -> Mirror {
    let mut rib = empty();
    for id in 1..=3 {
        rib.apply(Event::Link(link(id, true, true)));
        rib.apply(Event::Neighbour(neighbour(id, address(false, id as u8))));
        rib.apply(single(id));
    }
    rib.apply(group(&[1, 2]));
    for (n, id) in [(8, GROUP), (16, 2)] {
        let route = route(address(false, n), 29, RouteTarget::Object(id));
        rib.apply(Event::Route(route, RouteOp::Add));
    }
    rib
}

/// The nexthop objects that packets to the group and to nexthop 2 may take.
fn used(rib: &Rib) -> [Result<Vec<u32>, Reason>; 2] {
    [8, 16].map(|n| match rib.trace("l1", address(false, n)).resolved {
        Resolved::One(hop) => Ok(vec![hop.object.unwrap()]),
        Resolved::Many { hops, .. } => {
            let eligible = hops.iter().filter(|hop| hop.eligible);
            Ok(eligible.map(|hop| hop.object.unwrap()).collect())
        }
        Resolved::Kernel(reason) => Err(reason),
        other => panic!("{other:?}"),
    })
}

#[test]
fn objects_on_a_link_that_flaps_stay_away() {
    let down = |index| Event::Link(link(index, false, true));
    let no_carrier = |index| Event::Link(link(index, true, false));
    let up = |index| Event::Link(link(index, true, true));
    for flap in [
        [down(2), up(2)],
        [no_carrier(2), up(2)],
        [Event::LinkGone(2), up(2)],
    ] {
        let mut rib = new_rib();
        assert_eq!(used(&rib), [Ok(vec![1, 2]), Ok(vec![2])]);
        rib.commit();
        for event in flap.clone() {
            rib.apply(event);
            let [group, alone] = used(&rib);
            assert_eq!(group, Ok(vec![1]), "{flap:?}");
            assert!(alone.is_err(), "{flap:?}: {alone:?}");
            rib.commit();
            compare(&rib, [8, 16].map(|n| address(false, n)));
        }
        // The dump says the same.
        for event in [
            Event::SweepBegin(Sweep::Nexthops),
            single(1),
            single(3),
            group(&[1]),
            Event::SweepEnd(Sweep::Nexthops),
        ] {
            rib.apply(event);
        }
        assert_eq!(used(&rib)[0], Ok(vec![1]));
        // Whoever made them makes them again.
        rib.apply(single(2));
        assert_eq!(used(&rib), [Ok(vec![1]), Ok(vec![2])]);
        rib.apply(group(&[1, 2]));
        assert_eq!(used(&rib), [Ok(vec![1, 2]), Ok(vec![2])]);
        rib.commit();
        compare(&rib, [8, 16].map(|n| address(false, n)));
    }
}

/// Other links' objects, and news of a link that change nothing, take nothing away.
#[test]
fn objects_elsewhere_stay() {
    for events in [
        [
            Event::Link(link(3, false, true)),
            Event::Link(link(3, true, true)),
        ],
        [
            Event::Link(link(2, true, true)),
            Event::Link(link(1, true, true)),
        ],
    ] {
        let mut rib = new_rib();
        events.into_iter().for_each(|event| rib.apply(event));
        assert_eq!(used(&rib), [Ok(vec![1, 2]), Ok(vec![2])]);
    }
}

/// A group without members left is gone, and so is its route: what else leads there is the kernel's to
/// say.
#[test]
fn a_group_that_loses_all_is_the_kernels() {
    let mut rib = new_rib();
    for index in [1, 2] {
        rib.apply(Event::Link(link(index, false, true)));
        rib.apply(Event::Link(link(index, true, true)));
    }
    let [group, _] = used(&rib);
    assert!(group.is_err(), "{group:?}");
    rib.commit();
    compare(&rib, [8, 16].map(|n| address(false, n)));
}

/// A host on a connected prefix is the kernel's where the connected route does not count, though its neighbour
/// entry is still there.
#[test]
fn a_host_behind_a_link_without_carrier() {
    for v6 in [false, true] {
        let mut rib = new_rib();
        let direct = RouteNexthop {
            index: 3,
            ..RouteNexthop::default()
        };
        let target = RouteTarget::Single(direct);
        let host = address(v6, 24);
        let len = if v6 { 64 } else { 29 };
        rib.apply(Event::Route(route(host, len, target), RouteOp::Add));
        rib.apply(Event::Neighbour(neighbour(3, host)));
        let leaves = |rib: &mut Mirror, carrier: bool, ignore: bool| {
            let settings = DeviceSettings {
                ignore_linkdown4: ignore && !v6,
                ignore_linkdown6: ignore && v6,
                ..DeviceSettings::default()
            };
            rib.apply(Event::Device(3, settings));
            rib.apply(Event::Link(link(3, true, carrier)));
            rib.commit();
            compare(rib, [host, host, host, host]);
            match rib.trace("l1", host).resolved {
                Resolved::One(hop) => Ok(hop.index),
                Resolved::Kernel(reason) => Err(reason),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(leaves(&mut rib, true, true), Ok(3));
        assert_eq!(leaves(&mut rib, false, false), Ok(3));
        assert_eq!(leaves(&mut rib, false, true), Err(Reason::OutLink));
        assert_eq!(leaves(&mut rib, true, true), Ok(3));
    }
}

/// IPv4 nexthops by IPv6 gateways are linkdown where the kernel says so, and unknown between a change of their
/// link and the next dump that began after it.
#[test]
fn ipv6_gateways_are_linkdown_when_the_kernel_says_so() {
    let mut rib = new_rib();
    for index in [1, 2] {
        let settings = DeviceSettings {
            ignore_linkdown4: true,
            ..DeviceSettings::default()
        };
        rib.apply(Event::Device(index, settings));
    }
    let told = |flags: u8| {
        let hop = |index: u32| RouteNexthop {
            gateway: Some(address(true, index as u8)),
            index,
            flags: if index == 2 { flags } else { 0 },
            ..RouteNexthop::default()
        };
        let target = RouteTarget::Multipath(vec![hop(1), hop(2)]);
        Event::Route(route(address(false, 24), 29, target), RouteOp::Add)
    };
    let shares = |rib: &mut Mirror| {
        rib.commit();
        compare(rib, (24..32).map(|n| address(false, n)));
        match rib.trace("l1", address(false, 24)).resolved {
            Resolved::Many { hops, .. } => Ok(hops.iter().filter(|h| h.upper.is_some()).count()),
            Resolved::Kernel(reason) => Err(reason),
            other => panic!("{other:?}"),
        }
    };
    let dump = |rib: &mut Mirror, flags: u8| {
        rib.apply(Event::SweepBegin(Sweep::Routes4));
        rib.apply(told(flags));
        rib.apply(Event::SweepEnd(Sweep::Routes4));
    };
    rib.apply(told(0));
    assert_eq!(shares(&mut rib), Ok(2));
    rib.apply(Event::SweepBegin(Sweep::Routes4));
    rib.apply(Event::Link(link(2, true, false)));
    rib.apply(told(0));
    rib.apply(Event::SweepEnd(Sweep::Routes4));
    assert_eq!(
        shares(&mut rib),
        Err(Reason::RouteFeature),
        "the dump began before"
    );
    dump(&mut rib, 16);
    assert_eq!(shares(&mut rib), Ok(1));
    dump(&mut rib, 0);
    assert_eq!(shares(&mut rib), Ok(2), "made without carrier");
}

/// The kernel cuts the hash space anew when a link changes, and not when the setting does.
#[test]
fn a_setting_that_changes_without_carrier() {
    let mut rib = new_rib();
    let hop = |index: u32| RouteNexthop {
        gateway: Some(address(false, index as u8)),
        index,
        ..RouteNexthop::default()
    };
    let target = RouteTarget::Multipath(vec![hop(1), hop(2)]);
    rib.apply(Event::Route(
        route(address(false, 24), 29, target),
        RouteOp::Add,
    ));
    let ignore = |ignore_linkdown4| {
        let settings = DeviceSettings {
            ignore_linkdown4,
            ..DeviceSettings::default()
        };
        Event::Device(2, settings)
    };
    let shares = |rib: &mut Mirror| {
        rib.commit();
        compare(rib, (24..32).map(|n| address(false, n)));
        match rib.trace("l1", address(false, 24)).resolved {
            Resolved::Many { hops, .. } => Ok(hops.iter().filter(|h| h.upper.is_some()).count()),
            Resolved::Kernel(reason) => Err(reason),
            other => panic!("{other:?}"),
        }
    };
    for (event, expected) in [
        (ignore(false), Ok(2)),
        (ignore(true), Ok(2)),
        (Event::Link(link(2, true, false)), Ok(1)),
        (ignore(false), Err(Reason::RouteFeature)),
        (Event::Link(link(2, true, true)), Ok(2)),
        (Event::Link(link(2, true, false)), Ok(2)),
        (ignore(true), Err(Reason::RouteFeature)),
        (Event::Link(link(2, false, false)), Ok(1)),
    ] {
        rib.apply(event.clone());
        assert_eq!(shares(&mut rib), expected, "{event:?}");
    }
}

/// A link that was without carrier before anybody looked: routes are compiled by today's setting, not left to the kernel.
#[test]
fn links_that_are_found_without_carrier_keep_nobody_from_forwarding() {
    for (v6, ignores) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut rib = empty();
        let find = |rib: &mut Mirror, links: &[raddle_rib::event::Link]| {
            rib.apply(Event::SweepBegin(Sweep::Links));
            for link in links {
                rib.apply(Event::Link(link.clone()));
                let settings = DeviceSettings {
                    ignore_linkdown4: ignores,
                    ignore_linkdown6: ignores,
                    ..DeviceSettings::default()
                };
                rib.apply(Event::Device(link.index, settings));
            }
            rib.apply(Event::SweepEnd(Sweep::Links));
        };
        let found = [(1, true), (2, true), (3, false)].map(|(i, carrier)| link(i, true, carrier));
        find(&mut rib, &found);
        let hop = |index: u32| RouteNexthop {
            gateway: Some(address(v6, index as u8)),
            index,
            ..RouteNexthop::default()
        };
        let hops = |indices: [u32; 2]| RouteTarget::Multipath(indices.map(hop).to_vec());
        let length = if v6 { 125 } else { 29 };
        for (n, indices) in [(24, [1, 2]), (32, [1, 3])] {
            let route = route(address(v6, n), length, hops(indices));
            rib.apply(Event::Route(route, RouteOp::Add));
        }
        let resolved = |rib: &mut Mirror| {
            rib.commit();
            compare(rib, (24..40).map(|n| address(v6, n)));
            [24, 32].map(|n| match rib.trace("l1", address(v6, n)).resolved {
                Resolved::Many { hops, .. } => hops.iter().filter(|h| h.eligible).count(),
                other => panic!("{other:?}"),
            })
        };
        let left = if ignores { 1 } else { 2 };
        assert_eq!(resolved(&mut rib), [2, left], "{v6} {ignores}");
        // Read again as it was.
        find(&mut rib, &found);
        assert_eq!(resolved(&mut rib), [2, left]);
        // Its carrier comes and goes while somebody looks.
        rib.apply(Event::Link(link(3, true, true)));
        assert_eq!(resolved(&mut rib), [2, 2]);
        rib.apply(Event::Link(link(3, true, false)));
        assert_eq!(resolved(&mut rib), [2, left]);
    }
}

/// The kernel takes plain IPv4 routes away whose last link goes down, and does not bring them back with it: nobody knows
/// of which that is so before routes have been read again.
#[test]
fn plain_routes_over_a_link_that_was_down_are_the_kernels_until_they_are_read() {
    let mut rib = new_rib();
    let hop = |index: u32| RouteNexthop {
        gateway: Some(address(false, index as u8)),
        index,
        ..RouteNexthop::default()
    };
    let routes = [
        (24, RouteTarget::Single(hop(2))),
        (32, RouteTarget::Multipath(vec![hop(2), hop(3)])),
        (40, RouteTarget::Multipath(vec![hop(1), hop(2)])),
    ];
    let tell = |rib: &mut Mirror| {
        for (n, target) in routes.clone() {
            let route = route(address(false, n), 29, target);
            rib.apply(Event::Route(route, RouteOp::Replace));
        }
    };
    tell(&mut rib);
    let kernels = |rib: &mut Mirror| {
        rib.commit();
        let all = [24, 32, 40].map(|n| address(false, n));
        compare(rib, all);
        all.map(|dst| match rib.trace("l1", dst).resolved {
            Resolved::Kernel(reason) => {
                assert_eq!(reason, Reason::RouteFeature);
                true
            }
            _ => false,
        })
    };
    assert_eq!(kernels(&mut rib), [false, false, false]);
    let flap = |rib: &mut Mirror, index: u32| {
        for up in [false, true] {
            rib.apply(Event::Link(link(index, up, true)));
        }
    };
    flap(&mut rib, 2);
    assert_eq!(kernels(&mut rib), [true, false, false]);
    flap(&mut rib, 3);
    assert_eq!(kernels(&mut rib), [true, true, false]);
    // A dump that began before says nothing of a link that goes down meanwhile.
    rib.apply(Event::SweepBegin(Sweep::Routes4));
    flap(&mut rib, 2);
    tell(&mut rib);
    rib.apply(Event::SweepEnd(Sweep::Routes4));
    assert_eq!(kernels(&mut rib), [true, false, false]);
    rib.apply(Event::SweepBegin(Sweep::Routes4));
    tell(&mut rib);
    rib.apply(Event::SweepEnd(Sweep::Routes4));
    assert_eq!(kernels(&mut rib), [false, false, false]);
    // Without a carrier they stay.
    rib.apply(Event::Link(link(2, true, false)));
    rib.apply(Event::Link(link(2, true, true)));
    assert_eq!(kernels(&mut rib), [false, false, false]);
}

/// A link that loses its last IPv4 address is down to IPv4: the kernel marks the nexthops over it, and takes the mark away
/// when the link gets an address again.
#[test]
fn nexthops_over_a_link_without_an_address_are_dead() {
    let mut rib = new_rib();
    let has_address = |on: bool| {
        let address = Address::new(2, address(false, 50), 24);
        match on {
            true => Event::Address(address),
            false => Event::AddressGone(address),
        }
    };
    rib.apply(has_address(true));
    let told = |dead: bool| {
        let hop = |index: u32| RouteNexthop {
            gateway: Some(address(false, index as u8)),
            index,
            flags: if dead && index == 2 { 1 } else { 0 },
            ..RouteNexthop::default()
        };
        let target = RouteTarget::Multipath((1..=3).map(hop).collect());
        let route = route(address(false, 24), 29, target);
        Event::Route(route, RouteOp::Add)
    };
    let dump = |rib: &mut Mirror, dead: bool| {
        rib.apply(Event::SweepBegin(Sweep::Routes4));
        rib.apply(told(dead));
        rib.apply(Event::SweepEnd(Sweep::Routes4));
    };
    let shares = |rib: &mut Mirror| {
        rib.commit();
        compare(rib, [address(false, 24)]);
        match rib.trace("l1", address(false, 24)).resolved {
            Resolved::Many { hops, .. } => {
                let with = hops.iter().filter(|hop| hop.upper.is_some());
                Ok(with.map(|hop| hop.index).collect::<Vec<_>>())
            }
            Resolved::Kernel(reason) => Err(reason),
            other => panic!("{other:?}"),
        }
    };
    dump(&mut rib, false);
    assert_eq!(shares(&mut rib), Ok(vec![1, 2, 3]));
    rib.apply(has_address(false));
    assert_eq!(shares(&mut rib), Err(Reason::RouteFeature));
    dump(&mut rib, true);
    assert_eq!(shares(&mut rib), Ok(vec![1, 3]));
    rib.apply(has_address(true));
    assert_eq!(shares(&mut rib), Ok(vec![1, 2, 3]));
    dump(&mut rib, false);
    assert_eq!(shares(&mut rib), Ok(vec![1, 2, 3]));
    rib.apply(Event::Link(link(2, false, true)));
    dump(&mut rib, true);
    assert_eq!(shares(&mut rib), Ok(vec![1, 3]));
    rib.apply(Event::Link(link(2, true, true)));
    assert_eq!(shares(&mut rib), Ok(vec![1, 2, 3]));
    // As a daemon finds it that starts later.
    let mut later = new_rib();
    later.apply(told(true));
    assert_eq!(shares(&mut later), Ok(vec![1, 3]));
}
