//! Drawn sequences of changes, against a linear scan after each.

use std::fmt::Debug;

use proptest::prelude::*;
use raddle_fib::{FibError, TableId, Value};

use super::{Fib, edges};

/// The slow and obvious table: every route is looked at.
#[derive(Clone, Debug)]
struct Linear<P>(Vec<(P, Value)>);

impl<P: Copy + Ord> Linear<P> {
    fn insert(&mut self, prefix: P, value: Value) -> Option<Value> {
        let old = self.remove(prefix);
        self.0.push((prefix, value));
        old
    }

    fn remove(&mut self, prefix: P) -> Option<Value> {
        let at = self.0.iter().position(|(p, _)| *p == prefix)?;
        Some(self.0.swap_remove(at).1)
    }

    fn lookup<F: Fib<Prefix = P>>(&self, addr: F::Addr) -> Value {
        let covering = self.0.iter().filter(|(p, _)| F::contains(*p, addr));
        covering
            .max_by_key(|(p, _)| F::bits(*p))
            .map_or(0, |(_, v)| *v)
    }

    fn sorted(&self) -> Vec<(P, Value)> {
        let mut all = self.0.clone();
        all.sort();
        all
    }
}

/// Every table answers at all edges, one by one and in a batch, and lists what it should.
fn check<F: Fib>(fib: &F, tables: &[TableId], want: &[Linear<F::Prefix>]) {
    for (&table, want) in tables.iter().zip(want) {
        let addrs = edges::<F>(want.0.iter().map(|(p, _)| *p));
        let mut batch = vec![7; addrs.len()];
        F::lookup_batch(fib.memory(), table.index(), &addrs, &mut batch);
        for (&addr, &in_batch) in addrs.iter().zip(&batch) {
            let got = F::lookup(fib.memory(), table.index(), addr);
            assert_eq!(got, want.lookup::<F>(addr), "{addr:#x} in {want:?}");
            assert_eq!(got, in_batch, "batch of {addr:#x}");
        }
        assert_eq!(fib.len(table), want.0.len());
        assert_eq!(fib.routes(table), want.sorted());
    }
}

/// Values of both leaf widths, few enough that neighbours merge.
fn value() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![1, 2, 3, 0x7ffe, 0x7fff, 0x8000, 0x7fff_ffff])
}

/// A change of one of two tables.
#[derive(Clone, Debug)]
pub(crate) enum Step<P> {
    Insert(usize, P, Value),
    Remove(usize, prop::sample::Index),
    RemoveAny(usize, P),
    Replace(usize, Vec<(P, Value)>),
}

/// Steps over prefixes of this kind.
pub(crate) fn step<P: Clone + Debug, S: Strategy<Value = P>>(
    prefix: fn() -> S,
) -> impl Strategy<Value = Step<P>> {
    prop_oneof![
        8 => (0..2usize, prefix(), value()).prop_map(|(t, p, v)| Step::Insert(t, p, v)),
        4 => (0..2usize, any::<prop::sample::Index>()).prop_map(|(t, i)| Step::Remove(t, i)),
        1 => (0..2usize, prefix()).prop_map(|(t, p)| Step::RemoveAny(t, p)),
        1 => (0..2usize, prop::collection::vec((prefix(), value()), 0..20))
            .prop_map(|(t, all)| Step::Replace(t, all)),
    ]
}

/// Applies a step to both; an error must leave the table as it was.
fn apply<F: Fib>(
    fib: &mut F,
    tables: &[TableId],
    want: &mut [Linear<F::Prefix>],
    step: &Step<F::Prefix>,
) -> bool {
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
            if full(fib.replace_all(tables[*t], all).map(|()| None)).is_none() {
                return false;
            }
            want[*t] = Linear(Vec::new());
            for (p, v) in all {
                want[*t].insert(*p, *v);
            }
        }
    }
    true
}

/// Nothing is left but what is never handed out: so much of each part.
fn assert_empty<F: Fib>(fib: &mut F, reserved: &[usize]) {
    fib.reclaim();
    let usage = fib.usage();
    assert!(
        usage
            .iter()
            .map(|part| part.used)
            .eq(reserved.iter().copied()),
        "{usage:?}"
    );
    assert!(usage.iter().all(|part| part.limbo == 0), "{usage:?}");
}

/// Steps in a memory with room for all of them, and then the tables go.
pub(crate) fn answers_like_a_linear_scan<F: Fib>(
    mut fib: F,
    steps: &[Step<F::Prefix>],
    reserved: &[usize],
) {
    let tables = [fib.create_table().unwrap(), fib.create_table().unwrap()];
    let mut want = [Linear(Vec::new()), Linear(Vec::new())];
    for step in steps {
        assert!(apply(&mut fib, &tables, &mut want, step));
        check(&fib, &tables, &want);
    }
    for (p, v) in &want[0].0 {
        assert_eq!(fib.get(tables[0], *p), Some(*v));
    }
    for table in tables {
        fib.drop_table(table);
    }
    assert_empty(&mut fib, reserved);
}

/// Steps in a memory that may be too small for some of them, and then the routes go.
pub(crate) fn full_memory_changes_nothing<F: Fib>(
    mut fib: F,
    steps: &[Step<F::Prefix>],
    reserved: &[usize],
) {
    let tables = [fib.create_table().unwrap(), fib.create_table().unwrap()];
    let mut want = [Linear(Vec::new()), Linear(Vec::new())];
    for step in steps {
        apply(&mut fib, &tables, &mut want, step);
        check(&fib, &tables, &want);
    }
    for table in tables {
        fib.replace_all(table, &[]).unwrap();
    }
    assert_empty(&mut fib, reserved);
}
