//! How evenly this machine's connections lie on the paths that they could take.

use std::collections::BTreeMap;
use std::net::IpAddr;

use raddle_netlink::probe::sockets::Connected;
use raddle_rib::Rib;
use raddle_select::{Flow, KernelVersion};
use raddle_sim::Predictor;
use raddle_sim::ports::random_paths;
use raddle_sim::sample::Sample;
use raddle_sim::spread::Evenness;
use serde::Serialize;

use super::Error;
use crate::paths::{self, Choice, Named, Place};
use crate::sockets::Sockets;

/// The connections of one route with several paths.
#[derive(Debug, Serialize)]
pub struct Audit {
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
pub struct Load {
    /// The path.
    #[serde(flatten)]
    pub path: Named,
    /// Its share of the hash space.
    pub share: f64,
    /// Connections on it.
    pub connections: u64,
}

/// By route.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Audits(pub Vec<Audit>);

/// Counts connections by route and path; only those to routes that `to` addresses use, if any are
/// given. Routes with one path are left out.
///
/// # Errors
/// Such an address has no path, or connections have no hash.
pub fn audit(
    rib: &Rib,
    kernel: Option<KernelVersion>,
    sockets: &[Connected],
    to: &[IpAddr],
) -> Result<Audits, Error> {
    let mut wanted = Vec::new();
    for dst in to {
        wanted.push(key(&paths::needed(rib, "", &paths::packets_to(*dst))?));
    }
    let mut routes: BTreeMap<String, (Choice, Vec<u64>)> = BTreeMap::new();
    for socket in sockets {
        let Some(flow) = Flow::new(socket.local, socket.remote) else {
            continue;
        };
        let flow = flow.ports(socket.protocol, socket.sport, socket.dport);
        let packets = paths::packets_of(rib, "", &Sample::of(flow));
        let Ok(choice) = paths::choice(rib, "", &packets) else {
            continue;
        };
        let name = key(&choice);
        if !choice.is_many() || !(wanted.is_empty() || wanted.contains(&name)) {
            continue;
        }
        let hashing = paths::hashing(rib, "", socket.remote, None).map_err(Error::NotTold)?;
        let sockets = Sockets::new(rib, &choice, kernel);
        let predictor = Predictor::new(hashing, sockets.layout(socket.local, |_| false));
        let path = predictor.flow(&flow);
        let empty = || (choice.clone(), vec![0; choice.hops.len()]);
        let (_, loads) = routes.entry(name).or_insert_with(empty);
        if let Some(load) = path.and_then(|path| loads.get_mut(path)) {
            *load += 1;
        }
    }
    Ok(Audits(
        routes
            .into_iter()
            .map(|(route, (choice, loads))| one(rib, route, &choice, &loads))
            .collect(),
    ))
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
