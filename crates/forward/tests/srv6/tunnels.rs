//! Tunnels over IPv4, byte for byte: what is put in front of packets, and what comes out of them.

use raddle_forward::Verdict;
use raddle_image::{
    ADJ_TAGGED, ADJ_TUNNEL, Adjacency, Group, LinkEntry, Reason, Segment, Step, TUNNEL_KEYED,
    Tunnel, TunnelEnd, Upon, Wanted, link_flags, segment_flags, segment_kind,
    tunnel_flags as flags, tunnel_kind as kind,
};

use crate::packets::{frame, ip4, ip6, older, set_checksum, udp};
use crate::router::{INGRESS, OUT, Router, plain};

const HERE: &str = "203.0.113.1";
const THERE: &str = "203.0.113.2";
/// The adjacency of the tunnel, and its link.
const THROUGH: u32 = 20;
const TUNNEL: u32 = 50;
const BOTH: u8 = flags::CARRIES4 | flags::CARRIES6;

fn octets4(address: &str) -> [u8; 4] {
    crate::router::v4(address).to_be_bytes()
}

fn tunnel(kind: u8, flags: u8) -> Tunnel {
    Tunnel {
        src: octets4(HERE),
        dst: octets4(THERE),
        kind,
        flags,
        ttl: 64,
        tos: 0,
        salt: 7,
        ..Tunnel::default()
    }
}

fn four() -> Vec<u8> {
    ip4("192.0.2.1", "198.51.100.2", 17, &udp(9))
}

fn six() -> Vec<u8> {
    ip6("2001:db8:1::1", "2001:db8:2::2", 17, &udp(9))
}

/// Two prefixes lead through a tunnel, of which the other end is reached by adjacency 0.
fn router(tunnel: Tunnel) -> Router {
    let mut router = Router::new();
    router.via("203.0.113.0/24", 0);
    router.via("198.51.100.0/24", THROUGH);
    router.via("2001:db8:2::/48", THROUGH);
    let through = Adjacency {
        index: TUNNEL,
        state: ADJ_TUNNEL,
        mtu: 1400,
        dst_mac: [6; 6],
        src_mac: [8; 6],
        tunnel,
        ..Adjacency::default()
    };
    router.memory.store_adjacency(THROUGH, &through);
    router
}

/// An outer packet.
fn outer(proto: u8, (tos, ttl, df): (u8, u8, bool), payload: &[u8]) -> Vec<u8> {
    let mut packet = ip4(HERE, THERE, proto, payload);
    packet[1] = tos;
    packet[8] = ttl;
    packet[6] = if df { 0x40 } else { 0 };
    set_checksum(&mut packet);
    packet
}

#[test]
fn ip_in_ip() {
    let mut router = router(tunnel(kind::IP, BOTH | flags::DF));
    let sent = router.forwards(&frame(&four()), 0);
    assert_eq!(sent, outer(4, (0, 64, true), &older(four())));
    let sent = router.forwards(&frame(&six()), 0);
    // ECN of the inner traffic class 0x12.
    assert_eq!(sent, outer(41, (2, 64, true), &older(six())));
}

#[test]
fn only_what_it_carries() {
    let mut of4 = router(tunnel(kind::IP, flags::CARRIES4));
    of4.punts(&frame(&six()), Reason::OutLink);
    let mut of6 = router(tunnel(kind::IP, flags::CARRIES6));
    of6.punts(&frame(&four()), Reason::OutLink);
    let mut unknown = router(tunnel(9, BOTH));
    unknown.punts(&frame(&four()), Reason::OutLink);
}

#[test]
fn gre_with_a_key_and_what_is_inherited() {
    let made = Tunnel {
        key: [1, 2, 3, 4],
        ..tunnel(
            kind::GRE,
            BOTH | flags::HAS_KEY | flags::TTL_INNER | flags::TOS_INNER | flags::DF_INNER,
        )
    };
    let mut router = router(made);
    let gre = |proto: [u8; 2], inner: Vec<u8>| {
        [&[0x20, 0, proto[0], proto[1], 1, 2, 3, 4][..], &inner].concat()
    };
    let mut whole = four();
    whole[1] = 0x0c | 3;
    whole[6] = 0x40;
    set_checksum(&mut whole);
    let sent = router.forwards(&frame(&whole), 0);
    let carried = gre([0x08, 0], older(whole));
    assert_eq!(sent, outer(47, (0x0c | 2, 39, true), &carried));
    // What may be fragmented is numbered.
    let mut last = None;
    for _ in 0..3 {
        let mut sent = router.forwards(&frame(&six()), 0);
        let id = u16::from_be_bytes([sent[4], sent[5]]);
        assert!(last.is_none_or(|last: u16| id == last.wrapping_add(1)));
        last = Some(id);
        sent[4..6].fill(0);
        set_checksum(&mut sent);
        let carried = gre([0x86, 0xdd], older(six()));
        assert_eq!(sent, outer(47, (0x12, 49, false), &carried));
    }
}

fn vxlan(flags: u8) -> Tunnel {
    Tunnel {
        key: [0, 0x12, 0x34, 0],
        port: 4789,
        sport: 32768,
        sports: 28231,
        ..tunnel(kind::VXLAN, BOTH | flags)
    }
}

/// The outer UDP packet of a VXLAN with this source port and checksum, around a packet.
fn in_vxlan(head: [u8; 4], inner: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] = match inner[0] >> 4 {
        4 => [0x08, 0],
        _ => [0x86, 0xdd],
    };
    let length = (8 + 8 + 14 + inner.len() as u16).to_be_bytes();
    let [high, low, check @ ..] = head;
    let udp = [&[high, low, 0x12, 0xb5][..], &length, &check].concat();
    let vxlan = [8, 0, 0, 0, 0, 0x12, 0x34, 0];
    [&udp, &vxlan[..], &[6; 6], &[8; 6], &kind, inner].concat()
}

/// Sums as RFC 1071 says, in the plainest way.
fn sums_to_nothing(packet: &[u8]) -> bool {
    let length = (packet.len() - 20) as u16;
    let mut all = [&[0, 17], &length.to_be_bytes()[..], &packet[12..]].concat();
    all.resize(all.len().next_multiple_of(2), 0);
    let words = all
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum: u32 = words.sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[test]
fn vxlan_with_and_without_a_checksum() {
    for packet in [four(), six(), [six(), vec![1]].concat()] {
        let mut packet = packet;
        if packet.len() > six().len() {
            packet[5] += 1;
        }
        let tos = if packet[0] >> 4 == 6 { 2 } else { 0 };
        let mut plain = router(vxlan(0));
        let mut sent = plain.forwards(&frame(&packet), 0);
        let port = [sent[20], sent[21]];
        assert!((32768..60999).contains(&u16::from_be_bytes(port)));
        sent[4..6].fill(0);
        set_checksum(&mut sent);
        let carried = in_vxlan([port[0], port[1], 0, 0], &older(packet.clone()));
        assert_eq!(sent, outer(17, (tos, 64, false), &carried));
        let mut checked = router(vxlan(flags::CHECKSUM | flags::DF));
        let sent = checked.forwards(&frame(&packet), 0);
        assert!(sums_to_nothing(&sent));
        let carried = in_vxlan([port[0], port[1], sent[26], sent[27]], &older(packet));
        assert_eq!(sent, outer(17, (tos, 64, true), &carried));
    }
}

#[test]
fn flows_take_all_paths_and_ports() {
    let mut router = router(vxlan(0));
    let group = router.spread(&[0, 1, 2, 3]);
    router.route4(0, "203.0.113.2/32", group);
    let mut seen = [0; 4];
    let mut ports = std::collections::BTreeSet::new();
    for sport in 0..400 {
        let packet = ip4("192.0.2.1", "198.51.100.2", 17, &udp(sport));
        let (verdict, sent) = router.pass(&frame(&packet));
        let Verdict::Forward { adjacency, .. } = verdict else {
            panic!("{verdict:?}");
        };
        seen[adjacency as usize] += 1;
        ports.insert([sent[34], sent[35]]);
        // The same again goes the same way.
        assert_eq!(router.pass(&frame(&packet)).0, verdict);
    }
    assert!(seen.iter().all(|count| *count > 60), "{seen:?}");
    assert!(ports.len() > 380, "{}", ports.len());
}

#[test]
fn what_does_not_leave_is_as_it_came() {
    let mut router = router(tunnel(kind::GRE, BOTH));
    let mut old = four();
    old[8] = 1;
    set_checksum(&mut old);
    router.punts(&frame(&old), Reason::TtlExceeded);
    let long = ip4("192.0.2.1", "198.51.100.2", 17, &[0; 1381]);
    router.punts(&frame(&long), Reason::Mtu);
    let fits = ip4("192.0.2.1", "198.51.100.2", 17, &[0; 1380]);
    router.forwards(&frame(&fits), 0);
    // The last adjacency takes 1,300 bytes.
    router.via("203.0.113.2/32", 7);
    router.punts(&frame(&fits), Reason::Mtu);
    // Behind the other end is another tunnel, a segment, nothing.
    router.via("203.0.113.2/32", THROUGH);
    router.punts(&frame(&four()), Reason::OutLink);
    let kernel = router.group(Group::Kernel(Reason::Blackhole));
    router.route4(0, "203.0.113.2/32", kernel);
    router.punts(&frame(&four()), Reason::OutLink);
    // It may leave by the link that it came in by.
    let back = Adjacency {
        index: INGRESS,
        ..router.memory.adjacency(1)
    };
    router.memory.store_adjacency(1, &back);
    router.via("203.0.113.2/32", 1);
    let (verdict, _) = router.pass(&frame(&four()));
    assert!(matches!(verdict, Verdict::Forward { index: INGRESS, .. }));
    // But not through a tunnel that it came in by.
    let own = Adjacency {
        index: INGRESS,
        ..router.memory.adjacency(THROUGH)
    };
    router.memory.store_adjacency(THROUGH, &own);
    router.punts(&frame(&four()), Reason::SameLink);
}

#[test]
fn outer_packets_get_tags() {
    let mut router = router(tunnel(kind::IP, BOTH | flags::DF));
    let tagged = Adjacency {
        state: ADJ_TAGGED,
        tags: 1,
        lower: 77,
        tag: [0x8100_0005, 0],
        ..router.memory.adjacency(0)
    };
    router.memory.store_adjacency(0, &tagged);
    let (verdict, sent) = router.pass(&frame(&four()));
    assert!(matches!(verdict, Verdict::Forward { index: OUT, .. }));
    assert_eq!(sent[12..18], [0x81, 0, 0, 5, 0x08, 0]);
    assert_eq!(sent[18..], outer(4, (0, 64, true), &older(four())));
}

/// Tunnels that end here: what is inside comes in by links of their own, and leaves by adjacency 2.
fn end(ends: &mut [TunnelEnd], link: u32, entry: u32) -> Router {
    let mut router = Router::new();
    router.via("198.51.100.0/24", 2);
    router.via("2001:db8:2::/48", 2);
    let forwards = link_flags::FORWARD4 | link_flags::FORWARD6 | link_flags::ENABLED;
    let by = LinkEntry {
        flags: forwards,
        mac: if link == TUNNEL { [0; 6] } else { [6; 6] },
        index: link,
        ..LinkEntry::default()
    };
    router.memory.store_link(link, &by);
    if entry != link {
        let port = LinkEntry {
            flags: link_flags::PORT,
            index: entry,
            ..LinkEntry::default()
        };
        router.memory.store_link(entry, &port);
        let step = Step {
            index: link,
            ..Step::default()
        };
        router
            .memory
            .store_step(entry, Upon::All, Some(step))
            .unwrap();
    }
    ends.sort();
    let words = ends.iter().flat_map(TunnelEnd::to_words);
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    let segment = Segment {
        kind: segment_kind::TUNNEL_END,
        template: router.template(&bytes),
        out: ends.len() as u32,
        ..Segment::default()
    };
    router.sid("203.0.113.2/32", segment);
    router
}

fn end_of(kind: u8, key: u64) -> TunnelEnd {
    TunnelEnd {
        kind,
        remote: crate::router::v4(HERE),
        key,
        index: TUNNEL,
        flags: BOTH,
    }
}

#[test]
fn packets_come_out_of_tunnels() {
    let others = (1..9).map(|n| end_of(kind::GRE, TUNNEL_KEYED | n));
    let here = [
        end_of(kind::IP, 0),
        end_of(kind::GRE, 0),
        end_of(kind::GRE, TUNNEL_KEYED | 7),
    ];
    let mut ends: Vec<TunnelEnd> = others
        .filter(|end| end.key as u32 != 7)
        .chain(here)
        .collect();
    let mut router = end(&mut ends, TUNNEL, TUNNEL);
    let plain = (0, 1, false);
    for (packet, proto, kind) in [(four(), 4, [0x08, 0]), (six(), 41, [0x86, 0xdd])] {
        let to = older(packet.clone());
        let whole = frame(&outer(proto, plain, &packet));
        assert_eq!(router.forwards(&whole, 2), to);
        let gre = [&[0, 0, kind[0], kind[1]][..], &packet].concat();
        assert_eq!(router.forwards(&frame(&outer(47, plain, &gre)), 2), to);
        let keyed = [&[0x20, 0, kind[0], kind[1], 0, 0, 0, 7][..], &packet].concat();
        assert_eq!(router.forwards(&frame(&outer(47, plain, &keyed)), 2), to);
        // Congestion that was met on the way is the kernel's, as is what there is no tunnel for.
        for ecn in [1, 3] {
            let marked = frame(&outer(proto, (ecn, 9, false), &packet));
            router.punts(&marked, Reason::Local);
        }
        let mut key = keyed.clone();
        key[7] = 99;
        router.punts(&frame(&outer(47, plain, &key)), Reason::Local);
        let mut odd = gre.clone();
        odd[0] = 0x80;
        router.punts(&frame(&outer(47, plain, &odd)), Reason::Local);
        let mut fragment = outer(proto, plain, &packet);
        fragment[6] = 0x20;
        set_checksum(&mut fragment);
        router.punts(&frame(&fragment), Reason::Local);
        let mut other = outer(proto, plain, &packet);
        other[15] = 9;
        set_checksum(&mut other);
        router.punts(&frame(&other), Reason::Local);
    }
    router.punts(&frame(&outer(17, plain, &udp(9))), Reason::Local);
    // What is inside is looked at as any packet is.
    let mut old = four();
    old[8] = 1;
    set_checksum(&mut old);
    router.punts(&frame(&outer(4, plain, &old)), Reason::TtlExceeded);
    let mut wrong = four();
    wrong[10] ^= 1;
    router.punts(&frame(&outer(4, plain, &wrong)), Reason::BadChecksum);
    let closed = LinkEntry {
        flags: 0,
        ..router.memory.link(TUNNEL)
    };
    router.memory.store_link(TUNNEL, &closed);
    router.punts(&frame(&outer(4, plain, &four())), Reason::NotEnabled);
}

#[test]
fn frames_come_out_of_vxlans() {
    const BRIDGE: u32 = 51;
    let vxlan = TunnelEnd {
        remote: 0,
        key: TunnelEnd::vxlan(4789, 0x1234),
        ..end_of(kind::VXLAN, 0)
    };
    let mut router = end(&mut [vxlan, end_of(kind::IP, 0)], BRIDGE, TUNNEL);
    for packet in [four(), six()] {
        let to = older(packet.clone());
        let plain = outer(17, (0, 9, true), &in_vxlan([1, 2, 0, 0], &packet));
        assert_eq!(router.forwards(&frame(&plain), 2), to);
        let mut wrong = plain.clone();
        wrong[26..28].copy_from_slice(&[0x12, 0x34]);
        assert!(!sums_to_nothing(&wrong));
        router.punts(&frame(&wrong), Reason::Local);
        // Another VNI, another port, another flag.
        for at in [23, 28, 34, 35] {
            let mut other = plain.clone();
            other[at] ^= 1;
            router.punts(&frame(&other), Reason::Local);
        }
        // To another MAC address.
        let mut other = plain.clone();
        other[36] ^= 2;
        router.punts(&frame(&other), Reason::OtherMac);
    }
}

#[test]
fn what_is_put_in_comes_out() {
    for made in [
        tunnel(kind::IP, BOTH),
        tunnel(kind::GRE, BOTH | flags::DF),
        vxlan(flags::CHECKSUM),
        vxlan(0),
    ] {
        let mut near = router(made);
        let key = match made.kind {
            kind::VXLAN => TunnelEnd::vxlan(4789, 0x1234),
            _ => 0,
        };
        let mut there = end_of(made.kind, key);
        if made.kind == kind::VXLAN {
            there.remote = 0;
        }
        let mut far = end(
            &mut [there],
            if made.kind == kind::VXLAN { 51 } else { TUNNEL },
            TUNNEL,
        );
        for packet in [four(), six()] {
            let between = near.forwards(&frame(&packet), 0);
            assert_eq!(far.forwards(&frame(&between), 2), older(older(packet)));
        }
    }
}

/// The kernel sends by one of the ways, and asks for no neighbour of the others.
#[test]
fn neighbours_of_ways_below_are_named() {
    let mut router = router(tunnel(kind::GRE, BOTH));
    let failed = Adjacency {
        reason: Reason::Unresolved as u8,
        ..Adjacency::default()
    };
    router.memory.store_adjacency(30, &failed);
    let ways = router.spread(&[0, 30]);
    router.route4(0, "203.0.113.0/24", ways);
    let of = |sport| frame(&ip4("192.0.2.1", "198.51.100.2", 17, &udp(sport)));
    let mut punted = 0;
    for sport in 0..100 {
        match router.pass(&of(sport)).0 {
            Verdict::Kernel(reason) => {
                assert_eq!(reason, Reason::Unresolved);
                punted += 1;
                assert_eq!(router.engine.take_wanted(), [Wanted::Adjacency(30)]);
            }
            verdict => {
                assert!(matches!(verdict, Verdict::Forward { adjacency: 0, .. }));
                assert_eq!(router.engine.take_wanted(), []);
            }
        }
    }
    assert!((30..=70).contains(&punted), "{punted}");
}

/// What comes out of a tunnel and is routed to raddle's own: the kernel would send it elsewhere.
#[test]
fn raddles_own_is_dropped_behind_a_tunnel() {
    let mut router = end(&mut [end_of(kind::IP, 0)], TUNNEL, TUNNEL);
    let to = |dst: &str, ttl: u8| {
        let mut packet = ip4("192.0.2.1", dst, 17, &udp(9));
        packet[8] = ttl;
        set_checksum(&mut packet);
        frame(&outer(4, (0, 9, false), &packet))
    };
    let inside6 = frame(&outer(41, (0, 9, false), &six()));
    let own = Segment {
        flags: segment_flags::NO_PUNT,
        ..plain(segment_kind::END_DT46)
    };
    router.sid("198.51.100.128/25", plain(segment_kind::END_DT46));
    router.punts(&to("198.51.100.200", 64), Reason::Local);
    router.sid("198.51.100.192/26", own);
    router.drops(&to("198.51.100.200", 64), Reason::Local);
    router.sid("2001:db8:2::/48", own);
    router.drops(&inside6, Reason::Local);
    for reason in [Reason::NoRoute, Reason::Unresolved, Reason::ImageFull] {
        let group = router.group(Group::Kernel(reason));
        router.route4(0, "198.51.100.64/26", group);
        router.punts(&to("198.51.100.70", 64), reason);
        let group = router.owned(group);
        router.route4(0, "198.51.100.64/26", group);
        router.drops(&to("198.51.100.70", 64), reason);
    }
    let ways = router.spread(&[2, 2]);
    let ways = router.owned(ways);
    router.route4(0, "198.51.100.64/26", ways);
    assert!(matches!(
        router.pass(&to("198.51.100.70", 64)).0,
        Verdict::Forward { .. }
    ));
    router.drops(&to("198.51.100.70", 1), Reason::TtlExceeded);
    router.set_config(0, 1);
    router.drops(&to("198.51.100.70", 64), Reason::SeedUnknown);
    assert_eq!(router.engine.counters().dropped(Reason::Local).packets, 2);
}
