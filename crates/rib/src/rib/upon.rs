//! VLANs upon links: by which link frames with tags come in.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::event::Link;
use crate::state::State;
use crate::vlan::below;
use raddle_image::{LinkEntry, MAX_LINKS, Vlan, link_flags};

/// What a frame has a tag of, and the link that it is taken to come in by then.
pub(super) type Steps = BTreeMap<(u32, Vlan), u32>;

/// What the image says of VLANs.
#[derive(Debug, Default)]
pub(super) struct Upon {
    /// Entries of links that engines do not forward from, but that frames of VLANs pass which they do forward from. They have no
    /// other flag than [`link_flags::VLANS`].
    pub(super) carriers: HashMap<u32, LinkEntry>,
    /// Those that [`raddle_image::Memory::vlan`] knows. What there was no room for is tried again whenever links are published; the
    /// kernel has its frames meanwhile.
    pub(super) steps: Steps,
}

impl Upon {
    /// Marks the entries of links that have VLANs upon them, and makes those that there are none of.
    pub(super) fn carriers(
        state: &State,
        steps: &Steps,
        wanted: &mut HashMap<u32, LinkEntry>,
    ) -> HashMap<u32, LinkEntry> {
        for entry in wanted.values_mut() {
            entry.flags &= !link_flags::VLANS;
        }
        let mut carriers = HashMap::new();
        for (lower, _) in steps.keys() {
            if let Some(entry) = wanted.get_mut(lower) {
                entry.flags |= link_flags::VLANS;
                continue;
            }
            let mac = state.links.get(lower).and_then(|link| link.mac);
            let entry = LinkEntry {
                flags: link_flags::VLANS,
                mac: mac.unwrap_or_default(),
                index: *lower,
                ..LinkEntry::default()
            };
            carriers.insert(*lower, entry);
        }
        carriers
    }
}

impl State {
    /// The steps that lead to these links, as far as they are VLANs (`vlan_do_receive`):
    ///
    /// 1. Engines know what is below it, see [`below`], and have room for it by its index.
    /// 2. All VLANs on the way are up: what comes in by one that is not the kernel drops.
    /// 3. No link on the way is part of a bond. What comes in by one is the bond's for engines, and by a backup it is nobody's;
    ///    the kernel looks for VLANs upon the part first.
    /// 4. For that reason, if the link below is a bond, there is no VLAN upon a part of it.
    /// 5. None of the links that it is upon has a VLAN 0 upon it, or one of which the number is not known. Engines take a tag with 0
    ///    that leads nowhere for one that has a priority only, and such a VLAN may lead nowhere for other reasons.
    pub(super) fn steps_to(&self, is_wanted: impl Fn(u32) -> bool) -> Steps {
        let by_index = |index: u32| self.links.get(&index);
        let bond_of = |link: &Link| {
            let master = link.master.and_then(by_index)?;
            (master.kind.as_deref() == Some("bond")).then_some(master.index)
        };
        let vlans = self.links.values().filter(|link| link.is_vlan());
        let here = vlans.clone().filter(|vlan| vlan.lower_netns.is_none());
        let upon = here.clone().filter_map(|vlan| by_index(vlan.lower?));
        let bonds: BTreeSet<u32> = upon.filter_map(bond_of).collect();
        let zero = here.filter(|link| link.vlan.is_none_or(|vlan| vlan.id == 0));
        let with_zero: BTreeSet<u32> = zero.filter_map(|vlan| vlan.lower).collect();
        let passes = |index: u32| {
            let link = by_index(index).filter(|link| bond_of(link).is_none());
            link.filter(|_| (index as usize) < MAX_LINKS)
        };
        let mut all = Steps::new();
        for link in vlans.filter(|link| is_wanted(link.index)) {
            let Some(below) = below(link, by_index) else {
                continue;
            };
            if passes(below.lower).is_none() || bonds.contains(&below.lower) {
                continue;
            }
            let mut lower = below.lower;
            let steps = below.through.iter().map(|(index, vlan)| {
                let leads = passes(*index).is_some_and(Link::is_up) && !with_zero.contains(&lower);
                let step = leads.then_some(((lower, *vlan), *index));
                lower = *index;
                step
            });
            let steps: Option<Vec<_>> = steps.collect();
            all.extend(steps.into_iter().flatten());
        }
        all
    }
}
