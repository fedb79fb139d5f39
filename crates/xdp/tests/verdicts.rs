//! Every verdict of the program, through test runs on frames made by hand.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use common::frames::{self, IN_MAC, fix_checksum, udp4, udp6};
use common::image::{adjacency, config, hash31, link, threshold};
use common::net::{in_namespace, index_of, monotonic, veth};
use common::tables::{Shape6, Tables4, Tables6};
use raddle_rib::Reason;
use raddle_rib::image::{Adjacency, Capacity, Group, LinkEntry, Memory, link_flags, own_bit};
use raddle_xdp::{Engine, Error, LoadOptions, Verdict};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const DST_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
const SRC_MAC: [u8; 6] = [2, 0, 0, 0, 2, 2];
const SRC4: [u8; 4] = [10, 0, 0, 1];
const DST4: [u8; 4] = [192, 0, 2, 7];
const SEED: u32 = 0x1234_5678;

fn addr6(text: &str) -> [u8; 16] {
    text.parse::<std::net::Ipv6Addr>().unwrap().octets()
}

fn src6() -> [u8; 16] {
    addr6("2001:db8::1")
}

fn dst6() -> [u8; 16] {
    addr6("2001:db8:1::7")
}

/// An engine with an image: value 1 single, 2 two ways, 3.. reasons; see `routes4`.
struct Bench {
    engine: Engine,
    memory: Arc<Memory>,
    ingress: u32,
    out: u32,
}

/// Groups by value.
const SINGLE: u32 = 1;
const TWO_WAY: u32 = 2;
const LOCAL: u32 = 3;
const BLACKHOLE: u32 = 4;
const UNREACHABLE: u32 = 5;
const BACK: u32 = 6;
const UNRESOLVED: u32 = 7;
const NOT_ALLOWED: u32 = 8;
const MANY: u32 = 9;

fn small() -> Capacity {
    Capacity {
        nodes4: 1 << 12,
        leaves4: 1 << 12,
        words6: 1 << 17,
        groups: 64,
        members: 2048,
        adjacencies: 2048,
        segments: 64,
        templates: 1 << 10,
    }
}

fn v4(a: u8, b: u8, c: u8, d: u8) -> u32 {
    u32::from_be_bytes([a, b, c, d])
}

fn set_up() -> Bench {
    veth("in0", "src0", 1500);
    veth("out0", "dst0", 1500);
    veth("off0", "dst1", 1500);
    let engine = Engine::load(&LoadOptions { capacity: small() }).unwrap();
    let memory = engine.memory();
    let (ingress, out) = (index_of("in0"), index_of("out0"));
    engine.set_out_link(out).unwrap();
    engine.set_out_link(ingress).unwrap();
    memory.store_link(ingress, &link(IN_MAC, 5));
    memory.store_adjacency(0, &adjacency(out, DST_MAC, SRC_MAC, 1500));
    memory.store_adjacency(1, &adjacency(out, DST_MAC, SRC_MAC, 1400));
    memory.store_adjacency(2, &adjacency(ingress, DST_MAC, SRC_MAC, 1500));
    let unresolved = Adjacency {
        reason: Reason::Unresolved as u8,
        ..Adjacency::default()
    };
    memory.store_adjacency(3, &unresolved);
    memory.store_adjacency(4, &adjacency(index_of("off0"), DST_MAC, SRC_MAC, 1500));
    memory.store_group(0, Group::Kernel(Reason::NoRoute));
    memory.store_group(SINGLE, Group::Single(0));
    threshold(&memory, TWO_WAY, 0, &[(0, 1), (1, 1)]);
    memory.store_group(LOCAL, Group::Kernel(Reason::Local));
    memory.store_group(BLACKHOLE, Group::Kernel(Reason::Blackhole));
    memory.store_group(UNREACHABLE, Group::Kernel(Reason::Unreachable));
    memory.store_group(BACK, Group::Single(2));
    memory.store_group(UNRESOLVED, Group::Single(3));
    memory.store_group(NOT_ALLOWED, Group::Single(4));
    let routes = [
        (v4(192, 0, 2, 0), 24, SINGLE),
        (v4(198, 51, 100, 0), 24, TWO_WAY),
        (v4(10, 9, 9, 9), 32, LOCAL),
        (v4(10, 10, 0, 0), 16, BLACKHOLE),
        (v4(10, 11, 0, 0), 16, UNREACHABLE),
        (v4(10, 12, 0, 0), 16, BACK),
        (v4(10, 13, 0, 0), 16, UNRESOLVED),
        (v4(10, 14, 0, 0), 16, NOT_ALLOWED),
        (v4(10, 15, 0, 0), 16, MANY),
        (v4(240, 0, 0, 0), 4, SINGLE),
    ];
    Tables4::new(&memory).table(0, 3, &routes);
    let six = |text: &str| u128::from_be_bytes(addr6(text));
    let routes = [
        (six("2001:db8:1::"), 48, SINGLE),
        (six("2001:db8:2::"), 48, TWO_WAY),
        (six("2001:db8::9"), 128, LOCAL),
        (six("2001:db8:4::"), 48, BLACKHOLE),
        (six("2001:db8:5::"), 48, UNREACHABLE),
        (six("2001:db8:6::"), 48, BACK),
        (six("2001:db8:7::"), 48, UNRESOLVED),
        (six("2001:db8:9::"), 48, MANY),
    ];
    Tables6::new(&memory).table(0, &[Shape6::Block], &routes);
    memory.store_config(&config(SEED, 1, 1));
    Bench {
        engine,
        memory,
        ingress,
        out,
    }
}

impl Bench {
    #[track_caller]
    fn run(&self, frame: &[u8]) -> (Verdict, Vec<u8>) {
        let output = self.engine.test_run(frame, self.ingress).unwrap();
        (output.verdict, output.frame)
    }

    /// The kernel gets the frame, untouched and counted.
    #[track_caller]
    fn kernel(&self, frame: &[u8], reason: Reason) {
        let before = self.engine.counters();
        let (verdict, after) = self.run(frame);
        assert_eq!(verdict, Verdict::Kernel(reason));
        assert_eq!(after, frame, "{reason}: the frame was touched");
        let counters = self.engine.counters();
        let bytes = counters.reason(reason).bytes - before.reason(reason).bytes;
        assert_eq!(bytes, frame.len() as u64);
        let counted = counters.link(5).packets - before.link(5).packets;
        let by_link = !matches!(reason, Reason::Held | Reason::NotEnabled);
        assert_eq!(counted, u64::from(by_link), "{reason}: the link's counter");
    }

    /// The frame goes out by an adjacency; returns it.
    #[track_caller]
    fn forward(&self, frame: &[u8], adjacency: u32) -> Vec<u8> {
        let before = self.engine.counters();
        let (verdict, after) = self.run(frame);
        let index = self.memory.adjacency(adjacency).index;
        assert_eq!(verdict, Verdict::Forward { adjacency, index });
        let counters = self.engine.counters();
        let link = counters.link(5).bytes - before.link(5).bytes;
        assert_eq!(link, frame.len() as u64);
        let sent = counters.adjacency(adjacency).bytes - before.adjacency(adjacency).bytes;
        assert_eq!(sent, after.len() as u64);
        after
    }

    fn with_link(&self, change: impl FnOnce(&mut LinkEntry)) {
        let mut entry = link(IN_MAC, 5);
        change(&mut entry);
        self.memory.store_link(self.ingress, &entry);
    }

    fn packet4(&self) -> Vec<u8> {
        udp4(SRC4, DST4, (1000, 2000), 40)
    }

    fn to4(&self, dst: [u8; 4]) -> Vec<u8> {
        udp4(SRC4, dst, (1000, 2000), 40)
    }

    fn from4(&self, src: [u8; 4]) -> Vec<u8> {
        udp4(src, DST4, (1000, 2000), 40)
    }

    fn to6(&self, dst: &str) -> Vec<u8> {
        udp6(src6(), addr6(dst), (1000, 2000), 40)
    }

    fn from6(&self, src: &str) -> Vec<u8> {
        udp6(addr6(src), dst6(), (1000, 2000), 40)
    }
}

/// A frame changed in place.
fn bent(mut frame: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut frame);
    frame
}

/// The same, with its IPv4 checksum put right afterwards.
fn bent4(frame: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = bent(frame, change);
    fix_checksum(&mut frame);
    frame
}

#[test]
fn gates() {
    in_namespace("gates", || {
        let b = set_up();
        let frame = b.packet4();
        b.forward(&frame, 0);
        let mut held = config(SEED, 1, 1);
        held.magic = 0;
        b.memory.store_config(&held);
        b.kernel(&frame, Reason::Held);
        held = config(SEED, 1, 1);
        held.flags |= 1;
        b.memory.store_config(&held);
        b.kernel(&frame, Reason::Held);
        held = config(SEED, 1, 1);
        held.deadline = 1;
        b.memory.store_config(&held);
        b.kernel(&frame, Reason::Held);
        held.deadline = u64::MAX;
        b.memory.store_config(&held);
        b.forward(&frame, 0);
        // A deadline that passes while nothing else changes.
        held.deadline = monotonic() + 100_000_000;
        b.memory.store_config(&held);
        b.forward(&frame, 0);
        std::thread::sleep(std::time::Duration::from_millis(200));
        b.kernel(&frame, Reason::Held);
        b.memory.store_config(&config(SEED, 1, 1));
        b.with_link(|link| link.flags &= !link_flags::ENABLED);
        b.kernel(&frame, Reason::NotEnabled);
        let elsewhere = b.engine.test_run(&frame, index_of("lo")).unwrap();
        assert_eq!(elsewhere.verdict, Verdict::Kernel(Reason::NotEnabled));
    });
}

#[test]
fn frames_that_are_not_ours() {
    in_namespace("frames_that_are_not_ours", || {
        let b = set_up();
        let typed = |hi, lo| bent(b.packet4(), |f| f[12..14].copy_from_slice(&[hi, lo]));
        b.kernel(&typed(0x81, 0x00), Reason::Vlan);
        b.kernel(&typed(0x88, 0xa8), Reason::Vlan);
        b.kernel(&typed(0x08, 0x06), Reason::NotIp);
        b.kernel(&typed(0x00, 0x40), Reason::NotIp);
        // The type is looked at before the address.
        let arp = bent(typed(0x08, 0x06), |f| f[..6].fill(0xff));
        b.kernel(&arp, Reason::NotIp);
        b.kernel(&bent(b.packet4(), |f| f[..6].fill(0xff)), Reason::OtherMac);
        for byte in 0..6 {
            b.kernel(&bent(b.packet4(), |f| f[byte] ^= 0x40), Reason::OtherMac);
            let six = b.to6("2001:db8:1::7");
            b.kernel(&bent(six, |f| f[byte] ^= 0x40), Reason::OtherMac);
        }
        b.kernel(&b.packet4()[..14], Reason::Truncated);
        b.kernel(&b.packet4()[..33], Reason::Truncated);
        b.kernel(&b.to6("2001:db8:1::7")[..53], Reason::Truncated);
    });
}

#[test]
fn bad_headers4() {
    in_namespace("bad_headers4", || {
        let b = set_up();
        let first = |byte| bent4(b.packet4(), move |f| f[14] = byte);
        b.kernel(&first(0x55), Reason::BadHeader);
        b.kernel(&first(0x44), Reason::BadHeader);
        b.kernel(&first(0x65), Reason::BadHeader);
        b.kernel(&first(0x46), Reason::Options);
        b.kernel(&first(0x4f), Reason::Options);
        for bit in 0..16 {
            let flip = |f: &mut Vec<u8>| f[24 + bit / 8] ^= 1 << (bit % 8);
            b.kernel(&bent(b.packet4(), flip), Reason::BadChecksum);
        }
        let zero = bent(b.packet4(), |f| f[24..26].fill(0));
        b.kernel(&zero, Reason::BadChecksum);
        let len = |n: u16| {
            bent4(b.packet4(), move |f| {
                f[16..18].copy_from_slice(&n.to_be_bytes())
            })
        };
        b.kernel(&len(19), Reason::BadLength);
        b.kernel(&len(0), Reason::BadLength);
        let have = (b.packet4().len() - 14) as u16;
        b.kernel(&len(have + 1), Reason::BadLength);
        b.kernel(&len(65535), Reason::BadLength);
        b.forward(&len(have), 0);
        for ttl in [0, 1] {
            b.kernel(&bent4(b.packet4(), |f| f[22] = ttl), Reason::TtlExceeded);
        }
    });
}

#[test]
fn links_and_addresses4() {
    in_namespace("links_and_addresses4", || {
        let b = set_up();
        let frame = b.packet4();
        b.with_link(|link| link.flags &= !link_flags::FORWARD4);
        b.kernel(&frame, Reason::ForwardingOff);
        b.with_link(|link| link.flags |= link_flags::RULES4 | link_flags::RP_FILTER);
        b.kernel(&frame, Reason::Rules);
        b.with_link(|link| link.flags |= link_flags::RP_FILTER);
        b.kernel(&frame, Reason::RpFilter);
        b.with_link(|link| link.flags |= link_flags::RULES6);
        b.forward(&frame, 0);
        b.with_link(|_| ());
        for src in [
            [0, 0, 0, 0],
            [127, 0, 0, 1],
            [224, 0, 0, 1],
            [239, 1, 1, 1],
            [255; 4],
        ] {
            b.kernel(&b.from4(src), Reason::MartianSource);
        }
        for src in [
            [0, 1, 2, 3],
            [240, 0, 0, 1],
            [126, 255, 255, 255],
            [128, 0, 0, 0],
        ] {
            b.forward(&b.from4(src), 0);
        }
        b.kernel(&b.to4([0; 4]), Reason::MartianDestination);
        b.kernel(&b.to4([127, 1, 2, 3]), Reason::MartianDestination);
        b.kernel(&b.to4([224, 0, 0, 5]), Reason::Multicast);
        b.kernel(&b.to4([239, 255, 255, 255]), Reason::Multicast);
        b.kernel(&b.to4([255; 4]), Reason::Broadcast);
        b.forward(&b.to4([250, 1, 2, 3]), 0);
    });
}

#[test]
fn own_sources() {
    in_namespace("own_sources", || {
        let b = set_up();
        let mark = |address: u32| {
            let bit = own_bit(address);
            let word = &b.memory.own4.words()[bit / 64];
            word.fetch_or(1 << (bit % 64), Ordering::Relaxed);
        };
        let own = b.from4([10, 9, 9, 9]);
        b.forward(&own, 0);
        mark(v4(10, 9, 9, 9));
        b.kernel(&own, Reason::OwnSource);
        // A yes of the filter that the table does not confirm.
        mark(v4(10, 11, 0, 1));
        b.forward(&b.from4([10, 11, 0, 1]), 0);
        mark(v4(10, 10, 0, 1));
        b.forward(&b.from4([10, 10, 0, 1]), 0);
        b.with_link(|link| link.flags |= link_flags::ACCEPT_LOCAL);
        b.forward(&own, 0);
    });
}

#[test]
fn routes4() {
    in_namespace("routes4", || {
        let b = set_up();
        b.kernel(&b.to4([8, 8, 8, 8]), Reason::NoRoute);
        b.kernel(&b.to4([10, 9, 9, 9]), Reason::Local);
        b.kernel(&b.to4([10, 11, 3, 4]), Reason::Unreachable);
        b.kernel(&b.to4([10, 12, 3, 4]), Reason::SameLink);
        b.kernel(&b.to4([10, 13, 3, 4]), Reason::Unresolved);
        b.kernel(&b.to4([10, 14, 3, 4]), Reason::RedirectFailed);
        let hole = b.to4([10, 10, 3, 4]);
        assert_eq!(b.run(&hole).0, Verdict::Drop(Reason::Blackhole));
        // The route is found before the TTL is looked at.
        let dying = bent4(hole, |f| f[22] = 1);
        assert_eq!(b.run(&dying).0, Verdict::Drop(Reason::Blackhole));
        // A table that is empty, one that does not exist, a group that does not exist.
        b.with_link(|link| link.table4 = 1);
        b.kernel(&b.packet4(), Reason::NoRoute);
        b.with_link(|link| link.table4 = 1 << 20);
        b.kernel(&b.packet4(), Reason::NoRoute);
        b.with_link(|_| ());
        b.memory.store_group(SINGLE, Group::Single(1 << 20));
        b.kernel(&b.packet4(), Reason::Unresolved);
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
        b.kernel(&bent(jumbo, |f| f.truncate(8000)), Reason::BadLength);
    });
}

#[test]
fn rewrites4() {
    in_namespace("rewrites4", || {
        let b = set_up();
        // Checksums around the carry, which the identification moves through all values.
        for id in (0..=u16::MAX).step_by(97).chain([0, 1, 0xfffe, 0xffff]) {
            let frame = bent4(b.packet4(), |f| {
                f[18..20].copy_from_slice(&id.to_be_bytes())
            });
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

#[test]
fn verdicts6() {
    in_namespace("verdicts6", || {
        let b = set_up();
        let frame = b.to6("2001:db8:1::7");
        let after = b.forward(&frame, 0);
        let mut expected = frame.clone();
        expected[..6].copy_from_slice(&DST_MAC);
        expected[6..12].copy_from_slice(&SRC_MAC);
        expected[21] -= 1;
        assert_eq!(after, expected);
        b.kernel(&bent(frame.clone(), |f| f[14] = 0x50), Reason::BadHeader);
        b.kernel(&bent(frame.clone(), |f| f[20] = 0), Reason::Options);
        b.kernel(&bent(frame.clone(), |f| f[19] += 1), Reason::BadLength);
        b.kernel(
            &bent(frame.clone(), |f| f[18..20].fill(0xff)),
            Reason::BadLength,
        );
        for hops in [0, 1] {
            b.kernel(&bent(frame.clone(), |f| f[21] = hops), Reason::TtlExceeded);
        }
        b.with_link(|link| link.flags &= !link_flags::FORWARD6);
        b.kernel(&frame, Reason::ForwardingOff);
        b.with_link(|link| link.flags |= link_flags::RULES6);
        b.kernel(&frame, Reason::Rules);
        b.with_link(|link| link.flags |= link_flags::RULES4 | link_flags::RP_FILTER);
        b.forward(&frame, 0);
        b.with_link(|_| ());
        for src in ["ff02::1", "::1", "::", "::ffff:1.2.3.4"] {
            b.kernel(&b.from6(src), Reason::MartianSource);
        }
        b.kernel(&b.from6("fe80::1"), Reason::LinkLocal);
        b.kernel(&b.from6("febf::1"), Reason::LinkLocal);
        for src in [
            "fec0::1",
            "::2",
            "::1.2.3.4",
            "::fffe:1.2.3.4",
            "0:0:1::ffff:0:0",
        ] {
            b.forward(&b.from6(src), 0);
        }
        b.kernel(&b.to6("::1"), Reason::MartianDestination);
        b.kernel(&b.to6("::"), Reason::MartianDestination);
        b.kernel(&b.to6("ff02::1"), Reason::Multicast);
        b.kernel(&b.to6("fe80::1"), Reason::LinkLocal);
        b.kernel(&b.to6("::2"), Reason::NoRoute);
        b.kernel(&b.to6("3fff::1"), Reason::NoRoute);
        b.kernel(&b.to6("2001:db8::9"), Reason::Local);
        b.kernel(&b.to6("2001:db8::8"), Reason::NoRoute);
        b.kernel(&b.to6("2001:db8:5::1"), Reason::Unreachable);
        b.kernel(&b.to6("2001:db8:6::1"), Reason::SameLink);
        b.kernel(&b.to6("2001:db8:7::1"), Reason::Unresolved);
        let hole = b.to6("2001:db8:4::1");
        assert_eq!(b.run(&hole).0, Verdict::Drop(Reason::Blackhole));
        b.kernel(&udp6(src6(), dst6(), (1, 2), 1501 - 48), Reason::Mtu);
        assert_eq!(
            b.forward(&udp6(src6(), dst6(), (1, 2), 1500 - 48), 0).len(),
            1514
        );
        for (payload, frame_len, keep) in [(0, 62, 62), (0, 90, 62), (700, 5000, 762)] {
            let mut padded = udp6(src6(), dst6(), (1, 2), payload);
            padded.resize(frame_len, 0x77);
            assert_eq!(b.forward(&padded, 0).len(), keep);
        }
        // No next header at all: 54 bytes of packet in 60 of frame.
        let mut bare = frames::ipv6(src6(), dst6(), 0, 59, &[]);
        bare.resize(70, 0);
        assert_eq!(b.forward(&bare, 0).len(), 60);
    });
}

#[test]
fn policies() {
    in_namespace("policies", || {
        let b = set_up();
        let two_way = [b.to4([198, 51, 100, 1]), b.to6("2001:db8:2::1")];
        b.memory.store_config(&config(0, 1, 1));
        for frame in &two_way {
            b.kernel(frame, Reason::SeedUnknown);
        }
        b.forward(&b.packet4(), 0);
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

/// Which of 2^k equal members a hash takes tells its upper k bits.
fn many(b: &Bench, weights: &[u32]) {
    let members: Vec<(u32, u32)> = (0..).zip(weights.iter().copied()).collect();
    for &(number, _) in &members {
        b.memory
            .store_adjacency(number, &adjacency(b.out, DST_MAC, SRC_MAC, 9000));
    }
    threshold(&b.memory, MANY, 1000, &members);
}

/// The member that an upper-bound scan finds.
fn member_of(weights: &[u32], hash: u32) -> u32 {
    let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
    let mut sum = 0;
    for (number, &weight) in (0..).zip(weights) {
        sum += u64::from(weight);
        if u64::from(hash) < ((sum << 31) + total / 2) / total {
            return number;
        }
    }
    panic!("{hash:#x} is above the last bound");
}

#[track_caller]
fn chosen(b: &Bench, frame: &[u8]) -> u32 {
    match b.run(frame).0 {
        Verdict::Forward { adjacency, .. } => adjacency,
        other => panic!("{other:?}"),
    }
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

                let (mut s, mut d) = (src6(), addr6("2001:db8:9::"));
                s[15] = n as u8;
                d[14] = (n as u8).wrapping_mul(3);
                let got = chosen(&b, &udp6(s, d, (sport, dport), 8));
                let hash = hash6(&config, 0, 17, (sport, dport), s, d);
                assert_eq!(got, member_of(weights, hash), "{weights:?} {hash:#x}");
            }
        }
    });
}

fn le32(bytes: &[u8]) -> u64 {
    u64::from(u32::from_le_bytes(bytes.try_into().unwrap()))
}

/// Ports as loaded, ordered as the kernel orders them.
fn ports_word(ports: (u16, u16)) -> u64 {
    let (s, d) = (ports.0.swap_bytes(), ports.1.swap_bytes());
    let (s, d) = if d < s { (d, s) } else { (s, d) };
    (u64::from(s) | u64::from(d) << 16) << 32
}

fn hash4(
    config: &raddle_rib::image::Config,
    proto: u8,
    ports: (u16, u16),
    src: [u8; 4],
    dst: [u8; 4],
) -> u32 {
    let (s, d) = (le32(&src), le32(&dst));
    let (s, d) = if d < s { (d, s) } else { (s, d) };
    hash31(
        config,
        u64::from(proto) << 16,
        &[ports_word(ports), s << 32, d],
        48,
    )
}

fn hash6(
    config: &raddle_rib::image::Config,
    label: u32,
    proto: u8,
    ports: (u16, u16),
    src: [u8; 16],
    dst: [u8; 16],
) -> u32 {
    let (s, d) = if dst < src { (dst, src) } else { (src, dst) };
    let w0 = u64::from(proto) << 16 | u64::from(label.to_be()) << 32;
    let bytes = [&[0; 4][..], &s, &d, &[0; 4]].concat();
    let mut words = vec![ports_word(ports)];
    for word in bytes.chunks_exact(8) {
        words.push(u64::from_le_bytes(word.try_into().unwrap()));
    }
    hash31(config, w0, &words, 72)
}

const DST_MANY: [u8; 4] = [10, 15, 1, 2];

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
        let d6 = addr6("2001:db8:9::1");
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
        let d6 = addr6("2001:db8:9::1");
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

        let d6 = addr6("2001:db8:9::1");
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
        let (isrc, idst) = (addr6("2001:db8:77::1"), addr6("2001:db8:88::2"));
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

#[test]
fn links_that_do_not_exist() {
    in_namespace("links_that_do_not_exist", || {
        let engine = Engine::load(&LoadOptions { capacity: small() }).unwrap();
        let gone = engine.set_out_link(999);
        assert!(
            matches!(gone, Err(Error::NoSuchLink { index: 999 })),
            "{gone:?}"
        );
        let high = engine.set_out_link(1 << 20);
        assert!(matches!(high, Err(Error::LinkIndex { .. })), "{high:?}");
        engine.remove_out_link(999).unwrap();
    });
}
