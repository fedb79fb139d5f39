//! Where a route leads, whatever the state of links and neighbours is now.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnet::IpNet;

use crate::algo::MpAlgo;
use crate::attrs::Attrs;
use crate::event::{
    Encap, Nexthop, NexthopKind, ROUTE_FPM, ROUTE_STATIC, RTNH_F_DEAD, RTNH_F_LINKDOWN, RouteKind,
    RouteNexthop, RouteTarget,
};
use crate::seg6::{ENCAP_SEG6, ENCAP_SEG6_LOCAL, Seg6};
use crate::segments::{Owner, SegmentUse, kernel_only};
use crate::state::State;
use raddle_image::Reason;

/// What makes two routes lead to the same place: they then share a group of the image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Spec {
    /// To the kernel, or dropped.
    Kernel(Reason),
    /// To an address of this machine at which tunnels end.
    TunnelEnds(Ipv4Addr),
    /// A route's own nexthops.
    Plain {
        v6: bool,
        hops: Vec<SpecHop>,
        mtu: u32,
        algo: Option<MpAlgo>,
        /// Raddle's own, see [`ROUTE_STATIC`], or with SIDs or encapsulations of an FPM route, which the kernel
        /// does not have.
        own: bool,
        /// An FPM route: its nexthops live and die as the kernel's nexthop objects do.
        by_fpm: bool,
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
    pub(super) fn of(
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

    pub(super) fn segment(&self) -> Option<Arc<SegmentUse>> {
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
        let by_fpm = attrs.flags & ROUTE_FPM != 0;
        let own = attrs.flags & ROUTE_STATIC != 0 || (by_fpm && has_srv6(&attrs.target));
        let hop = |nh: &RouteNexthop| SpecHop {
            gateway: nh.gateway,
            index: nh.index,
            weight: nh.weight,
            linkdown: (!v6 && nh.gateway.is_some_and(|gateway| gateway.is_ipv6()))
                .then_some(nh.flags & RTNH_F_LINKDOWN != 0),
            dead: !v6 && !by_fpm && nh.flags & RTNH_F_DEAD != 0,
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
                by_fpm,
            },
            RouteTarget::Multipath(nhs) => Spec::Plain {
                v6,
                hops: nhs.iter().map(hop).collect(),
                mtu,
                algo,
                own,
                by_fpm,
            },
        }
    }

    /// The link on which destinations of this route are neighbours, if it is a direct route over
    /// one link, and the route's MTU. On one whose packets have the same end all there are no neighbours.
    pub(crate) fn direct_link(&self, state: &State) -> Option<(u32, u32)> {
        let direct = match self {
            Spec::Plain { hops, mtu, .. } => match hops.as_slice() {
                [hop] if hop.gateway.is_none() && hop.encap == SpecEncap::None => {
                    Some((hop.index, *mtu))
                }
                _ => None,
            },
            Spec::Object { id, limits, .. } => match state.nexthops.get(id)? {
                Nexthop {
                    fdb: false,
                    kind:
                        NexthopKind::Single {
                            gateway: None,
                            index,
                            encap: None,
                        },
                    ..
                } => Some((*index, limits.mtu)),
                _ => None,
            },
            Spec::Kernel(_) | Spec::TunnelEnds(_) | Spec::Neighbour { .. } => None,
        };
        direct.filter(|(index, _)| !state.has_one_end(*index))
    }

    /// How its packets are spread, where that is not by the namespace's policy.
    pub(crate) fn algo(&self) -> Option<MpAlgo> {
        match self {
            Spec::Kernel(_) | Spec::TunnelEnds(_) | Spec::Neighbour { .. } => None,
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
            Spec::Kernel(_)
            | Spec::TunnelEnds(_)
            | Spec::Object { .. }
            | Spec::Neighbour { .. } => None,
        }
    }

    /// Whether it is raddle's own: the kernel has no such route.
    pub(crate) fn never_punts(&self) -> bool {
        matches!(self, Spec::Plain { own: true, .. })
    }
}

/// Whether a route has a SID or a segment list.
fn has_srv6(target: &RouteTarget) -> bool {
    let is_srv6 = |encap: &Encap| matches!(encap.kind, ENCAP_SEG6 | ENCAP_SEG6_LOCAL);
    let mut encaps = target.hops().iter().filter_map(|hop| hop.encap.as_ref());
    encaps.any(is_srv6)
}
