//! Packets that bring a hash: with policy 1 the kernel chooses by it, and so does raddle where it reads it.

#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::HashMap;
use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use raddle_e2e::{Daemon, PacketSocket, World, root, within};

const LINKS: u32 = 4;
const SOCKETS: usize = 24;
/// The source and the sink, in both families.
const ENDS: [(&str, &str); 2] = [
    ("10.1.9.2", "10.9.0.1"),
    ("2001:db8:1:9::2", "2001:db8:9::1"),
];

/// Sockets of the source, joined to the router by a veth without a wire, so that their hash arrives
/// there.
struct Senders {
    udp: Vec<UdpSocket>,
    tcp: Vec<TcpStream>,
    sinks: Vec<PacketSocket>,
    /// Where the senders' packets go, and nobody answers.
    _far: (Vec<UdpSocket>, Vec<TcpListener>),
}

/// The link that each socket's packets arrived on, by its port.
type Ways = HashMap<(&'static str, u16), u32>;

impl Senders {
    fn new(world: &World) -> Senders {
        for (node, own) in [("source", "2"), ("router", "1")] {
            world.node(node, &format!("ip address add 10.1.9.{own}/24 dev direct"));
            let six = format!("ip address add 2001:db8:1:9::{own}/64 dev direct nodad");
            world.node(node, &six);
        }
        // A segment without its checksum would be redirected without one.
        world.node("source", "ethtool -K direct tx off");
        for (family, to, via) in [
            ("-4", "10.9.0.0/16", "10.1.9.1"),
            ("-6", "2001:db8:9::/48", "2001:db8:1:9::1"),
        ] {
            world.node(
                "source",
                &format!("ip {family} route replace {to} via {via} dev direct"),
            );
        }
        let (four, six) = ("10.2.1.1", "2001:db8:2:1::1");
        world.node("sink", &format!("ip route replace 10.1.9.0/24 via {four}"));
        world.node(
            "sink",
            &format!("ip -6 route replace 2001:db8:1:9::/64 via {six}"),
        );

        let lab = world.lab();
        let far = lab
            .within("sink", || {
                let udp = ENDS.map(|(_, to)| UdpSocket::bind((to, 7000)).unwrap());
                let tcp = ENDS.map(|(_, to)| TcpListener::bind((to, 7000)).unwrap());
                (udp.into(), tcp.into())
            })
            .unwrap();
        let (udp, tcp) = lab
            .within("source", || {
                let ends = || ENDS.iter().cycle().take(SOCKETS);
                let udp = ends().map(|(from, to)| {
                    let socket = UdpSocket::bind((*from, 0)).unwrap();
                    socket.connect((*to, 7000)).unwrap();
                    socket
                });
                let tcp = ends().map(|(_, to)| TcpStream::connect((*to, 7000)).unwrap());
                (udp.collect(), tcp.collect())
            })
            .unwrap();
        let sinks = (1..=LINKS).map(|n| {
            let name = match n {
                1 => "router".to_owned(),
                n => format!("router-{n}"),
            };
            let socket = lab.within("sink", || PacketSocket::open(&name));
            socket.unwrap().unwrap()
        });
        Senders {
            udp,
            tcp,
            sinks: sinks.collect(),
            _far: far,
        }
    }

    /// Every socket sends something.
    fn ways(&mut self) -> Ways {
        for sink in &mut self.sinks {
            while sink.receive().unwrap().is_some() {}
        }
        for socket in &self.udp {
            socket.send(&[0x55; 100]).unwrap();
        }
        for stream in &mut self.tcp {
            stream.write_all(&[0x55; 100]).unwrap();
        }
        let mut ways = Ways::new();
        let start = Instant::now();
        while ways.len() < 2 * SOCKETS && start.elapsed() < Duration::from_secs(3) {
            for (n, sink) in (1..).zip(&mut self.sinks) {
                while let Some(frame) = sink.receive().unwrap() {
                    if let Some(socket) = sender(frame) {
                        ways.insert(socket, n);
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(ways.len(), 2 * SOCKETS, "some did not arrive");
        ways
    }
}

/// The socket that a frame with data is from.
fn sender(frame: &[u8]) -> Option<(&'static str, u16)> {
    let (proto, at) = match frame.get(12..14)? {
        [0x08, 0x00] => (frame.get(23)?, 34),
        [0x86, 0xdd] => (frame.get(20)?, 54),
        _ => return None,
    };
    let port = u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?);
    let name = match (proto, at) {
        (17, 34) => "UDP over IPv4",
        (17, _) => "UDP over IPv6",
        (6, 34) => "TCP over IPv4",
        (6, _) => "TCP over IPv6",
        _ => return None,
    };
    frame.ends_with(&[0x55; 100]).then_some((name, port))
}

#[test]
fn sockets_keep_their_way_when_raddle_comes() {
    if !root("sockets_keep_their_way_when_raddle_comes") {
        return;
    }
    let mut world = World::new("rxhash", LINKS);
    world.send_directly();
    world.policy(1);
    world.sysctl("net.ipv4.fib_multipath_hash_seed", "7");
    let mut senders = Senders::new(&world);
    let kernel = senders.ways();
    assert_eq!(senders.ways(), kernel, "the kernel itself keeps to it");

    let run = |setting: &str, senders: &mut Senders| {
        let daemon = Daemon::start(&world, &["--link", "direct", "--rx-hash", setting]);
        let link = daemon.status()["links"][0].clone();
        assert_eq!(
            (&link["dev"], &link["mode"]),
            (&"direct".into(), &"native".into())
        );
        let before = daemon.forwarded();
        let ways = senders.ways();
        let forwarded = daemon.forwarded() - before;
        assert!(forwarded >= 2 * SOCKETS as u64, "{forwarded} by raddle");
        daemon.terminate();
        (link["rx_hash"].clone(), ways)
    };
    let (auto, by_seed) = run("auto", &mut senders);
    assert_eq!(auto["read"], false);
    assert!(auto["why"].as_str().unwrap().contains("software"), "{auto}");
    assert_ne!(
        by_seed, kernel,
        "chance keeps a quarter of them where they were"
    );
    assert_eq!(
        senders.ways(),
        kernel,
        "reading nothing, it leaves nothing behind"
    );

    let (on, by_hash) = run("on", &mut senders);
    if on["lacking"] == true {
        eprintln!("skipped: this kernel does not let programs read the hash: {on}");
        return;
    }
    assert_eq!(on["read"], true);
    assert_eq!(by_hash, kernel);
    assert_eq!(senders.ways(), kernel);

    // Another policy than 1 does not look at it, and comes and goes while it runs.
    let daemon = Daemon::start(&world, &["--link", "direct", "--rx-hash", "on"]);
    let reads = |wanted: bool| {
        within(Duration::from_secs(60), || {
            let hash = &daemon.status()["links"][0]["rx_hash"];
            (hash["read"] == wanted)
                .then_some(())
                .ok_or_else(|| hash.to_string())
        });
    };
    reads(true);
    world.policy(0);
    reads(false);
    world.policy(1);
    reads(true);
    assert_eq!(senders.ways(), kernel);
}
