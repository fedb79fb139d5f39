//! Why connections cannot be placed.

use std::io;
use std::path::PathBuf;

use thiserror::Error as ThisError;

/// Why connections cannot be placed.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The programs.
    #[error(transparent)]
    Programs(#[from] raddle_xdp::Error),
    /// The kernel's routes.
    #[error(transparent)]
    Netlink(#[from] raddle_netlink::Error),
    /// The kernel's version.
    #[error(transparent)]
    Kernel(#[from] raddle_preflight::KernelError),
    /// The network namespace's cookie.
    #[error(
        "the kernel does not tell the network namespace's cookie (SO_NETNS_COOKIE, since Linux 5.14): {0}"
    )]
    Namespace(#[source] io::Error),
    /// There is no hierarchy of cgroups of version 2, on which the programs run.
    #[error(
        "no cgroup2 filesystem is mounted, to whose cgroups the programs are attached, and it cannot be mounted: {0}; \
         mount -t cgroup2 none /sys/fs/cgroup/unified says more"
    )]
    NoCgroups(#[source] io::Error),
    /// Something is wrong with a cgroup.
    #[error("cannot {what} {}: {source}", path.display())]
    Cgroup {
        /// What was tried.
        what: &'static str,
        /// The cgroup's directory, or a file in it.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A setting cannot be read.
    #[error("cannot read {path}: {source}")]
    Setting {
        /// Its file.
        path: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A setting makes no sense.
    #[error("{path} says '{text}', which is no range or list of ports")]
    Ports {
        /// Its file.
        path: &'static str,
        /// What it says.
        text: String,
    },
}
