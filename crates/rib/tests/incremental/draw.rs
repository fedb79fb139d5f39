//! Sequences of events, drawn: few addresses, links and objects, so that they meet.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use proptest::prelude::*;
use raddle_rib::event::{
    DeviceSettings, Encap, Event, Fpm, GroupMember, KernelHosts, Link, Neighbour, Nexthop,
    NexthopKind, Route, RouteKind, RouteNexthop, RouteOp, RouteTarget, Settings, Vlan,
};
use raddle_rib::seg6::{Behaviour, Encaps, Mode, Seg6, Sid, TableRef};

use crate::common::{self, object as nexthop};

pub(crate) const LINKS: u32 = 4;

pub(crate) fn link(index: u32, up: bool, carrier: bool) -> Event {
    Event::Link(common::link(index, up, carrier))
}

/// A link that is a VLAN upon one with a smaller index, or upon one that is not there; or any link with another MTU.
pub(crate) fn other_link() -> impl Strategy<Value = Event> {
    let mtu = proptest::sample::select(vec![1280, 1400, 1492, 1496, 1500, 1504, 9000]);
    let protocol = proptest::sample::select(vec![0x8100, 0x8100, 0x88a8, 0x88a8, 0x9100]);
    let lives = proptest::sample::select(vec![(true, true), (true, true), (true, false)]);
    let set = (protocol, 4..7u16, prop::bool::weighted(0.1));
    let vlan = (2..=LINKS, any::<u8>(), set, mtu.clone(), lives).prop_map(
        |(index, n, (protocol, id, egress_qos), mtu, (up, carrier))| {
            // The one right below it most often, so that they lie upon each other.
            let lower = match n {
                0..8 => 99,
                8..160 => index - 1,
                n => 1 + u32::from(n) % (index - 1),
            };
            Event::Link(Link {
                kind: Some("vlan".to_owned()),
                vlan: (n % 32 != 9).then_some(Vlan {
                    protocol,
                    id,
                    egress_qos,
                }),
                lower: Some(lower),
                lower_netns: (n % 32 == 10).then_some(0),
                mtu,
                ..common::link(index, up, carrier)
            })
        },
    );
    let resized = (1..=LINKS, mtu).prop_map(|(index, mtu)| {
        Event::Link(Link {
            mtu,
            ..common::link(index, true, true)
        })
    });
    prop_oneof![3 => vlan, 1 => resized]
}

/// Few addresses, so that prefixes nest and neighbours meet routes.
pub(crate) fn address(v6: bool, n: u32) -> IpAddr {
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

pub(crate) fn hop(v6: bool) -> impl Strategy<Value = RouteNexthop> {
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
pub(crate) fn encap() -> impl Strategy<Value = Encap> {
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

pub(crate) fn target(v6: bool) -> impl Strategy<Value = RouteTarget> {
    prop_oneof![
        hop(v6).prop_map(RouteTarget::Single),
        proptest::collection::vec(hop(v6), 2..5).prop_map(RouteTarget::Multipath),
        (1..9u32).prop_map(RouteTarget::Object),
    ]
}

pub(crate) fn route(v6: bool) -> impl Strategy<Value = Route> {
    let kinds = prop_oneof![
        6 => Just(RouteKind::Unicast),
        1 => Just(RouteKind::Blackhole),
        1 => Just(RouteKind::Local),
        1 => Just(RouteKind::Throw),
    ];
    let tables = prop_oneof![1 => Just(255), 5 => Just(254), 1 => Just(253)];
    // Only IPv6 routes expire.
    let expires = proptest::option::weighted(0.3, 0..8i64);
    (
        tables,
        0..64u32,
        0..6u8,
        kinds,
        0..2u32,
        target(v6),
        0..8u8,
        expires,
    )
        .prop_map(
            move |(table, n, len, kind, metric, target, tos, expires)| Route {
                table,
                dst: prefix(v6, n, len),
                expires: expires.filter(|_| v6).map(|seconds| 1000 * seconds),
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
pub(crate) fn single() -> impl Strategy<Value = (u32, NexthopKind)> {
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
pub(crate) fn group() -> impl Strategy<Value = (u32, NexthopKind)> {
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

pub(crate) fn event() -> impl Strategy<Value = Event> {
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
        2 => (0..8_000i64).prop_map(Event::Clock),
        1 => proptest::collection::btree_set(0..64u32, 0..4).prop_map(|set| {
            let host = |n| match address(true, n) {
                IpAddr::V6(ip) => ip,
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            };
            let hosts = set.into_iter().map(host).collect();
            Event::KernelHosts(KernelHosts { hosts })
        }),
        2 => (1..=LINKS, any::<bool>(), any::<bool>()).prop_map(|(i, up, c)| link(i, up, c)),
        3 => other_link(),
        1 => any::<bool>().prop_map(|use_neigh| Event::Settings(Settings {
            use_neigh, hash_seed: 7, ..Settings::default() })),
        1 => (1..=LINKS, any::<bool>(), any::<bool>()).prop_map(|(index, a, b)| Event::Device(
            index,
            DeviceSettings { ignore_linkdown4: a, ignore_linkdown6: b, ..DeviceSettings::default() })),
    ]
}
