//! Packets and bytes by reason, link and adjacency, in the numbering of the image.

use raddle_rib::Reason;
use raddle_rib::image::{
    ADJACENCY_COUNTERS, LINK_COUNTERS, REASON_COUNTERS, SEGMENT_COUNTERS, verdict_slot,
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
    segments: Vec<[u64; SEGMENT_COUNTERS]>,
}

impl Counters {
    /// Counters for an image with room for this many adjacencies and segments.
    pub fn new(adjacencies: usize, segments: usize) -> Counters {
        Counters {
            slots: vec![Count::default(); ADJACENCY_COUNTERS + adjacencies],
            // One more for numbers that are none, so that nobody has to ask.
            segments: vec![[0; SEGMENT_COUNTERS]; segments + 1],
        }
    }

    /// Counters read from somewhere else, in the order of the image: reasons, links, adjacencies; none
    /// of segments.
    pub fn from_slots(slots: Vec<Count>) -> Counters {
        Counters {
            slots,
            segments: Vec::new(),
        }
    }

    /// Those of a segment, to be counted up.
    #[inline]
    pub(crate) fn of_segment(&mut self, number: u32) -> &mut [u64; SEGMENT_COUNTERS] {
        let last = self.segments.len() - 1;
        &mut self.segments[(number as usize).min(last)]
    }

    /// What was counted of a segment, by [`raddle_rib::image::segment_counter`].
    pub fn segment(&self, number: u32) -> [u64; SEGMENT_COUNTERS] {
        let counted = self.segments.get(number as usize).copied();
        counted.unwrap_or_default()
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

    /// Packets that were handed over or dropped for this reason.
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
