//! Any packet over drawn segments: what the engine does is what the slow reference of its tests does, and
//! what is not forwarded is untouched.
#![no_main]

use std::cell::RefCell;
use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use raddle_forward::Verdict;
use raddle_image::{
    Group, LINK_TABLE, Reason, Segment, VlanEntry, flavours, segment_flags, segment_kind,
};
use reference::{Leads, Outcome, World};
use router::{OUT, Router, mac, octets, v4};

#[allow(dead_code, reason = "tests ask it more")]
#[path = "../../crates/forward/tests/srv6/reference.rs"]
mod reference;
#[path = "../../crates/forward/tests/srv6/router.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "tests use the rest, and may fail"
)]
mod router;

/// Prefixes that lead to the drawn segments.
const SIDS: [&str; 6] = [
    "fc00:1::/32",
    "fc00:2::/32",
    "fcbb:0:1::/48",
    "fcbb:0:2::/48",
    "2001:db8:2::/48",
    "198.51.100.0/24",
];
const PLACES: [&str; 6] = [
    "fc00:1::1",
    "fc00:2::1",
    "fcbb:0:1:2::",
    "fcbb:0:1:2:1:0:0:3",
    "2001:db8:3::3",
    "::",
];

thread_local! {
    static WORLDS: RefCell<HashMap<u8, (Router, World)>> = RefCell::new(HashMap::new());
}

fuzz_target!(|data: &[u8]| {
    let Some((&number, packet)) = data.split_first() else {
        return;
    };
    let Some(first) = packet.first() else {
        return;
    };
    let mut frame = mac(router::INGRESS).to_vec();
    frame.extend([6, 0, 0, 0, 0, 1]);
    frame.extend(match first >> 4 {
        4 => [0x08, 0x00],
        _ => [0x86, 0xdd],
    });
    frame.extend(packet);
    // What a fuzzer finds hard to come by: lengths that fit.
    if first >> 4 == 6 && packet.len() >= 40 && number & 1 == 0 {
        let payload = (packet.len() - 40) as u16;
        frame[18..20].copy_from_slice(&payload.to_be_bytes());
    }
    WORLDS.with_borrow_mut(|worlds| {
        let (router, world) = worlds.entry(number).or_insert_with(|| build(number));
        check(router, world, &frame);
    });
});

fn check(router: &mut Router, world: &World, frame: &[u8]) {
    let answer = world.pass(frame).outcome;
    // Held against the frame that came in by the router itself where nothing is forwarded.
    let (verdict, sent) = router.pass(frame);
    let ours = match verdict {
        Verdict::Forward { adjacency, .. } if adjacency < router::ADJACENCIES => {
            Outcome::Packet(adjacency, sent[14..].to_vec())
        }
        Verdict::Forward { index, .. } => Outcome::Frame(index, sent),
        Verdict::Kernel(reason) => Outcome::Kernel(reason),
        Verdict::Drop(reason) => Outcome::Drop(reason),
    };
    let same = match (&ours, &answer) {
        (Outcome::Packet(a, x), Outcome::Packet(b, y)) => {
            a == b && x.starts_with(y) && (x.len() == y.len() || x.len() <= 46)
        }
        (Outcome::Frame(a, x), Outcome::Frame(b, y)) => {
            a == b && x.starts_with(y) && (x.len() == y.len() || x.len() <= 60)
        }
        (a, b) => a == b,
    };
    assert!(same, "{ours:x?}\nbut {answer:x?}\nof {frame:x?}");
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % sides
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.roll(all.len())]
    }
}

fn segment(dice: &mut Dice) -> (Segment, Vec<u8>) {
    let kind = dice.of(&[
        segment_kind::END,
        segment_kind::END,
        segment_kind::END,
        segment_kind::END_X,
        segment_kind::END_T,
        segment_kind::END_DX2,
        segment_kind::END_DX2V,
        segment_kind::END_DX6,
        segment_kind::END_DX4,
        segment_kind::END_DT6,
        segment_kind::END_DT46,
        segment_kind::END_B6,
        segment_kind::END_B6_ENCAPS,
        segment_kind::INSERT,
        segment_kind::ENCAPS,
        segment_kind::ENCAPS_L2,
    ]);
    let compressed = dice.of(&[0, 0, flavours::NEXT_CSID, flavours::REPLACE_CSID]);
    let popping = dice.roll(8) as u8 * flavours::PSP;
    let (block, csid) = dice.of(&[(4, 2), (4, 2), (6, 4), (5, 3), (1, 1), (14, 2)]);
    let list: Vec<_> = (0..=dice.roll(3))
        .map(|_| octets(dice.of(&PLACES)))
        .collect();
    let mut srh = vec![
        0,
        2 * list.len() as u8,
        4,
        list.len() as u8 - 1,
        list.len() as u8 - 1,
        0,
        0,
        0,
    ];
    srh.extend(list.concat());
    let inserts = matches!(kind, segment_kind::END_B6 | segment_kind::INSERT);
    let has_srh = inserts || dice.roll(2) == 0;
    let mut outer = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
    outer.extend(octets("fc00:f::1"));
    outer.extend(list[list.len() - 1]);
    if has_srh {
        outer.extend(&srh);
    }
    let entries = [(1, 1400, OUT + 1), (7, 30, OUT + 2), (9, 1400, 0)];
    let words = entries.map(|(vlan, mtu, out)| VlanEntry { vlan, mtu, out }.to_word());
    let template = match kind {
        segment_kind::END_DX2V => words.map(u64::to_le_bytes).concat(),
        _ if inserts => srh,
        _ => outer,
    };
    // USP and USD are no kernel's.
    let own = match popping & (flavours::USP | flavours::USD) {
        0 => dice.of(&[0, segment_flags::NO_PUNT]),
        _ => segment_flags::NO_PUNT,
    };
    let segment = Segment {
        kind,
        flavours: compressed | popping,
        flags: own
            | dice.of(&[0, segment_flags::LABEL_FROM_INNER])
            | dice.of(&[0, segment_flags::DIRECT_NH4])
            | if has_srh { segment_flags::HAS_SRH } else { 0 },
        block,
        csid,
        size: template.len() as u16,
        out: if kind == segment_kind::END_DX2V {
            3
        } else {
            OUT + 2
        },
        mtu: 60,
        table4: dice.of(&[LINK_TABLE, 0, 1]),
        table6: dice.of(&[LINK_TABLE, 0, 1]),
        target: octets(dice.of(&["::", "fc00:2::1", "c000:207::", "2001:db8:3::3"])),
        ..Segment::default()
    };
    (segment, template)
}

/// The same in the image and for the reference.
fn build(number: u8) -> (Router, World) {
    let mut dice = Dice(u64::from(number));
    let mut router = Router::new();
    let mut world = World::default();
    for prefix in SIDS {
        let (mut segment, template) = segment(&mut dice);
        segment.template = router.template(&template);
        let number = router.sid(prefix, segment);
        note(&mut world, 0, prefix, Leads::Segment(number));
        world.segments.push((number, segment, template));
    }
    for (table, prefix, group, leads) in [
        (
            0,
            "2001:db8:3::/48",
            Group::Single(0),
            Leads::Adjacency(0, 1500),
        ),
        (
            0,
            "2001:db8:4::/48",
            Group::Kernel(Reason::Blackhole),
            Leads::Kernel(Reason::Blackhole),
        ),
        (
            0,
            "fcbb:0:2:2::/64",
            Group::Single(7),
            Leads::Adjacency(7, 1300),
        ),
        (1, "::/0", Group::Single(3), Leads::Adjacency(3, 1500)),
        (1, "fc00:2::/32", Group::Segment(1), Leads::Segment(1)),
        (
            0,
            "203.0.113.0/24",
            Group::Single(4),
            Leads::Adjacency(4, 1500),
        ),
        (
            0,
            "192.0.2.0/24",
            Group::Neighbour(5),
            Leads::Neighbour(5, 1500),
        ),
        (1, "0.0.0.0/0", Group::Single(6), Leads::Adjacency(6, 1500)),
    ] {
        let group = router.group(group);
        match prefix.contains(':') {
            true => router.route6(table, prefix, group),
            false => router.route4(table, prefix, group),
        }
        note(&mut world, table, prefix, leads);
    }
    (router, world)
}

fn note(world: &mut World, table: u32, prefix: &str, leads: Leads) {
    let Some((address, len)) = prefix.split_once('/') else {
        return;
    };
    let len = len.parse().unwrap_or(0);
    match address.contains(':') {
        true => world.v6[table as usize].push((octets(address).to_vec(), len, leads)),
        false => {
            let bytes = v4(address).to_be_bytes().to_vec();
            world.v4[table as usize].push((bytes, len, leads));
        }
    }
}
