//! What tests leave behind that are killed, and so drop nothing: their network namespaces.
//!
//! Names have the number of the test's process in them, so that a later test finds those whose process is gone.

use std::path::Path;
use std::process::Command;
use std::sync::Once;

use raddle_lab::Lab;

/// What the names of tests' labs begin with; nobody else's do.
const LAB: &str = "e2e-";
/// The same of namespaces beside labs.
const PAIR: &str = "e2e.";
/// Where labs have their files, by name, and namespaces theirs.
const PLACES: [&str; 2] = ["/run/raddle/lab", "/run/netns"];

/// The name of a lab of this process's; `name` tells its labs apart.
pub fn lab_name(name: &str) -> String {
    clean_up();
    format!("{LAB}{}-{name}", std::process::id())
}

/// The name of a namespace of this process's, beside labs.
pub(crate) fn namespace(name: &str) -> String {
    clean_up();
    format!("{PAIR}{}.{name}", std::process::id())
}

/// Removes, once in a process, what tests have left whose process has ended.
fn clean_up() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for place in PLACES {
            names(place).iter().for_each(|name| clean_up_one(name));
        }
    });
}

/// Another test that starts may do the same at the same time: who comes second finds nothing.
fn clean_up_one(name: &str) {
    match left(name, is_running) {
        Some(Left::Lab(lab)) => drop(Lab::down(lab)),
        Some(Left::Namespace(name)) => remove(name),
        None => {}
    }
}

fn names(place: &str) -> Vec<String> {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

#[derive(Debug, PartialEq, Eq)]
enum Left<'a> {
    /// A lab of this name, or what is left of it.
    Lab(&'a str),
    /// A namespace beside labs.
    Namespace(&'a str),
}

/// What a name of a lab or of a namespace says is left.
///
/// 1. It does not begin as a test's: it is somebody else's.
/// 2. The test's process is there: it is in use.
/// 3. A namespace of a lab goes with the lab, whose files may be gone already.
fn left(name: &str, is_running: impl Fn(u32) -> bool) -> Option<Left<'_>> {
    if let Some(rest) = name.strip_prefix(PAIR) {
        let (process, _) = rest.split_once('.')?;
        return (!is_running(process.parse().ok()?)).then_some(Left::Namespace(name));
    }
    let lab = match name.strip_prefix("rdl-") {
        Some(namespace) => namespace.rsplit_once('-')?.0,
        None => name,
    };
    let (process, _) = lab.strip_prefix(LAB)?.split_once('-')?;
    (!is_running(process.parse().ok()?)).then_some(Left::Lab(lab))
}

/// Whether this is a test's process; numbers are given again to other programs.
fn is_running(process: u32) -> bool {
    match std::fs::read_link(format!("/proc/{process}/exe")) {
        // `target/PROFILE/deps/NAME-HASH`
        Ok(program) => program.parent().and_then(Path::file_name) == Some("deps".as_ref()),
        // It is none, or has ended and nobody has asked how.
        Err(e) => e.kind() != std::io::ErrorKind::NotFound,
    }
}

/// Removes a namespace, with the programs in it.
fn remove(namespace: &str) {
    let ip = |words: &[&str]| Command::new("ip").args(words).output();
    if let Ok(pids) = ip(&["netns", "pids", namespace]) {
        let pids = String::from_utf8_lossy(&pids.stdout);
        let pids = pids.split_whitespace().filter_map(|pid| pid.parse().ok());
        // Never the test itself, which may have a thread there.
        for pid in pids.filter(|pid| *pid != std::process::id() as i32) {
            let pid = nix::unistd::Pid::from_raw(pid);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
    }
    let _ = ip(&["netns", "del", namespace]);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::within;

    #[test]
    fn only_what_dead_tests_have_left_is_left() {
        let dead = |name| left(name, |_| false);
        assert_eq!(dead("e2e-7-one"), Some(Left::Lab("e2e-7-one")));
        assert_eq!(dead("rdl-e2e-7-one-router"), Some(Left::Lab("e2e-7-one")));
        assert_eq!(dead("e2e.7.onec"), Some(Left::Namespace("e2e.7.onec")));
        for other in [
            "clos",
            "e2e",
            "e2e-one",
            "e2e-x-one",
            "rdl-one-7-router",
            "rt7onec",
            "e2e.x.one",
        ] {
            assert_eq!(dead(other), None, "{other}");
        }
        for name in ["e2e-7-one", "rdl-e2e-7-one-router", "e2e.7.onec"] {
            assert_eq!(left(name, |process| process == 7), None, "{name}");
        }
        assert!(is_running(std::process::id()));
        // Another program than a test, one that has ended, and none.
        let mut other = Command::new("sleep").arg("600").spawn().unwrap();
        within(Duration::from_secs(60), || match is_running(other.id()) {
            // Between fork and exec it is this program still.
            true => Err("sleep is taken for a test".to_owned()),
            false => Ok(()),
        });
        other.kill().unwrap();
        assert!(!is_running(other.id()));
        other.wait().unwrap();
        assert!(!is_running(other.id()) && !is_running(u32::MAX));
    }

    /// A process of this test's program that is killed in the middle of a test: here it is one that has ended.
    #[test]
    fn what_a_killed_test_has_left_goes_with_the_next() {
        if !crate::root("what_a_killed_test_has_left_goes_with_the_next") {
            return;
        }
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let (dead, own) = (ended.id(), std::process::id());
        let [gone, stays] = [dead, own].map(|process| format!("{PAIR}{process}.swept"));
        let mut inside = None;
        for namespace in [&gone, &stays] {
            let made = Command::new("ip")
                .args(["netns", "add", namespace])
                .status();
            assert!(made.unwrap().success());
            inside = inside.or_else(|| {
                let words = ["netns", "exec", namespace, "sleep", "600"];
                Command::new("ip").args(words).spawn().ok()
            });
        }
        let mut inside = inside.unwrap();
        let pids = || {
            Command::new("ip")
                .args(["netns", "pids", &gone])
                .output()
                .unwrap()
        };
        within(Duration::from_secs(60), || match pids().stdout.is_empty() {
            true => Err("nobody is in the namespace".to_owned()),
            false => Ok(()),
        });
        let name = format!("{LAB}{dead}-swept");
        let topology = raddle_lab::Chain::default().topology().unwrap();
        let lab = Lab::up(&name, &topology, raddle_lab::UpOptions::default()).unwrap();
        let router = lab.netns("router").unwrap();

        for name in [&gone, &stays, &router, &name] {
            clean_up_one(name);
        }
        let here = names("/run/netns");
        assert!(!here.contains(&gone) && !here.contains(&router), "{here:?}");
        assert!(here.contains(&stays), "{here:?}");
        assert!(Lab::load(&name).is_err());
        // What was inside has been killed.
        assert!(!inside.wait().unwrap().success());
        remove(&stays);
    }
}
