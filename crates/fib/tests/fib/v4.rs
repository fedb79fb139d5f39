//! IPv4 tables against a linear scan, and at scale against the `prefix-trie` crate.

use std::sync::Arc;

use crate::both::{
    Grace, answers_like_a_linear_scan, bulk_and_single_changes, full_memory_changes_nothing,
    grows_and_shrinks, long_churn, readers_see_old_or_new, refuses_bad_requests, step,
};
use crate::tables::Dice;
use proptest::prelude::*;
use raddle_fib::{Fib4, Heap4, Prefix4, Value, lookup4};

fn fib(nodes: usize, leaves: usize) -> Fib4<Heap4> {
    Fib4::new(Arc::new(Heap4::new(8, nodes, leaves)), Box::new(|| {}))
}

/// Prefixes that nest, touch and share nodes.
fn prefix() -> impl Strategy<Value = Prefix4> {
    let byte = || prop::sample::select(vec![0u8, 1, 2, 31, 127, 128, 254, 255]);
    let near = (byte(), byte(), byte(), byte(), 0u8..=32);
    prop_oneof![
        4 => near.prop_map(|(a, b, c, d, len)| (u32::from_be_bytes([a, b, c, d]), len)),
        2 => (byte(), byte(), 0u8..=32)
            .prop_map(|(c, d, len)| (u32::from_be_bytes([10, 0, c, d]), len)),
        1 => (any::<u32>(), 0u8..=32),
    ]
    .prop_map(|(addr, len)| Prefix4::new(addr, len).expect("at most 32"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_step_answers_like_a_linear_scan(steps in prop::collection::vec(step(prefix), 1..60)) {
        answers_like_a_linear_scan(fib(4096, 16_384), &steps, &[0, 4]);
    }

    #[test]
    fn a_full_memory_changes_nothing(
        nodes in 8usize..200,
        leaves in 32usize..300,
        steps in prop::collection::vec(step(prefix), 1..80),
    ) {
        full_memory_changes_nothing(fib(nodes, leaves), &steps, &[0, 4]);
    }
}

/// A prefix as in routing tables: mostly /24 or a little shorter, now and then anything.
fn usual(dice: &mut Dice) -> Prefix4 {
    let len = match dice.roll(20) {
        0 => dice.roll(33) as u8,
        1 => 25 + dice.roll(8) as u8,
        2..8 => 14 + dice.roll(10) as u8,
        _ => 24,
    };
    // 1/16 of the address space, so that prefixes nest.
    Prefix4::new(dice.roll(1 << 28), len).expect("at most 32")
}

#[test]
fn a_table_grows_and_shrinks_through_all_root_widths() {
    let (up, down) = (
        [200, 255, 256, 257, 1000, 16_383, 16_384, 16_385, 20_000],
        [64, 63, 1],
    );
    grows_and_shrinks(fib(3 << 19, 1 << 20), usual, 1 << 19, &up, &down, 0);
}

#[test]
fn small_tables_are_small() {
    let mut fib = fib(1 << 16, 1 << 16);
    let table = fib.create_table().unwrap();
    for i in 0..10 {
        fib.insert(table, Prefix4::new(i << 24 | i << 12, 24).unwrap(), i + 1)
            .unwrap();
    }
    let [nodes, leaves] = fib.usage();
    assert!(
        nodes.used * 8 + leaves.used * 2 < 3000,
        "{nodes:?} {leaves:?}"
    );
}

#[test]
fn bulk_and_single_changes_make_the_same_table() {
    let mut dice = Dice(99);
    let routes: Vec<(Prefix4, Value)> = (0..30_000)
        .map(|_| (usual(&mut dice), 1 + dice.roll(0x9000)))
        .collect();
    bulk_and_single_changes(fib(3 << 19, 2 << 20), &routes);
}

#[test]
fn long_churn_in_a_nearly_full_memory_finds_room() {
    let make = |grace: Grace| Fib4::new(Arc::new(Heap4::new(1, 80_000, 24_000)), grace);
    // 80 % of the cells.
    long_churn(make, 1, 19_200, 200_000, usual);
}

#[test]
fn readers_see_the_old_value_or_the_new_one() {
    let ours = Prefix4::new(0x0a00_0100, 25).unwrap();
    let addrs: Vec<u32> = (0..64).map(|i| 0x0a00_0100 + 2 * i).collect();
    let near = |dice: &mut Dice| {
        let len = [8, 12, 16, 20, 22, 24, 27, 30][dice.roll(8) as usize];
        // Neighbours share the node, and shorter ones cover ours; none is inside ours.
        let base = if len > 24 { 0x0a00_0180 } else { 0x0a00_0000 };
        Prefix4::new(base + dice.roll(128), len).unwrap()
    };
    let memory = Arc::new(Heap4::new(1, 2048, 600));
    readers_see_old_or_new(memory, Fib4::new, ours, &addrs, 20_000, near);
}

#[test]
fn bad_requests_are_refused() {
    refuses_bad_requests(fib(64, 64));
}

#[test]
fn a_wide_table_is_wide_from_the_first_route_to_the_last() {
    let mut fib = fib(3 << 19, 1 << 16);
    let table = fib.create_wide_table().unwrap();
    let prefix = Prefix4::new(0x0a00_0000, 8).unwrap();
    let wide = |fib: &Fib4<Heap4>| fib.usage()[0].used >= 1 << 19;
    assert!(!wide(&fib), "an empty table takes nothing");
    fib.insert(table, prefix, 7).unwrap();
    assert!(wide(&fib));
    assert_eq!(lookup4(fib.memory(), table.index(), 0x0a01_0203), 7);
    fib.remove(table, prefix).unwrap();
    fib.reclaim();
    assert!(!wide(&fib));
    fib.replace_all(table, [(prefix, 8)].into_iter()).unwrap();
    assert!(wide(&fib));
    assert_eq!(lookup4(fib.memory(), table.index(), 0x0a01_0203), 8);
}

#[test]
fn a_wide_table_that_finds_no_room_is_like_any_other() {
    let mut fib = fib(1 << 13, 1 << 16);
    let table = fib.create_wide_table().unwrap();
    for i in 0..600 {
        fib.insert(table, Prefix4::new(i << 16, 16).unwrap(), i + 1)
            .unwrap();
    }
    for i in 0..600 {
        assert_eq!(lookup4(fib.memory(), table.index(), i << 16 | 9), i + 1);
    }
    let [nodes, _] = fib.usage();
    assert!((1 << 11..1 << 13).contains(&nodes.used), "{nodes:?}");
}
