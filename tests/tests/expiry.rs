//! IPv6 routes that expire: from their time on the kernel passes them over, and tells of it half a minute later.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use raddle_e2e::frame::{self, Flow};
use raddle_e2e::{Crafted, Daemon, PacketSocket, World, root, within};
use raddle_packet::checksum::checksum;

/// Generous, because machines are busy.
const LIMIT: Duration = Duration::from_secs(60);
/// The link of the route that expires, and of what is below it.
const EXPIRING: &str = "sink-2";
const BELOW: &str = "sink";

/// A router with a daemon, and a flow that a route leads to which expires.
struct Expiring<'a> {
    world: &'a World,
    daemon: Daemon<'a>,
    flow: Flow,
    frames: Vec<Crafted>,
}

/// Where a packet went.
#[derive(Debug)]
struct Went {
    link: Option<String>,
    by_kernel: bool,
}

impl Went {
    fn by_xdp(&self, by: &str) -> bool {
        self.link.as_deref() == Some(by) && !self.by_kernel
    }
}

impl<'a> Expiring<'a> {
    fn new(world: &'a World, dst: &str) -> Expiring<'a> {
        // Nothing is collected before the test says so.
        world.sysctl("net.ipv6.route.gc_interval", "3600");
        let flow = Flow {
            src: "2001:db8:1:1::2".parse().unwrap(),
            dst: dst.parse().unwrap(),
            proto: 17,
            sport: 20_000,
            dport: 30_000,
        };
        Expiring {
            world,
            daemon: Daemon::start(world, &[]),
            flow,
            frames: world.frames(&[flow]),
        }
    }

    /// Sends a packet.
    fn probe(&self) -> Went {
        let before = self.world.kernel_forwarded();
        let arrivals = self
            .world
            .transmit_for(&self.frames, Duration::from_millis(15));
        Went {
            link: arrivals[0].first().map(|arrival| arrival.link.clone()),
            by_kernel: self.world.kernel_forwarded() > before,
        }
    }

    fn choice(&self) -> Option<String> {
        self.world.kernel_choice(&self.flow)
    }

    /// Sends a packet, which has to go where the kernel sends such packets at this moment. Where that is.
    fn probe_agrees(&self) -> Option<String> {
        let choice = self.choice();
        let went = self.probe();
        // It may be lost on its way.
        if went.link.is_some() && choice == self.choice() {
            assert_eq!(went.link, choice, "{went:?}");
        }
        choice
    }

    /// Waits until XDP forwards by this link.
    fn until_xdp(&self, by: &str) {
        let ask = || {
            let went = self.probe();
            match went.by_xdp(by) {
                true => Ok(()),
                false => Err(format!("{went:?}: {}", self.daemon.counters())),
            }
        };
        within(LIMIT, ask);
    }

    /// Probes until the route has expired, and for some time beyond that.
    fn until_expired(&self) {
        within(LIMIT, || match self.probe_agrees().as_deref() {
            Some(BELOW) => Ok(()),
            choice => Err(format!("{choice:?}")),
        });
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(1_500) {
            self.probe_agrees();
        }
        // What was left to the kernel was counted.
        let left = self.daemon.reason("expiring");
        assert!(left > 0, "{}", self.daemon.counters());
    }
}

#[test]
fn an_expired_route_is_left_in_time() {
    if !root("an_expired_route_is_left_in_time") {
        return;
    }
    let world = World::new("expired", 2);
    let [below, via] = [1, 2].map(|n| world.gateway(n).1);
    world.ip(&format!("-6 route replace 2001:db8:9::/48 via {below}"));
    let e = Expiring::new(&world, "2001:db8:9:7::1");
    e.until_xdp(BELOW);
    let route = format!("2001:db8:9:7::/64 via {via} expires");
    world.ip(&format!("-6 route add {route} 300"));
    e.until_xdp(EXPIRING);
    let shown = world.raddle(&["-6", "route", "show", "2001:db8:9:7::/64"]);
    assert!(shown.stdout.contains(" expires 29"), "{}", shown.stdout);
    world.ip(&format!("-6 route replace {route} 3"));
    e.until_expired();
    // The kernel has the route still.
    let shown = world.ip("-6 route show 2001:db8:9:7::/64");
    assert!(shown.contains("expires -"), "{shown}");
    let asked = world.raddle_json(&["explain", "-j", "2001:db8:9:7::1", "iif", "source"]);
    assert_eq!(asked["reason"], "expiring", "{asked}");
    assert_ne!(asked["confidence"], "exact", "{asked}");
    // Collected, it is announced as gone.
    world.sysctl("net.ipv6.route.flush", "1");
    e.until_xdp(BELOW);
}

/// A router advertisement by the router's neighbour on its link `sink-2`: a default route for so many seconds.
fn advertise(socket: &PacketSocket, world: &World, from: Ipv6Addr, seconds: u16) {
    let to = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let mut body = vec![134, 0, 0, 0, 64, 0];
    body.extend(seconds.to_be_bytes());
    body.extend([0; 8]);
    let length = (body.len() as u32).to_be_bytes();
    let pseudo = [
        &from.octets()[..],
        &to.octets(),
        &length,
        &[0, 0, 0, 58],
        &body,
    ]
    .concat();
    body[2..4].copy_from_slice(&checksum(&pseudo).to_be_bytes());
    let packet = frame::ipv6(from, to, 58, 255, 0, &body);
    let all = [0x33, 0x33, 0, 0, 0, 1];
    let mac = world.mac("sink", "router-2");
    socket
        .send(&[&all[..], &mac, &[0x86, 0xdd], &packet].concat())
        .unwrap();
}

#[test]
fn advertised_routes_last_as_long_as_they_are_advertised() {
    if !root("advertised_routes_last_as_long_as_they_are_advertised") {
        return;
    }
    let world = World::new("advertised", 2);
    let below = world.gateway(1).1;
    world.ip(&format!("-6 route add default via {below} metric 2048"));
    world.sysctl("net.ipv6.conf.sink-2.accept_ra", "2");
    let from: Ipv6Addr = "fe80::7".parse().unwrap();
    let mac = world
        .mac("sink", "router-2")
        .map(|b| format!("{b:02x}"))
        .join(":");
    world.ip(&format!(
        "neigh replace {from} lladdr {mac} dev sink-2 nud permanent"
    ));
    let socket = world
        .lab()
        .within("sink", || PacketSocket::open("router-2"));
    let socket = socket.unwrap().unwrap();
    let e = Expiring::new(&world, "2001:db8:aa::1");
    e.until_xdp(BELOW);
    // The first advertisement is announced. The others are not, and let the route last longer: engines use it after
    // the time at which it would have expired.
    let first = Instant::now();
    let mut next = first;
    within(LIMIT, || {
        if next <= Instant::now() {
            advertise(&socket, &world, from, 3);
            next = Instant::now() + Duration::from_millis(500);
        }
        let late = first.elapsed() > Duration::from_secs(6);
        let went = e.probe();
        match late && went.by_xdp(EXPIRING) {
            true => Ok(()),
            false => Err(format!("{went:?}: {}", e.daemon.counters())),
        }
    });
    // Nobody advertises it any more.
    e.until_expired();
}

#[test]
fn an_address_that_no_longer_lasts_takes_its_route_along() {
    if !root("an_address_that_no_longer_lasts_takes_its_route_along") {
        return;
    }
    let world = World::new("lifetime", 2);
    let below = world.gateway(1).1;
    world.ip(&format!("-6 route add 2001:db8::/32 via {below}"));
    let mac = world
        .mac("sink", "router-2")
        .map(|b| format!("{b:02x}"))
        .join(":");
    world.ip(&format!(
        "neigh replace 2001:db8:5::9 lladdr {mac} dev sink-2 nud permanent"
    ));
    let e = Expiring::new(&world, "2001:db8:5::9");
    let address = "2001:db8:5::1/64 dev sink-2";
    world.ip(&format!("addr add {address} nodad"));
    e.until_xdp(EXPIRING);
    // This gives the prefix's route a time, too, without a word about it; by Linux 6.18 one that is long past.
    world.ip(&format!(
        "addr change {address} valid_lft 3 preferred_lft 3"
    ));
    within(LIMIT, || match e.probe().link.as_deref() {
        Some(BELOW) => Ok(()),
        link => Err(format!("{link:?}")),
    });
    e.until_expired();
    let shown = world.ip("-6 route show 2001:db8:5::/64");
    assert!(shown.contains("expires -"), "{shown}");
    world.sysctl("net.ipv6.route.flush", "1");
    e.until_xdp(BELOW);
}
