//! Questions and requests.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use raddle_netlink::{RouteQuery, Socket};
use raddle_rib::event::*;

use crate::shown;
use crate::support::{Follower, in_namespace, index_of, ip, links, route, sysctl};

#[test]
fn asks_where_packets_go() {
    in_namespace("asks_where_packets_go", || {
        links(2);
        sysctl("ipv4/fib_multipath_hash_policy", "1");
        sysctl("ipv4/conf/all/forwarding", "1");
        ip("route add 20.0.0.0/8 nexthop via 10.0.0.2 nexthop via 10.0.1.2");
        ip("route add blackhole 21.0.0.0/8");
        ip("nexthop add id 9 via 2001:db8::2 dev v0");
        ip("-6 route add 2001:db8:9::/48 nhid 9 table 100");
        ip("-6 rule add iif v1 lookup 100 pref 50");
        sysctl("ipv6/conf/all/forwarding", "1");
        let mut socket = Socket::open().unwrap();
        let v1 = index_of("v1");
        let dst = IpAddr::from([20, 1, 2, 3]);
        let mut seen = Vec::new();
        for sport in 1000..1040 {
            let query = RouteQuery {
                src: Some(IpAddr::from([10, 0, 1, 9])),
                iif: Some(v1),
                ip_proto: Some(17),
                sport: Some(sport),
                dport: Some(53),
                ..RouteQuery::default()
            };
            let answer = socket.get_route(dst, &query).unwrap();
            let ip = shown::route_get(&format!(
                "20.1.2.3 from 10.0.1.9 iif v1 ipproto 17 sport {sport} dport 53"
            ));
            assert_eq!(
                answer.gateway.unwrap().to_string(),
                ip["gateway"].as_str().unwrap()
            );
            assert_eq!((answer.kind, answer.table), (RouteKind::Unicast, 254));
            seen.push(answer.index);
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen, [index_of("v0"), v1]);

        let whole = RouteQuery {
            fib_match: true,
            ..RouteQuery::default()
        };
        let answer = socket.get_route(dst, &whole).unwrap();
        assert_eq!(answer.route.dst, "20.0.0.0/8".parse::<IpNet>().unwrap());
        assert!(matches!(&answer.route.target, RouteTarget::Multipath(hops) if hops.len() == 2));

        let six = RouteQuery {
            iif: Some(v1),
            ..RouteQuery::default()
        };
        let answer = socket
            .get_route("2001:db8:9::1".parse().unwrap(), &six)
            .unwrap();
        assert_eq!(answer.table, 100);
        assert_eq!(answer.gateway, Some("2001:db8::2".parse().unwrap()));
        let six = RouteQuery {
            fib_match: true,
            ..six
        };
        let answer = socket
            .get_route("2001:db8:9::1".parse().unwrap(), &six)
            .unwrap();
        assert_eq!(answer.nexthop, Some(9));

        let error = socket.get_route(IpAddr::from([21, 0, 0, 1]), &RouteQuery::default());
        assert_eq!(error.unwrap_err().errno(), Some(libc::EINVAL));
        let error = socket.get_route(IpAddr::from([22, 0, 0, 1]), &RouteQuery::default());
        assert_eq!(error.unwrap_err().errno(), Some(libc::ENETUNREACH));
    });
}

/// Everything that the encoder writes, the kernel takes; and it is then what the kernel shows.
#[test]
fn the_kernel_takes_what_we_write() {
    in_namespace("the_kernel_takes_what_we_write", || {
        links(2);
        let (v0, v1) = (index_of("v0"), index_of("v1"));
        let mut follower = Follower::new();
        let mut socket = Socket::open().unwrap();
        let hop = |gateway: &str, index, weight| RouteNexthop {
            gateway: Some(gateway.parse().unwrap()),
            index,
            weight,
            ..RouteNexthop::default()
        };
        let with = |dst: &str, metric, target| Route {
            dst: dst.parse().unwrap(),
            metric,
            target,
            ..route(0, 0, 0)
        };
        let nexthop = |id, family, kind| {
            Event::Nexthop(Nexthop {
                protocol: 186,
                ..Nexthop::new(id, family, kind)
            })
        };
        let single = |gateway: &str, index| NexthopKind::Single {
            gateway: Some(gateway.parse().unwrap()),
            index,
            encap: None,
        };
        let group = |a, b| {
            vec![
                GroupMember { id: 1, weight: a },
                GroupMember { id: 2, weight: b },
            ]
        };
        let mut metrics = with(
            "10.5.0.0/16",
            3,
            RouteTarget::Single(hop("10.0.0.2", v0, 1)),
        );
        metrics.metrics = vec![(2, 1400)];
        metrics.table = 70_000;
        let hops = vec![hop("10.0.0.2", v0, 256), hop("2001:db8:1::7", v1, 2)];
        let hops6 = vec![hop("2001:db8::2", v0, 1), hop("2001:db8:1::2", v1, 9)];
        let blackhole = Route {
            kind: RouteKind::Blackhole,
            ..with("10.4.0.0/16", 0, RouteTarget::None)
        };
        let replace = 0x400 | 0x100;
        for event in [
            nexthop(1, 2, single("10.0.0.2", v0)),
            nexthop(2, 10, single("2001:db8:1::2", v1)),
            nexthop(3, 0, NexthopKind::Group(group(65_535, 256))),
            nexthop(
                4,
                0,
                NexthopKind::Resilient {
                    members: group(1, 2),
                    buckets: 12,
                    idle_timer: 500,
                    unbalanced_timer: 0,
                    unbalanced_time: 0,
                },
            ),
            nexthop(5, 2, NexthopKind::Blackhole),
            Event::Route(with("10.9.0.0/16", 0, RouteTarget::Object(3)), RouteOp::Add),
            Event::Route(
                with("10.8.0.0/16", 1, RouteTarget::Multipath(hops)),
                RouteOp::Add,
            ),
            Event::Route(metrics.clone(), RouteOp::Add),
            Event::Route(blackhole.clone(), RouteOp::Prepend),
            Event::Route(
                with("2001:db8:9::/48", 9, RouteTarget::Multipath(hops6)),
                RouteOp::Replace,
            ),
            Event::RouteGone(blackhole),
            Event::Neighbour(Neighbour {
                index: v0,
                dst: IpAddr::from([10, 0, 0, 2]),
                mac: Some([2, 0, 0, 0, 0, 2]),
                state: 0x80,
                flags: 0,
                protocol: 0,
            }),
            Event::Rule(Rule {
                family: 4,
                priority: 9,
                table: 70_000,
                action: 1,
                from: Some("10.1.0.0/16".parse().unwrap()),
                ..Rule::default()
            }),
        ] {
            let flags = match event {
                Event::Nexthop(_) | Event::Neighbour(_) | Event::Rule(_) => {
                    replace & !0x100 | 0x400
                }
                _ => 0,
            };
            socket
                .apply(&event, flags)
                .unwrap_or_else(|error| panic!("{event:?}: {error}"));
        }
        // iproute2 of Debian 12 does not know weights above 256: ask the mirror alone.
        follower.follow(Duration::from_millis(100));
        assert_eq!(
            follower.state.nexthops_text()[2],
            "3 threshold 1*65535 2*256"
        );
        socket
            .apply(&nexthop(3, 0, NexthopKind::Group(group(7, 1))), replace)
            .unwrap();
        follower.agrees("what we wrote");
        let shown = ip("route show table 70000");
        assert!(
            shown.contains("mtu 1400") && shown.contains("metric 3"),
            "{shown}"
        );
        socket.apply(&Event::NexthopGone(3), 0).unwrap();
        let error = socket.apply(&Event::NexthopGone(3), 0).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENOENT));
        follower.agrees("after taking one away");
    });
}
