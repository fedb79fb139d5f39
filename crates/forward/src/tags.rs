//! VLAN tags: taken off a frame that comes in by a VLAN, and put into one that leaves by a VLAN.

use std::ops::Range;

use raddle_image::{LinkEntry, MAX_TAGS, Memory, Reason, TAG, Vlan, link_flags};
use raddle_packet::Family;

use crate::choose::{Chosen, reach_tagged};
use crate::context::{Context, Sent};
use crate::rewrite::{ETHERNET, sent_len};
use crate::{ipv4, ipv6};

/// Both MAC addresses.
const MACS: usize = ETHERNET - 2;

/// What was taken off a frame: its first bytes, up to the EtherType behind the tags.
pub(crate) struct Taken {
    head: [u8; MACS + MAX_TAGS * TAG],
    len: usize,
}

impl Taken {
    /// How many bytes later the frame begins without its tags.
    pub(crate) fn shift(&self) -> usize {
        self.len - MACS
    }

    /// Takes the tags off a frame that begins at `start`.
    fn off(buffer: &mut [u8], start: usize, tags: usize) -> Taken {
        let mut head = [0; MACS + MAX_TAGS * TAG];
        let len = MACS + tags * TAG;
        head[..len].copy_from_slice(&buffer[start..start + len]);
        buffer.copy_within(start..start + MACS, start + tags * TAG);
        Taken { head, len }
    }

    /// Puts them back: the frame is as it came.
    pub(crate) fn put_back(&self, buffer: &mut [u8], start: usize) {
        buffer[start..start + self.len].copy_from_slice(&self.head[..self.len]);
    }
}

/// The link that a tagged frame comes in by (`__netif_receive_skb_core`, `vlan_do_receive`), and how many tags it has then.
///
/// 1. Link `ingress`, or the bond that it is a member of, has VLANs upon it; the frame has a tag.
/// 2. The VLAN that its tag names upon that link, and then upon this VLAN, takes it: at most [`MAX_TAGS`] tags are looked at.
/// 3. A tag without such a VLAN is passed over where its identifier is 0: it has a priority only.
/// 4. What it comes to is enabled.
fn comes_in_by(memory: &Memory, ingress: u32, frame: &[u8]) -> Result<(LinkEntry, usize), Reason> {
    let word = |at: usize| -> Result<u16, Reason> {
        let bytes = frame.get(at..at + 2).ok_or(Reason::Truncated)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    let link = memory.link(ingress);
    let own = match link.flags & link_flags::ENABLED {
        0 => Reason::NotEnabled,
        _ => Reason::NotIp,
    };
    let (mut at, mut lower, mut tags) = (ingress, link.index, 0);
    loop {
        let place = MACS + tags * TAG;
        // The tag and the EtherType behind it are there, or nothing is read of it.
        let ether_type = match tags {
            0 if frame.len() < place + TAG + 2 && own == Reason::NotEnabled => return Err(own),
            0 if frame.len() < place + TAG + 2 => return Err(Reason::Truncated),
            _ => word(place)?,
        };
        if !matches!(ether_type, Vlan::CUSTOMER | Vlan::SERVICE) {
            break;
        }
        if tags == MAX_TAGS {
            return Err(Reason::Vlan);
        }
        if frame.len() < place + TAG + 2 {
            return Err(Reason::Truncated);
        }
        let vlan = Vlan::of(ether_type, word(place + 2)?).ok_or(Reason::Vlan)?;
        match memory.vlan(lower, vlan) {
            Some(index) => (at, lower) = (index, index),
            None if vlan.id == 0 => {}
            None => return Err(Reason::Vlan),
        }
        tags += 1;
    }
    if tags == 0 {
        return Err(own);
    }
    let link = memory.link(at);
    match link.flags & link_flags::ENABLED {
        0 => Err(Reason::NotEnabled),
        _ => Ok((link, tags)),
    }
}

/// Whether the EtherType of a frame is that of a tag.
#[inline]
pub(crate) fn has_tag(frame: &[u8]) -> bool {
    matches!(frame, [_, _, _, _, _, _, _, _, _, _, _, _, 0x81, 0x00, ..])
        || matches!(frame, [_, _, _, _, _, _, _, _, _, _, _, _, 0x88, 0xa8, ..])
}

/// Takes the tags off a frame that came in on link `ingress`; the link that it comes in by then.
///
/// # Errors
/// Why it is the kernel's; it is as it came.
pub(crate) fn take_off(
    memory: &Memory,
    ingress: u32,
    buffer: &mut [u8],
    range: Range<usize>,
) -> Result<(LinkEntry, Taken), Reason> {
    let (link, tags) = comes_in_by(memory, ingress, &buffer[range.clone()])?;
    Ok((link, Taken::off(buffer, range.start, tags)))
}

/// Steps A12 and A13 (B9 and B10) for a packet of which all else has been checked, to an adjacency that is reached by a
/// VLAN.
pub(crate) fn send_tagged(
    context: &Context<'_>,
    buffer: &mut [u8],
    range: Range<usize>,
    (family, len): (Family, usize),
    number: u32,
) -> Result<Sent, Reason> {
    let chosen = reach_tagged(context, number, len, context.closed(family))?;
    let (start, have) = (range.start, range.len());
    check_room(&chosen, start)?;
    let frame = &mut buffer[range];
    match family {
        Family::V4 => ipv4::send(frame, start, len, &chosen),
        Family::V6 => ipv6::send(frame, start, len, &chosen),
    };
    Ok(put_on(buffer, start, (have, len), &chosen))
}

/// Whether there is room for the tags in front of a frame that begins at `start`.
pub(crate) fn check_room(chosen: &Chosen, start: usize) -> Result<(), Reason> {
    match start >= chosen.adjacency.put_tags().len() * TAG {
        true => Ok(()),
        false => Err(Reason::Headroom),
    }
}

/// Puts the tags into a frame that begins at `start`, where [`check_room`] has found room. It has `have` bytes, and a packet of
/// `len` in it.
pub(crate) fn put_on(
    buffer: &mut [u8],
    start: usize,
    (have, len): (usize, usize),
    chosen: &Chosen,
) -> Sent {
    let adjacency = &chosen.adjacency;
    let tags = adjacency.put_tags();
    let longer = tags.len() * TAG;
    let new = start - longer;
    buffer.copy_within(start..start + MACS, new);
    let places = buffer[new + MACS..start + MACS].chunks_exact_mut(TAG);
    for (place, tag) in places.zip(tags) {
        place.copy_from_slice(&tag.to_be_bytes());
    }
    Sent {
        index: adjacency.index,
        adjacency: chosen.number,
        start: new,
        len: sent_len(have + longer, len + longer),
    }
}
