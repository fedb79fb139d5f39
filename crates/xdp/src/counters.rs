//! The program's counters: one stripe per CPU, mapped into this process.

use std::sync::atomic::Ordering;

use raddle_fib::Region;
use raddle_rib::Reason;
use raddle_rib::image::{ADJACENCY_COUNTERS, REASON_COUNTERS};

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
        self.total(reason as usize)
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
        assert_eq!(counters.on_cpu(2, 3), Counter::default());
        assert_eq!(counters.on_cpu(0, slots), Counter::default());
    }
}
