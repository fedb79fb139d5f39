//! The daemon beside programs that want all processors: it follows the kernel all the same, and says how late it was.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use raddle_e2e::{Daemon, Load, World, root, within};

/// A generous limit: machines are busy.
const LIMIT: Duration = Duration::from_secs(60);
/// What a change may take at most with a real-time priority, from the kernel's acknowledgement to the packet that goes
/// the new way.
const ALLOWED: Duration = Duration::from_millis(100);
const TRIALS: usize = 20;

/// Twice as many busy loops as there are processors.
fn loops() -> usize {
    2 * std::thread::available_parallelism().unwrap().get()
}

/// Policies of the scheduler and niceness of a process's threads, for those that have others than this test's, which
/// may itself be run as a nice one.
fn scheduled(pid: u32) -> Vec<(String, i32, i32)> {
    let mut all = Vec::new();
    // SAFETY: no memory is involved.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let path = task.unwrap().path();
        let Ok(stat) = std::fs::read_to_string(path.join("stat")) else {
            continue;
        };
        let (before, after) = stat.rsplit_once(')').unwrap();
        let name = before.split_once('(').unwrap().1.to_owned();
        let fields: Vec<&str> = after.split_whitespace().collect();
        // Fields 19 and 41; `after` begins with the third.
        let (nice, policy) = (fields[16].parse().unwrap(), fields[38].parse().unwrap());
        if (policy, nice) != (libc::SCHED_OTHER, own) {
            all.push((name, policy, nice));
        }
    }
    all.sort();
    all
}

const FOLLOWERS: [&str; 3] = ["announced", "mirror-reader", "raddle"];

fn all(policy: i32, nice: i32) -> Vec<(String, i32, i32)> {
    FOLLOWERS
        .map(|name| (name.to_owned(), policy, nice))
        .to_vec()
}

#[test]
fn threads_that_follow_the_kernel_go_first() {
    if !root("threads_that_follow_the_kernel_go_first") {
        return;
    }
    let world = World::new("first", 2);
    for (priority, expected) in [
        ("nice", all(libc::SCHED_OTHER, -15)),
        ("none", Vec::new()),
        ("realtime", all(libc::SCHED_RR, 0)),
    ] {
        let daemon = Daemon::start(&world, &["--priority", priority]);
        assert_eq!(scheduled(daemon.pid()), expected, "{priority}");
        let status = daemon.status();
        assert_eq!(status["priority"]["have"], priority, "{status}");
        daemon.terminate();
    }
    // Whoever computes for long loses it for a while: the kernel says so by this signal.
    let daemon = Daemon::start(&world, &[]);
    kill(Pid::from_raw(daemon.pid() as i32), Signal::SIGXCPU).unwrap();
    within(LIMIT, || {
        match daemon.status()["priority"]["demotions"].as_u64() {
            Some(1) => Ok(()),
            other => Err(format!("{other:?} demotions")),
        }
    });
    within(LIMIT, || match scheduled(daemon.pid()) {
        // The niceness that it had meanwhile means nothing then.
        now if now == all(libc::SCHED_RR, -15) => Ok(()),
        now => Err(format!("{now:?}")),
    });
    daemon.terminate();
}

/// Changes a route again and again: how long packets went the old way after each change, sorted.
fn lateness(world: &World) -> Vec<Duration> {
    let flow = world.flows(1)[0];
    let frames = world.frames(&[flow]);
    let way = || -> Option<String> {
        let arrived = world.transmit_for(&frames, Duration::from_millis(5));
        Some(arrived[0].first()?.link.clone())
    };
    let mut all = Vec::new();
    let ways: BTreeSet<String> = [world.out(1), world.out(2)].into();
    let (usual, _) = within(LIMIT, || way().ok_or("the packet is lost".to_owned()));
    let other = ways.iter().find(|link| **link != usual).unwrap().clone();
    let gateway = [1, 2].into_iter().find(|n| world.out(*n) == other).unwrap();
    let route = format!("{} via {}", flow.dst, world.gateway(gateway).0);
    for trial in 0..TRIALS {
        let (verb, wanted) = match trial % 2 {
            0 => ("add", &other),
            _ => ("del", &usual),
        };
        world.ip(&format!("route {verb} {route}"));
        let acknowledged = Instant::now();
        let ((), _) = within(LIMIT, || {
            let sent = acknowledged.elapsed();
            match way() {
                Some(link) if link == *wanted => {
                    all.push(sent);
                    Ok(())
                }
                link => Err(format!("{verb}: {link:?}")),
            }
        });
    }
    all.sort_unstable();
    all
}

/// The test itself must not wait for a processor; what it starts does not either.
fn before_all_others() -> bool {
    let parameters = libc::sched_param { sched_priority: 50 };
    // SAFETY: the pointer is to a live structure that the kernel only reads.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &parameters) == 0 }
}

/// The daemon begins as all others.
fn as_all_others() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: as above.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &parameters) };
}

#[test]
fn routes_are_followed_beside_busy_programs() {
    if !root("routes_are_followed_beside_busy_programs") {
        return;
    }
    let world = World::new("starved", 2);
    let frames = world.frames(&world.flows(32));
    for priority in ["none", "realtime"] {
        let daemon = Daemon::start(&world, &["--priority", priority]);
        within(LIMIT, || {
            match (world.transmit(&frames).concat().len(), daemon.forwarded()) {
                (32, 1..) => Ok(()),
                other => Err(format!("{other:?} of 32 packets")),
            }
        });
        let load = Load::busy(loops());
        let measured = before_all_others().then(|| lateness(&world));
        as_all_others();
        drop(load);
        let Some(late) = measured else {
            eprintln!("skipped: real-time priorities are not permitted");
            return;
        };
        let status = daemon.status();
        let lag = &status["lag"];
        let (median, worst) = (late[TRIALS / 2], late[TRIALS - 1]);
        eprintln!(
            "{priority}: {TRIALS} changes beside {} loops, median {median:.1?}, worst {worst:.1?}; the daemon says: {} \
             publications, 99 of 100 within {} us, worst {} us",
            loops(),
            lag["count"],
            lag["p99_microseconds"],
            lag["max_microseconds"],
        );
        assert!(lag["count"].as_u64().unwrap() >= 1, "{lag}");
        if priority == "realtime" {
            assert!(worst <= ALLOWED, "{worst:?}: {late:?}");
        } else {
            // What a daemon without priority is late, it says: packets may go the new way by the kernel before.
            let said = Duration::from_micros(lag["max_microseconds"].as_u64().unwrap());
            eprintln!("said {said:?}, seen {worst:?}");
        }
        daemon.terminate();
    }
}
