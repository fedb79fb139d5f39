//! What routes point to: groups of the image, each kept once, recompiled when its nexthops change.

mod build;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::adjacency::{Adjacencies, Key, Publish};
use crate::event::NexthopKind;
use crate::resolve::{Resolved, Spec, resolve};
use crate::segments::{Meaning, Segments};
use crate::slots::{Runs, Slots};
use crate::state::State;
use crate::ways::{LinkWays, ways};
use build::Built;
use raddle_image::Lack;
use raddle_image::{
    Capacity, GROUP_NO_PUNT, Group, Memory, ROUND_ROBIN_SLOTS, Reason, SEGMENT_VALUE,
    segment_of_value, segment_value,
};

#[derive(Debug)]
struct Entry {
    spec: Arc<Spec>,
    refs: u32,
    now: Group,
    /// Where its members are.
    run: Option<Run>,
    adjacencies: Vec<u32>,
    /// Where cores count its turns.
    slot: Option<u32>,
    /// Neighbours whose state decides who is chosen.
    watched: Vec<(u32, IpAddr)>,
}

/// Words of the members' memory, without the stamps of buckets. Groups of the same members share them, but for those
/// for which engines remember something beside each member.
#[derive(Debug)]
struct Run {
    first: u32,
    words: Arc<[u64]>,
    shared: bool,
}

/// What a group is now, and its adjacencies. The run is none for a group without members, and a none in
/// it stands for the one that the group has.
type Placed = (Group, Option<Option<Run>>, Vec<u32>);

/// The group with its members there.
fn moved(group: Group, to: u32) -> Group {
    let mut group = group;
    match &mut group {
        Group::Kernel(_) | Group::Single(_) | Group::Neighbour(_) | Group::Segment(_) => {}
        Group::Threshold { first, .. }
        | Group::Resilient { first, .. }
        | Group::RoundRobin { first, .. }
        | Group::Flowlet { first, .. } => *first = to,
    }
    group
}

/// All groups of an image. A group's number is the value that tables give for its routes; a SID needs no group,
/// its routes' value names the segment.
#[derive(Debug)]
pub(crate) struct Groups {
    numbers: Slots,
    runs: Runs,
    /// Runs that groups share: where they are, and how many groups have them.
    shared: HashMap<Arc<[u64]>, (u32, u32)>,
    turn_slots: Slots,
    entries: HashMap<u32, Entry>,
    by_spec: HashMap<Arc<Spec>, u32>,
    pub(crate) adjacencies: Adjacencies,
    pub(crate) segments: Segments,
    pub(crate) link_ways: LinkWays,
    watchers: HashMap<(u32, IpAddr), BTreeSet<u32>>,
    /// Groups that could not be compiled for want of room, and of what.
    full: HashMap<u32, Lack>,
    /// What there was no room for when it was last asked for.
    lack: Lack,
    /// What the buckets of the last resilient group that was written are stamped with.
    stamp: u32,
}

impl Groups {
    pub(crate) fn new(capacity: &Capacity) -> Groups {
        Groups {
            // Group 0 stands for "no route".
            numbers: Slots::new(1, capacity.groups.min(SEGMENT_VALUE as usize)),
            runs: Runs::new(capacity.members),
            shared: HashMap::new(),
            turn_slots: Slots::new(0, ROUND_ROBIN_SLOTS),
            entries: HashMap::new(),
            by_spec: HashMap::new(),
            adjacencies: Adjacencies::new(capacity.adjacencies),
            segments: Segments::new(capacity),
            link_ways: LinkWays::default(),
            watchers: HashMap::new(),
            full: HashMap::new(),
            lack: Lack::Groups,
            // Anywhere: engines may remember what an earlier daemon has written.
            stamp: RandomState::new().build_hasher().finish() as u32,
        }
    }

    /// The value for `spec`, with one use more; none when there is no room.
    ///
    /// 1. A group that there is already.
    /// 2. A SID: its segment. What becomes of it the segment says, so it is never another value.
    /// 3. A new group. That of a SID for which there is no segment left gets one when there is.
    pub(crate) fn take(&mut self, spec: Spec, at: &Publish<'_>) -> Option<u32> {
        if let Some(&number) = self.by_spec.get(&spec) {
            self.keep(number, 1);
            return Some(number);
        }
        if let Some(sid) = spec.sid()
            && let Some(segment) = self.segments.take(&Meaning::Srv6(Arc::clone(sid)), at)
        {
            return Some(segment_value(segment));
        }
        let number = self.numbers.take(at.grace)?;
        let spec = Arc::new(spec);
        let now = Group::Kernel(Reason::ImageFull);
        put(at.memory, number, now, spec.never_punts());
        let entry = Entry {
            spec: Arc::clone(&spec),
            refs: 1,
            now,
            run: None,
            adjacencies: Vec::new(),
            slot: None,
            watched: Vec::new(),
        };
        self.entries.insert(number, entry);
        self.by_spec.insert(spec, number);
        self.compile(number, at);
        Some(number)
    }

    /// More uses of a value that is in use.
    pub(crate) fn keep(&mut self, number: u32, uses: u32) {
        if let Some(segment) = segment_of_value(number) {
            return self.segments.keep(segment, uses);
        }
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.refs += uses;
        }
    }

    /// Gives back what a group led to.
    fn let_go(&mut self, group: Group, adjacencies: Vec<u32>, memory: &Memory) {
        if let Group::Segment(segment) = group {
            self.segments.give_back(segment, memory);
        }
        for adjacency in adjacencies {
            if let Some(segment) = self.adjacencies.give_back(adjacency, memory) {
                self.segments.give_back(segment, memory);
            }
        }
    }

    /// One use less.
    pub(crate) fn give_back(&mut self, number: u32, memory: &Memory) {
        if let Some(segment) = segment_of_value(number) {
            return self.segments.give_back(segment, memory);
        }
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        entry.refs -= 1;
        if entry.refs > 0 {
            return;
        }
        let Some(entry) = self.entries.remove(&number) else {
            return;
        };
        self.by_spec.remove(&entry.spec);
        self.full.remove(&number);
        self.unwatch(number, &entry.watched);
        put(
            memory,
            number,
            Group::Kernel(Reason::NoRoute),
            entry.spec.never_punts(),
        );
        memory.store_ways(number, 0);
        self.give_back_run(entry.run);
        if let Some(slot) = entry.slot {
            self.turn_slots.give_back(slot);
        }
        self.let_go(entry.now, entry.adjacencies, memory);
        self.numbers.give_back(number);
    }

    /// The groups that may change with these nexthop objects, directly or through a group object.
    pub(crate) fn of_nexthops(&self, state: &State, ids: &HashSet<u32>) -> BTreeSet<u32> {
        let mut touched = ids.clone();
        for (group, nexthop) in &state.nexthops {
            if let NexthopKind::Group(members) | NexthopKind::Resilient { members, .. } =
                &nexthop.kind
                && members.iter().any(|m| ids.contains(&m.id))
            {
                touched.insert(*group);
            }
        }
        let uses =
            |entry: &Entry| matches!(&*entry.spec, Spec::Object { id, .. } if touched.contains(id));
        self.entries
            .iter()
            .filter(|(_, e)| uses(e))
            .map(|(number, _)| *number)
            .collect()
    }

    /// The groups whose nexthops are on one of these links, directly or through objects.
    pub(crate) fn of_links(&self, state: &State, links: &BTreeSet<u32>) -> BTreeSet<u32> {
        if links.is_empty() {
            return BTreeSet::new();
        }
        let on = |kind: &NexthopKind| matches!(kind, NexthopKind::Single { index, .. } if links.contains(index));
        let objects = state
            .nexthops
            .iter()
            .filter(|(_, nexthop)| on(&nexthop.kind));
        let objects: HashSet<u32> = objects.map(|(id, _)| *id).collect();
        let plain = self.entries.iter().filter(|(_, entry)| match &*entry.spec {
            Spec::Kernel(_) | Spec::TunnelEnds(_) | Spec::Object { .. } => false,
            Spec::Plain { hops, .. } => hops.iter().any(|hop| links.contains(&hop.index)),
            Spec::Neighbour { index, .. } => links.contains(index),
        });
        let mut groups: BTreeSet<u32> = plain.map(|(number, _)| *number).collect();
        if !objects.is_empty() {
            groups.extend(self.of_nexthops(state, &objects));
        }
        groups
    }

    pub(crate) fn all(&self) -> BTreeSet<u32> {
        self.entries.keys().copied().collect()
    }

    /// Brings a group of the image up to date with the state.
    pub(crate) fn compile(&mut self, number: u32, at: &Publish<'_>) {
        let Some(entry) = self.entries.get(&number) else {
            return;
        };
        let resolved = resolve(at.state, &entry.spec);
        let back = ways(at.state, &self.link_ways, &entry.spec, &resolved);
        at.memory.store_ways(number, back);
        self.watch(number, &resolved);
        let mut placed = self.build_and_place(number, &resolved, at);
        if placed.is_none() && self.empty(number, at) {
            // What is new comes before what was goes, which takes the most room. With all packets at
            // the kernel meanwhile, it may fit.
            placed = self.build_and_place(number, &resolved, at);
        }
        let (group, run, adjacencies) = match placed {
            Some(placed) => {
                self.full.remove(&number);
                placed
            }
            None => {
                self.full.insert(number, self.lack);
                (Group::Kernel(Reason::ImageFull), None, Vec::new())
            }
        };
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        if entry.now != group {
            put(at.memory, number, group, entry.spec.never_punts());
        }
        let led_to = std::mem::replace(&mut entry.now, group);
        let released = std::mem::replace(&mut entry.adjacencies, adjacencies);
        let before = match run {
            // It is where it was.
            Some(None) => None,
            Some(Some(run)) => entry.run.replace(run),
            None => entry.run.take(),
        };
        self.give_back_run(before);
        self.let_go(led_to, released, at.memory);
    }

    /// Writes the ways back of all groups anew: links have got bits.
    pub(crate) fn write_ways(&self, at: &Publish<'_>) {
        for (number, entry) in &self.entries {
            let resolved = resolve(at.state, &entry.spec);
            let back = ways(at.state, &self.link_ways, &entry.spec, &resolved);
            at.memory.store_ways(*number, back);
        }
    }

    fn build_and_place(
        &mut self,
        number: u32,
        resolved: &Resolved,
        at: &Publish<'_>,
    ) -> Option<Placed> {
        let built = self.build(number, resolved, at)?;
        self.place(number, built, at)
    }

    /// Has a group punted, and gives back what it had; says whether that was anything.
    fn empty(&mut self, number: u32, at: &Publish<'_>) -> bool {
        let Some(entry) = self.entries.get_mut(&number) else {
            return false;
        };
        if entry.adjacencies.is_empty() && !matches!(entry.now, Group::Segment(_)) {
            return false;
        }
        let led_to = std::mem::replace(&mut entry.now, Group::Kernel(Reason::ImageFull));
        put(at.memory, number, entry.now, entry.spec.never_punts());
        let run = entry.run.take();
        let adjacencies = std::mem::take(&mut entry.adjacencies);
        self.give_back_run(run);
        self.let_go(led_to, adjacencies, at.memory);
        true
    }

    fn give_back_run(&mut self, run: Option<Run>) {
        let Some(run) = run else {
            return;
        };
        if run.shared
            && let Some((_, groups)) = self.shared.get_mut(&run.words)
        {
            *groups -= 1;
            if *groups > 0 {
                return;
            }
            self.shared.remove(&run.words);
        }
        self.runs.give_back(run.first, run.words.len() as u32);
    }

    /// Writes what was built to a run, unless the group has the same already, or another from which it may be shared.
    fn place(&mut self, number: u32, built: Built, at: &Publish<'_>) -> Option<Placed> {
        let Built {
            group,
            words,
            adjacencies,
        } = built;
        if words.is_empty() {
            return Some((group, None, adjacencies));
        }
        let known = self.entries.get(&number).and_then(|e| e.run.as_ref());
        if let Some(run) = known.filter(|run| *run.words == *words) {
            return Some((moved(group, run.first), Some(None), adjacencies));
        }
        let shared = matches!(group, Group::Threshold { .. });
        if shared && let Some((known, (first, groups))) = self.shared.get_key_value(&*words) {
            let (words, first, groups) = (Arc::clone(known), *first, *groups + 1);
            self.shared.insert(Arc::clone(&words), (first, groups));
            let run = Run {
                first,
                words,
                shared,
            };
            return Some((moved(group, first), Some(Some(run)), adjacencies));
        }
        let Some(first) = self.runs.take(words.len() as u32, at.grace) else {
            self.lack = Lack::Members;
            self.let_go(group, adjacencies, at.memory);
            return None;
        };
        let stamp = match group {
            Group::Resilient { .. } => self.next_stamp(),
            _ => 0,
        };
        for (offset, word) in (0..).zip(&words) {
            // The head has none.
            let stamp = if offset == 0 { 0 } else { stamp };
            let word = word | u64::from(stamp);
            at.memory.store_member_word(first + offset, word);
        }
        let words: Arc<[u64]> = words.into();
        if shared {
            self.shared.insert(Arc::clone(&words), (first, 1));
        }
        let run = Run {
            first,
            words,
            shared,
        };
        Some((moved(group, first), Some(Some(run)), adjacencies))
    }

    /// A stamp that was not used lately, and is not 0.
    fn next_stamp(&mut self) -> u32 {
        self.stamp = self.stamp.wrapping_add(1).max(1);
        self.stamp
    }

    /// Remembers the neighbours of all hops that compete, those that are passed over now as well.
    fn watch(&mut self, number: u32, resolved: &Resolved) {
        let watched: Vec<(u32, IpAddr)> = match resolved {
            Resolved::Many { hops, .. } => hops
                .iter()
                .filter_map(|hop| Some((hop.index, hop.gateway?)))
                .collect(),
            Resolved::Kernel(_) | Resolved::One(_) | Resolved::Resilient { .. } => Vec::new(),
        };
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        if entry.watched == watched {
            return;
        }
        let before = std::mem::replace(&mut entry.watched, watched.clone());
        self.unwatch(number, &before);
        for key in watched {
            self.watchers.entry(key).or_default().insert(number);
        }
    }

    fn unwatch(&mut self, number: u32, watched: &[(u32, IpAddr)]) {
        for key in watched {
            if let Some(groups) = self.watchers.get_mut(key) {
                groups.remove(&number);
                if groups.is_empty() {
                    self.watchers.remove(key);
                }
            }
        }
    }

    /// The groups whose choice depends on one of these neighbours.
    pub(crate) fn of_neighbours(&self, neighbours: &HashSet<(u32, IpAddr)>) -> BTreeSet<u32> {
        neighbours
            .iter()
            .filter_map(|key| self.watchers.get(key))
            .flatten()
            .copied()
            .collect()
    }

    /// Where the routes of a group lead; none for a value that names a segment.
    pub(crate) fn spec(&self, number: u32) -> Option<&Spec> {
        self.entries.get(&number).map(|entry| &*entry.spec)
    }

    /// What the adjacencies of all groups stand for but those of hosts on connected prefixes.
    pub(crate) fn of_gateways(&self) -> impl Iterator<Item = Key> + '_ {
        let entries = self.entries.values();
        let gateways = entries.filter(|entry| !matches!(&*entry.spec, Spec::Neighbour { .. }));
        let numbers = gateways.flat_map(|entry| &entry.adjacencies);
        numbers.filter_map(|number| self.adjacencies.key(*number))
    }

    /// The neighbours that groups with an algorithm of their own send to. Costs a walk over all groups.
    pub(crate) fn of_algos(&self) -> impl Iterator<Item = Key> + '_ {
        let entries = self.entries.values();
        let spread = entries.filter(|entry| entry.spec.algo().is_some());
        let numbers = spread.flat_map(|entry| &entry.adjacencies);
        numbers.filter_map(|number| self.adjacencies.key(*number))
    }

    /// Groups to try again when room may have come.
    pub(crate) fn full(&self) -> Vec<u32> {
        self.full.keys().copied().collect()
    }

    /// What there was no room for, once for each group.
    pub(crate) fn lacks(&self) -> impl Iterator<Item = Lack> + '_ {
        self.full.values().copied()
    }

    pub(crate) fn used(&self) -> usize {
        self.entries.len()
    }
}

/// Writes a group; `own` as in [`GROUP_NO_PUNT`].
fn put(memory: &Memory, number: u32, group: Group, own: bool) {
    let own = if own { GROUP_NO_PUNT } else { 0 };
    memory.groups.words()[number as usize].store(group.to_word() | own, Ordering::Release);
}
