//! Links by which bonds take packets: their entries are the bond's, whatever comes in which order.

use proptest::prelude::*;
use raddle_image::{LinkEntry, link_flags};
use raddle_rib::Ports;
use raddle_rib::event::{DeviceSettings, Event, Link, Rule};

use super::common;
use super::{new_rib, small};

/// Bonds, a link that is none, and links that may be part of any of them.
const BONDS: [u32; 2] = [1, 2];
const OTHER: u32 = 3;
const PARTS: std::ops::Range<u32> = 10..14;

fn upper(index: u32, is_bond: bool) -> Link {
    Link {
        kind: is_bond.then(|| "bond".to_owned()),
        ..common::link(index, true, true)
    }
}

fn change() -> impl Strategy<Value = Event> {
    let master = proptest::sample::select(vec![None, Some(1), Some(1), Some(2), Some(OTHER)]);
    let active = proptest::option::weighted(0.8, prop::bool::weighted(0.7));
    let part = (PARTS, master, active).prop_map(|(index, master, bond_active)| {
        Event::Link(Link {
            master,
            bond_active,
            ..common::link(index, true, true)
        })
    });
    let uppers = proptest::sample::select(vec![1, 2, OTHER]);
    let forwards = (uppers, any::<[bool; 2]>()).prop_map(|(index, [four, six])| {
        let settings = DeviceSettings {
            forwarding4: four,
            forwarding6: six,
            ..DeviceSettings::default()
        };
        Event::Device(index, settings)
    });
    let rule = proptest::sample::select(vec!["l1", "l10"]).prop_map(|iif| {
        Event::Rule(Rule {
            family: 4,
            priority: 9,
            table: 7,
            action: 1,
            iif: Some(iif.to_owned()),
            ..Rule::default()
        })
    });
    let bond = proptest::sample::select(BONDS.to_vec());
    prop_oneof![
        6 => part,
        2 => PARTS.prop_map(Event::LinkGone),
        1 => bond.clone().prop_map(Event::LinkGone),
        3 => bond.prop_map(|index| Event::Link(upper(index, true))),
        2 => forwards,
        1 => rule,
    ]
}

proptest! {
    #[test]
    fn parts_of_a_bond_have_its_entry(
        steps in proptest::collection::vec((proptest::collection::vec(change(), 0..5), any::<[bool; 2]>()), 1..20),
    ) {
        let mut rib = new_rib(&small());
        for index in BONDS {
            rib.apply(Event::Link(upper(index, true)));
        }
        rib.apply(Event::Link(upper(OTHER, false)));
        for (changes, enabled) in steps {
            changes.into_iter().for_each(|change| rib.apply(change));
            let bonds = BONDS.into_iter().zip(enabled).filter(|(_, on)| *on);
            let enabled: Vec<u32> = bonds.map(|(index, _)| index).chain([OTHER]).collect();
            rib.set_ports(Ports {
                enabled: enabled.iter().copied().collect(),
                out: [OTHER].into(),
            });
            rib.commit();
            let links: Vec<Link> = rib.links().cloned().collect();
            let there = |index: u32| links.iter().find(|link| link.index == index);
            for index in PARTS {
                let bond = there(index)
                    .filter(|part| part.bond_active == Some(true))
                    .and_then(|part| there(part.master?))
                    .filter(|bond| bond.kind.as_deref() == Some("bond") && enabled.contains(&bond.index));
                let entry = rib.memory().link(index);
                match bond {
                    Some(bond) => {
                        let part = there(index).unwrap();
                        let mac = part.mac.unwrap();
                        prop_assert_eq!(entry, LinkEntry { mac, ..rib.memory().link(bond.index) });
                        prop_assert_eq!(entry.index, bond.index);
                        prop_assert!(entry.flags & link_flags::ENABLED != 0);
                    }
                    None => prop_assert_eq!(entry.flags, 0, "link {}", index),
                }
            }
        }
    }
}
