//! Makes changes in a copy of the state, by the events that the kernel would send, so that what
//! follows from them is decided by the rules that follow the kernel's own changes.

use std::net::IpAddr;

use raddle_explain::{can_send, is_bond, parts};
use raddle_image::Reason;
use raddle_rib::event::{
    Event, GroupMember, Link, Nexthop, NexthopKind, Route, RouteNexthop, RouteOp, RouteTarget,
};
use raddle_rib::{Asked, Rib};
use raddle_select::BondMode;

use super::ChangeError;
use super::words::{Change, Selector};
use crate::paths::{self, Choice, link_name};

/// `IFF_UP`.
const UP: u32 = 0x1;
/// `IFF_RUNNING` and `IFF_LOWER_UP`.
const CARRIER: u32 = 0x40 | 0x1_0000;

/// A copy of the state that changes can be made in.
pub(super) struct Scratch {
    /// The copy.
    pub rib: Rib,
    /// The group was made resilient, with so many buckets.
    pub buckets: Option<u16>,
    iif: String,
    dst: IpAddr,
    packets: Asked,
}

impl Scratch {
    /// A copy, for these packets, all to one address, that come in by `iif`. Resilient groups become hash-threshold ones in
    /// it: their members count, what becomes of their buckets is computed from those of now.
    pub(super) fn of(rib: &Rib, iif: &str, packets: &Asked) -> Scratch {
        let mut copy = Rib::detached();
        copy.know_as(rib);
        let mut snapshot = rib.snapshot();
        for nexthop in &mut snapshot.nexthops {
            if let NexthopKind::Resilient { members, .. } = &mut nexthop.kind {
                nexthop.kind = NexthopKind::Group(std::mem::take(members));
            }
        }
        snapshot.into_events().for_each(|event| copy.apply(event));
        Scratch {
            rib: copy,
            buckets: None,
            iif: iif.to_owned(),
            dst: packets.dst.addr(),
            packets: *packets,
        }
    }

    /// Among what packets choose now. A route that has no nexthop left is taken out, as the kernel
    /// takes it out or passes it over, and the next one counts.
    pub(super) fn choice(&mut self) -> Result<Choice, Reason> {
        // As many routes as can match one address, and a few alternatives for each.
        for _ in 0..1024 {
            match paths::choice(&self.rib, &self.iif, &self.packets) {
                Err(reason @ (Reason::OutLink | Reason::NoRoute)) => {
                    let trace = paths::trace(&self.rib, &self.iif, &self.packets);
                    let route = trace.ok().and_then(|trace| trace.route).ok_or(reason)?;
                    self.rib.apply(Event::RouteGone(route));
                }
                other => return other,
            }
        }
        Err(Reason::NoRoute)
    }

    /// Makes a change.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(super) fn make(&mut self, change: &Change) -> Result<(), ChangeError> {
        let mut settings = *self.rib.settings();
        let v4 = self.dst.is_ipv4();
        match change {
            Change::LinkDown(name) => return self.link_down(name),
            Change::Delete(which) => return self.delete(which),
            Change::Add(which, weight) => return self.add(which, *weight),
            Change::Weight(which, weight) => return self.weight(which, *weight),
            Change::Resilient(buckets) => {
                self.buckets = Some(*buckets);
                return Ok(());
            }
            Change::Policy(n) if v4 => settings.hash_policy4 = *n,
            Change::Policy(n) => settings.hash_policy6 = *n,
            Change::Fields(mask) if v4 => settings.hash_fields4 = *mask,
            Change::Fields(mask) => settings.hash_fields6 = *mask,
            Change::Seed(seed) => settings.hash_seed = *seed,
        }
        self.rib.apply(Event::Settings(settings));
        Ok(())
    }

    /// A link goes down.
    ///
    /// 1. It is neither up nor has it a carrier. VLANs upon it go down, too.
    /// 2. A bond whose last member goes loses its carrier, and so do VLANs upon it.
    /// 3. Of an active-backup bond whose active member goes, the only other one that can send becomes active; of several it is not
    ///    known which (`primary`, and the order in which they joined, decide).
    fn link_down(&mut self, name: &str) -> Result<(), ChangeError> {
        let link = self.link(name)?.clone();
        self.take_flags(&link, UP | CARRIER);
        let bond = link.master.and_then(|master| self.rib.link(master));
        let Some(bond) = bond.filter(|bond| is_bond(bond)).cloned() else {
            return Ok(());
        };
        let left: Vec<Link> = parts(&self.rib, &bond)
            .into_iter()
            .filter(|part| can_send(part))
            .cloned()
            .collect();
        let mode = bond.bond.and_then(|bond| BondMode::from_number(bond.mode));
        match left.as_slice() {
            [] => self.take_flags(&bond, CARRIER),
            left if mode == Some(BondMode::ActiveBackup) && link.bond_active == Some(true) => {
                for part in left {
                    self.rib.apply(Event::Link(Link {
                        bond_active: Some(left.len() == 1),
                        ..part.clone()
                    }));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes flags from a link, and from VLANs upon it.
    fn take_flags(&mut self, link: &Link, flags: u32) {
        self.rib.apply(Event::Link(Link {
            flags: link.flags & !flags,
            bond_active: link.bond_active.map(|active| active && flags & UP == 0),
            ..link.clone()
        }));
        let upon = |upper: &&Link| {
            upper.is_vlan() && upper.lower == Some(link.index) && upper.lower_netns.is_none()
        };
        let upon: Vec<Link> = self.rib.links().filter(upon).cloned().collect();
        // A VLAN that is upon itself does not exist.
        for upper in upon.iter().filter(|upper| upper.flags & flags != 0) {
            self.take_flags(upper, flags);
        }
    }

    fn delete(&mut self, which: &Selector) -> Result<(), ChangeError> {
        let (route, target) = self.target()?;
        match target {
            Target::Group(..) | Target::Object => {
                let id = self.member(&route, which)?;
                self.rib.apply(Event::NexthopGone(id));
            }
            Target::Own(mut hops) => {
                let at = self.own(&hops, which)?;
                hops.remove(at);
                self.put(route, hops);
            }
        }
        Ok(())
    }

    fn add(&mut self, which: &Selector, weight: u16) -> Result<(), ChangeError> {
        let (route, target) = self.target()?;
        match target {
            Target::Object => Err(ChangeError::AddToObject),
            Target::Group(group, mut members) => {
                let id = match which.id {
                    Some(id) if self.rib.nexthop(id).is_none() => {
                        return Err(ChangeError::NoObject(id));
                    }
                    Some(id) => id,
                    None => self.new_object(which)?,
                };
                members.push(GroupMember { id, weight });
                self.put_members(group, members);
                Ok(())
            }
            Target::Own(mut hops) => {
                if weight > 256 {
                    return Err(ChangeError::Weight(weight));
                }
                hops.push(RouteNexthop {
                    gateway: which.via,
                    index: self.index(which)?,
                    weight,
                    ..RouteNexthop::default()
                });
                self.put(route, hops);
                Ok(())
            }
        }
    }

    fn weight(&mut self, which: &Selector, weight: u16) -> Result<(), ChangeError> {
        let (route, target) = self.target()?;
        match target {
            Target::Object => Err(ChangeError::WeightOfObject),
            Target::Group(group, mut members) => {
                let id = self.member(&route, which)?;
                let meant = members.iter_mut().filter(|member| member.id == id);
                meant.for_each(|member| member.weight = weight);
                self.put_members(group, members);
                Ok(())
            }
            Target::Own(_) if weight > 256 => Err(ChangeError::Weight(weight)),
            Target::Own(mut hops) => {
                let at = self.own(&hops, which)?;
                hops[at].weight = weight;
                self.put(route, hops);
                Ok(())
            }
        }
    }

    /// The route and what it refers to.
    fn target(&mut self) -> Result<(Route, Target), ChangeError> {
        let dst = self.dst;
        let choice = self.choice();
        let choice = choice.map_err(|reason| ChangeError::NoPath { dst, reason })?;
        let target = match &choice.route.target {
            RouteTarget::None => return Err(ChangeError::NoNexthops),
            RouteTarget::Single(hop) => Target::Own(vec![hop.clone()]),
            RouteTarget::Multipath(hops) => Target::Own(hops.clone()),
            RouteTarget::Object(id) => match self.rib.nexthop(*id).map(|nh| &nh.kind) {
                Some(NexthopKind::Group(members) | NexthopKind::Resilient { members, .. }) => {
                    Target::Group(*id, members.clone())
                }
                _ => Target::Object,
            },
        };
        Ok((choice.route, target))
    }

    /// The object of a group's member, or the route's own one.
    fn member(&self, route: &Route, which: &Selector) -> Result<u32, ChangeError> {
        let RouteTarget::Object(id) = route.target else {
            return Err(ChangeError::NoObjects);
        };
        let ids: Vec<u32> = match self.rib.nexthop(id).map(|nh| &nh.kind) {
            Some(NexthopKind::Group(members) | NexthopKind::Resilient { members, .. }) => {
                members.iter().map(|member| member.id).collect()
            }
            _ => vec![id],
        };
        let is_meant = |id: &&u32| {
            let kind = self.rib.nexthop(**id).map(|nh| &nh.kind);
            let (gateway, index) = match kind {
                Some(NexthopKind::Single { gateway, index, .. }) => (*gateway, *index),
                _ => (None, 0),
            };
            which.id.is_none_or(|wanted| wanted == **id) && self.fits(which, gateway, index)
        };
        self.only(which, ids.iter().filter(is_meant).copied().collect())
    }

    fn own(&self, hops: &[RouteNexthop], which: &Selector) -> Result<usize, ChangeError> {
        if let Some(id) = which.id {
            return Err(ChangeError::NotByObject(id));
        }
        let fits = |at: &usize| self.fits(which, hops[*at].gateway, hops[*at].index);
        self.only(which, (0..hops.len()).filter(fits).collect())
    }

    fn fits(&self, which: &Selector, gateway: Option<IpAddr>, index: u32) -> bool {
        let dev = |name: &String| link_name(&self.rib, index) == *name;
        which.via.is_none_or(|via| gateway == Some(via)) && which.dev.as_ref().is_none_or(dev)
    }

    fn only<T: Copy>(&self, which: &Selector, found: Vec<T>) -> Result<T, ChangeError> {
        match found.as_slice() {
            [one] => Ok(*one),
            [] => Err(ChangeError::NoNexthop {
                dst: self.dst,
                which: which.clone(),
            }),
            several => Err(ChangeError::Several {
                count: several.len(),
                which: which.clone(),
            }),
        }
    }

    fn link(&self, name: &str) -> Result<&Link, ChangeError> {
        let link = self.rib.link_named(name);
        link.ok_or_else(|| ChangeError::NoLink(name.to_owned()))
    }

    fn index(&self, which: &Selector) -> Result<u32, ChangeError> {
        let name = which.dev.as_ref().ok_or(ChangeError::NoLinkNamed)?;
        Ok(self.link(name)?.index)
    }

    /// A nexthop object that does not exist yet.
    fn new_object(&mut self, which: &Selector) -> Result<u32, ChangeError> {
        let index = self.index(which)?;
        let last = self
            .rib
            .nexthops()
            .map(|nexthop| nexthop.id)
            .max()
            .unwrap_or(0);
        let id = last.checked_add(1).ok_or(ChangeError::NoId)?;
        let family = match which.via.unwrap_or(self.dst) {
            IpAddr::V4(_) => 2,
            IpAddr::V6(_) => 10,
        };
        let kind = NexthopKind::Single {
            gateway: which.via,
            index,
            encap: None,
        };
        self.rib.apply(Event::Nexthop(Nexthop {
            protocol: 4,
            ..Nexthop::new(id, family, kind)
        }));
        Ok(id)
    }

    /// The route with other nexthops; without any, it is gone.
    fn put(&mut self, mut route: Route, hops: Vec<RouteNexthop>) {
        route.target = match hops.as_slice() {
            [] => return self.rib.apply(Event::RouteGone(route)),
            [one] => RouteTarget::Single(one.clone()),
            _ => RouteTarget::Multipath(hops),
        };
        self.rib.apply(Event::Route(route, RouteOp::Replace));
    }

    fn put_members(&mut self, group: u32, members: Vec<GroupMember>) {
        let Some(mut nexthop) = self.rib.nexthop(group).cloned() else {
            return;
        };
        if let NexthopKind::Group(own) | NexthopKind::Resilient { members: own, .. } =
            &mut nexthop.kind
        {
            *own = members;
        }
        self.rib.apply(Event::Nexthop(nexthop));
    }
}

/// What a route refers to.
enum Target {
    /// Its own nexthops.
    Own(Vec<RouteNexthop>),
    /// A group object and its members.
    Group(u32, Vec<GroupMember>),
    /// An object that is no group.
    Object,
}
