//! Signals that end the daemon, and those that do not.

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
    flags(&[Signal::SIGTERM, Signal::SIGINT], || ())
}

/// The same, and SIGHUP calls this function, as often as it comes.
pub(crate) fn stop_flag_and_hangup(
    hangup: impl Fn() + Send + 'static,
) -> Result<Arc<AtomicBool>, Failure> {
    flags(&[Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP], hangup)
}

/// The same, and a flag that SIGHUP raises, as often as it comes.
pub(crate) fn stop_and_reload_flags() -> Result<(Arc<AtomicBool>, Arc<AtomicBool>), Failure> {
    let reload = Arc::<AtomicBool>::default();
    let raised = Arc::clone(&reload);
    let stop = stop_flag_and_hangup(move || raised.store(true, Ordering::Relaxed))?;
    Ok((stop, reload))
}

fn flags(
    signals: &[Signal],
    hangup: impl Fn() + Send + 'static,
) -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::<AtomicBool>::default();
    let signals = SigSet::from_iter(signals.iter().copied());
    let failed = |e| Failure::system(format!("cannot take signals: {e}"));
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&signals), None).map_err(failed)?;
    let raised = Arc::clone(&stop);
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            while let Ok(signal) = signals.wait() {
                match signal {
                    Signal::SIGHUP => hangup(),
                    _ => raised.store(true, Ordering::Relaxed),
                }
            }
        })?;
    Ok(stop)
}
