//! Bridges against the running kernel: the same frames are forwarded by it, then by raddle, in by ports of a bridge to the bridge itself
//! and VLANs of it, and out by such; and others are bridged. What comes out has to be the same each time, byte for byte.
//!
//! The test machine's kernel may have no VLANs; `make test-kernels` runs this on Debian's.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::time::{Duration, Instant};

use raddle_e2e::bridged::{Drawing, From, Move, Net, Way, hello, moved, net, odd, route, way};
use raddle_e2e::compared::{Burst, Compared};
use raddle_e2e::frame::{Flow, udp};
use raddle_e2e::networks::{behind4, behind6};
use raddle_e2e::tags::{Tag, ad, q};
use raddle_e2e::{Arrival, BRIDGE_MAC, Daemon, PATIENT, World, gateway_mac, quiet, root, within};

/// After so long without a word a host is forgotten, where a test waits for that.
const AGES: Duration = Duration::from_secs(3);

/// Bytes that in-links take beyond the MTU of the others.
const ROOM: usize = 100;
const MTU: usize = 1500;

/// A generous limit: machines are busy.
const LIMIT: Duration = Duration::from_secs(60);

/// Somebody that nobody has heard of.
const STRANGER: [u8; 6] = [2, 0x97, 1, 2, 3, 4];
/// A VLAN's own.
const OWN_MAC: &str = "02:97:00:00:00:06";
const OWN: [u8; 6] = [2, 0x97, 0, 0, 0, 6];

/// Links of a router: `source` has room for larger frames.
fn world(name: &str) -> World {
    let world = World::with_mtu(name, 3, (MTU + ROOM) as u32);
    for n in 1..=world.links() {
        world.ip(&format!("link set {} mtu {MTU}", world.out(n)));
    }
    world
}

/// Networks of bridge br0 of `source`, `sink` and `sink-2`, which filters no VLANs, and of `sink-3` beside it.
const PLAIN: [Net; 5] = [
    net("br0", 1, 0, &[]),
    net("br0", 2, 1, &[]),
    // Where it is, is set.
    net("br0", 3, 2, &[]).untold(),
    // Nobody says, so frames to it are flooded.
    net("br0", 4, 2, &[]).untold().kernels(),
    net("sink-3", 101, 3, &[]),
];
/// The same, and VLANs upon the bridge and upon `sink-3`.
const PLAIN_TAGGED: [Net; 11] = [
    PLAIN[0],
    PLAIN[1],
    PLAIN[2],
    PLAIN[3],
    PLAIN[4],
    net("br5", 5, 0, &[q(5)]),
    net("br5", 6, 2, &[q(5)]),
    net("br7", 7, 1, &[ad(7)]),
    net("br79", 79, 1, &[ad(7), q(9)]),
    net("sink35", 105, 3, &[q(5)]),
    // It has a MAC address of its own.
    net("br6", 66, 0, &[q(6)]).kernels(),
];
const BROADCAST: [u8; 6] = [0xff; 6];

const PLAIN_WAYS: [Way; 18] = [
    way("by a port", 0, &[], 1),
    way("by another", 1, &[], 2),
    way("by one that is set", 2, &[], 3).from(From::Nobody),
    way("from a source that is learnt with this", 0, &[], 1).from(From::Nobody),
    way("by a link beside", 3, &[], 101).to(SINK_3),
    way("a priority tag", 0, &[q(0x6000)], 1),
    way("an 802.1ad priority tag", 1, &[ad(0)], 2),
    odd("to a host behind another port", 0, &[], 1).to(gateway_mac(2)),
    odd("to a host behind another port", 1, &[], 2).to(gateway_mac(3)),
    odd("to a host behind this port", 1, &[], 2).to(gateway_mac(2)),
    odd("to nobody", 0, &[], 1).to(STRANGER),
    odd("to all", 0, &[], 1).to(BROADCAST),
    odd("to a group", 1, &[], 2).to([1, 0, 0x5e, 0, 0, 9]),
    odd("to the bridges alone", 0, &[], 1).to([1, 0x80, 0xc2, 0, 0, 0]),
    odd("from the bridge itself", 0, &[], 1).from(From::Mac(BRIDGE_MAC)),
    odd("from a group", 1, &[], 2).from(From::Mac([1, 0, 0x5e, 0, 0, 7])),
    odd("with an unknown tag", 0, &[q(99)], 1),
    odd("with an unknown tag to another port", 0, &[q(99)], 1).to(gateway_mac(2)),
];
/// MAC address of `sink-3`, which the test sets.
const SINK_3: [u8; 6] = [2, 0x96, 0, 0, 0, 3];

const PLAIN_TAGGED_WAYS: [Way; 31] = [
    PLAIN_WAYS[0],
    PLAIN_WAYS[1],
    PLAIN_WAYS[2],
    PLAIN_WAYS[3],
    PLAIN_WAYS[4],
    PLAIN_WAYS[5],
    PLAIN_WAYS[6],
    PLAIN_WAYS[7],
    PLAIN_WAYS[8],
    PLAIN_WAYS[9],
    PLAIN_WAYS[10],
    PLAIN_WAYS[11],
    PLAIN_WAYS[12],
    PLAIN_WAYS[13],
    PLAIN_WAYS[14],
    PLAIN_WAYS[15],
    PLAIN_WAYS[16],
    PLAIN_WAYS[17],
    way("802.1Q", 0, &[q(5)], 5),
    way(
        "802.1Q with a priority, by another port",
        2,
        &[q(0x7005)],
        6,
    ),
    way(
        "802.1Q from a source that is learnt with this",
        0,
        &[q(5)],
        5,
    )
    .from(From::Nobody),
    way("802.1ad", 1, &[ad(7)], 7),
    way("802.1Q in 802.1ad", 1, &[ad(7), q(9)], 79),
    way("802.1Q by a link beside", 3, &[q(5)], 105).to(SINK_3),
    odd("a tag to another port", 0, &[q(5)], 5).to(gateway_mac(6)),
    odd("a tag to all", 2, &[q(5)], 6).to(BROADCAST),
    odd("a tag of the other kind", 0, &[ad(5)], 5),
    odd("three tags", 1, &[ad(7), q(9), q(5)], 79),
    odd("unknown in a known one", 1, &[ad(7), q(98)], 79),
    odd("to a VLAN's own MAC address", 0, &[q(6)], 66).to(OWN),
    odd("to the bridge instead", 0, &[q(6)], 66),
];

/// Bridge br0 without VLAN filtering. Says whether there are VLANs upon it: otherwise the kernel has none.
fn plain(world: &World) -> bool {
    world.ip("link set sink-3 address 02:96:00:00:00:03");
    assert!(world.bridge("br0", "", &["source", "sink", "sink-2"]));
    let vlans = world.vlan("br0", "br5", q(5), "");
    if vlans {
        for (lower, name, tag) in [
            ("br0", "br7", ad(7)),
            ("br7", "br79", q(9)),
            ("br0", "br6", q(6)),
            ("sink-3", "sink35", q(5)),
        ] {
            assert!(world.vlan(lower, name, tag, ""), "{name}");
        }
        world.ip(&format!("link set br6 address {OWN_MAC}"));
    }
    world.plain_settings();
    vlans
}

fn skipped(name: &str, what: &str) {
    eprintln!("skipped: {name} needs {what}, which this kernel does not have");
}

/// Where the gateways of [`PLAIN`] go in the midst of it.
const PLAIN_MOVES: [Move; 1] = [moved(2, 0, &[])];

#[test]
fn bridges_without_vlans_of_their_own() {
    let name = "bridges_without_vlans_of_their_own";
    if !root(name) {
        return;
    }
    let world = world("bridge");
    let vlans = plain(&world);
    let (nets, ways): (&[Net], &[Way]) = match vlans {
        true => (&PLAIN_TAGGED, &PLAIN_TAGGED_WAYS),
        false => (&PLAIN, &PLAIN_WAYS),
    };
    if !vlans {
        skipped("a part of bridges_without_vlans_of_their_own", "VLANs");
    }
    route(&world, nets, "");
    let mut compared = Compared::new("bridges", 3, ways.len() * 8);
    let known = || world.knows("br0", &[(gateway_mac(3), "sink-2", 0)]);
    let drawing = Drawing {
        nets,
        ways,
        moves: &PLAIN_MOVES,
        count: compared.each,
    };
    let mut rng = compared.random();
    let mut bursts = drawing.bursts(&mut rng);
    // After what has moved, the gateways are where they were.
    bursts.extend(drawing.sized(&mut rng, &ways[..2], MTU, &[(79, 4)]));
    compared.compare("as it is", &world, &bursts, &[], &known);

    // What is not named is the kernel's to forward from, whatever it is bridged by.
    let arguments = ["--link", "br0", "--link", "sink-3"];
    let some: Vec<Net> = nets
        .iter()
        .map(|net| match net.link {
            "br0" | "sink-3" => *net,
            _ => net.kernels(),
        })
        .collect();
    let some_ways: Vec<Way> = ways
        .iter()
        .map(|way| Way {
            engine: way.engine
                && nets
                    .iter()
                    .any(|net| net.net == way.net && ["br0", "sink-3"].contains(&net.link)),
            ..*way
        })
        .collect();
    let drawing = Drawing {
        nets: &some,
        ways: &some_ways,
        ..drawing
    };
    let bursts = drawing.bursts(&mut compared.random());
    compared.compare(
        "br0 and sink-3 are named",
        &world,
        &bursts,
        &arguments,
        &known,
    );

    if !world.vrf("red", 10, &["br0"]) {
        skipped("a part of bridges_without_vlans_of_their_own", "VRFs");
    } else {
        for link in ["br5", "br7", "br79", "br6", "sink-3", "sink35"] {
            world.ip(&format!("link set {link} master red"));
        }
        route(&world, nets, "table 10");
        let drawing = Drawing {
            nets,
            ways,
            ..drawing
        };
        let bursts = drawing.bursts(&mut compared.random());
        compared.compare("in a VRF", &world, &bursts, &[], &known);
    }
    compared.right();
}

/// Of bridge br0 of `source`, `sink` and `sink-2`, which filters VLANs: 1 and 50 come out without a tag, 1 is the bridge's own (PVID);
/// 10 and 20 have VLANs upon it; of 30 it knows nothing, and of 40 nothing but how to bridge it.
const FILTERED: [Net; 10] = [
    net("br0", 1, 0, &[]),
    net("br0", 2, 2, &[q(1)]),
    net("br10", 10, 0, &[q(10)]),
    net("br10", 11, 1, &[]),
    net("br10", 12, 2, &[q(10)]),
    net("br20", 20, 0, &[q(20)]),
    net("br20", 22, 2, &[q(20)]),
    net("br30", 30, 0, &[q(30)]).kernels(),
    net("sink-3", 101, 3, &[]),
    net("sink35", 105, 3, &[q(5)]),
];
/// The same with tags of 802.1ad.
const FILTERED_AD: [Net; 11] = [
    FILTERED[0],
    net("br0", 2, 2, &[ad(1)]),
    net("br10", 10, 0, &[ad(10)]),
    FILTERED[3],
    net("br10", 12, 2, &[ad(10)]),
    net("br20", 20, 0, &[ad(20)]),
    net("br20", 22, 2, &[ad(20)]),
    net("br30", 30, 0, &[ad(30)]).kernels(),
    FILTERED[8],
    FILTERED[9],
    net("br105", 15, 0, &[ad(10), q(5)]),
];

const FILTERED_WAYS: [Way; 34] = [
    way("untagged", 0, &[], 1),
    way("with the tag that it would get", 0, &[q(1)], 1),
    way("a priority tag", 0, &[q(0xe000)], 1),
    way("802.1Q", 0, &[q(10)], 10),
    way("802.1Q with a priority", 0, &[q(0x600a)], 10),
    way("802.1Q, another", 0, &[q(20)], 20),
    way(
        "802.1Q from a source that is learnt with this",
        0,
        &[q(20)],
        20,
    )
    .from(From::Nobody),
    way("an access port", 1, &[], 11),
    way("an access port, a priority tag", 1, &[q(0x2000)], 11),
    way("an access port, a tag of its VLAN", 1, &[q(10)], 11),
    way(
        "a source that is learnt at an access port with this",
        1,
        &[],
        11,
    )
    .from(From::Nobody),
    way("a trunk", 2, &[q(10)], 12),
    way("a trunk, another VLAN", 2, &[q(20)], 22),
    way("a trunk, the bridge's own VLAN", 2, &[q(1)], 2),
    way("a trunk, one more that comes out untagged", 2, &[q(50)], 2),
    way("a link beside", 3, &[], 101).to(SINK_3),
    way("802.1Q by a link beside", 3, &[q(5)], 105).to(SINK_3),
    odd("to a host behind another port", 1, &[], 11).to(gateway_mac(12)),
    odd("to a host behind another port", 2, &[q(10)], 12).to(gateway_mac(11)),
    odd("to a host that is in another VLAN", 2, &[q(20)], 22).to(gateway_mac(11)),
    odd("to all of a VLAN", 2, &[q(10)], 12).to(BROADCAST),
    odd("to all of the bridge's own", 0, &[], 1).to(BROADCAST),
    odd("to nobody", 0, &[q(10)], 10).to(STRANGER),
    odd("not allowed at the port", 1, &[q(20)], 11),
    odd("not allowed anywhere", 0, &[q(30)], 30),
    odd("not the bridge's", 0, &[q(40)], 1),
    odd("not the bridge's, to another port", 0, &[q(40)], 1).to(STRANGER),
    odd("without a tag where there has to be one", 2, &[], 2),
    odd(
        "a priority tag where there has to be one",
        2,
        &[q(0x2000)],
        2,
    ),
    odd("of the other kind", 0, &[ad(10)], 1),
    odd("of the other kind, at an access port", 1, &[ad(20)], 11),
    odd("two", 0, &[q(10), q(5)], 10),
    odd("two priority tags", 0, &[q(0), q(0)], 1),
    odd("a priority tag before another", 0, &[q(0), q(10)], 1),
];

/// The same with tags of 802.1ad.
const FILTERED_AD_WAYS: [Way; 22] = [
    FILTERED_WAYS[0],
    way("with the tag that it would get", 0, &[ad(1)], 1),
    way("a priority tag", 0, &[ad(0xe000)], 1),
    way("802.1ad", 0, &[ad(10)], 10),
    way("802.1ad with a priority", 0, &[ad(0x600a)], 10),
    way("802.1ad, another", 0, &[ad(20)], 20),
    way("802.1Q in 802.1ad", 0, &[ad(10), q(5)], 15),
    FILTERED_WAYS[7],
    way("an access port, a tag of its VLAN", 1, &[ad(10)], 11),
    FILTERED_WAYS[10],
    way("a trunk", 2, &[ad(10)], 12),
    way("a trunk, another VLAN", 2, &[ad(20)], 22),
    way("a trunk, one more that comes out untagged", 2, &[ad(50)], 2),
    FILTERED_WAYS[15],
    FILTERED_WAYS[17],
    odd("to a host behind another port", 2, &[ad(10)], 12).to(gateway_mac(11)),
    odd("not allowed at the port", 1, &[ad(20)], 11),
    odd("of the other kind", 0, &[q(10)], 1),
    odd("of the other kind, at an access port", 1, &[q(5)], 11),
    odd("of the other kind, to another port", 1, &[q(5)], 11).to(gateway_mac(12)),
    odd("802.1Q priority tag", 0, &[q(0)], 1),
    odd("802.1Q in 802.1ad that is unknown", 0, &[ad(20), q(5)], 20),
];

/// Bridge br0 with VLAN filtering, and VLANs of this kind upon it; says whether the kernel has such.
fn filtering(world: &World, kind: fn(u16) -> Tag) -> bool {
    world.ip("link set sink-3 address 02:96:00:00:00:03");
    let protocol = if kind(1) == ad(1) {
        "802.1ad"
    } else {
        "802.1Q"
    };
    let words = format!("vlan_filtering 1 vlan_protocol {protocol}");
    if !world.bridge("br0", &words, &["source", "sink", "sink-2"]) {
        return false;
    }
    for id in [10, 20, 30] {
        let vlan = format!("br{id}");
        if !world.vlan("br0", &vlan, kind(id), "") {
            return false;
        }
    }
    assert!(world.vlan("sink-3", "sink35", q(5), ""));
    if kind(1) == ad(1) {
        assert!(world.vlan("br10", "br105", q(5), ""));
    }
    let lines = [
        // By default each has 1, untagged, as its PVID.
        "vlan add vid 10 dev source",
        "vlan add vid 20 dev source",
        "vlan add vid 40 dev source",
        "vlan del vid 1 dev sink",
        "vlan add vid 10 pvid untagged dev sink",
        "vlan add vid 1 dev sink-2",
        "vlan add vid 10 dev sink-2",
        "vlan add vid 20 dev sink-2",
        "vlan add vid 40 dev sink-2",
        "vlan add vid 50 dev sink-2",
        "vlan add vid 10 dev br0 self",
        "vlan add vid 20 dev br0 self",
        "vlan add vid 50 untagged dev br0 self",
    ];
    world.bridges(&lines.map(str::to_owned));
    world.plain_settings();
    true
}

/// Gateways that are elsewhere in the midst of it.
const MOVES: [Move; 2] = [moved(11, 2, &[q(10)]), moved(12, 1, &[])];
const MOVES_AD: [Move; 1] = [moved(11, 2, &[ad(10)])];

#[test]
fn bridges_that_filter_vlans() {
    let name = "bridges_that_filter_vlans";
    if !root(name) {
        return;
    }
    let mut compared = Compared::new("bridges that filter VLANs", 2, FILTERED_WAYS.len() * 8);
    type Case = (&'static str, fn(u16) -> Tag, &'static [Net], &'static [Way]);
    let cases: [Case; 2] = [
        ("802.1Q", q, &FILTERED, &FILTERED_WAYS),
        ("802.1ad", ad, &FILTERED_AD, &FILTERED_AD_WAYS),
    ];
    for (about, kind, nets, ways) in cases {
        let world = world("bridgevl");
        if !filtering(&world, kind) {
            return skipped(name, "bridges that filter VLANs");
        }
        route(&world, nets, "");
        let drawing = Drawing {
            nets,
            ways,
            moves: if about == "802.1Q" { &MOVES } else { &MOVES_AD },
            count: compared.each,
        };
        let mut rng = compared.random();
        let mut bursts = drawing.bursts(&mut rng);
        bursts.extend(drawing.sized(&mut rng, &[ways[0], ways[3]], MTU, &[(15, 4)]));
        let known = || world.knows("br0", &[]);
        compared.compare(about, &world, &bursts, &[], &known);
    }
    compared.right();
}

/// Of bridge br100, whose ports are VLANs 100 of `source` and `sink`; these links and `sink-2` are beside it.
const BY_VLANS: [Net; 6] = [
    net("br100", 1, 0, &[q(100)]),
    net("br100", 2, 1, &[q(100)]),
    net("br1005", 5, 0, &[q(100), q(5)]),
    net("br1005", 6, 1, &[q(100), q(5)]),
    net("sink", 101, 1, &[]),
    net("sink-2", 102, 2, &[]),
];
const BY_VLANS_WAYS: [Way; 10] = [
    way("a VLAN that is a port", 0, &[q(100)], 1),
    way("a VLAN that is a port, with a priority", 1, &[q(0x6064)], 2),
    way("a source that is learnt with this", 0, &[q(100)], 1).from(From::Nobody),
    way("a tag behind the port's", 0, &[q(100), q(5)], 5),
    way("a link that has a port upon it", 1, &[], 101).to(SINK_1),
    way("a link beside", 2, &[], 102).to(SINK_3),
    odd("to another port", 0, &[q(100)], 1).to(gateway_mac(2)),
    odd("to all", 1, &[q(100)], 2).to(BROADCAST),
    odd("another VLAN", 0, &[q(101)], 1),
    odd("without a tag", 0, &[], 1),
];
const BY_VLANS_MOVES: [Move; 1] = [moved(2, 0, &[q(100)])];
/// MAC address of `sink`, where the test sets that.
const SINK_1: [u8; 6] = [2, 0x96, 0, 0, 0, 1];

#[test]
fn ports_that_are_vlans() {
    let name = "ports_that_are_vlans";
    if !root(name) {
        return;
    }
    let world = world("bridgeon");
    world.ip("link set sink address 02:96:00:00:00:01");
    world.ip("link set sink-2 address 02:96:00:00:00:03");
    for link in ["source", "sink"] {
        if !world.vlan(link, &format!("{link}100"), q(100), "") {
            return skipped(name, "VLANs");
        }
    }
    assert!(world.bridge("br100", "", &["source100", "sink100"]));
    assert!(world.vlan("br100", "br1005", q(5), ""));
    world.plain_settings();
    route(&world, &BY_VLANS, "");
    let mut compared = Compared::new("bridges of VLANs", 1, BY_VLANS_WAYS.len() * 8);
    let drawing = Drawing {
        nets: &BY_VLANS,
        ways: &BY_VLANS_WAYS,
        moves: &BY_VLANS_MOVES,
        count: compared.each,
    };
    let mut rng = compared.random();
    let mut bursts = drawing.bursts(&mut rng);
    // Two tags are more than a link has room for beside its MTU.
    bursts.extend(drawing.sized(&mut rng, &BY_VLANS_WAYS[..2], MTU, &[(5, 4), (6, 4)]));
    let known = || world.knows("br100", &[]);
    compared.compare("as it is", &world, &bursts, &[], &known);
    compared.right();
}

/// Of bridges br0 and br1, whose ports are bonds of `source` and `sink`, and `sink-2` and `sink-3`.
const BY_BONDS: [Net; 4] = [
    net("br0", 1, 0, &[]),
    net("br0", 2, 2, &[]),
    net("br1", 3, 1, &[]),
    net("br1", 4, 3, &[]),
];
const BY_BONDS_MOVES: [Move; 1] = [moved(4, 1, &[])];
const BY_BONDS_WAYS: [Way; 8] = [
    way("a bond that is a port", 0, &[], 1),
    way("a port beside it", 2, &[], 2),
    way("another bond", 1, &[], 3),
    way("a port beside another bond", 3, &[], 4),
    way("a source that is learnt with this", 0, &[], 1).from(From::Nobody),
    odd("to another port", 0, &[], 1).to(gateway_mac(2)),
    odd("to all", 2, &[], 2).to(BROADCAST),
    odd("a tag", 0, &[q(5)], 1),
];

#[test]
fn ports_that_are_bonds() {
    let name = "ports_that_are_bonds";
    if !root(name) {
        return;
    }
    let world = world("bridgebo");
    if !world.bond("in0", "active-backup", &["source"]) {
        return skipped(name, "bonds");
    }
    assert!(world.bond("out0", "active-backup", &["sink"]));
    for (bridge, ports) in [("br0", ["in0", "sink-2"]), ("br1", ["out0", "sink-3"])] {
        assert!(world.bridge(bridge, "", &ports));
    }
    world.bond_is_by("in0", &["source"]);
    world.bond_is_by("out0", &["sink"]);
    world.plain_settings();
    route(&world, &BY_BONDS, "");
    let mut compared = Compared::new("bridges of bonds", 1, BY_BONDS_WAYS.len() * 8);
    let drawing = Drawing {
        nets: &BY_BONDS,
        ways: &BY_BONDS_WAYS,
        moves: &BY_BONDS_MOVES,
        count: compared.each,
    };
    let bursts = drawing.bursts(&mut compared.random());
    let known = || {
        world.knows("br0", &[]);
        world.knows("br1", &[]);
    };
    compared.compare("as it is", &world, &bursts, &[], &known);
    compared.right();
}

/// Frames in several buffers.
#[test]
fn large_frames_by_bridges() {
    let name = "large_frames_by_bridges";
    if !root(name) {
        return;
    }
    let world = World::with_mtu("bridgebg", 3, (9000 + ROOM) as u32);
    for n in 1..=world.links() {
        world.ip(&format!("link set {} mtu 9000", world.out(n)));
    }
    plain(&world);
    route(&world, &PLAIN, "");
    let mut compared = Compared::new("large frames by bridges", 1, PLAIN_WAYS.len() * 8);
    let drawing = Drawing {
        nets: &PLAIN,
        ways: &PLAIN_WAYS,
        moves: &[],
        count: compared.each,
    };
    let mut rng = compared.random();
    let mut bursts = drawing.bursts(&mut rng);
    for size in [9000, 4000] {
        bursts.extend(drawing.sized(&mut rng, &[PLAIN_WAYS[0], PLAIN_WAYS[4]], size, &[]));
    }
    let known = || world.knows("br0", &[(gateway_mac(3), "sink-2", 0)]);
    compared.compare("jumbo", &world, &bursts, &[], &known);
    compared.right();
}

#[test]
fn bridges_by_generic_xdp() {
    let name = "bridges_by_generic_xdp";
    if !root(name) {
        return;
    }
    let mut world = world("bridgege");
    world.send_directly();
    world.ip("link set sink-3 address 02:96:00:00:00:03");
    assert!(world.bridge("br0", "", &["direct", "sink", "sink-2"]));
    world.plain_settings();
    route(&world, &PLAIN, "");
    let mut compared = Compared::new("bridges in generic XDP", 1, PLAIN_WAYS.len() * 8);
    // What comes by the others, comes by a wire, which generic XDP does not look at.
    let ways = PLAIN_WAYS.map(|way| Way {
        engine: way.engine && way.by == 0,
        ..way
    });
    let drawing = Drawing {
        nets: &PLAIN,
        ways: &ways,
        moves: &[],
        count: compared.each,
    };
    let bursts = drawing.bursts(&mut compared.random());
    let known = || world.knows("br0", &[(gateway_mac(3), "sink-2", 0)]);
    compared.compare("generic", &world, &bursts, &["--mode", "generic"], &known);
    compared.right();
}

/// Which frames of [`PLAIN`] raddle leaves to the kernel for rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Those that come in by the bridge.
    In,
    /// Those that leave by it.
    Out,
    All,
    None,
}

/// Frames of [`PLAIN`] while there are such rules; and how many raddle may forward at most.
fn ruled(compared: &mut Compared, left: Left) -> (Vec<Burst>, u64) {
    let nets = PLAIN.map(|net| match left {
        Left::Out | Left::All if net.link == "br0" => net.kernels(),
        _ => net,
    });
    let is_left = |by: u32| left == Left::All || left == if by == 3 { Left::Out } else { Left::In };
    let ways = PLAIN_WAYS.map(|way| Way {
        engine: way.engine && !is_left(way.by),
        ..way
    });
    let drawing = Drawing {
        nets: &nets,
        ways: &ways,
        moves: &[],
        count: compared.each,
    };
    let bursts = drawing.bursts(&mut compared.random());
    let others = bursts.iter().filter(|burst| !is_left(burst.by));
    let most = others.map(|burst| burst.frames.len() as u64).sum();
    (bursts, most)
}

/// Runs nft on the router; what it said where it failed.
fn nft(world: &World, words: &str) -> Result<(), String> {
    let output = world.lab().output("router", &["nft", words]).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or(said)
}

/// Rules of a bridge see all that they are there for.
#[test]
fn rules_for_bridges_see_everything() {
    let name = "rules_for_bridges_see_everything";
    if !root(name) {
        return;
    }
    let world = world("bridgenf");
    plain(&world);
    route(&world, &PLAIN, "");
    let empty = "table bridge guard { chain c { type filter hook input priority 0; }; }";
    if nft(&world, empty).is_err() {
        return skipped(name, "nftables for bridges");
    }
    nft(&world, "delete table bridge guard").unwrap();
    let known = || world.knows("br0", &[(gateway_mac(3), "sink-2", 0)]);
    let cases = [
        (
            Left::In,
            "hook input priority 0; ip saddr 172.20.1.0/28 drop; ip6 saddr 2001:db8:4:1::/124 drop",
        ),
        (Left::In, "hook prerouting priority 0; ip ttl set 77"),
        (
            Left::Out,
            "hook output priority 0; ip daddr 172.20.2.200/31 drop",
        ),
        (
            Left::Out,
            "hook postrouting priority 0; ip6 daddr 2001:db8:4:2::c8/127 drop",
        ),
        (
            Left::None,
            "hook forward priority 0; ip saddr 172.20.1.0/28 drop",
        ),
    ];
    let mut compared = Compared::new("rules for bridges", cases.len(), PLAIN_WAYS.len() * 4);
    for (left, rule) in cases {
        let table = format!("table bridge guard {{ chain c {{ type filter {rule}; }}; }}");
        nft(&world, &table).unwrap();
        let (bursts, most) = ruled(&mut compared, left);
        let seen = compared.compare(rule, &world, &bursts, &[], &known);
        assert!(seen.forwarded <= most, "{rule}: {}", seen.forwarded);
        nft(&world, "delete table bridge guard").unwrap();
    }
    compared.right();
}

/// So do rules of IP where bridges ask them (`br_netfilter`).
#[test]
fn rules_of_ip_that_bridges_ask() {
    let name = "rules_of_ip_that_bridges_ask";
    if !root(name) {
        return;
    }
    let world = world("bridgeca");
    plain(&world);
    if !world.calls("iptables", false) {
        return skipped(name, "br_netfilter");
    }
    route(&world, &PLAIN, "");
    let known = || world.knows("br0", &[(gateway_mac(3), "sink-2", 0)]);
    let mut compared = Compared::new("bridges that ask rules of IP", 3, PLAIN_WAYS.len() * 4);
    let mut trial = |about: &str, left| {
        let (bursts, most) = ruled(&mut compared, left);
        let seen = compared.compare(about, &world, &bursts, &[], &known);
        // Of rules of IP raddle may know which addresses they are about.
        let is_right = left == Left::In || seen.forwarded <= most;
        assert!(is_right, "{about}: {}", seen.forwarded);
    };
    for family in ["iptables", "ip6tables", "arptables"] {
        world.calls(family, true);
    }
    trial("asked by all bridges, without a rule", Left::None);
    let rules = "table inet guard { chain c { type filter hook prerouting priority 0; iifname br0 ip saddr 172.20.1.0/28 drop; \
                 iifname br0 ip6 saddr 2001:db8:4:1::/124 drop; }; }";
    nft(&world, rules).unwrap();
    trial("asked by all bridges", Left::In);
    for family in ["iptables", "ip6tables", "arptables"] {
        world.calls(family, false);
    }
    nft(&world, "delete table inet guard").unwrap();
    world.ip("link set br0 type bridge nf_call_iptables 1 nf_call_ip6tables 1");
    trial("asked by one", Left::All);
    compared.right();
}

/// A flow from one network to another.
fn flow(from: u8, to: u8, four: bool, sport: u16) -> Flow {
    let (src, dst) = match four {
        true => (behind4(from, 9).into(), behind4(to, 9).into()),
        false => (behind6(from, 9).into(), behind6(to, 9).into()),
    };
    Flow {
        src,
        dst,
        proto: 17,
        sport,
        dport: 9,
    }
}

/// Frames of the flows of both families from one network to another, sent by a link.
fn some(by: u32, macs: [[u8; 6]; 2], (from, to): (u8, u8), number: &mut u64) -> Burst {
    let mut burst = Burst::by(by);
    for n in 0..8 {
        *number += 1;
        let flow = flow(from, to, n % 2 == 0, n);
        burst.add("plain", udp(macs, &flow, *number, 20), true);
    }
    burst
}

/// A host that speaks on is learnt anew when its entry has become too old, though raddle forwards what it says; and one that says nothing is
/// forgotten by raddle as well.
#[test]
fn what_a_bridge_has_learnt_ages() {
    let name = "what_a_bridge_has_learnt_ages";
    if !root(name) {
        return;
    }
    let world = world("bridgeag");
    plain(&world);
    route(&world, &PLAIN, "");
    let daemon = Daemon::start(&world, &PATIENT);
    let mut number = 0;
    let mut hellos = Burst::by(0);
    hellos.add("hello", hello(1, &[]), false);
    hellos.settles = true;
    world.exchange_bursts(&[hellos], quiet(), |_| true);
    let knows = || {
        world
            .node("router", "bridge fdb show br br0")
            .contains("02:99:00:00:00:01")
    };
    assert!(knows());
    // Hundredths of a second.
    world.ip(&format!(
        "link set br0 type bridge ageing_time {}",
        AGES.as_millis() / 10
    ));
    let start = Instant::now();
    let to_host = |arrived: &[Arrival], link: &str| {
        let by = arrived
            .iter()
            .filter(|a| a.link == link && a.frame[..6] == gateway_mac(1));
        by.count()
    };
    let links = ["source", "sink", "sink-2"];
    let (mut most, mut flooded) = (0, 0);
    while start.elapsed() < AGES * 3 {
        let before = daemon.forwarded();
        let out = some(0, [BRIDGE_MAC, gateway_mac(1)], (1, 101), &mut number);
        let back = some(3, [SINK_3, gateway_mac(101)], (101, 1), &mut number);
        let arrived = world.exchange_bursts(&[out, back], quiet(), |_| true);
        let by = links.map(|link| to_host(&arrived, link));
        assert_eq!(by[0], 8, "by {by:?}: {}", daemon.counters()["reasons"]);
        // Between the last frame that raddle took and the next, which the bridge learns from.
        flooded += usize::from(by[1..] != [0, 0]);
        most = most.max(daemon.forwarded() - before);
    }
    assert!(flooded <= 3, "flooded {flooded} times");
    assert!(most >= 8, "{}", daemon.counters()["reasons"]);
    within(LIMIT, || match knows() {
        false => Ok(()),
        true => Err("it is known still".to_owned()),
    });
    within(LIMIT, || {
        let back = some(3, [SINK_3, gateway_mac(101)], (101, 1), &mut number);
        let before = daemon.forwarded();
        let arrived = world.exchange_bursts(&[back], quiet(), |_| true);
        let flooded = links.map(|link| to_host(&arrived, link)) == [8; 3];
        match flooded && daemon.forwarded() == before {
            true => Ok(()),
            false => Err("raddle sends still, or nobody does".to_owned()),
        }
    });
    daemon.terminate();
}
