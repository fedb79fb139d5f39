//! The ways back to sources that groups are, for reverse-path filtering (`fib_info_nh_uses_dev`).

use std::collections::BTreeMap;

use crate::event::NexthopKind;
use crate::resolve::{Resolved, Spec};
use crate::state::State;
use raddle_image::{ANY_WAY, LINK_WAYS, Reason};

/// Which bit stands for which link. A link keeps its bit when it needs none any more, until another needs one and there is
/// none left.
#[derive(Debug, Default)]
pub(crate) struct LinkWays {
    bits: BTreeMap<u32, u32>,
}

/// What [`LinkWays::give`] has given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Given {
    Nothing,
    /// Bits that stood for no link.
    Unused,
    /// Also such that stood for another, by which engines may have asked a moment ago.
    PassedOn,
}

impl LinkWays {
    /// The bit of a link.
    pub(crate) fn of(&self, link: u32) -> Option<u32> {
        self.bits.get(&link).copied()
    }

    /// Gives bits to links that have none, as far as there are bits that stand for none of `needed`: links that engines may
    /// still ask about.
    pub(crate) fn give(&mut self, links: &[u32], needed: impl Fn(u32) -> bool) -> Given {
        let mut given = Given::Nothing;
        for &link in links {
            if self.bits.contains_key(&link) {
                continue;
            }
            let used: u64 = self.bits.values().map(|bit| 1u64 << bit).sum();
            let free = (1..=LINK_WAYS).find(|bit| used >> bit & 1 == 0);
            let idle = |link: &u32| !needed(*link) && !links.contains(link);
            let (bit, how) = match free {
                Some(bit) => (Some(bit), Given::Unused),
                None => {
                    let last = self.bits.keys().copied().find(idle);
                    (
                        last.and_then(|last| self.bits.remove(&last)),
                        Given::PassedOn,
                    )
                }
            };
            if let Some(bit) = bit {
                self.bits.insert(link, bit);
                given = given.max(how);
            }
        }
        given
    }
}

/// The ways back that a group is to the sources of its routes, as a word of the image.
///
/// 1. Raddle's own routes are none: the kernel has them not.
/// 2. Where a look-up finds no nexthop that lives, or none that is known for sure, it is none. Without a gateway the
///    source itself is the neighbour, and need not be known. An encapsulation that engines have is a way like any.
/// 3. Else it is a way, and one by the links of all nexthops, also of those that have no share now
///    (`fib_info_nh_uses_dev`, `nexthop_uses_dev`).
pub(crate) fn ways(state: &State, links: &LinkWays, spec: &Spec, resolved: &Resolved) -> u64 {
    let lives = match resolved {
        Resolved::Kernel(reason) => *reason == Reason::Unresolved,
        Resolved::One(_) | Resolved::Many { .. } | Resolved::Resilient { .. } => true,
    };
    if spec.never_punts() || !lives {
        return 0;
    }
    let bit = |link: u32| links.of(link).map_or(0, |bit| 1 << bit);
    let by_links = match spec {
        Spec::Kernel(_) | Spec::TunnelEnds(_) => return 0,
        Spec::Plain { hops, .. } => hops.iter().fold(0, |ways, hop| ways | bit(hop.index)),
        Spec::Object { id, .. } => links_of(state, *id).fold(0, |ways, link| ways | bit(link)),
        Spec::Neighbour { index, .. } => bit(*index),
    };
    1 << ANY_WAY | by_links
}

/// The links of a nexthop object.
fn links_of(state: &State, id: u32) -> impl Iterator<Item = u32> + '_ {
    let single = |id: u32| match state.nexthops.get(&id)?.kind {
        NexthopKind::Single { index, .. } => Some(index),
        _ => None,
    };
    let members = match state.nexthops.get(&id).map(|nexthop| &nexthop.kind) {
        Some(NexthopKind::Group(members) | NexthopKind::Resilient { members, .. }) => &members[..],
        _ => &[],
    };
    let of_members = members.iter().map(|member| member.id);
    of_members.chain([id]).filter_map(single)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_passed_on_when_there_are_no_others() {
        let mut links = LinkWays::default();
        let many: Vec<u32> = (1..=70).collect();
        assert_eq!(links.give(&many, |_| true), Given::Unused);
        let bits: Vec<u32> = many.iter().filter_map(|link| links.of(*link)).collect();
        assert_eq!(bits, (1..=LINK_WAYS).collect::<Vec<_>>());
        assert_eq!(links.give(&many, |_| true), Given::Nothing);
        // Engines may still ask about links that need none any more.
        assert_eq!(links.give(&[99], |_| true), Given::Nothing);
        assert_eq!(links.of(99), None);
        assert_eq!(links.give(&[99], |link| link != 7), Given::PassedOn);
        assert_eq!((links.of(99), links.of(7)), (Some(7), None));
    }
}
