//! The image: the compiled form of routing state that engines read. Its layout, typed access to it, and the
//! [`Reason`]s for which engines do not forward.
//!
//! Rust has the layout, and the C of the XDP program is made from it: [`header()`] is `crates/xdp/bpf/image.h`,
//! [`reasons_table`] the table of `docs/reasons.md`. A test fails where a file is not what they say; `cargo xtask
//! generate` writes them anew.
//!
//! Writers publish with single 8-byte stores (release); readers need no lock. Numbers are in host
//! byte order (little endian), MAC addresses in the order of the wire.

mod adjacency;
mod bonded;
mod capacity;
mod config;
mod counter;
mod firewall;
mod generated;
mod group;
mod header;
mod lack;
mod learnt;
mod link;
mod lost;
mod memory;
mod numbers;
mod reason;
mod scratch;
mod segment;
mod step;
mod tunnel;
mod vlan;
mod wanted;
mod way_back;

pub use adjacency::{
    ADJ_FORWARD, ADJ_KERNEL, ADJ_SEGMENT, ADJ_TAGGED, ADJ_TUNNEL, Adjacency, MAX_TAGS, TAG,
};
pub use bonded::{Bonded, MAX_BONDED};
pub use capacity::Capacity;
pub use config::{Config, ConfigHead, config_flags};
pub use counter::Counter;
pub use firewall::{
    FILTERED_APART, RANGES, RULE_KERNEL, RULE_TABLES, Range4, Range6, Ranges, Selector, Shown,
    ZONES, closed_reason, is_cut,
};
pub use generated::{between, generated};
use group::SINGLE_NEIGHBOUR;
pub use group::{
    BucketsHead, FLOWLETS, GROUP_NO_PUNT, Group, How, Member, ROUND_ROBIN_SLOTS, RoundRobinHead,
    SEGMENT_VALUE, group_kind, segment_of_value, segment_value,
};
pub use header::header;
pub use lack::Lack;
pub use learnt::LEARNT_BYTES;
use learnt::{LEARNT_BUCKET, LEARNT_BUCKETS, LEARNT_FACTOR};
pub use link::{LinkEntry, link_flags, rules_behind};
pub use lost::lost_dx2;
pub use memory::{Memory, PASSED, local_bit};
pub use reason::{Reason, reasons_table};
pub use scratch::{SCRATCH_SENT, SCRATCH_SIZE, SCRATCH_WANTED};
pub use segment::{
    LINK_TABLE, SEGMENT_COUNTERS, SEGMENT_FAILURES, SEGMENT_HEAD, SEGMENT_TARGET, Segment,
    VlanEntry, flavours, segment_counter, segment_flags, segment_kind,
};
pub use step::{BucketFull, MAX_STEPS, STEP_BYTES, Step, Upon};
use step::{
    STEP_ALL, STEP_BUCKET, STEP_BUCKETS, STEP_FACTOR, STEP_MAC, STEP_MAC_BITS, STEP_PORT,
    STEP_STAG, STEP_UNTAGGED, STEP_USED,
};
pub use tunnel::{
    TUNNEL_END, TUNNEL_GRE, TUNNEL_IPV4, TUNNEL_KEYED, TUNNEL_MOST, TUNNEL_VXLAN, Tunnel,
    TunnelEnd, tunnel_flags, tunnel_kind, tunnel_len,
};
pub use vlan::Vlan;
pub use wanted::{WANTED, Wanted, wanted_kind};
pub use way_back::{ANY_WAY, LINK_WAYS};

/// First word of the configuration: "raddleL6".
pub const MAGIC: u64 = u64::from_le_bytes(*b"raddleL6");
/// Links are found by interface index below this.
pub const MAX_LINKS: usize = 16384;
/// Tables (views) of one family.
pub const MAX_TABLES: usize = 1024;
/// Bits in the filter of the IPv4 sources that the kernel may refuse.
pub const LOCAL_BITS: usize = 65536;
/// Of the counters of reasons, the first for packets that were dropped for a reason for which others are handed
/// over, see [`verdict_slot`].
pub const REASON_DROPPED: usize = Reason::SLOTS;
/// Counters that reasons take; link counters follow.
pub const REASON_COUNTERS: usize = 2 * Reason::SLOTS;
/// Counters that links take by their `slot`: so many for what was received, and behind them ([`LEFT_COUNTERS`]) for what of it was
/// punted and might have been forwarded ([`Reason::is_transit`]). Adjacency counters follow.
pub const LINK_COUNTERS: usize = 1024;
/// Index of the first counter of what links left to the kernel.
pub const LEFT_COUNTERS: usize = REASON_COUNTERS + LINK_COUNTERS;
/// Index of the first adjacency counter.
pub const ADJACENCY_COUNTERS: usize = LEFT_COUNTERS + LINK_COUNTERS;

/// The counter of packets that were not forwarded for this reason: those of raddle's own segments are dropped where
/// the kernel gets others, and count apart from them.
#[inline]
pub fn verdict_slot(reason: Reason, dropped: bool) -> usize {
    let apart = dropped && !reason.is_drop();
    reason as usize + if apart { REASON_DROPPED } else { 0 }
}
