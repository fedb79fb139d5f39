//! What leaves by a link that is lost, punted before anybody has looked what follows.

use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    ADJ_FORWARD, ADJ_TAGGED, ADJ_TUNNEL, Adjacency, Bonded, Memory, SEGMENT_HEAD, Segment, Tunnel,
    segment_flags, segment_kind,
};
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

    /// By whatever zone they are in; those as well that have a VLAN upon this link.
    fn punt_adjacencies(&self, index: u32) -> usize {
        const LOWER: usize = offset_of!(Adjacency, lower) / 8;
        let used = self.adjacencies_used.load(Ordering::Acquire);
        let words = size_of::<Adjacency>() / 8;
        let all = self.adjacencies.words().chunks_exact(words);
        let punt = |cells: &&[AtomicU64]| {
            let from = cells[0].load(Ordering::Acquire);
            const FORWARDS: [u8; 3] = [ADJ_FORWARD, ADJ_TAGGED, ADJ_TUNNEL];
            let [own, state] = [from as u32, u32::from((from >> 32) as u8)];
            let lower = || cells[LOWER].load(Ordering::Acquire) as u32;
            // By a bond of which it is a member, too.
            let leads = || lower() == index || leads_by(cells, index);
            let by_lower = state == u32::from(ADJ_TAGGED) && own != index;
            let leaves = match by_lower {
                true => leads(),
                false => own == index && FORWARDS.map(u32::from).contains(&state),
            };
            let gone = Adjacency {
                index: own,
                reason: Reason::OutLink as u8,
                ..Adjacency::default()
            };
            let gone = gone.first_word();
            // Another with an equal first word may have been written here since its lower link was read.
            leaves
                && replace(&cells[0], from, gone)
                && (!by_lower || leads() || !replace(&cells[0], gone, from))
        };
        all.take(used).filter(punt).count()
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

/// Whether a link is among the members that an adjacency with tags, of these words, leaves by.
fn leads_by(cells: &[AtomicU64], index: u32) -> bool {
    const AT: usize = offset_of!(Adjacency, tunnel) / 8;
    let words = [AT, AT + 1, AT + 2, AT + 3].map(|at| cells[at].load(Ordering::Acquire));
    let bonded = Bonded::of_tunnel(&Tunnel::from_words(words));
    bonded.indices().any(|member| member == index)
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

#[cfg(test)]
mod tests {
    use raddle_select::BondPolicy;

    use super::*;
    use crate::{ADJ_KERNEL, Capacity};

    #[test]
    fn what_leaves_by_a_lost_link_is_punted() {
        let memory = Memory::heap(&Capacity {
            adjacencies: 16,
            ..Capacity::SMALL
        });
        let plain = |index, zone| Adjacency {
            index,
            zone,
            state: ADJ_FORWARD,
            ..Adjacency::default()
        };
        let tagged = |index, lower| Adjacency {
            index,
            lower,
            state: ADJ_TAGGED,
            tags: 1,
            tag: [0x8100_0005, 0],
            ..Adjacency::default()
        };
        let members = |of: &[u32]| Bonded::new(BondPolicy::Layer34, of).unwrap();
        let all = [
            plain(3, 0),
            plain(3, 5),
            plain(4, 0),
            tagged(9, 3),
            tagged(3, 4),
            tagged(8, 4),
            Adjacency {
                state: ADJ_TUNNEL,
                ..plain(3, 0)
            },
            // Its table is no link.
            Adjacency {
                state: ADJ_TUNNEL,
                lower: 3,
                ..plain(4, 0)
            },
            tagged(9, 5).by_members(members(&[6, 3])),
            tagged(9, 5).by_members(members(&[6, 4])),
        ];
        for (number, adjacency) in (0..).zip(&all) {
            memory.store_adjacency(number, adjacency);
            assert_eq!(memory.adjacency(number), *adjacency);
        }
        memory.adjacencies_used.store(all.len(), Ordering::Release);
        assert_eq!(memory.punt_link(3), 6);
        let states: Vec<bool> = (0..10)
            .map(|n| memory.adjacency(n).state == ADJ_KERNEL)
            .collect();
        let gone = [
            true, true, false, true, true, false, true, false, true, false,
        ];
        assert_eq!(states, gone);
        assert_eq!(memory.adjacency(3).index, 9);
        assert_eq!(memory.punt_link(3), 0);
    }
}
