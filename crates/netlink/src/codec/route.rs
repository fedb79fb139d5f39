//! Routes (`RTM_NEWROUTE`, `RTM_DELROUTE`): a view that borrows, and the event made from it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use raddle_rib::MpAlgo;
use raddle_rib::event::{
    Encap, Event, Metrics, Route, RouteKind, RouteNexthop, RouteOp, RouteTarget,
};

use super::number::rtm::RTM_DELROUTE;
use super::number::{INET, INET6, nlm};
use super::wire::{Attribute, DecodeError, Message, align4, ip_from, read_u32};

pub(crate) const RTA_DST: u16 = 1;
pub(crate) const RTA_SRC: u16 = 2;
pub(crate) const RTA_IIF: u16 = 3;
pub(crate) const RTA_OIF: u16 = 4;
pub(crate) const RTA_GATEWAY: u16 = 5;
pub(super) const RTA_PRIORITY: u16 = 6;
pub(super) const RTA_PREFSRC: u16 = 7;
pub(super) const RTA_METRICS: u16 = 8;
pub(super) const RTA_MULTIPATH: u16 = 9;
pub(super) const RTA_CACHEINFO: u16 = 12;
pub(super) const RTA_MP_ALGO: u16 = 14;
pub(super) const RTA_TABLE: u16 = 15;
pub(crate) const RTA_MARK: u16 = 16;
pub(super) const RTA_VIA: u16 = 18;
pub(super) const RTA_PREF: u16 = 20;
pub(super) const RTA_ENCAP_TYPE: u16 = 21;
pub(super) const RTA_ENCAP: u16 = 22;
pub(crate) const RTA_IP_PROTO: u16 = 27;
pub(crate) const RTA_SPORT: u16 = 28;
pub(crate) const RTA_DPORT: u16 = 29;
pub(super) const RTA_NH_ID: u16 = 30;
pub(crate) const RTA_FLOWLABEL: u16 = 31;

/// An entry of a cache (IPv6 exception) or an answer to a look-up: not a route of a table.
const RTM_F_CLONED: u32 = 0x200;

/// A route message taken apart without copying: what the attributes say, before anything is made
/// of it.
#[derive(Clone, Debug)]
pub(crate) struct RouteView<'a> {
    pub family: u8,
    pub dst_len: u8,
    pub src_len: u8,
    pub tos: u8,
    pub table: u32,
    pub protocol: u8,
    pub scope: u8,
    pub kind: RouteKind,
    pub flags: u32,
    pub dst: Option<IpAddr>,
    pub src: Option<IpAddr>,
    pub prefsrc: Option<IpAddr>,
    pub metric: u32,
    pub pref: Option<u8>,
    pub object: Option<u32>,
    pub metrics: &'a [u8],
    /// For how many hundredths of a second an IPv6 route lasts yet, less than 0 where its time is over; 0 for ever.
    pub expires: i32,
    /// Of IPv4: whether it is an entry of a cache that expires, as path MTUs do that were learnt.
    pub is_learnt: bool,
    pub mp_algo: Option<MpAlgo>,
    pub multipath: Option<&'a [u8]>,
    pub hop: HopView<'a>,
}

/// An encapsulation as it came: `LWTUNNEL_ENCAP_*` and its attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncapView<'a> {
    pub kind: u16,
    pub data: &'a [u8],
}

/// The attributes that a route of one nexthop and each `rtnexthop` of a multipath route share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HopView<'a> {
    pub index: u32,
    pub gateway: Option<IpAddr>,
    encap_kind: u16,
    encap: Option<&'a [u8]>,
}

impl<'a> RouteView<'a> {
    /// Takes a route message of IPv4 or IPv6 apart; `None` for other families (multicast routing
    /// and MPLS use the same message types).
    #[inline]
    pub(crate) fn new(message: &Message<'a>) -> Result<Option<Self>, DecodeError> {
        let (head, attributes) = message.split::<12>("rtmsg")?;
        let [
            family,
            dst_len,
            src_len,
            tos,
            table,
            protocol,
            scope,
            kind,
            ..,
        ] = *head;
        if family != INET && family != INET6 {
            return Ok(None);
        }
        let Some(kind) = RouteKind::from_number(kind) else {
            return Err(DecodeError::BadValue {
                what: "rtm_type",
                value: kind.into(),
            });
        };
        let mut view = RouteView {
            family,
            dst_len,
            src_len,
            tos,
            table: table.into(),
            protocol,
            scope,
            kind,
            flags: read_u32(head, 8),
            dst: None,
            src: None,
            prefsrc: None,
            metric: 0,
            pref: None,
            object: None,
            metrics: &[],
            expires: 0,
            is_learnt: false,
            mp_algo: None,
            multipath: None,
            hop: HopView::default(),
        };
        for attribute in attributes {
            view.take(&attribute?)?;
        }
        Ok(Some(view))
    }

    #[inline]
    fn take(&mut self, a: &Attribute<'a>) -> Result<(), DecodeError> {
        match a.kind {
            RTA_DST => self.dst = Some(a.ip("RTA_DST")?),
            RTA_SRC => self.src = Some(a.ip("RTA_SRC")?),
            RTA_OIF => self.hop.index = a.u32("RTA_OIF")?,
            RTA_PRIORITY => self.metric = a.u32("RTA_PRIORITY")?,
            RTA_PREFSRC => self.prefsrc = Some(a.ip("RTA_PREFSRC")?),
            RTA_METRICS => self.metrics = a.payload,
            RTA_MULTIPATH => self.multipath = Some(a.payload),
            // `rta_expires` in `struct rta_cacheinfo`.
            RTA_CACHEINFO => {
                let known = a.payload.first_chunk::<12>();
                let expires = known.map_or(0, |info| read_u32(info, 8).cast_signed());
                match self.family {
                    INET6 => self.expires = expires,
                    _ => self.is_learnt = expires != 0,
                }
            }
            RTA_MP_ALGO => self.mp_algo = Some(mp_algo(a)?),
            RTA_TABLE => self.table = a.u32("RTA_TABLE")?,
            RTA_PREF => self.pref = Some(a.u8("RTA_PREF")?),
            RTA_NH_ID => self.object = Some(a.u32("RTA_NH_ID")?),
            _ => self.hop.take(a)?,
        }
        Ok(())
    }

    /// The prefix that it leads to.
    pub(crate) fn destination(&self) -> Result<IpNet, DecodeError> {
        self.net(self.dst, self.dst_len)
    }

    /// The nexthops that have an encapsulation.
    pub(crate) fn encaps(&self) -> Result<Vec<(HopView<'a>, EncapView<'a>)>, DecodeError> {
        let own = |hop: HopView<'a>| {
            let kind = hop.encap_kind;
            hop.encap.map(|data| (hop, EncapView { kind, data }))
        };
        let Some(hops) = self.multipath else {
            return Ok(own(self.hop).into_iter().collect());
        };
        let mut found = Vec::new();
        each_hop(hops, |_, _, hop| found.extend(own(hop)))?;
        Ok(found)
    }

    fn net(&self, address: Option<IpAddr>, length: u8) -> Result<IpNet, DecodeError> {
        let bad = || DecodeError::BadValue {
            what: "prefix length",
            value: length.into(),
        };
        match (self.family, address) {
            (INET, Some(IpAddr::V4(a))) => Ipv4Net::new(a, length).map(|n| n.trunc().into()),
            (INET6, Some(IpAddr::V6(a))) => Ipv6Net::new(a, length).map(|n| n.trunc().into()),
            // The default route carries no address.
            (INET, None) if length == 0 => Ipv4Net::new(Ipv4Addr::UNSPECIFIED, 0).map(IpNet::V4),
            (_, None) if length == 0 => Ipv6Net::new(Ipv6Addr::UNSPECIFIED, 0).map(IpNet::V6),
            (_, None) => return Err(DecodeError::Missing { what: "RTA_DST" }),
            (family, _) => {
                return Err(DecodeError::BadValue {
                    what: "family of RTA_DST",
                    value: family.into(),
                });
            }
        }
        .map_err(|_| bad())
    }

    fn target(&self) -> Result<RouteTarget, DecodeError> {
        if let Some(id) = self.object {
            // The expansion beside it (nexthop_compat_mode) truncates weights; it is not used.
            return Ok(RouteTarget::Object(id));
        }
        if let Some(hops) = self.multipath {
            return multipath(hops).map(RouteTarget::Multipath);
        }
        if self.hop.index == 0 && self.hop.gateway.is_none() && self.hop.encap.is_none() {
            return Ok(RouteTarget::None);
        }
        Ok(RouteTarget::Single(self.hop.nexthop(1, self.flags as u8)))
    }

    fn metrics(&self) -> Result<Metrics, DecodeError> {
        let mut metrics = Metrics::new();
        for metric in super::wire::Attributes::new(self.metrics) {
            let metric = metric?;
            // Numbers all but RTAX_CC_ALGO, which is a name and does not concern forwarding.
            if let (Ok(number), Ok(value)) = (
                u8::try_from(metric.kind),
                <[u8; 4]>::try_from(metric.payload),
            ) {
                metrics.push((number, u32::from_ne_bytes(value)));
            }
        }
        Ok(metrics)
    }

    /// The route that the message is about. When it expires is told in milliseconds from the message on.
    ///
    /// # Errors
    /// When prefix, family or nexthops contradict each other.
    #[inline]
    pub(crate) fn route(&self) -> Result<Route, DecodeError> {
        let src = match self.src {
            Some(_) if self.src_len > 0 => Some(self.net(self.src, self.src_len)?),
            _ => None,
        };
        Ok(Route {
            table: self.table,
            dst: self.net(self.dst, self.dst_len)?,
            src,
            tos: self.tos,
            protocol: self.protocol,
            scope: self.scope,
            kind: self.kind,
            metric: self.metric,
            prefsrc: self.prefsrc,
            flags: self.flags,
            pref: self.pref,
            metrics: self.metrics()?,
            expires: (self.expires != 0).then(|| 10 * i64::from(self.expires)),
            mp_algo: self.mp_algo,
            target: self.target()?,
        })
    }
}

impl<'a> HopView<'a> {
    #[inline]
    fn take(&mut self, a: &Attribute<'a>) -> Result<(), DecodeError> {
        match a.kind {
            RTA_GATEWAY => self.gateway = Some(a.ip("RTA_GATEWAY")?),
            RTA_VIA => self.gateway = Some(via(a)?),
            RTA_ENCAP_TYPE => self.encap_kind = a.u16("RTA_ENCAP_TYPE")?,
            RTA_ENCAP => self.encap = Some(a.payload),
            _ => {}
        }
        Ok(())
    }

    fn nexthop(&self, weight: u16, flags: u8) -> RouteNexthop {
        RouteNexthop {
            gateway: self.gateway,
            index: self.index,
            weight,
            flags,
            encap: self.encap.map(|data| Encap {
                kind: self.encap_kind,
                data: data.to_vec(),
            }),
        }
    }
}

/// `RTA_MP_ALGO`: how the route's packets are spread; what is reserved is refused.
fn mp_algo(a: &Attribute<'_>) -> Result<MpAlgo, DecodeError> {
    let number = a.u32("RTA_MP_ALGO")?;
    MpAlgo::from_attribute(number).map_err(|_| DecodeError::BadValue {
        what: "RTA_MP_ALGO (0, 1 and 5 are supported)",
        value: number.into(),
    })
}

/// `RTA_VIA`: a gateway of the other family.
fn via(a: &Attribute<'_>) -> Result<IpAddr, DecodeError> {
    let family = a.u16("RTA_VIA")?;
    let address = ip_from(a.payload.get(2..).unwrap_or_default(), "RTA_VIA")?;
    if u16::from(super::family_of(address)) == family {
        Ok(address)
    } else {
        Err(DecodeError::BadValue {
            what: "family of RTA_VIA",
            value: family.into(),
        })
    }
}

fn multipath(bytes: &[u8]) -> Result<Vec<RouteNexthop>, DecodeError> {
    // 16 bytes is the usual size of one: header and an IPv4 gateway.
    let mut hops = Vec::with_capacity(bytes.len().div_ceil(16));
    each_hop(bytes, |weight, flags, view| {
        hops.push(view.nexthop(weight, flags))
    })?;
    Ok(hops)
}

/// Hands on weight, flags and attributes of each `rtnexthop`.
fn each_hop<'a>(
    mut bytes: &'a [u8],
    mut take: impl FnMut(u16, u8, HopView<'a>),
) -> Result<(), DecodeError> {
    while let Some(head) = bytes.first_chunk::<8>() {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        if length < 8 || length > bytes.len() {
            let have = bytes.len();
            return Err(DecodeError::BadLength {
                what: "rtnexthop",
                length,
                have,
            });
        }
        let mut view = HopView {
            index: read_u32(head, 4),
            ..HopView::default()
        };
        for attribute in super::wire::Attributes::new(&bytes[8..length]) {
            view.take(&attribute?)?;
        }
        take(u16::from(head[3]) + 1, head[2], view);
        bytes = bytes.get(align4(length)..).unwrap_or_default();
    }
    if bytes.is_empty() {
        Ok(())
    } else {
        Err(DecodeError::Truncated {
            what: "rtnexthop",
            need: 8,
            have: bytes.len(),
        })
    }
}

/// What happened to the routes of the same key (`fib_table_insert`, `inet6_rt_notify`).
///
/// 1. `NLM_F_REPLACE`: replaced the first.
/// 2. `NLM_F_APPEND`: went behind them.
/// 3. `NLM_F_CREATE` without `NLM_F_EXCL`: went before them (IPv4), or is the whole set (IPv6).
/// 4. Otherwise: the key was free, or it is a dump.
pub(crate) fn operation(flags: u16) -> RouteOp {
    if flags & nlm::REPLACE != 0 {
        RouteOp::Replace
    } else if flags & nlm::APPEND != 0 {
        RouteOp::Append
    } else if flags & (nlm::CREATE | nlm::EXCL) == nlm::CREATE {
        RouteOp::Prepend
    } else {
        RouteOp::Add
    }
}

#[inline]
pub(super) fn decode(message: &Message<'_>) -> Result<Option<Event>, DecodeError> {
    let Some(view) = RouteView::new(message)? else {
        return Ok(None);
    };
    if view.flags & RTM_F_CLONED != 0 {
        return Ok(None);
    }
    let route = view.route()?;
    Ok(Some(if message.kind == RTM_DELROUTE {
        Event::RouteGone(route)
    } else {
        Event::Route(route, operation(message.flags))
    }))
}
