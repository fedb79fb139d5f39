//! What counts as ports of a packet: protocols, fragments, extension headers.

use raddle_image::Reason;

use crate::bench::{SRC4, set_up, src6};
use crate::hashes::{DST_MANY, chosen, hash4, hash6, many, member_of};
use raddle_xdp_testing::bench::SEED;
use raddle_xdp_testing::frames;
use raddle_xdp_testing::image::config;
use raddle_xdp_testing::net::in_namespace;
use raddle_xdp_testing::packets::addr;

#[test]
fn what_counts_as_ports() {
    in_namespace("what_counts_as_ports", || {
        let b = set_up();
        let config = config(SEED, 1, 1);
        let weights = [1; 1024];
        many(&b, &weights);
        let payload: Vec<u8> = (1..=40).collect();
        let at = |n: usize| {
            let word = |i: usize| u16::from_be_bytes([payload[i], payload[i + 1]]);
            (word(n), word(n + 2))
        };
        let d6 = addr("2001:db8:9::1");
        for proto in 1..=255u8 {
            let ports = match proto {
                6 | 17 | 33 | 50 | 132 | 136 => at(0),
                51 => at(4),
                _ => (0, 0),
            };
            let expected = member_of(&weights, hash4(&config, proto, ports, SRC4, DST_MANY));
            let frame = frames::ipv4(SRC4, DST_MANY, 0x4000, proto, &payload);
            assert_eq!(chosen(&b, &frame), expected, "protocol {proto}");
            for fragment in [0x2000, 0x0001, 0x1fff, 0x2010] {
                let frame = frames::ipv4(SRC4, DST_MANY, fragment, proto, &payload);
                let hash = hash4(&config, proto, (0, 0), SRC4, DST_MANY);
                assert_eq!(
                    chosen(&b, &frame),
                    member_of(&weights, hash),
                    "fragment {proto}"
                );
            }
            if !matches!(proto, 43 | 44 | 60) {
                let expected = member_of(&weights, hash6(&config, 0, proto, ports, src6(), d6));
                // The flow label does not count under this policy.
                let frame = frames::ipv6(src6(), d6, 0xabcde, proto, &payload);
                assert_eq!(chosen(&b, &frame), expected, "IPv6 protocol {proto}");
            }
        }
        // Too short for ports: none, also where padding follows.
        for (proto, need) in [(17, 4), (51, 8)] {
            for have in 0..=need {
                let ports = match (have == need, proto) {
                    (false, _) => (0, 0),
                    (true, 17) => at(0),
                    (true, _) => at(4),
                };
                let mut frame = frames::ipv4(SRC4, DST_MANY, 0, proto, &payload[..have]);
                frame.resize(60, 0xee);
                let hash = hash4(&config, proto, ports, SRC4, DST_MANY);
                assert_eq!(
                    chosen(&b, &frame),
                    member_of(&weights, hash),
                    "{proto} {have}"
                );
                let mut frame = frames::ipv6(src6(), d6, 0, proto, &payload[..have]);
                frame.resize(80, 0xee);
                let hash = hash6(&config, 0, proto, ports, src6(), d6);
                assert_eq!(
                    chosen(&b, &frame),
                    member_of(&weights, hash),
                    "{proto} {have}"
                );
            }
        }
    });
}

#[test]
fn extension_headers() {
    in_namespace("extension_headers", || {
        let b = set_up();
        let config = config(SEED, 1, 1);
        let weights = [1; 1024];
        many(&b, &weights);
        let d6 = addr("2001:db8:9::1");
        let expect = |frame: &[u8], proto, ports| {
            let hash = hash6(&config, 0, proto, ports, src6(), d6);
            assert_eq!(
                chosen(&b, frame),
                member_of(&weights, hash),
                "{proto} {ports:?}"
            );
        };
        let udp = [0x12, 0x34, 0x00, 0x35, 0, 8, 0, 0];
        let ports = (0x1234, 0x35);
        let options = |next: u8, len: u8| {
            let mut header = vec![0; (usize::from(len) + 1) * 8];
            header[..2].copy_from_slice(&[next, len]);
            header
        };
        // Destination options, then routing, then UDP.
        let payload = [options(43, 0), options(17, 2), udp.to_vec()].concat();
        expect(&frames::ipv6(src6(), d6, 0, 60, &payload), 17, ports);
        // Hop-by-hop that is not the first header.
        let payload = [options(0, 0), options(6, 1), udp.to_vec()].concat();
        expect(&frames::ipv6(src6(), d6, 0, 60, &payload), 6, ports);
        // AH ends the walk; its SPI counts.
        let payload = [options(51, 0), vec![17, 4, 0, 0, 9, 8, 7, 6]].concat();
        expect(
            &frames::ipv6(src6(), d6, 0, 43, &payload),
            51,
            (0x0908, 0x0706),
        );
        // Fragments, also the first and the atomic, have no ports.
        let payload = [vec![17, 0, 0, 0, 1, 2, 3, 4], udp.to_vec()].concat();
        expect(&frames::ipv6(src6(), d6, 0, 44, &payload), 17, (0, 0));
        let chained = [options(44, 0), payload].concat();
        expect(&frames::ipv6(src6(), d6, 0, 60, &chained), 17, (0, 0));
        // Cut off: the last protocol that was read, no ports.
        expect(&frames::ipv6(src6(), d6, 0, 60, &[17]), 60, (0, 0));
        expect(
            &frames::ipv6(src6(), d6, 0, 44, &[17, 0, 0, 0, 1, 2, 3]),
            44,
            (0, 0),
        );
        expect(
            &frames::ipv6(src6(), d6, 0, 60, &options(17, 0)),
            17,
            (0, 0),
        );
        expect(
            &frames::ipv6(src6(), d6, 0, 60, &[17, 200, 0, 0, 0, 0, 0, 0]),
            17,
            (0, 0),
        );
        // Encapsulation is not looked into.
        expect(&frames::ipv6(src6(), d6, 0, 41, &[0x60; 60]), 41, (0, 0));
        // In a later buffer of the frame: to the kernel.
        let deep = [options(60, 255), options(17, 255), udp.to_vec()].concat();
        let deep = frames::ipv6(src6(), d6, 0, 60, &deep);
        assert!(deep.len() > 3700);
        b.kernel(&deep, Reason::DeepHeaders);
    });
}
