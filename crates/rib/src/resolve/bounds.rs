//! Shares of the 31-bit hash, and the ranges that follow from them.

use raddle_select::{compile_threshold, upper_bounds};

use super::Hop;

/// Gives each hop that is eligible its upper bound.
pub(super) fn bound(hops: &mut [Hop]) {
    let weights: Vec<Option<u32>> = hops
        .iter()
        .map(|hop| hop.eligible.then_some(u32::from(hop.weight)))
        .collect();
    for (hop, upper) in hops.iter_mut().zip(upper_bounds(&weights)) {
        hop.upper = upper;
    }
}

/// Upper bounds and the hops that selection takes up to them, by their position.
pub(super) fn ranges(hops: &[Hop]) -> Vec<(u32, usize)> {
    let uppers: Vec<Option<u32>> = hops.iter().map(|hop| hop.upper).collect();
    compile_threshold(&uppers, |i| hops[i].eligible)
}
