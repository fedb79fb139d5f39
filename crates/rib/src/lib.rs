//! The mirrored routing state and its meaning.
//!
//! [`event`] has the typed facts that the kernel (or a snapshot) tells us; [`Rib`] applies them and
//! compiles what follows into an image ([`raddle_image`]), the form that every engine reads. Routes point to
//! groups, groups to adjacencies, so that one change of a nexthop is one change of the image
//! however many routes use it.

mod adjacency;
mod algo;
mod attrs;
mod bonds;
mod counted;
mod egress;
pub mod event;
mod expiry;
pub mod firewall;
mod groups;
mod guards;
mod lower;
mod lpm;
mod prefix;
mod query;
mod resolve;
mod rib;
mod rules;
pub mod seg6;
mod segments;
mod slots;
mod source;
mod source6;
mod state;
mod table;
mod tunnels;
mod view;
mod vlan;
mod ways;

pub use adjacency::{PathMtu, Ports};
pub use algo::{AlgoError, AlgoRules, MpAlgo};
pub use counted::Sent;
pub use egress::Egress;
pub use guards::PuntedByRule;
pub use lower::{LowerLinks, lower_links};
pub use prefix::{Addr, Prefix};
pub use query::{FpmStats, Snapshot, Trace};
pub use resolve::{Hop, Resolved};
pub use rib::{Back, Claim, Commit, Rib, Usage, WithoutRoom};
pub use rules::{
    Apart, Arrival, Asked, Cell, Fields, Lookup, PROTOCOLS, RULES_BY_PACKET, TABLE_DEFAULT,
    TABLE_LOCAL, TABLE_MAIN, TableLookup, cells, describe_rule, is_local_first, lookup_all,
    lookup_apart, lookup_for, lookup_of, rule_beyond_engines, vrf_of,
};
pub use segments::{Owner, SegmentUse};
pub use tunnels::{NoRemote, Outer};
pub use vlan::{Below, below};
