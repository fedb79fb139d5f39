//! `raddle explain --flows` beside sockets of the machine itself: TCP, connected and unconnected UDP, bound and
//! not, over routes with several gateways on one link. `RADDLE_CASES` says how many (1600), `RADDLE_SEED` which.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use raddle_e2e::explained::{Compared, Drawn, answers, draw_hashing};
use raddle_e2e::{Random, World, root};
use serde_json::Value;

const LINKS: u32 = 3;
/// Sockets for each state.
const SOCKETS: usize = 400;
/// `IPPROTO_*`.
const TCP: u8 = 6;

/// A socket that sends one packet.
#[derive(Clone, Copy, Debug)]
struct Sender {
    dst: SocketAddr,
    /// The unspecified address where it is not bound to one; port 0 where it is not bound to one.
    bound: SocketAddr,
    tcp: bool,
    connected: bool,
}

#[test]
fn every_socket_sends_as_explained() {
    if !root("every_socket_sends_as_explained") {
        return;
    }
    let drawn = Drawn::cases(4 * SOCKETS);
    let world = world("exsend");
    let mut compared = Compared::default();
    for (state, mut rng) in drawn.states(SOCKETS) {
        let about = draw_state(&world, &mut rng, state);
        let senders: Vec<Sender> = (0..SOCKETS).map(|n| draw(&mut rng, n)).collect();
        let answers = explained(&world, &senders);
        let came = sent(&world, &senders);
        for (sender, answer) in senders.iter().zip(&answers) {
            let level = answer["confidence"]["level"].as_str().unwrap();
            let kind = match (sender.tcp, sender.connected) {
                (true, _) => "TCP",
                (_, true) => "connected UDP",
                _ => "UDP",
            };
            *compared.seen.entry(format!("{kind}, {level}")).or_default() += 1;
            if level == "unknown" {
                continue;
            }
            let theirs = came.get(&(sender.dst.ip(), sender.dst.port()));
            let ours = place(&world, answer);
            if theirs.map(String::as_str) != ours.as_deref() {
                compared.wrong.push(format!(
                    "state {state} ({about}): {sender:?}: the kernel {theirs:?}, raddle {ours:?}: {}\n  {}",
                    answer["confidence"], answer["steps"]
                ));
            }
        }
        compared.so_far(state, &about);
    }
    let kinds = ["TCP, exact", "connected UDP, exact", "UDP, exact"];
    compared.check(drawn, &kinds);
}

fn world(name: &str) -> World {
    let world = World::new(name, LINKS);
    world.ip("addr add 10.7.7.7/32 dev lo");
    world.ip("addr add 2001:db8:7::7/128 dev lo");
    for n in 1..=LINKS {
        let dev = world.out(n);
        for other in 3..=4 {
            world.ip(&format!(
                "neigh replace 10.2.{n}.{other} lladdr 02:00:00:00:{other:02x}:{n:02x} dev {dev} nud permanent"
            ));
        }
    }
    world
}

/// Another state, and what it is, for messages; each policy is one in four.
fn draw_state(world: &World, rng: &mut Random, state: usize) -> String {
    let (policy, use_neigh) = (state as u32 % 4, rng.below(2));
    draw_hashing(world, rng, policy);
    world.sysctl("net.ipv4.fib_multipath_use_neigh", &use_neigh.to_string());
    let four = |rng: &mut Random| -> String {
        let hops = (0..2 + rng.below(5)).map(|_| {
            let n = 1 + rng.below(LINKS as usize) as u32;
            let via = 2 + rng.below(3);
            let weight = *rng.pick(&[1, 1, 2, 5, 250]);
            format!(
                " nexthop via 10.2.{n}.{via} dev {} weight {weight}",
                world.out(n)
            )
        });
        hops.collect()
    };
    let mut group = Vec::new();
    for n in 1..=LINKS {
        let ((_, six), dev) = (world.gateway(n), world.out(n));
        for via in 2..=4 {
            let id = 10 * via + n;
            world.ip(&format!(
                "nexthop replace id {id} via 10.2.{n}.{via} dev {dev}"
            ));
            group.push(format!("{id},{}", 1 + rng.below(9)));
        }
        world.ip(&format!("nexthop replace id {n} via {six} dev {dev}"));
    }
    world.ip(&format!("nexthop replace id 100 group {}", group.join("/")));
    world.ip("nexthop replace id 200 group 1/2,3/3");
    let six: String = (1..=LINKS)
        .map(|n| {
            let (_, via) = world.gateway(n);
            format!(
                " nexthop via {via} dev {} weight {}",
                world.out(n),
                1 + rng.below(9)
            )
        })
        .collect();
    world.ip(&format!("route replace 100.64.0.0/16 {}", four(rng)));
    world.ip(&format!(
        "route replace 100.66.0.0/16 src 10.7.7.7 {}",
        four(rng)
    ));
    world.ip("route replace 100.65.0.0/16 nhid 100");
    world.ip(&format!("-6 route replace 2001:db8:64::/48 {six}"));
    world.ip("-6 route replace 2001:db8:65::/48 nhid 200");
    format!("policy {policy}, use_neigh {use_neigh}")
}

fn draw(rng: &mut Random, n: usize) -> Sender {
    let port = 2000 + n as u16;
    let (dst, none, sources): (IpAddr, IpAddr, [&str; 3]) = match rng.below(3) {
        0 => {
            let net = *rng.pick(&[0x64, 0x65]);
            let dst = Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, rng.bits() as u16, 1 + n as u16);
            let sources = ["2001:db8:7::7", "2001:db8:2:1::1", "2001:db8:2:2::1"];
            (dst.into(), Ipv6Addr::UNSPECIFIED.into(), sources)
        }
        _ => {
            let net = *rng.pick(&[64, 64, 65, 66]);
            let dst = Ipv4Addr::new(100, net, rng.bits() as u8, 1 + rng.below(250) as u8);
            let sources = ["10.7.7.7", "10.2.1.1", "10.2.3.1"];
            (dst.into(), Ipv4Addr::UNSPECIFIED.into(), sources)
        }
    };
    let source = match rng.once_in(2) {
        true => none,
        false => rng.pick(&sources).parse().unwrap(),
    };
    let tcp = rng.once_in(4);
    let own = if rng.once_in(6) { 0 } else { 20_000 + n as u16 };
    Sender {
        dst: (dst, port).into(),
        bound: (source, own).into(),
        tcp,
        connected: !tcp && rng.once_in(2),
    }
}

fn explained(world: &World, senders: &[Sender]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flows");
    let line = |s: &Sender| {
        let (ip, own) = (s.dst.ip(), s.bound.ip());
        let from = if own.is_unspecified() {
            String::new()
        } else {
            format!(" from {own}")
        };
        let proto = if s.tcp { "tcp" } else { "udp" };
        let sport = match s.bound.port() {
            0 => String::new(),
            port => format!(" sport {port}"),
        };
        let connected = if s.connected { " connected" } else { "" };
        let dport = s.dst.port();
        format!("{ip}{from} ipproto {proto}{sport} dport {dport}{connected}\n")
    };
    std::fs::write(&file, senders.iter().map(line).collect::<String>()).unwrap();
    let file = file.to_str().unwrap();
    answers(world, &["--flows", file], senders.len())
}

/// By which link, to which MAC address, by destination and its port.
fn sent(world: &World, senders: &[Sender]) -> HashMap<(IpAddr, u16), String> {
    let arrived = world.watched(Duration::from_millis(300), || {
        let all = || senders.iter().for_each(send);
        world.lab().within("router", all).unwrap();
    });
    let mut came = HashMap::new();
    for arrival in arrived {
        let frame = &arrival.frame;
        let (dst, ports): (IpAddr, usize) = match frame.get(12..14) {
            Some([0x08, 0x00]) if frame.len() >= 38 && matches!(frame[23], 6 | 17) => {
                (<[u8; 4]>::try_from(&frame[30..34]).unwrap().into(), 34)
            }
            Some([0x86, 0xdd]) if frame.len() >= 58 && matches!(frame[20], 6 | 17) => {
                (<[u8; 16]>::try_from(&frame[38..54]).unwrap().into(), 54)
            }
            _ => continue,
        };
        let port = u16::from_be_bytes([frame[ports + 2], frame[ports + 3]]);
        let mac: String = frame[..6].iter().map(|b| format!("{b:02x}")).collect();
        came.entry((dst, port))
            .or_insert(format!("{} {mac}", arrival.link));
    }
    came
}

fn send(sender: &Sender) {
    if sender.tcp {
        return connect(sender);
    }
    let socket = UdpSocket::bind(sender.bound).unwrap();
    if sender.connected {
        socket.connect(sender.dst).unwrap();
        socket.send(b"x").unwrap();
    } else {
        socket.send_to(b"x", sender.dst).unwrap();
    }
}

/// Begins a TCP connection, of which nobody waits for the end.
fn connect(sender: &Sender) {
    let family = if sender.dst.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(family, kind, i32::from(TCP)) };
    assert!(fd >= 0);
    // SAFETY: the descriptor was just made and is nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let (bound, dst) = (address(sender.bound), address(sender.dst));
    if !sender.bound.ip().is_unspecified() || sender.bound.port() != 0 {
        // SAFETY: the address lives through the call and is as long as said.
        let done = unsafe { libc::bind(fd.as_raw_fd(), bound.as_ptr().cast(), bound.len() as u32) };
        assert_eq!(done, 0, "{sender:?}: {}", std::io::Error::last_os_error());
    }
    // SAFETY: as above. That it is under way is what comes back.
    unsafe { libc::connect(fd.as_raw_fd(), dst.as_ptr().cast(), dst.len() as u32) };
}

/// `sockaddr_in` or `sockaddr_in6`.
fn address(of: SocketAddr) -> Vec<u8> {
    let port = of.port().to_be_bytes();
    match of.ip() {
        IpAddr::V4(ip) => {
            let family = (libc::AF_INET as u16).to_ne_bytes();
            [&family[..], &port, &ip.octets(), &[0; 8]].concat()
        }
        IpAddr::V6(ip) => {
            let family = (libc::AF_INET6 as u16).to_ne_bytes();
            [&family[..], &port, &[0; 4], &ip.octets(), &[0; 4]].concat()
        }
    }
}

/// As [`sent`] says it.
fn place(world: &World, answer: &Value) -> Option<String> {
    let link = answer["link"].as_str()?;
    let via: IpAddr = answer["via"].as_str()?.parse().ok()?;
    let n = (1..=LINKS).find(|n| world.out(*n) == link)?;
    let mac = match via {
        IpAddr::V4(ip) if ip.octets()[3] > 2 => [2, 0, 0, 0, ip.octets()[3], n as u8],
        _ => world.gateway_mac(n),
    };
    let mac: String = mac.iter().map(|b| format!("{b:02x}")).collect();
    Some(format!("{link} {mac}"))
}
