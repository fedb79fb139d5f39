//! What the image says of tunnels: what packets are put into that leave by one, and what comes in to an address of this machine; while
//! all that it hangs on comes and goes.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use raddle_image::{
    ADJ_TUNNEL, Adjacency, Capacity, Group, LinkEntry, Member, Memory, Reason, TUNNEL_END,
    TUNNEL_KEYED, Tunnel as Put, TunnelEnd, Upon, link_flags, segment_kind, tunnel_flags as flag,
    tunnel_kind as kind,
};
use raddle_rib::event::{
    Address, Bridge, BridgePort, DeviceSettings, Event, FdbEntry, LearntMtu, Link, Neighbour,
    Nexthop, NexthopKind, Route, RouteKind, RouteNexthop, RouteOp, RouteTarget, Rule, Settings,
    Tunnel, TunnelDf, TunnelFdb, TunnelKind, Vlan,
};
use raddle_rib::firewall::Firewall;
use raddle_rib::{Ports, Rib};

const CAPACITY: Capacity = Capacity {
    nodes4: 1 << 12,
    leaves4: 1 << 13,
    words6: 1 << 14,
    groups: 256,
    members: 256,
    adjacencies: 64,
    segments: 16,
    templates: 128,
};

/// This end, and the other ends.
const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

/// The links: a wire, tunnels, a VXLAN of its own, one that is a port of a bridge, and the bridge.
const WIRE: u32 = 2;
const IPIP: u32 = 3;
const SIT: u32 = 4;
const GRE: u32 = 5;
const VXLAN: u32 = 6;
const PORT: u32 = 7;
const BRIDGE: u32 = 8;

const ROUTER: [u8; 6] = [2, 0, 0, 0, 9, 9];

fn of(kind: TunnelKind) -> Tunnel {
    Tunnel {
        kind,
        local: Some(HERE),
        remote: Some(THERE),
        ttl: 0,
        tos: 0,
        df: TunnelDf::Set,
        link: 0,
        is_special: false,
    }
}

fn packets(index: u32, tunnel: Tunnel) -> Link {
    Link {
        mac: None,
        arp_type: 778,
        mtu: 1476,
        tunnel: Some(tunnel),
        ..Link::ethernet(index, format!("t{index}"), [0; 6])
    }
}

fn gre(ikey: Option<u32>, okey: Option<u32>) -> Tunnel {
    of(TunnelKind::Gre { ikey, okey })
}

fn vxlan_of(vni: u32) -> TunnelKind {
    TunnelKind::Vxlan {
        vni,
        port: 4789,
        sports: (0, 0),
        learns: false,
        checksum: false,
        ttl_inner: false,
    }
}

fn frames(index: u32, vni: u32) -> Link {
    Link {
        mtu: 1450,
        kind: Some("vxlan".into()),
        tunnel: Some(Tunnel {
            remote: None,
            df: TunnelDf::Unset,
            ..of(vxlan_of(vni))
        }),
        ..Link::ethernet(index, format!("vx{index}"), [2, 0, 0, 0, 0, index as u8])
    }
}

fn port(index: u32, vni: u32) -> Link {
    Link {
        master: Some(BRIDGE),
        port: Some(BridgePort {
            state: 3,
            learns: false,
            is_locked: false,
            is_special: false,
        }),
        ..frames(index, vni)
    }
}

fn bridge() -> Link {
    Link {
        mtu: 1450,
        kind: Some("bridge".into()),
        bridge: Some(Bridge {
            filters_vlans: false,
            protocol: CUSTOMER,
            is_special: false,
        }),
        ..Link::ethernet(BRIDGE, "br8", [2, 0, 0, 0, 0, 8])
    }
}

/// EtherType of 802.1Q.
const CUSTOMER: u16 = 0x8100;

fn vlan_upon(index: u32, lower: u32) -> Link {
    Link {
        vlan: Some(Vlan {
            protocol: CUSTOMER,
            id: 5,
            egress_qos: false,
        }),
        lower: Some(lower),
        kind: Some("vlan".into()),
        ..Link::ethernet(index, format!("v{index}"), [2, 0, 0, 0, 0, 8])
    }
}

fn fdb(index: u32, mac: [u8; 6], dst: Ipv4Addr) -> Event {
    Event::TunnelFdb(TunnelFdb {
        index,
        mac,
        dst: dst.into(),
        is_special: false,
    })
}

fn learnt(mac: [u8; 6], port: u32, local: bool) -> Event {
    Event::Fdb(FdbEntry {
        bridge: BRIDGE,
        mac,
        vlan: 0,
        port,
        local,
        is_special: false,
    })
}

fn neighbour(index: u32, dst: &str) -> Event {
    Event::Neighbour(Neighbour {
        index,
        dst: dst.parse().unwrap(),
        mac: Some(ROUTER),
        state: 0x80,
        flags: 0,
        protocol: 0,
    })
}

fn route(dst: &str, gateway: Option<&str>, index: u32) -> Event {
    let nexthop = RouteNexthop {
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        index,
        ..RouteNexthop::default()
    };
    let route = Route {
        dst: dst.parse().unwrap(),
        target: RouteTarget::Single(nexthop),
        ..Route::default()
    };
    Event::Route(route, RouteOp::Add)
}

fn local(address: Ipv4Addr) -> Route {
    Route {
        table: 255,
        dst: format!("{address}/32").parse().unwrap(),
        kind: RouteKind::Local,
        ..local_target()
    }
}

fn local_target() -> Route {
    Route {
        target: RouteTarget::Single(RouteNexthop {
            index: WIRE,
            ..RouteNexthop::default()
        }),
        ..Route::default()
    }
}

fn here() -> Address {
    Address::new(WIRE, HERE.into(), 24)
}

fn settings() -> Settings {
    Settings {
        hash_seed: 7,
        local_ports: (32768, 60999),
        default_ttl: 64,
        ..Settings::default()
    }
}

/// Links, and what is by each of them; the bridge has learnt where the router is.
fn world() -> Vec<Event> {
    let all = [
        Link::ethernet(WIRE, "eth2", [2, 0, 0, 0, 0, 2]),
        packets(IPIP, of(TunnelKind::Ipip)),
        packets(
            SIT,
            Tunnel {
                remote: Some(ELSEWHERE),
                ..of(TunnelKind::Sit)
            },
        ),
        packets(GRE, gre(Some(7), Some(8))),
        frames(VXLAN, 6),
        port(PORT, 7),
        bridge(),
    ];
    let mut events = vec![Event::Settings(settings())];
    for link in all {
        let index = link.index;
        events.push(Event::Link(link));
        let forwards = DeviceSettings {
            forwarding4: true,
            forwarding6: true,
            ..DeviceSettings::default()
        };
        events.push(Event::Device(index, forwards));
    }
    events.extend([
        Event::Address(here()),
        Event::Route(local(HERE), RouteOp::Add),
        route("198.51.100.0/24", Some("192.0.2.9"), WIRE),
        neighbour(WIRE, "192.0.2.9"),
        route("10.3.0.0/16", None, IPIP),
        route("fd04::/16", Some("fe80::1"), SIT),
        route("10.5.0.0/16", Some("10.255.0.1"), GRE),
        route("fd05::/16", None, GRE),
        route("10.6.0.0/16", Some("10.6.255.1"), VXLAN),
        neighbour(VXLAN, "10.6.255.1"),
        fdb(VXLAN, ROUTER, THERE),
        route("10.8.0.0/16", Some("10.8.255.1"), BRIDGE),
        neighbour(BRIDGE, "10.8.255.1"),
        learnt(ROUTER, PORT, false),
        learnt([2, 0, 0, 0, 0, 8], BRIDGE, true),
        fdb(PORT, ROUTER, ELSEWHERE),
    ]);
    events
}

fn ports() -> Ports {
    let all: BTreeSet<u32> = (WIRE..=BRIDGE).collect();
    Ports {
        enabled: all.clone(),
        out: all,
    }
}

fn empty() -> Rib {
    let mut rib = Rib::new(Arc::new(Memory::heap(&CAPACITY)), &CAPACITY, || ());
    rib.set_ports(ports());
    rib
}

fn started() -> Rib {
    let mut rib = empty();
    world().into_iter().for_each(|event| rib.apply(event));
    rib.commit();
    rib
}

fn change(rib: &mut Rib, event: Event) {
    rib.apply(event);
    rib.commit();
}

/// What a destination leads to from the wire.
fn group(rib: &Rib, dst: &str) -> Group {
    let memory = rib.memory();
    let entry = memory.link(WIRE);
    match dst.parse().unwrap() {
        IpAddr::V4(dst) => memory.group(memory.route4(entry.table4, dst.to_bits())),
        IpAddr::V6(dst) => memory.group(memory.route6(entry.table6, dst.to_bits())),
    }
}

fn adjacency(rib: &Rib, dst: &str) -> Adjacency {
    match group(rib, dst) {
        Group::Single(number) | Group::Neighbour(number) => rib.memory().adjacency(number),
        other => panic!("{dst} leads to {other:?}"),
    }
}

/// What packets are put into; or why they are punted.
fn put(rib: &Rib, dst: &str) -> Result<Put, u8> {
    let adjacency = adjacency(rib, dst);
    match adjacency.state {
        ADJ_TUNNEL => Ok(Put {
            salt: 0,
            ..adjacency.tunnel
        }),
        _ => Err(adjacency.reason),
    }
}

const OUT_LINK: Result<Put, u8> = Err(Reason::OutLink as u8);

/// Where an outer packet comes to, by the table that the adjacency names.
fn outer_leaves_by(rib: &Rib, dst: &str) -> Option<u32> {
    let (memory, adjacency) = (rib.memory(), adjacency(rib, dst));
    let outer = u32::from_be_bytes(adjacency.tunnel.dst);
    match memory.group(memory.route4(adjacency.lower, outer)) {
        Group::Single(number) | Group::Neighbour(number) => {
            Some(memory.adjacency(number)).filter(Adjacency::forwards)
        }
        _ => None,
    }
    .map(|adjacency| adjacency.leaves_by())
}

/// The tunnels that end at this address; none where it is the kernel's.
fn ends(rib: &Rib, at: Ipv4Addr) -> Option<Vec<TunnelEnd>> {
    let memory = rib.memory();
    let Group::Segment(number) = group(rib, &at.to_string()) else {
        return None;
    };
    let segment = memory.segment(number);
    match segment.kind {
        segment_kind::TUNNEL_END => {}
        segment_kind::KERNEL => {
            assert_eq!(segment.reason, Reason::Local as u8);
            return None;
        }
        other => panic!("a segment of kind {other}"),
    }
    let words: Vec<u64> = (segment.template..)
        .take(segment.out as usize * TUNNEL_END)
        .map(|place| memory.template_word(place))
        .collect();
    let (all, rest) = words.as_chunks::<TUNNEL_END>();
    assert!(rest.is_empty() && all.is_sorted());
    Some(
        all.iter()
            .map(|words| TunnelEnd::from_words(*words))
            .collect(),
    )
}

/// The links of these.
fn ends_of(rib: &Rib) -> Vec<u32> {
    let ends = ends(rib, HERE).unwrap_or_default();
    ends.iter().map(|end| end.index).collect()
}

const FAMILIES: u8 = flag::CARRIES4 | flag::CARRIES6;

#[test]
fn packets_are_put_into_what_tunnels_are_set_to() {
    let mut rib = started();
    let base = Put {
        src: HERE.octets(),
        dst: THERE.octets(),
        kind: kind::IP,
        flags: flag::CARRIES4 | flag::DF | flag::TTL_INNER,
        ..Put::default()
    };
    assert_eq!(put(&rib, "10.3.1.1"), Ok(base));
    // A direct route, and hosts that have an entry all the same: one adjacency.
    assert_eq!(adjacency(&rib, "10.3.1.1").mtu, 1476);
    change(&mut rib, neighbour(IPIP, "10.3.1.2"));
    assert_eq!(group(&rib, "10.3.1.1"), group(&rib, "10.3.1.2"));
    let sit = Put {
        dst: ELSEWHERE.octets(),
        flags: flag::CARRIES6 | flag::DF | flag::TTL_INNER,
        ..base
    };
    assert_eq!(put(&rib, "fd04::1"), Ok(sit));
    let keyed = Put {
        kind: kind::GRE,
        flags: FAMILIES | flag::DF | flag::TTL_INNER | flag::HAS_KEY,
        key: [0, 0, 0, 8],
        ..base
    };
    assert_eq!(put(&rib, "10.5.1.1"), Ok(keyed));
    // Whatever the gateway is.
    assert_eq!(put(&rib, "fd05::1"), Ok(keyed));
    let numbers = ["10.5.1.1", "fd05::1"].map(|dst| group(&rib, dst));
    assert!(matches!(numbers, [Group::Single(a), Group::Single(b)] if a == b));
    let set = Tunnel {
        ttl: 9,
        tos: 1,
        df: TunnelDf::Inner,
        ..gre(None, None)
    };
    change(&mut rib, Event::Link(packets(GRE, set)));
    let plain = Put {
        kind: kind::GRE,
        flags: FAMILIES | flag::DF_INNER | flag::TOS_INNER,
        ttl: 9,
        ..base
    };
    assert_eq!(put(&rib, "10.5.1.1"), Ok(plain));
    for dst in ["10.3.1.1", "fd04::1", "10.5.1.1", "10.6.1.1", "10.8.1.1"] {
        assert_eq!(outer_leaves_by(&rib, dst), Some(WIRE), "{dst}");
    }
}

#[test]
fn frames_are_put_into_what_vxlans_are_set_to() {
    let mut rib = started();
    let base = Put {
        src: HERE.octets(),
        dst: THERE.octets(),
        kind: kind::VXLAN,
        flags: FAMILIES,
        key: [0, 0, 6, 0],
        ttl: 64,
        port: 4789,
        sport: 32768,
        sports: 60999 - 32768,
        ..Put::default()
    };
    assert_eq!(put(&rib, "10.6.1.1"), Ok(base));
    let by_bridge = Put {
        dst: ELSEWHERE.octets(),
        key: [0, 0, 7, 0],
        ..base
    };
    assert_eq!(put(&rib, "10.8.1.1"), Ok(by_bridge));
    let found = adjacency(&rib, "10.8.1.1");
    assert_eq!((found.index, found.mtu), (BRIDGE, 1450));
    assert_eq!((found.dst_mac, found.src_mac), (ROUTER, [2, 0, 0, 0, 0, 8]));
    let set = |ttl, ttl_inner| {
        Event::Link(Link {
            tunnel: Some(Tunnel {
                ttl,
                tos: 0x48,
                remote: None,
                df: TunnelDf::Set,
                ..of(TunnelKind::Vxlan {
                    vni: 0x01_0203,
                    port: 8472,
                    sports: (1000, 1001),
                    learns: true,
                    checksum: true,
                    ttl_inner,
                })
            }),
            ..frames(VXLAN, 6)
        })
    };
    let wanted = Put {
        flags: FAMILIES | flag::DF | flag::CHECKSUM,
        key: [1, 2, 3, 0],
        ttl: 5,
        tos: 0x48,
        port: 8472,
        sport: 1000,
        sports: 1,
        ..base
    };
    change(&mut rib, set(5, false));
    assert_eq!(put(&rib, "10.6.1.1"), Ok(wanted));
    change(&mut rib, set(5, true));
    let inner = Put {
        flags: wanted.flags | flag::TTL_INNER,
        ttl: 0,
        ..wanted
    };
    assert_eq!(put(&rib, "10.6.1.1"), Ok(inner));
    // Tags inside frames are the kernel's.
    change(&mut rib, Event::Link(vlan_upon(20, BRIDGE)));
    let mut ports = ports();
    ports.out.insert(20);
    rib.set_ports(ports);
    rib.apply(neighbour(20, "10.20.0.1"));
    change(&mut rib, route("10.20.0.0/16", Some("10.20.0.1"), 20));
    assert_eq!(put(&rib, "10.20.1.1"), OUT_LINK);
}

#[test]
fn vxlans_send_where_their_fdb_says() {
    let mut rib = started();
    let dst = |rib: &Rib| put(rib, "10.6.1.1").map(|put| Ipv4Addr::from(put.dst));
    let nowhere = Err(Reason::OutLink as u8);
    change(&mut rib, fdb(VXLAN, ROUTER, ELSEWHERE));
    assert_eq!(dst(&rib), Ok(ELSEWHERE));
    change(
        &mut rib,
        Event::TunnelFdbGone(VXLAN, ROUTER, ELSEWHERE.into()),
    );
    assert_eq!(dst(&rib), nowhere);
    // For all others.
    change(&mut rib, fdb(VXLAN, [0; 6], THERE));
    assert_eq!(dst(&rib), Ok(THERE));
    change(&mut rib, fdb(VXLAN, [0; 6], ELSEWHERE));
    assert_eq!(dst(&rib), nowhere);
    // Its own counts more.
    change(&mut rib, fdb(VXLAN, ROUTER, ELSEWHERE));
    assert_eq!(dst(&rib), Ok(ELSEWHERE));
    change(
        &mut rib,
        Event::TunnelFdbGone(VXLAN, ROUTER, ELSEWHERE.into()),
    );
    change(&mut rib, Event::TunnelFdbGone(VXLAN, [0; 6], THERE.into()));
    assert_eq!(dst(&rib), Ok(ELSEWHERE));
    for odd in ["239.1.1.1", "255.255.255.255", "0.0.0.0"] {
        change(&mut rib, fdb(VXLAN, ROUTER, odd.parse().unwrap()));
        assert_eq!(dst(&rib), nowhere, "{odd}");
    }
    let six = TunnelFdb {
        index: VXLAN,
        mac: ROUTER,
        dst: "fd00::1".parse().unwrap(),
        is_special: false,
    };
    change(&mut rib, Event::TunnelFdb(six));
    assert_eq!(dst(&rib), nowhere);
    let special = TunnelFdb {
        dst: THERE.into(),
        is_special: true,
        ..six
    };
    change(&mut rib, Event::TunnelFdb(special));
    assert_eq!(dst(&rib), nowhere);
    // The host moves from one port of the bridge to a wire.
    assert!(put(&rib, "10.8.1.1").is_ok());
    change(&mut rib, fdb(PORT, ROUTER, THERE));
    assert_eq!(put(&rib, "10.8.1.1").unwrap().dst, THERE.octets());
    change(&mut rib, Event::FdbGone(BRIDGE, ROUTER, 0));
    assert_eq!(put(&rib, "10.8.1.1"), Err(Reason::Unresolved as u8));
}

#[test]
fn what_tunnels_hang_on_comes_and_goes() {
    let mut rib = started();
    let all = ["10.3.1.1", "fd04::1", "10.5.1.1", "10.6.1.1", "10.8.1.1"];
    let sent = |rib: &Rib| all.map(|dst| put(rib, dst).is_ok());
    assert_eq!(sent(&rib), [true; 5]);
    // No address to send from.
    change(&mut rib, Event::AddressGone(here()));
    assert_eq!(sent(&rib), [false; 5]);
    change(&mut rib, Event::Address(here()));
    assert_eq!(sent(&rib), [true; 5]);
    // Routes that say another TTL, leave little room, or let all be fragmented.
    let Event::Route(plain, _) = route("203.0.113.0/24", Some("192.0.2.9"), WIRE) else {
        unreachable!()
    };
    for (metric, wanted) in [
        ((10, 9), [true, true, true, false, false]),
        ((2, 1299), [true, false, true, true, true]),
        ((1, 1 << 2), [false, false, false, true, true]),
        ((2, 1300), [true; 5]),
    ] {
        let limited = Route {
            metrics: [metric].into_iter().collect(),
            ..plain.clone()
        };
        change(&mut rib, Event::Route(limited.clone(), RouteOp::Add));
        assert_eq!(sent(&rib), wanted, "{metric:?}");
        change(&mut rib, Event::RouteGone(limited));
        assert_eq!(sent(&rib), [true; 5]);
    }
    // Settings that are not known.
    let ttl = Settings {
        default_ttl: 0,
        ..settings()
    };
    let ports_of = Settings {
        local_ports: (0, 0),
        ..settings()
    };
    for unknown in [ttl, ports_of] {
        change(&mut rib, Event::Settings(unknown));
        assert_eq!(sent(&rib), [true, true, true, false, false]);
    }
    change(&mut rib, Event::Settings(settings()));
    assert_eq!(sent(&rib), [true; 5]);
    // A tunnel that does what engines do not, is bound to a link, is down, or has no address of its own.
    let odd = [
        Tunnel {
            is_special: true,
            ..gre(None, None)
        },
        Tunnel {
            link: WIRE,
            ..gre(None, None)
        },
        Tunnel {
            local: None,
            ..gre(None, None)
        },
        Tunnel {
            local: Some(THERE),
            ..gre(None, None)
        },
    ];
    for tunnel in odd {
        change(&mut rib, Event::Link(packets(GRE, tunnel)));
        assert_eq!(put(&rib, "10.5.1.1"), OUT_LINK, "{tunnel:?}");
    }
    let down = Link {
        flags: 0,
        ..packets(GRE, gre(None, None))
    };
    rib.apply(Event::Link(down));
    rib.commit_links();
    assert!(!matches!(group(&rib, "10.5.1.1"), Group::Single(_)));
    rib.commit();
    change(&mut rib, Event::Link(packets(GRE, gre(None, None))));
    assert!(put(&rib, "fd05::1").is_ok());
    // Links that engines may not send by.
    let mut some = ports();
    some.out.remove(&PORT);
    some.out.remove(&IPIP);
    rib.set_ports(some);
    rib.commit();
    let left = ["10.3.1.1", "fd04::1", "fd05::1", "10.6.1.1", "10.8.1.1"];
    assert_eq!(
        left.map(|dst| put(&rib, dst).is_ok()),
        [false, true, true, true, false]
    );
}

fn told(dst: Ipv4Addr, mtu: u32, is_locked: bool) -> Event {
    Event::LearntMtu(LearntMtu {
        src: HERE,
        dst,
        mtu,
        is_locked,
    })
}

/// What is longer with its headers than what the kernel has learnt of the way is the kernel's.
#[test]
fn path_mtus_that_the_kernel_has_learnt_are_kept_to() {
    let mut rib = started();
    let all = ["10.3.1.1", "fd04::1", "10.5.1.1", "10.6.1.1", "10.8.1.1"];
    let mtus = |rib: &Rib| all.map(|dst| put(rib, dst).is_ok().then(|| adjacency(rib, dst).mtu));
    let whole = [1476, 1476, 1476, 1450, 1450].map(Some);
    assert_eq!(mtus(&rib), whole);
    let ends: Vec<_> = rib.outer_ends().collect();
    assert_eq!(ends, [(HERE, THERE), (HERE, ELSEWHERE)]);
    assert_eq!(rib.outer_links(HERE, THERE), [WIRE].into());
    assert!(rib.outer_links(HERE, HERE).len() <= 1);
    // Headers of 20, 28 and 50 bytes; of this end only.
    change(&mut rib, told(THERE, 1400, false));
    let some = [Some(1380), Some(1476), Some(1372), Some(1350), Some(1450)];
    assert_eq!(mtus(&rib), some);
    assert_eq!(
        rib.learnt_mtu(HERE, THERE).map(|learnt| learnt.mtu),
        Some(1400)
    );
    change(&mut rib, told(THERE, 9000, false));
    assert_eq!(mtus(&rib), whole, "links take less");
    change(&mut rib, told(ELSEWHERE, 1300, false));
    let some = [Some(1476), Some(1280), Some(1476), Some(1450), Some(1250)];
    assert_eq!(mtus(&rib), some);
    // `sit` has outer packets fragmented below that, even short ones.
    change(&mut rib, told(ELSEWHERE, 1299, false));
    let some = [Some(1476), None, Some(1476), Some(1450), Some(1249)];
    assert_eq!(mtus(&rib), some);
    // Outer packets that are not to be fragmented are so all the same; VXLAN's may be.
    change(&mut rib, told(THERE, 552, true));
    assert_eq!(mtus(&rib), [None, None, None, Some(502), Some(1249)]);
    assert_eq!(put(&rib, "10.3.1.1"), OUT_LINK);
    // They are asked about nevertheless.
    assert_eq!(rib.outer_ends().count(), 2);
    change(&mut rib, Event::LearntMtuGone(HERE, THERE));
    change(&mut rib, Event::LearntMtuGone(HERE, ELSEWHERE));
    assert_eq!(mtus(&rib), whole);
    assert_eq!(rib.learnt_ends().count(), 0);
    change(&mut rib, Event::LearntMtuGone(HERE, THERE));
    assert!(!rib.is_dirty());
    for index in [IPIP, GRE, VXLAN] {
        change(&mut rib, Event::LinkGone(index));
    }
    assert_eq!(rib.outer_ends().collect::<Vec<_>>(), [(HERE, ELSEWHERE)]);
}

/// Tunnels among several nexthops: none waits for a neighbour, and none is passed over for one.
#[test]
fn tunnels_are_members_of_groups() {
    let mut rib = started();
    rib.apply(Event::Settings(Settings {
        use_neigh: true,
        ..settings()
    }));
    rib.apply(Event::Neighbour(Neighbour {
        index: GRE,
        dst: "10.255.0.1".parse().unwrap(),
        mac: None,
        state: 0x20,
        flags: 0,
        protocol: 0,
    }));
    let hop = |index, gateway: Option<&str>| RouteNexthop {
        index,
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        weight: 1,
        ..RouteNexthop::default()
    };
    let of_route = Route {
        dst: "10.99.0.0/16".parse().unwrap(),
        target: RouteTarget::Multipath(vec![
            hop(IPIP, None),
            hop(GRE, Some("10.255.0.1")),
            hop(WIRE, Some("192.0.2.9")),
        ]),
        ..Route::default()
    };
    change(&mut rib, Event::Route(of_route, RouteOp::Add));
    let Group::Threshold { first, count, .. } = group(&rib, "10.99.1.1") else {
        panic!("{:?}", group(&rib, "10.99.1.1"));
    };
    let members = (first..).take(count.into());
    let states: Vec<(u32, u8)> = members
        .map(|at| {
            let number = Member::from_word(rib.memory().member_word(at)).adjacency;
            let adjacency = rib.memory().adjacency(number);
            (adjacency.index, adjacency.state)
        })
        .collect();
    let wanted = [
        (IPIP, ADJ_TUNNEL),
        (GRE, ADJ_TUNNEL),
        (WIRE, raddle_image::ADJ_FORWARD),
    ];
    assert_eq!(states, wanted);
    // The nexthop objects of a direct route.
    let object = Nexthop::new(
        9,
        2,
        NexthopKind::Single {
            gateway: None,
            index: GRE,
            encap: None,
        },
    );
    rib.apply(Event::Nexthop(object));
    let by_object = Route {
        dst: "10.98.0.0/16".parse().unwrap(),
        target: RouteTarget::Object(9),
        ..Route::default()
    };
    change(&mut rib, Event::Route(by_object, RouteOp::Add));
    assert!(put(&rib, "10.98.1.1").is_ok());
}

/// Outer packets are this machine's own.
#[test]
fn outer_packets_are_looked_up_as_the_machines_own() {
    let mut rib = started();
    let rule = |priority, table| Rule {
        family: 4,
        priority,
        table,
        action: 1,
        ..Rule::default()
    };
    for (priority, table) in [(0, 255), (32766, 254), (32767, 253)] {
        change(&mut rib, Event::Rule(rule(priority, table)));
    }
    let lower = |rib: &Rib| adjacency(rib, "10.3.1.1").lower;
    assert_eq!(lower(&rib), rib.memory().link(WIRE).table4);
    // A table of their own.
    let by_loopback = Rule {
        iif: Some("lo".into()),
        ..rule(100, 100)
    };
    change(&mut rib, Event::Rule(by_loopback.clone()));
    assert_ne!(lower(&rib), rib.memory().link(WIRE).table4);
    assert_eq!(outer_leaves_by(&rib, "10.3.1.1"), Some(WIRE));
    let Event::Route(of_own, _) = route("198.51.100.0/24", Some("192.0.2.99"), WIRE) else {
        unreachable!()
    };
    let of_own = Route {
        table: 100,
        ..of_own
    };
    change(&mut rib, Event::Route(of_own, RouteOp::Add));
    // There is no such neighbour.
    assert_eq!(outer_leaves_by(&rib, "10.3.1.1"), None);
    change(&mut rib, Event::RuleGone(by_loopback));
    assert_eq!(lower(&rib), rib.memory().link(WIRE).table4);
    // What asks for addresses is known, what asks for more is not.
    let to_one = Rule {
        to: Some("198.51.100.1/32".parse().unwrap()),
        ..rule(100, 100)
    };
    change(&mut rib, Event::Rule(to_one.clone()));
    assert_eq!(outer_leaves_by(&rib, "10.3.1.1"), None);
    assert_eq!(outer_leaves_by(&rib, "fd04::1"), Some(WIRE));
    change(&mut rib, Event::RuleGone(to_one));
    let by_protocol = Rule {
        ip_proto: Some(47),
        ..rule(100, 100)
    };
    change(&mut rib, Event::Rule(by_protocol.clone()));
    assert_eq!(put(&rib, "10.3.1.1"), OUT_LINK);
    change(&mut rib, Event::RuleGone(by_protocol));
    assert!(put(&rib, "10.3.1.1").is_ok());
}

#[test]
fn tunnels_end_at_addresses_of_the_machine() {
    let mut rib = started();
    let ip = |index, remote: Ipv4Addr, flags| TunnelEnd {
        kind: kind::IP,
        remote: remote.to_bits(),
        key: 0,
        index,
        flags,
    };
    let all = vec![
        ip(IPIP, THERE, flag::CARRIES4),
        ip(SIT, ELSEWHERE, flag::CARRIES6),
        TunnelEnd {
            kind: kind::GRE,
            remote: THERE.to_bits(),
            key: TUNNEL_KEYED | 7,
            index: GRE,
            flags: FAMILIES,
        },
        TunnelEnd {
            kind: kind::VXLAN,
            remote: 0,
            key: TunnelEnd::vxlan(4789, 6),
            index: VXLAN,
            flags: FAMILIES,
        },
        TunnelEnd {
            kind: kind::VXLAN,
            remote: 0,
            key: TunnelEnd::vxlan(4789, 7),
            index: PORT,
            flags: FAMILIES,
        },
    ];
    assert_eq!(ends(&rib, HERE), Some(all));
    assert_eq!(rib.segments().count(), 0);
    assert_eq!(rib.tunnel_ends().count(), 1);
    // The same other end twice, whatever the second one is.
    let twice = Tunnel {
        is_special: true,
        ..gre(Some(7), None)
    };
    change(&mut rib, Event::Link(packets(30, twice)));
    assert_eq!(ends_of(&rib), [IPIP, SIT, VXLAN, PORT]);
    let other_key = gre(Some(9), None);
    change(&mut rib, Event::Link(packets(30, other_key)));
    assert_eq!(ends_of(&rib), [IPIP, SIT, GRE, VXLAN, PORT]);
    // One that is bound to a link and has one end comes first, for what comes in there.
    let bound = |kind, local, remote| Tunnel {
        local,
        remote,
        link: 2,
        ..of(kind)
    };
    let keyed = TunnelKind::Gre {
        ikey: Some(9),
        okey: None,
    };
    for (tunnel, ends) in [
        (
            bound(keyed, Some(HERE), None),
            &[IPIP, SIT, VXLAN, PORT][..],
        ),
        (bound(keyed, None, Some(THERE)), &[IPIP, SIT, VXLAN, PORT]),
        (
            bound(keyed, Some(HERE), Some(THERE)),
            &[IPIP, SIT, GRE, VXLAN, PORT],
        ),
        (
            bound(TunnelKind::Ipip, Some(HERE), None),
            &[SIT, GRE, VXLAN, PORT],
        ),
    ] {
        change(&mut rib, Event::Link(packets(30, tunnel)));
        assert_eq!(ends_of(&rib), ends, "{tunnel:?}");
    }
    change(&mut rib, Event::LinkGone(30));
    // A port that nothing may be sent by, for something is on it.
    let mut without = ports();
    without.out.remove(&PORT);
    rib.set_ports(without);
    rib.commit();
    assert_eq!(ends_of(&rib), [IPIP, SIT, GRE, VXLAN]);
    rib.set_ports(ports());
    rib.commit();
    // One network twice, at any address.
    let elsewhere = Link {
        tunnel: Some(Tunnel {
            local: None,
            ..of(vxlan_of(7))
        }),
        ..frames(31, 7)
    };
    change(&mut rib, Event::Link(elsewhere));
    assert_eq!(ends_of(&rib), [IPIP, SIT, GRE, VXLAN]);
    change(&mut rib, Event::LinkGone(31));
    // One that learns, one from anybody, one that is down.
    let learns = Link {
        tunnel: Some(of(TunnelKind::Vxlan {
            vni: 6,
            port: 4789,
            sports: (0, 0),
            learns: true,
            checksum: false,
            ttl_inner: false,
        })),
        ..frames(VXLAN, 6)
    };
    rib.apply(Event::Link(learns));
    let anybody = Tunnel {
        remote: None,
        ..of(TunnelKind::Ipip)
    };
    rib.apply(Event::Link(packets(IPIP, anybody)));
    let down = Link {
        flags: 0x1000,
        ..packets(
            SIT,
            Tunnel {
                remote: Some(ELSEWHERE),
                ..of(TunnelKind::Sit)
            },
        )
    };
    rib.apply(Event::Link(down));
    rib.commit();
    assert_eq!(ends_of(&rib), [GRE, PORT]);
    // Engines forward from the bridge, or from a VLAN upon it.
    let mut some = ports();
    some.enabled.remove(&PORT);
    rib.set_ports(some.clone());
    rib.commit();
    assert_eq!(ends_of(&rib), [GRE, PORT]);
    some.enabled.remove(&BRIDGE);
    rib.set_ports(some.clone());
    rib.commit();
    assert_eq!(ends_of(&rib), [GRE]);
    change(&mut rib, Event::Link(vlan_upon(20, BRIDGE)));
    some.enabled.insert(20);
    rib.set_ports(some.clone());
    rib.commit();
    assert_eq!(ends_of(&rib), [GRE, PORT]);
    some.enabled.clear();
    some.enabled.insert(WIRE);
    rib.set_ports(some);
    rib.commit();
    assert_eq!(ends(&rib, HERE), None);
    // The address goes, and comes again.
    rib.set_ports(ports());
    change(&mut rib, Event::RouteGone(local(HERE)));
    assert!(matches!(
        group(&rib, "192.0.2.1"),
        Group::Kernel(Reason::NoRoute)
    ));
    assert_eq!(rib.tunnel_ends().count(), 0);
    change(&mut rib, Event::Route(local(HERE), RouteOp::Add));
    assert_eq!(ends_of(&rib), [GRE, PORT]);
    // No tunnel has it any more.
    for index in [IPIP, SIT, GRE, VXLAN, PORT, 30] {
        rib.apply(Event::LinkGone(index));
    }
    rib.commit();
    assert_eq!(group(&rib, "192.0.2.1"), Group::Kernel(Reason::Local));
}

/// Sockets outside of a VRF hear nothing of what comes in by it.
#[test]
fn vrfs_have_no_tunnels_end() {
    let mut rib = started();
    let vrf = Link {
        kind: Some("vrf".into()),
        vrf_table: Some(10),
        ..Link::ethernet(40, "red", [2; 6])
    };
    rib.apply(Event::Link(vrf));
    for (priority, table, other) in [(0, 255, vec![]), (1000, 0, vec![19]), (32766, 254, vec![])] {
        rib.apply(Event::Rule(Rule {
            family: 4,
            priority,
            table,
            action: 1,
            other,
            ..Rule::default()
        }));
    }
    rib.commit();
    assert!(ends(&rib, HERE).is_some());
    let slave = Link {
        master: Some(40),
        ..Link::ethernet(WIRE, "eth2", [2, 0, 0, 0, 0, 2])
    };
    change(&mut rib, Event::Link(slave));
    assert_eq!(group(&rib, "192.0.2.1"), Group::Kernel(Reason::Local));
    change(&mut rib, Event::LinkGone(40));
    let free = Link::ethernet(WIRE, "eth2", [2, 0, 0, 0, 0, 2]);
    change(&mut rib, Event::Link(free));
    assert!(ends(&rib, HERE).is_some());
}

/// What comes in by a tunnel has an entry of its link, and steps from it where it is a port of a bridge.
#[test]
fn packets_come_in_by_tunnels() {
    let rib = started();
    let memory = rib.memory();
    let forwards = link_flags::ENABLED | link_flags::FORWARD4 | link_flags::FORWARD6;
    let wire = memory.link(WIRE);
    for index in [IPIP, SIT, GRE] {
        let LinkEntry {
            flags,
            mac,
            table4,
            table6,
            ..
        } = memory.link(index);
        assert_eq!((flags & forwards, mac), (forwards, [0; 6]));
        assert_eq!((table4, table6), (wire.table4, wire.table6));
    }
    assert_eq!(memory.link(VXLAN).mac, [2, 0, 0, 0, 0, VXLAN as u8]);
    assert_eq!(memory.link(PORT).flags, link_flags::PORT);
    let step = memory.step(PORT, Upon::All).unwrap();
    assert_eq!(step.index, BRIDGE);
    assert!(rib.lower_links(BRIDGE).is_empty() && rib.lower_links(GRE).is_empty());
    assert!(rib.is_tunnel(GRE) && !rib.is_tunnel(BRIDGE));
}

#[derive(Clone, Debug)]
enum Change {
    Tell(Event),
    Ports(Ports),
    /// Links only, then all.
    Links,
}

#[test]
fn a_firewall_closes_tunnels_and_what_carries_them() {
    let mut rib = started();
    let is_closed = |rib: &Rib, index: u32| {
        let flags = rib.memory().link(index).flags;
        assert_ne!(flags, 0, "{index}");
        flags & link_flags::NO_TUNNELS != 0
    };
    let all = [WIRE, IPIP, GRE, VXLAN, PORT];
    let closed = |rib: &Rib| -> Vec<u32> {
        let mut links = all.to_vec();
        links.retain(|index| is_closed(rib, *index));
        links
    };
    let find = |rib: &mut Rib, ports: Ports, tunnels: &[u32]| {
        let firewall = Firewall {
            tunnels: tunnels.iter().copied().collect(),
            ..Firewall::default()
        };
        rib.set_firewall(Some((ports, firewall)));
        assert!(rib.commit_firewall());
    };
    assert_eq!(closed(&rib), [0; 0], "nobody looks");
    find(&mut rib, ports(), &[]);
    assert_eq!(closed(&rib), [0; 0]);
    find(&mut rib, ports(), &[GRE, PORT]);
    assert_eq!(closed(&rib), [GRE, PORT]);
    find(&mut rib, ports(), &[WIRE]);
    assert_eq!(closed(&rib), [WIRE]);
    // What was not looked at: a port by whether packets leave by it, as none come in by it.
    let mut some = ports();
    some.enabled.remove(&IPIP);
    some.out.remove(&PORT);
    find(&mut rib, some, &[]);
    assert_eq!(closed(&rib), [IPIP, PORT]);
    rib.set_firewall(None);
    assert!(rib.commit_firewall());
    assert_eq!(closed(&rib), [0; 0]);
}

fn address() -> impl Strategy<Value = Ipv4Addr> {
    prop_oneof![
        Just(THERE),
        Just(ELSEWHERE),
        Just(HERE),
        Just(Ipv4Addr::new(239, 0, 0, 1))
    ]
}

fn tunnel() -> impl Strategy<Value = Event> {
    let set = (
        address(),
        any::<(bool, bool, bool, bool)>(),
        0..3_u32,
        0..4_u8,
    );
    (IPIP..=BRIDGE, set).prop_map(|(index, (dst, (up, own, special, other), key, tos))| {
        let base = |kind| Tunnel {
            local: Some(if own { HERE } else { ELSEWHERE }),
            remote: (tos != 3).then_some(dst),
            is_special: special && other,
            tos: tos & 1,
            ..of(kind)
        };
        let of_kind = |link: Link, kind| Link {
            flags: if up || other { link.flags } else { 0x1000 },
            tunnel: Some(base(kind)),
            ..link
        };
        let key = (key > 0).then_some(key);
        Event::Link(match index {
            IPIP => of_kind(packets(index, base(TunnelKind::Ipip)), TunnelKind::Ipip),
            SIT => of_kind(packets(index, base(TunnelKind::Sit)), TunnelKind::Sit),
            GRE => of_kind(
                packets(index, gre(key, key)),
                TunnelKind::Gre {
                    ikey: key,
                    okey: key,
                },
            ),
            VXLAN => of_kind(frames(index, 6), vxlan_of(6)),
            PORT => of_kind(port(index, 7), vxlan_of(if other { 7 } else { 6 })),
            _ => bridge(),
        })
    })
}

fn change_of() -> impl Strategy<Value = Change> {
    let macs = prop_oneof![Just(ROUTER), Just([0; 6])];
    let key = (prop_oneof![Just(VXLAN), Just(PORT)], macs);
    let fdb_entry =
        (key, address(), any::<bool>()).prop_map(|((index, mac), dst, gone)| match gone {
            true => Event::TunnelFdbGone(index, mac, dst.into()),
            false => fdb(index, mac, dst),
        });
    let rule = (0..3_u8, any::<bool>()).prop_map(|(which, gone)| {
        let rule = Rule {
            family: 4,
            priority: 100 + u32::from(which),
            table: 100,
            action: 1,
            iif: (which == 0).then(|| "lo".into()),
            to: (which == 1).then(|| "198.51.100.1/32".parse().unwrap()),
            ip_proto: (which == 2).then_some(47),
            ..Rule::default()
        };
        match gone {
            true => Event::RuleGone(rule),
            false => Event::Rule(rule),
        }
    });
    let own = any::<(bool, bool)>().prop_map(|which| match which {
        (true, true) => Event::Address(here()),
        (true, false) => Event::AddressGone(here()),
        (false, true) => Event::Route(local(HERE), RouteOp::Replace),
        (false, false) => Event::RouteGone(local(HERE)),
    });
    let odd_route = any::<bool>().prop_map(|gone| {
        let Event::Route(plain, _) = route("203.0.113.0/24", Some("192.0.2.9"), WIRE) else {
            unreachable!()
        };
        let limited = Route {
            metrics: [(10, 9)].into_iter().collect(),
            ..plain
        };
        match gone {
            true => Event::RouteGone(limited),
            false => Event::Route(limited, RouteOp::Replace),
        }
    });
    let moved = any::<bool>().prop_map(|gone| match gone {
        true => Event::FdbGone(BRIDGE, ROUTER, 0),
        false => learnt(ROUTER, PORT, false),
    });
    let gone = (IPIP..=BRIDGE).prop_map(Event::LinkGone);
    let mtu = (address(), 0..3_u32, any::<bool>()).prop_map(|(dst, which, locked)| match which {
        0 => Event::LearntMtuGone(HERE, dst),
        which => told(dst, 1200 + 100 * which, locked),
    });
    let told = prop_oneof![
        6 => tunnel(),
        4 => fdb_entry,
        2 => rule,
        2 => own,
        1 => odd_route,
        1 => moved,
        1 => gone,
        3 => mtu,
    ];
    let without = prop_oneof![Just(0_u32), IPIP..=BRIDGE];
    let some = without.prop_map(|index| {
        let mut some = ports();
        some.enabled.remove(&index);
        some.out.remove(&index);
        Change::Ports(some)
    });
    prop_oneof![
        8 => told.prop_map(Change::Tell),
        1 => some,
        1 => Just(Change::Links),
    ]
}

/// All that engines find of tunnels, without numbers that may be others.
fn seen(rib: &Rib) -> impl PartialEq + std::fmt::Debug {
    let all = [
        "10.3.1.1", "fd04::1", "10.5.1.1", "fd05::1", "10.6.1.1", "10.8.1.1",
    ];
    let sent = all.map(|dst| match group(rib, dst) {
        Group::Single(number) | Group::Neighbour(number) => {
            let found = rib.memory().adjacency(number);
            let outer = (found.state == ADJ_TUNNEL).then(|| outer_leaves_by(rib, dst));
            match found.state {
                ADJ_TUNNEL => Ok((Adjacency { lower: 0, ..found }, outer)),
                _ => Err(found.reason),
            }
        }
        Group::Kernel(reason) => Err(reason as u8),
        other => panic!("{dst} leads to {other:?}"),
    });
    let known = rib
        .tunnel_ends()
        .map(|(_, local, segment)| (local, segment.kind));
    (sent, ends(rib, HERE), known.collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Step by step comes to what all at once comes to.
    #[test]
    fn the_image_follows_all_that_tunnels_hang_on(changes in vec(change_of(), 1..24)) {
        let mut rib = started();
        let mut told = world();
        let mut last = ports();
        for change in changes {
            match change {
                Change::Tell(event) => {
                    told.push(event.clone());
                    rib.apply(event);
                }
                Change::Ports(ports) => {
                    last = ports.clone();
                    rib.set_ports(ports);
                }
                Change::Links => {
                    rib.commit_links();
                    rib.commit_nexthops();
                    continue;
                }
            }
            rib.commit();
            let mut fresh = empty();
            fresh.set_ports(last.clone());
            told.iter().cloned().for_each(|event| fresh.apply(event));
            fresh.commit();
            prop_assert_eq!(seen(&rib), seen(&fresh));
        }
    }
}
