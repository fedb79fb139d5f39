//! Frames that meet segments, by a small generator of numbers.

use raddle_xdp_testing::draw::Draw;
use raddle_xdp_testing::frames::{FROM_MAC, IN_MAC, checksum};

/// An address that routes lead somewhere for: a SID, mostly, with or without an argument.
pub(crate) fn address6(draw: &mut Draw) -> [u8; 16] {
    let mut address = [0; 16];
    address[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    match draw.below(10) {
        0..5 => {
            address[5] = 5;
            address[7] = draw.below(8) as u8;
            if draw.once_in(2) {
                for at in [9, 11, 13] {
                    address[at] = draw.of(&[0, 1, 2, 5, 15]);
                }
            }
            address[15] = draw.of(&[0, 1, 2, 3, 7]);
        }
        5..7 => address[5] = 1,
        7 => address[5] = 2,
        8 => address[5] = draw.of(&[4, 9, 15, 15]),
        _ => address[15] = 9,
    }
    if address[5] != 5 {
        address[15] |= draw.of(&[1, 2, 3, 4]);
    }
    address
}

fn address4(draw: &mut Draw) -> [u8; 4] {
    match draw.below(6) {
        0 | 1 => [192, 0, 2, draw.byte()],
        2 => [198, 51, 100, draw.byte()],
        3 | 4 => [10, 5, draw.below(8) as u8, 1],
        _ => [10, 9, 9, 9],
    }
}

fn transport(draw: &mut Draw) -> (u8, Vec<u8>) {
    let len = draw.of(&[0, 4, 8, 20, 40]);
    (draw.of(&[17, 17, 6, 58, 1, 132, 59]), draw.bytes(len))
}

fn packet4(draw: &mut Draw, depth: usize) -> Vec<u8> {
    let (next, payload) = payload(draw, depth);
    let ttl = draw.of(&[64, 64, 64, 64, 2, 1, 0]);
    let mut packet = vec![0x45, draw.of(&[0, 0, 0xb8])];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend([1, 2, 0, 0, ttl, next, 0, 0, 10, 0, 0, draw.byte()]);
    packet.extend(address4(draw));
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

fn payload(draw: &mut Draw, depth: usize) -> (u8, Vec<u8>) {
    if depth == 0 {
        return transport(draw);
    }
    match draw.below(8) {
        0..2 => (4, packet4(draw, depth - 1)),
        2..5 => (41, packet6(draw, depth - 1)),
        5 => {
            let mut frame = vec![2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 8];
            match draw.below(4) {
                0 => frame.extend([0x81, 0, 0x20, draw.of(&[1, 2, 3]), 8, 0]),
                1 => frame.extend([1, 0]),
                _ => frame.extend([8, 0]),
            }
            let len = draw.of(&[0, 46, 80]);
            frame.extend(draw.bytes(len));
            if draw.once_in(10) {
                frame.truncate(13);
            }
            (143, frame)
        }
        _ => transport(draw),
    }
}

fn srh(draw: &mut Draw, next: u8) -> Vec<u8> {
    let segments = 1 + draw.below(4);
    let mut tlvs = match draw.below(6) {
        0 => vec![4, 6, 0, 0, 0, 0, 0, 0],
        1 => vec![9, 2, 0, 0, 9, 2, 0, 0],
        2 if draw.once_in(3) => vec![4, draw.byte() % 9, 0, 0, 0, 0, 0, 0],
        _ => Vec::new(),
    };
    if draw.once_in(60) {
        tlvs = [9, 0].repeat(20);
    }
    let left = match draw.below(8) {
        0 => draw.byte() % 6,
        1..3 => 0,
        3..5 => 1.min(segments as u8 - 1),
        _ => draw.below(segments) as u8,
    };
    let length = (16 * segments + tlvs.len()) / 8;
    let flags = if draw.once_in(30) { 8 } else { 0 };
    let last = segments as u8 - 1;
    let mut bytes = vec![next, length as u8, 4, left, last, flags, 0, 0];
    for _ in 0..segments {
        if draw.once_in(4) {
            // Compressed SIDs of 2 bytes.
            for _ in 0..8 {
                bytes.extend([0, draw.of(&[0, 1, 2, 5])]);
            }
        } else {
            bytes.extend(address6(draw));
        }
    }
    bytes.extend(tlvs);
    bytes
}

fn packet6(draw: &mut Draw, depth: usize) -> Vec<u8> {
    let (mut next, mut payload) = payload(draw, depth);
    for _ in 0..draw.of(&[0, 0, 1, 1, 1, 1, 2]) {
        let mut bytes = srh(draw, next);
        bytes.extend(payload);
        (next, payload) = (43, bytes);
    }
    if draw.once_in(8) {
        let kind = draw.of(&[60, 60, 43, 44, 51, 0]);
        let mut header = match kind {
            44 => vec![next, 0, 0, draw.of(&[0, 1, 8]), 0, 0, 0, 1],
            51 => vec![next, 0, 0, 0, 0, 0, 0, 1],
            43 => vec![next, 0, 0, draw.of(&[0, 1]), 0, 0, 0, 0],
            _ => vec![next, 0, 1, 4, 0, 0, 0, 0],
        };
        header.extend(payload);
        (next, payload) = (kind, header);
    }
    let label = draw.of(&[0, 0, 0x1_2345]) as u32;
    let class = draw.of(&[0u32, 0, 0xb8]);
    let mut packet = (6 << 28 | class << 20 | label).to_be_bytes().to_vec();
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, draw.of(&[64, 64, 64, 64, 64, 2, 1, 0])]);
    packet.extend([0x20, 1, 0xd, 0xb8, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    packet.push(draw.byte());
    packet.extend(address6(draw));
    packet.extend(payload);
    packet
}

/// A frame: sound, or with bytes changed, cut or padded.
pub(crate) fn frame(draw: &mut Draw) -> Vec<u8> {
    let mut frame = [&IN_MAC[..], &FROM_MAC].concat();
    let depth = draw.below(4);
    if draw.once_in(5) {
        frame.extend([8, 0]);
        frame.extend(packet4(draw, depth));
    } else {
        frame.extend([0x86, 0xdd]);
        frame.extend(packet6(draw, depth));
    }
    if draw.once_in(3) {
        for _ in 0..1 + draw.below(2) {
            let at = 14 + draw.below(frame.len() - 14);
            let value = draw.byte();
            frame[at] = value;
        }
    }
    match draw.below(12) {
        0 => frame.truncate(14 + draw.below(frame.len() - 13)),
        1 => {
            let padding = 1 + draw.below(20);
            frame.extend(draw.bytes(padding));
        }
        _ => {}
    }
    frame
}
