//! What is asked of a port plan.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use raddle_packet::protocol::{AH, ESP, ports_offset};
use raddle_rib::Asked;
use raddle_sim::ports::{ShareOut, Vary};

/// Whether connections of a protocol have source ports; what the kernel hashes of ESP and AH in their place is the SPI.
pub(super) fn has_ports(proto: u8) -> bool {
    ports_offset(proto).is_some() && !matches!(proto, ESP | AH)
}

/// What connections are to be planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Destination.
    pub dst: IpAddr,
    /// How many connections.
    pub count: usize,
    /// Protocol number.
    pub proto: u8,
    /// Destination port; 0 where it does not matter.
    pub dport: u16,
    /// Source address; none (or 0.0.0.0, or ::) for the one that the kernel gives to connected sockets, or each its path's.
    pub from: Option<IpAddr>,
    /// The link that packets of others come in by; none for connections of this machine's own.
    pub iif: Option<String>,
    /// What differs between the connections.
    pub vary: Vary,
    /// Source port, where flow labels differ.
    pub sport: u16,
    /// The first value that may be used, if not that of the kernel's range.
    pub first: Option<u32>,
    /// The last one.
    pub last: Option<u32>,
    /// How connections are shared out over the paths.
    pub share_out: ShareOut,
    /// The state is that of the running kernel, which may be asked what the state does not say: its port range, the
    /// sources that it gives to IPv6 sockets, and whether these may be bound to addresses of others.
    pub live: bool,
}

impl Question {
    /// TCP connections of this machine's own, evenly over the paths, by a state that is not the running kernel's.
    pub fn new(dst: IpAddr, count: usize) -> Question {
        Question {
            dst,
            count,
            proto: 6,
            dport: 0,
            from: None,
            iif: None,
            vary: Vary::SourcePort,
            sport: 0,
            first: None,
            last: None,
            share_out: ShareOut::Evenly,
            live: false,
        }
    }

    /// What the packets show that routing rules may ask for, from this address or from none yet. Their TOS is 0, as that of sockets is
    /// which do not set it.
    pub(super) fn packets(&self, from: Option<IpAddr>, values: &[u32]) -> Asked {
        let mut packets = packets(self.dst, self.proto, self.dport);
        packets.src = from
            .unwrap_or(match self.dst {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            })
            .into();
        packets.sport = match self.by_label() {
            true => (self.sport, self.sport),
            false => ports_of(values.iter().copied()),
        };
        packets
    }

    /// Whether flow labels differ, not ports.
    pub(super) fn by_label(&self) -> bool {
        self.vary == Vary::FlowLabel
    }
}

/// The first and the last of such ports.
pub(super) fn ports_of(values: impl IntoIterator<Item = u32> + Clone) -> (u16, u16) {
    let port = |value: Option<u32>| value.and_then(|value| u16::try_from(value).ok());
    let least = values.clone().into_iter().min();
    let most = values.into_iter().max();
    (port(least).unwrap_or(0), port(most).unwrap_or(u16::MAX))
}

/// Packets of connections to a port, or to any of them (0).
pub(super) fn packets(dst: IpAddr, proto: u8, dport: u16) -> Asked {
    let mut packets = Asked {
        tos: (0, u8::MAX),
        proto: (proto != 0).then_some(proto),
        ..Asked::to(dst)
    };
    if dport != 0 {
        packets.dport = (dport, dport);
    }
    packets
}
