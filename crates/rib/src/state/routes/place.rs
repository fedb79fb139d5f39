//! Where a route of the kernel goes among those of its prefix, and which one a deletion is about.

use crate::attrs::{Attrs, AttrsId, AttrsStore};
use crate::event::{RouteNexthop, RouteOp, RouteTarget};
use crate::prefix::Addr;

/// Order of IPv4 routes of one prefix: larger TOS first, then smaller metric.
fn key4(attrs: &Attrs) -> (u8, u32) {
    (u8::MAX - attrs.tos, attrs.metric)
}

/// Rule 1.
pub(super) fn place4(store: &mut AttrsStore, ids: &mut Vec<AttrsId>, attrs: Attrs, op: RouteOp) {
    let key = key4(&attrs);
    let first = ids.partition_point(|id| key4(store.get(*id)) < key);
    let behind = ids.partition_point(|id| key4(store.get(*id)) <= key);
    let id = store.take(attrs);
    match op {
        RouteOp::Replace if first < behind => {
            let old = std::mem::replace(&mut ids[first], id);
            store.drop_ref(old);
        }
        RouteOp::Prepend => ids.insert(first, id),
        RouteOp::Add | RouteOp::Append | RouteOp::Replace => ids.insert(behind, id),
    }
}

/// How an IPv6 route joins others of its metric.
#[derive(PartialEq)]
enum Kind6 {
    Multipath,
    Object,
    Device(u32),
}

fn kind6(attrs: &Attrs) -> Kind6 {
    match &attrs.target {
        RouteTarget::Object(_) => Kind6::Object,
        RouteTarget::Multipath(_) => Kind6::Multipath,
        RouteTarget::Single(nh) if nh.gateway.is_some() => Kind6::Multipath,
        RouteTarget::Single(nh) => Kind6::Device(nh.index),
        RouteTarget::None => Kind6::Device(0),
    }
}

/// Rules 2 and 3. A replacement takes the place of its own kind, else of any route of its metric
/// (`fib6_add_rt2node`).
pub(super) fn place6(
    store: &mut AttrsStore,
    ids: &mut Vec<AttrsId>,
    mut attrs: Attrs,
    op: RouteOp,
) {
    let rival = |id: &AttrsId| {
        let other = store.get(*id);
        (other.metric, other.src) == (attrs.metric, attrs.src)
    };
    let mut at = ids
        .iter()
        .position(|id| rival(id) && kind6(store.get(*id)) == kind6(&attrs));
    if at.is_none() && op == RouteOp::Replace {
        at = ids.iter().position(rival);
    }
    match at {
        Some(at) => {
            if matches!(op, RouteOp::Append | RouteOp::Prepend) {
                rotate_appended(&mut attrs.target, &store.get(ids[at]).target);
            }
            let id = store.take(attrs);
            let old = std::mem::replace(&mut ids[at], id);
            store.drop_ref(old);
        }
        None => {
            let at = ids.partition_point(|id| store.get(*id).metric <= attrs.metric);
            let id = store.take(attrs);
            ids.insert(at, id);
        }
    }
}

/// Rule 3: moves a first nexthop that is new behind the old ones.
fn rotate_appended(target: &mut RouteTarget, known: &RouteTarget) {
    let RouteTarget::Multipath(hops) = target else {
        return;
    };
    let known = known.hops();
    let is_known = |hop: &RouteNexthop| known.iter().any(|k| same_hop(k, hop));
    if hops.len() == known.len() + 1
        && hops.first().is_some_and(|h| !is_known(h))
        && hops[1..].iter().all(is_known)
    {
        hops.rotate_left(1);
    }
}

/// The same gateway, link and encapsulation (`rt6_duplicate_nexthop`); who does not say which encapsulation means
/// any.
fn same_hop(a: &RouteNexthop, b: &RouteNexthop) -> bool {
    let either = a.encap.is_none() || b.encap.is_none();
    (a.gateway, a.index) == (b.gateway, b.index) && (either || a.encap == b.encap)
}

/// Takes the route that a deletion names out of `ids`; says whether there was one.
pub(super) fn take_out<A: Addr>(
    store: &mut AttrsStore,
    ids: &mut Vec<AttrsId>,
    gone: &Attrs,
) -> bool {
    let same_key = |a: &Attrs| (a.tos, a.metric, a.src) == (gone.tos, gone.metric, gone.src);
    let exact = |a: &Attrs| same_key(a) && a.kind == gone.kind && same_target(a, gone);
    let at = ids
        .iter()
        .position(|id| exact(store.get(*id)))
        .or_else(|| {
            ids.iter()
                .position(|id| holds_hops::<A>(store.get(*id), gone, same_key))
        })
        .or_else(|| ids.iter().position(|id| same_key(store.get(*id))));
    let Some(at) = at else { return false };
    let rest = rest_after::<A>(store.get(ids[at]), gone);
    let old = match rest {
        Some(rest) => {
            let id = store.take(rest);
            std::mem::replace(&mut ids[at], id)
        }
        None => ids.remove(at),
    };
    store.drop_ref(old);
    true
}

fn same_target(a: &Attrs, b: &Attrs) -> bool {
    let (x, y) = (a.target.hops(), b.target.hops());
    match (&a.target, &b.target) {
        (RouteTarget::Object(p), RouteTarget::Object(q)) => p == q,
        _ => x.len() == y.len() && x.iter().zip(y).all(|(p, q)| same_hop(p, q)),
    }
}

/// Whether an IPv6 route is the multipath route that `gone` takes nexthops from.
fn holds_hops<A: Addr>(a: &Attrs, gone: &Attrs, same_key: impl Fn(&Attrs) -> bool) -> bool {
    let hops = a.target.hops();
    let leaving = gone.target.hops();
    A::BITS == 128
        && same_key(a)
        && !leaving.is_empty()
        && leaving.iter().all(|g| hops.iter().any(|h| same_hop(h, g)))
}

/// Rule 5: what is left of a route; none when it goes altogether.
fn rest_after<A: Addr>(route: &Attrs, gone: &Attrs) -> Option<Attrs> {
    if A::BITS == 32 {
        return None;
    }
    let leaving = gone.target.hops();
    let mut left: Vec<RouteNexthop> = route
        .target
        .hops()
        .iter()
        .filter(|h| !leaving.iter().any(|g| same_hop(h, g)))
        .cloned()
        .collect();
    let target = match left.len() {
        0 => return None,
        1 => RouteTarget::Single(left.remove(0)),
        _ => RouteTarget::Multipath(left),
    };
    (!leaving.is_empty()).then(|| Attrs {
        target,
        ..route.clone()
    })
}
