//! For how long programs may forward: a deadline in the image that somebody who looks has to prolong.
//!
//! 1. The deadline is `span` after the beginning of the last look at everything that the programs would bypass,
//!    so that no packet goes around a rule that is older than `span`, whatever becomes of the daemon.
//! 2. A look is due a quarter of `span` after the last one, and after a second at most.
//! 3. Only a look that saw everything prolongs. One that could not look prolongs nothing.
//! 4. The thread that looks is the one that prolongs, and the one that publishes what the kernel says: when it
//!    hangs, is stopped or gets no processor, nobody prolongs for it.
//! 5. A deadline that passed before it was prolonged is counted, and told.

use std::time::{Duration, Instant};

use raddle_preflight::Known;

/// A deadline that has passed already: everything is the kernel's. (0 would be none.)
pub(super) const PASSED: u64 = 1;
/// The longest time between two looks.
const LOOKS: Duration = Duration::from_secs(1);

/// Keeps the deadline.
#[derive(Debug)]
pub(super) struct Guard {
    /// What earlier looks have found out.
    pub(super) known: Known,
    span: Duration,
    next: Instant,
    /// `CLOCK_MONOTONIC` in nanoseconds, as in the image.
    deadline: u64,
    lapses: u64,
}

impl Guard {
    /// Lets programs forward for so many seconds after each look.
    pub(super) fn new(seconds: u32) -> Guard {
        Guard {
            known: Known::default(),
            span: Duration::from_secs(seconds.into()),
            next: Instant::now(),
            deadline: PASSED,
            lapses: 0,
        }
    }

    /// Whether it is time to look (rule 2).
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// A look is over.
    pub(super) fn looked(&mut self) {
        self.next = Instant::now() + (self.span / 4).min(LOOKS);
    }

    /// A look that began at `since` saw everything, and it is `now`, in `CLOCK_MONOTONIC` nanoseconds. For how
    /// long nobody had looked, where the deadline has passed meanwhile.
    pub(super) fn prolong(&mut self, since: u64, now: u64) -> Option<Duration> {
        let span = u64::try_from(self.span.as_nanos()).unwrap_or(u64::MAX);
        let before = std::mem::replace(&mut self.deadline, since.saturating_add(span));
        if before == PASSED || now <= before {
            return None;
        }
        self.lapses += 1;
        Some(Duration::from_nanos(
            now - before.saturating_sub(span).min(now),
        ))
    }

    /// Until when programs may forward.
    pub(super) fn deadline(&self) -> u64 {
        self.deadline
    }

    /// How often the deadline has passed.
    pub(super) fn lapses(&self) -> u64 {
        self.lapses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_deadline_counts_from_the_beginning_of_a_look() {
        let mut guard = Guard::new(2);
        assert!(guard.is_due(), "the first look is due at once");
        assert_eq!(guard.deadline(), PASSED);
        // The first look is no lapse, however long it takes.
        assert_eq!(guard.prolong(10 * SECOND, 11 * SECOND), None);
        assert_eq!(guard.deadline(), 12 * SECOND);
        assert_eq!(guard.prolong(11 * SECOND, 12 * SECOND), None);
        assert_eq!(guard.deadline(), 13 * SECOND);
        assert_eq!(guard.lapses(), 0);
    }

    #[test]
    fn a_look_that_was_interrupted_prolongs_nothing_that_is_not_over() {
        let mut guard = Guard::new(2);
        guard.prolong(10 * SECOND, 10 * SECOND);
        // Stopped in the middle of a look, for a minute.
        let late = guard.prolong(11 * SECOND, 71 * SECOND).unwrap();
        assert_eq!(late, Duration::from_secs(61));
        assert!(guard.deadline() < 71 * SECOND);
        assert_eq!(guard.lapses(), 1);
    }

    #[test]
    fn looks_are_frequent() {
        for (span, within) in [(1, 250), (2, 500), (60, 1000)] {
            let mut guard = Guard::new(span);
            guard.looked();
            assert!(!guard.is_due());
            assert!(guard.next <= Instant::now() + Duration::from_millis(within));
        }
    }
}
