//! Ethernet II and 802.1Q.

use crate::bytes::{be16, copy};
use crate::error::{Error, Header, enough};

mod field {
    use core::ops::Range;

    pub(super) const DESTINATION: usize = 0;
    pub(super) const SOURCE: usize = 6;
    pub(super) const ADDRESSES: Range<usize> = 0..12;
    pub(super) const ETHER_TYPE: usize = 12;
    pub(super) const PAYLOAD: usize = 14;
}

/// An Ethernet frame, from its destination address on and without a frame check sequence.
#[derive(Clone, Copy, Debug)]
pub struct Ethernet<T>(T);

impl<T: AsRef<[u8]>> Ethernet<T> {
    /// Length of the header in bytes.
    pub const LEN: usize = field::PAYLOAD;

    /// Takes a frame with a whole header.
    #[inline]
    pub fn new_checked(frame: T) -> Result<Self, Error> {
        enough(Header::Ethernet, Self::LEN, frame.as_ref().len())?;
        Ok(Ethernet(frame))
    }

    /// Destination MAC address.
    #[inline]
    pub fn destination(&self) -> [u8; 6] {
        copy(self.0.as_ref(), field::DESTINATION)
    }

    /// Source MAC address.
    #[inline]
    pub fn source(&self) -> [u8; 6] {
        copy(self.0.as_ref(), field::SOURCE)
    }

    /// EtherType ([`crate::protocol::ethertype`]); below 0x600 an 802.3 length.
    #[inline]
    pub fn ether_type(&self) -> u16 {
        be16(self.0.as_ref(), field::ETHER_TYPE)
    }

    /// Everything behind the header, padding included.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[field::PAYLOAD..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ethernet<T> {
    /// Sets destination and source MAC address.
    #[inline]
    pub fn set_addresses(&mut self, destination: [u8; 6], source: [u8; 6]) {
        let (to, from) = self.0.as_mut()[field::ADDRESSES].split_at_mut(field::SOURCE);
        to.copy_from_slice(&destination);
        from.copy_from_slice(&source);
    }

    /// Everything behind the header, padding included.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.0.as_mut()[field::PAYLOAD..]
    }
}

/// An 802.1Q or 802.1ad tag: the four bytes behind the EtherType that announced it, and what follows.
#[derive(Clone, Copy, Debug)]
pub struct Vlan<T>(T);

impl<T: AsRef<[u8]>> Vlan<T> {
    /// Length of the tag in bytes, without the EtherType that announces it.
    pub const LEN: usize = 4;

    /// Takes a whole tag.
    #[inline]
    pub fn new_checked(tag: T) -> Result<Self, Error> {
        enough(Header::Vlan, Self::LEN, tag.as_ref().len())?;
        Ok(Vlan(tag))
    }

    /// VLAN identifier, 0..=4095.
    #[inline]
    pub fn id(&self) -> u16 {
        be16(self.0.as_ref(), 0) & 0xfff
    }

    /// Priority code point, 0..=7.
    #[inline]
    pub fn priority(&self) -> u8 {
        self.0.as_ref()[0] >> 5
    }

    /// EtherType of what follows.
    #[inline]
    pub fn ether_type(&self) -> u16 {
        be16(self.0.as_ref(), 2)
    }

    /// Everything behind the tag.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[Self::LEN..]
    }
}
