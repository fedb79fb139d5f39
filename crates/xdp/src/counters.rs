//! The program's counters: one stripe per CPU, mapped into this process.

use std::sync::atomic::{AtomicU64, Ordering};

use raddle_fib::Region;
pub use raddle_image::Counter;
use raddle_image::{
    ADJACENCY_COUNTERS, LEFT_COUNTERS, REASON_COUNTERS, REASON_DROPPED, Reason, SEGMENT_COUNTERS,
    SEGMENT_FAILURES, segment_counter,
};

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

    /// Those of them that were dropped, and not punted.
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

    /// Those of them that were punted and might have been forwarded ([`Reason::is_transit`]).
    pub fn left(&self, slot: u32) -> Counter {
        self.total(LEFT_COUNTERS + slot as usize)
    }

    /// Packets forwarded through this adjacency; bytes after trimming.
    pub fn adjacency(&self, number: u32) -> Counter {
        self.total(ADJACENCY_COUNTERS + number as usize)
    }
}

/// Sets a counter to 0 on all CPUs, and says what it was.
pub(crate) fn take_out(region: &Region, slots: usize, counter: usize) -> Counter {
    let mut sum = Counter::default();
    let at = 2 * counter;
    for cpu in region.words().chunks_exact(2 * slots) {
        if let Some([packets, bytes]) = cpu.get(at..at + 2) {
            sum += Counter {
                packets: packets.swap(0, Ordering::Relaxed),
                bytes: bytes.swap(0, Ordering::Relaxed),
            };
        }
    }
    sum
}

/// One counter, summed over all CPUs.
pub(crate) fn read_one(region: &Region, slots: usize, counter: usize) -> Counter {
    let mut sum = Counter::default();
    let at = 2 * counter;
    for cpu in region.words().chunks_exact(2 * slots) {
        if let Some([packets, bytes]) = cpu.get(at..at + 2) {
            sum += Counter {
                packets: packets.load(Ordering::Relaxed),
                bytes: bytes.load(Ordering::Relaxed),
            };
        }
    }
    sum
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

/// The counters of all segments. Each CPU has a stripe in both regions.
#[derive(Debug)]
pub(crate) struct SegmentCells {
    segments: usize,
    /// Those before [`segment_counter::FAILED`]: 16 bytes a segment.
    carried: Region,
    /// The others.
    failed: Region,
}

impl SegmentCells {
    pub(crate) fn new(segments: usize, carried: Region, failed: Region) -> SegmentCells {
        SegmentCells {
            segments,
            carried,
            failed,
        }
    }

    /// One for each CPU; none where there is no such segment.
    pub(crate) fn read(&self, number: u32) -> impl Iterator<Item = SegmentCounts> + '_ {
        self.cells(number).map(|(carried, failed)| {
            let mut counts = SegmentCounts::default();
            let cells = carried.iter().chain(failed);
            for (value, cell) in counts.values.iter_mut().zip(cells) {
                *value = cell.load(Ordering::Relaxed);
            }
            counts
        })
    }

    pub(crate) fn clear(&self, number: u32) {
        for (carried, failed) in self.cells(number) {
            for cell in carried.iter().chain(failed) {
                cell.store(0, Ordering::Relaxed);
            }
        }
    }

    /// The cells of a segment, by CPU.
    fn cells(&self, number: u32) -> impl Iterator<Item = (&[AtomicU64], &[AtomicU64])> {
        let number = number as usize;
        let carried = by_cpu::<{ segment_counter::FAILED }>(&self.carried, self.segments, number);
        let failed = by_cpu::<SEGMENT_FAILURES>(&self.failed, self.segments, number);
        carried.zip(failed)
    }
}

/// The `CELLS` cells of a segment, by CPU; none where there is no such segment.
fn by_cpu<const CELLS: usize>(
    region: &Region,
    segments: usize,
    number: usize,
) -> impl Iterator<Item = &[AtomicU64]> {
    let stripe = (segment_stripe(segments) * CELLS).max(1);
    let cpus = region.words().chunks_exact(stripe);
    cpus.filter_map(move |cpu| {
        let mut cells = cpu.chunks_exact(CELLS).take(segments);
        cells.nth(number)
    })
}

/// Places for the segments of one CPU: a multiple of four, with which both of its stripes end at the end of a
/// cache line, so that no two CPUs write to one.
pub(crate) fn segment_stripe(segments: usize) -> usize {
    segments.next_multiple_of(4)
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
        let carried = Region::heap(2 * 4 * segment_counter::FAILED * 8);
        let failed = Region::heap(2 * 4 * SEGMENT_FAILURES * 8);
        let put = |region: &Region, at: usize, value| {
            region.words()[at].store(value, Ordering::Relaxed);
        };
        put(&carried, 2, 5);
        put(&carried, 2 * 5, 7);
        put(&carried, 2 * 5 + 1, 300);
        put(&failed, 5 * SEGMENT_FAILURES, 4);
        put(&failed, 6 * SEGMENT_FAILURES - 1, 9);
        put(&carried, 2 * 6, 1);
        put(&failed, 6 * SEGMENT_FAILURES, 8);
        let cells = SegmentCells::new(3, carried, failed);
        let each: Vec<_> = cells.read(1).map(|counts| counts.packets()).collect();
        assert_eq!(each, [5, 7]);
        let sum: SegmentCounts = cells.read(1).sum();
        assert_eq!((sum.packets(), sum.bytes(), sum.errors()), (12, 300, 13));
        assert_eq!((sum.values[2], sum.values[15]), (4, 9));
        // The place behind the last one belongs to none.
        assert_eq!(cells.read(3).count(), 0);
        cells.clear(1);
        assert_eq!(
            cells.read(1).sum::<SegmentCounts>(),
            SegmentCounts::default()
        );
        let next: SegmentCounts = cells.read(2).sum();
        assert_eq!((next.packets(), next.errors()), (1, 8));
    }

    #[test]
    fn no_two_cpus_share_a_line() {
        for segments in [1, 3, 4, 4096, 100_001] {
            let stripe = segment_stripe(segments);
            assert!(stripe >= segments);
            assert_eq!(stripe * segment_counter::FAILED * 8 % 64, 0);
            assert_eq!(stripe * SEGMENT_FAILURES * 8 % 64, 0);
        }
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

    #[test]
    fn an_adjacency_starts_anew() {
        let slots = slots(2);
        let region = Region::heap(2 * slots * 16);
        let put = |cpu: usize, number: usize, packets, bytes| {
            let at = 2 * (cpu * slots + ADJACENCY_COUNTERS + number);
            region.words()[at].store(packets, Ordering::Relaxed);
            region.words()[at + 1].store(bytes, Ordering::Relaxed);
        };
        put(0, 1, 5, 500);
        put(1, 1, 7, 70);
        put(1, 0, 3, 30);
        let sum = Counter {
            packets: 12,
            bytes: 570,
        };
        let take = |number| take_out(&region, slots, ADJACENCY_COUNTERS + number);
        let read = |number| read_one(&region, slots, ADJACENCY_COUNTERS + number);
        assert_eq!((read(1), read(1 << 20)), (sum, Counter::default()));
        assert_eq!(take(1), sum);
        assert_eq!(take(1), Counter::default());
        let counters = Counters::read(&region, slots);
        assert_eq!(counters.adjacency(0).packets, 3);
        // There is no such adjacency.
        assert_eq!(take(1 << 20), Counter::default());
    }
}
