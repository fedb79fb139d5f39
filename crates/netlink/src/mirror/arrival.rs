//! When notifications became readable, however late the thread that reads them got a processor.
//!
//! The kernel stamps no netlink message, but it counts for how long a thread has waited for a processor. What became
//! readable while the thread slept made it want one at once, so that was as long before it ran as it waited. Where the
//! kernel does not count (no `CONFIG_SCHED_INFO`), messages arrive when they are read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Of the thread that made it.
#[derive(Debug)]
pub(super) struct Arrival {
    schedstat: Option<File>,
    waited: Duration,
    /// When nothing was left to read.
    emptied: Instant,
}

impl Arrival {
    pub(super) fn new() -> Arrival {
        let mut arrival = Arrival {
            // It goes on being about this thread, whoever reads it.
            schedstat: File::open("/proc/thread-self/schedstat").ok(),
            waited: Duration::ZERO,
            emptied: Instant::now(),
        };
        arrival.waited = arrival.read();
        arrival
    }

    /// The thread has just woken up: when the first message that it will read arrived, at the earliest.
    pub(super) fn woken(&mut self) -> Instant {
        let now = Instant::now();
        let waited = self.read();
        let late = waited.saturating_sub(self.waited);
        self.waited = waited;
        now.checked_sub(late).unwrap_or(now).max(self.emptied)
    }

    /// Nothing is left to read.
    pub(super) fn emptied(&mut self) {
        self.emptied = Instant::now();
    }

    /// For how long the thread has waited for a processor so far.
    fn read(&self) -> Duration {
        let mut text = [0; 128];
        let file = self.schedstat.as_ref();
        let count = file.and_then(|file| file.read_at(&mut text, 0).ok());
        let waited = count.and_then(|count| waited(text.get(..count)?));
        waited.unwrap_or(self.waited)
    }
}

/// The second number: nanoseconds on a processor, nanoseconds waiting for one, time slices.
fn waited(schedstat: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(schedstat).ok()?;
    let nanos = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_counts() {
        let all = [
            (&b"17 3601274 1\n"[..], Some(3_601_274)),
            (b"17\n", None),
            (b"17 x 1\n", None),
            (b"17 -3 1\n", None),
            (b"", None),
            (b"\xff \xff", None),
        ];
        for (text, nanos) in all {
            assert_eq!(waited(text), nanos.map(Duration::from_nanos), "{text:?}");
        }
    }

    #[test]
    fn nothing_arrives_before_all_was_read() {
        let mut arrival = Arrival::new();
        let before = Instant::now();
        arrival.emptied();
        let woken = arrival.woken();
        assert!(woken >= before && woken <= Instant::now());
        // Without the kernel's count it is now.
        arrival.schedstat = None;
        let before = Instant::now();
        assert!(arrival.woken() >= before);
    }
}
