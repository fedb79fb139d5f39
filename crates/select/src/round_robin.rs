//! Weighted round robin: the order in which packets go to members where no hash decides.
//!
//! The order repeats. Over every run of as many packets as the sum of the weights (divided by what
//! they have in common), each member gets exactly its weight, and its turns are spread over the run.

use std::num::NonZeroU32;

/// Up to this sum of weights the order is a table.
pub const MAX_TABLE: u32 = 1024;

/// An order of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoundRobin {
    /// The member of each turn, in order.
    Table(Vec<u16>),
    /// Turn by turn [`next_turn`] gives a number below `total`; the first member whose bound is not
    /// below it has the turn.
    Stride {
        /// The sum of the weights.
        total: NonZeroU32,
        /// See [`next_turn`].
        stride: u32,
        /// Sum of the weights up to each member, less one, ascending; members without weight are left
        /// out. With the member's position.
        bounds: Vec<(u32, u16)>,
    },
}

/// The order of turns for these weights; none when nobody has one, or there are too many of them
/// (65,536 members, or a sum beyond 2^32 - 1).
///
/// 1. Weights are divided by their greatest common divisor.
/// 2. Up to a sum of [`MAX_TABLE`]: smooth weighted round robin. At each turn every member gains its
///    weight, the one that has most has the turn (the first among equals) and loses the sum. No two
///    turns of a member are closer than its weight makes them.
/// 3. Beyond: a stride through the sum, close to the golden section of it and without a common divisor
///    with it. A member with at most 38 % of the sum never has two turns in a row.
///
/// Costs up to [`MAX_TABLE`] times the number of members.
pub fn round_robin(weights: &[u32]) -> Option<RoundRobin> {
    let divisor = weights.iter().copied().fold(0, gcd);
    if divisor == 0 || weights.len() > usize::from(u16::MAX) {
        return None;
    }
    let weights: Vec<u32> = weights.iter().map(|weight| weight / divisor).collect();
    let sum: u64 = weights.iter().copied().map(u64::from).sum();
    let total = NonZeroU32::new(u32::try_from(sum).ok()?)?;
    if total.get() <= MAX_TABLE {
        return Some(RoundRobin::Table(smooth(&weights, i64::from(total.get()))));
    }
    let mut so_far = 0;
    let bound = |(member, weight): (usize, &u32)| {
        so_far += weight;
        // There are fewer members than a u16 counts.
        (*weight > 0).then(|| (so_far - 1, member as u16))
    };
    Some(RoundRobin::Stride {
        total,
        stride: stride(total),
        bounds: weights.iter().enumerate().filter_map(bound).collect(),
    })
}

/// Rule 2 of [`round_robin`].
fn smooth(weights: &[u32], total: i64) -> Vec<u16> {
    let mut has = vec![0i64; weights.len()];
    let mut order = Vec::new();
    for _ in 0..total {
        let mut first = 0;
        for (member, weight) in weights.iter().enumerate() {
            has[member] += i64::from(*weight);
            if has[member] > has[first] {
                first = member;
            }
        }
        has[first] -= total;
        order.push(first as u16);
    }
    order
}

/// The number of the turn after `x`, by rule 3 of [`round_robin`].
#[inline]
pub fn next_turn(x: u32, total: NonZeroU32, stride: u32) -> u32 {
    let next = u64::from(x) + u64::from(stride);
    // Both are below the total, or the total has changed meanwhile.
    let next = if next >= u64::from(total.get()) {
        next - u64::from(total.get())
    } else {
        next
    };
    if next >= u64::from(total.get()) {
        0
    } else {
        next as u32
    }
}

/// The stride of rule 3 of [`round_robin`].
fn stride(total: NonZeroU32) -> u32 {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let golden = (f64::from(total.get()) * GOLDEN) as u32;
    let coprime = |n: &u32| *n > 0 && *n < total.get() && gcd(*n, total.get()) == 1;
    (0..total.get())
        .flat_map(|away| [golden.checked_add(away), golden.checked_sub(away)])
        .flatten()
        .find(coprime)
        .unwrap_or(1)
}

fn gcd(a: u32, b: u32) -> u32 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The members of so many turns from a point on.
    fn order(turns: &RoundRobin, count: usize) -> Vec<usize> {
        match turns {
            RoundRobin::Table(table) => table
                .iter()
                .map(|m| usize::from(*m))
                .cycle()
                .take(count)
                .collect(),
            RoundRobin::Stride {
                total,
                stride,
                bounds,
            } => {
                let mut x = 0;
                let mut turn = || {
                    x = next_turn(x, *total, *stride);
                    let place = bounds.partition_point(|(bound, _)| *bound < x);
                    usize::from(bounds[place].1)
                };
                (0..count).map(|_| turn()).collect()
            }
        }
    }

    proptest! {
        #[test]
        fn shares_are_exact_over_every_window(
            weights in prop_oneof![
                prop::collection::vec(0..9u32, 1..12),
                prop::collection::vec(0..900u32, 2..6),
            ],
            from in 0..2000usize,
        ) {
            let Some(turns) = round_robin(&weights) else {
                prop_assert!(weights.iter().all(|w| *w == 0));
                return Ok(());
            };
            let divisor = weights.iter().copied().fold(0, gcd);
            let window = (weights.iter().sum::<u32>() / divisor) as usize;
            let order = order(&turns, from + window);
            for (member, weight) in weights.iter().enumerate() {
                let got = order[from..].iter().filter(|m| **m == member).count();
                prop_assert_eq!(got, (weight / divisor) as usize);
            }
        }

        /// Nobody is ever further from its share than by two turns and a bit, however short the run.
        #[test]
        fn there_are_no_bursts(
            weights in prop_oneof![
                prop::collection::vec(1..40u32, 2..20),
                prop::collection::vec(1..=65535u32, 2..20),
            ],
        ) {
            let turns = round_robin(&weights).unwrap();
            let total: u64 = weights.iter().copied().map(u64::from).sum();
            let order = order(&turns, 3000);
            for (member, weight) in weights.iter().enumerate() {
                let share = f64::from(*weight) / total as f64;
                let longest = order
                    .chunk_by(|a, b| (*a == member) == (*b == member))
                    .filter(|run| run[0] == member)
                    .map(<[usize]>::len)
                    .max()
                    .unwrap_or(0);
                let most = if share <= 0.38 { 1 } else if share <= 0.5 { 2 } else { usize::MAX };
                // At the seams of small tables a member may meet itself.
                prop_assert!(longest <= most.saturating_add(1), "{member}: {longest} in a row at {share}");
            }
        }
    }

    #[test]
    fn known_orders() {
        let table = |weights: &[u32]| match round_robin(weights) {
            Some(RoundRobin::Table(table)) => table,
            other => panic!("{other:?}"),
        };
        assert_eq!(table(&[1, 1]), [0, 1]);
        assert_eq!(table(&[500, 500, 500]), [0, 1, 2]);
        assert_eq!(table(&[3, 2, 1]), [0, 1, 0, 2, 1, 0]);
        assert_eq!(table(&[5, 1, 1]), [0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(table(&[0, 7]), [1]);
        assert_eq!(round_robin(&[0, 0]), None);
        assert_eq!(round_robin(&[]), None);
        let many = round_robin(&[65535, 65534]).unwrap();
        let RoundRobin::Stride {
            total,
            stride,
            bounds,
        } = many
        else {
            panic!("{many:?}");
        };
        assert_eq!(
            (total.get(), bounds),
            (131_069, vec![(65534, 0), (131_068, 1)])
        );
        assert_eq!(gcd(stride, 131_069), 1);
    }

    #[test]
    fn a_turn_is_one_whatever_was_before() {
        let total = NonZeroU32::new(10).unwrap();
        assert_eq!(next_turn(9, total, 7), 6);
        assert_eq!(next_turn(u32::MAX, total, 7), 0);
    }
}
