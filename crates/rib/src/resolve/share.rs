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
pub(super) fn share_of(state: &State, hop: &SpecHop, v6: bool) -> bool {
    match hop.linkdown {
        Some(linkdown) => {
            let is_up = state.links.get(&hop.index).is_some_and(|link| link.is_up());
            is_up && !(linkdown && ignores_linkdown(state, hop.index, v6))
        }
        None => has_share(state, hop.index, v6),
    }
}

/// Whether it is not known if one of several nexthops had a share when the kernel last cut the hash space.
///
/// 1. It does so when a nexthop's link changes, and not when `ignore_routes_with_linkdown` does: as long
///    as a link has no carrier since before that.
/// 2. The mark of an IPv6 gateway of an IPv4 route (rule 2 of [`share_of`]) changes without a word with the link's
///    carrier: until routes have been read again.
pub(super) fn is_doubtful(state: &State, hop: &SpecHop, v6: bool) -> bool {
    let unread = hop.linkdown.is_some() && ignores_linkdown(state, hop.index, v6);
    state.shares.is_stale(hop.index) || (unread && state.shares.is_unread(hop.index))
}

fn ignores_linkdown(state: &State, index: u32, v6: bool) -> bool {
    let settings = state.devices.get(&index);
    settings.is_some_and(|d| match v6 {
        true => d.ignore_linkdown6,
        false => d.ignore_linkdown4,
    })
}
