//! The daemon comes and goes in mid-traffic: no packet is lost, no flow moves, nothing is left behind.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv4Net};
use raddle_e2e::frame::Flow;
use raddle_e2e::{Daemon, Stream, StreamReport, StreamState, World, root, within};
use raddle_rib::event::{Event, Route, RouteTarget};

const FLOWS: u16 = 64;
const RATE: u32 = 5000;

/// Sends a steady stream while `body` runs, and accounts for it.
fn under_traffic(world: &World, flows: &[Flow], body: impl FnOnce(&Stream<'_>)) -> StreamReport {
    let state = StreamState::default();
    std::thread::scope(|scope| {
        let stream = Stream::start(scope, world, &state, flows, RATE);
        // The thread has to end before a failure of `body` can be told.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&stream)));
        let report = stream.end();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        report
    })
}

fn unharmed(world: &World, report: &StreamReport) {
    let StreamReport {
        sent,
        lost,
        twice,
        links,
        reordered,
    } = report;
    eprintln!("{sent} packets, {} lost, {reordered} overtaken", lost.len());
    assert!(*sent > 1000, "only {sent} packets were sent");
    assert!(
        lost.is_empty(),
        "{} of {sent} packets lost, the first {:?}; wires: {}",
        lost.len(),
        &lost[..lost.len().min(20)],
        world.wire_drops()
    );
    assert_eq!(*twice, 0, "packets arrived twice");
    for (flow, links) in links.iter().enumerate() {
        assert_eq!(links.len(), 1, "flow {flow} moved: {links:?}");
    }
    let used: std::collections::BTreeSet<_> = links.iter().flatten().collect();
    assert!(used.len() > 1, "only {used:?} were used");
}

fn pause(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

/// Waits until the engine forwards what comes.
fn takes_over(world: &World, daemon: &Daemon<'_>) {
    let before = daemon.forwarded();
    within(Duration::from_secs(60), || match daemon.forwarded() {
        now if now > before + 100 => Ok(()),
        now => Err(format!("{before} packets forwarded before, {now} now")),
    });
    let kernel = world.kernel_forwarded();
    pause(100);
    assert_eq!(
        world.kernel_forwarded(),
        kernel,
        "the kernel still forwards"
    );
}

#[test]
fn coming_and_going_harms_no_packet() {
    if !root("coming_and_going_harms_no_packet") {
        return;
    }
    let world = World::new("life", 3);
    let flows = world.flows(FLOWS);
    let report = under_traffic(&world, &flows, |_| {
        pause(300);
        let daemon = Daemon::start(&world, &[]);
        takes_over(&world, &daemon);
        pause(500);
        daemon.terminate();
        assert_eq!(world.attached(), [""; 0], "after SIGTERM");
        pause(300);
        let daemon = Daemon::start(&world, &[]);
        takes_over(&world, &daemon);
        daemon.kill();
        within(Duration::from_millis(500), || match world.attached() {
            links if links.is_empty() => Ok(()),
            links => Err(format!("still attached after SIGKILL: {links:?}")),
        });
        let kernel = world.kernel_forwarded();
        pause(300);
        assert!(world.kernel_forwarded() > kernel, "nobody forwards");
        // What the dead daemon left (its socket) is not in the way of the next one.
        Daemon::start(&world, &[]).terminate();
    });
    unharmed(&world, &report);
}

#[test]
fn generic_mode_harms_no_packet_either() {
    if !root("generic_mode_harms_no_packet_either") {
        return;
    }
    let mut world = World::new("generic", 2);
    world.send_directly();
    let flows = world.flows(FLOWS);
    let report = under_traffic(&world, &flows, |_| {
        let daemon = Daemon::start(&world, &["--mode", "generic"]);
        assert_eq!(daemon.status()["links"][0]["mode"], "generic");
        pause(500);
        takes_over(&world, &daemon);
        pause(300);
        daemon.terminate();
        pause(200);
    });
    unharmed(&world, &report);
}

#[test]
fn programs_that_are_kept_forward_for_a_while() {
    if !root("programs_that_are_kept_forward_for_a_while") {
        return;
    }
    let world = World::new("keep", 3);
    let flows = world.flows(FLOWS);
    let keep = ["--on-exit", "keep", "--deadline", "2"];
    let report = under_traffic(&world, &flows, |stream| {
        for end in [Daemon::terminate, Daemon::kill] {
            let daemon = Daemon::start(&world, &keep);
            takes_over(&world, &daemon);
            // The deadline is moved twice a second: 1.5 to 2 s are left.
            end(daemon);
            let gone = Instant::now();
            assert_eq!(world.attached().len(), 4, "all links stay attached");
            let kernel = world.kernel_forwarded();
            pause(400);
            assert_eq!(
                world.kernel_forwarded(),
                kernel,
                "the kernel forwards already"
            );
            let (_, _) = within(Duration::from_secs(60), || match world.kernel_forwarded() {
                now if now > kernel => Ok(()),
                _ => Err("the programs still forward".into()),
            });
            let after = gone.elapsed();
            assert!(
                after > Duration::from_millis(900),
                "punted after {after:?} already"
            );
            assert!(
                after < Duration::from_millis(2500),
                "punted after {after:?} only"
            );
        }
        // A new daemon takes over what is attached, and takes it along when it goes.
        let daemon = Daemon::start(&world, &keep);
        assert!(daemon.log().contains("taking over"), "{}", daemon.log());
        // Far more than the links' own chatter.
        let plenty = 3000;
        within(Duration::from_secs(60), || match daemon.forwarded() {
            now if now > plenty => Ok(()),
            now => Err(format!("{now} packets forwarded")),
        });
        daemon.kill();
        // The next one gives out numbers anew: what was counted by them is not its nexthops' and links'.
        let before = stream.sent();
        let daemon = Daemon::start(&world, &keep);
        takes_over(&world, &daemon);
        let (forwarded, received) = (daemon.forwarded(), daemon.received());
        let sent = stream.sent() - before;
        assert!(forwarded <= received, "{forwarded} of {received} packets");
        assert!(
            received < sent + plenty,
            "{received} packets since {sent} were sent"
        );
        daemon.kill();
        let daemon = Daemon::start(&world, &["--on-exit", "detach"]);
        takes_over(&world, &daemon);
        daemon.terminate();
        assert_eq!(world.attached(), [""; 0]);
    });
    unharmed(&world, &report);
}

/// Routes come and go by thousands, also those that the traffic uses, always to the same nexthops.
#[test]
fn churn_harms_no_packet() {
    if !root("churn_harms_no_packet") {
        return;
    }
    let world = World::new("churn", 3);
    let flows = world.flows(FLOWS);
    let hops4 = "nexthop via 10.2.1.2 nexthop via 10.2.2.2 nexthop via 10.2.3.2";
    let hops6 =
        "nexthop via 2001:db8:2:1::2 nexthop via 2001:db8:2:2::2 nexthop via 2001:db8:2:3::2";
    let route = |n: u32| Route {
        dst: IpNet::V4(Ipv4Net::new_assert(
            Ipv4Addr::from(0x0a09_0000 + n * 16),
            28,
        )),
        protocol: 186,
        target: RouteTarget::Object(if n & 1 == 0 { 100 } else { 101 }),
        ..Route::default()
    };
    for n in 1..=3 {
        let (gateway, _) = world.gateway(n);
        world.ip(&format!(
            "nexthop add id {n} via {gateway} dev {}",
            world.out(n)
        ));
    }
    world.ip("nexthop add id 100 group 1/2/3");
    world.ip("nexthop add id 101 group 1/2/3");
    let daemon = Daemon::start(&world, &[]);
    let report = under_traffic(&world, &flows, |_| {
        takes_over(&world, &daemon);
        let kernel = world.kernel_forwarded();
        for _ in 0..8 {
            // 4096 more specific routes, a dozen of which the traffic takes; and other lengths.
            world
                .netlink(|s| s.install_routes((0..4096).map(route)))
                .unwrap();
            for (family, prefixes, hops) in [
                ("-4", ["10.9.0.0/24", "10.9.0.0/25", "10.9.0.128/25"], hops4),
                (
                    "-6",
                    ["2001:db8:9::/64", "2001:db8:9::/96", "2001:db8:9::/119"],
                    hops6,
                ),
            ] {
                for verb in ["add", "replace", "del"] {
                    for prefix in prefixes {
                        world.ip(&format!("{family} route {verb} {prefix} {hops}"));
                    }
                }
            }
            world.netlink(|s| {
                for n in 0..4096 {
                    s.apply(&Event::RouteGone(route(n)), 0).unwrap();
                }
            });
        }
        assert_eq!(
            world.kernel_forwarded(),
            kernel,
            "the kernel forwarded some"
        );
    });
    unharmed(&world, &report);
}

/// Programs that are to be kept would stay when the daemon, having attached them, cannot go on.
#[test]
fn a_start_that_fails_leaves_nothing_attached() {
    if !root("a_start_that_fails_leaves_nothing_attached") {
        return;
    }
    let world = World::new("taken", 2);
    let taken = world.lab().within("router", || {
        std::net::TcpListener::bind("127.0.0.1:9409").unwrap()
    });
    let run = ["run", "--on-exit", "keep", "--metrics", "127.0.0.1:9409"];
    let outcome = world.raddle(&run);
    assert_eq!(outcome.code, Some(3), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("127.0.0.1:9409"),
        "{}",
        outcome.stderr
    );
    assert_eq!(world.attached(), [""; 0], "{}", outcome.stderr);
    drop(taken);
}

/// It would end a program that does not take it, with a code that systemd counts as a good end.
#[test]
fn a_hangup_changes_nothing_and_says_so() {
    if !root("a_hangup_changes_nothing_and_says_so") {
        return;
    }
    let world = World::new("hangup", 2);
    let daemon = Daemon::start(&world, &[]);
    daemon.hang_up();
    within(Duration::from_secs(60), || {
        match daemon.log().contains("SIGHUP changes nothing") {
            true => Ok(()),
            false => Err(daemon.log()),
        }
    });
    assert!(daemon.status().is_object());
    daemon.terminate();
}

/// Else nobody learns of it: programs and counters of the others are as they were.
#[test]
fn a_named_link_that_goes_is_warned_of_until_it_is_back() {
    if !root("a_named_link_that_goes_is_warned_of_until_it_is_back") {
        return;
    }
    let world = World::new("gone", 2);
    let link = world.out(2);
    let other = world.out(1);
    let daemon = Daemon::start(&world, &["--link", &link, "--link", &other]);
    let warned = || {
        let warnings = daemon.status()["warnings"].to_string();
        warnings.contains("there is no such link now")
    };
    let until = |wanted: bool| {
        within(Duration::from_secs(60), || match warned() == wanted {
            true => Ok(()),
            false => Err(daemon.log()),
        });
    };
    until(false);
    let rename = |from: &str, to: &str| {
        world.ip(&format!("link set {from} down"));
        world.ip(&format!("link set {from} name {to}"));
        world.ip(&format!("link set {to} up"));
    };
    rename(&link, "away");
    until(true);
    let line = format!("WARN link {link}: there is no such link now: nothing is forwarded from it");
    assert!(daemon.log().contains(&line), "{}", daemon.log());
    rename("away", &link);
    until(false);
    let line = format!("no longer: link {link}: there is no such link now");
    assert!(daemon.log().contains(&line), "{}", daemon.log());
    daemon.terminate();
}
