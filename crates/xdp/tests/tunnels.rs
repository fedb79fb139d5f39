//! Tunnels in the program: packets made by hand, in and out, byte by byte.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::sync::atomic::Ordering;

use raddle_image::{
    ADJ_SEGMENT, ADJ_TUNNEL, Adjacency, GROUP_NO_PUNT, Group, Reason, Segment, Step, TUNNEL_END,
    TUNNEL_KEYED, Tunnel, TunnelEnd, Upon, Wanted, link_flags, segment_flags, segment_kind,
    tunnel_flags, tunnel_kind,
};
use raddle_packet::Family;
use raddle_select::{HashKey, skb_hash};
use raddle_xdp::Verdict;
use raddle_xdp_testing::bench::{Bench, DST_MAC, SINGLE, SRC_MAC};
use raddle_xdp_testing::frames::{FROM_MAC, IN_MAC, checksum, udp4};
use raddle_xdp_testing::image::{adjacency, config, link, roomy, threshold};
use raddle_xdp_testing::net::in_namespace;
use raddle_xdp_testing::packets::{addr, inner4, inner6};
use raddle_xdp_testing::tables::{Tables4, write6};

const HERE: [u8; 4] = [203, 0, 113, 1];
const THERE: [u8; 4] = [203, 0, 114, 2];
/// MAC addresses inside of VXLAN.
const INSIDE_MAC: [u8; 6] = [2, 0, 0, 0, 3, 1];
const THERE_MAC: [u8; 6] = [2, 0, 0, 0, 3, 2];
/// The tunnel's adjacency, its group, and the group of the way to its other end.
const TUNNEL: u32 = 2;
const BY_TUNNEL: u32 = 6;
const OUTER: u32 = 7;
/// The group of the address at which tunnels end.
const ENDS: u32 = 8;
const LOCAL: u32 = 9;
/// Links of tunnels, a bridge; and their counter slots.
const GRE: u32 = 9011;
const VXLAN: u32 = 9012;
const BRIDGE: u32 = 9013;
const SLOT: u32 = 20;

fn set_up() -> Bench {
    let mut bench = Bench::new(roomy());
    bench.engine.load_srv6().unwrap();
    let memory = &bench.memory;
    let net = |a: [u8; 4]| u32::from_be_bytes(a);
    let mut tables = Tables4::new(memory);
    tables.table(
        0,
        3,
        &[
            (net([192, 0, 2, 0]), 24, SINGLE),
            (net([10, 6, 0, 0]), 16, BY_TUNNEL),
            (net(HERE), 32, ENDS),
            (net([10, 9, 9, 9]), 32, LOCAL),
        ],
    );
    tables.table(1, 3, &[(net(THERE), 32, OUTER)]);
    let six = |text: &str| u128::from_be_bytes(addr(text));
    write6(
        memory,
        &[&[
            (six("2001:db8:1::"), 48, SINGLE),
            (six("2001:db8:6::"), 48, BY_TUNNEL),
        ]],
    );
    memory.store_group(BY_TUNNEL, Group::Single(TUNNEL));
    memory.store_group(OUTER, Group::Single(0));
    memory.store_group(ENDS, Group::Segment(0));
    memory.store_group(LOCAL, Group::Kernel(Reason::Local));
    for (index, slot) in [(GRE, SLOT), (VXLAN, SLOT + 1), (BRIDGE, SLOT + 2)] {
        memory.store_link(index, &link(index, INSIDE_MAC, slot));
    }
    bench
}

fn tunnel(kind: u8, flags: u8) -> Adjacency {
    let frames = kind == tunnel_kind::VXLAN;
    Adjacency {
        index: GRE,
        state: ADJ_TUNNEL,
        dst_mac: if frames { THERE_MAC } else { [0; 6] },
        src_mac: if frames { INSIDE_MAC } else { [0; 6] },
        mtu: 1450,
        lower: 1,
        tunnel: Tunnel {
            src: HERE,
            dst: THERE,
            key: [0, 0, 100, 0],
            kind,
            flags: flags | tunnel_flags::CARRIES4 | tunnel_flags::CARRIES6,
            ttl: 99,
            tos: 0x20,
            port: 4789,
            sport: 32768,
            sports: 1000,
            pad: 0,
            salt: 7,
        },
        ..Adjacency::default()
    }
}

fn frame(kind: u16, packet: &[u8]) -> Vec<u8> {
    [&IN_MAC[..], &FROM_MAC, &kind.to_be_bytes(), packet].concat()
}

/// A packet as it is forwarded: its TTL is one less.
fn less(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] == 0x45 {
        packet[8] -= 1;
        let sum = checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        packet[7] -= 1;
    }
    packet
}

/// An outer header, with what is behind it.
fn outer(
    tos: u8,
    id: [u8; 2],
    df: bool,
    ttl: u8,
    proto: u8,
    (src, dst): ([u8; 4], [u8; 4]),
    behind: &[u8],
) -> Vec<u8> {
    let mut packet = vec![0x45, tos];
    packet.extend((20 + behind.len() as u16).to_be_bytes());
    packet.extend(id);
    packet.extend([if df { 0x40 } else { 0 }, 0, ttl, proto, 0, 0]);
    packet.extend(src);
    packet.extend(dst);
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(behind);
    packet
}

fn sent(packet: &[u8]) -> Vec<u8> {
    [&DST_MAC[..], &SRC_MAC, &[8, 0], packet].concat()
}

#[test]
fn ipip_and_sit_go_out() {
    in_namespace("ipip-out", || {
        let bench = set_up();
        bench
            .memory
            .store_adjacency(TUNNEL, &tunnel(tunnel_kind::IP, tunnel_flags::DF));
        let mut packet = inner4([10, 0, 0, 1], [10, 6, 0, 1], 64, &[0xa5; 20]);
        // Congestion was experienced, which the outer header does not say.
        packet[1] = 0xb8 | 3;
        let sum = checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let out = bench.forward(&frame(0x0800, &packet), 0);
        let ends = (HERE, THERE);
        assert_eq!(
            out,
            sent(&outer(
                0x20 | 2,
                [0; 2],
                true,
                99,
                4,
                ends,
                &less(packet.clone())
            ))
        );
        let counters = bench.engine.counters();
        let counted = counters.adjacency(TUNNEL);
        assert_eq!(
            (counted.packets, counted.bytes),
            (1, 14 + packet.len() as u64)
        );

        // TOS and TTL of the packet inside, which is IPv6.
        let flags = tunnel_flags::TOS_INNER | tunnel_flags::TTL_INNER | tunnel_flags::DF;
        bench
            .memory
            .store_adjacency(TUNNEL, &tunnel(tunnel_kind::IP, flags));
        let mut packet = inner6("2001:db8:ff::1", "2001:db8:6::1", 9, &[0xa5; 20]);
        packet[0] = 0x6b;
        packet[1] = 0x90;
        let out = bench.forward(&frame(0x86dd, &packet), 0);
        assert_eq!(
            out,
            sent(&outer(0xb9, [0; 2], true, 8, 41, ends, &less(packet)))
        );
    });
}

#[test]
fn gre_goes_out() {
    in_namespace("gre-out", || {
        let bench = set_up();
        let packet = inner4([10, 0, 0, 1], [10, 6, 0, 1], 64, &[0xa5; 21]);
        bench
            .memory
            .store_adjacency(TUNNEL, &tunnel(tunnel_kind::GRE, 0));
        let out = bench.forward(&frame(0x0800, &packet), 0);
        let behind = [&[0, 0, 8, 0][..], &less(packet.clone())].concat();
        // Without DF it has an identification, another one each time.
        let id = [out[18], out[19]];
        let ends = (HERE, THERE);
        assert_eq!(out, sent(&outer(0x20, id, false, 99, 47, ends, &behind)));
        let again = bench.forward(&frame(0x0800, &packet), 0);
        assert_ne!(again[18..20], id);

        bench.memory.store_adjacency(
            TUNNEL,
            &tunnel(tunnel_kind::GRE, tunnel_flags::HAS_KEY | tunnel_flags::DF),
        );
        let packet = inner6("2001:db8:ff::1", "2001:db8:6::1", 64, &[0xa5; 20]);
        let out = bench.forward(&frame(0x86dd, &packet), 0);
        let behind = [&[0x20, 0, 0x86, 0xdd, 0, 0, 100, 0][..], &less(packet)].concat();
        assert_eq!(out, sent(&outer(0x20, [0; 2], true, 99, 47, ends, &behind)));
    });
}

/// Headers of UDP and VXLAN and the frame's, with this packet in it.
fn vxlan(
    sport: u16,
    check: [u8; 2],
    (to, from): ([u8; 6], [u8; 6]),
    kind: u16,
    packet: &[u8],
) -> Vec<u8> {
    let mut udp = sport.to_be_bytes().to_vec();
    udp.extend(4789_u16.to_be_bytes());
    udp.extend((30 + packet.len() as u16).to_be_bytes());
    udp.extend(check);
    udp.extend([8, 0, 0, 0, 0, 0, 100, 0]);
    udp.extend(to);
    udp.extend(from);
    udp.extend(kind.to_be_bytes());
    udp.extend(packet);
    udp
}

/// The sum over an IPv4 packet's UDP checksum, which is all ones where it is right.
fn udp_sum(packet: &[u8]) -> u32 {
    let pairs = packet[12..].chunks(2);
    let words = pairs.map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum = words.sum::<u32>() + 17 + packet.len() as u32 - 20;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

#[test]
fn vxlan_goes_out() {
    in_namespace("vxlan-out", || {
        let bench = set_up();
        let flags = tunnel_flags::DF_INNER;
        bench
            .memory
            .store_adjacency(TUNNEL, &tunnel(tunnel_kind::VXLAN, flags));
        let frame4 = udp4([10, 0, 0, 1], [10, 6, 0, 1], (1000, 2000), 33);
        let packet = frame4[14..].to_vec();
        let out = bench.forward(&frame4, 0);
        // As Config::port_key of the bench's image.
        let hash = skb_hash(HashKey::new(5, 6), Family::V4, &packet).unwrap();
        let hash = hash ^ hash << 16;
        let sport = 32768 + ((u64::from(hash) * 1000) >> 32) as u16;
        let macs = (THERE_MAC, INSIDE_MAC);
        let ends = (HERE, THERE);
        let behind = vxlan(sport, [0; 2], macs, 0x0800, &less(packet.clone()));
        // etherparse sets DF.
        assert_eq!(out, sent(&outer(0x20, [0; 2], true, 99, 17, ends, &behind)));

        // Checksums of all lengths, over more than one chunk.
        let flags = tunnel_flags::CHECKSUM | tunnel_flags::DF;
        let with = Adjacency {
            mtu: 65535,
            ..tunnel(tunnel_kind::VXLAN, flags)
        };
        bench.memory.store_adjacency(TUNNEL, &with);
        bench
            .memory
            .store_adjacency(0, &adjacency(bench.out, DST_MAC, SRC_MAC, 65535));
        for length in (0..20)
            .chain(420..450)
            .chain(940..970)
            .chain([1400, 4001, 9000, 30001])
        {
            let frame4 = udp4([10, 0, 0, 1], [10, 6, 0, 1], (1000, 2000), length);
            let out = bench.forward(&frame4, 0);
            assert_ne!(out[40..42], [0; 2]);
            assert_eq!(udp_sum(&out[14..]), 0xffff, "{length}");
            assert_eq!(out[14 + 50..], less(frame4[14..].to_vec()));
        }
    });
}

#[test]
fn what_does_not_go_out_is_the_kernels() {
    in_namespace("out-kernel", || {
        let bench = set_up();
        let memory = &bench.memory;
        let packet = frame(
            0x0800,
            &inner4([10, 0, 0, 1], [10, 6, 0, 1], 64, &[0xa5; 100]),
        );
        let plain = tunnel(tunnel_kind::VXLAN, tunnel_flags::CHECKSUM);
        let with = |change: &dyn Fn(&mut Adjacency)| {
            let mut changed = plain;
            change(&mut changed);
            memory.store_adjacency(TUNNEL, &changed);
        };
        for (reason, change) in [
            (
                Reason::OutLink,
                (|adj| adj.tunnel.flags &= !tunnel_flags::CARRIES4) as fn(&mut Adjacency),
            ),
            (Reason::OutLink, |adj| adj.tunnel.kind = 9),
            (Reason::Mtu, |adj| adj.mtu = 119),
            // No route to its other end.
            (Reason::OutLink, |adj| adj.lower = 0),
        ] {
            with(&change);
            bench.kernel(&packet, reason);
        }
        with(&|adj| adj.index = bench.ingress);
        bench.kernel(&packet, Reason::SameLink);
        with(&|adj| adj.zone = 3);
        bench.with_link(|link| link.closed4 = 1 << 3);
        bench.kernel(&packet, Reason::Firewall);
        bench.with_link(|_| ());
        with(&|_| ());
        // 170 bytes do not fit there; 169 would be one too few.
        memory.store_adjacency(0, &adjacency(bench.out, DST_MAC, SRC_MAC, 169));
        bench.kernel(&packet, Reason::Mtu);
        memory.store_adjacency(0, &adjacency(bench.out, DST_MAC, SRC_MAC, 170));
        bench.forward(&packet, 0);
        // It may leave by the link that it came in by.
        bench.engine.set_out_link(bench.ingress).unwrap();
        memory.store_adjacency(0, &adjacency(bench.ingress, DST_MAC, SRC_MAC, 1500));
        bench.forward(&packet, 0);
        memory.store_adjacency(0, &plain);
        bench.kernel(&packet, Reason::OutLink);
        let segment = Adjacency {
            state: ADJ_SEGMENT,
            ..Adjacency::default()
        };
        memory.store_adjacency(0, &segment);
        bench.kernel(&packet, Reason::OutLink);
        memory.store_group(OUTER, Group::Kernel(Reason::Unreachable));
        bench.kernel(&packet, Reason::OutLink);
        assert_eq!(bench.engine.counters().adjacency(TUNNEL).packets, 2);
    });
}

#[test]
fn outer_packets_are_spread_by_the_flow_inside() {
    in_namespace("out-spread", || {
        let bench = set_up();
        bench
            .memory
            .store_adjacency(TUNNEL, &tunnel(tunnel_kind::GRE, 0));
        bench
            .memory
            .store_adjacency(1, &adjacency(bench.out, DST_MAC, SRC_MAC, 1500));
        threshold(&bench.memory, OUTER, 0, &[(0, 1), (1, 1)]);
        let by = |sport| {
            let frame = udp4([10, 0, 0, 1], [10, 6, 0, 1], (sport, 53), 20);
            let once = bench.run(&frame).0;
            assert_eq!(bench.run(&frame).0, once);
            matches!(once, Verdict::Forward { adjacency: 1, .. })
        };
        let second = (1000..1100).filter(|port| by(*port)).count();
        assert!((30..=70).contains(&second), "{second}");
    });
}

/// Puts the ends of tunnels into the image.
fn ends(bench: &Bench, ends: &mut [TunnelEnd]) {
    ends.sort();
    for (n, end) in (0..).zip(ends.iter()) {
        for (place, word) in (7 + n * TUNNEL_END as u32..).zip(end.to_words()) {
            bench.memory.store_template_word(place, word);
        }
    }
    let segment = Segment {
        kind: segment_kind::TUNNEL_END,
        template: 7,
        out: ends.len() as u32,
        ..Segment::default()
    };
    bench.memory.store_segment(0, &segment);
}

fn end(kind: u8, remote: [u8; 4], key: u64, index: u32) -> TunnelEnd {
    TunnelEnd {
        kind,
        remote: u32::from_be_bytes(remote),
        key,
        index,
        flags: tunnel_flags::CARRIES4 | tunnel_flags::CARRIES6,
    }
}

/// A frame whose outer packet came from the other end.
fn from_there(proto: u8, behind: &[u8]) -> Vec<u8> {
    frame(
        0x0800,
        &outer(0, [1, 2], false, 1, proto, (THERE, HERE), behind),
    )
}

fn leaves(kind: [u8; 2], packet: Vec<u8>) -> Vec<u8> {
    [&DST_MAC[..], &SRC_MAC, &kind, &less(packet)].concat()
}

#[test]
fn packets_come_in() {
    in_namespace("packets-in", || {
        let bench = set_up();
        let keyed = TUNNEL_KEYED | 0x8000_0001;
        // Many others, among which it has to be found.
        let mut all: Vec<_> = (0..200)
            .map(|n| end(tunnel_kind::IP, [203, 0, 114, n + 5], 0, VXLAN))
            .collect();
        all.extend([
            end(tunnel_kind::IP, THERE, 0, GRE),
            end(tunnel_kind::GRE, THERE, 0, GRE),
            end(tunnel_kind::GRE, THERE, keyed, GRE),
        ]);
        ends(&bench, &mut all);
        let four = inner4([10, 0, 0, 1], [192, 0, 2, 1], 64, &[0xa5; 40]);
        let six = inner6("2001:db8:ff::1", "2001:db8:1::1", 64, &[0xa5; 40]);
        let key = [0x80, 0, 0, 1];
        for (proto, behind, kind, packet) in [
            (4, four.clone(), [8, 0], &four),
            (41, six.clone(), [0x86, 0xdd], &six),
            (47, [&[0, 0, 8, 0][..], &four].concat(), [8, 0], &four),
            (
                47,
                [&[0x20, 0, 0x86, 0xdd][..], &key, &six].concat(),
                [0x86, 0xdd],
                &six,
            ),
        ] {
            let before = bench.engine.counters().link(SLOT);
            let out = bench.forward(&from_there(proto, &behind), 0);
            assert_eq!(out, leaves(kind, packet.clone()));
            let after = bench.engine.counters().link(SLOT);
            assert_eq!(after.packets, before.packets + 1);
            assert_eq!(after.bytes, before.bytes + 14 + packet.len() as u64);
        }
        // It has another key, another sender, a sequence number, a checksum.
        let other = [&[0x20, 0, 8, 0, 0x80, 0, 0, 2][..], &four].concat();
        bench.kernel(&from_there(47, &other), Reason::Local);
        let sequence = [&[0x10, 0, 8, 0, 0, 0, 0, 1][..], &four].concat();
        bench.kernel(&from_there(47, &sequence), Reason::Local);
        let other = frame(
            0x0800,
            &outer(0, [1, 2], false, 64, 4, ([203, 0, 114, 3], HERE), &four),
        );
        bench.kernel(&other, Reason::Local);
        // Congestion, and fragments.
        let marked = frame(
            0x0800,
            &outer(3, [1, 2], false, 64, 4, (THERE, HERE), &four),
        );
        bench.kernel(&marked, Reason::Local);
        let mut fragment = outer(0, [1, 2], false, 64, 4, (THERE, HERE), &four);
        fragment[6] = 0x20;
        let sum = checksum(&fragment[..20]);
        fragment[10..12].copy_from_slice(&sum.to_be_bytes());
        bench.kernel(&frame(0x0800, &fragment), Reason::Local);
        // What the tunnel does not carry.
        let mut one = [TunnelEnd {
            flags: tunnel_flags::CARRIES6,
            ..end(tunnel_kind::IP, THERE, 0, GRE)
        }];
        ends(&bench, &mut one);
        bench.kernel(&from_there(4, &four), Reason::Local);
        bench.forward(&from_there(41, &six), 0);
    });
}

#[test]
fn the_link_of_a_tunnel_says_what_becomes_of_the_packet() {
    in_namespace("in-link", || {
        let bench = set_up();
        ends(&bench, &mut [end(tunnel_kind::IP, THERE, 0, GRE)]);
        let to = |dst| from_there(4, &inner4([10, 0, 0, 1], dst, 64, &[0xa5; 40]));
        bench.kernel(&to([10, 9, 9, 9]), Reason::Local);
        bench.kernel(&to([10, 8, 0, 1]), Reason::NoRoute);
        // To a tunnel, and to an address at which tunnels end.
        bench
            .memory
            .store_adjacency(TUNNEL, &tunnel(tunnel_kind::GRE, 0));
        bench.kernel(&to([10, 6, 0, 1]), Reason::Local);
        bench.kernel(&to(HERE), Reason::Local);
        let expired = from_there(4, &inner4([10, 0, 0, 1], [192, 0, 2, 1], 1, &[0xa5; 40]));
        bench.kernel(&expired, Reason::TtlExceeded);
        let good = to([192, 0, 2, 1]);
        let with = |change: &dyn Fn(&mut raddle_image::LinkEntry)| {
            let mut entry = link(GRE, INSIDE_MAC, SLOT);
            change(&mut entry);
            bench.memory.store_link(GRE, &entry);
        };
        with(&|link| link.flags &= !link_flags::ENABLED);
        let (verdict, after) = bench.run(&good);
        assert_eq!(
            (verdict, after),
            (Verdict::Kernel(Reason::NotEnabled), good.clone())
        );
        with(&|link| link.flags &= !link_flags::FORWARD4);
        bench.kernel(&good, Reason::ForwardingOff);
        with(&|link| link.closed4 = 1);
        bench.kernel(&good, Reason::Firewall);
        with(&|link| link.flags |= link_flags::WAY_BACK);
        bench.kernel(&good, Reason::RpFilter);
        with(&|link| link.index = bench.out);
        bench.kernel(&good, Reason::SameLink);
        with(&|link| link.table4 = 1);
        bench.kernel(&good, Reason::NoRoute);
        with(&|_| ());
        bench.forward(&good, 0);
    });
}

#[test]
fn frames_come_in() {
    in_namespace("frames-in", || {
        let bench = set_up();
        let key = TunnelEnd::vxlan(4789, 100);
        ends(&bench, &mut [end(tunnel_kind::VXLAN, [0; 4], key, VXLAN)]);
        let four = inner4([10, 0, 0, 1], [192, 0, 2, 1], 64, &[0xa5; 41]);
        let macs = (INSIDE_MAC, THERE_MAC);
        let behind = vxlan(50000, [0; 2], macs, 0x0800, &four);
        let out = bench.forward(&from_there(17, &behind), 0);
        assert_eq!(out, leaves([8, 0], four.clone()));
        assert_eq!(
            bench.engine.counters().link(SLOT + 1).bytes,
            14 + four.len() as u64
        );

        // With a checksum, right and wrong.
        let mut packet = outer(0, [1, 2], false, 1, 17, (THERE, HERE), &behind);
        let sum = !(udp_sum(&packet) as u16);
        packet[26..28].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(udp_sum(&packet), 0xffff);
        bench.forward(&frame(0x0800, &packet), 0);
        packet[80] ^= 1;
        bench.kernel(&frame(0x0800, &packet), Reason::Local);

        // From itself, to another address, to a bridge's, of another VNI, with other flags.
        let own = vxlan(50000, [0; 2], (INSIDE_MAC, INSIDE_MAC), 0x0800, &four);
        bench.kernel(&from_there(17, &own), Reason::Local);
        let other = vxlan(50000, [0; 2], (THERE_MAC, DST_MAC), 0x0800, &four);
        bench.kernel(&from_there(17, &other), Reason::OtherMac);
        let arp = vxlan(50000, [0; 2], macs, 0x0806, &four);
        bench.kernel(&from_there(17, &arp), Reason::NotIp);
        for at in [8, 9, 14, 15] {
            let mut odd = behind.clone();
            odd[at] ^= 0x10;
            bench.kernel(&from_there(17, &odd), Reason::Local);
        }

        // As a port of a bridge it wants the bridge's address, and a step.
        let mut port = link(VXLAN, THERE_MAC, SLOT + 1);
        port.flags = link_flags::PORT;
        bench.memory.store_link(VXLAN, &port);
        let behind = vxlan(50000, [0; 2], (INSIDE_MAC, DST_MAC), 0x0800, &four);
        bench.kernel(&from_there(17, &behind), Reason::Bridge);
        let step = Step {
            index: BRIDGE,
            ..Step::default()
        };
        bench
            .memory
            .store_step(VXLAN, Upon::All, Some(step))
            .unwrap();
        assert_eq!(
            bench.forward(&from_there(17, &behind), 0),
            leaves([8, 0], four.clone())
        );
        assert_eq!(bench.engine.counters().link(SLOT + 2).packets, 1);
        let other = vxlan(50000, [0; 2], (DST_MAC, DST_MAC), 0x0800, &four);
        bench.kernel(&from_there(17, &other), Reason::OtherMac);
    });
}

/// The kernel sends by one of the ways, and asks for no neighbour of the others.
#[test]
fn neighbours_of_ways_below_are_named() {
    in_namespace("out-wanted", || {
        let bench = set_up();
        let (memory, places) = (&bench.memory, bench.engine.wanted().unwrap());
        memory.store_adjacency(TUNNEL, &tunnel(tunnel_kind::GRE, 0));
        let failed = Adjacency {
            reason: Reason::Unresolved as u8,
            ..Adjacency::default()
        };
        memory.store_adjacency(1, &failed);
        threshold(memory, OUTER, 0, &[(0, 1), (1, 1)]);
        let mut punted = 0;
        for sport in 1000..1100 {
            let frame = udp4([10, 0, 0, 1], [10, 6, 0, 1], (sport, 53), 20);
            let (verdict, after) = bench.run(&frame);
            if let Verdict::Kernel(reason) = verdict {
                assert_eq!((reason, &after), (Reason::Unresolved, &frame));
                punted += 1;
                assert_eq!(places.take(9), [Wanted::Adjacency(1)]);
            }
            assert_eq!(places.take(9), []);
        }
        assert!((30..=70).contains(&punted), "{punted}");
        memory.store_group(OUTER, Group::Single(1));
        let frame = udp4([10, 0, 0, 1], [10, 6, 0, 1], (1, 53), 20);
        bench.kernel(&frame, Reason::Unresolved);
        assert_eq!(places.take(9), [Wanted::Adjacency(1)]);
    });
}

/// What comes out of a tunnel and is routed to raddle's own: the kernel would send it elsewhere.
#[test]
fn raddles_own_is_dropped_behind_a_tunnel() {
    in_namespace("in-own", || {
        let bench = set_up();
        let memory = &bench.memory;
        ends(&bench, &mut [end(tunnel_kind::IP, THERE, 0, GRE)]);
        let of = |ttl| from_there(4, &inner4([10, 0, 0, 1], [10, 9, 9, 9], ttl, &[0xa5; 40]));
        let segment = |flags| Segment {
            kind: segment_kind::END_DT46,
            flags,
            ..Segment::default()
        };
        let to_segment = Adjacency {
            index: 1,
            state: ADJ_SEGMENT,
            ..Adjacency::default()
        };
        memory.store_adjacency(3, &to_segment);
        for group in [Group::Segment(1), Group::Single(3)] {
            memory.store_group(LOCAL, group);
            memory.store_segment(1, &segment(0));
            bench.kernel(&of(64), Reason::Local);
            memory.store_segment(1, &segment(segment_flags::NO_PUNT));
            bench.drops(&of(64), Reason::Local);
        }
        let own = |group| {
            memory.store_group(LOCAL, group);
            let word = &memory.groups.words()[LOCAL as usize];
            word.fetch_or(GROUP_NO_PUNT, Ordering::Relaxed);
        };
        for reason in [Reason::NoRoute, Reason::Unresolved, Reason::ImageFull] {
            memory.store_group(LOCAL, Group::Kernel(reason));
            bench.kernel(&of(64), reason);
            own(Group::Kernel(reason));
            bench.drops(&of(64), reason);
        }
        own(Group::Single(0));
        bench.forward(&of(64), 0);
        bench.drops(&of(1), Reason::TtlExceeded);
        threshold(memory, LOCAL, 0, &[(0, 1), (0, 1)]);
        own(memory.group(LOCAL));
        bench.forward(&of(64), 0);
        memory.store_config(&config(0, 1, 1));
        bench.drops(&of(64), Reason::SeedUnknown);
    });
}
