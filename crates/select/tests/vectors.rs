//! Every recorded decision of a running kernel, reproduced.
#![allow(clippy::unwrap_used)] // a test may fail

use std::collections::BTreeMap;
use std::net::IpAddr;

use raddle_select::{
    Explanation, Family, Flow, FlowKey, HashConfig, Hasher, Input, KeyAddresses, KeyBatch, Keys,
    Part, Policy, Seed, choose_plain, compile_threshold, explain_flow, explain_packet,
    jhash_2words, keys_of_flow, keys_of_packet, search, upper_bounds,
};
use serde::Deserialize;
use siphasher::sip::SipHasher24;
use std::hash::Hasher as _;

#[derive(Deserialize)]
struct Vectors {
    siphash24: Vec<SipVector>,
    jhash_2words: Vec<JhashVector>,
    flow_keys: Vec<KeyVector>,
    upper_bounds: Vec<BoundsVector>,
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct SipVector {
    seed: u32,
    data: String,
    out64: String,
}

#[derive(Deserialize)]
struct JhashVector {
    a: u32,
    b: u32,
    initval: u32,
    out: u32,
}

#[derive(Deserialize)]
struct KeyVector {
    src: IpAddr,
    dst: IpAddr,
    sport: u16,
    dport: u16,
    proto: u8,
    /// The label as a number.
    flow_label_be_word: u32,
    bytes: String,
    seed: u32,
    hash32: u32,
    hash31: u32,
}

#[derive(Deserialize)]
struct BoundsVector {
    weights: Vec<u32>,
    dead: Option<Vec<bool>>,
    upper_bounds: Vec<i64>,
}

#[derive(Deserialize)]
struct Vector {
    family: u8,
    route: String,
    seed: u32,
    policy: u8,
    #[serde(default)]
    hash_fields: u32,
    weights: Vec<u32>,
    hash31: u32,
    path: usize,
    #[serde(flatten)]
    source: Source,
    upper_bounds: Option<Vec<u32>>,
    buckets: Option<Vec<usize>>,
}

#[derive(Deserialize)]
#[serde(tag = "source", rename_all = "kebab-case")]
enum Source {
    Packet {
        l3: String,
        kind: String,
    },
    GetrouteInput {
        src: IpAddr,
        dst: IpAddr,
        proto: u8,
        sport: u16,
        dport: u16,
        #[serde(default)]
        flowlabel: u32,
    },
}

impl Source {
    fn flow(&self) -> Option<Flow> {
        let Source::GetrouteInput {
            src,
            dst,
            proto,
            sport,
            dport,
            flowlabel,
        } = *self
        else {
            return None;
        };
        Some(Flow {
            flow_label: flowlabel,
            ..Flow::new(src, dst).unwrap().ports(proto, sport, dport)
        })
    }
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("data/multipath-vectors.json")).unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn seed(number: u32) -> Seed {
    Seed::new(number).unwrap()
}

fn keys_and_explanation(v: &Vector) -> (Keys, Explanation) {
    let config = HashConfig::kernel(v.policy, v.hash_fields).unwrap();
    let family = if v.family == 4 {
        Family::V4
    } else {
        Family::V6
    };
    let of_packet = |l3: &[u8]| {
        (
            keys_of_packet(&config, family, l3).unwrap(),
            explain_packet(&config, seed(v.seed), family, l3).unwrap(),
        )
    };
    match (&v.source, v.source.flow()) {
        (Source::Packet { l3, .. }, _) => of_packet(&bytes(l3)),
        // Of an IPv4 question the kernel makes a packet, and only policy 3 can tell.
        (_, Some(flow)) if family == Family::V4 && config.policy == Policy::Custom => {
            of_packet(&packet_of(&flow))
        }
        (_, Some(flow)) => {
            assert_eq!(flow.family(), family);
            (
                keys_of_flow(&config, &flow),
                explain_flow(&config, seed(v.seed), &flow),
            )
        }
        _ => unreachable!("every source is one of the two"),
    }
}

/// An IPv4 packet of a flow, as far as its hash goes.
fn packet_of(flow: &Flow) -> Vec<u8> {
    let KeyAddresses::V4 { src, dst } = flow.addresses else {
        panic!("not IPv4");
    };
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, flow.proto, 0, 0];
    packet.extend(src.octets());
    packet.extend(dst.octets());
    packet.extend(flow.sport.to_be_bytes());
    packet.extend(flow.dport.to_be_bytes());
    packet.extend([0; 4]);
    packet
}

#[test]
fn every_choice_is_the_kernels() {
    let all = vectors().vectors;
    assert_eq!(all.len(), 437, "the file lost vectors");
    for (i, v) in all.iter().enumerate() {
        let (keys, explained) = keys_and_explanation(v);
        let hash31 = Hasher::new(seed(v.seed)).hash31(&keys);
        let what = match &v.source {
            Source::Packet { kind, .. } => kind,
            Source::GetrouteInput { .. } => "getroute",
        };
        assert_eq!(hash31, v.hash31, "vector {i}, {what}, policy {}", v.policy);
        assert_eq!(explained.hash31, v.hash31, "explanation of vector {i}");
        assert_eq!(keys_of(&explained), keys, "explanation of vector {i}");

        if v.route == "resilient" {
            // Too long a table was not recorded; the hash was.
            if let Some(buckets) = &v.buckets {
                let bucket = hash31 as usize % buckets.len();
                assert_eq!(buckets[bucket], v.path, "vector {i}");
            }
            continue;
        }
        let weights: Vec<_> = v.weights.iter().map(|w| Some(*w)).collect();
        let uppers = upper_bounds(&weights);
        let recorded = v.upper_bounds.iter().flatten();
        let recorded: Vec<_> = recorded.map(|u| Some(*u)).collect();
        assert_eq!(uppers, recorded, "vector {i}");
        assert_eq!(
            choose_plain(&uppers, |_| true, hash31).unwrap().member,
            v.path,
            "vector {i}"
        );
        let (bounds, members): (Vec<_>, Vec<_>) =
            compile_threshold(&uppers, |_| true).into_iter().unzip();
        assert_eq!(members[search(&bounds, hash31)], v.path, "vector {i}");
    }
}

/// The same hashes from batches, each of the vectors of one seed. Those of policy 3 have two keys, of
/// which each is held against its hash alone.
#[test]
fn every_hash_of_a_batch_is_the_kernels() {
    let all = vectors().vectors;
    let mut by_seed: BTreeMap<u32, Vec<(FlowKey, u32)>> = BTreeMap::new();
    let mut compared = 0;
    for v in &all {
        let hasher = Hasher::new(seed(v.seed));
        let of = by_seed.entry(v.seed).or_default();
        match keys_and_explanation(v).0 {
            Keys::One(key) => of.push((key, v.hash31)),
            Keys::Two { outer, inner } => {
                let keys = [outer, inner].into_iter().flatten();
                of.extend(keys.map(|key| (key, hasher.hash32(&key) >> 1)));
            }
            Keys::Nothing => assert_eq!(v.hash31, 0),
        }
    }
    let mut batch = KeyBatch::new();
    for (number, keys) in by_seed {
        for keys in keys.chunks(KeyBatch::ROOM) {
            let mut hashes = [0; KeyBatch::ROOM];
            for (at, (key, _)) in keys.iter().enumerate() {
                batch.push(key, at as u8);
            }
            Hasher::new(seed(number)).hash31_all(&mut batch, &mut hashes);
            for ((key, expected), hash31) in keys.iter().zip(hashes) {
                assert_eq!(hash31, *expected, "{key:?}");
            }
            compared += keys.len();
        }
    }
    assert!(compared >= 400, "only {compared} were compared");
}

/// The keys that an explanation names.
fn keys_of(explained: &Explanation) -> Keys {
    let of = |part| {
        let found = explained.keys.iter().find(|key| key.of == part);
        found.map(|key| key.key)
    };
    match (explained.combined, of(Part::Packet)) {
        (true, outer) => Keys::Two {
            outer,
            inner: of(Part::Innermost),
        },
        (false, Some(key)) => Keys::One(key),
        (false, None) => Keys::Nothing,
    }
}

#[test]
fn explanations_say_where_the_key_came_from() {
    for v in vectors().vectors {
        let (_, explained) = keys_and_explanation(&v);
        let expected = match &v.source {
            Source::GetrouteInput { .. } if v.policy == 3 && v.family == 4 => Input::Dissected,
            Source::GetrouteInput { .. } => Input::Flow,
            Source::Packet { .. } if v.policy != 0 => Input::Dissected,
            Source::Packet { kind, .. } => match kind.as_str() {
                "icmperr" | "icmperr_mf" => Input::IcmpInner,
                _ => Input::Outer,
            },
        };
        assert_eq!(explained.input, expected);
    }
}

#[test]
fn packed_keys_are_the_kernels() {
    for v in vectors().flow_keys {
        let key = FlowKey {
            addresses: match (v.src, v.dst) {
                (IpAddr::V4(src), IpAddr::V4(dst)) => KeyAddresses::V4 { src, dst },
                (IpAddr::V6(src), IpAddr::V6(dst)) => KeyAddresses::V6 { src, dst },
                _ => panic!("mixed families"),
            },
            sport: v.sport,
            dport: v.dport,
            ip_proto: v.proto,
            flow_label_word: FlowKey::label_as_loaded(v.flow_label_be_word),
        };
        assert_eq!(key.ordered().pack().as_ref(), bytes(&v.bytes));
        let hasher = Hasher::new(seed(v.seed));
        assert_eq!(
            (hasher.hash32(&key), hasher.hash31(&Keys::One(key))),
            (v.hash32, v.hash31)
        );
    }
}

/// The property tests hold our SipHash against this crate; the kernel's vectors hold the crate.
#[test]
fn the_oracle_is_the_kernels_siphash() {
    for v in vectors().siphash24 {
        let key = u64::from(v.seed) << 32 | u64::from(v.seed);
        let mut hasher = SipHasher24::new_with_keys(key, key);
        hasher.write(&bytes(&v.data));
        let expected = u64::from_str_radix(v.out64.trim_start_matches("0x"), 16).unwrap();
        assert_eq!(hasher.finish(), expected);
    }
}

#[test]
fn jhash_is_the_kernels() {
    for v in vectors().jhash_2words {
        assert_eq!(jhash_2words(v.a, v.b, v.initval), v.out);
    }
}

#[test]
fn upper_bounds_are_the_kernels() {
    for v in vectors().upper_bounds {
        let dead = v.dead.unwrap_or(vec![false; v.weights.len()]);
        let weights: Vec<_> = v
            .weights
            .iter()
            .zip(dead)
            .map(|(w, dead)| (!dead).then_some(*w))
            .collect();
        let expected: Vec<_> = v
            .upper_bounds
            .iter()
            .map(|u| u32::try_from(*u).ok())
            .collect();
        assert_eq!(upper_bounds(&weights), expected);
    }
}
