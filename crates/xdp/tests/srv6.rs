//! SRv6 in the program: every behaviour on packets made by hand, through test runs.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::sync::atomic::Ordering;

use raddle_image::{
    ADJ_SEGMENT, Adjacency, GROUP_NO_PUNT, Group, Reason, RoundRobinHead, Segment, WANTED, Wanted,
    segment_counter, segment_flags, segment_kind,
};
use raddle_xdp::{Counters, NO_ADJACENCY, SegmentCounts, Verdict};
use raddle_xdp_testing::bench::{Bench, DST_MAC, SINGLE, SRC_MAC};
use raddle_xdp_testing::engines::{cpus, pin_to};
use raddle_xdp_testing::frames::udp4;
use raddle_xdp_testing::image::{config, threshold};
use raddle_xdp_testing::net::in_namespace;
use raddle_xdp_testing::packets::{Srh, addr, inner4, inner6, ipv6, outer, packet6};
use raddle_xdp_testing::segments::{self, segment, set_up};

/// A frame whose destination is the SID, with this SRH and payload.
fn to_sid(srh: &Srh, payload: &[u8]) -> Vec<u8> {
    outer("2001:db8:ff::1", segments::SID, srh, payload)
}

fn forwarded(bench: &Bench) -> Verdict {
    Verdict::Forward {
        adjacency: 0,
        index: bench.out,
    }
}

#[test]
fn end_goes_to_the_next_segment() {
    in_namespace("end", || {
        let bench = set_up();
        bench.sid(&segment(segment_kind::END));
        let srh = Srh::new(17, 1, &["2001:db8:1::7", segments::SID]);
        let frame = to_sid(&srh, &[0xa5; 20]);
        let (verdict, out) = bench.run(&frame);
        assert_eq!(verdict, forwarded(&bench));
        let mut expected = frame.clone();
        expected[..6].copy_from_slice(&DST_MAC);
        expected[6..12].copy_from_slice(&SRC_MAC);
        expected[21] -= 1;
        expected[38..54].copy_from_slice(&addr("2001:db8:1::7"));
        expected[57] = 0;
        assert_eq!(out, expected);
        let counts = bench.counts();
        assert_eq!(counts.packets(), 1);
        assert_eq!(counts.bytes(), frame.len() as u64 - 14);
        assert_eq!(counts.errors(), 0);
        let totals = bench.engine.counters();
        assert_eq!(totals.adjacency(0).packets, 1);
        assert_eq!(totals.link(5).packets, 1);
    });
}

#[test]
fn end_drops_what_has_no_next_segment() {
    in_namespace("end-drops", || {
        let bench = set_up();
        bench.sid(&segment(segment_kind::END));
        let plain = ipv6("2001:db8:ff::1", segments::SID, 17, &[0; 20]);
        bench.drops(&plain, Reason::NoSrh);
        let srh = Srh::new(17, 0, &["2001:db8:1::7", segments::SID]);
        bench.drops(&to_sid(&srh, &[0; 20]), Reason::NoSrh);
        let srh = Srh::new(17, 3, &["2001:db8:1::7", segments::SID]);
        bench.drops(&to_sid(&srh, &[0; 20]), Reason::BadSrh);
        let mut srh = Srh::new(17, 1, &["2001:db8:1::7", segments::SID]);
        srh.tlvs = vec![4, 7, 0, 0, 0, 0, 0, 0];
        bench.drops(&to_sid(&srh, &[0; 20]), Reason::BadSrh);
        srh.tlvs = vec![4, 6, 0, 0, 0, 0, 0, 0];
        let (verdict, _) = bench.run(&to_sid(&srh, &[0; 20]));
        assert_eq!(verdict, forwarded(&bench));
        let counts = bench.counts();
        assert_eq!((counts.packets(), counts.errors()), (1, 4));
    });
}

#[test]
fn what_the_kernel_gets_is_as_it_came() {
    in_namespace("end-kernel", || {
        let bench = set_up();
        bench.sid(&segment(segment_kind::END));
        let nowhere = Srh::new(17, 1, &["2001:db8:f::7", segments::SID]);
        bench.fails(&to_sid(&nowhere, &[0; 20]), Reason::NoRoute);
        let local = Srh::new(17, 1, &["2001:db8::9", segments::SID]);
        bench.fails(&to_sid(&local, &[0; 20]), Reason::Local);
        let srh = Srh::new(17, 1, &["2001:db8:1::7", segments::SID]);
        let mut frame = to_sid(&srh, &[0; 20]);
        frame[21] = 1;
        bench.fails(&frame, Reason::TtlExceeded);
        let mut hmac = Srh::new(17, 1, &["2001:db8:1::7", segments::SID]);
        hmac.flags = 8;
        bench.fails(&to_sid(&hmac, &[0; 20]), Reason::HmacCheck);
        let (large, _) = bench.run(&to_sid(&srh, &[0; 1500]));
        assert_eq!(large, Verdict::Kernel(Reason::Mtu));
        assert_eq!(bench.counts().errors(), 5);
        assert_eq!(bench.counts().packets(), 0);
        let discard = Srh::new(17, 1, &["2001:db8:4::7", segments::SID]);
        bench.drops(&to_sid(&discard, &[0; 20]), Reason::Blackhole);
        assert_eq!(bench.counts().packets(), 1);
        let own = Segment {
            flags: raddle_image::segment_flags::NO_PUNT,
            ..segment(segment_kind::END)
        };
        bench.sid(&own);
        bench.drops(&to_sid(&nowhere, &[0; 20]), Reason::NoRoute);
        // A record that is the kernel's, but of our own.
        bench.sid(&Segment {
            reason: Reason::Encap as u8,
            flags: raddle_image::segment_flags::NO_PUNT,
            ..Segment::default()
        });
        bench.drops(&to_sid(&nowhere, &[0; 20]), Reason::Encap);
        // Without counters nothing is counted.
        assert_eq!(bench.counts().errors(), 5);
    });
}

#[test]
fn end_x_goes_to_its_nexthop() {
    in_namespace("end-x", || {
        let bench = set_up();
        bench.sid(&Segment {
            target: addr("2001:db8:1::1"),
            ..segment(segment_kind::END_X)
        });
        // The next segment itself leads nowhere.
        let srh = Srh::new(17, 1, &["2001:db8:f::7", segments::SID]);
        let (verdict, out) = bench.run(&to_sid(&srh, &[0; 20]));
        assert_eq!(verdict, forwarded(&bench));
        assert_eq!(out[38..54], addr("2001:db8:f::7"));
        bench.sid(&Segment {
            table6: 1,
            ..segment(segment_kind::END_T)
        });
        let (verdict, _) = bench.run(&to_sid(&srh, &[0; 20]));
        assert_eq!(verdict, forwarded(&bench));
    });
}

#[test]
fn inner_packets_come_out() {
    in_namespace("decap", || {
        let bench = set_up();
        let srh = |next| Srh::new(next, 0, &[segments::SID]);
        let four = inner4([10, 0, 0, 1], [192, 0, 2, 7], 64, &[1; 30]);
        let six = inner6("2001:db8:aa::1", "2001:db8:1::7", 64, &[2; 30]);
        for (kind, next, inner) in [
            (segment_kind::END_DX4, 4, &four),
            (segment_kind::END_DT4, 4, &four),
            (segment_kind::END_DT46, 4, &four),
            (segment_kind::END_DX6, 41, &six),
            (segment_kind::END_DT6, 41, &six),
            (segment_kind::END_DT46, 41, &six),
        ] {
            bench.sid(&segment(kind));
            let with = to_sid(&srh(next), inner);
            let without = ipv6("2001:db8:ff::1", segments::SID, next, inner);
            let mut padded = without.clone();
            padded.extend([0; 9]);
            for frame in [&with, &without, &padded] {
                let (verdict, out) = bench.run(frame);
                assert_eq!(verdict, forwarded(&bench), "{kind} {next}");
                assert_eq!(out[..12], [DST_MAC, SRC_MAC].concat());
                let ether_type = if next == 4 { [8, 0] } else { [0x86, 0xdd] };
                assert_eq!(out[12..14], ether_type);
                assert_eq!(out.len(), 14 + inner.len());
                let ttl = if next == 4 { 8 } else { 7 };
                assert_eq!(out[14 + ttl], 63);
                assert_eq!(out[14 + 20..], inner[20..]);
            }
            let left = Srh::new(next, 1, &[segments::SID, "2001:db8:1::7"]);
            bench.drops(&to_sid(&left, inner), Reason::SegmentsLeft);
            let other = ipv6("2001:db8:ff::1", segments::SID, 17, inner);
            bench.drops(&other, Reason::Payload);
            let mut late = without.clone();
            late[54 + if next == 4 { 8 } else { 7 }] = 1;
            if next == 4 {
                late[54 + 11] = late[54 + 11].wrapping_add(0);
                let sum = raddle_xdp_testing::frames::checksum(&late[54..74]);
                late[64..66].copy_from_slice(&sum.to_be_bytes());
            }
            bench.fails(&late, Reason::TtlExceeded);
        }
    });
}

#[test]
fn nexthops_of_decapsulated_packets() {
    in_namespace("decap-nexthop", || {
        let bench = set_up();
        let mut target = [0; 16];
        target[..4].copy_from_slice(&[192, 0, 2, 1]);
        let dx4 = Segment {
            target,
            ..segment(segment_kind::END_DX4)
        };
        bench.sid(&dx4);
        let inner = inner4([10, 0, 0, 1], [172, 16, 0, 1], 64, &[1; 30]);
        let frame = ipv6("2001:db8:ff::1", segments::SID, 4, &inner);
        assert_eq!(bench.run(&frame).0, forwarded(&bench));
        bench.memory.store_group(SINGLE, Group::Neighbour(0));
        bench.fails(&frame, Reason::Encap);
        bench.sid(&Segment {
            flags: dx4.flags | raddle_image::segment_flags::DIRECT_NH4,
            ..dx4
        });
        assert_eq!(bench.run(&frame).0, forwarded(&bench));
        let mut spoilt = frame.clone();
        spoilt[54 + 10] ^= 1;
        bench.fails(&spoilt, Reason::BadChecksum);
        bench.sid(&Segment {
            target: addr("2001:db8:1::1"),
            ..segment(segment_kind::END_DX6)
        });
        let inner = inner6("2001:db8:aa::1", "2001:db8:f::7", 64, &[2; 30]);
        let frame = ipv6("2001:db8:ff::1", segments::SID, 41, &inner);
        assert_eq!(bench.run(&frame).0, forwarded(&bench));
    });
}

#[test]
fn frames_come_out() {
    in_namespace("dx2", || {
        let bench = set_up();
        bench.sid(&Segment {
            out: bench.out,
            mtu: 100,
            ..segment(segment_kind::END_DX2)
        });
        let inner = udp4([10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 40);
        let frame = to_sid(&Srh::new(143, 0, &[segments::SID]), &inner);
        let (verdict, out) = bench.run(&frame);
        let sent = Verdict::Forward {
            adjacency: NO_ADJACENCY,
            index: bench.out,
        };
        assert_eq!(verdict, sent);
        assert_eq!(out, inner);
        assert_eq!(bench.counts().bytes(), frame.len() as u64 - 14);
        let without = |inner: &[u8]| ipv6("2001:db8:ff::1", segments::SID, 143, inner);
        let mut padded = without(&inner);
        padded.extend([0; 5]);
        assert_eq!(bench.run(&padded), (sent, inner.clone()));
        let long = udp4([10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 73);
        bench.drops(&without(&long), Reason::SegmentLink);
        bench.drops(&without(&inner[..13]), Reason::Payload);
        let mut old = inner.clone();
        old[12..14].copy_from_slice(&[5, 0xff]);
        bench.drops(&without(&old), Reason::Payload);
        bench.sid(&Segment {
            out: 9999,
            mtu: 100,
            ..segment(segment_kind::END_DX2)
        });
        bench.fails(&without(&inner), Reason::RedirectFailed);
    });
}

/// A group whose members are segment lists of raddle's own: the kernel gets none of its packets, whatever keeps the
/// program from choosing, also behind a SID.
#[test]
fn own_groups_hand_nothing_over() {
    in_namespace("own-groups", || {
        let bench = set_up();
        let memory = &bench.memory;
        let mut header = packet6("2001:db8:f::1", "2001:db8:1::1", 0, 0, &[]);
        header[4..7].fill(0);
        for (place, word) in (0..).zip(header.as_chunks::<8>().0) {
            memory.store_template_word(place, u64::from_le_bytes(*word));
        }
        let list = Segment {
            size: 40,
            flags: segment_flags::NO_PUNT,
            ..segment(segment_kind::ENCAPS)
        };
        memory.store_segment(8, &list);
        for number in [2, 3] {
            let to_list = Adjacency {
                index: 8,
                state: ADJ_SEGMENT,
                ..Adjacency::default()
            };
            memory.store_adjacency(number, &to_list);
        }
        let own = || {
            let word = &memory.groups.words()[segments::TWO_WAY as usize];
            word.fetch_or(GROUP_NO_PUNT, Ordering::Relaxed);
        };
        let several = || {
            threshold(memory, segments::TWO_WAY, 0, &[(2, 1), (3, 1)]);
            own();
        };
        several();
        bench.sid(&segment(segment_kind::END_DT6));
        let to = "2001:db8:2::1";
        let plain = |next, payload: &[u8]| packet6("2001:db8:aa::1", to, next, 64, payload);
        // Alone, and behind a SID of the kernel's.
        let both = |packet: &[u8]| {
            let alone = [&[0; 12], &[0x86, 0xdd][..], packet].concat();
            let mut alone = alone;
            alone[..6].copy_from_slice(&raddle_xdp_testing::frames::IN_MAC);
            [alone, ipv6("2001:db8:ff::1", segments::SID, 41, packet)]
        };
        let udp = both(&plain(17, &[0, 7, 0, 9, 0, 8, 0, 0]));
        let drops = |frames: &[Vec<u8>], reason| {
            for frame in frames {
                bench.drops(frame, reason);
            }
        };
        for policy in [1, 3] {
            memory.store_config(&config(7, policy, policy));
            for frame in &udp {
                assert_eq!(bench.run(frame).0, forwarded(&bench), "{policy}");
            }
        }
        memory.store_config(&config(7, 4, 4));
        drops(&udp, Reason::HashPolicy);
        for policy in [1, 2] {
            memory.store_config(&config(0, policy, policy));
            drops(&udp, Reason::SeedUnknown);
        }
        let mut late = both(&plain(17, &[0, 7, 0, 9, 0, 8, 0, 0]));
        late[0][21] = 1;
        late[1][54 + 7] = 1;
        drops(&late, Reason::TtlExceeded);
        memory.store_config(&config(7, 1, 1));
        for frame in &late {
            // The list does not look at it, but what is put around has it.
            bench.drops(frame, Reason::TtlExceeded);
        }
        let options = |next: u8| [&[next, 255][..], &[0; 2046]].concat();
        let deep = [options(60), options(17), vec![0; 8]].concat();
        drops(&both(&plain(60, &deep))[..1], Reason::DeepHeaders);
        let first = 40;
        let head = RoundRobinHead {
            total: 2,
            stride: 0,
            slot: 1,
            gap: 1 << 30,
        };
        for (place, word) in (first..).zip(head.to_words()) {
            memory.store_member_word(place, word);
        }
        memory.store_member_word(42, 2 << 32);
        memory.store_member_word(43, 3 << 32);
        memory.store_group(segments::TWO_WAY, Group::Flowlet { first, count: 2 });
        own();
        assert_eq!(bench.run(&udp[0]).0, forwarded(&bench));
        drops(&late, Reason::TtlExceeded);
        memory.store_config(&config(0, 1, 1));
        drops(&udp, Reason::SeedUnknown);
        memory.store_config(&config(7, 1, 1));
        for reason in [
            Reason::ImageFull,
            Reason::Encap,
            Reason::OutLink,
            Reason::NoRoute,
        ] {
            memory.store_group(segments::TWO_WAY, Group::Kernel(reason));
            bench.fails(&udp[1], reason);
            own();
            let before = bench.engine.counters();
            drops(&udp, reason);
            let after = bench.engine.counters();
            // Not among those that the kernel got.
            let moved = |of: fn(&Counters, Reason) -> u64| of(&after, reason) - of(&before, reason);
            assert_eq!(moved(|counters, reason| counters.reason(reason).packets), 2);
            assert_eq!(
                moved(|counters, reason| counters.dropped(reason).packets),
                2
            );
        }
    });
}

/// Hosts on connected prefixes that nobody else would have resolved are named, each once, and not for the kernel's
/// SIDs, whose packets the kernel gets.
#[test]
fn lacking_neighbours_are_named() {
    in_namespace("wanted", || {
        let bench = set_up();
        let places = bench.engine.wanted().unwrap();
        bench
            .memory
            .store_group(segments::TWO_WAY, Group::Kernel(Reason::Unresolved));
        bench
            .memory
            .store_group(SINGLE, Group::Kernel(Reason::Unresolved));
        let six = |last: u16| {
            let inner = inner6(
                "2001:db8:aa::1",
                &format!("2001:db8:2::{last:x}"),
                64,
                &[2; 30],
            );
            ipv6("2001:db8:ff::1", segments::SID, 41, &inner)
        };
        let inner = inner4([10, 0, 0, 1], [192, 0, 2, 7], 64, &[1; 30]);
        let four = ipv6("2001:db8:ff::1", segments::SID, 4, &inner);
        bench.sid(&segment(segment_kind::END_DT46));
        bench.fails(&six(7), Reason::Unresolved);
        assert_eq!(places.take(99), []);
        let own = Segment {
            flags: segment_flags::NO_PUNT,
            ..segment(segment_kind::END_DT46)
        };
        bench.sid(&own);
        for _ in 0..3 {
            bench.drops(&six(7), Reason::Unresolved);
            bench.drops(&four, Reason::Unresolved);
        }
        let host = |group, address: &str| Wanted::Host {
            group,
            address: address.parse().unwrap(),
        };
        let mut named = places.take(1);
        named.extend(places.take(99));
        named.sort_by_key(|wanted| wanted.to_words());
        let both = [
            host(SINGLE, "192.0.2.7"),
            host(segments::TWO_WAY, "2001:db8:2::7"),
        ];
        assert_eq!(named, both);
        assert_eq!(places.take(99), []);
        // No more than there are places, whoever scans.
        for last in 0..500 {
            bench.drops(&six(last), Reason::Unresolved);
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let named = places.take(999).len();
        assert!((WANTED..=WANTED * cpus).contains(&named), "{named}");
        // One that is known and not valid.
        bench.memory.store_group(SINGLE, Group::Neighbour(5));
        let failed = Adjacency {
            reason: Reason::Unresolved as u8,
            ..Adjacency::default()
        };
        bench.memory.store_adjacency(5, &failed);
        bench.drops(&four, Reason::Unresolved);
        assert_eq!(places.take(99), [Wanted::Adjacency(5)]);
    });
}

/// Where the programs for segments are not there, the kernel gets what is its.
#[test]
fn without_the_programs_own_segments_drop() {
    in_namespace("own-alone", || {
        let bench = segments::set_up_without();
        let frame = to_sid(
            &Srh::new(17, 1, &["2001:db8:1::7", segments::SID]),
            &[0; 20],
        );
        bench.sid(&segment(segment_kind::END));
        assert_eq!(bench.run(&frame).0, Verdict::Kernel(Reason::Encap));
        bench.sid(&Segment {
            flags: segment_flags::NO_PUNT,
            ..segment(segment_kind::END)
        });
        bench.drops(&frame, Reason::Encap);
    });
}

#[test]
fn cpus_count_apart() {
    in_namespace("cpus", || {
        let bench = set_up();
        bench.sid(&segment(segment_kind::END));
        let srh = Srh::new(17, 1, &["2001:db8:1::7", segments::SID]);
        let frame = to_sid(&srh, &[0; 20]);
        let carried = u64::try_from(frame.len() - 14).unwrap();
        let cpus = cpus();
        for (packets, cpu) in (1..).zip(&cpus) {
            pin_to(&[*cpu]);
            for _ in 0..packets {
                bench.run(&frame);
            }
            bench.drops(
                &ipv6("2001:db8:ff::1", segments::SID, 17, &[0; 20]),
                Reason::NoSrh,
            );
        }
        pin_to(&cpus);
        let counted: Vec<_> = bench.engine.segment_counts(segments::SID_NUMBER).collect();
        for (packets, cpu) in (1..).zip(&cpus) {
            let of = counted[*cpu];
            assert_eq!((of.packets(), of.bytes()), (packets, packets * carried));
            assert_eq!(of.values[segment_counter::of(Reason::NoSrh)], 1);
            assert_eq!(of.errors(), 1);
        }
        let others = (0..bench.memory.capacity().segments as u32)
            .filter(|number| *number != segments::SID_NUMBER);
        for number in others {
            let sum: SegmentCounts = bench.engine.segment_counts(number).sum();
            assert_eq!(sum, SegmentCounts::default(), "segment {number}");
        }
    });
}

#[test]
fn counters_are_cleared() {
    in_namespace("clear", || {
        let bench = set_up();
        bench.sid(&segment(segment_kind::END));
        bench.drops(
            &ipv6("2001:db8:ff::1", segments::SID, 17, &[0; 20]),
            Reason::NoSrh,
        );
        let srh = Srh::new(17, 1, &["2001:db8:1::7", segments::SID]);
        bench.run(&to_sid(&srh, &[0; 20]));
        assert_eq!((bench.counts().packets(), bench.counts().errors()), (1, 1));
        bench.engine.clear_segment_counters(segments::SID_NUMBER);
        assert_eq!(bench.counts(), SegmentCounts::default());
    });
}
