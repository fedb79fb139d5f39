//! What is lost when a link goes down or loses its carrier, beside what the kernel alone loses.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::time::Duration;

use raddle_e2e::frame::Flow;
use raddle_e2e::loss::{Loss, across};
use raddle_e2e::{Daemon, Load, World, root, within};

/// Packets a second, over all paths.
const RATE: u32 = 25_000;
/// Generous, because machines are busy.
const LIMIT: Duration = Duration::from_secs(60);
/// What a path may be without its packets longer than with the kernel alone. Machines that run tests are busy; what
/// it is on an idle one is printed, and recorded in `bench/runs`.
const ALLOWED: Duration = Duration::from_millis(12);

/// How a link is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// Set down here.
    Down,
    /// Set down at the far end.
    Carrier,
}

/// A router of several paths, of which the last is lost again and again.
struct Paths<'a> {
    world: &'a World,
    flows: Vec<Flow>,
}

impl<'a> Paths<'a> {
    fn new(world: &'a World) -> Paths<'a> {
        for conf in ["ipv4", "ipv6"] {
            // Else a link without carrier keeps its share.
            world.sysctl(
                &format!("net.{conf}.conf.all.ignore_routes_with_linkdown"),
                "1",
            );
        }
        Paths {
            world,
            flows: world.flows(96),
        }
    }

    fn lose(&self, how: How) -> Loss {
        let last = self.world.links();
        let dev = self.world.out(last);
        let loss = across(self.world, &self.flows, RATE, || match how {
            How::Down => drop(self.world.ip(&format!("link set {dev} down"))),
            How::Carrier => self.world.lab().link_down(self.world.plug(last)).unwrap(),
        });
        match how {
            How::Down => drop(self.world.ip(&format!("link set {dev} up"))),
            How::Carrier => self.world.lab().link_up(self.world.plug(last)).unwrap(),
        }
        loss
    }

    /// Makes everything as it was, and waits until all paths are used, by whom it shall be.
    fn restore(&self, by_kernel: bool) {
        let world = self.world;
        let frames = world.frames(&self.flows);
        let all = world.links() as usize;
        within(LIMIT, || {
            world.neighbours(world.links(), "permanent");
            let hops = (1..=world.links()).map(|n| format!("nexthop via {}", world.gateway(n).1));
            let hops: Vec<String> = hops.collect();
            world.ip(&format!(
                "-6 route replace 2001:db8:9::/48 {}",
                hops.join(" ")
            ));
            let before = world.kernel_forwarded();
            let arrived = world.transmit(&frames);
            let kernel = world.kernel_forwarded() - before;
            let mut links: Vec<&str> = arrived.iter().flatten().map(|a| &*a.link).collect();
            let complete = links.len() == frames.len();
            links.sort_unstable();
            links.dedup();
            match complete && links.len() == all && (by_kernel || kernel == 0) {
                true => Ok(()),
                false => Err(format!(
                    "complete: {complete}, by {links:?}, {kernel} by the kernel"
                )),
            }
        });
    }

    /// What is lost each time, sorted.
    fn series(&self, how: How, by_kernel: bool, trials: usize) -> Vec<Duration> {
        let mut outages: Vec<Duration> = (0..trials)
            .map(|_| {
                self.restore(by_kernel);
                self.lose(how).outage(self.world.links())
            })
            .collect();
        outages.sort_unstable();
        outages
    }
}

fn median(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() / 2]
}

/// One line of the record.
fn line(how: How, who: &str, paths: u32, outages: &[Duration]) {
    let packets = |outage: &Duration| {
        (outage.as_secs_f64() * f64::from(RATE) / f64::from(paths)).round() as u64
    };
    let (middle, worst) = (median(outages), outages[outages.len() - 1]);
    eprintln!(
        "{how:?} {who}: {} trials over {paths} paths at {RATE} packets/s: median {:.1} ms ({} packets), worst {:.1} ms ({})",
        outages.len(),
        middle.as_secs_f64() * 1e3,
        packets(&middle),
        worst.as_secs_f64() * 1e3,
        packets(&worst),
    );
}

#[test]
fn a_lost_link_is_left_at_once() {
    if !root("a_lost_link_is_left_at_once") {
        return;
    }
    let world = World::new("lost", 4);
    let paths = Paths::new(&world);
    let kernel = [How::Down, How::Carrier].map(|how| paths.series(how, true, 3));
    let _daemon = Daemon::start(&world, &[]);
    for (how, kernel) in [How::Down, How::Carrier].into_iter().zip(kernel) {
        let raddle = paths.series(how, false, 5);
        line(how, "kernel", world.links(), &kernel);
        line(how, "raddle", world.links(), &raddle);
        let (kernel, raddle) = (median(&kernel), median(&raddle));
        assert!(
            raddle <= kernel + ALLOWED,
            "{how:?}: {raddle:?}, the kernel alone {kernel:?}"
        );
    }
}

/// The record in `bench/runs`: `cargo test --release -p raddle-e2e --test link_down -- --ignored --nocapture`, on a
/// machine that has nothing else to do. `TRIALS` says how many.
#[test]
#[ignore = "measures for minutes"]
fn measure_lost_links() {
    if !root("measure_lost_links") {
        return;
    }
    let trials = std::env::var("TRIALS").ok().and_then(|n| n.parse().ok());
    let trials = trials.unwrap_or(20);
    let both = [How::Down, How::Carrier];
    for load in [false, true] {
        // Namespaces that have nothing to do with it, and four loops beside two processors' work.
        let around = if load { 200 } else { 0 };
        let _namespaces = Load::new(around, &["unshare", "-n", "sleep", "3600"]);
        for links in [2, 4] {
            let world = World::new("measured", links);
            let paths = Paths::new(&world);
            let busy = || Load::busy(if load { 4 } else { 0 });
            eprintln!(
                "{links} paths, {}",
                if load {
                    "four busy loops and 200 other namespaces"
                } else {
                    "idle"
                }
            );
            for how in both {
                let _busy = busy();
                line(how, "kernel", links, &paths.series(how, true, trials));
            }
            let _daemon = Daemon::start(&world, &[]);
            for how in both {
                let _busy = busy();
                line(how, "raddle", links, &paths.series(how, false, trials));
            }
        }
    }
}
