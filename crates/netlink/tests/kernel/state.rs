//! The smallest keeper of what a mirror tells: lists, replaced by sweeps.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use raddle_rib::event::*;

type RouteKey = (u32, IpNet, Option<IpNet>, u8, u32);
type Routes = BTreeMap<RouteKey, Vec<Route>>;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) links: BTreeMap<u32, Link>,
    pub(crate) devices: BTreeMap<u32, DeviceSettings>,
    pub(crate) settings: Settings,
    pub(crate) keys: Vec<HmacKey>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) neighbours: BTreeMap<(u32, IpAddr), Neighbour>,
    /// By bridge, VLAN and MAC address.
    pub(crate) fdb: BTreeMap<(u32, u16, [u8; 6]), FdbEntry>,
    /// By VXLAN, MAC address, and address that it leads to, which is zero where there is only one.
    pub(crate) tunnel_fdb: BTreeMap<(u32, [u8; 6], IpAddr), TunnelFdb>,
    pub(crate) port_vlans: BTreeMap<(u32, u16), PortVlan>,
    pub(crate) nexthops: BTreeMap<u32, Nexthop>,
    pub(crate) buckets: BTreeMap<(u32, u16), u32>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) hosts: KernelHosts,
    routes4: Routes,
    routes6: Routes,
    /// What is being swept, and what it was before: kept so that a frame inside of a frame, or an
    /// event of the swept kind that is not from the dump, would show.
    sweep: Option<Sweep>,
    /// What was told of the swept kind since.
    meanwhile: Vec<(Route, Option<RouteOp>)>,
}

/// Frames to zeros and to groups may go to several.
fn tunnel_key(index: u32, mac: [u8; 6], dst: IpAddr) -> (u32, [u8; 6], IpAddr) {
    match mac == [0; 6] || mac[0] & 1 != 0 {
        true => (index, mac, dst),
        false => (index, mac, [0; 4].into()),
    }
}

impl State {
    pub(crate) fn apply(&mut self, event: Event) {
        match event {
            Event::Link(link) => drop(self.links.insert(link.index, link)),
            Event::LinkGone(index) => drop(self.links.remove(&index)),
            Event::Device(index, settings) => drop(self.devices.insert(index, settings)),
            Event::Settings(settings) => self.settings = settings,
            Event::HmacKeys(keys) => self.keys = keys,
            Event::KernelHosts(hosts) => self.hosts = hosts,
            Event::Clock(_) | Event::BondOrder(..) => {}
            Event::LearntMtu(_) | Event::LearntMtuGone(..) => {
                unreachable!("nobody asks the kernel for path MTUs here")
            }
            Event::Fpm(told) => unreachable!("the kernel does not tell {told:?}"),
            Event::Address(a) => {
                self.addresses
                    .retain(|b| (b.index, b.local) != (a.index, a.local));
                self.addresses.push(a);
            }
            Event::AddressGone(a) => {
                self.addresses
                    .retain(|b| (b.index, b.local) != (a.index, a.local));
            }
            Event::Neighbour(n) => drop(self.neighbours.insert((n.index, n.dst), n)),
            Event::NeighbourGone(index, dst) => drop(self.neighbours.remove(&(index, dst))),
            Event::Fdb(entry) => {
                let key = (entry.bridge, entry.vlan, entry.mac);
                self.fdb.insert(key, entry);
            }
            Event::FdbGone(bridge, mac, vlan) => drop(self.fdb.remove(&(bridge, vlan, mac))),
            Event::TunnelFdb(entry) => {
                let key = tunnel_key(entry.index, entry.mac, entry.dst);
                self.tunnel_fdb.insert(key, entry);
            }
            Event::TunnelFdbGone(index, mac, dst) => {
                self.tunnel_fdb.remove(&tunnel_key(index, mac, dst));
            }
            Event::PortVlan(vlan) => self.port_vlan(vlan),
            Event::PortVlanGone(index, id) => drop(self.port_vlans.remove(&(index, id))),
            Event::Nexthop(nexthop) => drop(self.nexthops.insert(nexthop.id, nexthop)),
            Event::NexthopGone(id) => self.nexthop_gone(id),
            Event::Bucket(bucket) => self.bucket(bucket),
            Event::Rule(rule) => self.rules.push(rule),
            Event::RuleGone(rule) => {
                let at = self
                    .rules
                    .iter()
                    .position(|r| *r == rule)
                    .expect("a rule that we know");
                self.rules.remove(at);
            }
            Event::Route(route, op) => self.route(route, op),
            Event::RouteGone(route) => self.route_gone(&route),
            Event::Meanwhile(route, op) => {
                assert!(self.sweep.is_some());
                self.meanwhile.push((route, op));
            }
            Event::SweepBegin(sweep) => self.begin(sweep),
            Event::SweepEnd(sweep) => {
                assert_eq!(self.sweep.take(), Some(sweep));
                for (route, op) in std::mem::take(&mut self.meanwhile) {
                    match op {
                        Some(op) => self.route(route, op),
                        None => self.route_gone(&route),
                    }
                }
            }
        }
    }

    /// Nothing but the dump comes inside of its frame, so starting afresh will do here. (Who
    /// forwards by the state marks and sweeps.)
    fn begin(&mut self, sweep: Sweep) {
        assert!(
            self.sweep.is_none_or(|s| s == sweep),
            "{sweep:?} inside of {:?}",
            self.sweep
        );
        self.sweep = Some(sweep);
        match sweep {
            Sweep::Links => self.links.clear(),
            Sweep::Addresses => self.addresses.clear(),
            Sweep::Neighbours => self.neighbours.clear(),
            Sweep::Fdb => {
                self.fdb.clear();
                self.tunnel_fdb.clear();
            }
            Sweep::PortVlans => self.port_vlans.clear(),
            Sweep::Nexthops => self.nexthops.clear(),
            Sweep::Buckets => self.buckets.clear(),
            Sweep::BucketsOf(id) => self.buckets.retain(|&(group, _), _| group != id),
            Sweep::Routes4 => self.routes4.clear(),
            Sweep::Routes6 => self.routes6.clear(),
            Sweep::Rules => self.rules.clear(),
        }
    }

    /// A port has one PVID.
    fn port_vlan(&mut self, vlan: PortVlan) {
        let of_port = self
            .port_vlans
            .values_mut()
            .filter(|v| v.index == vlan.index);
        of_port.for_each(|other| other.pvid &= !vlan.pvid);
        self.port_vlans.insert((vlan.index, vlan.id), vlan);
    }

    fn bucket(&mut self, bucket: Bucket) {
        self.buckets
            .insert((bucket.group, bucket.index), bucket.nexthop);
    }

    fn nexthop_gone(&mut self, id: u32) {
        self.nexthops.remove(&id);
        self.buckets.retain(|&(group, _), _| group != id);
    }

    fn list(&mut self, route: &Route) -> &mut Vec<Route> {
        let routes = if route.dst.addr().is_ipv4() {
            &mut self.routes4
        } else {
            &mut self.routes6
        };
        let key = (route.table, route.dst, route.src, route.tos, route.metric);
        routes.entry(key).or_default()
    }

    fn route(&mut self, route: Route, op: RouteOp) {
        if route.dst.addr().is_ipv6() {
            return self.route6(route, op);
        }
        let sweeping = self.sweep == Some(Sweep::Routes4);
        let list = self.list(&route);
        match op {
            RouteOp::Add if sweeping => list.push(route),
            RouteOp::Add => *list = vec![route],
            RouteOp::Replace => {
                list.retain(|r| !same(r, &route));
                if list.is_empty() {
                    list.push(route);
                } else {
                    list[0] = route;
                }
            }
            RouteOp::Append => {
                list.retain(|r| !same(r, &route));
                list.push(route);
            }
            RouteOp::Prepend => {
                list.retain(|r| !same(r, &route));
                list.insert(0, route);
            }
        }
    }

    /// IPv6: routes with a gateway of one key are one set, which every message tells whole; routes
    /// without one are each for itself.
    fn route6(&mut self, mut route: Route, op: RouteOp) {
        let list = self.list(&route);
        if !ecmp(&route) {
            if op == RouteOp::Replace {
                list.clear();
            }
            list.retain(|r| !same(r, &route));
            return list.push(route);
        }
        if op == RouteOp::Replace {
            *list = vec![route];
            return;
        }
        match list.iter_mut().find(|r| ecmp(r)) {
            Some(set) => {
                // The one that joined is told first, but chosen last.
                let (old, new) = (hops(set), hops(&route));
                if let RouteTarget::Multipath(hops) = &mut route.target
                    && new[1..] == old
                {
                    hops.rotate_left(1);
                }
                *set = route;
            }
            None => list.push(route),
        }
    }

    fn route_gone(&mut self, route: &Route) {
        let list = self.list(route);
        if let Some(at) = list.iter().position(|r| same(r, route)) {
            list.remove(at);
            return;
        }
        // One of an IPv6 set.
        for set in list.iter_mut() {
            let gone = hops(route);
            if let RouteTarget::Multipath(all) = &mut set.target {
                all.retain(|h| !gone.contains(h));
                if let [one] = all.as_slice() {
                    set.target = RouteTarget::Single(one.clone());
                }
            }
        }
    }

    fn hop(&self, hop: &RouteNexthop) -> String {
        let gateway = hop.gateway.map_or("-".to_owned(), |g| g.to_string());
        let name = self.links.get(&hop.index).map_or("?", |l| l.name.as_str());
        format!("{gateway} dev {name} weight {}", hop.weight.max(1))
    }

    pub(crate) fn routes6(&self) -> impl Iterator<Item = &Route> {
        self.routes6.values().flatten()
    }

    pub(crate) fn routes_text(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for route in self.routes4.values().chain(self.routes6.values()).flatten() {
            let Route {
                table,
                dst,
                metric,
                kind,
                ..
            } = route;
            let target = match &route.target {
                RouteTarget::None => "nowhere".to_owned(),
                RouteTarget::Object(id) => format!("object {id}"),
                RouteTarget::Single(hop) => self.hop(hop),
                RouteTarget::Multipath(hops) => hops
                    .iter()
                    .map(|h| self.hop(h))
                    .collect::<Vec<_>>()
                    .join(", "),
            };
            let line = format!("{table} {} {dst} metric {metric} {target}", *kind as u8);
            lines.push(((*table, dst.to_string(), *metric), line));
        }
        lines.sort_by(|a, b| a.0.cmp(&b.0));
        lines.into_iter().map(|(_, line)| line).collect()
    }

    pub(crate) fn nexthops_text(&self) -> Vec<String> {
        let members = |members: &[GroupMember]| -> String {
            members
                .iter()
                .map(|m| format!("{}*{}", m.id, m.weight))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let text = |nexthop: &Nexthop| match &nexthop.kind {
            NexthopKind::Blackhole => "blackhole".to_owned(),
            NexthopKind::Single { gateway, index, .. } => self.hop(&RouteNexthop {
                gateway: *gateway,
                index: *index,
                ..RouteNexthop::default()
            }),
            NexthopKind::Group(group) => format!("threshold {}", members(group)),
            NexthopKind::Resilient { members: group, .. } => {
                format!("resilient {}", members(group))
            }
        };
        self.nexthops
            .values()
            .map(|n| format!("{} {}", n.id, text(n)))
            .collect()
    }

    pub(crate) fn buckets_text(&self) -> Vec<String> {
        let mut lines: Vec<_> = self
            .buckets
            .iter()
            .map(|((g, b), n)| format!("{g} {b} {n}"))
            .collect();
        lines.sort();
        lines
    }

    pub(crate) fn fdb_text(&self) -> Vec<String> {
        let name = |index| self.links.get(&index).map_or("?", |l| l.name.as_str());
        let line = |entry: &FdbEntry| {
            let mac = entry.mac.map(|b| format!("{b:02x}")).join(":");
            let vlan = match entry.vlan {
                0 => String::new(),
                id => format!(" vlan {id}"),
            };
            let local = if entry.local { " permanent" } else { "" };
            let (port, bridge) = (name(entry.port), name(entry.bridge));
            format!("{mac} dev {port}{vlan} master {bridge}{local}")
        };
        let mut lines: Vec<_> = self.fdb.values().map(line).collect();
        lines.sort();
        lines
    }

    pub(crate) fn tunnel_fdb_text(&self) -> Vec<String> {
        let name = |index| self.links.get(&index).map_or("?", |l| l.name.as_str());
        let line = |entry: &TunnelFdb| {
            let mac = entry.mac.map(|b| format!("{b:02x}")).join(":");
            let special = if entry.is_special { " special" } else { "" };
            format!("{mac} dev {} dst {}{special}", name(entry.index), entry.dst)
        };
        let mut lines: Vec<_> = self.tunnel_fdb.values().map(line).collect();
        lines.sort();
        lines
    }

    pub(crate) fn port_vlans_text(&self) -> Vec<String> {
        let name = |index| self.links.get(&index).map_or("?", |l| l.name.as_str());
        let line = |vlan: &PortVlan| {
            let pvid = if vlan.pvid { " PVID" } else { "" };
            let untagged = if vlan.untagged {
                " Egress Untagged"
            } else {
                ""
            };
            let state = state_name(vlan.state);
            format!("{} {}{pvid}{untagged} {state}", name(vlan.index), vlan.id)
        };
        let mut lines: Vec<_> = self.port_vlans.values().map(line).collect();
        lines.sort();
        lines
    }

    pub(crate) fn ports_text(&self) -> Vec<String> {
        let on = |is| if is { "on" } else { "off" };
        let line = |link: &Link| {
            let port = link.port?;
            let (learns, locked) = (on(port.learns), on(port.is_locked));
            let state = state_name(port.state);
            Some(format!(
                "{} {state} learning {learns} locked {locked}",
                link.name
            ))
        };
        let mut lines: Vec<_> = self.links.values().filter_map(line).collect();
        lines.sort();
        lines
    }

    pub(crate) fn neighbours_text(&self) -> Vec<String> {
        let name = |state| match state {
            1 => "INCOMPLETE",
            2 => "REACHABLE",
            4 => "STALE",
            8 => "DELAY",
            0x10 => "PROBE",
            0x20 => "FAILED",
            0x40 => "NOARP",
            0x80 => "PERMANENT",
            _ => "NONE",
        };
        let mut lines: Vec<_> = self
            .neighbours
            .values()
            .filter(|n| !n.dst.to_string().starts_with("ff02"))
            .map(|n| {
                let mac = n
                    .mac
                    .map_or(String::new(), |m| m.map(|b| format!("{b:02x}")).join(":"));
                let link = self.links.get(&n.index).map_or("?", |l| l.name.as_str());
                format!("{} {link} {mac} {}", n.dst, name(n.state))
            })
            .collect();
        lines.sort();
        lines
    }
}

/// `BR_STATE_*` as `bridge` and `ip` name it.
fn state_name(state: u8) -> &'static str {
    [
        "disabled",
        "listening",
        "learning",
        "forwarding",
        "blocking",
    ][usize::from(state)]
}

/// The same route but for what changes without it being another: flags.
fn same(a: &Route, b: &Route) -> bool {
    (a.kind, a.protocol, a.scope, a.prefsrc) == (b.kind, b.protocol, b.scope, b.prefsrc)
        && hops(a) == hops(b)
        && matches!(a.target, RouteTarget::Object(_)) == matches!(b.target, RouteTarget::Object(_))
}

fn ecmp(route: &Route) -> bool {
    hops(route).iter().any(|h| h.gateway.is_some())
}

/// Nexthops without their flags.
fn hops(route: &Route) -> Vec<RouteNexthop> {
    let clean = |h: &RouteNexthop| RouteNexthop {
        flags: 0,
        ..h.clone()
    };
    match &route.target {
        RouteTarget::None => Vec::new(),
        RouteTarget::Object(id) => vec![RouteNexthop {
            index: *id,
            ..RouteNexthop::default()
        }],
        RouteTarget::Single(hop) => vec![clean(hop)],
        RouteTarget::Multipath(all) => all.iter().map(clean).collect(),
    }
}
