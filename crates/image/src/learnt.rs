//! Where bridges have learnt which sources: engines take from a port only what the bridge would learn nothing from.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Memory;
use crate::step::BucketFull;

/// Buckets, a power of two.
pub(crate) const LEARNT_BUCKETS: usize = 16384;
/// Words of one: a cache line.
pub(crate) const LEARNT_BUCKET: usize = 8;
/// Bytes of all.
pub const LEARNT_BYTES: usize = LEARNT_BUCKETS * LEARNT_BUCKET * 8;
/// The bucket of a word is in the upper bits of their product.
pub(crate) const LEARNT_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A MAC address as a number whose lowest byte is the first on the wire, above the place where it is learnt.
fn word(mac: [u8; 6], at: u16) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_le_bytes([0, 0, a, b, c, d, e, f]) | u64::from(at)
}

impl Memory {
    /// Whether this MAC address is learnt at a place: a port, and of a bridge that filters VLANs one of its VLANs; see
    /// [`Step::learnt`](crate::Step::learnt).
    pub fn is_learnt(&self, mac: [u8; 6], at: u16) -> bool {
        let wanted = word(mac, at);
        let mut words = self.learnt_bucket(wanted).iter();
        words.any(|word| word.load(Ordering::Acquire) == wanted)
    }

    /// Has it be learnt there, or not. `at` is not 0. One store.
    ///
    /// # Errors
    /// There is no room: nothing has changed, what comes from this address is the kernel's.
    pub fn store_learnt(&self, mac: [u8; 6], at: u16, is_learnt: bool) -> Result<(), BucketFull> {
        let wanted = word(mac, at);
        let bucket = self.learnt_bucket(wanted);
        let find = |wanted: u64| {
            let mut words = bucket.iter();
            words.find(|word| word.load(Ordering::Relaxed) == wanted)
        };
        match (find(wanted), is_learnt) {
            (Some(place), false) => place.store(0, Ordering::Release),
            (None, true) => find(0).ok_or(BucketFull)?.store(wanted, Ordering::Release),
            (Some(_), true) | (None, false) => {}
        }
        Ok(())
    }

    fn learnt_bucket(&self, word: u64) -> &[AtomicU64] {
        let shift = u64::BITS - LEARNT_BUCKETS.ilog2();
        let first = (word.wrapping_mul(LEARNT_FACTOR) >> shift) as usize * LEARNT_BUCKET;
        &self.learnt.words()[first..first + LEARNT_BUCKET]
    }
}

#[cfg(test)]
pub(crate) fn small() -> Memory {
    Memory::heap(&crate::Capacity::SMALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_learnt_at_places() {
        let memory = small();
        let mac = |n: u32| {
            let [a, b, c, d] = n.to_be_bytes();
            [2, 7, a, b, c, d]
        };
        let all = (0..8000).map(|n| (mac(n), (n % 7 + 1) as u16));
        for (mac, at) in all.clone() {
            assert!(!memory.is_learnt(mac, at));
            memory.store_learnt(mac, at, true).unwrap();
            memory.store_learnt(mac, at, true).unwrap();
            assert!(memory.is_learnt(mac, at) && !memory.is_learnt(mac, at + 1));
        }
        for (mac, at) in all {
            assert!(memory.is_learnt(mac, at));
            memory.store_learnt(mac, at, false).unwrap();
            memory.store_learnt(mac, at, false).unwrap();
            assert!(!memory.is_learnt(mac, at));
        }
        let mut words = memory.learnt.words().iter();
        assert!(words.all(|word| word.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn a_full_bucket_takes_no_more() {
        let memory = small();
        let of = |n: u64| {
            let [.., a, b, c, d, e, f] = n.to_be_bytes();
            [a, b, c, d, e, f]
        };
        let bucket = |mac: [u8; 6]| memory.learnt_bucket(word(mac, 1)).as_ptr();
        let all = (0..).map(of).filter(|mac| bucket(*mac) == bucket(of(0)));
        let all: Vec<[u8; 6]> = all.take(LEARNT_BUCKET + 1).collect();
        let (last, first) = all.split_last().unwrap();
        for mac in first {
            memory.store_learnt(*mac, 1, true).unwrap();
        }
        assert_eq!(memory.store_learnt(*last, 1, true), Err(BucketFull));
        assert!(first.iter().all(|mac| memory.is_learnt(*mac, 1)) && !memory.is_learnt(*last, 1));
    }
}
