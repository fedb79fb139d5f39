//! The common cases of rules S3 to S6, S8 and S9, seen from the packet as it came: nothing is written before
//! it is known that the packet leaves, and so nothing has to be undone.

use raddle_image::{Memory, Segment, flavours, segment_flags, segment_kind};
use raddle_packet::srh::{FIXED, FLAG_HMAC, ROUTING_TYPE};
use raddle_packet::{Family, protocol};

use crate::decap::ETHERNET_IN_IP;
use crate::packet::{ETHERNET, IPV6};
use crate::{Demand, Frame};

/// What a segment will do with a packet that is one of the common cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// One step along its path; then a look-up of its destination, or of the segment's target.
    Step(Step),
    /// It leaves as this frame.
    Frame(Frame),
    /// It is put into another packet, which is looked up by its destination.
    Around(Around),
}

/// End, End.X or End.T: the packet's next destination, in the order of the wire. A number, and [`Around`] is
/// nothing else: bytes would be moved into the gaps of a [`Plan`], and copied in pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step(u128);

/// H.Encaps: what the outer header is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// The first word of the outer header, in the order of the wire.
    head: u64,
    template: u32,
    /// Of the template, which is below 64 KiB.
    words: u32,
    /// Next header before the payload.
    number: u32,
    /// Seed of the hash that chooses (rule S9.6).
    pub salt: u32,
}

/// A segment, as far as it can be one of the common cases: what is the same for all of its packets.
#[derive(Clone, Copy, Debug)]
pub struct Usual(Kind);

#[derive(Clone, Copy, Debug)]
#[repr(u8)] // else the compiler hides which it is in the gaps, and it takes longer to see
enum Kind {
    /// It is not.
    Uncommon,
    Step {
        /// The last step takes the SRH away.
        pops: bool,
    },
    Frame {
        out: u32,
        mtu: u32,
        /// There may be an SRH.
        srh: bool,
    },
    Around(Outer),
}

/// What a template says.
#[derive(Clone, Copy, Debug)]
struct Outer {
    /// The first word of the outer header of an IPv4 packet, without payload length and next header.
    head4: u64,
    /// The same of an IPv6 packet: what is kept of the first word of its own header.
    keep6: u64,
    has_srh: bool,
    template: u32,
    words: u32,
    salt: u32,
    /// Source and destination, host order.
    addresses: (u128, u128),
}

/// Type and HMAC flag in the first word of an SRH, in the order of the wire.
const TYPE_AND_HMAC: u64 = u64::from_le_bytes([0, 0, 0xff, 0, 0, FLAG_HMAC, 0, 0]);
/// Those of an SRH without an HMAC.
const PLAIN: u64 = u64::from_le_bytes([0, 0, ROUTING_TYPE, 0, 0, 0, 0, 0]);

/// An SRH directly behind the IPv6 header, without TLVs and HMAC.
struct Plain<'a> {
    next_header: u8,
    /// Segments left: at most one more than the list has.
    left: u8,
    list: &'a [[u8; 16]],
}

#[inline(always)]
fn srh(l3: &[u8]) -> Option<Plain<'_>> {
    let (fixed, rest) = l3.get(IPV6..)?.split_first_chunk::<FIXED>()?;
    let [next_header, length, _, left, last, ..] = *fixed;
    let segments = usize::from(last) + 1;
    let list = rest.get(..16 * segments)?.as_chunks::<16>().0;
    let plain = u64::from_le_bytes(*fixed) & TYPE_AND_HMAC == PLAIN;
    let sound = usize::from(length) == 2 * segments && usize::from(left) <= segments;
    (plain && sound).then_some(Plain {
        next_header,
        left,
        list,
    })
}

impl Usual {
    /// What is common about a segment, for a link that demands this of an HMAC.
    #[inline]
    pub fn new(memory: &Memory, segment: &Segment, demand: Demand) -> Usual {
        let signed = demand == Demand::Required;
        let kind = match segment.kind {
            segment_kind::END | segment_kind::END_X | segment_kind::END_T => {
                match signed || segment.flavours & !flavours::PSP != 0 {
                    true => Kind::Uncommon,
                    false => Kind::Step {
                        pops: segment.flavours != 0,
                    },
                }
            }
            segment_kind::END_DX2 if segment.out != 0 => Kind::Frame {
                out: segment.out,
                mtu: segment.mtu,
                srh: !signed,
            },
            segment_kind::ENCAPS => outer(memory, segment).map_or(Kind::Uncommon, Kind::Around),
            _ => Kind::Uncommon,
        };
        Usual(kind)
    }

    /// Source and destination of the outer header, host order, where one is put around packets.
    #[inline]
    pub fn outer_addresses(&self) -> Option<(u128, u128)> {
        match &self.0 {
            Kind::Around(outer) => Some(outer.addresses),
            _ => None,
        }
    }

    /// What the segment will do with the packet `l3`, which has passed rules A1 to A9 or B1 to B7 and whose IP
    /// header is at `place` of its buffer. None: [`crate::carry_out`] knows.
    ///
    /// 1. End, End.X, End.T without flavours, or with PSP and more than one segment left: the SRH is directly
    ///    behind the IPv6 header, has segments left and neither TLVs nor an HMAC, and needs none.
    /// 2. End.DX2: Ethernet directly behind the IPv6 header, or behind such an SRH with no segments left.
    /// 3. H.Encaps without flow label by the flow and without an HMAC, where there is room.
    ///
    /// Where a rule says that a packet is not forwarded, the answer is none, too.
    #[inline(always)]
    pub fn plan(&self, (family, l3): (Family, &[u8]), place: usize) -> Option<Plan> {
        match &self.0 {
            Kind::Uncommon => None,
            Kind::Step { pops } => step(*pops, family, l3),
            Kind::Frame { out, mtu, srh } => frame((*out, *mtu, *srh), family, l3, place),
            Kind::Around(outer) => around(outer, family, l3, place),
        }
    }
}

#[inline(always)]
fn step(pops: bool, family: Family, l3: &[u8]) -> Option<Plan> {
    if family != Family::V6 || l3[6] != protocol::ROUTING {
        return None;
    }
    let srh = srh(l3)?;
    if srh.left == 1 && pops {
        return None;
    }
    let next = usize::from(srh.left).checked_sub(1)?;
    let dst = u128::from_ne_bytes(*srh.list.get(next)?);
    Some(Plan::Step(Step(dst)))
}

impl Step {
    /// The packet's destination to be, host order.
    #[inline]
    pub fn dst(&self) -> u128 {
        u128::from_be(self.0)
    }

    /// Takes the step in this packet, which is the one that was planned for. The step that is returned leads
    /// back ([`Step::take_back`]).
    #[inline(always)]
    pub fn take(self, l3: &mut [u8]) -> Step {
        self.swap(l3, u8::MAX)
    }

    /// Undoes the step that this one was returned for.
    #[cold]
    pub fn take_back(self, l3: &mut [u8]) {
        self.swap(l3, 1);
    }

    #[inline(always)]
    fn swap(self, l3: &mut [u8], left: u8) -> Step {
        let mut was = [0; 16];
        let l3 = &mut l3[..IPV6 + FIXED];
        was.copy_from_slice(&l3[24..40]);
        l3[24..40].copy_from_slice(&self.0.to_ne_bytes());
        l3[IPV6 + 3] = l3[IPV6 + 3].wrapping_add(left);
        Step(u128::from_ne_bytes(was))
    }
}

#[inline(always)]
fn frame(
    (out, mtu, may_have_srh): (u32, u32, bool),
    family: Family,
    l3: &[u8],
    place: usize,
) -> Option<Plan> {
    if family != Family::V6 {
        return None;
    }
    let offset = match l3[6] {
        ETHERNET_IN_IP => IPV6,
        protocol::ROUTING if may_have_srh => match srh(l3)? {
            Plain {
                next_header: ETHERNET_IN_IP,
                left: 0,
                list,
            } => IPV6 + FIXED + 16 * list.len(),
            _ => return None,
        },
        _ => return None,
    };
    let header = l3.get(offset..)?.first_chunk::<ETHERNET>()?;
    let len = l3.len() - offset;
    let is_8023 = u16::from_be_bytes([header[12], header[13]]) < 0x600;
    if is_8023 || len - ETHERNET > mtu as usize {
        return None;
    }
    let start = place + offset;
    Some(Plan::Frame(Frame { out, start, len }))
}

/// Rules S9.2 to S9.5 as far as they do not depend on the packet.
#[inline]
fn outer(memory: &Memory, segment: &Segment) -> Option<Outer> {
    let size = usize::from(segment.size);
    let has_srh = segment.flags & segment_flags::HAS_SRH != 0;
    let by_flow = segment.flags & segment_flags::LABEL_FROM_FLOW != 0;
    let least = IPV6 + if has_srh { FIXED } else { 0 };
    if by_flow || size < least || size % 8 != 0 {
        return None;
    }
    let words = u32::from(segment.size) / 8;
    let mut template = memory.template(segment.template, words)?;
    let [_, .., hop_limit] = template.next()?.to_le_bytes();
    let mut address = || {
        let high = u128::from(template.next()?.swap_bytes());
        Some(high << 64 | u128::from(template.next()?.swap_bytes()))
    };
    let addresses = (address()?, address()?);
    if has_srh && template.next()?.to_le_bytes()[5] & FLAG_HMAC != 0 {
        return None;
    }
    let keep = match segment.flags & segment_flags::LABEL_FROM_INNER {
        0 => [0xff, 0xf0, 0, 0],
        _ => [0xff; 4],
    };
    let [a, b, c, d] = keep;
    Some(Outer {
        head4: u64::from_le_bytes([6 << 4, 0, 0, 0, 0, 0, 0, hop_limit]),
        keep6: u64::from_le_bytes([a, b, c, d, 0, 0, 0, 0xff]),
        has_srh,
        template: segment.template,
        words,
        salt: segment.salt,
        addresses,
    })
}

#[inline(always)]
fn around(outer: &Outer, family: Family, l3: &[u8], place: usize) -> Option<Plan> {
    let size = 8 * outer.words as usize;
    if place < size + ETHERNET {
        return None;
    }
    let payload = u16::try_from(size - IPV6 + l3.len()).ok()?;
    let (head, number) = match family {
        Family::V6 => {
            let head = u64::from_le_bytes(*l3.first_chunk()?);
            (head & outer.keep6, protocol::IPV6)
        }
        Family::V4 => (outer.head4, protocol::IPIP),
    };
    let next = if outer.has_srh {
        protocol::ROUTING
    } else {
        number
    };
    Some(Plan::Around(Around {
        head: head | u64::from(payload.to_be()) << 32 | u64::from(next) << 48,
        template: outer.template,
        words: outer.words,
        number: number.into(),
        salt: outer.salt,
    }))
}

impl Around {
    /// Bytes in front of the packet.
    #[inline]
    pub fn size(&self) -> usize {
        8 * self.words as usize
    }

    /// Length of the outer packet.
    #[inline]
    pub fn len(&self) -> usize {
        IPV6 + usize::from(u16::from_be((self.head >> 32) as u16))
    }

    /// Whether it has no bytes, which is never so.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Hop limit of the outer header.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        (self.head >> 56) as u8
    }

    /// Writes the outer header, [`Around::size`] bytes.
    #[inline(always)]
    pub fn write(&self, memory: &Memory, to: &mut [u8]) {
        if let Some(words) = memory.template(self.template, self.words) {
            for (to, word) in to.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                *to = word.to_le_bytes();
            }
        }
        to[..8].copy_from_slice(&self.head.to_le_bytes());
        if (self.head >> 48) as u8 == protocol::ROUTING {
            to[IPV6] = self.number as u8;
        }
    }
}
