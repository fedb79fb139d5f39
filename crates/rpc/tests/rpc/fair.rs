//! Clients that are slow, greedy or stubborn, and others beside them that are to be served.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::common::{
    config, connected, fragments, free, proxy_to, record, run, until, word, words,
};
use raddle_rpc::proxy::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

const NFS: u32 = 100_003;
const READ: u32 = 6;

/// Answers with so many bytes after a while; signed calls never.
async fn serve(mut stream: TcpStream, seen: Rc<Cell<u32>>, bytes: usize) -> io::Result<()> {
    loop {
        let call = record(&mut stream).await?;
        seen.set(seen.get() + u32::from(word(&call, 5) != 0));
        if word(&call, 6) == 6 {
            continue;
        }
        sleep(Duration::from_millis(1)).await;
        let mut reply = words(&[word(&call, 0), 1, 0, 0, 0, 0]);
        reply.resize(24 + bytes, 0);
        stream.write_all(&fragments(&reply, 1 << 20)).await?;
    }
}

/// A proxy before a server that gives so many bytes, and counts calls.
async fn lab(
    config: Config,
    bytes: usize,
) -> (
    raddle_rpc::proxy::Proxy,
    std::net::SocketAddr,
    Rc<Cell<u32>>,
) {
    let seen: Rc<Cell<u32>> = Rc::default();
    let listener = free().await;
    let at = listener.local_addr().unwrap();
    let counts = Rc::clone(&seen);
    tokio::task::spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::task::spawn_local(serve(stream, Rc::clone(&counts), bytes));
        }
    });
    let (proxy, address) = proxy_to(at, config).await;
    connected(&proxy).await;
    (proxy, address, seen)
}

/// A READ of 1 MiB.
fn read(xid: u32) -> Vec<u8> {
    let call = [xid, 0, 2, NFS, 3, READ, 0, 0, 0, 0, 4, 9, 0, 0, 1 << 20];
    fragments(&words(&call), 1000)
}

async fn answered(stream: &mut TcpStream) -> u32 {
    let reply = timeout(Duration::from_secs(20), record(stream)).await;
    word(&reply.expect("a reply in time").unwrap(), 0)
}

#[test]
fn a_call_that_trickles_in_is_given_up() {
    run(async {
        let (proxy, address, _) = lab(config(1, 8 << 20, 1), 100).await;
        let mut call = words(&[1, 0, 2, NFS, 3, 7, 0, 0, 0, 0]);
        call.resize(1 << 20, 0);
        let call = fragments(&call, 2 << 20);
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(&call[..100_000]).await.unwrap();
        let begun = Instant::now();
        for byte in &call[100_000..] {
            if slow.write_all(&[*byte]).await.is_err() {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert_eq!(
            proxy.status().disconnected[0].why,
            "it stalled within a record"
        );
        let mut other = TcpStream::connect(address).await.unwrap();
        other.write_all(&read(1)).await.unwrap();
        assert_eq!(answered(&mut other).await, 1);
    });
}

/// Many small ones that come as slowly are another matter.
#[test]
fn records_that_end_are_not_too_slow() {
    run(async {
        let (_proxy, address, _) = lab(config(1, 8 << 20, 1), 100).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        let calls: Vec<u8> = (0..60).flat_map(read).collect();
        // Each piece ends within a record.
        for piece in calls.chunks(37) {
            client.write_all(piece).await.unwrap();
            sleep(Duration::from_millis(25)).await;
        }
        for _ in 0..60 {
            answered(&mut client).await;
        }
    });
}

#[test]
fn a_client_that_reads_slowly_is_let_go() {
    run(async {
        let (proxy, address, _) = lab(config(2, 4 << 20, 5), 1 << 20).await;
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut slow = socket.connect(address).await.unwrap();
        for xid in 0..20 {
            slow.write_all(&read(xid)).await.unwrap();
        }
        let mut other = TcpStream::connect(address).await.unwrap();
        let slowly = async {
            let mut some = [0; 2000];
            while slow.read(&mut some).await.is_ok_and(|count| count > 0) {
                sleep(Duration::from_millis(12)).await;
            }
        };
        timeout(Duration::from_secs(60), slowly).await.unwrap();
        assert_eq!(proxy.status().disconnected[0].why, "it takes no replies");
        other.write_all(&read(1)).await.unwrap();
        assert_eq!(answered(&mut other).await, 1);
    });
}

#[test]
fn one_with_many_calls_leaves_others_their_turn() {
    run(async {
        let (proxy, address, seen) = lab(config(2, 64 << 20, 20), 100).await;
        let mut greedy = TcpStream::connect(address).await.unwrap();
        let calls: Vec<u8> = (0..3000).flat_map(read).collect();
        greedy.write_all(&calls).await.unwrap();
        until(|| proxy.status().waiting > 2000).await;
        let mut other = TcpStream::connect(address).await.unwrap();
        let before = seen.get();
        other.write_all(&read(7)).await.unwrap();
        assert_eq!(answered(&mut other).await, 7);
        assert!(seen.get() - before < 300, "{before} {}", seen.get());
    });
}

/// Signed calls keep their XID: those that cannot go, as it is in use everywhere, wait alone.
#[test]
fn signed_calls_that_cannot_go_hold_nobody_up() {
    run(async {
        let (proxy, address, seen) = lab(config(2, 64 << 20, 20), 100).await;
        let signed = |n| words(&[42, 0, 2, NFS, 3, READ, 6, 20, 1, 0, 1, 1, 0, 6, 4, n, 4, 9]);
        let mut stubborn = Vec::new();
        for n in 0..8 {
            let mut client = TcpStream::connect(address).await.unwrap();
            client
                .write_all(&fragments(&signed(n), 1000))
                .await
                .unwrap();
            stubborn.push(client);
        }
        until(|| seen.get() >= 2 && proxy.status().waiting >= 5).await;
        let mut other = TcpStream::connect(address).await.unwrap();
        for xid in 0..50 {
            other.write_all(&read(xid)).await.unwrap();
        }
        for _ in 0..50 {
            answered(&mut other).await;
        }
        assert!(proxy.status().waiting >= 5);
    });
}
