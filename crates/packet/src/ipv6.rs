//! IPv6 (RFC 8200) and its extension headers.

use core::net::Ipv6Addr;

use crate::bytes::{at, be16, be32, copy};
use crate::error::{Error, Header, enough};
use crate::protocol;

mod field {
    pub(super) const PAYLOAD_LEN: usize = 4;
    pub(super) const NEXT_HEADER: usize = 6;
    pub(super) const HOP_LIMIT: usize = 7;
    pub(super) const SRC: usize = 8;
    pub(super) const DST: usize = 24;
}

/// Length of the fixed header in bytes.
pub const LEN: usize = 40;

/// An IPv6 packet of which at least the fixed header is there.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<T>(T);

impl<T: AsRef<[u8]>> Ipv6<T> {
    /// Takes a packet whose version is 6 and whose fixed header is there. The length is looked at by
    /// [`Ipv6::l3`].
    #[inline]
    pub fn new_checked(packet: T) -> Result<Self, Error> {
        let bytes = packet.as_ref();
        let header = Header::Ipv6;
        enough(header, LEN, bytes.len())?;
        if bytes[0] >> 4 != 6 {
            return Err(Error::Version {
                header,
                found: bytes[0] >> 4,
            });
        }
        Ok(Ipv6(packet))
    }

    /// Traffic class: DSCP (upper 6 bits) and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (be16(self.0.as_ref(), 0) >> 4) as u8
    }

    /// Flow label as a number, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        be32(self.0.as_ref(), 0) & 0xf_ffff
    }

    /// Length of everything behind the fixed header, in bytes.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        be16(self.0.as_ref(), field::PAYLOAD_LEN)
    }

    /// What follows the fixed header ([`crate::protocol`]).
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.0.as_ref()[field::NEXT_HEADER]
    }

    /// Hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.0.as_ref()[field::HOP_LIMIT]
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from(copy::<16>(self.0.as_ref(), field::SRC))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(copy::<16>(self.0.as_ref(), field::DST))
    }

    /// The packet without what lies behind its end, such as Ethernet padding. An error where its
    /// payload length says more than the bytes that there are.
    #[inline]
    pub fn l3(&self) -> Result<&[u8], Error> {
        let bytes = self.0.as_ref();
        let length = LEN + usize::from(self.payload_len());
        bytes.get(..length).ok_or(Error::TotalLength {
            header: Header::Ipv6,
            length,
            have: bytes.len(),
        })
    }

    /// The extension headers, in order; see [`Extensions`].
    pub fn extensions(&self) -> Extensions<'_> {
        Extensions {
            rest: &self.0.as_ref()[LEN..],
            next: self.next_header(),
        }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6<T> {
    /// Takes one from the hop limit. 0 wraps; the caller answers such packets with an ICMP error
    /// instead.
    #[inline]
    pub fn decrease_hop_limit(&mut self) {
        let hop_limit = &mut self.0.as_mut()[field::HOP_LIMIT];
        *hop_limit = hop_limit.wrapping_sub(1);
    }
}

/// Walks hop-by-hop, routing, fragment and destination option headers.
///
/// Ends at the first header of another kind, which [`Extensions::upper`] then names, behind the
/// header of a later fragment (what follows is the middle of something), and after an error.
#[derive(Clone, Copy, Debug)]
pub struct Extensions<'a> {
    rest: &'a [u8],
    next: u8,
}

impl<'a> Extensions<'a> {
    /// Protocol and bytes that have not been walked over: once the walk has ended without error, the
    /// upper-layer header, or a later fragment's data.
    pub fn upper(&self) -> (u8, &'a [u8]) {
        (self.next, self.rest)
    }
}

/// One extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Its own protocol number.
    pub protocol: u8,
    /// All of its bytes, from its next-header byte on.
    pub bytes: &'a [u8],
}

impl Extension<'_> {
    /// The fields of a fragment header; none for other kinds.
    pub fn fragment(&self) -> Option<Fragment> {
        if self.protocol != protocol::FRAGMENT {
            return None;
        }
        let bytes = at::<8>(self.bytes, 0)?;
        Some(Fragment {
            offset: be16(bytes, 2) >> 3,
            more: bytes[3] & 1 != 0,
            id: be32(bytes, 4),
        })
    }
}

/// The fields of a fragment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Where this fragment's data belongs, in units of 8 bytes.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// Identification, shared by the fragments of a packet.
    pub id: u32,
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Result<Extension<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let protocol = self.next;
        let fixed = match protocol {
            protocol::HOPOPTS | protocol::ROUTING | protocol::DSTOPTS => None,
            protocol::FRAGMENT => Some(8),
            _ => return None,
        };
        let bytes = self.rest;
        let need = match (fixed, bytes.get(1)) {
            (Some(fixed), _) => fixed,
            (None, Some(length)) => (usize::from(*length) + 1) * 8,
            (None, None) => 2,
        };
        if let Err(error) = enough(Header::Extension, need, bytes.len()) {
            self.next = protocol::NONE;
            return Some(Err(error));
        }
        let (bytes, rest) = bytes.split_at(need);
        (self.next, self.rest) = (bytes[0], rest);
        let extension = Extension { protocol, bytes };
        if extension.fragment().is_some_and(|f| f.offset != 0) {
            self.next = protocol::NONE;
        }
        Some(Ok(extension))
    }
}
