//! Drawn links upon links, where Linux has a frame come in among them, written down as its functions go through it, and the steps that lead
//! there.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use raddle_image::{LinkEntry, Memory, Step, Upon, Vlan, link_flags};

use crate::frames::MAC;

/// Indices of links: a bond, a VLAN that is a port, two other VLANs, two macvlans, a bridge, and VLANs upon that.
const BOND: u32 = 9000;
const PORT_VLAN: u32 = 9020;
const VLAN: u32 = 9021;
const INNER: u32 = 9022;
const MACVLAN: u32 = 9023;
const OF_VLAN: u32 = 9024;
pub(crate) const BRIDGE: u32 = 9030;
pub(crate) const SVI: u32 = 9031;
const SVI_INNER: u32 = 9032;
const SVI_SERVICE: u32 = 9033;
/// All that packets come in by, besides the one that frames are seen on.
pub(crate) const LINKS: [u32; 8] = [
    VLAN,
    INNER,
    MACVLAN,
    OF_VLAN,
    BRIDGE,
    SVI,
    SVI_INNER,
    SVI_SERVICE,
];
/// What the macvlans are to be called by: the first upon the link itself.
pub(crate) const MACVLANS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 3], [2, 0, 0, 0, 0, 4]];
/// Of the first these differ in bits that its step does not know.
pub(crate) const ALIKE: [u8; 6] = [2, 0, 0, 1, 0, 3];
/// Whom frames are from. Bridges learn the first two, the others are no addresses of links.
pub(crate) const SOURCES: [[u8; 6]; 4] = [
    [6, 0, 0, 0, 0, 9],
    [6, 0, 0, 0, 0, 10],
    [7, 0, 0, 0, 0, 9],
    [0; 6],
];

/// What the port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    /// There is none, but VLANs and macvlans.
    None,
    /// The link that frames are seen on.
    Own,
    /// A VLAN upon it.
    Vlan,
}

/// How a bridge filters VLANs.
#[derive(Clone, Debug)]
struct Filter {
    /// Whether its VLANs are of 802.1ad.
    service: bool,
    /// Those of the port, and which of them frames without one are in.
    of_port: BTreeSet<u16>,
    pvid: u16,
    /// Those of the bridge itself, and whether frames come out without a tag.
    own: BTreeMap<u16, bool>,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub(crate) struct World {
    port: Port,
    /// Whether the link is the member of a bond.
    member: bool,
    /// Whether the link is enabled itself, and each of [`LINKS`].
    enabled: [bool; 1 + LINKS.len()],
    macvlans: bool,
    /// None: it does not filter.
    filter: Option<Filter>,
    learns: bool,
    /// Which of [`SOURCES`] have been learnt, and in which VLAN.
    learnt: BTreeSet<(usize, u16)>,
}

pub(crate) fn world() -> impl Strategy<Value = World> {
    let mostly = || proptest::bool::weighted(0.85);
    let port = prop_oneof![1 => Just(Port::None), 3 => Just(Port::Own), 1 => Just(Port::Vlan)];
    let id = || proptest::sample::select(vec![5u16, 6, 7]);
    let filter = (
        proptest::bool::weighted(0.25),
        proptest::collection::btree_set(id(), 1..4),
        id(),
        proptest::collection::btree_map(id(), any::<bool>(), 1..4),
    );
    let filter = filter.prop_map(|(service, of_port, pvid, own)| Filter {
        service,
        of_port,
        pvid,
        own,
    });
    let vlan = proptest::sample::select(vec![0u16, 0, 5, 6, 7]);
    let learnt = proptest::collection::btree_set((0..2usize, vlan), 0..8);
    (
        (port, proptest::bool::weighted(0.2), any::<bool>()),
        proptest::collection::vec(mostly(), 1 + LINKS.len()),
        proptest::option::weighted(0.6, filter),
        (mostly(), learnt),
    )
        .prop_map(
            |((port, member, macvlans), enabled, filter, (learns, learnt))| World {
                port,
                member,
                enabled: enabled.try_into().unwrap(),
                macvlans,
                filter,
                learns,
                learnt,
            },
        )
}

const fn customer(id: u16) -> Vlan {
    Vlan { service: false, id }
}

impl World {
    /// The VLANs that there are: upon what, and with which tag.
    fn vlans(&self, ingress: u32) -> Vec<(u32, Vlan, u32)> {
        let mut vlans = vec![
            (BRIDGE, customer(5), SVI),
            (SVI, customer(6), SVI_INNER),
            (
                BRIDGE,
                Vlan {
                    service: true,
                    id: 7,
                },
                SVI_SERVICE,
            ),
        ];
        if self.port != Port::Own {
            vlans.extend([(ingress, customer(5), VLAN), (VLAN, customer(6), INNER)]);
        }
        if self.port == Port::Vlan {
            vlans.push((ingress, customer(7), PORT_VLAN));
        }
        vlans
    }

    /// Upon what, and which.
    fn macvlans(&self, ingress: u32) -> Vec<(u32, [u8; 6], u32)> {
        if !self.macvlans || self.port == Port::Own {
            return Vec::new();
        }
        let [first, second] = MACVLANS;
        vec![(ingress, first, MACVLAN), (VLAN, second, OF_VLAN)]
    }

    fn is_port(&self, index: u32, ingress: u32) -> bool {
        match self.port {
            Port::None => false,
            Port::Own => index == ingress,
            Port::Vlan => index == PORT_VLAN,
        }
    }

    /// Whether packets that come in by this link are forwarded.
    fn is_enabled(&self, index: u32, ingress: u32) -> bool {
        match LINKS.iter().position(|link| *link == index) {
            Some(n) => self.enabled[n + 1],
            None => index == ingress && self.port != Port::Own && self.enabled[0],
        }
    }

    /// The link that an untagged packet comes in by of a frame that is seen on link `ingress`, if there is one that is enabled
    /// (`__netif_receive_skb_core`).
    pub(crate) fn comes_in_by(
        &self,
        ingress: u32,
        mut tags: Vec<Vlan>,
        to: [u8; 6],
        from: [u8; 6],
    ) -> Option<u32> {
        let mut at = ingress;
        loop {
            let first = tags.first().copied();
            // vlan_do_receive
            let mut vlans = self.vlans(ingress).into_iter();
            let upon = vlans.find(|(lower, vlan, _)| *lower == at && Some(*vlan) == first);
            if let Some((.., upon)) = upon {
                at = upon;
                tags.remove(0);
                continue;
            }
            // The link's rx_handler.
            if self.is_port(at, ingress) {
                tags = self.bridged(tags, to, from)?;
                at = BRIDGE;
                continue;
            }
            let mut macvlans = self.macvlans(ingress).into_iter();
            let upon = macvlans.find(|(lower, mac, _)| *lower == at && *mac == to);
            if let Some((.., upon)) = upon {
                at = upon;
                continue;
            }
            match first {
                Some(Vlan { id: 0, .. }) => tags.remove(0),
                Some(_) => return None,
                None => return self.is_enabled(at, ingress).then_some(at),
            };
        }
    }

    /// The tags of a frame as the bridge receives it that comes in by the port, if it does and nothing is learnt
    /// (`br_handle_frame`).
    fn bridged(&self, mut tags: Vec<Vlan>, to: [u8; 6], from: [u8; 6]) -> Option<Vec<Vlan>> {
        if from[0] & 1 != 0 || from == [0; 6] {
            return None;
        }
        // br_allowed_ingress
        let mut vlan = 0;
        if let Some(filter) = &self.filter {
            // One of the other kind is payload to it, with which engines go no further.
            let is_other = |tag: &&Vlan| tag.service != filter.service;
            if tags.first().filter(is_other).is_some_and(|tag| tag.id != 0) {
                return None;
            }
            let own = tags.first().filter(|tag| !is_other(tag));
            vlan = own.map_or(0, |tag| tag.id);
            if own.is_some() {
                tags.remove(0);
            }
            if vlan == 0 {
                vlan = filter.pvid;
            }
            if !filter.of_port.contains(&vlan) {
                return None;
            }
        }
        // br_fdb_update
        let source = SOURCES.iter().position(|source| *source == from);
        let known = source.is_some_and(|source| self.learnt.contains(&(source, vlan)));
        if self.learns && !known || to != MAC {
            return None;
        }
        // br_pass_frame_up, br_handle_vlan
        if let Some(filter) = &self.filter {
            let service = filter.service;
            match filter.own.get(&vlan) {
                None => return None,
                Some(true) => {}
                Some(false) => tags.insert(0, Vlan { service, id: vlan }),
            }
        }
        Some(tags)
    }

    /// Puts it into an image in which the link has an entry already.
    pub(crate) fn put(&self, memory: &Memory, ingress: u32) {
        let own = memory.link(ingress);
        let index = if self.member { BOND } else { ingress };
        let with = |of: u32, flag| {
            let vlans = self.vlans(ingress).into_iter();
            let macvlans = self.macvlans(ingress).into_iter();
            let mut lower = match flag {
                link_flags::VLANS => vlans.map(|(lower, ..)| lower).collect::<Vec<u32>>(),
                _ => macvlans.map(|(lower, ..)| lower).collect(),
            };
            lower.retain(|lower| *lower == of);
            if lower.is_empty() { 0 } else { flag }
        };
        for (slot, of) in (own.slot..).zip([ingress].into_iter().chain(LINKS)) {
            let upon = with(of, link_flags::VLANS) | with(of, link_flags::MACVLANS);
            let port = if self.is_port(of, ingress) {
                link_flags::PORT
            } else {
                0
            };
            let flags = match self.is_enabled(of, ingress) {
                true => own.flags | link_flags::ENABLED,
                false => 0,
            };
            let entry = LinkEntry {
                flags: flags | upon | port,
                index: if of == ingress { index } else { of },
                mac: match of {
                    MACVLAN => MACVLANS[0],
                    OF_VLAN => MACVLANS[1],
                    _ => own.mac,
                },
                slot,
                ..own
            };
            memory.store_link(of, &entry);
        }
        self.put_steps(memory, (ingress, index));
    }

    fn put_steps(&self, memory: &Memory, (ingress, index): (u32, u32)) {
        let of = |lower| if lower == ingress { index } else { lower };
        for (lower, vlan, upon) in self.vlans(ingress) {
            let step = Step {
                index: upon,
                is_port: self.is_port(upon, ingress),
                learnt: 0,
            };
            let upon = Upon::Tag(vlan);
            memory.store_step(of(lower), upon, Some(step)).unwrap();
        }
        for (lower, mac, index) in self.macvlans(ingress) {
            let step = Step {
                index,
                ..Step::default()
            };
            memory
                .store_step(of(lower), Upon::mac(mac), Some(step))
                .unwrap();
        }
        let port = match self.port {
            Port::None => return,
            Port::Own => index,
            Port::Vlan => PORT_VLAN,
        };
        self.put_port(memory, port);
    }

    /// The steps of a port, and what is learnt there.
    fn put_port(&self, memory: &Memory, port: u32) {
        let lead = |upon, vlan, index| {
            let learnt = if self.learns { place(vlan) } else { 0 };
            let is_port = false;
            let step = Step {
                index,
                is_port,
                learnt,
            };
            memory.store_step(port, upon, Some(step)).unwrap();
        };
        for (source, vlan) in &self.learnt {
            let mac = SOURCES[*source];
            memory.store_learnt(mac, place(*vlan), true).unwrap();
        }
        let Some(filter) = &self.filter else {
            return lead(Upon::All, 0, BRIDGE);
        };
        let vlans = self.vlans(port);
        for (id, untagged) in &filter.own {
            let (service, id) = (filter.service, *id);
            let tag = Vlan { service, id };
            let mut upon = vlans.iter().filter(|(lower, ..)| *lower == BRIDGE);
            let leads = match untagged {
                true => Some(BRIDGE),
                false => upon
                    .find(|(_, vlan, _)| *vlan == tag)
                    .map(|(.., upon)| *upon),
            };
            if let (Some(index), true) = (leads, filter.of_port.contains(&id)) {
                lead(Upon::Tag(tag), id, index);
                if filter.pvid == id {
                    lead(Upon::Untagged, id, index);
                }
            }
        }
    }
}

/// Where what is learnt of a VLAN is in the image.
fn place(vlan: u16) -> u16 {
    vlan + 1
}
