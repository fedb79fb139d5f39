//! Network namespaces and veths that vanish with the thread that made them.

use std::process::Command;

/// Runs a test inside a network namespace of its own, on a thread of its own; says so and returns
/// where there is no root.
pub fn in_namespace(name: &str, test: impl FnOnce() + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: {name} needs root (network namespaces and BPF)");
        return;
    }
    let thread = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        run("ip", &["link", "set", "lo", "up"]);
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a command in this thread's namespace.
pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
}

/// Interface index.
pub fn index_of(name: &str) -> u32 {
    nix::net::if_::if_nametoindex(name).unwrap()
}

/// A pair of veths, up, without IPv6 chatter, with this MTU.
pub fn veth(a: &str, b: &str, mtu: u32) {
    let mtu = mtu.to_string();
    run(
        "ip",
        &[
            "link", "add", a, "mtu", &mtu, "type", "veth", "peer", "name", b, "mtu", &mtu,
        ],
    );
    for name in [a, b] {
        // No addresses of its own, so nothing but what the test sends crosses the pair.
        run("ip", &["link", "set", name, "addrgenmode", "none"]);
        run("ip", &["link", "set", name, "up"]);
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid place for the answer.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    assert_eq!(result, 0);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
