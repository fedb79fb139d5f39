//! Hash tables of host routes in the IPv6 tables: hosts that crowd, memory that is full, and what costs much.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use raddle_fib::{Fib6, FibError, Heap6, Prefix6, TableId, lookup6};

fn fib(words: usize) -> Fib6<Heap6> {
    Fib6::new(Arc::new(Heap6::new(8, words)), Box::new(|| {}))
}

/// Host `i` of network `net`, a /48 below one /32; two each share all but the last bits.
fn of_network(net: u128, i: u128) -> u128 {
    0x5f00_0001 << 96 | net << 80 | (i / 2) << 64 | (i % 2)
}

/// Inserts hosts with values from 1 on.
fn insert_hosts(fib: &mut Fib6<Heap6>, table: TableId, hosts: &[u128]) {
    for (i, addr) in hosts.iter().enumerate() {
        let host = Prefix6::new(*addr, 128).unwrap();
        fib.insert(table, host, 1 + i as u32).unwrap();
    }
}

#[test]
fn hosts_go_where_more_above_could_be_a_hash_table() {
    let mut fib = fib(1 << 16);
    let table = fib.create_table().unwrap();
    let beside = Prefix6::new(0x5f00_0001_0009 << 80, 48).unwrap();
    fib.insert(table, beside, 9).unwrap();
    let hosts: Vec<u128> = (0..200).map(|i| of_network(1, i)).collect();
    insert_hosts(&mut fib, table, &hosts);
    // With it goes the only route of the /32 that is no host. A removal makes no new hash table of it.
    fib.remove(table, beside).unwrap();
    for (i, addr) in hosts.iter().enumerate() {
        let host = Prefix6::new(*addr, 128).unwrap();
        assert_eq!(fib.remove(table, host).unwrap(), Some(1 + i as u32));
        assert_eq!(lookup6(fib.memory(), table.index(), *addr), 0, "host {i}");
    }
}

#[test]
fn hosts_that_crowd_are_found() {
    let mut fib = fib(1 << 20);
    let table = fib.create_table().unwrap();
    // All in one line, by the hash table's own function: more than a way goes through.
    let crowd = crowd(300);
    for (i, addr) in crowd.iter().enumerate() {
        fib.insert(table, Prefix6::new(*addr, 128).unwrap(), 1 + i as u32)
            .unwrap();
    }
    for (i, addr) in crowd.iter().enumerate() {
        let got = lookup6(fib.memory(), table.index(), *addr);
        assert_eq!(got, 1 + i as u32);
        assert_eq!(lookup6(fib.memory(), table.index(), addr + 1), 0);
    }
}

/// So many hosts that begin in one line of any hash table.
fn crowd(n: usize) -> Vec<u128> {
    let hosts: Vec<u128> = (0..1u128 << 24)
        .map(|i| 0x5f00_0001 << 96 | i << 40)
        .filter(|addr| crowded(addr << 32))
        .take(n)
        .collect();
    assert_eq!(hosts.len(), n);
    hosts
}

#[test]
fn hosts_go_where_a_crowd_found_no_room() {
    let crowd = crowd(70);
    let (first, more) = crowd.split_at(60);
    let networks = (0..300).map(|i| of_network(1 + i % 50, 2 * i));
    let hosts: Vec<u128> = networks.chain(first.iter().copied()).collect();
    // Room for the hash table, and little more.
    let mut fib = fib(5000);
    let table = fib.create_table().unwrap();
    let all = hosts.iter().zip(1..);
    let all = all.map(|(addr, value)| (Prefix6::new(*addr, 128).unwrap(), value));
    fib.replace_all(table, all).unwrap();
    let host = |addr: &u128| Prefix6::new(*addr, 128).unwrap();
    let full = more.iter().any(|addr| {
        let done = fib.insert(table, host(addr), 7);
        matches!(done, Err(FibError::Full { .. }))
    });
    assert!(full);
    for addr in &hosts {
        assert!(fib.remove(table, host(addr)).unwrap().is_some());
        assert_eq!(lookup6(fib.memory(), table.index(), *addr), 0);
    }
}

/// A writer that counts how often it waits for readers: that tells how much it builds anew.
fn counted(words: usize) -> (Fib6<Heap6>, Arc<AtomicUsize>) {
    let waits = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&waits);
    let grace = move || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let memory = Arc::new(Heap6::new(8, words));
    (Fib6::new(memory, Box::new(grace)), waits)
}

/// Fills a table with many hosts of networks, and these.
fn many_and(fib: &mut Fib6<Heap6>, more: &[u128]) -> TableId {
    let table = fib.create_table().unwrap();
    let networks = (0..2000).map(|i| of_network(1 + i % 50, 2 * i));
    let hosts = networks.chain(more.iter().copied()).zip(1..);
    let hosts = hosts.map(|(addr, value)| (Prefix6::new(addr, 128).unwrap(), value));
    fib.replace_all(table, hosts).unwrap();
    table
}

#[test]
fn hosts_that_crowd_do_not_have_all_built_anew_each_time() {
    let (mut fib, waits) = counted(1 << 17);
    let crowd = crowd(400);
    let table = many_and(&mut fib, &crowd[..40]);
    let host = |addr: &u128| Prefix6::new(*addr, 128).unwrap();
    let mut others = crowd[70..].iter();
    for addr in &crowd[40..70] {
        fib.insert(table, host(addr), 7).unwrap();
        for other in others.by_ref().take(10) {
            fib.insert(table, host(other), 8).unwrap();
            fib.remove(table, host(other)).unwrap();
        }
    }
    for addr in &crowd[..70] {
        assert_ne!(lookup6(fib.memory(), table.index(), *addr), 0);
    }
    let waits = waits.load(Ordering::Relaxed);
    assert!(waits < 10, "{waits}");
}

#[test]
fn a_route_that_comes_and_goes_among_hosts_does_not_have_all_built_anew_each_time() {
    let (mut fib, waits) = counted(1 << 17);
    let table = many_and(&mut fib, &[]);
    let flaps = Prefix6::new(0x5f00_0001_0009 << 80, 48).unwrap();
    for i in 0..100 {
        fib.insert(table, flaps, 7).unwrap();
        fib.remove(table, flaps).unwrap();
        let host = Prefix6::new(of_network(1, 0), 128).unwrap();
        fib.insert(table, host, 1 + i).unwrap();
        assert_eq!(lookup6(fib.memory(), table.index(), host.addr()), 1 + i);
    }
    let waits = waits.load(Ordering::Relaxed);
    assert!(waits < 10, "{waits}");
}

/// Whether the hash of what is left of an address is among the lowest: in the first line, of any number
/// of lines.
fn crowded(rest: u128) -> bool {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let (high, low) = ((rest >> 64) as u64, (rest >> 32) as u32);
    let mut hash = (high ^ u64::from(low) << 29).wrapping_mul(FACTOR);
    hash = (hash ^ hash >> 32).wrapping_mul(FACTOR);
    hash >> 32 < 1 << 18
}
