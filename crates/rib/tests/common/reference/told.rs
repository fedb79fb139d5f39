//! What a routing daemon tells by FPM, and what its routes come to.

use raddle_image::Reason;
use raddle_rib::event::{
    Encap, Fpm, Nexthop, NexthopKind, ROUTE_FPM, ROUTE_STATIC, Route, RouteKind, RouteNexthop,
    RouteTarget,
};

use super::{Reference, has_carrier, is_up};

/// Its nexthop objects, each with the round in which it was told last.
#[derive(Debug, Default)]
pub(super) struct Told {
    objects: Vec<(Nexthop, u32)>,
    round: u32,
}

/// FRR's limit of paths; a larger group is not taken.
const MOST_MEMBERS: usize = 256;

impl Told {
    fn object(&self, id: u32) -> Option<&Nexthop> {
        let mut objects = self.objects.iter().map(|(object, _)| object);
        objects.find(|object| object.id == id && !object.fdb)
    }

    /// What a single object says as a route's nexthop.
    fn hop(&self, id: u32, weight: u16) -> Option<RouteNexthop> {
        match &self.object(id)?.kind {
            NexthopKind::Single {
                gateway,
                index,
                encap,
            } => Some(RouteNexthop {
                gateway: *gateway,
                index: *index,
                weight,
                flags: 0,
                encap: encap.clone(),
            }),
            _ => None,
        }
    }

    /// The nexthops of an object that leads anywhere: a group may be told before its members, and has those then that are
    /// known.
    fn hops(&self, id: u32) -> Vec<RouteNexthop> {
        match self.object(id).map(|object| &object.kind) {
            Some(NexthopKind::Single { .. }) => self.hop(id, 1).into_iter().collect(),
            Some(NexthopKind::Group(members) | NexthopKind::Resilient { members, .. }) => members
                .iter()
                .filter_map(|member| self.hop(member.id, member.weight))
                .collect(),
            Some(NexthopKind::Blackhole) | None => Vec::new(),
        }
    }
}

impl Reference {
    pub(super) fn tell(&mut self, told: Fpm) {
        let round = self.told.round;
        match told {
            Fpm::Route(route) => {
                let route = Route {
                    flags: route.flags & !ROUTE_STATIC | ROUTE_FPM,
                    expires: None,
                    ..route
                };
                self.routes_of(route.dst).tell_fpm(route, round);
            }
            Fpm::RouteGone { table, dst } => {
                let gone = Route {
                    table,
                    dst: dst.trunc(),
                    ..Route::default()
                };
                self.routes_of(dst).forget_fpm(&gone);
            }
            Fpm::Nexthop(object) => {
                self.told.objects.retain(|(known, _)| known.id != object.id);
                let members = match &object.kind {
                    NexthopKind::Group(members) | NexthopKind::Resilient { members, .. } => {
                        members.len()
                    }
                    NexthopKind::Single { .. } | NexthopKind::Blackhole => 0,
                };
                if members <= MOST_MEMBERS {
                    self.told.objects.push((object, round));
                }
            }
            Fpm::NexthopGone(id) => self.told.objects.retain(|(known, _)| known.id != id),
            Fpm::ResyncBegin => self.told.round = round.wrapping_add(1),
            Fpm::ResyncEnd => {
                self.told.objects.retain(|(_, of)| *of == round);
                self.v4.fpm.retain(|(_, of)| *of == round);
                self.v6.fpm.retain(|(_, of)| *of == round);
            }
        }
    }

    /// A route that FPM tells, with its nexthops in itself.
    ///
    /// 1. One that says to look elsewhere (`throw`) is none.
    /// 2. By an object that drops: it drops.
    /// 3. Not unicast: it counts as it is, but by an object that leads nowhere nobody knows what it is.
    /// 4. Without a nexthop whose link lives it is none: the kernel would have taken it away with the link. What is
    ///    encapsulated needs no link.
    pub(super) fn as_it_counts(&self, route: &Route) -> Option<Result<Route, Reason>> {
        let object = match route.target {
            RouteTarget::Object(id) => Some(id),
            _ => None,
        };
        if route.kind == RouteKind::Throw {
            return None;
        }
        let known = object.and_then(|id| self.told.object(id));
        if known.is_some_and(|object| object.kind == NexthopKind::Blackhole) {
            return Some(Ok(Route {
                kind: RouteKind::Blackhole,
                target: RouteTarget::None,
                ..route.clone()
            }));
        }
        let mut hops = match object {
            Some(id) => self.told.hops(id),
            None => route.target.hops().to_vec(),
        };
        if route.kind != RouteKind::Unicast {
            return Some(match object.is_some() && hops.is_empty() {
                true => Err(Reason::NoRoute),
                false => Ok(route.clone()),
            });
        }
        let lives = |hop: &RouteNexthop| {
            let mut links = self.links.iter().filter(|link| link.index == hop.index);
            hop.encap.is_some() || links.any(|link| is_up(link) && has_carrier(link))
        };
        if !hops.iter().any(lives) {
            return None;
        }
        let target = match (object, hops.len()) {
            (None, _) => route.target.clone(),
            (Some(_), 1) => RouteTarget::Single(hops.remove(0)),
            (Some(_), _) => RouteTarget::Multipath(hops),
        };
        Some(Ok(Route {
            target,
            ..route.clone()
        }))
    }
}

/// `LWTUNNEL_ENCAP_SEG6` and `LWTUNNEL_ENCAP_SEG6_LOCAL`.
pub(super) fn is_srv6(encap: &Encap) -> bool {
    encap.kind == 5 || encap.kind == 7
}
