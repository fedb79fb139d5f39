//! A full table: how long it takes to mirror, what it costs, and how fast one change behind it is.
//!
//! Bounds are generous, because this runs in debug builds on busy machines; the figures are printed.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv4Net};
use raddle_e2e::frame::Flow;
use raddle_e2e::{Daemon, World, root, within};
use raddle_rib::event::{Route, RouteTarget};

const ROUTES: u32 = 1_000_000;

/// The `n`th route: a /24 of its own, through nexthop group 100.
fn route(n: u32) -> Route {
    Route {
        dst: IpNet::V4(Ipv4Net::new_assert(network(n), 24)),
        protocol: 186,
        metric: 20,
        target: RouteTarget::Object(100),
        ..Route::default()
    }
}

/// From 11.0.0.0 on: the network's own addresses are in 10.0.0.0/8.
fn network(n: u32) -> Ipv4Addr {
    Ipv4Addr::from((n + 0x000b_0000) << 8)
}

#[test]
fn a_million_routes() {
    if !root("a_million_routes") {
        return;
    }
    let world = World::new("scale", 3);
    for n in 1..=3 {
        let (gateway, _) = world.gateway(n);
        world.ip(&format!(
            "nexthop add id {n} via {gateway} dev {}",
            world.out(n)
        ));
    }
    world.ip("nexthop add id 100 group 1/2");
    let start = Instant::now();
    let installed = world.netlink(|socket| socket.install_routes((0..ROUTES).map(route)));
    assert_eq!(installed.unwrap(), ROUTES as usize);
    eprintln!("installed {ROUTES} routes in {:.1?}", start.elapsed());

    let daemon = Daemon::start(&world, &[]);
    let status = daemon.status();
    let resident = daemon.resident() >> 20;
    eprintln!(
        "ready after {:.2?}, {resident} MiB resident",
        daemon.ready_after()
    );
    assert!(
        status["routes"]["inet"].as_u64().unwrap() > u64::from(ROUTES),
        "{status}"
    );
    assert_eq!(status["image"]["full"], false);
    assert!(daemon.ready_after() < Duration::from_secs(15));
    assert!(resident < 300, "{resident} MiB resident");

    let flow = |n: u32| Flow {
        src: [10, 1, 1, 2].into(),
        dst: IpAddr::V4(Ipv4Addr::from(u32::from(network(n * 10_007 % ROUTES)) + 7)),
        proto: 17,
        sport: 1000 + n as u16,
        dport: 53,
    };
    let flows: Vec<Flow> = (0..96).map(flow).collect();
    let frames = world.frames(&flows);
    let agree = |limit: Duration| {
        within(limit, || {
            let before = daemon.forwarded();
            let arrived = world.transmit_for(&frames, Duration::from_millis(15));
            for (flow, arrivals) in flows.iter().zip(&arrived) {
                let ours = arrivals.first().map(|a| a.link.clone());
                let theirs = world.kernel_choice(flow);
                if ours != theirs {
                    return Err(format!("{flow:?}: {ours:?}, not {theirs:?}"));
                }
            }
            match daemon.forwarded() - before {
                96 => Ok(()),
                n => Err(format!("{n} packets forwarded")),
            }
        })
    };
    agree(Duration::from_secs(1));

    // With the compatibility mode, which is the default, the kernel tells every route again.
    for (compatible, limit) in [("0", 1), ("1", 10)] {
        world.sysctl("net.ipv4.nexthop_compat_mode", compatible);
        for group in ["2/3,7", "1/3"] {
            let choices = || {
                flows
                    .iter()
                    .map(|flow| world.kernel_choice(flow))
                    .collect::<Vec<_>>()
            };
            let before = choices();
            let commits = daemon.status()["commits"].as_u64().unwrap();
            let start = Instant::now();
            world.ip(&format!("nexthop replace id 100 group {group}"));
            let told = start.elapsed();
            let after = choices();
            // One flow that moves, packet by packet; then all of them.
            let moves = (0..flows.len()).find(|i| before[*i] != after[*i]).unwrap();
            within(Duration::from_secs(limit), || {
                let arrived = world.transmit_for(&frames[moves..=moves], Duration::from_millis(3));
                match arrived[0].first().map(|a| a.link.clone()) {
                    link if link == after[moves] => Ok(()),
                    link => Err(format!("{link:?}, not {:?}", after[moves])),
                }
            });
            let moved = start.elapsed();
            assert!(
                moved - told < Duration::from_millis(500),
                "moved after {moved:?}"
            );
            // What the daemon says of itself is about this change, not about an earlier one.
            let status = daemon.status();
            assert!(status["commits"].as_u64().unwrap() > commits, "{status}");
            let took = status["last_commit_microseconds"].as_u64().unwrap();
            assert!(took < 100_000, "published in {took} us");
            agree(Duration::from_secs(limit));
            eprintln!(
                "compatibility mode {compatible}: group {group} replaced in {told:.1?}, the first flow \
                 moved after {moved:.1?}, {} MiB resident, {}",
                daemon.resident() >> 20,
                daemon.status()["mirror"]
            );
        }
    }
    assert!(daemon.resident() >> 20 < 600);
    daemon.terminate();
}
