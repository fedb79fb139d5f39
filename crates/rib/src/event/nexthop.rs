//! Nexthop objects, their groups, and the buckets of resilient ones.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::route::Encap;

/// A nexthop object (`RTM_NEWNEXTHOP`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nexthop {
    /// Identity, never 0.
    pub id: u32,
    /// `AF_*` of the nexthop; 0 for groups.
    pub family: u8,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// `RTPROT_*`.
    pub protocol: u8,
    /// `RTNH_F_*`.
    pub flags: u32,
    /// What it is.
    pub kind: NexthopKind,
    /// For a forwarding database, not for routes (`NHA_FDB`).
    #[serde(default)]
    pub fdb: bool,
}

impl Nexthop {
    /// An object for routes, of universe scope and no protocol. There is no default one, as an id is
    /// never 0.
    pub fn new(id: u32, family: u8, kind: NexthopKind) -> Nexthop {
        Nexthop {
            id,
            family,
            scope: 0,
            protocol: 0,
            flags: 0,
            kind,
            fdb: false,
        }
    }
}

/// The kinds of nexthop object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NexthopKind {
    /// Drops what it gets.
    Blackhole,
    /// One neighbour, or one device.
    Single {
        /// Gateway; none for a device-only nexthop.
        gateway: Option<IpAddr>,
        /// Out-link.
        index: u32,
        /// Encapsulation.
        encap: Option<Encap>,
    },
    /// Hash-threshold group (`NEXTHOP_GRP_TYPE_MPATH`).
    Group(Vec<GroupMember>),
    /// Resilient group (`NEXTHOP_GRP_TYPE_RES`).
    Resilient {
        /// Members.
        members: Vec<GroupMember>,
        /// Number of buckets.
        buckets: u16,
        /// Idle timer in seconds/100 (`clock_t`).
        idle_timer: u32,
        /// Unbalanced timer in seconds/100.
        unbalanced_timer: u32,
        /// Time unbalanced, in seconds/100, as of the message.
        unbalanced_time: u64,
    },
}

/// One member of a nexthop group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupMember {
    /// The member nexthop's id.
    pub id: u32,
    /// Weight, 1..=65535.
    pub weight: u16,
}

/// A bucket of a resilient group (`RTM_NEWNEXTHOPBUCKET`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// The group's id.
    pub group: u32,
    /// Its place in the group's table, from 0.
    pub index: u16,
    /// The member that owns it.
    pub nexthop: u32,
    /// Since when the kernel has sent nothing by it, in seconds/100 (`clock_t`), as of the message.
    #[serde(default)]
    pub idle_time: u64,
    /// `RTNH_F_*`: 8 offload, 64 trap.
    #[serde(default)]
    pub flags: u32,
}
