//! What routes point to: groups of the image, each kept once, recompiled when its nexthops change.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::adjacency::{Adjacencies, Key, Publish};
use crate::event::NexthopKind;
use crate::image::{Capacity, Group, Member, Memory};
use crate::reason::Reason;
use crate::resolve::{Hop, Resolved, Spec, resolve};
use crate::slots::{Runs, Slots};
use crate::state::State;

#[derive(Debug)]
struct Entry {
    spec: Arc<Spec>,
    refs: u32,
    now: Group,
    members: Vec<Member>,
    adjacencies: Vec<u32>,
    /// Neighbours whose state decides who is chosen.
    watched: Vec<(u32, IpAddr)>,
}

/// All groups of an image. A group's number is the value that tables give for its routes.
#[derive(Debug)]
pub(crate) struct Groups {
    numbers: Slots,
    runs: Runs,
    entries: HashMap<u32, Entry>,
    by_spec: HashMap<Arc<Spec>, u32>,
    pub(crate) adjacencies: Adjacencies,
    watchers: HashMap<(u32, IpAddr), BTreeSet<u32>>,
    /// Groups that could not be compiled for want of room.
    full: HashSet<u32>,
}

impl Groups {
    pub(crate) fn new(capacity: &Capacity) -> Groups {
        Groups {
            // Group 0 stands for "no route".
            numbers: Slots::new(1, capacity.groups),
            runs: Runs::new(capacity.members),
            entries: HashMap::new(),
            by_spec: HashMap::new(),
            adjacencies: Adjacencies::new(capacity.adjacencies),
            watchers: HashMap::new(),
            full: HashSet::new(),
        }
    }

    /// The number of the group for `spec`, with one use more; none when there is no room.
    pub(crate) fn take(&mut self, spec: Spec, at: &Publish<'_>) -> Option<u32> {
        if let Some(&number) = self.by_spec.get(&spec) {
            self.keep(number, 1);
            return Some(number);
        }
        let number = self.numbers.take(at.grace)?;
        let spec = Arc::new(spec);
        let now = Group::Kernel(Reason::ImageFull);
        put(at.memory, number, now);
        let entry = Entry {
            spec: Arc::clone(&spec),
            refs: 1,
            now,
            members: Vec::new(),
            adjacencies: Vec::new(),
            watched: Vec::new(),
        };
        self.entries.insert(number, entry);
        self.by_spec.insert(spec, number);
        self.compile(number, at);
        Some(number)
    }

    /// More uses of a group that is in use.
    pub(crate) fn keep(&mut self, number: u32, uses: u32) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.refs += uses;
        }
    }

    /// One use less.
    pub(crate) fn give_back(&mut self, number: u32, memory: &Memory) {
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
        put(memory, number, Group::Kernel(Reason::NoRoute));
        if let Group::Threshold { first, count } = entry.now {
            self.runs.give_back(first, count);
        }
        for adjacency in entry.adjacencies {
            self.adjacencies.give_back(adjacency, memory);
        }
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

    pub(crate) fn all(&self) -> BTreeSet<u32> {
        self.entries.keys().copied().collect()
    }

    /// Brings a group of the image up to date with the state.
    pub(crate) fn compile(&mut self, number: u32, at: &Publish<'_>) {
        let Some(entry) = self.entries.get(&number) else {
            return;
        };
        let resolved = resolve(at.state, &entry.spec);
        self.watch(number, &resolved);
        let built = self.build(number, &resolved, at);
        let (group, members, adjacencies) = match built {
            Some(built) => {
                self.full.remove(&number);
                built
            }
            None => {
                self.full.insert(number);
                (Group::Kernel(Reason::ImageFull), Vec::new(), Vec::new())
            }
        };
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        if entry.now != group {
            put(at.memory, number, group);
        }
        let before = std::mem::replace(&mut entry.now, group);
        entry.members = members;
        let released = std::mem::replace(&mut entry.adjacencies, adjacencies);
        if let Group::Threshold { first, count } = before
            && before != group
        {
            self.runs.give_back(first, count);
        }
        for adjacency in released {
            self.adjacencies.give_back(adjacency, at.memory);
        }
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

    /// The group, its members and its adjacencies as the image shall have them. None when there is
    /// no room; nothing is then held.
    fn build(
        &mut self,
        number: u32,
        resolved: &Resolved,
        at: &Publish<'_>,
    ) -> Option<(Group, Vec<Member>, Vec<u32>)> {
        match resolved {
            Resolved::Kernel(reason) => Some((Group::Kernel(*reason), Vec::new(), Vec::new())),
            Resolved::One(hop) => {
                let adjacency = self.adjacencies.take(key_of(hop), at)?;
                Some((Group::Single(adjacency), Vec::new(), vec![adjacency]))
            }
            Resolved::Many { hops, ranges, .. } => self.build_many(number, hops, ranges, at),
            Resolved::Resilient { .. } => {
                Some((Group::Kernel(Reason::Resilient), Vec::new(), Vec::new()))
            }
        }
    }

    fn build_many(
        &mut self,
        number: u32,
        hops: &[Hop],
        ranges: &[(u32, usize)],
        at: &Publish<'_>,
    ) -> Option<(Group, Vec<Member>, Vec<u32>)> {
        let mut members = Vec::with_capacity(ranges.len());
        let mut held = Vec::with_capacity(ranges.len());
        for &(upper, hop) in ranges {
            let Some(adjacency) = self.adjacencies.take(key_of(&hops[hop]), at) else {
                for adjacency in held {
                    self.adjacencies.give_back(adjacency, at.memory);
                }
                return None;
            };
            held.push(adjacency);
            members.push(Member { upper, adjacency });
        }
        if let [only] = members.as_slice() {
            return Some((Group::Single(only.adjacency), Vec::new(), held));
        }
        let unchanged = self
            .entries
            .get(&number)
            .filter(|entry| entry.members == members);
        if let Some(entry) = unchanged {
            return Some((entry.now, members, held));
        }
        let placed = u16::try_from(members.len())
            .ok()
            .and_then(|count| Some((self.runs.take(count, at.grace)?, count)));
        let Some((first, count)) = placed else {
            for adjacency in held {
                self.adjacencies.give_back(adjacency, at.memory);
            }
            return None;
        };
        let cells = &at.memory.members.words()[first as usize..];
        for (member, cell) in members.iter().zip(cells) {
            cell.store(member.to_word(), Ordering::Release);
        }
        Some((Group::Threshold { first, count }, members, held))
    }

    /// Groups to try again when room may have come.
    pub(crate) fn full(&self) -> Vec<u32> {
        self.full.iter().copied().collect()
    }

    pub(crate) fn used(&self) -> usize {
        self.entries.len()
    }
}

fn key_of(hop: &Hop) -> Key {
    Key {
        index: hop.index,
        neighbour: hop.gateway,
        mtu: hop.mtu,
    }
}

fn put(memory: &Memory, number: u32, group: Group) {
    memory.groups.words()[number as usize].store(group.to_word(), Ordering::Release);
}
