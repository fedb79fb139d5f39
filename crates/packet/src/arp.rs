//! ARP for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use crate::bytes::{be16, copy};
use crate::error::{Error, Header, enough};

mod field {
    pub(super) const FIXED: [u8; 6] = [0, 1, 8, 0, 6, 4];
    pub(super) const OPERATION: usize = 6;
    pub(super) const SENDER_MAC: usize = 8;
    pub(super) const SENDER_IP: usize = 14;
    pub(super) const TARGET_MAC: usize = 18;
    pub(super) const TARGET_IP: usize = 24;
    pub(super) const END: usize = 28;
}

/// Operation of a request.
pub const REQUEST: u16 = 1;
/// Operation of a reply.
pub const REPLY: u16 = 2;

/// An ARP message about an IPv4 address on Ethernet.
#[derive(Clone, Copy, Debug)]
pub struct Arp<T>(T);

impl<T: AsRef<[u8]>> Arp<T> {
    /// Length of the message in bytes.
    pub const LEN: usize = field::END;

    /// Takes a whole message; other hardware or protocols are refused.
    pub fn new_checked(message: T) -> Result<Self, Error> {
        let bytes = message.as_ref();
        enough(Header::Arp, Self::LEN, bytes.len())?;
        if bytes[..field::OPERATION] != field::FIXED {
            return Err(Error::NotEthernetIpv4);
        }
        Ok(Arp(message))
    }

    /// [`REQUEST`], [`REPLY`] or something else.
    pub fn operation(&self) -> u16 {
        be16(self.0.as_ref(), field::OPERATION)
    }

    /// The sender's MAC address.
    pub fn sender_mac(&self) -> [u8; 6] {
        copy(self.0.as_ref(), field::SENDER_MAC)
    }

    /// The sender's IPv4 address.
    pub fn sender(&self) -> Ipv4Addr {
        Ipv4Addr::from(copy::<4>(self.0.as_ref(), field::SENDER_IP))
    }

    /// The target's MAC address; of a request mostly zero.
    pub fn target_mac(&self) -> [u8; 6] {
        copy(self.0.as_ref(), field::TARGET_MAC)
    }

    /// The target's IPv4 address.
    pub fn target(&self) -> Ipv4Addr {
        Ipv4Addr::from(copy::<4>(self.0.as_ref(), field::TARGET_IP))
    }
}
