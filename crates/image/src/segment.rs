//! What SRv6 does with a packet: behaviours of SIDs, and encapsulations.

use crate::numbers::numbers;
use std::mem::size_of;

/// An SRv6 behaviour or encapsulation, ready to be carried out.
///
/// The image has of it what its kind needs: the first eight fields in a word, and two numbers, four segments to a cache
/// line; and in another place, read for some kinds only, the target or the salt.
///
/// | kind | the two numbers | the other place |
/// |---|---|---|
/// | End.DX2 | `out`, `mtu` | |
/// | End.DX2V, ends of tunnels | `template`, `out` | |
/// | those with a template, [`segment_kind::has_template`] | `template`, `table6` | `salt` |
/// | all others | `table4`, `table6` | `target`, of [`segment_kind::has_target`] |
///
/// As with an adjacency the first word is written last, and cleared first: while `kind` is
/// [`segment_kind::KERNEL`] the rest is not read. A segment's number is also that of its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Segment {
    /// [`segment_kind`].
    pub kind: u8,
    /// Why, when the kind is [`segment_kind::KERNEL`] (a [`crate::Reason`]).
    pub reason: u8,
    /// [`flavours`].
    pub flavours: u8,
    /// [`segment_flags`].
    pub flags: u8,
    /// Compressed SIDs: length of the locator block in bytes, 1..=15.
    pub block: u8,
    /// Compressed SIDs: length of one compressed SID (node and function) in bytes, 1..=15.
    pub csid: u8,
    /// Bytes of the template, a multiple of 8; 0 where there is none.
    pub size: u16,
    /// First word of the template in [`super::Memory::templates`].
    pub template: u32,
    /// End.DX2: out-link, as interface index. End.DX2V: number of VLAN entries, which are the template. Ends of tunnels: number of
    /// those, likewise.
    pub out: u32,
    /// Table for IPv4 look-ups of what comes out, or [`LINK_TABLE`].
    pub table4: u32,
    /// The same for IPv6.
    pub table6: u32,
    /// End.DX2: the out-link's MTU, without the Ethernet header.
    pub mtu: u32,
    /// Seed of the hash by which encapsulated packets choose their link, see `crates/srv6`.
    pub salt: u32,
    /// Address that is looked up in the place of the destination: `nh6`, or `nh4` in the first four
    /// bytes, in the order of the wire; zeros for none.
    pub target: [u8; 16],
}

/// Bytes of a segment in [`super::Memory::segments`].
pub const SEGMENT_HEAD: usize = size_of::<Head>();
/// Bytes of a segment in [`super::Memory::segment_targets`].
pub const SEGMENT_TARGET: usize = size_of::<Rest>();

/// First word, and the two numbers, the first of them in the lower half.
pub(super) type Head = [u64; 2];
/// Target, or salt.
pub(super) type Rest = [u64; 2];

impl Segment {
    /// The word that is published last.
    pub fn first_word(self) -> u64 {
        let [low, high] = self.size.to_ne_bytes();
        u64::from_ne_bytes([
            self.kind,
            self.reason,
            self.flavours,
            self.flags,
            self.block,
            self.csid,
            low,
            high,
        ])
    }

    /// What the image has of it.
    pub(super) fn to_parts(self) -> (Head, Rest) {
        let (one, other) = match self.kind {
            segment_kind::END_DX2 => (self.out, self.mtu),
            segment_kind::END_DX2V | segment_kind::TUNNEL_END => (self.template, self.out),
            kind if segment_kind::has_template(kind) => (self.template, self.table6),
            _ => (self.table4, self.table6),
        };
        let (high, low) = match self.target.as_chunks::<8>().0 {
            [high, low] => (u64::from_ne_bytes(*high), u64::from_ne_bytes(*low)),
            _ => (0, 0),
        };
        let rest = match self.kind {
            kind if segment_kind::has_template(kind) => [self.salt.into(), 0],
            kind if segment_kind::has_target(kind) => [high, low],
            _ => [0; 2],
        };
        let head = [self.first_word(), u64::from(one) | u64::from(other) << 32];
        (head, rest)
    }

    /// The segment of which the image has this; `rest` is asked for where its kind has any.
    #[inline]
    pub(super) fn from_parts([word, numbers]: Head, rest: impl FnOnce() -> Rest) -> Segment {
        let [kind, reason, flavours, flags, block, csid, low, high] = word.to_ne_bytes();
        let (one, other) = (numbers as u32, (numbers >> 32) as u32);
        let mut segment = Segment {
            kind,
            reason,
            flavours,
            flags,
            block,
            csid,
            size: u16::from_ne_bytes([low, high]),
            ..Segment::default()
        };
        match kind {
            segment_kind::END_DX2 => (segment.out, segment.mtu) = (one, other),
            segment_kind::END_DX2V | segment_kind::TUNNEL_END => {
                (segment.template, segment.out) = (one, other);
            }
            kind if segment_kind::has_template(kind) => {
                (segment.template, segment.table6) = (one, other);
                segment.salt = rest()[0] as u32;
            }
            kind => {
                (segment.table4, segment.table6) = (one, other);
                if segment_kind::has_target(kind) {
                    let [high, low] = rest();
                    let target = u128::from(high) | u128::from(low) << 64;
                    segment.target = target.to_ne_bytes();
                }
            }
        }
        segment
    }
}

/// Stands for the table of the link that the packet came in on.
pub const LINK_TABLE: u32 = u32::MAX;

numbers! {
    /// Kinds of [`Segment`]. Those below 32 are the numbers of the kernel's actions
    /// (`SEG6_LOCAL_ACTION_*`), where it has them.
    pub mod segment_kind: u8, "SEGMENT" {
        /// To the kernel.
        KERNEL = 0,
        /// `End`.
        END = 1,
        /// `End.X`; `target`.
        END_X = 2,
        /// `End.T`; `table6`.
        END_T = 3,
        /// `End.DX2`; `out`, `mtu`.
        END_DX2 = 4,
        /// `End.DX6`; `target`, or none for the inner destination.
        END_DX6 = 5,
        /// `End.DX4`; `target`, or none for the inner destination.
        END_DX4 = 6,
        /// `End.DT6`; `table6`.
        END_DT6 = 7,
        /// `End.DT4`; `table4`.
        END_DT4 = 8,
        /// `End.B6.Insert`: the template is an SRH.
        END_B6 = 9,
        /// `End.B6.Encaps`, or with [`super::segment_flags::REDUCED`] `End.B6.Encaps.Red`: the template is
        /// an IPv6 header and what follows it.
        END_B6_ENCAPS = 10,
        /// `End.DT46`; both tables.
        END_DT46 = 16,
        /// `End.DX2V`: the template is a [`super::VlanEntry`] for each VLAN.
        END_DX2V = 24,
        /// `H.Insert`: the template is an SRH.
        INSERT = 32,
        /// `H.Encaps`, `H.Encaps.Red`: the template is an IPv6 header and what follows it.
        ENCAPS = 33,
        /// `H.Encaps.L2`, `H.Encaps.L2.Red`: likewise.
        ENCAPS_L2 = 34,
        /// No SRv6: an address of this machine that tunnels end at. The template is a [`super::super::TunnelEnd`] for each.
        TUNNEL_END = 48,
    }
    also {
        /// Whether the template is headers that packets get.
        #[inline]
        pub const fn has_template(kind: u8) -> bool {
            matches!(kind, END_B6 | END_B6_ENCAPS | INSERT | ENCAPS | ENCAPS_L2)
        }

        /// Whether `target` means anything.
        #[inline]
        pub const fn has_target(kind: u8) -> bool {
            matches!(kind, END_X | END_DX6 | END_DX4)
        }
    }
}

numbers! {
    /// Flavours of endpoint behaviours, as the bits of `SEG6_LOCAL_FLV_OPERATION`.
    pub mod flavours: u8, "FLAVOUR" {
        /// Penultimate segment pop of the SRH (RFC 8986, 4.16.1).
        PSP = 1 << 1,
        /// Ultimate segment pop of the SRH (RFC 8986, 4.16.2).
        USP = 1 << 2,
        /// Ultimate segment decapsulation (RFC 8986, 4.16.3).
        USD = 1 << 3,
        /// NEXT-C-SID (RFC 9800, 4.1).
        NEXT_CSID = 1 << 4,
        /// REPLACE-C-SID (RFC 9800, 4.2); the kernel has no number for it.
        REPLACE_CSID = 1 << 5,
    }
}

numbers! {
    /// Flags of [`Segment`].
    pub mod segment_flags: u8, "SEGMENT" {
        /// Packets, bytes and errors are counted.
        HAS_COUNTERS = 1,
        /// The kernel does not have it: what engines cannot do is dropped, not punted.
        NO_PUNT = 2,
        /// The template leaves out the segment that is visited first, which is in the IPv6 header.
        REDUCED = 4,
        /// The template has an SRH; without one the payload follows the IPv6 header.
        HAS_SRH = 8,
        /// The kernel's trap with `nh4` on a connected prefix is not matched: the neighbour is `nh4`.
        DIRECT_NH4 = 16,
        /// `net.ipv6.seg6_flowlabel` is 1: the outer flow label is made of the flow's hash.
        LABEL_FROM_FLOW = 32,
        /// `net.ipv6.seg6_flowlabel` is 0: the outer flow label is the inner packet's.
        LABEL_FROM_INNER = 64,
    }
}

/// Where End.DX2V sends the frames of a VLAN. 8 bytes; ascending by VLAN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct VlanEntry {
    /// VLAN identifier, 0..=4094.
    pub vlan: u16,
    /// The out-link's MTU, without the Ethernet header; at most 65535.
    pub mtu: u16,
    /// Out-link, as interface index.
    pub out: u32,
}

impl VlanEntry {
    /// The word in the image.
    pub fn to_word(self) -> u64 {
        u64::from(self.vlan) | u64::from(self.mtu) << 16 | u64::from(self.out) << 32
    }

    /// Reads a word of the image.
    #[inline]
    pub fn from_word(word: u64) -> VlanEntry {
        VlanEntry {
            vlan: word as u16,
            mtu: (word >> 16) as u16,
            out: (word >> 32) as u32,
        }
    }
}

/// What one core counts of one segment: 16 numbers, [`segment_counter`].
pub const SEGMENT_COUNTERS: usize = 16;

/// How many of them, from [`segment_counter::FAILED`] on, are for packets that it was not carried out on. Engines
/// keep those apart: most packets touch the others only, which lie side by side for all segments then.
pub const SEGMENT_FAILURES: usize = SEGMENT_COUNTERS - segment_counter::FAILED;

/// Places in the counters of a segment.
pub mod segment_counter {
    use crate::Reason;

    /// Packets that the behaviour was carried out on.
    pub const PACKETS: usize = 0;
    /// Their bytes: IPv6 header and payload length as they came in, as the kernel counts them
    /// (`skb->len`). Of encapsulations: the packet before it was encapsulated.
    pub const BYTES: usize = 1;
    /// First of the places for packets that it was not carried out on, by [`of`].
    pub const FAILED: usize = 2;
    /// How many are told apart; all others come last.
    const APART: usize = {
        let mut count = 0;
        let mut number = 0;
        while number < Reason::ALL.len() {
            count += Reason::ALL[number].slot().is_some() as usize;
            number += 1;
        }
        count
    };
    /// Those that are told apart, in the order of their places.
    pub const REASONS: [Reason; APART] = {
        let mut reasons = [Reason::None; APART];
        let mut number = 0;
        while number < Reason::ALL.len() {
            let reason = Reason::ALL[number];
            if let Some(slot) = reason.slot() {
                reasons[slot] = reason;
            }
            number += 1;
        }
        reasons
    };

    /// The place of the packets that were dropped or punted for this reason.
    #[inline]
    pub const fn of(reason: Reason) -> usize {
        FAILED
            + match reason.slot() {
                Some(slot) => slot,
                None => APART,
            }
    }
}

const _: () = assert!(size_of::<VlanEntry>() == 8);
const _: () = {
    assert!(segment_counter::FAILED + segment_counter::REASONS.len() < SEGMENT_COUNTERS);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_their_places() {
        for (place, reason) in (segment_counter::FAILED..).zip(segment_counter::REASONS) {
            assert_eq!(segment_counter::of(reason), place, "{reason}");
        }
        assert_eq!(segment_counter::of(crate::Reason::Rules), 14);
    }

    #[test]
    fn what_a_kind_needs_survives() {
        let all = Segment {
            kind: 0,
            reason: 1,
            flavours: 2,
            flags: 3,
            block: 4,
            csid: 5,
            size: 0xfff8,
            template: 7,
            out: 8,
            table4: 9,
            table6: LINK_TABLE,
            mtu: 11,
            salt: 12,
            target: std::array::from_fn(|byte| byte as u8 + 1),
        };
        for kind in 0..=50 {
            let (head, rest) = Segment { kind, ..all }.to_parts();
            let back = Segment::from_parts(head, || rest);
            assert_eq!(back.to_parts(), (head, rest), "{kind}");
            let mut wanted = Segment {
                kind,
                template: 0,
                out: 0,
                table4: 0,
                table6: 0,
                mtu: 0,
                salt: 0,
                target: [0; 16],
                ..all
            };
            use segment_kind::*;
            match kind {
                END_DX2 => (wanted.out, wanted.mtu) = (8, 11),
                END_DX2V | TUNNEL_END => (wanted.template, wanted.out) = (7, 8),
                END_B6 | END_B6_ENCAPS | INSERT | ENCAPS | ENCAPS_L2 => {
                    (wanted.template, wanted.table6, wanted.salt) = (7, LINK_TABLE, 12);
                }
                _ => (wanted.table4, wanted.table6) = (9, LINK_TABLE),
            }
            if matches!(kind, END_X | END_DX6 | END_DX4) {
                wanted.target = all.target;
            }
            assert_eq!(back, wanted);
        }
    }

    #[test]
    fn vlans_survive_their_word() {
        let entry = VlanEntry {
            vlan: 4094,
            mtu: 1500,
            out: 7,
        };
        assert_eq!(VlanEntry::from_word(entry.to_word()), entry);
    }
}
