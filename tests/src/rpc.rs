//! What tests of `raddle rpc` share: two namespaces that links join, in several shapes; a server in one, the
//! proxy in the other as a user would start it; links that go silent.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::{Outcome, leftovers, raddle, within};

/// Links between client and server where nobody says how many.
pub const LINKS: u32 = 4;
/// The server's own address, on no link.
pub const SERVER: &str = "10.251.0.2";
/// The same over IPv6.
pub const SERVER6: &str = "fd00:251::2";

/// Two namespaces, `links` links between them, by which `10.251.N.1` is `cN` and `10.251.N.2` is `sN`.
pub struct Pair {
    /// The client's namespace.
    pub client: String,
    /// The server's.
    pub server: String,
    /// Links between them.
    pub links: u32,
}

impl Pair {
    /// Links with an IPv4 and an IPv6 subnet each, and no routes over several.
    pub fn subnets(name: &str, links: u32) -> Pair {
        let pair = Pair {
            client: leftovers::namespace(&format!("{name}c")),
            server: leftovers::namespace(&format!("{name}s")),
            links,
        };
        let (c, s) = (&pair.client, &pair.server);
        for ns in [c, s] {
            ip(&format!("netns add {ns}"));
            ip(&format!("-n {ns} link set lo up"));
            sysctl(ns, "net.ipv4.conf.all.rp_filter=0");
            sysctl(ns, "net.ipv4.conf.default.rp_filter=0");
            sysctl(ns, "net.ipv6.conf.default.accept_dad=0");
            sysctl(ns, "net.ipv6.conf.all.keep_addr_on_down=1");
        }
        (1..=links).for_each(|n| pair.link(n));
        for (ns, own) in [(c, 1), (s, 2)] {
            ip(&format!("-n {ns} addr add 10.251.0.{own}/32 dev lo"));
            ip(&format!("-n {ns} addr add fd00:251::{own}/128 dev lo"));
        }
        pair
    }

    /// Makes a link.
    pub fn link(&self, n: u32) {
        let (c, s) = (&self.client, &self.server);
        ip(&format!(
            "-n {c} link add c{n} type veth peer name s{n} netns {s}"
        ));
        for (ns, side, end) in [(c, "c", 1), (s, "s", 2)] {
            let dev = format!("dev {side}{n}");
            ip(&format!("-n {ns} addr add 10.251.{n}.{end}/24 {dev}"));
            ip(&format!(
                "-n {ns} addr add fd00:251:{n}::{end}/64 {dev} nodad"
            ));
            ip(&format!("-n {ns} link set {side}{n} up"));
        }
    }

    /// Has both sides route over these links.
    pub fn route(&self, links: &[u32]) {
        for (ns, side, own, to) in [(&self.client, "c", 1, 2), (&self.server, "s", 2, 1)] {
            let hops = |over: &str| -> String {
                let hop = |n| format!(" nexthop via {over}{n}{} dev {side}{n}", via(over, to));
                links.iter().map(hop).collect()
            };
            let (v4, v6) = (hops("10.251."), hops("fd00:251:"));
            ip(&format!(
                "-n {ns} route replace 10.251.0.{to} src 10.251.0.{own}{v4}"
            ));
            ip(&format!(
                "-n {ns} -6 route replace fd00:251::{to} src fd00:251::{own}{v6}"
            ));
        }
    }

    /// Four links and routes over all of them both ways, by different seeds; `name` tells those of one process
    /// apart.
    ///
    /// # Panics
    /// When it cannot be done, as everything here.
    pub fn new(name: &str) -> Pair {
        Pair::ecmp(name, LINKS, (1234, 4321))
    }

    /// Also routes over all links both ways, chosen by ports with these hash seeds.
    pub fn ecmp(name: &str, links: u32, seeds: (u32, u32)) -> Pair {
        let pair = Pair::subnets(name, links);
        pair.hash_ports(seeds);
        pair.route(&(1..=links).collect::<Vec<_>>());
        pair
    }

    /// Hashes ports, with these seeds.
    pub fn hash_ports(&self, seeds: (u32, u32)) {
        for (ns, seed) in [(&self.client, seeds.0), (&self.server, seeds.1)] {
            sysctl(ns, "net.ipv4.fib_multipath_hash_policy=1");
            sysctl(ns, "net.ipv6.fib_multipath_hash_policy=1");
            sysctl(ns, &format!("net.ipv4.fib_multipath_hash_seed={seed}"));
        }
    }

    /// The links that the kernels of both sides name for a connection, with its numbers on the client's side.
    pub fn links_of(&self, transport: &Value) -> (String, String) {
        let ends = ["local", "peer"].map(|end| {
            let text = transport[end].as_str().unwrap();
            let address: std::net::SocketAddr = text.parse().unwrap();
            (address.ip(), address.port())
        });
        let route = |ns: &str, from: (std::net::IpAddr, u16), to: (std::net::IpAddr, u16)| {
            let words = format!(
                "-n {ns} -j route get {} from {} ipproto tcp sport {} dport {}",
                to.0, from.0, from.1, to.1
            );
            let outcome = Outcome::of(Command::new("ip").args(words.split_whitespace()));
            let said: Value = serde_json::from_str(&outcome.stdout).unwrap();
            said[0]["dev"].as_str().unwrap().replace('s', "c")
        };
        (
            route(&self.client, ends[0], ends[1]),
            route(&self.server, ends[1], ends[0]),
        )
    }
}

fn via(over: &str, end: u32) -> String {
    match over.contains(':') {
        true => format!("::{end}"),
        false => format!(".{end}"),
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for ns in [&self.client, &self.server] {
            let _ = Command::new("ip").args(["netns", "del", ns]).status();
        }
    }
}

/// Runs `ip` with these words.
pub fn ip(words: &str) {
    done(Command::new("ip").args(words.split_whitespace()));
}

/// Sets something in a namespace.
pub fn sysctl(ns: &str, set: &str) {
    done(Command::new("ip").args(["netns", "exec", ns, "sysctl", "-qw", set]));
}

/// Runs a command that has to succeed.
pub fn done(command: &mut Command) {
    let outcome = Outcome::of(command);
    assert_eq!(outcome.code, Some(0), "{command:?}: {}", outcome.stderr);
}

/// Does something in a namespace, on a thread of its own.
pub fn inside<T: Send + 'static>(ns: &str, job: impl FnOnce() -> T + Send + 'static) -> T {
    let file = std::fs::File::open(format!("/run/netns/{ns}")).unwrap();
    let thread = std::thread::spawn(move || {
        setns(file, CloneFlags::CLONE_NEWNET).unwrap();
        job()
    });
    thread.join().unwrap()
}

/// The next record.
pub fn record(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let word = u32::from_be_bytes(mark);
    assert_eq!(word >> 31, 1);
    let mut record = vec![0; (word & 0x7fff_ffff) as usize];
    stream.read_exact(&mut record)?;
    Ok(record)
}

/// Sends these words, and bytes behind them, as a record.
pub fn send(stream: &mut TcpStream, words: &[u32], filling: usize) -> std::io::Result<()> {
    let length = words.len() * 4 + filling;
    let mut bytes = (0x8000_0000 | length as u32).to_be_bytes().to_vec();
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    bytes.resize(length + 4, 0xa5);
    stream.write_all(&bytes)
}

/// A server at `[::]:2049`, or an address of its own, that answers every call with its last word and 100,000
/// bytes; counts calls but NULL.
pub fn serve_at(pair: &Pair, address: &'static str) -> Arc<AtomicU32> {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let listener = inside(&pair.server, move || TcpListener::bind(address).unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let calls = Arc::clone(&counted);
            std::thread::spawn(move || {
                while let Ok(call) = record(&mut stream) {
                    let word =
                        |i: usize| u32::from_be_bytes(call[4 * i..4 * i + 4].try_into().unwrap());
                    let last = word(call.len() / 4 - 1);
                    let null = word(5) == 0;
                    calls.fetch_add(u32::from(!null), Ordering::Relaxed);
                    let filling = if null { 0 } else { 100_000 };
                    if send(&mut stream, &[word(0), 1, 0, 0, 0, 0, last], filling).is_err() {
                        return;
                    }
                }
            });
        }
    });
    calls
}

/// The same at all addresses.
pub fn serve(pair: &Pair) -> Arc<AtomicU32> {
    serve_at(pair, "[::]:2049")
}

/// A running proxy.
pub struct Proxy {
    child: Child,
    words: Vec<OsString>,
    socket: std::path::PathBuf,
    folder: tempfile::TempDir,
}

impl Proxy {
    /// To the server's own address.
    pub fn start(pair: &Pair, options: &[&str]) -> Proxy {
        Proxy::to(pair, &format!("{SERVER}:2049"), options)
    }

    /// To this address and port.
    pub fn to(pair: &Pair, server: &str, options: &[&str]) -> Proxy {
        Proxy::knowing(pair, "127.0.0.1 localhost\n", server, options)
    }

    /// To this name and port, with these lines as `/etc/hosts`.
    pub fn knowing(pair: &Pair, hosts: &str, server: &str, options: &[&str]) -> Proxy {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("rpc.sock");
        std::fs::write(folder.path().join("hosts"), hosts).unwrap();
        let mount = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
        let mut words: Vec<OsString> = Vec::new();
        words.extend(["netns", "exec", &pair.client, "sh", "-c", mount].map(OsString::from));
        words.extend([folder.path().join("hosts").into(), raddle().into()]);
        words.extend(["rpc", "--server", server, "--socket"].map(OsString::from));
        words.push(socket.clone().into());
        words.extend(options.iter().map(OsString::from));
        let child = spawn(&words, folder.path());
        Proxy {
            child,
            words,
            socket,
            folder,
        }
    }

    /// Starts it again, after it has ended or crashed.
    pub fn again(&mut self) {
        self.child = spawn(&self.words, self.folder.path());
    }

    /// What it says.
    pub fn status(&self) -> Result<Value, String> {
        let mut command = Command::new(raddle());
        command
            .args(["rpc", "status", "-j", "--socket"])
            .arg(&self.socket);
        let outcome = Outcome::of(&mut command);
        serde_json::from_str(&outcome.stdout)
            .map_err(|_| format!("{}{}", outcome.stderr, self.log()))
    }

    /// The transports, as soon as all are connected.
    pub fn all_up(&self) -> Vec<Value> {
        let (transports, _) = within(Duration::from_secs(60), || {
            let status = self.status()?;
            let all = status["transports"].as_array().unwrap().clone();
            match all.iter().all(|transport| transport["state"] == "up") {
                true => Ok(all),
                false => Err(status.to_string()),
            }
        });
        transports
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

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether nothing has ended it.
    ///
    /// # Panics
    /// When that cannot be told.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The notes of its status, one a line.
    pub fn notes(&self) -> String {
        let status = self.status().unwrap();
        let notes = status["notes"].as_array().unwrap().iter();
        notes.fold(String::new(), |all, note| {
            all + note.as_str().unwrap() + "\n"
        })
    }
}

/// Runs `ip` with these words; the log is in this folder.
fn spawn(words: &[OsString], folder: &Path) -> Child {
    let mut log = std::fs::OpenOptions::new();
    let log = log.create(true).append(true).open(folder.join("log"));
    Command::new("ip")
        .args(words)
        .stderr(Stdio::from(log.unwrap()))
        .spawn()
        .unwrap()
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the proxy's log:\n{}", self.log());
        }
        self.end();
    }
}

/// What connections for all calls have in this field, each once.
pub fn distinct(transports: &[Value], field: &str) -> BTreeSet<String> {
    let bulk = transports
        .iter()
        .filter(|transport| transport["lane"] == false);
    bulk.map(|transport| transport[field].as_str().unwrap_or("-").to_owned())
        .collect()
}

/// The port of an address.
pub fn port_of(transport: &Value) -> u16 {
    let local = transport["local"].as_str().unwrap();
    local.rsplit(':').next().unwrap().parse().unwrap()
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
