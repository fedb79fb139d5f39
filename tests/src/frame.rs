//! Crafted frames: everything that selection looks at, and much that the kernel refuses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use raddle_packet::checksum;

use crate::Random;

/// A frame to send.
#[derive(Clone, Debug)]
pub struct Crafted {
    /// The whole frame, from the destination MAC on.
    pub bytes: Vec<u8>,
    /// What is in it, for messages.
    pub kind: &'static str,
    /// Its flow, where `RTM_GETROUTE` can be asked about it.
    pub flow: Option<Flow>,
}

/// A flow as `RTM_GETROUTE` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Source.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
    /// Protocol: TCP or UDP.
    pub proto: u8,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
}

/// Where frames come from and go to.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// MAC address of the router's link, then of the sender.
    pub macs: [[u8; 6]; 2],
    /// IPv4 sources and destinations to draw from.
    pub v4: [Vec<Ipv4Addr>; 2],
    /// IPv6 sources and destinations to draw from.
    pub v6: [Vec<Ipv6Addr>; 2],
    /// How many times as many tunnels as usual, less one.
    pub tunnels: u8,
}

/// What stays of a frame while it is forwarded: the IP packet without TTL and header checksum.
/// Frames that are told apart by it can be found again behind the router.
pub fn identity(frame: &[u8]) -> Vec<u8> {
    let start = ip_start(frame);
    let mut packet = frame.get(start..ip_end(frame)).unwrap_or_default().to_vec();
    match frame.get(start - 2..start) {
        Some([0x08, 0x00]) if packet.len() >= 20 => {
            packet[8] = 0;
            packet[10..12].fill(0);
        }
        Some([0x86, 0xdd]) if packet.len() >= 40 => packet[7] = 0,
        _ => {}
    }
    packet
}

/// Where the packet starts in the frame: behind the EtherType, and VLAN tags before that.
pub fn ip_start(frame: &[u8]) -> usize {
    let mut start = 14;
    while let Some([0x81, 0x00] | [0x88, 0xa8]) = frame.get(start - 2..start) {
        start += 4;
    }
    start
}

/// Where the IP packet ends in the frame; padding comes behind it.
pub fn ip_end(frame: &[u8]) -> usize {
    let field = |at: usize| -> usize {
        frame
            .get(at..at + 2)
            .map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])))
    };
    let start = ip_start(frame);
    let end = match frame.get(start - 2..start) {
        Some([0x08, 0x00]) => start + field(start + 2),
        Some([0x86, 0xdd]) => start + 40 + field(start + 4),
        _ => frame.len(),
    };
    end.clamp(frame.len().min(start), frame.len())
}

/// A plain UDP packet of a flow, `tag` in its payload, with a right header checksum.
pub fn udp(macs: [[u8; 6]; 2], flow: &Flow, tag: u64, payload: usize) -> Vec<u8> {
    let mut body = ports(flow.sport, flow.dport);
    body.extend(((8 + payload.max(8)) as u16).to_be_bytes());
    body.extend([0; 2]); // no checksum
    body.extend(tag.to_be_bytes());
    body.resize(8 + payload.max(8), 0);
    ethernet(macs, &ip(flow.src, flow.dst, 17, 64, &body))
}

/// The tag of [`udp`].
pub fn tag(frame: &[u8]) -> Option<u64> {
    let start = ip_start(frame);
    let at = match frame.get(start - 2..start)? {
        [0x08, 0x00] => start + 20 + 8,
        [0x86, 0xdd] => start + 40 + 8,
        _ => return None,
    };
    Some(u64::from_be_bytes(frame.get(at..at + 8)?.try_into().ok()?))
}

/// A frame of a flow, all else drawn: TOS or traffic class, TTL, now and then a flow label or "don't fragment", payload. No
/// two are of one identity, as far as 64 random bits are not the same twice.
pub fn drawn(rng: &mut Random, macs: [[u8; 6]; 2], flow: &Flow) -> Vec<u8> {
    let body = transport(rng, flow.proto, flow.sport, flow.dport);
    let (class, ttl) = (rng.bits() as u8, 2 + rng.below(254) as u8);
    let packet = match (flow.src, flow.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let header = Header4 {
                src,
                dst,
                proto: flow.proto,
                ttl,
                id: rng.bits() as u16,
                fragment: *rng.pick(&[0, 0x4000]),
            };
            let mut packet = header.around(&[], &body);
            packet[1] = class;
            seal(&mut packet[..20]);
            packet
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let label = rng.bits() as u32 & *rng.pick(&[0, 0xf_ffff]);
            ipv6(
                src,
                dst,
                flow.proto,
                ttl,
                u32::from(class) << 20 | label,
                &body,
            )
        }
        (src, dst) => panic!("{src} and {dst} are of different families"),
    };
    ethernet(macs, &packet)
}

/// `count` random frames, no two of one identity.
pub fn random(rng: &mut Random, addresses: &Addresses, count: usize) -> Vec<Crafted> {
    let mut seen = std::collections::HashSet::new();
    let mut frames = Vec::with_capacity(count);
    while frames.len() < count {
        let frame = match rng.below(2) {
            0 => random4(rng, addresses),
            _ => random6(rng, addresses),
        };
        if seen.insert(identity(&frame.bytes)) {
            frames.push(frame);
        }
    }
    frames
}

/// An Ethernet frame around an IP packet; not padded.
fn ethernet(macs: [[u8; 6]; 2], packet: &[u8]) -> Vec<u8> {
    let kind = match packet[0] >> 4 {
        6 => [0x86, 0xdd],
        _ => [0x08, 0x00],
    };
    [&macs[0], &macs[1], &kind[..], packet].concat()
}

/// A frame with an IP packet of any protocol, TTL 64.
///
/// # Panics
/// When the addresses are of different families.
pub fn packet(macs: [[u8; 6]; 2], src: IpAddr, dst: IpAddr, proto: u8, body: &[u8]) -> Vec<u8> {
    ethernet(macs, &ip(src, dst, proto, 64, body))
}

/// An IP packet of any protocol.
///
/// # Panics
/// When the addresses are of different families.
pub fn ip(src: IpAddr, dst: IpAddr, proto: u8, ttl: u8, body: &[u8]) -> Vec<u8> {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let header = Header4 {
                src,
                dst,
                proto,
                ttl,
                id: 0,
                fragment: 0,
            };
            header.around(&[], body)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => ipv6(src, dst, proto, ttl, 0, body),
        _ => panic!("{src} and {dst} are of different families"),
    }
}

#[derive(Clone, Copy)]
struct Header4 {
    src: Ipv4Addr,
    dst: Ipv4Addr,
    proto: u8,
    ttl: u8,
    id: u16,
    /// Flags and offset as they stand in the header.
    fragment: u16,
}

impl Header4 {
    fn around(&self, options: &[u8], body: &[u8]) -> Vec<u8> {
        let header = 20 + options.len();
        let mut packet = vec![0x40 | (header / 4) as u8, 0];
        packet.extend(((header + body.len()) as u16).to_be_bytes());
        packet.extend(self.id.to_be_bytes());
        packet.extend(self.fragment.to_be_bytes());
        packet.extend([self.ttl, self.proto, 0, 0]);
        packet.extend(self.src.octets());
        packet.extend(self.dst.octets());
        packet.extend(options);
        seal(&mut packet[..header]);
        packet.extend(body);
        packet
    }
}

/// Fills in an IPv4 header's checksum.
pub fn seal(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = checksum::checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// An IPv6 packet; `label` is the first word without the version: traffic class and flow label.
pub fn ipv6(src: Ipv6Addr, dst: Ipv6Addr, next: u8, hops: u8, label: u32, body: &[u8]) -> Vec<u8> {
    let mut packet = (0x6000_0000 | label).to_be_bytes().to_vec();
    packet.extend((body.len() as u16).to_be_bytes());
    packet.extend([next, hops]);
    packet.extend(src.octets());
    packet.extend(dst.octets());
    packet.extend(body);
    packet
}

fn ports(sport: u16, dport: u16) -> Vec<u8> {
    [sport.to_be_bytes(), dport.to_be_bytes()].concat()
}

/// A transport header and payload for the protocol; random where nothing depends on it. Random
/// TCP sequence numbers also keep GRO from merging segments.
fn transport(rng: &mut Random, proto: u8, sport: u16, dport: u16) -> Vec<u8> {
    let payload = 8 + rng.below(60);
    let mut body = ports(sport, dport);
    match proto {
        6 => {
            body.extend(rng.bytes(8));
            body.extend([0x50, 0x10, 0x10, 0x00]);
            body.extend(rng.bytes(4 + payload));
        }
        17 => {
            body.extend(((8 + payload) as u16).to_be_bytes());
            body.extend([0; 2]);
            body.extend(rng.bytes(payload));
        }
        // AH: the SPI, which counts as ports, is behind four bytes.
        51 => {
            let spi = std::mem::replace(&mut body, vec![17, 4, 0, 0]);
            body.extend(spi);
            body.extend(rng.bytes(20));
        }
        47 => {
            // With any of checksum, key and sequence number, over a plain packet.
            let flags = *rng.pick(&[0u8, 0, 0x20, 0xb0, 0x80, 0x10]);
            let inner = [
                Ipv4Addr::from(rng.bits() as u32),
                Ipv4Addr::new(10, 9, 9, 9),
            ];
            let inner = ip(inner[0].into(), inner[1].into(), 17, 3, &body);
            body = vec![flags, 0, 0x08, 0x00];
            body.extend(rng.bytes((flags & 0xb0).count_ones() as usize * 4));
            body.extend(inner);
        }
        _ => body.extend(rng.bytes(payload)),
    }
    body
}

const PROTOCOLS: [u8; 10] = [6, 17, 6, 17, 33, 47, 50, 51, 132, 136];

fn random4(rng: &mut Random, a: &Addresses) -> Crafted {
    let [src, dst] = [*rng.pick(&a.v4[0]), *rng.pick(&a.v4[1])];
    let (sport, dport) = (rng.bits() as u16, rng.bits() as u16);
    let proto = *rng.pick(&PROTOCOLS);
    let body = transport(rng, proto, sport, dport);
    let mut h = Header4 {
        src,
        dst,
        proto,
        ttl: 2 + rng.below(254) as u8,
        id: rng.bits() as u16,
        fragment: 0,
    };
    let plain = |kind, bytes: Vec<u8>| Crafted {
        bytes: ethernet(a.macs, &bytes),
        kind,
        flow: None,
    };
    match rng.below(24 + 2 * usize::from(a.tunnels)) {
        0 => {
            h.fragment = 0x2000;
            plain("first fragment", h.around(&[], &body))
        }
        1 => {
            h.fragment = (1 + rng.below(1000) as u16) | (0x2000 * rng.below(2) as u16);
            plain("later fragment", h.around(&[], &body))
        }
        2..=4 => {
            h.proto = 1;
            if rng.once_in(4) {
                h.fragment = *rng.pick(&[0x2000, 0x4000, 0x0005]);
            }
            let body = icmp4(rng, a);
            plain("ICMP", h.around(&[], &body))
        }
        5 | 24.. => {
            h.proto = *rng.pick(&[4, 41]);
            let proto = *rng.pick(&[17, proto, 47]);
            let body = transport(rng, proto, sport, dport);
            let inner = match h.proto {
                4 => Header4 {
                    src: dst,
                    dst: src,
                    proto,
                    ..h
                }
                .around(&[], &body),
                _ => ipv6(*rng.pick(&a.v6[0]), *rng.pick(&a.v6[1]), 17, 9, 0, &body),
            };
            plain("tunnel", h.around(&[], &inner))
        }
        6 => plain("options", h.around(&[1, 1, 1, 0], &body)),
        7 => {
            h.ttl = rng.below(3) as u8;
            plain("low TTL", h.around(&[], &body))
        }
        8 => {
            h.src = *rng.pick(&MARTIANS4);
            plain("odd source", h.around(&[], &body))
        }
        9 => {
            h.dst = *rng.pick(&ODD_DESTINATIONS4);
            plain("odd destination", h.around(&[], &body))
        }
        10 => {
            let mut packet = h.around(&[], &body);
            match rng.below(5) {
                0 => packet[10] ^= 0x55,
                1 => packet[0] = 0x44,
                2 => packet[0] = 0x55,
                3 => packet[3] = packet[3].wrapping_add(77),
                _ => packet[2..4].copy_from_slice(&(rng.below(20) as u16).to_be_bytes()),
            }
            if packet[10] == 0 || !rng.once_in(2) {
                // Otherwise the checksum would be the reason.
                seal(&mut packet[..20]);
            }
            plain("bad header", packet)
        }
        11 => {
            let mut packet = h.around(&[], &body[..rng.below(body.len())]);
            packet.extend(rng.bytes(30));
            plain("trailing bytes", packet)
        }
        12 => {
            // Checksums at the edges of ones' complement arithmetic.
            let mut packet = h.around(&[], &body);
            for id in 0..=u16::MAX {
                packet[4..6].copy_from_slice(&id.to_be_bytes());
                seal(&mut packet[..20]);
                if packet[10] >= 0xfe || packet[10..12] == [0, 0] {
                    break;
                }
            }
            plain("checksum edge", packet)
        }
        13 => {
            let mut frame = plain("other MAC", h.around(&[], &body));
            let other = rng.bytes(6);
            frame.bytes[..6].copy_from_slice(&other);
            frame
        }
        _ => {
            if rng.once_in(3) {
                h.fragment = 0x4000;
            }
            let flow = Flow {
                src: src.into(),
                dst: dst.into(),
                proto,
                sport,
                dport,
            };
            Crafted {
                flow: matches!(proto, 6 | 17).then_some(flow),
                ..plain("transport", h.around(&[], &body))
            }
        }
    }
}

const MARTIANS4: [Ipv4Addr; 9] = [
    Ipv4Addr::new(0, 0, 0, 0),
    Ipv4Addr::new(0, 1, 2, 3),
    Ipv4Addr::new(127, 0, 0, 1),
    Ipv4Addr::new(224, 0, 0, 9),
    Ipv4Addr::new(240, 1, 2, 3),
    Ipv4Addr::new(255, 255, 255, 255),
    Ipv4Addr::new(10, 1, 1, 1), // the router's own
    Ipv4Addr::new(10, 2, 1, 1), // the router's own, on another link
    Ipv4Addr::new(10, 1, 1, 255),
];
const ODD_DESTINATIONS4: [Ipv4Addr; 8] = [
    Ipv4Addr::new(0, 0, 0, 0),
    Ipv4Addr::new(0, 1, 2, 3),
    Ipv4Addr::new(127, 0, 0, 2),
    Ipv4Addr::new(224, 0, 0, 251),
    Ipv4Addr::new(240, 1, 2, 3),
    Ipv4Addr::new(255, 255, 255, 255),
    Ipv4Addr::new(10, 2, 1, 255), // directed broadcast
    Ipv4Addr::new(10, 1, 1, 9),   // back where it came from
];

/// An ICMP message: errors with an inner packet of any length, and others.
fn icmp4(rng: &mut Random, a: &Addresses) -> Vec<u8> {
    let inner = Header4 {
        src: *rng.pick(&a.v4[1]),
        dst: *rng.pick(&a.v4[0]),
        proto: 17,
        ttl: 3,
        id: rng.bits() as u16,
        fragment: 0,
    };
    let kind = *rng.pick(&[0, 3, 3, 4, 5, 8, 11, 11, 12, 13, 42]);
    let payload = rng.bytes(8);
    let mut inner = inner.around(&[], &payload);
    inner.truncate(match rng.below(4) {
        0 => 19,
        1 => 20,
        _ => 28,
    });
    let mut body = vec![kind, rng.below(4) as u8];
    body.extend(rng.bytes(6));
    body.extend(inner);
    body
}

fn random6(rng: &mut Random, a: &Addresses) -> Crafted {
    let [mut src, mut dst] = [*rng.pick(&a.v6[0]), *rng.pick(&a.v6[1])];
    let (sport, dport) = (rng.bits() as u16, rng.bits() as u16);
    let mut next = *rng.pick(&PROTOCOLS);
    let mut hops = 2 + rng.below(254) as u8;
    let mut label = match rng.below(3) {
        0 => rng.bits() as u32 & 0xf_ffff,
        _ => 0,
    };
    let mut body = transport(rng, next, sport, dport);
    let mut flow = None;
    let mut mac = a.macs[0];
    let mut spoil = None;
    let kind = match rng.below(24 + 2 * usize::from(a.tunnels)) {
        0..=2 => {
            next = 58;
            body = icmp6(rng, a);
            "ICMPv6"
        }
        3..=6 => {
            let count = 1 + rng.below(3);
            for _ in 0..count {
                next = extend(rng, next, &mut body);
            }
            "extension headers"
        }
        7 => {
            body = [vec![next, 0, 1, 4, 0, 0, 0, 0], body].concat();
            next = 0;
            "hop-by-hop options"
        }
        8 => {
            hops = rng.below(3) as u8;
            "low hop limit"
        }
        9 => {
            src = rng.pick(&ODD6).parse().unwrap();
            "odd source"
        }
        10 => {
            dst = rng.pick(&ODD6).parse().unwrap();
            "odd destination"
        }
        11 => {
            spoil = Some(rng.below(4));
            "bad header"
        }
        12 => {
            mac = [0x33, 0x33, 0, 0, 0, 1];
            "other MAC"
        }
        13 | 24.. => {
            let inner = *rng.pick(&[17, next, 47]);
            let body6 = transport(rng, inner, sport, dport);
            next = *rng.pick(&[4, 41]);
            body = match next {
                4 => ip(
                    (*rng.pick(&a.v4[0])).into(),
                    (*rng.pick(&a.v4[1])).into(),
                    17,
                    3,
                    &body,
                ),
                _ => ipv6(dst, src, inner, 3, rng.bits() as u32 & 0xf_ffff, &body6),
            };
            "tunnel"
        }
        14 => {
            label |= 0x0ff0_0000; // a traffic class, too
            "traffic class"
        }
        _ => {
            let tuple = Flow {
                src: src.into(),
                dst: dst.into(),
                proto: next,
                sport,
                dport,
            };
            flow = (label == 0 && matches!(next, 6 | 17)).then_some(tuple);
            "transport"
        }
    };
    let mut packet = ipv6(src, dst, next, hops, label, &body);
    match spoil {
        Some(0) => packet[0] ^= 0x10,
        Some(1) => packet[4] = 0x20,
        Some(2) => packet.extend(rng.bytes(40)),
        Some(_) => {
            packet.truncate(40);
            packet[4..6].fill(0);
        }
        None => {}
    }
    let mut bytes = [&mac, &a.macs[1], &[0x86, 0xdd][..], &packet].concat();
    if spoil.is_some() && bytes.len() < 60 {
        bytes.resize(60, 0);
    }
    Crafted { bytes, kind, flow }
}

const ODD6: [&str; 12] = [
    "::",
    "::1",
    "::2",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "::ffff:1.2.3.4",
    "64:ff9b::1.2.3.4",
    "2001:db8:1:1::1", // the router's own
    "2001:db8:1:1::9", // on the link that it comes from
];

/// Puts an extension header before `body` and says its number.
fn extend(rng: &mut Random, next: u8, body: &mut Vec<u8>) -> u8 {
    let (number, header) = match rng.below(4) {
        0 => (60, vec![next, 0, 1, 4, 0, 0, 0, 0]),
        // A routing header of an unknown type with nothing left to visit.
        1 => (
            43,
            vec![next, 1, 253, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
        ),
        2 => (
            44,
            vec![next, 0, 0, *rng.pick(&[0, 1]), 1, 2, 3, rng.bits() as u8],
        ),
        _ => (
            44,
            vec![next, 0, rng.bits() as u8, 8, 1, 2, 3, rng.bits() as u8],
        ),
    };
    *body = [header, std::mem::take(body)].concat();
    number
}

fn icmp6(rng: &mut Random, a: &Addresses) -> Vec<u8> {
    let payload = rng.bytes(8);
    let label = rng.bits() as u32 & (0xf_ffff * rng.below(2) as u32);
    let (src, dst) = (*rng.pick(&a.v6[1]), *rng.pick(&a.v6[0]));
    let mut inner = ipv6(src, dst, 17, 3, label, &payload);
    inner.truncate(match rng.below(4) {
        0 => 39,
        1 => 40,
        _ => 48,
    });
    let mut body = vec![*rng.pick(&[1, 2, 3, 4, 5, 100, 127, 128, 129, 255]), 0];
    body.extend(rng.bytes(6));
    body.extend(inner);
    body
}
