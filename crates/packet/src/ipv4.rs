//! IPv4 (RFC 791).

use core::net::Ipv4Addr;

use crate::bytes::{be16, copy};
use crate::checksum;
use crate::error::{Error, Header, enough};

mod field {
    pub(super) const DSCP_ECN: usize = 1;
    pub(super) const TOTAL_LEN: usize = 2;
    pub(super) const ID: usize = 4;
    pub(super) const FRAGMENT: usize = 6;
    pub(super) const TTL: usize = 8;
    pub(super) const PROTOCOL: usize = 9;
    pub(super) const CHECKSUM: usize = 10;
    pub(super) const SRC: usize = 12;
    pub(super) const DST: usize = 16;
}

/// Shortest header in bytes; also what is there to read in every [`Ipv4`].
pub const MIN_LEN: usize = 20;

/// An IPv4 packet of which at least the fixed header is there.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<T>(T);

impl<T: AsRef<[u8]>> Ipv4<T> {
    /// Takes a packet whose version is 4 and whose header, options included, is there. Lengths and
    /// checksum are looked at by [`Ipv4::l3`] and [`Ipv4::is_checksum_valid`].
    #[inline]
    pub fn new_checked(packet: T) -> Result<Self, Error> {
        let bytes = packet.as_ref();
        let header = Header::Ipv4;
        enough(header, MIN_LEN, bytes.len())?;
        if bytes[0] >> 4 != 4 {
            return Err(Error::Version {
                header,
                found: bytes[0] >> 4,
            });
        }
        let length = usize::from(bytes[0] & 0xf) * 4;
        if length < MIN_LEN {
            return Err(Error::HeaderLength { header, length });
        }
        enough(header, length, bytes.len())?;
        Ok(Ipv4(packet))
    }

    /// Length of the header in bytes, 20..=60.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[0] & 0xf) * 4
    }

    /// DSCP (upper 6 bits) and ECN.
    #[inline]
    pub fn dscp_ecn(&self) -> u8 {
        self.0.as_ref()[field::DSCP_ECN]
    }

    /// Length of the packet by its header, in bytes.
    #[inline]
    pub fn total_len(&self) -> u16 {
        be16(self.0.as_ref(), field::TOTAL_LEN)
    }

    /// Identification, shared by the fragments of a packet.
    #[inline]
    pub fn id(&self) -> u16 {
        be16(self.0.as_ref(), field::ID)
    }

    /// Don't fragment.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.0.as_ref()[field::FRAGMENT] & 0x40 != 0
    }

    /// More fragments follow.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.0.as_ref()[field::FRAGMENT] & 0x20 != 0
    }

    /// Where this fragment's data belongs, in units of 8 bytes.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        be16(self.0.as_ref(), field::FRAGMENT) & 0x1fff
    }

    /// Time to live.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.0.as_ref()[field::TTL]
    }

    /// Protocol of what follows ([`crate::protocol`]).
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.0.as_ref()[field::PROTOCOL]
    }

    /// Header checksum as it stands.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.0.as_ref(), field::CHECKSUM)
    }

    /// Whether the header, options included, has the right checksum.
    #[inline]
    pub fn is_checksum_valid(&self) -> bool {
        let bytes = self.0.as_ref();
        match (self.header_len(), bytes.first_chunk()) {
            (MIN_LEN, Some(header)) => checksum::is_valid_ipv4(header),
            (length, _) => checksum::is_valid(&bytes[..length]),
        }
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from(copy::<4>(self.0.as_ref(), field::SRC))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from(copy::<4>(self.0.as_ref(), field::DST))
    }

    /// The packet without what lies behind its end, such as Ethernet padding. An error where its
    /// total length is shorter than its header or longer than the bytes that there are.
    #[inline]
    pub fn l3(&self) -> Result<&[u8], Error> {
        let bytes = self.0.as_ref();
        let length = usize::from(self.total_len());
        match bytes.get(..length) {
            Some(l3) if length >= self.header_len() => Ok(l3),
            _ => Err(Error::TotalLength {
                header: Header::Ipv4,
                length,
                have: bytes.len(),
            }),
        }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4<T> {
    /// Takes one from the TTL and updates the checksum as the kernel's `ip_decrease_ttl`. A TTL of 0
    /// wraps; the caller answers such packets with an ICMP error instead.
    #[inline]
    pub fn decrease_ttl(&mut self) {
        let check = checksum::decrease_ttl(self.checksum());
        let bytes = self.0.as_mut();
        bytes[field::TTL] = bytes[field::TTL].wrapping_sub(1);
        bytes[field::CHECKSUM..field::CHECKSUM + 2].copy_from_slice(&check.to_be_bytes());
    }
}
