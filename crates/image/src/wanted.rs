//! Neighbours that engines lack.

use crate::numbers::numbers;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A neighbour that a packet of raddle's own segments lacks. The kernel resolves neighbours for packets that it gets,
/// and it gets none of these; so engines name them, and the daemon has the kernel resolve them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// A destination on a connected prefix, without a neighbour entry.
    Host {
        /// The number of the group that the packet was routed to.
        group: u32,
        /// The destination.
        address: IpAddr,
    },
    /// The neighbour of the adjacency with this number, whose entry is not valid.
    Adjacency(u32),
}

/// How many of them an engine keeps for each core until they are asked for.
pub const WANTED: usize = 16;

numbers! {
    /// Kinds of [`Wanted`] in the image.
    pub mod wanted_kind: u32, "WANTED" {
        /// [`super::Wanted::Host`], IPv6.
        HOST6 = 0,
        /// [`super::Wanted::Host`], IPv4.
        HOST4 = 1,
        /// [`super::Wanted::Adjacency`].
        ADJACENCY = 2,
    }
}

impl Wanted {
    /// The words in an engine's memory: both halves of the address, or in the lower one the adjacency; then the
    /// group, which is not 0, and in its upper half the kind.
    pub fn to_words(self) -> [u64; 3] {
        let of = |kind: u32, group: u32| u64::from(group) | u64::from(kind) << 32;
        match self {
            Wanted::Host {
                group,
                address: IpAddr::V6(address),
            } => {
                let bits = address.to_bits();
                let kind = of(wanted_kind::HOST6, group);
                [(bits >> 64) as u64, bits as u64, kind]
            }
            Wanted::Host {
                group,
                address: IpAddr::V4(address),
            } => {
                let bits = u64::from(address.to_bits());
                [0, bits, of(wanted_kind::HOST4, group)]
            }
            Wanted::Adjacency(number) => [0, number.into(), of(wanted_kind::ADJACENCY, 1)],
        }
    }

    /// Reads words of an engine's memory; none where the group is 0.
    pub fn from_words([high, low, last]: [u64; 3]) -> Option<Wanted> {
        let group = last as u32;
        let address: IpAddr = match (last >> 32) as u32 {
            _ if group == 0 => return None,
            wanted_kind::HOST4 => Ipv4Addr::from_bits(low as u32).into(),
            wanted_kind::ADJACENCY => return Some(Wanted::Adjacency(low as u32)),
            _ => Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into(),
        };
        Some(Wanted::Host { group, address })
    }

    /// Which of the [`WANTED`] places it takes; who is there already stays.
    pub fn place(self) -> usize {
        let [_, low, _] = self.to_words();
        (low ^ low >> 32 ^ low >> 8) as usize % WANTED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_survive_their_words() {
        let host = |address: &str| Wanted::Host {
            group: 7,
            address: address.parse().unwrap(),
        };
        for wanted in [host("10.0.0.9"), host("2001:db8::9"), Wanted::Adjacency(0)] {
            assert_eq!(Wanted::from_words(wanted.to_words()), Some(wanted));
            assert!(wanted.place() < WANTED);
        }
        assert_eq!(Wanted::from_words([1, 2, 1 << 32]), None);
    }
}
