//! From a route to the links that it can take: what Linux would do with its nexthops now.
//!
//! Pure functions of the mirrored state; `explain` shows their result, the image is compiled from
//! it.

mod bounds;
mod resilient;
mod share;
mod spec;

use std::net::IpAddr;
use std::sync::Arc;

use crate::event::NexthopKind;
use crate::segments::{Owner, SegmentUse};
use crate::state::State;
use bounds::{bound, ranges};
use raddle_image::Reason;
use resilient::resolve_resilient;
pub(crate) use share::has_share;
use share::{is_doubtful, share_of};
use spec::{Limits, SpecEncap, SpecHop};
pub(crate) use spec::{RouteId, Spec};

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
    /// itself would be the neighbour otherwise, but for a link whose packets have the same end all.
    fn leads_somewhere(&self, state: &State) -> bool {
        self.gateway.is_some() || self.segment.is_some() || state.has_one_end(self.index)
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

impl Resolved {
    /// All hops, those without a share included; none of what the kernel gets.
    pub fn hops(&self) -> &[Hop] {
        match self {
            Resolved::Kernel(_) => &[],
            Resolved::One(hop) => std::slice::from_ref(hop),
            Resolved::Many { hops, .. } | Resolved::Resilient { hops, .. } => hops,
        }
    }
}

/// Resolves what routes of this kind come to, now.
pub(crate) fn resolve(state: &State, spec: &Spec) -> Resolved {
    match spec {
        Spec::Kernel(reason) => Resolved::Kernel(*reason),
        Spec::TunnelEnds(_) => Resolved::Kernel(Reason::Local),
        Spec::Plain {
            v6,
            hops,
            mtu,
            by_fpm,
            ..
        } => resolve_plain(state, (*v6, *by_fpm), hops, *mtu),
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
///    set, has no share. Where it is not known whom the kernel last gave shares: to the kernel, unless it is
///    raddle that spreads over its own.
/// 4. IPv4 with `fib_multipath_use_neigh`: one whose neighbour entry exists and is not valid is
///    passed over; its hashes go to the next. When that is so for all, the first is taken.
/// 5. None has a share: to the kernel, which goes on to other routes.
/// 6. An FPM route: a nexthop whose link is down or has no carrier has no share, and one whose neighbour entry is not
///    valid is passed over, whatever the settings, as for the nexthop objects that most of them are. The kernel has
///    taken its own copy of the route away by then.
/// 7. IPv4, and each of its links was down at some time since routes were last read: the kernel may have taken it away
///    without a word, so it is the kernel's.
fn resolve_plain(
    state: &State,
    (v6, by_fpm): (bool, bool),
    hops: &[SpecHop],
    mtu: u32,
) -> Resolved {
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
                || match by_fpm {
                    true => state.link_lives(hop.index),
                    false => share_of(state, hop, v6),
                },
            mtu,
            segment: hop.encap.segment(),
        })
        .collect();
    let flushed = |hop: &SpecHop| !needs_no_link(hop) && state.shares.is_flushed(hop.index);
    if !v6 && !by_fpm && out.iter().any(|hop| hop.eligible) && hops.iter().all(flushed) {
        return Resolved::Kernel(Reason::RouteFeature);
    }
    if let [hop] = out.as_slice() {
        return match (hop.eligible, hop.leads_somewhere(state)) {
            (false, _) => Resolved::Kernel(Reason::OutLink),
            (true, false) => Resolved::Kernel(Reason::Unresolved),
            (true, true) => Resolved::One(hop.clone()),
        };
    }
    let doubtful = |hop: &SpecHop| !needs_no_link(hop) && is_doubtful(state, hop, v6);
    if !by_fpm && hops.iter().any(doubtful) {
        return Resolved::Kernel(Reason::RouteFeature);
    }
    let check_neighbours = by_fpm || (state.settings.use_neigh && !v6);
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
            return match hop.leads_somewhere(state) {
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
                SpecEncap::None if gateway.is_some() || state.has_one_end(*index) => {
                    Resolved::One(hop(None))
                }
                SpecEncap::None => Resolved::Kernel(Reason::Unresolved),
            }
        }
    }
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

/// `fib_good_nh`, `ipv4_good_nh`, `ipv6_good_nh`: no entry is good, an entry must be valid. Those of a link whose packets have the same
/// end all are (`NUD_NOARP`).
fn neighbour_is_good(state: &State, hop: &Hop) -> bool {
    match hop
        .gateway
        .filter(|_| !state.has_one_end(hop.index))
        .and_then(|gateway| state.neighbour_at(hop.index, gateway))
    {
        Some(neighbour) => neighbour.is_valid(),
        None => true,
    }
}
