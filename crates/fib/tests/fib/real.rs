//! The real Internet tables, where they are at hand.

use std::sync::Arc;

use crate::both::{Fib, check_trie};
use crate::tables::{Dice, real4, real6, spread};
use prefix_trie::PrefixMap;
use raddle_fib::{Fib4, Fib6, Heap4, Heap6, Prefix4, Prefix6, Value};

/// Builds the table at once and looks up the edges of its prefixes; then routes flap so many times,
/// and the default route comes and changes.
fn answers_like_prefix_trie<F: Fib>(
    fib: &mut F,
    prefixes: &[F::Prefix],
    value: impl Fn(F::Prefix) -> Value,
    flaps: usize,
) {
    let table = fib.create_table().unwrap();
    let routes: Vec<_> = prefixes.iter().map(|p| (*p, value(*p))).collect();
    fib.replace_all(table, &routes).unwrap();
    let mut want: PrefixMap<F::Key, Value> = PrefixMap::new();
    for (p, v) in routes {
        want.insert(F::key(p), v);
    }
    let check = |fib: &F, want: &PrefixMap<F::Key, Value>, step| {
        let edges = prefixes.iter().step_by(step).copied().flat_map(F::edges);
        check_trie(fib, want, &edges.collect::<Vec<_>>());
    };
    check(fib, &want, 1);

    let mut dice = Dice(8);
    for _ in 0..flaps {
        let p = prefixes[dice.roll(prefixes.len() as u32) as usize];
        let v = 1 + dice.roll(64);
        if dice.roll(2) == 0 {
            assert_eq!(fib.remove(table, p).unwrap(), want.remove(&F::key(p)));
        } else {
            assert_eq!(fib.insert(table, p, v).unwrap(), want.insert(F::key(p), v));
        }
    }
    for v in [7, 8] {
        fib.insert(table, F::ALL, v).unwrap();
        want.insert(F::key(F::ALL), v);
        check(fib, &want, 5);
    }
    assert!(fib.routes(table).len() == want.len() && fib.len(table) == want.len());
}

#[test]
fn the_ipv4_table_answers_like_prefix_trie() {
    let prefixes = match real4() {
        Ok(prefixes) => prefixes,
        Err(why) => return eprintln!("skipped: the_ipv4_table_answers_like_prefix_trie: {why}"),
    };
    let value = |p: Prefix4| spread(u64::from(p.addr()) << 6 | u64::from(p.len()), 64);
    let mut fib = Fib4::new(Arc::new(Heap4::new(1, 3 << 19, 4 << 20)), Box::new(|| {}));
    answers_like_prefix_trie(&mut fib, &prefixes, value, 200_000);
    let bytes = fib.control_bytes();
    assert!(bytes <= 40 << 20, "{bytes} bytes");
}

#[test]
fn the_ipv6_table_answers_like_prefix_trie() {
    let prefixes = match real6() {
        Ok(prefixes) => prefixes,
        Err(why) => return eprintln!("skipped: the_ipv6_table_answers_like_prefix_trie: {why}"),
    };
    let value = |p: Prefix6| spread((p.addr() >> 64) as u64 ^ u64::from(p.len()), 64);
    let mut fib = Fib6::new(Arc::new(Heap6::new(1, 3 << 20)), Box::new(|| {}));
    answers_like_prefix_trie(&mut fib, &prefixes, value, 50_000);
}
