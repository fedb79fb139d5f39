//! SRv6 packets: right ones, and wrong in every field.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Random;
use crate::frame::{self, Crafted};

/// Bytes that a packet is known again by, whatever was done to its headers.
pub const TAG: usize = 8;

/// Where packets come from and go to.
#[derive(Clone, Debug)]
pub struct Places {
    /// MAC address of the router's link, then of the sender.
    pub macs: [[u8; 6]; 2],
    /// IPv4 destinations of inner packets.
    pub v4: Vec<Ipv4Addr>,
    /// IPv6 destinations: of inner packets, and segments.
    pub v6: Vec<Ipv6Addr>,
    /// SIDs of the router.
    pub sids: Vec<Ipv6Addr>,
    /// Lengths of packets of which there are to be more, such as MTUs.
    pub sizes: Vec<usize>,
}

/// What a SID takes, for most of the packets to be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Packets with an SRH and segments left.
    Segments,
    /// The payload of this protocol: 4, 41 or 143, no segments left.
    Payload(u8),
}

const IPV4: u8 = 4;
const UDP: u8 = 17;
const IPV6: u8 = 41;
const ROUTING: u8 = 43;
const NO_NEXT: u8 = 59;
const ETHERNET: u8 = 143;

/// First byte of the source MAC address of inner frames with a VLAN tag, and of no others.
pub const TAGGED: u8 = 0x82;

/// The tag of the packet with this number in a run.
pub fn tag(run: u32, number: u32) -> [u8; TAG] {
    let mut tag = [0x5a; TAG];
    tag[..4].copy_from_slice(&(run ^ 0x7ad1_e000).to_be_bytes());
    tag[4..].copy_from_slice(&number.to_be_bytes());
    tag
}

/// A packet to `sid`: about half of them as it takes them.
pub fn to_sid(
    rng: &mut Random,
    places: &Places,
    sid: Ipv6Addr,
    takes: Takes,
    tag: [u8; TAG],
) -> Crafted {
    let mut kind = "right";
    let wanted = match takes {
        Takes::Segments => *rng.pick(&[UDP, IPV4, IPV6, ETHERNET, NO_NEXT]),
        Takes::Payload(wanted) => wanted,
    };
    let proto = match rng.below(12) {
        0 => *rng.pick(&[IPV4, IPV6, ETHERNET, UDP, NO_NEXT, 6, 58, 200]),
        _ => wanted,
    };
    let mut body = payload(rng, places, proto, tag);
    let mut next = proto;
    if rng.once_in(10) {
        kind = "header behind";
        next = header(rng, next, &mut body);
    }
    let without = match takes {
        Takes::Segments => rng.once_in(16),
        Takes::Payload(_) => rng.once_in(2),
    };
    if !without {
        let mut srh = Srh::random(rng, places, takes);
        srh.next = next;
        if rng.once_in(3) {
            kind = srh.spoil(rng);
        }
        body = [srh.bytes(rng), body].concat();
        next = ROUTING;
        if rng.once_in(20) {
            kind = "two SRHs";
            let mut outer = Srh::random(rng, places, takes);
            outer.next = next;
            body = [outer.bytes(rng), body].concat();
        }
    }
    if rng.once_in(10) {
        kind = "header before";
        next = header(rng, next, &mut body);
    }
    let outer = Outer { sid, next, kind };
    outer.around(rng, places, body)
}

/// Puts an HMAC, which is wrong, at the end of the SRH that stands right behind the IPv6 header; nothing where there is
/// none that says the truth about its length.
pub fn with_wrong_hmac(rng: &mut Random, frame: &mut Crafted, key: u32) {
    const SRH: usize = 14 + 40;
    let bytes = &mut frame.bytes;
    let Some(header) = bytes.get(SRH..SRH + 8) else {
        return;
    };
    let (length, last) = (usize::from(header[1]), usize::from(header[4]));
    let end = SRH + 8 + 8 * length;
    let payload = usize::from(u16::from_be_bytes([bytes[18], bytes[19]]));
    let is_true = bytes[20] == ROUTING && header[2] == 4 && length == 2 * (last + 1);
    if !is_true || bytes.len() < end + 8 || bytes.len() != SRH + payload || bytes.len() > 1400 {
        return;
    }
    bytes[SRH + 1] += 5;
    bytes[SRH + 5] |= 8;
    let mut tlv = vec![5, 38, 0, 0];
    tlv.extend(key.to_be_bytes());
    tlv.extend(rng.bytes(32));
    bytes[18..20].copy_from_slice(&(payload as u16 + 40).to_be_bytes());
    bytes.splice(end..end, tlv);
    frame.kind = "a wrong HMAC";
}

struct Outer {
    sid: Ipv6Addr,
    next: u8,
    kind: &'static str,
}

impl Outer {
    fn around(mut self, rng: &mut Random, places: &Places, body: Vec<u8>) -> Crafted {
        let src: Ipv6Addr = match rng.below(24) {
            0 => {
                self.kind = "odd source";
                let odd = [
                    "::",
                    "::1",
                    "fe80::9",
                    "ff02::1",
                    "::ffff:1.2.3.4",
                    "2001:db8:1:1::1",
                ];
                rng.pick(&odd).parse().unwrap()
            }
            _ => "2001:db8:1:1::2".parse().unwrap(),
        };
        let hops = *rng.pick(&[64, 64, 64, 64, 64, 64, 255, 0, 1, 2]);
        let word = match rng.below(3) {
            0 => 0,
            1 => rng.bits() as u32 & 0xf_ffff,
            _ => rng.bits() as u32 & 0xfff_ffff,
        };
        let mut packet = frame::ipv6(src, self.sid, self.next, hops, word, &body);
        match rng.below(36) {
            0 => {
                self.kind = "payload length lies";
                let lie = body.len() as i64 + rng.below(81) as i64 - 40;
                packet[4..6].copy_from_slice(&(lie.max(0) as u16).to_be_bytes());
            }
            1 => {
                self.kind = "cut short, and says so";
                packet.truncate(40 + rng.below(body.len() + 1));
                let len = (packet.len() - 40) as u16;
                packet[4..6].copy_from_slice(&len.to_be_bytes());
            }
            2 => {
                self.kind = "cut short";
                packet.truncate(40 + rng.below(body.len() + 1));
            }
            3 => {
                self.kind = "trailing bytes";
                let more = 1 + rng.below(40);
                packet.extend(rng.bytes(more));
            }
            4 if rng.once_in(3) => {
                self.kind = "version";
                packet[0] ^= 0x20;
            }
            _ => {}
        }
        packet.truncate(1500);
        Crafted {
            bytes: [&places.macs[0], &places.macs[1], &[0x86, 0xdd][..], &packet].concat(),
            kind: self.kind,
            flow: None,
        }
    }
}

/// The parts of an SRH, which may contradict each other.
struct Srh {
    next: u8,
    length: Option<u8>,
    kind: u8,
    left: u8,
    last: u8,
    flags: u8,
    tag: u16,
    list: Vec<Ipv6Addr>,
    tlvs: Vec<u8>,
}

impl Srh {
    /// One that is right.
    fn random(rng: &mut Random, places: &Places, takes: Takes) -> Srh {
        let count = 1 + rng.below(4);
        let mut list: Vec<Ipv6Addr> = (0..count).map(|_| *rng.pick(&places.v6)).collect();
        if rng.once_in(6) {
            let at = rng.below(count);
            list[at] = *rng.pick(&places.sids);
        }
        let last = (count - 1) as u8;
        let left = match takes {
            // One more than the last: the list leaves out the segment that was visited first.
            Takes::Segments => 1 + rng.below(count) as u8,
            Takes::Payload(_) => 0,
        };
        let left = match rng.below(12) {
            0 => rng.below(count + 2) as u8,
            _ => left,
        };
        let tlvs = match rng.below(6) {
            // PadN; something unknown; a Pad1 and what it hides in the kernel's eyes.
            0 => vec![4, 6, 0, 0, 0, 0, 0, 0],
            1 => [vec![200, 14], rng.bytes(14)].concat(),
            2 => vec![0; 8],
            _ => Vec::new(),
        };
        Srh {
            next: UDP,
            length: None,
            kind: 4,
            left,
            last,
            flags: 0,
            tag: 0,
            list,
            tlvs,
        }
    }

    /// Makes one thing of it wrong, or at least unusual.
    fn spoil(&mut self, rng: &mut Random) -> &'static str {
        let length = (self.list.len() * 2 + self.tlvs.len() / 8) as u8;
        match rng.below(11) {
            0 => {
                self.length = Some(rng.bits() as u8);
                "any length"
            }
            1 => {
                self.length = Some(length.wrapping_add(*rng.pick(&[1, 2, 255, 254])));
                "length a bit off"
            }
            2 => {
                self.kind = *rng.pick(&[0, 1, 2, 3, 5, 253, 255]);
                "other routing type"
            }
            3 => {
                self.left = rng.bits() as u8;
                "any segments left"
            }
            4 => {
                self.left = self.last.wrapping_add(*rng.pick(&[1, 2, 3]));
                "segments left beyond the list"
            }
            5 => {
                self.left = 0;
                "no segments left"
            }
            6 => {
                self.last = rng.bits() as u8;
                "any last entry"
            }
            7 => {
                self.last = self.last.wrapping_add(*rng.pick(&[1, 255]));
                "last entry a bit off"
            }
            8 => {
                // Not the flag that means an HMAC: keys are another test's.
                self.flags = rng.bits() as u8 & !0x08;
                self.tag = rng.bits() as u16;
                "flags and tag"
            }
            9 => {
                let len = 8 * (1 + rng.below(3));
                self.tlvs = rng.bytes(len);
                "any TLVs"
            }
            _ => {
                self.tlvs = vec![4, *rng.pick(&[5, 7, 4, 0, 255]), 0, 0, 0, 0, 0, 0];
                "a TLV that does not end with the header"
            }
        }
    }

    fn bytes(&self, rng: &mut Random) -> Vec<u8> {
        let length = (self.list.len() * 2 + self.tlvs.len() / 8) as u8;
        let length = self.length.unwrap_or(length);
        let mut bytes = vec![
            self.next, length, self.kind, self.left, self.last, self.flags,
        ];
        bytes.extend(self.tag.to_be_bytes());
        for segment in &self.list {
            bytes.extend(segment.octets());
        }
        bytes.extend(&self.tlvs);
        if self.kind != 4 && rng.once_in(2) {
            // As if spent, which lets the kernel pass over it.
            bytes[3] = 0;
        }
        bytes
    }
}

/// Puts an extension header before `body` and says its number.
fn header(rng: &mut Random, next: u8, body: &mut Vec<u8>) -> u8 {
    let spent = |kind| [vec![next, 2, kind, 0, 0, 0, 0, 0], vec![0x20; 16]].concat();
    let (number, header) = match rng.below(12) {
        0..=4 => (60, vec![next, 0, 1, 4, 0, 0, 0, 0]),
        5 => (60, vec![next, rng.bits() as u8 & 3, 1, 4, 0, 0, 0, 0]),
        6 => (0, vec![next, 0, 1, 4, 0, 0, 0, 0]),
        7 => (ROUTING, spent(4)),
        8 => (ROUTING, spent(253)),
        9 => (44, vec![next, 0, 0, *rng.pick(&[0, 1]), 1, 2, 3, 4]),
        10 => (44, vec![next, 0, rng.bits() as u8, 8, 1, 2, 3, 4]),
        _ => (51, [vec![next, 1, 0, 0], vec![7; 8]].concat()),
    };
    *body = [header, std::mem::take(body)].concat();
    number
}

fn payload(rng: &mut Random, places: &Places, proto: u8, tag: [u8; TAG]) -> Vec<u8> {
    match proto {
        IPV4 => inner4(rng, places, tag),
        IPV6 => inner6(rng, places, tag),
        ETHERNET => ethernet(rng, places, tag),
        _ => udp(rng, &tag),
    }
}

/// A UDP header and the tag, and something behind it.
fn udp(rng: &mut Random, tag: &[u8]) -> Vec<u8> {
    let more = rng.below(40);
    let mut body = rng.bytes(4);
    body.extend(((8 + tag.len() + more) as u16).to_be_bytes());
    body.extend([0; 2]);
    body.extend(tag);
    body.extend(rng.bytes(more));
    body
}

/// Now and then grown so that the packet is about as long as an MTU.
fn grown(rng: &mut Random, places: &Places, header: usize, mut body: Vec<u8>) -> Vec<u8> {
    if rng.once_in(8) {
        let size = *rng.pick(&places.sizes) + rng.below(3) - 1;
        body.resize(size.max(header + body.len()) - header, 0x3c);
    }
    body
}

fn inner4(rng: &mut Random, places: &Places, tag: [u8; TAG]) -> Vec<u8> {
    // Unspecified, loopback, multicast, broadcast, the router's own.
    let odd = [
        [0, 0, 0, 0],
        [127, 0, 0, 1],
        [224, 0, 0, 9],
        [255; 4],
        [10, 2, 1, 1],
    ];
    let src = match rng.below(16) {
        0 => *rng.pick(&odd),
        _ => [10, 1, 1, 2],
    };
    let dst = match rng.below(16) {
        0 => *rng.pick(&odd),
        _ => rng.pick(&places.v4).octets(),
    };
    let ttl = *rng.pick(&[64, 64, 64, 64, 64, 255, 2, 1, 0]);
    let body = udp(rng, &tag);
    let body = grown(rng, places, 20, body);
    let ips: [IpAddr; 2] = [Ipv4Addr::from(src).into(), Ipv4Addr::from(dst).into()];
    let mut packet = frame::ip(ips[0], ips[1], UDP, ttl, &body);
    packet[1] = rng.bits() as u8 & 0xfc;
    if rng.once_in(3) {
        packet[6] = 0x40;
    }
    match rng.below(30) {
        0 => packet[0] = *rng.pick(&[0x44, 0x46, 0x55, 0x65, 0x4f]),
        1 => {
            let lie = packet.len() as i64 + rng.below(41) as i64 - 20;
            packet[2..4].copy_from_slice(&(lie as u16).to_be_bytes());
        }
        2 => {
            let options = [
                packet[..20].to_vec(),
                vec![1, 1, 1, 0],
                packet[20..].to_vec(),
            ];
            packet = options.concat();
            packet[0] = 0x46;
            let len = packet.len() as u16;
            packet[2..4].copy_from_slice(&len.to_be_bytes());
        }
        3 => packet[6..8].copy_from_slice(&[0x20, rng.bits() as u8]),
        _ => {}
    }
    let header = (usize::from(packet[0] & 15) * 4).clamp(20, packet.len());
    frame::seal(&mut packet[..header]);
    match rng.below(30) {
        0 => packet[10] ^= 0x55,
        1 => packet.truncate(rng.below(24)),
        _ => {}
    }
    packet
}

fn inner6(rng: &mut Random, places: &Places, tag: [u8; TAG]) -> Vec<u8> {
    const ODD: [&str; 7] = [
        "::",
        "::1",
        "fe80::9",
        "ff0e::1",
        "::ffff:1.2.3.4",
        "2001:db8:2:1::1",
        "fec0::1",
    ];
    let odd = |rng: &mut Random| rng.pick(&ODD).parse().unwrap();
    let src = if rng.once_in(16) {
        odd(rng)
    } else {
        "2001:db8:1:1::2".parse().unwrap()
    };
    let dst = match rng.below(16) {
        0 => odd(rng),
        1 => *rng.pick(&places.sids),
        _ => *rng.pick(&places.v6),
    };
    let hops = *rng.pick(&[64, 64, 64, 64, 64, 255, 2, 1, 0]);
    let mut next = UDP;
    let mut body = udp(rng, &tag);
    if rng.once_in(12) {
        next = header(rng, next, &mut body);
    }
    let body = grown(rng, places, 40, body);
    let word = rng.bits() as u32 & *rng.pick(&[0, 0xf_ffff, 0xfff_ffff]);
    let mut packet = frame::ipv6(src, dst, next, hops, word, &body);
    match rng.below(30) {
        0 => packet[0] = *rng.pick(&[0x40, 0x50, 0x70, 0]),
        1 => {
            let lie = body.len() as i64 + rng.below(41) as i64 - 20;
            packet[4..6].copy_from_slice(&(lie.max(0) as u16).to_be_bytes());
        }
        2 => packet.truncate(rng.below(44)),
        _ => {}
    }
    packet
}

fn ethernet(rng: &mut Random, places: &Places, tag: [u8; TAG]) -> Vec<u8> {
    let mut frame = rng.bytes(12);
    let (kind, packet): (u16, Vec<u8>) = match rng.below(8) {
        0..=2 => (0x0800, inner4(rng, places, tag)),
        3..=4 => (0x86dd, inner6(rng, places, tag)),
        5 => (
            0x8100,
            [vec![0, 7, 8, 0], inner4(rng, places, tag)].concat(),
        ),
        6 => (
            rng.bits() as u16 | 0x600,
            [&tag[..], &rng.bytes(60)].concat(),
        ),
        _ => {
            let kind = *rng.pick(&[0x05ff, 0x0600, 0x05dc, 46, 0, 0x0806, 0x88cc]);
            (kind, [&tag[..], &rng.bytes(60)].concat())
        }
    };
    // A sender's first byte is even.
    frame[6] = if kind == 0x8100 {
        TAGGED
    } else {
        frame[6] & 0x7e
    };
    frame.extend(kind.to_be_bytes());
    let packet = grown(rng, places, 0, packet);
    frame.extend(packet);
    if rng.once_in(24) {
        frame.truncate(rng.below(18));
    }
    frame
}
