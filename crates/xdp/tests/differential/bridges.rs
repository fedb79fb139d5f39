//! Frames of ports of bridges and of links with macvlans, in and out, over images whose links are put there by hand.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use raddle_forward::{HEADROOM, Verdict as Userspace};
use raddle_image::{
    ADJ_FORWARD, ADJ_TAGGED, Adjacency, LINK_COUNTERS, MAX_TAGS, Memory, Reason, Vlan,
};
use raddle_rib::event::Event;
use raddle_rib::{Ports, Rib};
use raddle_xdp::{Engine, LoadOptions, Verdict};
use raddle_xdp_testing::engines::{given, monotonic, name, pin_to_one_cpu, verdict};
use raddle_xdp_testing::net::{in_namespace, links};

use crate::frames::{MAC, frame, tagged};
use crate::state::{Indices, base, renumber, state};
use crate::world::{ALIKE, BRIDGE, LINKS, MACVLANS, SOURCES, SVI, World, world};
use crate::{FRAMES, capacity};

/// Tagged frames and others, from and to those that there are.
fn of_links() -> impl Strategy<Value = Vec<u8>> {
    let to = prop_oneof![
        8 => Just(MAC),
        1 => Just(MACVLANS[0]),
        1 => Just(MACVLANS[1]),
        1 => proptest::sample::select(vec![ALIKE, [2, 0, 0, 0, 0, 9]]),
    ];
    let from = prop_oneof![8 => Just(SOURCES[0]), 3 => proptest::sample::select(SOURCES.to_vec())];
    // Tags that lead somewhere more often than those of `tagged`.
    let kind = proptest::sample::select(vec![0x8100u16, 0x8100, 0x88a8]);
    let outer = (kind, proptest::sample::select(vec![5u16, 5, 7]));
    let outer = outer.prop_map(|(kind, id)| u32::from(kind) << 16 | u32::from(id));
    let inner = proptest::option::of(Just(0x8100_0006));
    let led = (frame(), outer, inner).prop_map(|(mut frame, outer, inner)| {
        let tags = [outer].into_iter().chain(inner).flat_map(u32::to_be_bytes);
        frame.splice(12..12, tags);
        frame
    });
    let frame = prop_oneof![1 => tagged(), 1 => led, 1 => frame()];
    (frame, to, from).prop_map(|(mut frame, to, from)| {
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&from);
        frame
    })
}

/// Its tags, and itself without them; none where it ends among them.
fn without_tags(frame: &[u8]) -> Option<(Vec<Vlan>, Vec<u8>)> {
    let mut tags = Vec::new();
    let mut rest = &frame[12..];
    loop {
        let (ether_type, behind) = rest.split_at_checked(2)?;
        let ether_type = u16::from_be_bytes(ether_type.try_into().unwrap());
        if !matches!(ether_type, Vlan::CUSTOMER | Vlan::SERVICE) {
            return Some((tags, [&frame[..12], rest].concat()));
        }
        let (tci, behind) = behind.split_at_checked(2)?;
        let tci = u16::from_be_bytes(tci.try_into().unwrap());
        tags.push(Vlan::of(ether_type, tci).unwrap());
        rest = behind;
    }
}

/// Has some adjacencies reached by another link than their own, with up to two tags.
fn put_out(memory: &Memory, tags: [u8; 2], indices: Indices) {
    for number in 0..memory.adjacencies.len() / size_of::<Adjacency>() {
        let adjacency = memory.adjacency(number as u32);
        let by = indices[2..].iter().position(|out| *out == adjacency.index);
        let Some(tags @ 0..=2) = by.map(|out| tags[out]) else {
            continue;
        };
        if adjacency.state != ADJ_FORWARD {
            continue;
        }
        // Some by what frames come in by.
        let index = match number % 3 {
            0 => BRIDGE,
            1 => SVI,
            _ => adjacency.index,
        };
        let adjacency = Adjacency {
            state: ADJ_TAGGED,
            index,
            lower: indices[1],
            tags,
            tag: [0x8100_0005, 0x88a8_0fff],
            ..adjacency
        };
        memory.store_adjacency(number as u32, &adjacency);
    }
}

/// What becomes of a frame, and its bytes then.
fn decide(engine: &mut raddle_forward::Engine, frame: &[u8], ingress: u32) -> (Userspace, Vec<u8>) {
    let mut buffer = vec![0; HEADROOM];
    buffer.extend(frame);
    let range = HEADROOM..buffer.len();
    let verdict = engine.forward_in(&mut buffer, range, ingress, monotonic());
    let bytes = match verdict {
        Userspace::Forward { start, len, .. } => &buffer[start..start + len],
        _ => &buffer[HEADROOM..],
    };
    (verdict, bytes.to_vec())
}

/// By which link it comes in, and what has to become of it, with its bytes where it is forwarded: what becomes of its packet without tags that
/// comes in by the link that Linux has it come in by. None where that is the kernel's to say.
fn expected(
    engine: &mut raddle_forward::Engine,
    world: &World,
    frame: &[u8],
    ingress: u32,
) -> Option<(u32, Verdict, Vec<u8>)> {
    let (tags, packet) = without_tags(frame)?;
    let [to, from] = [0, 6].map(|at| frame[at..at + 6].try_into().unwrap());
    if tags.len() > MAX_TAGS {
        return None;
    }
    let index = world.comes_in_by(ingress, tags, to, from)?;
    let (decided, bytes) = decide(engine, &packet, index);
    Some((index, verdict(decided), bytes))
}

/// Whether a verdict is the one that is expected. Buckets are shown to the kernel now and then.
fn is_as(ours: Verdict, expected: Option<Verdict>) -> bool {
    let shown = Verdict::Kernel(Reason::BucketActivity);
    match expected {
        None => matches!(ours, Verdict::Kernel(_)),
        Some(expected) => ours == expected || ours == shown || expected == shown,
    }
}

/// A verdict, the link that the frame came in by, and how many tags it left with.
type Fate = (&'static str, Option<u32>, usize);
/// How often.
type Seen = BTreeMap<Fate, u64>;

/// The two that are compared, and one that gets what comes in by links without steps.
struct Engines {
    program: Engine,
    userspace: raddle_forward::Engine,
    plain: raddle_forward::Engine,
}

impl Engines {
    fn load() -> Engines {
        let capacity = capacity();
        let mut program = Engine::load(&LoadOptions { capacity }).unwrap();
        program.load_srv6().unwrap();
        let [userspace, plain] = [(), ()].map(|()| raddle_forward::Engine::new(program.memory()));
        Engines {
            program,
            userspace,
            plain,
        }
    }

    /// Puts what is drawn into the image.
    fn publish(&self, events: Vec<Event>, world: &World, tags: [u8; 2], indices: Indices) {
        let memory = self.program.memory();
        memory.reset(|| ());
        let mut rib = Rib::new(memory.clone(), &capacity(), || ());
        base(indices).into_iter().for_each(|event| rib.apply(event));
        for mut event in events {
            renumber(&mut event, indices);
            rib.apply(event);
        }
        rib.set_ports(Ports {
            enabled: [indices[0]].into(),
            out: indices.into(),
        });
        rib.commit();
        world.put(&memory, indices[0]);
        put_out(&memory, tags, indices);
    }

    /// The same from both, and what is expected.
    fn compare(
        &mut self,
        world: &World,
        frame: &[u8],
        ingress: u32,
        seen: &mut Seen,
    ) -> Result<(), TestCaseError> {
        let told = || format!("{world:?}, frame {frame:02x?}");
        let theirs = self.program.test_run(frame, ingress).unwrap();
        let (ours, bytes) = decide(&mut self.userspace, frame, ingress);
        let ours = verdict(ours);
        prop_assert_eq!(theirs.verdict, ours, "{}", told());
        // Nobody sees what is dropped.
        if !matches!(ours, Verdict::Drop(_)) {
            prop_assert_eq!(&theirs.frame, &bytes, "{}", told());
        }
        let expected = expected(&mut self.plain, world, frame, ingress);
        let as_expected = expected.as_ref().map(|(_, verdict, _)| *verdict);
        let is = is_as(ours, as_expected);
        prop_assert!(is, "{:?}, not {:?}: {}", ours, as_expected, told());
        if let (Verdict::Forward { .. }, Some((_, Verdict::Forward { .. }, sent))) =
            (ours, &expected)
        {
            prop_assert_eq!(&bytes, sent, "{}", told());
        }
        let by = expected.map(|(index, ..)| index);
        let tags = without_tags(&bytes).map_or(0, |(tags, _)| tags.len());
        *seen.entry((name(ours), by, tags)).or_default() += 1;
        Ok(())
    }

    /// The same of links, as long as the engines have been there.
    fn compare_counters(&self) -> Result<(), TestCaseError> {
        let (theirs, ours) = (self.program.counters(), self.userspace.counters());
        for slot in 0..LINK_COUNTERS as u32 {
            let (theirs, ours) = (theirs.link(slot), ours.link(slot));
            let theirs = (theirs.packets, theirs.bytes);
            prop_assert_eq!(theirs, (ours.packets, ours.bytes), "link {}", slot);
        }
        Ok(())
    }
}

#[test]
fn both_engines_do_the_same_with_bridges() {
    in_namespace("both_engines_do_the_same_with_bridges", || {
        let indices: Indices = links();
        let ingress = indices[0];
        let engines = RefCell::new(Engines::load());
        for index in indices {
            engines.borrow().program.set_out_link(index).unwrap();
        }
        let cases = given("RADDLE_CASES").map_or(300, |n| n as u32);
        let mut runner = TestRunner::new(Config {
            cases,
            ..Config::default()
        });
        let seen = RefCell::new(Seen::new());
        pin_to_one_cpu();
        let frames = proptest::collection::vec(of_links(), FRAMES);
        let drawn = (state(), world(), [0..4u8, 0..4u8], frames);
        let result = runner.run(&drawn, |(events, world, tags, frames)| {
            let mut engines = engines.borrow_mut();
            engines.publish(events, &world, tags, indices);
            for frame in frames {
                engines.compare(&world, &frame, ingress, &mut seen.borrow_mut())?;
            }
            engines.compare_counters()
        });
        if let Err(e) = result {
            panic!("{e}");
        }
        let seen = seen.into_inner();
        eprintln!("{seen:?}");
        // By each link, and with as many tags as there can be.
        let count = |is: &dyn Fn(&Fate) -> bool| {
            let of = seen.iter().filter(|(key, _)| is(key));
            of.map(|(_, n)| n).sum::<u64>()
        };
        for link in LINKS {
            let forwarded = count(&|&(what, by, _)| what == "forwarded" && by == Some(link));
            assert!(forwarded > 0, "nothing by {link}: {seen:?}");
        }
        for n in 0..=MAX_TAGS {
            let forwarded = count(&|&(what, _, tags)| what == "forwarded" && tags == n);
            let enough = forwarded * 1000 > count(&|_| true);
            assert!(enough, "too few with {n} tags: {seen:?}");
        }
        for what in ["bridge", "other-mac", "vlan", "not-enabled"] {
            let left = count(&|&(is, ..)| is == what);
            assert!(left > 0, "none is {what}: {seen:?}");
        }
    });
}
