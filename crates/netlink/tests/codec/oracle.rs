//! netlink-packet-route decodes what we encode, and says the same. (It knows no nexthop objects.)

use std::net::IpAddr;

use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVlan, LinkAttribute, LinkInfo, LinkMessage, LinkXdp, VlanFlags,
    VlanProtocol, VlanQosMapping,
};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMetric, RouteVia};
use netlink_packet_route::rule::RuleAttribute;
use proptest::prelude::*;
use raddle_netlink::codec::{Builder, Decoded, Messages, decode_message, encode};
use raddle_rib::event::*;

fn theirs(event: &Event) -> RouteNetlinkMessage {
    let mut builder = Builder::new();
    encode(&mut builder, event, 1).unwrap();
    match NetlinkMessage::deserialize(builder.as_bytes())
        .unwrap()
        .payload
    {
        NetlinkPayload::InnerMessage(message) => message,
        other => panic!("{other:?}"),
    }
}

/// The first of `attributes` that is wanted.
macro_rules! find {
    ($attributes:expr, $pattern:pat => $value:expr) => {
        $attributes
            .iter()
            .find_map(|a| if let $pattern = a { Some($value) } else { None })
    };
}

fn ip(address: &RouteAddress) -> IpAddr {
    match address {
        RouteAddress::Inet(a) => (*a).into(),
        RouteAddress::Inet6(a) => (*a).into(),
        other => panic!("{other:?}"),
    }
}

fn gateway(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    let via = find!(attributes, RouteAttribute::Via(v) => match v {
        RouteVia::Inet(a) => IpAddr::V4(*a),
        RouteVia::Inet6(a) => IpAddr::V6(*a),
        other => panic!("{other:?}"),
    });
    via.or(find!(attributes, RouteAttribute::Gateway(a) => ip(a)))
}

proptest! {
    #[test]
    fn links(link in crate::events::link()) {
        let RouteNetlinkMessage::NewLink(m) = theirs(&Event::Link(link.clone())) else { panic!() };
        let a = &m.attributes;
        prop_assert_eq!(m.header.index, link.index);
        prop_assert_eq!(m.header.flags.bits(), link.flags);
        // It does not know all of them.
        let arp_type = u16::from(m.header.link_layer_type);
        prop_assert!(arp_type == link.arp_type || arp_type == u16::MAX);
        prop_assert_eq!(find!(a, LinkAttribute::IfName(n) => n), Some(&link.name));
        prop_assert_eq!(find!(a, LinkAttribute::Mtu(n) => *n), Some(link.mtu));
        prop_assert_eq!(find!(a, LinkAttribute::Qdisc(n) => n), Some(&link.qdisc));
        prop_assert_eq!(find!(a, LinkAttribute::Link(n) => *n), link.lower);
        prop_assert_eq!(find!(a, LinkAttribute::LinkNetNsId(n) => *n), link.lower_netns);
        prop_assert_eq!(find!(a, LinkAttribute::Controller(n) => *n), link.master);
        prop_assert_eq!(find!(a, LinkAttribute::NumTxQueues(n) => *n), Some(link.tx_queues));
        let mac = find!(a, LinkAttribute::Address(n) => n.as_slice());
        prop_assert_eq!(mac, link.mac.as_ref().map(|m| m.as_slice()));
        let info = find!(a, LinkAttribute::LinkInfo(n) => n);
        let kind = info.and_then(|i| find!(i, LinkInfo::Kind(k) => k.to_string()));
        prop_assert_eq!(kind, link.kind);
        let vlan = info.and_then(|i| find!(i, LinkInfo::Data(InfoData::Vlan(set)) => set));
        let told = vlan.map(|set| Vlan {
            protocol: find!(set, InfoVlan::Protocol(of) => u16::from(*of)).unwrap(),
            id: find!(set, InfoVlan::Id(id) => *id).unwrap(),
            egress_qos: find!(set, InfoVlan::EgressQos(_) => ()).is_some(),
        });
        // It takes protocols that it does not know for 802.1Q.
        let known = link.vlan.map(|vlan| u16::from(VlanProtocol::from(vlan.protocol)));
        let expected = link.vlan.zip(known).map(|(vlan, protocol)| Vlan { protocol, ..vlan });
        prop_assert_eq!(told, expected);
        let program = find!(a, LinkAttribute::Xdp(n) => n)
            .and_then(|x| find!(x, LinkXdp::ProgId(id) => *id));
        prop_assert_eq!(program, link.xdp.map(|x| x.program));
    }

    #[test]
    fn addresses(address in crate::events::address()) {
        let message = theirs(&Event::AddressGone(address.clone()));
        let RouteNetlinkMessage::DelAddress(m) = message else { panic!() };
        let a = &m.attributes;
        prop_assert_eq!((m.header.index, m.header.prefix_len), (address.index, address.prefix_len));
        let local = find!(a, AddressAttribute::Local(a) => *a);
        let prefix = find!(a, AddressAttribute::Address(a) => *a).unwrap();
        prop_assert_eq!(local.unwrap_or(prefix), address.local);
        prop_assert_eq!(prefix, address.peer.unwrap_or(address.local));
        prop_assert_eq!(find!(a, AddressAttribute::Flags(f) => f.bits()), Some(address.flags));
        prop_assert_eq!(find!(a, AddressAttribute::Label(l) => l.clone()), address.label);
        let broadcast = find!(a, AddressAttribute::Broadcast(b) => IpAddr::V4(*b));
        prop_assert_eq!(broadcast, address.broadcast);
    }

    #[test]
    fn neighbours(neighbour in crate::events::neighbour()) {
        let message = theirs(&Event::Neighbour(neighbour.clone()));
        let RouteNetlinkMessage::NewNeighbour(m) = message else { panic!() };
        let a = &m.attributes;
        prop_assert_eq!(m.header.ifindex, neighbour.index);
        prop_assert_eq!(u16::from(m.header.state), neighbour.state);
        prop_assert_eq!(m.header.flags.bits(), neighbour.flags);
        let dst = find!(a, NeighbourAttribute::Destination(d) => match d {
            NeighbourAddress::Inet(a) => IpAddr::V4(*a),
            NeighbourAddress::Inet6(a) => IpAddr::V6(*a),
            other => panic!("{other:?}"),
        });
        prop_assert_eq!(dst, Some(neighbour.dst));
        let mac = find!(a, NeighbourAttribute::LinkLayerAddress(m) => m.as_slice());
        prop_assert_eq!(mac, neighbour.mac.as_ref().map(|m| m.as_slice()));
    }

    #[test]
    fn routes(mut route in crate::events::route()) {
        // It parses encapsulations, whose bytes are random here.
        match &mut route.target {
            RouteTarget::Single(hop) => hop.encap = None,
            RouteTarget::Multipath(hops) => hops.iter_mut().for_each(|h| h.encap = None),
            _ => {}
        }
        route.metrics.retain(|&(n, _)| n == 2);
        let message = theirs(&Event::Route(route.clone(), RouteOp::Replace));
        let RouteNetlinkMessage::NewRoute(m) = message else { panic!() };
        let (h, a) = (&m.header, &m.attributes);
        prop_assert_eq!(h.destination_prefix_length, route.dst.prefix_len());
        prop_assert_eq!(h.tos, route.tos);
        prop_assert_eq!(u8::from(h.protocol), route.protocol);
        prop_assert_eq!(u8::from(h.scope), route.scope);
        prop_assert_eq!(u8::from(h.kind), route.kind as u8);
        prop_assert_eq!(h.flags.bits(), route.flags);
        let dst = find!(a, RouteAttribute::Destination(d) => ip(d));
        prop_assert_eq!(dst, (route.dst.prefix_len() > 0).then(|| route.dst.addr()));
        let src = find!(a, RouteAttribute::Source(d) => ip(d));
        prop_assert_eq!(src, route.src.map(|s| s.addr()));
        prop_assert_eq!(h.source_prefix_length, route.src.map_or(0, |s| s.prefix_len()));
        prop_assert_eq!(find!(a, RouteAttribute::Table(t) => *t), Some(route.table));
        prop_assert_eq!(find!(a, RouteAttribute::Priority(p) => *p).unwrap_or(0), route.metric);
        prop_assert_eq!(find!(a, RouteAttribute::PrefSource(p) => ip(p)), route.prefsrc);
        let pref = find!(a, RouteAttribute::Preference(p) => u8::from(*p));
        prop_assert_eq!(pref, route.pref);
        let mtu = find!(a, RouteAttribute::Metrics(m) => m)
            .and_then(|m| find!(m, RouteMetric::Mtu(n) => *n));
        prop_assert_eq!(mtu, route.metrics.first().map(|m| m.1));
        let hops = find!(a, RouteAttribute::MultiPath(hops) => hops);
        match &route.target {
            RouteTarget::None => prop_assert!(hops.is_none() && gateway(a).is_none()),
            RouteTarget::Object(id) => {
                prop_assert_eq!(find!(a, RouteAttribute::NhId(n) => *n), Some(*id));
            }
            RouteTarget::Single(hop) => {
                prop_assert_eq!(find!(a, RouteAttribute::Oif(n) => *n), Some(hop.index));
                prop_assert_eq!(gateway(a), hop.gateway);
            }
            RouteTarget::Multipath(ours) => {
                let theirs = hops.unwrap();
                prop_assert_eq!(theirs.len(), ours.len());
                for (their, our) in theirs.iter().zip(ours) {
                    prop_assert_eq!(their.interface_index, our.index);
                    prop_assert_eq!(u16::from(their.hops) + 1, our.weight);
                    prop_assert_eq!(their.flags.bits(), our.flags);
                    prop_assert_eq!(gateway(&their.attributes), our.gateway);
                }
            }
        }
    }

    #[test]
    fn rules(rule in crate::events::rule()) {
        let RouteNetlinkMessage::NewRule(m) = theirs(&Event::Rule(rule.clone())) else { panic!() };
        let (h, a) = (&m.header, &m.attributes);
        prop_assert_eq!(u8::from(h.family), if rule.family == 4 { 2 } else { 10 });
        prop_assert_eq!(u8::from(h.action), rule.action);
        let to = find!(a, RuleAttribute::Destination(d) => *d);
        prop_assert_eq!(to, rule.to.map(|n| n.addr()));
        prop_assert_eq!(h.dst_len, rule.to.map_or(0, |n| n.prefix_len()));
        let from = find!(a, RuleAttribute::Source(d) => *d);
        prop_assert_eq!(from, rule.from.map(|n| n.addr()));
        prop_assert_eq!(h.src_len, rule.from.map_or(0, |n| n.prefix_len()));
        prop_assert_eq!(find!(a, RuleAttribute::Iifname(n) => n.clone()), rule.iif);
        prop_assert_eq!(find!(a, RuleAttribute::Oifname(n) => n.clone()), rule.oif);
        prop_assert_eq!(find!(a, RuleAttribute::Priority(n) => *n), Some(rule.priority));
        prop_assert_eq!(find!(a, RuleAttribute::Table(n) => *n), Some(rule.table));
        prop_assert_eq!(find!(a, RuleAttribute::FwMark(n) => *n), rule.fwmark.map(|m| m.0));
        prop_assert_eq!(find!(a, RuleAttribute::FwMask(n) => *n), rule.fwmark.map(|m| m.1));
    }
}

/// What a VLAN is told with is read, in the order in which the kernel tells it (`vlan_fill_info`).
#[test]
fn vlans_are_read() {
    let mappings = |all: &[(u32, u32)]| {
        let mapping = |(from, to): &(u32, u32)| VlanQosMapping::Mapping(*from, *to);
        all.iter().map(mapping).collect::<Vec<_>>()
    };
    let read = |kind: InfoKind, set: Vec<InfoVlan>| {
        let mut message = LinkMessage::default();
        message.header.index = 7;
        message.attributes = vec![
            LinkAttribute::IfName("eth0.5".to_owned()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(kind),
                LinkInfo::Data(InfoData::Vlan(set)),
            ]),
            LinkAttribute::Link(2),
        ];
        let payload = NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(message));
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        let message = Messages::new(&bytes).next().unwrap().unwrap();
        match decode_message(&message).unwrap() {
            Decoded::Event(Event::Link(link)) => (link.lower, link.vlan),
            other => panic!("{other:?}"),
        }
    };
    let flags = InfoVlan::Flags((VlanFlags::ReorderHdr, VlanFlags::all()));
    let vlan = |protocol, id, egress_qos| {
        let vlan = Vlan {
            protocol,
            id,
            egress_qos,
        };
        (Some(2), Some(vlan))
    };
    let told = |protocol, egress: &[(u32, u32)]| {
        vec![
            InfoVlan::Protocol(protocol),
            InfoVlan::Id(5),
            flags.clone(),
            InfoVlan::IngressQos(mappings(&[(1, 2)])),
            InfoVlan::EgressQos(mappings(egress)),
        ]
    };
    let service = VlanProtocol::Ieee8021Ad;
    let plain = VlanProtocol::Ieee8021Q;
    for (set, expected) in [
        (told(plain, &[]), vlan(0x8100, 5, false)),
        (told(service, &[(3, 0)]), vlan(0x88a8, 5, false)),
        (told(service, &[(3, 0), (4, 1)]), vlan(0x88a8, 5, true)),
        // Old kernels do not tell the protocol.
        (vec![InfoVlan::Id(9), flags.clone()], vlan(0x8100, 9, false)),
    ] {
        assert_eq!(read(InfoKind::Vlan, set), expected);
    }
    let other = read(InfoKind::MacVtap, told(plain, &[]));
    assert_eq!(other, (Some(2), None));
}
