//! What can go wrong with a lab: what, why, and what to do.

use std::{io, path::PathBuf, time::Duration};

use thiserror::Error;

use crate::TopologyError;

/// Why a lab could not be built, found, used or removed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// The caller is not root.
    #[error("a lab needs root, to make network namespaces; run the command with sudo")]
    NotRoot,
    /// A program that the lab runs is not installed.
    #[error("{program} was not found, the lab needs it {purpose}; install it: {install}")]
    MissingTool {
        /// The program's name.
        program: &'static str,
        /// What the lab uses it for.
        purpose: &'static str,
        /// The command that installs it on Debian.
        install: &'static str,
    },
    /// The kernel or a sandbox refuses network namespaces.
    #[error(
        "the kernel refuses a new network namespace: {0}; a lab needs a kernel with CONFIG_NET_NS \
         and, inside a container, the privilege CAP_SYS_ADMIN (docker run --privileged)"
    )]
    NoNamespaces(#[source] io::Error),
    /// The kernel cannot make devices of some kinds.
    #[error(
        "the kernel makes no {what}, of which this lab consists ({reason}); load what is missing \
         (modprobe -a {modules}), or take a kernel with {options}, as Debian's are"
    )]
    NoDevices {
        /// Their kinds, such as "VLANs and no bonds".
        what: String,
        /// What `ip` said of the last of them.
        reason: String,
        /// The modules that have them, separated by spaces.
        modules: String,
        /// The kernel's options.
        options: String,
    },
    /// The name cannot be used for a lab.
    #[error(
        "`{0}` cannot name a lab: use 1 to 24 of a-z, 0-9 and -, a letter or digit at each end"
    )]
    BadName(String),
    /// A lab of this name stands already, or its remains do.
    #[error(
        "there is a lab named `{0}` already; remove it with `raddle lab down {0}`, or choose \
         another name with --name"
    )]
    NameInUse(String),
    /// Someone else is building or removing the lab at this moment.
    #[error(
        "the lab `{0}` is being built or removed by another process; wait for it, then try again"
    )]
    Busy(String),
    /// No lab has this name.
    #[error("there is no lab named `{0}`; `raddle lab list` shows those that stand")]
    NoSuchLab(String),
    /// The lab exists, but was not built to its end.
    #[error("the lab `{0}` was never finished; remove what there is with `raddle lab down {0}`")]
    Unfinished(String),
    /// The lab has no such node.
    #[error("the lab `{lab}` has no node `{node}`; its nodes are {nodes}")]
    NoSuchNode {
        /// The lab's name.
        lab: String,
        /// What was asked for.
        node: String,
        /// The names that exist, separated by commas.
        nodes: String,
    },
    /// The lab has no link of this number.
    #[error("the lab has {count} links, numbered from 0: there is no link {link}")]
    NoSuchLink {
        /// What was asked for.
        link: usize,
        /// How many there are.
        count: usize,
    },
    /// The topology contradicts itself.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A program of the system failed.
    #[error("{what}: `{command}` failed: {stderr}")]
    Command {
        /// What the lab was doing.
        what: String,
        /// The command, or the line of a batch, that failed.
        command: String,
        /// What it said.
        stderr: String,
    },
    /// A file or system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What the lab was doing.
        what: String,
        /// What the system answered.
        source: io::Error,
    },
    /// The wire's BPF program could not be loaded or attached.
    #[error(
        "the wire's BPF program could not be {doing}: {reason}; a lab needs a kernel with BPF, \
         CONFIG_NET_CLS_BPF and CONFIG_NET_SCH_INGRESS (Debian's has them)"
    )]
    Wire {
        /// "loaded" or "attached to DEVICE".
        doing: String,
        /// What the loader said.
        reason: String,
    },
    /// A state file of a lab does not hold what it should.
    #[error("{path} is damaged: {reason}; remove the lab with `raddle lab down`")]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Routing did not settle in time.
    #[error(
        "routing did not converge within {} s: {ready} of {expected} routes are complete, missing \
         {missing}; look with `raddle lab exec NODE -- vtysh -c 'show bgp summary'`",
        waited.as_secs()
    )]
    NotConverged {
        /// How long the lab waited.
        waited: Duration,
        /// Routes that are as they should be.
        ready: usize,
        /// Routes that should be there.
        expected: usize,
        /// The first few that are not.
        missing: String,
    },
    /// The user interrupted the work (SIGINT, SIGTERM or SIGHUP).
    #[error("interrupted; the unfinished lab was removed")]
    Interrupted,
    /// Removing the lab left something behind.
    #[error("the lab `{lab}` could not be removed completely: {reason}; try again")]
    Remains {
        /// The lab's name.
        lab: String,
        /// What is left, and why.
        reason: String,
    },
}

impl LabError {
    /// Wraps a system error with what was being done, for `map_err`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            what: what.into(),
            source,
        }
    }
}
