//! IPv6 tables against a linear scan, and at scale against the `prefix-trie` crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use prefix_trie::PrefixMap;
use proptest::prelude::*;
use raddle_fib::{Fib6, FibError, Heap6, Prefix6, TableId, Value, lookup6, lookup6_batch};

/// The slow and obvious table: every route is looked at.
#[derive(Clone, Debug, Default)]
struct Linear(Vec<(Prefix6, Value)>);

impl Linear {
    fn insert(&mut self, prefix: Prefix6, value: Value) -> Option<Value> {
        let old = self.remove(prefix);
        self.0.push((prefix, value));
        old
    }

    fn remove(&mut self, prefix: Prefix6) -> Option<Value> {
        let at = self.0.iter().position(|(p, _)| *p == prefix)?;
        Some(self.0.swap_remove(at).1)
    }

    fn lookup(&self, addr: u128) -> Value {
        let covering = self.0.iter().filter(|(p, _)| p.contains(addr));
        covering.max_by_key(|(p, _)| p.len()).map_or(0, |(_, v)| *v)
    }

    fn sorted(&self) -> Vec<(Prefix6, Value)> {
        let mut all = self.0.clone();
        all.sort();
        all
    }
}

fn fib(words: usize) -> Fib6<Heap6> {
    Fib6::new(Arc::new(Heap6::new(8, words)), Box::new(|| {}))
}

/// First and last addresses of all prefixes, and their neighbours.
fn edges(prefixes: impl Iterator<Item = Prefix6>) -> Vec<u128> {
    let mut all = vec![0, u128::MAX, 1 << 127];
    for p in prefixes {
        for edge in [p.addr(), p.last()] {
            all.extend([edge, edge.wrapping_sub(1), edge.wrapping_add(1)]);
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn check(fib: &Fib6<Heap6>, table: TableId, want: &Linear, addrs: &[u128]) {
    let mut batch = vec![7; addrs.len()];
    lookup6_batch(fib.memory(), table.index(), addrs, &mut batch);
    for (&addr, &in_batch) in addrs.iter().zip(&batch) {
        let got = lookup6(fib.memory(), table.index(), addr);
        assert_eq!(got, want.lookup(addr), "{addr:#x} in {want:?}");
        assert_eq!(got, in_batch, "batch of {addr:#x}");
    }
    assert_eq!(fib.len(table), want.0.len());
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
    prop_oneof![2 => near, 2 => span, 2 => short, 1 => (any::<u128>(), 0u8..=128)]
        .prop_map(|(addr, len)| Prefix6::new(addr, len).expect("at most 128"))
}

/// Values of both leaf widths, few enough that neighbours merge.
fn value() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![1, 2, 3, 0x7ffe, 0x7fff, 0x8000, 0x7fff_ffff])
}

#[derive(Clone, Debug)]
enum Step {
    Insert(usize, Prefix6, Value),
    Remove(usize, prop::sample::Index),
    RemoveAny(usize, Prefix6),
    Replace(usize, Vec<(Prefix6, Value)>),
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
fn apply(fib: &mut Fib6<Heap6>, tables: &[TableId], want: &mut [Linear], step: &Step) -> bool {
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
        let mut fib = fib(1 << 14);
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
            prop_assert!(part.used == 1 && part.limbo == 0, "left behind: {:?}", part);
        }
    }

    #[test]
    fn a_full_memory_changes_nothing(
        words in 8usize..300,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut fib = fib(words);
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
            prop_assert!(part.used == 1 && part.limbo == 0, "left behind: {:?}", part);
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

    /// A prefix as in routing tables: mostly /29 to /48 in a few large spans and many small ones.
    fn prefix(&mut self) -> Prefix6 {
        let len = match self.roll(20) {
            0 => self.roll(65) as u8,
            1..8 => 29 + self.roll(4) as u8,
            8..12 => 36 + 4 * self.roll(3) as u8,
            _ => 48,
        };
        let (a, b, c) = (
            0x2a00 + self.roll(4),
            self.roll(1 << 12) << 4,
            self.roll(1 << 16),
        );
        let addr = u128::from(a) << 112 | u128::from(b) << 96 | u128::from(c) << 80;
        Prefix6::new(addr | u128::from(self.roll(1 << 16)) << 64, len).expect("at most 128")
    }
}

#[test]
fn a_table_grows_and_shrinks_through_all_kinds_of_spans() {
    let mut fib = fib(1 << 20);
    let table = fib.create_table().unwrap();
    let mut want: PrefixMap<(u128, u8), Value> = PrefixMap::new();
    let mut dice = Dice(2024);
    let mut all = Vec::new();
    let check = |fib: &Fib6<Heap6>, want: &PrefixMap<(u128, u8), Value>, all: &[Prefix6]| {
        let addrs = edges(all.iter().copied().step_by(7));
        let mut values = vec![0; addrs.len()];
        lookup6_batch(fib.memory(), 0, &addrs, &mut values);
        for (addr, value) in addrs.iter().zip(values) {
            let best = want.get_lpm(&(*addr, 128)).map_or(0, |(_, v)| *v);
            assert_eq!(value, best, "{addr:#x}");
            assert_eq!(lookup6(fib.memory(), 0, *addr), best, "{addr:#x}");
        }
        assert_eq!(fib.len(table), want.len());
    };
    while want.len() < 15_000 {
        let (p, v) = (dice.prefix(), 1 + dice.roll(60));
        let old = fib.insert(table, p, v).unwrap();
        assert_eq!(old, want.insert((p.addr(), p.len()), v));
        if old.is_none() {
            all.push(p);
        }
        if [64, 200, 1000, 9_999, 10_000, 10_001, 15_000].contains(&want.len()) {
            check(&fib, &want, &all);
        }
    }
    // A default route that comes, changes and goes in a large table.
    for value in [70, 0x1_0000, 71] {
        fib.insert(table, Prefix6::ALL, value).unwrap();
        want.insert((0, 0), value);
        check(&fib, &want, &all);
    }
    all.retain(|p| p.len() > 0);
    all.push(Prefix6::ALL);
    while let Some(p) = (!all.is_empty()).then(|| {
        let i = dice.roll(all.len() as u32) as usize;
        all.swap_remove(i)
    }) {
        assert_eq!(
            fib.remove(table, p).unwrap(),
            want.remove(&(p.addr(), p.len()))
        );
        if want.len().is_multiple_of(2500) || [100, 63, 1].contains(&want.len()) {
            check(&fib, &want, &all);
        }
    }
    fib.reclaim();
    assert_eq!(fib.usage()[0].used, 1, "nothing is left of an empty table");
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
        .map(|_| (dice.prefix(), 1 + dice.roll(0x2_0000)))
        .collect();
    let mut fib = fib(2 << 20);
    let (single, bulk) = (fib.create_table().unwrap(), fib.create_table().unwrap());
    for &(p, v) in &routes {
        fib.insert(single, p, v).unwrap();
    }
    fib.replace_all(bulk, routes.iter().copied()).unwrap();
    assert!(fib.iter(single).eq(fib.iter(bulk)));
    for addr in edges(routes.iter().map(|(p, _)| *p)) {
        assert_eq!(
            lookup6(fib.memory(), 0, addr),
            lookup6(fib.memory(), 1, addr)
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
    const WORDS: usize = 100_000;
    let mut fib = Fib6::new(Arc::new(Heap6::new(1, WORDS)), grace);
    let table = fib.create_table().unwrap();
    let mut dice = Dice(5);
    let mut held = Vec::new();
    while fib.usage()[0].used < WORDS / 10 * 8 {
        let p = dice.prefix();
        if fib.insert(table, p, 1 + dice.roll(500)).unwrap().is_none() {
            held.push(p);
        }
    }
    const UPDATES: usize = 100_000;
    for update in 0..UPDATES {
        if fib.usage()[0].used < WORDS / 10 * 8 {
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

const OURS: u128 = 0x2001_0db8_0001 << 80;

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
    let memory = Arc::new(Heap6::new(1, 5000));
    let mut fib = Fib6::new(Arc::clone(&memory), grace);
    let table = fib.create_table().unwrap();
    let ours = Prefix6::new(OURS, 49).unwrap();
    fib.insert(table, Prefix6::ALL, 9).unwrap();
    fib.insert(table, ours, 100).unwrap();

    std::thread::scope(|scope| {
        let (memory, rounds, ended) = (&memory, &rounds, &stop);
        let reader = scope.spawn(move || {
            let _stop = StopOnDrop(ended);
            let addrs: Vec<u128> = (0..64).map(|i| OURS + (i << 73)).collect();
            let mut values = vec![0; addrs.len()];
            let mut kinds = [0usize; 2];
            while !ended.load(Ordering::SeqCst) {
                lookup6_batch(&**memory, 0, &addrs, &mut values);
                for (addr, batch) in addrs.iter().zip(&values) {
                    for value in [*batch, lookup6(&**memory, 0, *addr)] {
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
        for i in 0..10_000 {
            fib.insert(table, ours, if i % 2 == 0 { 0x9000 } else { 100 })
                .unwrap();
            let len = [8, 16, 20, 32, 40, 48, 50, 62][dice.roll(8) as usize];
            // Neighbours share the spans, and shorter ones cover ours; none is inside ours.
            let half = if len > 48 { 1 << 79 } else { 0 };
            let addr = OURS + half + (u128::from(dice.roll(1 << 15)) << 64);
            let p = Prefix6::new(addr, len).unwrap();
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
    let mut fib = fib(64);
    let table = fib.create_table().unwrap();
    assert_eq!(
        fib.insert(table, Prefix6::ALL, 0),
        Err(FibError::BadValue(0))
    );
    assert_eq!(
        fib.insert(table, Prefix6::ALL, 0x8000_0000),
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
        fib.remove(table, Prefix6::ALL),
        Err(FibError::NoSuchTable(0))
    );
    assert_eq!(lookup6(fib.memory(), 0, 1), 0);
    assert_eq!(lookup6(fib.memory(), 4_000_000, 1), 0);
    assert_eq!(fib.create_table(), Ok(table), "numbers are used again");
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
