//! Which IPv4 sources pass a link's reverse-path filter, against a walk over everything that was told.

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use raddle_image::{Reason, closed_reason, link_flags};
use raddle_rib::event::{
    Address, DeviceSettings, Event, Link, RULE_OTHER_L3MDEV, Route, RouteNexthop, RouteOp,
    RouteTarget, Rule,
};
use raddle_rib::{Back, Rib};

use crate::common::{self, Filter, Mirror};
use crate::draw::{LINKS, address, event};
use crate::{new_rib, small};

fn v4(n: u32) -> Ipv4Addr {
    match address(false, n) {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(_) => panic!("it is asked for IPv4"),
    }
}

/// The index of a VRF.
const VRF: u32 = 9;

/// What concerns the filter, beside all else.
fn of_filters() -> impl Strategy<Value = Event> {
    let own = (1..=LINKS, 0..64u32).prop_map(|(link, n)| Address::new(link, v4(n).into(), 24));
    let iif = proptest::option::weighted(0.5, proptest::sample::select(vec!["l2", "l2", "red"]));
    let rule = (1..4u32, iif, 0..3u8).prop_map(|(table, iif, of_vrfs)| Rule {
        family: 4,
        priority: table,
        table: 252 + table,
        action: 1,
        iif: iif.map(str::to_owned),
        other: match of_vrfs {
            0 => vec![RULE_OTHER_L3MDEV],
            _ => vec![],
        },
        ..Rule::default()
    });
    let red = Event::Link(Link {
        name: "red".to_owned(),
        kind: Some("vrf".to_owned()),
        vrf_table: Some(253),
        ..common::link(VRF, true, true)
    });
    let slave = (1..=LINKS, any::<bool>()).prop_map(|(index, is_in)| {
        Event::Link(Link {
            master: is_in.then_some(VRF),
            ..common::link(index, true, true)
        })
    });
    let default = (1..=LINKS, any::<bool>()).prop_map(|(index, told)| {
        let route = Route {
            dst: "0.0.0.0/0".parse().unwrap(),
            table: 254,
            protocol: 4,
            target: RouteTarget::Single(RouteNexthop {
                gateway: Some(v4(5).into()),
                index,
                weight: 1,
                ..RouteNexthop::default()
            }),
            ..Route::default()
        };
        match told {
            true => Event::Route(route, RouteOp::Replace),
            false => Event::RouteGone(route),
        }
    });
    prop_oneof![
        6 => (1..=LINKS, 0..3u8).prop_map(|(index, rp_filter)| Event::Device(
            index,
            DeviceSettings { rp_filter, ..DeviceSettings::default() })),
        4 => own.clone().prop_map(Event::Address),
        2 => own.prop_map(Event::AddressGone),
        1 => rule.clone().prop_map(Event::Rule),
        3 => rule.prop_map(Event::RuleGone),
        3 => default,
        1 => Just(red),
        3 => slave,
    ]
}

/// Whether engines let a packet with this source pass; none where they do not come to ask.
fn passes(rib: &Rib, link: u32, source: Ipv4Addr) -> Option<bool> {
    let memory = rib.memory();
    let entry = memory.link(link);
    if entry.flags & link_flags::ENABLED == 0 || entry.flags & link_flags::RULES4 != 0 {
        return None;
    }
    Some(
        match entry.flags & (link_flags::RP_FILTER | link_flags::WAY_BACK) {
            0 => true,
            link_flags::WAY_BACK => memory.has_way_back(&entry, source.to_bits()),
            _ => false,
        },
    )
}

fn compare(rib: &Mirror, seen: &mut [u32; 3]) {
    for (n, link) in (0..64).flat_map(|n| (1..=LINKS).map(move |link| (n, link))) {
        let source = v4(n);
        let Some(passes) = passes(rib, link, source) else {
            continue;
        };
        let wanted = rib.filters(link, source);
        let said = rib.way_back(link, source);
        seen[wanted as usize] += 1;
        match wanted {
            Filter::Passes => assert!(
                passes && said == Back::Passes,
                "{source} from {link}: {said:?}"
            ),
            Filter::Refuses => assert!(
                !passes && said != Back::Passes,
                "{source} from {link}: {said:?}"
            ),
            Filter::Kernel => {}
        }
    }
}

/// Pairs of links of which only the kernel knows what the filter makes are closed, and no others. How many.
fn compare_pairs(rib: &Mirror) -> u32 {
    let memory = rib.memory();
    let mut apart = 0;
    let adjacencies = (0..64).map(|number| memory.adjacency(number));
    for out in adjacencies.filter(|adjacency| adjacency.forwards()) {
        for link in 1..=LINKS {
            let entry = memory.link(link);
            if entry.flags & link_flags::ENABLED == 0 {
                continue;
            }
            let closed = entry.closed4 >> (out.zone & 63) & 1 != 0;
            let wanted = rib.is_apart(link, out.index) == Some(true);
            assert_eq!(closed, wanted, "from {link} to {}", out.index);
            assert!(!closed || closed_reason(&entry, out.zone) == Reason::RpFilter);
            apart += u32::from(closed);
        }
    }
    apart
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn sources_that_pass_the_filter(batches in proptest::collection::vec(
        proptest::collection::vec(prop_oneof![event(), of_filters()], 0..12), 1..12)) {
        let mut rib = new_rib(&small());
        let mut seen = [0; 3];
        for batch in batches {
            batch.into_iter().for_each(|event| rib.apply(event));
            rib.commit();
            compare(&rib, &mut seen);
            compare_pairs(&rib);
        }
    }
}
