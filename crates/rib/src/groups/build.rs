//! What a group is made of: its members in the order in which engines look for them, and their adjacencies.

use std::sync::Arc;

use raddle_select::{RoundRobin, round_robin};

use super::Groups;
use crate::adjacency::{Key, Publish};
use crate::algo::MpAlgo;
use crate::resolve::{Hop, Resolved, Spec};
use crate::segments::Meaning;
use crate::state::State;
use raddle_image::Lack;
use raddle_image::{BucketsHead, Group, How, Member, Reason, RoundRobinHead};

/// What a group shall be.
pub(super) struct Built {
    /// The group, with its members at 0.
    pub(super) group: Group,
    /// Its members, and what stands before them; none where it has no members of its own.
    pub(super) words: Vec<u64>,
    pub(super) adjacencies: Vec<u32>,
}

impl Built {
    fn flat(group: Group, adjacencies: Vec<u32>) -> Built {
        Built {
            group,
            words: Vec::new(),
            adjacencies,
        }
    }

    fn kernel(reason: Reason) -> Built {
        Built::flat(Group::Kernel(reason), Vec::new())
    }

    fn single(adjacency: u32) -> Built {
        Built::flat(Group::Single(adjacency), vec![adjacency])
    }
}

impl Groups {
    /// The group, its members and its adjacencies as the image shall have them. None when there is
    /// no room; nothing is then held.
    pub(super) fn build(
        &mut self,
        number: u32,
        resolved: &Resolved,
        at: &Publish<'_>,
    ) -> Option<Built> {
        let algo = self
            .entries
            .get(&number)
            .and_then(|entry| entry.spec.algo());
        let how = match algo {
            Some(MpAlgo::Hash {
                policy,
                icmp_follows_flow,
            }) => How::by(policy, icmp_follows_flow),
            _ => How::default(),
        };
        let spec = self.entries.get(&number).map(|entry| &*entry.spec);
        if let Some(Spec::TunnelEnds(local)) = spec {
            let segment = self.take_segment(&Meaning::TunnelEnds(*local), at)?;
            return Some(Built::flat(Group::Segment(segment), Vec::new()));
        }
        match resolved {
            Resolved::Kernel(reason) => Some(Built::kernel(*reason)),
            Resolved::One(hop) => {
                if let Some(what) = &hop.segment {
                    let what = Meaning::Srv6(Arc::clone(what));
                    let segment = self.take_segment(&what, at)?;
                    return Some(Built::flat(Group::Segment(segment), Vec::new()));
                }
                let adjacency = self.take_hop(hop, at)?;
                let spec = self.entries.get(&number).map(|entry| &*entry.spec);
                Some(match spec {
                    Some(Spec::Neighbour { .. }) => {
                        Built::flat(Group::Neighbour(adjacency), vec![adjacency])
                    }
                    _ => Built::single(adjacency),
                })
            }
            Resolved::Many { hops, ranges, .. } => match algo {
                Some(MpAlgo::RoundRobin) => {
                    self.build_round_robin(number, (hops, ranges), None, at)
                }
                Some(MpAlgo::Flowlet { gap }) => {
                    self.build_round_robin(number, (hops, ranges), Some(gap), at)
                }
                _ => self.build_threshold(hops, ranges, how, at),
            },
            // By the namespace's policy whatever the rules say, see AlgoRules.
            Resolved::Resilient {
                hops,
                buckets,
                idle_timer,
                ..
            } => self.build_resilient(hops, buckets, *idle_timer, at),
        }
    }

    /// The adjacencies of these hops, one each. None when there is no room for all.
    fn adjacencies_of<'a>(
        &mut self,
        hops: impl Iterator<Item = &'a Hop>,
        at: &Publish<'_>,
    ) -> Option<Vec<u32>> {
        let mut held = Vec::new();
        for hop in hops {
            let Some(adjacency) = self.take_hop(hop, at) else {
                self.let_go(Group::Kernel(Reason::ImageFull), held, at.memory);
                return None;
            };
            held.push(adjacency);
        }
        Some(held)
    }

    fn build_threshold(
        &mut self,
        hops: &[Hop],
        ranges: &[(u32, usize)],
        how: How,
        at: &Publish<'_>,
    ) -> Option<Built> {
        let count = u16::try_from(ranges.len()).ok()?;
        let held = self.adjacencies_of(ranges.iter().map(|(_, hop)| &hops[*hop]), at)?;
        if let [only] = held.as_slice() {
            return Some(Built::single(*only));
        }
        let member = |((upper, _), adjacency): (&(u32, usize), &u32)| {
            let (upper, adjacency) = (*upper, *adjacency);
            Member { upper, adjacency }.to_word()
        };
        Some(Built {
            group: Group::Threshold {
                first: 0,
                count,
                how,
            },
            words: ranges.iter().zip(&held).map(member).collect(),
            adjacencies: held,
        })
    }

    /// A resilient group, shown to the kernel often enough; see ARCHITECTURE.md.
    ///
    /// 1. A bucket in use is shown eight times in the idle timer, and with the first packet after it
    ///    may have moved: the kernel takes one for idle that it has not used since.
    /// 2. A timer too short for that leaves the group to the kernel.
    fn build_resilient(
        &mut self,
        hops: &[Hop],
        buckets: &[u16],
        idle_timer: u32,
        at: &Publish<'_>,
    ) -> Option<Built> {
        /// In 1/100 s: an eighth is some ticks of the clock.
        const SHORTEST: u32 = 20;
        if idle_timer < SHORTEST {
            return Some(Built::kernel(Reason::Resilient));
        }
        let count = u16::try_from(buckets.len()).ok()?;
        let interval = (u64::from(idle_timer) * 10_000_000 / 8) >> 20;
        let held = self.adjacencies_of(hops.iter(), at)?;
        let head = BucketsHead {
            reciprocal: u32::try_from((1u64 << 32) / buckets.len().max(1) as u64)
                .unwrap_or(u32::MAX),
            interval: u32::try_from(interval)
                .map_or(BucketsHead::LONGEST, |i| i.min(BucketsHead::LONGEST)),
        };
        let bucket = |hop: &u16| {
            let adjacency = held.get(usize::from(*hop)).copied().unwrap_or(u32::MAX);
            // The stamp comes when it is written.
            let upper = 0;
            Member { upper, adjacency }.to_word()
        };
        let mut words = vec![head.to_word()];
        words.extend(buckets.iter().map(bucket));
        Some(Built {
            group: Group::Resilient {
                first: 0,
                count,
                how: How::default(),
            },
            words,
            adjacencies: held,
        })
    }

    /// Members round robin; by flowlets where there is a gap (microseconds). Who has no share of the
    /// hashes has no turn.
    fn build_round_robin(
        &mut self,
        number: u32,
        (hops, ranges): (&[Hop], &[(u32, usize)]),
        gap: Option<u32>,
        at: &Publish<'_>,
    ) -> Option<Built> {
        let has_turns = |hop: &&Hop| hop.eligible && hop.upper.is_some();
        let takers: Vec<&Hop> = hops.iter().filter(has_turns).collect();
        let weights: Vec<u32> = takers.iter().map(|hop| hop.weight.into()).collect();
        let (order, takers) = match (round_robin(&weights), takers.as_slice()) {
            (Some(order), [_, _, ..]) => (order, takers),
            // One only, or none that is good: the one that all hashes lead to.
            _ => {
                let hop = ranges.first().map(|(_, hop)| &hops[*hop])?;
                return Some(Built::single(self.take_hop(hop, at)?));
            }
        };
        let slot = match self.entries.get(&number).and_then(|entry| entry.slot) {
            Some(slot) => slot,
            None => {
                let Some(slot) = self.turn_slots.take(at.grace) else {
                    self.lack = Lack::Turns;
                    return None;
                };
                if let Some(entry) = self.entries.get_mut(&number) {
                    entry.slot = Some(slot);
                }
                slot
            }
        };
        let held = self.adjacencies_of(takers.into_iter(), at)?;
        let adjacency = |member: u16| held.get(usize::from(member)).copied().unwrap_or(u32::MAX);
        let word = |upper, member| {
            Member {
                upper,
                adjacency: adjacency(member),
            }
            .to_word()
        };
        let (total, stride, members): (u32, u32, Vec<u64>) = match order {
            RoundRobin::Table(table) => {
                let members: Vec<u64> = table.iter().map(|member| word(0, *member)).collect();
                (members.len() as u32, 0, members)
            }
            RoundRobin::Stride {
                total,
                stride,
                bounds,
            } => {
                let members = bounds.iter().map(|(bound, member)| word(*bound, *member));
                (total.get(), stride, members.collect())
            }
        };
        let head = RoundRobinHead {
            total,
            stride,
            slot,
            gap: gap.map_or(0, |gap| ((u64::from(gap) * 1000) >> 10).max(1) as u32),
        };
        let (first, count) = (0, members.len() as u16);
        let mut words = head.to_words().to_vec();
        words.extend(members);
        Some(Built {
            group: match gap {
                None => Group::RoundRobin { first, count },
                Some(_) => Group::Flowlet { first, count },
            },
            words,
            adjacencies: held,
        })
    }

    fn take_segment(&mut self, what: &Meaning, at: &Publish<'_>) -> Option<u32> {
        let segment = self.segments.take(what, at);
        if segment.is_none() {
            self.lack = Lack::Sids;
        }
        segment
    }

    /// The adjacency of a nexthop, or that of its segment.
    fn take_hop(&mut self, hop: &Hop, at: &Publish<'_>) -> Option<u32> {
        let Some(what) = &hop.segment else {
            let adjacency = self.adjacencies.take(key_of(hop, at.state), at);
            if adjacency.is_none() {
                self.lack = Lack::Adjacencies;
            }
            return adjacency;
        };
        let segment = self.take_segment(&Meaning::Srv6(Arc::clone(what)), at)?;
        let key = Key {
            index: segment,
            neighbour: None,
            mtu: 0,
            segment: true,
        };
        // The adjacency holds one use of its segment, however many use the adjacency.
        let held = self.adjacencies.known(&key).is_some();
        let adjacency = self.adjacencies.take(key, at);
        if adjacency.is_none() {
            self.lack = Lack::Adjacencies;
        }
        if held || adjacency.is_none() {
            self.segments.give_back(segment, at.memory);
        }
        adjacency
    }
}

fn key_of(hop: &Hop, state: &State) -> Key {
    Key {
        index: hop.index,
        neighbour: hop.gateway.filter(|_| !state.has_one_end(hop.index)),
        mtu: hop.mtu,
        segment: false,
    }
}
