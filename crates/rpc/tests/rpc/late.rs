//! A server that takes its time, or takes nothing any more.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::common::{
    config, connected, fragments, local_address, proxy_to, record, run, until, word, words,
};
use raddle_rpc::proxy::{Config, Service};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

/// One connection, without a lane.
fn single() -> Config {
    let several = config(1, 64 << 20, 60);
    Config {
        services: vec![Service {
            programs: Vec::new(),
            connections: 1,
            lanes: 0,
        }],
        ..several
    }
}

/// A listener whose connections take little that is not read.
fn narrow() -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(512 << 10).unwrap();
    socket.bind(local_address()).unwrap();
    socket.listen(16).unwrap()
}

/// A call without credentials.
fn call(xid: u32, (program, procedure): (u32, u32), filling: usize) -> Vec<u8> {
    let mut bytes = words(&[xid, 0, 2, program, 3, procedure, 0, 0, 0, 0]);
    bytes.extend(vec![0; filling]);
    bytes
}

/// An empty reply to a call.
async fn answer(stream: &mut TcpStream, call: &[u8]) {
    let reply = words(&[word(call, 0), 1, 0, 0, 0, 0]);
    stream.write_all(&fragments(&reply, 1000)).await.unwrap();
}

/// A program that nobody knows.
const PROGRAM: u32 = 400_000;
const NFS: u32 = 100_003;

/// How long it takes until a server that closes each connection at once has seen five, where calls are written or not.
async fn closed(calls: usize) -> Duration {
    let listener = narrow();
    let (_proxy, address) = proxy_to(listener.local_addr().unwrap(), single()).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    for xid in 0..calls as u32 {
        let counts = fragments(&call(xid, (PROGRAM, 1), 0), 1000);
        client.write_all(&counts).await.unwrap();
    }
    let accept = async {
        drop(listener.accept().await.unwrap());
        let first = Instant::now();
        for _ in 1..5 {
            drop(listener.accept().await.unwrap());
        }
        first.elapsed()
    };
    timeout(Duration::from_secs(60), accept).await.unwrap()
}

#[test]
fn a_server_that_closes_what_it_accepts_is_asked_ever_more_rarely() {
    run(async {
        for calls in [0, 1, 100] {
            // At 0, 0.1, 0.3, 0.7 and 1.5 s, or later on a busy machine.
            let took = closed(calls).await;
            assert!(
                took > Duration::from_millis(600),
                "{took:?} with {calls} calls"
            );
        }
    });
}

#[test]
fn what_is_answered_is_not_repeated() {
    run(async {
        let listener = narrow();
        let (_proxy, address) = proxy_to(listener.local_addr().unwrap(), single()).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        let counts = fragments(&call(1, (PROGRAM, 1), 0), 1000);
        client.write_all(&counts).await.unwrap();
        // It has come, and is not answered: it is replayed from the same port.
        let (mut first, peer) = listener.accept().await.unwrap();
        record(&mut first).await.unwrap();
        socket2::SockRef::from(&first)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(first);
        let (mut second, again) = listener.accept().await.unwrap();
        assert_eq!(peer, again);
        let replayed = record(&mut second).await.unwrap();
        // WRITEs clog the connection, so that the next repetition has to wait.
        for xid in 2..5 {
            let write = fragments(&call(xid, (NFS, 7), 3 << 20), 1 << 20);
            client.write_all(&write).await.unwrap();
        }
        sleep(Duration::from_millis(5500)).await;
        answer(&mut second, &replayed).await;
        assert_eq!(word(&record(&mut client).await.unwrap(), 0), 1);
        let last = fragments(&call(5, (NFS, 1), 0), 1000);
        client.write_all(&last).await.unwrap();
        let mut done = 0;
        while done < 4 {
            let next = record(&mut second).await.unwrap();
            assert_eq!(word(&next, 3), NFS, "repeated after its reply");
            answer(&mut second, &next).await;
            // Others are questions whether it is there.
            if word(&next, 5) != 0 {
                record(&mut client).await.unwrap();
                done += 1;
            }
        }
    });
}

/// How much a peer takes before it stops, of this again and again.
async fn taken(stream: &TcpStream, message: &[u8], most: usize) -> usize {
    let together = message.repeat(1000);
    let mut count = 0;
    let quiet = Duration::from_secs(1);
    while count < most && timeout(quiet, stream.writable()).await.is_ok() {
        match stream.try_write(&together[count % message.len()..]) {
            Ok(written) => count += written,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    count
}

#[test]
fn answers_of_the_proxy_itself_are_bounded() {
    run(async {
        let listener = narrow();
        let at = listener.local_addr().unwrap();
        let (proxy, address) = proxy_to(at, config(1, 1 << 20, 60)).await;
        let client = TcpStream::connect(address).await.unwrap();
        // Questions to the portmapper, and no answer is read.
        let ask = fragments(&call(1, (100_000, 0), 0), 1000);
        let count = taken(&client, &ask, 60 << 20).await;
        assert!(count < 60 << 20);
        let (_, replies) = proxy.status().kept_bytes;
        assert!(replies < 4 << 20, "{replies} bytes are kept");
    });
}

#[test]
fn a_server_that_calls_and_reads_nothing_is_left() {
    run(async {
        let listener = narrow();
        let (proxy, _) = proxy_to(listener.local_addr().unwrap(), single()).await;
        let (server, _) = listener.accept().await.unwrap();
        let ask = fragments(&call(1, (0x4000_0000, 0), 0), 1000);
        taken(&server, &ask, 60 << 20).await;
        listener.accept().await.unwrap();
        until(|| proxy.status().transports[0].connections >= 2).await;
    });
}

#[test]
fn a_call_that_is_still_coming_loses_nothing_with_a_connection() {
    run(async {
        let listener = narrow();
        let (proxy, address) = proxy_to(listener.local_addr().unwrap(), single()).await;
        let (first, _) = listener.accept().await.unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        let write = fragments(&call(1, (NFS, 7), 1 << 20), 100_000);
        let (some, rest) = write.split_at(write.len() / 2);
        client.write_all(some).await.unwrap();
        until(|| proxy.status().kept_bytes.0 > 400_000).await;
        socket2::SockRef::from(&first)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(first);
        let (mut second, _) = listener.accept().await.unwrap();
        until(|| proxy.status().transports[0].connections == 2).await;
        client.write_all(rest).await.unwrap();
        let came = record(&mut second).await.unwrap();
        assert_eq!(came[4..], call(1, (NFS, 7), 1 << 20)[4..]);
        answer(&mut second, &came).await;
        assert_eq!(word(&record(&mut client).await.unwrap(), 0), 1);
        assert_eq!(proxy.status().counters.clients_disconnected, 0);
    });
}

#[test]
fn a_server_that_stalls_within_a_reply_is_left() {
    run(async {
        let listener = narrow();
        let config = Config {
            patience: Duration::from_secs(1),
            ..single()
        };
        let (_proxy, address) = proxy_to(listener.local_addr().unwrap(), config).await;
        let (mut first, _) = listener.accept().await.unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        let ask = fragments(&call(1, (NFS, 1), 0), 1000);
        client.write_all(&ask).await.unwrap();
        let came = record(&mut first).await.unwrap();
        // Half of its header.
        first.write_all(&[0x80, 0, 0, 24, came[0]]).await.unwrap();
        let (mut second, _) = listener.accept().await.unwrap();
        let again = record(&mut second).await.unwrap();
        answer(&mut second, &again).await;
        assert_eq!(word(&record(&mut client).await.unwrap(), 0), 1);
    });
}

/// One file of one word, behind a disk that is slow once: what is written then is there 700 ms later.
#[derive(Default)]
struct Disk {
    file: Cell<u32>,
    slow: Cell<bool>,
    /// Whether it has done what it was slow with.
    late: Cell<bool>,
    /// Calls by peer and XID, and whether they have been run.
    cache: RefCell<HashMap<(SocketAddr, u32), bool>>,
}

impl Disk {
    /// Takes the WRITEs of a connection, and resets it behind the one that the disk is slow for.
    async fn serve(self: Rc<Self>, mut stream: TcpStream, peer: SocketAddr) {
        while let Ok(call) = record(&mut stream).await {
            let key = (peer, word(&call, 0));
            let known = self.cache.borrow().get(&key).copied();
            match known {
                // It is being run.
                Some(false) => continue,
                None if word(&call, 5) == 7 => {
                    self.cache.borrow_mut().insert(key, false);
                    let (disk, value) = (Rc::clone(&self), word(&call, 10));
                    let run = move || {
                        disk.file.set(value);
                        disk.cache.borrow_mut().insert(key, true);
                    };
                    if self.slow.take() {
                        let disk = Rc::clone(&self);
                        let late = async move {
                            sleep(Duration::from_millis(700)).await;
                            run();
                            disk.late.set(true);
                        };
                        tokio::task::spawn_local(late);
                        let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                        return;
                    }
                    run();
                }
                _ => {}
            }
            answer(&mut stream, &call).await;
        }
    }
}

/// Written, cut off, written again, acknowledged, overwritten: the first copy does not come last.
#[test]
fn a_write_that_is_run_late_undoes_nothing() {
    run(async {
        let listener = narrow();
        let several = config(2, 64 << 20, 60);
        let (proxy, address) = proxy_to(listener.local_addr().unwrap(), several).await;
        let disk = Rc::new(Disk::default());
        disk.slow.set(true);
        let server = Rc::clone(&disk);
        tokio::task::spawn_local(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                tokio::task::spawn_local(Rc::clone(&server).serve(stream, peer));
            }
        });
        connected(&proxy).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        for value in 1..3 {
            let mut write = words(&[value, 0, 2, NFS, 3, 7, 0, 0, 0, 0, value]);
            write.resize(100_000, 0);
            client.write_all(&fragments(&write, 1 << 20)).await.unwrap();
            assert_eq!(word(&record(&mut client).await.unwrap(), 0), value);
        }
        until(|| disk.late.get()).await;
        assert_eq!(disk.file.get(), 2);
        let counters = proxy.status().counters;
        assert_eq!((counters.resent, counters.replayed > 0), (0, true));
    });
}
