//! What rules ask of a packet itself: addresses, TOS, protocol, ports.

use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::event::Rule;

/// What of a packet rules look at, besides the link that it comes in by. Of IPv4 and IPv6 alike, in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// Its source.
    pub src: IpAddr,
    /// Its destination.
    pub dst: IpAddr,
    /// TOS, or traffic class.
    pub tos: u8,
    /// Protocol behind extension headers, as the flow dissector finds it without a look into tunnels.
    pub proto: u8,
    /// Source port; 0 of what has none, and of fragments.
    pub sport: u16,
    /// Destination port, likewise.
    pub dport: u16,
}

impl Fields {
    /// The same of a packet the other way round, as the kernel asks for the way back.
    #[must_use]
    pub fn swapped(self) -> Fields {
        Fields {
            src: self.dst,
            dst: self.src,
            sport: self.dport,
            dport: self.sport,
            ..self
        }
    }
}

/// Bits of the TOS that a rule's `tos` of IPv4 is compared with (`IPTOS_RT_MASK`), and those that make the DSCP.
const TOS4: u8 = 0x1c;
const DSCP: u8 = 0xfc;

/// What a rule asks for: packets with all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asked {
    /// Sources.
    pub src: IpNet,
    /// Destinations.
    pub dst: IpNet,
    /// TOS, and which of its bits count.
    pub tos: (u8, u8),
    /// Protocol.
    pub proto: Option<u8>,
    /// First and last source port.
    pub sport: (u16, u16),
    /// First and last destination port.
    pub dport: (u16, u16),
}

/// All ports.
const ALL: (u16, u16) = (0, u16::MAX);

/// The prefix of two that is within the other.
fn common_net(a: IpNet, b: IpNet) -> Option<IpNet> {
    if a.contains(&b) {
        return Some(b);
    }
    b.contains(&a).then_some(a)
}

fn common(a: (u16, u16), b: (u16, u16)) -> Option<(u16, u16)> {
    let both = (a.0.max(b.0), a.1.min(b.1));
    (both.0 <= both.1).then_some(both)
}

fn has(range: (u16, u16), port: u16) -> bool {
    (range.0..=range.1).contains(&port)
}

impl Asked {
    /// All packets of a family.
    pub fn all(family: u8) -> Asked {
        let all = match family {
            4 => IpNet::V4(Ipv4Net::default()),
            _ => IpNet::V6(Ipv6Net::default()),
        };
        Asked {
            src: all,
            dst: all,
            tos: (0, 0),
            proto: None,
            sport: ALL,
            dport: ALL,
        }
    }

    /// All packets to an address.
    pub fn to(dst: IpAddr) -> Asked {
        Asked {
            dst: dst.into(),
            ..Asked::all(if dst.is_ipv4() { 4 } else { 6 })
        }
    }

    /// What a rule asks for (`fib4_rule_match`, `fib6_rule_match`, Linux 6.1 to 6.18).
    ///
    /// 1. `tos` of an IPv4 rule is compared with bits 2 to 4 of the TOS, that of an IPv6 rule and `dscp` with the six of the DSCP.
    ///    A `tos` of 0 asks for nothing; a `dscp` of 0 does.
    /// 2. What a rule does not name is any.
    pub fn of(rule: &Rule) -> Asked {
        let all = Asked::all(rule.family);
        Asked {
            src: rule.from.unwrap_or(all.src),
            dst: rule.to.unwrap_or(all.dst),
            tos: match (rule.dscp, rule.tos) {
                (Some(dscp), _) => (dscp << 2, DSCP),
                (None, 0) => (0, 0),
                (None, tos) if rule.family == 4 => (tos, TOS4),
                (None, tos) => (tos & DSCP, DSCP),
            },
            proto: rule.ip_proto,
            sport: rule.sport.unwrap_or(ALL),
            dport: rule.dport.unwrap_or(ALL),
        }
    }

    /// Whether a packet has all of it.
    pub fn holds(&self, fields: &Fields) -> bool {
        self.src.contains(&fields.src)
            && self.dst.contains(&fields.dst)
            && (fields.tos & self.tos.1) == self.tos.0
            && self.proto.is_none_or(|proto| proto == fields.proto)
            && has(self.sport, fields.sport)
            && has(self.dport, fields.dport)
    }

    /// What both ask for; none where no packet has it.
    pub fn and(&self, other: &Asked) -> Option<Asked> {
        let clash = (self.tos.0 ^ other.tos.0) & self.tos.1 & other.tos.1 != 0;
        let protos = self.proto.zip(other.proto);
        if clash || protos.is_some_and(|(a, b)| a != b) {
            return None;
        }
        Some(Asked {
            src: common_net(self.src, other.src)?,
            dst: common_net(self.dst, other.dst)?,
            tos: (self.tos.0 | other.tos.0, self.tos.1 | other.tos.1),
            proto: self.proto.or(other.proto),
            sport: common(self.sport, other.sport)?,
            dport: common(self.dport, other.dport)?,
        })
    }

    /// Whether all that `other` asks for is of this, too.
    pub fn contains(&self, other: &Asked) -> bool {
        self.and(other) == Some(*other)
    }

    /// The same of packets the other way round.
    #[must_use]
    pub fn swapped(self) -> Asked {
        Asked {
            src: self.dst,
            dst: self.src,
            sport: self.dport,
            dport: self.sport,
            ..self
        }
    }
}

/// As `ip rule` prints selectors, each after a blank: ` from 10.0.0.0/8 ipproto tcp`. Nothing of what is any.
impl fmt::Display for Asked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (word, net) in [("from", self.src), ("to", self.dst)] {
            if net.prefix_len() > 0 {
                write!(out, " {word} {net}")?;
            }
        }
        write_selectors(self, out)
    }
}

/// What is not addresses.
pub(super) fn write_selectors(asked: &Asked, out: &mut dyn fmt::Write) -> fmt::Result {
    match asked.tos {
        (_, 0) => {}
        (dscp, DSCP) => write!(out, " dscp {}", dscp >> 2)?,
        (tos, _) => write!(out, " tos {tos:#04x}")?,
    }
    if let Some(proto) = asked.proto {
        match PROTOCOLS.iter().find(|(number, _)| *number == proto) {
            Some((_, name)) => write!(out, " ipproto {name}")?,
            None => write!(out, " ipproto {proto}")?,
        }
    }
    for (word, (first, last)) in [("sport", asked.sport), ("dport", asked.dport)] {
        match (first, last) {
            ALL => {}
            _ if first == last => write!(out, " {word} {first}")?,
            _ => write!(out, " {word} {first}-{last}")?,
        }
    }
    Ok(())
}

/// Protocols by the names that `ip rule` has for them.
pub const PROTOCOLS: [(u8, &str); 5] = [
    (1, "icmp"),
    (6, "tcp"),
    (17, "udp"),
    (58, "ipv6-icmp"),
    (132, "sctp"),
];
