//! SIDs and encapsulations of the configuration, which the kernel does not have: they are kept as routes in the
//! mirror while links come and go, and what this machine lacks for them.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;
use raddle_rib::event::{Event, Route, RouteOp};
use raddle_rib::seg6::{Behaviour, Seg6};
use raddle_rib::{Resolved, Rib};

use crate::config::Config;
use crate::statics::StaticError;
use raddle_iproute::Names;

/// The configuration's SIDs and encapsulations, as the mirror knows them.
#[derive(Debug, Default)]
pub(crate) struct StaticRoutes {
    routes: Vec<Route>,
}

impl StaticRoutes {
    /// The events that bring a mirror in step with the configuration. Links are found by name, so this
    /// is to be asked again when links come, go or change their names: there are none then if nothing
    /// has changed.
    pub(crate) fn follow(&mut self, config: &Config, rib: &Rib) -> Vec<Event> {
        // A link that does not exist has an index that none has.
        let index = |name: &str| rib.link_named(name).map_or(u32::MAX, |link| link.index);
        let sids = config.sid.iter().map(|sid| sid.route(&index));
        let encaps = config.encap.iter().map(|encap| encap.route(&index));
        let wanted: Vec<Route> = sids.chain(encaps).collect();
        if wanted == self.routes {
            return Vec::new();
        }
        let changed = wanted.iter().filter(|route| !self.routes.contains(route));
        let events = changed
            .map(|route| Event::Route(route.clone(), RouteOp::Add))
            .collect();
        // The configuration is read once, so none goes.
        self.routes = wanted;
        events
    }

    /// The neighbours that the kernel is to resolve for the engine, since no packet that it forwards itself
    /// would have it do so. `iif` is a link that packets come in on.
    ///
    /// 1. Where static SIDs and encapsulations send to: the kernel does not know of these.
    /// 2. Where a table leads that static End.T and End.DT* look in: the gateways of all routes. Which
    ///    hosts of a connected prefix are meant, only packets say, and engines do then
    ///    ([`raddle_image::Wanted`]).
    /// 3. All paths to the first segment of the kernel's encapsulations: it keeps to one for each core
    ///    (`dst_cache`), while the engine spreads flows over them.
    /// 4. The gateways of FPM routes, if any of these counts: the kernel may not have them.
    /// 5. The gateways of routes with an algorithm of their own: the kernel would ask for those that its own hash
    ///    policy takes.
    ///
    /// Costs a look-up for each segment, and a walk over all groups where a SID looks in a table.
    pub(crate) fn unresolved(&self, rib: &Rib, iif: &str) -> Vec<(u32, IpAddr)> {
        let mut list = Vec::new();
        let mut by_table = false;
        let mut spread = HashSet::new();
        for (_, what, _) in rib.segments() {
            match (what.own, what.target()) {
                (true, Some(target)) => next_hops(rib, iif, target, &mut list),
                (true, None) => by_table |= looks_in_a_table(&what.what),
                (false, Some(target)) if !what.is_sid() => {
                    spread.insert(target);
                }
                (false, _) => {}
            }
        }
        for target in spread {
            let mut paths = Vec::new();
            next_hops(rib, iif, target, &mut paths);
            if paths.len() > 1 {
                list.append(&mut paths);
            }
        }
        if by_table {
            list.extend(rib.gateways());
        }
        list.extend(rib.fpm_gateways());
        list.extend(rib.algo_gateways());
        list.sort_unstable();
        list.dedup();
        list.retain(|(index, ip)| !rib.neighbour(*index, *ip).is_some_and(|n| n.is_valid()));
        list
    }
}

/// Refuses several segment lists where nothing says which of them a flow takes: the kernel would get every
/// packet that is to be encapsulated, and would send it as it is.
pub(crate) fn check_seed(
    config: &Config,
    known: bool,
    can_be_set: bool,
) -> Result<(), StaticError> {
    if known || (config.seed.is_some() && can_be_set) {
        return Ok(());
    }
    match config.encap.iter().find(|encap| encap.spreads()) {
        Some(encap) if can_be_set => Err(StaticError::Seed(encap.prefix())),
        Some(encap) => Err(StaticError::NoSeed(encap.prefix())),
        None => Ok(()),
    }
}

/// Whether what a SID has taken out or off is looked up in a table that the SID names.
fn looks_in_a_table(what: &Seg6) -> bool {
    use Behaviour::{Dt4, Dt6, Dt46, T};
    matches!(what, Seg6::Sid(sid) if matches!(
        sid.behaviour,
        T { .. } | Dt4 { .. } | Dt6 { .. } | Dt46 { .. }
    ))
}

/// Adds the neighbours, with their links, that packets to `target` are sent to.
fn next_hops(rib: &Rib, iif: &str, target: IpAddr, list: &mut Vec<(u32, IpAddr)>) {
    let trace = rib.trace(iif, target);
    if let Some(index) = trace.neighbour {
        list.push((index, target));
        return;
    }
    match trace.resolved {
        Resolved::One(hop) => list.push((hop.index, hop.gateway.unwrap_or(target))),
        Resolved::Many { hops, .. } | Resolved::Resilient { hops, .. } => {
            let next = |hop: &raddle_rib::Hop| (hop.index, hop.gateway.unwrap_or(target));
            list.extend(hops.iter().filter(|hop| hop.segment.is_none()).map(next));
        }
        Resolved::Kernel(raddle_image::Reason::Unresolved) => {
            use raddle_rib::event::RouteTarget;
            if let Some(RouteTarget::Single(hop)) = trace.route.map(|route| route.target) {
                list.push((hop.index, target));
            }
        }
        Resolved::Kernel(_) => {}
    }
}

/// What of this machine the configuration counts on and does not find, in words: packets for such a SID or
/// encapsulation are dropped as long as it is so. Costs a walk over all routes where a SID looks in a table.
pub(crate) fn missing(config: &Config, rib: &Rib) -> Vec<String> {
    let mut list = Vec::new();
    let mut link = |prefix: IpNet, name: &str| {
        if rib.link_named(name).is_none() {
            list.push(format!("{prefix}: there is no link {name}"));
        }
    };
    for sid in &config.sid {
        sid.links().for_each(|name| link(sid.prefix(), name));
    }
    for encap in &config.encap {
        encap
            .link()
            .into_iter()
            .for_each(|name| link(encap.prefix(), name));
    }
    if config.sid.iter().all(|sid| sid.looks_in().is_none()) {
        return list;
    }
    let routes = rib.routes4().chain(rib.routes6());
    let tables: HashSet<u32> = routes.map(|route| route.table).collect();
    let names = Names::load();
    for sid in &config.sid {
        if let Some(table) = sid.looks_in().filter(|table| !tables.contains(table)) {
            let (prefix, table) = (sid.prefix(), names.table(table));
            list.push(format!("{prefix}: there are no routes in table {table}"));
        }
    }
    list
}
