//! The flow dissector: which addresses, ports and labels Linux sees in a packet.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::Family;
use crate::bytes::{at, copy};
use crate::protocol;
use crate::walk::{walk, walk_for_bond, walk_whole};

/// Headers that are followed before the dissector gives up (`MAX_FLOW_DISSECT_HDRS`).
pub const MAX_HEADERS: u32 = 15;

/// Where the dissector stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// In front of the first packet inside another (`FLOW_DISSECTOR_F_STOP_AT_ENCAP`): hash policy 1
    /// and the outer half of policy 3.
    AtEncap,
    /// At the innermost packet: hash policy 2 and the inner half of policy 3.
    Innermost,
}

/// Source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// None that a flow key can hold: the packet ended before they did, or it carries TIPC, whose
    /// own address takes their place (in the kernel only the first four bytes, so that the IPv6
    /// hash of policy 2 takes a mixture for an address).
    None,
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

/// What the dissector saw. Whatever was recorded before it had to stop stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dissected {
    /// Addresses of the last IP header that was seen.
    pub addresses: Addresses,
    /// The last protocol or next header that was seen.
    pub ip_proto: u8,
    /// Source port, host order; for ESP and AH the upper half of the SPI. 0 where there is none, and
    /// for every fragment.
    pub sport: u16,
    /// Destination port, host order; for ESP and AH the lower half of the SPI.
    pub dport: u16,
    /// The last IPv6 flow label that was not 0, as a number; 0 where there was none.
    pub flow_label: u32,
    /// A packet inside the packet was reached.
    pub encapsulated: bool,
    /// The last IP packet that was seen is a fragment (of IPv6 also an atomic one).
    pub fragment: bool,
}

/// What the kernel's own hash of a packet (`skb_get_hash`) is made of beside [`Dissected`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Up to the first IPv6 header with a flow label, without its ports, else of the innermost packet
    /// (`FLOW_DISSECTOR_F_STOP_AT_FLOW_LABEL`).
    pub seen: Dissected,
    /// EtherType of the last header that was looked at.
    pub ether_type: u16,
    /// The key of GRE, as it is in the packet; of version 1 the call alone. 0 where there is none.
    pub gre_key: [u8; 4],
    /// What the kernel hashes behind the addresses of an IPv4 packet: what an IPv6 header around it has left there, bytes 8 to
    /// 11 of its source (`struct flow_keys` ends in a union that nobody clears). 0 where there is none.
    pub left: [u8; 4],
    /// A frame inside has a VLAN tag, or TIPC: more is hashed than is told here.
    pub more: bool,
}

/// What tells messages of ICMP and ICMPv6 of one pair of hosts apart (`struct flow_dissector_key_icmp`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IcmpKey {
    /// Type; 0 where there is no message.
    pub kind: u8,
    /// Code; 0 where there is no message.
    pub code: u8,
    /// The identifier of an echo or a timestamp, request or reply, host order; 1 where that is 0, and 0 of all else.
    pub id: u16,
}

impl IcmpKey {
    /// That of the message at `offset`, whichever of the two it is (`skb_flow_get_icmp_tci`, Linux 6.1 to 6.18).
    ///
    /// 1. Without the 8 bytes of a header all is 0.
    /// 2. Types 0, 8, 13, 14, 128 and 129 have an identifier, in IPv4 as in IPv6.
    pub fn at(packet: &[u8], offset: usize) -> IcmpKey {
        let Some(header) = at::<8>(packet, offset) else {
            return IcmpKey::default();
        };
        let id = u16::from_be_bytes([header[4], header[5]]);
        IcmpKey {
            kind: header[0],
            code: header[1],
            id: match header[0] {
                0 | 8 | 13 | 14 | 128 | 129 => id.max(1),
                _ => 0,
            },
        }
    }
}

/// What the dissector sees for the hash of a bond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfBond {
    /// Addresses of the last IP header that was seen.
    pub addresses: Addresses,
    /// As [`Dissected::sport`].
    pub sport: u16,
    /// As [`Dissected::dport`].
    pub dport: u16,
    /// Of the message in the last IP header that was seen, where that is no fragment and holds one.
    pub icmp: IcmpKey,
    /// It is TIPC, whose own address stands in place of IP addresses; for some of its messages that is a random number.
    pub tipc: bool,
}

/// Dissects what a frame carries as the kernel does for a bond that hashes what is in tunnels, too (policies encap2+3 and
/// encap3+4). `payload` is what follows the EtherType; VLAN tags in it are passed over.
///
/// 1. As [`dissect`] with [`Stop::Innermost`], but from any EtherType on.
/// 2. ICMP and ICMPv6 leave what tells their messages apart.
/// 3. None where the kernel says that it cannot dissect the packet: a header ends early, an IPv4 header is shorter than 5
///    words, PPPoE or batman-adv are of another version, the EtherType is none that it knows. ARP, MPLS, PTP, FCoE and CFM it
///    knows, and has nothing of them.
///
/// Models `__skb_flow_dissect` with `flow_keys_bonding` (Linux 6.1 to 6.18; before 6.5 CFM is not known). Cost: tens of
/// nanoseconds.
pub fn dissect_for_bond(payload: &[u8], ether_type: u16) -> Option<OfBond> {
    walk_for_bond(payload, ether_type)
}

/// Dissects a packet as the kernel does for a multipath hash.
///
/// `l3` is the packet from its IP header on, ended at its IP length. Never fails: a packet that ends
/// early or makes no sense leaves what was seen until then.
///
/// 1. IPv4: addresses and protocol are recorded, unless the 20 bytes are not there or the header
///    length is below 5 words. A fragment, first or later, ends the walk without ports.
/// 2. IPv6: addresses, next header, and the flow label where it is not 0.
/// 3. Hop-by-hop, routing and destination options (only in IPv6) are skipped by their length.
/// 4. An IPv6 fragment header gives the protocol and ends the walk without ports, also where the
///    packet is its only fragment.
/// 5. IPv4, IPv6 and GRE inside count as encapsulation: [`Stop::AtEncap`] ends there, with the outer
///    protocol number and no ports; otherwise what they hold replaces what was seen. GRE is looked
///    into without routing, in version 0, and in version 1 for PPP.
/// 6. MPLS in IP ends the walk.
/// 7. TCP, UDP, DCCP, SCTP, UDP-Lite, ESP and AH: ports, or 0 where they are not there.
/// 8. After [`MAX_HEADERS`] steps the walk ends.
///
/// Models `__skb_flow_dissect` with `flow_keys_dissector` (Linux 6.12 to 6.18). A BPF flow dissector
/// attached to the namespace would replace all of it. Cost: a few nanoseconds for TCP and UDP.
#[inline]
pub fn dissect(l3: &[u8], family: Family, stop: Stop) -> Dissected {
    match dissect_plain(l3, family) {
        Some(seen) => seen,
        None => walk(l3, family, stop),
    }
}

/// Dissects a packet as the kernel does for the hash that it gives to packets without one, as receive packet steering
/// asks for.
///
/// Models `___skb_get_hash` (Linux 6.1 to 6.18). Cost: tens of nanoseconds.
pub fn dissect_whole(l3: &[u8], family: Family) -> Whole {
    walk_whole(l3, family)
}

/// What [`dissect`] sees, wherever it is to stop, in what nearly every packet is: TCP or UDP, neither
/// fragmented nor behind extension headers. None for everything else.
#[inline]
pub fn dissect_plain(l3: &[u8], family: Family) -> Option<Dissected> {
    match family {
        Family::V4 => plain_ipv4(l3),
        Family::V6 => plain_ipv6(l3),
    }
}

/// What the walk would find in a TCP or UDP packet that is no fragment; `None` for everything else.
#[inline]
fn plain_ipv4(l3: &[u8]) -> Option<Dissected> {
    let header = l3.first_chunk::<20>()?;
    let words = header[0] & 0xf;
    let fragment = (header[6] & 0x3f) | header[7];
    if words < 5 || fragment != 0 {
        return None;
    }
    plain(
        l3,
        usize::from(words) * 4,
        header[9],
        0,
        ipv4_addresses(header),
    )
}

/// The same for IPv6 without extension headers.
#[inline]
fn plain_ipv6(l3: &[u8]) -> Option<Dissected> {
    let header = l3.first_chunk::<40>()?;
    plain(
        l3,
        40,
        header[6],
        ipv6_label(header),
        ipv6_addresses(header),
    )
}

#[inline]
fn plain(
    l3: &[u8],
    offset: usize,
    ip_proto: u8,
    flow_label: u32,
    addresses: Addresses,
) -> Option<Dissected> {
    if ip_proto != protocol::TCP && ip_proto != protocol::UDP {
        return None;
    }
    let ports = at::<4>(l3, offset)?;
    Some(Dissected {
        addresses,
        ip_proto,
        sport: u16::from_be_bytes([ports[0], ports[1]]),
        dport: u16::from_be_bytes([ports[2], ports[3]]),
        flow_label,
        encapsulated: false,
        fragment: false,
    })
}

#[inline]
pub(crate) fn ipv4_addresses(header: &[u8; 20]) -> Addresses {
    Addresses::V4 {
        src: Ipv4Addr::new(header[12], header[13], header[14], header[15]),
        dst: Ipv4Addr::new(header[16], header[17], header[18], header[19]),
    }
}

#[inline]
pub(crate) fn ipv6_addresses(header: &[u8; 40]) -> Addresses {
    Addresses::V6 {
        src: Ipv6Addr::from(copy::<16>(header, 8)),
        dst: Ipv6Addr::from(copy::<16>(header, 24)),
    }
}

#[inline]
pub(crate) fn ipv6_label(header: &[u8; 40]) -> u32 {
    u32::from_be_bytes([0, header[1] & 0xf, header[2], header[3]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The short way gives what the walk gives, or nothing.
        #[test]
        fn plain_is_the_walk(
            mut l3 in prop::collection::vec(any::<u8>(), 20..80),
            proto in prop::sample::select(vec![6u8, 17, 0, 1, 44, 51]),
            fragment in prop::sample::select(vec![[0u8, 0], [0x40, 0], [0x80, 0], [0x20, 0], [0, 1]]),
        ) {
            (l3[6], l3[7], l3[9]) = (fragment[0], fragment[1], proto);
            if let Some(seen) = plain_ipv4(&l3) {
                prop_assert_eq!(seen, walk(&l3, Family::V4, Stop::Innermost));
            }
            l3[6] = proto;
            if let Some(seen) = plain_ipv6(&l3) {
                prop_assert_eq!(seen, walk(&l3, Family::V6, Stop::Innermost));
            }
        }
    }

    #[test]
    fn plain_packets_go_the_short_way() {
        for proto in [6, 17] {
            let mut l3 = [0; 44];
            (l3[0], l3[9]) = (0x45, proto);
            assert!(plain_ipv4(&l3[..24]).is_some() && plain_ipv4(&l3[..23]).is_none());
            l3[6] = proto;
            assert!(plain_ipv6(&l3).is_some() && plain_ipv6(&l3[..43]).is_none());
        }
    }
}
