//! What a firewall may judge, what rules ask for by what packets show, and what `rp_filter` judges by the way out, as engines ask for it:
//! zones of out-links, and what each in-link has closed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::adjacency::Ports;
use crate::firewall::{Firewall, Guarded, Range};
use crate::state::State;
use raddle_image::{
    FILTERED_APART, LinkEntry, RANGES, RULE_KERNEL, RULE_TABLES, Ranges, ZONES, link_flags,
};

mod ranges;

pub use ranges::PuntedByRule;
pub(crate) use ranges::{RuleRange, RuleRanges};
use ranges::{addresses, range4, range6, selector};

/// Out-links that are alike to the firewall and to `rp_filter` are of one zone; those that both leave alone are of zone 0. With
/// [`FILTERED_APART`], if the latter does not leave them alone.
#[derive(Debug, Default)]
pub(crate) struct Zones(HashMap<u32, u8>);

impl Zones {
    pub(crate) fn of(&self, link: u32) -> u8 {
        self.0.get(&link).copied().unwrap_or_default()
    }
}

/// The in-links from which an out-link is closed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Column {
    /// By the firewall, IPv4 and IPv6.
    closed: [BTreeSet<u32>; 2],
    /// By `rp_filter`, which judges by the way out ([`State::filtered_apart`]).
    apart: BTreeSet<u32>,
}

/// What was found, and what follows.
#[derive(Debug, Default)]
pub(crate) struct Guards {
    /// The links that were looked at, and what was found; none where nobody looks.
    found: Option<(Ports, Firewall)>,
    changed: bool,
    pub(crate) zones: Zones,
    /// By zone.
    columns: Vec<Column>,
    pub(crate) ranges: Ranges,
    /// The ranges that are in the image, by family.
    kept: [Vec<Range>; 2],
    /// What rules ask for by what packets show.
    pub(crate) rules: RuleRanges,
    /// Which tables they lead to is to be reckoned.
    pub(crate) leads_nowhere: bool,
    /// These, of each family.
    pub(crate) tables: [Vec<u32>; 2],
    /// The pairs that `rp_filter` closes to IPv4.
    apart: BTreeSet<(u32, u32)>,
}

impl Guards {
    /// Reckons anew what rules ask for by what packets show, of those that come in by these links. Whether the ranges of the image change;
    /// they lead to the kernel until [`Guards::lead`] says where.
    pub(crate) fn follow_rules(&mut self, state: &State, ports: &Ports) -> bool {
        let rules = RuleRanges::new(state, &ports.enabled, &self.rules);
        let changes = rules.kept != self.rules.kept;
        if changes {
            let [v4, v6] = &rules.kept;
            self.ranges.rules4 = Default::default();
            self.ranges.rules6 = Default::default();
            self.ranges.selectors4 = Default::default();
            self.ranges.selectors6 = Default::default();
            for (i, of) in v4.iter().enumerate() {
                self.ranges.rules4[i] = range4(&addresses(&of.asked));
                self.ranges.selectors4[i] = selector(&of.asked);
            }
            for (i, of) in v6.iter().enumerate() {
                self.ranges.rules6[i] = range6(&addresses(&of.asked));
                self.ranges.selectors6[i] = selector(&of.asked);
            }
            self.leads_nowhere = true;
        }
        self.rules = rules;
        changes
    }

    /// Whether [`Guards::follow_rules`] is due because tables have grown, or are smaller.
    pub(crate) fn is_outgrown(&self, state: &State) -> bool {
        self.rules.is_outgrown(state)
    }

    /// Says in which tables packets are looked up that rules ask for, by family and in the order of the ranges; none is the kernel's.
    /// No engine may be looking at them.
    pub(crate) fn lead(&mut self, [v4, v6]: [Vec<Option<u32>>; 2]) {
        let to = |table: Option<u32>| table.map_or(RULE_KERNEL, |table| table + RULE_TABLES);
        for (selector, table) in self.ranges.selectors4.iter_mut().zip(v4) {
            selector.to = to(table);
        }
        for (selector, table) in self.ranges.selectors6.iter_mut().zip(v6) {
            selector.to = to(table);
        }
        self.leads_nowhere = false;
        self.tables = [&self.ranges.selectors4, &self.ranges.selectors6].map(|selectors| {
            let to = selectors.iter().map(|selector| selector.to);
            to.filter_map(|to| to.checked_sub(RULE_TABLES)).collect()
        });
    }

    /// Reckons anew which pairs of these links `rp_filter` judges by the way out: [`Guards::follow`] is due where those change.
    pub(crate) fn follow_filters(&mut self, state: &State, ports: &Ports) {
        let ins = ports
            .enabled
            .iter()
            .filter_map(|index| state.links.get(index));
        let apart = ins.flat_map(|link| {
            let outs = state.filtered_apart(link, &ports.out);
            outs.into_iter().map(|out| (link.index, out))
        });
        let apart = apart.collect();
        self.changed |= self.apart != apart;
        self.apart = apart;
    }

    /// What a look at these links has found; none where nobody looks.
    pub(crate) fn set(&mut self, found: Option<(Ports, Firewall)>) {
        self.changed |= self.found != found;
        self.found = found;
    }

    /// Whether [`Guards::follow`] is due for another reason than new links.
    pub(crate) fn is_changed(&self) -> bool {
        self.changed
    }

    /// Reckons for these links anew, of which `published` are in-links in the image: an out-link is one before an in-link is
    /// none any more. Whether engines that see half of the change could let a packet pass that they must not: then they have
    /// to forward nothing meanwhile.
    ///
    /// 1. A pair is closed to a family if that was found of it, or if one of its links was not looked at. To IPv4, too, if
    ///    `rp_filter` judges it apart.
    /// 2. Of a family's ranges the first [`RANGES`] are kept. The pairs of the others are closed.
    /// 3. Out-links that are closed to the same in-links are a zone. Where there are more than [`ZONES`], the rest are the last, which
    ///    is closed where any of them is.
    pub(crate) fn follow(&mut self, ports: &Ports, published: impl Iterator<Item = u32>) -> bool {
        self.changed = false;
        let ins: BTreeSet<u32> = ports.enabled.iter().copied().chain(published).collect();
        let mut columns = vec![Column::default()];
        let mut zones = HashMap::new();
        let mut ranges = self.ranges;
        (ranges.v4, ranges.v6) = Default::default();
        let mut kept = [Vec::new(), Vec::new()];
        let found = self.found.as_ref();
        let families = found.map(|(looked_at, firewall)| (looked_at, [&firewall.v4, &firewall.v6]));
        if let Some((_, families)) = families {
            kept = families.map(|of| of.ranges.iter().take(RANGES).cloned().collect());
            write_ranges(&kept, &mut ranges);
        }
        let mut numbers = BTreeMap::from([(Column::default(), 0)]);
        let mut apart: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for (link, out) in self.apart.iter().filter(|(link, _)| ins.contains(link)) {
            apart.entry(*out).or_default().insert(*link);
        }
        // A thousand out-links that are alike are one column of a thousand in-links.
        let mut alike = HashMap::new();
        for &out in &ports.out {
            let apart = apart.remove(&out).unwrap_or_default();
            let mark = match apart.is_empty() {
                true => 0,
                false => FILTERED_APART,
            };
            let place = families.map(|(looked_at, families)| {
                let of = families.map(|of| place(of, out));
                (looked_at.out.contains(&out), of)
            });
            let key = (place, apart.clone());
            if let Some(&zone) = alike.get(&key) {
                if zone != 0 {
                    zones.insert(out, zone as u8 | mark);
                }
                continue;
            }
            let closed = families
                .map(|(looked_at, families)| families.map(|of| column(of, looked_at, &ins, out)));
            let column = Column {
                closed: closed.unwrap_or_default(),
                apart,
            };
            let next = numbers.len();
            let zone = *numbers.entry(column.clone()).or_insert(next.min(ZONES - 1));
            if zone == columns.len() {
                columns.push(column);
            } else {
                // The same once more, or one of those that are too many.
                let all = &mut columns[zone];
                for (all, one) in all.closed.iter_mut().zip(column.closed) {
                    all.extend(one);
                }
                all.apart.extend(column.apart);
            }
            if zone != 0 {
                zones.insert(out, zone as u8 | mark);
            }
            alike.insert(key, zone);
        }
        let changes = (&columns, &zones, &ranges, &kept)
            != (&self.columns, &self.zones.0, &self.ranges, &self.kept);
        (self.columns, self.zones.0, self.ranges, self.kept) = (columns, zones, ranges, kept);
        changes
    }

    /// Takes all of it out of an entry.
    pub(crate) fn clear(entry: &mut LinkEntry) {
        (entry.closed4, entry.closed6) = (0, 0);
        (entry.ranges4, entry.ranges6) = (0, 0);
        (entry.rules4, entry.rules6) = (0, 0);
        entry.flags &= !(link_flags::GUARDED
            | link_flags::TRACKED4
            | link_flags::TRACKED6
            | link_flags::NO_SEGMENTS
            | link_flags::NO_TUNNELS
            | link_flags::RULES4_BEHIND
            | link_flags::RULES6_BEHIND
            | link_flags::FILTERED_APART);
    }

    /// Writes what concerns packets that come in by this link into its entry, which has nothing of it yet.
    pub(crate) fn write(&self, link: u32, entry: &mut LinkEntry) {
        let rules = self.rules.of(link);
        entry.rules4 = rules[0].unwrap_or_default();
        entry.rules6 = rules[1].unwrap_or_default();
        for (bits, flag) in rules
            .into_iter()
            .zip([link_flags::RULES4, link_flags::RULES6])
        {
            if bits.is_none() {
                entry.flags |= flag;
            }
        }
        for (bits, flag) in [
            (entry.rules4, link_flags::RULES4_BEHIND),
            (entry.rules6, link_flags::RULES6_BEHIND),
        ] {
            if bits != 0 {
                entry.flags |= link_flags::GUARDED | flag;
            }
        }
        let zones = |is_closed: &dyn Fn(&Column) -> bool| {
            let zones = self.columns.iter().enumerate();
            let closed = zones.filter(|(_, column)| is_closed(column));
            closed.fold(0, |word, (zone, _)| word | 1 << zone)
        };
        let apart = zones(&|column| column.apart.contains(&link));
        if apart != 0 {
            entry.flags |= link_flags::FILTERED_APART;
        }
        entry.closed4 = apart;
        let Some((looked_at, firewall)) = &self.found else {
            return;
        };
        let closed = |family: usize| zones(&|column| column.closed[family].contains(&link));
        let kept = |family: usize| {
            let ranges = self.kept[family].iter().enumerate();
            let met = ranges.filter(|(_, range)| range.ins.contains(&link));
            met.fold(0, |word, (i, _)| word | 1 << i)
        };
        (entry.closed4, entry.closed6) = (closed(0), closed(1));
        (entry.ranges4, entry.ranges6) = (kept(0), kept(1));
        // Whatever zone it is sent to in a moment.
        if !looked_at.enabled.contains(&link) {
            (entry.closed4, entry.closed6) = (u64::MAX, u64::MAX);
        }
        let tracked = |of: &Guarded| of.fragments || of.icmp_errors;
        let ranges = entry.ranges4 | entry.ranges6 != 0;
        let closed = entry.closed4 | entry.closed6 != 0;
        entry.closed4 |= apart;
        let (tracked4, tracked6) = (tracked(&firewall.v4), tracked(&firewall.v6));
        let guarded = ranges || tracked4 || tracked6;
        for (on, flag) in [
            (tracked4, link_flags::TRACKED4),
            (tracked6, link_flags::TRACKED6),
            (guarded, link_flags::GUARDED),
            (
                guarded || closed || firewall.segments,
                link_flags::NO_SEGMENTS,
            ),
            (
                firewall.tunnels.contains(&link) || !looked_at.enabled.contains(&link),
                link_flags::NO_TUNNELS,
            ),
        ] {
            if on {
                entry.flags |= flag;
            }
        }
    }
}

impl Guards {
    /// Likewise of a port of a bridge, which no packet comes in by, but frames do that tunnels carry.
    pub(crate) fn write_port(&self, port: u32, entry: &mut LinkEntry) {
        let closes = self.found.as_ref().is_some_and(|(looked_at, firewall)| {
            firewall.tunnels.contains(&port) || !looked_at.out.contains(&port)
        });
        if closes {
            entry.flags |= link_flags::NO_TUNNELS;
        }
    }
}

/// In which blocks of pairs an out-link is, and in which of the ranges that are not kept: those that are in the same are alike.
fn place(of: &Guarded, out: u32) -> Vec<bool> {
    let blocks = of.pairs.blocks().iter();
    let blocks = blocks.map(|block| block.outs.contains(&out));
    let beyond = of.ranges.iter().skip(RANGES);
    blocks
        .chain(beyond.map(|range| range.outs.contains(&out)))
        .collect()
}

/// The in-links from which this out-link is closed to a family.
fn column(of: &Guarded, looked_at: &Ports, ins: &BTreeSet<u32>, out: u32) -> BTreeSet<u32> {
    let unseen = !looked_at.out.contains(&out);
    let closed = |link: u32| {
        let mut beyond = of.ranges.iter().skip(RANGES);
        unseen
            || !looked_at.enabled.contains(&link)
            || of.pairs.contains(&(link, out))
            || beyond.any(|range| range.ins.contains(&link) && range.outs.contains(&out))
    };
    ins.iter().copied().filter(|link| closed(*link)).collect()
}

/// As the image has them.
fn write_ranges(kept: &[Vec<Range>; 2], ranges: &mut Ranges) {
    for (range, to) in kept[0].iter().zip(&mut ranges.v4) {
        *to = range4(&[range.src, range.dst]);
    }
    for (range, to) in kept[1].iter().zip(&mut ranges.v6) {
        *to = range6(&[range.src, range.dst]);
    }
}
