//! Links that frames come in by for the VLAN tags in them.

use std::sync::atomic::Ordering;

use crate::Memory;

/// Buckets, a power of two.
pub(crate) const VLAN_BUCKETS: usize = 8192;
/// Words of one: a cache line.
pub(crate) const VLAN_BUCKET: usize = 8;
/// Bytes of all.
pub const VLAN_BYTES: usize = VLAN_BUCKETS * VLAN_BUCKET * 8;
/// The bucket of a key is in the upper bits of their product.
pub(crate) const VLAN_FACTOR: u32 = 0x9e37_79b1;
/// Set in the keys of places that are in use.
pub(crate) const VLAN_USED: u32 = 1 << 31;
/// Set in the keys of 802.1ad.
pub(crate) const VLAN_STAG: u32 = 1 << 12;

/// What a VLAN is upon a link: the tag of its frames without priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Vlan {
    /// EtherType 0x88a8 (802.1ad, a service tag) instead of 0x8100 (802.1Q).
    pub service: bool,
    /// VLAN identifier, 0 to 4095.
    pub id: u16,
}

/// There is no room for one more VLAN: eight others are where it would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlansFull;

impl Vlan {
    /// EtherType of 802.1Q.
    pub const CUSTOMER: u16 = 0x8100;
    /// EtherType of 802.1ad.
    pub const SERVICE: u16 = 0x88a8;

    /// Of this EtherType and tag control information, priorities and all; none of another EtherType.
    pub fn of(ether_type: u16, tci: u16) -> Option<Vlan> {
        let service = match ether_type {
            Vlan::CUSTOMER => false,
            Vlan::SERVICE => true,
            _ => return None,
        };
        let id = tci & 0xfff;
        Some(Vlan { service, id })
    }

    /// Its tag with priority 0, as [`crate::Adjacency::tag`] has it.
    pub fn tag(self) -> u32 {
        let ether_type = match self.service {
            false => Vlan::CUSTOMER,
            true => Vlan::SERVICE,
        };
        u32::from(ether_type) << 16 | u32::from(self.id & 0xfff)
    }

    /// Upon this link.
    fn key(self, lower: u32) -> u32 {
        let service = if self.service { VLAN_STAG } else { 0 };
        VLAN_USED | (lower & 0x7fff) << 16 | service | u32::from(self.id & 0xfff)
    }
}

impl Memory {
    /// The link that frames with this tag come in by, if they do by link `lower` and there is such a VLAN upon it. `lower` is a
    /// [`LinkEntry::index`](crate::LinkEntry::index), or the index of another VLAN.
    pub fn vlan(&self, lower: u32, vlan: Vlan) -> Option<u32> {
        let key = vlan.key(lower);
        let words = self.vlan_bucket(key).iter();
        let mut words = words.map(|word| word.load(Ordering::Acquire));
        let word = words.find(|word| (word >> 32) as u32 == key)?;
        Some(word as u32)
    }

    /// Whether there is any. Reads them all.
    pub fn has_vlans(&self) -> bool {
        let mut words = self.vlans.words().iter();
        words.any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Has frames with this tag come in by link `index`, or by none: then they are the kernel's. One store.
    ///
    /// # Errors
    /// There is no room: nothing has changed, these frames are the kernel's.
    pub fn store_vlan(&self, lower: u32, vlan: Vlan, index: Option<u32>) -> Result<(), VlansFull> {
        let key = vlan.key(lower);
        let bucket = self.vlan_bucket(key);
        let find = |wanted: u32| {
            let mut words = bucket.iter();
            words.find(|word| (word.load(Ordering::Relaxed) >> 32) as u32 == wanted)
        };
        let Some(index) = index else {
            if let Some(place) = find(key) {
                place.store(0, Ordering::Release);
            }
            return Ok(());
        };
        let place = find(key).or_else(|| find(0)).ok_or(VlansFull)?;
        place.store(u64::from(key) << 32 | u64::from(index), Ordering::Release);
        Ok(())
    }

    fn vlan_bucket(&self, key: u32) -> &[std::sync::atomic::AtomicU64] {
        let shift = u32::BITS - VLAN_BUCKETS.ilog2();
        let first = (key.wrapping_mul(VLAN_FACTOR) >> shift) as usize * VLAN_BUCKET;
        &self.vlans.words()[first..first + VLAN_BUCKET]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Capacity;

    fn small() -> Memory {
        Memory::heap(&Capacity {
            nodes4: 64,
            leaves4: 64,
            words6: 64,
            groups: 1,
            members: 1,
            adjacencies: 1,
            segments: 1,
            templates: 1,
        })
    }

    #[test]
    fn vlans_are_found_by_link_kind_and_number() {
        let memory = small();
        let vlan = |service, id| Vlan { service, id };
        let all: Vec<(u32, Vlan)> = (0..4)
            .flat_map(|lower| (0..64).map(move |id| (lower * 4001, vlan(id % 3 == 0, id))))
            .collect();
        for (index, &(lower, vlan)) in (1..).zip(&all) {
            assert_eq!(memory.vlan(lower, vlan), None);
            assert_eq!(memory.store_vlan(lower, vlan, Some(index)), Ok(()));
        }
        for (index, &(lower, of)) in (1..).zip(&all) {
            assert_eq!(memory.vlan(lower, of), Some(index));
            assert_eq!(memory.vlan(lower, vlan(!of.service, of.id)), None);
            memory.store_vlan(lower, of, Some(index + 7)).unwrap();
            assert_eq!(memory.vlan(lower, of), Some(index + 7));
            memory.store_vlan(lower, of, None).unwrap();
            assert_eq!(memory.vlan(lower, of), None);
        }
        let words = memory.vlans.words().iter();
        assert!(
            words
                .map(|word| word.load(Ordering::Relaxed))
                .all(|word| word == 0)
        );
    }

    #[test]
    fn a_full_bucket_takes_no_more() {
        let memory = small();
        let service = false;
        let all = (1..256).flat_map(|lower| (0..4096).map(move |id| (lower, Vlan { service, id })));
        let bucket = |(lower, vlan): (u32, Vlan)| memory.vlan_bucket(vlan.key(lower)).as_ptr();
        let first = (1, Vlan { service, id: 0 });
        let full: Vec<(u32, Vlan)> = all.filter(|of| bucket(*of) == bucket(first)).collect();
        let (last, first) = full[..=VLAN_BUCKET].split_last().unwrap();
        for &(lower, vlan) in first {
            memory.store_vlan(lower, vlan, Some(lower)).unwrap();
        }
        assert_eq!(memory.store_vlan(last.0, last.1, Some(1)), Err(VlansFull));
        let known = |(lower, vlan): &(u32, Vlan)| memory.vlan(*lower, *vlan) == Some(*lower);
        assert!(first.iter().all(known));
    }

    #[test]
    fn tags_are_read_and_made() {
        assert_eq!(Vlan::of(0x0800, 5), None);
        let vlan = Vlan::of(0x88a8, 0xe005).unwrap();
        assert_eq!(
            vlan,
            Vlan {
                service: true,
                id: 5
            }
        );
        assert_eq!(vlan.tag(), 0x88a8_0005);
    }
}
