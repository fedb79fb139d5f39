//! Frames that meet tunnels.

use raddle_xdp_testing::draw::Draw;
use raddle_xdp_testing::frames::{FROM_MAC, IN_MAC, checksum};

/// An address of this machine, at which tunnels end; tunnels have it as their source.
pub(crate) const HERE: [u8; 4] = [203, 0, 113, 1];
/// MAC address of what comes in by VXLAN.
pub(crate) const INSIDE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x20];
/// That of the other side, and one of those that a bridge may have learnt.
pub(crate) const THERE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x21];
/// That of the tunnels' links besides.
pub(crate) const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x22];
/// VXLAN's ports and VNIs, and keys of GRE.
pub(crate) const PORTS: [u16; 2] = [4789, 8472];
pub(crate) const VNIS: [u32; 2] = [100, 0xff_fffe];
pub(crate) const KEYS: [u32; 2] = [0, 0x8000_0007];

/// What a frame is meant to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    /// A packet to somewhere, perhaps by a tunnel.
    Plain,
    /// One that comes in by a tunnel of this kind.
    Ip,
    Gre,
    Vxlan,
    /// The same in a packet to a SID.
    Behind,
}

impl Shape {
    pub(crate) const ALL: [Shape; 4] = [Shape::Plain, Shape::Ip, Shape::Gre, Shape::Vxlan];
}

/// The other end of a tunnel.
pub(crate) fn remote(n: usize) -> [u8; 4] {
    [203, 0, 114, n as u8]
}

fn address4(draw: &mut Draw) -> [u8; 4] {
    let last = draw.byte();
    match draw.below(24) {
        0..5 => [192, 0, 2, last],
        5..9 => [198, 51, 100, last],
        9..18 => [10, 6, draw.below(6) as u8, last],
        18 => [10, 9, 9, 9],
        19 => [10, 4, 0, last],
        20 => [10, 7, 0, last],
        21 => HERE,
        22 => [10, 8, 0, last],
        _ => draw.of(&[[224, 0, 0, 1], [255; 4], [127, 0, 0, 1], [1, 2, 3, 4]]),
    }
}

fn address6(draw: &mut Draw) -> [u8; 16] {
    let mut address = [0; 16];
    address[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    address[15] = draw.byte();
    match draw.below(20) {
        0..4 => address[5] = 1,
        4..8 => address[5] = 2,
        8..16 => {
            address[5] = 6;
            address[7] = draw.below(6) as u8;
        }
        16 => address[5] = 4,
        17 => address[15] = 9,
        18 => address[5] = 5,
        _ => address[0] = draw.of(&[0xff, 0x30]),
    }
    address
}

/// GRE and other things inside of what is forwarded, which only hashes look into.
fn payload(draw: &mut Draw, depth: usize) -> (u8, Vec<u8>) {
    let len = draw.of(&[0, 3, 4, 8, 20, 41, 64, 300, 1100]);
    let bytes = draw.bytes(len);
    let plain = draw.of(&[17, 17, 6, 6, 58, 1, 132, 50, 51, 59]);
    if depth == 0 {
        return (plain, bytes);
    }
    match draw.below(10) {
        0 => (4, packet4(draw, depth - 1)),
        1 => (41, packet6(draw, depth - 1)),
        2 | 3 => {
            let flags = draw.of(&[
                [0, 0],
                [0x20, 0],
                [0xb0, 0],
                [0x20, 1],
                [0x30, 0x81],
                [0x40, 0],
            ]);
            let (kind, inner) = match draw.below(5) {
                0 => ([0x86, 0xdd], packet6(draw, depth - 1)),
                1 => (
                    [0x88, 0x0b],
                    [&[0, 0, 0, 0x21][..], &packet4(draw, depth - 1)].concat(),
                ),
                2 => ([0x65, 0x58], frame_of(draw, depth - 1)),
                _ => ([8, 0], packet4(draw, depth - 1)),
            };
            let words = usize::from(flags[0] >> 7)
                + usize::from(flags[0] >> 5 & 1)
                + usize::from(flags[0] >> 4 & 1)
                + usize::from(flags[1] >> 7);
            let more = draw.bytes(4 * words);
            (47, [&flags[..], &kind, &more, &inner].concat())
        }
        _ => (plain, bytes),
    }
}

fn packet4(draw: &mut Draw, depth: usize) -> Vec<u8> {
    let (proto, payload) = payload(draw, depth);
    let fragment = draw.of(&[[0, 0], [0, 0], [0x40, 0], [0x40, 0], [0x20, 0], [0, 9]]);
    let ttl = draw.of(&[64, 64, 64, 64, 64, 64, 2, 1, 0]);
    let dst = address4(draw);
    let src = match draw.below(30) {
        0 => [127, 0, 0, 1],
        1..10 => [192, 0, 2, draw.byte()],
        _ => [10, 0, 0, draw.byte()],
    };
    ipv4(draw, (src, dst), ttl, fragment, proto, &payload)
}

fn ipv4(
    draw: &mut Draw,
    (src, dst): ([u8; 4], [u8; 4]),
    ttl: u8,
    fragment: [u8; 2],
    proto: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut packet = vec![0x45, draw.of(&[0, 0, 0xb8, 1, 2, 3, 0x2f])];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend([1, 2, fragment[0], fragment[1], ttl, proto, 0, 0]);
    packet.extend(src);
    packet.extend(dst);
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

fn packet6(draw: &mut Draw, depth: usize) -> Vec<u8> {
    let (mut next, mut payload) = payload(draw, depth);
    if draw.once_in(6) {
        let kind = draw.of(&[60, 43, 44, 51, 0]);
        let mut header = match kind {
            44 => vec![next, 0, 0, draw.of(&[0, 1, 8]), 0, 0, 0, 1],
            _ => vec![next, 0, 1, 4, 0, 0, 0, 0],
        };
        header.extend(payload);
        (next, payload) = (kind, header);
    }
    let label = draw.of(&[0, 0, 0x1_2345_u32]);
    let class = draw.of(&[0u32, 0, 0xb8, 1, 2, 3, 0x2f]);
    let mut packet = (6 << 28 | class << 20 | label).to_be_bytes().to_vec();
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, draw.of(&[64, 64, 64, 64, 64, 64, 2, 1, 0])]);
    packet.extend([0x20, 1, 0xd, 0xb8, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    packet.push(draw.byte());
    packet.extend(address6(draw));
    packet.extend(payload);
    packet
}

/// A packet, and its EtherType.
fn packet(draw: &mut Draw, depth: usize) -> ([u8; 2], Vec<u8>) {
    match draw.below(2) {
        0 => ([8, 0], packet4(draw, depth)),
        _ => ([0x86, 0xdd], packet6(draw, depth)),
    }
}

/// A frame as VXLAN carries them, perhaps with tags.
fn frame_of(draw: &mut Draw, depth: usize) -> Vec<u8> {
    let to = match draw.below(12) {
        0 => THERE_MAC,
        1 => OWN_MAC,
        _ => INSIDE_MAC,
    };
    let from = match draw.below(24) {
        0 => OWN_MAC,
        1 => [2, 0, 0, 0, 0, 0x29],
        2 => [1; 6],
        3 => [0; 6],
        _ => THERE_MAC,
    };
    let mut frame = [to, from].concat();
    for _ in 0..draw.of(&[0, 0, 0, 0, 0, 1, 1, 2, 3]) {
        frame.extend(draw.of(&[
            [0x81, 0, 0, 5],
            [0x81, 0, 0x20, 5],
            [0x81, 0, 0xe0, 0],
            [0x88, 0xa8, 0, 5],
        ]));
    }
    let (kind, packet) = packet(draw, depth);
    frame.extend(if draw.once_in(16) { [8, 6] } else { kind });
    frame.extend(packet);
    if draw.once_in(20) {
        let len = 12 + draw.below(16);
        frame.truncate(len);
    }
    frame
}

/// The checksum of UDP over IPv4, the long way.
fn udp_checksum(packet: &[u8]) -> u16 {
    let length = packet.len() as u16 - 20;
    let mut bytes = packet[12..].to_vec();
    bytes.extend([0, 17]);
    bytes.extend(length.to_be_bytes());
    let odd = packet.len() % 2 == 1;
    if odd {
        // What is behind the bytes of the packet begins a word.
        bytes.insert(packet.len() - 12, 0);
    }
    let mut sum = 0u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    match !(sum as u16) {
        0 => 0xffff,
        sum => sum,
    }
}

/// A packet to an address where tunnels end.
fn from_tunnel(draw: &mut Draw, shape: Shape) -> Vec<u8> {
    let depth = draw.below(3);
    let (proto, payload) = match shape {
        Shape::Gre => {
            let (kind, mut inner) = packet(draw, depth);
            let flags = match draw.below(12) {
                0 => draw.of(&[[0x10, 0], [0, 1], [0x40, 0]]),
                1..6 => [0x20, 0],
                _ => [0, 0],
            };
            let key = draw.of(&KEYS).to_be_bytes();
            let key = if flags[0] == 0x20 { &key[..] } else { &[] };
            if draw.once_in(12) {
                inner.truncate(1);
            }
            (47, [&flags[..], &kind, key, &inner].concat())
        }
        Shape::Vxlan => {
            let inner = frame_of(draw, depth);
            let mut udp = vec![0x30, draw.byte()];
            udp.extend(draw.of(&PORTS).to_be_bytes());
            let longer = if draw.once_in(20) { 1 } else { 0 };
            udp.extend((16 + inner.len() as u16 + longer).to_be_bytes());
            udp.extend([0, 0]);
            udp.extend(match draw.below(20) {
                0 => draw.of(&[[0, 0, 0, 0], [0x88, 0, 0, 0], [8, 0, 0, 1]]),
                _ => [8, 0, 0, 0],
            });
            udp.extend((draw.of(&VNIS) << 8 | u32::from(draw.once_in(20))).to_be_bytes());
            udp.extend(inner);
            (17, udp)
        }
        _ => {
            let (kind, inner) = packet(draw, depth);
            (if kind == [8, 0] { 4 } else { 41 }, inner)
        }
    };
    let from = remote(if draw.once_in(20) { 3 } else { draw.below(3) });
    let ttl = draw.of(&[64, 64, 1]);
    let fragment = if draw.once_in(20) {
        [0x20, 0]
    } else {
        draw.of(&[[0, 0], [0x40, 0]])
    };
    let mut packet = ipv4(draw, (from, HERE), ttl, fragment, proto, &payload);
    // Congestion that was experienced is the kernel's.
    if packet[1] & 3 == 3 && !draw.once_in(5) {
        packet[1] &= !3;
        let sum = checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    if proto == 17 && draw.once_in(2) {
        let sum = udp_checksum(&packet).wrapping_add(u16::from(draw.once_in(10)));
        packet[26..28].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// A frame: sound, or with bytes changed, cut or padded.
pub(crate) fn frame(draw: &mut Draw) -> (Shape, Vec<u8>) {
    let mut frame = [&IN_MAC[..], &FROM_MAC].concat();
    if draw.once_in(8) {
        frame.extend([0x81, 0, 0, 5]);
    }
    let shape = draw.of(&[
        Shape::Plain,
        Shape::Plain,
        Shape::Ip,
        Shape::Gre,
        Shape::Vxlan,
        Shape::Vxlan,
    ]);
    let shape = if draw.once_in(16) {
        Shape::Behind
    } else {
        shape
    };
    let (kind, packet) = match shape {
        Shape::Plain => packet(draw, 2),
        Shape::Behind => {
            let inner = match draw.below(2) {
                0 => from_tunnel(draw, Shape::Ip),
                _ => packet4(draw, 1),
            };
            let mut packet = vec![0x60, 0, 0, 0];
            packet.extend((inner.len() as u16).to_be_bytes());
            packet.extend([
                4, 64, 0x20, 1, 0xd, 0xb8, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7,
            ]);
            packet.extend([0x20, 1, 0xd, 0xb8, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            packet.extend(inner);
            ([0x86, 0xdd], packet)
        }
        shape => ([8, 0], from_tunnel(draw, shape)),
    };
    frame.extend(kind);
    frame.extend(packet);
    if draw.once_in(6) {
        for _ in 0..1 + draw.below(2) {
            let at = 14 + draw.below(frame.len().min(120) - 14);
            let value = draw.byte();
            frame[at] = value;
        }
    }
    match draw.below(20) {
        0 => frame.truncate(14 + draw.below(frame.len() - 13)),
        1..4 => {
            let padding = 1 + draw.below(40);
            frame.extend(draw.bytes(padding));
        }
        _ => {}
    }
    (shape, frame)
}
