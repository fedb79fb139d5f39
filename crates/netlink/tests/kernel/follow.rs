//! The mirror follows what is announced.

use std::net::IpAddr;

use raddle_netlink::{Mirror, Socket};
use raddle_rib::event::*;

use crate::shown;
use crate::state::State;
use crate::support::{Follower, in_namespace, index_of, ip, links, sysctl};

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
        follower.step_by_step(
            "route add 10.9.0.0/16 via 10.0.0.2
             route append 10.9.0.0/16 via 10.0.1.2
             route prepend 10.9.0.0/16 via 10.0.1.3
             route replace 10.9.0.0/16 nexthop via 10.0.0.4 nexthop via 10.0.1.4 weight 256
             route add 10.9.0.0/16 via 10.0.0.2 metric 5
             route del 10.9.0.0/16 via 10.0.0.2
             route del 10.9.0.0/16 via 10.0.1.2
             route add unreachable 10.8.0.0/16 table 1000
             route add throw default table 1000
             -4 route add default via inet6 2001:db8::5 dev v0
             -4 route replace default via 10.0.0.7 mtu 1300
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
        follower.step_by_step(
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
        follower.step_by_step(
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

#[test]
fn follows_links_neighbours_rules_and_addresses() {
    in_namespace("follows_links_neighbours_rules_and_addresses", || {
        links(1);
        let mut follower = Follower::new();
        let (v0, rules) = (index_of("v0"), follower.state.rules.len());
        let neighbours = |state: &State| {
            let (ours, theirs) = (state.neighbours_text(), shown::neighbours());
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
        ip(
            "-6 rule add not to 2001:db8::/32 ipproto tcp sport 5-7 dport 80 tos 0x10 lookup 100 pref 78",
        );
        let count = |n| {
            move |s: &State| match s.rules.len() {
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
        assert_eq!(rule.other, [raddle_netlink::codec::RULE_OTHER_INVERT]);
        let ports = (rule.sport, rule.dport);
        assert_eq!(ports, (Some((5, 7)), Some((80, 80))));
        assert_eq!((rule.ip_proto, rule.tos), (Some(6), 0x10));
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
                ("ipv4/ip_forward_use_pmtu", "1"),
                ("ipv4/route/min_pmtu", "600"),
                ("ipv4/ip_local_port_range", "40000 50000"),
                ("ipv4/ip_default_ttl", "77"),
                ("ipv4/conf/v0/forwarding", "1"),
                ("ipv6/conf/all/forwarding", "1"),
                ("ipv4/conf/all/rp_filter", "2"),
                ("ipv4/conf/v0/rp_filter", "1"),
                ("ipv4/conf/all/accept_local", "1"),
                ("ipv4/conf/all/send_redirects", "0"),
                ("ipv4/conf/v0/send_redirects", "0"),
                ("ipv6/conf/v0/ignore_routes_with_linkdown", "1"),
                ("ipv6/conf/v0/mtu", "1300"),
                ("ipv6/seg6_flowlabel", "-1"),
                ("ipv6/conf/v0/seg6_require_hmac", "-1"),
                ("ipv6/conf/v0/hop_limit", "77"),
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
            forward_use_pmtu: true,
            min_pmtu: 600,
            seg6_flowlabel: -1,
            tunsrc: None,
            local_ports: (40_000, 50_000),
            default_ttl: 77,
        };
        let device = DeviceSettings {
            forwarding4: true,
            forwarding6: true,
            rp_filter: 2,
            ignore_linkdown4: false,
            ignore_linkdown6: true,
            send_redirects: false,
            accept_local: true,
            mtu6: 1300,
            seg6_require_hmac: -1,
            hop_limit: Some(77),
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

/// Forwarding is on, but the kernel drops IPv6 from these links (`ip6_rcv_core`).
#[test]
fn a_link_that_takes_no_ipv6_forwards_none() {
    in_namespace("a_link_that_takes_no_ipv6_forwards_none", || {
        links(2);
        sysctl("ipv6/conf/all/forwarding", "1");
        let indices = [index_of("v0"), index_of("v1")];
        let mut follower = Follower::new();
        let mut forwards = |what: &str, expected: [bool; 2]| {
            follower.until(what, |s| {
                let now = indices.map(|i| s.devices.get(&i).is_some_and(|d| d.forwarding6));
                if now == expected {
                    Ok(())
                } else {
                    Err(format!("{now:?}"))
                }
            });
        };
        forwards("forwarding is on", [true, true]);
        sysctl("ipv6/conf/v0/disable_ipv6", "1");
        forwards("IPv6 is disabled", [false, true]);
        ip("link set v1 mtu 1200");
        forwards("the MTU is too small for IPv6", [false, false]);
        ip("link set v1 mtu 1500");
        sysctl("ipv6/conf/v0/disable_ipv6", "0");
        forwards("both are back", [true, true]);
    });
}
