//! Calls whose header is signed (RPCSEC_GSS): they pass as they are, and two with one XID never share a
//! connection.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use crate::common::{config, connected, fragments, free, proxy_to, record, run, until, words};
use raddle_rpc::proxy::Proxy;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

const XID: u32 = 42;

/// A GETATTR with credentials of RPCSEC_GSS, which only their owner can tell apart.
fn signed(owner: u32) -> Vec<u8> {
    words(&[
        XID, 0, 2, 100_003, 3, 1, 6, 8, owner, 0xfeed, 6, 4, 0xbeef, owner,
    ])
}

#[derive(Default)]
struct Seen {
    calls: Vec<(SocketAddr, Vec<u8>)>,
}

/// Answers a call when there is leave to.
async fn serve(
    mut stream: TcpStream,
    peer: SocketAddr,
    (seen, leave): (Rc<RefCell<Seen>>, Rc<Semaphore>),
) -> io::Result<()> {
    loop {
        let call = record(&mut stream).await?;
        let owner = call[call.len() - 4..].to_vec();
        seen.borrow_mut().calls.push((peer, call));
        leave.acquire().await.unwrap().forget();
        let mut reply = words(&[XID, 1, 0, 0, 0, 0]);
        reply.extend(owner);
        stream.write_all(&fragments(&reply, 1000)).await?;
    }
}

async fn listen(listener: TcpListener, seen: Rc<RefCell<Seen>>, leave: Rc<Semaphore>) {
    while let Ok((stream, peer)) = listener.accept().await {
        let with = (Rc::clone(&seen), Rc::clone(&leave));
        tokio::task::spawn_local(serve(stream, peer, with));
    }
}

/// A server that waits for leave, and a proxy with two connections and a lane before it.
async fn lab() -> (Proxy, SocketAddr, Rc<RefCell<Seen>>, Rc<Semaphore>) {
    let seen: Rc<RefCell<Seen>> = Rc::default();
    let leave = Rc::new(Semaphore::new(0));
    let to = free().await;
    let at = to.local_addr().unwrap();
    tokio::task::spawn_local(listen(to, Rc::clone(&seen), Rc::clone(&leave)));
    let (proxy, address) = proxy_to(at, config(2, 8 << 20, 10)).await;
    connected(&proxy).await;
    (proxy, address, seen, leave)
}

/// A client that loses its patience signs its call anew: the server knows it by the connection.
#[test]
fn what_is_signed_again_takes_the_same_connection() {
    run(async {
        // Two connections and a lane.
        let (proxy, address, seen, leave) = lab().await;
        let mut client = TcpStream::connect(address).await.unwrap();
        for (calls, signature) in [(1, 7), (2, 8)] {
            let call = fragments(&signed(signature), 1000);
            client.write_all(&call).await.unwrap();
            until(|| proxy.status().clients.iter().any(|of| of.calls == calls)).await;
            until(|| seen.borrow().calls.len() == 1).await;
        }
        // The first is being run, by the only connection that knows of it.
        assert_eq!(seen.borrow().calls.len(), 1);
        leave.add_permits(2);
        let reply = record(&mut client).await.unwrap();
        assert_eq!(reply[24..], 7_u32.to_be_bytes());
        until(|| seen.borrow().calls.len() == 2).await;
        let calls = &seen.borrow().calls;
        assert_eq!(calls[0].0, calls[1].0);
        let status = proxy.status();
        let waiting = status.transports.iter().map(|t| t.outstanding_bytes);
        assert_eq!(waiting.sum::<u64>(), 0);
    });
}

#[test]
fn one_xid_is_never_twice_on_a_connection() {
    run(async {
        // Two connections and a lane.
        let (proxy, address, seen, leave) = lab().await;
        let mut clients = Vec::new();
        for owner in 0..4 {
            let mut client = TcpStream::connect(address).await.unwrap();
            client
                .write_all(&fragments(&signed(owner), 1000))
                .await
                .unwrap();
            clients.push(client);
        }
        until(|| seen.borrow().calls.len() == 3 && proxy.status().waiting == 1).await;
        // A call behind it passes, which no other does while the proxy could send this one.
        let mut other = TcpStream::connect(address).await.unwrap();
        let marker = words(&[9, 0, 2, 100_000, 2, 0, 0, 0, 0, 0]);
        other.write_all(&fragments(&marker, 1000)).await.unwrap();
        record(&mut other).await.unwrap();
        {
            let calls = &seen.borrow().calls;
            let peers: HashSet<SocketAddr> = calls.iter().map(|(peer, _)| *peer).collect();
            assert_eq!((calls.len(), peers.len()), (3, 3));
        }
        leave.add_permits(4);
        for (owner, client) in clients.iter_mut().enumerate() {
            let reply = record(client).await.unwrap();
            assert_eq!(reply[..4], XID.to_be_bytes());
            assert_eq!(reply[24..], (owner as u32).to_be_bytes());
        }
        // Not a byte was touched.
        let mut came: Vec<_> = seen
            .borrow()
            .calls
            .iter()
            .map(|(_, call)| call.clone())
            .collect();
        came.sort();
        assert_eq!(came, (0..4).map(signed).collect::<Vec<_>>());
    });
}
