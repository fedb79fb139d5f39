//! State comes and goes while frames flow: each frame goes as the kernel sends it in the state before a change or after
//! it, none is lost that neither loses, and none goes by the state before when the deadline has passed.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use raddle_e2e::changing::{Record, record, way};
use raddle_e2e::frame::Flow;
use raddle_e2e::tags::{ad, q};
use raddle_e2e::tunnelled::{Kind, LOCAL, Outer, SPORTS, VXLAN_PORT, remote, tunnel, underlay};
use raddle_e2e::{BRIDGE_MAC, Daemon, World, gateway_mac, quiet, root, volume};

/// The default deadline, and how coarse the clock is that programs go by.
const DEADLINE: Duration = Duration::from_millis(2000 + 20);
/// Between changes: the state before is allowed in the shorter ones all the time.
const DWELLS: [Duration; 5] = [
    Duration::from_millis(40),
    Duration::from_millis(150),
    Duration::from_millis(2600),
    Duration::from_millis(5),
    Duration::from_millis(2600),
];
/// Changes at least.
const CHANGES: usize = 6;
/// Frames a second, of all flows.
const RATE: u32 = 2000;

/// Hosts behind the source, of which some have their route elsewhere, and networks behind the sink.
fn flows() -> Vec<Flow> {
    let pairs = [
        ("10.1.1.7", "10.9.7.9"),
        ("10.1.1.8", "10.9.7.10"),
        ("172.16.5.5", "10.9.7.9"),
        ("172.17.5.5", "10.9.7.9"),
        ("fd01:1::7", "fd09:7::9"),
        ("fd01:1::8", "fd09:7::10"),
    ];
    let flow = |n: u16| {
        pairs.map(|(src, dst)| Flow {
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            proto: 17,
            sport: n,
            dport: 9,
        })
    };
    (0..4).flat_map(flow).collect()
}

fn world(name: &str) -> World {
    let world = World::new(name, 3);
    for route in [
        "route add 10.9.7.0/24 via 10.2.1.2",
        "route add 172.16.0.0/16 dev source",
        "route add 172.17.0.0/16 via 10.2.3.2",
        "route add default via 10.2.2.2 table 77",
        "-6 route add fd09:7::/64 via 2001:db8:2:1::2",
        "-6 route add default via 2001:db8:2:2::2 table 77",
    ] {
        world.ip(route);
    }
    world
}

/// What changes, how many flows go otherwise then (none: some), and whether a link is down meanwhile.
fn changes(about: &str, world: &World, other: Option<usize>, down: bool, change: &dyn Fn(bool)) {
    changes_of(about, (world, &flows()), other, down, change);
}

/// The same for these flows.
fn changes_of(
    about: &str,
    (world, flows): (&World, &[Flow]),
    other: Option<usize>,
    down: bool,
    change: &dyn Fn(bool),
) {
    let frames = world.frames(flows);
    let ways = |on| {
        change(on);
        // Where a link was down.
        std::thread::sleep(if down { DEADLINE } else { Duration::ZERO });
        let arrived = world.transmit(&frames);
        arrived
            .iter()
            .map(|arrivals| way(world, arrivals.first()?))
            .collect::<Vec<_>>()
    };
    let on = ways(true);
    let off = ways(false);
    let differ = on.iter().zip(&off).filter(|(on, off)| on != off).count();
    let right = other.map_or(differ > 0, |other| differ == other);
    assert!(right, "{about}: {differ} differ: {off:?}, {on:?}");

    let ways = [&off[..], &on];
    let slack = quiet();
    let judged = |record: &Record, gap| record.judge(ways, (DEADLINE, slack), gap);
    let mut gap = None;
    if down {
        let alone = record(world, flows, (RATE, 0), (4, &DWELLS), change);
        let alone = judged(&alone, Some(Duration::MAX));
        assert!(alone.wrong.is_empty(), "{about}: {:?}", alone.wrong);
        eprintln!(
            "{about}: without raddle {} frames are lost while a link is down, until {:?} after it",
            alone.moved, alone.gap
        );
        // Without that, anything may be lost.
        assert!(alone.gap < DWELLS[2] / 2, "{about}: {:?}", alone.gap);
        gap = Some(alone.gap + DEADLINE);
    }
    let daemon = Daemon::start(world, &[]);
    let record = record(
        world,
        flows,
        (RATE, volume::frames(0)),
        (CHANGES, &DWELLS),
        change,
    );
    let judged = judged(&record, gap);
    let arrived = record.sent.iter().filter(|sent| !sent.links.is_empty());
    let (arrived, forwarded) = (arrived.count(), daemon.forwarded());
    eprintln!(
        "{about}: {} frames and {} changes, {} wrong, the state before for {:?} at most, {} lost with a link until \
         {:?}; of {arrived} that came out raddle forwarded {forwarded} ({:.2} %)",
        record.sent.len(),
        record.changes.len(),
        judged.wrong.len(),
        judged.longest,
        judged.moved,
        judged.gap,
        100.0 * forwarded as f64 / arrived as f64
    );
    let sample: Vec<_> = judged.wrong.iter().take(20).collect();
    assert!(sample.is_empty(), "{about}: {sample:#?}\n{}", daemon.log());
    // Some of its work was done by raddle in any state.
    assert!(forwarded as usize > arrived / 4, "{}", daemon.counters());
    daemon.terminate();
}

#[test]
fn rp_filter_comes_and_goes() {
    if !root("rp_filter_comes_and_goes") {
        return;
    }
    let world = world("chgrpf");
    let change = |on: bool| {
        let value = if on { "1" } else { "0" };
        world.sysctl("net.ipv4.conf.source.rp_filter", value);
    };
    changes("rp_filter", &world, Some(4), false, &change);
}

#[test]
fn forwarding_comes_and_goes() {
    if !root("forwarding_comes_and_goes") {
        return;
    }
    let world = world("chgfwd");
    let change = |on: bool| {
        let value = if on { "0" } else { "1" };
        world.sysctl("net.ipv4.conf.source.forwarding", value);
    };
    changes("forwarding", &world, Some(16), false, &change);
}

#[test]
fn rules_come_and_go() {
    if !root("rules_come_and_go") {
        return;
    }
    let world = world("chgrule");
    let change = |on: bool| {
        let verb = if on { "add" } else { "del" };
        world.ip(&format!("rule {verb} pref 90 from 10.1.1.8 lookup 77"));
        world.ip(&format!("-6 rule {verb} pref 90 iif source lookup 77"));
    };
    changes("routing rules", &world, Some(12), false, &change);
}

#[test]
fn rule_sets_come_and_go() {
    if !root("rule_sets_come_and_go") {
        return;
    }
    let world = world("chgnft");
    let nft = |words: &str| {
        let output = world.lab().output("router", &["nft", words]).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {said}");
    };
    let change = |on: bool| match on {
        true => nft(
            "table inet guard { chain c { type filter hook forward priority 0; ip saddr 10.1.1.8 drop; }; }",
        ),
        false => nft("delete table inet guard"),
    };
    changes("rule sets", &world, Some(4), false, &change);
}

#[test]
fn links_enter_and_leave_a_vrf() {
    if !root("links_enter_and_leave_a_vrf") {
        return;
    }
    let world = world("chgvrf");
    if !world.vrf("red", 10, &[]) {
        eprintln!(
            "skipped: links_enter_and_leave_a_vrf needs VRFs, which this kernel does not have"
        );
        return;
    }
    world.ip("route add default via 10.2.2.2 dev sink-2 table 10");
    world.ip("-6 route add default via 2001:db8:2:2::2 dev sink-2 table 10");
    let change = |on: bool| {
        let master = if on { "master red" } else { "nomaster" };
        world.ip(&format!("link set source {master}"));
    };
    changes("a link's VRF", &world, Some(24), true, &change);
}

#[test]
fn members_of_bonds_come_and_go() {
    if !root("members_of_bonds_come_and_go") {
        return;
    }
    let world = World::new("chgbond", 3);
    if !world.bond("in0", "active-backup", &["source", "sink-3"]) {
        eprintln!(
            "skipped: members_of_bonds_come_and_go needs bonds, which this kernel does not have"
        );
        return;
    }
    let mode = "balance-xor xmit_hash_policy layer3+4";
    assert!(world.bond("out0", mode, &["sink", "sink-2"]));
    world.ip("route add 10.9.7.0/24 via 10.2.1.2 dev out0");
    world.ip("-6 route add fd09:7::/64 via 2001:db8:2:1::2 dev out0");
    world.ip("link set in0 type bond active_slave source");
    world.bond_is_by("in0", &["source"]);
    world.bond_is_by("out0", &["sink", "sink-2"]);
    let change = |on: bool| {
        let active = if on { "sink-3" } else { "source" };
        world.ip(&format!("link set in0 type bond active_slave {active}"));
    };
    changes(
        "the active member of a bond",
        &world,
        Some(24),
        false,
        &change,
    );
    let change = |on: bool| {
        let state = if on { "down" } else { "up" };
        world.ip(&format!("link set sink-2 {state}"));
    };
    changes("a member of a bond", &world, None, true, &change);
}

/// Two flows of each family from this source to each of these networks.
fn flows_of(source: u8, nets: [u8; 3]) -> Vec<Flow> {
    let pairs = nets.into_iter().flat_map(|net| {
        [
            (format!("10.1.1.{source}"), format!("172.20.{net}.9")),
            (
                format!("fd01:1::{source}"),
                format!("2001:db8:4:{net:x}::9"),
            ),
        ]
    });
    let flows = pairs.flat_map(|(src, dst)| {
        let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
        (0..2).map(move |sport| Flow {
            src,
            dst,
            proto: 17,
            sport,
            dport: 9,
        })
    });
    flows.collect()
}

/// A router with VLANs in5 and, in in7, in79 upon `source`, by which some of the flows come in, and sink5 and, in sink7, sink79 upon
/// `sink` and `sink-2`, by which some go out; others come and go without tags. None where the kernel has no VLANs.
fn with_vlans(name: &str) -> Option<(World, Vec<Flow>)> {
    // Two tags are more than a link has room for beside its MTU.
    let world = World::with_mtu(name, 3, 1600);
    for (lower, name, tag) in [
        ("source", "in5", q(5)),
        ("source", "in7", ad(7)),
        ("in7", "in79", q(9)),
        ("sink", "sink5", q(5)),
        ("sink-2", "sink7", ad(7)),
        ("sink7", "sink79", q(9)),
    ] {
        if !world.vlan(lower, name, tag, "") {
            return None;
        }
    }
    let networks = [("sink", 101), ("sink5", 105), ("sink79", 179)];
    world.networks(&networks, "");
    for (_, net) in networks {
        // What is left when that is gone.
        let more = "metric 5000";
        world.ip(&format!(
            "route add 172.20.{net}.0/24 via 10.2.3.2 dev sink-3 {more}"
        ));
        world.ip(&format!(
            "-6 route add 2001:db8:4:{net:x}::/64 via 2001:db8:2:3::2 dev sink-3 {more}"
        ));
    }
    let mut flows = Vec::new();
    for (source, tags) in [(7, &[][..]), (8, &[q(5)]), (9, &[ad(7), q(9)])] {
        let from_it = flows_of(source, [101, 105, 179]);
        from_it
            .iter()
            .for_each(|flow| world.dress(flow.src, tags, 20));
        flows.extend(from_it);
    }
    Some((world, flows))
}

/// Skips where there are none.
fn vlans(name: &str, lab: &str, test: impl FnOnce(&World, &[Flow])) {
    if !root(name) {
        return;
    }
    match with_vlans(lab) {
        Some((world, flows)) => test(&world, &flows),
        None => eprintln!("skipped: {name} needs VLANs, which this kernel does not have"),
    }
}

#[test]
fn vlans_that_frames_come_in_by_come_and_go() {
    vlans(
        "vlans_that_frames_come_in_by_come_and_go",
        "chgvlin",
        |world, flows| {
            let change = |on: bool| match on {
                true => drop(world.ip("link del in5")),
                false => assert!(world.vlan("source", "in5", q(5), "")),
            };
            changes_of("a VLAN in", (world, flows), Some(12), false, &change);
            let change = |on: bool| {
                let state = if on { "down" } else { "up" };
                world.ip(&format!("link set in7 {state}"));
                // It went down with that.
                world.ip(&format!("link set in79 {state}"));
            };
            changes_of(
                "a VLAN in, up or not",
                (world, flows),
                Some(12),
                false,
                &change,
            );
            // Another VLAN takes its place, and with it the number that the link was known by.
            let shown: serde_json::Value =
                serde_json::from_str(&world.ip("-j link show dev in5")).unwrap();
            let index = shown[0]["ifindex"].as_u64().unwrap();
            world.dress("10.1.1.7".parse().unwrap(), &[q(6)], 20);
            world.dress("fd01:1::7".parse().unwrap(), &[q(6)], 20);
            let change = |on: bool| {
                let (old, new) = if on { (5, 6) } else { (6, 5) };
                let there = world.ip("-br link show type vlan");
                if there.contains(&format!("in{old}@")) {
                    world.ip(&format!("link del in{old}"));
                }
                if !there.contains(&format!("in{new}@")) {
                    let kind = format!("type vlan id {new}");
                    world.ip(&format!(
                        "link add link source name in{new} index {index} {kind}"
                    ));
                }
                world.ip(&format!("link set in{new} up"));
            };
            changes_of("a VLAN's index", (world, flows), Some(24), false, &change);
        },
    );
}

#[test]
fn vlans_that_frames_leave_by_come_and_go() {
    vlans(
        "vlans_that_frames_leave_by_come_and_go",
        "chgvlout",
        |world, flows| {
            let anew = || world.networks(&[("sink5", 105)], "");
            let change = |on: bool| {
                match on {
                    true => drop(world.ip("link del sink5")),
                    false => assert!(world.vlan("sink", "sink5", q(5), "")),
                }
                if !on {
                    anew();
                }
            };
            changes_of("a VLAN out", (world, flows), Some(12), true, &change);
            let change = |on: bool| {
                let state = if on { "down" } else { "up" };
                world.ip(&format!("link set sink5 {state}"));
                if !on {
                    anew();
                }
            };
            changes_of(
                "a VLAN out, up or not",
                (world, flows),
                Some(12),
                true,
                &change,
            );
            let change = |on: bool| {
                let state = if on { "down" } else { "up" };
                world.ip(&format!("link set sink {state}"));
                if !on {
                    // It goes up with the link.
                    world.networks(&[("sink", 101)], "");
                    anew();
                }
            };
            changes_of(
                "a link with a VLAN out",
                (world, flows),
                Some(24),
                true,
                &change,
            );
        },
    );
}

#[test]
fn mtus_of_vlans_change() {
    vlans("mtus_of_vlans_change", "chgvlmtu", |world, flows| {
        // IPv6 alone, of which nothing is fragmented.
        let flows: Vec<Flow> = flows
            .iter()
            .copied()
            .filter(|flow| flow.dst.is_ipv6())
            .collect();
        for (source, tags) in [(7, &[][..]), (8, &[q(5)]), (9, &[ad(7), q(9)])] {
            world.dress(format!("fd01:1::{source}").parse().unwrap(), tags, 1400);
        }
        let change = |on: bool| {
            let mtu = if on { 1400 } else { 1500 };
            world.ip(&format!("link set sink5 mtu {mtu}"));
        };
        changes_of("a VLAN's MTU", (world, &flows), Some(6), false, &change);
    });
}

/// Where frames of [`with_bridges`] come from.
const HOST: [u8; 6] = [2, 0x97, 0, 0, 0, 7];

/// A router with bridge brin of `source` and `sink-4`, by which flows come in, and bridge brout of `sink` and `sink-2`, by which most go
/// out, to gateways that are known there; others go out by `sink-3`. What brout does not know it sends by `sink` alone. `words` are more
/// about the bridges.
fn with_bridges(name: &str, words: &str) -> Option<(World, Vec<Flow>)> {
    let mut world = World::new(name, 4);
    let ports = [
        ("brin", ["source", "sink-4"]),
        ("brout", ["sink", "sink-2"]),
    ];
    for (bridge, ports) in ports {
        if !world.bridge(bridge, words, &ports) {
            return None;
        }
    }
    world.send_to([BRIDGE_MAC, HOST]);
    world.bridges(&["link set dev sink-2 flood off".to_owned()]);
    let flows = [7, 8].into_iter();
    let flows = flows.flat_map(|source| flows_of(source, [101, 102, 103]));
    Some((world, flows.collect()))
}

/// The same without VLANs.
fn bridges(name: &str, lab: &str, test: impl FnOnce(&World, &[Flow])) {
    if !root(name) {
        return;
    }
    let Some((world, flows)) = with_bridges(lab, "") else {
        eprintln!("skipped: {name} needs bridges, which this kernel does not have");
        return;
    };
    let networks = [("brin", 1), ("brout", 101), ("brout", 102), ("sink-3", 103)];
    world.networks(&networks, "");
    world.bridges(&[known(101, "sink", ""), known(102, "sink-2", "")]);
    test(&world, &flows);
}

/// What tells a bridge where the gateway of a network is.
fn known(net: u8, port: &str, more: &str) -> String {
    format!("fdb replace 02:99:00:00:00:{net:02x} dev {port} master static {more}")
}

#[test]
fn neighbours_on_bridges_come_and_go() {
    bridges(
        "neighbours_on_bridges_come_and_go",
        "chgfdb",
        |world, flows| {
            let change = |on: bool| {
                let port = if on { "sink-2" } else { "sink" };
                world.bridges(&[known(101, port, "")]);
            };
            changes_of(
                "a neighbour's port",
                (world, flows),
                Some(8),
                false,
                &change,
            );
            let change = |on: bool| match on {
                true => world.bridges(&["fdb del 02:99:00:00:00:66 dev sink-2 master".to_owned()]),
                false => world.bridges(&[known(102, "sink-2", "")]),
            };
            changes_of(
                "a neighbour, known or not",
                (world, flows),
                Some(8),
                false,
                &change,
            );
            // Sources are learnt anew.
            let change = |_| drop(world.ip("link set brin type bridge fdb_flush"));
            changes_of("what is learnt", (world, flows), Some(0), false, &change);
        },
    );
}

#[test]
fn ports_of_bridges_change() {
    bridges("ports_of_bridges_change", "chgport", |world, flows| {
        let port = |words: &str| world.bridges(&[format!("link set dev {words}")]);
        let change = |on: bool| port(&format!("sink-2 state {}", if on { 2 } else { 3 }));
        changes_of(
            "a port out, learning alone or not",
            (world, flows),
            Some(8),
            false,
            &change,
        );
        let change = |on: bool| port(&format!("source state {}", if on { 1 } else { 3 }));
        changes_of(
            "a port in, listening alone or not",
            (world, flows),
            Some(24),
            false,
            &change,
        );
        let change = |on: bool| {
            port(&format!(
                "source learning {}",
                if on { "off" } else { "on" }
            ));
            world.ip("link set brin type bridge fdb_flush");
        };
        changes_of(
            "a port in, learning or not",
            (world, flows),
            Some(0),
            false,
            &change,
        );
        let change = |on: bool| {
            port(&format!("source locked {}", if on { "on" } else { "off" }));
            if on {
                world.ip("link set brin type bridge fdb_flush");
            }
        };
        changes_of(
            "a port in, locked or not",
            (world, flows),
            Some(24),
            false,
            &change,
        );
        let change = |on: bool| {
            let state = if on { "down" } else { "up" };
            world.ip(&format!("link set sink-2 {state}"));
        };
        changes_of(
            "a port out, up or not",
            (world, flows),
            Some(8),
            true,
            &change,
        );
    });
}

#[test]
fn ports_join_and_leave_bridges() {
    bridges("ports_join_and_leave_bridges", "chgjoin", |world, flows| {
        let change = |on: bool| match on {
            true => drop(world.ip("link set source nomaster")),
            false => drop(world.ip("link set source master brin")),
        };
        changes_of("a port in", (world, flows), Some(24), true, &change);
        let change = |on: bool| {
            if on {
                world.ip("link set sink-2 nomaster");
                return;
            }
            // Until all is set, nothing shall be flooded by it.
            world.ip("link set sink-2 down");
            world.ip("link set sink-2 master brout");
            world.bridges(&[
                "link set dev sink-2 flood off".to_owned(),
                known(102, "sink-2", ""),
            ]);
            world.ip("link set sink-2 up");
        };
        changes_of("a port out", (world, flows), Some(8), true, &change);
        let change = |on: bool| {
            let state = if on { "down" } else { "up" };
            world.ip(&format!("link set brin {state}"));
        };
        changes_of(
            "a bridge in, up or not",
            (world, flows),
            Some(24),
            true,
            &change,
        );
        // What is to the old one is flooded by the other port.
        let change = |on: bool| {
            let mac = if on {
                "02:98:00:00:00:09"
            } else {
                "02:98:00:00:00:01"
            };
            world.ip(&format!("link set brin address {mac}"));
        };
        changes_of(
            "a bridge's MAC address",
            (world, flows),
            Some(24),
            false,
            &change,
        );
    });
}

#[test]
fn rules_for_bridges_come_and_go() {
    bridges("rules_for_bridges_come_and_go", "chgebt", |world, flows| {
        let nft = |words: &str| {
            let output = world.lab().output("router", &["nft", words]).unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{words}: {said}");
        };
        let change = |on: bool| match on {
            true => nft(
                "table bridge guard { chain c { type filter hook input priority 0; ip saddr 10.1.1.8 drop; \
                 ip6 saddr fd01:1::8 drop; }; }",
            ),
            false => nft("delete table bridge guard"),
        };
        changes_of(
            "rules for bridges",
            (world, flows),
            Some(12),
            false,
            &change,
        );
    });
}

#[test]
fn vlans_of_ports_come_and_go() {
    let name = "vlans_of_ports_come_and_go";
    if !root(name) {
        return;
    }
    let skipped = || {
        eprintln!(
            "skipped: {name} needs bridges that filter VLANs, which this kernel does not have"
        );
    };
    let Some((world, flows)) = with_bridges("chgpvl", "vlan_filtering 1") else {
        return skipped();
    };
    for bridge in ["brin", "brout"] {
        if !world.vlan(bridge, &format!("{bridge}.10"), q(10), "") {
            return skipped();
        }
    }
    for source in ["10.1.1.8", "fd01:1::8"] {
        world.dress(source.parse().unwrap(), &[q(10)], 20);
    }
    let vlan = |words: &str| world.bridges(&[format!("vlan {words}")]);
    for words in [
        "add vid 10 dev brin self",
        "add vid 10 dev brout self",
        "add vid 10 dev source",
        "add vid 10 dev sink",
        "del vid 1 dev sink-2",
        "add vid 10 pvid untagged dev sink-2",
    ] {
        vlan(words);
    }
    let networks = [
        ("brin", 1),
        ("brin.10", 2),
        ("brout.10", 101),
        ("brout.10", 102),
        ("sink-3", 103),
    ];
    world.networks(&networks, "");
    world.bridges(&[
        known(101, "sink", "vlan 10"),
        known(102, "sink-2", "vlan 10"),
    ]);
    let between = |about: &str, differ, [on, off]: [&str; 2]| {
        let change = |is_on: bool| {
            vlan(if is_on { on } else { off });
            if !is_on {
                world.bridges(&[known(101, "sink", "vlan 10")]);
            }
        };
        changes_of(about, (&world, &flows), Some(differ), false, &change);
    };
    between(
        "a VLAN of a port in",
        12,
        ["del vid 10 dev source", "add vid 10 dev source"],
    );
    between(
        "the VLAN of a port in without a tag",
        12,
        [
            "add vid 20 pvid untagged dev source",
            "add vid 1 pvid untagged dev source",
        ],
    );
    between(
        "a VLAN of the bridge",
        12,
        ["del vid 10 dev brin self", "add vid 10 dev brin self"],
    );
    between(
        "a VLAN of a port out",
        8,
        ["del vid 10 dev sink", "add vid 10 dev sink"],
    );
    between(
        "tags by a port out",
        8,
        ["add vid 10 untagged dev sink", "add vid 10 dev sink"],
    );
    between(
        "the state of a VLAN of a port in",
        12,
        [
            "set vid 10 dev source state blocking",
            "set vid 10 dev source state forwarding",
        ],
    );
    between(
        "the state of a VLAN of a port out",
        8,
        [
            "set vid 10 dev sink state blocking",
            "set vid 10 dev sink state forwarding",
        ],
    );
    let change = |on: bool| {
        let state = if on { "down" } else { "up" };
        world.ip(&format!("link set brin.10 {state}"));
    };
    changes_of(
        "a VLAN upon a bridge, up or not",
        (&world, &flows),
        Some(12),
        false,
        &change,
    );
    let change = |on: bool| {
        let value = u8::from(!on);
        world.ip(&format!("link set brin type bridge vlan_filtering {value}"));
    };
    changes_of("filtering", (&world, &flows), Some(0), false, &change);
}

#[test]
fn macvlans_come_and_go() {
    let name = "macvlans_come_and_go";
    if !root(name) {
        return;
    }
    let mut world = World::new("chgmac", 3);
    let make = |world: &World| world.macvlan("source", "mac0", "private", HOST, "router");
    if !make(&world) {
        eprintln!("skipped: {name} needs macvlans, which this kernel does not have");
        return;
    }
    for route in [
        "route add 10.9.7.0/24 via 10.2.1.2",
        "route add 172.16.0.0/16 dev source",
        "route add 172.17.0.0/16 via 10.2.3.2",
        "-6 route add fd09:7::/64 via 2001:db8:2:1::2",
    ] {
        world.ip(route);
    }
    world.send_to([HOST, world.frame_macs()[1]]);
    let world = &world;
    let flows = &flows()[..];
    let change = |on: bool| match on {
        true => drop(world.ip("link del mac0")),
        false => assert!(make(world)),
    };
    changes_of("a macvlan in", (world, flows), None, false, &change);
    let change = |on: bool| {
        let state = if on { "down" } else { "up" };
        world.ip(&format!("link set mac0 {state}"));
    };
    changes_of(
        "a macvlan in, up or not",
        (world, flows),
        None,
        false,
        &change,
    );
    let change = |on: bool| {
        let mac = if on {
            "02:97:00:00:00:09"
        } else {
            "02:97:00:00:00:07"
        };
        world.ip(&format!("link set mac0 address {mac}"));
    };
    changes_of(
        "a macvlan's MAC address",
        (world, flows),
        None,
        false,
        &change,
    );
}

/// MAC address of the VXLAN.
const VXLAN_MAC: [u8; 6] = [2, 0x97, 0, 0, 0, 1];

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// A tunnel t0 of the router's.
#[derive(Clone, Copy)]
struct Tunnel {
    kind: Kind,
    words: &'static str,
}

const GRE: Tunnel = Tunnel {
    kind: Kind::Gre(Some(7)),
    words: "gre key 7 ttl 64",
};
const VXLAN: Tunnel = Tunnel {
    kind: Kind::Vxlan(5),
    words: "vxlan id 5 ttl 64 nolearning",
};

impl Tunnel {
    fn is_vxlan(self) -> bool {
        matches!(self.kind, Kind::Vxlan(_))
    }

    /// Its ends, as `ip link` is told them.
    fn ends(self, far: u8) -> String {
        match self.is_vxlan() {
            true => format!(
                "local {LOCAL} dstport {VXLAN_PORT} srcport {} {}",
                SPORTS.0, SPORTS.1
            ),
            false => format!("local {LOCAL} remote {}", remote(far)),
        }
    }

    /// Makes it, with network 101 behind it; says whether the kernel has such.
    fn make(self, world: &World) -> bool {
        let words = format!("{} {}", self.words, self.ends(1));
        if !tunnel(world, "t0", 1450, &words) {
            return false;
        }
        if self.is_vxlan() {
            world.ip(&format!("link set t0 address {}", text(VXLAN_MAC)));
            self.leads_to(world, 1);
        }
        self.network(world);
        true
    }

    /// The network; what goes there else goes by `sink-3`.
    fn network(self, world: &World) {
        match self.is_vxlan() {
            true => world.networks(&[("t0", 101)], ""),
            false => world.batch(&[
                "addr replace 10.3.101.1/24 dev t0".to_owned(),
                "addr replace 2001:db8:3:65::1/64 dev t0 nodad".to_owned(),
                "route replace 172.20.101.0/24 dev t0".to_owned(),
                "route replace 2001:db8:4:65::/64 dev t0".to_owned(),
            ]),
        }
    }

    /// Has it lead to another end.
    fn leads_to(self, world: &World, far: u8) {
        match self.is_vxlan() {
            true => {
                let mac = text(gateway_mac(101));
                let dst: Ipv4Addr = remote(far);
                world.bridges(&[format!("fdb replace {mac} dev t0 dst {dst} self")]);
            }
            false => {
                let ends = self.ends(far);
                world.ip(&format!("link set t0 type {} {ends}", self.words));
            }
        }
    }
}

/// A router with a tunnel, by which the flows of one of two sources come in, and some of the other's go out.
fn tunnels(name: &str, lab: &str, of: Tunnel, test: impl FnOnce(&World, &[Flow])) {
    if !root(name) {
        return;
    }
    let world = World::with_mtu(lab, 3, 1600);
    underlay(&world);
    world.see_tags();
    world.see_inside();
    world.plain_settings();
    if !of.make(&world) {
        return eprintln!("skipped: {name} needs tunnels, which this kernel does not have");
    }
    world.networks(&[("sink-2", 102), ("sink-3", 103), ("sink-3", 104)], "");
    world.batch(&[
        "route add 172.20.101.0/24 via 10.2.3.2 dev sink-3 metric 5000".to_owned(),
        "route add 2001:db8:4:65::/64 via 2001:db8:2:3::2 dev sink-3 metric 5000".to_owned(),
    ]);
    let outer = Outer::new(of.kind, remote(1));
    let to = if of.is_vxlan() { VXLAN_MAC } else { [0; 6] };
    for source in ["10.1.1.8", "fd01:1::8"] {
        let source: IpAddr = source.parse().unwrap();
        world.dress_in(source, &outer, to);
    }
    // What comes in by it does not go out by it: while it is made, it takes packets already.
    let flows = [flows_of(7, [101, 102, 103]), flows_of(8, [102, 103, 104])].concat();
    test(&world, &flows);
}

/// `moved` is how many flows are concerned when its far end is another: those that go out by it, and of a tunnel that has only one those
/// that come in.
fn a_tunnel_comes_and_goes(
    what: &str,
    of: Tunnel,
    moved: usize,
    (world, flows): (&World, &[Flow]),
) {
    let change = |on: bool| match on {
        true => drop(world.ip("link del t0")),
        false => assert!(of.make(world)),
    };
    let about = format!("{what}, there or not");
    changes_of(&about, (world, flows), Some(16), true, &change);
    let change = |on: bool| {
        world.ip(&format!("link set t0 {}", if on { "down" } else { "up" }));
        if !on {
            of.network(world);
        }
    };
    let about = format!("{what}, up or not");
    changes_of(&about, (world, flows), Some(16), true, &change);
    let change = |on: bool| of.leads_to(world, if on { 2 } else { 1 });
    let about = format!("the far end of {what}");
    changes_of(&about, (world, flows), Some(moved), false, &change);
}

#[test]
fn vxlans_come_and_go() {
    tunnels("vxlans_come_and_go", "chgvx", VXLAN, |world, flows| {
        a_tunnel_comes_and_goes("a VXLAN", VXLAN, 4, (world, flows));
    });
}

#[test]
fn gre_tunnels_come_and_go() {
    tunnels("gre_tunnels_come_and_go", "chggre", GRE, |world, flows| {
        a_tunnel_comes_and_goes("a GRE tunnel", GRE, 16, (world, flows));
    });
}
