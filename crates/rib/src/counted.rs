//! What was forwarded, by nexthop and by link, while the numbers of adjacencies pass from one to another.
//!
//! Engines count by number. Whom a number counts for:
//!
//! 1. The nexthop that it was given to last, also when that has gone: engines may still hold the number. A nexthop is
//!    an address behind a link, and a link is what bears its name.
//! 2. Before a number is given to another, it has waited for all engines: what it counted is added to what its link
//!    and its nexthop had counted by other numbers, and it starts anew at 0.
//! 3. A nexthop that comes back has what it had, as long as one of its numbers was not given to another. The number
//!    that was given back first is given out first, so that the ones gone for longest are forgotten.
//! 4. A link that is renamed, or whose index another link has now, keeps under its old name what was counted so far, and
//!    so do its nexthops. What is counted from then on is the new name's. (The kernel's own counters move with the
//!    device: of two that swap their names one would get less under its name.)
//! 5. Nothing of a link is forgotten. One that has gone keeps its name, and the next one of that name goes on from
//!    there; where too many names have gone, the oldest are told together, by no name.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use raddle_image::Counter;

use crate::adjacency::Key;
use crate::state::State;

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

/// Names of links that have gone that are remembered.
const GONE_MOST: usize = 1024;

/// A name that a link has, or had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct NameId(u32);

/// Stands for all names that are forgotten.
const FORGOTTEN: NameId = NameId(0);

#[derive(Debug, Default)]
struct OfName {
    name: String,
    /// What was counted for it by numbers that count for others now.
    before: Counter,
    /// Larger than that of any name that was given to a link earlier.
    since: u64,
}

/// A nexthop as it is told: by the name of its link, whatever index that has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Nexthop {
    /// None where it is a segment.
    link: Option<NameId>,
    /// The link's index is 0 here.
    key: Key,
}

impl Nexthop {
    fn new(link: NameId, key: Key) -> Nexthop {
        match key.segment {
            true => Nexthop { link: None, key },
            false => Nexthop {
                link: Some(link),
                key: Key { index: 0, ..key },
            },
        }
    }
}

/// Whom a number counts for.
#[derive(Clone, Copy, Debug)]
struct Owner {
    nexthop: Nexthop,
    /// What the number had counted before it was theirs.
    at_first: Counter,
}

/// Whom each number counts for, and what was counted by numbers that others have now.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    owners: HashMap<u32, Owner>,
    /// How many numbers a nexthop owns.
    owned: HashMap<Nexthop, u32>,
    /// Of those that own a number, and those whose links were renamed.
    before: HashMap<Nexthop, Counter>,
    names: HashMap<NameId, OfName>,
    by_name: HashMap<String, NameId>,
    /// The names of the links that were sent through, as they were when they were looked at last.
    of_index: HashMap<u32, NameId>,
    last_id: u32,
    last_since: u64,
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
        let link = match (key.segment, self.of_index.get(&key.index)) {
            (true, _) => FORGOTTEN,
            (false, Some(name)) => *name,
            (false, None) => self.call(key.index, state),
        };
        let owner = Owner {
            nexthop: Nexthop::new(link, key),
            at_first: Counter::default(),
        };
        if let Some(last) = self.pass_on(number, owner, || take_out(number))
            && !self.owned.contains_key(&last)
        {
            self.before.remove(&last);
        }
    }

    /// Makes a number count for another, which began when it had counted `at_first`; `counted` says what it has
    /// counted in all. Returns whom it counted for, if anybody.
    fn pass_on(
        &mut self,
        number: u32,
        owner: Owner,
        counted: impl FnOnce() -> Counter,
    ) -> Option<Nexthop> {
        *self.owned.entry(owner.nexthop).or_default() += 1;
        let last = self.owners.insert(number, owner)?;
        let counted = counted() - last.at_first;
        if let Some(link) = last.nexthop.link {
            let link = match self.names.contains_key(&link) {
                true => link,
                false => FORGOTTEN,
            };
            self.of_name(link).before += counted;
        }
        *self.before.entry(last.nexthop).or_default() += counted;
        if let Some(owned) = self.owned.get_mut(&last.nexthop) {
            *owned -= 1;
            if *owned == 0 {
                self.owned.remove(&last.nexthop);
            }
        }
        Some(last.nexthop)
    }

    /// Has a link called what it is called now.
    fn call(&mut self, index: u32, state: &State) -> NameId {
        let name = state.links.get(&index).map_or("", |link| &link.name);
        let id = match self.by_name.get(name) {
            _ if name.is_empty() => FORGOTTEN,
            Some(id) => *id,
            None => {
                self.last_id += 1;
                let id = NameId(self.last_id);
                self.by_name.insert(name.to_owned(), id);
                name.clone_into(&mut self.of_name(id).name);
                id
            }
        };
        self.last_since += 1;
        self.of_name(id).since = self.last_since;
        self.of_index.insert(index, id);
        id
    }

    fn of_name(&mut self, id: NameId) -> &mut OfName {
        self.names.entry(id).or_default()
    }

    /// Learns what these links are called: rules 4 and 5. `numbers_of` says which numbers those of a link have now, and
    /// `read` what a number has counted since it was given out.
    pub(crate) fn see_links(
        &mut self,
        changed: &BTreeSet<u32>,
        state: &State,
        numbers_of: impl Fn(u32) -> Vec<u32>,
        read: impl Fn(u32) -> Counter,
    ) {
        if changed.is_empty() {
            return;
        }
        for index in changed {
            let Some(link) = state.links.get(index) else {
                continue;
            };
            let last = self.of_index.get(index).and_then(|id| self.names.get(id));
            if last.is_none_or(|last| last.name == link.name) {
                continue;
            }
            let name = self.call(*index, state);
            for number in numbers_of(*index) {
                let Some(Owner { nexthop, .. }) = self.owners.get(&number) else {
                    continue;
                };
                let at_first = read(number);
                let nexthop = Nexthop::new(name, nexthop.key);
                self.pass_on(number, Owner { nexthop, at_first }, || at_first);
            }
        }
        self.forget(state);
    }

    /// Forgets the oldest of the names that no link has.
    fn forget(&mut self, state: &State) {
        if self.of_index.len() > 2 * (state.links.len() + GONE_MOST) {
            let owners = self.owners.values();
            let counts: BTreeSet<u32> = owners.map(|owner| owner.nexthop.key.index).collect();
            self.of_index
                .retain(|index, _| state.links.contains_key(index) || counts.contains(index));
        }
        if self.names.len() <= GONE_MOST {
            return;
        }
        let there = self.of_index.iter();
        let there = there.filter(|(index, _)| state.links.contains_key(index));
        let borne: BTreeSet<NameId> = there.map(|(_, id)| *id).collect();
        let gone = self.names.iter();
        let gone = gone.filter(|(id, _)| **id != FORGOTTEN && !borne.contains(id));
        let mut gone: Vec<(u64, NameId)> = gone.map(|(id, of)| (of.since, *id)).collect();
        gone.sort_unstable();
        gone.truncate(gone.len().saturating_sub(GONE_MOST));
        let ids: BTreeSet<NameId> = gone.into_iter().map(|(_, id)| id).collect();
        for id in &ids {
            if let Some(of_name) = self.names.remove(id) {
                self.by_name.remove(&of_name.name);
                self.of_name(FORGOTTEN).before += of_name.before;
            }
        }
        if !ids.is_empty() {
            self.of_index.retain(|_, id| !ids.contains(id));
            let owned = &self.owned;
            let is_gone = |nexthop: &Nexthop| nexthop.link.is_some_and(|id| ids.contains(&id));
            self.before
                .retain(|nexthop, _| !is_gone(nexthop) || owned.contains_key(nexthop));
        }
    }

    /// All that was counted, with what `read` says that each number has counted since it was given out.
    pub(crate) fn sent(&self, read: impl Fn(u32) -> Counter) -> Sent {
        let mut by_nexthop = self.before.clone();
        let mut by_name: HashMap<NameId, Counter> = HashMap::new();
        for (number, owner) in &self.owners {
            let counted = read(*number) - owner.at_first;
            *by_nexthop.entry(owner.nexthop).or_default() += counted;
            if let Some(link) = owner.nexthop.link {
                *by_name.entry(link).or_default() += counted;
            }
        }
        let mut links: BTreeMap<String, Counter> = BTreeMap::new();
        for (id, counted) in by_name {
            let name = self.names.get(&id).map_or("", |of_name| &of_name.name);
            *links.entry(name.to_owned()).or_default() += counted;
        }
        for of_name in self.names.values() {
            *links.entry(of_name.name.clone()).or_default() += of_name.before;
        }
        let of_number = |(number, owner): (&u32, &Owner)| {
            let counted = by_nexthop.get(&owner.nexthop).copied();
            (*number, counted.unwrap_or_default())
        };
        Sent {
            numbers: self.owners.iter().map(of_number).collect(),
            links,
        }
    }
}
