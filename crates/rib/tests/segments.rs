//! Routes, nexthops and rules of SRv6: what engines read of them.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[allow(dead_code, reason = "others use the rest")]
mod common;

use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex};

use common::{link, neighbour, object};
use raddle_rib::event::{
    Address, DeviceSettings, Event, GroupMember, HmacAlgorithm, HmacKey, NexthopKind, ROUTE_OWN,
    Route, RouteNexthop, RouteOp, RouteTarget, Settings,
};
use raddle_rib::image::{
    ADJ_SEGMENT, Capacity, Group, LINK_TABLE, Segment, VlanEntry, flavours, link_flags,
    segment_flags, segment_kind,
};
use raddle_rib::seg6::{Behaviour, Encaps, Mode, Seg6, Sid, TableRef};
use raddle_rib::{Ports, Reason, Rib};

const CAPACITY: Capacity = Capacity {
    nodes4: 1 << 12,
    leaves4: 1 << 13,
    words6: 1 << 14,
    groups: 256,
    members: 256,
    adjacencies: 64,
    segments: 16,
    templates: 128,
};

fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn settings() -> Settings {
    Settings {
        hash_seed: 7,
        ..Settings::default()
    }
}

fn own_address(index: u32, text: &str) -> Event {
    Event::Address(Address {
        index,
        local: text.parse().unwrap(),
        peer: None,
        prefix_len: 64,
        scope: 0,
        flags: 0,
        broadcast: None,
        label: None,
    })
}

/// Links 1 to 4, each with an address.
fn start(capacity: &Capacity) -> Rib {
    let mut rib = common::new_rib(capacity);
    rib.apply(Event::Settings(settings()));
    for index in 1..=4 {
        rib.apply(Event::Link(link(index, true, true)));
        rib.apply(own_address(index, &format!("fd01:{index}::1")));
    }
    rib.commit();
    rib
}

fn hop(index: u32, what: Seg6) -> RouteNexthop {
    RouteNexthop {
        index,
        encap: Some(what.encode()),
        ..RouteNexthop::default()
    }
}

fn route(dst: &str, target: RouteTarget) -> Route {
    Route {
        dst: dst.parse().unwrap(),
        metric: 1024,
        target,
        ..Route::default()
    }
}

fn single(dst: &str, what: Seg6) -> Route {
    route(dst, RouteTarget::Single(hop(2, what)))
}

fn sid(dst: &str, behaviour: Behaviour) -> Route {
    single(dst, Seg6::Sid(Sid::new(behaviour)))
}

fn encaps(dst: &str, mode: Mode, segments: &[&str]) -> Route {
    let segments: Vec<Ipv6Addr> = segments.iter().map(|s| ip(s)).collect();
    single(dst, Seg6::Encaps(Encaps::new(mode, &segments).unwrap()))
}

fn add(rib: &mut Rib, route: Route) {
    rib.apply(Event::Route(route, RouteOp::Add));
    rib.commit();
}

/// What packets from link 1 to this address find.
fn group(rib: &Rib, dst: &str) -> Group {
    let memory = rib.memory();
    let table = memory.link(1).table6;
    memory.group(memory.route6(table, ip(dst).to_bits()))
}

fn number(rib: &Rib, dst: &str) -> u32 {
    match group(rib, dst) {
        Group::Segment(number) => number,
        other => panic!("{dst} leads to {other:?}"),
    }
}

/// The segment, and whether it is what the mirror says.
fn segment(rib: &Rib, dst: &str) -> Segment {
    let number = number(rib, dst);
    let segment = rib.memory().segment(number);
    let (_, told) = rib.segment(number).unwrap();
    assert_eq!(
        (segment.kind, segment.flags, segment.reason),
        (told.kind, told.flags, told.reason)
    );
    segment
}

fn template(rib: &Rib, segment: &Segment) -> Vec<u8> {
    let words = segment.template..segment.template + u32::from(segment.size) / 8;
    let word = |place| rib.memory().template_word(place).to_ne_bytes();
    words.flat_map(word).collect()
}

#[test]
fn behaviours_become_segments() {
    let mut rib = start(&CAPACITY);
    let mut end = Sid::new(Behaviour::End);
    end.flavours = flavours::NEXT_CSID | flavours::PSP;
    (end.block, end.csid) = (40, 24);
    add(&mut rib, single("fc00::1/128", Seg6::Sid(end)));
    let x = Behaviour::X {
        nh6: ip("fd01:3::9"),
        oif: None,
    };
    add(&mut rib, sid("fc00::2/128", x));
    add(&mut rib, sid("fc00::3/128", Behaviour::Dx2 { oif: 3 }));
    let dx4 = Behaviour::Dx4 {
        nh4: "10.0.0.9".parse().unwrap(),
    };
    let mut quiet = Sid::new(dx4);
    quiet.counters = false;
    add(&mut rib, single("fc00::4/128", Seg6::Sid(quiet)));

    let end = segment(&rib, "fc00::1");
    assert_eq!(end.kind, segment_kind::END);
    // PSP is not heeded beside it.
    assert_eq!(end.flavours, flavours::NEXT_CSID);
    assert_eq!((end.block, end.csid), (5, 3));
    assert_eq!(end.flags, segment_flags::COUNTERS);
    assert_eq!((end.table4, end.table6), (LINK_TABLE, LINK_TABLE));
    assert_ne!(end.salt, 0);
    let x = segment(&rib, "fc00::2");
    assert_eq!(
        (x.kind, x.target),
        (segment_kind::END_X, ip("fd01:3::9").octets())
    );
    let dx2 = segment(&rib, "fc00::3");
    assert_eq!(
        (dx2.kind, dx2.out, dx2.mtu),
        (segment_kind::END_DX2, 3, 1500)
    );
    let dx4 = segment(&rib, "fc00::4");
    assert_eq!((dx4.kind, dx4.flags), (segment_kind::END_DX4, 0));
    assert_eq!(dx4.target[..5], [10, 0, 0, 9, 0]);
    for (dst, behaviour) in [
        ("fc00::5", Behaviour::Other(15)),
        (
            "fc00::6",
            Behaviour::X {
                nh6: ip("fe80::1"),
                oif: Some(3),
            },
        ),
    ] {
        add(&mut rib, sid(&format!("{dst}/128"), behaviour));
        assert_eq!(group(&rib, dst), Group::Kernel(Reason::Encap));
    }
}

#[test]
fn each_sid_counts_for_itself_and_equal_lists_together() {
    let mut rib = start(&CAPACITY);
    for n in 1..4 {
        add(&mut rib, sid(&format!("fc00::{n}/128"), Behaviour::End));
        add(
            &mut rib,
            encaps(&format!("fd99:{n}::/64"), Mode::Encap, &["fc00:9::"]),
        );
    }
    let sids: Vec<u32> = (1..4)
        .map(|n| number(&rib, &format!("fc00::{n}")))
        .collect();
    assert!(sids[0] != sids[1] && sids[1] != sids[2] && sids[0] != sids[2]);
    let lists: Vec<u32> = (1..4)
        .map(|n| number(&rib, &format!("fd99:{n}::5")))
        .collect();
    assert!(lists[0] == lists[1] && lists[1] == lists[2]);
    assert_eq!(rib.usage().segments, 4);
    for n in 1..4 {
        rib.apply(Event::RouteGone(sid(
            &format!("fc00::{n}/128"),
            Behaviour::End,
        )));
    }
    rib.commit();
    assert_eq!(rib.usage().segments, 1);
}

#[test]
fn a_replaced_sid_starts_anew_and_a_dumped_one_does_not() {
    let forgotten = Arc::new(Mutex::new(Vec::new()));
    let mut rib = start(&CAPACITY);
    let noted = Arc::clone(&forgotten);
    rib.on_new_segment(move |number| noted.lock().unwrap().push(number));
    let route = sid("fc00::1/128", Behaviour::End);
    add(&mut rib, route.clone());
    let first = number(&rib, "fc00::1");
    // The same route with what it has counted, as a dump tells it.
    let mut told = route.clone();
    if let RouteTarget::Single(hop) = &mut told.target {
        let data = &mut hop.encap.as_mut().unwrap().data;
        let end = data.len();
        data[end - 8..].fill(7);
    }
    add(&mut rib, told.clone());
    assert_eq!(number(&rib, "fc00::1"), first);
    rib.apply(Event::Route(route.clone(), RouteOp::Replace));
    rib.commit();
    let second = number(&rib, "fc00::1");
    assert_ne!(second, first);
    // Gone and back between two commits.
    rib.apply(Event::RouteGone(route.clone()));
    rib.apply(Event::Route(route, RouteOp::Add));
    rib.commit();
    let third = number(&rib, "fc00::1");
    assert_ne!(third, second);
    assert_eq!(*forgotten.lock().unwrap(), [first, second, third]);
}

#[test]
fn an_encapsulation_has_its_header() {
    let mut rib = start(&CAPACITY);
    let list = ["fc00:1::", "fc00:2::"];
    let modes = [
        (Mode::Encap, segment_kind::ENCAPS, 40 + 8 + 32),
        (Mode::EncapRed, segment_kind::ENCAPS, 40 + 8 + 16),
        (Mode::L2Encap, segment_kind::ENCAPS_L2, 40 + 8 + 32),
        (Mode::L2EncapRed, segment_kind::ENCAPS_L2, 40 + 8 + 16),
        (Mode::Inline, segment_kind::INSERT, 8 + 48),
    ];
    for (mode, kind, size) in modes {
        add(&mut rib, encaps("fd99::/64", mode, &list));
        let segment = segment(&rib, "fd99::1");
        assert_eq!(
            (segment.kind, usize::from(segment.size)),
            (kind, size),
            "{mode}"
        );
        let bytes = template(&rib, &segment);
        let srh = match mode {
            Mode::Inline => &bytes[..],
            _ => {
                assert_eq!(bytes[..8], [0x60, 0, 0, 0, 0, 0, 43, 64]);
                // Of link 2, by which the route goes.
                assert_eq!(bytes[8..24], ip("fd01:2::1").octets());
                assert_eq!(bytes[24..40], ip("fc00:1::").octets());
                &bytes[40..]
            }
        };
        let reduced = mode.is_reduced();
        assert_eq!(segment.flags & segment_flags::REDUCED != 0, reduced);
        let last = match mode {
            Mode::Inline => 2,
            _ => 1,
        };
        let length = (srh.len() / 8 - 1) as u8;
        let entries = last - u8::from(reduced);
        assert_eq!(srh[..8], [0, length, 4, last, entries, 0, 0, 0], "{mode}");
        rib.apply(Event::RouteGone(encaps("fd99::/64", mode, &list)));
    }
    add(&mut rib, encaps("fd99::/64", Mode::EncapRed, &list[..1]));
    let one = segment(&rib, "fd99::1");
    assert_eq!((one.size, one.flags & segment_flags::HAS_SRH), (40, 0));
    assert_eq!(template(&rib, &one)[6], 0);
}

#[test]
fn the_source_follows_settings_and_addresses() {
    let mut rib = start(&CAPACITY);
    add(&mut rib, encaps("fd99::/64", Mode::Encap, &["fc00:9::"]));
    let first = number(&rib, "fd99::1");
    let source = |rib: &Rib| {
        let bytes = template(rib, &segment(rib, "fd99::1"));
        Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[8..24]).unwrap())
    };
    assert_eq!(source(&rib), ip("fd01:2::1"));
    rib.apply(Event::Settings(Settings {
        tunsrc: Some(ip("fd07::7")),
        seg6_flowlabel: 1,
        ..settings()
    }));
    rib.commit();
    assert_eq!(source(&rib), ip("fd07::7"));
    let flags = segment(&rib, "fd99::1").flags;
    assert_ne!(flags & segment_flags::LABEL_FROM_FLOW, 0);
    rib.apply(Event::Settings(settings()));
    rib.apply(own_address(2, "fd01:2::2"));
    rib.commit();
    // The link's latest.
    assert_eq!(source(&rib), ip("fd01:2::2"));
    assert_eq!(number(&rib, "fd99::1"), first);
    for index in 1..=4 {
        for last in 1..=2 {
            let text = format!("fd01:{index}::{last}");
            let Event::Address(address) = own_address(index, &text) else {
                unreachable!()
            };
            rib.apply(Event::AddressGone(address));
        }
    }
    rib.commit();
    let none = segment(&rib, "fd99::1");
    assert_eq!(
        (none.kind, none.reason),
        (segment_kind::KERNEL, Reason::Encap as u8)
    );
}

#[test]
fn out_links_come_and_go() {
    let mut rib = start(&CAPACITY);
    add(&mut rib, sid("fc00::1/128", Behaviour::Dx2 { oif: 3 }));
    let own = Route {
        flags: ROUTE_OWN,
        ..single(
            "fc00::2/128",
            Seg6::Sid(Sid::new(Behaviour::Dx2v {
                vlans: vec![(10, 3), (20, 4)],
            })),
        )
    };
    add(&mut rib, own);
    let entries = |rib: &Rib| -> Vec<VlanEntry> {
        let segment = segment(rib, "fc00::2");
        assert_eq!(segment.out, 2);
        let places = segment.template..segment.template + segment.out;
        places
            .map(|place| VlanEntry::from_word(rib.memory().template_word(place)))
            .collect()
    };
    let entry = |vlan, mtu, out| VlanEntry { vlan, mtu, out };
    assert_eq!(entries(&rib), [entry(10, 1500, 3), entry(20, 1500, 4)]);
    rib.apply(Event::Link(link(3, false, false)));
    rib.commit();
    let down = segment(&rib, "fc00::1");
    assert_eq!(
        (down.kind, down.reason),
        (segment_kind::KERNEL, Reason::OutLink as u8)
    );
    assert_eq!(entries(&rib), [entry(10, 0, 3), entry(20, 1500, 4)]);
    let mut wider = link(3, true, true);
    wider.mtu = 9000;
    rib.apply(Event::Link(wider));
    rib.commit();
    assert_eq!(segment(&rib, "fc00::1").mtu, 9000);
    rib.set_ports(Ports {
        enabled: (1..=4).collect(),
        out: [1, 2].into(),
    });
    rib.commit();
    assert_eq!(segment(&rib, "fc00::1").kind, segment_kind::KERNEL);
}

#[test]
fn neighbours_do_not_touch_segments() {
    let graces = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&graces);
    let memory = Arc::new(raddle_rib::image::Memory::heap(&CAPACITY));
    let mut rib = Rib::new(memory, &CAPACITY, move || *counted.lock().unwrap() += 1);
    rib.apply(Event::Settings(settings()));
    for index in 1..=4 {
        rib.apply(Event::Link(link(index, true, true)));
    }
    rib.set_ports(Ports {
        enabled: (1..=4).collect(),
        out: (1..=4).collect(),
    });
    rib.apply(own_address(2, "fd01:2::1"));
    rib.apply(Event::Route(
        encaps("fd99::/64", Mode::Encap, &["fc00:9::"]),
        RouteOp::Add,
    ));
    rib.commit();
    let (before, waited) = (segment(&rib, "fd99::1"), *graces.lock().unwrap());
    for n in 0..20u16 {
        let dst = Ipv6Addr::new(0xfd01, 2, 0, 0, 0, 0, 0, n);
        rib.apply(Event::Neighbour(neighbour(2, dst.into())));
        rib.commit();
    }
    assert_eq!(segment(&rib, "fd99::1"), before);
    assert_eq!(*graces.lock().unwrap(), waited);
}

#[test]
fn tables_are_made_on_demand_and_dropped() {
    let mut rib = start(&CAPACITY);
    let dt46 = |table| Behaviour::Dt46 {
        table: TableRef::Table(table),
    };
    add(&mut rib, sid("fc00::1/128", dt46(100)));
    let before = segment(&rib, "fc00::1");
    let memory = Arc::clone(rib.memory());
    let lookup6 = |table| memory.group(memory.route6(table, ip("fd50::1").to_bits()));
    assert_eq!(before.kind, segment_kind::END_DT46);
    assert_eq!(lookup6(before.table6), Group::Kernel(Reason::NoRoute));
    // A SID in that table that looks in another.
    let mut inner = sid("fd50::/64", Behaviour::T { table: 200 });
    inner.table = 100;
    add(&mut rib, inner.clone());
    let Group::Segment(second) = lookup6(before.table6) else {
        panic!("{:?}", lookup6(before.table6))
    };
    let second = memory.segment(second);
    assert_eq!(second.kind, segment_kind::END_T);
    assert_ne!(second.table6, before.table6);
    let mut blackhole = route("fd50::/64", RouteTarget::None);
    (blackhole.table, blackhole.kind) = (200, raddle_rib::event::RouteKind::Blackhole);
    add(&mut rib, blackhole);
    assert_eq!(lookup6(second.table6), Group::Kernel(Reason::Blackhole));
    assert_eq!(segment(&rib, "fc00::1").table6, before.table6);
    // The first goes, and with its table the second.
    assert_eq!(rib.usage().segments, 2);
    rib.apply(Event::RouteGone(sid("fc00::1/128", dt46(100))));
    rib.commit();
    assert_eq!(rib.usage().segments, 0);
    // Two tables of IPv6 that nobody looks in any more are free again.
    for table in 0..2000 {
        add(&mut rib, sid("fc00::1/128", dt46(table)));
        let now = segment(&rib, "fc00::1");
        assert_eq!(now.kind, segment_kind::END_DT46, "{table}");
        rib.apply(Event::RouteGone(sid("fc00::1/128", dt46(table))));
    }
    // A VRF's table needs a VRF.
    let vrf = Behaviour::Dt4 {
        table: TableRef::Vrf(10),
    };
    add(&mut rib, sid("fc00::7/128", vrf));
    assert_eq!(segment(&rib, "fc00::7").kind, segment_kind::KERNEL);
    let mut device = link(4, true, true);
    device.kind = Some("vrf".into());
    rib.apply(Event::Link(device));
    rib.commit();
    assert_eq!(segment(&rib, "fc00::7").kind, segment_kind::END_DT4);
}

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

#[test]
fn what_does_not_fit_is_the_kernels_until_it_does() {
    let mut rib = start(&Capacity {
        segments: 3,
        templates: 16,
        ..CAPACITY
    });
    for n in 1..=5 {
        add(&mut rib, sid(&format!("fc00::{n}/128"), Behaviour::End));
    }
    assert!(rib.usage().full);
    let kernels = |rib: &Rib| {
        let is_full =
            |n: &u32| group(rib, &format!("fc00::{n}")) == Group::Kernel(Reason::ImageFull);
        (1..=5).filter(is_full).count()
    };
    assert_eq!(kernels(&rib), 2);
    for n in 1..=3 {
        rib.apply(Event::RouteGone(sid(
            &format!("fc00::{n}/128"),
            Behaviour::End,
        )));
    }
    rib.commit();
    // What had no room is tried again with the next change.
    rib.commit();
    assert!(!rib.usage().full);
    assert!(matches!(group(&rib, "fc00::5"), Group::Segment(_)));
    // One template takes all the room.
    let lists = [
        ["fc00:1::", "fc00:2::", "fc00:3::"],
        ["fc00:3::", "fc00:2::", "fc00:1::"],
    ];
    add(&mut rib, encaps("fd99::/64", Mode::Encap, &lists[0]));
    assert_eq!(segment(&rib, "fd99::1").kind, segment_kind::ENCAPS);
    rib.apply(Event::RouteGone(sid("fc00::4/128", Behaviour::End)));
    rib.commit();
    add(&mut rib, encaps("fd98::/64", Mode::Encap, &lists[1]));
    let full = segment(&rib, "fd98::1");
    assert_eq!(
        (full.kind, full.reason),
        (segment_kind::KERNEL, Reason::ImageFull as u8)
    );
    assert!(rib.usage().full);
    rib.apply(Event::RouteGone(encaps(
        "fd99::/64",
        Mode::Encap,
        &lists[0],
    )));
    rib.commit();
    // What has made room is only given back with this commit, and nothing is dirty behind it.
    assert!(rib.lacks_room() && !rib.is_dirty());
    rib.commit();
    assert!(!rib.lacks_room());
    assert_eq!(segment(&rib, "fd98::1").kind, segment_kind::ENCAPS);
    assert!(!rib.usage().full);
}

#[test]
fn own_routes_come_first_and_stay() {
    let mut rib = start(&CAPACITY);
    let own = Route {
        flags: ROUTE_OWN,
        ..sid("fc00::1/128", Behaviour::End)
    };
    rib.apply(Event::Route(own.clone(), RouteOp::Add));
    add(&mut rib, sid("fc00::1/128", Behaviour::T { table: 254 }));
    let kind = |rib: &Rib| segment(rib, "fc00::1").kind;
    assert_eq!(kind(&rib), segment_kind::END);
    assert_ne!(segment(&rib, "fc00::1").flags & segment_flags::OWN, 0);
    // A dump that knows neither.
    use raddle_rib::event::Sweep;
    rib.apply(Event::SweepBegin(Sweep::Routes6));
    rib.apply(Event::SweepEnd(Sweep::Routes6));
    rib.commit();
    assert_eq!(kind(&rib), segment_kind::END);
    add(&mut rib, sid("fc00::1/128", Behaviour::T { table: 254 }));
    rib.apply(Event::RouteGone(sid(
        "fc00::1/128",
        Behaviour::T { table: 254 },
    )));
    rib.commit();
    assert_eq!(kind(&rib), segment_kind::END);
    rib.apply(Event::RouteGone(own));
    rib.commit();
    assert_eq!(group(&rib, "fc00::1"), Group::Kernel(Reason::NoRoute));
    assert_eq!(rib.routes6().count(), 0);
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

/// The link says only where an outer source comes from: without it the kernel, which knows nothing of them,
/// would get their packets.
#[test]
fn own_routes_outlive_their_link() {
    let mut rib = start(&CAPACITY);
    for route in [
        sid("fc00::1/128", Behaviour::End),
        encaps("fc00::2/128", Mode::Encap, &["fc01::1"]),
        encaps("fc00::4/128", Mode::Encap, &["fc01::4"]),
    ] {
        let flags = match route.dst.to_string().as_str() {
            "fc00::4/128" => 0,
            _ => ROUTE_OWN,
        };
        rib.apply(Event::Route(Route { flags, ..route }, RouteOp::Add));
    }
    let lists = ["fc01::1", "fc01::2"].map(|list| {
        let encaps = Encaps::new(Mode::Encap, &[ip(list)]).unwrap();
        hop(2, Seg6::Encaps(encaps))
    });
    let spread = Route {
        flags: ROUTE_OWN,
        ..route("fc00::3/128", RouteTarget::Multipath(lists.into()))
    };
    add(&mut rib, spread);
    let before = ["fc00::1", "fc00::2", "fc00::3"].map(|dst| group(&rib, dst));
    rib.apply(Event::Link(link(2, false, false)));
    rib.commit();
    let after = ["fc00::1", "fc00::2", "fc00::3"].map(|dst| group(&rib, dst));
    assert_eq!(segment(&rib, "fc00::1").kind, segment_kind::END);
    assert_eq!(segment(&rib, "fc00::2").kind, segment_kind::ENCAPS);
    assert!(
        matches!(after[2], Group::Threshold { count: 2, .. }),
        "{after:?}"
    );
    assert_eq!(before, after);
    // The kernel's go with it.
    assert_eq!(group(&rib, "fc00::4"), Group::Kernel(Reason::OutLink));
    rib.apply(Event::LinkGone(2));
    rib.commit();
    assert_eq!(segment(&rib, "fc00::2").kind, segment_kind::ENCAPS);
}

/// What a group of raddle's own does not forward the kernel must not get: it would send it as it is.
#[test]
fn own_groups_say_so_whatever_becomes_of_them() {
    let list = |n: u16| {
        let encaps = Encaps::new(Mode::Encap, &[Ipv6Addr::new(0xfc01, 0, 0, 0, 0, 0, 0, n)]);
        hop(2, Seg6::Encaps(encaps.unwrap()))
    };
    let spread = |dst: &str, flags| Route {
        flags,
        ..route(dst, RouteTarget::Multipath(vec![list(1), list(2)]))
    };
    let is_own = |rib: &Rib, dst: &str| {
        let value = rib
            .memory()
            .route6(rib.memory().link(1).table6, ip(dst).to_bits());
        rib.memory().group_is_own(value)
    };
    let mut rib = start(&CAPACITY);
    add(&mut rib, spread("fc00::1/128", ROUTE_OWN));
    add(&mut rib, spread("fc00::2/128", 0));
    let several = |group| matches!(group, Group::Threshold { count: 2, .. });
    for dst in ["fc00::1", "fc00::2"] {
        assert!(several(group(&rib, dst)), "{dst}");
        assert_eq!(is_own(&rib, dst), dst == "fc00::1");
    }
    for (room, single) in [
        (
            Capacity {
                members: 1,
                ..CAPACITY
            },
            false,
        ),
        (
            Capacity {
                segments: 1,
                ..CAPACITY
            },
            false,
        ),
        (
            Capacity {
                segments: 0,
                ..CAPACITY
            },
            true,
        ),
    ] {
        let mut rib = start(&room);
        let own = match single {
            false => spread("fc00::1/128", ROUTE_OWN),
            true => Route {
                flags: ROUTE_OWN,
                ..encaps("fc00::1/128", Mode::Encap, &["fc01::1"])
            },
        };
        add(&mut rib, own);
        assert_eq!(group(&rib, "fc00::1"), Group::Kernel(Reason::ImageFull));
        assert!(is_own(&rib, "fc00::1"));
    }
}

/// A reader that has seen a group before it went finds what it led to, and may not hand over what is not the
/// kernel's either.
#[test]
fn what_is_left_of_own_segments_is_own() {
    let mut rib = start(&CAPACITY);
    let lists = ["fc01::1", "fc01::2"].map(|list| {
        let encaps = Encaps::new(Mode::Encap, &[ip(list)]).unwrap();
        hop(2, Seg6::Encaps(encaps))
    });
    let own = Route {
        flags: ROUTE_OWN,
        ..route("fc00::3/128", RouteTarget::Multipath(lists.into()))
    };
    add(&mut rib, own.clone());
    let Group::Threshold { first, .. } = group(&rib, "fc00::3") else {
        panic!("not a group");
    };
    let member = rib.memory().member(first).adjacency;
    let number = rib.memory().adjacency(member).index;
    rib.apply(Event::RouteGone(own));
    rib.commit();
    let adjacency = rib.memory().adjacency(member);
    assert_eq!((adjacency.state, adjacency.index), (ADJ_SEGMENT, number));
    let segment = rib.memory().segment(number);
    assert_eq!(segment.kind, segment_kind::KERNEL);
    assert_eq!(segment.flags, segment_flags::OWN);
}

#[test]
fn hmacs_are_in_the_template_when_the_key_is_known() {
    let mut rib = start(&CAPACITY);
    let mut srh = Encaps::new(Mode::Encap, &[ip("fc00:1::"), ip("fc00:2::")])
        .unwrap()
        .srh()
        .to_vec();
    (srh[1], srh[5]) = (srh[1] + 5, 8);
    srh.extend([5, 38, 0, 0, 0, 0, 0, 42]);
    srh.extend([0; 32]);
    let what = |mode| Seg6::Encaps(Encaps::with_srh(mode, srh.clone()).unwrap());
    add(&mut rib, single("fd99::/64", what(Mode::Encap)));
    add(&mut rib, single("fd98::/64", what(Mode::EncapRed)));
    add(&mut rib, single("fd97::/64", what(Mode::Inline)));
    let kind = |rib: &Rib, dst| segment(rib, dst).kind;
    assert_eq!(kind(&rib, "fd99::1"), segment_kind::KERNEL);
    let key = |id, secret: &[u8]| HmacKey {
        id,
        algorithm: HmacAlgorithm::Sha256,
        secret: secret.to_vec(),
    };
    rib.apply(Event::HmacKeys(vec![key(41, b"a"), key(42, b"b")]));
    rib.commit();
    let field = |rib: &Rib, dst| {
        let segment = segment(rib, dst);
        assert_eq!(segment.kind, segment_kind::ENCAPS);
        let bytes = template(rib, &segment);
        bytes[bytes.len() - 32..].to_vec()
    };
    let first = field(&rib, "fd99::1");
    assert_ne!(first, [0; 32]);
    // Another list, another HMAC.
    assert_ne!(field(&rib, "fd98::1"), first);
    // INSERT covers what is not known yet.
    assert_eq!(kind(&rib, "fd97::1"), segment_kind::KERNEL);
    rib.apply(Event::HmacKeys(vec![key(42, b"c")]));
    rib.commit();
    assert_ne!(field(&rib, "fd99::1"), first);
    assert_eq!(rib.hmac_keys().len(), 1);
    assert!(!format!("{:?}", rib.hmac_keys()).contains("99"));
    rib.apply(Event::HmacKeys(Vec::new()));
    rib.commit();
    assert_eq!(kind(&rib, "fd99::1"), segment_kind::KERNEL);
}

#[test]
fn links_say_how_hmacs_are_taken() {
    let mut rib = start(&CAPACITY);
    let mut flags = |seg6_require_hmac| {
        let settings = DeviceSettings {
            seg6_require_hmac,
            ..DeviceSettings::default()
        };
        rib.apply(Event::Device(1, settings));
        rib.commit();
        rib.memory().link(1).flags & (link_flags::HMAC_REQUIRED | link_flags::HMAC_IGNORED)
    };
    assert_eq!(flags(1), link_flags::HMAC_REQUIRED);
    assert_eq!(flags(-1), link_flags::HMAC_IGNORED);
    assert_eq!(flags(0), 0);
}
