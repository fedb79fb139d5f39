//! A machine as distributions and their programs leave it: no hash seed, loose `rp_filter`, Tailscale's rules and chains,
//! Docker's chains. Transit traffic over two paths is forwarded by raddle, and goes as without it.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use raddle_e2e::frame::{self, Flow};
use raddle_e2e::{Crafted, Daemon, Random, Volume, World, links, root, within};

const LIMIT: Duration = Duration::from_secs(60);
const RULESETS: [&str; 2] = [
    include_str!("../../crates/preflight/tests/rulesets/docker.iptables"),
    include_str!("../../crates/preflight/tests/rulesets/tailscale.iptables"),
];

fn restore(world: &World, rules: &str) {
    let mut child = world
        .lab()
        .command("router", "iptables-restore")
        .unwrap()
        .arg("--noflush")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(rules.as_bytes()).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success(), "{rules}");
}

/// The router as a distribution and what runs on it leave it.
fn as_installed(world: &World) {
    // What the test's fabric sets, as it is on a machine that nobody has tuned.
    if std::fs::exists("/proc/sys/net/ipv4/fib_multipath_hash_seed").unwrap() {
        world.sysctl("net.ipv4.fib_multipath_hash_seed", "0");
    }
    world.policy(0);
    let links = (1..=world.links()).map(|n| world.out(n));
    for link in ["all", "default", "source"]
        .map(str::to_owned)
        .into_iter()
        .chain(links)
    {
        world.sysctl(&format!("net.ipv4.conf.{link}.rp_filter"), "2");
    }
    for family in ["", "-6 "] {
        for rule in [
            "fwmark 0x80000/0xff0000 lookup main pref 5210",
            "fwmark 0x80000/0xff0000 lookup default pref 5230",
            "fwmark 0x80000/0xff0000 unreachable pref 5250",
            "lookup 52 pref 5270",
        ] {
            world.ip(&format!("{family}rule add {rule}"));
        }
    }
    world.ip("route add 100.64.0.1 via 10.1.1.2 dev source onlink table 52");
    // As cloud images have them: what has an address of theirs leaves by its link.
    world.ip("rule add from 192.0.2.5 lookup 100 pref 5280");
    world.ip("route add default via 10.1.1.2 dev source onlink table 100");
    // Where the kernel has bridges.
    let bridge = "ip link add docker0 type bridge";
    let bridge: Vec<&str> = bridge.split(' ').collect();
    if world
        .lab()
        .output("router", &bridge)
        .unwrap()
        .status
        .success()
    {
        world.ip("address add 172.17.0.1/16 dev docker0");
        world.ip("link set docker0 up");
    }
    RULESETS.iter().for_each(|rules| restore(world, rules));
}

#[test]
fn nearly_all_transit_is_forwarded_on_a_default_install() {
    if !root("nearly_all_transit_is_forwarded_on_a_default_install") {
        return;
    }
    let world = World::new("default", 2);
    as_installed(&world);
    world.ip("route add default via 10.1.1.2");

    let listed: Vec<Flow> = world
        .flows(400)
        .into_iter()
        .enumerate()
        .map(|(n, flow)| match flow.src.is_ipv4() {
            // Many hosts: with policy 0 each pair of them has one path.
            true => Flow {
                src: [10, 1, 1, 2 + (n % 200) as u8].into(),
                ..flow
            },
            false => flow,
        })
        .collect();
    let mut volume = Volume::of("a default install", 1);
    two_paths(&mut volume, "two paths", &world, &listed, &[]);
    volume.right();
}

/// Frames of these flows leave by two links as without raddle, and nearly all are forwarded by it. Others go as without it.
fn two_paths(volume: &mut Volume, about: &str, world: &World, listed: &[Flow], others: &[Crafted]) {
    let others_by_kernel = world.transmit(others);
    let (flows, frames) = volume.frames(world, listed);
    let kernel = world.transmit(&frames);
    let lost = kernel.iter().filter(|arrivals| arrivals.len() != 1);
    assert_eq!(lost.count(), 0, "{about}: the kernel forwards each frame");
    let used: BTreeSet<&str> = kernel.iter().flat_map(|arrivals| links(arrivals)).collect();
    assert_eq!(used, BTreeSet::from(["sink", "sink-2"]), "{about}");
    let daemon = Daemon::start(world, &[]);
    within(LIMIT, || {
        let before = daemon.forwarded();
        let ours = world.transmit_again(&frames, &kernel);
        let forwarded = daemon.forwarded() - before;
        volume.compare(about, &flows, [&kernel, &ours], forwarded);
        eprintln!("{about}: raddle forwards {forwarded} of {}", frames.len());
        match forwarded as f64 / frames.len() as f64 {
            0.99.. => Ok(()),
            share => Err(format!("{about}: {share}: {}", daemon.counters())),
        }
    });
    world.forget_connections();
    assert_eq!(world.transmit(others), others_by_kernel, "{about}");
    assert_eq!(world.late(), 0);
    daemon.terminate();
}

/// The same with a VRF on the machine: packets from a link in it, and from one beside it. What they would meet in the
/// other's table is another link.
#[test]
fn a_vrf_beside_all_that_costs_nothing() {
    if !root("a_vrf_beside_all_that_costs_nothing") {
        return;
    }
    let mut volume = Volume::of("a VRF on a default install", 2);
    for (about, in_red, tables) in [
        (
            "in the VRF",
            &["source", "sink", "sink-2"][..],
            ["table 10", ""],
        ),
        ("beside the VRF", &["sink-3"], ["", "table 10"]),
    ] {
        let world = World::new("defaultvrf", 3);
        if !world.vrf("red", 10, in_red) {
            eprintln!(
                "skipped: a_vrf_beside_all_that_costs_nothing needs VRFs, which this kernel does not have"
            );
            return;
        }
        as_installed(&world);
        let [ours, other] = tables;
        for route in [
            format!(
                "route add 10.9.7.0/24 {ours} nexthop via 10.2.1.2 dev sink nexthop via 10.2.2.2 dev sink-2"
            ),
            format!("route add 10.9.7.0/24 {other} via 10.2.3.2 dev sink-3"),
            format!("route add unreachable default metric 4278198272 {ours}"),
            format!(
                "-6 route add fd09:7::/64 {ours} nexthop via 2001:db8:2:1::2 dev sink nexthop via 2001:db8:2:2::2 dev sink-2"
            ),
            format!("-6 route add fd09:7::/64 {other} via 2001:db8:2:3::2 dev sink-3"),
        ] {
            world.ip(&route);
        }
        let flow = |n: u8| {
            let (src, dst): (IpAddr, IpAddr) = match n % 2 {
                0 => ([10, 1, 1, 2 + n].into(), [10, 9, 7, 2 + n].into()),
                _ => {
                    let host = |high, low| [high, low, 0, 0, 0, 0, 0, 0x100 + u16::from(n)].into();
                    (host(0xfd01, 1), host(0xfd09, 7))
                }
            };
            Flow {
                src,
                dst,
                proto: 17,
                sport: 20_000 + u16::from(n),
                dport: 30_000,
            }
        };
        let listed: Vec<Flow> = (0..200).map(flow).collect();
        // The router's own addresses, in the VRF and beside it, at the port that Docker translates: that table local has
        // them goes before what any other table says.
        for route in ["10.2.1.1/32", "10.2.3.1/32"] {
            let via = "via 10.2.2.2 dev sink-2 metric 7";
            world.ip(&format!("route add {route} {via} table 10"));
            world.ip(&format!("route add {route} {via}"));
        }
        let to = |dst: &str| Flow {
            src: [10, 1, 1, 7].into(),
            dst: dst.parse().unwrap(),
            proto: 6,
            sport: 4000,
            dport: 8080,
        };
        let own = ["10.2.1.1", "10.2.3.1", "10.1.1.1"].map(|dst| Crafted {
            bytes: frame::drawn(&mut Random::new(3), world.frame_macs(), &to(dst)),
            kind: "to the router",
            flow: None,
        });
        two_paths(&mut volume, about, &world, &listed, &own);
    }
    volume.right();
}
