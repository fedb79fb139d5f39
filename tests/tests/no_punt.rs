//! SIDs and segment lists that only raddle has: the kernel gets nothing that is meant for them.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::time::{Duration, Instant};

use raddle_e2e::tagged::{flow, passed, plain, to_sid};
use raddle_e2e::{Crafted, Daemon, World, root, within};

/// Several lists are a group, and what it chooses by may change.
#[test]
fn lists_leave_nothing_in_the_clear_while_the_key_changes() {
    if !root("lists_leave_nothing_in_the_clear_while_the_key_changes") {
        return;
    }
    let world = World::new("ownlists", 2);
    world.policy(1);
    world.sysctl("net.ipv4.fib_multipath_hash_seed", "4242");
    world.ip("-6 route add 5f00:0:f1::/48 via 2001:db8:2:1::2");
    // The kernel would know a way for what is not encapsulated.
    world.ip("route add 198.51.100.0/24 via 10.2.2.2");
    world.ip("sr tunsrc set 2001:db8:2:1::1");
    let lists =
        "198.51.100.0/24 encap seg6 mode encap segs 5f00:0:f1::1 weight 2 segs 5f00:0:f1::2";
    let daemon = Daemon::start(&world, &["--encap", lists]);
    let frames: Vec<Crafted> = (0..32)
        .map(|n| plain(&world, &flow("198.51.100.9", 1000 + n)))
        .collect();
    let outer =
        |frame: &[u8]| frame[12..14] == [0x86, 0xdd] && frame[38..44] == [0x5f, 0, 0, 0, 0, 0xf1];
    let sent = passed(&world, &frames);
    assert_eq!(sent.len(), 32);
    assert!(sent.iter().all(|frame| outer(frame)));
    // The kernel's own key. Not one of them in the clear, not even while that becomes known.
    world.sysctl("net.ipv4.fib_multipath_hash_seed", "0");
    within(Duration::from_secs(60), || {
        let sent = passed(&world, &frames);
        assert!(sent.iter().all(|frame| outer(frame)), "in the clear");
        match (&daemon.status()["hash_key"], sent.len()) {
            (kind, 32) if kind == "kernel" => Ok(()),
            (kind, n) => Err(format!("{n} packets by key {kind}")),
        }
    });
    daemon.terminate();
}

/// Only packets inside name these hosts, and the kernel gets none of them.
#[test]
fn hosts_behind_own_sids_are_resolved() {
    if !root("hosts_behind_own_sids_are_resolved") {
        return;
    }
    let world = World::new("ownhosts", 1);
    world.ip("route add 10.2.1.0/24 dev sink table 100");
    world.ip("-6 route add 2001:db8:2:1::/64 dev sink table 100");
    let sid = "5f00:0:1::/48 encap seg6local action End.DT46 table 100";
    let daemon = Daemon::start(&world, &["--sid", sid]);
    let (four, six) = world.gateway(1);
    for dst in [four.to_string(), six.to_string()] {
        // What the kernel has begun to ask comes back from a flush, and the daemon hears of it a moment later.
        within(Duration::from_secs(60), || {
            world.ip("neigh flush dev sink nud all");
            let known = world.ip("neigh show dev sink").contains("lladdr");
            let counters = daemon.counters();
            let mut hops = counters["nexthops"].as_array().unwrap().iter();
            match known || hops.any(|hop| hop["via"] == dst && hop["forwards"] == true) {
                true => Err(format!("{dst} is still known: {counters}")),
                false => Ok(()),
            }
        });
        let frame = [to_sid(&world, "5f00:0:1::", &flow(&dst, 99))];
        // The first packet is lost, and makes the kernel ask.
        assert_eq!(passed(&world, &frame).len(), 0, "{dst}");
        within(Duration::from_secs(60), || {
            match passed(&world, &frame).len() {
                1 => Ok(()),
                n => Err(format!("{n} packets to {dst}")),
            }
        });
    }
    daemon.terminate();
}

/// The programs for SRv6 take the verifier seconds; the daemon follows the kernel and answers all the while.
#[test]
fn the_daemon_goes_on_while_programs_load() {
    if !root("the_daemon_goes_on_while_programs_load") {
        return;
    }
    let world = World::new("ownloads", 1);
    let daemon = Daemon::start(&world, &[]);
    let known = || daemon.status()["routes"]["inet"].as_u64().unwrap();
    let (before, begun) = (known(), Instant::now());
    world.ip("-6 route add 5f00:0:1::/48 encap seg6local action End dev sink");
    let mut longest = Duration::ZERO;
    let mut routes = 0;
    while !daemon.log().contains("SRv6 and tunnels are carried out") {
        assert!(
            begun.elapsed() < Duration::from_secs(90),
            "{}",
            daemon.log()
        );
        let asked = Instant::now();
        routes += 1;
        let (high, low) = (100 + routes / 256, routes % 256);
        world.ip(&format!("route add 10.{high}.{low}.0/24 via 10.2.1.2"));
        within(Duration::from_secs(60), || match known() {
            now if now == before + routes => Ok(()),
            now => Err(format!("{now} routes")),
        });
        longest = longest.max(asked.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    let all = begun.elapsed();
    eprintln!("{routes} routes followed in {all:?}, the longest took {longest:?}");
    // A daemon that waits for the verifier follows none until it is done.
    assert!(
        routes > 2 || all < Duration::from_secs(1),
        "{routes} in {all:?}"
    );
    assert!(longest < all / 2 || all < Duration::from_secs(1));
    daemon.terminate();
}

/// What a daemon has that cannot be asked, as it is stopped, is said to be left out, and never taken for nothing.
#[test]
fn what_a_stopped_daemon_has_is_said_to_be_left_out() {
    if !root("what_a_stopped_daemon_has_is_said_to_be_left_out") {
        return;
    }
    let world = World::new("ownleft", 2);
    let daemon = Daemon::start(
        &world,
        &["--sid", "5f00:0:a::1/128 encap seg6local action End"],
    );
    let shown = || world.raddle(&["sr", "show"]);
    let before = shown();
    assert!(before.stdout.contains("5f00:0:a::1"), "{}", before.stdout);
    assert_eq!(before.stderr, "");
    daemon.suspend();
    let why = "does not answer";
    let left = shown();
    assert!(!left.stdout.contains("5f00:0:a::1"), "{}", left.stdout);
    assert!(
        left.stderr.contains("is left out") && left.stderr.contains(why),
        "{}",
        left.stderr
    );
    let flow = "explain 10.9.0.1 from 10.1.1.2 iif source ipproto udp sport 1 dport 2";
    let explained = world.raddle(&flow.split(' ').collect::<Vec<_>>());
    // The text is wrapped.
    let said = explained
        .stdout
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(said.contains(why), "{said}");
    let examined = world.raddle(&["doctor", "--only", "srv6-source"]);
    assert!(examined.stdout.contains("not seen"), "{}", examined.stdout);
    daemon.resume();
    within(Duration::from_secs(60), || {
        match shown().stdout.contains("5f00:0:a::1") {
            true => Ok(()),
            false => Err("the SID is not shown again".to_owned()),
        }
    });
}
