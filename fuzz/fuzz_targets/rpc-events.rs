//! Any bytes as what happens around the core of the RPC proxy, in which order, how often and how late: what is promised
//! of calls and replies holds.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/rpc-core/tests/world/mod.rs"]
mod world;

/// Steps, at most.
const MOST: usize = 1000;

fuzz_target!(|data: &[u8]| {
    let Some((kind, steps)) = data.split_first() else {
        return;
    };
    let (steps, _) = steps.as_chunks::<4>();
    world::run(*kind, steps.iter().take(MOST).copied());
});
