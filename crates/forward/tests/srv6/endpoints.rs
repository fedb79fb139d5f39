//! Behaviours of SIDs, byte for byte, by the pseudo-code of RFC 8986 and RFC 9800.

use raddle_forward::{NO_ADJACENCY, Verdict};
use raddle_image::{
    Group, Reason, Segment, VlanEntry, flavours, segment_counter, segment_flags, segment_kind,
};

use crate::packets::{frame, ip4, ip6, older, set_checksum, srh, udp};
use crate::router::{OTHER_TABLE, OUT, Router, octets, plain, v4};

const SRC: &str = "2001:db8::1";
const SID: &str = "fc00:1::1";
const NEXT: &str = "fc00:2::1";
const LAST: &str = "fc00:3::1";

/// A router with one SID at `fc00:1::/32`; the next segments lie behind adjacencies 0 and 1.
fn router(segment: Segment) -> (Router, u32) {
    let mut router = Router::new();
    router.via("fc00:2::/32", 0);
    router.via("fc00:3::/32", 1);
    let number = router.sid("fc00:1::/32", segment);
    (router, number)
}

fn with(kind: u8, flavours: u8) -> Segment {
    Segment {
        flavours,
        flags: segment_flags::NO_PUNT,
        ..plain(kind)
    }
}

fn list(segments: &[&str]) -> Vec<[u8; 16]> {
    segments.iter().map(|segment| octets(segment)).collect()
}

/// To the SID, by way of the next segment to the last.
fn routed(left: u8) -> Vec<u8> {
    let header = srh(17, left, &list(&[LAST, NEXT, SID]), &[]);
    ip6(SRC, SID, 43, &[header, udp(7)].concat())
}

fn counted(router: &Router, number: u32) -> (u64, u64, u64) {
    let counted = router.engine.counters().segment(number);
    let failed = counted[segment_counter::FAILED..].iter().sum();
    (counted[0], counted[1], failed)
}

/// RFC 8986, 4.1: S12 to S15.
#[test]
fn end_takes_the_next_segment() {
    let (mut router, number) = router(plain(segment_kind::END));
    let sent = router.forwards(&frame(&routed(2)), 0);
    let after = srh(17, 1, &list(&[LAST, NEXT, SID]), &[]);
    let expected = ip6(SRC, NEXT, 43, &[after, udp(7)].concat());
    assert_eq!(sent, older(expected));
    // The bytes that the kernel counts: header and payload of what came in.
    let bytes = routed(2).len() as u64;
    assert_eq!(counted(&router, number), (1, bytes, 0));
}

/// Spec D.2: no SRH, none with segments left, one that lies; and nothing of it is said to the sender.
#[test]
fn end_wants_an_srh_with_segments_left() {
    let (mut router, number) = router(plain(segment_kind::END));
    router.drops(&frame(&ip6(SRC, SID, 17, &udp(7))), Reason::NoSrh);
    router.drops(&frame(&routed(0)), Reason::NoSrh);
    router.drops(&frame(&routed(4)), Reason::BadSrh);
    // Three left of three is a reduced list.
    let three = list(&[LAST, NEXT, NEXT]);
    let reduced = |left| ip6(SRC, SID, 43, &srh(59, left, &three, &[]));
    assert_eq!(
        router.forwards(&frame(&reduced(3)), 0),
        older(ip6(SRC, NEXT, 43, &srh(59, 2, &three, &[])))
    );
    let pad1 = srh(59, 2, &three, &[0, 4, 5, 1, 1, 1, 1, 1]);
    router.drops(&frame(&ip6(SRC, SID, 43, &pad1)), Reason::BadSrh);
    let counted = router.engine.counters().segment(number);
    assert_eq!(counted[segment_counter::of(Reason::NoSrh)], 2);
    assert_eq!(counted[segment_counter::of(Reason::BadSrh)], 2);
    assert_eq!(counted[..2], [1, reduced(3).len() as u64]);
}

/// The first routing header with segments left counts, behind options and one that is done with.
#[test]
fn end_finds_its_srh_behind_others() {
    let (mut router, _) = router(plain(segment_kind::END));
    let options = [43, 0, 1, 4, 0, 0, 0, 0];
    let done = srh(43, 0, &list(&[SID]), &[]);
    let packet = |left, dst: &str| {
        let header = srh(17, left, &list(&[LAST, NEXT, SID]), &[]);
        ip6(
            SRC,
            dst,
            60,
            &[&options[..], &done, &header, &udp(7)].concat(),
        )
    };
    let sent = router.forwards(&frame(&packet(1, SID)), 1);
    assert_eq!(sent, older(packet(0, LAST)));
}

/// A hop limit of 1 is the kernel's, which answers; the SID counts an error.
#[test]
fn end_leaves_hop_limits_to_forwarding() {
    let (mut router, number) = router(plain(segment_kind::END));
    let mut packet = routed(2);
    packet[7] = 1;
    router.punts(&frame(&packet), Reason::TtlExceeded);
    let counted = router.engine.counters().segment(number);
    assert_eq!(counted[segment_counter::of(Reason::TtlExceeded)], 1);
    assert_eq!(counted[..2], [0, 0]);
}

/// RFC 8986, 4.2: the next hop is the SID's, the destination the segment's.
#[test]
fn end_x_goes_to_its_neighbour() {
    let (mut router, _) = router(Segment {
        target: octets("fe80::9"),
        ..plain(segment_kind::END_X)
    });
    router.via("fe80::9/128", 3);
    let sent = router.forwards(&frame(&routed(2)), 3);
    assert_eq!(sent[24..40], octets(NEXT));
}

/// RFC 8986, 4.3; and a table that has no route for it.
#[test]
fn end_t_looks_up_in_its_table() {
    let (mut router, _) = router(Segment {
        table6: OTHER_TABLE,
        ..plain(segment_kind::END_T)
    });
    router.punts(&frame(&routed(2)), Reason::NoRoute);
    let group = router.group(Group::Single(4));
    router.route6(OTHER_TABLE, "::/0", group);
    router.forwards(&frame(&routed(2)), 4);
}

/// RFC 8986, 4.16.1: with one segment left the SRH goes, and what stood in front of it stays.
#[test]
fn psp_cuts_the_srh_out() {
    let kernel = Segment {
        flavours: flavours::PSP,
        ..plain(segment_kind::END)
    };
    let (mut router, _) = router(kernel);
    let sent = router.forwards(&frame(&routed(1)), 1);
    assert_eq!(sent, older(ip6(SRC, LAST, 17, &udp(7))));
    assert_eq!(router.forwards(&frame(&routed(2)), 0).len(), 40 + 56 + 20);
    router.drops(&frame(&routed(0)), Reason::NoSrh);
    // Behind destination options, which then name UDP.
    let options = |next| [next, 0, 1, 4, 0, 0, 0, 0];
    let header = srh(17, 1, &list(&[LAST, SID]), &[]);
    let packet = ip6(SRC, SID, 60, &[&options(43)[..], &header, &udp(7)].concat());
    let expected = ip6(SRC, LAST, 60, &[&options(17)[..], &udp(7)].concat());
    assert_eq!(router.forwards(&frame(&packet), 1), older(expected));
    // The kernel's PSP takes the first routing header, and this one is done with.
    let done = srh(43, 0, &list(&[SID]), &[]);
    let packet = ip6(SRC, SID, 43, &[done, header].concat());
    router.drops(&frame(&packet), Reason::NoSrh);
}

/// RFC 8986, 4.16.2: the SRH goes with no segments left; what is behind it decides.
#[test]
fn usp_goes_on_behind_the_srh() {
    let (mut router, _) = router(with(segment_kind::END, flavours::USP));
    router.drops(&frame(&routed(0)), Reason::Payload);
    let inner = srh(17, 1, &list(&[LAST, SID]), &[]);
    let done = srh(43, 0, &list(&[SID]), &[]);
    let packet = ip6(SRC, SID, 43, &[done, inner, udp(7)].concat());
    let after = srh(17, 0, &list(&[LAST, SID]), &[]);
    let expected = ip6(SRC, LAST, 43, &[after, udp(7)].concat());
    assert_eq!(router.forwards(&frame(&packet), 1), older(expected));
}

/// RFC 8986, 4.16.3: the outer header goes with all its extension headers, with and without an SRH.
#[test]
fn usd_takes_the_inner_packet_out() {
    for flavour in [
        flavours::USD,
        flavours::USD | flavours::USP,
        flavours::USD | flavours::PSP,
    ] {
        let (mut router, _) = router(with(segment_kind::END, flavour));
        router.via("2001:db8:2::/48", 2);
        router.via("198.51.100.0/24", 3);
        let six = ip6("2001:db8:1::1", "2001:db8:2::2", 17, &udp(9));
        let four = ip4("192.0.2.1", "198.51.100.2", 17, &udp(9));
        for (next, inner, adjacency) in [(41, six, 2), (4, four, 3)] {
            let header = srh(next, 0, &list(&[SID]), &[]);
            let with = ip6(SRC, SID, 43, &[header, inner.clone()].concat());
            let without = ip6(SRC, SID, next, &inner);
            for packet in [with, without] {
                let sent = router.forwards(&frame(&packet), adjacency);
                assert_eq!(sent, older(inner.clone()));
            }
        }
        router.drops(&frame(&routed(0)), Reason::Payload);
        // With segments left it is End.
        router.forwards(&frame(&routed(2)), 0);
    }
    // End.X takes both families to its neighbour.
    let (mut router, _) = router(Segment {
        target: octets("fe80::9"),
        ..with(segment_kind::END_X, flavours::USD)
    });
    router.via("fe80::9/128", 3);
    let four = ip4("192.0.2.1", "198.51.100.2", 17, &udp(9));
    let sent = router.forwards(&frame(&ip6(SRC, SID, 4, &four)), 3);
    assert_eq!(sent, older(four));
}

/// RFC 9800, 4.1.1, of 32 bits of block and 16 of C-SID: the argument moves up, whatever follows.
#[test]
fn next_csid_shifts_its_argument() {
    let segment = Segment {
        flavours: flavours::NEXT_CSID,
        block: 4,
        csid: 2,
        ..plain(segment_kind::END)
    };
    let mut router = Router::new();
    router.sid("fcbb:0:1::/48", segment);
    router.via("fcbb:0:2::/48", 2);
    router.via("fc00:3::/32", 1);
    let with = |dst: &str| ip6(SRC, dst, 17, &udp(7));
    let sent = router.forwards(&frame(&with("fcbb:0:1:2:3:4:5:6")), 2);
    assert_eq!(sent, older(with("fcbb:0:2:3:4:5:6:0")));
    // Even a bad SRH is not looked at.
    let bad = srh(59, 9, &list(&[LAST]), &[]);
    let packet = ip6(SRC, "fcbb:0:1:2::", 43, &bad);
    let sent = router.forwards(&frame(&packet), 2);
    assert_eq!(sent, older(ip6(SRC, "fcbb:0:2::", 43, &bad)));
    // Without an argument it is End.
    router.drops(&frame(&with("fcbb:0:1::")), Reason::NoSrh);
    let header = |left| srh(59, left, &list(&[LAST, SID]), &[]);
    let packet = ip6(SRC, "fcbb:0:1::", 43, &header(1));
    let sent = router.forwards(&frame(&packet), 1);
    assert_eq!(sent, older(ip6(SRC, LAST, 43, &header(0))));
}

/// RFC 9800, 4.1: 40 bits of block, 24 of C-SID; and the C-SID after this one is ours, too.
#[test]
fn next_csid_of_other_lengths_and_twice() {
    let segment = Segment {
        flavours: flavours::NEXT_CSID,
        block: 5,
        csid: 3,
        ..plain(segment_kind::END)
    };
    let mut router = Router::new();
    let first = router.sid("fcbb:bb00:0100:0001::/64", segment);
    let second = router.sid("fcbb:bb00:0100:0002::/64", segment);
    router.via("fcbb:bb00:0100:0003::/64", 2);
    let with = |dst: &str| ip6(SRC, dst, 17, &udp(7));
    // C-SIDs 000001, 000002, 000003.
    let packet = with("fcbb:bb00:0100:0001:0000:0200:0003:0");
    let sent = router.forwards(&frame(&packet), 2);
    assert_eq!(sent[24..32], octets("fcbb:bb00:0100:0003::")[..8]);
    assert_eq!(counted(&router, first).0 + counted(&router, second).0, 2);
}

/// RFC 9800, 4.2.1, of 48 bits of block and 32 of C-SID, four to an entry. Index 0 takes the next entry's
/// last C-SID; an index the one below it; a C-SID of 0 the next entry whole.
#[test]
fn replace_csid_walks_the_entries() {
    let segment = Segment {
        block: 6,
        csid: 4,
        ..with(segment_kind::END, flavours::REPLACE_CSID)
    };
    let mut router = Router::new();
    router.sid("fcbb:0:1:1:1::/80", segment);
    router.via("fcbb:0:1:2:2::/80", 2);
    router.via("fcbb:0:1:3:3::/80", 3);
    router.via("fc00:3::/32", 1);
    // Visited last; then two C-SIDs, of which the one at the end comes first.
    let entries = list(&[LAST, "::3:3:2:2"]);
    let packet = |dst: &str, left| ip6(SRC, dst, 43, &srh(59, left, &entries, &[]));
    // From a whole SID, with two left of a reduced list.
    let sent = router.forwards(&frame(&packet("fcbb:0:1:1:1::", 2)), 2);
    assert_eq!(sent, older(packet("fcbb:0:1:2:2::3", 1)));
    // The second C-SID of the entry.
    let sent = router.forwards(&frame(&packet("fcbb:0:1:1:1::3", 1)), 3);
    assert_eq!(sent, older(packet("fcbb:0:1:3:3::2", 1)));
    // Below it there is none: the last entry, as it is.
    let sent = router.forwards(&frame(&packet("fcbb:0:1:1:1::2", 1)), 1);
    assert_eq!(sent, older(packet(LAST, 0)));
    // Nothing is left.
    router.drops(&frame(&packet("fcbb:0:1:1:1::", 0)), Reason::Payload);
    // With an index the list must reach as far as segments left.
    router.drops(&frame(&packet("fcbb:0:1:1:1::3", 2)), Reason::BadSrh);
}

/// RFC 9800, 4.2: with PSP the SRH goes with the last C-SID that it holds.
#[test]
fn replace_csid_with_psp() {
    let segment = Segment {
        block: 6,
        csid: 4,
        ..with(segment_kind::END, flavours::REPLACE_CSID | flavours::PSP)
    };
    let mut router = Router::new();
    router.sid("fcbb:0:1:1:1::/80", segment);
    router.via("fcbb:0:1:2:2::/80", 2);
    router.via("fcbb:0:1:3:3::/80", 3);
    let entries = list(&["::3:3:2:2"]);
    let packet = |dst: &str, left| {
        let header = srh(17, left, &entries, &[]);
        ip6(SRC, dst, 43, &[header, udp(1)].concat())
    };
    let sent = router.forwards(&frame(&packet("fcbb:0:1:1:1::", 1)), 2);
    assert_eq!(sent, older(packet("fcbb:0:1:2:2::3", 0)));
    let bare = |dst: &str| ip6(SRC, dst, 43, &srh(17, 0, &entries, &[]));
    let sent = router.forwards(&frame(&bare("fcbb:0:1:1:1::3")), 3);
    assert_eq!(sent, older(ip6(SRC, "fcbb:0:1:3:3::2", 17, &[])));
}

/// RFC 8986, 4.4 to 4.8: the inner packet, whatever the outer hop limit; a TTL of its own.
#[test]
fn inner_packets_are_taken_out() {
    let six = ip6("2001:db8:1::1", "2001:db8:2::2", 17, &udp(9));
    let four = ip4("192.0.2.1", "198.51.100.2", 17, &udp(9));
    for (kind, takes6, takes4) in [
        (segment_kind::END_DX6, true, false),
        (segment_kind::END_DX4, false, true),
        (segment_kind::END_DT6, true, false),
        (segment_kind::END_DT4, false, true),
        (segment_kind::END_DT46, true, true),
    ] {
        let (mut router, number) = router(plain(kind));
        router.via("2001:db8:2::/48", 2);
        router.via("198.51.100.0/24", 3);
        for (next, inner, takes, adjacency) in [(41, &six, takes6, 2), (4, &four, takes4, 3)] {
            let done = srh(next, 0, &list(&[SID]), &[]);
            let mut packet = ip6(SRC, SID, 43, &[done, inner.clone()].concat());
            packet[7] = 0;
            if takes {
                let sent = router.forwards(&frame(&packet), adjacency);
                assert_eq!(sent, older(inner.clone()));
                let sent = router.forwards(&frame(&ip6(SRC, SID, next, inner)), adjacency);
                assert_eq!(sent, older(inner.clone()));
            } else {
                router.drops(&frame(&packet), Reason::Payload);
            }
        }
        router.drops(&frame(&routed(1)), Reason::SegmentsLeft);
        router.drops(&frame(&ip6(SRC, SID, 143, &six)), Reason::Payload);
        router.drops(&frame(&ip6(SRC, SID, 41, &six[..39])), Reason::Payload);
        let counted = router.engine.counters().segment(number);
        assert_eq!(counted[segment_counter::of(Reason::SegmentsLeft)], 1);
    }
}

/// Spec D.3: an SRH that is none counts as absent, and so does what it would have left.
#[test]
fn a_bad_srh_does_not_hinder_taking_out() {
    let (mut router, _) = router(plain(segment_kind::END_DT6));
    router.via("2001:db8:2::/48", 2);
    let six = ip6("2001:db8:1::1", "2001:db8:2::2", 17, &udp(9));
    let bad = srh(41, 9, &list(&[SID]), &[]);
    let sent = router.forwards(&frame(&ip6(SRC, SID, 43, &[bad, six.clone()].concat())), 2);
    assert_eq!(sent, older(six));
}

/// Inner TTLs of 1, addresses that may not appear, checksums: the kernel's, as on arrival.
#[test]
fn inner_packets_are_checked() {
    let (mut router, number) = router(plain(segment_kind::END_DT46));
    router.via("198.51.100.0/24", 3);
    let with = |inner: &[u8]| frame(&ip6(SRC, SID, 4, inner));
    let mut four = ip4("192.0.2.1", "198.51.100.2", 17, &udp(9));
    four[8] = 1;
    router.punts(&with(&four), Reason::BadChecksum);
    set_checksum(&mut four);
    router.punts(&with(&four), Reason::TtlExceeded);
    let martian = ip4("127.0.0.1", "198.51.100.2", 17, &udp(9));
    router.punts(&with(&martian), Reason::MartianSource);
    let nowhere = ip4("192.0.2.1", "203.0.113.1", 17, &udp(9));
    router.punts(&with(&nowhere), Reason::NoRoute);
    let counted = router.engine.counters().segment(number);
    assert_eq!(counted[segment_counter::FAILED + 12], 2);
    assert_eq!(counted[segment_counter::of(Reason::NoRoute)], 1);
}

/// Linux does not shorten what it takes out to its own length: padding inside the outer packet is sent.
#[test]
fn what_follows_an_inner_packet_stays() {
    let (mut router, _) = router(plain(segment_kind::END_DT4));
    router.via("198.51.100.0/24", 3);
    let mut four = ip4("192.0.2.1", "198.51.100.2", 17, &udp(9));
    let expected = [older(four.clone()), vec![1, 2, 3]].concat();
    four.extend([1, 2, 3]);
    let mut frame = frame(&ip6(SRC, SID, 4, &four));
    frame.extend([9; 20]);
    let sent = router.forwards(&frame, 3);
    assert_eq!(sent[..expected.len()], expected);
    // Behind the outer packet only as far as Ethernet's minimum asks for it.
    assert_eq!(sent.len(), 46);
}

/// Spec D.3, End.DX4: the neighbour of a gateway will do, one on a connected prefix is the kernel's.
#[test]
fn end_dx4_and_its_trap() {
    let four = ip4("192.0.2.1", "198.51.100.2", 17, &udp(9));
    let packet = frame(&ip6(SRC, SID, 4, &four));
    for (flags, trapped) in [(0, true), (segment_flags::DIRECT_NH4, false)] {
        let mut target = [0; 16];
        target[..4].copy_from_slice(&v4("10.0.0.9").to_be_bytes());
        let (mut router, _) = router(Segment {
            target,
            flags,
            ..plain(segment_kind::END_DX4)
        });
        let connected = router.group(Group::Neighbour(5));
        router.route4(0, "10.0.0.9/32", connected);
        if trapped {
            router.punts(&packet, Reason::Encap);
            router.via("10.0.0.9/32", 5);
        }
        assert_eq!(router.forwards(&packet, 5), older(four.clone()));
    }
}

/// Tables of their own; those of the link are not asked.
#[test]
fn end_dt_looks_up_in_its_tables() {
    let (mut router, _) = router(Segment {
        table4: OTHER_TABLE,
        table6: OTHER_TABLE,
        ..plain(segment_kind::END_DT46)
    });
    let six = ip6("2001:db8:1::1", "2001:db8:2::2", 17, &udp(9));
    let four = ip4("192.0.2.1", "198.51.100.2", 17, &udp(9));
    let (to6, to4) = (
        router.group(Group::Single(5)),
        router.group(Group::Single(6)),
    );
    router.route6(OTHER_TABLE, "::/0", to6);
    router.route4(OTHER_TABLE, "0.0.0.0/0", to4);
    router.forwards(&frame(&ip6(SRC, SID, 41, &six)), 5);
    router.forwards(&frame(&ip6(SRC, SID, 4, &four)), 6);
}

/// RFC 8986, 4.9: the frame as it is, by 0x600 and the MTU.
#[test]
fn end_dx2_sends_frames() {
    let (mut router, number) = router(Segment {
        out: OUT + 3,
        mtu: 100,
        ..plain(segment_kind::END_DX2)
    });
    let inner = |kind: [u8; 2], len: usize| {
        let mut inner = vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, kind[0], kind[1]];
        inner.extend(vec![0x55; len]);
        inner
    };
    let with = |inner: &[u8]| frame(&ip6(SRC, SID, 143, inner));
    let fits = inner([0x81, 0], 100);
    let (verdict, sent) = router.pass(&with(&fits));
    let Verdict::Forward {
        index, adjacency, ..
    } = verdict
    else {
        panic!("{verdict:?}");
    };
    assert_eq!((index, adjacency), (OUT + 3, NO_ADJACENCY));
    assert_eq!(sent, fits);
    assert_eq!(counted(&router, number), (1, 40 + 114, 0));
    router.drops(&with(&inner([6, 0], 101)), Reason::SegmentLink);
    router.drops(&with(&inner([5, 0xff], 20)), Reason::Payload);
    router.drops(&with(&fits[..13]), Reason::Payload);
    router.drops(&frame(&ip6(SRC, SID, 41, &fits)), Reason::Payload);
    assert_eq!(router.pass(&with(&inner([6, 0], 0))).1, inner([6, 0], 0));
}

/// RFC 8986, 4.10.
#[test]
fn end_dx2v_goes_by_the_vlan() {
    let mut router = Router::new();
    let entries = [(7, 100, OUT + 1), (8, 100, 0), (4094, 10, OUT + 2)];
    let words = entries.map(|(vlan, mtu, out)| VlanEntry { vlan, mtu, out }.to_word());
    let template = router.template(&words.map(u64::to_le_bytes).concat());
    router.sid(
        "fc00:1::/32",
        Segment {
            template,
            out: 3,
            ..plain(segment_kind::END_DX2V)
        },
    );
    let inner = |tag: [u8; 4]| {
        let mut inner = vec![1; 12];
        inner.extend(tag);
        inner.extend([8, 0, 1, 2, 3, 4, 5, 6, 7]);
        inner
    };
    let with = |tag| frame(&ip6(SRC, SID, 143, &inner(tag)));
    // Priority and drop eligibility are no part of the VLAN.
    let (verdict, sent) = router.pass(&with([0x81, 0, 0xf0, 7]));
    assert!(matches!(verdict, Verdict::Forward { index, .. } if index == OUT + 1));
    assert_eq!(sent, inner([0x81, 0, 0xf0, 7]));
    router.drops(&with([0x81, 0, 0, 8]), Reason::SegmentLink);
    router.drops(&with([0x81, 0, 0x0f, 0xfe]), Reason::SegmentLink);
    router.drops(&with([0x81, 0, 0, 9]), Reason::Payload);
    router.drops(&with([0x88, 0xa8, 0, 7]), Reason::Payload);
}
