//! VLAN tags: taken off a frame that comes in by a link upon the one that it was seen on, and put into one that leaves by a link below its
//! own.

use std::ops::Range;

use raddle_image::{LinkEntry, MAX_TAGS, Memory, Reason, TAG};
use raddle_packet::Family;

use crate::choose::{Chosen, reach_tagged};
use crate::context::{Context, Sent};
use crate::rewrite::sent_len;
use crate::upon::{MACS, comes_in_by};
use crate::{ipv4, ipv6};

/// So many bytes of a frame change at most when its tags are taken off.
pub(crate) const MOST: usize = MACS + MAX_TAGS * TAG;

/// What was taken off a frame: its first bytes, up to the EtherType behind the tags.
pub(crate) struct Taken {
    head: [u8; MOST],
    len: usize,
}

impl Taken {
    /// How many bytes later the frame begins without its tags.
    pub(crate) fn shift(&self) -> usize {
        self.len - MACS
    }

    /// Takes the tags off a frame that begins at `start`.
    fn off(buffer: &mut [u8], start: usize, tags: usize) -> Taken {
        let mut head = [0; MOST];
        let len = MACS + tags * TAG;
        head[..len].copy_from_slice(&buffer[start..start + len]);
        take_from(buffer, start, tags);
        Taken { head, len }
    }

    /// Puts them back: the frame is as it came.
    pub(crate) fn put_back(&self, buffer: &mut [u8], start: usize) {
        buffer[start..start + self.len].copy_from_slice(&self.head[..self.len]);
    }
}

/// Takes so many tags off a frame that begins at `start`; where it begins then.
pub(crate) fn take_from(buffer: &mut [u8], start: usize, tags: usize) -> usize {
    let new = start + tags * TAG;
    buffer.copy_within(start..start + MACS, new);
    new
}

/// Takes the tags off a frame that was seen on link `ingress`; the link that it comes in by then.
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

/// Steps A12 and A13 (B9 and B10) for a packet of which all else has been checked, to an adjacency that is reached by
/// another link than its own.
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
