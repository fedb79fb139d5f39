//! A mirror with four links, routes of SRv6 in few words, and what engines find of them.

use std::net::Ipv6Addr;

use raddle_image::{Capacity, Group, Segment};
use raddle_rib::Rib;
use raddle_rib::event::{Address, Event, Route, RouteNexthop, RouteOp, RouteTarget, Settings};
use raddle_rib::seg6::{Behaviour, Encaps, Mode, Seg6, Sid};

use crate::common::{self, link};

pub(crate) const CAPACITY: Capacity = Capacity {
    nodes4: 1 << 12,
    leaves4: 1 << 13,
    words6: 1 << 14,
    groups: 256,
    members: 256,
    adjacencies: 64,
    segments: 16,
    templates: 128,
};

pub(crate) fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

pub(crate) fn settings() -> Settings {
    Settings {
        hash_seed: 7,
        ..Settings::default()
    }
}

pub(crate) fn local_address(index: u32, text: &str) -> Event {
    Event::Address(Address::new(index, text.parse().unwrap(), 64))
}

/// Links 1 to 4, each with an address.
pub(crate) fn start(capacity: &Capacity) -> Rib {
    let mut rib = common::new_rib(capacity);
    rib.apply(Event::Settings(settings()));
    for index in 1..=4 {
        rib.apply(Event::Link(link(index, true, true)));
        rib.apply(local_address(index, &format!("fd01:{index}::1")));
    }
    rib.commit();
    rib
}

pub(crate) fn hop(index: u32, what: Seg6) -> RouteNexthop {
    RouteNexthop {
        index,
        encap: Some(what.encode()),
        ..RouteNexthop::default()
    }
}

pub(crate) fn route(dst: &str, target: RouteTarget) -> Route {
    Route {
        dst: dst.parse().unwrap(),
        metric: 1024,
        target,
        ..Route::default()
    }
}

pub(crate) fn single(dst: &str, what: Seg6) -> Route {
    route(dst, RouteTarget::Single(hop(2, what)))
}

pub(crate) fn sid(dst: &str, behaviour: Behaviour) -> Route {
    single(dst, Seg6::Sid(Sid::new(behaviour)))
}

pub(crate) fn encaps(dst: &str, mode: Mode, segments: &[&str]) -> Route {
    let segments: Vec<Ipv6Addr> = segments.iter().map(|s| ip(s)).collect();
    single(dst, Seg6::Encaps(Encaps::new(mode, &segments).unwrap()))
}

pub(crate) fn add(rib: &mut Rib, route: Route) {
    rib.apply(Event::Route(route, RouteOp::Add));
    rib.commit();
}

/// What packets from link 1 to this address find.
pub(crate) fn group(rib: &Rib, dst: &str) -> Group {
    let memory = rib.memory();
    let table = memory.link(1).table6;
    memory.group(memory.route6(table, ip(dst).to_bits()))
}

pub(crate) fn number(rib: &Rib, dst: &str) -> u32 {
    match group(rib, dst) {
        Group::Segment(number) => number,
        other => panic!("{dst} leads to {other:?}"),
    }
}

/// The segment, and whether it is what the mirror says.
pub(crate) fn segment(rib: &Rib, dst: &str) -> Segment {
    let number = number(rib, dst);
    let segment = rib.memory().segment(number);
    let (_, told) = rib.segment(number).unwrap();
    assert_eq!(
        (segment.kind, segment.flags, segment.reason),
        (told.kind, told.flags, told.reason)
    );
    segment
}

pub(crate) fn template(rib: &Rib, segment: &Segment) -> Vec<u8> {
    let words = segment.template..segment.template + u32::from(segment.size) / 8;
    let word = |place| rib.memory().template_word(place).to_ne_bytes();
    words.flat_map(word).collect()
}
