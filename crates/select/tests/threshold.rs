//! The compiled threshold list against the kernel's loops.
#![allow(clippy::unwrap_used)] // a test may fail

use proptest::prelude::*;
use raddle_select::{
    MAX_HASH, choose_group, choose_plain, compile_threshold, search, search_by, upper_bounds,
};

/// Weights as routes and groups have them, with dead members, and which are good.
fn members(usable: bool) -> impl Strategy<Value = Vec<(Option<u32>, bool)>> {
    let weight = prop_oneof![1u32..=4, 1u32..=256, 1u32..=65535];
    let member = (weight, prop::bool::weighted(0.8), prop::bool::weighted(0.7));
    prop::collection::vec(member, 0..70).prop_map(move |list| {
        let of = |(weight, alive, good)| ((usable || alive).then_some(weight), good);
        list.into_iter().map(of).collect()
    })
}

/// The hashes at which a decision can change, and some between.
fn hashes(uppers: &[Option<u32>], more: &[u32]) -> Vec<u32> {
    let at = |u: u32| [u.saturating_sub(1), u, (u + 1).min(MAX_HASH)];
    let mut all: Vec<u32> = uppers.iter().flatten().copied().flat_map(at).collect();
    all.extend([0, 1, MAX_HASH]);
    all.extend(more.iter().map(|h| h >> 1));
    all
}

fn look_up(list: &[(u32, usize)], hash31: u32) -> Option<usize> {
    let uppers: Vec<u32> = list.iter().map(|(upper, _)| *upper).collect();
    if list.is_empty() {
        return None;
    }
    assert_eq!(
        search(&uppers, hash31),
        uppers.partition_point(|u| *u < hash31)
    );
    Some(list[search_by(list.len(), hash31, |i| list[i].0)].1)
}

fn check_list(list: &[(u32, usize)]) {
    assert!(
        list.is_sorted_by(|a, b| a.0 < b.0 && a.1 != b.1),
        "{list:?}"
    );
    assert!(
        list.last().is_none_or(|(upper, _)| *upper == MAX_HASH),
        "{list:?}"
    );
}

proptest! {
    #[test]
    fn plain(members in members(false), more in any::<[u32; 8]>()) {
        let (weights, good): (Vec<_>, Vec<_>) = members.into_iter().unzip();
        let uppers = upper_bounds(&weights);
        let list = compile_threshold(&uppers, |i| good[i]);
        check_list(&list);
        for hash31 in hashes(&uppers, &more) {
            let choice = choose_plain(&uppers, |i| good[i], hash31).map(|c| c.member);
            prop_assert_eq!(look_up(&list, hash31), choice, "hash {}", hash31);
        }
    }

    #[test]
    fn group(members in members(true), more in any::<[u32; 8]>()) {
        let (weights, good): (Vec<_>, Vec<_>) = members.into_iter().unzip();
        let uppers = upper_bounds(&weights);
        let list = compile_threshold(&uppers, |i| good[i]);
        let all: Vec<u32> = uppers.iter().map(|u| u.unwrap()).collect();
        for hash31 in hashes(&uppers, &more) {
            let choice = choose_group(&all, |i| good[i], hash31).map(|c| c.member);
            prop_assert_eq!(look_up(&list, hash31), choice, "hash {}", hash31);
        }
    }

    /// Every usable member's share is its weight's, to within one in 2^31.
    #[test]
    fn shares_follow_weights(members in members(false)) {
        let weights: Vec<_> = members.into_iter().map(|(weight, _)| weight).collect();
        let total: f64 = weights.iter().flatten().map(|w| f64::from(*w)).sum();
        let mut last = -1.0;
        for (weight, upper) in weights.iter().zip(upper_bounds(&weights)) {
            prop_assert_eq!(weight.is_some(), upper.is_some());
            let (Some(weight), Some(upper)) = (*weight, upper) else { continue };
            let share = f64::from(upper) - last;
            prop_assert!((share - f64::from(weight) / total * 2f64.powi(31)).abs() <= 1.0);
            last = f64::from(upper);
        }
        prop_assert!(total == 0.0 || last == f64::from(MAX_HASH));
    }

    #[test]
    fn any_weights_at_all(weights in prop::collection::vec(any::<Option<u32>>(), 0..9), good in any::<[bool; 9]>()) {
        let uppers = upper_bounds(&weights);
        let list = compile_threshold(&uppers, |i| good[i]);
        check_list(&list);
        for hash31 in hashes(&uppers, &[]) {
            let choice = choose_plain(&uppers, |i| good[i], hash31).map(|c| c.member);
            prop_assert_eq!(look_up(&list, hash31), choice);
        }
    }
}

#[test]
fn ranges_of_bad_members_fall_to_the_next_good() {
    let uppers = upper_bounds(&[Some(1), Some(1), Some(1), Some(1)]);
    assert_eq!(compile_threshold(&uppers, |i| i != 1).len(), 3);
    let list = compile_threshold(&uppers, |i| i != 3);
    assert_eq!(
        list.last(),
        Some(&(MAX_HASH, 0)),
        "above the last good bound: the first good"
    );
    assert_eq!(compile_threshold(&uppers, |i| i == 2), [(MAX_HASH, 2)]);
    assert_eq!(compile_threshold(&uppers, |_| false), [(MAX_HASH, 0)]);
    assert_eq!(
        compile_threshold(&upper_bounds(&[None, None]), |_| true),
        []
    );
}

/// Weights whose shares round to nothing: the kernel's loop stops at the first of equal bounds.
#[test]
fn equal_bounds_belong_to_the_first() {
    let list = compile_threshold(&[Some(5), Some(5), Some(MAX_HASH)], |_| true);
    assert_eq!(list, [(5, 0), (MAX_HASH, 2)]);
}

#[test]
fn rules_are_numbered() {
    let uppers = [Some(9), None, Some(MAX_HASH)];
    let rule = |good: fn(usize) -> bool, hash| {
        choose_plain(&uppers, good, hash).map(|c| (c.member, c.rule))
    };
    assert_eq!(rule(|_| true, 10), Some((2, 1)));
    assert_eq!(rule(|i| i == 0, 10), Some((0, 2)));
    assert_eq!(rule(|_| false, 10), Some((0, 3)));
    assert_eq!(choose_plain(&[None, None], |_| true, 0), None);
    assert_eq!(
        choose_group(&[9, MAX_HASH], |_| false, 10).map(|c| (c.member, c.rule)),
        Some((0, 3))
    );
    assert_eq!(choose_group(&[], |_| true, 10), None);
}
