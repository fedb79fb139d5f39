//! Ranges of addresses: what routing rules ask for, and how the image has them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::event::Rule;
use crate::rules::lookup_apart;
use crate::state::State;
use raddle_image::{RANGES, Range4, Range6};

/// First and last source, first and last destination.
pub(super) type Addresses = [(IpAddr, IpAddr); 2];

/// The addresses that routing rules ask for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RuleRanges {
    /// Those of the image, by family.
    pub(super) kept: [Vec<Addresses>; 2],
    /// Of each in-link that has any, by family: a bit for each of them; none where it has one beyond those of the image.
    links: HashMap<u32, [Option<u16>; 2]>,
}

impl RuleRanges {
    /// For links that packets come in by:
    ///
    /// 1. What the rules of its own look-up ask for.
    /// 2. Where it has `rp_filter`, what those of the way back ask for, of IPv4, the other way round: the
    ///    kernel looks that up with the addresses swapped.
    /// 3. Each is there once; there is room for [`RANGES`] of a family.
    pub(super) fn new(state: &State, ins: &BTreeSet<u32>) -> RuleRanges {
        let mut all = RuleRanges::default();
        let links: BTreeMap<u32, _> = state.links.iter().map(|(i, link)| (*i, link)).collect();
        for link in links.values().filter(|link| ins.contains(&link.index)) {
            let bits = [4, 6].map(|family| {
                let apart = lookup_apart(&state.rules, family, state.arrival(link));
                let rules = apart.map(|apart| apart.by_address).unwrap_or_default();
                let back = match family == 4 && state.filters_sources(link) {
                    true => state.rules_back(link),
                    false => Vec::new(),
                };
                let swapped = |rule| {
                    let [src, dst] = addresses(rule);
                    [dst, src]
                };
                let wanted = rules.into_iter().map(addresses);
                let wanted = wanted.chain(back.into_iter().map(swapped));
                all.bits(usize::from(family == 6), wanted)
            });
            if bits != [Some(0); 2] {
                all.links.insert(link.index, bits);
            }
        }
        all
    }

    fn bits(&mut self, family: usize, wanted: impl Iterator<Item = Addresses>) -> Option<u16> {
        let kept = &mut self.kept[family];
        let mut bits = 0;
        for addresses in wanted {
            let known = kept.iter().position(|known| *known == addresses);
            let number = known.unwrap_or(kept.len());
            if number == RANGES {
                return None;
            }
            if number == kept.len() {
                kept.push(addresses);
            }
            bits |= 1 << number;
        }
        Some(bits)
    }

    pub(super) fn of(&self, link: u32) -> [Option<u16>; 2] {
        self.links.get(&link).copied().unwrap_or([Some(0); 2])
    }
}

/// The addresses that a rule asks for.
fn addresses(rule: &Rule) -> Addresses {
    let all = match rule.family {
        4 => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()),
        _ => (
            Ipv6Addr::UNSPECIFIED.into(),
            Ipv6Addr::from_bits(u128::MAX).into(),
        ),
    };
    [rule.from, rule.to].map(|net| net.map_or(all, |net| (net.network(), net.broadcast())))
}

/// A range of the other family is nobody's, and one whose ends are the wrong way round is everything.
pub(super) fn range4(of: &Addresses) -> Range4 {
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(_) => u32::MAX,
    };
    let ends = |(first, last): (IpAddr, IpAddr)| {
        let (first, last) = (number(first), number(last));
        match last.checked_sub(first) {
            Some(span) => (first, span),
            None => (0, u32::MAX),
        }
    };
    let ((src, src_span), (dst, dst_span)) = (ends(of[0]), ends(of[1]));
    Range4 {
        src,
        src_span,
        dst,
        dst_span,
    }
}

/// The same of IPv6.
pub(super) fn range6(of: &Addresses) -> Range6 {
    let number = |address: IpAddr| match address {
        IpAddr::V6(address) => address,
        IpAddr::V4(address) => address.to_ipv6_mapped(),
    };
    let halves = |address: Ipv6Addr| {
        let bits = address.to_bits();
        [(bits >> 64) as u64, bits as u64]
    };
    let ends = |(first, last): (IpAddr, IpAddr)| {
        let (first, last) = (number(first), number(last));
        match first <= last {
            true => (halves(first), halves(last)),
            false => ([0; 2], [u64::MAX; 2]),
        }
    };
    let ((src, src_last), (dst, dst_last)) = (ends(of[0]), ends(of[1]));
    Range6 {
        src,
        src_last,
        dst,
        dst_last,
    }
}
