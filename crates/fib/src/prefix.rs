//! Prefixes in the form that the tables work with: host order, masked, length checked.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::FibError;

macro_rules! prefix {
    ($(#[$doc:meta])* $name:ident, $bits:ty, $width:literal, $address:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            addr: $bits,
            len: u8,
        }

        impl $name {
            /// Length of an address in bits.
            pub const WIDTH: u8 = $width;
            /// The default route's prefix.
            pub const ALL: $name = $name { addr: 0, len: 0 };

            /// A prefix of `len` bits; host bits of `addr` (host order) are cleared.
            ///
            /// # Errors
            /// [`FibError::BadLength`] when `len` is longer than an address.
            #[inline]
            pub const fn new(addr: $bits, len: u8) -> Result<$name, FibError> {
                if len > $width {
                    return Err(FibError::BadLength { len, max: $width });
                }
                Ok($name::truncated(addr, len))
            }

            /// The prefix that covers one address only.
            #[inline]
            pub const fn host(addr: $bits) -> $name {
                $name { addr, len: $width }
            }

            /// `len` must be at most the width: callers inside the crate see to it.
            #[inline]
            pub(crate) const fn truncated(addr: $bits, len: u8) -> $name {
                let mask = if len == 0 { 0 } else { <$bits>::MAX << ($width - len) };
                $name { addr: addr & mask, len }
            }

            /// The address, in host order, without host bits.
            #[inline]
            pub const fn addr(self) -> $bits {
                self.addr
            }

            /// The number of bits that count.
            #[inline]
            #[allow(clippy::len_without_is_empty, reason = "a prefix is not a container")]
            pub const fn len(self) -> u8 {
                self.len
            }

            /// The last address that the prefix covers, in host order.
            #[inline]
            pub const fn last(self) -> $bits {
                if self.len == 0 {
                    <$bits>::MAX
                } else {
                    self.addr | !(<$bits>::MAX << ($width - self.len))
                }
            }

            /// Whether an address (host order) is inside.
            #[inline]
            pub const fn contains(self, addr: $bits) -> bool {
                self.addr <= addr && addr <= self.last()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}/{}", <$address>::from(self.addr), self.len)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

prefix!(
    /// An IPv4 prefix. Ordered by address, then by length: a prefix comes before what it covers.
    Prefix4, u32, 32, Ipv4Addr
);
prefix!(
    /// An IPv6 prefix. Ordered by address, then by length: a prefix comes before what it covers.
    Prefix6, u128, 128, Ipv6Addr
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_bits_are_cleared_and_lengths_checked() {
        let p = Prefix4::new(0x0a01_02ff, 24).unwrap();
        assert_eq!(
            (p.addr(), p.len(), p.last()),
            (0x0a01_0200, 24, 0x0a01_02ff)
        );
        assert_eq!(p.to_string(), "10.1.2.0/24");
        assert_eq!(Prefix4::new(7, 0).unwrap(), Prefix4::ALL);
        assert_eq!(
            Prefix4::new(0, 33),
            Err(FibError::BadLength { len: 33, max: 32 })
        );
        assert!(Prefix6::new(1, 129).is_err());
    }

    #[test]
    fn edges_are_inside_and_neighbours_are_not() {
        let p = Prefix6::new(0x2001_0db8 << 96, 32).unwrap();
        assert!(p.contains(p.addr()) && p.contains(p.last()));
        assert!(!p.contains(p.addr() - 1) && !p.contains(p.last() + 1));
        assert!(Prefix6::ALL.contains(u128::MAX) && Prefix6::host(5).contains(5));
        assert_eq!(p.to_string(), "2001:db8::/32");
    }
}
