//! Paths of a destination: what a route's hash chooses among, as a layout of the hash space.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use raddle_image::Reason;
use raddle_rib::event::{Route, Rule};
use raddle_rib::{Asked, Hop, MpAlgo, Resolved, Rib, Trace, describe_rule};
use raddle_select::{Brings, Flow, KeyAddresses, compile_threshold, upper_bounds};
use raddle_sim::resilient::{Overweight, Weighted, rebalance};
use raddle_sim::sample::Sample;
use raddle_sim::{Asker, Hashing, HashingError, Layout};
use raddle_text::outside;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Where packets go: what tells one path from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Out-link.
    pub index: u32,
    /// The neighbour; none for a direct route.
    pub gateway: Option<IpAddr>,
    /// The member of the bond that the link is, or is upon; none where there is no bond, or its members are not told apart.
    pub member: Option<u32>,
}

impl Place {
    /// That of a nexthop.
    pub fn of(hop: &Hop) -> Place {
        Place {
            index: hop.index,
            gateway: hop.gateway,
            member: None,
        }
    }

    /// Whether both are one for packets to an address, which is the neighbour itself where there is no gateway: of a direct route's
    /// nexthop a mirror tells it, and the kernel does not.
    pub fn is_same_for(&self, other: &Place, dst: IpAddr) -> bool {
        let full = |place: &Place| Place {
            gateway: Some(place.gateway.unwrap_or(dst)),
            ..*place
        };
        full(self) == full(other)
    }

    /// `via G dev L member M`.
    pub fn text(&self, rib: &Rib) -> String {
        Named::of(self, rib).text()
    }
}

/// A path as the reports print it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Out-link.
    #[serde(deserialize_with = "outside::link_name")]
    pub dev: String,
    /// The neighbour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The member, where the link is a bond, or a VLAN upon one, whose members are told apart.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "outside::line_if_any"
    )]
    pub member: Option<String>,
}

impl Named {
    /// That of a place.
    pub fn of(place: &Place, rib: &Rib) -> Named {
        Named {
            dev: link_name(rib, place.index),
            via: place.gateway,
            member: place.member.map(|member| link_name(rib, member)),
        }
    }

    /// The link that frames leave by, as far as it is known: the member of a bond, else the out-link.
    pub fn link(&self) -> &str {
        self.member.as_ref().unwrap_or(&self.dev)
    }

    /// Whether that path is this one; where this one names no member of a bond, by whichever member.
    pub(crate) fn is(&self, path: &Named) -> bool {
        let member = self.member.is_none() || self.member == path.member;
        member && (&self.dev, self.via) == (&path.dev, path.via)
    }

    /// `via G dev L member M`.
    pub fn text(&self) -> String {
        let via = self.via.map(|via| format!("via {via} "));
        let member = self
            .member
            .as_ref()
            .map(|member| format!(" member {member}"));
        let (via, member) = (via.unwrap_or_default(), member.unwrap_or_default());
        format!("{via}dev {}{member}", self.dev)
    }
}

/// The name of a link.
pub fn link_name(rib: &Rib, index: u32) -> String {
    rib.link(index)
        .map_or_else(|| format!("if{index}"), |link| link.name.clone())
}

/// How a route chooses among its nexthops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is one.
    One,
    /// A route's own nexthops, by hash-threshold.
    Plain,
    /// A hash-threshold group with this id.
    Group(u32),
    /// A resilient group with this id.
    Resilient(u32),
}

/// What the hash chooses among for a destination.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The route.
    pub route: Route,
    /// How it chooses.
    pub kind: Kind,
    /// Its nexthops, those without a share included.
    pub hops: Vec<Hop>,
    /// Which of them each hash takes.
    pub layout: Layout,
    /// Of a resilient group: which of them owns each bucket.
    pub owners: Vec<usize>,
}

impl Choice {
    /// Whether there is anything to choose.
    pub fn is_many(&self) -> bool {
        self.kind != Kind::One
    }

    /// Which nexthop each hash takes at once when those that are `gone` fail.
    pub fn without(&self, gone: impl Fn(usize) -> bool) -> Layout {
        if let Kind::Resilient(_) = self.kind {
            let left = |owner: &usize| (!gone(*owner)).then_some(*owner);
            let owners: Vec<Option<usize>> = self.owners.iter().map(left).collect();
            let mut members = weighted(&self.hops);
            members.retain(|member| !gone(member.path));
            return Layout::buckets(rebalance(&owners, &members, Overweight::Stay));
        }
        let weight = |i: usize| {
            let stays = !gone(i) && self.hops[i].upper.is_some();
            stays.then_some(u32::from(self.hops[i].weight))
        };
        let uppers = upper_bounds(&(0..self.hops.len()).map(weight).collect::<Vec<_>>());
        Layout::ranges(compile_threshold(&uppers, |i| self.hops[i].eligible))
    }
}

/// Nexthops as members of a resilient group.
pub fn weighted(hops: &[Hop]) -> Vec<Weighted> {
    let member = |(path, hop): (usize, &Hop)| Weighted {
        path,
        weight: hop.weight,
    };
    hops.iter().enumerate().map(member).collect()
}

/// All packets to an address, whose TOS is 0 as that of most.
pub fn packets_to(dst: IpAddr) -> Asked {
    Asked {
        tos: (0, u8::MAX),
        ..Asked::to(dst)
    }
}

/// What routing rules can ask for of the packets of a flow, by what is known of them; of captured ones their TOS, too, which else counts as 0.
/// Where no rule does, of all packets to its destination.
pub fn packets_of(rib: &Rib, iif: &str, sample: &Sample) -> Asked {
    let flow = &sample.flow;
    let (src, dst) = flow.addresses.ends();
    if trace(rib, iif, &Asked::to(dst)).is_ok() {
        return Asked::to(dst);
    }
    let tos = match sample.packet.as_deref() {
        Some([first, second, ..]) if dst.is_ipv6() => first << 4 | second >> 4,
        Some([_, tos, ..]) => *tos,
        _ => 0,
    };
    let proto = (flow.proto != 0).then_some(flow.proto);
    Asked {
        src: src.into(),
        tos: (tos, u8::MAX),
        proto,
        ..match proto {
            Some(_) => Asked {
                sport: (flow.sport, flow.sport),
                dport: (flow.dport, flow.dport),
                ..Asked::to(dst)
            },
            None => Asked::to(dst),
        }
    }
}

/// A flow between these; from nowhere where the source is of the other family.
pub(crate) fn flow_between(src: IpAddr, dst: IpAddr) -> Flow {
    let addresses = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => KeyAddresses::V4 { src, dst },
        (IpAddr::V6(src), IpAddr::V6(dst)) => KeyAddresses::V6 { src, dst },
        (IpAddr::V6(_), IpAddr::V4(dst)) => KeyAddresses::V4 {
            src: Ipv4Addr::UNSPECIFIED,
            dst,
        },
        (IpAddr::V4(_), IpAddr::V6(dst)) => KeyAddresses::V6 {
            src: Ipv6Addr::UNSPECIFIED,
            dst,
        },
    };
    Flow {
        addresses,
        proto: 0,
        sport: 0,
        dport: 0,
        flow_label: 0,
    }
}

/// How such packets are looked up that come in by `iif`, or are this machine's own.
pub(crate) fn trace<'a>(rib: &'a Rib, iif: &str, packets: &Asked) -> Result<Trace, &'a Rule> {
    let iif = if iif.is_empty() { "lo" } else { iif };
    rib.trace_all(iif, packets)
}

/// Looks packets to one address up and says among what their route chooses, for those that come in by `iif`;
/// an empty name stands for this machine's own.
///
/// # Errors
/// Why there is no nexthop; [`Reason::Rules`] where a rule asks for more than is said of the packets.
pub fn choice(rib: &Rib, iif: &str, packets: &Asked) -> Result<Choice, Reason> {
    let trace = trace(rib, iif, packets).map_err(|_| Reason::Rules)?;
    trace.lookup?;
    let route = trace.route.ok_or(Reason::NoRoute)?;
    if trace.resolved.has_segments() {
        return Err(Reason::Encap);
    }
    Ok(match trace.resolved {
        Resolved::Kernel(reason) => return Err(reason),
        Resolved::One(hop) => Choice {
            route,
            kind: Kind::One,
            hops: vec![hop],
            layout: Layout::one(0),
            owners: Vec::new(),
        },
        Resolved::Many {
            hops,
            ranges,
            group,
        } => Choice {
            route,
            kind: group.map_or(Kind::Plain, Kind::Group),
            hops,
            layout: Layout::ranges(ranges),
            owners: Vec::new(),
        },
        Resolved::Resilient {
            group,
            hops,
            buckets,
            ..
        } => {
            let owners: Vec<usize> = buckets.into_iter().map(usize::from).collect();
            Choice {
                route,
                kind: Kind::Resilient(group),
                hops,
                layout: Layout::buckets(owners.clone()),
                owners,
            }
        }
    })
}

/// Why there are no paths to compute with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PathError {
    /// The destination has no nexthop.
    #[error("{dst} has no path to compute with: {}; raddle explain {dst} says more", reason.name())]
    NoPath {
        /// The destination.
        dst: IpAddr,
        /// What becomes of its packets.
        reason: Reason,
    },
    /// A routing rule stands in the way.
    #[error(
        "packets to {dst} are looked up by rule {rule}, which asks for more than is said of them, or for what is not modelled"
    )]
    Rule {
        /// The destination.
        dst: IpAddr,
        /// The rule, as `ip rule` has it.
        rule: String,
    },
    /// Packets are to come in by a link that is not there.
    #[error("there is no link '{0}'")]
    NoLink(String),
}

/// As [`choice`], for those that can do nothing without one.
///
/// # Errors
/// [`PathError::NoPath`], [`PathError::Rule`].
pub fn needed(rib: &Rib, iif: &str, packets: &Asked) -> Result<Choice, PathError> {
    let dst = packets.dst.addr();
    choice(rib, iif, packets).map_err(|reason| match trace(rib, iif, packets) {
        Err(rule) => PathError::Rule {
            dst,
            rule: describe_rule(rule),
        },
        Ok(_) => PathError::NoPath { dst, reason },
    })
}

/// How the daemon spreads such packets, by the rules of this state, where that is not by the
/// namespace's hash policy. Without an input link they are this machine's own, which the kernel sends.
pub fn algo(rib: &Rib, iif: &str, packets: &Asked) -> Option<MpAlgo> {
    match iif {
        "" => None,
        _ => trace(rib, iif, packets).ok()?.algo,
    }
}

/// Why flows have no hash.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoHash {
    /// The settings.
    #[error(transparent)]
    Settings(#[from] HashingError),
    /// Packets, or flowlets, go round robin.
    #[error(
        "its packets go round robin (mp-algo {0}), by weight and on each core: no flow has a path of its own \
         that could be predicted"
    )]
    RoundRobin(MpAlgo),
}

/// What turns flows to this destination into hashes, by the settings of this state and the route's own way
/// ([`algo`]), or by what their packets bring along ([`Rib::brings`]); without an input link they are this machine's own.
///
/// # Errors
/// Why no flow has a hash.
pub fn hashing(rib: &Rib, iif: &str, dst: IpAddr, algo: Option<MpAlgo>) -> Result<Hashing, NoHash> {
    let (policy, fields, _) = hash_settings(rib, dst, algo);
    let asker = if iif.is_empty() {
        Asker::Sender
    } else {
        Asker::Router
    };
    let hashing = || Hashing::with_key(policy, fields, rib.hash_key(), asker);
    Ok(match algo {
        Some(algo @ (MpAlgo::RoundRobin | MpAlgo::Flowlet { .. })) => {
            return Err(NoHash::RoundRobin(algo));
        }
        Some(MpAlgo::Hash {
            icmp_follows_flow: true,
            ..
        }) => hashing()?.with_icmp_following(),
        Some(MpAlgo::Hash { .. }) => hashing()?,
        None => hashing()?.with_brings(brings(rib, iif)),
    })
}

/// What packets bring along that come in by this link ([`Rib::brings`]).
pub(crate) fn brings(rib: &Rib, iif: &str) -> Brings {
    let link = rib.link_named(iif);
    let brings = link.and_then(|link| rib.brings(link.index));
    brings.cloned().unwrap_or_default()
}

/// Hash policy, fields and seed for the destination's family, where the route is spread so.
pub fn hash_settings(rib: &Rib, dst: IpAddr, algo: Option<MpAlgo>) -> (u8, u32, u32) {
    let s = rib.settings();
    let (policy, fields) = match dst {
        IpAddr::V4(_) => (s.hash_policy4, s.hash_fields4),
        IpAddr::V6(_) => (s.hash_policy6, s.hash_fields6),
    };
    let policy = match algo {
        Some(MpAlgo::Hash { policy, .. }) => policy as u8,
        _ => policy,
    };
    (policy, fields, s.hash_seed)
}

/// The link that packets come in by, which has to exist; an empty name without one.
///
/// # Errors
/// [`PathError::NoLink`].
pub fn input<'a>(rib: &Rib, iif: Option<&'a str>) -> Result<&'a str, PathError> {
    match iif {
        None => Ok(""),
        Some(name) if rib.link_named(name).is_some() => Ok(name),
        Some(name) => Err(PathError::NoLink(name.to_owned())),
    }
}

/// A share as people read it: `33.33 %`.
pub fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}
