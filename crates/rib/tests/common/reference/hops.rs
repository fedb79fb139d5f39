//! Where a route's nexthops lead: which have a share, how large it is, and who is passed over.

use std::net::IpAddr;

use raddle_image::Reason;
use raddle_rib::event::{
    Link, Neighbour, Nexthop, NexthopKind, ROUTE_STATIC, Route, RouteNexthop, RouteTarget,
};
use raddle_rib::{Owner, Rib, SegmentUse};

use super::super::{Leaves, Seen};
use super::lookup::From;
use super::segments::segment_of;
use super::spread::{LAST, spread};
use super::told::is_srv6;
use super::{Reference, has_carrier, is_up, metric};

/// `RTNH_F_DEAD` and `RTNH_F_LINKDOWN`.
const DEAD: u8 = 1;
const LINKDOWN: u8 = 16;
/// `RTAX_MTU`.
const MTU: u8 = 2;
/// A resilient group with a shorter idle timer (1/100 s) cannot be shown to the kernel often enough.
const SHORTEST_TIMER: u32 = 20;

/// A nexthop that may be chosen.
pub(super) struct Hop {
    gateway: Option<IpAddr>,
    link: u32,
    pub(super) weight: u16,
    mtu: u32,
    /// What becomes of packets instead of being sent to the gateway.
    segment: Option<SegmentUse>,
    /// Whether it has a share of the hashes.
    pub(super) has_share: bool,
}

impl Reference {
    /// 1. A host on a connected prefix, which there is a neighbour entry of, is its own gateway.
    /// 2. A route by a nexthop object: what that leads to. Else its own nexthops.
    pub(super) fn by_nexthops(&self, rib: &Rib, of: (&Route, From), dst: IpAddr) -> Seen {
        if let Some(link) = self.connected(of.0)
            && self.neighbour(link, dst).is_some()
        {
            return self.to_neighbour(rib, of.0, link, dst);
        }
        match &of.0.target {
            RouteTarget::None => Err(Reason::RouteFeature),
            RouteTarget::Object(id) => self.by_object(rib, of.0, *id),
            RouteTarget::Single(hop) => self.by_own_hops(rib, of, std::slice::from_ref(hop)),
            RouteTarget::Multipath(hops) => self.by_own_hops(rib, of, hops),
        }
    }

    /// The link of a route that has no other, and no gateway.
    fn connected(&self, route: &Route) -> Option<u32> {
        if let RouteTarget::Object(id) = route.target {
            let object = self.object_of(id).filter(|object| !object.fdb)?;
            return match &object.kind {
                NexthopKind::Single {
                    gateway: None,
                    index,
                    encap: None,
                } => Some(*index),
                _ => None,
            };
        }
        match route.target.hops() {
            [hop] if hop.gateway.is_none() && hop.encap.is_none() => Some(hop.index),
            _ => None,
        }
    }

    /// Where its link gives it no share the connected route is passed over (`fib_lookup_good_nhc`, `find_match`), and where
    /// the link was down the kernel may have taken the route away.
    fn to_neighbour(&self, rib: &Rib, route: &Route, link: u32, dst: IpAddr) -> Seen {
        if !self.is_usable(link, dst.is_ipv6()) {
            return Err(Reason::OutLink);
        }
        if dst.is_ipv4() && self.history.took_routes(link) {
            return Err(Reason::RouteFeature);
        }
        let hop = Hop {
            gateway: Some(dst),
            link,
            weight: 1,
            mtu: metric(route, MTU),
            segment: None,
            has_share: true,
        };
        self.only_by(rib, &hop)
    }

    /// A route's own nexthops (`fib_select_multipath`, `rt6_multipath_*`).
    ///
    /// 1. An encapsulation that is not followed: all of it is the kernel's.
    /// 2. A nexthop has a share unless it is dead, or its link is down; without carrier it has one still, unless
    ///    `ignore_routes_with_linkdown`. By FPM it has none without carrier, as nexthop objects go then. What is raddle's own
    ///    and encapsulates needs no link.
    /// 3. IPv4, and each link was down since routes were read: the route may be gone.
    /// 4. The only one is taken; without a gateway the destination would be the neighbour, and there is none.
    /// 5. Several, and the kernel's shares are not known: to the kernel.
    /// 6. IPv4 with `fib_multipath_use_neigh`, and by FPM always: a gateway with an entry that is not valid is passed over.
    fn by_own_hops(&self, rib: &Rib, of: (&Route, From), told: &[RouteNexthop]) -> Seen {
        let (route, from) = of;
        let v6 = route.dst.addr().is_ipv6();
        let mut hops = Vec::new();
        for hop in told {
            hops.push(self.hop(of, hop)?);
        }
        let needs_link = |hop: &Hop| !hop.segment.as_ref().is_some_and(|what| what.own);
        let gone = |hop: &Hop| needs_link(hop) && self.history.took_routes(hop.link);
        let any = hops.iter().any(|hop| hop.has_share);
        if !v6 && from != From::Fpm && any && hops.iter().all(gone) {
            return Err(Reason::RouteFeature);
        }
        if let [hop] = hops.as_slice() {
            return match hop.has_share {
                true => self.only_by(rib, hop),
                false => Err(Reason::OutLink),
            };
        }
        let mut pairs = hops.iter().zip(told);
        if from != From::Fpm
            && pairs.any(|(hop, told)| needs_link(hop) && self.is_doubtful(told, v6))
        {
            return Err(Reason::RouteFeature);
        }
        let asks = from == From::Fpm || (self.settings.use_neigh && !v6);
        let spread = spread(&hops, |hop| !asks || self.may_answer(hop));
        match spread.is_empty() {
            true => Err(Reason::OutLink),
            false => Ok(self.leaves_of(rib, &hops, &spread)),
        }
    }

    /// A nexthop of a route's own.
    fn hop(&self, (route, from): (&Route, From), told: &RouteNexthop) -> Result<Hop, Reason> {
        let v6 = route.dst.addr().is_ipv6();
        let srv6 = |hop: &RouteNexthop| hop.encap.as_ref().is_some_and(is_srv6);
        let any_srv6 = route.target.hops().iter().any(srv6);
        // The kernel does not have what FPM alone tells.
        let own = route.flags & ROUTE_STATIC != 0 || (from == From::Fpm && any_srv6);
        let owner = Owner::Route {
            table: route.table,
            dst: route.dst,
            metric: route.metric,
            gateway: told.gateway,
            generation: 0,
        };
        let segment = segment_of(told.encap.as_ref(), owner, told.index, (route, own))?;
        let has_share = match from {
            _ if own && segment.is_some() => true,
            From::Fpm => self.lives(told.index),
            From::Own | From::Kernel => self.has_share(told, v6),
        };
        Ok(Hop {
            gateway: told.gateway,
            link: told.index,
            weight: told.weight,
            mtu: metric(route, MTU),
            segment,
            has_share,
        })
    }

    /// Whether the kernel gives a nexthop a share (`fib_rebalance`, `rt6_upper_bound_set`).
    ///
    /// 1. IPv4: not where it was told as dead, unless the mark went when the link came up or got an address.
    /// 2. Its link must be up, and have carrier where routes without are to be ignored.
    /// 3. By an IPv6 gateway of an IPv4 route: the mark that was told says whether it has carrier (`fib_check_nh_v6_gw` does
    ///    not look), unless that went, too.
    fn has_share(&self, told: &RouteNexthop, v6: bool) -> bool {
        let is_back = self.history.is_back(told.index);
        if !v6 && told.flags & DEAD != 0 && !is_back {
            return false;
        }
        if v6 || !told.gateway.is_some_and(|gateway| gateway.is_ipv6()) {
            return self.is_usable(told.index, v6);
        }
        let Some(link) = self.link_of(told.index) else {
            return false;
        };
        let is_marked = told.flags & LINKDOWN != 0 && !(is_back && has_carrier(link));
        is_up(link) && !(is_marked && self.ignores_linkdown(told.index, v6))
    }

    /// Whether it is not known by which shares the kernel goes: it cuts them when a link changes, and not when the setting
    /// does; and it marks nexthops without a word, which takes a reading to know.
    fn is_doubtful(&self, told: &RouteNexthop, v6: bool) -> bool {
        let link = told.index;
        let history = &self.history;
        let by_mark = !v6 && told.gateway.is_some_and(|gateway| gateway.is_ipv6());
        let may_be_marked = by_mark && self.ignores_linkdown(link, v6) && history.has_changed(link);
        let may_be_dead =
            !v6 && history.took_routes(link) && !history.is_back(link) && self.is_usable(link, v6);
        history.is_cut_otherwise(link) || may_be_marked || may_be_dead
    }

    /// A nexthop object (`nexthop_select_path`).
    ///
    /// 1. One that is not there is no route; one for a forwarding database is for no route. A blackhole drops.
    /// 2. A group has the members whose links live. One of them is taken; several share the hashes, and one whose gateway
    ///    has an entry that is not valid is passed over, always.
    /// 3. A member that cannot be one of a group, or is not followed: what that one would be.
    fn by_object(&self, rib: &Rib, route: &Route, id: u32) -> Seen {
        let object = self.object_of(id).ok_or(Reason::NoRoute)?;
        if object.fdb {
            return Err(Reason::RouteFeature);
        }
        let members = match &object.kind {
            NexthopKind::Blackhole => return Err(Reason::Blackhole),
            NexthopKind::Single { .. } => {
                return match self.single(route, id, 1)? {
                    Some(hop) => self.only_by(rib, &hop),
                    None => Err(Reason::OutLink),
                };
            }
            NexthopKind::Resilient { .. } => return self.by_buckets(rib, route, object),
            NexthopKind::Group(members) => members,
        };
        let mut hops = Vec::new();
        for member in members {
            hops.extend(self.single(route, member.id, member.weight)?);
        }
        match hops.as_slice() {
            [] => return Err(Reason::OutLink),
            [hop] => return self.only_by(rib, hop),
            _ => {}
        }
        let spread = spread(&hops, |hop| self.may_answer(hop));
        match spread.is_empty() {
            true => Err(Reason::RouteFeature),
            false => Ok(self.leaves_of(rib, &hops, &spread)),
        }
    }

    /// A single object as a nexthop; none without its link.
    fn single(&self, route: &Route, id: u32, weight: u16) -> Result<Option<Hop>, Reason> {
        let object = self.object_of(id).ok_or(Reason::NoRoute)?;
        let (gateway, link, encap) = match &object.kind {
            NexthopKind::Single {
                gateway,
                index,
                encap,
            } => (*gateway, *index, encap.as_ref()),
            NexthopKind::Blackhole => return Err(Reason::Blackhole),
            NexthopKind::Group(_) | NexthopKind::Resilient { .. } => {
                return Err(Reason::RouteFeature);
            }
        };
        if !self.lives(link) {
            return Ok(None);
        }
        Ok(Some(Hop {
            gateway,
            link,
            weight,
            mtu: metric(route, MTU),
            segment: segment_of(encap, Owner::Object { id }, link, (route, false))?,
            has_share: true,
        }))
    }

    /// A resilient group (`nexthop_select_path_res`): the owner of bucket `hash % buckets`, whatever the state of its
    /// neighbour. While a member is missing, or the owner of a bucket is not known, buckets are about to move.
    fn by_buckets(&self, rib: &Rib, route: &Route, group: &Nexthop) -> Seen {
        let NexthopKind::Resilient {
            members,
            buckets,
            idle_timer,
            ..
        } = &group.kind
        else {
            return Err(Reason::Resilient);
        };
        for member in members {
            match self.single(route, member.id, member.weight) {
                Ok(Some(_)) => {}
                Ok(None) | Err(Reason::NoRoute) => return Err(Reason::Resilient),
                Err(reason) => return Err(reason),
            }
        }
        let owners = self.buckets.owners(group.id, *buckets);
        let owners = owners.ok_or(Reason::Resilient)?;
        let is_member = |owner: &u32| members.iter().any(|member| member.id == *owner);
        if owners.is_empty() || !owners.iter().all(is_member) || *idle_timer < SHORTEST_TIMER {
            return Err(Reason::Resilient);
        }
        let mut seen = Vec::new();
        for (bucket, owner) in (0..).zip(owners) {
            let hop = self.single(route, owner, 1)?.ok_or(Reason::Resilient)?;
            seen.push((bucket, self.leaves(rib, &hop)));
        }
        Ok(seen)
    }

    /// There is nothing to choose.
    fn only_by(&self, rib: &Rib, hop: &Hop) -> Seen {
        let Some(what) = &hop.segment else {
            return match hop.gateway {
                Some(_) => Ok(vec![(LAST, self.leaves(rib, hop))]),
                None => Err(Reason::Unresolved),
            };
        };
        match self.segment(rib, what) {
            None => Err(Reason::ImageFull),
            Some((_, Some(reason))) => Err(reason),
            Some((segment, None)) => Ok(vec![(LAST, Ok(segment))]),
        }
    }

    fn leaves_of(&self, rib: &Rib, hops: &[Hop], spread: &[(u32, usize)]) -> Vec<(u32, Leaves)> {
        let leaves = |&(upper, at): &(u32, usize)| (upper, self.leaves(rib, &hops[at]));
        spread.iter().map(leaves).collect()
    }

    /// Where packets leave: by an Ethernet link that may be used, to a neighbour that has answered, if they are not longer
    /// than all that the kernel may go by (the route, the link, its setting for IPv6, the least that it may have learnt).
    fn leaves(&self, rib: &Rib, hop: &Hop) -> Leaves {
        if let Some(what) = &hop.segment {
            let segment = self.segment(rib, what).map(|(segment, _)| segment);
            return segment.ok_or(Reason::ImageFull as u8);
        }
        let out = Reason::OutLink as u8;
        let link = self.link_of(hop.link).ok_or(out)?;
        let may_be_used = rib.ports().out.contains(&hop.link);
        if !is_up(link) || !has_carrier(link) || link.arp_type != 1 || !may_be_used {
            return Err(out);
        }
        let source = link.mac.ok_or(out)?;
        let (by, room) = self.way_out(rib, link).ok_or(out)?;
        let neighbour = hop
            .gateway
            .and_then(|gateway| self.neighbour(hop.link, gateway));
        let neighbour = neighbour.filter(|known| is_valid(known));
        let mac = neighbour.and_then(|known| known.mac);
        let mac = mac.ok_or(Reason::Unresolved as u8)?;
        let mut mtu = room;
        let device = self.devices.iter().find(|(index, _)| *index == hop.link);
        let mtu6 = device.map_or(0, |(_, settings)| settings.mtu6);
        for less in [hop.mtu, mtu6] {
            if less != 0 && less < mtu {
                mtu = less;
            }
        }
        if self.settings.forward_use_pmtu {
            mtu = mtu.min(self.settings.min_pmtu.max(68));
        }
        Ok((hop.link, mac, source, mtu, by))
    }

    /// The link that frames leave by that are sent by this one, the tags that they have there from the outermost on, and how long
    /// the packet in them may be.
    ///
    /// 1. By a link that is no VLAN: as they are, up to its MTU.
    /// 2. A VLAN puts its tag around what it sends, and sends it by the link that it is upon, which has to be in order, too. With
    ///    an `egress-qos-map` the tag depends on the packet; engines do not look.
    /// 3. Engines know two tags, of two kinds, and nothing of a VLAN that is not told. Through the last link goes a frame of its MTU, header and one tag.
    fn way_out(&self, rib: &Rib, link: &Link) -> Option<((u32, [u32; 2]), u32)> {
        let (mut at, mut room, mut tags) = (link, link.mtu, Vec::new());
        while let Some(vlan) = at.vlan {
            if vlan.egress_qos || at.lower_netns.is_some() {
                return None;
            }
            if !is_up(at) || !has_carrier(at) || ![0x8100, 0x88a8].contains(&vlan.protocol) {
                return None;
            }
            tags.insert(0, u32::from(vlan.protocol) * 0x1_0000 + u32::from(vlan.id));
            room = room.min(at.mtu);
            at = self.link_of(at.lower?)?;
        }
        if at.kind.as_deref() == Some("vlan") {
            return None;
        }
        if tags.is_empty() {
            return Some(((at.index, [0; 2]), room));
        }
        let may_be_used = rib.ports().out.contains(&at.index);
        let is_ready = is_up(at) && has_carrier(at) && at.arp_type == 1 && may_be_used;
        room = room.min(at.mtu.saturating_sub(4 * (tags.len() as u32 - 1)));
        let tags = match tags.as_slice() {
            [only] => [*only, 0],
            [outer, inner] => [*outer, *inner],
            _ => return None,
        };
        is_ready.then_some(((at.index, tags), room))
    }

    pub(super) fn link_of(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    pub(super) fn object_of(&self, id: u32) -> Option<&Nexthop> {
        self.objects.iter().find(|object| object.id == id)
    }

    fn neighbour(&self, link: u32, dst: IpAddr) -> Option<&Neighbour> {
        let mut all = self.neighbours.iter();
        all.find(|known| known.index == link && known.dst == dst)
    }

    /// Nexthop objects need a link that is up and has carrier.
    fn lives(&self, link: u32) -> bool {
        self.link_of(link)
            .is_some_and(|link| is_up(link) && has_carrier(link))
    }

    /// A plain nexthop needs a link that is up; carrier only where routes without are to be ignored.
    pub(super) fn is_usable(&self, link: u32, v6: bool) -> bool {
        let ignores = self.ignores_linkdown(link, v6);
        self.link_of(link)
            .is_some_and(|link| is_up(link) && (has_carrier(link) || !ignores))
    }

    fn ignores_linkdown(&self, link: u32, v6: bool) -> bool {
        let device = self.devices.iter().find(|(index, _)| *index == link);
        device.is_some_and(|(_, settings)| match v6 {
            true => settings.ignore_linkdown6,
            false => settings.ignore_linkdown4,
        })
    }

    /// `fib_good_nh`: a gateway without an entry may answer, one with an entry must have.
    fn may_answer(&self, hop: &Hop) -> bool {
        let gateway = hop.gateway;
        let entry = gateway.and_then(|gateway| self.neighbour(hop.link, gateway));
        entry.is_none_or(is_valid)
    }
}

/// `NUD_VALID`: permanent, no ARP, reachable, probe, stale, delay.
fn is_valid(neighbour: &Neighbour) -> bool {
    [0x80, 0x40, 0x02, 0x10, 0x04, 0x08]
        .iter()
        .any(|state| neighbour.state & state != 0)
}
