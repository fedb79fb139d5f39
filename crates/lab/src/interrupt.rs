//! Noticing SIGINT, SIGTERM and SIGHUP during work that must be undone when it is cut short.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::LabError;

const SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// How many guards live, and the dispositions to put back after the last of them.
static GUARDS: Mutex<(usize, Vec<(Signal, SigAction)>)> = Mutex::new((0, Vec::new()));

/// While one lives, SIGINT, SIGTERM and SIGHUP do not end the process: [`check`](Self::check) reports
/// them, so that work with a [`Lab`](crate::Lab) can end in order and the lab be removed.
///
/// System calls are cut short with `EINTR`. Signals that were ignored stay ignored. Guards may be
/// nested; the dispositions found by the first are put back after the last.
#[derive(Debug)]
pub struct Interrupt(());

extern "C" fn note(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

impl Interrupt {
    /// Catches the signals from now on.
    pub fn catch() -> Self {
        let mut guards = GUARDS.lock().unwrap_or_else(PoisonError::into_inner);
        guards.0 += 1;
        if guards.0 == 1 {
            INTERRUPTED.store(false, Ordering::Relaxed);
            let handler = SigHandler::Handler(note);
            // Without SA_RESTART, so that a signal also ends a wait for a child.
            let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
            for signal in SIGNALS {
                // SAFETY: the handler only stores to an atomic, which is safe in any context.
                if let Ok(old) = unsafe { sigaction(signal, &action) } {
                    if matches!(old.handler(), SigHandler::SigIgn) {
                        // `nohup` and background shells ignore signals on purpose.
                        // SAFETY: this puts back what was there.
                        let _ = unsafe { sigaction(signal, &old) };
                    } else {
                        guards.1.push((signal, old));
                    }
                }
            }
        }
        Self(())
    }

    /// An error if a signal came since the guard (the first, of nested ones) was made.
    ///
    /// # Errors
    /// [`LabError::Interrupted`].
    pub fn check(&self) -> Result<(), LabError> {
        if INTERRUPTED.load(Ordering::Relaxed) {
            Err(LabError::Interrupted)
        } else {
            Ok(())
        }
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        let mut guards = GUARDS.lock().unwrap_or_else(PoisonError::into_inner);
        guards.0 -= 1;
        if guards.0 == 0 {
            for (signal, old) in guards.1.drain(..) {
                // SAFETY: this puts back what was there.
                let _ = unsafe { sigaction(signal, &old) };
            }
        }
    }
}
