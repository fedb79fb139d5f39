//! Which member of a bond a packet leaves by.

use raddle_packet::Family;
use raddle_packet::protocol::{self, ethertype, ports_offset};
use raddle_rib::Hop;
use raddle_rib::event::{Bond, Link};
use raddle_select::faults::BOND_PULL;
use raddle_select::{
    BondMembers, BondMode, BondPolicy, Brought, Giver, KernelVersion, bond_hash, bond_hash_of_flow,
    bond_member,
};
use serde::Serialize;
use serde_json::json;

use super::below::Lower;
use super::confidence::{Confidence, Level, l4_hash_doubts, version_doubt};
use super::fate::What;
use super::members::{Sending, active_members, is_bond, parts, sending_members};
use super::packet::Packet;
use super::steps::Walk;

/// From this version on a bond with 802.3ad may send neighbour discovery by every member (`broadcast_neighbor`).
const BROADCAST_NEIGHBOR: KernelVersion = KernelVersion::new(6, 17, 0);

/// Which member of a bond a packet leaves by.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OfBond {
    /// The bond.
    pub dev: String,
    /// How it chooses; none where that is not known.
    pub mode: Option<BondMode>,
    /// What it hashes, where it chooses by a hash; none where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<BondPolicy>,
    /// The hash, all 32 bits; none where there is none, it is not known or it is kept back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<u32>,
    /// The members that can send, in the order in which they joined the bond where `ordered` says so, else by index; with
    /// active-backup those that are active, and none with other modes that do not hash.
    pub members: Vec<String>,
    /// The order of `members` is that in which the kernel numbers them.
    pub ordered: bool,
    /// The member; none where no single one is known.
    pub member: Option<String>,
    /// How sure the member is. How sure the bond itself is, [`crate::Answer::confidence`] says.
    pub confidence: Confidence,
}

/// What a bond hashes to.
enum Hashed {
    /// Its own hash.
    Own(u32),
    /// One that the packet brings.
    Brought(u32, Giver),
    /// Nobody knows; the confidence says why.
    Unknown,
}

impl Walk<'_> {
    /// Step 11 once more, of a link that is a bond: which member of it the packet leaves by (`bond_start_xmit`, Linux 6.1 to
    /// 6.18).
    ///
    /// 1. active-backup: the one that is active; of none it is dropped.
    /// 2. balance-xor and 802.3ad: by the hash, over the members that can send ([`BondMembers::usable`]). Of none it is
    ///    dropped, and of a single one neither hash nor order matters.
    /// 3. In which order members joined, and their aggregators, only the machine itself says: of a snapshot the member is not
    ///    known where several can send, but the hash is.
    /// 4. broadcast: all of them. So does 802.3ad of neighbour discovery where `broadcast_neighbor` says so, which is not seen
    ///    here.
    /// 5. balance-rr, balance-tlb and balance-alb: not by the flow alone.
    /// 6. A bond below VLANs, a bridge or a macvlan: likewise, as far as the hash is known, see [`Walk::bond_hashed`].
    pub(super) fn bond(&mut self, hop: &Hop) {
        let rib = self.view.rib;
        let Some(Lower { index, tags }) = self.below(hop) else {
            return;
        };
        let Some(link) = rib.link(index).filter(|link| is_bond(link)) else {
            return;
        };
        let machine = self.view.around.machine.as_ref();
        let told = machine.and_then(|machine| machine.bond(link));
        let mode = link.bond.and_then(|bond| BondMode::from_number(bond.mode));
        let policy = link
            .bond
            .and_then(|bond| BondPolicy::from_number(bond.policy));
        let mut of = OfBond {
            dev: link.name.clone(),
            mode,
            policy: policy.filter(|_| matches!(mode, Some(BondMode::Xor | BondMode::Lacp))),
            hash: None,
            members: Vec::new(),
            ordered: false,
            member: None,
            confidence: Confidence::default(),
        };
        let (text, function) = match mode {
            Some(BondMode::ActiveBackup) => (
                self.active(link, told.as_ref(), &mut of),
                "bond_xmit_activebackup_slave_get",
            ),
            Some(mode @ (BondMode::Xor | BondMode::Lacp)) => (
                self.hashing(link, told.as_ref(), (mode, hop, tags), &mut of),
                "bond_xmit_3ad_xor_slave_get",
            ),
            Some(BondMode::RoundRobin) => {
                of.confidence
                    .unknown("packets go in turn by its members, whatever their flow");
                (
                    "packets go in turn by its members".to_owned(),
                    "bond_xmit_roundrobin_slave_get",
                )
            }
            Some(BondMode::Broadcast) => {
                of.confidence
                    .unknown("every packet leaves by all members: it has no one of its own");
                (
                    "every packet leaves by all its members".to_owned(),
                    "bond_xmit_broadcast",
                )
            }
            Some(BondMode::Tlb | BondMode::Alb) => {
                of.confidence
                    .unknown("what the members have sent before decides, which is not modelled");
                (
                    "by what its members have sent before".to_owned(),
                    "bond_alb_xmit",
                )
            }
            None => {
                let why = match link.bond {
                    Some(Bond { mode, .. }) => format!("its mode, {mode}, is not modelled"),
                    None => "its mode is not known".to_owned(),
                };
                of.confidence.unknown(why.clone());
                (why, "bond_start_xmit")
            }
        };
        let text = match (mode, of.policy) {
            (Some(mode), Some(policy)) => format!("{mode}, {policy}: {text}"),
            (Some(mode), None) => format!("{mode}: {text}"),
            (None, _) => text,
        };
        let details = match (of.members.as_slice(), of.ordered) {
            ([] | [_], _) => Vec::new(),
            (members, true) => vec![format!(
                "can send, in the order in which they joined: {}",
                members.join(", ")
            )],
            (members, false) => vec![format!("can send: {}", members.join(", "))],
        };
        let data = json!(of);
        self.add(11, "bond", function, text, data).details = details;
        self.bond = Some(of);
    }

    /// Rule 1.
    fn active(&self, link: &Link, told: Option<&BondMembers>, of: &mut OfBond) -> String {
        let rib = self.view.rib;
        of.members = active_members(rib, link);
        let queues = told.is_none_or(|told| told.members.iter().any(|member| member.queue != 0));
        match of.members.as_slice() {
            [] => "no member is active: dropped".to_owned(),
            [member] => {
                of.member = Some(member.clone());
                if parts(rib, link).len() > 1 && queues {
                    of.confidence.unless(
                        "a queue_id of another member is that of the transmit queue which the packet gets",
                    );
                }
                format!("{member}, which is active")
            }
            _ => {
                of.confidence
                    .unknown("several members are active: the bond is changing right now");
                "several members are active".to_owned()
            }
        }
    }

    /// Rules 2 and 3.
    fn hashing(
        &self,
        link: &Link,
        told: Option<&BondMembers>,
        (mode, hop, tags): (BondMode, &Hop, usize),
        of: &mut OfBond,
    ) -> String {
        let Some(policy) = of.policy else {
            let why = match link.bond {
                Some(Bond { policy, .. }) => format!("its policy, {policy}, is not modelled"),
                None => "its policy is not known".to_owned(),
            };
            of.confidence.unknown(why.clone());
            return why;
        };
        let Some(Sending { names, ordered }) = self.usable(link, told, mode, &mut of.confidence)
        else {
            return "its members are changing right now".to_owned();
        };
        (of.members, of.ordered) = (names, ordered);
        let may_broadcast = self
            .view
            .around
            .kernel
            .is_none_or(|kernel| kernel >= BROADCAST_NEIGHBOR);
        let discovers = self.packet.is_some_and(|packet| {
            packet.family == Family::V6 && matches!(packet.icmp_type(), Some(135 | 136))
        });
        if mode == BondMode::Lacp && may_broadcast && discovers {
            of.confidence
                .unless("broadcast_neighbor is on, and neighbour discovery leaves by every member");
        }
        let count = of.members.len();
        let mut doubts = Confidence::default();
        let hashed = self.bond_hashed(link, policy, (hop, tags), &mut doubts);
        let (hash, shown) = match hashed {
            Hashed::Own(hash) => (Some(hash), format!("hash {hash:#010x}")),
            Hashed::Brought(hash, giver) => {
                let secret = giver == Giver::Kernel && !self.view.around.show_key;
                let shown = match secret {
                    true => "the hash that the packet brings, not shown (--show-key)".to_owned(),
                    false => format!("the hash that the packet brings, {hash:#010x}"),
                };
                (Some(hash), shown)
            }
            Hashed::Unknown => (None, "a hash that is not known".to_owned()),
        };
        if !matches!(hashed, Hashed::Brought(_, Giver::Kernel)) || self.view.around.show_key {
            of.hash = hash;
        }
        if let [only] = of.members.as_slice() {
            of.member = Some(only.clone());
            return format!("{only}, the only member that can send ({shown})");
        }
        let Some(place) = hash.map(|hash| bond_member(hash, count)) else {
            of.confidence.merge(&doubts);
            return shown;
        };
        let Some(place) = place else {
            return format!("no member can send: dropped ({shown})");
        };
        of.confidence.merge(&doubts);
        let rest = format!("{shown}, which modulo {count} is {place}");
        if !ordered {
            of.confidence.unknown(format!(
                "the member is number {place}, counted from 0 in the order in which they joined, which is not known here \
                 (/sys/class/net/{}/bonding/slaves has it)",
                link.name
            ));
        }
        if of.confidence.level == Level::Unknown {
            return rest;
        }
        let member = &of.members[place];
        of.member = Some(member.clone());
        format!("{rest}: {member}")
    }

    /// The members that can send; none where what netlink tells of them is not what the machine does.
    fn usable(
        &self,
        link: &Link,
        told: Option<&BondMembers>,
        mode: BondMode,
        confidence: &mut Confidence,
    ) -> Option<Sending> {
        let sending = sending_members(self.view.rib, link, told, mode);
        if sending.is_none() {
            confidence.unknown(format!(
                "its members are changing right now: /sys/class/net/{}/bonding/slaves names others than netlink",
                link.name
            ));
        } else if told.is_none() {
            confidence.unless(match mode {
                BondMode::Lacp => {
                    "a member that is up and active is down for the bond's own monitor (mii_status), or not in the \
                     active aggregator"
                }
                _ => {
                    "a member that is up and active is down for the bond's own monitor (mii_status)"
                }
            });
        }
        sending
    }

    /// What the bond hashes to.
    ///
    /// 1. encap3+4, a packet that brings a hash over ports: that. What a socket gives to packets is random.
    /// 2. Else [`bond_hash`] of the packet as it leaves, from the bond's MAC address to the neighbour's; of a flow
    ///    [`bond_hash_of_flow`].
    /// 3. Fragments that the kernel makes have no ports.
    /// 4. With one tag, of a VLAN or a bridge upon the bond: likewise, from the MAC address of the link above. The kernel has the tag beside the packet;
    ///    an engine, which puts it into the frame, sends to the same member (`bonds.rs` of `rib`).
    /// 5. With two tags, of which one is in the frame, and by vlan+srcmac: not known.
    fn bond_hashed(
        &self,
        link: &Link,
        policy: BondPolicy,
        (hop, tags): (&Hop, usize),
        confidence: &mut Confidence,
    ) -> Hashed {
        if let Some(why) = version_doubt(self.view.around.kernel) {
            confidence.unless(why);
        }
        let rib = self.view.rib;
        let sender = rib.link(hop.index).unwrap_or(link);
        match (tags, policy) {
            (0, _) => {}
            (1, BondPolicy::Encap34) => {}
            (1, policy) if policy != BondPolicy::VlanSrcMac => confidence.unless(format!(
                "{} puts tags into frames before it hashes them (its tx-vlan-hw-insert is off)",
                link.name
            )),
            _ => {
                confidence.unknown("what is hashed of frames with such tags is not known");
                return Hashed::Unknown;
            }
        }
        if policy == BondPolicy::Encap34
            && let Some(hashed) = self.bond_brought(link, confidence)
        {
            return hashed;
        }
        if self.whole_frame {
            confidence.unknown(
                "what leaves is a frame that came in another packet, which is not looked at here",
            );
            return Hashed::Unknown;
        }
        let target = hop.gateway.unwrap_or(self.words.dst);
        let known = self.view.rib.neighbour(hop.index, target);
        let neighbour = known.filter(|known| known.is_valid());
        let to = neighbour.and_then(|known| known.mac);
        let from = sender.mac.filter(|_| sender.is_ethernet());
        if policy.hashes_innermost() {
            self.dissector_doubts(confidence);
        }
        if !self.is_local()
            && policy.hashes_addresses()
            && let Some(kernel) = self.view.around.kernel
            && BOND_PULL.holds(kernel)
        {
            confidence.unless(format!(
                "its headers are not all in the first buffer of the packet: Linux {kernel} then hashes other bytes (fixed in 6.6, \
                 6.5.9 and 6.1.60)"
            ));
        }
        let mut of = |to, from| match self.packet {
            Some(packet) => self.bond_hash_of_packet(policy, packet, (to, from), confidence),
            None => self.bond_hash_of_words(policy, (to, from), confidence),
        };
        let Some(hash) = of(to.unwrap_or_default(), from.unwrap_or_default()) else {
            return Hashed::Unknown;
        };
        // Every policy but vlan+srcmac hashes MAC addresses of a packet that it cannot dissect, most do not of others.
        const OTHER: [u8; 6] = [0xff; 6];
        let by_destination = of(OTHER, from.unwrap_or_default()) != Some(hash);
        let by_source = of(to.unwrap_or_default(), OTHER) != Some(hash);
        if to.is_none() && by_destination {
            confidence.unknown(format!(
                "the MAC address of {target} is hashed, and is not known yet"
            ));
            return Hashed::Unknown;
        }
        if from.is_none() && by_source {
            confidence.unknown(format!(
                "{} has no MAC address, which is hashed",
                sender.name
            ));
            return Hashed::Unknown;
        }
        Hashed::Own(hash)
    }

    /// Rule 1 of [`Walk::bond_hashed`]: what encap3+4 takes in place of fields; none where it takes them.
    fn bond_brought(&self, bond: &Link, confidence: &mut Confidence) -> Option<Hashed> {
        if self.is_local() {
            confidence.unknown(
                "what sockets send brings a hash of theirs, which is random (TCP, connected UDP, and of IPv6 what has a flow label \
                 made for it), and encap3+4 takes that in place of the fields",
            );
            return Some(Hashed::Unknown);
        }
        let link = self.ingress()?;
        let marks = self.view.around.marks(&link);
        let brought = self.of_brings(&marks.brings(&link));
        let proto = self
            .packet
            .map_or(self.words.proto, |packet| packet.words(&link.name).proto);
        let what = (ports_offset(proto).is_some(), self.is_steerable());
        let taker = format!("encap3+4 of {}", bond.name);
        l4_hash_doubts(&link, &marks, brought, what, &taker, confidence);
        match brought {
            _ if confidence.level == Level::Unknown => Some(Hashed::Unknown),
            Brought::Hash { hash, giver } => {
                self.brought_doubts(giver, confidence);
                match confidence.level {
                    Level::Unknown => Some(Hashed::Unknown),
                    _ => Some(Hashed::Brought(hash, giver)),
                }
            }
            Brought::Nothing | Brought::Unknown(_) => None,
        }
    }

    fn bond_hash_of_packet(
        &self,
        policy: BondPolicy,
        packet: &Packet,
        (to, from): ([u8; 6], [u8; 6]),
        confidence: &mut Confidence,
    ) -> Option<u32> {
        if policy.hashes_addresses() {
            self.cut_off(confidence);
        }
        let ether_type = match packet.family {
            Family::V4 => ethertype::IPV4,
            Family::V6 => ethertype::IPV6,
        };
        let mut frame = [&to[..], &from, &ether_type.to_be_bytes(), &packet.l3].concat();
        let fragmented = |fate: &super::fate::Fate| fate.what == What::Fragmented;
        if self.fate.as_ref().is_some_and(fragmented)
            && let Some(flags) = frame.get_mut(14 + 6)
        {
            // More fragments; of the last one the offset says that it is one.
            *flags |= 0x20;
        }
        let hash = bond_hash(policy, &frame, 0);
        if hash.is_none() {
            confidence.unknown("it carries TIPC, whose own address is hashed");
        }
        hash
    }

    fn bond_hash_of_words(
        &self,
        policy: BondPolicy,
        (to, from): ([u8; 6], [u8; 6]),
        confidence: &mut Confidence,
    ) -> Option<u32> {
        let words = self.words;
        let is_icmp = matches!(words.proto, protocol::ICMP | protocol::ICMPV6);
        if policy.hashes_addresses() && words.src.is_unspecified() {
            confidence.unknown("no source address was named (from), and it is hashed");
        }
        if policy.hashes_ports() {
            match ports_offset(words.proto) {
                _ if words.proto == 0 => confidence.unknown(
                    "no protocol and ports were named (ipproto, sport, dport), and they are hashed",
                ),
                _ if is_icmp => confidence.unknown(
                    "no packet was named (--pcap, --hex), and its ICMP identifier is hashed",
                ),
                Some(_) if matches!(words.proto, protocol::ESP | protocol::AH) => {
                    confidence.unknown("no packet was named (--pcap, --hex), and its SPI is hashed")
                }
                Some(_) if words.sport == 0 || words.dport == 0 => confidence
                    .unknown("not both ports were named (sport, dport), and they are hashed"),
                _ => {}
            }
        }
        if confidence.level == Level::Unknown {
            return None;
        }
        if is_icmp && policy == BondPolicy::Layer23 {
            confidence.unless(
                "it is an ICMP error: the addresses of the packet that it is about are hashed then",
            );
        }
        if words.proto == 0 && policy.hashes_innermost() {
            confidence.unless("it carries a packet, whose addresses are hashed then");
        }
        let mut flow = words.flow()?;
        if flow.proto == 0 {
            // What was left open is nothing, not hop-by-hop options.
            flow = flow.ports(protocol::NONE, 0, 0);
        }
        let hash = bond_hash_of_flow(policy, &flow, to, from);
        if hash.is_none() {
            confidence.unknown("the packet inside is hashed, of which nothing is said");
        }
        hash
    }
}
