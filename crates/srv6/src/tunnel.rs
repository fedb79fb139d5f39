//! Tunnels over IPv4, which are no SRv6 but do the same to a packet: something in front of it is put there or taken off.
//!
//! # The rules
//!
//! **T1 to T4, out**: for a packet that has come to an adjacency with [`raddle_image::ADJ_TUNNEL`], and has passed A12 (B9) there.
//! 1. (T1) The tunnel carries its family, else `out-link`.
//! 2. (T2) Its TTL or hop limit is one less, as when it is forwarded otherwise.
//! 3. (T3) In front of it comes what [`Tunnel`] says: `ip_tunnel_xmit`, `ipip6_tunnel_xmit`, `vxlan_xmit_one` (Linux 6.1 to 6.18). The outer TOS has
//!    the congestion bits of the packet, but that CE becomes ECT(0) (`INET_ECN_encapsulate`). An identification counts where outer
//!    packets may be fragmented, and is 0 elsewhere; the kernel's is drawn. The source port of UDP is `udp_flow_src_port`'s. More than
//!    65,535 bytes: `mtu`. No room in front: `headroom`.
//! 4. (T4) That packet is looked up in the adjacency's table as one of this machine: neither its link nor its addresses are asked about, its
//!    TTL stays, and it may leave by the link that it came in by. The group chooses by rule S9.6 of [`crate`], for the same reason: the
//!    kernel keeps a route of the tunnel for each core (but where the TOS is inherited, and of VXLAN where there is one; it then looks up each
//!    packet, and prefers ways whose links have the outer source, from Linux 6.16 on). A group that is the kernel's, a segment, another tunnel: `out-link`. Other reasons
//!    are those of any packet. The kernel sends by one of several ways, so a neighbour that is not resolved is named to the daemon: nobody
//!    else may ask for it.
//!
//! **T5 to T7, in**: for an IPv4 packet that has passed A1 to A9, and is routed to a segment of kind
//! [`TUNNEL_END`](raddle_image::segment_kind::TUNNEL_END). All failures but one are `local`: it is an address of this machine, and the kernel sees
//! to it.
//! 1. (T5) It is no fragment and not marked CE or ECT(1), which may go over to what is inside (`INET_ECN_decapsulate`). Behind its header is IPv4 or IPv6; or GRE in version 0 with nothing but perhaps a key, and these
//!    behind it; or UDP of the length that there is and VXLAN with a VNI and nothing else, and a frame behind it. A checksum of UDP that is
//!    not 0 is right.
//! 2. (T6) A tunnel ends there: [`raddle_image::TunnelEnd`], by the other end and key, or port and VNI. It carries the family inside.
//!    A firewall may concern outer packets by this tunnel, or any by the link that they came in by
//!    ([`NO_TUNNELS`](raddle_image::link_flags::NO_TUNNELS)): `firewall`.
//! 3. (T7) What is inside comes in by the tunnel's link as any packet or frame does, by steps P4 and on; behind it are no segments and no
//!    tunnels. What does not leave and is routed to raddle's own is dropped: the kernel has no such route.
//!
//! What is not forwarded is as it came.

use raddle_image::{
    Adjacency, Memory, Reason, Segment, TUNNEL_END, TUNNEL_GRE, TUNNEL_IPV4, TUNNEL_KEYED,
    TUNNEL_MOST, Tunnel, TunnelEnd, tunnel_flags, tunnel_kind,
};
use raddle_packet::{Family, checksum, protocol};
use raddle_select::{HashKey, skb_hash};

use crate::packet::{ETHERNET, Packet};

/// Header of UDP, and as many bytes of VXLAN's.
const UDP: usize = 8;
/// Where VXLAN's header begins in what a tunnel puts in front.
const VXLAN: usize = TUNNEL_IPV4 + UDP;
/// And the frame behind it.
const FRAME: usize = VXLAN + 8;
/// "There is a VNI" (RFC 7348, section 5).
const HAS_VNI: u8 = 8;
/// "There is a key" (RFC 2890).
const GRE_KEY: u16 = 0x2000;
/// Set in the congestion bits where it was experienced (CE), and in ECT(1).
const CE_OR_ECT_1: u8 = 1;
/// Congestion experienced, and a transport that knows of that.
const CE: u8 = 3;
const ECT_0: u8 = 2;
/// Not to be fragmented.
const DF: u16 = 0x4000;

/// EtherType of a family.
fn ether_type(family: Family) -> u16 {
    match family {
        Family::V4 => 0x0800,
        Family::V6 => 0x86dd,
    }
}

fn family_of(ether_type: u16) -> Option<Family> {
    match ether_type {
        0x0800 => Some(Family::V4),
        0x86dd => Some(Family::V6),
        _ => None,
    }
}

fn carries(flags: u8, family: Family) -> bool {
    let flag = match family {
        Family::V4 => tunnel_flags::CARRIES4,
        Family::V6 => tunnel_flags::CARRIES6,
    };
    flags & flag != 0
}

/// Of a header, what the one in front of it is made of.
struct Inner {
    family: Family,
    tos: u8,
    ttl: u8,
    df: bool,
}

impl Inner {
    fn of(family: Family, l3: &[u8]) -> Option<Inner> {
        let head = l3.first_chunk::<10>()?;
        Some(match family {
            Family::V4 => Inner {
                family,
                tos: head[1],
                ttl: head[8],
                df: u16::from_be_bytes([head[6], head[7]]) & DF != 0,
            },
            Family::V6 => Inner {
                family,
                tos: head[0] << 4 | head[1] >> 4,
                ttl: head[7],
                df: false,
            },
        })
    }
}

/// Rules T1 and T3 for a packet of which rule T2 is done already; `id` is for what may be fragmented.
///
/// # Errors
/// Why not; [`Packet::restore`] then gives it back as it came.
pub fn put_in(
    memory: &Memory,
    adjacency: &Adjacency,
    packet: &mut Packet<'_>,
    id: u16,
) -> Result<(), Reason> {
    let tunnel = &adjacency.tunnel;
    let family = packet.family();
    if !carries(tunnel.flags, family) || tunnel.is_empty() {
        return Err(Reason::OutLink);
    }
    let len = packet.len();
    let inner = Inner::of(family, packet.l3()).ok_or(Reason::Truncated)?;
    let sport = source_port(memory, tunnel, family, packet.l3())?;
    let longer = tunnel.len();
    let total = u16::try_from(longer + len).map_err(|_| Reason::Mtu)?;
    packet.grow(longer, 0)?;
    let mut head = [0; TUNNEL_MOST];
    let head = &mut head[..longer];
    write_ipv4(tunnel, &inner, (total, id), head);
    match tunnel.kind {
        tunnel_kind::GRE => write_gre(tunnel, family, &mut head[TUNNEL_IPV4..]),
        tunnel_kind::VXLAN => {
            head[FRAME..FRAME + 6].copy_from_slice(&adjacency.dst_mac);
            head[FRAME + 6..FRAME + 12].copy_from_slice(&adjacency.src_mac);
            head[FRAME + 12..].copy_from_slice(&ether_type(family).to_be_bytes());
            write_vxlan(tunnel, sport, total, head);
        }
        _ => {}
    }
    packet.fresh(0..longer).copy_from_slice(head);
    packet.encapsulated(len, Some(tunnel.salt), Family::V4);
    if tunnel.kind == tunnel_kind::VXLAN && tunnel.flags & tunnel_flags::CHECKSUM != 0 {
        let check = match udp_checksum(packet.l3()) {
            0 => u16::MAX,
            check => check,
        };
        packet
            .fresh(TUNNEL_IPV4 + 6..VXLAN)
            .copy_from_slice(&check.to_be_bytes());
    }
    Ok(())
}

/// The port of VXLAN that says which flow is inside (`udp_flow_src_port`); 0 of others.
fn source_port(memory: &Memory, tunnel: &Tunnel, family: Family, l3: &[u8]) -> Result<u16, Reason> {
    if tunnel.kind != tunnel_kind::VXLAN {
        return Ok(0);
    }
    let [k0, k1] = memory.port_key();
    let hash = skb_hash(HashKey::new(k0, k1), family, l3).map_err(|_| Reason::HashPolicy)?;
    // The upper half has most of what a lower half of few ports would see.
    let hash = hash ^ hash << 16;
    let place = (u64::from(hash) * u64::from(tunnel.sports)) >> 32;
    Ok(tunnel.sport.wrapping_add(place as u16))
}

fn write_ipv4(tunnel: &Tunnel, inner: &Inner, (total, id): (u16, u16), head: &mut [u8]) {
    let has = |flag: u8| tunnel.flags & flag != 0;
    let tos = if has(tunnel_flags::TOS_INNER) {
        inner.tos
    } else {
        tunnel.tos
    };
    let ecn = match inner.tos & 3 {
        CE => ECT_0,
        ecn => ecn,
    };
    let df = has(tunnel_flags::DF) || has(tunnel_flags::DF_INNER) && inner.df;
    let (id, fragment) = if df { (0, DF) } else { (id, 0) };
    let ttl = if has(tunnel_flags::TTL_INNER) {
        inner.ttl
    } else {
        tunnel.ttl
    };
    let proto = match (tunnel.kind, inner.family) {
        (tunnel_kind::GRE, _) => protocol::GRE,
        (tunnel_kind::VXLAN, _) => protocol::UDP,
        (_, Family::V4) => protocol::IPIP,
        (_, Family::V6) => protocol::IPV6,
    };
    head[0] = 0x45;
    head[1] = tos & !3 | ecn;
    head[2..4].copy_from_slice(&total.to_be_bytes());
    head[4..6].copy_from_slice(&id.to_be_bytes());
    head[6..8].copy_from_slice(&fragment.to_be_bytes());
    head[8] = ttl;
    head[9] = proto;
    head[12..16].copy_from_slice(&tunnel.src);
    head[16..20].copy_from_slice(&tunnel.dst);
    let check = checksum::checksum(&head[..TUNNEL_IPV4]);
    head[10..12].copy_from_slice(&check.to_be_bytes());
}

fn write_gre(tunnel: &Tunnel, family: Family, head: &mut [u8]) {
    head[2..4].copy_from_slice(&ether_type(family).to_be_bytes());
    if tunnel.flags & tunnel_flags::HAS_KEY != 0 {
        head[..2].copy_from_slice(&GRE_KEY.to_be_bytes());
        head[TUNNEL_GRE..].copy_from_slice(&tunnel.key);
    }
}

fn write_vxlan(tunnel: &Tunnel, sport: u16, total: u16, head: &mut [u8]) {
    let length = total - TUNNEL_IPV4 as u16;
    head[TUNNEL_IPV4..TUNNEL_IPV4 + 2].copy_from_slice(&sport.to_be_bytes());
    head[TUNNEL_IPV4 + 2..TUNNEL_IPV4 + 4].copy_from_slice(&tunnel.port.to_be_bytes());
    head[TUNNEL_IPV4 + 4..TUNNEL_IPV4 + 6].copy_from_slice(&length.to_be_bytes());
    head[VXLAN] = HAS_VNI;
    head[VXLAN + 4..VXLAN + 7].copy_from_slice(&tunnel.key[..3]);
}

/// What the checksum of a UDP packet over IPv4 without options has to be, if what stands there is 0; and 0 if what stands there is right.
fn udp_checksum(l3: &[u8]) -> u16 {
    let udp = &l3[TUNNEL_IPV4..];
    let length = (udp.len() as u16).to_be_bytes();
    let pseudo = [0, protocol::UDP, length[0], length[1]];
    let start = checksum::sum(&pseudo, checksum::sum(&l3[12..TUNNEL_IPV4], 0));
    !checksum::sum(udp, start)
}

/// What was found inside of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// The link that it comes in by.
    pub index: u32,
    /// Where it begins in the packet that holds it.
    pub at: usize,
    /// An IP packet of this family; none for a frame.
    pub family: Option<Family>,
}

/// Rules T5 and T6 for an IPv4 packet, from its header to its end. None is `local`.
///
/// Cost: of a checksum the bytes of the packet, and a binary search over the segment's template.
pub fn look_into(memory: &Memory, segment: &Segment, l3: &[u8]) -> Option<Inside> {
    let header = l3.first_chunk::<TUNNEL_IPV4>()?;
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    if header[0] != 0x45 || fragment || header[1] & CE_OR_ECT_1 != 0 {
        return None;
    }
    let remote = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);
    let rest = &l3[TUNNEL_IPV4..];
    let (kind, remote, key, family, at) = match header[9] {
        protocol::IPIP => (tunnel_kind::IP, remote, 0, Some(Family::V4), 0),
        protocol::IPV6 => (tunnel_kind::IP, remote, 0, Some(Family::V6), 0),
        protocol::GRE => {
            let &[high, low, a, b] = rest.first_chunk::<TUNNEL_GRE>()?;
            let family = family_of(u16::from_be_bytes([a, b]))?;
            let (key, at) = match u16::from_be_bytes([high, low]) {
                0 => (0, TUNNEL_GRE),
                GRE_KEY => {
                    let key = rest[TUNNEL_GRE..].first_chunk::<TUNNEL_GRE>()?;
                    let key = u64::from(u32::from_be_bytes(*key));
                    (TUNNEL_KEYED | key, 2 * TUNNEL_GRE)
                }
                _ => return None,
            };
            (tunnel_kind::GRE, remote, key, Some(family), at)
        }
        protocol::UDP => {
            let udp = rest.first_chunk::<{ UDP + 8 }>()?;
            let port = u16::from_be_bytes([udp[2], udp[3]]);
            let length = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
            let vni = u32::from_be_bytes([0, udp[12], udp[13], udp[14]]);
            let plain = udp[UDP..UDP + 4] == [HAS_VNI, 0, 0, 0] && udp[15] == 0;
            if length != rest.len() || !plain || rest.len() < UDP + 8 + ETHERNET {
                return None;
            }
            if udp[6..8] != [0; 2] && udp_checksum(l3) != 0 {
                return None;
            }
            let key = TunnelEnd::vxlan(port, vni);
            (tunnel_kind::VXLAN, 0, key, None, UDP + 8)
        }
        _ => return None,
    };
    let end = find(memory, segment, kind, remote, key)?;
    if family.is_some_and(|family| !carries(end.flags, family)) {
        return None;
    }
    Some(Inside {
        index: end.index,
        at: TUNNEL_IPV4 + at,
        family,
    })
}

/// The tunnel that ends at an address so.
fn find(memory: &Memory, segment: &Segment, kind: u8, remote: u32, key: u64) -> Option<TunnelEnd> {
    let end = TunnelEnd {
        kind,
        remote,
        key,
        ..TunnelEnd::default()
    };
    let wanted = end.words();
    let (mut from, mut to) = (0, segment.out);
    while from < to {
        let middle = from + (to - from) / 2;
        let place = segment.template.wrapping_add(middle * TUNNEL_END as u32);
        let words = [0, 1, 2].map(|i| memory.template_word(place.wrapping_add(i)));
        match words[..2].cmp(&wanted[..]) {
            std::cmp::Ordering::Less => from = middle + 1,
            std::cmp::Ordering::Greater => to = middle,
            std::cmp::Ordering::Equal => return Some(TunnelEnd::from_words(words)),
        }
    }
    None
}
