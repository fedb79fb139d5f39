//! Nexthop objects and routes.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use raddle_rib::TABLE_MAIN;
use raddle_rib::event::{
    Bucket, Encap, GroupMember, Metrics, Nexthop, NexthopKind, Route, RouteNexthop, RouteTarget,
};
use serde::Deserialize;
use serde_json::Value;

use super::object::{Lookup, Objects, Word, address, bits};
use super::{Error, Fault};
use crate::show::ENCAPS;

/// `RTNH_F_*`, which routes carry in their flags, too.
const FLAGS: [(&str, u32); 7] = [
    ("dead", 1),
    ("pervasive", 2),
    ("onlink", 4),
    ("offload", 8),
    ("linkdown", 0x10),
    ("unresolved", 0x20),
    ("trap", 0x40),
];
/// `RTPROT_BOOT`: what `ip` leaves out where it prints no details.
const BOOT: u8 = 3;
/// `RTAX_MTU`.
const MTU: u8 = 2;
const INET: u8 = 2;
const INET6: u8 = 10;

#[derive(Deserialize)]
struct Via {
    host: String,
}

/// What nexthop objects, routes of one nexthop and each nexthop of a multipath route share.
#[derive(Deserialize)]
struct Hop {
    gateway: Option<String>,
    via: Option<Via>,
    dev: Option<String>,
    encap: Option<String>,
    weight: Option<u16>,
    #[serde(default)]
    flags: Vec<String>,
}

impl Hop {
    fn gateway(&self) -> Result<Option<IpAddr>, Fault> {
        let via = self.via.as_ref().map(|via| &via.host);
        self.gateway
            .as_ref()
            .or(via)
            .map(|g| address(g))
            .transpose()
    }

    fn index(&self, names: &Lookup) -> Result<u32, Fault> {
        let index = self.dev.as_deref().map(|dev| names.link(dev)).transpose()?;
        Ok(index.unwrap_or(0))
    }

    /// The bytes are not printed; that there are some is what counts.
    fn encap(&self) -> Option<Encap> {
        let name = self.encap.as_deref()?;
        let kind = ENCAPS.iter().position(|known| *known == name);
        Some(Encap {
            kind: kind.unwrap_or(usize::from(u16::MAX)) as u16,
            data: Vec::new(),
        })
    }

    fn nexthop(&self, names: &Lookup) -> Result<RouteNexthop, Fault> {
        Ok(RouteNexthop {
            gateway: self.gateway()?,
            index: self.index(names)?,
            weight: self.weight.unwrap_or(1),
            flags: bits(&self.flags, &FLAGS) as u8,
            encap: self.encap(),
        })
    }
}

#[derive(Deserialize)]
struct NexthopObject {
    id: u32,
    #[serde(flatten)]
    hop: Hop,
    scope: Option<Word>,
    protocol: Option<Word>,
    group: Option<Vec<Member>>,
    #[serde(rename = "type")]
    kind: Option<String>,
    resilient_args: Option<Resilient>,
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
struct Member {
    id: u32,
    #[serde(default = "one")]
    weight: u16,
}

fn one() -> u16 {
    1
}

/// Times are in seconds, with a fraction in newer versions.
#[derive(Deserialize)]
struct Resilient {
    buckets: u16,
    idle_timer: f64,
    unbalanced_timer: f64,
    #[serde(default)]
    unbalanced_time: f64,
}

/// Hundredths of a second (`clock_t`).
fn ticks(seconds: f64) -> u64 {
    (seconds * 100.0).round() as u64
}

/// The nexthop objects of `ip -d -j nexthop`.
pub(super) fn nexthops(objects: &Objects, names: &Lookup) -> Result<Vec<Nexthop>, Error> {
    objects.each(|nexthop: NexthopObject| {
        let gateway = nexthop.hop.gateway()?;
        let members = nexthop.group.as_ref().map(|members| {
            let member = |m: &Member| GroupMember {
                id: m.id,
                weight: m.weight,
            };
            members.iter().map(member).collect::<Vec<_>>()
        });
        let kind = match (members, nexthop.kind.as_deref(), &nexthop.resilient_args) {
            (Some(members), Some("resilient"), Some(args)) => NexthopKind::Resilient {
                members,
                buckets: args.buckets,
                idle_timer: ticks(args.idle_timer) as u32,
                unbalanced_timer: ticks(args.unbalanced_timer) as u32,
                unbalanced_time: ticks(args.unbalanced_time),
            },
            (Some(_), Some("resilient"), None) => {
                return Err(Fault::Missing("resilient_args"));
            }
            (Some(members), None | Some("mpath"), _) => NexthopKind::Group(members),
            (Some(_), Some(other), _) => return Err(Fault::Group(other.to_owned())),
            (None, ..) if nexthop.rest.contains_key("blackhole") => NexthopKind::Blackhole,
            (None, ..) => NexthopKind::Single {
                gateway,
                index: nexthop.hop.index(names)?,
                encap: nexthop.hop.encap(),
            },
        };
        let family = match gateway {
            Some(IpAddr::V4(_)) => INET,
            Some(IpAddr::V6(_)) => INET6,
            None => 0,
        };
        Ok(Nexthop {
            id: nexthop.id,
            family,
            scope: names.scope(&nexthop.scope)?.unwrap_or(0),
            protocol: names.protocol(&nexthop.protocol)?.unwrap_or(0),
            flags: bits(&nexthop.hop.flags, &FLAGS),
            kind,
            fdb: nexthop.rest.contains_key("fdb"),
        })
    })
}

#[derive(Deserialize)]
struct BucketObject {
    id: u32,
    bucket: BucketOwner,
    #[serde(default)]
    flags: Vec<String>,
}

#[derive(Deserialize)]
struct BucketOwner {
    index: u16,
    nhid: u32,
    #[serde(default)]
    idle_time: f64,
}

/// The buckets of `ip -j nexthop bucket`.
pub(super) fn buckets(objects: &Objects) -> Result<Vec<Bucket>, Error> {
    objects.each(|object: BucketObject| {
        Ok(Bucket {
            group: object.id,
            index: object.bucket.index,
            nexthop: object.bucket.nhid,
            idle_time: ticks(object.bucket.idle_time),
            flags: bits(&object.flags, &FLAGS),
        })
    })
}

#[derive(Deserialize)]
struct RouteObject {
    dst: String,
    from: Option<String>,
    #[serde(rename = "type")]
    kind: Option<Word>,
    #[serde(flatten)]
    hop: Hop,
    table: Option<Word>,
    protocol: Option<Word>,
    scope: Option<Word>,
    tos: Option<Word>,
    #[serde(default)]
    metric: u32,
    prefsrc: Option<String>,
    nhid: Option<u32>,
    #[serde(default)]
    nexthops: Vec<Hop>,
    #[serde(default)]
    metrics: Vec<serde_json::Map<String, Value>>,
    pref: Option<String>,
    /// Seconds from then on, less than 0 where its time is over.
    expires: Option<i64>,
    cache: Option<Value>,
}

/// The routes of `ip -4 -d -j route show table all` or `ip -6 -d -j route show table all`.
pub(super) fn routes(objects: &Objects, names: &Lookup, v6: bool) -> Result<Vec<Route>, Error> {
    let all = objects.each(|route: RouteObject| {
        // An entry of a cache is no route; one of the other family is in the other file as well.
        let dst = net(&route.dst, v6)?;
        if route.cache.is_some() || matches!(dst, IpNet::V6(_)) != v6 {
            return Ok(None);
        }
        let target = match (route.nhid, route.nexthops.is_empty()) {
            (Some(id), _) => RouteTarget::Object(id),
            (None, false) => {
                let hops = route.nexthops.iter().map(|hop| hop.nexthop(names));
                RouteTarget::Multipath(hops.collect::<Result<_, _>>()?)
            }
            (None, true) => {
                let hop = route.hop.nexthop(names)?;
                match hop.index == 0 && hop.gateway.is_none() && hop.encap.is_none() {
                    true => RouteTarget::None,
                    false => RouteTarget::Single(hop),
                }
            }
        };
        Ok(Some(Route {
            table: names.table(&route.table)?.unwrap_or(TABLE_MAIN),
            dst,
            src: route
                .from
                .as_deref()
                .map(|text| net(text, v6))
                .transpose()?,
            tos: names.tos(&route.tos)?.unwrap_or(0),
            protocol: names.protocol(&route.protocol)?.unwrap_or(BOOT),
            scope: names.scope(&route.scope)?.unwrap_or(0),
            kind: names.kind(&route.kind)?.unwrap_or_default(),
            metric: route.metric,
            prefsrc: route.prefsrc.as_deref().map(address).transpose()?,
            flags: bits(&route.hop.flags, &FLAGS),
            pref: route.pref.as_deref().map(preference),
            metrics: metrics(&route.metrics),
            expires: route.expires.map(|seconds| 1000 * seconds),
            mp_algo: None,
            target,
        }))
    })?;
    Ok(all.into_iter().flatten().collect())
}

fn net(text: &str, v6: bool) -> Result<IpNet, Fault> {
    match (text, v6) {
        ("default" | "all", false) => return Ok(IpNet::V4(Ipv4Net::default())),
        ("default" | "all", true) => return Ok(IpNet::V6(Ipv6Net::default())),
        _ => {}
    }
    let bad = || Fault::Prefix(text.to_owned());
    match text.contains('/') {
        true => text
            .parse()
            .map(|net: IpNet| net.trunc())
            .map_err(|_| bad()),
        false => text.parse().map(|ip: IpAddr| ip.into()).map_err(|_| bad()),
    }
}

/// The MTU; no other metric concerns a choice or forwarding.
fn metrics(list: &[serde_json::Map<String, Value>]) -> Metrics {
    let mtu = list.iter().find_map(|map| map.get("mtu")?.as_u64());
    let mtu = mtu.and_then(|mtu| u32::try_from(mtu).ok());
    mtu.into_iter().map(|mtu| (MTU, mtu)).collect()
}

/// `ICMPV6_ROUTER_PREF_*`.
fn preference(name: &str) -> u8 {
    match name {
        "low" => 3,
        "high" => 1,
        _ => 0,
    }
}
