//! SRv6 as checks look at it: SIDs, segment lists, and the settings that concern them.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use raddle_rib::event::{
    Link, NexthopKind, ROUTE_FPM, ROUTE_STATIC, Route, RouteNexthop, RouteTarget,
};
use raddle_rib::seg6::{Behaviour, Encaps, Mode, Seg6, Sid};
use raddle_rib::{Resolved, Rib, Trace};

/// A SID of this machine.
#[derive(Clone, Debug)]
pub(crate) struct LocalSid {
    /// Table of its route.
    pub table: u32,
    /// Its prefix.
    pub dst: IpNet,
    /// Link of its route; 0 for none.
    pub link: u32,
    /// What it does.
    pub sid: Sid,
    /// End.DX4 with `nh4`: whether that is on a connected prefix.
    pub nh4_connected: bool,
    /// A running daemon's own: the kernel does not have it.
    pub own: bool,
}

impl LocalSid {
    /// The behaviour's name, or its number.
    pub(crate) fn behaviour(&self) -> String {
        let behaviour = &self.sid.behaviour;
        behaviour
            .name()
            .map_or_else(|| format!("action {}", behaviour.number()), str::to_owned)
    }
}

impl std::fmt::Display for LocalSid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", place(self.table, self.dst), self.behaviour())
    }
}

/// Routes, or a SID (End.B6, End.B6.Encaps), with the same segment list by the same link.
#[derive(Clone, Debug)]
pub(crate) struct List {
    /// The first of them: its table and destination.
    pub table: u32,
    /// The destination of the same.
    pub dst: IpNet,
    /// How many there are.
    pub routes: usize,
    /// Link of the routes; 0 for none.
    pub link: u32,
    /// How it is put on.
    pub mode: Mode,
    /// The segments, in the order of travel.
    pub segments: Vec<Ipv6Addr>,
    /// The number of its HMAC key, if it has an HMAC.
    pub hmac_key: Option<u32>,
    /// How many bytes longer packets get.
    pub overhead: u32,
    /// The links by which the first segment is reached; with several there is a choice.
    pub outs: Vec<u32>,
    /// Whether packets are chosen a path for: several nexthops lead to the first segment.
    pub several: bool,
    /// A running daemon's own: the kernel does not have it.
    pub own: bool,
}

impl std::fmt::Display for List {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", place(self.table, self.dst))?;
        if self.routes > 1 {
            write!(f, " and {} more", self.routes - 1)?;
        }
        let segments: Vec<String> = self.segments.iter().map(ToString::to_string).collect();
        write!(f, " {} segs {}", self.mode, segments.join(","))
    }
}

fn place(table: u32, dst: IpNet) -> String {
    match table {
        raddle_rib::TABLE_MAIN => dst.to_string(),
        table => format!("{dst} table {table}"),
    }
}

/// All of it. Settings that could not be read are missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Srv6 {
    /// SIDs.
    pub sids: Vec<LocalSid>,
    /// Segment lists.
    pub lists: Vec<List>,
    /// `net.ipv6.conf.all.seg6_enabled`.
    pub enabled_all: Option<bool>,
    /// `net.ipv6.conf.<dev>.seg6_enabled`, by link.
    pub enabled: BTreeMap<u32, bool>,
    /// `net.ipv6.conf.<dev>.seg6_require_hmac`, by link.
    pub require_hmac: BTreeMap<u32, i32>,
    /// Numbers of the HMAC keys (`ip sr hmac show`).
    pub hmac_keys: Option<Vec<u32>>,
    /// `ip sr tunsrc`: `::` where it is not set.
    pub tunsrc: Option<Ipv6Addr>,
    /// What a running daemon has of its own and cannot carry out, each with the reason.
    pub not_ready: Vec<String>,
}

impl Srv6 {
    /// What the routes tell, those among them that a running daemon has of its own. Costs a pass over the routes,
    /// and two look-ups for each segment list.
    pub(crate) fn of(rib: &Rib, own: &[Route]) -> Srv6 {
        let mut all = Collected::new(rib);
        rib.routes4()
            .chain(rib.routes6())
            .for_each(|route| all.add(&route));
        own.iter().for_each(|route| all.add(route));
        let require = |link: &Link| {
            let device = rib.device(link.index);
            (link.index, i32::from(device.seg6_require_hmac))
        };
        Srv6 {
            sids: all.sids,
            lists: all.lists,
            require_hmac: rib.links().map(require).collect(),
            tunsrc: rib.settings().tunsrc,
            ..Srv6::default()
        }
    }

    /// Whether there is any SRv6 here.
    pub(crate) fn is_used(&self) -> bool {
        !self.sids.is_empty() || !self.lists.is_empty()
    }
}

/// Collects route by route.
struct Collected<'a> {
    rib: &'a Rib,
    /// The link by which packets come in, as far as rules ask.
    iif: String,
    sids: Vec<LocalSid>,
    lists: Vec<List>,
    places: HashMap<(Mode, Vec<Ipv6Addr>, u32, bool), usize>,
}

impl<'a> Collected<'a> {
    fn new(rib: &'a Rib) -> Self {
        let forwards = rib.links().find(|link| rib.device(link.index).forwarding6);
        Collected {
            rib,
            iif: forwards.map_or_else(|| "lo".to_owned(), |link| link.name.clone()),
            sids: Vec::new(),
            lists: Vec::new(),
            places: HashMap::new(),
        }
    }

    fn add(&mut self, route: &Route) {
        match &route.target {
            RouteTarget::None => {}
            RouteTarget::Single(hop) => self.hop(route, hop),
            RouteTarget::Multipath(hops) => hops.iter().for_each(|hop| self.hop(route, hop)),
            RouteTarget::Object(id) => self.object(route, *id),
        }
    }

    fn object(&mut self, route: &Route, id: u32) {
        let rib = self.rib;
        match rib.nexthop(id).map(|nexthop| &nexthop.kind) {
            Some(NexthopKind::Group(members) | NexthopKind::Resilient { members, .. }) => {
                for member in members {
                    // Groups have no groups in them.
                    if rib.nexthop(member.id).is_some_and(is_single) {
                        self.object(route, member.id);
                    }
                }
            }
            Some(NexthopKind::Single {
                gateway,
                index,
                encap: Some(encap),
            }) => {
                let hop = RouteNexthop {
                    gateway: *gateway,
                    index: *index,
                    encap: Some(encap.clone()),
                    ..RouteNexthop::default()
                };
                self.hop(route, &hop);
            }
            _ => {}
        }
    }

    fn hop(&mut self, route: &Route, hop: &RouteNexthop) {
        let parsed = hop.encap.as_ref().map(Seg6::parse);
        match parsed {
            Some(Ok(Seg6::Sid(sid))) => self.sid(route, hop.index, sid),
            Some(Ok(Seg6::Encaps(encaps))) => self.encaps(route, hop.index, &encaps),
            // Other tunnels are not looked at, and what the kernel has taken can be read.
            Some(Err(_)) | None => {}
        }
    }

    fn sid(&mut self, route: &Route, link: u32, sid: Sid) {
        let mode = match &sid.behaviour {
            Behaviour::B6 { .. } => Some(Mode::Inline),
            Behaviour::B6Encaps { reduced: true, .. } => Some(Mode::EncapRed),
            Behaviour::B6Encaps { reduced: false, .. } => Some(Mode::Encap),
            _ => None,
        };
        if let Some(mode) = mode {
            self.list(route, link, mode, sid.behaviour.segments(), None);
        }
        let nh4_connected = match sid.behaviour {
            Behaviour::Dx4 { nh4 } if !nh4.is_unspecified() => {
                is_connected(&self.rib.trace(&self.iif, IpAddr::V4(nh4)))
            }
            _ => false,
        };
        self.sids.push(LocalSid {
            table: route.table,
            dst: route.dst,
            link,
            sid,
            nh4_connected,
            own: is_static(route),
        });
    }

    fn encaps(&mut self, route: &Route, link: u32, encaps: &Encaps) {
        let mut segments = encaps.segments();
        if encaps.mode == Mode::Inline {
            // The place for the packet's own destination.
            segments.pop();
        }
        self.list(route, link, encaps.mode, segments, encaps.hmac_key());
    }

    fn list(
        &mut self,
        route: &Route,
        link: u32,
        mode: Mode,
        segments: Vec<Ipv6Addr>,
        hmac_key: Option<u32>,
    ) {
        let Some(first) = segments.first().copied() else {
            return;
        };
        let key = (mode, segments.clone(), link, is_static(route));
        if let Some(place) = self.places.get(&key) {
            self.lists[*place].routes += 1;
            return;
        }
        let trace = self.rib.trace(&self.iif, IpAddr::V6(first));
        let hops = match &trace.resolved {
            Resolved::Kernel(_) => Vec::new(),
            Resolved::One(hop) => vec![hop.index],
            Resolved::Many { hops, .. } | Resolved::Resilient { hops, .. } => {
                hops.iter().map(|hop| hop.index).collect()
            }
        };
        let several = hops.len() > 1;
        let mut outs = hops;
        outs.sort_unstable();
        outs.dedup();
        let place = self.lists.len();
        self.places.insert(key, place);
        self.lists.push(List {
            table: route.table,
            dst: route.dst,
            routes: 1,
            link,
            mode,
            overhead: overhead(mode, segments.len(), hmac_key.is_some()),
            segments,
            hmac_key,
            outs,
            several,
            own: is_static(route),
        });
    }
}

fn is_static(route: &Route) -> bool {
    route.flags & (ROUTE_STATIC | ROUTE_FPM) != 0
}

fn is_single(nexthop: &raddle_rib::event::Nexthop) -> bool {
    matches!(nexthop.kind, NexthopKind::Single { .. })
}

/// Whether the destination is on a link, and not behind a gateway.
fn is_connected(trace: &Trace) -> bool {
    match trace.route.as_ref().map(|route| &route.target) {
        Some(RouteTarget::Single(hop)) => hop.gateway.is_none() && hop.encap.is_none(),
        _ => false,
    }
}

/// How many bytes a segment list of so many segments adds to a packet (RFC 8986, section 5).
///
/// The outer IPv6 header (40), unless the SRH goes into the packet's own; an SRH of 8 bytes and 16 for
/// each segment in it: one fewer where the list is reduced, and no SRH for a single segment then, one
/// more where the packet's own destination goes in; 40 for an HMAC; 14 for an Ethernet header.
fn overhead(mode: Mode, segments: usize, hmac: bool) -> u32 {
    let entries = match mode {
        Mode::Inline => segments + 1,
        Mode::EncapRed | Mode::L2EncapRed => segments - 1,
        Mode::Encap | Mode::L2Encap => segments,
    };
    let srh = match (entries, hmac) {
        (0, false) => 0,
        (entries, hmac) => 8 + 16 * entries as u32 + if hmac { 40 } else { 0 },
    };
    let outer = if mode == Mode::Inline { 0 } else { 40 };
    srh + outer + if mode.is_l2() { 14 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overheads_are_those_of_the_headers() {
        for (mode, segments, hmac, bytes) in [
            (Mode::Encap, 1, false, 64),
            (Mode::Encap, 2, true, 120),
            (Mode::EncapRed, 1, false, 40),
            (Mode::EncapRed, 1, true, 88),
            (Mode::EncapRed, 3, false, 80),
            (Mode::L2Encap, 1, false, 78),
            (Mode::Inline, 2, false, 56),
        ] {
            assert_eq!(overhead(mode, segments, hmac), bytes, "{mode} {segments}");
        }
    }
}
