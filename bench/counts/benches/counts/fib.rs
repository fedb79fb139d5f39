//! Look-ups: 256 addresses inside routes of a table, one at a time and as a batch.

use std::hint::black_box;
use std::sync::Arc;

use gungraun::{library_benchmark, library_benchmark_group};
use raddle_fib::{Fib4, Fib6, Heap4, Heap6, lookup4, lookup4_batch, lookup6, lookup6_batch};

use crate::invented::{invented4, invented6};
use crate::tables::{Dice, spread};

const ADDRESSES: usize = 256;
const SMALL: usize = 100;
const LARGE: usize = 100_000;

/// A table, addresses, and room for the answers.
struct Table<M, A> {
    memory: Arc<M>,
    addresses: Vec<A>,
    values: Vec<u32>,
}

fn table4(routes: usize) -> Table<Heap4, u32> {
    let mut dice = Dice(0x5eed);
    let prefixes = invented4(&mut dice, routes);
    let memory = Arc::new(Heap4::new(1, 3 << 17, 1 << 20));
    let mut fib = Fib4::new(Arc::clone(&memory), Box::new(|| {}));
    let table = fib.create_table().expect("one table fits");
    let value = |key: u32, len: u8| spread(u64::from(key) << 6 | u64::from(len), 64);
    let all = prefixes.iter().map(|p| (*p, value(p.addr(), p.len())));
    fib.replace_all(table, all).expect("the routes fit");
    let addresses: Vec<u32> = (0..ADDRESSES)
        .map(|_| {
            let prefix = prefixes[dice.roll(prefixes.len() as u32) as usize];
            prefix.addr() | dice.bits() as u32 & (prefix.last() - prefix.addr())
        })
        .collect();
    assert!(addresses.iter().all(|a| lookup4(&*memory, 0, *a) != 0));
    Table {
        memory,
        addresses,
        values: vec![0; ADDRESSES],
    }
}

fn table6(routes: usize) -> Table<Heap6, u128> {
    let mut dice = Dice(0x5eed);
    let prefixes = invented6(&mut dice, routes);
    let memory = Arc::new(Heap6::new(1, 1 << 20));
    let mut fib = Fib6::new(Arc::clone(&memory), Box::new(|| {}));
    let table = fib.create_table().expect("one table fits");
    let value = |key: u128, len: u8| spread((key >> 64) as u64 ^ u64::from(len), 64);
    let all = prefixes.iter().map(|p| (*p, value(p.addr(), p.len())));
    fib.replace_all(table, all).expect("the routes fit");
    let addresses: Vec<u128> = (0..ADDRESSES)
        .map(|_| {
            let prefix = prefixes[dice.roll(prefixes.len() as u32) as usize];
            let host = u128::from(dice.bits()) << 64 | u128::from(dice.bits());
            prefix.addr() | host & (prefix.last() - prefix.addr())
        })
        .collect();
    assert!(addresses.iter().all(|a| lookup6(&*memory, 0, *a) != 0));
    Table {
        memory,
        addresses,
        values: vec![0; ADDRESSES],
    }
}

#[library_benchmark(setup = table4)]
#[bench::small(SMALL)]
#[bench::large(LARGE)]
fn ipv4_single(mut table: Table<Heap4, u32>) -> Table<Heap4, u32> {
    for (value, address) in table.values.iter_mut().zip(&table.addresses) {
        *value = lookup4(&*table.memory, 0, black_box(*address));
    }
    table
}

#[library_benchmark(setup = table4)]
#[bench::small(SMALL)]
#[bench::large(LARGE)]
fn ipv4_batch(mut table: Table<Heap4, u32>) -> Table<Heap4, u32> {
    lookup4_batch(&*table.memory, 0, &table.addresses, &mut table.values);
    table
}

#[library_benchmark(setup = table6)]
#[bench::small(SMALL)]
#[bench::large(LARGE)]
fn ipv6_single(mut table: Table<Heap6, u128>) -> Table<Heap6, u128> {
    for (value, address) in table.values.iter_mut().zip(&table.addresses) {
        *value = lookup6(&*table.memory, 0, black_box(*address));
    }
    table
}

#[library_benchmark(setup = table6)]
#[bench::small(SMALL)]
#[bench::large(LARGE)]
fn ipv6_batch(mut table: Table<Heap6, u128>) -> Table<Heap6, u128> {
    lookup6_batch(&*table.memory, 0, &table.addresses, &mut table.values);
    table
}

library_benchmark_group!(
    name = look_up,
    benchmarks = [ipv4_single, ipv4_batch, ipv6_single, ipv6_batch]
);
