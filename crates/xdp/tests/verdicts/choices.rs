//! Which member of a group a packet takes: policies 0 and 1, weights, and when there is no choice.

use raddle_image::Reason;
use raddle_xdp::Verdict;

use crate::bench::{SRC4, bent, packet4, set_up, src6, to4, to6};
use crate::hashes::{DST_MANY, chosen, hash4, hash6, many, member_of};
use raddle_xdp_testing::bench::SEED;
use raddle_xdp_testing::frames::{self, udp4, udp6};
use raddle_xdp_testing::image::config;
use raddle_xdp_testing::net::in_namespace;
use raddle_xdp_testing::packets::addr;

#[test]
fn policies() {
    in_namespace("policies", || {
        let b = set_up();
        let two_way = [to4([198, 51, 100, 1]), to6("2001:db8:2::1")];
        b.memory.store_config(&config(0, 1, 1));
        for frame in &two_way {
            b.kernel(frame, Reason::SeedUnknown);
        }
        b.forward(&packet4(), 0);
        for policy in 0..4 {
            b.memory.store_config(&config(SEED, policy, 0));
            b.run(&two_way[0]);
            b.memory.store_config(&config(SEED, 0, policy));
            b.run(&two_way[1]);
        }
        b.memory.store_config(&config(SEED, 4, 0));
        b.kernel(&two_way[0], Reason::HashPolicy);
        b.memory.store_config(&config(SEED, 0, 4));
        b.kernel(&two_way[1], Reason::HashPolicy);
        // The smaller MTU of one of the two is found after the choice.
        b.memory.store_config(&config(SEED, 1, 1));
        let mut seen = [false; 2];
        for port in 0..64 {
            let frame = udp4(SRC4, [198, 51, 100, 1], (port, 80), 1500 - 28);
            match b.run(&frame).0 {
                Verdict::Forward { adjacency: 0, .. } => seen[0] = true,
                Verdict::Kernel(Reason::Mtu) => seen[1] = true,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen, [true; 2]);
    });
}

#[test]
fn l4_choices() {
    in_namespace("l4_choices", || {
        let b = set_up();
        let config = config(SEED, 1, 1);
        let weight_sets: [&[u32]; 7] = [
            &[1, 1],
            &[1; 64],
            &[1; 1024],
            &[1; 7],
            &[255, 1, 17, 90, 256],
            &[1, 65535, 1],
            &[65535, 1],
        ];
        for weights in weight_sets {
            many(&b, weights);
            for n in 0..300u16 {
                let (sport, dport) = (n.wrapping_mul(40503), 443u16.rotate_left(u32::from(n)));
                let src = [10, n as u8, (n >> 8) as u8, 1];
                let dst = [10, 15, n.wrapping_mul(7) as u8, 2];
                let got = chosen(&b, &udp4(src, dst, (sport, dport), 8));
                let hash = hash4(&config, 17, (sport, dport), src, dst);
                assert_eq!(got, member_of(weights, hash), "{weights:?} {hash:#x}");

                let (mut s, mut d) = (src6(), addr("2001:db8:9::"));
                s[15] = n as u8;
                d[14] = (n as u8).wrapping_mul(3);
                let got = chosen(&b, &udp6(s, d, (sport, dport), 8));
                let hash = hash6(&config, 0, 17, (sport, dport), s, d);
                assert_eq!(got, member_of(weights, hash), "{weights:?} {hash:#x}");
            }
        }
    });
}

#[test]
fn l3_choices() {
    in_namespace("l3_choices", || {
        let b = set_up();
        let config = config(SEED, 0, 0);
        b.memory.store_config(&config);
        let weights = [1; 1024];
        many(&b, &weights);
        let expect4 = |frame: &[u8], src, dst| {
            let hash = hash4(&config, 0, (0, 0), src, dst);
            assert_eq!(chosen(&b, frame), member_of(&weights, hash), "{frame:x?}");
        };
        expect4(&udp4(SRC4, DST_MANY, (5, 6), 3), SRC4, DST_MANY);
        // ICMP errors follow the packet that they are about.
        let (isrc, idst) = ([203, 0, 113, 9], [192, 0, 2, 200]);
        let inner = [
            &[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0][..],
            &isrc,
            &idst,
        ]
        .concat();
        for kind in 0..=255u8 {
            let icmp = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &inner].concat();
            let error = matches!(kind, 3 | 4 | 5 | 11 | 12);
            let (src, dst) = if error {
                (isrc, idst)
            } else {
                (SRC4, DST_MANY)
            };
            expect4(&frames::ipv4(SRC4, DST_MANY, 0, 1, &icmp), src, dst);
            // More fragments do not matter, a later fragment does.
            expect4(&frames::ipv4(SRC4, DST_MANY, 0x2000, 1, &icmp), src, dst);
            expect4(&frames::ipv4(SRC4, DST_MANY, 1, 1, &icmp), SRC4, DST_MANY);
            let short = &icmp[..27];
            expect4(&frames::ipv4(SRC4, DST_MANY, 0, 1, short), SRC4, DST_MANY);
        }

        let d6 = addr("2001:db8:9::1");
        let expect6 = |frame: &[u8], label, proto, src, dst| {
            let hash = hash6(&config, label, proto, (0, 0), src, dst);
            assert_eq!(chosen(&b, frame), member_of(&weights, hash), "{frame:x?}");
        };
        for label in [0, 1, 0xabcde, 0xfffff] {
            for proto in [6, 17, 60, 58] {
                let frame = frames::ipv6(src6(), d6, label, proto, &[0x80; 48]);
                expect6(&frame, label, proto, src6(), d6);
                // The traffic class does not count.
                let classed = bent(frame, |f| {
                    f[14] |= 0xf;
                    f[15] |= 0xf0;
                });
                expect6(&classed, label, proto, src6(), d6);
            }
        }
        let (isrc, idst) = (addr("2001:db8:77::1"), addr("2001:db8:88::2"));
        let inner = frames::ipv6(isrc, idst, 0x12345, 6, &[])[14..].to_vec();
        for kind in 0..=255u8 {
            let icmp = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &inner].concat();
            let frame = frames::ipv6(src6(), d6, 7, 58, &icmp);
            if (1..=4).contains(&kind) {
                expect6(&frame, 0x12345, 6, isrc, idst);
            } else {
                expect6(&frame, 7, 58, src6(), d6);
            }
            let short = frames::ipv6(src6(), d6, 7, 58, &icmp[..47]);
            expect6(&short, 7, 58, src6(), d6);
        }
    });
}
