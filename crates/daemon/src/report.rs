//! What the daemon tells about itself.

use raddle_control::status::{
    self, ByFamily, Deadline, Image, Mirror, NotCarriedOut, OutOnly, Program, SegmentNumbers,
    State, Warning,
};
use raddle_control::{
    self as control, Count, Counters, CpuCounts, LinkCount, NexthopCount, ReasonCount, Routes,
    SegmentCounts, Segments, Status, Verdict,
};
use raddle_image::{Counter, Reason, Segment, segment_flags, segment_kind};
use raddle_preflight::{Finding, Role, Severity, is_upon_others};
use raddle_rib::event::{Link, NUD_STALE};
use raddle_rib::seg6::Seg6;
use raddle_rib::{LowerLinks, Owner, Rib, SegmentUse, Sent, WithoutRoom};
use raddle_xdp::Counters as Engine;

use super::daemon::Daemon;
use super::links::state;
use super::losses::Losses;
use crate::seed;

/// The answer to `status`.
pub(super) fn status(daemon: &Daemon) -> Status {
    let usage = daemon.rib.usage();
    let stats = daemon.mirror.stats();
    let lacking = daemon.srv6.lacking(&daemon.engine);
    let lower = daemon.rib.all_lower_links();
    let links = daemon.plan.attach.keys().map(|index| {
        let link = daemon.rib.link(*index);
        let up = link.is_some_and(Link::is_up);
        let is_upper = link.is_some_and(is_upon_others);
        status::Link {
            ifindex: *index,
            dev: name(&daemon.rib, *index),
            state: link.map(|link| state(link).to_owned()),
            mode: mode(daemon, &lower, *index),
            rx_hash: daemon.rx_hash.status(*index),
            out: up && daemon.rib.ports().out.contains(index),
            lacking: lacking.clone().filter(|_| is_upper),
            not_in: daemon.plan.not_in(&daemon.rib, *index, &daemon.not_in),
        }
    });
    let programs = daemon.engine.attached().map(|(index, mode)| Program {
        ifindex: index,
        dev: name(&daemon.rib, index),
        mode: mode.to_string(),
    });
    let out_only = daemon.plan.out.keys();
    let out_only = out_only
        .filter(|index| !daemon.plan.attach.contains_key(index))
        .filter_map(|index| daemon.rib.link(*index))
        .map(|link| OutOnly {
            ifindex: link.index,
            dev: link.name.clone(),
            state: state(link).to_owned(),
            out: link.is_up(),
        });
    let lacking_room = without_room(&daemon.rib.without_room());
    let warnings = daemon.warnings.iter().chain(&lacking_room);
    let warnings = warnings.map(|finding| Warning {
        text: finding.to_string(),
        finding: finding.clone(),
    });
    let held_because = daemon.held_because();
    let raise = daemon.lacks.iter().filter_map(|lack| lack.key());
    Status {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: daemon.started.elapsed().as_secs(),
        state: match held_because {
            None => State::Forwarding,
            Some(_) => State::Held,
        },
        on_exit: format!("{:?}", daemon.config.on_exit).to_lowercase(),
        deadline: Deadline {
            seconds: daemon.config.deadline,
            lapses: daemon.guard.lapses(),
        },
        priority: daemon.standing.status(daemon.config.priority),
        lag: daemon.lag.status(),
        links: links.collect(),
        programs: programs.collect(),
        out_only: out_only.collect(),
        left_to_kernel: daemon.plan.left.clone(),
        warnings: warnings.collect(),
        lost: daemon.losses.by_link(),
        lost_not_counted: daemon.losses.not_counted(),
        punted: match held_because {
            None => daemon.punted.clone(),
            Some(_) => Vec::new(),
        },
        held_because,
        settings: *daemon.rib.settings(),
        hash_key: daemon.rib.key_kind(),
        hash_seed_can_be_set: seed::can_be_set(),
        mp_algos: daemon
            .config
            .mp_algos
            .iter()
            .map(ToString::to_string)
            .collect(),
        routes: ByFamily {
            inet: usage.routes4 as u64,
            inet6: usage.routes6 as u64,
        },
        image: Image {
            inet_entries: usage.entries4 as u64,
            inet6_entries: usage.entries6 as u64,
            groups: usage.groups as u64,
            adjacencies: usage.adjacencies as u64,
            full: usage.full,
            raise: raise.map(str::to_owned).collect(),
        },
        segments: segment_numbers(&daemon.rib, lacking.as_deref()),
        fpm: daemon
            .fpm
            .as_ref()
            .map(|server| super::fpm::status(server, &daemon.rib)),
        mirror: Mirror {
            notifications: stats.notified,
            dumps: stats.runs,
            overruns: stats.overruns,
            malformed: stats.malformed,
        },
        commits: daemon.commits,
        last_commit_microseconds: daemon.last_commit.took.as_micros() as u64,
    }
}

/// What the image has no room for of what leads to VLANs, bridges and macvlans, as a warning.
fn without_room(lacking: &WithoutRoom) -> Option<Finding> {
    let WithoutRoom { steps, sources } = *lacking;
    let what = match (steps, sources) {
        (0, 0) => return None,
        (0, _) => format!("no room for {sources} MAC addresses that bridges have learnt"),
        (_, 0) => format!("no room for {steps} links upon links"),
        _ => format!(
            "no room for {steps} links upon links, nor for {sources} MAC addresses that bridges have learnt"
        ),
    };
    Some(Finding {
        severity: Severity::Warning,
        link: None,
        role: Role::In,
        what,
        why: "the kernel forwards what comes in by or from these".to_owned(),
        fix: None,
        fixed: false,
    })
}

/// How packets of a link come to the program: `native` or `generic`, as it is attached there, or by which links below.
pub(super) fn mode(daemon: &Daemon, lower: &LowerLinks<'_>, index: u32) -> String {
    let mut attached = daemon.engine.attached();
    let mode = attached.find(|(of, _)| *of == index);
    let mode = mode.map(|(_, mode)| mode.to_string());
    daemon.plan.mode(lower, index, mode.as_deref())
}

/// No more segments that nothing carries out are named than this; the rest are counted.
const NAMED_MOST: usize = 8;

/// How many SIDs and segment lists there are, how many of these are static, how many the kernel's
/// business, and how many static ones cannot be carried out, so that their packets are dropped. `lacking`
/// says why there are no programs for them, where there are none: then nothing is carried out here, and what
/// would have been is counted and named.
fn segment_numbers(rib: &Rib, lacking: Option<&str>) -> SegmentNumbers {
    let idle = |segment: &Segment| lacking.is_some() || segment.kind == segment_kind::KERNEL;
    let count = |wanted: &dyn Fn(&SegmentUse, &Segment) -> bool| {
        rib.segments()
            .filter(|(_, what, segment)| wanted(what, segment))
            .count() as u64
    };
    let mut able: Vec<_> = rib
        .segments()
        .filter(|(.., segment)| segment.kind != segment_kind::KERNEL)
        .collect();
    able.sort_unstable_by_key(|(number, ..)| *number);
    let not_carried_out = lacking.filter(|_| !able.is_empty()).map(|why| {
        let named = able.iter().take(NAMED_MOST).map(|(_, what, _)| label(what));
        NotCarriedOut {
            count: able.len() as u64,
            names: named.collect(),
            why: why.to_owned(),
        }
    });
    SegmentNumbers {
        all: count(&|_, _| true),
        own: count(&|what, _| what.own),
        kernel: count(&|what, segment| !what.own && idle(segment)),
        dropped: count(&|what, segment| what.own && idle(segment)),
        not_carried_out,
    }
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
pub(super) fn counters(rib: &Rib, (counters, losses): (&Engine, &Losses)) -> Counters {
    let reasons = Reason::ALL[1..].iter().flat_map(|reason| {
        let (all, dropped) = (counters.reason(*reason), counters.dropped(*reason));
        let row = |verdict, packets, bytes| ReasonCount {
            reason: reason.name().to_owned(),
            verdict,
            count: Count { packets, bytes },
        };
        let kernel = (!reason.is_drop()).then(|| {
            let packets = all.packets.wrapping_sub(dropped.packets);
            let bytes = all.bytes.wrapping_sub(dropped.bytes);
            row(Verdict::Punt, packets, bytes)
        });
        // What the kernel does not have is dropped for reasons for which it gets other packets.
        let drops = reason.is_drop() || dropped.packets > 0;
        let drop = drops.then(|| row(Verdict::Drop, dropped.packets, dropped.bytes));
        kernel.into_iter().chain(drop)
    });
    let sent = rib.sent(|number| counters.adjacency(number));
    let mut adjacencies: Vec<_> = rib.adjacencies().collect();
    adjacencies.sort_unstable_by_key(|(number, ..)| *number);
    let nexthops = adjacencies
        .into_iter()
        .map(|(number, index, neighbour, adjacency)| {
            let state = neighbour
                .and_then(|ip| rib.neighbour(index, ip))
                .map_or(0, |n| n.state);
            NexthopCount {
                ifindex: index,
                dev: name(rib, index),
                via: neighbour,
                mtu: adjacency.mtu,
                forwards: adjacency.forwards(),
                stale: state & NUD_STALE != 0,
                count: count(sent.nexthop(number)),
            }
        });
    Counters {
        reasons: reasons.collect(),
        links: links(rib, counters, &sent),
        nexthops: nexthops.collect(),
        lost: losses.by_link(),
    }
}

fn count(Counter { packets, bytes }: Counter) -> Count {
    Count { packets, bytes }
}

/// What came in and what was forwarded, by link: those that packets are forwarded from, and those that some were
/// forwarded through, gone ones as well.
fn links(rib: &Rib, counters: &Engine, sent: &Sent) -> Vec<LinkCount> {
    let enabled = rib.ports().enabled.iter();
    let mut rows: Vec<LinkCount> = enabled
        .filter_map(|index| {
            let slot = rib.memory().link(*index).slot;
            let (received, left) = (counters.link(slot), counters.left(slot));
            let dev = rib.link(*index)?.name.clone();
            let sent = sent.links.get(&dev).copied().unwrap_or_default();
            Some(LinkCount {
                dev,
                received: Some(count(received)),
                left: Some(count(left)),
                sent: count(sent),
            })
        })
        .collect();
    let others = sent.links.iter().filter_map(|(name, sent)| {
        let is_there = rows.iter().any(|row| row.dev == **name);
        (!is_there && sent.packets > 0).then(|| LinkCount {
            dev: name.to_string(),
            received: None,
            left: None,
            sent: count(*sent),
        })
    });
    let others: Vec<LinkCount> = others.collect();
    rows.extend(others);
    rows
}

/// The answer to `segments`: what the image has, with what each CPU has counted (those that have counted
/// nothing are left out).
pub(super) fn segments(daemon: &Daemon) -> Segments {
    let rib = &daemon.rib;
    let lacking = !daemon.engine.has_srv6();
    let mut all: Vec<_> = rib.segments().collect();
    all.sort_unstable_by_key(|(number, ..)| *number);
    let segments = all.into_iter().map(|(number, what, segment)| {
        let cpus = (0u32..)
            .zip(daemon.engine.segment_counts(number))
            .filter(|(_, counts)| counts.values.iter().any(|value| *value != 0))
            .map(|(cpu, counts)| CpuCounts {
                cpu,
                values: counts.values,
            });
        let known = segment.kind != segment_kind::KERNEL;
        // Without programs for them the engine counts their packets as it does other encapsulations.
        let reason = match known {
            true => Some(Reason::Encap).filter(|_| lacking),
            false => Reason::from_number(segment.reason),
        };
        control::Segment {
            counters: segment.flags & segment_flags::HAS_COUNTERS != 0,
            name: segment_name(&what.what),
            segs: segments_of(&what.what),
            encap: what.what.encode(),
            index: what.index,
            dev: (what.index != 0).then(|| name(rib, what.index)),
            owner: owner(&what.owner),
            counts: SegmentCounts {
                segment: number,
                forwards: known && !lacking,
                reason: reason.map(|reason| reason.name().to_owned()),
                own: what.own,
                cpus: cpus.collect(),
            },
        }
    });
    Segments {
        segments: segments.collect(),
    }
}

/// No more FPM routes than this are listed here: there may be millions that the kernel does not have.
const ROUTES_MOST: usize = 50_000;

/// The answer to `routes`: those that the kernel does not have, and how many more there are.
pub(super) fn routes(rib: &Rib) -> Routes {
    let stats = rib.fpm_stats();
    let all = stats.alone4 + stats.alone6;
    let fpm = rib.fpm_routes().take(ROUTES_MOST);
    Routes {
        routes: rib.static_routes().chain(fpm).collect(),
        more: all.saturating_sub(ROUTES_MOST) as u64,
    }
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

/// Whose a segment is; none for an encapsulation, which all share that have it.
fn owner(owner: &Owner) -> Option<control::Owner> {
    match *owner {
        Owner::Route {
            table,
            dst,
            metric,
            gateway,
            ..
        } => Some(control::Owner::Route {
            table,
            dst,
            metric,
            gateway,
        }),
        Owner::Object { id, .. } => Some(control::Owner::Nexthop { nexthop: id }),
        Owner::Shared => None,
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
    fn what_has_no_room_is_warned_of() {
        let told = |steps, sources| {
            let found = without_room(&WithoutRoom { steps, sources });
            found.map(|finding| finding.what)
        };
        assert_eq!(told(0, 0), None);
        for (steps, sources, words) in [
            (2, 0, "no room for 2 links upon links"),
            (0, 3, "no room for 3 MAC addresses that bridges have learnt"),
            (2, 3, "links, nor for 3 MAC"),
        ] {
            assert!(told(steps, sources).unwrap().contains(words));
        }
    }

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
        assert_eq!((fine.all, fine.kernel), (10, 0));
        assert_eq!(fine.not_carried_out, None);
        let refused = segment_numbers(&rib, Some("the verifier refused it"));
        assert_eq!((refused.kernel, refused.dropped), (10, 0));
        let lacking = refused.not_carried_out.unwrap();
        assert_eq!(
            (lacking.count, &*lacking.why),
            (10, "the verifier refused it")
        );
        assert_eq!(lacking.names.len(), NAMED_MOST);
        assert!(
            lacking.names.iter().any(|name| name == "End fc00::1/128"),
            "{lacking:?}"
        );
        assert_eq!(
            segment_numbers(&Rib::detached(), Some("x")).not_carried_out,
            None
        );
    }
}
