//! Any sequence of events: the image says what the reference says after every commit.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use raddle_fuzz::{Mirror, address, compare, event, link, neighbour, new_rib, object, route};
use raddle_image::Capacity;
use raddle_rib::event::{Event, GroupMember, Link, NexthopKind, RouteOp, RouteTarget, Settings};

/// Room for all that a run can make.
const ROOMY: Capacity = Capacity {
    nodes4: 1 << 12,
    leaves4: 1 << 13,
    words6: 1 << 14,
    groups: 1024,
    members: 4096,
    adjacencies: 512,
    segments: 64,
    templates: 1 << 10,
};
/// Soon full.
const TIGHT: Capacity = Capacity {
    nodes4: 128,
    leaves4: 128,
    words6: 128,
    groups: 24,
    members: 16,
    adjacencies: 8,
    segments: 64,
    templates: 1 << 10,
};

fuzz_target!(|data: &[u8]| {
    let Some((&mode, mut rest)) = data.split_first() else {
        return;
    };
    let mut rib = start(if mode & 1 == 0 { &ROOMY } else { &TIGHT });
    // Of links upon links and of tunnels the reference knows nothing; tests of rib have others for these.
    let mut is_known = true;
    while let Some((&head, bytes)) = rest.split_first() {
        rest = bytes;
        // Mostly several events to a commit, as notifications come.
        if head < 48 {
            rib.commit();
            assert!(!rib.is_dirty());
            if is_known {
                compare(&rib, some(head, 5));
            }
            continue;
        }
        // Every event has bytes of its own, so that a change of one leaves the others as they are.
        let length = 12 + usize::from(head % 8) * 12;
        let (own, bytes) = rest.split_at(length.min(rest.len()));
        rest = bytes;
        if let Ok(event) = event(&mut Unstructured::new(own)) {
            is_known &= !matches!(&event, Event::Link(link) if is_upon_others(link));
            rib.apply(event);
        }
    }
    rib.commit();
    if is_known {
        compare(&rib, some(0, 21));
    }
});

/// A bridge, a port of one, a macvlan, a tunnel.
fn is_upon_others(link: &Link) -> bool {
    link.bridge.is_some() || link.port.is_some() || link.macvlan.is_some() || link.tunnel.is_some()
}

/// Four links with neighbours, a nexthop object on each, and a group of two of them.
fn start(capacity: &Capacity) -> Mirror {
    let mut rib = new_rib(capacity);
    rib.apply(Event::Settings(Settings {
        hash_seed: 7,
        ..Settings::default()
    }));
    for index in 1..=4 {
        rib.apply(Event::Link(link(index, true, true)));
        for n in 0..4 {
            rib.apply(Event::Neighbour(neighbour(index, address(n & 1 != 0, n))));
        }
        let kind = NexthopKind::Single {
            gateway: Some(address(false, 0)),
            index,
            encap: None,
        };
        rib.apply(object(index, kind));
    }
    let members = [1, 2].map(|id| GroupMember { id, weight: 1 });
    rib.apply(object(5, NexthopKind::Group(members.to_vec())));
    for (v6, len) in [(false, 24), (true, 64)] {
        let route = route(address(v6, 56), len, RouteTarget::Object(5));
        rib.apply(Event::Route(route, RouteOp::Add));
    }
    rib
}

/// So many addresses of each family, spread over the subnets.
fn some(first: u8, count: u8) -> impl Iterator<Item = IpAddr> {
    (0..count).flat_map(move |i| {
        let n = first.wrapping_add(i.wrapping_mul(11));
        [address(false, n), address(true, n)]
    })
}
