//! Selectors, abbreviations, errors, and the rarer fields. The expected lines were printed by
//! iproute2 6.1 on Linux 6.18.

use super::*;

#[test]
fn what_a_filter_fixes_is_not_printed() {
    let world = World::new();
    let cases = [
        (
            "route show dev eth2",
            "10.0.2.0/24 proto kernel scope link src 10.0.2.1 \n",
        ),
        (
            "route show table 100 type throw",
            "throw 203.0.113.224/27 \n",
        ),
        ("route show table 100 dev eth1", "default via 10.0.1.2 \n"),
        (
            "ro s proto bgp metric 20 dev eth1",
            "192.0.2.0/24 via 10.0.1.2 \n",
        ),
        (
            "r l src 10.0.2.1",
            "10.0.2.0/24 dev eth2 proto kernel scope link \n",
        ),
        (
            "r s via 10.0.1.2 metric 20",
            "192.0.2.0/24 dev eth1 proto bgp \n",
        ),
        (
            "r s via inet6 fd00:1::2",
            "198.51.106.0/24 via inet6 fd00:1::2 dev eth1 \n",
        ),
        (
            "r s via 10.0.1.0/24 proto bgp",
            "192.0.2.0/24 via 10.0.1.2 dev eth1 metric 20 \n",
        ),
        (
            "r s s link dev eth3",
            "10.0.3.0/24 proto kernel src 10.0.3.1 \n",
        ),
        (
            "-d r s 192.0.2.0/24 table all",
            "unicast 192.0.2.0/24 via 10.0.1.2 dev eth1 table main proto bgp scope global metric 20 \n",
        ),
        (
            "route show tos 10 dev eth1",
            "100.64.0.0/10 via 10.0.9.9 src 10.0.1.1 onlink mtu 1400 advmss 1360 \n",
        ),
        ("route show type blackhole", "blackhole 203.0.113.0/25 \n"),
        ("route show proto static", ""),
        ("-j route show proto static", "[]\n"),
    ];
    for (line, expected) in cases {
        assert_eq!(world.show(line), expected, "{line}");
    }
}

#[test]
fn prefixes_select() {
    let world = World::new();
    let dsts = |line: &str| {
        let text = world.show(line);
        let lines = text.lines().filter(|line| !line.starts_with('\t'));
        lines
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        dsts("r s root 10/8"),
        ["10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24"]
    );
    assert_eq!(dsts("r s 10/8"), [""; 0]);
    assert_eq!(dsts("r s exact 10.0.1.0/24"), ["10.0.1.0/24"]);
    assert_eq!(
        dsts("r s match 192.0.2.7 table all"),
        ["default", "192.0.2.0/24"]
    );
    assert_eq!(dsts("r s to default t 100"), ["default"]);
    // Unlike in `ip`, a prefix decides the family.
    assert_eq!(
        dsts("r s root fd00::/16"),
        ["fd00:1::/64", "fd00:2::/64", "fd00:3::/64"]
    );
    assert_eq!(dsts("r s t all root ::1"), ["local"]);
}

#[test]
fn neighbours_select() {
    let mut world = World::new();
    let neighbour = |dst: &str, state, flags| Neighbour {
        index: 2,
        dst: ip(dst),
        mac: None,
        state,
        flags,
        protocol: 0,
    };
    world.neighbours = vec![
        neighbour("10.0.1.53", 0x20, 0),
        neighbour("10.0.1.54", 0, 0),
        neighbour("10.0.1.55", 2, 0x90),
        neighbour("10.0.1.56", 0, 0x10),
        neighbour("10.0.1.57", 0, 0x08),
        neighbour("10.0.1.58", 0x40, 0),
        neighbour("fd00:1::9", 0x10, 0x80),
    ];
    let always =
        "10.0.1.55 dev eth1 router extern_learn REACHABLE \n10.0.1.56 dev eth1 extern_learn \n";
    let cases = [
        (
            "n",
            format!("10.0.1.53 dev eth1 FAILED \n{always}fd00:1::9 dev eth1 router PROBE \n"),
        ),
        ("-6 n s dev eth1", "fd00:1::9 router PROBE \n".to_owned()),
        (
            "neigh show nud none",
            format!("10.0.1.54 dev eth1 \n{always}"),
        ),
        (
            "neigh show nud noarp",
            format!("{always}10.0.1.58 dev eth1 NOARP \n"),
        ),
        ("neigh show proxy", "10.0.1.57 dev eth1 proxy \n".to_owned()),
        (
            "neigh show to 10.0.1.52/30 nud failed",
            "10.0.1.53 dev eth1 FAILED \n10.0.1.55 dev eth1 router extern_learn REACHABLE \n"
                .to_owned(),
        ),
        (
            "-j neigh show proxy",
            "[{\"dst\":\"10.0.1.57\",\"dev\":\"eth1\",\"proxy\":null}]\n".to_owned(),
        ),
        (
            "-j neigh show 10.0.1.56",
            "[{\"dst\":\"10.0.1.56\",\"dev\":\"eth1\",\"extern_learn\":null}]\n".to_owned(),
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(world.show(line), expected, "{line}");
    }
    assert_eq!(world.show("neigh show nud all").lines().count(), 6);
}

#[test]
fn nexthop_objects_select() {
    let mut world = World::new();
    world.nexthops.push(Nexthop {
        fdb: true,
        ..nexthop(32, single("10.0.1.9", 0))
    });
    let ids = |line: &str| {
        let text = world.show(line);
        text.lines()
            .map(|line| line.split(' ').nth(1).unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids("nexthop show groups"), ["10", "11", "12", "13"]);
    assert_eq!(ids("nex l dev eth2"), ["2", "4"]);
    assert_eq!(ids("-6 nexthop"), ["3", "4", "7", "20"]);
    assert_eq!(ids("nexthop show proto bgp"), ["1"]);
    assert_eq!(world.show("nexthop get id 11"), "id 11 group 1,3/2 \n");
    assert_eq!(world.show("-6 nexthop show id 11"), "id 11 group 1,3/2 \n");
    assert_eq!(
        world.show("nexthop show fdb"),
        "id 32 via 10.0.1.9 scope link fdb\n"
    );
    let json = world.show("-j nexthop show id 32");
    assert_eq!(
        json,
        "[{\"id\":32,\"gateway\":\"10.0.1.9\",\"scope\":\"link\",\"flags\":[],\"fdb\":null}]\n"
    );
}

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
fn routes_come_in_the_kernels_order() {
    let four = [
        "10.0.0.0/8",
        "10.0.1.0/24",
        "10.8.0.0/14",
        "10.9.0.0/25",
        "10.9.0.0/24",
        "0.0.0.0/5",
        "0.0.0.0/0",
        "1.2.3.4/32",
    ];
    let six = [
        "2001:db8::/32",
        "2001:db8::/33",
        "2001:db8::/48",
        "2001:db8:5::/48",
        "2001:db8:b::1/128",
        "::/0",
        "fe80::/64",
        "fd00:1::/64",
    ];
    let mut routes: Vec<Route> = four
        .iter()
        .chain(&six)
        .map(|dst| route(dst, via("", 2)))
        .collect();
    let from = |src: &str, metric| Route {
        src: Some(src.parse().unwrap()),
        metric,
        ..route("2001:db8:5::/48", via("", 2))
    };
    routes.extend([from("2001::/16", 4), from("2001:db8:ffff::1/128", 5)]);
    routes.extend([from("2001:db8::/32", 9), from("2001:db8:ffff::1/128", 4)]);
    for (tos, metric, index) in [(0, 7, 2), (0, 3, 3), (0, 3, 2), (0x20, 3, 2), (0x28, 3, 2)] {
        routes.push(Route {
            tos,
            metric,
            ..route("10.9.0.0/24", via("", index))
        });
    }
    let world = World::with(&routes);
    let expected = "0.0.0.0/5 dev eth1 \ndefault dev eth1 \n1.2.3.4 dev eth1 \n\
        10.0.0.0/8 dev eth1 \n10.0.1.0/24 dev eth1 \n10.8.0.0/14 dev eth1 \n10.9.0.0/25 dev eth1 \n\
        10.9.0.0/24 tos 0x28 dev eth1 metric 3 \n10.9.0.0/24 tos 0x20 dev eth1 metric 3 \n\
        10.9.0.0/24 dev eth1 \n10.9.0.0/24 dev eth2 metric 3 \n10.9.0.0/24 dev eth1 metric 3 \n\
        10.9.0.0/24 dev eth1 metric 7 \n";
    assert_eq!(world.show("route"), expected);
    let expected = "2001:db8::/48\n2001:db8:5::/48 from 2001:db8:ffff::1 metric 4\n\
        2001:db8:5::/48 from 2001:db8:ffff::1 metric 5\n2001:db8:5::/48 from 2001:db8::/32 metric 9\n\
        2001:db8:5::/48 from 2001::/16 metric 4\n2001:db8:5::/48\n2001:db8:b::1\n2001:db8::/33\n\
        2001:db8::/32\nfd00:1::/64\nfe80::/64\ndefault\n";
    let ours = world.show("-6 route show dev eth1");
    assert_eq!(
        ours.replace(" pref medium", "").replace(" metric 1024", ""),
        expected
    );
    let tables = [256, 2, 300, 1600, 100, 1200, 510];
    let mut routes = tables.map(|table| Route {
        table,
        ..route("7.7.7.7/32", via("", 2))
    });
    routes.sort_by_key(|route| route.table);
    let ours = World::with(&routes).show("route show table all");
    let words: Vec<&str> = ours.split_whitespace().collect();
    let ours: Vec<u32> = words
        .chunks(5)
        .map(|line| line[4].parse().unwrap())
        .collect();
    assert_eq!(ours, tables);
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
fn errors_are_ips() {
    let world = World::new();
    let cases = [
        (
            "frob",
            1,
            "Object \"frob\" is unknown, try \"raddle help\".",
        ),
        (
            "route frob",
            1,
            "Command \"frob\" is unknown, try \"raddle route help\".",
        ),
        (
            "nex frob",
            1,
            "Command \"frob\" is unknown, try \"raddle nexthop help\".",
        ),
        (
            "-x route",
            1,
            "Option \"-x\" is unknown, try \"raddle route help\".",
        ),
        (
            "-f foo route",
            1,
            "Error: argument \"foo\" is wrong: invalid protocol family",
        ),
        (
            "route show frob",
            1,
            "Error: any valid prefix is expected rather than \"frob\".",
        ),
        (
            "-4 route show ::/0",
            1,
            "Error: inet prefix is expected rather than \"::/0\".",
        ),
        ("route show dev nosuch", 1, "Cannot find device \"nosuch\""),
        (
            "route show dev",
            1,
            "Command line is not complete. Try option \"help\"",
        ),
        (
            "route show exact",
            1,
            "Command line is not complete. Try option \"help\"",
        ),
        (
            "route show table nosuch",
            1,
            "Error: argument \"nosuch\" is wrong: table id value is invalid",
        ),
        (
            "route show proto 300",
            1,
            "Error: argument \"300\" is wrong: invalid \"protocol\"",
        ),
        (
            "route show scope nosuch",
            1,
            "Error: argument \"nosuch\" is wrong: invalid \"scope\"",
        ),
        (
            "route show type nosuch",
            1,
            "Error: argument \"nosuch\" is wrong: node type value is invalid",
        ),
        (
            "route show metric x",
            1,
            "Error: argument \"x\" is wrong: \"metric\" value is invalid",
        ),
        (
            "route show d eth1",
            1,
            "Error: argument \"eth1\" is wrong: TOS value is invalid",
        ),
        (
            "neigh show nud foo",
            1,
            "Error: argument \"foo\" is wrong: nud state is bad",
        ),
        (
            "neigh show router",
            1,
            "Error: any valid prefix is expected rather than \"router\".",
        ),
        ("neigh show dev nosuch", 1, "Cannot find device \"nosuch\""),
        (
            "nexthop show id x",
            1,
            "Error: argument \"x\" is wrong: invalid id value",
        ),
        (
            "nexthop show id 77",
            2,
            "Error: nexthop id 77 does not exist.",
        ),
        (
            "nexthop get",
            1,
            "Command line is not complete. Try option \"help\"",
        ),
        (
            "nexthop bucket show id 77",
            2,
            "Error: nexthop id 77 does not exist.",
        ),
        (
            "nexthop bucket show id 1",
            2,
            "Error: nexthop id 1 is not a resilient group.",
        ),
        (
            "nexthop bucket get id 13 index 8",
            2,
            "Error: bucket index out of bounds: the group has 8 buckets, from 0.",
        ),
        (
            "nexthop bucket get id 13",
            1,
            "Command line is not complete. Try option \"help\"",
        ),
        (
            "nexthop bucket show index 1",
            1,
            "Error: argument \"index\" is wrong: expected id, nhid or dev",
        ),
        (
            "nexthop bucket flush",
            1,
            "Command \"flush\" is unknown, try \"raddle nexthop help\".",
        ),
        (
            "nexthop show foo",
            1,
            "Error: argument \"foo\" is wrong: expected id, dev, groups, proto or fdb",
        ),
    ];
    for (line, code, expected) in cases {
        let error = world.try_show(line).expect_err(line);
        assert_eq!(
            (error.to_string().as_str(), error.exit_code()),
            (expected, code),
            "{line}"
        );
    }
}

#[test]
fn help_needs_no_state() {
    for (line, start) in [
        ("route help", "Usage: raddle [ OPTIONS ] route"),
        ("n h", "Usage: raddle [ OPTIONS ] neigh"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(Command::parse(&words, Names::built_in()).unwrap().is_help());
        assert!(World::new().show(line).starts_with(start), "{line}");
    }
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
fn a_reader_that_leaves_is_an_error_not_a_panic() {
    let world = World::new();
    let state = State {
        links: &world.links,
        routes: &world.routes,
        ..State::default()
    };
    let command = Command::parse(&["route"], Names::built_in()).unwrap();
    let mut full: &mut [u8] = &mut [];
    assert!(matches!(
        command.print(&state, &mut full),
        Err(Error::Write(_))
    ));
}
