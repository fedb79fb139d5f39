//! A tree of files in and out through `raddle rpc`, with libnfs's tools, before an NFSv3 server of its own kind: the
//! crate `cargo-nfs3-server`, which serves NFS and MOUNT at one port and no portmapper.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use raddle_e2e::rpc::{Pair, Proxy, SERVER, inside, record};
use raddle_e2e::{Outcome, Random, root, within};

/// The server's own port; the proxy speaks to a relay before it.
const PORT: u16 = 11_111;
const RELAYED: u16 = 11_112;
/// Where clients find the relay before the proxy.
const ENTRY: u16 = 2050;

/// The server: what `RADDLE_NFS3_SERVER` names, or what is found; none where something is missing, which is said.
fn server_program(test: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |name: &str| {
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|file| file.exists())
    };
    let given = std::env::var_os("RADDLE_NFS3_SERVER").map(PathBuf::from);
    let server = given.or_else(|| find("cargo-nfs3-server"));
    let tools = ["nfs-ls", "nfs-cp", "nfs-cat"];
    if server.is_none() || tools.iter().any(|tool| find(tool).is_none()) {
        eprintln!(
            "skipped: {test} needs cargo-nfs3-server (cargo install cargo-nfs3-server) and libnfs-utils"
        );
        return None;
    }
    server
}

/// A running server, ended when it is dropped.
struct Server(Child);

impl Server {
    fn start(pair: &Pair, program: &Path, folder: &Path) -> Server {
        let child = Command::new("ip")
            .args(["netns", "exec", &pair.server])
            .arg(program)
            .arg("--path")
            .arg(folder)
            .args(["--bind-port", &PORT.to_string(), "--quiet"])
            .spawn()
            .unwrap();
        let server = Server(child);
        within(Duration::from_secs(60), || {
            inside(&pair.server, || TcpStream::connect(("127.0.0.1", PORT)))
                .map_err(|e| e.to_string())
        });
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Passes records on in fragments of this size.
fn cut(mut from: TcpStream, mut to: TcpStream, size: usize) {
    while let Ok(message) = record(&mut from) {
        let count = message.len().div_ceil(size);
        let mut bytes = Vec::with_capacity(message.len() + 4 * count);
        for (n, part) in message.chunks(size).enumerate() {
            let last = u32::from(n + 1 == count) << 31;
            bytes.extend((last | part.len() as u32).to_be_bytes());
            bytes.extend(part);
        }
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// Passes bytes on as they are.
fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

/// Which direction a relay cuts into fragments.
#[derive(Clone, Copy)]
enum Cuts {
    Calls(usize),
    Replies(usize),
}

/// Relays connections within a namespace, for as long as the test runs.
fn relay(ns: &str, (at, to): (u16, u16), cuts: Cuts) {
    let own = ns.to_owned();
    let listener = inside(ns, move || TcpListener::bind(("0.0.0.0", at)).unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = inside(&own, move || TcpStream::connect(("127.0.0.1", to))) else {
                continue;
            };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let both = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || match cuts {
                Cuts::Calls(size) => cut(client, server, size),
                Cuts::Replies(_) => pass(client, server),
            });
            std::thread::spawn(move || match cuts {
                Cuts::Replies(size) => cut(both.1, both.0, size),
                Cuts::Calls(_) => pass(both.1, both.0),
            });
        }
    });
}

/// Runs a tool in the client's namespace.
fn tool(pair: &Pair, words: &[&str]) -> String {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &pair.client]).args(words);
    let outcome = Outcome::of(&mut command);
    assert_eq!(
        outcome.code,
        Some(0),
        "{words:?}: {} {}",
        outcome.stdout,
        outcome.stderr
    );
    outcome.stdout
}

fn url(path: &str) -> String {
    format!("nfs://127.0.0.1//{path}?nfsport={ENTRY}&mountport={ENTRY}")
}

/// The files of the tree, by sizes around those of fragments and of what is streamed.
const FILES: [(&str, usize); 7] = [
    ("empty", 0),
    ("one", 1),
    ("a/small", 777),
    ("a/b/page", 4096),
    ("a/b/odd", 65_537),
    ("a/large", 1_048_577),
    ("large", 5_000_000),
];

fn tree_comes_and_goes(test: &str, name: &str, calls: usize, replies: usize) {
    if !root(test) {
        return;
    }
    let Some(program) = server_program(test) else {
        return;
    };
    let pair = Pair::new(name);
    let (served, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir_all(served.path().join("a/b")).unwrap();
    let _server = Server::start(&pair, &program, served.path());
    relay(&pair.server, (RELAYED, PORT), Cuts::Replies(replies));
    relay(&pair.client, (ENTRY, 2049), Cuts::Calls(calls));
    let mount = RELAYED.to_string();
    let proxy = Proxy::to(
        &pair,
        &format!("{SERVER}:{RELAYED}"),
        &["--mount-port", &mount],
    );
    proxy.all_up();
    let mut random = Random::new(calls as u64);
    for (file, size) in FILES {
        let bytes = random.bytes(size);
        let local = own.path().join("in");
        std::fs::write(&local, &bytes).unwrap();
        tool(&pair, &["nfs-cp", local.to_str().unwrap(), &url(file)]);
        // What the server's disk has, and what comes back.
        assert!(
            std::fs::read(served.path().join(file)).unwrap() == bytes,
            "{file} was written changed"
        );
        let back = own.path().join("out");
        tool(&pair, &["nfs-cp", &url(file), back.to_str().unwrap()]);
        assert!(
            std::fs::read(&back).unwrap() == bytes,
            "{file} was read changed"
        );
        std::fs::remove_file(back).unwrap();
        let said = tool(&pair, &["nfs-cat", &url(file)]);
        assert!(
            said == String::from_utf8_lossy(&bytes),
            "{file} is said to be another"
        );
    }
    let mut listed: Vec<String> = ["", "a", "a/b"]
        .iter()
        .flat_map(|folder| {
            let lines = tool(&pair, &["nfs-ls", &url(folder)]);
            let names = lines
                .lines()
                .filter_map(|line| line.split_whitespace().last());
            names
                .map(|name| {
                    format!("{folder}/{name}")
                        .trim_start_matches('/')
                        .to_owned()
                })
                .collect::<Vec<_>>()
        })
        .collect();
    listed.sort();
    let mut known: Vec<&str> = FILES
        .iter()
        .map(|(file, _)| *file)
        .chain(["a", "a/b"])
        .collect();
    known.sort_unstable();
    assert_eq!(listed, known);
    let status = proxy.status().unwrap();
    for counter in [
        "bad_records",
        "unknown_replies",
        "clients_disconnected",
        "run_again",
        "answered_again",
    ] {
        assert_eq!(status["counters"][counter], 0, "{counter}: {status}");
    }
}

#[test]
fn a_tree_comes_and_goes_whole() {
    tree_comes_and_goes("a_tree_comes_and_goes_whole", "w", 16 << 20, 16 << 20);
}

#[test]
fn a_tree_comes_and_goes_in_pages() {
    tree_comes_and_goes("a_tree_comes_and_goes_in_pages", "p", 4096, 8192);
}

#[test]
fn a_tree_comes_and_goes_in_crumbs() {
    tree_comes_and_goes("a_tree_comes_and_goes_in_crumbs", "k", 97, 1000);
}
