//! In which order members of bonds joined them: read apart, whenever a link is told to be a member, or none any more.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use raddle_rib::event::Link;

use super::kind::{Kind, Kinds};
use super::queue::Queue;

/// The bonds that there are, and their members.
#[derive(Debug, Default)]
pub(super) struct Bonds {
    names: BTreeMap<u32, String>,
    /// When members of a bond were told last to have come or gone: what was read before that does not count.
    changed: HashMap<u32, Instant>,
    /// Those that are to be read, or are being read.
    waiting: BTreeSet<u32>,
    /// What was told last of links that are part of something.
    parts: HashMap<u32, Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    master: u32,
    /// Of a member of a bond of 802.3ad, its aggregator, whether that is active, and its own link: with these the bond's active
    /// aggregator may have changed, which nothing else tells.
    told: (u16, Option<bool>, bool),
}

impl Bonds {
    /// This is told of a link.
    pub(super) fn note(&mut self, link: &Link, queue: &Queue) {
        let is_new = link.bond.is_some() && self.names.get(&link.index) != Some(&link.name);
        if is_new {
            self.names.insert(link.index, link.name.clone());
            self.read(link.index, queue);
        }
        let now = link.master.map(|master| Part {
            master,
            told: (link.bond_aggregator, link.bond_active, link.bond_down),
        });
        let before = match now {
            Some(now) => self.parts.insert(link.index, now),
            None => self.parts.remove(&link.index),
        };
        let master = |part: Option<Part>| part.map(|part| part.master);
        let aggregates = |part: Option<Part>| part.is_some_and(|part| part.told.0 != 0);
        if master(before) != master(now) {
            let masters = [master(before), master(now)].into_iter().flatten();
            masters.for_each(|master| self.read(master, queue));
        } else if before != now && (aggregates(before) || aggregates(now)) {
            queue.want(Kinds::NONE.with(Kind::Links));
        }
    }

    /// A link is gone.
    pub(super) fn forget(&mut self, index: u32, queue: &Queue) {
        self.names.remove(&index);
        self.changed.remove(&index);
        self.waiting.remove(&index);
        if let Some(part) = self.parts.remove(&index) {
            self.read(part.master, queue);
        }
    }

    /// What was told may have been lost: the bonds of which nothing is known until they have been read again.
    pub(super) fn doubt(&mut self, queue: &Queue) -> Vec<u32> {
        let all: Vec<u32> = self.names.keys().copied().collect();
        all.iter().for_each(|bond| self.read(*bond, queue));
        all
    }

    /// Whether what was read of a bond from then on counts.
    pub(super) fn counts(&mut self, bond: u32, began: Instant) -> bool {
        let is_since = |changed: &Instant| *changed <= began;
        let counts = self.changed.get(&bond).is_none_or(is_since);
        if counts {
            self.waiting.remove(&bond);
        }
        counts && self.names.contains_key(&bond)
    }

    /// Whether any bond is yet to be read.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Has the members of a bond read that have changed; of anything else nothing.
    fn read(&mut self, bond: u32, queue: &Queue) {
        if let Some(name) = self.names.get(&bond) {
            self.changed.insert(bond, Instant::now());
            self.waiting.insert(bond);
            queue.want_bond(bond, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use raddle_rib::event::Bond;

    use super::super::queue::Order;
    use super::*;

    fn wanted(queue: &Queue) -> Vec<String> {
        match queue.next_order(Instant::now()) {
            Order::Bonds(bonds) => bonds.into_values().collect(),
            Order::Settings | Order::Dump(_) | Order::Timer | Order::Stop => Vec::new(),
        }
    }

    fn member(master: Option<u32>, aggregator: u16, active: bool) -> Link {
        Link {
            master,
            bond_active: master.map(|_| active),
            bond_aggregator: aggregator,
            ..Link::ethernet(2, "eth0", [2; 6])
        }
    }

    #[test]
    fn orders_are_read_when_members_come_and_go() {
        let queue = Queue::new().unwrap();
        let mut bonds = Bonds::default();
        // Before its bond is told of, which is read then.
        bonds.note(&member(Some(9), 0, true), &queue);
        assert!(wanted(&queue).is_empty());
        let bond = Link {
            bond: Some(Bond::default()),
            ..Link::ethernet(9, "bond0", [2; 6])
        };
        let before = Instant::now();
        bonds.note(&bond, &queue);
        assert_eq!(wanted(&queue), ["bond0"]);
        assert!(!bonds.counts(9, before), "it was told of since");
        assert!(bonds.is_waiting());
        assert!(bonds.counts(9, Instant::now()));
        assert!(!bonds.is_waiting());
        assert!(!bonds.counts(8, Instant::now()), "no bond");
        bonds.note(&bond, &queue);
        bonds.note(&member(Some(9), 0, false), &queue);
        assert!(wanted(&queue).is_empty(), "neither joined nor left");
        bonds.note(&member(None, 0, false), &queue);
        assert_eq!(wanted(&queue), ["bond0"]);
        bonds.note(&member(Some(9), 0, true), &queue);
        assert_eq!(wanted(&queue), ["bond0"]);
        bonds.forget(2, &queue);
        assert_eq!(wanted(&queue), ["bond0"]);
        assert_eq!(bonds.doubt(&queue), [9]);
        assert_eq!(wanted(&queue), ["bond0"]);
        bonds.forget(9, &queue);
        assert!(bonds.doubt(&queue).is_empty());
    }

    /// Which aggregator is active is the bond's to tell, and a change of that is not announced.
    #[test]
    fn a_change_of_an_aggregator_has_links_read() {
        let queue = Queue::new().unwrap();
        let mut bonds = Bonds::default();
        bonds.note(&member(Some(9), 1, true), &queue);
        bonds.note(&member(Some(9), 1, true), &queue);
        let reads = || {
            // So long dumps are gathered for.
            let order = queue.next_order(Instant::now() + Duration::from_millis(100));
            matches!(order, Order::Dump(_))
        };
        assert!(!reads());
        bonds.note(&member(Some(9), 1, false), &queue);
        assert!(reads());
        bonds.note(&member(Some(9), 2, false), &queue);
        assert!(reads());
        bonds.note(&member(Some(9), 0, false), &queue);
        assert!(reads(), "it has left its aggregator");
        bonds.note(&member(Some(9), 0, true), &queue);
        assert!(!reads(), "no 802.3ad");
    }
}
