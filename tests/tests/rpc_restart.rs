//! `raddle rpc` is restarted and killed while calls that must not be run twice are under way: by the server's log each
//! is run once. And servers and clients that go away while something is written to them end nobody.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use raddle_e2e::once::{self, MKDIR, REMOVE, RENAME};
use raddle_e2e::rpc::{Pair, Proxy, inside, ip, record, send, serve_at};
use raddle_e2e::{root, within};
use socket2::{Domain, Socket, Type};

/// Clients, each with one call after the other.
const WORKERS: u32 = 16;
const RESTARTS: u32 = 20;
/// Names that a client uses, at most.
const NAMES: u32 = 1 << 20;

/// Some wait before they are run, some replies come late; one now and then outlasts a restart.
fn pace(_: u32, name: u32) -> [Duration; 2] {
    let before = match (name / NAMES, name % 256) {
        (3, 6) => 12_000,
        (_, of) => u64::from(of % 3) * 15,
    };
    [before, u64::from(name % 4) * 15].map(Duration::from_millis)
}

/// A client as the kernel's: it connects again from its port, and repeats what has no reply.
struct Client {
    port: u16,
    stream: Option<TcpStream>,
    xid: u32,
}

impl Client {
    fn connect(&self) -> std::io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], self.port)).into())?;
        socket.connect(&SocketAddr::from(([127, 0, 0, 1], 2049)).into())?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        Ok(stream)
    }

    /// The status.
    fn call(&mut self, procedure: u32, name: u32, other: u32) -> u32 {
        self.xid += 1;
        let xid = self.xid;
        let words = [xid, 0, 2, 100_003, 3, procedure, 0, 0, 0, 0, name, other];
        loop {
            let Some(stream) = &mut self.stream else {
                self.stream = self.connect().ok();
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            match send(stream, &words, 0).and_then(|()| record(stream)) {
                Ok(reply) => {
                    assert_eq!(reply[..4], xid.to_be_bytes());
                    return u32::from_be_bytes(reply[24..28].try_into().unwrap());
                }
                Err(e) => {
                    assert_ne!(
                        e.kind(),
                        std::io::ErrorKind::WouldBlock,
                        "no reply to {xid:#x}"
                    );
                    self.stream = None;
                }
            }
        }
    }
}

/// Makes, renames and removes directories of its own until it is to end.
fn worker(number: u32, end: &AtomicBool) -> u32 {
    let mut client = Client {
        port: 20_000 + number as u16,
        stream: None,
        xid: number << 16,
    };
    let mut name = number * NAMES;
    while !end.load(Ordering::Relaxed) {
        assert_eq!(client.call(MKDIR, name, 0), 0);
        assert_eq!(client.call(RENAME, name, name + 1), 0);
        assert_eq!(client.call(REMOVE, name + 1, 0), 0);
        name += 2;
    }
    (name - number * NAMES) / 2
}

#[test]
fn restarts_and_crashes_run_no_call_twice() {
    if !root("restarts_and_crashes_run_no_call_twice") {
        return;
    }
    let pair = Pair::new("z");
    let server = once::serve(&pair, pace);
    let mut proxy = Proxy::start(&pair, &[]);
    proxy.all_up();
    let end = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let (ns, end) = (pair.client.clone(), Arc::clone(&end));
            std::thread::spawn(move || inside(&ns, move || worker(number, &end)))
        })
        .collect();
    let ran = || server.lock().unwrap().runs.len();
    let mut replayed = 0;
    for restart in 0..RESTARTS {
        // Under load.
        let before = ran();
        within(Duration::from_secs(60), || match ran() {
            now if now >= before + 100 => Ok(()),
            now => Err(format!("{now} of {before} + 100\n{}", proxy.log())),
        });
        let status = proxy.status().unwrap();
        replayed += status["counters"]["replayed"].as_u64().unwrap();
        assert_eq!(
            status["counters"]["run_again"],
            0,
            "{status}\n{}",
            proxy.log()
        );
        match restart % 2 {
            0 => proxy.crash(),
            _ => proxy.end(),
        }
        proxy.again();
        proxy.all_up();
    }
    end.store(true, Ordering::Relaxed);
    let rounds: u32 = workers
        .into_iter()
        .map(|worker| worker.join().unwrap_or_else(|_| panic!("{}", proxy.log())))
        .sum();
    let server = server.lock().unwrap();
    eprintln!(
        "{} calls, {replayed} sent again from the same port, {} known to the server",
        server.runs.len(),
        server.hits
    );
    assert_eq!(server.runs.len() as u32, 3 * rounds);
    let twice: Vec<_> = server.runs.iter().filter(|(_, runs)| **runs != 1).collect();
    assert!(twice.is_empty(), "{twice:?}\n{}", proxy.log());
    assert!(server.tree.is_empty());
    assert!(replayed > 0 && server.hits > 0, "{}", proxy.log());
}

/// Two machines by one name, which do not know each other's clients.
#[test]
fn a_restart_stays_with_the_machine_that_has_the_calls() {
    if !root("a_restart_stays_with_the_machine_that_has_the_calls") {
        return;
    }
    let pair = Pair::subnets("m", 1);
    ip(&format!("-n {} addr add 10.251.1.3/24 dev s1", pair.server));
    let _two = serve_at(&pair, "10.251.1.2:2049");
    let hosts = "10.251.1.3 nas.example\n10.251.1.2 nas.example\n";
    let mut proxy = Proxy::knowing(&pair, hosts, "nas.example:2049", &[]);
    let call = |xid: u32| {
        inside(&pair.client, move || {
            let mut client = Client {
                port: 20_001,
                stream: None,
                xid,
            };
            client.call(MKDIR, 5, 0);
        });
    };
    let peers = |proxy: &Proxy| {
        let transports = proxy.all_up();
        let peers = transports
            .iter()
            .map(|t| t["peer"].as_str().unwrap().to_owned());
        peers.collect::<BTreeSet<_>>()
    };
    let only = |peer: &str| BTreeSet::from([peer.to_owned()]);
    assert_eq!(peers(&proxy), only("10.251.1.2:2049"));
    call(1);
    call(2);

    // The other one is back.
    let _three = serve_at(&pair, "10.251.1.3:2049");
    proxy.end();
    proxy.again();
    call(2);
    assert_eq!(peers(&proxy), only("10.251.1.2:2049"), "{}", proxy.log());
    let counters = proxy.status().unwrap()["counters"].clone();
    assert_eq!(
        (&counters["replayed"], &counters["run_again"]),
        (&1.into(), &0.into())
    );

    // And this one is gone: what was sent to it goes to the other one, and that is said.
    ip(&format!("-n {} addr flush dev s1", pair.server));
    ip(&format!("-n {} addr add 10.251.1.3/24 dev s1", pair.server));
    proxy.end();
    proxy.again();
    call(2);
    assert_eq!(peers(&proxy), only("10.251.1.3:2049"), "{}", proxy.log());
    let counters = proxy.status().unwrap()["counters"].clone();
    assert_eq!(counters["run_again"], 1, "{}", proxy.log());
    let settled = proxy.log().matches("the first that answers").count();
    assert_eq!(settled, 3, "{}", proxy.log());
}
