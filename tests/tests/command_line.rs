//! The command line as an ordinary user meets it: help everywhere, options where `ip(8)` takes them,
//! exit codes.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::process::Command;
use std::time::Duration;

use raddle_e2e::Outcome;

fn raddle(line: &str) -> Outcome {
    let mut command = Command::new(raddle_e2e::raddle());
    command.args(line.split_whitespace());
    Outcome::of(&mut command, Duration::from_secs(20))
}

fn fine(line: &str) -> String {
    let outcome = raddle(line);
    assert_eq!(outcome.code, Some(0), "raddle {line}: {}", outcome.stderr);
    outcome.stdout
}

#[test]
fn help_is_everywhere() {
    for (line, said) in [
        ("help", "Usage: raddle"),
        ("help run", "--on-exit"),
        ("help lab up", "clos"),
        ("run --help", "--on-exit"),
        ("help route", "[ table { TABLE | all } ]"),
        ("help neigh", "[ nud STATE ]"),
        ("route help", "[ table { TABLE | all } ]"),
        ("route --help", "[ table { TABLE | all } ]"),
        ("-6 route -h", "[ table { TABLE | all } ]"),
        ("nexthop show --help", "[ groups ]"),
        ("neigh --help", "[ nud STATE ]"),
    ] {
        let help = fine(line);
        assert!(help.contains(said), "raddle {line}: {help}");
    }
    let neigh = fine("help neigh");
    assert!(!neigh.contains("table"), "{neigh}");
}

#[test]
fn man_pages_are_about_their_noun() {
    let folder = tempfile::tempdir().unwrap();
    fine(&format!("man {}", folder.path().display()));
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(page("raddle-neigh.8").contains("nud STATE"));
    assert!(!page("raddle-neigh.8").contains("TABLE"));
    assert!(page("raddle-nexthop.8").contains("groups"));
    assert!(!folder.path().join("raddle-help.8").exists());
    assert!(!folder.path().join("raddle-lab-help.8").exists());
}

#[test]
fn options_and_snapshots_stand_before_and_after_the_noun() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.json");
    let file = file.to_str().unwrap();
    fine(&format!("snapshot {file}"));
    for noun in ["route", "ro", "nexthop", "nh", "neigh", "neighbour"] {
        let expected = fine(&format!("{noun} show -6 -j --snapshot {file}"));
        for line in [
            format!("-6 -j --snapshot {file} {noun} show"),
            format!("-6 {noun} --snapshot={file} -j show"),
            format!("-f inet6 --json {noun} show --snapshot {file}"),
        ] {
            assert_eq!(fine(&line), expected, "raddle {line}");
        }
    }
    // An option of one noun only is still said to be unknown elsewhere.
    assert_eq!(raddle("-6 status").code, Some(1));
    let flow = "127.0.0.1 from 10.0.0.1 iif lo";
    let before = raddle(&format!("explain --snapshot {file} {flow}"));
    let after = raddle(&format!("explain {flow} --snapshot {file}"));
    assert_eq!(
        (before.code, &before.stdout),
        (after.code, &after.stdout),
        "{}",
        after.stderr
    );
}

#[test]
fn a_wrong_word_is_one_exit_code() {
    for line in [
        "route get 10.0.0.1",
        "route add 10.0.0.0/8",
        "route --colour",
        "neigh show dev",
        "nexthop show id x",
        "-x route",
        "walk",
    ] {
        let outcome = raddle(line);
        assert_eq!(outcome.code, Some(1), "raddle {line}: {}", outcome.stderr);
        assert!(!outcome.stderr.is_empty(), "raddle {line}");
    }
}
