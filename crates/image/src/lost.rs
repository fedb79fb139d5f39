//! What leaves by a link that is lost, punted before anybody has looked what follows.

use std::mem::size_of;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{ADJ_FORWARD, Adjacency, Memory, SEGMENT_HEAD, Segment, segment_flags, segment_kind};
use crate::Reason;

impl Memory {
    /// Punts, from now on, what leaves by this link: the kernel knows where else it may go. Returns how many
    /// adjacencies and End.DX2 segments sent by it.
    ///
    /// Any thread may call this, also while another publishes: it is meant for the one that hears first of a link
    /// that is lost, before anybody has looked what follows. The mirror's next commit notices, and writes what the
    /// mirror makes of the link once it has been told.
    ///
    /// Cost: one word for each adjacency that was ever used, and for each segment up to the last that was ever an
    /// End.DX2.
    pub fn punt_link(&self, index: u32) -> usize {
        self.punt_adjacencies(index) + self.punt_dx2(index)
    }

    fn punt_adjacencies(&self, index: u32) -> usize {
        let gone = Adjacency {
            index,
            reason: Reason::OutLink as u8,
            ..Adjacency::default()
        };
        let forwards = Adjacency {
            state: ADJ_FORWARD,
            reason: 0,
            ..gone
        };
        let used = self.adjacencies_used.load(Ordering::Acquire);
        let words = size_of::<Adjacency>() / 8;
        let cells = self.adjacencies.words().iter().step_by(words);
        let (from, to) = (forwards.first_word(), gone.first_word());
        let punt = |cell: &&AtomicU64| replace(cell, from, to);
        cells.take(used).filter(punt).count()
    }

    /// Of raddle's own the kernel knows nothing: packets for them are dropped, as the rule of their building says
    /// for a link that cannot be used.
    fn punt_dx2(&self, index: u32) -> usize {
        let used = self.dx2_used.load(Ordering::Acquire);
        let heads = self.segments.words().chunks_exact(SEGMENT_HEAD / 8);
        let punt = |head: &&[AtomicU64]| {
            let from = head[0].load(Ordering::Acquire);
            // The kind is the first byte, the flags the fourth.
            let [kind, _, _, flags, ..] = from.to_ne_bytes();
            let out = || head[1].load(Ordering::Acquire) as u32;
            if kind != segment_kind::END_DX2 || out() != index {
                return false;
            }
            let gone = Segment {
                kind: segment_kind::KERNEL,
                reason: lost_dx2(flags & segment_flags::NO_PUNT != 0) as u8,
                flags,
                ..Segment::default()
            };
            // Another End.DX2 may have been written here since `out` was read, with an equal first word.
            replace(&head[0], from, gone.first_word())
                && (out() == index || !replace(&head[0], gone.first_word(), from))
        };
        heads.take(used).filter(punt).count()
    }

    /// The first word of the segment with this number, which must be inside the capacity.
    pub fn segment_word(&self, number: u32) -> u64 {
        self.segments.words()[number as usize * (SEGMENT_HEAD / 8)].load(Ordering::Acquire)
    }
}

/// Why an End.DX2 is not carried out whose link cannot be used. `own`: the kernel does not have it.
pub fn lost_dx2(own: bool) -> Reason {
    match own {
        true => Reason::SegmentLink,
        false => Reason::OutLink,
    }
}

/// Changes a word that is still as it was: one that changes meanwhile is being written by who knows better.
fn replace(cell: &AtomicU64, from: u64, to: u64) -> bool {
    cell.load(Ordering::Relaxed) == from
        && cell
            .compare_exchange(from, to, Ordering::Release, Ordering::Relaxed)
            .is_ok()
}
