//! How long calls take: counts by time, in buckets that are an eighth of their power of two wide.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Buckets for each power of two, as a power of two.
const FINE: u32 = 3;
/// Buckets for each power of two.
const EIGHT: u64 = 1 << FINE;
/// The longest time that is told apart, in microseconds: 2^27, 134 seconds.
pub const LONGEST_US: u64 = 1 << 27;
/// Buckets in all.
const BUCKETS: usize = bucket(LONGEST_US) + 1;

/// Counts of times, in fixed memory (1.6 KB). A time is known to an eighth of itself, or to a microsecond where
/// that is more.
///
/// ```
/// use raddle_rpc_core::histogram::Histogram;
/// use std::time::Duration;
/// let mut histogram = Histogram::default();
/// for ms in 1..=100 {
///     histogram.add(Duration::from_millis(ms));
/// }
/// assert_eq!(histogram.count(), 100);
/// // Between 50 ms and an eighth more.
/// assert!((50_000..=56_250).contains(&histogram.quantile(0.5).unwrap()));
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Raw", try_from = "Raw")]
pub struct Histogram {
    counts: [u64; BUCKETS],
    sum_us: u64,
}

/// As it stands in JSON.
#[derive(Serialize, Deserialize)]
struct Raw {
    count: u64,
    sum_us: u64,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
    /// Highest time of the bucket, in microseconds, and count; those that are not empty, in order.
    buckets: Vec<(u64, u64)>,
}

/// The bucket of a time of so many microseconds; 0 counts as 1.
const fn bucket(us: u64) -> usize {
    // Bounds belong to the bucket below, as Prometheus has it.
    let below = us.saturating_sub(1);
    let below = if below < LONGEST_US {
        below
    } else {
        LONGEST_US - 1
    };
    if below < EIGHT {
        return below as usize;
    }
    let power = below.ilog2();
    let within = (below >> (power - FINE)) & (EIGHT - 1);
    ((power - FINE + 1) as usize) * EIGHT as usize + within as usize
}

/// The highest time of a bucket, in microseconds.
const fn bound(bucket: usize) -> u64 {
    let (row, within) = (bucket as u64 / EIGHT, bucket as u64 % EIGHT);
    match row {
        0 => within + 1,
        _ => (EIGHT + within + 1) << (row - 1),
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Raw { buckets, .. } = Raw::from(self.clone());
        f.debug_map().entries(buckets).finish()
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: [0; BUCKETS],
            sum_us: 0,
        }
    }
}

impl Histogram {
    /// One more time. O(1). Those above [`LONGEST_US`] count as that.
    pub fn add(&mut self, time: Duration) {
        let us = u64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX);
        self.counts[bucket(us)] += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }

    /// All of another one as well.
    pub fn join(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
    }

    /// What has come since an earlier state of the same one.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut since = self.clone();
        for (count, before) in since.counts.iter_mut().zip(&earlier.counts) {
            *count = count.saturating_sub(*before);
        }
        since.sum_us = since.sum_us.saturating_sub(earlier.sum_us);
        since
    }

    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Their sum in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// The time in microseconds that this part of all, 0 to 1, does not exceed: at most an eighth too high. None
    /// when nothing was counted.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((part * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen: u64 = 0;
        for (bucket, counted) in self.counts.iter().enumerate() {
            seen = seen.saturating_add(*counted);
            if seen >= rank {
                return Some(bound(bucket));
            }
        }
        None
    }

    /// For each power of two, from 1 to [`LONGEST_US`] microseconds, how many times do not exceed it and exceed
    /// the one before. What is longer is in the last.
    pub fn powers(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut next = 0;
        (0..=LONGEST_US.ilog2()).map(move |power| {
            let last = bucket(1 << power) + 1;
            let counts = &self.counts[std::mem::replace(&mut next, last)..last];
            (1 << power, counts.iter().sum())
        })
    }
}

impl From<Histogram> for Raw {
    fn from(of: Histogram) -> Raw {
        let all = of.counts.iter().enumerate();
        Raw {
            count: of.count(),
            sum_us: of.sum_us,
            p50_us: of.quantile(0.5),
            p99_us: of.quantile(0.99),
            buckets: all
                .filter(|(_, count)| **count > 0)
                .map(|(bucket, count)| (bound(bucket), *count))
                .collect(),
        }
    }
}

/// A histogram in JSON with a bucket that there is not: it is of another version, or was written by something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no bucket ends at {0} us")]
struct NoBucket(u64);

impl TryFrom<Raw> for Histogram {
    type Error = NoBucket;

    fn try_from(raw: Raw) -> Result<Histogram, NoBucket> {
        let mut of = Histogram {
            sum_us: raw.sum_us,
            ..Histogram::default()
        };
        for (us, count) in raw.buckets {
            if bound(bucket(us)) != us {
                return Err(NoBucket(us));
            }
            of.counts[bucket(us)] = count;
        }
        Ok(of)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        for at in 0..BUCKETS {
            assert_eq!(bucket(bound(at)), at);
            if at + 1 < BUCKETS {
                assert_eq!(bucket(bound(at) + 1), at + 1);
            }
        }
        assert_eq!(bucket(0), 0);
        assert_eq!(bound(BUCKETS - 1), LONGEST_US);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        for power in 0..=27 {
            assert_eq!(bound(bucket(1 << power)), 1 << power);
        }
    }

    #[test]
    fn nothing_has_no_quantile() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        histogram.add(Duration::MAX);
        assert_eq!(histogram.quantile(0.5), Some(LONGEST_US));
    }

    #[test]
    fn no_other_buckets_are_read() {
        let of = |us: u64| format!(r#"{{"count":1,"sum_us":0,"buckets":[[{us},1]]}}"#);
        assert!(serde_json::from_str::<Histogram>(&of(1024)).is_ok());
        let refused = serde_json::from_str::<Histogram>(&of(1025)).unwrap_err();
        assert!(
            refused.to_string().starts_with("no bucket ends at 1025 us"),
            "{refused}"
        );
    }

    proptest! {
        #[test]
        fn quantiles_are_an_eighth_too_high_at_most(
            mut times in proptest::collection::vec(prop_oneof![0..20_u64, 0..LONGEST_US], 1..60), part in 0.0..=1.0_f64,
        ) {
            let mut histogram = Histogram::default();
            times.iter().for_each(|us| histogram.add(Duration::from_micros(*us)));
            times.sort_unstable();
            let rank = (part * times.len() as f64).ceil() as usize;
            let exact = times[rank.max(1) - 1];
            let said = histogram.quantile(part).unwrap();
            prop_assert!(said >= exact && said <= (exact + exact / 8).max(exact + 1), "{said} for {exact}");
            prop_assert_eq!(histogram.sum_us(), times.iter().sum::<u64>());
            for (us, _) in histogram.powers() {
                let below: u64 = histogram.powers().filter(|(u, _)| *u <= us).map(|(_, n)| n).sum();
                prop_assert_eq!(below, times.iter().filter(|t| **t <= us).count() as u64);
            }
            let text = serde_json::to_string(&histogram).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Histogram>(&text).unwrap(), &histogram);
            let mut twice = histogram.clone();
            twice.join(&histogram);
            prop_assert_eq!(twice.since(&histogram), histogram);
        }
    }
}
