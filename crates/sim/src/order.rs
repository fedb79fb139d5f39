//! The order of a group's members is free, and decides how much a change disrupts (RFC 2992).
//!
//! Hash-threshold cuts the hash space in the order of the members. When a member goes, all bounds
//! shift, those of the members near it most: a member in the middle takes the least along.

use raddle_select::{compile_threshold, upper_bounds};

use crate::disruption::moves;
use crate::layout::Layout;

/// A member before and after a planned change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Weight before; none while it is not there.
    pub before: Option<u32>,
    /// Weight after; none when it is gone.
    pub after: Option<u32>,
}

/// An order of members and what the planned change moves in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Members by their number in the list that was given.
    pub members: Vec<usize>,
    /// How many of the 2^31 hashes move.
    pub moved: u64,
    /// Every order was tried, so there is no better one.
    pub proven: bool,
}

/// Up to so many members, all orders are tried: 5040.
const TRY_ALL: usize = 7;

/// How many of the 2^31 hashes a change moves when the members stand in this order.
pub fn moved_in(members: &[Planned], order: &[usize]) -> u64 {
    let layout = |weight: fn(&Planned) -> Option<u32>| {
        let weights: Vec<Option<u32>> = order.iter().map(|m| weight(&members[*m])).collect();
        let ranges = compile_threshold(&upper_bounds(&weights), |_| true);
        Layout::ranges(ranges).renumbered(|place| order[place])
    };
    moves(&layout(|m| m.before), &layout(|m| m.after)).moved()
}

/// The order in which the planned change moves least.
///
/// 1. Up to 7 members: all orders are tried.
/// 2. More: members that change stand in the middle; the others outwards from it, heaviest first, to
///    both sides in turn. The bound between two members shifts with the weight outside of it, and for
///    the removal of one member this is the best order unless a bound shifts beyond the next one.
/// 3. From there, or from the order that was given if that moves less, pairs of members change places
///    as long as that helps; three rounds at most.
///
/// Of orders that are as good, the one most like the given one counts. O(n! * n) for few members, O(n^3) for many.
pub fn best(members: &[Planned]) -> Order {
    let given: Vec<usize> = (0..members.len()).collect();
    let start = Order {
        moved: moved_in(members, &given),
        members: given,
        proven: members.len() <= TRY_ALL,
    };
    if start.proven {
        return try_all(members, start);
    }
    let centred = centred(members);
    let moved = moved_in(members, &centred);
    let mut best = start;
    if moved < best.moved {
        best = Order {
            members: centred,
            moved,
            proven: false,
        };
    }
    for _ in 0..3 {
        if !improve(members, &mut best) {
            break;
        }
    }
    best
}

/// Rule 1. The orders come by Heap's method.
fn try_all(members: &[Planned], start: Order) -> Order {
    let mut order = start.members.clone();
    let mut all = vec![(start.moved, start.members)];
    let mut state = vec![0; order.len()];
    let mut i = 1;
    while i < order.len() {
        if state[i] >= i {
            state[i] = 0;
            i += 1;
            continue;
        }
        order.swap(if i % 2 == 0 { 0 } else { state[i] }, i);
        all.push((moved_in(members, &order), order.clone()));
        state[i] += 1;
        i = 1;
    }
    // Rounded bounds make orders differ by a few hashes that are as good.
    let least = all.iter().map(|(moved, _)| *moved).min().unwrap_or(0);
    all.retain(|(moved, _)| *moved <= least + members.len() as u64);
    let (moved, members) = all
        .into_iter()
        .min_by(|a, b| a.1.cmp(&b.1))
        .unwrap_or_default();
    Order {
        members,
        moved,
        proven: true,
    }
}

/// Rule 2.
fn centred(members: &[Planned]) -> Vec<usize> {
    let (changing, mut staying): (Vec<usize>, Vec<usize>) =
        (0..members.len()).partition(|m| members[*m].before != members[*m].after);
    staying.sort_by_key(|m| std::cmp::Reverse(members[*m].before));
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for (i, member) in staying.into_iter().enumerate() {
        if i % 2 == 0 { &mut left } else { &mut right }.push(member);
    }
    left.reverse();
    left.into_iter().chain(changing).chain(right).collect()
}

/// Rule 3: one round over all pairs. Whether it helped.
fn improve(members: &[Planned], best: &mut Order) -> bool {
    let before = best.moved;
    // A group of hundreds has tens of thousands of pairs: then neighbours only.
    let reach = if members.len() <= 64 {
        members.len()
    } else {
        2
    };
    for i in 0..members.len() {
        for j in i + 1..members.len().min(i + reach) {
            best.members.swap(i, j);
            let moved = moved_in(members, &best.members);
            if moved < best.moved {
                best.moved = moved;
            } else {
                best.members.swap(i, j);
            }
        }
    }
    best.moved < before
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::SPACE;

    fn removal(weights: &[u32], gone: usize) -> Vec<Planned> {
        let each = |(i, weight): (usize, &u32)| Planned {
            before: Some(*weight),
            after: (i != gone).then_some(*weight),
        };
        weights.iter().enumerate().map(each).collect()
    }

    #[test]
    fn removals_of_equal_members_come_down_to_rfc_2992s_best() {
        for (n, best_share) in [
            (4, 1.0 / 3.0),
            (8, 2.0 / 7.0),
            (16, 4.0 / 15.0),
            (32, 8.0 / 31.0),
        ] {
            let last = removal(&vec![1; n], n - 1);
            let order = best(&last);
            let share = order.moved as f64 / SPACE as f64;
            assert!((share - best_share).abs() < 1e-6, "{n}: {share}");
            let mut sorted = order.members.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..n).collect::<Vec<_>>());
            assert_eq!(order.moved, moved_in(&last, &order.members));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_centred_order_is_close_to_the_best_of_all(
            weights in proptest::collection::vec(1..20_u32, 3..6), gone in 0..3_usize,
        ) {
            let members = removal(&weights, gone);
            let all = best(&members);
            prop_assert!(all.proven);
            let centred = Order { members: centred(&members), moved: 0, proven: false };
            let mut found = Order { moved: moved_in(&members, &centred.members), ..centred };
            improve(&members, &mut found);
            // Rounded bounds differ by a few hashes.
            prop_assert!(found.moved as f64 <= all.moved as f64 * 1.1 + 16.0);
            prop_assert!(all.moved <= found.moved + members.len() as u64);
        }
    }
}
