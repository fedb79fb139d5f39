//! Answering.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::lock::check_lock;
use crate::message::{Head, Question};
use crate::{Command, DIRECTORY, Error, PATIENCE, PROTOCOL, Reply, clients, default_path};

/// Longest question in bytes.
const LONGEST: u64 = 4096;

/// A question and where its answer goes.
#[derive(Debug)]
pub struct Request {
    /// What is asked.
    pub command: Command,
    /// Takes the answer.
    pub answer: Sender<Reply>,
}

/// Whether a daemon could take the lock and listen now, without doing either.
///
/// # Errors
/// Why not.
pub fn check(socket: Option<&Path>) -> Result<(), Error> {
    check_lock(&default_path().with_extension("lock"))?;
    check_socket(&socket.map_or_else(default_path, Path::to_owned))
}

pub(crate) fn check_socket(path: &Path) -> Result<(), Error> {
    let path_buf = || path.to_owned();
    if UnixStream::connect(path).is_ok() {
        return Err(Error::AnswersAlready { path: path_buf() });
    }
    if std::fs::symlink_metadata(path).is_ok_and(|left| !left.file_type().is_socket()) {
        return Err(Error::NotASocket { path: path_buf() });
    }
    // Our own directory is made; one that was named may be misspelt.
    let directory = path.parent().filter(|d| *d != Path::new(DIRECTORY));
    if let Some(directory) = directory
        && !directory.as_os_str().is_empty()
        && !directory.is_dir()
    {
        return Err(Error::NoDirectory { path: path_buf() });
    }
    Ok(())
}

/// The listening socket of a daemon; removed when dropped.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    /// Questions to answer.
    pub requests: Receiver<Request>,
    /// Nobody answers questions yet.
    starting: Arc<AtomicBool>,
}

impl Server {
    /// Listens, unless another daemon already does.
    ///
    /// # Errors
    /// Somebody answers there, or the socket cannot be made.
    pub fn start(path: PathBuf) -> Result<Server, Error> {
        check_socket(&path)?;
        let failed = |source: std::io::Error| Error::Listen {
            path: path.clone(),
            source,
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
    pub fn set_starting(&self, starting: bool) {
        self.starting.store(starting, Ordering::Relaxed);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The question that a line is, or why it has no answer. What another version asks may be anything.
fn question(line: &[u8]) -> Result<Question, Reply> {
    let nonsense = |e| Reply::error(&format!("not a question: {e}"));
    let Head { protocol } = serde_json::from_slice(line).map_err(nonsense)?;
    if protocol != u64::from(PROTOCOL) {
        return Err(Reply::error(&format!(
            "this daemon answers by version {PROTOCOL} of the control protocol, and was asked by version {protocol}: ask \
             with the program that it runs, or restart it"
        )));
    }
    serde_json::from_slice(line).map_err(nonsense)
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
    let reply = match question(&line) {
        Err(reply) => reply,
        Ok(_) if starting.load(Ordering::Relaxed) => Reply::error(
            "the daemon is starting: it loads its programs, and the kernel forwards until then; \
             try again in some seconds",
        ),
        Ok(question) => {
            let (answer, answers) = channel();
            let command = question.command;
            let sent = requests.send(Request { command, answer });
            match sent.ok().and_then(|()| answers.recv_timeout(PATIENCE).ok()) {
                Some(reply) => reply,
                None => Reply::error("the daemon is busy or stopping; try again"),
            }
        }
    };
    writeln!(stream, "{}", reply.line())
}
