//! The XDP program and the userspace engine, over the same image, on the same frames: same verdict,
//! same bytes.
//!
//! State comes from events through the real compiler, so tables, groups and adjacencies are what a
//! daemon would publish. `RADDLE_CASES` sets how many states are drawn (default 500, of 200 frames
//! each).
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod bonds;
mod bridges;
mod frames;
mod free;
mod guards;
mod state;
mod vlans;
mod world;

use std::sync::Arc;

use frames::{MAC, frame, ipv4_packet};
use guards::ByRules;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use raddle_forward::Verdict as Userspace;
use raddle_image::{Capacity, LinkEntry, Memory, Reason, link_flags};
use raddle_rib::event::{
    DeviceSettings, Event, Neighbour, Route, RouteNexthop, RouteOp, RouteTarget, Rule, Settings,
};
use raddle_rib::{AlgoRules, Ports, Rib};
use raddle_xdp::{Engine, LoadOptions, Verdict};
use raddle_xdp_testing::engines::{given, monotonic, name, pin_to_one_cpu, verdict};
use raddle_xdp_testing::image::small;
use raddle_xdp_testing::net::{in_namespace, links};
use state::{Indices, address, algos, base, renumber, state};

const FRAMES: usize = 200;

/// Room for what is drawn.
fn capacity() -> Capacity {
    Capacity {
        nodes4: 1 << 14,
        leaves4: 1 << 14,
        words6: 1 << 16,
        groups: 1024,
        members: 4096,
        adjacencies: 512,
        segments: 64,
        templates: 1 << 10,
    }
}

/// Two userspace engines that see the same frames.
struct Vectors {
    alone: raddle_forward::Engine,
    together: raddle_forward::Engine,
}

impl Vectors {
    /// One frame after the other, and all of them at once.
    fn compare(&mut self, frames: &[Vec<u8>], ingress: u32) -> Result<(), TestCaseError> {
        let now = monotonic();
        let (mut ours, mut theirs) = (frames.to_vec(), frames.to_vec());
        let mut verdicts = vec![Userspace::Kernel(Reason::None); frames.len()];
        self.together
            .forward_all(&mut theirs, ingress, now, &mut verdicts);
        for (at, frame) in ours.iter_mut().enumerate() {
            let verdict = self.alone.forward(frame, ingress, now);
            prop_assert_eq!(verdict, verdicts[at], "frame {:02x?}", frames[at]);
            prop_assert_eq!(&*frame, &theirs[at], "frame {:02x?}", frames[at]);
        }
        prop_assert_eq!(self.alone.counters(), self.together.counters());
        Ok(())
    }
}

/// The image of a drawn state, and its mirror: what comes in by the first of these links is forwarded, by any of them.
fn compiled(engine: &Engine, events: Vec<Event>, indices: Indices) -> Rib {
    let memory = engine.memory();
    memory.reset(|| ());
    let mut rib = Rib::new(memory, &capacity(), || ());
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
    rib
}

#[test]
fn both_engines_do_the_same() {
    in_namespace("both_engines_do_the_same", || {
        let indices: Indices = links();
        let ingress = indices[0];
        let capacity = capacity();
        let engine = Engine::load(&LoadOptions { capacity }).unwrap();
        for index in indices {
            engine.set_out_link(index).unwrap();
        }
        let cases = given("RADDLE_CASES").map_or(500, |n| n as u32);
        let mut runner = TestRunner::new(Config {
            cases,
            ..Config::default()
        });
        let frames = proptest::collection::vec(frame(), FRAMES);
        let seen = std::cell::RefCell::new(std::collections::BTreeMap::<&str, u64>::new());
        // What both keep from packet to packet is kept by core.
        pin_to_one_cpu();
        let userspace = std::cell::RefCell::new(raddle_forward::Engine::new(engine.memory()));
        let vectors = std::cell::RefCell::new(Vectors {
            alone: raddle_forward::Engine::new(engine.memory()),
            together: raddle_forward::Engine::new(engine.memory()),
        });
        let result = runner.run(
            &(
                state(),
                algos(),
                guards::firewall(),
                (guards::rules(), guards::tables()),
                (frames, proptest::bool::weighted(0.1)),
            ),
            |(mut events, algos, found, (rules, tables), (frames, is_part))| {
                guards::spread(&mut events, &tables);
                let found = guards::of_links(&found, indices);
                let memory = engine.memory();
                memory.reset(|| ());
                let make = |memory: Arc<Memory>, rules: &[Rule]| {
                    let mut rib = Rib::new(memory, &capacity, || ());
                    rib.set_algos(algos.clone());
                    base(indices).into_iter().for_each(|event| rib.apply(event));
                    for event in &events {
                        let mut event = event.clone();
                        renumber(&mut event, indices);
                        rib.apply(event);
                    }
                    for rule in rules {
                        rib.apply(Event::Rule(rule.clone()));
                    }
                    rib.set_ports(Ports {
                        enabled: [ingress].into(),
                        out: indices.into(),
                    });
                    rib.set_firewall(found.clone());
                    rib.commit();
                    rib
                };
                let _rib = make(memory.clone(), &rules);
                if is_part && rules.is_empty() {
                    // As part of a bond by which packets leave, too.
                    let index = indices[1];
                    let entry = memory.link(ingress);
                    memory.store_link(ingress, &LinkEntry { index, ..entry });
                }
                // With rp_filter rules are asked for the way back, too.
                let filters = memory.link(ingress).flags & link_flags::RP_BEHIND != 0;
                let mut by_rules = ByRules::default();
                let mut userspace = userspace.borrow_mut();
                vectors.borrow_mut().compare(&frames, ingress)?;
                for frame in frames {
                    let theirs = engine.test_run(&frame, ingress).unwrap();
                    let mut bytes = frame.clone();
                    let ours = userspace.forward(&mut bytes, ingress, monotonic());
                    if let Userspace::Forward {
                        start, len, index, ..
                    } = ours
                    {
                        let free = free::is_free(&found, &frame, (ingress, index));
                        prop_assert!(
                            free,
                            "past the firewall to {index}: {frame:02x?}, {found:?}"
                        );
                        bytes.truncate(start + len);
                        bytes.drain(..start);
                    }
                    let asks = !rules.is_empty() && algos == AlgoRules::default() && !filters;
                    if asks && ours != Userspace::Kernel(Reason::Rules) {
                        let expected = by_rules.verdict(&rules, &frame, ingress, |rules| {
                            let memory = Arc::new(Memory::heap(&capacity));
                            let rib = make(memory.clone(), rules);
                            drop(rib);
                            raddle_forward::Engine::new(memory)
                        });
                        let is_as = match expected {
                            // Another reason may come before this one.
                            Some((Userspace::Kernel(Reason::Rules), _)) => {
                                !matches!(ours, Userspace::Forward { .. })
                            }
                            // The kernel sees each bucket used now and then.
                            Some((Userspace::Kernel(Reason::BucketActivity), _)) => true,
                            Some(_) if ours == Userspace::Kernel(Reason::BucketActivity) => true,
                            Some((expected, _)) => goes(expected) == goes(ours),
                            None => true,
                        };
                        prop_assert!(is_as, "{ours:?}, not {expected:?}: {frame:02x?}, {rules:?}");
                        let what = match (ours, expected) {
                            (Userspace::Forward { .. }, Some((_, true))) => "forwarded by a rule",
                            (Userspace::Forward { .. }, _) => "forwarded beside rules",
                            _ => "not forwarded beside rules",
                        };
                        *seen.borrow_mut().entry(what).or_default() += 1;
                    }
                    let ours = verdict(ours);
                    prop_assert_eq!(theirs.verdict, ours, "frame {:02x?}", frame);
                    prop_assert_eq!(&theirs.frame, &bytes, "frame {:02x?}", frame);
                    *seen.borrow_mut().entry(name(ours)).or_default() += 1;
                }
                Ok(())
            },
        );
        if let Err(e) = result {
            panic!("{e}");
        }
        // The test is worth little unless it reaches the far end of the pipeline.
        let seen = seen.into_inner();
        eprintln!("{seen:?}");
        let total: u64 = seen.values().sum();
        assert!(
            seen["forwarded"] * 20 > total,
            "too few frames were forwarded: {seen:?}"
        );
        assert!(
            seen.get("forwarded by a rule")
                .is_some_and(|n| *n * 10 > cases.into()),
            "too few frames met a rule: {seen:?}"
        );
    });
}

/// A verdict without the adjacency's number, which may be another where there are other routes.
fn goes(verdict: Userspace) -> Userspace {
    match verdict {
        Userspace::Forward {
            index, start, len, ..
        } => Userspace::Forward {
            index,
            adjacency: 0,
            start,
            len,
        },
        verdict => verdict,
    }
}

/// The dissector looks for all that a GRE header's flags promise, before it calls a packet a tunnel.
#[test]
fn gre_headers_that_end_early() {
    in_namespace("gre_headers_that_end_early", || {
        let indices: Indices = links();
        let capacity = small();
        let engine = Engine::load(&LoadOptions { capacity }).unwrap();
        indices
            .iter()
            .for_each(|index| engine.set_out_link(*index).unwrap());
        let mut userspace = raddle_forward::Engine::new(engine.memory());
        let mut rib = Rib::new(engine.memory(), &capacity, || ());
        let hops = (2..=4u8).map(|n| RouteNexthop {
            gateway: Some(address(false, n)),
            index: indices[usize::from(n) - 1],
            weight: 1,
            ..RouteNexthop::default()
        });
        let neighbours = (2..=4u8).map(|n| {
            Event::Neighbour(Neighbour {
                index: indices[usize::from(n) - 1],
                dst: address(false, n),
                mac: Some([4, 0, 0, 0, 0, n]),
                state: 2,
                flags: 0,
                protocol: 0,
            })
        });
        let route = Route {
            dst: "10.0.7.0/24".parse().unwrap(),
            protocol: 4,
            target: RouteTarget::Multipath(hops.collect()),
            ..Route::default()
        };
        let device = DeviceSettings {
            forwarding4: true,
            ..DeviceSettings::default()
        };
        let settings = Settings {
            hash_policy4: 3,
            hash_fields4: 0xfff,
            hash_seed: 7,
            ..Settings::default()
        };
        base(indices)
            .into_iter()
            .chain(neighbours)
            .chain([
                Event::Settings(settings),
                Event::Device(indices[0], device),
                Event::Route(route, RouteOp::Add),
            ])
            .for_each(|event| rib.apply(event));
        rib.set_ports(Ports {
            enabled: [indices[0]].into(),
            out: indices.into(),
        });
        rib.commit();
        let mut forwarded = 0;
        for flags in [
            [0, 0],
            [0x80, 0],
            [0x20, 0],
            [0x10, 0],
            [0xb0, 0],
            [0x30, 0x81],
        ] {
            for kind in [[8, 0], [0x86, 0xdd], [0x65, 0x58], [0x88, 0x0b]] {
                for len in 0..40 {
                    let mut body = [flags, kind].concat();
                    body.extend([0x45; 40]);
                    let packet = ipv4_packet(len, 0xe1, 47, 64, 0, &body[..usize::from(len)]);
                    let mut frame = [&MAC[..], &[6, 0, 0, 0, 0, 9, 8, 0], &packet[..]].concat();
                    let theirs = engine.test_run(&frame, indices[0]).unwrap().verdict;
                    let ours = verdict(userspace.forward(&mut frame, indices[0], monotonic()));
                    assert_eq!(
                        theirs, ours,
                        "flags {flags:x?}, kind {kind:x?}, {len} bytes"
                    );
                    forwarded += u32::from(matches!(ours, Verdict::Forward { .. }));
                }
            }
        }
        assert!(forwarded > 800, "{forwarded}");
    });
}
