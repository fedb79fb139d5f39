//! How far the image is behind the kernel: from the moment the kernel told of a change to its publication.

use std::time::{Duration, Instant};

use raddle_control::status::{self, LagBucket};

/// Upper bounds of the histogram, in microseconds; there is one more bucket, for what takes longer.
const BOUNDS: [u64; 14] = [
    500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000,
];

/// Of all publications that followed notifications. What only a dump shows is not among them.
#[derive(Debug)]
pub(super) struct Lag {
    /// Nobody went by the image before.
    begun: Instant,
    /// When the first notification arrived that is not published yet.
    since: Option<Instant>,
    counts: [u64; BOUNDS.len() + 1],
    sum: Duration,
    last: Duration,
    most: Duration,
}

impl Lag {
    /// The image is about to be used.
    pub(super) fn new() -> Lag {
        Lag {
            begun: Instant::now(),
            since: None,
            counts: [0; BOUNDS.len() + 1],
            sum: Duration::ZERO,
            last: Duration::ZERO,
            most: Duration::ZERO,
        }
    }

    /// Notifications were taken in, of which the first arrived at `since`.
    pub(super) fn heard(&mut self, since: Option<Instant>) {
        let since = since.map(|since| since.max(self.begun));
        self.since = self.since.or(since);
    }

    /// All that was taken in is published.
    pub(super) fn published(&mut self) {
        if let Some(since) = self.since.take() {
            self.add(since.elapsed());
        }
    }

    /// What was taken in changes nothing.
    pub(super) fn nothing_new(&mut self) {
        self.since = None;
    }

    fn add(&mut self, lag: Duration) {
        let micros = micros(lag);
        let bucket = BOUNDS.partition_point(|bound| *bound < micros);
        self.counts[bucket] += 1;
        self.sum += lag;
        self.last = lag;
        self.most = self.most.max(lag);
    }

    fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// 99 of 100 are not longer than this: the bound of their bucket, or the longest of all.
    fn p99(&self) -> u64 {
        let rank = (self.count() * 99).div_ceil(100);
        let most = micros(self.most);
        let mut below = 0;
        for (count, bound) in self.counts.iter().zip(BOUNDS) {
            below += count;
            if below >= rank {
                return bound.min(most);
            }
        }
        most
    }

    /// For `status`.
    pub(super) fn status(&self) -> status::Lag {
        let buckets = BOUNDS.into_iter().zip(self.counts);
        status::Lag {
            count: self.count(),
            last_microseconds: micros(self.last),
            p99_microseconds: self.p99(),
            max_microseconds: micros(self.most),
            sum_microseconds: micros(self.sum),
            buckets: buckets
                .map(|(up_to_microseconds, count)| LagBucket {
                    up_to_microseconds,
                    count,
                })
                .collect(),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publication_counts_from_the_first_notification() {
        let mut lag = Lag::new();
        lag.published();
        assert_eq!(lag.count(), 0, "nothing was told");
        // While the daemon started.
        lag.heard(lag.begun.checked_sub(Duration::from_secs(1)));
        assert_eq!(lag.since, Some(lag.begun));
        lag.nothing_new();
        let first = Instant::now();
        lag.heard(Some(first));
        lag.heard(None);
        lag.heard(Some(first + Duration::from_secs(60)));
        assert_eq!(lag.since, Some(first));
        lag.published();
        lag.published();
        assert_eq!(lag.count(), 1);
        lag.heard(Some(first));
        lag.nothing_new();
        lag.published();
        assert_eq!(lag.count(), 1, "nothing was published for it");
    }

    #[test]
    fn the_slowest_of_a_hundred_is_above_the_99th() {
        let mut lag = Lag::new();
        assert_eq!(lag.status().p99_microseconds, 0);
        for _ in 0..99 {
            lag.add(Duration::from_micros(1_500));
        }
        assert_eq!(lag.status().p99_microseconds, 1_500);
        lag.add(Duration::from_secs(3));
        lag.add(Duration::from_micros(500));
        let status = lag.status();
        assert_eq!(status.p99_microseconds, 2_000);
        assert_eq!(status.max_microseconds, 3_000_000);
        assert_eq!(status.last_microseconds, 500);
        assert_eq!(status.count, 101);
        assert_eq!(status.sum_microseconds, 99 * 1_500 + 3_000_000 + 500);
        assert_eq!(status.buckets[0].count, 1, "a bound is in its bucket");
        lag.add(Duration::from_secs(3600));
        lag.add(Duration::from_secs(3600));
        assert_eq!(lag.status().p99_microseconds, 3_600_000_000);
    }
}
