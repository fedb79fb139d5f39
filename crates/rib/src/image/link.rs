//! Links that packets come in by.

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
    /// MTU in bytes, without the Ethernet header.
    pub mtu: u32,
    /// Table in which packets from this link look up IPv4 destinations.
    pub table4: u32,
    /// The same for IPv6.
    pub table6: u32,
    /// Table of the IPv4 sources that the kernel may refuse; see [`Memory::refuses`](super::Memory::refuses).
    pub sources4: u32,
    /// Zero.
    pub rest: [u32; 8],
}

/// Flags of [`LinkEntry`].
pub mod link_flags {
    /// Packets that come in here are ours to forward.
    pub const ENABLED: u32 = 1;
    /// IPv4 forwarding is on.
    pub const FORWARD4: u32 = 2;
    /// IPv6 forwarding is on.
    pub const FORWARD6: u32 = 4;
    /// Reverse-path filtering is on: IPv4 goes to the kernel.
    pub const RP_FILTER: u32 = 8;
    /// IPv4 from here goes to the kernel because of routing rules.
    pub const RULES4: u32 = 16;
    /// IPv6 from here goes to the kernel because of routing rules.
    pub const RULES6: u32 = 32;
    /// `accept_local`: addresses of this machine may be sources.
    pub const ACCEPT_LOCAL: u32 = 64;
    /// `seg6_require_hmac` is 1: SRHs must have an HMAC.
    pub const HMAC_REQUIRED: u32 = 128;
    /// `seg6_require_hmac` is -1: HMACs of SRHs are not looked at.
    pub const HMAC_IGNORED: u32 = 256;
}

const _: () = assert!(size_of::<LinkEntry>() == 64 && offset_of!(LinkEntry, table4) == 20);
