//! The flow dissector: which addresses, ports and labels Linux sees in a packet.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::Family;
use crate::bytes::at;
use crate::protocol::{self, ethertype};

/// Headers that are followed before the dissector gives up (`MAX_FLOW_DISSECT_HDRS`).
pub const MAX_HEADERS: u32 = 15;

/// Where the dissector stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// In front of the first packet inside another (`FLOW_DISSECTOR_F_STOP_AT_ENCAP`): hash policy 1
    /// and the outer half of policy 3.
    AtEncap,
    /// At the innermost packet: hash policy 2 and the inner half of policy 3.
    Innermost,
}

/// Source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// None that a flow key can hold: the packet ended before they did, or the innermost protocol
    /// has addresses of its own.
    None,
    /// IPv4.
    V4 {
        /// Source.
        src: Ipv4Addr,
        /// Destination.
        dst: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Source.
        src: Ipv6Addr,
        /// Destination.
        dst: Ipv6Addr,
    },
}

/// What the dissector saw. Whatever was recorded before it had to stop stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dissected {
    /// Addresses of the last IP header that was seen.
    pub addresses: Addresses,
    /// The last protocol or next header that was seen.
    pub ip_proto: u8,
    /// Source port, host order; for ESP and AH the upper half of the SPI. 0 where there is none, and
    /// for every fragment.
    pub sport: u16,
    /// Destination port, host order; for ESP and AH the lower half of the SPI.
    pub dport: u16,
    /// The last IPv6 flow label that was not 0, as a number; 0 where there was none.
    pub flow_label: u32,
    /// A packet inside the packet was reached.
    pub encapsulated: bool,
    /// The last IP packet that was seen is a fragment (of IPv6 also an atomic one).
    pub fragment: bool,
}

/// What one header leads to.
enum Next {
    /// Another header of the link layer or an IP header, named by the EtherType.
    Protocol,
    /// Another header of the same IP packet.
    IpProtocol,
    /// Nothing but ports, or the end of the packet.
    End,
}

struct Walk<'a> {
    l3: &'a [u8],
    offset: usize,
    ether_type: u16,
    headers: u32,
    stop: Stop,
    seen: Dissected,
}

/// Dissects a packet as the kernel does for a multipath hash.
///
/// `l3` is the packet from its IP header on, ended at its IP length. Never fails: a packet that ends
/// early or makes no sense leaves what was seen until then.
///
/// 1. IPv4: addresses and protocol are recorded, unless the 20 bytes are not there or the header
///    length is below 5 words. A fragment, first or later, ends the walk without ports.
/// 2. IPv6: addresses, next header, and the flow label where it is not 0.
/// 3. Hop-by-hop, routing and destination options (only in IPv6) are skipped by their length.
/// 4. An IPv6 fragment header gives the protocol and ends the walk without ports, also where the
///    packet is its only fragment.
/// 5. IPv4, IPv6 and GRE inside count as encapsulation: [`Stop::AtEncap`] ends there, with the outer
///    protocol number and no ports; otherwise what they hold replaces what was seen. GRE is looked
///    into without routing, in version 0, and in version 1 for PPP.
/// 6. MPLS in IP ends the walk.
/// 7. TCP, UDP, DCCP, SCTP, UDP-Lite, ESP and AH: ports, or 0 where they are not there.
/// 8. After [`MAX_HEADERS`] steps the walk ends.
///
/// Models `__skb_flow_dissect` with `flow_keys_dissector` (Linux 6.12 to 6.18). A BPF flow dissector
/// attached to the namespace would replace all of it. Cost: a few nanoseconds for TCP and UDP.
#[inline]
pub fn dissect(l3: &[u8], family: Family, stop: Stop) -> Dissected {
    let mut walk = Walk {
        l3,
        offset: 0,
        ether_type: match family {
            Family::V4 => ethertype::IPV4,
            Family::V6 => ethertype::IPV6,
        },
        headers: 0,
        stop,
        seen: Dissected {
            addresses: Addresses::None,
            ip_proto: 0,
            sport: 0,
            dport: 0,
            flow_label: 0,
            encapsulated: false,
            fragment: false,
        },
    };
    walk.run();
    walk.seen
}

impl Walk<'_> {
    #[inline(always)]
    fn run(&mut self) {
        loop {
            match self.protocol() {
                Next::Protocol if self.allowed() => continue,
                Next::IpProtocol => {}
                _ => return,
            }
            loop {
                let next = self.ip_protocol();
                // After every step and not only after the last: so the kernel does it, and it shows
                // where the limit ends the walk.
                self.ports();
                match next {
                    Next::IpProtocol if self.allowed() => {}
                    Next::Protocol if self.allowed() => break,
                    _ => return,
                }
            }
        }
    }

    #[inline(always)]
    fn allowed(&mut self) -> bool {
        self.headers += 1;
        self.headers <= MAX_HEADERS
    }

    #[inline(always)]
    fn protocol(&mut self) -> Next {
        match self.ether_type {
            ethertype::IPV4 => self.ipv4(),
            ethertype::IPV6 => self.ipv6(),
            // Only a frame inside GRE or batman-adv gets here.
            _ => self.link_layer().unwrap_or(Next::End),
        }
    }

    #[inline(always)]
    fn ipv4(&mut self) -> Next {
        let Some(header) = at::<20>(self.l3, self.offset) else {
            return Next::End;
        };
        let words = header[0] & 0xf;
        if words < 5 {
            return Next::End;
        }
        self.offset += usize::from(words) * 4;
        self.seen.ip_proto = header[9];
        self.seen.addresses = Addresses::V4 {
            src: Ipv4Addr::new(header[12], header[13], header[14], header[15]),
            dst: Ipv4Addr::new(header[16], header[17], header[18], header[19]),
        };
        if (header[6] & 0x3f) | header[7] != 0 {
            self.seen.fragment = true;
            return Next::End;
        }
        Next::IpProtocol
    }

    #[inline(always)]
    fn ipv6(&mut self) -> Next {
        let Some(header) = at::<40>(self.l3, self.offset) else {
            return Next::End;
        };
        self.offset += 40;
        self.seen.ip_proto = header[6];
        let (src, dst) = header[8..].split_at(16);
        if let (Some(src), Some(dst)) = (src.first_chunk::<16>(), dst.first_chunk::<16>()) {
            self.seen.addresses = Addresses::V6 {
                src: Ipv6Addr::from(*src),
                dst: Ipv6Addr::from(*dst),
            };
        }
        let label = u32::from_be_bytes([0, header[1] & 0xf, header[2], header[3]]);
        if label != 0 {
            self.seen.flow_label = label;
        }
        Next::IpProtocol
    }

    #[inline(always)]
    fn ip_protocol(&mut self) -> Next {
        match self.seen.ip_proto {
            protocol::TCP | protocol::UDP => Next::End,
            protocol::HOPOPTS | protocol::ROUTING | protocol::DSTOPTS => self.options(),
            protocol::FRAGMENT => self.fragment(),
            protocol::IPIP => self.inside(ethertype::IPV4),
            protocol::IPV6 => self.inside(ethertype::IPV6),
            protocol::GRE => self.gre().unwrap_or(Next::End),
            // So does MPLS, whose labels only dissectors with a key for them read.
            _ => Next::End,
        }
    }

    fn options(&mut self) -> Next {
        if self.ether_type != ethertype::IPV6 {
            return Next::End;
        }
        let Some([next, length]) = at::<2>(self.l3, self.offset) else {
            return Next::End;
        };
        self.seen.ip_proto = *next;
        self.offset += (usize::from(*length) + 1) * 8;
        Next::IpProtocol
    }

    fn fragment(&mut self) -> Next {
        if self.ether_type != ethertype::IPV6 {
            return Next::End;
        }
        if let Some(header) = at::<8>(self.l3, self.offset) {
            self.seen.fragment = true;
            self.seen.ip_proto = header[0];
        }
        Next::End
    }

    fn inside(&mut self, ether_type: u16) -> Next {
        self.ether_type = ether_type;
        self.seen.encapsulated = true;
        match self.stop {
            Stop::AtEncap => Next::End,
            Stop::Innermost => Next::Protocol,
        }
    }

    /// RFC 2784 and RFC 2890; version 1 is RFC 2637. `None` where the packet ends too early.
    fn gre(&mut self) -> Option<Next> {
        const CHECKSUM: u8 = 0x80;
        const ROUTING: u8 = 0x40;
        const KEY: u8 = 0x20;
        const SEQUENCE: u8 = 0x10;
        const ACKNOWLEDGEMENT: u8 = 0x80;

        let [flags, flags_and_version, kind_high, kind_low] = *at::<4>(self.l3, self.offset)?;
        let version = flags_and_version & 7;
        let kind = u16::from_be_bytes([kind_high, kind_low]);
        if flags & ROUTING != 0 || version > 1 {
            return Some(Next::End);
        }
        if version == 1 && (kind != ethertype::PPTP || flags & KEY == 0) {
            return Some(Next::End);
        }
        let mut offset = self.offset + 4;
        if flags & CHECKSUM != 0 {
            offset += 4;
        }
        if flags & KEY != 0 {
            at::<4>(self.l3, offset)?;
            offset += 4;
        }
        if flags & SEQUENCE != 0 {
            offset += 4;
        }
        let mut ether_type = kind;
        if version == 0 {
            if kind == ethertype::TEB {
                let frame = at::<14>(self.l3, offset)?;
                ether_type = u16::from_be_bytes([frame[12], frame[13]]);
                offset += 14;
            }
        } else {
            if flags_and_version & ACKNOWLEDGEMENT != 0 {
                offset += 4;
            }
            let ppp = at::<4>(self.l3, offset)?;
            ether_type = match u16::from_be_bytes([ppp[2], ppp[3]]) {
                PPP_IPV4 => ethertype::IPV4,
                PPP_IPV6 => ethertype::IPV6,
                _ => kind,
            };
            offset += 4;
        }
        self.offset = offset;
        Some(self.inside(ether_type))
    }

    /// What a frame inside GRE may hold besides IP. `None` where the packet ends too early.
    #[cold]
    fn link_layer(&mut self) -> Option<Next> {
        let (kind_at, length) = match self.ether_type {
            ethertype::VLAN | ethertype::QINQ => (2, 4),
            ethertype::PRP | ethertype::HSR => (4, 6),
            ethertype::PPPOE => return self.pppoe(),
            ethertype::BATMAN => return self.batman(),
            ethertype::TIPC => {
                // Its address takes the place of the IP addresses.
                at::<TIPC_HEADER>(self.l3, self.offset)?;
                self.seen.addresses = Addresses::None;
                return Some(Next::End);
            }
            _ => return Some(Next::End),
        };
        let header = self.l3.get(self.offset..)?.get(..length)?;
        self.ether_type = u16::from_be_bytes([header[kind_at], header[kind_at + 1]]);
        self.offset += length;
        Some(Next::Protocol)
    }

    /// RFC 2516: version 1, type 1, code 0; the PPP protocol may be compressed to one byte.
    fn pppoe(&mut self) -> Option<Next> {
        let header = at::<8>(self.l3, self.offset)?;
        if header[0] != 0x11 || header[1] != 0 {
            return Some(Next::End);
        }
        let mut ppp = u16::from_be_bytes([header[6], header[7]]);
        let mut length = 8;
        if ppp & 0x0100 != 0 {
            ppp >>= 8;
            length = 7;
        }
        self.ether_type = match ppp {
            PPP_IPV4 => ethertype::IPV4,
            PPP_IPV6 => ethertype::IPV6,
            _ => return Some(Next::End),
        };
        self.offset += length;
        Some(Next::Protocol)
    }

    /// A unicast packet of compatibility version 15, followed by an Ethernet header.
    fn batman(&mut self) -> Option<Next> {
        let header = at::<24>(self.l3, self.offset)?;
        if header[0] != 0x40 || header[1] != 15 {
            return Some(Next::End);
        }
        self.offset += 24;
        Some(self.inside(u16::from_be_bytes([header[22], header[23]])))
    }

    #[inline(always)]
    fn ports(&mut self) {
        if self.seen.fragment {
            return;
        }
        let ports = protocol::ports_offset(self.seen.ip_proto)
            .and_then(|skip| at::<4>(self.l3, self.offset + skip))
            .unwrap_or(&[0; 4]);
        self.seen.sport = u16::from_be_bytes([ports[0], ports[1]]);
        self.seen.dport = u16::from_be_bytes([ports[2], ports[3]]);
    }
}

/// PPP's number for IPv4.
const PPP_IPV4: u16 = 0x21;
/// PPP's number for IPv6.
const PPP_IPV6: u16 = 0x57;
/// Bytes of a TIPC header that the dissector wants to see.
const TIPC_HEADER: usize = 16;
