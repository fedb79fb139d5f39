//! Port plans and what-if answers held against the running kernel.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::BTreeSet;
use std::fmt::Write;

use raddle_e2e::{World, root};
use serde_json::Value;

const LINKS: u32 = 8;

/// Eight paths: 203.0.113.0/24 and 2001:db8:10::/48 by multipath routes, 198.51.100.0/24 and
/// 2001:db8:11::/48 by nexthop groups. The router has an address that is on none of the links.
fn world(name: &str, weights: &[u32]) -> World {
    let world = World::new(name, LINKS);
    world.sysctl("net.ipv4.fib_multipath_hash_seed", "12345");
    world.policy(1);
    world.ip("addr add 192.0.2.1/32 dev lo");
    world.ip("addr add 2001:db8:ff::1/128 dev lo");
    let (mut hops4, mut hops6) = (String::new(), String::new());
    let (mut group4, mut group6) = (Vec::new(), Vec::new());
    for n in 1..=LINKS {
        let (four, six) = world.gateway(n);
        let (dev, weight) = (world.out(n), weights[n as usize - 1]);
        write!(hops4, " nexthop via {four} dev {dev} weight {weight}").unwrap();
        write!(hops6, " nexthop via {six} dev {dev} weight {weight}").unwrap();
        world.ip(&format!(
            "nexthop replace id {} via {four} dev {dev}",
            100 + n
        ));
        world.ip(&format!(
            "nexthop replace id {} via {six} dev {dev}",
            200 + n
        ));
        group4.push(format!("{},{weight}", 100 + n));
        group6.push(format!("{},{weight}", 200 + n));
    }
    world.ip(&format!("nexthop replace id 1 group {}", group4.join("/")));
    world.ip(&format!("nexthop replace id 2 group {}", group6.join("/")));
    world.ip(&format!("route replace 203.0.113.0/24{hops4}"));
    world.ip("route replace 198.51.100.0/24 nhid 1");
    world.ip(&format!("-6 route replace 2001:db8:10::/48{hops6}"));
    world.ip("-6 route replace 2001:db8:11::/48 nhid 2");
    world
}

const DESTINATIONS: [(&str, &str, &str); 4] = [
    ("203.0.113.7", "192.0.2.1", "10.1.1.2"),
    ("198.51.100.7", "192.0.2.1", "10.1.1.2"),
    ("2001:db8:10::7", "2001:db8:ff::1", "2001:db8:1:1::2"),
    ("2001:db8:11::7", "2001:db8:ff::1", "2001:db8:1:1::2"),
];

/// Plans, writes the certificate, and has it checked. The plan and the check.
fn plan(world: &World, words: &str) -> (Value, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.json");
    let file = file.to_str().unwrap();
    let mut words: Vec<&str> = words.split_whitespace().collect();
    words.splice(0..0, ["ports", "plan", "-j", "--out", file]);
    let plan = world.raddle_json(&words);
    assert_eq!(
        plan,
        serde_json::from_slice::<Value>(&std::fs::read(file).unwrap()).unwrap()
    );
    let check = world.raddle_json(&["ports", "verify", "-j", file]);
    assert_eq!(check["agree"], check["of"], "{words:?}: {check}");
    assert_eq!(check["differ"], serde_json::json!([]));
    (plan, check)
}

#[test]
fn the_kernel_agrees_with_every_plan() {
    if !root("the_kernel_agrees_with_every_plan") {
        return;
    }
    let world = world("plan", &[1; LINKS as usize]);
    for (dst, local, remote) in DESTINATIONS {
        for sender in [
            format!("--from {local}"),
            format!("--from {remote} --iif source"),
        ] {
            let asked = format!("{dst} --count 8 --dport 2049 {sender}");
            let (plan, check) = plan(&world, &asked);
            assert_eq!(check["paths"], 8, "{asked}");
            let paths: BTreeSet<u64> = plan["connections"]
                .as_array()
                .unwrap()
                .iter()
                .map(|c| c["path"].as_u64().unwrap())
                .collect();
            assert_eq!(paths.len(), 8, "{asked}");
            let spares = plan["spares"].as_array().unwrap();
            assert_eq!(spares.len(), 8, "{asked}");
            for spare in spares {
                // 8 connections on the 7 paths that are left.
                let loads = spare["loads"].as_array().unwrap();
                let used = loads.iter().filter(|load| **load != 0).count();
                assert_eq!(used, 7, "{asked}: {spare}");
            }
            let (_, many) = self::plan(
                &world,
                &format!("{dst} -n 64 --proto udp --dport 53 {sender}"),
            );
            assert_eq!((&many["of"], &many["paths"]), (&64.into(), &8.into()));
        }
    }
    // Without --from it is the source that the kernel names, if that is one.
    world.ip("route replace 198.51.100.0/24 nhid 1 src 192.0.2.1");
    let named = plan(&world, "198.51.100.7 --count 8 --dport 2049").0;
    assert_eq!(named["flow"]["from"], "192.0.2.1");
    // A socket without one gets that of the path that it is given, and asks again.
    for dst in ["203.0.113.7", "198.51.100.99"] {
        let (several, check) = plan(&world, &format!("{dst} -n 8 --dport 2049"));
        assert_eq!(check["paths"], 8, "{several}");
    }
    // IPv4 nexthops of a route are preferred by source (Linux 6.16 and later).
    let (one, check) = plan(&world, "203.0.113.7 -n 8 --dport 2049 --from 10.2.3.1");
    let preferred = one["paths"].as_array().unwrap().iter();
    let preferred = preferred.filter(|path| path["hashes"] != 0).count();
    assert_eq!(check["paths"], preferred, "{one}");
    let six = world.raddle(&["ports", "plan", "2001:db8:10::7", "-n", "8"]);
    assert_eq!(six.code, Some(2));
    assert!(
        six.stderr
            .contains("the source address depends on the path"),
        "{}",
        six.stderr
    );
    // A socket has an address of this machine, which may have all of a prefix.
    let ask = |dst: &str, from: &str| {
        world.raddle(&[
            "ports", "plan", dst, "-n", "8", "--dport", "2049", "--from", from,
        ])
    };
    for (dst, from) in [
        ("198.51.100.7", "192.0.2.77"),
        ("2001:db8:11::7", "2001:db8:9::9"),
    ] {
        let refused = ask(dst, from);
        assert_eq!(refused.code, Some(2), "{}", refused.stdout);
        assert!(
            refused.stderr.contains("no address of this machine"),
            "{}",
            refused.stderr
        );
    }
    let multicast = ask("198.51.100.7", "224.0.0.5");
    assert!(
        multicast.stderr.contains("nothing is sent from"),
        "{}",
        multicast.stderr
    );
    world.ip("route add local 192.0.2.0/24 dev lo");
    plan(&world, "198.51.100.7 -n 8 --dport 2049 --from 192.0.2.77");
    world.ip("route del local 192.0.2.0/24 dev lo");
    world.sysctl("net.ipv6.ip_nonlocal_bind", "1");
    plan(
        &world,
        "2001:db8:11::7 -n 8 --dport 2049 --from 2001:db8:9::9",
    );
    // Policy 0 looks at labels, not at ports.
    world.policy(0);
    for dst in ["2001:db8:10::7", "2001:db8:11::7"] {
        let labels = format!("{dst} --count 8 --dport 2049 --from 2001:db8:ff::1 --flow-labels");
        assert_eq!(plan(&world, &labels).1["paths"], 8);
        let refused = world.raddle(&["ports", "plan", dst, "-n", "8", "--from", "2001:db8:ff::1"]);
        assert_eq!(refused.code, Some(2));
        assert!(
            refused.stderr.contains("does not look at ports"),
            "{}",
            refused.stderr
        );
    }
    // Policies 2 and 3 tell packets from flows; the kernel answers for one of them.
    for family in ["ipv4", "ipv6"] {
        world.sysctl(&format!("net.{family}.fib_multipath_hash_fields"), "55");
    }
    world.policy(3);
    for (dst, local, remote) in DESTINATIONS {
        for sender in [
            format!("--from {local}"),
            format!("--from {remote} --iif source"),
        ] {
            let (_, check) = plan(&world, &format!("{dst} -n 16 --dport 2049 {sender}"));
            assert_eq!(check["paths"], 8, "{dst} {sender}");
        }
    }
}

#[test]
fn a_resilient_group_is_planned_and_thought_through() {
    if !root("a_resilient_group_is_planned_and_thought_through") {
        return;
    }
    let world = world("resilient", &[1; LINKS as usize]);
    let members: Vec<String> = (1..=LINKS).map(|n| (100 + n).to_string()).collect();
    let members = members.join("/");
    world.ip(&format!(
        "nexthop add id 3 group {members} type resilient buckets 64 idle_timer 100"
    ));
    world.ip("route replace 192.168.7.0/24 nhid 3");
    let asked = "192.168.7.7 -n 8 --dport 2049 --from 192.0.2.1";
    assert_eq!(plan(&world, asked).1["paths"], 8);
    let owners = || -> Vec<u64> {
        let buckets: Value =
            serde_json::from_str(&world.ip("-j nexthop bucket show id 3")).unwrap();
        let owner = |bucket: &Value| bucket["bucket"]["nhid"].as_u64().unwrap();
        buckets.as_array().unwrap().iter().map(owner).collect()
    };
    let before = owners();
    let said = world.raddle_json(&["what-if", "-j", "192.168.7.7", "nexthop-del", "103"]);
    world.ip("nexthop del id 103");
    let after = owners();
    assert_eq!((before.len(), after.len()), (64, 64));
    let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    assert_eq!(said["moved"], moved as f64 / 64.0);
    for (n, path) in (101..=108).zip(said["paths"].as_array().unwrap()) {
        let share = |owners: &[u64]| owners.iter().filter(|o| **o == n).count() as f64 / 64.0;
        assert_eq!(
            (&path["before"], &path["after"]),
            (&share(&before).into(), &share(&after).into()),
            "{n}"
        );
    }
}

#[test]
fn weighted_plans_and_stale_certificates() {
    if !root("weighted_plans_and_stale_certificates") {
        return;
    }
    let world = world("stale", &[4, 3, 2, 1, 1, 1, 1, 1]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.json");
    let file = file.to_str().unwrap();
    for (dst, local, _) in DESTINATIONS {
        let words = format!("{dst} --count 28 --dport 2049 --by-weight --from {local}");
        let (plan, _) = plan(&world, &words);
        let connections = plan["connections"].as_array().unwrap();
        let on = |path: u64| connections.iter().filter(|c| c["path"] == path).count();
        assert_eq!(
            (0..8).map(on).collect::<Vec<_>>(),
            [8, 6, 4, 2, 2, 2, 2, 2],
            "{words}"
        );
    }
    let words = [
        "ports",
        "plan",
        "198.51.100.7",
        "-n",
        "8",
        "--dport",
        "2049",
        "--from",
        "192.0.2.1",
    ];
    let text = world.raddle(&[&words[..], &["--out", file]].concat());
    assert_eq!(text.code, Some(0), "{}", text.stderr);
    assert!(text.stdout.contains("8 of 8 paths"), "{}", text.stdout);
    world.sysctl("net.ipv4.fib_multipath_hash_seed", "54321");
    let stale = world.raddle(&["ports", "verify", file]);
    assert_eq!(stale.code, Some(1), "{}", stale.stdout);
    assert!(
        stale.stdout.contains("the hash seed is 54321, not 12345"),
        "{}",
        stale.stdout
    );
    assert!(
        stale.stderr.contains("connections do not go as planned"),
        "{}",
        stale.stderr
    );
    // No port is taken for another.
    let edited = folder.path().join("edited.json");
    let mut plan: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let value = &mut plan["connections"][0]["value"];
    *value = (value.as_u64().unwrap() + 65536).into();
    std::fs::write(&edited, plan.to_string()).unwrap();
    let edited = world.raddle(&["ports", "verify", edited.to_str().unwrap()]);
    assert_eq!(edited.code, Some(2), "{}", edited.stdout);
    assert!(
        edited.stderr.contains("ports go from 1 to 65535"),
        "{}",
        edited.stderr
    );
    // What has no connections agrees with everything, and says nothing; what has no end is not read to it.
    let empty = folder.path().join("empty.json");
    plan["connections"] = serde_json::json!([]);
    std::fs::write(&empty, plan.to_string()).unwrap();
    for (file, said) in [
        (empty.to_str().unwrap(), "it has no connections"),
        ("/dev/zero", "/dev/zero is not a certificate"),
        ("/no/such", "cannot read the certificate /no/such"),
    ] {
        let refused = world.raddle(&["ports", "verify", file]);
        assert_eq!(refused.code, Some(2), "{}", refused.stdout);
        assert!(refused.stderr.contains(said), "{}", refused.stderr);
    }
    // A source on one of the links is steered by it.
    let steered = world.raddle(&[
        "ports",
        "plan",
        "203.0.113.7",
        "-n",
        "8",
        "--from",
        "10.2.1.1",
    ]);
    assert_eq!(steered.code, Some(0), "{}", steered.stderr);
    assert!(
        steered
            .stdout
            .contains("leave --from out to cover the others"),
        "{}",
        steered.stdout
    );
    // With the route gone, so are all that was planned: that is found, and no wrong use.
    world.ip("route del 198.51.100.0/24");
    let gone = world.raddle(&["ports", "verify", file]);
    assert_eq!(gone.code, Some(1), "{}", gone.stderr);
    assert!(
        gone.stderr
            .contains("8 of 8 connections do not go as planned: 198.51.100.7 has no path"),
        "{}",
        gone.stderr
    );
}

#[test]
fn flows_move_as_was_said() {
    if !root("flows_move_as_was_said") {
        return;
    }
    let world = world("whatif", &[1, 2, 3, 4, 1, 2, 3, 4]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flows.txt");
    let file = file.to_str().unwrap();
    let mut all = Vec::new();
    for (dst, _, remote) in DESTINATIONS {
        for sport in 0..150_u16 {
            all.push(raddle_e2e::frame::Flow {
                src: remote.parse().unwrap(),
                dst: dst.parse().unwrap(),
                proto: 17,
                sport: 30_000 + sport * 7,
                dport: 53,
            });
        }
    }
    let lines: Vec<String> = all
        .iter()
        .map(|f| format!("{} {} udp {} {}", f.src, f.dst, f.sport, f.dport))
        .collect();
    std::fs::write(file, lines.join("\n")).unwrap();
    let before: Vec<_> = all
        .iter()
        .map(|flow| world.kernel_choice(flow).unwrap())
        .collect();
    let down = world.out(3);
    let said = DESTINATIONS.map(|(dst, _, _)| {
        let words = [
            "what-if",
            "-j",
            dst,
            "iif",
            "source",
            "link-down",
            &down,
            "--flows",
            file,
        ];
        world.raddle_json(&words)
    });
    let over = [
        "what-if",
        "203.0.113.7",
        "link-down",
        &down,
        "--budget",
        "1%",
    ];
    assert_eq!(world.raddle(&over).code, Some(1));
    world.ip(&format!("link set {down} down"));
    let after: Vec<_> = all
        .iter()
        .map(|flow| world.kernel_choice(flow).unwrap())
        .collect();
    for (at, report) in said.iter().enumerate() {
        let mine = at * 150..(at + 1) * 150;
        let moved: Vec<usize> = mine.filter(|i| before[*i] != after[*i]).collect();
        let list = report["flows"]["list"].as_array().unwrap();
        assert_eq!(report["flows"]["on_route"], 150);
        assert_eq!(list.len(), moved.len(), "{}", DESTINATIONS[at].0);
        for (i, flow) in moved.iter().zip(list) {
            assert_eq!(flow["from"]["dev"], *before[*i], "{flow}");
            assert_eq!(flow["to"]["dev"], *after[*i], "{flow}");
        }
        assert!(!list.is_empty());
    }
}
