//! What becomes of a packet, beyond the link that its destination leads to.

use raddle_image::Reason;
use raddle_packet::{Family, Ipv4, Ipv6, protocol};
use serde::Serialize;

use super::packet::Packet;

/// What the kernel does with a packet, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// It leaves by a link.
    Forwarded,
    /// It leaves by a link in several fragments.
    Fragmented,
    /// It leaves by a link as soon as the neighbour there has answered.
    Resolving,
    /// This machine takes it itself.
    Delivered,
    /// Those here that have joined the group take it; it is not forwarded.
    Multicast,
    /// It is gone, and nobody is told.
    Dropped,
    /// It is gone, and its sender is told by an ICMP error.
    Answered,
    /// The link of its VLAN takes it.
    Vlan,
    /// It is no IP packet: another protocol takes it, or nobody.
    NotRouted,
    /// Nobody can know.
    Unknown,
}

/// An ICMP or ICMPv6 error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct IcmpError {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: u8,
    /// Its code.
    pub code: u8,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fate {
    /// In a word.
    pub what: What,
    /// The rule that says so, K1 to K16: the numbered steps of the kernel from the frame to the link.
    pub rule: &'static str,
    /// The ICMP error that its sender gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp: Option<IcmpError>,
    /// The same for people.
    pub text: String,
}

impl Fate {
    /// Without an ICMP error.
    pub(super) fn new(what: What, rule: &'static str, text: impl Into<String>) -> Fate {
        Fate {
            what,
            rule,
            icmp: None,
            text: text.into(),
        }
    }

    /// It is dropped with this ICMP error, if the packet is one that may be answered so.
    pub(super) fn answered(packet: &Packet, rule: &'static str, icmp: (u8, u8), why: &str) -> Fate {
        match may_be_answered(packet) {
            Ok(()) => Fate::told(packet.family, rule, icmp, why),
            Err(not) => Fate::unanswered(rule, why, not),
        }
    }

    /// It is dropped for an IPv6 option that wants its sender told (ICMPv6 type 4, code 2), also when it was sent to
    /// many.
    pub(super) fn of_option(packet: &Packet, why: &str) -> Fate {
        match by_content(packet) {
            Ok(()) => Fate::told(packet.family, "K8", (4, 2), why),
            Err(not) => Fate::unanswered("K8", why, not),
        }
    }

    /// It is dropped with this ICMP error.
    fn told(family: Family, rule: &'static str, (kind, code): (u8, u8), why: &str) -> Fate {
        let icmp = match family {
            Family::V4 => "ICMP",
            Family::V6 => "ICMPv6",
        };
        Fate {
            icmp: Some(IcmpError { kind, code }),
            ..Fate::new(
                What::Answered,
                rule,
                format!(
                    "{why}: dropped, and its sender is told ({icmp} type {kind}, code {code}), as far as a route back \
                     and the limits for ICMP errors allow"
                ),
            )
        }
    }

    /// It is dropped, and nobody is told, since it is `not` a packet that may be answered.
    pub(super) fn unanswered(rule: &'static str, why: &str, not: &str) -> Fate {
        let text = format!("{why}: dropped without an ICMP error, {not}");
        Fate::new(What::Dropped, rule, text)
    }

    /// It leaves by the link that was found.
    pub(super) fn leaves(&self) -> bool {
        matches!(
            self.what,
            What::Forwarded | What::Fragmented | What::Resolving
        )
    }
}

/// Whether a packet may be answered with an ICMP error at all (`icmp_send`, `icmp6_send`).
///
/// 1. Not a packet in a frame to a group or to all.
/// 2. Not an ICMP error, nor an IPv4 ICMP message of a type that the kernel takes for one (`icmp_pointers`).
/// 3. IPv4: not a fragment but the first.
/// 4. IPv6: not a source that names no single node.
fn may_be_answered(packet: &Packet) -> Result<(), &'static str> {
    let first = packet.raw.frame.as_ref().and_then(|frame| frame.first());
    if first.is_some_and(|byte| byte & 1 != 0) {
        return Err("since its frame was sent to a group or to all");
    }
    by_content(packet)
}

/// Rules 2 to 4.
fn by_content(packet: &Packet) -> Result<(), &'static str> {
    const ERROR: &str = "since it may be one itself";
    const FRAGMENT: &str = "since it is a later fragment";
    match packet.family {
        Family::V4 => {
            let Ok(ip) = Ipv4::new_checked(&packet.l3[..]) else {
                return Ok(());
            };
            if ip.fragment_offset() != 0 {
                return Err(FRAGMENT);
            }
            let kind = packet.l3.get(ip.header_len()).copied();
            // Echo, timestamps, information and address masks are questions and their replies.
            let refused = |kind| !matches!(kind, 0 | 8 | 13..=18);
            match ip.protocol() == protocol::ICMP && kind.is_none_or(refused) {
                true => Err(ERROR),
                false => Ok(()),
            }
        }
        Family::V6 => {
            let Ok(ip) = Ipv6::new_checked(&packet.l3[..]) else {
                return Ok(());
            };
            if ip.src().is_unspecified() || ip.src().is_multicast() {
                return Err("since its source names no node");
            }
            let mut extensions = ip.extensions();
            let is_later = |f: raddle_packet::Fragment| f.offset != 0;
            let mut all = extensions.by_ref().flatten();
            if all.any(|extension| extension.fragment().is_some_and(is_later)) {
                return Ok(());
            }
            let (next, upper) = extensions.upper();
            match next == protocol::ICMPV6 && upper.first().is_none_or(|kind| *kind < 128) {
                true => Err(ERROR),
                false => Ok(()),
            }
        }
    }
}

/// What the kernel does with a packet that its destination's route, or its addresses, keep from being
/// forwarded (`ip_error`, `ip6_pkt_discard`); `forwards` says whether the link that it came in on forwards its
/// family.
///
/// 1. Its own address, or one of its broadcast addresses: it takes the packet.
/// 2. A multicast group: those who have joined.
/// 3. IPv4 where the link does not forward: dropped, whatever is wrong with the route.
/// 4. No route, or one that refuses: the ICMP error of that.
/// 5. A blackhole, or an address that may not be: dropped.
/// 6. What is not modelled: unknown.
pub(super) fn of_reason(packet: &Packet, reason: Reason, forwards: bool) -> Fate {
    const RULE: &str = "K10";
    let v4 = packet.family == Family::V4;
    let answered = |four, six, why| {
        let icmp = if v4 { four } else { six };
        match v4 && !forwards {
            true => Fate::new(
                What::Dropped,
                RULE,
                format!("{why}, and the link does not forward: dropped"),
            ),
            false => Fate::answered(packet, RULE, icmp, why),
        }
    };
    let dropped = |why: &str| Fate::new(What::Dropped, RULE, format!("{why}: dropped"));
    match reason {
        Reason::Local | Reason::Anycast => {
            Fate::new(What::Delivered, RULE, "delivered to this machine itself")
        }
        Reason::Broadcast => Fate::new(
            What::Delivered,
            RULE,
            "a broadcast address: delivered to this machine itself, and not forwarded",
        ),
        Reason::Multicast => Fate::new(
            What::Multicast,
            RULE,
            "delivered to who has joined the group here, and not forwarded",
        ),
        Reason::NoRoute => answered((3, 0), (1, 0), "no route"),
        Reason::Unreachable => answered((3, 1), (1, 0), "an unreachable route"),
        Reason::Prohibit => answered((3, 13), (1, 1), "a prohibit route"),
        Reason::Blackhole => dropped("a blackhole route"),
        Reason::MartianSource => dropped("a source that may not be"),
        Reason::MartianDestination => dropped("a destination that may not be"),
        Reason::LocalSource => dropped("its source is this machine's own address"),
        Reason::SourceCheck => dropped("the kernel looks its source up and refuses it"),
        Reason::ForwardingOff => dropped("the link does not forward"),
        Reason::TtlExceeded => answered((11, 0), (3, 0), "its TTL is at its end"),
        reason if reason.is_drop() => dropped(reason.name()),
        reason => Fate::new(
            What::Unknown,
            RULE,
            format!("the kernel decides, and nobody can tell how: {reason}"),
        ),
    }
}
