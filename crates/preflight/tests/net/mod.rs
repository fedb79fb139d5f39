//! Namespaces of a test's own.

use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use raddle_netlink::probe::namespace::links;

/// Runs `job` on a thread in a fresh network namespace, with the name of another one.
pub(crate) fn namespace(name: &str, job: impl FnOnce(&str) + Send) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: {name} needs root (it makes network namespaces)");
        return;
    }
    let far = format!("raddle-pairs-{}-{name}", std::process::id());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            run(&format!("ip netns add {far}"));
            let _guard = Deleted(far.clone());
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            job(&far);
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

struct Deleted(String);

impl Drop for Deleted {
    fn drop(&mut self) {
        try_run(&format!("ip netns del {}", self.0));
    }
}

pub(crate) fn try_run(command: &str) -> bool {
    Command::new("sh")
        .args(["-c", command])
        .status()
        .is_ok_and(|s| s.success())
}

pub(crate) fn run(command: &str) {
    assert!(try_run(command), "{command}");
}

/// What a command says.
pub(crate) fn command(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn index(name: &str) -> u32 {
    links()
        .unwrap()
        .iter()
        .find(|l| l.name == name)
        .unwrap()
        .index
}
