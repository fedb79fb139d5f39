//! The model of resilient groups against a slow obvious one, and against tables of the kernel.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::num::NonZeroU16;
use std::time::Duration;

use proptest::prelude::*;
use raddle_select::{
    ResilientTable, TableError, Timers, UPKEEP_INTERVAL, bucket_of, wanted_buckets,
};

fn count(buckets: u16) -> NonZeroU16 {
    NonZeroU16::new(buckets).unwrap()
}

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

const TIMERS: Timers = Timers {
    idle: Duration::from_secs(120),
    unbalanced: Duration::ZERO,
};

fn new(members: &[(u32, u32)], buckets: u16) -> ResilientTable {
    ResilientTable::new(members, count(buckets), TIMERS, secs(1)).unwrap()
}

fn owners(table: &ResilientTable) -> Vec<u32> {
    table.owners().collect()
}

/// As a 6.18 kernel filled them.
#[test]
fn new_tables_are_the_kernels() {
    for (members, expected) in [
        (&[(1, 1), (2, 1)][..], &[2, 2, 2, 2, 1, 1, 1, 1][..]),
        (&[(1, 3), (2, 1)], &[2, 2, 1, 1, 1, 1, 1, 1]),
        (&[(1, 1), (2, 1)], &[2, 2, 1, 1]),
        (&[(5, 1)], &[5, 5]),
    ] {
        let table = new(members, expected.len() as u16);
        assert_eq!(owners(&table), expected);
        assert_eq!(table.next_upkeep(), None);
    }
}

#[test]
fn halves_are_rounded_up() {
    assert_eq!(wanted_buckets(&[1, 1], count(5)), [3, 2]);
    assert_eq!(wanted_buckets(&[1, 1, 1], count(8)), [3, 2, 3]);
    assert_eq!(wanted_buckets(&[1, 65_535], count(8)), [0, 8]);
    assert_eq!(
        wanted_buckets(&[65_535; 3], count(65_535)),
        [21_845, 21_845, 21_845]
    );
    assert_eq!(wanted_buckets(&[0, 0], count(8)), [0, 0]);
    assert_eq!(wanted_buckets(&[], count(8)), [0_u16; 0]);
}

#[test]
fn a_bucket_is_the_rest_of_the_hash() {
    assert_eq!(bucket_of(0x7fff_ffff, count(8)), 7);
    assert_eq!(bucket_of(65_536, count(65_535)), 1);
    assert_eq!(bucket_of(7, count(1)), 0);
    assert_eq!(new(&[(1, 1), (2, 1)], 8).choose(12), Some((4, 1)));
}

#[test]
fn impossible_groups_are_refused_and_change_nothing() {
    let make =
        |members: &[(u32, u32)]| ResilientTable::new(members, count(4), TIMERS, secs(1)).map(drop);
    assert_eq!(make(&[]), Err(TableError::NoMember));
    assert_eq!(make(&[(1, 0)]), Err(TableError::NoMember));
    assert_eq!(make(&[(1, 1), (2, 1), (1, 2)]), Err(TableError::Twice(1)));
    let mut table = new(&[(1, 1), (2, 1)], 4);
    assert!(table.replace(&[], TIMERS, secs(2)).is_err());
    assert_eq!(owners(&table), [2, 2, 1, 1]);
}

/// Unused buckets move at once, used ones when they are idle.
#[test]
fn used_buckets_wait_for_the_idle_timer() {
    let timers = Timers {
        idle: secs(2),
        unbalanced: Duration::ZERO,
    };
    let mut table = ResilientTable::new(&[(1, 1), (2, 1)], count(8), timers, secs(1)).unwrap();
    for bucket in 0..8 {
        table.used(bucket, secs(10) + Duration::from_millis(bucket.into()));
    }
    // Member 1 (buckets 4 to 7) shall have six of them.
    let moved = table.replace(&[(1, 3), (2, 1)], timers, secs(11)).unwrap();
    assert_eq!(moved, []);
    assert_eq!(table.next_upkeep(), Some(secs(12)));
    assert_eq!(table.upkeep(secs(12)), [0]);
    // Bucket 1 will be idle in a millisecond, but upkeep rests for half a second.
    assert_eq!(table.next_upkeep(), Some(secs(12) + UPKEEP_INTERVAL));
    assert_eq!(table.upkeep(secs(12) + UPKEEP_INTERVAL), [1]);
    assert_eq!(table.next_upkeep(), None);
    assert_eq!(owners(&table), [1, 1, 2, 2, 1, 1, 1, 1]);
}

#[test]
fn the_unbalanced_timer_moves_buckets_in_use() {
    let timers = Timers {
        idle: secs(100),
        unbalanced: secs(2),
    };
    let mut table = ResilientTable::new(&[(1, 1), (2, 1)], count(4), timers, secs(1)).unwrap();
    (0..4).for_each(|bucket| table.used(bucket, secs(10)));
    assert_eq!(table.replace(&[(1, 1)], timers, secs(10)).unwrap(), [0, 1]);
    assert_eq!(
        table.replace(&[(1, 1), (2, 1)], timers, secs(11)).unwrap(),
        // They have not been used since they moved.
        [0, 1]
    );
    (0..4).for_each(|bucket| table.used(bucket, secs(12)));
    assert!(
        table
            .replace(&[(1, 3), (2, 1)], timers, secs(20))
            .unwrap()
            .is_empty()
    );
    // Unbalanced since 20 s, also after another change.
    assert!(
        table
            .replace(&[(1, 7), (2, 1)], timers, secs(21))
            .unwrap()
            .is_empty()
    );
    assert_eq!(table.next_upkeep(), Some(secs(22)));
    assert!(table.upkeep(secs(22)).is_empty());
    let late = secs(22) + UPKEEP_INTERVAL;
    assert_eq!(table.next_upkeep(), Some(late));
    // 7/8 of four buckets are four, rounded.
    assert_eq!(table.upkeep(late), [0, 1]);
}

/// The obvious one: counts by looking at all buckets, every time.
struct Slow {
    members: Vec<(u32, u32)>,
    buckets: Vec<Option<u32>>,
    used: Vec<Duration>,
    migrated: Vec<Duration>,
    timers: Timers,
    since: Option<Duration>,
}

impl Slow {
    fn has(&self, id: u32) -> u64 {
        self.buckets.iter().filter(|b| **b == Some(id)).count() as u64
    }

    /// From the exact quotients, times two to round halves up.
    fn wants(&self, id: u32) -> u64 {
        let total: u64 = self.members.iter().map(|(_, w)| u64::from(*w)).sum();
        let n = self.buckets.len() as u64;
        let at = self.members.iter().position(|(m, _)| *m == id).unwrap();
        let upper = |members: &[(u32, u32)]| {
            let sum: u64 = members.iter().map(|(_, w)| u64::from(*w)).sum();
            // The largest whole number not above n * sum / total + 1/2.
            (0..=n)
                .rev()
                .find(|k| 2 * k * total <= 2 * n * sum + total)
                .unwrap()
        };
        upper(&self.members[..=at]) - upper(&self.members[..at])
    }

    fn who_wants(&self) -> Option<u32> {
        let ids = self.members.iter().rev().map(|(id, _)| *id);
        ids.into_iter().find(|id| self.has(*id) < self.wants(*id))
    }

    fn replace(&mut self, members: Vec<(u32, u32)>, timers: Timers, now: Duration) {
        self.members = members;
        self.timers = timers;
        for bucket in &mut self.buckets {
            if let Some(id) = *bucket
                && !self.members.iter().any(|(m, _)| *m == id)
            {
                *bucket = None;
            }
        }
        match (self.who_wants(), self.since) {
            (Some(_), None) => self.since = Some(now),
            (None, _) => self.since = None,
            _ => {}
        }
        self.upkeep(now);
    }

    fn upkeep(&mut self, now: Duration) {
        for i in 0..self.buckets.len() {
            let goes = match self.buckets[i] {
                None => true,
                Some(id) if self.has(id) <= self.wants(id) => false,
                Some(_) => {
                    let never = self.used[i] == self.migrated[i];
                    let idle = now >= self.used[i] + self.timers.idle;
                    let forced = self.timers.unbalanced > Duration::ZERO
                        && now > self.since.unwrap() + self.timers.unbalanced;
                    never || idle || forced
                }
            };
            if goes {
                self.buckets[i] = Some(self.who_wants().unwrap());
                (self.used[i], self.migrated[i]) = (now, now);
            }
        }
        if self.who_wants().is_none() {
            self.since = None;
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Replace(Vec<(u32, u32)>, Timers),
    Use(u16),
    Wait(u64),
}

fn members() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let ids = proptest::sample::subsequence(vec![1u32, 2, 3, 4, 5], 1..=5).prop_shuffle();
    let weight = prop_oneof![4 => 1..5u32, 1 => 1..=65_535u32];
    (ids, proptest::collection::vec(weight, 5))
        .prop_map(|(ids, weights)| ids.into_iter().zip(weights).collect())
}

fn timers() -> impl Strategy<Value = Timers> {
    (0..5u64, prop_oneof![Just(0), 1..5u64]).prop_map(|(idle, unbalanced)| Timers {
        idle: secs(idle),
        unbalanced: secs(unbalanced),
    })
}

proptest! {
    #[test]
    fn the_model_is_the_slow_one(
        first in members(), size in 1..40u16, with in timers(),
        steps in proptest::collection::vec(prop_oneof![
            2 => (members(), timers()).prop_map(|(m, t)| Step::Replace(m, t)),
            6 => any::<u16>().prop_map(Step::Use),
            3 => (1..2500u64).prop_map(Step::Wait),
        ], 0..60),
    ) {
        let mut now = secs(1);
        let mut table = ResilientTable::new(&first, count(size), with, now).unwrap();
        let mut slow = Slow {
            members: Vec::new(),
            buckets: vec![None; size.into()],
            used: vec![now; size.into()],
            migrated: vec![now; size.into()],
            timers: with,
            since: None,
        };
        slow.replace(first, with, now);
        for step in steps {
            match step {
                Step::Replace(members, timers) => {
                    let before = owners(&table);
                    let moved = table.replace(&members, timers, now).unwrap();
                    slow.replace(members.clone(), timers, now);
                    // Who stays and has no more than it wants loses nothing.
                    for (index, (old, new)) in before.iter().zip(owners(&table)).enumerate() {
                        prop_assert!(*old == new || moved.contains(&(index as u16)));
                    }
                }
                Step::Use(bucket) => {
                    let bucket = bucket % size;
                    table.used(bucket, now);
                    slow.used[usize::from(bucket)] = now;
                }
                Step::Wait(ms) => {
                    let end = now + Duration::from_millis(ms);
                    while let Some(at) = table.next_upkeep().filter(|at| *at <= end) {
                        prop_assert!(at >= now);
                        table.upkeep(at);
                        slow.upkeep(at);
                        prop_assert!(table.next_upkeep().is_none_or(|n| n >= at + UPKEEP_INTERVAL));
                    }
                    now = end;
                }
            }
            let expected: Vec<u32> = slow.buckets.iter().copied().map(Option::unwrap).collect();
            prop_assert_eq!(owners(&table), expected);
            prop_assert_eq!(table.next_upkeep().is_some(), slow.who_wants().is_some());
        }
    }

    #[test]
    fn all_buckets_are_wanted(weights in proptest::collection::vec(1..=65_535u32, 1..300), size in 1..=u16::MAX) {
        let wanted = wanted_buckets(&weights, count(size));
        prop_assert_eq!(wanted.iter().map(|w| u32::from(*w)).sum::<u32>(), u32::from(size));
    }
}
