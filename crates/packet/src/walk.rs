//! The long way of the flow dissector, header by header.
//!
//! Its steps, their order and where each stops follow `__skb_flow_dissect`, since what it has recorded
//! when it stops decides the path of truncated and odd packets too.

use crate::Family;
use crate::bytes::{at, copy};
use crate::dissect::{
    Addresses, Dissected, IcmpKey, MAX_HEADERS, OfBond, Stop, Whole, ipv4_addresses,
    ipv6_addresses, ipv6_label,
};
use crate::protocol::{self, ethertype};

/// What one header leads to.
enum Next {
    /// Another header of the link layer or an IP header, named by the EtherType.
    Protocol,
    /// Another header of the same IP packet.
    IpProtocol,
    /// Nothing but ports, or the end of the packet.
    End,
    /// The same, and the kernel calls the packet one that it cannot dissect: a header is cut off, makes no sense, or is of a
    /// kind that it does not know. Only bonds ask whether it does.
    Bad,
}

struct Walk<'a> {
    l3: &'a [u8],
    offset: usize,
    ether_type: u16,
    headers: u32,
    stop: Stop,
    /// In front of the ports of an IPv6 packet with a flow label, too.
    to_label: bool,
    seen: Dissected,
    gre_key: [u8; 4],
    left: [u8; 4],
    more: bool,
    icmp: IcmpKey,
    tipc: bool,
    bad: bool,
}

/// [`fn@crate::dissect`], for any packet.
#[inline(never)]
pub(crate) fn walk(l3: &[u8], family: Family, stop: Stop) -> Dissected {
    let mut walk = Walk::new(l3, ether_type_of(family), stop);
    walk.run();
    walk.seen
}

/// [`crate::dissect_whole`].
pub(crate) fn walk_whole(l3: &[u8], family: Family) -> Whole {
    let mut walk = Walk {
        to_label: true,
        ..Walk::new(l3, ether_type_of(family), Stop::Innermost)
    };
    walk.run();
    Whole {
        seen: walk.seen,
        ether_type: walk.ether_type,
        gre_key: walk.gre_key,
        left: walk.left,
        more: walk.more,
    }
}

/// [`crate::dissect_for_bond`].
pub(crate) fn walk_for_bond(payload: &[u8], ether_type: u16) -> Option<OfBond> {
    let mut walk = Walk::new(payload, ether_type, Stop::Innermost);
    walk.run();
    (!walk.bad).then_some(OfBond {
        addresses: walk.seen.addresses,
        sport: walk.seen.sport,
        dport: walk.seen.dport,
        icmp: walk.icmp,
        tipc: walk.tipc,
    })
}

fn ether_type_of(family: Family) -> u16 {
    match family {
        Family::V4 => ethertype::IPV4,
        Family::V6 => ethertype::IPV6,
    }
}

impl<'a> Walk<'a> {
    fn new(l3: &'a [u8], ether_type: u16, stop: Stop) -> Walk<'a> {
        Walk {
            l3,
            offset: 0,
            ether_type,
            headers: 0,
            stop,
            to_label: false,
            seen: Dissected {
                addresses: Addresses::None,
                ip_proto: 0,
                sport: 0,
                dport: 0,
                flow_label: 0,
                encapsulated: false,
                fragment: false,
            },
            gre_key: [0; 4],
            left: [0; 4],
            more: false,
            icmp: IcmpKey::default(),
            tipc: false,
            bad: false,
        }
    }
}

impl Walk<'_> {
    fn run(&mut self) {
        loop {
            match self.protocol() {
                Next::Protocol if self.allowed() => continue,
                Next::IpProtocol => {}
                Next::Bad => return self.bad = true,
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
                    Next::Bad => return self.bad = true,
                    _ => return,
                }
            }
        }
    }

    fn allowed(&mut self) -> bool {
        self.headers += 1;
        self.headers <= MAX_HEADERS
    }

    fn protocol(&mut self) -> Next {
        match self.ether_type {
            ethertype::IPV4 => self.ipv4(),
            ethertype::IPV6 => self.ipv6(),
            // Only a frame, of a bond or inside GRE or batman-adv, gets here.
            _ => self.link_layer().unwrap_or(Next::Bad),
        }
    }

    fn ipv4(&mut self) -> Next {
        let Some(header) = at::<20>(self.l3, self.offset) else {
            return Next::Bad;
        };
        let words = header[0] & 0xf;
        if words < 5 {
            return Next::Bad;
        }
        self.offset += usize::from(words) * 4;
        self.seen.ip_proto = header[9];
        self.seen.addresses = ipv4_addresses(header);
        if (header[6] & 0x3f) | header[7] != 0 {
            self.seen.fragment = true;
            return Next::End;
        }
        Next::IpProtocol
    }

    fn ipv6(&mut self) -> Next {
        let Some(header) = at::<40>(self.l3, self.offset) else {
            return Next::Bad;
        };
        self.offset += 40;
        self.seen.ip_proto = header[6];
        self.seen.addresses = ipv6_addresses(header);
        self.left = copy::<4>(header, 16);
        let label = ipv6_label(header);
        if label != 0 {
            self.seen.flow_label = label;
            if self.to_label {
                return Next::End;
            }
        }
        Next::IpProtocol
    }

    fn ip_protocol(&mut self) -> Next {
        match self.seen.ip_proto {
            protocol::TCP | protocol::UDP => Next::End,
            protocol::HOPOPTS | protocol::ROUTING | protocol::DSTOPTS => self.options(),
            protocol::FRAGMENT => self.fragment(),
            protocol::IPIP => self.inside(ethertype::IPV4),
            protocol::IPV6 => self.inside(ethertype::IPV6),
            protocol::GRE => self.gre().unwrap_or(Next::Bad),
            protocol::ICMP | protocol::ICMPV6 => {
                self.icmp = IcmpKey::at(self.l3, self.offset);
                Next::End
            }
            // So does MPLS, whose labels only dissectors with a key for them read.
            _ => Next::End,
        }
    }

    fn options(&mut self) -> Next {
        if self.ether_type != ethertype::IPV6 {
            return Next::End;
        }
        let Some([next, length]) = at::<2>(self.l3, self.offset) else {
            return Next::Bad;
        };
        self.seen.ip_proto = *next;
        self.offset += (usize::from(*length) + 1) * 8;
        Next::IpProtocol
    }

    fn fragment(&mut self) -> Next {
        if self.ether_type != ethertype::IPV6 {
            return Next::End;
        }
        let Some(header) = at::<8>(self.l3, self.offset) else {
            return Next::Bad;
        };
        self.seen.fragment = true;
        self.seen.ip_proto = header[0];
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
            let key = *at::<4>(self.l3, offset)?;
            self.gre_key = match version {
                0 => key,
                _ => [0, 0, key[2], key[3]],
            };
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

    /// What a frame may hold besides IP. `None` where it ends too early, or is of a kind that the kernel does not know.
    fn link_layer(&mut self) -> Option<Next> {
        let (kind_at, length) = match self.ether_type {
            ethertype::VLAN | ethertype::QINQ => {
                self.more = true;
                (2, 4)
            }
            ethertype::PRP | ethertype::HSR => (4, 6),
            ethertype::PPPOE => return self.pppoe(),
            ethertype::BATMAN => return self.batman(),
            ethertype::TIPC => {
                // Its address takes the place of the IP addresses.
                at::<TIPC_HEADER>(self.l3, self.offset)?;
                self.seen.addresses = Addresses::None;
                self.more = true;
                self.tipc = true;
                return Some(Next::End);
            }
            // The dissector knows these, and there is no key for what they hold.
            ethertype::ARP
            | ethertype::RARP
            | ethertype::MPLS
            | ethertype::MPLS_MULTICAST
            | ethertype::CFM => return Some(Next::End),
            ethertype::FCOE => return self.has(FCOE_HEADER),
            ethertype::PTP => return self.has(PTP_HEADER),
            _ => return None,
        };
        let header = self.l3.get(self.offset..)?.get(..length)?;
        self.ether_type = u16::from_be_bytes([header[kind_at], header[kind_at + 1]]);
        self.offset += length;
        Some(Next::Protocol)
    }

    /// RFC 2516: version 1, type 1, code 0. The PPP protocol takes two bytes: kernels that also know
    /// its compressed form, of one byte, are without a fix that 6.18.44 has.
    fn pppoe(&mut self) -> Option<Next> {
        let header = at::<8>(self.l3, self.offset)?;
        if header[0] != 0x11 || header[1] != 0 {
            return None;
        }
        self.ether_type = match u16::from_be_bytes([header[6], header[7]]) {
            PPP_IPV4 => ethertype::IPV4,
            PPP_IPV6 => ethertype::IPV6,
            // Of two bytes that are a number of PPP, the first is even and the second odd (RFC 1661, section 2).
            number if number & 0x101 == 1 => return Some(Next::End),
            _ => return None,
        };
        self.offset += 8;
        Some(Next::Protocol)
    }

    /// A unicast packet of compatibility version 15, followed by an Ethernet header.
    fn batman(&mut self) -> Option<Next> {
        let header = at::<24>(self.l3, self.offset)?;
        if header[0] != 0x40 || header[1] != 15 {
            return None;
        }
        self.offset += 24;
        Some(self.inside(u16::from_be_bytes([header[22], header[23]])))
    }

    /// Nothing more of a header, which has so many bytes.
    fn has(&self, length: usize) -> Option<Next> {
        self.l3.get(self.offset..)?.get(..length)?;
        Some(Next::End)
    }

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
/// Bytes of an FCoE header (`FCOE_HEADER_LEN`).
const FCOE_HEADER: usize = 38;
/// Bytes of a PTP header (`struct ptp_header`).
const PTP_HEADER: usize = 34;
