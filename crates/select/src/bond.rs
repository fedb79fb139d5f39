//! Which member of a bond (link aggregation) a packet leaves by. Its hash has no key: whoever knows the packet knows it.
//!
//! ```
//! use raddle_select::{BondPolicy, bond_hash, bond_member};
//!
//! // UDP from 10.0.0.1:1000 to 198.18.0.9:53.
//! let frame = [
//!     2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0, // Ethernet
//!     0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 198, 18, 0, 9, // IPv4
//!     3, 232, 0, 53, 0, 8, 0, 0, // UDP
//! ];
//! assert_eq!(bond_hash(BondPolicy::Layer2, &frame, 0), Some(9 ^ 1 ^ 0x0800));
//! let hash = bond_hash(BondPolicy::Layer34, &frame, 0).unwrap();
//! assert!(bond_member(hash, 2).is_some_and(|member| member < 2));
//! ```

use std::fmt;

use raddle_packet::protocol::{self, ethertype, ports_offset};
use raddle_packet::{Addresses, Ethernet, IcmpKey, dissect_for_bond};
use serde::{Serialize, Serializer};

use crate::Family;
use crate::key::{Flow, KeyAddresses};

/// How a bond chooses the member that a packet leaves by (`BOND_MODE_*`, the option `mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BondMode {
    /// 0, `balance-rr`: packets go in turn, whatever their flow.
    RoundRobin,
    /// 1, `active-backup`: everything leaves by the active member.
    ActiveBackup,
    /// 2, `balance-xor`: by the hash, over all members that can send.
    Xor,
    /// 3, `broadcast`: everything leaves by every member.
    Broadcast,
    /// 4, `802.3ad`: by the hash, over those members of the active aggregator that can send.
    Lacp,
    /// 5, `balance-tlb`: by what each member has sent before, or by the hash where `tlb_dynamic_lb` is off.
    Tlb,
    /// 6, `balance-alb`: by what each member has sent before.
    Alb,
}

impl BondMode {
    /// The mode with this number (`IFLA_BOND_MODE`); none where there is no such mode.
    pub fn from_number(number: u8) -> Option<BondMode> {
        Some(match number {
            0 => BondMode::RoundRobin,
            1 => BondMode::ActiveBackup,
            2 => BondMode::Xor,
            3 => BondMode::Broadcast,
            4 => BondMode::Lacp,
            5 => BondMode::Tlb,
            6 => BondMode::Alb,
            _ => return None,
        })
    }

    /// Its name, as `ip` has it.
    pub fn name(self) -> &'static str {
        match self {
            BondMode::RoundRobin => "balance-rr",
            BondMode::ActiveBackup => "active-backup",
            BondMode::Xor => "balance-xor",
            BondMode::Broadcast => "broadcast",
            BondMode::Lacp => "802.3ad",
            BondMode::Tlb => "balance-tlb",
            BondMode::Alb => "balance-alb",
        }
    }
}

impl fmt::Display for BondMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for BondMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What a bond hashes (`BOND_XMIT_POLICY_*`, the option `xmit_hash_policy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BondPolicy {
    /// 0, `layer2`: MAC addresses and EtherType.
    Layer2,
    /// 1, `layer3+4`: IP addresses and ports.
    Layer34,
    /// 2, `layer2+3`: MAC addresses, EtherType and IP addresses.
    Layer23,
    /// 3, `encap2+3`: as `layer2+3`, with the IP addresses of the innermost packet.
    Encap23,
    /// 4, `encap3+4`: as `layer3+4`, of the innermost packet. A packet that brings a hash over ports is chosen for by that
    /// ([`crate::Brings`]).
    Encap34,
    /// 5, `vlan+srcmac`: VLAN tag and source MAC address.
    VlanSrcMac,
}

impl BondPolicy {
    /// All of them, in the order of their numbers.
    pub const ALL: [BondPolicy; 6] = [
        BondPolicy::Layer2,
        BondPolicy::Layer34,
        BondPolicy::Layer23,
        BondPolicy::Encap23,
        BondPolicy::Encap34,
        BondPolicy::VlanSrcMac,
    ];

    /// The policy with this number (`IFLA_BOND_XMIT_HASH_POLICY`); none where there is no such policy.
    pub fn from_number(number: u8) -> Option<BondPolicy> {
        BondPolicy::ALL.get(usize::from(number)).copied()
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Its name, as `ip` has it.
    pub fn name(self) -> &'static str {
        match self {
            BondPolicy::Layer2 => "layer2",
            BondPolicy::Layer34 => "layer3+4",
            BondPolicy::Layer23 => "layer2+3",
            BondPolicy::Encap23 => "encap2+3",
            BondPolicy::Encap34 => "encap3+4",
            BondPolicy::VlanSrcMac => "vlan+srcmac",
        }
    }

    /// Whether the destination's MAC address is hashed.
    pub fn hashes_destination_mac(self) -> bool {
        matches!(
            self,
            BondPolicy::Layer2 | BondPolicy::Layer23 | BondPolicy::Encap23
        )
    }

    /// Whether ports are hashed.
    pub fn hashes_ports(self) -> bool {
        matches!(self, BondPolicy::Layer34 | BondPolicy::Encap34)
    }

    /// Whether IP addresses are hashed.
    pub fn hashes_addresses(self) -> bool {
        !matches!(self, BondPolicy::Layer2 | BondPolicy::VlanSrcMac)
    }

    /// Whether what is hashed is that of the innermost packet, as the flow dissector finds it.
    pub fn hashes_innermost(self) -> bool {
        matches!(self, BondPolicy::Encap23 | BondPolicy::Encap34)
    }
}

impl fmt::Display for BondPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for BondPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What is hashed of a frame beside its Ethernet header.
struct Seen {
    addresses: Addresses,
    /// Ports as they stand in the packet; for ESP and AH the SPI.
    ports: [u8; 4],
    icmp: IcmpKey,
}

/// The hash of a frame that leaves by a bond (`bond_xmit_hash`), 32 bits.
///
/// `frame` begins with the Ethernet header that it leaves with and has no frame check sequence. `tci` is the VLAN tag that the
/// kernel carries beside it (identifier, priority and all), as it does for a VLAN link above the bond; 0 where there is none. A
/// tag in the frame's own bytes is no such tag, and its EtherType is the frame's.
///
/// 1. `vlan+srcmac`: the tag ^ the upper 3 bytes of the source MAC address ^ its lower 3.
/// 2. `layer2`, and every frame in which rule 4 or 5 finds no packet: the last byte of the destination MAC address ^ that of
///    the source ^ the EtherType. A frame without a whole Ethernet header has 0.
/// 3. Else a first word, by policy: with `layer2+3` and `encap2+3` the value of rule 2. With `layer3+4` and `encap3+4` of an
///    ICMP message with an identifier (see [`IcmpKey::at`]) type, code and identifier, from the lowest byte on; of all else the
///    four bytes of the ports, the first the lowest. Then ^ the source ^ the destination address, each the exclusive or of its
///    groups of four bytes, the first the lowest; then it ^= it >> 16, and it ^= it >> 8. With `layer3+4` and `encap3+4` the
///    lowest bit is dropped.
/// 4. `layer2+3` and `layer3+4` look at the packet's own header: addresses; ports where the protocol or next header has some,
///    it is no IPv4 fragment, and the bytes are there. Extension headers of IPv6 are not passed over: behind them there are no
///    ports. Of an ICMP or ICMPv6 error, in whichever family, addresses and ports are those of the packet that it is about; where
///    that has no whole header, there is no packet. An IPv4 packet that it is about and that is a fragment has no ports.
/// 5. `encap2+3` and `encap3+4` take what the flow dissector finds in the innermost packet ([`dissect_for_bond`]). Frames
///    without addresses that it knows, as ARP, have 0 for them.
///
/// None where the hash is no function of the frame: TIPC with `encap2+3` and `encap3+4`.
///
/// A packet that brings a hash over ports (`skb->l4_hash`) goes by that with `encap3+4`, in place of this. The words are those
/// of a little-endian machine. Models `bond_xmit_hash`, `__bond_xmit_hash`, `bond_flow_dissect`, `bond_flow_ip`,
/// `bond_ip_hash`, `bond_eth_hash` and `bond_vlan_srcmac_hash` (drivers/net/bonding/bond_main.c, Linux 6.1 to 6.18; older
/// ones than 6.1.60, 6.5.9 and 6.6 may read at a wrong place where the headers are not in the packet's first buffer:
/// [`crate::faults::BOND_PULL`]). Frames that a program sends there by XDP have the same hash, without a tag
/// (`bond_xmit_hash_xdp`). Cost: some nanoseconds.
pub fn bond_hash(policy: BondPolicy, frame: &[u8], tci: u16) -> Option<u32> {
    let Ok(ethernet) = Ethernet::new_checked(frame) else {
        return Some(0);
    };
    let ends = (ethernet.destination(), ethernet.source());
    hash_of_parts(
        policy,
        ends,
        (ethernet.ether_type(), ethernet.payload()),
        tci,
    )
}

/// The same of an IP packet that leaves from MAC address `from` to `to`, untagged or with a tag of a VLAN link above the bond.
///
/// `packet` is from its IP header to its IP length; none hashes what is behind. Only with `vlan+srcmac` the tag would count.
pub fn bond_hash_of_packet(
    policy: BondPolicy,
    (to, from): ([u8; 6], [u8; 6]),
    family: Family,
    packet: &[u8],
) -> Option<u32> {
    let ether_type = match family {
        Family::V4 => ethertype::IPV4,
        Family::V6 => ethertype::IPV6,
    };
    hash_of_parts(policy, (to, from), (ether_type, packet), 0)
}

/// Of a frame in parts: both MAC addresses, what kind of packet, and that.
fn hash_of_parts(
    policy: BondPolicy,
    (destination, source): ([u8; 6], [u8; 6]),
    (ether_type, payload): (u16, &[u8]),
    tci: u16,
) -> Option<u32> {
    let of_ethernet = u32::from(destination[5] ^ source[5]) ^ u32::from(ether_type);
    let seen = match policy {
        BondPolicy::VlanSrcMac => {
            let [a, b, c, d, e, f] = source;
            let (vendor, device) = ([0, a, b, c], [0, d, e, f]);
            return Some(u32::from(tci) ^ u32::from_be_bytes(vendor) ^ u32::from_be_bytes(device));
        }
        BondPolicy::Layer2 => None,
        BondPolicy::Layer23 | BondPolicy::Layer34 => own_header(payload, ether_type),
        BondPolicy::Encap23 | BondPolicy::Encap34 => {
            let found = dissect_for_bond(payload, ether_type);
            if found.is_some_and(|found| found.tipc) {
                return None;
            }
            found.map(|found| Seen {
                addresses: found.addresses,
                ports: port_bytes(found.sport, found.dport),
                icmp: found.icmp,
            })
        }
    };
    let Some(seen) = seen else {
        return Some(of_ethernet);
    };
    let first = match policy.hashes_ports() {
        false => of_ethernet,
        true if seen.icmp.id != 0 => {
            let [low, high] = seen.icmp.id.to_le_bytes();
            u32::from_le_bytes([seen.icmp.kind, seen.icmp.code, low, high])
        }
        true => u32::from_le_bytes(seen.ports),
    };
    let mut hash = first ^ addresses_word(seen.addresses);
    hash ^= hash >> 16;
    hash ^= hash >> 8;
    Some(match policy.hashes_ports() {
        true => hash >> 1,
        false => hash,
    })
}

/// The same of a packet of a flow, neither fragmented nor with extension headers, that leaves untagged from `source` to
/// `destination`, which are MAC addresses.
///
/// 1. As [`bond_hash`].
/// 2. None where the flow does not say what is hashed: of ICMP with `layer3+4` and `encap3+4` (the identifier), of packets in
///    a tunnel and behind extension headers with `encap2+3` and `encap3+4`.
/// 3. ICMP with `layer2+3` and `encap2+3`: an error is taken for no error.
///
/// Cost: some nanoseconds.
pub fn bond_hash_of_flow(
    policy: BondPolicy,
    flow: &Flow,
    destination: [u8; 6],
    source: [u8; 6],
) -> Option<u32> {
    let silent = match flow.proto {
        protocol::ICMP | protocol::ICMPV6 => policy.hashes_ports(),
        protocol::IPIP | protocol::IPV6 | protocol::GRE => policy.hashes_innermost(),
        protocol::HOPOPTS | protocol::ROUTING | protocol::FRAGMENT | protocol::DSTOPTS => {
            policy.hashes_innermost() && matches!(flow.addresses, KeyAddresses::V6 { .. })
        }
        _ => false,
    };
    if silent {
        return None;
    }
    let mut frame = [0; 14 + 40 + 8];
    frame[..6].copy_from_slice(&destination);
    frame[6..12].copy_from_slice(&source);
    let (ether_type, header) = match flow.addresses {
        KeyAddresses::V4 { src, dst } => {
            (frame[14], frame[14 + 9]) = (0x45, flow.proto);
            frame[14 + 12..14 + 16].copy_from_slice(&src.octets());
            frame[14 + 16..14 + 20].copy_from_slice(&dst.octets());
            (ethertype::IPV4, 20)
        }
        KeyAddresses::V6 { src, dst } => {
            (frame[14], frame[14 + 6]) = (0x60, flow.proto);
            frame[14 + 8..14 + 24].copy_from_slice(&src.octets());
            frame[14 + 24..14 + 40].copy_from_slice(&dst.octets());
            (ethertype::IPV6, 40)
        }
    };
    frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
    if let Some(offset) = ports_offset(flow.proto) {
        let at = 14 + header + offset;
        frame[at..at + 4].copy_from_slice(&port_bytes(flow.sport, flow.dport));
    }
    bond_hash(policy, &frame, 0)
}

/// What a machine tells of a bond that netlink does not (`/sys/class/net/BOND`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BondMembers {
    /// The members in the order in which they joined the bond (`bonding/slaves`).
    pub members: Vec<BondMember>,
    /// The active aggregator of 802.3ad (`bonding/ad_aggregator`); none where there is none.
    pub aggregator: Option<u32>,
}

/// What a machine tells of a member of a bond (`/sys/class/net/MEMBER/bonding_slave`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BondMember {
    /// The name of the link.
    pub name: String,
    /// The bond's own monitor takes the link for up (`mii_status`).
    pub monitored_up: bool,
    /// The aggregator that it is in with 802.3ad (`ad_aggregator_id`); none where it is in none.
    pub aggregator: Option<u32>,
    /// Packets of this transmit queue of the bond are to leave by it in the modes `balance-rr` and `active-backup`
    /// (`queue_id`); 0 where none are.
    pub queue: u16,
}

impl BondMembers {
    /// The names of the members that can send, in the order in which [`bond_member`] numbers them (`bond_update_slave_arr`,
    /// Linux 6.1 to 6.18). `sends` says of a link by its name whether it is up, has a carrier and is no backup
    /// (`IFLA_BOND_SLAVE_STATE`).
    ///
    /// 1. Of those which `sends` says so of, and whose link the bond's monitor takes for up (`bond_slave_can_tx`),
    /// 2. with 802.3ad only those in the active aggregator, and none without one.
    pub fn usable(&self, mode: BondMode, sends: impl Fn(&str) -> bool) -> Vec<&str> {
        let can_send = |member: &&BondMember| sends(&member.name) && member.monitored_up;
        let aggregated = |member: &&BondMember| {
            mode != BondMode::Lacp
                || (self.aggregator.is_some() && member.aggregator == self.aggregator)
        };
        let members = self.members.iter().filter(can_send).filter(aggregated);
        members.map(|member| member.name.as_str()).collect()
    }
}

/// Which of `usable` members, from 0, a packet with this hash leaves by, in the modes `balance-xor` and `802.3ad`: the rest of
/// the hash divided by how many there are; none of none. They are numbered in the order in which they joined the bond, those
/// passed over that are not usable ([`BondMembers::usable`]).
///
/// Models `bond_xmit_3ad_xor_slave_get` (Linux 6.1 to 6.18).
pub fn bond_member(hash: u32, usable: usize) -> Option<usize> {
    let count = u32::try_from(usable).ok().filter(|count| *count > 0)?;
    Some((hash % count) as usize)
}

/// Rule 4 of [`bond_hash`] (`bond_flow_dissect`).
fn own_header(payload: &[u8], ether_type: u16) -> Option<Seen> {
    let (mut seen, proto, offset) = ip_header(payload, ether_type, 0)?;
    let Some(proto @ (protocol::ICMP | protocol::ICMPV6)) = proto else {
        return Some(seen);
    };
    seen.icmp = IcmpKey::at(payload, offset);
    let is_error = match proto {
        protocol::ICMP => raddle_packet::icmp::is_error(Family::V4, seen.icmp.kind),
        _ => raddle_packet::icmp::is_error(Family::V6, seen.icmp.kind),
    };
    if !is_error {
        return Some(seen);
    }
    // An error has no identifier, so that its ports count, which are the inner packet's.
    let (inner, ..) = ip_header(payload, ether_type, offset + 8)?;
    Some(Seen {
        icmp: seen.icmp,
        ..inner
    })
}

/// The IP header at `offset`: what is hashed of it, its protocol, unless it is an IPv4 fragment, and where it ends
/// (`bond_flow_ip`).
fn ip_header(payload: &[u8], ether_type: u16, offset: usize) -> Option<(Seen, Option<u8>, usize)> {
    let rest = payload.get(offset..)?;
    let (addresses, proto, length) = match ether_type {
        ethertype::IPV4 => {
            let header = rest.first_chunk::<20>()?;
            let fragment = (header[6] & 0x3f) | header[7] != 0;
            let [.., a, b, c, d, e, f, g, h] = *header;
            let addresses = Addresses::V4 {
                src: [a, b, c, d].into(),
                dst: [e, f, g, h].into(),
            };
            (
                addresses,
                (!fragment).then_some(header[9]),
                usize::from(header[0] & 0xf) * 4,
            )
        }
        ethertype::IPV6 => {
            let header = rest.first_chunk::<40>()?;
            let address = |at: usize| {
                let mut octets = [0; 16];
                octets.copy_from_slice(&header[at..at + 16]);
                octets.into()
            };
            let addresses = Addresses::V6 {
                src: address(8),
                dst: address(24),
            };
            (addresses, Some(header[6]), 40)
        }
        _ => return None,
    };
    let end = offset + length;
    let ports = proto.and_then(ports_offset).and_then(|skip| {
        let bytes = payload.get(end + skip..)?;
        bytes.first_chunk::<4>().copied()
    });
    let seen = Seen {
        addresses,
        ports: ports.unwrap_or_default(),
        icmp: IcmpKey::default(),
    };
    Some((seen, proto, end))
}

fn port_bytes(sport: u16, dport: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (sport.to_be_bytes(), dport.to_be_bytes());
    [a, b, c, d]
}

/// Source ^ destination, each folded to a word (`flow_get_u32_src`, `flow_get_u32_dst`).
fn addresses_word(addresses: Addresses) -> u32 {
    let fold = |octets: &[u8]| {
        let (words, _) = octets.as_chunks::<4>();
        words
            .iter()
            .fold(0, |all, word| all ^ u32::from_le_bytes(*word))
    };
    match addresses {
        Addresses::None => 0,
        Addresses::V4 { src, dst } => fold(&src.octets()) ^ fold(&dst.octets()),
        Addresses::V6 { src, dst } => fold(&src.octets()) ^ fold(&dst.octets()),
    }
}
