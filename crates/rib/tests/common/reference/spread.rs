//! Shares of the hashes (RFC 2992), and who is taken for each hash.

use super::hops::Hop;

/// The last of the 31-bit hashes.
pub(super) const LAST: u32 = 0x7fff_ffff;

/// Upper bound and place of the nexthop that each range of hashes leads to.
///
/// 1. Each that has a share is given the hashes up to its bound: `(weights so far << 31) / all weights`, rounded to the
///    nearest, less one (`fib_rebalance`, `nh_hthr_group_rebalance`).
/// 2. The first is taken that is good and has a bound not below the hash; else the first that is good; else the first.
pub(super) fn spread(hops: &[Hop], good: impl Fn(&Hop) -> bool) -> Vec<(u32, usize)> {
    let sharing = || (0..hops.len()).filter(|at| hops[*at].has_share);
    let all: u64 = sharing().map(|at| u64::from(hops[at].weight)).sum();
    let mut bounds = Vec::new();
    let mut so_far = 0;
    for at in sharing() {
        so_far += u64::from(hops[at].weight);
        if let Some(upper) = ((so_far << 31) + all / 2)
            .checked_div(all)
            .and_then(|end| end.checked_sub(1))
        {
            bounds.push((upper, at));
        }
    }
    let choice = |hash: u64| {
        let fits = bounds
            .iter()
            .find(|(upper, at)| *upper >= hash && good(&hops[*at]));
        let first = || bounds.iter().find(|(_, at)| good(&hops[*at]));
        let any = || bounds.first();
        fits.or_else(first).or_else(any).map(|(_, at)| *at)
    };
    // Between two bounds the choice is the same.
    let mut ends: Vec<u64> = bounds.iter().map(|(upper, _)| *upper).collect();
    ends.push(u64::from(LAST));
    ends.sort_unstable();
    ends.dedup();
    let mut ranges: Vec<(u32, usize)> = Vec::new();
    for end in ends {
        let Some(at) = choice(end) else {
            continue;
        };
        match ranges.last_mut() {
            Some((upper, last)) if *last == at => *upper = end as u32,
            _ => ranges.push((end as u32, at)),
        }
    }
    ranges
}
