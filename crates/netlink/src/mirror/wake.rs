//! Waking threads that wait on file descriptors.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// An eventfd: readable from [`Wake::set`] to [`Wake::clear`].
#[derive(Debug)]
pub(super) struct Wake(OwnedFd);

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked.
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` is a fresh descriptor that nothing else owns.
        Ok(Wake(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    pub(super) fn set(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: pointer and length are of one live array. The write can only fail when the
        // counter is full, and then it is set anyway.
        let _ = unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    pub(super) fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: pointer and length are of one live array. The read can only fail when there is
        // nothing to clear.
        let _ = unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of `fds` is readable or in error, at most for `timeout`. Which of them are; all
/// false after the timeout or a signal.
pub(super) fn wait<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|fd| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    // Rounded up, so that a wait for less than a millisecond does not spin.
    let milliseconds = timeout.map_or(-1, |t| {
        i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
    });
    // SAFETY: pointer and count are of one live array.
    let result = unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, milliseconds) };
    if result < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted {
            Ok([false; N])
        } else {
            Err(error)
        };
    }
    Ok(polled.map(|p| p.revents != 0))
}
