//! `raddle doctor` beside a real FRR that has lost a path, and beside one that has not.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::path::Path;
use std::time::Duration;

use raddle_e2e::{Outcome, lab_name, readable_raddle, root, within};
use raddle_lab::{Clos, Lab, UpOptions};
use serde_json::Value;

const ID: &str = "frr-lost-ecmp";
const LEAF: &str = "leaf1";

/// What a program in the leaf writes.
fn output(lab: &Lab, argv: &[&str]) -> String {
    let mut command = lab.command(LEAF, argv[0]).unwrap();
    let outcome = Outcome::of(command.args(&argv[1..]));
    assert_eq!(outcome.code, Some(0), "{argv:?}: {}", outcome.stderr);
    outcome.stdout
}

/// What doctor finds of lost paths, and its exit code.
fn examined(lab: &Lab, raddle: &Path) -> (Vec<Value>, Option<i32>) {
    let mut command = lab.command(LEAF, raddle.to_str().unwrap()).unwrap();
    let command = command.args(["doctor", "-j", "--only", ID]);
    let outcome = Outcome::of(command);
    let answer: Value = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}{}", outcome.stdout, outcome.stderr));
    (answer["findings"].as_array().unwrap().clone(), outcome.code)
}

/// Waits until the route to the other leaf's hosts has so many paths.
fn until_paths(lab: &Lab, count: usize) {
    within(Duration::from_secs(60), || {
        let shown = output(lab, &["ip", "route", "show", "10.2.1.0/24"]);
        let paths = match shown.matches("nexthop via").count() {
            0 => shown.matches(" via ").count(),
            many => many,
        };
        match paths == count {
            true => Ok(()),
            false => Err(shown),
        }
    });
}

/// FRR believes for three minutes, unless told otherwise, that the kernel still has the group that it
/// was given, and uses it again when a link that was down is back (FRRouting/frr#13413).
#[test]
fn lost_paths_are_seen_where_they_are_lost() {
    if !root("lost_paths_are_seen_where_they_are_lost") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let raddle = readable_raddle(folder.path());
    let name = lab_name("frr");
    let topology = Clos::default().topology().unwrap();
    let lab = Lab::up(&name, &topology, UpOptions::default())
        .unwrap()
        .scoped();
    let link = topology.links_between(LEAF, "spine1").next().unwrap();
    let flap = || {
        lab.link_down(link).unwrap();
        until_paths(&lab, 1);
        lab.link_up(link).unwrap();
    };
    // Other groups may take a little longer than that of the one route.
    let until_clean = || {
        within(Duration::from_secs(60), || match examined(&lab, &raddle) {
            (found, Some(0)) if found.is_empty() => Ok(()),
            other => Err(format!("{other:#?}")),
        });
    };
    until_paths(&lab, 2);
    until_clean();

    // The lab's FRR forgets unused groups after a second, and has all paths again.
    flap();
    until_paths(&lab, 2);
    until_clean();

    // As FRR comes.
    let keep = "zebra nexthop-group keep 180";
    output(&lab, &["vtysh", "-c", "configure terminal", "-c", keep]);
    flap();
    let (lost, _) = within(Duration::from_secs(60), || {
        let (found, code) = examined(&lab, &raddle);
        let serious = |finding: &&Value| finding["severity"] == "serious";
        match found.iter().find(serious) {
            Some(finding) => {
                assert_eq!(code, Some(1));
                Ok(finding.clone())
            }
            None => Err(format!("{found:#?}")),
        }
    });
    assert!(lost["evidence"].to_string().contains("spine1"), "{lost:#}");
    // It is true: BGP has both paths, and the kernel uses one.
    let bgp = ["vtysh", "-c", "show bgp ipv4 unicast 10.2.1.0/24"];
    within(Duration::from_secs(60), || {
        let text = output(&lab, &bgp);
        match text.matches("multipath").count() {
            2 => Ok(()),
            _ => Err(text),
        }
    });
    until_paths(&lab, 1);

    output(&lab, &["sh", "-c", lost["fix"].as_str().unwrap()]);
    until_paths(&lab, 2);
    until_clean();
}
