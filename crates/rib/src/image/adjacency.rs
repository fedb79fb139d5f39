//! What packets leave by, in bytes.

use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering;

use super::Memory;
use crate::reason::Reason;

/// A nexthop resolved to bytes. 64 bytes, one cache line.
///
/// The first word is written last and cleared first: while `state` is not [`ADJ_FORWARD`] the rest
/// is not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Adjacency {
    /// Out-link; the segment where the state is [`ADJ_SEGMENT`].
    pub index: u32,
    /// [`ADJ_KERNEL`], [`ADJ_FORWARD`] or [`ADJ_SEGMENT`].
    pub state: u8,
    /// Why, when the state is [`ADJ_KERNEL`] (a [`crate::Reason`]).
    pub reason: u8,
    /// Zero.
    pub pad: u16,
    /// Neighbour's MAC address.
    pub dst_mac: [u8; 6],
    /// Out-link's MAC address.
    pub src_mac: [u8; 6],
    /// Largest IP packet that may go out, in bytes.
    pub mtu: u32,
    /// Zero.
    pub rest: [u32; 10],
}

/// Adjacency state: to the kernel.
pub const ADJ_KERNEL: u8 = 0;
/// Adjacency state: forward.
pub const ADJ_FORWARD: u8 = 1;
/// Adjacency state: [`Segment`](super::Segment) `index` says what becomes of the packet.
pub const ADJ_SEGMENT: u8 = 2;

impl Adjacency {
    /// Words of one in the image.
    const WORDS: usize = size_of::<Adjacency>() / 8;

    /// The first word: out-link, state and reason.
    pub(crate) fn first_word(&self) -> u64 {
        u64::from(self.index) | u64::from(self.state) << 32 | u64::from(self.reason) << 40
    }
}

impl Memory {
    /// The first word of the adjacency with this number, which must be inside the capacity.
    pub(crate) fn adjacency_word(&self, number: u32) -> u64 {
        self.adjacencies.words()[number as usize * Adjacency::WORDS].load(Ordering::Acquire)
    }

    /// Stores only the first word, likewise.
    pub(crate) fn store_adjacency_word(&self, number: u32, adjacency: &Adjacency) {
        self.adjacencies.words()[number as usize * Adjacency::WORDS]
            .store(adjacency.first_word(), Ordering::Release);
    }

    /// Punts, from now on, what leaves by this link: the kernel knows where else it may go. Returns how many
    /// adjacencies forwarded by it.
    ///
    /// Any thread may call this, also while another publishes: it is meant for the one that hears first of a link
    /// that is lost, before anybody has looked what follows. [`crate::Rib::commit`] notices, and writes what the
    /// mirror makes of the link once it has been told.
    ///
    /// Cost: one word for each adjacency that was ever used.
    pub fn punt_link(&self, index: u32) -> usize {
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
        let cells = self.adjacencies.words().iter().step_by(Adjacency::WORDS);
        let (from, to) = (forwards.first_word(), gone.first_word());
        // A word that changes meanwhile is being written by who knows better.
        let punt = |cell: &&std::sync::atomic::AtomicU64| {
            cell.load(Ordering::Relaxed) == from
                && cell
                    .compare_exchange(from, to, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
        };
        cells.take(used).filter(punt).count()
    }
}

const _: () = assert!(size_of::<Adjacency>() == 64 && offset_of!(Adjacency, dst_mac) == 8);
const _: () = assert!(offset_of!(Adjacency, mtu) == 20);
