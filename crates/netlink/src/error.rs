//! Why talking to the kernel failed.

use std::io;

use crate::codec::{DecodeError, EncodeError, KernelError};

/// Why talking to the kernel failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("netlink: cannot {what}: {source}")]
    Io {
        /// What was to be done.
        what: &'static str,
        /// Why it was not.
        source: io::Error,
    },
    /// The kernel refused a request.
    #[error("the kernel refused to {what}: {error}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// Its answer.
        error: KernelError,
    },
    /// `ENOBUFS`: the receive buffer overflowed and messages are lost; what was learnt from them
    /// must be read again.
    #[error("netlink messages were lost: the receive buffer overflowed")]
    Overrun,
    /// A datagram did not fit in the buffer it was received into.
    #[error("a netlink message of {0} bytes did not fit")]
    Oversized(usize),
    /// The kernel's answer makes no sense to us.
    #[error("the kernel's answer cannot be decoded: {0}")]
    Decode(#[from] DecodeError),
    /// The request cannot be written.
    #[error("the request cannot be written: {0}")]
    Encode(#[from] EncodeError),
    /// The kernel answered something else than asked.
    #[error("no answer to: {0}")]
    NoAnswer(&'static str),
    /// A thread of the mirror is gone.
    #[error("the mirror's {0} thread has stopped")]
    Stopped(&'static str),
}

impl Error {
    pub(crate) fn io(what: &'static str) -> Self {
        Error::Io {
            what,
            source: io::Error::last_os_error(),
        }
    }

    /// The `errno` of a refusal by the kernel.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Refused { error, .. } => Some(error.errno),
            Error::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}
