//! What the kernel tells us, as typed facts.
//!
//! `netlink` decodes messages into these, a snapshot file holds them as JSON, and [`crate::Rib`]
//! applies them. Names and numbers are rtnetlink's; addresses are in no particular byte order
//! because they are `IpAddr`s.

mod bridge;
mod fpm;
mod hosts;
mod link;
mod nexthop;
mod route;
mod settings;
mod tunnel;

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use raddle_text::outside::line_if_any;
use serde::{Deserialize, Serialize};

pub use bridge::{Bridge, BridgePort, FdbEntry, Macvlan, PortVlan};
pub use fpm::Fpm;
pub use hosts::KernelHosts;
pub use link::{
    Address, Bond, Link, NUD_NOARP, NUD_STALE, NUD_VALID, Neighbour, Vlan, XdpAttached,
};
pub use nexthop::{Bucket, GroupMember, Nexthop, NexthopKind};
pub use raddle_srv6::Algorithm as HmacAlgorithm;
pub use route::{
    Encap, Metrics, ROUTE_FPM, ROUTE_STATIC, RTNH_F_DEAD, RTNH_F_LINKDOWN, RTNH_F_ONLINK, Route,
    RouteKind, RouteNexthop, RouteOp, RouteTarget,
};
pub use settings::{DeviceSettings, HmacKey, Settings};
pub use tunnel::{LearntMtu, Tunnel, TunnelDf, TunnelFdb, TunnelKind};

/// Stands in [`Rule::other`] for `FIB_RULE_INVERT`: the rule applies to what does not match.
pub const RULE_OTHER_INVERT: u16 = 0x1001;
/// `FRA_L3MDEV` in [`Rule::other`]: look into the table of the VRF that the packet has come in by.
pub const RULE_OTHER_L3MDEV: u16 = 19;

/// A routing rule (`RTM_NEWRULE`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// 4 or 6.
    pub family: u8,
    /// Priority; lower is asked first.
    pub priority: u32,
    /// Table to look in.
    pub table: u32,
    /// `FR_ACT_*`: 1 is a table look-up.
    pub action: u8,
    /// Source prefix.
    pub from: Option<IpNet>,
    /// Destination prefix.
    pub to: Option<IpNet>,
    /// Input device.
    #[serde(default, deserialize_with = "line_if_any")]
    pub iif: Option<String>,
    /// Output device.
    #[serde(default, deserialize_with = "line_if_any")]
    pub oif: Option<String>,
    /// Firewall mark and mask.
    pub fwmark: Option<(u32, u32)>,
    /// Results of this prefix length or less are passed over (`FRA_SUPPRESS_PREFIXLEN`), and the next rule is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress_prefixlength: Option<u32>,
    /// The priority of the rule that is asked next (`FRA_GOTO`), where the action is `FR_ACT_GOTO`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goto: Option<u32>,
    /// First and last user of whom local packets are (`FRA_UID_RANGE`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uidrange: Option<(u32, u32)>,
    /// TOS or traffic class (`frh->tos`); 0 is any.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tos: u8,
    /// DSCP, 0 to 63 (`FRA_DSCP`, Linux 6.12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    /// Protocol (`FRA_IP_PROTO`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_proto: Option<u8>,
    /// First and last source port (`FRA_SPORT_RANGE`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sport: Option<(u16, u16)>,
    /// First and last destination port (`FRA_DPORT_RANGE`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dport: Option<(u16, u16)>,
    /// Selector or modifier attributes that have no field here (`FRA_*` numbers): l3mdev, inverted match...
    pub other: Vec<u16>,
    /// `RTPROT_*`.
    pub protocol: u8,
}

impl Rule {
    /// Stands for the rules of a family that has none, so that nothing is looked up: it is asked last, and does nothing.
    pub fn none(family: u8) -> Rule {
        Rule {
            family,
            priority: u32::MAX,
            action: FR_ACT_NOP,
            ..Rule::default()
        }
    }

    /// Whether it has something of which the value is not kept.
    pub(crate) fn has_unknown(&self) -> bool {
        let known = [RULE_OTHER_INVERT, RULE_OTHER_L3MDEV];
        self.other.iter().any(|other| !known.contains(other))
    }
}

/// `FR_ACT_NOP`.
const FR_ACT_NOP: u8 = 3;

fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// Something that happened to the mirrored state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // events are moved once, and routes are nearly all of them
pub enum Event {
    /// What the clock says by which routes expire: milliseconds, of `CLOCK_MONOTONIC` where routes are the live
    /// kernel's. It never goes back, and has to be told again and again while [`crate::Rib::has_expiring`].
    Clock(i64),
    /// A link is new or has changed.
    Link(Link),
    /// A link is gone.
    LinkGone(u32),
    /// Per-device settings, by interface index.
    Device(u32, DeviceSettings),
    /// An address is new or has changed.
    Address(Address),
    /// An address is gone.
    AddressGone(Address),
    /// A neighbour is new or has changed.
    Neighbour(Neighbour),
    /// A neighbour is gone: link and address.
    NeighbourGone(u32, IpAddr),
    /// An entry of a bridge's FDB is new or has changed.
    Fdb(FdbEntry),
    /// An entry is gone: bridge, MAC address and VLAN identifier.
    FdbGone(u32, [u8; 6], u16),
    /// An entry of a VXLAN's FDB is new or has changed; of those of zeros or a group address, each `dst` is an entry.
    TunnelFdb(TunnelFdb),
    /// An entry is gone: VXLAN, MAC address, and to where.
    TunnelFdbGone(u32, [u8; 6], IpAddr),
    /// The kernel has learnt how long packets to another end of tunnels may be.
    LearntMtu(LearntMtu),
    /// It has learnt nothing, or what it had learnt has expired: this end, and the other one.
    LearntMtuGone(Ipv4Addr, Ipv4Addr),
    /// A VLAN of a port of a bridge is new or has changed.
    PortVlan(PortVlan),
    /// It is gone: port and VLAN identifier.
    PortVlanGone(u32, u16),
    /// A nexthop object is new or has changed.
    Nexthop(Nexthop),
    /// A nexthop object is gone.
    NexthopGone(u32),
    /// A bucket of a resilient group has this owner.
    Bucket(Bucket),
    /// A route is new or has changed.
    Route(Route, RouteOp),
    /// A route, or one nexthop of an IPv6 one, is gone.
    RouteGone(Route),
    /// A notification of a route while a dump of its family runs: new or changed, or gone where there is no operation.
    /// It counts at once, and for what the dump tells, too.
    Meanwhile(Route, Option<RouteOp>),
    /// A rule is new.
    Rule(Rule),
    /// A rule is gone.
    RuleGone(Rule),
    /// Settings of the namespace.
    Settings(Settings),
    /// All keys for HMACs in SRHs.
    HmacKeys(Vec<HmacKey>),
    /// All IPv6 destinations for which the kernel goes by more than its routes.
    KernelHosts(KernelHosts),
    /// All members of a bond, in the order in which they joined it; none where that is not known. It is not known from when a link is told to
    /// be its member, or none any more.
    BondOrder(u32, Vec<u32>),
    /// A dump of these kinds of object begins: what it does not mention by [`Event::SweepEnd`] is
    /// gone.
    SweepBegin(Sweep),
    /// The dump is complete.
    SweepEnd(Sweep),
    /// What a routing daemon sends by FPM.
    Fpm(Fpm),
}

/// Kinds of object that a dump can sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sweep {
    /// Links.
    Links,
    /// Addresses.
    Addresses,
    /// Neighbours.
    Neighbours,
    /// Entries of the FDBs of all bridges and VXLANs.
    Fdb,
    /// VLANs of ports of bridges.
    PortVlans,
    /// Nexthop objects.
    Nexthops,
    /// Buckets of all resilient groups.
    Buckets,
    /// Buckets of the resilient group with this id.
    BucketsOf(u32),
    /// IPv4 routes of all tables.
    Routes4,
    /// IPv6 routes of all tables.
    Routes6,
    /// Rules of both families.
    Rules,
}
