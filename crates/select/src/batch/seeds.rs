//! One flow under many seeds: what a search for an unknown seed hashes.

use crate::batch::{KeyBatch, Width};
use crate::hash::{absorb, finish, first_word, keyed, shorten, words_of_ipv4, words_of_ipv6};
use crate::jhash::jhash_2words;
use crate::key::{FlowKey, KeyAddresses};
use crate::keys::Keys;
use crate::seed::HashKey;

#[cfg(target_arch = "x86_64")]
use crate::batch::lanes;

/// How a processor takes seeds through the hash: one of the ways that the running one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes(Width);

impl Lanes {
    /// The fastest way of this processor.
    pub fn widest() -> Lanes {
        Lanes(Width::detect())
    }

    /// All ways of this processor, the fastest first.
    pub fn available() -> Vec<Lanes> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if std::is_x86_feature_detected!("avx512f") {
                all.push(Lanes(Width::Avx512));
            }
            if std::is_x86_feature_detected!("avx2") {
                all.push(Lanes(Width::Avx2));
            }
        }
        all.push(Lanes(Width::One));
        all
    }

    /// A word for it.
    pub fn name(self) -> &'static str {
        match self.0 {
            Width::One => "portable",
            #[cfg(target_arch = "x86_64")]
            Width::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Width::Avx512 => "AVX-512",
        }
    }
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes::widest()
    }
}

/// The words of a flow key in order, without the last one, by the family's length.
#[derive(Clone, Copy, Debug)]
enum Message {
    V4([u64; 6]),
    V6([u64; 9]),
}

impl Message {
    fn of(key: &FlowKey) -> Message {
        let key = key.ordered();
        let first = first_word(key.ip_proto, key.flow_label_word);
        let ports = u64::from(key.ports_word()) << 32;
        match &key.addresses {
            KeyAddresses::V4 { src, dst } => {
                let [a, b] = words_of_ipv4(*src, *dst);
                Message::V4([first, 0, 0, ports, a, b])
            }
            KeyAddresses::V6 { src, dst } => {
                let [a, b, c, d, e] = words_of_ipv6(*src, *dst);
                Message::V6([first, 0, 0, ports, a, b, c, d, e])
            }
        }
    }

    fn under(&self, lanes: Lanes, block: &Block, sums: &mut [u64; UnderSeeds::ROOM]) {
        match self {
            Message::V4(words) => under(lanes, words, FlowKey::LEN4 as u64, block, sums),
            Message::V6(words) => under(lanes, words, FlowKey::LEN6 as u64, block, sums),
        }
    }
}

/// Words of SipHash's key, each the seed in both halves.
struct Block {
    keys: [u64; UnderSeeds::ROOM],
    len: usize,
}

fn under<const WORDS: usize>(
    lanes: Lanes,
    words: &[u64; WORDS],
    length: u64,
    block: &Block,
    sums: &mut [u64; UnderSeeds::ROOM],
) {
    match lanes.0 {
        Width::One => {
            for (key, sum) in block.keys[..block.len].iter().zip(sums) {
                let mut state = keyed(HashKey::new(*key, *key));
                for word in words {
                    absorb(&mut state, *word);
                }
                *sum = finish(state, length);
            }
        }
        // SAFETY: a `Lanes` is made only where the processor has been seen to have AVX2.
        #[cfg(target_arch = "x86_64")]
        Width::Avx2 => unsafe {
            lanes::avx2::under_keys(words, length, &block.keys, block.len, sums);
        },
        // SAFETY: a `Lanes` is made only where the processor has been seen to have AVX-512F.
        #[cfg(target_arch = "x86_64")]
        Width::Avx512 => unsafe {
            lanes::avx512::under_keys(words, length, &block.keys, block.len, sums);
        },
    }
}

/// What is hashed of one flow, to be hashed under many seeds.
#[derive(Clone, Debug)]
pub struct UnderSeeds(Kind);

#[derive(Clone, Debug)]
enum Kind {
    One(Message),
    Two([Option<Message>; 2]),
    Nothing,
}

impl UnderSeeds {
    /// Seeds that go together.
    pub const ROOM: usize = KeyBatch::ROOM;

    /// Of these keys.
    pub fn new(keys: &Keys) -> UnderSeeds {
        UnderSeeds(match keys {
            Keys::One(key) => Kind::One(Message::of(key)),
            Keys::Two { outer, inner } => {
                let message = |key: &Option<FlowKey>| key.as_ref().map(Message::of);
                Kind::Two([message(outer), message(inner)])
            }
            Keys::Nothing => Kind::Nothing,
        })
    }

    /// Words that go through SipHash for one seed: what an answer costs.
    pub fn words(&self) -> usize {
        let words = |message: &Message| match message {
            Message::V4(words) => words.len() + 1,
            Message::V6(words) => words.len() + 1,
        };
        match &self.0 {
            Kind::One(message) => words(message),
            Kind::Two(both) => both.iter().flatten().map(words).sum(),
            Kind::Nothing => 0,
        }
    }

    /// `hashes[n]` becomes what [`crate::Hasher::hash31`] gives for `seeds[n]`. Of seeds beyond
    /// [`UnderSeeds::ROOM`] nothing is hashed.
    pub fn hash31(&self, lanes: Lanes, seeds: &[u32], hashes: &mut [u32; UnderSeeds::ROOM]) {
        let mut block = Block {
            keys: [0; UnderSeeds::ROOM],
            len: seeds.len().min(UnderSeeds::ROOM),
        };
        for (key, seed) in block.keys.iter_mut().zip(seeds) {
            *key = u64::from(*seed) << 32 | u64::from(*seed);
        }
        let mut sums = [0; UnderSeeds::ROOM];
        match &self.0 {
            Kind::One(message) => {
                message.under(lanes, &block, &mut sums);
                for (hash, sum) in hashes.iter_mut().zip(sums) {
                    *hash = shorten(sum) >> 1;
                }
            }
            Kind::Two(both) => {
                let mut parts = [[0; UnderSeeds::ROOM]; 2];
                for (part, message) in parts.iter_mut().zip(both) {
                    let Some(message) = message else { continue };
                    message.under(lanes, &block, &mut sums);
                    *part = sums.map(shorten);
                }
                for (n, hash) in hashes.iter_mut().enumerate() {
                    *hash = jhash_2words(parts[0][n], parts[1][n], 0) >> 1;
                }
            }
            Kind::Nothing => hashes.fill(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hash::Hasher;
    use crate::hash::tests::keys;
    use crate::seed::Seed;

    proptest! {
        #[test]
        fn many_seeds_hash_as_each_does_alone(
            seeds in prop::collection::vec(1u32.., 0..=UnderSeeds::ROOM),
            one in keys(),
            other in keys(),
            which in 0..5,
        ) {
            let (outer, inner) = (Some(one), Some(other));
            let keys = match which {
                0 => Keys::One(one),
                1 => Keys::Two { outer, inner },
                2 => Keys::Two { outer, inner: None },
                3 => Keys::Two { outer: None, inner },
                _ => Keys::Nothing,
            };
            let alone = |seed: &u32| Hasher::new(Seed::new(*seed).unwrap()).hash31(&keys);
            let alone: Vec<u32> = seeds.iter().map(alone).collect();
            for lanes in Lanes::available() {
                let mut hashes = [0; UnderSeeds::ROOM];
                UnderSeeds::new(&keys).hash31(lanes, &seeds, &mut hashes);
                prop_assert_eq!(&hashes[..seeds.len()], &alone[..], "{}", lanes.name());
            }
        }
    }
}
