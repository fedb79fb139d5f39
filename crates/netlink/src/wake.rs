//! Waking threads that wait on file descriptors.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// An eventfd: readable from [`Wake::set`] to [`Wake::clear`].
#[derive(Debug)]
pub(crate) struct Wake(OwnedFd);

impl Wake {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked.
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` is a fresh descriptor that nothing else owns.
        Ok(Wake(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    pub(crate) fn set(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: pointer and length are of one live array. The write can only fail when the
        // counter is full, and then it is set anyway.
        let _ = unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    pub(crate) fn clear(&self) {
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
pub(crate) fn wait<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut polled = fds.map(polled);
    Ok(match wait_polled(&mut polled, timeout)? {
        true => polled.map(|p| p.revents != 0),
        false => [false; N],
    })
}

/// As [`wait`], for as many as there are and as long as it takes.
pub(crate) fn wait_all<'a>(fds: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<libc::pollfd> = fds.map(polled).collect();
    let any = wait_polled(&mut polled, None)?;
    Ok(polled.iter().map(|p| any && p.revents != 0).collect())
}

fn polled(fd: BorrowedFd<'_>) -> libc::pollfd {
    libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Whether it waited to the end, and was not interrupted by a signal.
fn wait_polled(polled: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<bool> {
    // Rounded up, so that a wait for less than a millisecond does not spin.
    let milliseconds = timeout.map_or(-1, |t| {
        i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
    });
    // SAFETY: pointer and count are of one live slice.
    let result = unsafe {
        libc::poll(
            polled.as_mut_ptr(),
            polled.len() as libc::nfds_t,
            milliseconds,
        )
    };
    if result >= 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(false),
        _ => Err(error),
    }
}
