//! The hash of a flow and the member that it takes, written out slowly.

use raddle_xdp::Verdict;

use crate::bench::MANY;
use raddle_xdp_testing::bench::{Bench, DST_MAC, SRC_MAC};
use raddle_xdp_testing::image::{adjacency, hash31, threshold};

/// Which of 2^k equal members a hash takes tells its upper k bits.
pub(crate) fn many(b: &Bench, weights: &[u32]) {
    let members: Vec<(u32, u32)> = (0..).zip(weights.iter().copied()).collect();
    for &(number, _) in &members {
        b.memory
            .store_adjacency(number, &adjacency(b.out, DST_MAC, SRC_MAC, 9000));
    }
    threshold(&b.memory, MANY, 1000, &members);
}

/// The member that an upper-bound scan finds.
pub(crate) fn member_of(weights: &[u32], hash: u32) -> u32 {
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
pub(crate) fn chosen(b: &Bench, frame: &[u8]) -> u32 {
    match b.run(frame).0 {
        Verdict::Forward { adjacency, .. } => adjacency,
        other => panic!("{other:?}"),
    }
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

pub(crate) fn hash4(
    config: &raddle_image::Config,
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

pub(crate) fn hash6(
    config: &raddle_image::Config,
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

pub(crate) const DST_MANY: [u8; 4] = [10, 15, 1, 2];
