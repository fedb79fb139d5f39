//! Frames with a tag that leave by members of a bond: which of them both engines choose, over images whose adjacencies are put there by hand.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use raddle_forward::{HEADROOM, Verdict as Userspace, leaves_by};
use raddle_image::{ADJ_FORWARD, ADJ_TAGGED, Adjacency, Bonded, MAX_BONDED, Memory, Reason};
use raddle_select::BondPolicy;
use raddle_xdp::{Engine, LoadOptions, Verdict};
use raddle_xdp_testing::engines::{given, monotonic, pin_to_one_cpu, verdict};
use raddle_xdp_testing::net::{in_namespace, links};

use crate::compiled;
use crate::frames::frame;
use crate::state::{Indices, state};
use crate::{FRAMES, capacity};

/// What a bond hashes, and which of three links are its members in which order: some stand for several.
fn drawn() -> impl Strategy<Value = (BondPolicy, Vec<usize>)> {
    let policies = vec![BondPolicy::Layer34, BondPolicy::Layer23, BondPolicy::Layer2];
    let policy = proptest::sample::select(policies);
    (policy, proptest::collection::vec(0..3usize, 1..=MAX_BONDED))
}

/// Has all that is sent leave with a tag by these members.
fn put(memory: &Memory, members: Bonded) {
    for number in 0..memory.adjacencies.len() / size_of::<Adjacency>() {
        let adjacency = memory.adjacency(number as u32);
        if adjacency.state == ADJ_FORWARD {
            let tagged = Adjacency {
                state: ADJ_TAGGED,
                // Which is in no map of links.
                lower: 9000,
                tags: 1,
                tag: [0x8100_0005, 0],
                ..adjacency
            };
            memory.store_adjacency(number as u32, &tagged.by_members(members));
        }
    }
}

#[test]
fn both_engines_choose_the_same_member() {
    in_namespace("both_engines_choose_the_same_member", || {
        let indices: Indices = links();
        let ingress = indices[0];
        let capacity = capacity();
        let engine = Engine::load(&LoadOptions { capacity }).unwrap();
        let cases = given("RADDLE_CASES").map_or(150, |n| n as u32);
        let mut runner = TestRunner::new(Config {
            cases,
            ..Config::default()
        });
        pin_to_one_cpu();
        let userspace = RefCell::new(raddle_forward::Engine::new(engine.memory()));
        let (sent, used) = (Cell::new(0_u64), RefCell::new(BTreeSet::new()));
        let frames = proptest::collection::vec(frame(), FRAMES);
        let result = runner.run(
            &(state(), drawn(), frames),
            |(events, (policy, members), frames)| {
                let memory = engine.memory();
                let _rib = compiled(&engine, events, indices);
                let members: Vec<u32> = members.iter().map(|n| indices[n + 1]).collect();
                put(&memory, Bonded::new(policy, &members).unwrap());
                let mut userspace = userspace.borrow_mut();
                for frame in frames {
                    let mut buffer = vec![0; HEADROOM];
                    buffer.extend(&frame);
                    let range = HEADROOM..buffer.len();
                    let ours = userspace.forward_in(&mut buffer, range, ingress, monotonic());
                    let Userspace::Forward {
                        adjacency,
                        start,
                        len,
                        ..
                    } = ours
                    else {
                        continue;
                    };
                    let bytes = &buffer[start..start + len];
                    let adjacency = memory.adjacency(adjacency);
                    if adjacency.bonded().is_none() {
                        continue;
                    }
                    let member = leaves_by(&adjacency, bytes);
                    let about = || format!("{policy} by {members:?}: {member}, frame {frame:02x?}");
                    // By no other, and by this one.
                    for index in &indices[1..] {
                        match *index == member {
                            true => engine.remove_out_link(*index).unwrap(),
                            false => engine.set_out_link(*index).unwrap(),
                        }
                    }
                    let theirs = engine.test_run(&frame, ingress).unwrap().verdict;
                    let shown = Verdict::Kernel(Reason::BucketActivity);
                    let failed = Verdict::Kernel(Reason::RedirectFailed);
                    prop_assert!([failed, shown].contains(&theirs), "{theirs:?} {}", about());
                    for index in &indices[1..] {
                        match *index == member {
                            true => engine.set_out_link(*index).unwrap(),
                            false => engine.remove_out_link(*index).unwrap(),
                        }
                    }
                    let theirs = engine.test_run(&frame, ingress).unwrap();
                    if theirs.verdict == shown {
                        continue;
                    }
                    prop_assert_eq!(theirs.verdict, verdict(ours), "{}", about());
                    prop_assert_eq!(&theirs.frame, bytes, "{}", about());
                    sent.set(sent.get() + 1);
                    used.borrow_mut().insert((policy.number(), member));
                }
                Ok(())
            },
        );
        if let Err(e) = result {
            panic!("{e}");
        }
        eprintln!("{} frames, by {:?}", sent.get(), used.borrow());
        assert!(sent.get() > u64::from(cases) * 5, "{} frames", sent.get());
        assert_eq!(used.borrow().len(), 9, "each policy by each link");
    });
}
