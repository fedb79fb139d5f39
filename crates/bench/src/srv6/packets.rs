//! The packets that are measured with: UDP with another source port each, as a SID takes them.

use std::net::Ipv6Addr;

use raddle_packet::checksum;
use raddle_xdp::bench::Template;

use super::network::{BEHIND6, What};
use crate::router::{GENERATOR_MAC, IN_MAC};
use raddle_exit::Failure;

/// Bytes of an Ethernet header.
pub(super) const ETHERNET: usize = 14;
/// Bytes of an IPv6 header.
const IPV6: usize = 40;
/// The generator.
const SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// A packet to `to`, of the kind that the behaviour takes.
pub(super) fn payload(what: What, to: Ipv6Addr) -> Result<Template, Failure> {
    let (frame, port_at) = frame(what, to);
    Template::new(frame, port_at).map_err(|e| Failure::system(e.to_string()))
}

/// The same as bytes, and where the UDP source port is in it.
fn frame(what: What, to: Ipv6Addr) -> (Vec<u8>, u8) {
    let port_behind = |header: usize| (ETHERNET + header) as u8;
    let packet = match what {
        What::Encaps => return (ethernet(&ipv6(to, 17, &udp())), port_behind(IPV6)),
        What::End | What::EndX => {
            // Of two segments the second is still to be visited.
            let srh = srh(17, 1, &[BEHIND6, to]);
            ipv6(to, 43, &[srh, udp()].concat())
        }
        What::Dx2 => decapsulated(to, 143, &inner_frame()),
        What::Dx4 => decapsulated(to, 4, &ipv4(&udp())),
        What::Dx6 => decapsulated(to, 41, &ipv6(BEHIND6, 17, &udp())),
    };
    let frame = ethernet(&packet);
    // The UDP header and payload come last.
    let port_at = (frame.len() - udp().len()) as u8;
    (frame, port_at)
}

/// A payload behind an SRH of one segment, which is the last.
fn decapsulated(to: Ipv6Addr, proto: u8, payload: &[u8]) -> Vec<u8> {
    ipv6(to, 43, &[&srh(proto, 0, &[to])[..], payload].concat())
}

fn ethernet(packet: &[u8]) -> Vec<u8> {
    [&IN_MAC[..], &GENERATOR_MAC, &[0x86, 0xdd], packet].concat()
}

/// An Ethernet frame with a small IPv4 packet, as End.DX2 brings it.
fn inner_frame() -> Vec<u8> {
    let macs = [2, 0, 0, 0, 1, 1, 2, 0, 0, 0, 1, 2];
    [&macs[..], &[8, 0], &ipv4(&udp())].concat()
}

fn ipv6(to: Ipv6Addr, next: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((body.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    packet.extend(SOURCE.octets());
    packet.extend(to.octets());
    packet.extend(body);
    packet
}

fn ipv4(body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((20 + body.len() as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend([10, 0, 0, 2, 198, 51, 1, 9]);
    let sum = checksum::checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(body);
    packet
}

fn srh(next: u8, left: u8, list: &[Ipv6Addr]) -> Vec<u8> {
    let mut srh = vec![
        next,
        list.len() as u8 * 2,
        4,
        left,
        list.len() as u8 - 1,
        0,
        0,
        0,
    ];
    srh.extend(list.iter().flat_map(|segment| segment.octets()));
    srh
}

/// Whatever its length, frames end with whole words for the generator, see [`Template::new`].
fn udp() -> Vec<u8> {
    let mut udp = vec![0, 1, 0, 2, 0, 18, 0, 0];
    udp.resize(18, 0x2a);
    udp
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_what_they_say() {
        let sid: Ipv6Addr = "5f00::1".parse().unwrap();
        for what in What::ALL {
            let (bytes, port_at) = frame(what, sid);
            let port_at = usize::from(port_at);
            assert_eq!(bytes[port_at..port_at + 4], [0, 1, 0, 2], "{what:?}");
            let length = u16::from_be_bytes([bytes[18], bytes[19]]);
            assert_eq!(usize::from(length), bytes.len() - 54, "{what:?}");
            assert!(Template::new(bytes.clone(), 0).is_ok(), "{what:?}");
            if what != What::Encaps {
                let srh = raddle_packet::srh::Srh::new_checked(&bytes[54..], true).unwrap();
                let left = u8::from(matches!(what, What::End | What::EndX));
                assert_eq!(srh.segments_left(), left, "{what:?}");
            }
        }
    }
}
