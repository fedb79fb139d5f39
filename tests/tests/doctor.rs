//! `raddle doctor` on a router with faults, whose own commands fix them, and on one without.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use raddle_e2e::frame::Flow;
use raddle_e2e::{Daemon, Outcome, World, readable_raddle, root, within};
use serde_json::Value;

/// What doctor says as JSON, and its exit code.
fn examined(world: &World, arguments: &[&str]) -> (Value, i32) {
    let outcome = world.raddle(&[&["doctor", "-j"], arguments].concat());
    let value = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|e| panic!("{arguments:?}: {e}: {}{}", outcome.stdout, outcome.stderr));
    (value, outcome.code.unwrap())
}

fn findings<'a>(answer: &'a Value, id: &str) -> Vec<&'a Value> {
    let all = answer["findings"].as_array().unwrap();
    all.iter().filter(|finding| finding["id"] == id).collect()
}

fn is_serious(answer: &Value) -> bool {
    let mut all = answer["findings"].as_array().unwrap().iter();
    all.any(|finding| finding["severity"] == "serious")
}

/// The check finds something whose evidence says so; that finding.
fn found<'a>(answer: &'a Value, id: &str, severity: &str, said: &str) -> &'a Value {
    let found = findings(answer, id);
    let finding = found
        .iter()
        .find(|f| f["evidence"].to_string().contains(said));
    let finding = finding.unwrap_or_else(|| panic!("{id} '{said}' is not in {answer:#}"));
    assert_eq!(finding["severity"], severity, "{finding:#}");
    for text in ["what", "effect", "source"] {
        assert!(!finding[text].as_str().unwrap().is_empty(), "{finding:#}");
    }
    finding
}

/// Runs the command that fixes a finding, on the router.
fn fix(world: &World, finding: &Value) {
    let command = finding["fix"].as_str().unwrap();
    let mut shell = world.lab().command("router", "sh").unwrap();
    let outcome = Outcome::of(shell.args(["-c", command]));
    assert_eq!(outcome.code, Some(0), "{command}: {}", outcome.stderr);
}

/// Fixes what the check finds, finding after finding, until it finds nothing more.
fn fix_all(world: &World, id: &str) {
    for _ in 0..8 {
        let (answer, _) = examined(world, &["--only", id]);
        match findings(&answer, id).first() {
            Some(finding) => fix(world, finding),
            None => return,
        }
    }
    panic!("{id} is still there");
}

/// A hash seed for a world of this name: worlds of tests that run at the same time see each other's routers.
fn seed_of(name: &str) -> String {
    let sum: u32 = name.bytes().map(u32::from).sum();
    (2_718_000_000 + sum).to_string()
}

/// Two paths over the links 1 and 2 for both families, everything as it should be.
fn well_set(name: &str) -> World {
    let world = World::new(name, 3);
    world.policy(1);
    world.sysctl("net.ipv4.fib_multipath_use_neigh", "1");
    world.sysctl("net.ipv4.fib_multipath_hash_seed", &seed_of(name));
    for conf in ["ipv4", "ipv6"] {
        for which in ["all", "default", "sink", "sink-2", "sink-3"] {
            let key = format!("net.{conf}.conf.{which}.ignore_routes_with_linkdown");
            world.sysctl(&key, "1");
        }
    }
    world.ip("route replace 10.9.0.0/16 nexthop via 10.2.1.2 nexthop via 10.2.2.2");
    world.ip(
        "-6 route replace 2001:db8:9::/48 nexthop via 2001:db8:2:1::2 nexthop via 2001:db8:2:2::2",
    );
    world
}

/// Waits until the kernel has noticed that a link has no carrier: it shows the nexthop so.
fn until_noticed(world: &World) {
    within(Duration::from_secs(60), || {
        let shown = world.ip("route show 10.9.0.0/16") + &world.ip("-6 route show 2001:db8:9::/48");
        match shown.matches("linkdown").count() {
            2 => Ok(()),
            _ => Err(shown),
        }
    });
}

#[test]
fn a_well_set_router_has_nothing_serious() {
    if !root("a_well_set_router_has_nothing_serious") {
        return;
    }
    let world = well_set("doctor-well");
    let (answer, code) = examined(&world, &[]);
    assert!(code == 0 && !is_serious(&answer), "{answer:#}");
    assert_eq!(answer["multipath_routes"], 2, "{answer:#}");
    let needed_by_none = answer["not_seen"].as_array().unwrap().is_empty();
    assert!(needed_by_none, "{answer:#}");
    for id in [
        "seed-unset",
        "seed-shared",
        "l3-policy",
        "linkdown-weighted",
        "stale-bounds",
    ] {
        assert!(findings(&answer, id).is_empty(), "{answer:#}");
    }
    let text = world.raddle(&["doctor"]);
    assert_eq!((text.code, text.stderr.as_str()), (Some(0), ""));
    assert!(text.stdout.starts_with("0 serious, "), "{}", text.stdout);

    // The same of a snapshot, as far as it tells.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.json");
    let file = file.to_str().unwrap();
    assert_eq!(world.raddle(&["snapshot", file]).code, Some(0));
    let (answer, code) = examined(&world, &["--snapshot", file]);
    let running = examined(&world, &[]).0["kernel"].take();
    assert_eq!((code, &answer["kernel"]), (0, &running));
    let not_seen = answer["not_seen"].to_string();
    assert!(!not_seen.contains("--kernel VERSION") && not_seen.contains("xdp-loss"));
    // One that does not say of which kernel it is.
    let state = std::fs::read_to_string(file).unwrap();
    let mut state: Value = serde_json::from_str(&state).unwrap();
    state["kernel"] = Value::Null;
    let silent = folder.path().join("silent.json");
    std::fs::write(&silent, state.to_string()).unwrap();
    let (answer, code) = examined(&world, &["--snapshot", silent.to_str().unwrap()]);
    assert_eq!((code, &answer["kernel"]), (0, &Value::Null));
    assert!(answer["not_seen"].to_string().contains("--kernel VERSION"));
    let (answer, code) = examined(&world, &["--snapshot", file, "--kernel", "6.17.2"]);
    assert_eq!(code, 1);
    found(&answer, "kernel-source-to-last", "serious", "10.9.0.0/16");
}

#[test]
fn faults_are_found_and_their_commands_fix_them() {
    if !root("faults_are_found_and_their_commands_fix_them") {
        return;
    }
    let world = well_set("doctor-ill");
    world.policy(0);
    world.sysctl("net.ipv4.fib_multipath_hash_seed", "0");
    world.sysctl("net.ipv4.fib_multipath_use_neigh", "0");
    world.ip("route add 10.8.1.1/32 nexthop via 10.2.1.2 nexthop via 10.2.2.2");
    for (id, n) in [(11, 1), (12, 2), (13, 3)] {
        let (four, _) = world.gateway(n);
        world.ip(&format!(
            "nexthop add id {id} via {four} dev {}",
            world.out(n)
        ));
    }
    world.ip("nexthop add id 100 group 11");
    world.ip("nexthop add id 101 group 11,100/12 type resilient buckets 8 idle_timer 0");
    world.ip("route add 10.7.0.0/24 nhid 100");
    world.ip("route add 10.7.1.0/24 nhid 101");
    world.ip("route add 10.6.0.0/24 via 10.2.1.2");
    world.ip("route append 10.6.0.0/24 via 10.2.2.2");
    world.ip("route add 10.5.0.0/24 via 10.2.1.2 metric 5");
    world.ip("route add 10.5.0.0/24 via 10.2.2.2 metric 6");
    world.ip("-6 route add 2001:db8:7::/48 dev sink");
    world.ip("-6 route append 2001:db8:7::/48 dev sink-2");
    world.neighbours(1, "failed");

    let (answer, code) = examined(&world, &["--peers-seed", "7"]);
    assert!(code == 1 && is_serious(&answer), "{answer:#}");
    let outcome = world.raddle(&["doctor"]);
    assert!(outcome.stderr.contains("serious"), "{}", outcome.stderr);
    found(&answer, "l3-policy", "warning", "1 of them to one address");
    found(&answer, "seed-unset", "note", "hash_seed reads 0");
    found(
        &answer,
        "neighbour-unchecked",
        "warning",
        "10.8.1.1/32 and 1 more",
    );
    found(
        &answer,
        "failed-neighbour",
        "serious",
        "10.2.1.2 dev sink: failed",
    );
    found(
        &answer,
        "failed-neighbour",
        "serious",
        "2001:db8:2:1::2 dev sink: failed",
    );
    found(&answer, "one-member-group", "warning", "group 100: id 11");
    found(&answer, "resilient-idle-zero", "warning", "group 101");
    found(
        &answer,
        "resilient-coarse",
        "serious",
        "member 12 weight 1: 0 of 8 buckets",
    );
    found(&answer, "appended", "warning", "10.6.0.0/24");
    found(
        &answer,
        "metrics-differ",
        "note",
        "metric 5; via 10.2.2.2 dev sink-2 metric 6",
    );
    found(&answer, "v6-device-only", "warning", "2001:db8:7::/48");
    found(&answer, "objects-go-with-carrier", "note", "group 101");

    world.neighbours(1, "permanent");
    for id in [
        "l3-policy",
        "seed-unset",
        "resilient-idle-zero",
        "appended",
        "metrics-differ",
        "neighbour-unchecked",
    ] {
        fix_all(&world, id);
    }
    world.neighbours(1, "failed");
    // Plain IPv4 routes look now, and IPv6 ones are groups.
    let (answer, _) = examined(&world, &["--only", "failed-neighbour"]);
    found(
        &answer,
        "failed-neighbour",
        "warning",
        "10.2.1.2 dev sink: failed",
    );
    assert!(!is_serious(&answer), "{answer:#}");
    // The fixed group has the route; the other stays.
    let (answer, _) = examined(&world, &["--only", "resilient-coarse"]);
    fix(&world, findings(&answer, "resilient-coarse")[0]);
    assert!(!world.ip("route show 10.7.1.0/24").contains("nhid 101"));
}

#[test]
fn shares_of_links_without_carrier() {
    if !root("shares_of_links_without_carrier") {
        return;
    }
    let world = well_set("doctor-plug");
    let setting = |on: &str| {
        for conf in ["ipv4", "ipv6"] {
            for which in ["all", "sink-2"] {
                let key = format!("net.{conf}.conf.{which}.ignore_routes_with_linkdown");
                world.sysctl(&key, on);
            }
        }
    };
    setting("0");
    world.lab().link_down(world.plug(2)).unwrap();
    until_noticed(&world);
    let only = ["--only", "linkdown-weighted,stale-bounds"];
    let (answer, code) = examined(&world, &only);
    assert_eq!(code, 1);
    found(
        &answer,
        "linkdown-weighted",
        "serious",
        "10.9.0.0/16: weight 1 of 2",
    );
    found(
        &answer,
        "linkdown-weighted",
        "serious",
        "2001:db8:9::/48: weight 1 of 2",
    );
    assert!(findings(&answer, "stale-bounds").is_empty(), "{answer:#}");

    // The setting alone changes what is shown, not what is chosen.
    setting("1");
    let (answer, code) = examined(&world, &only);
    assert_eq!(code, 1);
    assert!(
        findings(&answer, "linkdown-weighted").is_empty(),
        "{answer:#}"
    );
    found(&answer, "stale-bounds", "serious", "10.9.0.0/16: ");
    found(&answer, "stale-bounds", "serious", "2001:db8:9::/48: ");
    fix_all(&world, "stale-bounds");
    let (answer, code) = examined(&world, &only);
    assert_eq!(code, 0, "{answer:#}");

    // The whole command: setting and event.
    world.lab().link_up(world.plug(2)).unwrap();
    setting("0");
    world.lab().link_down(world.plug(2)).unwrap();
    until_noticed(&world);
    fix_all(&world, "linkdown-weighted");
    let (answer, code) = examined(&world, &only);
    assert_eq!(code, 0, "{answer:#}");
}

#[test]
fn connections_that_share_a_path_are_counted() {
    if !root("connections_that_share_a_path_are_counted") {
        return;
    }
    let world = well_set("doctor-tcp");
    world.node("sink", "ip addr add 10.9.0.7/32 dev lo");
    let listener = world
        .lab()
        .within("sink", || TcpListener::bind("10.9.0.7:7000"))
        .unwrap()
        .unwrap();
    // With policy 1 newer kernels would draw paths, and with them source addresses, at random.
    world.policy(0);
    let connections: Vec<TcpStream> = world
        .lab()
        .within("router", || {
            let connect = |_| TcpStream::connect("10.9.0.7:7000").unwrap();
            (0..3).map(connect).collect()
        })
        .unwrap();
    let (answer, code) = examined(&world, &["--only", "l3-policy"]);
    assert_eq!(code, 1, "{answer:#}");
    let evidence = findings(&answer, "l3-policy")[0]["evidence"].to_string();
    assert!(
        evidence.contains("3 TCP connections from 10.2."),
        "{evidence}"
    );
    assert!(evidence.contains("to 10.9.0.7"), "{evidence}");
    drop((connections, listener));

    // The hash that steering supplies counts with policy 1 alone.
    let steer = "echo 1 > /sys/class/net/source/queues/rx-0/rps_cpus";
    let mut shell = world.lab().command("router", "sh").unwrap();
    let outcome = Outcome::of(shell.args(["-c", steer]));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let only = ["--only", "rps-hash"];
    assert!(findings(&examined(&world, &only).0, "rps-hash").is_empty());
    world.policy(1);
    found(
        &examined(&world, &only).0,
        "rps-hash",
        "warning",
        "source: rps_cpus",
    );
    fix_all(&world, "rps-hash");
}

#[test]
fn what_may_not_be_seen_is_said() {
    if !root("what_may_not_be_seen_is_said") {
        return;
    }
    let world = well_set("doctor-nobody");
    let seed = seed_of("doctor-nobody");
    // A router in another namespace with the same seed.
    world
        .lab()
        .set_sysctl("sink", "net.ipv4.ip_forward", "1")
        .unwrap();
    world
        .lab()
        .set_sysctl("sink", "net.ipv4.fib_multipath_hash_seed", &seed)
        .unwrap();
    let (answer, code) = examined(&world, &["--only", "seed-shared"]);
    assert_eq!(code, 0);
    found(&answer, "seed-shared", "warning", &format!("seed {seed}"));

    let folder = tempfile::tempdir().unwrap();
    let program = readable_raddle(folder.path());
    let ordinary = |arguments: &[&str]| world.as_nobody(&program, arguments);
    let outcome = ordinary(&["doctor", "-j"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let answer: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert!(findings(&answer, "seed-shared").is_empty());
    let missing = answer["not_seen"].as_array().unwrap();
    for check in ["seed-shared", "flow-dissector", "xdp-loss", "xdp-firewall"] {
        let names = |m: &&Value| m["checks"].as_array().unwrap().iter().any(|c| c == check);
        let missing = missing.iter().find(names);
        let missing = missing.unwrap_or_else(|| panic!("{check}: {answer:#}"));
        assert!(missing["why"].to_string().contains("root"), "{missing:#}");
    }
    assert!(ordinary(&["doctor"]).stdout.contains("not seen\n"));
}

#[test]
fn arguments_that_make_no_sense() {
    let raddle = |arguments: &[&str]| {
        let mut command = std::process::Command::new(raddle_e2e::raddle());
        Outcome::of(command.args(arguments))
    };
    for (arguments, said) in [
        (
            &["doctor", "--only", "l3-policy,nonsense"][..],
            "'nonsense'",
        ),
        (
            &["doctor", "--kernel", "new"],
            "'new' is not a kernel version",
        ),
        (&["doctor", "--peers-seed", "x"], "invalid value 'x'"),
        (
            &["doctor", "--snapshot", "/does/not/exist"],
            "/does/not/exist",
        ),
    ] {
        let outcome = raddle(arguments);
        assert_eq!(outcome.code, Some(2), "{arguments:?}");
        assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    }
    let listed = raddle(&["doctor", "--list"]);
    assert_eq!(listed.code, Some(0));
    assert!(listed.stdout.contains("kernel-source-to-last "));
}

/// Half of the packets come from an address that a routing rule asks for, and decides about by something that is not followed.
#[test]
fn what_raddle_leaves_to_the_kernel_is_told_in_shares() {
    if !root("what_raddle_leaves_to_the_kernel_is_told_in_shares") {
        return;
    }
    let world = World::new("doctor-shares", 2);
    world.ip("rule add pref 100 from 10.1.1.8 lookup 77 suppress_ifgroup 9");
    let daemon = Daemon::start(&world, &[]);
    let only = ["--only", "left-to-kernel"];
    assert!(findings(&examined(&world, &only).0, "left-to-kernel").is_empty());
    let flows: Vec<Flow> = (0..400u16)
        .map(|n| Flow {
            src: [10, 1, 1, 7 + (n % 2) as u8].into(),
            dst: [10, 9, 0, 9].into(),
            proto: 17,
            sport: n,
            dport: 9,
        })
        .collect();
    world.transmit(&world.frames(&flows));
    let (answer, code) = examined(&world, &only);
    let asked = "routing rule 100: from 10.1.1.8 suppress_ifgroup ... lookup 77";
    let finding = found(&answer, "left-to-kernel", "warning", asked);
    let counted = finding["evidence"][0].as_str().unwrap();
    assert!(counted.starts_with("200 of "), "{finding:#}");
    let by_link = found(&answer, "left-to-kernel", "note", "source: ");
    let counted = by_link["evidence"].to_string();
    assert!(counted.contains("%, 200 of "), "{by_link:#}");
    assert_eq!(code, 0, "it is not serious");
    daemon.terminate();
}

/// A daemon that is stopped, and then what one that is killed has left.
#[test]
fn a_daemon_that_does_no_work_is_a_finding() {
    if !root("a_daemon_that_does_no_work_is_a_finding") {
        return;
    }
    let world = World::new("doctor-idle", 2);
    let daemon = Daemon::start(&world, &["--on-exit", "keep"]);
    let only = ["--only", "daemon-silent,programs-left"];
    let none = |answer: &Value| answer["findings"].as_array().unwrap().is_empty();
    assert!(none(&examined(&world, &only).0));
    // Who may not ask learns nothing of it, and is told no harm.
    let folder = tempfile::tempdir().unwrap();
    let program = readable_raddle(folder.path());
    let outcome = world.as_nobody(&program, &[&["doctor", "-j"], &only[..]].concat());
    assert!(
        none(&serde_json::from_str(&outcome.stdout).unwrap()),
        "{}",
        outcome.stdout
    );
    daemon.suspend();
    let (answer, code) = examined(&world, &only);
    found(&answer, "daemon-silent", "warning", "does not answer");
    assert_eq!(code, 0, "it is not serious");
    // Each question of its own would wait.
    let explained = world.raddle(&["explain", "10.9.0.9", "from", "10.1.1.7", "iif", "source"]);
    assert_eq!(
        explained.stderr.matches("does not answer").count(),
        1,
        "{}",
        explained.stderr
    );
    daemon.resume();
    daemon.kill();
    let (answer, _) = within(Duration::from_secs(60), || {
        let answer = examined(&world, &only).0;
        let is_over = answer["findings"][0]["severity"] == "warning";
        if is_over {
            Ok(answer)
        } else {
            Err(format!("{answer:#}"))
        }
    });
    let left = found(&answer, "programs-left", "warning", "links: ");
    assert_eq!(left["fix"], "raddle detach");
    let counters = world.raddle(&["counters"]);
    let told = "programs of an earlier daemon punt everything";
    assert!(counters.stderr.contains(told), "{}", counters.stderr);
    world.raddle(&["detach"]);
    assert!(none(&examined(&world, &only).0));
}
