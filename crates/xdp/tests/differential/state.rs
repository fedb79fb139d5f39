//! Drawn states, as events: addresses, routes, nexthop objects, neighbours, rules, settings.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use proptest::prelude::*;
use raddle_rib::event::{
    Address, Bucket, DeviceSettings, Event, GroupMember, Link, Neighbour, Nexthop, NexthopKind,
    Route, RouteKind, RouteNexthop, RouteOp, RouteTarget, Settings,
};
use raddle_rib::{AlgoRules, MpAlgo};

pub(crate) fn address(v6: bool, n: u8) -> IpAddr {
    // Eight subnets of 32 addresses, so that routes, neighbours and packets meet.
    let (net, host) = (n >> 5, n & 31);
    if v6 {
        IpAddr::V6(Ipv6Addr::new(
            0xfd00,
            0,
            0,
            net.into(),
            0,
            0,
            0,
            host.into(),
        ))
    } else {
        IpAddr::V4(Ipv4Addr::new(10, 0, net, host))
    }
}

pub(crate) fn route(v6: bool) -> impl Strategy<Value = Event> {
    let hop =
        (any::<u8>(), 1..=4u32, 1..4u16, 0..8u8).prop_map(move |(n, index, weight, direct)| {
            let gateway = (direct != 0).then(|| address(v6, n % 16));
            RouteNexthop {
                gateway,
                index,
                weight,
                ..RouteNexthop::default()
            }
        });
    let target = prop_oneof![
        hop.clone().prop_map(RouteTarget::Single),
        proptest::collection::vec(hop, 2..40).prop_map(RouteTarget::Multipath),
        (1..6u32).prop_map(RouteTarget::Object),
    ];
    let kind = prop_oneof![
        12 => Just(RouteKind::Unicast),
        1 => Just(RouteKind::Blackhole),
        1 => Just(RouteKind::Local),
        1 => Just(RouteKind::Broadcast),
        1 => Just(RouteKind::Prohibit),
    ];
    let lens: &[u8] = if v6 {
        &[0, 16, 48, 61, 64, 120, 128]
    } else {
        &[0, 8, 21, 24, 28, 32]
    };
    (
        any::<u8>(),
        proptest::sample::select(lens),
        kind,
        target,
        0..4u32,
    )
        .prop_map(move |(n, len, kind, target, mtu)| {
            let dst = IpNet::new(address(v6, n), len).unwrap().trunc();
            let target = if kind == RouteKind::Unicast {
                target
            } else {
                RouteTarget::None
            };
            let metrics = if mtu == 0 { vec![(2, 576)] } else { Vec::new() };
            let route = Route {
                dst,
                protocol: 4,
                kind,
                metrics,
                target,
                ..Route::default()
            };
            Event::Route(route, RouteOp::Replace)
        })
}

pub(crate) fn state() -> impl Strategy<Value = Vec<Event>> {
    let fields = || prop_oneof![any::<u32>(), Just(0), Just(7), Just(0x37), Just(0xfc0)];
    let settings = (0..4u8, 0..4u8, fields(), fields(), 0..6u32, any::<bool>()).prop_map(
        |(hash_policy4, hash_policy6, fields4, fields6, seed, use_neigh)| {
            Event::Settings(Settings {
                hash_policy4,
                hash_policy6,
                hash_fields4: fields4 & 0xfff,
                hash_fields6: fields6 & 0xfff,
                hash_seed: seed.wrapping_mul(0x9e37_79b1),
                use_neigh,
                ..Settings::default()
            })
        },
    );
    let device = (0..16u8).prop_map(|bits| {
        Event::Device(
            1,
            DeviceSettings {
                forwarding4: bits != 1,
                forwarding6: bits != 2,
                rp_filter: match bits {
                    3 | 5..8 => 1,
                    8..12 => 2,
                    _ => 0,
                },
                accept_local: bits == 4,
                ..DeviceSettings::default()
            },
        )
    });
    let neighbours = proptest::collection::vec(
        (1..=4u32, any::<bool>(), 0..24u8, 0..5u8).prop_map(|(index, v6, n, state)| {
            Event::Neighbour(Neighbour {
                index,
                dst: address(v6, n),
                mac: Some([4, 0, 0, v6.into(), index as u8, n]),
                state: if state == 0 { 0x20 } else { 2 },
                flags: 0,
                protocol: 0,
            })
        }),
        150..400,
    );
    let nexthop = (1..4u32, any::<bool>(), 0..16u8, 1..=4u32).prop_map(|(id, v6, n, index)| {
        let kind = NexthopKind::Single {
            gateway: Some(address(v6, n)),
            index,
            encap: None,
        };
        Nexthop::new(id, 2, kind)
    });
    let members = proptest::collection::vec((1..4u32, 1..=65535u16), 1..6).prop_map(|members| {
        let kind = NexthopKind::Group(
            members
                .into_iter()
                .map(|(id, weight)| GroupMember { id, weight })
                .collect(),
        );
        Nexthop::new(5, 0, kind)
    });
    // A table as the kernel may have it, now and then with an owner who is no member.
    let resilient = (
        proptest::collection::vec(1..4u32, 1..4),
        proptest::collection::vec(0..20usize, 1..70),
        proptest::sample::select(vec![0u32, 19, 6000, 12000]),
    );
    let resilient = resilient.prop_map(|(ids, owners, idle_timer)| {
        let buckets = owners.len() as u16;
        let members = ids
            .iter()
            .map(|id| GroupMember { id: *id, weight: 1 })
            .collect();
        let owners: Vec<u32> = owners
            .iter()
            .map(|n| {
                if owners.len() > 60 && *n == 19 {
                    99
                } else {
                    ids[n % ids.len()]
                }
            })
            .collect();
        let kind = NexthopKind::Resilient {
            members,
            buckets,
            idle_timer,
            unbalanced_timer: 0,
            unbalanced_time: 0,
        };
        let group = Nexthop::new(4, 0, kind);
        let bucket = |(index, nexthop): (usize, &u32)| {
            Event::Bucket(Bucket {
                group: 4,
                index: index as u16,
                nexthop: *nexthop,
                idle_time: 0,
                flags: 0,
            })
        };
        let mut events = vec![Event::Nexthop(group)];
        events.extend(owners.iter().enumerate().map(bucket));
        events
    });
    let routes =
        proptest::collection::vec(any::<bool>().prop_flat_map(|v6| route(v6).boxed()), 0..60);
    let nexthops = proptest::collection::vec(nexthop, 2..8);
    (
        settings, device, neighbours, nexthops, members, resilient, routes,
    )
        .prop_map(
            |(settings, device, neighbours, nexthops, group, resilient, routes)| {
                let mut events = vec![settings, device];
                events.extend(neighbours);
                events.extend(nexthops.into_iter().map(Event::Nexthop));
                events.push(Event::Nexthop(group));
                events.extend(resilient);
                events.extend(routes);
                events
            },
        )
}

/// Rules for some prefixes and groups.
pub(crate) fn algos() -> impl Strategy<Value = AlgoRules> {
    let algo = proptest::sample::select(vec![
        "l3",
        "l4",
        "l4,icmp-follows-flow",
        "inner",
        "custom",
        "round-robin",
        "flowlet,gap=4s",
    ]);
    let algo = algo.prop_map(|text| text.parse::<MpAlgo>().unwrap());
    let len = proptest::sample::select(vec![0u8, 8, 24]);
    let prefix = (any::<bool>(), any::<u8>(), len, algo.clone());
    let prefix = prefix
        .prop_map(|(v6, n, len, algo)| (IpNet::new(address(v6, n), len).unwrap().trunc(), algo));
    let some = (
        proptest::collection::vec(prefix, 0..4),
        proptest::collection::hash_map(4..6u32, algo, 0..2),
    );
    let some = some.prop_map(|(prefixes, groups)| AlgoRules { prefixes, groups });
    prop_oneof![Just(AlgoRules::default()), some]
}

/// Links 1 to 4 of the state are these.
pub(crate) type Indices = [u32; 4];

pub(crate) fn base(indices: Indices) -> Vec<Event> {
    let ingress = indices[0];
    let mut events: Vec<Event> = (1..=4u32)
        .map(|n| {
            Event::Link(Link::ethernet(
                indices[n as usize - 1],
                format!("l{n}"),
                [2, 0, 0, 0, 0, n as u8],
            ))
        })
        .collect();
    for v6 in [false, true] {
        events.push(Event::Address(Address::new(
            ingress,
            address(v6, 7),
            if v6 { 64 } else { 24 },
        )));
        let dst = IpNet::new(address(v6, 7), if v6 { 128 } else { 32 }).unwrap();
        let local = Route {
            table: 255,
            dst,
            protocol: 2,
            scope: 254,
            kind: RouteKind::Local,
            ..Route::default()
        };
        events.push(Event::Route(local, RouteOp::Add));
    }
    events
}

/// Puts the real interface indices in the place of 1 to 4.
pub(crate) fn renumber(event: &mut Event, indices: Indices) {
    let fix = |index: &mut u32| *index = indices[*index as usize - 1];
    match event {
        Event::Device(index, _) => fix(index),
        Event::Neighbour(neighbour) => fix(&mut neighbour.index),
        Event::Nexthop(Nexthop {
            kind: NexthopKind::Single { index, .. },
            ..
        }) => fix(index),
        Event::Route(route, _) => match &mut route.target {
            RouteTarget::Single(hop) => fix(&mut hop.index),
            RouteTarget::Multipath(hops) => hops.iter_mut().for_each(|hop| fix(&mut hop.index)),
            RouteTarget::None | RouteTarget::Object(_) => {}
        },
        _ => {}
    }
}
