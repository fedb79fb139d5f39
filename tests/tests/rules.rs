//! Routing rules against the running kernel: the same frames are forwarded by it, then by raddle, under the rules that
//! Tailscale, wg-quick, VRFs and others install. Each has to come out of the same link, and raddle forwards itself what
//! the kernel forwards.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use raddle_e2e::frame::Flow;
use raddle_e2e::{Arrival, Daemon, World, root};

/// Destinations in tables main, 52 and 77, and of both.
const DESTINATIONS: [&str; 7] = [
    "10.9.7.9",
    "10.9.8.9",
    "10.77.1.1",
    "10.52.1.1",
    "198.51.100.7",
    "fd09:7::9",
    "fd77::1",
];

#[test]
fn rules_are_followed_as_the_kernel_follows_them() {
    if !root("rules_are_followed_as_the_kernel_follows_them") {
        return;
    }
    let world = World::new("rules", 3);
    let ip = |commands: &[&str]| commands.iter().for_each(|command| drop(world.ip(command)));
    let (_, gateway6) = world.gateway(2);
    let via6 = format!("via {gateway6}");
    ip(&[
        "route replace 10.9.7.0/24 nexthop via 10.2.1.2 nexthop via 10.2.2.2",
        "route replace 10.9.0.0/16 via 10.2.3.2",
        "route replace default via 10.2.1.2",
        "route add 10.77.0.0/16 via 10.2.2.2 table 77",
        "route add 10.9.8.0/24 via 10.2.2.2 table 77",
        "route add default via 10.2.3.2 table 77",
        "route add unreachable 10.9.7.8/29 table 78",
        "route add 10.52.0.0/16 via 10.2.3.2 table 52",
        "route add throw 10.9.8.0/24 table 52",
        &format!("-6 route add fd09:7::/64 {via6}"),
        &format!("-6 route add fd77::/64 {via6} table 77"),
    ]);
    let flows: Vec<Flow> = DESTINATIONS
        .iter()
        .flat_map(|dst| {
            (0..12u16).map(|sport| Flow {
                src: match dst.contains(':') {
                    true => "fd01:1::7".parse().unwrap(),
                    false => "10.1.1.7".parse().unwrap(),
                },
                dst: dst.parse().unwrap(),
                proto: 17,
                sport,
                dport: 9,
            })
        })
        .collect();
    let frames = world.frames(&flows);
    let links =
        |arrivals: &[Arrival]| -> Vec<String> { arrivals.iter().map(|a| a.link.clone()).collect() };
    for (what, rules) in [
        ("none", &[][..]),
        (
            "Tailscale's",
            &[
                "pref 5210 fwmark 0x80000/0xff0000 lookup main",
                "pref 5230 fwmark 0x80000/0xff0000 lookup default",
                "pref 5250 fwmark 0x80000/0xff0000 unreachable",
                "pref 5270 lookup 52",
            ],
        ),
        (
            "wg-quick's",
            &[
                "pref 32764 lookup main suppress_prefixlength 0",
                "pref 32765 not fwmark 0xca6c lookup 77",
            ],
        ),
        ("a VRF's, elsewhere", &["pref 1000 l3mdev"]),
        (
            "longer than a refusal",
            &["pref 90 lookup 78 suppress_prefixlength 28"],
        ),
        (
            "shorter than a refusal",
            &["pref 90 lookup 78 suppress_prefixlength 30"],
        ),
        (
            "input and output links, users",
            &[
                "pref 90 iif sink-2 lookup 78",
                "pref 91 oif sink-2 lookup 78",
                "pref 92 uidrange 1000-2000 lookup 78",
                "pref 93 iif source lookup 77 suppress_prefixlength 0",
                "pref 94 not iif source lookup 78",
            ],
        ),
        (
            "goto",
            &[
                "pref 90 goto 200",
                "pref 100 unreachable",
                "pref 200 nop",
                "pref 300 lookup 77 suppress_prefixlength 16",
            ],
        ),
        (
            "an end",
            &[
                "pref 32000 lookup 77 suppress_prefixlength 0",
                "pref 32001 prohibit",
            ],
        ),
    ] {
        for rule in rules {
            world.ip(&format!("rule add {rule}"));
            // Rules of IPv6 have no table 52 or 78 to look in: that finds nothing.
            world.ip(&format!("-6 rule add {rule}"));
        }
        let kernel = world.transmit(&frames);
        let daemon = Daemon::start(&world, &[]);
        let ours = world.transmit(&frames);
        for ((flow, kernel), ours) in flows.iter().zip(&kernel).zip(&ours) {
            assert_eq!(links(kernel), links(ours), "{what}: {}", flow.dst);
        }
        let through = kernel.iter().filter(|arrivals| !arrivals.is_empty());
        let through = through.count() as u64;
        let forwarded = daemon.forwarded();
        eprintln!("{what}: the kernel forwards {through}, raddle {forwarded}");
        // A route of type throw is left to the kernel.
        let thrown = if what == "Tailscale's" { 12 } else { 0 };
        assert_eq!(forwarded + thrown, through, "{what}: {}", daemon.counters());
        assert_eq!(daemon.reason("rules"), 0, "{what}");
        daemon.terminate();
        for rule in rules {
            world.ip(&format!("rule del {rule}"));
            world.ip(&format!("-6 rule del {rule}"));
        }
    }
}

/// Two hosts behind the source, and three networks.
fn from_two_hosts() -> Vec<Flow> {
    let hosts = ["10.1.1.7", "10.1.1.8", "fd01:1::7", "fd01:1::8"];
    let pairs = hosts.iter().flat_map(|src| {
        let same = |dst: &&&str| dst.contains(':') == src.contains(':');
        DESTINATIONS.iter().filter(same).map(move |dst| (src, dst))
    });
    let flows = pairs.flat_map(|(src, dst)| {
        (0..4u16).map(move |sport| Flow {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            proto: 17,
            sport,
            dport: 9,
        })
    });
    flows.collect()
}

/// What a rule asks for: sources and destinations that begin so.
type Asked = &'static [(&'static str, &'static str)];

#[test]
fn rules_by_address_cost_their_packets_alone() {
    if !root("rules_by_address_cost_their_packets_alone") {
        return;
    }
    let world = World::new("rules-from", 3);
    let (_, gateway6) = world.gateway(2);
    for route in [
        "route replace 10.9.7.0/24 nexthop via 10.2.1.2 nexthop via 10.2.2.2",
        "route replace 10.9.0.0/16 via 10.2.3.2",
        "route replace default via 10.2.1.2",
        "route add default via 10.2.3.2 table 77",
        &format!("-6 route add fd09:7::/64 via {gateway6}"),
        &format!("-6 route add fd77::/64 via {gateway6}"),
        "-6 route add unreachable fd77::/64 table 77",
    ] {
        world.ip(route);
    }
    let flows = from_two_hosts();
    let frames = world.frames(&flows);
    let links =
        |arrivals: &[Arrival]| -> Vec<String> { arrivals.iter().map(|a| a.link.clone()).collect() };
    let cases: [(&str, &str, &[&str], Asked); 6] = [
        (
            "a cloud image's",
            "0",
            &[
                "rule add pref 100 from 10.1.1.8 lookup 77",
                "rule add pref 101 from 192.0.2.7 lookup 77",
            ],
            &[("10.1.1.8", "10."), ("10.1.1.8", "198.")],
        ),
        (
            "from and to",
            "0",
            &["rule add pref 100 from 10.1.1.0/24 to 10.9.0.0/16 lookup 77"],
            &[("10.1.1.", "10.9.")],
        ),
        (
            "not from",
            "0",
            &["rule add pref 100 not from 10.1.1.8 lookup 77"],
            &[("10.1.1.8", "10."), ("10.1.1.8", "198.")],
        ),
        (
            "with ports",
            "0",
            &["rule add pref 100 from 10.1.1.7 ipproto udp dport 9 lookup 77"],
            &[("10.1.1.7", "10."), ("10.1.1.7", "198.")],
        ),
        (
            "IPv6",
            "0",
            &["-6 rule add pref 100 from fd01:1::8 to fd77::/16 lookup 77"],
            &[("fd01:1::8", "fd77:")],
        ),
        (
            "with rp_filter",
            "2",
            &["rule add pref 100 from 10.52.0.0/16 unreachable"],
            &[("10.1.1.", "10.52.")],
        ),
    ];
    for (what, filter, rules, asked) in cases {
        world.sysctl("net.ipv4.conf.source.rp_filter", filter);
        rules.iter().for_each(|rule| drop(world.ip(rule)));
        let kernel = world.transmit(&frames);
        let daemon = Daemon::start(&world, &[]);
        let ours = world.transmit(&frames);
        for ((flow, kernel), ours) in flows.iter().zip(&kernel).zip(&ours) {
            assert_eq!(links(kernel), links(ours), "{what}: {flow:?}");
        }
        let is_asked = |flow: &&Flow| {
            let (src, dst) = (flow.src.to_string(), flow.dst.to_string());
            let mut asked = asked.iter();
            asked.any(|(from, to)| src.starts_with(from) && dst.starts_with(to))
        };
        let punted = flows.iter().filter(is_asked).count() as u64;
        assert_eq!(
            daemon.reason("rules"),
            punted,
            "{what}: {}",
            daemon.counters()
        );
        let through = flows.iter().zip(&kernel);
        let through = through.filter(|(flow, arrivals)| !is_asked(flow) && !arrivals.is_empty());
        let through = through.count() as u64;
        eprintln!("{what}: raddle forwards {through}, {punted} are the kernel's");
        assert_eq!(daemon.forwarded(), through, "{what}: {}", daemon.counters());
        daemon.terminate();
        for rule in rules {
            world.ip(&rule.replace("rule add", "rule del"));
        }
    }
}
