//! Calls that clients repeat by a new connection, before a server that logs every run.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::common::{
    config, connected, fragments, free, local_address, proxy_to, record, run, until, word, words,
};
use raddle_rpc::assemble::PIECE;
use raddle_rpc::proxy::{Config, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

const NFS: u32 = 100_003;
const READ: u32 = 6;
const MKDIR: u32 = 9;
/// A program that nobody knows; its procedure 7 has a large reply.
const PROGRAM: u32 = 400_000;
const MUCH: u32 = 7;
/// `NFS3ERR_EXIST`.
const EXIST: u32 = 17;

/// A server that has directories, by name.
#[derive(Default)]
struct Server {
    /// How often each was made.
    runs: RefCell<HashMap<u32, u32>>,
    /// Answers as servers remember them.
    cache: RefCell<HashMap<(SocketAddr, u32), Vec<u8>>>,
    /// Messages that have come, replayed ones included.
    came: Cell<u32>,
    /// Whether answers wait.
    waits: Cell<bool>,
    go: Notify,
    /// Reset connections, once each, when a call has been run.
    resets: Cell<u32>,
    /// Whether the end of the reply to a READ never comes.
    stalls: Cell<bool>,
}

async fn serve(mut stream: TcpStream, peer: SocketAddr, server: Rc<Server>) -> io::Result<()> {
    loop {
        let call = record(&mut stream).await?;
        let (xid, procedure, flavour) = (word(&call, 0), word(&call, 5), word(&call, 6));
        if procedure == 0 {
            let reply = words(&[xid, 1, 0, 0, 0, 0]);
            stream.write_all(&fragments(&reply, 1000)).await?;
            continue;
        }
        server.came.set(server.came.get() + 1);
        if procedure == READ {
            let mut reply = words(&[xid, 1, 0, 0, 0, 0]);
            reply.resize(1 << 20, 7);
            let bytes = fragments(&reply, 2 << 20);
            let (most, rest) = bytes.split_at(bytes.len() - PIECE - 1000);
            stream.write_all(most).await?;
            // The rate is known by now, and that the rest will be here at once.
            sleep(Duration::from_millis(100)).await;
            stream.write_all(&rest[..PIECE]).await?;
            if server.stalls.get() {
                std::future::pending::<()>().await;
            }
            stream.write_all(&rest[PIECE..]).await?;
            continue;
        }
        let known = server.cache.borrow().get(&(peer, xid)).cloned();
        let reply = known.unwrap_or_else(|| {
            let mut runs = server.runs.borrow_mut();
            let count = runs.entry(word(&call, call.len() / 4 - 1)).or_default();
            *count += 1;
            let status = if *count == 1 { 0 } else { EXIST };
            // The number of what a signed call was signed with.
            let number = if flavour == 6 { word(&call, 10) } else { 0 };
            let mut reply = words(&[xid, 1, 0, 0, 0, 0, status, number]);
            if procedure == MUCH {
                reply.resize(40_000, 7);
            }
            // A signed one is signed anew.
            if flavour != 6 {
                server.cache.borrow_mut().insert((peer, xid), reply.clone());
            }
            reply
        });
        if server.waits.get() {
            server.go.notified().await;
        }
        if server.resets.get() > 0 {
            server.resets.set(server.resets.get() - 1);
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
            return Ok(());
        }
        stream.write_all(&fragments(&reply, 1000)).await?;
    }
}

async fn listen(listener: TcpListener, server: Rc<Server>) {
    while let Ok((stream, peer)) = listener.accept().await {
        tokio::task::spawn_local(serve(stream, peer, Rc::clone(&server)));
    }
}

/// A proxy before a server.
struct Lab {
    server: Rc<Server>,
    proxy: Proxy,
    address: SocketAddr,
    /// Where its clients are; ports of it are nobody else's.
    clients: SocketAddr,
}

async fn lab(config: Config) -> Lab {
    let server = Rc::new(Server::default());
    let to = free().await;
    let at = to.local_addr().unwrap();
    tokio::task::spawn_local(listen(to, Rc::clone(&server)));
    let (proxy, address) = proxy_to(at, config).await;
    connected(&proxy).await;
    Lab {
        server,
        proxy,
        address,
        clients: local_address(),
    }
}

impl Lab {
    async fn connect(&self) -> TcpStream {
        self.connect_from(self.clients).await
    }

    /// A connection from the port of an earlier one, as the kernel's client makes it; port 0 is any.
    async fn connect_from(&self, own: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(own).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// Waits until so many messages have come to the server.
    async fn come(&self, count: u32) {
        until(|| self.server.came.get() == count).await;
    }

    fn runs(&self, name: u32) -> u32 {
        self.server.runs.borrow().get(&name).copied().unwrap_or(0)
    }

    /// Lets waiting answers go.
    fn go(&self) {
        self.server.waits.set(false);
        self.server.go.notify_waiters();
    }
}

fn mkdir(xid: u32, name: u32) -> Vec<u8> {
    let call = words(&[xid, 0, 2, NFS, 3, MKDIR, 0, 0, 0, 0, 4, 9, name]);
    fragments(&call, 1000)
}

async fn say(stream: &mut TcpStream, message: &[u8]) {
    stream.write_all(message).await.unwrap();
}

/// The XID, and the status.
async fn status(stream: &mut TcpStream) -> (u32, u32) {
    let reply = timeout(Duration::from_secs(20), record(stream)).await;
    let reply = reply.expect("a reply in time").unwrap();
    (word(&reply, 0), word(&reply, 6))
}

/// Ends a connection by a reset, and gives where it came from.
fn reset(stream: TcpStream) -> SocketAddr {
    let socket = socket2::SockRef::from(&stream);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
    stream.local_addr().unwrap()
}

/// Two connections, without a lane, so that calls that wait take both.
fn two(patience: u64) -> Config {
    let mut config = config(2, 64 << 20, patience);
    config.services[0].lanes = 0;
    config
}

#[test]
fn a_client_that_comes_back_gets_the_first_reply() {
    run(async {
        let lab = lab(two(20)).await;
        lab.server.waits.set(true);
        let mut first = lab.connect().await;
        say(&mut first, &mkdir(1, 70)).await;
        lab.come(1).await;
        // It has lost its patience.
        let mut second = lab.connect_from(reset(first)).await;
        say(&mut second, &mkdir(1, 70)).await;
        until(|| lab.proxy.status().counters.repeated_calls == 1).await;
        lab.go();
        assert_eq!(status(&mut second).await, (1, 0));
        assert_eq!((lab.runs(70), lab.server.came.get()), (1, 1));
        // Its next one is another.
        say(&mut second, &mkdir(2, 70)).await;
        assert_eq!(status(&mut second).await, (2, EXIST));
        let status = lab.proxy.status();
        assert_eq!(status.kept_bytes, (0, 0));
        assert_eq!(status.remembered.0, 2);
    });
}

#[test]
fn a_reply_that_nobody_took_is_given_to_who_comes_back() {
    run(async {
        let lab = lab(two(20)).await;
        lab.server.waits.set(true);
        let mut first = lab.connect().await;
        say(&mut first, &mkdir(1, 70)).await;
        lab.come(1).await;
        let own = reset(first);
        until(|| lab.proxy.status().clients.is_empty()).await;
        lab.go();
        until(|| lab.proxy.status().remembered.0 == 1).await;
        for _ in 0..3 {
            let mut second = lab.connect_from(own).await;
            say(&mut second, &mkdir(1, 70)).await;
            assert_eq!(status(&mut second).await, (1, 0));
            reset(second);
        }
        assert_eq!((lab.runs(70), lab.server.came.get()), (1, 1));
        assert_eq!(lab.proxy.status().counters.answered_again, 3);
    });
}

/// Rule 2 of replay: the connection of a READ fails while its reply is being passed on, and the client, which had
/// a MKDIR under way as well, is disconnected and repeats both.
#[test]
fn who_is_disconnected_within_a_reply_makes_no_directory_twice() {
    run(async {
        let lab = lab(two(1)).await;
        lab.server.waits.set(true);
        lab.server.stalls.set(true);
        let mut first = lab.connect().await;
        let read = |xid| {
            fragments(
                &words(&[xid, 0, 2, NFS, 3, READ, 0, 0, 0, 0, 4, 9, 0, 0, 1 << 20]),
                1000,
            )
        };
        say(&mut first, &read(2)).await;
        // The reply is being passed on as soon as it is nearly here.
        first.read_exact(&mut [0; 1000]).await.unwrap();
        say(&mut first, &mkdir(3, 70)).await;
        lab.come(2).await;
        // The server stalls, the proxy loses its patience, and the client its connection.
        let mut rest = Vec::new();
        let _ = first.read_to_end(&mut rest).await;
        assert!(rest.len() < 1 << 20);
        assert_eq!(lab.proxy.status().counters.clients_disconnected, 1);
        lab.server.stalls.set(false);
        let mut second = lab.connect_from(reset(first)).await;
        say(&mut second, &[mkdir(3, 70), read(2)].concat()).await;
        until(|| lab.proxy.status().counters.repeated_calls == 1).await;
        lab.go();
        let mut got = HashMap::new();
        for _ in 0..2 {
            let reply = record(&mut second).await.unwrap();
            got.insert(word(&reply, 0), (reply.len(), word(&reply, 6)));
        }
        assert_eq!(got[&2].0, 1 << 20);
        assert_eq!(got[&3].1, 0);
        assert_eq!(lab.runs(70), 1);
    });
}

/// Nobody hears of what the server has run, and the client leaves: the call is kept, replayed from the same port,
/// and its client has the reply when it comes back.
#[test]
fn what_is_held_waits_for_its_client() {
    run(async {
        let lab = lab(two(20)).await;
        lab.server.waits.set(true);
        lab.server.resets.set(1);
        let mut first = lab.connect().await;
        say(&mut first, &mkdir(1, 70)).await;
        lab.come(1).await;
        let own = reset(first);
        until(|| lab.proxy.status().clients.is_empty()).await;
        lab.go();
        let mut second = lab.connect_from(own).await;
        say(&mut second, &mkdir(1, 70)).await;
        assert_eq!(status(&mut second).await, (1, 0));
        assert_eq!(lab.runs(70), 1);
        assert_eq!(lab.proxy.status().counters.replayed, 1);
    });
}

/// Programs that number their calls from 1, as some do, at the same time and one after the other.
#[test]
fn two_programs_of_one_address_are_two() {
    run(async {
        let lab = lab(two(20)).await;
        let (mut one, mut two) = (lab.connect().await, lab.connect().await);
        say(&mut one, &mkdir(1, 70)).await;
        assert_eq!(status(&mut one).await, (1, 0));
        say(&mut two, &mkdir(1, 70)).await;
        assert_eq!(status(&mut two).await, (1, EXIST));
        // They end in order, and by a crash with a call under way.
        drop(one);
        lab.server.waits.set(true);
        say(&mut two, &mkdir(2, 60)).await;
        lab.come(3).await;
        reset(two);
        until(|| lab.proxy.status().clients.is_empty()).await;
        let mut three = lab.connect().await;
        say(&mut three, &mkdir(2, 60)).await;
        lab.come(4).await;
        lab.go();
        assert_eq!(status(&mut three).await, (2, EXIST));
        say(&mut three, &mkdir(1, 70)).await;
        assert_eq!(status(&mut three).await, (1, EXIST));
        assert_eq!((lab.runs(70), lab.runs(60)), (3, 2));
        assert_eq!(lab.proxy.status().counters.repeated_calls, 0);
        assert_eq!(lab.proxy.status().counters.answered_again, 0);
        // The same while both wait.
        lab.server.waits.set(true);
        let mut four = lab.connect().await;
        say(&mut three, &mkdir(5, 80)).await;
        say(&mut four, &mkdir(5, 80)).await;
        lab.come(7).await;
        lab.go();
        let mut got = [status(&mut three).await, status(&mut four).await];
        got.sort_unstable();
        assert_eq!(got, [(5, 0), (5, EXIST)]);
    });
}

#[test]
fn a_call_repeated_after_its_reply_is_answered_again() {
    run(async {
        let lab = lab(two(20)).await;
        let mut client = lab.connect().await;
        for _ in 0..3 {
            say(&mut client, &mkdir(1, 70)).await;
            assert_eq!(status(&mut client).await, (1, 0));
        }
        assert_eq!(lab.runs(70), 1);
        // The same XID, and something else.
        say(&mut client, &mkdir(1, 71)).await;
        assert_eq!(status(&mut client).await, (1, 0));
        assert_eq!(lab.runs(71), 1);
    });
}

#[test]
fn what_was_answered_with_much_is_sent_again_and_counted() {
    run(async {
        let lab = lab(two(20)).await;
        let mut client = lab.connect().await;
        let call = fragments(&words(&[1, 0, 2, PROGRAM, 1, MUCH, 0, 0, 0, 0, 5]), 1000);
        say(&mut client, &call).await;
        assert_eq!(status(&mut client).await, (1, 0));
        say(&mut client, &call).await;
        assert_eq!(status(&mut client).await, (1, EXIST));
        assert_eq!(lab.proxy.status().counters.run_again, 1);
    });
}

/// A large call that did not come whole was not run: what the client sends when it comes back is.
#[test]
fn what_never_came_whole_is_another_call() {
    run(async {
        let lab = lab(two(20)).await;
        let mut call = words(&[1, 0, 2, PROGRAM, 1, 1, 0, 0, 0, 0]);
        call.resize(200_000, 0);
        call.extend(words(&[70]));
        let call = fragments(&call, 1 << 20);
        let mut first = lab.connect().await;
        say(&mut first, &call[..150_000]).await;
        until(|| lab.proxy.status().kept_bytes.0 > 100_000).await;
        let mut second = lab.connect_from(reset(first)).await;
        say(&mut second, &call).await;
        assert_eq!(status(&mut second).await, (1, 0));
        assert_eq!(lab.runs(70), 1);
        // The whole of it is repeated while it is under way, and swallowed.
        lab.server.waits.set(true);
        call_again(&lab, &call, second).await;
    });
}

async fn call_again(lab: &Lab, call: &[u8], mut client: TcpStream) {
    let mut other = call.to_vec();
    // Another XID.
    other[7] = 2;
    let came = lab.server.came.get();
    say(&mut client, &other).await;
    lab.come(came + 1).await;
    say(&mut client, &other).await;
    say(&mut client, &mkdir(9, 99)).await;
    until(|| lab.runs(99) == 1 || lab.server.came.get() == came + 2).await;
    lab.go();
    let mut got = [status(&mut client).await, status(&mut client).await];
    got.sort_unstable();
    assert_eq!(got, [(2, EXIST), (9, 0)]);
    let more = timeout(Duration::from_millis(200), record(&mut client)).await;
    assert!(more.is_err());
    assert_eq!(lab.runs(70), 2);
}

/// A MKDIR that is signed with this sequence number.
fn signed(sequence: u32, name: u32) -> Vec<u8> {
    let call = [
        1, 0, 2, NFS, 3, MKDIR, 6, 20, 1, 0, sequence, 1, 0, 6, 4, sequence, name,
    ];
    fragments(&words(&call), 1000)
}

/// The server has to answer, and knows the call by the connection that it came by.
#[test]
fn what_is_signed_again_goes_where_it_went() {
    run(async {
        let lab = lab(two(20)).await;
        let mut first = lab.connect().await;
        say(&mut first, &signed(5, 70)).await;
        let reply = record(&mut first).await.unwrap();
        assert_eq!(word(&reply, 7), 5);
        let mut own = reset(first);
        let used = || -> Vec<u64> {
            let status = lab.proxy.status();
            status.transports.iter().map(|t| t.calls).collect()
        };
        let before = used();
        let index = before.iter().position(|calls| *calls == 1).unwrap();
        for sequence in 6..12 {
            let mut again = lab.connect_from(own).await;
            say(&mut again, &signed(sequence, 70)).await;
            let reply = record(&mut again).await.unwrap();
            // A signature of its own.
            assert_eq!(word(&reply, 7), sequence);
            own = reset(again);
        }
        assert_eq!(used()[index], 7, "{before:?} {:?}", used());
        // While it is under way, too: the server has the first one.
        lab.server.waits.set(true);
        let mut first = lab.connect_from(own).await;
        let came = lab.server.came.get();
        say(&mut first, &signed(20, 71)).await;
        lab.come(came + 1).await;
        let mut second = lab.connect_from(reset(first)).await;
        say(&mut second, &signed(21, 71)).await;
        until(|| used()[index] == 9).await;
        lab.go();
        let reply = record(&mut second).await.unwrap();
        assert_eq!(word(&reply, 0), 1);
    });
}

/// Calls without end take no more than they may.
#[test]
fn no_more_is_remembered_than_may_be() {
    run(async {
        let lab = lab(config(1, 1 << 20, 20)).await;
        let mut client = lab.connect().await;
        for batch in 0..20 {
            let calls: Vec<u8> = (0..1000)
                .flat_map(|n| mkdir(batch * 1000 + n, 1000 + n))
                .collect();
            say(&mut client, &calls).await;
            for _ in 0..1000 {
                record(&mut client).await.unwrap();
            }
        }
        let (entries, bytes) = lab.proxy.status().remembered;
        assert_eq!(entries, 16 << 10);
        assert!(bytes <= 8 << 20, "{bytes}");
        assert_eq!(lab.proxy.status().kept_bytes, (0, 0));
    });
}
