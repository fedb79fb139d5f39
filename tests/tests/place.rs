//! `raddle place`: connections of programs that know nothing of it, each on a path of its own.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use raddle_e2e::rpc::{Pair, inside, ip, sysctl};
use raddle_e2e::{Outcome, raddle, root};
use serde_json::{Value, json};

/// A server's address, and connections to it.
struct Server {
    listener: TcpListener,
    at: SocketAddr,
}

impl Server {
    fn at(pair: &Pair, address: &str) -> Server {
        let address = address.to_owned();
        let listener = inside(&pair.server, move || {
            TcpListener::bind((&*address, 0)).unwrap()
        });
        let at = listener.local_addr().unwrap();
        Server { listener, at }
    }

    /// The next connections.
    fn accept(&self, count: usize) -> Vec<(TcpStream, SocketAddr)> {
        (0..count)
            .map(|_| self.listener.accept().unwrap())
            .collect()
    }

    /// What has a shell connect so often, say so, and wait for a line.
    fn shell(&self, count: usize) -> String {
        let (ip, port) = (self.at.ip(), self.at.port());
        format!(
            "for i in $(seq {count}); do exec {{f}}<>/dev/tcp/{ip}/{port} || exit 9; done; echo there; read line; exit 7"
        )
    }
}

/// A command in the client's namespace.
fn client(pair: &Pair, words: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &pair.client]).args(words);
    command
}

/// A program under `raddle place`.
struct Placed {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Placed {
    /// Starts a shell.
    fn shell(pair: &Pair, script: &str) -> Placed {
        let raddle = raddle().display().to_string();
        let words = [&raddle, "place", "--summary", "--", "bash", "-c", script];
        let mut command = client(pair, &words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Placed { child, said }
    }

    /// Waits until it says this.
    fn says(&mut self, what: &str) {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        if line.trim_end() != what {
            let mut text = String::new();
            let _ = self.child.kill();
            self.child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut text)
                .unwrap();
            panic!("it said '{line}': {text}");
        }
    }

    /// Has it end; its exit code, and what was said on standard error.
    fn end(mut self) -> (Option<i32>, String) {
        self.child
            .stdin
            .take()
            .unwrap()
            .write_all(b"end\n")
            .unwrap();
        let mut text = String::new();
        let mut error = self.child.stderr.take().unwrap();
        error.read_to_string(&mut text).unwrap();
        (self.child.wait().unwrap().code(), text)
    }
}

/// How many connections leave by each link, by the kernel's word.
fn by_link(pair: &Pair, server: SocketAddr, clients: &[SocketAddr]) -> BTreeMap<String, usize> {
    let mut links = BTreeMap::new();
    for client in clients {
        let transport: Value = json!({"local": client.to_string(), "peer": server.to_string()});
        *links.entry(pair.links_of(&transport).0).or_default() += 1;
    }
    links
}

/// So many connections of a shell, and how they lie; and what `raddle place` said.
fn connect(pair: &Pair, address: &str, count: usize) -> (BTreeMap<String, usize>, String) {
    let server = Server::at(pair, address);
    let mut placed = Placed::shell(pair, &server.shell(count));
    placed.says("there");
    let there = server.accept(count);
    let clients: Vec<SocketAddr> = there.iter().map(|(_, from)| *from).collect();
    let links = by_link(pair, server.at, &clients);
    let (code, said) = placed.end();
    assert_eq!(code, Some(7), "{said}");
    (links, said)
}

#[test]
fn connections_lie_evenly() {
    if !root("connections_lie_evenly") {
        return;
    }
    let pair = Pair::subnets("pe", 4);
    sysctl(&pair.client, "net.ipv4.fib_multipath_hash_policy=1");
    sysctl(&pair.client, "net.ipv6.fib_multipath_hash_policy=1");
    pair.route(&[1, 2, 3, 4]);
    for address in ["10.251.0.2", "fd00:251::2"] {
        for count in [4, 8, 12] {
            let (links, said) = connect(&pair, address, count);
            let each: Vec<usize> = links.values().copied().collect();
            assert_eq!(each, [count / 4; 4], "{address}: {links:?}: {said}");
            assert!(said.contains(&format!("{count}  placed")), "{said}");
        }
    }
    // Each path gives a source of its own.
    let hops: String = (1..=4)
        .map(|n| format!(" nexthop via 10.251.{n}.2"))
        .collect();
    ip(&format!(
        "-n {} route replace 10.251.0.2{hops}",
        pair.client
    ));
    for _ in 0..3 {
        let (links, said) = connect(&pair, "10.251.0.2", 8);
        assert_eq!(
            links.values().copied().collect::<Vec<_>>(),
            [2; 4],
            "{said}"
        );
    }
}

#[test]
fn what_cannot_be_placed_connects_as_ever() {
    if !root("what_cannot_be_placed_connects_as_ever") {
        return;
    }
    let pair = Pair::subnets("pw", 2);
    pair.route(&[1, 2]);
    // The default policy does not look at ports.
    let (links, said) = connect(&pair, "10.251.0.2", 4);
    assert_eq!(links.len(), 1, "{links:?}");
    assert!(said.contains("fib_multipath_hash_policy=1"), "{said}");
    assert!(said.contains("4  hash-policy"), "{said}");
    sysctl(&pair.client, "net.ipv4.fib_multipath_hash_policy=1");
    let (_, said) = connect(&pair, "10.251.1.2", 2);
    assert!(said.contains("2  one-path"), "{said}");
    // No port is free to be taken.
    sysctl(&pair.client, "net.ipv4.ip_local_port_range=40000 40003");
    sysctl(&pair.client, "net.ipv4.ip_local_reserved_ports=40000-40003");
    let outcome = Outcome::of(&mut client(
        &pair,
        &[&raddle().display().to_string(), "place", "--", "false"],
    ));
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
}

#[test]
fn a_program_ends_as_without_it() {
    if !root("a_program_ends_as_without_it") {
        return;
    }
    let pair = Pair::subnets("pp", 2);
    let raddle = raddle().display().to_string();
    let run = |words: &[&str]| {
        let words: Vec<&str> = [&*raddle, "place", "--"]
            .into_iter()
            .chain(words.iter().copied())
            .collect();
        Outcome::of(&mut client(&pair, &words))
    };
    assert_eq!(run(&["true"]).code, Some(0));
    assert_eq!(run(&["sh", "-c", "kill -TERM $$"]).code, Some(128 + 15));
    let missing = run(&["no-such-program"]);
    assert_eq!(missing.code, Some(127));
    assert!(
        missing.stderr.contains("no-such-program"),
        "{}",
        missing.stderr
    );
}
