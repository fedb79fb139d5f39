//! What of a link's packets a firewall of the kernel's, or a routing rule by address, may concern.

use std::mem::{offset_of, size_of};
use std::sync::atomic::Ordering;

use super::Memory;
use super::memory::store;
use crate::{LinkEntry, Reason, link_flags};

/// Zones of out-links: the bits of [`LinkEntry::closed4`].
pub const ZONES: usize = 64;
/// Of [`Adjacency::zone`](super::Adjacency::zone), beside the number of the zone: in-links with
/// [`link_flags::FILTERED_APART`] may have it closed to IPv4 for another reason than the firewall: [`closed_reason`].
pub const FILTERED_APART: u8 = 128;
/// Ranges of addresses of a family: the bits of [`LinkEntry::ranges4`], and of [`LinkEntry::rules4`].
pub const RANGES: usize = 16;

/// Packets from and to these IPv4 addresses: a first one in host order, and how many follow it. 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Range4 {
    /// The first source.
    pub src: u32,
    /// The last source less the first.
    pub src_span: u32,
    /// The first destination.
    pub dst: u32,
    /// The last destination less the first.
    pub dst_span: u32,
}

/// Packets from and to these IPv6 addresses, both ends included: the upper half in host order, then the lower. 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Range6 {
    /// The first source.
    pub src: [u64; 2],
    /// The last source.
    pub src_last: [u64; 2],
    /// The first destination.
    pub dst: [u64; 2],
    /// The last destination.
    pub dst_last: [u64; 2],
}

/// All ranges, which links have or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Ranges {
    /// Of IPv4, that a firewall may concern.
    pub v4: [Range4; RANGES],
    /// Of IPv6.
    pub v6: [Range6; RANGES],
    /// Of IPv4, that routing rules ask for.
    pub rules4: [Range4; RANGES],
    /// Of IPv6.
    pub rules6: [Range6; RANGES],
}

/// Where kinds of [`Ranges`] begin, and how long one range of IPv6 is, in words.
const V4: usize = offset_of!(Ranges, v4) / 8;
const V6: usize = offset_of!(Ranges, v6) / 8;
const RULES4: usize = offset_of!(Ranges, rules4) / 8;
const RULES6: usize = offset_of!(Ranges, rules6) / 8;
const WORDS6: usize = size_of::<Range6>() / 8;

/// Why a packet is the kernel's whose out-link is in a zone that its in-link has closed: what is closed to IPv4 alone may be so
/// because of [`FILTERED_APART`].
pub fn closed_reason(link: &LinkEntry, zone: u8) -> Reason {
    let apart = zone & FILTERED_APART != 0 && link.flags & link_flags::FILTERED_APART != 0;
    match apart && link.closed6 >> (zone & 63) & 1 == 0 {
        true => Reason::RpFilter,
        false => Reason::Firewall,
    }
}

impl Memory {
    /// Why an IPv4 packet with these addresses (host order) is the kernel's, whatever link it leaves by; none where it
    /// is not. To be asked of links that are [`link_flags::GUARDED`].
    ///
    /// 1. With [`link_flags::TRACKED4`], what is `tracked`: a fragment or an ICMP error.
    /// 2. What is in a range of the link's that a firewall may concern.
    /// 3. What is in one that rules ask for: [`Reason::Rules`].
    #[inline(never)]
    pub fn guards4(&self, link: &LinkEntry, src: u32, dst: u32, tracked: bool) -> Option<Reason> {
        let within = |at: usize, address: u32| {
            let word = self.firewall.words()[at].load(Ordering::Relaxed);
            let (first, span) = (word as u32, (word >> 32) as u32);
            address.wrapping_sub(first) <= span
        };
        let is_in = |kind: usize, bits: u16| {
            let mut ranges = (0..RANGES).filter(|i| bits >> i & 1 != 0);
            ranges.any(|i| within(kind + 2 * i, src) && within(kind + 2 * i + 1, dst))
        };
        let tracked = tracked && link.flags & link_flags::TRACKED4 != 0;
        if tracked || is_in(V4, link.ranges4) {
            return Some(Reason::Firewall);
        }
        is_in(RULES4, link.rules4).then_some(Reason::Rules)
    }

    /// The same of an IPv6 packet, with [`link_flags::TRACKED6`]; what has an extension header is `tracked`, too: that may hide
    /// a fragment or an error.
    #[inline(never)]
    pub fn guards6(&self, link: &LinkEntry, src: u128, dst: u128, tracked: bool) -> Option<Reason> {
        let address = |at: usize| {
            let word = |at: usize| u128::from(self.firewall.words()[at].load(Ordering::Relaxed));
            word(at) << 64 | word(at + 1)
        };
        let is_in = |kind: usize, bits: u16| {
            let mut ranges = (0..RANGES).filter(|i| bits >> i & 1 != 0);
            ranges.any(|i| {
                let at = kind + i * WORDS6;
                (address(at)..=address(at + 2)).contains(&src)
                    && (address(at + 4)..=address(at + 6)).contains(&dst)
            })
        };
        let tracked = tracked && link.flags & link_flags::TRACKED6 != 0;
        if tracked || is_in(V6, link.ranges6) {
            return Some(Reason::Firewall);
        }
        is_in(RULES6, link.rules6).then_some(Reason::Rules)
    }

    /// Stores all ranges. No engine may be looking at them.
    pub fn store_ranges(&self, ranges: &Ranges) {
        store(&self.firewall, 0, ranges);
    }
}

const _: () = assert!(size_of::<Range4>() == 16 && size_of::<Range6>() == 64);
const _: () = assert!(offset_of!(Range4, dst) == 8 && offset_of!(Range6, dst) == 32);
