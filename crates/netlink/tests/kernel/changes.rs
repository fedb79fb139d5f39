//! The mirror finds out what is not announced, and what got lost.

use std::time::Duration;

use raddle_netlink::{Mirror, Socket};

use crate::support::{Follower, in_namespace, index_of, ip, links, route};

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
        follower.step_by_step(
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

/// The notification that a link is down comes before the kernel takes its routes away, which takes
/// a while when there are many. A dump must not come in between.
#[test]
fn many_routes_that_go_at_once_are_gone() {
    in_namespace("many_routes_that_go_at_once_are_gone", || {
        links(1);
        let index = index_of("v0");
        Socket::open()
            .unwrap()
            .install_routes((0..60_000).map(|n| route(n, 0, index)))
            .unwrap();
        let mut follower = Follower::new();
        assert!(follower.state.routes_text().len() > 60_000);
        ip("link set v0 down");
        follower.agrees("after the link went down");
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
