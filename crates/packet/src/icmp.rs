//! ICMP (RFC 792) and ICMPv6 (RFC 4443): what both have in common.

use crate::Family;
use crate::bytes::be16;
use crate::error::{Error, Header, enough};

/// An ICMP or ICMPv6 message of which at least the 8-byte header is there.
#[derive(Clone, Copy, Debug)]
pub struct Icmp<T>(T);

impl<T: AsRef<[u8]>> Icmp<T> {
    /// Length of the header in bytes; an error message goes on with the packet that it is about.
    pub const LEN: usize = 8;

    /// Takes a message with a whole header.
    #[inline]
    pub fn new_checked(message: T) -> Result<Self, Error> {
        enough(Header::Icmp, Self::LEN, message.as_ref().len())?;
        Ok(Icmp(message))
    }

    /// Type; its meaning depends on the family.
    #[inline]
    pub fn kind(&self) -> u8 {
        self.0.as_ref()[0]
    }

    /// Code; its meaning depends on the type.
    #[inline]
    pub fn code(&self) -> u8 {
        self.0.as_ref()[1]
    }

    /// Checksum as it stands.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.0.as_ref(), 2)
    }

    /// Everything behind the header: of an error message the packet that it is about.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[Self::LEN..]
    }
}

/// Whether messages of this type carry the packet that they are about.
///
/// IPv4: destination unreachable (3), source quench (4), redirect (5), time exceeded (11), parameter
/// problem (12), as the kernel's `icmp_is_err`. IPv6: destination unreachable (1), packet too big (2),
/// time exceeded (3), parameter problem (4), as `icmpv6_is_err`.
#[inline]
pub fn is_error(family: Family, kind: u8) -> bool {
    match family {
        Family::V4 => matches!(kind, 3 | 4 | 5 | 11 | 12),
        Family::V6 => matches!(kind, 1..=4),
    }
}
