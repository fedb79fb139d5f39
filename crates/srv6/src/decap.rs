//! Behaviours that take the outer header off (rule S6; `decap_and_validate`).

use raddle_image::{Reason, Segment, VlanEntry};
use raddle_packet::{Family, Srh, protocol};

use crate::find::find;
use crate::packet::{ETHERNET, Packet};
use crate::{Refusal, Rule, Settings, hmac};

/// Protocol number of Ethernet in IP.
pub(crate) const ETHERNET_IN_IP: u8 = 143;

const NO_FRAME: Refusal = Rule::S6_3.gives(Reason::Payload);
const NO_LINK: Refusal = Rule::S8_2.gives(Reason::Payload);

/// The first half of rule S6: there is no SRH, or it is done with.
#[inline]
fn check(settings: &Settings<'_>, l3: &[u8]) -> Result<(), Refusal> {
    let Some(found) = find(l3, protocol::ROUTING, false) else {
        return Ok(());
    };
    let bytes = l3.get(found.offset..).unwrap_or_default();
    let Ok(srh) = Srh::new_checked(bytes, true) else {
        return Ok(());
    };
    if srh.segments_left() > 0 {
        return Err(Rule::S6_2.gives(Reason::SegmentsLeft));
    }
    let checked = hmac::check(settings.keys, settings.demand, l3, found.offset, &srh);
    checked.map_err(|reason| Rule::S3_4.gives(reason))
}

/// End.DX4, End.DX6, End.DT*: takes out a packet of the first of these families that is there.
#[inline]
pub(crate) fn decap(
    settings: &Settings<'_>,
    packet: &mut Packet<'_>,
    families: &[Family],
) -> Result<(), Refusal> {
    check(settings, packet.l3())?;
    ip(packet, families)
}

/// The second half of rule S6, for IP.
#[inline]
pub(crate) fn ip(packet: &mut Packet<'_>, families: &[Family]) -> Result<(), Refusal> {
    for family in families {
        let (number, header) = match family {
            Family::V4 => (protocol::IPIP, 20),
            Family::V6 => (protocol::IPV6, 40),
        };
        if let Some(found) = find(packet.l3(), number, false)
            && found.offset + header <= packet.len()
        {
            packet.take_off(found.offset, *family);
            return Ok(());
        }
    }
    Err(Rule::S6_3.gives(Reason::Payload))
}

/// The same for a frame (rule S8): its offset.
#[inline]
fn frame(settings: &Settings<'_>, packet: &Packet<'_>) -> Result<usize, Refusal> {
    let l3 = packet.l3();
    check(settings, l3)?;
    let found = find(l3, ETHERNET_IN_IP, false).ok_or(NO_FRAME)?;
    let header = l3
        .get(found.offset..)
        .and_then(<[u8]>::first_chunk::<ETHERNET>)
        .ok_or(NO_FRAME)?;
    // 802.3 has a length there.
    if u16::from_be_bytes([header[12], header[13]]) < 0x600 {
        return Err(Rule::S8_1.gives(Reason::Payload));
    }
    Ok(found.offset)
}

/// A frame that leaves as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Out-link, as interface index.
    pub out: u32,
    /// Where it starts in the buffer.
    pub start: usize,
    /// Its length in bytes.
    pub len: usize,
}

/// End.DX2.
#[inline]
pub(crate) fn dx2(
    settings: &Settings<'_>,
    segment: &Segment,
    packet: &Packet<'_>,
) -> Result<Frame, Refusal> {
    let offset = frame(settings, packet)?;
    leave(packet, offset, segment.out, segment.mtu)
}

/// End.DX2V: the out-link by the VLAN of the frame's first tag. `words` are the template's.
pub(crate) fn dx2v(
    settings: &Settings<'_>,
    segment: &Segment,
    packet: &Packet<'_>,
    word: impl Fn(u32) -> u64,
) -> Result<Frame, Refusal> {
    let offset = frame(settings, packet)?;
    let tag = packet.l3().get(offset + 12..).unwrap_or_default();
    let &[0x81, 0x00, high, low, ..] = tag else {
        return Err(NO_LINK);
    };
    let vlan = u16::from_be_bytes([high, low]) & 0xfff;
    let (mut from, mut to) = (0, segment.out);
    while from < to {
        let middle = from + (to - from) / 2;
        let entry = VlanEntry::from_word(word(segment.template.wrapping_add(middle)));
        match entry.vlan.cmp(&vlan) {
            std::cmp::Ordering::Less => from = middle + 1,
            std::cmp::Ordering::Greater => to = middle,
            std::cmp::Ordering::Equal => return leave(packet, offset, entry.out, entry.mtu.into()),
        }
    }
    Err(NO_LINK)
}

/// The rest of rule S8.
#[inline]
fn leave(packet: &Packet<'_>, offset: usize, out: u32, mtu: u32) -> Result<Frame, Refusal> {
    let len = packet.len() - offset;
    if out == 0 || len - ETHERNET > mtu as usize {
        return Err(Rule::S8_3.gives(Reason::SegmentLink));
    }
    Ok(Frame {
        out,
        start: packet.place() + offset,
        len,
    })
}
