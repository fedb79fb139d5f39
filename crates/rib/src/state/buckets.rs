//! Who owns which bucket of which resilient group, as far as that is known.
//!
//! Rules:
//!
//! 1. A bucket that is told outside of a dump has this owner from then on.
//! 2. A dump takes the place of what was known of the groups that it is about, when it is complete.
//! 3. What makes the kernel move buckets without telling (a group that is new or has changed, a member
//!    that is gone, a member's link that is lost) makes a group's table unknown, and what a running dump says about it worthless:
//!    it may have been read before. The next dump knows.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::event::Bucket;

type Table = BTreeMap<u16, Bucket>;

/// The tables of all resilient groups.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    tables: HashMap<u32, Table>,
    dump: Option<Dump>,
}

/// A running dump.
#[derive(Debug, Default)]
struct Dump {
    /// The one group that it is about; none when it is about all.
    of: Option<u32>,
    tables: HashMap<u32, Table>,
    spoilt: HashSet<u32>,
}

impl Buckets {
    /// Rule 1, or part of a dump. Whether a bucket has another owner now.
    pub(crate) fn set(&mut self, bucket: Bucket) -> bool {
        let tables = match &mut self.dump {
            Some(dump) if dump.of.is_none_or(|of| of == bucket.group) => &mut dump.tables,
            _ => {
                let table = self.tables.entry(bucket.group).or_default();
                let before = table.insert(bucket.index, bucket);
                return before.map(|known| known.nexthop) != Some(bucket.nexthop);
            }
        };
        let table = tables.entry(bucket.group).or_default();
        table.insert(bucket.index, bucket);
        false
    }

    /// Rule 3. Whether anything was known.
    pub(crate) fn forget(&mut self, group: u32) -> bool {
        if let Some(dump) = &mut self.dump {
            dump.spoilt.insert(group);
        }
        self.tables.remove(&group).is_some()
    }

    /// Keeps the tables of some groups only.
    pub(crate) fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        self.tables.retain(|group, _| keep(*group));
    }

    /// A dump begins, of all groups or of one.
    pub(crate) fn sweep_begin(&mut self, of: Option<u32>) {
        self.dump = Some(Dump {
            of,
            ..Dump::default()
        });
    }

    /// Rule 2. The groups whose buckets have other owners than before.
    pub(crate) fn sweep_end(&mut self) -> Vec<u32> {
        let Some(mut dump) = self.dump.take() else {
            return Vec::new();
        };
        dump.tables.retain(|group, _| !dump.spoilt.contains(group));
        let about = |group: &u32| dump.of.is_none_or(|of| of == *group);
        let mut changed: Vec<u32> = self
            .tables
            .keys()
            .copied()
            .filter(|group| about(group) && !dump.tables.contains_key(group))
            .collect();
        for group in &changed {
            self.tables.remove(group);
        }
        for (group, table) in dump.tables {
            let owners = |t: &Table| -> Vec<(u16, u32)> {
                t.iter().map(|(index, b)| (*index, b.nexthop)).collect()
            };
            let now = owners(&table);
            if self.tables.insert(group, table).as_ref().map(owners) != Some(now) {
                changed.push(group);
            }
        }
        changed
    }

    /// The owners of a group's `count` buckets in order; none while one is not known.
    pub(crate) fn owners(&self, group: u32, count: u16) -> Option<Vec<u32>> {
        let table = self.tables.get(&group)?;
        let last = table.last_key_value()?;
        (table.len() == usize::from(count) && *last.0 == count - 1)
            .then(|| table.values().map(|bucket| bucket.nexthop).collect())
    }

    /// All buckets that are known, by group and index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bucket> {
        let mut groups: Vec<_> = self.tables.iter().collect();
        groups.sort_unstable_by_key(|(group, _)| **group);
        groups.into_iter().flat_map(|(_, table)| table.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(group: u32, index: u16, nexthop: u32) -> Bucket {
        Bucket {
            group,
            index,
            nexthop,
            idle_time: 0,
            flags: 0,
        }
    }

    #[test]
    fn a_table_is_known_when_every_bucket_is() {
        let mut buckets = Buckets::default();
        assert!(buckets.set(bucket(7, 0, 1)));
        assert_eq!(buckets.owners(7, 2), None);
        assert!(buckets.set(bucket(7, 1, 2)));
        assert_eq!(buckets.owners(7, 2), Some(vec![1, 2]));
        assert_eq!(buckets.owners(7, 1), None);
        assert_eq!(buckets.owners(7, 0), None);
        assert!(!buckets.set(bucket(7, 1, 2)));
        assert!(buckets.set(bucket(7, 1, 1)));
        assert_eq!(buckets.owners(7, 2), Some(vec![1, 1]));
        assert!(buckets.forget(7) && !buckets.forget(7));
        assert_eq!(buckets.owners(7, 2), None);
    }

    #[test]
    fn a_dump_takes_the_place_of_what_it_is_about() {
        let mut buckets = Buckets::default();
        for group in [7, 8, 9] {
            buckets.set(bucket(group, 0, 1));
        }
        buckets.sweep_begin(Some(8));
        assert!(!buckets.set(bucket(8, 0, 2)));
        assert_eq!(buckets.owners(8, 1), Some(vec![1]));
        // About another group: a notification.
        assert!(buckets.set(bucket(9, 0, 2)));
        assert_eq!(buckets.sweep_end(), [8]);
        assert_eq!(buckets.owners(7, 1), Some(vec![1]));
        assert_eq!(buckets.owners(8, 1), Some(vec![2]));
        assert_eq!(buckets.owners(9, 1), Some(vec![2]));
        buckets.sweep_begin(None);
        buckets.set(bucket(8, 0, 2));
        let mut changed = buckets.sweep_end();
        changed.sort_unstable();
        assert_eq!(changed, [7, 9]);
        assert_eq!(buckets.iter().count(), 1);
        buckets.sweep_begin(Some(8));
        assert_eq!(buckets.sweep_end(), [8]);
        assert_eq!(buckets.iter().count(), 0);
    }

    /// What was read before a change and told behind it is not the table after it.
    #[test]
    fn a_change_spoils_the_dump_that_runs() {
        let mut buckets = Buckets::default();
        buckets.sweep_begin(None);
        buckets.set(bucket(7, 0, 1));
        buckets.set(bucket(8, 0, 1));
        buckets.forget(7);
        buckets.set(bucket(7, 0, 1));
        assert_eq!(buckets.sweep_end(), [8]);
        assert_eq!(buckets.owners(7, 1), None);
    }
}
