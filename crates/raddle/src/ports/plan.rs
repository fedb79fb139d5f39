//! `raddle ports plan`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

use raddle_netlink::{RouteQuery, Socket};
use raddle_rib::{Hop, MpAlgo, Rib};
use raddle_select::{Flow, KernelVersion};
use raddle_sim::Layout;
use raddle_sim::ports::{self, Alike, Connection, Places, PlanError, ShareOut, Spare, Vary};
use raddle_sim::spread::Evenness;

use super::certificate::{
    Certificate, HashSettings, PlannedConnection, PlannedFlow, PlannedPath, PlannedSpare, Varied,
};
use super::range;
use crate::cli;
use crate::error::Failure;
use crate::paths::{self, Choice, Kind, Named, Place, link_name, percent};
use crate::sockets::{Sockets, Unbound};
use crate::source;

/// Flow labels that are tried: as many as are plenty.
const LABELS: u32 = 1 << 16;
/// Look-ups that show which sources the kernel gives to sockets without an address.
const PROBES: u16 = 32;

/// Runs the command.
pub(super) fn run(args: &cli::PortsPlan) -> Result<(), Failure> {
    let (mut rib, kernel) = source::mirror_and_kernel(args.snapshot.as_deref())?;
    let file = args.snapshot.as_deref();
    source::set_algos(&mut rib, &args.algos, file, args.iif.as_deref())?;
    let certificate = make(&rib, kernel, args)?;
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
///
/// 1. Packets that come in by a link are hashed, and paths are shares of the hash space.
/// 2. Connections of this machine's own with a source: the same, but for IPv4 routes' own nexthops, of
///    which those with that source are preferred ([`raddle_select::choose_local4`]).
/// 3. IPv4 ones without a source, where it depends on the path: two look-ups ([`Unbound`]).
pub(super) fn make(
    rib: &Rib,
    kernel: Option<KernelVersion>,
    args: &cli::PortsPlan,
) -> Result<Certificate, Failure> {
    let iif = paths::input(rib, args.iif.as_deref())?;
    let choice = paths::choice(rib, iif, args.dst).map_err(|e| paths::no_path(args.dst, e))?;
    let sockets = Sockets::new(rib, &choice, kernel);
    let from = from(sockets, args)?;
    let mismatch = || Failure::usage(format!("{from} and {} are of different families", args.dst));
    let flow = Flow::new(from, args.dst).ok_or_else(mismatch)?;
    let flow = flow.ports(args.proto, args.sport.unwrap_or(0), args.dport.unwrap_or(0));
    let (vary, candidates) = candidates(args)?;
    let algo = paths::algo(rib, iif, args.dst);
    let hashing = paths::hashing(rib, iif, args.dst, algo)
        .map_err(|e| Failure::usage(format!("cannot plan ports for {}: {e}", args.dst)))?;
    let share_out = if args.by_weight {
        ShareOut::ByWeight
    } else {
        ShareOut::Evenly
    };
    let asked = Asked {
        rib,
        args,
        choice: &choice,
        algo,
        from,
        flow,
        vary,
        candidates,
        share_out,
    };
    if iif.is_empty() && from == Ipv4Addr::UNSPECIFIED {
        let (links, failures) = failures(&choice, &choice.layout);
        let places = Unbound::new(sockets, &hashing, (args.dst, &flow), &failures);
        return asked.certificate(&places, &links, &failures, |port| {
            places.connect(None, port).map(|(source, _, _)| source)
        });
    }
    let layout = |gone: &[usize]| match iif.is_empty() {
        true => sockets.layout(from, |i| gone.contains(&i)),
        false if gone.is_empty() => choice.layout.clone(),
        false => choice.without(|i| gone.contains(&i)),
    };
    let now = layout(&[]);
    let (links, failures) = failures(&choice, &now);
    let places = Alike {
        hashing: &hashing,
        flow: &flow,
        vary,
        layout: &now,
        without: &failures.iter().map(|gone| layout(gone)).collect::<Vec<_>>(),
    };
    asked.certificate(&places, &links, &failures, |_| None)
}

/// What is wanted of a plan.
struct Asked<'a> {
    rib: &'a Rib,
    args: &'a cli::PortsPlan,
    choice: &'a Choice,
    algo: Option<MpAlgo>,
    from: IpAddr,
    flow: Flow,
    vary: Vary,
    candidates: Vec<u32>,
    share_out: ShareOut,
}

impl Asked<'_> {
    /// The plan, for connections that these places are of: with failures of these links, and nexthops by
    /// number. `source` says which address a connection gets where that depends on its port.
    fn certificate(
        &self,
        places: &impl Places,
        links: &[u32],
        failures: &[Vec<usize>],
        source: impl Fn(u32) -> Option<Ipv4Addr>,
    ) -> Result<Certificate, Failure> {
        let (rib, args, choice) = (self.rib, self.args, self.choice);
        let asked = (args.count, self.share_out);
        let plan = ports::plan(places, failures, &self.candidates, asked)
            .map_err(|e| explain(&e, rib, args, choice))?;
        let (policy, fields, seed) = paths::hash_settings(rib, args.dst, self.algo);
        let hashes = places.shares(None);
        let used = |shares: &[u64]| shares.iter().filter(|share| **share > 0).count();
        let connection = |connection: &Connection| PlannedConnection {
            value: connection.value,
            hash: connection.hash31,
            path: connection.path,
            from: source(connection.value),
        };
        let path = |(i, hop): (usize, &Hop)| PlannedPath {
            path: Named::of(&Place::of(hop), rib),
            weight: hop.weight,
            hashes: hashes.get(i).copied().unwrap_or(0),
        };
        let spare = |(index, mut spare): (&u32, Spare)| {
            spare.loads.resize(choice.hops.len(), 0);
            PlannedSpare {
                dev: link_name(rib, *index),
                connections: spare.connections.iter().map(connection).collect(),
                close: spare.close,
                moved: spare.moved,
                loads: spare.loads,
            }
        };
        Ok(Certificate {
            format: Certificate::FORMAT.into(),
            flow: PlannedFlow {
                dst: args.dst,
                from: self.from,
                iif: args.iif.clone(),
                proto: args.proto,
                sport: self.flow.sport,
                dport: self.flow.dport,
                vary: match self.vary {
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
            preferred: used(&hashes) < used(&choice.layout.shares()),
            paths: choice.hops.iter().enumerate().map(path).collect(),
            connections: plan.connections.iter().map(connection).collect(),
            spares: links.iter().zip(plan.spares).map(spare).collect(),
        })
    }
}

/// The source address: the one that was given, or the one that the kernel gives to such sockets, if that
/// is always the same. 0.0.0.0 where it depends on the path, which a socket over IPv4 follows.
fn from(sockets: Sockets<'_>, args: &cli::PortsPlan) -> Result<IpAddr, Failure> {
    if let Some(from) = args.from {
        return Ok(from);
    }
    if args.iif.is_some() {
        return Err(Failure::usage("say whose connections: add --from ADDRESS"));
    }
    let sources: BTreeSet<IpAddr> = match args.dst {
        IpAddr::V4(_) => sockets
            .sources()
            .into_iter()
            .map(|source| {
                let none = || Failure::usage("a path has no source address: add --from ADDRESS");
                source.map(IpAddr::V4).ok_or_else(none)
            })
            .collect::<Result<_, _>>()?,
        IpAddr::V6(_) => asked_of_the_kernel(args)?,
    };
    let mut list = sources.iter();
    match (list.next(), list.next(), args.dst) {
        (Some(source), None, _) => Ok(*source),
        (Some(_), Some(_), IpAddr::V4(_)) => Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        (Some(_), Some(_), IpAddr::V6(_)) => Err(Failure::usage(format!(
            "the source address depends on the path ({}): bind the connections to one, and add --from \
             ADDRESS",
            sources
                .iter()
                .map(IpAddr::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        ))),
        (None, ..) => Err(Failure::usage(
            "the kernel names no source address: add --from ADDRESS",
        )),
    }
}

/// The sources that the live kernel names for some ports.
fn asked_of_the_kernel(args: &cli::PortsPlan) -> Result<BTreeSet<IpAddr>, Failure> {
    if args.snapshot.is_some() {
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
    Ok(sources)
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

/// The links that paths with a share use, and the nexthops over each, by number.
fn failures(choice: &Choice, layout: &Layout) -> (Vec<u32>, Vec<Vec<usize>>) {
    let shares = layout.shares();
    let mut links: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (i, hop) in choice.hops.iter().enumerate() {
        links.entry(hop.index).or_default().push(i);
    }
    let used = |i: &usize| shares.get(*i).is_some_and(|share| *share > 0);
    links.retain(|_, over| over.iter().any(used));
    links.into_iter().unzip()
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
        PlanError::NoPath => paths::no_path(args.dst, raddle_image::Reason::NoRoute),
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
        match plan.is_unbound() {
            true => "their paths' addresses".to_owned(),
            false => flow.from.to_string(),
        },
        flow.dst,
        plan.route,
        ports::random_paths(paths, count)
    );
    if plan.preferred {
        let _ = writeln!(
            out,
            "Linux (6.16 and later) prefers nexthops whose source is {}: leave --from out to cover the \
             others",
            flow.from
        );
    }
    let names: Vec<String> = plan.paths.iter().map(|path| path.path.text()).collect();
    let wide = names.iter().map(String::len).max().unwrap_or(0).max(4);
    let _ = writeln!(out, "\n{what:>11}  {:>10}  path", "hash");
    for c in &plan.connections {
        let from = c
            .from
            .map_or_else(String::new, |from| format!(" src {from}"));
        let name = &names[c.path];
        let _ = writeln!(out, "{:>11}  {:>10}  {name}{from}", c.value, c.hash);
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
    let groups: Vec<raddle_plot::Group> = plan.paths.iter().zip(&loads).map(group).collect();
    let even = Evenness::of(loads.iter().map(|load| *load as f64), loads.len() as u64);
    let title = format!(
        "{count} connections to {}: {} paths in use",
        plan.flow.dst, even.used
    );
    raddle_plot::bars(file, &title, &groups, "connections")
        .map_err(|e| Failure::system(e.to_string()))
}
