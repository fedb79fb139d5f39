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
use crate::bonds::{BondUse, Bonds, Differ, Fan, Traffic, is_by_destination};
use crate::paths::{self, Choice, Named, Place};
use crate::sockets::Sockets;

/// The connections of one route with several paths.
#[derive(Debug, Serialize)]
pub struct Audit {
    /// The route.
    pub route: String,
    /// The destination, where it decides by which members of bonds connections leave: then each has its own paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<IpAddr>,
    /// The bonds that paths lead over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bonds: Vec<BondUse>,
    /// Connections on each path, in the order of selection; of a nexthop over a bond, on each of its members.
    pub paths: Vec<Load>,
    /// What they come to.
    pub evenness: Evenness,
    /// Paths that as many connections with random ports would use on average.
    pub random: f64,
}

impl Audit {
    /// `ROUTE`, or `ROUTE to DST`.
    pub(super) fn name(&self) -> String {
        let to = self.to.map(|to| format!(" to {to}"));
        format!("{}{}", self.route, to.unwrap_or_default())
    }
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
/// given. Routes with one path are left out; where the destination decides by which members of bonds connections leave, each
/// destination counts as a route.
///
/// # Errors
/// Such an address has no path, or connections have no hash.
pub fn audit(
    rib: &Rib,
    kernel: Option<KernelVersion>,
    bonds: &Bonds,
    sockets: &[Connected],
    to: &[IpAddr],
) -> Result<Audits, Error> {
    let mut wanted = Vec::new();
    for dst in to {
        wanted.push(key(&paths::needed(rib, "", &paths::packets_to(*dst))?));
    }
    let mut routes: BTreeMap<(String, Option<IpAddr>), Lying> = BTreeMap::new();
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
        if !(wanted.is_empty() || wanted.contains(&name)) {
            continue;
        }
        let mut hops = choice.hops.iter().map(Place::of);
        let by_destination = hops.any(|hop| is_by_destination(rib, &hop, socket.remote));
        let lying = routes
            .entry((name, by_destination.then_some(socket.remote)))
            .or_insert_with(|| Lying::new(rib, bonds, &choice, flow));
        if lying.loads.len() < 2 {
            continue;
        }
        let sockets = Sockets::new(rib, &choice, kernel);
        let hop = match choice.is_many() {
            false => Some(0),
            true => {
                let hashing =
                    paths::hashing(rib, "", socket.remote, None).map_err(Error::NotTold)?;
                let layout = sockets.layout(socket.local, |_| false);
                Predictor::new(hashing, layout).flow(&flow)
            }
        };
        let path = lying.fan.flow(hop, &flow, None);
        if let Some(load) = path.and_then(|path| lying.loads.get_mut(path)) {
            *load += 1;
        }
    }
    Ok(Audits(
        routes
            .into_iter()
            .filter(|(_, lying)| lying.loads.len() > 1)
            .map(|(route, lying)| one(rib, route, &lying))
            .collect(),
    ))
}

/// The paths of a route, and how many connections lie on each.
struct Lying {
    choice: Choice,
    fan: Fan,
    loads: Vec<u64>,
}

impl Lying {
    /// None yet, of connections like this flow.
    fn new(rib: &Rib, bonds: &Bonds, choice: &Choice, flow: Flow) -> Lying {
        let hops: Vec<Place> = choice.hops.iter().map(Place::of).collect();
        let traffic = Traffic {
            forwarded: None,
            flow,
            differ: Differ::All,
        };
        let fan = Fan::new(rib, bonds, &hops, &traffic);
        Lying {
            choice: choice.clone(),
            loads: vec![0; fan.places().len()],
            fan,
        }
    }
}

fn key(choice: &Choice) -> String {
    choice.route.dst.to_string()
}

fn one(rib: &Rib, (route, to): (String, Option<IpAddr>), lying: &Lying) -> Audit {
    let Lying { choice, fan, loads } = lying;
    let shares = fan.shares(&choice.layout.shares(), None);
    let paths: Vec<Load> = fan
        .places()
        .iter()
        .enumerate()
        .map(|(i, place)| Load {
            path: Named::of(place, rib),
            share: shares[i] as f64 / raddle_sim::SPACE as f64,
            connections: loads[i],
        })
        .collect();
    let usable = paths.iter().filter(|load| load.share > 0.0).count();
    let count: u64 = loads.iter().sum();
    Audit {
        route,
        to,
        bonds: fan.bonds(),
        evenness: Evenness::of(loads.iter().map(|load| *load as f64), usable as u64),
        random: random_paths(usable, count as usize),
        paths,
    }
}
