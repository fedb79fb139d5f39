//! The packets that are measured with: UDP, each of a flow of its own.

use std::net::{Ipv4Addr, Ipv6Addr};

use raddle_packet::checksum;

/// Bytes of an Ethernet header.
pub(super) const ETHERNET: usize = 14;
/// An Ethernet frame without its check sequence.
pub(super) type Frame = [u8; 76];

/// Numbers without order, the same in every run.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// The next 32 bits.
    pub(super) fn bits(&mut self) -> u32 {
        // A linear congruential generator; its upper half is good enough to spread packets.
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 >> 32) as u32
    }
}

/// An IPv4 packet to `dst`, with its Ethernet header.
pub(super) fn ipv4(dice: &mut Dice, dst: Ipv4Addr) -> Frame {
    let mut frame = ethernet(0x0800);
    let len = (frame.len() - ETHERNET) as u16;
    let packet = &mut frame[ETHERNET..];
    packet[..10].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17]);
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[12..16].copy_from_slice(&(0x0a00_0000 | dice.bits() >> 8).to_be_bytes());
    packet[16..20].copy_from_slice(&dst.octets());
    let sum = checksum::checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    ports(dice, &mut packet[20..]);
    frame
}

/// An IPv6 packet to `dst`, with its Ethernet header.
pub(super) fn ipv6(dice: &mut Dice, dst: Ipv6Addr) -> Frame {
    let mut frame = ethernet(0x86dd);
    let len = (frame.len() - ETHERNET - 40) as u16;
    let label = dice.bits() & 0xf_ffff;
    let packet = &mut frame[ETHERNET..];
    packet[..4].copy_from_slice(&(0x6000_0000 | label).to_be_bytes());
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    packet[6..8].copy_from_slice(&[17, 64]);
    let src = 0x2001_0db8_u128 << 96 | u128::from(dice.bits());
    packet[8..24].copy_from_slice(&src.to_be_bytes());
    packet[24..40].copy_from_slice(&dst.octets());
    ports(dice, &mut packet[40..]);
    frame
}

fn ports(dice: &mut Dice, udp: &mut [u8]) {
    let len = udp.len() as u16;
    udp[..2].copy_from_slice(&((dice.bits() >> 16) as u16 | 0x8000).to_be_bytes());
    udp[2..4].copy_from_slice(&53u16.to_be_bytes());
    udp[4..6].copy_from_slice(&len.to_be_bytes());
}

fn ethernet(kind: u16) -> Frame {
    let mut frame = [0; 76];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9]);
    frame[12..14].copy_from_slice(&kind.to_be_bytes());
    frame
}
