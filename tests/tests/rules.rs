//! Routing rules against the running kernel: the same frames are forwarded by it, then by raddle, under the rules that
//! Tailscale, wg-quick, VRFs and others install. Each has to come out of the same link, and raddle forwards itself what
//! the kernel forwards.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use raddle_e2e::frame::Flow;
use raddle_e2e::{Daemon, PATIENT, Volume, World, root};

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
    let listed: Vec<Flow> = DESTINATIONS
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
    let mut volume = Volume::of("rules", 9);
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
        let (flows, frames) = volume.frames(&world, &listed);
        let kernel = world.transmit(&frames);
        let daemon = Daemon::start(&world, &PATIENT);
        let ours = world.transmit_again(&frames, &kernel);
        let forwarded = daemon.forwarded();
        volume.compare(what, &flows, [&kernel, &ours], forwarded);
        let through = kernel.iter().filter(|arrivals| !arrivals.is_empty());
        let through = through.count() as u64;
        eprintln!("{what}: the kernel forwards {through}, raddle {forwarded}");
        // A route of type throw is left to the kernel.
        let is_thrown = |flow: &&Flow| flow.dst.to_string().starts_with("10.9.8.");
        let thrown = match what {
            "Tailscale's" => flows.iter().filter(is_thrown).count() as u64,
            _ => 0,
        };
        assert_eq!(forwarded + thrown, through, "{what}: {}", daemon.counters());
        assert_eq!(daemon.reason("rules"), 0, "{what}");
        daemon.terminate();
        for rule in rules {
            world.ip(&format!("rule del {rule}"));
            world.ip(&format!("-6 rule del {rule}"));
        }
    }
    volume.right();
    assert_eq!(world.late(), 0);
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

/// What is punted: sources and destinations that begin so.
type Punted = &'static [(&'static str, &'static str)];

#[test]
fn rules_that_ask_for_packets_are_followed() {
    if !root("rules_that_ask_for_packets_are_followed") {
        return;
    }
    let world = World::new("rules-from", 3);
    let (_, gateway6) = world.gateway(2);
    let (_, other6) = world.gateway(1);
    for route in [
        "route replace 10.9.7.0/24 nexthop via 10.2.1.2 nexthop via 10.2.2.2",
        "route replace 10.9.0.0/16 via 10.2.3.2",
        "route replace default via 10.2.1.2",
        "route add default via 10.2.3.2 table 77",
        "route add 10.9.0.0/16 via 10.2.2.2 table 78",
        &format!("-6 route add fd09:7::/64 via {gateway6}"),
        &format!("-6 route add fd77::/64 via {gateway6}"),
        "-6 route add unreachable fd77::/64 table 77",
        &format!("-6 route add default via {other6} table 78"),
    ] {
        world.ip(route);
    }
    let mut flows = from_two_hosts();
    // Others are for ports, and each once more with a TOS, and with another protocol.
    let ports = flows.clone().into_iter().map(|flow| Flow {
        sport: flow.sport + 5000,
        dport: 443,
        ..flow
    });
    flows.extend(ports.collect::<Vec<Flow>>());
    let mut listed = world.frames(&flows);
    let count = listed.len();
    for n in 0..2 * count {
        let mut frame = listed[n % count].clone();
        let v4 = frame.bytes[12] == 8;
        match n < count {
            true => with_tos(&mut frame.bytes, v4),
            false => with_protocol(&mut frame.bytes, v4),
        }
        listed.push(frame);
    }
    let listed_flows = flows.repeat(3);
    let cases: &[(&str, &str, &[&str], Punted)] = &[
        (
            "a cloud image's",
            "0",
            &[
                "rule add pref 100 from 10.1.1.8 lookup 77",
                "rule add pref 101 from 192.0.2.7 lookup 77",
            ],
            &[],
        ),
        (
            "from and to",
            "0",
            &["rule add pref 100 from 10.1.1.0/24 to 10.9.0.0/16 lookup 77"],
            &[],
        ),
        (
            "not from",
            "0",
            &["rule add pref 100 not from 10.1.1.8 lookup 77"],
            &[],
        ),
        (
            "with ports",
            "0",
            &["rule add pref 100 from 10.1.1.7 ipproto 17 dport 9 lookup 77"],
            &[],
        ),
        (
            "IPv6",
            "0",
            &["-6 rule add pref 100 from fd01:1::8 to fd77::/16 lookup 77"],
            &[],
        ),
        (
            "ports, protocols and TOS alone",
            "0",
            &[
                "rule add pref 100 ipproto 17 dport 443 lookup 77",
                "rule add pref 101 ipproto 6 sport 1-5001 lookup 78",
                "rule add pref 102 tos 0x10 lookup 78",
                "-6 rule add pref 100 ipproto 17 dport 443 lookup 78",
                "-6 rule add pref 101 ipproto 6 sport 1-5001 lookup 78",
                "-6 rule add pref 102 tos 0xb8 unreachable",
            ],
            &[],
        ),
        (
            "one after the other",
            "0",
            &[
                "rule add pref 100 from 10.1.1.8 lookup 78",
                "rule add pref 101 not ipproto 17 lookup 77",
                "rule add pref 102 tos 0x18 goto 104",
                "rule add pref 103 ipproto 17 dport 400-500 prohibit",
                "rule add pref 104 from 10.1.1.0/29 lookup main suppress_prefixlength 16",
            ],
            &[],
        ),
        (
            "with rp_filter",
            "2",
            &["rule add pref 100 from 10.52.0.0/16 unreachable"],
            &[("10.1.1.", "10.52.")],
        ),
    ];
    let mut volume = Volume::of("rules that ask for packets", cases.len());
    for (what, filter, rules, punted) in cases {
        world.sysctl("net.ipv4.conf.source.rp_filter", filter);
        rules.iter().for_each(|rule| drop(world.ip(rule)));
        let (mut flows, mut frames) = (listed_flows.clone(), listed.clone());
        volume.extend(&world, &mut flows, &mut frames, &listed_flows);
        let kernel = world.transmit(&frames);
        let daemon = Daemon::start(&world, &PATIENT);
        let ours = world.transmit_again(&frames, &kernel);
        let forwarded = daemon.forwarded();
        volume.compare(what, &flows, [&kernel, &ours], forwarded);
        let is_punted = |flow: &&Flow| {
            let (src, dst) = (flow.src.to_string(), flow.dst.to_string());
            let mut punted = punted.iter();
            punted.any(|(from, to)| src.starts_with(from) && dst.starts_with(to))
        };
        let asked = flows.iter().filter(is_punted).count() as u64;
        assert_eq!(
            daemon.reason("rules"),
            asked,
            "{what}: {}",
            daemon.counters()
        );
        let through = flows.iter().zip(&kernel);
        let through = through.filter(|(flow, arrivals)| !is_punted(flow) && !arrivals.is_empty());
        let through = through.count() as u64;
        eprintln!("{what}: raddle forwards {through}, {asked} are the kernel's");
        assert_eq!(forwarded, through, "{what}: {}", daemon.counters());
        daemon.terminate();
        for rule in *rules {
            world.ip(&rule.replace("rule add", "rule del"));
        }
    }
    volume.right();
    assert_eq!(world.late(), 0);
}

/// The DSCP EF, and both bits of ECN.
fn with_tos(frame: &mut [u8], v4: bool) {
    match v4 {
        true => {
            frame[15] = 0xbb;
            checksum4(frame);
        }
        false => (frame[14], frame[15]) = (0x6b, frame[15] & 0xf | 0xb0),
    }
}

/// TCP, whose ports are where those of UDP are.
fn with_protocol(frame: &mut [u8], v4: bool) {
    match v4 {
        true => {
            frame[23] = 6;
            checksum4(frame);
        }
        false => frame[20] = 6,
    }
}

fn checksum4(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let sum: u32 = frame[14..34]
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}
