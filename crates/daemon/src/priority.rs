//! Who follows the kernel does not wait behind those who compute.
//!
//! 1. `realtime`: the threads that follow the kernel run before all without a real-time priority (`SCHED_RR` 1, the
//!    lowest). `nice`: at -15, which is a share of some 25 beside one of others. `none`: as all others.
//! 2. One that computes for 0.2 s without waiting for anything (`RLIMIT_RTTIME`) takes the processor from others for no
//!    longer: all are at nice -15 from then on, until the next round. So is one that loads a program, which is one long
//!    system call.
//! 3. What is not permitted falls back to the next, and is told: `realtime`, `nice`, `none`.
//! 4. Threads and programs that they start begin as all others (`SCHED_RESET_ON_FORK`).

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use raddle_control::status;

use crate::config::Priority;

/// The niceness of rules 1 and 2.
const NICENESS: i32 = -15;
/// Microseconds of computing without a pause (rule 2).
const RT_TIME: u64 = 200_000;

/// The threads that rule 2 is about; 0 is none.
static THREADS: [AtomicI32; 4] = [const { AtomicI32::new(0) }; 4];
/// How often rule 2 has applied.
static DEMOTIONS: AtomicU64 = AtomicU64::new(0);

/// The priority of the threads that follow the kernel.
#[derive(Debug, Default)]
pub(super) struct Standing {
    have: Priority,
    demotions: u64,
}

impl Standing {
    /// Gives these threads the priority that is wanted, or what is permitted of it.
    pub(super) fn take(wanted: Priority, threads: impl Iterator<Item = i32>) -> Standing {
        for (slot, thread) in THREADS.iter().zip(threads) {
            slot.store(thread, Ordering::Relaxed);
        }
        let mut have = wanted;
        if have == Priority::Realtime
            && let Err(e) = prepare().and_then(|()| all(realtime))
        {
            have = Priority::Nice;
            tracing::warn!(
                "no real-time priority: {e}; beside programs that compute, changes of routes are followed later: \
                 CAP_SYS_NICE permits it"
            );
        }
        if have == Priority::Nice
            && let Err(e) = all(nice)
        {
            have = Priority::None;
            tracing::warn!(
                "no priority over others: {e}; beside programs that compute, changes of routes are followed late: \
                 CAP_SYS_NICE permits it"
            );
        }
        Standing {
            have,
            demotions: DEMOTIONS.load(Ordering::Relaxed),
        }
    }

    /// Ends what rule 2 has begun.
    pub(super) fn round(&mut self) {
        let demotions = DEMOTIONS.load(Ordering::Relaxed);
        if demotions == self.demotions {
            return;
        }
        self.demotions = demotions;
        // The kernel has raised the limit by a second when it was reached.
        if let Err(e) = limit().and_then(|()| all(realtime)) {
            tracing::warn!("the real-time priority cannot be had again: {e}");
        }
    }

    /// Does something long as one of rule 2, on the thread that was named first.
    pub(super) fn as_others<T>(&self, work: impl FnOnce() -> T) -> T {
        let own = THREADS[0].load(Ordering::Relaxed);
        let lowers = self.have == Priority::Realtime && own == nix::unistd::gettid().as_raw();
        if lowers {
            let _ = nice(own);
        }
        let result = work();
        // Not where rule 2 has applied meanwhile.
        if lowers
            && DEMOTIONS.load(Ordering::Relaxed) == self.demotions
            && let Err(e) = realtime(own)
        {
            tracing::warn!("the real-time priority cannot be had again: {e}");
        }
        result
    }

    /// For `status`.
    pub(super) fn status(&self, wanted: Priority) -> status::Priority {
        status::Priority {
            wanted: wanted.name().to_owned(),
            have: self.have.name().to_owned(),
            demotions: DEMOTIONS.load(Ordering::Relaxed),
        }
    }
}

/// Whatever rule 2 needs, before anybody has a real-time priority.
fn prepare() -> io::Result<()> {
    let action = SigAction::new(
        SigHandler::Handler(demote),
        SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    // SAFETY: the handler stores to atomics and makes system calls, and leaves errno as it was.
    unsafe { sigaction(Signal::SIGXCPU, &action)? };
    limit()
}

/// Sets the soft limit of rule 2; the hard one, at which the kernel would kill, stays. It has to leave room.
fn limit() -> io::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_RTTIME)?;
    if hard <= RT_TIME {
        let why = format!("RLIMIT_RTTIME is {hard} µs, and {RT_TIME} and more are needed");
        return Err(io::Error::other(why));
    }
    setrlimit(Resource::RLIMIT_RTTIME, RT_TIME, hard)?;
    Ok(())
}

/// Rule 2, for all of them: which of the threads gets the signal is the kernel's choice.
extern "C" fn demote(_: libc::c_int) {
    let errno = Errno::last_raw();
    let _ = all(nice);
    DEMOTIONS.fetch_add(1, Ordering::Relaxed);
    Errno::set_raw(errno);
}

/// Does it to all threads; the first error.
fn all(change: fn(libc::pid_t) -> io::Result<()>) -> io::Result<()> {
    let threads = THREADS.iter().map(|thread| thread.load(Ordering::Relaxed));
    threads.filter(|thread| *thread != 0).try_for_each(change)
}

fn realtime(thread: libc::pid_t) -> io::Result<()> {
    schedule(thread, libc::SCHED_RR, 1)
}

fn nice(thread: libc::pid_t) -> io::Result<()> {
    schedule(thread, libc::SCHED_OTHER, 0)?;
    // SAFETY: no pointers. Errors are told by the result alone where it sets.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, thread as libc::id_t, NICENESS) };
    outcome(result)
}

fn schedule(thread: libc::pid_t, policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the pointer is to a live structure that the kernel only reads.
    let result = unsafe {
        libc::sched_setscheduler(thread, policy | libc::SCHED_RESET_ON_FORK, &parameters)
    };
    outcome(result)
}

fn outcome(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
