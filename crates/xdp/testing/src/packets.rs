//! IPv6 packets with and without an SRH, byte by byte.

use crate::frames::{FROM_MAC, IN_MAC, checksum};

/// The bytes of an IPv6 address.
pub fn addr(text: &str) -> [u8; 16] {
    text.parse::<std::net::Ipv6Addr>().unwrap().octets()
}

/// An SRH.
#[derive(Clone, Debug)]
pub struct Srh {
    /// Next header.
    pub next: u8,
    /// Segments left.
    pub left: u8,
    /// Flags.
    pub flags: u8,
    /// Visited last to visited first.
    pub segments: Vec<[u8; 16]>,
    /// TLVs, padded.
    pub tlvs: Vec<u8>,
}

impl Srh {
    /// Segments in the order of the list: visited last to visited first.
    pub fn new(next: u8, left: u8, segments: &[&str]) -> Srh {
        Srh {
            next,
            left,
            flags: 0,
            segments: segments.iter().map(|text| addr(text)).collect(),
            tlvs: Vec::new(),
        }
    }

    /// As it stands in a packet.
    pub fn bytes(&self) -> Vec<u8> {
        let length = 16 * self.segments.len() + self.tlvs.len();
        let last = self.segments.len() as u8 - 1;
        let mut bytes = vec![
            self.next,
            (length / 8) as u8,
            4,
            self.left,
            last,
            self.flags,
            0,
            0,
        ];
        bytes.extend(self.segments.iter().flatten());
        bytes.extend(&self.tlvs);
        bytes
    }
}

/// An IPv6 packet without a frame.
pub fn packet6(src: &str, dst: &str, next: u8, hops: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, hops]);
    packet.extend(addr(src));
    packet.extend(addr(dst));
    packet.extend(payload);
    packet
}

/// The same in a frame, with hop limit 64.
pub fn ipv6(src: &str, dst: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&IN_MAC[..], &FROM_MAC, &[0x86, 0xdd]].concat();
    frame.extend(packet6(src, dst, next, 64, payload));
    frame
}

/// A frame with an SRH.
pub fn outer(src: &str, dst: &str, srh: &Srh, payload: &[u8]) -> Vec<u8> {
    let mut all = srh.bytes();
    all.extend(payload);
    ipv6(src, dst, 43, &all)
}

/// An IPv4 packet of UDP, more or less.
pub fn inner4(src: [u8; 4], dst: [u8; 4], ttl: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend([1, 2, 0, 0, ttl, 17, 0, 0]);
    packet.extend(src);
    packet.extend(dst);
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

/// An IPv6 packet of UDP, more or less.
pub fn inner6(src: &str, dst: &str, hops: u8, payload: &[u8]) -> Vec<u8> {
    packet6(src, dst, 17, hops, payload)
}
