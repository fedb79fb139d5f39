//! SIDs and encapsulations that the kernel does not have: it must not get what they do not forward.

use std::net::Ipv6Addr;

use raddle_image::{ADJ_SEGMENT, Capacity, Group, Reason, segment_flags, segment_kind};
use raddle_rib::event::{DeviceSettings, Event, ROUTE_STATIC, Route, RouteOp, RouteTarget};
use raddle_rib::seg6::{Behaviour, Encaps, Mode, Seg6};
use raddle_rib::{Resolved, Rib};

use crate::common::link;
use crate::world::{CAPACITY, add, encaps, group, hop, ip, number, route, segment, sid, start};

#[test]
fn own_routes_come_first_and_stay() {
    let mut rib = start(&CAPACITY);
    let own = Route {
        flags: ROUTE_STATIC,
        ..sid("fc00::1/128", Behaviour::End)
    };
    rib.apply(Event::Route(own.clone(), RouteOp::Add));
    add(&mut rib, sid("fc00::1/128", Behaviour::T { table: 254 }));
    let kind = |rib: &Rib| segment(rib, "fc00::1").kind;
    assert_eq!(kind(&rib), segment_kind::END);
    assert_ne!(segment(&rib, "fc00::1").flags & segment_flags::NO_PUNT, 0);
    // A dump that knows neither.
    use raddle_rib::event::Sweep;
    rib.apply(Event::SweepBegin(Sweep::Routes6));
    rib.apply(Event::SweepEnd(Sweep::Routes6));
    rib.commit();
    assert_eq!(kind(&rib), segment_kind::END);
    add(&mut rib, sid("fc00::1/128", Behaviour::T { table: 254 }));
    rib.apply(Event::RouteGone(sid(
        "fc00::1/128",
        Behaviour::T { table: 254 },
    )));
    rib.commit();
    assert_eq!(kind(&rib), segment_kind::END);
    rib.apply(Event::RouteGone(own));
    rib.commit();
    assert_eq!(group(&rib, "fc00::1"), Group::Kernel(Reason::NoRoute));
    assert_eq!(rib.routes6().count(), 0);
}

/// The kernel's SID is still the one that is explained when raddle is told to take one away that it does not have.
#[test]
fn a_sid_outlives_one_that_was_never_there() {
    let mut rib = start(&CAPACITY);
    let sid = sid("fc00::1/128", Behaviour::End);
    add(&mut rib, sid.clone());
    rib.apply(Event::RouteGone(Route {
        flags: ROUTE_STATIC,
        ..sid
    }));
    rib.commit();
    let Resolved::One(hop) = rib.trace("l1", ip("fc00::1").into()).resolved else {
        panic!("not a SID");
    };
    let explained = rib.segment_number(&hop.segment.unwrap());
    assert_eq!(explained, Some(number(&rib, "fc00::1")));
}

/// The link says only where an outer source comes from: without it the kernel, which knows nothing of them,
/// would get their packets.
#[test]
fn own_routes_outlive_their_link() {
    let mut rib = start(&CAPACITY);
    for route in [
        sid("fc00::1/128", Behaviour::End),
        encaps("fc00::2/128", Mode::Encap, &["fc01::1"]),
        encaps("fc00::4/128", Mode::Encap, &["fc01::4"]),
    ] {
        let flags = match route.dst.to_string().as_str() {
            "fc00::4/128" => 0,
            _ => ROUTE_STATIC,
        };
        rib.apply(Event::Route(Route { flags, ..route }, RouteOp::Add));
    }
    let lists = ["fc01::1", "fc01::2"].map(|list| {
        let encaps = Encaps::new(Mode::Encap, &[ip(list)]).unwrap();
        hop(2, Seg6::Encaps(encaps))
    });
    let spread = Route {
        flags: ROUTE_STATIC,
        ..route("fc00::3/128", RouteTarget::Multipath(lists.into()))
    };
    add(&mut rib, spread);
    let before = ["fc00::1", "fc00::2", "fc00::3"].map(|dst| group(&rib, dst));
    rib.apply(Event::Link(link(2, false, false)));
    rib.commit();
    let after = ["fc00::1", "fc00::2", "fc00::3"].map(|dst| group(&rib, dst));
    assert_eq!(segment(&rib, "fc00::1").kind, segment_kind::END);
    assert_eq!(segment(&rib, "fc00::2").kind, segment_kind::ENCAPS);
    assert!(
        matches!(after[2], Group::Threshold { count: 2, .. }),
        "{after:?}"
    );
    assert_eq!(before, after);
    // The kernel's go with it.
    assert_eq!(group(&rib, "fc00::4"), Group::Kernel(Reason::OutLink));
    rib.apply(Event::LinkGone(2));
    rib.commit();
    assert_eq!(segment(&rib, "fc00::2").kind, segment_kind::ENCAPS);
}

/// Nor does it matter what the kernel made of the links when it gave its own nexthops their shares.
#[test]
fn own_routes_spread_whatever_became_of_their_links() {
    let lists = [1, 2].map(|n| {
        let encaps = Encaps::new(Mode::Encap, &[Ipv6Addr::new(0xfc01, 0, 0, 0, 0, 0, 0, n)]);
        hop(1 + u32::from(n), Seg6::Encaps(encaps.unwrap()))
    });
    let own = |dst: &str| Route {
        flags: ROUTE_STATIC,
        ..route(dst, RouteTarget::Multipath(lists.clone().into()))
    };
    let ignores = DeviceSettings {
        ignore_linkdown4: true,
        ignore_linkdown6: true,
        ..DeviceSettings::default()
    };
    let mut rib = start(&CAPACITY);
    rib.apply(Event::Device(2, DeviceSettings::default()));
    rib.apply(Event::Route(own("10.9.0.0/16"), RouteOp::Add));
    add(&mut rib, own("fc00::3/128"));
    for event in [
        // Shares were cut by another setting, and a link that was gone may have had the nexthop marked as dead.
        Event::Link(link(2, true, false)),
        Event::Device(2, ignores),
        Event::LinkGone(2),
        Event::Link(link(2, true, true)),
    ] {
        rib.apply(event.clone());
        rib.commit();
        let memory = rib.memory();
        let v4 = memory.group(memory.route4(memory.link(1).table4, 0x0a09_0001));
        for group in [v4, group(&rib, "fc00::3")] {
            let spreads = matches!(group, Group::Threshold { count: 2, .. });
            assert!(spreads, "{event:?}: {group:?}");
        }
    }
}

/// What a group of raddle's own does not forward the kernel must not get: it would send it as it is.
#[test]
fn own_groups_say_so_whatever_becomes_of_them() {
    let list = |n: u16| {
        let encaps = Encaps::new(Mode::Encap, &[Ipv6Addr::new(0xfc01, 0, 0, 0, 0, 0, 0, n)]);
        hop(2, Seg6::Encaps(encaps.unwrap()))
    };
    let spread = |dst: &str, flags| Route {
        flags,
        ..route(dst, RouteTarget::Multipath(vec![list(1), list(2)]))
    };
    let never_punts = |rib: &Rib, dst: &str| {
        let value = rib
            .memory()
            .route6(rib.memory().link(1).table6, ip(dst).to_bits());
        rib.memory().group_never_punts(value)
    };
    let mut rib = start(&CAPACITY);
    add(&mut rib, spread("fc00::1/128", ROUTE_STATIC));
    add(&mut rib, spread("fc00::2/128", 0));
    let several = |group| matches!(group, Group::Threshold { count: 2, .. });
    for dst in ["fc00::1", "fc00::2"] {
        assert!(several(group(&rib, dst)), "{dst}");
        assert_eq!(never_punts(&rib, dst), dst == "fc00::1");
    }
    for (room, single) in [
        (
            Capacity {
                members: 1,
                ..CAPACITY
            },
            false,
        ),
        (
            Capacity {
                segments: 1,
                ..CAPACITY
            },
            false,
        ),
        (
            Capacity {
                segments: 0,
                ..CAPACITY
            },
            true,
        ),
    ] {
        let mut rib = start(&room);
        let own = match single {
            false => spread("fc00::1/128", ROUTE_STATIC),
            true => Route {
                flags: ROUTE_STATIC,
                ..encaps("fc00::1/128", Mode::Encap, &["fc01::1"])
            },
        };
        add(&mut rib, own);
        assert_eq!(group(&rib, "fc00::1"), Group::Kernel(Reason::ImageFull));
        assert!(never_punts(&rib, "fc00::1"));
    }
}

/// A reader that has seen a group before it went finds what it led to, and may not punt what is not the
/// kernel's either.
#[test]
fn what_is_left_of_own_segments_is_own() {
    let mut rib = start(&CAPACITY);
    let lists = ["fc01::1", "fc01::2"].map(|list| {
        let encaps = Encaps::new(Mode::Encap, &[ip(list)]).unwrap();
        hop(2, Seg6::Encaps(encaps))
    });
    let own = Route {
        flags: ROUTE_STATIC,
        ..route("fc00::3/128", RouteTarget::Multipath(lists.into()))
    };
    add(&mut rib, own.clone());
    let Group::Threshold { first, .. } = group(&rib, "fc00::3") else {
        panic!("not a group");
    };
    let member = rib.memory().member(first).adjacency;
    let number = rib.memory().adjacency(member).index;
    rib.apply(Event::RouteGone(own));
    rib.commit();
    let adjacency = rib.memory().adjacency(member);
    assert_eq!((adjacency.state, adjacency.index), (ADJ_SEGMENT, number));
    let segment = rib.memory().segment(number);
    assert_eq!(segment.kind, segment_kind::KERNEL);
    assert_eq!(segment.flags, segment_flags::NO_PUNT);
}
