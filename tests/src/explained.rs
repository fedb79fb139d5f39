//! What tests share that hold `raddle explain` against the kernel, over drawn states.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{Outcome, Random, World};

/// How many cases are drawn, and which: `RADDLE_CASES` and `RADDLE_SEED` say so.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    cases: usize,
    seed: usize,
}

impl Drawn {
    /// As the environment says; so many cases otherwise.
    pub fn cases(cases: usize) -> Drawn {
        let number = |name: &str, default: usize| {
            std::env::var(name).map_or(default, |n| n.parse().unwrap())
        };
        Drawn {
            cases: number("RADDLE_CASES", cases),
            seed: number("RADDLE_SEED", 1),
        }
    }

    /// The numbers of the states that they are in, so many in each, with what each is drawn from.
    pub fn states(self, in_each: usize) -> impl Iterator<Item = (usize, Random)> {
        let seed = move |state| (self.seed * 1_000_000 + state) as u64;
        (0..self.cases.div_ceil(in_each)).map(move |state| (state, Random::new(seed(state))))
    }
}

/// What was compared.
#[derive(Debug, Default)]
pub struct Compared {
    /// How often each kind of answer came.
    pub seen: BTreeMap<String, usize>,
    /// What was not as explained, with all that it takes to find out why.
    pub wrong: Vec<String>,
}

impl Compared {
    /// Says how far it is, for who watches.
    pub fn so_far(&self, state: usize, about: &str) {
        eprintln!("state {state}: {about}: {} wrong so far", self.wrong.len());
    }

    /// Nothing was wrong, and each of these kinds, which the names of answers begin with, came.
    ///
    /// # Panics
    /// Where this is not so.
    pub fn check(&self, drawn: Drawn, kinds: &[&str]) {
        let Compared { seen, wrong } = self;
        eprintln!("{seen:#?}");
        let sample: Vec<_> = wrong.iter().take(12).cloned().collect();
        let Drawn { cases, seed } = drawn;
        assert!(
            wrong.is_empty(),
            "{} of {cases} (seed {seed}):\n{}",
            wrong.len(),
            sample.join("\n")
        );
        for kind in kinds {
            let found = seen.keys().any(|key| key.starts_with(kind));
            assert!(found, "no {kind}: {seen:?}");
        }
    }
}

/// Draws what packets are hashed with, by this policy.
pub fn draw_hashing(world: &World, rng: &mut Random, policy: u32) {
    world.policy(policy);
    let seed = 1 + rng.below(u32::MAX as usize - 1);
    world.sysctl("net.ipv4.fib_multipath_hash_seed", &seed.to_string());
    for family in ["ipv4", "ipv6"] {
        let fields = (1 + rng.below(0xfff)).to_string();
        world.sysctl(&format!("net.{family}.fib_multipath_hash_fields"), &fields);
    }
}

/// What `raddle explain -j` says on the router, with these arguments, of so many packets or flows.
pub fn answers(world: &World, arguments: &[&str], count: usize) -> Vec<Value> {
    let mut command = world.command(&[&["explain", "-j"], arguments].concat());
    let outcome = Outcome::of(&mut command);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let lines = outcome.stdout.lines();
    let answers: Vec<Value> = lines.map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(answers.len(), count);
    answers
}
