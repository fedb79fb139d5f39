//! What can go wrong, with what to do about it.

use std::io;
use std::path::PathBuf;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a link's program cannot read the hash that the driver gives. Errors of libraries are kept as text: the answer is given again
/// for each link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoRxHash {
    /// The kernel's type information cannot be read.
    #[error("this kernel's BTF cannot be read ({0}); it needs CONFIG_DEBUG_INFO_BTF")]
    Btf(String),
    /// The kernel lacks the function.
    #[error("this kernel has no bpf_xdp_metadata_rx_hash (Linux 6.3)")]
    NoFunction,
    /// The link has the program in the network stack.
    #[error("the program does not run in the driver")]
    Generic,
    /// The kernel does not exchange the program that is attached.
    #[error("the program cannot be exchanged: {0}")]
    Exchange(String),
    /// The program could not be loaded for the device.
    #[error("its program could not be loaded: {0}")]
    Load(String),
    /// The verifier refused the program, with the last line of its log.
    #[error("the kernel refuses its program ({0})")]
    Refused(String),
}

/// Why nobody counts what drivers lose.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoLosses {
    /// The kernel's type information cannot be read, so that nothing is known of its structures.
    #[error("this kernel's BTF cannot be read ({0}); it needs CONFIG_DEBUG_INFO_BTF")]
    Btf(String),
    /// A tracepoint is not there, or tells something else.
    #[error("this kernel's tracepoint {0} is not the one that raddle knows")]
    Tracepoint(&'static str),
    /// It cannot be told which network namespace this is.
    #[error("/proc/thread-self/ns/net cannot be looked at: {0}")]
    Namespace(#[source] io::Error),
    /// The verifier refused a program, with the last line of its log.
    #[error("the kernel refuses the program ({0}){why}", why = locked_down())]
    Refused(String),
    /// A program could not be loaded.
    #[error("the program could not be loaded: {0}")]
    Load(#[source] Error),
    /// A program could not be attached.
    #[error("the program cannot run at the tracepoint {0}: {1}")]
    Attach(&'static str, #[source] io::Error),
}

/// What keeps programs from reading the kernel's memory where they are refused, if it is this.
fn locked_down() -> &'static str {
    let mode = std::fs::read_to_string("/sys/kernel/security/lockdown");
    match mode.is_ok_and(|mode| mode.contains("[confidentiality]")) {
        true => "; kernel lockdown (confidentiality) forbids what it does",
        false => "",
    }
}

/// What the verifier said, on one line.
pub(crate) fn verdict(source: &io::Error, log: &str) -> String {
    let last = log.lines().rev().find(|line| !line.is_empty());
    let last = last.map(|line| format!("; {line}")).unwrap_or_default();
    format!("{source}{last}")
}

/// Why the XDP engine refused. Each message says what, why and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A privilege is missing.
    #[error(
        "cannot {action}: permission denied; run as root or give the process CAP_BPF, \
         CAP_PERFMON and CAP_NET_ADMIN"
    )]
    NotPermitted {
        /// What was tried.
        action: &'static str,
    },
    /// The kernel lacks something.
    #[error(
        "cannot {action}: this kernel does not support it ({source}); raddle needs Linux 6.1 or \
         newer with CONFIG_BPF_SYSCALL and CONFIG_BPF_JIT"
    )]
    KernelTooOld {
        /// What was tried.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The verifier refused the program.
    #[error(
        "the kernel's verifier refused the XDP program ({source}); please report this together \
         with `uname -r` and the end of its log:\n{log}"
    )]
    Verifier {
        /// The kernel's answer.
        source: io::Error,
        /// The last lines of the verifier's log.
        log: String,
    },
    /// A map could not be made.
    #[error("cannot create the BPF map `{name}` ({source}); {}", map_advice(.source))]
    Map {
        /// The map.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The image is to hold nothing of something, or too much.
    #[error(
        "the image's `{name}` would have {bytes} bytes for {cpus} CPUs, and may have 1 to {limit}; choose another \
         number of {}",
        key.unwrap_or("CPUs: they have too many counters")
    )]
    Capacity {
        /// The part of the image.
        name: &'static str,
        /// The key of the configuration that its size goes by; none where only the CPUs count.
        key: Option<&'static str>,
        /// Its size.
        bytes: usize,
        /// The largest size.
        limit: usize,
        /// The CPUs of the machine, each of which has its own counters.
        cpus: usize,
    },
    /// The embedded object cannot be loaded.
    #[error("cannot load the embedded BPF object: {0}; this is a bug in raddle's build")]
    Object(String),
    /// No such network device.
    #[error("there is no link with index {index} in this network namespace")]
    NoSuchLink {
        /// Interface index.
        index: u32,
    },
    /// The interface index cannot be used.
    #[error("link index {index} is too large: the image holds indices below {limit}")]
    LinkIndex {
        /// Interface index.
        index: u32,
        /// First index that is too large.
        limit: usize,
    },
    /// Somebody else's XDP program is there.
    #[error(
        "link {index} already has an XDP program{}; detach it first (`ip link set dev NAME xdp off`, \
         or stop the program that holds it)", .program.as_deref().unwrap_or_default()
    )]
    AlreadyAttached {
        /// Interface index.
        index: u32,
        /// ` (NAME, id N)`, where it can be told.
        program: Option<String>,
    },
    /// The driver cannot run the program.
    #[error(
        "the driver of link {index} cannot run XDP programs natively ({source}); use mode `auto` \
         or `generic`, or lower its MTU"
    )]
    NativeUnsupported {
        /// Interface index.
        index: u32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Attaching failed for another reason.
    #[error("cannot attach the XDP program to link {index}: {source}")]
    Attach {
        /// Interface index.
        index: u32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The program cannot read the hash of the driver.
    #[error("the receive hash of link {index} cannot be read: {why}")]
    RxHash {
        /// Interface index.
        index: u32,
        /// Why not.
        why: NoRxHash,
    },
    /// Nothing is attached there.
    #[error("link {index} does not have raddle's XDP program")]
    NotAttached {
        /// Interface index.
        index: u32,
    },
    /// Pinning or reopening failed.
    #[error("cannot {action} {}: {source}", .path.display())]
    Pin {
        /// What was tried.
        action: &'static str,
        /// The pin.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Pins from an incompatible version.
    #[error(
        "the pins under {} do not fit this version of raddle ({why}); remove them with \
         `rm -r` while no traffic depends on them, and start again",
        .path.display()
    )]
    Incompatible {
        /// The folder.
        path: PathBuf,
        /// What does not fit.
        why: String,
    },
    /// Another system call failed.
    #[error("{call} failed: {source}")]
    System {
        /// The call.
        call: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Error {
    /// On one line, without the verifier's log.
    pub fn brief(&self) -> String {
        match self {
            Error::Verifier { source, .. } => format!(
                "the kernel's verifier refused the program ({source}); the log has its reasons"
            ),
            other => other.to_string(),
        }
    }

    /// Sorts a failed system call into the kinds that have advice of their own.
    pub(crate) fn system(call: &'static str, action: &'static str, source: io::Error) -> Error {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Error::NotPermitted { action },
            Some(libc::ENOSYS | libc::EOPNOTSUPP) => Error::KernelTooOld { action, source },
            _ => Error::System { call, source },
        }
    }
}

/// What to do where a map cannot be made.
fn map_advice(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EMFILE) => {
            "the process has too many files open; raise its limit (ulimit -n, LimitNOFILE= of the service)"
        }
        Some(libc::ENFILE) => "this machine has too many files open; raise fs.file-max (sysctl)",
        _ => {
            "if memory is short, lower the image's capacity or raise the memory limit of the service"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_is_not_called_one_of_memory() {
        let said = |errno| {
            let name = "links".to_owned();
            let source = io::Error::from_raw_os_error(errno);
            Error::Map { name, source }.to_string()
        };
        assert!(said(libc::EMFILE).contains("ulimit -n"));
        assert!(!said(libc::EMFILE).contains("memory"));
        assert!(said(libc::ENOMEM).contains("lower the image's capacity"));
    }

    #[test]
    fn brief_is_one_line() {
        let refused = Error::Verifier {
            source: io::Error::from_raw_os_error(libc::EACCES),
            log: "one\ntwo".to_owned(),
        };
        assert_eq!(refused.to_string().lines().count(), 3);
        let brief = refused.brief();
        assert!(
            brief.lines().count() == 1 && brief.contains("verifier"),
            "{brief}"
        );
        let other = Error::NoSuchLink { index: 7 };
        assert_eq!(other.brief(), other.to_string());
    }
}
