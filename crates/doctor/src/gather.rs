//! Gathering facts: from the mirror, and for the live kernel from small probes.

use std::collections::{BTreeMap, HashMap};

use raddle_rib::Rib;
use raddle_rib::event::{Nexthop, NexthopKind, Route, RouteKind, RouteTarget};

use super::facts::{Asked, Daemon, Facts, Lost, Need, OwnKey, Paths, Punts, Target};
use super::probe;
use super::srv6::Srv6;
use raddle_control::{
    Counters, Error, LinkCount, LinkLoss, Owner, Routes as Extra, Segment, Segments, Session,
    Status, Verdict,
};
use raddle_preflight::{self as preflight, Fix, Options, Scene};
use raddle_select::KernelVersion;

/// `RT_TABLE_LOCAL`: what is in there is not forwarded.
const LOCAL: u32 = raddle_rib::TABLE_LOCAL;
/// Prefixes with several routes that are kept.
const MOST_RIVALS: usize = 1_000;

/// What is seen besides the routing state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The running kernel and this namespace.
    Live,
    /// Nothing: the state is a snapshot's.
    Snapshot,
}

/// All facts. `kernel` is a version to take in place of the running one's, or the snapshot's.
///
/// Cost: one pass over the routes, and some milliseconds of probes; a few more for each namespace of
/// this machine.
pub fn gather(rib: &Rib, scope: Scope, asked: Asked, kernel: Option<KernelVersion>) -> Facts {
    let nexthops: BTreeMap<u32, Nexthop> = rib.nexthops().map(|nh| (nh.id, nh.clone())).collect();
    let mut routes = Routes::new(&nexthops);
    rib.routes4()
        .chain(rib.routes6())
        .for_each(|route| routes.add(route));
    let (paths, rivals) = routes.into_parts();
    let daemon = Session::new(None);
    let (srv6, of_daemon) = srv6(rib, scope, &daemon);
    let mut facts = Facts {
        asked,
        kernel,
        settings: *rib.settings(),
        links: rib.links().map(|link| (link.index, link.clone())).collect(),
        devices: rib
            .links()
            .map(|link| (link.index, rib.device(link.index)))
            .collect(),
        addresses: rib.addresses().to_vec(),
        neighbours: rib
            .neighbours()
            .map(|n| ((n.index, n.dst), n.clone()))
            .collect(),
        nexthops,
        paths,
        rivals,
        srv6,
        ..Facts::default()
    };
    match scope {
        Scope::Live => live(&mut facts, rib, &daemon),
        Scope::Snapshot => {
            let why = "a snapshot does not have it";
            for need in [
                Need::Settings,
                Need::Steering,
                Need::Offloads,
                Need::Dissector,
                Need::Connections,
                Need::Namespaces,
                Need::Choices,
                Need::Xdp,
                Need::Segments,
            ] {
                facts.not_seen.insert(need, why.to_owned());
            }
            if kernel.is_none() {
                let why = "this snapshot does not have it; --kernel VERSION tells it".to_owned();
                facts.not_seen.insert(Need::Kernel, why);
            }
        }
    }
    if let Some(why) = of_daemon {
        facts.not_seen.insert(Need::Daemon, why);
    }
    facts
}

/// What the daemon of this network namespace does.
fn daemon_of(session: &Session, rib: &Rib) -> Result<Daemon, Error> {
    let counters = session.ask_if_any::<Counters>()?;
    let (Some(counters), Some(status)) = (counters, session.ask_if_any()?) else {
        return Ok(Daemon::Absent);
    };
    let punts = Punts {
        lost: counters
            .lost
            .iter()
            .map(|of| lost(of, &counters, rib))
            .collect(),
        ..punts(&counters, &status)
    };
    Ok(Daemon::Runs(punts))
}

/// What a daemon has seen a link lose.
fn lost(of: &LinkLoss, counters: &Counters, rib: &Rib) -> Lost {
    // Frames of VLANs are lost by the link below them.
    let leaves_by = |row: &&LinkCount| {
        let Some(link) = rib.link_named(&row.dev).filter(|_| row.dev != of.dev) else {
            return row.dev == of.dev;
        };
        let below = raddle_rib::below(link, |index| rib.link(index));
        let below = below.and_then(|below| rib.link(below.lower));
        below.is_some_and(|below| below.name == of.dev)
    };
    let through = counters.links.iter().filter(leaves_by);
    Lost {
        link: of.dev.clone(),
        // One that has gone has none.
        driver: raddle_netlink::probe::ethtool::driver(&of.dev)
            .ok()
            .flatten(),
        sent: through.map(|row| row.sent.packets).sum(),
        lost: of.lost,
        aborted: of.aborted,
        why: of.why(),
    }
}

/// What a daemon leaves to the kernel.
fn punts(counters: &Counters, status: &Status) -> Punts {
    let sent = counters
        .nexthops
        .iter()
        .map(|nexthop| nexthop.count.packets);
    let (left, dropped): (Vec<_>, Vec<_>) = counters
        .reasons
        .iter()
        .partition(|reason| reason.verdict == Verdict::Punt);
    let dropped = dropped.iter().map(|reason| reason.count.packets);
    let left = left.iter().map(|of| (of.reason.clone(), of.count.packets));
    let rules = status.punted.iter().map(|punted| {
        let reason = punted.reason.clone();
        (reason, punted.to_string())
    });
    let by_link = counters.links.iter().filter_map(|link| {
        let (received, left) = (link.received?.packets, link.left?.packets);
        Some((link.dev.clone(), received, left))
    });
    Punts {
        forwarded: sent.chain(dropped).sum(),
        by_reason: left.collect(),
        by_link: by_link.collect(),
        rules: rules.collect(),
        lost: Vec::new(),
    }
}

/// SRv6 of the routes, and of the daemon of this network namespace, if one runs; and what of the daemon's is not seen.
fn srv6(rib: &Rib, scope: Scope, daemon: &Session) -> (Srv6, Option<String>) {
    let of_daemon = || -> Result<(Vec<Segment>, Extra), Error> {
        let segments = daemon.ask_if_any::<Segments>()?.unwrap_or_default();
        let routes = daemon.ask_if_any::<Extra>()?.unwrap_or_default();
        Ok((segments.segments, routes))
    };
    let (segments, own, not_seen) = match scope {
        Scope::Snapshot => (Vec::new(), Vec::new(), None),
        Scope::Live => match of_daemon() {
            Ok((segments, Extra { routes, more: 0 })) => (segments, routes, None),
            Ok((segments, Extra { routes, more })) => {
                let why = format!("{more} more routes by FPM: it tells no more at a time");
                (segments, routes, Some(why))
            }
            Err(e) => (Vec::new(), Vec::new(), Some(e.to_string())),
        },
    };
    let mut srv6 = Srv6::of(rib, &own);
    let idle = segments
        .iter()
        .filter(|segment| segment.counts.own && !segment.counts.forwards);
    srv6.not_ready = idle.map(not_ready).collect();
    (srv6, not_seen)
}

/// A segment of the daemon's answer, and why it is not carried out.
fn not_ready(segment: &Segment) -> String {
    let reason = segment.counts.reason.as_deref().unwrap_or_default();
    let name = &segment.name;
    match &segment.owner {
        Some(Owner::Route { dst, .. }) => format!("{dst} {name}: {reason}"),
        _ => format!("{name} segs {}: {reason}", segment.segs.join(",")),
    }
}

fn live(facts: &mut Facts, rib: &Rib, daemon: &Session) {
    let mut not_seen = BTreeMap::new();
    let mut missing = |need, why: String| _ = not_seen.insert(need, why);
    if facts.kernel.is_none() {
        match preflight::running_kernel() {
            Ok(version) => facts.kernel = Some(version),
            Err(why) => missing(Need::Kernel, format!("{why}; --kernel VERSION tells it")),
        }
    }
    facts.tuning = probe::tuning();
    probe::seg6(facts.links.values(), &mut facts.srv6);
    // A kernel without nexthop objects has no such setting, but none can be without all of them.
    if facts.tuning == Default::default() {
        missing(Need::Settings, "/proc/sys/net cannot be read".to_owned());
    }
    let links: Vec<_> = facts.receivers().cloned().collect();
    match probe::steering(&links) {
        Ok(steered) => facts.receive.steered = steered,
        Err(why) => missing(Need::Steering, why.to_string()),
    }
    if let Err(why) = probe::offloads(&links, &mut facts.receive) {
        missing(Need::Offloads, why.to_string());
    }
    match raddle_netlink::probe::bpf::flow_dissector() {
        Ok(program) => facts.receive.dissector = program,
        Err(e) => missing(Need::Dissector, e.to_string()),
    }
    match probe::connections() {
        Ok(all) => facts.connections = over_several_paths(rib, all),
        Err(why) => missing(Need::Connections, why.to_string()),
    }
    match probe::other_namespaces() {
        Ok(others) => facts.others = others,
        Err(why) => missing(Need::Namespaces, why.to_string()),
    }
    match probe::choices(facts) {
        Ok(choices) => facts.choices = choices,
        Err(why) => missing(Need::Choices, why.to_string()),
    }
    if facts.srv6.is_used()
        && let Err(why) = probe::seg6_keys(&mut facts.srv6)
    {
        missing(Need::Segments, why.to_string());
    }
    if facts.settings.hash_seed == 0 && facts.has_multipath() {
        facts.own_key = match raddle_key::read() {
            Ok(_) => OwnKey::Known,
            Err(why) => OwnKey::Unknown(why.to_string()),
        };
    }
    match daemon_of(daemon, rib) {
        Ok(daemon) => facts.daemon = daemon,
        Err(e) => {
            missing(Need::Daemon, e.to_string());
            facts.daemon = Daemon::of_error(e);
        }
    }
    match traps(rib) {
        Ok(traps) => facts.traps = traps,
        Err(e) => missing(Need::Xdp, e.to_string()),
    }
    facts.not_seen = not_seen;
}

/// What `raddle run` would find, fixing nothing. Whosever XDP programs are attached, they count as
/// what is used.
fn traps(
    rib: &Rib,
) -> Result<Vec<(preflight::Topic, preflight::Finding)>, raddle_netlink::probe::Error> {
    let attached = rib
        .links()
        .filter(|link| link.xdp.is_some())
        .map(|link| link.index)
        .collect();
    let options = Options {
        fix: Fix::Would,
        can_set_seed: preflight::seed::can_be_set(),
        ..Options::default()
    };
    let mut findings = preflight::inspect_by_topic(
        &Scene::of(rib, attached, raddle_xdp::can_receive_redirects),
        &options,
    )?;
    findings.sort_by(|a, b| a.1.cmp(&b.1));
    findings.dedup();
    Ok(findings)
}

/// Those that have company between the same two addresses, and several paths; the most first.
fn over_several_paths(
    rib: &Rib,
    all: Vec<super::facts::Connections>,
) -> Vec<super::facts::Connections> {
    let several = |connections: &super::facts::Connections| {
        let route = rib.trace("lo", connections.remote).route;
        match route.map(|route| route.target) {
            Some(RouteTarget::Multipath(_)) => true,
            Some(RouteTarget::Object(id)) => rib.nexthop(id).is_some_and(|nh| is_group(nh, 2)),
            _ => false,
        }
    };
    let mut kept: Vec<_> = all
        .into_iter()
        .filter(|c| c.count > 1)
        .filter(several)
        .collect();
    kept.sort_by_key(|c| (std::cmp::Reverse(c.count), c.local, c.remote));
    kept
}

/// A group for routes with at least so many members.
fn is_group(nexthop: &Nexthop, least: usize) -> bool {
    match &nexthop.kind {
        NexthopKind::Group(members) | NexthopKind::Resilient { members, .. } => {
            !nexthop.fdb && members.len() >= least
        }
        NexthopKind::Blackhole | NexthopKind::Single { .. } => false,
    }
}

/// Routes one by one, in the order of the mirror, become paths and rivals.
pub(super) struct Routes<'a> {
    nexthops: &'a BTreeMap<u32, Nexthop>,
    paths: Vec<Paths>,
    places: HashMap<(u8, Target), usize>,
    rivals: Vec<Vec<Route>>,
    /// The routes of the last prefix.
    run: Vec<Route>,
}

impl<'a> Routes<'a> {
    /// Of a state with these nexthop objects.
    pub(super) fn new(nexthops: &'a BTreeMap<u32, Nexthop>) -> Self {
        Routes {
            nexthops,
            paths: Vec::new(),
            places: HashMap::new(),
            rivals: Vec::new(),
            run: Vec::new(),
        }
    }

    /// The next route; those of one prefix follow each other.
    pub(super) fn add(&mut self, route: Route) {
        if route.kind != RouteKind::Unicast || route.table == LOCAL {
            return;
        }
        self.count(&route);
        let same = self
            .run
            .first()
            .is_some_and(|r| (r.table, r.dst) == (route.table, route.dst));
        if !same {
            self.end_run();
        }
        self.run.push(route);
    }

    /// Adds the route to the paths that it has, if it has several or could have.
    fn count(&mut self, route: &Route) {
        let target = match &route.target {
            RouteTarget::Multipath(hops) => {
                // Flags change with the state of links, which is looked at by itself.
                let plain = hops.iter().map(|hop| raddle_rib::event::RouteNexthop {
                    flags: 0,
                    ..hop.clone()
                });
                Target::Plain(plain.collect())
            }
            RouteTarget::Object(id) if self.nexthops.get(id).is_some_and(|nh| is_group(nh, 1)) => {
                Target::Group(*id)
            }
            _ => return,
        };
        let family = if route.dst.addr().is_ipv4() { 4 } else { 6 };
        let is_host = route.dst.prefix_len() == route.dst.max_prefix_len();
        let place = self
            .places
            .entry((family, target.clone()))
            .or_insert_with(|| {
                self.paths.push(Paths {
                    family,
                    target,
                    routes: 0,
                    hosts: 0,
                    host: None,
                    table: route.table,
                    dst: route.dst,
                });
                self.paths.len() - 1
            });
        let paths = &mut self.paths[*place];
        paths.routes += 1;
        if is_host {
            paths.hosts += 1;
            paths.host.get_or_insert(route.dst);
        }
    }

    fn end_run(&mut self) {
        let run = std::mem::take(&mut self.run);
        if run.len() > 1 && self.rivals.len() < MOST_RIVALS {
            self.rivals.push(run);
        }
    }

    /// The paths, in the order of their first routes, and prefixes with several routes.
    pub(super) fn into_parts(mut self) -> (Vec<Paths>, Vec<Vec<Route>>) {
        self.end_run();
        (self.paths, self.rivals)
    }
}

#[cfg(test)]
mod tests {
    use super::super::checks::made_up::*;
    use super::*;

    #[test]
    fn routes_with_the_same_paths_are_counted_together() {
        let mut facts = healthy();
        group(&mut facts, &[1, 1]);
        let mut dead = plain("10.9.2.0/24", &[(1, 1), (2, 1)]);
        if let RouteTarget::Multipath(hops) = &mut dead.target {
            hops[0].flags = 17;
        }
        let local = Route {
            table: LOCAL,
            ..plain("10.9.4.0/24", &[(1, 1), (2, 1)])
        };
        let facts = with(
            facts,
            &[
                plain("10.9.0.0/24", &[(1, 1), (2, 1)]),
                grouped("10.9.1.0/24", 100),
                dead,
                plain("10.9.3.0/32", &[(1, 1), (2, 1)]),
                local,
                grouped("10.9.5.0/24", 11),
                plain("10.9.6.0/24", &[(1, 2), (2, 1)]),
            ],
        );
        let seen: Vec<_> = facts
            .paths
            .iter()
            .map(|p| (p.to_string(), p.routes, p.hosts))
            .collect();
        let expected = [
            ("10.9.0.0/24 and 2 more", 3, 1),
            ("10.9.1.0/24", 1, 0),
            ("10.9.6.0/24", 1, 0),
        ];
        assert_eq!(seen, expected.map(|(text, r, h)| (text.to_owned(), r, h)));
    }

    #[test]
    fn rivals_are_of_one_prefix_and_table() {
        let single = |dst: &str, table, metric| Route {
            table,
            metric,
            ..route(dst, RouteTarget::Single(hop(4, 1, 1)))
        };
        let facts = with(
            healthy(),
            &[
                single("10.1.0.0/16", 254, 1),
                single("10.1.0.0/16", 254, 2),
                single("10.1.0.0/16", 100, 3),
                single("10.2.0.0/16", 254, 1),
            ],
        );
        assert_eq!(facts.rivals.len(), 1);
        assert_eq!(facts.rivals[0].len(), 2);
    }
}
