//! VRFs against the running kernel: the same frames are forwarded by it, then by raddle, from links in a VRF and beside one,
//! with every reverse-path filter. Each has to come out of the same link or of none.
//!
//! The test machine's kernel may have no VRFs; `make test-kernels` runs this on Debian's.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::net::IpAddr;

use raddle_e2e::frame::Flow;
use raddle_e2e::{Arrival, Crafted, Daemon, PATIENT, Volume, World, frame, links, quiet, root};

/// A network of four links on the router (`source`, `sink`, `sink-2`, `sink-3`), some of them in VRF red, whose table is 10.
struct Layout {
    what: &'static str,
    /// In red.
    slaves: &'static [&'static str],
    routes: &'static [&'static str],
}

const IN_RED: &str = "in red";
const BESIDE_RED: &str = "beside red";

const ALL_IN_RED: Layout = Layout {
    what: IN_RED,
    slaves: &["source", "sink", "sink-2"],
    routes: &[
        "route add 10.9.7.0/24 table 10 nexthop via 10.2.1.2 dev sink nexthop via 10.2.2.2 dev sink-2",
        "route add 10.9.8.0/24 via 10.2.3.2 dev sink-3 table 10",
        "route add unreachable default metric 4278198272 table 10",
        "route add 172.16.0.0/16 via 10.1.1.2 dev source table 10",
        "route add 172.17.0.0/16 via 10.2.1.2 dev sink table 10",
        "route add 172.18.0.0/16 table 10 nexthop via 10.1.1.2 dev source nexthop via 10.2.1.2 dev sink",
        "route add 172.19.0.0/16 via 10.2.3.2 dev sink-3 table 10",
        "route add 10.9.7.0/24 via 10.2.3.2",
        "route add default via 10.2.3.2",
        "route add 172.20.0.0/16 via 10.1.1.2 dev source onlink",
        "-6 route add fd09:7::/64 via 2001:db8:2:2::2 dev sink-2 table 10",
        "-6 route add fd09:8::/64 via 2001:db8:2:3::2 dev sink-3 table 10",
        "-6 route add fd09:7::/64 via 2001:db8:2:3::2",
        "route add default via 10.2.3.2 dev sink-3 table 77",
        "-6 route add default via 2001:db8:2:3::2 dev sink-3 table 77",
    ],
};

const SINK_IN_RED: Layout = Layout {
    what: BESIDE_RED,
    slaves: &["sink-2"],
    routes: &[
        "route add 10.9.7.0/24 nexthop via 10.2.1.2 dev sink nexthop via 10.2.3.2 dev sink-3",
        "route add 10.9.8.0/24 via 10.2.2.2 dev sink-2",
        "route add default via 10.2.3.2",
        "route add 172.16.0.0/16 via 10.1.1.2",
        "route add 172.17.0.0/16 via 10.2.1.2",
        "route add 172.19.0.0/16 via 10.2.2.2 dev sink-2",
        "route add unreachable default metric 4278198272 table 10",
        "route add 172.18.0.0/16 via 10.1.1.2 dev source table 10",
        "route add 172.19.0.0/16 via 10.1.1.2 dev source table 10",
        "-6 route add fd09:7::/64 via 2001:db8:2:1::2",
        "-6 route add fd09:8::/64 via 2001:db8:2:2::2 dev sink-2",
        "route add default via 10.2.3.2 dev sink-3 table 77",
        "-6 route add default via 2001:db8:2:3::2 dev sink-3 table 77",
    ],
};

const SOURCES: [&str; 9] = [
    "10.1.1.7",
    "10.2.1.77",
    "10.2.3.77",
    "172.16.5.5",
    "172.17.5.5",
    "172.18.5.5",
    "172.19.5.5",
    "172.20.5.5",
    "198.51.100.1",
];
const DESTINATIONS: [&str; 3] = ["10.9.7.9", "10.9.8.9", "203.0.113.7"];
const DESTINATIONS6: [&str; 2] = ["fd09:7::9", "fd09:8::9"];
/// Of each pair.
const FLOWS: u16 = 6;

fn flows() -> Vec<Flow> {
    let four = SOURCES
        .iter()
        .flat_map(|src| DESTINATIONS.iter().map(move |dst| (*src, *dst)));
    let six = DESTINATIONS6.iter().map(|dst| ("fd01:1::7", *dst));
    let pairs = four.chain(six);
    let flows = pairs.flat_map(|(src, dst)| {
        (0..FLOWS).map(move |sport| Flow {
            src: src.parse().unwrap(),
            dst: dst.parse::<IpAddr>().unwrap(),
            proto: 17,
            sport,
            dport: 9,
        })
    });
    flows.collect()
}

/// A router with this layout; none where the kernel has no VRFs.
fn world(name: &str, layout: &Layout) -> Option<World> {
    let world = World::new(name, 3);
    if !world.vrf("red", 10, layout.slaves) {
        eprintln!("skipped: {name} needs VRFs, which this kernel does not have");
        return None;
    }
    for route in layout.routes {
        world.ip(route);
    }
    Some(world)
}

/// What each layout is tried with, by the settings and rules of the router.
const TRIALS: [(&str, &[&str]); 12] = [
    ("rp_filter 2 of source", &["source.rp_filter=2"]),
    ("rp_filter 1 of source", &["source.rp_filter=1"]),
    ("rp_filter 1 of red", &["red.rp_filter=1"]),
    ("forwarding off for source", &["source.forwarding=0"]),
    ("forwarding off for red", &["red.forwarding=0"]),
    ("a rule for red", &["iif red lookup 77"]),
    ("a rule for all but red", &["not iif red lookup 77"]),
    ("a rule for source", &["iif source lookup 77"]),
    (
        "a rule for source, rp_filter 2 of it",
        &["source.rp_filter=2", "iif source lookup 77"],
    ),
    (
        "a rule for sink, rp_filter 2 of source",
        &["source.rp_filter=2", "iif sink lookup 77"],
    ),
    (
        "a rule for sink, rp_filter 1 of source",
        &["source.rp_filter=1", "iif sink lookup 77"],
    ),
    ("nothing", &[]),
];

/// Has the router so, or as it was before.
fn change(world: &World, changes: &[&str], back: bool) {
    for change in changes {
        if let Some((key, value)) = change.split_once('=') {
            let usual = if key.ends_with("forwarding") {
                "1"
            } else {
                "0"
            };
            let value = if back { usual } else { value };
            world.sysctl(&format!("net.ipv4.conf.{key}"), value);
            continue;
        }
        for family in ["-4", "-6"] {
            world.ip(&match back {
                true => format!("{family} rule del pref 90"),
                false => format!("{family} rule add pref 90 {change}"),
            });
        }
    }
}

/// How many of the packets that the kernel forwards raddle has to forward itself.
fn fast(layout: &Layout, what: &str, flows: &[Flow], kernel: &[Vec<Arrival>]) -> u64 {
    let by_vrf = what.contains("red") && what.starts_with("a rule") && layout.what == IN_RED;
    let filtered = what.contains("rp_filter") && what.contains("source");
    let is_fast = |(flow, arrivals): &(&Flow, &Vec<Arrival>)| match links(arrivals)[..] {
        [] => false,
        _ if flow.src.is_ipv6() => true,
        // Whether the rule is asked depends on the kernel.
        _ if by_vrf => false,
        // The way back is looked for in red.
        ["sink-2"] => !(filtered && layout.what == BESIDE_RED),
        // Or by the rule.
        ["sink"] => !(filtered && what.contains("sink")),
        _ => true,
    };
    flows.iter().zip(kernel).filter(is_fast).count() as u64
}

#[test]
fn vrfs_are_followed_as_the_kernel_follows_them() {
    if !root("vrfs_are_followed_as_the_kernel_follows_them") {
        return;
    }
    let listed = flows();
    let mut volume = Volume::of("VRFs", 2 * TRIALS.len());
    let mut wrong = Vec::new();
    for layout in [ALL_IN_RED, SINK_IN_RED] {
        let Some(world) = world("vrf", &layout) else {
            return;
        };
        for (what, changes) in TRIALS {
            let about = format!("{}, {what}", layout.what);
            change(&world, changes, false);
            let (flows, frames) = volume.frames(&world, &listed);
            let kernel = world.transmit(&frames);
            let daemon = Daemon::start(&world, &PATIENT);
            let ours = world.transmit_again(&frames, &kernel);
            let through = kernel.iter().filter(|arrivals| !arrivals.is_empty());
            let (through, fast) = (through.count(), fast(&layout, what, &flows, &kernel));
            let forwarded = daemon.forwarded();
            volume.compare(&about, &flows, [&kernel, &ours], forwarded);
            eprintln!("{about}: the kernel forwards {through}, raddle {forwarded}");
            if forwarded != fast {
                let counters = daemon.counters()["reasons"].to_string();
                wrong.push(format!(
                    "{about}: raddle forwards {forwarded}, not {fast}: {counters}"
                ));
            }
            daemon.terminate();
            change(&world, changes, true);
        }
        assert_eq!(world.late(), 0);
    }
    volume.right();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// SIDs of the router that look in red's table.
const SIDS: [(&str, &str); 3] = [
    ("5f00:0:44::", "End.DT4"),
    ("5f00:0:46::", "End.DT46"),
    ("5f00:0:66::", "End.DT6"),
];

/// What is in the packets for SIDs: to what red has routes for, to the router itself, and to all else.
const INNER: [(&str, &str); 7] = [
    ("172.16.5.5", "10.9.7.9"),
    ("172.16.5.5", "10.9.8.9"),
    ("172.19.5.5", "203.0.113.7"),
    ("198.51.100.1", "10.9.7.10"),
    ("172.16.5.5", "10.2.3.1"),
    ("fd01:1::7", "fd09:7::9"),
    ("fd01:1::7", "fd09:8::9"),
];

/// With the default rules, and with what is changed of them and of red.
const SID_TRIALS: [(&str, &[&str]); 6] = [
    ("rp_filter 2 of red", &["red.rp_filter=2"]),
    ("forwarding off for red", &["red.forwarding=0"]),
    ("a rule for some packets", &["ipproto 17 lookup 77"]),
    ("a rule for red", &["iif red lookup 77"]),
    ("a rule for all", &["lookup 77"]),
    ("nothing", &[]),
];

fn encapsulated(world: &World) -> Vec<Crafted> {
    let mut frames = Vec::new();
    for (sid, _) in SIDS {
        for (src, dst) in INNER {
            for sport in 0..8 {
                let (src, dst): (IpAddr, IpAddr) = (src.parse().unwrap(), dst.parse().unwrap());
                let flow = Flow {
                    src,
                    dst,
                    proto: 17,
                    sport,
                    dport: 9,
                };
                let tag = frames.len() as u64;
                let inner = &frame::udp(world.frame_macs(), &flow, tag, 20)[14..];
                let next = if src.is_ipv4() { 4 } else { 41 };
                let outer = ["fd01:1::8", sid].map(|address| address.parse().unwrap());
                let bytes = frame::packet(world.frame_macs(), outer[0], outer[1], next, inner);
                frames.push(Crafted {
                    bytes,
                    kind: "encapsulated",
                    flow: None,
                });
            }
        }
    }
    frames
}

/// What comes out of SIDs with a VRF's table is looked up as what comes in by the VRF.
#[test]
fn sids_of_a_vrf_are_followed_as_the_kernel_follows_them() {
    if !root("sids_of_a_vrf_are_followed_as_the_kernel_follows_them") {
        return;
    }
    let Some(world) = world("vrfsid", &ALL_IN_RED) else {
        return;
    };
    world.sysctl("net.vrf.strict_mode", "1");
    // What red has no other route for goes out, too.
    world.ip("route add default via 10.2.1.2 dev sink table 10");
    world.ip("-6 route add fd01:1::/64 via 2001:db8:1:1::2 dev source table 10");
    for (sid, action) in SIDS {
        for table in ["main", "10"] {
            world.ip(&format!(
                "-6 route add {sid}/48 encap seg6local action {action} vrftable 10 dev red table {table}"
            ));
        }
    }
    let frames = encapsulated(&world);
    let exchange = || {
        let arrivals = world.exchange(&frames, quiet());
        let mut seen: Vec<(String, Vec<u8>)> =
            arrivals.into_iter().map(|a| (a.link, a.frame)).collect();
        // Not the errors that the router answers with, of which each is another, nor what it reports of its multicast
        // groups, behind hop-by-hop options.
        let is_error = |bytes: &[u8]| match bytes[12..14] {
            [0x08, 0x00] => bytes[23] == 1,
            [0x86, 0xdd] => matches!(bytes[20], 0 | 58),
            _ => true,
        };
        seen.retain(|(_, bytes)| !is_error(bytes));
        seen.sort();
        seen
    };
    let mut wrong = Vec::new();
    for (what, changes) in SID_TRIALS {
        change(&world, changes, false);
        let kernel = exchange();
        let daemon = Daemon::start(&world, &PATIENT);
        let ours = exchange();
        let forwarded = daemon.forwarded();
        eprintln!(
            "SIDs, {what}: the kernel forwards {}, raddle {forwarded}",
            kernel.len()
        );
        if kernel != ours {
            let only = |a: &[(String, Vec<u8>)], b: &[(String, Vec<u8>)]| {
                let only = a.iter().filter(|one| !b.contains(one));
                only.map(|(link, bytes)| format!("{:?} by {link}", frame::tag(bytes)))
                    .collect::<Vec<_>>()
            };
            wrong.push(format!(
                "{what}: only by the kernel {:?}, only by raddle {:?}",
                only(&kernel, &ours),
                only(&ours, &kernel)
            ));
        }
        if changes.is_empty() && forwarded != kernel.len() as u64 {
            let counters = daemon.counters()["reasons"].to_string();
            wrong.push(format!(
                "{what}: raddle forwards {forwarded} of {}: {counters}",
                kernel.len()
            ));
        }
        daemon.terminate();
        change(&world, changes, true);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
