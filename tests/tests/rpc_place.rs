//! Where `raddle rpc` places connections: over several links, addresses and families, and when they change.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use raddle_e2e::rpc::{
    Pair, Proxy, SERVER6, distinct, inside, ip, port_of, record, send, serve, serve_at, sysctl,
};
use raddle_e2e::{Outcome, raddle, root, within};
use serde_json::Value;

/// All connections for all calls lie on links of their own both ways, by the kernels' own word.
fn all_apart(pair: &Pair, transports: &[Value]) {
    let links = pair.links as usize;
    for way in ["out", "back"] {
        assert_eq!(distinct(transports, way).len(), links, "{transports:#?}");
    }
    for transport in transports {
        let (out, back) = pair.links_of(transport);
        assert_eq!(transport["out"], out.as_str(), "{transport}");
        assert_eq!(transport["back"], back.as_str(), "{transport}");
    }
}

#[test]
fn each_subnet_of_a_server_has_its_connection() {
    if !root("each_subnet_of_a_server_has_its_connection") {
        return;
    }
    // The kernel's defaults: L3 hashes and an unknown seed.
    let pair = Pair::subnets("n", 4);
    let _calls = serve(&pair);
    let more = "10.251.2.2,10.251.3.2,10.251.4.2";
    let options = ["--server-addresses", more, "-n", "8"];
    let proxy = Proxy::to(&pair, "10.251.1.2:2049", &options);
    let transports = proxy.all_up();
    all_apart(&pair, &transports);
    let mut on: BTreeMap<&str, usize> = BTreeMap::new();
    for transport in transports.iter().filter(|t| t["lane"] == false) {
        *on.entry(transport["peer"].as_str().unwrap()).or_default() += 1;
        assert_eq!(transport["attempts"], 1);
    }
    assert_eq!(on.values().copied().collect::<Vec<_>>(), [2; 4], "{on:?}");
    assert_eq!(proxy.notes(), "");
}

#[test]
fn addresses_of_a_server_that_do_not_answer_are_passed_over() {
    if !root("addresses_of_a_server_that_do_not_answer_are_passed_over") {
        return;
    }
    let pair = Pair::subnets("d", 3);
    let _calls = serve_at(&pair, "10.251.1.2:2049");
    let _too = serve_at(&pair, "10.251.2.2:2049");
    // 10.251.3.2 refuses, and 10.251.3.9 is silent.
    let more = "10.251.2.2,10.251.3.2,10.251.3.9";
    let proxy = Proxy::to(&pair, "10.251.1.2:2049", &["--server-addresses", more]);
    let transports = proxy.all_up();
    let out = distinct(&transports, "out");
    assert_eq!(out.into_iter().collect::<Vec<_>>(), ["c1", "c2"]);
    let notes = proxy.notes();
    assert!(
        notes.contains("10.251.3.2:2049 by c3 is not used: "),
        "{notes}"
    );
    assert!(notes.contains("refused"), "{notes}");
    assert!(
        notes.contains("10.251.3.9:2049 by c3 is not used: "),
        "{notes}"
    );
    // It comes up: a connection is moved there.
    let _late = serve_at(&pair, "10.251.3.2:2049");
    within(Duration::from_secs(60), || {
        let status = proxy.status()?;
        let transports = status["transports"].as_array().unwrap();
        match distinct(transports, "out").len() {
            3 => Ok(()),
            _ => Err(status.to_string()),
        }
    });
}

/// Privileged ports are few, and the kernel's own NFS client takes some of them.
#[test]
fn ports_that_are_taken_do_not_keep_a_link_out() {
    if !root("ports_that_are_taken_do_not_keep_a_link_out") {
        return;
    }
    let pair = Pair::subnets("t", 2);
    let _calls = serve_at(&pair, "10.251.1.2:2049");
    let options = [
        "--server-addresses",
        "10.251.2.2",
        "--privileged-ports",
        "-n",
        "2",
    ];
    let proxy = Proxy::to(&pair, "10.251.1.2:2049", &options);
    proxy.all_up();
    let notes = proxy.notes();
    assert!(
        notes.contains("10.251.2.2:2049 by c2 is not used: "),
        "{notes}"
    );
    // 64 ports are candidates for an address that has one way: the last ones, which it is asked by, are others'.
    let _taken = inside(&pair.client, || {
        let bind = |port| std::net::TcpListener::bind(("0.0.0.0", port)).unwrap();
        (690..1024).map(bind).collect::<Vec<_>>()
    });
    let _late = serve_at(&pair, "10.251.2.2:2049");
    within(Duration::from_secs(60), || {
        let status = proxy.status()?;
        let transports = status["transports"].as_array().unwrap();
        match distinct(transports, "out").len() {
            2 => Ok(()),
            _ => Err(status.to_string()),
        }
    });
}

#[test]
fn local_addresses_lead_by_rules() {
    if !root("local_addresses_lead_by_rules") {
        return;
    }
    let pair = Pair::subnets("r", 4);
    let _calls = serve(&pair);
    let c = &pair.client;
    for n in 1..=4 {
        let table = 100 + n;
        ip(&format!("-n {c} rule add from 10.251.{n}.1 lookup {table}"));
        ip(&format!(
            "-n {c} route add 10.251.0.2 via 10.251.{n}.2 dev c{n} table {table}"
        ));
    }
    let own = "10.251.1.1,10.251.2.1,10.251.3.1,10.251.4.1";
    let proxy = Proxy::start(&pair, &["--local-addresses", own]);
    all_apart(&pair, &proxy.all_up());
}

#[test]
fn several_addresses_and_routes_over_several_links_mix() {
    if !root("several_addresses_and_routes_over_several_links_mix") {
        return;
    }
    // Two addresses of the server, by two links each; answers take any of the four.
    let pair = Pair::ecmp("m", 4, (7, 8));
    let _calls = serve(&pair);
    let (c, s) = (&pair.client, &pair.server);
    ip(&format!("-n {c} route del 10.251.0.2"));
    ip(&format!("-n {s} addr add 10.251.0.4/32 dev lo"));
    for (to, links) in [(2, [1, 2]), (4, [3, 4])] {
        let hops: String = links
            .iter()
            .map(|n| format!(" nexthop via 10.251.{n}.2 dev c{n}"))
            .collect();
        ip(&format!(
            "-n {c} route add 10.251.0.{to} src 10.251.0.1{hops}"
        ));
    }
    for _ in 0..3 {
        let proxy = Proxy::start(&pair, &["--server-addresses", "10.251.0.4"]);
        let transports = proxy.all_up();
        all_apart(&pair, &transports);
        assert_eq!(distinct(&transports, "peer").len(), 2);
    }
    // The seed is not known any more: the kernel is asked about each port.
    sysctl(c, "net.ipv4.fib_multipath_hash_seed=0");
    let proxy = Proxy::start(&pair, &["--server-addresses", "10.251.0.4"]);
    all_apart(&pair, &proxy.all_up());
}

#[test]
fn a_server_that_answers_by_one_link_is_left_in_peace() {
    if !root("a_server_that_answers_by_one_link_is_left_in_peace") {
        return;
    }
    let pair = Pair::ecmp("o", 4, (31, 32));
    let _calls = serve(&pair);
    ip(&format!(
        "-n {} route replace 10.251.0.1 via 10.251.2.1 dev s2 src 10.251.0.2",
        pair.server
    ));
    let proxy = Proxy::start(&pair, &["--no-lane"]);
    let transports = proxy.all_up();
    assert_eq!(distinct(&transports, "out").len(), 4, "{transports:?}");
    assert_eq!(distinct(&transports, "back").len(), 1, "{transports:?}");
    let attempts: u64 = transports
        .iter()
        .map(|t| t["attempts"].as_u64().unwrap())
        .sum();
    // The second one waits for other links, and the others know.
    assert!(attempts < 40, "{transports:?}");
    std::thread::sleep(Duration::from_secs(3));
    for transport in proxy.all_up() {
        assert_eq!(transport["connections"], 1, "{transport}");
    }
}

#[test]
fn ipv6_connections_lie_on_links_of_their_own() {
    if !root("ipv6_connections_lie_on_links_of_their_own") {
        return;
    }
    let pair = Pair::ecmp("v", 4, (11, 12));
    let _calls = serve(&pair);
    let server = format!("[{SERVER6}]:2049");
    let proxy = Proxy::to(&pair, &server, &[]);
    all_apart(&pair, &proxy.all_up());
    drop(proxy);
    // Flow labels in place of ports: all connections of a pair of addresses go by one link, and are told apart
    // by nothing.
    sysctl(&pair.client, "net.ipv6.fib_multipath_hash_policy=0");
    let proxy = Proxy::to(&pair, &server, &[]);
    let transports = proxy.all_up();
    assert_eq!(distinct(&transports, "out").len(), 1, "{transports:?}");
    assert_eq!(distinct(&transports, "back").len(), 4, "{transports:?}");
    let notes = proxy.notes();
    let note =
        "the hash policy does not look at ports: sysctl -w net.ipv6.fib_multipath_hash_policy=1";
    assert!(notes.contains(note), "{notes}");
    drop(proxy);
    // Each subnet its address.
    let more = "fd00:251:2::2,fd00:251:3::2,fd00:251:4::2";
    let proxy = Proxy::to(&pair, "[fd00:251:1::2]:2049", &["--server-addresses", more]);
    all_apart(&pair, &proxy.all_up());
}

#[test]
fn eight_connections_lie_on_eight_links_in_every_trial() {
    if !root("eight_connections_lie_on_eight_links_in_every_trial") {
        return;
    }
    let pair = Pair::ecmp("e", 8, (1, 2));
    let _calls = serve(&pair);
    let trials = std::env::var("RADDLE_RPC_TRIALS").map_or(5, |n| n.parse().unwrap());
    for trial in 0..trials {
        pair.hash_ports((100 + 2 * trial, 101 + 2 * trial));
        let start = Instant::now();
        let proxy = Proxy::start(&pair, &["-n", "8", "--no-lane"]);
        let transports = proxy.all_up();
        let took = start.elapsed().as_millis();
        let attempts: Vec<u64> = transports
            .iter()
            .map(|t| t["attempts"].as_u64().unwrap())
            .collect();
        let sum: u64 = attempts.iter().sum();
        println!("trial {trial}: {sum} attempts {attempts:?}, all up seen after {took} ms");
        all_apart(&pair, &transports);
    }
    let privileged = ["-n", "8", "--no-lane", "--privileged-ports"];
    let proxy = Proxy::start(&pair, &privileged);
    let transports = proxy.all_up();
    all_apart(&pair, &transports);
    assert!(transports.iter().all(|t| (665..1024).contains(&port_of(t))));
}

/// Calls, one after the other, as long as it may; how many had their reply.
fn keep_calling(client: &str, go_on: &Arc<AtomicBool>) -> std::thread::JoinHandle<u32> {
    let (client, go_on) = (client.to_owned(), Arc::clone(go_on));
    std::thread::spawn(move || {
        inside(&client, move || {
            let mut stream = TcpStream::connect("127.0.0.1:2049").unwrap();
            let most = Some(Duration::from_secs(20));
            stream.set_read_timeout(most).unwrap();
            let mut calls = 0;
            while go_on.load(Ordering::Relaxed) {
                // GETATTR.
                let call = [calls, 0, 2, 100_003, 3, 1, 0, 0, 0, 0, calls];
                send(&mut stream, &call, 0).unwrap();
                let reply = record(&mut stream).unwrap();
                assert_eq!(reply[..4], calls.to_be_bytes());
                assert_eq!(reply[24..28], calls.to_be_bytes());
                calls += 1;
            }
            calls
        })
    })
}

#[test]
fn connections_follow_links_that_go_and_come_back() {
    if !root("connections_follow_links_that_go_and_come_back") {
        return;
    }
    let pair = Pair::ecmp("f", 4, (21, 22));
    let served = serve(&pair);
    let proxy = Proxy::start(&pair, &["--no-lane"]);
    all_apart(&pair, &proxy.all_up());
    let go_on = Arc::new(AtomicBool::new(true));
    let calls = keep_calling(&pair.client, &go_on);
    let even = |links: usize, patience: u64| {
        let start = Instant::now();
        within(Duration::from_secs(patience), || {
            let status = proxy.status()?;
            let transports = status["transports"].as_array().unwrap();
            let up = transports.iter().all(|t| t["state"] == "up");
            let apart = |way| distinct(transports, way).len() == links;
            match up && apart("out") && apart("back") {
                true => Ok(()),
                false => Err(status.to_string()),
            }
        });
        start.elapsed()
    };
    let (c, s) = (&pair.client, &pair.server);
    let report = |what: &str, down: Duration, up: Duration| {
        println!("{what}: even without it after {down:?}, and with it again after {up:?}");
    };
    for n in 1..=2 {
        // Both ends know: the kernels of either side take the link out of their routes.
        ip(&format!("-n {c} link set c{n} down"));
        ip(&format!("-n {s} link set s{n} down"));
        let down = even(3, 30);
        ip(&format!("-n {s} link set s{n} up"));
        ip(&format!("-n {c} link set c{n} up"));
        report(&format!("c{n} down"), down, even(4, 30));
    }
    // The client's kernel goes on sending into a link without a carrier.
    ip(&format!("-n {s} link set s3 down"));
    let down = even(3, 30);
    ip(&format!("-n {s} link set s3 up"));
    report("c3 without a carrier", down, even(4, 30));
    // With the link go the routes over it.
    ip(&format!("-n {c} link del c4"));
    pair.route(&[1, 2, 3]);
    let down = even(3, 30);
    pair.link(4);
    pair.route(&[1, 2, 3, 4]);
    report("c4 removed", down, even(4, 30));
    go_on.store(false, Ordering::Relaxed);
    let calls = calls.join().unwrap();
    assert!(calls > 50, "{calls}");
    assert!(served.load(Ordering::Relaxed) >= calls);
    let status = proxy.status().unwrap();
    assert_eq!(status["held"].as_array().map(Vec::len), Some(0));
}

#[test]
fn what_cannot_be_is_said() {
    if !root("what_cannot_be_is_said") {
        return;
    }
    let pair = Pair::subnets("w", 1);
    let run = |options: &[&str]| {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &pair.client])
            .arg(raddle())
            .arg("rpc")
            .args(options);
        Outcome::of(&mut command)
    };
    let server = ["--server", "10.251.1.2:2049"];
    let with = |options: &[&str]| run(&[&server, options].concat());
    for (outcome, code, said) in [
        (
            with(&["--local-addresses", "10.251.1.7"]),
            3,
            "--local-addresses 10.251.1.7 is no address of this machine",
        ),
        (
            with(&["--server-addresses", "fd00:251:1::2"]),
            2,
            "name addresses of one family",
        ),
        (
            run(&["--server", "10.251.1.2:"]),
            2,
            "write HOST or HOST:PORT, such as nas.example:2049",
        ),
        (
            run(&["status"]),
            3,
            "no proxy (raddle rpc) runs here: nobody answers on ",
        ),
    ] {
        assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    }
    // Without the capability.
    let mut command = Command::new("ip");
    command
        .args([
            "netns",
            "exec",
            &pair.client,
            "setpriv",
            "--bounding-set=-net_bind_service",
        ])
        .arg(raddle())
        .args(["rpc", "--privileged-ports"])
        .args(server);
    let outcome = Outcome::of(&mut command);
    assert_eq!(outcome.code, Some(3), "{}", outcome.stderr);
    let said = "--privileged-ports needs CAP_NET_BIND_SERVICE for ports 665 to 1023";
    assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
}

#[test]
fn one_address_of_a_name_is_the_server() {
    if !root("one_address_of_a_name_is_the_server") {
        return;
    }
    let pair = Pair::subnets("h", 1);
    let _calls = serve(&pair);
    // The first one does not answer.
    let hosts = "10.251.1.3 nas.example\n10.251.1.2 nas.example\n";
    let proxy = Proxy::knowing(&pair, hosts, "nas.example:2049", &[]);
    for transport in proxy.all_up() {
        assert_eq!(transport["peer"], "10.251.1.2:2049");
    }
}
