//! How fast the tables are: lookups, building, updates, bytes.
//!
//! `cargo run --release -p raddle-fib --example fib_speed`. Uses the real tables where
//! `RADDLE_DATA` (or `shared/data` beside the workspace) has them, and invented ones otherwise.

#[path = "../tests/fib/tables/invented.rs"]
mod invented;
#[path = "../tests/fib/tables/mod.rs"]
mod tables;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use invented::{invented4, invented6};
use raddle_fib::{Fib4, Fib6, FibError, Heap4, Heap6, Prefix4, Prefix6, TableId, Usage};
use raddle_fib::{lookup4, lookup4_batch, lookup6, lookup6_batch};
use tables::{Dice, real4, real6, spread};

/// Addresses in a stream.
const STREAM: usize = 1 << 20;
/// Addresses in one batch.
const BATCH: usize = 256;
/// Rounds, of which the median counts.
const ROUNDS: usize = 7;

fn main() -> Result<(), FibError> {
    let mut dice = Dice(0x5eed);
    let prefixes = real4().unwrap_or_else(|why| {
        println!("IPv4: invented table ({why})");
        invented4(&mut dice, 900_000)
    });
    four(&prefixes, &mut dice)?;
    let prefixes = real6().unwrap_or_else(|why| {
        println!("IPv6: invented table ({why})");
        invented6(&mut dice, 160_000)
    });
    six(&prefixes, &mut dice)
}

fn four(prefixes: &[Prefix4], dice: &mut Dice) -> Result<(), FibError> {
    let mut fib = Fib4::new(Arc::new(Heap4::new(1, 3 << 19, 4 << 20)), Box::new(|| {}));
    let table = fib.create_table()?;
    let routes: Vec<_> = prefixes
        .iter()
        .map(|p| {
            (
                *p,
                spread(u64::from(p.addr()) << 6 | u64::from(p.len()), 64),
            )
        })
        .collect();
    built("IPv4", routes.len(), || {
        fib.replace_all(table, routes.iter().copied())
    })?;
    report(&fib.usage(), [8, 2]);
    println!("  writer's copy {:.1} MB", fib.control_bytes() as f64 / 1e6);

    let uni: Vec<u32> = (0..STREAM).map(|_| dice.bits() as u32).collect();
    let inside =
        |p: Prefix4, dice: &mut Dice| p.addr() | dice.bits() as u32 & (p.last() - p.addr());
    let inp = stream(prefixes, dice, flat, inside);
    let zip = stream(prefixes, dice, zipf, inside);
    for (name, addrs) in [("uni", uni), ("inp", inp), ("zipf", zip)] {
        let memory = fib.memory();
        lookups(
            name,
            &addrs,
            |addr| lookup4(memory, 0, addr),
            |addrs, values| lookup4_batch(memory, 0, addrs, values),
        );
    }
    updates(&routes, dice, |p, v| match v {
        0 => fib.remove(table, p).map(drop),
        v => fib.insert(table, p, v).map(drop),
    })?;
    for v in 1..4 {
        timed("default route changed", || {
            fib.insert(table, Prefix4::ALL, v).map(drop)
        })?;
    }
    Ok(())
}

fn six(prefixes: &[Prefix6], dice: &mut Dice) -> Result<(), FibError> {
    let mut fib = Fib6::new(Arc::new(Heap6::new(1, 3 << 20)), Box::new(|| {}));
    let table: TableId = fib.create_table()?;
    let routes: Vec<_> = prefixes
        .iter()
        .map(|p| (*p, spread((p.addr() >> 64) as u64 ^ u64::from(p.len()), 64)))
        .collect();
    built("IPv6", routes.len(), || {
        fib.replace_all(table, routes.iter().copied())
    })?;
    report(&fib.usage(), [8]);

    let bits = |dice: &mut Dice| u128::from(dice.bits()) << 64 | u128::from(dice.bits());
    let uni: Vec<u128> = (0..STREAM).map(|_| 1 << 125 | bits(dice) >> 3).collect();
    let inside = |p: Prefix6, dice: &mut Dice| p.addr() | bits(dice) & (p.last() - p.addr());
    let inp = stream(prefixes, dice, flat, inside);
    let zip = stream(prefixes, dice, zipf, inside);
    for (name, addrs) in [("uni", uni), ("inp", inp), ("zipf", zip)] {
        let memory = fib.memory();
        lookups(
            name,
            &addrs,
            |addr| lookup6(memory, 0, addr),
            |addrs, values| lookup6_batch(memory, 0, addrs, values),
        );
    }
    updates(&routes, dice, |p, v| match v {
        0 => fib.remove(table, p).map(drop),
        v => fib.insert(table, p, v).map(drop),
    })?;
    for v in 1..4 {
        timed("default route changed", || {
            fib.insert(table, Prefix6::ALL, v).map(drop)
        })?;
    }
    Ok(())
}

/// Any of `n`, all alike.
fn flat(n: usize, dice: &mut Dice) -> usize {
    dice.roll(n as u32) as usize
}

/// Any of `n` by rank with exponent 1: rank r with probability 1 / r, nearly.
fn zipf(n: usize, dice: &mut Dice) -> usize {
    let uniform = (dice.bits() >> 11) as f64 / (1u64 << 53) as f64;
    let rank = (n as f64).powf(uniform) as usize;
    // Ranks are spread over the table, or popular prefixes would be neighbours.
    (rank * 0x9e37_79b1) % n
}

fn stream<P: Copy, A>(
    prefixes: &[P],
    dice: &mut Dice,
    pick: impl Fn(usize, &mut Dice) -> usize,
    inside: impl Fn(P, &mut Dice) -> A,
) -> Vec<A> {
    (0..STREAM)
        .map(|_| inside(prefixes[pick(prefixes.len(), dice)], dice))
        .collect()
}

fn built(
    name: &str,
    routes: usize,
    mut build: impl FnMut() -> Result<(), FibError>,
) -> Result<(), FibError> {
    let mut times = Vec::new();
    for _ in 0..3 {
        let start = Instant::now();
        build()?;
        times.push(start.elapsed());
    }
    println!(
        "{name}: {routes} routes, built in {:.0?} (first {:.0?})",
        median(&mut times),
        times[0]
    );
    Ok(())
}

fn report<const N: usize>(usage: &[Usage; N], sizes: [usize; N]) {
    let mut total = 0;
    for (part, size) in usage.iter().zip(sizes) {
        total += part.used * size;
        println!(
            "  {} {} of {}, {} in limbo",
            part.used, part.what, part.capacity, part.limbo
        );
    }
    println!("  image {:.2} MB", total as f64 / 1e6);
}

fn lookups<A: Copy>(
    name: &str,
    addrs: &[A],
    one: impl Fn(A) -> u32,
    many: impl Fn(&[A], &mut [u32]),
) {
    let mut single = Vec::new();
    let mut batch = Vec::new();
    let mut values = [0; BATCH];
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let sum = addrs
            .iter()
            .fold(0u32, |sum, addr| sum.wrapping_add(one(*addr)));
        single.push(start.elapsed());
        black_box(sum);
        let start = Instant::now();
        for addrs in addrs.chunks(BATCH) {
            many(addrs, &mut values);
            black_box(&values);
        }
        batch.push(start.elapsed());
    }
    let rate = |times: &mut Vec<Duration>| addrs.len() as f64 / median(times).as_secs_f64() / 1e6;
    println!(
        "  {name:4} {:6.0} M/s batch, {:6.0} M/s single",
        rate(&mut batch),
        rate(&mut single)
    );
}

/// Routes of the table change their value, go, and come back.
fn updates<P: Copy>(
    routes: &[(P, u32)],
    dice: &mut Dice,
    mut set: impl FnMut(P, u32) -> Result<(), FibError>,
) -> Result<(), FibError> {
    let picked: Vec<usize> = (0..100_000)
        .map(|_| dice.roll(routes.len() as u32) as usize)
        .collect();
    for (name, value) in [("replace", 65), ("remove", 0), ("insert", 66)] {
        let start = Instant::now();
        for &i in &picked {
            set(routes[i].0, value)?;
        }
        let rate = picked.len() as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!("  {name:7} {rate:5.2} M updates/s");
    }
    for &i in &picked {
        set(routes[i].0, routes[i].1)?;
    }
    Ok(())
}

fn timed(what: &str, run: impl FnOnce() -> Result<(), FibError>) -> Result<(), FibError> {
    let start = Instant::now();
    run()?;
    println!("  {what} in {:.1?}", start.elapsed());
    Ok(())
}

fn median(times: &mut [Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted[sorted.len() / 2]
}
