//! How long a whole search takes, in each kind of lanes and by how many paths the flows were spread.

use std::time::Instant;

use raddle_key_search::{Found, Observation, Search};
use raddle_select::{
    Flow, Hasher, Lanes, Policy, Seed, choose_plain, keys_of_plain_packet, upper_bounds,
};

/// What a flow does not tell: as many bits as keep the search from ending early.
const FLOWS: [(usize, u8); 2] = [(64, 9), (4, 20)];

fn main() {
    let Some(seed) = Seed::new(0xfeed_5eed) else {
        return;
    };
    for lanes in Lanes::available() {
        for (paths, flows) in FLOWS {
            let uppers = upper_bounds(&vec![Some(1); paths]);
            let hasher = Hasher::new(seed);
            let observe = |n: u8| {
                let flow = Flow::new([10, 0, 0, n].into(), [198, 18, 0, 9].into())?;
                let keys = keys_of_plain_packet(&Policy::L4.into(), &flow.ports(6, 40_000, 443));
                let took = choose_plain(&uppers, |_| true, hasher.hash31(&keys))?;
                let is = |member| member == took.member;
                Some(Observation::of_member(&keys, &uppers, is))
            };
            let observations = (0..flows).filter_map(observe).collect();
            let start = Instant::now();
            let found = Search::new(observations).with_lanes(lanes).run(|_| true);
            let took = start.elapsed().as_secs_f64();
            let right = matches!(found, Found::One(found) if found == seed);
            let name = lanes.name();
            println!(
                "{name}: {flows} flows over {paths} paths, all 2^32 seeds in {took:.1} s, right: {right}"
            );
        }
    }
}
