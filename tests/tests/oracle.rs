//! The third oracle: the running kernel. The same frames are forwarded by it, then by raddle, and
//! by `raddle replay`; all have to leave by the same link with the same bytes.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use raddle_e2e::frame::{self, Flow, identity, ip_end};
use raddle_e2e::{Arrival, Crafted, Daemon, Outcome, Random, World, readable_raddle, root};
use raddle_io::{Reader, Record, Resolution, Writer};
use raddle_rib::event::{Event, GroupMember, Nexthop, NexthopKind};
use serde_json::Value;

const LINKS: u32 = 5;
const FRAMES: usize = 700;

#[test]
fn raddle_does_what_the_kernel_does_with_policy_0() {
    if root("raddle_does_what_the_kernel_does_with_policy_0") {
        compare("oracle0", 0);
    }
}

#[test]
fn raddle_does_what_the_kernel_does_with_policy_1() {
    if root("raddle_does_what_the_kernel_does_with_policy_1") {
        compare("oracle1", 1);
    }
}

#[test]
fn raddle_does_what_the_kernel_does_with_policy_2() {
    if root("raddle_does_what_the_kernel_does_with_policy_2") {
        compare("oracle2", 2);
    }
}

#[test]
fn raddle_does_what_the_kernel_does_with_policy_3() {
    if root("raddle_does_what_the_kernel_does_with_policy_3") {
        compare("oracle3", 3);
    }
}

/// What the kernel does with sources that are not plain hosts depends on rules and routes, also on those that
/// are gone (`fib_validate_source`).
#[test]
fn sources_are_refused_as_the_kernel_refuses_them() {
    if !root("sources_are_refused_as_the_kernel_refuses_them") {
        return;
    }
    let world = World::new("sources", 3);
    world.ip("route add 10.9.7.0/24 via 10.2.2.2");
    world.ip("route add 172.16.0.0/12 via 10.1.1.2");
    world.ip("route add unreachable 203.0.113.0/25");
    world.ip("route add blackhole 203.0.113.128/25");
    let plain = [
        "10.1.1.7",
        "172.16.5.5",
        "203.0.113.1",
        "203.0.113.130",
        "198.51.100.1",
    ];
    let odd = [
        "10.1.1.255",
        "10.2.1.255",
        "10.1.1.1",
        "10.2.2.1",
        "10.2.3.1",
        "192.0.2.5",
        "192.0.2.77",
    ];
    let sources: Vec<&str> = plain.into_iter().chain(odd).collect();
    let flow = |source: &&str| Flow {
        src: source.parse().unwrap(),
        dst: "10.9.7.9".parse().unwrap(),
        proto: 17,
        sport: 7,
        dport: 9,
    };
    let flows: Vec<Flow> = sources.iter().map(flow).collect();
    let frames = world.frames(&flows);
    let mut refused = BTreeSet::new();
    for (what, commands) in [
        ("as it begins", &[][..]),
        (
            "a rule has come and gone",
            &[
                "rule add from 192.0.2.1 lookup 77",
                "rule del from 192.0.2.1 lookup 77",
            ],
        ),
        (
            "local routes",
            &[
                "route add local 192.0.2.0/26 dev lo table 88",
                "route add local 192.0.2.64/26 dev lo",
            ],
        ),
        (
            "a rule for packets from the out-link",
            &["rule add iif sink-2 lookup 88 pref 100"],
        ),
        (
            "a rule for packets from another link",
            &[
                "rule del pref 100",
                "rule add iif sink-3 lookup 88 pref 100",
            ],
        ),
        (
            "no way back",
            &["rule del pref 100", "rule add iif sink-2 prohibit pref 100"],
        ),
        (
            "a realm",
            &[
                "rule del pref 100",
                "route add 10.9.8.0/24 via 10.2.3.2 realm 5",
            ],
        ),
    ] {
        commands.iter().for_each(|command| drop(world.ip(command)));
        for accept_local in ["0", "1"] {
            world.sysctl("net.ipv4.conf.source.accept_local", accept_local);
            let about = format!("{what}, accept_local {accept_local}");
            let kernel = world.transmit(&frames);
            let replayed = replay(&world, &frames);
            let daemon = Daemon::start(&world, &[]);
            let ours = world.transmit_again(&frames, &kernel);
            assert_eq!(world.late(), 0, "{about}");
            for ((flow, kernel), ours) in flows.iter().zip(&kernel).zip(&ours) {
                let links = |arrivals: &[Arrival]| -> Vec<String> {
                    arrivals.iter().map(|a| a.link.clone()).collect()
                };
                assert_eq!(links(kernel), links(ours), "{about}: {}", flow.src);
                let answer = world.raddle(&[
                    "explain",
                    "-j",
                    "10.9.7.9",
                    "from",
                    &flow.src.to_string(),
                    "iif",
                    "source",
                    "ipproto",
                    "udp",
                    "sport",
                    "7",
                    "dport",
                    "9",
                ]);
                let answer: Value = serde_json::from_str(&answer.stdout).unwrap();
                let same = answer["link"].as_str() == kernel.first().map(|a| &*a.link);
                let exact = answer["confidence"]["level"] == "exact";
                assert!(same || !exact, "{about}: {}: {answer}", flow.src);
                if kernel.is_empty() {
                    refused.insert(flow.src.to_string());
                }
            }
            same_as_replayed(&about, &frames, &kernel, &replayed, daemon.forwarded());
            for frame in &frames[..plain.len()] {
                let itself = replayed.contains_key(&identity(&frame.bytes));
                assert!(
                    itself,
                    "{about}: {}: {}",
                    describe(frame),
                    daemon.counters()
                );
            }
            daemon.terminate();
        }
    }
    assert_eq!(
        refused.into_iter().collect::<Vec<_>>().len(),
        odd.len(),
        "every odd source is refused once"
    );
}

/// Several random configurations in one network. `RADDLE_SEED` changes them.
fn compare(name: &str, policy: u32) {
    let seed = std::env::var("RADDLE_SEED").map_or(1, |s| s.parse().unwrap());
    let world = World::new(name, LINKS);
    world.policy(policy);
    for round in 0..2 {
        let mut rng = Random::new(seed * 1000 + u64::from(policy) * 100 + round);
        let hash_seed = rng.bits() as u32;
        world.sysctl("net.ipv4.fib_multipath_hash_seed", &hash_seed.to_string());
        let fields = [rng.bits() as u32, 0x37, rng.bits() as u32, 0xfc0][rng.below(4)] & 0xfff;
        for family in ["ipv4", "ipv6"] {
            let sysctl = format!("net.{family}.fib_multipath_hash_fields");
            // The kernel wants some field.
            world.sysctl(&sysctl, &fields.max(1).to_string());
        }
        let about = format!(
            "policy {policy}, fields {fields:#x}, hash seed {hash_seed}, round {round}, seed {seed}"
        );
        let (v4, v6) = routes(&world, &mut rng);
        let addresses = frame::Addresses {
            tunnels: if policy < 2 { 0 } else { 4 },
            ..world.addresses(v4, v6)
        };
        let frames = frame::random(&mut rng, &addresses, FRAMES);
        let kernel = world.transmit(&frames);
        let replayed = replay(&world, &frames);

        let daemon = Daemon::start(&world, &[]);
        let ours = world.transmit_again(&frames, &kernel);
        assert_eq!(world.late(), 0, "{about}");
        // Replay shows no buckets to the kernel.
        let by_raddle = daemon.forwarded() + daemon.reason("bucket-activity");

        same(&about, &frames, &kernel, &ours);
        forwarded_itself(&about, &frames, &kernel, &replayed);
        same_as_replayed(&about, &frames, &kernel, &replayed, by_raddle);
        // Questions about IPv6 flows the kernel answers by other rules than it forwards by.
        let asks = |frame: &Crafted| policy < 2 || frame.flow.is_some_and(|f| f.src.is_ipv4());
        let some = |(frame, arrivals): (&Crafted, &Vec<Arrival>)| {
            asks(frame).then(|| (frame.clone(), arrivals.clone()))
        };
        let (asked_of, answers): (Vec<_>, Vec<_>) =
            frames.iter().zip(&kernel).filter_map(some).unzip();
        asked(&about, &world, &asked_of, &answers);
        explained(&about, &world, &asked_of, &answers, &replayed);
        daemon.terminate();
    }
}

/// Random routes of every kind, in place of those of the round before. Addresses in them.
fn routes(world: &World, rng: &mut Random) -> (Vec<Ipv4Addr>, Vec<Ipv6Addr>) {
    // Nobody is there, and the kernel has found that out. It may forget neighbours, but not those
    // that somebody else has learnt.
    for n in 1..=LINKS {
        let dev = world.out(n);
        world.ip(&format!(
            "neigh replace 10.2.{n}.77 dev {dev} nud failed extern_learn"
        ));
        world.ip(&format!(
            "neigh replace 2001:db8:2:{n}::77 dev {dev} nud failed extern_learn"
        ));
    }
    group(world, rng, 100, false);
    group(world, rng, 200, true);
    let (first, last) = (101, 100 + LINKS);
    world.ip(&format!(
        "nexthop replace id 300 group {first}/{last} type resilient buckets 32"
    ));
    let use_neigh = rng.below(2).to_string();
    world.sysctl("net.ipv4.fib_multipath_use_neigh", &use_neigh);
    let (hops4, hops6) = (hops(world, rng, false), hops(world, rng, true));
    let (other4, other6) = (hops(world, rng, false), hops(world, rng, true));
    let (one4, one6) = world.gateway(1 + rng.below(LINKS as usize) as u32);
    let (_, via6) = world.gateway(1 + rng.below(LINKS as usize) as u32);
    for route in [
        &*format!("203.0.113.0/24 {hops4}"),
        &*format!("203.0.113.64/26 via {one4}"),
        &*format!("100.64.0.0/10 {other4}"),
        "100.64.7.0/24 nhid 100",
        "198.51.100.0/24 nhid 100",
        "blackhole 198.51.100.32/27",
        "unreachable 198.51.100.64/27",
        "prohibit 198.51.100.96/27",
        // What engines do not model goes to the kernel.
        "100.64.8.0/24 nhid 300",
        "100.64.9.0/24 encap seg6 mode encap segs 2001:db8:10:7::1 dev sink",
        &*format!("203.0.113.128/26 tos 0x10 via {one4}"),
        &*format!("192.0.2.0/25 via inet6 {via6}"),
        &*format!("192.0.2.128/25 via {one4} mtu 1400"),
        &*format!("2001:db8:10::/48 {hops6}"),
        &*format!("2001:db8:10:7::/64 via {one6}"),
        &*format!("2001:db8:8000::/33 {other6}"),
        "2001:db8:11::/48 nhid 200",
        "2001:db8:11:8::/61 nhid 200",
        "blackhole 2001:db8:11:10::/60",
        "unreachable 2001:db8:11:20::/60",
        &*format!("2001:db8:11:30::/60 via {one6} mtu 1400"),
    ] {
        let six = route
            .split(' ')
            .any(|word| word.contains(':') && word.contains('/'));
        let family = if six { "-6" } else { "-4" };
        world.ip(&format!("{family} route replace {route}"));
    }
    let mut v4 = vec![Ipv4Addr::new(203, 0, 114, 1)];
    let mut v6 = vec!["2001:db8:12::1".parse().unwrap()];
    for n in 0..90_u8 {
        v4.push(Ipv4Addr::new(203, 0, 113, n * 2));
        v4.push(Ipv4Addr::new(198, 51, 100, n * 2));
        v4.push(Ipv4Addr::new(100, 64 + n % 64, 7, n));
        v4.push(Ipv4Addr::new(100, 64, 7 + n % 3, n));
        v4.push(Ipv4Addr::new(192, 0, 2, n * 2));
        let n = u16::from(n);
        v6.push(Ipv6Addr::new(0x2001, 0xdb8, 0x10, n % 12, n, 0, 0, 1));
        v6.push(Ipv6Addr::new(0x2001, 0xdb8, 0x11, n, 0, n, 0, 1));
        v6.push(Ipv6Addr::new(
            0x2001,
            0xdb8,
            0x8000 + 256 * n,
            1,
            0,
            0,
            n,
            1,
        ));
    }
    (v4, v6)
}

/// Nexthops of a plain multipath route: any number, any weight, now and then the same twice, or one
/// who does not answer.
fn hops(world: &World, rng: &mut Random, six: bool) -> String {
    let count = 2 + rng.below(6);
    let mut text = String::new();
    for i in 0..count {
        let link = 1 + rng.below(LINKS as usize) as u32;
        let weight = *rng.pick(&[1, 1, 2, 3, 17, 100, 255, 256]);
        // IPv6 joins what differs in gateway only once; so each has its own there.
        let (gateway, link) = match six {
            false if rng.once_in(9) => (IpAddr::from([10, 2, link as u8, 77]), link),
            false => (world.gateway(link).0.into(), link),
            true if i >= LINKS as usize => break,
            true => (world.gateway(i as u32 + 1).1.into(), i as u32 + 1),
        };
        text += &format!(
            " nexthop via {gateway} dev {} weight {weight}",
            world.out(link)
        );
    }
    text
}

/// A nexthop group `id` of members `id + 1` and up, weights to 65535.
fn group(world: &World, rng: &mut Random, id: u32, six: bool) {
    let mut members = Vec::new();
    for n in 1..=LINKS + 1 {
        // The last one does not answer.
        let link = if n > LINKS { 2 } else { n };
        let (four, six_gateway) = world.gateway(link);
        let gateway: IpAddr = match (six, n > LINKS) {
            (false, false) => four.into(),
            (true, false) => six_gateway.into(),
            (false, true) => [10, 2, 2, 77].into(),
            (true, true) => "2001:db8:2:2::77".parse().unwrap(),
        };
        let (dev, member) = (world.out(link), id + n);
        world.ip(&format!(
            "nexthop replace id {member} via {gateway} dev {dev}"
        ));
        if n <= 2 || !rng.once_in(4) {
            let weight = *rng.pick(&[1, 2, 255, 256, 257, 1000, 40_000, 65_535]);
            members.push(GroupMember { id: member, weight });
        }
    }
    let at = rng.below(members.len());
    members.rotate_left(at);
    let nexthop = Nexthop {
        protocol: 4,
        ..Nexthop::new(id, 0, NexthopKind::Group(members))
    };
    // iproute2 of Debian 12 takes weights up to 256 only.
    let flags = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
    world
        .netlink(|socket| socket.apply(&Event::Nexthop(nexthop), flags))
        .unwrap();
}

fn describe(frame: &Crafted) -> String {
    let bytes: String = frame.bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("{} {bytes}", frame.kind)
}

/// Without what pads short frames: the kernel cuts padding off, and a wire puts it on again.
fn unpadded(arrival: &Arrival) -> (&str, &[u8]) {
    let end = ip_end(&arrival.frame);
    assert!(
        end == arrival.frame.len() || arrival.frame.len() == 60,
        "more than padding behind the packet"
    );
    (&arrival.link, &arrival.frame[..end])
}

fn same(about: &str, frames: &[Crafted], kernel: &[Vec<Arrival>], ours: &[Vec<Arrival>]) {
    let mut links = BTreeSet::new();
    let mut wrong = Vec::new();
    for (frame, (theirs, ours)) in frames.iter().zip(kernel.iter().zip(ours)) {
        assert!(
            theirs.len() < 2 && ours.len() < 2,
            "{about}: twice: {}",
            describe(frame)
        );
        links.extend(theirs.iter().map(|a| &a.link));
        if theirs.first().map(unpadded) != ours.first().map(unpadded) {
            wrong.push(format!(
                "{}\n  kernel {theirs:x?}\n  raddle {ours:x?}",
                describe(frame)
            ));
        }
    }
    let sample = wrong.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
    assert!(
        wrong.is_empty(),
        "{about}: {} frames differ\n{sample}",
        wrong.len()
    );
    assert!(links.len() > 2, "{about}: only {links:?} were used");
}

/// Destinations of [`routes`] that engines leave to the kernel: a resilient group, an encapsulation,
/// a route for a TOS.
fn not_modelled(dst: &[u8]) -> bool {
    matches!(dst, [100, 64, 8..=9, _] | [203, 0, 113, 128..=191])
}

/// What comes out of the router was forwarded by an engine, but for frames with options, which are
/// the kernel's to look at, IPv4-mapped sources, which it need not forward, and what engines do not
/// model.
fn forwarded_itself(
    about: &str,
    frames: &[Crafted],
    kernel: &[Vec<Arrival>],
    replayed: &HashMap<Vec<u8>, Arrival>,
) {
    for (frame, arrivals) in frames.iter().zip(kernel) {
        let left = frame.kind.contains("options")
            || frame.kind == "odd source"
            || (frame.bytes.get(12..14) == Some(&[8, 0])
                && frame.bytes.get(30..34).is_some_and(not_modelled));
        let itself = replayed.contains_key(&identity(&frame.bytes));
        assert!(
            arrivals.is_empty() || left || itself,
            "{about}: {}",
            describe(frame)
        );
    }
    eprintln!(
        "{about}: {} of {} frames forwarded by raddle",
        replayed.len(),
        frames.len()
    );
    assert!(replayed.len() > FRAMES / 2, "{about}");
}

/// `RTM_GETROUTE` says the same of flows as packets do.
fn asked(about: &str, world: &World, frames: &[Crafted], kernel: &[Vec<Arrival>]) {
    let mut compared = 0;
    for (frame, arrivals) in frames.iter().zip(kernel) {
        if let (Some(flow), [arrival]) = (&frame.flow, &arrivals[..]) {
            assert_eq!(
                world.kernel_choice(flow).as_ref(),
                Some(&arrival.link),
                "{about}: {flow:?}"
            );
            compared += 1;
        }
    }
    // Of some seeds' frames few are flows that the kernel can be asked about.
    assert!(compared > 5, "{about}: only {compared} flows compared");
}

/// `raddle explain` does, too, and finds that the kernel agrees.
fn explained(
    about: &str,
    world: &World,
    frames: &[Crafted],
    kernel: &[Vec<Arrival>],
    replayed: &HashMap<Vec<u8>, Arrival>,
) {
    let modelled = |f: &Crafted| replayed.contains_key(&identity(&f.bytes));
    let flows = frames.iter().zip(kernel).filter(|(f, _)| modelled(f));
    let flows = flows.filter_map(|(f, a)| Some((f.flow?, a.first()?)));
    for (flow, arrival) in flows.take(8) {
        let answer = explain(world, &flow);
        assert_eq!(answer["link"], *arrival.link, "{about}: {flow:?}: {answer}");
    }
}

fn explain(world: &World, flow: &Flow) -> Value {
    let Flow {
        src,
        dst,
        proto,
        sport,
        dport,
    } = flow;
    let words = format!(
        "explain -j --check {dst} from {src} iif source ipproto {proto} sport {sport} dport {dport}"
    );
    world.raddle_json(&words.split(' ').collect::<Vec<_>>())
}

/// What `raddle replay` makes of a capture of the frames by a snapshot of the router, as an
/// ordinary user: frames by link.
fn replay(world: &World, frames: &[Crafted]) -> HashMap<Vec<u8>, Arrival> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut writer = Writer::create(path("in.pcap"), Resolution::Nano).unwrap();
    for frame in frames {
        let (data, original_len) = (frame.bytes.clone(), frame.bytes.len() as u32);
        writer
            .write(&Record {
                ts_ns: 1,
                original_len,
                data,
            })
            .unwrap();
    }
    writer.finish().unwrap();
    let saved = world.raddle(&["snapshot", &path("state.json")]);
    assert_eq!(saved.code, Some(0), "{}", saved.stderr);
    Outcome::of(Command::new("chown").args(["-R", "65534:65534", folder.path().to_str().unwrap()]));
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(readable_raddle(folder.path()))
        .args(["replay", "-j", "--iif", "source"])
        .args([
            "--snapshot",
            &path("state.json"),
            "--out",
            &path("out"),
            &path("in.pcap"),
        ]);
    let outcome = Outcome::of(&mut command);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["packets"], frames.len());

    let mut forwarded = HashMap::new();
    for (link, count) in report["forwarded"].as_object().unwrap() {
        let reader = Reader::open(path(&format!("out/{link}.pcap"))).unwrap();
        let records: Vec<Record> = reader.map(Result::unwrap).collect();
        assert_eq!(*count, records.len());
        for Record { data: frame, .. } in records {
            forwarded.insert(
                identity(&frame),
                Arrival {
                    link: link.clone(),
                    frame,
                },
            );
        }
    }
    forwarded
}

fn same_as_replayed(
    about: &str,
    frames: &[Crafted],
    kernel: &[Vec<Arrival>],
    replayed: &HashMap<Vec<u8>, Arrival>,
    by_raddle: u64,
) {
    assert_eq!(
        replayed.len() as u64,
        by_raddle,
        "{about}: replay and XDP forward as many"
    );
    for (frame, arrivals) in frames.iter().zip(kernel) {
        if let Some(replayed) = replayed.get(&identity(&frame.bytes)) {
            let theirs = arrivals.first().map(unpadded);
            assert_eq!(
                theirs,
                Some(unpadded(replayed)),
                "{about}: {}",
                describe(frame)
            );
        }
    }
}
