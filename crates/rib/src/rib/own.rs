//! The filter of our own IPv4 addresses.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use super::Rib;
use crate::event::RouteKind;
use crate::image::own_bit;
use crate::prefix::Prefix;
use crate::rules::TABLE_LOCAL;

/// Local routes of this length or more have so few addresses that each has its bit in the filter of
/// our own; with a shorter one all sources are looked up.
const FEW_ADDRESSES: u8 = 24;

impl Rib {
    /// Writes the filter of our own IPv4 addresses: those of links, and what local routes claim
    /// (`fib_validate_source` looks at those too once there is one). It says which sources to look
    /// up; the table then tells. Bits are set before others are cleared.
    pub(super) fn publish_own(&self) {
        let words = self.memory.own4.words();
        let mut wanted = vec![0u64; words.len()];
        let mut own = |ip: u32| {
            let bit = own_bit(ip);
            wanted[bit / 64] |= 1 << (bit % 64);
        };
        for address in &self.state.addresses {
            if let IpAddr::V4(ip) = address.local {
                own(ip.to_bits());
            }
        }
        let mut all = false;
        for prefix in self.local_prefixes() {
            match prefix.len {
                FEW_ADDRESSES.. => prefix.addresses().for_each(&mut own),
                _ => all = true,
            }
        }
        if all {
            wanted.fill(u64::MAX);
        }
        for (word, bits) in words.iter().zip(&wanted) {
            word.fetch_or(*bits, Ordering::Release);
        }
        for (word, bits) in words.iter().zip(&wanted) {
            word.store(*bits, Ordering::Release);
        }
    }

    /// The prefixes of local routes but 127.0.0.0/8, whose addresses are no sources anyway.
    fn local_prefixes(&self) -> impl Iterator<Item = Prefix<u32>> {
        let loopback = Prefix::new(127 << 24, 8);
        let table = self.state.v4.tables.get(&TABLE_LOCAL);
        table
            .into_iter()
            .flat_map(|table| table.iter())
            .filter(move |(prefix, _)| Prefix::new(prefix.addr, 8) != loopback || prefix.len < 8)
            .filter(|(_, slot)| {
                let kind = |id| self.state.attrs.get(id).kind;
                slot.ids().iter().any(|id| kind(*id) == RouteKind::Local)
            })
            .map(|(prefix, _)| prefix)
    }
}
