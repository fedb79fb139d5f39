//! Routes that are spread otherwise than by the kernel's hash policy, because somebody asked for it.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use raddle_e2e::frame::{self, Flow};
use raddle_e2e::{Arrival, Crafted, Daemon, World, root, within};

const LINKS: u32 = 3;

/// A route of each family over all links, weights 3, 2 and 1, as nexthop objects (IPv4) and plain
/// (IPv6).
fn world(name: &str) -> World {
    let world = World::new(name, LINKS);
    world.policy(1);
    world.sysctl("net.ipv4.fib_multipath_hash_seed", "77");
    let mut hops6 = String::new();
    for n in 1..=LINKS {
        let (via4, via6) = world.gateway(n);
        let dev = world.out(n);
        world.ip(&format!("nexthop replace id 80{n} via {via4} dev {dev}"));
        hops6 += &format!(" nexthop via {via6} dev {dev} weight {}", 4 - n);
    }
    world.ip("nexthop replace id 800 group 801,3/802,2/803,1");
    world.ip("route replace 203.0.113.0/24 nhid 800");
    world.ip(&format!("-6 route replace 2001:db8:77::/48{hops6}"));
    world
}

/// Frames of one flow.
fn one_flow(world: &World, dst: &str, count: u64) -> Vec<Crafted> {
    let dst: IpAddr = dst.parse().unwrap();
    let src = match dst {
        IpAddr::V4(_) => "10.1.1.9",
        IpAddr::V6(_) => "2001:db8:1:1:9::9",
    };
    let flow = Flow {
        src: src.parse().unwrap(),
        dst,
        proto: 17,
        sport: 1000,
        dport: 53,
    };
    (0..count)
        .map(|tag| Crafted {
            bytes: frame::udp(world.frame_macs(), &flow, tag, 40),
            kind: "UDP",
            flow: Some(flow),
        })
        .collect()
}

fn by_link(arrivals: &[Vec<Arrival>]) -> BTreeMap<String, usize> {
    let mut links = BTreeMap::new();
    for arrival in arrivals.iter().flatten() {
        *links.entry(arrival.link.clone()).or_default() += 1;
    }
    links
}

#[test]
fn packets_go_round_robin() {
    if !root("packets_go_round_robin") {
        return;
    }
    let world = world("robin");
    let rules = [
        "--mp-algo",
        "nhid:800=round-robin",
        "--mp-algo",
        "2001:db8:77::/48=round-robin",
    ];
    let daemon = Daemon::start(&world, &rules);
    for dst in ["203.0.113.7", "2001:db8:77::7"] {
        // Ten times the sum of the weights, by one core: exact shares. Frames are sent by one socket, and
        // veth hands them to the router on the sender's core.
        let links = by_link(&world.transmit(&one_flow(&world, dst, 60)));
        let total: usize = links.values().sum();
        assert_eq!(total, 60, "{links:?}");
        for (n, share) in [(1, 30), (2, 20), (3, 10)] {
            let got = links.get(&world.out(n)).copied().unwrap_or(0);
            // The sender may change cores in between, where round robin goes on from elsewhere.
            assert!(got.abs_diff(share) <= 3, "{dst}: {links:?}");
        }
        let flow = format!("explain -j {dst} iif source ipproto udp sport 1000 dport 53 from");
        let src = if dst.contains(':') {
            "2001:db8:1:1:9::9"
        } else {
            "10.1.1.9"
        };
        let words: Vec<&str> = flow.split(' ').chain([src]).collect();
        let answer = world.raddle_json(&words);
        assert_eq!(
            (&answer["link"], &answer["reason"]),
            (&serde_json::Value::Null, &"round-robin".into()),
            "{answer}"
        );
    }
    // What plans by hashes cannot plan these, and says so.
    let planned = world.raddle(&[
        "what-if",
        "203.0.113.7",
        "iif",
        "source",
        "link-down",
        &world.out(1),
    ]);
    assert_eq!(planned.code, Some(2), "{}", planned.stdout);
    assert!(
        planned.stderr.contains("nhid:800=round-robin")
            && planned
                .stderr
                .contains("no flow has a path of its own that could be predicted"),
        "{}",
        planned.stderr
    );
    let status = daemon.status();
    assert_eq!(status["mp_algos"][0], "nhid:800=round-robin", "{status}");
    daemon.terminate();
}

#[test]
fn flowlets_go_round_robin_and_keep_their_link() {
    if !root("flowlets_go_round_robin_and_keep_their_link") {
        return;
    }
    let world = world("flowlets");
    let daemon = Daemon::start(&world, &["--mp-algo", "203.0.113.0/24=flowlet,gap=300ms"]);
    let mut chosen = BTreeMap::new();
    for _ in 0..12 {
        let links = by_link(&world.transmit(&one_flow(&world, "203.0.113.7", 20)));
        // A pause in the sending, as on a busy machine, is a gap too.
        let (most, count) = links.iter().max_by_key(|(_, count)| **count).unwrap();
        assert!(*count >= 15, "{links:?}");
        *chosen.entry(most.clone()).or_insert(0) += 1;
        std::thread::sleep(std::time::Duration::from_millis(400));
    }
    assert!(
        chosen.len() > 1,
        "one flow kept one link through all gaps: {chosen:?}"
    );
    daemon.terminate();
}

/// An ICMP error about a flow takes the flow's link, whoever sent it; the kernel hashes its own
/// addresses.
#[test]
fn icmp_errors_follow_their_flow() {
    if !root("icmp_errors_follow_their_flow") {
        return;
    }
    let world = world("follow");
    let daemon = Daemon::start(
        &world,
        &["--mp-algo", "203.0.113.0/24=l4,icmp-follows-flow"],
    );
    let flows: Vec<Flow> = (0..40u16)
        .map(|n| Flow {
            src: "10.1.1.9".parse().unwrap(),
            dst: "203.0.113.7".parse().unwrap(),
            proto: 17,
            sport: 1000 + n,
            dport: 53,
        })
        .collect();
    let sent = world.frames(&flows);
    let there = world.transmit(&sent);
    let errors: Vec<Crafted> = sent
        .iter()
        .map(|frame| {
            // About the packet in the other direction: from 203.0.113.7 port 53.
            let packet = &frame.bytes[14..14 + 28];
            let mut about = packet.to_vec();
            about[12..16].copy_from_slice(&packet[16..20]);
            about[16..20].copy_from_slice(&packet[12..16]);
            about[20..22].copy_from_slice(&packet[22..24]);
            about[22..24].copy_from_slice(&packet[20..22]);
            let mut body = vec![3, 4, 0, 0, 0, 0, 5, 0];
            body.extend(about);
            let bytes = frame::packet(
                world.frame_macs(),
                "10.1.1.33".parse().unwrap(),
                "203.0.113.7".parse().unwrap(),
                1,
                &body,
            );
            Crafted {
                bytes,
                kind: "ICMP error",
                flow: None,
            }
        })
        .collect();
    let back = world.transmit(&errors);
    for (flow, error) in there.iter().zip(&back) {
        assert_eq!(error.len(), 1);
        assert_eq!(flow[0].link, error[0].link);
    }
    assert!(by_link(&back).len() == 3, "{:?}", by_link(&back));
    daemon.terminate();
}

/// What is planned and predicted goes by the daemon's rules, and packets do so too.
#[test]
fn plans_follow_the_rules() {
    if !root("plans_follow_the_rules") {
        return;
    }
    let world = world("planned");
    world.policy(0);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("raddle.toml");
    std::fs::write(
        &config,
        "[[mp-algo]]\nprefix = '203.0.113.0/24'\nalgo = 'l4'\n",
    )
    .unwrap();
    let config = config.to_str().unwrap();
    let certificate = folder.path().join("plan.json");
    let certificate = certificate.to_str().unwrap();
    let asked = [
        "ports",
        "plan",
        "203.0.113.7",
        "-n",
        "12",
        "--proto",
        "udp",
        "--dport",
        "53",
        "--from",
        "10.1.1.9",
        "--iif",
        "source",
        "--out",
        certificate,
        "-j",
    ];
    // The kernel's policy knows no ports; the file that the daemon would be started with does.
    let refused = world.raddle(&asked);
    assert!(
        refused.stderr.contains("does not look at ports"),
        "{}",
        refused.stderr
    );
    let said = world.raddle_json(&[&asked[..], &["--config", config]].concat());
    let daemon = Daemon::start(&world, &["--config", config]);
    let plan = world.raddle_json(&asked);
    assert_eq!(plan, said, "as the daemon here does");
    let planned: Vec<Flow> = plan["connections"]
        .as_array()
        .unwrap()
        .iter()
        .map(|connection| Flow {
            src: "10.1.1.9".parse().unwrap(),
            dst: "203.0.113.7".parse().unwrap(),
            proto: 17,
            sport: connection["value"].as_u64().unwrap() as u16,
            dport: 53,
        })
        .collect();
    let arrivals = world.transmit(&world.frames(&planned));
    for (connection, arrival) in plan["connections"]
        .as_array()
        .unwrap()
        .iter()
        .zip(&arrivals)
    {
        let path = connection["path"].as_u64().unwrap() as usize;
        let links: Vec<&str> = arrival.iter().map(|a| a.link.as_str()).collect();
        assert_eq!(links, [plan["paths"][path]["dev"].as_str().unwrap()]);
    }
    assert_eq!(daemon.forwarded(), 12);
    let check = world.raddle_json(&["ports", "verify", "-j", certificate]);
    assert_eq!((&check["agree"], &check["paths"]), (&12.into(), &3.into()));
    // Where packets go round robin, a load is expected of each link and no flow has one.
    let spread = |more: &[&str]| {
        let words = [
            "spread",
            "-j",
            "203.0.113.7",
            "--iif",
            "source",
            "--flows",
            "900",
        ];
        world.raddle_json(&[&words[..], more].concat())
    };
    assert!(
        spread(&[])["links"]["elsewhere"]
            .as_object()
            .unwrap()
            .is_empty()
    );
    let loads = spread(&["--mp-algo", "nhid:800=round-robin"]);
    assert_eq!(loads["links"]["elsewhere"]["round-robin"], 900, "{loads}");
    let text = world.raddle(&[
        "what-if",
        "203.0.113.7",
        "iif",
        "source",
        "link-down",
        "sink",
        "--mp-algo",
        "nhid:800=flowlet",
    ]);
    assert_eq!(text.code, Some(2));
    assert!(text.stderr.contains("round robin"), "{}", text.stderr);
    daemon.terminate();
}

/// The kernel would ask for the gateways that its own hash policy takes, and no others.
#[test]
fn gateways_are_resolved_for_an_algorithm() {
    if !root("gateways_are_resolved_for_an_algorithm") {
        return;
    }
    let world = world("algoasks");
    world.policy(0);
    let daemon = Daemon::start(&world, &["--mp-algo", "203.0.113.0/24=l4"]);
    let hops: Vec<_> = (1..=LINKS)
        .map(|n| world.gateway(n).0.to_string())
        .collect();
    for n in 1..=LINKS {
        world.ip(&format!("neigh flush dev {} nud all", world.out(n)));
    }
    within(Duration::from_secs(60), || {
        let counters = daemon.counters();
        let rows = counters["nexthops"].as_array().unwrap();
        let forwards = |via: &&String| {
            let mut rows = rows.iter();
            rows.any(|row| row["via"] == **via && row["forwards"] == true)
        };
        match hops.iter().filter(forwards).count() {
            n if n == hops.len() => Ok(()),
            n => Err(format!("{n} of {hops:?} are resolved: {counters}")),
        }
    });
    daemon.terminate();
}
