//! Members of bonds: a nexthop over a bond is several paths, and a hash without a key chooses among them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;

use raddle_explain::{active_members, is_bond, sending_members};
use raddle_packet::Family;
use raddle_packet::protocol::{self, ethertype};
use raddle_rib::event::Link;
use raddle_rib::{Rib, below};
use raddle_select::{
    BondMembers, BondMode, BondPolicy, Brings, Brought, Flow, bond_hash, bond_hash_of_flow,
    bond_member,
};
use raddle_sim::Path;
use raddle_sim::sample::Sample;
use raddle_text::outside;
use serde::{Deserialize, Serialize};

use crate::paths::{Place, flow_between};

/// What a machine tells of its bonds that a mirror of its state does not have; by default nothing, as of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bonds(BTreeMap<u32, BondMembers>);

impl Bonds {
    /// What `tell` says of each bond of a mirror.
    pub fn told(rib: &Rib, tell: impl Fn(&Link) -> Option<BondMembers>) -> Bonds {
        let bonds = rib.links().filter(|link| is_bond(link));
        Bonds(
            bonds
                .filter_map(|bond| Some((bond.index, tell(bond)?)))
                .collect(),
        )
    }
}

/// Which packets leave by a bond.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// What those bring along that come in by a link; none of what sockets of this machine send.
    pub forwarded: Option<Brings>,
    /// A flow that they are of, with an unspecified source where nobody says which.
    pub flow: Flow,
    /// What differs between them.
    pub differ: Differ,
}

impl Traffic {
    /// TCP connections of this machine's own to a server; without a source, whichever they get.
    pub fn connections(from: Option<IpAddr>, server: SocketAddr) -> Traffic {
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let flow = flow_between(from.unwrap_or(any), server.ip());
        Traffic {
            forwarded: None,
            flow: flow.ports(protocol::TCP, 0, server.port()),
            differ: Differ::Sport,
        }
    }
}

/// What differs between flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Differ {
    /// Everything but the destination.
    All,
    /// The source port.
    Sport,
    /// The flow label, which no bond hashes.
    Label,
}

/// A bond that paths lead over, as the reports print it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BondUse {
    /// The bond.
    #[serde(deserialize_with = "outside::link_name")]
    pub dev: String,
    /// How it chooses a member; none where that is not known.
    #[serde(default, deserialize_with = "outside::line_if_any")]
    pub mode: Option<String>,
    /// What it hashes; none where it does not, or where that is not known.
    #[serde(default, deserialize_with = "outside::line_if_any")]
    pub policy: Option<String>,
    /// The members that can send, in the order in which it numbers them; those that are told apart, so none where `why` says why not.
    #[serde(default, deserialize_with = "outside::lines")]
    pub members: Vec<String>,
    /// Why it is one path.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "outside::line_if_any"
    )]
    pub why: Option<String>,
}

/// `bond0: 802.3ad, layer3+4: by eth2, eth1`.
impl fmt::Display for BondUse {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = [Some(&self.dev), self.mode.as_ref(), self.policy.as_ref()];
        let how: Vec<&str> = how.into_iter().flatten().map(String::as_str).collect();
        write!(out, "{}", how.join(" "))?;
        match (&self.why, self.members.as_slice()) {
            (Some(why), _) => write!(out, " is one path: {why}"),
            (None, [one]) => write!(out, " leads by {one}"),
            (None, members) => write!(
                out,
                ": {} members, in the order in which they joined: {}",
                members.len(),
                members.join(", ")
            ),
        }
    }
}

/// How packets leave by a nexthop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    bond: Option<BondUse>,
    by: By,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum By {
    /// One way: the link itself, or a member by this index; none where none is known.
    One(Option<u32>),
    /// Members by a hash, in the order in which they are numbered.
    Hash(MemberHash, Vec<u32>),
}

/// What chooses a member.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MemberHash {
    policy: BondPolicy,
    to: [u8; 6],
    from: [u8; 6],
    /// What counts in place of the fields.
    brings: Brings,
}

impl MemberHash {
    /// The hash of a flow's packets; none where the flow does not say it.
    fn of_flow(&self, flow: &Flow) -> Option<u32> {
        match self.brought(|brings| brings.of_flow(flow)) {
            Brought::Hash { hash, .. } => return Some(hash),
            Brought::Unknown(_) => return None,
            Brought::Nothing => {}
        }
        let flow = match flow.proto {
            // What was left open is nothing, not hop-by-hop options.
            0 => flow.ports(protocol::NONE, 0, 0),
            _ => *flow,
        };
        bond_hash_of_flow(self.policy, &flow, self.to, self.from)
    }

    /// That of a packet, from its IP header on.
    fn of_packet(&self, family: Family, l3: &[u8]) -> Option<u32> {
        match self.brought(|brings| brings.of_packet(family, l3)) {
            Brought::Hash { hash, .. } => return Some(hash),
            Brought::Unknown(_) => return None,
            Brought::Nothing => {}
        }
        let ether_type = match family {
            Family::V4 => ethertype::IPV4,
            Family::V6 => ethertype::IPV6,
        };
        let frame = [&self.to[..], &self.from, &ether_type.to_be_bytes(), l3].concat();
        bond_hash(self.policy, &frame, 0)
    }

    fn brought(&self, of: impl Fn(&Brings) -> Brought) -> Brought {
        match self.policy == BondPolicy::Encap34 && !self.brings.is_nothing() {
            true => of(&self.brings),
            false => Brought::Nothing,
        }
    }
}

impl Leaving {
    /// How such packets leave by a nexthop (`bond_start_xmit`, Linux 6.1 to 6.18).
    ///
    /// 1. Without a bond, also below VLANs: one way.
    /// 2. active-backup: the member that is active.
    /// 3. balance-xor and 802.3ad: by the hash, over the members that can send; of a single one neither hash nor order matters.
    /// 4. What no flow decides (other modes), or nobody knows, is one way: the order of members of a snapshot, policies and modes
    ///    that are not modelled, frames with two tags, the neighbour's MAC address where it is hashed.
    /// 5. So is encap3+4 of what sockets send, whose packets bring a random hash.
    /// 6. What is hashed is the same in all of these packets: the one member that this makes. It is not known which where
    ///    nobody says where they come from, and that is hashed.
    pub fn by(rib: &Rib, bonds: &Bonds, place: &Place, traffic: &Traffic) -> Leaving {
        let Some(way) = Way::of(rib, place) else {
            return Leaving {
                bond: None,
                by: By::One(None),
            };
        };
        let mut of = BondUse {
            dev: way.bond.name.clone(),
            mode: way.mode.map(|mode| mode.to_string()),
            policy: way.policy.map(|policy| policy.to_string()),
            members: Vec::new(),
            why: None,
        };
        let by = match (way.mode, way.policy) {
            (Some(BondMode::ActiveBackup), _) => match active_members(rib, way.bond).as_slice() {
                [member] => {
                    of.members = vec![member.clone()];
                    Ok(By::One(rib.link_named(member).map(|link| link.index)))
                }
                _ => Err("no one member of it is active right now".to_owned()),
            },
            (Some(mode), Some(policy)) => {
                way.by_hash((rib, bonds), (mode, policy), (place, traffic), &mut of)
            }
            (mode, _) => Err(undecided(mode)),
        };
        let by = by.unwrap_or_else(|why| {
            of.why = Some(why);
            By::One(None)
        });
        Leaving { bond: Some(of), by }
    }

    /// Why a bond is one path, in words; none where there is none, or its members are told apart.
    pub fn note(&self) -> Option<String> {
        let bond = self.bond.as_ref().filter(|bond| bond.why.is_some());
        bond.map(BondUse::to_string)
    }

    /// How many paths that is.
    pub fn paths(&self) -> usize {
        match &self.by {
            By::One(_) => 1,
            By::Hash(_, members) => members.len(),
        }
    }

    /// The index of the member that a flow leaves by; none where there is none, or it is not known.
    pub fn member(&self, flow: &Flow) -> Option<u32> {
        match &self.by {
            By::One(member) => *member,
            By::Hash(_, members) => members.get(self.number(flow, None)?).copied(),
        }
    }

    /// The same of a TCP connection.
    pub fn of_connection(&self, from: SocketAddr, server: SocketAddr) -> Option<u32> {
        let flow = Flow::new(from.ip(), server.ip())?;
        self.member(&flow.ports(protocol::TCP, from.port(), server.port()))
    }

    /// The number of the path that a flow takes, where a member has `failed`; none where it is not known.
    fn number(&self, flow: &Flow, failed: Option<u32>) -> Path {
        self.numbered(failed, |hash| hash.of_flow(flow))
    }

    fn numbered(&self, failed: Option<u32>, of: impl Fn(&MemberHash) -> Option<u32>) -> Path {
        let By::Hash(hash, members) = &self.by else {
            return Some(0);
        };
        let left = (0..members.len()).filter(|at| Some(members[*at]) != failed);
        let left: Vec<usize> = left.collect();
        left.get(bond_member(of(hash)?, left.len())?).copied()
    }

    /// Whether a flow that leaves by that number here leaves by the same hash there.
    fn hashes_as(&self, other: &Leaving) -> Option<(usize, usize)> {
        let (By::Hash(a, here), By::Hash(b, there)) = (&self.by, &other.by) else {
            return None;
        };
        let macs = a.policy.hashes_destination_mac() || a.policy == BondPolicy::VlanSrcMac;
        let same = a.policy == b.policy && a.brings == b.brings;
        let same_macs = !macs || (a.to, a.from) == (b.to, b.from);
        (same && same_macs).then_some((here.len(), there.len()))
    }
}

/// Whether the destination decides by which member of a bond packets leave: it is the neighbour, whose MAC address is hashed.
pub(crate) fn is_by_destination(rib: &Rib, place: &Place, dst: IpAddr) -> bool {
    let policy = || Way::of(rib, place)?.policy;
    place.gateway.is_none_or(|gateway| gateway == dst)
        && policy().is_some_and(BondPolicy::hashes_destination_mac)
}

/// The bond that packets leave by.
struct Way<'a> {
    /// The out-link: the bond, or a VLAN upon it.
    sender: &'a Link,
    bond: &'a Link,
    /// How many tags frames have there.
    tags: usize,
    mode: Option<BondMode>,
    /// None where it does not hash, too.
    policy: Option<BondPolicy>,
}

impl<'a> Way<'a> {
    /// None where there is no bond.
    fn of(rib: &'a Rib, place: &Place) -> Option<Way<'a>> {
        let sender = rib.link(place.index)?;
        let (lower, tags) = match sender.is_vlan() {
            false => (sender, 0),
            true => {
                let below = below(sender, |index| rib.link(index))?;
                (rib.link(below.lower)?, below.through.len())
            }
        };
        let bond = Some(lower).filter(|link| is_bond(link))?;
        let mode = bond.bond.and_then(|bond| BondMode::from_number(bond.mode));
        let policy = bond
            .bond
            .and_then(|bond| BondPolicy::from_number(bond.policy));
        Some(Way {
            sender,
            bond,
            tags,
            mode,
            policy: policy.filter(|_| matches!(mode, Some(BondMode::Xor | BondMode::Lacp))),
        })
    }

    /// Rules 3 to 6 of [`Leaving::by`].
    fn by_hash(
        &self,
        (rib, bonds): (&Rib, &Bonds),
        (mode, policy): (BondMode, BondPolicy),
        (place, traffic): (&Place, &Traffic),
        of: &mut BondUse,
    ) -> Result<By, String> {
        let told = bonds.0.get(&self.bond.index);
        let Some(sending) = sending_members(rib, self.bond, told, mode) else {
            return Err("its members are changing right now".to_owned());
        };
        let index = |name: &String| rib.link_named(name).map(|link| link.index);
        let members: Vec<u32> = sending.names.iter().filter_map(index).collect();
        let by = match members.as_slice() {
            [] => return Err("none of its members can send right now".to_owned()),
            [one] => By::One(Some(*one)),
            _ if !sending.ordered => return Err(unordered(self.bond)),
            _ => {
                let hash = self.member_hash(rib, policy, (place, traffic))?;
                one_for_all(hash, members, traffic, of)?
            }
        };
        if of.why.is_none() {
            of.members = sending.names;
        }
        Ok(by)
    }

    /// Rules 4 and 5 of [`Leaving::by`]: what chooses; else why that is not known.
    fn member_hash(
        &self,
        rib: &Rib,
        policy: BondPolicy,
        (place, traffic): (&Place, &Traffic),
    ) -> Result<MemberHash, String> {
        if self.tags > 1 || (self.tags == 1 && policy == BondPolicy::VlanSrcMac) {
            return Err("what is hashed of frames with such tags is not known".to_owned());
        }
        if policy == BondPolicy::Encap34 && traffic.forwarded.is_none() {
            return Err(
                "packets of this machine's sockets bring a hash that is random, and encap3+4 goes by that"
                    .to_owned(),
            );
        }
        let (_, dst) = traffic.flow.addresses.ends();
        let target = place.gateway.unwrap_or(dst);
        let known = rib.neighbour(place.index, target);
        let known = known.filter(|known| known.is_valid());
        let to = known.and_then(|known| known.mac);
        if to.is_none() && policy.hashes_destination_mac() {
            return Err(format!(
                "the MAC address of {target} is hashed, and is not known yet"
            ));
        }
        let from = self.sender.mac.filter(|_| self.sender.is_ethernet());
        Ok(MemberHash {
            policy,
            to: to.unwrap_or_default(),
            from: from.unwrap_or_default(),
            brings: traffic.forwarded.clone().unwrap_or_default(),
        })
    }
}

/// Rule 4 of [`Leaving::by`], of bonds that do not hash.
fn undecided(mode: Option<BondMode>) -> String {
    match mode {
        Some(BondMode::RoundRobin) => "packets go in turn by its members, whatever their flow",
        Some(BondMode::Broadcast) => "every packet leaves by all of its members",
        Some(BondMode::Tlb | BondMode::Alb) => "what its members have sent before decides",
        Some(BondMode::Xor | BondMode::Lacp) => "its xmit_hash_policy is not known",
        Some(BondMode::ActiveBackup) | None => "its mode is not known",
    }
    .to_owned()
}

fn unordered(bond: &Link) -> String {
    format!(
        "the order in which its members joined is not known: no snapshot has it, and the machine itself in \
         /sys/class/net/{}/bonding/slaves of its network namespace",
        bond.name
    )
}

/// Rule 6 of [`Leaving::by`].
fn one_for_all(
    hash: MemberHash,
    members: Vec<u32>,
    traffic: &Traffic,
    of: &mut BondUse,
) -> Result<By, String> {
    let policy = hash.policy;
    let brought = policy == BondPolicy::Encap34 && !hash.brings.is_nothing();
    let differs = match traffic.differ {
        Differ::All => policy.hashes_addresses(),
        Differ::Sport => policy.hashes_ports(),
        Differ::Label => brought,
    };
    if differs {
        return Ok(By::Hash(hash, members));
    }
    let why =
        format!("{policy} does not hash what differs between its packets: all leave by one member");
    let (src, _) = traffic.flow.addresses.ends();
    if src.is_unspecified() && policy.hashes_addresses() {
        return Err(why);
    }
    let member = hash
        .of_flow(&traffic.flow)
        .and_then(|hash| bond_member(hash, members.len()));
    of.why = Some(why);
    Ok(By::One(member.map(|member| members[member])))
}

/// The paths behind those that a route's hash chooses among: each nexthop's own, or those of its bond's members.
#[derive(Clone, Debug)]
pub(crate) struct Fan {
    leaving: Vec<Leaving>,
    /// The number of the first path of each nexthop.
    first: Vec<usize>,
    places: Vec<Place>,
}

impl Fan {
    /// Of nexthops, for such packets.
    pub(crate) fn new(rib: &Rib, bonds: &Bonds, hops: &[Place], traffic: &Traffic) -> Fan {
        let leaving = |place: &Place| Leaving::by(rib, bonds, place, traffic);
        Fan::of_leaving(hops.iter().map(leaving).collect(), hops)
    }

    fn of_leaving(leaving: Vec<Leaving>, hops: &[Place]) -> Fan {
        let mut fan = Fan {
            leaving,
            first: Vec::new(),
            places: Vec::new(),
        };
        for (hop, leaving) in hops.iter().zip(&fan.leaving) {
            fan.first.push(fan.places.len());
            let place = |member: Option<u32>| Place { member, ..*hop };
            match &leaving.by {
                By::One(member) => fan.places.push(place(*member)),
                By::Hash(_, members) => {
                    let members = members.iter().map(|member| place(Some(*member)));
                    fan.places.extend(members);
                }
            }
        }
        fan
    }

    /// The same, which comes of `before`: where it is not known there by which member of a bond packets leave, it is not known here.
    pub(crate) fn limited_to(mut self, before: &Fan) -> Fan {
        let unknown = |of: &Leaving| of.bond.is_some() && of.by == By::One(None);
        for (hop, leaving) in before.leaving.iter().enumerate() {
            if unknown(leaving) {
                self.leaving[hop].clone_from(leaving);
            }
        }
        let hops: Vec<Place> = self
            .first
            .iter()
            .map(|first| Place {
                member: None,
                ..self.places[*first]
            })
            .collect();
        Fan::of_leaving(self.leaving, &hops)
    }

    /// Every path, by number: those of the first nexthop, then the next one's.
    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    /// Whether any nexthop is several paths.
    pub(crate) fn is_wider(&self) -> bool {
        self.places.len() > self.leaving.len()
    }

    /// The paths of a nexthop.
    pub(crate) fn of(&self, hop: usize) -> Range<usize> {
        let first = self.first.get(hop).copied().unwrap_or(self.places.len());
        first..first + self.leaving.get(hop).map_or(0, Leaving::paths)
    }

    /// The nexthop of a path.
    pub(crate) fn hop(&self, path: usize) -> usize {
        self.first.partition_point(|first| *first <= path) - 1
    }

    /// The bonds that there are, each once.
    pub(crate) fn bonds(&self) -> Vec<BondUse> {
        let mut bonds: Vec<BondUse> = Vec::new();
        for bond in self.leaving.iter().filter_map(|of| of.bond.as_ref()) {
            if !bonds.contains(bond) {
                bonds.push(bond.clone());
            }
        }
        bonds
    }

    /// The path of a flow that takes this nexthop, where a member of a bond has `failed`; none where it is not known.
    pub(crate) fn flow(&self, hop: Path, flow: &Flow, failed: Option<u32>) -> Path {
        let hop = hop?;
        Some(self.first.get(hop)? + self.leaving[hop].number(flow, failed)?)
    }

    /// That of a sample: by its packet, where it has one and comes in by a link.
    pub(crate) fn sample(&self, hop: Path, sample: &Sample, forwarded: bool) -> Path {
        let Some(packet) = sample.packet.as_deref().filter(|_| forwarded) else {
            return self.flow(hop, &sample.flow, None);
        };
        let hop = hop?;
        let of = |hash: &MemberHash| hash.of_packet(sample.flow.family(), packet);
        Some(self.first.get(hop)? + self.leaving[hop].numbered(None, of)?)
    }

    /// Each path's part of what its nexthop has: equal ones of the members that have not failed, the first the larger ones.
    pub(crate) fn shares(&self, hops: &[u64], failed: Option<u32>) -> Vec<u64> {
        let mut shares = vec![0; self.places.len()];
        for (hop, all) in hops.iter().enumerate() {
            let left = self.of(hop).filter(|path| {
                failed.is_none()
                    || self.leaving[hop].paths() == 1
                    || self.places[*path].member != failed
            });
            let left: Vec<usize> = left.collect();
            let count = left.len().max(1) as u64;
            for (n, path) in left.into_iter().enumerate() {
                shares[path] = all / count + u64::from((n as u64) < all % count);
            }
        }
        shares
    }

    /// Whether a nexthop is a bond of one active member at a time, whichever that is.
    pub(crate) fn has_backups(&self, hop: usize) -> bool {
        let bond = self.leaving.get(hop).and_then(|of| of.bond.as_ref());
        let mode = bond.and_then(|bond| bond.mode.as_ref());
        mode.is_some_and(|mode| *mode == BondMode::ActiveBackup.to_string())
    }

    /// The bonds' members that hashes choose, by index.
    pub(crate) fn members(&self) -> impl Iterator<Item = u32> {
        let hashed = (0..self.leaving.len()).filter(|hop| self.leaving[*hop].paths() > 1);
        let paths = hashed.flat_map(|hop| self.of(hop));
        paths.filter_map(|path| self.places[path].member)
    }

    /// From which path of nexthop `hop` to which one of nexthop `to` of `other` packets go that change from the one to the other
    /// nexthop, by their numbers, and how much of all these.
    ///
    /// 1. Where both hash alike, by what the rest of the same hash is, divided by how many members there are.
    /// 2. Else both are independent.
    pub(crate) fn joined(&self, hop: usize, other: &Fan, to: usize) -> Vec<(usize, usize, f64)> {
        let (here, there) = (self.of(hop), other.of(to));
        let Some((m, n)) = self.leaving[hop].hashes_as(&other.leaving[to]) else {
            let part = 1.0 / (here.len() * there.len()) as f64;
            let pairs = here.flat_map(|a| there.clone().map(move |b| (a, b, part)));
            return pairs.collect();
        };
        let mut pairs: BTreeMap<(usize, usize), u32> = BTreeMap::new();
        for hash in 0..m * n {
            *pairs.entry((hash % m, hash % n)).or_default() += 1;
        }
        let of = |((a, b), count): ((usize, usize), u32)| {
            let part = f64::from(count) / (m * n) as f64;
            (here.start + a, there.start + b, part)
        };
        pairs.into_iter().map(of).collect()
    }
}
