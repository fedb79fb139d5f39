//! What a resilient group comes to.

use std::collections::HashMap;

use super::{Hop, Limits, Resolved, direct_hop, resolve_single};
use crate::event::GroupMember;
use crate::state::State;
use raddle_image::Reason;

/// A resilient group (`nexthop_select_path_res`).
///
/// 1. A group of one blackhole drops. A member that engines do not model: to the kernel.
/// 2. A member is unknown, or its link is down or has no carrier: the kernel is about to move
///    buckets, or has done so, and has not told yet. To the kernel until it has.
/// 3. The owner of a bucket is not known, or no member: likewise.
/// 4. Otherwise the owner of bucket `hash % buckets` is taken, whether its neighbour is valid or
///    not. That holds for a group of one, too.
pub(super) fn resolve_resilient(
    state: &State,
    (id, members): (u32, &[GroupMember]),
    buckets: u16,
    idle_timer: u32,
    limits: Limits,
) -> Resolved {
    let unknown = Resolved::Kernel(Reason::Resilient);
    let mut hops = Vec::with_capacity(members.len());
    let mut places = HashMap::with_capacity(members.len());
    for member in members {
        let hop = match resolve_single(state, member.id, limits) {
            Resolved::One(hop) => Some(hop),
            Resolved::Kernel(Reason::Unresolved) => direct_hop(state, member.id),
            Resolved::Kernel(Reason::OutLink | Reason::NoRoute) => None,
            other => return other,
        };
        let (Some(hop), Ok(place)) = (hop, u16::try_from(hops.len())) else {
            return unknown;
        };
        places.insert(member.id, place);
        hops.push(Hop {
            weight: member.weight,
            mtu: limits.mtu,
            ..hop
        });
    }
    let owners = state.buckets.owners(id, buckets).unwrap_or_default();
    let owned: Option<Vec<u16>> = owners.iter().map(|id| places.get(id).copied()).collect();
    match owned {
        Some(buckets) if !buckets.is_empty() => Resolved::Resilient {
            group: id,
            hops,
            buckets,
            idle_timer,
        },
        _ => unknown,
    }
}
