//! Golden tests: `golden/` has what iproute2 6.1 printed in a namespace with these objects.
//!
//! The namespace: eth1, eth2 and eth3 with 10.0.N.1/24 and fd00:N::1/64, nexthop objects, and a
//! route of every kind; [`World::new`] builds the same as events.

use std::net::IpAddr;

use raddle_rib::event::{
    Bucket, Encap, GroupMember, Link, Neighbour, Nexthop, NexthopKind, Route, RouteKind,
    RouteNexthop, RouteTarget,
};

use super::*;

struct World {
    links: Vec<Link>,
    nexthops: Vec<Nexthop>,
    buckets: Vec<Bucket>,
    neighbours: Vec<Neighbour>,
    routes: Vec<Route>,
    clock: i64,
    figures: Option<Figures>,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn link(index: u32, name: &str) -> Link {
    Link {
        index,
        name: name.to_owned(),
        ..Link::default()
    }
}

fn route(dst: &str, target: RouteTarget) -> Route {
    let dst: ipnet::IpNet = dst.parse().unwrap();
    let six = dst.addr().is_ipv6();
    Route {
        dst,
        protocol: 3,
        metric: if six { 1024 } else { 0 },
        pref: six.then_some(0),
        target,
        ..Route::default()
    }
}

/// A nexthop; eth1 to eth3 have the indices 2 to 4.
fn hop(gateway: &str, index: u32, weight: u16) -> RouteNexthop {
    let gateway = (!gateway.is_empty()).then(|| ip(gateway));
    RouteNexthop {
        gateway,
        index,
        weight,
        ..RouteNexthop::default()
    }
}

fn via(gateway: &str, index: u32) -> RouteTarget {
    RouteTarget::Single(hop(gateway, index, 1))
}

fn wrapped(mut hop: RouteNexthop, encap: Encap) -> RouteNexthop {
    hop.encap = Some(encap);
    hop
}

fn attribute(number: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = [(value.len() as u16 + 4).to_ne_bytes(), number.to_ne_bytes()].concat();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn srh(segments: &[&str]) -> Vec<u8> {
    let last = segments.len() as u8 - 1;
    let mut bytes = vec![0, 2 * (last + 1), 4, last, last, 0, 0, 0];
    for segment in segments.iter().rev() {
        bytes.extend_from_slice(&segment.parse::<std::net::Ipv6Addr>().unwrap().octets());
    }
    bytes
}

fn seg6(mode: u32, segments: &[&str]) -> Encap {
    let value = [&mode.to_ne_bytes()[..], &srh(segments)].concat();
    Encap {
        kind: 5,
        data: attribute(1, &value),
    }
}

fn seg6local(action: u32, more: &[(u16, Vec<u8>)]) -> Encap {
    let mut data = attribute(1, &action.to_ne_bytes());
    more.iter()
        .for_each(|(number, value)| data.extend(attribute(*number, value)));
    Encap { kind: 7, data }
}

fn octets(address: &str) -> Vec<u8> {
    match ip(address) {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn member(id: u32, weight: u16) -> GroupMember {
    GroupMember { id, weight }
}

fn nexthop(id: u32, kind: NexthopKind) -> Nexthop {
    let (family, scope) = match &kind {
        NexthopKind::Single {
            gateway: Some(IpAddr::V6(_)),
            ..
        } => (10, 253),
        NexthopKind::Single {
            gateway: Some(_), ..
        } => (2, 253),
        NexthopKind::Single { gateway: None, .. } => (2, 254),
        NexthopKind::Blackhole => (2, 0),
        _ => (0, 0),
    };
    Nexthop {
        scope,
        ..Nexthop::new(id, family, kind)
    }
}

fn single(gateway: &str, index: u32) -> NexthopKind {
    let hop = hop(gateway, index, 1);
    NexthopKind::Single {
        gateway: hop.gateway,
        index,
        encap: None,
    }
}

fn nexthops() -> Vec<Nexthop> {
    let wrapped = NexthopKind::Single {
        gateway: Some(ip("fd00:1::2")),
        index: 2,
        encap: Some(seg6(1, &["fc00:1::1", "fc00:2::1"])),
    };
    let resilient = NexthopKind::Resilient {
        members: vec![member(1, 3), member(2, 1)],
        buckets: 8,
        idle_timer: 6000,
        unbalanced_timer: 30000,
        unbalanced_time: 0,
    };
    vec![
        nexthop(20, wrapped),
        nexthop(13, resilient),
        Nexthop {
            protocol: 186,
            ..nexthop(1, single("10.0.1.2", 2))
        },
        nexthop(2, single("10.0.2.2", 3)),
        nexthop(3, single("fd00:1::2", 2)),
        nexthop(4, single("fd00:2::2", 3)),
        nexthop(5, NexthopKind::Blackhole),
        nexthop(6, single("", 4)),
        Nexthop {
            flags: 4,
            ..nexthop(7, single("fe80::7", 4))
        },
        nexthop(10, NexthopKind::Group(vec![member(1, 1), member(2, 1)])),
        nexthop(11, NexthopKind::Group(vec![member(1, 3), member(2, 1)])),
        nexthop(12, NexthopKind::Group(vec![member(3, 1), member(4, 1)])),
    ]
}

fn buckets() -> Vec<Bucket> {
    let bucket = |index| Bucket {
        group: 13,
        index,
        nexthop: if index < 2 { 2 } else { 1 },
        idle_time: 22,
        flags: 0,
    };
    (0..8).rev().map(bucket).collect()
}

fn neighbours() -> Vec<Neighbour> {
    let neighbour = |dst: &str, index, last, state, flags| Neighbour {
        index,
        dst: ip(dst),
        mac: Some([2, 0, 0, 0, 0, last]),
        state,
        flags,
        protocol: 0,
    };
    vec![
        neighbour("fd00:3::2", 4, 3, 2, 0x80),
        neighbour("10.0.2.2", 3, 2, 0x80, 0),
        neighbour("10.0.3.2", 4, 3, 0x80, 0),
        neighbour("10.0.1.2", 2, 1, 0x80, 0),
        Neighbour {
            protocol: 11,
            ..neighbour("10.0.1.99", 2, 0x99, 4, 0x10)
        },
        neighbour("fd00:1::2", 2, 1, 2, 0x80),
        neighbour("fd00:2::2", 3, 2, 2, 0x80),
    ]
}

fn routes4() -> Vec<Route> {
    let multipath = |hops: &[RouteNexthop]| RouteTarget::Multipath(hops.to_vec());
    let object = RouteTarget::Object;
    let reject = |dst, kind| Route {
        kind,
        ..route(dst, RouteTarget::None)
    };
    let local = |dst: &str, kind, index, scope, src: &str| Route {
        kind,
        table: 255,
        protocol: 2,
        scope,
        prefsrc: Some(ip(src)),
        ..route(dst, via("", index))
    };
    let connected = |dst: &str, index, src: &str| Route {
        kind: RouteKind::Unicast,
        table: 254,
        ..local(dst, RouteKind::Unicast, index, 253, src)
    };
    use RouteKind::{Blackhole, Broadcast, Local, Prohibit, Throw, Unreachable};
    let onlink = RouteTarget::Single(RouteNexthop {
        flags: 4,
        ..hop("10.0.9.9", 2, 1)
    });
    let mut routes = vec![
        Route {
            table: 100,
            ..route("0.0.0.0/0", via("10.0.1.2", 2))
        },
        Route {
            table: 100,
            ..reject("203.0.113.224/27", Throw)
        },
        connected("10.0.1.0/24", 2, "10.0.1.1"),
        connected("10.0.2.0/24", 3, "10.0.2.1"),
        connected("10.0.3.0/24", 4, "10.0.3.1"),
        Route {
            tos: 0x10,
            prefsrc: Some(ip("10.0.1.1")),
            metrics: vec![(8, 1360), (2, 1400)],
            ..route("100.64.0.0/10", onlink)
        },
        Route {
            scope: 253,
            ..route(
                "172.16.0.0/16",
                RouteTarget::Single(wrapped(hop("", 2, 1), seg6(1, &["fc00:1::1"]))),
            )
        },
        Route {
            protocol: 186,
            metric: 20,
            ..route("192.0.2.0/24", via("10.0.1.2", 2))
        },
        Route {
            protocol: 186,
            ..route(
                "198.51.100.0/24",
                multipath(&[hop("10.0.1.2", 2, 3), hop("10.0.2.2", 3, 1)]),
            )
        },
        Route {
            protocol: 186,
            metric: 20,
            ..route("198.51.101.0/24", object(10))
        },
        route("198.51.102.0/24", object(11)),
        route("198.51.103.0/24", object(12)),
        route("198.51.104.0/24", object(13)),
        route("198.51.105.0/24", object(1)),
        route("198.51.106.0/24", via("fd00:1::2", 2)),
        route(
            "198.51.107.0/24",
            multipath(&[hop("fd00:1::2", 2, 1), hop("10.0.2.2", 3, 1)]),
        ),
        reject("203.0.113.0/25", Blackhole),
        Route {
            metric: 77,
            ..reject("203.0.113.128/26", Unreachable)
        },
        reject("203.0.113.192/27", Prohibit),
    ];
    for n in 1..=3 {
        let own = format!("10.0.{n}.1");
        routes.push(local(&format!("{own}/32"), Local, n + 1, 254, &own));
        routes.push(local(
            &format!("10.0.{n}.255/32"),
            Broadcast,
            n + 1,
            253,
            &own,
        ));
    }
    routes.push(local("127.0.0.0/8", Local, 1, 254, "127.0.0.1"));
    routes.push(local("127.0.0.1/32", Local, 1, 254, "127.0.0.1"));
    routes.push(local("127.255.255.255/32", Broadcast, 1, 253, "127.0.0.1"));
    routes
}

fn routes6() -> Vec<Route> {
    let object = RouteTarget::Object;
    let two = ["fc00:1::1", "fc00:2::1"];
    let single = |hop| RouteTarget::Single(hop);
    let sid = |n: u32, encap| {
        route(
            &format!("fc00:a::{n}/128"),
            single(wrapped(hop("", 2, 1), encap)),
        )
    };
    let mut routes = vec![
        route(
            "2001:db8:1::/48",
            RouteTarget::Multipath(vec![hop("fd00:1::2", 2, 2), hop("fd00:2::2", 3, 1)]),
        ),
        Route {
            protocol: 186,
            ..route("2001:db8:2::/48", object(12))
        },
        route(
            "2001:db8:3::/48",
            single(wrapped(hop("", 2, 1), seg6(1, &two))),
        ),
        route(
            "2001:db8:4::/48",
            single(wrapped(
                hop("fd00:1::2", 2, 1),
                seg6(0, &["fc00:1::1", "::"]),
            )),
        ),
        route("2001:db8:5::/48", object(20)),
        route(
            "2001:db8:6::/48",
            single(wrapped(hop("", 2, 1), seg6(3, &two))),
        ),
        route(
            "2001:db8:7::/48",
            RouteTarget::Multipath(vec![
                wrapped(hop("fd00:1::2", 2, 1), seg6(1, &["fc00:1::1"])),
                wrapped(hop("fd00:2::2", 3, 1), seg6(1, &["fc00:2::1"])),
            ]),
        ),
        sid(1, seg6local(1, &[])),
        sid(2, seg6local(2, &[(5, octets("fd00:1::2"))])),
        sid(3, seg6local(3, &[(3, 100_u32.to_ne_bytes().to_vec())])),
        sid(4, seg6local(6, &[(4, octets("10.0.1.2"))])),
        sid(5, seg6local(5, &[(5, octets("fd00:1::2"))])),
        sid(6, seg6local(7, &[(3, 254_u32.to_ne_bytes().to_vec())])),
        sid(8, seg6local(10, &[(2, srh(&["fc00:b::1", "fc00:b::2"]))])),
    ];
    let kernel = |dst: &str, index, metric| Route {
        protocol: 2,
        metric,
        ..route(dst, via("", index))
    };
    let local = |dst: &str, kind, index, metric| Route {
        table: 255,
        kind,
        ..kernel(dst, index, metric)
    };
    use RouteKind::{Anycast, Local, Multicast};
    routes.push(local("::1/128", Local, 1, 0));
    for n in 1..=3 {
        routes.push(kernel(&format!("fd00:{n}::/64"), n + 1, 256));
        routes.push(kernel("fe80::/64", n + 1, 256));
        routes.push(local(&format!("fd00:{n}::1/128"), Local, n + 1, 0));
        routes.push(local(&format!("fd00:{n}::/128"), Anycast, n + 1, 0));
        routes.push(local("ff00::/8", Multicast, n + 1, 256));
    }
    routes
}

impl World {
    fn new() -> World {
        // Back to front, so that nothing is in order by chance.
        let mut routes = routes4();
        routes.extend(
            routes6()
                .into_iter()
                .filter(|route| route.dst.prefix_len() != 64),
        );
        routes.reverse();
        // Routes of equal keys stay in their order.
        routes.extend(
            routes6()
                .into_iter()
                .filter(|route| route.dst.prefix_len() == 64),
        );
        let (multicast, others): (Vec<_>, Vec<_>) = routes
            .into_iter()
            .partition(|route| route.kind == RouteKind::Multicast);
        routes = others;
        routes.extend(multicast.into_iter().rev());
        let links = vec![
            link(1, "lo"),
            link(2, "eth1"),
            link(3, "eth2"),
            link(4, "eth3"),
        ];
        World {
            links,
            nexthops: nexthops(),
            buckets: buckets(),
            neighbours: neighbours(),
            routes,
            clock: 0,
            figures: None,
        }
    }

    /// A world with just these routes, and the links and nexthops of the full one.
    fn with(routes: &[Route]) -> World {
        World {
            routes: routes.to_vec(),
            ..World::new()
        }
    }

    fn try_show(&self, line: &str) -> Result<String, Error> {
        Ok(String::from_utf8(self.bytes(line)?).unwrap())
    }

    fn bytes(&self, line: &str) -> Result<Vec<u8>, Error> {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.written(&Command::parse(&words, Names::built_in())?)
    }

    fn print(&self, command: &Command) -> Result<String, Error> {
        Ok(String::from_utf8(self.written(command)?).unwrap())
    }

    fn written(&self, command: &Command) -> Result<Vec<u8>, Error> {
        let state = State {
            links: &self.links,
            nexthops: &self.nexthops,
            buckets: &self.buckets,
            neighbours: &self.neighbours,
            routes: &self.routes,
            clock: self.clock,
            figures: self.figures.as_ref(),
        };
        let mut bytes = Vec::new();
        command.print(&state, &mut bytes)?;
        Ok(bytes)
    }

    fn show(&self, line: &str) -> String {
        self.try_show(line)
            .unwrap_or_else(|error| panic!("{line}: {error}"))
    }
}

macro_rules! golden {
    ($($test:ident: $line:literal == $file:literal,)*) => {
        $(#[test]
        fn $test() {
            let ours = World::new().show($line);
            let expected = include_str!(concat!("golden/", $file));
            for (ours, expected) in ours.lines().zip(expected.lines()) {
                assert_eq!(ours, expected, "{}", $line);
            }
            assert_eq!(ours, expected, "{}", $line);
        })*
    };
}

golden! {
    routes_of_all_tables: "route show table all" == "route_all.txt",
    routes_on_one_line: "-o route show" == "route_o.txt",
    routes_in_detail: "-d route show" == "route_d.txt",
    routes_in_json: "-j route show" == "route.json",
    routes_in_detail_in_json: "-d -j route" == "route_d.json",
    routes_of_ipv6: "-6 route show" == "route6.txt",
    routes_of_ipv6_in_detail: "-6 -d route" == "route6_d.txt",
    routes_of_ipv6_in_json: "-6 -j route" == "route6.json",
    nexthop_objects: "nexthop" == "nexthop.txt",
    nexthop_objects_in_json: "-j nexthop" == "nexthop.json",
    buckets_of_resilient_groups: "nexthop bucket show" == "nexthop_bucket.txt",
    buckets_in_json: "-j nexthop bucket" == "nexthop_bucket.json",
    nexthop_objects_in_detail: "-d nexthop" == "nexthop_d.txt",
    nexthop_objects_in_detail_in_json: "-d -j nexthop" == "nexthop_d.json",
}

/// The kernel's order of neighbours is random, so the lines are compared as a set.
#[test]
fn neighbours_as_in_ip() {
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let world = World::new();
    assert_eq!(
        sorted(&world.show("neigh")),
        sorted(include_str!("golden/neigh.txt"))
    );
    let objects = |text: &str| {
        let text = text
            .trim()
            .strip_prefix("[{")
            .unwrap()
            .strip_suffix("}]")
            .unwrap();
        let mut objects: Vec<String> = text.split("},{").map(str::to_owned).collect();
        objects.sort();
        objects
    };
    assert_eq!(
        objects(&world.show("-j neigh")),
        objects(include_str!("golden/neigh.json"))
    );
    let first = world.show("neigh").lines().next().unwrap().to_owned();
    assert_eq!(
        first,
        "10.0.1.2 dev eth1 lladdr 02:00:00:00:00:01 PERMANENT "
    );
}

mod counted;
mod live;
mod mistakes;
mod rarer;
mod selection;
