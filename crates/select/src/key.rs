//! Flow keys: what a policy takes from a packet or a flow, in the form that is hashed.

use std::hint::select_unpredictable;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use raddle_packet::{Addresses, Family, Stop, dissect, icmp, protocol};
use serde::Serialize;
use thiserror::Error;

use crate::policy::{Policy, Unsupported};

/// Source and destination address of a flow key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum KeyAddresses {
    /// IPv4.
    V4 {
        /// Source.
        src: Ipv4Addr,
        /// Destination.
        dst: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Source.
        src: Ipv6Addr,
        /// Destination.
        dst: Ipv6Addr,
    },
}

/// What is hashed. Fields that the policy does not select are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct FlowKey {
    /// Addresses; their family decides the width of the key.
    pub addresses: KeyAddresses,
    /// Source port, host order.
    pub sport: u16,
    /// Destination port, host order.
    pub dport: u16,
    /// Protocol or next header.
    pub ip_proto: u8,
    /// The flow label as the kernel's word in memory, read by a little-endian machine. Where the
    /// kernel keeps the label as loaded from the packet (policy 0) this is
    /// [`FlowKey::label_as_loaded`] of the number.
    pub flow_label_word: u32,
}

/// The bytes of a packed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    bytes: [u8; FlowKey::LEN6],
    len: usize,
}

impl AsRef<[u8]> for Packed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl FlowKey {
    /// Bytes hashed for IPv4.
    pub const LEN4: usize = 48;
    /// Bytes hashed for IPv6.
    pub const LEN6: usize = 72;

    /// The word for a flow label that the kernel keeps in network byte order.
    #[inline]
    pub const fn label_as_loaded(label: u32) -> u32 {
        label.swap_bytes()
    }

    /// The key with its addresses in order and, independently, its ports, so that both directions of
    /// a flow hash alike (`__flow_hash_consistentify`).
    ///
    /// 1. IPv4 addresses are swapped where the destination is below the source, both read as a
    ///    little-endian machine loads them: the last byte counts most.
    /// 2. IPv6 addresses are swapped where the destination is below the source, byte by byte from the
    ///    first.
    /// 3. Ports are swapped where the destination is below the source, with their bytes reversed.
    #[inline]
    pub fn ordered(&self) -> FlowKey {
        // Without branches: which way a flow runs is a coin's toss.
        let addresses = match self.addresses {
            KeyAddresses::V4 { src, dst } => {
                let loaded = |address: Ipv4Addr| u32::from_le_bytes(address.octets());
                let stored = |word: u32| Ipv4Addr::from(word.to_le_bytes());
                let (src, dst) = (loaded(src), loaded(dst));
                KeyAddresses::V4 {
                    src: stored(src.min(dst)),
                    dst: stored(src.max(dst)),
                }
            }
            KeyAddresses::V6 { src, dst } => {
                let swap = dst.to_bits() < src.to_bits();
                KeyAddresses::V6 {
                    src: select_unpredictable(swap, dst, src),
                    dst: select_unpredictable(swap, src, dst),
                }
            }
        };
        let (sport, dport) = (self.sport.swap_bytes(), self.dport.swap_bytes());
        FlowKey {
            addresses,
            sport: sport.min(dport).swap_bytes(),
            dport: sport.max(dport).swap_bytes(),
            ..*self
        }
    }

    /// Both ports as they lie in memory, read by a little-endian machine: source in the lower half.
    #[inline]
    pub(crate) fn ports_word(&self) -> u32 {
        u32::from(self.sport.swap_bytes()) | u32::from(self.dport.swap_bytes()) << 16
    }

    /// The bytes that are hashed, 48 or 72: the kernel's `struct flow_keys` from `basic` on.
    pub fn pack(&self) -> Packed {
        let mut bytes = [0; Self::LEN6];
        bytes[2] = self.ip_proto;
        bytes[4..8].copy_from_slice(&self.flow_label_word.to_le_bytes());
        bytes[28..30].copy_from_slice(&self.sport.to_be_bytes());
        bytes[30..32].copy_from_slice(&self.dport.to_be_bytes());
        let len = match self.addresses {
            KeyAddresses::V4 { src, dst } => {
                bytes[36..40].copy_from_slice(&src.octets());
                bytes[40..44].copy_from_slice(&dst.octets());
                Self::LEN4
            }
            KeyAddresses::V6 { src, dst } => {
                bytes[36..52].copy_from_slice(&src.octets());
                bytes[52..68].copy_from_slice(&dst.octets());
                Self::LEN6
            }
        };
        Packed { bytes, len }
    }

    /// The family of the addresses.
    #[inline]
    pub fn family(&self) -> Family {
        match self.addresses {
            KeyAddresses::V4 { .. } => Family::V4,
            KeyAddresses::V6 { .. } => Family::V6,
        }
    }

    #[inline]
    fn of_addresses(addresses: KeyAddresses) -> FlowKey {
        FlowKey {
            addresses,
            sport: 0,
            dport: 0,
            ip_proto: 0,
            flow_label_word: 0,
        }
    }
}

/// Why there is no flow key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The policy is not modelled.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// Not even the IP header is there, or it makes no sense; the kernel drops such packets before
    /// it hashes them.
    #[error("packet of {have} bytes holds no valid {family} header")]
    NoHeader {
        /// What the packet was taken for.
        family: Family,
        /// Bytes that there were.
        have: usize,
    },
}

/// Where a key came from: which rule of [`flow_key_of_packet`] gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Input {
    /// The packet's own IP header.
    Outer,
    /// The IP header that an ICMP error carries.
    IcmpInner,
    /// The flow dissector.
    Dissected,
    /// A flow tuple, as for a socket or a route request.
    Flow,
}

/// The flow key of a packet, as forwarding makes it (`fib_multipath_hash`, `rt6_multipath_hash`).
///
/// `l3` is the packet from its IP header on, ended at its IP length. Unordered.
///
/// Policy 0, IPv4:
/// 1. The packet's addresses, and nothing else, unless rule 2 applies.
/// 2. Of an ICMP error (types 3, 4, 5, 11, 12; not a later fragment) with 8 bytes of ICMP and 20
///    bytes of the packet that it is about: that packet's addresses.
///
/// Policy 0, IPv6:
/// 1. The packet's addresses, flow label and next header, unless rule 2 applies.
/// 2. Of an ICMPv6 error (types 1 to 4) directly behind the IPv6 header, with 8 bytes of ICMPv6 and
///    40 bytes of the packet that it is about: those of that packet.
///
/// Policy 1:
/// 1. Addresses, protocol and ports as [`dissect`] finds them with [`Stop::AtEncap`]. ICMP errors are
///    hashed as themselves, fragments and tunnels without ports; the flow label does not count.
///
/// With IPv6 rules that match on ports or protocol the kernel takes ICMPv6 packets under policy 0 from
/// the dissector instead; that is not modelled here.
#[inline]
pub fn flow_key_of_packet(policy: Policy, family: Family, l3: &[u8]) -> Result<FlowKey, KeyError> {
    key_and_input(policy, family, l3).map(|(key, _)| key)
}

/// [`flow_key_of_packet`], and which rule gave the key.
#[inline(always)]
pub(crate) fn key_and_input(
    policy: Policy,
    family: Family,
    l3: &[u8],
) -> Result<(FlowKey, Input), KeyError> {
    let found = match (policy, family) {
        (Policy::L3, Family::V4) => l3_ipv4(l3),
        (Policy::L3, Family::V6) => l3_ipv6(l3),
        (Policy::L4, _) => l4(family, l3),
        (Policy::Inner | Policy::Custom, _) => return Err(Unsupported(policy).into()),
    };
    found.ok_or(KeyError::NoHeader {
        family,
        have: l3.len(),
    })
}

/// `ip_multipath_l3_keys`.
#[inline]
fn l3_ipv4(l3: &[u8]) -> Option<(FlowKey, Input)> {
    let outer = l3.first_chunk::<20>()?;
    if outer[9] == protocol::ICMP
        && let Some(inner) = icmp_inner_ipv4(l3, outer)
    {
        return Some((ipv4_addresses(inner), Input::IcmpInner));
    }
    Some((ipv4_addresses(outer), Input::Outer))
}

#[cold]
fn icmp_inner_ipv4<'a>(l3: &'a [u8], outer: &[u8; 20]) -> Option<&'a [u8; 20]> {
    let later_fragment = (outer[6] & 0x1f) | outer[7] != 0;
    let message = l3.get(usize::from(outer[0] & 0xf) * 4..)?;
    if later_fragment || !icmp::is_error(Family::V4, *message.first()?) {
        return None;
    }
    message.get(8..)?.first_chunk()
}

#[inline]
fn ipv4_addresses(header: &[u8; 20]) -> FlowKey {
    FlowKey::of_addresses(KeyAddresses::V4 {
        src: Ipv4Addr::new(header[12], header[13], header[14], header[15]),
        dst: Ipv4Addr::new(header[16], header[17], header[18], header[19]),
    })
}

/// `ip6_multipath_l3_keys`.
#[inline]
fn l3_ipv6(l3: &[u8]) -> Option<(FlowKey, Input)> {
    let outer = l3.first_chunk::<40>()?;
    if outer[6] == protocol::ICMPV6
        && let Some(inner) = icmp_inner_ipv6(l3)
    {
        return Some((ipv6_l3(inner)?, Input::IcmpInner));
    }
    Some((ipv6_l3(outer)?, Input::Outer))
}

#[cold]
fn icmp_inner_ipv6(l3: &[u8]) -> Option<&[u8; 40]> {
    let message = l3.get(40..)?;
    if !icmp::is_error(Family::V6, *message.first()?) {
        return None;
    }
    message.get(8..)?.first_chunk()
}

#[inline]
fn ipv6_l3(header: &[u8; 40]) -> Option<FlowKey> {
    let (src, dst) = header[8..].split_at(16);
    let label = u32::from_be_bytes([0, header[1] & 0xf, header[2], header[3]]);
    Some(FlowKey {
        ip_proto: header[6],
        flow_label_word: FlowKey::label_as_loaded(label),
        ..FlowKey::of_addresses(KeyAddresses::V6 {
            src: Ipv6Addr::from(*src.first_chunk::<16>()?),
            dst: Ipv6Addr::from(*dst.first_chunk::<16>()?),
        })
    })
}

#[inline]
fn l4(family: Family, l3: &[u8]) -> Option<(FlowKey, Input)> {
    let seen = dissect(l3, family, Stop::AtEncap);
    let addresses = match seen.addresses {
        Addresses::V4 { src, dst } => KeyAddresses::V4 { src, dst },
        Addresses::V6 { src, dst } => KeyAddresses::V6 { src, dst },
        Addresses::None => return None,
    };
    let key = FlowKey {
        sport: seen.sport,
        dport: seen.dport,
        ip_proto: seen.ip_proto,
        ..FlowKey::of_addresses(addresses)
    };
    Some((key, Input::Dissected))
}

/// A flow as a socket or a route request describes it (the kernel's `flowi4`, `flowi6`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Flow {
    /// Addresses.
    pub addresses: KeyAddresses,
    /// Protocol; 0 where none was given.
    pub proto: u8,
    /// Source port, host order; 0 where none was given.
    pub sport: u16,
    /// Destination port, host order; 0 where none was given.
    pub dport: u16,
    /// IPv6 flow label as a number, 20 bits.
    pub flow_label: u32,
}

impl Flow {
    /// A flow between two addresses, without protocol, ports or label; none where the families
    /// differ.
    pub fn new(src: IpAddr, dst: IpAddr) -> Option<Flow> {
        let addresses = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => KeyAddresses::V4 { src, dst },
            (IpAddr::V6(src), IpAddr::V6(dst)) => KeyAddresses::V6 { src, dst },
            _ => return None,
        };
        Some(Flow {
            addresses,
            proto: 0,
            sport: 0,
            dport: 0,
            flow_label: 0,
        })
    }

    /// The same flow with a protocol and ports.
    pub fn ports(self, proto: u8, sport: u16, dport: u16) -> Flow {
        Flow {
            proto,
            sport,
            dport,
            ..self
        }
    }

    /// The family of the addresses.
    pub fn family(&self) -> Family {
        match self.addresses {
            KeyAddresses::V4 { .. } => Family::V4,
            KeyAddresses::V6 { .. } => Family::V6,
        }
    }
}

/// The flow key of a flow, as local output and `RTM_GETROUTE` make it from `flowi` fields.
///
/// Policy 0: IPv4 addresses; over IPv6 addresses, flow label and the protocol that was given. Policy
/// 1: addresses, protocol and ports. Nothing is dissected, so the protocol of a packet with extension
/// headers and the ports of fragments, ESP and AH differ from [`flow_key_of_packet`]. A TCP connect
/// without a bound port has a random source port in kernels from 6.16 on. Unordered.
pub fn flow_key_of_flow(policy: Policy, flow: &Flow) -> Result<FlowKey, Unsupported> {
    let key = FlowKey::of_addresses(flow.addresses);
    match (policy, flow.family()) {
        (Policy::L3, Family::V4) => Ok(key),
        (Policy::L3, Family::V6) => Ok(FlowKey {
            ip_proto: flow.proto,
            flow_label_word: FlowKey::label_as_loaded(flow.flow_label),
            ..key
        }),
        (Policy::L4, _) => Ok(FlowKey {
            sport: flow.sport,
            dport: flow.dport,
            ip_proto: flow.proto,
            ..key
        }),
        (Policy::Inner | Policy::Custom, _) => Err(Unsupported(policy)),
    }
}
