//! Views against headers that etherparse wrote.
#![allow(clippy::unwrap_used)] // a test may fail

use etherparse::{
    ArpEthIpv4Packet, ArpOperation, ArpPacket, Ethernet2Header, IpFragOffset, IpNumber, Ipv4Header,
    Ipv6FlowLabel, Ipv6Header, SingleVlanHeader, TcpHeader, UdpHeader, VlanId, VlanPcp,
};
use proptest::prelude::*;
use raddle_packet::{Arp, Error, Ethernet, Header, Icmp, Ipv4, Ipv6, Tcp, Udp, Vlan};

fn headers4() -> impl Strategy<Value = Ipv4Header> {
    let numbers = any::<(u16, u8, u8, bool, bool, [u8; 4], [u8; 4])>();
    (numbers, 0u16..0x2000, 0usize..=10, 0usize..40).prop_map(
        |((id, ttl, protocol, dont, more, source, destination), offset, words, payload)| {
            let mut header = Ipv4Header {
                identification: id,
                time_to_live: ttl,
                protocol: IpNumber(protocol),
                dont_fragment: dont,
                more_fragments: more,
                fragment_offset: IpFragOffset::try_new(offset).unwrap(),
                source,
                destination,
                ..Ipv4Header::default()
            };
            header.options = vec![1; words * 4].as_slice().try_into().unwrap();
            header.set_payload_len(payload).unwrap();
            header.header_checksum = header.calc_header_checksum();
            header
        },
    )
}

proptest! {
    #[test]
    fn ipv4(header in headers4(), padding in 0usize..30) {
        let mut bytes = header.to_bytes().to_vec();
        bytes.resize(usize::from(header.total_len) + padding, 0x55);
        let view = Ipv4::new_checked(&bytes).unwrap();
        prop_assert_eq!(view.header_len(), header.header_len());
        prop_assert_eq!(view.total_len(), header.total_len);
        prop_assert_eq!(view.id(), header.identification);
        prop_assert_eq!(view.dont_fragment(), header.dont_fragment);
        prop_assert_eq!(view.more_fragments(), header.more_fragments);
        prop_assert_eq!(view.fragment_offset(), header.fragment_offset.value());
        prop_assert_eq!(view.ttl(), header.time_to_live);
        prop_assert_eq!(view.protocol(), header.protocol.0);
        prop_assert_eq!(view.checksum(), header.header_checksum);
        prop_assert!(view.is_checksum_valid());
        prop_assert_eq!(view.src().octets(), header.source);
        prop_assert_eq!(view.dst().octets(), header.destination);
        prop_assert_eq!(view.l3().unwrap(), &bytes[..usize::from(header.total_len)]);
        prop_assert_eq!(view.dscp_ecn(), 0);
        for length in 0..header.header_len() {
            prop_assert!(Ipv4::new_checked(&bytes[..length]).is_err(), "{}", length);
        }
    }

    #[test]
    fn ttl_goes_down_and_the_checksum_stays_valid(mut header in headers4()) {
        header.time_to_live = header.time_to_live.max(1);
        header.header_checksum = header.calc_header_checksum();
        let mut bytes = header.to_bytes().to_vec();
        Ipv4::new_checked(&mut bytes).unwrap().decrease_ttl();
        header.time_to_live -= 1;
        // Zero and 0xffff are the same sum; the kernel leaves zero.
        let check = match header.calc_header_checksum() {
            0xffff => 0,
            check => check,
        };
        let view = Ipv4::new_checked(&bytes).unwrap();
        prop_assert_eq!((view.ttl(), view.checksum()), (header.time_to_live, check));
        prop_assert!(view.is_checksum_valid());
    }

    #[test]
    fn ipv6(numbers in any::<(u8, u8, u8, [u8; 16], [u8; 16])>(), label in 0u32..0x10_0000, payload in 0u16..50, padding in 0usize..30) {
        let (traffic_class, next, hop_limit, source, destination) = numbers;
        let header = Ipv6Header {
            traffic_class,
            flow_label: Ipv6FlowLabel::try_new(label).unwrap(),
            payload_length: payload,
            next_header: IpNumber(next),
            hop_limit,
            source,
            destination,
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.resize(40 + usize::from(payload) + padding, 0x55);
        let view = Ipv6::new_checked(&bytes).unwrap();
        prop_assert_eq!(view.traffic_class(), traffic_class);
        prop_assert_eq!(view.flow_label(), label);
        prop_assert_eq!(view.payload_len(), payload);
        prop_assert_eq!((view.next_header(), view.hop_limit()), (next, hop_limit));
        prop_assert_eq!((view.src().octets(), view.dst().octets()), (source, destination));
        prop_assert_eq!(view.l3().unwrap().len(), 40 + usize::from(payload));
        let mut after = bytes.clone();
        Ipv6::new_checked(&mut after).unwrap().decrease_hop_limit();
        prop_assert_eq!(after[7], hop_limit.wrapping_sub(1));
        after[7] = hop_limit;
        prop_assert_eq!(after, bytes);
    }

    #[test]
    fn extension_headers_are_walked(kinds in prop::collection::vec((prop::sample::select(vec![0u8, 43, 60]), 0u8..5), 0..6), upper in 61u8..) {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, kinds.first().map_or(upper, |k| k.0), 1];
        packet.resize(40, 0);
        for (i, (_, length)) in kinds.iter().enumerate() {
            packet.extend([kinds.get(i + 1).map_or(upper, |k| k.0), *length]);
            packet.resize(packet.len() + usize::from(*length) * 8 + 6, 9);
        }
        let end = packet.len();
        packet.extend(b"data");
        let view = Ipv6::new_checked(&packet).unwrap();
        let mut walk = view.extensions();
        let found: Result<Vec<_>, _> = walk.by_ref().collect();
        let found: Vec<_> = found.unwrap().iter().map(|e| (e.protocol, e.bytes[1])).collect();
        prop_assert_eq!(found, kinds);
        prop_assert_eq!(walk.upper(), (upper, b"data".as_slice()));
        for length in 40..end {
            let view = Ipv6::new_checked(&packet[..length]).unwrap();
            prop_assert!(view.extensions().any(|e| e.is_err()), "{}", length);
        }
    }

    #[test]
    fn transport(ports in any::<(u16, u16)>(), numbers in any::<(u32, u32, u16)>(), flags in any::<[bool; 8]>(), words in 0usize..=10) {
        let mut tcp = TcpHeader::new(ports.0, ports.1, numbers.0, 1024);
        tcp.acknowledgment_number = numbers.1;
        tcp.checksum = numbers.2;
        [tcp.fin, tcp.syn, tcp.rst, tcp.psh, tcp.ack, tcp.urg, tcp.ece, tcp.cwr] = flags;
        tcp.set_options_raw(&vec![1; words * 4]).unwrap();
        let mut bytes = tcp.to_bytes().to_vec();
        bytes.extend(b"data");
        let view = Tcp::new_checked(&bytes).unwrap();
        prop_assert_eq!((view.sport(), view.dport()), ports);
        prop_assert_eq!((view.sequence(), view.acknowledgement(), view.checksum()), numbers);
        let bits = flags.iter().enumerate().map(|(i, on)| u8::from(*on) << i).sum::<u8>();
        prop_assert_eq!(view.flags(), bits);
        prop_assert_eq!(view.header_len(), 20 + words * 4);
        prop_assert_eq!(view.payload(), b"data");

        let udp = UdpHeader { source_port: ports.0, destination_port: ports.1, length: 12, checksum: numbers.2 };
        let bytes = [udp.to_bytes().as_slice(), b"data"].concat();
        let view = Udp::new_checked(&bytes).unwrap();
        prop_assert_eq!((view.sport(), view.dport()), ports);
        prop_assert_eq!((view.length(), view.checksum(), view.payload()), (12, numbers.2, b"data".as_slice()));
    }

    #[test]
    fn link(source in any::<[u8; 6]>(), destination in any::<[u8; 6]>(), kind in any::<u16>(), id in 0u16..4096, priority in 0u8..8) {
        let header = Ethernet2Header { source, destination, ether_type: kind.into() };
        let mut frame = [header.to_bytes().as_slice(), b"data"].concat();
        let view = Ethernet::new_checked(&frame).unwrap();
        prop_assert_eq!((view.source(), view.destination()), (source, destination));
        prop_assert_eq!((view.ether_type(), view.payload()), (kind, b"data".as_slice()));
        let mut view = Ethernet::new_checked(&mut frame).unwrap();
        view.set_addresses(source, destination);
        view.payload_mut()[0] = b'D';
        prop_assert_eq!((view.source(), view.destination()), (destination, source));
        prop_assert_eq!((view.ether_type(), view.payload()), (kind, b"Data".as_slice()));

        let tag = SingleVlanHeader {
            pcp: VlanPcp::try_new(priority).unwrap(),
            drop_eligible_indicator: true,
            vlan_id: VlanId::try_new(id).unwrap(),
            ether_type: kind.into(),
        };
        let bytes = tag.to_bytes();
        let view = Vlan::new_checked(&bytes).unwrap();
        prop_assert_eq!((view.id(), view.priority(), view.ether_type()), (id, priority, kind));
        prop_assert!(view.payload().is_empty());
    }

    #[test]
    fn arp(macs in any::<([u8; 6], [u8; 6])>(), ips in any::<([u8; 4], [u8; 4])>(), operation in any::<u16>()) {
        let message = ArpPacket::from(ArpEthIpv4Packet {
            operation: ArpOperation(operation),
            sender_mac: macs.0,
            sender_ipv4: ips.0,
            target_mac: macs.1,
            target_ipv4: ips.1,
        });
        let bytes = message.to_bytes();
        let view = Arp::new_checked(&bytes).unwrap();
        prop_assert_eq!(view.operation(), operation);
        prop_assert_eq!((view.sender_mac(), view.target_mac()), macs);
        prop_assert_eq!((view.sender().octets(), view.target().octets()), ips);
    }

    /// Whatever a view is made of, it can be asked everything.
    #[test]
    fn survives_anything(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        if let Ok(view) = Ipv4::new_checked(&bytes) {
            let _ = (view.l3(), view.is_checksum_valid(), view.header_len());
        }
        if let Ok(view) = Ipv6::new_checked(&bytes) {
            let _ = view.l3();
            prop_assert!(view.extensions().take(100).count() < 100);
        }
        if let Ok(view) = Tcp::new_checked(&bytes) {
            let _ = (view.payload(), view.checksum());
        }
        let _ = Udp::new_checked(&bytes).map(|view| view.payload().len());
        let _ = Icmp::new_checked(&bytes).map(|view| view.payload().len());
        let _ = Arp::new_checked(&bytes).map(|view| view.target());
        let _ = Ethernet::new_checked(&bytes).map(|view| view.payload().len());
    }
}

#[test]
fn fragment_headers() {
    let mut packet = vec![0x60, 0, 0, 0, 0, 16, 44, 1];
    packet.resize(40, 0);
    packet.extend([60, 0, 0, 1, 0, 0, 0, 7, 17, 0, 0, 0, 0, 0, 0, 0]);
    let fields = |packet: &[u8]| {
        let view = Ipv6::new_checked(packet).unwrap();
        let mut walk = view.extensions();
        let all: Vec<_> = walk.by_ref().map(|e| e.unwrap().fragment()).collect();
        (
            all[0].map(|f| (f.offset, f.more, f.id)),
            all.len(),
            walk.upper().0,
        )
    };
    assert_eq!(fields(&packet), (Some((0, true, 7)), 2, 17));
    // What follows a later fragment's header is the middle of something.
    packet[43] = 8;
    assert_eq!(fields(&packet), (Some((1, false, 7)), 1, 59));
}

#[test]
fn icmp_fields() {
    let view = Icmp::new_checked([3, 4, 0x12, 0x34, 0, 0, 5, 0xdc, 0x45]).unwrap();
    assert_eq!((view.kind(), view.code(), view.checksum()), (3, 4, 0x1234));
    assert_eq!(view.payload(), [0x45]);
}

#[test]
fn refusals_say_what_and_why() {
    let refused = |bytes: &[u8]| Ipv4::new_checked(bytes).map(|_| ()).unwrap_err();
    let error = refused(&[0x45; 19]);
    assert_eq!(
        error.to_string(),
        "IPv4 header needs 20 bytes, there are 19"
    );
    assert_eq!(
        refused(&[0x46; 23]).to_string(),
        "IPv4 header needs 24 bytes, there are 23"
    );
    assert_eq!(
        refused(&[0x65; 20]).to_string(),
        "IPv4 header has version 6"
    );
    assert_eq!(
        refused(&[0x44; 20]).to_string(),
        "IPv4 header says that it is 16 bytes long"
    );
    let mut packet = [0; 30];
    (packet[0], packet[3]) = (0x45, 31);
    let error = Ipv4::new_checked(&packet).unwrap().l3().unwrap_err();
    assert_eq!(
        error.to_string(),
        "IPv4 says that the packet is 31 bytes long, there are 30"
    );
    packet[3] = 19;
    assert!(
        Ipv4::new_checked(&packet).unwrap().l3().is_err(),
        "shorter than its header"
    );
    assert_eq!(
        Tcp::new_checked([0x40; 20]).map(|_| ()).unwrap_err(),
        Error::HeaderLength {
            header: Header::Tcp,
            length: 16
        }
    );
    assert_eq!(
        Arp::new_checked([0; 28]).map(|_| ()).unwrap_err(),
        Error::NotEthernetIpv4
    );
}
