//! All that [`super::draw`] leaves out: rules, dumps, raddle's own routes, limits of routes, marks of nexthops, addresses,
//! resilient groups, links that go.

use std::net::IpAddr;

use ipnet::IpNet;
use proptest::prelude::*;
use raddle_rib::event::{
    Address, Bucket, DeviceSettings, Event, Fpm, GroupMember, Link, Neighbour, Nexthop,
    NexthopKind, ROUTE_STATIC, RULE_OTHER_INVERT, RULE_OTHER_L3MDEV, Route, RouteKind,
    RouteNexthop, RouteOp, RouteTarget, Rule, Settings, Sweep,
};
use raddle_rib::seg6::{Behaviour, Encaps, Mode, Seg6, Sid};

use super::common::{self, Mirror};
use super::draw::{self, LINKS, address, event, target};
use super::{compare, new_rib, small};

/// Every table that routes are drawn in, and one that has none.
const TABLES: [u32; 4] = [255, 254, 253, 7];

/// The index of a VRF.
const VRF: u32 = 9;

/// It comes, with one of two tables or with one that is not told, or goes.
fn vrf() -> impl Strategy<Value = Event> {
    let table = proptest::sample::select(vec![Some(7), Some(7), Some(253), None]);
    let is_there = prop::bool::weighted(0.8);
    (table, is_there).prop_map(|(vrf_table, is_there)| {
        let red = Link {
            name: "red".to_owned(),
            kind: Some("vrf".to_owned()),
            vrf_table,
            ..common::link(VRF, true, true)
        };
        match is_there {
            true => Event::Link(red),
            false => Event::LinkGone(VRF),
        }
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let iif = proptest::option::weighted(0.6, 0..=LINKS);
    let oif = proptest::option::weighted(0.1, 1..=LINKS);
    // Now and then one that engines do not follow.
    let odd = proptest::sample::select(vec![0u8, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6]);
    let table = proptest::sample::select(TABLES.to_vec());
    let mark = proptest::sample::select(vec![
        None,
        None,
        None,
        Some((0, 0xff)),
        Some((3, 0xf0)),
        Some((3, 1)),
    ]);
    let suppress = proptest::option::weighted(0.3, proptest::sample::select(vec![0u32, 8, 24, 48]));
    let other = proptest::sample::select(vec![
        vec![],
        vec![],
        vec![],
        vec![RULE_OTHER_INVERT],
        vec![RULE_OTHER_L3MDEV],
    ]);
    let first = (any::<bool>(), 0..4u32, table, iif, oif, odd);
    (first, mark, suppress, other, 1..3u32).prop_map(
        |((v6, priority, table, iif, oif, odd), fwmark, suppress_prefixlength, mut other, far)| {
            if odd == 3 {
                other.push(22);
            }
            Rule {
                family: if v6 { 6 } else { 4 },
                priority,
                table,
                action: match odd {
                    1 => 7,
                    4 => 2,
                    5 => 3,
                    _ => 1,
                },
                from: (odd == 2).then(|| IpNet::new(address(v6, 0), 8).unwrap().trunc()),
                iif: iif.map(|index| match index {
                    0 => "red".to_owned(),
                    _ => format!("l{index}"),
                }),
                oif: oif.map(|index| format!("l{index}")),
                fwmark,
                suppress_prefixlength,
                goto: (odd == 4).then_some(priority + far),
                uidrange: (odd == 6).then_some((far - 1, 9)),
                other,
                ..Rule::default()
            }
        },
    )
}

/// A nexthop with the marks that the kernel tells, of an IPv4 route perhaps by an IPv6 gateway.
fn marked(v6: bool) -> impl Strategy<Value = RouteNexthop> {
    let flags = proptest::sample::select(vec![0u8, 0, 1, 16, 17]);
    (draw::hop(v6), flags, any::<bool>(), 0..64u32).prop_map(move |(hop, flags, other, n)| {
        RouteNexthop {
            gateway: match hop.gateway {
                Some(_) if other && !v6 => Some(address(true, n)),
                gateway => gateway,
            },
            flags,
            ..hop
        }
    })
}

fn any_target(v6: bool) -> impl Strategy<Value = RouteTarget> {
    prop_oneof![
        1 => target(v6),
        1 => marked(v6).prop_map(RouteTarget::Single),
        2 => proptest::collection::vec(marked(v6), 1..5).prop_map(RouteTarget::Multipath),
    ]
}

/// A route with limits, with a source, of any kind, or in another table.
fn odd_route(v6: bool) -> impl Strategy<Value = Route> {
    let kinds = prop_oneof![
        4 => Just(RouteKind::Unicast),
        1 => (0..12u8).prop_map(|n| RouteKind::from_number(n).unwrap()),
    ];
    let metrics = prop_oneof![
        2 => Just(Vec::new()),
        1 => Just(vec![(2, 1400)]),
        1 => Just(vec![(10, 300), (2, 9000)]),
    ];
    let table = proptest::sample::select(TABLES.to_vec());
    let source = proptest::option::weighted(0.05, 0..2u8);
    (
        draw::route(v6),
        kinds,
        metrics,
        any_target(v6),
        table,
        source,
    )
        .prop_map(move |(route, kind, metrics, target, table, source)| Route {
            kind,
            metrics,
            target,
            table,
            src: source
                .filter(|_| v6)
                .map(|n| IpNet::new(address(true, 0), 64 * n).unwrap().trunc()),
            ..route
        })
}

/// One of raddle's own: a SID, or segment lists to spread over.
fn static_route() -> impl Strategy<Value = Route> {
    let list = |index: u32, n: u32| {
        let IpAddr::V6(segment) = address(true, n) else {
            unreachable!()
        };
        let what = Encaps::new(Mode::Encap, &[segment]).unwrap();
        RouteNexthop {
            index,
            encap: Some(Seg6::Encaps(what).encode()),
            ..RouteNexthop::default()
        }
    };
    let sid = |index: u32| RouteNexthop {
        index,
        encap: Some(Seg6::Sid(Sid::new(Behaviour::End)).encode()),
        ..RouteNexthop::default()
    };
    let hops = proptest::collection::vec((1..=LINKS, 0..64u32), 2..4);
    let target = prop_oneof![
        (1..=LINKS).prop_map(move |index| RouteTarget::Single(sid(index))),
        hops.prop_map(move |hops| {
            RouteTarget::Multipath(hops.into_iter().map(|(index, n)| list(index, n)).collect())
        }),
    ];
    (any::<bool>().prop_flat_map(draw::route), target).prop_map(|(route, target)| Route {
        flags: ROUTE_STATIC,
        kind: RouteKind::Unicast,
        expires: None,
        tos: 0,
        target,
        ..route
    })
}

fn resilient() -> impl Strategy<Value = Event> {
    let member = (1..9u32).prop_map(|id| GroupMember { id, weight: 1 });
    let members = proptest::collection::vec(member, 1..3);
    (1..9u32, members, 1..3u16, 0..2u32).prop_map(|(id, members, buckets, timer)| {
        let kind = NexthopKind::Resilient {
            members,
            buckets,
            idle_timer: 19 + timer,
            unbalanced_timer: 0,
            unbalanced_time: 0,
        };
        super::nexthop(id, kind)
    })
}

fn bucket() -> impl Strategy<Value = Event> {
    (1..9u32, 0..3u16, 1..9u32).prop_map(|(group, index, nexthop)| {
        Event::Bucket(Bucket {
            group,
            index,
            nexthop,
            idle_time: 0,
            flags: 0,
        })
    })
}

/// Gateways so few that hops, objects and neighbours meet: links 1 to 3, two addresses on each.
fn gateway() -> impl Strategy<Value = (u32, IpAddr)> {
    (1..4u32, any::<bool>(), 0..2u32).prop_map(|(index, v6, n)| (index, address(v6, n)))
}

/// Objects of such gateways, groups of them, neighbours that have answered or have not, and routes.
fn near() -> impl Strategy<Value = Event> {
    let state = proptest::sample::select(vec![2u16, 0x20, 1, 4]);
    let neighbour = (gateway(), state).prop_map(|((index, dst), state)| Neighbour {
        state,
        ..common::neighbour(index, dst)
    });
    let object = (1..5u32, gateway()).prop_map(|(id, (index, gateway))| {
        let kind = NexthopKind::Single {
            gateway: Some(gateway),
            index,
            encap: None,
        };
        super::nexthop(id, kind)
    });
    let member = (1..5u32, 1..4u16).prop_map(|(id, weight)| GroupMember { id, weight });
    let group = (5..7u32, proptest::collection::vec(member, 2..5));
    let hops = proptest::collection::vec((gateway(), 1..4u16), 2..5);
    let hop = |((index, gateway), weight)| RouteNexthop {
        gateway: Some(gateway),
        index,
        weight,
        ..RouteNexthop::default()
    };
    let target = prop_oneof![
        1 => (5..7u32).prop_map(RouteTarget::Object),
        1 => hops.prop_map(move |hops| RouteTarget::Multipath(hops.into_iter().map(hop).collect())),
    ];
    let route = (any::<bool>(), 0..2u32, target).prop_map(|(v6, n, target)| {
        let len = if v6 { 64 } else { 24 };
        common::route(address(v6, 8 * n), len, target)
    });
    prop_oneof![
        3 => neighbour.prop_map(Event::Neighbour),
        2 => object,
        2 => group.prop_map(|(id, members)| super::nexthop(id, NexthopKind::Group(members))),
        3 => route.prop_map(|route| Event::Route(route, RouteOp::Replace)),
    ]
}

/// Every event that changes where packets go, now and then one that no kernel would tell.
fn any_event() -> impl Strategy<Value = Event> {
    let op = proptest::sample::select(vec![
        RouteOp::Add,
        RouteOp::Replace,
        RouteOp::Append,
        RouteOp::Prepend,
    ]);
    let odd = || any::<bool>().prop_flat_map(odd_route);
    let sweep = || {
        proptest::sample::select(vec![
            Sweep::Links,
            Sweep::Addresses,
            Sweep::Neighbours,
            Sweep::Nexthops,
            Sweep::Buckets,
            Sweep::BucketsOf(3),
            Sweep::Routes4,
            Sweep::Routes4,
            Sweep::Routes6,
            Sweep::Rules,
        ])
    };
    let of_link = |index, n| Address::new(index, address(false, n), 24);
    let device = (1..=LINKS, any::<[bool; 2]>(), 0..2u32).prop_map(|(index, ignores, mtu)| {
        let settings = DeviceSettings {
            ignore_linkdown4: ignores[0],
            ignore_linkdown6: ignores[1],
            mtu6: 1300 * mtu,
            ..DeviceSettings::default()
        };
        Event::Device(index, settings)
    });
    let settings = any::<[bool; 2]>().prop_map(|[use_neigh, forward_use_pmtu]| {
        Event::Settings(Settings {
            use_neigh,
            forward_use_pmtu,
            min_pmtu: 552,
            hash_seed: 7,
            ..Settings::default()
        })
    });
    let kinds = prop_oneof![draw::single(), draw::group()];
    let forwarding_database = (kinds, any::<bool>()).prop_map(|((id, kind), told)| {
        let object = Nexthop {
            fdb: true,
            ..Nexthop::new(id, 2, kind)
        };
        match told {
            true => Event::Fpm(Fpm::Nexthop(object)),
            false => Event::Nexthop(object),
        }
    });
    let meanwhile = (odd(), proptest::option::of(op.clone()))
        .prop_map(|(route, op)| Event::Meanwhile(route, op));
    prop_oneof![
        24 => event(),
        24 => near(),
        8 => (odd(), op).prop_map(|(route, op)| Event::Route(route, op)),
        2 => odd().prop_map(Event::RouteGone),
        2 => meanwhile,
        3 => static_route().prop_map(|route| Event::Route(route, RouteOp::Replace)),
        1 => static_route().prop_map(Event::RouteGone),
        2 => rule().prop_map(Event::Rule),
        2 => rule().prop_map(Event::RuleGone),
        2 => device,
        1 => settings,
        2 => (1..=LINKS, 0..2u32).prop_map(move |(index, n)| Event::Address(of_link(index, n))),
        2 => (1..=LINKS, 0..2u32).prop_map(move |(index, n)| Event::AddressGone(of_link(index, n))),
        1 => (1..=LINKS).prop_map(Event::LinkGone),
        3 => (1..=LINKS).prop_map(|index| draw::link(index, true, true)),
        1 => (1..=LINKS, any::<bool>()).prop_map(|(index, is_in)| {
            Event::Link(Link {
                master: is_in.then_some(VRF),
                ..common::link(index, true, true)
            })
        }),
        1 => vrf(),
        2 => resilient(),
        4 => bucket(),
        1 => (1..9u32).prop_map(|id| super::nexthop(id, NexthopKind::Blackhole)),
        1 => forwarding_database,
        1 => sweep().prop_map(Event::SweepBegin),
        2 => sweep().prop_map(Event::SweepEnd),
    ]
}

/// The event as it is told while routes are dumped: a dump tells what there is, and all else comes as a notification.
fn as_told(event: Event, dumps: &mut Vec<Sweep>) -> Event {
    let is_dumped = |route: &Route| {
        let sweep = match route.dst {
            IpNet::V4(_) => Sweep::Routes4,
            IpNet::V6(_) => Sweep::Routes6,
        };
        route.flags & ROUTE_STATIC == 0 && dumps.contains(&sweep)
    };
    match event {
        Event::SweepBegin(sweep) => dumps.push(sweep),
        Event::SweepEnd(sweep) => dumps.retain(|running| *running != sweep),
        Event::Route(route, _) if is_dumped(&route) => return Event::Route(route, RouteOp::Add),
        Event::RouteGone(route) if is_dumped(&route) => return Event::Meanwhile(route, None),
        _ => {}
    }
    event
}

/// Four nexthop objects, groups of them, routes to these, and neighbours: what it would take long to draw.
fn world() -> Mirror {
    let mut rib = new_rib(&small());
    for id in 1..5 {
        let (index, gateway) = (1 + id % 3, address(id == 4, id % 2));
        let kind = NexthopKind::Single {
            gateway: Some(gateway),
            index,
            encap: None,
        };
        rib.apply(super::nexthop(id, kind));
        rib.apply(Event::Neighbour(common::neighbour(index, gateway)));
    }
    for (id, members) in [(5, vec![1, 2, 3]), (6, vec![3, 4])] {
        let weight = |id| GroupMember { id, weight: 1 };
        let members = members.into_iter().map(weight).collect();
        rib.apply(super::nexthop(id, NexthopKind::Group(members)));
        for (v6, len) in [(false, 24), (true, 64)] {
            let target = RouteTarget::Object(id);
            let route = common::route(address(v6, 8 * (id - 5)), len, target);
            rib.apply(Event::Route(route, RouteOp::Add));
        }
    }
    rib.commit();
    rib
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_image_follows_whatever_is_told(batches in proptest::collection::vec(
        proptest::collection::vec(any_event(), 0..16), 1..12)) {
        let (mut rib, mut dumps) = (world(), Vec::new());
        for batch in batches {
            for event in batch {
                rib.apply(as_told(event, &mut dumps));
            }
            rib.commit();
            prop_assert!(!rib.is_dirty());
            compare(&rib);
        }
    }
}
