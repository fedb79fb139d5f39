//! rtnetlink's messages as typed events, and back.
//!
//! Decoding is zero-copy down to the event: iterators walk the buffer, and only what an event
//! owns is allocated (device names, the members of groups and multipath routes; nothing for a
//! route of one nexthop or an entry of an FDB). No input makes it panic; messages that make no sense are errors, and
//! messages that do not concern routing are passed over and counted.

mod address;
mod bridge;
mod build;
mod control;
mod fdb;
mod link;
mod neighbour;
mod netconf;
mod nexthop;
pub mod number;
mod port_vlan;
mod route;
mod route_encode;
mod rule;
mod sid_counters;
mod tunnel;
mod wire;

use std::net::IpAddr;

use raddle_rib::event::Event;

pub use bridge::PortChange;
pub use build::{Builder, EncodeError, Nest};
pub use control::{KernelError, Outcome};
pub use netconf::Netconf;
pub use port_vlan::PortVlans;
pub use rule::RULE_OTHER_INVERT;
pub use sid_counters::SidCounters;
pub use wire::{Attribute, Attributes, DecodeError, Message, Messages};

pub(crate) use link::IFLA_EXT_MASK;
pub(crate) use neighbour::{NTF_PROXY, NTF_USE, proxied};
pub(crate) use nexthop::encap as nexthop_encap;
pub(crate) use route::{
    EncapView, RTA_DPORT, RTA_DST, RTA_FLOWLABEL, RTA_IIF, RTA_IP_PROTO, RTA_MARK, RTA_OIF,
    RTA_SPORT, RTA_SRC, RouteView,
};

use number::rtm;

/// `NLA_F_NESTED`: the attribute holds attributes.
pub(crate) const NESTED: u16 = 0x8000;

/// What one message turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // routes are nearly all of them, and it is never stored
pub enum Decoded {
    /// Something happened to the state we mirror.
    Event(Event),
    /// So did this, of VLANs at a bridge or one of its ports: [`PortVlans::events`].
    Vlans(PortVlans),
    /// A bridge tells of one of its ports.
    Port(PortChange),
    /// A device's settings changed.
    Netconf(Netconf),
    /// `NLMSG_DONE` or `NLMSG_ERROR`: a request has ended.
    Outcome(Outcome),
    /// A type, family or form that does not concern routing.
    Other,
}

/// Decodes one message. Its time being unknown, [`raddle_rib::event::Route::expires`] counts from it on.
///
/// # Errors
/// [`DecodeError`] when the message is of a known type and cut short, contradictory, or without
/// the attributes that identify its object.
#[inline]
pub fn decode_message(message: &Message<'_>) -> Result<Decoded, DecodeError> {
    let event = match message.kind {
        rtm::RTM_NEWROUTE | rtm::RTM_DELROUTE => route::decode(message)?,
        rtm::RTM_NEWNEIGH | rtm::RTM_DELNEIGH => neighbour::decode(message)?,
        rtm::RTM_NEWLINK | rtm::RTM_DELLINK => match bridge::decode_port(message)? {
            Some(port) => return Ok(Decoded::Port(port)),
            None => link::decode(message)?,
        },
        rtm::RTM_NEWADDR | rtm::RTM_DELADDR => address::decode(message)?,
        rtm::RTM_NEWRULE | rtm::RTM_DELRULE => rule::decode(message)?,
        rtm::RTM_NEWNEXTHOP | rtm::RTM_DELNEXTHOP => nexthop::decode(message)?,
        rtm::RTM_NEWNEXTHOPBUCKET => nexthop::decode_bucket(message)?,
        rtm::RTM_NEWVLAN | rtm::RTM_DELVLAN => {
            return Ok(port_vlan::decode(message)?.map_or(Decoded::Other, Decoded::Vlans));
        }
        rtm::RTM_NEWNETCONF => {
            return Ok(netconf::decode(message)?.map_or(Decoded::Other, Decoded::Netconf));
        }
        control::DONE | control::ERROR => return control::decode(message).map(Decoded::Outcome),
        _ => None,
    };
    Ok(event.map_or(Decoded::Other, Decoded::Event))
}

/// What [`decode`] met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events handed on; of VLANs at ports, a message may tell several.
    pub events: u64,
    /// Messages that do not concern routing.
    pub skipped: u64,
    /// Messages that make no sense.
    pub malformed: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.events += other.events;
        self.skipped += other.skipped;
        self.malformed += other.malformed;
    }
}

/// Hands every event in `buffer` to `sink`, counts the rest.
///
/// This is the entry point for fuzzing and for recorded streams: any bytes will do.
pub fn decode(buffer: &[u8], sink: &mut dyn FnMut(Event)) -> Counts {
    let mut counts = Counts::default();
    for message in Messages::new(buffer) {
        match message.and_then(|m| decode_message(&m)) {
            Ok(Decoded::Event(event)) => {
                counts.events += 1;
                sink(event);
            }
            Ok(Decoded::Vlans(vlans)) => vlans.events().for_each(|event| {
                counts.events += 1;
                sink(event);
            }),
            Ok(_) => counts.skipped += 1,
            Err(_) => counts.malformed += 1,
        }
    }
    counts
}

/// Appends the message that tells `event`: as a request to bring it about, or as the notification
/// of it. `flags` are added to those that the event implies (`NLM_F_CREATE`, ...).
///
/// # Errors
/// [`EncodeError`] when an attribute would be too long, or the event has no message.
pub fn encode(b: &mut Builder, event: &Event, flags: u16) -> Result<(), EncodeError> {
    match event {
        Event::Link(link) => link::encode(b, link, flags),
        Event::LinkGone(index) => link::encode_gone(b, *index, flags),
        Event::Address(address) => address::encode(b, address, false, flags),
        Event::AddressGone(address) => address::encode(b, address, true, flags),
        Event::Neighbour(neighbour) => neighbour::encode(b, neighbour, flags),
        Event::NeighbourGone(index, dst) => neighbour::encode_gone(b, *index, *dst, flags),
        Event::Fdb(entry) => fdb::encode(b, entry, flags),
        Event::FdbGone(bridge, mac, vlan) => fdb::encode_gone(b, *bridge, *mac, *vlan, flags),
        Event::TunnelFdb(entry) => fdb::encode_tunnel(b, entry, flags),
        Event::TunnelFdbGone(index, mac, dst) => {
            fdb::encode_tunnel_gone(b, *index, *mac, *dst, flags)
        }
        Event::PortVlan(vlan) => port_vlan::encode(b, vlan, flags),
        Event::PortVlanGone(index, id) => port_vlan::encode_gone(b, *index, *id, flags),
        Event::Nexthop(nexthop) => nexthop::encode(b, nexthop, flags),
        Event::NexthopGone(id) => nexthop::encode_gone(b, *id, flags),
        Event::Bucket(bucket) => nexthop::encode_bucket(b, bucket, flags),
        Event::Route(route, op) | Event::Meanwhile(route, Some(op)) => {
            route_encode::encode(b, route, false, flags | route_encode::operation_flags(*op))
        }
        Event::RouteGone(route) | Event::Meanwhile(route, None) => {
            route_encode::encode(b, route, true, flags)
        }
        Event::Rule(rule) => rule::encode(b, rule, false, flags),
        Event::RuleGone(rule) => rule::encode(b, rule, true, flags),
        Event::Device(..) => Err(EncodeError::NoMessage("device settings")),
        Event::Settings(_) => Err(EncodeError::NoMessage("settings")),
        Event::HmacKeys(_) => Err(EncodeError::NoMessage("HMAC keys")),
        Event::KernelHosts(_) => Err(EncodeError::NoMessage("hosts of the kernel's")),
        Event::LearntMtu(_) | Event::LearntMtuGone(..) => {
            Err(EncodeError::NoMessage("path MTUs that were learnt"))
        }
        Event::BondOrder(..) => Err(EncodeError::NoMessage("the order of a bond's members")),
        Event::SweepBegin(_) | Event::SweepEnd(_) => Err(EncodeError::NoMessage("sweep")),
        Event::Clock(_) => Err(EncodeError::NoMessage("clock")),
        Event::Fpm(_) => Err(EncodeError::NoMessage("FPM")),
    }
}

/// `AF_*` of an address.
pub(crate) fn family_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => number::INET,
        IpAddr::V6(_) => number::INET6,
    }
}

/// The longest prefix of the address's family.
fn prefix_limit(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}
