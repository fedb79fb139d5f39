//! SRv6 in memory, on one core: packets a second.
//!
//! `cargo bench -p raddle-forward --bench srv6`. Frames of 256 flows lie in buffers with room in front,
//! which are filled again outside of the time that counts: each is decided about once.
#![allow(clippy::unwrap_used)] // a benchmark may fail

use std::time::{Duration, Instant};

use raddle_forward::Verdict;

#[path = "../tests/srv6/packets.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod packets;
#[path = "../tests/srv6/router.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod router;

#[path = "../tests/srv6/scenarios.rs"]
mod scenarios;

use router::INGRESS;
use scenarios::{FRAMES, scenario};

/// Room in front of each frame, and of each buffer.
const ROOM: usize = 128;
const STRIDE: usize = 512;
const ROUNDS: usize = 20_000;

fn main() {
    for name in ["plain IPv6", "End", "End.DX2", "H.Encaps"] {
        let (mut router, frames) = scenario(name);
        let mut fresh = vec![0; STRIDE * FRAMES];
        for (place, bytes) in fresh.chunks_mut(STRIDE).zip(&frames) {
            place[ROOM..ROOM + bytes.len()].copy_from_slice(bytes);
        }
        let mut buffers = fresh.clone();
        let mut best = Duration::MAX;
        let mut total = Duration::ZERO;
        for _ in 0..ROUNDS {
            buffers.copy_from_slice(&fresh);
            let before = Instant::now();
            for (buffer, bytes) in buffers.chunks_mut(STRIDE).zip(&frames) {
                let range = ROOM..ROOM + bytes.len();
                let verdict = router.engine.forward_in(buffer, range, INGRESS, 0);
                assert!(matches!(verdict, Verdict::Forward { .. }), "{verdict:?}");
            }
            let took = before.elapsed();
            best = best.min(took);
            total += took;
        }
        let rate =
            |time: Duration, rounds: usize| (FRAMES * rounds) as f64 / time.as_secs_f64() / 1e6;
        println!(
            "{name:12} {:6.1} Mpps at best, {:6.1} on average",
            rate(best, 1),
            rate(total, ROUNDS)
        );
    }
}
