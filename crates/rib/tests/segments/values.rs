//! Values of tables that name the segments of SIDs, and what still goes by a group.

use std::sync::{Arc, Mutex};

use raddle_image::{
    Capacity, GROUP_NO_PUNT, Group, Memory, Reason, segment_kind, segment_of_value, segment_value,
};
use raddle_rib::event::{Event, ROUTE_STATIC, Route, RouteOp, RouteTarget, Rule, Settings};
use raddle_rib::seg6::{Behaviour, Mode, Seg6, Sid};
use raddle_rib::{Ports, Rib};

use crate::common::link;
use crate::world::{CAPACITY, add, encaps, group, hop, ip, route, segment, sid, start};

/// The value that packets from link 1 to this address find.
fn value(rib: &Rib, dst: &str) -> u32 {
    let memory = rib.memory();
    memory.route6(memory.link(1).table6, ip(dst).to_bits())
}

#[test]
fn a_sid_needs_no_group() {
    let mut rib = start(&CAPACITY);
    let groups = rib.usage().groups;
    for n in 1..=5 {
        add(&mut rib, sid(&format!("fc00::{n}/128"), Behaviour::End));
    }
    assert_eq!(rib.usage().groups, groups);
    let numbers: Vec<u32> = (1..=5)
        .map(|n| segment_of_value(value(&rib, &format!("fc00::{n}"))).unwrap())
        .collect();
    assert_eq!(rib.usage().segments, 5);
    for (n, number) in (1..).zip(&numbers) {
        assert_eq!(group(&rib, &format!("fc00::{n}")), Group::Segment(*number));
    }
    // Around other prefixes: the answer for all that is not one of them.
    add(&mut rib, sid("fc00::/64", Behaviour::End));
    assert_eq!(
        segment_of_value(value(&rib, "fc00::99")),
        segment_of_value(value(&rib, "fc00::abcd:1"))
    );
    assert!(segment_of_value(value(&rib, "fc00::99")).is_some());
    // Encapsulations that are equal share a segment, so it cannot say what becomes of one of their routes.
    add(&mut rib, encaps("fd99::/64", Mode::Encap, &["fc01::1"]));
    assert_eq!(segment_of_value(value(&rib, "fd99::1")), None);
    assert!(matches!(group(&rib, "fd99::1"), Group::Segment(_)));
    for n in 1..=5 {
        let dst = format!("fc00::{n}");
        rib.apply(Event::RouteGone(sid(&format!("{dst}/128"), Behaviour::End)));
        rib.commit();
        assert_eq!(value(&rib, &dst), value(&rib, "fc00::99"));
    }
    rib.apply(Event::RouteGone(sid("fc00::/64", Behaviour::End)));
    rib.commit();
    assert_eq!(value(&rib, "fc00::99"), 0);
    assert_eq!(rib.usage().segments, 1);
    // Whoever has read a value before finds the kernel there.
    let gone = rib.memory().segment(numbers[0]);
    assert_eq!(
        (gone.kind, gone.reason),
        (segment_kind::KERNEL, Reason::NoRoute as u8)
    );
}

/// What a group's word would say is said by the segment, under the same value.
#[test]
fn a_sid_without_its_link_is_the_kernels() {
    let mut rib = start(&CAPACITY);
    add(&mut rib, sid("fc00::1/128", Behaviour::End));
    let own = Route {
        flags: ROUTE_STATIC,
        ..sid("fc00::2/128", Behaviour::End)
    };
    add(&mut rib, own);
    let before = [value(&rib, "fc00::1"), value(&rib, "fc00::2")];
    for (up, kind) in [(false, segment_kind::KERNEL), (true, segment_kind::END)] {
        rib.apply(Event::Link(link(2, up, up)));
        rib.commit();
        let now = segment(&rib, "fc00::1");
        assert_eq!(now.kind, kind);
        if !up {
            assert_eq!(now.reason, Reason::OutLink as u8);
        }
        assert_eq!(segment(&rib, "fc00::2").kind, segment_kind::END);
        assert_eq!([value(&rib, "fc00::1"), value(&rib, "fc00::2")], before);
    }
    let never_punts = before.map(|value| rib.memory().group_never_punts(value));
    assert_eq!(never_punts, [false, true]);
    // Another segment, so another value.
    let replaced = sid("fc00::1/128", Behaviour::End);
    rib.apply(Event::Route(replaced, RouteOp::Replace));
    rib.commit();
    assert_ne!(value(&rib, "fc00::1"), before[0]);
    assert_eq!(segment(&rib, "fc00::1").kind, segment_kind::END);
}

#[test]
fn several_nexthops_are_a_group_again_and_one_is_a_value() {
    let mut rib = start(&CAPACITY);
    let to = |table: u32| hop(2 + table % 2, Seg6::Sid(Sid::new(Behaviour::T { table })));
    let several = route(
        "fc00::1/128",
        RouteTarget::Multipath(vec![to(100), to(101)]),
    );
    let one = route("fc00::1/128", RouteTarget::Single(to(100)));
    for (route, is_value) in [(&one, true), (&several, false), (&one, true)] {
        rib.apply(Event::Route(route.clone(), RouteOp::Replace));
        rib.commit();
        assert_eq!(segment_of_value(value(&rib, "fc00::1")).is_some(), is_value);
    }
    rib.apply(Event::RouteGone(one));
    rib.commit();
    assert_eq!((value(&rib, "fc00::1"), rib.usage().segments), (0, 0));
}

/// Two views that see one SID hold it twice.
#[test]
fn a_sid_in_two_views_is_one_segment() {
    let mut rib = start(&CAPACITY);
    add(&mut rib, sid("fc00::1/128", Behaviour::End));
    for (priority, table, iif) in [(0, 255, None), (9, 7, Some("l3")), (99, 254, None)] {
        rib.apply(Event::Rule(Rule {
            family: 6,
            priority,
            table,
            action: 1,
            iif: iif.map(str::to_owned),
            ..Rule::default()
        }));
    }
    rib.commit();
    let memory = rib.memory();
    let at = |link: u32| memory.route6(memory.link(link).table6, ip("fc00::1").to_bits());
    assert_ne!(memory.link(1).table6, memory.link(3).table6);
    assert_eq!(at(1), at(3));
    assert_eq!(rib.usage().segments, 1);
}

/// Without a segment left a SID has a group that says so, and keeps it when a segment is there.
#[test]
fn a_sid_waits_for_its_segment_in_a_group() {
    let mut rib = start(&Capacity {
        segments: 1,
        ..CAPACITY
    });
    add(&mut rib, sid("fc00::1/128", Behaviour::End));
    let own = Route {
        flags: ROUTE_STATIC,
        ..sid("fc00::2/128", Behaviour::End)
    };
    add(&mut rib, own);
    assert_eq!(value(&rib, "fc00::1"), segment_value(0));
    let waiting = value(&rib, "fc00::2");
    assert_eq!(
        rib.memory().group(waiting),
        Group::Kernel(Reason::ImageFull)
    );
    let word =
        || rib.memory().groups.words()[waiting as usize].load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(word() & GROUP_NO_PUNT, GROUP_NO_PUNT);
    rib.apply(Event::RouteGone(sid("fc00::1/128", Behaviour::End)));
    rib.commit();
    rib.commit();
    assert_eq!(value(&rib, "fc00::2"), waiting);
    assert_eq!(group(&rib, "fc00::2"), Group::Segment(0));
    assert_eq!(value(&rib, "fc00::1"), 0);
}

/// A new seed spreads anew what a segment puts around packets; one that puts nothing around them stays as it is, not
/// even held for a moment.
#[test]
fn a_new_seed_holds_no_plain_sid() {
    let memory = Arc::new(Memory::heap(&CAPACITY));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (at_grace, list) = (Arc::clone(&memory), Arc::clone(&seen));
    let mut rib = Rib::new(Arc::clone(&memory), &CAPACITY, move || {
        list.lock().unwrap().push(at_grace.segment(0).kind);
    });
    let seed = |hash_seed| {
        Event::Settings(Settings {
            hash_seed,
            ..Settings::default()
        })
    };
    rib.apply(seed(7));
    for index in 1..=4 {
        rib.apply(Event::Link(link(index, true, true)));
    }
    rib.set_ports(Ports {
        enabled: [1].into(),
        out: [1].into(),
    });
    add(&mut rib, sid("fc00::1/128", Behaviour::End));
    assert_eq!(memory.segment(0).kind, segment_kind::END);
    seen.lock().unwrap().clear();
    rib.apply(seed(8));
    rib.commit();
    let seen = seen.lock().unwrap();
    assert!(
        !seen.is_empty() && seen.iter().all(|kind| *kind == segment_kind::END),
        "{seen:?}"
    );
}
