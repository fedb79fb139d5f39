//! The proof that packets are free of a firewall, against the kernel that has it: drawn rule sets, drawn packets. What is free
//! comes out of the router as it does without a rule, and no counter of a rule has counted it.
//!
//! `RADDLE_CASES` sets how many rule sets are drawn (default 60), `RADDLE_SEED` which (default 1).
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[path = "firewall_drawn/draw.rs"]
mod draw;
#[path = "../../crates/xdp/tests/differential/free.rs"]
mod free;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Output, Stdio};

use draw::{Drawn, draw};
use raddle_e2e::frame::{self, Flow};
use raddle_e2e::{Arrival, Crafted, Random, World, root};
use raddle_preflight::{Beneath, Known, Verdicts, Way, look};
use raddle_rib::Ports;

/// Seeds of rule sets that packets were wrongly called free of: a chain of `inet` at ingress, without a rule, drops extension
/// headers that it cannot follow; an xfrm policy is asked about what ICMP errors quote.
const ONCE_WRONG: [u64; 2] = [132, 441];

fn given(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn shell(world: &World, command: &str, input: &str) -> Output {
    let mut child = world
        .lab()
        .command("router", "sh")
        .unwrap()
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// Puts in force what the kernel takes of it. The commands that it took.
fn install(world: &World, drawn: &Drawn) -> Vec<String> {
    // One shell for all: each command is tried, and says how it went.
    let script: String = drawn
        .commands
        .iter()
        .enumerate()
        .map(|(n, command)| format!("{command} >/dev/null 2>&1 && echo {n}\n"))
        .collect();
    let output = shell(world, "sh", &script);
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines()
        .map(|n| drawn.commands[n.parse::<usize>().unwrap()].clone())
        .collect()
}

fn flush(world: &World) {
    let script = "nft flush ruleset; ip xfrm policy flush; tc qdisc del dev sink-3 clsact
for ip in iptables ip6tables; do for table in raw mangle nat filter security; do
  $ip-legacy -t $table -F; $ip-legacy -t $table -X
  for chain in PREROUTING INPUT FORWARD OUTPUT POSTROUTING; do $ip-legacy -t $table -P $chain ACCEPT; done
done; done; true";
    shell(world, "sh >/dev/null 2>&1", script);
    forget_connections(world);
}

/// What earlier rules have translated would be translated for as long as the kernel remembers it
/// (`IPCTNL_MSG_CT_DELETE` without a tuple).
fn forget_connections(world: &World) {
    let forget = || {
        // SAFETY: a socket is opened, one buffer sent and one received, each with its length; then it is closed.
        unsafe {
            let socket = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER);
            let mut message = [0u8; 20];
            message[0] = 20;
            message[4..6].copy_from_slice(&0x0102u16.to_ne_bytes());
            message[6..8].copy_from_slice(&5u16.to_ne_bytes());
            libc::send(socket, message.as_ptr().cast(), message.len(), 0);
            let mut answer = [0u8; 4096];
            libc::recv(socket, answer.as_mut_ptr().cast(), answer.len(), 0);
            libc::close(socket);
        }
    };
    world.lab().within("router", forget).unwrap();
}

/// What counters of nftables' rules have counted, all together. Rules of iptables, which all have one, are passed over: a
/// counter that nobody asked for is no reason to leave a packet to the kernel.
fn counted(world: &World) -> u64 {
    let listed = shell(world, "nft list ruleset", "");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut drawn = false;
    let mut sum = 0;
    for line in listed.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["table", _, name, "{"] = words[..] {
            drawn = ["t0", "t1"].contains(&name);
        }
        let counters = words
            .windows(3)
            .filter(|w| w[0] == "counter" && w[1] == "packets");
        let packets = counters.map(|w| w[2].parse::<u64>().unwrap());
        sum += if drawn { packets.sum() } else { 0 };
    }
    sum
}

fn frames(world: &World, seed: u64) -> Vec<Crafted> {
    let mut rng = Random::new(seed);
    let v4 = (2..60).map(|n| [10, 9, 0, n].into()).collect();
    let v6 = (0x100..0x140u16)
        .map(|n| [0x2001, 0xdb8, 9, 0, 0, 0, 0, n].into())
        .collect();
    let addresses = world.addresses(v4, v6);
    let sources = addresses.v4[0].clone();
    let flows: Vec<Flow> = world
        .flows(120)
        .into_iter()
        .map(|flow| Flow {
            src: match flow.src.is_ipv4() {
                true => (*rng.pick(&sources)).into(),
                false => (*rng.pick(&addresses.v6[0])).into(),
            },
            sport: 1024 + rng.below(60_000) as u16,
            ..flow
        })
        .collect();
    let mut frames = world.frames(&flows);
    frames.extend(frame::random(&mut rng, &addresses, 240));
    frames
}

fn links(world: &World, names: &[String]) -> BTreeMap<u32, String> {
    let index = || {
        let of = |name: &String| {
            (
                nix::net::if_::if_nametoindex(name.as_str()).unwrap(),
                name.clone(),
            )
        };
        names.iter().map(of).collect()
    };
    world.lab().within("router", index).unwrap()
}

fn verdicts(world: &World, links: &BTreeMap<u32, String>) -> Verdicts {
    let none = Beneath::new();
    let way = || Way::of(links, &none);
    let look = || look(way(), way(), &mut Known::default()).unwrap();
    world.lab().within("router", look).unwrap()
}

fn same(one: &[Arrival], other: &[Arrival]) -> bool {
    let seen = |all: &[Arrival]| -> Vec<(String, Vec<u8>)> {
        all.iter()
            .map(|a| (a.link.clone(), a.frame.clone()))
            .collect()
    };
    seen(one) == seen(other)
}

#[test]
fn what_is_free_meets_no_rule() {
    if !root("what_is_free_meets_no_rule") {
        return;
    }
    let world = World::new("drawn", 3);
    world.policy(1);
    world.ip("route add 172.16.0.0/12 via 10.1.1.2");
    let names: Vec<String> = std::iter::once("source".to_owned())
        .chain((1..=3).map(|n| world.out(n)))
        .collect();
    let links = links(&world, &names);
    let number = |name: &str| *links.iter().find(|(_, n)| *n == name).unwrap().0;
    let ports = Ports {
        enabled: links.keys().copied().collect(),
        out: links.keys().copied().collect(),
    };
    let first = given("RADDLE_SEED", 1);
    let mut seeds: Vec<u64> = (first..first + given("RADDLE_CASES", 60)).collect();
    if first == 1 {
        seeds.extend(ONCE_WRONG);
    }
    let (mut sent, mut all, mut some, mut rules) = (0, 0, 0, 0);
    for seed in seeds {
        let frames = frames(&world, seed);
        let without = world.transmit(&frames);
        let drawn = draw(&mut Random::new(seed));
        let taken = install(&world, &drawn);
        let verdicts = verdicts(&world, &links);
        let punted = verdicts.punted(&links, &links);
        let punted: Vec<String> = punted.iter().map(ToString::to_string).collect();
        let found = Some((ports.clone(), verdicts.firewall.clone()));
        let pairs = frames
            .iter()
            .zip(&without)
            .filter(|(_, arrived)| arrived.len() == 1);
        let free: Vec<(&Crafted, &Vec<Arrival>)> = pairs
            .clone()
            .filter(|(frame, arrived)| {
                let pair = (number("source"), number(&arrived[0].link));
                free::is_free(&found, &frame.bytes, pair)
            })
            .collect();
        all += pairs.count();
        sent += free.len();
        some += usize::from(!free.is_empty());
        rules += taken.len();
        let frames: Vec<Crafted> = free.iter().map(|(frame, _)| (*frame).clone()).collect();
        let about = || {
            format!(
                "RADDLE_SEED={seed} RADDLE_CASES=1:\n{}\n{}",
                taken.join("\n"),
                punted.join("\n")
            )
        };
        if !frames.is_empty() {
            let mut with = world.transmit(&frames);
            for ((frame, without), with) in free.iter().zip(&mut with) {
                assert!(
                    same(without, with),
                    "a {} packet is free, and comes out otherwise: {with:?} instead of {without:?}\n{:02x?}\n{}",
                    frame.kind,
                    frame.bytes,
                    about()
                );
            }
            // The router itself sends now and then, too (neighbour discovery, MLD); not each time.
            let counts = || {
                let before = counted(&world);
                world.transmit(&frames);
                counted(&world) - before
            };
            let met = counted(&world) != 0 && (0..3).all(|_| counts() != 0);
            assert!(!met, "free packets are counted\n{}", about());
        }
        flush(&world);
    }
    eprintln!(
        "{rules} commands taken; {sent} of {all} packets were free, some of {some} rule sets; none met a rule"
    );
    assert!(sent * 8 > all, "{sent} of {all} packets are free");
}
