//! What ends `raddle rpc`, and what does not; the largest calls; memory after a burst.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use raddle_e2e::once::{self, WRITE};
use raddle_e2e::rpc::{Pair, Proxy, SERVER, inside, record, send};
use raddle_e2e::{Outcome, raddle, root, within};

/// How often the server goes away under writes.
const KILLS: u32 = 20;

/// A field of the process's status: a number in KiB, or a mask.
fn field(proxy: &Proxy, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().to_owned()
}

fn mib(proxy: &Proxy, name: &str) -> u64 {
    field(proxy, name).parse::<u64>().unwrap() / 1024
}

/// READs and WRITEs, in a record of their own, with so much behind them.
fn ask(stream: &mut TcpStream, xid: u32, procedure: u32, filling: usize) -> std::io::Result<()> {
    let words = [xid, 0, 2, 100_003, 3, procedure, 0, 0, 0, 0, xid, 0];
    send(stream, &words, filling)
}

/// Answers with 100,000 bytes until it is to go away, which it does in the midst of whatever comes.
fn answer(mut stream: TcpStream, away: &AtomicBool) {
    let soon = Some(Duration::from_millis(50));
    while !away.load(Ordering::Relaxed) {
        stream.set_read_timeout(soon).unwrap();
        let Ok(1..) = stream.peek(&mut [0]) else {
            continue;
        };
        stream.set_read_timeout(None).unwrap();
        let Ok(call) = record(&mut stream) else {
            return;
        };
        let xid = u32::from_be_bytes(call[..4].try_into().unwrap());
        let filling = if call[23] == 0 { 0 } else { 100_000 };
        if send(&mut stream, &[xid, 1, 0, 0, 0, 0], filling).is_err() {
            return;
        }
    }
}

/// Writes, and goes away with the reply half read.
fn leaver(number: u32, end: &AtomicBool) {
    let mut xid = number << 20;
    while !end.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect("127.0.0.1:2049") else {
            return;
        };
        for procedure in [WRITE, 6, WRITE, 6] {
            xid += 1;
            let _ = ask(&mut stream, xid, procedure, 300_000);
        }
        stream
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let _ = stream.read(&mut vec![0; 1 + xid as usize % 5000]);
        if xid.is_multiple_of(8) {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
    }
}

/// The server's port, as soon as nothing of the one before has it: a program that another thread is about to start
/// has its descriptors for a moment.
fn listen() -> TcpListener {
    let begun = Instant::now();
    loop {
        match TcpListener::bind((SERVER, 2049)) {
            Ok(listener) => return listener,
            Err(e) => assert!(begun.elapsed() < Duration::from_secs(60), "{e}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn nobody_who_goes_away_ends_the_proxy() {
    if !root("nobody_who_goes_away_ends_the_proxy") {
        return;
    }
    let pair = Pair::new("g");
    let mut proxy = Proxy::start(&pair, &[]);
    let end = Arc::new(AtomicBool::new(false));
    let mut clients = Vec::new();
    for kill in 0..KILLS {
        let away = Arc::new(AtomicBool::new(false));
        let listener = inside(&pair.server, listen);
        listener.set_nonblocking(true).unwrap();
        let gone = Arc::clone(&away);
        let server = std::thread::spawn(move || {
            let mut all = Vec::new();
            while !gone.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        stream.set_nonblocking(false).unwrap();
                        let gone = Arc::clone(&gone);
                        all.push(std::thread::spawn(move || answer(stream, &gone)));
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
            all.into_iter().for_each(|one| one.join().unwrap());
        });
        proxy.all_up();
        if kill == 0 {
            // Whether one of these writes meets a connection that is gone is chance; this is not.
            let ignored = u64::from_str_radix(&field(&proxy, "SigIgn"), 16).unwrap();
            assert_ne!(ignored & 1 << 12, 0, "SIGPIPE ends it");
            for number in 0..4 {
                let (ns, end) = (pair.client.clone(), Arc::clone(&end));
                let leave = move || inside(&ns, move || leaver(number, &end));
                clients.push(std::thread::spawn(leave));
            }
        }
        let before = proxy.status().unwrap()["counters"]["clients"].as_u64();
        within(Duration::from_secs(60), || {
            let now = proxy.status()?["counters"]["clients"].as_u64();
            let enough = now >= before.map(|before| before + 8);
            enough.then_some(()).ok_or(format!("{before:?} {now:?}"))
        });
        away.store(true, Ordering::Relaxed);
        server.join().unwrap();
        assert!(proxy.is_running(), "{}", proxy.log());
    }
    end.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|one| one.join().unwrap());
    assert!(proxy.is_running(), "{}", proxy.log());
}

#[test]
fn the_largest_write_passes_and_memory_is_given_back() {
    if !root("the_largest_write_passes_and_memory_is_given_back") {
        return;
    }
    let pair = Pair::new("q");
    // While one waits for the disk, the others are kept.
    let pace = |procedure, _| [u64::from(procedure == WRITE) * 500, 0].map(Duration::from_millis);
    let _server = once::serve(&pair, pace);
    let proxy = Proxy::start(&pair, &["--max-record", "16"]);
    proxy.all_up();
    let before = mib(&proxy, "VmRSS");
    let burst: Vec<_> = (0..16)
        .map(|xid| {
            let ns = pair.client.clone();
            std::thread::spawn(move || {
                inside(&ns, move || {
                    let mut stream = TcpStream::connect("127.0.0.1:2049").unwrap();
                    ask(&mut stream, xid, WRITE, 16 << 20).unwrap();
                    let reply = record(&mut stream).unwrap();
                    assert_eq!(reply[..4], xid.to_be_bytes());
                    assert_eq!(reply[24..28], [0; 4]);
                })
            })
        })
        .collect();
    burst.into_iter().for_each(|one| one.join().unwrap());
    let most = mib(&proxy, "VmHWM");
    assert!(most >= before + 48, "{before} MiB, {most} MiB at most");
    within(Duration::from_secs(60), || match mib(&proxy, "VmRSS") {
        now if now <= before + 16 => Ok(()),
        now => Err(format!("{before} MiB, {most} MiB at most, {now} MiB now")),
    });
    let status = proxy.status().unwrap();
    assert_eq!(status["counters"]["clients_disconnected"], 0, "{status}");
}

#[test]
fn a_failure_at_the_start_is_said_once() {
    if !root("a_failure_at_the_start_is_said_once") {
        return;
    }
    let pair = Pair::new("n");
    let taken = inside(&pair.client, || {
        TcpListener::bind("127.0.0.1:2049").unwrap()
    });
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", &pair.client])
        .arg(raddle())
        .args(["rpc", "--server", SERVER, "--socket"])
        .arg(folder.path().join("rpc.sock"));
    let outcome = Outcome::of(&mut command);
    assert_eq!(outcome.code, Some(3), "{}", outcome.stderr);
    let said = outcome.stderr.matches("cannot listen on 127.0.0.1:2049");
    assert_eq!(said.count(), 1, "{}", outcome.stderr);
    drop(taken);
}
