//! The flow dissector against packets that are built from what it should find in them.
#![allow(clippy::unwrap_used)] // a test may fail

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use raddle_packet::{Addresses, Dissected, Family, MAX_HEADERS, Stop, dissect, dissect_whole};

/// One IP packet of a stack of them: from its header to the header of what it carries.
#[derive(Clone, Debug)]
struct Ip {
    addresses: Addresses,
    label: u32,
    /// IPv4: option words. IPv6: kinds of extension headers and their extra length.
    extras: Vec<(u8, u8)>,
    /// How this packet is attached to the one around it.
    tunnel: Tunnel,
}

#[derive(Clone, Debug)]
enum Tunnel {
    Plain,
    Gre {
        checksum: bool,
        key: bool,
        sequence: bool,
        /// An Ethernet header, and that many VLAN tags.
        frame: Option<usize>,
    },
    Pptp {
        sequence: bool,
        acknowledgement: bool,
    },
}

#[derive(Clone, Debug)]
enum Upper {
    /// A protocol whose ports are looked at, and its first bytes.
    Ports(u8, u16, u16),
    /// A protocol without ports.
    Other(u8),
    /// A fragment of this protocol: offset in units of 8 bytes, more follow.
    Fragment(u8, u16, bool),
}

impl Ip {
    fn family(&self) -> Family {
        match self.addresses {
            Addresses::V6 { .. } => Family::V6,
            _ => Family::V4,
        }
    }

    fn ether_type(&self) -> u16 {
        match self.family() {
            Family::V4 => 0x0800,
            Family::V6 => 0x86dd,
        }
    }

    /// Number by which the packet around this one names what comes next.
    fn protocol(&self) -> u8 {
        match (&self.tunnel, self.family()) {
            (Tunnel::Plain, Family::V4) => 4,
            (Tunnel::Plain, Family::V6) => 41,
            _ => 47,
        }
    }

    fn write(&self, protocol: u8, fragment: Option<(u16, bool)>, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match self.addresses {
            Addresses::V4 { src, dst } => {
                let words = 5 + self.extras.len().min(10);
                let (offset, more) = fragment.unwrap_or((0, false));
                out.extend([0x40 | words as u8, 0]);
                out.extend(((words * 4 + payload.len()) as u16).to_be_bytes());
                out.extend([0, 0]);
                out.extend((offset | if more { 0x2000 } else { 0x4000 }).to_be_bytes());
                out.extend([64, protocol, 0, 0]);
                out.extend(src.octets());
                out.extend(dst.octets());
                out.resize(words * 4, 1);
                out.extend(payload);
            }
            Addresses::V6 { src, dst } => {
                let mut body = payload.to_vec();
                let mut next = protocol;
                if let Some((offset, more)) = fragment {
                    let mut header = vec![next, 0];
                    header.extend((offset << 3 | u16::from(more)).to_be_bytes());
                    header.extend([1, 2, 3, 4]);
                    body.splice(0..0, header);
                    next = 44;
                }
                for (kind, length) in self.extras.iter().rev() {
                    let mut header = vec![next, *length];
                    header.resize((usize::from(*length) + 1) * 8, 0xee);
                    body.splice(0..0, header);
                    next = *kind;
                }
                out.extend((0x6ab0_0000 | self.label).to_be_bytes());
                out.extend((body.len() as u16).to_be_bytes());
                out.extend([next, 64]);
                out.extend(src.octets());
                out.extend(dst.octets());
                out.extend(body);
            }
            Addresses::None => unreachable!("packets have addresses"),
        }
        out
    }

    fn write_tunnel(&self, packet: Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        match self.tunnel {
            Tunnel::Plain => {}
            Tunnel::Gre {
                checksum,
                key,
                sequence,
                frame,
            } => {
                let bit = |on, bit: u8| if on { bit } else { 0 };
                out.extend([
                    bit(checksum, 0x80) | bit(key, 0x20) | bit(sequence, 0x10),
                    0,
                ]);
                out.extend(frame.map_or(self.ether_type(), |_| 0x6558).to_be_bytes());
                let words = [checksum, key, sequence].iter().filter(|on| **on).count();
                out.resize(4 + words * 4, 0xaa);
                if let Some(tags) = frame {
                    out.extend([2; 12]);
                    out.extend([0x81, 0, 0, 7].repeat(tags));
                    out.extend(self.ether_type().to_be_bytes());
                }
            }
            Tunnel::Pptp {
                sequence,
                acknowledgement,
            } => {
                let (s, a) = (u8::from(sequence), u8::from(acknowledgement));
                out.extend([0x20 | s << 4, a << 7 | 1, 0x88, 0x0b]);
                out.resize(out.len() + 4 + usize::from(s + a) * 4, 0xbb);
                let ppp = if self.family() == Family::V4 {
                    0x21
                } else {
                    0x57
                };
                out.extend([0xff, 3, 0, ppp]);
            }
        }
        out.extend(packet);
        out
    }

    /// Steps that the dissector counts against its limit for this packet.
    fn steps(&self) -> u32 {
        let extensions = match self.family() {
            Family::V4 => 0,
            Family::V6 => self.extras.len() as u32,
        };
        let tags = match self.tunnel {
            Tunnel::Gre { frame, .. } => frame.unwrap_or(0) as u32,
            _ => 0,
        };
        extensions + tags + 1
    }
}

fn build(stack: &[Ip], upper: &Upper) -> Vec<u8> {
    let (mut protocol, mut fragment, mut packet) = match *upper {
        Upper::Ports(protocol, sport, dport) => {
            let mut bytes = vec![0x11; if protocol == 51 { 4 } else { 0 }];
            bytes.extend(sport.to_be_bytes());
            bytes.extend(dport.to_be_bytes());
            bytes.extend([0x22; 16]);
            (protocol, None, bytes)
        }
        Upper::Other(protocol) => (protocol, None, vec![0x33; 24]),
        Upper::Fragment(protocol, offset, more) => (protocol, Some((offset, more)), vec![0x44; 24]),
    };
    for ip in stack.iter().rev() {
        packet = ip.write_tunnel(ip.write(protocol, fragment.take(), &packet));
        protocol = ip.protocol();
    }
    packet
}

/// `stop` is none for what stops at flow labels ([`dissect_whole`]).
fn expected(stack: &[Ip], upper: &Upper, stop: Option<Stop>) -> Dissected {
    let is_v6 = |ip: &&Ip| ip.family() == Family::V6 && ip.label != 0;
    let labelled = stack.iter().position(|ip| is_v6(&ip));
    let shown = match (stop, labelled) {
        (Some(Stop::AtEncap), _) => &stack[..1],
        (None, Some(last)) => &stack[..=last],
        (Some(Stop::Innermost) | None, _) => stack,
    };
    let mut seen = Dissected {
        addresses: shown.last().unwrap().addresses,
        ip_proto: 0,
        sport: 0,
        dport: 0,
        flow_label: 0,
        encapsulated: stack.len() > 1,
        fragment: false,
    };
    if let Some(ip) = shown.iter().rfind(is_v6) {
        seen.flow_label = ip.label;
    }
    if stop.is_none() && labelled.is_some() {
        // What the header itself says comes next.
        seen.encapsulated = shown.len() > 1;
        let extra = shown.last().unwrap().extras.first().map(|(kind, _)| *kind);
        seen.ip_proto = extra.unwrap_or(match (stack.get(shown.len()), upper) {
            (Some(inside), _) => inside.protocol(),
            (None, Upper::Ports(protocol, ..) | Upper::Other(protocol)) => *protocol,
            (None, Upper::Fragment(..)) => 44,
        });
        return seen;
    }
    if let Some(next) = stack.get(shown.len()) {
        seen.ip_proto = next.protocol();
        return seen;
    }
    match *upper {
        Upper::Ports(protocol, sport, dport) => {
            (seen.ip_proto, seen.sport, seen.dport) = (protocol, sport, dport);
        }
        Upper::Other(protocol) => seen.ip_proto = protocol,
        Upper::Fragment(protocol, ..) => {
            (seen.ip_proto, seen.fragment) = (protocol, true);
        }
    }
    seen
}

fn addresses() -> impl Strategy<Value = Addresses> {
    let v4 = any::<(u32, u32)>().prop_map(|(src, dst)| Addresses::V4 {
        src: src.into(),
        dst: dst.into(),
    });
    let v6 = any::<(u128, u128)>().prop_map(|(src, dst)| Addresses::V6 {
        src: src.into(),
        dst: dst.into(),
    });
    prop_oneof![v4, v6]
}

fn tunnels() -> impl Strategy<Value = Tunnel> {
    let gre = (any::<[bool; 3]>(), prop::option::of(0usize..3));
    let gre = gre.prop_map(|([checksum, key, sequence], frame)| Tunnel::Gre {
        checksum,
        key,
        sequence,
        frame,
    });
    let pptp = any::<(bool, bool)>().prop_map(|(sequence, acknowledgement)| Tunnel::Pptp {
        sequence,
        acknowledgement,
    });
    prop_oneof![3 => Just(Tunnel::Plain), 3 => gre, 1 => pptp]
}

fn uppers() -> impl Strategy<Value = Upper> {
    let ports = prop::sample::select(vec![6u8, 17, 33, 50, 51, 132, 136]);
    let others = prop::sample::select(vec![1u8, 2, 58, 59, 89, 137, 115, 255]);
    let offset = prop_oneof![Just(0), 0u16..0x2000];
    let any_protocol = prop_oneof![ports.clone(), others.clone(), Just(4), Just(47)];
    prop_oneof![
        (ports, any::<(u16, u16)>()).prop_map(|(p, (s, d))| Upper::Ports(p, s, d)),
        others.prop_map(Upper::Other),
        (any_protocol, offset, any::<bool>())
            .prop_filter("IPv4 needs one of both to be a fragment", |(_, o, m)| *o
                != 0
                || *m)
            .prop_map(|(p, o, m)| Upper::Fragment(p, o, m)),
    ]
}

fn stacks() -> impl Strategy<Value = Vec<Ip>> {
    let extra = (prop::sample::select(vec![0u8, 43, 60]), 0u8..4);
    let label = prop_oneof![Just(0), 0u32..0x10_0000];
    let ip = (
        addresses(),
        label,
        prop::collection::vec(extra, 0..4),
        tunnels(),
    );
    let ip = ip.prop_map(|(addresses, label, extras, tunnel)| Ip {
        addresses,
        label,
        extras,
        tunnel,
    });
    prop::collection::vec(ip, 1..5).prop_map(|mut stack| {
        stack[0].tunnel = Tunnel::Plain;
        stack
    })
}

proptest! {
    #[test]
    fn finds_what_was_put_in(stack in stacks(), upper in uppers()) {
        prop_assume!(stack.iter().map(Ip::steps).sum::<u32>() <= MAX_HEADERS);
        let packet = build(&stack, &upper);
        for stop in [Stop::AtEncap, Stop::Innermost] {
            let seen = dissect(&packet, stack[0].family(), stop);
            prop_assert_eq!(seen, expected(&stack, &upper, Some(stop)), "{:?} {:02x?}", stop, &packet);
        }
        let seen = dissect_whole(&packet, stack[0].family()).seen;
        prop_assert_eq!(seen, expected(&stack, &upper, None), "{:02x?}", &packet);
    }

    /// A packet cut short shows a part of what the whole shows, never something else.
    #[test]
    fn truncation_only_hides(stack in stacks(), upper in uppers()) {
        let packet = build(&stack, &upper);
        let family = stack[0].family();
        let whole = dissect(&packet, family, Stop::AtEncap);
        let header = match family {
            Family::V4 => 20,
            Family::V6 => 40,
        };
        for length in 0..packet.len() {
            let cut = dissect(&packet[..length], family, Stop::AtEncap);
            let addresses = if length < header { Addresses::None } else { whole.addresses };
            prop_assert_eq!(cut.addresses, addresses);
            prop_assert!((cut.sport, cut.dport) == (0, 0)
                || (cut.sport, cut.dport) == (whole.sport, whole.dport));
            prop_assert!(whole.encapsulated || !cut.encapsulated);
            prop_assert!(whole.fragment || !cut.fragment);
        }
    }

    #[test]
    fn survives_anything(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for family in [Family::V4, Family::V6] {
            for stop in [Stop::AtEncap, Stop::Innermost] {
                dissect(&bytes, family, stop);
            }
        }
    }

    #[test]
    fn survives_damage(
        stack in stacks(),
        upper in uppers(),
        damage in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut packet = build(&stack, &upper);
        for (place, value) in damage {
            let place = place.index(packet.len());
            packet[place] = value;
        }
        packet.truncate(cut.index(packet.len() + 1));
        for stop in [Stop::AtEncap, Stop::Innermost] {
            dissect(&packet, stack[0].family(), stop);
        }
    }

    /// etherparse reads the same from what both understand.
    #[test]
    fn agrees_with_etherparse(stack in stacks(), protocol in prop_oneof![Just(6u8), Just(17)], ports in any::<(u16, u16)>()) {
        use etherparse::{LaxSlicedPacket, TransportSlice};
        let mut packet = build(&stack[..1], &Upper::Ports(protocol, ports.0, ports.1));
        if protocol == 6 {
            let at = packet.len() - 20 + 12;
            packet[at] = 5 << 4;
        }
        let seen = dissect(&packet, stack[0].family(), Stop::AtEncap);
        let theirs = LaxSlicedPacket::from_ip(&packet).unwrap();
        let their_ports = match theirs.transport {
            Some(TransportSlice::Tcp(tcp)) => (tcp.source_port(), tcp.destination_port()),
            Some(TransportSlice::Udp(udp)) => (udp.source_port(), udp.destination_port()),
            // An order of extension headers that etherparse does not follow.
            _ => return Ok(()),
        };
        prop_assert_eq!((seen.sport, seen.dport), their_ports);
    }
}

fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ip(Family::V4).write(protocol, None, payload)
}

fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    ip(Family::V6).write(next, None, payload)
}

fn ip(family: Family) -> Ip {
    let addresses = match family {
        Family::V4 => Addresses::V4 {
            src: Ipv4Addr::new(10, 0, 0, 1),
            dst: Ipv4Addr::new(198, 18, 0, 9),
        },
        Family::V6 => Addresses::V6 {
            src: Ipv6Addr::LOCALHOST,
            dst: Ipv6Addr::UNSPECIFIED,
        },
    };
    Ip {
        addresses,
        label: 0,
        extras: vec![],
        tunnel: Tunnel::Plain,
    }
}

fn innermost(l3: &[u8]) -> Dissected {
    let family = if l3[0] >> 4 == 4 {
        Family::V4
    } else {
        Family::V6
    };
    dissect(l3, family, Stop::Innermost)
}

const PORTS: [u8; 4] = [0, 1, 0, 2];

#[test]
fn extension_headers_do_not_count_over_ipv4() {
    for protocol in [0, 43, 44, 60] {
        let seen = innermost(&v4(protocol, &[17, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2]));
        assert_eq!(
            (seen.ip_proto, seen.sport, seen.fragment),
            (protocol, 0, false)
        );
    }
}

#[test]
fn the_limit_is_fifteen_headers() {
    let chain = |n: usize| {
        let mut bytes = vec![];
        for i in 0..n {
            bytes.extend([if i + 1 == n { 17 } else { 60 }, 0, 0, 0, 0, 0, 0, 0]);
        }
        bytes.extend(PORTS);
        v6(60, &bytes)
    };
    // The ports behind the sixteenth are still seen: they are looked for after each header.
    for n in [1, 15, 16] {
        let seen = innermost(&chain(n));
        assert_eq!((seen.ip_proto, seen.sport, seen.dport), (17, 1, 2), "{n}");
    }
    let seen = innermost(&chain(17));
    assert_eq!((seen.ip_proto, seen.sport), (60, 0));
    let mut nested = v4(17, &PORTS);
    for _ in 0..20 {
        nested = v4(4, &nested);
    }
    assert_eq!(innermost(&nested).ip_proto, 4);
}

#[test]
fn gre_is_left_alone_where_the_kernel_leaves_it() {
    let inner = v4(17, &PORTS);
    let gre = |head: [u8; 4]| v4(47, &[head.as_slice(), &[0; 12], inner.as_slice()].concat());
    for head in [
        [0x40, 0, 8, 0],    // routing
        [0, 2, 8, 0],       // version 2
        [0x20, 1, 8, 0],    // version 1 without PPP
        [0, 1, 0x88, 0x0b], // version 1 without key
    ] {
        let seen = innermost(&gre(head));
        assert_eq!(
            (seen.ip_proto, seen.encapsulated),
            (47, false),
            "{head:02x?}"
        );
    }
    // Encapsulated, but in something that has no addresses.
    let seen = innermost(&gre([0, 0, 0x88, 0x47]));
    assert_eq!((seen.ip_proto, seen.encapsulated), (47, true));
    assert_eq!(seen.addresses, ip(Family::V4).addresses);
}

#[test]
fn link_layers_inside_gre() {
    let inner = v6(17, &PORTS);
    let gre =
        |kind: [u8; 2], head: &[u8]| v4(47, &[&[0, 0], &kind, head, inner.as_slice()].concat());
    let mut batman = vec![0; 24];
    (batman[0], batman[1], batman[22], batman[23]) = (0x40, 15, 0x86, 0xdd);
    for (kind, head) in [
        ([0x88, 0xa8], vec![0, 1, 0x81, 0, 0, 2, 0x86, 0xdd]),
        ([0x89, 0x2f], vec![0, 0, 0, 0, 0x86, 0xdd]),
        ([0x88, 0xfb], vec![0, 0, 0, 0, 0x86, 0xdd]),
        ([0x88, 0x64], vec![0x11, 0, 0, 1, 0, 0, 0, 0x57]),
        ([0x43, 0x05], batman),
    ] {
        let seen = innermost(&gre(kind, &head));
        assert_eq!(seen.addresses, ip(Family::V6).addresses, "{kind:02x?}");
        assert_eq!(
            (seen.ip_proto, seen.sport, seen.dport),
            (17, 1, 2),
            "{kind:02x?}"
        );
    }
    // TIPC's own address takes the place of the IP addresses.
    assert_eq!(
        innermost(&gre([0x88, 0xca], &[0; 16])).addresses,
        Addresses::None
    );
    for (kind, head) in [
        ([0x88, 0x64], vec![0x12, 0, 0, 1, 0, 0, 0, 0x57]),
        ([0x88, 0x64], vec![0x11, 1, 0, 1, 0, 0, 0, 0x57]),
        ([0x88, 0x64], vec![0x11, 0, 0, 1, 0, 0, 0, 0x58]),
        ([0x88, 0x64], vec![0x11, 0, 0, 1, 0, 0, 0x57]),
        ([0x43, 0x05], vec![0x41, 15, 0, 0, 0, 0, 0, 0]),
        ([0x43, 0x05], vec![0x40, 14, 0, 0, 0, 0, 0, 0]),
    ] {
        let seen = innermost(&gre(kind, &head));
        assert_eq!(
            (seen.ip_proto, seen.sport),
            (47, 0),
            "{kind:02x?} {head:02x?}"
        );
    }
}

#[test]
fn what_was_seen_before_the_end_stays() {
    // An inner header that is cut off: the outer addresses, but encapsulated.
    let seen = innermost(&v4(41, &[0x60; 39]));
    assert_eq!((seen.ip_proto, seen.encapsulated), (41, true));
    assert_eq!(seen.addresses, ip(Family::V4).addresses);
    // A bad inner header length.
    let mut inner = v6(17, &PORTS);
    inner[0] = 0x44;
    assert_eq!(innermost(&v4(4, &inner)).ip_proto, 4);
    // Ports of which one byte is missing.
    let seen = innermost(&v4(17, &PORTS[..3]));
    assert_eq!((seen.ip_proto, seen.sport, seen.dport), (17, 0, 0));
    // An option header of which there is only one byte, and a fragment header without its last.
    assert_eq!(innermost(&v6(60, &[17])).ip_proto, 60);
    let seen = innermost(&v6(44, &[17, 0, 0, 0, 0, 0, 0]));
    assert_eq!((seen.ip_proto, seen.fragment), (44, false));
}
