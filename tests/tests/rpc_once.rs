//! Calls that must not be run twice, through `raddle rpc`, while links go silent: each is run exactly once, by
//! the server's own log and by its tree, and goes around the link where that is possible.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use raddle_e2e::once::{self, MKDIR, REMOVE, RENAME, WRITE};
use raddle_e2e::rpc::{LINKS, Pair, Proxy, done, inside, port_of, record, restore, send, silence};
use raddle_e2e::{Outcome, root, within};

/// Operations that are under way at once.
const WORKERS: u32 = 16;
/// Names from here on take a second.
const SLOW: u32 = 1 << 30;

/// What is begun takes a while: one WRITE in four waits for the disk, longer than it takes to see that a link is
/// silent, and slow names' replies are late.
fn pace(procedure: u32, name: u32) -> [Duration; 2] {
    let slow = procedure == WRITE && name.is_multiple_of(8);
    let late = name >= SLOW;
    [(slow, 1500), (late, 1000)].map(|(is, ms)| Duration::from_millis(if is { ms } else { 0 }))
}

/// Makes, renames and removes directories of its own, and writes, one call after the other, and gives how long the
/// longest took.
fn worker(number: u32, rounds: u32, pause: Duration) -> Duration {
    let mut stream = TcpStream::connect("127.0.0.1:2049").unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut longest = Duration::ZERO;
    let mut xid = number << 16;
    for n in 0..rounds {
        let name = (number * rounds + n) * 2;
        let calls = [(MKDIR, 0), (RENAME, name + 1), (REMOVE, 0), (WRITE, number)];
        for (procedure, other) in calls {
            let name = if procedure == REMOVE { name + 1 } else { name };
            xid += 1;
            let start = Instant::now();
            let words = [xid, 0, 2, 100_003, 3, procedure, 0, 0, 0, 0, name, other];
            send(&mut stream, &words, 0).unwrap();
            let reply = record(&mut stream).unwrap();
            assert_eq!(reply[..4], xid.to_be_bytes());
            assert_eq!(
                reply[24..28],
                [0; 4],
                "procedure {procedure} of {name}: {reply:?}"
            );
            longest = longest.max(start.elapsed());
            std::thread::sleep(pause);
        }
    }
    longest
}

/// The ways in which a link goes silent.
const CUTS: [&[char]; 3] = [&['c', 's'], &['c'], &['s']];

fn cut(pair: &Pair, n: usize, job: fn(&str, &str)) {
    let link = n as u32 % LINKS + 1;
    for side in CUTS[n % CUTS.len()] {
        let ns = if *side == 'c' {
            &pair.client
        } else {
            &pair.server
        };
        job(ns, &format!("{side}{link}"));
    }
}

/// What raddle has left of rules and routes.
fn left(client: &str) -> String {
    let mut all = String::new();
    for words in ["rule show", "route show table all proto 82"] {
        let mut command = Command::new("ip");
        command.args(["-n", client]).args(words.split(' '));
        all += &Outcome::of(&mut command).stdout;
    }
    let of_ours = |line: &&str| line.contains("fwmark") || line.contains("table 82");
    all.lines().filter(of_ours).collect()
}

#[test]
fn silent_links_run_no_call_twice() {
    const NAME: &str = "silent_links_run_no_call_twice";
    if !root(NAME) {
        return;
    }
    // 10,000 operations and more: RADDLE_RPC_OPERATIONS=10000.
    let operations = std::env::var("RADDLE_RPC_OPERATIONS").ok();
    let operations: u32 = operations.map_or(1_000, |count| count.parse().unwrap());
    let rounds = operations.div_ceil(4 * WORKERS);
    let pair = Pair::new("o");
    let server = once::serve(&pair, pace);
    let proxy = Proxy::start(&pair, &["--no-lane"]);
    proxy.all_up();
    let start = Instant::now();
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let ns = pair.client.clone();
            std::thread::spawn(move || {
                inside(&ns, move || {
                    worker(number, rounds, Duration::from_millis(100))
                })
            })
        })
        .collect();
    let mut cuts = 0;
    while workers.iter().any(|worker| !worker.is_finished()) {
        cut(&pair, cuts, silence);
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until && workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
        }
        cut(&pair, cuts, restore);
        cuts += 1;
    }
    let took = start.elapsed();
    let longest = workers.into_iter().map(|worker| worker.join());
    let longest = longest
        .map(|done| done.unwrap_or_else(|_| panic!("{}", proxy.log())))
        .max()
        .unwrap();
    let server = server.lock().unwrap();
    let status = proxy.status().unwrap();
    let detours = proxy.log().matches("detour=true").count();
    // In one piece, for those who run it by hand.
    let counters = &status["counters"];
    eprintln!(
        "{} operations in {took:?}, {cuts} cuts, {} replayed, {} answered by the cache, {detours} detours, the longest \
         call {longest:?}",
        server.runs.len(),
        counters["replayed"],
        server.hits
    );
    assert_eq!(server.runs.len() as u32, 4 * WORKERS * rounds);
    let twice: Vec<_> = server.runs.iter().filter(|(_, runs)| **runs != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert!(server.tree.is_empty());
    // What a worker wrote last is what is there.
    for (number, name) in &server.written {
        assert_eq!(*name, (number * rounds + rounds - 1) * 2);
    }
    assert!(counters["replayed"].as_u64() > Some(0), "{status}");
    assert_eq!(counters["clients_disconnected"], 0);
    // Detours are taken away when nothing is held any more.
    within(Duration::from_secs(60), || match left(&pair.client) {
        left if left.is_empty() => Ok(()),
        left => Err(left),
    });
}

/// Makes a directory by each transport, and gives the statuses of all within a time; 99 where there is none.
fn one_each(client: &str, first: u32, limit: Duration) -> Vec<u32> {
    let one = move |n| {
        move || {
            let mut stream = TcpStream::connect("127.0.0.1:2049").unwrap();
            stream.set_read_timeout(Some(limit)).unwrap();
            let words = [n, 0, 2, 100_003, 3, MKDIR, 0, 0, 0, 0, first + n, 0];
            send(&mut stream, &words, 0).unwrap();
            record(&mut stream).map_or(99, |reply| u32::from(reply[27]))
        }
    };
    let all: Vec<_> = (0..LINKS)
        .map(|n| {
            let ns = client.to_owned();
            std::thread::spawn(move || inside(&ns, one(n)))
        })
        .collect();
    all.into_iter().map(|one| one.join().unwrap()).collect()
}

/// What the status says about connections that are down, as soon as it says this.
fn says(proxy: &Proxy, what: &str) {
    within(Duration::from_secs(60), || {
        let status = proxy.status()?.to_string();
        status.contains(what).then_some(()).ok_or(status)
    });
}

const EACH: [&str; 3] = ["--no-lane", "--policy", "round-robin"];
const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_dead_way_out_is_gone_around_and_leaves_nothing() {
    if !root("a_dead_way_out_is_gone_around_and_leaves_nothing") {
        return;
    }
    let pair = Pair::new("w");
    let server = once::serve(&pair, pace);
    let mut proxy = Proxy::start(&pair, &EACH);
    proxy.all_up();
    assert_eq!(one_each(&pair.client, 0, LONG), [0; 4]);
    silence(&pair.client, "c2");
    let client = pair.client.clone();
    let watch = std::thread::spawn(move || {
        // Rules and routes are read one after the other: a route may be seen without its rule.
        within(LONG, || {
            let left = left(&client);
            match left.contains("fwmark") {
                true => Ok(left),
                false => Err(left),
            }
        })
        .0
    });
    assert_eq!(one_each(&pair.client, SLOW, LONG), [0; 4]);
    let seen = watch.join().unwrap();
    assert!(
        seen.contains("from all fwmark 0x520000 iif lo lookup 8200 proto 82"),
        "{seen}"
    );
    within(LONG, || {
        left(&pair.client)
            .is_empty()
            .then_some(())
            .ok_or(left(&pair.client))
    });
    assert!(server.lock().unwrap().runs.values().all(|runs| *runs == 1));
    // The end of the proxy takes them away. A crash leaves them, and the next start does not.
    for crashes in [false, true] {
        restore(&pair.client, "c2");
        drop(proxy);
        proxy = Proxy::start(&pair, &EACH);
        proxy.all_up();
        silence(&pair.client, "c2");
        let client = pair.client.clone();
        let first = SLOW + 10 + 10 * u32::from(crashes);
        let calls = std::thread::spawn(move || one_each(&client, first, Duration::from_secs(3)));
        within(LONG, || match left(&pair.client).is_empty() {
            true => Err(proxy.log()),
            false => Ok(()),
        });
        if crashes {
            proxy.crash();
        } else {
            proxy.end();
        }
        assert_eq!(left(&pair.client).is_empty(), !crashes);
        calls.join().unwrap();
    }
    let other = Proxy::start(&pair, &["--connections", "1", "--replay-table", "9000"]);
    other.all_up();
    assert_eq!(left(&pair.client), "");
}

#[test]
fn what_a_held_call_waits_for_is_said() {
    if !root("what_a_held_call_waits_for_is_said") {
        return;
    }
    let pair = Pair::new("h");
    let server = once::serve(&pair, pace);
    for (options, ns, side, said) in [
        (&[][..], &pair.server, 's', "the way back, by c3, is silent"),
        (
            &["--no-replay-routes"][..],
            &pair.client,
            'c',
            "and no detour may be made",
        ),
    ] {
        let proxy = Proxy::start(&pair, &[&EACH, options].concat());
        proxy.all_up();
        let link = format!("{side}3");
        silence(ns, &link);
        let first = server.lock().unwrap().tree.len() as u32;
        let client = pair.client.clone();
        let calls = std::thread::spawn(move || one_each(&client, first, LONG));
        says(&proxy, said);
        assert_eq!(
            proxy.status().unwrap()["held"].as_array().map(Vec::len),
            Some(1)
        );
        restore(ns, &link);
        assert_eq!(calls.join().unwrap(), [0; 4]);
        assert!(server.lock().unwrap().runs.values().all(|runs| *runs == 1));
    }
}

/// A firewall at the server: it drops what belongs to connections from ports in a set, until a SYN comes.
const FIREWALL: &str = "table inet fw {
    set gone { type inet_service; flags dynamic; size 1024; }
    set path { type inet_service; }
    chain in {
        type filter hook input priority 0;
        tcp dport @path drop
        tcp dport 2049 tcp flags & (syn|ack) == syn delete @gone { tcp sport }
        tcp dport 2049 tcp sport @gone drop
    }
    chain out {
        type filter hook output priority 0;
        tcp sport @path drop
        tcp sport 2049 tcp dport @gone drop
    }
}";

fn nft(ns: &str, words: &str) {
    done(Command::new("ip").args(["netns", "exec", ns, "nft", words]));
}

/// Calls of eight programs are under way while something happens; how long the longest took. Each is run once.
fn all_are_run_once(pair: &Pair, what: impl FnOnce(&Proxy)) -> Duration {
    let server = once::serve(pair, |_, _| [Duration::ZERO; 2]);
    let proxy = Proxy::start(pair, &[]);
    proxy.all_up();
    let go_on = Arc::new(AtomicBool::new(true));
    let workers: Vec<_> = (0..8)
        .map(|number| {
            let (ns, go_on) = (pair.client.clone(), Arc::clone(&go_on));
            std::thread::spawn(move || {
                inside(&ns, move || {
                    let (mut round, mut longest) = (0, Duration::ZERO);
                    while go_on.load(Ordering::Relaxed) {
                        let pause = Duration::from_millis(10);
                        longest = longest.max(worker((number << 12) | round, 1, pause));
                        round += 1;
                    }
                    longest
                })
            })
        })
        .collect();
    let runs = || server.lock().unwrap().runs.len();
    let more = |than: usize| {
        within(Duration::from_secs(60), || match runs() {
            now if now > than + 100 => Ok(()),
            now => Err(format!("{now} calls\n{}", proxy.log())),
        });
    };
    more(0);
    what(&proxy);
    more(runs());
    go_on.store(false, Ordering::Relaxed);
    let longest = workers.into_iter().map(|worker| worker.join());
    let longest = longest.map(|done| done.unwrap_or_else(|_| panic!("{}", proxy.log())));
    let longest = longest.max().unwrap();
    let server = server.lock().unwrap();
    let twice: Vec<_> = server.runs.iter().filter(|(_, runs)| **runs != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert!(server.tree.is_empty());
    longest
}

#[test]
fn a_firewall_that_forgets_everything_costs_seconds() {
    if !root("a_firewall_that_forgets_everything_costs_seconds") {
        return;
    }
    let pair = Pair::new("g");
    nft(&pair.server, FIREWALL);
    let longest = all_are_run_once(&pair, |proxy| {
        let transports = proxy.all_up();
        let ports = transports.iter().map(|t| port_of(t).to_string());
        let ports = ports.collect::<Vec<_>>().join(", ");
        let add = format!("add element inet fw gone {{ {ports} }}");
        nft(&pair.server, &add);
    });
    eprintln!("the longest call: {longest:?}");
    // TCP alone would try for a quarter of an hour.
    assert!(longest < Duration::from_secs(15), "{longest:?}");
}

#[test]
fn a_path_that_comes_back_is_used_within_seconds() {
    if !root("a_path_that_comes_back_is_used_within_seconds") {
        return;
    }
    const GONE: Duration = Duration::from_secs(30);
    let pair = Pair::new("p");
    nft(&pair.server, FIREWALL);
    let longest = all_are_run_once(&pair, |_| {
        nft(&pair.server, "add element inet fw path { 2049 }");
        std::thread::sleep(GONE);
        nft(&pair.server, "delete element inet fw path { 2049 }");
    });
    eprintln!("the longest call: {longest:?}, of which the path was gone for {GONE:?}");
    assert!(longest < GONE + Duration::from_secs(15), "{longest:?}");
}
