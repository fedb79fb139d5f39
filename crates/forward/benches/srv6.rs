//! SRv6 in memory, on one core: packets a second.
//!
//! `cargo bench -p raddle-forward --bench srv6`. Frames of 256 flows lie in buffers with room in front,
//! which are filled again outside of the time that counts: each is decided about once. A name as
//! argument is the only kind that is measured, `vectors` behind it the only way.
#![allow(clippy::unwrap_used)] // a benchmark may fail

use std::time::{Duration, Instant};

use raddle_forward::Verdict;
use raddle_image::Reason;

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

/// A buffer, and where in it the frame is.
struct Room<'a>(&'a mut [u8], usize);

impl AsMut<[u8]> for Room<'_> {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0
    }
}

fn main() {
    let named = |n| std::env::args().nth(n).filter(|arg| !arg.starts_with("-"));
    let (only, way) = (named(1), named(2));
    for name in ["plain IPv6", "End", "End.DX2", "H.Encaps"] {
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let (mut router, frames) = scenario(name);
        let mut fresh = vec![0; STRIDE * FRAMES];
        for (place, bytes) in fresh.chunks_mut(STRIDE).zip(&frames) {
            place[ROOM..ROOM + bytes.len()].copy_from_slice(bytes);
        }
        let mut buffers = fresh.clone();
        for vectors in [false, true] {
            if way
                .as_deref()
                .is_some_and(|way| (way == "vectors") != vectors)
            {
                continue;
            }
            let mut best = Duration::MAX;
            let mut total = Duration::ZERO;
            for _ in 0..ROUNDS {
                buffers.copy_from_slice(&fresh);
                let buffers = buffers.chunks_mut(STRIDE).zip(&frames);
                let mut rooms: Vec<_> = buffers.map(|(b, f)| Room(b, ROOM + f.len())).collect();
                let mut verdicts = [Verdict::Drop(Reason::None); FRAMES];
                let before = Instant::now();
                if vectors {
                    let range = |room: &mut Room<'_>| ROOM..room.1;
                    let engine = &mut router.engine;
                    engine.forward_all_in(&mut rooms, range, INGRESS, 0, &mut verdicts);
                } else {
                    for (Room(buffer, end), verdict) in rooms.iter_mut().zip(&mut verdicts) {
                        *verdict = router.engine.forward_in(buffer, ROOM..*end, INGRESS, 0);
                    }
                }
                let took = before.elapsed();
                let forwarded = |verdict: &Verdict| matches!(verdict, Verdict::Forward { .. });
                assert!(verdicts.iter().all(forwarded), "{verdicts:?}");
                best = best.min(took);
                total += took;
            }
            let rate =
                |time: Duration, rounds: usize| (FRAMES * rounds) as f64 / time.as_secs_f64() / 1e6;
            println!(
                "{name:10} {:10} {:6.1} Mpps at best, {:6.1} on average",
                if vectors { "vectors" } else { "one by one" },
                rate(best, 1),
                rate(total, ROUNDS)
            );
        }
    }
}
