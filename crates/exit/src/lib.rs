//! Failures as the user sees them: one message, one exit code.

use std::fmt;

use raddle_lab::LabError;

/// What programs that call this one can go by. 0 is fine.
pub(crate) mod exit {
    /// It was done, and something was found: a serious finding, a bar that is missed, flows beyond the budget.
    pub(crate) const FOUND: u8 = 1;
    /// The command line or a configuration is wrong.
    pub(crate) const USAGE: u8 = 2;
    /// The kernel, the system or another process refused.
    pub(crate) const SYSTEM: u8 = 3;
}

/// Why the program ends without having done what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    /// One of [`exit`]'s, or a shell's.
    pub code: u8,
    message: String,
}

impl Failure {
    /// The caller is not root and has to be. `what` as in "`what` needs root".
    pub(crate) fn needs_root(what: &str) -> Failure {
        Failure::system(format!("{what} needs root; run it with sudo"))
    }

    /// With an exit code of its own.
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
        }
    }

    /// It was done, and this was found.
    pub(crate) fn found(message: impl Into<String>) -> Failure {
        Failure::new(exit::FOUND, message)
    }

    /// The user asked for something that cannot be.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(exit::USAGE, message)
    }

    /// The kernel or the system refused.
    pub(crate) fn system(message: impl Into<String>) -> Failure {
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
