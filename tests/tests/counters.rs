//! What `raddle counters` says while nexthops come and go, and an image with more room than by default.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::process::Command;
use std::time::Duration;

use raddle_e2e::frame::{self, Flow};
use raddle_e2e::{Crafted, Daemon, World, root, within};
use serde_json::{Value, json};

/// Generous, because machines are busy.
const LIMIT: Duration = Duration::from_secs(60);

/// Starts it with these keys.
fn start<'a>(world: &'a World, keys: &str) -> Daemon<'a> {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("raddle.toml");
    std::fs::write(&config, keys).unwrap();
    Daemon::start(world, &["--config", config.to_str().unwrap()])
}

/// A router with a nexthop that changes.
struct Changing<'a> {
    world: &'a World,
    daemon: Daemon<'a>,
    frames: Vec<Crafted>,
    /// What was sent through each link when it was last asked for.
    sent: [u64; 2],
}

impl Changing<'_> {
    fn gateway(n: u8) -> String {
        format!("10.2.1.{n}")
    }

    fn add(&self, n: u8) {
        let (gateway, dev) = (Self::gateway(n), self.world.out(1));
        let mac: Vec<String> = self
            .world
            .mac("sink", "router")
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        // The neighbour comes last: it may be forwarded to as a host of the link before the route is there.
        self.world
            .ip(&format!("route replace 10.9.9.0/24 via {gateway}"));
        self.world.ip(&format!(
            "neigh replace {gateway} lladdr {} dev {dev} nud permanent",
            mac.join(":")
        ));
    }

    fn remove(&self, n: u8) {
        let (gateway, dev) = (Self::gateway(n), self.world.out(1));
        self.world.ip("route del 10.9.9.0/24");
        self.world.ip(&format!("neigh del {gateway} dev {dev}"));
    }

    /// What was sent to it; nothing where it is no nexthop that packets are forwarded to. Links have never sent less
    /// than before.
    fn count(&mut self, n: u8) -> Option<u64> {
        let counters = self.daemon.counters();
        for (place, before) in (1..).zip(&mut self.sent) {
            let dev = self.world.out(place);
            let rows = counters["links"].as_array().unwrap();
            let row = rows.iter().find(|row| row["dev"] == *dev);
            let now = row.map_or(0, |row| row["sent"]["packets"].as_u64().unwrap());
            assert!(now >= *before, "{dev}: {now} after {before}");
            *before = now;
        }
        let rows = counters["nexthops"].as_array().unwrap();
        let via = Value::from(Self::gateway(n));
        let row = rows
            .iter()
            .find(|r| r["via"] == via && r["forwards"] == true);
        row.map(|row| row["packets"].as_u64().unwrap())
    }

    /// Waits until it is a nexthop, and says what was sent to it.
    fn wait(&mut self, n: u8) -> u64 {
        let ask = || self.count(n).ok_or_else(|| format!("{n} is no nexthop"));
        within(LIMIT, ask).0
    }

    fn wait_until_gone(&mut self, n: u8) {
        within(LIMIT, || match self.count(n) {
            None => Ok(()),
            Some(count) => Err(format!("{n} is there, with {count}")),
        });
    }
}

/// 40 nexthops with room for 16: each number of an adjacency passes through several hands.
#[test]
fn no_counter_goes_back_when_nexthops_go() {
    if !root("no_counter_goes_back_when_nexthops_go") {
        return;
    }
    let world = World::new("counted", 2);
    let flow = |n: u8| Flow {
        src: [10, 1, 1, 2].into(),
        dst: [10, 9, 9, n].into(),
        proto: 17,
        sport: 20_000,
        dport: 30_000,
    };
    let flows: Vec<Flow> = (1..=5).map(flow).collect();
    let mut changing = Changing {
        world: &world,
        daemon: start(&world, "adjacencies = 16\n"),
        frames: world.frames(&flows),
        sent: [0; 2],
    };
    changing.count(0);
    let [before, _] = changing.sent;
    for n in 100..140 {
        changing.add(n);
        assert_eq!(changing.wait(n), 0, "{n} was never there before");
        let kernel = world.kernel_forwarded();
        let arrived = world.transmit(&changing.frames);
        assert!(arrived.iter().all(|arrivals| arrivals.len() == 1));
        let by_kernel = world.kernel_forwarded() - kernel;
        assert_eq!((changing.count(n), by_kernel), (Some(5), 0));
        changing.remove(n);
        changing.wait_until_gone(n);
    }
    assert_eq!(changing.sent[0] - before, 40 * 5);
    // One that comes back at once has what it had.
    changing.add(139);
    assert_eq!(changing.wait(139), 5);
}

#[test]
fn an_image_with_more_room_forwards() {
    if !root("an_image_with_more_room_forwards") {
        return;
    }
    let world = World::new("roomy", 2);
    world.policy(1);
    world.sysctl("net.ipv4.fib_multipath_hash_seed", "4242");
    let keys = "groups = 1000000\nmembers = 3000000\nadjacencies = 100000\n";
    let daemon = start(&world, keys);
    let frames = world.frames(&world.flows(64));
    within(LIMIT, || {
        let before = daemon.forwarded();
        let arrived = world.transmit(&frames);
        let complete = arrived.iter().all(|arrivals| arrivals.len() == 1);
        match (daemon.forwarded() - before, complete) {
            (64, true) => Ok(()),
            (n, complete) => Err(format!("{n} of 64 packets forwarded, {complete}")),
        }
    });
    assert_eq!(daemon.status()["image"]["full"], false);
}

/// The far end of a link takes shorter packets than the link: its driver loses the others, and tells nobody.
#[test]
fn what_a_driver_loses_is_told() {
    if !root("what_a_driver_loses_is_told") {
        return;
    }
    let world = World::new("losing", 1);
    let daemon = Daemon::start(&world, &[]);
    let status = daemon.status();
    assert_eq!(status["lost"], json!([]));
    assert_eq!(status.get("lost_not_counted"), None, "{status}");
    let (netns, far_end) = world.lab().wire_device(world.plug(1), 0).unwrap();
    let shorten = ["-n", &netns, "link", "set", &far_end, "mtu", "1280"];
    assert!(Command::new("ip").args(shorten).status().unwrap().success());
    let long = world
        .flows(5)
        .into_iter()
        .zip(0..)
        .map(|(flow, n)| Crafted {
            bytes: frame::udp(world.frame_macs(), &flow, n, 1400),
            kind: "UDP",
            flow: Some(flow),
        });
    let arrived = world.transmit(&long.collect::<Vec<_>>());
    assert!(arrived.iter().all(Vec::is_empty), "{arrived:?}");
    let lost = json!([{"dev": world.out(1), "lost": 5, "aborted": 0}]);
    within(LIMIT, || match &daemon.counters()["lost"] {
        told if *told == lost => Ok(()),
        told => Err(told.to_string()),
    });
    assert_eq!(daemon.forwarded(), 5, "they count as forwarded");
    let said = world.raddle(&["status"]).stdout;
    let expected = format!(
        "LOST: 5 packet(s) that XDP programs sent to {};",
        world.out(1)
    );
    assert!(said.contains(&expected), "{said}");
    let found = world.raddle(&["doctor", "--only", "redirects-lost"]);
    assert_eq!(found.code, Some(1), "{found:?}");
    assert!(
        found
            .stdout
            .contains("of 5 packets that were sent through it; driver: veth"),
        "{found:?}"
    );
}
