//! Packets made of words: what a question is about when no packet is given.

use std::net::{IpAddr, Ipv6Addr};

use raddle_packet::checksum::checksum;

use super::error::Error;
use super::flow::FlowWords;
use super::packet::Packet;

/// TTL and hop limit of such packets.
const TTL: u8 = 64;
/// IPPROTO_NONE.
const NO_NEXT_HEADER: u8 = 59;

/// What a question says besides the flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Segments, in the order of travel; the packet is on the way to the first.
    pub srh: Vec<Ipv6Addr>,
    /// The packet inside.
    pub inner: Option<FlowWords>,
}

impl Carried {
    /// Of `--srh A,B,C` and `--inner "DST from SRC ..."`.
    ///
    /// # Errors
    /// What is wrong, as [`Error`] says it.
    pub fn parse(srh: Option<&str>, inner: Option<&str>) -> Result<Carried, Error> {
        let segment = |word: &str| {
            let word = word.trim();
            word.parse::<Ipv6Addr>()
                .map_err(|_| Error::Segment(word.to_owned()))
        };
        let srh = srh.map_or(Ok(Vec::new()), |list| {
            list.split(',').map(segment).collect::<Result<_, _>>()
        })?;
        // Entries are numbered with 8 bits, and the length of the header has 8 bits for two to an entry.
        if srh.len() > 127 {
            return Err(Error::Segments(srh.len()));
        }
        let words = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            FlowWords::parse(&words)
        };
        Ok(Carried {
            srh,
            inner: inner.map(words).transpose()?,
        })
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Carried::default()
    }

    /// The packet of a flow that carries this.
    ///
    /// # Errors
    /// An SRH in IPv4, or a destination that is not the first segment.
    pub fn packet(&self, words: &FlowWords) -> Result<Packet, Error> {
        let (proto, payload) = match &self.inner {
            Some(inner) => {
                let proto = if inner.dst.is_ipv4() { 4 } else { 41 };
                (proto, plain(inner, Vec::new()))
            }
            None => (words.proto, transport(words)),
        };
        let bytes = match self.srh.as_slice() {
            [] => wrapped(words, proto, payload),
            [first, ..] => {
                if words.dst != IpAddr::V6(*first) {
                    return Err(Error::NotFirst {
                        dst: words.dst,
                        first: *first,
                    });
                }
                let header = srh(&self.srh, proto);
                wrapped(words, 43, [header, payload].concat())
            }
        };
        Packet::of_ip(&bytes, "the flow".to_owned())
    }
}

/// The next header of `proto`, which says nothing where it is 0.
fn next_header(proto: u8) -> u8 {
    if proto == 0 { NO_NEXT_HEADER } else { proto }
}

/// An SRH with all segments left but the first (RFC 8754, section 2).
fn srh(segments: &[Ipv6Addr], next: u8) -> Vec<u8> {
    let last = segments.len() as u8 - 1;
    let mut bytes = vec![next_header(next), 2 * (last + 1), 4, last, last, 0, 0, 0];
    bytes.extend(segments.iter().rev().flat_map(Ipv6Addr::octets));
    bytes
}

/// A packet of a flow, of which `payload` is the upper layer, or a header with its ports.
fn plain(words: &FlowWords, payload: Vec<u8>) -> Vec<u8> {
    let payload = if payload.is_empty() {
        transport(words)
    } else {
        payload
    };
    wrapped(words, words.proto, payload)
}

/// A transport header with the flow's ports and nothing behind it.
fn transport(words: &FlowWords) -> Vec<u8> {
    if words.proto == 0 && words.dst.is_ipv6() {
        return Vec::new();
    }
    let ports = [words.sport.to_be_bytes(), words.dport.to_be_bytes()].concat();
    match words.proto {
        6 => [ports, vec![0; 8], vec![0x50, 0, 0, 0, 0, 0, 0, 0]].concat(),
        17 => [ports, vec![0, 8, 0, 0]].concat(),
        _ => [ports, vec![0; 4]].concat(),
    }
}

fn wrapped(words: &FlowWords, proto: u8, payload: Vec<u8>) -> Vec<u8> {
    let mut bytes = match (words.src, words.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let length = (20 + payload.len()) as u16;
            let mut header = vec![0x45, 0, 0, 0, 0, 0, 0, 0, TTL, proto, 0, 0];
            header[2..4].copy_from_slice(&length.to_be_bytes());
            header.extend(src.octets());
            header.extend(dst.octets());
            let sum = checksum(&header).to_be_bytes();
            header[10..12].copy_from_slice(&sum);
            header
        }
        (src, dst) => {
            let six = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            let mut header = (0x6000_0000 | words.flow_label).to_be_bytes().to_vec();
            header.extend((payload.len() as u16).to_be_bytes());
            // What was left open is nothing, not the number of hop-by-hop options (RFC 8200, section 4.7).
            header.extend([next_header(proto), TTL]);
            header.extend(six(src).octets());
            header.extend(six(dst).octets());
            header
        }
    };
    bytes.extend(payload);
    bytes
}

#[cfg(test)]
mod tests {
    use raddle_packet::Family;

    use super::super::seen::headers;
    use super::*;

    fn words(text: &str) -> FlowWords {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        FlowWords::parse(&words).unwrap()
    }

    #[test]
    fn packets_have_what_was_said() {
        let carried = Carried::parse(
            Some("fc00::1,fc00::2"),
            Some("10.0.9.1 from 10.0.0.7 ipproto udp sport 1 dport 53"),
        );
        let flow = words("fc00::1 from fd00::7 iif in0 flowlabel 0x12345");
        let packet = carried.unwrap().packet(&flow).unwrap();
        assert_eq!(
            headers(&packet.l3, Family::V6),
            [
                "IPv6 fd00::7 to fc00::1, hop limit 64, flow label 0x12345",
                "SRH segs 2 [ fc00::1 fc00::2 ], 1 left",
                "IPv4 10.0.0.7 to 10.0.9.1, TTL 64",
                "udp 1 to 53, 8 bytes",
            ]
        );
        let tcp = words("10.0.9.1 from 10.0.0.7 ipproto tcp sport 1 dport 53");
        let packet = Carried::default().packet(&tcp).unwrap();
        assert_eq!(
            headers(&packet.l3, Family::V4),
            ["IPv4 10.0.0.7 to 10.0.9.1, TTL 64", "tcp 1 to 53, 20 bytes"]
        );
    }

    #[test]
    fn without_a_protocol_nothing_follows() {
        let carried = Carried::parse(Some("fc00::1,fc00::2"), Some("2001:db8::9"));
        let packet = carried.unwrap().packet(&words("fc00::1 iif in0")).unwrap();
        let lines = headers(&packet.l3, Family::V6);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[2].starts_with("IPv6 :: to 2001:db8::9"), "{lines:?}");
    }

    #[test]
    fn mistakes_are_named() {
        let error = Carried::parse(Some("fc00::1,10.0.0.1"), None)
            .unwrap_err()
            .to_string();
        assert!(error.contains("'10.0.0.1' is not a segment"), "{error}");
        let error = Carried::parse(None, Some("fc00::1 sport 5"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("ports want a protocol"), "{error}");
        let carried = Carried::parse(Some("fc00::1"), None).unwrap();
        let error = carried.packet(&words("fc00::2")).unwrap_err().to_string();
        assert!(error.contains("name the first segment, fc00::1"), "{error}");
        assert!(Carried::parse(Some(&["fc00::1"; 128].join(",")), None).is_err());
    }
}
