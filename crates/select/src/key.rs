//! Flow keys: addresses, ports, protocol and flow label in the form that is hashed.

use std::hint::select_unpredictable;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use raddle_packet::Family;
use serde::Serialize;

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

impl KeyAddresses {
    /// Source and destination.
    pub fn ends(&self) -> (IpAddr, IpAddr) {
        match *self {
            KeyAddresses::V4 { src, dst } => (src.into(), dst.into()),
            KeyAddresses::V6 { src, dst } => (src.into(), dst.into()),
        }
    }
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
    pub(crate) fn of_addresses(addresses: KeyAddresses) -> FlowKey {
        FlowKey {
            addresses,
            sport: 0,
            dport: 0,
            ip_proto: 0,
            flow_label_word: 0,
        }
    }
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
