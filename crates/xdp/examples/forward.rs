//! Packets a second through real veths: the kernel, an XDP program with the kernel's FIB look-up,
//! raddle, and a bare redirect, interleaved in one run on one core. Needs root.
//!
//! ```text
//! gen0 (sends) --- in0 | router | out0 --- sink0
//!                               | out1 --- sink1
//! ```
//! All of it is in one namespace of its own but for the ends of the wires, which have no addresses.
//! Generator, router and sink share the CPU that the thread is pinned to, so every row has the cost
//! of both ends in it, and ratios are lower than a router alone would show.
//!
//! `cargo run --release -p raddle-xdp --example forward [ROUNDS]`
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark that fails has nothing to say"
)]

use std::net::IpAddr;

use raddle_image::{Capacity, Group, Memory};
use raddle_xdp::bench::{Attachment, Bench, Program, Traffic};
use raddle_xdp::{AttachedMode, Engine, LoadOptions, Mode};
use raddle_xdp_testing::image::{adjacency, config, link, threshold};
use raddle_xdp_testing::net::{in_namespace, index_of, run, veth};
use raddle_xdp_testing::tables::{Tables4, write6};

const PACKETS: u32 = 1_000_000;
const SEED: u32 = 12345;
const GENERATOR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const IN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OUT_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 1, 1]];
const SINK_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 2, 0], [2, 0, 0, 0, 2, 1]];

/// What forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    Kernel,
    FibLookup,
    Raddle,
    Redirect,
}

const ROWS: [Row; 4] = [Row::Kernel, Row::FibLookup, Row::Raddle, Row::Redirect];

fn main() {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    in_namespace("forward", move || measure(rounds.unwrap_or(5)));
}

fn set_mac(name: &str, mac: [u8; 6]) {
    let text = mac.map(|byte| format!("{byte:02x}")).join(":");
    run("ip", &["link", "set", name, "address", &text]);
}

/// The kernel's side: addresses, neighbours, routes of one and of two ways.
fn set_up_kernel() {
    for (name, mac) in [("gen0", GENERATOR_MAC), ("in0", IN_MAC)] {
        set_mac(name, mac);
    }
    for (n, (out, sink)) in OUT_MACS.into_iter().zip(SINK_MACS).enumerate() {
        set_mac(&format!("out{n}"), out);
        set_mac(&format!("sink{n}"), sink);
    }
    for file in [
        "net/ipv4/ip_forward=1",
        "net/ipv6/conf/all/forwarding=1",
        "net/ipv4/fib_multipath_hash_policy=1",
        "net/ipv6/fib_multipath_hash_policy=1",
        "net/ipv4/fib_multipath_hash_seed=12345",
        "net/ipv4/conf/all/rp_filter=0",
        "net/ipv4/conf/in0/rp_filter=0",
    ] {
        let (file, value) = file.split_once('=').unwrap();
        std::fs::write(format!("/proc/thread-self/root/proc/sys/{file}"), value).unwrap();
    }
    let ip = |line: &str| run("ip", &line.split(' ').collect::<Vec<_>>());
    ip("addr add 10.0.0.1/24 dev in0");
    ip("-6 addr add 2001:db8::1/64 dev in0 nodad");
    let mut hops = [String::new(), String::new()];
    for (n, sink) in SINK_MACS.iter().enumerate() {
        ip(&format!("addr add 10.1.{n}.1/24 dev out{n}"));
        ip(&format!(
            "-6 addr add 2001:db8:1:{n}::1/64 dev out{n} nodad"
        ));
        let mac = sink.map(|byte| format!("{byte:02x}")).join(":");
        for address in [format!("10.1.{n}.2"), format!("2001:db8:1:{n}::2")] {
            ip(&format!(
                "neigh replace {address} lladdr {mac} dev out{n} nud permanent"
            ));
        }
        hops[0] += &format!(" nexthop via 10.1.{n}.2 dev out{n}");
        hops[1] += &format!(" nexthop via 2001:db8:1:{n}::2 dev out{n}");
    }
    ip("route add 198.51.1.0/24 via 10.1.0.2");
    ip(&format!("route add 198.51.2.0/24{}", hops[0]));
    ip("-6 route add 2001:db8:f1::/48 via 2001:db8:1:0::2");
    ip(&format!("-6 route add 2001:db8:f2::/48{}", hops[1]));
}

/// The same in the image.
fn fill(memory: &std::sync::Arc<Memory>) {
    memory.store_link(index_of("in0"), &link(index_of("in0"), IN_MAC, 1));
    memory.store_group(0, Group::Kernel(raddle_image::Reason::NoRoute));
    for (n, (sink, source)) in (0..).zip(SINK_MACS.into_iter().zip(OUT_MACS)) {
        let out = index_of(&format!("out{n}"));
        memory.store_adjacency(n, &adjacency(out, sink, source, 1500));
    }
    memory.store_group(1, Group::Single(0));
    threshold(memory, 2, 0, &[(0, 1), (1, 1)]);
    let many: Vec<(u32, u32)> = (0..64).map(|n| (n % 2, 1)).collect();
    threshold(memory, 3, 100, &many);
    let at = |n: u32| 198 << 24 | 51 << 16 | n << 8;
    let routes: Vec<_> = (1..4).map(|n| (at(n), 24, n)).collect();
    Tables4::new(memory).table(0, 19, &routes);
    let at = |n: u32| 0x2001_0db8_u128 << 96 | u128::from(0xf0 + n) << 80;
    let routes: Vec<_> = (1..4).map(|n| (at(n), 48, n)).collect();
    write6(memory, &[&routes]);
    memory.store_config(&config(SEED, 1, 1));
}

fn measure(rounds: usize) {
    pin_to_cpu();
    veth("gen0", "in0", 1500);
    veth("out0", "sink0", 1500);
    veth("out1", "sink1", 1500);
    set_up_kernel();
    let capacity = Capacity {
        nodes4: 1 << 20,
        ..Capacity::default()
    };
    let mut engine = Engine::load(&LoadOptions { capacity }).unwrap();
    let bench = Bench::load(1).unwrap();
    fill(&engine.memory());
    bench.set_source_port(index_of("gen0")).unwrap();
    bench.set_bare_ports(index_of("out0"), None).unwrap();
    for name in ["out0", "out1"] {
        engine.set_out_link(index_of(name)).unwrap();
        bench.set_port(index_of(name)).unwrap();
    }
    let _sinks: Vec<Attachment> = ["sink0", "sink1"]
        .iter()
        .map(|name| {
            bench
                .attach(Program::Sink, index_of(name), AttachedMode::Native)
                .unwrap()
        })
        .collect();
    println!("Mpps at the sinks (median of {rounds}), ratio to the kernel, to fib_lookup, to bare");
    for (family, n, name) in [
        (4, 1, "one route"),
        (4, 2, "2-way L4"),
        (4, 3, "64-way L4"),
        (6, 1, "one route"),
        (6, 2, "2-way L4"),
        (6, 3, "64-way L4"),
    ] {
        let (source, to): (IpAddr, IpAddr) = if family == 4 {
            ([10, 0, 0, 2].into(), [198, 51, n as u8, 9].into())
        } else {
            let to = format!("2001:db8:f{n}::9");
            ("2001:db8::2".parse().unwrap(), to.parse().unwrap())
        };
        bench.set_traffic(&Traffic {
            dst_mac: IN_MAC,
            src_mac: GENERATOR_MAC,
            source,
            destinations: vec![to],
            ports: (1, 2),
            vary_ports: true,
        });
        let mut rates = [const { Vec::new() }; 4];
        for _ in 0..rounds {
            for (row, rates) in ROWS.into_iter().zip(&mut rates) {
                // The kernel's 64-way route would need 64 links to tell anything.
                if n == 3 && matches!(row, Row::Kernel | Row::FibLookup) {
                    continue;
                }
                rates.push(rate(&mut engine, &bench, row));
            }
        }
        let [kernel, fib, raddle, bare] = rates.map(|mut rates| {
            rates.sort_unstable_by(f64::total_cmp);
            rates.get(rates.len() / 2).copied().unwrap_or(f64::NAN)
        });
        println!(
            "IPv{family} {name:10} kernel {kernel:5.3}  fib_lookup {fib:5.3}  raddle {raddle:5.3}  bare {bare:5.3}   raddle/kernel {:4.2}  raddle/fib_lookup {:4.2}  raddle/bare {:4.2}",
            raddle / kernel,
            raddle / fib,
            raddle / bare,
        );
    }
}

/// Million packets a second that reach the sinks when this row forwards.
fn rate(engine: &mut Engine, bench: &Bench, row: Row) -> f64 {
    let (input, sinks) = (index_of("in0"), ["sink0", "sink1"].map(index_of));
    let attached = match row {
        // Without a program, a veth takes redirected frames only with GRO on.
        Row::Kernel => {
            run("ethtool", &["-K", "in0", "gro", "on"]);
            None
        }
        Row::FibLookup => Some(Program::FibLookup),
        Row::Raddle => {
            engine.attach(input, Mode::Native).unwrap();
            None
        }
        Row::Redirect => Some(Program::Redirect),
    };
    let held = attached.map(|program| bench.attach(program, input, AttachedMode::Native).unwrap());
    let sunk = || sinks.iter().map(|&index| bench.sunk(index)).sum::<u64>();
    bench.send(index_of("gen0"), PACKETS / 20).unwrap();
    let before = sunk();
    let took = bench.send(index_of("gen0"), PACKETS).unwrap();
    let arrived = sunk() - before;
    drop(held);
    match row {
        Row::Kernel => run("ethtool", &["-K", "in0", "gro", "off"]),
        Row::Raddle => engine.detach(input).unwrap(),
        _ => (),
    }
    arrived as f64 / took.as_secs_f64() / 1e6
}

/// Keeps this thread, and with it the generator, on the last CPU.
fn pin_to_cpu() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut set = nix::sched::CpuSet::new();
    set.set(cpus - 1).unwrap();
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).unwrap();
}
