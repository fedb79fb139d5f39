//! What packets leave by, in bytes.

use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering;

use super::Memory;

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
    /// Below [`ZONES`](super::ZONES), but for [`FILTERED_APART`](super::FILTERED_APART): out-links of a zone are alike to the
    /// firewall and to `rp_filter`, see [`LinkEntry::closed4`](super::LinkEntry::closed4).
    pub zone: u8,
    /// Zero.
    pub pad: u8,
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

    /// The first word: out-link, state, reason and zone.
    pub fn first_word(&self) -> u64 {
        u64::from(self.index)
            | u64::from(self.state) << 32
            | u64::from(self.reason) << 40
            | u64::from(self.zone) << 48
    }
}

impl Memory {
    /// The first word of the adjacency with this number, which must be inside the capacity.
    pub fn adjacency_word(&self, number: u32) -> u64 {
        self.adjacencies.words()[number as usize * Adjacency::WORDS].load(Ordering::Acquire)
    }

    /// Stores only the first word, likewise.
    pub fn store_adjacency_word(&self, number: u32, adjacency: &Adjacency) {
        self.adjacencies.words()[number as usize * Adjacency::WORDS]
            .store(adjacency.first_word(), Ordering::Release);
    }
}

const _: () = assert!(size_of::<Adjacency>() == 64 && offset_of!(Adjacency, dst_mac) == 8);
const _: () = assert!(offset_of!(Adjacency, mtu) == 20);
