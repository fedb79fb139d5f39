//! Gathers what concerns pairs, as the programs can look at it.

use std::collections::{BTreeMap, BTreeSet};

use raddle_rib::firewall::{Block, Pairs, Range};

use super::model::Interval;
use super::walk::Area;
use super::{Links, MOST_RANGES, Version, Why};

type Pair = (u32, u32);

/// Of one version.
pub(super) struct Merge<'a> {
    pub(super) version: Version,
    ins: &'a Links,
    outs: &'a Links,
    closed: BTreeMap<Pair, String>,
    ranges: BTreeMap<(Interval, Interval), BTreeMap<Pair, String>>,
}

impl<'a> Merge<'a> {
    pub(super) fn new(version: Version, ins: &'a Links, outs: &'a Links) -> Self {
        Merge {
            version,
            ins,
            outs,
            closed: BTreeMap::new(),
            ranges: BTreeMap::new(),
        }
    }

    /// `rule` concerns packets of this area on the pair.
    pub(super) fn pair(&mut self, pair: Pair, area: &Area, rule: &str) {
        if *area == Area::all(self.version) {
            self.closed.entry(pair).or_insert_with(|| rule.to_owned());
            return;
        }
        let (mut src, mut dst) = (area.src.clone(), area.dst.clone());
        if src.len() * dst.len() > MOST_RANGES {
            (src, dst) = (hull(&src), hull(&dst));
        }
        for &s in &src {
            for &d in &dst {
                let pairs = self.ranges.entry((s, d)).or_default();
                pairs.entry(pair).or_insert_with(|| rule.to_owned());
            }
        }
    }

    /// On the pairs that are `met`.
    pub(super) fn some(&mut self, area: &Area, rule: &str, met: impl Fn(Pair) -> bool) {
        for &a in self.ins.keys() {
            for &b in self.outs.keys() {
                if met((a, b)) {
                    self.pair((a, b), area, rule);
                }
            }
        }
    }

    /// On all pairs.
    pub(super) fn all(&mut self, area: &Area, rule: &str) {
        self.some(area, rule, |_| true);
    }

    /// Pairs that are closed, ranges on the others, and the rules.
    pub(super) fn finish(mut self) -> (Pairs, Vec<Range>, Vec<Why>) {
        let mut ranges = self.as_ranges();
        if ranges.len() > MOST_RANGES {
            for pairs in std::mem::take(&mut self.ranges).into_values() {
                for (pair, rule) in pairs {
                    self.closed.entry(pair).or_insert(rule);
                }
            }
            ranges.clear();
        }
        let mut by_rule: BTreeMap<String, BTreeSet<Pair>> = BTreeMap::new();
        let closed: Pairs = self.closed.keys().copied().collect();
        for (pair, rule) in self.closed {
            by_rule.entry(rule).or_default().insert(pair);
        }
        let family = self.version;
        let mut why: Vec<Why> = by_rule
            .into_iter()
            .map(|(rule, pairs)| Why {
                family,
                pairs: pairs.into_iter().collect(),
                range: None,
                rule,
            })
            .collect();
        why.extend(ranges.iter().map(|(range, rule)| Why {
            family,
            pairs: Pairs::of_blocks([block(range)]),
            range: Some(range.clone()),
            rule: rule.clone(),
        }));
        let ranges = ranges.into_iter().map(|(range, _)| range).collect();
        (closed, ranges, why)
    }

    /// The ranges on pairs that are not closed, without those that lie in others.
    fn as_ranges(&mut self) -> Vec<(Range, String)> {
        for pairs in self.ranges.values_mut() {
            pairs.retain(|pair, _| !self.closed.contains_key(pair));
        }
        let all: Vec<_> = self.ranges.keys().copied().collect();
        for inner in &all {
            let held = |outer: &&(Interval, Interval)| {
                let lies_in = |i: Interval, o: Interval| o.0 <= i.0 && i.1 <= o.1;
                *outer != inner && lies_in(inner.0, outer.0) && lies_in(inner.1, outer.1)
            };
            for outer in all.iter().filter(held) {
                let wide: BTreeSet<Pair> = self.ranges[outer].keys().copied().collect();
                if let Some(pairs) = self.ranges.get_mut(inner) {
                    pairs.retain(|pair, _| !wide.contains(pair));
                }
            }
        }
        let mut ranges = Vec::new();
        for ((src, dst), pairs) in &self.ranges {
            let mut rows: BTreeMap<u32, (BTreeSet<u32>, &String)> = BTreeMap::new();
            for ((a, b), rule) in pairs {
                let row = rows.entry(*a).or_insert_with(|| (BTreeSet::new(), rule));
                row.0.insert(*b);
            }
            let mut alike: BTreeMap<BTreeSet<u32>, (BTreeSet<u32>, &String)> = BTreeMap::new();
            for (a, (outs, rule)) in rows {
                let row = alike.entry(outs).or_insert_with(|| (BTreeSet::new(), rule));
                row.0.insert(a);
            }
            let show =
                |(first, last): Interval| (self.version.address(first), self.version.address(last));
            ranges.extend(alike.into_iter().map(|(outs, (ins, rule))| {
                let range = Range {
                    src: show(*src),
                    dst: show(*dst),
                    ins,
                    outs,
                };
                (range, rule.clone())
            }));
        }
        ranges
    }
}

pub(super) fn block(range: &Range) -> Block {
    Block {
        ins: range.ins.clone(),
        outs: range.outs.clone(),
    }
}

/// The one interval around all.
fn hull(parts: &[Interval]) -> Vec<Interval> {
    let first = parts.iter().map(|p| p.0).min().unwrap_or(0);
    let last = parts.iter().map(|p| p.1).max().unwrap_or(u128::MAX);
    vec![(first, last)]
}
