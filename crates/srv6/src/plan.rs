//! The common cases of rules S3 to S6, S8 and S9, seen from the packet as it came: nothing is written before
//! it is known that the packet leaves, and so nothing has to be undone.

use raddle_packet::srh::{FIXED, FLAG_HMAC, ROUTING_TYPE};
use raddle_packet::{Family, protocol};
use raddle_rib::image::{Memory, Segment, flavours, segment_flags, segment_kind};

use crate::decap::ETHERNET_IN_IP;
use crate::encap::hop_limit_of;
use crate::packet::{ETHERNET, IPV6};
use crate::{Demand, Frame, Target};

/// What a segment will do with a packet that is one of the common cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// One step along its path; then a look-up of the target.
    Step(Step, Target),
    /// It leaves as this frame.
    Frame(Frame),
    /// It is put into another packet, which is looked up by its destination.
    Around(Around),
}

/// End, End.X or End.T: the packet's next destination. All of it is numbers, and so is [`Around`]: bytes
/// would be moved into the gaps of a [`Plan`], and copied in pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Destination as it came, as the wire has it.
    old: u128,
    /// Destination to be, likewise.
    new: u128,
}

/// H.Encaps: what the outer header is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    template: u32,
    size: u32,
    /// Next header of the outer header.
    next: u32,
    /// Next header before the payload.
    number: u32,
    /// Hop limit of the outer header, below 256.
    pub hop_limit: u32,
    first: u32,
    /// Below 65536.
    payload: u32,
    /// Seed of the hash that chooses (rule S9.6).
    pub salt: u32,
}

/// The SRH directly behind the IPv6 header, without TLVs and HMAC: next header, segments left, length.
#[inline]
fn srh(demand: Demand, l3: &[u8]) -> Option<(u8, u8, usize)> {
    let fixed = l3.get(IPV6..)?.first_chunk::<FIXED>()?;
    let [next_header, length, kind, left, last, flags, ..] = *fixed;
    let length = (usize::from(length) + 1) * 8;
    let whole = IPV6 + length <= l3.len() && length == FIXED + 16 * (usize::from(last) + 1);
    let sound = kind == ROUTING_TYPE && u16::from(left) <= u16::from(last) + 1;
    let hmac = flags & FLAG_HMAC != 0 || demand == Demand::Required;
    (whole && sound && !hmac).then_some((next_header, left, length))
}

/// What `segment` will do with the packet `l3`, which has passed rules A1 to A9 or B1 to B7 and whose IP
/// header is at `place` of its buffer. None: [`crate::carry_out`] knows.
///
/// 1. End, End.X, End.T without flavours, or with PSP and more than one segment left: the SRH is directly
///    behind the IPv6 header, has segments left and neither TLVs nor an HMAC, and needs none.
/// 2. End.DX2: Ethernet directly behind the IPv6 header, or behind such an SRH with no segments left.
/// 3. H.Encaps without flow label by the flow and without an HMAC, where there is room.
///
/// Where a rule says that a packet is not forwarded, the answer is none, too.
#[inline]
pub fn plan(
    memory: &Memory,
    segment: &Segment,
    demand: Demand,
    (family, l3): (Family, &[u8]),
    place: usize,
) -> Option<Plan> {
    match segment.kind {
        segment_kind::END | segment_kind::END_X | segment_kind::END_T => {
            step(segment, demand, family, l3)
        }
        segment_kind::END_DX2 => frame(segment, demand, (family, l3), place),
        segment_kind::ENCAPS => around(memory, segment, (family, l3), place),
        _ => None,
    }
}

#[inline]
fn step(segment: &Segment, demand: Demand, family: Family, l3: &[u8]) -> Option<Plan> {
    if family != Family::V6 || l3[6] != protocol::ROUTING || segment.flavours & !flavours::PSP != 0
    {
        return None;
    }
    let (_, left, _) = srh(demand, l3)?;
    if left == 0 || left == 1 && segment.flavours != 0 {
        return None;
    }
    let next = IPV6 + FIXED + 16 * usize::from(left - 1);
    let new = u128::from_ne_bytes(*l3.get(next..)?.first_chunk()?);
    let old = u128::from_ne_bytes(*l3.get(24..)?.first_chunk()?);
    let target = match segment.kind {
        segment_kind::END_X if segment.target != [0; 16] => {
            Target::V6(u128::from_be_bytes(segment.target))
        }
        _ => Target::Destination,
    };
    Some(Plan::Step(Step { old, new }, target))
}

impl Step {
    /// The packet's destination to be, host order.
    #[inline]
    pub fn dst(&self) -> u128 {
        u128::from_be(self.new)
    }

    /// Takes the step in this packet, which is the one that was planned for.
    #[inline]
    pub fn take(&self, l3: &mut [u8]) {
        let l3 = &mut l3[..IPV6 + FIXED];
        l3[24..40].copy_from_slice(&self.new.to_ne_bytes());
        l3[IPV6 + 3] -= 1;
    }

    /// Takes it back.
    #[cold]
    pub fn take_back(&self, l3: &mut [u8]) {
        l3[24..40].copy_from_slice(&self.old.to_ne_bytes());
        l3[IPV6 + 3] += 1;
    }
}

#[inline]
fn frame(
    segment: &Segment,
    demand: Demand,
    (family, l3): (Family, &[u8]),
    place: usize,
) -> Option<Plan> {
    if family != Family::V6 {
        return None;
    }
    let offset = match l3[6] {
        ETHERNET_IN_IP => IPV6,
        protocol::ROUTING => match srh(demand, l3)? {
            (ETHERNET_IN_IP, 0, length) => IPV6 + length,
            _ => return None,
        },
        _ => return None,
    };
    let header = l3.get(offset..)?.first_chunk::<ETHERNET>()?;
    let len = l3.len() - offset;
    let is_8023 = u16::from_be_bytes([header[12], header[13]]) < 0x600;
    if is_8023 || segment.out == 0 || len - ETHERNET > segment.mtu as usize {
        return None;
    }
    Some(Plan::Frame(Frame {
        out: segment.out,
        start: place + offset,
        len,
    }))
}

#[inline]
fn around(
    memory: &Memory,
    segment: &Segment,
    (family, l3): (Family, &[u8]),
    place: usize,
) -> Option<Plan> {
    let size = usize::from(segment.size);
    let has_srh = segment.flags & segment_flags::HAS_SRH != 0;
    let by_flow = segment.flags & segment_flags::LABEL_FROM_FLOW != 0;
    let least = IPV6 + if has_srh { FIXED } else { 0 };
    if by_flow || size < least || size % 8 != 0 || place < size + ETHERNET {
        return None;
    }
    let srh_flags = (memory.template_word(segment.template.wrapping_add(5)) >> 40) as u8;
    if has_srh && srh_flags & FLAG_HMAC != 0 {
        return None;
    }
    let head = l3.first_chunk::<8>()?;
    let (mut first, hop_limit, number) = match family {
        Family::V6 => {
            let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
            (word & 0x0fff_ffff, head[7], protocol::IPV6)
        }
        Family::V4 => (0, hop_limit_of(memory, segment), protocol::IPIP),
    };
    if segment.flags & segment_flags::LABEL_FROM_INNER == 0 {
        first &= 0x0ff0_0000;
    }
    Some(Plan::Around(Around {
        template: segment.template,
        size: segment.size.into(),
        next: if has_srh { protocol::ROUTING } else { number }.into(),
        number: number.into(),
        hop_limit: hop_limit.into(),
        first,
        payload: u16::try_from(size - IPV6 + l3.len()).ok()?.into(),
        salt: segment.salt,
    }))
}

/// Source and destination of the outer header that a template holds, host order.
#[inline]
pub fn outer_addresses(memory: &Memory, template: u32) -> (u128, u128) {
    let word = |i| {
        let word = memory.template_word(template.wrapping_add(i));
        u128::from(word.swap_bytes())
    };
    (word(1) << 64 | word(2), word(3) << 64 | word(4))
}

impl Around {
    /// Bytes in front of the packet.
    #[inline]
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// Length of the outer packet.
    #[inline]
    pub fn len(&self) -> usize {
        IPV6 + self.payload as usize
    }

    /// Whether it has no bytes, which is never so.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the outer header, [`Around::size`] bytes.
    #[inline]
    pub fn write(&self, memory: &Memory, to: &mut [u8]) {
        for (place, word) in (self.template..).zip(to.as_chunks_mut::<8>().0) {
            *word = memory.template_word(place).to_le_bytes();
        }
        let [a, b, c, d] = (self.first | 6 << 28).to_be_bytes();
        let [high, low] = (self.payload as u16).to_be_bytes();
        let next = self.next as u8;
        to[..8].copy_from_slice(&[a, b, c, d, high, low, next, self.hop_limit as u8]);
        if next == protocol::ROUTING {
            to[IPV6] = self.number as u8;
        }
    }
}
