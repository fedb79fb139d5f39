//! Firewalls beside raddle: packets that a rule may judge are the kernel's, all others are forwarded past it, and each comes
//! out as it does without raddle.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use raddle_e2e::frame::{self, Flow};
use raddle_e2e::{Arrival, Crafted, Daemon, Random, Volume, World, root, within};

const LIMIT: Duration = Duration::from_secs(60);

/// What Docker installs beside a host that forwards already, as `iptables-restore` takes it.
const DOCKER: &str = include_str!("../../crates/preflight/tests/rulesets/docker.iptables");

fn tool(world: &World, words: &[&str], input: &str) {
    let (program, arguments) = words.split_first().unwrap();
    let mut command: Command = world.lab().command("router", program).unwrap();
    let mut child = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}\n{input}");
}

fn nft(world: &World, rules: &str) {
    let table = format!("table inet guard {{\n{rules}\n}}\n");
    tool(world, &["nft", "-f", "-"], &table);
}

fn flush(world: &World) {
    tool(world, &["nft", "flush", "ruleset"], "");
    let qdisc = format!("tc qdisc del dev {} clsact", world.out(3));
    let words: Vec<&str> = qdisc.split(' ').collect();
    let _ = world.lab().output("router", &words);
}

/// A rule set, and which of the plain flows raddle forwards past it; by source, family (v6) and out-link.
struct Case {
    about: &'static str,
    install: fn(&World),
    is_free: fn(&Flow, &str) -> bool,
}

fn chain(world: &World, hook: &str, rules: &str) {
    nft(
        world,
        &format!("chain c {{ type filter hook {hook} priority 0; policy accept;\n{rules}\n}}"),
    );
}

const CASES: [Case; 9] = [
    Case {
        about: "none",
        install: |_| {},
        is_free: |_, _| true,
    },
    Case {
        about: "Docker",
        install: |world| {
            tool(world, &["iptables-restore"], DOCKER);
        },
        is_free: |flow, _| !flow.src.to_string().starts_with("172.17."),
    },
    Case {
        about: "a rule for another link",
        install: |world| chain(world, "forward", "iifname \"eth9\" counter drop"),
        is_free: |_, _| true,
    },
    Case {
        about: "a rule for an out-link",
        install: |world| chain(world, "forward", "oifname \"sink-2\" counter"),
        is_free: |_, out| out != "sink-2",
    },
    Case {
        about: "IPv6 from the in-link is dropped",
        install: |world| {
            chain(
                world,
                "forward",
                "iifname \"source\" meta nfproto ipv6 drop",
            )
        },
        is_free: |flow, _| flow.src.is_ipv4(),
    },
    Case {
        about: "sources of a prefix are dropped on their way to a link",
        install: |world| {
            chain(
                world,
                "postrouting",
                "oifname \"sink-3\" ip saddr 10.1.1.0/28 drop\nip6 daddr 2001:db8:9::120-2001:db8:9::12f drop",
            );
        },
        is_free: |flow, _| match flow.dst.to_string().strip_prefix("2001:db8:9::12") {
            Some(last) => last.len() != 1,
            // Whatever link they leave by.
            None => match flow.src {
                IpAddr::V4(src) => !(src.octets().starts_with(&[10, 1, 1]) && src.octets()[3] < 16),
                IpAddr::V6(_) => true,
            },
        },
    },
    Case {
        about: "connection tracking for what comes in",
        install: |world| chain(world, "input", "ct state invalid drop"),
        is_free: |_, _| true,
    },
    Case {
        about: "tc on a link's egress",
        install: |world| {
            let out = world.out(3);
            // Whatever it does: nobody looks into filters.
            for words in [
                format!("tc qdisc add dev {out} clsact"),
                format!("tc filter add dev {out} egress protocol all u32 match u32 0 0 flowid 1:1"),
            ] {
                let words: Vec<&str> = words.split(' ').collect();
                tool(world, &words, "");
            }
        },
        is_free: |_, out| out != "sink-3",
    },
    Case {
        about: "two links are closed to each other",
        install: |world| {
            chain(
                world,
                "forward",
                "iifname \"source\" oifname \"sink\" reject\niifname \"sink\" oifname \"source\" drop",
            );
        },
        is_free: |_, out| out != "sink",
    },
];

fn links(arrivals: &[Vec<Arrival>]) -> Vec<Vec<String>> {
    let links = |arrivals: &Vec<Arrival>| arrivals.iter().map(|a| a.link.clone()).collect();
    arrivals.iter().map(links).collect()
}

/// Rule sets come and go while raddle runs.
#[test]
fn a_firewall_costs_the_pairs_that_it_concerns() {
    if !root("a_firewall_costs_the_pairs_that_it_concerns") {
        return;
    }
    let world = World::new("firewall", 3);
    world.policy(1);
    world.ip("route add 172.16.0.0/12 via 10.1.1.2");
    let sources = ["10.1.1.2", "10.1.1.77", "172.17.5.5", "172.18.5.5"];
    let listed: Vec<Flow> = world
        .flows(96)
        .into_iter()
        .enumerate()
        .map(|(n, flow)| match flow.src.is_ipv4() {
            true => Flow {
                src: sources[n / 2 % sources.len()].parse().unwrap(),
                ..flow
            },
            false => flow,
        })
        .collect();
    let mut volume = Volume::of("firewalls", CASES.len());
    let (flows, plain) = volume.frames(&world, &listed);
    let v4 = (2..60).map(|n| [10, 9, 0, n].into()).collect();
    let v6 = (0x100..0x140u16)
        .map(|n| [0x2001, 0xdb8, 9, 0, 0, 0, 0, n].into())
        .collect();
    let odd = frame::random(&mut Random::new(7), &world.addresses(v4, v6), 300);
    let send = |frames: &[Crafted]| links(&world.transmit(frames));
    // The ways that flows take without any rule.
    let free_ways = send(&plain);
    let by_kernel: Vec<_> = CASES
        .iter()
        .map(|case| {
            (case.install)(&world);
            world.forget_connections();
            let arrived = (world.transmit(&plain), send(&odd));
            flush(&world);
            arrived
        })
        .collect();
    // What is there at the start already.
    (CASES[3].install)(&world);
    let check = world.raddle(&["run", "--check"]);
    let said =
        "would be left to the kernel: IPv4 from source, sink, sink-3 to sink-2: nft inet guard c";
    assert!(
        check.stdout.contains(said),
        "{}{}",
        check.stdout,
        check.stderr
    );
    let daemon = Daemon::start(&world, &[]);
    let punted = daemon.status()["punted"].to_string();
    assert!(punted.contains("to sink-2"), "{punted}");
    flush(&world);
    for (case, (kernel_plain, kernel_odd)) in CASES.iter().zip(&by_kernel) {
        let about = case.about;
        (case.install)(&world);
        world.forget_connections();
        // From the moment on that a rule is there.
        let before = daemon.forwarded();
        let first = world.transmit_again(&plain, kernel_plain);
        let forwarded = daemon.forwarded() - before;
        volume.compare(about, &flows, [kernel_plain, &first], forwarded);
        let free = flows.iter().zip(&free_ways);
        let free = free.filter(|(flow, way)| (case.is_free)(flow, &way[0]));
        let free = free.count() as u64;
        // Packets of the moment until it had looked are the kernel's.
        within(LIMIT, || {
            let before = daemon.forwarded();
            let ours = world.transmit_again(&plain, kernel_plain);
            let forwarded = daemon.forwarded() - before;
            volume.compare(about, &flows, [kernel_plain, &ours], forwarded);
            match forwarded {
                forwarded if forwarded == free => Ok(()),
                other => Err(format!(
                    "{about}: {other} of {free} forwarded\n{}\n{}",
                    daemon.counters(),
                    daemon.status()["punted"]
                )),
            }
        });
        let punted = daemon.reason("firewall");
        assert_eq!(&send(&odd), kernel_odd, "{about}: odd frames");
        eprintln!(
            "{about}: {free} of {} plain flows are free, {} odd frames punted, {} forwarded in all",
            flows.len(),
            daemon.reason("firewall") - punted,
            daemon.forwarded() - before
        );
        flush(&world);
    }
    volume.right();
    assert_eq!(world.late(), 0);
    // None is left.
    within(LIMIT, || {
        match daemon.status()["punted"].as_array().unwrap().len() {
            0 => Ok(()),
            _ => Err(daemon.status()["punted"].to_string()),
        }
    });
    let log = daemon.log();
    assert!(
        log.contains("left to the kernel from now on: IPv4"),
        "{log}"
    );
    daemon.terminate();
}

/// With `conntrack = "punt"` the kernel's table has all connections of the families that it tracks.
#[test]
fn tracked_connections_can_be_left_to_the_kernel() {
    if !root("tracked_connections_can_be_left_to_the_kernel") {
        return;
    }
    let world = World::new("conntrack", 2);
    let frames = world.frames(&world.flows(32));
    let table = "table ip guard {\nchain c { type filter hook input priority 0; ct state invalid drop\n}\n}\n";
    tool(&world, &["nft", "-f", "-"], table);
    for (arguments, forwarded) in [(&[][..], 32), (&["--conntrack", "punt"], 16)] {
        let daemon = Daemon::start(&world, arguments);
        within(LIMIT, || {
            let before = daemon.forwarded();
            assert_eq!(links(&world.transmit(&frames)).concat().len(), 32);
            match daemon.forwarded() - before {
                now if now == forwarded => Ok(()),
                other => Err(format!("{arguments:?}: {other} forwarded")),
            }
        });
        daemon.terminate();
    }
}

/// What goes out is accepted by its link alone, what comes back by its connection: the kernel has to see both, or it knows no
/// connection.
#[test]
fn a_stateful_firewall_sees_both_directions() {
    if !root("a_stateful_firewall_sees_both_directions") {
        return;
    }
    let world = World::new("stateful", 2);
    chain(
        &world,
        "forward",
        "iifname \"source\" accept\nct state established,related accept\ncounter drop",
    );
    let refused = world.raddle(&["run"]);
    assert_eq!(
        refused.code,
        Some(3),
        "{}{}",
        refused.stdout,
        refused.stderr
    );

    // Of one of two links, so that the other's pairs are free.
    flush(&world);
    chain(
        &world,
        "forward",
        "oifname \"source\" iifname \"sink\" ct state established,related accept\noifname \"source\" iifname \"sink\" drop",
    );
    world.ip("route replace 10.9.0.0/16 via 10.2.1.2");
    let daemon = Daemon::start(&world, &[]);
    let lab = world.lab();
    let punted = daemon.status()["punted"].to_string();
    assert!(punted.contains("whose other direction this is"), "{punted}");
    let listener = lab
        .within("sink", || TcpListener::bind("10.9.0.1:7000"))
        .unwrap()
        .unwrap();
    let connect = || {
        let to = "10.9.0.1:7000".parse().unwrap();
        TcpStream::connect_timeout(&to, LIMIT)
    };
    let mut client = lab.within("source", connect).unwrap().unwrap();
    let (mut server, _) = listener.accept().unwrap();
    for n in 0..8u8 {
        client.write_all(&[n]).unwrap();
        let mut byte = [0];
        server.read_exact(&mut byte).unwrap();
        server.write_all(&byte).unwrap();
        client.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [n]);
    }
    assert!(daemon.reason("firewall") >= 9, "{}", daemon.counters());
    daemon.terminate();
}
