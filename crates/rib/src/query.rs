//! Questions about the mirrored state.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::adjacency::{Key, PathMtu};
use crate::algo::MpAlgo;
use crate::attrs::AttrsId;
use crate::egress::Egress;
use crate::event::{
    Address, Bucket, DeviceSettings, Event, FdbEntry, HmacKey, KernelHosts, LearntMtu, Link,
    Neighbour, Nexthop, PortVlan, Route, RouteOp, RouteTarget, Rule, Settings, Sweep, TunnelFdb,
};
use crate::guards::PuntedByRule;
use crate::prefix::{Addr, Prefix};
use crate::resolve::{Resolved, Spec, resolve};
use crate::rib::Rib;
use crate::rules::{Arrival, Asked, Fields, Lookup, lookup_all, lookup_for, lookup_of};
use crate::segments::SegmentUse;
use crate::state::{Family, State};
use crate::tunnels::{NoRemote, Outer};
use crate::view::{Found, KERNELS, best_spec, find};
use raddle_image::{Adjacency, Reason, Segment, Wanted};
use raddle_select::{Brings, HashKey, KeyKind};

/// Everything that the mirror holds, as one document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// [`Snapshot::FORMAT`].
    pub format: String,
    /// The kernel's version: `6.1.192`, or what `uname -r` or `uname -rv` prints. The mirror itself does not
    /// know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// What the clock said by which routes expire; none where no route does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<i64>,
    /// Settings of the namespace.
    pub settings: Settings,
    /// Links.
    pub links: Vec<Link>,
    /// Per-device settings by interface index.
    pub devices: Vec<(u32, DeviceSettings)>,
    /// Addresses.
    pub addresses: Vec<Address>,
    /// Neighbours.
    pub neighbours: Vec<Neighbour>,
    /// Entries of the FDBs of bridges; without them nothing is sent by, or taken from, a port that learns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fdb: Vec<FdbEntry>,
    /// Where VXLANs send which MAC addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tunnel_fdb: Vec<TunnelFdb>,
    /// VLANs of bridges and of their ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub port_vlans: Vec<PortVlan>,
    /// Nexthop objects.
    pub nexthops: Vec<Nexthop>,
    /// Buckets of resilient groups; without them such groups are left to the kernel.
    #[serde(default)]
    pub buckets: Vec<Bucket>,
    /// Rules.
    pub rules: Vec<Rule>,
    /// Destinations for which the kernel goes by more than routes.
    #[serde(default, skip_serializing_if = "KernelHosts::is_empty")]
    pub kernel_hosts: KernelHosts,
    /// Members of bonds, by the bond, in the order in which they joined it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bond_orders: Vec<(u32, Vec<u32>)>,
    /// Routes of both families and all tables, those of one prefix in the kernel's order.
    pub routes: Vec<Route>,
}

impl Snapshot {
    /// The name and version of the format.
    pub const FORMAT: &str = "raddle-snapshot-1";

    /// The events that make an empty mirror equal to this one.
    pub fn into_events(self) -> impl Iterator<Item = Event> {
        let routes = self
            .routes
            .into_iter()
            .map(|route| Event::Route(route, RouteOp::Add));
        let clock = self.clock.map(Event::Clock);
        clock
            .into_iter()
            .chain([Event::Settings(self.settings)])
            .chain(self.links.into_iter().map(Event::Link))
            .chain(
                self.devices
                    .into_iter()
                    .map(|(index, d)| Event::Device(index, d)),
            )
            .chain(self.addresses.into_iter().map(Event::Address))
            .chain(self.neighbours.into_iter().map(Event::Neighbour))
            .chain(self.fdb.into_iter().map(Event::Fdb))
            .chain(self.tunnel_fdb.into_iter().map(Event::TunnelFdb))
            .chain(self.port_vlans.into_iter().map(Event::PortVlan))
            .chain(self.nexthops.into_iter().map(Event::Nexthop))
            .chain(self.buckets.into_iter().map(Event::Bucket))
            .chain(self.rules.into_iter().map(Event::Rule))
            .chain([Event::KernelHosts(self.kernel_hosts)])
            .chain(
                self.bond_orders
                    .into_iter()
                    .map(|(bond, members)| Event::BondOrder(bond, members)),
            )
            .chain([
                Event::SweepBegin(Sweep::Routes4),
                Event::SweepBegin(Sweep::Routes6),
            ])
            .chain(routes)
            .chain([
                Event::SweepEnd(Sweep::Routes4),
                Event::SweepEnd(Sweep::Routes6),
            ])
    }
}

/// How many routes and objects a routing daemon has sent by FPM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FpmStats {
    /// IPv4 routes.
    pub routes4: usize,
    /// IPv6 routes.
    pub routes6: usize,
    /// IPv4 routes that count, as the kernel has none of their prefix.
    pub alone4: usize,
    /// IPv6 routes that count.
    pub alone6: usize,
    /// Nexthop objects.
    pub nexthops: usize,
    /// Routes and objects that were not taken, as there were too many.
    pub refused: u64,
}

/// How a destination is looked up, step by step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Where rules have packets from the input link looked up, or why engines do not know.
    pub lookup: Result<Lookup, Reason>,
    /// The route that matched: the first table with any match, its longest prefix, its best route.
    pub route: Option<Route>,
    /// The destination is a known neighbour on a directly connected prefix: its link.
    pub neighbour: Option<u32>,
    /// What the route's nexthops come to.
    pub resolved: Resolved,
    /// How the route spreads its packets, where that is not by the namespace's hash policy.
    pub algo: Option<MpAlgo>,
}

impl Rib {
    /// Links by interface index.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.state.links.values()
    }

    /// The link with this index.
    pub fn link(&self, index: u32) -> Option<&Link> {
        self.state.links.get(&index)
    }

    /// The link with this name.
    pub fn link_named(&self, name: &str) -> Option<&Link> {
        self.state.links.values().find(|link| link.name == name)
    }

    /// How frames leave that are sent by a link to a neighbour with this MAC address, if [`Ports::out`](crate::Ports::out) has the link
    /// and [`Egress::lower`]. Without a MAC address, what does not hang on it. The adjacencies of engines are made by the same function.
    ///
    /// # Errors
    /// Why they are the kernel's: [`Reason::Unresolved`] where the bridge on the way does not know the MAC address, else
    /// [`Reason::OutLink`].
    pub fn egress(&self, link: &Link, mac: Option<[u8; 6]>) -> Result<Egress, Reason> {
        self.state.egress(link, mac).1
    }

    /// Per-device settings.
    pub fn device(&self, index: u32) -> DeviceSettings {
        self.state.devices.get(&index).copied().unwrap_or_default()
    }

    /// The settings that hold for packets that come in by a link ([`DeviceSettings::of_input`]).
    pub fn input_settings(&self, link: &Link) -> DeviceSettings {
        self.state.input_settings(link)
    }

    /// How long packets may be that are forwarded by this link on a route with this MTU (0 where it has none); none
    /// where there is no such link. What is below a bridge hangs on the neighbour: [`Rib::path_mtu_to`].
    pub fn path_mtu(&self, index: u32, route: u32) -> Option<PathMtu> {
        self.path_mtu_to(index, None, route)
    }

    /// The same to this neighbour. The adjacencies of engines are made by the same function.
    pub fn path_mtu_to(&self, index: u32, dst: Option<IpAddr>, route: u32) -> Option<PathMtu> {
        let link = self.state.links.get(&index)?;
        let neighbour = dst.and_then(|dst| self.state.neighbour_at(index, dst));
        let egress = self.egress(link, neighbour.and_then(|n| n.mac)).ok();
        Some(PathMtu::of(&self.state, link, route, egress.as_ref()))
    }

    /// Settings of the namespace.
    pub fn settings(&self) -> &Settings {
        &self.state.settings
    }

    /// The key by which the kernel chooses among paths: that of the seed, or its own where that has been told
    /// ([`Rib::set_kernel_key`]).
    pub fn hash_key(&self) -> Option<HashKey> {
        self.state.hash_key()
    }

    /// What gives packets that come in by a link a hash ([`Rib::set_brings`]); none where nobody has said.
    pub fn brings(&self, index: u32) -> Option<&Brings> {
        self.state.brings.get(&index)
    }

    /// The kernel's own key, where it has been told.
    pub fn kernel_key(&self) -> Option<HashKey> {
        self.state.kernel_key
    }

    /// Which of them it is.
    pub fn key_kind(&self) -> KeyKind {
        match (self.state.settings.hash_seed, self.state.kernel_key) {
            (1.., _) => KeyKind::Seed,
            (0, Some(_)) => KeyKind::Kernel,
            (0, None) => KeyKind::Unknown,
        }
    }

    /// Keys for HMACs in SRHs, by number. Not part of [`Rib::snapshot`].
    pub fn hmac_keys(&self) -> &BTreeMap<u32, HmacKey> {
        &self.state.hmac_keys
    }

    /// Addresses of this machine.
    pub fn addresses(&self) -> &[Address] {
        &self.state.addresses
    }

    /// Neighbours by address and link.
    pub fn neighbours(&self) -> impl Iterator<Item = &Neighbour> {
        self.state.neighbours.values()
    }

    /// The neighbour with this address on this link.
    pub fn neighbour(&self, index: u32, dst: IpAddr) -> Option<&Neighbour> {
        self.state.neighbour_at(index, dst)
    }

    /// Nexthop objects by id.
    pub fn nexthops(&self) -> impl Iterator<Item = &Nexthop> {
        self.state.nexthops.values()
    }

    /// The nexthop object with this id.
    pub fn nexthop(&self, id: u32) -> Option<&Nexthop> {
        self.state.nexthops.get(&id)
    }

    /// Buckets of resilient groups that are known, by group and index.
    pub fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.state.buckets.iter()
    }

    /// Rules by priority.
    pub fn rules(&self) -> &[Rule] {
        &self.state.rules
    }

    /// IPv4 routes, table by table, in the order of prefixes; those of one prefix in the kernel's.
    pub fn routes4(&self) -> impl Iterator<Item = Route> {
        routes(&self.state, &self.state.v4)
    }

    /// IPv6 routes, likewise.
    pub fn routes6(&self) -> impl Iterator<Item = Route> {
        routes(&self.state, &self.state.v6)
    }

    /// Raddle's own routes, in no order.
    pub fn static_routes(&self) -> impl Iterator<Item = Route> {
        self.with_nexthops(self.state.v4.own(), self.state.v6.own())
    }

    /// The FPM routes that are the only ones of their prefix, those of IPv6 first, but for those that are
    /// none now. Costs a walk over all FPM routes, if there are any.
    pub fn fpm_routes(&self) -> impl Iterator<Item = Route> {
        let leads = |id: &AttrsId| self.state.leads(self.state.attrs.get(*id));
        let v4 = self
            .state
            .v4
            .fpm_alone()
            .filter(move |(_, _, id)| leads(id));
        let v6 = self
            .state
            .v6
            .fpm_alone()
            .filter(move |(_, _, id)| leads(id));
        self.with_nexthops(v4, v6)
    }

    fn with_nexthops<'a>(
        &'a self,
        v4: impl Iterator<Item = (u32, Prefix<u32>, AttrsId)> + 'a,
        v6: impl Iterator<Item = (u32, Prefix<u128>, AttrsId)> + 'a,
    ) -> impl Iterator<Item = Route> + 'a {
        let v4 = v4.map(|(table, prefix, id)| (table, prefix.to_net(), id));
        let v6 = v6.map(|(table, prefix, id)| (table, prefix.to_net(), id));
        let all = v6.chain(v4);
        all.map(|(table, dst, id)| whole_route(&self.state, id, table, dst))
    }

    /// How many FPM routes there are.
    pub fn fpm_stats(&self) -> FpmStats {
        let (v4, alone4) = self.state.v4.fpm_numbers();
        let (v6, alone6) = self.state.v6.fpm_numbers();
        FpmStats {
            routes4: v4,
            routes6: v6,
            alone4,
            alone6,
            nexthops: self.state.fpm.nexthops(),
            refused: self.state.fpm.refused(),
        }
    }

    /// The links and addresses of the gateways that FPM routes send to as they are, if any of these routes count.
    /// Costs a walk over all sets of route attributes then.
    pub fn fpm_gateways(&self) -> impl Iterator<Item = (u32, IpAddr)> {
        let stats = self.fpm_stats();
        let counts = stats.alone4 + stats.alone6 > 0;
        let gateways = counts.then(|| self.state.fpm_gateways());
        gateways.into_iter().flatten()
    }

    /// Whether any route expires: then the clock is to be told ([`Event::Clock`]) several times a second, and
    /// IPv6 routes are to be dumped again now and then.
    pub fn has_expiring(&self) -> bool {
        self.state.attrs.has_expiring()
    }

    /// How many sets of route attributes there are apart from prefixes.
    pub fn attribute_sets(&self) -> usize {
        self.state.attrs.len()
    }

    /// The segments in the image: number, what it stands for, and what engines see. Their counters have
    /// the same numbers.
    pub fn segments(&self) -> impl Iterator<Item = (u32, &SegmentUse, &Segment)> {
        self.groups.segments.iter()
    }

    /// The addresses of this machine at which tunnels end: the segment that stands for it, and what engines see. They are no part of
    /// [`Rib::segments`].
    pub fn tunnel_ends(&self) -> impl Iterator<Item = (u32, Ipv4Addr, &Segment)> {
        self.groups.segments.tunnel_ends()
    }

    /// What packets are put into that leave by a tunnel, or by what is upon a VXLAN, in frames to this MAC address; none where that is
    /// the kernel's. The adjacencies of engines are made by the same function.
    pub fn outer(&self, tunnel: &Link, mac: [u8; 6]) -> Option<Outer> {
        self.state.outer(tunnel, mac)
    }

    /// The ends of tunnels, this one and the other one, that packets are put between, each once and in their order; those as well that
    /// are the kernel's for what it has learnt of the way.
    pub fn outer_ends(&self) -> impl Iterator<Item = (Ipv4Addr, Ipv4Addr)> + '_ {
        self.groups.adjacencies.ends()
    }

    /// The links by which outer packets may leave between these ends, each once; none where their way is not known.
    pub fn outer_links(&self, src: Ipv4Addr, dst: Ipv4Addr) -> BTreeSet<u32> {
        let Some(lookup) = self.state.lookup_of_own(src, dst) else {
            return BTreeSet::new();
        };
        let trace = self.trace_by(lookup, dst.into());
        trace.resolved.hops().iter().map(|hop| hop.index).collect()
    }

    /// What the kernel has learnt of the way between these ends, as [`Event::LearntMtu`] has told it.
    pub fn learnt_mtu(&self, src: Ipv4Addr, dst: Ipv4Addr) -> Option<&LearntMtu> {
        self.state.learnt_mtus.get(&(src, dst))
    }

    /// The ends of which something was told, in their order.
    pub fn learnt_ends(&self) -> impl Iterator<Item = (Ipv4Addr, Ipv4Addr)> + '_ {
        self.state.learnt_mtus.keys().copied()
    }

    /// To where a VXLAN sends frames to a MAC address, as its FDB says.
    ///
    /// # Errors
    /// Why that is not one IPv4 address.
    pub fn remote_of(&self, vxlan: u32, mac: [u8; 6]) -> Result<Ipv4Addr, NoRemote> {
        self.state.remote_of(vxlan, mac)
    }

    /// Whether all packets that leave by a link have the same other end, whatever their gateway is: it is a tunnel that has one.
    pub fn has_one_end(&self, index: u32) -> bool {
        self.state.has_one_end(index)
    }

    /// The segment with this number.
    pub fn segment(&self, number: u32) -> Option<(&SegmentUse, &Segment)> {
        self.groups.segments.get(number)
    }

    /// The number of the segment that stands for this, if the image has it.
    pub fn segment_number(&self, what: &SegmentUse) -> Option<u32> {
        self.groups.segments.number(what)
    }

    /// The link and the address of a neighbour that an engine lacks, if it is still one that routes lead to.
    pub fn wanted(&self, wanted: &Wanted) -> Option<(u32, IpAddr)> {
        match wanted {
            Wanted::Host { group, address } => {
                let (index, _) = self.groups.spec(*group)?.direct_link(&self.state)?;
                Some((index, *address))
            }
            Wanted::Adjacency(number) => {
                let key = self.groups.adjacencies.key(*number)?;
                Some((key.index, key.neighbour?))
            }
        }
    }

    /// The links and addresses of the gateways that routes and nexthop objects of the image send to, as often as they
    /// are named. Costs a walk over all groups.
    pub fn gateways(&self) -> impl Iterator<Item = (u32, IpAddr)> + '_ {
        let keys = self.groups.of_gateways();
        keys.filter_map(|key| Some((key.index, key.neighbour?)))
    }

    /// The links and addresses of the gateways of routes that spread their packets otherwise than by the namespace's
    /// policy, as often as they are named. Costs a walk over all groups.
    pub fn algo_gateways(&self) -> impl Iterator<Item = (u32, IpAddr)> + '_ {
        let keys = self.groups.of_algos();
        keys.filter_map(|key| Some((key.index, key.neighbour?)))
    }

    /// The neighbours in the image: number, link, neighbour, and what engines see.
    pub fn adjacencies(&self) -> impl Iterator<Item = (u32, u32, Option<IpAddr>, &Adjacency)> {
        let adjacencies = self.groups.adjacencies.iter();
        adjacencies.filter(|(_, key, _)| !key.segment).map(
            |(
                n,
                Key {
                    index, neighbour, ..
                },
                adjacency,
            )| { (n, index, neighbour, adjacency) },
        )
    }

    /// The whole mirror as one document.
    pub fn snapshot(&self) -> Snapshot {
        let mut devices: Vec<_> = self.state.devices.iter().map(|(i, d)| (*i, *d)).collect();
        devices.sort_unstable_by_key(|(index, _)| *index);
        Snapshot {
            format: Snapshot::FORMAT.into(),
            kernel: None,
            clock: self.has_expiring().then_some(self.state.now),
            settings: self.state.settings,
            links: self.state.links.values().cloned().collect(),
            devices,
            addresses: self.state.addresses.clone(),
            neighbours: self.state.neighbours.values().cloned().collect(),
            fdb: self.state.bridges.entries().copied().collect(),
            tunnel_fdb: self.state.tunnels.entries().copied().collect(),
            port_vlans: self.state.bridges.all_vlans().copied().collect(),
            nexthops: self.state.nexthops.values().cloned().collect(),
            buckets: self.state.buckets.iter().copied().collect(),
            rules: self.state.rules.clone(),
            kernel_hosts: self.state.kernel_hosts.clone(),
            bond_orders: self
                .state
                .bond_orders
                .iter()
                .map(|(bond, members)| (bond, members.clone()))
                .collect(),
            routes: self.routes4().chain(self.routes6()).collect(),
        }
    }

    /// How `dst` is looked up for packets that come in on the link named `iif`.
    ///
    /// The steps are the rules of `rules`, `view` and `resolve`; the image is compiled by the same
    /// functions.
    pub fn trace(&self, iif: &str, dst: IpAddr) -> Trace {
        match dst {
            IpAddr::V4(ip) => {
                let lookup = lookup_for(&self.state.rules, 4, self.arrival(iif));
                self.trace_in(&self.state.v4, lookup, ip.to_bits())
            }
            IpAddr::V6(ip) => {
                let lookup = lookup_for(&self.state.rules, 6, self.arrival(iif));
                self.trace_in(&self.state.v6, lookup, ip.to_bits())
            }
        }
    }

    /// The same of a packet that shows this: rules that ask for it are followed.
    pub fn trace_of(&self, iif: &str, fields: &Fields) -> Trace {
        let family = if fields.dst.is_ipv4() { 4 } else { 6 };
        let lookup = lookup_of(&self.state.rules, family, self.arrival(iif), fields);
        let lookup = lookup.map_err(|_| Reason::Rules);
        match fields.dst {
            IpAddr::V4(ip) => self.trace_in(&self.state.v4, lookup, ip.to_bits()),
            IpAddr::V6(ip) => self.trace_in(&self.state.v6, lookup, ip.to_bits()),
        }
    }

    /// The same of all packets to one address that show this; `packets.dst` is that address.
    ///
    /// # Errors
    /// A rule that is not followed, or that asks for some of them and not for others.
    pub fn trace_all(&self, iif: &str, packets: &Asked) -> Result<Trace, &Rule> {
        let dst = packets.dst.addr();
        let family = if dst.is_ipv4() { 4 } else { 6 };
        let lookup = lookup_all(&self.state.rules, family, self.arrival(iif), packets)?;
        Ok(match dst {
            IpAddr::V4(ip) => self.trace_in(&self.state.v4, Ok(lookup), ip.to_bits()),
            IpAddr::V6(ip) => self.trace_in(&self.state.v6, Ok(lookup), ip.to_bits()),
        })
    }

    /// The packets of a family that come in on a link, by interface index, and are the kernel's because of what routing rules ask for.
    /// Where a rule sends the whole family to the kernel ([`crate::rule_beyond_engines`]), none of them.
    pub fn punted_by_rules(&self, link: u32, family: u8) -> Vec<PuntedByRule> {
        let link = self.state.links.get(&link);
        link.map_or_else(Vec::new, |link| {
            self.guards.rules.punted(&self.state, link, family)
        })
    }

    /// The rule that the kernel asks for the way back of a packet that comes in on the link named `iif`, where that has `rp_filter`, and
    /// that asks for what such a packet shows.
    pub fn rule_back(&self, iif: &str, fields: &Fields) -> Option<&Rule> {
        let link = self.link_named(iif)?;
        if !fields.dst.is_ipv4() || !self.state.filters_sources(link) {
            return None;
        }
        let back = fields.swapped();
        let mut rules = self.state.rules_back(link).into_iter();
        rules.find(|rule| Asked::of(rule).holds(&back))
    }

    /// How `dst` is looked up in one table, as SIDs do that name one.
    pub fn trace_table(&self, table: u32, dst: IpAddr) -> Trace {
        let lookup = Ok(Lookup::plain([table]));
        match dst {
            IpAddr::V4(ip) => self.trace_in(&self.state.v4, lookup, ip.to_bits()),
            IpAddr::V6(ip) => self.trace_in(&self.state.v6, lookup, ip.to_bits()),
        }
    }

    /// How `dst` is looked up behind a segment that names a table; none where it is by the link's rules.
    pub fn trace_segment(&self, what: &SegmentUse, dst: IpAddr) -> Option<Trace> {
        Some(match dst {
            IpAddr::V4(ip) => self.trace_in(&self.state.v4, Ok(what.lookup(4)?), ip.to_bits()),
            IpAddr::V6(ip) => self.trace_in(&self.state.v6, Ok(what.lookup(6)?), ip.to_bits()),
        })
    }

    /// How `dst` is looked up in these tables.
    pub fn trace_by(&self, lookup: Lookup, dst: IpAddr) -> Trace {
        match dst {
            IpAddr::V4(ip) => self.trace_in(&self.state.v4, Ok(lookup), ip.to_bits()),
            IpAddr::V6(ip) => self.trace_in(&self.state.v6, Ok(lookup), ip.to_bits()),
        }
    }

    /// How rules see packets that come in on the link named `iif`; one that there is not is a link of its own.
    pub fn arrival<'a>(&'a self, iif: &'a str) -> Arrival<'a> {
        match self.link_named(iif) {
            Some(link) => self.state.arrival(link),
            None => Arrival::Link(iif, &[]),
        }
    }

    fn trace_in<A: Addr>(
        &self,
        family: &Family<A>,
        lookup: Result<Lookup, Reason>,
        dst: A,
    ) -> Trace {
        let none = |lookup, reason| Trace {
            lookup,
            route: None,
            neighbour: None,
            resolved: Resolved::Kernel(reason),
            algo: None,
        };
        let Lookup { tables, end } = match &lookup {
            Ok(list) => list.clone(),
            Err(reason) => return none(lookup.clone(), *reason),
        };
        for look in tables {
            let table_number = look.table;
            let Some(table) = family.tables.get(&table_number) else {
                continue;
            };
            let (prefix, slot) = match find(&self.state, (look, table), Prefix::host(dst)) {
                Found::Routes(prefix, slot) => (prefix, slot),
                Found::Unclear(_) => return none(lookup, Reason::RouteFeature),
                Found::PassedOver(_) | Found::Nothing => continue,
            };
            let first = slot.ids()[0];
            let route = Some(whole_route(
                &self.state,
                first,
                table_number,
                prefix.to_net(),
            ));
            let spec = match self.state.is_kernels(dst, slot) {
                true => KERNELS,
                false => best_spec::<A>(&self.state, table_number, prefix, slot),
            };
            if let Spec::Kernel(reason) = spec {
                return Trace {
                    route,
                    ..none(lookup, reason)
                };
            }
            if let Some((index, mtu)) = spec.direct_link(&self.state)
                && self.state.neighbour_at(index, dst.to_ip()).is_some()
            {
                let spec = Spec::Neighbour {
                    index,
                    address: dst.to_ip(),
                    mtu,
                };
                let resolved = resolve(&self.state, &spec);
                return Trace {
                    lookup,
                    route,
                    neighbour: Some(index),
                    resolved,
                    algo: None,
                };
            }
            let resolved = resolve(&self.state, &spec);
            let algo = match resolved {
                Resolved::Resilient { .. } => None,
                _ => spec.algo(),
            };
            return Trace {
                lookup,
                route,
                neighbour: None,
                resolved,
                algo,
            };
        }
        none(lookup, end)
    }
}

/// The route with these attributes; an FPM route with its nexthops in itself.
fn whole_route(state: &State, id: AttrsId, table: u32, dst: IpNet) -> Route {
    let attrs = state.attrs.get(id);
    match state.fpm.expand(attrs) {
        Some(attrs) => attrs.to_route(table, dst),
        // Nothing that could be taken for an object of the kernel's.
        None => Route {
            target: RouteTarget::None,
            ..attrs.to_route(table, dst)
        },
    }
}

fn routes<'a, A: Addr>(
    state: &'a State,
    family: &'a Family<A>,
) -> impl Iterator<Item = Route> + 'a {
    let mut numbers: Vec<u32> = family.tables.keys().copied().collect();
    numbers.sort_unstable();
    numbers
        .into_iter()
        .filter_map(|n| Some((n, family.tables.get(&n)?)))
        .flat_map(move |(number, table)| {
            table.iter().flat_map(move |(prefix, slot)| {
                let dst: IpNet = prefix.to_net();
                slot.ids()
                    .iter()
                    .map(move |id| whole_route(state, *id, number, dst))
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{NUD_NOARP, Tunnel, TunnelDf, TunnelKind};

    /// Of a tunnel's the kernel has one for each destination that was sent to.
    #[test]
    fn neighbours_by_tunnels_are_not_kept() {
        let gre = Link {
            mac: None,
            arp_type: 778,
            flags: 0x1_00d1,
            kind: Some("gre".into()),
            tunnel: Some(Tunnel {
                kind: TunnelKind::Gre {
                    ikey: None,
                    okey: None,
                },
                local: Some([10, 0, 0, 1].into()),
                remote: None,
                ttl: 0,
                tos: 0,
                df: TunnelDf::Set,
                link: 0,
                is_special: false,
            }),
            ..Link::ethernet(7, "gre1", [0; 6])
        };
        let dummy = Link {
            flags: 0x1_00c3,
            ..Link::ethernet(8, "dummy0", [2; 6])
        };
        let neighbour = |index, host: u8, state| Neighbour {
            index,
            dst: [198, 18, 0, host].into(),
            mac: None,
            state,
            flags: 0,
            protocol: 0,
        };
        let mut rib = Rib::detached();
        rib.apply(Event::Link(gre));
        rib.apply(Event::Link(dummy));
        rib.commit();
        let all = |state| move |host| Event::Neighbour(neighbour(7, host, state));
        (0..200).map(all(NUD_NOARP)).for_each(|e| rib.apply(e));
        assert_eq!(rib.snapshot().neighbours, []);
        assert!(rib.state.dirty.is_clean());
        // One that somebody wrote down is there until it is as all others are.
        let permanent = neighbour(7, 1, 0x80);
        rib.apply(Event::Neighbour(permanent.clone()));
        assert_eq!(rib.snapshot().neighbours, [permanent]);
        rib.commit();
        rib.apply(Event::Neighbour(neighbour(7, 1, NUD_NOARP)));
        assert_eq!(rib.snapshot().neighbours, []);
        assert_eq!(rib.state.dirty.neighbours.len(), 1);
        // Ethernet has some.
        let other = neighbour(8, 1, NUD_NOARP);
        rib.apply(Event::Neighbour(other.clone()));
        assert_eq!(rib.snapshot().neighbours, [other]);
    }

    /// What bridges and VXLANs know comes back from a file; files that were written before it was kept are read.
    #[test]
    fn snapshots_hold_fdbs() {
        let entry = |mac: u8| FdbEntry {
            bridge: 9,
            mac: [2, 0, 0, 0, 0, mac],
            vlan: 10,
            port: 2,
            local: mac == 1,
            is_special: mac == 2,
        };
        let vlan = |id| PortVlan {
            index: 2,
            id,
            pvid: id == 10,
            untagged: id == 10,
            state: 3,
        };
        let leads = |dst: u8| TunnelFdb {
            index: 4,
            mac: [0; 6],
            dst: [10, 0, 0, dst].into(),
            is_special: dst == 2,
        };
        let snapshot = Snapshot {
            format: Snapshot::FORMAT.into(),
            fdb: vec![entry(1), entry(2), entry(3)],
            tunnel_fdb: vec![leads(1), leads(2)],
            port_vlans: vec![vlan(10), vlan(11)],
            ..Snapshot::default()
        };
        let told = |snapshot: Snapshot| {
            let mut rib = Rib::detached();
            snapshot.into_events().for_each(|event| rib.apply(event));
            rib.snapshot()
        };
        let text = serde_json::to_string(&told(snapshot.clone())).unwrap();
        let read: Snapshot = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&read.fdb, &read.tunnel_fdb, &read.port_vlans),
            (&snapshot.fdb, &snapshot.tunnel_fdb, &snapshot.port_vlans)
        );
        let old = serde_json::to_string(&told(Snapshot::default())).unwrap();
        assert!(!old.contains("fdb") && !old.contains("port_vlans"));
        let read: Snapshot = serde_json::from_str(&old).unwrap();
        assert_eq!((read.fdb, read.port_vlans), (Vec::new(), Vec::new()));
        assert!(read.tunnel_fdb.is_empty());
    }
}
