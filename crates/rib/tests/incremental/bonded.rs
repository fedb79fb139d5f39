//! By which members of a bond frames leave that have tags, whatever of the bond comes in which order.

use std::collections::BTreeMap;

use proptest::prelude::*;
use raddle_image::{ADJ_TAGGED, Adjacency, Bonded, Reason};
use raddle_rib::event::{Bond, Event, Link, NUD_VALID, Neighbour, RouteNexthop, RouteTarget, Vlan};
use raddle_rib::{Ports, Rib};
use raddle_select::BondPolicy;

use super::common;
use super::{new_rib, small};

const BOND: u32 = 1;
const OTHER: u32 = 2;
/// A VLAN upon the bond, and one within it.
const VLANS: [u32; 2] = [20, 21];
const MEMBERS: std::ops::Range<u32> = 10..14;
/// MAC addresses of the neighbours, and of the VLANs.
const TO: [u8; 6] = [2, 0, 0, 0, 7, 0x31];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 0x52];

fn bond(index: u32, bond: Bond) -> Event {
    Event::Link(Link {
        kind: Some("bond".into()),
        bond: Some(bond),
        ..Link::ethernet(index, format!("l{index}"), FROM)
    })
}

fn vlan(place: usize) -> Link {
    Link {
        kind: Some("vlan".into()),
        vlan: Some(Vlan {
            protocol: [0x88a8, 0x8100][place],
            id: 5,
            egress_qos: false,
        }),
        lower: Some([BOND, VLANS[0]][place]),
        ..Link::ethernet(VLANS[place], format!("l{}", VLANS[place]), FROM)
    }
}

fn change() -> impl Strategy<Value = Event> {
    let mostly = || proptest::bool::weighted(0.9);
    let master = proptest::sample::select(vec![
        Some(BOND),
        Some(BOND),
        Some(BOND),
        Some(BOND),
        None,
        Some(OTHER),
    ]);
    let flags = proptest::sample::select(vec![0x1_0043, 0x1_0043, 0x1_0043, 0x43, 0x3, 0]);
    let mtu = proptest::sample::select(vec![1500, 1500, 1400]);
    let member = (MEMBERS, master, flags, (mostly(), mostly()), 1..3u16, mtu);
    let member = member.prop_map(|(index, master, flags, (active, up), aggregator, mtu)| {
        Event::Link(Link {
            master,
            flags,
            bond_active: Some(active),
            bond_down: !up,
            bond_aggregator: if index % 2 == 0 { 1 } else { aggregator },
            mtu,
            ..Link::ethernet(index, format!("l{index}"), FROM)
        })
    });
    let set = (
        proptest::sample::select(vec![0, 1, 2, 2, 2, 4, 4]),
        0..6u8,
        0..3u16,
    );
    let set = set.prop_map(|(mode, policy, aggregator)| {
        let set = Bond {
            mode,
            policy,
            aggregator,
            ..Bond::default()
        };
        bond(BOND, set)
    });
    let order = proptest::sample::subsequence(MEMBERS.collect::<Vec<_>>(), 0..=4).prop_shuffle();
    let bonds = proptest::sample::select(vec![BOND, BOND, BOND, OTHER]);
    let order = (bonds, order).prop_map(|(bond, order)| Event::BondOrder(bond, order));
    prop_oneof![
        6 => member,
        3 => set,
        6 => order,
        1 => MEMBERS.prop_map(Event::LinkGone),
    ]
}

/// What was told last, by the letter.
#[derive(Default)]
struct Told {
    bond: Bond,
    links: BTreeMap<u32, Link>,
    order: Option<Vec<u32>>,
}

impl Told {
    fn note(&mut self, event: &Event) {
        match event {
            Event::Link(link) if link.index == BOND => self.bond = link.bond.unwrap(),
            Event::Link(link) => {
                let before = self.links.insert(link.index, link.clone());
                let before = before.and_then(|link| link.master);
                if before != link.master && [before, link.master].contains(&Some(BOND)) {
                    self.order = None;
                }
            }
            Event::LinkGone(index) => {
                let gone = self.links.remove(index);
                if gone.is_some_and(|link| link.master == Some(BOND)) {
                    self.order = None;
                }
            }
            Event::BondOrder(BOND, order) => {
                self.order = Some(order.clone()).filter(|order| !order.is_empty())
            }
            _ => {}
        }
    }

    /// By which members, or by the bond itself; or by none.
    fn by(&self, tags: usize) -> Result<Option<Vec<u32>>, ()> {
        let (mode, policy) = (self.bond.mode, self.bond.policy);
        if !matches!(mode, 2 | 4) || (policy == 4 && tags == 1) {
            return Ok(None);
        }
        let order = self.order.as_ref().filter(|_| policy < 3).ok_or(())?;
        let mut members = Vec::new();
        for index in order {
            let member = self
                .links
                .get(index)
                .filter(|member| member.master == Some(BOND))
                .ok_or(())?;
            if member.flags & 1 == 0
                || member.flags & 0x1_0000 == 0
                || member.bond_down
                || member.bond_active != Some(true)
            {
                continue;
            }
            if mode == 4
                && (self.bond.aggregator == 0 || self.bond.aggregator != member.bond_aggregator)
            {
                return Err(());
            }
            members.push(*index);
        }
        match (members.len(), tags) {
            (0, _) => Err(()),
            (_, 1) => Ok(Some(members)),
            // The EtherType of the tag within.
            (count, _) => Ok(Some(vec![members[((0x31 ^ 0x52) ^ 0x8100) % count]])),
        }
    }
}

/// What leaves by a VLAN.
fn adjacency(rib: &Rib, vlan: u32) -> Adjacency {
    let mut all = rib.adjacencies();
    let number = all
        .find(|(_, index, ..)| *index == vlan)
        .map(|(number, ..)| number);
    rib.memory().adjacency(number.unwrap())
}

proptest! {
    #[test]
    fn frames_with_tags_leave_by_the_members_that_can_send(
        steps in proptest::collection::vec(proptest::collection::vec(change(), 0..4), 1..30),
    ) {
        let mut rib = new_rib(&small());
        let mut told = Told::default();
        rib.apply(bond(BOND, Bond::default()));
        rib.apply(bond(OTHER, Bond::default()));
        for (place, index) in VLANS.into_iter().enumerate() {
            rib.apply(Event::Link(vlan(place)));
            let dst = [10, 0, index as u8, 2].into();
            rib.apply(Event::Neighbour(Neighbour {
                mac: Some(TO),
                state: NUD_VALID,
                ..common::neighbour(index, dst)
            }));
            let hop = RouteNexthop {
                index,
                gateway: Some(dst),
                ..RouteNexthop::default()
            };
            let to = [10, index as u8, 0, 0].into();
            rib.apply(Event::Route(common::route(to, 16, RouteTarget::Single(hop)), raddle_rib::event::RouteOp::Add));
        }
        rib.set_ports(Ports {
            enabled: [OTHER].into(),
            out: [BOND].into_iter().chain(VLANS).collect(),
        });
        for changes in steps {
            for change in changes {
                told.note(&change);
                rib.apply(change);
            }
            rib.commit();
            for (place, vlan) in VLANS.into_iter().enumerate() {
                let ours = adjacency(&rib, vlan);
                match told.by(place + 1) {
                    Err(()) => {
                        prop_assert!(!ours.forwards(), "{:?}", ours);
                        prop_assert_eq!(ours.reason, Reason::OutLink as u8);
                    }
                    Ok(by) => {
                        prop_assert_eq!((ours.state, ours.lower), (ADJ_TAGGED, BOND));
                        let members = ours.bonded().map(|bonded: Bonded| bonded.indices().collect::<Vec<_>>());
                        prop_assert_eq!(&members, &by);
                        let least = by.iter().flatten().map(|index| told.links[index].mtu).min();
                        let room = least.unwrap_or(1500) - 4 * place as u32;
                        prop_assert_eq!(ours.mtu, room);
                        if let Some(bonded) = ours.bonded().filter(|_| place == 0) {
                            let policy = BondPolicy::from_number(told.bond.policy).unwrap();
                            prop_assert_eq!(bonded.policy, policy.number());
                        }
                    }
                }
            }
        }
    }
}
