//! Where bridges have learnt sources, as far as engines take frames from there.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;

use super::upon::{Leads, Steps};
use crate::event::FdbEntry;
use crate::slots::Slots;
use crate::state::{Bridges, FdbKey};
use raddle_image::{Memory, Step};

/// A bridge, a port of it, and a VLAN there (0 where the bridge filters none).
pub(super) type Place = (u32, u32, u16);

/// As many entries that found no room are tried again at most by one commit: there may be thousands a second.
const RETRIES: usize = 64;

/// What the image knows of FDBs: entries of the ports and VLANs that steps lead from.
///
/// A number stands for one place as long as a step asks for it, and for another only when no reader can still hold it: whoever has read
/// a step asks for sources of no other place.
#[derive(Debug)]
pub(super) struct Learnt {
    slots: Slots,
    numbers: HashMap<Place, u16>,
    /// By entry, the number that the image has it with.
    stored: HashMap<FdbKey, u16>,
    /// Entries that there was no room for: the kernel has what comes from there.
    waiting: BTreeSet<FdbKey>,
    /// The last of them that was tried again.
    tried: FdbKey,
    /// How many places got no number: no step leads from there.
    lacking: usize,
}

impl Default for Learnt {
    fn default() -> Learnt {
        Learnt {
            slots: Slots::new(1, 1 << 16),
            numbers: HashMap::new(),
            stored: HashMap::new(),
            waiting: BTreeSet::new(),
            tried: FdbKey::default(),
            lacking: 0,
        }
    }
}

impl Learnt {
    /// How many entries and places there was no room for.
    pub(super) fn without_room(&self) -> (usize, usize) {
        (self.waiting.len(), self.lacking)
    }

    /// The number that sources of this entry are learnt with, if engines may take them: it is none of the machine's own addresses,
    /// nor special, nor one that no frame may come from (`is_valid_ether_addr`), and a step asks for its place.
    fn number_of(&self, entry: &FdbEntry) -> Option<u16> {
        let is_valid = entry.mac[0] & 1 == 0 && entry.mac != [0; 6];
        let is_source = is_valid && !entry.local && !entry.is_special;
        let number = self.numbers.get(&(entry.bridge, entry.port, entry.vlan));
        number.copied().filter(|_| is_source)
    }

    /// Has engines take no source any more that is not where it was. To be done before anything else of a commit.
    pub(super) fn forget(&mut self, changed: &HashSet<FdbKey>, bridges: &Bridges, at: &Memory) {
        for key in changed {
            let entry = bridges.entry(key.0, key.1, key.2);
            let number = entry.and_then(|entry| self.number_of(entry));
            if number.is_none() {
                self.waiting.remove(key);
            }
            if let Some(&stored) = self
                .stored
                .get(key)
                .filter(|stored| number != Some(**stored))
            {
                self.take_out(key, stored, at);
            }
        }
    }

    fn take_out(&mut self, key: &FdbKey, number: u16, at: &Memory) {
        // To take one out needs no room.
        let _ = at.store_learnt(key.2, number, false);
        self.stored.remove(key);
    }

    /// Has engines take the sources that are where they are now, and tries again some of those that there was no room for.
    pub(super) fn learn(&mut self, changed: &HashSet<FdbKey>, bridges: &Bridges, at: &Memory) {
        let entries = changed.iter();
        let entries = entries.filter_map(|(bridge, vlan, mac)| bridges.entry(*bridge, *vlan, *mac));
        entries.for_each(|entry| self.put_in(entry, at));
        let behind = (Bound::Excluded(self.tried), Bound::Unbounded);
        let again = self.waiting.range(behind).take(RETRIES).copied();
        let again: Vec<FdbKey> = again.collect();
        self.tried = again.last().copied().unwrap_or_default();
        for (bridge, vlan, mac) in again {
            if let Some(entry) = bridges.entry(bridge, vlan, mac) {
                self.put_in(entry, at);
            }
        }
    }

    fn put_in(&mut self, entry: &FdbEntry, at: &Memory) {
        let key = (entry.bridge, entry.vlan, entry.mac);
        let number = self.number_of(entry);
        let Some(number) = number.filter(|_| !self.stored.contains_key(&key)) else {
            return;
        };
        match at.store_learnt(entry.mac, number, true) {
            Ok(()) => {
                self.stored.insert(key, number);
                self.waiting.remove(&key);
            }
            Err(_) => {
                self.waiting.insert(key);
            }
        }
    }

    /// Numbers the places that these steps lead from, and has engines know what is learnt at new ones: nobody asks for these before the
    /// steps are in the image. A step from a place that gets no number is left out.
    pub(super) fn number(
        &mut self,
        leads: Leads,
        bridges: &Bridges,
        at: &Memory,
        grace: &dyn Fn(),
    ) -> Steps {
        let mut new: BTreeMap<u32, HashSet<Place>> = BTreeMap::new();
        let mut lacking = HashSet::new();
        let mut steps = Steps::new();
        for (upon, (step, place)) in leads {
            let Some(place) = place else {
                steps.insert(upon, step);
                continue;
            };
            let known = self.numbers.get(&place).copied();
            let slots = &mut self.slots;
            let taken = || slots.take(grace).and_then(|n| u16::try_from(n).ok());
            let Some(learnt) = known.or_else(taken) else {
                lacking.insert(place);
                continue;
            };
            if known.is_none() {
                self.numbers.insert(place, learnt);
                new.entry(place.1).or_default().insert(place);
            }
            steps.insert(upon, Step { learnt, ..step });
        }
        self.lacking = lacking.len();
        for (port, places) in new {
            let is_new = |e: &&FdbEntry| places.contains(&(e.bridge, e.port, e.vlan));
            let entries = bridges.of_port(port).filter(is_new);
            entries.for_each(|entry| self.put_in(entry, at));
        }
        steps
    }

    /// Forgets all places but these, once no step of the image leads from another. Costs a walk over all entries, where there is any such
    /// place.
    pub(super) fn retire(&mut self, used: &HashSet<u16>, bridges: &Bridges, at: &Memory) {
        let mut gone = HashSet::new();
        self.numbers.retain(|_, number| {
            let keep = used.contains(number);
            gone.extend((!keep).then_some(*number));
            keep
        });
        if gone.is_empty() {
            return;
        }
        let stored = self.stored.iter().filter(|(_, at)| gone.contains(at));
        let stored: Vec<(FdbKey, u16)> = stored.map(|(key, at)| (*key, *at)).collect();
        for (key, number) in stored {
            self.take_out(&key, number, at);
        }
        for number in gone {
            self.slots.give_back(number.into());
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|(bridge, vlan, mac)| {
            let entry = bridges.entry(*bridge, *vlan, *mac);
            entry.is_some_and(|entry| self.number_of(entry).is_some())
        });
        self.waiting = waiting;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::event::{Event, FdbEntry};
    use crate::state::State;
    use raddle_image::{Capacity, Upon};

    const HOST: [u8; 6] = [4, 0, 0, 0, 0, 1];

    fn leads(places: &[Place]) -> Leads {
        let lead = |place: &Place| {
            let step = Step {
                index: place.0,
                ..Step::default()
            };
            ((place.1, Upon::All), (step, Some(*place)))
        };
        places.iter().map(lead).collect()
    }

    /// A number is another place's only after a wait, and by then nothing is learnt with it.
    #[test]
    fn numbers_pass_on_when_nobody_holds_them() {
        let memory = Memory::heap(&Capacity::SMALL);
        let mut state = State::default();
        for port in 1..4 {
            state.apply(Event::Fdb(FdbEntry {
                bridge: 10 * port,
                mac: HOST,
                vlan: 0,
                port,
                local: false,
                is_special: false,
            }));
        }
        let mut learnt = Learnt {
            slots: Slots::new(1, 3),
            ..Learnt::default()
        };
        let waited = RefCell::new(Vec::new());
        let grace = || {
            let known = [1, 2].map(|number| memory.is_learnt(HOST, number));
            waited.borrow_mut().push(known);
        };
        let mut publish = |ports: &[u32]| {
            let places: Vec<Place> = ports.iter().map(|port| (10 * port, *port, 0)).collect();
            let steps = learnt.number(leads(&places), &state.bridges, &memory, &grace);
            let numbers: Vec<u16> = steps.values().map(|step| step.learnt).collect();
            let used = numbers.iter().copied().collect();
            learnt.retire(&used, &state.bridges, &memory);
            (numbers, learnt.without_room())
        };
        assert_eq!(publish(&[1, 2]), (vec![1, 2], (0, 0)));
        assert!(memory.is_learnt(HOST, 1) && memory.is_learnt(HOST, 2));
        // As long as the others have theirs there is none for a third.
        assert_eq!(publish(&[1, 2, 3]), (vec![1, 2], (0, 1)));
        assert_eq!(publish(&[2]), (vec![2], (0, 0)));
        assert!(!memory.is_learnt(HOST, 1) && waited.borrow().is_empty());
        assert_eq!(publish(&[2, 3]), (vec![2, 1], (0, 0)));
        assert_eq!(*waited.borrow(), [[false, true]]);
        assert!(memory.is_learnt(HOST, 1));
    }
}
