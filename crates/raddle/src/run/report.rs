//! What the daemon tells about itself.

use raddle_rib::event::{Link, NUD_STALE};
use raddle_rib::{Reason, Rib};
use raddle_xdp::Counters;
use serde_json::{Value, json};

use super::daemon::Daemon;
use super::links::state;

/// The answer to `status`.
pub(super) fn status(daemon: &Daemon) -> Value {
    let usage = daemon.rib.usage();
    let stats = daemon.mirror.stats();
    let links: Vec<Value> = daemon
        .engine
        .attached()
        .map(|(index, mode)| {
            let link = daemon.rib.link(index);
            let up = link.is_some_and(Link::is_up);
            json!({
                "ifindex": index,
                "dev": name(&daemon.rib, index),
                "state": link.map(state),
                "mode": mode.to_string(),
                "out": up && daemon.rib.ports().out.contains(&index),
            })
        })
        .collect();
    let out_only: Vec<Value> = daemon
        .plan
        .out
        .keys()
        .filter(|index| !daemon.plan.attach.contains_key(index))
        .filter_map(|index| daemon.rib.link(*index))
        .map(|link| {
            json!({
                "ifindex": link.index,
                "dev": link.name,
                "state": state(link),
                "out": link.is_up(),
            })
        })
        .collect();
    let warnings: Vec<Value> = daemon
        .warnings
        .iter()
        .map(|finding| json!({ "text": finding.to_string(), "finding": finding }))
        .collect();
    json!({
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": daemon.started.elapsed().as_secs(),
        "state": daemon.held.as_ref().map_or("forwarding", |_| "held"),
        "held_because": daemon.held,
        "on_exit": format!("{:?}", daemon.config.on_exit).to_lowercase(),
        "links": links,
        "out_only": out_only,
        "left_to_kernel": daemon.plan.left,
        "warnings": warnings,
        "settings": daemon.rib.settings(),
        "mp_algos": daemon.config.mp_algos.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "routes": { "inet": usage.routes4, "inet6": usage.routes6 },
        "image": {
            "inet_entries": usage.entries4,
            "inet6_entries": usage.entries6,
            "groups": usage.groups,
            "adjacencies": usage.adjacencies,
            "full": usage.full,
        },
        "mirror": {
            "notifications": stats.notified,
            "dumps": stats.runs,
            "overruns": stats.overruns,
            "malformed": stats.malformed,
        },
        "commits": daemon.commits,
        "last_commit_microseconds": daemon.last_commit.took.as_micros() as u64,
    })
}

/// The answer to `counters`.
pub(super) fn counters(rib: &Rib, counters: &Counters) -> Value {
    let reasons: Vec<Value> = Reason::ALL[1..]
        .iter()
        .map(|reason| {
            let count = counters.reason(*reason);
            let verdict = if reason.is_drop() { "drop" } else { "kernel" };
            json!({
                "reason": reason.name(),
                "verdict": verdict,
                "packets": count.packets,
                "bytes": count.bytes,
            })
        })
        .collect();
    let links: Vec<Value> = rib
        .ports()
        .enabled
        .iter()
        .filter_map(|index| {
            let count = counters.link(rib.memory().link(*index).slot);
            Some(json!({
                "dev": rib.link(*index)?.name,
                "received": { "packets": count.packets, "bytes": count.bytes },
            }))
        })
        .collect();
    let mut nexthops: Vec<Value> = Vec::new();
    let mut adjacencies: Vec<_> = rib.adjacencies().collect();
    adjacencies.sort_unstable_by_key(|(number, ..)| *number);
    for (number, index, neighbour, adjacency) in adjacencies {
        let count = counters.adjacency(number);
        let state = neighbour
            .and_then(|ip| rib.neighbour(index, ip))
            .map_or(0, |n| n.state);
        nexthops.push(json!({
            "dev": name(rib, index),
            "via": neighbour.map(|ip| ip.to_string()),
            "mtu": adjacency.mtu,
            "forwards": adjacency.state == raddle_rib::image::ADJ_FORWARD,
            "stale": state & NUD_STALE != 0,
            "packets": count.packets,
            "bytes": count.bytes,
        }));
    }
    json!({ "reasons": reasons, "links": links, "nexthops": nexthops })
}

pub(super) fn name(rib: &Rib, index: u32) -> String {
    rib.link(index)
        .map_or_else(|| format!("if{index}"), |link| link.name.clone())
}
