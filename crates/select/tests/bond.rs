//! Hashes of bonds: by hand, against packets that were made of what is to be hashed, and of anything.
#![allow(clippy::unwrap_used)] // a test may fail

use proptest::prelude::*;
use raddle_select::{
    BondMember, BondMembers, BondMode, BondPolicy, Flow, bond_hash, bond_hash_of_flow, bond_member,
};

const TO: [u8; 6] = [0x02, 0xaa, 0xbb, 0xcc, 0xdd, 0x1f];
const FROM: [u8; 6] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];

/// What an IP header says.
#[derive(Clone, Debug)]
struct Ip {
    v6: bool,
    src: [u8; 16],
    dst: [u8; 16],
    /// An IPv4 option of four bytes, or IPv6 destination options of eight.
    more: bool,
    /// A first fragment.
    fragment: bool,
}

/// What is inside of a packet.
#[derive(Clone, Debug)]
enum Inside {
    /// A protocol of which the first four bytes are hashed as ports, and these; AH has them four bytes further on.
    Ports(u8, [u8; 4]),
    /// A protocol without ports, and what follows.
    Other(u8, Vec<u8>),
    /// ICMP, or ICMPv6: type, code, identifier.
    Icmp(bool, u8, u8, u16),
    /// An error, and the packet that it is about.
    Error(bool, u8, Box<Packet>),
    /// A packet in the packet, with a GRE header in front or without.
    Packet(bool, Box<Packet>),
}

#[derive(Clone, Debug)]
struct Packet {
    ip: Ip,
    inside: Inside,
}

impl Packet {
    fn proto(&self) -> u8 {
        match &self.inside {
            Inside::Ports(proto, _) | Inside::Other(proto, _) => *proto,
            Inside::Icmp(six, ..) | Inside::Error(six, ..) => [1, 58][usize::from(*six)],
            Inside::Packet(true, _) => 47,
            Inside::Packet(false, inner) => [4, 41][usize::from(inner.ip.v6)],
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let body = match &self.inside {
            Inside::Ports(51, spi) => [&[0, 4, 0, 0], &spi[..], &[0; 8]].concat(),
            Inside::Ports(_, ports) => [&ports[..], &[0; 8]].concat(),
            Inside::Other(_, bytes) => bytes.clone(),
            Inside::Icmp(_, kind, code, id) => {
                [&[*kind, *code, 0, 0], &id.to_be_bytes()[..], &[0, 1]].concat()
            }
            Inside::Error(_, kind, about) => {
                [&[*kind, 0, 0, 0, 9, 9, 9, 9][..], &about.bytes()].concat()
            }
            Inside::Packet(gre, inner) => {
                let kind: [u8; 2] = if inner.ip.v6 { [0x86, 0xdd] } else { [8, 0] };
                let header = [&[0, 0][..], &kind].concat();
                let header = if *gre { header } else { Vec::new() };
                [header, inner.bytes()].concat()
            }
        };
        let Ip {
            v6,
            src,
            dst,
            more,
            fragment,
        } = &self.ip;
        let proto = self.proto();
        if *v6 {
            let first = match (more, fragment) {
                (true, _) => 60,
                (_, true) => 44,
                _ => proto,
            };
            let mut bytes = vec![0x60, 0, 0, 0, 0, 0, first, 64];
            bytes.extend(src.iter().chain(dst));
            if *more {
                bytes.extend([if *fragment { 44 } else { proto }, 0, 1, 4, 0, 0, 0, 0]);
            }
            if *fragment {
                bytes.extend([proto, 0, 0, 1, 0, 0, 0, 7]);
            }
            return [bytes, body].concat();
        }
        let words = if *more { 6 } else { 5 };
        let mut bytes = vec![0x40 | words, 0, 0, 0, 0, 0, 0, 0, 64, proto, 0, 0];
        bytes[6] = if *fragment { 0x20 } else { 0x40 };
        bytes.extend(src[..4].iter().chain(&dst[..4]));
        bytes.extend(if *more { &[1, 1, 1, 0][..] } else { &[] });
        [bytes, body].concat()
    }

    fn addresses(&self) -> (Vec<u8>, Vec<u8>) {
        let length = if self.ip.v6 { 16 } else { 4 };
        (
            self.ip.src[..length].to_vec(),
            self.ip.dst[..length].to_vec(),
        )
    }

    /// Addresses and the word for ports that `layer3+4` takes.
    fn outer(&self) -> ((Vec<u8>, Vec<u8>), [u8; 4]) {
        let hidden = self.ip.fragment || (self.ip.v6 && self.ip.more);
        match &self.inside {
            _ if hidden => (self.addresses(), [0; 4]),
            Inside::Ports(_, ports) => (self.addresses(), *ports),
            Inside::Icmp(_, kind, code, id) => (self.addresses(), icmp_word(*kind, *code, *id)),
            Inside::Error(_, _, about) => {
                let hidden = about.ip.fragment || (about.ip.v6 && about.ip.more);
                match about.inside {
                    Inside::Ports(_, ports) if !hidden => (about.addresses(), ports),
                    _ => (about.addresses(), [0; 4]),
                }
            }
            Inside::Other(..) | Inside::Packet(..) => (self.addresses(), [0; 4]),
        }
    }

    /// The same of `encap3+4`.
    fn innermost(&self) -> ((Vec<u8>, Vec<u8>), [u8; 4]) {
        match &self.inside {
            _ if self.ip.fragment => (self.addresses(), [0; 4]),
            Inside::Ports(_, ports) => (self.addresses(), *ports),
            Inside::Icmp(_, kind, code, id) => (self.addresses(), icmp_word(*kind, *code, *id)),
            Inside::Packet(_, inner) => inner.innermost(),
            Inside::Error(..) | Inside::Other(..) => (self.addresses(), [0; 4]),
        }
    }
}

/// Type, code and identifier as they lie in the memory of a little-endian machine.
fn icmp_word(kind: u8, code: u8, id: u16) -> [u8; 4] {
    if ![0, 8, 13, 14, 128, 129].contains(&kind) {
        return [0; 4];
    }
    let id = if id == 0 { 1 } else { id };
    [kind, code, (id & 0xff) as u8, (id >> 8) as u8]
}

/// A word of memory, byte by byte.
fn word(bytes: &[u8]) -> u32 {
    let mut all = 0;
    for (at, byte) in bytes.iter().enumerate() {
        all ^= u32::from(*byte) << (8 * (at % 4));
    }
    all
}

/// The kernel's arithmetic, over what a packet was made of.
fn expected(policy: BondPolicy, packet: &Packet, tci: u16) -> u32 {
    let ether_type = if packet.ip.v6 { 0x86dd } else { 0x0800 };
    let of_ethernet = u32::from(TO[5]) ^ u32::from(FROM[5]) ^ ether_type;
    let (outer, outer_ports) = packet.outer();
    let (inner, inner_ports) = packet.innermost();
    let (first, (src, dst)) = match policy {
        BondPolicy::Layer2 => return of_ethernet,
        BondPolicy::VlanSrcMac => return u32::from(tci) ^ 0x02_1122 ^ 0x33_4455,
        BondPolicy::Layer23 => (of_ethernet, outer),
        BondPolicy::Layer34 => (word(&outer_ports), outer),
        BondPolicy::Encap23 => (of_ethernet, inner),
        BondPolicy::Encap34 => (word(&inner_ports), inner),
    };
    let mixed = first ^ word(&src) ^ word(&dst);
    let mixed = mixed ^ mixed >> 16;
    let mixed = mixed ^ mixed >> 8;
    match policy {
        BondPolicy::Layer34 | BondPolicy::Encap34 => mixed / 2,
        _ => mixed,
    }
}

fn frame(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&TO[..], &FROM, &ether_type.to_be_bytes(), payload].concat()
}

fn ip() -> impl Strategy<Value = Ip> {
    let address = any::<[u8; 16]>();
    let seldom = || prop::bool::weighted(0.2);
    (any::<bool>(), address, address, seldom(), seldom()).prop_map(
        |(v6, src, dst, more, fragment)| Ip {
            v6,
            src,
            dst,
            more,
            fragment,
        },
    )
}

fn upper() -> impl Strategy<Value = Inside> {
    let with_ports = prop::sample::select(vec![6u8, 17, 33, 50, 51, 132, 136]);
    let others = prop::sample::select(vec![2u8, 46, 89, 103, 115]);
    // No type that is an error in either family.
    let kinds = prop::sample::select(vec![0u8, 8, 9, 13, 14, 128, 129, 133]);
    prop_oneof![
        (with_ports, any::<[u8; 4]>()).prop_map(|(proto, ports)| Inside::Ports(proto, ports)),
        (others, prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(proto, bytes)| Inside::Other(proto, bytes)),
        (any::<bool>(), kinds, any::<u8>(), 0u16..400)
            .prop_map(|(six, kind, code, id)| Inside::Icmp(six, kind, code, id)),
    ]
}

fn packets() -> impl Strategy<Value = Packet> {
    let plain = (ip(), upper()).prop_map(|(ip, inside)| Packet { ip, inside });
    plain.prop_recursive(3, 8, 1, |inner| {
        let error =
            (ip(), any::<bool>(), inner.clone(), 0usize..4).prop_map(|(ip, six, mut about, at)| {
                // The packet that an error is about is read by the EtherType of the frame.
                about.ip.v6 = ip.v6;
                let kind = if six {
                    [1, 2, 3, 4][at]
                } else {
                    [3, 5, 11, 12][at]
                };
                let inside = Inside::Error(six, kind, Box::new(about));
                Packet { ip, inside }
            });
        let tunnel = (ip(), any::<bool>(), inner).prop_map(|(ip, gre, inner)| Packet {
            ip,
            inside: Inside::Packet(gre, Box::new(inner)),
        });
        prop_oneof![error, tunnel]
    })
}

proptest! {
    #[test]
    fn hashes_are_those_of_what_packets_were_made_of(packet in packets(), tci: u16, padding in 0usize..20) {
        let ether_type = if packet.ip.v6 { 0x86dd } else { 0x0800 };
        let mut frame = frame(ether_type, &packet.bytes());
        // Zeros behind the packet are what is read of a header that is not there, too.
        frame.resize(frame.len() + padding, 0);
        for policy in BondPolicy::ALL {
            let hash = bond_hash(policy, &frame, tci);
            prop_assert_eq!(hash, Some(expected(policy, &packet, tci)), "{}", policy);
        }
    }

    #[test]
    fn of_flows_as_of_packets(
        v6: bool, src: [u8; 16], dst: [u8; 16], ports: [u8; 4],
        proto in prop::sample::select(vec![6u8, 17, 33, 50, 51, 132, 136, 89]),
    ) {
        let ip = Ip { v6, src, dst, more: false, fragment: false };
        let inside = match proto {
            89 => Inside::Other(proto, vec![0; 8]),
            _ => Inside::Ports(proto, ports),
        };
        let packet = Packet { ip, inside };
        let of = |octets: [u8; 16]| match v6 {
            true => std::net::IpAddr::from(octets),
            false => std::net::IpAddr::from([octets[0], octets[1], octets[2], octets[3]]),
        };
        let [a, b, c, d] = ports;
        let (sport, dport) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let flow = Flow::new(of(src), of(dst)).unwrap().ports(proto, sport, dport);
        for policy in BondPolicy::ALL {
            let hash = bond_hash_of_flow(policy, &flow, TO, FROM);
            prop_assert_eq!(hash, Some(expected(policy, &packet, 0)), "{}", policy);
        }
    }

    #[test]
    fn survives_anything(
        mut frame in prop::collection::vec(any::<u8>(), 0..200),
        ether_type in prop::sample::select(vec![
            0x0800u16, 0x0800, 0x86dd, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x8847, 0x8864, 0x88ca, 0x88f7, 0x8902, 0x8906, 0x892f, 0x4305, 9,
        ]),
        proto in prop::sample::select(vec![1u8, 4, 6, 41, 44, 47, 51, 58, 60]),
        tci: u16,
    ) {
        if frame.len() > 23 {
            frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
            let at = if ether_type == 0x86dd { 20 } else { 23 };
            frame[at] = proto;
        }
        for policy in BondPolicy::ALL {
            let hash = bond_hash(policy, &frame, tci);
            let tipc = hash.is_none();
            prop_assert!(!tipc || matches!(policy, BondPolicy::Encap23 | BondPolicy::Encap34));
            for members in [1, 3, usize::MAX] {
                prop_assert!(hash.is_none_or(|hash| bond_member(hash, members).is_none_or(|member| member < members)));
            }
        }
    }
}

fn hashes(frame: &[u8]) -> [Option<u32>; 5] {
    use BondPolicy::*;
    [Layer2, Layer23, Layer34, Encap23, Encap34].map(|policy| bond_hash(policy, frame, 0))
}

/// Worked out with pencil and paper: 10.0.0.1 is the word 0x0100000a, 198.18.0.9 is 0x090012c6, ports 1000 and 53 are
/// 0x3500e803. Exclusive or of the addresses: 0x080012cc; with the ports 0x3d00facf, which becomes 0x3d00c7cf and then
/// 0x3d3dc708 (the last byte 0xcf ^ 0xc7). MAC addresses and EtherType: 0x1f ^ 0x55 ^ 0x0800 = 0x084a; with the addresses
/// 0x08001a86, then 0x08001286, then 0x08081294.
#[test]
fn a_datagram_by_hand() {
    let packet = [
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 198, 18, 0, 9, 3, 232, 0, 53, 0, 8,
        0, 0,
    ];
    let (l2, l23, l34) = (Some(0x084a), Some(0x0808_1294), Some(0x3d3d_c708 >> 1));
    assert_eq!(hashes(&frame(0x0800, &packet)), [l2, l23, l34, l23, l34]);
    // 20 bytes without the ports behind them are still a packet, 19 are none. 0x080012cc becomes 0x08001acc, then 0x08081ad6.
    let without = Some(0x0808_1ad6 >> 1);
    let short = hashes(&frame(0x0800, &packet[..20]));
    assert_eq!(short, [l2, l23, without, l23, without]);
    assert_eq!(hashes(&frame(0x0800, &packet[..19])), [l2; 5]);
}

#[test]
fn frames_without_ip_have_the_hash_of_their_ethernet_header() {
    let of = |ether_type: u16| Some(u32::from(0x1f ^ 0x55 ^ ether_type));
    // The dissector knows ARP, and finds no addresses in it: 0x084c ^ 0x084c >> 8.
    let arp = of(0x0806);
    assert_eq!(
        hashes(&frame(0x0806, &[0; 28])),
        [arp, arp, arp, Some(0x0844), Some(0)]
    );
    let lldp = of(0x88cc);
    assert_eq!(hashes(&frame(0x88cc, &[0; 28])), [lldp; 5]);
    let tipc = of(0x88ca);
    assert_eq!(
        hashes(&frame(0x88ca, &[0; 28])),
        [tipc, tipc, tipc, None, None]
    );
    assert_eq!(hashes(&[0x55; 13]), [Some(0); 5]);
}

/// A tag in the bytes of a frame hides its packet from all but the dissector.
#[test]
fn tags_in_a_frame_are_passed_over_by_the_dissector() {
    let packet = [
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 198, 18, 0, 9, 3, 232, 0, 53, 0, 8,
        0, 0,
    ];
    let [.., plain] = hashes(&frame(0x0800, &packet));
    let tagged = [&[0, 7, 8, 0][..], &packet].concat();
    let [l2, l23, l34, _, encap34] = hashes(&frame(0x8100, &tagged));
    assert_eq!((l2, l23, l34), (Some(0x814a), l2, l2));
    assert_eq!(encap34, plain);
}

#[test]
fn the_tag_beside_a_frame_counts_with_its_priority() {
    let hash = |tci| bond_hash(BondPolicy::VlanSrcMac, &frame(0x0800, &[]), tci);
    assert_eq!(hash(0), Some(0x02_1122 ^ 0x33_4455));
    assert_eq!(hash(0x2007), Some(0x02_1122 ^ 0x33_4455 ^ 0x2007));
}

#[test]
fn a_flow_that_says_too_little_has_no_hash() {
    let flow = |proto| {
        let flow = Flow::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        flow.unwrap().ports(proto, 0, 0)
    };
    let none = |proto| {
        let flow = flow(proto);
        BondPolicy::ALL.map(|policy| bond_hash_of_flow(policy, &flow, TO, FROM).is_none())
    };
    assert_eq!(none(1), [false, true, false, false, true, false]);
    assert_eq!(none(47), [false, false, false, true, true, false]);
    assert_eq!(none(60), [false; 6]);
}

#[test]
fn a_member_is_the_rest_of_the_hash() {
    assert_eq!(bond_member(7, 0), None);
    assert_eq!(bond_member(7, 1), Some(0));
    assert_eq!(bond_member(7, 3), Some(1));
    assert_eq!(bond_member(u32::MAX, 2), Some(1));
}

#[test]
fn numbers_are_those_of_the_kernel() {
    for (number, name) in [(0, "layer2"), (1, "layer3+4"), (2, "layer2+3")] {
        assert_eq!(BondPolicy::from_number(number).unwrap().to_string(), name);
    }
    assert_eq!(BondPolicy::from_number(6), None);
    assert_eq!(BondMode::from_number(4).unwrap().to_string(), "802.3ad");
    assert_eq!(BondMode::from_number(7), None);
}

#[test]
fn members_that_cannot_send_are_passed_over() {
    let member = |name: &str, monitored_up, aggregator| BondMember {
        name: name.into(),
        monitored_up,
        aggregator,
        queue: 0,
    };
    let mut bond = BondMembers {
        members: vec![
            member("c", true, Some(1)),
            member("a", true, Some(2)),
            member("d", false, Some(1)),
            member("b", true, Some(1)),
            member("e", true, None),
        ],
        aggregator: Some(1),
    };
    let sends = |name: &str| name != "b";
    assert_eq!(bond.usable(BondMode::Xor, sends), ["c", "a", "e"]);
    assert_eq!(bond.usable(BondMode::Lacp, |_| true), ["c", "b"]);
    bond.aggregator = None;
    assert!(bond.usable(BondMode::Lacp, |_| true).is_empty());
}
