//! Resilient groups: where a known bucket table goes when members or weights change.
//!
//! [`raddle_select::ResilientTable`] follows a table from its beginning through time; this starts from the
//! owners that the kernel tells, and knows two moments only: at once, and in the end.

use std::num::NonZeroU16;

use raddle_select::wanted_buckets;

/// A member of a resilient group: its path, which no other member has, and weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weighted {
    /// The path.
    pub path: usize,
    /// Weight, 1..=65535.
    pub weight: u16,
}

/// Which buckets may leave a member that has more than it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overweight {
    /// None: all are in use. This is what happens at once.
    Stay,
    /// All: they have been idle for long enough, or the unbalanced timer has run out. This is where
    /// the group ends up.
    Migrate,
}

/// The table of a new group.
pub fn fill(members: &[Weighted], buckets: u16) -> Vec<usize> {
    rebalance(&vec![None; buckets.into()], members, Overweight::Stay)
}

/// The table after the members or weights of a group have changed (`nh_res_table_upkeep`).
///
/// `owners` has the path of each bucket, none where its member is gone; there are 65535 at most.
/// Empty without members or buckets.
///
/// 1. Each member wants buckets by its weight ([`wanted_buckets`]). Those that have fewer are underweight, the
///    last member of the group first.
/// 2. From the first bucket on: one without a member goes to the first underweight member.
/// 3. So does one whose member has more than it wants, if it may ([`Overweight`]).
/// 4. A member that has what it wants is no longer underweight. Once none is, nothing moves.
pub fn rebalance(owners: &[Option<usize>], members: &[Weighted], over: Overweight) -> Vec<usize> {
    let place = |path: usize| members.iter().position(|m| m.path == path);
    let mut owner: Vec<Option<usize>> = owners.iter().map(|o| o.and_then(place)).collect();
    let Some(count) = u16::try_from(owners.len()).ok().and_then(NonZeroU16::new) else {
        return Vec::new();
    };
    let weights: Vec<u32> = members.iter().map(|m| m.weight.into()).collect();
    let wants = wanted_buckets(&weights, count);
    let mut have = vec![0_u16; members.len()];
    owner.iter().flatten().for_each(|m| have[*m] += 1);
    let mut underweight: Vec<usize> = (0..members.len())
        .filter(|m| have[*m] < wants[*m])
        .collect();
    for bucket in &mut owner {
        let Some(to) = underweight.last().copied() else {
            break;
        };
        match *bucket {
            None => {}
            Some(from) if have[from] > wants[from] && over == Overweight::Migrate => {
                have[from] -= 1
            }
            Some(_) => continue,
        }
        *bucket = Some(to);
        have[to] += 1;
        if have[to] == wants[to] {
            underweight.pop();
        }
    }
    owner
        .into_iter()
        .flatten()
        .map(|m| members[m].path)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::time::Duration;

    use raddle_select::{ResilientTable, Timers};

    use super::*;
    use crate::{Layout, SPACE, moves};

    fn members(weights: &[u16]) -> Vec<Weighted> {
        let each = |(path, weight): (usize, &u16)| Weighted {
            path,
            weight: *weight,
        };
        weights.iter().enumerate().map(each).collect()
    }

    #[test]
    fn a_new_table_starts_with_the_last_member() {
        assert_eq!(fill(&members(&[1, 1]), 8), [1, 1, 1, 1, 0, 0, 0, 0]);
        assert_eq!(fill(&members(&[3, 1]), 4), [1, 0, 0, 0]);
        assert_eq!(fill(&members(&[1, 1, 1]), 4), [2, 1, 1, 0]);
        assert_eq!(fill(&[], 4), []);
    }

    #[test]
    fn removing_one_of_four_moves_a_quarter() {
        let table = fill(&members(&[1; 4]), 64);
        let left: Vec<Weighted> = members(&[1; 4])
            .into_iter()
            .filter(|m| m.path != 1)
            .collect();
        let owners: Vec<_> = table.iter().map(|p| (*p != 1).then_some(*p)).collect();
        let after = rebalance(&owners, &left, Overweight::Stay);
        let all = moves(&Layout::buckets(table), &Layout::buckets(after));
        assert_eq!(all.moved(), SPACE / 4);
        assert_eq!(all.least(), all.moved());
    }

    #[test]
    fn a_new_member_gets_buckets_only_when_they_may_migrate() {
        let owners: Vec<_> = fill(&members(&[1, 1]), 8).into_iter().map(Some).collect();
        let three = members(&[1, 1, 1]);
        let at_once = rebalance(&owners, &three, Overweight::Stay);
        assert_eq!(at_once, [1, 1, 1, 1, 0, 0, 0, 0]);
        let in_the_end = rebalance(&owners, &three, Overweight::Migrate);
        assert_eq!(in_the_end, [2, 2, 1, 1, 2, 0, 0, 0], "they want 3, 2 and 3");
    }

    proptest! {
        #[test]
        fn agrees_with_the_table_that_follows_time(
            first in proptest::collection::vec(1..1000_u16, 1..8),
            then in proptest::collection::vec(1..1000_u16, 1..8),
            buckets in 1..200_u16,
        ) {
            let ids = |weights: &[u16]| -> Vec<(u32, u32)> {
                weights.iter().enumerate().map(|(i, w)| (i as u32, u32::from(*w))).collect()
            };
            let owners = |table: &ResilientTable| -> Vec<usize> {
                table.owners().map(|id| id as usize).collect()
            };
            let timers = Timers { idle: Duration::from_secs(120), unbalanced: Duration::ZERO };
            let count = NonZeroU16::new(buckets).unwrap();
            let second = Duration::from_secs;
            let mut table = ResilientTable::new(&ids(&first), count, timers, second(0)).unwrap();
            let filled = fill(&members(&first), buckets);
            prop_assert_eq!(&filled, &owners(&table));
            let left: Vec<_> =
                filled.iter().map(|path| (*path < then.len()).then_some(*path)).collect();
            // In use: only what has no owner moves. Idle since: the rest.
            (0..buckets).for_each(|bucket| table.used(bucket, second(1)));
            table.replace(&ids(&then), timers, second(2)).unwrap();
            let at_once = rebalance(&left, &members(&then), Overweight::Stay);
            prop_assert_eq!(&at_once, &owners(&table));
            table.upkeep(second(1000));
            let kept: Vec<_> = at_once.into_iter().map(Some).collect();
            prop_assert_eq!(rebalance(&kept, &members(&then), Overweight::Migrate), owners(&table));
        }

        #[test]
        fn in_the_end_everyone_has_what_they_want(
            first in proptest::collection::vec(1..1000_u16, 1..8),
            then in proptest::collection::vec(1..1000_u16, 1..8),
            buckets in 8..200_u16,
        ) {
            let owners: Vec<_> = fill(&members(&first), buckets).into_iter()
                .map(|path| (path < then.len()).then_some(path)).collect();
            let after = rebalance(&owners, &members(&then), Overweight::Migrate);
            let weights: Vec<u32> = then.iter().copied().map(u32::from).collect();
            let wants = wanted_buckets(&weights, NonZeroU16::new(buckets).unwrap());
            for (path, want) in wants.into_iter().enumerate() {
                prop_assert_eq!(after.iter().filter(|p| **p == path).count(), usize::from(want));
            }
            let at_once = rebalance(&owners, &members(&then), Overweight::Stay);
            for (bucket, owner) in owners.iter().enumerate() {
                prop_assert!(owner.is_none_or(|path| at_once[bucket] == path));
            }
        }
    }
}
