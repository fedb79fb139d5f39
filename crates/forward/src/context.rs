//! What goes from step to step of a packet: what is known when it comes in, how far it has come, and what
//! becomes of it.

use raddle_image::{ConfigHead, LinkEntry, Memory, Reason, Shown, link_flags};
use raddle_packet::{Family, dissect};
use raddle_select::Hasher;
use raddle_srv6::Demand;

use crate::arrive::Mac;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves by this link: `len` bytes of the buffer, from `start` on.
    Forward {
        /// Interface index of the out-link.
        index: u32,
        /// The adjacency that was chosen, or [`NO_ADJACENCY`].
        adjacency: u32,
        /// Where the frame starts as sent: where it came in, unless something was taken off it or put
        /// around it.
        start: usize,
        /// Length of the frame as sent: what an Ethernet minimum or a sloppy sender had added is
        /// trimmed, as Linux does.
        len: usize,
    },
    /// The kernel gets it, untouched.
    Kernel(Reason),
    /// It is dropped, as the kernel would drop it.
    Drop(Reason),
}

/// [`Verdict::Forward`] by itself. Verdicts are made of it at the end only: an enum that is passed on and on
/// is copied in other pieces than it was written in, and the processor waits for that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) index: u32,
    pub(crate) adjacency: u32,
}

impl From<Sent> for Verdict {
    #[inline(always)]
    fn from(sent: Sent) -> Verdict {
        Verdict::Forward {
            index: sent.index,
            adjacency: sent.adjacency,
            start: sent.start,
            len: sent.len,
        }
    }
}

/// In the place of an adjacency's number: a frame that left as it was (End.DX2).
pub const NO_ADJACENCY: u32 = u32::MAX;

/// What the steps of one packet need.
pub(crate) struct Context<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) config: ConfigHead,
    pub(crate) link: LinkEntry,
    /// The link's.
    pub(crate) mac: Mac,
    pub(crate) hasher: Option<&'a Hasher>,
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub(crate) now: u64,
}

impl Context<'_> {
    /// Whether packets of the link are to be asked for what few links have: [`crate::ipv4::guard`], [`crate::ipv6::guard`].
    #[inline(always)]
    pub(crate) fn guarded(&self) -> bool {
        self.link.flags & link_flags::GUARDED != 0
    }

    /// The zones of out-links that packets of this family are not forwarded to.
    #[inline(always)]
    pub(crate) fn closed(&self, family: Family) -> u64 {
        match family {
            Family::V4 => self.link.closed4,
            Family::V6 => self.link.closed6,
        }
    }

    /// What the link demands of an HMAC.
    #[inline]
    pub(crate) fn demand(&self) -> Demand {
        if self.link.flags & link_flags::HMAC_IGNORED != 0 {
            Demand::Ignored
        } else if self.link.flags & link_flags::HMAC_REQUIRED != 0 {
            Demand::Required
        } else {
            Demand::IfPresent
        }
    }
}

/// A packet that may be routed: its address, and its length from the IP header on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed<A> {
    pub(crate) len: usize,
    pub(crate) dst: A,
}

/// What routing rules may ask about a packet.
pub(crate) fn shown(packet: &[u8], family: Family, tos: u8) -> Shown {
    let seen = dissect(packet, family, raddle_packet::Stop::AtEncap);
    Shown {
        tos,
        proto: seen.ip_proto,
        sport: seen.sport,
        dport: seen.dport,
    }
}

/// Why the pipeline of a family stops before the packet is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It is not forwarded.
    Reason(Reason),
    /// It is not forwarded, and the kernel does not have what it was routed to
    /// ([`raddle_image::GROUP_NO_PUNT`]).
    Own(Reason),
    /// This segment says what becomes of it.
    Segment(u32),
    /// It is for the adjacency with this number, which is reached by another link than its own.
    Tagged(u32),
    /// It is for the adjacency with this number, which is the other end of a tunnel.
    Tunnel(u32),
}

impl From<Reason> for Stop {
    #[inline]
    fn from(reason: Reason) -> Stop {
        Stop::Reason(reason)
    }
}
