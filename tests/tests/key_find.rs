//! The kernel's own key without privilege: what an ordinary user is told, what is kept for him, and what is not believed.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use raddle_e2e::{Outcome, World, readable_raddle, root};

const NOBODY: u32 = 65_534;

/// A user without privilege, whose files lie in a folder of his.
struct User<'a> {
    world: &'a World,
    raddle: PathBuf,
    run: PathBuf,
}

impl User<'_> {
    fn ask(&self, arguments: &[&str]) -> Outcome {
        let run = format!("XDG_RUNTIME_DIR={}", self.run.display());
        let raddle = self.raddle.to_str().unwrap();
        let words = [&[run.as_str(), raddle], arguments].concat();
        self.world.as_nobody(Path::new("/usr/bin/env"), &words)
    }

    /// Keeps what is said to be the key.
    fn keep(&self, seed: &str) -> PathBuf {
        let folder = self.run.join("raddle");
        fs::create_dir_all(&folder).unwrap();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let file = folder.join("hash-key");
        fs::write(&file, format!("raddle hash key 1\n{boot}{seed}\n")).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
        chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
        file
    }
}

/// The key that root reads, in hexadecimal.
fn read_by_root(world: &World) -> String {
    let outcome = world.raddle(&["key", "find", "--show-key"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let at = outcome.stdout.find("(0x").unwrap() + 3;
    outcome.stdout[at..at + 8].to_owned()
}

#[test]
fn a_key_that_is_kept_serves_its_owner_alone() {
    if !root("a_key_that_is_kept_serves_its_owner_alone") {
        return;
    }
    let world = World::new("keyfind", 2);
    world.policy(1);
    world.sysctl("net.ipv4.fib_multipath_hash_seed", "0");
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let run = folder.path().join("run");
    fs::create_dir(&run).unwrap();
    chown(&run, Some(NOBODY), Some(NOBODY)).unwrap();
    let user = User {
        world: &world,
        raddle: readable_raddle(folder.path()),
        run,
    };
    let flow = world.flows(4)[0];
    let (dst, src) = (flow.dst.to_string(), flow.src.to_string());
    let explain = |more: &[&str]| {
        let words = [
            "explain", &dst, "from", &src, "iif", "source", "ipproto", "udp", "sport", "4001",
            "dport", "53",
        ];
        let outcome = user.ask(&[&words, more].concat());
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        outcome.stdout
    };

    let text = explain(&[]);
    assert!(text.contains("or run raddle key find"), "{text}");
    assert!(text.contains("seed-unknown"), "{text}");

    // What is wrong is not believed, and a file that others may read is not used.
    let right = read_by_root(&world);
    let wrong = u32::from_str_radix(&right, 16).unwrap() ^ 1;
    user.keep(&format!("{wrong:08x}"));
    assert!(explain(&[]).contains("seed-unknown"));
    let file = user.keep(&right);
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    assert!(explain(&[]).contains("seed-unknown"));
    let refused = user.ask(&["key", "find"]);
    assert_eq!(refused.code, Some(3), "{}", refused.stdout);
    assert!(
        refused.stderr.contains("others than its owner"),
        "{}",
        refused.stderr
    );

    user.keep(&right);
    let text = explain(&["--check"]);
    assert!(text.contains("=> dev"), "{text}");
    assert!(!text.contains(&right), "{text}");
    let found = user.ask(&["key", "find"]);
    assert_eq!(found.code, Some(0), "{}", found.stderr);
    assert!(found.stdout.contains("found before"), "{}", found.stdout);
    assert!(!found.stdout.contains(&right), "{}", found.stdout);
    let ports = [
        "ports", "plan", &dst, "-n", "2", "--proto", "udp", "--dport", "53",
    ];
    let plan = user.ask(&[&ports[..], &["--iif", "source", "--from", &src]].concat());
    assert_eq!(plan.code, Some(0), "{}", plan.stderr);

    // A seed that is set is no secret.
    world.sysctl("net.ipv4.fib_multipath_hash_seed", "77");
    let set = user.ask(&["key", "find"]).stdout;
    assert!(set.contains("77"), "{set}");
}

/// Nobody searches by what cannot be.
#[test]
fn mistakes_in_observations_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("seen.toml");
    for (took, said) in [("c", "line 4"), ("a", "1 bits of a seed's 32")] {
        let text = format!(
            "policy = 1\n[[route]]\npaths = [ {{ link = 'a' }}, {{ link = 'b' }} ]\n\
             flows = [ {{ src = '10.0.0.1', dst = '10.0.0.2', took = '{took}' }} ]\n"
        );
        fs::write(&file, text).unwrap();
        let mut command = Command::new(raddle_e2e::raddle());
        command.args(["key", "find", "--observations"]).arg(&file);
        let output = command.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(said), "{error}");
    }
}

/// What is written down of a router says where flows go there: that is held against what the router does itself.
#[test]
fn a_router_that_is_written_down_sends_flows_as_it_does() {
    if !root("a_router_that_is_written_down_sends_flows_as_it_does") {
        return;
    }
    let world = World::new("peers", 3);
    world.policy(1);
    world.sysctl("net.ipv4.fib_multipath_hash_seed", "77");
    world.ip("route replace 10.9.0.0/16 nexthop via 10.2.1.2 weight 2 nexthop via 10.2.3.2");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("router.toml");
    let text = "policy = 1\nseed = 77\n[[route]]\nto = [ '10.9.0.0/16' ]\n\
                paths = [ { link = 'sink', weight = 2 }, { link = 'sink-3' } ]\n";
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for sport in 1..40 {
        let words = format!(
            "explain -j 10.9.0.9 from 10.1.1.7 iif source ipproto udp sport {sport} dport 9 --peers {file}"
        );
        let answer = world.raddle_json(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(answer["peers"][0]["link"], answer["link"], "{answer}");
        assert_eq!(answer["peers"][0]["paths"], 2);
        seen.insert(answer["link"].to_string());
    }
    assert_eq!(seen.len(), 2);
    // Eight connections take both paths, and both links of the router behind on each.
    let words = format!(
        "ports plan -j 10.9.0.9 -n 8 --dport 9 --proto udp --from 10.1.1.7 --iif source --peers {file}"
    );
    let behind = text.replace("77", "78");
    fs::write(file, &behind).unwrap();
    let plan = world.raddle_json(&words.split(' ').collect::<Vec<_>>());
    let mut ways = std::collections::BTreeSet::new();
    for connection in plan["connections"].as_array().unwrap() {
        let sport = &connection["value"];
        let words = format!(
            "explain -j 10.9.0.9 from 10.1.1.7 iif source ipproto udp sport {sport} dport 9 --peers {file}"
        );
        let answer = world.raddle_json(&words.split(' ').collect::<Vec<_>>());
        let link = connection["beyond"][0].as_u64().unwrap() as usize;
        assert_eq!(
            plan["beyond"][0]["links"][link]["link"],
            answer["peers"][0]["link"]
        );
        ways.insert((answer["link"].to_string(), link));
    }
    assert_eq!(ways.len(), 4, "{plan}");
    fs::write(file, text).unwrap();
    let other = world.raddle(&["explain", "10.2.1.2", "from", "10.1.1.7", "--peers", file]);
    assert!(
        other
            .stdout
            .contains("not known, it has no route to 10.2.1.2"),
        "{}",
        other.stdout
    );
    let spread = format!("router={file}");
    assert_eq!(
        world
            .raddle(&["spread", "--tier", &spread, "--flows", "100"])
            .code,
        Some(2)
    );
    fs::write(file, text.replace(", weight = 2", "")).unwrap();
    let spread = world.raddle(&["spread", "--tier", &spread, "--flows", "100"]);
    assert!(
        spread.stdout.contains("secret") && !spread.stdout.contains("77  "),
        "{}",
        spread.stdout
    );
    // Nobody looks for what is known.
    let again = world.raddle(&["key", "find", "--observations", file]);
    assert!(again.stderr.contains("has a seed"), "{}", again.stderr);
}
