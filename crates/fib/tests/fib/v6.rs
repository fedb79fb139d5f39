//! IPv6 tables against a linear scan, and at scale against the `prefix-trie` crate.

use std::sync::Arc;

use crate::both::steps::Step;
use crate::both::{
    Grace, answers_like_a_linear_scan, bulk_and_single_changes, full_memory_changes_nothing,
    grows_and_shrinks, long_churn, readers_see_old_or_new, refuses_bad_requests, step,
};
use crate::tables::Dice;
use proptest::prelude::*;
use raddle_fib::{Fib6, Heap6, Prefix6, Value, lookup6};

fn fib(words: usize) -> Fib6<Heap6> {
    Fib6::new(Arc::new(Heap6::new(8, words)), Box::new(|| {}))
}

/// Prefixes that nest, touch and share spans, around their boundaries.
fn prefix() -> impl Strategy<Value = Prefix6> {
    let key = || prop::sample::select(vec![0u16, 1, 0x1f, 0x20, 0x7fff, 0x8000, 0xffff]);
    let keys = prop::collection::vec(key(), 8);
    let near = (keys, 0u8..=128).prop_map(|(keys, len)| {
        let addr = keys
            .iter()
            .fold(0, |addr, key| addr << 16 | u128::from(*key));
        (addr, len)
    });
    let span = (any::<u16>(), 30u8..=50)
        .prop_map(|(key, len)| (0x2001_0db8 << 96 | u128::from(key) << 80, len));
    let short = (key(), key(), 0u8..=34)
        .prop_map(|(a, b, len)| (u128::from(a) << 112 | u128::from(b) << 96, len));
    // Mostly one way down, which parts here and there.
    let keys = prop::collection::vec(prop_oneof![4 => Just(0u16), 1 => key()], 8);
    let lens = prop_oneof![Just(128), (1u8..=8).prop_map(|n| 16 * n), 0u8..=128];
    let far = (keys, lens).prop_map(|(keys, len)| {
        let addr = keys
            .iter()
            .fold(0, |addr, key| addr << 16 | u128::from(*key));
        (addr, len)
    });
    prop_oneof![2 => near, 2 => far, 2 => span, 2 => short, 1 => (any::<u128>(), 0u8..=128)]
        .prop_map(|(addr, len)| Prefix6::new(addr, len).expect("at most 128"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_step_answers_like_a_linear_scan(steps in prop::collection::vec(step(prefix), 1..60)) {
        answers_like_a_linear_scan(fib(1 << 14), &steps, &[2]);
    }

    #[test]
    fn a_full_memory_changes_nothing(
        words in 8usize..300,
        steps in prop::collection::vec(step(prefix), 1..80),
    ) {
        full_memory_changes_nothing(fib(words), &steps, &[2]);
    }
}

/// Hosts below one /32, and now and then another prefix there or above.
fn among_hosts() -> impl Strategy<Value = Prefix6> {
    let key = |of: Vec<u128>| prop::sample::select(of);
    let host = (
        key(vec![0, 1, 0xffff]),
        0u128..40,
        key(vec![0, 1, 1 << 32, 1 << 63]),
    )
        .prop_map(|(a, b, c)| (0x5f00_0001 << 96 | a << 80 | b << 64 | c, 128));
    let other = (host.clone(), 0u8..=128).prop_map(|((addr, _), len)| (addr, len));
    prop_oneof![30 => host, 1 => other]
        .prop_map(|(addr, len)| Prefix6::new(addr, len).expect("at most 128"))
}

/// Steps that begin with many hosts.
fn steps_among_hosts() -> impl Strategy<Value = Vec<Step<Prefix6>>> {
    let hosts = prop::collection::vec((among_hosts(), 1u32..9), 40..200);
    let steps = prop::collection::vec(step(among_hosts), 1..80);
    (hosts, any::<bool>(), steps).prop_map(|(hosts, at_once, steps)| {
        let first = match at_once {
            true => vec![Step::Replace(0, hosts)],
            false => {
                let insert = |(prefix, value)| Step::Insert(0, prefix, value);
                hosts.into_iter().map(insert).collect()
            }
        };
        first.into_iter().chain(steps).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn many_hosts_answer_like_a_linear_scan(steps in steps_among_hosts()) {
        answers_like_a_linear_scan(fib(1 << 15), &steps, &[2]);
    }

    #[test]
    fn many_hosts_in_a_full_memory_change_nothing(
        words in 300usize..3000,
        steps in steps_among_hosts(),
    ) {
        full_memory_changes_nothing(fib(words), &steps, &[2]);
    }
}

/// A host of a large fabric, or now and then a subnet.
fn host(dice: &mut Dice) -> Prefix6 {
    let addr = 0x5f00_0001 << 96 | u128::from(dice.roll(1 << 20)) << 64;
    let len = if dice.roll(2000) == 0 { 64 } else { 128 };
    Prefix6::new(addr | u128::from(dice.roll(2)), len).expect("at most 128")
}

#[test]
fn a_table_of_hosts_grows_and_shrinks() {
    let (up, down) = ([63, 64, 65, 1000, 10_000, 15_000], [1000, 63, 1]);
    grows_and_shrinks(fib(1 << 20), host, 1 << 15, &up, &down, 2);
}

#[test]
fn readers_see_the_old_value_or_the_new_one_among_hosts() {
    const OURS: u128 = 0x5f00_0001 << 96 | 0xabcd << 64;
    let ours = Prefix6::new(OURS, 128).unwrap();
    let near = |dice: &mut Dice| {
        // Few hosts, so that slots are left and taken; and what ends the hash table, and begins it again.
        let addr = 0x5f00_0001 << 96 | u128::from(dice.roll(150)) << 64;
        let len = if dice.roll(50) == 0 {
            33 + dice.roll(60) as u8
        } else {
            128
        };
        Prefix6::new(addr, len).unwrap()
    };
    let memory = Arc::new(Heap6::new(1, 20_000));
    readers_see_old_or_new(memory, Fib6::new, ours, &[OURS], 10_000, near);
}

/// A prefix as in routing tables: mostly /29 to /48 in a few large spans and many small ones.
fn usual(dice: &mut Dice) -> Prefix6 {
    let len = match dice.roll(20) {
        0 => dice.roll(65) as u8,
        1..8 => 29 + dice.roll(4) as u8,
        8..12 => 36 + 4 * dice.roll(3) as u8,
        _ => 48,
    };
    let (a, b, c) = (
        0x2a00 + dice.roll(4),
        dice.roll(1 << 12) << 4,
        dice.roll(1 << 16),
    );
    let addr = u128::from(a) << 112 | u128::from(b) << 96 | u128::from(c) << 80;
    Prefix6::new(addr | u128::from(dice.roll(1 << 16)) << 64, len).expect("at most 128")
}

#[test]
fn a_table_grows_and_shrinks_through_all_kinds_of_spans() {
    let (up, down) = ([64, 200, 1000, 9_999, 10_000, 10_001, 15_000], [100, 63, 1]);
    grows_and_shrinks(fib(1 << 20), usual, 1 << 15, &up, &down, 2);
}

#[test]
fn small_tables_are_small() {
    let mut fib = fib(1 << 16);
    let table = fib.create_table().unwrap();
    for i in 0..10u32 {
        let addr = 0x2001_0db8 << 96 | u128::from(i) << 80;
        fib.insert(table, Prefix6::new(addr, 48).unwrap(), i + 1)
            .unwrap();
    }
    let [words] = fib.usage();
    assert!(words.used * 8 < 200, "{words:?}");
}

#[test]
fn bulk_and_single_changes_make_the_same_table() {
    let mut dice = Dice(99);
    let routes: Vec<(Prefix6, Value)> = (0..20_000)
        .map(|_| (usual(&mut dice), 1 + dice.roll(0x2_0000)))
        .collect();
    bulk_and_single_changes(fib(2 << 20), &routes);
}

#[test]
fn long_churn_in_a_nearly_full_memory_finds_room() {
    const WORDS: usize = 100_000;
    let make = |grace: Grace| Fib6::new(Arc::new(Heap6::new(1, WORDS)), grace);
    long_churn(make, 0, WORDS / 10 * 8, 100_000, usual);
}

#[test]
fn readers_see_the_old_value_or_the_new_one() {
    const OURS: u128 = 0x2001_0db8_0001 << 80;
    let ours = Prefix6::new(OURS, 49).unwrap();
    let addrs: Vec<u128> = (0..64).map(|i| OURS + (i << 73)).collect();
    let near = |dice: &mut Dice| {
        let len = [8, 16, 20, 32, 40, 48, 50, 62][dice.roll(8) as usize];
        // Neighbours share the spans, and shorter ones cover ours; none is inside ours.
        let half = if len > 48 { 1 << 79 } else { 0 };
        let addr = OURS + half + (u128::from(dice.roll(1 << 15)) << 64);
        Prefix6::new(addr, len).unwrap()
    };
    let memory = Arc::new(Heap6::new(1, 5000));
    readers_see_old_or_new(memory, Fib6::new, ours, &addrs, 10_000, near);
}

#[test]
fn readers_see_the_old_value_or_the_new_one_where_long_ways_part() {
    const OURS: u128 = 0x5f00_0000_0001_0000_0000_0002_0000_0000;
    let ours = Prefix6::new(OURS, 100).unwrap();
    let addrs: Vec<u128> = (0..64).map(|i| OURS + (i << 22)).collect();
    let near = |dice: &mut Dice| {
        // Leaves our way before its end, or ends on it.
        let bit = dice.roll(100) as u8;
        let addr = OURS ^ 1 << (127 - bit);
        match dice.roll(3) {
            0 => Prefix6::new(addr, 128).unwrap(),
            1 => Prefix6::new(addr, bit + 1).unwrap(),
            _ => Prefix6::new(OURS, bit).unwrap(),
        }
    };
    let memory = Arc::new(Heap6::new(1, 5000));
    readers_see_old_or_new(memory, Fib6::new, ours, &addrs, 10_000, near);
}

#[test]
fn a_long_way_takes_little() {
    let mut fib = fib(1 << 16);
    let table = fib.create_table().unwrap();
    for i in 0..200u32 {
        let addr = 0x5f00_0000_0001 << 80 | u128::from(i) << 64 | 1;
        fib.insert(table, Prefix6::new(addr, 128).unwrap(), i + 1)
            .unwrap();
    }
    let [words] = fib.usage();
    // The way to the block, the block, and one compare for each.
    assert!(words.used < 200 * 4, "{words:?}");
}

#[test]
fn values_that_compares_have_no_room_for_are_found() {
    const HOST: u128 = 0x2001_0db8 << 96 | 1;
    let mut fib = fib(1 << 10);
    let table = fib.create_table().unwrap();
    for outside in [1, (1 << 26) - 1, 1 << 26, 0x7fff_ffff] {
        fib.insert(table, Prefix6::ALL, outside).unwrap();
        fib.insert(table, Prefix6::new(HOST, 128).unwrap(), 0x7fff_fffe)
            .unwrap();
        for (addr, value) in [(HOST, 0x7fff_fffe), (HOST - 1, outside), (0, outside)] {
            assert_eq!(lookup6(fib.memory(), table.index(), addr), value);
        }
    }
}

#[test]
fn bad_requests_are_refused() {
    refuses_bad_requests(fib(64));
}

#[test]
fn a_wide_table_has_an_array_from_the_first_route_to_the_last() {
    let mut fib = fib(1 << 17);
    let table = fib.create_wide_table().unwrap();
    let prefix = Prefix6::new(0x2001_0db8 << 96, 32).unwrap();
    let wide = |fib: &Fib6<Heap6>| fib.usage()[0].used >= 1 << 15;
    assert!(!wide(&fib), "an empty table takes nothing");
    fib.insert(table, prefix, 7).unwrap();
    assert!(wide(&fib));
    assert_eq!(lookup6(fib.memory(), table.index(), 0x2001_0db8 << 96), 7);
    fib.remove(table, prefix).unwrap();
    fib.reclaim();
    assert!(!wide(&fib));
    fib.replace_all(table, [(prefix, 8)].into_iter()).unwrap();
    assert!(wide(&fib));
    assert_eq!(lookup6(fib.memory(), table.index(), 0x2001_0db8 << 96), 8);
}

/// What a prefix that holds many others answers between them is kept once, however large the value is.
#[test]
fn large_values_take_no_more_room_between_others() {
    let used = |first: Value| {
        let mut fib = fib(1 << 16);
        let table = fib.create_table().unwrap();
        let base = 0xfc00_0001_0001u128 << 80;
        let prefix = |addr, len| Prefix6::new(addr, len).unwrap();
        fib.insert(table, prefix(base, 48), first).unwrap();
        for (n, value) in (0..400u128).zip(first + 1..) {
            fib.insert(table, prefix(base | (n * 160) << 64, 64), value)
                .unwrap();
        }
        for n in 0..400u128 {
            let between = base | (n * 160 + 1) << 64 | 7;
            assert_eq!(lookup6(fib.memory(), 0, between), first);
        }
        let full = fib.usage()[0].used;
        for n in 0..400u128 {
            fib.remove(table, prefix(base | (n * 160) << 64, 64))
                .unwrap();
        }
        assert_eq!(lookup6(fib.memory(), 0, base), first);
        full
    };
    assert_eq!(used((1 << 25) + 5), used(5));
}
