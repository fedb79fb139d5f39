//! Reverse-path filtering: whether there is a way back to an IPv4 source.

use std::sync::atomic::Ordering;

use super::Memory;
use crate::LinkEntry;

/// The bit of a word of [`Memory::ways4`] that says that the kernel has a route there, by whatever link. The others stand
/// for one link each, see [`LinkEntry::way`].
pub const ANY_WAY: u32 = 0;
/// Links that may have a bit of their own.
pub const LINK_WAYS: u32 = 63;

impl Memory {
    /// Whether the way back to this source (host order) is one that the link's reverse-path filter is known to let pass
    /// (`__fib_validate_source`): the group that `back4` leads it to has the bit [`LinkEntry::way`]. Of the others the
    /// kernel decides.
    #[inline(never)]
    pub fn has_way_back(&self, link: &LinkEntry, source: u32) -> bool {
        let group = self.route4(link.back4, source);
        let word = self.ways4.words().get(group as usize);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (link.way & 63) & 1 != 0)
    }

    /// Stores the ways of the group with this number, which must be inside the capacity.
    pub fn store_ways(&self, group: u32, ways: u64) {
        self.ways4.words()[group as usize].store(ways, Ordering::Release);
    }
}
