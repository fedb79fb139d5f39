//! What cannot work is refused with one message that says what to do, an exit code of 2 (the user's
//! doing) or 3 (the system's), and nothing attached.

use std::process::Command;
use std::time::Duration;

use raddle_e2e::{Daemon, OtherXdp, Outcome, World, readable_raddle, root, within};

const LIMIT: Duration = Duration::from_secs(60);

/// Runs `raddle run` with these arguments, which has to fail so, and leave no link attached.
fn refused(world: &World, arguments: &[&str], code: i32, said: &[&str]) -> Outcome {
    let outcome = world.raddle(&[&["run"], arguments].concat());
    refusal(&outcome, &format!("{arguments:?}"), code, said);
    assert_eq!(world.attached(), [""; 0], "{arguments:?}");
    outcome
}

fn refusal(outcome: &Outcome, about: &str, code: i32, said: &[&str]) {
    assert_eq!(outcome.code, Some(code), "{about}: {}", outcome.stderr);
    for said in said {
        assert!(
            outcome.stderr.contains(said),
            "{about}: '{said}' is not in: {}",
            outcome.stderr
        );
    }
    assert!(
        !outcome.stderr.contains("panicked"),
        "{about}: {}",
        outcome.stderr
    );
}

#[test]
fn arguments_and_configurations_that_make_no_sense() {
    // As an ordinary user, too: nothing is looked at before the arguments are.
    let raddle =
        |arguments: &[&str]| Outcome::of(Command::new(raddle_e2e::raddle()).args(arguments));
    for (arguments, said) in [
        (&["run", "--mode", "fast"][..], "invalid value 'fast'"),
        (&["run", "--deadline", "0"], "deadline is at least 1 second"),
        (&["run", "--seed", "0"], "'0' is not a seed"),
        (
            &["run", "--metrics", "0.0.0.0:80"],
            "not a loopback address",
        ),
        (
            &["run", "-c", "/does/not/exist.toml"],
            "/does/not/exist.toml",
        ),
        (&["walk"], "unrecognized subcommand 'walk'"),
        (&["explain", "10.0.0"], "'10.0.0' is not an address"),
        (
            &["explain", "10.0.0.1", "sport", "5"],
            "ports want a protocol",
        ),
    ] {
        refusal(&raddle(arguments), &format!("{arguments:?}"), 2, &[said]);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("raddle.toml");
    for (text, line, said) in [
        (
            "links = ['a']\nmodus = 'native'\n",
            "line 2",
            "there is no key 'modus' here; there are links, ",
        ),
        ("# a comment\n\nlinks = 'eth0'\n", "line 3", "links"),
        (
            "mode = 'native'\nseed = 0\n",
            "line 2",
            "a seed of 0 means unknown",
        ),
        ("links = [\n", "line", "array"),
        ("metrics = '10.0.0.1:9000'\n", "", "not a loopback address"),
    ] {
        std::fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        refusal(&raddle(&["run", "-c", path]), text, 2, &[line, said, path]);
    }
}

#[test]
fn links_and_privileges_that_are_not_there() {
    if !root("links_and_privileges_that_are_not_there") {
        return;
    }
    let world = World::new("refused", 2);
    // A link may come later: systemd starts the daemon again after these.
    refused(&world, &["--link", "nope"], 3, &["there is no link 'nope'"]);
    refused(
        &world,
        &["--link", "source", "--link", "nope"],
        3,
        &["there is no link 'nope'"],
    );
    refused(
        &world,
        &["--allow-qdisc", "nope"],
        3,
        &["there is no link 'nope'"],
    );
    refused(
        &world,
        &["--link", "lo"],
        3,
        &["link lo cannot be used", "loopback"],
    );
    world.ip("link add br0 type bridge");
    refused(
        &world,
        &["--link", "br0"],
        3,
        &["link br0 cannot be used", "bridge"],
    );
    refused(
        &world,
        &["--socket", "/proc/raddle.sock"],
        3,
        &["/proc/raddle.sock", "--socket"],
    );

    let folder = tempfile::tempdir().unwrap();
    let program = readable_raddle(folder.path());
    let ordinary = |arguments: &[&str]| world.as_nobody(&program, arguments);
    refusal(
        &ordinary(&["run"]),
        "an ordinary user",
        3,
        &["root", "CAP_NET_ADMIN"],
    );
    let socket = folder.path().join("socket");
    let socket = socket.to_str().unwrap();
    std::process::Command::new("chmod")
        .args(["777", folder.path().to_str().unwrap()])
        .status()
        .unwrap();
    let run = ["run", "--socket", socket];
    refusal(
        &ordinary(&run),
        "an ordinary user with a socket",
        3,
        &["root", "CAP_"],
    );
    assert_eq!(world.attached(), [""; 0]);
    // What only reads works.
    let explained = ordinary(&["explain", "10.9.0.7", "from", "10.1.1.2", "iif", "source"]);
    assert_eq!(explained.code, Some(0), "{}", explained.stderr);
    refusal(
        &ordinary(&["status"]),
        "status without a daemon",
        3,
        &["raddle run"],
    );
    let (lab, node) = (world.lab().name(), "router");
    // From outside of the node, where labs are seen.
    let ordinary = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(&program)
            .args(arguments);
        Outcome::of(&mut command)
    };
    for needs_root in [
        &["lab", "exec", "-n", lab, node, "--", "true"][..],
        &["lab", "up", "clos", "-n", "other"],
        &["lab", "down", lab],
    ] {
        refusal(
            &ordinary(needs_root),
            &format!("{needs_root:?}"),
            3,
            &["needs root", "sudo"],
        );
    }
    let exec = |words: &[&str]| {
        let mut command = Command::new(raddle_e2e::raddle());
        command.args(["lab", "exec"]).args(words);
        Outcome::of(&mut command)
    };
    for (words, code, said) in [
        (
            &["-n", lab, node, "--", "no-such-program"][..],
            127,
            "no-such-program",
        ),
        (&["-n", lab, node, "--", "/proc"], 126, "/proc"),
        (&["-n", lab, node, "--", "sh", "-c", "exit 7"], 7, ""),
        (&["-n", lab, "leaf9", "--", "true"], 2, "no node `leaf9`"),
        (
            &["-n", "no-such-lab", node, "--", "true"],
            2,
            "no lab named",
        ),
    ] {
        refusal(&exec(words), &format!("{words:?}"), code, &[said]);
    }

    for family in ["ipv4", "ipv6"] {
        world.sysctl(&format!("net.{family}.conf.all.forwarding"), "0");
    }
    refused(
        &world,
        &[],
        3,
        &["no link to forward from", "net.ipv4.ip_forward=1"],
    );
}

#[test]
fn others_were_there_first() {
    if !root("others_were_there_first") {
        return;
    }
    let world = World::new("others", 2);
    let other = world
        .lab()
        .within("router", || OtherXdp::attach("source"))
        .unwrap()
        .unwrap();
    let named = world.raddle(&["run", "--link", "source"]);
    refusal(
        &named,
        "somebody else's program",
        3,
        &["link source cannot be used", "XDP program"],
    );
    assert_eq!(
        world.attached(),
        ["source"],
        "theirs stays, ours is not there"
    );
    let all = Daemon::start(&world, &[]);
    assert_eq!(all.status()["links"].as_array().unwrap().len(), 2);
    let why = all.status()["left_to_kernel"]["source"].to_string();
    assert!(why.contains("attached already"), "{why}");
    all.terminate();
    drop(other);
    // Programs are detached when their last user is gone, which may be later.
    let gone = || match world.attached() {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    };
    within(Duration::from_secs(60), gone);

    let first = Daemon::start(&world, &[]);
    let second = world.raddle(&["run"]);
    refusal(
        &second,
        "a second daemon",
        3,
        &["already runs in this network namespace"],
    );
    let elsewhere = world.raddle(&["run", "--socket", "/run/raddle/second.sock"]);
    refusal(
        &elsewhere,
        "a second daemon with another socket",
        3,
        &["already runs in this network namespace"],
    );
    assert_eq!(first.status()["links"].as_array().unwrap().len(), 3);
    assert_eq!(world.attached().len(), 3);
    first.terminate();
}

/// A start that is refused changes nothing of the system, and takes along what an earlier daemon has
/// left; one that is not takes along what it does not want.
#[test]
fn what_was_kept_goes_with_a_refusal() {
    if !root("what_was_kept_goes_with_a_refusal") {
        return;
    }
    let world = World::new("unkept", 2);
    let keep = ["--on-exit", "keep"];
    Daemon::start(&world, &keep).terminate();
    assert_eq!(world.attached().len(), 3);
    Daemon::start(&world, &[&keep[..], &["--link", "source"]].concat()).terminate();
    assert_eq!(world.attached(), ["source"]);

    world.ip("link add this type veth peer name that");
    world.ip("link set this up");
    world.ip("link set that up");
    let offload = || {
        world
            .node("router", "ethtool -k this")
            .contains("tx-checksumming: on")
    };
    assert!(offload());
    for rule in [
        "add table inet guard",
        "add chain inet guard passing { type filter hook forward priority 0; }",
        "add rule inet guard passing counter drop",
    ] {
        assert!(
            world
                .lab()
                .output("router", &["nft", rule])
                .unwrap()
                .status
                .success()
        );
    }
    refused(&world, &keep, 3, &["guard", "--allow-bypass"]);
    assert!(offload(), "fixed for a start that was refused");

    // What is fixed stays so, and in the status.
    let delete = ["nft", "delete table inet guard"];
    assert!(
        world
            .lab()
            .output("router", &delete)
            .unwrap()
            .status
            .success()
    );
    let daemon = Daemon::start(&world, &[]);
    let fixed = |daemon: &Daemon<'_>| {
        let warnings = daemon.status()["warnings"].to_string();
        assert!(
            warnings.contains("(fixed: ethtool -K this tx off)"),
            "{warnings}"
        );
    };
    fixed(&daemon);
    world.ip("link add late type veth peer name etal");
    world.ip("link set late up");
    within(LIMIT, || {
        match daemon.status()["links"].to_string().contains("\"late\"") {
            true => Ok(()),
            false => Err("the new link is not attached".into()),
        }
    });
    fixed(&daemon);
    // Nobody tells of this: in another network namespace it could not be heard.
    world.node("router", "ethtool -K this tx on");
    within(LIMIT, || match offload() {
        true => Err("the far end of a veth pair is not looked at".into()),
        false => Ok(()),
    });
    daemon.terminate();
    assert!(!offload(), "put back at the stop");
}

/// `ip netns exec` makes a mount namespace for the command: a bpffs that is mounted there goes with it.
#[test]
fn programs_that_would_not_be_kept() {
    if !root("programs_that_would_not_be_kept") {
        return;
    }
    let world = World::new("mounts", 2);
    let namespace = world.lab().netns("router").unwrap();
    let run = |enter: &[&str], arguments: &[&str]| {
        let mut command = Command::new(enter[0]);
        command.args(&enter[1..]).arg(raddle_e2e::raddle());
        command.args(["run", "--check"]).args(arguments);
        Outcome::of(&mut command)
    };
    let exec = ["ip", "netns", "exec", &namespace];
    let net = format!("--net=/run/netns/{namespace}");
    let refused = run(&exec, &["--on-exit", "keep"]);
    refusal(&refused, "keep", 3, &["cannot be kept", "nsenter --net="]);
    for (enter, arguments) in [
        (&exec[..], &[][..]),
        (&["nsenter", &net], &["--on-exit", "keep"]),
    ] {
        let fine = run(enter, arguments);
        assert_eq!(
            fine.code,
            Some(0),
            "{enter:?} {arguments:?}: {}",
            fine.stderr
        );
    }
}

/// A link that has a filter already when it comes into use is not forwarded from for a moment.
#[test]
fn a_filter_is_there_before_its_link_is_used() {
    if !root("a_filter_is_there_before_its_link_is_used") {
        return;
    }
    let world = World::new("early", 2);
    world.ip("link add late type veth peer name etal");
    for (family, link) in [
        ("ipv4", "late"),
        ("ipv6", "late"),
        ("ipv4", "etal"),
        ("ipv6", "etal"),
    ] {
        world.sysctl(&format!("net.{family}.conf.{link}.forwarding"), "0");
    }
    world.sysctl("net.ipv6.conf.all.forwarding", "0");
    for rule in [
        "add table netdev guard",
        "add chain netdev guard entering { type filter hook ingress device late priority 0; }",
        "add rule netdev guard entering counter drop",
    ] {
        assert!(
            world
                .lab()
                .output("router", &["nft", rule])
                .unwrap()
                .status
                .success()
        );
    }
    world.ip("link set late up");
    world.ip("link set etal up");
    let daemon = Daemon::start(&world, &[]);
    assert_eq!(daemon.status()["state"], "forwarding");
    world.sysctl("net.ipv4.conf.late.forwarding", "1");
    within(LIMIT, || {
        let status = daemon.status();
        let links = status["links"].as_array().unwrap();
        match links.iter().any(|link| link["dev"] == "late") {
            true => {
                let punted = status["punted"].to_string();
                let said = "IPv4 from late";
                assert!(punted.contains(said), "attached, and not seen: {punted}");
                Ok(())
            }
            false => Err("the link is not attached".into()),
        }
    });
    daemon.terminate();
}

/// Whether our own program is on a link the kernel tells with other news only, and not when it goes:
/// it must not be taken for somebody else's.
#[test]
fn a_link_that_was_ours_is_used_again() {
    if !root("a_link_that_was_ours_is_used_again") {
        return;
    }
    let world = World::new("again", 2);
    let daemon = Daemon::start(&world, &[]);
    let source = |attached: bool| {
        within(LIMIT, || {
            let links = world.attached();
            match links.iter().any(|link| link == "source") == attached {
                true => Ok(()),
                false => Err(format!("attached: {links:?}; {}", daemon.status())),
            }
        })
    };
    world.ip("link set source alias news");
    for on in [false, true] {
        for family in ["ipv4", "ipv6"] {
            // IPv6 goes by all links together.
            let link = if family == "ipv4" { "source" } else { "all" };
            world.sysctl(
                &format!("net.{family}.conf.{link}.forwarding"),
                if on { "1" } else { "0" },
            );
        }
        source(on);
    }
    daemon.terminate();
}

#[test]
fn shaped_links_are_the_kernels() {
    if !root("shaped_links_are_the_kernels") {
        return;
    }
    let world = World::new("shaped", 2);
    let frames = world.frames(&world.flows(64));
    // Packets by link and by who forwarded them.
    let by = |daemon: &Daemon<'_>| {
        let before = (world.kernel_forwarded(), daemon.forwarded());
        let arrived = world.transmit(&frames);
        let links = arrived.iter().flatten().map(|a| a.link.as_str());
        let shaped = links.clone().filter(|link| *link == "sink-2").count() as u64;
        assert_eq!(links.count(), frames.len(), "some were lost");
        let kernel = world.kernel_forwarded() - before.0;
        (shaped, kernel, daemon.forwarded() - before.1)
    };
    let shape = "tc qdisc add dev sink-2 root tbf rate 100mbit burst 100k latency 50ms";
    world.node("router", shape);
    let daemon = Daemon::start(&world, &[]);
    let (shaped, kernel, raddle) = by(&daemon);
    assert!(shaped > 10 && shaped < 54);
    assert_eq!((kernel, raddle), (shaped, 64 - shaped));
    let why = daemon.status()["left_to_kernel"]["sink-2"].to_string();
    assert!(
        why.contains("tbf") && why.contains("--allow-qdisc sink-2"),
        "{why}"
    );
    daemon.terminate();

    let daemon = Daemon::start(&world, &["--allow-qdisc", "sink-2"]);
    assert_eq!(by(&daemon), (shaped, 0, 64));
    daemon.terminate();

    // It comes and goes while the daemon runs.
    world.node("router", "tc qdisc del dev sink-2 root");
    let daemon = Daemon::start(&world, &[]);
    assert_eq!(by(&daemon), (shaped, 0, 64));
    world.node("router", shape);
    within(LIMIT, || match by(&daemon) {
        (_, kernel, _) if kernel >= shaped => Ok(()),
        now => Err(format!("{now:?} with a qdisc")),
    });
    world.node("router", "tc qdisc del dev sink-2 root");
    within(LIMIT, || match by(&daemon) {
        (_, 0, 64) => Ok(()),
        now => Err(format!("{now:?} without a qdisc")),
    });
}

#[test]
fn never_around_the_firewall() {
    if !root("never_around_the_firewall") {
        return;
    }
    let world = World::new("firewall", 2);
    let nft = |words: &str| {
        let output = world.lab().output("router", &["nft", words]).unwrap();
        assert!(
            output.status.success(),
            "{words}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    nft("add table inet guard");
    nft("add chain inet guard passing { type filter hook forward priority 0; policy accept; }");
    nft("add rule inet guard passing udp dport 30000 drop");
    let said = refused(&world, &[], 3, &["guard", "passing", "--allow-bypass"]);
    assert!(said.stderr.contains("forward"), "{}", said.stderr);
    let allowed = world.raddle(&["run", "--check", "--allow-bypass"]);
    assert_eq!(allowed.code, Some(0), "{}", allowed.stderr);
    let overridden = "would no longer pass it, which --allow-bypass allows";
    assert!(allowed.stdout.contains(overridden), "{}", allowed.stdout);

    let frames = world.frames(&world.flows(32));
    let arrive = || world.transmit(&frames).iter().flatten().count();
    assert_eq!(arrive(), 0, "the kernel obeys the rule");
    let daemon = Daemon::start(&world, &["--allow-bypass"]);
    assert_eq!(arrive(), 32, "bypassed, as was asked for");
    daemon.terminate();

    nft("delete table inet guard");
    let daemon = Daemon::start(&world, &[]);
    assert_eq!(arrive(), 32);
    nft("add table ip guard");
    nft("add chain ip guard passing { type filter hook forward priority 0; policy accept; }");
    nft("add rule ip guard passing udp dport 30000 drop");
    let (_, took) = within(LIMIT, || match arrive() {
        // IPv6 has no rule.
        16 => Ok(()),
        n => Err(format!("{n} packets pass the rule")),
    });
    let status = daemon.status();
    assert_eq!(status["state"], "forwarding", "IPv6 is");
    let punted = status["punted"].to_string();
    assert!(
        punted.contains("IPv4 from any link") && punted.contains("nft ip guard"),
        "{punted}"
    );
    nft("add table ip6 guard");
    nft("add chain ip6 guard passing { type filter hook forward priority 0; policy drop; }");
    within(LIMIT, || {
        assert!(arrive() <= 16);
        match daemon.status()["held_because"].as_str() {
            Some(why) if why.contains("guard") => Ok(()),
            _ => Err("not held, though nothing is free".to_owned()),
        }
    });
    assert_eq!(arrive(), 0);
    nft("delete table ip6 guard");
    nft("delete table ip guard");
    let forwarded = daemon.forwarded();
    let (_, back) = within(LIMIT, || {
        arrive();
        match daemon.forwarded() {
            now if now > forwarded => Ok(()),
            _ => Err("still held".to_owned()),
        }
    });
    assert_eq!(daemon.status()["state"], "forwarding");
    eprintln!("held after {took:?}, forwarding again after {back:?}");
    daemon.terminate();
}
