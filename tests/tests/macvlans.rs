//! macvlans against the running kernel: the same frames are forwarded by it, then by raddle, in by macvlans of all modes and out by such,
//! with others of other namespaces beside them. What comes out has to be the same each time, byte for byte.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use raddle_e2e::bridged::{Drawing, Net, Way, net, odd, route, way};
use raddle_e2e::compared::Compared;
use raddle_e2e::tags::q;
use raddle_e2e::{World, gateway_mac, root};

/// Bytes that in-links take beyond the MTU of the others.
const ROOM: usize = 100;
const MTU: usize = 1500;

/// MAC addresses: of the links, and of macvlans upon `source`.
const SOURCE: [u8; 6] = [2, 0x96, 0, 0, 0, 0];
const SINK: [u8; 6] = [2, 0x96, 0, 0, 0, 1];
const SINK_2: [u8; 6] = [2, 0x96, 0, 0, 0, 2];
const PRIVATE: [u8; 6] = [2, 0x95, 0, 0, 0, 1];
const BRIDGED: [u8; 6] = [2, 0x95, 0, 0, 0, 2];
const VEPA: [u8; 6] = [2, 0x95, 0, 0, 0, 3];
/// As VRRP has them.
const VIRTUAL: [u8; 6] = [0, 0, 0x5e, 0, 1, 5];
const DOWN: [u8; 6] = [2, 0x95, 0, 0, 0, 4];
/// What engines know of these two is the same.
const ALIKE: [[u8; 6]; 2] = [[2, 0x95, 0, 1, 0, 5], [2, 0x95, 0, 2, 0, 5]];
const STRANGER: [u8; 6] = [2, 0x97, 1, 2, 3, 4];

const NETS: [Net; 15] = [
    net("source", 1, 0, &[]),
    net("private", 2, 0, &[]),
    net("bridged", 3, 0, &[]).kernels(),
    net("vepa", 4, 0, &[]),
    net("virtual", 5, 0, &[]),
    net("alike1", 7, 0, &[]),
    net("alike2", 8, 0, &[]),
    net("sink", 101, 1, &[]),
    net("outpriv", 102, 1, &[]),
    net("outvepa", 103, 1, &[]),
    // Its neighbours may be macvlans beside it.
    net("outbr", 104, 1, &[]).kernels(),
    // As this one's is, in another namespace.
    net("outbr", 105, 4, &[]).kernels(),
    // One of private mode sends to the wire nevertheless.
    net("outpriv", 106, 1, &[]),
    net("sink-2", 111, 2, &[]),
    net("sink-2", 112, 2, &[]),
];

const WAYS: [Way; 17] = [
    way("to the link", 0, &[], 1).to(SOURCE),
    way("private mode", 0, &[], 2).to(PRIVATE),
    way("bridge mode", 0, &[], 3).to(BRIDGED),
    way("VEPA mode", 0, &[], 4).to(VEPA),
    way("a virtual router's", 0, &[], 5).to(VIRTUAL),
    way("by a link beside", 2, &[], 111).to(SINK_2),
    way("by a link that macvlans are left by", 1, &[], 101).to(SINK),
    odd("a priority tag", 0, &[q(0)], 2).to(PRIVATE),
    odd("a tag", 0, &[q(5)], 2).to(PRIVATE),
    odd("to one of two that are alike", 0, &[], 7).to(ALIKE[0]),
    odd("to the other", 0, &[], 8).to(ALIKE[1]),
    odd("to one that is not there, and like these", 0, &[], 1).to([2, 0x95, 0, 3, 0, 5]),
    odd("to one that is down", 0, &[], 2).to(DOWN),
    odd("to nobody", 0, &[], 1).to(STRANGER),
    odd("to all", 0, &[], 2).to([0xff; 6]),
    odd("to a group", 0, &[], 2).to([1, 0, 0x5e, 0, 0, 9]),
    odd("to one of another namespace", 1, &[], 101).to(gateway_mac(105)),
];

fn skipped(name: &str) {
    eprintln!("skipped: {name} needs macvlans, which this kernel does not have");
}

fn world(name: &str) -> World {
    let world = World::with_mtu(name, 2, (MTU + ROOM) as u32);
    for n in 1..=world.links() {
        world.ip(&format!("link set {} mtu {MTU}", world.out(n)));
    }
    for (n, link) in ["source", "sink", "sink-2"].into_iter().enumerate() {
        world.ip(&format!("link set {link} address 02:96:00:00:00:0{n}"));
    }
    world
}

#[test]
fn macvlans_are_gone_in_and_out_by_as_by_the_kernel() {
    let name = "macvlans_are_gone_in_and_out_by_as_by_the_kernel";
    if !root(name) {
        return;
    }
    let world = world("macvlan");
    for (lower, upper, mode, mac) in [
        ("source", "private", "private", PRIVATE),
        ("source", "bridged", "bridge", BRIDGED),
        ("source", "vepa", "vepa", VEPA),
        ("source", "virtual", "private", VIRTUAL),
        ("source", "asleep", "private", DOWN),
        ("source", "alike1", "private", ALIKE[0]),
        ("source", "alike2", "private", ALIKE[1]),
        ("sink", "outpriv", "private", [2, 0x95, 0, 0, 1, 1]),
        ("sink", "outvepa", "vepa", [2, 0x95, 0, 0, 1, 2]),
        ("sink", "outbr", "bridge", [2, 0x95, 0, 0, 1, 3]),
    ] {
        if !world.macvlan(lower, upper, mode, mac, "router") {
            return skipped(name);
        }
    }
    world.ip("link set asleep down");
    for (sibling, net) in [("sibling1", 105), ("sibling2", 106)] {
        assert!(world.macvlan("sink", sibling, "bridge", gateway_mac(net), "sink"));
    }
    world.see_tags();
    world.plain_settings();
    route(&world, &NETS, "");
    let mut compared = Compared::new("macvlans", 2, WAYS.len() * 8);
    let drawing = Drawing {
        nets: &NETS,
        ways: &WAYS,
        moves: &[],
        count: compared.each,
    };
    let mut rng = compared.random();
    let mut bursts = drawing.bursts(&mut rng);
    bursts.extend(drawing.sized(&mut rng, &WAYS[..2], MTU, &[]));
    let seen = compared.compare("as it is", &world, &bursts, &[], &|| ());
    let sibling = world.out(3);
    for arrived in &seen.arrived {
        let to = arrived
            .iter()
            .filter(|a| a.link == sibling && a.frame[..6] == gateway_mac(105));
        assert!(
            to.count() > 8,
            "the macvlan of another namespace got nothing"
        );
    }

    // The link itself, and most that is upon it, is the kernel's then.
    let some = NETS.map(|net| match net.link {
        "sink" | "outpriv" | "private" => net,
        _ => net.kernels(),
    });
    let ways = WAYS.map(|way| Way {
        engine: way.engine && way.net == 2,
        ..way
    });
    let drawing = Drawing {
        nets: &some,
        ways: &ways,
        ..drawing
    };
    let bursts = drawing.bursts(&mut compared.random());
    let arguments = ["--link", "private", "--link", "outpriv", "--link", "sink"];
    compared.compare(
        "private and outpriv are named",
        &world,
        &bursts,
        &arguments,
        &|| (),
    );
    compared.right();
}

/// Of a link that a macvlan has to itself.
const PASSED: [Net; 3] = [
    net("pass", 1, 0, &[]).kernels(),
    net("sink", 101, 1, &[]),
    net("sink-2", 111, 2, &[]),
];
const PASSED_WAYS: [Way; 4] = [
    odd("to the link's", 0, &[], 1).to(SOURCE),
    odd("to nobody", 0, &[], 1).to(STRANGER),
    odd("to all", 0, &[], 1).to([0xff; 6]),
    way("by a link beside", 1, &[], 101).to(SINK),
];

#[test]
fn macvlans_that_have_a_link_to_themselves() {
    let name = "macvlans_that_have_a_link_to_themselves";
    if !root(name) {
        return;
    }
    let world = world("macvlanp");
    if !world.macvlan("source", "pass", "passthru", SOURCE, "router") {
        return skipped(name);
    }
    world.plain_settings();
    route(&world, &PASSED, "");
    let mut compared = Compared::new("passthru", 1, PASSED_WAYS.len() * 16);
    let drawing = Drawing {
        nets: &PASSED,
        ways: &PASSED_WAYS,
        moves: &[],
        count: compared.each,
    };
    let bursts = drawing.bursts(&mut compared.random());
    compared.compare("as it is", &world, &bursts, &[], &|| ());
    compared.right();
}
