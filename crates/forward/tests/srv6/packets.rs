//! Packets by hand.

use super::router::{INGRESS, mac, octets, v4};

/// An IPv6 header and what follows it: traffic class 0x12, flow label 0x34567, hop limit 50.
pub(crate) fn ip6(src: &str, dst: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x61, 0x23, 0x45, 0x67];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 50]);
    packet.extend(octets(src));
    packet.extend(octets(dst));
    packet.extend(payload);
    packet
}

/// An IPv4 header and what follows it: TOS 0x0c, TTL 40.
pub(crate) fn ip4(src: &str, dst: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0x0c];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0, 0, 0, 40, protocol, 0, 0]);
    packet.extend(v4(src).to_be_bytes());
    packet.extend(v4(dst).to_be_bytes());
    set_checksum(&mut packet);
    packet.extend(payload);
    packet
}

/// Fixes the checksum of an IPv4 header.
pub(crate) fn set_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let words = packet[..20].chunks_exact(2);
    let mut sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// UDP with 12 bytes.
pub(crate) fn udp(sport: u16) -> Vec<u8> {
    let mut bytes = sport.to_be_bytes().to_vec();
    bytes.extend([0, 53, 0, 20, 0, 0]);
    bytes.extend(b"twelve bytes");
    bytes
}

/// An SRH with these segments in the order of the list (visited last first), and TLVs.
pub(crate) fn srh(next: u8, left: u8, list: &[[u8; 16]], tlvs: &[u8]) -> Vec<u8> {
    let words = (16 * list.len() + tlvs.len()) / 8;
    let last = (list.len() as u8).wrapping_sub(1);
    let mut bytes = vec![next, words as u8, 4, left, last, 0, 0, 0];
    bytes.extend(list.concat());
    bytes.extend(tlvs);
    bytes
}

/// In an Ethernet frame to the router.
pub(crate) fn frame(packet: &[u8]) -> Vec<u8> {
    let mut frame = mac(INGRESS).to_vec();
    frame.extend([6, 0, 0, 0, 0, 1]);
    frame.extend(if packet[0] >> 4 == 4 {
        [0x08, 0x00]
    } else {
        [0x86, 0xdd]
    });
    frame.extend(packet);
    frame
}

/// The packet with its hop limit or TTL one less.
pub(crate) fn older(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] >> 4 == 4 {
        packet[8] -= 1;
        set_checksum(&mut packet);
    } else {
        packet[7] -= 1;
    }
    packet
}
