//! What tests of `raddle rpc` share: two namespaces that four links join, links that go silent, and the proxy
//! as a user would start it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::{Outcome, raddle, within};

/// Links between client and server.
pub const LINKS: u32 = 4;
/// The server's address, which all links lead to.
pub const SERVER: &str = "10.251.0.2";

/// Two namespaces, `LINKS` links between them, and routes over all of them both ways, by different seeds.
pub struct Pair {
    /// The client's namespace.
    pub client: String,
    /// The server's.
    pub server: String,
}

impl Pair {
    /// Builds them; `name` tells those of one process apart.
    ///
    /// # Panics
    /// When it cannot be done, as everything here.
    pub fn new(name: &str) -> Pair {
        let id = std::process::id();
        let pair = Pair {
            client: format!("rt{id}{name}c"),
            server: format!("rt{id}{name}s"),
        };
        let (c, s) = (&pair.client, &pair.server);
        let (mut out, mut back) = (String::new(), String::new());
        ip(&format!("netns add {c}"));
        ip(&format!("netns add {s}"));
        for n in 1..=LINKS {
            ip(&format!(
                "-n {c} link add c{n} type veth peer name s{n} netns {s}"
            ));
            for (ns, side, end) in [(c, "c", 1), (s, "s", 2)] {
                ip(&format!(
                    "-n {ns} addr add 10.251.{n}.{end}/24 dev {side}{n}"
                ));
                ip(&format!("-n {ns} link set {side}{n} up"));
            }
            out += &format!(" nexthop via 10.251.{n}.2 dev c{n}");
            back += &format!(" nexthop via 10.251.{n}.1 dev s{n}");
        }
        for (ns, own, to, hops, seed) in [(c, 1, 2, out, 1234), (s, 2, 1, back, 4321)] {
            ip(&format!("-n {ns} link set lo up"));
            ip(&format!("-n {ns} addr add 10.251.0.{own}/32 dev lo"));
            for set in [
                "net.ipv4.fib_multipath_hash_policy=1".to_owned(),
                format!("net.ipv4.fib_multipath_hash_seed={seed}"),
                "net.ipv4.conf.all.rp_filter=0".to_owned(),
            ] {
                done(Command::new("ip").args(["netns", "exec", ns, "sysctl", "-qw", &set]));
            }
            ip(&format!(
                "-n {ns} route add 10.251.0.{to} src 10.251.0.{own}{hops}"
            ));
        }
        pair
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for ns in [&self.client, &self.server] {
            let _ = Command::new("ip").args(["netns", "del", ns]).status();
        }
    }
}

/// Runs `ip`.
///
/// # Panics
/// When it fails.
pub fn ip(words: &str) {
    done(Command::new("ip").args(words.split_whitespace()));
}

/// Runs a command that has to succeed.
///
/// # Panics
/// When it does not.
pub fn done(command: &mut Command) {
    let outcome = Outcome::of(command, Duration::from_secs(10));
    assert_eq!(outcome.code, Some(0), "{command:?}: {}", outcome.stderr);
}

/// Does something in a namespace, on a thread of its own.
///
/// # Panics
/// When that thread does.
pub fn inside<T: Send + 'static>(ns: &str, job: impl FnOnce() -> T + Send + 'static) -> T {
    let file = std::fs::File::open(format!("/run/netns/{ns}")).unwrap();
    let thread = std::thread::spawn(move || {
        setns(file, CloneFlags::CLONE_NEWNET).unwrap();
        job()
    });
    thread.join().unwrap()
}

/// Reads a record of one fragment.
///
/// # Errors
/// What the socket says.
///
/// # Panics
/// When it has several.
pub fn record(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let word = u32::from_be_bytes(mark);
    assert_eq!(word >> 31, 1);
    let mut record = vec![0; (word & 0x7fff_ffff) as usize];
    stream.read_exact(&mut record)?;
    Ok(record)
}

/// Writes words and filling as a record.
///
/// # Errors
/// What the socket says.
pub fn send(stream: &mut TcpStream, words: &[u32], filling: usize) -> std::io::Result<()> {
    let length = words.len() * 4 + filling;
    let mut bytes = (0x8000_0000 | length as u32).to_be_bytes().to_vec();
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    bytes.resize(length + 4, 0xa5);
    stream.write_all(&bytes)
}

/// A running proxy.
pub struct Proxy {
    child: Child,
    socket: PathBuf,
    folder: tempfile::TempDir,
}

impl Proxy {
    /// Starts it in the client's namespace.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(pair: &Pair, options: &[&str]) -> Proxy {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("rpc.sock");
        let child = Command::new("ip")
            .args(["netns", "exec", &pair.client])
            .arg(raddle())
            .args(["rpc", "--server", &format!("{SERVER}:2049"), "--socket"])
            .arg(&socket)
            .args(options)
            .stderr(Stdio::from(
                std::fs::File::create(folder.path().join("log")).unwrap(),
            ))
            .spawn()
            .unwrap();
        Proxy {
            child,
            socket,
            folder,
        }
    }

    /// What `raddle rpc status` says.
    ///
    /// # Errors
    /// Its words, and the log, where it does not answer.
    pub fn status(&self) -> Result<Value, String> {
        let mut command = Command::new(raddle());
        command
            .args(["rpc", "status", "-j", "--socket"])
            .arg(&self.socket);
        let outcome = Outcome::of(&mut command, Duration::from_secs(10));
        serde_json::from_str(&outcome.stdout).map_err(|_| {
            let log = std::fs::read_to_string(self.folder.path().join("log"));
            format!("{}{}", outcome.stderr, log.unwrap_or_default())
        })
    }

    /// The log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Ends it as an administrator would.
    pub fn end(&mut self) {
        // One that has been waited for has no process any more, and maybe somebody else has its number.
        if let Ok(None) = self.child.try_wait() {
            let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
            let _ = self.child.wait();
        }
    }

    /// Ends it as a crash would.
    ///
    /// # Panics
    /// When it cannot be ended.
    pub fn crash(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The transports, as soon as all are connected.
    ///
    /// # Panics
    /// When they are not within 20 seconds.
    pub fn all_up(&self) -> Vec<Value> {
        let (transports, _) = within(Duration::from_secs(20), || {
            let status = self.status()?;
            let all = status["transports"].as_array().unwrap().clone();
            match all.iter().all(|transport| transport["state"] == "up") {
                true => Ok(all),
                false => Err(status.to_string()),
            }
        });
        transports
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.end();
    }
}

/// Has a link lose everything that is sent by this end: `c2`, `s2`.
///
/// # Panics
/// When it cannot be done.
pub fn silence(ns: &str, dev: &str) {
    let qdisc = format!("-n {ns} qdisc add dev {dev} root tbf rate 8bit burst 10 limit 10");
    done(Command::new("tc").args(qdisc.split_whitespace()));
}

/// Ends that.
///
/// # Panics
/// When it cannot be done.
pub fn restore(ns: &str, dev: &str) {
    let qdisc = format!("-n {ns} qdisc del dev {dev} root");
    done(Command::new("tc").args(qdisc.split_whitespace()));
}
