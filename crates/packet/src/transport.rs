//! UDP (RFC 768) and TCP (RFC 9293).

use crate::bytes::{be16, be32};
use crate::error::{Error, Header, enough};

/// A UDP datagram of which at least the header is there.
#[derive(Clone, Copy, Debug)]
pub struct Udp<T>(T);

impl<T: AsRef<[u8]>> Udp<T> {
    /// Length of the header in bytes.
    pub const LEN: usize = 8;

    /// Takes a datagram with a whole header.
    #[inline]
    pub fn new_checked(datagram: T) -> Result<Self, Error> {
        enough(Header::Udp, Self::LEN, datagram.as_ref().len())?;
        Ok(Udp(datagram))
    }

    /// Source port.
    #[inline]
    pub fn sport(&self) -> u16 {
        be16(self.0.as_ref(), 0)
    }

    /// Destination port.
    #[inline]
    pub fn dport(&self) -> u16 {
        be16(self.0.as_ref(), 2)
    }

    /// Length of header and data by the header, in bytes.
    #[inline]
    pub fn length(&self) -> u16 {
        be16(self.0.as_ref(), 4)
    }

    /// Checksum as it stands; over IPv4 0 means none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.0.as_ref(), 6)
    }

    /// Everything behind the header.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[Self::LEN..]
    }
}

/// A TCP segment of which the header is there, options included.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<T>(T);

impl<T: AsRef<[u8]>> Tcp<T> {
    /// Shortest header in bytes.
    pub const MIN_LEN: usize = 20;

    /// Takes a segment with a whole header.
    #[inline]
    pub fn new_checked(segment: T) -> Result<Self, Error> {
        let bytes = segment.as_ref();
        let header = Header::Tcp;
        enough(header, Self::MIN_LEN, bytes.len())?;
        let length = usize::from(bytes[12] >> 4) * 4;
        if length < Self::MIN_LEN {
            return Err(Error::HeaderLength { header, length });
        }
        enough(header, length, bytes.len())?;
        Ok(Tcp(segment))
    }

    /// Source port.
    #[inline]
    pub fn sport(&self) -> u16 {
        be16(self.0.as_ref(), 0)
    }

    /// Destination port.
    #[inline]
    pub fn dport(&self) -> u16 {
        be16(self.0.as_ref(), 2)
    }

    /// Sequence number.
    #[inline]
    pub fn sequence(&self) -> u32 {
        be32(self.0.as_ref(), 4)
    }

    /// Acknowledgement number.
    #[inline]
    pub fn acknowledgement(&self) -> u32 {
        be32(self.0.as_ref(), 8)
    }

    /// Length of the header in bytes, 20..=60.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[12] >> 4) * 4
    }

    /// CWR, ECE, URG, ACK, PSH, RST, SYN, FIN, from the highest bit down.
    #[inline]
    pub fn flags(&self) -> u8 {
        self.0.as_ref()[13]
    }

    /// Checksum as it stands.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.0.as_ref(), 16)
    }

    /// Everything behind the header.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[self.header_len()..]
    }
}
