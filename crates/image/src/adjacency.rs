//! What packets leave by, in bytes.

use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering;

use super::{Bonded, Memory, Tunnel};

/// A nexthop resolved to bytes. 64 bytes, one cache line.
///
/// The first word is written last and cleared first: while `state` is not [`ADJ_FORWARD`] the rest
/// is not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Adjacency {
    /// Out-link; the segment where the state is [`ADJ_SEGMENT`].
    pub index: u32,
    /// [`ADJ_KERNEL`], [`ADJ_FORWARD`], [`ADJ_SEGMENT`], [`ADJ_TAGGED`] or [`ADJ_TUNNEL`].
    pub state: u8,
    /// Why, when the state is [`ADJ_KERNEL`] (a [`crate::Reason`]).
    pub reason: u8,
    /// Below [`ZONES`](super::ZONES), but for [`FILTERED_APART`](super::FILTERED_APART): out-links of a zone are alike to the
    /// firewall and to `rp_filter`, see [`LinkEntry::closed4`](super::LinkEntry::closed4).
    pub zone: u8,
    /// How many of `tag` are put into frames, where the state is [`ADJ_TAGGED`], 0 to 2; else 0.
    pub tags: u8,
    /// Neighbour's MAC address.
    pub dst_mac: [u8; 6],
    /// Out-link's MAC address.
    pub src_mac: [u8; 6],
    /// Largest IP packet that may go out, in bytes.
    pub mtu: u32,
    /// Where the state is [`ADJ_TAGGED`], the link that frames leave by: the one below the VLANs, or the port of the bridge; where there
    /// is a [`Bonded`], the bond of these members. Where it is
    /// [`ADJ_TUNNEL`], the table that outer packets are looked up in.
    pub lower: u32,
    /// And their tags from the outermost on: in host byte order, the EtherType in the upper half.
    pub tag: [u32; MAX_TAGS],
    /// What packets are put into, where the state is [`ADJ_TUNNEL`]. Where it is [`ADJ_TAGGED`], the bytes of a [`Bonded`]
    /// ([`Adjacency::bonded`]). Else zero.
    pub tunnel: Tunnel,
}

/// As many VLAN tags are taken off a frame or put into it at most.
pub const MAX_TAGS: usize = 2;
/// Bytes of one.
pub const TAG: usize = 4;

/// Adjacency state: to the kernel.
pub const ADJ_KERNEL: u8 = 0;
/// Adjacency state: forward.
pub const ADJ_FORWARD: u8 = 1;
/// Adjacency state: [`Segment`](super::Segment) `index` says what becomes of the packet.
pub const ADJ_SEGMENT: u8 = 2;
/// Adjacency state: forward by another link than the adjacency's own, with tags in the frame or without: by a VLAN, a bridge, a macvlan.
pub const ADJ_TAGGED: u8 = 3;
/// Adjacency state: put into a packet to the other end of a tunnel, which is looked up then.
pub const ADJ_TUNNEL: u8 = 4;

impl Adjacency {
    /// Words of one in the image.
    const WORDS: usize = size_of::<Adjacency>() / 8;

    /// The first word: out-link, state, reason, zone and number of tags.
    pub fn first_word(&self) -> u64 {
        u64::from(self.index)
            | u64::from(self.state) << 32
            | u64::from(self.reason) << 40
            | u64::from(self.zone) << 48
            | u64::from(self.tags) << 56
    }

    /// Whether packets are sent to it, by whatever link.
    pub fn forwards(&self) -> bool {
        matches!(self.state, ADJ_FORWARD | ADJ_TAGGED | ADJ_TUNNEL)
    }

    /// The link that frames leave by, of one that [`Adjacency::forwards`]: its own, or what is below that.
    pub fn leaves_by(&self) -> u32 {
        match self.state {
            ADJ_TAGGED => self.lower,
            _ => self.index,
        }
    }

    /// The members of a bond that frames leave by, where engines choose among them.
    #[inline]
    pub fn bonded(&self) -> Option<Bonded> {
        let bonded = || Some(Bonded::of_tunnel(&self.tunnel)).filter(|bonded| bonded.count > 0);
        (self.state == ADJ_TAGGED).then(bonded).flatten()
    }

    /// The same adjacency, which is [`ADJ_TAGGED`], by these members.
    #[must_use]
    pub fn by_members(self, members: Bonded) -> Adjacency {
        Adjacency {
            tunnel: members.to_tunnel(),
            ..self
        }
    }

    /// The tags that are put into frames, the outermost first.
    pub fn put_tags(&self) -> &[u32] {
        &self.tag[..usize::from(self.tags).min(MAX_TAGS)]
    }
}

impl Memory {
    /// The first word of the adjacency with this number, which must be inside the capacity.
    pub fn adjacency_word(&self, number: u32) -> u64 {
        self.adjacencies.words()[number as usize * Adjacency::WORDS].load(Ordering::Acquire)
    }

    /// An adjacency that has tags or is of a tunnel, with these.
    #[cold]
    pub(crate) fn with_rest(&self, adjacency: Adjacency, number: u32) -> Adjacency {
        const AT: usize = offset_of!(Adjacency, lower) / 8;
        let first = number as usize * Adjacency::WORDS;
        let word = |at: usize| self.adjacencies.words()[first + at].load(Ordering::Acquire);
        let [low, high] = [word(AT), word(AT + 1)];
        Adjacency {
            lower: low as u32,
            tag: [(low >> 32) as u32, high as u32],
            tunnel: Tunnel::from_words([high, word(AT + 2), word(AT + 3), word(AT + 4)]),
            ..adjacency
        }
    }

    /// Stores only the first word, likewise.
    pub fn store_adjacency_word(&self, number: u32, adjacency: &Adjacency) {
        self.adjacencies.words()[number as usize * Adjacency::WORDS]
            .store(adjacency.first_word(), Ordering::Release);
    }
}

const _: () = assert!(size_of::<Adjacency>() == 64 && offset_of!(Adjacency, dst_mac) == 8);
const _: () = assert!(offset_of!(Adjacency, mtu) == 20 && offset_of!(Adjacency, lower) == 24);
const _: () = assert!(offset_of!(Adjacency, tunnel) == 36);
