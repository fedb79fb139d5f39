//! `raddle lab up links`, and its silent links.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::process::Command;

use raddle_e2e::{Outcome, fine, lab_name, raddle, root, run};

/// A lab that is taken down whatever happens.
struct Links(String);

impl Drop for Links {
    fn drop(&mut self) {
        let _ = Command::new(raddle())
            .args(["lab", "down", &self.0])
            .status();
    }
}

impl Links {
    fn exec(&self, command: &[&str]) -> Outcome {
        let mut words = vec!["lab", "exec", "-n", &self.0, "client", "--"];
        words.extend(command);
        run(&words)
    }

    fn answers(&self) -> bool {
        let ping = ["ping", "-c", "1", "-W", "1", "10.9.0.1"];
        self.exec(&ping).code == Some(0)
    }
}

#[test]
fn a_link_is_cut_without_a_sign_and_restored() {
    if !root("a_link_is_cut_without_a_sign_and_restored") {
        return;
    }
    let lab = Links(lab_name("cut"));
    let name = lab.0.as_str();
    fine(&[
        "lab", "up", "links", "--links", "2", "--rate", "50mbit", "-n", name,
    ]);
    let routes = lab.exec(&["ip", "route", "show", "10.9.0.0/16"]).stdout;
    assert!(routes.contains("src 10.8.0.1 congctl cubic"), "{routes}");
    assert!(
        routes.contains("dev link1") && routes.contains("dev link2"),
        "{routes}"
    );
    assert!(lab.answers());
    fine(&["lab", "cut", "-n", name, "0"]);
    fine(&["lab", "cut", "-n", name, "server/link2"]);
    assert!(!lab.answers());
    let both = "  cut: link 0, client/link1 to server/link1\n  cut: link 1, client/link2 to server/link2\n";
    assert!(run(&["lab", "list"]).stdout.contains(both));
    // In a node, which has a /run/raddle of its own, labs are not to be seen.
    let program = raddle().display().to_string();
    let inside = lab.exec(&[&program, "lab", "list"]);
    assert_eq!((inside.code, inside.stdout.as_str()), (Some(2), ""));
    let said = format!("this is the node client of the lab {name}");
    assert!(inside.stderr.contains(&said), "{}", inside.stderr);
    // No carrier has gone, and with it no path.
    assert_eq!(
        lab.exec(&["ip", "route", "show", "10.9.0.0/16"]).stdout,
        routes
    );
    fine(&["lab", "restore", "-n", name, "link1"]);
    fine(&["lab", "restore", "-n", name, "link2"]);
    assert!(lab.answers());
    let listed = run(&["lab", "list"]).stdout;
    assert!(
        listed.contains(&format!("{name}: client server\n")),
        "{listed}"
    );
    let outcome = run(&["lab", "cut", "-n", name, "link3"]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("no link has a device"),
        "{}",
        outcome.stderr
    );
}
