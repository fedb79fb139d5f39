//! `raddle ports plan`.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;

use raddle_netlink::{RouteQuery, Socket};
use raddle_rib::Rib;
use raddle_select::Flow;
use raddle_sim::Layout;
use raddle_sim::ports::{self, Connection, PlanError, ShareOut, Vary};
use raddle_sim::spread::Evenness;

use super::certificate::{
    Certificate, HashSettings, PlannedConnection, PlannedFlow, PlannedPath, PlannedSpare, Varied,
};
use super::range;
use crate::cli;
use crate::error::Failure;
use crate::paths::{self, Choice, Kind, Named, Place, link_name, percent};
use crate::plot;
use crate::source;

/// Flow labels that are tried: as many as are plenty.
const LABELS: u32 = 1 << 16;
/// Look-ups that show which sources the kernel gives to sockets without an address.
const PROBES: u16 = 32;

/// Runs the command.
pub(super) fn run(args: &cli::PortsPlan) -> Result<(), Failure> {
    let rib = source::mirror(args.snapshot.as_deref())?;
    source::note_algos(args.snapshot.as_deref(), args.iif.as_deref());
    let certificate = make(&rib, args)?;
    let json =
        || serde_json::to_string_pretty(&certificate).map_err(|e| Failure::system(e.to_string()));
    if let Some(path) = &args.out {
        std::fs::write(path, json()? + "\n").map_err(|e| {
            Failure::system(format!(
                "cannot write the certificate {}: {e}",
                path.display()
            ))
        })?;
    }
    match args.json {
        true => println!("{}", json()?),
        false => print!("{}", render(&certificate)),
    }
    match &args.plot {
        Some(path) => draw(&certificate, path),
        None => Ok(()),
    }
}

/// The plan that was asked for.
pub(super) fn make(rib: &Rib, args: &cli::PortsPlan) -> Result<Certificate, Failure> {
    let iif = paths::input(rib, args.iif.as_deref())?;
    let choice = paths::choice(rib, iif, args.dst).map_err(|e| paths::no_path(args.dst, e))?;
    let from = from(args)?;
    let mismatch = || Failure::usage(format!("{from} and {} are of different families", args.dst));
    let flow = Flow::new(from, args.dst).ok_or_else(mismatch)?;
    let flow = flow.ports(args.proto, args.sport.unwrap_or(0), args.dport.unwrap_or(0));
    if iif.is_empty() {
        steered(rib, &choice, from)?;
    }
    let (vary, candidates) = candidates(args)?;
    let hashing = paths::hashing(rib, iif, args.dst)
        .map_err(|e| Failure::usage(format!("cannot plan ports for {}: {e}", args.dst)))?;
    let failures = failures(&choice);
    let without: Vec<(Vec<usize>, Layout)> = failures
        .iter()
        .map(|(_, gone, layout)| (gone.clone(), layout.clone()))
        .collect();
    let share_out = if args.by_weight {
        ShareOut::ByWeight
    } else {
        ShareOut::Evenly
    };
    let asked = (args.count, share_out);
    let plan = ports::plan(
        &hashing,
        &choice.layout,
        &without,
        (&flow, vary),
        candidates.into_iter(),
        asked,
    )
    .map_err(|e| explain(&e, rib, args, &choice))?;
    let (policy, fields, seed) = paths::hash_settings(rib, args.dst);
    let hashes = choice.layout.shares();
    Ok(Certificate {
        format: Certificate::FORMAT.into(),
        flow: PlannedFlow {
            dst: args.dst,
            from,
            iif: args.iif.clone(),
            proto: args.proto,
            sport: flow.sport,
            dport: flow.dport,
            vary: match vary {
                Vary::SourcePort => Varied::Sport,
                Vary::FlowLabel => Varied::FlowLabel,
            },
        },
        settings: HashSettings {
            policy,
            fields,
            seed,
        },
        route: choice.route.dst.to_string(),
        group: match choice.kind {
            Kind::Group(id) | Kind::Resilient(id) => Some(id),
            Kind::One | Kind::Plain => None,
        },
        paths: choice
            .hops
            .iter()
            .enumerate()
            .map(|(i, hop)| PlannedPath {
                path: Named::of(&Place::of(hop), rib),
                weight: hop.weight,
                hashes: hashes.get(i).copied().unwrap_or(0),
            })
            .collect(),
        connections: plan.connections.iter().map(connection).collect(),
        spares: failures
            .iter()
            .zip(plan.spares)
            .map(|((index, _, _), mut spare)| {
                spare.loads.resize(choice.hops.len(), 0);
                PlannedSpare {
                    dev: link_name(rib, *index),
                    connections: spare.connections.iter().map(connection).collect(),
                    close: spare.close,
                    moved: spare.moved,
                    loads: spare.loads,
                }
            })
            .collect(),
    })
}

fn connection(connection: &Connection) -> PlannedConnection {
    PlannedConnection {
        value: connection.value,
        hash: connection.hash31,
        path: connection.path,
    }
}

/// The source address: the one that was given, or the one that the kernel gives to such sockets, if that
/// is always the same.
fn from(args: &cli::PortsPlan) -> Result<IpAddr, Failure> {
    if let Some(from) = args.from {
        return Ok(from);
    }
    if args.iif.is_some() || args.snapshot.is_some() {
        return Err(Failure::usage("say whose connections: add --from ADDRESS"));
    }
    let mut socket = Socket::open()?;
    let mut sources = BTreeSet::new();
    for probe in 0..PROBES {
        let query = RouteQuery {
            ip_proto: Some(args.proto),
            sport: Some(40000 + probe),
            dport: args.dport,
            ..RouteQuery::default()
        };
        sources.extend(socket.get_route(args.dst, &query)?.prefsrc);
    }
    let list: Vec<String> = sources.iter().map(IpAddr::to_string).collect();
    match sources.first() {
        Some(source) if sources.len() == 1 => Ok(*source),
        Some(_) => Err(Failure::usage(format!(
            "the source address depends on the path ({}): bind the connections to one, and add --from \
             ADDRESS",
            list.join(", ")
        ))),
        None => Err(Failure::usage(
            "the kernel names no source address: add --from ADDRESS",
        )),
    }
}

/// IPv4 routes with nexthops of their own prefer, for this machine's own packets, nexthops whose source
/// address fits, whatever the hash (`fib_select_multipath` from Linux 6.16 on).
fn steered(rib: &Rib, choice: &Choice, from: IpAddr) -> Result<(), Failure> {
    if choice.kind != Kind::Plain || !from.is_ipv4() {
        return Ok(());
    }
    let own = |index: u32| {
        rib.addresses()
            .iter()
            .any(|a| a.index == index && a.local == from)
    };
    match choice.hops.iter().find(|hop| own(hop.index)) {
        Some(hop) => Err(Failure::usage(format!(
            "{from} is an address of {}: from 6.16 on, Linux sends what has it by that link, whatever the \
             port; use an address of no link of the route (such as a loopback's), or a nexthop group",
            link_name(rib, hop.index)
        ))),
        None => Ok(()),
    }
}

/// What varies, and the values that may be used.
fn candidates(args: &cli::PortsPlan) -> Result<(Vary, Vec<u32>), Failure> {
    let most = if args.flow_labels { 0xf_ffff } else { 65535 };
    let (first, last) = match (args.first, args.last) {
        (None, None) if args.flow_labels => (1, LABELS),
        (None, None) => return Ok((Vary::SourcePort, range::local(args.snapshot.is_none())?)),
        (first, last) => (first.unwrap_or(1), last.unwrap_or(most)),
    };
    if first > last || last > most {
        return Err(Failure::usage(format!(
            "--first {first} --last {last} is no range: they go from 0 to {most}"
        )));
    }
    if args.flow_labels && args.dst.is_ipv4() {
        return Err(Failure::usage(
            "IPv4 has no flow labels: leave --flow-labels out",
        ));
    }
    let vary = if args.flow_labels {
        Vary::FlowLabel
    } else {
        Vary::SourcePort
    };
    // Port 0 and label 0 stand for "choose one".
    Ok((vary, (first.max(1)..=last).collect()))
}

/// For each link that paths with a share use: its index, its paths, and the layout without them.
fn failures(choice: &Choice) -> Vec<(u32, Vec<usize>, Layout)> {
    let shares = choice.layout.shares();
    let used = |i: usize| shares.get(i).is_some_and(|share| *share > 0);
    let links: BTreeSet<u32> = choice
        .hops
        .iter()
        .enumerate()
        .filter(|(i, _)| used(*i))
        .map(|(_, hop)| hop.index)
        .collect();
    let without = |index: u32| {
        let hops = &choice.hops;
        let is_gone = |i: usize| hops[i].index == index;
        let gone: Vec<usize> = (0..hops.len()).filter(|i| is_gone(*i)).collect();
        (index, gone, choice.without(is_gone))
    };
    links.into_iter().map(without).collect()
}

fn explain(error: &PlanError, rib: &Rib, args: &cli::PortsPlan, choice: &Choice) -> Failure {
    match error {
        PlanError::NotHashed if args.flow_labels => Failure::usage(
            "the hash policy does not look at flow labels: plan ports, or use policy 0 or 3 \
             (net.ipv6.fib_multipath_hash_policy)",
        ),
        PlanError::NotHashed => {
            let family = if args.dst.is_ipv4() { "ipv4" } else { "ipv6" };
            Failure::usage(format!(
                "the hash policy does not look at ports: sysctl -w net.{family}.fib_multipath_hash_policy=1 \
                 makes it"
            ))
        }
        PlanError::TooFew {
            path,
            wanted,
            found,
        } => {
            let name = choice
                .hops
                .get(*path)
                .map(|hop| Place::of(hop).text(rib))
                .unwrap_or_default();
            Failure::usage(format!(
                "only {found} of the values that may be used lead {name}, {wanted} are wanted: widen \
                 --first and --last"
            ))
        }
        PlanError::NoPath => paths::no_path(args.dst, raddle_rib::Reason::NoRoute),
    }
}

/// The plan for people.
pub(super) fn render(plan: &Certificate) -> String {
    let mut out = String::new();
    let flow = &plan.flow;
    let what = match flow.vary {
        Varied::Sport => "source port",
        Varied::FlowLabel => "flow label",
    };
    let loads = plan.loads();
    let used = loads.iter().filter(|load| **load > 0).count();
    let paths = plan.paths.iter().filter(|path| path.hashes > 0).count();
    let count = plan.connections.len();
    let _ = writeln!(
        out,
        "{count} connections from {} to {} over {}: {used} of {paths} paths (random ones: {:.1} on average)",
        flow.from,
        flow.dst,
        plan.route,
        ports::random_paths(paths, count)
    );
    let names: Vec<String> = plan.paths.iter().map(|path| path.path.text()).collect();
    let wide = names.iter().map(String::len).max().unwrap_or(0).max(4);
    let _ = writeln!(out, "\n{what:>11}  {:>10}  path", "hash");
    for c in &plan.connections {
        let _ = writeln!(out, "{:>11}  {:>10}  {}", c.value, c.hash, names[c.path]);
    }
    let _ = writeln!(out, "\n{:wide$}  {:>9}  connections", "path", "share");
    for ((name, path), load) in names.iter().zip(&plan.paths).zip(&loads) {
        let share = percent(path.hashes as f64 / raddle_sim::SPACE as f64);
        let _ = writeln!(out, "{name:wide$}  {share:>9}  {load:>11}");
    }
    let mut spares = plan
        .spares
        .iter()
        .filter(|spare| !spare.connections.is_empty())
        .peekable();
    if spares.peek().is_some() {
        let _ = writeln!(out, "\nif a link fails");
    }
    for spare in spares {
        let list = |values: &mut dyn Iterator<Item = u32>| {
            values
                .map(|value| value.to_string())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let open = list(&mut spare.connections.iter().map(|c| c.value));
        let close = match spare.close.is_empty() {
            true => String::new(),
            false => format!(", close {}", list(&mut spare.close.iter().copied())),
        };
        let live = spare.loads.iter().filter(|load| **load > 0).count();
        let _ = writeln!(out, "  {}: open {open}{close}: {live} paths", spare.dev);
    }
    out
}

/// Draws the connections on each path, planned and as random ports would lie on average.
fn draw(plan: &Certificate, file: &std::path::Path) -> Result<(), Failure> {
    let count = plan.connections.len() as f64;
    let loads = plan.loads();
    let group = |(path, load): (&PlannedPath, &usize)| {
        let expected = count * path.hashes as f64 / raddle_sim::SPACE as f64;
        let bars = vec![
            ("planned".to_owned(), *load as f64),
            ("random ports, mean".to_owned(), expected),
        ];
        (path.path.dev.clone(), bars)
    };
    let groups: Vec<plot::Group> = plan.paths.iter().zip(&loads).map(group).collect();
    let even = Evenness::of(loads.iter().map(|load| *load as f64), loads.len() as u64);
    let title = format!(
        "{count} connections to {}: {} paths in use",
        plan.flow.dst, even.used
    );
    plot::bars(file, &title, &groups, "connections").map_err(|e| Failure::system(e.to_string()))
}
