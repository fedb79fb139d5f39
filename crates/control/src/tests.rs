use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::lock::{check_lock, lock_at, sweep};
use super::server::check_socket;
use super::*;

/// An answer of few words.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Short {
    pid: u32,
}

impl Answer for Short {
    const COMMAND: Command = Command::Status;
}

fn ask(path: &std::path::Path) -> Result<Short, Error> {
    super::ask(Some(path))
}

#[test]
fn a_daemon_answers_and_a_second_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.sock");
    let server = Server::start(path.clone()).unwrap();
    let clients = std::thread::spawn({
        let path = path.clone();
        move || (ask(&path), Server::start(path))
    });
    let request = server.requests.recv_timeout(PATIENCE).unwrap();
    assert_eq!(request.command, Command::Status);
    request.answer.send(Reply::of(&Short { pid: 7 })).unwrap();
    let (answer, second) = clients.join().unwrap();
    assert_eq!(answer.unwrap(), Short { pid: 7 });
    assert!(second.unwrap_err().to_string().contains("already answers"));
    drop(server);
    assert!(!path.exists());
    assert!(ask(&path).unwrap_err().to_string().contains("raddle run"));
}

#[test]
fn who_does_not_answer_is_waited_for_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.sock");
    let nobody = Session::new(Some(path.clone()));
    assert_eq!(nobody.ask_if_any::<Short>().unwrap(), None);
    // It takes connections, as a process that is stopped does, and says nothing.
    let listener = UnixListener::bind(&path).unwrap();
    let session = Session::new(Some(path));
    let first = session.ask_if_any::<Short>().unwrap_err();
    assert!(matches!(first, Error::Hangs { .. }), "{first}");
    let second = session.ask_if_any::<Short>().unwrap_err();
    assert_eq!(second.to_string(), first.to_string());
    // Who was not asked cannot have been waited for.
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_ok());
    assert!(listener.accept().is_err(), "asked twice");
}

#[test]
fn one_daemon_holds_the_lock_as_long_as_it_lives() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("raddle").join("test.lock");
    let held = lock_at(&path).unwrap();
    let error = lock_at(&path).unwrap_err();
    assert!(error.to_string().contains("already runs"), "{error}");
    drop(held);
    assert!(!path.exists());
    lock_at(&path).unwrap();
}

#[test]
fn what_dead_daemons_have_left_goes() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let alive = lock_at(&path("net-1.lock")).unwrap();
    for name in ["net-1.sock", "net-2.lock", "net-2.sock", "other.lock", "x"] {
        std::fs::write(path(name), "").unwrap();
    }
    let ours = lock_at(&path("net-3.lock")).unwrap();
    sweep(&ours);
    let mut left: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(
        left,
        ["net-1.lock", "net-1.sock", "net-3.lock", "other.lock", "x"]
    );
    drop(alive);
}

#[test]
fn a_check_finds_who_is_there_and_makes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let lock = directory.path().join("test.lock");
    check_lock(&lock).unwrap();
    assert!(!lock.exists());
    let held = lock_at(&lock).unwrap();
    let error = check_lock(&lock).unwrap_err();
    assert!(error.to_string().contains("already runs"), "{error}");
    drop(held);
    check_lock(&lock).unwrap();

    let path = directory.path().join("no").join("test.sock");
    for error in [
        check_socket(&path).unwrap_err(),
        Server::start(path.clone()).unwrap_err(),
    ] {
        assert!(
            error.to_string().contains("there is no directory"),
            "{error}"
        );
    }
    assert!(!path.parent().unwrap().exists());
}

#[test]
fn only_a_socket_makes_way() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("precious");
    std::fs::write(&path, "data").unwrap();
    let error = Server::start(path.clone()).unwrap_err();
    assert!(error.to_string().contains("not a socket"), "{error}");
    assert!(matches!(error, Error::NotASocket { .. }));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
    // What a dead daemon has left does.
    std::fs::remove_file(&path).unwrap();
    drop(UnixListener::bind(&path).unwrap());
    Server::start(path).unwrap();
}

#[test]
fn a_start_is_called_that() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.sock");
    let server = Server::start(path.clone()).unwrap();
    server.set_starting(true);
    let error = ask(&path).unwrap_err();
    assert!(error.to_string().contains("is starting"), "{error}");
}

#[test]
fn nonsense_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.sock");
    let _server = Server::start(path.clone()).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    writeln!(stream, "make me a sandwich").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    assert!(line.contains("not a question"), "{line}");
}

/// Answers whatever is asked.
fn answering(server: Server) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        while let Ok(request) = server.requests.recv_timeout(2 * PATIENCE) {
            let _ = request.answer.send(Reply::of(&Short { pid: 7 }));
        }
    })
}

/// Clients that say nothing, or little by little, keep nobody waiting, however many they are.
#[test]
fn idle_clients_make_way() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.sock");
    let _daemon = answering(Server::start(path.clone()).unwrap());
    let mut idle = Vec::new();
    for n in 0..1000 {
        // The backlog may be full for a moment.
        let mut stream = UnixStream::connect(&path).unwrap();
        if n % 2 == 0 {
            // Many have been closed by the time that they say this.
            let _ = stream.write_all(b"{");
        }
        idle.push(stream);
    }
    for _ in 0..20 {
        let started = Instant::now();
        assert_eq!(ask(&path).unwrap().pid, 7);
        assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
    }
    // The first ones are gone.
    let mut rest = Vec::new();
    let first = &mut idle[1];
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    first.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
}

/// What is asked or answered by another version is said to be, by whichever side finds it.
#[test]
fn versions_are_told_apart() {
    let read = |line: &str| Reply::from_line(line.to_owned()).read::<Short>(DAEMON);
    assert_eq!(
        read(r#"{"protocol":1,"status":{"pid":7,"new":1}}"#)
            .unwrap()
            .pid,
        7
    );
    let unknown = r#"{"error":"not a request: unknown variant `rpc`, expected one of `status`"}"#;
    for (line, theirs) in [
        (r#"{"pid":7}"#, 0),
        (unknown, 0),
        (r#"{"protocol":2,"status":{}}"#, 2),
    ] {
        let error = read(line).unwrap_err();
        assert!(
            matches!(&error, Error::Version { theirs: version, .. } if *version == theirs),
            "{error}"
        );
    }
    for line in [
        "",
        "x",
        "[1]",
        r#"{"protocol":1}"#,
        r#"{"protocol":1,"status":{}}"#,
    ] {
        let error = read(line).unwrap_err();
        assert!(
            matches!(error, Error::Nonsense { .. } | Error::Version { .. }),
            "{line}: {error}"
        );
    }
    // Versions before the first that is numbered put errors alike.
    assert_eq!(read(r#"{"error":"no"}"#).unwrap_err().to_string(), "no");

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.sock");
    let _daemon = answering(Server::start(path.clone()).unwrap());
    for (asked, answered) in [
        (r#"{"command":"status"}"#, "was asked by version 0"),
        (
            r#"{"protocol":9,"command":"new","more":1}"#,
            "was asked by version 9",
        ),
        (r#"{"command":"own"}"#, "was asked by version 0"),
        (
            r#"{"protocol":1,"command":"status","more":1}"#,
            "not a question",
        ),
        (
            r#"{"protocol":1,"command":"status"}"#,
            r#"{"protocol":1,"status":{"pid":7}}"#,
        ),
    ] {
        let mut stream = UnixStream::connect(&path).unwrap();
        writeln!(stream, "{asked}").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.contains(answered), "{asked}: {line}");
    }
}

/// A command has one name: in questions, in answers, and as it is read.
#[test]
fn commands_have_one_name() {
    for command in [
        Command::Status,
        Command::Counters,
        Command::Segments,
        Command::Routes,
        Command::Rpc,
    ] {
        let question: message::Question =
            serde_json::from_str(&message::Question::of(command).line()).unwrap();
        assert_eq!(question, message::Question::of(command));
    }
}

/// Answers that daemons of this version have given are understood. A field that is renamed, or new and not optional, makes
/// another version.
#[test]
fn answers_of_this_version_are_understood() {
    fn holds<A: Answer>(line: &str) {
        Reply::from_line(line.to_owned()).read::<A>(DAEMON).unwrap();
    }
    holds::<Status>(include_str!("golden/status.json"));
    holds::<Counters>(include_str!("golden/counters.json"));
    holds::<Segments>(include_str!("golden/segments.json"));
    holds::<Routes>(include_str!("golden/routes.json"));
    holds::<Proxies>(include_str!("golden/rpc.json"));
}
