//! Waiting until no program can still see what was there before.

use std::io;

use crate::{Error, Result};

/// `MEMBARRIER_CMD_GLOBAL`.
const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;

/// Waits for a grace period: when it returns, every XDP program that ran when it was called has
/// ended, so that memory of the image which was unlinked before can be used anew.
///
/// `membarrier(MEMBARRIER_CMD_GLOBAL)` is the kernel's `synchronize_rcu()`, and programs run inside
/// of RCU read sections. It takes milliseconds and holds nobody up. Where it is refused (CPUs in
/// `nohz_full`), this thread visits every CPU instead: programs run with bottom halves disabled,
/// so a thread that runs on a CPU has found none in progress there.
///
/// # Errors
/// Only where both ways are refused, as by a seccomp filter.
pub fn grace() -> Result<()> {
    // SAFETY: no memory is passed.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if result == 0 {
        return Ok(());
    }
    visit_every_cpu().map_err(|source| Error::System {
        call: "membarrier and sched_setaffinity",
        source,
    })
}

/// Runs this thread on each of its CPUs in turn, then lets it run where it could before.
///
/// The thread runs on a new one, so that an error leaves the caller's affinity alone.
fn visit_every_cpu() -> io::Result<()> {
    let visitor = std::thread::spawn(|| {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
        for cpu in cpu_list(&online) {
            // SAFETY: an all-zero set is a valid, empty one.
            let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
            if cpu >= 8 * size_of::<libc::cpu_set_t>() {
                return Err(io::Error::other("more CPUs than a cpu_set_t holds"));
            }
            // SAFETY: `cpu` was just found to be inside the set.
            unsafe { libc::CPU_SET(cpu, &mut set) };
            // SAFETY: the set is initialised and its size is given.
            let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    });
    visitor
        .join()
        .map_err(|_| io::Error::other("the visiting thread panicked"))?
}

/// The numbers of a list such as `0-2,7`; what does not parse is left out.
fn cpu_list(text: &str) -> Vec<usize> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            cpus.extend(first..=last);
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(cpu_list("0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(cpu_list("\n"), [0usize; 0]);
    }

    #[test]
    fn both_ways_return() {
        grace().unwrap();
        visit_every_cpu().unwrap();
    }
}
