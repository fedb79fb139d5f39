//! Failures as the user sees them: one message, one exit code.

use std::fmt;

use raddle_lab::LabError;

/// Why the program ends without having done what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    /// 1: usage or configuration; 2: the kernel or the system refused.
    pub code: u8,
    message: String,
}

impl Failure {
    /// The caller is not root and has to be: exit code 2. `what` as in "`what` needs root".
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

    /// The user asked for something that cannot be: exit code 1.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure {
            code: 1,
            message: message.into(),
        }
    }

    /// The kernel or the system refused: exit code 2.
    pub(crate) fn system(message: impl Into<String>) -> Failure {
        Failure {
            code: 2,
            message: message.into(),
        }
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
            | LabError::Topology(_) => 1,
            _ => 2,
        };
        Failure::new(code, e.to_string())
    }
}
