//! Protocol numbers: EtherTypes and what an IP header's protocol or next header names (IANA).

/// EtherTypes, host byte order.
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// Transparent Ethernet bridging: a whole Ethernet frame inside GRE.
    pub const TEB: u16 = 0x6558;
    /// 802.1Q tag.
    pub const VLAN: u16 = 0x8100;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// PPP inside version 1 GRE (PPTP).
    pub const PPTP: u16 = 0x880b;
    /// PPPoE session.
    pub const PPPOE: u16 = 0x8864;
    /// 802.1ad tag.
    pub const QINQ: u16 = 0x88a8;
    /// Parallel redundancy protocol.
    pub const PRP: u16 = 0x88fb;
    /// High-availability seamless redundancy.
    pub const HSR: u16 = 0x892f;
    /// B.A.T.M.A.N. advanced.
    pub const BATMAN: u16 = 0x4305;
    /// TIPC.
    pub const TIPC: u16 = 0x88ca;
    /// Reverse ARP.
    pub const RARP: u16 = 0x8035;
    /// MPLS.
    pub const MPLS: u16 = 0x8847;
    /// MPLS with a label that the neighbour upstream gave, or for multicast.
    pub const MPLS_MULTICAST: u16 = 0x8848;
    /// Precision time protocol (IEEE 1588).
    pub const PTP: u16 = 0x88f7;
    /// Connectivity fault management (IEEE 802.1ag).
    pub const CFM: u16 = 0x8902;
    /// Fibre Channel over Ethernet.
    pub const FCOE: u16 = 0x8906;
}

/// IPv6 hop-by-hop options.
pub const HOPOPTS: u8 = 0;
/// ICMP for IPv4.
pub const ICMP: u8 = 1;
/// IPv4 in IP.
pub const IPIP: u8 = 4;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// DCCP.
pub const DCCP: u8 = 33;
/// IPv6 in IP.
pub const IPV6: u8 = 41;
/// IPv6 routing header.
pub const ROUTING: u8 = 43;
/// IPv6 fragment header.
pub const FRAGMENT: u8 = 44;
/// GRE.
pub const GRE: u8 = 47;
/// ESP.
pub const ESP: u8 = 50;
/// Authentication header.
pub const AH: u8 = 51;
/// ICMP for IPv6.
pub const ICMPV6: u8 = 58;
/// IPv6: nothing follows.
pub const NONE: u8 = 59;
/// IPv6 destination options.
pub const DSTOPTS: u8 = 60;
/// SCTP.
pub const SCTP: u8 = 132;
/// UDP-Lite.
pub const UDPLITE: u8 = 136;
/// MPLS in IP.
pub const MPLS: u8 = 137;

/// Where the four bytes lie that the kernel takes for ports, from the start of the upper header; for
/// ESP and AH these are the SPI (`proto_ports_offset`).
#[inline]
pub fn ports_offset(protocol: u8) -> Option<usize> {
    match protocol {
        TCP | UDP | DCCP | ESP | SCTP | UDPLITE => Some(0),
        AH => Some(4),
        _ => None,
    }
}
