//! Links that packets come in by.

use crate::LINK_TABLE;
use crate::numbers::numbers;
use std::mem::{offset_of, size_of};

/// A network device, found by interface index. 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LinkEntry {
    /// [`link_flags`]; 0 when the link is not enabled.
    pub flags: u32,
    /// Counter slot, below [`LINK_COUNTERS`](super::LINK_COUNTERS).
    pub slot: u32,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Zero.
    pub pad: u16,
    /// The link that packets are taken to come in by: this one, or the bond that it is a member of.
    pub index: u32,
    /// Table in which packets from this link look up IPv4 destinations.
    pub table4: u32,
    /// The same for IPv6.
    pub table6: u32,
    /// Table of the IPv4 sources that the kernel may refuse; see [`Memory::refuses`](super::Memory::refuses).
    pub sources4: u32,
    /// With [`link_flags::WAY_BACK`]: the table in which IPv4 sources are looked up.
    pub back4: u32,
    /// And what they have to come to: the number of a bit, see [`Memory::has_way_back`](super::Memory::has_way_back).
    pub way: u32,
    /// Zones of out-links that the kernel alone forwards IPv4 from here to, a bit each: see [`Adjacency::zone`](super::Adjacency::zone).
    pub closed4: u64,
    /// The same for IPv6.
    pub closed6: u64,
    /// With [`link_flags::GUARDED`]: which of [`Ranges::v4`](super::Ranges::v4) are the kernel's, a bit each.
    pub ranges4: u16,
    /// The same of [`Ranges::v6`](super::Ranges::v6).
    pub ranges6: u16,
    /// With [`link_flags::GUARDED`]: which of [`Ranges::rules4`](super::Ranges::rules4) are looked up otherwise, a bit each.
    pub rules4: u16,
    /// The same of [`Ranges::rules6`](super::Ranges::rules6).
    pub rules6: u16,
}

numbers! {
    /// Flags of [`LinkEntry`].
    pub mod link_flags: u32, "LINK" {
        /// Packets that come in here are ours to forward.
        ENABLED = 1,
        /// IPv4 forwarding is on.
        FORWARD4 = 2,
        /// IPv6 forwarding is on.
        FORWARD6 = 4,
        /// Reverse-path filtering by what engines do not see: IPv4 goes to the kernel.
        RP_FILTER = 8,
        /// IPv4 from here goes to the kernel because of routing rules.
        RULES4 = 16,
        /// IPv6 from here goes to the kernel because of routing rules.
        RULES6 = 32,
        /// `accept_local`: addresses of this machine may be sources.
        ACCEPT_LOCAL = 64,
        /// `seg6_require_hmac` is 1: SRHs must have an HMAC.
        HMAC_REQUIRED = 128,
        /// `seg6_require_hmac` is -1: HMACs of SRHs are not looked at.
        HMAC_IGNORED = 256,
        /// Reverse-path filtering is on, which is the kernel's business behind its segments.
        RP_BEHIND = 512,
        /// Reverse-path filtering that engines do: IPv4 sources need a way back.
        WAY_BACK = 1024,
        /// A firewall or a routing rule may concern some of what comes in here, wherever it goes: `ranges4`, `ranges6`, `rules4`,
        /// `rules6`, and the next two flags.
        GUARDED = 2048,
        /// IPv4 fragments and ICMP errors are the kernel's: it reassembles, or translates what errors tell of.
        TRACKED4 = 4096,
        /// The same of IPv6, and all that has an extension header.
        TRACKED6 = 8192,
        /// What comes to a segment is the kernel's, because of a firewall; ends of tunnels have [`NO_TUNNELS`].
        NO_SEGMENTS = 16384,
        /// Rules ask for what IPv4 packets show: behind segments that look in the link's table it is as [`RULES4`].
        RULES4_BEHIND = 32768,
        /// The same of IPv6, as [`RULES6`].
        RULES6_BEHIND = 65536,
        /// `rp_filter` has the kernel look elsewhere for the way back of IPv4 that leaves by out-links of some zones
        /// ([`FILTERED_APART`](crate::FILTERED_APART)): these are in `closed4`. What of IPv4 comes to a segment of the kernel's is, too.
        FILTERED_APART = 131072,
        /// There are VLANs upon it: tagged frames are taken to come in by them, see [`Memory::step`](crate::Memory::step). A link may have
        /// this flag alone: then only that is not the kernel's.
        VLANS = 262144,
        /// It is a port of a bridge: no packet comes in by it, but frames by what [`Memory::step`](crate::Memory::step) says. Not together
        /// with `ENABLED`.
        PORT = 524_288,
        /// There are macvlans upon it: frames to other MAC addresses than its own may come in by one, likewise. A link may have this flag
        /// alone, too.
        MACVLANS = 1_048_576,
        /// Of a tunnel: what comes in by it is the kernel's, because of a firewall. Of another link: so is what comes in by any tunnel and is
        /// carried here.
        NO_TUNNELS = 2_097_152,
    }
}

/// The flags of a link for a packet behind a segment that looks in this table, as far as rules go.
pub fn rules_behind(flags: u32, table: u32) -> u32 {
    use link_flags::{RULES4, RULES4_BEHIND, RULES6, RULES6_BEHIND};
    if table != LINK_TABLE {
        return flags & !(RULES4 | RULES6);
    }
    let of = |behind: u32, rules: u32| if flags & behind != 0 { rules } else { 0 };
    flags | of(RULES4_BEHIND, RULES4) | of(RULES6_BEHIND, RULES6)
}

const _: () = assert!(size_of::<LinkEntry>() == 64 && offset_of!(LinkEntry, table4) == 20);
const _: () = assert!(offset_of!(LinkEntry, closed4) == 40);
