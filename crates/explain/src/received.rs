//! What becomes of a frame before its destination is looked up: on its way from the link to the route.

use raddle_image::Reason;
use raddle_packet::protocol::ethertype;
use raddle_packet::{Family, checksum};

use super::fate::{Fate, What};
use super::options::{self, Options};
use super::packet::Packet;

/// What of a link matters to the frames that it receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ingress {
    /// Its MAC address.
    pub mac: Option<[u8; 6]>,
    /// There are VLAN links above it.
    pub has_vlans: bool,
    /// It is a VLAN link itself: it gets frames without their first tag.
    pub is_vlan: bool,
}

/// A frame that goes on to the look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    /// It was sent to this link alone, not to a group or to all.
    pub to_host: bool,
    /// What its options do to it.
    pub options: Options,
    /// It goes on if it is not otherwise than the capture, which cut it short, lets it look.
    pub cut: bool,
}

/// A frame that does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// What an engine would punt it for, in a word.
    pub reason: Reason,
    /// What the kernel does with it.
    pub fate: Fate,
    /// Unless this.
    pub doubt: Option<&'static str>,
}

/// Whether the kernel looks up the route of a frame (`eth_type_trans`, `__netif_receive_skb_core`,
/// `ip_rcv_core`, `ip6_rcv_core`). Steps K1 to K8; K9 and on are [`super::onward`].
///
/// 1. (K1) 14 bytes of Ethernet header.
/// 2. (K2) A VLAN tag: the link of that VLAN gets it, or nobody does where there is none. The number 0 is no
///    VLAN.
/// 3. (K3) The EtherType is IPv4's or IPv6's.
/// 4. (K4) It was sent to the link's MAC address, to a group, or to all.
/// 5. (K5) The whole IP header is there, options included, and has the version of the EtherType.
/// 6. (K6) IPv4: the header's checksum is right.
/// 7. (K7) The IP length holds the header, and fits the frame.
/// 8. (K8) IPv6: no ::1, no multicast source, no group of one node's; the hop-by-hop options are well-formed.
pub(super) fn receive(packet: &Packet, ingress: Ingress) -> Result<Received, Refusal> {
    let to_host = match &packet.raw.frame {
        Some(frame) => link_layer(packet, frame, ingress)?,
        None => true,
    };
    let options = match packet.family {
        Family::V4 => ipv4(packet)?,
        Family::V6 => ipv6(packet)?,
    };
    Ok(Received {
        to_host,
        options,
        cut: packet.raw.cut > 0,
    })
}

fn refuse<T>(reason: Reason, fate: Fate) -> Result<T, Refusal> {
    Err(Refusal {
        reason,
        fate,
        doubt: None,
    })
}

fn drop<T>(reason: Reason, rule: &'static str, why: &str) -> Result<T, Refusal> {
    refuse(
        reason,
        Fate::new(What::Dropped, rule, format!("{why}: dropped")),
    )
}

/// Rules 1 to 4: whether it was sent to this link alone.
fn link_layer(packet: &Packet, frame: &[u8], ingress: Ingress) -> Result<bool, Refusal> {
    let Some(&header) = frame.first_chunk::<14>() else {
        return drop(Reason::Truncated, "K1", "no Ethernet header");
    };
    let tags = packet.raw.tags - usize::from(ingress.is_vlan).min(packet.raw.tags);
    match packet.vlan {
        Some(id) if tags > 0 && (id != 0 || ingress.is_vlan || tags > 1) => {
            return match ingress.has_vlans {
                true => {
                    let text =
                        format!("VLAN tag {id}: the link of that VLAN gets it, not this one");
                    refuse(Reason::Vlan, Fate::new(What::Vlan, "K2", text))
                }
                false => drop(
                    Reason::Vlan,
                    "K2",
                    &format!("VLAN tag {id}, and this link has no link for VLANs"),
                ),
            };
        }
        _ => {}
    }
    let mac = [
        header[0], header[1], header[2], header[3], header[4], header[5],
    ];
    let to_host = mac[0] & 1 == 0;
    if !matches!(packet.raw.ether_type, ethertype::IPV4 | ethertype::IPV6) {
        let text = format!(
            "EtherType {:#06x}: no IP packet, so it is not routed",
            packet.raw.ether_type
        );
        let reason = Reason::NotIp;
        return refuse(reason, Fate::new(What::NotRouted, "K3", text));
    }
    if to_host && ingress.mac.is_some_and(|own| own != mac) {
        return drop(
            Reason::OtherMac,
            "K4",
            "sent to another machine's MAC address",
        );
    }
    Ok(to_host)
}

/// Rules 5 to 7.
fn ipv4(packet: &Packet) -> Result<Options, Refusal> {
    let bytes = &packet.raw.l3;
    let Some(header) = bytes.first_chunk::<20>() else {
        return drop(Reason::Truncated, "K5", "less than an IPv4 header");
    };
    let length = usize::from(header[0] & 0xf) * 4;
    if header[0] >> 4 != 4 || length < 20 {
        return drop(Reason::BadHeader, "K5", "no valid IPv4 header");
    }
    let Some(header) = bytes.get(..length) else {
        return drop(Reason::Truncated, "K5", "its IPv4 header is cut short");
    };
    if !checksum::is_valid(header) {
        return drop(
            Reason::BadChecksum,
            "K6",
            "the checksum of its IPv4 header is wrong",
        );
    }
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if total < length {
        return drop(
            Reason::BadLength,
            "K7",
            "its IP length is less than its header's",
        );
    }
    if total > packet.raw.wire_len() {
        return drop(Reason::BadLength, "K7", "it is shorter than its IP length");
    }
    Ok(options::ipv4(&header[20..]))
}

/// What else decides over hop-by-hop options.
const NUMBER: &str =
    "net.ipv6.max_hbh_opts_number is not 8, and the kernel takes more or fewer options";

/// Rules 5, 7 and 8.
fn ipv6(packet: &Packet) -> Result<Options, Refusal> {
    const MARTIAN: Reason = Reason::MartianSource;
    let bytes = &packet.raw.l3;
    let Some(header) = bytes.first_chunk::<40>() else {
        return drop(Reason::Truncated, "K5", "less than an IPv6 header");
    };
    if header[0] >> 4 != 6 {
        return drop(Reason::BadHeader, "K5", "no IPv6 header");
    }
    let address = |at: usize| {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&header[at..at + 16]);
        std::net::Ipv6Addr::from(bytes)
    };
    let (src, dst) = (address(8), address(24));
    if src.is_loopback() || src.is_multicast() {
        return drop(MARTIAN, "K8", "a source that may not be");
    }
    if dst.is_loopback() {
        return drop(
            Reason::MartianDestination,
            "K8",
            "a destination that may not be",
        );
    }
    // Scopes 0 (reserved) and 1 (one node's) are not for the wire.
    if dst.is_multicast() && header[25] & 0xf < 2 {
        return drop(Reason::Multicast, "K8", "a group that is not for the wire");
    }
    let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let jumbo = payload == 0 && header[6] == 0;
    if !jumbo && 40 + payload > packet.raw.wire_len() {
        return drop(Reason::BadLength, "K7", "it is shorter than its IP length");
    }
    if header[6] != 0 {
        return Ok(Options::Nothing);
    }
    // What pads the frame is no part of it.
    let end = if jumbo { bytes.len() } else { 40 + payload };
    let body = &bytes[40..end.min(bytes.len())];
    let length = body.get(1).map(|length| 8 * (usize::from(*length) + 1));
    let Some(options) = length.and_then(|length| body.get(2..length)) else {
        return drop(
            Reason::Options,
            "K8",
            "its hop-by-hop options are cut short",
        );
    };
    match options::hop_by_hop(options) {
        Options::Bad => drop(
            Reason::Options,
            "K8",
            "its hop-by-hop options are malformed",
        ),
        Options::Discard => drop(
            Reason::Options,
            "K8",
            "a hop-by-hop option that is unknown, and wants that",
        ),
        Options::TooMany => Err(Refusal {
            reason: Reason::Options,
            fate: Fate::new(
                What::Dropped,
                "K8",
                "more hop-by-hop options than 8: dropped",
            ),
            doubt: Some(NUMBER),
        }),
        told @ (Options::Refuse | Options::RefuseOne) => {
            const WHY: &str = "an unknown hop-by-hop option";
            let fate = match told {
                Options::Refuse => Fate::of_option(packet, WHY),
                _ if dst.is_multicast() => {
                    Fate::unanswered("K8", WHY, "since it was sent to a group")
                }
                _ => Fate::answered(packet, "K8", (4, 2), WHY),
            };
            Err(Refusal {
                reason: Reason::Options,
                fate,
                doubt: Some(NUMBER),
            })
        }
        // A length of 0 is for jumbograms, whose option the kernel looks at.
        _ if jumbo => Ok(Options::Others),
        options => Ok(options),
    }
}
