//! Links upon links: by which link frames come in that are not the lower link's own.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::learnt::Place;
use crate::egress::{is_bridge, is_macvlan};
use crate::event::{Link, Macvlan, PortVlan};
use crate::state::State;
use crate::tunnels::own_mac;
use crate::vlan::below;
use raddle_image::{LinkEntry, MAX_LINKS, Step, Upon, Vlan, link_flags};

/// Frames of a link, and what they are taken to come in by. A step from a port of a bridge has the number of a place where sources have
/// to be learnt, and no other step has one.
pub(super) type Steps = BTreeMap<(u32, Upon), Step>;

/// The same with the place itself, instead of its number.
pub(super) type Leads = BTreeMap<(u32, Upon), (Step, Option<Place>)>;

/// What the image says of links upon links.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// Entries of links that engines do not forward from, but that frames pass which they do forward. They have no flags but those that
    /// say so: [`link_flags::VLANS`], [`link_flags::PORT`], [`link_flags::MACVLANS`]; tunnels may have [`link_flags::NO_TUNNELS`].
    pub(super) carriers: HashMap<u32, LinkEntry>,
    /// Those that [`raddle_image::Memory::step`] knows.
    pub(super) steps: Steps,
    /// How many steps there was no room for when links were published last. They are tried again with the next links; the kernel has
    /// their frames meanwhile.
    pub(super) without_room: usize,
}

/// Flags of links that frames pass.
const PASSED: u32 = link_flags::VLANS | link_flags::PORT | link_flags::MACVLANS;

impl Ways {
    /// Marks the entries of links that steps lead from, and makes those that there are none of.
    pub(super) fn carriers(
        state: &State,
        steps: &Steps,
        wanted: &mut HashMap<u32, LinkEntry>,
    ) -> HashMap<u32, LinkEntry> {
        for entry in wanted.values_mut() {
            entry.flags &= !PASSED;
        }
        let mut carriers = HashMap::new();
        for ((lower, upon), step) in steps {
            let flag = match upon {
                _ if step.learnt != 0 => link_flags::PORT,
                Upon::Mac(_) => link_flags::MACVLANS,
                _ => link_flags::VLANS,
            };
            if let Some(entry) = wanted.get_mut(lower) {
                entry.flags |= flag;
                continue;
            }
            let entry = carriers.entry(*lower).or_insert_with(|| {
                let mac = state.links.get(lower).and_then(|link| link.mac);
                LinkEntry {
                    mac: mac.unwrap_or_default(),
                    index: *lower,
                    ..LinkEntry::default()
                }
            });
            entry.flags |= flag;
        }
        carriers
    }
}

/// `MACVLAN_MODE_PRIVATE`, `MACVLAN_MODE_VEPA` and `MACVLAN_MODE_BRIDGE`: each takes the frames to its own MAC address, and no other
/// (`macvlan_handle_frame`).
const BY_MAC: [u32; 3] = [1, 2, 4];

/// Who is asked for frames of a link, before it takes them itself.
pub(super) struct Upper<'a> {
    state: &'a State,
    /// Links with VLANs upon them.
    with_vlans: BTreeSet<u32>,
    /// Of these, those with a VLAN 0, or one of which the identifier is not known.
    with_zero: BTreeSet<u32>,
    /// Bonds of which a member has a VLAN upon it.
    over_vlans: BTreeSet<u32>,
    /// Macvlans by the link that they are upon.
    macvlans: BTreeMap<u32, Vec<(&'a Link, Macvlan)>>,
    /// Ports by the index of their bridge.
    ports: BTreeMap<u32, Vec<&'a Link>>,
}

impl<'a> Upper<'a> {
    pub(super) fn of(state: &'a State) -> Upper<'a> {
        let here = |link: &&Link| link.lower_netns.is_none();
        let vlans = || state.links.values().filter(|link| link.is_vlan());
        let with_vlans: BTreeSet<u32> = vlans().filter(here).filter_map(|of| of.lower).collect();
        let zero = vlans().filter(|link| link.vlan.is_none_or(|vlan| vlan.id == 0));
        let members = with_vlans.iter().filter_map(|of| state.links.get(of));
        let bonds = members.filter_map(|link| state.links.get(&link.master?));
        let bonds = bonds.filter(|master| master.kind.as_deref() == Some("bond"));
        let mut upper = Upper {
            state,
            with_zero: zero.filter(here).filter_map(|of| of.lower).collect(),
            over_vlans: bonds.map(|bond| bond.index).collect(),
            with_vlans,
            macvlans: BTreeMap::new(),
            ports: BTreeMap::new(),
        };
        for link in state.links.values() {
            if let (Some(macvlan), Some(lower)) = (link.macvlan, link.lower.filter(|_| here(&link)))
            {
                let of = upper.macvlans.entry(lower).or_default();
                of.push((link, macvlan));
            }
            if let Some(master) = link.master {
                upper.ports.entry(master).or_default().push(link);
            }
        }
        upper
    }

    /// Whether what comes to a link, and is not for a VLAN upon it, comes in by it: it is no port of a bridge, and no macvlan upon it
    /// is asked for that MAC address first.
    pub(super) fn takes_itself(&self, link: &Link) -> bool {
        let master = link.master.and_then(|of| self.state.links.get(&of));
        let is_port = link.port.is_some() || master.is_some_and(is_bridge);
        !is_port && own_mac(link).is_some_and(|mac| !self.hides(link.index, mac))
    }

    /// Whether a macvlan upon the link may take what is for this MAC address, or any frame (`macvlan_handle_frame`): another one has the
    /// address, or it is in mode `passthru` or `source`.
    fn hides(&self, lower: u32, mac: [u8; 6]) -> bool {
        let upon = self.macvlans.get(&lower);
        let takes = |(link, macvlan): &(&Link, Macvlan)| {
            !BY_MAC.contains(&macvlan.mode) || link.mac.is_none_or(|own| own == mac)
        };
        upon.into_iter().flatten().any(takes)
    }

    /// A link that frames to this MAC address can pass, or come in by:
    ///
    /// 1. Engines have room for it by its index.
    /// 2. It is part of nothing that takes its frames: no bond, no bridge, nothing but a VRF.
    /// 3. No VLAN 0 is upon it, nor one of which the identifier is not known: engines take a tag with 0 that leads nowhere for one that
    ///    has a priority only, and such a VLAN may lead nowhere for other reasons.
    /// 4. No macvlan upon it takes them, but the one that they are for.
    /// 5. If it is a bond, no VLAN is upon a member of it: the kernel would look for that first.
    fn passes(&self, index: u32, mac: [u8; 6]) -> Option<&'a Link> {
        let link = self.state.links.get(&index)?;
        let in_vrf = |master: u32| {
            let master = self.state.links.get(&master);
            master.is_some_and(|master| master.kind.as_deref() == Some("vrf"))
        };
        let free = (index as usize) < MAX_LINKS
            && link.master.is_none_or(in_vrf)
            && !self.with_zero.contains(&index)
            && !self.hides(index, mac)
            && !self.over_vlans.contains(&index);
        free.then_some(link)
    }

    /// The steps by tags that lead to a link, and what is below its VLANs (`vlan_do_receive`):
    ///
    /// 1. Engines know what is below it, see [`below`].
    /// 2. All VLANs on the way are up: what comes in by one that is not the kernel drops.
    /// 3. Frames to this MAC address pass all links on the way, see [`Upper::passes`], the VLAN itself among them; but a port of a
    ///    bridge only has to be a link with room.
    /// 4. So it is with the VLAN that it is upon, and that one's MAC address: the steps lead there, too.
    fn by_tags(&self, link: &'a Link, mac: [u8; 6], is_port: bool) -> Option<(&'a Link, Leads)> {
        let by_index = |index: u32| self.state.links.get(&index);
        if !link.is_vlan() {
            return Some((link, Leads::new()));
        }
        let below = below(link, by_index)?;
        let base = self.passes(below.lower, mac)?;
        let upon = by_index(link.lower?).filter(|upon| upon.is_vlan());
        if let Some(upon) = upon {
            self.by_tags(upon, upon.mac?, false)?;
        }
        let (mut lower, mut leads) = (below.lower, Leads::new());
        for (index, vlan) in below.through {
            let ends_here = is_port && index == link.index;
            match ends_here {
                true => (index as usize) < MAX_LINKS,
                false => self.passes(index, mac).is_some_and(Link::is_up),
            }
            .then_some(())?;
            let step = Step {
                index,
                is_port: ends_here,
                learnt: 0,
            };
            leads.insert((lower, Upon::Tag(vlan)), (step, None));
            lower = index;
        }
        Some((base, leads))
    }

    /// The steps that lead to these links from what is below them, as far as ports of bridges.
    ///
    /// 1. To a VLAN those by its tags; upon a bridge all VLANs on the way have the bridge's MAC address. (To other addresses of the
    ///    machine the bridge sends frames up, and to its ports as well.)
    /// 2. To a macvlan those of its lower link, and one by its MAC address.
    pub(super) fn steps_to(&self, is_wanted: impl Fn(u32) -> bool) -> Leads {
        let mut leads = Leads::new();
        let links = self.state.links.values();
        for link in links.clone().filter(|link| is_wanted(link.index)) {
            let Some(mac) = link.mac else {
                continue;
            };
            let more = match link.macvlan {
                Some(macvlan) => self.to_macvlan(link, macvlan, mac),
                None => self.to_vlan(link, mac),
            };
            leads.extend(more.into_iter().flatten());
        }
        for bridge in links {
            let more = self.by_ports(bridge, &leads, is_wanted(bridge.index));
            leads.extend(more.into_iter().flatten());
        }
        leads
    }

    fn to_vlan(&self, link: &'a Link, mac: [u8; 6]) -> Option<Leads> {
        let (base, leads) = self.by_tags(link, mac, false)?;
        let own = |index: u32| self.state.links.get(&index).and_then(|link| link.mac);
        let is_own = |(step, _): &(Step, Option<Place>)| own(step.index) == base.mac;
        let knows = match is_bridge(base) {
            true => leads.values().all(is_own),
            false => base.macvlan.is_none(),
        };
        knows.then_some(leads)
    }

    /// 1. Its mode is `private`, `vepa` or `bridge`, it is up, and part of nothing that takes its frames.
    /// 2. Below it is a link, or VLANs upon one, which is neither a bridge nor a macvlan, and has another MAC address.
    /// 3. No other macvlan there is the same to engines.
    fn to_macvlan(&self, link: &'a Link, macvlan: Macvlan, mac: [u8; 6]) -> Option<Leads> {
        let fits = is_macvlan(link) && BY_MAC.contains(&macvlan.mode) && link.is_up();
        let index = link.lower.filter(|_| fits && link.lower_netns.is_none())?;
        let lower = self.state.links.get(&index)?;
        let upon = self.macvlans.get(&index)?;
        let bits = |(link, _): &&(&Link, Macvlan)| link.mac.map(Upon::mac) == Some(Upon::mac(mac));
        let alone = upon.iter().filter(bits).count() == 1
            && upon.iter().all(|(_, of)| BY_MAC.contains(&of.mode))
            && lower.mac.is_some_and(|of| of != mac);
        self.passes(link.index, mac)?;
        // That it takes frames to its address is what is wanted: the lower link's own is asked about.
        let (base, mut leads) = self.by_tags(lower, lower.mac?, false)?;
        self.passes(index, lower.mac?)?;
        let is_plain = base.macvlan.is_none() && !is_bridge(base);
        let mut between = leads.keys();
        let seen = between.all(|(below, _)| !self.hides(*below, mac));
        let step = Step {
            index: link.index,
            ..Step::default()
        };
        leads.insert((index, Upon::mac(mac)), (step, None));
        (alone && is_plain && seen).then_some(leads)
    }

    /// The steps from the ports of a bridge, and to those that are VLANs (`br_handle_frame`, `br_handle_frame_finish`,
    /// `br_pass_frame_up`):
    ///
    /// 1. There is a use for them: what comes in by the bridge itself is forwarded, or by a VLAN upon it, by `leads`.
    /// 2. The bridge is up, does nothing that engines do not, frames to its MAC address pass it, see [`Upper::passes`], and that is an
    ///    address of the machine in this VLAN (`br_fdb_find_rcu` finds a local entry: else frames to it are bridged).
    /// 3. The port is usable, see [`State::port_of`], and no VLAN is upon it or upon a member of it, if it is a bond: these are asked
    ///    first. If it is a VLAN itself, there are steps to it, and no bridge below it.
    /// 4. Sources have to be known at the port: others the bridge would learn, or drop for what they are.
    fn by_ports(&self, bridge: &'a Link, leads: &Leads, is_wanted: bool) -> Option<Leads> {
        let set = bridge
            .bridge
            .filter(|set| !set.is_special && bridge.is_up())?;
        let mac = bridge.mac?;
        self.passes(bridge.index, mac)?;
        let upon = leads.range((bridge.index, FIRST)..=(bridge.index, LAST));
        let upon: BTreeMap<Upon, u32> = upon.map(|((_, of), (to, _))| (*of, to.index)).collect();
        let ends = self.ends_of(bridge, is_wanted, &upon)?;
        let is_own = |vlan: u16| {
            let entry = self.state.bridges.entry(bridge.index, vlan, mac);
            entry.is_some_and(|entry| entry.local && !entry.is_special)
        };
        let ends: Vec<End> = ends.into_iter().filter(|end| is_own(end.vlan)).collect();
        let mut all = Leads::new();
        for port in self.ports.get(&bridge.index)? {
            let Some(to_port) = self.to_port(bridge, port.index, mac) else {
                continue;
            };
            let mut any = false;
            for end in &ends {
                let place = Some((bridge.index, port.index, end.vlan));
                let step = Step {
                    index: end.index,
                    ..Step::default()
                };
                let of_port = self.state.bridges.vlan(port.index, end.vlan);
                for upon in frames_of(end, set.protocol, of_port).into_iter().flatten() {
                    all.insert((port.index, upon), (step, place));
                    any = true;
                }
            }
            all.extend(to_port.into_iter().filter(|_| any));
        }
        Some(all)
    }

    /// Where frames come to that a bridge sends up to itself (`br_pass_frame_up`, `br_handle_vlan`); none where that leads nowhere.
    ///
    /// 1. A bridge that filters no VLANs: to itself, with the tags that they have.
    /// 2. One that does: in each VLAN that the bridge itself is in, and forwards in. Where it is `untagged` there, to itself, and tags that
    ///    are left lead on from there.
    /// 3. Else with its tag, which is taken off at once: to the VLAN upon it.
    fn ends_of(
        &self,
        bridge: &Link,
        is_wanted: bool,
        upon: &BTreeMap<Upon, u32>,
    ) -> Option<Vec<End>> {
        let set = bridge.bridge?;
        let itself = Some(bridge.index).filter(|_| is_wanted || !upon.is_empty());
        if !set.filters_vlans {
            let (index, vlan) = (itself?, 0);
            return Some(vec![End { vlan, index }]);
        }
        let own = self.state.bridges.vlans_of(bridge.index);
        let end = |vlan: &PortVlan| {
            let tag = Upon::Tag(Vlan::of(set.protocol, vlan.id)?);
            let index = match vlan.untagged {
                true => itself?,
                false => *upon.get(&tag)?,
            };
            let vlan = vlan.id;
            Some(End { vlan, index })
        };
        let own = own.filter(|vlan| vlan.forwards() && vlan.id != 0);
        Some(own.filter_map(end).collect())
    }

    /// Rule 3 of [`Upper::by_ports`]: the steps to a port, which are none where it is no VLAN.
    fn to_port(&self, bridge: &Link, index: u32, mac: [u8; 6]) -> Option<Leads> {
        let port = self.state.port_of(bridge.index, index)?;
        let asked_first = self.with_vlans.contains(&index) || self.over_vlans.contains(&index);
        let fits = (index as usize) < MAX_LINKS && !asked_first;
        let (base, leads) = self.by_tags(port, mac, true).filter(|_| fits)?;
        let is_plain = base.macvlan.is_none() && !is_bridge(base);
        is_plain.then_some(leads)
    }
}

/// Where frames of a VLAN come to that a bridge sends up to itself; of all, with 0.
struct End {
    vlan: u16,
    index: u32,
}

/// Which frames of a port are in a VLAN of a bridge with this protocol (`br_allowed_ingress`): with 0 all, else those with its tag, and
/// if it is the port's PVID those without one; if the port is in it, and forwards there.
fn frames_of(end: &End, protocol: u16, of_port: Option<&PortVlan>) -> [Option<Upon>; 2] {
    if end.vlan == 0 {
        return [Some(Upon::All), None];
    }
    let Some(of_port) = of_port.filter(|vlan| vlan.forwards()) else {
        return [None; 2];
    };
    let tag = Vlan::of(protocol, end.vlan).map(Upon::Tag);
    [tag, Some(Upon::Untagged).filter(|_| of_port.pvid)]
}

/// The first and the last of all by which frames of a link are told apart.
const FIRST: Upon = Upon::Tag(Vlan {
    service: false,
    id: 0,
});
const LAST: Upon = Upon::Mac(u16::MAX);
