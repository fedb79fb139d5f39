//! The kinds of object that a mirror dumps, in the order in which it dumps them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use raddle_rib::event::{Event, Sweep};

use crate::codec::number::rtm;
use crate::codec::number::{BRIDGE, INET, INET6};
use crate::codec::{Builder, EncodeError, IFLA_EXT_MASK};

/// With more groups than this, the buckets of all are dumped at once.
const MANY_GROUPS: usize = 64;
/// `NHA_ID`.
const NHA_ID: u16 = 1;
/// Leave the counters out of a link (`RTEXT_FILTER_SKIP_STATS`).
const SKIP_STATS: u32 = 1 << 3;

/// A kind of object. What others refer to comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Links,
    Addresses,
    Neighbours,
    Fdb,
    PortVlans,
    Rules,
    /// Before routes also because this dump waits for the lock that writers hold (RTNL), which
    /// those of routes need not: a link's loss is announced before it takes effect, and what goes
    /// with the link is gone when routes are read.
    Nexthops,
    Buckets,
    Routes4,
    Routes6,
}

impl Kind {
    const ALL: [Kind; 10] = [
        Kind::Links,
        Kind::Addresses,
        Kind::Neighbours,
        Kind::Fdb,
        Kind::PortVlans,
        Kind::Rules,
        Kind::Nexthops,
        Kind::Buckets,
        Kind::Routes4,
        Kind::Routes6,
    ];

    /// The kind that an event is about; none for what is never dumped.
    pub(super) fn of(event: &Event) -> Option<Kind> {
        Some(match event {
            Event::Link(_) | Event::LinkGone(_) => Kind::Links,
            Event::Address(_) | Event::AddressGone(_) => Kind::Addresses,
            Event::Neighbour(_) | Event::NeighbourGone(..) => Kind::Neighbours,
            Event::Fdb(_) | Event::FdbGone(..) | Event::TunnelFdb(_) | Event::TunnelFdbGone(..) => {
                Kind::Fdb
            }
            Event::PortVlan(_) | Event::PortVlanGone(..) => Kind::PortVlans,
            Event::Rule(_) | Event::RuleGone(_) => Kind::Rules,
            Event::Nexthop(_) | Event::NexthopGone(_) => Kind::Nexthops,
            Event::Bucket(_) => Kind::Buckets,
            Event::Route(route, _) | Event::RouteGone(route) | Event::Meanwhile(route, _) => {
                match route.dst {
                    IpNet::V4(_) => Kind::Routes4,
                    IpNet::V6(_) => Kind::Routes6,
                }
            }
            Event::Clock(_)
            | Event::Device(..)
            | Event::Settings(_)
            | Event::HmacKeys(_)
            | Event::KernelHosts(_)
            | Event::LearntMtu(_)
            | Event::LearntMtuGone(..)
            | Event::BondOrder(..)
            | Event::SweepBegin(_)
            | Event::SweepEnd(_)
            | Event::Fpm(_) => {
                return None;
            }
        })
    }

    /// The sweep that frames the dump of all of them.
    fn sweep(self) -> Sweep {
        match self {
            Kind::Links => Sweep::Links,
            Kind::Addresses => Sweep::Addresses,
            Kind::Neighbours => Sweep::Neighbours,
            Kind::Fdb => Sweep::Fdb,
            Kind::PortVlans => Sweep::PortVlans,
            Kind::Rules => Sweep::Rules,
            Kind::Nexthops => Sweep::Nexthops,
            Kind::Buckets => Sweep::Buckets,
            Kind::Routes4 => Sweep::Routes4,
            Kind::Routes6 => Sweep::Routes6,
        }
    }

    fn what(self) -> &'static str {
        match self {
            Kind::Links => "dump links",
            Kind::Addresses => "dump addresses",
            Kind::Neighbours => "dump neighbours",
            Kind::Fdb => "dump FDBs",
            Kind::PortVlans => "dump VLANs of bridges",
            Kind::Rules => "dump rules",
            Kind::Nexthops => "dump nexthops",
            Kind::Buckets => "dump nexthop buckets",
            Kind::Routes4 => "dump IPv4 routes",
            Kind::Routes6 => "dump IPv6 routes",
        }
    }

    /// The families that have to be asked for one by one. (Asking for all at once is not possible
    /// everywhere, and brings what we do not want where it is.)
    fn families(self) -> &'static [u8] {
        match self {
            Kind::Links | Kind::Nexthops | Kind::Buckets => &[0],
            Kind::Addresses | Kind::Neighbours | Kind::Rules => &[INET, INET6],
            // A dump goes on where it was by number, so an entry that goes meanwhile has it pass another one over
            // (`br_fdb_dump`). Of two dumps hardly both miss the same.
            Kind::Fdb => &[BRIDGE, BRIDGE],
            Kind::PortVlans => &[BRIDGE],
            Kind::Routes4 => &[INET],
            Kind::Routes6 => &[INET6],
        }
    }

    /// Begins the request for the dump of one family. Headers are all zeroes but for the family, as
    /// strict checking wants them.
    fn begin(self, family: u8, b: &mut Builder) {
        let (message, header_len) = match self {
            Kind::Links => (rtm::RTM_GETLINK, 16),
            Kind::Addresses => (rtm::RTM_GETADDR, 8),
            Kind::Neighbours | Kind::Fdb => (rtm::RTM_GETNEIGH, 12),
            Kind::PortVlans => (rtm::RTM_GETVLAN, 8),
            Kind::Rules => (rtm::RTM_GETRULE, 12),
            Kind::Nexthops => (rtm::RTM_GETNEXTHOP, 8),
            Kind::Buckets => (rtm::RTM_GETNEXTHOPBUCKET, 8),
            Kind::Routes4 | Kind::Routes6 => (rtm::RTM_GETROUTE, 12),
        };
        let mut header = [0; 16];
        header[0] = family;
        b.begin(message, 0, &header[..header_len]);
        if self == Kind::Links {
            b.put_u32(IFLA_EXT_MASK, SKIP_STATS);
        }
    }

    /// The routes of an address's family.
    pub(super) fn routes_of(address: IpAddr) -> Kind {
        match address {
            IpAddr::V4(_) => Kind::Routes4,
            IpAddr::V6(_) => Kind::Routes6,
        }
    }
}

/// What one dump tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dumped {
    /// All objects of a kind.
    All(Kind),
    /// The buckets of one resilient group.
    BucketsOf(u32),
}

impl Dumped {
    pub(super) fn kind(self) -> Kind {
        match self {
            Dumped::All(kind) => kind,
            Dumped::BucketsOf(_) => Kind::Buckets,
        }
    }

    /// The sweep that frames it.
    pub(super) fn sweep(self) -> Sweep {
        match self {
            Dumped::All(kind) => kind.sweep(),
            Dumped::BucketsOf(group) => Sweep::BucketsOf(group),
        }
    }

    pub(super) fn what(self) -> &'static str {
        self.kind().what()
    }

    /// The families that have to be asked for one by one.
    pub(super) fn families(self) -> &'static [u8] {
        self.kind().families()
    }

    /// The request for the dump of one family.
    pub(super) fn request(self, family: u8, b: &mut Builder) -> Result<(), EncodeError> {
        self.kind().begin(family, b);
        if let Dumped::BucketsOf(group) = self {
            b.put_u32(NHA_ID, group);
        }
        b.end()
    }
}

/// What is to be dumped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    kinds: Kinds,
    /// Groups whose buckets are; none when `kinds` has all buckets.
    groups: BTreeSet<u32>,
}

impl Wanted {
    /// The buckets of one resilient group.
    pub(super) fn buckets_of(group: u32) -> Self {
        Dumped::BucketsOf(group).into()
    }

    /// These as well.
    pub(super) fn add(&mut self, other: Wanted) {
        self.kinds = self.kinds.union(other.kinds);
        self.groups.extend(other.groups);
        if self.groups.len() > MANY_GROUPS {
            self.kinds = self.kinds.with(Kind::Buckets);
        }
        if self.kinds.has(Kind::Buckets) {
            self.groups.clear();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kinds.is_empty() && self.groups.is_empty()
    }

    /// Whether nothing is left out.
    pub(super) fn is_everything(&self) -> bool {
        self.kinds == Kinds::ALL
    }

    /// In dump order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Dumped> {
        Kind::ALL.into_iter().flat_map(|kind| {
            let all = self.kinds.has(kind).then_some(Dumped::All(kind));
            let groups = self.groups.iter().filter(move |_| kind == Kind::Buckets);
            all.into_iter()
                .chain(groups.map(|group| Dumped::BucketsOf(*group)))
        })
    }
}

impl From<Kinds> for Wanted {
    fn from(kinds: Kinds) -> Self {
        Wanted {
            kinds,
            groups: BTreeSet::new(),
        }
    }
}

impl From<Dumped> for Wanted {
    fn from(dumped: Dumped) -> Self {
        match dumped {
            Dumped::All(kind) => Kinds::NONE.with(kind).into(),
            Dumped::BucketsOf(group) => Wanted {
                kinds: Kinds::NONE,
                groups: BTreeSet::from([group]),
            },
        }
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds(u16);

impl Kinds {
    pub(super) const NONE: Kinds = Kinds(0);
    pub(super) const ALL: Kinds = Kinds(u16::MAX);

    pub(super) const fn with(self, kind: Kind) -> Kinds {
        Kinds(self.0 | 1 << kind as u16)
    }

    pub(super) const fn union(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    pub(super) const fn has(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u16) != 0
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dumps(wanted: &Wanted) -> Vec<Dumped> {
        wanted.iter().collect()
    }

    #[test]
    fn all_buckets_stand_for_those_of_each_group() {
        let mut wanted = Wanted::default();
        assert!(wanted.is_empty());
        for group in [9, 7, 9] {
            wanted.add(Wanted::buckets_of(group));
        }
        wanted.add(Kinds::NONE.with(Kind::Routes4).with(Kind::Nexthops).into());
        let routes = Dumped::All(Kind::Routes4);
        let nexthops = Dumped::All(Kind::Nexthops);
        let of = Dumped::BucketsOf;
        assert_eq!(dumps(&wanted), [nexthops, of(7), of(9), routes]);
        wanted.add(Dumped::All(Kind::Buckets).into());
        wanted.add(Wanted::buckets_of(8));
        let buckets = Dumped::All(Kind::Buckets);
        assert_eq!(dumps(&wanted), [nexthops, buckets, routes]);
        let mut many = Wanted::default();
        (0..=MANY_GROUPS as u32).for_each(|group| many.add(Wanted::buckets_of(group)));
        assert_eq!(dumps(&many), [buckets]);
        assert!(!many.is_everything());
        many.add(Kinds::ALL.into());
        assert!(many.is_everything() && dumps(&many).len() == Kind::ALL.len());
    }
}
