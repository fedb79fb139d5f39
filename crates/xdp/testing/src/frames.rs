//! Frames by hand: what etherparse builds, and then bent.

use etherparse::PacketBuilder;

/// MAC address of the link that frames come in by.
pub const IN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x10];
/// MAC address of their sender.
pub const FROM_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

/// A UDP packet over IPv4 with TTL 64 and a payload of this length.
pub fn udp4(src: [u8; 4], dst: [u8; 4], ports: (u16, u16), payload: usize) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(FROM_MAC, IN_MAC)
        .ipv4(src, dst, 64)
        .udp(ports.0, ports.1);
    let mut frame = Vec::new();
    builder.write(&mut frame, &vec![0xa5; payload]).unwrap();
    frame
}

/// The same over IPv6.
pub fn udp6(src: [u8; 16], dst: [u8; 16], ports: (u16, u16), payload: usize) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(FROM_MAC, IN_MAC)
        .ipv6(src, dst, 64)
        .udp(ports.0, ports.1);
    let mut frame = Vec::new();
    builder.write(&mut frame, &vec![0xa5; payload]).unwrap();
    frame
}

/// An IPv6 packet with a payload of any protocol.
pub fn ipv6(src: [u8; 16], dst: [u8; 16], label: u32, proto: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&IN_MAC[..], &FROM_MAC, &[0x86, 0xdd]].concat();
    frame.extend_from_slice(&(0x6000_0000 | label).to_be_bytes());
    frame.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[proto, 64]);
    frame.extend_from_slice(&src);
    frame.extend_from_slice(&dst);
    frame.extend_from_slice(payload);
    frame
}

/// An IPv4 packet with a 20-byte header and a payload of any protocol.
pub fn ipv4(src: [u8; 4], dst: [u8; 4], fragment: u16, proto: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&IN_MAC[..], &FROM_MAC, &[8, 0, 0x45, 0]].concat();
    frame.extend_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[0x12, 0x34]);
    frame.extend_from_slice(&fragment.to_be_bytes());
    frame.extend_from_slice(&[64, proto, 0, 0]);
    frame.extend_from_slice(&src);
    frame.extend_from_slice(&dst);
    frame.extend_from_slice(payload);
    fix_checksum(&mut frame);
    frame
}

/// The checksum that an IPv4 header must have, computed the long way.
pub fn checksum(header: &[u8]) -> u16 {
    let mut sum = 0u32;
    for (i, pair) in header.chunks_exact(2).enumerate() {
        if i != 5 {
            sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Puts the right checksum into a frame's IPv4 header, taking its length from the frame.
pub fn fix_checksum(frame: &mut [u8]) {
    let end = 14 + usize::from(frame[14] & 15).max(5) * 4;
    let sum = checksum(&frame[14..end]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}
