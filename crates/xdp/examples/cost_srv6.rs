//! What SRv6 costs in the program, without drivers: nanoseconds from repeated test runs, less those of
//! putting the frame back. Needs root. Interleaved rounds, the best of each; the last column is the
//! main program alone, on an IPv6 packet that is forwarded.
//!
//! `cargo run --release -p raddle-xdp --example cost_srv6`
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark that fails has nothing to say"
)]

use raddle_image::{Segment, flavours, segment_flags, segment_kind};
use raddle_xdp::bench::Bench;
use raddle_xdp_testing::frames::udp4;
use raddle_xdp_testing::net::in_namespace;
use raddle_xdp_testing::packets::{Srh, addr, inner4, inner6, ipv6, outer};
use raddle_xdp_testing::segments::{SID, SID_NUMBER, segment, set_up};

const REPEAT: u32 = 300_000;
const ROUNDS: usize = 25;

fn main() {
    in_namespace("cost_srv6", measure);
}

fn measure() {
    let own = set_up();
    let bench = Bench::load(1).unwrap();
    let src = "2001:db8:ff::1";
    let there = "2001:db8:1::7";
    let with = |next, left, inner: &[u8]| {
        let segments: &[&str] = if left == 1 { &[there, SID] } else { &[SID] };
        outer(src, SID, &Srh::new(next, left, segments), inner)
    };
    let four = inner4([10, 0, 0, 1], [192, 0, 2, 7], 64, &[1; 100]);
    let six = inner6(src, there, 64, &[2; 100]);
    let frame = udp4([10, 0, 0, 1], [10, 0, 0, 2], (1, 2), 100);
    let plain = segment(segment_kind::END);
    let template = [
        [0x60, 0, 0, 0, 0, 0, 41, 64],
        [0x20, 1, 0xd, 0xb8, 0, 0xfe, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 1],
        [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 9],
    ];
    for (place, word) in (0..).zip(template) {
        own.memory
            .store_template_word(place, u64::from_le_bytes(word));
    }
    let csid = Segment {
        kind: segment_kind::END_X,
        target: addr(there),
        flavours: flavours::NEXT_CSID,
        block: 12,
        csid: 2,
        ..plain
    };
    let cases = [
        ("End", plain, with(41, 1, &six)),
        (
            "End, PSP",
            Segment {
                flavours: flavours::PSP,
                ..plain
            },
            with(41, 1, &six),
        ),
        ("End.X, NEXT-C-SID", csid, ipv6(src, SID, 41, &six)),
        (
            "End.X",
            Segment {
                kind: segment_kind::END_X,
                target: addr(there),
                ..plain
            },
            with(41, 1, &six),
        ),
        (
            "End.DX2",
            Segment {
                kind: segment_kind::END_DX2,
                out: own.out,
                mtu: 1500,
                ..plain
            },
            with(143, 0, &frame),
        ),
        ("End.DX4", segment(segment_kind::END_DX4), with(4, 0, &four)),
        ("End.DX6", segment(segment_kind::END_DX6), with(41, 0, &six)),
        (
            "H.Encaps",
            Segment {
                kind: segment_kind::ENCAPS,
                size: 40,
                ..plain
            },
            ipv6(src, SID, 17, &[1; 120]),
        ),
    ];
    println!(
        "ns a packet over the empty program, best of {ROUNDS} rounds: counters on, off, no segment"
    );
    let through = ipv6(src, there, 17, &[1; 120]);
    for (name, case, frame) in cases {
        let mut rows = [const { Vec::new() }; 4];
        let time = |engine, frame: &[u8]| {
            let time = bench.time_frame(engine, frame, own.ingress, REPEAT);
            time.unwrap()
        };
        for _ in 0..ROUNDS {
            rows[0].push(time(None, &frame));
            own.memory.store_segment(SID_NUMBER, &case);
            rows[1].push(time(Some(&own.engine), &frame));
            let flags = case.flags & !segment_flags::HAS_COUNTERS;
            own.memory
                .store_segment(SID_NUMBER, &Segment { flags, ..case });
            rows[2].push(time(Some(&own.engine), &frame));
            rows[3].push(time(Some(&own.engine), &through));
        }
        let [empty, on, off, main] = rows.map(|mut row| {
            row.sort_unstable();
            i64::from(row[0])
        });
        let (on, off, main) = (on - empty, off - empty, main - empty);
        println!("{name:18} {on:4} {off:4} {main:4}  (empty {empty})");
    }
    for reason in raddle_image::Reason::ALL {
        let counter = own.engine.counters().reason(reason);
        if counter.packets != 0 {
            println!("{reason}: {}", counter.packets);
        }
    }
}
