//! Wires, and the certainty of clean-up; without routing daemons.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use aya::{EbpfLoader, maps::Array, programs::Xdp, programs::XdpMode};
use nix::{
    net::if_::if_nametoindex,
    sys::socket::{setsockopt, sockopt::BindToDevice},
};
use raddle_lab::{Chain, Lab, LabError, Pair, Stage, StaticRoute, UpOptions};

use crate::common::{echo, output, up};
use crate::traces::{is_root, name, traces};

const SINK: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

#[test]
fn two_labs_side_by_side() {
    if !is_root("two_labs_side_by_side") {
        return;
    }
    let topology = Chain::default().topology().unwrap();
    let one = up("one", &topology);
    let two = up("two", &topology);
    let six = "2001:db8:9::1".parse().unwrap();
    for lab in [&one, &two] {
        assert!(echo(lab, "source", "sink", IpAddr::V4(SINK)));
        assert!(echo(lab, "source", "sink", six));
    }
    assert_ne!(
        one.hash_seed("router").unwrap(),
        two.hash_seed("router").unwrap()
    );

    // Whatever still runs in a node ends with its lab.
    let mut sleeper = one.spawn("sink", &["sleep", "600"]).unwrap();
    one.down().unwrap();
    assert!(!sleeper.wait().unwrap().success());
    assert_eq!(traces(&name("one")), [""; 0]);
    assert!(echo(&two, "source", "sink", IpAddr::V4(SINK)));
}

#[test]
fn a_failed_up_leaves_nothing() {
    if !is_root("a_failed_up_leaves_nothing") {
        return;
    }
    let mut broken = Chain::default().topology().unwrap().into_builder();
    let prefix = "10.77.0.0/16".parse().unwrap();
    let nowhere = vec!["192.0.2.1".parse().unwrap()];
    broken.nodes[0].routes = vec![StaticRoute::new(prefix, nowhere)];
    let failed = Lab::up(&name("bad"), &broken.build().unwrap(), UpOptions::default());
    let message = failed.unwrap_err().to_string();
    assert!(
        message.contains("route add 10.77.0.0/16 via 192.0.2.1"),
        "{message}"
    );
    assert_eq!(traces(&name("bad")), [""; 0]);
}

#[test]
fn down_removes_what_a_killed_up_left() {
    if !is_root("down_removes_what_a_killed_up_left") {
        return;
    }
    let lab = name("kill");
    let status = Command::new("ip")
        .args(["netns", "add", &format!("rdl-{lab}-leaf1")])
        .status();
    assert!(status.unwrap().success());
    let up = Lab::up(
        &lab,
        &Chain::default().topology().unwrap(),
        UpOptions::default(),
    );
    assert!(matches!(up, Err(LabError::NameInUse(_))));
    assert!(
        Lab::list()
            .iter()
            .any(|l| l.name == lab && l.stage == Stage::Broken)
    );
    assert!(Lab::load(&lab).is_err());
    Lab::down(&lab).unwrap();
    assert_eq!(traces(&lab), [""; 0]);
}

#[test]
fn a_pair_has_every_path() {
    if !is_root("a_pair_has_every_path") {
        return;
    }
    let rate = "200mbit".parse().ok();
    let lab = up(
        "pair",
        &Pair {
            links: 4,
            rate,
            ..Pair::default()
        }
        .topology()
        .unwrap(),
    );
    for prefix in ["10.9.0.0/16", "2001:db8:9::/48"] {
        let family = if prefix.contains(':') { "-6" } else { "-4" };
        let route = output(&lab, "client", &["ip", family, "route", "show", prefix]);
        assert_eq!(route.matches("nexthop").count(), 4, "{route}");
    }
    assert!(echo(&lab, "client", "server", IpAddr::V4(SINK)));
    // One cable out of four: nothing but its two ends changes.
    lab.link_down(
        lab.topology()
            .links_between("client", "server")
            .nth(1)
            .unwrap(),
    )
    .unwrap();
    // The kernel takes its time to tell the other end.
    let mut links = String::new();
    for _ in 0..50 {
        links = output(&lab, "server", &["ip", "-br", "link"]);
        if links.contains("NO-CARRIER") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(links.matches("NO-CARRIER").count(), 1, "{links}");
}

/// Connected sockets mark their frames with an L4 hash, by which the router would choose, were it not
/// for the wire.
#[test]
fn a_wire_carries_no_hash() {
    if !is_root("a_wire_carries_no_hash") {
        return;
    }
    const PORT: u16 = 9999;
    let lab = up(
        "hash",
        &Chain {
            links: 4,
            ..Chain::default()
        }
        .topology()
        .unwrap(),
    );
    assert!(echo(&lab, "source", "sink", IpAddr::V4(SINK)));
    let devices: Vec<String> = lab.topology().devices("sink").map(String::from).collect();
    let sockets = lab.within("sink", || {
        let bind = |dev: &String| {
            let socket = nix_udp();
            setsockopt(&socket, BindToDevice, &dev.into()).unwrap();
            bind_udp(socket, PORT)
        };
        devices.iter().map(bind).collect::<Vec<UdpSocket>>()
    });
    let sockets = sockets.unwrap();
    let mut used = [false; 4];
    for flow in 0..48 {
        let port = 20000 + flow;
        let client = lab
            .within("source", || UdpSocket::bind(("10.1.1.2", port)))
            .unwrap()
            .unwrap();
        client.connect((SINK, PORT)).unwrap();
        client.send(b"x").unwrap();
        let arrived = (0..200).find_map(|_| {
            thread::sleep(Duration::from_millis(1));
            sockets.iter().position(|s| s.recv(&mut [0; 8]).is_ok())
        });
        let arrived = arrived.expect("the packet arrives on some link");
        used[arrived] = true;
        let asked = format!(
            "route get {SINK} from 10.1.1.2 iif source ipproto udp sport {port} dport {PORT}"
        );
        let mut argv = vec!["ip"];
        argv.extend(asked.split(' '));
        let answer = output(&lab, "router", &argv);
        let predicted = lab.topology().devices("router").nth(1 + arrived).unwrap();
        assert!(
            answer.contains(&format!(" dev {predicted} ")),
            "{port} {predicted}: {answer}"
        );
    }
    assert_eq!(used, [true; 4]);
}

fn nix_udp() -> std::os::fd::OwnedFd {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    let flags = SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Inet, SockType::Datagram, flags, None).unwrap()
}

fn bind_udp(socket: std::os::fd::OwnedFd, port: u16) -> UdpSocket {
    use nix::sys::socket::{SockaddrIn, bind};
    use std::os::fd::AsRawFd;
    bind(socket.as_raw_fd(), &SockaddrIn::new(0, 0, 0, 0, port)).unwrap();
    socket.into()
}

/// What does not fit into the shaper's queue is counted, and all else arrives.
#[test]
fn a_shaper_counts_what_it_drops() {
    if !is_root("a_shaper_counts_what_it_drops") {
        return;
    }
    const FRAMES: u64 = 500;
    let pair = Pair {
        links: 1,
        rate: "8mbit".parse().ok(),
        mtu: 1500,
        ..Pair::default()
    };
    let lab = up("drops", &pair.topology().unwrap());
    assert!(echo(&lab, "client", "server", IpAddr::V4(SINK)));
    let counters = || lab.counters().unwrap()[0].to[1];
    let before = counters();
    // The queue holds some 80 of them. A socket waits while too much of its own is in the queue, so
    // there are ten.
    let sockets = lab.within("client", || {
        [0; 10].map(|_| UdpSocket::bind("10.2.1.1:0").unwrap())
    });
    for client in &sockets.unwrap() {
        (0..FRAMES / 10).for_each(|_| _ = client.send_to(&[7; 1000], (SINK, 9)).unwrap());
    }
    // The queue empties at the wire's rate.
    let until = Instant::now() + Duration::from_secs(60);
    let (carried, dropped) = loop {
        let after = counters();
        let (carried, dropped) = (
            after.packets - before.packets,
            after.dropped - before.dropped,
        );
        if carried + dropped >= FRAMES || Instant::now() > until {
            break (carried, dropped);
        }
        thread::sleep(Duration::from_millis(10));
    };
    assert!(dropped > FRAMES / 2, "{dropped} of {FRAMES} were dropped");
    let all = carried + dropped;
    assert!(
        (FRAMES..FRAMES + 10).contains(&all),
        "{carried} were carried and {dropped} dropped of {FRAMES}"
    );
}

/// A sender's large segments and unfinished checksums become finished frames of the MTU on the wire,
/// and an XDP program that sends out of another device reaches the wire behind it.
#[test]
fn xdp_sees_frames_and_reaches_wires() {
    if !is_root("xdp_sees_frames_and_reaches_wires") {
        return;
    }
    let lab = up(
        "xdp",
        &Chain {
            mtu: 1500,
            ..Chain::default()
        }
        .topology()
        .unwrap(),
    );
    let sent = stream(&lab, 4 << 20);
    let into_router = lab.counters().unwrap()[0].to[1];
    assert!(into_router.bytes > sent && into_router.bytes <= into_router.packets * 1514);

    // Another port: a program that another test is just starting may hold the first listener for a moment more.
    let listener = lab
        .within("sink", || TcpListener::bind((SINK, 5002)))
        .unwrap()
        .unwrap();
    let connect = || TcpStream::connect(SocketAddr::from((SINK, 5002)));
    let mut tcp = lab.within("source", connect).unwrap().unwrap();

    let out = lab
        .within("router", || if_nametoindex("sink").unwrap())
        .unwrap();
    let object = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/bounce.bpf.o"));
    let mut bpf = EbpfLoader::new()
        .override_global("out", &out, true)
        .load(object)
        .unwrap();
    let program: &mut Xdp = bpf.program_mut("bounce").unwrap().try_into().unwrap();
    program.load().unwrap();
    lab.within("router", || {
        program.attach("source", XdpMode::Driver).unwrap()
    })
    .unwrap();

    // The program rewrites nothing, so the sink ignores the frames; but its wire delivers them.
    let carried = || lab.counters().unwrap()[1].to[1].packets;
    let before = carried();
    let client = lab
        .within("source", || UdpSocket::bind("10.1.1.2:0"))
        .unwrap()
        .unwrap();
    for _ in 0..10 {
        (0..100).for_each(|_| _ = client.send_to(&[7; 56], (SINK, 9)).unwrap());
        thread::sleep(Duration::from_millis(5));
    }
    let arrived = carried() - before;
    assert!(
        arrived >= 1000,
        "{arrived} of 1000 redirected frames went through the wire"
    );

    let seen: Array<_, u64> = bpf.map("seen").unwrap().try_into().unwrap();
    let [longest, udp, good] = [0, 1, 2].map(|i| seen.get(&i, 0).unwrap());
    assert_eq!((longest, udp, good), (98, 1000, 1000));

    // TCP's first segments, more than a frame each where they leave the socket.
    // No more than the socket's buffer holds: nothing will be acknowledged.
    tcp.write_all(&[0; 20_000]).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while seen.get(&0, 0).unwrap() != 1514 && Instant::now() < until {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(seen.get(&0, 0).unwrap(), 1514);
    drop(listener);
}

/// Sends so many bytes by TCP from source to sink, and returns the number.
fn stream(lab: &Lab, bytes: usize) -> u64 {
    let listener = lab
        .within("sink", || TcpListener::bind((SINK, 5001)))
        .unwrap()
        .unwrap();
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
        all.len() as u64
    });
    let connect = || TcpStream::connect(SocketAddr::from((SINK, 5001)));
    let mut tcp = lab.within("source", connect).unwrap().unwrap();
    tcp.write_all(&vec![0; bytes]).unwrap();
    drop(tcp);
    reader.join().unwrap()
}
