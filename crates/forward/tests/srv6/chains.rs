//! Several segments on one packet, members that are segments, choices, and what is left behind.

use std::collections::HashMap;

use raddle_forward::Verdict;
use raddle_image::{
    Adjacency, Group, Reason, Segment, Wanted, flavours, segment_counter, segment_flags,
    segment_kind,
};
use raddle_packet::Family;
use raddle_select::{HashConfig, Hasher, Policy, Seed};
use raddle_srv6::{label_of, spread};

use crate::headends::template;
use crate::packets::{frame, ip4, ip6, older, set_checksum, srh, udp};
use crate::router::{INGRESS, Router, SEED, octets, plain};

const FIRST: &str = "fc00:2::1";

fn six(sport: u16) -> Vec<u8> {
    ip6("2001:db8:1::1", "2001:db8:2::2", 17, &udp(sport))
}

/// uN, then uDT, then an encapsulation: three on one packet, each with its own bytes.
#[test]
fn segments_follow_each_other() {
    let mut router = Router::new();
    let shift = router.sid(
        "fcbb:0:1::/48",
        Segment {
            flavours: flavours::NEXT_CSID,
            block: 4,
            csid: 2,
            ..plain(segment_kind::END)
        },
    );
    let out = router.sid("fcbb:0:f::/48", plain(segment_kind::END_DT6));
    let around = router.with_template(segment_kind::ENCAPS, 0, &template(FIRST, 0, &[]));
    let around = router.sid("2001:db8:2::/48", around);
    router.via("fc00:2::/32", 0);
    let packet = ip6("2001:db8::1", "fcbb:0:1:f::", 41, &six(9));
    let sent = router.forwards(&frame(&packet), 0);
    assert_eq!(sent[40..], six(9));
    for (number, bytes) in [(shift, 100), (out, 100), (around, 60)] {
        let counted = router.engine.counters().segment(number);
        assert_eq!(counted[..3], [1, bytes, 0]);
    }
    // Nobody knows the way: all three say so, and the packet is whole (the router looks).
    let nowhere = router.group(Group::Kernel(Reason::Unreachable));
    router.route6(0, "fc00:2::/32", nowhere);
    router.punts(&frame(&packet), Reason::Unreachable);
    for number in [shift, out, around] {
        let counted = router.engine.counters().segment(number);
        assert_eq!(counted[segment_counter::FAILED + 12], 1);
    }
}

/// Rule S1.1: the fifth.
#[test]
fn four_segments_at_most() {
    let mut router = Router::new();
    router.via("fcbb:0:2::/48", 0);
    let segment = Segment {
        flavours: flavours::NEXT_CSID,
        block: 4,
        csid: 2,
        ..plain(segment_kind::END)
    };
    let number = router.sid("fcbb:0:1::/48", segment);
    let with = |dst| frame(&ip6("2001:db8::1", dst, 17, &udp(7)));
    router.forwards(&with("fcbb:0:1:1:1:1:2:0"), 0);
    assert_eq!(router.engine.counters().segment(number)[0], 4);
    router.punts(&with("fcbb:0:1:1:1:1:1:2"), Reason::SidChain);
    let counted = router.engine.counters().segment(number);
    assert_eq!(counted[segment_counter::of(Reason::SidChain)], 4);
}

/// Rule S10: blackholes count as carried out, NO_PUNT segments drop what others punt.
#[test]
fn ends() {
    let mut router = Router::new();
    let kernels = router.sid("fc00:1::/32", plain(segment_kind::END_DT6));
    let own = Segment {
        flags: segment_flags::NO_PUNT,
        ..plain(segment_kind::END_DT6)
    };
    router.sid("fc00:4::/32", own);
    let packet = |sid| frame(&ip6("2001:db8::1", sid, 41, &six(1)));
    router.punts(&packet("fc00:1::"), Reason::NoRoute);
    router.drops(&packet("fc00:4::"), Reason::NoRoute);
    let hole = router.group(Group::Kernel(Reason::Blackhole));
    router.route6(0, "2001:db8:2::/48", hole);
    router.drops(&packet("fc00:1::"), Reason::Blackhole);
    let counted = router.engine.counters().segment(kernels);
    assert_eq!(counted[..2], [1, 100]);
    assert_eq!(counted[segment_counter::of(Reason::NoRoute)], 1);
    // A record that is the kernel's is not on the way.
    let missing = Segment {
        reason: Reason::SegmentLink as u8,
        ..Segment::default()
    };
    let number = router.sid("fc00:5::/32", missing);
    router.drops(&packet("fc00:5::"), Reason::SegmentLink);
    assert_eq!(router.engine.counters().segment(number), [0; 16]);
    // And yet the kernel gets nothing that is for one of our own.
    for reason in [Reason::Encap, Reason::ImageFull, Reason::Held] {
        let missing = Segment {
            reason: reason as u8,
            flags: segment_flags::NO_PUNT | segment_flags::HAS_COUNTERS,
            ..Segment::default()
        };
        let number = router.sid("fc00:6::/32", missing);
        router.drops(&packet("fc00:6::"), reason);
        assert_eq!(router.engine.counters().segment(number), [0; 16]);
    }
    // Behaviours are for IPv6.
    router.sid("198.51.100.0/24", plain(segment_kind::END_DT6));
    let four = ip4("192.0.2.1", "198.51.100.2", 17, &udp(9));
    router.punts(&frame(&four), Reason::Encap);
}

/// A member of a group may be a segment, and then the TTL does not count.
#[test]
fn members_that_are_segments() {
    let mut router = Router::new();
    router.via("fc00:2::/32", 0);
    let around = router.with_template(segment_kind::ENCAPS, 0, &template(FIRST, 0, &[]));
    let around = router.segment(around);
    router.segment_adjacency(20, around);
    let group = router.spread(&[3, 20]);
    router.route4(0, "198.51.100.0/24", group);
    let (mut plainly, mut encapsulated) = (0, 0);
    for sport in 0..200 {
        let mut four = ip4("192.0.2.1", "198.51.100.2", 17, &udp(sport));
        let sent = router.pass(&frame(&four)).1;
        four[8] = 1;
        set_checksum(&mut four);
        if sent[14] >> 4 == 4 {
            plainly += 1;
            router.punts(&frame(&four), Reason::TtlExceeded);
        } else {
            encapsulated += 1;
            assert_eq!(router.forwards(&frame(&four), 0)[40..], four);
        }
    }
    assert!(plainly > 50 && encapsulated > 50);
}

/// A group of raddle's own: what keeps it from choosing drops the packet, alone, in vectors and behind SIDs.
#[test]
fn own_groups_hand_nothing_over() {
    let mut router = Router::new();
    router.via("fc00:2::/32", 0);
    let around = router.with_template(
        segment_kind::ENCAPS,
        segment_flags::NO_PUNT,
        &template(FIRST, 0, &[]),
    );
    let around = router.segment(around);
    router.segment_adjacency(20, around);
    let several = router.spread(&[20, 20]);
    let several = router.owned(several);
    let turns = router.turns(&[20, 20]);
    let turns = router.owned(turns);
    router.sid("fc00:1::/32", plain(segment_kind::END_DT46));
    let four = |ttl: u8| {
        let mut four = ip4("192.0.2.1", "198.51.100.2", 17, &udp(9));
        four[8] = ttl;
        set_checksum(&mut four);
        four
    };
    let behind = |inner: &[u8], next| frame(&ip6("2001:db8::1", "fc00:1::", next, inner));
    let all = |inner: &[u8], next| [frame(inner), behind(inner, next)];
    for group in [several, turns] {
        router.route4(0, "198.51.100.0/24", group);
        router.route6(0, "2001:db8:2::/48", group);
        for packet in all(&four(9), 4).iter().chain(&all(&six(9), 41)) {
            router.forwards(packet, 0);
        }
    }
    // Turns are not taken for such packets.
    for packet in all(&four(1), 4) {
        router.drops(&packet, Reason::TtlExceeded);
    }
    router.route4(0, "198.51.100.0/24", several);
    router.route6(0, "2001:db8:2::/48", several);
    let refused = |router: &mut Router, reason| {
        for packet in all(&four(9), 4).iter().chain(&all(&six(9), 41)) {
            router.drops(packet, reason);
            let mut frames = [packet.clone()];
            let mut verdicts = [Verdict::Kernel(Reason::None)];
            router
                .engine
                .forward_all(&mut frames, INGRESS, 0, &mut verdicts);
            assert_eq!(verdicts, [Verdict::Drop(reason)]);
            assert_eq!(frames[0], *packet);
        }
    };
    router.set_config(0, 1);
    refused(&mut router, Reason::SeedUnknown);
    for packet in all(&four(1), 4) {
        router.drops(&packet, Reason::TtlExceeded);
    }
    router.set_config(SEED, 9);
    refused(&mut router, Reason::HashPolicy);
    router.set_config(SEED, 1);
    for reason in [
        Reason::ImageFull,
        Reason::Encap,
        Reason::NoRoute,
        Reason::OutLink,
    ] {
        let group = router.group(Group::Kernel(reason));
        let group = router.owned(group);
        router.route4(0, "198.51.100.0/24", group);
        router.route6(0, "2001:db8:2::/48", group);
        refused(&mut router, reason);
    }
    let counted = router.engine.counters();
    assert_eq!(counted.reason(Reason::ImageFull).packets, 8);
    // Not among those that the kernel got.
    assert_eq!(counted.dropped(Reason::ImageFull).packets, 8);
}

/// Neighbours that nobody else would have resolved.
#[test]
fn lacking_neighbours_are_named() {
    let mut router = Router::new();
    let own = Segment {
        flags: segment_flags::NO_PUNT,
        ..plain(segment_kind::END_DT46)
    };
    router.sid("fc00:1::/32", plain(segment_kind::END_DT46));
    router.sid("fc00:4::/32", own);
    let connected = router.group(Group::Kernel(Reason::Unresolved));
    router.route6(0, "2001:db8:2::/48", connected);
    router.route4(0, "198.51.100.0/24", connected);
    let packet = |sid, next, inner: &[u8]| frame(&ip6("2001:db8::1", sid, next, inner));
    let four = ip4("192.0.2.1", "198.51.100.2", 17, &udp(9));
    router.punts(&packet("fc00:1::", 41, &six(1)), Reason::Unresolved);
    assert_eq!(router.engine.take_wanted(), []);
    for _ in 0..3 {
        router.drops(&packet("fc00:4::", 41, &six(1)), Reason::Unresolved);
        router.drops(&packet("fc00:4::", 4, &four), Reason::Unresolved);
    }
    let host = |address: &str| Wanted::Host {
        group: connected,
        address: address.parse().unwrap(),
    };
    let mut named = router.engine.take_wanted();
    named.sort_by_key(|wanted| wanted.to_words());
    assert_eq!(named, [host("198.51.100.2"), host("2001:db8:2::2")]);
    assert_eq!(router.engine.take_wanted(), []);
    // One that is known and not valid.
    let failed = Adjacency {
        reason: Reason::Unresolved as u8,
        ..Adjacency::default()
    };
    router.memory.store_adjacency(30, &failed);
    let known = router.group(Group::Neighbour(30));
    router.route4(0, "198.51.100.2/32", known);
    router.drops(&packet("fc00:4::", 4, &four), Reason::Unresolved);
    assert_eq!(router.engine.take_wanted(), [Wanted::Adjacency(30)]);
}

/// Rule S9.6: by the flow inside, spread again, and not by the outer header, which is the same for all.
#[test]
fn encapsulated_packets_choose_by_their_flow() {
    let salt = 0x5a5a_1234;
    for l2 in [false, true] {
        let mut router = Router::new();
        let group = router.spread(&[0, 1, 2, 3]);
        router.route6(0, "fc00:2::/32", group);
        let kind = if l2 {
            segment_kind::ENCAPS_L2
        } else {
            segment_kind::ENCAPS
        };
        let segment = router.with_template(
            kind,
            segment_flags::LABEL_FROM_FLOW,
            &template(FIRST, 0, &[]),
        );
        router.sid("2001:db8:2::/48", Segment { salt, ..segment });
        let hasher = Hasher::new(Seed::new(SEED).unwrap());
        let config: HashConfig = Policy::L4.into();
        let mut seen = HashMap::new();
        for sport in 0..400 {
            let packet = six(sport);
            let hash31 = hasher
                .hash31_of_packet(&config, Family::V6, &packet)
                .unwrap();
            let chosen = spread(hash31, salt) >> 30 & 3;
            let sent = router.forwards(&frame(&packet), chosen);
            let label = label_of([5, 6], hash31);
            assert_eq!(sent[..4], (0x6120_0000 | label).to_be_bytes());
            *seen.entry(chosen).or_insert(0) += 1;
        }
        assert!(
            seen.len() == 4 && seen.values().all(|n| *n > 60),
            "{seen:?}"
        );
    }
}

/// RFC 8986, 4.13: the step, then the outer header; the kernel's SIDs choose by that header.
#[test]
fn b6_encaps_steps_and_encapsulates() {
    let next = "fc00:9::1";
    let list = [octets(next), octets("fc00:1::1")];
    let packet = |dst, left| {
        let header = srh(17, left, &list, &[]);
        ip6("2001:db8::1", dst, 43, &[header, udp(3)].concat())
    };
    for own in [0, segment_flags::NO_PUNT] {
        let mut router = Router::new();
        let group = router.spread(&[0, 1]);
        router.route6(0, "fc00:2::/32", group);
        let flags = segment_flags::LABEL_FROM_INNER | own;
        let outer = template(FIRST, 0, &[]);
        let segment = router.with_template(segment_kind::END_B6_ENCAPS, flags, &outer);
        router.sid("fc00:1::/32", segment);
        let sent = router.pass(&frame(&packet("fc00:1::1", 1))).1;
        assert_eq!(sent[54..], packet(next, 0));
        assert_eq!(sent[14..18], [0x61, 0x23, 0x45, 0x67]);
        assert_eq!(sent[20..22], [41, 49]);
        router.drops(&frame(&packet("fc00:1::1", 0)), Reason::NoSrh);
        let chosen = |sport: u16, router: &mut Router| {
            let header = srh(17, 1, &list, &[]);
            let payload = [header, udp(sport)].concat();
            let packet = ip6("2001:db8::1", "fc00:1::1", 43, &payload);
            router.pass(&frame(&packet)).1[5]
        };
        let all: Vec<u8> = (0..50).map(|sport| chosen(sport, &mut router)).collect();
        let one = all.iter().all(|place| *place == all[0]);
        assert_eq!(one, own == 0);
    }
}

/// End.B6.Insert: no step, another SRH in front.
#[test]
fn b6_inserts() {
    let mut router = Router::new();
    router.via("fc00:2::/32", 0);
    let list = [[0; 16], octets(FIRST)];
    let segment = router.with_template(
        segment_kind::END_B6,
        segment_flags::HAS_SRH,
        &srh(0, 1, &list, &[]),
    );
    router.sid("fc00:1::/32", segment);
    let old = srh(17, 1, &[octets("fc00:9::1"), octets("fc00:1::1")], &[]);
    let packet = |old: &[u8]| ip6("2001:db8::1", "fc00:1::1", 43, &[old, &udp(3)].concat());
    let sent = router.forwards(&frame(&packet(&old)), 0);
    let new = srh(43, 1, &[octets("fc00:1::1"), octets(FIRST)], &[]);
    let expected = ip6("2001:db8::1", FIRST, 43, &[new, old, udp(3)].concat());
    assert_eq!(sent, older(expected));
    let done = srh(17, 0, &[octets("fc00:9::1")], &[]);
    router.drops(&frame(&packet(&done)), Reason::NoSrh);
}
