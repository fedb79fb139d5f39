//! Which IPv4 sources engines leave to the kernel, against a walk over all routes, rules and addresses.

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use raddle_image::Reason;
use raddle_rib::Rib;
use raddle_rib::event::{
    Address, DeviceSettings, Event, ROUTE_FPM, ROUTE_STATIC, Route, RouteKind, RouteOp,
    RouteTarget, Rule,
};

use crate::draw::LINKS;
use crate::{new_rib, small};

/// Where there is nothing but these rules engines look sources of all links up in one table.
const TABLES: [u32; 5] = [255, 254, 253, 7, 9];

/// A rule that forwarded packets from links of these tests never match.
fn rule(table: u32) -> Rule {
    Rule {
        family: 4,
        priority: table,
        table,
        action: 1,
        iif: (table < 250).then(|| "elsewhere".into()),
        ..Rule::default()
    }
}

fn ip(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, n / 8 % 8, n % 8)
}

fn event() -> impl Strategy<Value = Event> {
    let kinds = prop_oneof![
        Just(RouteKind::Unicast),
        Just(RouteKind::Unreachable),
        Just(RouteKind::Local),
        Just(RouteKind::Local),
        Just(RouteKind::Broadcast),
        Just(RouteKind::Anycast),
        Just(RouteKind::Multicast),
    ];
    let tables = proptest::sample::select(TABLES.to_vec());
    let lens = proptest::sample::select(vec![0u8, 16, 22, 24, 28, 30, 31, 32, 32, 32]);
    let flags = prop_oneof![8 => Just(0), 1 => Just(ROUTE_STATIC), 1 => Just(ROUTE_FPM)];
    let route = (tables, any::<u8>(), lens, kinds, flags, 0..2u32).prop_map(
        |(table, n, len, kind, flags, metric)| Route {
            table,
            dst: ipnet::IpNet::new(ip(n).into(), len).unwrap().trunc(),
            protocol: 4,
            kind,
            metric,
            flags,
            target: RouteTarget::None,
            ..Route::default()
        },
    );
    let op = prop_oneof![Just(RouteOp::Add), Just(RouteOp::Replace)];
    let address =
        (1..=LINKS, any::<u8>()).prop_map(|(link, n)| Address::new(link, ip(n).into(), 24));
    let named = prop_oneof![Just(7u32), Just(9)];
    prop_oneof![
        8 => (route.clone(), op).prop_map(|(route, op)| Event::Route(route, op)),
        5 => route.prop_map(Event::RouteGone),
        1 => address.clone().prop_map(Event::Address),
        1 => address.prop_map(Event::AddressGone),
        1 => named.clone().prop_map(|table| Event::Rule(rule(table))),
        1 => named.prop_map(|table| Event::RuleGone(rule(table))),
        1 => (1..=LINKS, any::<bool>()).prop_map(|(index, accept_local)| {
            let settings = DeviceSettings { accept_local, ..DeviceSettings::default() };
            Event::Device(index, settings)
        }),
    ]
}

/// What engines do with a packet from this source.
fn by_engines(rib: &Rib, link: u32, source: Ipv4Addr) -> Option<Reason> {
    let memory = rib.memory();
    let maybe = memory.maybe_local(source.to_bits());
    let found = memory.refuses(&memory.link(link), source.to_bits());
    found.filter(|_| maybe)
}

/// What the mirror says, rule by rule.
fn by_mirror(rib: &Rib, link: u32, source: Ipv4Addr) -> Option<Reason> {
    let snapshot = rib.snapshot();
    let named = |table: u32| {
        let rules = snapshot.rules.iter();
        table >= 253
            || rules
                .filter(|r| r.family == 4)
                .any(|rule| rule.table == table)
    };
    let kinds: Vec<RouteKind> = snapshot
        .routes
        .iter()
        .filter(|route| named(route.table) && route.dst.contains(&IpAddr::V4(source)))
        .filter(|route| route.flags & (ROUTE_STATIC | ROUTE_FPM) == 0)
        .map(|route| route.kind)
        .collect();
    let some = |wanted: &[RouteKind]| kinds.iter().any(|kind| wanted.contains(kind));
    if some(&[
        RouteKind::Broadcast,
        RouteKind::Anycast,
        RouteKind::Multicast,
    ]) {
        return Some(Reason::SourceCheck);
    }
    let mut addresses = snapshot.addresses.iter();
    let own = addresses.any(|a| a.local == IpAddr::V4(source)) || some(&[RouteKind::Local]);
    (own && !rib.device(link).accept_local).then_some(Reason::LocalSource)
}

fn compare(rib: &Rib) {
    for (n, link) in (0..64).zip((1..=LINKS).cycle()) {
        let source = ip(n);
        assert_eq!(
            by_engines(rib, link, source),
            by_mirror(rib, link, source),
            "{source} from link {link}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn sources_that_the_kernel_may_refuse(batches in proptest::collection::vec(
        proptest::collection::vec(event(), 0..8), 1..12)) {
        let mut rib = new_rib(&small());
        for table in [255, 254, 253] {
            rib.apply(Event::Rule(rule(table)));
        }
        for batch in batches {
            batch.into_iter().for_each(|event| rib.apply(event));
            rib.commit();
            compare(&rib);
        }
    }
}

/// Sources that may not appear on the wire need no look-up, however short the prefix that claims them.
#[test]
fn loopback_claims_no_source() {
    let mut rib = new_rib(&small());
    for (dst, kind) in [
        ("127.0.0.0/8", RouteKind::Local),
        ("224.0.0.0/4", RouteKind::Multicast),
        ("255.255.255.255/32", RouteKind::Broadcast),
    ] {
        let route = Route {
            table: 255,
            dst: dst.parse().unwrap(),
            kind,
            ..Route::default()
        };
        rib.apply(Event::Route(route, RouteOp::Add));
    }
    rib.commit();
    assert!(!rib.memory().maybe_local(ip(9).to_bits()));
}

/// Without room for the table every source is the kernel's; with room again only those that it may refuse.
#[test]
fn sources_find_no_room() {
    let mut rib = new_rib(&raddle_image::Capacity {
        nodes4: 256,
        leaves4: 256,
        ..small()
    });
    let local = |n: u8| Route {
        table: 255,
        dst: ipnet::IpNet::new(IpAddr::from([n, n, n, n]), 32).unwrap(),
        kind: RouteKind::Local,
        ..Route::default()
    };
    for n in 1..100 {
        rib.apply(Event::Route(local(n), RouteOp::Add));
    }
    rib.commit();
    let refuses = |rib: &Rib, source: [u8; 4]| {
        let (memory, source) = (rib.memory(), u32::from_be_bytes(source));
        let found = memory.refuses(&memory.link(1), source);
        found.filter(|_| memory.maybe_local(source))
    };
    for source in [[3, 3, 3, 3], [10, 0, 0, 1]] {
        assert_eq!(refuses(&rib, source), Some(Reason::ImageFull), "{source:?}");
    }
    for n in 2..100 {
        rib.apply(Event::RouteGone(local(n)));
    }
    rib.commit();
    assert_eq!(refuses(&rib, [1; 4]), Some(Reason::LocalSource));
    assert_eq!(refuses(&rib, [10, 0, 0, 1]), None);
}
