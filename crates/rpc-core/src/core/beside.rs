//! Connections beside those that say nothing: whether a server can be reached.

use std::time::{Duration, Instant};

/// Connections that are made to find out whether a server can be reached.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// When the last one was begun, and when the first one was since there was an answer.
    begun: Option<(Instant, Instant)>,
    /// When the last answer came.
    answered: Option<Instant>,
}

/// How often one is made, in the first two seconds and later.
const REACHES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
const SOON: Duration = Duration::from_secs(2);

impl Beside {
    /// How long ago there was an answer.
    pub(super) fn heard(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.answered?))
    }

    /// There is an answer.
    pub(super) fn answered(&mut self, now: Instant) {
        self.answered = Some(now);
    }

    /// Whether one is made now, unless it is too soon. Several at once take several links.
    pub(super) fn begins(&mut self, now: Instant) -> bool {
        let since = |at: Instant| now.saturating_duration_since(at);
        let first = self.begun.map(|(_, first)| first).filter(|at| {
            let answered = self.answered;
            answered.is_none_or(|answered| answered < *at)
        });
        let first = first.unwrap_or(now);
        let every = match since(first) < SOON {
            true => REACHES.0,
            false => REACHES.1,
        };
        if self.begun.is_some_and(|(last, _)| since(last) < every) {
            return false;
        }
        self.begun = Some((now, first));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn often_at_first_and_once_a_second_later() {
        let (mut beside, start) = (Beside::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let made: Vec<u64> = (0..100)
            .map(|n| 50 * n)
            .filter(|ms| beside.begins(at(*ms)))
            .collect();
        let first = [0, 250, 500, 750, 1000, 1250, 1500, 1750, 2750, 3750, 4750];
        assert_eq!(made, first);
        // What was silent once more is asked about at once.
        assert_eq!(beside.heard(at(4900)), None);
        beside.answered(at(4900));
        assert_eq!(beside.heard(at(5000)), Some(Duration::from_millis(100)));
        assert!(!beside.begins(at(4950)) && beside.begins(at(5000)));
        assert!(beside.begins(at(5250)));
    }
}
