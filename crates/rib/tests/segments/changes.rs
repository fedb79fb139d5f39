//! Segments that come, go and change with what they depend on.

use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex};

use raddle_image::{Capacity, Group, Reason, VlanEntry, segment_kind};
use raddle_rib::event::{
    DeviceSettings, Event, ROUTE_STATIC, Route, RouteKind, RouteOp, RouteTarget, Rule,
};
use raddle_rib::seg6::{Behaviour, Mode, Seg6, Sid, TableRef};
use raddle_rib::{Ports, Rib};

use crate::common::{link, neighbour};
use crate::world::{
    CAPACITY, add, encaps, group, ip, local_address, number, route, segment, settings, sid, single,
    start,
};

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
fn out_links_come_and_go() {
    let mut rib = start(&CAPACITY);
    add(&mut rib, sid("fc00::1/128", Behaviour::Dx2 { oif: 3 }));
    let own = Route {
        flags: ROUTE_STATIC,
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

/// Whoever hears first that a link is lost punts what leaves by it, an End.DX2's frames too, before the mirror knows: as
/// the mirror then says. A loss that is over before anybody has looked leaves nothing behind.
#[test]
fn frames_to_a_lost_link_are_punted_at_once() {
    let mut rib = start(&CAPACITY);
    assert_eq!(rib.memory().punt_link(3), 0);
    let to = |oif| Behaviour::Dx2 { oif };
    add(&mut rib, sid("fc00::1/128", Behaviour::End));
    add(&mut rib, sid("fc00::3/128", to(3)));
    add(&mut rib, sid("fc00::4/128", to(4)));
    let own = Route {
        flags: ROUTE_STATIC,
        ..single("fc00::5/128", Seg6::Sid(Sid::new(to(3))))
    };
    add(&mut rib, own);
    let sids = ["fc00::1", "fc00::3", "fc00::4", "fc00::5"];
    // As engines see them: the mirror does not know yet.
    let all = |rib: &Rib| sids.map(|dst| rib.memory().segment(number(rib, dst)));
    let before = all(&rib);
    assert_eq!(rib.memory().punt_link(3), 2);
    let punted = all(&rib);
    let kernel = segment_kind::KERNEL;
    let lost = |reason: Reason| (kernel, reason as u8);
    let [end, punted3, other, own] = punted.map(|s| (s.kind, s.reason));
    assert_eq!(punted3, lost(Reason::OutLink));
    assert_eq!(own, lost(Reason::SegmentLink));
    assert_eq!((end, other), ((before[0].kind, 0), (before[2].kind, 0)));
    // There is no more to punt, and the mirror comes to the same.
    assert_eq!(rib.memory().punt_link(3), 0);
    rib.apply(Event::Link(link(3, true, false)));
    rib.commit_links();
    let by_mirror = |s: raddle_image::Segment| (s.kind, s.reason, s.flags);
    assert_eq!(all(&rib).map(by_mirror), punted.map(by_mirror));
    rib.apply(Event::Link(link(3, true, true)));
    rib.commit();
    assert_eq!(all(&rib), before);
    for carrier in [false, true] {
        rib.apply(Event::Link(link(3, true, carrier)));
    }
    assert_eq!(rib.memory().punt_link(3), 2);
    rib.commit();
    assert_eq!(all(&rib), before);
}

#[test]
fn neighbours_do_not_touch_segments() {
    let graces = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&graces);
    let memory = Arc::new(raddle_image::Memory::heap(&CAPACITY));
    let mut rib = Rib::new(memory, &CAPACITY, move || *counted.lock().unwrap() += 1);
    rib.apply(Event::Settings(settings()));
    for index in 1..=4 {
        rib.apply(Event::Link(link(index, true, true)));
    }
    rib.set_ports(Ports {
        enabled: (1..=4).collect(),
        out: (1..=4).collect(),
    });
    rib.apply(local_address(2, "fd01:2::1"));
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
    // A VRF's table needs that VRF, by the rules' leave, and packets come out of it as they would come in by it.
    let vrf = Behaviour::Dt4 {
        table: TableRef::Vrf(10),
    };
    add(&mut rib, sid("fc00::7/128", vrf));
    assert_eq!(segment(&rib, "fc00::7").kind, segment_kind::KERNEL);
    let mut device = link(4, true, true);
    device.kind = Some("vrf".into());
    device.vrf_table = Some(11);
    let rule = |priority, table, other: &[u16]| Rule {
        family: 4,
        priority,
        table,
        action: 1,
        other: other.to_vec(),
        ..Rule::default()
    };
    let settings = DeviceSettings {
        forwarding4: true,
        ..DeviceSettings::default()
    };
    let mut now = |event: Event| {
        rib.apply(event);
        rib.commit();
        segment(&rib, "fc00::7").kind == segment_kind::KERNEL
    };
    assert!(now(Event::Link(device.clone())), "of another table");
    device.vrf_table = Some(10);
    assert!(now(Event::Link(device.clone())), "no rule leads there");
    for (priority, table) in [(0, 255), (32766, 254)] {
        assert!(now(Event::Rule(rule(priority, table, &[]))));
    }
    assert!(
        now(Event::Rule(rule(1000, 0, &[19]))),
        "it does not forward"
    );
    assert!(!now(Event::Device(4, settings)));
    let filters = DeviceSettings {
        rp_filter: 2,
        ..settings
    };
    assert!(now(Event::Device(4, filters)), "the VRF's filter");
    assert!(!now(Event::Device(4, settings)));
    assert!(
        now(Event::Rule(rule(999, 9, &[]))),
        "another table comes first"
    );
    assert!(!now(Event::RuleGone(rule(999, 9, &[]))));
    let prohibited = Rule {
        from: Some("10.0.0.5/32".parse().unwrap()),
        ..rule(998, 9, &[])
    };
    assert!(
        now(Event::Rule(prohibited.clone())),
        "a rule asks for packets"
    );
    assert!(!now(Event::RuleGone(prohibited)));
    // What is this machine's is not looked up in the VRF's table.
    let what = rib
        .segments()
        .map(|(_, what, _)| what.clone())
        .find(|what| what.is_sid())
        .unwrap();
    for (dst, table) in [("10.255.0.1/32", 255), ("0.0.0.0/0", 10)] {
        let route = Route {
            dst: dst.parse().unwrap(),
            table,
            kind: if table == 255 {
                RouteKind::Local
            } else {
                RouteKind::Unicast
            },
            ..Route::default()
        };
        rib.apply(Event::Route(route, RouteOp::Add));
    }
    let found = rib
        .trace_segment(&what, "10.255.0.1".parse().unwrap())
        .unwrap();
    assert_eq!(found.route.unwrap().table, 255);
    let found = rib
        .trace_segment(&what, "10.255.0.2".parse().unwrap())
        .unwrap();
    assert_eq!(found.route.unwrap().table, 10);
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
