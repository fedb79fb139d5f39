//! From a table's value to an adjacency.

use raddle_packet::Family;
use raddle_rib::Reason;
use raddle_rib::image::{ADJ_FORWARD, Adjacency, Group, config_flags};
use raddle_select::{HashConfig, keys_of_packet, search_by};

use crate::engine::Context;

/// A chosen adjacency and its number.
pub(crate) struct Chosen {
    pub(crate) number: u32,
    pub(crate) adjacency: Adjacency,
}

/// Steps A11 and A12 (B8 and B9): the group's member for this packet, and whether it can be sent to.
///
/// `l3` is the packet from its IP header to its IP length.
pub(crate) fn choose(
    context: &Context<'_>,
    group: Group,
    family: Family,
    l3: &[u8],
) -> Result<Chosen, Reason> {
    let number = match group {
        Group::Kernel(reason) => return Err(reason),
        Group::Single(number) => number,
        Group::Threshold { first, count } => {
            let hash31 = hash(context, family, l3)?;
            let upper = |i: usize| context.memory.member(first + i as u32).upper;
            let place = search_by(usize::from(count), hash31, upper);
            context.memory.member(first + place as u32).adjacency
        }
    };
    let adjacency = context.memory.adjacency(number);
    if adjacency.state != ADJ_FORWARD {
        return Err(Reason::from_number(adjacency.reason).unwrap_or(Reason::Unresolved));
    }
    if adjacency.index == context.ingress {
        return Err(Reason::SameLink);
    }
    if l3.len() > adjacency.mtu as usize {
        return Err(Reason::Mtu);
    }
    Ok(Chosen { number, adjacency })
}

fn hash(context: &Context<'_>, family: Family, l3: &[u8]) -> Result<u32, Reason> {
    let Some(hasher) = context.hasher else {
        return Err(Reason::SeedUnknown);
    };
    if context.config.flags & config_flags::SEED_KNOWN == 0 {
        return Err(Reason::SeedUnknown);
    }
    let (policy, fields) = match family {
        Family::V4 => (context.config.policy4, context.config.fields4),
        Family::V6 => (context.config.policy6, context.config.fields6),
    };
    let config = HashConfig::kernel(policy, fields.into()).ok_or(Reason::HashPolicy)?;
    let keys = keys_of_packet(&config, family, l3).map_err(|_| Reason::HashPolicy)?;
    Ok(hasher.hash31(&keys))
}
