//! An engine with a SID, and links to send through.

use std::sync::Arc;

use raddle_rib::Reason;
use raddle_rib::image::{
    Capacity, Group, LINK_TABLE, Memory, Segment, segment_counter, segment_flags,
};
use raddle_xdp::{Engine, LoadOptions, SegmentCounts, Verdict};

use crate::common::frames::IN_MAC;
use crate::common::image::{adjacency, config, link, threshold};
use crate::common::net::{index_of, veth};
use crate::common::tables::{Tables4, write6};
use crate::packets::addr;

pub(crate) const DST_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
pub(crate) const SRC_MAC: [u8; 6] = [2, 0, 0, 0, 2, 2];
/// Group of one adjacency, 0.
pub(crate) const SINGLE: u32 = 1;
const LOCAL: u32 = 2;
const BLACKHOLE: u32 = 3;
/// Group that leads to segment [`SID_NUMBER`].
const SEGMENT: u32 = 4;
pub(crate) const TWO_WAY: u32 = 5;
pub(crate) const SID: &str = "2001:db8:5::1";
pub(crate) const SID_NUMBER: u32 = 7;

pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) memory: Arc<Memory>,
    pub(crate) ingress: u32,
    pub(crate) out: u32,
}

/// A segment of this kind with counters.
pub(crate) fn segment(kind: u8) -> Segment {
    Segment {
        kind,
        flags: segment_flags::COUNTERS,
        table4: LINK_TABLE,
        table6: LINK_TABLE,
        ..Segment::default()
    }
}

pub(crate) fn set_up() -> Bench {
    let mut bench = set_up_without();
    bench.engine.load_srv6().unwrap();
    bench
}

/// Without the programs for segments.
pub(crate) fn set_up_without() -> Bench {
    veth("in0", "src0", 1500);
    veth("out0", "dst0", 1500);
    let capacity = Capacity {
        nodes4: 1 << 12,
        leaves4: 1 << 12,
        words6: 1 << 17,
        groups: 64,
        members: 2048,
        adjacencies: 2048,
        // Not a multiple of four, which the stripe of a CPU's counters is.
        segments: 61,
        templates: 1 << 10,
    };
    let engine = Engine::load(&LoadOptions { capacity }).unwrap();
    let memory = engine.memory();
    let (ingress, out) = (index_of("in0"), index_of("out0"));
    engine.set_out_link(out).unwrap();
    memory.store_link(ingress, &link(IN_MAC, 5));
    memory.store_adjacency(0, &adjacency(out, DST_MAC, SRC_MAC, 1500));
    memory.store_adjacency(1, &adjacency(out, DST_MAC, SRC_MAC, 1500));
    memory.store_group(0, Group::Kernel(Reason::NoRoute));
    memory.store_group(SINGLE, Group::Single(0));
    memory.store_group(LOCAL, Group::Kernel(Reason::Local));
    memory.store_group(BLACKHOLE, Group::Kernel(Reason::Blackhole));
    memory.store_group(SEGMENT, Group::Segment(SID_NUMBER));
    threshold(&memory, TWO_WAY, 0, &[(0, 1), (1, 1)]);
    let routes = [(u32::from_be_bytes([192, 0, 2, 0]), 24, SINGLE)];
    Tables4::new(&memory).table(0, 3, &routes);
    let six = |text: &str| u128::from_be_bytes(addr(text));
    let routes = [
        (six("2001:db8:1::"), 48, SINGLE),
        (six("2001:db8:2::"), 48, TWO_WAY),
        (six("2001:db8::9"), 128, LOCAL),
        (six("2001:db8:4::"), 48, BLACKHOLE),
        (six(SID), 128, SEGMENT),
    ];
    write6(&memory, &[&routes, &[(six("2001:db8:f::"), 48, SINGLE)]]);
    memory.store_config(&config(0x1234_5678, 1, 1));
    Bench {
        engine,
        memory,
        ingress,
        out,
    }
}

impl Bench {
    pub(crate) fn sid(&self, segment: &Segment) {
        self.memory.store_segment(SID_NUMBER, segment);
    }

    pub(crate) fn counts(&self) -> SegmentCounts {
        self.engine.segment_counts(SID_NUMBER).sum()
    }

    #[track_caller]
    pub(crate) fn run(&self, frame: &[u8]) -> (Verdict, Vec<u8>) {
        let output = self.engine.test_run(frame, self.ingress).unwrap();
        (output.verdict, output.frame)
    }

    /// The kernel gets the frame as it came, and the SID counts it as failed.
    #[track_caller]
    pub(crate) fn kernel(&self, frame: &[u8], reason: Reason) {
        let before = self.counts();
        let (verdict, out) = self.run(frame);
        assert_eq!(verdict, Verdict::Kernel(reason));
        assert_eq!(out, frame);
        let place = segment_counter::of(reason);
        assert_eq!(self.counts().values[place], before.values[place] + 1);
    }

    #[track_caller]
    pub(crate) fn drops(&self, frame: &[u8], reason: Reason) {
        assert_eq!(self.run(frame).0, Verdict::Drop(reason));
    }
}
