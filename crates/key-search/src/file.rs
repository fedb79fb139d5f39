//! The file in which observations of a router are written down.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use raddle_config::{At, Error, File, Spanned, Within};
use raddle_select::{
    Flow, HashConfig, Hasher, Seed, choose_plain, keys_of_plain_packet, upper_bounds,
};
use raddle_text::outside::link_name;
use serde::Deserialize;

use crate::observation::Observation;

/// What a router did with flows that it forwarded, as a TOML file says it:
///
/// ```toml
/// policy = 1                      # net.ipv4.fib_multipath_hash_policy of the router; net.ipv6's where flows are IPv6
///
/// [[route]]
/// paths = [ { link = "eth1" }, { link = "eth2", weight = 3 } ]    # in the order in which the router shows them
/// flows = [
///   { src = "10.0.0.1", dst = "198.18.0.9", proto = 6, sport = 40000, dport = 443, took = "eth1" },
/// ]
/// ```
///
/// With policy 3 `fields` is `fib_multipath_hash_fields`. A flow may have a `flow-label`. Paths are those of one route or
/// nexthop group (of the kind `mpath`), all of them up. See [`Router`] for what else it may have.
#[derive(Clone, Debug)]
pub struct Observations(Vec<Observation>);

/// A router whose seed is known: a file of [`Observations`] with `seed`. Its routes may say what they are `to`:
///
/// ```toml
/// policy = 1
/// seed = 54321
///
/// [[route]]
/// to = [ "198.18.0.0/15" ]        # without it: to all other destinations
/// paths = [ { link = "eth1" }, { link = "eth2", weight = 3 } ]
/// ```
pub struct Router {
    config: HashConfig,
    policy: u8,
    fields: u32,
    seed: Seed,
    routes: Vec<RouterRoute>,
}

/// A route of a [`Router`].
#[derive(Clone, Debug)]
pub struct RouterRoute {
    /// Its destinations; without any, all that no other is to.
    pub to: Vec<IpNet>,
    /// The link and the weight of each path, in the router's order.
    pub paths: Vec<(String, u16)>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Whole {
    policy: Spanned<Within<0, 3>>,
    #[serde(default)]
    fields: Option<Within<0, 0xfff>>,
    #[serde(default)]
    seed: Option<Within<1, { u32::MAX }>>,
    route: Vec<Route>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Route {
    #[serde(default)]
    to: Vec<IpNet>,
    paths: Spanned<Vec<Path>>,
    #[serde(default)]
    flows: Vec<Seen>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Path {
    #[serde(deserialize_with = "link_name")]
    link: String,
    #[serde(default)]
    weight: Option<Within<1, 65535>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Seen {
    src: Spanned<IpAddr>,
    dst: Spanned<IpAddr>,
    #[serde(default)]
    proto: Option<Within<0, 255>>,
    #[serde(default)]
    sport: Option<Within<0, 65535>>,
    #[serde(default)]
    dport: Option<Within<0, 65535>>,
    #[serde(default)]
    flow_label: Option<Within<0, 0xf_ffff>>,
    took: Spanned<String>,
}

/// What TOML allows and observations do not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Meaning {
    /// There is nothing to choose from.
    #[error("a route with fewer than two links tells nothing; name all its paths")]
    OneLink,
    /// More paths than a route has.
    #[error("a route has at most {most} paths", most = Meaning::MOST_PATHS)]
    ManyPaths,
    /// The addresses are of two families.
    #[error("source and destination are of different families")]
    Families,
    /// The link is none of the paths.
    #[error("none of the route's paths has the link '{0}'")]
    NoPath(String),
    /// The weight is so small that the kernel gives the path no hash.
    #[error("the kernel gives the link '{0}' no flow at these weights")]
    NoHash(String),
    /// Policy 3 alone has fields.
    #[error("fields belong to policy 3")]
    Fields,
    /// Of a [`Router`].
    #[error(
        "the router's seed is not known: raddle key find --observations FILE --out ROUTER writes a file that has it"
    )]
    NoSeed,
}

impl Meaning {
    const MOST_PATHS: usize = 4096;
}

impl Observations {
    /// Reads them.
    ///
    /// # Errors
    /// What is wrong in the file, with its place.
    pub fn of(file: &File) -> Result<Observations, Error> {
        let whole: Whole = file.parse()?;
        let config = hash_config(file, &whole)?;
        let mut all = Vec::new();
        for route in &whole.route {
            of_route(&config, route, &mut all).map_err(|at| file.error_at(at))?;
        }
        Ok(Observations(all))
    }

    /// Each of them.
    pub fn into_inner(self) -> Vec<Observation> {
        self.0
    }
}

fn hash_config(file: &File, whole: &Whole) -> Result<HashConfig, Error> {
    let policy = whole.policy.get_ref().0;
    let wrong = || file.error_at(At::new(&whole.policy, Meaning::Fields));
    if whole.fields.is_some() && policy != 3 {
        return Err(wrong());
    }
    let fields = whole.fields.map_or(7, |fields| fields.0);
    HashConfig::kernel(policy as u8, fields).ok_or_else(wrong)
}

impl Router {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong in the file, with its place; [`Meaning::NoSeed`].
    pub fn of(file: &File) -> Result<Router, Error> {
        let whole: Whole = file.parse()?;
        let config = hash_config(file, &whole)?;
        let Some(seed) = whole.seed.and_then(|seed| Seed::new(seed.0)) else {
            return Err(file.error_at(At::new(&whole.policy, Meaning::NoSeed)));
        };
        let mut routes = Vec::new();
        for route in whole.route {
            // Also what is observed has to make sense.
            of_route(&config, &route, &mut Vec::new()).map_err(|at| file.error_at(at))?;
            let paths = route.paths.into_inner().into_iter();
            let weight = |path: &Path| path.weight.map_or(1, |weight| weight.0 as u16);
            routes.push(RouterRoute {
                to: route.to,
                paths: paths
                    .map(|path| {
                        let weight = weight(&path);
                        (path.link, weight)
                    })
                    .collect(),
            });
        }
        Ok(Router {
            config,
            policy: whole.policy.get_ref().0 as u8,
            fields: whole.fields.map_or(7, |fields| fields.0),
            seed,
            routes,
        })
    }

    /// `fib_multipath_hash_policy`.
    pub fn policy(&self) -> u8 {
        self.policy
    }

    /// `fib_multipath_hash_fields`, which count with policy 3.
    pub fn fields(&self) -> u32 {
        self.fields
    }

    /// The seed, which is a secret of its owner.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Its routes.
    pub fn routes(&self) -> &[RouterRoute] {
        &self.routes
    }

    /// The route that a destination takes: of those to it the one with the longest prefix, else the first that is to all others.
    pub fn route_to(&self, dst: IpAddr) -> Option<&RouterRoute> {
        let longest = |route: &RouterRoute| {
            let covering = route.to.iter().filter(|net| net.contains(&dst));
            covering.map(|net| net.prefix_len()).max()
        };
        let best = self.routes.iter().filter(|route| longest(route).is_some());
        let best = best.max_by_key(|route| longest(route));
        best.or_else(|| self.routes.iter().find(|route| route.to.is_empty()))
    }

    /// The link that a flow takes there, all paths of its route being up; none where it has no route. As of a packet that is neither
    /// fragmented nor encapsulated.
    pub fn link_of(&self, flow: &Flow) -> Option<&str> {
        let (_, dst) = flow.addresses.ends();
        let route = self.route_to(dst)?;
        let weights: Vec<_> = route
            .paths
            .iter()
            .map(|(_, weight)| Some(u32::from(*weight)))
            .collect();
        let keys = keys_of_plain_packet(&self.config, flow);
        let hash = Hasher::new(self.seed).hash31(&keys);
        let chosen = choose_plain(&upper_bounds(&weights), |_| true, hash)?;
        Some(route.paths.get(chosen.member)?.0.as_str())
    }
}

fn of_route(
    config: &HashConfig,
    route: &Route,
    all: &mut Vec<Observation>,
) -> Result<(), At<Meaning>> {
    let paths = route.paths.get_ref();
    let links: BTreeSet<&str> = paths.iter().map(|path| path.link.as_str()).collect();
    if links.len() < 2 {
        return Err(At::new(&route.paths, Meaning::OneLink));
    }
    if paths.len() > Meaning::MOST_PATHS {
        return Err(At::new(&route.paths, Meaning::ManyPaths));
    }
    let weights = paths.iter().map(|path| path.weight.as_ref());
    let weights: Vec<_> = weights.map(|w| Some(w.map_or(1, |w| w.0))).collect();
    let uppers = upper_bounds(&weights);
    for seen in &route.flows {
        let Some(flow) = Flow::new(*seen.src.get_ref(), *seen.dst.get_ref()) else {
            return Err(At::new(&seen.dst, Meaning::Families));
        };
        let number = |n: Option<u32>| n.unwrap_or(0);
        let flow = Flow {
            proto: number(seen.proto.map(|n| n.0)) as u8,
            sport: number(seen.sport.map(|n| n.0)) as u16,
            dport: number(seen.dport.map(|n| n.0)) as u16,
            flow_label: number(seen.flow_label.map(|n| n.0)),
            ..flow
        };
        let took = seen.took.get_ref();
        if !links.contains(took.as_str()) {
            return Err(At::new(&seen.took, Meaning::NoPath(took.clone())));
        }
        let keys = keys_of_plain_packet(config, &flow);
        let observation =
            Observation::of_member(&keys, &uppers, |member| paths[member].link == *took);
        if observation.share() == 0.0 {
            return Err(At::new(&seen.took, Meaning::NoHash(took.clone())));
        }
        all.push(observation);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "policy = 1
[[route]]
paths = [ { link = 'eth1' }, { link = 'eth2', weight = 3 }, { link = 'eth1', weight = 4 } ]
flows = [
  { src = '10.0.0.1', dst = '198.18.0.9', proto = 6, sport = 40000, dport = 443, took = 'eth1' },
  { src = 'fd00::1', dst = 'fd00::2', flow-label = 0xfffff, took = 'eth2' },
]
";

    fn read(text: &str) -> Result<Vec<f64>, String> {
        let read = Observations::of(&File::new("a.toml", text));
        let read = read.map_err(|e| e.to_string())?.into_inner();
        Ok(read.iter().map(Observation::share).collect())
    }

    #[test]
    fn links_have_the_shares_of_all_their_paths() {
        assert_eq!(read(GOOD).unwrap(), [0.625, 0.375]);
        assert_eq!(read("policy = 0\nroute = []").unwrap(), [0.0; 0]);
    }

    #[test]
    fn mistakes_are_shown_where_they_are() {
        for (from, to, said) in [
            ("took = 'eth2'", "took = 'eth3'", "line 6, column 68"),
            ("dst = 'fd00::2'", "dst = '10.0.0.1'", "different families"),
            ("'eth2', weight = 3", "'eth1'", "fewer than two links"),
            ("weight = 3", "weight = 0", "from 1 to 65535"),
            ("policy = 1", "policy = 4", "from 0 to 3"),
            ("policy = 1", "policy = 1\nfields = 7", "policy 3"),
            ("flow-label", "flow_label", "flow-label"),
            ("link = 'eth2'", "link = 'eth/2'", "line 3, column 39"),
            (
                "link = 'eth2'",
                "link = \"\\u001b[2J\"",
                "no control characters",
            ),
            ("policy = 1", "", "policy"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = read(&GOOD.replace(from, to)).unwrap_err();
            assert!(error.contains(said), "{from}: {error}");
        }
    }

    #[test]
    fn a_router_says_which_link_a_flow_takes() {
        let router = |text: &str| Router::of(&File::new("a.toml", text));
        let known = GOOD.replace("policy = 1", "policy = 1\nseed = 54321");
        assert!(
            router(GOOD)
                .map(drop)
                .unwrap_err()
                .to_string()
                .contains("--out")
        );
        let text = format!(
            "{known}[[route]]\nto = ['10.9.0.0/16', '10.9.1.0/24']\npaths = [ {{ link = 'a' }}, {{ link = 'b' }} ]\n"
        );
        let router = router(&text).unwrap();
        let flow = |dst: &str, sport| {
            let flow = Flow::new("10.0.0.1".parse().unwrap(), dst.parse().unwrap()).unwrap();
            flow.ports(6, sport, 443)
        };
        let links = |dst: &str| -> BTreeSet<&str> {
            let of = (1..200).filter_map(|sport| router.link_of(&flow(dst, sport)));
            of.collect()
        };
        assert_eq!(links("10.9.1.1"), ["a", "b"].into());
        assert_eq!(links("192.0.2.1"), ["eth1", "eth2"].into());
        // What was seen is what is said.
        let seed = Seed::new(54_321).unwrap();
        let uppers = upper_bounds(&[Some(1); 2]);
        for sport in 1..50 {
            let flow = flow("10.9.1.1", sport);
            let hash = Hasher::new(seed).hash31(&keys_of_plain_packet(
                &HashConfig::kernel(1, 7).unwrap(),
                &flow,
            ));
            let member = choose_plain(&uppers, |_| true, hash).unwrap().member;
            assert_eq!(router.link_of(&flow), Some(["a", "b"][member]));
        }
    }

    #[test]
    fn a_path_that_gets_nothing_is_none() {
        let text = "policy = 0
[[route]]
paths = [ { link = 'a' }, { link = 'b' } ]
flows = [ { src = '10.0.0.1', dst = '10.0.0.2', took = 'a' } ]
";
        assert_eq!(read(text).unwrap(), [0.5]);
        let others = ", { link = 'c', weight = 65535 }".repeat(4000);
        let text = text.replace("{ link = 'a' }, ", &format!("{{ link = 'a' }}{others}, "));
        assert!(read(&text).is_ok());
    }
}
