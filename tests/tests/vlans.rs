//! VLANs against the running kernel: the same frames are forwarded by it, then by raddle, in by links, VLANs upon them (802.1Q,
//! 802.1ad, and one upon the other) and bonds, and out by such. What comes out has to be the same each time, byte for byte.
//!
//! The test machine's kernel may have no VLANs; `make test-kernels` runs this on Debian's.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use raddle_e2e::compared::{Burst, Compared};
use raddle_e2e::frame::{self, Addresses, Flow};
use raddle_e2e::networks::{self, behind4, behind6, hosts, network_of, sources};
use raddle_e2e::tags::{Tag, about_neighbours, ad, bare, q, tagged};
use raddle_e2e::{Arrival, Crafted, Random, World, gateway, root, volume};
use raddle_select::{BondPolicy, bond_hash, bond_member};

/// MAC address of `in6`, which has one of its own.
const OWN_MAC: &str = "02:99:00:00:06:06";
const OWN: [u8; 6] = [2, 0x99, 0, 0, 6, 6];

/// Networks of [`World::networks`]: where frames come in, and the others, where none do.
const INS: [(&str, u8); 5] = [("", 1), ("in5", 5), ("in6", 6), ("in7", 7), ("in79", 79)];
const OUTS: [(&str, u8); 5] = [
    ("", 101),
    ("sink5", 105),
    ("-", 102),
    ("sink7", 107),
    ("sink79", 179),
];
/// Those between which 172.21.0.0/16 and 2001:db8:5::/48 are spread.
const SPREAD: [u8; 3] = [101, 105, 179];

/// How frames come in.
struct Way {
    kind: &'static str,
    tags: &'static [Tag],
    /// The network of their sources.
    net: u8,
    /// To the MAC address of `in6` instead of the link's.
    own: bool,
    /// The engine forwards what can be forwarded at all.
    engine: bool,
}

const fn way(kind: &'static str, tags: &'static [Tag], net: u8) -> Way {
    Way {
        kind,
        tags,
        net,
        own: false,
        engine: true,
    }
}

/// For the kernel to take, or nobody.
const fn odd(kind: &'static str, tags: &'static [Tag], net: u8) -> Way {
    Way {
        engine: false,
        ..way(kind, tags, net)
    }
}

const WAYS: [Way; 27] = [
    way("untagged", &[], 1),
    way("802.1Q", &[q(5)], 5),
    way("802.1Q with a priority", &[q(0x6005)], 5),
    way("802.1Q that may be dropped", &[q(0xf005)], 5),
    way("802.1ad", &[ad(7)], 7),
    way("802.1ad with a priority", &[ad(0xb007)], 7),
    way("802.1Q in 802.1ad", &[ad(7), q(9)], 79),
    way(
        "802.1Q in 802.1ad with priorities",
        &[ad(0x4007), q(0x3009)],
        79,
    ),
    Way {
        own: true,
        ..way("to a VLAN's own MAC address", &[q(6)], 6)
    },
    odd("to the parent's MAC address instead", &[q(6)], 6),
    Way {
        own: true,
        ..odd("untagged to a VLAN's own MAC address", &[], 1)
    },
    Way {
        own: true,
        ..odd("to another VLAN's own MAC address", &[q(5)], 5)
    },
    way("priority tag", &[q(0xe000)], 1),
    way("802.1ad priority tag", &[ad(0)], 1),
    odd("priority tag before a known one", &[q(0x2000), q(5)], 5),
    odd("priority tag behind a known one", &[q(5), q(0xa000)], 5),
    odd("priority tag in 802.1ad", &[ad(7), q(0)], 7),
    odd("two priority tags", &[q(0), q(0)], 1),
    odd("unknown", &[q(99)], 5),
    odd("unknown, as it is of the other kind", &[ad(5)], 5),
    odd("unknown, as it is of the other kind", &[q(7), q(9)], 79),
    odd("unknown in a known one", &[ad(7), q(98)], 79),
    odd("known in an unknown one", &[ad(99), q(9)], 79),
    odd("one that only the link has in another", &[q(5), q(9)], 5),
    odd("three", &[ad(7), q(9), q(5)], 79),
    odd("three of one", &[q(5), q(5), q(5)], 5),
    odd("down", &[q(8)], 8),
];

/// Frames, and which of them the engine has to forward if the kernel does.
struct Trial {
    burst: Burst,
    /// Networks that the engine need not send to.
    left: Vec<u8>,
    rng: Random,
}

impl Trial {
    /// So many frames of all kinds; the engine need not send to the networks `left`.
    fn drawn(rng: Random, world: &World, count: usize, left: &[u8]) -> Trial {
        let mut trial = Trial {
            burst: Burst::by(0),
            left: left.to_vec(),
            rng,
        };
        for way in &WAYS {
            // Half of them by ways that raddle has to take.
            let each = count / WAYS.len() * if way.engine { 3 } else { 1 } / 2;
            let macs = way.macs(world);
            let addresses = Addresses {
                macs,
                v4: [sources(way.net).0, destinations().0],
                v6: [sources(way.net).1, destinations().1],
                tunnels: 0,
            };
            let each = each.max(4);
            let mut frames = frame::random(&mut trial.rng, &addresses, each / 2);
            // Of the others nothing keeps anybody from forwarding them.
            for n in 0..each - each / 2 {
                let flow = networks::flow(&mut trial.rng, &addresses, n % 2 == 0);
                let bytes = frame::drawn(&mut trial.rng, macs, &flow);
                frames.push(Crafted {
                    bytes,
                    kind: "drawn",
                    flow: Some(flow),
                });
            }
            for frame in frames {
                let to = network_of(&frame);
                let is_left = |net: &u8| to.map_or(SPREAD.contains(net), |to| to == *net);
                let engine = way.engine
                    && frame.flow.is_some()
                    && to != Some(way.net)
                    && !left.iter().any(is_left);
                let mut bytes = tagged(&frame.bytes, way.tags);
                if bytes.len() < 64 && trial.rng.once_in(2) {
                    let padding = trial.rng.bytes(64 - bytes.len());
                    bytes.extend(padding);
                }
                trial.burst.add(way.kind, bytes, engine);
            }
        }
        trial
    }

    /// Adds packets about as large as what an out-link may have as its `mtu`, of both families, in IPv4 also with "don't
    /// fragment". Those that are for `smaller` are about as large as that.
    fn sized(&mut self, world: &World, mtu: usize, smaller: &[(u8, usize)]) {
        for (way, to) in [0, 1, 6].into_iter().flat_map(|n| {
            let nets = [101, 105, 107, 179, 5, 79].into_iter();
            nets.map(move |net| (&WAYS[n], net))
        }) {
            let own = smaller.iter().find(|(net, _)| *net == to);
            let limit = own.map_or(mtu, |(_, smaller)| *smaller);
            for size in [
                limit - 100,
                limit - 8,
                limit - 4,
                limit - 3,
                limit,
                limit + 1,
                limit + 5,
            ] {
                for family in ["IPv4", "IPv4, not to be fragmented", "IPv6"] {
                    let number = self.rng.bits();
                    let (source, destination) = match family {
                        "IPv6" => (sources(way.net).1[0].into(), behind6(to, 9).into()),
                        _ => (sources(way.net).0[0].into(), behind4(to, 9).into()),
                    };
                    let flow = Flow {
                        src: source,
                        dst: destination,
                        proto: 17,
                        sport: number as u16,
                        dport: 9,
                    };
                    let header = if family == "IPv6" { 48 } else { 28 };
                    let mut bytes = frame::udp(way.macs(world), &flow, number, size - header);
                    if family == "IPv4, not to be fragmented" {
                        bytes[20] = 0x40;
                        frame::seal(&mut bytes[14..34]);
                    }
                    // Two tags are more than a link has room for beside its MTU.
                    let room = if to == 179 && own.is_none() { 4 } else { 0 };
                    let engine = size + room <= limit && to != way.net && !self.left.contains(&to);
                    self.burst
                        .add("of this size", tagged(&bytes, way.tags), engine);
                }
            }
        }
    }
}

impl Way {
    fn macs(&self, world: &World) -> [[u8; 6]; 2] {
        let [link, sender] = world.frame_macs();
        [if self.own { OWN } else { link }, sender]
    }
}

/// Hosts behind all networks, and as many in the prefixes that are spread.
fn destinations() -> (Vec<Ipv4Addr>, Vec<Ipv6Addr>) {
    let nets: Vec<u8> = INS.iter().chain(&OUTS).map(|(_, net)| *net).collect();
    let (mut fours, mut sixes) = hosts(&nets);
    fours.extend((0..20).map(|n| Ipv4Addr::new(172, 21, n, 7)));
    sixes.extend((0..20).map(|n| Ipv6Addr::new(0x2001, 0xdb8, 5, n, 0, 0, 0, 7)));
    (fours, sixes)
}

/// Which links VLANs are upon, and their MTU; those that frames come in by have room for more.
struct Shape {
    input: &'static str,
    outs: [&'static str; 2],
    mtu: usize,
}

const USUAL: Shape = Shape {
    input: "source",
    outs: ["sink", "sink-2"],
    mtu: 1500,
};

impl Shape {
    /// Makes the VLANs and all routes; says whether the kernel has VLANs.
    fn build(&self, world: &World) -> bool {
        let Shape { input, outs, mtu } = self;
        for link in outs {
            world.ip(&format!("link set {link} mtu {mtu}"));
        }
        world.ip(&format!("link set {input} mtu {}", mtu + ROOM));
        world.plain_settings();
        if !world.vlan(input, "in5", q(5), "") {
            return false;
        }
        for (lower, name, tag) in [
            (*input, "in6", q(6)),
            (input, "in7", ad(7)),
            ("in7", "in79", q(9)),
            (input, "in8", q(8)),
            (outs[0], "sink5", q(5)),
            (outs[1], "sink7", ad(7)),
            ("sink7", "sink79", q(9)),
        ] {
            assert!(world.vlan(lower, name, tag, ""), "{name}");
        }
        for link in ["in79", "in7", "in6", "in5"] {
            world.ip(&format!("link set {link} mtu {mtu}"));
        }
        world.ip(&format!("link set in6 address {OWN_MAC}"));
        world.ip("link set in8 down");
        self.route(world, "", &[]);
        true
    }

    /// The links of all networks.
    fn networks(&self) -> impl Iterator<Item = (&'static str, u8)> + use<> {
        let named = |own: &'static str, link| match link {
            "" => own,
            link => link,
        };
        let [first, second] = self.outs;
        let input = self.input;
        let ins = INS
            .into_iter()
            .map(move |(link, net)| (named(input, link), net));
        let outs = OUTS.into_iter().map(move |(link, net)| match link {
            "-" => (second, net),
            link => (named(first, link), net),
        });
        ins.chain(outs)
    }

    /// Addresses and routes of all networks, or of these links; `more` as [`World::networks`] takes it.
    fn route(&self, world: &World, more: &str, links: &[&str]) {
        let all: Vec<_> = self
            .networks()
            .filter(|(link, _)| links.is_empty() || links.contains(link))
            .collect();
        world.networks(&all, more);
        let hops = |via: &dyn Fn(u8) -> IpAddr| -> String {
            let spread = all.iter().filter(|(_, net)| SPREAD.contains(net));
            spread
                .map(|(link, net)| format!(" nexthop via {} dev {link}", via(*net)))
                .collect()
        };
        let four = hops(&|net| gateway(net).0.into());
        let six = hops(&|net| gateway(net).1.into());
        world.batch(&[
            format!("route replace 172.21.0.0/16 {more} {four}"),
            format!("route replace 2001:db8:5::/48 {more} {six}"),
        ]);
    }
}

/// Frames of a trial at least.
const LEAST: usize = WAYS.len() * 8;

/// Bytes that in-links take beyond the MTU of the others.
const ROOM: usize = 100;

/// Frames with one tag that left a bond by another member than its driver would choose for the packet without the tag, which the
/// kernel has beside the packet.
fn by_member(compared: &mut Compared, mode: &str, members: &[&str], arrived: &[Arrival]) {
    let Some((_, name)) = mode.split_once("xmit_hash_policy ") else {
        return;
    };
    let named = |n| BondPolicy::from_number(n).filter(|policy| policy.name() == name);
    let policy = (0..=u8::MAX).find_map(named).unwrap();
    let of_bond = arrived.iter().filter(|a| members.contains(&&*a.link));
    let tagged = of_bond.filter(|a| !about_neighbours(&a.frame));
    let tagged = tagged.filter(|a| a.frame.get(12..14) == Some(&[0x81, 0][..]));
    let mut seen = 0;
    for arrival in tagged {
        let packet = [&arrival.frame[..12], &arrival.frame[16..]].concat();
        let member =
            bond_hash(policy, &packet, 0).and_then(|hash| bond_member(hash, members.len()));
        let predicted = member.map(|member| members[member]);
        seen += 1;
        if predicted != Some(&*arrival.link) {
            compared.wrong.push(format!(
                "{mode}: by {}, not {predicted:?}: {:02x?}",
                arrival.link, arrival.frame
            ));
        }
    }
    eprintln!("{mode}: {seen} frames with a tag, by the members that are predicted");
    assert!(seen > 0, "{mode}: none has a tag");
}

fn drawn(compared: &mut Compared, world: &World, left: &[u8]) -> Trial {
    Trial::drawn(compared.random(), world, compared.each, left)
}

/// What came out without raddle and with it.
fn compare(
    compared: &mut Compared,
    about: &str,
    world: &World,
    trial: &Trial,
    arguments: &[&str],
) -> [Vec<Arrival>; 2] {
    let bursts = std::slice::from_ref(&trial.burst);
    compared
        .compare(about, world, bursts, arguments, &|| ())
        .arrived
}

fn skipped(name: &str) {
    eprintln!("skipped: {name} needs VLANs, which this kernel does not have");
}

#[test]
fn vlans_are_gone_in_and_out_by_as_by_the_kernel() {
    let name = "vlans_are_gone_in_and_out_by_as_by_the_kernel";
    if !root(name) {
        return;
    }
    let world = World::with_mtu("vlans", 2, 1500 + ROOM as u32);
    if !USUAL.build(&world) {
        return skipped(name);
    }
    let mut compared = Compared::new("VLANs", 4, LEAST);
    let mut trial = drawn(&mut compared, &world, &[]);
    trial.sized(&world, USUAL.mtu, &[]);
    compare(&mut compared, "as it is", &world, &trial, &[]);

    // What comes in by its parent without a tag, and by the parent's other VLANs, is the kernel's then.
    let named = ["in5", "sink", "sink5", "sink79"];
    let mut trial = drawn(&mut compared, &world, &[1, 6, 7, 79, 102, 107]);
    let kinds = trial.burst.frames.iter().map(|frame| frame.kind);
    for (kind, engine) in kinds.zip(&mut trial.burst.engine) {
        *engine &= WAYS.iter().any(|way| way.kind == kind && way.net == 5);
    }
    let arguments: Vec<&str> = named
        .into_iter()
        .flat_map(|link| ["--link", link])
        .collect();
    compare(
        &mut compared,
        "in5 alone is named",
        &world,
        &trial,
        &arguments,
    );

    // Priorities by what packets have as theirs are the kernel's to write.
    world.ip("link set sink5 type vlan egress-qos-map 0:3 2:5 4:6 6:1");
    for link in ["source", "in5", "in7", "in79"] {
        world.sysctl(&format!("net.ipv4.conf.{link}.rp_filter"), "1");
    }
    let mut trial = drawn(&mut compared, &world, &[105]);
    // Some whose way back is another.
    let others = drawn(&mut compared, &world, &[]);
    for (n, frame) in others.burst.frames.into_iter().enumerate().step_by(3) {
        let way = &WAYS[n % 9];
        let bytes = tagged(&bare(&frame.bytes), way.tags);
        trial.burst.add("from elsewhere", bytes, false);
    }
    compare(
        &mut compared,
        "rp_filter, and priorities",
        &world,
        &trial,
        &[],
    );

    let links = ["in5", "in79", "sink5", "sink79"];
    if world.vrf("red", 10, &links) {
        USUAL.route(&world, "table 10", &links);
        let mut trial = drawn(&mut compared, &world, &[105]);
        trial.sized(&world, USUAL.mtu, &[]);
        compare(&mut compared, "some in a VRF", &world, &trial, &[]);
    } else {
        eprintln!("skipped: a part of {name} needs VRFs, which this kernel does not have");
    }
    compared.right();
}

#[test]
fn by_generic_xdp() {
    if !root("by_generic_xdp") {
        return;
    }
    let mut world = World::with_mtu("vlangen", 2, 1500 + ROOM as u32);
    world.send_directly();
    world.node("source", &format!("ip link set direct mtu {}", 1500 + ROOM));
    let shape = Shape {
        input: "direct",
        ..USUAL
    };
    if !shape.build(&world) {
        return skipped("by_generic_xdp");
    }
    let mut compared = Compared::new("VLANs in generic XDP", 1, LEAST);
    let trial = drawn(&mut compared, &world, &[]);
    compare(
        &mut compared,
        "generic",
        &world,
        &trial,
        &["--mode", "generic"],
    );
    compared.right();
}

/// Frames in several buffers, and links whose VLANs take less than they do.
#[test]
fn large_frames_by_vlans() {
    if !root("large_frames_by_vlans") {
        return;
    }
    let world = World::with_mtu("vlanbig", 2, 9000 + ROOM as u32);
    let shape = Shape { mtu: 9000, ..USUAL };
    if !shape.build(&world) {
        return skipped("large_frames_by_vlans");
    }
    for link in ["sink5", "in5"] {
        world.ip(&format!("link set {link} mtu 1500"));
    }
    let mut compared = Compared::new("large frames by VLANs", 1, LEAST);
    let mut trial = drawn(&mut compared, &world, &[]);
    trial.sized(&world, 9000, &[(105, 1500), (5, 1500)]);
    trial.sized(&world, 4000, &[]);
    compare(&mut compared, "jumbo", &world, &trial, &[]);
    compared.right();
}

/// Modes of the bond that packets leave by.
const MODES: [&str; 3] = [
    "active-backup",
    "balance-xor xmit_hash_policy layer3+4",
    "balance-xor xmit_hash_policy layer2",
];

#[test]
fn vlans_upon_bonds() {
    if !root("vlans_upon_bonds") {
        return;
    }
    // The last is much like the one before.
    let modes = match volume::frames(0) {
        0 => &MODES[..2],
        _ => &MODES[..],
    };
    let mut compared = Compared::new("VLANs upon bonds", modes.len(), LEAST);
    for mode in modes {
        let world = World::with_mtu("vlanbond", 3, 1500 + ROOM as u32);
        if !world.bond("out0", mode, &["sink", "sink-2"]) {
            eprintln!("skipped: vlans_upon_bonds needs bonds, which this kernel does not have");
            return;
        }
        assert!(world.bond("in0", "active-backup", &["source"]));
        let shape = Shape {
            input: "in0",
            outs: ["out0", "sink-3"],
            mtu: 1500,
        };
        if !shape.build(&world) {
            return skipped("vlans_upon_bonds");
        }
        let active: &[&str] = match *mode {
            "active-backup" => &["sink"],
            _ => &["sink", "sink-2"],
        };
        world.bond_is_by("out0", active);
        world.bond_is_by("in0", &["source"]);
        let mut trial = drawn(&mut compared, &world, &[]);
        trial.sized(&world, shape.mtu, &[]);
        for arrived in compare(&mut compared, mode, &world, &trial, &[]) {
            by_member(&mut compared, mode, &["sink", "sink-2"], &arrived);
        }
    }
    compared.right();
}
