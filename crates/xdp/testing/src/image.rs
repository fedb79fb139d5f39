//! Engines over small images, images by hand, and a plain SipHash-2-4 to fill in the precomputed states.

use raddle_image::{
    ADJ_FORWARD, Adjacency, Capacity, Config, Group, How, LinkEntry, MAGIC, Member, Memory,
    config_flags, link_flags,
};
use raddle_xdp::{Engine, LoadOptions};

/// Room for a few routes, for what does not depend on it.
pub fn small() -> Capacity {
    Capacity {
        nodes4: 1 << 12,
        leaves4: 1 << 12,
        words6: 1 << 12,
        groups: 64,
        members: 64,
        adjacencies: 64,
        segments: 64,
        templates: 1 << 10,
    }
}

/// The same with room for IPv6 tables of the writer, and for groups of many members.
pub fn roomy() -> Capacity {
    Capacity {
        words6: 1 << 17,
        members: 2048,
        adjacencies: 2048,
        ..small()
    }
}

/// An engine over a small image.
pub fn load() -> Engine {
    let capacity = small();
    Engine::load(&LoadOptions { capacity }).unwrap()
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

fn absorb(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    round(v);
    round(v);
    v[0] ^= word;
}

/// A configuration in force for good, with these hash policies.
pub fn config(seed: u32, policy4: u8, policy6: u8) -> Config {
    let key = u64::from(seed) << 32 | u64::from(seed);
    let sip_key = [
        0x736f_6d65_7073_6575 ^ key,
        0x646f_7261_6e64_6f6d ^ key,
        0x6c79_6765_6e65_7261 ^ key,
        0x7465_6462_7974_6573 ^ key,
    ];
    let mut sip_mid = [sip_key; 256];
    for (proto, state) in sip_mid.iter_mut().enumerate() {
        absorb(state, (proto as u64) << 16);
        absorb(state, 0);
        absorb(state, 0);
    }
    Config {
        magic: MAGIC,
        flags: if seed == 0 {
            0
        } else {
            config_flags::SEED_KNOWN
        },
        seed,
        policy4,
        policy6,
        fields4: 7,
        fields6: 7,
        pad: [0; 2],
        deadline: 0,
        sip_key,
        sip_mid,
        label_key: [3, 4],
        port_key: [5, 6],
    }
}

/// A link that forwards both families by table 0.
pub fn link(index: u32, mac: [u8; 6], slot: u32) -> LinkEntry {
    LinkEntry {
        flags: link_flags::ENABLED | link_flags::FORWARD4 | link_flags::FORWARD6,
        slot,
        mac,
        index,
        ..LinkEntry::default()
    }
}

/// An adjacency that forwards.
pub fn adjacency(index: u32, dst_mac: [u8; 6], src_mac: [u8; 6], mtu: u32) -> Adjacency {
    Adjacency {
        index,
        state: ADJ_FORWARD,
        dst_mac,
        src_mac,
        mtu,
        ..Adjacency::default()
    }
}

/// Writes a hash-threshold group with its upper bounds rounded as the kernel does.
pub fn threshold(memory: &Memory, number: u32, first: u32, members: &[(u32, u32)]) {
    let total: u64 = members.iter().map(|&(_, weight)| u64::from(weight)).sum();
    let mut sum = 0;
    for (place, &(adjacency, weight)) in (first..).zip(members) {
        sum += u64::from(weight);
        let upper = (((sum << 31) + total / 2) / total - 1) as u32;
        memory.store_member(place, Member { upper, adjacency });
    }
    let count = members.len() as u16;
    memory.store_group(
        number,
        Group::Threshold {
            first,
            count,
            how: How::default(),
        },
    );
}

/// The 31-bit hash of a flow key's message words after the first three, which are `w0`, 0, 0.
pub fn hash31(config: &Config, w0: u64, words: &[u64], length: u64) -> u32 {
    let mut v = config.sip_key;
    for word in [w0, 0, 0].iter().chain(words) {
        absorb(&mut v, *word);
    }
    absorb(&mut v, length << 56);
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    let low = (v[0] ^ v[1] ^ v[2] ^ v[3]) as u32;
    low.max(1) >> 1
}
