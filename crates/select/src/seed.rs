//! What keys the hash: a seed that is set, or the kernel's own key.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// A known `net.ipv4.fib_multipath_hash_seed`; it holds for both families.
///
/// 0 is not one: the kernel then has a key of its own ([`HashKey`]).
///
/// # Minimum kernel version
/// 6.11. Before that the key is always random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seed(NonZeroU32);

impl Seed {
    /// A seed, unless it is 0.
    #[inline]
    pub fn new(seed: u32) -> Option<Seed> {
        NonZeroU32::new(seed).map(Seed)
    }

    /// The number.
    #[inline]
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

/// The key of SipHash by which the kernel chooses among paths: that of a [`Seed`], or its own, drawn at
/// random, where no seed is set.
///
/// Who has it can steer flows: it is shown to nobody, not in debug output either.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey([u64; 2]);

impl HashKey {
    /// From both words of the key.
    ///
    /// # Minimum kernel version
    /// Before 6.11 the kernel's own key has 128 bits (`hashrnd`); since then it is made of a seed of 32 bits.
    #[inline]
    pub const fn new(k0: u64, k1: u64) -> HashKey {
        HashKey([k0, k1])
    }

    /// Both words.
    #[inline]
    pub const fn words(self) -> [u64; 2] {
        self.0
    }

    /// A number that stands for the key: the seed, where it is made of one; never 0.
    #[inline]
    pub fn number(self) -> u32 {
        (self.0[0] as u32).max(1)
    }
}

impl From<Seed> for HashKey {
    /// The seed in both halves of both words (`fib_multipath_hash_construct_key`).
    #[inline]
    fn from(seed: Seed) -> HashKey {
        let half = u64::from(seed.get());
        let word = half << 32 | half;
        HashKey([word, word])
    }
}

impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HashKey").finish_non_exhaustive()
    }
}

/// Which key the kernel chooses by, as far as that is known: never what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyKind {
    /// That of the seed that is set.
    Seed,
    /// The kernel's own, which has been read.
    Kernel,
    /// The kernel's own, which is not known.
    #[default]
    Unknown,
}

impl KeyKind {
    /// All of them.
    pub const ALL: [KeyKind; 3] = [KeyKind::Seed, KeyKind::Kernel, KeyKind::Unknown];

    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            KeyKind::Seed => "seed",
            KeyKind::Kernel => "kernel",
            KeyKind::Unknown => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_shown() {
        let key = HashKey::from(Seed::new(0x1234_5678).unwrap());
        assert_eq!(key.words(), [0x1234_5678_1234_5678; 2]);
        assert_eq!(key.number(), 0x1234_5678);
        assert_eq!(format!("{key:?} {key:#?}"), "HashKey { .. } HashKey { .. }");
    }

    #[test]
    fn zero_is_not_a_seed() {
        assert_eq!(Seed::new(0), None);
        assert!(serde_json::from_str::<Seed>("0").is_err());
    }
}
