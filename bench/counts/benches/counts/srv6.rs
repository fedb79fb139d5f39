//! The userspace engine over segments: 256 frames each, with room in front, over hand-made routes.

use std::hint::black_box;

use gungraun::{library_benchmark, library_benchmark_group};
use raddle_forward::Verdict;
use raddle_image::Reason;

#[path = "../../../../crates/forward/tests/srv6/packets.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod packets;
#[path = "../../../../crates/forward/tests/srv6/router.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "tests use the rest")]
mod router;
#[path = "../../../../crates/forward/tests/srv6/scenarios.rs"]
mod scenarios;

use router::{INGRESS, Router};

const ROOM: usize = 128;

/// A router that has seen all of these frames once; and the frames.
fn warm(name: &str) -> (Router, Vec<Vec<u8>>) {
    let (mut router, frames) = scenarios::scenario(name);
    let with_room = |frame: Vec<u8>| [vec![0; ROOM], frame].concat();
    let frames: Vec<_> = frames.into_iter().map(with_room).collect();
    for frame in &frames {
        let verdict = decide(&mut router, &mut frame.clone());
        assert!(matches!(verdict, Verdict::Forward { .. }), "{verdict:?}");
    }
    (router, frames)
}

fn decide(router: &mut Router, frame: &mut [u8]) -> Verdict {
    let range = ROOM..frame.len();
    router.engine.forward_in(frame, range, INGRESS, 0)
}

#[library_benchmark(setup = warm)]
#[bench::end("End")]
#[bench::end_dx2("End.DX2")]
#[bench::h_encaps("H.Encaps")]
fn frames((mut router, mut frames): (Router, Vec<Vec<u8>>)) -> (Router, Vec<Vec<u8>>) {
    for frame in &mut frames {
        black_box(decide(&mut router, frame));
    }
    (router, frames)
}

#[library_benchmark(setup = warm)]
#[bench::end("End")]
#[bench::end_dx2("End.DX2")]
#[bench::h_encaps("H.Encaps")]
fn vectors((mut router, mut frames): (Router, Vec<Vec<u8>>)) -> (Router, Vec<Vec<u8>>) {
    let mut verdicts = [Verdict::Kernel(Reason::None); scenarios::FRAMES];
    let range = |frame: &mut Vec<u8>| ROOM..frame.len();
    let engine = &mut router.engine;
    engine.forward_all_in(&mut frames, range, INGRESS, 0, &mut verdicts);
    black_box(verdicts);
    (router, frames)
}

library_benchmark_group!(name = segments, benchmarks = [frames, vectors]);
