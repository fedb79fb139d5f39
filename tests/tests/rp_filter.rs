//! Reverse-path filtering against the running kernel: the same frames from all kinds of sources are forwarded by it, then by
//! raddle. Each has to come out of the same link or of none, and raddle forwards itself what the kernel lets pass.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::BTreeSet;

use raddle_e2e::frame::Flow;
use raddle_e2e::{Arrival, Daemon, PATIENT, Volume, World, root};
use serde_json::Value;

/// Where sources have their routes: who may refuse whom is said at [`rp_filter_is_the_kernels`].
const ROUTES: [&str; 9] = [
    "route add 10.9.7.0/24 via 10.2.2.2",
    "route add 172.16.0.0/16 via 10.1.1.2",
    "route add 172.17.0.0/16 via 10.2.1.2",
    "route add 172.18.0.0/16 nexthop via 10.1.1.2 nexthop via 10.2.1.2",
    "route add 172.19.0.0/16 nexthop via 10.2.1.2 nexthop via 10.2.3.2",
    "route add 172.20.0.0/16 nhid 9",
    "route add 172.21.0.0/16 nhid 8",
    "route add 172.22.0.0/16 dev source",
    "route add 172.23.0.0/16 dev sink-3",
];
const OBJECTS: [&str; 5] = [
    "nexthop add id 1 via 10.1.1.2 dev source",
    "nexthop add id 2 via 10.2.1.2 dev sink",
    "nexthop add id 3 via 10.2.3.2 dev sink-3",
    "nexthop add id 9 group 1/2",
    "nexthop add id 8 group 2/3 type resilient buckets 8",
];

/// Of each source.
const FLOWS: usize = 8;

/// All but the last, which the kernel may refuse whatever the filter, so that raddle leaves it to it.
const SOURCES: [&str; 16] = [
    "10.1.1.7",
    "10.2.1.77",
    "10.2.2.2",
    "172.16.5.5",
    "172.17.5.5",
    "172.18.5.5",
    "172.19.5.5",
    "172.20.5.5",
    "172.21.5.5",
    "172.22.5.5",
    "172.23.5.5",
    "198.51.100.1",
    "203.0.113.1",
    "203.0.113.130",
    "10.2.1.1",
    "10.2.1.255",
];

#[test]
fn rp_filter_is_the_kernels() {
    if !root("rp_filter_is_the_kernels") {
        return;
    }
    let world = World::new("rpfilter", 3);
    let ip = |commands: &[&str]| commands.iter().for_each(|command| drop(world.ip(command)));
    ip(&OBJECTS);
    ip(&ROUTES);
    let listed: Vec<Flow> = SOURCES
        .iter()
        .flat_map(|src| {
            (0..FLOWS as u16).map(|sport| Flow {
                src: src.parse().unwrap(),
                dst: "10.9.7.9".parse().unwrap(),
                proto: 17,
                sport,
                dport: 9,
            })
        })
        .collect();
    let plain = listed.len() - FLOWS;
    // Seven states, each with three filters.
    let mut volume = Volume::of("rp_filter", 21);
    let mut passed = BTreeSet::new();
    for (what, commands) in [
        ("no default route", &[][..]),
        ("a default route", &["route add default via 10.2.3.2"]),
        (
            "routes that refuse",
            &[
                "route add unreachable 203.0.113.0/25",
                "route add blackhole 203.0.113.128/25",
            ],
        ),
        (
            "a default route to where packets come from",
            &["route replace default via 10.1.1.2"],
        ),
        (
            "rules for all links",
            &[
                "route add 198.51.100.0/24 via 10.1.1.2 table 77",
                "rule add lookup 77 pref 100",
            ],
        ),
        (
            "a rule for packets from the out-link",
            &[
                "rule del pref 100",
                "rule add iif sink-2 lookup 77 pref 100",
            ],
        ),
        (
            "no address on the link",
            &[
                "rule del pref 100",
                "route replace default via 10.2.3.2",
                "addr flush dev source",
                "route add 10.1.1.0/24 dev source",
                "route add 172.16.0.0/16 dev source",
            ],
        ),
    ] {
        ip(commands);
        let by_out_link = what.contains("from the out-link");
        for rp_filter in ["0", "2", "1"] {
            let about = format!("{what}, rp_filter {rp_filter}");
            world.sysctl("net.ipv4.conf.all.rp_filter", rp_filter);
            let (flows, frames) = volume.frames_like(&world, &listed, &listed[..plain]);
            let kernel = world.transmit(&frames);
            let daemon = Daemon::start(&world, &PATIENT);
            let ours = world.transmit_again(&frames, &kernel);
            let forwarded = daemon.forwarded();
            volume.compare(&about, &flows, [&kernel, &ours], forwarded);
            if rp_filter != "0" {
                explained(&about, &world, &listed, &kernel);
            }
            let through = kernel[..plain].iter().chain(&kernel[listed.len()..]);
            let through = through.filter(|arrivals| !arrivals.is_empty()).count();
            eprintln!(
                "{about}: the kernel lets {through} of {} frames pass, raddle forwards {forwarded}",
                flows.len() - FLOWS
            );
            passed.insert((rp_filter, through));
            match by_out_link && rp_filter != "0" {
                // Which rules are asked depends on the way out.
                true => assert_eq!(forwarded, 0, "{about}"),
                false => assert_eq!(forwarded, through as u64, "{about}: {}", daemon.counters()),
            }
            daemon.terminate();
        }
    }
    volume.right();
    assert_eq!(world.late(), 0);
    assert!(
        passed.len() > 6,
        "each filter refuses something: {passed:?}"
    );
}

/// `raddle explain` says what the kernel did with the first flow of each source, or that it is not sure.
fn explained(about: &str, world: &World, flows: &[Flow], kernel: &[Vec<Arrival>]) {
    let asked: Vec<_> = flows.iter().zip(kernel).step_by(FLOWS).collect();
    let sure = |(flow, kernel): &(&Flow, &Vec<Arrival>)| {
        let (src, dst) = (flow.src.to_string(), flow.dst.to_string());
        let words = [
            "explain", "-j", &dst, "from", &src, "iif", "source", "ipproto", "udp", "sport", "0",
            "dport", "9",
        ];
        let answer = world.raddle(&words);
        let answer: Value = serde_json::from_str(&answer.stdout).unwrap();
        let sure = answer["confidence"]["level"] == "exact";
        if sure {
            let link = kernel.first().map(|arrival| &*arrival.link);
            assert_eq!(answer["link"].as_str(), link, "{about}: {src}: {answer}");
        }
        sure
    };
    // Two at a time, as an emulated machine has two processors.
    let (one, other) = asked.split_at(asked.len() / 2);
    let count = |asked: &[_]| asked.iter().filter(|asked| sure(asked)).count();
    let sure = std::thread::scope(|scope| {
        let other = scope.spawn(|| count(other));
        count(one) + other.join().unwrap()
    });
    eprintln!(
        "{about}: raddle explain is sure of {sure} of {}",
        SOURCES.len()
    );
    let knows = !about.contains("from the out-link");
    assert!(!knows || sure >= SOURCES.len() - 4, "{about}: {sure}");
}
