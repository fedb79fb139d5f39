//! Waiting for routing to settle.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::IpAddr,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use serde::Deserialize;

use crate::{Expectation, LabError, interrupt::Interrupt, names, preflight};

const POLL: Duration = Duration::from_millis(100);

/// How far routing has settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convergence {
    /// Routes that have all their nexthops in the kernel.
    pub ready: usize,
    /// Routes that should.
    pub expected: usize,
}

/// Waits until every expected route has its nexthops, and says how long that took.
pub(crate) fn wait(
    lab: &str,
    expectations: &[Expectation],
    timeout: Duration,
    mut progress: impl FnMut(Convergence),
) -> Result<Duration, LabError> {
    let interrupt = Interrupt::catch();
    let start = Instant::now();
    loop {
        let missing = missing(lab, expectations)?;
        let expected = expectations.len();
        let ready = expected - missing.len();
        progress(Convergence { ready, expected });
        let waited = start.elapsed();
        if missing.is_empty() {
            return Ok(waited);
        }
        if waited >= timeout {
            let missing = name_some(&missing);
            return Err(LabError::NotConverged {
                waited,
                ready,
                expected,
                missing,
            });
        }
        interrupt.check()?;
        thread::sleep(POLL);
    }
}

fn name_some(missing: &[&Expectation]) -> String {
    let some: Vec<_> = missing
        .iter()
        .take(3)
        .map(|e| match &e.vrf {
            None => format!("{} on {}", e.prefix, e.node),
            Some(vrf) => format!("{} in {vrf} on {}", e.prefix, e.node),
        })
        .collect();
    let more = if missing.len() > some.len() {
        ", ..."
    } else {
        ""
    };
    some.join(", ") + more
}

/// The expectations that the kernel's routes do not meet.
fn missing<'a>(
    lab: &str,
    expectations: &'a [Expectation],
) -> Result<Vec<&'a Expectation>, LabError> {
    let mut routes: HashMap<_, HashMap<IpNet, usize>> = HashMap::new();
    let table = |e: &'a Expectation| (&*e.node, e.vrf.as_deref());
    for expectation in expectations {
        let (node, vrf) = table(expectation);
        if let Entry::Vacant(vacant) = routes.entry((node, vrf)) {
            vacant.insert(live_routes(lab, node, vrf)?);
        }
    }
    let met = |e: &&'a Expectation| {
        routes
            .get(&table(e))
            .and_then(|r| r.get(&e.prefix))
            .is_some_and(|n| *n == e.nexthops)
    };
    Ok(expectations.iter().filter(|e| !met(e)).collect())
}

/// The destinations in a node's main table, or in a VRF, with the number of nexthops whose link is up.
fn live_routes(
    lab: &str,
    node: &str,
    vrf: Option<&str>,
) -> Result<HashMap<IpNet, usize>, LabError> {
    let mut all = HashMap::new();
    let netns = names::netns(lab, node);
    for family in ["-4", "-6"] {
        let mut args = vec!["-n", &netns, "-j", family, "route", "show"];
        args.extend(vrf.into_iter().flat_map(|vrf| ["vrf", vrf]));
        let output = Command::new(preflight::find("ip")?)
            .args(args)
            .output()
            .map_err(LabError::io(format!("cannot read the routes of {node}")))?;
        all.extend(parse(&output.stdout));
    }
    Ok(all)
}

/// A route in the JSON of `ip route show`; a nexthop of it has the same flags.
#[derive(Deserialize)]
struct RouteJson {
    #[serde(default)]
    dst: String,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    nexthops: Vec<RouteJson>,
}

fn parse(json: &[u8]) -> HashMap<IpNet, usize> {
    // No route at all is no text at all.
    let routes: Vec<RouteJson> = serde_json::from_slice(json).unwrap_or_default();
    let alive = |r: &RouteJson| !r.flags.iter().any(|f| f == "dead" || f == "linkdown");
    routes
        .iter()
        .filter_map(|route| {
            let dst = &route.dst;
            let host = || dst.parse::<IpAddr>().ok().map(IpNet::from);
            let prefix = dst.parse().ok().or_else(host)?;
            let nexthops = if route.nexthops.is_empty() {
                usize::from(alive(route))
            } else {
                route.nexthops.iter().filter(|n| alive(n)).count()
            };
            Some((prefix, nexthops))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_live_nexthops() {
        let json = br#"[{"dst":"default","gateway":"10.0.0.1","dev":"x","flags":[]},
            {"dst":"10.2.1.0/24","nhid":13,"protocol":"bgp","flags":[],"nexthops":[
              {"via":{"family":"inet6","host":"fe80::1"},"dev":"spine1","weight":1,"flags":[]},
              {"via":{"family":"inet6","host":"fe80::2"},"dev":"spine2","weight":1,
               "flags":["dead","linkdown"]}]},
            {"dst":"10.255.1.2","nhid":9,"gateway":"fe80::1","dev":"spine1","flags":[]},
            {"dst":"2001:db8:2:1::/64","dev":"spine1","flags":["linkdown"]}]"#;
        let routes = parse(json);
        assert_eq!(routes.len(), 3);
        assert_eq!(routes[&"10.2.1.0/24".parse().unwrap()], 1);
        assert_eq!(routes[&"10.255.1.2/32".parse().unwrap()], 1);
        assert_eq!(routes[&"2001:db8:2:1::/64".parse().unwrap()], 0);
        assert!(parse(b"").is_empty());
    }
}
