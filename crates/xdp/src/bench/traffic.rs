//! What the generator sends.

use std::net::IpAddr;

/// Length of the generator's frames.
pub(super) const LEN: usize = 64;
/// `TEMPLATE` of `bpf/bench.h`: the part of a frame that is written.
const TEMPLATE: usize = 62;
/// Words of `struct traffic` that are used.
const WORDS: usize = 9;
const TRAFFIC_IPV6: u64 = 1;
const TRAFFIC_PORTS: u64 = 2;
const TRAFFIC_DESTINATIONS: u64 = 4;

/// UDP packets in frames of 64 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// MAC address of the router.
    pub dst_mac: [u8; 6],
    /// MAC address of the sender.
    pub src_mac: [u8; 6],
    /// Source address; its family is that of all the traffic.
    pub source: IpAddr,
    /// Destinations, gone through in order again and again; those of the other family are left out.
    pub destinations: Vec<IpAddr>,
    /// Source and destination port.
    pub ports: (u16, u16),
    /// Another source port for every packet instead.
    pub vary_ports: bool,
}

impl Traffic {
    /// The destinations of the right family, as `struct destination`.
    pub(super) fn destination_words(&self) -> impl Iterator<Item = [u64; 2]> + '_ {
        let v6 = self.source.is_ipv6();
        let fitting = self
            .destinations
            .iter()
            .filter(move |to| to.is_ipv6() == v6);
        fitting.map(|to| match to {
            IpAddr::V4(to) => [u64::from(u32::from_le_bytes(to.octets())), 0],
            IpAddr::V6(to) => {
                let both = u128::from_le_bytes(to.octets());
                [both as u64, (both >> 64) as u64]
            }
        })
    }

    /// `struct traffic`, as far as it is not zero.
    pub(super) fn words(&self) -> [u64; WORDS] {
        // One destination is part of the template, which saves the generator a look-up.
        let list = self.destination_words().nth(1).is_some();
        let frame = self.frame(list);
        let mut words = [0; WORDS];
        words[0] = little_endian(&frame[..6]);
        for (word, bytes) in words[1..]
            .iter_mut()
            .zip(frame[6..TEMPLATE].chunks_exact(8))
        {
            *word = little_endian(bytes);
        }
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        let flags = flag(self.source.is_ipv6(), TRAFFIC_IPV6)
            | flag(self.vary_ports, TRAFFIC_PORTS)
            | flag(list, TRAFFIC_DESTINATIONS);
        words[WORDS - 1] = flags | u64::from(self.ports.1.to_be()) << 48;
        words
    }

    /// The first frame; with destination 0 where a list is to be filled in.
    fn frame(&self, list: bool) -> [u8; LEN] {
        let mut frame = [0; LEN];
        frame[..6].copy_from_slice(&self.dst_mac);
        frame[6..12].copy_from_slice(&self.src_mac);
        let to = self.destination_words().next().filter(|_| !list);
        let [high, low] = to.unwrap_or_default();
        let udp = match self.source {
            IpAddr::V4(source) => {
                frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 17]);
                frame[26..30].copy_from_slice(&source.octets());
                frame[30..34].copy_from_slice(&(high as u32).to_le_bytes());
                let sum = header_checksum(&frame[14..34]);
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
                34
            }
            IpAddr::V6(source) => {
                frame[12..22].copy_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 10, 17, 64]);
                frame[22..38].copy_from_slice(&source.octets());
                frame[38..46].copy_from_slice(&high.to_le_bytes());
                frame[46..54].copy_from_slice(&low.to_le_bytes());
                54
            }
        };
        frame[udp..udp + 2].copy_from_slice(&self.ports.0.to_be_bytes());
        frame[udp + 2..udp + 4].copy_from_slice(&self.ports.1.to_be_bytes());
        frame[udp + 4..udp + 6].copy_from_slice(&((LEN - udp) as u16).to_be_bytes());
        frame
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    let both = bytes.iter().rev();
    both.fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// The checksum of a header whose checksum is zero.
fn header_checksum(header: &[u8]) -> u16 {
    let pairs = header.chunks_exact(2);
    let mut sum: u32 = pairs
        .map(|p| u32::from(u16::from_be_bytes([p[0], p[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(source: &str, destinations: &[&str]) -> Traffic {
        Traffic {
            dst_mac: [2, 0, 0, 0, 0, 1],
            src_mac: [2, 0, 0, 0, 0, 2],
            source: source.parse().unwrap(),
            destinations: destinations.iter().map(|to| to.parse().unwrap()).collect(),
            ports: (1, 2),
            vary_ports: true,
        }
    }

    #[test]
    fn frames_are_what_they_say() {
        let frame = traffic("10.0.0.1", &["10.0.0.2"]).frame(false);
        let parsed = etherparse::PacketHeaders::from_ethernet_slice(&frame).unwrap();
        let Some(etherparse::NetHeaders::Ipv4(ip, _)) = parsed.net else {
            panic!("{parsed:?}");
        };
        assert_eq!(ip.destination, [10, 0, 0, 2]);
        assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        let frame = traffic("2001:db8::1", &["2001:db8::2"]).frame(false);
        let parsed = etherparse::PacketHeaders::from_ethernet_slice(&frame).unwrap();
        let Some(etherparse::NetHeaders::Ipv6(ip, _)) = parsed.net else {
            panic!("{parsed:?}");
        };
        assert_eq!(ip.destination_addr().to_string(), "2001:db8::2");
        assert_eq!(parsed.transport.unwrap().udp().unwrap().destination_port, 2);
    }

    #[test]
    fn only_one_family() {
        let mixed = traffic("10.0.0.1", &["::1", "10.0.0.2", "10.0.0.3"]);
        assert_eq!(mixed.destination_words().count(), 2);
        let flags = TRAFFIC_PORTS | TRAFFIC_DESTINATIONS;
        assert_eq!(mixed.words()[WORDS - 1], flags | 2 << 56);
    }
}
