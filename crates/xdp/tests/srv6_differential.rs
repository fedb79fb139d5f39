//! SRv6 in the program and in the userspace engine, over the same image, on the same frames: same
//! verdict, same bytes, same counters.
//!
//! Segments and groups are drawn anew again and again, frames are drawn to meet them: valid ones,
//! some with a few bytes changed, some cut. `RADDLE_CASES` sets how many frames (default 20,000).
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[path = "srv6_differential/draw.rs"]
mod draw;
#[path = "srv6_differential/image.rs"]
mod image;

use std::collections::BTreeMap;

use raddle_forward::{Engine as Userspace, HEADROOM, Verdict as Theirs};
use raddle_image::Reason;
use raddle_xdp::{SegmentCounts, Verdict};
use raddle_xdp_testing::draw::Draw;
use raddle_xdp_testing::engines::{given, monotonic, name, pin_to_one_cpu, verdict};
use raddle_xdp_testing::net::in_namespace;

/// Frames between two images.
const EACH: usize = 50;

/// What the program leaves to the kernel although the userspace engine can do it.
fn is_limit(verdict: Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Kernel(Reason::DeepHeaders | Reason::Headroom | Reason::HmacCheck)
            | Verdict::Drop(Reason::DeepHeaders | Reason::Headroom | Reason::HmacCheck)
    )
}

#[test]
fn both_engines_do_the_same_with_segments() {
    in_namespace("srv6_differential", || {
        let cases = given("RADDLE_CASES").map_or(20_000, |n| n as usize);
        let seed = given("RADDLE_SEED").unwrap_or(1);
        let image = image::Image::new();
        pin_to_one_cpu();
        let mut userspace = Userspace::new(image.memory.clone());
        let mut seen = BTreeMap::<&'static str, usize>::new();
        let mut limits = 0;
        for case in 0..cases {
            let mut draw = Draw::new(seed << 32 | (case / EACH) as u64);
            if case % EACH == 0 {
                image.redraw(&mut draw);
            }
            let mut draw = Draw::new(!(seed << 32 | case as u64));
            let mut frame = draw::frame(&mut draw);
            if draw.once_in(5) {
                frame.splice(12..12, image::TAG);
            }
            let before = counts(&image, &userspace);
            let xdp = image.engine.test_run(&frame, image.ingress).unwrap();
            let told = || image.tell(case, &frame);
            // The userspace engine would take turns that the program did not take.
            if is_limit(xdp.verdict) {
                limits += 1;
                if matches!(xdp.verdict, Verdict::Kernel(_)) {
                    assert_eq!(xdp.frame, frame, "{}", told());
                }
                continue;
            }
            let mut buffer = vec![0; HEADROOM];
            buffer.extend(&frame);
            let range = HEADROOM..buffer.len();
            let ours = userspace.forward_in(&mut buffer, range, image.ingress, monotonic());
            let after = counts(&image, &userspace);
            let bytes = match ours {
                Theirs::Forward { start, len, .. } => buffer[start..start + len].to_vec(),
                Theirs::Kernel(_) => buffer[HEADROOM..].to_vec(),
                Theirs::Drop(_) => Vec::new(),
            };
            let ours = verdict(ours);
            assert_eq!(xdp.verdict, ours, "{}", told());
            if !bytes.is_empty() {
                assert_eq!(xdp.frame, bytes, "{}", told());
            }
            for number in 0..image::SEGMENTS as usize {
                let moved = |side: usize| {
                    let (before, after) = (before[number][side], after[number][side]);
                    let pairs = after.values.iter().zip(before.values);
                    pairs.map(|(after, before)| after - before).collect()
                };
                let (xdp, ours): (Vec<u64>, Vec<u64>) = (moved(0), moved(1));
                assert_eq!(xdp, ours, "segment {number}; {}", told());
            }
            *seen.entry(name(ours)).or_default() += 1;
        }
        eprintln!("{limits} limits of the program; {seen:?}");
        assert!(seen["forwarded"] * 8 > cases, "too few: {seen:?}");
        assert!(limits * 8 < cases, "too many limits");
    });
}

/// By segment: what both engines have counted.
fn counts(image: &image::Image, userspace: &Userspace) -> Vec<[SegmentCounts; 2]> {
    let each = 0..image::SEGMENTS;
    let both = each.map(|number| {
        let values = userspace.counters().segment(number);
        let xdp = image.engine.segment_counts(number).sum();
        [xdp, SegmentCounts { values }]
    });
    both.collect()
}
