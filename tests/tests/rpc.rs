//! The proxy of `raddle rpc` between namespaces that four links join: where its connections lie, what comes
//! through, and what happens when a link goes silent.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use raddle_e2e::{Outcome, raddle, root, within};
use serde_json::Value;

const LINKS: u32 = 4;
const SERVER: &str = "10.251.0.2";

/// Two namespaces, `LINKS` links between them, and routes over all of them both ways, by different seeds.
struct Pair {
    client: String,
    server: String,
}

impl Pair {
    fn new(name: &str) -> Pair {
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

fn ip(words: &str) {
    done(Command::new("ip").args(words.split_whitespace()));
}

fn done(command: &mut Command) {
    let outcome = Outcome::of(command, Duration::from_secs(10));
    assert_eq!(outcome.code, Some(0), "{command:?}: {}", outcome.stderr);
}

/// Does something in a namespace, on a thread of its own.
fn inside<T: Send + 'static>(ns: &str, job: impl FnOnce() -> T + Send + 'static) -> T {
    let file = std::fs::File::open(format!("/run/netns/{ns}")).unwrap();
    let thread = std::thread::spawn(move || {
        setns(file, CloneFlags::CLONE_NEWNET).unwrap();
        job()
    });
    thread.join().unwrap()
}

fn record(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let word = u32::from_be_bytes(mark);
    assert_eq!(word >> 31, 1);
    let mut record = vec![0; (word & 0x7fff_ffff) as usize];
    stream.read_exact(&mut record)?;
    Ok(record)
}

fn send(stream: &mut TcpStream, words: &[u32], filling: usize) -> std::io::Result<()> {
    let length = words.len() * 4 + filling;
    let mut bytes = (0x8000_0000 | length as u32).to_be_bytes().to_vec();
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    bytes.resize(length + 4, 0xa5);
    stream.write_all(&bytes)
}

/// A server that answers every call with its last word and 100,000 bytes; counts calls but NULL.
fn serve(pair: &Pair) -> Arc<AtomicU32> {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let listener = inside(&pair.server, || TcpListener::bind((SERVER, 2049)).unwrap());
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

/// A running proxy.
struct Proxy {
    child: Child,
    socket: std::path::PathBuf,
    folder: tempfile::TempDir,
}

impl Proxy {
    fn start(pair: &Pair, options: &[&str]) -> Proxy {
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

    fn status(&self) -> Result<Value, String> {
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

    /// The transports, as soon as all are connected.
    fn all_up(&self) -> Vec<Value> {
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
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

fn links(transports: &[Value], way: &str) -> BTreeSet<String> {
    let bulk = transports
        .iter()
        .filter(|transport| transport["lane"] == false);
    bulk.map(|transport| transport[way].as_str().unwrap_or("-").to_owned())
        .collect()
}

#[test]
fn four_connections_lie_on_four_links_both_ways() {
    if !root("four_connections_lie_on_four_links_both_ways") {
        return;
    }
    let pair = Pair::new("a");
    let _calls = serve(&pair);
    for _ in 0..3 {
        let proxy = Proxy::start(&pair, &[]);
        let transports = proxy.all_up();
        assert_eq!(transports.len(), 5);
        assert_eq!(links(&transports, "out").len(), 4, "{transports:?}");
        assert_eq!(links(&transports, "back").len(), 4, "{transports:?}");
    }
    let proxy = Proxy::start(&pair, &["--privileged-ports", "--no-lane"]);
    let transports = proxy.all_up();
    assert_eq!(links(&transports, "back").len(), 4, "{transports:?}");
    for transport in &transports {
        let local = transport["local"].as_str().unwrap();
        let port: u16 = local.rsplit(':').next().unwrap().parse().unwrap();
        assert!((512..1024).contains(&port), "{local}");
    }
}

#[test]
fn a_silent_link_costs_reads_less_than_two_seconds() {
    if !root("a_silent_link_costs_reads_less_than_two_seconds") {
        return;
    }
    let pair = Pair::new("b");
    let calls = serve(&pair);
    let proxy = Proxy::start(&pair, &["--no-lane"]);
    let transports = proxy.all_up();
    let last = transports[2]["out"]
        .as_str()
        .unwrap()
        .trim_start_matches('c')
        .parse()
        .unwrap();
    let longest = inside(&pair.client, move || {
        let mut stream = TcpStream::connect("127.0.0.1:2049").unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut longest = Duration::ZERO;
        for n in 0..400_u32 {
            if n == 100 {
                silence_from_here(last);
            }
            let start = Instant::now();
            // GETATTR: idempotent.
            send(&mut stream, &[n, 0, 2, 100_003, 3, 1, 0, 0, 0, 0, n], 0).unwrap();
            // Its words come last, behind 24 bytes of header, 4 of its own, and filling.
            let reply = record(&mut stream).unwrap();
            assert_eq!(reply[..4], n.to_be_bytes());
            assert_eq!(reply[24..28], n.to_be_bytes());
            assert_eq!(reply.len(), 100_028);
            longest = longest.max(start.elapsed());
        }
        longest
    });
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    assert!(calls.load(Ordering::Relaxed) >= 400);
    let status = proxy.status().unwrap();
    assert!(status["counters"]["resent"].as_u64() >= Some(1), "{status}");
    assert_eq!(status["held"].as_array().map(Vec::len), Some(0));
}

/// Has a link of this thread's namespace lose everything that is sent.
fn silence_from_here(n: u32) {
    let words = format!("qdisc add dev c{n} root tbf rate 8bit burst 10 limit 10");
    done(Command::new("tc").args(words.split_whitespace()));
}
