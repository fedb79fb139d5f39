//! The proxy of `raddle rpc` between namespaces that four links join: where its connections lie, what comes
//! through, and what happens when a link goes silent.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use raddle_e2e::root;
use raddle_e2e::rpc::{Pair, Proxy, distinct, inside, record, send, serve, silence};

#[test]
fn four_connections_lie_on_four_links_both_ways() {
    if !root("four_connections_lie_on_four_links_both_ways") {
        return;
    }
    let pair = Pair::new("a");
    let _calls = serve(&pair);
    for _ in 0..3 {
        let proxy = Proxy::start(&pair, &[]);
        let transports = proxy.all_up();
        assert_eq!(transports.len(), 5);
        assert_eq!(distinct(&transports, "out").len(), 4, "{transports:?}");
        assert_eq!(distinct(&transports, "back").len(), 4, "{transports:?}");
    }
    let proxy = Proxy::start(&pair, &["--privileged-ports", "--no-lane"]);
    let transports = proxy.all_up();
    assert_eq!(distinct(&transports, "back").len(), 4, "{transports:?}");
    for transport in &transports {
        let local = transport["local"].as_str().unwrap();
        let port: u16 = local.rsplit(':').next().unwrap().parse().unwrap();
        assert!((665..1024).contains(&port), "{local}");
    }
}

#[test]
fn a_silent_link_does_not_hold_reads_up() {
    if !root("a_silent_link_does_not_hold_reads_up") {
        return;
    }
    let pair = Pair::new("b");
    let calls = serve(&pair);
    let proxy = Proxy::start(&pair, &["--no-lane"]);
    let transports = proxy.all_up();
    let last: u32 = transports[2]["out"]
        .as_str()
        .unwrap()
        .trim_start_matches('c')
        .parse()
        .unwrap();
    let client = pair.client.clone();
    let longest = inside(&pair.client, move || {
        let mut stream = TcpStream::connect("127.0.0.1:2049").unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut longest = Duration::ZERO;
        for n in 0..400_u32 {
            if n == 100 {
                silence(&client, &format!("c{last}"));
            }
            let start = Instant::now();
            // GETATTR: idempotent.
            send(&mut stream, &[n, 0, 2, 100_003, 3, 1, 0, 0, 0, 0, n], 0).unwrap();
            // Its words come last, behind 24 bytes of header, 4 of its own, and filling.
            let reply = record(&mut stream).unwrap();
            assert_eq!(reply[..4], n.to_be_bytes());
            assert_eq!(reply[24..28], n.to_be_bytes());
            assert_eq!(reply.len(), 100_028);
            longest = longest.max(start.elapsed());
        }
        longest
    });
    // TCP alone would try for minutes. How quick it is, `raddle-bench rpc` measures.
    assert!(longest < Duration::from_secs(10), "{longest:?}");
    assert!(calls.load(Ordering::Relaxed) >= 400);
    let status = proxy.status().unwrap();
    assert!(status["counters"]["resent"].as_u64() >= Some(1), "{status}");
    assert_eq!(status["held"].as_array().map(Vec::len), Some(0));
}

/// MOUNT has one connection: that others are heard says enough.
#[test]
fn mount_leaves_a_silent_link() {
    if !root("mount_leaves_a_silent_link") {
        return;
    }
    let pair = Pair::new("m");
    let _calls = serve(&pair);
    let proxy = Proxy::start(&pair, &["--no-lane", "--mount-port", "2049"]);
    let transports = proxy.all_up();
    let mount = transports.iter().find(|t| t["service"] == 1).unwrap();
    let link = mount["out"].as_str().unwrap().to_owned();
    let client = pair.client.clone();
    inside(&pair.client, move || {
        let mut stream = TcpStream::connect("127.0.0.1:2049").unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        silence(&client, &link);
        // MOUNT's EXPORT: idempotent.
        send(&mut stream, &[7, 0, 2, 100_005, 3, 5, 0, 0, 0, 0, 7], 0).unwrap();
        let reply = record(&mut stream).unwrap();
        assert_eq!(reply[..4], 7_u32.to_be_bytes());
    });
}

/// Has eight calls under way all the time, until there have been so many; repeats what has no reply when the
/// proxy has closed the connection. Every reply has to be the one of its call.
fn repeats_what_is_lost(calls: u32) -> u32 {
    let (mut next, mut open, mut lost) = (0, BTreeSet::new(), 0);
    while next < calls || !open.is_empty() {
        let Ok(mut stream) = TcpStream::connect("127.0.0.1:2049") else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        let ask =
            |stream: &mut TcpStream, n| send(stream, &[n, 0, 2, 100_003, 3, 1, 0, 0, 0, 0, n], 0);
        let mut fine = open.iter().try_for_each(|n| ask(&mut stream, *n));
        while fine.is_ok() && (next < calls || !open.is_empty()) {
            if next < calls && open.len() < 8 {
                fine = ask(&mut stream, next);
                open.insert(next);
                next += 1;
                continue;
            }
            match record(&mut stream) {
                Ok(reply) => {
                    let xid = u32::from_be_bytes(reply[..4].try_into().unwrap());
                    assert!(open.remove(&xid), "a reply to {xid}, which was not asked");
                    assert_eq!(reply[24..28], xid.to_be_bytes());
                    assert_eq!(reply.len(), 100_028);
                }
                Err(e) => fine = Err(e),
            }
        }
        lost += u32::from(fine.is_err());
    }
    lost
}

#[test]
fn a_crash_of_the_proxy_gives_no_wrong_reply() {
    if !root("a_crash_of_the_proxy_gives_no_wrong_reply") {
        return;
    }
    let pair = Pair::new("x");
    let _calls = serve(&pair);
    let mut proxy = Proxy::start(&pair, &[]);
    proxy.all_up();
    let client = pair.client.clone();
    let calls = std::thread::spawn(move || inside(&client, || repeats_what_is_lost(20_000)));
    let mut crashes = 0;
    while !calls.is_finished() && crashes < 8 {
        std::thread::sleep(Duration::from_millis(400));
        proxy.crash();
        crashes += 1;
        proxy = Proxy::start(&pair, &[]);
        proxy.all_up();
    }
    let lost = calls.join().unwrap();
    assert!(
        crashes > 1 && lost >= 1,
        "{crashes} crashes, {lost} connections lost"
    );
}
