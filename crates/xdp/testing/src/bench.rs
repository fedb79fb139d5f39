//! An engine over an image made by hand, with a link that packets come in by and one that they leave by.

use std::sync::Arc;

use raddle_image::{Capacity, Group, LinkEntry, Memory, Reason};
use raddle_xdp::{Engine, LoadOptions, Verdict};

use crate::frames::IN_MAC;
use crate::image::{adjacency, config, link};
use crate::net::{index_of, veth};

/// MAC address that adjacencies send to.
pub const DST_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
/// MAC address that they send from.
pub const SRC_MAC: [u8; 6] = [2, 0, 0, 0, 2, 2];
/// Hash seed.
pub const SEED: u32 = 0x1234_5678;
/// Group of one adjacency, 0.
pub const SINGLE: u32 = 1;

/// The engine, its image, and its links `in0` and `out0`.
pub struct Bench {
    /// The engine.
    pub engine: Engine,
    /// Its image.
    pub memory: Arc<Memory>,
    /// Index of `in0`, which counts in slot 5.
    pub ingress: u32,
    /// Index of `out0`.
    pub out: u32,
}

impl Bench {
    /// An image without routes: policy 1, adjacency 0 through `out0`, and the group [`SINGLE`].
    pub fn new(capacity: Capacity) -> Bench {
        veth("in0", "src0", 1500);
        veth("out0", "dst0", 1500);
        let engine = Engine::load(&LoadOptions { capacity }).unwrap();
        let memory = engine.memory();
        let (ingress, out) = (index_of("in0"), index_of("out0"));
        engine.set_out_link(out).unwrap();
        memory.store_link(ingress, &link(ingress, IN_MAC, 5));
        memory.store_adjacency(0, &adjacency(out, DST_MAC, SRC_MAC, 1500));
        memory.store_group(0, Group::Kernel(Reason::NoRoute));
        memory.store_group(SINGLE, Group::Single(0));
        memory.store_config(&config(SEED, 1, 1));
        Bench {
            engine,
            memory,
            ingress,
            out,
        }
    }

    /// What becomes of a frame that comes in by `in0`.
    #[track_caller]
    pub fn run(&self, frame: &[u8]) -> (Verdict, Vec<u8>) {
        let output = self.engine.test_run(frame, self.ingress).unwrap();
        (output.verdict, output.frame)
    }

    /// The kernel gets the frame, untouched and counted.
    #[track_caller]
    pub fn kernel(&self, frame: &[u8], reason: Reason) {
        let before = self.engine.counters();
        let (verdict, after) = self.run(frame);
        assert_eq!(verdict, Verdict::Kernel(reason));
        assert_eq!(after, frame, "{reason}: the frame was touched");
        let counters = self.engine.counters();
        let bytes = counters.reason(reason).bytes - before.reason(reason).bytes;
        assert_eq!(bytes, frame.len() as u64);
        let counted = counters.link(5).packets - before.link(5).packets;
        let by_link = reason != Reason::NotEnabled;
        assert_eq!(counted, u64::from(by_link), "{reason}: the link's counter");
        let left = counters.left(5).packets - before.left(5).packets;
        assert_eq!(
            left,
            u64::from(reason.is_transit()),
            "{reason}: what is left"
        );
    }

    /// The frame is dropped.
    #[track_caller]
    pub fn drops(&self, frame: &[u8], reason: Reason) {
        let before = self.engine.counters().left(5);
        assert_eq!(self.run(frame).0, Verdict::Drop(reason));
        assert_eq!(
            self.engine.counters().left(5),
            before,
            "{reason}: what is left"
        );
    }

    /// The frame goes out by an adjacency; returns it.
    #[track_caller]
    pub fn forward(&self, frame: &[u8], adjacency: u32) -> Vec<u8> {
        let before = self.engine.counters();
        let (verdict, after) = self.run(frame);
        let index = self.memory.adjacency(adjacency).index;
        assert_eq!(verdict, Verdict::Forward { adjacency, index });
        let counters = self.engine.counters();
        let link = counters.link(5).bytes - before.link(5).bytes;
        assert_eq!(link, frame.len() as u64);
        let sent = counters.adjacency(adjacency).bytes - before.adjacency(adjacency).bytes;
        assert_eq!(sent, after.len() as u64);
        after
    }

    /// Changes `in0`.
    pub fn with_link(&self, change: impl FnOnce(&mut LinkEntry)) {
        let mut entry = link(self.ingress, IN_MAC, 5);
        change(&mut entry);
        self.memory.store_link(self.ingress, &entry);
    }
}
