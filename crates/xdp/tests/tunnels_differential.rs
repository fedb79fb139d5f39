//! Tunnels in the program and in the userspace engine, over the same image, on the same frames: same verdict, same bytes, same
//! counters.
//!
//! Tunnels, links and groups are drawn anew again and again, frames are drawn to meet them: packets that leave by a tunnel or
//! come in by one, valid ones, some with a few bytes changed, some cut. `RADDLE_CASES` sets how many frames (default 20,000).
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[path = "tunnels_differential/image.rs"]
mod image;
#[path = "tunnels_differential/packets.rs"]
mod packets;

use std::collections::BTreeMap;

use raddle_forward::{Engine as Userspace, HEADROOM, Verdict as Theirs};
use raddle_image::Reason;
use raddle_xdp::Verdict;
use raddle_xdp_testing::draw::Draw;
use raddle_xdp_testing::engines::{given, monotonic, name, pin_to_one_cpu, verdict};
use raddle_xdp_testing::frames::checksum;
use raddle_xdp_testing::net::in_namespace;

use image::{ADJACENCIES, Image, SLOTS};
use packets::{HERE, Shape};

/// Frames between two images.
const EACH: usize = 50;

/// What both engines count: packets and bytes of links and adjacencies.
type Counts = Vec<(u64, u64)>;

fn of_program(image: &Image) -> Counts {
    let counters = image.engine.counters();
    let links = SLOTS.map(|slot| counters.link(slot));
    let adjacencies = (0..ADJACENCIES).map(|number| counters.adjacency(number));
    let all = links.chain(adjacencies);
    all.map(|counter| (counter.packets, counter.bytes))
        .collect()
}

fn of_userspace(userspace: &Userspace) -> Counts {
    let counters = userspace.counters();
    let links = SLOTS.map(|slot| counters.link(slot));
    let adjacencies = (0..ADJACENCIES).map(|number| counters.adjacency(number));
    let all = links.chain(adjacencies);
    all.map(|counter| (counter.packets, counter.bytes))
        .collect()
}

fn moved(before: &Counts, after: &Counts) -> Counts {
    let pairs = after.iter().zip(before);
    pairs
        .map(|(after, before)| (after.0 - before.0, after.1 - before.1))
        .collect()
}

/// The frame without what is drawn: the identification of an outer packet that may be fragmented, and the checksum, which has to be
/// right.
fn without_id(mut frame: Vec<u8>) -> Vec<u8> {
    let mut at = 12;
    while frame
        .get(at..at + 2)
        .is_some_and(|kind| matches!(kind, [0x81, 0] | [0x88, 0xa8]))
    {
        at += 4;
    }
    let Some(packet) = frame.get_mut(at + 2..) else {
        return frame;
    };
    if packet.len() >= 20
        && packet[0] == 0x45
        && packet[12..15] == HERE[..3]
        && packet[6] & 0x40 == 0
    {
        assert_eq!(packet[10..12], checksum(&packet[..20]).to_be_bytes());
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    frame
}

#[test]
fn both_engines_do_the_same_with_tunnels() {
    in_namespace("tunnels_differential", || {
        let cases = given("RADDLE_CASES").map_or(20_000, |n| n as usize);
        let seed = given("RADDLE_SEED").unwrap_or(1);
        let mut image = Image::new();
        pin_to_one_cpu();
        let mut userspace = Userspace::new(image.memory.clone());
        let mut seen = BTreeMap::<(Shape, &'static str), usize>::new();
        let mut limits = 0;
        for case in 0..cases {
            let mut draw = Draw::new(seed << 32 | (case / EACH) as u64);
            if case % EACH == 0 {
                image.redraw(&mut draw);
            }
            let mut draw = Draw::new(!(seed << 32 | case as u64));
            let (shape, frame) = packets::frame(&mut draw);
            let before = (of_program(&image), of_userspace(&userspace));
            let xdp = image.engine.test_run(&frame, image.ingress).unwrap();
            let told = || image.tell(case, shape, &frame);
            // The userspace engine would take turns that the program did not take.
            if xdp.verdict == Verdict::Kernel(Reason::DeepHeaders) {
                limits += 1;
                assert_eq!(xdp.frame, frame, "{}", told());
                continue;
            }
            let mut buffer = vec![0; HEADROOM];
            buffer.extend(&frame);
            let range = HEADROOM..buffer.len();
            let ours = userspace.forward_in(&mut buffer, range, image.ingress, monotonic());
            let bytes = match ours {
                Theirs::Forward { start, len, .. } => buffer[start..start + len].to_vec(),
                Theirs::Kernel(_) => buffer[HEADROOM..].to_vec(),
                Theirs::Drop(_) => Vec::new(),
            };
            let ours = verdict(ours);
            assert_eq!(xdp.verdict, ours, "{}", told());
            if matches!(ours, Verdict::Forward { .. }) {
                assert_eq!(without_id(xdp.frame), without_id(bytes), "{}", told());
            } else if !bytes.is_empty() {
                assert_eq!(xdp.frame, frame, "{}", told());
                assert_eq!(bytes, frame, "{}", told());
            }
            let theirs = moved(&before.0, &of_program(&image));
            assert_eq!(
                theirs,
                moved(&before.1, &of_userspace(&userspace)),
                "{}",
                told()
            );
            *seen.entry((shape, name(ours))).or_default() += 1;
        }
        eprintln!("{limits} limits of the program");
        for (what, count) in &seen {
            eprintln!("{what:?}: {count}");
        }
        for shape in Shape::ALL {
            let of = |wanted: Option<&str>| -> usize {
                let of = seen
                    .iter()
                    .filter(|((is, name), _)| *is == shape && wanted.is_none_or(|n| n == *name));
                of.map(|(_, count)| count).sum()
            };
            assert!(
                of(Some("forwarded")) * 24 > of(None),
                "too few are forwarded of {shape:?}"
            );
        }
        assert!(limits * 50 < cases, "too many limits");
    });
}
