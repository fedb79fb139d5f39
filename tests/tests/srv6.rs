//! SRv6 as the kernel does it: the same packets, right ones and wrong ones, through the kernel, through
//! the userspace engine and through the daemon; what comes out and what is counted has to be the same.
//!
//! `RADDLE_CASES` is the number of packets of each behaviour, 250 if it is not set; `RADDLE_SEED`
//! changes them.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::Ipv6Addr;
use std::process::Stdio;
use std::time::Duration;

use raddle_e2e::agreement::{Account, all_counters, counters, hex};
use raddle_e2e::in_memory::InMemory;
use raddle_e2e::srv6::{self, Places, TAG, Takes};
use raddle_e2e::{Arrival, Crafted, Daemon, Random, World, frame, root};

const LINKS: u32 = 4;

/// A SID: 5f00:0:NUMBER::/48.
struct Sid {
    number: u16,
    route: &'static str,
    takes: Takes,
    /// Whether what is in the SID behind its number is an argument.
    compressed: bool,
}

const fn sid(number: u16, route: &'static str, takes: Takes) -> Sid {
    let compressed = false;
    Sid {
        number,
        route,
        takes,
        compressed,
    }
}

const fn csid(number: u16, route: &'static str) -> Sid {
    Sid {
        number,
        route,
        takes: Takes::Segments,
        compressed: true,
    }
}

const ENDPOINTS: [Sid; 10] = [
    sid(1, "action End", Takes::Segments),
    sid(2, "action End flavors psp", Takes::Segments),
    csid(3, "action End flavors next-csid lblen 32 nflen 16"),
    csid(4, "action End flavors psp,next-csid lblen 32 nflen 16"),
    sid(5, "action End.X nh6 2001:db8:2:2::2", Takes::Segments),
    csid(
        6,
        "action End.X nh6 2001:db8:2:1::2 flavors next-csid lblen 32 nflen 16",
    ),
    sid(7, "action End.T table 100", Takes::Segments),
    sid(8, "action End.T table 4711", Takes::Segments),
    sid(
        9,
        "action End.B6 srh segs 5f00:0:f1::1,5f00:0:f1::2",
        Takes::Segments,
    ),
    sid(
        10,
        "action End.B6.Encaps srh segs 5f00:0:f1::1,5f00:0:f1::2",
        Takes::Segments,
    ),
];

const DECAPSULATIONS: [Sid; 9] = [
    sid(0x21, "action End.DX2 oif sink-4", Takes::Payload(143)),
    sid(0x22, "action End.DX2 oif sink-2", Takes::Payload(143)),
    sid(
        0x23,
        "action End.DX6 nh6 2001:db8:2:2::2",
        Takes::Payload(41),
    ),
    sid(0x24, "action End.DX6 nh6 ::", Takes::Payload(41)),
    sid(0x25, "action End.DX4 nh4 192.0.2.1", Takes::Payload(4)),
    sid(0x26, "action End.DX4 nh4 0.0.0.0", Takes::Payload(4)),
    // The neighbour of a connected prefix, whom the kernel does not take.
    sid(0x27, "action End.DX4 nh4 10.2.3.2", Takes::Payload(4)),
    sid(0x28, "action End.DT6 table 100", Takes::Payload(41)),
    sid(0x29, "action End.DT6 table 254", Takes::Payload(41)),
];

/// By number N: 100.64.N.0/24 or 2001:db8:60:N::/64.
const HEADENDS: [(bool, &str); 15] = [
    (true, "mode encap segs 5f00:0:f1::1"),
    (
        true,
        "mode encap segs 5f00:0:f1::1,5f00:0:f1::2,5f00:0:f1::3",
    ),
    (true, "mode encap.red segs 5f00:0:f1::1"),
    (true, "mode encap.red segs 5f00:0:f1::1,5f00:0:f1::2"),
    (true, "mode l2encap segs 5f00:0:f1::1,5f00:0:f1::2"),
    (true, "mode l2encap.red segs 5f00:0:f1::1"),
    // Equal paths, and one with a smaller MTU.
    (true, "mode encap segs 5f00:0:f2::1"),
    (true, "mode encap segs 5f00:0:f4::1"),
    // To a SID of the router itself.
    (true, "mode encap segs 5f00:0:1::1,5f00:0:f1::2"),
    (true, "mode encap segs 5f00:0:29::"),
    (false, "mode inline segs 5f00:0:f1::1"),
    (false, "mode inline segs 5f00:0:f1::1,5f00:0:f1::2"),
    // Their own hop limit around IPv4, the others the link's.
    (true, "mode encap segs 5f00:0:f1::1 hoplimit 33"),
    (true, "mode l2encap.red segs 5f00:0:f1::1 hoplimit 255"),
    // Just enough for nobody.
    (true, "mode encap.red segs 5f00:0:f1::1 hoplimit 1"),
];

/// What was encapsulated to equal paths, of which the kernel takes one for all.
fn to_equal_paths(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[0x86, 0xdd]) && frame.get(38..44) == Some(&[0x5f, 0, 0, 0, 0, 0xf2])
}

#[test]
fn endpoints_do_what_the_kernel_does() {
    if root("endpoints_do_what_the_kernel_does") {
        let world = network("srv6end");
        let cases = ENDPOINTS.iter().map(|sid| to_sid(&world, sid));
        hold(&world, cases.collect());
    }
}

#[test]
fn decapsulations_do_what_the_kernel_does() {
    if root("decapsulations_do_what_the_kernel_does") {
        let world = network("srv6dx");
        let cases = DECAPSULATIONS.iter().map(|sid| to_sid(&world, sid));
        hold(&world, cases.collect());
    }
}

#[test]
fn encapsulations_do_what_the_kernel_does() {
    if root("encapsulations_do_what_the_kernel_does") {
        let world = network("srv6encap");
        let mut cases = Vec::new();
        for (n, (four, route)) in HEADENDS.iter().enumerate() {
            for v6 in [false, true] {
                if v6 || *four {
                    let frames = to_encapsulate(&world, n as u16, v6);
                    let family = if v6 { "IPv6" } else { "IPv4" };
                    cases.push((format!("{family} {route}"), frames));
                }
            }
        }
        hold(&world, cases);
    }
}

/// What `net.ipv6.seg6_flowlabel` makes of the outer flow label: 0 always (-1), or a number of the flow's (1), which is
/// hashed with a key that nobody can read: there only is compared, and all else.
#[test]
fn flow_labels_are_as_the_kernel_has_them() {
    if !root("flow_labels_are_as_the_kernel_has_them") {
        return;
    }
    for setting in ["-1", "1"] {
        let world = network("srv6label");
        world.sysctl("net.ipv6.seg6_flowlabel", setting);
        let few = [0_u16, 2, 5, 6];
        let cases = few.iter().flat_map(|n| {
            let (four, route) = HEADENDS[usize::from(*n)];
            let families = if four { &[false, true][..] } else { &[true] };
            families.iter().map(move |v6| (*n, *v6, route))
        });
        let cases = cases.map(|(n, v6, route)| {
            let about = format!("seg6_flowlabel {setting}, IPv6 {v6}, {route}");
            (about, to_encapsulate(&world, n, v6))
        });
        let blank = match setting {
            "1" => blank_outer_label,
            _ => |_: &mut Arrival| (),
        };
        hold_but(&world, cases.collect(), blank);
    }
}

/// Lists that the kernel signs, by their numbers: to others, to a SID of the router that checks what was signed here,
/// and by a key that nobody has.
const SIGNED: [(u16, &str); 5] = [
    (64, "mode encap segs 5f00:0:f1::1,5f00:0:f1::2 hmac 42"),
    (65, "mode encap.red segs 5f00:0:f1::1,5f00:0:f1::2 hmac 43"),
    (66, "mode encap segs 5f00:0:1::1,5f00:0:f1::2 hmac 42"),
    (
        67,
        "mode encap segs 5f00:0:1::1,5f00:0:2::1,5f00:0:f1::2 hmac 43",
    ),
    (68, "mode encap segs 5f00:0:f1::1 hmac 99"),
];

/// With every value of `seg6_require_hmac`.
#[test]
fn hmacs_are_as_the_kernel_has_them() {
    if !root("hmacs_are_as_the_kernel_has_them") {
        return;
    }
    for required in ["0", "1", "-1"] {
        let world = network("srv6hmac");
        for (key, algorithm) in [(42, "sha256"), (43, "sha1")] {
            set_key(&world, key, algorithm);
        }
        world.sysctl("net.ipv6.conf.source.seg6_require_hmac", required);
        for (n, route) in SIGNED {
            for route in [
                format!("-6 route add 2001:db8:60:{n:x}::/64 encap seg6 {route} dev sink"),
                format!("route add 100.64.{n}.0/24 encap seg6 {route} dev sink"),
            ] {
                world.ip(&route);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
        let mut cases = Vec::new();
        for (n, route) in SIGNED {
            for v6 in [false, true] {
                let about = format!("seg6_require_hmac {required}, IPv6 {v6}, {route}");
                cases.push((about, to_encapsulate(&world, n, v6)));
            }
        }
        for sid in [&ENDPOINTS[0], &ENDPOINTS[1], &DECAPSULATIONS[3]] {
            let (about, mut frames) = to_sid(&world, sid);
            let mut rng = random(7000 + u64::from(sid.number));
            for frame in &mut frames {
                if rng.once_in(2) {
                    let key = *rng.pick(&[42, 43, 99]);
                    srv6::with_wrong_hmac(&mut rng, frame, key);
                }
            }
            cases.push((format!("seg6_require_hmac {required}, {about}"), frames));
        }
        hold(&world, cases);
    }
}

/// Gives a key to `ip sr hmac`, which reads its secret from the standard input where there is no terminal.
fn set_key(world: &World, key: u32, algorithm: &str) {
    let mut command = world.lab().command("router", "setsid").unwrap();
    command.args([
        "--wait",
        "ip",
        "sr",
        "hmac",
        "set",
        &key.to_string(),
        algorithm,
    ]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input
        .write_all(format!("secret {key}\n").as_bytes())
        .unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
}

/// Takes the flow label out of what was encapsulated.
fn blank_outer_label(arrival: &mut Arrival) {
    let frame = &mut arrival.frame;
    let is_outer = frame.get(12..14) == Some(&[0x86, 0xdd])
        && frame.get(38..43) == Some(&[0x5f, 0, 0, 0, 0])
        && frame.get(43).is_some_and(|byte| *byte >= 0xf0);
    if is_outer {
        frame[15] &= 0xf0;
        frame[16..18].fill(0);
    }
}

/// The router with all SIDs and encapsulations.
fn network(name: &str) -> World {
    let world = World::new(name, LINKS);
    world.policy(1);
    world.sysctl("net.ipv4.fib_multipath_hash_seed", "4242");
    // Otherwise only some of the messages would come, by what came before.
    for (key, value) in [
        ("net.ipv4.icmp_ratemask", "0"),
        ("net.ipv6.icmp.ratelimit", "0"),
        ("net.ipv6.icmp.ratemask", "255"),
        ("net.ipv4.conf.all.send_redirects", "0"),
        ("net.ipv4.conf.source.send_redirects", "0"),
    ] {
        world.sysctl(key, value);
    }
    world.ip("link set sink-2 mtu 1400");
    let mac: Vec<String> = world
        .mac("source", "router")
        .map(|b| format!("{b:02x}"))
        .into();
    for address in ["10.1.1.2", "2001:db8:1:1::2"] {
        let mac = mac.join(":");
        world.ip(&format!(
            "neigh replace {address} lladdr {mac} dev source nud permanent"
        ));
    }
    let all4: String = (1..=LINKS)
        .map(|n| format!(" nexthop via 10.2.{n}.2"))
        .collect();
    let all6 = |links: &[u32]| -> String {
        let via = |n: &u32| format!(" nexthop via 2001:db8:2:{n}::2");
        links.iter().map(via).collect()
    };
    for route in [
        &*format!("203.0.113.0/24 {all4}"),
        "198.51.100.0/24 via 10.2.2.2",
        "192.0.2.1/32 via 10.2.1.2",
        "blackhole 198.18.0.0/24",
        "unreachable 198.18.1.0/24",
        &*format!("2001:db8:10::/48 {}", all6(&[1, 2, 3, 4])),
        "2001:db8:20::/48 via 2001:db8:2:2::2",
        "2001:db8:21::/48 via 2001:db8:2:3::2 mtu 1300",
        "blackhole 2001:db8:40::/48",
        "unreachable 2001:db8:41::/48",
        "5f00:0:f1::/48 via 2001:db8:2:1::2",
        &*format!("5f00:0:f2::/48 {}", all6(&[1, 3, 4])),
        &*format!("5f00:0:f3::/48 {}", all6(&[1, 2, 3, 4])),
        "5f00:0:f4::/48 via 2001:db8:2:2::2",
        "2001:db8:10::/48 via 2001:db8:2:3::2 table 100",
        "2001:db8:20::/48 via 2001:db8:2:1::2 table 100",
        "blackhole 2001:db8:40::/48 table 100",
    ] {
        world.ip(&format!("{} route add {route}", family(route)));
    }
    world.ip("sr tunsrc set 2001:db8:2:1::1");
    for sid in ENDPOINTS.iter().chain(&DECAPSULATIONS) {
        let Sid { number, route, .. } = sid;
        world.ip(&format!(
            "-6 route add 5f00:0:{number:x}::/48 encap seg6local {route} count dev sink"
        ));
    }
    world.sysctl("net.ipv6.conf.sink.hop_limit", "61");
    for (n, (four, route)) in HEADENDS.iter().enumerate() {
        let (route, limit) = match route.split_once(" hoplimit") {
            Some((route, limit)) => (route, format!(" hoplimit{limit}")),
            None => (*route, String::new()),
        };
        let route = format!("{route} dev sink{limit}");
        world.ip(&format!(
            "-6 route add 2001:db8:60:{n:x}::/64 encap seg6 {route}"
        ));
        if *four {
            world.ip(&format!("route add 100.64.{n}.0/24 encap seg6 {route}"));
        }
    }
    // A new route's first packets are treated otherwise for a moment.
    std::thread::sleep(Duration::from_millis(20));
    world
}

fn family(route: &str) -> &'static str {
    let six = |word: &str| word.contains(':');
    if route.split(' ').any(six) {
        "-6"
    } else {
        "-4"
    }
}

fn packets() -> u32 {
    std::env::var("RADDLE_CASES").map_or(250, |n| n.parse().unwrap())
}

fn random(about: u64) -> Random {
    let seed: u64 = std::env::var("RADDLE_SEED").map_or(1, |s| s.parse().unwrap());
    Random::new(seed << 32 | about)
}

fn places(world: &World) -> Places {
    let mut v4 = Vec::new();
    let mut v6 = Vec::new();
    for n in 0..16_u8 {
        v4.extend([[203, 0, 113, n], [203, 0, 113, 100 + n], [198, 51, 100, n]]);
        let n = u16::from(n);
        v6.push(Ipv6Addr::new(0x2001, 0xdb8, 0x10, n, 0, 0, 0, n));
        v6.push(Ipv6Addr::new(0x2001, 0xdb8, 0x10, 0, 0, 0, n, 1));
        v6.push(Ipv6Addr::new(0x2001, 0xdb8, 0x20, n, 0, 0, 0, 1));
        v6.push(Ipv6Addr::new(0x5f00, 0, 0xf3, n, 0, 0, 0, 0));
    }
    v4.extend([
        [198, 18, 0, 1],
        [198, 18, 1, 1],
        [203, 0, 114, 1],
        [10, 2, 1, 1],
    ]);
    for odd in [
        "2001:db8:21::1",
        "2001:db8:40::1",
        "2001:db8:41::1",
        "2001:db8:99::1",
        "2001:db8:2:1::1",
        "ff0e::1",
        "fe80::99",
        "::",
        "::1",
    ] {
        v6.push(odd.parse().unwrap());
    }
    let all = ENDPOINTS.iter().chain(&DECAPSULATIONS);
    Places {
        macs: world.frame_macs(),
        v4: v4.into_iter().map(Into::into).collect(),
        v6,
        sids: all.map(|sid| address(sid.number, [0; 5])).collect(),
        sizes: vec![1400, 1300, 1414, 1386, 1360, 1420, 1500],
    }
}

fn address(number: u16, rest: [u16; 5]) -> Ipv6Addr {
    let [a, b, c, d, e] = rest;
    Ipv6Addr::new(0x5f00, 0, number, a, b, c, d, e)
}

/// Packets to a SID, and what is said of them.
fn to_sid(world: &World, sid: &Sid) -> (String, Vec<Crafted>) {
    let mut rng = random(u64::from(sid.number));
    let places = places(world);
    let mut frames = Vec::new();
    for n in 0..packets() {
        let mut rest = [0; 5];
        if sid.compressed && !rng.once_in(3) {
            // What follows the shift: other SIDs of the router, or somebody else's.
            let next = |rng: &mut Random| *rng.pick(&[0xf3, 0xf3, 0xf3, 3, 6, 0x24, 0x99, 0]);
            for place in rest.iter_mut().take(1 + n as usize % 5) {
                *place = next(&mut rng);
            }
        } else if !sid.compressed && rng.once_in(4) {
            rest[4] = rng.bits() as u16;
        }
        let tag = srv6::tag(u32::from(sid.number) << 16, n);
        let to = address(sid.number, rest);
        frames.push(srv6::to_sid(&mut rng, &places, to, sid.takes, tag));
    }
    (sid.route.to_owned(), frames)
}

/// Packets to an encapsulating route: ordinary ones, and some of about the MTU.
fn to_encapsulate(world: &World, number: u16, v6: bool) -> Vec<Crafted> {
    let mut rng = random(u64::from(number) + 1000 + 1000 * u64::from(v6));
    let v4: Vec<_> = (0..40).map(|n| [100, 64, number as u8, n].into()).collect();
    let to6 = |n| Ipv6Addr::new(0x2001, 0xdb8, 0x60, number, n, 0, 0, 1);
    let addresses = frame::Addresses {
        macs: world.frame_macs(),
        v4: [vec![[10, 1, 1, 2].into()], v4],
        v6: [
            vec!["2001:db8:1:1::2".parse().unwrap()],
            (0..40).map(to6).collect(),
        ],
        tunnels: 0,
    };
    let of_family =
        |frame: &Crafted| frame.bytes[12..14] == [[8, 0], [0x86, 0xdd]][usize::from(v6)];
    let mut frames = frame::random(&mut rng, &addresses, packets() as usize * 2);
    frames.retain(of_family);
    for frame in &mut frames {
        if v6 && rng.once_in(8) && matches!(frame.kind, "transport" | "traffic class") {
            // Some more bytes, as much as the payload length is told.
            let size = *rng.pick(&[1276, 1400, 1420, 1436, 1444, 1452, 1460]) + rng.below(3);
            let more = 14 + size - frame.bytes.len();
            let filling = rng.bytes(more);
            frame.bytes.extend(filling);
            let len = (size - 40) as u16;
            frame.bytes[18..20].copy_from_slice(&len.to_be_bytes());
            frame.kind = "about the MTU";
        }
    }
    frames
}

/// Takes out of what has come what is not to be compared.
type Blank = fn(&mut Arrival);

fn blanked(arrivals: Vec<Arrival>, blank: Blank) -> Vec<Arrival> {
    let mut arrivals = arrivals;
    arrivals.iter_mut().for_each(blank);
    arrivals
}

/// What the kernel alone makes of the packets.
fn by_kernel(world: &World, frames: &[Crafted], blank: Blank) -> Account {
    let mut account = Account::default();
    let before = counters(world);
    let arrivals = world.exchange(frames, Duration::from_millis(40));
    account.add(blanked(arrivals, blank), to_equal_paths);
    account.add_counted(&before, &counters(world));
    account
}

/// What the userspace engine makes of them, and the kernel of those that the engine leaves to it.
fn by_engine(world: &World, about: &str, frames: &[Crafted], blank: Blank) -> Account {
    let mut engine = InMemory::of(world);
    let decided = engine.forward(frames);
    let left: Vec<Crafted> = decided.punted.iter().map(|(f, _)| f.clone()).collect();
    let mut account = by_kernel(world, &left, blank);
    let mut reasons = BTreeMap::<&str, usize>::new();
    for (_, reason) in &decided.punted {
        *reasons.entry(reason.name()).or_default() += 1;
    }
    let sent = decided.sent.len();
    eprintln!(
        "{about}: the engine forwarded {sent}, dropped {}, left {reasons:?}",
        decided.dropped
    );
    account.add(blanked(decided.sent, blank), to_equal_paths);
    for (sid, sum) in &mut account.counted {
        let ours = engine.counted(sid);
        for n in 0..3 {
            sum[n] += ours[n];
        }
    }
    account
}

/// What the daemon and the kernel beneath it make of them.
fn by_daemon(world: &World, frames: &[Crafted], blank: Blank) -> Account {
    let mut account = Account::default();
    let before = all_counters(world);
    let quiet = Duration::from_millis(60);
    let arrivals = world.exchange(frames, quiet);
    account.add(blanked(arrivals, blank), to_equal_paths);
    account.add_counted(&before, &all_counters(world));
    account
}

/// Holds engine and daemon against the kernel in every case.
fn hold(world: &World, cases: Vec<(String, Vec<Crafted>)>) {
    hold_but(world, cases, |_| ());
}

/// The same, but for what is blanked.
fn hold_but(world: &World, cases: Vec<(String, Vec<Crafted>)>, blank: Blank) {
    let mut problems = Vec::new();
    let mut kernels = Vec::new();
    for (about, frames) in &cases {
        let kernel = by_kernel(world, frames, blank);
        let again = by_kernel(world, frames, blank);
        let out: i64 = kernel.sent.values().sum();
        eprintln!("{about}: {} packets, {out} came out", frames.len());
        let twice = format!("{about}: the kernel, twice");
        problems.extend(same(&twice, frames, &kernel, &again));
        let engine = by_engine(world, about, frames, blank);
        let about = format!("{about}: kernel and engine");
        problems.extend(same(&about, frames, &kernel, &engine));
        kernels.push(kernel);
    }
    let daemon = Daemon::start(world, &[]);
    for ((about, frames), kernel) in cases.iter().zip(&kernels) {
        let ours = by_daemon(world, frames, blank);
        let about = format!("{about}: kernel and daemon");
        problems.extend(same(&about, frames, kernel, &ours));
    }
    daemon.terminate();
    for problem in &problems {
        eprintln!("{problem}");
    }
    assert!(problems.is_empty(), "{} problems", problems.len());
}

fn same(about: &str, frames: &[Crafted], one: &Account, two: &Account) -> Option<String> {
    let differences = one.differences(two, frames, TAG);
    if differences.is_empty() {
        return None;
    }
    let mut text = format!("{about}: {} differences\n", differences.len());
    for difference in differences.iter().take(8) {
        text += &format!("  {}\n", difference.text);
        if let Some(frame) = difference.packet.map(|n| &frames[n]) {
            text += &format!("    sent ({}): {}\n", frame.kind, hex(&frame.bytes));
        }
    }
    Some(text)
}
