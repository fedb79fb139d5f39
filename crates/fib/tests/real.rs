//! The real Internet tables, where they are at hand.

mod tables;

use std::sync::Arc;

use prefix_trie::PrefixMap;
use raddle_fib::{Fib4, Fib6, Heap4, Heap6, Prefix4, Prefix6, lookup4, lookup4_batch};
use raddle_fib::{lookup6, lookup6_batch};
use tables::{Dice, real4, real6, spread};

#[test]
fn the_ipv4_table_answers_like_prefix_trie() {
    let prefixes = match real4() {
        Ok(prefixes) => prefixes,
        Err(why) => return eprintln!("skipped: the_ipv4_table_answers_like_prefix_trie: {why}"),
    };
    let value = |p: &Prefix4| spread(u64::from(p.addr()) << 6 | u64::from(p.len()), 64);
    let mut fib = Fib4::new(Arc::new(Heap4::new(1, 3 << 19, 4 << 20)), Box::new(|| {}));
    let table = fib.create_table().unwrap();
    fib.replace_all(table, prefixes.iter().map(|p| (*p, value(p))))
        .unwrap();
    let mut want: PrefixMap<(u32, u8), u32> = PrefixMap::new();
    for p in &prefixes {
        want.insert((p.addr(), p.len()), value(p));
    }
    let check = |fib: &Fib4<Heap4>, want: &PrefixMap<(u32, u8), u32>, step| {
        let edges = |p: &Prefix4| {
            [
                p.addr(),
                p.last(),
                p.addr().wrapping_sub(1),
                p.last().wrapping_add(1),
            ]
        };
        let addrs: Vec<u32> = prefixes.iter().step_by(step).flat_map(edges).collect();
        let mut values = vec![0; addrs.len()];
        lookup4_batch(fib.memory(), 0, &addrs, &mut values);
        for (addr, value) in addrs.iter().zip(values) {
            let best = want.get_lpm(&(*addr, 32)).map_or(0, |(_, v)| *v);
            assert_eq!(value, best, "{addr:#010x}");
            assert_eq!(lookup4(fib.memory(), 0, *addr), best, "{addr:#010x}");
        }
    };
    check(&fib, &want, 1);
    assert!(
        fib.control_bytes() <= 40 << 20,
        "{} bytes",
        fib.control_bytes()
    );

    // Routes flap, and the default route comes and goes.
    let mut dice = Dice(8);
    for _ in 0..200_000 {
        let p = prefixes[dice.roll(prefixes.len() as u32) as usize];
        let v = 1 + dice.roll(64);
        if dice.roll(2) == 0 {
            assert_eq!(
                fib.remove(table, p).unwrap(),
                want.remove(&(p.addr(), p.len()))
            );
        } else {
            assert_eq!(
                fib.insert(table, p, v).unwrap(),
                want.insert((p.addr(), p.len()), v)
            );
        }
    }
    for v in [7, 8] {
        fib.insert(table, Prefix4::ALL, v).unwrap();
        want.insert((0, 0), v);
        check(&fib, &want, 5);
    }
    assert!(fib.iter(table).count() == want.len() && fib.len(table) == want.len());
}

#[test]
fn the_ipv6_table_answers_like_prefix_trie() {
    let prefixes = match real6() {
        Ok(prefixes) => prefixes,
        Err(why) => return eprintln!("skipped: the_ipv6_table_answers_like_prefix_trie: {why}"),
    };
    let value = |p: &Prefix6| spread((p.addr() >> 64) as u64 ^ u64::from(p.len()), 64);
    let mut fib = Fib6::new(Arc::new(Heap6::new(1, 3 << 20)), Box::new(|| {}));
    let table = fib.create_table().unwrap();
    fib.replace_all(table, prefixes.iter().map(|p| (*p, value(p))))
        .unwrap();
    let mut want: PrefixMap<(u128, u8), u32> = PrefixMap::new();
    for p in &prefixes {
        want.insert((p.addr(), p.len()), value(p));
    }
    let check = |fib: &Fib6<Heap6>, want: &PrefixMap<(u128, u8), u32>, step| {
        let edges = |p: &Prefix6| {
            [
                p.addr(),
                p.last(),
                p.addr().wrapping_sub(1),
                p.last().wrapping_add(1),
            ]
        };
        let addrs: Vec<u128> = prefixes.iter().step_by(step).flat_map(edges).collect();
        let mut values = vec![0; addrs.len()];
        lookup6_batch(fib.memory(), 0, &addrs, &mut values);
        for (addr, value) in addrs.iter().zip(values) {
            let best = want.get_lpm(&(*addr, 128)).map_or(0, |(_, v)| *v);
            assert_eq!(value, best, "{addr:#x}");
            assert_eq!(lookup6(fib.memory(), 0, *addr), best, "{addr:#x}");
        }
    };
    check(&fib, &want, 1);

    let mut dice = Dice(8);
    for _ in 0..50_000 {
        let p = prefixes[dice.roll(prefixes.len() as u32) as usize];
        let v = 1 + dice.roll(64);
        if dice.roll(2) == 0 {
            assert_eq!(
                fib.remove(table, p).unwrap(),
                want.remove(&(p.addr(), p.len()))
            );
        } else {
            assert_eq!(
                fib.insert(table, p, v).unwrap(),
                want.insert((p.addr(), p.len()), v)
            );
        }
    }
    for v in [7, 8] {
        fib.insert(table, Prefix6::ALL, v).unwrap();
        want.insert((0, 0), v);
        check(&fib, &want, 5);
    }
    assert!(fib.iter(table).count() == want.len() && fib.len(table) == want.len());
}
