//! What of a link's packets a firewall of the kernel's, or a routing rule that asks for what they show, may concern.

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

/// What else packets of a range show, and what a routing rule makes of those that show all of it. 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Selector {
    /// TOS, and protocol above it; in the upper half, which bits of them count.
    pub fields: u32,
    /// The first source port; in the upper half, the last less the first.
    pub sport: u32,
    /// The same of destination ports.
    pub dport: u32,
    /// [`RULE_KERNEL`]: they are the kernel's. Else [`RULE_TABLES`] more than the number of the table that they are looked up in.
    pub to: u32,
}

/// In [`Selector::to`].
pub const RULE_KERNEL: u32 = 1;
/// In [`Selector::to`], above [`RULE_KERNEL`].
pub const RULE_TABLES: u32 = 2;

/// What a packet shows to routing rules besides its addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// TOS, or traffic class.
    pub tos: u8,
    /// Protocol behind extension headers.
    pub proto: u8,
    /// Source port; 0 of what has none, and of fragments.
    pub sport: u16,
    /// Destination port, likewise.
    pub dport: u16,
}

/// All ranges, which links have or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Ranges {
    /// Of IPv4, that a firewall may concern.
    pub v4: [Range4; RANGES],
    /// Of IPv6.
    pub v6: [Range6; RANGES],
    /// Of IPv4, that routing rules ask for: of a packet the first counts that it is in, with its selector.
    pub rules4: [Range4; RANGES],
    /// Of IPv6.
    pub rules6: [Range6; RANGES],
    /// The selectors of [`Ranges::rules4`].
    pub selectors4: [Selector; RANGES],
    /// The selectors of [`Ranges::rules6`].
    pub selectors6: [Selector; RANGES],
}

/// Where kinds of [`Ranges`] begin, and how long one range of IPv6 is, in words.
const V4: usize = offset_of!(Ranges, v4) / 8;
const V6: usize = offset_of!(Ranges, v6) / 8;
const RULES4: usize = offset_of!(Ranges, rules4) / 8;
const RULES6: usize = offset_of!(Ranges, rules6) / 8;
const SELECTORS4: usize = offset_of!(Ranges, selectors4) / 8;
const SELECTORS6: usize = offset_of!(Ranges, selectors6) / 8;
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
    /// Where an IPv4 packet with these addresses (host order) is looked up, if not in the table of its link. To be asked of links that
    /// are [`link_flags::GUARDED`]; `shown` is asked for where rules want to know more.
    ///
    /// 1. With [`link_flags::TRACKED4`], what is `tracked` is the kernel's: a fragment, an ICMP error, or what [`is_cut`].
    /// 2. So is what is in a range of the link's that a firewall may concern.
    /// 3. Of the ranges that rules ask for, the first of the link's counts that a packet is in.
    ///
    /// # Errors
    /// Why it is the kernel's, whatever link it leaves by: [`Reason::Firewall`], or by rule 3 [`Reason::Rules`].
    #[inline(never)]
    pub fn guards4(
        &self,
        link: &LinkEntry,
        (src, dst): (u32, u32),
        tracked: bool,
        shown: impl FnOnce() -> Shown,
    ) -> Result<Option<u32>, Reason> {
        let within = |at: usize, address: u32| {
            let word = self.firewall.words()[at].load(Ordering::Relaxed);
            let (first, span) = (word as u32, (word >> 32) as u32);
            address.wrapping_sub(first) <= span
        };
        let is_in =
            |kind: usize, i: usize| within(kind + 2 * i, src) && within(kind + 2 * i + 1, dst);
        let tracked = tracked && link.flags & link_flags::TRACKED4 != 0;
        if tracked || ranges_of(link.ranges4).any(|i| is_in(V4, i)) {
            return Err(Reason::Firewall);
        }
        if link.rules4 == 0 {
            return Ok(None);
        }
        let shown = shown();
        let first = ranges_of(link.rules4)
            .filter(|i| is_in(RULES4, *i))
            .find_map(|i| self.selected(SELECTORS4 + 2 * i, shown));
        leads(first)
    }

    /// The same of an IPv6 packet, with [`link_flags::TRACKED6`]; what has an extension header is `tracked`, too: that may hide
    /// a fragment or an error.
    ///
    /// # Errors
    /// As [`Memory::guards4`].
    #[inline(never)]
    pub fn guards6(
        &self,
        link: &LinkEntry,
        (src, dst): (u128, u128),
        tracked: bool,
        shown: impl FnOnce() -> Shown,
    ) -> Result<Option<u32>, Reason> {
        let address = |at: usize| {
            let word = |at: usize| u128::from(self.firewall.words()[at].load(Ordering::Relaxed));
            word(at) << 64 | word(at + 1)
        };
        let is_in = |kind: usize, i: usize| {
            let at = kind + i * WORDS6;
            (address(at)..=address(at + 2)).contains(&src)
                && (address(at + 4)..=address(at + 6)).contains(&dst)
        };
        let tracked = tracked && link.flags & link_flags::TRACKED6 != 0;
        if tracked || ranges_of(link.ranges6).any(|i| is_in(V6, i)) {
            return Err(Reason::Firewall);
        }
        if link.rules6 == 0 {
            return Ok(None);
        }
        let shown = shown();
        let first = ranges_of(link.rules6)
            .filter(|i| is_in(RULES6, *i))
            .find_map(|i| self.selected(SELECTORS6 + 2 * i, shown));
        leads(first)
    }

    /// [`Selector::to`] of the selector at a place, where a packet shows all of it.
    fn selected(&self, at: usize, shown: Shown) -> Option<u32> {
        let word = |at: usize| self.firewall.words()[at].load(Ordering::Relaxed);
        let halves = |word: u64| (word as u32, (word >> 32) as u32);
        let (fields, sport) = halves(word(at));
        let (dport, to) = halves(word(at + 1));
        let has = u32::from(shown.tos) | u32::from(shown.proto) << 8;
        let is_in = |ports: u32, port: u16| port.wrapping_sub(ports as u16) <= (ports >> 16) as u16;
        let all = (has ^ fields) & fields >> 16 == 0
            && is_in(sport, shown.sport)
            && is_in(dport, shown.dport);
        all.then_some(to)
    }

    /// Stores all ranges. No engine may be looking at them.
    pub fn store_ranges(&self, ranges: &Ranges) {
        store(&self.firewall, 0, ranges);
    }
}

/// The numbers of the ranges whose bits are set.
fn ranges_of(bits: u16) -> impl Iterator<Item = usize> {
    (0..RANGES).filter(move |i| bits >> i & 1 != 0)
}

fn leads(to: Option<u32>) -> Result<Option<u32>, Reason> {
    match to {
        Some(to) => match to.checked_sub(RULE_TABLES) {
            Some(table) => Ok(Some(table)),
            None => Err(Reason::Rules),
        },
        None => Ok(None),
    }
}

const _: () = assert!(size_of::<Selector>() == 16);
const _: () = assert!(size_of::<Range4>() == 16 && size_of::<Range6>() == 64);
const _: () = assert!(offset_of!(Range4, dst) == 8 && offset_of!(Range6, dst) == 32);

/// Whether a packet with so many bytes behind its IP header is cut short, so that matches of xtables drop it where they look for its
/// transport header (`hotdrop`), or may be. Most want no more than 8 bytes.
pub fn is_cut(proto: u8, behind: usize) -> bool {
    behind
        < match proto {
            // TCP; DCCP, AH, SCTP.
            6 => 20,
            33 | 51 | 132 => 12,
            _ => 8,
        }
}
