//! Many hashes at once: one in each lane of the processor's vector registers.
//!
//! SipHash is additions, rotations and exclusive ors, each of which waits for the one before; lanes
//! take eight (AVX-512) or four (AVX2) keys through them together. Other processors take one key after
//! the other. Which it is depends on the processor that the program runs on, and changes no hash.

use raddle_packet::Family;

use crate::hash::{
    Hasher, SipState, absorb, absorb_first, finish, first_word, shorten, words_of_ipv4,
    words_of_ipv6,
};
use crate::header::{l3_ipv4, l3_ipv6};
use crate::key::{FlowKey, KeyAddresses};
use crate::keys::{KeyError, Keys, keys_of_packet, l4_plain};
use crate::policy::{HashConfig, Policy};

#[cfg(target_arch = "x86_64")]
mod lanes;
mod seeds;

pub use seeds::{Lanes, UnderSeeds};

/// How a processor takes keys through the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// One key after the other.
    One,
    /// Four in each register.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Eight in each register, which can rotate its lanes.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Width {
    /// The widest that this processor has.
    pub(crate) fn detect() -> Width {
        #[cfg(target_arch = "x86_64")]
        {
            if std::is_x86_feature_detected!("avx512f") {
                return Width::Avx512;
            }
            if std::is_x86_feature_detected!("avx2") {
                return Width::Avx2;
            }
        }
        Width::One
    }
}

/// Flow keys that wait to be hashed together ([`Hasher::hash31_all`]).
///
/// 6 KiB: made once, used again and again.
#[derive(Clone, Debug)]
pub struct KeyBatch {
    v4: Waiting<3>,
    v6: Waiting<6>,
}

/// Keys of one family, which is those of one length: `WORDS` words behind the first three.
#[derive(Clone, Debug)]
struct Waiting<const WORDS: usize> {
    len: usize,
    /// Protocol and flow label, as in [`first_word`]; two words of zeros follow.
    first: [u64; KeyBatch::ROOM],
    words: [[u64; KeyBatch::ROOM]; WORDS],
    /// Whose hash it is.
    at: [u8; KeyBatch::ROOM],
}

impl<const WORDS: usize> Waiting<WORDS> {
    const NONE: Self = Waiting {
        len: 0,
        first: [0; KeyBatch::ROOM],
        words: [[0; KeyBatch::ROOM]; WORDS],
        at: [0; KeyBatch::ROOM],
    };

    #[inline]
    fn push(&mut self, first: u64, words: [u64; WORDS], at: u8) {
        let lane = self.len;
        assert!(lane < KeyBatch::ROOM, "a batch of keys is full");
        self.first[lane] = first;
        for (column, word) in self.words.iter_mut().zip(words) {
            column[lane] = word;
        }
        self.at[lane] = at;
        self.len = lane + 1;
    }
}

impl Default for KeyBatch {
    fn default() -> KeyBatch {
        KeyBatch::new()
    }
}

impl KeyBatch {
    /// Keys of a family that fit.
    pub const ROOM: usize = 64;

    /// Without keys.
    pub const fn new() -> KeyBatch {
        KeyBatch {
            v4: Waiting::NONE,
            v6: Waiting::NONE,
        }
    }

    /// Adds a key, whose hash goes to place `at`.
    ///
    /// # Panics
    /// Where there are [`KeyBatch::ROOM`] keys of its family already.
    #[inline]
    pub fn push(&mut self, key: &FlowKey, at: u8) {
        let key = key.ordered();
        let first = first_word(key.ip_proto, key.flow_label_word);
        let ports = u64::from(key.ports_word()) << 32;
        match &key.addresses {
            KeyAddresses::V4 { src, dst } => {
                let words = words_of_ipv4(*src, *dst);
                self.v4.push(first, [ports, words[0], words[1]], at);
            }
            KeyAddresses::V6 { src, dst } => {
                let [a, b, c, d, e] = words_of_ipv6(*src, *dst);
                self.v6.push(first, [ports, a, b, c, d, e], at);
            }
        }
    }

    /// [`KeyBatch::push`], if there is a key.
    #[inline(always)]
    fn add(&mut self, key: Option<FlowKey>, at: u8) -> bool {
        if let Some(key) = &key {
            self.push(key, at);
        }
        key.is_some()
    }
}

/// Where keys start.
struct Starts<'a> {
    hasher: &'a Hasher,
}

impl Starts<'_> {
    /// The state behind the first three words.
    #[inline]
    fn of(&self, first: u64) -> SipState {
        if first >> 32 == 0 {
            return self.hasher.mid[usize::from((first >> 16) as u8)];
        }
        let mut state = self.hasher.key;
        absorb_first(&mut state, first);
        state
    }
}

impl Hasher {
    /// Hashes all keys of a batch, which is empty then: `hashes[at]` becomes what
    /// [`Hasher::hash31_of_packet`] gives, for each `at` with which a key was added.
    ///
    /// A full batch costs less than half of hashing one key after the other with AVX-512, about half with
    /// AVX2; a batch of three keys or fewer costs more.
    ///
    /// # Panics
    /// Where there is no place `at`.
    pub fn hash31_all(&self, batch: &mut KeyBatch, hashes: &mut [u32]) {
        self.all(&mut batch.v4, FlowKey::LEN4 as u64, hashes);
        self.all(&mut batch.v6, FlowKey::LEN6 as u64, hashes);
    }

    fn all<const WORDS: usize>(&self, keys: &mut Waiting<WORDS>, length: u64, hashes: &mut [u32]) {
        let len = std::mem::take(&mut keys.len);
        if len == 0 {
            return;
        }
        let mut sums = [0; KeyBatch::ROOM];
        let starts = Starts { hasher: self };
        match self.width {
            Width::One => one_by_one(&starts, keys, 0..len, length, &mut sums),
            // SAFETY: `Width::detect` has seen that the processor has AVX2.
            #[cfg(target_arch = "x86_64")]
            Width::Avx2 => unsafe { lanes::avx2::all(&starts, keys, len, length, &mut sums) },
            // SAFETY: `Width::detect` has seen that the processor has AVX-512F.
            #[cfg(target_arch = "x86_64")]
            Width::Avx512 => unsafe { lanes::avx512::all(&starts, keys, len, length, &mut sums) },
        }
        for (sum, at) in sums[..len].iter().zip(&keys.at) {
            hashes[usize::from(*at)] = shorten(*sum) >> 1;
        }
    }

    /// Adds the key of a packet to a batch, under [`KeyBatch::push`]'s conditions.
    ///
    /// # Returns
    /// What [`Hasher::hash31_of_packet`] gives, where that is not the hash of one key (policy 3) and
    /// so was made at once; otherwise none.
    ///
    /// # Errors
    /// As [`crate::keys_of_packet`]; nothing is added then.
    #[inline]
    pub fn collect(
        &self,
        batch: &mut KeyBatch,
        config: &HashConfig,
        family: Family,
        l3: &[u8],
        at: u8,
    ) -> Result<Option<u32>, KeyError> {
        // Each of these adds its key by itself, so that it never leaves the registers.
        let added = match (config.policy, family) {
            (Policy::L3, Family::V4) => batch.add(l3_ipv4(l3).map(|(key, _)| key), at),
            (Policy::L3, Family::V6) => batch.add(l3_ipv6(l3).map(|(key, _)| key), at),
            (Policy::L4, Family::V4) => batch.add(l4_plain(Family::V4, l3), at),
            (Policy::L4, Family::V6) => batch.add(l4_plain(Family::V6, l3), at),
            (Policy::Inner | Policy::Custom, _) => false,
        };
        if added {
            return Ok(None);
        }
        self.collect_rare(batch, config, family, l3, at)
    }

    #[inline(never)]
    fn collect_rare(
        &self,
        batch: &mut KeyBatch,
        config: &HashConfig,
        family: Family,
        l3: &[u8],
        at: u8,
    ) -> Result<Option<u32>, KeyError> {
        match keys_of_packet(config, family, l3)? {
            Keys::One(key) => {
                batch.push(&key, at);
                Ok(None)
            }
            keys => Ok(Some(self.hash31(&keys))),
        }
    }
}

/// The hashes of some of the keys, one after the other.
#[inline]
fn one_by_one<const WORDS: usize>(
    starts: &Starts<'_>,
    keys: &Waiting<WORDS>,
    places: std::ops::Range<usize>,
    length: u64,
    sums: &mut [u64; KeyBatch::ROOM],
) {
    for place in places {
        let mut state = starts.of(keys.first[place]);
        for column in &keys.words {
            absorb(&mut state, column[place]);
        }
        sums[place] = finish(state, length);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hash::tests::keys;
    use crate::seed::Seed;

    /// Every width that this processor has.
    fn widths() -> Vec<Width> {
        let mut widths = vec![Width::One];
        #[cfg(target_arch = "x86_64")]
        {
            if std::is_x86_feature_detected!("avx2") {
                widths.push(Width::Avx2);
            }
            if std::is_x86_feature_detected!("avx512f") {
                widths.push(Width::Avx512);
            }
        }
        widths
    }

    fn hashers(seed: u32) -> impl Iterator<Item = Hasher> {
        widths().into_iter().map(move |width| Hasher {
            width,
            ..Hasher::new(Seed::new(seed).unwrap())
        })
    }

    /// The hashes of these keys, together; the last key's comes first.
    fn together(hasher: &Hasher, batch: &mut KeyBatch, keys: &[FlowKey]) -> Vec<u32> {
        let mut hashes = vec![0; keys.len()];
        for (at, key) in keys.iter().rev().enumerate() {
            batch.push(key, at as u8);
        }
        hasher.hash31_all(batch, &mut hashes);
        hashes.reverse();
        hashes
    }

    fn apart(hasher: &Hasher, keys: &[FlowKey]) -> Vec<u32> {
        keys.iter().map(|key| hasher.hash32(key) >> 1).collect()
    }

    /// As packets have them: few protocols, often no flow label.
    fn like_packets() -> impl Strategy<Value = FlowKey> {
        (
            keys(),
            prop::sample::select(vec![0u8, 6, 17, 17, 17]),
            0..4u32,
        )
            .prop_map(|(key, ip_proto, label)| FlowKey {
                ip_proto,
                flow_label_word: label.saturating_sub(2),
                ..key
            })
    }

    proptest! {
        #[test]
        fn together_is_apart(
            seed in 1u32..,
            first in prop::collection::vec(keys(), 0..=KeyBatch::ROOM),
            second in prop::collection::vec(like_packets(), 0..=KeyBatch::ROOM),
        ) {
            for hasher in hashers(seed) {
                let mut batch = KeyBatch::new();
                for keys in [&first, &second] {
                    prop_assert_eq!(together(&hasher, &mut batch, keys), apart(&hasher, keys));
                }
            }
        }

        /// Of one family and one protocol, so that nothing is left to the way for mixtures, and for
        /// every number of keys that fills some lanes and not others.
        #[test]
        fn any_number_of_lanes(seed in 1u32.., key in like_packets(), step in any::<u16>()) {
            let keys: Vec<FlowKey> = (0..KeyBatch::ROOM as u16)
                .map(|n| FlowKey { sport: key.sport.wrapping_add(n.wrapping_mul(step)), ..key })
                .collect();
            for hasher in hashers(seed) {
                let expected = apart(&hasher, &keys);
                let mut batch = KeyBatch::new();
                for count in 0..=keys.len() {
                    let hashes = together(&hasher, &mut batch, &keys[..count]);
                    prop_assert_eq!(&hashes, &expected[..count]);
                }
            }
        }

        #[test]
        fn packets_hash_as_they_do_alone(
            seed in 1u32..,
            policy in prop::sample::select(vec![Policy::L3, Policy::L4, Policy::Inner, Policy::Custom]),
            mut packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..20),
        ) {
            let config = HashConfig {
                icmp_follows_flow: true,
                ..HashConfig::from(policy)
            };
            for l3 in packets.iter_mut().filter(|l3| l3.len() > 10) {
                // Some of both families, some with ports, some ICMP, some a tunnel.
                let protocols = [6, 17, 1, 4, 58, 47];
                (l3[0], l3[6], l3[7]) = (if l3[0] & 1 == 0 { 0x45 } else { 0x60 }, 0, 0);
                l3[9] = protocols[usize::from(l3[9]) % protocols.len()];
            }
            for hasher in hashers(seed) {
                let mut batch = KeyBatch::new();
                let mut hashes = vec![None; packets.len()];
                let mut slots = vec![0; packets.len()];
                for (at, l3) in packets.iter().enumerate() {
                    let family = if l3.first() == Some(&0x60) { Family::V6 } else { Family::V4 };
                    let collected = hasher.collect(&mut batch, &config, family, l3, at as u8);
                    let alone = hasher.hash31_of_packet(&config, family, l3);
                    match collected {
                        Ok(Some(hash)) => prop_assert_eq!(Ok(hash), alone),
                        Ok(None) => hashes[at] = Some(alone),
                        Err(error) => prop_assert_eq!(Err(error), alone),
                    }
                }
                hasher.hash31_all(&mut batch, &mut slots);
                for (alone, together) in hashes.into_iter().zip(slots) {
                    prop_assert_eq!(alone.unwrap_or(Ok(0)), Ok(together));
                }
            }
        }
    }
}
