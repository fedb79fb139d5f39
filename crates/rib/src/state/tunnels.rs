//! Where VXLANs send which MAC addresses.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use crate::event::TunnelFdb;

/// Identity of what a VXLAN knows of a MAC address: VXLAN, MAC address.
pub(crate) type TunnelKey = (u32, [u8; 6]);

/// Entries of the FDBs of VXLANs.
#[derive(Debug, Default)]
pub(crate) struct Tunnels {
    /// By key; none has none, and they are in the order of their addresses.
    fdb: BTreeMap<TunnelKey, Vec<TunnelFdb>>,
    /// What a running dump has mentioned.
    seen: Option<HashSet<(TunnelKey, IpAddr)>>,
}

/// Frames to zeros, for those to all others, and to groups go to several; those to all others to one
/// (`vxlan_fdb_update_existing`).
fn may_be_several(mac: [u8; 6]) -> bool {
    mac == [0; 6] || mac[0] & 1 != 0
}

impl Tunnels {
    /// Where frames to this MAC address go. Frames to one that is not known go where those to zeros do: that is not looked at here.
    pub(crate) fn remotes(&self, index: u32, mac: [u8; 6]) -> &[TunnelFdb] {
        self.fdb.get(&(index, mac)).map_or(&[], Vec::as_slice)
    }

    /// All entries, by VXLAN, MAC address and the address that they lead to.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &TunnelFdb> {
        self.fdb.values().flatten()
    }

    /// Whether that changes anything.
    ///
    /// Of the one that an entry to a unicast MAC address takes the place of, the kernel tells nothing (`vxlan_fdb_replace`, `vxlan_snoop`).
    pub(super) fn set(&mut self, entry: TunnelFdb) -> bool {
        let key = (entry.index, entry.mac);
        if let Some(seen) = &mut self.seen {
            seen.insert((key, entry.dst));
        }
        let entries = self.fdb.entry(key).or_default();
        let at = match may_be_several(entry.mac) {
            true => entries.binary_search_by_key(&entry.dst, |known| known.dst),
            false if entries.is_empty() => Err(0),
            false => Ok(0),
        };
        match at {
            Ok(at) => std::mem::replace(&mut entries[at], entry) != entry,
            Err(at) => {
                entries.insert(at, entry);
                true
            }
        }
    }

    /// Whether there was one.
    pub(super) fn remove(&mut self, key: TunnelKey, dst: IpAddr) -> bool {
        if let Some(seen) = &mut self.seen {
            seen.remove(&(key, dst));
        }
        self.keep(key, |known| known != dst)
    }

    /// Forgets the entries of a key that lead to other addresses than `wanted`; whether there were any.
    fn keep(&mut self, key: TunnelKey, wanted: impl Fn(IpAddr) -> bool) -> bool {
        let Some(entries) = self.fdb.get_mut(&key) else {
            return false;
        };
        let before = entries.len();
        entries.retain(|entry| wanted(entry.dst));
        let is_changed = entries.len() != before;
        if entries.is_empty() {
            self.fdb.remove(&key);
        }
        is_changed
    }

    /// Forgets all of a link that is gone; the keys of which there were any.
    pub(super) fn link_gone(&mut self, index: u32) -> Vec<TunnelKey> {
        let of_link = (index, [0; 6])..=(index, [u8::MAX; 6]);
        let gone: Vec<TunnelKey> = self.fdb.range(of_link).map(|(key, _)| *key).collect();
        for key in &gone {
            self.fdb.remove(key);
        }
        gone
    }

    pub(super) fn sweep_begin(&mut self) {
        self.seen = Some(HashSet::new());
    }

    /// The keys of entries that are gone.
    pub(super) fn sweep_end(&mut self) -> Vec<TunnelKey> {
        let Some(seen) = self.seen.take() else {
            return Vec::new();
        };
        let mut keys: Vec<TunnelKey> = self.fdb.keys().copied().collect();
        keys.retain(|key| self.keep(*key, |dst| seen.contains(&(*key, dst))));
        keys
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn entry() -> impl Strategy<Value = TunnelFdb> {
        let mac = prop_oneof![Just(0_u8), Just(1), Just(2), Just(4)];
        (1..4_u32, mac, 1..4_u8, any::<bool>()).prop_map(|(index, mac, dst, is_special)| {
            TunnelFdb {
                index,
                mac: [mac; 6],
                dst: [10, 0, 0, dst].into(),
                is_special,
            }
        })
    }

    #[derive(Clone, Debug)]
    enum Change {
        Set(TunnelFdb),
        Remove(TunnelFdb),
        LinkGone(u32),
        /// A dump that mentions these.
        Sweep(Vec<TunnelFdb>),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            6 => entry().prop_map(Change::Set),
            3 => entry().prop_map(Change::Remove),
            1 => (1..4_u32).prop_map(Change::LinkGone),
            1 => vec(entry(), 0..8).prop_map(Change::Sweep),
        ]
    }

    fn key(entry: &TunnelFdb) -> TunnelKey {
        (entry.index, entry.mac)
    }

    fn put(list: &mut Vec<TunnelFdb>, new: TunnelFdb) {
        let several = may_be_several(new.mac);
        list.retain(|old| key(old) != key(&new) || several && old.dst != new.dst);
        list.push(new);
    }

    /// What a list of entries would be after it; the keys that changed.
    fn simply(list: &mut Vec<TunnelFdb>, change: &Change) -> BTreeSet<TunnelKey> {
        let before = list.clone();
        match change {
            Change::Set(new) => put(list, *new),
            Change::Remove(it) => list.retain(|old| key(old) != key(it) || old.dst != it.dst),
            Change::LinkGone(index) => list.retain(|old| old.index != *index),
            Change::Sweep(told) => {
                list.clear();
                told.iter().for_each(|new| put(list, *new));
            }
        }
        let gone = before.iter().filter(|a| !list.contains(a));
        let new = list.iter().filter(|a| !before.contains(a));
        gone.chain(new).map(key).collect()
    }

    fn truly(tunnels: &mut Tunnels, change: &Change) -> BTreeSet<TunnelKey> {
        match change {
            Change::Set(new) => tunnels.set(*new).then(|| key(new)).into_iter().collect(),
            Change::Remove(it) => {
                let is_gone = tunnels.remove(key(it), it.dst);
                is_gone.then(|| key(it)).into_iter().collect()
            }
            Change::LinkGone(index) => tunnels.link_gone(*index).into_iter().collect(),
            Change::Sweep(told) => {
                tunnels.sweep_begin();
                let set = told.iter().filter(|new| tunnels.set(**new));
                let mut changed: BTreeSet<TunnelKey> = set.map(key).collect();
                changed.extend(tunnels.sweep_end());
                changed
            }
        }
    }

    proptest! {
        /// What is kept is what a list would be, and every change is told.
        #[test]
        fn entries_are_those_of_a_list(changes in vec(change(), 0..40)) {
            let (mut tunnels, mut list) = (Tunnels::default(), Vec::new());
            for change in &changes {
                let (changed, told) = (simply(&mut list, change), truly(&mut tunnels, change));
                // A dump may tell of an entry twice.
                prop_assert!(told.is_superset(&changed), "{change:?}");
                prop_assert!(told.len() == changed.len() || matches!(change, Change::Sweep(_)));
                list.sort_unstable_by_key(|entry| (key(entry), entry.dst));
                let kept: Vec<TunnelFdb> = tunnels.entries().copied().collect();
                prop_assert_eq!(&kept, &list);
                for entry in &list {
                    let all = list.iter().filter(|other| key(other) == key(entry)).copied();
                    let all: Vec<TunnelFdb> = all.collect();
                    prop_assert_eq!(tunnels.remotes(entry.index, entry.mac), all);
                }
                prop_assert!(tunnels.fdb.values().all(|entries| !entries.is_empty()));
            }
        }
    }
}
