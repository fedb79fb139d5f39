//! The rest of what a user does: real connections, neighbours that age, the hash seed, metrics,
//! captures.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use raddle_e2e::frame::identity;
use raddle_e2e::{Daemon, Outcome, World, raddle, root, within};
use raddle_io::Reader;
use serde_json::Value;

#[test]
fn sockets_talk_through_it() {
    if !root("sockets_talk_through_it") {
        return;
    }
    const SIZE: usize = 16 << 20;
    let world = World::new("sockets", 2);
    let daemon = Daemon::start(&world, &[]);
    for (listen, name) in [("10.9.0.1:7000", "IPv4"), ("[2001:db8:9::1]:7000", "IPv6")] {
        let lab = world.lab();
        let listener = lab
            .within("sink", || TcpListener::bind(listen))
            .unwrap()
            .unwrap();
        let before = daemon.forwarded();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let mut bytes = Vec::new();
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_to_end(&mut bytes).unwrap();
                // A sum that depends on the order.
                let sum = bytes
                    .iter()
                    .fold(0u64, |s, b| s.wrapping_mul(31).wrapping_add((*b).into()));
                stream.write_all(&sum.to_be_bytes()).unwrap();
                bytes.len()
            });
            let bytes: Vec<u8> = (0..SIZE).map(|n| ((n * n) >> 7) as u8).collect();
            let sum = bytes
                .iter()
                .fold(0u64, |s, b| s.wrapping_mul(31).wrapping_add((*b).into()));
            let mut stream = lab
                .within("source", || TcpStream::connect(listen))
                .unwrap()
                .unwrap();
            stream.write_all(&bytes).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = [0; 8];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(u64::from_be_bytes(answer), sum, "{name}");
            assert_eq!(server.join().unwrap(), SIZE);
        });
        let packets = daemon.forwarded() - before;
        eprintln!("{name}: {SIZE} bytes in {packets} packets through raddle");
        // Segments of 1448 bytes there, and acknowledgements back.
        assert!(packets > SIZE as u64 / 1448, "{name}: {packets}");
    }
    assert_eq!(daemon.reason("bad-checksum"), 0);
}

#[test]
fn neighbours_are_resolved_and_kept() {
    if !root("neighbours_are_resolved_and_kept") {
        return;
    }
    let world = World::new("ageing", 2);
    for family in ["ipv4", "ipv6"] {
        world.sysctl(
            &format!("net.{family}.neigh.sink.delay_first_probe_time"),
            "1",
        );
    }
    for dev in ["sink", "sink-2"] {
        world.ip(&format!("neigh flush dev {dev} nud all"));
    }
    let frames = world.frames(&world.flows(64));
    let daemon = Daemon::start(&world, &[]);
    // The kernel gets the first packets, and asks.
    within(Duration::from_secs(60), || {
        let before = daemon.forwarded();
        world.transmit(&frames);
        match daemon.forwarded() - before {
            64 => Ok(()),
            n => Err(format!("{n} of 64 packets forwarded")),
        }
    });
    // The kernel sees nothing of what goes there, and still has it confirmed.
    world.neighbours(1, "stale");
    within(Duration::from_secs(60), || {
        world.transmit(&frames);
        let shown: Value = serde_json::from_str(&world.ip("-j neigh show dev sink")).unwrap();
        let of = |address: String| {
            let entry = shown
                .as_array()
                .unwrap()
                .iter()
                .find(|n| n["dst"] == *address);
            entry.map_or(Value::Null, |n| n["state"][0].clone())
        };
        let (four, six) = world.gateway(1);
        match (of(four.to_string()), of(six.to_string())) {
            (a, b) if a == "REACHABLE" && b == "REACHABLE" => Ok(()),
            states => Err(format!("{states:?}")),
        }
    });
}

#[test]
fn a_seed_is_set_once() {
    if !root("a_seed_is_set_once") {
        return;
    }
    const SEED: &str = "net.ipv4.fib_multipath_hash_seed";
    let world = World::new("seed", 2);
    let frames = world.frames(&world.flows(64));
    world.sysctl(SEED, "0");
    let daemon = Daemon::start(&world, &["--seed", "random"]);
    let seed = world.node("router", "sysctl -n net.ipv4.fib_multipath_hash_seed");
    assert_ne!(seed.trim(), "0");
    let arrived = world.transmit(&frames);
    for (frame, arrivals) in frames.iter().zip(&arrived) {
        let link = world.kernel_choice(&frame.flow.unwrap());
        assert_eq!(
            arrivals.first().map(|a| a.link.clone()),
            link,
            "{:?}",
            frame.flow
        );
    }
    assert_eq!(daemon.forwarded(), 64);
    daemon.terminate();
    // One that is set is left alone.
    Daemon::start(&world, &["--seed", "77"]).terminate();
    assert_eq!(
        world.node("router", "sysctl -n net.ipv4.fib_multipath_hash_seed"),
        seed
    );
}

#[test]
fn it_can_be_asked() {
    if !root("it_can_be_asked") {
        return;
    }
    let world = World::new("asked", 2);
    let checked = world.raddle(&["run", "--check"]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(
        checked.stdout.contains("link source: would be attached"),
        "{}",
        checked.stdout
    );
    assert_eq!(world.attached(), [""; 0]);

    let daemon = Daemon::start(&world, &["--metrics", "127.0.0.1:9409"]);
    // What would keep a second one from starting is found, after what there is to say.
    let checked = world.raddle(&["run", "--check"]);
    assert_eq!(checked.code, Some(3), "{}", checked.stdout);
    assert!(checked.stdout.contains("link source: would be attached"));
    assert!(
        checked.stderr.contains("already runs"),
        "{}",
        checked.stderr
    );
    let frames = world.frames(&world.flows(64));
    world.transmit(&frames);
    let text = |arguments: &[&str]| {
        let outcome = world.raddle(arguments);
        assert_eq!(outcome.code, Some(0), "{arguments:?}: {}", outcome.stderr);
        outcome.stdout
    };
    assert!(
        text(&["status"]).contains("forwarding"),
        "{}",
        text(&["status"])
    );
    assert!(
        text(&["counters"]).contains("received on source"),
        "{}",
        text(&["counters"])
    );
    // The same words as ip(8).
    assert_eq!(
        text(&["route", "show", "10.9.0.0/16"]),
        world.ip("route show 10.9.0.0/16")
    );
    assert_eq!(
        text(&["neigh", "show", "dev", "sink"]),
        world.ip("neigh show dev sink")
    );

    let metrics = world.lab().within("router", || {
        let mut stream = TcpStream::connect("127.0.0.1:9409").unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    });
    let metrics = metrics.unwrap();
    assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
    let sum: f64 = metrics
        .lines()
        .filter(|line| {
            line.starts_with("raddle_") && line.contains("nexthop") && line.contains("packets")
        })
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum();
    assert_eq!(sum, 64.0, "{metrics}");
    // Links that nothing passes are told as such.
    let out_of = |state: &str, out: bool| {
        within(Duration::from_secs(60), || {
            let status = daemon.status();
            let links = status["links"].as_array().unwrap();
            let link = links.iter().find(|l| l["dev"] == "sink-2").unwrap();
            match link["state"] == state && link["out"] == out {
                true => Ok(()),
                false => Err(link.to_string()),
            }
        })
    };
    out_of("up", true);
    world.lab().link_down(world.plug(2)).unwrap();
    out_of("no carrier", true);
    world.ip("link set sink-2 down");
    out_of("down", false);
    let status = text(&["status"]);
    assert!(status.contains("link sink-2 (down): native"), "{status}");
    daemon.terminate();
    let checked = world.raddle(&["run", "--check"]).stdout;
    assert!(
        checked.contains("link sink-2 (down): would be attached"),
        "{checked}"
    );
    let gone = world.raddle(&["status"]);
    assert_eq!(gone.code, Some(3));
    assert!(gone.stderr.contains("raddle run"), "{}", gone.stderr);
}

#[test]
fn kept_programs_are_seen_and_removed() {
    if !root("kept_programs_are_seen_and_removed") {
        return;
    }
    let world = World::new("kept", 2);
    let keep = ["--on-exit", "keep", "--deadline", "20"];
    let daemon = Daemon::start(&world, &keep);
    // A daemon's programs are its own.
    let refused = world.raddle(&["detach"]);
    assert_eq!(refused.code, Some(3));
    assert!(
        refused.stderr.contains("already runs"),
        "{}",
        refused.stderr
    );
    daemon.terminate();
    let status = world.raddle(&["status", "-j"]);
    assert_eq!(status.code, Some(3), "no daemon");
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["state"], "kept");
    let left = status["forwards_for_seconds"].as_u64().unwrap();
    assert!((1..=20).contains(&left), "{status}");
    assert_eq!(status["links"].as_array().unwrap().len(), 3, "{status}");
    let said = world.raddle(&["status"]).stdout;
    assert!(
        said.contains("link source: native") && said.contains("raddle detach"),
        "{said}"
    );

    let detached = world.raddle(&["detach"]);
    assert_eq!(detached.code, Some(0), "{}", detached.stderr);
    assert!(
        detached.stdout.contains("link source: detached"),
        "{}",
        detached.stdout
    );
    assert_eq!(world.attached(), [""; 0]);
    let nothing = world.raddle(&["detach"]);
    assert!(
        nothing.stdout.contains("no programs are kept"),
        "{}",
        nothing.stdout
    );
    assert_eq!(world.raddle(&["status"]).stdout, "");
}

#[test]
fn a_capture_is_replayed() {
    if !root("a_capture_is_replayed") || !tcpdump() {
        return;
    }
    let world = World::new("replay", 3);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut tcpdump = world.lab().command("router", "tcpdump").unwrap();
    let mut capture = tcpdump
        .args([
            "-i",
            "source",
            "-U",
            "--immediate-mode",
            // Whole frames here, in a ring that holds them all.
            "-s",
            "2048",
            "-B",
            "16384",
            "-Z",
            "root",
            "-w",
            &path("in.pcap"),
            "udp",
        ])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(capture.stderr.take().unwrap());
    let listens = said
        .lines()
        .map(Result::unwrap)
        .any(|line| line.contains("listening on"));
    assert!(listens);
    let frames = world.frames(&world.flows(100));
    let kernel = world.transmit(&frames);
    // While it writes, the file may end within a record.
    within(Duration::from_secs(60), || {
        let reader = Reader::open(path("in.pcap")).map_err(|e| e.to_string())?;
        match reader.filter(Result::is_ok).count() {
            100 => Ok(()),
            n => Err(format!("{n} packets captured")),
        }
    });
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(capture.id() as i32),
        nix::sys::signal::Signal::SIGINT,
    )
    .unwrap();
    capture.wait().unwrap();

    // By the live kernel's state, and by a snapshot elsewhere.
    let live = world.raddle(&[
        "replay",
        "-j",
        "--iif",
        "source",
        "--out",
        &path("live"),
        &path("in.pcap"),
    ]);
    assert_eq!(live.code, Some(0), "{}", live.stderr);
    let saved = world.raddle(&["snapshot", &path("state.json")]);
    assert_eq!(saved.code, Some(0), "{}", saved.stderr);
    let state = path("state.json");
    let elsewhere = Outcome::of(
        Command::new(raddle())
            .args(["replay", "-j", "--iif", "source", "--snapshot", &state])
            .args(["--out", &path("elsewhere"), &path("in.pcap")]),
    );
    assert_eq!(elsewhere.stdout, live.stdout, "{}", elsewhere.stderr);
    let report: Value = serde_json::from_str(&live.stdout).unwrap();
    assert_eq!(
        report["forwarded"].as_object().unwrap().len(),
        3,
        "{report}"
    );
    let mut found = 0;
    for out in ["live", "elsewhere"] {
        for n in 1..=3 {
            let link = world.out(n);
            for record in Reader::open(path(&format!("{out}/{link}.pcap"))).unwrap() {
                let data = record.unwrap().data;
                let at = frames
                    .iter()
                    .position(|f| identity(&f.bytes) == identity(&data))
                    .unwrap();
                assert_eq!((&kernel[at][0].link, &kernel[at][0].frame), (&link, &data));
                found += 1;
            }
        }
    }
    assert_eq!(found, 200);
}

fn tcpdump() -> bool {
    let there = Command::new("tcpdump").arg("--version").output().is_ok();
    if !there {
        eprintln!("skipped: a_capture_is_replayed needs tcpdump");
    }
    there
}
