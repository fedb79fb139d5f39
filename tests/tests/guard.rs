//! Never around the firewall, also when nobody is there to look: what daemons that hang, or are gone, leave
//! forwarding has a deadline.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use raddle_e2e::frame::Flow;
use raddle_e2e::{Arrival, Crafted, Daemon, Outcome, World, frame, readable_raddle, root, within};
use serde_json::Value;

/// A generous limit: machines are busy.
const LIMIT: Duration = Duration::from_secs(60);
/// The default deadline, and how coarse the clock is that programs go by.
const DEADLINE: Duration = Duration::from_millis(2000 + 20);

fn nft(world: &World, words: &str) {
    let output = world.lab().output("router", &["nft", words]).unwrap();
    assert!(
        output.status.success(),
        "{words}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn close(world: &World) {
    nft(world, "add table inet guard");
    nft(
        world,
        "add chain inet guard passing { type filter hook forward priority 0; policy accept; }",
    );
    nft(world, "add rule inet guard passing udp dport 30000 drop");
}

fn open(world: &World) {
    nft(world, "delete table inet guard");
}

/// How many of these frames come through.
fn arrive(world: &World, frames: &[Crafted]) -> usize {
    world.transmit(frames).iter().flatten().count()
}

/// Sends until nothing has come through for longer than a deadline. When, after `start`, the last frames were sent
/// of which any did.
fn last_passed(world: &World, frames: &[Crafted], start: Instant) -> Duration {
    let mut last = Duration::ZERO;
    let mut silent = 0;
    while start.elapsed() < 2 * DEADLINE || silent < 5 {
        assert!(start.elapsed() < LIMIT, "packets pass for ever");
        let sent = start.elapsed();
        match arrive(world, frames) {
            0 => silent += 1,
            _ => (last, silent) = (sent, 0),
        }
    }
    last
}

#[test]
fn a_daemon_that_hangs_goes_around_no_rule() {
    if !root("a_daemon_that_hangs_goes_around_no_rule") {
        return;
    }
    let world = World::new("hang", 2);
    let frames = world.frames(&world.flows(32));
    for on_exit in ["detach", "keep"] {
        let daemon = Daemon::start(&world, &["--on-exit", on_exit]);
        within(LIMIT, || {
            match (arrive(&world, &frames), daemon.forwarded()) {
                (32, 1..) => Ok(()),
                other => Err(format!("{other:?} of 32 packets")),
            }
        });
        let stopped = Instant::now();
        daemon.suspend();
        close(&world);
        let last = last_passed(&world, &frames, stopped);
        eprintln!("{on_exit}: packets passed for {last:?} after the daemon was stopped");
        assert!(last <= DEADLINE, "packets passed for {last:?}");

        // It notices before it lets anything pass again.
        daemon.resume();
        within(LIMIT, || {
            assert_eq!(arrive(&world, &frames), 0, "around the rule");
            let status = daemon.status();
            match status["state"].as_str() {
                Some("held") if status["deadline"]["lapses"] == 1 => Ok(()),
                _ => Err(status.to_string()),
            }
        });
        assert!(daemon.log().contains("did not look at the firewall"));
        open(&world);
        let before = daemon.forwarded();
        within(LIMIT, || {
            match (arrive(&world, &frames), daemon.forwarded()) {
                (32, now) if now > before => Ok(()),
                other => Err(format!("{other:?} of 32 packets after the rule was gone")),
            }
        });
        daemon.terminate();
        let _ = world.raddle(&["detach"]);
    }
}

#[test]
fn programs_that_are_kept_go_around_no_rule() {
    if !root("programs_that_are_kept_go_around_no_rule") {
        return;
    }
    let world = World::new("orphan", 2);
    let frames = world.frames(&world.flows(32));
    let keep = ["--on-exit", "keep"];
    for end in [Daemon::kill, Daemon::terminate] {
        let daemon = Daemon::start(&world, &keep);
        within(LIMIT, || {
            match (arrive(&world, &frames), daemon.forwarded()) {
                (32, 1..) => Ok(()),
                other => Err(format!("{other:?} of 32 packets")),
            }
        });
        let ended = Instant::now();
        end(daemon);
        // A daemon that is asked to end looks once more.
        let slack = ended.elapsed();
        close(&world);
        let last = last_passed(&world, &frames, ended);
        eprintln!("packets passed for {last:?}; the daemon took {slack:?} to end");
        assert!(last <= DEADLINE + slack, "packets passed for {last:?}");
        assert_eq!(
            world.attached().len(),
            3,
            "programs stay for the next daemon"
        );
        open(&world);
        assert_eq!(arrive(&world, &frames), 32, "the kernel forwards");
    }
    let daemon = Daemon::start(&world, &keep);
    assert!(daemon.log().contains("taking over"), "{}", daemon.log());
    let before = daemon.forwarded();
    within(LIMIT, || {
        match (arrive(&world, &frames), daemon.forwarded()) {
            (32, now) if now > before => Ok(()),
            other => Err(format!("{other:?} of 32 packets after the take-over")),
        }
    });
    daemon.terminate();
    let _ = world.raddle(&["detach"]);
}

/// Changes a route so often, and in so many words, that the mirror's buffer for notifications overflows while nobody reads them: they take
/// some 1280 bytes of 128 MiB each.
fn flood(world: &World) {
    let line = |hops| {
        let hops = " nexthop via 10.2.1.2".repeat(hops);
        format!("route replace 10.77.0.0/16{hops}\n")
    };
    // One that changes nothing is told to nobody.
    let both = line(31) + &line(32);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for _ in 0..65_000 {
        file.write_all(both.as_bytes()).unwrap();
    }
    world.ip(&format!("-batch {}", file.path().display()));
}

/// What no longer fits into the buffer are the latest changes: those that what is there is forwarded by, though the deadline is far.
#[test]
fn nothing_goes_by_what_lost_notifications_have_changed() {
    if !root("nothing_goes_by_what_lost_notifications_have_changed") {
        return;
    }
    // Until the stopped daemon has a processor again.
    const WAKING: Duration = Duration::from_millis(300);
    let world = World::new("lostnews", 2);
    let send_by = |n: u32| world.ip(&format!("route replace 172.20.1.0/24 via 10.2.{n}.2"));
    send_by(1);
    let flows = (0..32).map(|n| Flow {
        src: [10, 1, 1, 2].into(),
        dst: [172, 20, 1, 9].into(),
        proto: 17,
        sport: 20_000 + n,
        dport: 30_000,
    });
    let frames = world.frames(&flows.collect::<Vec<_>>());
    let arrive_by = |n: u32| {
        let arrivals = world.transmit(&frames);
        let by = |arrival: &&Arrival| arrival.link == world.out(n);
        arrivals.iter().flatten().filter(by).count()
    };
    let daemon = Daemon::start(&world, &["--deadline", "60"]);
    let forwards = |n: u32| {
        let before = daemon.forwarded();
        within(LIMIT, || match (arrive_by(n), daemon.forwarded()) {
            (32, now) if now >= before + 32 => Ok(()),
            other => Err(format!("{other:?} of 32 packets by {n}")),
        });
    };
    forwards(1);
    daemon.suspend();
    flood(&world);
    send_by(2);
    assert_eq!(arrive_by(1), 32, "it cannot know");
    daemon.resume();
    let resumed = Instant::now();
    let mut last = Duration::ZERO;
    while resumed.elapsed() < 10 * WAKING {
        let sent = resumed.elapsed();
        if arrive_by(1) > 0 {
            last = sent;
        }
    }
    eprintln!("packets passed for {last:?} after the daemon went on");
    assert!(last <= WAKING, "packets passed for {last:?}");
    forwards(2);
    let status = daemon.status();
    assert!(status["mirror"]["overruns"].as_u64() > Some(0), "{status}");
    assert_eq!(status["state"], "forwarding", "{status}");
    assert_eq!(status["deadline"]["lapses"], 0, "{status}");
    daemon.terminate();
}

/// IPv4 frames of these as first fragments, whose other fragments never come.
fn fragments(frames: &[Crafted]) -> Vec<Crafted> {
    let ipv4 = frames.iter().filter(|f| f.bytes[12..14] == [8, 0]);
    ipv4.map(|whole| {
        let mut fragment = whole.clone();
        // More fragments.
        fragment.bytes[20] = 0x20;
        frame::seal(&mut fragment.bytes[14..34]);
        fragment
    })
    .collect()
}

/// A rule for input that looks at connections has the kernel reassemble what it forwards.
#[test]
fn tracking_for_input_is_honoured() {
    if !root("tracking_for_input_is_honoured") {
        return;
    }
    let world = World::new("tracked", 2);
    let node = |command: &str| world.lab().output("router", &["sh", "-c", command]);
    let whole = world.frames(&world.flows(32));
    let fragments = fragments(&whole);
    assert_eq!(fragments.len(), 16);
    assert_eq!(
        arrive(&world, &fragments),
        16,
        "the kernel forwards fragments"
    );
    let daemon = Daemon::start(&world, &[]);
    for (on, off, said) in [
        (
            "nft 'add table inet own; add chain inet own in { type filter hook input priority 0; }; \
             add rule inet own in ct state established accept'",
            "nft delete table inet own",
            "nftables rule inet own in",
        ),
        (
            "iptables-nft -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT",
            "nft delete table ip filter",
            "nftables rule ip filter INPUT",
        ),
        (
            "iptables-legacy -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT",
            "iptables-legacy -F INPUT",
            "iptables-legacy table filter (-m conntrack)",
        ),
        (
            "nft 'add table ip6 own; add chain ip6 own in { type filter hook input priority 0; }; \
             add rule ip6 own in ct state established accept'",
            "nft delete table ip6 own",
            "nftables rule ip6 own in",
        ),
        (
            "ip6tables-legacy -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT",
            "ip6tables-legacy -F INPUT",
            "ip6tables-legacy table filter (-m conntrack)",
        ),
    ] {
        if !node(on).unwrap().status.success() {
            eprintln!("skipped: '{on}' does not work here");
            continue;
        }
        within(LIMIT, || {
            let status = daemon.status();
            let why = status["punted"].to_string();
            match why.contains(said) && why.contains("connection tracking") {
                true => Ok(()),
                false => Err(format!("{said}: {status}")),
            }
        });
        let before = daemon.forwarded();
        assert_eq!(arrive(&world, &whole), 32, "{said}: what is whole");
        assert_eq!(daemon.forwarded() - before, 32, "{said}");
        if !said.contains("ip6") {
            assert_eq!(
                arrive(&world, &fragments),
                0,
                "{said}: incomplete, as by the kernel"
            );
        }
        let checked = world.raddle(&["run", "--check"]).stdout;
        let fragments = "would be left to the kernel: IPv";
        assert!(
            checked.contains(fragments) && checked.contains(said),
            "{checked}"
        );
        assert!(node(off).unwrap().status.success(), "{off}");
        let before = daemon.forwarded();
        within(LIMIT, || {
            match (arrive(&world, &whole), daemon.forwarded()) {
                (32, now) if now > before => Ok(()),
                other => Err(format!("{other:?} of 32 packets after {off}")),
            }
        });
    }
    daemon.terminate();
}

/// Killed at the end, also of a test that fails.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The capabilities that the unit gives the daemon, as setpriv writes them.
fn of_the_unit() -> String {
    let unit = include_str!("../../packaging/raddle.service");
    let line = unit
        .lines()
        .find_map(|l| l.strip_prefix("AmbientCapabilities="));
    let names = line.unwrap().split(' ');
    let names = names.map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase()));
    names.collect()
}

/// With the capabilities that the documentation names, any user may run the daemon: it forwards, and sees firewalls
/// of every kind.
#[test]
fn any_user_with_the_documented_capabilities() {
    if !root("any_user_with_the_documented_capabilities") {
        return;
    }
    let world = World::new("anybody", 2);
    let frames = world.frames(&world.flows(32));
    let folder = tempfile::tempdir().unwrap();
    let program = readable_raddle(folder.path());
    Command::new("chmod")
        .arg("777")
        .arg(folder.path())
        .status()
        .unwrap();
    let documented = ",+net_admin,+bpf,+perfmon".to_owned();
    for (name, capabilities) in [("documented", documented), ("unit", of_the_unit())] {
        let socket = folder.path().join(name);
        // As the unit's RuntimeDirectory=.
        let run = format!(
            "mount -t tmpfs -o uid=65534,gid=65534,mode=0755 tmpfs /run/raddle && \
             exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all{capabilities} \
             --ambient-caps=-all{capabilities} --bounding-set=-all{capabilities} \
             {} run --socket {}",
            program.display(),
            socket.display()
        );
        let mut command = world.lab().command("router", "unshare").unwrap();
        command.args(["--mount", "sh", "-c", &run]);
        std::fs::create_dir_all("/run/raddle").unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut daemon = Process(command.stdin(Stdio::null()).stderr(log).spawn().unwrap());
        let ask = |what: &str| -> Result<Value, String> {
            let answer = world.raddle(&[what, "-j", "--socket", socket.to_str().unwrap()]);
            serde_json::from_str(&answer.stdout).map_err(|_| answer.stderr)
        };
        let (status, _) = within(LIMIT, || {
            let ended = daemon.0.try_wait().unwrap();
            let log = || std::fs::read_to_string(folder.path().join("log")).unwrap();
            assert!(ended.is_none(), "{name}: {ended:?}: {}", log());
            ask("status")
        });
        assert_eq!(status["state"], "forwarding", "{name}: {status}");
        let forwarded = || -> u64 {
            let counters = ask("counters").unwrap();
            let nexthops = counters["nexthops"].as_array().unwrap();
            nexthops
                .iter()
                .map(|n| n["packets"].as_u64().unwrap())
                .sum()
        };
        within(LIMIT, || match (arrive(&world, &frames), forwarded()) {
            (32, 1..) => Ok(()),
            other => Err(format!("{name}: {other:?}")),
        });
        for (on, off, said) in [
            (
                "iptables-legacy -P FORWARD DROP",
                "iptables-legacy -P FORWARD ACCEPT",
                "iptables-legacy",
            ),
            (
                "ip6tables-legacy -A FORWARD -j DROP",
                "ip6tables-legacy -F FORWARD",
                "ip6tables-legacy",
            ),
        ] {
            let shell = |words: &str| world.lab().output("router", &["sh", "-c", words]).unwrap();
            if !shell(on).status.success() {
                eprintln!("skipped: '{on}' does not work here");
                continue;
            }
            within(LIMIT, || {
                let status = ask("status")?;
                match status["punted"].to_string().contains(said) {
                    true => Ok(()),
                    false => Err(format!("{name}: {said}: {status}")),
                }
            });
            assert!(shell(off).status.success());
        }
    }
}

/// The units' sandboxes, by systemd's own measure (in tenths).
#[test]
fn the_units_are_confined() {
    let folder = tempfile::tempdir().unwrap();
    for (name, unit) in [
        (
            "raddle.service",
            include_str!("../../packaging/raddle.service"),
        ),
        (
            "raddle-rpc.service",
            include_str!("../../packaging/raddle-rpc.service"),
        ),
    ] {
        let path = folder.path().join(name);
        let unit = unit
            .replace("@RUN@", "/bin/true")
            .replace("@RPC@", "/bin/true");
        std::fs::write(&path, unit).unwrap();
        let mut command = Command::new("systemd-analyze");
        command
            .args(["security", "--offline=true", "--threshold=39"])
            .arg(&path);
        if command.output().is_err() {
            eprintln!("skipped: there is no systemd-analyze");
            return;
        }
        let outcome = Outcome::of(&mut command);
        assert_eq!(
            outcome.code,
            Some(0),
            "{name}: {}{}",
            outcome.stdout,
            outcome.stderr
        );
    }
}
