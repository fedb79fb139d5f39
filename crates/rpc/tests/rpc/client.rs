//! The client before a server of these tests.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{fragments, local_address, record, run, until, word, words};
use bytes::Bytes;
use raddle_rpc::client::{
    AuthStatus, CallError, Client, Config, ConnectError, Credentials, Direct, Local, Request,
};
use raddle_rpc::program::Class;
use raddle_rpc::proxy::TransportState;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

const PROGRAM: u32 = 400_000;
/// Gives its arguments back, in fragments.
const ECHO: u32 = 1;
/// Gives as many bytes as its first word says.
const MUCH: u32 = 2;
/// Gives the words of its arguments in place of a reply, behind XID and type.
const SAY: u32 = 3;
/// Never answers.
const NEVER: u32 = 4;

/// What the server has seen, and how it behaves.
#[derive(Default)]
struct Log {
    runs: AtomicU32,
    /// Replies by peer and XID, as servers remember them.
    cache: Mutex<HashMap<(SocketAddr, u32), Vec<u8>>>,
    /// Connections are reset after so many calls, the last without an answer; 0 is never.
    reset_after: AtomicU32,
}

async fn answers(mut stream: TcpStream, peer: SocketAddr, log: Arc<Log>) -> io::Result<()> {
    let mut calls = 0;
    loop {
        let call = record(&mut stream).await?;
        let (xid, procedure) = (word(&call, 0), word(&call, 5));
        let arguments = 40 + word(&call, 7) as usize;
        calls += 1;
        let mut reply = words(&[xid, 1]);
        if procedure != SAY {
            reply.extend(words(&[0, 0, 0, 0]));
        }
        match procedure {
            NEVER => continue,
            MUCH => reply.extend((0..word(&call, arguments / 4)).map(|i| i as u8)),
            _ => reply.extend(&call[arguments..]),
        }
        let known = log.cache.lock().unwrap().insert((peer, xid), reply.clone());
        if procedure != 0 && known.is_none() {
            log.runs.fetch_add(1, Ordering::Relaxed);
        }
        if calls == log.reset_after.load(Ordering::Relaxed) {
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
            return Ok(());
        }
        let size = 1 + xid as usize % 100_000;
        stream.write_all(&fragments(&reply, size)).await?;
    }
}

/// A server in a thread of its own.
fn server() -> (SocketAddr, Arc<Log>) {
    let listener = std::net::TcpListener::bind(local_address()).unwrap();
    listener.set_nonblocking(true).unwrap();
    let (address, log) = (listener.local_addr().unwrap(), Arc::new(Log::default()));
    let seen = Arc::clone(&log);
    std::thread::spawn(move || {
        run(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, peer)) = listener.accept().await {
                tokio::task::spawn_local(answers(stream, peer, Arc::clone(&seen)));
            }
        });
    });
    (address, log)
}

async fn local(server: SocketAddr, config: Config) -> Local {
    Local::connect(Rc::new(Direct::to(server)), config)
        .await
        .unwrap()
}

/// Waits until the transports hold nothing.
async fn drained(client: &Local) {
    for _ in 0..12_000 {
        let status = client.status();
        let done = status.transports.iter().all(|t| t.outstanding_calls == 0);
        if done && (status.kept_bytes, status.waiting) == ((0, 0), 0) {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("{:?}", client.status());
}

#[test]
fn many_calls_are_on_their_way_and_each_has_its_reply() {
    let (server, log) = server();
    run(async {
        let config = Config {
            memory: 4 << 20,
            calls: 100,
            ..Config::default()
        };
        let client = Client::connect(Direct::to(server), config).await.unwrap();
        let calls: Vec<_> = (0..2000_u32)
            .map(|n| {
                let client = client.clone();
                tokio::spawn(async move {
                    let size = if n % 16 == 0 {
                        n as usize * 97
                    } else {
                        n as usize % 300
                    };
                    let sent = vec![n as u8; size.next_multiple_of(4)];
                    let nobody = Credentials::none();
                    let arguments = Bytes::from(sent.clone());
                    let reply = client.call(PROGRAM, 1, ECHO, &nobody, arguments).await;
                    assert!(reply.unwrap().results == sent);
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        let status = client.status().await.unwrap();
        assert_eq!(status.transports.len(), 5);
        let used = status.transports.iter().filter(|t| t.calls > 0);
        assert_eq!(used.count(), 5, "{status:?}");
        assert_eq!(log.runs.load(Ordering::Relaxed), 2000);
        let mut trips = [0, 0];
        for transport in &status.transports {
            trips[0] += transport.small.count();
            trips[1] += transport.large.count();
        }
        // Small are those with at most 32 KiB.
        assert_eq!(trips.iter().sum::<u64>(), 2000);
        assert!(trips[1] > 50 && trips[1] < 125, "{trips:?}");
    });
}

#[test]
fn what_the_server_says_is_the_error() {
    let (server, _) = server();
    run(async {
        let client = local(server, Config::default()).await;
        let root = Credentials::sys("here", 0, 0, &[4, 5]).unwrap();
        for (said, error) in [
            (&[0, 0, 0, 1][..], CallError::NoProgram),
            (
                &[0, 0, 0, 2, 3, 4],
                CallError::ProgramMismatch { low: 3, high: 4 },
            ),
            (&[0, 0, 0, 3], CallError::NoProcedure),
            (&[0, 0, 0, 4], CallError::GarbageArguments),
            (&[0, 0, 0, 5], CallError::System),
            (&[1, 0, 3, 3], CallError::RpcMismatch { low: 3, high: 3 }),
            (&[1, 1, 1], CallError::Auth(AuthStatus(1))),
        ] {
            let call = client.call(PROGRAM, 1, SAY, &root, words(said).into());
            assert_eq!(call.await, Err(error));
        }
        for said in [&[][..], &[0], &[9], &[0, 0, 9999], &[1, 9]] {
            let call = client.call(PROGRAM, 1, SAY, &root, words(said).into());
            let error = call.await.unwrap_err();
            assert!(matches!(error, CallError::Malformed(_)), "{error}");
        }
        // More than may be: that connection is closed, and the call is not repeated without end.
        let long = Config {
            most: 4096,
            ..Config::default()
        };
        let client = local(server, long).await;
        let request = Request::new(PROGRAM, 1, ECHO).arguments(vec![0; 5000]);
        let error = client.send(request).await.unwrap_err();
        assert!(matches!(
            error,
            CallError::TooLong {
                length: 5040,
                most: 4096
            }
        ));
    });
}

#[test]
fn calls_that_are_dropped_leave_nothing_behind() {
    let (server, _) = server();
    run(async {
        let client = Rc::new(local(server, Config::default()).await);
        for n in 0..300_u32 {
            let request = Request::new(PROGRAM, 1, MUCH).arguments(words(&[n * 300]));
            let call = client.send(request.class(Class::ReadOnly));
            // Some before they are sent, some while the reply comes, some after.
            let _ = timeout(Duration::from_micros(u64::from(n % 20) * 200), call).await;
        }
        drained(&client).await;
        // Others go on.
        let request = Request::new(PROGRAM, 1, MUCH).arguments(words(&[1 << 20]));
        let reply = client.send(request).await.unwrap();
        assert_eq!(reply.results.len(), 1 << 20);
        assert!(
            reply
                .results
                .iter()
                .enumerate()
                .all(|(i, byte)| *byte == i as u8)
        );
    });
}

#[test]
fn no_more_than_so_many_are_on_their_way() {
    let (server, _) = server();
    run(async {
        let config = Config {
            calls: 3,
            ..Config::default()
        };
        let client = Rc::new(local(server, config).await);
        let never = |_| {
            let client = Rc::clone(&client);
            tokio::task::spawn_local(
                async move { client.send(Request::new(PROGRAM, 1, NEVER)).await },
            )
        };
        let waiting: Vec<_> = (0..5).map(never).collect();
        let calls = || -> u64 { client.status().transports.iter().map(|t| t.calls).sum() };
        until(|| calls() == 3).await;
        // The others have had time to be sent.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(calls(), 3);
        waiting.iter().for_each(|task| task.abort());
        // The server never says anything to them, and they take no room.
        until(|| client.status().kept_bytes == (0, 0)).await;
        let echo = client.send(Request::new(PROGRAM, 1, ECHO));
        assert!(echo.await.unwrap().results.is_empty());
    });
}

#[test]
fn connections_that_fail_run_nothing_twice() {
    let (server, log) = server();
    log.reset_after.store(40, Ordering::Relaxed);
    run(async {
        let client = Rc::new(local(server, Config::default()).await);
        let calls: Vec<_> = (0..600_u32)
            .map(|n| {
                let client = Rc::clone(&client);
                tokio::task::spawn_local(async move {
                    let request = Request::new(PROGRAM, 1, ECHO).arguments(words(&[n]));
                    assert_eq!(client.send(request).await.unwrap().results, words(&[n]));
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        assert_eq!(log.runs.load(Ordering::Relaxed), 600);
        let counters = client.status().counters;
        assert!(counters.replayed > 0, "{counters:?}");
        // The same calls, said to be repeatable, go elsewhere.
        for n in 0..200_u32 {
            let request = Request::new(PROGRAM, 1, ECHO).class(Class::ReadOnly);
            client.send(request.arguments(words(&[n]))).await.unwrap();
        }
        assert!(client.status().counters.resent > counters.resent);
    });
}

#[test]
fn connections_come_from_the_ports_that_are_given() {
    let ((one, _), (two, _)) = (server(), server());
    run(async {
        let own = [4000, 4001].map(|port| SocketAddr::new(local_address().ip(), port));
        let config = Config {
            connections: 2,
            lanes: 0,
            ..Config::default()
        };
        let connect = Direct::to(one).also([two]).from(own);
        let client = Local::connect(Rc::new(connect), config).await.unwrap();
        for _ in 0..1000 {
            let transports = client.status().transports;
            let ways = transports.iter().filter_map(|t| match t.state {
                TransportState::Up { local, peer, .. } => Some((local, peer)),
                TransportState::Down { .. } => None,
            });
            let ways: Vec<_> = ways.collect();
            if ways.len() == 2 {
                assert_eq!(ways, [(own[0], one), (own[1], two)]);
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
        panic!("{:?}", client.status());
    });
}

#[test]
fn who_is_not_there_is_named() {
    run(async {
        let address = SocketAddr::new(local_address().ip(), 2049);
        let config = Config {
            patience: Duration::from_millis(300),
            ..Config::default()
        };
        let error = Client::connect(Direct::to(address), config)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("refused"), "{error}");
        let config = Config {
            connections: 0,
            ..Config::default()
        };
        let error = Client::connect(Direct::to(address), config)
            .await
            .unwrap_err();
        assert!(matches!(
            error,
            ConnectError::Config {
                name: "connections",
                ..
            }
        ));
    });
}
