//! Links, neighbours and nexthop objects of small states, and the mirror that they go into.
#![allow(unreachable_pub, reason = "the fuzz targets hand it on")]

use std::net::IpAddr;
use std::sync::Arc;

use raddle_image::{Capacity, Memory};
use raddle_rib::event::{Event, Link, Neighbour, Nexthop, NexthopKind};
use raddle_rib::{Ports, Rib};

/// The link `l<index>`.
pub fn link(index: u32, up: bool, carrier: bool) -> Link {
    let flags = u32::from(up) | if up && carrier { 0x1_0040 } else { 0 };
    Link {
        index,
        name: format!("l{index}"),
        mac: Some([2, 0, 0, 0, 0, index as u8]),
        mtu: 1500,
        flags,
        arp_type: 1,
        ..Link::default()
    }
}

/// A reachable neighbour.
pub fn neighbour(index: u32, dst: IpAddr) -> Neighbour {
    Neighbour {
        index,
        dst,
        mac: Some([4, 0, 0, 0, dst.is_ipv6().into(), index as u8]),
        state: 2,
        flags: 0,
        protocol: 0,
    }
}

/// A nexthop object.
pub fn object(id: u32, kind: NexthopKind) -> Event {
    Event::Nexthop(Nexthop::new(id, 2, kind))
}

/// A mirror over a small image of its own, with links 1 to 4 enabled.
pub fn new_rib(capacity: &Capacity) -> Rib {
    let mut rib = Rib::new(Arc::new(Memory::heap(capacity)), capacity, || ());
    let all = 1..=4;
    rib.set_ports(Ports {
        enabled: all.clone().collect(),
        out: all.collect(),
    });
    rib
}
