//! What the kernel's firewall may judge of the packets that are forwarded: those are the kernel's.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// By family; nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Firewall {
    /// IPv4.
    pub v4: Guarded,
    /// IPv6.
    pub v6: Guarded,
    /// Packets for SRv6 segments, by whichever pair: there is something that they may meet on links that they neither came in by
    /// nor leave by (a VRF's, a tunnel's).
    pub segments: bool,
}

/// What of one family's packets is punted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guarded {
    /// Pairs of in-link and out-link, by index, of which all packets are.
    pub pairs: BTreeSet<(u32, u32)>,
    /// Packets of some addresses on other pairs.
    pub ranges: Vec<Range>,
    /// Fragments, by whichever pair.
    pub fragments: bool,
    /// ICMP and ICMPv6 errors, by whichever pair: they may belong to a flow that is translated.
    pub icmp_errors: bool,
}

/// Packets from and to these addresses, on these pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// First and last source, both included, of the family.
    pub src: (IpAddr, IpAddr),
    /// First and last destination.
    pub dst: (IpAddr, IpAddr),
    /// In-links by index.
    pub ins: BTreeSet<u32>,
    /// Out-links by index.
    pub outs: BTreeSet<u32>,
}
