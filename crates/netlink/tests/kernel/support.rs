//! Namespaces, `ip`, a small keeper of state, and the kernel's own view to hold it against.

use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use raddle_netlink::Mirror;
use raddle_rib::event::{Route, RouteNexthop, RouteTarget};

use crate::shown;
use crate::state::State;

/// Runs `body` on a thread with a network namespace of its own, in which `lo` is up. The namespace
/// has no name and ends with the thread, so there is nothing to clean up. Says so and returns when
/// that is not allowed.
pub(crate) fn in_namespace(name: &str, body: impl FnOnce() + Send) {
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
pub(crate) fn ip(arguments: &str) -> String {
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
pub(crate) fn try_ip(arguments: &str) -> bool {
    Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .unwrap()
        .status
        .success()
}

/// Writes below `/proc/sys/net` of the calling thread's namespace.
pub(crate) fn sysctl(path: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{path}"), value).unwrap();
}

/// `count` veth pairs: `v0`-`p0` has 10.0.0.1/24 and 2001:db8:0::1/64 on `v0`, and so on. All up.
pub(crate) fn links(count: u8) {
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
pub(crate) struct Follower {
    pub(crate) mirror: Mirror,
    pub(crate) state: State,
}

impl Follower {
    pub(crate) fn new() -> Self {
        Self::with(Mirror::open().unwrap())
    }

    pub(crate) fn with(mut mirror: Mirror) -> Self {
        let mut state = State::default();
        mirror.initial(&mut |event| state.apply(event)).unwrap();
        Follower { mirror, state }
    }

    /// Applies what comes within `time`.
    pub(crate) fn follow(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while let Some(rest) = end.checked_duration_since(Instant::now()) {
            if self.mirror.wait(Some(rest)).unwrap() {
                self.mirror
                    .poll(&mut |event| self.state.apply(event))
                    .unwrap();
            }
        }
    }

    /// Follows until `done`, a minute at most; what it says otherwise, it says in the panic.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&State) -> Result<(), String>) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            self.follow(Duration::from_millis(20));
            match done(&self.state) {
                Ok(()) => return,
                Err(difference) if Instant::now() > end => panic!("{what}: {difference}"),
                Err(_) => {}
            }
        }
    }

    /// Runs each command with `ip` and compares after each.
    pub(crate) fn step_by_step(&mut self, commands: &str) {
        for command in commands.lines().map(str::trim).filter(|c| !c.is_empty()) {
            ip(command);
            self.agrees(command);
        }
    }

    /// Follows until routes and nexthops are those that `ip` shows.
    pub(crate) fn agrees(&mut self, what: &str) {
        self.until(what, |state| {
            same("routes", &state.routes_text(), &shown::routes())?;
            same("nexthops", &state.nexthops_text(), &shown::nexthops())?;
            same("buckets", &state.buckets_text(), &shown::buckets())
        });
    }
}

pub(crate) fn same(what: &str, ours: &[String], theirs: &[String]) -> Result<(), String> {
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

/// Route `n` of 2000, with a gateway that tells the rounds apart.
pub(crate) fn route(n: u32, round: u8, index: u32) -> Route {
    let dst: IpNet = format!("20.{}.{}.0/24", n >> 8, n & 255).parse().unwrap();
    let hop = RouteNexthop {
        gateway: Some(IpAddr::from([10, 0, 0, 100 + round])),
        index,
        weight: 1,
        ..RouteNexthop::default()
    };
    Route {
        dst,
        protocol: 186,
        metric: 20,
        target: RouteTarget::Single(hop),
        ..Route::default()
    }
}

pub(crate) fn index_of(name: &str) -> u32 {
    let text = ip(&format!("-o link show {name}"));
    text.split(':').next().unwrap().parse().unwrap()
}
