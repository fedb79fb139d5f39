//! Encapsulations and insertions (rule S9; `seg6_do_srh_encap`, `seg6_do_srh_inline`).

use raddle_image::{Memory, Reason, Segment, segment_flags, segment_kind};
use raddle_packet::srh::FLAG_HMAC;
use raddle_packet::{Family, Srh, protocol};

use crate::decap::ETHERNET_IN_IP;
use crate::hmac::{self, FIELD};
use crate::packet::{ETHERNET, IPV6, Packet};
use crate::{Refusal, Rule, Settings, label_of};

/// Flow labels.
const LABEL: u32 = 0xf_ffff;
const NO_TEMPLATE: Refusal = Rule::S9_5.gives(Reason::Encap);

#[inline]
fn no_room(reason: Reason) -> Refusal {
    Rule::S9_5.gives(reason)
}

/// Puts the segment's template around the packet, or around the frame it came in.
#[inline]
pub(crate) fn encapsulate(
    settings: &Settings<'_>,
    segment: &Segment,
    packet: &mut Packet<'_>,
) -> Result<(), Refusal> {
    let size = usize::from(segment.size);
    let has_srh = segment.flags & segment_flags::HAS_SRH != 0;
    if size < IPV6 + if has_srh { 8 } else { 0 } || size % 8 != 0 {
        return Err(NO_TEMPLATE);
    }
    let l2 = segment.kind == segment_kind::ENCAPS_L2;
    let inner = packet.len();
    let head = packet.l3().first_chunk::<8>();
    let head = head.ok_or(Rule::S9_2.gives(Reason::Truncated))?;
    let (mut first, hop_limit, number) = match packet.family() {
        Family::V6 => {
            let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
            (word & 0x0fff_ffff, head[7], protocol::IPV6)
        }
        // The template's hop limit.
        Family::V4 => (0, hop_limit_of(settings.memory, segment), protocol::IPIP),
    };
    let number = if l2 { ETHERNET_IN_IP } else { number };
    if segment.flags & segment_flags::LABEL_FROM_INNER == 0 {
        first &= !LABEL;
    }
    if segment.flags & segment_flags::LABEL_FROM_FLOW != 0 {
        first = first & !LABEL | label(settings, packet)?;
    }
    let payload = size - IPV6 + inner + if l2 { ETHERNET } else { 0 };
    let Ok(payload) = u16::try_from(payload) else {
        return Err(Rule::S9_5.gives(Reason::Mtu));
    };
    let ethernet = packet.ethernet();
    let grown = packet.grow(size + if l2 { ETHERNET } else { 0 }, 0);
    grown.map_err(no_room)?;
    if l2 {
        packet
            .fresh(size..size + ETHERNET)
            .copy_from_slice(&ethernet);
    }
    let written = packet.fresh(0..size);
    copy_template(settings, segment, written);
    written[..4].copy_from_slice(&(first | 6 << 28).to_be_bytes());
    written[4..6].copy_from_slice(&payload.to_be_bytes());
    written[7] = hop_limit;
    if has_srh {
        written[6] = protocol::ROUTING;
        written[IPV6] = number;
        let (header, srh) = written.split_at_mut(IPV6);
        sign(settings, header, srh)?;
    } else {
        written[6] = number;
    }
    // The kernel hashes what End.B6.Encaps has made, and so its SIDs do here.
    let own = segment.flags & segment_flags::NO_PUNT != 0;
    let by_flow = segment.kind != segment_kind::END_B6_ENCAPS || own;
    packet.encapsulated(inner, by_flow.then_some(segment.salt), Family::V6);
    Ok(())
}

/// The hop limit that a template has, for what is not IPv6.
#[inline]
fn hop_limit_of(memory: &Memory, segment: &Segment) -> u8 {
    let [.., limit] = memory.template_word(segment.template).to_le_bytes();
    limit
}

/// The flow label by the flow's hash.
#[cold]
fn label(settings: &Settings<'_>, packet: &Packet<'_>) -> Result<u32, Refusal> {
    let hash31 = match packet.flow() {
        Some(flow) => (settings.hash31)(flow.family, packet.bytes(flow.range.clone())),
        None => (settings.hash31)(packet.family(), packet.l3()),
    };
    let hash31 = hash31.map_err(|reason| Rule::S9_3.gives(reason))?;
    Ok(label_of(settings.memory.label_key(), hash31))
}

/// Puts the segment's template, an SRH, behind the IPv6 header; its last segment is the destination
/// that the packet had.
#[inline]
pub(crate) fn insert(
    settings: &Settings<'_>,
    segment: &Segment,
    packet: &mut Packet<'_>,
) -> Result<(), Refusal> {
    let size = usize::from(segment.size);
    if packet.family() != Family::V6 {
        return Err(Rule::S2_1.gives(Reason::Encap));
    }
    if size < 24 || size % 8 != 0 {
        return Err(NO_TEMPLATE);
    }
    let header = packet.l3().first_chunk::<IPV6>();
    let mut header = *header.ok_or(Rule::S9_4.gives(Reason::Truncated))?;
    let Ok(payload) = u16::try_from(size + packet.len() - IPV6) else {
        return Err(Rule::S9_5.gives(Reason::Mtu));
    };
    packet.grow(size, IPV6).map_err(no_room)?;
    let written = packet.fresh(0..IPV6 + size);
    let (front, srh) = written.split_at_mut(IPV6);
    copy_template(settings, segment, srh);
    srh[0] = header[6];
    srh[8..24].copy_from_slice(&header[24..]);
    let first = 8 + 16 * usize::from(srh[4]);
    let Some(dst) = srh.get(first..).and_then(<[u8]>::first_chunk::<16>) else {
        return Err(NO_TEMPLATE);
    };
    header[4..6].copy_from_slice(&payload.to_be_bytes());
    header[6] = protocol::ROUTING;
    header[24..].copy_from_slice(dst);
    front.copy_from_slice(&header);
    sign(settings, front, srh)
}

#[inline]
fn copy_template(settings: &Settings<'_>, segment: &Segment, to: &mut [u8]) {
    for (i, word) in to.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let place = segment.template.wrapping_add(i as u32);
        *word = settings.memory.template_word(place).to_le_bytes();
    }
}

/// Fills in the HMAC, where there is a place for one.
#[inline]
fn sign(settings: &Settings<'_>, header: &[u8], srh: &mut [u8]) -> Result<(), Refusal> {
    if srh[5] & FLAG_HMAC == 0 {
        return Ok(());
    }
    let Some(src) = header.get(8..24).and_then(<[u8]>::first_chunk) else {
        return Err(Rule::S9_5.gives(Reason::Hmac));
    };
    // A reduced list has one segment less than are left.
    let checked = Srh::new_checked(srh, true).map_err(|_| NO_TEMPLATE)?;
    let made = hmac::made(settings.keys, src, &checked);
    if let Some(field) = made.map_err(|reason| Rule::S9_5.gives(reason))? {
        let at = srh.len() - FIELD;
        srh[at..].copy_from_slice(&field);
    }
    Ok(())
}
