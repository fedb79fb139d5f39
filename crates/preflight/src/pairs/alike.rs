//! Links that nothing here tells apart: of those one is judged, and what is found holds for all. A thousand bridges by a VXLAN each are
//! one.

use std::collections::{BTreeMap, BTreeSet};

use raddle_netlink::probe::nft::Side;
use raddle_netlink::probe::tc::Direction;
use raddle_rib::firewall::{Block, Pairs, Range};

use super::model::Rules;
use super::outer::{Shown, is_by_tunnels};
use super::{Classes, Devices, Facts, Links, Verdicts, Version};

/// One link of each kind, in each role, and all that are as it is.
#[derive(Debug, Default)]
pub(super) struct Few {
    pub(super) ins: Links,
    pub(super) outs: Links,
    like: BTreeMap<u32, BTreeSet<u32>>,
}

/// What tells links apart in one role:
///
/// 1. Tests of rules of IPv4 and IPv6, which see one as the other.
/// 2. What is on it, or beneath it: a chain of a device, a tc filter or tcx program. A link with any of these is like no other.
/// 3. Whether packets pass a bridge, get a tag behind one, or go by what carries tunnels.
/// 4. What the packets show that carry others in its tunnels.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    classes: [Vec<u8>; 2],
    alone: Option<u32>,
    passes: [bool; 4],
    tunnels: BTreeSet<Shown>,
    /// By tunnels alone.
    is_by_tunnels: bool,
}

impl Few {
    /// Links are alike that are so in both roles: what is found of the way out of one may be about its way in.
    pub(super) fn of(facts: &Facts, rules: &[(Version, Rules); 2]) -> Few {
        let classes = [&rules[0].1, &rules[1].1].map(|rules| Classes::of(facts, rules));
        let devices = [&rules[0].1, &rules[1].1].map(|rules| Devices { facts, rules });
        let mut few = Few::default();
        let mut kinds: BTreeMap<u32, [Option<Kind>; 2]> = BTreeMap::new();
        let roles = [
            (Side::From, Direction::Ingress, &facts.ins),
            (Side::To, Direction::Egress, &facts.outs),
        ];
        for (side, way, links) in roles {
            let programs = facts.programs.iter().filter(|of| of.1 == way);
            let programs: BTreeSet<u32> = programs.map(|of| of.0).collect();
            for (&index, name) in links {
                let passed = facts.beneath[side as usize].get(index);
                let on = |devices: &Devices<'_>| devices.is_met(side, index, name);
                let alone = programs.contains(&index) || devices.iter().any(on);
                let tunnels = passed.into_iter().flat_map(|of| of.tunnels.values());
                let kind = Kind {
                    classes: [0, 1].map(|i: usize| classes[i].class(index).to_vec()),
                    alone: alone.then_some(index),
                    passes: passed.map_or([false; 4], |of| {
                        [of.tagged, of.bridged, of.by_pvid, of.carried]
                    }),
                    tunnels: tunnels.map(Shown::of).collect(),
                    is_by_tunnels: is_by_tunnels(facts, side, index),
                };
                kinds.entry(index).or_default()[side as usize] = Some(kind);
            }
        }
        let mut firsts: BTreeMap<&[Option<Kind>; 2], u32> = BTreeMap::new();
        for (&index, kind) in &kinds {
            let first = *firsts.entry(kind).or_insert(index);
            few.like.entry(first).or_default().insert(index);
            if first == index {
                for (few, all) in [(&mut few.ins, &facts.ins), (&mut few.outs, &facts.outs)] {
                    few.extend(all.get(&index).map(|name| (index, name.clone())));
                }
            }
        }
        few
    }

    /// All links that are as this one.
    pub(super) fn like(&self, index: u32) -> impl Iterator<Item = u32> {
        self.like.get(&index).into_iter().flatten().copied()
    }

    /// What is found of all links by what was found of one of each kind.
    pub(super) fn spread(&self, verdicts: &mut Verdicts) {
        let all = |few: &BTreeSet<u32>| -> BTreeSet<u32> {
            few.iter().flat_map(|index| self.like(*index)).collect()
        };
        let block = |block: &Block| Block {
            ins: all(&block.ins),
            outs: all(&block.outs),
        };
        let spread =
            |pairs: &mut Pairs| *pairs = Pairs::of_blocks(pairs.blocks().iter().map(block));
        let range = |range: &mut Range| {
            range.ins = all(&range.ins);
            range.outs = all(&range.outs);
        };
        for of in [&mut verdicts.firewall.v4, &mut verdicts.firewall.v6] {
            spread(&mut of.pairs);
            of.ranges.iter_mut().for_each(range);
        }
        for why in &mut verdicts.why {
            spread(&mut why.pairs);
            why.range.iter_mut().for_each(range);
        }
    }
}

impl Classes {
    /// One of each class of these links.
    pub(super) fn one_of_each(&self, links: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut seen = BTreeSet::new();
        links
            .filter(|index| seen.insert(self.class(*index)))
            .collect()
    }
}
