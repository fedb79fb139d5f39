//! rtnetlink's numbers that libc does not export, or not under names that help.

/// Message types (`RTM_*`).
pub mod rtm {
    pub use libc::{
        RTM_DELADDR, RTM_DELLINK, RTM_DELNEIGH, RTM_DELROUTE, RTM_DELRULE, RTM_GETADDR,
        RTM_GETLINK, RTM_GETNEIGH, RTM_GETROUTE, RTM_GETRULE, RTM_NEWADDR, RTM_NEWLINK,
        RTM_NEWNEIGH, RTM_NEWROUTE, RTM_NEWRULE,
    };

    /// Settings of a device changed.
    pub const RTM_NEWNETCONF: u16 = 80;
    /// A device's settings are gone.
    pub const RTM_DELNETCONF: u16 = 81;
    /// Ask for settings of devices.
    pub const RTM_GETNETCONF: u16 = 82;
    /// A nexthop object. Minimum kernel: 5.3.
    pub const RTM_NEWNEXTHOP: u16 = 104;
    /// A nexthop object is gone.
    pub const RTM_DELNEXTHOP: u16 = 105;
    /// Ask for nexthop objects.
    pub const RTM_GETNEXTHOP: u16 = 106;
    /// VLANs of a bridge or one of its ports. Minimum kernel: 5.6.
    pub const RTM_NEWVLAN: u16 = 112;
    /// VLANs are gone there.
    pub const RTM_DELVLAN: u16 = 113;
    /// Ask for VLANs of bridges and ports.
    pub const RTM_GETVLAN: u16 = 114;
    /// A bucket of a resilient group. Minimum kernel: 5.13.
    pub const RTM_NEWNEXTHOPBUCKET: u16 = 116;
    /// Ask for buckets.
    pub const RTM_GETNEXTHOPBUCKET: u16 = 118;
}

/// Message flags (`NLM_F_*`).
pub mod nlm {
    /// It is a request.
    pub const REQUEST: u16 = 0x1;
    /// One of several.
    pub const MULTI: u16 = 0x2;
    /// Answer even when all went well.
    pub const ACK: u16 = 0x4;
    /// The dump was inconsistent.
    pub const DUMP_INTR: u16 = 0x10;
    /// All of them.
    pub const DUMP: u16 = 0x300;
    /// In place of what has this key.
    pub const REPLACE: u16 = 0x100;
    /// Only if nothing has this key.
    pub const EXCL: u16 = 0x200;
    /// Create it when it is not there.
    pub const CREATE: u16 = 0x400;
    /// Behind what has this key.
    pub const APPEND: u16 = 0x800;
    /// In an error: the request is not echoed beyond its header.
    pub const CAPPED: u16 = 0x100;
    /// In an error: attributes with the reason follow.
    pub const ACK_TLVS: u16 = 0x200;
}

/// Multicast groups (`RTNLGRP_*`) that a mirror joins.
pub mod group {
    /// Links.
    pub const LINK: u32 = 1;
    /// Neighbours, and FDBs of bridges.
    pub const NEIGH: u32 = 3;
    /// IPv4 addresses.
    pub const IPV4_IFADDR: u32 = 5;
    /// IPv4 routes.
    pub const IPV4_ROUTE: u32 = 7;
    /// IPv4 rules.
    pub const IPV4_RULE: u32 = 8;
    /// IPv6 addresses.
    pub const IPV6_IFADDR: u32 = 9;
    /// IPv6 routes.
    pub const IPV6_ROUTE: u32 = 11;
    /// IPv6 rules.
    pub const IPV6_RULE: u32 = 19;
    /// IPv4 settings of devices.
    pub const IPV4_NETCONF: u32 = 24;
    /// IPv6 settings of devices.
    pub const IPV6_NETCONF: u32 = 25;
    /// Nexthop objects and buckets.
    pub const NEXTHOP: u32 = 32;
    /// VLANs of bridges and of their ports. Minimum kernel: 5.6.
    pub const BRVLAN: u32 = 33;
}

/// `AF_BRIDGE` as the 8 bits of message headers.
pub(crate) const BRIDGE: u8 = 7;
/// `AF_INET` as the 8 bits of message headers.
pub(crate) const INET: u8 = 2;
/// `AF_INET6` as the 8 bits of message headers.
pub(crate) const INET6: u8 = 10;
