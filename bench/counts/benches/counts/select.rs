//! Selection: 256 flows are hashed under policy 1 (L4), one by one or together (with AVX2, which is what
//! valgrind knows), or 256 hashes choose among members.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use gungraun::{library_benchmark, library_benchmark_group};
use raddle_select::{
    Flow, FlowKey, Hasher, KeyBatch, Keys, MAX_HASH, Policy, Seed, keys_of_flow, search,
    upper_bounds,
};

use crate::tables::Dice;

const FLOWS: usize = 256;

fn flows(v6: bool) -> (Hasher, Vec<FlowKey>) {
    let mut dice = Dice(0x5eed);
    let mut address = || match v6 {
        true => IpAddr::V6(Ipv6Addr::from_bits(u128::from(dice.bits()) << 64)),
        false => IpAddr::V4(Ipv4Addr::from_bits(dice.bits() as u32)),
    };
    let keys = (0..FLOWS as u16).map(|n| {
        let flow = Flow::new(address(), address()).expect("one family");
        match keys_of_flow(&Policy::L4.into(), &flow.ports(17, 1000 + n, 53)) {
            Keys::One(key) => key,
            other => unreachable!("policy 1 has one key: {other:?}"),
        }
    });
    let seed = Seed::new(12345).expect("not 0");
    (Hasher::new(seed), keys.collect())
}

fn members(count: usize) -> (Vec<u32>, Vec<u32>) {
    let uppers: Option<Vec<u32>> = upper_bounds(&vec![Some(1); count]).into_iter().collect();
    let mut dice = Dice(0x5eed);
    let hashes = (0..FLOWS).map(|_| dice.bits() as u32 & MAX_HASH);
    (uppers.expect("all have a weight"), hashes.collect())
}

#[library_benchmark(setup = flows)]
#[bench::ipv4(false)]
#[bench::ipv6(true)]
fn hash((hasher, keys): (Hasher, Vec<FlowKey>)) -> (Hasher, Vec<FlowKey>) {
    for key in &keys {
        black_box(hasher.hash32(black_box(key)));
    }
    (hasher, keys)
}

#[library_benchmark(setup = flows)]
#[bench::ipv4(false)]
#[bench::ipv6(true)]
fn hash_together((hasher, keys): (Hasher, Vec<FlowKey>)) -> (Hasher, Vec<FlowKey>) {
    let mut batch = KeyBatch::new();
    let mut hashes = [0; KeyBatch::ROOM];
    for keys in keys.chunks(KeyBatch::ROOM) {
        for (at, key) in keys.iter().enumerate() {
            batch.push(black_box(key), at as u8);
        }
        hasher.hash31_all(&mut batch, black_box(&mut hashes));
    }
    (hasher, keys)
}

#[library_benchmark(setup = members)]
#[bench::of_2(2)]
#[bench::of_64(64)]
fn choose((uppers, hashes): (Vec<u32>, Vec<u32>)) -> (Vec<u32>, Vec<u32>) {
    for hash in &hashes {
        black_box(search(black_box(&uppers), *hash));
    }
    (uppers, hashes)
}

library_benchmark_group!(name = selection, benchmarks = [hash, hash_together, choose]);
