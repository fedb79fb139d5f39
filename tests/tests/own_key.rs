//! Without a seed the kernel goes by a key of its own. raddle reads it, so no flow moves when it starts; and keeps it to
//! itself.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::time::Duration;

use raddle_e2e::{Arrival, Crafted, Daemon, Random, Volume, World, frame, root, volume, within};
use serde_json::Value;

const SEED: &str = "net.ipv4.fib_multipath_hash_seed";

/// Unsets the seed that a lab has; says whether the kernel has one that can be set (Linux 6.11).
fn unset_seed(world: &World) -> bool {
    let there = std::fs::exists("/proc/sys/net/ipv4/fib_multipath_hash_seed").unwrap();
    if there {
        world.sysctl(SEED, "0");
    }
    there
}

/// The links that frames leave by.
fn links(world: &World, frames: &[Crafted]) -> Vec<Option<String>> {
    let arrived = world.transmit(frames);
    let link = |arrivals: &Vec<_>| arrivals.first().map(|a: &Arrival| a.link.clone());
    arrived.iter().map(link).collect()
}

#[test]
fn no_flow_moves_when_it_starts() {
    if !root("no_flow_moves_when_it_starts") {
        return;
    }
    const FLOWS: u16 = 128;
    let world = World::new("ownkey", 2);
    let has_seed = unset_seed(&world);
    let frames = world.frames(&world.flows(FLOWS));
    let mut before = Vec::new();
    for policy in 0..4 {
        world.policy(policy);
        before.push(links(&world, &frames));
    }
    for (policy, links) in before.iter().enumerate() {
        assert!(links.iter().all(Option::is_some), "policy {policy}");
        let first = links.iter().filter(|link| **link == links[0]).count();
        assert!(first < links.len(), "policy {policy}: one path only");
    }

    let daemon = Daemon::start(&world, &[]);
    if has_seed {
        let seed = world.node("router", &format!("sysctl -n {SEED}"));
        assert_eq!(seed.trim(), "0");
    }
    for (policy, links_before) in before.iter().enumerate().rev() {
        let published = daemon.status()["commits"].as_u64();
        world.policy(policy as u32);
        within(Duration::from_secs(60), || {
            let status = daemon.status();
            let settings = &status["settings"];
            let now = [&settings["hash_policy4"], &settings["hash_policy6"]];
            let taken = now.iter().all(|now| **now == policy);
            // It begins with the one that was last set.
            match taken && (policy == 3 || status["commits"].as_u64() > published) {
                true => Ok(()),
                false => Err(format!("policies {now:?}")),
            }
        });
        let forwarded = daemon.forwarded();
        assert_eq!(links(&world, &frames), *links_before, "policy {policy}");
        assert_eq!(
            daemon.forwarded() - forwarded,
            u64::from(FLOWS),
            "policy {policy}"
        );
    }
    assert_eq!(daemon.reason("seed-unknown"), 0);
    let kind = || daemon.status()["hash_key"].clone();
    assert_eq!(kind(), "kernel");
    let status = world.raddle(&["status"]).stdout;
    assert!(status.contains("the kernel's own key"), "{status}");

    // A seed that is set counts, and no longer when it is taken away.
    let seeds = [("77", "seed"), ("0", "kernel")];
    for (seed, kind_then) in seeds.into_iter().filter(|_| has_seed) {
        world.sysctl(SEED, seed);
        within(Duration::from_secs(60), || match kind() {
            kind if kind == kind_then => Ok(()),
            kind => Err(format!("{kind} with seed {seed}")),
        });
        let flows = frames.iter().map(|frame| frame.flow.unwrap());
        let kernels: Vec<_> = flows.map(|flow| world.kernel_choice(&flow)).collect();
        let forwarded = daemon.forwarded();
        assert_eq!(links(&world, &frames), kernels, "seed {seed}");
        assert_eq!(
            daemon.forwarded() - forwarded,
            u64::from(FLOWS),
            "seed {seed}"
        );
    }
    daemon.terminate();
}

/// Packets of all kinds, of both families, by each policy over paths of different weights: what the kernel chooses for each.
#[test]
fn choices_are_the_kernels_by_every_policy() {
    if !root("choices_are_the_kernels_by_every_policy") {
        return;
    }
    let world = World::new("ownchoices", 3);
    unset_seed(&world);
    let (mut four, mut six) = (String::new(), String::new());
    for (n, weight) in [(1, 1), (2, 3), (3, 17)] {
        let ((gateway4, gateway6), dev) = (world.gateway(n), world.out(n));
        four += &format!(" nexthop via {gateway4} dev {dev} weight {weight}");
        six += &format!(" nexthop via {gateway6} dev {dev} weight {weight}");
    }
    world.ip(&format!("route replace 10.9.0.0/16{four}"));
    world.ip(&format!("-6 route replace 2001:db8:9::/48{six}"));
    let v4 = (2..250).map(|n| [10, 9, n, 255 - n].into()).collect();
    let v6 = (2..250u16).map(|n| [0x2001, 0xdb8, 9, n, 0, 0, 7, n].into());
    let addresses = world.addresses(v4, v6.collect());
    let seed = volume::seed();
    // One in six is nothing that the kernel forwards.
    let each = (volume::frames(800) * 6 / 5).div_ceil(4);
    eprintln!("{each} frames a policy, RADDLE_SEED={seed}");
    let mut rng = Random::new(seed);
    let mut compared = Volume::of("choices by the kernel's own key", 4);
    for policy in 0..4 {
        world.policy(policy);
        let frames = frame::random(&mut rng, &addresses, each);
        let kernel = world.transmit(&frames);
        let daemon = Daemon::start(&world, &[]);
        assert_eq!(daemon.status()["hash_key"], "kernel");
        let ours = world.transmit_again(&frames, &kernel);
        let about = format!("policy {policy}");
        let forwarded = daemon.forwarded();
        compared.compare_frames(&about, &frames, [&kernel, &ours], forwarded);
        for n in 1..=world.links() {
            let link = world.out(n);
            let by = kernel.iter().flatten().filter(|a| a.link == link).count();
            assert!(by > each / 100, "{about}: {by} by {link}");
        }
        assert_eq!(daemon.reason("seed-unknown"), 0, "{about}");
        // IPv4 options are looked at by the kernel.
        let share = compared.share();
        assert!(share > 0.9, "{about}: {compared}: {}", daemon.counters());
        daemon.terminate();
    }
    compared.right();
    assert_eq!(world.late(), 0);
}

/// All numbers in a text that a hash of 31 or 32 bits might be.
fn large_numbers(text: &str) -> Vec<u64> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let number = |word: &str| match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    };
    words.filter_map(number).filter(|n| *n > 1 << 20).collect()
}

#[test]
fn answers_give_no_hash_away() {
    if !root("answers_give_no_hash_away") {
        return;
    }
    let world = World::new("keyhidden", 2);
    world.policy(1);
    unset_seed(&world);
    let flow = world.flows(4)[0];
    let words = format!(
        "{} from {} iif source ipproto udp sport 4001 dport 53",
        flow.dst, flow.src
    );
    let words: Vec<&str> = words.split_whitespace().collect();
    let ask = |more: &[&str]| {
        let outcome = world.raddle(&[&["explain"], more, &words[..]].concat());
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        outcome.stdout
    };
    // What the kernel itself chooses.
    ask(&["--check"]);
    let text = ask(&[]);
    assert!(
        text.contains("the kernel's own key, which is not shown (--show-key)"),
        "{text}"
    );
    // Upper bounds are no hashes.
    let bounds = [1_073_741_823, 2_147_483_647];
    let others = |text: &str| -> Vec<u64> {
        let numbers = large_numbers(text).into_iter();
        numbers.filter(|n| !bounds.contains(n)).collect()
    };
    assert_eq!(others(&text), [0; 0], "{text}");
    let json: Value = serde_json::from_str(&ask(&["-j"])).unwrap();
    let steps = json["steps"].as_array().unwrap();
    let step = |name: &str| steps.iter().find(|step| step["name"] == name).unwrap();
    assert_eq!(
        step("seed")["data"],
        serde_json::json!({ "seed": null, "key": "kernel" })
    );
    assert_eq!(
        step("hash")["data"],
        serde_json::json!({ "combined": false })
    );
    let shown = ask(&["--show-key"]);
    assert!(others(&shown).len() >= 4, "{shown}");

    // Ports that cover all paths are found without one.
    let dst = flow.dst.to_string();
    let plan = world.raddle(&[
        "ports",
        "plan",
        &dst,
        "-n",
        "4",
        "--proto",
        "udp",
        "--dport",
        "53",
        "--iif",
        "source",
        "--from",
        &flow.src.to_string(),
    ]);
    assert_eq!(plan.code, Some(0), "{}", plan.stderr);
    assert!(plan.stdout.contains("not shown"), "{}", plan.stdout);
    assert_eq!(others(&plan.stdout), [0; 0], "{}", plan.stdout);
}
