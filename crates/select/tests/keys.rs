//! Which bytes of a packet make its flow key.
#![allow(clippy::unwrap_used)] // a test may fail

use proptest::prelude::*;
use raddle_select::{
    Family, Flow, FlowKey, KeyAddresses, KeyError, Policy, Unsupported, explain_packet,
    flow_key_of_flow, flow_key_of_packet,
};

/// An IPv4 packet from 10.0.0.`src` to 198.18.0.9.
fn v4(src: u8, proto: u8, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len()) as u8;
    let header = [
        0x45, 0, 0, length, 0, 0, 0, 0, 64, proto, 0, 0, 10, 0, 0, src, 198, 18, 0, 9,
    ];
    [&header, payload].concat()
}

/// An IPv6 packet from `src`:: to ff::, flow label 0x12345.
fn v6(src: u8, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 1, 0x23, 0x45, 0, payload.len() as u8, next, 64, src];
    packet.resize(40, 0);
    packet[25] = 0xff;
    packet.extend(payload);
    packet
}

fn icmp(kind: u8, inner: &[u8]) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 0, 0, 0], inner].concat()
}

fn l3(packet: &[u8]) -> FlowKey {
    let family = if packet[0] >> 4 == 4 {
        Family::V4
    } else {
        Family::V6
    };
    flow_key_of_packet(Policy::L3, family, packet).unwrap()
}

fn is_inner(packet: &[u8]) -> bool {
    match l3(packet).addresses {
        KeyAddresses::V4 { src, .. } => src.octets()[3] == 2,
        KeyAddresses::V6 { src, .. } => src.octets()[0] == 2,
    }
}

#[test]
fn ipv4_errors_follow_the_packet_they_are_about() {
    let inner = v4(2, 17, &[0; 8]);
    for kind in 0..=255 {
        let packet = v4(1, 1, &icmp(kind, &inner));
        assert_eq!(
            is_inner(&packet),
            [3, 4, 5, 11, 12].contains(&kind),
            "type {kind}"
        );
    }
    let packet = v4(1, 1, &icmp(3, &inner));
    for length in 20..packet.len() {
        assert_eq!(is_inner(&packet[..length]), length >= 48, "{length} bytes");
    }
    // Not the first fragment, and the first; neither DF nor the reserved bit matter.
    for (fragment, expected) in [
        ([0x20, 0], true),
        ([0xc0, 0], true),
        ([0, 1], false),
        ([0x1f, 0], false),
    ] {
        let mut packet = packet.clone();
        packet[6..8].copy_from_slice(&fragment);
        assert_eq!(is_inner(&packet), expected, "{fragment:02x?}");
    }
    // The ICMP header lies behind the options.
    let mut packet = packet;
    packet.splice(20..20, [1; 8]);
    packet[0] = 0x47;
    assert!(is_inner(&packet));
    assert!(
        !is_inner(&v4(1, 58, &icmp(3, &inner))),
        "ICMPv6 over IPv4 is nothing"
    );
}

#[test]
fn ipv6_errors_follow_the_packet_they_are_about() {
    let inner = v6(2, 17, &[0; 8]);
    for kind in 0..=255 {
        let packet = v6(1, 58, &icmp(kind, &inner));
        assert_eq!(is_inner(&packet), (1..=4).contains(&kind), "type {kind}");
        let proto = l3(&packet).ip_proto;
        assert_eq!(proto, if is_inner(&packet) { 17 } else { 58 });
    }
    let packet = v6(1, 58, &icmp(1, &inner));
    for length in 40..packet.len() {
        assert_eq!(is_inner(&packet[..length]), length >= 88, "{length} bytes");
    }
    // Not behind an extension header.
    let behind = [&[58, 0, 0, 0, 0, 0, 0, 0], icmp(1, &inner).as_slice()].concat();
    assert!(!is_inner(&v6(1, 60, &behind)));
    assert!(
        !is_inner(&v6(1, 1, &icmp(1, &inner))),
        "ICMP over IPv6 is nothing"
    );
}

#[test]
fn policy_1_hashes_errors_as_themselves() {
    for (family, packet, proto) in [
        (Family::V4, v4(1, 1, &icmp(3, &v4(2, 17, &[0; 8]))), 1),
        (Family::V6, v6(1, 58, &icmp(1, &v6(2, 17, &[0; 8]))), 58),
    ] {
        let key = flow_key_of_packet(Policy::L4, family, &packet).unwrap();
        assert_eq!(key.addresses, outer_flow(&packet).addresses);
        assert_eq!((key.ip_proto, key.sport, key.dport), (proto, 0, 0));
    }
}

/// The flow between the addresses of the outer header, read in the dullest way.
fn outer_flow(packet: &[u8]) -> Flow {
    let v4 = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).unwrap().into();
    let v6 = |at: usize| <[u8; 16]>::try_from(&packet[at..at + 16]).unwrap().into();
    match packet[0] >> 4 {
        4 => Flow::new(v4(12), v4(16)).unwrap(),
        _ => Flow::new(v6(8), v6(24)).unwrap(),
    }
}

/// For plain TCP and UDP a flow's key is its packets' key, under both policies.
#[test]
fn flows_and_their_packets_agree() {
    for proto in [6, 17] {
        for packet in [
            v4(1, proto, &[1, 2, 3, 4, 0, 0, 0, 0]),
            v6(1, proto, &[1, 2, 3, 4]),
        ] {
            let mut flow = outer_flow(&packet).ports(proto, 0x0102, 0x0304);
            if flow.family() == Family::V6 {
                flow.flow_label = 0x12345;
            }
            for policy in [Policy::L3, Policy::L4] {
                assert_eq!(
                    flow_key_of_packet(policy, flow.family(), &packet).unwrap(),
                    flow_key_of_flow(policy, &flow).unwrap()
                );
            }
        }
    }
}

#[test]
fn refusals() {
    let packet = v4(1, 6, &[0; 20]);
    for policy in [Policy::Inner, Policy::Custom] {
        let refused = flow_key_of_packet(policy, Family::V4, &packet);
        assert_eq!(refused, Err(KeyError::Unsupported(Unsupported(policy))));
    }
    for policy in [Policy::L3, Policy::L4] {
        let refused = flow_key_of_packet(policy, Family::V4, &packet[..19]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "packet of 19 bytes holds no valid IPv4 header"
        );
        assert!(flow_key_of_packet(policy, Family::V6, &packet[..39]).is_err());
    }
    assert_eq!(
        Flow::new("10.0.0.1".parse().unwrap(), "::1".parse().unwrap()),
        None
    );
}

proptest! {
    #[test]
    fn survives_anything(l3 in prop::collection::vec(any::<u8>(), 0..200), number in 0u8..4, seed in 1u32..) {
        let policy = Policy::from_number(number).unwrap();
        let seed = raddle_select::Seed::new(seed).unwrap();
        for family in [Family::V4, Family::V6] {
            let key = flow_key_of_packet(policy, family, &l3);
            let explained = explain_packet(policy, seed, family, &l3);
            prop_assert_eq!(explained.map(|e| e.key), key);
        }
    }
}
