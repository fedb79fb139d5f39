//! The order in which the kernel dumps routes.

use std::cmp::{Ordering, Reverse};

use ipnet::IpNet;
use raddle_rib::event::Route;

/// Compares two routes by their place in a dump; equal ones stay in the order of insertion.
///
/// 1. IPv4 before IPv6.
/// 2. Tables by their bucket of 256, which is their number modulo 256.
/// 3. IPv4 (`fib_table_dump`): by address, longer prefixes first, then higher TOS first.
///    IPv6 (`fib6_walk`): a tree from the leaves up: what lies within a prefix comes before it;
///    routes with a source prefix come before those without, in the same order among themselves.
/// 4. Lower metric first.
pub(crate) fn compare(a: &Route, b: &Route) -> Ordering {
    let table = |route: &Route| (route.dst.addr().is_ipv6(), route.table % 256, route.table);
    let prefix = || match (&a.dst, &b.dst) {
        (IpNet::V4(x), IpNet::V4(y)) => {
            let key = |net: &ipnet::Ipv4Net, tos| (net.network(), Reverse((net.prefix_len(), tos)));
            key(x, a.tos).cmp(&key(y, b.tos))
        }
        (x, y) => post_order(x, y).then_with(|| match (&a.src, &b.src) {
            (Some(x), Some(y)) => post_order(x, y),
            (x, y) => x.is_none().cmp(&y.is_none()),
        }),
    };
    table(a)
        .cmp(&table(b))
        .then_with(prefix)
        .then_with(|| a.metric.cmp(&b.metric))
}

/// The order of a binary tree's nodes in which both children come before their parent.
fn post_order(a: &IpNet, b: &IpNet) -> Ordering {
    if a.contains(b) || b.contains(a) {
        b.prefix_len().cmp(&a.prefix_len())
    } else {
        a.network().cmp(&b.network())
    }
}
