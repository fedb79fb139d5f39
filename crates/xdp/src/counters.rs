//! The program's counters: one stripe per CPU, mapped into this process.

use std::sync::atomic::{AtomicU64, Ordering};

use raddle_fib::Region;
use raddle_rib::Reason;
use raddle_rib::image::{
    ADJACENCY_COUNTERS, REASON_COUNTERS, REASON_DROPPED, SEGMENT_COUNTERS, segment_counter,
};

/// Packets and bytes. Bytes count whole frames, from the destination MAC on, without FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Frames.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl std::ops::AddAssign for Counter {
    fn add_assign(&mut self, other: Counter) {
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

/// A reading of all counters, indexed as in the image: reasons, then links by their slot, then
/// adjacencies.
///
/// Read without stopping anybody, so that counters may be some packets apart from each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    slots: usize,
    cpus: Vec<Counter>,
}

impl Counters {
    pub(crate) fn read(region: &Region, slots: usize) -> Counters {
        let cpus = region
            .words()
            .chunks_exact(2)
            .map(|pair| Counter {
                packets: pair[0].load(Ordering::Relaxed),
                bytes: pair[1].load(Ordering::Relaxed),
            })
            .collect();
        Counters { slots, cpus }
    }

    /// How many CPUs have counters.
    pub fn cpus(&self) -> usize {
        self.cpus.len() / self.slots
    }

    /// How many counters each CPU has.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// One counter of one CPU; zero outside of what there is.
    pub fn on_cpu(&self, cpu: usize, slot: usize) -> Counter {
        if slot >= self.slots {
            return Counter::default();
        }
        let at = cpu
            .checked_mul(self.slots)
            .and_then(|at| at.checked_add(slot));
        at.and_then(|at| self.cpus.get(at))
            .copied()
            .unwrap_or_default()
    }

    /// One counter, summed over all CPUs.
    pub fn total(&self, slot: usize) -> Counter {
        let mut sum = Counter::default();
        for cpu in 0..self.cpus() {
            sum += self.on_cpu(cpu, slot);
        }
        sum
    }

    /// Packets that were not forwarded for this reason.
    pub fn reason(&self, reason: Reason) -> Counter {
        let mut sum = self.total(reason as usize);
        sum += self.total(REASON_DROPPED + reason as usize);
        sum
    }

    /// Those of them that were dropped, and not handed over.
    pub fn dropped(&self, reason: Reason) -> Counter {
        match reason.is_drop() {
            true => self.reason(reason),
            false => self.total(REASON_DROPPED + reason as usize),
        }
    }

    /// Packets received on the link with this counter slot.
    pub fn link(&self, slot: u32) -> Counter {
        self.total(REASON_COUNTERS + slot as usize)
    }

    /// Packets forwarded through this adjacency; bytes after trimming.
    pub fn adjacency(&self, number: u32) -> Counter {
        self.total(ADJACENCY_COUNTERS + number as usize)
    }
}

/// What was counted of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// By [`segment_counter`].
    pub values: [u64; SEGMENT_COUNTERS],
}

impl SegmentCounts {
    /// Packets that the behaviour was carried out on.
    pub fn packets(&self) -> u64 {
        self.values[segment_counter::PACKETS]
    }

    /// Their bytes, see [`segment_counter::BYTES`].
    pub fn bytes(&self) -> u64 {
        self.values[segment_counter::BYTES]
    }

    /// Packets that it was not carried out on, for whatever reason.
    pub fn errors(&self) -> u64 {
        let failed = &self.values[segment_counter::FAILED..];
        failed.iter().fold(0, |sum, value| sum.wrapping_add(*value))
    }

    /// One for each CPU; none where there is no such segment.
    pub(crate) fn read(
        region: &Region,
        segments: usize,
        number: u32,
    ) -> impl Iterator<Item = SegmentCounts> + '_ {
        cells(region, segments, number).map(|cells| {
            let mut counts = SegmentCounts::default();
            for (value, cell) in counts.values.iter_mut().zip(cells) {
                *value = cell.load(Ordering::Relaxed);
            }
            counts
        })
    }

    pub(crate) fn clear(region: &Region, segments: usize, number: u32) {
        for cell in cells(region, segments, number).flatten() {
            cell.store(0, Ordering::Relaxed);
        }
    }
}

impl std::ops::AddAssign for SegmentCounts {
    fn add_assign(&mut self, other: SegmentCounts) {
        for (value, other) in self.values.iter_mut().zip(other.values) {
            *value = value.wrapping_add(other);
        }
    }
}

impl std::iter::Sum for SegmentCounts {
    fn sum<I: Iterator<Item = SegmentCounts>>(counts: I) -> SegmentCounts {
        let mut sum = SegmentCounts::default();
        for each in counts {
            sum += each;
        }
        sum
    }
}

/// The cells of a segment, by CPU.
fn cells(region: &Region, segments: usize, number: u32) -> impl Iterator<Item = &[AtomicU64]> {
    let number = number as usize;
    let stripe = (segments * SEGMENT_COUNTERS).max(1);
    let cpus = region.words().chunks_exact(stripe);
    cpus.filter_map(move |cpu| cpu.chunks_exact(SEGMENT_COUNTERS).nth(number))
}

/// Counters of one CPU for this many adjacencies: a multiple of a cache line's four, so that no
/// two CPUs write to one line.
pub(crate) fn slots(adjacencies: usize) -> usize {
    (ADJACENCY_COUNTERS + adjacencies).next_multiple_of(4)
}

/// One more than the largest CPU number that this machine can have.
pub(crate) fn possible_cpus() -> std::io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    parse_cpus(&text).ok_or_else(|| {
        std::io::Error::other(format!("/sys/devices/system/cpu/possible says {text:?}"))
    })
}

/// `0-3,8-11` has the largest CPU at its end.
fn parse_cpus(text: &str) -> Option<usize> {
    let last = text.trim().rsplit([',', '-']).next()?;
    last.parse::<usize>().ok()?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpus("0\n"), Some(1));
        assert_eq!(parse_cpus("0-1\n"), Some(2));
        assert_eq!(parse_cpus("0-3,8-11\n"), Some(12));
        assert_eq!(parse_cpus(""), None);
    }

    #[test]
    fn segments_have_their_cells() {
        let region = Region::heap(2 * 3 * SEGMENT_COUNTERS * 8);
        region.words()[SEGMENT_COUNTERS].store(5, Ordering::Relaxed);
        region.words()[4 * SEGMENT_COUNTERS].store(7, Ordering::Relaxed);
        region.words()[4 * SEGMENT_COUNTERS + 15].store(9, Ordering::Relaxed);
        region.words()[5 * SEGMENT_COUNTERS].store(1, Ordering::Relaxed);
        let read = |number| SegmentCounts::read(&region, 3, number);
        assert_eq!(read(1).count(), 2);
        let sum: SegmentCounts = read(1).sum();
        assert_eq!((sum.packets(), sum.errors()), (12, 9));
        assert_eq!(read(3).count(), 0);
        SegmentCounts::clear(&region, 3, 1);
        assert_eq!(read(1).sum::<SegmentCounts>(), SegmentCounts::default());
        assert_eq!(read(2).sum::<SegmentCounts>().packets(), 1);
    }

    #[test]
    fn sums_over_stripes() {
        let slots = slots(1);
        let region = Region::heap(2 * slots * 16);
        region.words()[2 * 3].store(5, Ordering::Relaxed);
        region.words()[2 * (slots + 3)].store(7, Ordering::Relaxed);
        region.words()[2 * (slots + 3) + 1].store(100, Ordering::Relaxed);
        let counters = Counters::read(&region, slots);
        assert_eq!(counters.cpus(), 2);
        assert_eq!(counters.on_cpu(0, 3).packets, 5);
        let sum = Counter {
            packets: 12,
            bytes: 100,
        };
        assert_eq!(counters.reason(Reason::NotIp), sum);
        assert_eq!(counters.dropped(Reason::NotIp), Counter::default());
        assert_eq!(counters.on_cpu(2, 3), Counter::default());
        assert_eq!(counters.on_cpu(0, slots), Counter::default());
    }
}
