//! IPv4 tables against a linear scan, and at scale against the `prefix-trie` crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use prefix_trie::PrefixMap;
use proptest::prelude::*;
use raddle_fib::{Fib4, FibError, Heap4, Prefix4, TableId, Value, lookup4, lookup4_batch};

/// The slow and obvious table: every route is looked at.
#[derive(Clone, Debug, Default)]
struct Linear(Vec<(Prefix4, Value)>);

impl Linear {
    fn insert(&mut self, prefix: Prefix4, value: Value) -> Option<Value> {
        let old = self.remove(prefix);
        self.0.push((prefix, value));
        old
    }

    fn remove(&mut self, prefix: Prefix4) -> Option<Value> {
        let at = self.0.iter().position(|(p, _)| *p == prefix)?;
        Some(self.0.swap_remove(at).1)
    }

    fn lookup(&self, addr: u32) -> Value {
        let covering = self.0.iter().filter(|(p, _)| p.contains(addr));
        covering.max_by_key(|(p, _)| p.len()).map_or(0, |(_, v)| *v)
    }

    fn sorted(&self) -> Vec<(Prefix4, Value)> {
        let mut all = self.0.clone();
        all.sort();
        all
    }
}

fn fib(nodes: usize, leaves: usize) -> Fib4<Heap4> {
    Fib4::new(Arc::new(Heap4::new(8, nodes, leaves)), Box::new(|| {}))
}

/// First and last addresses of all prefixes, and their neighbours.
fn edges(prefixes: impl Iterator<Item = Prefix4>) -> Vec<u32> {
    let mut all = vec![0, u32::MAX, 0x8000_0000];
    for p in prefixes {
        for edge in [p.addr(), p.last()] {
            all.extend([edge, edge.wrapping_sub(1), edge.wrapping_add(1)]);
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn check(fib: &Fib4<Heap4>, table: TableId, want: &Linear, addrs: &[u32]) {
    let mut batch = vec![7; addrs.len()];
    lookup4_batch(fib.memory(), table.index(), addrs, &mut batch);
    for (&addr, &in_batch) in addrs.iter().zip(&batch) {
        let got = lookup4(fib.memory(), table.index(), addr);
        assert_eq!(got, want.lookup(addr), "{addr:#010x} in {want:?}");
        assert_eq!(got, in_batch, "batch of {addr:#010x}");
    }
    assert_eq!(fib.len(table), want.0.len());
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

/// Values of both leaf widths, few enough that neighbours merge.
fn value() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![1, 2, 3, 0x7ffe, 0x7fff, 0x8000, 0x7fff_ffff])
}

#[derive(Clone, Debug)]
enum Step {
    Insert(usize, Prefix4, Value),
    Remove(usize, prop::sample::Index),
    RemoveAny(usize, Prefix4),
    Replace(usize, Vec<(Prefix4, Value)>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..2usize, prefix(), value()).prop_map(|(t, p, v)| Step::Insert(t, p, v)),
        4 => (0..2usize, any::<prop::sample::Index>()).prop_map(|(t, i)| Step::Remove(t, i)),
        1 => (0..2usize, prefix()).prop_map(|(t, p)| Step::RemoveAny(t, p)),
        1 => (0..2usize, prop::collection::vec((prefix(), value()), 0..20))
            .prop_map(|(t, all)| Step::Replace(t, all)),
    ]
}

/// Applies a step to both; an error must leave the table as it was.
fn apply(fib: &mut Fib4<Heap4>, tables: &[TableId], want: &mut [Linear], step: &Step) -> bool {
    let full = |r: Result<Option<Value>, FibError>| match r {
        Ok(old) => Some(old),
        Err(FibError::Full { .. }) => None,
        Err(error) => panic!("{error}"),
    };
    match step {
        Step::Insert(t, p, v) => match full(fib.insert(tables[*t], *p, *v)) {
            Some(old) => assert_eq!(old, want[*t].insert(*p, *v)),
            None => return false,
        },
        Step::Remove(t, i) => {
            let Some((p, _)) = (!want[*t].0.is_empty()).then(|| *i.get(&want[*t].0)) else {
                return true;
            };
            match full(fib.remove(tables[*t], p)) {
                Some(old) => assert_eq!(old, want[*t].remove(p)),
                None => return false,
            }
        }
        Step::RemoveAny(t, p) => match full(fib.remove(tables[*t], *p)) {
            Some(old) => assert_eq!(old, want[*t].remove(*p)),
            None => return false,
        },
        Step::Replace(t, all) => {
            if full(
                fib.replace_all(tables[*t], all.iter().copied())
                    .map(|()| None),
            )
            .is_none()
            {
                return false;
            }
            want[*t] = Linear::default();
            for (p, v) in all {
                want[*t].insert(*p, *v);
            }
        }
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_step_answers_like_a_linear_scan(steps in prop::collection::vec(step(), 1..60)) {
        let mut fib = fib(4096, 16_384);
        let tables = [fib.create_table().unwrap(), fib.create_table().unwrap()];
        let mut want = [Linear::default(), Linear::default()];
        for step in &steps {
            prop_assert!(apply(&mut fib, &tables, &mut want, step));
            for (table, want) in tables.iter().zip(&want) {
                check(&fib, *table, want, &edges(want.0.iter().map(|(p, _)| *p)));
                prop_assert_eq!(fib.iter(*table).collect::<Vec<_>>(), want.sorted());
            }
        }
        for (p, v) in &want[0].0 {
            prop_assert_eq!(fib.get(tables[0], *p), Some(*v));
        }
        for table in tables {
            fib.drop_table(table);
        }
        fib.reclaim();
        for part in fib.usage() {
            prop_assert!(part.used <= 4 && part.limbo == 0, "left behind: {:?}", part);
        }
    }

    #[test]
    fn a_full_memory_changes_nothing(
        nodes in 8usize..200,
        leaves in 32usize..300,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut fib = fib(nodes, leaves);
        let tables = [fib.create_table().unwrap(), fib.create_table().unwrap()];
        let mut want = [Linear::default(), Linear::default()];
        for step in &steps {
            apply(&mut fib, &tables, &mut want, step);
            for (table, want) in tables.iter().zip(&want) {
                check(&fib, *table, want, &edges(want.0.iter().map(|(p, _)| *p)));
                prop_assert_eq!(fib.iter(*table).collect::<Vec<_>>(), want.sorted());
            }
        }
        for table in tables {
            fib.replace_all(table, std::iter::empty()).unwrap();
        }
        fib.reclaim();
        for part in fib.usage() {
            prop_assert!(part.used <= 4 && part.limbo == 0, "left behind: {:?}", part);
        }
    }
}

/// xorshift, for repeatable tables that are too large for proptest.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(below)) >> 32) as u32
    }

    /// A prefix as in routing tables: mostly /24 or a little shorter, now and then anything.
    fn prefix(&mut self) -> Prefix4 {
        let len = match self.roll(20) {
            0 => self.roll(33) as u8,
            1 => 25 + self.roll(8) as u8,
            2..8 => 14 + self.roll(10) as u8,
            _ => 24,
        };
        // 1/16 of the address space, so that prefixes nest.
        Prefix4::new(self.roll(1 << 28), len).expect("at most 32")
    }
}

#[test]
fn a_table_grows_and_shrinks_through_all_root_widths() {
    let mut fib = fib(3 << 19, 1 << 20);
    let table = fib.create_table().unwrap();
    let mut want: PrefixMap<(u32, u8), Value> = PrefixMap::new();
    let mut dice = Dice(2024);
    let mut all = Vec::new();
    let check = |fib: &Fib4<Heap4>, want: &PrefixMap<(u32, u8), Value>, dice: &mut Dice| {
        let addrs: Vec<u32> = (0..2000).map(|_| dice.roll(1 << 29)).collect();
        let mut values = vec![0; addrs.len()];
        lookup4_batch(fib.memory(), 0, &addrs, &mut values);
        for (addr, value) in addrs.iter().zip(values) {
            let best = want.get_lpm(&(*addr, 32)).map_or(0, |(_, v)| *v);
            assert_eq!(value, best, "{addr:#010x}");
        }
        assert_eq!(fib.len(table), want.len());
    };
    while want.len() < 20_000 {
        let (p, v) = (dice.prefix(), 1 + dice.roll(60));
        let old = fib.insert(table, p, v).unwrap();
        assert_eq!(old, want.insert((p.addr(), p.len()), v));
        if old.is_none() {
            all.push(p);
        }
        if [200, 255, 256, 257, 1000, 16_383, 16_384, 16_385, 19_000].contains(&want.len()) {
            check(&fib, &want, &mut dice);
        }
    }
    let [nodes, _] = fib.usage();
    assert!(nodes.used >= 1 << 19, "the root has grown");
    while let Some(p) = (!all.is_empty()).then(|| {
        let i = dice.roll(all.len() as u32) as usize;
        all.swap_remove(i)
    }) {
        assert_eq!(
            fib.remove(table, p).unwrap(),
            want.remove(&(p.addr(), p.len()))
        );
        if want.len().is_multiple_of(2500) || [63, 64, 1].contains(&want.len()) {
            check(&fib, &want, &mut dice);
        }
    }
    fib.reclaim();
    assert_eq!(fib.usage()[0].used, 0, "nothing is left of an empty table");
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
        .map(|_| (dice.prefix(), 1 + dice.roll(0x9000)))
        .collect();
    let mut fib = fib(3 << 19, 2 << 20);
    let (single, bulk) = (fib.create_table().unwrap(), fib.create_table().unwrap());
    for &(p, v) in &routes {
        fib.insert(single, p, v).unwrap();
    }
    fib.replace_all(bulk, routes.iter().copied()).unwrap();
    assert!(fib.iter(single).eq(fib.iter(bulk)));
    for addr in edges(routes.iter().map(|(p, _)| *p)) {
        assert_eq!(
            lookup4(fib.memory(), 0, addr),
            lookup4(fib.memory(), 1, addr)
        );
    }
}

#[test]
fn long_churn_in_a_nearly_full_memory_finds_room() {
    let waits = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&waits);
    let grace = Box::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let mut fib = Fib4::new(Arc::new(Heap4::new(1, 80_000, 24_000)), grace);
    let table = fib.create_table().unwrap();
    let mut dice = Dice(5);
    let mut held = Vec::new();
    // 80 % of the cells, what readers may still hold not counted.
    while fib.usage()[1].used < 19_200 {
        let p = dice.prefix();
        if fib.insert(table, p, 1 + dice.roll(500)).unwrap().is_none() {
            held.push(p);
        }
    }
    const UPDATES: usize = 200_000;
    for update in 0..UPDATES {
        if fib.usage()[1].used < 19_200 {
            let p = dice.prefix();
            let done = fib.insert(table, p, 1 + dice.roll(500));
            let old = done.unwrap_or_else(|e| panic!("update {update}: {e}"));
            if old.is_none() {
                held.push(p);
            }
        } else {
            let p = held.swap_remove(dice.roll(held.len() as u32) as usize);
            fib.remove(table, p)
                .unwrap_or_else(|e| panic!("update {update}: {e}"));
        }
    }
    let waits = waits.load(Ordering::Relaxed);
    assert!(
        waits < UPDATES / 100,
        "{waits} grace periods for {UPDATES} updates"
    );
}

/// Ends the other thread when this one ends, be it by a failed assertion.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn readers_see_the_old_value_or_the_new_one() {
    // The route under test moves between two values while routes around it come and go; its
    // answer must be one of the two at any time. Grace waits for the reader's round to end.
    let rounds = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let (seen, ended) = (Arc::clone(&rounds), Arc::clone(&stop));
    let grace = Box::new(move || {
        let start = seen.load(Ordering::SeqCst);
        while seen.load(Ordering::SeqCst) < start + 2 && !ended.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    });
    let memory = Arc::new(Heap4::new(1, 2048, 600));
    let mut fib = Fib4::new(Arc::clone(&memory), grace);
    let table = fib.create_table().unwrap();
    let ours = Prefix4::new(0x0a00_0100, 25).unwrap();
    fib.insert(table, Prefix4::ALL, 9).unwrap();
    fib.insert(table, ours, 100).unwrap();

    std::thread::scope(|scope| {
        let (memory, rounds, ended) = (&memory, &rounds, &stop);
        let reader = scope.spawn(move || {
            let _stop = StopOnDrop(ended);
            let addrs: Vec<u32> = (0..64).map(|i| 0x0a00_0100 + 2 * i).collect();
            let mut values = vec![0; addrs.len()];
            let mut kinds = [0usize; 2];
            while !ended.load(Ordering::SeqCst) {
                lookup4_batch(&**memory, 0, &addrs, &mut values);
                for (addr, batch) in addrs.iter().zip(&values) {
                    for value in [*batch, lookup4(&**memory, 0, *addr)] {
                        assert!(matches!(value, 100 | 0x9000), "{addr:#x} -> {value}");
                        kinds[usize::from(value == 100)] += 1;
                    }
                }
                rounds.fetch_add(1, Ordering::SeqCst);
            }
            kinds
        });
        let stopper = StopOnDrop(ended);
        let mut dice = Dice(31);
        for i in 0..20_000 {
            fib.insert(table, ours, if i % 2 == 0 { 0x9000 } else { 100 })
                .unwrap();
            let len = [8, 12, 16, 20, 22, 24, 27, 30][dice.roll(8) as usize];
            // Neighbours share the node, and shorter ones cover ours; none is inside ours.
            let base = if len > 24 { 0x0a00_0180 } else { 0x0a00_0000 };
            let p = Prefix4::new(base + dice.roll(128), len).unwrap();
            if dice.roll(2) == 0 {
                let _ = fib.insert(table, p, 1 + dice.roll(50)).unwrap();
            } else {
                let _ = fib.remove(table, p).unwrap();
            }
        }
        drop(stopper);
        let kinds = reader.join().unwrap();
        assert!(
            kinds[0] > 0 && kinds[1] > 0,
            "the reader saw both values: {kinds:?}"
        );
    });
}

#[test]
fn bad_requests_are_refused() {
    let mut fib = fib(64, 64);
    let table = fib.create_table().unwrap();
    assert_eq!(
        fib.insert(table, Prefix4::ALL, 0),
        Err(FibError::BadValue(0))
    );
    assert_eq!(
        fib.insert(table, Prefix4::ALL, 0x8000_0000),
        Err(FibError::BadValue(0x8000_0000))
    );
    for _ in 1..8 {
        fib.create_table().unwrap();
    }
    assert_eq!(
        fib.create_table(),
        Err(FibError::TooManyTables { capacity: 8 })
    );
    fib.drop_table(table);
    assert_eq!(
        fib.remove(table, Prefix4::ALL),
        Err(FibError::NoSuchTable(0))
    );
    assert_eq!(lookup4(fib.memory(), 0, 1), 0);
    assert_eq!(lookup4(fib.memory(), 4_000_000, 1), 0);
    assert_eq!(fib.create_table(), Ok(table), "numbers are used again");
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
