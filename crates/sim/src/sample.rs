//! Samples of flows: read from lists, taken from packets, or made up.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use raddle_packet::{Addresses, Dissected, Family, Stop, dissect, protocol};
use raddle_select::{Flow, KeyError};
use thiserror::Error;

use crate::layout::Path;
use crate::predict::{Asker, Predictor};

/// A flow of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Addresses, protocol, ports, label.
    pub flow: Flow,
    /// The start of a packet of it, from the IP header on, where one was captured: fragments,
    /// tunnels and ICMP errors hash by more than the flow says.
    pub packet: Option<Vec<u8>>,
    /// How much it counts: bytes where they are known, 1 otherwise.
    pub load: u64,
}

impl Sample {
    /// Of a flow that counts 1.
    pub fn of(flow: Flow) -> Sample {
        Sample {
            flow,
            packet: None,
            load: 1,
        }
    }

    /// Of a packet, `l3` being what was captured from its IP header on; none where there is no IP
    /// header.
    pub fn of_packet(family: Family, l3: &[u8], load: u64) -> Option<Sample> {
        Some(Sample {
            flow: flow_of(&dissect(l3, family, Stop::AtEncap))?,
            packet: Some(l3.to_vec()),
            load,
        })
    }

    /// The path that it takes: through a router by its packet, where there is one; as a flow otherwise.
    ///
    /// # Errors
    /// [`KeyError`] for a packet that the kernel would not forward either, or that is not modelled.
    pub fn path(&self, predictor: &Predictor) -> Result<Path, KeyError> {
        match &self.packet {
            Some(packet) if predictor.hashing().asker() == Asker::Router => {
                predictor.packet(self.flow.family(), packet)
            }
            _ => Ok(predictor.flow(&self.flow)),
        }
    }
}

/// The flow that the dissector saw; none without addresses.
pub fn flow_of(seen: &Dissected) -> Option<Flow> {
    let flow = match seen.addresses {
        Addresses::V4 { src, dst } => Flow::new(src.into(), dst.into()),
        Addresses::V6 { src, dst } => Flow::new(src.into(), dst.into()),
        Addresses::None => None,
    }?;
    Some(Flow {
        flow_label: seen.flow_label,
        ..flow.ports(seen.ip_proto, seen.sport, seen.dport)
    })
}

/// What is wrong with a line of a list of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LineError {
    /// No two addresses.
    #[error("no flow in it")]
    NoFlow,
    /// Addresses of both families.
    #[error("{src} and {dst} are of different families")]
    Families {
        /// Source.
        src: IpAddr,
        /// Destination.
        dst: IpAddr,
    },
}

/// Reads a line of a list of flows: `SRC DST [PROTO [SPORT DPORT]]`, a line of `conntrack -L` (the
/// original direction), or of `ss -tun`.
///
/// 1. An empty line, the header of `ss` and listening sockets have no flow.
/// 2. A line with `src=` and `dst=` is conntrack's; its protocol is the first name of one.
/// 3. A line with two `ADDRESS:PORT` is `ss`'s; the protocol is TCP unless the line says otherwise.
/// 4. Everything else starts with two addresses. Mapped addresses (`::ffff:192.0.2.1`) are IPv4.
///
/// # Errors
/// [`LineError`] where it is none of these.
pub fn parse_line(line: &str) -> Result<Option<Flow>, LineError> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let Some(ends) = ends(&words) else {
        if words.is_empty() || is_header(&words) || is_listening(&words) {
            return Ok(None);
        }
        return Err(LineError::NoFlow);
    };
    let (src, dst) = (ends.src.to_canonical(), ends.dst.to_canonical());
    let flow = Flow::new(src, dst).ok_or(LineError::Families { src, dst })?;
    Ok(Some(flow.ports(ends.proto, ends.sport, ends.dport)))
}

struct Ends {
    src: IpAddr,
    dst: IpAddr,
    proto: u8,
    sport: u16,
    dport: u16,
}

fn ends(words: &[&str]) -> Option<Ends> {
    conntrack(words)
        .or_else(|| ss(words))
        .or_else(|| plain(words))
}

fn conntrack(words: &[&str]) -> Option<Ends> {
    let value = |key: &str| words.iter().find_map(|word| word.strip_prefix(key));
    let port = |key: &str| value(key).and_then(|port| port.parse().ok()).unwrap_or(0);
    Some(Ends {
        src: value("src=")?.parse().ok()?,
        dst: value("dst=")?.parse().ok()?,
        proto: words.iter().find_map(|word| named(word)).unwrap_or(0),
        sport: port("sport="),
        dport: port("dport="),
    })
}

fn ss(words: &[&str]) -> Option<Ends> {
    let mut ends = words.iter().filter_map(|word| end(word));
    let ((src, sport), (dst, dport)) = (ends.next()?, ends.next()?);
    Some(Ends {
        src,
        dst,
        proto: words
            .iter()
            .find_map(|word| named(word))
            .unwrap_or(protocol::TCP),
        sport,
        dport,
    })
}

/// `10.0.0.1:22`, `10.0.0.1%eth0:22`, `[fe80::1%eth0]:22`.
fn end(word: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = word.rsplit_once(':')?;
    let v6 = address
        .strip_prefix('[')
        .and_then(|rest| rest.split(']').next());
    let without_device = |text: &str| text.split('%').next()?.parse::<IpAddr>().ok();
    let address = match v6 {
        Some(v6) => without_device(v6).filter(IpAddr::is_ipv6),
        None => without_device(address).filter(IpAddr::is_ipv4),
    }?;
    Some((address, port.parse().ok()?))
}

fn plain(words: &[&str]) -> Option<Ends> {
    let (src, dst) = (words.first()?.parse().ok()?, words.get(1)?.parse().ok()?);
    let number = |at: usize| match words.get(at) {
        Some(word) => word.parse::<u16>().ok(),
        None => Some(0),
    };
    let proto = match words.get(2) {
        Some(word) => named(word).or_else(|| word.parse().ok())?,
        None => 0,
    };
    Some(Ends {
        src,
        dst,
        proto,
        sport: number(3)?,
        dport: number(4)?,
    })
}

/// Protocols that have a name here, and how they may be called; the first of one's names is told.
const NAMES: [(&str, u8); 9] = [
    ("icmp", protocol::ICMP),
    ("tcp", protocol::TCP),
    ("udp", protocol::UDP),
    ("dccp", protocol::DCCP),
    ("gre", protocol::GRE),
    ("icmpv6", protocol::ICMPV6),
    ("ipv6-icmp", protocol::ICMPV6),
    ("sctp", protocol::SCTP),
    ("udplite", protocol::UDPLITE),
];

/// A protocol's number by its name.
pub fn named(word: &str) -> Option<u8> {
    let found = NAMES.iter().find(|(name, _)| *name == word);
    found.map(|(_, number)| *number)
}

/// A protocol's name, if it has one: `tcp` for 6.
pub fn name_of(number: u8) -> Option<&'static str> {
    let found = NAMES.iter().find(|(_, known)| *known == number);
    found.map(|(name, _)| *name)
}

fn is_header(words: &[&str]) -> bool {
    matches!(words.first(), Some(&"Netid" | &"State" | &"Recv-Q"))
}

/// Sockets without a peer: `0.0.0.0:*`, `*:*`, `[::]:*`.
fn is_listening(words: &[&str]) -> bool {
    words.iter().any(|word| word.ends_with(":*"))
}

/// Made-up TCP flows: sources drawn from `hosts`, and destinations too where `dst` is none; source
/// ports from Linux's default range, destination port 443. The same for the same `seed`. None where
/// the families differ.
pub fn synthetic(hosts: IpNet, dst: Option<IpAddr>, count: usize, seed: u64) -> Option<Vec<Flow>> {
    let mut random = SplitMix(seed);
    let mut make = || {
        let src = host(hosts, &mut random);
        let dst = dst.unwrap_or_else(|| host(hosts, &mut random));
        let sport = 32768 + (random.next() % (61000 - 32768)) as u16;
        Some(Flow::new(src, dst)?.ports(protocol::TCP, sport, 443))
    };
    (0..count).map(|_| make()).collect()
}

/// A random address within a prefix.
fn host(hosts: IpNet, random: &mut SplitMix) -> IpAddr {
    let wide = u128::from(random.next()) << 64 | u128::from(random.next());
    match hosts {
        IpNet::V4(net) => {
            let mask = u32::from(net.hostmask());
            Ipv4Addr::from(u32::from(net.network()) | (wide as u32 & mask)).into()
        }
        IpNet::V6(net) => {
            let mask = u128::from(net.hostmask());
            Ipv6Addr::from(u128::from(net.network()) | (wide & mask)).into()
        }
    }
}

/// SplitMix64: reproducible numbers, nothing more.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> String {
        let flow = parse_line(line).unwrap().unwrap();
        let (src, dst) = match flow.addresses {
            raddle_select::KeyAddresses::V4 { src, dst } => (src.to_string(), dst.to_string()),
            raddle_select::KeyAddresses::V6 { src, dst } => (src.to_string(), dst.to_string()),
        };
        format!("{src} {dst} {} {} {}", flow.proto, flow.sport, flow.dport)
    }

    #[test]
    fn reads_every_kind_of_line() {
        for (line, flow) in [
            (
                "10.0.0.1 10.0.0.2 tcp 4000 443",
                "10.0.0.1 10.0.0.2 6 4000 443",
            ),
            ("fd00::1 fd00::2 17 1 2", "fd00::1 fd00::2 17 1 2"),
            ("10.0.0.1 10.0.0.2", "10.0.0.1 10.0.0.2 0 0 0"),
            (
                "tcp 6 431999 ESTABLISHED src=10.0.0.1 dst=10.0.0.2 sport=4000 dport=443 \
                 src=10.0.0.2 dst=10.0.0.1 sport=443 dport=4000 [ASSURED] mark=0 use=1",
                "10.0.0.1 10.0.0.2 6 4000 443",
            ),
            (
                "ipv6 10 udp 17 29 src=fd00::1 dst=fd00::2 sport=53 dport=5353 [UNREPLIED]",
                "fd00::1 fd00::2 17 53 5353",
            ),
            (
                "icmp 1 29 src=10.0.0.1 dst=10.0.0.2 type=8 code=0 id=9",
                "10.0.0.1 10.0.0.2 1 0 0",
            ),
            (
                "ESTAB 0 0 10.0.0.1:4000 10.0.0.2:443 users:((\"curl\",pid=1,fd=3))",
                "10.0.0.1 10.0.0.2 6 4000 443",
            ),
            (
                "udp ESTAB 0 0 [fe80::1%eth0]:4000 [fe80::2]:53",
                "fe80::1 fe80::2 17 4000 53",
            ),
            (
                "tcp ESTAB 0 0 [::ffff:10.0.0.1]:22 [::ffff:10.0.0.2]:50000",
                "10.0.0.1 10.0.0.2 6 22 50000",
            ),
        ] {
            assert_eq!(one(line), flow, "{line}");
        }
        for none in [
            "",
            "Netid State Recv-Q Send-Q Local Peer",
            "tcp LISTEN 0 128 0.0.0.0:22 0.0.0.0:*",
            "udp UNCONN 0 0 *:68 *:*",
        ] {
            assert_eq!(parse_line(none), Ok(None), "{none}");
        }
    }

    #[test]
    fn what_is_no_flow_is_a_mistake() {
        assert_eq!(parse_line("hello world"), Err(LineError::NoFlow));
        let wide = "10.0.0.1 10.0.0.2 tcp 70000 1";
        assert_eq!(parse_line(wide), Err(LineError::NoFlow));
        let error = parse_line("10.0.0.1 fd00::1").unwrap_err();
        assert!(error.to_string().contains("different families"), "{error}");
    }

    #[test]
    fn made_up_flows_are_within_the_prefix_and_the_same_again() {
        for (hosts, dst) in [("10.1.0.0/24", "192.0.2.1"), ("fd00::/64", "2001:db8::1")] {
            let (hosts, dst): (IpNet, IpAddr) = (hosts.parse().unwrap(), dst.parse().unwrap());
            let flows = synthetic(hosts, Some(dst), 50, 7).unwrap();
            assert_eq!(flows, synthetic(hosts, Some(dst), 50, 7).unwrap());
            assert_ne!(flows, synthetic(hosts, Some(dst), 50, 8).unwrap());
            for flow in flows {
                let (src, to): (IpAddr, IpAddr) = match flow.addresses {
                    raddle_select::KeyAddresses::V4 { src, dst } => (src.into(), dst.into()),
                    raddle_select::KeyAddresses::V6 { src, dst } => (src.into(), dst.into()),
                };
                assert!(hosts.contains(&src) && to == dst && flow.sport >= 32768);
            }
        }
        let mixed = "10.0.0.0/8".parse().unwrap();
        assert_eq!(synthetic(mixed, Some("::1".parse().unwrap()), 1, 1), None);
    }

    #[test]
    fn a_packet_says_its_flow() {
        let mut l3 = vec![
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        l3.extend([0x10, 0, 0, 53, 0, 8, 0, 0]);
        let sample = Sample::of_packet(Family::V4, &l3, 28).unwrap();
        assert_eq!(
            (sample.flow.sport, sample.flow.dport, sample.load),
            (4096, 53, 28)
        );
        assert_eq!(Sample::of_packet(Family::V4, &l3[..10], 1), None);
    }
}
