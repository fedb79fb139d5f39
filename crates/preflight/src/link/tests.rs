use super::*;
use raddle_rib::event::{self, Bridge, BridgePort, Macvlan, XdpAttached};

fn ethernet(index: u32, name: &str) -> Link {
    Link {
        index,
        name: name.into(),
        mac: Some([2, 0, 0, 0, 0, 1]),
        arp_type: 1,
        ..Link::default()
    }
}

fn judged(links: Vec<Link>, upper: &[(u32, &str)]) -> Vec<(String, Role, String)> {
    judged_in(false, links, upper)
}

fn judged_in(
    generic: bool,
    links: Vec<Link>,
    upper: &[(u32, &str)],
) -> Vec<(String, Role, String)> {
    let mut stacked: BTreeMap<u32, Stacked> = BTreeMap::new();
    for (lower, name) in upper {
        let below = stacked.entry(*lower).or_default();
        let list = match name.contains('.') {
            true => &mut below.vlans,
            false => &mut below.others,
        };
        list.push((*name).to_owned());
    }
    let scene = Scene {
        links,
        attached: [40].into(),
        ..Scene::default()
    };
    judge(&scene, generic, &stacked)
        .into_iter()
        .map(|f| (f.link.unwrap(), f.role, f.what))
        .collect()
}

#[test]
fn each_rule_rejects_what_it_says() {
    let xdp = Some(XdpAttached {
        mode: 1,
        program: 7,
    });
    let kind = |kind: &str| Some(kind.to_owned());
    for (link, expected) in [
        (ethernet(2, "eth0"), None),
        (
            Link {
                kind: kind("veth"),
                ..ethernet(2, "v")
            },
            None,
        ),
        (
            Link {
                flags: LOOPBACK,
                ..ethernet(1, "lo")
            },
            Some((Role::Both, "loopback")),
        ),
        (
            Link {
                arp_type: 65534,
                ..ethernet(2, "wg0")
            },
            Some((Role::Both, "not Ethernet")),
        ),
        (
            Link {
                mac: None,
                ..ethernet(2, "ib0")
            },
            Some((Role::Both, "not Ethernet")),
        ),
        (ethernet(16_383, "high"), None),
        (
            ethernet(16_384, "high"),
            Some((Role::Both, "interface index 16384")),
        ),
        (
            Link {
                master: Some(9),
                ..ethernet(2, "port")
            },
            Some((Role::Both, "port of bridge br0 of which nothing is known")),
        ),
        (
            Link {
                master: Some(9),
                port: Some(BridgePort::default()),
                ..ethernet(2, "port")
            },
            None,
        ),
        (
            Link {
                master: Some(8),
                ..ethernet(2, "port")
            },
            Some((Role::Both, "part of device 8")),
        ),
        (
            Link {
                kind: kind("vlan"),
                ..ethernet(2, "v.5")
            },
            Some((Role::Both, "VLAN of which nothing is known")),
        ),
        (
            Link {
                kind: kind("dummy"),
                ..ethernet(2, "d")
            },
            Some((Role::Both, "dummy device")),
        ),
        (
            ethernet(30, "base"),
            Some((Role::In, "m0 is stacked upon it")),
        ),
        (ethernet(31, "tagged"), None),
        (
            Link {
                xdp,
                ..ethernet(2, "busy")
            },
            Some((Role::In, "XDP program 7 is attached already (native)")),
        ),
        (
            Link {
                xdp,
                ..ethernet(40, "ours")
            },
            None,
        ),
        (
            Link {
                master: Some(7),
                ..ethernet(2, "slave")
            },
            None,
        ),
    ] {
        let name = link.name.clone();
        let bridge = Link {
            kind: kind("bridge"),
            ..ethernet(9, "br0")
        };
        let vrf = Link {
            kind: kind("vrf"),
            ..ethernet(7, "red")
        };
        let found = judged(
            vec![link, bridge, vrf],
            &[(30, "base.5"), (30, "m0"), (31, "tagged.5")],
        );
        let found: Vec<_> = found.iter().filter(|f| f.0 == name).collect();
        match (found.as_slice(), expected) {
            ([], None) => {}
            ([(_, role, what)], Some(expected)) => assert_eq!((*role, what.as_str()), expected),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn bonds_are_used_whose_driver_runs_the_program() {
    let bond = |mode, policy| Link {
        kind: Some("bond".to_owned()),
        bond: Some(Bond {
            mode,
            policy,
            by_traffic: false,
            ..Bond::default()
        }),
        ..ethernet(2, "b0")
    };
    let member = |index, name: &str| Link {
        master: Some(2),
        ..ethernet(index, name)
    };
    let of = |links: Vec<Link>, upper: &[(u32, &str)]| -> Vec<(Role, String)> {
        let found = judged(links, upper).into_iter();
        let of_bond = found.filter(|(name, ..)| name == "b0");
        of_bond.map(|(_, role, what)| (role, what)).collect()
    };
    for (mode, policy, refused) in [
        (0, 0, None),
        (1, 5, None),
        (2, 1, None),
        (4, 4, None),
        (4, 5, Some("bond with xmit_hash_policy vlan+srcmac")),
        (3, 0, Some("bond of mode broadcast")),
        (5, 0, Some("bond of mode balance-tlb")),
        (9, 0, Some("bond of mode 9")),
    ] {
        let found = of(vec![bond(mode, policy), member(3, "e0")], &[]);
        let found: Vec<_> = found.iter().map(|(role, what)| (*role, &**what)).collect();
        let expected: Vec<_> = refused.map(|what| (Role::Both, what)).into_iter().collect();
        assert_eq!(found, expected, "{mode}, {policy}");
    }
    let mut by_traffic = bond(2, 1);
    by_traffic.bond = Some(Bond {
        mode: 2,
        policy: 1,
        by_traffic: true,
        ..Bond::default()
    });
    assert_eq!(of(vec![by_traffic], &[])[0].0, Role::Both);
    let scene = Scene {
        links: vec![bond(4, 1), member(3, "e0")],
        ..Scene::default()
    };
    let ins: BTreeMap<u32, String> = [(2, "b0".to_owned())].into();
    assert!(bonds_not_sent_through(&scene, false, &ins).is_empty());
    assert_eq!(bonds_not_sent_through(&scene, true, &ins).len(), 1);
    let found = bonds_not_sent_through(&scene, false, &BTreeMap::new());
    assert_eq!((found.len(), found[0].role), (1, Role::Out));
    let vlan = Link {
        kind: Some("vlan".to_owned()),
        ..member(4, "e1.5")
    };
    let found = of(vec![bond(4, 1), member(3, "e0"), vlan], &[]);
    assert_eq!(found[0].0, Role::Both);
    assert!(found[0].1.contains("its member e1.5"), "{found:?}");
    let queued = Link {
        bond_queue: 3,
        ..member(4, "e1")
    };
    let found = of(vec![bond(4, 1), member(3, "e0"), queued], &[]);
    assert_eq!(
        found,
        [(Role::Out, "its member e1 has a queue_id, 3".to_owned())]
    );
    let busy = Link {
        xdp: Some(XdpAttached {
            mode: 1,
            program: 7,
        }),
        ..member(4, "e1")
    };
    let found = of(vec![bond(4, 1), member(3, "e0"), busy], &[(3, "m0")]);
    let expected = [
        (Role::In, "its member e1 has an XDP program".to_owned()),
        (Role::In, "m0 is stacked upon its member e0".to_owned()),
    ];
    assert_eq!(found, expected);
}

fn vlan(index: u32, name: &str, id: u16, lower: u32) -> Link {
    Link {
        kind: Some("vlan".to_owned()),
        vlan: Some(event::Vlan {
            protocol: 0x8100,
            id,
            egress_qos: false,
        }),
        lower: Some(lower),
        ..ethernet(index, name)
    }
}

/// What is found of the last of the links.
fn of_last(links: &[Link], upper: &[(u32, &str)]) -> Vec<(Role, String)> {
    let name = &links.last().unwrap().name;
    let found = judged(links.to_vec(), upper).into_iter();
    let of_it = found.filter(|(of, ..)| of == name);
    of_it.map(|(_, role, what)| (role, what)).collect()
}

#[test]
fn a_vlan_is_used_as_what_is_below_it() {
    let lower = ethernet(2, "e0");
    let (outer, inner) = (vlan(3, "e0.5", 5, 2), vlan(4, "e0.5.6", 6, 3));
    let stacked = [(2, "e0.5"), (3, "e0.5.6")];
    let all = [lower.clone(), outer.clone(), inner.clone()];
    assert_eq!(judged(all.to_vec(), &stacked), []);
    let third = vlan(5, "e0.5.6.7", 7, 4);
    let links = [lower.clone(), outer.clone(), inner.clone(), third];
    let found = of_last(&links, &[]);
    assert_eq!(found, [(Role::Both, "VLAN with more than 2 tags".into())]);
    let changed = |change: &dyn Fn(&mut Link)| {
        let mut link = outer.clone();
        change(&mut link);
        link
    };
    let of_tags = |protocol, egress_qos| event::Vlan {
        protocol,
        id: 5,
        egress_qos,
    };
    for (outer, expected) in [
        (
            changed(&|link| link.vlan = Some(of_tags(0x9100, false))),
            (Role::Both, "VLAN with tags of EtherType 0x9100"),
        ),
        (
            changed(&|link| link.lower_netns = Some(1)),
            (Role::Both, "VLAN of a link in another network namespace"),
        ),
        (
            changed(&|link| link.lower = Some(99)),
            (Role::Both, "VLAN of a link that is not known"),
        ),
        (
            changed(&|link| link.vlan = Some(of_tags(0x88a8, true))),
            (Role::Out, "its tags have priorities (egress-qos-map)"),
        ),
        (
            changed(&|link| link.master = Some(9)),
            (Role::Both, "part of device 9"),
        ),
    ] {
        let (role, what) = expected;
        let found = of_last(&[lower.clone(), outer.clone()], &[]);
        assert_eq!(found, [(role, what.to_owned())]);
        let found = of_last(&[lower.clone(), outer, inner.clone()], &[]);
        let (of_inner, said) = &found[0];
        let above = format!("its lower link e0.5: {what}");
        assert!(
            found.len() == 1 && *of_inner == role && (*said == above || *said == what),
            "{found:?}"
        );
    }
    // What is stacked upon it, or upon what is below.
    let found = of_last(&all[..2], &[(3, "m0")]);
    assert_eq!(found, [(Role::In, "m0 is stacked upon it".to_owned())]);
    let found = of_last(&all, &[(2, "m0")]);
    let expected = "its lower link e0: m0 is stacked upon it";
    assert_eq!(found, [(Role::In, expected.to_owned())]);
}

#[test]
fn a_vlan_is_not_used_where_its_lower_link_is_not() {
    let vrf = Link {
        kind: Some("vrf".into()),
        ..ethernet(7, "red")
    };
    let bridge = Link {
        kind: Some("bridge".into()),
        ..ethernet(9, "br0")
    };
    let xdp = Some(XdpAttached {
        mode: 1,
        program: 7,
    });
    let of = |change: &dyn Fn(&mut Link)| {
        let mut lower = ethernet(2, "e0");
        change(&mut lower);
        let links = [vrf.clone(), bridge.clone(), lower, vlan(3, "e0.5", 5, 2)];
        of_last(&links, &[])
    };
    assert_eq!(of(&|_| {}), []);
    assert_eq!(of(&|link| link.master = Some(7)), [], "in a VRF");
    for (change, role, what) in [
        (
            &(|link: &mut Link| {
                link.master = Some(9);
                link.port = Some(BridgePort::default());
            }) as &dyn Fn(&mut Link),
            Role::Both,
            "its lower link e0: part of bridge br0",
        ),
        (
            &|link| link.kind = Some("dummy".into()),
            Role::Both,
            "its lower link e0: dummy device",
        ),
        (
            &|link| link.xdp = xdp,
            Role::In,
            "its lower link e0: XDP program 7 is attached already (native)",
        ),
    ] {
        assert_eq!(of(change), [(role, what.to_owned())]);
    }
}

#[test]
fn a_vlan_upon_a_bond_is_sent_through_where_its_choice_is_known() {
    let bond = |mode, policy| Link {
        kind: Some("bond".to_owned()),
        bond: Some(Bond {
            mode,
            policy,
            by_traffic: false,
            ..Bond::default()
        }),
        ..ethernet(2, "b0")
    };
    let member = Link {
        master: Some(2),
        ..ethernet(3, "e0")
    };
    let of = |bond, lower| of_last(&[bond, member.clone(), vlan(4, "v", 5, lower)], &[]);
    for (mode, policy) in [(0, 0), (1, 0), (2, 0), (2, 1), (4, 1), (4, 2), (4, 4)] {
        assert_eq!(of(bond(mode, policy), 2), [], "{mode} {policy}");
    }
    let said = |policy| {
        let what = format!("its lower link b0 is a bond with xmit_hash_policy {policy}");
        (Role::Out, what)
    };
    assert_eq!(of(bond(4, 3), 2), [said("encap2+3")]);
    // Within another.
    let inner = |policy| {
        let links = [
            bond(4, policy),
            member.clone(),
            vlan(4, "v", 5, 2),
            vlan(5, "w", 6, 4),
        ];
        of_last(&links, &[])
    };
    assert_eq!(inner(1), []);
    let (role, what) = said("encap2+3");
    let outer = (role, format!("its lower link v: {what}"));
    assert_eq!(inner(3), [said("encap2+3"), outer]);
    assert_eq!(inner(4), [said("encap3+4")]);
    let what = "its lower link b0: bond of mode broadcast";
    assert_eq!(of(bond(3, 0), 2), [(Role::Both, what.to_owned())]);
    let what = "its lower link e0: part of bond b0";
    assert_eq!(of(bond(1, 0), 3), [(Role::Both, what.to_owned())]);
}

/// There its program would see frames of any VLAN without their tags.
#[test]
fn no_bond_is_used_in_generic_mode() {
    let bond = Link {
        kind: Some("bond".to_owned()),
        bond: Some(Bond {
            mode: 1,
            ..Bond::default()
        }),
        ..ethernet(2, "b0")
    };
    let member = Link {
        master: Some(2),
        ..ethernet(3, "e0")
    };
    let links = vec![bond, member, vlan(4, "b0.5", 5, 2)];
    let of = |generic, name: &str| {
        let found = judged_in(generic, links.clone(), &[(2, "b0.5")]);
        let of_it = found.into_iter().filter(|(of, ..)| of == name);
        of_it
            .map(|(_, role, what)| (role, what))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(false, "b0"), []);
    assert_eq!(of(false, "b0.5"), []);
    let what = "bond, in generic mode";
    assert_eq!(of(true, "b0"), [(Role::Both, what.to_owned())]);
    let what = format!("its lower link b0: {what}");
    assert_eq!(of(true, "b0.5"), [(Role::Both, what)]);
}

fn bridge(change: impl Fn(&mut Bridge)) -> Link {
    let mut bridge = Bridge {
        protocol: 0x8100,
        ..Bridge::default()
    };
    change(&mut bridge);
    Link {
        kind: Some("bridge".into()),
        bridge: Some(bridge),
        ..ethernet(9, "br0")
    }
}

fn port(link: Link, is_special: bool) -> Link {
    let port = BridgePort {
        state: 3,
        learns: true,
        is_special,
        ..BridgePort::default()
    };
    Link {
        master: Some(9),
        port: Some(port),
        ..link
    }
}

#[test]
fn a_bridge_is_used_unless_it_does_what_engines_do_not() {
    let of = |bridge: Link| of_last(&[port(ethernet(2, "e0"), false), bridge], &[]);
    assert_eq!(of(bridge(|_| {})), []);
    assert_eq!(of(bridge(|it| it.filters_vlans = true)), []);
    let found = of(bridge(|it| it.is_special = true));
    assert!(found.len() == 1 && found[0].0 == Role::Both);
    assert!(found[0].1.contains("mst_enable"), "{found:?}");
    let found = of(bridge(|it| {
        it.filters_vlans = true;
        it.protocol = 0x9100;
    }));
    let what = "bridge with tags of EtherType 0x9100";
    assert_eq!(found, [(Role::Both, what.to_owned())]);
    let unknown = Link {
        bridge: None,
        ..bridge(|_| {})
    };
    let what = "bridge of which nothing is known";
    assert_eq!(of(unknown), [(Role::Both, what.to_owned())]);
    let found = of_last(&[bridge(|_| {})], &[]);
    assert_eq!(found[0].1, "bridge without a port");
    let vrf = Link {
        kind: Some("vrf".into()),
        ..ethernet(7, "red")
    };
    let in_vrf = Link {
        master: Some(7),
        ..bridge(|_| {})
    };
    let links = [vrf, port(ethernet(2, "e0"), false), in_vrf];
    assert_eq!(of_last(&links, &[]), []);
}

#[test]
fn a_port_is_refused_for_itself_alone() {
    let other = port(ethernet(3, "e1"), false);
    let of = |link: Link, upper: &[(u32, &str)]| {
        let links = vec![bridge(|_| {}), other.clone(), link.clone()];
        let found = judged(links, upper);
        assert!(
            found.iter().all(|(name, ..)| *name == link.name),
            "{found:?}"
        );
        let told = found.into_iter().map(|(_, role, what)| (role, what));
        told.collect::<Vec<_>>()
    };
    let plain = ethernet(2, "e0");
    assert_eq!(of(port(plain.clone(), false), &[]), []);
    let found = of(port(plain.clone(), true), &[]);
    assert!(
        found[0].0 == Role::Both && found[0].1.contains("backup_port"),
        "{found:?}"
    );
    let kind = |kind: &str| Link {
        kind: Some(kind.to_owned()),
        ..plain.clone()
    };
    for (link, what) in [
        (kind("vxlan"), "vxlan device"),
        (
            kind("macvlan"),
            "port of bridge br0, and upon others itself",
        ),
    ] {
        assert_eq!(of(port(link, false), &[])[0], (Role::Both, what.to_owned()));
    }
    assert_eq!(of(port(kind("tun"), false), &[]), []);
    let xdp = Some(XdpAttached {
        mode: 1,
        program: 7,
    });
    let busy = Link {
        xdp,
        ..plain.clone()
    };
    let what = "XDP program 7 is attached already (native)";
    assert_eq!(of(port(busy, false), &[]), [(Role::In, what.to_owned())]);
    let found = of(port(plain, false), &[(2, "e0.5 in namespace x")]);
    assert_eq!(
        found,
        [(Role::In, "e0.5 in namespace x is upon it".to_owned())]
    );
}

#[test]
fn vlans_upon_a_bridge_are_used_and_upon_its_ports_not() {
    let links = [
        bridge(|_| {}),
        port(ethernet(2, "e0"), false),
        vlan(4, "br0.5", 5, 9),
    ];
    assert_eq!(of_last(&links, &[(9, "br0.5")]), []);
    let special = bridge(|it| it.is_special = true);
    let found = of_last(&[special, links[1].clone(), links[2].clone()], &[]);
    assert!(found.len() == 1 && found[0].1.starts_with("its lower link br0: bridge with"));
    let upon_port = [links[0].clone(), links[1].clone(), vlan(4, "e0.5", 5, 2)];
    let what = "its lower link e0: part of bridge br0";
    assert_eq!(of_last(&upon_port, &[]), [(Role::Both, what.to_owned())]);
    // A VLAN as a port: of another bridge's VLAN none.
    let second = Link {
        index: 8,
        name: "br1".to_owned(),
        ..bridge(|_| {})
    };
    let nested = Link {
        master: Some(8),
        ..port(vlan(4, "br0.5", 5, 9), false)
    };
    let found = of_last(&[second, links[0].clone(), links[1].clone(), nested], &[]);
    let what = "port of bridge br1, and upon others itself";
    assert_eq!(found, [(Role::Both, what.to_owned())]);
}

#[test]
fn a_macvlan_is_used_that_takes_its_own_frames_only() {
    let macvlan = |mode, lower| Link {
        kind: Some("macvlan".to_owned()),
        macvlan: Some(Macvlan { mode }),
        lower: Some(lower),
        mac: Some([2, 0, 0, 0, 0, 9]),
        ..ethernet(5, "m0")
    };
    let wire = ethernet(2, "e0");
    let of = |link: Link| of_last(&[wire.clone(), link], &[]);
    let takes_others = "macvlan that takes frames which are not to its own address";
    for (mode, expected) in [
        (1, None),
        (2, None),
        (4, Some((Role::Out, "macvlan of mode bridge"))),
        (8, Some((Role::Both, takes_others))),
        (16, Some((Role::Both, takes_others))),
    ] {
        let found = of(macvlan(mode, 2));
        let found: Vec<_> = found.iter().map(|(role, what)| (*role, &**what)).collect();
        assert_eq!(found, Vec::from_iter(expected), "{mode}");
    }
    let same = Link {
        mac: wire.mac,
        ..macvlan(1, 2)
    };
    assert_eq!(of(same), [(Role::Both, takes_others.to_owned())]);
    let unknown = Link {
        macvlan: None,
        ..macvlan(1, 2)
    };
    assert_eq!(of(unknown)[0].0, Role::Both);
    let away = Link {
        lower_netns: Some(1),
        ..macvlan(1, 2)
    };
    let what = "macvlan of a link in another network namespace";
    assert_eq!(of(away), [(Role::Both, what.to_owned())]);
    let upon = "macvlan upon a bridge, a port of one, or a macvlan";
    let links = [bridge(|_| {}), port(wire.clone(), false), macvlan(1, 9)];
    assert_eq!(of_last(&links, &[]), [(Role::Both, upon.to_owned())]);
    let links = [bridge(|_| {}), port(wire.clone(), false), macvlan(1, 2)];
    assert_eq!(of_last(&links, &[]), [(Role::Both, upon.to_owned())]);
    let vlan_upon = [wire.clone(), macvlan(1, 2), vlan(6, "m0.5", 5, 5)];
    let what = "its lower link m0: macvlan";
    assert_eq!(of_last(&vlan_upon, &[]), [(Role::Both, what.to_owned())]);
    let upon_vlan = [wire, vlan(3, "e0.5", 5, 2), macvlan(2, 3)];
    assert_eq!(of_last(&upon_vlan, &[]), []);
}

fn tunnel(kind: TunnelKind, change: impl Fn(&mut Tunnel)) -> Link {
    let mut tunnel = Tunnel {
        kind,
        local: Some([192, 0, 2, 1].into()),
        remote: Some([192, 0, 2, 2].into()),
        ttl: 64,
        tos: 0,
        df: event::TunnelDf::Set,
        link: 0,
        is_special: false,
    };
    change(&mut tunnel);
    let (kind, arp_type) = match tunnel.kind {
        TunnelKind::Ipip => ("ipip", 768),
        TunnelKind::Sit => ("sit", 776),
        TunnelKind::Gre { .. } => ("gre", 778),
        TunnelKind::Vxlan { .. } => ("vxlan", 1),
    };
    Link {
        kind: Some(kind.to_owned()),
        arp_type,
        mac: (arp_type == 1).then_some([2, 0, 0, 0, 0, 9]),
        tunnel: Some(tunnel),
        ..ethernet(20, "t0")
    }
}

const GRE: TunnelKind = TunnelKind::Gre {
    ikey: None,
    okey: None,
};

fn vxlan(learns: bool) -> TunnelKind {
    TunnelKind::Vxlan {
        vni: 5,
        port: 4789,
        sports: (0, 0),
        learns,
        checksum: false,
        ttl_inner: false,
    }
}

#[test]
fn tunnels_are_used_that_do_what_engines_do() {
    for kind in [TunnelKind::Ipip, TunnelKind::Sit, GRE, vxlan(false)] {
        let judged = |change: &dyn Fn(&mut Tunnel)| {
            let link = tunnel(kind, change);
            let is_used = is_usable_tunnel(&link);
            let found = of_last(&[link], &[]);
            let both = found.iter().any(|(role, _)| *role == Role::Both);
            assert_eq!(both, !is_used);
            found.into_iter().next().map(|(_, what)| what)
        };
        let says = |change: &dyn Fn(&mut Tunnel), words: &str| {
            let what = judged(change).unwrap_or_default();
            assert!(what.contains(words), "{kind:?}: {what}");
        };
        assert_eq!(judged(&|_| ()), None, "{kind:?}");
        assert_eq!(judged(&|t| t.link = 1), None, "bound to loopback");
        says(&|t| t.is_special = true, "does not carry out: external, ");
        says(&|t| t.link = 2, "bound to a link");
        says(&|t| t.local = None, "without an address of its own end");
        match kind {
            TunnelKind::Vxlan { .. } => assert_eq!(judged(&|t| t.remote = None), None),
            _ => {
                says(&|t| t.remote = None, "several other ends");
                says(
                    &|t| (t.local, t.remote) = (None, None),
                    "what no other tunnel takes",
                );
            }
        }
    }
    // One of another kind, or of which nothing is told.
    let gretap = Link {
        tunnel: None,
        kind: Some("gretap".into()),
        ..tunnel(vxlan(false), |_| ())
    };
    assert_eq!(of_last(&[gretap], &[])[0].1, "gretap device");
    let unknown = Link {
        tunnel: None,
        ..tunnel(GRE, |_| ())
    };
    assert_eq!(of_last(&[unknown], &[])[0].1, "not Ethernet");
}

#[test]
fn a_vxlan_that_learns_is_sent_through() {
    let found = of_last(&[tunnel(vxlan(true), |_| ())], &[]);
    assert_eq!(
        found,
        [(Role::In, "vxlan that learns from what comes in".to_owned())]
    );
    let link = tunnel(vxlan(true), |_| ());
    let finding = refused_tunnel(&link, &link.tunnel.unwrap()).unwrap();
    let fix = "ip link set dev t0 type vxlan nolearning";
    assert_eq!(finding.fix.as_deref(), Some(fix));
    // As a port, that is nothing to the others.
    let wire = port(ethernet(2, "e0"), false);
    let vxlan = port(link, false);
    let found = judged(vec![bridge(|_| ()), wire, vxlan.clone()], &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    let found = judged(vec![bridge(|_| ()), vxlan], &[]);
    assert!(
        found.iter().any(|(name, role, what)| name == "br0"
            && *role == Role::In
            && what.contains("its port t0: vxlan that learns")),
        "{found:?}"
    );
}

#[test]
fn what_is_upon_a_tunnel_is_the_kernels() {
    let below = tunnel(vxlan(false), |_| ());
    let found = of_last(&[below.clone(), vlan(21, "t0.5", 5, 20)], &[]);
    assert_eq!(
        found,
        [(Role::Both, "its lower link t0: tunnel".to_owned())]
    );
    let macvlan = Link {
        kind: Some("macvlan".into()),
        macvlan: Some(Macvlan { mode: 1 }),
        lower: Some(20),
        ..ethernet(22, "m0")
    };
    let found = of_last(&[below, macvlan], &[]);
    assert_eq!(found, [(Role::Both, "macvlan upon a tunnel".to_owned())]);
}

#[test]
fn tunnels_are_forwarded_from_where_another_link_is() {
    let scene = Scene {
        links: vec![ethernet(2, "e0"), tunnel(GRE, |_| ())],
        ..Scene::default()
    };
    let named = |links: &[(u32, &str)]| -> BTreeMap<u32, String> {
        let links = links.iter();
        links.map(|(i, name)| (*i, (*name).to_owned())).collect()
    };
    let both = named(&[(2, "e0"), (20, "t0")]);
    assert!(without_carrier(&scene, &both, &both).is_empty());
    let alone = named(&[(20, "t0")]);
    let found = without_carrier(&scene, &alone, &alone);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].link.as_deref(), Some("t0"));
    assert_eq!(found[0].role, Role::In);
}
