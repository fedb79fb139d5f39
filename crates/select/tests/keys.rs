//! Which bytes of a packet make its flow key.
#![allow(clippy::unwrap_used)] // a test may fail

use proptest::prelude::*;
use raddle_select::{
    Explanation, Family, Flow, FlowKey, HashConfig, Input, KeyAddresses, KeyError, Keys, Policy,
    Seed, explain_packet, keys_of_flow, keys_of_packet, keys_of_plain_packet,
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
    one(keys_of_packet(&Policy::L3.into(), family, packet).unwrap())
}

fn one(keys: Keys) -> FlowKey {
    match keys {
        Keys::One(key) => key,
        other => panic!("{other:?}"),
    }
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
        let key = one(keys_of_packet(&Policy::L4.into(), family, &packet).unwrap());
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

/// For plain TCP and UDP a flow's key is its packets' key under policies 0 and 1; under the others it
/// is known in what it differs.
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
            for (policy, fields) in (0..4).flat_map(|p| [(p, 7), (p, 0x3f), (p, 0xfc0), (p, 0x38)])
            {
                let config = HashConfig::kernel(policy, fields).unwrap();
                let keys = keys_of_packet(&config, flow.family(), &packet).unwrap();
                assert_eq!(keys, keys_of_plain_packet(&config, &flow));
                if policy < 2 {
                    assert_eq!(keys, keys_of_flow(&config, &flow));
                }
            }
        }
    }
}

/// Their way, when it is asked for: ports of the packet that they are about, whatever the direction.
#[test]
fn errors_follow_their_flow() {
    let config = HashConfig {
        icmp_follows_flow: true,
        ..Policy::L4.into()
    };
    let ports = [1, 2, 3, 4, 0, 0, 0, 0];
    let (flow4, flow6) = (v4(2, 17, &ports), v6(2, 17, &ports));
    for (family, flow, error, echo) in [
        (
            Family::V4,
            &flow4,
            v4(1, 1, &icmp(3, &flow4)),
            v4(1, 1, &icmp(8, &flow4)),
        ),
        (
            Family::V6,
            &flow6,
            v6(1, 58, &icmp(1, &flow6)),
            v6(1, 58, &icmp(128, &flow6)),
        ),
    ] {
        let keys = |packet: &[u8]| one(keys_of_packet(&config, family, packet).unwrap());
        assert_eq!(keys(&error), keys(flow));
        assert_eq!((keys(&error).sport, keys(&error).ip_proto), (0x0102, 17));
        assert_eq!(keys(&echo).sport, 0, "echo requests are no errors");
        let cut = &error[..error.len() - 8];
        assert_eq!(keys(cut).addresses, keys(flow).addresses);
        assert_eq!(keys(cut).sport, 0, "no ports are quoted");
        let seed = Seed::new(1).unwrap();
        let explained = explain_packet(&config, seed, family, &error).unwrap();
        assert_eq!(explained.input, Input::IcmpInner);
    }
}

/// The traps of policies 2 and 3, each seen in the kernel.
#[test]
fn inner_packets() {
    let plain = v6(1, 17, &[1, 2, 3, 4]);
    let inner = one(keys_of_packet(&Policy::Inner.into(), Family::V6, &plain).unwrap());
    let outer = one(keys_of_packet(&Policy::L3.into(), Family::V6, &plain).unwrap());
    assert_eq!(inner.flow_label_word, 0x12345, "host order");
    assert_eq!(outer.flow_label_word, 0x12345u32.swap_bytes(), "as loaded");
    let error = v4(1, 1, &icmp(3, &v4(2, 17, &[0; 8])));
    let key = one(keys_of_packet(&Policy::Inner.into(), Family::V4, &error).unwrap());
    assert_eq!(
        key.addresses,
        outer_flow(&error).addresses,
        "no look into errors"
    );

    let tunnel = v4(1, 4, &v4(2, 17, &[1, 2, 3, 4, 0, 0, 0, 0]));
    let keys = |fields| {
        let config = HashConfig::kernel(3, fields).unwrap();
        keys_of_packet(&config, Family::V4, &tunnel).unwrap()
    };
    let two = |keys| match keys {
        Keys::Two { outer, inner } => (outer, inner),
        other => panic!("{other:?}"),
    };
    let (outer, inner) = two(keys(0x37 | 0xc00));
    let (outer, inner) = (outer.unwrap(), inner.unwrap());
    assert_eq!(
        (outer.ip_proto, outer.sport),
        (4, 0),
        "the tunnel itself has no ports"
    );
    assert_eq!(
        (inner.sport, inner.dport, inner.ip_proto),
        (0x0102, 0x0304, 0)
    );
    let nowhere = std::net::Ipv4Addr::UNSPECIFIED;
    let (src, dst) = (nowhere, nowhere);
    assert_eq!(inner.addresses, KeyAddresses::V4 { src, dst });
    assert!(matches!(two(keys(0xfc0)), (None, Some(_))));
    assert!(matches!(two(keys(0)), (None, None)));
}

#[test]
fn refusals() {
    let packet = v4(1, 6, &[0; 20]);
    for policy in [Policy::L3, Policy::L4, Policy::Inner, Policy::Custom] {
        let refused = keys_of_packet(&policy.into(), Family::V4, &packet[..19]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "packet of 19 bytes holds no valid IPv4 header"
        );
        assert!(keys_of_packet(&policy.into(), Family::V6, &packet[..39]).is_err());
    }
    // GRE that carries TIPC.
    let tipc = [&[0, 0, 0x88, 0xca], [0; 16].as_slice()].concat();
    assert_eq!(
        keys_of_packet(&Policy::Inner.into(), Family::V4, &v4(1, 47, &tipc)),
        Err(KeyError::NoAddresses)
    );
    assert_eq!(
        Flow::new("10.0.0.1".parse().unwrap(), "::1".parse().unwrap()),
        None
    );
}

proptest! {
    #[test]
    fn survives_anything(
        l3 in prop::collection::vec(any::<u8>(), 0..200),
        number in 0u8..4,
        fields in any::<u32>(),
        icmp_follows_flow in any::<bool>(),
        seed in 1u32..,
    ) {
        let config = HashConfig {
            icmp_follows_flow,
            ..HashConfig::kernel(number, fields).unwrap()
        };
        let seed = Seed::new(seed).unwrap();
        let hasher = raddle_select::Hasher::new(seed);
        for family in [Family::V4, Family::V6] {
            let keys = keys_of_packet(&config, family, &l3);
            let explained = explain_packet(&config, seed, family, &l3);
            let hash31 = hasher.hash31_of_packet(&config, family, &l3);
            prop_assert_eq!(hash31, keys.as_ref().map(|keys| hasher.hash31(keys)).map_err(|e| *e));
            let hash = |explained: Explanation| explained.hash32;
            prop_assert_eq!(explained.map(hash), keys.map(|keys| hasher.hash_keys(&keys)));
        }
    }
}
