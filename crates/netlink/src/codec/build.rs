//! Writing netlink messages.

use std::net::IpAddr;

use super::wire::{HEADER_LEN, align4};

/// Why a message cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// An attribute's length is 16 bits, and this one is longer.
    #[error("attribute {kind} is {length} bytes long, more than the 65535 that netlink can say")]
    TooLong {
        /// The attribute's number.
        kind: u16,
        /// Its length with its header.
        length: usize,
    },
    /// Settings and sweep marks have no message.
    #[error("a {0} event has no netlink message")]
    NoMessage(&'static str),
}

/// Messages under construction, one behind the other, ready for one `send`.
///
/// ```
/// use raddle_netlink::codec::{Builder, Messages};
/// let mut messages = Builder::new();
/// messages.begin(26, 0x301, &[2; 12]).put_u32(15, 254).end().unwrap();
/// assert_eq!(Messages::new(messages.as_bytes()).count(), 1);
/// ```
#[derive(Debug, Default)]
pub struct Builder {
    bytes: Vec<u8>,
    start: usize,
    error: Option<EncodeError>,
}

/// An open nested attribute; give it back to [`Builder::close`].
#[must_use = "a nested attribute has no length until it is closed"]
#[derive(Debug)]
pub struct Nest(usize);

impl Builder {
    /// No messages yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The messages so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets the messages and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
        self.error = None;
    }

    /// Starts a message of type `kind` with its family's fixed `header`.
    pub fn begin(&mut self, kind: u16, flags: u16, header: &[u8]) -> &mut Self {
        self.start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 8]);
        self.bytes.extend_from_slice(header);
        self.pad();
        self
    }

    /// Ends the message.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] if one of its attributes was; the message is then taken out again.
    pub fn end(&mut self) -> Result<(), EncodeError> {
        if let Some(error) = self.error.take() {
            self.bytes.truncate(self.start);
            return Err(error);
        }
        // A message is made of attributes below 64 KiB; 4 GiB of them do not fit in a request.
        let length = (self.bytes.len() - self.start) as u32;
        self.bytes[self.start..self.start + 4].copy_from_slice(&length.to_ne_bytes());
        Ok(())
    }

    /// Sets the sequence number of every message to consecutive numbers from `first`, and `flags`
    /// in addition to those they have. Returns how many messages there are.
    pub(crate) fn stamp(&mut self, first: u32, flags: u16) -> u32 {
        let mut at = 0;
        let mut count = 0;
        while let Some(head) = self.bytes.get_mut(at..at + HEADER_LEN) {
            let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
            if length < HEADER_LEN {
                break;
            }
            let old = u16::from_ne_bytes([head[6], head[7]]);
            head[6..8].copy_from_slice(&(old | flags).to_ne_bytes());
            head[8..12].copy_from_slice(&first.wrapping_add(count).to_ne_bytes());
            at += align4(length);
            count += 1;
        }
        count
    }

    /// Appends an attribute.
    pub fn put(&mut self, kind: u16, payload: &[u8]) -> &mut Self {
        let at = self.open(kind).0;
        self.bytes.extend_from_slice(payload);
        self.close(Nest(at))
    }

    /// Appends an attribute of one byte.
    pub fn put_u8(&mut self, kind: u16, value: u8) -> &mut Self {
        self.put(kind, &[value])
    }

    /// Appends a 16-bit attribute in host order.
    pub fn put_u16(&mut self, kind: u16, value: u16) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Appends a 32-bit attribute in host order.
    pub fn put_u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Appends a 64-bit attribute in host order.
    pub fn put_u64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Appends an address in network order.
    pub fn put_ip(&mut self, kind: u16, address: IpAddr) -> &mut Self {
        match address {
            IpAddr::V4(a) => self.put(kind, &a.octets()),
            IpAddr::V6(a) => self.put(kind, &a.octets()),
        }
    }

    /// Appends a string with its NUL.
    pub fn put_str(&mut self, kind: u16, text: &str) -> &mut Self {
        let at = self.open(kind).0;
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        self.close(Nest(at))
    }

    /// Appends bytes inside an open attribute.
    pub(crate) fn put_raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Opens a nested attribute. The kernel's strict parsers want `NLA_F_NESTED` for some and
    /// tolerate it everywhere, so callers add 0x8000 to `kind` where it is asked for.
    pub fn open(&mut self, kind: u16) -> Nest {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        Nest(at)
    }

    /// Closes a nested attribute.
    pub fn close(&mut self, Nest(at): Nest) -> &mut Self {
        let length = self.bytes.len() - at;
        match u16::try_from(length) {
            Ok(short) => self.bytes[at..at + 2].copy_from_slice(&short.to_ne_bytes()),
            Err(_) => {
                let kind = u16::from_ne_bytes([self.bytes[at + 2], self.bytes[at + 3]]);
                self.error
                    .get_or_insert(EncodeError::TooLong { kind, length });
            }
        }
        self.pad();
        self
    }

    /// Opens an `rtnexthop` of `RTA_MULTIPATH`, which has a header of its own kind: length, flags,
    /// weight - 1, link.
    pub(crate) fn open_rtnexthop(&mut self, flags: u8, hops: u8, index: u32) -> Nest {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0, flags, hops]);
        self.bytes.extend_from_slice(&index.to_ne_bytes());
        Nest(at)
    }

    fn pad(&mut self) {
        self.bytes.resize(align4(self.bytes.len()), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_that_is_too_long_is_refused_and_leaves_no_trace() {
        let mut b = Builder::new();
        b.begin(24, 0, &[0; 12]).end().unwrap();
        let before = b.as_bytes().to_vec();
        let error = b.begin(24, 0, &[0; 12]).put(9, &vec![0; 65_532]).end();
        assert_eq!(
            error,
            Err(EncodeError::TooLong {
                kind: 9,
                length: 65_536
            })
        );
        assert_eq!(b.as_bytes(), before);
        b.begin(24, 0, &[0; 12])
            .put(9, &vec![0; 65_531])
            .end()
            .unwrap();
    }

    #[test]
    fn stamping_numbers_every_message() {
        let mut b = Builder::new();
        for _ in 0..3 {
            b.begin(24, 0x400, &[0; 12]).put_u8(1, 1).end().unwrap();
        }
        assert_eq!(b.stamp(7, 5), 3);
        let seen: Vec<_> = super::super::Messages::new(b.as_bytes())
            .map(|m| m.map(|m| (m.sequence, m.flags)))
            .collect();
        assert_eq!(seen, [Ok((7, 0x405)), Ok((8, 0x405)), Ok((9, 0x405))]);
    }
}
