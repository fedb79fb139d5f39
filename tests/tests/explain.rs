//! `raddle explain` and `raddle snapshot` beside the kernel: forwarded and local flows, packets of all
//! kinds, snapshots made from `ip -j`, and what `--watch` says.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::io::BufRead;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use raddle_e2e::{Daemon, Outcome, Random, World, frame, raddle, root, within};
use serde_json::Value;

const SEED: &str = "net.ipv4.fib_multipath_hash_seed";

/// Destinations behind several nexthops: of a route's own (with a neighbour that has failed, weights,
/// one that is not used), of a group, and a connected one.
fn world(name: &str) -> World {
    let world = World::new(name, 4);
    world.sysctl(SEED, "3405691582");
    world.ip("addr add 10.7.7.7/32 dev lo");
    world.ip("addr add 2001:db8:7::7/128 dev lo");
    let (mut four, mut six, mut group) = (String::new(), String::new(), Vec::new());
    for n in 1..=4 {
        let (v4, v6) = world.gateway(n);
        let dev = world.out(n);
        four += &format!(
            " nexthop via {v4} dev {dev} weight {}",
            [3, 1, 7, 2][n as usize - 1]
        );
        six += &format!(
            " nexthop via {v6} dev {dev} weight {}",
            [1, 5, 2, 2][n as usize - 1]
        );
        for (id, gateway) in [(n, IpAddr::from(v4)), (n + 10, v6.into())] {
            world.ip(&format!("nexthop add id {id} via {gateway} dev {dev}"));
        }
        group.push(n);
    }
    world.ip("nexthop add id 100 group 1,4/2/3,2/4");
    world.ip("nexthop add id 200 group 14/11,9/12/13");
    world.ip(&format!("route add 100.64.0.0/16 {four}"));
    world.ip("route add 100.65.0.0/16 nhid 100");
    world.ip("nexthop add id 300 group 1,3/2/3 type resilient buckets 32 idle_timer 600");
    world.ip("route add 100.66.0.0/16 nhid 300");
    world.ip(&format!("-6 route add 2001:db8:64::/48 {six}"));
    world.ip("-6 route add 2001:db8:65::/48 nhid 200");
    world
}

/// `explain -j --check WORDS`, which fails when the kernel does otherwise.
fn checked(world: &World, words: &str) -> Value {
    let arguments: Vec<&str> = ["explain", "-j", "--check"]
        .into_iter()
        .chain(words.split_whitespace())
        .collect();
    world.raddle_json(&arguments)
}

/// Random fields for policy 3.
fn fields(world: &World, rng: &mut Random) {
    for family in ["ipv4", "ipv6"] {
        let fields = (1 + rng.below(0xfff)).to_string();
        world.sysctl(&format!("net.{family}.fib_multipath_hash_fields"), &fields);
    }
}

fn level(answer: &Value) -> &str {
    answer["confidence"]["level"].as_str().unwrap()
}

#[test]
fn forwarded_flows_go_where_the_kernel_sends_them_in_both_directions() {
    if !root("forwarded_flows_go_where_the_kernel_sends_them_in_both_directions") {
        return;
    }
    let world = world("exfwd");
    let mut rng = Random::new(7);
    for policy in [0, 1, 2, 3] {
        world.policy(policy);
        fields(&world, &mut rng);
        for (dst, src) in [
            ("100.64.1", "10.1.1"),
            ("100.65.1", "10.1.1"),
            ("100.66.1", "10.1.1"),
            ("2001:db8:64::", "2001:db8:1:1::"),
            ("2001:db8:65::", "2001:db8:1:1::"),
        ] {
            let v4 = dst.contains('.');
            // The kernel answers by other rules there.
            if policy == 3 && !v4 {
                continue;
            }
            let host = |net: &str, n: u64| match v4 {
                true => format!("{net}.{n}"),
                false => format!("{net}{n}"),
            };
            let mut links = std::collections::BTreeSet::new();
            for _ in 0..8 {
                let [a, b, p, q] = [200, 250, 65_535, 65_535].map(|n| 3 + rng.below(n - 3) as u64);
                let proto = *rng.pick(&["tcp", "udp"]);
                let words = format!(
                    "--both {} from {} iif source ipproto {proto} sport {p} dport {q}",
                    host(dst, a),
                    host(src, b)
                );
                let answer = checked(&world, &words);
                links.insert(answer["link"].as_str().unwrap().to_owned());
                assert_eq!(answer["reverse"]["link"], "source", "{words}: {answer}");
                assert_eq!(answer["symmetry"]["same_link"], true);
                assert_eq!(answer["reverse"]["flow"]["iif"], answer["link"]);
                let sure = if policy == 1 { "exact-unless" } else { "exact" };
                assert_eq!(level(&answer), sure, "{answer}");
            }
            assert!(policy == 3 || links.len() > 1, "{dst}: only {links:?}");
        }
    }
}

#[test]
fn local_flows_go_where_the_kernel_sends_them() {
    if !root("local_flows_go_where_the_kernel_sends_them") {
        return;
    }
    let world = world("exlocal");
    // Passed over in the group, and in the route once use_neigh says so.
    world.neighbours(2, "failed");
    let mut rng = Random::new(8);
    for (policy, use_neigh) in [(0, 0), (1, 0), (1, 1), (2, 0), (3, 1)] {
        world.policy(policy);
        fields(&world, &mut rng);
        world.sysctl("net.ipv4.fib_multipath_use_neigh", &use_neigh.to_string());
        for (dst, sources) in [
            ("100.64.1.", ["", "10.7.7.7", "10.2.2.1", "10.2.3.1"]),
            ("100.65.1.", ["", "10.7.7.7", "10.2.2.1", "10.2.3.1"]),
            ("100.66.1.", ["", "10.7.7.7", "10.2.2.1", "10.2.3.1"]),
            (
                "2001:db8:64::",
                ["", "2001:db8:7::7", "2001:db8:2:2::1", ""],
            ),
            (
                "2001:db8:65::",
                ["", "2001:db8:7::7", "2001:db8:2:2::1", ""],
            ),
        ] {
            for source in sources {
                for _ in 0..4 {
                    let [a, p, q] = [200, 65_535, 65_535].map(|n| 3 + rng.below(n - 3));
                    let proto = *rng.pick(&["tcp", "udp"]);
                    let from = match source {
                        "" => String::new(),
                        source => format!("from {source}"),
                    };
                    // The kernel answers that by a made-up packet.
                    if policy == 3 && dst.contains('.') {
                        continue;
                    }
                    let words = format!("{dst}{a} {from} ipproto {proto} sport {p} dport {q}");
                    let answer = checked(&world, &words);
                    assert!(answer["link"].is_string(), "{words}: {answer}");
                    assert_ne!(level(&answer), "unknown", "{words}: {answer}");
                }
            }
        }
    }
}

/// Over IPv6 a machine that does not forward passes over neighbours that have failed.
#[test]
fn a_host_passes_over_failed_ipv6_neighbours() {
    if !root("a_host_passes_over_failed_ipv6_neighbours") {
        return;
    }
    let world = world("exhost");
    world.sysctl("net.ipv6.conf.all.forwarding", "0");
    for n in [1, 2] {
        let (_, gateway) = world.gateway(n);
        let dev = world.out(n);
        world.ip(&format!(
            "neigh replace {gateway} dev {dev} nud failed extern_learn"
        ));
    }
    let mut rules = std::collections::BTreeSet::new();
    for n in 1..40 {
        let answer = checked(&world, &format!("2001:db8:64::{n:x} ipproto udp"));
        let steps = answer["steps"].as_array().unwrap();
        let member = steps.iter().find(|step| step["step"] == 9).unwrap();
        rules.insert(member["data"]["rule"].as_u64().unwrap());
    }
    assert_eq!(rules.into_iter().collect::<Vec<_>>(), [1, 2]);
}

/// A connected socket has the source of its first look-up; an unconnected one sends by that path.
#[test]
fn sockets_get_the_source_that_was_explained() {
    if !root("sockets_get_the_source_that_was_explained") {
        return;
    }
    let world = world("exsocket");
    let mut sources = std::collections::BTreeSet::new();
    for policy in [0, 1] {
        world.policy(policy);
        for n in 1..12u16 {
            let net = if n % 2 == 0 { "100.64.2" } else { "100.65.2" };
            let port = 20_000 + 100 * policy as u16 + n;
            let peer: SocketAddr = format!("{net}.{n}:53").parse().unwrap();
            let own = world.lab().within("router", || {
                let socket = UdpSocket::bind(("0.0.0.0", port)).unwrap();
                socket.connect(peer).unwrap();
                socket.local_addr().unwrap().ip().to_string()
            });
            let answer = checked(
                &world,
                &format!("{} ipproto udp sport {port} dport 53", peer.ip()),
            );
            let own = own.unwrap();
            // It has looked again, with that source.
            let words = format!("{} from {own} ipproto udp sport {port} dport 53", peer.ip());
            let steps = answer["steps"].as_array().unwrap();
            let last = steps.last().unwrap();
            assert_eq!(last["step"], 12);
            assert_eq!(last["data"]["connected"], checked(&world, &words)["link"]);
            assert_eq!(answer["source"], *own, "{answer}");
            sources.insert(answer["source"].to_string());
        }
    }
    assert!(sources.len() > 2, "{sources:?}");
}

/// An answer that may be wrong says so: packets bring a hash along, the seed is random.
#[test]
fn what_cannot_be_known_is_said() {
    if !root("what_cannot_be_known_is_said") {
        return;
    }
    let world = world("exunknown");
    world.policy(1);
    let flow = "explain -j 100.65.1.9 from 10.1.1.2 iif source ipproto udp sport 5 dport 6";
    let ask = |words: &str| world.raddle_json(&words.split(' ').collect::<Vec<_>>());
    assert_eq!(level(&ask(flow)), "exact-unless");
    let mut shell = world.lab().command("router", "sh").unwrap();
    let steer = "echo 3 >/sys/class/net/source/queues/rx-0/rps_cpus";
    let steered = Outcome::of(shell.args(["-c", steer]));
    assert_eq!(steered.code, Some(0), "{}", steered.stderr);
    // Root knows the key of that hash; what a socket brings, nobody does.
    let answer = ask(flow);
    assert_eq!(level(&answer), "exact-unless");
    let why = answer["confidence"]["why"].to_string();
    assert!(why.contains("socket"), "{why}");
    assert!(
        answer.to_string().contains("receive packet steering"),
        "{answer}"
    );
    let hidden = world.raddle(&flow.split(' ').chain(["--check"]).collect::<Vec<_>>());
    assert_eq!(hidden.code, Some(2), "{}", hidden.stderr);
    world.policy(0);
    assert_eq!(level(&ask(flow)), "exact");
    assert_eq!(
        level(&ask(&flow.replace("-j", "-j --kernel 6.1.0"))),
        "exact-unless"
    );
    // By the kernel's own key, and by nobody's where that is not known.
    world.sysctl(SEED, "0");
    assert_eq!(level(&ask(flow)), "exact");
    let snapshot = tempfile::NamedTempFile::new().unwrap();
    let file = snapshot.path().to_str().unwrap();
    assert_eq!(world.raddle(&["snapshot", file]).code, Some(0));
    let by_snapshot = flow.replace("-j", &format!("-j --snapshot {file}"));
    assert_eq!(level(&ask(&by_snapshot)), "unknown");
}

/// Packets of all kinds: ICMP errors, fragments, tunnels, extension headers.
#[test]
fn packets_go_where_the_kernel_forwards_them() {
    if !root("packets_go_where_the_kernel_forwards_them") {
        return;
    }
    let world = world("expackets");
    let mut rng = Random::new(9);
    for policy in [0, 1, 2, 3] {
        world.policy(policy);
        fields(&world, &mut rng);
        let v4 = (1..30).map(|n| [100, 64 + n % 2, 3, n].into()).collect();
        let v6 = (1..30u16)
            .map(|n| [0x2001, 0xdb8, 0x64 + n % 2, 0, 0, 0, 0, n].into())
            .collect();
        let addresses = frame::Addresses {
            tunnels: 2 * policy as u8,
            ..world.addresses(v4, v6)
        };
        let frames = frame::random(&mut rng, &addresses, 160);
        let arrived = world.transmit(&frames);
        let mut kinds = std::collections::BTreeMap::new();
        for (frame, arrivals) in frames.iter().zip(&arrived) {
            // Back to where they came from, or to this machine, is not by a choice.
            let Some(arrival) = arrivals.first() else {
                continue;
            };
            let hex: String = frame.bytes.iter().map(|b| format!("{b:02x}")).collect();
            let answer = world.raddle_json(&["explain", "-j", "--hex", &hex, "iif", "source"]);
            assert_eq!(
                answer["link"], *arrival.link,
                "policy {policy}: {} {hex}: {answer}",
                frame.kind
            );
            assert_eq!(answer["packet"]["framing"], "ethernet");
            *kinds.entry(frame.kind).or_insert(0) += 1;
        }
        eprintln!("policy {policy}: {kinds:?}");
        for kind in ["ICMP", "ICMPv6", "tunnel", "later fragment", "transport"] {
            assert!(
                kinds.contains_key(kind),
                "no {kind} was forwarded: {kinds:?}"
            );
        }
    }
}

/// The lines that the help prints, run by a shell, make the same snapshot as the live kernel does.
#[test]
fn output_of_ip_makes_the_same_snapshot() {
    if !root("output_of_ip_makes_the_same_snapshot") {
        return;
    }
    let world = world("exfromip");
    world.policy(1);
    world.neighbours(2, "failed");
    world.ip("addr add 10.8.8.1 peer 10.8.8.2 dev sink");
    world.ip("nexthop add id 50 blackhole");
    world.ip("nexthop add id 60 dev sink");
    world.ip("route add 100.67.0.0/16 nhid 60 table 77 metric 5");
    world.ip("route add blackhole 100.68.0.0/16");
    world.ip("route add 100.69.0.0/16 via inet6 2001:db8:2:1::2 dev sink mtu 1400");
    world.ip("-6 route add unreachable 2001:db8:68::/48");
    world.ip("rule add iif source lookup 77 pref 100");
    world.ip("rule add to 100.70.0.0/16 fwmark 3/0xff lookup 78 pref 101");
    world.ip("-6 rule add not from 2001:db8::/32 lookup 79 pref 102");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let help = Outcome::of(Command::new(raddle()).args(["snapshot", "--help"]));
    let lines: Vec<&str> = help
        .stdout
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("mkdir "))
        .collect();
    assert!(lines.len() > 4, "{}", help.stdout);
    let script = format!(
        "set -e; cd {}\n{}",
        folder.path().display(),
        lines.join("\n")
    );
    let mut shell = world.lab().command("router", "sh").unwrap();
    let collected = Outcome::of(shell.args(["-c", &script]));
    assert_eq!(collected.code, Some(0), "{}", collected.stderr);
    let live = world.raddle(&["snapshot", &path("live.json")]);
    assert_eq!(live.code, Some(0), "{}", live.stderr);
    // As somebody else, elsewhere.
    let made = Outcome::of(Command::new(raddle()).args([
        "snapshot",
        "--from-ip",
        &path("net"),
        &path("made.json"),
    ]));
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let read = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(path(name)).unwrap()).unwrap()
    };
    let (live, made) = (used(read("live.json")), used(read("made.json")));
    for key in live.as_object().unwrap().keys() {
        let pretty = |value: &Value| serde_json::to_string_pretty(&value[key]).unwrap();
        assert_eq!(pretty(&live), pretty(&made), "{key}");
    }
    for words in [
        "100.64.1.7 from 10.1.1.2 iif source ipproto udp sport 5 dport 6",
        "100.65.1.7 ipproto udp sport 5 dport 6",
        "2001:db8:65::9 from 2001:db8:1:1::2 iif source ipproto tcp sport 5 dport 6",
        "100.66.0.1 from 10.1.1.2 iif source",
        "100.67.0.1 from 10.1.1.2 iif source",
    ] {
        let answer = |name: &str| {
            let mut command = Command::new(raddle());
            command.args(["explain", "--snapshot", &path(name)]);
            Outcome::of(command.args(words.split(' ')))
        };
        let (live, made) = (answer("live.json"), answer("made.json"));
        assert_eq!(live.code, Some(0), "{words}: {}", live.stderr);
        assert_eq!(live.stdout, made.stdout, "{words}");
    }
}

/// What `explain` uses of a snapshot: without what `ip` does not print, or prints otherwise.
fn used(mut snapshot: Value) -> Value {
    let without = |value: &mut Value, keys: &[&str]| {
        for object in value.as_array_mut().unwrap() {
            for key in keys {
                object.as_object_mut().unwrap().remove(*key);
            }
        }
    };
    without(&mut snapshot["addresses"], &["flags"]);
    without(&mut snapshot["neighbours"], &["flags"]);
    // Of a nexthop that has only a device, nobody says of which family it is.
    without(&mut snapshot["nexthops"], &["family"]);
    without(&mut snapshot["routes"], &["flags"]);
    without(&mut snapshot["buckets"], &["idle_time"]);
    for rule in snapshot["rules"].as_array_mut().unwrap() {
        // Which selectors there are beside those with fields, not which numbers they have.
        let plain = rule["other"].as_array().unwrap().is_empty();
        rule["other"] = plain.into();
    }
    for neighbour in snapshot["neighbours"].as_array_mut().unwrap() {
        // These change while somebody looks.
        let state = neighbour["state"].as_u64().unwrap();
        neighbour["state"] = (state & 0x2 != 0 || state & 0x1c != 0).into();
    }
    snapshot
}

#[test]
fn watching_tells_what_changed() {
    if !root("watching_tells_what_changed") {
        return;
    }
    let world = world("exwatch");
    world.policy(0);
    let words = "explain -j --watch --count 3 --for 20 100.65.1.9 from 10.1.1.2 iif source";
    let arguments: Vec<&str> = words.split(' ').collect();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let file = std::fs::File::create(&out).unwrap();
    let mut watch = world
        .command(&arguments)
        .stdout(Stdio::from(file))
        .spawn()
        .unwrap();
    let lines = |count: usize| {
        let (lines, _) = within(Duration::from_secs(60), || {
            let text = std::fs::read_to_string(&out).unwrap();
            let lines: Vec<Value> = text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect();
            match lines.len() >= count {
                true => Ok(lines),
                false => Err(format!("{count} answers wanted: {text}")),
            }
        });
        lines
    };
    let first = lines(1).remove(0);
    assert_eq!(first["changed"].as_array().unwrap().len(), 0);
    let link = first["answer"]["link"].as_str().unwrap().to_owned();
    let number = (1..=4).find(|n| world.out(*n) == link).unwrap();
    world.neighbours(number, "failed");
    let second = lines(2).remove(1);
    let said =
        |line: &Value, name: &str| line["changed"].as_array().unwrap().contains(&name.into());
    assert_ne!(second["answer"]["link"], *link);
    for name in ["group", "member", "link"] {
        assert!(said(&second, name), "{name}: {}", second["changed"]);
    }
    assert!(second["time"].as_str().unwrap().ends_with('Z'));
    world.policy(1);
    let third = lines(3).remove(2);
    assert!(
        said(&third, "policy") && said(&third, "fields"),
        "{}",
        third["changed"]
    );
    assert_eq!(watch.wait().unwrap().code(), Some(0));

    // Ctrl-C is how one ends it otherwise.
    let mut endless = world.command(&["explain", "--watch", "100.65.1.9"]);
    let mut endless = endless.stdout(Stdio::piped()).spawn().unwrap();
    let mut text = std::io::BufReader::new(endless.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("=> dev") {
        line.clear();
        assert_ne!(text.read_line(&mut line).unwrap(), 0, "no answer");
    }
    let pid = nix::unistd::Pid::from_raw(endless.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(endless.wait().unwrap().code(), Some(0));
}

/// Where raddle runs, answers are by what it goes by: the kernel's own key where no seed is set, and not the hash that packets
/// get for steering, which comes after it.
#[test]
fn what_raddle_forwards_goes_as_explained() {
    if !root("what_raddle_forwards_goes_as_explained") {
        return;
    }
    let world = world("exours");
    world.policy(1);
    world.sysctl(SEED, "0");
    let mut shell = world.lab().command("router", "sh").unwrap();
    let steer = "echo 3 >/sys/class/net/source/queues/rx-0/rps_cpus";
    let steered = Outcome::of(shell.args(["-c", steer]));
    assert_eq!(steered.code, Some(0), "{}", steered.stderr);
    let flows: Vec<frame::Flow> = (1000..1040)
        .map(|sport| frame::Flow {
            src: [10, 1, 1, 7].into(),
            dst: [100, 65, 1, 9].into(),
            proto: 17,
            sport,
            dport: 9,
        })
        .collect();
    let frames = world.frames(&flows);
    let explained = |about: &str| -> Vec<String> {
        let each = frames.iter().map(|frame| {
            let hex: String = frame
                .bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            let answer = world.raddle_json(&["explain", "-j", "--hex", &hex, "iif", "source"]);
            let link = answer["link"].as_str().unwrap_or("none").to_owned();
            if about == "raddle" {
                assert_eq!(answer["engine"]["verdict"], "forward", "{answer:#}");
                assert_eq!(answer["engine"]["link"], link, "{answer:#}");
            }
            link
        });
        each.collect()
    };
    let sent = |about: &str| -> Vec<String> {
        let came = world.transmit(&frames);
        came.iter()
            .map(|arrivals| match arrivals.as_slice() {
                [arrival] => arrival.link.clone(),
                other => panic!("{about}: {other:?}"),
            })
            .collect()
    };
    let kernels = explained("kernel");
    assert_eq!(sent("kernel"), kernels);
    let daemon = Daemon::start(&world, &[]);
    let ours = explained("raddle");
    assert_ne!(ours, kernels);
    assert_eq!(sent("raddle"), ours);
    let words = "explain -j 100.65.1.9 from 10.1.1.7 iif source ipproto udp sport 1000 dport 9";
    let answer = world.raddle_json(&words.split(' ').collect::<Vec<_>>());
    assert_eq!(answer["link"], *ours[0]);
    daemon.terminate();
}
