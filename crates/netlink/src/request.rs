//! What raddle asks of the kernel beside mirroring it: where it would send a packet, to resolve a
//! neighbour, and, in tests and benchmarks, to install state.

use std::net::IpAddr;

use raddle_rib::event::{Event, Neighbour, Route, RouteKind, RouteOp};

use crate::codec::number::nlm;
use crate::codec::number::rtm::RTM_GETROUTE;
use crate::codec::{
    Builder, NTF_USE, RTA_DPORT, RTA_DST, RTA_FLOWLABEL, RTA_IIF, RTA_IP_PROTO, RTA_MARK, RTA_OIF,
    RTA_SPORT, RTA_SRC, RouteView, encode, family_of,
};
use crate::error::Error;
use crate::socket::Socket;

/// Messages per `send` of [`Socket::install_routes`].
const BATCH: usize = 500;
/// Tell the table of the route found, not `local` or 0.
const RTM_F_LOOKUP_TABLE: u32 = 0x1000;
/// Tell the route found, not the path chosen from it.
const RTM_F_FIB_MATCH: u32 = 0x2000;

/// Which metrics are locked, by bits.
const RTAX_LOCK: u8 = 1;
const RTAX_MTU: u8 = 2;

/// A packet to ask the kernel about (`RTM_GETROUTE`); unset fields are not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteQuery {
    /// Source address.
    pub src: Option<IpAddr>,
    /// The link that it comes in by; without it the look-up is that of a local sender.
    pub iif: Option<u32>,
    /// The link that it has to go out by.
    pub oif: Option<u32>,
    /// Upper-layer protocol: TCP, UDP, ICMP, ICMPv6 are accepted by the kernel.
    pub ip_proto: Option<u8>,
    /// Source port.
    pub sport: Option<u16>,
    /// Destination port.
    pub dport: Option<u16>,
    /// IPv6 flow label, 20 bits.
    ///
    /// # Minimum kernel version
    /// 6.14; with strict checking older ones refuse it.
    pub flow_label: Option<u32>,
    /// Firewall mark.
    pub mark: Option<u32>,
    /// TOS or traffic class.
    pub tos: u8,
    /// Answer with the route of the table (all its nexthops) in place of the path chosen.
    pub fib_match: bool,
}

/// The kernel's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteAnswer {
    /// What happens to the packet: unicast, local, ...
    pub kind: RouteKind,
    /// The table that the route is in.
    pub table: u32,
    /// Out-link; 0 for none, or with `fib_match` when there are several.
    pub index: u32,
    /// Gateway; none when the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// Nexthop object that the route refers to; told with `fib_match` only.
    pub nexthop: Option<u32>,
    /// Source address that a local sender would use.
    pub prefsrc: Option<IpAddr>,
    /// The path MTU that the kernel has learnt of an IPv4 destination and goes by, and whether it is locked: packets may be fragmented
    /// then, whoever sends them (`rt_fill_info`).
    pub learnt_mtu: Option<(u32, bool)>,
    /// All of it as a route; with [`RouteQuery::fib_match`] the one of the table.
    pub route: Route,
}

impl Socket {
    /// Asks the kernel where it would send a packet to `dst`.
    ///
    /// # Errors
    /// [`Error::Refused`] when there is no route (`ENETUNREACH`), or a blackhole (`EINVAL`),
    /// unreachable (`EHOSTUNREACH`) or prohibit (`EACCES`) one.
    pub fn get_route(&mut self, dst: IpAddr, query: &RouteQuery) -> Result<RouteAnswer, Error> {
        let mut request = Builder::new();
        put_query(&mut request, dst, query);
        request.end()?;
        self.query(&mut request, "tell a route", |message| {
            let view =
                RouteView::new(message)?.ok_or(Error::NoAnswer("tell a route of this family"))?;
            let route = view.route()?;
            let metric = |kind: u8| {
                let mut metrics = route.metrics.iter();
                metrics
                    .find(|metric| metric.0 == kind)
                    .map(|metric| metric.1)
            };
            let learnt_mtu = metric(RTAX_MTU).filter(|_| view.is_learnt);
            let locks = metric(RTAX_LOCK).unwrap_or(0);
            Ok(RouteAnswer {
                kind: view.kind,
                table: view.table,
                index: view.hop.index,
                gateway: view.hop.gateway,
                nexthop: view.object,
                prefsrc: view.prefsrc,
                learnt_mtu: learnt_mtu.map(|mtu| (mtu, locks & 1 << RTAX_MTU != 0)),
                route,
            })
        })
    }

    /// Has the kernel resolve or re-confirm a neighbour as if it had a packet for it (`NTF_USE`).
    /// Returns at once; the result comes as neighbour events. Needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// [`Error::Refused`] when the link is gone or may not be changed by us.
    pub fn use_neighbour(&mut self, index: u32, dst: IpAddr) -> Result<(), Error> {
        let neighbour = Neighbour {
            index,
            dst,
            mac: None,
            state: 0,
            flags: NTF_USE,
            protocol: 0,
        };
        let mut request = Builder::new();
        encode(&mut request, &Event::Neighbour(neighbour), nlm::CREATE)?;
        self.request(&mut request, "resolve a neighbour")
    }

    /// Has the kernel bring about what `event` tells: a nexthop object or route or address to be
    /// there or gone, ... `flags` as [`encode`] takes them, such as `NLM_F_REPLACE`.
    ///
    /// # Errors
    /// [`Error::Refused`] with the kernel's words.
    pub fn apply(&mut self, event: &Event, flags: u16) -> Result<(), Error> {
        let mut request = Builder::new();
        encode(&mut request, event, flags)?;
        self.request(&mut request, "change its state")
    }

    /// Installs many routes, 500 messages per `send` and one acknowledgement each time: about
    /// 200,000 routes a second. For tests and benchmarks.
    ///
    /// # Errors
    /// [`Error::Refused`] with a refusal; other routes of the batch may have been installed.
    pub fn install_routes(
        &mut self,
        routes: impl IntoIterator<Item = Route>,
    ) -> Result<usize, Error> {
        let mut request = Builder::new();
        let mut installed = 0;
        let mut routes = routes.into_iter().peekable();
        while let Some(route) = routes.next() {
            installed += 1;
            let event = Event::Route(route, RouteOp::Replace);
            let last = installed % BATCH == 0 || routes.peek().is_none();
            encode(&mut request, &event, if last { nlm::ACK } else { 0 })?;
            if last {
                self.send_batch(&mut request)?;
                request.clear();
            }
        }
        Ok(installed)
    }
}

fn put_query(b: &mut Builder, dst: IpAddr, query: &RouteQuery) {
    let full = |a: IpAddr| if a.is_ipv4() { 32 } else { 128 };
    let mut head = [0; 12];
    head[0] = family_of(dst);
    head[1] = full(dst);
    head[2] = query.src.map_or(0, full);
    head[3] = query.tos;
    // IPv6 tells the table anyway and refuses to be asked for it.
    let table = if dst.is_ipv4() { RTM_F_LOOKUP_TABLE } else { 0 };
    let flags = table | if query.fib_match { RTM_F_FIB_MATCH } else { 0 };
    head[8..].copy_from_slice(&flags.to_ne_bytes());
    b.begin(RTM_GETROUTE, 0, &head).put_ip(RTA_DST, dst);
    if let Some(src) = query.src {
        b.put_ip(RTA_SRC, src);
    }
    for (kind, value) in [
        (RTA_IIF, query.iif),
        (RTA_OIF, query.oif),
        (RTA_MARK, query.mark),
    ] {
        if let Some(value) = value {
            b.put_u32(kind, value);
        }
    }
    if let Some(proto) = query.ip_proto {
        b.put_u8(RTA_IP_PROTO, proto);
    }
    // Ports and label are in network order.
    for (kind, port) in [(RTA_SPORT, query.sport), (RTA_DPORT, query.dport)] {
        if let Some(port) = port {
            b.put(kind, &port.to_be_bytes());
        }
    }
    if let Some(label) = query.flow_label {
        b.put(RTA_FLOWLABEL, &(label & 0xf_ffff).to_be_bytes());
    }
}
