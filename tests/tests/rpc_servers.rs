//! `raddle rpc --config`: several servers at once, asked by status, metrics and top, and read again.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use raddle_e2e::loopback::local_address;
use raddle_e2e::{Outcome, raddle, within};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

const PATIENCE: Duration = Duration::from_secs(60);

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
    serve(TcpListener::bind(local_address()).unwrap(), word)
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

/// An address that nobody listens at yet, and that stays free until the test uses it.
fn free() -> SocketAddr {
    let listener = TcpListener::bind(local_address()).unwrap();
    listener.local_addr().unwrap()
}

/// A running `raddle rpc --config`.
struct Proxy {
    child: Child,
    folder: tempfile::TempDir,
}

impl Proxy {
    fn start(text: &str) -> Proxy {
        Proxy::logging(text, "info")
    }

    /// As [`Proxy::start`], with this as `RUST_LOG`.
    fn logging(text: &str, level: &str) -> Proxy {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rpc.toml");
        std::fs::write(&file, text).unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new(raddle())
            .args(["rpc", "--config"])
            .arg(&file)
            .arg("--socket")
            .arg(folder.path().join("rpc.sock"))
            .env("RUST_LOG", level)
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
        Outcome::of(command.arg(self.path("rpc.sock")))
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
    assert_eq!(wrong.code, Some(2));
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

/// A server that makes directories when it may, and knows calls by port and XID.
#[derive(Default)]
struct Directories {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Calls that it knows, and whether they have been run.
    known: HashMap<(SocketAddr, u32), bool>,
    /// How often each was begun, by name.
    runs: HashMap<u32, u32>,
    goes: bool,
}

impl Directories {
    fn start() -> (Arc<Directories>, SocketAddr) {
        let server = Arc::new(Directories::default());
        let listener = TcpListener::bind(local_address()).unwrap();
        let address = listener.local_addr().unwrap();
        let all = Arc::clone(&server);
        std::thread::spawn(move || {
            while let Ok((stream, peer)) = listener.accept() {
                let server = Arc::clone(&all);
                std::thread::spawn(move || server.serve(stream, peer));
            }
        });
        (server, address)
    }

    fn serve(self: &Arc<Self>, mut stream: TcpStream, peer: SocketAddr) {
        while let Ok(call) = record(&mut stream) {
            let word = |i: usize| u32::from_be_bytes(call[4 * i..4 * i + 4].try_into().unwrap());
            let reply = [word(0), 1, 0, 0, 0, 0, 0];
            let key = (peer, word(0));
            let known = match word(5) {
                9 => self.state.lock().unwrap().known.get(&key).copied(),
                _ => Some(true),
            };
            match known {
                Some(true) => drop(send(&mut stream, &reply)),
                // It is being run.
                Some(false) => {}
                None => {
                    {
                        let mut state = self.state.lock().unwrap();
                        state.known.insert(key, false);
                        *state.runs.entry(word(12)).or_default() += 1;
                    }
                    let (server, mut stream) = (Arc::clone(self), stream.try_clone().unwrap());
                    std::thread::spawn(move || {
                        let state = server.state.lock().unwrap();
                        let mut state = server.changed.wait_while(state, |s| !s.goes).unwrap();
                        state.known.insert(key, true);
                        drop(state);
                        let _ = send(&mut stream, &reply);
                    });
                }
            }
        }
    }

    /// How often a call was begun.
    fn runs(&self, name: u32) -> u32 {
        let state = self.state.lock().unwrap();
        state.runs.get(&name).copied().unwrap_or(0)
    }

    /// Has calls go on, or wait.
    fn go(&self, goes: bool) {
        self.state.lock().unwrap().goes = goes;
        self.changed.notify_all();
    }
}

/// A connection from this port, as soon as somebody takes it.
fn connect_from(own: SocketAddr, to: SocketAddr) -> TcpStream {
    let (stream, _) = within(Duration::from_secs(60), || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&own.into()).unwrap();
        socket.connect(&to.into()).map_err(|e| e.to_string())?;
        Ok(TcpStream::from(socket))
    });
    stream
}

fn mkdir(stream: &mut TcpStream, xid: u32) {
    send(stream, &[xid, 0, 2, 100_003, 3, 9, 0, 0, 0, 0, 4, 9, xid]).unwrap();
}

/// Its calls under way are answered, others go on meanwhile, and what takes longer is repeated from the same port.
#[test]
fn a_server_that_changes_runs_nothing_twice() {
    let ((directories, two), one) = (Directories::start(), server(1));
    let (at, other, own) = (free(), free(), free());
    let text = |policy: &str| {
        format!(
            "[[server]]\nname = 'one'\nserver = '{one}'\nlisten = '{at}'\nno-placement = true\n\
             [[server]]\nname = 'two'\nserver = '{two}'\nlisten = '{other}'\nno-placement = true\n\
             connections = 2\npolicy = '{policy}'\n"
        )
    };
    let proxy = Proxy::start(&text("hash"));
    let all =
        |servers: &[Value]| servers.len() == 2 && up(&servers[0]) == 5 && up(&servers[1]) == 3;
    let ends = |servers: &[Value]| servers.len() == 2 && !servers[1]["not_served"].is_null();
    proxy.servers(all);
    let mut client = connect_from(own, other);
    mkdir(&mut client, 77);
    let begun = |xid| {
        within(Duration::from_secs(60), || {
            (directories.runs(xid) > 0).then_some(()).ok_or(proxy.log())
        })
    };
    begun(77);

    proxy.reload(&text("round-robin"));
    let servers = proxy.servers(ends);
    let why = servers[1]["not_served"].as_str().unwrap();
    assert!(why.contains("calls under way are answered first"), "{why}");
    assert_eq!(call(&mut TcpStream::connect(at).unwrap(), GETATTR, &[]), 1);
    assert!(TcpStream::connect(other).is_err(), "{}", proxy.log());
    directories.go(true);
    let reply = record(&mut client).unwrap();
    assert_eq!(reply[..4], 77_u32.to_be_bytes());
    assert!(record(&mut client).is_err());
    drop(client);
    proxy.servers(all);

    // This one takes longer than it is waited for.
    directories.go(false);
    let mut client = connect_from(own, other);
    mkdir(&mut client, 78);
    begun(78);
    proxy.reload(&text("hash"));
    assert!(record(&mut client).is_err());
    drop(client);
    directories.go(true);
    let mut client = connect_from(own, other);
    mkdir(&mut client, 78);
    let reply = record(&mut client).unwrap();
    assert_eq!(reply[..4], 78_u32.to_be_bytes());
    let servers = proxy.servers(all);
    let log = proxy.log();
    assert_eq!(
        (directories.runs(77), directories.runs(78)),
        (1, 1),
        "{log}"
    );
    assert_eq!(servers[1]["counters"]["replayed"], 1, "{log}");
    assert_eq!(servers[1]["counters"]["run_again"], 0, "{log}");
    assert!(!log.contains("no journal"), "{log}");
}

#[test]
fn a_server_that_refuses_is_told_once_and_when_it_is_back() {
    let (at, listen) = (free(), free());
    let text = format!(
        "[[server]]\nname = 'gone'\nserver = '{at}'\nlisten = '{listen}'\nno-placement = true\n"
    );
    let proxy = Proxy::logging(&text, "info,raddle_rpc=debug");
    let refused = |servers: &[Value]| {
        let all = servers.first().and_then(|s| s["transports"].as_array());
        let refused = |t: &Value| t["why"].as_str().is_some_and(|why| why.contains("refused"));
        all.is_some_and(|all| all.len() == 5 && all.iter().all(refused))
    };
    proxy.servers(refused);
    // Each has been tried again.
    within(PATIENCE, || {
        let log = proxy.log();
        match (0..4).all(|n| {
            log.matches(&format!("connection {n}: not connected: "))
                .count()
                > 1
        }) {
            true => Ok(()),
            false => Err(log),
        }
    });
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
        log.0
            .lines()
            .filter(|line| !line.contains(" DEBUG "))
            .all(|line| line.contains("server=gone")),
        "{}",
        log.0
    );
}

#[test]
fn one_that_cannot_be_served_holds_up_no_other() {
    let one = server(1);
    let at = free();
    let taken = TcpListener::bind(local_address()).unwrap();
    let other = taken.local_addr().unwrap();
    let table = |name: &str, server: SocketAddr, listen: SocketAddr| {
        format!(
            "[[server]]\nname = '{name}'\nserver = '{server}'\nlisten = '{listen}'\nno-placement = true\n"
        )
    };
    // An address that comes later, by DHCP or VRRP.
    let late = table("waits", server(3), free()) + "local-addresses = ['192.0.2.77']\n";
    let proxy = Proxy::start(&(table("one", one, at) + &table("two", server(2), other) + &late));
    let servers = proxy.servers(|servers| servers.len() == 3 && up(&servers[0]) == 5);
    let why = servers[2]["not_served"].as_str().unwrap();
    assert!(
        why.contains("192.0.2.77 is no address of this machine"),
        "{why}"
    );
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
        let outcome = Outcome::of(&mut command);
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
        outcome.stderr
    };
    let said = refused("[[server]]\nserver = 'a:1'\npolicy = 'fast'\n", &[]);
    assert!(
        said.contains("rpc.toml: line 3, column 10\n")
            && said.contains(r#"it is one of "round-robin", "least-bytes", "hash""#),
        "{said}"
    );
    let said = refused("metrics = '192.0.2.1:1'\n[[server]]\nserver = 'a:1'\n", &[]);
    assert!(said.contains("is not a loopback address"), "{said}");
    // Of several servers it is said which one's; listeners are of this test alone.
    let one = |name: &str, server: &str, more: &str| {
        let listen = free();
        format!("[[server]]\nname = '{name}'\nserver = '{server}'\nlisten = '{listen}'\n{more}\n")
    };
    let both =
        one("good", "127.0.0.1:9", "") + &one("bad", "127.0.0.1:10", "server-addresses = ['::1']");
    let said = refused(&both, &[]);
    assert!(
        said.contains("bad: --server-addresses ::1 is an IPv6 address"),
        "{said}"
    );
    let said = refused("", &["--server", "a:1"]);
    assert!(said.contains("cannot be used with"), "{said}");
}
