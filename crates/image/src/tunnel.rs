//! Tunnels: what packets are put into that leave by one, and which comes in to an address of this machine.

use crate::numbers::numbers;
use std::mem::size_of;

numbers! {
    /// Of which kind a tunnel is.
    pub mod tunnel_kind: u8, "TUNNEL_KIND" {
        /// The packet follows the outer IPv4 header (`ipip`, `sit`).
        IP = 1,
        /// Behind a header of GRE (RFC 2784, RFC 2890), without checksum and sequence number.
        GRE = 2,
        /// A frame behind headers of UDP and VXLAN (RFC 7348).
        VXLAN = 3,
    }
}

numbers! {
    /// Flags of tunnels, in an adjacency or in a [`TunnelEnd`].
    pub mod tunnel_flags: u8, "TUNNEL_F" {
        /// It carries IPv4.
        CARRIES4 = 1,
        /// It carries IPv6.
        CARRIES6 = 2,
        /// GRE: there is a key.
        HAS_KEY = 4,
        /// VXLAN: the UDP checksum is computed; without, it is zero.
        CHECKSUM = 8,
        /// The outer TTL is that of the packet as it is forwarded, in place of `ttl`.
        TTL_INNER = 16,
        /// The outer DSCP is the packet's, in place of `tos`.
        TOS_INNER = 32,
        /// Outer packets are not to be fragmented.
        DF = 64,
        /// Outer packets are not to be fragmented where an IPv4 packet inside is not.
        DF_INNER = 128,
    }
}

/// Bytes of the outer IPv4 header, which has no options.
pub const TUNNEL_IPV4: usize = 20;
/// Bytes that a tunnel of GRE puts behind it, and as many more where there is a key.
pub const TUNNEL_GRE: usize = 4;
/// Bytes that VXLAN puts behind it: headers of UDP and VXLAN, and of Ethernet.
pub const TUNNEL_VXLAN: usize = 8 + 8 + 14;
/// Bytes that any tunnel puts in front of a packet at most.
pub const TUNNEL_MOST: usize = TUNNEL_IPV4 + TUNNEL_VXLAN;

/// How many bytes a tunnel of this kind and with these flags puts in front of a packet; 0 for a kind that there is not.
#[inline]
pub const fn tunnel_len(kind: u8, flags: u8) -> usize {
    match kind {
        tunnel_kind::IP => TUNNEL_IPV4,
        tunnel_kind::GRE if flags & tunnel_flags::HAS_KEY != 0 => TUNNEL_IPV4 + 2 * TUNNEL_GRE,
        tunnel_kind::GRE => TUNNEL_IPV4 + TUNNEL_GRE,
        tunnel_kind::VXLAN => TUNNEL_MOST,
        _ => 0,
    }
}

/// The tunnel by which packets come in that are to an address of this machine: an entry of the template of a
/// [`segment_kind::TUNNEL_END`](crate::segment_kind::TUNNEL_END). They are ascending by their first two words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TunnelEnd {
    /// [`tunnel_kind`].
    pub kind: u8,
    /// The other end, in host byte order; 0 of VXLAN, where it may be anybody.
    pub remote: u32,
    /// GRE: whether there is a key, and which; VXLAN: the UDP port in the upper half, and the VNI; in host byte order. 0 of all others.
    pub key: u64,
    /// The link that packets come in by, below [`MAX_LINKS`](crate::MAX_LINKS).
    pub index: u32,
    /// [`tunnel_flags::CARRIES4`], [`tunnel_flags::CARRIES6`].
    pub flags: u8,
}

/// Words of one.
pub const TUNNEL_END: usize = 3;
/// Set in [`TunnelEnd::key`] where GRE has a key.
pub const TUNNEL_KEYED: u64 = 1 << 32;

impl TunnelEnd {
    /// The key of VXLAN.
    pub fn vxlan(port: u16, vni: u32) -> u64 {
        u64::from(port) << 32 | u64::from(vni)
    }

    /// By which it is found.
    pub fn words(&self) -> [u64; 2] {
        [
            u64::from(self.kind) << 32 | u64::from(self.remote),
            self.key,
        ]
    }

    /// The words in the image.
    pub fn to_words(&self) -> [u64; TUNNEL_END] {
        let [kind, key] = self.words();
        [
            kind,
            key,
            u64::from(self.index) | u64::from(self.flags) << 32,
        ]
    }

    /// Reads words of the image.
    pub fn from_words([kind, key, leads]: [u64; TUNNEL_END]) -> TunnelEnd {
        TunnelEnd {
            kind: (kind >> 32) as u8,
            remote: kind as u32,
            key,
            index: leads as u32,
            flags: (leads >> 32) as u8,
        }
    }
}

/// What packets are put into that leave by a tunnel: where [`Adjacency::state`](crate::Adjacency::state) is
/// [`ADJ_TUNNEL`](crate::ADJ_TUNNEL).
///
/// `Adjacency::lower` is then the table that the outer packet is looked up in, and both MAC addresses are those inside of VXLAN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Tunnel {
    /// Source of the outer packet, in the order of the wire.
    pub src: [u8; 4],
    /// Its destination, likewise.
    pub dst: [u8; 4],
    /// GRE's key; VXLAN's VNI in the first three bytes. As on the wire.
    pub key: [u8; 4],
    /// [`tunnel_kind`].
    pub kind: u8,
    /// [`tunnel_flags`].
    pub flags: u8,
    /// TTL of the outer packet.
    pub ttl: u8,
    /// TOS of the outer packet; its lower two bits, which are for congestion, are made of the inner packet's.
    pub tos: u8,
    /// VXLAN: UDP destination port, in host byte order.
    pub port: u16,
    /// VXLAN: the first UDP source port, in host byte order.
    pub sport: u16,
    /// VXLAN: how many source ports there are; which one says the hash of the packet inside.
    pub sports: u16,
    /// Zero.
    pub pad: u16,
    /// Seed of the hash by which outer packets choose their link, as [`Segment::salt`](crate::Segment::salt).
    pub salt: u32,
}

impl Tunnel {
    /// Reads words of the image: the upper half of the first one, and the others.
    pub(crate) fn from_words(words: [u64; 4]) -> Tunnel {
        let [first, second, third, fourth] = words;
        let [kind, flags, ttl, tos] = (third as u32).to_ne_bytes();
        Tunnel {
            src: ((first >> 32) as u32).to_ne_bytes(),
            dst: (second as u32).to_ne_bytes(),
            key: ((second >> 32) as u32).to_ne_bytes(),
            kind,
            flags,
            ttl,
            tos,
            port: (third >> 32) as u16,
            sport: (third >> 48) as u16,
            sports: fourth as u16,
            pad: (fourth >> 16) as u16,
            salt: (fourth >> 32) as u32,
        }
    }

    /// Its bytes.
    pub(crate) fn to_bytes(self) -> [u8; size_of::<Tunnel>()] {
        let mut bytes = [0; size_of::<Tunnel>()];
        bytes[..4].copy_from_slice(&self.src);
        bytes[4..8].copy_from_slice(&self.dst);
        bytes[8..12].copy_from_slice(&self.key);
        bytes[12..16].copy_from_slice(&[self.kind, self.flags, self.ttl, self.tos]);
        let words = [self.port, self.sport, self.sports, self.pad];
        let (places, _) = bytes[16..24].as_chunks_mut::<2>();
        for (to, word) in places.iter_mut().zip(words) {
            *to = word.to_ne_bytes();
        }
        bytes[24..].copy_from_slice(&self.salt.to_ne_bytes());
        bytes
    }

    /// The tunnel of these bytes.
    pub(crate) fn from_bytes(bytes: [u8; size_of::<Tunnel>()]) -> Tunnel {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |at: usize| u32::from_ne_bytes(words[at]);
        let pair = |low: usize| u64::from(word(low)) | u64::from(word(low + 1)) << 32;
        Tunnel::from_words([u64::from(word(0)) << 32, pair(1), pair(3), pair(5)])
    }

    /// How many bytes it puts in front of a packet.
    #[inline]
    pub fn len(&self) -> usize {
        tunnel_len(self.kind, self.flags)
    }

    /// Whether that is none: there is no such kind.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

const _: () = assert!(size_of::<Tunnel>() == 28);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_survive_their_words() {
        for (kind, key) in [
            (tunnel_kind::IP, 0),
            (tunnel_kind::GRE, TUNNEL_KEYED | 0xffff_ffff),
            (tunnel_kind::VXLAN, TunnelEnd::vxlan(4789, 0xff_ffff)),
        ] {
            let end = TunnelEnd {
                kind,
                remote: 0xc633_6401,
                key,
                index: 16383,
                flags: tunnel_flags::CARRIES4 | tunnel_flags::CARRIES6,
            };
            assert_eq!(TunnelEnd::from_words(end.to_words()), end);
        }
    }

    #[test]
    fn tunnels_survive_their_words() {
        use crate::{ADJ_TUNNEL, Adjacency, Capacity, Memory};
        let memory = Memory::heap(&Capacity::default());
        let adjacency = Adjacency {
            index: 7,
            state: ADJ_TUNNEL,
            mtu: 1450,
            lower: 3,
            tunnel: Tunnel {
                src: [1, 2, 3, 4],
                dst: [5, 6, 7, 8],
                key: [9, 10, 11, 12],
                kind: 13,
                flags: 14,
                ttl: 15,
                tos: 16,
                port: 17,
                sport: 18,
                sports: 19,
                pad: 0,
                salt: 20,
            },
            ..Adjacency::default()
        };
        memory.store_adjacency(1, &adjacency);
        assert_eq!(memory.adjacency(1), adjacency);
    }

    #[test]
    fn headers_have_their_lengths() {
        let len = |kind| tunnel_len(kind, 0);
        assert_eq!([0, 1, 2, 3, 4].map(len), [0, 20, 24, 50, 0]);
        assert_eq!(tunnel_len(tunnel_kind::GRE, tunnel_flags::HAS_KEY), 28);
    }
}
