//! Calls that an earlier process has left, before a server that knows calls by port and XID and logs every run.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use crate::common::{
    config, connected, direct, fragments, free, record, replies, run, until, word, words,
};
use raddle_rpc::client::Direct;
use raddle_rpc::journal::{Journal, Keys};
use raddle_rpc::proxy::{Config, Connect, Connected, Proxy, Review, Standing, Wanted};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

const NFS: u32 = 100_003;
const WRITE: u32 = 7;
const MKDIR: u32 = 9;
/// Names from here on wait until they may go on.
const SLOW: u32 = 1 << 20;

/// A server.
#[derive(Default)]
struct Server {
    /// How often each name was begun.
    runs: RefCell<HashMap<u32, u32>>,
    /// What it knows, by port and XID, and whether it has been run.
    known: RefCell<HashMap<(SocketAddr, u32), bool>>,
    goes: Cell<bool>,
    go: Notify,
}

impl Server {
    fn runs(&self, name: u32) -> u32 {
        self.runs.borrow().get(&name).copied().unwrap_or(0)
    }

    fn go(&self) {
        self.goes.set(true);
        self.go.notify_waiters();
    }

    async fn run(&self, key: (SocketAddr, u32), name: u32) {
        *self.runs.borrow_mut().entry(name).or_default() += 1;
        while name >= SLOW && !self.goes.get() {
            self.go.notified().await;
        }
        self.known.borrow_mut().insert(key, true);
    }

    async fn serve(self: Rc<Self>, stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        let (mut reader, writer) = stream.into_split();
        let writer = Rc::new(Mutex::new(writer));
        loop {
            let call = record(&mut reader).await?;
            let (xid, name) = (word(&call, 0), word(&call, call.len() / 4 - 1));
            if word(&call, 5) == 0 {
                answer(&writer, xid).await?;
                continue;
            }
            let known = self.known.borrow().get(&(peer, xid)).copied();
            match known {
                Some(true) => answer(&writer, xid).await?,
                // It is being run.
                Some(false) => {}
                None => {
                    self.known.borrow_mut().insert((peer, xid), false);
                    let (server, writer) = (Rc::clone(&self), Rc::clone(&writer));
                    tokio::task::spawn_local(async move {
                        server.run((peer, xid), name).await;
                        let _ = answer(&writer, xid).await;
                    });
                }
            }
        }
    }
}

async fn answer(writer: &Mutex<OwnedWriteHalf>, xid: u32) -> io::Result<()> {
    let reply = fragments(&words(&[xid, 1, 0, 0, 0, 0, 0]), 1000);
    writer.lock().await.write_all(&reply).await
}

async fn listen(listener: TcpListener, server: Rc<Server>) {
    while let Ok((stream, peer)) = listener.accept().await {
        tokio::task::spawn_local(Rc::clone(&server).serve(stream, peer));
    }
}

/// A server, and the file of the journal.
struct Lab {
    server: Rc<Server>,
    at: SocketAddr,
    journal: PathBuf,
}

impl Lab {
    async fn new(name: &str) -> Lab {
        let server = Rc::new(Server::default());
        let listener = free().await;
        let at = listener.local_addr().unwrap();
        tokio::task::spawn_local(listen(listener, Rc::clone(&server)));
        let name = format!("raddle-left-{}-{name}", std::process::id());
        Lab {
            server,
            at,
            journal: std::env::temp_dir().join(name),
        }
    }

    /// A proxy, and where it listens.
    async fn start(&self, connect: Rc<dyn Connect>) -> (Proxy, SocketAddr) {
        let own = free().await;
        let address = own.local_addr().unwrap();
        let journal = Journal::open(&self.journal, Keys(1, 2), |_, _| true).unwrap();
        // XIDs begin where those of the one before did, the worst that can be drawn.
        let proxy = Proxy::resume(two(), connect, 7, journal);
        let serving = proxy.clone();
        tokio::task::spawn_local(async move { serving.serve(own).await });
        (proxy, address)
    }

    /// One that connects by itself, as soon as it has.
    async fn proxy(&self) -> (Proxy, SocketAddr) {
        let (proxy, address) = self.start(Rc::new(direct(self.at))).await;
        connected(&proxy).await;
        (proxy, address)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.journal);
    }
}

/// Two connections, without a lane.
fn two() -> Config {
    let mut config = config(2, 64 << 20, 60);
    config.services[0].lanes = 0;
    config
}

/// Ends a proxy as a crash would.
async fn crash(proxy: Proxy) {
    proxy.stop();
    until(|| proxy.is_stopped()).await;
}

fn call(xid: u32, procedure: u32, name: u32) -> Vec<u8> {
    let call = words(&[xid, 0, 2, NFS, 3, procedure, 0, 0, 0, 0, 4, 9, name]);
    fragments(&call, 1000)
}

/// A connection from this port.
async fn connect(own: SocketAddr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.set_zero_linger().unwrap();
    socket.bind(own).unwrap();
    socket.connect(to).await.unwrap()
}

/// The XID of the next reply.
async fn reply(stream: &mut TcpStream) -> u32 {
    let reply = timeout(Duration::from_secs(60), record(stream)).await;
    word(&reply.expect("a reply in time").unwrap(), 0)
}

#[test]
fn what_waits_for_its_reply_is_known_however_much_comes_after_it() {
    run(async {
        let lab = Lab::new("waits").await;
        let (proxy, address) = lab.proxy().await;
        let own = free().await.local_addr().unwrap();
        let mut client = connect(own, address).await;
        client.write_all(&call(1, WRITE, SLOW)).await.unwrap();
        until(|| lab.server.runs(SLOW) == 1).await;
        let mut other = TcpStream::connect(address).await.unwrap();
        for batch in 0..70 {
            let writes = (0..500).flat_map(|n| call(batch * 500 + n, WRITE, n));
            let writes: Vec<u8> = writes.collect();
            other.write_all(&writes).await.unwrap();
            for _ in 0..500 {
                reply(&mut other).await;
            }
        }
        assert_eq!(replies(&proxy.status()), 35_000);
        crash(proxy).await;
        lab.server.go();
        let (proxy, address) = lab.proxy().await;
        drop(client);
        let mut client = connect(own, address).await;
        client.write_all(&call(1, WRITE, SLOW)).await.unwrap();
        assert_eq!(reply(&mut client).await, 1);
        assert_eq!(lab.server.runs(SLOW), 1);
        let counters = proxy.status().counters;
        assert_eq!((counters.replayed, counters.run_again), (1, 0));
    });
}

/// What becomes of attempts to have a port again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Open,
    /// The server does not answer.
    Shut,
    /// Somebody else has the port, so many times more.
    Taken(u32),
    /// The connection has ended before anything can be written.
    Lost,
}

/// Connects straight to the server, as far as the door is open.
struct Gate {
    direct: Direct,
    door: Cell<Door>,
    /// What it was told last of the connections that stand; it wants one made anew that calls may come back to.
    standing: RefCell<Vec<Standing>>,
    asked: Cell<u32>,
}

impl Gate {
    fn new(lab: &Lab, door: Door) -> Rc<Gate> {
        Rc::new(Gate {
            direct: direct(lab.at),
            door: Cell::new(door),
            standing: RefCell::default(),
            asked: Cell::default(),
        })
    }
}

impl Connect for Gate {
    fn connect(&self, wanted: Wanted) -> Pin<Box<dyn Future<Output = io::Result<Connected>> + '_>> {
        Box::pin(async move {
            let door = match wanted.again {
                Some(_) => self.door.get(),
                None => Door::Open,
            };
            match door {
                Door::Shut => return Err(io::ErrorKind::TimedOut.into()),
                Door::Taken(0) | Door::Open | Door::Lost => {}
                Door::Taken(times) => {
                    self.door.set(Door::Taken(times - 1));
                    return Err(io::ErrorKind::AddrInUse.into());
                }
            }
            let connected = self.direct.connect(wanted).await?;
            if door == Door::Lost {
                socket2::SockRef::from(&connected.stream).shutdown(std::net::Shutdown::Both)?;
                connected.stream.readable().await?;
                self.door.set(Door::Shut);
            }
            Ok(connected)
        })
    }

    fn changed(&self) -> bool {
        true
    }

    fn review(&self, standing: &[Standing]) -> Review {
        self.standing.replace(standing.to_vec());
        self.asked.set(self.asked.get() + 1);
        Review {
            again: standing.iter().position(|of| of.expects),
            ..Review::default()
        }
    }

    fn closed(&self, _: usize, _: usize) {}
}

/// A proxy has sent this call, which has been run, and is gone; where its client was.
async fn left(lab: &Lab, call: &[u8]) -> SocketAddr {
    let (proxy, address) = lab.proxy().await;
    let own = free().await.local_addr().unwrap();
    let mut client = connect(own, address).await;
    client.write_all(call).await.unwrap();
    until(|| lab.server.runs(SLOW) == 1).await;
    crash(proxy).await;
    lab.server.go();
    own
}

/// A port that is taken for a moment is waited for.
#[test]
fn a_port_that_is_free_again_is_had_again() {
    run(async {
        let lab = Lab::new("taken").await;
        let own = left(&lab, &call(1, MKDIR, SLOW)).await;
        let (proxy, address) = lab.start(Gate::new(&lab, Door::Taken(4))).await;
        connected(&proxy).await;
        let mut client = connect(own, address).await;
        client.write_all(&call(1, MKDIR, SLOW)).await.unwrap();
        assert_eq!(reply(&mut client).await, 1);
        assert_eq!(lab.server.runs(SLOW), 1);
        let counters = proxy.status().counters;
        assert_eq!((counters.replayed, counters.run_again), (1, 0));
    });
}

/// What is held until its port is had again is sent, and counted, once.
#[test]
fn what_is_held_for_its_port_counts_once() {
    run(async {
        let lab = Lab::new("held").await;
        let own = left(&lab, &call(1, MKDIR, SLOW)).await;
        let gate = Gate::new(&lab, Door::Shut);
        let (proxy, address) = lab.start(Rc::clone(&gate) as Rc<dyn Connect>).await;
        let mut client = connect(own, address).await;
        client.write_all(&call(1, MKDIR, SLOW)).await.unwrap();
        until(|| proxy.status().held.len() == 1).await;
        gate.door.set(Door::Open);
        assert_eq!(reply(&mut client).await, 1);
        assert_eq!(lab.server.runs(SLOW), 1);
        let counters = proxy.status().counters;
        assert_eq!((counters.replayed, counters.run_again), (1, 0));
    });
}

/// A connection that calls may come back to keeps its port, wherever it lies; others are placed anew.
#[test]
fn only_ports_that_calls_may_come_back_to_are_kept() {
    run(async {
        let lab = Lab::new("kept").await;
        let own = left(&lab, &call(1, MKDIR, SLOW)).await;
        let gate = Gate::new(&lab, Door::Open);
        let (proxy, address) = lab.start(Rc::clone(&gate) as Rc<dyn Connect>).await;
        connected(&proxy).await;
        let expects = || -> Vec<bool> {
            let standing = gate.standing.borrow();
            standing.iter().map(|of| of.expects).collect()
        };
        until(|| expects() == [true, false]).await;
        // It is asked to move the first all the time.
        let asked = gate.asked.get();
        until(|| gate.asked.get() > asked + 3).await;
        assert_eq!(proxy.status().transports[0].connections, 1);
        let mut client = connect(own, address).await;
        client.write_all(&call(1, MKDIR, SLOW)).await.unwrap();
        assert_eq!(reply(&mut client).await, 1);
        assert_eq!(lab.server.runs(SLOW), 1);
        assert_eq!(proxy.status().counters.run_again, 0);
    });
}

/// A port that stays somebody else's is given up, and so is what is held for it.
#[test]
fn what_is_held_for_a_port_of_somebody_else_goes_elsewhere_and_is_counted() {
    run(async {
        let lab = Lab::new("gone").await;
        let own = left(&lab, &call(1, MKDIR, SLOW)).await;
        let (proxy, address) = lab.start(Gate::new(&lab, Door::Taken(u32::MAX))).await;
        let mut client = connect(own, address).await;
        client.write_all(&call(1, MKDIR, SLOW)).await.unwrap();
        until(|| proxy.status().held.len() == 1).await;
        assert_eq!(reply(&mut client).await, 1);
        assert_eq!(lab.server.runs(SLOW), 2);
        assert_eq!(proxy.status().counters.run_again, 1);
        connected(&proxy).await;
    });
}

/// A MKDIR that is signed with this sequence number.
fn signed(sequence: u32) -> Vec<u8> {
    let call = [
        1, 0, 2, NFS, 3, MKDIR, 6, 20, 1, 0, sequence, 1, 0, 6, 4, sequence, SLOW,
    ];
    fragments(&words(&call), 1000)
}

/// A signed call is held, signed anew, and then the connection is lost before it is written: it still goes nowhere
/// else.
#[test]
fn what_is_signed_again_is_still_left_by_an_earlier_process() {
    run(async {
        let lab = Lab::new("signed").await;
        let own = left(&lab, &signed(1)).await;
        let gate = Gate::new(&lab, Door::Shut);
        let (proxy, address) = lab.start(Rc::clone(&gate) as Rc<dyn Connect>).await;
        let up = |count| {
            let transports = proxy.status().transports;
            transports.iter().filter(|t| t.connections >= count).count()
        };
        until(|| up(1) == 1).await;
        let mut client = connect(own, address).await;
        client.write_all(&signed(2)).await.unwrap();
        until(|| proxy.status().held.len() == 1).await;
        client.write_all(&signed(3)).await.unwrap();
        until(|| {
            proxy
                .status()
                .clients
                .iter()
                .any(|client| client.calls == 2)
        })
        .await;
        gate.door.set(Door::Lost);
        until(|| gate.door.get() == Door::Shut && up(1) == 2).await;
        gate.door.set(Door::Open);
        assert_eq!(reply(&mut client).await, 1);
        assert_eq!(lab.server.runs(SLOW), 1);
        assert_eq!(proxy.status().counters.run_again, 0);
    });
}

/// So many others are answered that its reply is remembered no more.
#[test]
fn what_is_remembered_no_more_is_known_to_the_server() {
    run(async {
        let lab = Lab::new("evicted").await;
        let (proxy, address) = lab.proxy().await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(&call(1, MKDIR, 9999)).await.unwrap();
        assert_eq!(reply(&mut client).await, 1);
        let mut other = TcpStream::connect(address).await.unwrap();
        for batch in 0..40 {
            let calls = (0..500).flat_map(|n| call(batch * 500 + n, MKDIR, n));
            let calls: Vec<u8> = calls.collect();
            other.write_all(&calls).await.unwrap();
            for _ in 0..500 {
                reply(&mut other).await;
            }
        }
        client.write_all(&call(1, MKDIR, 9999)).await.unwrap();
        assert_eq!(reply(&mut client).await, 1);
        assert_eq!(lab.server.runs(9999), 1);
        let counters = proxy.status().counters;
        assert_eq!((counters.replayed, counters.run_again), (1, 0));
    });
}
