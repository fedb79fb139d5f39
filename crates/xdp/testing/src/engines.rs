//! Both engines on the same frames: what their verdicts have in common, and where they run.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use raddle_forward::Verdict as Userspace;
use raddle_xdp::Verdict;

/// The userspace engine's verdict as the program would give it.
pub fn verdict(userspace: Userspace) -> Verdict {
    match userspace {
        Userspace::Forward {
            index, adjacency, ..
        } => Verdict::Forward { adjacency, index },
        Userspace::Kernel(reason) => Verdict::Kernel(reason),
        Userspace::Drop(reason) => Verdict::Drop(reason),
    }
}

/// What becomes of a frame, in a word.
pub fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Forward { .. } => "forwarded",
        Verdict::Kernel(reason) | Verdict::Drop(reason) => reason.name(),
    }
}

/// The CPUs that this thread may run on.
pub fn cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    (0..CpuSet::count())
        .filter(|cpu| allowed.is_set(*cpu).unwrap())
        .collect()
}

/// Has this thread run on these CPUs.
pub fn pin_to(cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu).unwrap());
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

/// Has this thread run on one CPU: what engines keep from packet to packet they keep by CPU.
pub fn pin_to_one_cpu() {
    pin_to(&cpus()[..1]);
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// A number that an environment variable may give.
pub fn given(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
