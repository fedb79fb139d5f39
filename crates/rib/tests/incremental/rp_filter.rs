//! Which IPv4 sources pass a link's reverse-path filter, against a walk over everything that was told.

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use raddle_image::link_flags;
use raddle_rib::event::{
    Address, DeviceSettings, Event, Route, RouteNexthop, RouteOp, RouteTarget, Rule,
};
use raddle_rib::{Back, Rib};

use crate::common::{Filter, Mirror};
use crate::draw::{LINKS, address, event};
use crate::{new_rib, small};

fn v4(n: u32) -> Ipv4Addr {
    match address(false, n) {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(_) => panic!("it is asked for IPv4"),
    }
}

/// What concerns the filter, beside all else.
fn of_filters() -> impl Strategy<Value = Event> {
    let own = (1..=LINKS, 0..64u32).prop_map(|(link, n)| Address::new(link, v4(n).into(), 24));
    let rule =
        (1..4u32, proptest::option::weighted(0.5, Just("l2"))).prop_map(|(table, iif)| Rule {
            family: 4,
            priority: table,
            table: 252 + table,
            action: 1,
            iif: iif.map(str::to_owned),
            ..Rule::default()
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
        }
    }
}
