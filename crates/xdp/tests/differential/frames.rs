//! Drawn frames: sound packets of both families, tunnels, and what damage makes of them.

use std::net::IpAddr;

use proptest::prelude::*;

use crate::state::address;

pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A frame: mostly a sound packet, then perhaps a few bytes changed and its end cut or padded.
pub(crate) fn frame() -> impl Strategy<Value = Vec<u8>> {
    let body = prop_oneof![
        2 => proptest::collection::vec(any::<u8>(), 0..120),
        1 => tunnel(),
    ];
    let protocol = prop_oneof![
        8 => proptest::sample::select(&[6u8, 17, 1, 58][..]),
        3 => proptest::sample::select(&[0u8, 4, 41, 43, 44, 47, 50, 51, 60, 132, 136, 137][..]),
        5 => proptest::sample::select(&[4u8, 41, 47][..]),
        1 => any::<u8>(),
    ];
    let ipv4 = (
        any::<u8>(),
        any::<u8>(),
        protocol.clone(),
        any::<u8>(),
        0..12u8,
        body.clone(),
    )
        .prop_map(|(s, d, protocol, ttl, odd, body)| ipv4_packet(s, d, protocol, ttl, odd, &body));
    let ipv6 = (
        any::<u8>(),
        any::<u8>(),
        protocol,
        any::<u8>(),
        0..12u8,
        body,
    )
        .prop_map(|(s, d, protocol, hops, odd, body)| {
            ipv6_packet(s, d, protocol, hops, odd, &body)
        });
    let changes = proptest::collection::vec((0..90usize, any::<u8>()), 0..3);
    let changes = prop_oneof![2 => Just(Vec::new()), 1 => changes];
    (prop_oneof![ipv4, ipv6], changes, -14..14i32, 0..40u8).prop_map(
        |(mut packet, changes, tail, ether)| {
            let mut frame = MAC.to_vec();
            frame.extend([6, 0, 0, 0, 0, 9]);
            let kind: u16 = match (ether, packet[0] >> 4) {
                (0, _) => 0x8100,
                (1, _) => 0x0806,
                (_, 4) => 0x0800,
                _ => 0x86dd,
            };
            if ether == 2 {
                frame[0] = 0xff;
            }
            frame.extend(kind.to_be_bytes());
            frame.append(&mut packet);
            for (at, value) in changes {
                if let Some(byte) = frame.get_mut(at) {
                    *byte = value;
                }
            }
            // Mostly padded or as it is; now and then cut.
            let tail = if tail < -12 { -3 } else { tail.max(0) };
            frame.resize((frame.len() as i32 + tail).max(14) as usize, 0);
            frame
        },
    )
}

/// A frame with VLAN tags in front of its packet: of VLANs that there are mostly, with priorities, up to three.
pub(crate) fn tagged() -> impl Strategy<Value = Vec<u8>> {
    let kind = proptest::sample::select(&[0x8100u16, 0x8100, 0x88a8][..]);
    let id = proptest::sample::select(&[0u16, 5, 5, 6, 7, 7, 8, 4095][..]);
    let tag = (kind, id, 0..16u16);
    let tag = tag.prop_map(|(kind, id, priority)| {
        let tci = id | if priority < 8 { 0 } else { priority << 12 };
        [kind.to_be_bytes(), tci.to_be_bytes()].concat()
    });
    let tags = prop_oneof![
        6 => proptest::collection::vec(tag.clone(), 1..=2),
        1 => proptest::collection::vec(tag, 3),
    ];
    // Some end in a tag, or behind one.
    let end = prop_oneof![15 => Just(usize::MAX), 1 => 14..26usize];
    (frame(), tags, 0..4u8, end).prop_map(|(frame, tags, to, end)| {
        let mut tagged = frame[..12].to_vec();
        if to == 0 {
            tagged[5] = 3;
        }
        tagged.extend(tags.concat());
        tagged.extend(&frame[12..]);
        tagged.truncate(end);
        tagged
    })
}

/// What tunnels carry: packets, some in GRE and in frames inside of that, and in packets again.
fn tunnel() -> impl Strategy<Value = Vec<u8>> {
    let payload = proptest::collection::vec(any::<u8>(), 0..24).boxed();
    payload.prop_recursive(5, 32, 1, |inner| {
        let protocol = proptest::sample::select(&[6u8, 17, 4, 41, 47, 60, 44, 51][..]);
        let packet = (
            any::<(u8, u8, u8)>(),
            protocol,
            inner.clone(),
            any::<bool>(),
        );
        let packet = packet.prop_map(|((s, d, odd), protocol, body, v6)| {
            if v6 {
                ipv6_packet(s, d, protocol, 64, odd % 12, &body)
            } else {
                ipv4_packet(s, d, protocol, 64, odd % 12, &body)
            }
        });
        let kind = vec![
            0x0800u16, 0x86dd, 0x6558, 0x880b, 0x8100, 0x88a8, 0x88fb, 0x892f, 0x8864, 0x4305,
            0x88ca,
        ];
        let flags = proptest::sample::select(
            &[
                0u16, 0, 0x8000, 0x2000, 0x1000, 0xb000, 0x2001, 0x3081, 0x4000,
            ][..],
        );
        // Some end in the middle of a header.
        let end = prop_oneof![3 => Just(usize::MAX), 1 => 0..40usize];
        let gre = (flags, proptest::sample::select(kind), 0..4u8, inner, end);
        let gre = gre.prop_map(|(flags, kind, inside, body, end)| {
            let mut packet = flags.to_be_bytes().to_vec();
            packet.extend(kind.to_be_bytes());
            let options = (flags & 0xb000).count_ones() as usize * 4
                + if flags & 0x81 == 0x81 { 4 } else { 0 };
            packet.resize(packet.len() + options, 7);
            let proto = if body.first().is_some_and(|b| b >> 4 == 6) {
                0x86ddu16
            } else {
                0x0800
            };
            match kind {
                0x6558 => {
                    packet.resize(packet.len() + 12, 3);
                    packet.extend(if inside == 0 {
                        [0x81, 0]
                    } else {
                        proto.to_be_bytes()
                    });
                }
                0x880b => packet.extend([0xff, 3, 0, if proto == 0x0800 { 0x21 } else { 0x57 }]),
                0x8100 | 0x88a8 => {
                    packet.extend([0, 5]);
                    packet.extend(proto.to_be_bytes());
                }
                0x88fb | 0x892f => {
                    packet.extend([0, 5, 0, 9]);
                    packet.extend(proto.to_be_bytes());
                }
                0x8864 => {
                    packet.extend([0x11, inside / 3, 0, 1, 0, 9, 0]);
                    packet.push(if proto == 0x0800 { 0x21 } else { 0x57 });
                }
                0x4305 => {
                    packet.extend([0x40, 15 - inside / 3]);
                    packet.resize(packet.len() + 20, 1);
                    packet.extend(proto.to_be_bytes());
                }
                _ => {}
            }
            packet.extend(body);
            packet.truncate(end);
            packet
        });
        prop_oneof![3 => packet, 2 => gre]
    })
}

pub(crate) fn ipv4_packet(s: u8, d: u8, protocol: u8, ttl: u8, odd: u8, body: &[u8]) -> Vec<u8> {
    let total = 20 + body.len();
    let mut packet = vec![
        0x45,
        0,
        (total >> 8) as u8,
        total as u8,
        0,
        1,
        0,
        0,
        ttl,
        protocol,
        0,
        0,
    ];
    if odd == 1 {
        packet[6] = 0x20;
    }
    if odd == 2 {
        packet[7] = 9;
    }
    for n in [s, d] {
        let IpAddr::V4(ip) = address(false, n) else {
            unreachable!("address(false) is IPv4")
        };
        packet.extend(ip.octets());
    }
    let sum = raddle_packet_checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(body);
    if protocol == 1 && odd > 2 && packet.len() > 48 {
        packet[20] = [3, 4, 5, 11, 12, 8][usize::from(odd) % 6];
        packet[28] = 0x45;
    }
    packet
}

fn ipv6_packet(s: u8, d: u8, protocol: u8, hops: u8, odd: u8, body: &[u8]) -> Vec<u8> {
    let label = if odd.is_multiple_of(3) {
        [0x60, 0, 0, 0]
    } else {
        [0x60, 0x0a, odd, s]
    };
    let mut packet = label.to_vec();
    packet.extend((body.len() as u16).to_be_bytes());
    packet.extend([protocol, hops]);
    for n in [s, d] {
        let IpAddr::V6(ip) = address(true, n) else {
            unreachable!("address(true) is IPv6")
        };
        packet.extend(ip.octets());
    }
    packet.extend(body);
    if protocol == 58 && packet.len() > 88 {
        packet[40] = odd % 6;
    }
    // Extension headers that lead somewhere.
    if matches!(protocol, 43 | 44 | 60) && packet.len() > 56 {
        packet[40] = [17, 6, 60, 44, 58, 43][usize::from(odd) % 6];
        packet[41] = s % 2;
    }
    packet
}

/// Written out, so that the frames do not depend on the code under test.
fn raddle_packet_checksum(header: &[u8]) -> u16 {
    let sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}
