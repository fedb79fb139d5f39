//! What the daemon tells about itself.

use raddle_image::Counter;
use raddle_image::{Reason, Segment, segment_flags, segment_kind};
use raddle_rib::event::{Link, NUD_STALE, Route};
use raddle_rib::seg6::Seg6;
use raddle_rib::{Owner, Rib, SegmentUse, Sent};
use raddle_xdp::Counters;
use serde_json::{Value, json};

use super::daemon::Daemon;
use super::links::state;
use crate::seed;

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
                "rx_hash": daemon.rx_hash.json(index),
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
        "deadline": { "seconds": daemon.config.deadline, "lapses": daemon.guard.lapses() },
        "priority": daemon.standing.json(daemon.config.priority),
        "lag": daemon.lag.json(),
        "links": links,
        "out_only": out_only,
        "left_to_kernel": daemon.plan.left,
        "warnings": warnings,
        "settings": daemon.rib.settings(),
        "hash_seed_can_be_set": seed::can_be_set(),
        "mp_algos": daemon.config.mp_algos.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "routes": { "inet": usage.routes4, "inet6": usage.routes6 },
        "image": {
            "inet_entries": usage.entries4,
            "inet6_entries": usage.entries6,
            "groups": usage.groups,
            "adjacencies": usage.adjacencies,
            "full": usage.full,
            "raise": daemon.lacks.iter().filter_map(|lack| lack.key()).collect::<Vec<_>>(),
        },
        "segments": segment_numbers(&daemon.rib, daemon.srv6.lacking(&daemon.engine).as_deref()),
        "fpm": daemon.fpm.as_ref().map(|server| super::fpm::status(server, &daemon.rib)),
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

/// No more segments that nothing carries out are named than this; the rest are counted.
const NAMED_MOST: usize = 8;

/// How many SIDs and segment lists there are, how many of these are raddle's own, how many the kernel's
/// business, and how many of raddle's own cannot be carried out, so that their packets are dropped. `lacking`
/// says why there are no programs for them, where there are none: then nothing is carried out here, and what
/// would have been is counted and named.
fn segment_numbers(rib: &Rib, lacking: Option<&str>) -> Value {
    let idle = |segment: &Segment| lacking.is_some() || segment.kind == segment_kind::KERNEL;
    let count = |wanted: &dyn Fn(&SegmentUse, &Segment) -> bool| {
        rib.segments()
            .filter(|(_, what, segment)| wanted(what, segment))
            .count()
    };
    let mut able: Vec<_> = rib
        .segments()
        .filter(|(.., segment)| segment.kind != segment_kind::KERNEL)
        .collect();
    able.sort_unstable_by_key(|(number, ..)| *number);
    let not_carried_out = lacking.filter(|_| !able.is_empty()).map(|why| {
        let named = able.iter().take(NAMED_MOST).map(|(_, what, _)| label(what));
        json!({ "count": able.len(), "names": named.collect::<Vec<_>>(), "why": why })
    });
    json!({
        "all": count(&|_, _| true),
        "own": count(&|what, _| what.own),
        "kernel": count(&|what, segment| !what.own && idle(segment)),
        "dropped": count(&|what, segment| what.own && idle(segment)),
        "not_carried_out": not_carried_out,
    })
}

/// A segment in a few words: `End.DT46 fc00::1/128`, `encap.red fc00:1::,fc00:2::`.
fn label(what: &SegmentUse) -> String {
    let whose = match &what.owner {
        Owner::Route { dst, .. } => dst.to_string(),
        Owner::Object { id, .. } => format!("nexthop {id}"),
        Owner::Shared => segments_of(&what.what).join(","),
    };
    format!("{} {whose}", segment_name(&what.what))
}

/// The answer to `counters`.
pub(super) fn counters(rib: &Rib, counters: &Counters) -> Value {
    let reasons: Vec<Value> = Reason::ALL[1..]
        .iter()
        .flat_map(|reason| {
            let (all, dropped) = (counters.reason(*reason), counters.dropped(*reason));
            let row = |verdict, packets, bytes| {
                json!({
                    "reason": reason.name(), "verdict": verdict, "packets": packets, "bytes": bytes,
                })
            };
            let kernel = (!reason.is_drop()).then(|| {
                let packets = all.packets.wrapping_sub(dropped.packets);
                row("kernel", packets, all.bytes.wrapping_sub(dropped.bytes))
            });
            // What is raddle's own is dropped for reasons for which the kernel gets other packets.
            let drops = reason.is_drop() || dropped.packets > 0;
            let drop = drops.then(|| row("drop", dropped.packets, dropped.bytes));
            kernel.into_iter().chain(drop)
        })
        .collect();
    let sent = rib.sent(|number| counters.adjacency(number));
    let links = links(rib, counters, &sent);
    let mut nexthops: Vec<Value> = Vec::new();
    let mut adjacencies: Vec<_> = rib.adjacencies().collect();
    adjacencies.sort_unstable_by_key(|(number, ..)| *number);
    for (number, index, neighbour, adjacency) in adjacencies {
        let count = sent.nexthop(number);
        let state = neighbour
            .and_then(|ip| rib.neighbour(index, ip))
            .map_or(0, |n| n.state);
        nexthops.push(json!({
            "ifindex": index,
            "dev": name(rib, index),
            "via": neighbour.map(|ip| ip.to_string()),
            "mtu": adjacency.mtu,
            "forwards": adjacency.state == raddle_image::ADJ_FORWARD,
            "stale": state & NUD_STALE != 0,
            "packets": count.packets,
            "bytes": count.bytes,
        }));
    }
    json!({ "reasons": reasons, "links": links, "nexthops": nexthops })
}

/// What came in and what was forwarded, by link: those that packets are forwarded from, and those that some were
/// forwarded through, gone ones as well.
fn links(rib: &Rib, counters: &Counters, sent: &Sent) -> Vec<Value> {
    let json = |count: Counter| json!({ "packets": count.packets, "bytes": count.bytes });
    let of = |name: &str| json(sent.links.get(name).copied().unwrap_or_default());
    let enabled = rib.ports().enabled.iter();
    let mut rows: Vec<Value> = enabled
        .filter_map(|index| {
            let received = counters.link(rib.memory().link(*index).slot);
            let name = &*rib.link(*index)?.name;
            Some(json!({ "dev": name, "received": json(received), "sent": of(name) }))
        })
        .collect();
    let others = sent.links.iter().filter_map(|(name, count)| {
        let is_there = rows.iter().any(|row| row["dev"] == **name);
        (!is_there && count.packets > 0).then(|| json!({ "dev": name, "sent": json(*count) }))
    });
    let others: Vec<Value> = others.collect();
    rows.extend(others);
    rows
}

/// The answer to `segments`: what the image has, with what each CPU has counted (those that have counted
/// nothing are left out).
pub(super) fn segments(daemon: &Daemon) -> Value {
    let rib = &daemon.rib;
    let lacking = !daemon.engine.has_srv6();
    let mut all: Vec<_> = rib.segments().collect();
    all.sort_unstable_by_key(|(number, ..)| *number);
    let segments: Vec<Value> = all
        .into_iter()
        .map(|(number, what, segment)| {
            let cpus: Vec<Value> = (0u32..)
                .zip(daemon.engine.segment_counts(number))
                .filter(|(_, counts)| counts.values.iter().any(|value| *value != 0))
                .map(|(cpu, counts)| json!({ "cpu": cpu, "values": counts.values }))
                .collect();
            let known = segment.kind != segment_kind::KERNEL;
            // Without programs for them the engine counts their packets as it does other encapsulations.
            let reason = match known {
                true => Some(Reason::Encap).filter(|_| lacking),
                false => Reason::from_number(segment.reason),
            };
            json!({
                "segment": number,
                "forwards": known && !lacking,
                "reason": reason.map(Reason::name),
                "own": what.own,
                "counters": segment.flags & segment_flags::HAS_COUNTERS != 0,
                "name": segment_name(&what.what),
                "segs": segments_of(&what.what),
                "encap": what.what.encode(),
                "index": what.index,
                "dev": (what.index != 0).then(|| name(rib, what.index)),
                "owner": owner(&what.owner),
                "cpus": cpus,
            })
        })
        .collect();
    json!({ "segments": segments })
}

/// No more routes by FPM than this are told here: there may be millions that the kernel does not have.
const ROUTES_MOST: usize = 50_000;

/// The answer to `own`: the routes that the kernel does not have, and how many more there are.
pub(super) fn own(rib: &Rib) -> Value {
    let told = rib.told();
    let all = told.alone4 + told.alone6;
    let fpm = rib.fpm_routes().take(ROUTES_MOST);
    let routes: Vec<Route> = rib.own_routes().chain(fpm).collect();
    json!({ "routes": routes, "more": all.saturating_sub(ROUTES_MOST) })
}

/// The behaviour, or how a list is put on.
fn segment_name(what: &Seg6) -> String {
    match what {
        Seg6::Sid(sid) => match sid.behaviour.name() {
            Some(name) => name.to_owned(),
            None => sid.behaviour.number().to_string(),
        },
        Seg6::Encaps(encaps) => encaps.mode.name().to_owned(),
    }
}

/// The segments that are put on, in the order of travel.
fn segments_of(what: &Seg6) -> Vec<String> {
    let segments = match what {
        Seg6::Sid(sid) => sid.behaviour.segments(),
        Seg6::Encaps(encaps) => encaps.segments(),
    };
    segments.iter().map(ToString::to_string).collect()
}

/// Whose a segment is; nothing for an encapsulation, which all share that have it.
fn owner(owner: &Owner) -> Value {
    match owner {
        Owner::Route {
            table,
            dst,
            metric,
            gateway,
            ..
        } => json!({ "table": table, "dst": dst, "metric": metric, "gateway": gateway }),
        Owner::Object { id, .. } => json!({ "nexthop": id }),
        Owner::Shared => Value::Null,
    }
}

pub(super) fn name(rib: &Rib, index: u32) -> String {
    rib.link(index)
        .map_or_else(|| format!("if{index}"), |link| link.name.clone())
}

#[cfg(test)]
mod tests {
    use raddle_rib::Ports;
    use raddle_rib::event::{DeviceSettings, Event, Route, RouteNexthop, RouteOp, RouteTarget};
    use raddle_rib::seg6::{Behaviour, Sid};

    use super::*;

    #[test]
    fn what_nothing_carries_out_is_counted_and_named() {
        let mut rib = Rib::detached();
        rib.apply(Event::Link(Link::ethernet(1, "a", [2; 6])));
        rib.apply(Event::Device(1, DeviceSettings::default()));
        rib.set_ports(Ports {
            enabled: [1].into(),
            out: [1].into(),
        });
        for number in 1..=10 {
            let hop = RouteNexthop {
                index: 1,
                encap: Some(Seg6::Sid(Sid::new(Behaviour::End)).encode()),
                ..RouteNexthop::default()
            };
            let route = Route {
                dst: format!("fc00::{number:x}/128").parse().unwrap(),
                target: RouteTarget::Single(hop),
                ..Route::default()
            };
            rib.apply(Event::Route(route, RouteOp::Add));
        }
        rib.commit();
        let fine = segment_numbers(&rib, None);
        assert_eq!((&fine["all"], &fine["kernel"]), (&json!(10), &json!(0)));
        assert_eq!(fine["not_carried_out"], Value::Null);
        let refused = segment_numbers(&rib, Some("the verifier refused it"));
        assert_eq!(
            (&refused["kernel"], &refused["dropped"]),
            (&json!(10), &json!(0))
        );
        let told = &refused["not_carried_out"];
        assert_eq!(
            (&told["count"], &told["why"]),
            (&json!(10), &json!("the verifier refused it"))
        );
        let names = told["names"].as_array().unwrap();
        assert_eq!(names.len(), NAMED_MOST);
        assert!(
            names.iter().any(|name| name == "End fc00::1/128"),
            "{names:?}"
        );
        assert_eq!(
            segment_numbers(&Rib::detached(), Some("x"))["not_carried_out"],
            Value::Null
        );
    }
}
