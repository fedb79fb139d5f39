//! Searches over a part of the seeds, in every kind of lanes, against a loop that hashes one flow after the other.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::net::IpAddr;
use std::ops::Range;

use proptest::prelude::*;
use raddle_key_search::{Found, Observation, Progress, Search};
use raddle_select::{
    Flow, HashConfig, Hasher, Keys, Lanes, Seed, choose_plain, keys_of_flow, keys_of_plain_packet,
    upper_bounds,
};

/// What a router with this seed does with flows.
struct Router {
    seed: Seed,
    config: HashConfig,
    weights: Vec<u32>,
}

impl Router {
    fn member(&self, seed: Seed, keys: &Keys) -> usize {
        let weights: Vec<_> = self.weights.iter().copied().map(Some).collect();
        let hash = Hasher::new(seed).hash31(keys);
        choose_plain(&upper_bounds(&weights), |_| true, hash)
            .unwrap()
            .member
    }

    fn observe(&self, keys: &Keys) -> Observation {
        let took = self.member(self.seed, keys);
        let weights: Vec<_> = self.weights.iter().copied().map(Some).collect();
        Observation::of_member(keys, &upper_bounds(&weights), |member| member == took)
    }

    /// Those of the seeds with which every flow goes where it went.
    fn slowly(&self, flows: &[Keys], seeds: Range<u32>) -> Vec<Seed> {
        let took: Vec<_> = flows
            .iter()
            .map(|keys| self.member(self.seed, keys))
            .collect();
        let fits = |seed: &Seed| {
            let mut both = flows.iter().zip(&took);
            both.all(|(keys, took)| self.member(*seed, keys) == *took)
        };
        seeds.filter_map(Seed::new).filter(fits).collect()
    }
}

fn flow() -> impl Strategy<Value = Flow> {
    let v4 = any::<[[u8; 4]; 2]>().prop_map(|ends| ends.map(IpAddr::from));
    let v6 = any::<[[u8; 16]; 2]>().prop_map(|ends| ends.map(IpAddr::from));
    let proto = prop::sample::select(vec![1u8, 6, 17, 132]);
    (
        prop_oneof![v4, v6],
        proto,
        any::<(u16, u16)>(),
        0u32..1 << 20,
    )
        .prop_map(|([src, dst], proto, (sport, dport), flow_label)| Flow {
            flow_label,
            ..Flow::new(src, dst).unwrap().ports(proto, sport, dport)
        })
}

/// The range around a seed that is searched: small, since a test is compiled to be debugged.
fn around(seed: Seed, width: u32) -> Range<u32> {
    let low = seed.get().saturating_sub(width / 3).max(1);
    low..low.saturating_add(width)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_drawn_seed_is_found(
        seed in 1u32..,
        policy in 0u8..4,
        fields in 0u32..0xfff,
        weights in prop::collection::vec(1u32..20, 2..12),
        flows in prop::collection::vec((flow(), any::<bool>()), 1..24),
        threads in 1usize..4,
    ) {
        let router = Router {
            seed: Seed::new(seed).unwrap(),
            config: HashConfig::kernel(policy, fields).unwrap(),
            weights,
        };
        let keys = |(flow, local): &(Flow, bool)| match local {
            true => keys_of_flow(&router.config, flow),
            false => keys_of_plain_packet(&router.config, flow),
        };
        let flows: Vec<Keys> = flows.iter().map(keys).collect();
        let seeds = around(router.seed, 300);
        let right = router.slowly(&flows, seeds.clone());
        prop_assert!(right.contains(&router.seed));
        let observations: Vec<_> = flows.iter().map(|keys| router.observe(keys)).collect();
        for lanes in Lanes::available() {
            let search = Search::new(observations.clone()).among(seeds.clone());
            let found = search.with_lanes(lanes).with_threads(threads).run(|_| true);
            match found {
                Found::One(seed) => prop_assert_eq!(&[seed], &right[..], "{}", lanes.name()),
                Found::Several { seeds, more } => {
                    prop_assert_eq!(seeds, right.len() as u64, "{}", lanes.name());
                    prop_assert!(more > 0);
                }
                found => prop_assert!(false, "{found:?}"),
            }
        }
    }
}

/// Flows over so many paths by a router with this seed.
fn seen(seed: u32, paths: usize, flows: u8) -> Vec<Observation> {
    let router = Router {
        seed: Seed::new(seed).unwrap(),
        config: HashConfig::kernel(1, 7).unwrap(),
        weights: vec![1; paths],
    };
    let observe = |n: u8| {
        let flow = Flow::new([10, 0, 0, n].into(), [198, 18, 0, 9].into()).unwrap();
        router.observe(&keys_of_plain_packet(
            &router.config,
            &flow.ports(6, 40_000, 443),
        ))
    };
    (0..flows).map(observe).collect()
}

#[test]
fn both_ends_of_the_seeds_are_tried() {
    for seed in [1, 2, u32::MAX - 1] {
        for lanes in Lanes::available() {
            let search =
                Search::new(seen(seed, 64, 12)).among(around(Seed::new(seed).unwrap(), 1 << 16));
            let found = search.with_lanes(lanes).run(|_| true);
            assert_eq!(
                found,
                Found::One(Seed::new(seed).unwrap()),
                "{}",
                lanes.name()
            );
        }
    }
}

#[test]
fn what_no_seed_does_is_not_found() {
    let search = Search::new(seen(500_000, 4, 20)).among(1..100_000);
    assert_eq!(search.run(|_| true), Found::None);
}

#[test]
fn too_little_is_said_with_how_much_is_missing() {
    let search = Search::new(seen(54_321, 4, 3)).among(1..1 << 16);
    assert_eq!(search.wanted(), 17);
    let Found::Several { seeds, more } = search.run(|_| true) else {
        panic!("three flows over four paths tell a seed");
    };
    // 2^16 seeds, of which one in 4^3 fits; then 2^10 are left, and 18 bits are wanted.
    assert!((800..1250).contains(&seeds), "{seeds}");
    assert!((9..=10).contains(&more), "{more}");
    assert_eq!(Search::new(Vec::new()).wanted(), 40);
    assert_eq!(Search::new(seen(1, 4, 20)).wanted(), 0);
}

#[test]
fn progress_adds_up_and_ends_the_search() {
    let search = Search::new(seen(9, 4, 2)).among(1..1 << 23).with_threads(2);
    let mut last = 0;
    search.run(|Progress { tried, of }| {
        assert!(tried > last && of == (1 << 23) - 1);
        last = tried;
        true
    });
    assert_eq!(last, (1 << 23) - 1);
    let search = Search::new(seen(1 << 31, 4, 20)).with_threads(2);
    assert_eq!(search.run(|_| false), Found::Ended);
}

/// All seeds: some tens of seconds, more where it is compiled without optimisation.
#[test]
fn all_seeds_hold_one_that_fits() {
    if std::env::var_os("RADDLE_SEARCH_ALL").is_none() {
        return eprintln!("skipped: RADDLE_SEARCH_ALL=1 has every seed tried");
    }
    let search = Search::new(seen(0xfeed_5eed, 64, 9));
    assert_eq!(
        search.run(|_| true),
        Found::One(Seed::new(0xfeed_5eed).unwrap())
    );
}
