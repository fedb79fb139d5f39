//! The links that frames of a link come in by, through all that is between.

use std::collections::{BTreeSet, HashMap};

use crate::event::{FdbEntry, Link};
use crate::rib::Rib;

/// The links that the program has to be on so that it sees what comes in by link `index`; none where engines do not know all that
/// is between. `by_index` has the links, `ports_of` the ports of a bridge.
///
/// 1. Below a VLAN or a macvlan: those below the link that it is upon, if that is in this namespace.
/// 2. Below a bridge: those below each of its ports.
/// 3. Any other link, bonds among them: itself.
/// 4. Below a bridge or a macvlan of which nothing is told, as in old snapshots: none.
/// 5. A tunnel, of which it is known what it is set to: none. What comes in by one is in packets to this machine, which come in by any
///    link.
/// 6. Links upon each other in a circle, which the kernel has none of, have none.
///
/// Cost: each link between once, and `ports_of` for each bridge.
pub fn lower_links<'a, P: IntoIterator<Item = u32>>(
    index: u32,
    by_index: impl Fn(u32) -> Option<&'a Link>,
    ports_of: impl Fn(u32) -> P,
) -> BTreeSet<u32> {
    let (mut lower, mut met) = (BTreeSet::new(), BTreeSet::new());
    let mut left = vec![index];
    while let Some(index) = left.pop() {
        let Some(link) = by_index(index).filter(|_| met.insert(index)) else {
            continue;
        };
        match link.kind.as_deref() {
            _ if link.bridge.is_some() => left.extend(ports_of(index)),
            _ if link.is_vlan() || link.macvlan.is_some() => {
                left.extend(link.lower.filter(|_| link.lower_netns.is_none()));
            }
            Some("bridge" | "macvlan") => {}
            _ if link.tunnel.is_some() => {}
            _ => lower.extend([index]),
        }
    }
    lower
}

/// Finds the lower links of many links, which costs one walk over all of them.
#[allow(missing_debug_implementations, reason = "a mirror has none")]
pub struct LowerLinks<'a> {
    rib: &'a Rib,
    /// Of bridges and bonds.
    ports: HashMap<u32, Vec<u32>>,
}

impl LowerLinks<'_> {
    /// As [`Rib::lower_links`].
    pub fn of(&self, index: u32) -> BTreeSet<u32> {
        let ports = |of: u32| self.ports.get(&of).into_iter().flatten().copied();
        lower_links(index, |index| self.rib.link(index), ports)
    }

    /// Of which links these are.
    pub fn rib(&self) -> &Rib {
        self.rib
    }
}

impl Rib {
    /// For more than one of [`Rib::lower_links`].
    pub fn all_lower_links(&self) -> LowerLinks<'_> {
        let mut ports: HashMap<u32, Vec<u32>> = HashMap::new();
        for link in self.links() {
            if let Some(master) = link.master {
                ports.entry(master).or_default().push(link.index);
            }
        }
        LowerLinks { rib: self, ports }
    }

    /// The links that the program has to be on so that it sees what comes in by link `index`, see [`lower_links`]: itself, or those
    /// below it where it is a VLAN, a bridge or a macvlan. A bond stands for itself.
    pub fn lower_links(&self, index: u32) -> BTreeSet<u32> {
        lower_links(index, |index| self.link(index), |of| self.ports_of(of))
    }

    /// Whether a link is a tunnel of which it is known what it is set to.
    pub fn is_tunnel(&self, index: u32) -> bool {
        self.link(index).is_some_and(|link| link.tunnel.is_some())
    }

    /// Whether an entry of an FDB leads to another port than this, for the same MAC address.
    pub fn has_moved(&self, entry: &FdbEntry) -> bool {
        let bridges = &self.state.bridges;
        let known = bridges.entry(entry.bridge, entry.vlan, entry.mac);
        known.is_some_and(|known| known.port != entry.port)
    }

    /// The ports of a bridge, by index in no order that means anything. Costs a walk over all links.
    pub fn ports_of(&self, bridge: u32) -> impl Iterator<Item = u32> + '_ {
        let ports = self.links().filter(move |link| link.master == Some(bridge));
        ports.map(|link| link.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Bridge, Event, Macvlan, Vlan};

    #[test]
    fn lower_links_are_found_through_all_that_is_between() {
        let link = |index: u32| Link::ethernet(index, format!("l{index}"), [2; 6]);
        let of = |index: u32, kind: &str, lower: Option<u32>| Link {
            kind: Some(kind.to_owned()),
            lower,
            ..link(index)
        };
        let vlan = |index: u32, lower: u32| Link {
            vlan: Some(Vlan::default()),
            ..of(index, "vlan", Some(lower))
        };
        let bridge = Link {
            bridge: Some(Bridge::default()),
            ..of(10, "bridge", None)
        };
        let port = |link: Link| Link {
            master: Some(10),
            ..link
        };
        let macvlan = |index: u32, lower: u32| Link {
            macvlan: Some(Macvlan { mode: 4 }),
            ..of(index, "macvlan", Some(lower))
        };
        let links = [
            port(link(1)),
            link(2),
            port(vlan(3, 2)),
            port(of(4, "bond", None)),
            bridge,
            vlan(20, 10),
            vlan(21, 20),
            macvlan(30, 21),
            macvlan(31, 3),
            Link {
                lower_netns: Some(0),
                ..vlan(22, 1)
            },
            vlan(23, 24),
            vlan(24, 23),
            of(11, "bridge", None),
        ];
        let mut rib = Rib::detached();
        links
            .into_iter()
            .for_each(|link| rib.apply(Event::Link(link)));
        let lower = |index: u32| rib.lower_links(index).into_iter().collect::<Vec<u32>>();
        for index in [10, 20, 21, 30] {
            assert_eq!(lower(index), [1, 2, 4], "{index}");
        }
        assert_eq!([lower(3), lower(31)], [[2], [2]]);
        assert_eq!([lower(1), lower(4)], [[1], [4]]);
        for index in [11, 22, 23, 99] {
            assert!(lower(index).is_empty(), "{index}");
        }
    }
}
