//! For how long programs may forward: a deadline in the image that somebody who looks has to prolong.
//!
//! 1. The deadline is `span` after the beginning of the last look at everything that the programs would bypass,
//!    so that no packet goes around a rule that is older than `span`, whatever becomes of the daemon.
//! 2. A look is due at once when a change was announced ([`raddle_netlink::Announced`]), which has punted everything
//!    meanwhile; not before as long has passed as the last one took, however many are announced. What is announced to
//!    nobody is polled: so often that asking takes a hundredth of the time, but every 5 ms at most, and after a quarter
//!    of `span`, or a second, at the latest. What it takes to publish what was found does not count: one change often
//!    comes soon after another.
//! 3. Only a look that saw everything prolongs, and only if nothing was announced since it began. One that could not
//!    look prolongs nothing.
//! 4. The thread that looks is the one that prolongs, and the one that publishes what the kernel says: when it
//!    hangs, is stopped or gets no processor, nobody prolongs for it.
//! 5. A deadline that passed before it was prolonged is counted, and told; but not one that was given up before, because what programs
//!    forward by was known to be wrong.

use std::time::{Duration, Instant};

use raddle_image::PASSED;
use raddle_preflight::Known;

/// The longest and the shortest time between two looks of which nothing was announced.
const LOOKS: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(5);
/// Of the time, one part of so many is for looks.
const SHARE: u32 = 100;

/// Keeps the deadline.
#[derive(Debug)]
pub(super) struct Guard {
    /// What earlier looks have found out.
    pub(super) known: Known,
    span: Duration,
    next: Instant,
    /// Not even an announcement makes one due before.
    soonest: Instant,
    /// Announcements before the last look began.
    seen: u64,
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
            soonest: Instant::now(),
            seen: 0,
            deadline: PASSED,
            lapses: 0,
        }
    }

    /// When it is time to look, where so many changes were announced until now (rule 2).
    pub(super) fn due(&self, announced: u64) -> Instant {
        match announced == self.seen {
            true => self.next,
            false => self.soonest,
        }
    }

    /// What firewalls are judged by has changed: a look is due at once, as for what is announced.
    pub(super) fn hasten(&mut self) {
        self.next = self.soonest;
    }

    /// A look begins, after so many announcements.
    pub(super) fn begin(&mut self, announced: u64) {
        self.seen = announced;
    }

    /// The look that began then is over; of its time so much went into asking the kernel.
    pub(super) fn looked(&mut self, began: Instant, asking: Duration) {
        let now = Instant::now();
        self.soonest = now + (now - began);
        self.next = now + (asking * SHARE).max(SOON).min(self.span / 4).min(LOOKS);
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

    /// At `now` the image was doubted until the next prolongation, which may take its time: that is no lapse (rule 5).
    pub(super) fn forgo(&mut self, now: u64) {
        if now <= self.deadline {
            self.deadline = PASSED;
        }
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
        assert!(
            guard.due(0) <= Instant::now(),
            "the first look is due at once"
        );
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
    fn a_deadline_that_was_given_up_is_no_lapse() {
        let mut guard = Guard::new(2);
        guard.prolong(10 * SECOND, 10 * SECOND);
        guard.forgo(12 * SECOND);
        assert_eq!(guard.deadline(), PASSED);
        assert_eq!(guard.prolong(70 * SECOND, 71 * SECOND), None);
        assert_eq!((guard.deadline(), guard.lapses()), (72 * SECOND, 0));
        // It had passed already.
        guard.forgo(73 * SECOND);
        let late = guard.prolong(74 * SECOND, 75 * SECOND);
        assert_eq!(late, Some(Duration::from_secs(5)));
        assert_eq!(guard.lapses(), 1);
    }

    #[test]
    fn looks_are_as_frequent_as_they_are_cheap() {
        for (span, took, least, most) in [
            (1, 0, 5, 5),
            (1, 100, 250, 250),
            (2, 1, 100, 200),
            (60, 90, 1000, 1000),
        ] {
            let mut guard = Guard::new(span);
            let now = Instant::now();
            let took = Duration::from_millis(took);
            // However long it takes to publish.
            let began = now.checked_sub(took + Duration::from_secs(5)).unwrap();
            guard.looked(began, took);
            let due = guard.due(0) - now;
            assert!(due >= Duration::from_millis(least), "{due:?}");
            assert!(
                guard.next <= Instant::now() + Duration::from_millis(most),
                "{due:?}"
            );
        }
    }

    #[test]
    fn an_announcement_makes_a_look_due_but_looks_do_not_take_all_the_time() {
        let mut guard = Guard::new(60);
        guard.begin(3);
        let began = Instant::now().checked_sub(Duration::from_secs(9)).unwrap();
        guard.looked(began, Duration::from_secs(9));
        assert!(guard.due(3) > Instant::now());
        let due = guard.due(4);
        assert!(
            due > Instant::now() + Duration::from_secs(8)
                && due < guard.due(3) + Duration::from_secs(9)
        );
        guard.begin(4);
        let began = Instant::now();
        guard.looked(began, Duration::ZERO);
        // However long this thread has to wait meanwhile.
        let ended = Instant::now();
        assert!(guard.due(5) <= ended + (ended - began));
    }
}
