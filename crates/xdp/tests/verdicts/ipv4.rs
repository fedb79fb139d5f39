//! Steps A1 to A13.

use std::sync::atomic::Ordering;

use raddle_image::{Group, Reason, config_flags, link_flags, local_bit};
use raddle_xdp::Verdict;

use crate::bench::{DST4, SOURCES, SRC4, bent, bent4, from4, packet4, set_up, to4, v4};
use raddle_xdp_testing::bench::{DST_MAC, SINGLE, SRC_MAC};
use raddle_xdp_testing::frames::{self, udp4};
use raddle_xdp_testing::image::adjacency;
use raddle_xdp_testing::net::in_namespace;

#[test]
fn bad_headers4() {
    in_namespace("bad_headers4", || {
        let b = set_up();
        let first = |byte| bent4(packet4(), move |f| f[14] = byte);
        b.kernel(&first(0x55), Reason::BadHeader);
        b.kernel(&first(0x44), Reason::BadHeader);
        b.kernel(&first(0x65), Reason::BadHeader);
        b.kernel(&first(0x46), Reason::Options);
        b.kernel(&first(0x4f), Reason::Options);
        for bit in 0..16 {
            let flip = |f: &mut Vec<u8>| f[24 + bit / 8] ^= 1 << (bit % 8);
            b.kernel(&bent(packet4(), flip), Reason::BadChecksum);
        }
        let zero = bent(packet4(), |f| f[24..26].fill(0));
        b.kernel(&zero, Reason::BadChecksum);
        let len = |n: u16| {
            bent4(packet4(), move |f| {
                f[16..18].copy_from_slice(&n.to_be_bytes())
            })
        };
        b.kernel(&len(19), Reason::BadLength);
        b.kernel(&len(0), Reason::BadLength);
        let have = (packet4().len() - 14) as u16;
        b.kernel(&len(have + 1), Reason::BadLength);
        b.kernel(&len(65535), Reason::BadLength);
        b.forward(&len(have), 0);
        for ttl in [0, 1] {
            b.kernel(&bent4(packet4(), |f| f[22] = ttl), Reason::TtlExceeded);
        }
    });
}

#[test]
fn links_and_addresses4() {
    in_namespace("links_and_addresses4", || {
        let b = set_up();
        let frame = packet4();
        b.with_link(|link| link.flags &= !link_flags::FORWARD4);
        b.kernel(&frame, Reason::ForwardingOff);
        b.with_link(|link| link.flags |= link_flags::RULES4 | link_flags::RP_FILTER);
        b.kernel(&frame, Reason::Rules);
        b.with_link(|link| link.flags |= link_flags::RP_FILTER);
        b.kernel(&frame, Reason::RpFilter);
        b.with_link(|link| link.flags |= link_flags::RULES6 | link_flags::RP_BEHIND);
        b.forward(&frame, 0);
        b.with_link(|_| ());
        for src in [
            [0, 0, 0, 0],
            [127, 0, 0, 1],
            [224, 0, 0, 1],
            [239, 1, 1, 1],
            [255; 4],
        ] {
            b.kernel(&from4(src), Reason::MartianSource);
        }
        for src in [
            [0, 1, 2, 3],
            [240, 0, 0, 1],
            [126, 255, 255, 255],
            [128, 0, 0, 0],
        ] {
            b.forward(&from4(src), 0);
        }
        b.kernel(&to4([0; 4]), Reason::MartianDestination);
        b.kernel(&to4([127, 1, 2, 3]), Reason::MartianDestination);
        b.kernel(&to4([224, 0, 0, 5]), Reason::Multicast);
        b.kernel(&to4([239, 255, 255, 255]), Reason::Multicast);
        b.kernel(&to4([255; 4]), Reason::Broadcast);
        b.forward(&to4([250, 1, 2, 3]), 0);
    });
}

#[test]
fn local_sources() {
    in_namespace("local_sources", || {
        let b = set_up();
        let mark = |address: u32| {
            let bit = local_bit(address);
            let word = &b.memory.local4.words()[bit / 64];
            word.fetch_or(1 << (bit % 64), Ordering::Relaxed);
        };
        b.with_link(|link| link.sources4 = SOURCES);
        let own = from4([10, 9, 9, 9]);
        b.forward(&own, 0);
        mark(v4(10, 9, 9, 9));
        b.kernel(&own, Reason::LocalSource);
        // A yes of the filter that the table does not confirm.
        mark(v4(10, 11, 0, 1));
        b.forward(&from4([10, 11, 0, 1]), 0);
        mark(v4(10, 10, 0, 1));
        b.forward(&from4([10, 10, 0, 1]), 0);
        b.with_link(|link| {
            link.flags |= link_flags::ACCEPT_LOCAL;
            link.sources4 = SOURCES;
        });
        b.forward(&own, 0);
        // Whatever else a table of sources says of one is the reason.
        let other = from4([10, 9, 9, 8]);
        mark(v4(10, 9, 9, 8));
        b.kernel(&other, Reason::SourceCheck);
        b.with_link(|link| link.sources4 = SOURCES);
        b.kernel(&other, Reason::SourceCheck);
    });
}

#[test]
fn routes4() {
    in_namespace("routes4", || {
        let b = set_up();
        b.kernel(&to4([8, 8, 8, 8]), Reason::NoRoute);
        b.kernel(&to4([10, 9, 9, 9]), Reason::Local);
        b.kernel(&to4([10, 11, 3, 4]), Reason::Unreachable);
        b.kernel(&to4([10, 12, 3, 4]), Reason::SameLink);
        b.kernel(&to4([10, 13, 3, 4]), Reason::Unresolved);
        b.kernel(&to4([10, 14, 3, 4]), Reason::RedirectFailed);
        let hole = to4([10, 10, 3, 4]);
        assert_eq!(b.run(&hole).0, Verdict::Drop(Reason::Blackhole));
        // The route is found before the TTL is looked at.
        let dying = bent4(hole, |f| f[22] = 1);
        assert_eq!(b.run(&dying).0, Verdict::Drop(Reason::Blackhole));
        // A table that is empty, one that does not exist, a group that does not exist.
        b.with_link(|link| link.table4 = 1);
        b.kernel(&packet4(), Reason::NoRoute);
        b.with_link(|link| link.table4 = 1 << 20);
        b.kernel(&packet4(), Reason::NoRoute);
        b.with_link(|_| ());
        b.memory.store_group(SINGLE, Group::Single(1 << 20));
        b.kernel(&packet4(), Reason::Unresolved);
    });
}

#[test]
fn sizes4() {
    in_namespace("sizes4", || {
        let b = set_up();
        let fits = udp4(SRC4, DST4, (1, 2), 1500 - 28);
        assert_eq!(b.forward(&fits, 0).len(), 1514);
        b.kernel(&udp4(SRC4, DST4, (1, 2), 1501 - 28), Reason::Mtu);
        // Padding behind the packet goes, but not below 60 bytes.
        for (payload, frame_len, keep) in [
            (0, 42, 42),
            (0, 60, 60),
            (0, 61, 60),
            (0, 1000, 60),
            (18, 60, 60),
            (19, 64, 61),
            (1000, 1300, 1042),
            (500, 4000, 542),
            (1400, 9000, 1442),
        ] {
            let mut frame = udp4(SRC4, DST4, (1, 2), payload);
            frame.resize(frame_len, 0x77);
            let after = b.forward(&frame, 0);
            assert_eq!(after.len(), keep, "{payload} in {frame_len}");
            assert_eq!(after[34..], frame[34..keep]);
        }
        // Several buffers.
        b.memory
            .store_adjacency(0, &adjacency(b.out, DST_MAC, SRC_MAC, 9000));
        let jumbo = udp4(SRC4, DST4, (1, 2), 9000 - 28);
        let after = b.forward(&jumbo, 0);
        assert_eq!(after[34..], jumbo[34..]);
        b.kernel(&udp4(SRC4, DST4, (1, 2), 9001 - 28), Reason::Mtu);
        // A kernel that loses what is redirected of several buffers gets these itself.
        let mut one_buffer = b.memory.config();
        one_buffer.flags |= config_flags::ONE_BUFFER;
        b.memory.store_config(&one_buffer);
        b.kernel(&jumbo, Reason::SeveralBuffers);
        b.forward(&packet4(), 0);
        one_buffer.flags &= !config_flags::ONE_BUFFER;
        b.memory.store_config(&one_buffer);
        b.kernel(&bent(jumbo, |f| f.truncate(8000)), Reason::BadLength);
    });
}

#[test]
fn rewrites4() {
    in_namespace("rewrites4", || {
        let b = set_up();
        // Checksums around the carry, which the identification moves through all values.
        for id in (0..=u16::MAX).step_by(97).chain([0, 1, 0xfffe, 0xffff]) {
            let frame = bent4(packet4(), |f| f[18..20].copy_from_slice(&id.to_be_bytes()));
            let (_, after) = b.run(&frame);
            assert_eq!(after[..6], DST_MAC);
            assert_eq!(after[6..12], SRC_MAC);
            assert_eq!(after[22], 63);
            let mut expected = frame.clone();
            expected[22] -= 1;
            // RFC 1624 and the kernel's ip_decrease_ttl, which never makes 0xffff.
            let sum = frames::checksum(&expected[14..34]);
            let sum = if sum == 0xffff { 0 } else { sum };
            let got = u16::from_be_bytes([after[24], after[25]]);
            let before = u16::from_be_bytes([frame[24], frame[25]]);
            let kernel = before.to_le().swap_bytes();
            let kernel = u32::from(kernel) + 1;
            let kernel = (kernel + u32::from(kernel >= 0xffff)) as u16;
            assert_eq!(got, kernel.swap_bytes());
            assert_eq!(got, sum, "id {id:#x}: checksum");
            expected[24..26].copy_from_slice(&got.to_be_bytes());
            assert_eq!(after[12..], expected[12..]);
        }
    });
}
