//! Frames that are decided about together, beside the same frames one after the other.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use proptest::prelude::*;
use raddle_forward::{Engine, VECTOR, Verdict};
use raddle_image::{Capacity, Memory, Reason};
use raddle_packet::checksum;
use raddle_rib::event::{
    DeviceSettings, Event, Link, Neighbour, Route, RouteKind, RouteNexthop, RouteOp, RouteTarget,
    Settings,
};
use raddle_rib::{AlgoRules, Ports, Rib};

const INGRESS: u32 = 1;
const OUT: [u32; 2] = [2, 3];
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// One network of each family for each of these, one that is a blackhole, and one without a route.
const ALGOS: [&str; 7] = [
    "l3",
    "l4",
    "l4,icmp-follows-flow",
    "inner",
    "custom",
    "round-robin",
    "flowlet,gap=4s",
];
const BLACKHOLE: u8 = ALGOS.len() as u8;
const NETS: u8 = BLACKHOLE + 2;

fn address(v6: bool, net: u8, host: u8) -> IpAddr {
    match v6 {
        true => Ipv6Addr::new(0xfd00, net.into(), 0, 0, 0, 0, 0, host.into()).into(),
        false => Ipv4Addr::new(10, net, 0, host).into(),
    }
}

fn net(v6: bool, net: u8) -> IpNet {
    let len = if v6 { 32 } else { 16 };
    IpNet::new(address(v6, net, 0), len).unwrap()
}

/// A router with these networks.
fn memory() -> Arc<Memory> {
    let capacity = Capacity {
        nodes4: 1 << 16,
        leaves4: 1 << 17,
        words6: 1 << 17,
        groups: 256,
        members: 4096,
        adjacencies: 64,
        segments: 64,
        templates: 64,
    };
    let mut rib = Rib::new(Arc::new(Memory::heap(&capacity)), &capacity, || ());
    rib.set_ports(Ports {
        enabled: [INGRESS].into(),
        out: OUT.into(),
    });
    let nets = || {
        [false, true]
            .into_iter()
            .flat_map(|v6| (0..NETS).map(move |n| (v6, n)))
    };
    let rules = nets().filter_map(|(v6, n)| {
        let algo = ALGOS.get(usize::from(n))?;
        Some((net(v6, n), algo.parse().unwrap()))
    });
    rib.set_algos(AlgoRules {
        prefixes: rules.collect(),
        ..AlgoRules::default()
    });
    rib.apply(Event::Settings(Settings {
        hash_seed: 12345,
        hash_fields4: 0x37,
        hash_fields6: 0x37,
        ..Settings::default()
    }));
    for index in [INGRESS, OUT[0], OUT[1]] {
        rib.apply(Event::Link(Link::ethernet(
            index,
            format!("l{index}"),
            [2, 0, 0, 0, 0, index as u8],
        )));
        let forwarding = DeviceSettings {
            forwarding4: true,
            forwarding6: true,
            ..DeviceSettings::default()
        };
        rib.apply(Event::Device(index, forwarding));
    }
    for (v6, index) in [
        (false, OUT[0]),
        (false, OUT[1]),
        (true, OUT[0]),
        (true, OUT[1]),
    ] {
        rib.apply(Event::Neighbour(Neighbour {
            index,
            dst: address(v6, 200, index as u8),
            mac: Some([4, 0, 0, 0, 0, index as u8]),
            state: 2,
            flags: 0,
            protocol: 0,
        }));
    }
    for (v6, n) in nets().filter(|(_, n)| *n <= BLACKHOLE) {
        rib.apply(Event::Route(route(v6, n), RouteOp::Add));
    }
    rib.commit();
    Arc::clone(rib.memory())
}

fn route(v6: bool, n: u8) -> Route {
    let hop = |index: u32| RouteNexthop {
        gateway: Some(address(v6, 200, index as u8)),
        index,
        weight: index as u16,
        ..RouteNexthop::default()
    };
    let (kind, target) = match n {
        BLACKHOLE => (RouteKind::Blackhole, RouteTarget::Multipath(Vec::new())),
        _ => {
            let hops = OUT.iter().map(|index| hop(*index)).collect();
            (RouteKind::Unicast, RouteTarget::Multipath(hops))
        }
    };
    Route {
        dst: net(v6, n),
        protocol: 186,
        kind,
        metric: 1024,
        target,
        ..Route::default()
    }
}

/// Mostly sound packets to these networks; some are to be routed by nobody, some end early.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let protocol = prop::sample::select(vec![6u8, 17, 17, 1, 58, 4, 41, 44, 47]);
    let body = prop::collection::vec(any::<u8>(), 8..60);
    let rare = prop::sample::select((0..40u8).collect::<Vec<u8>>());
    (
        any::<bool>(),
        0..NETS,
        any::<(u8, u8)>(),
        protocol,
        body,
        rare,
    )
        .prop_map(|(v6, net, (source, host), protocol, body, rare)| {
            let (src, dst) = (address(v6, 100, source), address(v6, net, host));
            let mut frame = MAC.to_vec();
            frame.extend([6, 0, 0, 0, 0, 9]);
            let ttl = if rare == 0 { 1 } else { 64 };
            match (src, dst) {
                (IpAddr::V4(src), IpAddr::V4(dst)) => {
                    let fragment = if rare == 1 { 0x20 } else { 0 };
                    let mut packet = vec![0x45, 0, 0, 20 + body.len() as u8, 0, 0, fragment, 0];
                    packet.extend([ttl, protocol, 0, 0]);
                    packet.extend(src.octets());
                    packet.extend(dst.octets());
                    let sum = checksum::checksum(&packet);
                    packet[10..12].copy_from_slice(&sum.to_be_bytes());
                    frame.extend([8, 0]);
                    frame.extend(packet);
                }
                (IpAddr::V6(src), IpAddr::V6(dst)) => {
                    let label = if source & 1 == 0 { host } else { 0 };
                    frame.extend([
                        0x86,
                        0xdd,
                        0x60,
                        0,
                        0,
                        label,
                        0,
                        body.len() as u8,
                        protocol,
                        ttl,
                    ]);
                    frame.extend(src.octets());
                    frame.extend(dst.octets());
                }
                _ => unreachable!("both are of one family"),
            }
            frame.extend(body);
            match rare {
                2 => frame[0] ^= 0x10,
                3 => frame[13] = 6,
                4 => frame.truncate(usize::from(host)),
                5 => frame.resize(frame.len() + 9, 0),
                6 => frame[24] ^= 1,
                _ => {}
            }
            frame
        })
}

proptest! {
    #[test]
    fn as_one_after_the_other(
        rounds in prop::collection::vec(prop::collection::vec(frame(), 0..=2 * VECTOR + 9), 1..4),
    ) {
        let memory = memory();
        let mut alone = Engine::new(Arc::clone(&memory));
        let mut together = Engine::new(memory);
        for (now, frames) in rounds.into_iter().enumerate() {
            let now = now as u64 * 3_000_000_000;
            let (mut ours, mut theirs) = (frames.clone(), frames.clone());
            let mut verdicts = vec![Verdict::Kernel(Reason::None); frames.len()];
            together.forward_all(&mut theirs, INGRESS, now, &mut verdicts);
            for (at, frame) in ours.iter_mut().enumerate() {
                let verdict = alone.forward(frame, INGRESS, now);
                prop_assert_eq!(verdict, verdicts[at], "frame {}: {:02x?}", at, &frames[at]);
                prop_assert_eq!(&*frame, &theirs[at], "frame {}: {:02x?}", at, &frames[at]);
            }
            prop_assert_eq!(alone.counters(), together.counters());
        }
    }
}

/// The frames above are worth something: they reach both links by each way of choosing.
#[test]
fn every_way_of_choosing_is_reached() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut engine = Engine::new(memory());
    let mut runner = TestRunner::deterministic();
    let frames = prop::collection::vec(frame(), 4000);
    let mut frames = frames.new_tree(&mut runner).unwrap().current();
    let nets: Vec<Option<(u8, u8)>> = frames
        .iter()
        .map(|frame| match frame.get(12)? {
            8 => Some((4, *frame.get(31)?)),
            _ => Some((6, *frame.get(41)?)),
        })
        .collect();
    let mut verdicts = vec![Verdict::Kernel(Reason::None); frames.len()];
    engine.forward_all(&mut frames, INGRESS, 0, &mut verdicts);
    let mut reached = std::collections::BTreeSet::new();
    for (verdict, net) in verdicts.iter().zip(nets) {
        if let (Verdict::Forward { index, .. }, Some(net)) = (verdict, net) {
            reached.insert((net, *index));
        }
    }
    assert_eq!(reached.len(), 2 * ALGOS.len() * OUT.len(), "{reached:?}");
    assert!(verdicts.contains(&Verdict::Drop(Reason::Blackhole)));
}

#[test]
fn what_has_no_partner_is_left_alone() {
    let mut engine = Engine::new(memory());
    let mut frames = vec![vec![0; 60]; 3];
    let mut verdicts = [Verdict::Drop(Reason::None); 2];
    engine.forward_all(&mut frames, INGRESS, 0, &mut verdicts);
    assert_eq!(verdicts, [Verdict::Kernel(Reason::NotIp); 2]);
    let mut verdicts = [Verdict::Drop(Reason::None); 5];
    engine.forward_all(&mut frames, 99, 0, &mut verdicts);
    assert_eq!(verdicts[..3], [Verdict::Kernel(Reason::NotEnabled); 3]);
    assert_eq!(verdicts[3..], [Verdict::Drop(Reason::None); 2]);
}
