//! What a routing daemon sends by FPM: its nexthop objects, and what routes that name them come to.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::State;
use crate::attrs::{Attrs, AttrsId};
use crate::event::{
    Encap, Fpm, Nexthop, NexthopKind, ROUTE_FPM, RouteKind, RouteNexthop, RouteTarget,
};
use crate::seg6;

/// The nexthop objects received by FPM. They are kept apart from the kernel's: the daemon keeps some that the kernel
/// has dropped, and it may not give any to the kernel.
#[derive(Debug, Default)]
pub(crate) struct FpmRoutes {
    nexthops: BTreeMap<u32, (Nexthop, u32)>,
    /// Which round this is; one begins with each connection of a daemon.
    round: u32,
    /// Objects that came, changed or went.
    changed: HashSet<u32>,
    /// Routes and objects that there was no room for.
    refused: u64,
}

/// The most nexthop objects that are taken from FPM.
const NEXTHOPS_MOST: usize = 1 << 18;
/// The most members that a group of theirs may have: what FRR's limit of paths can be.
const MEMBERS_MOST: usize = 256;

impl FpmRoutes {
    pub(crate) fn is_clean(&self) -> bool {
        self.changed.is_empty()
    }

    /// How many nexthop objects there are.
    pub(crate) fn nexthops(&self) -> usize {
        self.nexthops.len()
    }

    /// How many routes and objects were not taken.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// The object, or a group that it is a member of, by the objects that changed; those are then forgotten.
    fn take_changed(&mut self) -> HashSet<u32> {
        let mut touched = std::mem::take(&mut self.changed);
        let of_group = |nexthop: &Nexthop| members(nexthop).any(|(id, _)| touched.contains(&id));
        let groups = self
            .nexthops
            .iter()
            .filter(|(_, (nexthop, _))| of_group(nexthop));
        let groups: Vec<u32> = groups.map(|(id, _)| *id).collect();
        touched.extend(groups);
        touched
    }

    /// Where a route leads that names the object.
    ///
    /// 1. An object that is not known, or a group without a member that is: nowhere.
    /// 2. A blackhole drops.
    /// 3. One nexthop, or a group of which one member is known: there.
    /// 4. A group: to the members that are known, with their weights. It may come before them. A resilient
    ///    group is none here, as nobody sends its buckets.
    fn target(&self, id: u32) -> Option<(RouteKind, RouteTarget)> {
        let (nexthop, _) = self.nexthops.get(&id)?;
        if nexthop.fdb {
            return None;
        }
        let unicast = |target| Some((RouteKind::Unicast, target));
        match &nexthop.kind {
            NexthopKind::Blackhole => Some((RouteKind::Blackhole, RouteTarget::None)),
            NexthopKind::Single { .. } => unicast(RouteTarget::Single(hop(nexthop, 1)?)),
            NexthopKind::Group(_) | NexthopKind::Resilient { .. } => {
                let member = |(id, weight)| hop(&self.nexthops.get(&id)?.0, weight);
                let mut hops: Vec<RouteNexthop> = members(nexthop).filter_map(member).collect();
                match hops.len() {
                    0 => None,
                    1 => unicast(RouteTarget::Single(RouteNexthop {
                        weight: 1,
                        ..hops.remove(0)
                    })),
                    _ => unicast(RouteTarget::Multipath(hops)),
                }
            }
        }
    }

    /// A route with these attributes as it is: with the nexthops in it that the daemon's objects stand for. None
    /// when it leads nowhere. The kernel's are what they are.
    pub(crate) fn expand<'a>(&self, attrs: &'a Attrs) -> Option<Cow<'a, Attrs>> {
        let Some(id) = fpm_object(attrs) else {
            return Some(Cow::Borrowed(attrs));
        };
        let (kind, target) = self.target(id)?;
        Some(Cow::Owned(Attrs {
            kind: if kind == RouteKind::Unicast {
                attrs.kind
            } else {
                kind
            },
            target,
            ..attrs.clone()
        }))
    }
}

/// The object of FPM's that a route names.
fn fpm_object(attrs: &Attrs) -> Option<u32> {
    match attrs.target {
        RouteTarget::Object(id) if attrs.flags & ROUTE_FPM != 0 => Some(id),
        _ => None,
    }
}

/// The members of a group, with their weights.
fn members(nexthop: &Nexthop) -> impl Iterator<Item = (u32, u16)> {
    let members = match &nexthop.kind {
        NexthopKind::Group(members) | NexthopKind::Resilient { members, .. } => &members[..],
        NexthopKind::Single { .. } | NexthopKind::Blackhole => &[],
    };
    members.iter().map(|member| (member.id, member.weight))
}

/// What a single object stands for; none for others.
fn single(nexthop: &Nexthop) -> Option<(Option<IpAddr>, u32, Option<&Encap>)> {
    match &nexthop.kind {
        NexthopKind::Single {
            gateway,
            index,
            encap,
        } if !nexthop.fdb => Some((*gateway, *index, encap.as_ref())),
        _ => None,
    }
}

/// The same as the nexthop of a route.
fn hop(nexthop: &Nexthop, weight: u16) -> Option<RouteNexthop> {
    let (gateway, index, encap) = single(nexthop)?;
    Some(RouteNexthop {
        gateway,
        index,
        weight,
        flags: nexthop.flags as u8,
        encap: encap.cloned(),
    })
}

impl State {
    pub(super) fn apply_fpm(&mut self, fpm: Fpm) {
        let round = self.fpm.round;
        match fpm {
            Fpm::Route(route) => {
                let fits = match route.dst {
                    IpNet::V4(_) => self.v4.add_fpm(&mut self.attrs, route, round),
                    IpNet::V6(_) => self.v6.add_fpm(&mut self.attrs, route, round),
                };
                self.fpm.refused += u64::from(!fits);
            }
            Fpm::RouteGone { table, dst } => match dst {
                IpNet::V4(_) => self.v4.remove_fpm(&mut self.attrs, table, dst),
                IpNet::V6(_) => self.v6.remove_fpm(&mut self.attrs, table, dst),
            },
            Fpm::Nexthop(mut nexthop) => {
                let id = nexthop.id;
                if let NexthopKind::Single {
                    encap: Some(encap), ..
                } = &mut nexthop.kind
                {
                    seg6::forget_counters(encap);
                }
                let before = self.fpm.nexthops.get(&id);
                let many = before.is_none() && self.fpm.nexthops.len() >= NEXTHOPS_MOST;
                if many || members(&nexthop).count() > MEMBERS_MOST {
                    self.fpm.refused += 1;
                    return self.apply_fpm(Fpm::NexthopGone(id));
                }
                if before.is_none_or(|(known, _)| *known != nexthop) {
                    self.fpm.changed.insert(id);
                }
                self.fpm.nexthops.insert(id, (nexthop, round));
            }
            Fpm::NexthopGone(id) => {
                if self.fpm.nexthops.remove(&id).is_some() {
                    self.fpm.changed.insert(id);
                }
            }
            Fpm::ResyncBegin => self.fpm.round = round.wrapping_add(1),
            Fpm::ResyncEnd => {
                let FpmRoutes {
                    nexthops, changed, ..
                } = &mut self.fpm;
                nexthops.retain(|id, (_, of)| {
                    let keep = *of == round;
                    if !keep {
                        changed.insert(*id);
                    }
                    keep
                });
                self.v4.forget_fpm(&mut self.attrs, round);
                self.v6.forget_fpm(&mut self.attrs, round);
            }
        }
    }

    /// Whether a route with these attributes is any. The kernel's are.
    ///
    /// 1. By FPM, with nexthops of its own, or by an object that is known: while one of its nexthops has a live link,
    ///    as the kernel takes such routes away with their links. What is encapsulated needs no link.
    /// 2. By FPM, of another kind than unicast: yes, but for `throw`.
    /// 3. By FPM, by another object, or by one for a forwarding database: no.
    pub(crate) fn leads(&self, attrs: &Attrs) -> bool {
        if attrs.flags & ROUTE_FPM == 0 {
            return true;
        }
        if attrs.kind != RouteKind::Unicast {
            return attrs.kind != RouteKind::Throw;
        }
        let lives = |index, encap: Option<&Encap>| encap.is_some() || self.link_lives(index);
        let object_lives = |id| {
            let known = self.fpm.nexthops.get(&id);
            let hop = known.and_then(|(nexthop, _)| single(nexthop));
            hop.is_some_and(|(_, index, encap)| lives(index, encap))
        };
        let Some(id) = fpm_object(attrs) else {
            let mut hops = attrs.target.hops().iter();
            return hops.any(|hop| lives(hop.index, hop.encap.as_ref()));
        };
        match self.fpm.nexthops.get(&id) {
            Some((nexthop, _)) if nexthop.fdb => false,
            Some((nexthop, _)) if nexthop.kind == NexthopKind::Blackhole => true,
            Some((nexthop, _)) => {
                object_lives(id) || members(nexthop).any(|(id, _)| object_lives(id))
            }
            None => false,
        }
    }

    /// Notes the prefixes whose routes name objects of FPM that changed, and all FPM routes where links did. Costs
    /// a walk over all FPM routes then, if any counts.
    pub(crate) fn note_fpm(&mut self) {
        if self.dirty.links {
            self.v4.touch_fpm(|_| true);
            self.v6.touch_fpm(|_| true);
        }
        if self.fpm.is_clean() {
            return;
        }
        let touched = self.fpm.take_changed();
        let of_object = |attrs: &Attrs| fpm_object(attrs).is_some_and(|id| touched.contains(&id));
        let concerned: HashSet<AttrsId> = self.attrs.numbers(of_object).collect();
        if !concerned.is_empty() {
            self.v4.touch_fpm(|id| concerned.contains(&id));
            self.v6.touch_fpm(|id| concerned.contains(&id));
        }
    }

    /// Whether routes with these attributes are SIDs, of which each is its route's own.
    pub(crate) fn has_sid(&self, id: AttrsId) -> bool {
        let attrs = self.attrs.get(id);
        match fpm_object(attrs) {
            None => attrs.has_sid(),
            Some(_) => {
                let attrs = self.fpm.expand(attrs);
                attrs.is_some_and(|attrs| attrs.has_sid())
            }
        }
    }

    /// The links and addresses of the gateways that FPM routes send to as they are.
    pub(crate) fn fpm_gateways(&self) -> HashSet<(u32, IpAddr)> {
        let mut gateways = HashSet::new();
        for id in self.attrs.numbers(|attrs| attrs.flags & ROUTE_FPM != 0) {
            let Some(attrs) = self.fpm.expand(self.attrs.get(id)) else {
                continue;
            };
            let plain = attrs.target.hops().iter().filter(|hop| hop.encap.is_none());
            gateways.extend(plain.filter_map(|hop| Some((hop.index, hop.gateway?))));
        }
        gateways
    }
}
