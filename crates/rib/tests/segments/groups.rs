//! Groups with segments among their members.

use std::net::Ipv6Addr;

use raddle_image::{ADJ_SEGMENT, Group, Reason};
use raddle_rib::Rib;
use raddle_rib::event::{Event, GroupMember, NexthopKind, RouteNexthop, RouteOp, RouteTarget};
use raddle_rib::seg6::{Encaps, Mode, Seg6};

use crate::common::{link, neighbour, object};
use crate::world::{CAPACITY, add, group, hop, ip, number, route, start};

#[test]
fn members_of_groups_may_encapsulate() {
    let mut rib = start(&CAPACITY);
    let list = |n: u32| {
        let segments = [Ipv6Addr::new(0xfc00, n as u16, 0, 0, 0, 0, 0, 0)];
        Seg6::Encaps(Encaps::new(Mode::Encap, &segments).unwrap())
    };
    rib.apply(Event::Neighbour(neighbour(4, ip("fd01:4::9").into())));
    let plain = RouteNexthop {
        gateway: Some(ip("fd01:4::9").into()),
        index: 4,
        weight: 2,
        ..RouteNexthop::default()
    };
    let hops = vec![hop(2, list(1)), hop(3, list(2)), plain];
    add(&mut rib, route("fd99::/64", RouteTarget::Multipath(hops)));
    let members = |rib: &Rib| -> Vec<(u32, u8)> {
        let Group::Threshold { first, count, .. } = group(rib, "fd99::1") else {
            panic!("{:?}", group(rib, "fd99::1"))
        };
        (first..first + u32::from(count))
            .map(|place| {
                let adjacency = rib.memory().adjacency(rib.memory().member(place).adjacency);
                (adjacency.index, adjacency.state)
            })
            .collect()
    };
    let all = members(&rib);
    assert_eq!(all.len(), 3);
    assert_eq!((all[0].1, all[1].1), (ADJ_SEGMENT, ADJ_SEGMENT));
    assert_ne!(all[0].0, all[1].0);
    assert_eq!(rib.usage().segments, 2);
    rib.apply(Event::Link(link(3, false, false)));
    rib.commit();
    assert_eq!(members(&rib).len(), 2);
    assert_eq!(rib.usage().segments, 1);

    // Nexthop objects, alone and in a group.
    rib.apply(Event::Link(link(3, true, true)));
    for (id, index) in [(1, 2), (2, 3)] {
        let kind = NexthopKind::Single {
            gateway: None,
            index,
            encap: Some(list(10 + id).encode()),
        };
        rib.apply(object(id, kind));
    }
    let group_members = [1, 2].map(|id| GroupMember { id, weight: 1 });
    rib.apply(object(3, NexthopKind::Group(group_members.to_vec())));
    add(&mut rib, route("fd98::/64", RouteTarget::Object(1)));
    add(&mut rib, route("fd97::/64", RouteTarget::Object(3)));
    let alone = number(&rib, "fd98::1");
    let Group::Threshold { first, .. } = group(&rib, "fd97::1") else {
        panic!("{:?}", group(&rib, "fd97::1"))
    };
    let adjacency = rib.memory().member(first).adjacency;
    assert_eq!(rib.memory().adjacency(adjacency).index, alone);
    // The group shrinks to the other.
    rib.apply(Event::Link(link(2, true, false)));
    rib.commit();
    assert_eq!(group(&rib, "fd98::1"), Group::Kernel(Reason::NoRoute));
    assert!(matches!(group(&rib, "fd97::1"), Group::Segment(_)));
}

/// A set of lists by one gateway: the kernel tells its nexthops apart by their encapsulations
/// (`rt6_duplicate_nexthop`).
#[test]
fn lists_by_one_gateway_go_one_by_one() {
    let mut rib = start(&CAPACITY);
    let by = |list: &str| RouteNexthop {
        gateway: Some("fd01:2::2".parse().unwrap()),
        ..hop(
            2,
            Seg6::Encaps(Encaps::new(Mode::Encap, &[ip(list)]).unwrap()),
        )
    };
    let several = |lists: &[&str]| {
        let hops = lists.iter().map(|list| by(list)).collect();
        route("fc00::1/128", RouteTarget::Multipath(hops))
    };
    let told = |rib: &Rib| match rib.routes6().next().unwrap().target {
        RouteTarget::Single(hop) => vec![hop],
        RouteTarget::Multipath(hops) => hops,
        other => panic!("{other:?}"),
    };
    add(&mut rib, several(&["fc01::1", "fc01::2"]));
    // Appended: told first, chosen last.
    let three = several(&["fc01::3", "fc01::1", "fc01::2"]);
    rib.apply(Event::Route(three, RouteOp::Append));
    assert_eq!(told(&rib), ["fc01::1", "fc01::2", "fc01::3"].map(by));
    let gone = |list| route("fc00::1/128", RouteTarget::Single(by(list)));
    rib.apply(Event::RouteGone(gone("fc01::2")));
    assert_eq!(told(&rib), ["fc01::1", "fc01::3"].map(by));
    rib.apply(Event::RouteGone(gone("fc01::1")));
    assert_eq!(told(&rib), [by("fc01::3")]);
    // Who does not say which means all.
    let mut all = gone("fc01::3");
    if let RouteTarget::Single(hop) = &mut all.target {
        hop.encap = None;
    }
    rib.apply(Event::RouteGone(all));
    assert_eq!(rib.routes6().count(), 0);
}
