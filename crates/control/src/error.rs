//! What keeps one from asking, answering, or being the daemon.

use std::io;
use std::path::{Path, PathBuf};

/// Who listens on a socket, as messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// What it is: `raddle daemon`.
    pub name: &'static str,
    /// The command that starts it.
    pub start: &'static str,
    /// What happens while it does not answer; nothing, or words that begin with a comma.
    pub meanwhile: &'static str,
}

/// Why it does not work, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller may not ask.
    #[error("{}: permission denied; run as root or as a member of its group", path.display())]
    Denied {
        /// The socket.
        path: PathBuf,
    },
    /// Nobody answers.
    #[error("no {} runs here: nobody answers on {}; start one with {}", who.name, path.display(), who.start)]
    Nobody {
        /// Who is looked for.
        who: Who,
        /// The socket.
        path: PathBuf,
    },
    /// Somebody listens, and does not answer.
    #[error(
        "the {} on {} does not answer: it hangs, is stopped (kill -CONT lets it go on) or gets no processor{}; look at its log, and restart it",
        who.name,
        path.display(),
        who.meanwhile
    )]
    Hangs {
        /// Who is asked.
        who: Who,
        /// The socket.
        path: PathBuf,
    },
    /// The answer is of another version.
    #[error(
        "the {} here is of another version: it answers by version {theirs} of the control protocol, and this \
         program asks by version {}; restart it, or ask with the program that it runs",
        who.name,
        crate::PROTOCOL
    )]
    Version {
        /// Who is asked.
        who: Who,
        /// The version by which it answers; 0 of versions that did not say.
        theirs: u32,
    },
    /// The answer is not one.
    #[error("the answer of the {} makes no sense: {why}", who.name)]
    Nonsense {
        /// Who is asked.
        who: Who,
        /// What is wrong with it.
        why: String,
    },
    /// What the daemon has said instead of an answer.
    #[error("{0}")]
    Said(String),
    /// The kernel refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The lock cannot be had.
    #[error(
        "cannot lock {}: {source}; run raddle as root, or as a user who may write to {} and has CAP_NET_ADMIN, \
         CAP_BPF and CAP_PERFMON",
        path.display(),
        path.parent().unwrap_or(path).display()
    )]
    Lock {
        /// The lock's file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Somebody else is the daemon of this network namespace.
    #[error(
        "a raddle daemon already runs in this network namespace (it holds {}); stop it first",
        lock.display()
    )]
    RunsAlready {
        /// The lock's file.
        lock: PathBuf,
    },
    /// Somebody else listens there.
    #[error(
        "a raddle daemon already answers on {}; stop it first, or name another --socket",
        path.display()
    )]
    AnswersAlready {
        /// The socket.
        path: PathBuf,
    },
    /// Something else has that name.
    #[error(
        "{} is there already and is not a socket; name another place with --socket",
        path.display()
    )]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The socket's directory is not there.
    #[error(
        "cannot listen on {}: there is no directory {}; make it, or name another place with --socket",
        path.display(),
        path.parent().unwrap_or(Path::new("/")).display()
    )]
    NoDirectory {
        /// The socket.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error(
        "cannot listen on {}: {source}; {}name another place with --socket",
        path.display(),
        match source.kind() {
            io::ErrorKind::PermissionDenied => "run it as root, or ",
            _ => "",
        }
    )]
    Listen {
        /// The socket.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}
