//! IPv6 tables of the writer, read by the program: every answer against a look at all routes, while
//! routes come and go.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::sync::Arc;

use raddle_fib::{Fib6, Prefix6};
use raddle_image::{Capacity, Group, Memory, Reason};
use raddle_xdp::{Engine, LoadOptions, Verdict};
use raddle_xdp_testing::frames::{IN_MAC, udp6};
use raddle_xdp_testing::image::{adjacency, config, link, roomy};
use raddle_xdp_testing::net::{in_namespace, index_of, veth};
use raddle_xdp_testing::tables::{Route6, longest6};

/// Values that routes lead to, from 1 on.
const VALUES: u32 = 30;

/// xorshift.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(below)) >> 32) as u32
    }

    /// Prefixes of few different keys, so that they nest, and share all or some of their way.
    fn prefix(&mut self) -> Prefix6 {
        let keys = [0u16, 1, 0x1f, 0x7fff, 0x8000, 0xffff];
        let mut addr = 0x2001;
        for _ in 1..8 {
            let few = if self.roll(3) == 0 { 6 } else { 1 };
            addr = addr << 16 | u128::from(keys[self.roll(few) as usize]);
        }
        let len = match self.roll(4) {
            0 => 128,
            1 => 16 * (1 + self.roll(8)),
            _ => 3 + self.roll(126),
        };
        Prefix6::new(addr, len as u8).unwrap()
    }
}

/// Of one /32, a host mostly.
fn among_hosts(dice: &mut Dice) -> Prefix6 {
    let addr = 0x2001_0001 << 96 | u128::from(dice.roll(3)) << 80;
    let addr = addr | u128::from(dice.roll(300)) << 64 | u128::from(dice.roll(2)) << 32;
    let len = match dice.roll(100) {
        0 => 20 + dice.roll(107) as u8,
        _ => 128,
    };
    Prefix6::new(addr, len).unwrap()
}

fn check(engine: &Engine, ingress: u32, routes: &[Route6], addr: u128) {
    let frame = udp6([0x20; 16], addr.to_be_bytes(), (1, 2), 20);
    let verdict = engine.test_run(&frame, ingress).unwrap().verdict;
    let got = match verdict {
        Verdict::Forward { adjacency, .. } => adjacency,
        Verdict::Kernel(Reason::NoRoute) => 0,
        other => panic!("{other:?} for {addr:x}"),
    };
    assert_eq!(got, longest6(routes, addr), "{addr:x} in {routes:x?}");
}

fn load(capacity: Capacity) -> (Engine, Arc<Memory>, u32) {
    veth("in0", "src0", 1500);
    veth("out0", "dst0", 1500);
    let engine = Engine::load(&LoadOptions { capacity }).unwrap();
    let memory = engine.memory();
    let (ingress, out) = (index_of("in0"), index_of("out0"));
    engine.set_out_link(out).unwrap();
    memory.store_link(ingress, &link(ingress, IN_MAC, 5));
    memory.store_group(0, Group::Kernel(Reason::NoRoute));
    for value in 1..=VALUES {
        memory.store_adjacency(value, &adjacency(out, [2; 6], [4; 6], 1500));
        memory.store_group(value, Group::Single(value));
    }
    memory.store_config(&config(7, 0, 0));
    (engine, memory, ingress)
}

#[test]
fn the_program_answers_like_a_linear_scan() {
    in_namespace("lookups6", || {
        let (engine, memory, ingress) = load(roomy());
        let mut dice = Dice(0x5eed_0006);
        for round in 0..60 {
            let mut fib = Fib6::new(Arc::clone(&memory), Box::new(|| {}));
            // The root is an array in one round, what the routes make of it in the next.
            let table = match round % 2 {
                0 => fib.create_wide_table(),
                _ => fib.create_table(),
            };
            let table = table.unwrap();
            let mut routes: Vec<Route6> = Vec::new();
            let most = 1 + dice.roll(12) as usize;
            for _ in 0..24 {
                if routes.len() < most {
                    let (prefix, value) = (dice.prefix(), 1 + dice.roll(VALUES));
                    fib.insert(table, prefix, value).unwrap();
                    routes.retain(|r| (r.0, r.1) != (prefix.addr(), prefix.len()));
                    routes.push((prefix.addr(), prefix.len(), value));
                } else {
                    let (addr, len, _) = routes.swap_remove(dice.roll(most as u32) as usize);
                    fib.remove(table, Prefix6::new(addr, len).unwrap()).unwrap();
                }
                for &(addr, len, _) in &routes {
                    let last = Prefix6::new(addr, len).unwrap().last();
                    for addr in [addr, last, addr.wrapping_sub(1), last.wrapping_add(1)] {
                        // Others are not for tables.
                        if addr >> 125 == 1 {
                            check(&engine, ingress, &routes, addr);
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn the_program_finds_hosts_among_many() {
    in_namespace("hosts6", || {
        let (engine, memory, ingress) = load(roomy());
        let mut dice = Dice(0x5eed_0007);
        let mut fib = Fib6::new(Arc::clone(&memory), Box::new(|| {}));
        let table = fib.create_table().unwrap();
        let mut routes: Vec<Route6> = Vec::new();
        // Up to many, and down again until few are left.
        for step in 0..1200 {
            if step < 700 || dice.roll(3) == 0 {
                let (prefix, value) = (among_hosts(&mut dice), 1 + dice.roll(VALUES));
                fib.insert(table, prefix, value).unwrap();
                routes.retain(|r| (r.0, r.1) != (prefix.addr(), prefix.len()));
                routes.push((prefix.addr(), prefix.len(), value));
            } else if !routes.is_empty() {
                let at = dice.roll(routes.len() as u32) as usize;
                let (addr, len, _) = routes.swap_remove(at);
                fib.remove(table, Prefix6::new(addr, len).unwrap()).unwrap();
                check(&engine, ingress, &routes, addr);
            }
            for _ in 0..10 {
                let Some(&(addr, ..)) = routes.get(dice.roll(routes.len() as u32) as usize) else {
                    break;
                };
                for addr in [
                    addr,
                    addr ^ 1,
                    addr ^ 1 << 32,
                    among_hosts(&mut dice).addr(),
                ] {
                    check(&engine, ingress, &routes, addr);
                }
            }
        }
    });
}
