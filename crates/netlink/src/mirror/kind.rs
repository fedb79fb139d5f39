//! The kinds of object that a mirror dumps, in the order in which it dumps them.

use std::net::IpAddr;

use ipnet::IpNet;
use raddle_rib::event::{Event, Sweep};

use crate::codec::number::rtm;
use crate::codec::number::{INET, INET6};
use crate::codec::{Builder, EncodeError, IFLA_EXT_MASK};

/// Leave the counters out of a link (`RTEXT_FILTER_SKIP_STATS`).
const SKIP_STATS: u32 = 1 << 3;

/// A kind of object. What others refer to comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Links,
    Addresses,
    Neighbours,
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
    const ALL: [Kind; 8] = [
        Kind::Links,
        Kind::Addresses,
        Kind::Neighbours,
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
            Event::Rule(_) | Event::RuleGone(_) => Kind::Rules,
            Event::Nexthop(_) | Event::NexthopGone(_) => Kind::Nexthops,
            Event::Bucket(_) => Kind::Buckets,
            Event::Route(route, _) | Event::RouteGone(route) => match route.dst {
                IpNet::V4(_) => Kind::Routes4,
                IpNet::V6(_) => Kind::Routes6,
            },
            Event::Device(..) | Event::Settings(_) | Event::SweepBegin(_) | Event::SweepEnd(_) => {
                return None;
            }
        })
    }

    /// The sweep that frames its dump.
    pub(super) fn sweep(self) -> Sweep {
        match self {
            Kind::Links => Sweep::Links,
            Kind::Addresses => Sweep::Addresses,
            Kind::Neighbours => Sweep::Neighbours,
            Kind::Rules => Sweep::Rules,
            Kind::Nexthops => Sweep::Nexthops,
            Kind::Buckets => Sweep::Buckets,
            Kind::Routes4 => Sweep::Routes4,
            Kind::Routes6 => Sweep::Routes6,
        }
    }

    pub(super) fn what(self) -> &'static str {
        match self {
            Kind::Links => "dump links",
            Kind::Addresses => "dump addresses",
            Kind::Neighbours => "dump neighbours",
            Kind::Rules => "dump rules",
            Kind::Nexthops => "dump nexthops",
            Kind::Buckets => "dump nexthop buckets",
            Kind::Routes4 => "dump IPv4 routes",
            Kind::Routes6 => "dump IPv6 routes",
        }
    }

    /// The families that have to be asked for one by one. (Asking for all at once is not possible
    /// everywhere, and brings what we do not want where it is.)
    pub(super) fn families(self) -> &'static [u8] {
        match self {
            Kind::Links | Kind::Nexthops | Kind::Buckets => &[0],
            Kind::Addresses | Kind::Neighbours | Kind::Rules => &[INET, INET6],
            Kind::Routes4 => &[INET],
            Kind::Routes6 => &[INET6],
        }
    }

    /// The request for the dump of one family. Headers are all zeroes but for the family, as
    /// strict checking wants them.
    pub(super) fn request(self, family: u8, b: &mut Builder) -> Result<(), EncodeError> {
        let (message, header_len) = match self {
            Kind::Links => (rtm::RTM_GETLINK, 16),
            Kind::Addresses => (rtm::RTM_GETADDR, 8),
            Kind::Neighbours => (rtm::RTM_GETNEIGH, 12),
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
        b.end()
    }

    /// The routes of an address's family.
    pub(super) fn routes_of(address: IpAddr) -> Kind {
        match address {
            IpAddr::V4(_) => Kind::Routes4,
            IpAddr::V6(_) => Kind::Routes6,
        }
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds(u8);

impl Kinds {
    pub(super) const NONE: Kinds = Kinds(0);
    pub(super) const ALL: Kinds = Kinds(u8::MAX);

    pub(super) const fn with(self, kind: Kind) -> Kinds {
        Kinds(self.0 | 1 << kind as u8)
    }

    pub(super) const fn union(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    pub(super) const fn has(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// In dump order.
    pub(super) fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |&kind| self.has(kind))
    }
}
