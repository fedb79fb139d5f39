//! explain = forward: over drawn states and frames, what `explain` says of a packet is what the engine does with it.
//!
//! The engine reads an image of its own, compiled from the same events. States and frames are those of the XDP engine's
//! differential tests, and what they lack: links that fail, SIDs and encapsulations, routes of every kind, frames for
//! every reason. `RADDLE_CASES` sets how many states are drawn (default 300, of 180 frames each), `RADDLE_SEED` which
//! (default 1).
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[allow(dead_code, reason = "made for the test of the XDP engine")]
#[path = "../../../xdp/tests/srv6_differential/draw.rs"]
mod draw;
#[allow(dead_code, reason = "made for the test of the XDP engine")]
#[path = "../../../xdp/tests/differential/frames.rs"]
mod frames;
mod judge;
mod odd_frames;
#[allow(dead_code, reason = "made for the test of the XDP engine")]
#[path = "../../../xdp/tests/differential/state.rs"]
mod state;
mod world;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use judge::{Seen, judge};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use raddle_explain::{
    Answer, Framing, Images, Level, Names, Packet, Question, Surroundings, View, answer, render,
};
use raddle_forward::{Engine, HEADROOM, NO_ADJACENCY, Verdict};
use raddle_image::{Capacity, Memory, Reason};
use raddle_rib::event::Event;
use raddle_rib::{AlgoRules, Ports, Rib};
use raddle_xdp_testing::draw::Draw;

const CAPACITY: Capacity = Capacity {
    nodes4: 1 << 14,
    leaves4: 1 << 14,
    words6: 1 << 16,
    groups: 1024,
    members: 4096,
    adjacencies: 512,
    segments: 256,
    templates: 1 << 13,
};

/// Tables and protocols have no names here.
struct Numbers;

impl Names for Numbers {
    fn table(&self, number: u32) -> Cow<'_, str> {
        number.to_string().into()
    }

    fn protocol(&self, number: u8) -> Cow<'_, str> {
        number.to_string().into()
    }
}

/// A state: for who explains, and compiled for an engine.
struct World {
    mirror: Rib,
    image: Rib,
    engine: Engine,
    images: Images,
    around: Surroundings,
}

impl World {
    fn new(events: &[Event], algos: AlgoRules) -> World {
        let mut image = Rib::new(Arc::new(Memory::heap(&CAPACITY)), &CAPACITY, || ());
        image.set_algos(algos.clone());
        let mut mirror = Rib::detached();
        for event in events {
            image.apply(event.clone());
            mirror.apply(event.clone());
        }
        image.set_ports(Ports {
            enabled: (1..=4).collect(),
            out: (1..=4).collect(),
        });
        image.commit();
        World {
            mirror,
            engine: Engine::new(Arc::clone(image.memory())),
            image,
            images: Images::default(),
            around: Surroundings {
                kernel: "6.18.44".parse().ok(),
                algos,
                ..Surroundings::default()
            },
        }
    }

    /// What the engine does with a frame that comes in by link 1. The bucket of a resilient group is shown to the
    /// kernel first, which forwards the packet the same way.
    fn forward(&mut self, frame: &[u8]) -> Seen {
        let mut decide = || {
            let mut buffer = vec![0; HEADROOM];
            buffer.extend(frame);
            let range = HEADROOM..buffer.len();
            self.engine.forward_in(&mut buffer, range, 1, 0)
        };
        let shown = |verdict| {
            matches!(
                verdict,
                Verdict::Kernel(Reason::BucketActivity) | Verdict::Drop(Reason::BucketActivity)
            )
        };
        let verdict = match decide() {
            verdict if shown(verdict) => decide(),
            verdict => verdict,
        };
        let via = match verdict {
            Verdict::Forward { adjacency, .. } if adjacency != NO_ADJACENCY => {
                let mut all = self.image.adjacencies();
                all.find(|(n, ..)| *n == adjacency)
                    .and_then(|(_, _, via, _)| via)
            }
            _ => None,
        };
        Seen { verdict, via }
    }

    fn explain(&self, packet: &Packet) -> Answer {
        let view = View::new(&self.mirror, &Numbers, &self.around, &self.images);
        let words = packet.words("l1");
        let question = Question {
            words: &words,
            packet: Some(packet),
        };
        answer(view, question)
    }

    /// Whether `explain` says of this frame what the engine does, whether it has all of it, as digits, or the beginning.
    fn holds(&mut self, frame: &[u8], cut: usize) -> Result<Seen, String> {
        let seen = self.forward(frame);
        let told = |what: &str, why: String, answer: &Answer| {
            format!(
                "{what}: {why}\nengine: {seen:?}\nframe {frame:02x?}\n{}",
                render(answer)
            )
        };
        let packet = Packet::of_frame(frame, 0, "frame".to_owned());
        let whole = self.explain(&packet);
        let spread =
            !(self.around.algos.prefixes.is_empty() && self.around.algos.groups.is_empty());
        judge(&seen, &whole, spread).map_err(|why| told("whole", why, &whole))?;
        let digits: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        if let Ok(packet) = Packet::of_hex(&digits)
            && packet.framing == Framing::Ethernet
        {
            let mut hex = self.explain(&packet);
            hex.packet.clone_from(&whole.packet);
            // By turns both may be of another mind the next time.
            if hex != whole && whole.reason != Some("round-robin") && !spread {
                return Err(told("digits", "another answer".to_owned(), &hex));
            }
        }
        let cut = cut.min(frame.len());
        let begins = Packet::of_frame(&frame[..frame.len() - cut], cut, "cut".to_owned());
        let begins = self.explain(&begins);
        if begins.confidence.level == Level::Exact {
            judge(&seen, &begins, spread).map_err(|why| told("cut", why, &begins))?;
        }
        Ok(seen)
    }
}

/// What a case has: the state in the order in which it comes about, and the frames.
fn events(drawn: Vec<Event>, odd: Vec<Event>, setting: u8) -> Vec<Event> {
    let (links, odd): (Vec<_>, Vec<_>) = odd
        .into_iter()
        .partition(|event| matches!(event, Event::Link(_)));
    let (devices, odd): (Vec<_>, Vec<_>) = odd
        .into_iter()
        .partition(|event| matches!(event, Event::Device(..)));
    let mut events = state::base([1, 2, 3, 4]);
    // Links are as they are before routes lead to them.
    let at = events
        .iter()
        .take_while(|event| matches!(event, Event::Link(_)));
    let at = at.count();
    events.splice(at..at, links);
    events.extend(drawn);
    events.extend(devices);
    events.extend(odd);
    for event in &mut events {
        if let Event::Settings(settings) = event {
            world::settings(settings, setting);
        }
    }
    events
}

#[test]
fn explain_says_what_the_engine_does() {
    let given = |name, default: u64| std::env::var(name).map_or(default, |n| n.parse().unwrap());
    let cases = given("RADDLE_CASES", 300) as u32;
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&given("RADDLE_SEED", 1).to_le_bytes());
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let reached = RefCell::new(BTreeMap::<String, u64>::new());
    let drawn = proptest::collection::vec(frames::frame(), 60);
    let case = (
        state::state(),
        state::algos(),
        world::odd(),
        any::<u64>(),
        0..12u8,
        drawn,
    );
    let result = runner.run(&case, |(drawn, algos, odd, seed, setting, mut frames)| {
        let mut world = World::new(&events(drawn, odd, setting), algos);
        let mut draw = Draw::new(seed);
        frames.extend((0..60).map(|_| odd_frames::frame(&mut draw)));
        frames.extend((0..60).map(|_| {
            let mut frame = draw::frame(&mut draw);
            frame[..6].copy_from_slice(&frames::MAC);
            frame
        }));
        for frame in frames {
            let cut = draw.below(60);
            let seen = world.holds(&frame, cut).map_err(TestCaseError::fail)?;
            *reached.borrow_mut().entry(seen.name()).or_default() += 1;
        }
        Ok(())
    });
    if let Err(e) = result {
        panic!("{e}");
    }
    let reached = reached.into_inner();
    eprintln!("{reached:?}");
    let lacking: Vec<&str> = judge::REACHED
        .into_iter()
        .filter(|name| !reached.contains_key(*name))
        .collect();
    assert!(
        lacking.is_empty() || cases < 300,
        "no frame was {lacking:?}: {reached:?}"
    );
}
