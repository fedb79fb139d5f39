//! The entries of links that engines forward from.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use super::Rib;
use super::reverse::Need;
use super::upon::{Leads, Steps, Upper, Ways};
use crate::adjacency::Ports;
use crate::event::Link;
use crate::guards::Guards;
use crate::state::State;
use crate::tunnels::own_mac;
use crate::ways::Given;
use raddle_image::{ANY_WAY, LINK_COUNTERS, LinkEntry, MAX_LINKS, Step, Upon, link_flags};

impl Rib {
    /// Writes the entries of all links, and makes the views that they need.
    pub(super) fn publish_links(&mut self) -> usize {
        let at = publish!(self);
        let links = self.state.links.values();
        let strict = links.filter(|link| self.way_back.need(&self.state, link) == Need::Link);
        let strict = strict.filter(|link| self.ports.enabled.contains(&link.index));
        let strict: Vec<u32> = strict.map(|link| link.index).collect();
        let asks = |index| {
            let entry = self.links.get(&index);
            entry.is_some_and(|entry| entry.flags & link_flags::WAY_BACK != 0)
        };
        let given = self.groups.link_ways.give(&strict, asks);
        if given == Given::PassedOn {
            (self.grace)();
        }
        if given != Given::Nothing {
            self.groups.write_ways(&at);
        }
        let mut wanted = HashMap::new();
        let mut built = 0;
        let upper = Upper::of(&self.state);
        let links = self.state.links.values();
        for link in links.filter(|link| upper.takes_itself(link)) {
            let Some(mut entry) = link_entry(&self.state, &self.ports, link) else {
                continue;
            };
            match self
                .v4
                .table_for(&self.state, 4, link, &self.state.v4, &mut self.groups, &at)
            {
                Some((table, count)) => {
                    built += count;
                    entry.table4 = table;
                }
                None => entry.flags |= link_flags::RULES4,
            }
            match self.sources.table() {
                Some(table) => entry.sources4 = table,
                None => entry.flags |= link_flags::RULES4,
            }
            let need = self.way_back.need(&self.state, link);
            let way = match need {
                Need::Route => Some(ANY_WAY),
                Need::Link => self.groups.link_ways.of(link.index),
                Need::Nothing | Need::Behind | Need::Kernel => None,
            };
            entry.flags |= match need {
                Need::Nothing => 0,
                _ => link_flags::RP_BEHIND,
            };
            let back = way.and_then(|way| {
                let back = self
                    .v4
                    .view_back(&self.state, link, &mut self.groups, &at)?;
                Some((way, back))
            });
            match back {
                Some((way, (table, count))) => {
                    built += count;
                    entry.flags |= link_flags::WAY_BACK;
                    (entry.back4, entry.way) = (table, way);
                }
                None if matches!(need, Need::Nothing | Need::Behind) => {}
                None => entry.flags |= link_flags::RP_FILTER,
            }
            match self
                .v6
                .table_for(&self.state, 6, link, &self.state.v6, &mut self.groups, &at)
            {
                Some((table, count)) => {
                    built += count;
                    entry.table6 = table;
                }
                None => entry.flags |= link_flags::RULES6,
            }
            self.guards.write(link.index, &mut entry);
            wanted.insert(link.index, entry);
        }
        let leads = upper.steps_to(|index| wanted.contains_key(&index));
        built += self.lead_rules();
        self.publish_steps(wanted, leads);
        built
    }

    /// Writes the entries of links, and the steps that lead to them. What they lead from is numbered before, and forgotten after.
    fn publish_steps(&mut self, wanted: HashMap<u32, LinkEntry>, leads: Leads) {
        let bridges = &self.state.bridges;
        let (learnt, memory) = (&mut self.learnt, &self.memory);
        let steps = learnt.number(leads, bridges, memory, &*self.grace);
        let asked = steps.len();
        let used: HashSet<u16> = steps.values().map(|step| step.learnt).collect();
        self.write_links(wanted, steps);
        self.upon.without_room = asked - self.upon.steps.len();
        let (bridges, memory) = (&self.state.bridges, &self.memory);
        self.learnt.retire(&used, bridges, memory);
    }

    /// Makes the views of packets that rules ask for, where the ranges of those have changed: links are closed then. Returns how
    /// many entries that took.
    fn lead_rules(&mut self) -> usize {
        if !self.guards.leads_nowhere {
            return 0;
        }
        let at = publish!(self);
        let [of4, of6] = &self.guards.rules.kept;
        let v4 = self.v4.views_of(of4, &self.state.v4, &mut self.groups, &at);
        let v6 = self.v6.views_of(of6, &self.state.v6, &mut self.groups, &at);
        let built = v4.iter().chain(&v6).flatten().map(|(_, count)| count).sum();
        let tables = |made: Vec<Option<(u32, usize)>>| {
            let tables = made.into_iter().map(|made| made.map(|(table, _)| table));
            tables.collect()
        };
        let [v4, v6] = [v4, v6].map(tables);
        self.guards.lead([v4, v6]);
        self.memory.store_ranges(&self.guards.ranges);
        built
    }

    /// Publishes what [`Rib::set_firewall`] says now, and nothing else: it takes effect at once, whatever waits to be gathered.
    /// [`Rib::commit`] is still to be called where [`Rib::is_dirty`] says so. Whether engines go by it now: other links
    /// ([`Rib::set_ports`]) are not published ahead of the rest, and it waits with them.
    #[must_use = "engines may go by what was found before"]
    pub fn commit_firewall(&mut self) -> bool {
        if !self.guards.is_changed() {
            return true;
        }
        if self.ports_changed {
            return false;
        }
        let mut wanted = self.links.clone();
        wanted.retain(is_own);
        let closes = self.guards.follow(&self.ports, wanted.keys().copied());
        for (index, entry) in &mut wanted {
            Guards::clear(entry);
            self.guards.write(*index, entry);
        }
        if closes {
            self.close_links();
            self.memory.store_ranges(&self.guards.ranges);
            let at = publish!(self);
            let adjacencies = self.groups.adjacencies.all();
            self.groups.adjacencies.refresh(&adjacencies, &at);
        }
        // What links are now is published with them.
        let mut steps = self.upon.steps.clone();
        steps.retain(|_, to| {
            wanted.contains_key(&to.index) || self.upon.carriers.contains_key(&to.index)
        });
        self.write_links(wanted, steps);
        true
    }

    /// Writes the entries that are others than those of the image, and which links are upon which: `steps`.
    ///
    /// A member of a bond has the bond's: what comes in by it is taken to come in by the bond, as the kernel does
    /// (`bond_handle_frame`).
    ///
    /// No step leads to a link before its entry is complete, and none does any more when its entry becomes another's. Nor does a reader
    /// that has taken an outdated step take any of those that replace it.
    fn write_links(&mut self, mut wanted: HashMap<u32, LinkEntry>, steps: Steps) {
        let passed_on = self.number_links(&mut wanted);
        let mut carriers = Ways::carriers(&self.state, &steps, &mut wanted);
        for (index, entry) in &mut carriers {
            if self
                .state
                .links
                .get(index)
                .is_some_and(|link| link.tunnel.is_some())
            {
                self.guards.write_port(*index, entry);
            }
        }
        for (member, mac, bond) in self.state.bond_members() {
            if let Some(&entry) = wanted.get(&bond) {
                wanted.insert(member, LinkEntry { mac, ..entry });
            } else if let Some(&entry) = carriers.get(&bond)
                && !wanted.contains_key(&member)
            {
                carriers.insert(member, LinkEntry { mac, ..entry });
            }
        }
        let before = |index: &u32| {
            let carriers = &self.upon.carriers;
            self.links.get(index).or_else(|| carriers.get(index))
        };
        let is_gone = |index: &&u32| !wanted.contains_key(index) && !carriers.contains_key(index);
        let known = self.links.keys().chain(self.upon.carriers.keys());
        let gone = known.filter(is_gone).map(|i| (*i, LinkEntry::default()));
        let counts_anew = |entry: &LinkEntry| {
            entry.flags & link_flags::ENABLED != 0 && passed_on.contains(&entry.slot)
        };
        let changed: Vec<(u32, LinkEntry)> = wanted
            .iter()
            .chain(&carriers)
            .map(|(index, entry)| (*index, *entry))
            .filter(|(index, entry)| before(index) != Some(entry) || counts_anew(entry))
            .chain(gone)
            .collect();
        let leads = |steps: &Steps, step: &(u32, Upon), to: Step| steps.get(step) == Some(&to);
        let known = self.upon.steps.iter().map(|(step, to)| (*step, *to));
        let outdated = known.filter(|(step, to)| !leads(&steps, step, *to));
        let outdated: Vec<(u32, Upon)> = outdated.map(|(step, _)| step).collect();
        for (lower, upon) in &outdated {
            // To take one out needs no room.
            let _ = self.memory.store_step(*lower, *upon, None);
        }
        for (index, _) in &changed {
            let word = *index as usize * (size_of::<LinkEntry>() / 8);
            self.memory.links.words()[word].store(0, Ordering::Release);
        }
        let was_there = |(index, _): &(u32, LinkEntry)| before(index).is_some();
        if !passed_on.is_empty() || !outdated.is_empty() || changed.iter().any(was_there) {
            // Whoever saw the old flags, or went by an old tag, has to be done before the rest changes, lest a packet is
            // looked up in a table that was never its own, or counted for another link.
            (self.grace)();
        }
        for slot in passed_on {
            (self.forget_received)(slot);
        }
        for (index, entry) in &changed {
            self.memory.store_link(*index, entry);
        }
        let stored = steps.into_iter().filter(|(step, to)| {
            let (lower, upon) = *step;
            leads(&self.upon.steps, step, *to)
                || self.memory.store_step(lower, upon, Some(*to)).is_ok()
        });
        self.upon.steps = stored.collect();
        self.upon.carriers = carriers;
        self.links = wanted;
    }

    /// Has engines forward from no link, until [`Rib::publish_links`] writes them anew.
    pub(super) fn close_links(&mut self) {
        let entries = self.links.iter_mut().chain(&mut self.upon.carriers);
        let mut any = false;
        for (index, entry) in entries {
            let word = *index as usize * (size_of::<LinkEntry>() / 8);
            self.memory.links.words()[word].store(0, Ordering::Release);
            entry.flags = 0;
            any = true;
        }
        if any {
            (self.grace)();
        }
    }

    /// Gives each link a counter slot: the one that it had, else the one of its index, else a free
    /// one. Links share one only where there are more links than slots. Says which slots pass from a link that has
    /// gone to another, or to the same under another name: what they have counted was the other's.
    fn number_links(&mut self, wanted: &mut HashMap<u32, LinkEntry>) -> Vec<u32> {
        let mut passed_on = Vec::new();
        let own = |index: &u32| self.links.get(index).filter(|entry| entry.index == *index);
        let known = |index: &u32| own(index).map(|entry| entry.slot);
        let mut used: HashSet<u32> = wanted.keys().filter_map(known).collect();
        let mut indices: Vec<u32> = wanted.keys().copied().collect();
        indices.sort_unstable();
        for index in indices {
            let slot = known(&index).unwrap_or_else(|| {
                let own = index % LINK_COUNTERS as u32;
                std::iter::once(own)
                    .chain(0..LINK_COUNTERS as u32)
                    .find(|slot| !used.contains(slot))
                    .unwrap_or(own)
            });
            let is_first = used.insert(slot);
            let name = self.state.links.get(&index).map(|link| &*link.name);
            let owner = (index, name.unwrap_or_default().to_owned());
            let last = self.slot_owners.insert(slot, owner.clone());
            let passes = |(last, called): (u32, String)| match known(&index) {
                Some(_) => last == index && called != owner.1,
                None => is_first && (last, called) != owner,
            };
            if last.is_some_and(passes) {
                passed_on.push(slot);
            }
            if let Some(entry) = wanted.get_mut(&index) {
                entry.slot = slot;
            }
        }
        passed_on
    }
}

/// Whether an entry is the link's own, and not that of the bond that it is a member of.
fn is_own(index: &u32, entry: &mut LinkEntry) -> bool {
    entry.index == *index
}

/// The entry of a link that engines forward from, without tables and counter slot; none for others.
fn link_entry(state: &State, ports: &Ports, link: &Link) -> Option<LinkEntry> {
    if !ports.enabled.contains(&link.index) || link.index as usize >= MAX_LINKS {
        return None;
    }
    let settings = state.input_settings(link);
    let mut flags = link_flags::ENABLED;
    for (on, flag) in [
        (settings.forwarding4, link_flags::FORWARD4),
        (settings.forwarding6, link_flags::FORWARD6),
        (settings.accept_local, link_flags::ACCEPT_LOCAL),
        (settings.seg6_require_hmac > 0, link_flags::HMAC_REQUIRED),
        (settings.seg6_require_hmac < 0, link_flags::HMAC_IGNORED),
    ] {
        if on {
            flags |= flag;
        }
    }
    let mac = own_mac(link)?;
    Some(LinkEntry {
        flags,
        mac,
        index: link.index,
        ..LinkEntry::default()
    })
}
