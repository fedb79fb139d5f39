//! The mirrored state: what the kernel has told us, and nothing that we concluded.

mod bridges;
mod buckets;
mod fpm;
mod generations;
mod hosts;
mod routes;
mod shares;
mod tunnels;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use raddle_image::MAX_LINKS;
use raddle_select::{Brings, HashKey, Seed};

pub(crate) use bridges::{Bridges, FdbKey};
pub(crate) use buckets::Buckets;
pub(crate) use fpm::FpmRoutes;
pub(crate) use generations::Generations;
pub(crate) use routes::{Changed, Family};
pub(crate) use shares::Shares;
pub(crate) use tunnels::{TunnelKey, Tunnels};

use crate::algo::{AlgoRules, MpAlgo};
use crate::attrs::{Attrs, AttrsStore};
use crate::bonds::BondOrders;
use crate::event::{
    Address, DeviceSettings, Event, HmacKey, KernelHosts, LearntMtu, Link, NUD_NOARP, Neighbour,
    Nexthop, NexthopKind, RouteTarget, Rule, Settings, Sweep,
};
use crate::resolve::RouteId;
use crate::rules::Arrival;
use crate::seg6;
use crate::source6::comes_before;
use crate::tunnels::TunnelsHere;

/// What changed since the image was last brought up to date.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    /// A link, an address or per-device settings: link entries and all that lies on links.
    pub(crate) links: bool,
    /// The links that changed themselves or in their settings.
    pub(crate) changed_links: BTreeSet<u32>,
    /// Those of them that went, went down or lost their carrier, members of bonds that may send no longer, and bonds whose members come and
    /// go, until [`crate::Rib::commit_links`] has seen to them.
    pub(crate) lost_links: BTreeSet<u32>,
    /// Rules: which tables a link's packets are looked up in.
    pub(crate) rules: bool,
    /// Hash policy, seed and so on.
    pub(crate) settings: bool,
    /// Neighbours, by link and address.
    pub(crate) neighbours: HashSet<(u32, IpAddr)>,
    /// Entries of FDBs.
    pub(crate) fdb: HashSet<FdbKey>,
    /// Where VXLANs send which MAC addresses.
    pub(crate) tunnels: HashSet<TunnelKey>,
    /// Ends of tunnels, this one and the other one, of whose way the kernel has learnt something.
    pub(crate) ends: HashSet<(Ipv4Addr, Ipv4Addr)>,
    /// Destinations that became the kernel's, or are no more.
    pub(crate) kernel_hosts: HashSet<IpAddr>,
    /// Nexthop objects, by id.
    pub(crate) nexthops: HashSet<u32>,
    /// A nexthop object without a gateway came or went: which destinations are neighbours.
    pub(crate) direct: bool,
}

impl Dirty {
    /// A link or its settings changed.
    fn link(&mut self, index: u32) {
        self.links = true;
        self.changed_links.insert(index);
    }

    pub(crate) fn is_clean(&self) -> bool {
        !self.links
            && !self.rules
            && !self.settings
            && self.neighbours.is_empty()
            && self.fdb.is_empty()
            && self.tunnels.is_empty()
            && self.ends.is_empty()
            && self.kernel_hosts.is_empty()
            && self.nexthops.is_empty()
            && !self.direct
    }
}

/// The mirrored state.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) links: BTreeMap<u32, Link>,
    pub(crate) devices: HashMap<u32, DeviceSettings>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) neighbours: BTreeMap<(IpAddr, u32), Neighbour>,
    pub(crate) nexthops: BTreeMap<u32, Nexthop>,
    pub(crate) buckets: Buckets,
    pub(crate) bridges: Bridges,
    pub(crate) bond_orders: BondOrders,
    pub(crate) tunnels: Tunnels,
    pub(crate) tunnels_here: TunnelsHere,
    /// By both ends.
    pub(crate) learnt_mtus: BTreeMap<(Ipv4Addr, Ipv4Addr), LearntMtu>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) settings: Settings,
    /// The kernel's own key, where it has been read; it counts while no seed is set.
    pub(crate) kernel_key: Option<HashKey>,
    /// What gives packets that come in by a link a hash, for predictions.
    pub(crate) brings: BTreeMap<u32, Brings>,
    pub(crate) attrs: AttrsStore,
    pub(crate) algos: AlgoRules,
    pub(crate) fpm: FpmRoutes,
    pub(crate) v4: Family<u32>,
    pub(crate) v6: Family<u128>,
    pub(crate) hmac_keys: BTreeMap<u32, HmacKey>,
    pub(crate) dirty: Dirty,
    /// How often SIDs were replaced: they count anew then.
    pub(crate) generations: Generations,
    pub(crate) shares: Shares,
    pub(crate) kernel_hosts: KernelHosts,
    /// What the clock said last.
    pub(crate) now: i64,
    sweeps: HashMap<Sweep, Seen>,
}

/// What a running dump has mentioned.
#[derive(Debug, Default)]
struct Seen {
    numbers: HashSet<u32>,
    addresses: Vec<Address>,
    neighbours: HashSet<(IpAddr, u32)>,
    rules: Vec<Rule>,
}

impl State {
    /// How rules see packets that come in by a link.
    pub(crate) fn arrival<'a>(&'a self, link: &'a Link) -> Arrival<'a> {
        Arrival::of(link, |index| self.links.get(&index))
    }

    /// The settings that hold for packets that come in by a link.
    pub(crate) fn input_settings(&self, link: &Link) -> DeviceSettings {
        let by_index = |index: u32| self.links.get(&index);
        let of = |index: u32| self.devices.get(&index).copied().unwrap_or_default();
        DeviceSettings::of_input(link, by_index, of)
    }

    /// The links by which bonds take packets, each with its MAC address, by which packets are told that are for the bond
    /// (`eth_type_trans`), and its bond.
    pub(crate) fn bond_members(&self) -> Vec<(u32, [u8; 6], u32)> {
        let takes = |link: &&Link| link.bond_active == Some(true);
        let members = self.links.values().filter(takes).filter_map(|link| {
            let bond = self.links.get(&link.master?)?;
            let is_bond = bond.kind.as_deref() == Some("bond");
            let fits = (link.index as usize) < MAX_LINKS;
            Some((link.index, link.mac?, bond.index)).filter(|_| is_bond && fits)
        });
        members.collect()
    }

    /// The key by which the kernel chooses among paths, where it is known.
    pub(crate) fn hash_key(&self) -> Option<HashKey> {
        let seed = Seed::new(self.settings.hash_seed);
        seed.map(HashKey::from).or(self.kernel_key)
    }

    /// How a route with these attributes spreads its packets, where that is not by the namespace's
    /// policy.
    pub(crate) fn algo_of(&self, dst: &IpNet, attrs: &Attrs) -> Option<MpAlgo> {
        self.algos.of(dst, &attrs.target, attrs.mp_algo)
    }

    /// A route's identity.
    pub(crate) fn route_id(&self, table: u32, dst: IpNet) -> RouteId {
        RouteId {
            table,
            dst,
            generation: self.generations.of(table, dst),
        }
    }

    pub(crate) fn apply(&mut self, event: Event) {
        self.generations.see(&event);
        match event {
            Event::Clock(now) => {
                self.now = self.now.max(now);
                self.v4.tick(self.now);
                self.v6.tick(self.now);
            }
            Event::Link(link) => self.link(link),
            Event::LinkGone(index) => {
                self.devices.remove(&index);
                self.shares.link_gone(index);
                self.dirty.fdb.extend(self.bridges.link_gone(index));
                self.dirty.tunnels.extend(self.tunnels.link_gone(index));
                if let Some(link) = self.links.remove(&index) {
                    self.forget_orders([Some(index), link.master]);
                    self.dirty.link(index);
                    self.dirty.lost_links.insert(index);
                    self.nexthops_gone_with(index);
                }
            }
            Event::Device(index, settings) => self.device(index, settings),
            Event::Address(address) => self.address(address),
            Event::AddressGone(address) => {
                let before = self.addresses.len();
                self.addresses.retain(|a| !same_address(a, &address));
                self.dirty.links |= self.addresses.len() != before;
                if self.addresses.len() != before && address.local.is_ipv4() {
                    self.lost_address(address.index);
                }
            }
            Event::Neighbour(neighbour) => self.neighbour(neighbour),
            Event::NeighbourGone(index, dst) => {
                if self.neighbours.remove(&(dst, index)).is_some() {
                    self.dirty.neighbours.insert((index, dst));
                }
            }
            Event::Fdb(entry) => {
                if self.bridges.set(entry) {
                    let key = (entry.bridge, entry.vlan, entry.mac);
                    self.dirty.fdb.insert(key);
                }
            }
            Event::FdbGone(bridge, mac, vlan) => {
                let key = (bridge, vlan, mac);
                if self.bridges.remove(&key) {
                    self.dirty.fdb.insert(key);
                }
            }
            Event::TunnelFdb(entry) => {
                if self.tunnels.set(entry) {
                    self.dirty.tunnels.insert((entry.index, entry.mac));
                }
            }
            Event::TunnelFdbGone(index, mac, dst) => {
                if self.tunnels.remove((index, mac), dst) {
                    self.dirty.tunnels.insert((index, mac));
                }
            }
            Event::LearntMtu(learnt) => {
                let ends = (learnt.src, learnt.dst);
                if self.learnt_mtus.insert(ends, learnt) != Some(learnt) {
                    self.dirty.ends.insert(ends);
                }
            }
            Event::LearntMtuGone(src, dst) => {
                if self.learnt_mtus.remove(&(src, dst)).is_some() {
                    self.dirty.ends.insert((src, dst));
                }
            }
            Event::PortVlan(vlan) => {
                if self.bridges.set_vlan(vlan) {
                    self.dirty.link(vlan.index);
                }
            }
            Event::PortVlanGone(index, id) => {
                if self.bridges.remove_vlan(index, id) {
                    self.dirty.link(index);
                }
            }
            Event::Nexthop(nexthop) => self.nexthop(nexthop),
            Event::NexthopGone(id) => self.nexthop_gone(id),
            Event::Bucket(bucket) => {
                if self.buckets.set(bucket) {
                    self.dirty.nexthops.insert(bucket.group);
                }
            }
            Event::Route(route, op) => match route.dst {
                IpNet::V4(_) => self.v4.apply(&mut self.attrs, route, op, self.now),
                IpNet::V6(_) => self.v6.apply(&mut self.attrs, route, op, self.now),
            },
            Event::RouteGone(route) => match route.dst {
                IpNet::V4(_) => self.v4.remove(&mut self.attrs, route),
                IpNet::V6(_) => self.v6.remove(&mut self.attrs, route),
            },
            Event::Meanwhile(route, op) => match route.dst {
                IpNet::V4(_) => self.v4.meanwhile(&mut self.attrs, route, op, self.now),
                IpNet::V6(_) => self.v6.meanwhile(&mut self.attrs, route, op, self.now),
            },
            Event::Rule(rule) => self.rule(rule),
            Event::RuleGone(rule) => {
                // Which one went is not known where several differ by what is not kept: those that are left are read again.
                let at = self.rules.iter().position(|r| *r == rule);
                if let Some(at) = at.filter(|_| !rule.has_unknown()) {
                    self.rules.remove(at);
                    self.dirty.rules = true;
                    self.note_no_rules(rule.family);
                }
            }
            Event::Settings(settings) => {
                self.dirty.settings |= self.settings != settings;
                self.settings = settings;
            }
            Event::HmacKeys(keys) => {
                let keys = keys.into_iter().map(|key| (key.id, key)).collect();
                self.dirty.settings |= self.hmac_keys != keys;
                self.hmac_keys = keys;
            }
            Event::KernelHosts(told) => self.set_kernel_hosts(told),
            Event::BondOrder(bond, members) => {
                if self.bond_orders.set(bond, members) {
                    self.dirty.link(bond);
                }
            }
            Event::SweepBegin(sweep) => self.sweep_begin(sweep),
            Event::SweepEnd(sweep) => self.sweep_end(sweep),
            Event::Fpm(fpm) => self.apply_fpm(fpm),
        }
    }

    fn seen(&mut self, sweep: Sweep) -> Option<&mut Seen> {
        self.sweeps.get_mut(&sweep)
    }

    fn link(&mut self, link: Link) {
        if let Some(seen) = self.seen(Sweep::Links) {
            seen.numbers.insert(link.index);
        }
        let index = link.index;
        let before = self.links.get(&index);
        if before != Some(&link) {
            let lost = before.is_some_and(Link::keeps_nexthops) && !link.keeps_nexthops();
            let state = |link: &Link| (link.is_up(), link.has_carrier());
            if before.is_some_and(|before| state(before) != state(&link)) {
                self.shares.link_changed(index);
            }
            match (before.is_some_and(Link::is_up), link.is_up()) {
                (true, false) => self.shares.link_down(index),
                (false, true) if before.is_some() => self.shares.link_up(index),
                _ => {}
            }
            let master = link.master;
            let sends = |link: &Link| (link.bond_active, link.bond_down, link.bond_aggregator);
            let now = sends(&link);
            let before = self.links.insert(index, link);
            if before.as_ref().is_some_and(|before| sends(before) != now) {
                self.dirty.lost_links.insert(index);
            }
            let before = before.and_then(|link| link.master);
            if before != master {
                self.forget_orders([before, master]);
            }
            self.dirty.link(index);
            if lost {
                self.dirty.lost_links.insert(index);
                self.nexthops_gone_with(index);
            }
        }
    }

    /// Members of these bonds come or go. Of what is no bond nothing is known.
    fn forget_orders(&mut self, bonds: [Option<u32>; 2]) {
        for bond in bonds.into_iter().flatten() {
            if self.bond_orders.forget(bond) {
                self.dirty.link(bond);
                self.dirty.lost_links.insert(bond);
            }
        }
    }

    fn device(&mut self, index: u32, settings: DeviceSettings) {
        let before = self.devices.insert(index, settings);
        if before != Some(settings) {
            self.dirty.link(index);
        }
        let ignores = |d: DeviceSettings| (d.ignore_linkdown4, d.ignore_linkdown6);
        let silent = self.links.get(&index).is_some_and(|l| !l.has_carrier());
        if silent && before.is_some_and(|before| ignores(before) != ignores(settings)) {
            self.shares.setting_changed(index);
        }
    }

    /// A link has gone, gone down, or lost its carrier. The kernel takes the nexthop objects on it away
    /// without a word, and out of their groups (`nh_netdev_event`), and they stay away when the link comes
    /// back, however soon: until somebody adds them again, which is announced.
    fn nexthops_gone_with(&mut self, index: u32) {
        let is_on = |nexthop: &Nexthop| match nexthop.kind {
            NexthopKind::Single { index: on, .. } => on == index,
            _ => false,
        };
        let on = self.nexthops.iter().filter(|(_, nexthop)| is_on(nexthop));
        let gone: Vec<u32> = on.map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.nexthop_gone(id));
    }

    fn address(&mut self, address: Address) {
        let sweeping = self.sweeps.contains_key(&Sweep::Addresses);
        if let Some(seen) = self.seen(Sweep::Addresses) {
            seen.addresses.push(address.clone());
        }
        match self
            .addresses
            .iter_mut()
            .find(|a| same_address(a, &address))
        {
            Some(known) => {
                // Flags decide which is a source of encapsulated packets.
                self.dirty.links |= known.flags != address.flags;
                *known = address;
            }
            None => {
                let at = match sweeping {
                    // A dump tells them in order.
                    true => self.addresses.len(),
                    false => self.place_of(&address),
                };
                // Routes that are read later are told as they are.
                if address.local.is_ipv4() && !sweeping && !self.v4.is_empty() {
                    self.shares.link_up(address.index);
                    self.dirty.link(address.index);
                }
                self.addresses.insert(at, address);
                self.dirty.links = true;
            }
        }
    }

    /// Without an IPv4 address a link is down to IPv4 (`fib_disable_ip`).
    fn lost_address(&mut self, index: u32) {
        let mut left = self.addresses.iter();
        if !left.any(|a| a.index == index && a.local.is_ipv4()) {
            self.shares.link_down(index);
            self.dirty.link(index);
        }
    }

    /// Where a new address goes: a link's IPv6 addresses stand in the kernel's order.
    fn place_of(&self, new: &Address) -> usize {
        let goes_before = |known: &Address| match (new.local, known.local) {
            (IpAddr::V6(new_ip), IpAddr::V6(ip)) => {
                new.index == known.index && comes_before(new_ip, ip)
            }
            _ => false,
        };
        let place = self.addresses.iter().position(goes_before);
        place.unwrap_or(self.addresses.len())
    }

    fn neighbour(&mut self, neighbour: Neighbour) {
        let key = (neighbour.dst, neighbour.index);
        let link = self.links.get(&key.1);
        if neighbour.state == NUD_NOARP && link.is_some_and(Link::has_no_neighbours) {
            // One for each destination that was sent to, which leads nowhere else than the link.
            if self.neighbours.remove(&key).is_some() {
                self.dirty.neighbours.insert((key.1, key.0));
            }
            return;
        }
        if let Some(seen) = self.seen(Sweep::Neighbours) {
            seen.neighbours.insert(key);
        }
        let usable = |n: &Neighbour| (n.is_valid(), n.mac);
        let before = self.neighbours.get(&key).map(usable);
        let after = usable(&neighbour);
        self.neighbours.insert(key, neighbour);
        if before != Some(after) {
            self.dirty.neighbours.insert((key.1, key.0));
        }
    }

    /// A nexthop object is new or has changed. A resilient group may have given buckets to others
    /// then, which is not announced: until they are told again, nobody knows whose they are.
    fn nexthop(&mut self, mut nexthop: Nexthop) {
        let id = nexthop.id;
        if let NexthopKind::Single {
            encap: Some(encap), ..
        } = &mut nexthop.kind
        {
            seg6::forget_counters(encap);
        }
        let announced = match self.seen(Sweep::Nexthops) {
            Some(seen) => {
                seen.numbers.insert(id);
                false
            }
            None => true,
        };
        let before = self.nexthops.get(&id).map(|known| &known.kind);
        if (announced || !same_table(before, &nexthop.kind)) && self.buckets.forget(id) {
            self.dirty.nexthops.insert(id);
        }
        if self.nexthops.get(&id) != Some(&nexthop) {
            let now = is_direct(&nexthop);
            let before = self
                .nexthops
                .insert(id, nexthop)
                .is_some_and(|nh| is_direct(&nh));
            self.dirty.direct |= now || before;
            self.dirty.nexthops.insert(id);
        }
    }

    /// Removes a nexthop object. The kernel takes it out of its groups, and tells of the groups in
    /// messages of their own; a group that loses its last member goes silently, so that is derived
    /// here.
    fn nexthop_gone(&mut self, id: u32) {
        let Some(gone) = self.nexthops.remove(&id) else {
            return;
        };
        self.dirty.direct |= is_direct(&gone);
        self.buckets.forget(id);
        self.dirty.nexthops.insert(id);
        for (group, nexthop) in &mut self.nexthops {
            let members = match &mut nexthop.kind {
                NexthopKind::Group(members) | NexthopKind::Resilient { members, .. } => members,
                NexthopKind::Single { .. } | NexthopKind::Blackhole => continue,
            };
            let before = members.len();
            members.retain(|m| m.id != id);
            if members.len() != before {
                self.buckets.forget(*group);
                self.dirty.nexthops.insert(*group);
            }
        }
    }

    fn rule(&mut self, rule: Rule) {
        if let Some(seen) = self.seen(Sweep::Rules)
            && !seen.rules.contains(&rule)
        {
            seen.rules.push(rule.clone());
        }
        if !self.rules.contains(&rule) {
            self.rules.retain(|known| *known != Rule::none(rule.family));
            let at = self.rules.partition_point(|r| r.priority <= rule.priority);
            self.rules.insert(at, rule);
            self.dirty.rules = true;
        }
    }

    /// Where a family has no rule any more, one stands for that which leads nowhere.
    fn note_no_rules(&mut self, family: u8) {
        if !self.rules.iter().any(|rule| rule.family == family) {
            self.rules.push(Rule::none(family));
            self.dirty.rules = true;
        }
    }

    fn sweep_begin(&mut self, sweep: Sweep) {
        match sweep {
            Sweep::Routes4 => {
                self.shares.sweep_begin();
                self.v4.sweep_begin(&mut self.attrs);
            }
            Sweep::Routes6 => self.v6.sweep_begin(&mut self.attrs),
            Sweep::Buckets => self.buckets.sweep_begin(None),
            Sweep::BucketsOf(group) => self.buckets.sweep_begin(Some(group)),
            Sweep::Fdb => {
                self.bridges.sweep_begin(sweep);
                self.tunnels.sweep_begin();
            }
            Sweep::PortVlans => self.bridges.sweep_begin(sweep),
            _ => {
                self.sweeps.insert(sweep, Seen::default());
            }
        }
    }

    fn sweep_end(&mut self, sweep: Sweep) {
        match sweep {
            Sweep::Routes4 => {
                self.v4.sweep_end(&mut self.attrs, self.now);
                let [read, flushed] = self.shares.sweep_end();
                if !read.is_empty() && self.has_ipv6_gateways() {
                    read.into_iter().for_each(|index| self.dirty.link(index));
                }
                flushed.into_iter().for_each(|index| self.dirty.link(index));
                return;
            }
            Sweep::Routes6 => return self.v6.sweep_end(&mut self.attrs, self.now),
            Sweep::Buckets | Sweep::BucketsOf(_) => {
                return self.dirty.nexthops.extend(self.buckets.sweep_end());
            }
            Sweep::Fdb => {
                self.dirty.fdb.extend(self.bridges.sweep_end_fdb());
                return self.dirty.tunnels.extend(self.tunnels.sweep_end());
            }
            Sweep::PortVlans => {
                let ports = self.bridges.sweep_end_vlans();
                return ports.into_iter().for_each(|index| self.dirty.link(index));
            }
            _ => {}
        }
        let Some(seen) = self.sweeps.remove(&sweep) else {
            return;
        };
        match sweep {
            Sweep::Links => {
                let (dirty, shares) = (&mut self.dirty, &mut self.shares);
                self.links.retain(|index, _| {
                    let keep = seen.numbers.contains(index);
                    if !keep {
                        shares.link_gone(*index);
                        dirty.link(*index);
                        dirty.lost_links.insert(*index);
                    }
                    keep
                });
                self.devices.retain(|index, _| seen.numbers.contains(index));
            }
            Sweep::Addresses => {
                let before = self.addresses.len();
                self.addresses
                    .retain(|a| seen.addresses.iter().any(|b| same_address(a, b)));
                self.dirty.links |= self.addresses.len() != before;
                let place = |a: &Address| seen.addresses.iter().position(|b| same_address(a, b));
                if !self.addresses.is_sorted_by_key(place) {
                    self.addresses.sort_by_cached_key(place);
                    self.dirty.links = true;
                }
            }
            Sweep::Neighbours => {
                let dirty = &mut self.dirty.neighbours;
                self.neighbours.retain(|key, _| {
                    let keep = seen.neighbours.contains(key);
                    if !keep {
                        dirty.insert((key.1, key.0));
                    }
                    keep
                });
            }
            Sweep::Nexthops => {
                let dirty = &mut self.dirty;
                self.nexthops.retain(|id, nexthop| {
                    let keep = seen.numbers.contains(id);
                    if !keep {
                        dirty.nexthops.insert(*id);
                        dirty.direct |= is_direct(nexthop);
                    }
                    keep
                });
                self.buckets.retain(|id| seen.numbers.contains(&id));
            }
            Sweep::Rules => {
                // In the order in which they were told: of one priority, the kernel's.
                let mut rules = seen.rules;
                rules.retain(|rule| self.rules.contains(rule));
                rules.sort_by_key(|rule| rule.priority);
                self.dirty.rules |= self.rules != rules;
                self.rules = rules;
                [4, 6]
                    .into_iter()
                    .for_each(|family| self.note_no_rules(family));
            }
            Sweep::Buckets
            | Sweep::BucketsOf(_)
            | Sweep::Routes4
            | Sweep::Routes6
            | Sweep::Fdb
            | Sweep::PortVlans => {}
        }
    }

    /// Whether an IPv4 route has an IPv6 gateway. Costs a walk over all sets of route attributes.
    fn has_ipv6_gateways(&self) -> bool {
        let is_v6 = |gateway: Option<IpAddr>| gateway.is_some_and(|gateway| gateway.is_ipv6());
        let multipath = |target: &RouteTarget| matches!(target, RouteTarget::Multipath(_));
        let has = |attrs: &Attrs| {
            multipath(&attrs.target) && attrs.target.hops().iter().any(|hop| is_v6(hop.gateway))
        };
        self.attrs.numbers(has).next().is_some()
    }

    /// Whether nexthop objects on this link stay: it is up and has carrier.
    pub(crate) fn link_lives(&self, index: u32) -> bool {
        self.links.get(&index).is_some_and(Link::keeps_nexthops)
    }

    /// The neighbour with this address on this link.
    pub(crate) fn neighbour_at(&self, index: u32, dst: IpAddr) -> Option<&Neighbour> {
        self.neighbours.get(&(dst, index))
    }
}

/// The kernel tells addresses apart by link, address and prefix length.
fn same_address(a: &Address, b: &Address) -> bool {
    (a.index, a.local, a.peer, a.prefix_len) == (b.index, b.local, b.peer, b.prefix_len)
}

fn is_direct(nexthop: &Nexthop) -> bool {
    matches!(nexthop.kind, NexthopKind::Single { gateway: None, .. })
}

/// Whether a nexthop object that was `before` has the same table of buckets: it is a resilient group
/// of the same members, weights and number of buckets.
fn same_table(before: Option<&NexthopKind>, now: &NexthopKind) -> bool {
    let table = |kind: &NexthopKind| match kind {
        NexthopKind::Resilient {
            members, buckets, ..
        } => Some((members.clone(), *buckets)),
        _ => None,
    };
    before.and_then(table) == table(now)
}
