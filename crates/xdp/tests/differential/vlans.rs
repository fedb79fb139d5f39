//! Tagged frames, in and out, over images whose links, VLANs and adjacencies are put there by hand.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use raddle_forward::{HEADROOM, Verdict as Userspace};
use raddle_image::{
    ADJ_FORWARD, ADJ_TAGGED, Adjacency, LinkEntry, Memory, Step, Upon, Vlan, link_flags,
};
use raddle_xdp::{Engine, LoadOptions, Verdict};
use raddle_xdp_testing::engines::{given, monotonic, name, pin_to_one_cpu, verdict};
use raddle_xdp_testing::net::{in_namespace, links};

use crate::compiled;
use crate::frames::{frame, tagged};
use crate::state::{Indices, state};
use crate::{FRAMES, capacity};

/// Indices of VLANs: 5 upon the link, one within it, and a service VLAN.
const UPON: [u32; 3] = [9001, 9002, 9003];

/// What is drawn of the image.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    /// Whether the link is enabled itself; and each of [`UPON`].
    enabled: [bool; 4],
    /// Whether the VLANs have a MAC address of their own.
    own_mac: bool,
    /// Whether the link is the member of a bond.
    member: bool,
    /// Whether there is a VLAN with the identifier 0.
    zero: bool,
    /// Which of the out-links are reached with one tag, and with two.
    tags: [u8; 2],
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let mostly = || proptest::bool::weighted(0.85);
    (
        [mostly(), mostly(), mostly(), mostly()],
        any::<bool>(),
        proptest::bool::weighted(0.2),
        proptest::bool::weighted(0.2),
        [0..4u8, 0..4u8],
    )
        .prop_map(|(enabled, own_mac, member, zero, tags)| Drawn {
            enabled,
            own_mac,
            member,
            zero,
            tags,
        })
}

/// Puts VLANs upon the link that frames come in on, and tags into what goes out by some links.
fn put(memory: &Memory, drawn: Drawn, indices: Indices) {
    let ingress = indices[0];
    let own = memory.link(ingress);
    let lower = if drawn.member { 9000 } else { ingress };
    let mut entry = LinkEntry {
        index: lower,
        ..own
    };
    entry.flags |= link_flags::VLANS;
    if !drawn.enabled[0] {
        entry.flags = link_flags::VLANS;
    }
    memory.store_link(ingress, &entry);
    let vlan = |service, id| Vlan { service, id };
    let mut upon = vec![
        (lower, vlan(false, 5), UPON[0]),
        (UPON[0], vlan(false, 6), UPON[1]),
        (lower, vlan(true, 7), UPON[2]),
        (UPON[2], vlan(false, 7), UPON[1]),
    ];
    if drawn.zero {
        upon.push((lower, vlan(false, 0), UPON[2]));
    }
    for (lower, vlan, index) in upon {
        let step = Step {
            index,
            ..Step::default()
        };
        let upon = Upon::Tag(vlan);
        memory.store_step(lower, upon, Some(step)).unwrap();
    }
    for (n, index) in UPON.into_iter().enumerate() {
        let mut flags = own.flags;
        if !drawn.enabled[n + 1] {
            flags &= !link_flags::ENABLED;
        }
        let mut mac = own.mac;
        if drawn.own_mac {
            mac[5] = 3;
        }
        let slot = own.slot + 1 + n as u32;
        memory.store_link(
            index,
            &LinkEntry {
                index,
                flags,
                mac,
                slot,
                ..own
            },
        );
    }
    for number in 0..memory.adjacencies.len() / size_of::<Adjacency>() {
        let adjacency = memory.adjacency(number as u32);
        let by = indices[2..].iter().position(|out| *out == adjacency.index);
        let Some(tags @ 1..=2) = by.map(|out| drawn.tags[out]) else {
            continue;
        };
        if adjacency.state != ADJ_FORWARD {
            continue;
        }
        // Some by the VLAN that frames come in by.
        let index = if number % 3 == 0 {
            UPON[0]
        } else {
            adjacency.index
        };
        memory.store_adjacency(
            number as u32,
            &Adjacency {
                state: ADJ_TAGGED,
                index,
                lower: indices[1],
                tags,
                tag: [0x8100_0005, 0x88a8_0fff],
                ..adjacency
            },
        );
    }
}

#[test]
fn both_engines_do_the_same_with_tags() {
    in_namespace("both_engines_do_the_same_with_tags", || {
        let indices: Indices = links();
        let ingress = indices[0];
        let capacity = capacity();
        let mut engine = Engine::load(&LoadOptions { capacity }).unwrap();
        engine.load_srv6().unwrap();
        for index in indices {
            engine.set_out_link(index).unwrap();
        }
        let cases = given("RADDLE_CASES").map_or(150, |n| n as u32);
        let mut runner = TestRunner::new(Config {
            cases,
            ..Config::default()
        });
        let seen = std::cell::RefCell::new(std::collections::BTreeMap::<_, u64>::new());
        pin_to_one_cpu();
        let userspace = std::cell::RefCell::new(raddle_forward::Engine::new(engine.memory()));
        let frames = proptest::collection::vec(prop_oneof![5 => tagged(), 1 => frame()], FRAMES);
        let result = runner.run(&(state(), drawn(), frames), |(events, drawn, frames)| {
            let memory = engine.memory();
            let _rib = compiled(&engine, events, indices);
            put(&memory, drawn, indices);
            let mut userspace = userspace.borrow_mut();
            for frame in frames {
                let theirs = engine.test_run(&frame, ingress).unwrap();
                let mut buffer = vec![0; HEADROOM];
                buffer.extend(&frame);
                let range = HEADROOM..buffer.len();
                let ours = userspace.forward_in(&mut buffer, range, ingress, monotonic());
                let (start, end) = match ours {
                    Userspace::Forward { start, len, .. } => (start, start + len),
                    _ => (HEADROOM, buffer.len()),
                };
                let bytes = &buffer[start..end];
                let ours = verdict(ours);
                prop_assert_eq!(theirs.verdict, ours, "{:?}, frame {:02x?}", drawn, frame);
                // Nobody sees what is dropped.
                if !matches!(ours, Verdict::Drop(_)) {
                    prop_assert_eq!(&theirs.frame, bytes, "{:?}, frame {:02x?}", drawn, frame);
                }
                let came = u8::from(frame.len() > 13 && frame[12] & 0x88 != 8 && frame[12] != 0);
                let mut seen = seen.borrow_mut();
                let went = bytes.get(12..14).map(|kind| kind == [0x81, 0]);
                *seen.entry((name(ours), came, went)).or_default() += 1;
            }
            Ok(())
        });
        if let Err(e) = result {
            panic!("{e}");
        }
        let seen = seen.into_inner();
        eprintln!("{seen:?}");
        let total: u64 = seen.values().sum();
        let forwarded = |tagged: bool| {
            let of = seen.iter().filter(|((what, ..), _)| *what == "forwarded");
            let of = of.filter(|((.., went), _)| *went == Some(tagged));
            of.map(|(_, n)| n).sum::<u64>()
        };
        assert!(forwarded(true) * 200 > total, "too few with tags: {seen:?}");
        assert!(forwarded(false) * 200 > total, "too few without: {seen:?}");
        assert!(seen.keys().any(|(what, ..)| *what == "vlan"), "{seen:?}");
    });
}
