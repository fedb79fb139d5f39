//! Tunnels over IPv4 against the running kernel: the same frames are forwarded by it, then by raddle, out by tunnels of all kinds and in by
//! them. What comes out has to be the same each time, byte for byte, but for what is drawn at random.
//!
//! The test machine's kernel may lack some kinds, or VRFs; `make test-kernels` runs this on Debian's.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::net::Ipv4Addr;
use std::time::Duration;

use raddle_e2e::bridged::{Drawing, Net, Way, net, route, way};
use raddle_e2e::compared::{Burst, Compared};
use raddle_e2e::frame::{self, Flow};
use raddle_e2e::networks::{behind4, behind6, sources};
use raddle_e2e::tags::{CameOut, Look};
use raddle_e2e::tunnelled::{
    Checksum, Kind, LOCAL, Outer, SPORTS, VXLAN_PORT, innermost, remote, smooth, tunnel, underlay,
    wrap,
};
use raddle_e2e::{
    BRIDGE_MAC, Crafted, Daemon, PATIENT, Random, World, gateway_mac, quiet, root, within,
};
use raddle_packet::checksum;

/// Of the links; there is room for outer headers.
const MTU: u32 = 1600;
/// Of tunnels.
const INNER_MTU: usize = 1450;
/// MAC address of the VXLANs that have addresses themselves.
const VXLAN_MAC: [u8; 6] = [2, 0x97, 0, 0, 0, 1];

const LOOK: Look = Look {
    inner: innermost,
    smooth,
};

/// A tunnel of the router.
#[derive(Clone, Copy)]
struct Tunnel {
    name: &'static str,
    /// Its network, behind it.
    net: u8,
    /// The other end, see [`remote`].
    remote: u8,
    kind: Kind,
    /// What `ip link add` is to be told, beside the ends.
    words: &'static str,
    /// Raddle sends by it and takes from it.
    engine: bool,
}

const fn of(name: &'static str, net: u8, remote: u8, kind: Kind, words: &'static str) -> Tunnel {
    Tunnel {
        name,
        net,
        remote,
        kind,
        words,
        engine: true,
    }
}

const fn kernels(tunnel: Tunnel) -> Tunnel {
    Tunnel {
        engine: false,
        ..tunnel
    }
}

const TUNNELS: [Tunnel; 15] = [
    of("gre1", 11, 1, Kind::Gre(None), "gre ttl 64"),
    of("grek", 12, 2, Kind::Gre(Some(7)), "gre key 7"),
    of("gret", 13, 3, Kind::Gre(None), "gre tos inherit nopmtudisc"),
    of("gre2", 14, 129, Kind::Gre(None), "gre ttl 9 tos 0xb8"),
    of("ipip1", 15, 4, Kind::Ip, "ipip"),
    of("ipip2", 16, 130, Kind::Ip, "ipip ttl 200 tos inherit"),
    of("sit1", 17, 5, Kind::Ip, "sit"),
    of("sit2", 18, 131, Kind::Ip, "sit tos inherit nopmtudisc"),
    of("vx5", 19, 6, Kind::Vxlan(5), "vxlan id 5 ttl 64"),
    of(
        "vx6",
        20,
        132,
        Kind::Vxlan(6),
        "vxlan id 6 noudpcsum df set tos inherit",
    ),
    of(
        "vx7",
        21,
        7,
        Kind::Vxlan(7),
        "vxlan id 7 ttl inherit tos 0x20",
    ),
    kernels(of("grec", 22, 8, Kind::Gre(None), "gre csum")),
    kernels(of("greo", 23, 9, Kind::Gre(None), "gre oseq")),
    kernels(of("vxdf", 24, 10, Kind::Vxlan(8), "vxlan id 8 df inherit")),
    kernels(of("vxpr", 25, 11, Kind::Vxlan(9), "vxlan id 9 proxy")),
];

impl Tunnel {
    fn is_vxlan(&self) -> bool {
        matches!(self.kind, Kind::Vxlan(_))
    }

    fn remote(&self) -> Ipv4Addr {
        remote(self.remote)
    }

    /// Makes it, and routes to what is behind it; says whether the kernel has such.
    fn make(&self, world: &World) -> bool {
        let (name, net) = (self.name, self.net);
        let ends = match self.is_vxlan() {
            true => format!(
                "local {LOCAL} dstport {VXLAN_PORT} srcport {} {} nolearning",
                SPORTS.0, SPORTS.1
            ),
            false => format!("local {LOCAL} remote {}", self.remote()),
        };
        if !tunnel(world, name, INNER_MTU, &format!("{} {ends}", self.words)) {
            eprintln!(
                "without {name}: this kernel, or `ip`, has no {}",
                self.words
            );
            return false;
        }
        match self.is_vxlan() {
            true => {
                world.ip(&format!("link set {name} address {}", text(VXLAN_MAC)));
                world.networks(&[(name, net)], "");
                let mac = text(gateway_mac(net));
                let line = format!("fdb add {mac} dev {name} dst {} self", self.remote());
                world.bridges(&[line]);
            }
            false => world.batch(&[
                format!("addr add 10.3.{net}.1/24 dev {name}"),
                format!("addr add 2001:db8:3:{net:x}::1/64 dev {name} nodad"),
                format!("route add 172.20.{net}.0/24 dev {name}"),
                format!("route add 2001:db8:4:{net:x}::/64 dev {name}"),
            ]),
        }
        true
    }

    /// Where frames in it are to.
    fn mac(&self) -> [u8; 6] {
        match self.is_vxlan() {
            true => VXLAN_MAC,
            false => [0; 6],
        }
    }

    fn net(&self) -> Net {
        let net = net(self.name, self.net, 0, &[]).untold();
        if self.engine { net } else { net.kernels() }
    }

    fn outer(&self) -> Outer {
        let outer = Outer::new(self.kind, self.remote());
        match self.is_vxlan() && self.net.is_multiple_of(2) {
            true => Outer {
                checksum: Checksum::Right,
                ..outer
            },
            false => outer,
        }
    }
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Has the router's neighbours, settings and networks: `source` has number 1, `sink-3` 101.
fn world(name: &str) -> World {
    let world = World::with_mtu(name, 3, MTU);
    world.see_tags();
    // Of fragments that stay alone it would tell in the middle of another run.
    world.sysctl("net.ipv4.ipfrag_time", "600");
    world.sysctl("net.ipv6.ip6frag_time", "600");
    underlay(&world);
    world
}

/// Bursts of frames that are in a tunnel; all come in by one link of the router.
fn inside(
    rng: &mut Random,
    drawing: &Drawing,
    outer: &Outer,
    macs: [[u8; 6]; 2],
    sized: bool,
) -> Vec<Burst> {
    let mut bursts = drawing.bursts(rng);
    if sized {
        bursts.extend(drawing.sized(rng, drawing.ways, INNER_MTU, &[]));
    }
    bursts.retain(|burst| burst.frames.iter().any(|frame| frame.kind != "hello"));
    let wrapped = bursts.iter().map(|burst| wrap(rng, burst, outer, macs));
    wrapped.collect()
}

#[test]
fn tunnels_are_gone_out_and_in_by_as_by_the_kernel() {
    let name = "tunnels_are_gone_out_and_in_by_as_by_the_kernel";
    if !root(name) {
        return;
    }
    let world = world("tunnels");
    let made: Vec<Tunnel> = TUNNELS.into_iter().filter(|t| t.make(&world)).collect();
    if made.is_empty() {
        return eprintln!("skipped: {name} needs tunnels, which this kernel does not have");
    }
    let links = [
        net("source", 1, 0, &[]).untold(),
        net("sink-3", 101, 3, &[]).untold(),
    ];
    route(&world, &links, "");
    world.plain_settings();
    let mut compared = Compared::new("tunnels", 2, (made.len() + 1) * 24);
    compared.look = LOOK;

    let nets: Vec<Net> = made.iter().map(Tunnel::net).chain(links).collect();
    let source = world.mac("router", "source");
    let ways = [way("out", 0, &[], 1).to(source)];
    let drawing = Drawing {
        nets: &nets,
        ways: &ways,
        moves: &[],
        count: compared.each,
    };
    let mut rng = compared.random();
    let mut bursts = drawing.bursts(&mut rng);
    bursts.extend(drawing.sized(&mut rng, &ways, INNER_MTU, &[]));
    let seen = compared.compare("out", &world, &bursts, &[], &|| ());
    let sink = seen.arrived[0].iter().filter(|a| a.link == "sink");
    assert!(sink.count() > 10, "nothing comes by tunnels");

    let mut bursts = Vec::new();
    for tunnel in &made {
        // What goes on by a tunnel is the kernel's.
        let all = made.iter().map(|other| other.net().kernels()).chain(links);
        let nets: Vec<Net> = all.collect();
        let ways = [Way {
            engine: tunnel.engine,
            ..way(tunnel.name, 0, &[], tunnel.net).to(tunnel.mac())
        }];
        let drawing = Drawing {
            nets: &nets,
            ways: &ways,
            moves: &[],
            count: (compared.each / made.len()).max(60),
        };
        let rng = &mut compared.random();
        let macs = world.frame_macs();
        bursts.extend(inside(rng, &drawing, &tunnel.outer(), macs, true));
    }
    compared.compare("in", &world, &bursts, &[], &|| ());
    compared.right();
}

/// Gateways behind the VXLAN of a bridge: the network, and the other end.
const GATEWAYS: [(u8, u8); 2] = [(31, 20), (32, 140)];

/// As FRR sets up what EVPN tells of a tenant: a bridge with a VXLAN as its only port, of which nothing is learnt.
fn tenant(world: &World, vrf: bool) -> bool {
    let words = format!(
        "vxlan id 100 local {LOCAL} dstport {VXLAN_PORT} srcport {} {} nolearning",
        SPORTS.0, SPORTS.1
    );
    if !tunnel(world, "vxlan100", INNER_MTU, &words) || !world.bridge("br100", "", &["vxlan100"]) {
        return false;
    }
    world.ip("link set vxlan100 type bridge_slave learning off neigh_suppress on");
    if vrf && !world.vrf("red", 10, &["source", "br100"]) {
        return false;
    }
    let more = if vrf { "table 10" } else { "" };
    let all = [("source", 1), ("br100", 31), ("br100", 32)];
    world.networks(&all, more);
    let lines = GATEWAYS.iter().flat_map(|(net, end)| {
        let mac = text(gateway_mac(*net));
        [
            format!("fdb add {mac} dev vxlan100 master static"),
            format!("fdb add {mac} dev vxlan100 dst {} self", remote(*end)),
        ]
    });
    world.bridges(&lines.collect::<Vec<_>>());
    world.plain_settings();
    true
}

#[test]
fn tenants_are_routed_as_by_the_kernel() {
    let name = "tenants_are_routed_as_by_the_kernel";
    if !root(name) {
        return;
    }
    let mut compared = Compared::new("tenants", 4, 200);
    compared.look = LOOK;
    for vrf in [false, true] {
        let world = world("tenants");
        if !tenant(&world, vrf) {
            eprintln!("skipped: {name} needs VXLANs in bridges, and VRFs: {vrf}");
            continue;
        }
        let about = if vrf { "in a VRF" } else { "in none" };
        let nets = [
            net("source", 1, 0, &[]).untold(),
            net("br100", 31, 0, &[]).untold(),
            net("br100", 32, 0, &[]).untold(),
        ];
        let source = world.mac("router", "source");
        let ways = [way("out", 0, &[], 1).to(source)];
        let drawing = Drawing {
            nets: &nets,
            ways: &ways,
            moves: &[],
            count: compared.each,
        };
        let mut rng = compared.random();
        let mut bursts = drawing.bursts(&mut rng);
        bursts.extend(drawing.sized(&mut rng, &ways, INNER_MTU, &[]));
        compared.compare(&format!("out, {about}"), &world, &bursts, &[], &|| ());

        let macs = [world.mac("router", "sink"), world.gateway_mac(1)];
        let mut bursts = Vec::new();
        for (net, end) in GATEWAYS {
            let ways = [
                way("in", 1, &[], net).to(BRIDGE_MAC),
                Way {
                    engine: false,
                    ..way("in, to nobody", 1, &[], net).to([2, 9, 9, 9, 9, 9])
                },
                Way {
                    engine: false,
                    ..way("in, to all", 1, &[], net).to([0xff; 6])
                },
            ];
            let drawing = Drawing {
                ways: &ways,
                ..drawing
            };
            let outer = Outer::new(Kind::Vxlan(100), remote(end));
            bursts.extend(inside(&mut rng, &drawing, &outer, macs, true));
        }
        compared.compare(&format!("in, {about}"), &world, &bursts, &[], &|| ());
    }
    compared.right();
}

/// Tunnels to ends of which something is learnt, each by one way but for the last one.
const SHORT: [Tunnel; 9] = [
    of("gre1", 11, 1, Kind::Gre(None), "gre ttl 64"),
    of("grek", 12, 2, Kind::Gre(Some(7)), "gre key 7"),
    of("gret", 13, 3, Kind::Gre(None), "gre tos inherit nopmtudisc"),
    of("ipip1", 15, 4, Kind::Ip, "ipip"),
    of("sit1", 17, 5, Kind::Ip, "sit"),
    of("vx5", 19, 6, Kind::Vxlan(5), "vxlan id 5 ttl 64"),
    of("vx7", 21, 7, Kind::Vxlan(7), "vxlan id 7 ttl 9 tos 0x20"),
    of("vx8", 20, 12, Kind::Vxlan(8), "vxlan id 8 df set"),
    of("gre2", 14, 129, Kind::Gre(None), "gre ttl 9"),
];

impl Tunnel {
    /// Bytes that it puts in front of a packet.
    fn longer(&self) -> usize {
        match self.kind {
            Kind::Ip => 20,
            Kind::Gre(None) => 24,
            Kind::Gre(Some(_)) => 28,
            Kind::Vxlan(_) => 50,
        }
    }

    /// Whether raddle sends packets of this length where the kernel has learnt this, and believes less than it was told.
    fn takes(&self, size: usize, learnt: usize, is_locked: bool) -> bool {
        let may_be_fragmented = self.is_vxlan() && !self.words.contains("df set");
        let is_sit = self.words.starts_with("sit");
        size + self.longer() <= learnt
            && (may_be_fragmented || !is_locked)
            && (!is_sit || learnt >= 1300)
    }

    /// What a router behind link `n` says of a packet that was sent by the tunnel, and is too long for the way behind it.
    fn too_long(&self, world: &World, n: u32, mtu: u16) -> Vec<u8> {
        let inner = Flow {
            src: LOCAL.into(),
            dst: LOCAL.into(),
            proto: 17,
            sport: 1,
            dport: 2,
        };
        let sent = Outer {
            dst: self.remote(),
            fragment: 0x4000,
            ..Outer::new(self.kind, LOCAL)
        };
        let sent = sent.around(&frame::udp([[2; 6]; 2], &inner, 0, 8));
        let mut said = vec![3, 4, 0, 0, 0, 0];
        said.extend(mtu.to_be_bytes());
        said.extend(sent);
        let sum = checksum::checksum(&said);
        said[2..4].copy_from_slice(&sum.to_be_bytes());
        let macs = [world.mac("router", &world.out(n)), world.gateway_mac(n)];
        frame::packet(macs, world.gateway(n).0.into(), LOCAL.into(), 1, &said)
    }
}

/// Has the kernel learn this of the ways to all ends, and nothing else.
fn learn(world: &World, tunnels: &[Tunnel], mtu: u16, learnt: usize) {
    world.ip("route flush cache");
    world.ip("-6 route flush cache");
    let ways = |tunnel: &Tunnel| if tunnel.remote < 128 { 1 } else { 2 };
    let bursts: Vec<Burst> = (1..=2)
        .map(|n| {
            let mut burst = Burst::by(n);
            for tunnel in tunnels.iter().filter(|tunnel| ways(tunnel) >= n) {
                burst.add("too long", tunnel.too_long(world, n, mtu), false);
            }
            burst
        })
        .collect();
    world.exchange_bursts(&bursts, quiet(), |_| true);
    for tunnel in tunnels {
        for n in 1..=ways(tunnel) {
            let (to, out) = (tunnel.remote(), world.out(n));
            within(Duration::from_secs(60), || {
                let said = world.ip(&format!("route get {to} from {LOCAL} oif {out}"));
                match said.contains(&format!(" {learnt}")) && said.contains("expires") {
                    true => Ok(()),
                    false => Err(format!("{}: {said}", tunnel.name)),
                }
            });
        }
    }
}

/// Frames about as long as what is learnt lets through, each to another host: the kernel remembers what it has said of one.
fn about_as_long(
    world: &World,
    tunnels: &[Tunnel],
    round: u8,
    (learnt, is_locked): (usize, bool),
) -> Burst {
    let mut burst = Burst::by(0);
    let macs = [world.mac("router", "source"), gateway_mac(1)];
    for tunnel in tunnels {
        let most = learnt - tunnel.longer();
        let sizes = [100, most - 8, most, most + 1, most + 8];
        let all = sizes
            .into_iter()
            .flat_map(|size| (0..3_u8).map(move |family| (size, family)));
        for (n, (size, family)) in (0_u8..).zip(all) {
            let host = 10 + 20 * round + n;
            let (src, dst) = match family {
                2 => (sources(1).1[0].into(), behind6(tunnel.net, host).into()),
                _ => (sources(1).0[0].into(), behind4(tunnel.net, host).into()),
            };
            let flow = Flow {
                src,
                dst,
                proto: 17,
                sport: 1000 + u16::from(host),
                dport: 9,
            };
            let header = if family == 2 { 48 } else { 28 };
            let tag = u64::from(tunnel.net) << 8 | u64::from(host);
            let mut bytes = frame::udp(macs, &flow, tag, size - header);
            if family == 1 {
                bytes[20] = 0x40;
                frame::seal(&mut bytes[14..34]);
            }
            let carries = match tunnel.words.split(' ').next() {
                Some("ipip") => family != 2,
                Some("sit") => family == 2,
                _ => true,
            };
            let engine = carries && tunnel.takes(size, learnt, is_locked);
            burst.add("about as long", bytes, engine);
        }
    }
    burst
}

/// Links further on take less than those of the router, and routers there say so: what is longer is the kernel's, which fragments or answers.
#[test]
fn path_mtus_that_the_kernel_has_learnt_are_kept_to() {
    let name = "path_mtus_that_the_kernel_has_learnt_are_kept_to";
    if !root(name) {
        return;
    }
    let world = world("path-mtus");
    let made: Vec<Tunnel> = SHORT.into_iter().filter(|t| t.make(&world)).collect();
    if made.is_empty() {
        return eprintln!("skipped: {name} needs tunnels, which this kernel does not have");
    }
    route(&world, &[net("source", 1, 0, &[]).untold()], "");
    world.plain_settings();
    let mut compared = Compared::new("path MTUs of tunnels", 1, 1);
    compared.look = LOOK;
    // The last is below `min_pmtu`.
    for (round, (mtu, learnt)) in (0..).zip([(1300, 1300), (1290, 1290), (400, 552)]) {
        let is_locked = mtu < learnt;
        let bursts = [about_as_long(&world, &made, round, (learnt, is_locked))];
        let before = || learn(&world, &made, mtu as u16, learnt);
        compared.compare(&format!("{mtu}"), &world, &bursts, &[], &before);
    }
    // While it forwards.
    world.ip("route flush cache");
    world.ip("-6 route flush cache");
    let daemon = Daemon::start(&world, &PATIENT);
    let tunnel = &made[..1];
    let long = |round| {
        let mut burst = about_as_long(&world, tunnel, round, (1400, false));
        burst.frames.truncate(9);
        burst.frames.drain(..6);
        let before = (daemon.forwarded(), daemon.reason("mtu"));
        world.exchange(&burst.frames, quiet());
        let after = (daemon.forwarded(), daemon.reason("mtu"));
        (after.0 - before.0, after.1 - before.1)
    };
    // Each counts at the tunnel, and at the link that carries it.
    assert_eq!(long(4), (6, 0));
    learn(&world, tunnel, 1300, 1300);
    // To others each time: of an IPv6 host the kernel remembers what it has learnt, and raddle leaves it to it.
    let mut round = 4;
    within(Duration::from_secs(60), || {
        round = if round < 11 { round + 1 } else { 5 };
        match long(round) {
            (0, 3) => Ok(()),
            other => Err(format!("forwarded, and punted as too long: {other:?}")),
        }
    });
    daemon.terminate();
    compared.right();
}

/// What Docker installs beside a host that forwards already, as `iptables-restore` takes it.
const DOCKER: &str = include_str!("../../crates/preflight/tests/rulesets/docker.iptables");

/// Rules, and which part of what comes in by tunnels raddle takes in beside them.
struct Rules {
    about: &'static str,
    /// Of an `inet` table; none for Docker's.
    nft: Option<&'static str>,
    takes: Takes,
}

#[derive(Clone, Copy, PartialEq)]
enum Takes {
    Most,
    Some,
    None,
    /// By the link that outer packets come in by.
    NoneByLink,
}

impl Takes {
    /// Whether raddle took as many as it should, of those that the kernel forwards.
    fn fits(self, took: usize, through: usize) -> bool {
        match self {
            Takes::Most => took * 10 > through * 6,
            Takes::Some => took > 0,
            // What nobody has put into a tunnel may be among what comes out.
            Takes::None | Takes::NoneByLink => took * 20 < through.max(20),
        }
    }
}

const RULES: [Rules; 8] = [
    Rules {
        about: "none",
        nft: Some(""),
        takes: Takes::Most,
    },
    Rules {
        about: "Docker",
        nft: None,
        takes: Takes::Most,
    },
    Rules {
        about: "what is to other ports is dropped",
        nft: Some(
            "chain c { type filter hook input priority 0; policy accept; tcp dport 22 drop; udp dport 53 drop; }",
        ),
        takes: Takes::Most,
    },
    Rules {
        about: "outer packets of one half of the ports are dropped, and of some lengths",
        nft: Some(
            "chain c { type filter hook input priority 0; policy accept; udp dport 4789 udp checksum & 1 == 1 drop; meta l4proto { 4, 41, 47 } ip length & 1 == 1 drop; }",
        ),
        takes: Takes::None,
    },
    Rules {
        about: "what comes in by the link is dropped before",
        nft: Some(
            "chain c { type filter hook prerouting priority -300; policy accept; iifname \"source\" meta l4proto { 4, 17, 47 } ip length & 2 == 2 drop; }",
        ),
        takes: Takes::NoneByLink,
    },
    Rules {
        about: "what leaves is judged by its connection",
        nft: Some(
            "chain c { type filter hook output priority 0; policy drop; ct state established accept; meta l4proto { 1, 58 } accept; }",
        ),
        takes: Takes::None,
    },
    Rules {
        about: "some of what is inside is dropped",
        nft: Some(
            "chain c { type filter hook forward priority 0; policy accept; ip saddr 10.9.0.0/27 drop; meta nfproto ipv6 ip6 hoplimit & 1 == 1 drop; }",
        ),
        takes: Takes::Some,
    },
    Rules {
        about: "none again",
        nft: Some(""),
        takes: Takes::Most,
    },
];

impl Rules {
    fn install(&self, world: &World) {
        let (tool, rules) = match self.nft {
            Some(rules) => ("nft -f -", format!("table inet guard {{\n{rules}\n}}\n")),
            None => ("iptables-restore", DOCKER.to_owned()),
        };
        feed(world, tool, &rules);
    }
}

/// Runs a command in the router with this to read.
fn feed(world: &World, command: &str, input: &str) {
    let mut words = command.split(' ');
    let mut command = world
        .lab()
        .command("router", words.next().unwrap())
        .unwrap();
    let mut child = command
        .args(words)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{command:?}: {input}");
}

/// Rules come and go while raddle runs, and each counts from the first packet on.
#[test]
fn what_comes_in_by_tunnels_meets_the_firewall_as_by_the_kernel() {
    let name = "what_comes_in_by_tunnels_meets_the_firewall_as_by_the_kernel";
    if !root(name) {
        return;
    }
    let world = world("tunfw");
    let made = ["gre1", "ipip1", "vx5"].map(|name| TUNNELS.into_iter().find(|t| t.name == name));
    let made: Vec<Tunnel> = made
        .into_iter()
        .flatten()
        .filter(|t| t.make(&world))
        .collect();
    if made.is_empty() {
        return eprintln!("skipped: {name} needs tunnels, which this kernel does not have");
    }
    let links = [
        net("source", 1, 0, &[]).untold(),
        net("sink-3", 101, 3, &[]).untold(),
    ];
    route(&world, &links, "");
    world.plain_settings();
    let mut rng = Random::new(raddle_e2e::volume::seed());
    let mut bursts = Vec::new();
    for tunnel in &made {
        let nets: Vec<Net> = std::iter::once(tunnel.net().kernels())
            .chain(links)
            .collect();
        let ways = [way(tunnel.name, 0, &[], tunnel.net).to(tunnel.mac())];
        let drawing = Drawing {
            nets: &nets,
            ways: &ways,
            moves: &[],
            count: 60,
        };
        let outer = Outer {
            checksum: Checksum::Right,
            ..tunnel.outer()
        };
        bursts.extend(inside(
            &mut rng,
            &drawing,
            &outer,
            world.frame_macs(),
            false,
        ));
    }
    let frames: Vec<Crafted> = bursts
        .iter()
        .flat_map(|burst| burst.frames.clone())
        .collect();
    let send = || {
        CameOut::of(
            &frames,
            &world.exchange_bursts(&bursts, quiet(), |_| true),
            LOOK,
        )
    };
    let beside = |rules: &Rules, send: &dyn Fn() -> CameOut| {
        rules.install(&world);
        let came_out = send();
        feed(&world, "nft flush ruleset", "");
        came_out
    };
    let kernel: Vec<CameOut> = RULES.iter().map(|rules| beside(rules, &send)).collect();
    let daemon = Daemon::start(&world, &PATIENT);
    for (rules, kernel) in RULES.iter().zip(&kernel) {
        let through = kernel.forwarded.len();
        let seen = std::cell::RefCell::new((String::new(), 0));
        let ours = beside(rules, &|| {
            // Rules count from the first packet on; what raddle takes beside them, once it has looked at them.
            let first = send();
            within(Duration::from_secs(60), || {
                let before = daemon.forwarded();
                send();
                let took = (daemon.forwarded() - before) as usize;
                let said = world.raddle(&["status"]).stdout;
                let fits = rules.takes.fits(took, through);
                let words = format!("{}: {took} of {through}\n{said}", rules.about);
                *seen.borrow_mut() = (said, took);
                fits.then_some(()).ok_or(words)
            });
            first
        });
        let (said, took) = seen.into_inner();
        let differ = kernel.differences(&ours, &frames);
        eprintln!(
            "{}: {} frames, {} differ; the kernel forwards {through}, raddle {took}",
            rules.about,
            frames.len(),
            differ.len()
        );
        assert_eq!(differ, [""; 0], "{}", rules.about);
        for tunnel in &made {
            let line = format!("link {}: tunnel, ", tunnel.name);
            let line = said
                .lines()
                .find_map(|l| l.trim_start().strip_prefix(&line));
            let out_only = line.unwrap().starts_with("out only: nft inet guard c");
            assert_eq!(
                out_only,
                rules.takes == Takes::None,
                "{}: {said}",
                rules.about
            );
        }
    }
    daemon.terminate();
}
