//! Tunnels over IPv4: what they are set to, and where VXLANs send which MAC addresses.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

/// What a tunnel is set to (`IFLA_IPTUN_*`, `IFLA_GRE_*`, `IFLA_VXLAN_*`), of the kinds `ipip`, `sit`, `gre` and `vxlan`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// Of which kind it is, and what only that kind has.
    pub kind: TunnelKind,
    /// This end; none where it is any address of the machine, chosen for each packet that leaves.
    pub local: Option<Ipv4Addr>,
    /// The other end; none where there are several: by the FDB of a VXLAN, by nexthop of others.
    pub remote: Option<Ipv4Addr>,
    /// TTL of outer packets; 0 where it is the inner one's, or of a VXLAN the namespace's (`ip_default_ttl`).
    #[serde(default)]
    pub ttl: u8,
    /// TOS of outer packets; 1 where it is the inner one's.
    #[serde(default)]
    pub tos: u8,
    /// Whether outer packets may be fragmented.
    pub df: TunnelDf,
    /// The link that outer packets to `remote` are bound to, 0 for none; of a VXLAN not those that an entry of its FDB leads elsewhere, but
    /// its socket then is bound to the VRF that the link is in.
    #[serde(default)]
    pub link: u32,
    /// What has it do something that engines do not: the other end in another namespace, outer IPv6, a multicast group, a mark, checksums and sequence numbers of GRE, other headers of UDP (FOU, GPE, GBP), metadata (`external`), what answers for
    /// neighbours (`proxy`, `l2miss`, `rsc`), and options that we do not know.
    #[serde(default)]
    pub is_special: bool,
}

/// Kinds of [`Tunnel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TunnelKind {
    /// `ipip` in mode `ipip` (IPv4 in IPv4).
    Ipip,
    /// `sit` in mode `ip6ip` (IPv6 in IPv4).
    Sit,
    /// `gre`, with the keys that packets are to have that come in, and get that leave.
    Gre {
        /// Of those that come in.
        ikey: Option<u32>,
        /// Of those that leave.
        okey: Option<u32>,
    },
    /// `vxlan`.
    Vxlan {
        /// VXLAN network identifier, 24 bits.
        vni: u32,
        /// UDP destination port.
        port: u16,
        /// First UDP source port, and the one that no packet gets any more; both 0 for the namespace's range of local ports.
        sports: (u16, u16),
        /// Whether it learns from what comes in.
        learns: bool,
        /// Whether outer packets have a UDP checksum.
        checksum: bool,
        /// Whether the outer TTL is the inner one's (`ttl inherit`).
        ttl_inner: bool,
    },
}

/// Which outer packets are not to be fragmented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TunnelDf {
    /// None.
    #[default]
    Unset,
    /// All.
    Set,
    /// Those of IPv4 packets that are not to be fragmented themselves.
    Inner,
}

/// Where a VXLAN sends frames to a MAC address (an entry of its own FDB: `RTM_NEWNEIGH` of `AF_BRIDGE` with `NTF_SELF`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TunnelFdb {
    /// The VXLAN.
    pub index: u32,
    /// The MAC address; zeros for all others. To a unicast one there is one entry: another address takes the place of the one before.
    pub mac: [u8; 6],
    /// To this address.
    pub dst: IpAddr,
    /// It is more than an address: another port, VNI or link, or a nexthop object, of which `dst` is unspecified.
    #[serde(default)]
    pub is_special: bool,
}

/// What the kernel has learnt of the way from an end of tunnels to another one: an exception of its routes, made by an ICMP error
/// (`update_or_create_fnhe`, of which nothing is announced). It counts for whatever this machine sends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LearntMtu {
    /// This end.
    pub src: Ipv4Addr,
    /// The other end.
    pub dst: Ipv4Addr,
    /// The longest packet that the way takes, from the outer IP header on; of several ways, that of the one which takes least.
    pub mtu: u32,
    /// The way takes less than the kernel believes (`min_pmtu`): it lets all packets be fragmented.
    pub is_locked: bool,
}
