//! How frames leave that are sent by a link: by which link below it, with which tags, and how long they may be.

use std::collections::{BTreeSet, HashSet};

use raddle_image::{MAX_TAGS, Reason, TAG, Vlan};

use crate::event::{Bridge, Link};
use crate::state::{FdbKey, State};
use crate::vlan::{Below, below};

/// How the frames of a link leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Egress {
    /// The link that they leave by: itself, the one below its VLANs, or the one below a port of its bridge.
    pub lower: u32,
    /// The port of a bridge that they leave by, where they pass one: `lower`, or a VLAN upon it.
    pub port: Option<u32>,
    /// Their tags there, the outermost first: [`MAX_TAGS`] at most.
    pub tags: Vec<Vlan>,
    /// The longest packet, in bytes, that all links on the way take.
    pub room: u32,
}

impl Egress {
    /// Whether these are links that frames may leave by so: the lowest, and the port of the bridge, on which there may be something that
    /// concerns what leaves by it.
    pub(crate) fn leaves_by_any_of(&self, out: &BTreeSet<u32>) -> bool {
        out.contains(&self.lower) && self.port.is_none_or(|port| out.contains(&port))
    }
}

/// What is below a link, as far as a bridge: the link itself where nothing is.
struct Way<'a> {
    base: &'a Link,
    /// The outermost first.
    tags: Vec<Vlan>,
    /// The least MTU of the link and of all above `base`.
    mtu: u32,
}

/// `MACVLAN_MODE_PRIVATE` and `MACVLAN_MODE_VEPA`: what is sent by these leaves by the lower link always (`macvlan_queue_xmit`).
const ALWAYS_OUT: [u32; 2] = [1, 2];

impl State {
    /// How frames to a MAC address leave that are sent by a link; and which entry of an FDB that hangs on, if any, whether it is there
    /// or not. Without a MAC address, what does not hang on it.
    ///
    /// 1. The VLANs on the way are known ([`below`]), up and with carrier, and give no priorities to tags (`egress-qos-map`): those of
    ///    an adjacency are the same for all packets. So is the link below them up, with carrier, and Ethernet.
    /// 2. A macvlan: it is `private` or `vepa`, there is no other and no bridge below it, and nothing upon it: as its lower link does.
    ///    In mode `bridge` another one may be meant, even in another namespace.
    /// 3. A bridge, or a VLAN upon one: rules of [`State::asked_on`] and [`State::by_port`].
    /// 4. A packet leaves by the lower link with all its tags, and that takes its MTU and one tag more (`xdp_ok_fwd_dev`).
    ///
    /// # Errors
    /// [`Reason::Unresolved`] where no port is known for the MAC address, [`Reason::OutLink`] for everything else.
    pub(crate) fn egress(
        &self,
        link: &Link,
        mac: Option<[u8; 6]>,
    ) -> (Option<FdbKey>, Result<Egress, Reason>) {
        let Some(way) = self.way_down(link) else {
            return (None, Err(Reason::OutLink));
        };
        let Some(bridge) = way.base.bridge else {
            return (None, plain(&way, way.tags.clone()).ok_or(Reason::OutLink));
        };
        let Some(vlan) = self.asked_on(&way, bridge) else {
            return (None, Err(Reason::OutLink));
        };
        let Some(mac) = mac else {
            return (None, Err(Reason::Unresolved));
        };
        let key = (way.base.index, vlan, mac);
        (Some(key), self.by_port(&way, bridge, key))
    }

    /// Rules 1 and 2 of [`State::egress`].
    fn way_down<'a>(&'a self, link: &'a Link) -> Option<Way<'a>> {
        let Some(macvlan) = link.macvlan else {
            return self.way_by_vlans(link);
        };
        let lower = link.lower.filter(|_| link.lower_netns.is_none())?;
        let fits = is_macvlan(link) && ALWAYS_OUT.contains(&macvlan.mode) && lives(link);
        let way = self.way_by_vlans(self.links.get(&lower).filter(|_| fits)?)?;
        way.base.bridge.is_none().then_some(Way {
            mtu: way.mtu.min(link.mtu),
            ..way
        })
    }

    fn way_by_vlans<'a>(&'a self, link: &'a Link) -> Option<Way<'a>> {
        let by_index = |index: u32| self.links.get(&index);
        let below = match link.is_vlan() {
            true => below(link, by_index)?,
            false => Below {
                lower: link.index,
                through: Vec::new(),
            },
        };
        let mut mtu = link.mtu;
        for (index, _) in &below.through {
            let vlan = by_index(*index).filter(|vlan| lives(vlan))?;
            if vlan.vlan.is_none_or(|vlan| vlan.egress_qos) {
                return None;
            }
            mtu = mtu.min(vlan.mtu);
        }
        let base = by_index(below.lower).filter(|base| lives(base) && base.is_ethernet())?;
        let tags = below.tags().collect();
        let knows = base.macvlan.is_none() && (base.bridge.is_some() || !is_bridge(base));
        knows.then_some(Way { base, tags, mtu })
    }

    /// In which VLAN a bridge looks for the MAC address of what is sent by itself or by a VLAN upon it (`br_dev_xmit`,
    /// `br_allowed_ingress`); none where it drops that, or where it is not known.
    ///
    /// 1. It does nothing that engines do not.
    /// 2. It does not filter VLANs: in none (0), whatever the tags are.
    /// 3. Without a tag: in the bridge's own PVID. With one of the bridge's protocol and an identifier: in that. (One of another
    ///    protocol is none to the bridge, as is one without an identifier: these are the kernel's.)
    /// 4. The bridge itself is in that VLAN, and it forwards there.
    fn asked_on(&self, way: &Way<'_>, bridge: Bridge) -> Option<u16> {
        if bridge.is_special {
            return None;
        }
        if !bridge.filters_vlans {
            return Some(0);
        }
        let own = way.base.index;
        let id = match way.tags.first() {
            None => self.pvid_of(own)?,
            Some(tag) => Some(tag.id).filter(|id| Vlan::of(bridge.protocol, *id) == Some(*tag))?,
        };
        let vlan = self.bridges.vlan(own, id).filter(|_| id != 0)?;
        vlan.forwards().then_some(id)
    }

    /// The VLAN of what comes without a tag by a port, or is sent so by a bridge.
    pub(crate) fn pvid_of(&self, index: u32) -> Option<u16> {
        let mut vlans = self.bridges.vlans_of(index);
        vlans.find(|vlan| vlan.pvid).map(|vlan| vlan.id)
    }

    /// By which port of a bridge, and how (`br_forward`, `should_deliver`, `br_handle_vlan`):
    ///
    /// 1. The bridge has an entry for the MAC address in that VLAN, which is neither its own address nor special.
    /// 2. Its port is usable, see [`State::port_of`], and rules 1 and 4 of [`State::egress`] hold for it. A bridge or a macvlan is
    ///    neither the port nor below it.
    /// 3. Where the bridge filters VLANs, the port is in this one and forwards there; the tag is put in unless it is `untagged` at
    ///    the port, before those that come from above. Then come the port's own tags, if it is a VLAN.
    fn by_port(&self, way: &Way<'_>, bridge: Bridge, key: FdbKey) -> Result<Egress, Reason> {
        let (own, id, mac) = key;
        let entry = self.bridges.entry(own, id, mac).ok_or(Reason::Unresolved)?;
        let tags_at_port = || match bridge.filters_vlans {
            false => Some(way.tags.clone()),
            true => {
                let at_port = self.bridges.vlan(entry.port, id)?;
                let tag = Vlan::of(bridge.protocol, id).filter(|_| at_port.forwards())?;
                let inner = way.tags.iter().skip(1).copied();
                let tag = Some(tag).filter(|_| !at_port.untagged);
                Some(tag.into_iter().chain(inner).collect())
            }
        };
        let leave = || {
            let port = self.port_of(own, entry.port)?;
            let below = self.way_by_vlans(port)?;
            let outer = below.tags.iter().copied();
            let tags = outer.chain(tags_at_port()?).collect();
            let egress = plain(&below, tags).filter(|_| below.base.bridge.is_none())?;
            Some(Egress {
                port: Some(port.index),
                room: egress.room.min(way.mtu),
                ..egress
            })
        };
        let usable = !entry.local && !entry.is_special;
        leave().filter(|_| usable).ok_or(Reason::OutLink)
    }

    /// A port of a bridge that takes and sends all frames (`br_handle_frame`, `should_deliver`): it is up, in the state `forwarding`,
    /// does nothing that engines do not, and is neither a bridge nor a macvlan.
    pub(crate) fn port_of(&self, bridge: u32, index: u32) -> Option<&Link> {
        let link = self.links.get(&index)?;
        let is_simple = !is_bridge(link) && link.macvlan.is_none();
        let port = link.port.filter(|port| port.forwards() && !port.is_special);
        let fits = link.master == Some(bridge) && link.is_up() && is_simple;
        (fits && port.is_some()).then_some(link)
    }

    /// Whether any of these entries is one for the MAC address of a bridge, on which hangs what it takes itself.
    pub(crate) fn is_about_bridges(&self, entries: &HashSet<FdbKey>) -> bool {
        let own = |bridge: &u32| self.links.get(bridge).and_then(|link| link.mac);
        let mut entries = entries.iter();
        entries.any(|(bridge, _, mac)| own(bridge) == Some(*mac))
    }

    /// These links, and what is upon them: VLANs, macvlans, bridges that they are ports of, and bonds that they are members of. What changes of a link changes how
    /// these send.
    pub(crate) fn with_above(&self, links: &BTreeSet<u32>) -> BTreeSet<u32> {
        let mut all = links.clone();
        let mut last = links.clone();
        while !last.is_empty() {
            let above = |link: &Link| {
                let is_upon = link.is_vlan() || link.macvlan.is_some();
                let own = link.lower.filter(|lower| is_upon && last.contains(lower));
                let master = link.master.filter(|_| last.contains(&link.index));
                let passes = |link: &Link| is_bridge(link) || link.bond.is_some();
                let master = master.filter(|index| self.links.get(index).is_some_and(passes));
                [own.map(|_| link.index), master].into_iter().flatten()
            };
            let above: BTreeSet<u32> = self.links.values().flat_map(above).collect();
            last = above.difference(&all).copied().collect();
            all.extend(&last);
        }
        all
    }
}

/// Rule 4 of [`State::egress`]; none with more than [`MAX_TAGS`] tags.
fn plain(way: &Way<'_>, tags: Vec<Vlan>) -> Option<Egress> {
    let tag = TAG as u32;
    let room = way.base.mtu.saturating_add(tag);
    let room = room.saturating_sub(tag * tags.len() as u32);
    (tags.len() <= MAX_TAGS).then_some(Egress {
        lower: way.base.index,
        port: None,
        room: room.min(way.mtu),
        tags,
    })
}

fn lives(link: &Link) -> bool {
    link.is_up() && link.has_carrier()
}

/// A bridge, also one of which nothing else is told.
pub(crate) fn is_bridge(link: &Link) -> bool {
    link.bridge.is_some() || link.kind.as_deref() == Some("bridge")
}

/// A macvlan, and no `macvtap`, whose frames are nobody's here.
pub(crate) fn is_macvlan(link: &Link) -> bool {
    link.macvlan.is_some() && link.kind.as_deref() == Some("macvlan")
}
