//! Prefixes of either family, ordered so that everything inside a prefix is one run.

use std::fmt::Debug;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ipnet::IpNet;

/// An address as a number in host order: `u32` for IPv4, `u128` for IPv6.
pub trait Addr: Copy + Ord + Hash + Debug + Send + Sync + 'static {
    /// Length of an address in bits.
    const BITS: u8;
    /// The first address.
    const ZERO: Self;
    /// The address with all bits behind the first `len` cleared.
    fn masked(self, len: u8) -> Self;
    /// The address with all bits behind the first `len` set.
    fn filled(self, len: u8) -> Self;
    /// The address of this family, or none.
    fn from_ip(ip: IpAddr) -> Option<Self>;
    /// As a standard address.
    fn to_ip(self) -> IpAddr;
}

impl Addr for u32 {
    const BITS: u8 = 32;
    const ZERO: u32 = 0;

    fn masked(self, len: u8) -> u32 {
        self & u32::MAX.checked_shl(u32::from(32 - len)).unwrap_or(0)
    }

    fn filled(self, len: u8) -> u32 {
        self | u32::MAX.checked_shr(u32::from(len)).unwrap_or(0)
    }

    fn from_ip(ip: IpAddr) -> Option<u32> {
        match ip {
            IpAddr::V4(a) => Some(a.to_bits()),
            IpAddr::V6(_) => None,
        }
    }

    fn to_ip(self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(self))
    }
}

impl Addr for u128 {
    const BITS: u8 = 128;
    const ZERO: u128 = 0;

    fn masked(self, len: u8) -> u128 {
        self & u128::MAX.checked_shl(u32::from(128 - len)).unwrap_or(0)
    }

    fn filled(self, len: u8) -> u128 {
        self | u128::MAX.checked_shr(u32::from(len)).unwrap_or(0)
    }

    fn from_ip(ip: IpAddr) -> Option<u128> {
        match ip {
            IpAddr::V6(a) => Some(a.to_bits()),
            IpAddr::V4(_) => None,
        }
    }

    fn to_ip(self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from_bits(self))
    }
}

/// A prefix. The order is by address, then by length, so a prefix comes right before all that it
/// covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    /// First address; bits behind `len` are zero.
    pub addr: A,
    /// Length in bits, at most [`Addr::BITS`].
    pub len: u8,
}

impl<A: Addr> Prefix<A> {
    /// The prefix of this length that `addr` lies in; `len` above the address's own is cut to it.
    pub fn new(addr: A, len: u8) -> Prefix<A> {
        let len = len.min(A::BITS);
        Prefix {
            addr: addr.masked(len),
            len,
        }
    }

    /// The prefix that holds every address.
    pub fn all() -> Prefix<A> {
        Prefix {
            addr: A::ZERO,
            len: 0,
        }
    }

    /// The prefix that holds only this address.
    pub fn host(addr: A) -> Prefix<A> {
        Prefix { addr, len: A::BITS }
    }

    /// The same prefix of the same family, or none for the other family.
    pub fn from_net(net: IpNet) -> Option<Prefix<A>> {
        Some(Prefix::new(A::from_ip(net.addr())?, net.prefix_len()))
    }

    /// As a standard network.
    pub fn to_net(self) -> IpNet {
        IpNet::new_assert(self.addr.to_ip(), self.len)
    }

    /// Whether it holds a single address.
    pub fn is_host(self) -> bool {
        self.len == A::BITS
    }

    /// Whether `addr` lies in it.
    pub fn contains(self, addr: A) -> bool {
        addr.masked(self.len) == self.addr
    }

    /// Where to look, in an ordered map, for this prefix and all that it covers.
    pub fn inside(self) -> RangeInclusive<Prefix<A>> {
        self..=Prefix {
            addr: self.addr.filled(self.len),
            len: A::BITS,
        }
    }

    /// All its addresses.
    pub fn addresses(self) -> RangeInclusive<A> {
        self.addr..=self.addr.filled(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_comes_right_before_what_it_covers() {
        let p = |a: [u8; 4], len| Prefix::new(u32::from_be_bytes(a), len);
        let ten = p([10, 0, 0, 0], 8);
        let inside = ten.inside();
        for (q, yes) in [
            (ten, true),
            (p([10, 255, 255, 255], 32), true),
            (p([10, 0, 0, 0], 24), true),
            (p([10, 0, 0, 0], 7), false),
            (p([11, 0, 0, 0], 32), false),
            (p([0, 0, 0, 0], 0), false),
        ] {
            assert_eq!(inside.contains(&q), yes, "{q:?}");
        }
        assert_eq!(0u32.filled(0), u32::MAX);
        assert_eq!(u128::MAX.masked(0), 0);
    }
}
