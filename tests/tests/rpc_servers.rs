//! `raddle rpc --config`: several servers at once, asked by status, metrics and top, and read again.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use raddle_e2e::{Outcome, raddle, within};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20);

fn record(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let mut record = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut record)?;
    Ok(record)
}

fn send(stream: &mut TcpStream, words: &[u32]) -> std::io::Result<()> {
    let mut bytes = (0x8000_0000 | (words.len() * 4) as u32)
        .to_be_bytes()
        .to_vec();
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    stream.write_all(&bytes)
}

/// A server that answers every call with this word.
fn server(word: u32) -> SocketAddr {
    serve(TcpListener::bind("127.0.0.1:0").unwrap(), word)
}

fn serve(listener: TcpListener, word: u32) -> SocketAddr {
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                while let Ok(call) = record(&mut stream) {
                    let xid = u32::from_be_bytes(call[..4].try_into().unwrap());
                    if send(&mut stream, &[xid, 1, 0, 0, 0, 0, word]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Calls a procedure without arguments but these, and gives the first word of the results.
fn call(stream: &mut TcpStream, what: [u32; 3], arguments: &[u32]) -> u32 {
    let [program, version, procedure] = what;
    let mut words = vec![77, 0, 2, program, version, procedure, 0, 0, 0, 0];
    words.extend(arguments);
    send(stream, &words).unwrap();
    let reply = record(stream).unwrap();
    assert_eq!(reply[..4], 77_u32.to_be_bytes());
    u32::from_be_bytes(reply[24..28].try_into().unwrap())
}

const GETATTR: [u32; 3] = [100_003, 3, 1];
const GETPORT: [u32; 3] = [100_000, 2, 3];

/// An address that nobody listens at yet.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A running `raddle rpc --config`.
struct Proxy {
    child: Child,
    folder: tempfile::TempDir,
}

impl Proxy {
    fn start(text: &str) -> Proxy {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rpc.toml");
        std::fs::write(&file, text).unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new(raddle())
            .args(["rpc", "--config"])
            .arg(&file)
            .arg("--socket")
            .arg(folder.path().join("rpc.sock"))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        Proxy { child, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    fn ask(&self, words: &[&str]) -> Outcome {
        let mut command = Command::new(raddle());
        command.arg("rpc").args(words).arg("--socket");
        Outcome::of(command.arg(self.path("rpc.sock")), PATIENCE)
    }

    /// The servers by their status, as soon as this is true of them.
    fn servers(&self, is: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let (servers, _) = within(PATIENCE, || {
            let outcome = self.ask(&["status", "-j"]);
            let lines = outcome.stdout.lines();
            let servers: Vec<Value> = lines.map(|l| serde_json::from_str(l).unwrap()).collect();
            match is(&servers) {
                true => Ok(servers),
                false => Err(format!("{servers:?} {} {}", outcome.stderr, self.log())),
            }
        });
        servers
    }

    fn reload(&self, text: &str) {
        std::fs::write(self.path("rpc.toml"), text).unwrap();
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGHUP).unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

fn up(server: &Value) -> usize {
    let transports = server["transports"].as_array();
    transports
        .into_iter()
        .flatten()
        .filter(|t| t["state"] == "up")
        .count()
}

fn scrape(address: SocketAddr) -> String {
    let (text, _) = within(PATIENCE, || {
        let mut stream = TcpStream::connect(address).map_err(|e| e.to_string())?;
        let ask = b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
        stream.write_all(ask).map_err(|e| e.to_string())?;
        let mut text = String::new();
        stream
            .read_to_string(&mut text)
            .map_err(|e| e.to_string())?;
        match text.starts_with("HTTP/1.1 200") {
            true => Ok(text),
            false => Err(text),
        }
    });
    text
}

#[test]
fn several_servers_have_one_status_and_change_by_themselves() {
    let (one, two) = (server(1), server(2));
    let (at, other, also, metrics) = (free(), free(), free(), free());
    let global = format!("metrics = '{metrics}'\n");
    let first = format!(
        "[[server]]\nname = 'one'\nserver = '{one}'\nlisten = ['{at}', '{also}']\nno-placement = true\n\
         connections = 2\n"
    );
    let second = |connections: u32| {
        format!(
            "[[server]]\nname = 'two'\nserver = '{two}'\nlisten = '{other}'\nno-placement = true\n\
             connections = {connections}\n"
        )
    };
    let proxy = Proxy::start(&(global.clone() + &first + &second(3)));
    let all =
        |servers: &[Value]| servers.len() == 2 && up(&servers[0]) == 3 && up(&servers[1]) == 4;
    let servers = proxy.servers(all);
    assert_eq!(servers[0]["name"], "one");
    assert_eq!(servers[1]["listen"][0], other.to_string());

    // Each listener leads to its own server, and the portmapper names the first one's port.
    let mut client = TcpStream::connect(at).unwrap();
    assert_eq!(call(&mut client, GETATTR, &[]), 1);
    assert_eq!(
        call(&mut TcpStream::connect(other).unwrap(), GETATTR, &[]),
        2
    );
    let mut asks = TcpStream::connect(also).unwrap();
    let port = call(&mut asks, GETPORT, &[100_005, 3, 6, 0]);
    assert_eq!(port, u32::from(at.port()));

    // Text, one server, and names.
    let said = proxy.ask(&["status", "two", "-d"]).stdout;
    assert!(
        said.starts_with("two: up ") && !said.contains("one:"),
        "{said}"
    );
    assert!(said.contains("half within"), "{said}");
    let wrong = proxy.ask(&["status", "three"]);
    assert_eq!(wrong.code, Some(1));
    let names = "no server is called 'three'; there are: one, two";
    assert!(wrong.stderr.contains(names), "{}", wrong.stderr);

    let text = scrape(metrics);
    for line in [
        "raddle_rpc_clients{server=\"two\"} 0",
        "raddle_rpc_up{server=\"one\",service=\"0\",number=\"2\",lane=\"true\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    // By whichever connection it went.
    let small = "raddle_rpc_call_seconds_count{server=\"one\"";
    let counts = text
        .lines()
        .filter(|l| l.starts_with(small) && l.contains("size=\"small\""));
    let counts: Vec<_> = counts.filter_map(|l| l.rsplit(' ').next()).collect();
    assert_eq!(
        counts
            .iter()
            .filter(|count| **count != "0")
            .collect::<Vec<_>>(),
        [&"1"],
        "{text}"
    );

    // Reports: the first since the start, JSON by lines; batch where there is no terminal.
    let lines = proxy.ask(&["top", "-j", "-n", "2", "-d", "0.2"]).stdout;
    let lines: Vec<Value> = lines
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(lines.len(), 4);
    assert!(
        lines[0]["total"]["calls"].as_f64() > Some(0.0),
        "{}",
        lines[0]
    );
    assert_eq!(
        lines[2]["total"]["calls"].as_f64(),
        Some(0.0),
        "{}",
        lines[2]
    );
    assert!(lines[2]["seconds"].as_f64() >= Some(0.2), "{}", lines[2]);
    let batch = proxy.ask(&["top", "two", "-n", "2", "-d", "0.1"]).stdout;
    assert_eq!(batch.matches("two: 0 clients").count(), 2, "{batch}");
    assert!(!batch.contains('\x1b'), "{batch}");

    // A changed server starts again, the other one goes on, with its clients.
    proxy.reload(&(global.clone() + &first + &second(1)));
    proxy.servers(|servers| servers.len() == 2 && up(&servers[1]) == 1);
    assert_eq!(call(&mut client, GETATTR, &[]), 1);
    assert_eq!(
        call(&mut TcpStream::connect(other).unwrap(), GETATTR, &[]),
        2
    );

    within(PATIENCE, || {
        let summary = "configuration read again; changed: two; unchanged: one\n";
        match proxy.log().contains(summary) {
            true => Ok(()),
            false => Err(proxy.log()),
        }
    });

    // A mistake changes nothing.
    proxy.reload(&(global.clone() + &first + "conections = 4\n"));
    within(PATIENCE, || match proxy.log().contains("'conections'") {
        true => Ok(()),
        false => Err(proxy.log()),
    });
    assert!(
        proxy
            .log()
            .contains("configuration refused, what was read before holds"),
        "{}",
        proxy.log()
    );
    let servers = proxy.servers(|_| true);
    assert_eq!(servers.len(), 2);
    let why = servers[0]["config"]["refused"]["why"].as_str().unwrap();
    assert!(why.contains("there is no key 'conections'"), "{why}");
    let said = proxy.ask(&["status"]).stdout;
    assert!(said.contains("ago and refused, so that the"), "{said}");

    // One that is gone from the file is no longer served.
    proxy.reload(&(global + &first));
    proxy.servers(|servers| servers.len() == 1);
    within(PATIENCE, || match TcpStream::connect(other) {
        Err(_) => Ok(()),
        Ok(_) => Err("it still listens".into()),
    });
    assert_eq!(call(&mut client, GETATTR, &[]), 1);
}

#[test]
fn a_server_that_refuses_is_told_once_and_when_it_is_back() {
    let (at, listen) = (free(), free());
    let text = format!(
        "[[server]]\nname = 'gone'\nserver = '{at}'\nlisten = '{listen}'\nno-placement = true\n"
    );
    let proxy = Proxy::start(&text);
    let refused = |servers: &[Value]| {
        let all = servers.first().and_then(|s| s["transports"].as_array());
        let refused = |t: &Value| t["why"].as_str().is_some_and(|why| why.contains("refused"));
        all.is_some_and(|all| all.len() == 5 && all.iter().all(refused))
    };
    proxy.servers(refused);
    // Each is tried again after 0.1, 0.3 and 0.7 s.
    std::thread::sleep(Duration::from_secs(1));
    let log = proxy.log();
    assert_eq!(log.matches(" WARN ").count(), 1, "{log}");
    assert!(log.contains("connection 0: not connected: "), "{log}");
    assert!(log.contains("refused"), "{log}");
    assert!(
        proxy
            .ask(&["status"])
            .stdout
            .contains("connections 0, 1, 2, 3, 4 small are down: ")
    );
    serve(TcpListener::bind(at).unwrap(), 1);
    proxy.servers(|servers| up(&servers[0]) == 5);
    let log = within(PATIENCE, || match proxy.log() {
        log if log.contains("all connections stand again, after ") => Ok(log),
        log => Err(log),
    });
    assert_eq!(log.0.matches("stand again").count(), 1, "{}", log.0);
    assert!(
        log.0.lines().all(|line| line.contains("server=gone")),
        "{}",
        log.0
    );
}

#[test]
fn one_that_cannot_be_served_holds_up_no_other() {
    let one = server(1);
    let at = free();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = taken.local_addr().unwrap();
    let table = |name: &str, server: SocketAddr, listen: SocketAddr| {
        format!(
            "[[server]]\nname = '{name}'\nserver = '{server}'\nlisten = '{listen}'\nno-placement = true\n"
        )
    };
    let proxy = Proxy::start(&(table("one", one, at) + &table("two", server(2), other)));
    let servers = proxy.servers(|servers| servers.len() == 2 && up(&servers[0]) == 5);
    let why = servers[1]["not_served"].as_str().unwrap();
    assert!(why.contains(&format!("cannot listen on {other}")), "{why}");
    assert_eq!(call(&mut TcpStream::connect(at).unwrap(), GETATTR, &[]), 1);
    let said = proxy.ask(&["status", "two"]).stdout;
    assert!(said.starts_with("two: not served: cannot listen"), "{said}");
    assert_eq!(
        proxy
            .ask(&["top", "-n", "1"])
            .stdout
            .matches(" client")
            .count(),
        1
    );
    // It is tried again.
    drop(taken);
    proxy.servers(|servers| servers[1]["not_served"].is_null() && up(&servers[1]) == 5);
    assert_eq!(
        call(&mut TcpStream::connect(other).unwrap(), GETATTR, &[]),
        2
    );
}

#[test]
fn a_file_with_a_mistake_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rpc.toml");
    let refused = |text: &str, more: &[&str]| {
        std::fs::write(&path, text).unwrap();
        let mut command = Command::new(raddle());
        command.args(["rpc", "--config"]).arg(&path).args(more);
        let outcome = Outcome::of(&mut command, PATIENCE);
        assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
        outcome.stderr
    };
    let said = refused("[[server]]\nserver = 'a:1'\npolicy = 'fast'\n", &[]);
    assert!(
        said.contains("rpc.toml: line 3, column 10\n")
            && said.contains("there are round-robin, least-bytes, hash"),
        "{said}"
    );
    let said = refused("metrics = '192.0.2.1:1'\n[[server]]\nserver = 'a:1'\n", &[]);
    assert!(said.contains("is not a loopback address"), "{said}");
    let said = refused("", &["--server", "a:1"]);
    assert!(said.contains("cannot be used with"), "{said}");
}
