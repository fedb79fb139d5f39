//! Routes, and their nexthops where they have them of their own.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::algo::MpAlgo;

/// An encapsulation that a route or nexthop carries (`RTA_ENCAP_TYPE`, `RTA_ENCAP`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Encap {
    /// `LWTUNNEL_ENCAP_*`: 5 seg6, 7 seg6local, ...
    pub kind: u16,
    /// The attribute's payload as it came.
    pub data: Vec<u8>,
}

/// One nexthop of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RouteNexthop {
    /// Gateway; an IPv4 route may have an IPv6 one (`RTA_VIA`).
    pub gateway: Option<IpAddr>,
    /// Out-link; 0 when the message named none.
    pub index: u32,
    /// Weight, 1..=256.
    pub weight: u16,
    /// `RTNH_F_*`: 1 dead, 4 onlink, 16 linkdown.
    pub flags: u8,
    /// Encapsulation.
    pub encap: Option<Encap>,
}

impl Default for RouteNexthop {
    /// Of weight 1, without gateway, link or encapsulation: what a route message that names none of
    /// them tells.
    fn default() -> RouteNexthop {
        RouteNexthop {
            gateway: None,
            index: 0,
            weight: 1,
            flags: 0,
            encap: None,
        }
    }
}

/// `RTNH_F_DEAD`.
pub const RTNH_F_DEAD: u8 = 1;
/// `RTNH_F_ONLINK`.
pub const RTNH_F_ONLINK: u8 = 4;
/// `RTNH_F_LINKDOWN`.
pub const RTNH_F_LINKDOWN: u8 = 16;

/// Route types (`RTN_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum RouteKind {
    /// Not told (deletions).
    Unspec = 0,
    /// Gateway or direct route.
    #[default]
    Unicast = 1,
    /// Accept locally.
    Local = 2,
    /// Accept as broadcast.
    Broadcast = 3,
    /// Accept as anycast.
    Anycast = 4,
    /// Multicast.
    Multicast = 5,
    /// Drop.
    Blackhole = 6,
    /// ICMP unreachable.
    Unreachable = 7,
    /// ICMP prohibited.
    Prohibit = 8,
    /// Not in this table.
    Throw = 9,
    /// Translate (no longer used).
    Nat = 10,
    /// External resolver.
    Xresolve = 11,
}

impl RouteKind {
    /// The kind with this `RTN_*` number.
    pub fn from_number(n: u8) -> Option<RouteKind> {
        use RouteKind::*;
        [
            Unspec,
            Unicast,
            Local,
            Broadcast,
            Anycast,
            Multicast,
            Blackhole,
            Unreachable,
            Prohibit,
            Throw,
            Nat,
            Xresolve,
        ]
        .get(usize::from(n))
        .copied()
    }
}

/// Bit of [`Route::flags`] of routes that raddle itself has and the kernel does not: dumps do not sweep
/// them, and they come before the kernel's of the same prefix. The kernel uses other bits.
pub const ROUTE_STATIC: u32 = 1 << 24;

/// Bit of [`Route::flags`] of FPM routes ([`super::Fpm`]): dumps do not sweep
/// them, and they count where the kernel has no route of the prefix. The kernel uses other bits.
pub const ROUTE_FPM: u32 = 1 << 25;

/// Where a route leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteTarget {
    /// Nowhere: blackhole, unreachable, prohibit, throw.
    #[default]
    None,
    /// One nexthop of the route's own.
    Single(RouteNexthop),
    /// `RTA_MULTIPATH`.
    Multipath(Vec<RouteNexthop>),
    /// `RTA_NH_ID`: a nexthop object; the kernel's expansion of it is not kept.
    Object(u32),
}

impl RouteTarget {
    /// The nexthops that it names itself.
    pub fn hops(&self) -> &[RouteNexthop] {
        match self {
            RouteTarget::Single(hop) => std::slice::from_ref(hop),
            RouteTarget::Multipath(hops) => hops,
            RouteTarget::None | RouteTarget::Object(_) => &[],
        }
    }

    /// Whether it is, or one of its nexthops is, a SID of this machine.
    pub fn has_sid(&self) -> bool {
        let is_sid = |hop: &RouteNexthop| {
            let encap = hop.encap.as_ref();
            encap.is_some_and(|encap| encap.kind == crate::seg6::ENCAP_SEG6_LOCAL)
        };
        self.hops().iter().any(is_sid)
    }
}

/// Route metrics that matter to forwarding and display (`RTA_METRICS`), as pairs of `RTAX_*` and
/// value; `RTAX_MTU` is 2.
pub type Metrics = Vec<(u8, u32)>;

/// A route (`RTM_NEWROUTE`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Table: 254 main, 255 local, 253 default.
    pub table: u32,
    /// Destination.
    pub dst: IpNet,
    /// Source prefix of a source-specific IPv6 route.
    #[serde(default)]
    pub src: Option<IpNet>,
    /// TOS (IPv4).
    #[serde(default)]
    pub tos: u8,
    /// `RTPROT_*`.
    pub protocol: u8,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// Type.
    pub kind: RouteKind,
    /// Metric (`RTA_PRIORITY`); lower is better.
    pub metric: u32,
    /// Preferred source address.
    #[serde(default)]
    pub prefsrc: Option<IpAddr>,
    /// `RTM_F_*` and `RTNH_F_*` flags of the route itself.
    #[serde(default)]
    pub flags: u32,
    /// IPv6 router preference (`RTA_PREF`).
    #[serde(default)]
    pub pref: Option<u8>,
    /// Metrics.
    #[serde(default)]
    pub metrics: Metrics,
    /// When an IPv6 route expires (`rta_expires`), at the earliest: in milliseconds of the clock that
    /// [`super::Event::Clock`] tells. Of a multipath route the kernel tells when its first nexthop does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<i64>,
    /// How it spreads its packets (`RTA_MP_ALGO`), where it says so itself. The kernel drops this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mp_algo: Option<MpAlgo>,
    /// Where it leads.
    pub target: RouteTarget,
}

impl Default for Route {
    /// A unicast route of the main table to 0.0.0.0/0, of universe scope and metric 0, that leads
    /// nowhere yet.
    fn default() -> Route {
        Route {
            table: 254,
            dst: IpNet::default(),
            src: None,
            tos: 0,
            protocol: 0,
            scope: 0,
            kind: RouteKind::Unicast,
            metric: 0,
            prefsrc: None,
            flags: 0,
            pref: None,
            metrics: Metrics::new(),
            expires: None,
            mp_algo: None,
            target: RouteTarget::None,
        }
    }
}

/// What a route message does to the routes that have the same key (spec: replace/append).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteOp {
    /// From a dump, or added where the key was free (`NLM_F_CREATE | NLM_F_EXCL`).
    Add,
    /// `NLM_F_REPLACE`: takes the place of the first with this key.
    Replace,
    /// `NLM_F_APPEND`: goes behind those with this key (IPv4), or tells the whole set (IPv6).
    Append,
    /// `NLM_F_CREATE` alone: goes before those with this key (IPv4), or tells the whole set (IPv6).
    Prepend,
}
