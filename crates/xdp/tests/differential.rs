//! The XDP program and the userspace engine, over the same image, on the same frames: same verdict,
//! same bytes.
//!
//! State comes from events through the real compiler, so tables, groups and adjacencies are what a
//! daemon would publish. `RADDLE_CASES` sets how many states are drawn (default 500, of 200 frames
//! each).
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "common/net.rs"]
mod net;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use raddle_forward::Verdict as Userspace;
use raddle_rib::event::{
    Address, Bucket, DeviceSettings, Event, GroupMember, Link, Neighbour, Nexthop, NexthopKind,
    Route, RouteKind, RouteNexthop, RouteOp, RouteTarget, Settings,
};
use raddle_rib::image::Capacity;
use raddle_rib::{AlgoRules, MpAlgo, Ports, Reason, Rib};
use raddle_xdp::{Engine, LoadOptions, Verdict};

const FRAMES: usize = 200;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn address(v6: bool, n: u8) -> IpAddr {
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

fn route(v6: bool) -> impl Strategy<Value = Event> {
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

fn state() -> impl Strategy<Value = Vec<Event>> {
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
                rp_filter: u8::from(bits == 3),
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
fn algos() -> impl Strategy<Value = AlgoRules> {
    let algo = proptest::sample::select(vec![
        "l3",
        "l4",
        "l4,icmp-follows-flow",
        "inner",
        "custom",
        "per-packet",
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

fn now() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

fn pin_to_one_cpu() {
    let me = nix::unistd::Pid::from_raw(0);
    let allowed = nix::sched::sched_getaffinity(me).unwrap();
    let mut one = nix::sched::CpuSet::new();
    let cpu = (0..nix::sched::CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap());
    one.set(cpu.unwrap()).unwrap();
    nix::sched::sched_setaffinity(me, &one).unwrap();
}

/// A frame: mostly a sound packet, then perhaps a few bytes changed and its end cut or padded.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let body = prop_oneof![
        2 => proptest::collection::vec(any::<u8>(), 0..120),
        1 => tunnel(),
    ];
    let protocol = prop_oneof![
        8 => proptest::sample::select(&[6u8, 17, 1, 58][..]),
        3 => proptest::sample::select(&[0u8, 4, 41, 43, 44, 47, 50, 51, 60, 132, 136, 137][..]),
        5 => proptest::sample::select(&[4u8, 41, 47][..]),
        1 => any::<u8>(),
    ];
    let ipv4 = (
        any::<u8>(),
        any::<u8>(),
        protocol.clone(),
        any::<u8>(),
        0..12u8,
        body.clone(),
    )
        .prop_map(|(s, d, protocol, ttl, odd, body)| ipv4_packet(s, d, protocol, ttl, odd, &body));
    let ipv6 = (
        any::<u8>(),
        any::<u8>(),
        protocol,
        any::<u8>(),
        0..12u8,
        body,
    )
        .prop_map(|(s, d, protocol, hops, odd, body)| {
            ipv6_packet(s, d, protocol, hops, odd, &body)
        });
    let changes = proptest::collection::vec((0..90usize, any::<u8>()), 0..3);
    let changes = prop_oneof![2 => Just(Vec::new()), 1 => changes];
    (prop_oneof![ipv4, ipv6], changes, -14..14i32, 0..40u8).prop_map(
        |(mut packet, changes, tail, ether)| {
            let mut frame = MAC.to_vec();
            frame.extend([6, 0, 0, 0, 0, 9]);
            let kind: u16 = match (ether, packet[0] >> 4) {
                (0, _) => 0x8100,
                (1, _) => 0x0806,
                (_, 4) => 0x0800,
                _ => 0x86dd,
            };
            if ether == 2 {
                frame[0] = 0xff;
            }
            frame.extend(kind.to_be_bytes());
            frame.append(&mut packet);
            for (at, value) in changes {
                if let Some(byte) = frame.get_mut(at) {
                    *byte = value;
                }
            }
            // Mostly padded or as it is; now and then cut.
            let tail = if tail < -12 { -3 } else { tail.max(0) };
            frame.resize((frame.len() as i32 + tail).max(14) as usize, 0);
            frame
        },
    )
}

/// What tunnels carry: packets, some in GRE and in frames inside of that, and in packets again.
fn tunnel() -> impl Strategy<Value = Vec<u8>> {
    let payload = proptest::collection::vec(any::<u8>(), 0..24).boxed();
    payload.prop_recursive(5, 32, 1, |inner| {
        let protocol = proptest::sample::select(&[6u8, 17, 4, 41, 47, 60, 44, 51][..]);
        let packet = (
            any::<(u8, u8, u8)>(),
            protocol,
            inner.clone(),
            any::<bool>(),
        );
        let packet = packet.prop_map(|((s, d, odd), protocol, body, v6)| {
            if v6 {
                ipv6_packet(s, d, protocol, 64, odd % 12, &body)
            } else {
                ipv4_packet(s, d, protocol, 64, odd % 12, &body)
            }
        });
        let kind = vec![
            0x0800u16, 0x86dd, 0x6558, 0x880b, 0x8100, 0x88a8, 0x88fb, 0x892f, 0x8864, 0x4305,
            0x88ca,
        ];
        let flags = proptest::sample::select(
            &[
                0u16, 0, 0x8000, 0x2000, 0x1000, 0xb000, 0x2001, 0x3081, 0x4000,
            ][..],
        );
        // Some end in the middle of a header.
        let end = prop_oneof![3 => Just(usize::MAX), 1 => 0..40usize];
        let gre = (flags, proptest::sample::select(kind), 0..4u8, inner, end);
        let gre = gre.prop_map(|(flags, kind, inside, body, end)| {
            let mut packet = flags.to_be_bytes().to_vec();
            packet.extend(kind.to_be_bytes());
            let options = (flags & 0xb000).count_ones() as usize * 4
                + if flags & 0x81 == 0x81 { 4 } else { 0 };
            packet.resize(packet.len() + options, 7);
            let proto = if body.first().is_some_and(|b| b >> 4 == 6) {
                0x86ddu16
            } else {
                0x0800
            };
            match kind {
                0x6558 => {
                    packet.resize(packet.len() + 12, 3);
                    packet.extend(if inside == 0 {
                        [0x81, 0]
                    } else {
                        proto.to_be_bytes()
                    });
                }
                0x880b => packet.extend([0xff, 3, 0, if proto == 0x0800 { 0x21 } else { 0x57 }]),
                0x8100 | 0x88a8 => {
                    packet.extend([0, 5]);
                    packet.extend(proto.to_be_bytes());
                }
                0x88fb | 0x892f => {
                    packet.extend([0, 5, 0, 9]);
                    packet.extend(proto.to_be_bytes());
                }
                0x8864 => {
                    packet.extend([0x11, inside / 3, 0, 1, 0, 9, 0]);
                    packet.push(if proto == 0x0800 { 0x21 } else { 0x57 });
                }
                0x4305 => {
                    packet.extend([0x40, 15 - inside / 3]);
                    packet.resize(packet.len() + 20, 1);
                    packet.extend(proto.to_be_bytes());
                }
                _ => {}
            }
            packet.extend(body);
            packet.truncate(end);
            packet
        });
        prop_oneof![3 => packet, 2 => gre]
    })
}

fn ipv4_packet(s: u8, d: u8, protocol: u8, ttl: u8, odd: u8, body: &[u8]) -> Vec<u8> {
    let total = 20 + body.len();
    let mut packet = vec![
        0x45,
        0,
        (total >> 8) as u8,
        total as u8,
        0,
        1,
        0,
        0,
        ttl,
        protocol,
        0,
        0,
    ];
    if odd == 1 {
        packet[6] = 0x20;
    }
    if odd == 2 {
        packet[7] = 9;
    }
    for n in [s, d] {
        let IpAddr::V4(ip) = address(false, n) else {
            unreachable!("address(false) is IPv4")
        };
        packet.extend(ip.octets());
    }
    let sum = raddle_packet_checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(body);
    if protocol == 1 && odd > 2 && packet.len() > 48 {
        packet[20] = [3, 4, 5, 11, 12, 8][usize::from(odd) % 6];
        packet[28] = 0x45;
    }
    packet
}

fn ipv6_packet(s: u8, d: u8, protocol: u8, hops: u8, odd: u8, body: &[u8]) -> Vec<u8> {
    let label = if odd.is_multiple_of(3) {
        [0x60, 0, 0, 0]
    } else {
        [0x60, 0x0a, odd, s]
    };
    let mut packet = label.to_vec();
    packet.extend((body.len() as u16).to_be_bytes());
    packet.extend([protocol, hops]);
    for n in [s, d] {
        let IpAddr::V6(ip) = address(true, n) else {
            unreachable!("address(true) is IPv6")
        };
        packet.extend(ip.octets());
    }
    packet.extend(body);
    if protocol == 58 && packet.len() > 88 {
        packet[40] = odd % 6;
    }
    // Extension headers that lead somewhere.
    if matches!(protocol, 43 | 44 | 60) && packet.len() > 56 {
        packet[40] = [17, 6, 60, 44, 58, 43][usize::from(odd) % 6];
        packet[41] = s % 2;
    }
    packet
}

/// Written out, so that the frames do not depend on the code under test.
fn raddle_packet_checksum(header: &[u8]) -> u16 {
    let sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// Links 1 to 4 of the state are these.
type Indices = [u32; 4];

fn base(indices: Indices) -> Vec<Event> {
    let ingress = indices[0];
    let mut events: Vec<Event> = (1..=4u32)
        .map(|n| {
            Event::Link(Link {
                index: indices[n as usize - 1],
                name: format!("l{n}"),
                mac: Some([2, 0, 0, 0, 0, n as u8]),
                mtu: 1500,
                flags: 0x1_0041,
                arp_type: 1,
                ..Link::default()
            })
        })
        .collect();
    for v6 in [false, true] {
        events.push(Event::Address(Address {
            index: ingress,
            local: address(v6, 7),
            peer: None,
            prefix_len: if v6 { 64 } else { 24 },
            scope: 0,
            flags: 0,
            broadcast: None,
            label: None,
        }));
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
fn renumber(event: &mut Event, indices: Indices) {
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

/// Two userspace engines that see the same frames.
struct Vectors {
    alone: raddle_forward::Engine,
    together: raddle_forward::Engine,
}

impl Vectors {
    /// One frame after the other, and all of them at once.
    fn compare(&mut self, frames: &[Vec<u8>], ingress: u32) -> Result<(), TestCaseError> {
        let now = now();
        let (mut ours, mut theirs) = (frames.to_vec(), frames.to_vec());
        let mut verdicts = vec![Userspace::Kernel(Reason::None); frames.len()];
        self.together
            .forward_all(&mut theirs, ingress, now, &mut verdicts);
        for (at, frame) in ours.iter_mut().enumerate() {
            let verdict = self.alone.forward(frame, ingress, now);
            prop_assert_eq!(verdict, verdicts[at], "frame {:02x?}", frames[at]);
            prop_assert_eq!(&*frame, &theirs[at], "frame {:02x?}", frames[at]);
        }
        prop_assert_eq!(self.alone.counters(), self.together.counters());
        Ok(())
    }
}

#[test]
fn both_engines_do_the_same() {
    net::in_namespace("both_engines_do_the_same", || {
        let indices: Indices = std::array::from_fn(|n| {
            net::veth(&format!("l{n}"), &format!("p{n}"), 1500);
            net::index_of(&format!("l{n}"))
        });
        let ingress = indices[0];
        let capacity = Capacity {
            nodes4: 1 << 14,
            leaves4: 1 << 14,
            words6: 1 << 16,
            groups: 1024,
            members: 4096,
            adjacencies: 512,
            segments: 64,
            templates: 1 << 10,
        };
        let engine = Engine::load(&LoadOptions { capacity }).unwrap();
        for index in indices {
            engine.set_out_link(index).unwrap();
        }
        let cases = std::env::var("RADDLE_CASES")
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(500);
        let mut runner = TestRunner::new(Config {
            cases,
            ..Config::default()
        });
        let frames = proptest::collection::vec(frame(), FRAMES);
        let seen = std::cell::RefCell::new(std::collections::BTreeMap::<String, u64>::new());
        // What both keep from packet to packet is kept by core.
        pin_to_one_cpu();
        let userspace = std::cell::RefCell::new(raddle_forward::Engine::new(engine.memory()));
        let vectors = std::cell::RefCell::new(Vectors {
            alone: raddle_forward::Engine::new(engine.memory()),
            together: raddle_forward::Engine::new(engine.memory()),
        });
        let result = runner.run(&(state(), algos(), frames), |(events, algos, frames)| {
            let memory = engine.memory();
            memory.reset(|| ());
            let mut rib = Rib::new(memory.clone(), &capacity, || ());
            rib.set_algos(algos);
            base(indices).into_iter().for_each(|event| rib.apply(event));
            for mut event in events {
                renumber(&mut event, indices);
                rib.apply(event);
            }
            let out = indices.into();
            rib.set_ports(Ports {
                enabled: [ingress].into(),
                out,
            });
            rib.commit();
            let mut userspace = userspace.borrow_mut();
            vectors.borrow_mut().compare(&frames, ingress)?;
            for frame in frames {
                let theirs = engine.test_run(&frame, ingress).unwrap();
                let mut bytes = frame.clone();
                let ours = userspace.forward(&mut bytes, ingress, now());
                let (ours, name) = match ours {
                    Userspace::Forward {
                        index,
                        adjacency,
                        start,
                        len,
                    } => {
                        bytes.truncate(start + len);
                        bytes.drain(..start);
                        (Verdict::Forward { adjacency, index }, "forwarded")
                    }
                    Userspace::Kernel(reason) => (Verdict::Kernel(reason), reason.name()),
                    Userspace::Drop(reason) => (Verdict::Drop(reason), reason.name()),
                };
                prop_assert_eq!(theirs.verdict, ours, "frame {:02x?}", frame);
                prop_assert_eq!(&theirs.frame, &bytes, "frame {:02x?}", frame);
                *seen.borrow_mut().entry(name.to_owned()).or_default() += 1;
            }
            Ok(())
        });
        if let Err(e) = result {
            panic!("{e}");
        }
        // The test is worth little unless it reaches the far end of the pipeline.
        let seen = seen.into_inner();
        eprintln!("{seen:?}");
        let total: u64 = seen.values().sum();
        assert!(
            seen["forwarded"] * 20 > total,
            "too few frames were forwarded: {seen:?}"
        );
    });
}

/// The dissector looks for all that a GRE header's flags promise, before it calls a packet a tunnel.
#[test]
fn gre_headers_that_end_early() {
    net::in_namespace("gre_headers_that_end_early", || {
        let indices: Indices = std::array::from_fn(|n| {
            net::veth(&format!("l{n}"), &format!("p{n}"), 1500);
            net::index_of(&format!("l{n}"))
        });
        let capacity = Capacity {
            nodes4: 1 << 12,
            leaves4: 1 << 12,
            words6: 1 << 12,
            groups: 64,
            members: 64,
            adjacencies: 64,
            segments: 64,
            templates: 1 << 10,
        };
        let engine = Engine::load(&LoadOptions { capacity }).unwrap();
        indices
            .iter()
            .for_each(|index| engine.set_out_link(*index).unwrap());
        let mut userspace = raddle_forward::Engine::new(engine.memory());
        let mut rib = Rib::new(engine.memory(), &capacity, || ());
        let hops = (2..=4u8).map(|n| RouteNexthop {
            gateway: Some(address(false, n)),
            index: indices[usize::from(n) - 1],
            weight: 1,
            ..RouteNexthop::default()
        });
        let neighbours = (2..=4u8).map(|n| {
            Event::Neighbour(Neighbour {
                index: indices[usize::from(n) - 1],
                dst: address(false, n),
                mac: Some([4, 0, 0, 0, 0, n]),
                state: 2,
                flags: 0,
                protocol: 0,
            })
        });
        let route = Route {
            dst: "10.0.7.0/24".parse().unwrap(),
            protocol: 4,
            target: RouteTarget::Multipath(hops.collect()),
            ..Route::default()
        };
        let device = DeviceSettings {
            forwarding4: true,
            ..DeviceSettings::default()
        };
        let settings = Settings {
            hash_policy4: 3,
            hash_fields4: 0xfff,
            hash_seed: 7,
            ..Settings::default()
        };
        base(indices)
            .into_iter()
            .chain(neighbours)
            .chain([
                Event::Settings(settings),
                Event::Device(indices[0], device),
                Event::Route(route, RouteOp::Add),
            ])
            .for_each(|event| rib.apply(event));
        rib.set_ports(Ports {
            enabled: [indices[0]].into(),
            out: indices.into(),
        });
        rib.commit();
        let mut forwarded = 0;
        for flags in [
            [0, 0],
            [0x80, 0],
            [0x20, 0],
            [0x10, 0],
            [0xb0, 0],
            [0x30, 0x81],
        ] {
            for kind in [[8, 0], [0x86, 0xdd], [0x65, 0x58], [0x88, 0x0b]] {
                for len in 0..40 {
                    let mut body = [flags, kind].concat();
                    body.extend([0x45; 40]);
                    let packet = ipv4_packet(len, 0xe1, 47, 64, 0, &body[..usize::from(len)]);
                    let mut frame = [&MAC[..], &[6, 0, 0, 0, 0, 9, 8, 0], &packet[..]].concat();
                    let theirs = engine.test_run(&frame, indices[0]).unwrap().verdict;
                    let ours = match userspace.forward(&mut frame, indices[0], now()) {
                        Userspace::Forward {
                            index, adjacency, ..
                        } => Verdict::Forward { adjacency, index },
                        Userspace::Kernel(reason) => Verdict::Kernel(reason),
                        Userspace::Drop(reason) => Verdict::Drop(reason),
                    };
                    assert_eq!(
                        theirs, ours,
                        "flags {flags:x?}, kind {kind:x?}, {len} bytes"
                    );
                    forwarded += u32::from(matches!(ours, Verdict::Forward { .. }));
                }
            }
        }
        assert!(forwarded > 800, "{forwarded}");
    });
}
