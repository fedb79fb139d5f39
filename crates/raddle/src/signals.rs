//! Signals that end the daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};

use crate::error::Failure;

/// A flag that SIGTERM and SIGINT raise.
///
/// The signals are blocked for this thread and those that it makes from now on, and taken by a
/// thread of their own, so that no system call of the daemon is cut short. Call it before any other
/// thread is made.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    let failed = |e| Failure::system(format!("cannot take signals: {e}"));
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&signals), None).map_err(failed)?;
    let raised = Arc::clone(&flag);
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if signals.wait().is_ok() {
                raised.store(true, Ordering::Relaxed);
            }
        })?;
    Ok(flag)
}
