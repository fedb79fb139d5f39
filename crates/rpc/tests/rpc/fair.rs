//! Clients that are slow, greedy or stubborn, and others beside them that are to be served.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

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
        // All of it would take half a day.
        for byte in &call[100_000..] {
            if slow.write_all(&[*byte]).await.is_err() {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
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
        let (proxy, address, seen) = lab(config(2, 16 << 30, 20), 100).await;
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

/// READs one after the other, each answered in time.
async fn reads(address: std::net::SocketAddr, count: u32) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    for xid in 0..count {
        stream.write_all(&read(xid)).await.unwrap();
        assert_eq!(answered(&mut stream).await, xid);
    }
}

/// It used to fill the memory for all, until it was disconnected after 30 s.
#[test]
fn one_that_takes_no_replies_holds_nobody_up() {
    run(async {
        const MEMORY: usize = 16 << 20;
        let (proxy, address, seen) = lab(config(2, MEMORY, 60), 1 << 20).await;
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let stubborn = socket.connect(address).await.unwrap();
        let (_reader, mut writer) = stubborn.into_split();
        let served = seen.get();
        let asking = tokio::task::spawn_local(async move {
            for xid in 0.. {
                if writer.write_all(&read(xid)).await.is_err() {
                    break;
                }
            }
        });
        // It has what it gets: all of its calls that were taken are answered.
        until(|| {
            let status = proxy.status();
            let most = status.clients.iter().map(|c| c.outstanding_calls).max();
            seen.get() > served && most == Some(0) && status.kept_bytes.1 > MEMORY / 4
        })
        .await;
        let kept = proxy.status().kept_bytes.1;
        assert!(kept < MEMORY / 2, "{kept}");
        // Without shares one of them would wait for a minute, and each is waited for less.
        reads(address, 300).await;
        assert_eq!(proxy.status().counters.clients_disconnected, 0);
        asking.abort();
    });
}

/// Asks for much, and takes none of it.
async fn stubborn(address: std::net::SocketAddr, calls: Vec<u8>) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    stream.write_all(&calls).await.unwrap();
    stream
}

/// A READLINK, whose reply nobody expects to be of 1 MiB.
fn unforeseen(xid: u32) -> Vec<u8> {
    fragments(&words(&[xid, 0, 2, NFS, 3, 5, 0, 0, 0, 0, 4, 9]), 1000)
}

/// It used to hold up all until it was disconnected after 30 s.
#[test]
fn one_that_takes_none_of_what_nobody_could_foresee_is_let_go() {
    run(async {
        let (proxy, address, _) = lab(config(2, 16 << 20, 100), 1 << 20).await;
        let calls = (0..100).flat_map(unforeseen).collect();
        let _stubborn = stubborn(address, calls).await;
        until(|| {
            let status = proxy.status();
            status.kept_bytes.1 >= 16 << 20 || status.counters.clients_disconnected == 1
        })
        .await;
        reads(address, 20).await;
        let status = proxy.status();
        assert_eq!(status.counters.clients_disconnected, 1);
        assert_eq!(
            status.disconnected[0].why,
            "it takes no replies, and they fill the memory"
        );
        until(|| proxy.status().kept_bytes == (0, 0)).await;
    });
}

/// Nobody is disconnected for having others do the same: who takes what comes goes on.
#[test]
fn who_takes_what_nobody_could_foresee_goes_on() {
    run(async {
        let (proxy, address, _) = lab(config(2, 4 << 20, 100), 1 << 20).await;
        let mut all = Vec::new();
        for _ in 0..3 {
            let mut client = TcpStream::connect(address).await.unwrap();
            let calls: Vec<u8> = (0..60).flat_map(unforeseen).collect();
            client.write_all(&calls).await.unwrap();
            all.push(tokio::task::spawn_local(async move {
                for _ in 0..60 {
                    answered(&mut client).await;
                }
            }));
        }
        for client in all {
            client.await.unwrap();
        }
        assert_eq!(proxy.status().counters.clients_disconnected, 0);
    });
}

/// Of a program that nobody knows, no more is asked for than there is room for, once its replies are known to be large.
#[test]
fn what_was_large_of_late_has_to_find_room() {
    run(async {
        const MEMORY: usize = 64 << 20;
        let (proxy, address, seen) = lab(config(2, MEMORY, 100), 1 << 20).await;
        let unknown = |xid| fragments(&words(&[xid, 0, 2, 400_000, 1, 5, 0, 0, 0, 0]), 1000);
        let mut first = TcpStream::connect(address).await.unwrap();
        first.write_all(&unknown(1)).await.unwrap();
        assert_eq!(answered(&mut first).await, 1);
        let before = seen.get();
        let calls = (0..300).flat_map(unknown).collect();
        let _stubborn = stubborn(address, calls).await;
        until(|| seen.get() > before && proxy.status().kept_bytes.1 > MEMORY / 5).await;
        reads(address, 50).await;
        let kept = proxy.status().kept_bytes.1;
        assert!(kept < MEMORY / 2, "{kept}");
        assert_eq!(proxy.status().counters.clients_disconnected, 0);
    });
}

/// Four such calls used to take all that two connections may have outstanding.
#[test]
fn who_asks_for_gigabytes_is_taken_for_what_it_gets() {
    run(async {
        let (proxy, address, seen) = lab(config(2, 64 << 20, 100), 1000).await;
        let mut greedy = TcpStream::connect(address).await.unwrap();
        // The server of these tests answers no signed calls.
        let signed = |xid| {
            let credentials = [6, 20, 1, 0, 1, 1, 0, 0, 0];
            let read = [4, 9, 0, 0, u32::MAX];
            let call = [&[xid, 0, 2, NFS, 3, READ], &credentials[..], &read].concat();
            fragments(&words(&call), 1000)
        };
        greedy
            .write_all(&(0..4).flat_map(signed).collect::<Vec<u8>>())
            .await
            .unwrap();
        until(|| seen.get() >= 2).await;
        reads(address, 10).await;
        let waits = proxy
            .status()
            .transports
            .iter()
            .any(|t| t.outstanding_calls > 0);
        assert!(waits, "it asks for gigabytes no more");
    });
}

#[test]
fn what_a_client_breaks_off_never_reaches_a_server() {
    run(async {
        let (proxy, address, seen) = lab(config(2, 8 << 20, 20), 100).await;
        let mut call = words(&[1, 0, 2, NFS, 3, 7, 0, 0, 0, 0]);
        call.resize(1 << 20, 0);
        let call = fragments(&call, 2 << 20);
        for _ in 0..20 {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(&call[..600_000]).await.unwrap();
            drop(client);
        }
        until(|| proxy.status().counters.clients_disconnected == 20).await;
        assert_eq!(
            proxy.status().disconnected[0].why,
            "it ended within a record"
        );
        reads(address, 50).await;
        assert_eq!(seen.get(), 50);
        let status = proxy.status();
        assert_eq!(status.kept_bytes, (0, 0));
        assert!(
            status.transports.iter().all(|t| t.connections == 1),
            "{status:?}"
        );
    });
}

/// All clients of these tests are of one user.
#[test]
fn idle_connections_make_room() {
    run(async {
        let (proxy, address, _) = lab(config(2, 8 << 20, 20), 100).await;
        let mut idle = Vec::new();
        for _ in 0..100 {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let mut last = idle.pop().unwrap();
        last.write_all(&read(1)).await.unwrap();
        assert_eq!(answered(&mut last).await, 1);
        let status = proxy.status();
        assert_eq!(
            (status.clients.len(), status.counters.clients_refused),
            (32, 0)
        );
        // The first one has been idle for longest.
        let closed = timeout(Duration::from_secs(20), idle[0].read(&mut [0])).await;
        assert!(!matches!(closed.unwrap(), Ok(1..)));
    });
}
