//! The routes of one family as the kernel lists them (`fib_table_insert`, `fib6_add_rt2node`), and those beside them.

use raddle_rib::event::{
    Encap, ROUTE_FPM, ROUTE_STATIC, Route, RouteNexthop, RouteOp, RouteTarget,
};
use raddle_rib::seg6::Seg6;

/// All routes of one family, of all tables.
#[derive(Debug, Default)]
pub(super) struct Routes {
    /// The kernel's; those of one prefix in the order in which it asks them.
    pub(super) kernel: Vec<Route>,
    /// Raddle's own, one of each prefix.
    pub(super) own: Vec<Route>,
    /// Those that FPM tells, one of each prefix, with the round in which each was told last.
    pub(super) fpm: Vec<(Route, u32)>,
    /// What a running dump has told.
    dump: Option<Vec<Route>>,
    /// Notifications since it began.
    meanwhile: Vec<(Route, Option<RouteOp>)>,
}

/// Milliseconds by which a time that is told again may be less or more than it was, and still be the same.
const SAME_TIME: std::ops::RangeInclusive<i64> = -50..=250;
/// Milliseconds around the time of a route in which it may be told as one that does not expire.
const NO_TIME: std::ops::RangeInclusive<i64> = -500..=2000;

impl Routes {
    pub(super) fn is_empty(&self) -> bool {
        self.kernel.is_empty() && self.own.is_empty() && self.fpm.is_empty()
    }

    /// A route is new or has changed, or is gone where there is no operation.
    pub(super) fn tell(&mut self, route: Route, op: Option<RouteOp>, now: i64) {
        let mut route = plain(route);
        if route.flags & ROUTE_STATIC != 0 {
            self.own.retain(|known| !same_prefix(known, &route));
            self.own.extend(op.map(|_| route));
            return;
        }
        if route.flags & ROUTE_FPM != 0 {
            return match op {
                Some(_) => self.tell_fpm(route, 0),
                None => self.forget_fpm(&route),
            };
        }
        if op.is_some() {
            route.expires = self.settled(&route, now);
        }
        let list = self.dump.as_mut().unwrap_or(&mut self.kernel);
        change(list, route, op);
    }

    pub(super) fn tell_fpm(&mut self, route: Route, round: u32) {
        let route = plain(route);
        self.forget_fpm(&route);
        self.fpm.push((route, round));
    }

    pub(super) fn forget_fpm(&mut self, route: &Route) {
        self.fpm.retain(|(known, _)| !same_prefix(known, route));
    }

    /// A notification while a dump runs counts now, and for what the dump tells.
    pub(super) fn meanwhile(&mut self, route: Route, op: Option<RouteOp>, now: i64) {
        let dump = self.dump.take();
        self.tell(route.clone(), op, now);
        self.dump = dump;
        if self.dump.is_some() {
            self.meanwhile.push((plain(route), op));
        }
    }

    pub(super) fn dump_begins(&mut self) {
        self.dump = Some(Vec::new());
        self.meanwhile.clear();
    }

    pub(super) fn dump_ends(&mut self, now: i64) {
        for (route, op) in std::mem::take(&mut self.meanwhile) {
            // One that was new when it was told, and that the dump has, was read after that.
            let is_it = |known: &Route| {
                same_prefix(known, &route) && (known.tos, known.metric) == (route.tos, route.metric)
            };
            let dumped = self.dump.iter().flatten().any(is_it);
            if !(op == Some(RouteOp::Add) && route.dst.addr().is_ipv4() && dumped) {
                self.tell(route, op, now);
            }
        }
        if let Some(dump) = self.dump.take() {
            self.kernel = dump;
        }
    }

    /// A time that is told ticks away: it is the known one if it differs from that by no more than telling takes.
    fn settled(&self, route: &Route, now: i64) -> Option<i64> {
        let fpm = self.fpm.iter().map(|(route, _)| route);
        let mut all = self.own.iter().chain(&self.kernel).chain(fpm);
        let known = all.find_map(|known| {
            let at = known.expires?;
            let expires = route.expires;
            let then = Route {
                expires,
                ..known.clone()
            };
            (then == *route).then_some(at)
        });
        let is_same = known.is_some_and(|known| match route.expires {
            Some(at) => SAME_TIME.contains(&at.saturating_sub(known)),
            None => NO_TIME.contains(&now.saturating_sub(known)),
        });
        if is_same { known } else { route.expires }
    }
}

/// The route with its prefix as it is looked up, and without what its SIDs have counted.
fn plain(route: Route) -> Route {
    let mut route = Route {
        dst: route.dst.trunc(),
        ..route
    };
    let hops = match &mut route.target {
        RouteTarget::Single(hop) => std::slice::from_mut(hop),
        RouteTarget::Multipath(hops) => hops,
        RouteTarget::None | RouteTarget::Object(_) => &mut [],
    };
    for encap in hops.iter_mut().filter_map(|hop| hop.encap.as_mut()) {
        *encap = without_counters(encap);
    }
    route
}

fn without_counters(encap: &Encap) -> Encap {
    Seg6::parse(encap).map_or(encap.clone(), |what| what.encode())
}

fn same_prefix(a: &Route, b: &Route) -> bool {
    a.table == b.table && a.dst == b.dst
}

/// What a notification does to a list.
fn change(list: &mut Vec<Route>, route: Route, op: Option<RouteOp>) {
    let all = list.drain(..);
    let (mut of, mut others): (Vec<Route>, Vec<Route>) =
        all.partition(|known| same_prefix(known, &route));
    match (op, route.dst.addr().is_ipv6()) {
        (Some(op), false) => add4(&mut of, route, op),
        (Some(op), true) => add6(&mut of, route, op),
        (None, v6) => remove(&mut of, &route, v6),
    }
    others.extend(of);
    *list = others;
}

/// Larger TOS first, then smaller metric; among equals a new one goes behind, or before where it is told so.
fn add4(of: &mut Vec<Route>, route: Route, op: RouteOp) {
    let key = |route: &Route| (u8::MAX - route.tos, route.metric);
    let first = of.iter().position(|known| key(known) == key(&route));
    match (op, first) {
        (RouteOp::Replace, Some(at)) => of[at] = route,
        (RouteOp::Prepend, Some(at)) => of.insert(at, route),
        _ => {
            let later = of.iter().position(|known| key(known) > key(&route));
            of.insert(later.unwrap_or(of.len()), route);
        }
    }
}

/// Routes by gateways of one metric are one multipath route, of which every notification tells all nexthops.
fn add6(of: &mut Vec<Route>, mut route: Route, op: RouteOp) {
    let equal = |known: &Route| known.metric == route.metric && known.src == route.src;
    let joins = |known: &Route| equal(known) && sort_of(known) == sort_of(&route);
    let mut at = of.iter().position(joins);
    if at.is_none() && op == RouteOp::Replace {
        at = of.iter().position(equal);
    }
    let Some(at) = at else {
        let later = of.iter().position(|known| known.metric > route.metric);
        return of.insert(later.unwrap_or(of.len()), route);
    };
    if matches!(op, RouteOp::Append | RouteOp::Prepend)
        && let RouteTarget::Multipath(hops) = &mut route.target
    {
        // The nexthop that was added is told first, and asked last.
        let known = of[at].target.hops();
        let is_known = |hop: &RouteNexthop| known.iter().any(|known| same_hop(known, hop));
        if hops.len() == known.len() + 1 && !is_known(&hops[0]) && hops[1..].iter().all(is_known) {
            let added = hops.remove(0);
            hops.push(added);
        }
    }
    of[at] = route;
}

/// Which IPv6 routes of one metric are one: those by gateways, those by objects, those over the same device.
fn sort_of(route: &Route) -> (u8, u32) {
    match &route.target {
        RouteTarget::Multipath(_) => (0, 0),
        RouteTarget::Single(hop) if hop.gateway.is_some() => (0, 0),
        RouteTarget::Object(_) => (1, 0),
        RouteTarget::Single(hop) => (2, hop.index),
        RouteTarget::None => (2, 0),
    }
}

fn same_hop(a: &RouteNexthop, b: &RouteNexthop) -> bool {
    let encaps = match (&a.encap, &b.encap) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    };
    a.gateway == b.gateway && a.index == b.index && encaps
}

/// The route that is named exactly, else the IPv6 one that has the nexthops that go, else any of its key.
fn remove(of: &mut Vec<Route>, gone: &Route, v6: bool) {
    let leaving = gone.target.hops();
    let has = |hops: &[RouteNexthop], hop: &RouteNexthop| hops.iter().any(|h| same_hop(h, hop));
    let key = |known: &Route| {
        known.tos == gone.tos && known.metric == gone.metric && known.src == gone.src
    };
    let exact = |known: &Route| {
        let hops = known.target.hops();
        let target = match (&known.target, &gone.target) {
            (RouteTarget::Object(a), RouteTarget::Object(b)) => a == b,
            _ => {
                let mut pairs = hops.iter().zip(leaving);
                hops.len() == leaving.len() && pairs.all(|(a, b)| same_hop(a, b))
            }
        };
        key(known) && known.kind == gone.kind && target
    };
    let holds = |known: &Route| {
        let hops = known.target.hops();
        v6 && key(known) && !leaving.is_empty() && leaving.iter().all(|hop| has(hops, hop))
    };
    let at = of.iter().position(exact);
    let at = at.or_else(|| of.iter().position(holds));
    let Some(at) = at.or_else(|| of.iter().position(key)) else {
        return;
    };
    let mut left: Vec<RouteNexthop> = of[at].target.hops().to_vec();
    left.retain(|hop| !has(leaving, hop));
    if !v6 || leaving.is_empty() || left.is_empty() {
        of.remove(at);
        return;
    }
    of[at].target = match left.len() {
        1 => RouteTarget::Single(left.remove(0)),
        _ => RouteTarget::Multipath(left),
    };
}
