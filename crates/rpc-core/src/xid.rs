//! Transaction ids: each transport owns a segment of the 32-bit space, so that two never use the same one.
//!
//! Servers that know repeated calls by the XID alone, or by XID and address, would otherwise take calls
//! of two connections for one.

/// A transport's part of the XID space: the XIDs with its number in their top bits.
#[derive(Clone, Debug)]
pub struct Segment {
    top: u32,
    /// How many low bits count.
    bits: u32,
    next: u32,
}

impl Segment {
    /// The most transports that there can be: each has 2^16 XIDs then.
    pub const MOST: usize = 1 << 16;

    /// Segment `number` of `count`, counting from anywhere (`start`; draw it). As many top bits as the
    /// count needs tell segments apart. `count` is 1 to [`Segment::MOST`], `number` less than it.
    pub fn new(number: usize, count: usize, start: u32) -> Segment {
        debug_assert!(number < count && count <= Segment::MOST);
        let bits = 32 - count.next_power_of_two().trailing_zeros();
        let low = Segment::low(bits);
        Segment {
            top: (number as u64).checked_shl(bits).unwrap_or(0) as u32 & !low,
            bits,
            next: start & low,
        }
    }

    fn low(bits: u32) -> u32 {
        u32::MAX.checked_shr(32 - bits).unwrap_or(0)
    }

    /// Whether an XID is of this segment.
    pub fn owns(&self, xid: u32) -> bool {
        xid & !Segment::low(self.bits) == self.top
    }

    /// The next XID that is not `used`; none when as many in a row are used as are tried, 2^16. O(1) while
    /// few of the segment are in use.
    pub fn take(&mut self, used: impl Fn(u32) -> bool) -> Option<u32> {
        let low = Segment::low(self.bits);
        for _ in 0..=u16::MAX {
            let xid = self.top | self.next;
            self.next = self.next.wrapping_add(1) & low;
            if !used(xid) {
                return Some(xid);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn segments_never_share_an_xid(count in 1..70_usize, start: u32, calls in 1..200_usize) {
            let mut segments: Vec<_> = (0..count).map(|n| Segment::new(n, count, start)).collect();
            let mut seen = HashSet::new();
            for (n, segment) in segments.iter_mut().enumerate() {
                for _ in 0..calls {
                    let xid = segment.take(|_| false).unwrap();
                    prop_assert!(segment.owns(xid));
                    prop_assert!(seen.insert(xid), "segment {} gives {:#x} again", n, xid);
                }
            }
            for xid in seen {
                prop_assert_eq!(segments.iter().filter(|s| s.owns(xid)).count(), 1);
            }
        }
    }

    #[test]
    fn wraps_within_its_segment_and_passes_over_what_is_used() {
        let mut segment = Segment::new(1, 4, 0x3fff_ffff);
        assert_eq!(segment.take(|_| false), Some(0x7fff_ffff));
        assert_eq!(segment.take(|xid| xid == 0x4000_0000), Some(0x4000_0001));
        assert_eq!(segment.take(|_| true), None);
        let mut alone = Segment::new(0, 1, u32::MAX);
        assert_eq!(alone.take(|_| false), Some(u32::MAX));
        assert_eq!(alone.take(|_| false), Some(0));
    }
}
