//! Hash-threshold (RFC 2992): from a hash to a member of a group.
//!
//! [`choose_plain`] and [`choose_group`] are the kernel's decisions in its own words and order; engines
//! use [`compile_threshold`] and [`search`], which are held against them by a property test.

use std::hint::select_unpredictable;

use serde::Serialize;

/// The largest 31-bit hash; also the upper bound of the last member.
pub const MAX_HASH: u32 = 0x7fff_ffff;

/// The upper bound of each member, from the weights in order.
///
/// `None` stands for a member that takes no part (dead, or without carrier where that counts), in the
/// weights as in the bounds. `bound = round(sum of weights so far * 2^31 / total) - 1`, rounded to
/// the closest, halves up. The last bound is [`MAX_HASH`]. Weights are 1..=256 for nexthops of a
/// route and 1..=65535 in groups; a member so light beside the others that it would end before 0 has
/// no bound.
///
/// Models `fib_rebalance`, `rt6_multipath_rebalance` and `nh_hthr_group_rebalance`.
pub fn upper_bounds(weights: &[Option<u32>]) -> Vec<Option<u32>> {
    let total: u64 = weights.iter().flatten().copied().map(u64::from).sum();
    let mut so_far = 0;
    let bound = |weight: &Option<u32>| {
        so_far += u64::from((*weight)?);
        if total == 0 {
            return None;
        }
        // 128 bits, since arbitrary weights need more than 64; the kernel's cannot.
        let end = ((u128::from(so_far) << 31) + u128::from(total / 2)) / u128::from(total);
        u32::try_from(end).ok()?.checked_sub(1)
    };
    weights.iter().map(bound).collect()
}

/// A decision and the number of the rule that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// Index of the member.
    pub member: usize,
    /// Number of the rule in the deciding function's doc comment.
    pub rule: u8,
}

/// Which nexthop of a route a forwarded packet takes (`fib_select_multipath`, `fib6_select_path`).
///
/// A nexthop is eligible where it has a bound and is good. `good` is true for all but IPv4 nexthops
/// under `fib_multipath_use_neigh` whose gateway has a neighbour entry in no valid state.
///
/// 1. The first eligible nexthop whose bound is not below the hash.
/// 2. Else (the nexthops that the hash would choose are not good) the first eligible one.
/// 3. Else the first with a bound: none is good.
/// 4. Else none: the route falls through to the next best one.
///
/// This machine's own packets are treated otherwise: [`crate::choose_local4`],
/// [`crate::choose_local6`].
pub fn choose_plain(
    uppers: &[Option<u32>],
    good: impl Fn(usize) -> bool,
    hash31: u32,
) -> Option<Choice> {
    let mut first_usable = None;
    let mut first_eligible = None;
    for (member, upper) in uppers.iter().enumerate() {
        let Some(upper) = *upper else { continue };
        first_usable = first_usable.or(Some(member));
        if !good(member) {
            continue;
        }
        first_eligible = first_eligible.or(Some(member));
        if hash31 <= upper {
            return Some(Choice { member, rule: 1 });
        }
    }
    match (first_eligible, first_usable) {
        (Some(member), _) => Some(Choice { member, rule: 2 }),
        (None, Some(member)) => Some(Choice { member, rule: 3 }),
        (None, None) => None,
    }
}

/// Which member of a hash-threshold nexthop group a packet takes (`nexthop_select_path_hthr`).
///
/// `good` is false for members whose gateway has a neighbour entry in no valid state, for both
/// families and whatever `fib_multipath_use_neigh` says. Every member has a bound.
///
/// 1. The first good member whose bound is not below the hash.
/// 2. Else the first good member.
/// 3. Else the first member.
/// 4. A group without members chooses none.
pub fn choose_group(uppers: &[u32], good: impl Fn(usize) -> bool, hash31: u32) -> Option<Choice> {
    let mut first_good = None;
    for (member, upper) in uppers.iter().enumerate() {
        if !good(member) {
            continue;
        }
        first_good = first_good.or(Some(member));
        if hash31 <= *upper {
            return Some(Choice { member, rule: 1 });
        }
    }
    match first_good {
        Some(member) => Some(Choice { member, rule: 2 }),
        None if uppers.is_empty() => None,
        None => Some(Choice { member: 0, rule: 3 }),
    }
}

/// The same decisions as a list of (upper bound, index of the member), strictly ascending, to be
/// searched with [`search`].
///
/// `eligible` is the `good` of [`choose_plain`] and [`choose_group`], by index; members without a bound
/// are never eligible. The last bound is [`MAX_HASH`]; the list is empty only where no member has a
/// bound. Neighbouring ranges of one member are one entry, so a list of one entry needs no hash.
pub fn compile_threshold(
    uppers: &[Option<u32>],
    eligible: impl Fn(usize) -> bool,
) -> Vec<(u32, usize)> {
    let bounded = || {
        let pair = |(member, upper): (usize, &Option<u32>)| Some(((*upper)?, member));
        uppers.iter().enumerate().filter_map(pair)
    };
    let mut list: Vec<(u32, usize)> = Vec::with_capacity(uppers.len() + 1);
    for (upper, member) in bounded().filter(|(_, member)| eligible(*member)) {
        // A bound that is not above the last one is never the first to hold a hash.
        if list.last().is_none_or(|(last, _)| *last < upper) {
            list.push((upper, member));
        }
    }
    let first = list.first().copied().or_else(|| bounded().next());
    let Some((_, first)) = first else {
        return list;
    };
    match list.as_mut_slice() {
        [(upper, _)] => *upper = MAX_HASH,
        [.., (last, _)] if *last >= MAX_HASH => {}
        _ => list.push((MAX_HASH, first)),
    }
    list
}

/// The position of the first bound that is not below the hash, in ascending bounds of which the last
/// is [`MAX_HASH`]. O(log n), without unpredictable branches.
#[inline]
pub fn search(uppers: &[u32], hash31: u32) -> usize {
    search_by(uppers.len(), hash31, |i| uppers[i])
}

/// [`search`] where the bounds lie elsewhere: `upper` gives the bound at a position below `count`.
///
/// 1. Where there are more than eight: among equal weights it is at `hash31 * count >> 31`, give or
///    take one, so that place is looked at first.
/// 2. Otherwise by halves.
#[inline]
pub fn search_by(count: usize, hash31: u32, upper: impl Fn(usize) -> u32) -> usize {
    /// For fewer, halving takes no longer than a guess.
    const FEW: usize = 8;
    if count > FEW {
        // Below `count`, since the hash is below 2^31.
        let guess = ((u64::from(hash31) * count as u64) >> 31) as usize;
        let guess = guess.min(count - 1);
        if hash31 <= upper(guess) && (guess == 0 || upper(guess - 1) < hash31) {
            return guess;
        }
    }
    let mut first = 0;
    let mut left = count;
    while left > 1 {
        let half = left / 2;
        let below = upper(first + half - 1) < hash31;
        first += select_unpredictable(below, half, 0);
        left -= half;
    }
    first
}
