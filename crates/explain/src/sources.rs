//! The source addresses that paths give to this machine's own IPv4 packets.

use std::net::{IpAddr, Ipv4Addr};

use raddle_rib::event::{Route, RouteTarget};
use raddle_rib::{Hop, Rib};

/// The source address that a path gives to packets that have none (`fib_result_prefsrc`).
pub fn source_of(rib: &Rib, hop: &Hop, route: &Route) -> Option<Ipv4Addr> {
    if let Some(IpAddr::V4(prefsrc)) = route.prefsrc {
        return Some(prefsrc);
    }
    // A direct route's hop has the destination for a neighbour, which is no gateway.
    let direct = matches!(&route.target, RouteTarget::Single(nh) if nh.gateway != hop.gateway);
    let gateway = v4(hop.gateway).filter(|_| !direct);
    rib.preferred_source(hop.index, gateway, route.scope)
}

/// The source address that a nexthop of a multipath route is preferred for (`nh_saddr`); the route is of
/// this scope.
pub fn hop_source(rib: &Rib, hop: &Hop, scope: u8) -> Option<Ipv4Addr> {
    rib.preferred_source(hop.index, v4(hop.gateway), scope)
}

fn v4(address: Option<IpAddr>) -> Option<Ipv4Addr> {
    match address {
        Some(IpAddr::V4(ip)) => Some(ip),
        _ => None,
    }
}
