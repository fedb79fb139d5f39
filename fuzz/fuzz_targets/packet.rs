//! Any bytes as a packet: no view reads past them, and the dissector does not contradict itself.
#![no_main]

use std::hint::black_box;

use libfuzzer_sys::fuzz_target;
use raddle_packet::{
    Arp, Ethernet, Family, Icmp, Ipv4, Ipv6, Stop, Tcp, Udp, Vlan, checksum, dissect,
};

fuzz_target!(|data: &[u8]| {
    // The bytes as a packet, and as a frame.
    l3(data);
    if let Ok(frame) = Ethernet::new_checked(data) {
        black_box((frame.destination(), frame.source(), frame.ether_type()));
        l3(frame.payload());
        if let Ok(tag) = Vlan::new_checked(frame.payload()) {
            black_box((tag.id(), tag.priority(), tag.ether_type()));
            l3(tag.payload());
        }
    }
    let mut copy = data.to_vec();
    if let Ok(mut frame) = Ethernet::new_checked(copy.as_mut_slice()) {
        frame.set_addresses([1; 6], [2; 6]);
        assert_eq!((frame.destination(), frame.source()), ([1; 6], [2; 6]));
    }
});

fn l3(bytes: &[u8]) {
    for family in [Family::V4, Family::V6] {
        let outer = dissect(bytes, family, Stop::AtEncap);
        let inner = dissect(bytes, family, Stop::Innermost);
        // Where there is nothing inside, it does not matter where to stop.
        assert!(inner.encapsulated || inner == outer, "{outer:?} {inner:?}");
    }
    ipv4(bytes);
    ipv6(bytes);
    upper(bytes);
    if let Ok(arp) = Arp::new_checked(bytes) {
        black_box((arp.operation(), arp.sender_mac(), arp.sender()));
        black_box((arp.target_mac(), arp.target()));
    }
}

fn ipv4(bytes: &[u8]) {
    let Ok(packet) = Ipv4::new_checked(bytes) else {
        return;
    };
    black_box((packet.dscp_ecn(), packet.id(), packet.dont_fragment()));
    black_box((packet.more_fragments(), packet.fragment_offset()));
    black_box((packet.protocol(), packet.src(), packet.dst()));
    let header = &bytes[..packet.header_len()];
    assert_eq!(packet.is_checksum_valid(), checksum::is_valid(header));
    if let Ok(l3) = packet.l3() {
        assert_eq!(l3.len(), usize::from(packet.total_len()));
        upper(&l3[packet.header_len()..]);
    }
    let mut copy = bytes.to_vec();
    if let Ok(mut less) = Ipv4::new_checked(copy.as_mut_slice()) {
        less.decrease_ttl();
        assert_eq!(less.ttl(), packet.ttl().wrapping_sub(1));
        // A TTL that wraps is no forwarded packet.
        if packet.ttl() > 0 && packet.is_checksum_valid() {
            assert!(less.is_checksum_valid());
        }
    }
}

fn ipv6(bytes: &[u8]) {
    let Ok(packet) = Ipv6::new_checked(bytes) else {
        return;
    };
    black_box((packet.traffic_class(), packet.src(), packet.dst()));
    assert!(packet.flow_label() < 1 << 20);
    if let Ok(l3) = packet.l3() {
        assert_eq!(l3.len(), 40 + usize::from(packet.payload_len()));
    }
    let mut walk = packet.extensions();
    let mut walked = 0;
    for extension in walk.by_ref().flatten() {
        assert!(extension.bytes.len() >= 8);
        walked += extension.bytes.len();
        black_box(extension.fragment());
    }
    assert_eq!(walked + walk.upper().1.len(), bytes.len() - 40);
    upper(walk.upper().1);
    let mut copy = bytes.to_vec();
    if let Ok(mut less) = Ipv6::new_checked(copy.as_mut_slice()) {
        less.decrease_hop_limit();
        assert_eq!(less.hop_limit(), packet.hop_limit().wrapping_sub(1));
    }
}

fn upper(bytes: &[u8]) {
    if let Ok(tcp) = Tcp::new_checked(bytes) {
        black_box((tcp.sport(), tcp.dport(), tcp.sequence()));
        black_box((tcp.acknowledgement(), tcp.flags(), tcp.checksum()));
        assert_eq!(tcp.header_len() + tcp.payload().len(), bytes.len());
    }
    if let Ok(udp) = Udp::new_checked(bytes) {
        black_box((udp.sport(), udp.dport(), udp.length(), udp.checksum()));
        assert!(udp.payload().len() <= bytes.len());
    }
    if let Ok(icmp) = Icmp::new_checked(bytes) {
        black_box((icmp.kind(), icmp.code(), icmp.checksum()));
        assert!(icmp.payload().len() <= bytes.len());
    }
}
