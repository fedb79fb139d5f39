//! The control socket: how other invocations of the program ask the daemon.
//!
//! A request is one line, a JSON object with a `command`; the answer is one line of JSON. One socket
//! for each network namespace, because one daemon forwards for each.

mod clients;

use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Failure;

/// Directory of control sockets.
const DIRECTORY: &str = "/run/raddle";
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest request in bytes.
const LONGEST: u64 = 4096;

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Command {
    /// What the daemon does.
    Status,
    /// Packets and bytes.
    Counters,
    /// SIDs and encapsulations as the engine has them, with their counters.
    Segments,
    /// Routes that the kernel does not have: raddle's own, and those by FPM.
    Own,
}

/// A question and where its answer goes.
#[derive(Debug)]
pub(crate) struct Request {
    /// What is asked.
    pub command: Command,
    /// Takes the answer.
    pub answer: Sender<Value>,
}

/// The socket's path for this thread's network namespace: by the namespace's inode, which everybody
/// can see of their own. (Who is in the machine's first namespace, ordinary users and confined
/// daemons cannot see.)
pub(crate) fn default_path() -> PathBuf {
    let inode = std::fs::metadata("/proc/thread-self/ns/net").map(|ns| ns.ino());
    let name = match inode {
        Ok(inode) => format!("net-{inode}.sock"),
        // A kernel without namespaces.
        Err(_) => "raddle.sock".to_owned(),
    };
    Path::new(DIRECTORY).join(name)
}

/// The right to be the daemon of a network namespace. The kernel takes it back when the process dies;
/// the file goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    /// Open as long as the lock is held.
    _file: File,
    path: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // It is still locked: who has opened it meanwhile finds that it is not current.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Sees to it that there is one daemon only in a network namespace, wherever its socket is: two
/// would take each other's pinned programs away, and write to one image.
pub(crate) fn lock() -> Result<Lock, Failure> {
    let lock = lock_at(&default_path().with_extension("lock"))?;
    sweep(&lock);
    Ok(lock)
}

/// The lock of the network namespace whose daemon, socket and kept programs have this name, such as `net-4026531840`. None
/// where a daemon runs.
pub(crate) fn lock_of(name: &str) -> Option<Lock> {
    let path = Path::new(DIRECTORY).join(name).with_extension("lock");
    try_lock_at(&path).ok().flatten()
}

/// Removes what daemons that were killed have left, in this and in other namespaces.
fn sweep(ours: &Lock) {
    let folder = ours.path.parent().and_then(|d| std::fs::read_dir(d).ok());
    for path in folder.into_iter().flatten().flatten().map(|e| e.path()) {
        let name = path.file_name().and_then(|name| name.to_str());
        let is_lock = name.is_some_and(|n| n.starts_with("net-") && n.ends_with(".lock"));
        if !is_lock || path == ours.path {
            continue;
        }
        if let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
            && is_current(&file, &path)
        {
            let _ = std::fs::remove_file(path.with_extension("sock"));
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// How often a lock is tried: another daemon that starts looks for a moment whether it is held.
const TRIES: u32 = 5;

fn lock_at(path: &Path) -> Result<Lock, Failure> {
    for _ in 1..TRIES {
        match try_lock_at(path) {
            Ok(Some(lock)) => return Ok(lock),
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            Err(failure) => return Err(failure),
        }
    }
    try_lock_at(path)?.ok_or_else(|| runs_already(path))
}

/// Whether a file is still the one that others find under this name.
fn is_current(file: &File, path: &Path) -> bool {
    let ours = file.metadata().map(|ours| ours.ino()).ok();
    ours.is_some() && ours == std::fs::metadata(path).map(|found| found.ino()).ok()
}

/// None where somebody else holds it, or removed it meanwhile.
fn try_lock_at(path: &Path) -> Result<Option<Lock>, Failure> {
    let failed = |e: std::io::Error| {
        let directory = path.parent().unwrap_or(path).display();
        Failure::system(format!(
            "cannot lock {}: {e}; run raddle as root, or as a user who may write to {directory} and has CAP_NET_ADMIN, \
             CAP_BPF and CAP_PERFMON",
            path.display()
        ))
    };
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    let file = File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) if !is_current(&file, path) => Ok(None),
        Ok(()) => Ok(Some(Lock {
            _file: file,
            path: path.to_owned(),
        })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => Err(failed(e)),
    }
}

fn runs_already(lock: &Path) -> Failure {
    Failure::system(format!(
        "a raddle daemon already runs in this network namespace (it holds {}); stop it first",
        lock.display()
    ))
}

/// Whether a daemon could take the lock and listen now, without doing either.
pub(crate) fn check(socket: Option<&Path>) -> Result<(), Failure> {
    check_lock(&default_path().with_extension("lock"))?;
    check_socket(&socket.map_or_else(default_path, Path::to_owned))
}

fn check_lock(path: &Path) -> Result<(), Failure> {
    // Who may not open it may not attach either, which has been said by then.
    let held = File::open(path)
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)));
    if held {
        Err(runs_already(path))
    } else {
        Ok(())
    }
}

fn check_socket(path: &Path) -> Result<(), Failure> {
    if UnixStream::connect(path).is_ok() {
        return Err(Failure::system(format!(
            "a raddle daemon already answers on {}; stop it first, or name another --socket",
            path.display()
        )));
    }
    if std::fs::symlink_metadata(path).is_ok_and(|left| !left.file_type().is_socket()) {
        return Err(Failure::usage(format!(
            "{} is there already and is not a socket; name another place with --socket",
            path.display()
        )));
    }
    // Our own directory is made; one that was named may be misspelt.
    let directory = path.parent().filter(|d| *d != Path::new(DIRECTORY));
    if let Some(directory) = directory
        && !directory.as_os_str().is_empty()
        && !directory.is_dir()
    {
        return Err(Failure::system(format!(
            "cannot listen on {}: there is no directory {}; make it, or name another place with \
             --socket",
            path.display(),
            directory.display()
        )));
    }
    Ok(())
}

/// The listening socket of a daemon; removed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    path: PathBuf,
    /// Questions to answer.
    pub requests: Receiver<Request>,
    /// Nobody answers questions yet.
    starting: Arc<AtomicBool>,
}

impl Server {
    /// Listens, unless another daemon already does.
    pub(crate) fn start(path: PathBuf) -> Result<Server, Failure> {
        check_socket(&path)?;
        let failed = |e: std::io::Error| {
            let what = match e.kind() {
                std::io::ErrorKind::PermissionDenied => "run it as root, or ",
                _ => "",
            };
            Failure::system(format!(
                "cannot listen on {}: {e}; {what}name another place with --socket",
                path.display()
            ))
        };
        if path.parent() == Some(Path::new(DIRECTORY)) {
            std::fs::create_dir_all(DIRECTORY).map_err(failed)?;
        }
        // Nobody answers there, so a socket that is left is a dead daemon's.
        if std::fs::symlink_metadata(&path).is_ok() {
            std::fs::remove_file(&path).map_err(failed)?;
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o660)).map_err(failed)?;
        let (sender, requests) = channel();
        let starting = Arc::new(AtomicBool::new(false));
        let not_yet = Arc::clone(&starting);
        std::thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                clients::accept(&listener, move |stream, asked| {
                    // A client that goes away or talks nonsense hurts only itself.
                    let _ = serve(stream, asked, &sender, &not_yet);
                });
            })?;
        Ok(Server {
            path,
            requests,
            starting,
        })
    }

    /// Says whether the daemon still starts, which takes seconds: who asks is then told so at once.
    pub(crate) fn set_starting(&self, starting: bool) {
        self.starting.store(starting, Ordering::Relaxed);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Answers a client; `asked` is told when its question is there.
fn serve(
    mut stream: &UnixStream,
    asked: &dyn Fn(),
    requests: &Sender<Request>,
    starting: &AtomicBool,
) -> std::io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = Vec::new();
    let until = Instant::now() + PATIENCE;
    let mut reader = BufReader::new(stream.take(LONGEST));
    loop {
        // As long in all as for one read: a client may send byte by byte.
        let left = until.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let part = reader.fill_buf()?;
        let end = part.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(part.len(), |end| end + 1);
        line.extend_from_slice(&part[..length]);
        reader.consume(length);
        if end.is_some() || length == 0 {
            break;
        }
    }
    if line.is_empty() {
        return Ok(());
    }
    asked();
    let reply = match serde_json::from_slice::<Command>(&line) {
        Err(e) => serde_json::json!({ "error": format!("not a request: {e}") }),
        Ok(_) if starting.load(Ordering::Relaxed) => serde_json::json!({
            "error": "the daemon is starting: it loads its programs, and the kernel forwards until then; \
                      try again in some seconds"
        }),
        Ok(command) => {
            let (answer, answers) = channel();
            let sent = requests.send(Request { command, answer });
            match sent.ok().and_then(|()| answers.recv_timeout(PATIENCE).ok()) {
                Some(value) => value,
                None => serde_json::json!({ "error": "the daemon is busy or stopping; try again" }),
            }
        }
    };
    writeln!(stream, "{reply}")
}

/// Asks the daemon of this namespace, or of the socket that was named.
pub(crate) fn ask(socket: Option<&Path>, command: Command) -> Result<Value, Failure> {
    let path = socket.map_or_else(default_path, Path::to_owned);
    ask_at(&path, command, ("raddle daemon", "raddle run"))
}

/// Whether a daemon may run here that this user may not ask.
pub(crate) fn is_denied() -> bool {
    let asked = UnixStream::connect(default_path());
    matches!(asked, Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied)
}

/// The path of another socket of this thread's network namespace, such as `rpc`'s.
pub(crate) fn path_of(what: &str) -> PathBuf {
    let path = default_path();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{what}-{}", name.trim_start_matches("net-")))
}

/// Asks whoever listens there: `who` that is, and `start`, the command that starts one.
pub(crate) fn ask_at(
    path: &Path,
    command: Command,
    (who, start): (&str, &str),
) -> Result<Value, Failure> {
    let mut stream = UnixStream::connect(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::PermissionDenied => Failure::system(format!(
            "{}: permission denied; run as root or as a member of its group",
            path.display()
        )),
        _ => Failure::system(format!(
            "no {who} runs here: nobody answers on {}; start one with {start}",
            path.display()
        )),
    })?;
    // The daemon itself gives up first, and says why.
    stream.set_read_timeout(Some(PATIENCE + Duration::from_secs(1)))?;
    let request = serde_json::to_string(&command).map_err(|e| Failure::system(e.to_string()))?;
    writeln!(stream, "{request}")?;
    let mut line = String::new();
    BufReader::new(stream)
        .read_line(&mut line)
        .map_err(|e| match e.kind() {
            std::io::ErrorKind::WouldBlock => Failure::system(format!(
                "the {who} on {} does not answer: it hangs or is stopped, and after its deadline the kernel \
                 forwards; look at its log, and restart it",
                path.display()
            )),
            _ => Failure::from(e),
        })?;
    let value: Value = serde_json::from_str(&line)
        .map_err(|e| Failure::system(format!("the daemon's answer makes no sense: {e}")))?;
    match value.get("error").and_then(Value::as_str) {
        Some(error) => Err(Failure::system(error.to_owned())),
        None => Ok(value),
    }
}

#[cfg(test)]
mod tests;
