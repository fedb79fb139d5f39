//! IPv6 routes that expire by themselves: those of router advertisements, and of `ip route add ... expires`.
//!
//! The kernel passes over a route from the moment it expires (`fib6_check_expired`), but tells of that only when its
//! garbage collector removes the route, up to half a minute later. It does not tell at all that a router
//! advertisement has let a route last longer, or shorter. So whoever feeds the mirror has routes dumped again now and
//! then, and around its time, and from then on, an expiring route is the kernel's.
//!
//! What a dump says of a multipath route is the time of its first nexthop. As long as one nexthop lives the kernel
//! uses them all, so the route lasts at least until then. One case remains: when a nexthop that does not expire is
//! deleted, others that do stay behind, and it takes a dump to know that. Nor can a route be told from one that does
//! not expire while its time is less than 10 ms away; that matters only where no time of it is known yet.

use std::collections::BTreeSet;

use crate::attrs::{Attrs, AttrsId, AttrsStore};
use crate::prefix::Prefix;

/// Milliseconds before its time from which on a route is the kernel's: for the daemon that looks at the clock a
/// little late.
const BEFORE: i64 = 500;
/// A time that is told again is a lower bound, as the one before was; by as much as this less or more it is the same.
const LESS: i64 = 50;
const MORE: i64 = 250;
/// A route that is read within 10 ms of its time looks as if it did not expire. Until so long after a known time,
/// that is not believed.
const DISBELIEF: i64 = 2_000;

/// Which prefixes are to be looked at again, and when.
pub(crate) type Turns<A> = BTreeSet<(i64, u32, Prefix<A>)>;

/// When a route that expires at `at` begins to be the kernel's.
pub(crate) fn turn(at: i64) -> i64 {
    at.saturating_sub(BEFORE)
}

/// Whether nobody but the kernel knows at the time `now` if a route is used.
///
/// 1. One that does not expire is used.
/// 2. One that expires is used until shortly before its time.
/// 3. From then on it is doubtful until it is told again with a later time, or is gone: when exactly its time is, is
///    not known, and a router advertisement may have moved it.
pub(crate) fn is_doubtful(attrs: &Attrs, now: i64) -> bool {
    attrs.expires.is_some_and(|at| now >= turn(at))
}

/// The time of a route that is told, which may have been told before as one of `known`.
///
/// 1. One that differs from the known time by no more than telling takes is the known time: it is no change.
/// 2. None is the known time, if that is about now.
pub(crate) fn settled(
    store: &AttrsStore,
    known: &[AttrsId],
    told: &Attrs,
    now: i64,
) -> Option<i64> {
    let same_but_for_time = |attrs: &&Attrs| {
        let times = (attrs.expires, told.expires);
        let then = Attrs {
            expires: told.expires,
            ..(*attrs).clone()
        };
        times.0.is_some() && then == *told
    };
    let mut before = known.iter().map(|id| store.get(*id));
    let Some(then) = before.find(same_but_for_time).and_then(|a| a.expires) else {
        return told.expires;
    };
    let is_same = match told.expires {
        Some(at) => (then.saturating_sub(LESS)..=then.saturating_add(MORE)).contains(&at),
        None => (turn(then)..=then.saturating_add(DISBELIEF)).contains(&now),
    };
    match is_same {
        true => Some(then),
        false => told.expires,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Route;

    fn attrs(expires: Option<i64>, metric: u32) -> Attrs {
        let route = Route {
            expires,
            metric,
            ..Route::default()
        };
        Attrs::of(route).2
    }

    #[test]
    fn a_route_is_doubtful_from_shortly_before_its_time_on() {
        for (expires, now, doubtful) in [
            (None, i64::MAX, false),
            (Some(10_000), 9_499, false),
            (Some(10_000), 9_500, true),
            (Some(10_000), 10_000, true),
            (Some(10_000), 60_000, true),
            (Some(i64::MIN), i64::MIN, true),
        ] {
            assert_eq!(
                is_doubtful(&attrs(expires, 0), now),
                doubtful,
                "{expires:?} at {now}"
            );
        }
    }

    #[test]
    fn telling_a_time_again_is_no_change() {
        let mut store = AttrsStore::default();
        let known = [
            store.take(attrs(None, 1)),
            store.take(attrs(Some(10_000), 0)),
        ];
        let settle = |expires, metric, now| settled(&store, &known, &attrs(expires, metric), now);
        for (told, now, settles) in [
            // Rule 1.
            (Some(10_000), 0, Some(10_000)),
            (Some(9_950), 0, Some(10_000)),
            (Some(10_250), 0, Some(10_000)),
            (Some(9_949), 0, Some(9_949)),
            (Some(10_251), 0, Some(10_251)),
            // Rule 2.
            (None, 9_499, None),
            (None, 9_500, Some(10_000)),
            (None, 12_000, Some(10_000)),
            (None, 12_001, None),
        ] {
            assert_eq!(settle(told, 0, now), settles, "{told:?} at {now}");
        }
        // Another route of the prefix has no time, or another one.
        assert_eq!(settle(Some(10_010), 1, 0), Some(10_010));
        assert_eq!(settle(None, 1, 10_000), None);
    }
}
