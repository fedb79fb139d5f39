//! A packet that is being changed, and can be put back as it came.

use std::ops::Range;

use raddle_image::Reason;
use raddle_packet::Family;

/// Ethernet header.
pub const ETHERNET: usize = 14;
/// IPv6 header.
pub(crate) const IPV6: usize = 40;

/// What stood where something was written, newest last. Kept from packet to packet for its memory.
#[derive(Debug, Default)]
pub struct Undo {
    places: Vec<(usize, usize)>,
    bytes: Vec<u8>,
}

impl Undo {
    #[inline]
    fn clear(&mut self) {
        self.places.clear();
        self.bytes.clear();
    }
}

/// Of which bytes the hash of an encapsulated packet is made (rule S9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Family of the packet that was encapsulated first.
    pub family: Family,
    /// Where it lies in the buffer.
    pub range: Range<usize>,
    /// Of the segment that encapsulated last.
    pub salt: u32,
}

/// An IP packet in a buffer with room around it.
///
/// It grows and shrinks at its front only. What is overwritten of the frame that came in is saved, so
/// that [`Packet::restore`] gives it back.
#[derive(Debug)]
pub struct Packet<'a> {
    buffer: &'a mut [u8],
    undo: &'a mut Undo,
    /// The frame as it came.
    frame: Range<usize>,
    /// The packet as it stands.
    start: usize,
    end: usize,
    family: Family,
    ethernet: [u8; ETHERNET],
    flow: Option<Flow>,
}

impl<'a> Packet<'a> {
    /// A packet of `len` bytes behind the Ethernet header of `frame`; nothing where the buffer does not
    /// hold that.
    #[inline]
    pub fn new(
        buffer: &'a mut [u8],
        frame: Range<usize>,
        (family, len): (Family, usize),
        undo: &'a mut Undo,
    ) -> Option<Packet<'a>> {
        let ethernet = *buffer.get(frame.clone())?.first_chunk::<ETHERNET>()?;
        let start = frame.start + ETHERNET;
        let end = start + len;
        if end > frame.end {
            return None;
        }
        undo.clear();
        Some(Packet {
            buffer,
            undo,
            frame,
            start,
            end,
            family,
            ethernet,
            flow: None,
        })
    }

    /// The packet from its IP header on.
    #[inline]
    pub fn l3(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Its family.
    #[inline]
    pub fn family(&self) -> Family {
        self.family
    }

    /// Its length in bytes: all that is carried, which can be more than its own header says.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// What the hash of an encapsulated packet is made of; none while the packet's own is taken.
    #[inline]
    pub fn flow(&self) -> Option<&Flow> {
        self.flow.as_ref()
    }

    /// Bytes anywhere in the buffer, for [`Flow::range`].
    #[inline]
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.buffer.get(range).unwrap_or_default()
    }

    /// The buffer; where in it the packet is, with the Ethernet header in front of it, which is to be written; and how many
    /// bytes there are from there to the end of the frame that came in.
    #[inline]
    pub fn into_frame(self) -> (&'a mut [u8], Range<usize>, usize) {
        let start = self.frame_start();
        let have = self.frame.end - start;
        (self.buffer, start..self.end, have)
    }

    /// Where in the buffer the Ethernet header in front of the packet is, or will be.
    #[inline]
    pub fn frame_start(&self) -> usize {
        self.start - ETHERNET
    }

    /// Bytes from this place in the buffer to the end of the frame that came in.
    #[inline]
    pub fn have_from(&self, place: usize) -> usize {
        self.frame.end.saturating_sub(place)
    }

    /// Where a frame that starts with the packet's first byte begins, and how many bytes follow there.
    #[inline]
    pub(crate) fn place(&self) -> usize {
        self.start
    }

    /// Puts everything back.
    pub fn restore(self) {
        let mut last = self.undo.bytes.len();
        for (at, len) in self.undo.places.iter().rev() {
            let first = last - len;
            self.buffer[*at..at + len].copy_from_slice(&self.undo.bytes[first..last]);
            last = first;
        }
        self.buffer[self.frame.start..][..ETHERNET].copy_from_slice(&self.ethernet);
        self.undo.clear();
    }

    /// The Ethernet header as it came.
    pub(crate) fn ethernet(&self) -> [u8; ETHERNET] {
        self.ethernet
    }

    /// Remembers what stands there, as far as it belongs to the frame and not to its Ethernet header,
    /// which is known.
    #[inline]
    fn save(&mut self, range: Range<usize>) {
        let from = range.start.max(self.frame.start + ETHERNET);
        let to = range.end.min(self.frame.end);
        if from < to {
            self.undo.places.push((from, to - from));
            self.undo.bytes.extend_from_slice(&self.buffer[from..to]);
        }
    }

    /// Bytes of the packet, to be written, which are saved.
    pub fn kept(&mut self, range: Range<usize>) -> &mut [u8] {
        self.save(self.start + range.start..self.start + range.end);
        self.fresh(range)
    }

    /// Writes at an offset of the packet, which must hold all of it.
    #[inline]
    pub(crate) fn write<const N: usize>(&mut self, at: usize, bytes: &[u8; N]) {
        let at = self.start + at;
        let whole = at >= self.frame.start + ETHERNET;
        let place = self.buffer[at..].first_chunk_mut::<N>();
        if let Some(place) = place.filter(|_| whole) {
            self.undo.places.push((at, N));
            self.undo.bytes.extend_from_slice(place);
            *place = *bytes;
        } else {
            self.save(at..at + N);
            self.buffer[at..at + N].copy_from_slice(bytes);
        }
    }

    /// Bytes of the packet that have been saved, or do not belong to the frame.
    #[inline]
    pub(crate) fn fresh(&mut self, range: Range<usize>) -> &mut [u8] {
        &mut self.buffer[self.start + range.start..self.start + range.end]
    }

    /// Removes `len` bytes at offset `at`: what stands in front of them moves.
    pub(crate) fn cut(&mut self, at: usize, len: usize) {
        let to = self.start + len;
        self.save(to..to + at);
        self.buffer.copy_within(self.start..self.start + at, to);
        self.start = to;
    }

    /// Takes off the first `len` bytes, behind which there is a packet of this family.
    #[inline]
    pub(crate) fn take_off(&mut self, len: usize, family: Family) {
        self.start += len;
        self.family = family;
        self.flow = None;
    }

    /// Makes room for `len` bytes in front, of which and of `rest` bytes behind them the old ones are
    /// saved.
    ///
    /// # Errors
    /// [`Reason::Headroom`]: an Ethernet header would not fit in front of them.
    #[inline]
    pub(crate) fn grow(&mut self, len: usize, rest: usize) -> Result<(), Reason> {
        if self.start < len + ETHERNET {
            return Err(Reason::Headroom);
        }
        self.save(self.start - len..self.start + rest);
        self.start -= len;
        Ok(())
    }

    /// It has been encapsulated in this family: `inner` is how long it was in total. From now on its flow, or
    /// that of whatever was encapsulated before it, chooses links.
    #[inline]
    pub(crate) fn encapsulated(&mut self, inner: usize, by_flow: Option<u32>, family: Family) {
        if let Some(salt) = by_flow {
            match &mut self.flow {
                Some(flow) => flow.salt = salt,
                None => {
                    self.flow = Some(Flow {
                        family: self.family,
                        range: self.end - inner..self.end,
                        salt,
                    });
                }
            }
        }
        self.family = family;
    }
}
