//! How raddle's programs end: a failure is one message and one exit code, and which failure of which library has which
//! code stands here, for all of them.
//!
//! ```
//! use raddle_exit::{Failure, exit};
//!
//! fn read() -> Result<String, Failure> {
//!     Ok(std::fs::read_to_string("/no/such/file")?)
//! }
//! let failure = read().unwrap_err();
//! assert_eq!(failure.code, exit::SYSTEM);
//! assert!(failure.to_string().contains("No such file"));
//! ```

use std::fmt;

use raddle_lab::LabError;
use raddle_text::outside::shown;

/// What programs that call this one can go by. 0 is fine.
pub mod exit {
    /// It was done, and something was found: a serious finding, a bar that is missed, flows beyond the budget.
    pub const FOUND: u8 = 1;
    /// The command line or a configuration is wrong.
    pub const USAGE: u8 = 2;
    /// The kernel, the system or another process refused.
    pub const SYSTEM: u8 = 3;
}

/// Why the program ends without having done what was asked.
#[derive(Debug)]
pub struct Failure {
    /// One of [`exit`]'s, or a shell's.
    pub code: u8,
    message: String,
}

impl Failure {
    /// The caller is not root and has to be. `what` as in "`what` needs root".
    pub fn needs_root(what: &str) -> Failure {
        Failure::system(format!("{what} needs root; run it with sudo"))
    }

    /// With an exit code of its own. What a terminal would obey is escaped: a message may show what others have written.
    pub fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: shown(&message.into()).into_owned(),
        }
    }

    /// It was done, and this was found.
    pub fn found(message: impl Into<String>) -> Failure {
        Failure::new(exit::FOUND, message)
    }

    /// The user asked for something that cannot be.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::new(exit::USAGE, message)
    }

    /// The kernel or the system refused.
    pub fn system(message: impl Into<String>) -> Failure {
        Failure::new(exit::SYSTEM, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

macro_rules! system_failure {
    ($($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(e: $error) -> Failure {
                Failure::system(e.to_string())
            }
        })*
    };
}

system_failure!(
    std::io::Error,
    raddle_netlink::Error,
    raddle_netlink::probe::Error,
    raddle_xdp::Error
);

/// Ends the process, without a word, when nobody reads what it prints any more: `raddle route show | head`. Rust
/// ignores SIGPIPE otherwise, and so it stays in what serves: a client, a server or a reader of the log that goes away
/// ends no daemon. Call it before any other thread is made.
pub fn end_with_readers() {
    // SAFETY: no other thread runs yet, and the default action needs no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

macro_rules! usage_failure {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(e: $error) -> Failure {
                Failure::usage(e.to_string())
            }
        })*
    };
}

// Questions that cannot be asked as they stand, by the state that there is.
usage_failure!(
    raddle_explain::Error,
    raddle_plan::flows::Error,
    raddle_plan::paths::PathError,
    raddle_plan::spread::Error,
    raddle_plan::what_if::Error,
    raddle_plan::what_if::WordsError,
);

/// A setting or an answer of the kernel that is missing is the system's; the rest is the question's.
impl From<raddle_plan::ports::Error> for Failure {
    fn from(e: raddle_plan::ports::Error) -> Failure {
        let code = match e.is_system() {
            true => exit::SYSTEM,
            false => exit::USAGE,
        };
        Failure::new(code, e.to_string())
    }
}

/// Another socket's place is the user's to name; the rest is the system's.
impl From<raddle_control::Error> for Failure {
    fn from(e: raddle_control::Error) -> Failure {
        let code = match e {
            raddle_control::Error::NotASocket { .. } => exit::USAGE,
            _ => exit::SYSTEM,
        };
        Failure::new(code, e.to_string())
    }
}

/// What is asked for may not be there; else the command line is wrong.
impl From<raddle_iproute::show::Error> for Failure {
    fn from(e: raddle_iproute::show::Error) -> Failure {
        let code = match e.is_absent() {
            true => exit::SYSTEM,
            false => exit::USAGE,
        };
        Failure::new(code, e.to_string())
    }
}

/// An address that others can reach is the user's to change; one that is taken, the system's to give.
impl From<raddle_metrics::Error> for Failure {
    fn from(e: raddle_metrics::Error) -> Failure {
        let code = match e {
            raddle_metrics::Error::NotLoopback(_) => exit::USAGE,
            _ => exit::SYSTEM,
        };
        Failure::new(code, e.to_string())
    }
}

/// A configuration is the user's to correct, or another one to name.
impl From<raddle_config::Error> for Failure {
    fn from(e: raddle_config::Error) -> Failure {
        Failure::usage(e.to_string())
    }
}

/// What the user asks for is theirs to change; the rest is the system's.
impl From<raddle_daemon::Error> for Failure {
    fn from(e: raddle_daemon::Error) -> Failure {
        use raddle_daemon::Error;
        match e {
            Error::File(e) => e.into(),
            Error::Control(e) => e.into(),
            Error::Metrics(e) => e.into(),
            Error::Invalid(_) | Error::Static(_) => Failure::usage(e.to_string()),
            e => Failure::system(e.to_string()),
        }
    }
}

/// What makes no sense is the user's to correct; what is not there, or is refused, may be there later.
impl From<raddle_rpc_paths::Error> for Failure {
    fn from(e: raddle_rpc_paths::Error) -> Failure {
        let code = match e.is_usage() {
            true => exit::USAGE,
            false => exit::SYSTEM,
        };
        Failure::new(code, e.to_string())
    }
}

/// A lab or node that was named wrongly is the user's doing; the rest is the system's.
impl From<LabError> for Failure {
    fn from(e: LabError) -> Failure {
        let code = match e {
            LabError::BadName(_)
            | LabError::NameInUse(_)
            | LabError::NoSuchLab(_)
            | LabError::NoSuchNode { .. }
            | LabError::NoSuchLink { .. }
            | LabError::Topology(_) => exit::USAGE,
            _ => exit::SYSTEM,
        };
        Failure::new(code, e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_no_failure() {
        let failure = Failure::usage("there is no 'a\u{1b}[2J':\n\t\u{9b}2J");
        assert_eq!(
            failure.to_string(),
            "there is no 'a\\u{1b}[2J':\n\t\\u{9b}2J"
        );
    }
}
