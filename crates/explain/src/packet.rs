//! A packet as the subject of a question: from a capture, or written in hex.

use std::net::IpAddr;
use std::path::Path;

use raddle_io::Reader;
use raddle_packet::protocol::{self, ethertype};
use raddle_packet::{Ethernet, Family, Icmp, Ipv4, Ipv6, Stop, Vlan, dissect, icmp};
use serde::Serialize;

use super::error::Error;
use super::flow::{FlowWords, protocol_name};

/// What the bytes were taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Framing {
    /// An Ethernet frame.
    Ethernet,
    /// A packet without a link-layer header.
    Ip,
}

/// A packet that was asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Packet {
    /// Where it is from: `packet 3 of a.pcap`, `hex`.
    pub from: String,
    /// What the bytes were taken for.
    pub framing: Framing,
    /// The VLAN that the frame is tagged with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// What it is, in words.
    pub about: String,
    /// Bytes of it that are missing, by its IP length or because the capture cut it short.
    pub missing: usize,
    #[serde(skip)]
    pub(crate) family: Family,
    /// From the IP header on, ended at its IP length where that is valid.
    #[serde(skip)]
    pub(crate) l3: Vec<u8>,
    #[serde(skip)]
    pub(crate) raw: Raw,
}

/// A packet as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Raw {
    /// The Ethernet frame; none where only the packet is known.
    pub frame: Option<Vec<u8>>,
    /// The EtherType behind all VLAN tags; 0 where there is none.
    pub ether_type: u16,
    /// How many VLAN tags there are.
    pub tags: usize,
    /// Everything behind the EtherType, padding included.
    pub l3: Vec<u8>,
    /// Bytes at its end that the capture left out.
    pub cut: usize,
}

impl Raw {
    /// Bytes behind the EtherType on the wire.
    pub(super) fn wire_len(&self) -> usize {
        self.l3.len() + self.cut
    }
}

impl Packet {
    /// The `number`th packet of a capture, from 1.
    ///
    /// # Errors
    /// A capture that cannot be read, or that ends before it.
    pub fn of_capture(file: &Path, number: u64) -> Result<Packet, Error> {
        let mut packets = Packet::all_of_capture(file)?;
        let mut seen = 0;
        for packet in packets.by_ref() {
            seen += 1;
            if seen == number {
                return packet;
            }
            packet?;
        }
        Err(Error::NoSuchPacket {
            file: file.display().to_string(),
            number,
            seen,
        })
    }

    /// The packets of a capture, pcap or pcapng, one after the other; `-` reads standard input.
    ///
    /// # Errors
    /// A capture that cannot be opened; each packet that cannot be read.
    pub fn all_of_capture(
        file: &Path,
    ) -> Result<impl Iterator<Item = Result<Packet, Error>>, Error> {
        let reader = Reader::open(file)?;
        let name = file.display().to_string();
        Ok((1_u64..).zip(reader).map(move |(number, record)| {
            let record = record?;
            if record.original_len > MOST_ON_WIRE {
                return Err(Error::TooLong {
                    file: name.clone(),
                    number,
                    len: record.original_len,
                    most: MOST_ON_WIRE,
                });
            }
            let cut = (record.original_len as usize).saturating_sub(record.data.len());
            Ok(frame(
                &record.data,
                cut,
                format!("packet {number} of {name}"),
            ))
        }))
    }

    /// An Ethernet frame of any kind, with or without VLAN tags, of which so many bytes at its end are missing.
    pub fn of_frame(bytes: &[u8], cut: usize, from: String) -> Packet {
        frame(bytes, cut, from)
    }

    /// A packet in hexadecimal digits, among which blanks, colons and `0x` are passed over. It is taken for an IP packet
    /// where it begins with a sound IP header, else for an Ethernet frame.
    ///
    /// # Errors
    /// What is not digits, and what is neither a frame nor a packet.
    pub fn of_hex(text: &str) -> Result<Packet, Error> {
        guess(&bytes(text)?)
    }

    /// An IP packet without a link-layer header, made or changed here.
    ///
    /// # Errors
    /// It has no IP header.
    pub(super) fn of_ip(bytes: &[u8], from: String) -> Result<Packet, Error> {
        packet(bytes, from)
    }

    /// These bytes as a packet, all of them, whatever its header says of its length.
    pub(super) fn raw(l3: &[u8], family: Family) -> Packet {
        Packet {
            from: String::new(),
            framing: Framing::Ip,
            vlan: None,
            about: String::new(),
            missing: 0,
            family,
            l3: l3.to_vec(),
            raw: Raw::default(),
        }
    }

    /// The packet as a frame on a link with this MAC address, as long as it was on the wire.
    pub(super) fn as_frame(&self, mac: [u8; 6]) -> Vec<u8> {
        let mut frame = match &self.raw.frame {
            Some(frame) => frame.clone(),
            None => {
                let source = [2, 0, 0, 0, 0, 0];
                let kind = self.raw.ether_type.to_be_bytes();
                [&mac[..], &source, &kind, &self.raw.l3].concat()
            }
        };
        // Neither engine looks at payloads.
        frame.resize(frame.len() + self.raw.cut, 0);
        frame
    }

    /// The flow that the packet belongs to, as words: its outer addresses, and the ports that the
    /// dissector finds.
    pub fn words(&self, iif: &str) -> FlowWords {
        let seen = dissect(&self.l3, self.family, Stop::AtEncap);
        let address = |at: usize, len: usize| self.l3.get(at..at + len);
        let (src, dst): (IpAddr, IpAddr) = match self.family {
            Family::V4 => {
                let at = |at| address(at, 4).and_then(|b| <[u8; 4]>::try_from(b).ok());
                (
                    at(12).unwrap_or_default().into(),
                    at(16).unwrap_or_default().into(),
                )
            }
            Family::V6 => {
                let at = |at| address(at, 16).and_then(|b| <[u8; 16]>::try_from(b).ok());
                (
                    at(8).unwrap_or_default().into(),
                    at(24).unwrap_or_default().into(),
                )
            }
        };
        FlowWords {
            dst,
            src,
            iif: Some(iif.to_owned()),
            proto: seen.ip_proto,
            sport: seen.sport,
            dport: seen.dport,
            flow_label: seen.flow_label,
            tos: match (self.family, self.l3.as_slice()) {
                (Family::V4, [_, tos, ..]) => *tos,
                (Family::V6, [a, b, ..]) => a << 4 | b >> 4,
                _ => 0,
            },
            connected: false,
        }
    }

    /// The ICMP or ICMPv6 type, where the packet is such a message itself (not behind extension
    /// headers, which no policy looks behind for it).
    pub(super) fn icmp_type(&self) -> Option<u8> {
        let (proto, message) = match self.family {
            Family::V4 => {
                let ip = Ipv4::new_checked(&self.l3[..]).ok()?;
                (ip.protocol(), self.l3.get(ip.header_len()..)?)
            }
            Family::V6 => {
                let ip = Ipv6::new_checked(&self.l3[..]).ok()?;
                (ip.next_header(), self.l3.get(40..)?)
            }
        };
        let kind = Icmp::new_checked(message).ok()?.kind();
        matches!(proto, protocol::ICMP | protocol::ICMPV6).then_some(kind)
    }

    /// Whether it is an ICMP error, and its type.
    pub(super) fn icmp_error(&self) -> Option<u8> {
        self.icmp_type()
            .filter(|kind| icmp::is_error(self.family, *kind))
    }

    /// TTL or hop limit.
    pub(super) fn ttl(&self) -> u8 {
        let at = match self.family {
            Family::V4 => 8,
            Family::V6 => 7,
        };
        self.l3.get(at).copied().unwrap_or_default()
    }
}

/// More than any frame has on the wire, those that offloads join included. Missing bytes are made up.
const MOST_ON_WIRE: u32 = 1 << 20;

fn bytes(text: &str) -> Result<Vec<u8>, Error> {
    let mut digits = Vec::new();
    for word in text.split(|c: char| c.is_whitespace() || c == ':') {
        for c in word.strip_prefix("0x").unwrap_or(word).chars() {
            let digit = c.to_digit(16);
            let digit = digit.ok_or(Error::Digit(c))?;
            digits.push(digit as u8);
        }
    }
    if digits.is_empty() || digits.len() % 2 != 0 {
        return Err(Error::Digits(digits.len()));
    }
    Ok(digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect())
}

/// Takes bytes for what they are.
///
/// 1. An IP packet, where they begin with an IPv4 header whose checksum is right and whose length
///    they have, or an IPv6 header whose length is theirs.
/// 2. Else an Ethernet frame, where the EtherType behind the addresses says so, and the version behind
///    it is that EtherType's.
/// 3. Else an IP packet, where there is an IPv4 header whose checksum is right.
/// 4. Else an Ethernet frame, where the EtherType says that there is IP inside.
/// 5. Else an IP packet, where there is an IP header at all.
fn guess(bytes: &[u8]) -> Result<Packet, Error> {
    let v4 = Ipv4::new_checked(bytes)
        .ok()
        .filter(Ipv4::is_checksum_valid);
    let whole = match bytes.first().map(|byte| byte >> 4) {
        Some(4) => v4.is_some_and(|ip| usize::from(ip.total_len()) == bytes.len()),
        Some(6) => Ipv6::new_checked(bytes)
            .is_ok_and(|ip| usize::from(ip.payload_len()) + 40 == bytes.len()),
        _ => false,
    };
    if whole {
        return packet(bytes, "hex".into());
    }
    let framed = frame(bytes, 0, "hex".into());
    let version = framed.raw.l3.first().map(|byte| byte >> 4);
    let kind = framed.raw.ether_type;
    let is_ip = matches!(kind, ethertype::IPV4 | ethertype::IPV6);
    if is_ip && version == Some(if kind == ethertype::IPV4 { 4 } else { 6 }) {
        return Ok(framed);
    }
    if v4.is_some() {
        return packet(bytes, "hex".into());
    }
    if is_ip {
        return Ok(framed);
    }
    let as_frame = match bytes.len() {
        ..14 => format!("{} bytes are less than its header", bytes.len()),
        _ => format!("EtherType {kind:#06x} is not IP's"),
    };
    packet(bytes, "hex".into()).map_err(|as_packet| Error::NotAPacket {
        as_frame,
        as_packet: Box::new(as_packet),
    })
}

/// An Ethernet frame of any kind, with or without VLAN tags, of which a capture cut off so many bytes.
fn frame(bytes: &[u8], cut: usize, from: String) -> Packet {
    let (mut kind, mut rest) = match Ethernet::new_checked(bytes) {
        Ok(ethernet) => (ethernet.ether_type(), &bytes[14..]),
        Err(_) => (0, &[][..]),
    };
    let (mut vlan, mut tags) = (None, 0);
    while matches!(kind, ethertype::VLAN | ethertype::QINQ)
        && let Ok(tag) = Vlan::new_checked(rest)
    {
        vlan = vlan.or(Some(tag.id()));
        tags += 1;
        kind = tag.ether_type();
        rest = &rest[Vlan::<&[u8]>::LEN..];
    }
    let raw = Raw {
        frame: Some(bytes.to_vec()),
        ether_type: kind,
        tags,
        l3: rest.to_vec(),
        cut,
    };
    let family = match kind {
        ethertype::IPV6 => Family::V6,
        _ => Family::V4,
    };
    whole(raw, family, Framing::Ethernet, vlan, from)
}

/// An IP packet without a link-layer header.
fn packet(bytes: &[u8], from: String) -> Result<Packet, Error> {
    let family = match bytes.first().map(|byte| byte >> 4) {
        Some(6) => {
            Ipv6::new_checked(bytes)?;
            Family::V6
        }
        _ => {
            let ip = Ipv4::new_checked(bytes)?;
            let length = usize::from(ip.total_len());
            if length < ip.header_len() {
                return Err(Error::IpLength(length));
            }
            Family::V4
        }
    };
    let raw = Raw {
        ether_type: match family {
            Family::V4 => ethertype::IPV4,
            Family::V6 => ethertype::IPV6,
        },
        l3: bytes.to_vec(),
        ..Raw::default()
    };
    Ok(whole(raw, family, Framing::Ip, None, from))
}

fn whole(raw: Raw, family: Family, framing: Framing, vlan: Option<u16>, from: String) -> Packet {
    let field = |at: usize| match raw.l3.get(at..at + 2) {
        Some(&[a, b]) => usize::from(u16::from_be_bytes([a, b])),
        _ => 0,
    };
    let length = match family {
        Family::V4 => field(2),
        Family::V6 if raw.l3.len() < 40 => 0,
        Family::V6 => 40 + field(4),
    };
    let least = if family == Family::V4 { 20 } else { 40 };
    let end = match length >= least {
        true => length.min(raw.l3.len()),
        false => raw.l3.len(),
    };
    let mut packet = Packet {
        from,
        framing,
        vlan,
        about: String::new(),
        missing: length.saturating_sub(raw.l3.len()),
        family,
        l3: raw.l3[..end].to_vec(),
        raw,
    };
    packet.about = about(&packet);
    packet
}

/// What the packet is, in words.
fn about(packet: &Packet) -> String {
    let kind = packet.raw.ether_type;
    if !matches!(kind, ethertype::IPV4 | ethertype::IPV6) {
        return match &packet.raw.frame {
            Some(frame) if frame.len() < 14 => format!("{} bytes, no frame", frame.len()),
            _ => format!("EtherType {kind:#06x}, {} bytes", packet.raw.wire_len()),
        };
    }
    let words = packet.words("");
    let fragment = dissect(&packet.l3, packet.family, Stop::AtEncap).fragment;
    let mut text = format!("{} {}", packet.family, protocol_name(words.proto));
    if let Some(kind) = packet.icmp_type() {
        let error = packet.icmp_error().map_or("", |_| " (an error)");
        text += &format!(" type {kind}{error}");
    }
    if fragment {
        text += ", a fragment";
    }
    text += &format!(
        ", {} bytes from {} to {}",
        packet.l3.len(),
        words.src,
        words.dst
    );
    if packet.missing > 0 {
        text += &format!(", {} bytes more are missing", packet.missing);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10.0.0.1:1000 to 198.18.0.9:53, UDP.
    const UDP: &str = "4500001c0000000040110c9f0a000001c612000903e8003500080000";

    #[test]
    fn hex_is_taken_for_what_it_is() {
        let packet = Packet::of_hex(UDP).unwrap();
        assert_eq!((packet.framing, packet.l3.len()), (Framing::Ip, 28));
        assert_eq!(
            packet.about,
            "IPv4 udp, 28 bytes from 10.0.0.1 to 198.18.0.9"
        );
        let framed = format!("02:00:00:00:00:01 020000000002 0x0800 {UDP} 0000");
        let framed = Packet::of_hex(&framed).unwrap();
        assert_eq!((framed.framing, framed.l3.len()), (Framing::Ethernet, 28));
        let tagged = format!("020000000001020000000002 8100 2005 0800 {UDP}");
        assert_eq!(Packet::of_hex(&tagged).unwrap().vlan, Some(5));
        let words = packet.words("eth0");
        assert_eq!((words.proto, words.sport, words.dport), (17, 1000, 53));
    }

    #[test]
    fn a_packet_that_is_cut_short_says_so() {
        let packet = Packet::of_hex(&UDP[..48]).unwrap();
        assert_eq!((packet.missing, packet.words("a").sport), (4, 1000));
        assert!(packet.about.ends_with("4 bytes more are missing"));
    }

    #[test]
    fn a_capture_is_read_up_to_the_packet() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.pcap");
        let mut writer = raddle_io::Writer::create(&file, raddle_io::Resolution::Nano).unwrap();
        for port in ["03e8", "03e9"] {
            let packet = UDP.replace("03e8", port);
            let data = bytes(&format!("0200000000010200000000020800{packet}")).unwrap();
            let original_len = data.len() as u32;
            let record = raddle_io::Record {
                ts_ns: 1,
                original_len,
                data,
            };
            writer.write(&record).unwrap();
        }
        writer.finish().unwrap();
        let second = Packet::of_capture(&file, 2).unwrap();
        assert!(second.from.starts_with("packet 2 of "), "{}", second.from);
        assert_eq!(
            (second.framing, second.words("a").sport),
            (Framing::Ethernet, 1001)
        );
        let error = Packet::of_capture(&file, 3).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("has 2 packets, there is no number 3"),
            "{error}"
        );
        assert!(Packet::of_capture(&folder.path().join("b.pcap"), 1).is_err());
        // What is missing is made up, but not gigabytes of it.
        let mut long = std::fs::read(&file).unwrap();
        long[36..40].fill(0xff);
        std::fs::write(&file, long).unwrap();
        let error = Packet::of_capture(&file, 1).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("packet 1 says that it had 4294967295 bytes")
        );
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        for (text, said) in [
            ("", "no whole number of bytes"),
            ("450", "3 hexadecimal digits"),
            ("4g", "'g' is not a hexadecimal digit"),
            ("4500", "neither an Ethernet frame"),
            (
                "020000000001020000000002080600010800060400010000000000000000",
                "EtherType 0x0806",
            ),
        ] {
            let error = Packet::of_hex(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
