//! Packets and bytes by reason, link and adjacency, in the numbering of the image.

use raddle_image::{
    ADJACENCY_COUNTERS, LINK_COUNTERS, REASON_COUNTERS, Reason, SEGMENT_COUNTERS, SEGMENT_FAILURES,
    segment_counter, verdict_slot,
};

/// One counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes, Ethernet headers included.
    pub bytes: u64,
}

/// All counters of one engine on one core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    slots: Vec<Count>,
    /// Of segments: packets that they were carried out on. Apart from the rest, for the cache's sake.
    carried: Vec<Count>,
    /// The others, from [`segment_counter::FAILED`] on.
    failed: Vec<[u64; SEGMENT_FAILURES]>,
}

impl Counters {
    /// Counters for an image with room for this many adjacencies and segments.
    pub fn new(adjacencies: usize, segments: usize) -> Counters {
        Counters {
            slots: vec![Count::default(); ADJACENCY_COUNTERS + adjacencies],
            // One more for numbers that are none, so that nobody has to ask.
            carried: vec![Count::default(); segments + 1],
            failed: vec![[0; SEGMENT_FAILURES]; segments + 1],
        }
    }

    /// Counters read from somewhere else, in the order of the image: reasons, links, adjacencies; none
    /// of segments.
    pub fn from_slots(slots: Vec<Count>) -> Counters {
        Counters {
            slots,
            carried: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// A packet that this segment was carried out on.
    #[inline]
    pub(crate) fn carried(&mut self, number: u32, bytes: u64) {
        let last = self.carried.len() - 1;
        let count = &mut self.carried[(number as usize).min(last)];
        count.packets += 1;
        count.bytes += bytes;
    }

    /// A packet that it was not carried out on, for this reason.
    pub(crate) fn failed(&mut self, number: u32, reason: Reason) {
        let last = self.failed.len() - 1;
        let values = &mut self.failed[(number as usize).min(last)];
        values[segment_counter::of(reason) - segment_counter::FAILED] += 1;
    }

    /// What was counted of a segment, by [`raddle_image::segment_counter`].
    pub fn segment(&self, number: u32) -> [u64; SEGMENT_COUNTERS] {
        let mut values = [0; SEGMENT_COUNTERS];
        if let Some(carried) = self.carried.get(number as usize) {
            values[segment_counter::PACKETS] = carried.packets;
            values[segment_counter::BYTES] = carried.bytes;
        }
        if let Some(failed) = self.failed.get(number as usize) {
            values[segment_counter::FAILED..].copy_from_slice(failed);
        }
        values
    }

    #[inline]
    pub(crate) fn add(&mut self, slot: usize, bytes: usize) {
        self.add_all(slot, 1, bytes);
    }

    /// Several packets, and the bytes of all of them.
    #[inline]
    pub(crate) fn add_all(&mut self, slot: usize, packets: usize, bytes: usize) {
        if let Some(count) = self.slots.get_mut(slot) {
            count.packets += packets as u64;
            count.bytes += bytes as u64;
        }
    }

    /// Packets that were punted or dropped for this reason.
    pub fn reason(&self, reason: Reason) -> Count {
        let [kernel, dropped] = [false, true].map(|dropped| verdict_slot(reason, dropped));
        let mut sum = self.slot(kernel);
        if dropped != kernel {
            let dropped = self.slot(dropped);
            sum.packets += dropped.packets;
            sum.bytes += dropped.bytes;
        }
        sum
    }

    /// Those of them that were dropped.
    pub fn dropped(&self, reason: Reason) -> Count {
        self.slot(verdict_slot(reason, true))
    }

    /// Packets that came in on the link with this counter slot.
    pub fn link(&self, slot: u32) -> Count {
        if (slot as usize) < LINK_COUNTERS {
            self.slot(REASON_COUNTERS + slot as usize)
        } else {
            Count::default()
        }
    }

    /// Packets that were forwarded through this adjacency.
    pub fn adjacency(&self, number: u32) -> Count {
        self.slot(ADJACENCY_COUNTERS + number as usize)
    }

    fn slot(&self, slot: usize) -> Count {
        self.slots.get(slot).copied().unwrap_or_default()
    }
}
