//! Namespaces, `ip`, a small keeper of state, and the kernel's own view to hold it against.

#![allow(dead_code)] // each test binary uses a part of it

pub mod kernel;
pub mod state;

use std::process::Command;
use std::time::{Duration, Instant};

use raddle_netlink::Mirror;

use state::State;

/// Runs `body` on a thread with a network namespace of its own, in which `lo` is up. The namespace
/// has no name and ends with the thread, so there is nothing to clean up. Says so and returns when
/// that is not allowed.
pub fn in_namespace(name: &str, body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Err(error) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
                eprintln!("skipped: {name} needs root (no network namespace: {error})");
                return;
            }
            ip("link set lo up");
            body();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Runs `ip` in the calling thread's namespace; it has to succeed. Its output.
pub fn ip(arguments: &str) -> String {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// As [`ip`], where failure is fine.
pub fn try_ip(arguments: &str) -> bool {
    Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .unwrap()
        .status
        .success()
}

/// Writes below `/proc/sys/net` of the calling thread's namespace.
pub fn sysctl(path: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{path}"), value).unwrap();
}

/// Two veth pairs: `v0`-`p0` has 10.0.0.1/24 and 2001:db8:0::1/64 on `v0`, and so on. All up.
pub fn links(count: u8) {
    sysctl("ipv6/conf/default/accept_dad", "0");
    for n in 0..count {
        ip(&format!("link add v{n} type veth peer name p{n}"));
        ip(&format!("link set p{n} up"));
        ip(&format!("link set v{n} up"));
        ip(&format!("addr add 10.0.{n}.1/24 dev v{n}"));
        ip(&format!("-6 addr add 2001:db8:{n}::1/64 dev v{n} nodad"));
    }
}

/// A mirror with the state that it has told.
pub struct Follower {
    pub mirror: Mirror,
    pub state: State,
}

impl Follower {
    pub fn new() -> Self {
        Self::with(Mirror::open().unwrap())
    }

    pub fn with(mut mirror: Mirror) -> Self {
        let mut state = State::default();
        mirror.initial(&mut |event| state.apply(event)).unwrap();
        Follower { mirror, state }
    }

    /// Applies what comes within `time`.
    pub fn follow(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while let Some(rest) = end.checked_duration_since(Instant::now()) {
            if self.mirror.wait(Some(rest)).unwrap() {
                self.mirror
                    .poll(&mut |event| self.state.apply(event))
                    .unwrap();
            }
        }
    }

    /// Follows until `done`, 5 s at most; what it says otherwise, it says in the panic.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&State) -> Result<(), String>) {
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            self.follow(Duration::from_millis(20));
            match done(&self.state) {
                Ok(()) => return,
                Err(difference) if Instant::now() > end => panic!("{what}: {difference}"),
                Err(_) => {}
            }
        }
    }

    /// Follows until routes and nexthops are those that `ip` shows.
    pub fn agrees(&mut self, what: &str) {
        self.until(what, |state| {
            same("routes", &state.routes_text(), &kernel::routes())?;
            same("nexthops", &state.nexthops_text(), &kernel::nexthops())?;
            same("buckets", &state.buckets_text(), &kernel::buckets())
        });
    }
}

fn same(what: &str, ours: &[String], theirs: &[String]) -> Result<(), String> {
    if ours == theirs {
        return Ok(());
    }
    let only = |a: &[String], b: &[String]| -> String {
        a.iter()
            .filter(|line| !b.contains(line))
            .map(|line| format!("\n    {line}"))
            .collect()
    };
    Err(format!(
        "{what} differ\n  only in the mirror:{}\n  only in the kernel:{}\n  (or the order differs)",
        only(ours, theirs),
        only(theirs, ours)
    ))
}
