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
