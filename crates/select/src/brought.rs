//! The hash that a packet brings along: its NIC's, or one that the kernel made before it looked up the route. With policy
//! 1 the kernel takes it, where it is one over ports, in place of seed and fields (`skb->l4_hash`).

use std::net::{Ipv4Addr, Ipv6Addr};

use raddle_packet::{Dissected, Family, Stop, Whole, dissect, dissect_whole, protocol};

use crate::hash::{absorb, finish, keyed};
use crate::key::{Flow, FlowKey, KeyAddresses};
use crate::keys::addresses;
use crate::seed::HashKey;

/// How a NIC hashes what it receives: what `ethtool -x` and `ethtool -n DEV rx-flow-hash` tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rss {
    /// The function's key, in the order in which `ethtool -x` prints it.
    pub key: Vec<u8>,
    /// `hfunc` (`ETH_RSS_HASH_*`).
    pub function: u8,
    /// `input_xfrm` (`RXH_XFRM_*`).
    pub transform: u8,
    /// What is hashed of packets of a protocol, where the driver tells.
    pub fields: Vec<RssFields>,
}

/// What a NIC hashes of one kind of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RssFields {
    /// Of this family.
    pub family: Family,
    /// Of this protocol.
    pub proto: u8,
    /// `RXH_*`, of `ETHTOOL_GRXFH`.
    pub mask: u64,
}

/// The number of the Toeplitz function (`ETH_RSS_HASH_TOP`).
pub const TOEPLITZ: u8 = 1;
/// Both addresses, without ports (`RXH_IP_SRC`, `RXH_IP_DST`).
pub const RXH_ADDRESSES: u64 = 1 << 4 | 1 << 5;
/// Both addresses and both ports (with `RXH_L4_B_0_1`, `RXH_L4_B_2_3`).
pub const RXH_PORTS: u64 = RXH_ADDRESSES | 1 << 6 | 1 << 7;
/// `RXH_XFRM_SYM_XOR`, `RXH_XFRM_SYM_OR_XOR`: both directions get one hash.
const SYMMETRIC_XOR: u8 = 1;
const SYMMETRIC_OR_XOR: u8 = 2;

/// Whether the kernel steers the packets of a link by their hash (receive packet steering), for which it gives them one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// Of no queue.
    Off,
    /// Of some queues; or by flow tables alone (`rps_flow_cnt`), which count where anything on the machine steers.
    Partly,
    /// Of every queue.
    On,
}

/// Who has given a packet its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giver {
    /// The NIC.
    Nic,
    /// The kernel, for receive packet steering (`skb_get_hash`).
    Kernel,
}

/// What a packet brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brought {
    /// No hash over ports: its fields are hashed.
    Nothing,
    /// A hash over ports, of which policy 1 takes the upper 31 bits ([`Brought::hash31`]).
    Hash {
        /// All of it.
        hash: u32,
        /// Whose it is.
        giver: Giver,
    },
    /// Perhaps one, for this reason not known.
    Unknown(&'static str),
}

impl Brought {
    /// What policy 1 chooses by (`skb->hash >> 1`, `fib_multipath_hash`); none where fields are hashed.
    pub fn hash31(self) -> Option<u32> {
        match self {
            Brought::Hash { hash, .. } => Some(hash >> 1),
            Brought::Nothing | Brought::Unknown(_) => None,
        }
    }
}

/// What gives packets that come in by a link a hash; by default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Brings {
    /// The NIC, whose hash the driver passes on.
    pub nic: Option<Rss>,
    /// The kernel, by this key (`hashrnd`), for receive packet steering.
    pub software: Option<HashKey>,
}

impl Brings {
    /// Whether packets bring none.
    pub fn is_nothing(&self) -> bool {
        self.nic.is_none() && self.software.is_none()
    }

    /// What a packet of a flow brings, which is in no tunnel, without extension headers and no fragment.
    ///
    /// 1. The NIC's hash, where it is one over ports or is not known.
    /// 2. Else the kernel's: addresses, protocol, ports and EtherType; of an IPv6 packet with a flow label that in place of
    ///    the ports. It counts as one over ports where ports or label are not 0.
    pub fn of_flow(&self, flow: &Flow) -> Brought {
        let tunnel = matches!(flow.proto, protocol::IPIP | protocol::IPV6 | protocol::GRE);
        if tunnel && !self.is_nothing() {
            return Brought::Unknown("the packet inside is hashed, of which nothing is said");
        }
        let nic = self.nic.as_ref().map(|rss| rss.of_flow(flow));
        if let Some(brought @ (Brought::Hash { .. } | Brought::Unknown(_))) = nic {
            return brought;
        }
        let Some(key) = self.software else {
            return Brought::Nothing;
        };
        let ports = match flow.flow_label {
            0 if protocol::ports_offset(flow.proto).is_some() => (flow.sport, flow.dport),
            _ => (0, 0),
        };
        let flow_key = FlowKey {
            addresses: flow.addresses,
            sport: ports.0,
            dport: ports.1,
            ip_proto: flow.proto,
            flow_label_word: flow.flow_label,
        };
        let ether_type = match flow.family() {
            Family::V4 => protocol::ethertype::IPV4,
            Family::V6 => protocol::ethertype::IPV6,
        };
        software(key, &flow_key, ether_type, ([0; 4], [0; 4]))
    }

    /// What a packet brings; `l3` is the packet from its IP header on.
    ///
    /// By the rules of [`Brings::of_flow`], but that a NIC may look into tunnels, or take extension headers otherwise: that is
    /// not known; and that the kernel hashes the innermost packet, with the key of GRE, unless an IPv6 header with a flow
    /// label comes first.
    pub fn of_packet(&self, family: Family, l3: &[u8]) -> Brought {
        let nic = self.nic.as_ref().map(|rss| rss.of_packet(family, l3));
        if let Some(brought @ (Brought::Hash { .. } | Brought::Unknown(_))) = nic {
            return brought;
        }
        match self.software {
            Some(key) => software_hash(key, family, l3),
            None => Brought::Nothing,
        }
    }
}

impl Rss {
    fn of_flow(&self, flow: &Flow) -> Brought {
        self.over_ports(flow.addresses, flow.proto, [flow.sport, flow.dport])
    }

    fn of_packet(&self, family: Family, l3: &[u8]) -> Brought {
        let seen = dissect(l3, family, Stop::AtEncap);
        let first = match family {
            Family::V4 => l3.get(9),
            Family::V6 => l3.get(6),
        };
        let Some(addresses) = addresses(&seen) else {
            return Brought::Nothing;
        };
        match seen {
            Dissected {
                encapsulated: true, ..
            } => Brought::Unknown("a NIC may hash what is in a tunnel"),
            Dissected { fragment: true, .. } => Brought::Nothing,
            _ if first != Some(&seen.ip_proto) => {
                Brought::Unknown("a NIC may hash ports behind extension headers, or not")
            }
            _ => self.over_ports(addresses, seen.ip_proto, [seen.sport, seen.dport]),
        }
    }

    /// 1. A protocol of which the driver tells no fields: nothing, but for those whose fields a NIC may know without telling.
    /// 2. Fields without ports: a hash that policy 1 does not look at.
    /// 3. Addresses and ports, by Toeplitz: source before destination, as symmetric as the NIC is told to be.
    /// 4. Any other fields, function or transformation: not known.
    fn over_ports(&self, addresses: KeyAddresses, proto: u8, ports: [u16; 2]) -> Brought {
        let family = match addresses {
            KeyAddresses::V4 { .. } => Family::V4,
            KeyAddresses::V6 { .. } => Family::V6,
        };
        let of = |fields: &&RssFields| (fields.family, fields.proto) == (family, proto);
        let mask = match self.fields.iter().find(of) {
            Some(fields) => fields.mask,
            None if protocol::ports_offset(proto).is_none() => return Brought::Nothing,
            None => {
                return Brought::Unknown(
                    "the driver does not tell what it hashes of this protocol",
                );
            }
        };
        if mask & !RXH_ADDRESSES == 0 {
            return Brought::Nothing;
        }
        if mask != RXH_PORTS {
            return Brought::Unknown("it hashes other fields than addresses and ports");
        }
        if self.function != TOEPLITZ {
            return Brought::Unknown("its function is not Toeplitz");
        }
        let mut input = [0; 36];
        let pairs = match addresses {
            KeyAddresses::V4 { src, dst } => {
                let [src, dst] = self.transformed([src, dst].map(|a: Ipv4Addr| a.to_bits().into()));
                [src, dst].map(|a| a << 96)
            }
            KeyAddresses::V6 { src, dst } => {
                self.transformed([src, dst].map(|a: Ipv6Addr| a.to_bits()))
            }
        };
        let width = match family {
            Family::V4 => 4,
            Family::V6 => 16,
        };
        input[..width].copy_from_slice(&pairs[0].to_be_bytes()[..width]);
        input[width..2 * width].copy_from_slice(&pairs[1].to_be_bytes()[..width]);
        for (i, port) in self
            .transformed(ports.map(u128::from))
            .into_iter()
            .enumerate()
        {
            let at = 2 * width + 2 * i;
            input[at..at + 2].copy_from_slice(&(port as u16).to_be_bytes());
        }
        if !matches!(self.transform, 0 | SYMMETRIC_XOR | SYMMETRIC_OR_XOR) {
            return Brought::Unknown("it transforms what it hashes in a way that is not known");
        }
        match toeplitz(&self.key, &input[..2 * width + 4]) {
            Some(hash) => Brought::Hash {
                hash,
                giver: Giver::Nic,
            },
            None => Brought::Unknown("its key is too short for Toeplitz"),
        }
    }

    /// Source and destination as they are hashed.
    fn transformed(&self, [src, dst]: [u128; 2]) -> [u128; 2] {
        match self.transform {
            SYMMETRIC_XOR => [src ^ dst, src ^ dst],
            SYMMETRIC_OR_XOR => [src | dst, src ^ dst],
            _ => [src, dst],
        }
    }
}

/// The Toeplitz hash of receive side scaling: for each bit of the input that is set, 32 bits of the key from that bit on. None
/// for a key that is shorter than the input and 4 bytes.
///
/// Source: Microsoft, "RSS hashing functions"; its examples are tests.
pub fn toeplitz(key: &[u8], input: &[u8]) -> Option<u32> {
    if key.len() < input.len() + 4 {
        return None;
    }
    let mut bytes = key.iter().copied();
    let mut window = 0u64;
    for byte in bytes.by_ref().take(8) {
        window = window << 8 | u64::from(byte);
    }
    // A key of less than 8 bytes has no input to hash but 4 bytes at most.
    window <<= 8 * 8usize.saturating_sub(key.len());
    let mut hash = 0;
    for byte in input {
        for bit in 0..8 {
            if byte << bit & 0x80 != 0 {
                hash ^= (window >> 32) as u32;
            }
            window <<= 1;
        }
        window |= u64::from(bytes.next().unwrap_or(0));
    }
    Some(hash)
}

/// The hash that the kernel gives to a packet without one (`skb_get_hash`), by its key (`hashrnd`).
///
/// It is the same for both directions of a flow. [`Brought::Nothing`] where it is none over ports (`flow_keys_have_l4`): of
/// fragments and protocols without ports, or where the packet makes no sense.
///
/// Models `___skb_get_hash` and `__flow_hash_from_keys` (Linux 6.1 to 6.18).
pub fn software_hash(key: HashKey, family: Family, l3: &[u8]) -> Brought {
    let whole = dissect_whole(l3, family);
    if whole.more {
        return Brought::Unknown(MORE);
    }
    match flow_key(&whole) {
        Some(flow) => software(key, &flow, whole.ether_type, (whole.gre_key, whole.left)),
        None => Brought::Nothing,
    }
}

/// The same whether it is over ports or not: what source ports of UDP tunnels are made of (`udp_flow_src_port`).
///
/// # Errors
/// Why it is not known.
pub fn skb_hash(key: HashKey, family: Family, l3: &[u8]) -> Result<u32, &'static str> {
    let whole = dissect_whole(l3, family);
    match flow_key(&whole) {
        _ if whole.more => Err(MORE),
        Some(flow) => Ok(hash_of(
            key,
            &flow,
            whole.ether_type,
            (whole.gre_key, whole.left),
        )),
        None => Err("a packet inside has no addresses"),
    }
}

const MORE: &str = "a frame inside has a VLAN tag or TIPC, which the kernel hashes too";

/// What is hashed, where addresses were seen.
fn flow_key(whole: &Whole) -> Option<FlowKey> {
    let seen = &whole.seen;
    Some(FlowKey {
        addresses: addresses(seen)?,
        sport: seen.sport,
        dport: seen.dport,
        ip_proto: seen.ip_proto,
        flow_label_word: seen.flow_label,
    })
}

/// As that of a path, but with the EtherType in front, the key of GRE, and what is left behind IPv4 addresses.
fn software(key: HashKey, flow: &FlowKey, ether_type: u16, more: ([u8; 4], [u8; 4])) -> Brought {
    if flow.sport | flow.dport == 0 && flow.flow_label_word == 0 {
        return Brought::Nothing;
    }
    Brought::Hash {
        hash: hash_of(key, flow, ether_type, more),
        giver: Giver::Kernel,
    }
}

fn hash_of(
    key: HashKey,
    flow: &FlowKey,
    ether_type: u16,
    (gre_key, left): ([u8; 4], [u8; 4]),
) -> u32 {
    let packed = flow.ordered().pack();
    let mut bytes = [0; FlowKey::LEN6];
    let length = packed.as_ref().len();
    bytes[..length].copy_from_slice(packed.as_ref());
    bytes[..2].copy_from_slice(&ether_type.to_be_bytes());
    bytes[24..28].copy_from_slice(&gre_key);
    if flow.family() == Family::V4 {
        bytes[44..48].copy_from_slice(&left);
    }
    let mut state = keyed(key);
    for word in bytes[..length].as_chunks().0 {
        absorb(&mut state, u64::from_le_bytes(*word));
    }
    // 0 stands for "not hashed yet".
    (finish(state, length as u64) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of "Verifying the RSS hash calculation".
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn rss(mask: u64) -> Rss {
        let kinds = [Family::V4, Family::V6].map(|family| RssFields {
            family,
            proto: 6,
            mask,
        });
        Rss {
            key: KEY.into(),
            function: TOEPLITZ,
            transform: 0,
            fields: kinds.into(),
        }
    }

    fn flow((src, sport): (&str, u16), (dst, dport): (&str, u16)) -> Flow {
        let flow = Flow::new(src.parse().unwrap(), dst.parse().unwrap()).unwrap();
        flow.ports(6, sport, dport)
    }

    #[test]
    fn the_published_examples() {
        for (from, to, addresses, ports) in [
            (
                ("66.9.149.187", 2794),
                ("161.142.100.80", 1766),
                0x323e_8fc2,
                0x51cc_c178,
            ),
            (
                ("199.92.111.2", 14230),
                ("65.69.140.83", 4739),
                0xd718_262a,
                0xc626_b0ea,
            ),
            (
                ("24.19.198.95", 12898),
                ("12.22.207.184", 38024),
                0xd2d0_a5de,
                0x5c2b_394a,
            ),
            (
                ("38.27.205.30", 48228),
                ("209.142.163.6", 2217),
                0x8298_9176,
                0xafc7_327f,
            ),
            (
                ("153.39.163.191", 44251),
                ("202.188.127.2", 1303),
                0x5d18_09c5,
                0x10e8_28a2_u32,
            ),
        ] {
            let flow = flow(from, to);
            let KeyAddresses::V4 { src, dst } = flow.addresses else {
                unreachable!()
            };
            let input = [src.octets(), dst.octets()].concat();
            assert_eq!(toeplitz(&KEY, &input), Some(addresses));
            assert_eq!(
                rss(RXH_PORTS).of_flow(&flow),
                Brought::Hash {
                    hash: ports,
                    giver: Giver::Nic
                }
            );
        }
        for (from, to, ports) in [
            (
                ("3ffe:2501:200:1fff::7", 2794),
                ("3ffe:2501:200:3::1", 1766),
                0x4020_7d3d,
            ),
            (
                ("3ffe:501:8::260:97ff:fe40:efab", 14230),
                ("ff02::1", 4739),
                0xdde5_1bbf,
            ),
            (
                ("3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251),
                ("fe80::200:f8ff:fe21:67cf", 38024),
                0x02d1_feef,
            ),
        ] {
            let brought = rss(RXH_PORTS).of_flow(&flow(from, to));
            assert_eq!(
                brought,
                Brought::Hash {
                    hash: ports,
                    giver: Giver::Nic
                }
            );
        }
    }

    #[test]
    fn what_is_no_hash_over_ports_is_none() {
        let flow = flow(("10.0.0.1", 1000), ("198.18.0.1", 53));
        assert_eq!(rss(RXH_ADDRESSES).of_flow(&flow), Brought::Nothing);
        assert_eq!(rss(0).of_flow(&flow), Brought::Nothing);
        let icmp = flow.ports(1, 0, 0);
        assert_eq!(rss(RXH_PORTS).of_flow(&icmp), Brought::Nothing);
        let udp = flow.ports(17, 1000, 53);
        let odd = Rss {
            function: 2,
            ..rss(RXH_PORTS)
        };
        let short = Rss {
            key: KEY[..15].into(),
            ..rss(RXH_PORTS)
        };
        for (rss, flow) in [
            (rss(RXH_PORTS), udp),
            (rss(RXH_PORTS | 1 << 2), flow),
            (odd, flow),
            (
                Rss {
                    transform: 4,
                    ..rss(RXH_PORTS)
                },
                flow,
            ),
            (short, flow),
        ] {
            assert!(matches!(rss.of_flow(&flow), Brought::Unknown(_)), "{rss:?}");
        }
    }

    #[test]
    fn symmetric_hashes_are_those_of_both_directions() {
        let one = flow(("10.0.0.1", 1000), ("198.18.0.1", 53));
        let back = flow(("198.18.0.1", 53), ("10.0.0.1", 1000));
        for transform in [SYMMETRIC_XOR, SYMMETRIC_OR_XOR] {
            let rss = Rss {
                transform,
                ..rss(RXH_PORTS)
            };
            assert_eq!(rss.of_flow(&one), rss.of_flow(&back));
        }
        assert_ne!(rss(RXH_PORTS).of_flow(&one), rss(RXH_PORTS).of_flow(&back));
    }

    #[test]
    fn a_packet_brings_what_its_flow_does() {
        let mut l3 = vec![
            0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 198, 18, 0, 1,
        ];
        l3.extend([0x03, 0xe8, 0, 53]);
        l3.resize(40, 0);
        let flow = flow(("10.0.0.1", 1000), ("198.18.0.1", 53));
        for brings in [
            Brings {
                nic: Some(rss(RXH_PORTS)),
                software: None,
            },
            Brings {
                nic: Some(rss(RXH_ADDRESSES)),
                software: Some(HashKey::new(1, 2)),
            },
            Brings {
                nic: None,
                software: Some(HashKey::new(1, 2)),
            },
        ] {
            let brought = brings.of_packet(Family::V4, &l3);
            assert!(brought.hash31().is_some());
            assert_eq!(brought, brings.of_flow(&flow));
            // A fragment has no ports.
            let mut fragment = l3.clone();
            fragment[6] = 0x20;
            assert_eq!(brings.of_packet(Family::V4, &fragment), Brought::Nothing);
        }
        assert!(Brings::default().is_nothing());
    }
}
