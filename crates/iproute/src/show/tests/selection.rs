//! Selectors and abbreviations, and the order of what they leave. The expected lines were printed by
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
