//! One routing table: prefixes and, for each, the routes that compete for it.

use std::collections::BTreeMap;

use crate::attrs::AttrsId;
use crate::prefix::{Addr, Prefix};

/// The routes of one prefix in the order in which the kernel asks them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Nearly always there is one; a box for more keeps the map small.
    One(AttrsId),
    /// At least two.
    Many(Box<[AttrsId]>),
}

impl Slot {
    pub(crate) fn ids(&self) -> &[AttrsId] {
        match self {
            Slot::One(id) => std::slice::from_ref(id),
            Slot::Many(ids) => ids,
        }
    }

    pub(crate) fn from_ids(mut ids: Vec<AttrsId>) -> Option<Slot> {
        match ids.len() {
            0 => None,
            1 => ids.pop().map(Slot::One),
            _ => Some(Slot::Many(ids.into_boxed_slice())),
        }
    }
}

/// A routing table of one family.
#[derive(Clone, Debug)]
pub(crate) struct Table<A> {
    routes: BTreeMap<Prefix<A>, Slot>,
    /// How many prefixes there are of each length, so that a search asks only for those.
    lengths: [u32; 129],
}

impl<A: Addr> Default for Table<A> {
    fn default() -> Self {
        Table {
            routes: BTreeMap::new(),
            lengths: [0; 129],
        }
    }
}

impl<A: Addr> Table<A> {
    pub(crate) fn len(&self) -> usize {
        self.routes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    pub(crate) fn get(&self, prefix: Prefix<A>) -> Option<&Slot> {
        if self.lengths[usize::from(prefix.len)] == 0 {
            return None;
        }
        self.routes.get(&prefix)
    }

    /// Puts `slot` in the place of what the prefix had; none removes it.
    pub(crate) fn set(&mut self, prefix: Prefix<A>, slot: Option<Slot>) {
        let count = &mut self.lengths[usize::from(prefix.len)];
        match slot {
            Some(slot) => {
                if self.routes.insert(prefix, slot).is_none() {
                    *count += 1;
                }
            }
            None => {
                if self.routes.remove(&prefix).is_some() {
                    *count -= 1;
                }
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Prefix<A>, &Slot)> {
        self.routes.iter().map(|(p, s)| (*p, s))
    }

    /// The prefixes that `prefix` covers, itself included.
    pub(crate) fn inside(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, &Slot)> {
        self.routes.range(prefix.inside()).map(|(p, s)| (*p, s))
    }

    /// The prefixes that cover `prefix`, itself included, longest first.
    pub(crate) fn covering(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, &Slot)> {
        (0..=prefix.len)
            .rev()
            .filter(|&len| self.lengths[usize::from(len)] != 0)
            .filter_map(move |len| {
                let p = Prefix::new(prefix.addr, len);
                self.routes.get(&p).map(|slot| (p, slot))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_match_is_the_first_that_covers() {
        let p = |a: [u8; 4], len| Prefix::new(u32::from_be_bytes(a), len);
        let mut table = Table::default();
        for (i, q) in [p([0; 4], 0), p([10, 0, 0, 0], 8), p([10, 1, 0, 0], 16)]
            .iter()
            .enumerate()
        {
            table.set(*q, Some(Slot::One(AttrsId(i as u32))));
        }
        let covers: Vec<u8> = table
            .covering(p([10, 1, 2, 3], 32))
            .map(|(q, _)| q.len)
            .collect();
        assert_eq!(covers, [16, 8, 0]);
        table.set(p([10, 1, 0, 0], 16), None);
        assert_eq!(table.covering(p([10, 1, 2, 3], 32)).count(), 2);
        assert_eq!(table.inside(p([10, 0, 0, 0], 8)).count(), 1);
    }
}
