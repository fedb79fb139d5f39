//! Strategies for events that have a message.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use raddle_rib::event::*;

fn ip4() -> impl Strategy<Value = IpAddr> {
    any::<u32>().prop_map(|a| Ipv4Addr::from(a).into())
}

fn ip6() -> impl Strategy<Value = IpAddr> {
    any::<u128>().prop_map(|a| Ipv6Addr::from(a).into())
}

fn ip_of(six: bool) -> BoxedStrategy<IpAddr> {
    if six { ip6().boxed() } else { ip4().boxed() }
}

fn any_ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![ip4(), ip6()]
}

fn net_of(six: bool) -> BoxedStrategy<IpNet> {
    let net4 = |(a, n)| {
        Ipv4Net::new_assert(Ipv4Addr::from_bits(a), n)
            .trunc()
            .into()
    };
    let net6 = |(a, n)| {
        Ipv6Net::new_assert(Ipv6Addr::from_bits(a), n)
            .trunc()
            .into()
    };
    if six {
        (any::<u128>(), 0..=128u8).prop_map(net6).boxed()
    } else {
        (any::<u32>(), 0..=32u8).prop_map(net4).boxed()
    }
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_.@ü-]{1,15}"
}

fn index() -> impl Strategy<Value = u32> {
    1..u32::MAX
}

fn encap() -> impl Strategy<Value = Option<Encap>> {
    of((any::<u16>(), vec(any::<u8>(), 0..40)).prop_map(|(kind, data)| Encap { kind, data }))
}

fn kind() -> impl Strategy<Value = String> {
    let some = [
        "vrf", "bond", "veth", "vlan", "bridge", "macvlan", "ipip", "sit", "gre", "vxlan",
    ];
    let some = some.map(str::to_owned).to_vec();
    prop_oneof![proptest::sample::select(some), name()]
}

fn bridge_port() -> impl Strategy<Value = BridgePort> {
    any::<(u8, bool, bool, bool)>().prop_map(|(state, learns, is_locked, is_special)| BridgePort {
        state,
        learns,
        is_locked,
        is_special,
    })
}

/// What a tunnel of this kind may be set to; none of other kinds.
fn tunnel_of(kind: Option<&str>) -> BoxedStrategy<Option<Tunnel>> {
    let kind = match kind {
        Some("ipip") => Just(TunnelKind::Ipip).boxed(),
        Some("sit") => Just(TunnelKind::Sit).boxed(),
        Some("gre") => of(any::<u32>())
            .prop_flat_map(|ikey| of(any::<u32>()).prop_map(move |okey| (ikey, okey)))
            .prop_map(|(ikey, okey)| TunnelKind::Gre { ikey, okey })
            .boxed(),
        Some("vxlan") => {
            let sports = any::<(u16, u16)>();
            let sports = sports.prop_map(|(a, b)| if a < b { (a, b) } else { (0, 0) });
            let numbers = (0..1_u32 << 24, any::<u16>(), sports);
            let flags = any::<(bool, bool, bool)>();
            (numbers, flags)
                .prop_map(|((vni, port, sports), (learns, checksum, ttl_inner))| {
                    TunnelKind::Vxlan {
                        vni,
                        port,
                        sports,
                        learns,
                        checksum,
                        ttl_inner,
                    }
                })
                .boxed()
        }
        _ => return Just(None).boxed(),
    };
    let address = || of((1..u32::MAX).prop_map(Ipv4Addr::from));
    let dfs = proptest::sample::select(vec![TunnelDf::Unset, TunnelDf::Set, TunnelDf::Inner]);
    let numbers = (any::<u8>(), any::<u8>(), any::<u32>(), any::<bool>());
    (kind, address(), address(), dfs, numbers)
        .prop_map(|(kind, local, remote, df, (ttl, tos, link, is_special))| {
            // What there is no way to say, or makes it special.
            let df = match (kind, df) {
                (TunnelKind::Ipip | TunnelKind::Sit, TunnelDf::Unset) => TunnelDf::Inner,
                _ => df,
            };
            let is_inherit = matches!(kind, TunnelKind::Vxlan { .. }) && df == TunnelDf::Inner;
            let is_group = remote.is_some_and(|remote| remote.is_multicast());
            let is_odd = tos & 1 != 0 && tos != 1;
            Some(Tunnel {
                kind,
                local,
                remote,
                ttl,
                tos,
                df,
                link,
                is_special: is_special || is_inherit || is_group || is_odd,
            })
        })
        .boxed()
}

pub(super) fn link() -> impl Strategy<Value = Link> {
    any_link().prop_flat_map(|link| {
        tunnel_of(link.kind.as_deref()).prop_map(move |mut tunnel| {
            if let Some(tunnel) = &mut tunnel {
                tunnel.is_special |= link.lower_netns.is_some();
            }
            Link {
                tunnel,
                ..link.clone()
            }
        })
    })
}

fn any_link() -> impl Strategy<Value = Link> {
    let numbers = (
        index(),
        any::<u32>(),
        any::<u32>(),
        any::<u16>(),
        any::<u8>(),
        any::<u32>(),
    );
    let refer = (of(index()), of(index()), of(any::<i32>()), bridge_port());
    let xdp =
        of((1..=255u8, any::<u32>()).prop_map(|(mode, program)| XdpAttached { mode, program }));
    (
        numbers,
        name(),
        of(any::<[u8; 6]>()),
        of(kind()),
        refer,
        name(),
        xdp,
    )
        .prop_map(
            |(numbers, name, mac, kind, (master, lower, lower_netns, port), qdisc, xdp)| {
                let (index, mtu, flags, arp_type, operstate, tx_queues) = numbers;
                Link {
                    index,
                    name,
                    mac,
                    mtu,
                    flags,
                    arp_type,
                    operstate,
                    altnames: qdisc
                        .split('t')
                        .filter(|part| !part.is_empty())
                        .map(str::to_owned)
                        .collect(),
                    vrf_table: kind.as_ref().filter(|kind| *kind == "vrf").map(|_| mtu),
                    bond: kind.as_ref().filter(|kind| *kind == "bond").map(|_| Bond {
                        mode: operstate,
                        policy: mtu as u8,
                        by_traffic: mtu % 2 == 0,
                        aggregator: tx_queues as u16,
                    }),
                    vlan: kind.as_ref().filter(|kind| *kind == "vlan").map(|_| Vlan {
                        protocol: mtu as u16,
                        id: arp_type,
                        egress_qos: operstate % 2 == 0,
                    }),
                    bridge: kind
                        .as_ref()
                        .filter(|kind| *kind == "bridge")
                        .map(|_| Bridge {
                            filters_vlans: operstate % 2 == 0,
                            protocol: mtu as u16,
                            is_special: operstate % 4 < 2,
                        }),
                    macvlan: kind
                        .as_ref()
                        .filter(|kind| *kind == "macvlan")
                        .map(|_| Macvlan { mode: mtu }),
                    tunnel: None,
                    port: master.filter(|n| n % 4 == 1).map(|_| port),
                    bond_active: master.filter(|n| n % 2 == 0).map(|n| n % 4 == 0),
                    bond_queue: master.filter(|n| n % 2 == 0).map_or(0, |n| n as u16),
                    bond_down: master.is_some_and(|n| n % 2 == 0 && n % 8 < 4),
                    bond_aggregator: master.filter(|n| n % 2 == 0).map_or(0, |n| (n >> 1) as u16),
                    kind,
                    master,
                    lower,
                    lower_netns,
                    qdisc,
                    tx_queues,
                    xdp,
                }
            },
        )
}

pub(super) fn address() -> impl Strategy<Value = Address> {
    any::<bool>()
        .prop_flat_map(|six| {
            let ips = (ip_of(six), of(ip_of(six)), of(ip4()));
            (
                ips,
                index(),
                0..=if six { 128u8 } else { 32 },
                any::<u8>(),
                any::<u32>(),
                of(name()),
            )
        })
        .prop_map(
            |((local, peer, broadcast), index, prefix_len, scope, flags, label)| Address {
                index,
                local,
                peer: peer.filter(|&p| p != local),
                prefix_len,
                scope,
                flags,
                broadcast,
                label,
            },
        )
}

pub(super) fn neighbour() -> impl Strategy<Value = Neighbour> {
    (
        index(),
        any_ip(),
        of(any::<[u8; 6]>()),
        any::<u16>(),
        any::<u8>(),
        any::<u8>(),
    )
        .prop_map(|(index, dst, mac, state, flags, protocol)| Neighbour {
            index,
            dst,
            mac,
            state,
            flags: flags & !0x08, // proxy entries are not neighbours
            protocol,
        })
}

fn fdb_entry() -> impl Strategy<Value = FdbEntry> {
    let flags = any::<(bool, bool)>();
    (index(), any::<[u8; 6]>(), 0..=4094u16, index(), flags).prop_map(
        |(bridge, mac, vlan, port, (local, is_special))| FdbEntry {
            bridge,
            mac,
            vlan,
            port,
            local,
            is_special,
        },
    )
}

fn tunnel_fdb() -> impl Strategy<Value = TunnelFdb> {
    (index(), any::<[u8; 6]>(), any_ip(), any::<bool>()).prop_map(
        |(index, mac, dst, is_special)| TunnelFdb {
            index,
            mac,
            dst,
            is_special,
        },
    )
}

fn port_vlan() -> impl Strategy<Value = PortVlan> {
    (index(), 1..=4094u16, any::<(bool, bool, u8)>()).prop_map(
        |(index, id, (pvid, untagged, state))| PortVlan {
            index,
            id,
            pvid,
            untagged,
            state,
        },
    )
}

fn hop(weights: std::ops::RangeInclusive<u16>) -> impl Strategy<Value = RouteNexthop> {
    (of(any_ip()), any::<u32>(), weights, any::<u8>(), encap()).prop_map(
        |(gateway, index, weight, flags, encap)| RouteNexthop {
            gateway,
            index,
            weight,
            flags,
            encap,
        },
    )
}

fn target() -> impl Strategy<Value = RouteTarget> {
    prop_oneof![
        Just(RouteTarget::None),
        any::<u32>().prop_map(RouteTarget::Object),
        (hop(1..=1), index())
            .prop_map(|(hop, index)| { RouteTarget::Single(RouteNexthop { index, ..hop }) }),
        vec(hop(1..=256), 0..6).prop_map(RouteTarget::Multipath),
    ]
}

pub(super) fn route() -> impl Strategy<Value = Route> {
    any::<bool>()
        .prop_flat_map(|six| {
            let nets = (net_of(six), of(net_of(six)), of(ip_of(six)));
            let numbers = (
                any::<u32>(),
                any::<[u8; 3]>(),
                0..12u8,
                any::<u32>(),
                any::<u32>(),
            );
            let metrics = vec(any::<(u8, u32)>(), 0..4);
            (nets, numbers, of(any::<u8>()), metrics, target())
        })
        .prop_map(|((dst, src, prefsrc), numbers, pref, metrics, target)| {
            let (table, [tos, protocol, scope], kind, metric, flags) = numbers;
            // A route of one nexthop has its flags in the route's; and clones are not routes.
            let flags = match &target {
                RouteTarget::Single(hop) => (flags & !0x2ff) | u32::from(hop.flags),
                _ => flags & !0x200,
            };
            Route {
                table,
                dst,
                src: src.filter(|s| s.prefix_len() > 0),
                tos,
                protocol,
                scope,
                kind: RouteKind::from_number(kind).unwrap(),
                metric,
                prefsrc,
                flags,
                pref,
                metrics,
                expires: None,
                mp_algo: None,
                target,
            }
        })
}

fn members() -> impl Strategy<Value = Vec<GroupMember>> {
    vec(
        (index(), 1..=u16::MAX).prop_map(|(id, weight)| GroupMember { id, weight }),
        1..9,
    )
}

pub(super) fn nexthop() -> impl Strategy<Value = Nexthop> {
    let kind = prop_oneof![
        Just(NexthopKind::Blackhole),
        (of(any_ip()), any::<u32>(), encap()).prop_map(|(gateway, index, encap)| {
            NexthopKind::Single {
                gateway,
                index,
                encap,
            }
        }),
        members().prop_map(NexthopKind::Group),
        (members(), any::<u16>(), any::<(u32, u32)>()).prop_map(|(members, buckets, timers)| {
            NexthopKind::Resilient {
                members,
                buckets,
                idle_timer: timers.0,
                unbalanced_timer: timers.1,
                unbalanced_time: 0, // the kernel tells it, nobody asks for it
            }
        }),
    ];
    (index(), any::<[u8; 3]>(), any::<u32>(), kind, any::<bool>()).prop_map(
        |(id, [family, scope, protocol], flags, kind, fdb)| Nexthop {
            id,
            family,
            scope,
            protocol,
            flags,
            kind,
            fdb,
        },
    )
}

pub(super) fn rule() -> impl Strategy<Value = Rule> {
    any::<bool>()
        .prop_flat_map(|six| {
            let nets = (of(net_of(six)), of(net_of(six)));
            let numbers = (any::<u32>(), any::<u32>(), any::<u8>(), any::<u8>());
            (
                Just(six),
                nets,
                numbers,
                of(name()),
                of(name()),
                of(any::<(u32, u32)>()),
                (of(0..u32::MAX), of(any::<u32>()), of(any::<(u32, u32)>())),
                (
                    any::<u8>(),
                    of(0..64u8),
                    of(any::<u8>()),
                    of(any::<(u16, u16)>()),
                    of(any::<(u16, u16)>()),
                ),
            )
        })
        .prop_map(
            |(six, (from, to), numbers, iif, oif, fwmark, values, shown)| {
                let (suppress_prefixlength, goto, uidrange) = values;
                let (tos, dscp, ip_proto, sport, dport) = shown;
                let (priority, table, action, protocol) = numbers;
                Rule {
                    family: if six { 6 } else { 4 },
                    priority,
                    table,
                    action,
                    from,
                    to,
                    iif,
                    oif,
                    fwmark,
                    suppress_prefixlength,
                    goto,
                    uidrange,
                    tos,
                    dscp,
                    ip_proto,
                    sport,
                    dport,
                    other: Vec::new(),
                    protocol,
                }
            },
        )
}

fn bucket() -> impl Strategy<Value = Bucket> {
    let times = (any::<u64>(), any::<u32>());
    (index(), any::<u16>(), index(), times).prop_map(
        |(group, index, nexthop, (idle_time, flags))| Bucket {
            group,
            index,
            nexthop,
            idle_time,
            flags,
        },
    )
}

/// Any event that has a message.
pub(super) fn event() -> impl Strategy<Value = Event> {
    let op = prop_oneof![
        Just(RouteOp::Add),
        Just(RouteOp::Replace),
        Just(RouteOp::Append),
        Just(RouteOp::Prepend),
    ];
    prop_oneof![
        link().prop_map(Event::Link),
        any::<u32>().prop_map(Event::LinkGone),
        address().prop_map(Event::Address),
        address().prop_map(Event::AddressGone),
        neighbour().prop_map(Event::Neighbour),
        (any::<u32>(), any_ip()).prop_map(|(index, dst)| Event::NeighbourGone(index, dst)),
        fdb_entry().prop_map(Event::Fdb),
        fdb_entry().prop_map(|e| Event::FdbGone(e.bridge, e.mac, e.vlan)),
        tunnel_fdb().prop_map(Event::TunnelFdb),
        tunnel_fdb().prop_map(|e| Event::TunnelFdbGone(e.index, e.mac, e.dst)),
        port_vlan().prop_map(Event::PortVlan),
        port_vlan().prop_map(|v| Event::PortVlanGone(v.index, v.id)),
        nexthop().prop_map(Event::Nexthop),
        index().prop_map(Event::NexthopGone),
        bucket().prop_map(Event::Bucket),
        (route(), op).prop_map(|(route, op)| Event::Route(route, op)),
        route().prop_map(Event::RouteGone),
        rule().prop_map(Event::Rule),
        rule().prop_map(Event::RuleGone),
    ]
}
