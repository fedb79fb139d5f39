//! From a route to the links that it can take: what Linux would do with its nexthops now.
//!
//! Pure functions of the mirrored state; `explain` shows their result, the image is compiled from
//! it.

mod bounds;
mod resilient;
mod share;

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::algo::MpAlgo;
use crate::attrs::Attrs;
use crate::event::{
    Encap, NexthopKind, ROUTE_FPM, ROUTE_OWN, RTNH_F_DEAD, RTNH_F_LINKDOWN, RouteKind,
    RouteNexthop, RouteTarget,
};
use crate::seg6::{ENCAP_SEG6, ENCAP_SEG6_LOCAL, Seg6};
use crate::segments::{Owner, SegmentUse, kernel_only};
use crate::state::State;
use bounds::{bound, ranges};
use raddle_image::Reason;
use resilient::resolve_resilient;
pub(crate) use share::has_share;
use share::{is_doubtful, share_of};

/// What makes two routes lead to the same place: they then share a group of the image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Spec {
    /// To the kernel, or dropped.
    Kernel(Reason),
    /// A route's own nexthops.
    Plain {
        v6: bool,
        hops: Vec<SpecHop>,
        mtu: u32,
        algo: Option<MpAlgo>,
        /// Raddle's own, see [`ROUTE_OWN`], or with SIDs or encapsulations that FPM tells and the kernel
        /// does not have.
        own: bool,
        /// Told by FPM: its nexthops live and die as the kernel's nexthop objects do.
        told: bool,
    },
    /// A nexthop object.
    Object {
        id: u32,
        limits: Limits,
        algo: Option<MpAlgo>,
    },
    /// A neighbour on a directly connected prefix.
    Neighbour {
        index: u32,
        address: IpAddr,
        mtu: u32,
    },
}

/// What a route says of its packets, 0 for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Limits {
    /// `RTAX_MTU`.
    pub(crate) mtu: u32,
    /// `RTAX_HOPLIMIT`: around IPv4.
    pub(crate) hop_limit: u8,
}

/// A nexthop of a route without what depends on the state of its link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SpecHop {
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) index: u32,
    pub(crate) weight: u16,
    pub(crate) encap: SpecEncap,
    /// Of an IPv6 gateway of an IPv4 route: whether the kernel takes its link to be down.
    pub(crate) linkdown: Option<bool>,
    /// IPv4: the kernel takes it to be dead, as it was read.
    pub(crate) dead: bool,
}

/// The encapsulation of a nexthop.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SpecEncap {
    None,
    /// One that engines do not model.
    Kernel,
    Segment(Arc<SegmentUse>),
}

/// Which route it is, for what is a route's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteId {
    pub(crate) table: u32,
    pub(crate) dst: IpNet,
    /// See [`Owner::Route`].
    pub(crate) generation: u32,
}

impl SpecEncap {
    /// What a nexthop's encapsulation comes to; `owner` is whose it is if it is a SID.
    /// Raddle's own are marked so; `hop_limit` is the route's, 0 for none.
    fn of(
        encap: Option<&Encap>,
        owner: impl FnOnce() -> Owner,
        index: u32,
        (own, hop_limit): (bool, u8),
    ) -> Self {
        let Some(encap) = encap else {
            return SpecEncap::None;
        };
        let (what, owner, hop_limit) = match Seg6::parse(encap) {
            Err(_) => return SpecEncap::Kernel,
            Ok(Seg6::Sid(sid)) if kernel_only(&sid) => return SpecEncap::Kernel,
            Ok(Seg6::Sid(sid)) => (Seg6::Sid(sid), owner(), 0),
            Ok(encaps) => (encaps, Owner::Shared, hop_limit),
        };
        SpecEncap::Segment(Arc::new(SegmentUse {
            what,
            owner,
            index,
            hop_limit,
            own,
        }))
    }

    fn segment(&self) -> Option<Arc<SegmentUse>> {
        match self {
            SpecEncap::Segment(what) => Some(Arc::clone(what)),
            SpecEncap::None | SpecEncap::Kernel => None,
        }
    }
}

impl Spec {
    /// Where a route with these attributes leads; `algo` is how it spreads its packets, where that is
    /// not by the namespace's policy.
    pub(crate) fn of(attrs: &Attrs, id: RouteId, algo: Option<MpAlgo>) -> Spec {
        if attrs.tos != 0 || attrs.src.is_some_and(|src| src.prefix_len() != 0) {
            return Spec::Kernel(Reason::RouteFeature);
        }
        let reason = match attrs.kind {
            RouteKind::Unicast => return Spec::of_target(attrs, id, algo),
            RouteKind::Local => Reason::Local,
            RouteKind::Broadcast => Reason::Broadcast,
            RouteKind::Anycast => Reason::Anycast,
            RouteKind::Multicast => Reason::Multicast,
            RouteKind::Blackhole => Reason::Blackhole,
            RouteKind::Unreachable => Reason::Unreachable,
            RouteKind::Prohibit => Reason::Prohibit,
            RouteKind::Throw => Reason::Throw,
            RouteKind::Unspec | RouteKind::Nat | RouteKind::Xresolve => Reason::RouteFeature,
        };
        Spec::Kernel(reason)
    }

    fn of_target(attrs: &Attrs, id: RouteId, algo: Option<MpAlgo>) -> Spec {
        let v6 = matches!(id.dst, IpNet::V6(_));
        let limits = Limits {
            mtu: attrs.mtu(),
            hop_limit: attrs.hop_limit(),
        };
        let mtu = limits.mtu;
        let owner = |nh: &RouteNexthop| Owner::Route {
            table: id.table,
            dst: id.dst,
            metric: attrs.metric,
            gateway: nh.gateway,
            generation: id.generation,
        };
        let told = attrs.flags & ROUTE_FPM != 0;
        let own = attrs.flags & ROUTE_OWN != 0 || (told && has_srv6(&attrs.target));
        let hop = |nh: &RouteNexthop| SpecHop {
            gateway: nh.gateway,
            index: nh.index,
            weight: nh.weight,
            linkdown: (!v6 && nh.gateway.is_some_and(|gateway| gateway.is_ipv6()))
                .then_some(nh.flags & RTNH_F_LINKDOWN != 0),
            dead: !v6 && !told && nh.flags & RTNH_F_DEAD != 0,
            encap: SpecEncap::of(
                nh.encap.as_ref(),
                || owner(nh),
                nh.index,
                (own, limits.hop_limit),
            ),
        };
        match &attrs.target {
            RouteTarget::None => Spec::Kernel(Reason::RouteFeature),
            RouteTarget::Object(id) => Spec::Object {
                id: *id,
                limits,
                algo,
            },
            RouteTarget::Single(nh) => Spec::Plain {
                v6,
                hops: vec![hop(nh)],
                mtu,
                // Nothing to spread, and one group more than is needed.
                algo: None,
                own,
                told,
            },
            RouteTarget::Multipath(nhs) => Spec::Plain {
                v6,
                hops: nhs.iter().map(hop).collect(),
                mtu,
                algo,
                own,
                told,
            },
        }
    }

    /// The link on which destinations of this route are neighbours, if it is a direct route over
    /// one link, and the route's MTU.
    pub(crate) fn direct_link(&self, state: &State) -> Option<(u32, u32)> {
        match self {
            Spec::Plain { hops, mtu, .. } => match hops.as_slice() {
                [hop] if hop.gateway.is_none() && hop.encap == SpecEncap::None => {
                    Some((hop.index, *mtu))
                }
                _ => None,
            },
            Spec::Object { id, limits, .. } => match &state.nexthops.get(id)?.kind {
                NexthopKind::Single {
                    gateway: None,
                    index,
                    encap: None,
                } => Some((*index, limits.mtu)),
                _ => None,
            },
            Spec::Kernel(_) | Spec::Neighbour { .. } => None,
        }
    }

    /// How its packets are spread, where that is not by the namespace's policy.
    pub(crate) fn algo(&self) -> Option<MpAlgo> {
        match self {
            Spec::Kernel(_) | Spec::Neighbour { .. } => None,
            Spec::Plain { algo, .. } | Spec::Object { algo, .. } => *algo,
        }
    }

    /// The segment of a SID that is the route's only nexthop: it is this route's, so it can say whatever there is to
    /// say about the route.
    pub(crate) fn sid(&self) -> Option<&Arc<SegmentUse>> {
        match self {
            Spec::Plain { hops, .. } => match hops.as_slice() {
                [
                    SpecHop {
                        encap: SpecEncap::Segment(what),
                        ..
                    },
                ] if what.is_routed() => Some(what),
                _ => None,
            },
            Spec::Kernel(_) | Spec::Object { .. } | Spec::Neighbour { .. } => None,
        }
    }

    /// Whether it is raddle's own: the kernel has no such route.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self, Spec::Plain { own: true, .. })
    }
}

/// One nexthop of a group, as selection sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Id of the nexthop object, where it is one.
    pub object: Option<u32>,
    /// The neighbour to send to; none for a direct route.
    pub gateway: Option<IpAddr>,
    /// Out-link.
    pub index: u32,
    /// Weight, 1..=65535.
    pub weight: u16,
    /// Upper bound of its share of the 31-bit hash; none when it has no share.
    pub upper: Option<u32>,
    /// Whether selection may choose it now.
    pub eligible: bool,
    /// The route's MTU; 0 when only the link's counts.
    pub mtu: u32,
    /// What becomes of its packets instead of being sent to the neighbour: a SID's behaviour, or an
    /// encapsulation.
    pub segment: Option<Arc<SegmentUse>>,
}

impl Hop {
    /// Where there is nothing else to choose, whether that is enough to send a packet: the destination
    /// itself would be the neighbour otherwise.
    fn leads_somewhere(&self) -> bool {
        self.gateway.is_some() || self.segment.is_some()
    }
}

/// What a route's nexthops come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// The packet goes to the kernel, or is dropped ([`Reason::Blackhole`]).
    Kernel(Reason),
    /// There is nothing to choose.
    One(Hop),
    /// Hash-threshold: the hops in their order, and the ranges that follow from them.
    Many {
        /// All hops, those without a share included.
        hops: Vec<Hop>,
        /// Upper bound and position in `hops`, ascending; the last bound is `0x7fff_ffff`.
        ranges: Vec<(u32, usize)>,
        /// The group object, where it is one.
        group: Option<u32>,
    },
    /// A resilient group: bucket `hash % buckets.len()` says which hop, whatever the state of its
    /// neighbour.
    Resilient {
        /// The group object.
        group: u32,
        /// All members; none has an upper bound.
        hops: Vec<Hop>,
        /// Position in `hops` for each bucket, 1..=65535 of them.
        buckets: Vec<u16>,
        /// How long a bucket has to be idle until the kernel may give it to another member, in
        /// seconds/100.
        idle_timer: u32,
    },
}

/// Resolves what routes of this kind come to, now.
pub(crate) fn resolve(state: &State, spec: &Spec) -> Resolved {
    match spec {
        Spec::Kernel(reason) => Resolved::Kernel(*reason),
        Spec::Plain {
            v6,
            hops,
            mtu,
            told,
            ..
        } => resolve_plain(state, (*v6, *told), hops, *mtu),
        Spec::Object { id, limits, .. } => resolve_object(state, *id, *limits),
        Spec::Neighbour {
            index,
            address,
            mtu,
        } => resolve_neighbour(state, (*index, *address), *mtu),
    }
}

/// A neighbour on a connected prefix (`fib_lookup_good_nhc`, `find_match`): where its link gives it no share the kernel
/// passes over the connected route, and goes on to others. So it does where it has taken the route away.
fn resolve_neighbour(state: &State, (index, address): (u32, IpAddr), mtu: u32) -> Resolved {
    if !has_share(state, index, address.is_ipv6()) {
        return Resolved::Kernel(Reason::OutLink);
    }
    if address.is_ipv4() && state.shares.is_flushed(index) {
        return Resolved::Kernel(Reason::RouteFeature);
    }
    Resolved::One(Hop {
        object: None,
        gateway: Some(address),
        index,
        weight: 1,
        upper: None,
        eligible: true,
        mtu,
        segment: None,
    })
}

impl Resolved {
    /// Whether packets may come to a SID's behaviour or an encapsulation.
    pub fn has_segments(&self) -> bool {
        match self {
            Resolved::Kernel(_) => false,
            Resolved::One(hop) => hop.segment.is_some(),
            Resolved::Many { hops, .. } | Resolved::Resilient { hops, .. } => {
                hops.iter().any(|hop| hop.segment.is_some())
            }
        }
    }
}

/// A route's own nexthops (`fib_select_multipath`, `fib6_select_path`).
///
/// 1. An encapsulation that engines do not model: to the kernel.
/// 2. One nexthop: it is taken if its link is up; without a gateway the packet's destination is
///    the neighbour, and destinations that are known have routes of their own. With a behaviour or an
///    encapsulation neither counts. Raddle's own need no link.
/// 3. Several: one whose link is down, or has no carrier where `ignore_routes_with_linkdown` is
///    set, has no share. Where it is not known whom the kernel last gave shares: to the kernel.
/// 4. IPv4 with `fib_multipath_use_neigh`: one whose neighbour entry exists and is not valid is
///    passed over; its hashes go to the next. When that is so for all, the first is taken.
/// 5. None has a share: to the kernel, which goes on to other routes.
/// 6. Told by FPM: one whose link is down or has no carrier has no share, and one whose neighbour entry is not
///    valid is passed over, whatever the settings, as for the nexthop objects that most of them are. The kernel has
///    taken its own copy of the route away by then.
/// 7. IPv4, and each of its links was down at some time since routes were last read: the kernel may have taken it away
///    without a word, so it is the kernel's.
fn resolve_plain(state: &State, (v6, told): (bool, bool), hops: &[SpecHop], mtu: u32) -> Resolved {
    if hops.iter().any(|hop| hop.encap == SpecEncap::Kernel) {
        return Resolved::Kernel(Reason::Encap);
    }
    let mut out: Vec<Hop> = hops
        .iter()
        .map(|hop| Hop {
            object: None,
            gateway: hop.gateway,
            index: hop.index,
            weight: hop.weight,
            upper: None,
            eligible: needs_no_link(hop)
                || match told {
                    true => state.link_lives(hop.index),
                    false => share_of(state, hop, v6),
                },
            mtu,
            segment: hop.encap.segment(),
        })
        .collect();
    let flushed = |hop: &SpecHop| !needs_no_link(hop) && state.shares.is_flushed(hop.index);
    if !v6 && !told && out.iter().any(|hop| hop.eligible) && hops.iter().all(flushed) {
        return Resolved::Kernel(Reason::RouteFeature);
    }
    if let [hop] = out.as_slice() {
        return match (hop.eligible, hop.leads_somewhere()) {
            (false, _) => Resolved::Kernel(Reason::OutLink),
            (true, false) => Resolved::Kernel(Reason::Unresolved),
            (true, true) => Resolved::One(hop.clone()),
        };
    }
    if !told && hops.iter().any(|hop| is_doubtful(state, hop, v6)) {
        return Resolved::Kernel(Reason::RouteFeature);
    }
    let check_neighbours = told || (state.settings.use_neigh && !v6);
    bound(&mut out);
    for hop in &mut out {
        hop.eligible &= !check_neighbours || neighbour_is_good(state, hop);
    }
    match ranges(&out) {
        ranges if ranges.is_empty() => Resolved::Kernel(Reason::OutLink),
        ranges => Resolved::Many {
            hops: out,
            ranges,
            group: None,
        },
    }
}

/// A nexthop object (`nexthop_select_path`).
///
/// 1. Unknown: to the kernel. A blackhole drops.
/// 2. A single nexthop, or a group that has only one: it is taken, if its link is up with carrier.
/// 3. A group loses the members whose links are down or have no carrier: the kernel has removed
///    them without saying so.
/// 4. A member whose neighbour entry exists and is not valid is passed over, always; its hashes go
///    to the next. When that is so for all, the first is taken.
/// 5. A resilient group: [`resolve_resilient`].
/// 6. None has a share: to the kernel. The kernel's weights are never 0, a snapshot's may be.
fn resolve_object(state: &State, id: u32, limits: Limits) -> Resolved {
    let Some(nexthop) = state.nexthops.get(&id) else {
        return Resolved::Kernel(Reason::NoRoute);
    };
    let members = match &nexthop.kind {
        _ if nexthop.fdb => return Resolved::Kernel(Reason::RouteFeature),
        NexthopKind::Blackhole => return Resolved::Kernel(Reason::Blackhole),
        NexthopKind::Resilient {
            members,
            buckets,
            idle_timer,
            ..
        } => return resolve_resilient(state, (id, members), *buckets, *idle_timer, limits),
        NexthopKind::Single { .. } => return resolve_single(state, id, limits),
        NexthopKind::Group(members) => members,
    };
    let mut hops = Vec::with_capacity(members.len());
    for member in members {
        match resolve_single(state, member.id, limits) {
            Resolved::One(hop) => hops.push(Hop {
                weight: member.weight,
                ..hop
            }),
            Resolved::Kernel(Reason::OutLink) => {}
            Resolved::Kernel(reason) if members.len() == 1 => return Resolved::Kernel(reason),
            // A direct nexthop: its neighbour is the packet's destination.
            Resolved::Kernel(Reason::Unresolved) => match direct_hop(state, member.id) {
                Some(hop) => hops.push(Hop {
                    weight: member.weight,
                    mtu: limits.mtu,
                    ..hop
                }),
                None => return Resolved::Kernel(Reason::NoRoute),
            },
            other => return other,
        }
    }
    match hops.len() {
        0 => return Resolved::Kernel(Reason::OutLink),
        1 => {
            let hop = hops.remove(0);
            return match hop.leads_somewhere() {
                true => Resolved::One(hop),
                false => Resolved::Kernel(Reason::Unresolved),
            };
        }
        _ => {}
    }
    bound(&mut hops);
    for hop in &mut hops {
        hop.eligible = neighbour_is_good(state, hop);
    }
    match ranges(&hops) {
        ranges if ranges.is_empty() => Resolved::Kernel(Reason::RouteFeature),
        ranges => Resolved::Many {
            hops,
            ranges,
            group: Some(id),
        },
    }
}

fn resolve_single(state: &State, id: u32, limits: Limits) -> Resolved {
    match state.nexthops.get(&id).map(|nh| &nh.kind) {
        None => Resolved::Kernel(Reason::NoRoute),
        Some(NexthopKind::Blackhole) => Resolved::Kernel(Reason::Blackhole),
        Some(NexthopKind::Group(_) | NexthopKind::Resilient { .. }) => {
            Resolved::Kernel(Reason::RouteFeature)
        }
        Some(NexthopKind::Single { index, .. }) if !state.link_lives(*index) => {
            Resolved::Kernel(Reason::OutLink)
        }
        Some(NexthopKind::Single {
            gateway,
            index,
            encap,
        }) => {
            let owner = || Owner::Object { id };
            let hop = |segment| Hop {
                object: Some(id),
                gateway: *gateway,
                index: *index,
                weight: 1,
                upper: None,
                eligible: true,
                mtu: limits.mtu,
                segment,
            };
            match SpecEncap::of(encap.as_ref(), owner, *index, (false, limits.hop_limit)) {
                SpecEncap::Kernel => Resolved::Kernel(Reason::Encap),
                SpecEncap::Segment(what) => Resolved::One(hop(Some(what))),
                SpecEncap::None if gateway.is_some() => Resolved::One(hop(None)),
                SpecEncap::None => Resolved::Kernel(Reason::Unresolved),
            }
        }
    }
}

/// Whether a route has a SID or a segment list.
fn has_srv6(target: &RouteTarget) -> bool {
    let is_srv6 = |encap: &Encap| matches!(encap.kind, ENCAP_SEG6 | ENCAP_SEG6_LOCAL);
    let mut encaps = target.hops().iter().filter_map(|hop| hop.encap.as_ref());
    encaps.any(is_srv6)
}

/// The link of raddle's own SIDs and encapsulations says where an outer source comes from, and no more: were
/// they gone with it, the kernel would get their packets, which knows nothing of them.
fn needs_no_link(hop: &SpecHop) -> bool {
    matches!(&hop.encap, SpecEncap::Segment(what) if what.own)
}

fn direct_hop(state: &State, id: u32) -> Option<Hop> {
    match state.nexthops.get(&id)?.kind {
        NexthopKind::Single {
            gateway: None,
            index,
            ..
        } => Some(Hop {
            object: Some(id),
            gateway: None,
            index,
            weight: 1,
            upper: None,
            eligible: true,
            mtu: 0,
            segment: None,
        }),
        _ => None,
    }
}

/// `fib_good_nh`, `ipv4_good_nh`, `ipv6_good_nh`: no entry is good, an entry must be valid.
fn neighbour_is_good(state: &State, hop: &Hop) -> bool {
    match hop
        .gateway
        .and_then(|gateway| state.neighbour_at(hop.index, gateway))
    {
        Some(neighbour) => neighbour.is_valid(),
        None => true,
    }
}
