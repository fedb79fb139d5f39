//! `raddle ports audit`: how evenly this machine's connections lie on the paths that they could take.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

use raddle_netlink::probe::sockets::{self, Connected};
use raddle_rib::Rib;
use raddle_select::{Flow, KernelVersion};
use raddle_sim::Predictor;
use raddle_sim::ports::random_paths;
use raddle_sim::spread::Evenness;
use serde::Serialize;

use crate::cli;
use crate::error::Failure;
use crate::paths::{self, Choice, Named, Place, percent};
use crate::sockets::Sockets;
use crate::source;

/// The connections of one route with several paths.
#[derive(Debug, Serialize)]
pub(super) struct Audit {
    /// The route.
    pub route: String,
    /// Connections on each path, in the order of selection.
    pub paths: Vec<Load>,
    /// What they come to.
    pub evenness: Evenness,
    /// Paths that as many connections with random ports would use on average.
    pub random: f64,
}

/// A path and its connections.
#[derive(Debug, Serialize)]
pub(super) struct Load {
    /// The path.
    #[serde(flatten)]
    pub path: Named,
    /// Its share of the hash space.
    pub share: f64,
    /// Connections on it.
    pub connections: u64,
}

/// Runs the command.
pub(super) fn run(args: &cli::PortsAudit) -> Result<(), Failure> {
    let rib = source::mirror(None)?;
    let kernel = raddle_preflight::running_kernel().ok();
    let audits = audit(&rib, kernel, &sockets::connected()?, &args.dst)?;
    if args.json {
        let json = serde_json::to_string(&audits).map_err(|e| Failure::system(e.to_string()))?;
        println!("{json}");
    } else {
        print!("{}", render(&audits));
    }
    match &args.plot {
        Some(path) => draw(&audits, path),
        None => Ok(()),
    }
}

/// Counts connections by route and path; only those to routes that `to` addresses use, if any are
/// given. Routes with one path are left out.
pub(super) fn audit(
    rib: &Rib,
    kernel: Option<KernelVersion>,
    sockets: &[Connected],
    to: &[IpAddr],
) -> Result<Vec<Audit>, Failure> {
    let mut wanted = Vec::new();
    for dst in to {
        let choice = paths::choice(rib, "", *dst).map_err(|e| paths::no_path(*dst, e))?;
        wanted.push(key(&choice));
    }
    let mut routes: BTreeMap<String, (Choice, Vec<u64>)> = BTreeMap::new();
    for socket in sockets {
        let Ok(choice) = paths::choice(rib, "", socket.remote) else {
            continue;
        };
        let name = key(&choice);
        if !choice.is_many() || !(wanted.is_empty() || wanted.contains(&name)) {
            continue;
        }
        let Some(flow) = Flow::new(socket.local, socket.remote) else {
            continue;
        };
        let hashing = paths::hashing(rib, "", socket.remote, None)
            .map_err(|e| Failure::usage(format!("cannot tell paths apart: {e}")))?;
        let sockets = Sockets::new(rib, &choice, kernel);
        let predictor = Predictor::new(hashing, sockets.layout(socket.local, |_| false));
        let path = predictor.flow(&flow.ports(socket.protocol, socket.sport, socket.dport));
        let empty = || (choice.clone(), vec![0; choice.hops.len()]);
        let (_, loads) = routes.entry(name).or_insert_with(empty);
        if let Some(load) = path.and_then(|path| loads.get_mut(path)) {
            *load += 1;
        }
    }
    Ok(routes
        .into_iter()
        .map(|(route, (choice, loads))| one(rib, route, &choice, &loads))
        .collect())
}

fn key(choice: &Choice) -> String {
    choice.route.dst.to_string()
}

fn one(rib: &Rib, route: String, choice: &Choice, loads: &[u64]) -> Audit {
    let shares = choice.layout.shares();
    let share = |i: usize| shares.get(i).copied().unwrap_or(0) as f64 / raddle_sim::SPACE as f64;
    let paths: Vec<Load> = choice
        .hops
        .iter()
        .enumerate()
        .map(|(i, hop)| Load {
            path: Named::of(&Place::of(hop), rib),
            share: share(i),
            connections: loads[i],
        })
        .collect();
    let usable = paths.iter().filter(|load| load.share > 0.0).count();
    let count: u64 = loads.iter().sum();
    Audit {
        route,
        evenness: Evenness::of(loads.iter().map(|load| *load as f64), usable as u64),
        random: random_paths(usable, count as usize),
        paths,
    }
}

fn render(audits: &[Audit]) -> String {
    let mut out = String::new();
    for audit in audits {
        let count: u64 = audit.paths.iter().map(|load| load.connections).sum();
        let even = &audit.evenness;
        let _ = writeln!(
            out,
            "{}: {count} connections on {} of {} paths (random ones: {:.1}), the fullest has {:.2} times \
             the mean",
            audit.route, even.used, even.paths, audit.random, even.imbalance
        );
        for load in &audit.paths {
            let share = percent(load.share);
            let _ = writeln!(
                out,
                "  {:>6}  {share:>9}  {}",
                load.connections,
                load.path.text()
            );
        }
    }
    match audits.is_empty() {
        true => out + "no connection has a route with several paths\n",
        false => {
            out + "by local addresses and ports; a TCP connection whose port was not bound before it connected \
                   may lie elsewhere (Linux 6.16 and later draw its path)\n"
        }
    }
}

fn draw(audits: &[Audit], file: &std::path::Path) -> Result<(), Failure> {
    let several = audits.len() > 1;
    let group = |audit: &Audit, load: &Load| {
        let label = match several {
            true => format!("{}\n{}", load.path.dev, audit.route),
            false => load.path.dev.clone(),
        };
        (
            label,
            vec![("connections".to_owned(), load.connections as f64)],
        )
    };
    let groups: Vec<raddle_plot::Group> = audits
        .iter()
        .flat_map(|audit| audit.paths.iter().map(move |load| group(audit, load)))
        .collect();
    raddle_plot::bars(file, "Connections by path", &groups, "connections")
        .map_err(|e| Failure::system(e.to_string()))
}
