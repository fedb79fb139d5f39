//! Packets in tunnels over IPv4 from and to the router.

use std::net::Ipv4Addr;

use raddle_packet::checksum;

use crate::compared::Burst;
use crate::frame::{ip_end, ip_start, seal};
use crate::tags::blank;
use crate::{Arrival, Random, World};

/// The router's end of all tunnels, an address of its loopback link.
pub const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The UDP port of VXLANs.
pub const VXLAN_PORT: u16 = 4789;
/// The ports that VXLANs of these tests send from.
pub const SPORTS: (u16, u16) = (20_000, 30_000);
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
const VXLAN: usize = 8;

/// The other end number `n` of tunnels: from 128 on they are reached by two links.
pub const fn remote(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, n)
}

/// Gives the router its end of tunnels, and ways to the others.
pub fn underlay(world: &World) {
    let [one, two] = [1, 2].map(|n| world.gateway(n).0);
    world.batch(&[
        format!("addr add {LOCAL}/32 dev lo"),
        format!("route add {}/25 via {one}", remote(0)),
        format!(
            "route add {}/25 nexthop via {one} nexthop via {two}",
            remote(128)
        ),
    ]);
}

/// Makes a tunnel of the router; `words` are `ip link add`'s behind `type`. Says whether the kernel has such.
pub fn tunnel(world: &World, name: &str, mtu: usize, words: &str) -> bool {
    let line = format!("ip link add {name} mtu {mtu} type {words}");
    let line: Vec<&str> = line.split_whitespace().collect();
    if !world
        .lab()
        .output("router", &line)
        .unwrap()
        .status
        .success()
    {
        return false;
    }
    world.ip(&format!("link set {name} up"));
    true
}

/// Which headers a packet is in, behind that of IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// None.
    Ip,
    /// GRE's, with a key or without.
    Gre(Option<u32>),
    /// UDP's and VXLAN's with this VNI.
    Vxlan(u32),
}

/// What is put in front of a packet.
#[derive(Clone, Debug)]
pub struct Outer {
    /// Headers behind that of IPv4.
    pub kind: Kind,
    /// The other end.
    pub src: Ipv4Addr,
    /// The router.
    pub dst: Ipv4Addr,
    /// With the bits for congestion.
    pub tos: u8,
    /// TTL.
    pub ttl: u8,
    /// Flags and offset as they stand in the header.
    pub fragment: u16,
    /// UDP source port.
    pub sport: u16,
    /// UDP checksum; 0 for none.
    pub checksum: Checksum,
}

/// What a UDP checksum is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// 0.
    None,
    /// That of the packet.
    Right,
    /// Another one.
    Wrong,
}

/// A field of an outer header that is other than usual, with what that is called and whether raddle takes it nevertheless.
type Other = (&'static str, bool, fn(&mut Outer));

/// Those.
const OTHERS: [Other; 17] = [
    ("another remote", false, |o| o.src = remote(99)),
    ("to another address", false, |o| {
        o.dst = Ipv4Addr::new(10, 1, 1, 1)
    }),
    ("no source", false, |o| o.src = Ipv4Addr::UNSPECIFIED),
    ("congestion outside", false, |o| o.tos |= 3),
    ("ECT(0) outside", true, |o| o.tos = 2),
    // It becomes that inside where that was ECT(0).
    ("ECT(1) outside", false, |o| o.tos = 0xb9),
    ("TTL 1", true, |o| o.ttl = 1),
    ("a first fragment", false, |o| o.fragment = 0x2000),
    ("a later fragment", false, |o| o.fragment = 100),
    ("not to be fragmented", true, |o| o.fragment = 0x4000),
    ("as if evil", false, |o| o.fragment = 0x8000),
    ("another key or VNI", false, |o| {
        o.kind = match o.kind {
            Kind::Gre(Some(key)) => Kind::Gre(Some(key + 1)),
            Kind::Gre(None) => Kind::Gre(Some(0)),
            Kind::Vxlan(vni) => Kind::Vxlan(vni + 1),
            Kind::Ip => Kind::Gre(None),
        }
    }),
    ("no key", false, |o| {
        if let Kind::Gre(Some(_)) = o.kind {
            o.kind = Kind::Gre(None);
        } else {
            o.src = remote(98);
        }
    }),
    ("a right UDP checksum", true, |o| {
        o.checksum = Checksum::Right
    }),
    ("no UDP checksum", true, |o| o.checksum = Checksum::None),
    ("a wrong UDP checksum", false, |o| {
        o.checksum = Checksum::Wrong;
    }),
    ("a source port of 0", true, |o| o.sport = 0),
];

/// Something that is done to an outer packet, whose header is sealed again then.
type Spoil = (&'static str, fn(&mut Random, &mut Vec<u8>));

const SPOILS: [Spoil; 9] = [
    ("another version", |_, packet| packet[0] = 0x55),
    ("cut short", |rng, packet| {
        let to = IPV4 + rng.below(packet.len() - IPV4);
        packet.truncate(to);
        let length = (to as u16).to_be_bytes();
        packet[2..4].copy_from_slice(&length);
    }),
    ("cut short without a word", |rng, packet| {
        let to = IPV4 + rng.below(packet.len() - IPV4);
        packet.truncate(to);
    }),
    ("bytes behind", |rng, packet| packet.extend(rng.bytes(21))),
    ("any byte behind the header", |rng, packet| {
        let at = IPV4 + rng.below(16.min(packet.len() - IPV4));
        packet[at] ^= 1 << rng.below(8);
    }),
    ("a checksum of GRE", |_, packet| {
        if packet[9] == 47 {
            packet[20] |= 0x80;
            packet.splice(24..24, [0; 4]);
            let sum = checksum::checksum(&packet[20..]).to_be_bytes();
            packet[24..26].copy_from_slice(&sum);
            lengthen(packet);
        } else {
            packet[8] = 0;
        }
    }),
    ("a number of GRE", |rng, packet| {
        if packet[9] == 47 {
            packet[20] |= 0x10;
            let at = if packet[20] & 0x20 == 0 { 24 } else { 28 };
            packet.splice(at..at, rng.bytes(4));
            lengthen(packet);
        } else {
            packet[9] = 4;
        }
    }),
    ("options outside", |_, packet| {
        packet.splice(20..20, [1, 1, 1, 0]);
        packet[0] = 0x46;
        lengthen(packet);
    }),
    ("a wrong header checksum", |_, packet| packet[10] ^= 0x55),
];

fn lengthen(packet: &mut [u8]) {
    let length = (packet.len() as u16).to_be_bytes();
    packet[2..4].copy_from_slice(&length);
}

impl Outer {
    /// As the other end sends them.
    pub fn new(kind: Kind, src: Ipv4Addr) -> Outer {
        Outer {
            kind,
            src,
            dst: LOCAL,
            tos: 0,
            ttl: 64,
            fragment: 0,
            sport: 50_000,
            checksum: Checksum::None,
        }
    }

    /// The packet with a frame in it, or with the packet of the frame.
    pub fn around(&self, frame: &[u8]) -> Vec<u8> {
        let (kind, inner) = (&frame[12..ETHERNET], &frame[ETHERNET..]);
        let (proto, body) = match self.kind {
            Kind::Ip if kind == [0x86, 0xdd] => (41, inner.to_vec()),
            Kind::Ip => (4, inner.to_vec()),
            Kind::Gre(None) => (47, [&[0, 0], kind, inner].concat()),
            Kind::Gre(Some(key)) => (47, [&[0x20, 0], kind, &key.to_be_bytes(), inner].concat()),
            Kind::Vxlan(vni) => {
                let length = (UDP + VXLAN + frame.len()) as u16;
                let numbers = [self.sport, VXLAN_PORT, length, 0].map(u16::to_be_bytes);
                let vxlan = [8 << 24, vni << 8].map(u32::to_be_bytes);
                (17, [&numbers.concat(), &vxlan.concat(), frame].concat())
            }
        };
        let mut packet = vec![0x45, self.tos];
        packet.extend(((IPV4 + body.len()) as u16).to_be_bytes());
        packet.extend([0x12, 0x34]);
        packet.extend(self.fragment.to_be_bytes());
        packet.extend([self.ttl, proto, 0, 0]);
        packet.extend(self.src.octets());
        packet.extend(self.dst.octets());
        seal(&mut packet);
        packet.extend(body);
        if proto == 17 && self.checksum != Checksum::None {
            let sum = match !udp_sum(&packet) {
                0 => 0xffff,
                sum => sum,
            };
            let sum = match self.checksum {
                Checksum::Wrong => sum ^ 0x0100,
                _ => sum,
            };
            packet[26..28].copy_from_slice(&sum.to_be_bytes());
        }
        packet
    }
}

/// Ones' complement sum of a UDP packet in IPv4 without options, with its pseudo header.
fn udp_sum(packet: &[u8]) -> u16 {
    let length = (packet.len() - IPV4) as u16;
    let start = checksum::sum(&packet[12..IPV4], 17);
    let start = checksum::sum(&length.to_be_bytes(), start);
    checksum::sum(&packet[IPV4..], start)
}

/// The frames of a burst in tunnels to the router, whose MAC address and the sender's are `macs`; most are right.
pub fn wrap(rng: &mut Random, burst: &Burst, outer: &Outer, macs: [[u8; 6]; 2]) -> Burst {
    let mut wrapped = Burst::by(burst.by);
    for (frame, engine) in burst.frames.iter().zip(&burst.engine) {
        let mut outer = outer.clone();
        let (mut kind, mut takes) = (frame.kind, true);
        if rng.once_in(3) {
            let change;
            (kind, takes, change) = *rng.pick(&OTHERS);
            change(&mut outer);
        }
        let mut packet = outer.around(&frame.bytes);
        if rng.once_in(12) {
            let spoil;
            (kind, spoil) = *rng.pick(&SPOILS);
            takes = false;
            spoil(rng, &mut packet);
            if kind != "a wrong header checksum" && kind != "another version" {
                let header = usize::from(packet[0] & 15) * 4;
                seal(&mut packet[..header]);
            }
        }
        let bytes = [&macs[0], &macs[1], &[8, 0][..], &packet].concat();
        wrapped.add(kind, bytes, *engine && takes);
    }
    wrapped
}

/// What is in tunnels from or to the router, as a frame; the frame itself where it is in none.
pub fn innermost(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    while let Some(inner) = inside(&frame) {
        frame = inner;
    }
    frame
}

/// To which other end, see [`remote`], a frame leaves the router in a tunnel; none where it is in none.
pub(crate) fn far_end(frame: &[u8]) -> Option<u8> {
    inside(frame)?;
    let start = ip_start(frame);
    let dst = frame.get(start + 16..start + 20)?;
    (dst[..3] == remote(0).octets()[..3]).then_some(dst[3])
}

fn inside(frame: &[u8]) -> Option<Vec<u8>> {
    let start = ip_start(frame);
    if frame.get(start - 2..start)? != [8, 0] {
        return None;
    }
    let packet = frame.get(start..ip_end(frame))?;
    let ends = [packet.get(12..16)?, packet.get(16..20)?];
    if !ends.contains(&LOCAL.octets().as_slice()) || packet[6] & 0x3f != 0 || packet[7] != 0 {
        return None;
    }
    let body = packet.get(usize::from(packet[0] & 15) * 4..)?;
    let framed = |kind: &[u8], packet: &[u8]| [&[0; 12], kind, packet].concat();
    match packet[9] {
        4 => Some(framed(&[8, 0], body)),
        41 => Some(framed(&[0x86, 0xdd], body)),
        47 => {
            let flags = body.first()?;
            // Checksum, key and number have four bytes each.
            let there = [0x80, 0x20, 0x10].iter().filter(|bit| flags & **bit != 0);
            let at = 4 + 4 * there.count();
            Some(framed(body.get(2..4)?, body.get(at..)?))
        }
        17 if body.get(2..4)? == VXLAN_PORT.to_be_bytes() => {
            let frame = body.get(UDP + VXLAN..)?;
            (frame.len() > ETHERNET).then(|| frame.to_vec())
        }
        _ => None,
    }
}

/// What came out, without what nobody can foretell of outer headers, where it is right: identification, source port, GRE's number, the
/// checksums over these, and the link of what may leave by any of two. Of what the router says itself, likewise inside.
pub fn smooth(arrival: &Arrival, is_own: bool) -> Arrival {
    let Arrival {
        mut link,
        mut frame,
    } = arrival.clone();
    if !is_ours(&frame) {
        return Arrival { link, frame };
    }
    let start = ip_start(&frame);
    let dst = &frame[start + 16..start + 20];
    if dst[..3] == remote(0).octets()[..3] && dst[3] >= 128 {
        link = "any".into();
        frame[..12].fill(0);
    }
    let inner = innermost(&frame);
    let at = frame.len() - inner.len().saturating_sub(ETHERNET).min(frame.len());
    let packet = &mut frame[start..];
    let is_whole = packet[6] & 0x3f == 0 && packet[7] == 0;
    if packet[9] == 17 && is_whole && packet.len() >= IPV4 + UDP {
        let sport = u16::from_be_bytes([packet[20], packet[21]]);
        if packet[26..28] != [0, 0] && udp_sum(packet) == 0xffff {
            packet[26..28].fill(0xff);
        }
        if (SPORTS.0..=SPORTS.1).contains(&sport) {
            packet[20..22].fill(0);
        }
    }
    // GRE counts on from one time to the next.
    if let (47, true, Some(flags)) = (packet[9], is_whole, packet.get(IPV4))
        && flags & 0x10 != 0
    {
        let before = [0x80, 0x20].iter().filter(|bit| *flags & **bit != 0);
        let at = IPV4 + 4 + 4 * before.count();
        if let Some(number) = packet.get_mut(at..at + 4) {
            number.fill(0);
        }
    }
    if checksum::is_valid(&packet[..IPV4]) {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    if is_own && is_whole {
        let mut packet = [&inner[..ETHERNET], &frame[at..]].concat();
        blank(&mut packet);
        frame.truncate(at);
        frame.extend(&packet[ETHERNET..]);
    }
    Arrival { link, frame }
}

/// Whether a frame is of a tunnel, from the router.
fn is_ours(frame: &[u8]) -> bool {
    let start = ip_start(frame);
    let Some(header) = frame.get(start..start + IPV4) else {
        return false;
    };
    frame[start - 2..start] == [8, 0]
        && header[12..16] == LOCAL.octets()
        && [4, 17, 41, 47].contains(&header[9])
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: [u8; 42] = {
        let mut frame = [0; 42];
        (frame[12], frame[14], frame[17], frame[23], frame[41]) = (8, 0x45, 28, 17, 9);
        frame
    };

    #[test]
    fn what_is_put_in_is_found_inside() {
        let kinds = [
            Kind::Ip,
            Kind::Gre(None),
            Kind::Gre(Some(7)),
            Kind::Vxlan(0xab_cdef),
        ];
        for kind in kinds {
            let outer = Outer {
                checksum: Checksum::Right,
                ..Outer::new(kind, remote(1))
            };
            let frame = [&FRAME[..ETHERNET], &outer.around(&FRAME)].concat();
            assert!(checksum::is_valid(&frame[14..34]), "{kind:?}");
            assert_eq!(innermost(&frame), FRAME, "{kind:?}");
        }
        assert_eq!(innermost(&FRAME), FRAME);
    }

    /// What is the router's choice makes no difference, and what is wrong does.
    #[test]
    fn what_is_drawn_is_smoothed() {
        let out = |id: u8, sport: u16, spoil: bool| {
            let outer = Outer {
                dst: remote(200),
                checksum: Checksum::Right,
                sport,
                ..Outer::new(Kind::Vxlan(5), LOCAL)
            };
            let mut packet = outer.around(&FRAME);
            packet[4] = id;
            seal(&mut packet[..IPV4]);
            packet[60] ^= u8::from(spoil);
            let frame = [&FRAME[..ETHERNET], &packet].concat();
            let link = format!("sink-{id}");
            smooth(&Arrival { link, frame }, false)
        };
        assert_eq!(out(1, SPORTS.0, false), out(2, SPORTS.1, false));
        assert_ne!(out(1, SPORTS.0, false), out(1, SPORTS.1 + 1, false));
        assert_ne!(out(1, SPORTS.0, false), out(1, SPORTS.0, true));
    }
}
