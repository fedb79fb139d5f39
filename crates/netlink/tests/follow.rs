//! A mirror against the kernel it mirrors, in namespaces of their own.

mod support;

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use raddle_netlink::{Mirror, RouteQuery, Socket};
use raddle_rib::event::*;

use support::{Follower, in_namespace, ip, kernel, links, sysctl};

/// Runs each command and compares after each.
fn step_by_step(follower: &mut Follower, commands: &str) {
    for command in commands.lines().map(str::trim).filter(|c| !c.is_empty()) {
        ip(command);
        follower.agrees(command);
    }
}

#[test]
fn starts_with_what_is_there() {
    in_namespace("starts_with_what_is_there", || {
        links(2);
        ip("route add 10.9.0.0/16 nexthop via 10.0.0.2 weight 3 nexthop via 10.0.1.2");
        ip("route add 10.8.0.0/16 via inet6 2001:db8::9 dev v0 table 70000 metric 7 mtu 1400");
        ip("route add blackhole 10.7.0.0/16");
        ip(
            "-6 route add 2001:db8:9::/48 nexthop via 2001:db8::2 weight 3 nexthop via 2001:db8:1::2",
        );
        ip("nexthop add id 1 via 10.0.0.2 dev v0");
        ip("nexthop add id 2 via 10.0.1.2 dev v1");
        ip("nexthop add id 3 group 1,200/2");
        ip("nexthop add id 4 group 1/2 type resilient buckets 16");
        ip("nexthop add id 5 blackhole");
        ip("route add 10.6.0.0/16 nhid 3");
        let mut follower = Follower::new();
        follower.agrees("initial state");
        assert_eq!(follower.state.buckets.len(), 16);
        assert_eq!(follower.state.rules.len(), 5);
        let v0 = follower
            .state
            .links
            .values()
            .find(|l| l.name == "v0")
            .unwrap();
        assert!(v0.is_up() && v0.has_carrier() && v0.is_ethernet() && v0.mac.is_some());
        assert_eq!(
            (v0.kind.as_deref(), v0.mtu, v0.qdisc.as_str()),
            (Some("veth"), 1500, "noqueue")
        );
        assert!(
            follower
                .state
                .addresses
                .iter()
                .any(|a| a.local == IpAddr::from([10, 0, 1, 1]))
        );
        assert_eq!(follower.mirror.stats().malformed, 0);
    });
}

#[test]
fn follows_ipv4_routes() {
    in_namespace("follows_ipv4_routes", || {
        links(2);
        let mut follower = Follower::new();
        step_by_step(
            &mut follower,
            "route add 10.9.0.0/16 via 10.0.0.2
             route append 10.9.0.0/16 via 10.0.1.2
             route prepend 10.9.0.0/16 via 10.0.1.3
             route replace 10.9.0.0/16 nexthop via 10.0.0.4 nexthop via 10.0.1.4 weight 256
             route add 10.9.0.0/16 via 10.0.0.2 metric 5
             route del 10.9.0.0/16 via 10.0.0.2
             route del 10.9.0.0/16 via 10.0.1.2
             route add unreachable 10.8.0.0/16 table 1000
             route add throw default table 1000
             route add default via inet6 2001:db8::5 dev v0
             route replace default via 10.0.0.7 mtu 1300
             addr add 10.5.0.1/24 dev v0
             route add 10.4.0.0/24 dev v0 src 10.5.0.1
             addr del 10.5.0.1/24 dev v0
             route flush table 1000",
        );
    });
}

#[test]
fn follows_ipv6_routes_and_their_order() {
    in_namespace("follows_ipv6_routes_and_their_order", || {
        links(2);
        let mut follower = Follower::new();
        step_by_step(
            &mut follower,
            "-6 route add 2001:db8:9::/48 via 2001:db8::2
             -6 route append 2001:db8:9::/48 via 2001:db8:1::2
             -6 route append 2001:db8:9::/48 via 2001:db8:1::3
             -6 route prepend 2001:db8:9::/48 via 2001:db8:1::4
             -6 route append 2001:db8:9::/48 nexthop via 2001:db8::5 nexthop via 2001:db8::6
             -6 route del 2001:db8:9::/48 via 2001:db8:1::2
             -6 route replace 2001:db8:9::/48 nexthop via 2001:db8::9 weight 7 nexthop via 2001:db8:1::9
             -6 route add 2001:db8:9::/48 via 2001:db8::2 metric 5
             -6 route del 2001:db8:9::/48 metric 1024
             -6 route add 2001:db8:8::/48 dev v0
             -6 route append 2001:db8:8::/48 dev v1
             -6 route add prohibit 2001:db8:7::/48 table 2000
             -6 addr add 2001:db8:a::1/64 dev v1 nodad
             -6 addr del 2001:db8:a::1/64 dev v1",
        );
    });
}

#[test]
fn follows_nexthop_objects() {
    in_namespace("follows_nexthop_objects", || {
        links(2);
        let mut follower = Follower::new();
        step_by_step(
            &mut follower,
            "nexthop add id 1 via 10.0.0.2 dev v0
             nexthop add id 2 via 10.0.1.2 dev v1
             nexthop add id 3 via 2001:db8::2 dev v0
             nexthop add id 4 blackhole
             nexthop add id 10 group 1/2,7
             nexthop add id 11 group 1/2 type resilient buckets 8 idle_timer 1
             route add 10.9.0.0/16 nhid 10
             route add 10.8.0.0/16 nhid 11
             route add 10.7.0.0/16 nhid 4
             nexthop replace id 10 group 1,9/2
             nexthop replace id 11 group 2 type resilient
             nexthop replace id 11 group 1,3/2 type resilient
             nexthop replace id 1 via 10.0.0.77 dev v0
             nexthop del id 1
             nexthop add id 1 via 10.0.0.2 dev v0
             nexthop replace id 10 group 1/2
             nexthop del id 10
             nexthop del id 2
             nexthop flush",
        );
    });
}

/// Spec E.4: links that go take nexthops, group members and routes with them, and hardly a word is
/// said about it.
#[test]
fn silent_changes_are_found_again() {
    in_namespace("silent_changes_are_found_again", || {
        links(3);
        ip("nexthop add id 1 via 10.0.0.2 dev v0");
        ip("nexthop add id 2 via 10.0.1.2 dev v1");
        ip("nexthop add id 3 via 10.0.2.2 dev v2");
        ip("nexthop add id 4 via 2001:db8:1::2 dev v1");
        ip("nexthop add id 10 group 1/2");
        ip("nexthop add id 11 group 2");
        ip("nexthop add id 12 group 1/2 type resilient buckets 4");
        ip("route add 10.9.0.0/16 nhid 10");
        ip("route add 10.8.0.0/16 nhid 11");
        ip("route add 10.7.0.0/16 nhid 12");
        ip("route add 10.6.0.0/16 via 10.0.1.7");
        ip("route add 10.5.0.0/16 nexthop via 10.0.0.2 nexthop via 10.0.1.2");
        ip("-6 route add 2001:db8:9::/48 nhid 4");
        ip("-6 route add 2001:db8:8::/48 nexthop via 2001:db8::2 nexthop via 2001:db8:1::2");
        ip("nexthop add id 13 group 3");
        ip("route add 10.4.0.0/16 nhid 13");
        let mut follower = Follower::new();
        follower.agrees("initial state");
        step_by_step(
            &mut follower,
            "link set p1 down
             link set p1 up
             nexthop add id 2 via 10.0.1.2 dev v1
             nexthop replace id 10 group 1/2
             nexthop replace id 12 group 1/2 type resilient
             link set v1 down
             link set v1 up
             addr del 10.0.0.1/24 dev v0
             nexthop del id 3
             link del v0
             link set v2 name vx
             link del v1",
        );
        assert_eq!(follower.mirror.stats().malformed, 0);
        assert_eq!(follower.mirror.stats().overruns, 0);
    });
}

#[test]
fn lost_notifications_are_made_good() {
    in_namespace("lost_notifications_are_made_good", || {
        links(2);
        let index = index_of("v0");
        let mut follower = Follower::with(Mirror::with_receive_buffer(1).unwrap());
        let mut socket = Socket::open().unwrap();
        for round in 0..3u8 {
            let routes = (0..2000u32).map(|n| route(n, round, index));
            socket.install_routes(routes).unwrap();
            ip(&format!("route del 20.0.{round}.0/24"));
            ip("link set p1 down");
            follower.agrees("after a flood");
            ip("link set p1 up");
        }
        assert!(
            follower.mirror.stats().overruns > 0,
            "the flood did not overflow the buffer"
        );
    });
}

#[test]
fn follows_while_the_kernel_is_busy() {
    in_namespace("follows_while_the_kernel_is_busy", || {
        links(2);
        let index = index_of("v0");
        ip("nexthop add id 1 via 10.0.1.2 dev v1");
        let mut follower = Follower::new();
        let mut socket = Socket::open().unwrap();
        for round in 0..10u8 {
            // Sweeps run into floods of notifications, which have to come behind them.
            ip(if round % 2 == 0 {
                "link set p1 down"
            } else {
                "link set p1 up"
            });
            socket
                .install_routes((0..3000u32).map(|n| route(n, round, index)))
                .unwrap();
            follower.follow(Duration::from_millis(1));
        }
        follower.agrees("at the end");
        assert_eq!(follower.mirror.stats().overruns, 0);
    });
}

/// Route `n` of 2000, with a gateway that tells the rounds apart.
fn route(n: u32, round: u8, index: u32) -> Route {
    let dst: IpNet = format!("20.{}.{}.0/24", n >> 8, n & 255).parse().unwrap();
    let hop = RouteNexthop {
        gateway: Some(IpAddr::from([10, 0, 0, 100 + round])),
        index,
        weight: 1,
        ..RouteNexthop::default()
    };
    Route {
        table: 254,
        dst,
        src: None,
        tos: 0,
        protocol: 186,
        scope: 0,
        kind: RouteKind::Unicast,
        metric: 20,
        prefsrc: None,
        flags: 0,
        pref: None,
        metrics: Vec::new(),
        target: RouteTarget::Single(hop),
    }
}

fn index_of(name: &str) -> u32 {
    let text = ip(&format!("-o link show {name}"));
    text.split(':').next().unwrap().parse().unwrap()
}

#[test]
fn follows_links_neighbours_rules_and_addresses() {
    in_namespace("follows_links_neighbours_rules_and_addresses", || {
        links(1);
        let mut follower = Follower::new();
        let (v0, rules) = (index_of("v0"), follower.state.rules.len());
        let neighbours = |state: &support::state::State| {
            let (ours, theirs) = (state.neighbours_text(), kernel::neighbours());
            if ours == theirs {
                Ok(())
            } else {
                Err(format!("{ours:?} is not {theirs:?}"))
            }
        };
        for command in [
            "neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev v0",
            "neigh add fe80::2 lladdr 02:00:00:00:00:02 dev v0 nud stale",
            "neigh replace 10.0.0.2 lladdr 02:00:00:00:00:03 dev v0 nud reachable",
            "neigh del fe80::2 dev v0",
            "neigh flush dev v0",
        ] {
            ip(command);
            follower.until(command, neighbours);
        }
        // Nobody answers at 10.0.0.9. (That it is being resolved is not announced; that it has
        // failed is.)
        sysctl("ipv4/neigh/v0/mcast_solicit", "1");
        Socket::open()
            .unwrap()
            .use_neighbour(v0, IpAddr::from([10, 0, 0, 9]))
            .unwrap();
        follower.until("use_neighbour", |s| {
            let n = s.neighbours.get(&(v0, IpAddr::from([10, 0, 0, 9])));
            if n.is_some_and(|n| n.state == 0x20) {
                Ok(())
            } else {
                Err(format!("{n:?}"))
            }
        });

        ip("rule add from 10.0.0.0/8 fwmark 1/0xff iif v0 lookup 70000 pref 77");
        ip("-6 rule add not to 2001:db8::/32 sport 5-7 lookup 100 pref 78");
        let count = |n| {
            move |s: &support::state::State| match s.rules.len() {
                len if len == n => Ok(()),
                len => Err(format!("{len} rules, not {n}")),
            }
        };
        follower.until("rules added", count(rules + 2));
        let rule = follower
            .state
            .rules
            .iter()
            .find(|r| r.priority == 77)
            .unwrap();
        assert_eq!(
            (rule.table, rule.fwmark, rule.iif.as_deref()),
            (70000, Some((1, 255)), Some("v0"))
        );
        assert!(rule.other.is_empty());
        let rule = follower
            .state
            .rules
            .iter()
            .find(|r| r.priority == 78)
            .unwrap();
        assert_eq!(rule.other, [raddle_netlink::codec::RULE_OTHER_INVERT, 23]);
        ip("rule del pref 77");
        ip("-6 rule del pref 78");
        follower.until("rules deleted", count(rules));

        ip("link set v0 mtu 1400");
        ip("link set v0 name vx");
        ip("addr add 10.0.9.1/32 peer 10.0.9.2/32 dev vx");
        follower.until("link and address", |s| {
            let link = &s.links[&v0];
            let address = s
                .addresses
                .iter()
                .find(|a| a.local == IpAddr::from([10, 0, 9, 1]));
            if (link.mtu, link.name.as_str()) == (1400, "vx")
                && address.is_some_and(|a| a.peer == Some(IpAddr::from([10, 0, 9, 2])))
            {
                Ok(())
            } else {
                Err(format!("{link:?} {address:?}"))
            }
        });
    });
}

/// Settings are those of the namespace in which the mirror was opened, wherever it is polled.
#[test]
fn follows_settings_of_its_own_namespace() {
    let (send, receive) = std::sync::mpsc::channel();
    let (done, until_done) = std::sync::mpsc::channel::<()>();
    let body = move || {
        in_namespace("follows_settings_of_its_own_namespace", move || {
            links(1);
            sysctl("ipv4/fib_multipath_hash_seed", "4000000000");
            send.send((Mirror::open().unwrap(), index_of("v0")))
                .unwrap();
            for (path, value) in [
                ("ipv4/fib_multipath_hash_policy", "1"),
                ("ipv6/fib_multipath_hash_policy", "1"),
                ("ipv4/fib_multipath_use_neigh", "1"),
                ("ipv4/conf/v0/forwarding", "1"),
                ("ipv6/conf/all/forwarding", "1"),
                ("ipv4/conf/all/rp_filter", "2"),
                ("ipv4/conf/v0/rp_filter", "1"),
                ("ipv4/conf/all/accept_local", "1"),
                ("ipv4/conf/all/send_redirects", "0"),
                ("ipv4/conf/v0/send_redirects", "0"),
                ("ipv6/conf/v0/ignore_routes_with_linkdown", "1"),
            ] {
                sysctl(path, value);
            }
            let _ = until_done.recv();
        });
    };
    let thread = std::thread::spawn(body);
    // Without root the other side hangs up.
    if let Ok((mirror, v0)) = receive.recv() {
        let mut follower = Follower::with(mirror);
        let settings = Settings {
            hash_policy4: 1,
            hash_policy6: 1,
            hash_fields4: 7,
            hash_fields6: 7,
            hash_seed: 4_000_000_000,
            use_neigh: true,
            forward_use_pmtu: false,
        };
        let device = DeviceSettings {
            forwarding4: true,
            forwarding6: true,
            rp_filter: 2,
            ignore_linkdown4: false,
            ignore_linkdown6: true,
            send_redirects: false,
            accept_local: true,
        };
        follower.until("settings", |s| {
            if s.settings == settings && s.devices.get(&v0) == Some(&device) {
                Ok(())
            } else {
                Err(format!("{:?} {:?}", s.settings, s.devices.get(&v0)))
            }
        });
    }
    drop(done);
    thread.join().unwrap();
}

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
            let ip = kernel::route_get(&format!(
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
                id,
                family,
                scope: 0,
                protocol: 186,
                flags: 0,
                kind,
                fdb: false,
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
