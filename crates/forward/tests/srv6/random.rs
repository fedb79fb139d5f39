//! Drawn segments and packets, valid and mutated, against the slow reference.

use std::collections::BTreeMap;

use proptest::prelude::*;
use raddle_forward::Verdict;
use raddle_image::{
    Group, LINK_TABLE, Reason, SEGMENT_COUNTERS, Segment, VlanEntry, flavours, segment_counter,
    segment_flags, segment_kind,
};

use crate::headends::template;
use crate::packets::{frame, ip4, ip6, set_checksum, srh, udp};
use crate::reference::{Leads, Outcome, World};
use crate::router::{OUT, Router, octets, v4};
use crate::together::compare;

/// Where packets go: SIDs, compressed SIDs, headends, plain routes, nowhere.
const PLACES: [&str; 14] = [
    "fc00:1::1",
    "fc00:2::1",
    "fcbb:0:1::",
    "fcbb:0:1:2::",
    "fcbb:0:1:2:1:0:0:3",
    "fcbb:0:1:1:1:1:1:2",
    "fcbb:0:2::",
    "fcbb:0:2:1:0:2::1",
    "2001:db8:2::2",
    "2001:db8:3::3",
    "2001:db8:4::4",
    "::2:1:1:2",
    "ff02::1",
    "::1",
];
const PLACES4: [&str; 4] = ["198.51.100.2", "203.0.113.3", "192.0.2.7", "127.0.0.1"];
/// Prefixes that lead to the drawn segments.
const SIDS: [&str; 6] = [
    "fc00:1::/32",
    "fc00:2::/32",
    "fcbb:0:1::/48",
    "fcbb:0:2::/48",
    "2001:db8:2::/48",
    "198.51.100.0/24",
];

fn place() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&PLACES[..])
}

/// A segment, its template in its place.
fn segment() -> impl Strategy<Value = (Segment, Vec<u8>)> {
    let kind = prop::sample::select(vec![
        segment_kind::END,
        segment_kind::END,
        segment_kind::END_X,
        segment_kind::END_T,
        segment_kind::END_DX2,
        segment_kind::END_DX2V,
        segment_kind::END_DX6,
        segment_kind::END_DX4,
        segment_kind::END_DT6,
        segment_kind::END_DT4,
        segment_kind::END_DT46,
        segment_kind::END_B6,
        segment_kind::END_B6_ENCAPS,
        segment_kind::INSERT,
        segment_kind::ENCAPS,
        segment_kind::ENCAPS_L2,
        segment_kind::KERNEL,
    ]);
    let flavour = prop::sample::select(vec![
        0,
        0,
        flavours::PSP,
        flavours::USP,
        flavours::USD,
        flavours::PSP | flavours::USP | flavours::USD,
        flavours::NEXT_CSID,
        flavours::NEXT_CSID | flavours::PSP,
        flavours::NEXT_CSID | flavours::USD,
        flavours::REPLACE_CSID,
        flavours::REPLACE_CSID | flavours::PSP,
        flavours::REPLACE_CSID | flavours::USP | flavours::USD,
    ]);
    let lengths = prop::sample::select(vec![(4, 2), (4, 2), (6, 4), (5, 3), (14, 2), (1, 1)]);
    let table = || prop::sample::select(vec![LINK_TABLE, LINK_TABLE, 0, 1]);
    let target = prop_oneof![
        Just([0; 16]),
        place().prop_map(octets),
        place4().prop_map(in_front)
    ];
    let list = prop::collection::vec(place(), 1..4);
    (
        (kind, flavour, lengths, any::<bool>(), any::<bool>()),
        (table(), table(), target, list, any::<bool>()),
    )
        .prop_map(
            |((kind, flavours, (block, csid), own, label), (table4, table6, target, list, has))| {
                let list: Vec<_> = list.iter().map(|place| octets(place)).collect();
                let first = list[list.len() - 1];
                let header = srh(0, list.len() as u8 - 1, &list, &[]);
                let inserts = matches!(kind, segment_kind::END_B6 | segment_kind::INSERT);
                let has_srh = has || inserts;
                let mut outer = template("::", 0, if has { &header } else { &[] });
                outer[24..40].copy_from_slice(&first);
                let entries = [(1, 1400, OUT + 1), (7, 30, OUT + 2), (9, 1400, 0)];
                let words = entries.map(|(vlan, mtu, out)| VlanEntry { vlan, mtu, out }.to_word());
                let template = match kind {
                    segment_kind::END_DX2V => words.map(u64::to_le_bytes).concat(),
                    _ if inserts => header,
                    _ => outer,
                };
                let flag = |set: bool, flag: u8| if set { flag } else { 0 };
                let segment = Segment {
                    kind,
                    reason: Reason::Encap as u8,
                    flavours,
                    flags: flag(own, segment_flags::NO_PUNT)
                        | flag(label, segment_flags::LABEL_FROM_INNER)
                        | flag(label && own, segment_flags::DIRECT_NH4)
                        | flag(has_srh, segment_flags::HAS_SRH),
                    block,
                    csid,
                    size: template.len() as u16,
                    out: match kind {
                        segment_kind::END_DX2V => entries.len() as u32,
                        _ => OUT + 2,
                    },
                    mtu: 60,
                    table4,
                    table6,
                    target,
                    ..Segment::default()
                };
                (segment, template)
            },
        )
}

fn place4() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&PLACES4[..])
}

fn in_front(address: &str) -> [u8; 16] {
    (u128::from(v4(address)) << 96).to_be_bytes()
}

/// Extension headers and what they lead to; the number of the first.
fn payload(depth: u32) -> BoxedStrategy<(u8, Vec<u8>)> {
    let plain = any::<u16>().prop_map(|sport| (17, udp(sport)));
    let ethernet = (any::<bool>(), 0u8..10, 0usize..80).prop_map(|(tagged, vlan, len)| {
        let kind = if tagged {
            vec![0x81, 0, 0xe0, vlan]
        } else {
            vec![8, vlan]
        };
        (143, [vec![3; 12], kind, vec![4; len]].concat())
    });
    let upper = if depth == 0 {
        prop_oneof![plain, Just((59, vec![])), ethernet].boxed()
    } else {
        let padding = || prop_oneof![3 => Just(0usize), 1 => 1usize..20];
        let six = (packet6(depth - 1), padding())
            .prop_map(|(packet, more)| (41, [packet, vec![0x77; more]].concat()));
        let four = (packet4(), padding())
            .prop_map(|(packet, more)| (4, [packet, vec![0x77; more]].concat()));
        prop_oneof![2 => plain, 3 => six, 3 => four, 1 => ethernet].boxed()
    };
    (prop::collection::vec(extension(), 0..4), upper)
        .prop_map(|(headers, (mut next, mut bytes))| {
            for (kind, header) in headers.into_iter().rev() {
                let mut header = header;
                header[0] = next;
                (next, bytes) = (kind, [header, bytes].concat());
            }
            (next, bytes)
        })
        .boxed()
}

fn extension() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let list = prop::collection::vec(place().prop_map(octets), 1..5);
    let tlvs = prop::sample::select(vec![
        vec![],
        vec![],
        vec![4, 6, 0, 0, 0, 0, 0, 0],
        vec![0, 1, 1, 9, 9, 9, 9, 9],
    ]);
    let header = (list, 0usize..8, tlvs).prop_map(|(list, left, tlvs)| {
        // Mostly as many as there are, now and then more.
        let left = if left < 6 {
            left % (list.len() + 1)
        } else {
            left - 1
        };
        (43, srh(0, left as u8, &list, &tlvs))
    });
    let other = prop::sample::select(vec![
        (60, vec![0, 0, 1, 4, 0, 0, 0, 0]),
        (60, vec![0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (43, vec![0, 0, 2, 0, 0, 0, 0, 0]),
        (43, vec![0, 0, 2, 1, 0, 0, 0, 0]),
        (44, vec![0, 0, 0, 1, 0, 0, 0, 1]),
        (44, vec![0, 0, 0, 9, 0, 0, 0, 1]),
        (51, vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (0, vec![0, 0, 1, 4, 0, 0, 0, 0]),
    ]);
    prop_oneof![4 => header, 1 => other]
}

fn packet6(depth: u32) -> BoxedStrategy<Vec<u8>> {
    let src = prop_oneof![15 => Just("2001:db8::1"), 1 => Just("fe80::1")];
    let lives = prop::sample::select(vec![50, 50, 50, 2, 1, 0]);
    (src, place(), payload(depth), lives)
        .prop_map(|(src, dst, (next, bytes), lives)| {
            let mut packet = ip6(src, dst, next, &bytes);
            packet[7] = lives;
            packet
        })
        .boxed()
}

fn packet4() -> impl Strategy<Value = Vec<u8>> {
    let lives = prop::sample::select(vec![50, 50, 50, 2, 1, 0]);
    (place4(), place4(), any::<u16>(), lives).prop_map(|(src, dst, sport, lives)| {
        let mut packet = ip4(src, dst, 17, &udp(sport));
        packet[8] = lives;
        set_checksum(&mut packet);
        packet
    })
}

/// A frame, some bytes of its packet changed, some of its end gone or something behind it.
fn drawn() -> impl Strategy<Value = Vec<u8>> {
    let packet = prop_oneof![4 => packet6(2), 1 => packet4().boxed()];
    let changes = prop_oneof![
        3 => Just(vec![]),
        2 => prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3),
        1 => prop::collection::vec((any::<prop::sample::Index>(), 0u8..3), 1..3),
    ];
    let ends = prop_oneof![5 => Just(0i32), 1 => -40..70];
    (packet, changes, ends, any::<bool>()).prop_map(|(mut packet, changes, end, fixes)| {
        for (place, byte) in changes {
            let at = place.index(packet.len());
            packet[at] = byte;
        }
        let len = (packet.len() as i32 + end).max(1) as usize;
        packet.resize(len, 0x66);
        if fixes && packet[0] >> 4 == 6 && packet.len() >= 40 {
            let payload = (packet.len() - 40) as u16;
            packet[4..6].copy_from_slice(&payload.to_be_bytes());
        }
        frame(&packet)
    })
}

/// The same in the image and for the reference.
fn build(segments: &[(Segment, Vec<u8>)]) -> (Router, World) {
    let mut router = Router::new();
    let mut world = World::default();
    let bytes_of = |prefix: &str| {
        let (address, len) = prefix.split_once('/').unwrap();
        let bytes = match address.contains(':') {
            true => octets(address).to_vec(),
            false => v4(address).to_be_bytes().to_vec(),
        };
        (bytes, len.parse::<usize>().unwrap())
    };
    for (prefix, (segment, template)) in SIDS.iter().zip(segments) {
        let mut segment = *segment;
        segment.template = router.template(template);
        let number = router.sid(prefix, segment);
        let (bytes, len) = bytes_of(prefix);
        let table = if len == 24 {
            &mut world.v4
        } else {
            &mut world.v6
        };
        table[0].push((bytes, len, Leads::Segment(number)));
        world.segments.push((number, segment, template.clone()));
    }
    let hole = Group::Kernel(Reason::Blackhole);
    for (table, prefix, group) in [
        (0, "2001:db8:3::/48", Group::Single(0)),
        (0, "2001:db8:4::/48", hole),
        (0, "fcbb:0:2:2::/64", Group::Single(7)),
        (1, "::/0", Group::Single(3)),
        (1, "fc00:2::/32", Group::Segment(1)),
        (0, "203.0.113.0/24", Group::Single(4)),
        (0, "192.0.2.0/24", Group::Neighbour(5)),
        (1, "0.0.0.0/0", Group::Single(6)),
    ] {
        let number = router.group(group);
        let (bytes, len) = bytes_of(prefix);
        let leads = match group {
            Group::Single(7) => Leads::Adjacency(7, 1300),
            Group::Single(n) => Leads::Adjacency(n, 1500),
            Group::Neighbour(n) => Leads::Neighbour(n, 1500),
            Group::Segment(n) => Leads::Segment(n),
            _ => Leads::Kernel(Reason::Blackhole),
        };
        if prefix.contains(':') {
            router.route6(table, prefix, number);
            world.v6[table as usize].push((bytes, len, leads));
        } else {
            router.route4(table, prefix, number);
            world.v4[table as usize].push((bytes, len, leads));
        }
    }
    (router, world)
}

#[test]
fn drawn_packets_end_as_the_reference_says() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let seen = std::cell::RefCell::new(BTreeMap::<String, u32>::new());
    let strategy = (
        prop::collection::vec(segment(), SIDS.len()),
        prop::collection::vec(drawn(), 20),
    );
    let result = runner.run(&strategy, |(segments, frames)| {
        let (mut router, world) = build(&segments);
        let mut counters = BTreeMap::<u32, [u64; SEGMENT_COUNTERS]>::new();
        for bytes in &frames {
            let answer = world.pass(bytes);
            for (number, len, reason) in &answer.counted {
                let values = counters.entry(*number).or_default();
                if let Some(len) = len {
                    values[0] += 1;
                    values[1] += *len as u64;
                }
                if let Some(reason) = reason {
                    values[segment_counter::of(*reason)] += 1;
                }
            }
            let (verdict, sent) = router.pass(bytes);
            let ours = match verdict {
                Verdict::Forward {
                    index, adjacency, ..
                } if adjacency < 8 => {
                    prop_assert_eq!(index, OUT + adjacency);
                    Outcome::Packet(adjacency, sent[14..].to_vec())
                }
                Verdict::Forward { index, .. } => Outcome::Frame(index, sent),
                Verdict::Kernel(reason) => Outcome::Kernel(reason),
                Verdict::Drop(reason) => Outcome::Drop(reason),
            };
            let name = match &ours {
                Outcome::Packet(..) if answer.counted.is_empty() => "routed".to_owned(),
                Outcome::Packet(..) => format!("forwarded after {}", answer.counted.len()),
                Outcome::Frame(..) => "frame".to_owned(),
                Outcome::Kernel(reason) | Outcome::Drop(reason) => reason.name().to_owned(),
            };
            *seen.borrow_mut().entry(name).or_default() += 1;
            // What stood behind the packet may fill up a short frame.
            let same = match (&ours, &answer.outcome) {
                (Outcome::Packet(a, x), Outcome::Packet(b, y)) => {
                    a == b && x.starts_with(y) && (x.len() == y.len() || x.len() <= 46)
                }
                (Outcome::Frame(a, x), Outcome::Frame(b, y)) => {
                    a == b && x.starts_with(y) && (x.len() == y.len() || x.len() <= 60)
                }
                (a, b) => a == b,
            };
            prop_assert!(same, "{ours:x?}\nbut {:x?}\nof {bytes:x?}", answer.outcome);
        }
        let mut engines = [build(&segments).0, build(&segments).0];
        let [alone, together] = &mut engines;
        compare([&mut alone.engine, &mut together.engine], &frames)?;
        for (number, _, _) in &world.segments {
            let expected = counters.get(number).copied().unwrap_or_default();
            prop_assert_eq!(router.engine.counters().segment(*number), expected);
        }
        Ok(())
    });
    if let Err(e) = result {
        panic!("{e}");
    }
    let seen = seen.into_inner();
    println!("{seen:?}");
    for wanted in [
        "forwarded after 1",
        "forwarded after 2",
        "frame",
        "no-srh",
        "bad-srh",
    ] {
        assert!(
            seen.get(wanted).is_some_and(|n| *n > 5),
            "{wanted}: {seen:?}"
        );
    }
}

/// `SRV6_CASES` in the environment for more.
fn cases() -> u32 {
    let asked = std::env::var("SRV6_CASES").ok();
    asked.and_then(|n| n.parse().ok()).unwrap_or(1000)
}
