//! What goes wrong again and again, and is told seldom.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How often it is told what still goes wrong.
const EVERY: Duration = Duration::from_secs(60);

/// What does not work, of several that may work or not.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    /// Those that do not.
    of: BTreeSet<usize>,
    /// When it began, when it was told last, and how often it has failed.
    since: Option<(Instant, Instant, u64)>,
}

/// What is to be told of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tell {
    /// It begins.
    First,
    /// It has failed so often, for so long.
    Still {
        /// Failures since it began, with this one.
        times: u64,
        /// Since it began.
        time: Duration,
    },
}

impl Trouble {
    /// One has failed.
    ///
    /// 1. The first failure is told.
    /// 2. Of the others the first one in each minute is.
    pub fn failed(&mut self, one: usize, now: Instant) -> Option<Tell> {
        self.of.insert(one);
        let Some((since, told, times)) = &mut self.since else {
            self.since = Some((now, now, 1));
            return Some(Tell::First);
        };
        *times += 1;
        if now.saturating_duration_since(*told) < EVERY {
            return None;
        }
        *told = now;
        Some(Tell::Still {
            times: *times,
            time: now.saturating_duration_since(*since),
        })
    }

    /// One works. If it was the last that did not: how often they have failed, and for how long.
    pub fn works(&mut self, one: usize, now: Instant) -> Option<(u64, Duration)> {
        self.of.remove(&one);
        if !self.of.is_empty() {
            return None;
        }
        let (since, _, times) = self.since.take()?;
        Some((times, now.saturating_duration_since(since)))
    }
}

/// What may happen very often, such as clients that break off: a few are told, and the others counted.
#[derive(Clone, Debug, Default)]
pub struct Often {
    /// When the present minute began, and how many were told in it.
    minute: Option<(Instant, u32)>,
    untold: u64,
}

/// How many of them are told in a minute.
const TOLD: u32 = 5;

impl Often {
    /// It has happened. Whether it is told: then how many were not since the last that was.
    ///
    /// 1. In each minute, which begins with the first, five are told.
    /// 2. The others are counted, and told of with the next one that is told.
    pub fn happened(&mut self, now: Instant) -> Option<u64> {
        let (since, told) = self.minute.get_or_insert((now, 0));
        if now.saturating_duration_since(*since) >= EVERY {
            (*since, *told) = (now, 0);
        }
        if *told >= TOLD {
            self.untold += 1;
            return None;
        }
        *told += 1;
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_a_few_are_told() {
        let (mut often, start) = (Often::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let told = |often: &mut Often, seconds, count: u32| -> Vec<u64> {
            let all = (0..count).filter_map(|_| often.happened(at(seconds)));
            all.collect()
        };
        assert_eq!(told(&mut often, 0, 1000), [0; 5]);
        assert_eq!(told(&mut often, 59, 1), [0; 0]);
        assert_eq!(told(&mut often, 60, 7), [996, 0, 0, 0, 0]);
        assert_eq!(told(&mut often, 500, 1), [2]);
    }

    #[test]
    fn a_line_at_the_start_one_a_minute_and_one_at_the_end() {
        let mut trouble = Trouble::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(trouble.works(0, at(0)), None);
        let mut lines = Vec::new();
        // Three connections, each tried every five seconds for three minutes.
        for seconds in (0..=180).step_by(5) {
            for one in 0..3 {
                lines.extend(trouble.failed(one, at(seconds)));
            }
        }
        let still = |times, seconds| Tell::Still {
            times,
            time: Duration::from_secs(seconds),
        };
        let told = [Tell::First, still(37, 60), still(73, 120), still(109, 180)];
        assert_eq!(lines, told);
        assert_eq!(trouble.works(2, at(181)), None);
        assert_eq!(trouble.works(0, at(181)), None);
        let past = Some((111, Duration::from_secs(182)));
        assert_eq!(trouble.works(1, at(182)), past);
        assert_eq!(trouble.works(1, at(183)), None);
        assert_eq!(trouble.failed(1, at(184)), Some(Tell::First));
    }
}
