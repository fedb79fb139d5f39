//! Asking.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::message::{Question, Reply};
use crate::{Answer, Error, PATIENCE, Who, default_path};

/// The daemon that forwards.
pub const DAEMON: Who = Who {
    name: "raddle daemon",
    start: "raddle run",
    meanwhile: ", and after its deadline the kernel forwards",
};

/// The proxies for NFS and other ONC RPC.
pub const PROXIES: Who = Who {
    name: "proxy (raddle rpc)",
    start: "raddle rpc --server HOST:PORT",
    meanwhile: "",
};

/// Asks the daemon of this network namespace, or of the socket that was named. Takes up to six seconds where it hangs.
///
/// ```no_run
/// let status: raddle_control::Status = raddle_control::ask(None)?;
/// println!("{}", status.state.name());
/// # Ok::<(), raddle_control::Error>(())
/// ```
///
/// # Errors
/// Nobody answers, the caller may not ask, or the answer is of another version.
pub fn ask<A: Answer>(socket: Option<&Path>) -> Result<A, Error> {
    match socket {
        Some(socket) => ask_at(socket, DAEMON),
        None => ask_at(&default_path(), DAEMON),
    }
}

/// Asks whoever listens there.
///
/// # Errors
/// As [`ask`].
pub fn ask_at<A: Answer>(path: &Path, who: Who) -> Result<A, Error> {
    let path_buf = || path.to_owned();
    let mut stream = UnixStream::connect(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::PermissionDenied => Error::Denied { path: path_buf() },
        _ => Error::Nobody {
            who,
            path: path_buf(),
        },
    })?;
    // The daemon itself gives up first, and says why.
    stream.set_read_timeout(Some(PATIENCE + Duration::from_secs(1)))?;
    writeln!(stream, "{}", Question::of(A::COMMAND).line())?;
    let mut line = String::new();
    BufReader::new(stream)
        .read_line(&mut line)
        .map_err(|e| match e.kind() {
            std::io::ErrorKind::WouldBlock => Error::Hangs {
                who,
                path: path_buf(),
            },
            _ => Error::Io(e),
        })?;
    Reply::from_line(line).read(who)
}

/// The questions of one command to a daemon. One that does not answer is waited for once.
///
/// ```no_run
/// use raddle_control::{Counters, Session, Status};
///
/// let daemon = Session::new(None);
/// if let Some(status) = daemon.ask_if_any::<Status>()? {
///     println!("{}", status.state.name());
/// }
/// let counters: Option<Counters> = daemon.ask_if_any()?;
/// # Ok::<(), raddle_control::Error>(())
/// ```
#[derive(Debug)]
pub struct Session {
    socket: Option<PathBuf>,
    failed: OnceLock<Failed>,
}

/// Why there was no answer.
#[derive(Debug)]
enum Failed {
    /// [`Error::Hangs`], of this socket.
    Hangs(PathBuf),
    /// What else the error said.
    Otherwise(String),
}

impl Session {
    /// With the daemon of this network namespace, or of the socket that was named. Asks nothing yet.
    pub const fn new(socket: Option<PathBuf>) -> Session {
        Session {
            socket,
            failed: OnceLock::new(),
        }
    }

    /// As [`ask`], and none where no daemon runs. After one that took a second or more to fail, all further questions end with the same
    /// error, at once.
    ///
    /// # Errors
    /// There is one, and what it has is not known: whoever goes on without it should say so.
    pub fn ask_if_any<A: Answer>(&self) -> Result<Option<A>, Error> {
        match self.failed.get() {
            None => {}
            Some(Failed::Hangs(path)) => {
                let (who, path) = (DAEMON, path.clone());
                return Err(Error::Hangs { who, path });
            }
            Some(Failed::Otherwise(why)) => return Err(Error::Said(why.clone())),
        }
        let began = Instant::now();
        match ask(self.socket.as_deref()) {
            Ok(answer) => Ok(Some(answer)),
            Err(Error::Nobody { .. }) => Ok(None),
            Err(e) if began.elapsed() < Duration::from_secs(1) => Err(e),
            Err(e) => {
                self.failed.get_or_init(|| match &e {
                    Error::Hangs { path, .. } => Failed::Hangs(path.clone()),
                    other => Failed::Otherwise(other.to_string()),
                });
                Err(e)
            }
        }
    }
}
