//! What was forwarded, by nexthop and by link, while the numbers of adjacencies pass from one to another.
//!
//! Engines count by number. Whom a number counts for:
//!
//! 1. The nexthop that it was given to last, also when that has gone: engines may still hold the number.
//! 2. Before a number is given to another, it has waited for all engines: what it counted is added to what its link
//!    and its nexthop had counted by other numbers, and it starts anew at 0.
//! 3. A nexthop that comes back has what it had, as long as one of its numbers was not given to another. The number
//!    that was given back first is given out first, so that the ones gone for longest are forgotten.
//! 4. Nothing of a link is forgotten. One that has gone keeps its name; where too many have gone, the oldest are told
//!    together, by no name.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::adjacency::Key;
use crate::state::State;

/// Packets and bytes. Bytes count whole frames, from the destination MAC on, without FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Frames.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl std::ops::AddAssign for Counter {
    fn add_assign(&mut self, other: Counter) {
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

/// What was forwarded so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    numbers: HashMap<u32, Counter>,
    /// By the name of the link; none for links that went so long ago that their names are forgotten.
    pub links: BTreeMap<String, Counter>,
}

impl Sent {
    /// What was forwarded to the nexthop that has this adjacency now, by whatever numbers.
    pub fn nexthop(&self, number: u32) -> Counter {
        self.numbers.get(&number).copied().unwrap_or_default()
    }
}

/// Links that have gone whose names are remembered.
const GONE_MOST: usize = 1024;
/// The kernel gives this index to no link.
const NO_LINK: u32 = 0;

#[derive(Debug, Default)]
struct OfLink {
    /// As it was last called.
    name: String,
    /// By numbers that others have now.
    before: Counter,
}

/// Whom each number counts for, and what was counted by numbers that others have now.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    owners: HashMap<u32, Key>,
    /// How many numbers a nexthop owns.
    owned: HashMap<Key, u32>,
    /// Of those that own a number.
    before: HashMap<Key, Counter>,
    links: BTreeMap<u32, OfLink>,
}

impl Ledger {
    /// Gives a number that no engine holds: rules 1 to 3. `take_out` says what it has counted, and sets that to 0.
    pub(crate) fn give(
        &mut self,
        number: u32,
        key: Key,
        state: &State,
        take_out: impl FnOnce(u32) -> Counter,
    ) {
        if !key.segment {
            let name = state.links.get(&key.index).map(|link| &*link.name);
            let of_link = self.links.entry(key.index).or_default();
            of_link.name = name.unwrap_or(&of_link.name).to_owned();
        }
        *self.owned.entry(key).or_default() += 1;
        let Some(last) = self.owners.insert(number, key) else {
            return;
        };
        let counted = take_out(number);
        if !last.segment {
            self.link(last.index).before += counted;
        }
        *self.before.entry(last).or_default() += counted;
        if let Some(owned) = self.owned.get_mut(&last) {
            *owned -= 1;
            if *owned == 0 {
                self.owned.remove(&last);
                self.before.remove(&last);
            }
        }
    }

    /// The link with this index, or what stands for all that are forgotten.
    fn link(&mut self, index: u32) -> &mut OfLink {
        let index = match self.links.contains_key(&index) {
            true => index,
            false => NO_LINK,
        };
        self.links.entry(index).or_default()
    }

    /// Learns what these links are called, and forgets names by rule 4.
    pub(crate) fn see_links(&mut self, changed: &BTreeSet<u32>, state: &State) {
        if changed.is_empty() {
            return;
        }
        for index in changed {
            if let (Some(of_link), Some(link)) = (self.links.get_mut(index), state.links.get(index))
                && of_link.name != link.name
            {
                of_link.name.clone_from(&link.name);
            }
        }
        let gone = |index: &&u32| **index != NO_LINK && !state.links.contains_key(index);
        let gone: Vec<u32> = self.links.keys().filter(gone).copied().collect();
        for index in &gone[..gone.len().saturating_sub(GONE_MOST)] {
            if let Some(of_link) = self.links.remove(index) {
                self.link(NO_LINK).before += of_link.before;
            }
        }
    }

    /// All that was counted, with what `read` says that each number has counted since it was given out.
    pub(crate) fn sent(&self, read: impl Fn(u32) -> Counter) -> Sent {
        let mut by_key = self.before.clone();
        let mut by_link: BTreeMap<u32, Counter> = BTreeMap::new();
        for (number, key) in &self.owners {
            let counted = read(*number);
            *by_key.entry(*key).or_default() += counted;
            if !key.segment {
                *by_link.entry(key.index).or_default() += counted;
            }
        }
        let mut links: BTreeMap<String, Counter> = BTreeMap::new();
        for (index, counted) in by_link {
            let name = self.links.get(&index).map_or("", |link| &link.name);
            *links.entry(name.to_owned()).or_default() += counted;
        }
        for of_link in self.links.values() {
            *links.entry(of_link.name.clone()).or_default() += of_link.before;
        }
        let of_number =
            |(number, key): (&u32, &Key)| (*number, by_key.get(key).copied().unwrap_or_default());
        Sent {
            numbers: self.owners.iter().map(of_number).collect(),
            links,
        }
    }
}
