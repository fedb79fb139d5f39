//! An engine with a SID, and links to send through.

use raddle_image::{
    Capacity, Group, LINK_TABLE, Reason, Segment, segment_counter, segment_flags, segment_value,
};
use raddle_xdp::SegmentCounts;

use crate::bench::{Bench, DST_MAC, SINGLE, SRC_MAC};
use crate::image::{adjacency, roomy, threshold};
use crate::packets::addr;
use crate::tables::{Tables4, write6};

const LOCAL: u32 = 2;
const BLACKHOLE: u32 = 3;
/// Group of adjacencies 0 and 1.
pub const TWO_WAY: u32 = 5;
/// The SID.
pub const SID: &str = "2001:db8:5::1";
/// Number of its segment.
pub const SID_NUMBER: u32 = 7;

/// A segment of this kind with counters.
pub fn segment(kind: u8) -> Segment {
    Segment {
        kind,
        flags: segment_flags::HAS_COUNTERS,
        table4: LINK_TABLE,
        table6: LINK_TABLE,
        ..Segment::default()
    }
}

/// A bench with the programs for segments.
pub fn set_up() -> Bench {
    let mut bench = set_up_without();
    bench.engine.load_srv6().unwrap();
    bench
}

/// The same without the programs for segments.
pub fn set_up_without() -> Bench {
    let bench = Bench::new(Capacity {
        // Not a multiple of four, which the stripe of a CPU's counters is.
        segments: 61,
        ..roomy()
    });
    let (memory, out) = (&bench.memory, bench.out);
    memory.store_adjacency(1, &adjacency(out, DST_MAC, SRC_MAC, 1500));
    memory.store_group(LOCAL, Group::Kernel(Reason::Local));
    memory.store_group(BLACKHOLE, Group::Kernel(Reason::Blackhole));
    threshold(memory, TWO_WAY, 0, &[(0, 1), (1, 1)]);
    let routes = [(u32::from_be_bytes([192, 0, 2, 0]), 24, SINGLE)];
    Tables4::new(memory).table(0, 3, &routes);
    let six = |text: &str| u128::from_be_bytes(addr(text));
    let routes = [
        (six("2001:db8:1::"), 48, SINGLE),
        (six("2001:db8:2::"), 48, TWO_WAY),
        (six("2001:db8::9"), 128, LOCAL),
        (six("2001:db8:4::"), 48, BLACKHOLE),
        (six(SID), 128, segment_value(SID_NUMBER)),
    ];
    write6(memory, &[&routes, &[(six("2001:db8:f::"), 48, SINGLE)]]);
    bench
}

impl Bench {
    /// Makes the SID this segment.
    pub fn sid(&self, segment: &Segment) {
        self.memory.store_segment(SID_NUMBER, segment);
    }

    /// What the SID has counted.
    pub fn counts(&self) -> SegmentCounts {
        self.engine.segment_counts(SID_NUMBER).sum()
    }

    /// The kernel gets the frame as it came, and the SID counts it as failed.
    #[track_caller]
    pub fn fails(&self, frame: &[u8], reason: Reason) {
        let before = self.counts();
        self.kernel(frame, reason);
        let place = segment_counter::of(reason);
        assert_eq!(self.counts().values[place], before.values[place] + 1);
    }
}
