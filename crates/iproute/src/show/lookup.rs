//! What routes refer to: links by index, nexthop objects by id.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

use raddle_netlink::EncapOf;
use raddle_rib::event::{Encap, Nexthop, NexthopKind, Route, RouteKind, RouteNexthop, RouteTarget};

use super::{Error, State};

/// The loopback device, which the kernel names as the out-link of what it drops.
const LOOPBACK: u32 = 1;

/// Links and nexthop objects by their keys.
pub(crate) struct Lookup<'a> {
    links: HashMap<u32, &'a str>,
    nexthops: HashMap<u32, &'a Nexthop>,
}

/// One nexthop of a route, be it the route's own or a nexthop object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path<'a> {
    pub(crate) gateway: Option<IpAddr>,
    /// Out-link; 0 for none.
    pub(crate) index: u32,
    pub(crate) weight: u16,
    /// `RTNH_F_*`.
    pub(crate) flags: u32,
    pub(crate) encap: Option<&'a Encap>,
    /// The nexthop object that it is, if it is one.
    pub(crate) object: Option<u32>,
}

/// An encapsulation, and what carries it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried<'a> {
    pub(crate) encap: &'a Encap,
    pub(crate) place: EncapOf,
    /// Out-link of the nexthop; 0 for none.
    pub(crate) index: u32,
}

/// Where a route leads, in the form in which the kernel tells it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Paths<'a> {
    /// Nexthop in the route itself; of a route that leads nowhere, the default.
    One(Path<'a>),
    /// `RTA_MULTIPATH`.
    Many(Vec<Path<'a>>),
}

impl<'a> Lookup<'a> {
    pub(crate) fn new(state: &State<'a>) -> Lookup<'a> {
        Lookup {
            links: state
                .links
                .iter()
                .map(|link| (link.index, &*link.name))
                .collect(),
            nexthops: state
                .nexthops
                .iter()
                .map(|nexthop| (nexthop.id, nexthop))
                .collect(),
        }
    }

    /// A link's name; `if7` where link 7 is not known.
    pub(crate) fn link(&self, index: u32) -> Cow<'a, str> {
        match self.links.get(&index) {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(format!("if{index}")),
        }
    }

    /// The index of the link that a filter names, if it does.
    pub(crate) fn index(&self, name: Option<&str>) -> Result<Option<u32>, Error> {
        let Some(name) = name else { return Ok(None) };
        let found = self.links.iter().find(|(_, known)| **known == name);
        match found {
            Some((&index, _)) => Ok(Some(index)),
            None => Err(Error::Device(name.to_owned())),
        }
    }

    pub(crate) fn nexthop(&self, id: u32) -> Option<&'a Nexthop> {
        self.nexthops.get(&id).copied()
    }

    /// What a route is and where it leads, with nexthop objects expanded as the kernel does in its
    /// dumps (`nexthop_compat_mode` 1): IPv4 tells a group of one as a single nexthop, IPv6 does
    /// not; weights have 8 bits; a blackhole object makes the route one, through the loopback.
    pub(crate) fn expand(&self, route: &'a Route) -> (RouteKind, Paths<'a>) {
        let six = route.dst.addr().is_ipv6();
        match &route.target {
            RouteTarget::None if six => (route.kind, Paths::One(Path::lost())),
            RouteTarget::None => (route.kind, Paths::One(Path::default())),
            RouteTarget::Single(own) => (route.kind, Paths::One(Path::own(own))),
            RouteTarget::Multipath(own) => {
                (route.kind, Paths::Many(own.iter().map(Path::own).collect()))
            }
            RouteTarget::Object(id) => {
                let mut paths = self.expand_object(*id);
                let drops = |path: &(Path<'_>, bool)| path.1;
                let kind = match route.kind {
                    _ if paths.iter().any(drops) => RouteKind::Blackhole,
                    RouteKind::Blackhole if !paths.is_empty() => RouteKind::Unicast,
                    kind => kind,
                };
                let group = self.nexthop(*id).is_some_and(is_group);
                let one = match paths.len() {
                    0 => Some(Path::default()),
                    1 if !(group && six) => paths.pop().map(|(path, _)| path),
                    _ => None,
                };
                let many = || paths.iter().map(|(path, _)| *path).collect();
                (kind, one.map_or_else(|| Paths::Many(many()), Paths::One))
            }
        }
    }

    /// The single nexthops of an object, and whether each is a blackhole.
    fn expand_object(&self, id: u32) -> Vec<(Path<'a>, bool)> {
        let Some(nexthop) = self.nexthop(id) else {
            return Vec::new();
        };
        match &nexthop.kind {
            NexthopKind::Group(members) | NexthopKind::Resilient { members, .. } => members
                .iter()
                .filter_map(|member| {
                    let (path, drops) = self.nexthop(member.id).and_then(single)?;
                    let weight = (member.weight.wrapping_sub(1) & 0xff) + 1;
                    Some((Path { weight, ..path }, drops))
                })
                .collect(),
            _ => single(nexthop).into_iter().collect(),
        }
    }
}

/// A nexthop object that is no group, and whether it is a blackhole.
fn single(nexthop: &Nexthop) -> Option<(Path<'_>, bool)> {
    match &nexthop.kind {
        NexthopKind::Blackhole => Some((Path::lost(), true)),
        NexthopKind::Single {
            gateway,
            index,
            encap,
        } => {
            let (gateway, index, encap) = (*gateway, *index, encap.as_ref());
            Some((
                Path {
                    gateway,
                    index,
                    weight: 1,
                    flags: nexthop.flags,
                    encap,
                    object: Some(nexthop.id),
                },
                false,
            ))
        }
        NexthopKind::Group(_) | NexthopKind::Resilient { .. } => None,
    }
}

impl<'a> Path<'a> {
    fn own(own: &'a RouteNexthop) -> Path<'a> {
        Path {
            gateway: own.gateway,
            index: own.index,
            weight: own.weight,
            flags: u32::from(own.flags),
            encap: own.encap.as_ref(),
            object: None,
        }
    }

    /// Its encapsulation, and what carries it: the route's nexthop, or the object.
    pub(crate) fn carried(&self, route: &Route) -> Option<Carried<'a>> {
        let place = match self.object {
            Some(id) => EncapOf::Nexthop(id),
            None => EncapOf::Route {
                table: route.table,
                dst: route.dst,
                metric: route.metric,
                gateway: self.gateway,
                index: self.index,
            },
        };
        Some(Carried {
            encap: self.encap?,
            place,
            index: self.index,
        })
    }

    /// The same as a route's own nexthop.
    pub(crate) fn to_nexthop(self) -> RouteNexthop {
        RouteNexthop {
            gateway: self.gateway,
            index: self.index,
            weight: self.weight,
            flags: self.flags as u8,
            encap: self.encap.cloned(),
        }
    }

    /// Where the kernel says that packets go which it drops.
    fn lost() -> Path<'a> {
        Path {
            index: LOOPBACK,
            weight: 1,
            ..Path::default()
        }
    }
}

/// Whether a nexthop object is a group, of either type.
pub(crate) fn is_group(nexthop: &Nexthop) -> bool {
    matches!(
        nexthop.kind,
        NexthopKind::Group(_) | NexthopKind::Resilient { .. }
    )
}
