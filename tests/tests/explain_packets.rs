//! `raddle explain --pcap` beside the kernel, packet by packet: what is called exact is what happens.
//!
//! States and packets of all kinds are drawn: those that are forwarded, fragmented, refused, delivered,
//! answered, dropped. The packets are sent on a link of a router that nothing but its kernel serves; where
//! each comes out, or which ICMP error comes back, has to be what `explain` says. `RADDLE_CASES` says how many
//! packets (3750), `RADDLE_SEED` which.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use raddle_e2e::explained::{Compared, Drawn, answers, draw_hashing};
use raddle_e2e::frame::{self, seal};
use raddle_e2e::{Arrival, Crafted, Outcome, Random, World, root};
use raddle_io::{Record, Resolution, Writer};
use serde_json::Value;

const LINKS: u32 = 4;
/// Packets for each state.
const FRAMES: usize = 750;
/// Type, code.
type Icmp = (u8, u8);

#[test]
fn every_packet_ends_as_explained() {
    if !root("every_packet_ends_as_explained") {
        return;
    }
    let drawn = Drawn::cases(3750);
    let world = world("exall");
    let mut compared = Compared::default();
    for (state, mut rng) in drawn.states(FRAMES) {
        let about = draw_state(&world, &mut rng, state);
        let frames = draw_frames(&world, &mut rng);
        let answers = explained(&world, &frames);
        let came = exchange(&world, &frames);
        for ((frame, answer), came) in frames.iter().zip(&answers).zip(&came) {
            let level = answer["confidence"]["level"].as_str().unwrap();
            let what = answer["fate"]["what"].as_str().unwrap();
            *compared.seen.entry(format!("{what}, {level}")).or_default() += 1;
            if let Err(why) = agrees(&world, answer, came) {
                let bytes: String = frame.bytes.iter().map(|b| format!("{b:02x}")).collect();
                compared.wrong.push(format!(
                    "state {state} ({about}), {}: {why}\n  {}\n  {}\n  {came:?}\n  {bytes}",
                    frame.kind, answer["fate"], answer["confidence"]
                ));
            }
        }
        compared.so_far(state, &about);
    }
    let kinds = [
        "forwarded, exact",
        "fragmented, exact",
        "resolving, ",
        "delivered, exact",
        "multicast, ",
        "dropped, exact",
        "answered, exact",
    ];
    compared.check(drawn, &kinds);
}

fn world(name: &str) -> World {
    let world = World::new(name, LINKS);
    world.ip("addr add 10.7.7.7/32 dev lo");
    world.ip("addr add 2001:db8:7::7/128 dev lo");
    let source = world.mac("source", "router");
    let text: Vec<String> = source.iter().map(|b| format!("{b:02x}")).collect();
    let mac = text.join(":");
    world.ip(&format!(
        "neigh replace 10.1.1.2 lladdr {mac} dev source nud permanent"
    ));
    world.ip(&format!(
        "neigh replace 2001:db8:1:1::2 lladdr {mac} dev source nud permanent"
    ));
    // Who sends is behind the source, so that every answer finds its way.
    world.ip("route replace 172.16.0.0/12 via 10.1.1.2 dev source");
    world.ip("-6 route replace 2001:db8:aaaa::/48 via 2001:db8:1:1::2 dev source");
    for n in 1..=LINKS {
        let dev = world.out(n);
        world.ip(&format!(
            "neigh replace 10.2.{n}.3 lladdr 02:00:00:00:00:{n:02x} dev {dev} nud permanent"
        ));
    }
    // Nothing is rationed.
    for (key, value) in [
        ("net.ipv4.icmp_ratelimit", "0"),
        ("net.ipv4.icmp_ratemask", "0"),
        ("net.ipv6.icmp.ratelimit", "0"),
        ("net.ipv6.icmp.ratemask", "2"),
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.source.rp_filter", "0"),
    ] {
        world.sysctl(key, value);
    }
    world
}

/// Another state, and what it is, for messages: each policy in turn, and policy 1 once more where the kernel gives packets a
/// hash of its own, to steer them by.
fn draw_state(world: &World, rng: &mut Random, state: usize) -> String {
    let turn = state as u32 % 5;
    let (policy, steered) = (if turn == 4 { 1 } else { turn }, turn == 4);
    steer(world, steered);
    draw_hashing(world, rng, policy);
    let use_neigh = rng.below(2);
    world.sysctl("net.ipv4.fib_multipath_use_neigh", &use_neigh.to_string());
    let (off4, off6) = (rng.once_in(8), rng.once_in(8));
    world.sysctl(
        "net.ipv4.conf.source.forwarding",
        if off4 { "0" } else { "1" },
    );
    world.sysctl("net.ipv6.conf.all.forwarding", if off6 { "0" } else { "1" });
    let (accept_local, rp_filter) = (rng.below(2), rng.below(5).saturating_sub(2));
    let key = |name: &str| format!("net.ipv4.conf.source.{name}");
    world.sysctl(&key("accept_local"), &accept_local.to_string());
    world.sysctl(&key("rp_filter"), &rp_filter.to_string());
    let redirects = rng.below(2);
    for conf in ["all", "source"] {
        let key = format!("net.ipv4.conf.{conf}.send_redirects");
        world.sysctl(&key, &redirects.to_string());
    }
    for n in 1..=LINKS {
        let (dev, mtu) = (world.out(n), *rng.pick(&[1500, 1500, 1400, 1300]));
        world.ip(&format!("link set {dev} mtu {mtu}"));
        world.sysctl(
            &format!("net.ipv6.conf.{dev}.mtu"),
            &rng.pick(&[mtu, 1280]).to_string(),
        );
        let gone = n == 3 && rng.once_in(3);
        gateways(world, n, !gone);
        world.neighbours(n, if gone { "failed" } else { "permanent" });
    }
    let mut hops = |six: bool| -> String {
        let count = 2 + rng.below(3) as u32;
        let hop = |n: u32, rng: &mut Random| {
            let (four, other) = world.gateway(n);
            let via = match six {
                true => other.to_string(),
                false if rng.once_in(3) => format!("10.2.{n}.3"),
                false => four.to_string(),
            };
            let weight = *rng.pick(&[1, 1, 2, 5, 250]);
            format!(" nexthop via {via} dev {} weight {weight}", world.out(n))
        };
        (1..=count).map(|n| hop(n, rng)).collect()
    };
    let (plain4, plain6) = (hops(false), hops(true));
    for n in 1..=LINKS {
        let ((four, six), dev) = (world.gateway(n), world.out(n));
        world.ip(&format!("nexthop replace id {n} via {four} dev {dev}"));
        world.ip(&format!(
            "nexthop replace id {} via {six} dev {dev}",
            10 + n
        ));
    }
    world.ip("nexthop replace id 100 group 1,3/2/3,2/4");
    world.ip("nexthop replace id 200 group 14/11,9/12/13");
    world.ip("nexthop replace id 300 group 1,3/2/3 type resilient buckets 32 idle_timer 600");
    let (one4, one6) = world.gateway(1);
    for route in [
        &*format!("100.64.0.0/16 {plain4}"),
        "100.65.0.0/16 nhid 100",
        "100.66.0.0/16 nhid 300",
        &*format!("100.67.0.0/16 via {one4} mtu 1200"),
        &*format!("100.68.0.0/16 via {one4} mtu lock 1000"),
        "blackhole 100.69.0.0/16",
        "unreachable 100.70.0.0/16",
        "prohibit 100.71.0.0/16",
        "throw 100.72.0.0/16",
        &*format!("100.73.0.0/16 via inet6 {one6} dev {}", world.out(1)),
        &*format!("2001:db8:64::/48 {plain6}"),
        "2001:db8:65::/48 nhid 200",
        &*format!("2001:db8:67::/48 via {one6} mtu 1290"),
        "blackhole 2001:db8:69::/48",
        "unreachable 2001:db8:70::/48",
        "prohibit 2001:db8:71::/48",
        "throw 2001:db8:72::/48",
    ] {
        let six = route.contains("2001:db8:") && !route.contains("inet6");
        let family = if six { "-6" } else { "-4" };
        world.ip(&format!("{family} route replace {route}"));
    }
    format!(
        "policy {policy}, use_neigh {use_neigh}, forwarding off {off4} {off6}, redirects {redirects}, \
         accept_local {accept_local}, rp_filter {rp_filter}, steered {steered}"
    )
}

/// Has the kernel steer packets that come in, or no longer.
fn steer(world: &World, on: bool) {
    let mut shell = world.lab().command("router", "sh").unwrap();
    let (word, line) = (
        "-c",
        format!(
            "echo {} >/sys/class/net/source/queues/rx-0/rps_cpus",
            u8::from(on)
        ),
    );
    let said = Outcome::of(shell.args([word, &line]));
    assert_eq!(said.code, Some(0), "{}", said.stderr);
}

/// Whether the gateways of a link are there: one that has failed must not answer when a packet has the kernel ask,
/// or it is taken again while packets are still on their way.
fn gateways(world: &World, n: u32, there: bool) {
    let (four, six) = world.gateway(n);
    let dev = world.out(n).replace("sink", "router");
    world.node("sink", &format!("ip addr flush dev {dev} scope global"));
    if there {
        world.node("sink", &format!("ip addr add {four}/24 dev {dev}"));
        world.node("sink", &format!("ip addr add {six}/64 dev {dev} nodad"));
    }
}

/// What is in a frame, with or without a VLAN tag.
fn packet_of(frame: &[u8]) -> &[u8] {
    let at = if frame.get(12..14) == Some(&[0x81, 0]) {
        18
    } else {
        14
    };
    frame.get(at..).unwrap_or_default()
}

/// What tells a packet from all others, whatever its TTL is and however it is cut into fragments.
fn key(packet: &[u8]) -> Option<Vec<u8>> {
    match packet.first()? >> 4 {
        4 => Some([packet.get(4..6)?, packet.get(9..10)?, packet.get(12..20)?].concat()),
        6 => {
            let length = packet.get(4..6)?;
            let end = 40 + usize::from(u16::from_be_bytes([length[0], length[1]]));
            let end = packet.len().min(end).min(48);
            Some([packet.get(..4)?, packet.get(6..7)?, packet.get(8..end)?].concat())
        }
        _ => None,
    }
}

fn draw_frames(world: &World, rng: &mut Random) -> Vec<Crafted> {
    let v4 = (0..600).map(|n| {
        let net = 60 + rng.below(14) as u8;
        match n % 12 {
            0 => *rng.pick(&[
                Ipv4Addr::new(10, 7, 7, 7),
                Ipv4Addr::new(10, 1, 1, 1),
                Ipv4Addr::new(10, 2, 2, 1),
                Ipv4Addr::new(10, 2, 1, 3),
                Ipv4Addr::new(10, 2, 1, 99),
                Ipv4Addr::new(10, 2, 1, 255),
                Ipv4Addr::new(255, 255, 255, 255),
                Ipv4Addr::new(0, 0, 0, 0),
                Ipv4Addr::new(224, 0, 0, 9),
                Ipv4Addr::new(239, 1, 1, 1),
                Ipv4Addr::new(10, 1, 1, 2),
                Ipv4Addr::new(172, 16, 200, 1),
            ]),
            _ => Ipv4Addr::new(100, net, rng.below(250) as u8, 1 + rng.below(250) as u8),
        }
    });
    let v4: Vec<_> = v4.collect();
    let v6 = (0..600_u16).map(|n| {
        let net = *rng.pick(&[0x63, 0x64, 0x64, 0x65, 0x65, 0x67, 0x69, 0x70, 0x71, 0x72]);
        let ip: Ipv6Addr = match n % 12 {
            0 => rng
                .pick(&[
                    "2001:db8:7::7",
                    "2001:db8:1:1::1",
                    "2001:db8:2:1::2",
                    "2001:db8:2:1::99",
                    "2001:db8:aaaa::9",
                    "ff15::9",
                ])
                .parse()
                .unwrap(),
            _ => Ipv6Addr::new(0x2001, 0xdb8, net, n, rng.bits() as u16, 0, 0, 1 + n),
        };
        ip
    });
    let v6: Vec<_> = v6.collect();
    let mut addresses = world.addresses(v4, v6);
    addresses.tunnels = 2;
    addresses.v4[0] = (0..2000)
        .map(|_| {
            Ipv4Addr::new(
                172,
                16 + rng.below(16) as u8,
                rng.bits() as u8,
                rng.bits() as u8,
            )
        })
        .collect();
    // Now and then the router's own, a broadcast address, or none.
    for (n, own) in [
        [10, 7, 7, 7],
        [10, 2, 2, 1],
        [10, 1, 1, 255],
        [0, 0, 0, 0],
        [0, 1, 2, 3],
    ]
    .into_iter()
    .enumerate()
    {
        for at in 0..20 {
            addresses.v4[0][100 * at + n] = Ipv4Addr::from(own);
        }
    }
    addresses.v6[0] = (0..2000)
        .map(|_| {
            Ipv6Addr::new(
                0x2001,
                0xdb8,
                0xaaaa,
                rng.bits() as u16,
                rng.bits() as u16,
                0,
                0,
                1,
            )
        })
        .collect();
    let (mut keys, mut frames) = (HashSet::new(), Vec::new());
    while frames.len() < FRAMES {
        for mut frame in frame::random(rng, &addresses, FRAMES) {
            change(rng, &mut frame);
            let packet = packet_of(&frame.bytes);
            if frames.len() < FRAMES && key(packet).is_none_or(|key| keys.insert(key)) {
                frames.push(frame);
            }
        }
    }
    frames
}

/// Makes something else of a frame, now and then.
fn change(rng: &mut Random, frame: &mut Crafted) {
    let bytes = &mut frame.bytes;
    let four = bytes[12..14] == [0x08, 0x00];
    match rng.below(16) {
        // Around the MTUs, with and without DF.
        0..=3 => {
            let target = *rng.pick(&[1000, 1001, 1200, 1201, 1280, 1281, 1290, 1300, 1400, 1500]);
            let target = 14 + target + rng.below(3) - 1;
            if bytes.len() >= target || target > 1514 || frame.kind.contains("bad") {
                return;
            }
            let more = rng.bytes(target - bytes.len());
            bytes.extend(more);
            if four && bytes[14] >= 0x45 {
                bytes[16..18].copy_from_slice(&((target - 14) as u16).to_be_bytes());
                if rng.once_in(2) {
                    bytes[20] ^= 0x40;
                }
                let header = usize::from(bytes[14] & 0xf) * 4;
                seal(&mut bytes[14..14 + header]);
            } else if !four {
                bytes[18..20].copy_from_slice(&((target - 54) as u16).to_be_bytes());
            }
            frame.kind = "long";
        }
        4 => {
            let tag = rng.pick(&[0_u16, 5, 4095]).to_be_bytes();
            bytes.splice(12..12, [0x81, 0, tag[0], tag[1]]);
            frame.kind = "VLAN tag";
        }
        5 => {
            let all = rng.once_in(2);
            let mac = if all {
                [0xff; 6]
            } else {
                [1, 0, 0x5e, 1, 2, 3]
            };
            bytes[..6].copy_from_slice(&mac);
            frame.kind = "to all or a group";
        }
        6 => {
            let len = 14 + rng.below(bytes.len() - 14);
            bytes.truncate(len);
            frame.kind = "cut";
        }
        7 if four && bytes.len() > 34 && bytes[14] == 0x45 => {
            bytes[22] = rng.below(3) as u8;
            seal(&mut bytes[14..34]);
            frame.kind = "low TTL";
        }
        7 if !four && bytes.len() > 54 => {
            bytes[21] = rng.below(3) as u8;
            frame.kind = "low hop limit";
        }
        8 if four && bytes.len() > 34 && bytes[14] == 0x45 => {
            let options = *rng.pick(&[
                &[1_u8, 1, 1, 0][..],
                &[0, 1, 2, 3],
                &[7, 7, 4, 0, 0, 0, 0, 0],
                &[131, 7, 4, 100, 64, 1, 1, 0],
                &[7, 9, 4, 0],
                &[68, 8, 5, 0, 0, 0, 0, 0],
            ]);
            bytes.splice(34..34, options.iter().copied());
            bytes[14] += (options.len() / 4) as u8;
            let length = (bytes.len() - 14) as u16;
            bytes[16..18].copy_from_slice(&length.to_be_bytes());
            seal(&mut bytes[14..34 + options.len()]);
            frame.kind = "options";
        }
        8 if !four && bytes.len() > 54 => {
            let options: [u8; 6] = *rng.pick(&[
                [1, 4, 0, 0, 0, 0],
                [1, 4, 0, 1, 0, 0],
                [5, 2, 0, 0, 1, 0],
                [0x42, 4, 0, 0, 0, 0],
                [0x82, 4, 0, 0, 0, 0],
                [0xdf, 4, 0, 0, 0, 0],
            ]);
            // Such errors are the only ones about what was sent to a group.
            if rng.once_in(3) {
                bytes[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
            }
            let next = std::mem::replace(&mut bytes[20], 0);
            bytes.splice(54..54, [&[next, 0][..], &options].concat());
            let length = (bytes.len() - 54) as u16;
            bytes[18..20].copy_from_slice(&length.to_be_bytes());
            frame.kind = "hop-by-hop options";
        }
        10 if four && bytes.len() > 42 && bytes[14] == 0x45 && bytes[20..22] == [0, 0] => {
            bytes[22] = rng.below(3) as u8;
            bytes[23] = 1;
            bytes[34] = rng.below(20) as u8;
            seal(&mut bytes[14..34]);
            frame.kind = "ICMP of any type";
        }
        9 => {
            let kind: [u8; 2] = *rng.pick(&[[0x88, 0xcc], [0x08, 0x01], [0x00, 0x40]]);
            bytes[12..14].copy_from_slice(&kind);
            frame.kind = "not IP";
        }
        _ => {}
    }
}

/// What `explain` says of each.
fn explained(world: &World, frames: &[Crafted]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.pcap");
    let mut writer = Writer::create(&file, Resolution::Nano).unwrap();
    for frame in frames {
        let record = Record {
            ts_ns: 1,
            original_len: frame.bytes.len() as u32,
            data: frame.bytes.clone(),
        };
        writer.write(&record).unwrap();
    }
    writer.finish().unwrap();
    let file = file.to_str().unwrap();
    answers(world, &["--pcap", file, "iif", "source"], frames.len())
}

/// What became of a packet.
#[derive(Debug, Default)]
struct Came {
    /// By which links it came out, and to which MAC addresses, as often as it did.
    out: Vec<(String, [u8; 6])>,
    /// What its sender was told.
    icmp: Vec<Icmp>,
}

fn exchange(world: &World, frames: &[Crafted]) -> Vec<Came> {
    let packets = frames.iter().map(|frame| packet_of(&frame.bytes));
    let keys: HashMap<Vec<u8>, usize> = packets
        .enumerate()
        .filter_map(|(n, packet)| Some((key(packet)?, n)))
        .collect();
    let mut came: Vec<Came> = frames.iter().map(|_| Came::default()).collect();
    for Arrival { link, frame } in world.exchange(frames, Duration::from_millis(300)) {
        let packet = frame.get(14..).unwrap_or_default();
        let find = |packet: &[u8]| key(packet).and_then(|key| keys.get(&key).copied());
        if let Some(n) = find(packet) {
            came[n].out.push((link, frame[..6].try_into().unwrap()));
            continue;
        }
        let (at, quoted) = match frame.get(12..14) {
            Some([0x08, 0x00]) if frame.get(23) == Some(&1) => {
                // The options of a packet come back in the error about it.
                let at = 14 + usize::from(frame[14] & 0xf) * 4;
                (at, at + 8)
            }
            Some([0x86, 0xdd]) if frame.get(20) == Some(&58) => (54, 62),
            _ => continue,
        };
        // Hosts behind the router have the number 2, and may say something, too.
        let last_of_source = if frame[12..14] == [0x08, 0x00] {
            29
        } else {
            37
        };
        if frame.get(last_of_source) == Some(&2) {
            continue;
        }
        let inner = frame.get(quoted..).unwrap_or_default();
        if link == "source"
            && let Some(n) = find(inner)
        {
            came[n].icmp.push((frame[at], frame[at + 1]));
        }
    }
    came
}

/// Redirects come beside what else happens.
fn is_redirect(icmp: Icmp) -> bool {
    matches!(icmp.0, 5 | 137)
}

fn agrees(world: &World, answer: &Value, came: &Came) -> Result<(), String> {
    let text = answer.to_string();
    if text.contains("please report") {
        return Err("the engine does not agree".to_owned());
    }
    if answer["confidence"]["level"] == "unknown" {
        return Ok(());
    }
    if came.out.is_empty() && came.icmp.is_empty() && text.contains("rp_filter of") {
        return Ok(());
    }
    let told: Vec<Icmp> = came
        .icmp
        .iter()
        .copied()
        .filter(|i| !is_redirect(*i))
        .collect();
    let fate = &answer["fate"];
    let nowhere = || match came.out.is_empty() {
        true => Ok(()),
        false => Err(format!("it came out: {:?}", came.out)),
    };
    let silent = || match told.is_empty() {
        true => Ok(()),
        false => Err(format!("the sender was told {told:?}")),
    };
    match fate["what"].as_str().unwrap() {
        "forwarded" | "fragmented" => {
            let many = fate["what"] == "fragmented";
            let link = answer["link"].as_str().unwrap();
            // Fragments wait for a neighbour like whole packets, and are told of as fragments.
            if came.out.is_empty() && text.contains("does not answer: then it is dropped") {
                return Ok(());
            }
            if came.out.is_empty() || (came.out.len() > 1) != many {
                return Err(format!("it came out {} times", came.out.len()));
            }
            for (out, mac) in &came.out {
                if out != link || gateway_mac(world, answer).is_some_and(|wanted| wanted != *mac) {
                    return Err(format!("it came out by {out} to {mac:x?}, not {link}"));
                }
            }
            silent()
        }
        // Some are there and answer, others are not.
        "resolving" => match came.out.iter().all(|(out, _)| *out == answer["link"]) {
            true => Ok(()),
            false => nowhere(),
        },
        "delivered" => {
            nowhere()?;
            let here = |icmp: &Icmp| matches!(icmp, (3, 2 | 3) | (12 | 4, _) | (1, 4));
            match told.iter().all(here) {
                true => Ok(()),
                false => silent(),
            }
        }
        "answered" => {
            nowhere()?;
            let byte = |name: &str| fate["icmp"][name].as_u64().unwrap() as u8;
            let wanted = (byte("type"), byte("code"));
            // To a sender whom no route leads back to, nothing comes.
            let from = answer["flow"]["from"].as_str().unwrap();
            let reached = from.starts_with("172.") || from.starts_with("2001:db8:aaaa:");
            match told == [wanted] || (told.is_empty() && !reached) {
                true => Ok(()),
                false => Err(format!("the sender was told {told:?}, not {wanted:?}")),
            }
        }
        "vlan" => Ok(()),
        "multicast" => nowhere(),
        _ => nowhere().and_then(|()| silent()),
    }
}

/// The MAC address of who the packet is sent to.
fn gateway_mac(world: &World, answer: &Value) -> Option<[u8; 6]> {
    let via: std::net::IpAddr = answer["via"].as_str()?.parse().ok()?;
    let link = answer["link"].as_str()?;
    for n in 1..=LINKS {
        let (four, six) = world.gateway(n);
        if link != world.out(n) {
            continue;
        }
        return match via {
            via if via == four || via == six => Some(world.gateway_mac(n)),
            via if via == Ipv4Addr::new(10, 2, n as u8, 3) => Some([2, 0, 0, 0, 0, n as u8]),
            _ => None,
        };
    }
    None
}
