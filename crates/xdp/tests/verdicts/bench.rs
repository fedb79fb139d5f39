//! An engine with an image made by hand, frames for it, and what is asserted of its verdicts.

use std::sync::Arc;

use raddle_rib::Reason;
use raddle_rib::image::{Adjacency, Capacity, Group, LinkEntry, Memory};
use raddle_xdp::{Engine, LoadOptions, Verdict};

use crate::common::frames::{IN_MAC, fix_checksum, udp4, udp6};
use crate::common::image::{adjacency, config, link, threshold};
use crate::common::net::{index_of, veth};
use crate::common::tables::{Shape6, Tables4, Tables6};

pub(crate) const DST_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
pub(crate) const SRC_MAC: [u8; 6] = [2, 0, 0, 0, 2, 2];
pub(crate) const SRC4: [u8; 4] = [10, 0, 0, 1];
pub(crate) const DST4: [u8; 4] = [192, 0, 2, 7];
pub(crate) const SEED: u32 = 0x1234_5678;

pub(crate) fn addr6(text: &str) -> [u8; 16] {
    text.parse::<std::net::Ipv6Addr>().unwrap().octets()
}

pub(crate) fn src6() -> [u8; 16] {
    addr6("2001:db8::1")
}

pub(crate) fn dst6() -> [u8; 16] {
    addr6("2001:db8:1::7")
}

/// An engine with an image: value 1 single, 2 two ways, 3.. reasons; see `routes4`.
pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) memory: Arc<Memory>,
    pub(crate) ingress: u32,
    pub(crate) out: u32,
}

/// Groups by value.
pub(crate) const SINGLE: u32 = 1;
const TWO_WAY: u32 = 2;
const LOCAL: u32 = 3;
const BLACKHOLE: u32 = 4;
const UNREACHABLE: u32 = 5;
const BACK: u32 = 6;
const UNRESOLVED: u32 = 7;
const NOT_ALLOWED: u32 = 8;
pub(crate) const MANY: u32 = 9;

pub(crate) fn small() -> Capacity {
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

pub(crate) fn v4(a: u8, b: u8, c: u8, d: u8) -> u32 {
    u32::from_be_bytes([a, b, c, d])
}

pub(crate) fn set_up() -> Bench {
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
    pub(crate) fn run(&self, frame: &[u8]) -> (Verdict, Vec<u8>) {
        let output = self.engine.test_run(frame, self.ingress).unwrap();
        (output.verdict, output.frame)
    }

    /// The kernel gets the frame, untouched and counted.
    #[track_caller]
    pub(crate) fn kernel(&self, frame: &[u8], reason: Reason) {
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
    pub(crate) fn forward(&self, frame: &[u8], adjacency: u32) -> Vec<u8> {
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

    pub(crate) fn with_link(&self, change: impl FnOnce(&mut LinkEntry)) {
        let mut entry = link(IN_MAC, 5);
        change(&mut entry);
        self.memory.store_link(self.ingress, &entry);
    }

    pub(crate) fn packet4(&self) -> Vec<u8> {
        udp4(SRC4, DST4, (1000, 2000), 40)
    }

    pub(crate) fn to4(&self, dst: [u8; 4]) -> Vec<u8> {
        udp4(SRC4, dst, (1000, 2000), 40)
    }

    pub(crate) fn from4(&self, src: [u8; 4]) -> Vec<u8> {
        udp4(src, DST4, (1000, 2000), 40)
    }

    pub(crate) fn to6(&self, dst: &str) -> Vec<u8> {
        udp6(src6(), addr6(dst), (1000, 2000), 40)
    }

    pub(crate) fn from6(&self, src: &str) -> Vec<u8> {
        udp6(addr6(src), dst6(), (1000, 2000), 40)
    }
}

/// A frame changed in place.
pub(crate) fn bent(mut frame: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut frame);
    frame
}

/// The same, with its IPv4 checksum put right afterwards.
pub(crate) fn bent4(frame: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = bent(frame, change);
    fix_checksum(&mut frame);
    frame
}
