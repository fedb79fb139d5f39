//! Routes as requests.

use std::net::IpAddr;

use ipnet::IpNet;
use raddle_rib::event::{Encap, Route, RouteNexthop, RouteOp, RouteTarget};

use super::build::{Builder, EncodeError};
use super::number::nlm;
use super::number::rtm::{RTM_DELROUTE, RTM_NEWROUTE};
use super::route::{
    RTA_DST, RTA_ENCAP, RTA_ENCAP_TYPE, RTA_GATEWAY, RTA_METRICS, RTA_MULTIPATH, RTA_NH_ID,
    RTA_OIF, RTA_PREF, RTA_PREFSRC, RTA_PRIORITY, RTA_SRC, RTA_TABLE, RTA_VIA,
};
use super::{NESTED, family_of};

/// The `nlmsg_flags` that ask for `op`, and that tell it in a notification.
pub(crate) fn operation_flags(op: RouteOp) -> u16 {
    match op {
        RouteOp::Add => nlm::CREATE | nlm::EXCL,
        RouteOp::Replace => nlm::CREATE | nlm::REPLACE,
        RouteOp::Append => nlm::CREATE | nlm::APPEND,
        RouteOp::Prepend => nlm::CREATE,
    }
}

pub(super) fn encode(
    b: &mut Builder,
    route: &Route,
    gone: bool,
    flags: u16,
) -> Result<(), EncodeError> {
    let kind = if gone { RTM_DELROUTE } else { RTM_NEWROUTE };
    begin(b, kind, flags, route);
    if route.dst.prefix_len() > 0 {
        b.put_ip(RTA_DST, route.dst.network());
    }
    if let Some(src) = route.src {
        b.put_ip(RTA_SRC, src.network());
    }
    b.put_u32(RTA_TABLE, route.table);
    if route.metric != 0 {
        b.put_u32(RTA_PRIORITY, route.metric);
    }
    if let Some(prefsrc) = route.prefsrc {
        b.put_ip(RTA_PREFSRC, prefsrc);
    }
    if let Some(pref) = route.pref {
        b.put_u8(RTA_PREF, pref);
    }
    if !route.metrics.is_empty() {
        let nest = b.open(RTA_METRICS | NESTED);
        for &(number, value) in &route.metrics {
            b.put_u32(number.into(), value);
        }
        b.close(nest);
    }
    target(b, route);
    b.end()
}

fn begin(b: &mut Builder, kind: u16, flags: u16, route: &Route) {
    let src_len = route.src.map_or(0, |s| s.prefix_len());
    let mut head = [0; 12];
    head[0] = match route.dst {
        IpNet::V4(_) => super::number::INET,
        IpNet::V6(_) => super::number::INET6,
    };
    head[1] = route.dst.prefix_len();
    head[2] = src_len;
    head[3] = route.tos;
    // Tables above 255 are told by RTA_TABLE alone (RT_TABLE_UNSPEC, as iproute2 does).
    head[4] = u8::try_from(route.table).unwrap_or(0);
    head[5] = route.protocol;
    head[6] = route.scope;
    head[7] = route.kind as u8;
    head[8..].copy_from_slice(&route.flags.to_ne_bytes());
    b.begin(kind, flags, &head);
}

fn target(b: &mut Builder, route: &Route) {
    match &route.target {
        RouteTarget::None => {}
        RouteTarget::Object(id) => {
            b.put_u32(RTA_NH_ID, *id);
        }
        RouteTarget::Single(hop) => {
            if hop.index != 0 {
                b.put_u32(RTA_OIF, hop.index);
            }
            hop_attributes(b, hop, route.dst);
        }
        RouteTarget::Multipath(hops) => {
            let nest = b.open(RTA_MULTIPATH);
            for hop in hops {
                // 1..=256 on the wire as 0..=255.
                let weight = hop.weight.clamp(1, 256) - 1;
                let one = b.open_rtnexthop(hop.flags, weight as u8, hop.index);
                hop_attributes(b, hop, route.dst);
                b.close(one);
            }
            b.close(nest);
        }
    }
}

fn hop_attributes(b: &mut Builder, hop: &RouteNexthop, dst: IpNet) {
    match (hop.gateway, dst) {
        (None, _) => {}
        (Some(gateway @ IpAddr::V4(_)), IpNet::V4(_))
        | (Some(gateway @ IpAddr::V6(_)), IpNet::V6(_)) => {
            b.put_ip(RTA_GATEWAY, gateway);
        }
        (Some(other), _) => {
            let mut via = [0; 18];
            via[..2].copy_from_slice(&u16::from(family_of(other)).to_ne_bytes());
            let length = match other {
                IpAddr::V4(a) => {
                    via[2..6].copy_from_slice(&a.octets());
                    6
                }
                IpAddr::V6(a) => {
                    via[2..].copy_from_slice(&a.octets());
                    18
                }
            };
            b.put(RTA_VIA, &via[..length]);
        }
    }
    if let Some(encap) = &hop.encap {
        encapsulation(b, encap, RTA_ENCAP_TYPE, RTA_ENCAP);
    }
}

/// Type and payload, under the numbers that routes (`RTA_*`) or nexthop objects (`NHA_*`) use. The kernel
/// wants the latter to be said to be nested, and says so of neither itself; `ip route showdump` does not
/// know a route's that is.
pub(super) fn encapsulation(b: &mut Builder, encap: &Encap, type_kind: u16, kind: u16) {
    b.put_u16(type_kind, encap.kind);
    b.put(kind, &encap.data);
}
