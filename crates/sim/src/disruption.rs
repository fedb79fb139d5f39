//! What a change moves, counted in hashes.

use std::collections::BTreeMap;

use crate::layout::{Layout, Path, SPACE};

/// How many of the 2^31 hashes go from which path to which, those that stay included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves(BTreeMap<(Path, Path), u64>);

/// Compares two layouts of the same hash: which hashes change their path.
///
/// 1. Two lists of ranges are walked together from bound to bound.
/// 2. Of a range, each bucket has every n-th hash.
/// 3. Two tables of buckets repeat after the least common multiple of their sizes.
///
/// Exact. O(n + m) for ranges, O(n * m) for ranges and buckets; for two tables of buckets O(least
/// common multiple), at most 2^31 steps.
pub fn moves(before: &Layout, after: &Layout) -> Moves {
    let mut parts = BTreeMap::new();
    before.compare_in(after, SPACE, |from, to, hashes| {
        *parts.entry((from, to)).or_default() += hashes;
    });
    Moves(parts)
}

impl Moves {
    /// From, to, and hashes; staying has the same path twice.
    pub fn parts(&self) -> impl Iterator<Item = (Path, Path, u64)> + '_ {
        self.0.iter().map(|((from, to), n)| (*from, *to, *n))
    }

    /// Hashes that change their path.
    pub fn moved(&self) -> u64 {
        let changed = self.parts().filter(|(from, to, _)| from != to);
        changed.map(|(_, _, hashes)| hashes).sum()
    }

    /// The share of the hash space that changes its path, 0..=1.
    pub fn share(&self) -> f64 {
        self.moved() as f64 / SPACE as f64
    }

    /// The fewest hashes that any way from the shares before to those after could move: what paths
    /// lose.
    pub fn least(&self) -> u64 {
        let mut balance: BTreeMap<Path, i64> = BTreeMap::new();
        for (from, to, hashes) in self.parts() {
            *balance.entry(from).or_default() -= hashes as i64;
            *balance.entry(to).or_default() += hashes as i64;
        }
        balance.values().map(|change| (*change).max(0) as u64).sum()
    }

    /// [`Moves::least`] as a share.
    pub fn least_share(&self) -> f64 {
        self.least() as f64 / SPACE as f64
    }
}

/// The share of flows that is expected to move when the hash itself changes (its policy, fields or
/// seed): 1 - sum over paths of share before times share after.
///
/// Where a flow goes then does not depend on where it went. An expectation over many flows; for given
/// flows, predict each before and after.
pub fn rehashed_share(before: &Layout, after: &Layout) -> f64 {
    let (p, q) = (before.shares(), after.shares());
    let stays: u128 = p
        .iter()
        .zip(&q)
        .map(|(p, q)| u128::from(*p) * u128::from(*q))
        .sum();
    let nowhere = |shares: &[u64]| SPACE - shares.iter().sum::<u64>();
    let stays = stays + u128::from(nowhere(&p)) * u128::from(nowhere(&q));
    1.0 - stays as f64 / (SPACE as f64 * SPACE as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use raddle_select::{compile_threshold, upper_bounds};

    use super::*;

    fn threshold(weights: &[Option<u32>]) -> Layout {
        Layout::ranges(compile_threshold(&upper_bounds(weights), |_| true))
    }

    /// The share moved when one of `n` equal members goes.
    fn removing(n: usize, gone: usize) -> Moves {
        let before = threshold(&vec![Some(1); n]);
        let after: Vec<_> = (0..n).map(|i| (i != gone).then_some(1)).collect();
        moves(&before, &threshold(&after))
    }

    #[test]
    fn removing_one_of_n_disrupts_as_rfc_2992_says() {
        for (n, best, worst, least) in [
            (4, 1.0 / 3.0, 0.5, 0.25),
            (8, 2.0 / 7.0, 0.5, 0.125),
            (16, 4.0 / 15.0, 0.5, 0.0625),
            (32, 8.0 / 31.0, 0.5, 0.03125),
        ] {
            let shares: Vec<f64> = (0..n).map(|gone| removing(n, gone).share()).collect();
            let lowest = shares.iter().copied().fold(1.0, f64::min);
            let highest = shares.iter().copied().fold(0.0, f64::max);
            assert!((lowest - best).abs() < 1e-6, "{n}: {lowest}");
            assert!((highest - worst).abs() < 1e-6, "{n}: {highest}");
            assert_eq!(shares[0], shares[n - 1], "the ends are alike");
            for gone in 0..n {
                assert!((removing(n, gone).least_share() - least).abs() < 1e-8);
            }
        }
    }

    #[test]
    fn a_member_that_is_passed_over_gives_to_the_next() {
        let uppers = upper_bounds(&[Some(1); 4]);
        let before = Layout::ranges(compile_threshold(&uppers, |_| true));
        let after = Layout::ranges(compile_threshold(&uppers, |i| i != 1));
        let all = moves(&before, &after);
        let moved: Vec<_> = all.parts().filter(|(from, to, _)| from != to).collect();
        assert_eq!(moved, [(Some(1), Some(2), SPACE / 4)]);
        assert_eq!(all.moved(), all.least());
    }

    #[test]
    fn re_hashing_two_equal_paths_moves_half() {
        let two = threshold(&[Some(1); 2]);
        assert!((rehashed_share(&two, &two) - 0.5).abs() < 1e-9);
        let skewed = threshold(&[Some(3), Some(1)]);
        assert!((rehashed_share(&skewed, &skewed) - 0.375).abs() < 1e-9);
        assert!((rehashed_share(&two, &Layout::nowhere()) - 1.0).abs() < 1e-12);
        assert!(rehashed_share(&Layout::one(0), &Layout::one(0)).abs() < 1e-12);
    }

    fn weights() -> impl Strategy<Value = Vec<Option<u32>>> {
        proptest::collection::vec(proptest::option::weighted(0.8, 1..=256_u32), 1..12)
    }

    proptest! {
        #[test]
        fn nothing_moves_less_than_the_least(before in weights(), after in weights()) {
            let all = moves(&threshold(&before), &threshold(&after));
            prop_assert_eq!(all.parts().map(|(_, _, n)| n).sum::<u64>(), SPACE);
            prop_assert!(all.least() <= all.moved());
        }
    }
}
