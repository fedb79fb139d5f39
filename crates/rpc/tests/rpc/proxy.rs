//! The proxy between clients and a server of these tests, which checks and logs every call.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::common::{
    config, fragments, free, proxy_to, record, replies, run, run_for, until, word, words,
};
use raddle_rpc::proxy::Proxy;
use raddle_rpc::record::mark;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

/// A program that nobody knows, so that its calls are never repeated by guess.
const PROGRAM: u32 = 400_000;
const NFS: u32 = 100_003;
/// Replies that the server remembers.
const REMEMBERED: usize = 5000;
/// Clients, server and proxy share a thread, which is busy with something for a second at times.
const PATIENCE: u64 = 60;

/// A call's bytes: its body is a length for the reply, an identity, and filling.
fn call(
    xid: u32,
    (program, procedure): (u32, u32),
    id: u32,
    reply: u32,
    filling: usize,
) -> Vec<u8> {
    let mut bytes = words(&[xid, 0, 2, program, 3, procedure, 0, 0, 0, 0, id, reply]);
    bytes.extend((0..filling).map(|i| (i as u32 ^ id) as u8));
    bytes
}

/// What a server answers to a call, if that is whole.
fn answer(call: &[u8]) -> Option<(u32, Vec<u8>)> {
    let word = |i: usize| {
        Some(u32::from_be_bytes(
            call.get(4 * i..4 * i + 4)?.try_into().ok()?,
        ))
    };
    let (xid, id, length) = (word(0)?, word(10)?, word(11)?);
    let whole = call[48..]
        .iter()
        .enumerate()
        .all(|(i, byte)| *byte == (i as u32 ^ id) as u8);
    assert!(whole, "call {id} has come changed");
    let mut bytes = words(&[xid, 1, 0, 0, 0, 0, id]);
    bytes.extend((0..length).map(|i| (i.wrapping_mul(3) ^ id) as u8));
    Some((id, bytes))
}

/// What the server has seen, and how it behaves.
#[derive(Default)]
struct Log {
    /// How often each call was run, by identity.
    runs: HashMap<u32, u32>,
    /// Answers that it remembers, by peer and XID, as servers do.
    cache: HashMap<(SocketAddr, u32), Vec<u8>>,
    /// In which order, so that it forgets the oldest.
    order: VecDeque<(SocketAddr, u32)>,
    xids: HashMap<SocketAddr, HashSet<u32>>,
    /// Connections that it resets after so many calls, answered or not.
    reset_after: Option<u32>,
    calls: u32,
}

async fn server(listener: TcpListener, log: Rc<RefCell<Log>>) {
    while let Ok((stream, peer)) = listener.accept().await {
        tokio::task::spawn_local(answers(stream, peer, Rc::clone(&log)));
    }
}

async fn answers(mut stream: TcpStream, peer: SocketAddr, log: Rc<RefCell<Log>>) -> io::Result<()> {
    let mut resets = 0;
    loop {
        let call = record(&mut stream).await?;
        let Some((id, bytes)) = answer(&call) else {
            continue;
        };
        let xid = word(&call, 0);
        let (bytes, reset) = {
            let mut log = log.borrow_mut();
            log.calls += 1;
            resets += 1;
            let reset = log.reset_after.is_some_and(|after| resets >= after);
            if let Some(bytes) = log.cache.get(&(peer, xid)) {
                (bytes.clone(), reset)
            } else {
                *log.runs.entry(id).or_default() += 1;
                log.cache.insert((peer, xid), bytes.clone());
                log.order.push_back((peer, xid));
                if log.order.len() > REMEMBERED
                    && let Some(oldest) = log.order.pop_front()
                {
                    log.cache.remove(&oldest);
                }
                log.xids.entry(peer).or_default().insert(xid);
                (bytes, reset)
            }
        };
        if reset {
            // It has run, and nobody hears of it.
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
            return Ok(());
        }
        let size = 1 + id as usize % 70_000;
        stream.write_all(&fragments(&bytes, size)).await?;
    }
}

/// A proxy before a server, and where it listens.
async fn proxy(
    log: &Rc<RefCell<Log>>,
    connections: usize,
    (memory, patience): (usize, u64),
) -> (Proxy, SocketAddr) {
    let to = free().await;
    let server_address = to.local_addr().unwrap();
    tokio::task::spawn_local(server(to, Rc::clone(log)));
    proxy_to(server_address, config(connections, memory, patience)).await
}

/// Makes calls of drawn sizes, all at once, and checks every byte of the replies.
async fn client(address: SocketAddr, calls: std::ops::Range<u32>, what: (u32, u32), largest: u32) {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let mut expected = HashMap::new();
    let mut sent = Vec::new();
    for id in calls {
        let draw = id.wrapping_mul(2_654_435_761) >> 8;
        let size = |n: u32| match draw.wrapping_mul(n) % 8 {
            0 => draw % largest,
            _ => draw % 200,
        };
        // Clients of one program use the same XIDs.
        let xid = id % 100_000;
        let bytes = call(xid, what, id, size(3), size(5) as usize);
        expected.insert(xid, answer(&bytes).unwrap().1);
        sent.push((bytes, 1 + draw as usize % 100_000));
    }
    let writing = tokio::task::spawn_local(async move {
        for (bytes, size) in sent {
            writer.write_all(&fragments(&bytes, size)).await.unwrap();
        }
        writer
    });
    while !expected.is_empty() {
        let reply = record(&mut reader).await.unwrap();
        let xid = word(&reply, 0);
        let want = expected
            .remove(&xid)
            .expect("a reply to a call that was made");
        assert!(reply == want, "reply {xid} has come changed");
    }
    drop(writing.await.unwrap());
}

/// Calls that the first test makes; RADDLE_RPC_CALLS=1000000 takes some minutes, optimised.
fn calls() -> u32 {
    let calls = std::env::var("RADDLE_RPC_CALLS").ok();
    calls.map_or(3200, |calls| calls.parse().unwrap())
}

#[test]
fn every_call_is_run_once_and_answered_whole() {
    /// Calls that a client has under way at once.
    const BATCH: u32 = 800;
    let batches = calls().div_ceil(4 * BATCH);
    let limit = Duration::from_secs(u64::from(120 * batches));
    run_for(limit, async move {
        let log = Rc::default();
        let (proxy, address) = proxy(&log, 4, (8 << 20, PATIENCE)).await;
        let start = std::time::Instant::now();
        let many = |n: u32| async move {
            for batch in 0..batches {
                let first = n * 100_000_000 + batch * BATCH;
                // Fewer bytes where there are many calls.
                let largest = if batch == 0 { 600_000 } else { 100_000 };
                client(address, first..first + BATCH, (PROGRAM, 9), largest).await;
            }
        };
        let clients: Vec<_> = (0..4).map(|n| tokio::task::spawn_local(many(n))).collect();
        for client in clients {
            let done = client.await;
            assert!(done.is_ok(), "{:?}", proxy.status().disconnected);
        }
        let log = log.borrow();
        assert_eq!(log.runs.len() as u32, 4 * BATCH * batches);
        assert!(log.runs.values().all(|runs| *runs == 1));
        // Segments wrap, and are apart.
        let mut all = HashSet::new();
        for xid in log.xids.values().flatten() {
            assert!(all.insert(*xid), "XID {xid:#x} was used by two transports");
        }
        assert!(log.xids.len() >= 4);
        let status = proxy.status();
        assert_eq!(status.kept_bytes, (0, 0));
        assert_eq!(status.counters.unknown_replies, 0);
        eprintln!("{} calls in {:?}", log.runs.len(), start.elapsed());
    });
}

#[test]
fn resets_repeat_no_call_that_counts() {
    run(async {
        let log: Rc<RefCell<Log>> = Rc::default();
        log.borrow_mut().reset_after = Some(50);
        let (proxy, address) = proxy(&log, 2, (8 << 20, PATIENCE)).await;
        client(address, 0..1000, (PROGRAM, 9), 100_000).await;
        let log = log.borrow();
        assert_eq!(log.runs.len(), 1000);
        assert!(log.runs.values().all(|runs| *runs == 1));
        let counters = proxy.status().counters;
        assert!(counters.replayed > 0, "{counters:?}");
    });
}

#[test]
fn reads_go_elsewhere_at_once() {
    run(async {
        let log: Rc<RefCell<Log>> = Rc::default();
        log.borrow_mut().reset_after = Some(50);
        let (proxy, address) = proxy(&log, 2, (8 << 20, PATIENCE)).await;
        client(address, 0..1000, (NFS, 1), 50_000).await;
        let counters = proxy.status().counters;
        assert!(
            counters.resent > 0 && counters.replayed == 0,
            "{counters:?}"
        );
        assert_eq!(log.borrow().runs.len(), 1000);
    });
}

/// Sends bytes, and gives what comes until the proxy closes; none if it does not.
async fn nonsense(address: SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut got = Vec::new();
    timeout(Duration::from_secs(4), stream.read_to_end(&mut got))
        .await
        .ok()?
        .ok();
    Some(got)
}

#[test]
fn nonsense_ends_the_connection_that_it_came_by() {
    run(async {
        let log = Rc::default();
        let (proxy, address) = proxy(&log, 2, (8 << 20, 1)).await;
        let reply = call(1, (NFS, 1), 1, 1, 1)
            .iter()
            .enumerate()
            .map(|(i, b)| if i == 7 { 1 } else { *b })
            .collect::<Vec<_>>();
        let half = &call(1, (NFS, 1), 1, 1, 100)[..20];
        let mut stalled = mark(148, true).to_vec();
        stalled.extend(half);
        let mut large = mark(1 << 20, true).to_vec();
        large.extend(call(1, (PROGRAM, 1), 1, 1, 200_000));
        for bytes in [
            mark(0x7fff_ffff, true).to_vec(),
            vec![0; 4 * 70],
            fragments(&reply, 1000),
            fragments(&[1, 2, 3], 1000),
            stalled,
            large,
        ] {
            assert_eq!(nonsense(address, &bytes).await, Some(Vec::new()));
        }
        // Others are served as before, also by the connection that a half call was on.
        client(address, 0..200, (NFS, 1), 100_000).await;
        assert_eq!(proxy.status().counters.bad_records, 4);
        assert_eq!(proxy.status().counters.clients_disconnected, 6);
        assert!(!log.borrow().runs.contains_key(&1) || log.borrow().runs[&1] == 1);
    });
}

#[test]
fn a_client_that_does_not_read_is_let_go() {
    run(async {
        let log = Rc::default();
        let (proxy, address) = proxy(&log, 2, (1 << 20, 1)).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        for id in 0..100 {
            let bytes = fragments(&call(id, (NFS, 1), id, 1 << 20, 10), 1000);
            stream.write_all(&bytes).await.unwrap();
        }
        until(|| proxy.status().kept_bytes.1 >= 1 << 20).await;
        let most = Rc::new(Cell::new(0));
        let (watched, found) = (proxy.clone(), Rc::clone(&most));
        tokio::task::spawn_local(async move {
            loop {
                found.set(found.get().max(watched.status().kept_bytes.1));
                sleep(Duration::from_millis(1)).await;
            }
        });
        client(address, 1000..1100, (NFS, 1), 1000).await;
        assert_eq!(proxy.status().counters.clients_disconnected, 1);
        // Replies to the first client may still come, of which no more than what has come last is kept.
        until(|| proxy.status().kept_bytes.1 == 0).await;
        // One record for each connection may be beyond what may be kept.
        assert!(most.get() < 5 << 20, "{} bytes were kept", most.get());
    });
}

#[test]
fn a_call_that_the_client_repeats_is_run_once() {
    run(async {
        let log = Rc::default();
        let (proxy, address) = proxy(&log, 2, (1 << 20, 1)).await;
        let bytes = fragments(&call(5, (PROGRAM, 9), 5, 10, 10), 1000);
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(&[bytes.clone(), bytes].concat())
            .await
            .unwrap();
        record(&mut stream).await.unwrap();
        let more = timeout(Duration::from_millis(200), record(&mut stream)).await;
        assert!(more.is_err());
        assert_eq!(proxy.status().counters.repeated_calls, 1);
        assert_eq!(log.borrow().runs[&5], 1);
    });
}

#[test]
fn a_small_reply_waits_for_one_large_one_at_most() {
    run(async {
        let log = Rc::default();
        let (proxy, address) = proxy(&log, 2, (64 << 20, PATIENCE)).await;
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(512 << 10).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        const READS: u32 = 8;
        for id in 0..READS {
            let bytes = fragments(&call(id, (NFS, 1), 60_000 + id, 2 << 20, 40_000), 50_000);
            stream.write_all(&bytes).await.unwrap();
        }
        // All replies are here, one is being written, and the client reads none.
        until(|| replies(&proxy.status()) == READS.into()).await;
        let small = fragments(&call(READS, (NFS, 1), READS, 100, 0), 1000);
        stream.write_all(&small).await.unwrap();
        until(|| replies(&proxy.status()) > READS.into()).await;
        let mut order = Vec::new();
        for _ in 0..=READS {
            let reply = record(&mut stream).await.unwrap();
            order.push(word(&reply, 0));
        }
        let place = order.iter().position(|xid| *xid == READS).unwrap();
        assert!(place <= 2, "{order:?}");
    });
}
