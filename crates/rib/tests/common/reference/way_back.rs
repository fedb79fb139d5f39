//! What a link's reverse-path filter makes of a source.

use std::net::{IpAddr, Ipv4Addr};

use raddle_image::Reason;
use raddle_rib::Rib;
use raddle_rib::event::{Link, NexthopKind, Route, RouteTarget};

use super::Reference;
use super::lookup::From;

/// What the kernel does, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    Passes,
    Refuses,
    /// Only the kernel knows: it does not matter whether engines know better, but where they do it passes.
    Kernel,
}

impl Reference {
    /// `__fib_validate_source`, of packets that are forwarded from link `iif`.
    ///
    /// 1. `rp_filter` 0: all pass.
    /// 2. Rules are asked as for a packet that comes in by an out-link of no name, in the in-link's VRF. By others
    ///    [`Reference::is_apart`] may hold.
    /// 3. A source without a route, or with one that refuses, is refused.
    /// 4. A route of which a nexthop lives is enough where `rp_filter` is 2, and the link has an IPv4 address. Else one of
    ///    its nexthops has to be on the link, alive or not.
    /// 5. Of raddle's own routes, and of encapsulations that engines do not follow, nothing is said.
    pub fn filters(&self, rib: &Rib, iif: u32, source: Ipv4Addr) -> Filter {
        let filter = |link: u32| {
            let device = self.devices.iter().find(|(index, _)| *index == link);
            device.map_or(0, |(_, device)| device.rp_filter)
        };
        let rp_filter = filter(iif);
        if rp_filter == 0 {
            return Filter::Passes;
        }
        let src = IpAddr::V4(source);
        let Some((tables, _)) = self.tables(false, &self.back(iif, None)) else {
            return Filter::Kernel;
        };
        let mut asked = tables.iter();
        let found = asked.find_map(|(table, suppress)| self.route_in(*table, *suppress, src));
        let (route, from) = match found {
            None => return Filter::Refuses,
            Some(Err(_)) => return Filter::Kernel,
            Some(Ok(found)) => found,
        };
        let encaps = |route: &Route| route.target.hops().iter().any(|hop| hop.encap.is_some());
        if from == From::Own || encaps(&route) || self.has_encap(&route) {
            return Filter::Kernel;
        }
        match self.outcome(rib, (&route, from), src) {
            Ok(_) | Err(Reason::Unresolved) => {}
            // The kernel does not have it.
            Err(_) if from == From::Fpm => return Filter::Kernel,
            Err(Reason::Unreachable | Reason::Prohibit | Reason::Blackhole | Reason::Throw) => {
                return Filter::Refuses;
            }
            Err(_) => return Filter::Kernel,
        }
        let addressed = |a: &raddle_rib::event::Address| a.index == iif && a.local.is_ipv4();
        let any_will_do = rp_filter != 1 && self.addresses.iter().any(addressed);
        match any_will_do || self.links_of(&route).contains(&iif) {
            true => Filter::Passes,
            false => Filter::Refuses,
        }
    }

    /// As what packets the other way round come in, of those that came in by `iif`: by the link `out`, or by one of no
    /// name, and in the VRF of the one or the other.
    fn back(&self, iif: u32, out: Option<u32>) -> Link {
        let by = |index: u32| self.links.iter().find(|link| link.index == index);
        let vrf = |link: &&Link| {
            let master = link.master.and_then(by);
            master.is_some_and(|master| master.kind.as_deref() == Some("vrf"))
        };
        let out = out.and_then(by);
        let of_vrf = by(iif).filter(vrf).or(out.filter(vrf));
        Link {
            name: out.map(|out| out.name.clone()).unwrap_or_default(),
            master: of_vrf.and_then(|link| link.master),
            ..Link::default()
        }
    }

    /// Whether the way back is looked for elsewhere where packets leave by `out`; none where nobody looks for it, or only the
    /// kernel knows where.
    pub fn is_apart(&self, iif: u32, out: u32) -> Option<bool> {
        let mut devices = self.devices.iter();
        devices.find(|(index, device)| *index == iif && device.rp_filter != 0)?;
        let usual = self.tables(false, &self.back(iif, None))?;
        Some(self.tables(false, &self.back(iif, Some(out))) != Some(usual))
    }

    /// The objects that a route's nexthops are.
    fn objects_of(&self, route: &Route) -> Vec<&NexthopKind> {
        let RouteTarget::Object(id) = route.target else {
            return Vec::new();
        };
        let kind = |id: u32| self.object_of(id).map(|object| &object.kind);
        match kind(id) {
            Some(NexthopKind::Group(members) | NexthopKind::Resilient { members, .. }) => members
                .iter()
                .filter_map(|member| kind(member.id))
                .collect(),
            single => single.into_iter().collect(),
        }
    }

    fn has_encap(&self, route: &Route) -> bool {
        let objects = self.objects_of(route);
        objects
            .iter()
            .any(|kind| matches!(kind, NexthopKind::Single { encap: Some(_), .. }))
    }

    fn links_of(&self, route: &Route) -> Vec<u32> {
        let objects = self.objects_of(route);
        let by_objects = objects.iter().filter_map(|kind| match kind {
            NexthopKind::Single { index, .. } => Some(*index),
            _ => None,
        });
        let own = route.target.hops().iter().map(|hop| hop.index);
        own.chain(by_objects).collect()
    }
}
