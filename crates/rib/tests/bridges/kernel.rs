//! What the kernel does with frames among links, one device after the other, the slow way.

use std::collections::{BTreeMap, HashMap, VecDeque};

use raddle_image::Vlan;
use raddle_rib::Rib;
use raddle_rib::event::{Bridge, FdbEntry, Link, PortVlan};

pub(super) type Mac = [u8; 6];

/// As many devices are on any way at most.
const MOST: usize = 20;

/// All that is told of links and bridges.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    pub(super) links: BTreeMap<u32, Link>,
    pub(super) fdb: HashMap<(u32, u16, Mac), FdbEntry>,
    pub(super) vlans: BTreeMap<(u32, u16), PortVlan>,
}

/// A frame in the kernel: on a device, with a tag beside it (`vlan_tci`), and tags in it.
struct Frame {
    at: u32,
    beside: Option<Vlan>,
    inside: VecDeque<Vlan>,
}

impl Frame {
    fn new(at: u32, tags: &[Vlan]) -> Frame {
        Frame {
            at,
            beside: None,
            inside: tags.iter().copied().collect(),
        }
    }

    /// Takes a tag out, if none is out (`skb_vlan_untag`).
    fn untag(&mut self) {
        if self.beside.is_none() {
            self.beside = self.inside.pop_front();
        }
    }

    /// Puts a tag on, around what there is (`__vlan_hwaccel_put_tag`).
    fn put(&mut self, tag: Vlan) {
        self.inside_again();
        self.beside = Some(tag);
    }

    fn inside_again(&mut self) {
        if let Some(before) = self.beside.take() {
            self.inside.push_front(before);
        }
    }
}

impl World {
    pub(super) fn of(rib: &Rib) -> World {
        let snapshot = rib.snapshot();
        let key = |entry: &FdbEntry| (entry.bridge, entry.vlan, entry.mac);
        World {
            links: snapshot.links.into_iter().map(|l| (l.index, l)).collect(),
            fdb: snapshot.fdb.into_iter().map(|e| (key(&e), e)).collect(),
            vlans: snapshot
                .port_vlans
                .into_iter()
                .map(|vlan| ((vlan.index, vlan.id), vlan))
                .collect(),
        }
    }

    fn vlan_upon(&self, lower: u32, tag: Vlan) -> Option<&Link> {
        let is_it = |link: &&Link| {
            let own = link.vlan.and_then(|own| Vlan::of(own.protocol, own.id));
            own == Some(tag) && link.lower == Some(lower) && link.lower_netns.is_none()
        };
        self.links.values().find(is_it)
    }

    fn forwards(&self, index: u32, id: u16) -> Option<&PortVlan> {
        self.vlans.get(&(index, id)).filter(|vlan| vlan.state == 3)
    }

    fn pvid(&self, index: u32) -> Option<u16> {
        let mut own = self.vlans.range((index, 0)..=(index, u16::MAX));
        own.find(|(_, vlan)| vlan.pvid).map(|((_, id), _)| *id)
    }

    /// By which link a frame comes in that is for that link's MAC address, and does nothing else (`__netif_receive_skb_core`); none
    /// where it is dropped, or goes to anybody else as well, or a bridge learns from it.
    pub(super) fn takes(&self, by: u32, tags: &[Vlan], dst: Mac, src: Mac) -> Option<u32> {
        let mut frame = Frame::new(by, tags);
        // Drawn links may be upon each other in a circle, which the kernel does not have.
        for _ in 0..MOST {
            let link = self.links.get(&frame.at)?;
            frame.untag();
            if let Some(vlan) = frame.beside.and_then(|tag| self.vlan_upon(frame.at, tag)) {
                if !vlan.is_up() {
                    return None;
                }
                (frame.at, frame.beside) = (vlan.index, None);
                continue;
            }
            if let Some(master) = link.master {
                match self.links.get(&master)?.kind.as_deref() {
                    Some("bond") if link.bond_active == Some(true) => frame.at = master,
                    Some("bridge") => self.up_a_bridge(&mut frame, link, (dst, src))?,
                    _ => return None,
                }
                continue;
            }
            if let Some(macvlan) = self.macvlan_for(frame.at, dst)? {
                frame.at = macvlan;
                continue;
            }
            match frame.beside {
                None => return (link.mac == Some(dst)).then_some(frame.at),
                Some(tag) if tag.id != 0 => return None,
                // A priority: what is behind it is looked at by the same device, and no other handler is asked.
                Some(_) => {
                    frame.beside = None;
                    frame.untag();
                    let tag = match frame.beside {
                        None => continue,
                        Some(tag) => tag,
                    };
                    match self.vlan_upon(frame.at, tag) {
                        Some(vlan) if vlan.is_up() => {
                            (frame.at, frame.beside) = (vlan.index, None);
                        }
                        None if tag.id == 0 => {}
                        _ => return None,
                    }
                }
            }
        }
        None
    }

    /// `macvlan_handle_frame`: none where the frame is lost, or copied.
    fn macvlan_for(&self, lower: u32, dst: Mac) -> Option<Option<u32>> {
        let upon = self.links.values().filter(|link| {
            link.macvlan.is_some() && link.lower == Some(lower) && link.lower_netns.is_none()
        });
        let mode = |link: &Link| link.macvlan.map_or(0, |of| of.mode);
        let mut by_mac = None;
        for macvlan in upon {
            match mode(macvlan) {
                1 | 2 | 4 if macvlan.mac == Some(dst) && macvlan.is_up() => {
                    by_mac = Some(macvlan.index);
                }
                1 | 2 | 4 => {}
                _ => return None,
            }
        }
        Some(by_mac)
    }

    /// `br_handle_frame`, `br_handle_frame_finish`, `br_pass_frame_up`.
    fn up_a_bridge(&self, frame: &mut Frame, link: &Link, (dst, src): (Mac, Mac)) -> Option<()> {
        let bridge = self.links.get(&link.master?)?;
        let (set, port) = (bridge.bridge?, link.port?);
        let works = bridge.is_up() && link.is_up() && !set.is_special && !port.is_special;
        if !works || port.state != 3 || link.macvlan.is_some() || link.bridge.is_some() {
            return None;
        }
        let id = self.in_vlan(frame, set, link.index)?;
        let source = self.fdb.get(&(bridge.index, id, src));
        let known = source.is_some_and(|e| e.port == link.index && !e.local && !e.is_special);
        if src[0] & 1 != 0 || (port.learns || port.is_locked) && !known {
            return None;
        }
        let own = self.fdb.get(&(bridge.index, id, dst))?;
        if !own.local || own.is_special {
            return None;
        }
        if set.filters_vlans && self.forwards(bridge.index, id)?.untagged {
            frame.beside = None;
        }
        frame.at = bridge.index;
        Some(())
    }

    /// `br_allowed_ingress`: the VLAN that a frame is in for a port, or for the bridge itself.
    fn in_vlan(&self, frame: &mut Frame, set: Bridge, index: u32) -> Option<u16> {
        if !set.filters_vlans {
            return Some(0);
        }
        let tag = |id| Vlan::of(set.protocol, id);
        match frame.beside {
            Some(own) if tag(own.id) == Some(own) => {}
            _ => frame.inside_again(),
        }
        let id = match frame.beside {
            Some(own) if own.id != 0 => own.id,
            _ => self.pvid(index)?,
        };
        frame.beside = Some(tag(id)?);
        self.forwards(index, id).map(|_| id)
    }

    /// By which link that is no VLAN, bridge or macvlan a frame leaves that is sent by a link, its tags there, and the port of a bridge that
    /// it passes (`dev_queue_xmit`); none where it is lost, or it is not sure where it goes.
    pub(super) fn sends(&self, by: u32, dst: Mac) -> Option<(u32, Vec<Vlan>, Option<u32>)> {
        let mut frame = Frame::new(by, &[]);
        let mut port = None;
        for _ in 0..MOST {
            let link = self.links.get(&frame.at)?;
            if !link.is_up() || !link.has_carrier() {
                return None;
            }
            let lower = link.lower.filter(|_| link.lower_netns.is_none());
            if let Some(vlan) = link.vlan {
                frame.put(Vlan::of(vlan.protocol, vlan.id).filter(|_| !vlan.egress_qos)?);
                frame.at = lower?;
            } else if let Some(macvlan) = link.macvlan {
                // In mode bridge a sibling may have the address.
                matches!(macvlan.mode, 1 | 2).then_some(())?;
                frame.at = lower?;
            } else if let Some(set) = link.bridge {
                self.down_a_bridge(&mut frame, set, dst)?;
                port = Some(frame.at);
            } else {
                let tags = frame.beside.into_iter().chain(frame.inside);
                return Some((link.index, tags.collect(), port));
            }
        }
        None
    }

    /// `br_dev_xmit`, `br_forward`.
    fn down_a_bridge(&self, frame: &mut Frame, set: Bridge, dst: Mac) -> Option<()> {
        let bridge = frame.at;
        let id = self.in_vlan(frame, set, bridge)?;
        let entry = self.fdb.get(&(bridge, id, dst))?;
        let link = self.links.get(&entry.port)?;
        let port = link.port?;
        let works = port.state == 3 && !port.is_special && !set.is_special;
        if !works || entry.local || entry.is_special || link.master != Some(bridge) {
            return None;
        }
        if set.filters_vlans && self.forwards(entry.port, id)?.untagged {
            frame.beside = None;
        }
        frame.at = entry.port;
        Some(())
    }
}
