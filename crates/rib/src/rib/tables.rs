//! The tables that packets are looked up in: one view for each set of rules that links have, and one for
//! each single table that SIDs look in; and those that outer packets of tunnels are looked up in.

use std::collections::HashSet;
use std::net::IpAddr;

use super::Rib;
use crate::adjacency::Publish;
use crate::event::Link;
use crate::groups::Groups;
use crate::guards::RuleRange;
use crate::lpm::Lpm;
use crate::prefix::Addr;
use crate::rules::{Lookup, lookup_apart};
use crate::state::{Changed, Family, State};
use crate::view::View;
use raddle_image::{LinkEntry, link_flags};

/// The views of one family and the tables that they live in.
pub(super) struct Side<A, L> {
    pub(super) lpm: L,
    pub(super) views: Vec<View<A, L>>,
}

impl Rib {
    /// Brings all views up to date; `hosts` are those of which more than routes has changed.
    pub(super) fn publish_tables(&mut self, mut hosts: Vec<IpAddr>, direct_changed: bool) -> usize {
        let at = publish!(self);
        // Those that changed, also where all are looked at: of the ones that went the state knows
        // nothing any more.
        if direct_changed {
            hosts.extend(self.state.neighbours.keys().map(|(ip, _)| *ip));
        }
        let mut entries = 0;
        for view in &mut self.v4.views {
            entries += view.update(
                &mut self.v4.lpm,
                &mut self.groups,
                &self.state.v4,
                &hosts,
                &at,
            );
        }
        for view in &mut self.v6.views {
            entries += view.update(
                &mut self.v6.lpm,
                &mut self.groups,
                &self.state.v6,
                &hosts,
                &at,
            );
        }
        self.state.v4.changed = Changed::default();
        self.state.v6.changed = Changed::default();
        entries
    }

    /// Makes the views of single tables that SIDs look in, and those that outer packets of tunnels are looked up in, until none leads to a
    /// SID or a tunnel that wants another. Returns how many entries that took.
    pub(super) fn make_segment_tables(&mut self) -> usize {
        let at = publish!(self);
        self.groups.segments.tables.v4.tidy();
        self.groups.segments.tables.v6.tidy();
        self.groups.adjacencies.tables.tidy();
        let mut entries = 0;
        loop {
            let outer = self.groups.adjacencies.tables.missing();
            let is_tunnel = !outer.is_empty();
            for lookup in outer {
                let family = &self.state.v4;
                let made = self
                    .v4
                    .view_of(lookup.clone(), family, &mut self.groups, &at);
                entries += made.map_or(0, |(_, count)| count);
                let tables = &mut self.groups.adjacencies.tables;
                tables.set(lookup, made.map(|(id, _)| id));
            }
            if is_tunnel {
                let tunnels = self.groups.adjacencies.by_tunnels();
                self.groups.adjacencies.refresh(&tunnels, &at);
            }
            let tables = &self.groups.segments.tables;
            let (missing4, missing6) = (tables.v4.missing(), tables.v6.missing());
            if missing4.is_empty() && missing6.is_empty() {
                if is_tunnel {
                    continue;
                }
                break;
            }
            for table in missing4 {
                let family = &self.state.v4;
                let made = self
                    .v4
                    .view_of(table.clone(), family, &mut self.groups, &at);
                entries += made.map_or(0, |(_, count)| count);
                let tables = &mut self.groups.segments.tables.v4;
                tables.set(table, made.map(|(id, _)| id));
            }
            for table in missing6 {
                let family = &self.state.v6;
                let made = self
                    .v6
                    .view_of(table.clone(), family, &mut self.groups, &at);
                entries += made.map_or(0, |(_, count)| count);
                let tables = &mut self.groups.segments.tables.v6;
                tables.set(table, made.map(|(id, _)| id));
            }
            let segments = self.groups.segments.with_tables();
            self.groups.segments.refresh(&segments, &at);
        }
        entries
    }

    /// Drops the views that no link, SID or tunnel looks in any more. One that goes may have held
    /// the last SID or tunnel that looked in another.
    pub(super) fn drop_unused_tables(&mut self) {
        let at = publish!(self);
        let of_links = |rules: u32, table: fn(&LinkEntry) -> u32| -> HashSet<u32> {
            let entries = self.links.values();
            let looks = entries.filter(|entry| entry.flags & rules == 0);
            looks.map(table).collect()
        };
        let mut of_links4 = of_links(link_flags::RULES4, |entry| entry.table4);
        let wants_back = |entry: &&LinkEntry| entry.flags & link_flags::WAY_BACK != 0;
        let backs = self.links.values().filter(wants_back);
        of_links4.extend(backs.map(|entry| entry.back4));
        let mut of_links6 = of_links(link_flags::RULES6, |entry| entry.table6);
        let [of_rules4, of_rules6] = &self.guards.tables;
        of_links4.extend(of_rules4);
        of_links6.extend(of_rules6);
        loop {
            let tables = &mut self.groups.segments.tables;
            tables.v4.tidy();
            tables.v6.tidy();
            let outer = &mut self.groups.adjacencies.tables;
            outer.tidy();
            let mut keep4 = of_links4.clone();
            keep4.extend(tables.v4.views());
            keep4.extend(outer.views());
            let mut keep6 = of_links6.clone();
            keep6.extend(tables.v6.views());
            if self.v4.all_in(&keep4) && self.v6.all_in(&keep6) {
                return;
            }
            // Whoever has seen a SID that is gone may still be on the way to its table.
            (at.grace)();
            self.v4.drop_unused(&keep4, &mut self.groups, &at);
            self.v6.drop_unused(&keep6, &mut self.groups, &at);
        }
    }
}

impl<A: Addr, L: Lpm<A>> Side<A, L> {
    /// The table in which packets from `link` are looked up, made if need be, and how many entries
    /// that took. None when rules decide by what engines do not look at, or there is no table left.
    pub(super) fn table_for(
        &mut self,
        state: &State,
        family_number: u8,
        link: &Link,
        family: &Family<A>,
        groups: &mut Groups,
        at: &Publish<'_>,
    ) -> Option<(u32, usize)> {
        let apart = lookup_apart(&state.rules, family_number, state.arrival(link)).ok()?;
        self.view_of(apart.lookup, family, groups, at)
    }

    /// The view of this look-up, made if need be, and how many entries that took. None when there is no
    /// table left.
    pub(super) fn view_of(
        &mut self,
        lookup: Lookup,
        family: &Family<A>,
        groups: &mut Groups,
        at: &Publish<'_>,
    ) -> Option<(u32, usize)> {
        if let Some(view) = self.views.iter().find(|view| view.lookup == lookup) {
            return Some((view.id.index(), 0));
        }
        let id = self.lpm.create_table(self.views.is_empty()).ok()?;
        let mut view = View::new(lookup, id);
        let built = view.rebuild(&mut self.lpm, groups, family, at);
        self.views.push(view);
        Some((id.index(), built))
    }

    /// The views of packets that rules ask for, as [`Side::view_of`]; none for what is the kernel's.
    pub(super) fn views_of(
        &mut self,
        ranges: &[RuleRange],
        family: &Family<A>,
        groups: &mut Groups,
        at: &Publish<'_>,
    ) -> Vec<Option<(u32, usize)>> {
        let lookups = ranges.iter().map(|range| range.lookup.clone());
        lookups
            .map(|lookup| self.view_of(lookup?, family, groups, at))
            .collect()
    }

    fn all_in(&self, keep: &HashSet<u32>) -> bool {
        self.views
            .iter()
            .all(|view| keep.contains(&view.id.index()))
    }

    fn drop_unused(&mut self, keep: &HashSet<u32>, groups: &mut Groups, at: &Publish<'_>) {
        for i in (0..self.views.len()).rev() {
            if !keep.contains(&self.views[i].id.index()) {
                self.views.swap_remove(i).clear(&mut self.lpm, groups, at);
            }
        }
    }
}
