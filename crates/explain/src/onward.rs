//! What becomes of a packet between its route and the link that it leaves by.

use std::net::IpAddr;

use raddle_image::Reason;
use raddle_packet::{Family, Ipv4};
use raddle_rib::event::Link;
use raddle_rib::{Hop, Trace};
use serde_json::json;

use super::confidence::{Level, reason_doubt};
use super::fate::{Fate, What, of_reason};
use super::options::Options;
use super::packet::Packet;
use super::received::{Ingress, Received, receive};
use super::steps::Walk;

/// `NUD_PERMANENT` and `NUD_NOARP`: neighbours that nobody is asked for, whatever happens to the link.
const NUD_PERMANENT: u16 = 0x80;
const NUD_NOARP: u16 = 0x40;
/// `IFF_NOARP`.
pub(super) const NO_ARP: u32 = 0x80;
const BAD_OPTIONS: &str = "its IP options are malformed";

impl Walk<'_> {
    /// Steps K1 to K8, of packets.
    pub(super) fn receive(&mut self) -> Result<(), Reason> {
        let Some(link) = self.ingress() else {
            return Ok(());
        };
        self.taken_above(&link);
        let Some(packet) = self.packet else {
            return Ok(());
        };
        let rib = self.view.rib;
        let is_vlan = |kind: Option<&str>| kind == Some("vlan");
        let above =
            |other: &&Link| is_vlan(other.kind.as_deref()) && other.lower == Some(link.index);
        let ingress = Ingress {
            mac: link.mac,
            has_vlans: rib.links().any(|other| above(&other)),
            is_vlan: is_vlan(link.kind.as_deref()),
        };
        match receive(packet, ingress) {
            Ok(received) => {
                if ingress.is_vlan && packet.raw.tags > 0 {
                    self.confidence
                        .unless(format!("its VLAN tag is not that of {}", link.name));
                }
                if received.cut {
                    self.confidence.unless(format!(
                        "what the capture cut off matters ({} bytes)",
                        packet.raw.cut
                    ));
                }
                self.received = Some(received);
                Ok(())
            }
            Err(refusal) => {
                if let Some(doubt) = refusal.doubt {
                    self.confidence.unless(doubt);
                }
                if packet.raw.cut > 0
                    && matches!(refusal.reason, Reason::Truncated | Reason::Options)
                {
                    self.confidence
                        .unknown("the capture cut the packet off within its headers");
                }
                if refusal.fate.what == What::Vlan {
                    self.confidence.unless(format!(
                        "there is no link for that VLAN above {}: then it is dropped",
                        link.name
                    ));
                }
                self.fate = Some(match refusal.reason {
                    Reason::OtherMac if self.is_taken => {
                        let text = "sent to the MAC address of a link above, which takes it";
                        Fate::new(What::Unknown, "K4", text)
                    }
                    _ => refusal.fate,
                });
                Err(refusal.reason)
            }
        }
    }

    /// Steps K9 to K13, of packets: what does not depend on which nexthop is chosen (`ip_rcv_finish_core`,
    /// `ip_forward`, `ip6_forward`).
    ///
    /// 1. (K9) IPv4: the source is not this machine's own, and passes the reverse-path filter.
    /// 2. (K11) IPv4: the options are well-formed, and no source route. The kernel looks at them before it drops what
    ///    is not forwarded.
    /// 3. (K10) Where the route leads to forwarding: the link forwards.
    /// 4. (K10) A route that does not lead to forwarding: see [`of_reason`].
    /// 5. (K12) The frame was not sent to a group or to all.
    /// 6. (K13) The TTL is above 1, unless the route leads to a segment.
    pub(super) fn admitted(&mut self, trace: &Trace) -> Result<(), Reason> {
        use raddle_rib::Resolved;
        let ends = match trace.resolved {
            Resolved::Kernel(reason) if !is_forwarding(reason) => Some(reason),
            _ => None,
        };
        // Where nobody knows whether the packet is forwarded, nobody knows what stops it on the way either.
        if let Resolved::Kernel(reason) = trace.resolved
            && self.packet.is_some()
            && let Some(why) = reason_doubt(reason, self.view.around.kernel)
        {
            self.confidence.unknown(why);
        }
        let here = matches!(
            ends,
            Some(Reason::Local | Reason::Broadcast | Reason::Anycast)
        );
        if ends.is_none() || here {
            self.own_source(Err(trace))?;
        }
        let off = ends.is_none() && !self.forwards();
        if self.packet.is_some() && ends.is_none() && !off {
            self.way_back(trace)?;
        }
        let stop = || match off {
            true => Err(Reason::ForwardingOff),
            false => Ok(()),
        };
        let (Some(packet), Some(received)) = (self.packet, self.received) else {
            return stop();
        };
        if self.is_v4() {
            let to_many = matches!(ends, Some(Reason::Broadcast | Reason::Multicast));
            self.options4(received, to_many)?;
        } else if received.options == Options::Others {
            self.confidence.unless(
                "a hop-by-hop option has the kernel do something else: router alert, a jumbogram, one that it \
                 does not know",
            );
        }
        stop()?;
        if let Some(reason) = ends {
            if !received.to_host && here {
                self.confidence
                    .unless("drop_unicast_in_l2_multicast is set, and the kernel drops it");
            }
            if reason == Reason::Broadcast {
                self.confidence
                    .unless("bc_forwarding is set, and the kernel forwards it");
            }
            return Ok(());
        }
        if self.words.dst.is_unspecified() {
            self.confidence
                .unknown("a route leads to ::, which no packet should be sent to");
        }
        if !received.to_host {
            let text = "a frame to a group or to all is not forwarded: dropped";
            self.fate = Some(Fate::new(What::Dropped, "K12", text));
            return Err(Reason::OtherMac);
        }
        match trace.resolved.has_segments() {
            true => Ok(()),
            false => self.lives(packet),
        }
    }

    /// Step K13.
    fn lives(&mut self, packet: &Packet) -> Result<(), Reason> {
        if packet.ttl() > 1 {
            return Ok(());
        }
        let icmp = if self.is_v4() { (11, 0) } else { (3, 0) };
        self.fate = Some(Fate::answered(packet, "K13", icmp, "its TTL is at its end"));
        Err(Reason::TtlExceeded)
    }

    /// Step K13 where some members of the route are segments: of a packet whose member is none.
    pub(super) fn outlives(&mut self, hop: Hop, trace: &Trace) -> Result<Hop, Reason> {
        match self.packet.filter(|_| self.received.is_some()) {
            Some(packet) if hop.segment.is_none() && trace.resolved.has_segments() => {
                self.lives(packet).map(|()| hop)
            }
            _ => Ok(hop),
        }
    }

    /// Step K11 (`ip_rcv_options`). What is sent `to_many` by its route, as to a subnet's broadcast address, is
    /// answered with no ICMP error (`icmp_send`).
    pub(super) fn options4(&mut self, received: Received, to_many: bool) -> Result<(), Reason> {
        let Some(packet) = self.packet else {
            return Ok(());
        };
        self.fate = Some(match received.options {
            Options::Nothing => return Ok(()),
            Options::Others
            | Options::Discard
            | Options::Refuse
            | Options::RefuseOne
            | Options::TooMany => {
                self.confidence.unless(
                    "an IP option has the kernel do something else: router alert, a record that is not \
                     well-formed, CIPSO",
                );
                return Ok(());
            }
            Options::Bad if to_many => {
                Fate::unanswered("K11", BAD_OPTIONS, "since it was sent to many")
            }
            Options::Bad => Fate::answered(packet, "K11", (12, 0), BAD_OPTIONS),
            Options::SourceRoute => {
                self.confidence
                    .unless(
                        "accept_source_route is set, and the kernel follows the source route, or another option is \
                         not well-formed",
                    );
                Fate::new(
                    What::Dropped,
                    "K11",
                    "a source route, which the kernel does not accept: dropped",
                )
            }
        });
        Err(Reason::Options)
    }

    /// Steps K14 to K16, of packets: what depends on the nexthop that was chosen.
    ///
    /// 1. (K14) IPv4 back by the link that it came in on: its source is looked up in full
    ///    (`__fib_validate_source`), where redirects are sent. IPv6 by any other link: a source that is neither
    ///    `::` nor link-local.
    /// 2. (K15) It is no longer than the path's MTU: else IPv4 without DF leaves in fragments, and the sender
    ///    of everything else is told.
    /// 3. (K16) The link has a carrier, and the neighbour is known; else the kernel asks for it first.
    pub(super) fn onward(&mut self, hop: &Hop) -> Result<(), Reason> {
        let Some(packet) = self.packet.filter(|_| self.received.is_some()) else {
            return Ok(());
        };
        self.own_source(Ok(hop))?;
        let name = self.link_name(hop.index);
        let Some(mtu) = self.view.rib.path_mtu(hop.index, hop.mtu) else {
            return Ok(());
        };
        let length = match packet.raw.cut {
            0 => packet.l3.len(),
            cut => packet.l3.len() + packet.missing.min(cut),
        };
        let most = if self.is_v4() { mtu.v4 } else { mtu.v6 } as usize;
        let mut what = What::Forwarded;
        let mut text = String::new();
        if length > most {
            text = format!("{length} bytes, and {most} get through");
            let whole = !self.is_v4()
                || Ipv4::new_checked(&packet.l3[..]).is_ok_and(|ip| ip.dont_fragment());
            let step = self.add(
                11,
                "mtu",
                "",
                text.clone(),
                json!({ "mtu": most, "bytes": length }),
            );
            step.function = match packet.family {
                Family::V4 => "ip_exceeds_mtu",
                Family::V6 => "ip6_pkt_too_big",
            };
            if whole {
                let icmp = if self.is_v4() { (3, 4) } else { (2, 0) };
                self.fate = Some(Fate::answered(packet, "K15", icmp, &text));
                return Err(Reason::Mtu);
            }
            what = What::Fragmented;
            text += ": fragmented, ";
        } else {
            self.learnt_mtu(length);
        }
        let link = self.view.rib.link(hop.index);
        if link.is_some_and(|link| length > link.mtu as usize && what == What::Forwarded) {
            self.confidence.unless(format!(
                "{name} refuses packets above its own MTU, which the route's exceeds"
            ));
        }
        if !link.is_some_and(|link| link.is_up() && link.has_carrier()) {
            let text = format!("{name} has no carrier: dropped");
            let target = hop.gateway.unwrap_or(self.words.dst);
            let known = self.view.rib.neighbour(hop.index, target);
            if known.is_none_or(|known| known.state & (NUD_PERMANENT | NUD_NOARP) == 0) {
                self.confidence.unless(format!(
                    "the kernel asks for {target} all the same: nobody answers, and after seconds the sender is told"
                ));
            }
            self.fate = Some(Fate::new(What::Dropped, "K16", text));
            return Err(Reason::OutLink);
        }
        let asks = link.is_some_and(|link| link.is_ethernet() && link.flags & NO_ARP == 0);
        let target = hop.gateway.unwrap_or(self.words.dst);
        let known = self.view.rib.neighbour(hop.index, target);
        if asks && !known.is_some_and(|known| known.is_valid()) {
            what = match what {
                What::Forwarded => What::Resolving,
                other => other,
            };
            text += &format!("leaves by {name} as soon as {target} has answered");
            self.confidence.unless(format!(
                "{target} does not answer: then it is dropped, and its sender may be told"
            ));
        } else {
            text += &format!("leaves by {name}");
        }
        if self.words.iif.as_ref() == Some(&name) {
            text += ", where it came in; the kernel may also send a redirect";
        }
        self.other_link(hop.index);
        self.fate = Some(Fate::new(what, "K16", text));
        Ok(())
    }

    /// Steps K9 and K14: what the source keeps from being forwarded; `hop` is the way out, or what was looked up where that
    /// is not known yet.
    fn own_source(&mut self, hop: Result<&Hop, &Trace>) -> Result<(), Reason> {
        let (src, unnamed) = (
            self.words.src,
            self.words.src.is_unspecified() && self.packet.is_none(),
        );
        let Some(link) = self.ingress() else {
            return Ok(());
        };
        let device = self.view.rib.input_settings(&link);
        let back = hop.is_ok_and(|hop| hop.index == link.index);
        match (src, hop) {
            (IpAddr::V4(_), Err(_)) if unnamed => Ok(()),
            (IpAddr::V4(src), Err(trace)) => {
                self.source(src, device.accept_local)?;
                match self.look_up {
                    1 => self.filtered(src, &link, trace),
                    _ => Ok(()),
                }
            }
            (IpAddr::V4(_), Ok(_)) if back && device.send_redirects => {
                self.looked_up(src, device.accept_local)
            }
            (IpAddr::V6(src), Ok(_)) if !back => match src {
                src if src.is_unspecified() => Err(Reason::MartianSource),
                src if src.is_unicast_link_local() => {
                    let why = format!("{src} is of its link only");
                    self.fate = self
                        .packet
                        .map(|packet| Fate::answered(packet, "K14", (1, 2), &why));
                    Err(Reason::LinkLocal)
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Steps 18 and 19: what becomes of the packet, at the end of all steps.
    pub(super) fn conclude(&mut self, found: Result<&Hop, Reason>) {
        let Some(packet) = self.packet.filter(|_| !self.is_local()) else {
            return;
        };
        let fate = match (self.fate.take(), found) {
            (Some(fate), _) => fate,
            (None, Ok(hop)) => {
                let text = format!("leaves by {}", self.link_name(hop.index));
                Fate::new(What::Forwarded, "K16", text)
            }
            (None, Err(reason)) => of_reason(packet, reason, self.forwards()),
        };
        let fate = match (&self.outcome, found) {
            (Some(_), Err(reason)) if fate.icmp.is_some() => {
                let text = format!(
                    "behind a SID or an encapsulation of this machine: {reason}, and whom the kernel tells is not \
                     modelled"
                );
                self.confidence.unknown(text.clone());
                Fate::new(What::Unknown, fate.rule, text)
            }
            _ => fate,
        };
        let fate = match fate.icmp.is_some() && self.is_host_address(self.words.src) {
            true => Fate::new(
                What::Dropped,
                fate.rule,
                format!("{}; but the sender would be this machine", fate.text),
            ),
            false => fate,
        };
        if fate.what == What::Multicast {
            self.confidence
                .unless("multicast routing is on here, and forwards the group");
        }
        let taken = matches!(
            fate.what,
            What::Delivered | What::Multicast | What::Answered
        );
        if taken && packet.family == Family::V6 && !self.forwards() {
            let name = self.words.iif.clone().unwrap_or_default();
            self.confidence.unless(format!(
                "IPv6 is off on {name} (disable_ipv6), and the kernel drops it"
            ));
        }
        if fate.what == What::Unknown && self.confidence.level == Level::Exact {
            self.confidence.unknown(fate.text.clone());
        }
        self.look_up = 1;
        let fate = self.engine(packet, fate, found);
        let text = format!("{} ({})", fate.text, fate.rule);
        let data = json!({ "what": fate.what, "rule": fate.rule, "icmp": fate.icmp });
        self.add(19, "fate", "", text, data);
        self.fate = Some(fate);
    }

    /// The link that it comes in on.
    pub(super) fn ingress(&self) -> Option<Link> {
        let name = self.words.iif.as_ref()?;
        self.view.rib.link_named(name).cloned()
    }

    /// Whether that link forwards the family.
    pub(super) fn forwards(&self) -> bool {
        let Some(link) = self.ingress() else {
            return true;
        };
        let device = self.view.rib.input_settings(&link);
        match self.is_v4() {
            true => device.forwarding4,
            false => device.forwarding6,
        }
    }
}

/// Whether a reason of a route leaves open that its packets are forwarded.
fn is_forwarding(reason: Reason) -> bool {
    use Reason::*;
    !matches!(
        reason,
        Local
            | Broadcast
            | Anycast
            | Multicast
            | Blackhole
            | Unreachable
            | Prohibit
            | NoRoute
            | Throw
            | Rules
    )
}
