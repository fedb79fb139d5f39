//! Ranges of addresses: what routing rules ask for, and how the image has them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};

use crate::event::{Link, Rule};
use crate::rules::{Asked, Lookup, cells, lookup_apart};
use crate::state::State;
use crate::view::is_small;
use raddle_image::{RANGES, RULE_KERNEL, Range4, Range6, Selector};

/// First and last source, first and last destination.
pub(super) type Addresses = [(IpAddr, IpAddr); 2];

/// Packets that are the kernel's because a routing rule asks for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PuntedByRule {
    /// What they show.
    pub asked: Asked,
    /// The first rule that asks for them.
    pub rule: Rule,
    /// It is asked for the way back (`rp_filter`).
    pub back: bool,
}

/// Packets that a routing rule asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleRange {
    /// What they show.
    pub(crate) asked: Asked,
    /// How they are looked up; none where that is the kernel's business.
    pub(crate) lookup: Option<Lookup>,
    /// It is the way back that they are asked for.
    back: bool,
}

/// The packets that routing rules ask for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleRanges {
    /// Those of the image, by family: of a link's the first counts that a packet is of.
    pub(crate) kept: [Vec<RuleRange>; 2],
    /// Of each in-link that has any, by family: a bit for each of them; none where it has one beyond those of the image.
    links: HashMap<u32, [Option<u16>; 2]>,
    /// By family, look-ups that were asked whether they are small, and whether they were.
    sizes: [Vec<(Lookup, bool)>; 2],
    /// Those that were not before.
    large: [Vec<(Lookup, bool)>; 2],
}

impl RuleRanges {
    /// For links that packets come in by:
    ///
    /// 1. What the rules of its own look-up ask for ([`cells`]). Where tables are not small, and no default route ends the look-up before
    ///    them, that is the kernel's: a copy would take the room of those that all packets need.
    /// 2. Where it has `rp_filter`, what those of the way back ask for, of IPv4, the other way round: the
    ///    kernel looks that up with the addresses swapped. That is the kernel's.
    /// 3. Each is there once; there is room for [`RANGES`] of a family. Where links need more, first all has room that is the kernel's in any
    ///    case, and what their rules ask for as the kernel's; then what is left over is for look-ups, link by link.
    /// 4. What is asked for the way back comes first; of the rest what is part of another comes before that.
    /// 5. What was not small `before` is so when there is an eighth less in it.
    pub(super) fn new(state: &State, ins: &BTreeSet<u32>, before: &RuleRanges) -> RuleRanges {
        let mut all = RuleRanges::default();
        // Rule 5.
        let large = |sizes: &Vec<(Lookup, bool)>| {
            let mut sizes = sizes.clone();
            sizes.retain(|(_, small)| !small);
            sizes
        };
        all.large = before.sizes.each_ref().map(large);
        let links: BTreeMap<u32, _> = state.links.iter().map(|(i, link)| (*i, link)).collect();
        let of_links: Vec<(u32, [Vec<RuleRange>; 2])> = links
            .values()
            .filter(|link| ins.contains(&link.index))
            .map(|link| {
                let wanted = [4, 6].map(|family| {
                    let wanted = all.wanted(state, link, family).into_iter();
                    wanted.map(|(range, _)| range).collect()
                });
                (link.index, wanted)
            })
            .collect();
        let mut chosen: HashMap<u32, [Option<Vec<RuleRange>>; 2]> = HashMap::new();
        for family in [0, 1] {
            let of_family = || of_links.iter().map(|(index, of)| (*index, &of[family]));
            let fits = of_family().all(|(_, wanted)| all.has_room(family, wanted));
            if !fits {
                all.kept[family].clear();
                for (index, wanted) in of_family() {
                    let careful = left_to_the_kernel(wanted);
                    let has_room = all.has_room(family, &careful);
                    chosen.entry(index).or_default()[family] = has_room.then_some(careful);
                }
            }
            for (index, wanted) in of_family() {
                if all.has_room(family, wanted) {
                    chosen.entry(index).or_default()[family] = Some(wanted.clone());
                }
            }
        }
        for (index, wanted) in chosen {
            let bits = [0, 1].map(|family| {
                let kept = &all.kept[family];
                let bit = |range: &RuleRange| {
                    let place = kept.iter().position(|known| known == range);
                    place.map_or(0, |place| 1 << place)
                };
                let wanted = wanted[family].as_ref()?;
                Some(wanted.iter().fold(0, |bits, range| bits | bit(range)))
            });
            if bits != [Some(0); 2] {
                all.links.insert(index, bits);
            }
        }
        all
    }

    /// With the first rule that asks for them.
    fn wanted<'a>(
        &mut self,
        state: &'a State,
        link: &Link,
        family: u8,
    ) -> Vec<(RuleRange, &'a Rule)> {
        let arrival = state.arrival(link);
        let apart = lookup_apart(&state.rules, family, arrival);
        let rules = apart.map(|apart| apart.by_packet).unwrap_or_default();
        let forth = cells(&state.rules, family, arrival, &rules).into_iter();
        let mut wanted: Vec<(RuleRange, &Rule)> = forth
            .filter_map(|cell| {
                let asks = |rule: &&&Rule| Asked::of(rule).contains(&cell.asked);
                let rule = rules.iter().find(asks)?;
                let lookup = cell.lookup;
                let range = RuleRange {
                    asked: cell.asked,
                    lookup: lookup.filter(|lookup| self.is_small(state, family, lookup)),
                    back: false,
                };
                Some((range, *rule))
            })
            .collect();
        let back = match family == 4 && state.filters_sources(link) {
            true => state.rules_back(link),
            false => Vec::new(),
        };
        wanted.extend(back.into_iter().map(|rule| {
            let range = RuleRange {
                asked: Asked::of(rule).swapped(),
                lookup: None,
                back: true,
            };
            (range, rule)
        }));
        wanted
    }

    fn is_small(&mut self, state: &State, family: u8, lookup: &Lookup) -> bool {
        let at = usize::from(family == 6);
        let was_large = self.large[at].iter().any(|(known, _)| known == lookup);
        let sizes = &mut self.sizes[at];
        if let Some((_, small)) = sizes.iter().find(|(known, _)| known == lookup) {
            return *small;
        }
        let small = is_small_of(state, family, lookup, was_large);
        sizes.push((lookup.clone(), small));
        small
    }

    /// Whether a table that was small is so no more, or the other way round.
    pub(super) fn is_outgrown(&self, state: &State) -> bool {
        let families = [4, 6].into_iter().zip(&self.sizes);
        families
            .flat_map(|(family, sizes)| sizes.iter().map(move |size| (family, size)))
            .any(|(family, (lookup, small))| is_small_of(state, family, lookup, !small) != *small)
    }

    /// Keeps what is wanted where there is room for all of it.
    fn has_room(&mut self, family: usize, wanted: &[RuleRange]) -> bool {
        let kept = &mut self.kept[family];
        let mut new: Vec<&RuleRange> = Vec::new();
        for range in wanted {
            if !kept.contains(range) && !new.contains(&range) {
                new.push(range);
            }
        }
        if kept.len() + new.len() > RANGES {
            return false;
        }
        for range in new {
            // Rule 4.
            let larger = |known: &RuleRange| {
                !known.back && (range.back || known.asked.contains(&range.asked))
            };
            let place = kept.iter().position(larger).unwrap_or(kept.len());
            kept.insert(place, range.clone());
        }
        true
    }

    /// Those of a link that are the kernel's; of one that has none here, as if it were alone.
    pub(crate) fn punted(&self, state: &State, link: &Link, family: u8) -> Vec<PuntedByRule> {
        let wanted = RuleRanges::default().wanted(state, link, family);
        let ranges: Vec<RuleRange> = wanted.iter().map(|(range, _)| range.clone()).collect();
        let kernels = match self.links.contains_key(&link.index) && !self.has(link, family, &ranges)
        {
            true => left_to_the_kernel(&ranges),
            false => ranges
                .into_iter()
                .filter(|range| range.lookup.is_none())
                .collect(),
        };
        let named = kernels.into_iter().filter_map(|range| {
            let is_same =
                |(of, _): &&(RuleRange, &Rule)| of.asked == range.asked && of.back == range.back;
            let (_, rule) = wanted.iter().find(is_same)?;
            Some(PuntedByRule {
                asked: range.asked,
                rule: (*rule).clone(),
                back: range.back,
            })
        });
        named.collect()
    }

    /// Whether a link has all of these.
    fn has(&self, link: &Link, family: u8, ranges: &[RuleRange]) -> bool {
        let family = usize::from(family == 6);
        let Some(bits) = self.of(link.index)[family] else {
            return false;
        };
        ranges.iter().all(|range| {
            let place = self.kept[family].iter().position(|known| known == range);
            place.is_some_and(|place| bits >> place & 1 != 0)
        })
    }

    pub(super) fn of(&self, link: u32) -> [Option<u16>; 2] {
        self.links.get(&link).copied().unwrap_or([Some(0); 2])
    }
}

/// What covers all of these, as the kernel's: those that are part of no other.
fn left_to_the_kernel(wanted: &[RuleRange]) -> Vec<RuleRange> {
    let is_part = |range: &RuleRange| {
        let mut others = wanted.iter().filter(|other| !other.back && *other != range);
        !range.back && others.any(|other| other.asked.contains(&range.asked))
    };
    let largest = wanted.iter().filter(|range| !is_part(range));
    largest
        .map(|range| RuleRange {
            lookup: None,
            ..range.clone()
        })
        .collect()
}

fn is_small_of(state: &State, family: u8, lookup: &Lookup, was_large: bool) -> bool {
    match family {
        4 => is_small(state, &state.v4, lookup, was_large),
        _ => is_small(state, &state.v6, lookup, was_large),
    }
}

/// The addresses that a rule asks for.
pub(super) fn addresses(asked: &Asked) -> Addresses {
    [asked.src, asked.dst].map(|net| (net.network(), net.broadcast()))
}

/// What else it asks for; where that leads is not known yet.
pub(super) fn selector(asked: &Asked) -> Selector {
    let (tos, tos_mask) = asked.tos;
    let (proto, proto_mask) = asked.proto.map_or((0, 0), |proto| (proto, u8::MAX));
    let ports =
        |(first, last): (u16, u16)| u32::from(first) | u32::from(last.saturating_sub(first)) << 16;
    Selector {
        fields: u32::from_le_bytes([tos, proto, tos_mask, proto_mask]),
        sport: ports(asked.sport),
        dport: ports(asked.dport),
        to: RULE_KERNEL,
    }
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
