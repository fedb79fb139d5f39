//! Routes to every verdict, and frames for them.

use raddle_image::{Adjacency, Group, Reason};
use raddle_xdp_testing::bench::{Bench, DST_MAC, SINGLE, SRC_MAC};
use raddle_xdp_testing::frames::{fix_checksum, udp4, udp6};
use raddle_xdp_testing::image::{adjacency, roomy, threshold};
use raddle_xdp_testing::net::{index_of, veth};
use raddle_xdp_testing::packets::addr;
use raddle_xdp_testing::tables::{Tables4, write6};

pub(crate) const SRC4: [u8; 4] = [10, 0, 0, 1];
pub(crate) const DST4: [u8; 4] = [192, 0, 2, 7];

pub(crate) fn src6() -> [u8; 16] {
    addr("2001:db8::1")
}

pub(crate) fn dst6() -> [u8; 16] {
    addr("2001:db8:1::7")
}

/// Groups by value.
const TWO_WAY: u32 = 2;
const LOCAL: u32 = 3;
const BLACKHOLE: u32 = 4;
const UNREACHABLE: u32 = 5;
const BACK: u32 = 6;
const UNRESOLVED: u32 = 7;
const NOT_ALLOWED: u32 = 8;
pub(crate) const MANY: u32 = 9;
const SOURCE_CHECK: u32 = 60;
/// The number of the table of sources.
pub(crate) const SOURCES: u32 = 1;

pub(crate) fn v4(a: u8, b: u8, c: u8, d: u8) -> u32 {
    u32::from_be_bytes([a, b, c, d])
}

/// Routes to every group of [`SINGLE`] to [`MANY`].
pub(crate) fn set_up() -> Bench {
    veth("off0", "dst1", 1500);
    let bench = Bench::new(roomy());
    let (memory, ingress, out) = (&bench.memory, bench.ingress, bench.out);
    bench.engine.set_out_link(ingress).unwrap();
    memory.store_adjacency(1, &adjacency(out, DST_MAC, SRC_MAC, 1400));
    memory.store_adjacency(2, &adjacency(ingress, DST_MAC, SRC_MAC, 1500));
    let unresolved = Adjacency {
        reason: Reason::Unresolved as u8,
        ..Adjacency::default()
    };
    memory.store_adjacency(3, &unresolved);
    memory.store_adjacency(4, &adjacency(index_of("off0"), DST_MAC, SRC_MAC, 1500));
    threshold(memory, TWO_WAY, 0, &[(0, 1), (1, 1)]);
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
    memory.store_group(SOURCE_CHECK, Group::Kernel(Reason::SourceCheck));
    let sources = [
        (v4(10, 9, 9, 9), 32, LOCAL),
        (v4(10, 9, 9, 8), 32, SOURCE_CHECK),
    ];
    let mut tables = Tables4::new(memory);
    tables.table(0, 3, &routes);
    tables.table(SOURCES as usize, 3, &sources);
    let six = |text: &str| u128::from_be_bytes(addr(text));
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
    write6(memory, &[&routes]);
    bench
}

pub(crate) fn packet4() -> Vec<u8> {
    udp4(SRC4, DST4, (1000, 2000), 40)
}

pub(crate) fn to4(dst: [u8; 4]) -> Vec<u8> {
    udp4(SRC4, dst, (1000, 2000), 40)
}

pub(crate) fn from4(src: [u8; 4]) -> Vec<u8> {
    udp4(src, DST4, (1000, 2000), 40)
}

pub(crate) fn to6(dst: &str) -> Vec<u8> {
    udp6(src6(), addr(dst), (1000, 2000), 40)
}

pub(crate) fn from6(src: &str) -> Vec<u8> {
    udp6(addr(src), dst6(), (1000, 2000), 40)
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
