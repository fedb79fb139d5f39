//! Routes that a routing daemon tells by FPM: which of them count, and where they lead.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[path = "../common/mod.rs"]
mod common;
mod model;

use std::net::IpAddr;

use common::{Mirror, address, compare, link, neighbour, new_rib, object, route, seen_by_engines};
use ipnet::IpNet;
use raddle_image::{Capacity, Reason, segment_kind};
use raddle_rib::event::{
    Event, Fpm, GroupMember, Nexthop, NexthopKind, ROUTE_FPM, Route, RouteKind, RouteNexthop,
    RouteOp, RouteTarget, Rule, Settings,
};
use raddle_rib::seg6::{Behaviour, Seg6, Sid};
use raddle_rib::{FpmStats, Rib};

const CAPACITY: Capacity = Capacity {
    nodes4: 1 << 12,
    leaves4: 1 << 12,
    words6: 1 << 14,
    groups: 256,
    members: 1024,
    adjacencies: 256,
    segments: 64,
    templates: 1 << 10,
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A mirror with links 1 to 4, and a neighbour 10.0.N.1 on each.
fn world() -> Mirror {
    let mut rib = new_rib(&CAPACITY);
    rib.apply(Event::Settings(Settings {
        hash_seed: 7,
        ..Settings::default()
    }));
    for index in 1..=4 {
        rib.apply(Event::Link(link(index, true, true)));
        rib.apply(Event::Neighbour(neighbour(index, gateway(index))));
    }
    rib.commit();
    rib
}

fn gateway(index: u32) -> IpAddr {
    address(false, 8 * index as u8 + 1)
}

fn hop(index: u32) -> RouteNexthop {
    RouteNexthop {
        gateway: Some(gateway(index)),
        index,
        ..RouteNexthop::default()
    }
}

fn by(index: u32) -> RouteTarget {
    RouteTarget::Single(hop(index))
}

fn to(prefix: &str, target: RouteTarget) -> Route {
    let net: IpNet = prefix.parse().unwrap();
    route(net.addr(), net.prefix_len(), target)
}

fn tell(rib: &mut Mirror, told: impl IntoIterator<Item = Fpm>) {
    told.into_iter()
        .for_each(|told| rib.apply(Event::Fpm(told)));
    rib.commit();
    assert!(!rib.is_dirty());
}

fn single(id: u32, index: u32) -> Fpm {
    Fpm::Nexthop(Nexthop::new(
        id,
        2,
        NexthopKind::Single {
            gateway: Some(gateway(index)),
            index,
            encap: None,
        },
    ))
}

fn group(id: u32, members: &[(u32, u16)]) -> Fpm {
    let member = |&(id, weight): &(u32, u16)| GroupMember { id, weight };
    let members = members.iter().map(member).collect();
    Fpm::Nexthop(Nexthop::new(id, 0, NexthopKind::Group(members)))
}

/// The links that engines send packets for `dst` to, each with its upper bound; or why they do not.
fn links(rib: &Mirror, dst: &str) -> Result<Vec<(u32, u32)>, Reason> {
    compare(rib, [ip(dst)]);
    let seen = seen_by_engines(rib, 1, ip(dst)).unwrap()?;
    Ok(seen
        .into_iter()
        .map(|(upper, leaves)| (upper, leaves.unwrap().0))
        .collect())
}

const ALL: u32 = 0x7fff_ffff;

#[test]
fn a_route_by_fpm_counts_where_the_kernel_has_none() {
    let mut rib = world();
    tell(&mut rib, [Fpm::Route(to("10.9.0.0/16", by(1)))]);
    assert_eq!(links(&rib, "10.9.1.1"), Ok(vec![(ALL, 1)]));
    let numbers = |alone| FpmStats {
        routes4: 1,
        alone4: alone,
        ..FpmStats::default()
    };
    assert_eq!(rib.fpm_stats(), numbers(1));
    assert_eq!(rib.fpm_routes().count(), 1);
    // The kernel has the last word on a prefix that it has, whatever its metric.
    let kernel = Route {
        metric: 500,
        ..to("10.9.0.0/16", by(2))
    };
    rib.apply(Event::Route(kernel.clone(), RouteOp::Add));
    rib.commit();
    assert_eq!(links(&rib, "10.9.1.1"), Ok(vec![(ALL, 2)]));
    assert_eq!(rib.fpm_stats(), numbers(0));
    assert_eq!(rib.fpm_routes().count(), 0);
    // A dump of the kernel's routes takes nothing away that it did not tell.
    use raddle_rib::event::Sweep;
    rib.apply(Event::SweepBegin(Sweep::Routes4));
    rib.apply(Event::SweepEnd(Sweep::Routes4));
    rib.commit();
    assert_eq!(links(&rib, "10.9.1.1"), Ok(vec![(ALL, 1)]));
    assert_eq!(rib.fpm_stats(), numbers(1));
    rib.apply(Event::Route(kernel.clone(), RouteOp::Add));
    rib.apply(Event::RouteGone(kernel));
    assert_eq!(rib.fpm_stats(), numbers(1));
    tell(
        &mut rib,
        [Fpm::RouteGone {
            table: 254,
            dst: "10.9.0.0/16".parse().unwrap(),
        }],
    );
    assert_eq!(links(&rib, "10.9.1.1"), Err(Reason::NoRoute));
    assert_eq!(rib.fpm_stats(), FpmStats::default());
}

/// The kernel's IPv6 routes of one prefix and metric make it the kernel's; one by FPM does not.
#[test]
fn a_route_by_fpm_is_no_rival() {
    let mut rib = world();
    let by6 = |index: u32| {
        RouteTarget::Single(RouteNexthop {
            gateway: Some(ip("fd00::1")),
            index,
            ..RouteNexthop::default()
        })
    };
    for index in [1, 2] {
        rib.apply(Event::Neighbour(neighbour(index, ip("fd00::1"))));
    }
    rib.apply(Event::Route(to("fd09::/16", by6(2)), RouteOp::Add));
    tell(&mut rib, [Fpm::Route(to("fd09::/16", by6(1)))]);
    assert_eq!(links(&rib, "fd09::1"), Ok(vec![(ALL, 2)]));
}

#[test]
fn groups_may_be_told_before_their_members() {
    let mut rib = world();
    let via = |id| Fpm::Route(to("10.9.0.0/16", RouteTarget::Object(id)));
    tell(&mut rib, [group(16, &[(11, 1), (12, 3)]), via(16)]);
    assert_eq!(links(&rib, "10.9.1.1"), Err(Reason::NoRoute));
    tell(&mut rib, [single(11, 1)]);
    assert_eq!(links(&rib, "10.9.1.1"), Ok(vec![(ALL, 1)]));
    tell(&mut rib, [single(12, 2)]);
    let both = Ok(vec![(ALL / 4, 1), (ALL, 2)]);
    assert_eq!(links(&rib, "10.9.1.1"), both);
    // A member in another place, then none; the kernel's object of the same number is another.
    tell(&mut rib, [single(12, 3)]);
    assert_eq!(links(&rib, "10.9.1.1").unwrap()[1].1, 3);
    rib.apply(object(12, NexthopKind::Blackhole));
    tell(&mut rib, []);
    assert_eq!(links(&rib, "10.9.1.1").unwrap()[1].1, 3);
    tell(&mut rib, [Fpm::NexthopGone(11)]);
    assert_eq!(links(&rib, "10.9.1.1"), Ok(vec![(ALL, 3)]));
    // What others see of the route has its nexthops in itself.
    let seen = rib.routes4().next().unwrap();
    assert_eq!((seen.flags, seen.target), (ROUTE_FPM, by(3)));
    let drops = Nexthop::new(16, 2, NexthopKind::Blackhole);
    tell(&mut rib, [Fpm::Nexthop(drops)]);
    assert_eq!(links(&rib, "10.9.1.1"), Err(Reason::Blackhole));
    tell(&mut rib, [Fpm::NexthopGone(16)]);
    assert_eq!(links(&rib, "10.9.1.1"), Err(Reason::NoRoute));
    // Then it is no route: a shorter one leads there, and one of a later table.
    rib.apply(Event::Route(to("10.8.0.0/15", by(4)), RouteOp::Add));
    rib.commit();
    assert_eq!(links(&rib, "10.9.1.1"), Ok(vec![(ALL, 4)]));
    rib.apply(Event::RouteGone(to("10.8.0.0/15", by(4))));
    let later = Route {
        table: 253,
        ..to("10.9.0.0/16", by(2))
    };
    rib.apply(Event::Route(later.clone(), RouteOp::Add));
    rib.commit();
    assert_eq!(links(&rib, "10.9.1.1"), Ok(vec![(ALL, 2)]));
    tell(&mut rib, [single(16, 3)]);
    assert_eq!(links(&rib, "10.9.1.1"), Ok(vec![(ALL, 3)]));
    tell(&mut rib, [Fpm::NexthopGone(16)]);
    assert_eq!(links(&rib, "10.9.1.1"), Ok(vec![(ALL, 2)]));
    rib.apply(Event::RouteGone(later));
    rib.commit();
    // No group has more members than FRR can have.
    let members: Vec<(u32, u16)> = (0..300).map(|n| (12, n + 1)).collect();
    tell(&mut rib, [group(16, &members[..256])]);
    assert_eq!(links(&rib, "10.9.1.1").unwrap().len(), 256);
    tell(&mut rib, [group(16, &members)]);
    assert_eq!(
        (links(&rib, "10.9.1.1"), rib.fpm_stats().refused),
        (Err(Reason::NoRoute), 1)
    );
    // In a snapshot, too: it has none of FPM's objects, and must not find one of the kernel's.
    let json = serde_json::to_string(&rib.snapshot()).unwrap();
    let again: raddle_rib::Snapshot = serde_json::from_str(&json).unwrap();
    let mut other = Rib::detached();
    again.into_events().for_each(|event| other.apply(event));
    assert_eq!(rib.snapshot(), other.snapshot());
}

/// After a new connection what the daemon does not tell again is gone, and not before it has told everything.
#[test]
fn what_is_not_told_again_goes_with_the_resync() {
    let mut rib = world();
    let via = |prefix: &str, id| Fpm::Route(to(prefix, RouteTarget::Object(id)));
    let first = [
        single(11, 1),
        via("10.8.0.0/16", 11),
        single(12, 2),
        via("10.9.0.0/16", 12),
    ];
    tell(&mut rib, first);
    tell(
        &mut rib,
        [Fpm::ResyncBegin, single(11, 1), via("10.8.0.0/16", 11)],
    );
    assert_eq!(links(&rib, "10.9.1.1"), Ok(vec![(ALL, 2)]));
    tell(&mut rib, [Fpm::ResyncEnd]);
    assert_eq!(links(&rib, "10.8.1.1"), Ok(vec![(ALL, 1)]));
    assert_eq!(links(&rib, "10.9.1.1"), Err(Reason::NoRoute));
    assert_eq!((rib.fpm_stats().routes4, rib.fpm_stats().nexthops), (1, 1));
    // Nobody tells anything any more.
    tell(&mut rib, [Fpm::ResyncBegin, Fpm::ResyncEnd]);
    assert_eq!(rib.fpm_stats(), FpmStats::default());
    assert_eq!(links(&rib, "10.8.1.1"), Err(Reason::NoRoute));
}

/// The kernel does not know a SID of FPM's, and would take its packets for something else.
#[test]
fn sids_by_fpm_are_raddles_own_and_others_are_not() {
    let mut rib = world();
    let sid = RouteTarget::Single(RouteNexthop {
        index: 1,
        encap: Some(Seg6::Sid(Sid::new(Behaviour::End)).encode()),
        ..RouteNexthop::default()
    });
    let told = [
        Fpm::Route(to("fc00:1::/64", sid.clone())),
        Fpm::Route(to("10.9.0.0/16", by(1))),
    ];
    tell(&mut rib, told);
    let own = |rib: &Rib| {
        let segments: Vec<bool> = rib.segments().map(|(_, what, _)| what.own).collect();
        let memory = rib.memory();
        let entry = memory.link(1);
        let of = |value| memory.group_never_punts(value);
        let sid = of(memory.route6(entry.table6, 0xfc00_0001 << 96));
        (segments, sid, of(memory.route4(entry.table4, 0x0a09_0101)))
    };
    assert_eq!(own(&rib), (vec![true], true, false));
    // With its link gone it is still a SID.
    rib.apply(Event::LinkGone(1));
    rib.commit();
    assert_eq!(own(&rib).0, [true]);
    let kind = |rib: &Rib| rib.segments().next().unwrap().2.kind;
    assert_eq!(kind(&rib), segment_kind::END);
    // The kernel's own is the kernel's.
    rib.apply(Event::Link(link(1, true, true)));
    rib.apply(Event::Route(to("fc00:1::/64", sid), RouteOp::Add));
    rib.commit();
    assert_eq!(own(&rib), (vec![false], false, false));
}

/// Each is its route's own, also where all entries are made anew.
#[test]
fn sids_by_one_object_are_apart() {
    let mut rib = world();
    let kind = NexthopKind::Single {
        gateway: None,
        index: 1,
        encap: Some(Seg6::Sid(Sid::new(Behaviour::End)).encode()),
    };
    let via = |prefix: &str| Fpm::Route(to(prefix, RouteTarget::Object(13)));
    let object = Fpm::Nexthop(Nexthop::new(13, 10, kind));
    tell(&mut rib, [object, via("fc00:1::/64"), via("fc00:2::/64")]);
    assert_eq!(rib.segments().count(), 2);
    // Rules give the links another view.
    for (priority, table) in [(100, 100), (32_766, 254)] {
        rib.apply(Event::Rule(Rule {
            family: 6,
            priority,
            table,
            action: 1,
            ..Rule::default()
        }));
    }
    rib.commit();
    assert_eq!(rib.segments().count(), 2);
    compare(&rib, ["fc00:1::1", "fc00:2::1"].map(ip));
}

/// The kernel has taken its copy of the route away by then, and its groups have lost the member.
#[test]
fn nexthops_by_fpm_go_with_their_link_and_neighbour() {
    let mut rib = world();
    let via = Fpm::Route(to("10.9.0.0/16", RouteTarget::Object(16)));
    let told = [
        group(16, &[(11, 1), (12, 1)]),
        single(11, 1),
        single(12, 2),
        via,
    ];
    tell(&mut rib, told);
    tell(&mut rib, [Fpm::Route(to("10.8.0.0/16", by(1)))]);
    assert_eq!(links(&rib, "10.9.1.1").unwrap().len(), 2);
    rib.apply(Event::Link(link(1, true, false)));
    rib.commit();
    assert_eq!(links(&rib, "10.9.1.1"), Ok(vec![(ALL, 2)]));
    assert_eq!(links(&rib, "10.8.1.1"), Err(Reason::NoRoute));
    assert_eq!(rib.fpm_routes().count(), 1);
    // As in the kernel, which would go on to a shorter prefix.
    rib.apply(Event::Route(to("10.0.0.0/8", by(4)), RouteOp::Add));
    rib.commit();
    assert_eq!(links(&rib, "10.8.1.1"), Ok(vec![(ALL, 4)]));
    rib.apply(Event::Link(link(1, true, true)));
    let failed = raddle_rib::event::Neighbour {
        state: 0x20,
        mac: None,
        ..neighbour(2, gateway(2))
    };
    rib.apply(Event::Neighbour(failed));
    rib.commit();
    assert_eq!(links(&rib, "10.9.1.1"), Ok(vec![(ALL, 1)]));
    assert_eq!(links(&rib, "10.8.1.1"), Ok(vec![(ALL, 1)]));
}

/// What the kernel has as well costs no look at an entry.
#[test]
fn what_stands_behind_the_kernel_changes_nothing() {
    let mut rib = world();
    let tables = |n: u8| format!("10.{n}.0.0/16");
    for n in 1..100 {
        rib.apply(Event::Route(to(&tables(n), by(2)), RouteOp::Add));
    }
    rib.commit();
    let all = (1..100).map(|n| Fpm::Route(to(&tables(n), RouteTarget::Object(11))));
    for told in all.chain([single(11, 1)]) {
        rib.apply(Event::Fpm(told));
    }
    assert_eq!(rib.commit().entries, 0);
    rib.apply(Event::Fpm(single(11, 3)));
    assert_eq!(rib.commit().entries, 0);
    assert_eq!(rib.fpm_gateways().count(), 0);
}

#[test]
fn other_encapsulations_are_the_kernels() {
    let mut rib = world();
    let mpls = RouteNexthop {
        encap: Some(raddle_rib::event::Encap {
            kind: 1,
            data: Vec::new(),
        }),
        ..hop(1)
    };
    tell(
        &mut rib,
        [Fpm::Route(to("10.9.0.0/16", RouteTarget::Single(mpls)))],
    );
    assert_eq!(links(&rib, "10.9.1.1"), Err(Reason::Encap));
    let memory = rib.memory();
    assert!(!memory.group_never_punts(memory.route4(memory.link(1).table4, 0x0a09_0101)));
}

/// The kernel would say so to the sender, but it does not have the route, and may have another.
#[test]
fn refusals_by_fpm_drop() {
    let mut rib = world();
    rib.apply(Event::Route(to("10.0.0.0/8", by(4)), RouteOp::Add));
    for (kind, seen) in [
        (RouteKind::Unreachable, Err(Reason::Blackhole)),
        (RouteKind::Prohibit, Err(Reason::Blackhole)),
        (RouteKind::Blackhole, Err(Reason::Blackhole)),
        (RouteKind::Throw, Ok(vec![(ALL, 4)])),
    ] {
        let route = Route {
            kind,
            ..to("10.9.0.0/16", RouteTarget::None)
        };
        tell(&mut rib, [Fpm::Route(route)]);
        assert_eq!(links(&rib, "10.9.1.1"), seen, "{kind:?}");
    }
}

/// A group for a forwarding database is for no route: one that names it is none.
#[test]
fn groups_for_forwarding_databases_lead_nowhere() {
    let mut rib = world();
    rib.apply(Event::Route(to("10.0.0.0/8", by(4)), RouteOp::Add));
    let Fpm::Nexthop(object) = group(16, &[(11, 1), (12, 1)]) else {
        unreachable!()
    };
    let via = Fpm::Route(to("10.9.0.0/16", RouteTarget::Object(16)));
    let told = Fpm::Nexthop(Nexthop {
        fdb: true,
        ..object
    });
    tell(&mut rib, [via, told, single(11, 1), single(12, 2)]);
    assert_eq!(links(&rib, "10.9.1.1"), Ok(vec![(ALL, 4)]));
}

#[test]
fn gateways_of_fpm_are_named() {
    let mut rib = world();
    let via = Fpm::Route(to("10.9.0.0/16", RouteTarget::Object(16)));
    tell(
        &mut rib,
        [
            via,
            group(16, &[(11, 1), (12, 1)]),
            single(11, 1),
            single(12, 2),
        ],
    );
    let mut gateways: Vec<_> = rib.fpm_gateways().collect();
    gateways.sort_unstable();
    assert_eq!(gateways, [(1, gateway(1)), (2, gateway(2))]);
}
