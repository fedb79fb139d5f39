//! What bridges know: VLANs of their ports, and where they have learnt which MAC addresses.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::RangeInclusive;

use crate::event::{FdbEntry, PortVlan, Sweep};

/// Identity of an entry of an FDB: bridge, VLAN identifier, MAC address.
pub(crate) type FdbKey = (u32, u16, [u8; 6]);

/// Entries of FDBs, and VLANs of ports.
#[derive(Debug, Default)]
pub(crate) struct Bridges {
    fdb: BTreeMap<FdbKey, FdbEntry>,
    by_port: BTreeSet<(u32, FdbKey)>,
    vlans: BTreeMap<(u32, u16), PortVlan>,
    /// What a running dump has mentioned.
    seen_fdb: Option<HashSet<FdbKey>>,
    seen_vlans: Option<HashSet<(u32, u16)>>,
}

fn key(entry: &FdbEntry) -> FdbKey {
    (entry.bridge, entry.vlan, entry.mac)
}

/// All keys of a bridge.
fn of_bridge(index: u32) -> RangeInclusive<FdbKey> {
    (index, 0, [0; 6])..=(index, u16::MAX, [u8::MAX; 6])
}

/// All VLANs of a port or a bridge.
fn of_port(index: u32) -> RangeInclusive<(u32, u16)> {
    (index, 0)..=(index, u16::MAX)
}

/// The first key that there may be, and the last.
const FIRST: FdbKey = (0, 0, [0; 6]);
const LAST: FdbKey = (u32::MAX, u16::MAX, [u8::MAX; 6]);

impl Bridges {
    /// The entry for a MAC address, of exactly this VLAN.
    pub(crate) fn entry(&self, bridge: u32, vlan: u16, mac: [u8; 6]) -> Option<&FdbEntry> {
        self.fdb.get(&(bridge, vlan, mac))
    }

    /// The entries that lead to a port.
    pub(crate) fn of_port(&self, port: u32) -> impl Iterator<Item = &FdbEntry> {
        let keys = self.by_port.range((port, FIRST)..=(port, LAST));
        keys.filter_map(|(_, key)| self.fdb.get(key))
    }

    /// All entries, by bridge, VLAN and MAC address.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &FdbEntry> {
        self.fdb.values()
    }

    /// A VLAN of a port, or of a bridge itself.
    pub(crate) fn vlan(&self, index: u32, id: u16) -> Option<&PortVlan> {
        self.vlans.get(&(index, id))
    }

    /// All VLANs of a port, or of a bridge itself, by identifier.
    pub(crate) fn vlans_of(&self, index: u32) -> impl Iterator<Item = &PortVlan> {
        let all = self.vlans.range(of_port(index));
        all.map(|(_, vlan)| vlan)
    }

    /// All VLANs of all ports, by port and identifier.
    pub(crate) fn all_vlans(&self) -> impl Iterator<Item = &PortVlan> {
        self.vlans.values()
    }

    /// Whether that changes anything.
    pub(super) fn set(&mut self, entry: FdbEntry) -> bool {
        let key = key(&entry);
        if let Some(seen) = &mut self.seen_fdb {
            seen.insert(key);
        }
        let before = self.fdb.insert(key, entry);
        if before == Some(entry) {
            return false;
        }
        if let Some(before) = before {
            self.by_port.remove(&(before.port, key));
        }
        self.by_port.insert((entry.port, key));
        true
    }

    /// Whether there was one.
    pub(super) fn remove(&mut self, key: &FdbKey) -> bool {
        if let Some(seen) = &mut self.seen_fdb {
            seen.remove(key);
        }
        let Some(entry) = self.fdb.remove(key) else {
            return false;
        };
        self.by_port.remove(&(entry.port, *key));
        true
    }

    /// Whether that changes anything.
    ///
    /// What comes in without a tag is of one VLAN: that it is no longer of another one, the kernel does not tell (`__vlan_add_pvid`).
    pub(super) fn set_vlan(&mut self, vlan: PortVlan) -> bool {
        let key = (vlan.index, vlan.id);
        if vlan.pvid {
            let all = self.vlans.range_mut(of_port(vlan.index));
            all.for_each(|(_, other)| other.pvid &= other.id == vlan.id);
        }
        if let Some(seen) = &mut self.seen_vlans {
            seen.insert(key);
        }
        self.vlans.insert(key, vlan) != Some(vlan)
    }

    /// Whether there was one.
    pub(super) fn remove_vlan(&mut self, index: u32, id: u16) -> bool {
        if let Some(seen) = &mut self.seen_vlans {
            seen.remove(&(index, id));
        }
        self.vlans.remove(&(index, id)).is_some()
    }

    /// Forgets all of a link that is gone: the entries that led to it, or were a bridge's, are returned.
    pub(super) fn link_gone(&mut self, index: u32) -> Vec<FdbKey> {
        let of_bridge = self.fdb.range(of_bridge(index));
        let mut gone: Vec<FdbKey> = of_bridge.map(|(key, _)| *key).collect();
        let by_it = self.by_port.range((index, FIRST)..=(index, LAST));
        gone.extend(by_it.map(|(_, key)| *key));
        gone.retain(|key| self.remove(key));
        let vlans: Vec<u16> = self.vlans_of(index).map(|vlan| vlan.id).collect();
        for id in vlans {
            self.vlans.remove(&(index, id));
        }
        gone
    }

    pub(super) fn sweep_begin(&mut self, sweep: Sweep) {
        match sweep {
            Sweep::Fdb => self.seen_fdb = Some(HashSet::new()),
            Sweep::PortVlans => self.seen_vlans = Some(HashSet::new()),
            _ => {}
        }
    }

    /// The entries that are gone.
    pub(super) fn sweep_end_fdb(&mut self) -> Vec<FdbKey> {
        let Some(seen) = self.seen_fdb.take() else {
            return Vec::new();
        };
        let gone = self.fdb.keys().filter(|key| !seen.contains(*key));
        let gone: Vec<FdbKey> = gone.copied().collect();
        for key in &gone {
            self.remove(key);
        }
        gone
    }

    /// The ports of which VLANs are gone.
    pub(super) fn sweep_end_vlans(&mut self) -> Vec<u32> {
        let Some(seen) = self.seen_vlans.take() else {
            return Vec::new();
        };
        let gone = self.vlans.keys().filter(|key| !seen.contains(*key));
        let gone: Vec<u32> = gone.map(|(index, _)| *index).collect();
        self.vlans.retain(|key, _| seen.contains(key));
        gone
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn entry() -> impl Strategy<Value = FdbEntry> {
        (1..4_u32, 0..3_u8, 0..2_u16, 1..6_u32).prop_map(|(bridge, mac, vlan, port)| FdbEntry {
            bridge,
            mac: [mac; 6],
            vlan,
            port,
            local: false,
            is_special: false,
        })
    }

    #[derive(Clone, Debug)]
    enum Change {
        Set(FdbEntry),
        Remove(FdbEntry),
        LinkGone(u32),
        /// A dump that mentions these.
        Sweep(Vec<FdbEntry>),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            6 => entry().prop_map(Change::Set),
            3 => entry().prop_map(Change::Remove),
            1 => (1..6_u32).prop_map(Change::LinkGone),
            1 => vec(entry(), 0..8).prop_map(Change::Sweep),
        ]
    }

    /// What a list of entries would be after it; the keys that changed.
    fn simply(list: &mut Vec<FdbEntry>, change: &Change) -> BTreeSet<FdbKey> {
        let before = list.clone();
        match change {
            Change::Set(new) => {
                list.retain(|old| key(old) != key(new));
                list.push(*new);
            }
            Change::Remove(it) => list.retain(|old| key(old) != key(it)),
            Change::LinkGone(index) => {
                list.retain(|old| old.bridge != *index && old.port != *index);
            }
            Change::Sweep(told) => {
                list.clear();
                for new in told {
                    list.retain(|old| key(old) != key(new));
                    list.push(*new);
                }
            }
        }
        let differs = |a: &&FdbEntry, b: &[FdbEntry]| !b.contains(a);
        let gone = before.iter().filter(|a| differs(a, list));
        let new = list.iter().filter(|a| differs(a, &before));
        gone.chain(new).map(key).collect()
    }

    fn truly(bridges: &mut Bridges, change: &Change) -> BTreeSet<FdbKey> {
        match change {
            Change::Set(new) => bridges.set(*new).then(|| key(new)).into_iter().collect(),
            Change::Remove(it) => bridges
                .remove(&key(it))
                .then(|| key(it))
                .into_iter()
                .collect(),
            Change::LinkGone(index) => bridges.link_gone(*index).into_iter().collect(),
            Change::Sweep(told) => {
                bridges.sweep_begin(Sweep::Fdb);
                let set = told.iter().filter(|new| bridges.set(**new));
                let mut changed: BTreeSet<FdbKey> = set.map(key).collect();
                changed.extend(bridges.sweep_end_fdb());
                changed
            }
        }
    }

    proptest! {
        /// What is kept, by key and by port, is what a list would be, and every change is told.
        #[test]
        fn entries_are_those_of_a_list(changes in vec(change(), 0..40)) {
            let (mut bridges, mut list) = (Bridges::default(), Vec::new());
            for change in &changes {
                let (changed, told) = (simply(&mut list, change), truly(&mut bridges, change));
                // A dump may tell of an entry twice.
                prop_assert!(told.is_superset(&changed), "{change:?}");
                prop_assert!(told.len() == changed.len() || matches!(change, Change::Sweep(_)));
                list.sort_unstable_by_key(key);
                let kept: Vec<FdbEntry> = bridges.entries().copied().collect();
                prop_assert_eq!(&kept, &list);
                for port in 1..6 {
                    let of_port: Vec<FdbEntry> = bridges.of_port(port).copied().collect();
                    let listed = list.iter().filter(|entry| entry.port == port);
                    prop_assert_eq!(of_port, listed.copied().collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn frames_without_a_tag_are_of_one_vlan() {
        let vlan = |index, id, pvid| PortVlan {
            index,
            id,
            pvid,
            untagged: true,
            state: 3,
        };
        let mut bridges = Bridges::default();
        for (index, id, pvid) in [(2, 1, true), (3, 1, true), (2, 10, false), (2, 30, true)] {
            assert!(bridges.set_vlan(vlan(index, id, pvid)));
        }
        let pvids = |bridges: &Bridges, index| -> Vec<u16> {
            let all = bridges.vlans_of(index).filter(|vlan| vlan.pvid);
            all.map(|vlan| vlan.id).collect()
        };
        assert_eq!(
            (pvids(&bridges, 2), pvids(&bridges, 3)),
            (vec![30], vec![1])
        );
        assert!(!bridges.set_vlan(vlan(2, 30, true)));
        // The one before does not come back.
        assert!(bridges.remove_vlan(2, 30));
        assert!(pvids(&bridges, 2).is_empty());
        bridges.link_gone(2);
        assert_eq!(bridges.all_vlans().count(), 1);
    }
}
