//! The hash: SipHash-2-4 over a flow key, keyed with the seed, as Linux computes it.
//!
//! The width is fixed by the family (48 or 72 bytes), and the first three of the 8-byte words hold
//! nothing but the protocol and the flow label. So the state behind them is precomputed for every
//! protocol ([`mid_states`]), which leaves three words for IPv4 and six for IPv6.

use std::net::{Ipv4Addr, Ipv6Addr};

use raddle_packet::Family;

use crate::batch::Width;
use crate::jhash::jhash_2words;
use crate::key::{FlowKey, KeyAddresses};
use crate::keys::{KeyError, Keys, keys_of_packet, one_key};
use crate::policy::HashConfig;
use crate::seed::HashKey;

/// SipHash's v0..v3.
pub type SipState = [u64; 4];

/// [`SipState`] behind the first three words of a flow key with flow label 0, by protocol number.
pub type MidStates = [SipState; 256];

/// The state with the key, before any message word.
#[inline]
pub fn keyed(key: impl Into<HashKey>) -> SipState {
    let [k0, k1] = key.into().words();
    [
        k0 ^ u64::from_be_bytes(*b"somepseu"),
        k1 ^ u64::from_be_bytes(*b"dorandom"),
        k0 ^ u64::from_be_bytes(*b"lygenera"),
        k1 ^ u64::from_be_bytes(*b"tedbytes"),
    ]
}

/// What [`MidStates`] holds, for this key. Costs about 10 microseconds.
pub fn mid_states(key: impl Into<HashKey>) -> MidStates {
    of_state(&keyed(key))
}

/// The same for a state that has the key.
fn of_state(key: &SipState) -> MidStates {
    std::array::from_fn(|proto| mid_state(*key, proto as u8, 0))
}

/// The state behind the words with protocol, flow label and the fields that are always zero here
/// (VLAN tags).
#[inline]
fn mid_state(mut state: SipState, ip_proto: u8, flow_label_word: u32) -> SipState {
    absorb_first(&mut state, first_word(ip_proto, flow_label_word));
    state
}

/// The first word of a flow key.
#[inline(always)]
pub(crate) fn first_word(ip_proto: u8, flow_label_word: u32) -> u64 {
    u64::from(ip_proto) << 16 | u64::from(flow_label_word) << 32
}

/// Absorbs the first word and the two behind it, which are zero.
#[inline]
pub(crate) fn absorb_first(state: &mut SipState, first: u64) {
    for word in [first, 0, 0] {
        absorb(state, word);
    }
}

#[inline(always)]
fn round(v: &mut SipState) {
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

#[inline(always)]
pub(crate) fn absorb(v: &mut SipState, word: u64) {
    v[3] ^= word;
    round(v);
    round(v);
    v[0] ^= word;
}

/// Absorbs the last word, which holds the length and no further bytes: the widths are multiples
/// of 8.
#[inline(always)]
pub(crate) fn finish(mut v: SipState, length: u64) -> u64 {
    absorb(&mut v, length << 56);
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

/// SipHash-2-4 of a flow key as it stands: [`FlowKey::ordered`] must have been applied.
///
/// Equal to SipHash-2-4 over [`FlowKey::pack`]. `key` is [`keyed`], `mid` is [`mid_states`] of the
/// same key.
#[inline]
pub fn hash64(key: &SipState, mid: &MidStates, flow: &FlowKey) -> u64 {
    let mut state = match flow.flow_label_word {
        0 => mid[usize::from(flow.ip_proto)],
        label => mid_state(*key, flow.ip_proto, label),
    };
    absorb(&mut state, u64::from(flow.ports_word()) << 32);
    match &flow.addresses {
        KeyAddresses::V4 { src, dst } => {
            for word in words_of_ipv4(*src, *dst) {
                absorb(&mut state, word);
            }
            finish(state, FlowKey::LEN4 as u64)
        }
        KeyAddresses::V6 { src, dst } => {
            for word in words_of_ipv6(*src, *dst) {
                absorb(&mut state, word);
            }
            finish(state, FlowKey::LEN6 as u64)
        }
    }
}

/// The last words of a flow key: its addresses, which start in the middle of a word.
#[inline(always)]
pub(crate) fn words_of_ipv4(src: Ipv4Addr, dst: Ipv4Addr) -> [u64; 2] {
    let loaded = |address: Ipv4Addr| u64::from(u32::from_le_bytes(address.octets()));
    [loaded(src) << 32, loaded(dst)]
}

/// [`words_of_ipv4`] for IPv6.
#[inline(always)]
pub(crate) fn words_of_ipv6(src: Ipv6Addr, dst: Ipv6Addr) -> [u64; 5] {
    let (s, d) = (
        u128::from_le_bytes(src.octets()),
        u128::from_le_bytes(dst.octets()),
    );
    [
        (s as u64) << 32,
        (s >> 32) as u64,
        (s >> 96) as u64 | (d as u64) << 32,
        (d >> 32) as u64,
        (d >> 96) as u64,
    ]
}

/// The kernel's 32-bit hash of a flow key, never 0 (`flow_hash_from_keys_seed`).
///
/// 1. Source and destination address are put in order, and so are the ports ([`FlowKey::ordered`]).
/// 2. SipHash-2-4 of the packed key.
/// 3. Its low 32 bits; 0 becomes 1.
#[inline]
pub fn hash32(key: &SipState, mid: &MidStates, flow: &FlowKey) -> u32 {
    shorten(hash64(key, mid, &flow.ordered()))
}

/// Rule 3 of [`hash32`].
#[inline]
pub(crate) fn shorten(hash64: u64) -> u32 {
    (hash64 as u32).max(1)
}

/// Everything that depends on the key alone.
///
/// 8 KiB: made once, then shared or borrowed.
#[derive(Clone, PartialEq, Eq)]
pub struct Hasher {
    pub(crate) key: SipState,
    pub(crate) mid: Box<MidStates>,
    /// For batches.
    pub(crate) width: Width,
}

impl Hasher {
    /// For this seed or key. Costs about 10 microseconds.
    pub fn new(key: impl Into<HashKey>) -> Hasher {
        Hasher::of_state(keyed(key))
    }

    /// For the key that a state has, as [`keyed`] makes it.
    pub fn of_state(key: SipState) -> Hasher {
        Hasher {
            key,
            mid: Box::new(of_state(&key)),
            width: Width::detect(),
        }
    }

    /// [`hash32`].
    #[inline]
    pub fn hash32(&self, flow: &FlowKey) -> u32 {
        hash32(&self.key, &self.mid, flow)
    }

    /// The number that is compared with upper bounds: [`Hasher::hash_keys`] without its lowest bit.
    #[inline]
    pub fn hash31(&self, keys: &Keys) -> u32 {
        self.hash_keys(keys) >> 1
    }

    /// [`Hasher::hash31`] of a packet's keys ([`crate::keys_of_packet`]), without a detour for the
    /// policies that have one key only: engines use this.
    ///
    /// # Errors
    /// As [`crate::keys_of_packet`].
    #[inline]
    pub fn hash31_of_packet(
        &self,
        config: &HashConfig,
        family: Family,
        l3: &[u8],
    ) -> Result<u32, KeyError> {
        match one_key(config, family, l3) {
            Some(key) => Ok(self.hash32(&key) >> 1),
            None => keys_of_packet(config, family, l3).map(|keys| self.hash31(&keys)),
        }
    }

    /// The kernel's 32-bit hash of what a policy hashes.
    ///
    /// 1. One key: [`hash32`].
    /// 2. Two: [`jhash_2words`] of both hashes, 0 standing for a key that is not there; also where
    ///    only one is there.
    /// 3. None: 0.
    #[inline]
    pub fn hash_keys(&self, keys: &Keys) -> u32 {
        match keys {
            Keys::One(key) => self.hash32(key),
            Keys::Two { outer, inner } => {
                let hash = |key: &Option<FlowKey>| key.as_ref().map_or(0, |key| self.hash32(key));
                jhash_2words(hash(outer), hash(inner), 0)
            }
            Keys::Nothing => 0,
        }
    }

    /// [`hash64`].
    #[inline]
    pub fn hash64(&self, flow: &FlowKey) -> u64 {
        hash64(&self.key, &self.mid, flow)
    }
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hasher").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::hash::Hasher as _;

    use proptest::prelude::*;
    use siphasher::sip::SipHasher24;

    use super::*;
    use crate::seed::Seed;

    fn oracle(seed: u32, bytes: &[u8]) -> u64 {
        let key = u64::from(seed) << 32 | u64::from(seed);
        let mut hasher = SipHasher24::new_with_keys(key, key);
        hasher.write(bytes);
        hasher.finish()
    }

    fn addresses() -> impl Strategy<Value = KeyAddresses> {
        prop_oneof![
            any::<(u32, u32)>().prop_map(|(s, d)| KeyAddresses::V4 {
                src: Ipv4Addr::from(s),
                dst: Ipv4Addr::from(d),
            }),
            any::<(u128, u128)>().prop_map(|(s, d)| KeyAddresses::V6 {
                src: Ipv6Addr::from(s),
                dst: Ipv6Addr::from(d),
            }),
        ]
    }

    pub(crate) fn keys() -> impl Strategy<Value = FlowKey> {
        let label = prop_oneof![Just(0), any::<u32>()];
        (addresses(), any::<(u16, u16, u8)>(), label).prop_map(
            |(addresses, (sport, dport, ip_proto), flow_label_word)| FlowKey {
                addresses,
                sport,
                dport,
                ip_proto,
                flow_label_word,
            },
        )
    }

    proptest! {
        #[test]
        fn equals_siphash_of_the_packed_key(seed in 1u32.., key in keys()) {
            let hasher = Hasher::new(Seed::new(seed).unwrap());
            prop_assert_eq!(hasher.hash64(&key), oracle(seed, key.pack().as_ref()));
            let hash32 = (oracle(seed, key.ordered().pack().as_ref()) as u32).max(1);
            prop_assert_eq!(hasher.hash32(&key), hash32);
            prop_assert_eq!(hasher.hash31(&Keys::One(key)), hash32 >> 1);
        }

        #[test]
        fn both_directions_hash_alike(seed in 1u32.., key in keys()) {
            let hasher = Hasher::new(Seed::new(seed).unwrap());
            let addresses = match key.addresses {
                KeyAddresses::V4 { src, dst } => KeyAddresses::V4 { src: dst, dst: src },
                KeyAddresses::V6 { src, dst } => KeyAddresses::V6 { src: dst, dst: src },
            };
            let ports = FlowKey { sport: key.dport, dport: key.sport, ..key };
            let hash = hasher.hash32(&key);
            prop_assert_eq!(hasher.hash32(&ports), hash);
            prop_assert_eq!(hasher.hash32(&FlowKey { addresses, ..key }), hash);
            prop_assert_eq!(hasher.hash32(&FlowKey { addresses, ..ports }), hash);
        }
    }

    proptest! {
        #[test]
        fn a_key_of_128_bits_is_siphashs(k0: u64, k1: u64, key in keys()) {
            let mut hasher = SipHasher24::new_with_keys(k0, k1);
            hasher.write(key.pack().as_ref());
            let ours = HashKey::new(k0, k1);
            prop_assert_eq!(Hasher::new(ours).hash64(&key), hasher.finish());
            prop_assert_eq!(Hasher::of_state(keyed(ours)).hash64(&key), hasher.finish());
        }
    }

    #[test]
    fn zero_is_not_a_hash() {
        assert_eq!(shorten(0xabcd_0000_0000), 1);
        assert_eq!(shorten(0xabcd_0000_0002), 2);
    }
}
