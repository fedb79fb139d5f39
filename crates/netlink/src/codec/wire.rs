//! Netlink framing: messages in a buffer, attributes in a message.
//!
//! Both iterators borrow from the buffer, never read past it and never allocate. Attributes are
//! decoded by functions of fixed depth, so hostile nesting cannot exhaust the stack.
//!
//! Lengths and numbers are in host byte order, as the kernel writes them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why bytes are not a message that we understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A header or fixed part is cut short.
    #[error("{what} needs {need} bytes, the message has {have}")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Bytes that it needs.
        need: usize,
        /// Bytes that there are.
        have: usize,
    },
    /// A length field points outside of what contains it, or is smaller than its own header.
    #[error("{what} says it is {length} bytes long, {have} are left")]
    BadLength {
        /// What was being read.
        what: &'static str,
        /// The length it claims.
        length: usize,
        /// Bytes that there are.
        have: usize,
    },
    /// A value that has no meaning here.
    #[error("{what} cannot be {value}")]
    BadValue {
        /// What was being read.
        what: &'static str,
        /// The value it has.
        value: u64,
    },
    /// An attribute without which the message says nothing.
    #[error("{what} is missing")]
    Missing {
        /// The attribute.
        what: &'static str,
    },
}

/// Rounds up to the 4 bytes that netlink aligns everything to (`NLMSG_ALIGN`, `NLA_ALIGN`).
pub(crate) const fn align4(n: usize) -> usize {
    (n + 3) & !3
}

/// Bytes in `nlmsghdr`.
pub(super) const HEADER_LEN: usize = 16;

/// One netlink message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// `nlmsg_type`: `RTM_*`, or below 16 a control message.
    pub kind: u16,
    /// `nlmsg_flags`: `NLM_F_*`.
    pub flags: u16,
    /// `nlmsg_seq`: 0 in notifications that nobody's request caused.
    pub sequence: u32,
    /// `nlmsg_pid`: the port of the socket that it answers.
    pub port: u32,
    /// What follows the header.
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// The `N` bytes of the family's fixed header, and the attributes behind it.
    pub(crate) fn split<const N: usize>(
        &self,
        what: &'static str,
    ) -> Result<(&'a [u8; N], Attributes<'a>), DecodeError> {
        let Some((head, _)) = self.payload.split_first_chunk::<N>() else {
            return Err(DecodeError::Truncated {
                what,
                need: N,
                have: self.payload.len(),
            });
        };
        let rest = self.payload.get(align4(N)..).unwrap_or_default();
        Ok((head, Attributes::new(rest)))
    }
}

/// The messages in a buffer, as one `recv` or one frame delivers them.
///
/// Ends after the first message whose length is impossible: nothing behind it can be trusted.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Walks `buffer`.
    pub fn new(buffer: &'a [u8]) -> Self {
        Messages { rest: buffer }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let buffer = std::mem::take(&mut self.rest);
        let have = buffer.len();
        let Some(head) = buffer.first_chunk::<HEADER_LEN>() else {
            return Some(Err(DecodeError::Truncated {
                what: "nlmsghdr",
                need: HEADER_LEN,
                have,
            }));
        };
        let length = read_u32(head, 0) as usize;
        if length < HEADER_LEN || length > have {
            return Some(Err(DecodeError::BadLength {
                what: "nlmsghdr",
                length,
                have,
            }));
        }
        // The last message of a buffer may lack its padding.
        self.rest = buffer.get(align4(length)..).unwrap_or_default();
        Some(Ok(Message {
            kind: read_u16(head, 4),
            flags: read_u16(head, 6),
            sequence: read_u32(head, 8),
            port: read_u32(head, 12),
            payload: &buffer[HEADER_LEN..length],
        }))
    }
}

/// One attribute: number and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// `nla_type` without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
    pub kind: u16,
    /// The payload without padding.
    pub payload: &'a [u8],
}

/// The attributes in a run of bytes.
///
/// Up to 3 bytes of trailing padding are passed over, as the kernel's parser does; an attribute
/// that does not fit is an error and ends the walk.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// Walks `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Attributes { rest: bytes }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let bytes = std::mem::take(&mut self.rest);
        let head = bytes.first_chunk::<4>()?;
        let length = usize::from(read_u16(head, 0));
        if length < 4 || length > bytes.len() {
            let have = bytes.len();
            return Some(Err(DecodeError::BadLength {
                what: "attribute",
                length,
                have,
            }));
        }
        self.rest = bytes.get(align4(length)..).unwrap_or_default();
        Some(Ok(Attribute {
            kind: read_u16(head, 2) & 0x3fff,
            payload: &bytes[4..length],
        }))
    }
}

impl<'a> Attribute<'a> {
    /// The attributes nested in this one.
    pub fn nested(&self) -> Attributes<'a> {
        Attributes::new(self.payload)
    }

    /// The first `N` bytes. Longer payloads are fine: newer kernels extend structures.
    pub(crate) fn bytes<const N: usize>(
        &self,
        what: &'static str,
    ) -> Result<&'a [u8; N], DecodeError> {
        let have = self.payload.len();
        self.payload
            .first_chunk::<N>()
            .ok_or(DecodeError::Truncated {
                what,
                need: N,
                have,
            })
    }

    pub(crate) fn u8(&self, what: &'static str) -> Result<u8, DecodeError> {
        self.bytes::<1>(what).map(|b| b[0])
    }

    pub(crate) fn u16(&self, what: &'static str) -> Result<u16, DecodeError> {
        self.bytes::<2>(what).map(|b| u16::from_ne_bytes(*b))
    }

    #[inline]
    pub(crate) fn u32(&self, what: &'static str) -> Result<u32, DecodeError> {
        self.bytes::<4>(what).map(|b| u32::from_ne_bytes(*b))
    }

    pub(crate) fn u64(&self, what: &'static str) -> Result<u64, DecodeError> {
        self.bytes::<8>(what).map(|b| u64::from_ne_bytes(*b))
    }

    /// An IPv4 or IPv6 address, told apart by length.
    #[inline]
    pub(crate) fn ip(&self, what: &'static str) -> Result<IpAddr, DecodeError> {
        ip_from(self.payload, what)
    }

    /// A string up to its NUL; bytes that are not UTF-8 are replaced (device names may be any
    /// bytes).
    pub(crate) fn string(&self) -> String {
        let end = self
            .payload
            .iter()
            .position(|&b| b == 0)
            .unwrap_or(self.payload.len());
        String::from_utf8_lossy(&self.payload[..end]).into_owned()
    }
}

/// An address of 4 or 16 bytes in network order.
#[inline]
pub(crate) fn ip_from(bytes: &[u8], what: &'static str) -> Result<IpAddr, DecodeError> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Ok(IpAddr::V4(Ipv4Addr::from(v4)));
    }
    match <[u8; 16]>::try_from(bytes) {
        Ok(v6) => Ok(IpAddr::V6(Ipv6Addr::from(v6))),
        Err(_) => Err(DecodeError::BadLength {
            what,
            length: bytes.len(),
            have: bytes.len(),
        }),
    }
}

/// Reads a number inside a fixed header. `N` is a constant and `at` a literal at every call, so
/// the bounds check folds away.
#[inline(always)]
pub(crate) fn read_u32<const N: usize>(head: &[u8; N], at: usize) -> u32 {
    u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

/// As [`read_u32`], for 16 bits.
#[inline(always)]
pub(crate) fn read_u16<const N: usize>(head: &[u8; N], at: usize) -> u16 {
    u16::from_ne_bytes([head[at], head[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_claims_more_than_the_buffer_ends_the_walk() {
        let mut bytes = vec![0u8; 20];
        bytes[..4].copy_from_slice(&16u32.to_ne_bytes());
        let mut walk = Messages::new(&bytes);
        assert!(walk.next().unwrap().is_ok());
        assert!(matches!(
            walk.next(),
            Some(Err(DecodeError::Truncated {
                need: 16,
                have: 4,
                ..
            }))
        ));
        assert_eq!(walk.next(), None);
        bytes[..4].copy_from_slice(&21u32.to_ne_bytes());
        assert!(matches!(
            Messages::new(&bytes).next(),
            Some(Err(DecodeError::BadLength {
                length: 21,
                have: 20,
                ..
            }))
        ));
    }

    #[test]
    fn attributes_stop_at_padding_and_at_lies() {
        // Length 5: one payload byte, three of padding, then an attribute that claims 9 of 8.
        let bytes = [5, 0, 7, 0x80, 0xaa, 0, 0, 0, 9, 0, 1, 0, 1, 2, 3, 4];
        let got: Vec<_> = Attributes::new(&bytes).collect();
        assert_eq!(
            got[0],
            Ok(Attribute {
                kind: 7,
                payload: &[0xaa]
            })
        );
        assert!(matches!(
            got[1],
            Err(DecodeError::BadLength {
                length: 9,
                have: 8,
                ..
            })
        ));
        assert_eq!(got.len(), 2);
        assert_eq!(Attributes::new(&[1, 2, 3]).count(), 0);
    }
}
