//! Frames for what a sound packet may meet: each is sound but for what it is about.

use std::net::IpAddr;

use crate::frames::{MAC, ipv4_packet};
use crate::state::address;
use raddle_xdp_testing::draw::Draw;

const LENGTHS: [usize; 9] = [28, 28, 60, 576, 577, 600, 1280, 1400, 1501];

/// A frame with a UDP packet that may be long, and may have one or two things about it.
pub(crate) fn frame(draw: &mut Draw) -> Vec<u8> {
    match draw.below(20) {
        0 => return tipc(draw),
        1 => return long_frame(draw),
        _ => {}
    }
    let v6 = draw.once_in(2);
    let mut src = address(v6, draw.byte());
    let mut dst = address(v6, draw.byte());
    if draw.once_in(5) {
        src = odd_address(draw, v6);
    }
    if draw.once_in(5) {
        dst = odd_address(draw, v6);
    }
    let ttl = draw.of(&[64, 64, 64, 64, 255, 2, 1, 0]);
    let length = draw.of(&LENGTHS);
    let mut packet = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let words = if draw.once_in(10) { 6 } else { 5 };
            let length = length.max(4 * words + 8);
            let mut header = vec![0x40 | words as u8, 0];
            header.extend((length as u16).to_be_bytes());
            let fragment = draw.of(&[[0x40, 0], [0, 0], [0, 0], [0x20, 0], [0, 9]]);
            header.extend([0, 1]);
            header.extend(fragment);
            header.extend([ttl, draw.of(&[17, 17, 17, 6, 1, 2]), 0, 0]);
            header.extend(src.octets());
            header.extend(dst.octets());
            if words == 6 {
                header.extend(draw.of(&[
                    [1, 1, 1, 0],
                    [0, 0, 0, 0],
                    [7, 3, 4, 0],
                    [0x83, 3, 4, 0],
                    [0x94, 4, 0, 0],
                    [0x44, 2, 0, 0],
                    [9, 0, 0, 0],
                ]));
            }
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            if draw.once_in(24) {
                header[10] ^= 0x55;
            }
            header.resize(length, 0);
            header
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let length = length.max(56);
            let mut header = vec![0x60, 0, 0, 0];
            header.extend((length as u16 - 40).to_be_bytes());
            let next = draw.of(&[17, 17, 17, 6, 58, 0]);
            header.extend([next, ttl]);
            header.extend(src.octets());
            header.extend(dst.octets());
            if next == 0 {
                header.extend(draw.of(&[
                    [17, 0, 1, 4, 0, 0, 0, 0],
                    [17, 0, 5, 2, 0, 0, 1, 0],
                    [17, 0, 0x5e, 4, 0, 0, 0, 0],
                    [17, 0, 0x9e, 4, 0, 0, 0, 0],
                    [17, 9, 1, 4, 0, 0, 0, 0],
                ]));
            }
            header.resize(length, 0);
            header
        }
        _ => unreachable!("both are of one family"),
    };
    // A header that lies about its version or its length.
    match draw.below(40) {
        0 => packet[0] = packet[0] & 0xf | draw.of(&[0x50, 0x40, 0x60]),
        1 => packet[0] = packet[0] & 0xf0 | draw.of(&[4, 5, 15]),
        2 => packet[2] ^= 1,
        3 => packet[3] = draw.byte(),
        4 => packet[5] ^= draw.of(&[1, 0x80]),
        _ => {}
    }
    let mut frame = [&MAC[..], &[6, 0, 0, 0, 0, 9]].concat();
    match draw.below(30) {
        0 => frame[5] = 0x77,
        1 => frame[..6].copy_from_slice(&[0xff; 6]),
        2 => frame[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 9]),
        _ => {}
    }
    match draw.below(40) {
        0 => frame.extend([0x81, 0, 0, draw.of(&[0, 5])]),
        1 => frame.extend([0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]),
        _ => {}
    }
    let kind: u16 = match (draw.below(40), v6) {
        (0, _) => 0x0806,
        (1, false) | (2.., true) => 0x86dd,
        _ => 0x0800,
    };
    frame.extend(kind.to_be_bytes());
    frame.extend(packet);
    match draw.below(24) {
        0 => frame.truncate(draw.below(frame.len() + 1)),
        1 => frame.truncate(14 + draw.below(44)),
        2 => frame.extend([0; 20]),
        _ => {}
    }
    frame
}

/// TIPC in GRE, which has no addresses for a hash of what is inside.
fn tipc(draw: &mut Draw) -> Vec<u8> {
    let body = [&[0, 0, 0x88, 0xca][..], &[0; 24]].concat();
    let packet = ipv4_packet(draw.byte(), draw.byte(), 47, 64, 0, &body);
    [&MAC[..], &[6, 0, 0, 0, 0, 9, 8, 0], &packet].concat()
}

/// A frame in a packet to a SID: longer than some links take.
fn long_frame(draw: &mut Draw) -> Vec<u8> {
    let inside = [&[2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 8, 8, 0][..], &[0; 1400]].concat();
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((inside.len() as u16).to_be_bytes());
    packet.extend([143, 64]);
    packet.extend([0x20, 1, 0xd, 0xb8, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend([
        0x20,
        1,
        0xd,
        0xb8,
        0,
        5,
        0,
        draw.byte() % 8,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        1,
    ]);
    packet.extend(inside);
    [&MAC[..], &[6, 0, 0, 0, 0, 9, 0x86, 0xdd], &packet].concat()
}

fn odd_address(draw: &mut Draw, v6: bool) -> IpAddr {
    let text: &[&str] = match v6 {
        true => &[
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "ff02::1",
            "ff01::1",
            "ff15::9",
            "fe80::1",
            "fe80::7",
            "fd00::7",
            "2001:db8::9",
            "::2",
        ],
        false => &[
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "224.0.0.5",
            "239.1.2.3",
            "255.255.255.255",
            "240.0.0.1",
            "10.0.0.7",
            "10.9.9.9",
        ],
    };
    draw.of(text).parse().unwrap()
}

fn checksum(header: &[u8]) -> u16 {
    let words = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}
