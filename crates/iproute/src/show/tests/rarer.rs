//! Rarer fields and forms, and what is damaged. The expected lines were printed by iproute2 6.1 on
//! Linux 6.18.

use super::*;

#[test]
fn nexthop_objects_expand_as_in_the_kernel() {
    let mut world = World::with(&[]);
    world.nexthops.extend([
        nexthop(17, NexthopKind::Group(vec![member(1, 1)])),
        nexthop(18, NexthopKind::Group(vec![member(3, 1)])),
        nexthop(19, NexthopKind::Group(vec![member(5, 1)])),
        nexthop(
            21,
            NexthopKind::Group(vec![member(3, 300), member(4, 256), member(99, 1)]),
        ),
    ]);
    let cases = [
        ("192.0.2.0/28", 5, "blackhole 192.0.2.0/28 nhid 5 dev lo \n"),
        (
            "192.0.2.0/28",
            17,
            "192.0.2.0/28 nhid 17 via 10.0.1.2 dev eth1 \n",
        ),
        ("192.0.2.0/28", 6, "192.0.2.0/28 nhid 6 dev eth3 \n"),
        (
            "192.0.2.0/28",
            19,
            "blackhole 192.0.2.0/28 nhid 19 dev lo \n",
        ),
        (
            "192.0.2.0/28",
            3,
            "192.0.2.0/28 nhid 3 via inet6 fd00:1::2 dev eth1 \n",
        ),
        ("192.0.2.0/28", 99, "192.0.2.0/28 nhid 99 \n"),
        (
            "2001:db8::/48",
            5,
            "blackhole 2001:db8::/48 nhid 5 dev lo metric 1024 pref medium\n",
        ),
        (
            "2001:db8::/48",
            7,
            "2001:db8::/48 nhid 7 via fe80::7 dev eth3 metric 1024 onlink pref medium\n",
        ),
        (
            "2001:db8::/48",
            18,
            "2001:db8::/48 nhid 18 metric 1024 pref medium\n\tnexthop via fd00:1::2 dev eth1 weight 1 \n",
        ),
        (
            "2001:db8::/48",
            19,
            "blackhole 2001:db8::/48 nhid 19 metric 1024 pref medium\n\tnexthop dev lo weight 1 \n",
        ),
        (
            "2001:db8::/48",
            21,
            "2001:db8::/48 nhid 21 metric 1024 pref medium\n\tnexthop via fd00:1::2 dev eth1 weight 44 \n\tnexthop via fd00:2::2 dev eth2 weight 256 \n",
        ),
    ];
    for (dst, id, expected) in cases {
        world.routes = vec![route(dst, RouteTarget::Object(id))];
        assert_eq!(world.show(&format!("r s {dst}")), expected);
    }
}

#[test]
fn rarer_fields() {
    let reject = |dst, kind| Route {
        kind,
        ..route(dst, RouteTarget::None)
    };
    let onlink = RouteNexthop {
        flags: 5 | 16,
        ..hop("10.0.1.2", 2, 200)
    };
    let world = World::with(&[
        Route {
            metric: 100,
            metrics: vec![
                (1, 1 << 2 | 1 << 13),
                (2, 1400),
                (3, 100),
                (4, 2400),
                (5, 80),
                (6, 7),
                (7, 9),
                (9, 4),
                (10, 30),
                (11, 10),
                (12, 1),
                (13, 100),
                (14, 12),
                (15, 1),
                (17, 1),
            ],
            ..route("198.18.0.0/24", via("10.0.1.2", 2))
        },
        route(
            "198.18.1.0/24",
            RouteTarget::Multipath(vec![
                onlink,
                RouteNexthop {
                    flags: 16,
                    ..hop("", 3, 256)
                },
            ]),
        ),
        Route {
            metrics: vec![(4, 20_000), (5, 6_000)],
            ..route("9.0.0.0/24", via("", 9))
        },
        Route {
            table: 1234,
            tos: 8,
            scope: 77,
            protocol: 201,
            ..route("9.0.1.0/24", via("", 2))
        },
        Route {
            kind: RouteKind::Unreachable,
            metric: 4_278_198_272,
            ..route("0.0.0.0/0", RouteTarget::None)
        },
        Route {
            src: Some("2001:db8:ffff::/48".parse().unwrap()),
            pref: Some(3),
            prefsrc: Some(ip("fd00:1::1")),
            flags: 16,
            ..route("2001:db8:5::/48", via("fd00:1::2", 2))
        },
        reject("2001:db8:7::/48", RouteKind::Unreachable),
        route(
            "9.2.0.0/24",
            RouteTarget::Single(wrapped(
                hop("", 2, 1),
                Encap {
                    kind: 1,
                    data: vec![1],
                },
            )),
        ),
        route(
            "2001:db8:ad::/48",
            RouteTarget::Single(wrapped(
                hop("", 2, 1),
                seg6local(
                    1,
                    &[(
                        11,
                        [
                            attribute(1, &(1_u32 << 4).to_ne_bytes()),
                            attribute(2, &[48]),
                            attribute(3, &[16]),
                        ]
                        .concat(),
                    )],
                ),
            )),
        ),
    ]);
    let cases = [
        (
            "r s 198.18.0.0/24",
            "198.18.0.0/24 via 10.0.1.2 dev eth1 metric 100 mtu lock 1400 window 100 rtt 300ms rttvar 20ms ssthresh 7 cwnd 9 reordering 4 hoplimit 30 initcwnd 10 features ecn rto_min lock 100ms initrwnd 12 quickack 1 fastopen_no_cookie 1 \n",
        ),
        (
            "-j r s 198.18.0.0/24",
            "[{\"dst\":\"198.18.0.0/24\",\"gateway\":\"10.0.1.2\",\"dev\":\"eth1\",\"metric\":100,\"flags\":[],\"metrics\":[{\"mtu\":1400,\"window\":100,\"rtt\":300,\"rttvar\":20,\"ssthresh\":7,\"cwnd\":9,\"reordering\":4,\"hoplimit\":30,\"initcwnd\":10,\"ecn\":null,\"rto_min\":100,\"initrwnd\":12,\"quickack\":1,\"fastopen_no_cookie\":1}]}]\n",
        ),
        (
            "r s 198.18.1.0/24",
            "198.18.1.0/24 \n\tnexthop via 10.0.1.2 dev eth1 weight 200 dead onlink linkdown \n\tnexthop dev eth2 weight 256 linkdown \n",
        ),
        (
            "r s 9.0.0.0/24",
            "9.0.0.0/24 dev if9 rtt 2.5s rttvar 1.5s \n",
        ),
        (
            "r s table all 9.0.1.0/24",
            "9.0.1.0/24 tos 0x08 dev eth1 table 1234 proto 201 scope 77 \n",
        ),
        ("r s default", "unreachable default metric 4278198272 \n"),
        ("r s 9.2.0.0/24", "9.2.0.0/24  encap mpls dev eth1 \n"),
        (
            "r s 2001:db8:5::/48",
            "2001:db8:5::/48 from 2001:db8:ffff::/48 via fd00:1::2 dev eth1 src fd00:1::1 metric 1024 linkdown pref low\n",
        ),
        (
            "-6 r s from root 2001:db8:f000::/36",
            "2001:db8:5::/48 from 2001:db8:ffff::/48 via fd00:1::2 dev eth1 src fd00:1::1 metric 1024 linkdown pref low\n",
        ),
        (
            "r s 2001:db8:7::/48",
            "unreachable 2001:db8:7::/48 dev lo metric 1024 pref medium\n",
        ),
        (
            "r s 2001:db8:ad::/48",
            "2001:db8:ad::/48  encap seg6local action End flavors next-csid lblen 48 nflen 16 dev eth1 metric 1024 pref medium\n",
        ),
        (
            "-j r s 2001:db8:ad::/48",
            "[{\"dst\":\"2001:db8:ad::/48\",\"encap\":\"seg6local\",\"action\":\"End\",\"flavors\":[\"next-csid\"],\"lblen\":48,\"nflen\":16,\"dev\":\"eth1\",\"metric\":1024,\"flags\":[],\"pref\":\"medium\"}]\n",
        ),
        (
            "-N -d r s 9.0.1.0/24 t 1234",
            "1 9.0.1.0/24 tos 0x08 dev eth1 proto 201 scope 77 \n",
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(world.show(line), expected, "{line}");
    }
}

#[test]
fn pretty_json() {
    let expected = "[ {
        \"dst\": \"2001:db8:2::/48\",
        \"nhid\": 12,
        \"protocol\": \"bgp\",
        \"metric\": 1024,
        \"flags\": [ ],
        \"pref\": \"medium\",
        \"nexthops\": [ {
                \"gateway\": \"fd00:1::2\",
                \"dev\": \"eth1\",
                \"weight\": 1,
                \"flags\": [ ]
            },{
                \"gateway\": \"fd00:2::2\",
                \"dev\": \"eth2\",
                \"weight\": 1,
                \"flags\": [ ]
            } ]
    } ]
";
    assert_eq!(
        World::new().show("-j -p route show 2001:db8:2::/48"),
        expected
    );
}

#[test]
fn damaged_encapsulations_print_what_can_be_read() {
    let whole = seg6(1, &["fc00:1::1", "fc00:2::1"]);
    for length in 0..whole.data.len() {
        for kind in [5, 7, 99] {
            let encap = Encap {
                kind,
                data: whole.data[..length].to_vec(),
            };
            let target = RouteTarget::Single(wrapped(hop("", 2, 1), encap));
            let text = World::with(&[route("9.0.0.0/8", target)]).show("route");
            assert!(
                text.starts_with("9.0.0.0/8  encap ") && text.ends_with(" dev eth1 \n"),
                "{text}"
            );
        }
    }
}

#[test]
fn routes_that_expire() {
    let expiring = |expires| Route {
        expires: Some(expires),
        metric: 1024,
        metrics: vec![(2, 1400), (10, 5)],
        pref: Some(1),
        ..route("2001:db8::/64", RouteTarget::Single(hop("", 2, 1)))
    };
    let mut world = World::with(&[expiring(1_099_990)]);
    world.clock = 1_000_000;
    let shown = world.try_show("-6 route").unwrap();
    assert_eq!(
        shown,
        "2001:db8::/64 dev eth1 metric 1024 expires 99sec mtu 1400 hoplimit 5 pref high\n"
    );
    world.routes = vec![expiring(997_010)];
    let shown = world.try_show("-6 -j route").unwrap();
    assert!(
        shown.contains(r#""flags":[],"expires":-2,"metrics":[{"mtu":1400"#),
        "{shown}"
    );
}
