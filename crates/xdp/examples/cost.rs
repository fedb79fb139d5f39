//! What a packet costs in the program, without drivers: nanoseconds from repeated test runs, less
//! those of writing the packet. Needs root. Interleaved rounds, the best of each.
//!
//! `cargo run --release -p raddle-xdp --example cost`
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark that fails has nothing to say"
)]

use std::net::IpAddr;

use raddle_image::{Capacity, Group};
use raddle_xdp::bench::{Bench, Program, Traffic};
use raddle_xdp::{Engine, LoadOptions};
use raddle_xdp_testing::frames::{FROM_MAC, IN_MAC};
use raddle_xdp_testing::image::{adjacency, config, link, threshold};
use raddle_xdp_testing::net::{in_namespace, index_of, veth};
use raddle_xdp_testing::tables::{Tables4, write6};

const REPEAT: u32 = 300_000;
const ROUNDS: usize = 25;

fn main() {
    in_namespace("cost", measure);
}

fn measure() {
    veth("in0", "src0", 1500);
    veth("out0", "dst0", 1500);
    let capacity = Capacity {
        nodes4: 1 << 20,
        ..Capacity::default()
    };
    let engine = Engine::load(&LoadOptions { capacity }).unwrap();
    let bench = Bench::load(4096).unwrap();
    let memory = engine.memory();
    let (ingress, out) = (index_of("in0"), index_of("out0"));
    engine.set_out_link(out).unwrap();
    bench.set_bare_ports(out, None).unwrap();
    memory.store_link(ingress, &link(ingress, IN_MAC, 1));
    memory.store_group(0, Group::Kernel(raddle_image::Reason::NoRoute));
    memory.store_group(1, Group::Single(0));
    for number in 0..64 {
        memory.store_adjacency(number, &adjacency(out, IN_MAC, FROM_MAC, 1500));
    }
    threshold(&memory, 2, 0, &[(0, 1), (1, 1)]);
    let many: Vec<(u32, u32)> = (0..64).map(|n| (n, 1)).collect();
    threshold(&memory, 3, 100, &many);
    let uneven: Vec<(u32, u32)> = (0..64).map(|n| (n, n * n + 1)).collect();
    threshold(&memory, 4, 200, &uneven);
    let at = |c: u8| u32::from_be_bytes([198, 51, c, 0]);
    let routes: Vec<_> = (1..5).map(|n| (at(n as u8), 24, n)).collect();
    Tables4::new(&memory).table(0, 19, &routes);
    let at = |n: u32| 0x2001_0db8_u128 << 96 | u128::from(n) << 80;
    let routes: Vec<_> = (1..5).map(|n| (at(n), 48, n)).collect();
    write6(&memory, &[&routes]);

    let columns = [
        (1, "one route"),
        (2, "2-way"),
        (3, "64-way"),
        (4, "64-way uneven"),
    ];
    println!("ns a packet over the empty program, best of {ROUNDS} rounds");
    for (policy, family) in [(1, 4), (0, 4), (1, 6), (0, 6)] {
        for (n, name) in columns {
            let (source, to) = if family == 4 {
                (
                    IpAddr::from([10, 0, 0, 1]),
                    IpAddr::from([198, 51, n as u8, 9]),
                )
            } else {
                let to = at(n).to_be_bytes();
                ("2001:db8:ff::1".parse().unwrap(), IpAddr::from(to))
            };
            let mut rows = [const { Vec::new() }; 4];
            bench.set_traffic(&Traffic {
                dst_mac: IN_MAC,
                src_mac: FROM_MAC,
                source,
                destinations: vec![to],
                ports: (1, 2),
                vary_ports: true,
            });
            for _ in 0..ROUNDS {
                let mut deadline = config(7, policy, policy);
                memory.store_config(&deadline);
                rows[0].push(bench.time(None, ingress, REPEAT).unwrap());
                rows[1].push(bench.time_own(Program::Redirect, ingress, REPEAT).unwrap());
                rows[2].push(bench.time(Some(&engine), ingress, REPEAT).unwrap());
                deadline.deadline = u64::MAX;
                memory.store_config(&deadline);
                rows[3].push(bench.time(Some(&engine), ingress, REPEAT).unwrap());
            }
            let [empty, bare, raddle, guarded] = rows.map(|mut row| {
                row.sort_unstable();
                i64::from(row[0])
            });
            println!(
                "IPv{family} policy {policy} {name:14} redirect {:3}, raddle {:3}, with a deadline {:3}  (empty {empty})",
                bare - empty,
                raddle - empty,
                guarded - empty,
            );
        }
    }
    let counters = engine.counters();
    for reason in raddle_image::Reason::ALL {
        let counter = counters.reason(reason);
        if counter.packets != 0 {
            println!("{reason}: {}", counter.packets);
        }
    }
}
