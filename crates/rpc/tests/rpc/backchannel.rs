//! Calls of a server to its clients (NFSv4.1 backchannel), through the proxy.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::common::{config, fragments, free, proxy_to, record, run, word, words};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

const NFS: u32 = 100_003;
/// The program of callbacks that clients name.
const CALLBACK: u32 = 0x4000_0000;
/// Operations.
const CREATE_SESSION: u32 = 43;
const BIND_CONN_TO_SESSION: u32 = 41;
/// Makes the server of this test call back: not an operation of NFS.
const CALL_BACK: u32 = 10_000;
/// The XID of all calls of the server.
const XID: u32 = 5;

/// A COMPOUND of one operation with one argument.
fn compound(xid: u32, operation: u32, argument: u32) -> Vec<u8> {
    let header = [xid, 0, 2, NFS, 4, 1, 0, 0, 0, 0];
    words(&[&header[..], &[0, 1, 1, operation, argument, 0, 0, 0, 0]].concat())
}

/// What the server knows.
#[derive(Default)]
struct Server {
    /// The connections that sessions are bound to.
    sessions: HashMap<u32, (SocketAddr, Rc<OwnedWriteHalf>)>,
    /// Replies to its calls: the session, and the words behind the XID.
    replies: Vec<(SocketAddr, Vec<u8>)>,
}

fn write(to: &OwnedWriteHalf, bytes: &[u8]) {
    // Small, and the peer reads.
    assert_eq!(
        to.try_write(&fragments(bytes, 1000)).unwrap(),
        bytes.len() + 4
    );
}

async fn serve(stream: TcpStream, peer: SocketAddr, server: Rc<RefCell<Server>>) -> io::Result<()> {
    let (mut reader, writer) = stream.into_split();
    let writer = Rc::new(writer);
    loop {
        let message = record(&mut reader).await?;
        if word(&message, 1) == 1 {
            server.borrow_mut().replies.push((peer, message));
            continue;
        }
        let (operation, session) = (word(&message, 13), word(&message, 14));
        let head = [
            word(&message, 0),
            1,
            0,
            0,
            0,
            0,
            0,
            0,
            1,
            operation,
            0,
            session,
            0,
            0,
            0,
        ];
        let rest = if operation == BIND_CONN_TO_SESSION {
            [3, 0]
        } else {
            [1, 3]
        };
        if matches!(operation, CREATE_SESSION | BIND_CONN_TO_SESSION) {
            let mut server = server.borrow_mut();
            server.sessions.insert(session, (peer, Rc::clone(&writer)));
        }
        write(&writer, &words(&[&head[..], &rest].concat()));
        if operation == CALL_BACK {
            let server = server.borrow();
            if let Some((_, to)) = server.sessions.get(&session) {
                let header = [XID, 0, 2, CALLBACK, 1, 1, 0, 0, 0, 0];
                let call = [0, 1, 0, 1, 11, session, 0, 0, 0, 77];
                write(to, &words(&[&header[..], &call].concat()));
            }
        }
    }
}

async fn listen(listener: TcpListener, server: Rc<RefCell<Server>>) {
    while let Ok((stream, peer)) = listener.accept().await {
        tokio::task::spawn_local(serve(stream, peer, Rc::clone(&server)));
    }
}

/// A client's connection.
struct Client(TcpStream);

impl Client {
    async fn new(address: SocketAddr) -> Client {
        Client(TcpStream::connect(address).await.unwrap())
    }

    async fn say(&mut self, message: &[u8]) {
        self.0.write_all(&fragments(message, 1000)).await.unwrap();
    }

    async fn next(&mut self) -> Vec<u8> {
        let next = timeout(Duration::from_secs(10), record(&mut self.0)).await;
        next.expect("a message in time").unwrap()
    }

    /// Makes a call, and takes the reply.
    async fn call(&mut self, xid: u32, operation: u32, session: u32) {
        self.say(&compound(xid, operation, session)).await;
        let reply = self.next().await;
        assert_eq!(
            (word(&reply, 0), word(&reply, 1), word(&reply, 9)),
            (xid, 1, operation)
        );
    }

    /// Takes a call of the server about this session, and gives its XID.
    async fn called(&mut self, session: u32) -> u32 {
        let call = self.next().await;
        assert_eq!(
            (word(&call, 1), word(&call, 3), word(&call, 5)),
            (0, CALLBACK, 1)
        );
        assert_eq!((word(&call, 15), word(&call, 19)), (session, 77));
        word(&call, 0)
    }

    async fn answer(&mut self, xid: u32, name: u32) {
        self.say(&words(&[xid, 1, 0, 0, 0, 0, name])).await;
    }
}

/// The server's log of replies, as soon as there are so many: whether each came by the connection that its
/// session is bound to is for the caller.
async fn replies(server: &Rc<RefCell<Server>>, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    for _ in 0..1000 {
        if server.borrow().replies.len() >= count {
            return std::mem::take(&mut server.borrow_mut().replies);
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("the server has no {count} replies");
}

#[test]
fn a_server_calls_the_client_that_it_means() {
    run(async {
        let server: Rc<RefCell<Server>> = Rc::default();
        let to = free().await;
        let at = to.local_addr().unwrap();
        tokio::task::spawn_local(listen(to, Rc::clone(&server)));
        // One connection, so that both clients share it.
        let (proxy, address) = proxy_to(at, config(1, 8 << 20, 10)).await;
        let (mut a, mut b) = (Client::new(address).await, Client::new(address).await);
        a.call(5, CREATE_SESSION, 1).await;
        b.call(5, CREATE_SESSION, 2).await;
        let bound = |session| server.borrow().sessions[&session].0;
        // Both are called under one XID, which is also that of their own calls.
        a.call(5, CALL_BACK, 2).await;
        b.say(&compound(5, CALL_BACK, 1)).await;
        let of_b = b.called(2).await;
        let reply = b.next().await;
        assert_eq!((word(&reply, 0), word(&reply, 1)), (5, 1));
        let of_a = a.called(1).await;
        b.answer(of_b, 222).await;
        let got = replies(&server, 1).await;
        assert_eq!(got, [(bound(2), words(&[XID, 1, 0, 0, 0, 0, 222]))]);
        a.answer(of_a, 111).await;
        let got = replies(&server, 1).await;
        assert_eq!(got, [(bound(1), words(&[XID, 1, 0, 0, 0, 0, 111]))]);
        assert_eq!(proxy.status().counters.server_calls, 2);
        // Another connection of a client binds the session.
        let mut c = Client::new(address).await;
        c.call(9, BIND_CONN_TO_SESSION, 1).await;
        c.call(10, CALL_BACK, 1).await;
        let of_c = c.called(1).await;
        c.answer(of_c, 333).await;
        assert_eq!(word(&replies(&server, 1).await[0].1, 6), 333);
        // Who leaves with a debt is answered for, and who is gone is not called.
        b.call(5, CALL_BACK, 2).await;
        b.called(2).await;
        drop(b);
        assert_eq!(word(&replies(&server, 1).await[0].1, 5), 1);
        a.call(6, CALL_BACK, 2).await;
        assert_eq!(word(&replies(&server, 1).await[0].1, 5), 1);
        assert_eq!(proxy.status().counters.server_calls_refused, 2);
        // A reply to a call that was never made.
        a.answer(of_a, 111).await;
        assert!(record(&mut a.0).await.is_err());
        assert_eq!(proxy.status().counters.bad_records, 1);
        assert_eq!(proxy.status().kept_bytes, (0, 0));
    });
}
