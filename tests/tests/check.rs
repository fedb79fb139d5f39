//! `raddle run --check` loads what `run` would load, and fails as it would.

use std::process::Command;

use raddle_e2e::{Outcome, World, root};

/// `--check` loads every program that a start would load, and leaves none behind.
#[test]
fn a_check_loads_the_programs() {
    if !root("a_check_loads_the_programs") {
        return;
    }
    let world = World::new("checked", 2);
    let takes = |programs: &str| {
        let fine = world.raddle(&["run", "--check"]);
        assert_eq!(fine.code, Some(0), "{}", fine.stderr);
        let said = format!("programs that this kernel takes: {programs}\n");
        assert!(fine.stdout.ends_with(&said), "{}", fine.stdout);
    };
    takes("forwarding");
    // SIDs of the kernel's want the programs for them.
    world.ip("-6 route add fc00:9::1/128 encap seg6local action End dev source");
    takes("forwarding, SRv6");
    assert_eq!(world.attached(), [""; 0]);
}

/// What a start is refused for, `--check` is refused for, after what could be seen.
#[test]
fn a_check_fails_as_the_start_would() {
    if !root("a_check_fails_as_the_start_would") {
        return;
    }
    let world = World::new("unable", 2);
    let namespace = world.lab().netns("router").unwrap();
    let unable = |arguments: &[&str]| {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{namespace}"));
        command.args(["setpriv", "--bounding-set=-bpf,-perfmon,-sys_admin"]);
        command.arg(raddle_e2e::raddle()).arg("run").args(arguments);
        Outcome::of(&mut command)
    };
    let (started, checked) = (unable(&[]), unable(&["--check"]));
    assert_eq!(started.code, Some(3), "{}", started.stderr);
    assert!(started.stderr.contains("CAP_BPF"), "{}", started.stderr);
    assert_eq!(checked.code, Some(3), "{}", checked.stderr);
    let untried = "could not be tried";
    assert!(checked.stderr.contains(untried), "{}", checked.stderr);
    let last = |outcome: &Outcome| outcome.stderr.lines().last().unwrap_or_default().to_owned();
    let (started, said) = (last(&started), last(&checked));
    let why = started.split_once("cannot ").map_or("", |(_, why)| why);
    assert!(!why.is_empty() && said.ends_with(why), "{started}\n{said}");
    assert!(
        checked.stdout.contains("would be attached"),
        "{}",
        checked.stdout
    );
}
