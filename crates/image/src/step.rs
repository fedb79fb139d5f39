//! Links upon links: by which one frames come in that a program sees on a lower link.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{MAX_LINKS, Memory, Vlan};

/// Buckets, a power of two.
pub(crate) const STEP_BUCKETS: usize = 8192;
/// Words of one: a cache line.
pub(crate) const STEP_BUCKET: usize = 8;
/// Bytes of all.
pub const STEP_BYTES: usize = STEP_BUCKETS * STEP_BUCKET * 8;
/// The bucket of a key is in the upper bits of their product.
pub(crate) const STEP_FACTOR: u32 = 0x9e37_79b1;
/// Set in the keys of places that are in use.
pub(crate) const STEP_USED: u32 = 1 << 31;
/// Set in the keys of 802.1ad.
pub(crate) const STEP_STAG: u32 = 1 << 12;
/// Instead of a tag in the keys of all frames.
pub(crate) const STEP_ALL: u32 = 2 << 12;
/// Instead of a tag in the keys of frames without one.
pub(crate) const STEP_UNTAGGED: u32 = 3 << 12;
/// Set in the keys of MAC addresses, beside [`STEP_MAC_BITS`] of those.
pub(crate) const STEP_MAC: u32 = 4 << 12;
/// See there.
pub(crate) const STEP_MAC_BITS: u32 = 0x3fff;
/// Set in what a step leads to, where that is a port of a bridge.
pub(crate) const STEP_PORT: u32 = 1 << 15;
const _: () = assert!(MAX_LINKS <= STEP_PORT as usize);

/// As many steps are taken with a frame at most: by two tags, from a port to its bridge, and to a macvlan. There is one bridge on the
/// way, and a macvlan comes last.
pub const MAX_STEPS: usize = 4;

/// Which frames of a link come in by a link upon it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Upon {
    /// Those with this tag, by a VLAN upon the link; or, of a port of a bridge that filters VLANs, by the bridge or a VLAN upon it.
    Tag(Vlan),
    /// Of a port of a bridge that does not filter VLANs: all, by the bridge, with the tags that they have.
    All,
    /// Of a port of a bridge that filters VLANs: those without a tag, or with a tag of identifier 0.
    Untagged,
    /// Those to a MAC address, by a macvlan. Engines know 14 bits of it by this, and all by the entry of the macvlan: two of which
    /// these bits are the same are one here.
    Mac(u16),
}

impl Upon {
    /// To this MAC address.
    pub fn mac(mac: [u8; 6]) -> Upon {
        let end = u32::from(u16::from_le_bytes([mac[4], mac[5]]));
        Upon::Mac(((end ^ end >> 2) & STEP_MAC_BITS) as u16)
    }

    fn key(self, lower: u32) -> u32 {
        let what = match self {
            Upon::Tag(Vlan { service, id }) => {
                let service = if service { STEP_STAG } else { 0 };
                service | u32::from(id & 0xfff)
            }
            Upon::All => STEP_ALL,
            Upon::Untagged => STEP_UNTAGGED,
            Upon::Mac(bits) => STEP_MAC | (u32::from(bits) & STEP_MAC_BITS),
        };
        STEP_USED | (lower & 0x7fff) << 16 | what
    }
}

/// What they come in by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Step {
    /// The link, below [`MAX_LINKS`].
    pub index: u32,
    /// Whether it is a port of a bridge: then there is another step from it, and it is no link that packets come in by.
    pub is_port: bool,
    /// Where the frame's source has to be learnt, see [`Memory::is_learnt`]; 0 where that is all the same.
    pub learnt: u16,
}

/// There is no room for one more: eight others are where it would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketFull;

impl Memory {
    /// What these frames of link `lower` come in by, if engines know. `lower` is a
    /// [`LinkEntry::index`](crate::LinkEntry::index), or a [`Step::index`].
    pub fn step(&self, lower: u32, upon: Upon) -> Option<Step> {
        let key = upon.key(lower);
        let words = self.step_bucket(key).iter();
        let mut words = words.map(|word| word.load(Ordering::Acquire));
        let word = words.find(|word| (word >> 32) as u32 == key)? as u32;
        Some(Step {
            index: word & (STEP_PORT - 1),
            is_port: word & STEP_PORT != 0,
            learnt: (word >> 16) as u16,
        })
    }

    /// Whether there is any. Reads them all.
    pub fn has_steps(&self) -> bool {
        let mut words = self.steps.words().iter();
        words.any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Has these frames come in by this link, or by none: then they are the kernel's. One store.
    ///
    /// # Errors
    /// There is no room: nothing has changed, these frames are the kernel's.
    pub fn store_step(&self, lower: u32, upon: Upon, step: Option<Step>) -> Result<(), BucketFull> {
        let key = upon.key(lower);
        let bucket = self.step_bucket(key);
        let find = |wanted: u32| {
            let mut words = bucket.iter();
            words.find(|word| (word.load(Ordering::Relaxed) >> 32) as u32 == wanted)
        };
        let Some(step) = step else {
            if let Some(place) = find(key) {
                place.store(0, Ordering::Release);
            }
            return Ok(());
        };
        let place = find(key).or_else(|| find(0)).ok_or(BucketFull)?;
        let port = if step.is_port { STEP_PORT } else { 0 };
        let leads = u32::from(step.learnt) << 16 | port | (step.index & (STEP_PORT - 1));
        place.store(u64::from(key) << 32 | u64::from(leads), Ordering::Release);
        Ok(())
    }

    fn step_bucket(&self, key: u32) -> &[AtomicU64] {
        let shift = u32::BITS - STEP_BUCKETS.ilog2();
        let first = (key.wrapping_mul(STEP_FACTOR) >> shift) as usize * STEP_BUCKET;
        &self.steps.words()[first..first + STEP_BUCKET]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learnt::small;

    fn vlan(service: bool, id: u16) -> Upon {
        Upon::Tag(Vlan { service, id })
    }

    #[test]
    fn steps_are_found_by_link_and_kind() {
        let memory = small();
        let of_link = |lower: u32| {
            let tags = (0..64).map(|id| vlan(id % 3 == 0, id));
            let macs = (0..64).map(|n| Upon::mac([2, 0, 0, 0, 3, n]));
            let all = tags.chain(macs).chain([Upon::All, Upon::Untagged]);
            all.map(move |upon| (lower, upon))
        };
        let all: Vec<(u32, Upon)> = (0..4).flat_map(|n| of_link(n * 4001)).collect();
        for (index, &(lower, upon)) in (1..).zip(&all) {
            let step = |index, learnt| Step {
                index,
                is_port: index % 5 == 0,
                learnt,
            };
            let first = step(index, index as u16 * 100);
            assert_eq!(memory.step(lower, upon), None);
            memory.store_step(lower, upon, Some(first)).unwrap();
            assert_eq!(memory.step(lower, upon), Some(first));
            let second = step(MAX_LINKS as u32 - index, 0);
            memory.store_step(lower, upon, Some(second)).unwrap();
            assert_eq!(memory.step(lower, upon), Some(second));
        }
        assert!(memory.has_steps());
        for &(lower, upon) in &all {
            memory.store_step(lower, upon, None).unwrap();
            assert_eq!(memory.step(lower, upon), None);
        }
        assert!(!memory.has_steps());
    }

    #[test]
    fn a_full_bucket_takes_no_more() {
        let memory = small();
        let all = (1..256).flat_map(|lower| (0..4096).map(move |id| (lower, vlan(false, id))));
        let bucket = |(lower, upon): (u32, Upon)| memory.step_bucket(upon.key(lower)).as_ptr();
        let first = (1, vlan(false, 0));
        let full: Vec<(u32, Upon)> = all.filter(|of| bucket(*of) == bucket(first)).collect();
        let (last, first) = full[..=STEP_BUCKET].split_last().unwrap();
        let to = |index| {
            Some(Step {
                index,
                ..Step::default()
            })
        };
        for &(lower, upon) in first {
            memory.store_step(lower, upon, to(lower)).unwrap();
        }
        assert_eq!(memory.store_step(last.0, last.1, to(1)), Err(BucketFull));
        let known = |(lower, upon): &(u32, Upon)| memory.step(*lower, *upon) == to(*lower);
        assert!(first.iter().all(known));
    }
}
