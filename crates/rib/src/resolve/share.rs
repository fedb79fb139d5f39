//! Which of a route's own nexthops have a share of its packets.

use super::SpecHop;
use crate::state::State;

/// A plain nexthop has a share unless it is dead, or linkdown where that is to be honoured
/// (`fib_rebalance`, `rt6_multipath_rebalance`).
pub(crate) fn has_share(state: &State, index: u32, v6: bool) -> bool {
    let linkdown = |link: &crate::event::Link| !link.has_carrier();
    let Some(link) = state.links.get(&index) else {
        return false;
    };
    link.is_up() && !(linkdown(link) && ignores_linkdown(state, index, v6))
}

/// Whether a nexthop of a route has a share.
///
/// 1. As [`has_share`]; a link without carrier makes its nexthops linkdown when it loses it, and those
///    that are made while it has none.
/// 2. An IPv6 gateway of an IPv4 route is linkdown only if the link lost its carrier after the route was made
///    (`fib_check_nh_v6_gw` does not look): the kernel's own mark says so.
/// 3. One that was read as dead has none, until its link comes up or gets an IPv4 address, which takes the mark of rule 2
///    away as well where there is a carrier (`fib_sync_up`): the kernel marks the nexthops over a link that loses its last
///    IPv4 address (`fib_disable_ip`), whatever else can be seen of the link.
pub(super) fn share_of(state: &State, hop: &SpecHop, v6: bool) -> bool {
    let revived = state.shares.is_revived(hop.index);
    if hop.dead && !revived {
        return false;
    }
    match hop.linkdown {
        Some(linkdown) => {
            let link = state.links.get(&hop.index);
            let is_up = link.is_some_and(|link| link.is_up());
            let cleared = revived && link.is_some_and(|link| link.has_carrier());
            is_up && !(linkdown && !cleared && ignores_linkdown(state, hop.index, v6))
        }
        None => has_share(state, hop.index, v6),
    }
}

/// Whether it is not known if one of several nexthops had a share when the kernel last cut the hash space.
///
/// 1. It does so when a nexthop's link changes, and not when `ignore_routes_with_linkdown` does: as long
///    as a link has no carrier since before that. Of a link that was found without carrier the setting is
///    taken to have been today's: it hardly ever changes meanwhile, and to doubt it would punt every multipath route of a
///    machine that starts with a link unplugged.
/// 2. Links that were down, or without an IPv4 address, since routes were last read may have it marked as dead, unless
///    they came back.
/// 3. The mark of an IPv6 gateway of an IPv4 route (rule 2 of [`share_of`]) changes without a word with the link's
///    carrier: until routes have been read again.
pub(super) fn is_doubtful(state: &State, hop: &SpecHop, v6: bool) -> bool {
    let unread = hop.linkdown.is_some() && ignores_linkdown(state, hop.index, v6);
    let lost = !v6
        && state.shares.is_flushed(hop.index)
        && !state.shares.is_revived(hop.index)
        && has_share(state, hop.index, v6);
    state.shares.is_stale(hop.index) || lost || (unread && state.shares.is_unread(hop.index))
}

fn ignores_linkdown(state: &State, index: u32, v6: bool) -> bool {
    let settings = state.devices.get(&index);
    settings.is_some_and(|d| match v6 {
        true => d.ignore_linkdown6,
        false => d.ignore_linkdown4,
    })
}
