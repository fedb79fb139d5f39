//! The proxy's end, and who may use it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::common::{
    config, connected, direct, fragments, free, local_address, proxy_to, record, run, until, word,
    words,
};
use raddle_rpc::proxy::{Config, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::sleep;

const MKDIR: u32 = 9;

/// How often each directory was made.
type Runs = Rc<RefCell<HashMap<u32, u32>>>;

/// Makes directories, each after some milliseconds, and remembers what it has answered a connection.
async fn serve(mut stream: TcpStream, runs: Runs) -> io::Result<()> {
    loop {
        let call = record(&mut stream).await?;
        let mut status = 0;
        if word(&call, 5) == MKDIR {
            let name = word(&call, 10);
            sleep(Duration::from_millis(u64::from(name % 7))).await;
            let mut runs = runs.borrow_mut();
            let count = runs.entry(name).or_default();
            *count += 1;
            status = if *count == 1 { 0 } else { 17 };
        }
        let reply = words(&[word(&call, 0), 1, 0, 0, 0, 0, status]);
        stream.write_all(&fragments(&reply, 1000)).await?;
    }
}

/// Connects from this port until somebody takes it.
async fn connect(from: SocketAddr, to: SocketAddr) -> TcpStream {
    loop {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.set_zero_linger().unwrap();
        socket.bind(from).unwrap();
        if let Ok(stream) = socket.connect(to).await {
            return stream;
        }
        sleep(Duration::from_millis(2)).await;
    }
}

/// A directory.
async fn make(stream: &mut TcpStream, xid: u32) -> io::Result<u32> {
    let call = words(&[xid, 0, 2, 100_003, 3, MKDIR, 0, 0, 0, 0, xid]);
    stream.write_all(&fragments(&call, 1000)).await?;
    let reply = record(stream).await?;
    assert_eq!(word(&reply, 0), xid);
    Ok(word(&reply, 6))
}

/// Makes directories until it is told to end, as the kernel's client: what has no reply is repeated from the same
/// port.
async fn client(number: u32, to: SocketAddr, ends: Rc<Cell<bool>>) -> u32 {
    let from = free().await.local_addr().unwrap();
    let mut stream = connect(from, to).await;
    for n in 0.. {
        if ends.get() {
            return n;
        }
        let xid = number << 20 | n;
        loop {
            match make(&mut stream, xid).await {
                Ok(status) => {
                    assert_eq!(status, 0, "{xid} was made twice");
                    break;
                }
                Err(_) => {
                    drop(stream);
                    stream = connect(from, to).await;
                }
            }
        }
    }
    0
}

#[test]
fn restarts_under_load_run_no_call_twice() {
    run(async {
        let (server, runs) = (free().await, Runs::default());
        let at = server.local_addr().unwrap();
        let counted = Rc::clone(&runs);
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = server.accept().await {
                tokio::task::spawn_local(serve(stream, Rc::clone(&counted)));
            }
        });
        let own = free().await.local_addr().unwrap();
        let ends = Rc::new(Cell::new(false));
        let clients: Vec<_> = (0..16)
            .map(|n| tokio::task::spawn_local(client(n, own, Rc::clone(&ends))))
            .collect();
        for restart in 0..=20 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_reuseaddr(true).unwrap();
            socket.bind(own).unwrap();
            let listener = socket.listen(64).unwrap();
            let to = Rc::new(direct(at));
            let proxy = Proxy::start(config(4, 64 << 20, 20), to, restart * 1000);
            let serving = proxy.clone();
            let serving = tokio::task::spawn_local(async move { serving.serve(listener).await });
            let before = runs.borrow().len();
            until(|| runs.borrow().len() >= before + 200).await;
            if restart == 20 {
                ends.set(true);
                break;
            }
            serving.abort();
            proxy.drain();
            until(|| proxy.is_drained()).await;
            assert_eq!(proxy.status().counters.clients_disconnected, 0);
            proxy.stop();
        }
        let mut made = 0;
        for client in clients {
            made += client.await.unwrap();
        }
        assert_eq!(runs.borrow().len() as u32, made);
        assert!(runs.borrow().values().all(|times| *times == 1));
    });
}

/// Others could say that they are anybody, to a server that believes privileged ports.
#[test]
fn clients_have_to_come_from_a_port_below() {
    run(async {
        let server = free().await;
        let mut own = [local_address(); 2];
        own[0].set_port(3000);
        own[1].set_port(3001);
        let config = Config {
            below: Some(own[1].port()),
            ..config(1, 1 << 20, 20)
        };
        let at = server.local_addr().unwrap();
        tokio::task::spawn_local(answer(server));
        let (proxy, to) = proxy_to(at, config).await;
        connected(&proxy).await;
        let mut refused = connect(own[1], to).await;
        assert!(matches!(refused.read(&mut [0; 4]).await, Ok(0) | Err(_)));
        let mut taken = connect(own[0], to).await;
        assert_eq!(make(&mut taken, 5).await.unwrap(), 0);
        let status = proxy.status();
        assert_eq!(status.counters.clients_refused, 1);
        assert_eq!(status.clients.len(), 1);
    });
}

async fn answer(server: TcpListener) {
    while let Ok((stream, _)) = server.accept().await {
        tokio::task::spawn_local(serve(stream, Runs::default()));
    }
}

/// It was waited for, until it was called dead after 30 s; and its call had reached no server.
#[test]
fn nobody_waits_for_a_record_that_is_to_come() {
    run(async {
        let server = free().await;
        let at = server.local_addr().unwrap();
        tokio::task::spawn_local(answer(server));
        let (proxy, to) = proxy_to(at, config(1, 64 << 20, 1000)).await;
        connected(&proxy).await;
        let mut slow = TcpStream::connect(to).await.unwrap();
        let mut half = TcpStream::connect(to).await.unwrap();
        // One within the head, one within what is behind it.
        let write = words(&[1, 0, 2, 100_003, 3, 7, 0, 0, 0, 0]);
        let call = fragments(&[write, vec![0; 1 << 20]].concat(), 2 << 20);
        slow.write_all(&call[..20]).await.unwrap();
        half.write_all(&call[..600_000]).await.unwrap();
        until(|| proxy.status().kept_bytes.0 > 500_000).await;
        proxy.drain();
        let begun = Instant::now();
        until(|| proxy.is_drained()).await;
        assert!(begun.elapsed() < Duration::from_secs(60));
        for stream in [&mut slow, &mut half] {
            assert!(matches!(stream.read(&mut [0; 4]).await, Ok(0) | Err(_)));
        }
        let status = proxy.status();
        assert_eq!(status.kept_bytes, (0, 0));
        assert_eq!(status.counters.clients_disconnected, 0);
    });
}
