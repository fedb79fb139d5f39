//! What the messages of a frame tell.

use raddle_rib::event::{Encap, Event, Fpm, Nexthop, NexthopKind, Route, RouteTarget};
use raddle_rib::seg6::{ENCAP_SEG6, ENCAP_SEG6_LOCAL, Seg6};

use crate::codec::{Decoded, Messages, decode_message};

/// `RTPROT_ZEBRA`: what FRR's older module gives nearly all of its routes.
const ZEBRA: u8 = 11;
/// `IP6_RT_PRIO_USER`: the metric that IPv6 routes have if they say none.
const METRIC6: u32 = 1024;

/// How many messages of each kind came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tallies {
    /// Frames.
    pub frames: u64,
    /// Routes that are new or have changed.
    pub routes: u64,
    /// Routes that are gone.
    pub routes_gone: u64,
    /// Nexthop objects that are new or have changed.
    pub nexthops: u64,
    /// Nexthop objects that are gone.
    pub nexthops_gone: u64,
    /// Messages of other kinds: MPLS, VXLAN's MAC addresses, SONiC's own types, source-specific routes.
    pub skipped: u64,
    /// Messages that make no sense.
    pub malformed: u64,
}

/// Reads frames.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// Whether SIDs count: their routes do not say so, as FRR has no word for it.
    pub counters: bool,
}

impl Reader {
    /// Hands on what the messages of a frame tell, in order. What makes no sense is passed over and counted, as is
    /// what does not concern us.
    ///
    /// 1. Routes and nexthop objects only. Neighbours of FPM are those of VXLAN, and links and addresses it does
    ///    not tell: all of these are the kernel's to say.
    /// 2. Source-specific routes are passed over: there may be several of a prefix.
    /// 3. A route takes the place of the one before of its table and prefix, whatever the message's flags: some
    ///    modules set none for a replacement, others delete first.
    /// 4. A deletion may lack type and metric: the prefix says it all.
    /// 5. An IPv6 route of metric 0 has 1024, as if it came by `ip`.
    /// 6. FRR's older module writes weights where weights less one belong (`rtnh_hops`). Its routes have the protocol
    ///    `zebra`, and none of their nexthops then has the weight 1.
    /// 7. SIDs have counters, if they shall, and no others.
    /// 8. A route or object with a SID or a segment list that makes no sense is counted as malformed, and takes the
    ///    one away that it would have replaced.
    pub fn read(&self, frame: &[u8], tallies: &mut Tallies, sink: &mut dyn FnMut(Fpm)) {
        tallies.frames += 1;
        for message in Messages::new(frame) {
            let event = match message.and_then(|m| decode_message(&m)) {
                Ok(Decoded::Event(event)) => event,
                Ok(_) => {
                    tallies.skipped += 1;
                    continue;
                }
                Err(error) => {
                    tracing::debug!(%error, "FPM: a message is not understood");
                    tallies.malformed += 1;
                    continue;
                }
            };
            let Some(change) = self.change(event) else {
                tallies.skipped += 1;
                continue;
            };
            let change = match nonsense(&change) {
                Some(instead) => {
                    tallies.malformed += 1;
                    sink(instead);
                    continue;
                }
                None => change,
            };
            *match change {
                Fpm::Route(_) => &mut tallies.routes,
                Fpm::RouteGone { .. } => &mut tallies.routes_gone,
                Fpm::Nexthop(_) => &mut tallies.nexthops,
                _ => &mut tallies.nexthops_gone,
            } += 1;
            sink(change);
        }
    }

    fn change(&self, event: Event) -> Option<Fpm> {
        match event {
            Event::Route(route, _) if route.src.is_none() => Some(Fpm::Route(self.route(route))),
            Event::RouteGone(route) if route.src.is_none() => Some(Fpm::RouteGone {
                table: route.table,
                dst: route.dst,
            }),
            Event::Nexthop(nexthop) => Some(Fpm::Nexthop(self.nexthop(nexthop))),
            Event::NexthopGone(id) => Some(Fpm::NexthopGone(id)),
            _ => None,
        }
    }

    /// Rules 5 to 7.
    fn route(&self, mut route: Route) -> Route {
        if route.dst.addr().is_ipv6() && route.metric == 0 {
            route.metric = METRIC6;
        }
        let hops = match &mut route.target {
            RouteTarget::Single(hop) => std::slice::from_mut(hop),
            RouteTarget::Multipath(hops) => {
                if route.protocol == ZEBRA && hops.iter().all(|hop| hop.weight > 1) {
                    hops.iter_mut().for_each(|hop| hop.weight -= 1);
                }
                hops
            }
            RouteTarget::None | RouteTarget::Object(_) => &mut [],
        };
        let encaps = hops.iter_mut().filter_map(|hop| hop.encap.as_mut());
        encaps.for_each(|encap| self.counted(encap));
        route
    }

    /// Rule 7.
    fn nexthop(&self, mut nexthop: Nexthop) -> Nexthop {
        if let NexthopKind::Single {
            encap: Some(encap), ..
        } = &mut nexthop.kind
        {
            self.counted(encap);
        }
        nexthop
    }

    /// A SID with or without counters, as is wanted; what is none stays as it is.
    fn counted(&self, encap: &mut Encap) {
        if encap.kind != ENCAP_SEG6_LOCAL {
            return;
        }
        if let Ok(Seg6::Sid(mut sid)) = Seg6::parse(encap)
            && sid.counters != self.counters
        {
            sid.counters = self.counters;
            *encap = Seg6::Sid(sid).encode();
        }
    }
}

/// Rule 8: what comes in its place.
fn nonsense(change: &Fpm) -> Option<Fpm> {
    let is_nonsense = |encap: &Encap| {
        matches!(encap.kind, ENCAP_SEG6 | ENCAP_SEG6_LOCAL)
            && Seg6::parse(encap)
                .inspect_err(|error| tracing::info!("FPM: a route is not taken: {error}"))
                .is_err()
    };
    match change {
        Fpm::Route(route) => {
            let mut encaps = route
                .target
                .hops()
                .iter()
                .filter_map(|hop| hop.encap.as_ref());
            let (table, dst) = (route.table, route.dst);
            encaps
                .any(is_nonsense)
                .then_some(Fpm::RouteGone { table, dst })
        }
        Fpm::Nexthop(nexthop) => match &nexthop.kind {
            NexthopKind::Single {
                encap: Some(encap), ..
            } => is_nonsense(encap).then_some(Fpm::NexthopGone(nexthop.id)),
            _ => None,
        },
        _ => None,
    }
}
