//! Bonds against the running kernel: the same frames are forwarded by it, then by raddle, in by a bond and out by one. Each has to
//! come out of the same link, or of none.
//!
//! The test machine's kernel may have no bonds; `make test-kernels` runs this on Debian's.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::time::Duration;

use raddle_e2e::frame::{self, Flow, ip_end};
use raddle_e2e::tags::{ad, q, tags};
use raddle_e2e::{
    Arrival, Crafted, Daemon, PATIENT, Random, Volume, World, gateway, links, root, volume, within,
};
use raddle_select::{BondPolicy, bond_hash, bond_member};

/// A generous limit: machines are busy.
const LIMIT: Duration = Duration::from_secs(60);

/// Modes of the bond that packets leave by.
const MODES: [&str; 9] = [
    "balance-xor xmit_hash_policy layer2",
    "balance-xor xmit_hash_policy layer2+3",
    "balance-xor xmit_hash_policy layer3+4",
    "balance-xor xmit_hash_policy encap2+3",
    "balance-xor xmit_hash_policy encap3+4",
    "802.3ad lacp_rate fast xmit_hash_policy layer2+3",
    "802.3ad lacp_rate fast xmit_hash_policy layer3+4",
    "active-backup",
    ROUND_ROBIN,
];

/// By which it does not go by the packet which member that is.
const ROUND_ROBIN: &str = "balance-rr";

/// Members of the bond that packets leave by, as they joined.
const MEMBERS: [&str; 2] = ["sink", "sink-2"];

/// Frames that left by another member than they are predicted to, given how they came out.
fn mispredicted(mode: &str, arrived: &[Vec<Arrival>]) -> Vec<String> {
    let Some((_, policy)) = mode.split_once("xmit_hash_policy ") else {
        return Vec::new();
    };
    let named = |n| BondPolicy::from_number(n).filter(|known| known.name() == policy);
    let policy = (0..=u8::MAX).find_map(named).unwrap();
    let by_bond = arrived
        .iter()
        .flatten()
        .filter(|a| MEMBERS.contains(&&*a.link));
    let wrong = by_bond.filter_map(|arrival| {
        let member =
            bond_hash(policy, &arrival.frame, 0).and_then(|hash| bond_member(hash, MEMBERS.len()));
        let predicted = member.map(|member| MEMBERS[member]);
        (predicted != Some(&*arrival.link)).then(|| {
            format!(
                "{mode}: by {}, not {predicted:?}: {:02x?}",
                arrival.link, arrival.frame
            )
        })
    });
    wrong.collect()
}

/// A router with bond in0 of `source`, and out0 of `sink` and `sink-2`, beside `sink-3`; none where the kernel has no bonds.
fn world(name: &str, mode: &str) -> Option<World> {
    let world = World::new(name, 3);
    let lacp = mode.starts_with("802.3ad");
    if lacp {
        // It takes two.
        let made = "ip link add far0 type bond miimon 50 mode 802.3ad lacp_rate fast";
        let words: Vec<&str> = made.split(' ').collect();
        if !world.lab().output("sink", &words).unwrap().status.success() {
            return skipped(name);
        }
        for member in ["router", "router-2"] {
            world.node("sink", &format!("ip link set {member} down"));
            world.node("sink", &format!("ip link set {member} master far0"));
        }
        world.node("sink", "ip link set far0 up");
    }
    if !world.bond("out0", mode, &MEMBERS) {
        return skipped(name);
    }
    assert!(world.bond("in0", "active-backup", &["source"]));
    for (route, via) in [("10.9.0.0/16", 0), ("2001:db8:9::/48", 1)] {
        let gateway = |n| {
            let (four, six) = world.gateway(n);
            [four.to_string(), six.to_string()][via].clone()
        };
        let paths = format!(
            "nexthop via {} dev out0 nexthop via {} dev sink-3",
            gateway(1),
            gateway(3)
        );
        world.ip(&format!("route replace {route} {paths}"));
    }
    world.neighbours(3, "permanent");
    let all: &[&str] = match mode {
        "active-backup" => &["sink"],
        _ => &["sink", "sink-2"],
    };
    world.bond_is_by("out0", all);
    world.bond_is_by("in0", &["source"]);
    Some(world)
}

fn skipped(name: &str) -> Option<World> {
    eprintln!("skipped: {name} needs bonds, which this kernel does not have");
    None
}

#[test]
fn bonds_are_gone_in_and_out_by_as_by_the_kernel() {
    if !root("bonds_are_gone_in_and_out_by_as_by_the_kernel") {
        return;
    }
    let mut volume = Volume::of("bonds", MODES.len());
    let mut wrong = Vec::new();
    for mode in MODES {
        let Some(world) = world("bond", mode) else {
            return;
        };
        world.policy(1);
        let (flows, frames) = volume.frames(&world, &world.flows(200));
        let mut kernel = world.transmit(&frames);
        let through = kernel
            .iter()
            .filter(|arrivals| !arrivals.is_empty())
            .count() as u64;
        let daemon = Daemon::start(&world, &PATIENT);
        let mut attached = world.attached();
        attached.sort();
        // Neither of its members.
        assert_eq!(attached, ["in0", "out0", "sink-3"], "by itself");
        let mut ours = world.transmit_again(&frames, &kernel);
        let forwarded = daemon.forwarded();
        eprintln!("{mode}: the kernel forwards {through}, raddle {forwarded}");
        wrong.extend(mispredicted(mode, &kernel));
        wrong.extend(mispredicted(mode, &ours));
        if mode == ROUND_ROBIN {
            for arrival in kernel.iter_mut().chain(&mut ours).flatten() {
                if arrival.link == "sink-2" {
                    arrival.link = "sink".to_owned();
                }
            }
        }
        volume.compare(mode, &flows, [&kernel, &ours], forwarded);
        assert_eq!(forwarded, through, "{}", daemon.counters()["reasons"]);
        daemon.terminate();
        assert_eq!(world.late(), 0);
    }
    volume.right();
    let sample: Vec<&String> = wrong.iter().take(10).collect();
    assert!(sample.is_empty(), "{} frames: {sample:#?}", wrong.len());
}

/// Links of a bond of four.
const FOUR: [&str; 4] = ["sink-3", "sink", "sink-4", "sink-2"];

/// Packets of a flow of 10.1.1.2 to 10.9.0.7.
fn to_nfs(world: &World, sports: impl IntoIterator<Item = u16>) -> Vec<Crafted> {
    let flow = |sport| Flow {
        src: [10, 1, 1, 2].into(),
        dst: [10, 9, 0, 7].into(),
        proto: 17,
        sport,
        dport: 2049,
    };
    world.frames(&sports.into_iter().map(flow).collect::<Vec<_>>())
}

/// Four planned ports leave by the four members that the plan says, and so do flows whose loads `spread` predicts.
#[test]
fn planned_ports_leave_by_all_members() {
    if !root("planned_ports_leave_by_all_members") {
        return;
    }
    let world = World::new("bondplan", 4);
    if !world.bond("out0", "balance-xor xmit_hash_policy layer3+4", &FOUR) {
        return skipped("bondplan").map_or((), drop);
    }
    let (gateway, _) = world.gateway(3);
    world.ip(&format!("route replace 10.9.0.0/16 via {gateway} dev out0"));
    world.bond_is_by("out0", &["sink", "sink-2", "sink-3", "sink-4"]);
    let words = "ports plan 10.9.0.7 -j -n 4 --proto udp --dport 2049 --from 10.1.1.2 --iif source";
    let plan = world.raddle_json(&words.split(' ').collect::<Vec<_>>());
    assert_eq!(
        plan["bonds"][0]["members"],
        serde_json::json!(FOUR),
        "{plan}"
    );
    let connections = plan["connections"].as_array().unwrap();
    let ports = connections
        .iter()
        .map(|c| c["value"].as_u64().unwrap() as u16);
    let arrived = world.transmit(&to_nfs(&world, ports));
    let mut used = BTreeSet::new();
    for (connection, arrivals) in connections.iter().zip(&arrived) {
        let path = &plan["paths"][connection["path"].as_u64().unwrap() as usize];
        let [arrival] = arrivals.as_slice() else {
            panic!("{connection}: {} frames", arrivals.len());
        };
        assert_eq!(path["member"], *arrival.link, "{connection}");
        used.insert(arrival.link.clone());
    }
    assert_eq!(used.len(), 4, "{plan}");

    let sports = 10_000..12_400;
    let lines = sports
        .clone()
        .map(|sport| format!("10.1.1.2 10.9.0.7 udp {sport} 2049\n"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flows");
    std::fs::write(&file, lines.collect::<String>()).unwrap();
    let file = file.to_str().unwrap();
    let spread = world.raddle_json(&["spread", "-j", "--flows", file, "--iif", "source"]);
    let arrived = world.transmit(&to_nfs(&world, sports));
    let mut counted: BTreeMap<String, u64> = BTreeMap::new();
    for arrival in arrived.iter().flatten() {
        *counted.entry(arrival.link.clone()).or_default() += 1;
    }
    let loads = spread["links"]["loads"].as_array().unwrap().iter();
    let predicted = loads.map(|link| {
        let member = link["member"].as_str().unwrap();
        (member.to_owned(), link["load"].as_u64().unwrap())
    });
    assert_eq!(predicted.collect::<BTreeMap<_, _>>(), counted, "{spread}");
    assert_eq!(counted.values().sum::<u64>(), 2400);
}

/// What comes in by a member that the bond does not take anything from is dropped, as by the kernel; and members come and go.
#[test]
fn members_that_are_not_active_forward_nothing() {
    if !root("members_that_are_not_active_forward_nothing") {
        return;
    }
    let world = World::new("bondpart", 3);
    if !world.bond("in0", "active-backup", &["source", "sink-3"]) {
        return skipped("bondpart").map_or((), drop);
    }
    world.ip("link set in0 type bond active_slave source");
    world.ip("route replace 10.9.0.0/16 via 10.2.1.2 dev sink");
    world.ip("-6 route replace 2001:db8:9::/48 via 2001:db8:2:1::2 dev sink");
    world.bond_is_by("in0", &["source"]);
    let frames: Vec<Crafted> = world.frames(&world.flows(64));
    let daemon = Daemon::start(&world, &PATIENT);
    let came = |arrivals: &[Vec<Arrival>]| arrivals.iter().filter(|a| !links(a).is_empty()).count();
    let forwards = |what: &str, expected: usize| {
        within(LIMIT, || {
            let before = daemon.forwarded();
            let arrived = came(&world.transmit(&frames));
            match (arrived, daemon.forwarded() - before) {
                (all, by_raddle) if all == expected && by_raddle == expected as u64 => Ok(()),
                (all, by_raddle) => Err(format!("{what}: {all} come, {by_raddle} by raddle")),
            }
        });
    };
    forwards("the active member", 64);
    world.ip("link set in0 type bond active_slave sink-3");
    world.bond_is_by("in0", &["sink-3"]);
    forwards("a backup", 0);
    world.ip("link set in0 type bond active_slave source");
    forwards("active again", 64);
    world.ip("link set sink-3 nomaster");
    forwards("alone", 64);
    world.ip("link set source nomaster");
    world.ip("link set source up");
    // Now it forwards by itself, and raddle from it.
    forwards("a link of its own", 64);
    daemon.terminate();
}

/// How a bond chooses among members for VLANs upon it. The last is left to the kernel.
const TAGGED_MODES: [&str; 9] = [
    "802.3ad lacp_rate fast xmit_hash_policy layer3+4",
    "balance-xor xmit_hash_policy layer3+4",
    "balance-xor xmit_hash_policy layer2+3",
    "balance-xor xmit_hash_policy layer2",
    "balance-xor xmit_hash_policy encap3+4",
    "802.3ad lacp_rate fast xmit_hash_policy layer2+3",
    "802.3ad lacp_rate fast xmit_hash_policy layer2",
    "802.3ad lacp_rate fast xmit_hash_policy encap3+4",
    LEFT,
];
const LEFT: &str = "balance-xor xmit_hash_policy encap2+3";

/// Members as they joined, which is not in the order of their indices; three, so that each bit of a hash counts.
const THREE: [&str; 3] = ["sink-2", "sink-4", "sink"];

/// A router whose bond out0 of [`THREE`] has VLANs upon it: out5, out7 of 802.1ad, and out79 within that; `sink-3` is beside it. 10.9.0.0/16 and
/// 2001:db8:9::/48 are spread between all of these. None where the kernel has no bonds.
fn tagged_world(name: &str, mode: &str) -> Option<World> {
    let world = World::with_mtu(name, 4, 1600);
    if mode.starts_with("802.3ad") {
        let made = "ip link add far0 type bond miimon 50 mode 802.3ad lacp_rate fast";
        let words: Vec<&str> = made.split(' ').collect();
        if !world.lab().output("sink", &words).unwrap().status.success() {
            return skipped(name);
        }
        for member in ["router-2", "router-4", "router"] {
            world.node("sink", &format!("ip link set {member} down"));
            world.node("sink", &format!("ip link set {member} master far0"));
        }
        world.node("sink", "ip link set far0 up");
    }
    if !world.bond("out0", mode, &THREE) {
        return skipped(name);
    }
    assert!(world.vlan("out0", "out5", q(5), ""));
    assert!(world.vlan("out0", "out7", ad(7), ""));
    assert!(world.vlan("out7", "out79", q(9), ""));
    world.networks(&[("out5", 105), ("out7", 107), ("out79", 179)], "");
    for (route, family) in [("10.9.0.0/16", 0), ("2001:db8:9::/48", 1)] {
        let nets = [("out5", 105), ("out7", 107), ("out79", 179)].into_iter();
        let gateways = nets.map(|(dev, net)| (dev, gateway(net)));
        let gateways = gateways.chain([("sink-3", world.gateway(3))]);
        let paths = gateways.map(|(dev, (four, six))| {
            let via = [four.to_string(), six.to_string()][family].clone();
            format!("nexthop via {via} dev {dev}")
        });
        let paths: Vec<String> = paths.collect();
        world.ip(&format!("route replace {route} {}", paths.join(" ")));
    }
    world.neighbours(3, "permanent");
    world.bond_is_by("out0", &["sink", "sink-2", "sink-4"]);
    Some(world)
}

/// Frames with one tag that left by another of these members, in their order, than the kernel would choose for the packet; and how many
/// left as predicted.
fn mispredicted_tagged(
    mode: &str,
    members: &[&str],
    arrived: &[Vec<Arrival>],
) -> (Vec<String>, usize) {
    let (_, policy) = mode.split_once("xmit_hash_policy ").unwrap();
    let mut policies = BondPolicy::ALL.into_iter();
    let policy = policies.find(|known| known.name() == policy).unwrap();
    let one = |a: &&Arrival| THREE.contains(&&*a.link) && tags(&a.frame).len() == 1;
    let (mut wrong, mut right) = (Vec::new(), 0);
    for arrival in arrived.iter().flatten().filter(one) {
        let packet = [
            &arrival.frame[..12],
            &arrival.frame[16..ip_end(&arrival.frame)],
        ]
        .concat();
        let member =
            bond_hash(policy, &packet, 0).and_then(|hash| bond_member(hash, members.len()));
        let predicted = member.map(|member| members[member]);
        match predicted == Some(&*arrival.link) {
            true => right += 1,
            false => wrong.push(format!(
                "{mode}: by {}, not {predicted:?}: {:02x?}",
                arrival.link, arrival.frame
            )),
        }
    }
    (wrong, right)
}

/// Packets of all kinds that leave by VLANs upon a bond: each by the member that it leaves by without raddle.
#[test]
fn what_leaves_by_vlans_upon_a_bond() {
    if !root("what_leaves_by_vlans_upon_a_bond") {
        return;
    }
    let modes = match volume::frames(0) {
        0 => &TAGGED_MODES[..4],
        _ => &TAGGED_MODES[..],
    };
    let mut compared = Volume::of("out by VLANs upon bonds", modes.len());
    let each = volume::frames(0).div_ceil(modes.len()).max(600);
    let mut rng = Random::new(volume::seed());
    let (mut wrong, mut short) = (Vec::new(), Vec::new());
    for mode in modes {
        let Some(world) = tagged_world("bondvlan", mode) else {
            return;
        };
        world.policy(1);
        let to4 = (2..200).map(|n| [10, 9, (n % 7) as u8, n as u8].into());
        let to6 = (2..200).map(|n| Ipv6Addr::new(0x2001, 0xdb8, 9, n % 5, 0, 0, 0, n));
        let addresses = world.addresses(to4.collect(), to6.collect());
        let mut frames = frame::random(&mut rng, &addresses, each / 2);
        let plain = world.flows(200);
        let plain = (0..each / 2).map(|n| Flow {
            sport: rng.bits() as u16,
            dport: rng.bits() as u16,
            proto: if n % 3 == 0 { 6 } else { 17 },
            ..plain[n % plain.len()]
        });
        let plain: Vec<Flow> = plain.collect();
        frames.extend(plain.iter().map(|flow| Crafted {
            bytes: frame::drawn(&mut rng, world.frame_macs(), flow),
            kind: "plain",
            flow: None,
        }));
        let kernel = world.transmit(&frames);
        let daemon = Daemon::start(&world, &PATIENT);
        let ours = world.transmit_again(&frames, &kernel);
        let forwarded = daemon.forwarded();
        let by_vlan =
            |arrivals: &&Vec<Arrival>| arrivals.iter().any(|a| !tags(&a.frame).is_empty());
        let (through, tagged) = (
            kernel
                .iter()
                .filter(|arrivals| !arrivals.is_empty())
                .count(),
            kernel.iter().filter(by_vlan).count(),
        );
        let left = daemon.counters()["reasons"]["out-link"].clone();
        eprintln!(
            "{mode}: {} frames; the kernel forwards {through}, {tagged} of them by VLANs, raddle {forwarded}; out-link {left}",
            frames.len()
        );
        compared.compare_frames(mode, &frames, [&kernel, &ours], forwarded);
        for arrived in [&kernel, &ours] {
            let (mut more, right) = mispredicted_tagged(mode, &THREE, arrived);
            // Packets that bring a hash do not go by this one.
            if !mode.ends_with("encap3+4") {
                wrong.append(&mut more);
            }
            assert!(right > 0, "{mode}: none has a tag");
        }
        // Some of the random ones are the kernel's for what they are.
        if *mode != LEFT && (forwarded as usize) < through / 2 {
            short.push(format!(
                "{mode}: {forwarded} of {through}: {}",
                daemon.counters()["reasons"]
            ));
        }
        daemon.terminate();
    }
    compared.right();
    let sample: Vec<&String> = wrong.iter().take(10).collect();
    assert!(sample.is_empty(), "{} frames: {sample:#?}", wrong.len());
    assert!(short.is_empty(), "{short:#?}");
}

/// Members fail and return, leave and join again: all packets of VLANs go on by those that the kernel would choose, and by raddle.
#[test]
fn members_of_a_bond_beneath_vlans_come_and_go() {
    if !root("members_of_a_bond_beneath_vlans_come_and_go") {
        return;
    }
    for mode in &TAGGED_MODES[..2] {
        let Some(world) = tagged_world("bondvlgo", mode) else {
            return;
        };
        world.ip("route replace 10.9.0.0/16 via 10.3.105.2 dev out5");
        world.ip("-6 route replace 2001:db8:9::/48 via 2001:db8:3:6b::2 dev out7");
        let frames = world.frames(&world.flows(200));
        // A member that has left is no link of its own to it, lest its program keeps it from joining again.
        let ours = ["--link", "source", "--link", "out5", "--link", "out7"];
        let arguments: Vec<&str> = PATIENT.into_iter().chain(ours).collect();
        let daemon = Daemon::start(&world, &arguments);
        let follows = |what: &str, members: &[&str]| {
            within(LIMIT, || {
                let before = daemon.forwarded();
                let arrived = world.transmit(&frames);
                let forwarded = daemon.forwarded() - before;
                let (wrong, right) = mispredicted_tagged(mode, members, &arrived);
                match (wrong.is_empty(), right, forwarded) {
                    (true, 200, 200) => Ok(()),
                    _ => Err(format!(
                        "{mode}, {what}: {right} by {members:?}, {forwarded} by raddle, {:?}; {:?}",
                        wrong.first(),
                        daemon.counters()["reasons"]
                    )),
                }
            });
        };
        follows("all", &THREE);
        world.ip("link set sink-4 down");
        world.bond_is_by("out0", &["sink", "sink-2"]);
        follows("one is down", &["sink-2", "sink"]);
        world.ip("link set sink-4 up");
        world.bond_is_by("out0", &["sink", "sink-2", "sink-4"]);
        follows("up again", &THREE);
        // Without carrier.
        world.node("sink", "ip link set router-2 down");
        world.bond_is_by("out0", &["sink", "sink-4"]);
        follows("one without carrier", &["sink-4", "sink"]);
        world.node("sink", "ip link set router-2 up");
        world.bond_is_by("out0", &["sink", "sink-2", "sink-4"]);
        follows("with carrier again", &THREE);
        world.ip("link set sink-2 nomaster");
        world.bond_is_by("out0", &["sink", "sink-4"]);
        follows("one has left", &["sink-4", "sink"]);
        world.ip("link set sink-2 down");
        world.ip("link set sink-2 master out0");
        world.bond_is_by("out0", &["sink", "sink-2", "sink-4"]);
        follows("it joins as the last", &["sink-4", "sink", "sink-2"]);
        world.ip("link set out0 type bond xmit_hash_policy layer2+3");
        let other = mode.replace("layer3+4", "layer2+3");
        within(LIMIT, || {
            let arrived = world.transmit(&frames);
            let (wrong, right) =
                mispredicted_tagged(&other, &["sink-4", "sink", "sink-2"], &arrived);
            match (wrong.is_empty(), right) {
                (true, 200) => Ok(()),
                _ => Err(format!("{other}: {right}, {:?}", wrong.first())),
            }
        });
        daemon.terminate();
    }
}
