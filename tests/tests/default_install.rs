//! A machine as distributions and their programs leave it: no hash seed, loose `rp_filter`, Tailscale's rules and chains,
//! Docker's chains. Transit traffic over two paths is forwarded by raddle, and goes as without it.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use raddle_e2e::frame::Flow;
use raddle_e2e::{Arrival, Daemon, World, root, within};

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

fn links(arrivals: &[Vec<Arrival>]) -> Vec<Vec<String>> {
    let links = |arrivals: &Vec<Arrival>| arrivals.iter().map(|a| a.link.clone()).collect();
    arrivals.iter().map(links).collect()
}

#[test]
fn nearly_all_transit_is_forwarded_on_a_default_install() {
    if !root("nearly_all_transit_is_forwarded_on_a_default_install") {
        return;
    }
    let world = World::new("default", 2);
    // What the test's fabric sets, as it is on a machine that nobody has tuned.
    if std::fs::exists("/proc/sys/net/ipv4/fib_multipath_hash_seed").unwrap() {
        world.sysctl("net.ipv4.fib_multipath_hash_seed", "0");
    }
    world.policy(0);
    for link in ["all", "default", "source", "sink", "sink-2"] {
        world.sysctl(&format!("net.ipv4.conf.{link}.rp_filter"), "2");
    }
    world.ip("route add default via 10.1.1.2");
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
    world.ip("route add 100.64.0.1 via 10.1.1.2 table 52");
    // As cloud images have them: what has an address of theirs leaves by its link.
    world.ip("rule add from 192.0.2.5 lookup 100 pref 5280");
    world.ip("route add default via 10.1.1.2 table 100");
    RULESETS.iter().for_each(|rules| restore(&world, rules));

    let flows: Vec<Flow> = world
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
    let frames = world.frames(&flows);
    let kernel = links(&world.transmit(&frames));
    assert!(kernel.iter().all(|links| links.len() == 1));
    let used: std::collections::BTreeSet<&String> = kernel.iter().flatten().collect();
    assert_eq!(used.len(), 2, "both paths are used");
    let daemon = Daemon::start(&world, &[]);
    within(LIMIT, || {
        let before = (daemon.forwarded(), daemon.received());
        assert_eq!(links(&world.transmit(&frames)), kernel, "no flow moves");
        let forwarded = daemon.forwarded() - before.0;
        let share = forwarded as f64 / frames.len() as f64;
        eprintln!(
            "{forwarded} of {} packets are forwarded by raddle",
            frames.len()
        );
        match share {
            0.99.. => Ok(()),
            _ => Err(format!("{share}: {}", daemon.counters())),
        }
    });
    daemon.terminate();
}
