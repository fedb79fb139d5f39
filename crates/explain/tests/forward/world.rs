//! What the states of the differential test lack: links that fail, SIDs and encapsulations, rules, routes that are
//! punted for every reason there is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use proptest::prelude::*;
use raddle_rib::event::{
    DeviceSettings, Encap, Event, Link, Neighbour, Nexthop, NexthopKind, ROUTE_STATIC, Route,
    RouteKind, RouteNexthop, RouteOp, RouteTarget, Rule, Settings,
};
use raddle_rib::seg6::{Behaviour, Encaps, Mode, Seg6, Sid, TableRef};

use crate::draw::address6;
use crate::state::address;
use raddle_xdp_testing::draw::Draw;

/// What is odd about a state: a bit each.
pub(crate) fn odd() -> impl Strategy<Value = Vec<Event>> {
    (any::<u64>(), any::<bool>()).prop_map(|(seed, segments)| {
        let mut draw = Draw::new(seed);
        let mut events = links(&mut draw);
        events.extend(routes(&mut draw));
        if segments {
            events.extend(srv6(&mut draw));
        }
        events
    })
}

/// Changes to settings that the differential test draws; they come behind its own.
pub(crate) fn settings(settings: &mut Settings, draw: u8) {
    (settings.forward_use_pmtu, settings.min_pmtu) = match draw {
        0 => (true, 552),
        1 => (true, 0),
        2 => (false, 552),
        _ => return,
    };
}

fn links(draw: &mut Draw) -> Vec<Event> {
    let mut events = Vec::new();
    for index in 1..=4u32 {
        let mut link = Link::ethernet(index, format!("l{index}"), [2, 0, 0, 0, 0, index as u8]);
        link.mtu = draw.of(&[1500, 1500, 1500, 1500, 1280, 600, 9000]);
        if index > 1 {
            match draw.below(24) {
                0 => link.flags = 1,
                1 => link.flags = 0,
                2 => link.arp_type = 65534,
                3 => link.mac = None,
                _ => {}
            }
        }
        events.push(Event::Link(link));
        let mtu6 = draw.of(&[0, 0, 0, 1280, 1300]);
        let device = DeviceSettings {
            forwarding4: !draw.once_in(20),
            forwarding6: !draw.once_in(20),
            rp_filter: draw.of(&[0, 0, 0, 0, 1, 2]),
            accept_local: draw.once_in(8),
            send_redirects: draw.once_in(2),
            ignore_linkdown4: draw.once_in(3),
            ignore_linkdown6: draw.once_in(3),
            mtu6,
            seg6_require_hmac: draw.of(&[-1, 0, 0, 0, 1]),
            hop_limit: Some(64),
        };
        if draw.once_in(2) {
            events.push(Event::Device(index, device));
        }
    }
    events
}

fn hop(draw: &mut Draw, v6: bool) -> RouteNexthop {
    let index = 1 + draw.below(4) as u32;
    RouteNexthop {
        gateway: (!draw.once_in(8)).then(|| address(v6, draw.below(24) as u8)),
        index,
        weight: 1 + draw.below(3) as u16,
        ..RouteNexthop::default()
    }
}

fn plain(draw: &mut Draw, v6: bool) -> RouteTarget {
    match draw.below(3) {
        0 => RouteTarget::Multipath((0..2 + draw.below(3)).map(|_| hop(draw, v6)).collect()),
        _ => RouteTarget::Single(hop(draw, v6)),
    }
}

/// A route of each kind that the kernel has, and nexthop objects that are none.
fn routes(draw: &mut Draw) -> Vec<Event> {
    use RouteKind::*;
    let mut events = Vec::new();
    if draw.once_in(3) {
        events.push(Event::Nexthop(Nexthop::new(9, 0, NexthopKind::Blackhole)));
    }
    for _ in 0..draw.below(8) {
        let v6 = draw.once_in(2);
        let host = address(v6, draw.byte());
        let len = match v6 {
            true => draw.of(&[64, 124, 128]),
            false => draw.of(&[24, 30, 32]),
        };
        let kind = draw.of(&[
            Unicast,
            Unicast,
            Unicast,
            Unicast,
            Unreachable,
            Throw,
            Anycast,
            Multicast,
            Prohibit,
            Local,
            Broadcast,
        ]);
        let mut route = Route {
            dst: IpNet::new(host, len).unwrap().trunc(),
            table: draw.of(&[254, 254, 254, 255]),
            kind,
            protocol: 4,
            metric: draw.of(&[0, 5]),
            target: RouteTarget::None,
            ..Route::default()
        };
        if kind == Unicast {
            route.target = plain(draw, v6);
            match draw.below(12) {
                0 => route.tos = 8,
                1 => route.target = RouteTarget::Object(draw.of(&[7, 9])),
                2 => route.expires = v6.then_some(1),
                3 => {
                    if let RouteTarget::Single(hop) = &mut route.target {
                        hop.encap = Some(Encap {
                            kind: 1,
                            data: vec![0; 8],
                        });
                    }
                }
                4 | 5 => route.metrics = vec![(2, draw.of(&[576, 1280, 1400, 4000]))],
                _ => {}
            }
        }
        events.push(Event::Route(route, RouteOp::Replace));
    }
    if draw.once_in(12) {
        events.push(Event::Clock(1_000_000));
    }
    if draw.once_in(14) {
        let family = draw.of(&[4, 6]);
        let first = |priority, table| Rule {
            family,
            priority,
            table,
            action: 1,
            ..Rule::default()
        };
        let odd = match draw.once_in(2) {
            true => Rule {
                from: Some(match family {
                    4 => "10.0.1.0/24".parse().unwrap(),
                    _ => "fd00:0:0:1::/64".parse().unwrap(),
                }),
                ..first(100, 100)
            },
            false => first(100, 100),
        };
        events.extend([first(0, 255), odd, first(32766, 254)].map(Event::Rule));
    }
    events
}

/// SIDs and encapsulations at the addresses that [`crate::draw::frame`] draws.
fn srv6(draw: &mut Draw) -> Vec<Event> {
    let mut events = Vec::new();
    for index in 1..=4 {
        for n in 0..6 {
            for v6 in [false, true] {
                if draw.once_in(8) {
                    continue;
                }
                events.push(Event::Neighbour(Neighbour {
                    index,
                    dst: address(v6, n),
                    mac: Some([4, 0, 0, v6.into(), index as u8, n]),
                    state: if draw.once_in(12) { 0x20 } else { 2 },
                    flags: 0,
                    protocol: 0,
                }));
            }
        }
    }
    let mut add = |dst: String, table, kind, target, flags| {
        let route = Route {
            dst: dst.parse().unwrap(),
            table,
            kind,
            protocol: 4,
            metric: 1024,
            flags,
            target,
            ..Route::default()
        };
        events.push(Event::Route(route, RouteOp::Add));
    };
    use RouteKind::{Blackhole, Local, Unicast};
    let near = |draw: &mut Draw, v6: bool| match draw.once_in(2) {
        true => {
            let hops = (0..2 + draw.below(3)).map(|_| RouteNexthop {
                gateway: Some(address(v6, draw.below(6) as u8)),
                index: 2 + draw.below(3) as u32,
                ..RouteNexthop::default()
            });
            RouteTarget::Multipath(hops.collect())
        }
        false => RouteTarget::Single(RouteNexthop {
            gateway: Some(address(v6, draw.below(6) as u8)),
            index: 2 + draw.below(3) as u32,
            ..RouteNexthop::default()
        }),
    };
    for (table, dst, v6) in [
        (254, "2001:db8:1::/48", true),
        (254, "2001:db8:2::/48", true),
        (254, "192.0.2.0/24", false),
        (254, "198.51.100.0/24", false),
        (100, "2001:db8:15::/48", true),
        (100, "2001:db8:5::/48", true),
        (100, "192.0.2.0/24", false),
        (100, "198.51.100.0/24", false),
    ] {
        let target = near(draw, v6);
        add(dst.to_owned(), table, Unicast, target, 0);
    }
    let nowhere = || RouteTarget::None;
    add("2001:db8:4::/48".into(), 254, Blackhole, nowhere(), 0);
    add("2001:db8::9/128".into(), 255, Local, nowhere(), 0);
    add("10.9.9.9/32".into(), 255, Local, nowhere(), 0);
    for n in 0..8 {
        for dst in [format!("2001:db8:5:{n}::/64"), format!("10.5.{n}.0/24")] {
            let v6 = n_is_v6(&dst);
            let own = draw.once_in(4);
            let count = draw.of(&[1, 1, 1, 2, 3]);
            let hops: Vec<_> = (0..count).map(|_| segment_hop(draw, v6, own)).collect();
            let target = match <[RouteNexthop; 1]>::try_from(hops) {
                Ok([hop]) => RouteTarget::Single(hop),
                Err(hops) => RouteTarget::Multipath(hops),
            };
            let flags = if own { ROUTE_STATIC } else { 0 };
            add(dst, 254, Unicast, target, flags);
        }
    }
    events
}

fn n_is_v6(dst: &str) -> bool {
    dst.contains(':')
}

fn segment_hop(draw: &mut Draw, v6: bool, own: bool) -> RouteNexthop {
    let index = 2 + draw.below(3) as u32;
    let link_only = RouteNexthop {
        index,
        ..RouteNexthop::default()
    };
    if !own && draw.once_in(6) {
        return RouteNexthop {
            gateway: Some(address(v6, draw.below(6) as u8)),
            ..link_only
        };
    }
    let what = match v6 && !draw.once_in(3) {
        true => Seg6::Sid(sid(draw, own)),
        false => {
            let modes: &[Mode] = match v6 {
                true => &Mode::ALL,
                false => &[Mode::Encap, Mode::L2Encap, Mode::EncapRed, Mode::L2EncapRed],
            };
            Seg6::Encaps(Encaps::new(draw.of(modes), &list(draw)).unwrap())
        }
    };
    RouteNexthop {
        encap: Some(what.encode()),
        ..link_only
    }
}

fn list(draw: &mut Draw) -> Vec<Ipv6Addr> {
    (0..1 + draw.below(3))
        .map(|_| address6(draw).into())
        .collect()
}

fn sid(draw: &mut Draw, own: bool) -> Sid {
    use raddle_image::flavours::{NEXT_CSID, PSP, REPLACE_CSID, USD, USP};
    let near6 = |draw: &mut Draw| match draw.below(3) {
        0 => Ipv6Addr::UNSPECIFIED,
        1 => address6(draw).into(),
        _ => match address(true, draw.below(6) as u8) {
            IpAddr::V6(ip) => ip,
            IpAddr::V4(_) => unreachable!("asked for IPv6"),
        },
    };
    let table = TableRef::Table(draw.of(&[254, 100]));
    let behaviour = match draw.below(14) {
        0..3 => Behaviour::End,
        3 => Behaviour::X {
            nh6: near6(draw),
            oif: draw.once_in(8).then_some(2),
        },
        4 => Behaviour::T {
            table: table.number(),
        },
        5 => Behaviour::Dx2 {
            oif: 2 + draw.below(3) as u32,
        },
        6 if own => Behaviour::Dx2v {
            vlans: vec![(1, 2), (3, 3)],
        },
        6 | 7 => Behaviour::Dx6 { nh6: near6(draw) },
        8 => Behaviour::Dx4 {
            nh4: draw.of(&[
                Ipv4Addr::UNSPECIFIED,
                [192, 0, 2, 9].into(),
                [10, 0, 0, 3].into(),
            ]),
        },
        9 => Behaviour::Dt6 { table },
        10 => match own {
            true => Behaviour::Dt46 { table },
            false => Behaviour::Dt4 {
                table: TableRef::Vrf(table.number()),
            },
        },
        11 => Behaviour::Dx2 { oif: 3 },
        12 => Behaviour::b6(&list(draw)).unwrap(),
        _ => match draw.once_in(4) {
            true => Behaviour::Other(15),
            false => Behaviour::b6_encaps(&list(draw), own && draw.once_in(2)).unwrap(),
        },
    };
    let mut sid = Sid::new(behaviour);
    if draw.once_in(2) {
        sid.flavours = draw.of(&[PSP, NEXT_CSID, NEXT_CSID | PSP]);
        if own && draw.once_in(2) {
            sid.flavours = draw.of(&[
                USP,
                USD,
                USP | USD | PSP,
                REPLACE_CSID,
                REPLACE_CSID | PSP | USD,
            ]);
        }
    }
    if sid.flavours & (NEXT_CSID | REPLACE_CSID) != 0 {
        (sid.block, sid.csid) = (draw.of(&[32, 48]), 16);
    }
    sid.counters = !draw.once_in(5);
    sid
}
