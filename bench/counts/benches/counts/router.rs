//! A router with three links: packets come in by the first and leave by the other two.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use raddle_image::{Capacity, Memory};
use raddle_rib::event::{
    DeviceSettings, Event, Link, Neighbour, Route, RouteNexthop, RouteTarget, Settings,
};
use raddle_rib::{Ports, Rib};

/// The link that packets come in by.
pub(crate) const INGRESS: u32 = 1;
/// The links that they leave by.
pub(crate) const OUT: [u32; 2] = [2, 3];

/// A link's MAC address.
pub(crate) fn mac(index: u32) -> [u8; 6] {
    [2, 0, 0, 0, 0, index as u8]
}

fn gateway(v6: bool, index: u32) -> IpAddr {
    match v6 {
        true => IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, index as u16, 0, 0, 0, 1)),
        false => IpAddr::V4(Ipv4Addr::new(10, 0, index as u8, 1)),
    }
}

/// One nexthop for each of these out-links.
pub(crate) fn hops(v6: bool, links: &[u32]) -> RouteTarget {
    let hop = |index: &u32| RouteNexthop {
        gateway: Some(gateway(v6, *index)),
        index: *index,
        weight: 1,
        ..RouteNexthop::default()
    };
    match links {
        [one] => RouteTarget::Single(hop(one)),
        many => RouteTarget::Multipath(many.iter().map(hop).collect()),
    }
}

/// A route of the main table.
pub(crate) fn route(dst: IpNet, target: RouteTarget) -> Route {
    Route {
        dst,
        protocol: 186,
        metric: 20,
        target,
        ..Route::default()
    }
}

/// Links, settings (policy 1, a seed) and neighbours, nothing committed yet.
pub(crate) fn router() -> Rib {
    let capacity = Capacity {
        nodes4: 3 << 17,
        leaves4: 1 << 20,
        words6: 1 << 18,
        groups: 1 << 10,
        members: 1 << 10,
        adjacencies: 1 << 6,
        segments: 64,
        templates: 1 << 10,
    };
    let mut rib = Rib::new(Arc::new(Memory::heap(&capacity)), &capacity, || ());
    rib.set_ports(Ports {
        enabled: [INGRESS].into(),
        out: OUT.into(),
    });
    rib.apply(Event::Settings(Settings {
        hash_policy4: 1,
        hash_policy6: 1,
        hash_seed: 12345,
        ..Settings::default()
    }));
    for index in [INGRESS, OUT[0], OUT[1]] {
        rib.apply(Event::Link(Link::ethernet(
            index,
            format!("l{index}"),
            mac(index),
        )));
        let settings = DeviceSettings {
            forwarding4: true,
            forwarding6: true,
            ..DeviceSettings::default()
        };
        rib.apply(Event::Device(index, settings));
        for v6 in [false, true] {
            rib.apply(Event::Neighbour(Neighbour {
                index,
                dst: gateway(v6, index),
                mac: Some([4, 0, 0, 0, 0, index as u8]),
                state: 2,
                flags: 0,
                protocol: 0,
            }));
        }
    }
    rib
}
