//! What takes tables that are too large, or too long, for drawn changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use prefix_trie::PrefixMap;
use raddle_fib::{FibError, Value};

use super::{Fib, check_trie, edges};
use crate::tables::Dice;

/// A writer's `grace`.
pub(crate) type Grace = Box<dyn Fn() + Send + Sync>;

/// Routes come until there are as many as the last of `up` says, a default route changes among them,
/// and all go. Held against the `prefix-trie` crate whenever there are as many as in `up` or `down`;
/// the first part of the memory then has `grown`, and `left` at the end.
pub(crate) fn grows_and_shrinks<F: Fib>(
    mut fib: F,
    prefix: impl Fn(&mut Dice) -> F::Prefix,
    grown: usize,
    up: &[usize],
    down: &[usize],
    left: usize,
) {
    let table = fib.create_table().unwrap();
    let mut want: PrefixMap<F::Key, Value> = PrefixMap::new();
    let mut dice = Dice(2024);
    let mut all = Vec::new();
    let check = |fib: &F, want: &PrefixMap<F::Key, Value>, all: &[F::Prefix]| {
        check_trie(fib, want, &edges::<F>(all.iter().copied().step_by(7)));
        assert_eq!(fib.len(table), want.len());
    };
    while want.len() < up.iter().copied().max().unwrap() {
        let (p, v) = (prefix(&mut dice), 1 + dice.roll(60));
        let old = fib.insert(table, p, v).unwrap();
        assert_eq!(old, want.insert(F::key(p), v));
        if old.is_none() {
            all.push(p);
        }
        if up.contains(&want.len()) {
            check(&fib, &want, &all);
        }
    }
    assert!(fib.usage()[0].used >= grown, "the root has grown");
    for value in [70, 0x1_0000, 71] {
        fib.insert(table, F::ALL, value).unwrap();
        want.insert(F::key(F::ALL), value);
        check(&fib, &want, &all);
    }
    all.retain(|p| F::bits(*p) > 0);
    all.push(F::ALL);
    while let Some(p) = (!all.is_empty()).then(|| {
        let i = dice.roll(all.len() as u32) as usize;
        all.swap_remove(i)
    }) {
        assert_eq!(fib.remove(table, p).unwrap(), want.remove(&F::key(p)));
        if want.len().is_multiple_of(2500) || down.contains(&want.len()) {
            check(&fib, &want, &all);
        }
    }
    fib.reclaim();
    let used = fib.usage()[0].used;
    assert_eq!(used, left, "nothing is left of an empty table");
}

/// One table by single changes, one at once.
pub(crate) fn bulk_and_single_changes<F: Fib>(mut fib: F, routes: &[(F::Prefix, Value)]) {
    let (single, bulk) = (fib.create_table().unwrap(), fib.create_table().unwrap());
    for &(p, v) in routes {
        fib.insert(single, p, v).unwrap();
    }
    fib.replace_all(bulk, routes).unwrap();
    assert_eq!(fib.routes(single), fib.routes(bulk));
    for addr in edges::<F>(routes.iter().map(|(p, _)| *p)) {
        assert_eq!(
            F::lookup(fib.memory(), 0, addr),
            F::lookup(fib.memory(), 1, addr)
        );
    }
}

/// Keeps `part` of the memory filled up to `full`, what readers may still hold not counted, through
/// so many updates.
pub(crate) fn long_churn<F: Fib>(
    make: impl FnOnce(Grace) -> F,
    part: usize,
    full: usize,
    updates: usize,
    prefix: impl Fn(&mut Dice) -> F::Prefix,
) {
    let waits = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&waits);
    let mut fib = make(Box::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let table = fib.create_table().unwrap();
    let mut dice = Dice(5);
    let mut held = Vec::new();
    while fib.usage()[part].used < full {
        let p = prefix(&mut dice);
        if fib.insert(table, p, 1 + dice.roll(500)).unwrap().is_none() {
            held.push(p);
        }
    }
    for update in 0..updates {
        if fib.usage()[part].used < full {
            let p = prefix(&mut dice);
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
        waits < updates / 100,
        "{waits} grace periods for {updates} updates"
    );
}

/// Ends the other thread when this one ends, be it by a failed assertion.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The route `ours` moves between two values while routes `near` it come and go; at `addrs`, which
/// it covers, the answer must be one of the two at any time. Grace waits for the reader's round to end.
pub(crate) fn readers_see_old_or_new<F: Fib>(
    memory: Arc<F::Memory>,
    make: impl FnOnce(Arc<F::Memory>, Grace) -> F,
    ours: F::Prefix,
    addrs: &[F::Addr],
    changes: usize,
    near: impl Fn(&mut Dice) -> F::Prefix,
) where
    F::Addr: Sync,
{
    let rounds = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let (seen, ended) = (Arc::clone(&rounds), Arc::clone(&stop));
    let grace = Box::new(move || {
        let start = seen.load(Ordering::SeqCst);
        while seen.load(Ordering::SeqCst) < start + 2 && !ended.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    });
    let mut fib = make(Arc::clone(&memory), grace);
    let table = fib.create_table().unwrap();
    fib.insert(table, F::ALL, 9).unwrap();
    fib.insert(table, ours, 100).unwrap();

    std::thread::scope(|scope| {
        let (memory, rounds, ended) = (&memory, &rounds, &stop);
        let reader = scope.spawn(move || {
            let _stop = StopOnDrop(ended);
            let mut values = vec![0; addrs.len()];
            let mut kinds = [0usize; 2];
            while !ended.load(Ordering::SeqCst) {
                F::lookup_batch(memory, 0, addrs, &mut values);
                for (addr, batch) in addrs.iter().zip(&values) {
                    for value in [*batch, F::lookup(memory, 0, *addr)] {
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
        for i in 0..changes {
            fib.insert(table, ours, if i % 2 == 0 { 0x9000 } else { 100 })
                .unwrap();
            let p = near(&mut dice);
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

/// What is no value, no table, or one table too many in a memory for eight.
pub(crate) fn refuses_bad_requests<F: Fib>(mut fib: F) {
    let [lowest, ..] = F::CORNERS;
    let table = fib.create_table().unwrap();
    for value in [0, 0x8000_0000] {
        let refused = fib.insert(table, F::ALL, value);
        assert_eq!(refused, Err(FibError::BadValue(value)));
    }
    for _ in 1..8 {
        fib.create_table().unwrap();
    }
    let refused = fib.create_table();
    assert_eq!(refused, Err(FibError::TooManyTables { capacity: 8 }));
    fib.drop_table(table);
    let refused = fib.remove(table, F::ALL);
    assert_eq!(refused, Err(FibError::NoSuchTable(0)));
    for table in [0, 4_000_000] {
        assert_eq!(F::lookup(fib.memory(), table, lowest), 0);
    }
    assert_eq!(fib.create_table(), Ok(table), "numbers are used again");
}
