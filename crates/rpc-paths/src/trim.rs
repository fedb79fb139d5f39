//! When memory that many calls have taken is given back to the system.

use std::time::{Duration, Instant};

/// How much has to have been kept at once: less is not worth the pages that have to be asked for again.
const MUCH: usize = 16 << 20;
/// How long little has to be kept.
const CALM: Duration = Duration::from_secs(5);

/// What has been kept since memory was given back last.
#[derive(Debug, Default)]
pub(crate) struct Trim {
    peak: usize,
    /// Since when little is kept.
    calm: Option<Instant>,
}

impl Trim {
    /// Looks at how many bytes are kept now; whether memory is to be given back.
    ///
    /// 1. Less than 16 MiB were kept at once since the last time: no.
    /// 2. A quarter of the most that was kept, or more, is kept now, or was within 5 s: no.
    /// 3. Otherwise yes, once.
    pub(crate) fn is_due(&mut self, kept: usize, now: Instant) -> bool {
        self.peak = self.peak.max(kept);
        if self.peak < MUCH || kept >= self.peak / 4 {
            self.calm = None;
            return false;
        }
        let since = *self.calm.get_or_insert(now);
        let due = now.saturating_duration_since(since) >= CALM;
        if due {
            *self = Trim::default();
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_once_after_a_burst() {
        let (start, mut trim) = (Instant::now(), Trim::default());
        let mut at =
            |seconds, mib: usize| trim.is_due(mib << 20, start + Duration::from_secs(seconds));
        assert!(!at(0, 200));
        assert!(!at(1, 10));
        // Another one.
        assert!(!at(4, 180));
        assert!(!at(5, 10));
        assert!(!at(9, 0));
        assert!(at(10, 0));
        assert!(!at(30, 0));
        // Little at a time.
        assert!(!at(40, 15));
        assert!(!at(50, 0));
    }
}
