//! The mirror and the image together: apply what the kernel says, publish what follows.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use raddle_fib::{Fib4, Fib6};
use raddle_select::{Seed, keyed, mid_states};

use crate::adjacency::{Ports, Publish};
use crate::algo::AlgoRules;
use crate::event::{Event, Link, RouteKind};
use crate::groups::Groups;
use crate::image::{
    self, Capacity, Config, LINK_COUNTERS, LinkEntry, MAGIC, MAX_LINKS, Memory, config_flags,
    link_flags, own_bit,
};
use crate::lpm::Lpm;
use crate::prefix::{Addr, Prefix};
use crate::reason::Reason;
use crate::rules::{TABLE_LOCAL, tables_for};
use crate::state::{Changed, Family, State};
use crate::view::View;

/// The views of one family and the tables that they live in.
struct Side<A, L> {
    lpm: L,
    views: Vec<View<A, L>>,
}

/// The mirrored state and the image compiled from it.
pub struct Rib {
    pub(crate) state: State,
    memory: Arc<Memory>,
    grace: Arc<dyn Fn() + Send + Sync>,
    ports: Ports,
    pub(crate) groups: Groups,
    v4: Side<u32, Fib4<Memory>>,
    v6: Side<u128, Fib6<Memory>>,
    config: Config,
    links: HashMap<u32, LinkEntry>,
    ports_changed: bool,
    hold: bool,
}

/// What a commit did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Table entries that were looked at.
    pub entries: usize,
    /// Groups that were compiled.
    pub groups: usize,
    /// Whether a table or a group found no room: its packets go to the kernel.
    pub full: bool,
    /// How long it took.
    pub took: Duration,
}

/// How much of the image is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Routes in the mirror, IPv4.
    pub routes4: usize,
    /// Routes in the mirror, IPv6.
    pub routes6: usize,
    /// Entries in the image's IPv4 tables.
    pub entries4: usize,
    /// Entries in the image's IPv6 tables.
    pub entries6: usize,
    /// Groups in use.
    pub groups: usize,
    /// Adjacencies in use.
    pub adjacencies: usize,
    /// SRv6 behaviours and encapsulations in use.
    pub segments: usize,
    /// A table or a group found no room.
    pub full: bool,
}

impl Rib {
    /// An empty mirror over this memory, which must be zeroed.
    ///
    /// `grace` returns when no engine can still hold what it read before the call; it is called
    /// seldom, and may take milliseconds.
    pub fn new(
        memory: Arc<Memory>,
        capacity: &Capacity,
        grace: impl Fn() + Send + Sync + 'static,
    ) -> Rib {
        let grace: Arc<dyn Fn() + Send + Sync> = Arc::new(grace);
        let boxed = || {
            let grace = Arc::clone(&grace);
            Box::new(move || grace()) as Box<dyn Fn() + Send + Sync>
        };
        let no_route = image::Group::Kernel(Reason::NoRoute).to_word();
        memory.groups.words()[0].store(no_route, Ordering::Release);
        let mut rib = Rib {
            state: State::default(),
            v4: Side {
                lpm: Fib4::new(Arc::clone(&memory), boxed()),
                views: Vec::new(),
            },
            v6: Side {
                lpm: Fib6::new(Arc::clone(&memory), boxed()),
                views: Vec::new(),
            },
            groups: Groups::new(capacity),
            memory,
            grace,
            ports: Ports::default(),
            config: empty_config(),
            links: HashMap::new(),
            ports_changed: false,
            hold: false,
        };
        rib.state.dirty.settings = true;
        rib
    }

    /// A mirror that compiles into a small image of its own, for looking at state only.
    pub fn detached() -> Rib {
        let capacity = Capacity {
            nodes4: 1 << 10,
            leaves4: 1 << 10,
            words6: 1 << 10,
            groups: 16,
            members: 16,
            adjacencies: 16,
            segments: 64,
            templates: 1 << 10,
        };
        Rib::new(Arc::new(Memory::heap(&capacity)), &capacity, || ())
    }

    /// The image.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Applies one event to the mirror. Engines see nothing of it before [`Rib::commit`].
    pub fn apply(&mut self, event: Event) {
        self.state.apply(event);
    }

    /// Says which links engines may use. Takes effect with [`Rib::commit`].
    pub fn set_ports(&mut self, ports: Ports) {
        if self.ports != ports {
            self.ports = ports;
            self.ports_changed = true;
        }
    }

    /// Says which routes spread their packets otherwise than by the namespace's hash policy, from the
    /// first route on: to be called before there are any.
    pub fn set_algos(&mut self, algos: AlgoRules) {
        self.state.algos = algos;
    }

    /// Which routes spread their packets otherwise.
    pub fn algos(&self) -> &AlgoRules {
        &self.state.algos
    }

    /// Has `forget` called with the number of each segment before it stands for something new: what it
    /// has counted is to be set to 0. No engine counts under this number then.
    pub fn on_new_segment(&mut self, forget: impl Fn(u32) + Send + Sync + 'static) {
        self.groups.segments.on_new = Box::new(forget);
    }

    /// Which links engines may use.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// The instant (`CLOCK_MONOTONIC` nanoseconds) after which engines hand everything to the
    /// kernel unless it is set anew; 0 for never. Takes effect at once.
    pub fn set_deadline(&mut self, nanoseconds: u64) {
        self.config.deadline = nanoseconds;
        self.memory.config.words()[DEADLINE_WORD].store(nanoseconds, Ordering::Release);
    }

    /// Hands everything to the kernel, or forwards again. Takes effect at once.
    pub fn set_hold(&mut self, hold: bool) {
        self.hold = hold;
        self.publish_config();
    }

    /// Whether anything waits for [`Rib::commit`].
    pub fn is_dirty(&self) -> bool {
        self.ports_changed
            || !self.state.dirty.is_clean()
            || !self.state.v4.changed.is_clean()
            || !self.state.v6.changed.is_clean()
    }

    /// Publishes what changed of nexthops and neighbours, but not of routes: it takes effect at once
    /// however many routes wait to be gathered. [`Rib::commit`] is still to be called, if
    /// [`Rib::is_dirty`] says so. None when there was nothing to publish, or nothing that could be
    /// published ahead of the rest.
    pub fn commit_nexthops(&mut self) -> Option<Commit> {
        let start = Instant::now();
        let dirty = &self.state.dirty;
        if dirty.nexthops.is_empty() || dirty.links || dirty.settings || self.ports_changed {
            return None;
        }
        let at = Publish {
            state: &self.state,
            ports: &self.ports,
            memory: &self.memory,
            grace: &*self.grace,
        };
        let adjacencies = self.groups.adjacencies.of_neighbours(&dirty.neighbours);
        self.groups.adjacencies.refresh(&adjacencies, &at);
        let mut groups = self.groups.of_neighbours(&dirty.neighbours);
        groups.extend(self.groups.of_nexthops(&self.state, &dirty.nexthops));
        for group in &groups {
            self.groups.compile(*group, &at);
        }
        self.state.dirty.nexthops.clear();
        let entries = self.make_segment_tables();
        Some(Commit {
            entries,
            groups: groups.len(),
            full: self.is_full(),
            took: start.elapsed(),
        })
    }

    /// Compiles what changed and publishes it to all engines.
    pub fn commit(&mut self) -> Commit {
        let start = Instant::now();
        let dirty = std::mem::take(&mut self.state.dirty);
        let ports_changed = std::mem::take(&mut self.ports_changed);
        if dirty.settings {
            self.publish_config();
        }
        let everything = dirty.links || dirty.settings || ports_changed;
        let at = Publish {
            state: &self.state,
            ports: &self.ports,
            memory: &self.memory,
            grace: &*self.grace,
        };
        let adjacencies = match everything {
            true => self.groups.adjacencies.all(),
            false => self.groups.adjacencies.of_neighbours(&dirty.neighbours),
        };
        self.groups.adjacencies.refresh(&adjacencies, &at);
        let segments = match everything {
            true => self.groups.segments.all(),
            false => self.groups.segments.full(),
        };
        self.groups.segments.refresh(&segments, &at);
        let groups = if everything {
            self.groups.all()
        } else {
            let mut groups = self.groups.of_neighbours(&dirty.neighbours);
            groups.extend(self.groups.of_nexthops(&self.state, &dirty.nexthops));
            groups.extend(self.groups.full());
            groups
        };
        for group in &groups {
            self.groups.compile(*group, &at);
        }
        let mut commit = Commit {
            groups: groups.len(),
            ..Commit::default()
        };
        let own_changed = dirty.links || self.state.v4.changed.touches(TABLE_LOCAL);
        commit.entries = self.publish_tables(&dirty.neighbours, dirty.direct);
        commit.entries += self.make_segment_tables();
        if dirty.links || dirty.rules || ports_changed {
            commit.entries += self.publish_links();
            // New views of links may have led to new SIDs.
            commit.entries += self.make_segment_tables();
        }
        self.drop_unused_tables();
        let (v4, v6) = (&self.state.v4, &self.state.v6);
        self.state.generations.prune(|table, dst| match dst {
            IpNet::V4(_) => Prefix::from_net(dst).is_some_and(|p| v4.has(table, p)),
            IpNet::V6(_) => Prefix::from_net(dst).is_some_and(|p| v6.has(table, p)),
        });
        if own_changed {
            self.publish_own();
        }
        commit.full = self.is_full();
        commit.took = start.elapsed();
        commit
    }

    fn publish_tables(
        &mut self,
        neighbours: &HashSet<(u32, IpAddr)>,
        direct_changed: bool,
    ) -> usize {
        let at = Publish {
            state: &self.state,
            ports: &self.ports,
            memory: &self.memory,
            grace: &*self.grace,
        };
        // Those that changed, also where all are looked at: of the ones that went the state knows
        // nothing any more.
        let mut hosts: Vec<IpAddr> = neighbours.iter().map(|(_, ip)| *ip).collect();
        if direct_changed {
            hosts.extend(self.state.neighbours.keys().map(|(ip, _)| *ip));
        }
        let mut entries = 0;
        for view in &mut self.v4.views {
            entries += view.update(
                &mut self.v4.lpm,
                &mut self.groups,
                &self.state.v4,
                &hosts,
                &at,
            );
        }
        for view in &mut self.v6.views {
            entries += view.update(
                &mut self.v6.lpm,
                &mut self.groups,
                &self.state.v6,
                &hosts,
                &at,
            );
        }
        self.state.v4.changed = Changed::default();
        self.state.v6.changed = Changed::default();
        entries
    }

    /// Writes the entries of all links, and makes the views that they need.
    fn publish_links(&mut self) -> usize {
        let at = Publish {
            state: &self.state,
            ports: &self.ports,
            memory: &self.memory,
            grace: &*self.grace,
        };
        let mut wanted = HashMap::new();
        let mut built = 0;
        for link in self.state.links.values() {
            let Some(mut entry) = link_entry(&self.state, &self.ports, link) else {
                continue;
            };
            match self
                .v4
                .table_for(&self.state, 4, link, &self.state.v4, &mut self.groups, &at)
            {
                Some((table, count)) => {
                    built += count;
                    entry.table4 = table;
                }
                None => entry.flags |= link_flags::RULES4,
            }
            match self
                .v6
                .table_for(&self.state, 6, link, &self.state.v6, &mut self.groups, &at)
            {
                Some((table, count)) => {
                    built += count;
                    entry.table6 = table;
                }
                None => entry.flags |= link_flags::RULES6,
            }
            wanted.insert(link.index, entry);
        }
        self.number_links(&mut wanted);
        let gone = self
            .links
            .keys()
            .filter(|index| !wanted.contains_key(index));
        let gone: Vec<(u32, LinkEntry)> = gone.map(|i| (*i, LinkEntry::default())).collect();
        let changed: Vec<(u32, LinkEntry)> = wanted
            .iter()
            .map(|(index, entry)| (*index, *entry))
            .filter(|(index, entry)| self.links.get(index) != Some(entry))
            .chain(gone)
            .collect();
        for (index, _) in &changed {
            let word = *index as usize * (size_of::<LinkEntry>() / 8);
            self.memory.links.words()[word].store(0, Ordering::Release);
        }
        if changed
            .iter()
            .any(|(index, _)| self.links.contains_key(index))
        {
            // Whoever saw the old flags has to be done before the rest changes, lest a packet is
            // looked up in a table that was never its own.
            (self.grace)();
        }
        for (index, entry) in &changed {
            image::store(&self.memory.links, *index as usize, entry);
        }
        self.links = wanted;
        built
    }

    /// Makes the views of single tables that SIDs look in, until none leads to a SID that wants another.
    /// Returns how many entries that took.
    fn make_segment_tables(&mut self) -> usize {
        let at = Publish {
            state: &self.state,
            ports: &self.ports,
            memory: &self.memory,
            grace: &*self.grace,
        };
        self.groups.segments.tables.v4.tidy();
        self.groups.segments.tables.v6.tidy();
        let mut entries = 0;
        loop {
            let tables = &self.groups.segments.tables;
            let (missing4, missing6) = (tables.v4.missing(), tables.v6.missing());
            if missing4.is_empty() && missing6.is_empty() {
                break;
            }
            for table in missing4 {
                let family = &self.state.v4;
                let made = self.v4.view_of(vec![table], family, &mut self.groups, &at);
                entries += made.map_or(0, |(_, count)| count);
                let tables = &mut self.groups.segments.tables.v4;
                tables.set(table, made.map(|(id, _)| id));
            }
            for table in missing6 {
                let family = &self.state.v6;
                let made = self.v6.view_of(vec![table], family, &mut self.groups, &at);
                entries += made.map_or(0, |(_, count)| count);
                let tables = &mut self.groups.segments.tables.v6;
                tables.set(table, made.map(|(id, _)| id));
            }
            let segments = self.groups.segments.with_tables();
            self.groups.segments.refresh(&segments, &at);
        }
        entries
    }

    /// Drops the views that neither a link nor a SID looks in any more. One that goes may have held
    /// the last SID that looked in another.
    fn drop_unused_tables(&mut self) {
        let at = Publish {
            state: &self.state,
            ports: &self.ports,
            memory: &self.memory,
            grace: &*self.grace,
        };
        let of_links = |rules: u32, table: fn(&LinkEntry) -> u32| -> HashSet<u32> {
            let entries = self.links.values();
            let looks = entries.filter(|entry| entry.flags & rules == 0);
            looks.map(table).collect()
        };
        let of_links4 = of_links(link_flags::RULES4, |entry| entry.table4);
        let of_links6 = of_links(link_flags::RULES6, |entry| entry.table6);
        loop {
            let tables = &mut self.groups.segments.tables;
            tables.v4.tidy();
            tables.v6.tidy();
            let mut keep4 = of_links4.clone();
            keep4.extend(tables.v4.views());
            let mut keep6 = of_links6.clone();
            keep6.extend(tables.v6.views());
            if self.v4.all_in(&keep4) && self.v6.all_in(&keep6) {
                return;
            }
            // Whoever has seen a SID that is gone may still be on the way to its table.
            (at.grace)();
            self.v4.drop_unused(&keep4, &mut self.groups, &at);
            self.v6.drop_unused(&keep6, &mut self.groups, &at);
        }
    }

    /// Gives each link a counter slot: the one that it had, else the one of its index, else a free
    /// one. Links share one only where there are more links than slots.
    fn number_links(&self, wanted: &mut HashMap<u32, LinkEntry>) {
        let known = |index: &u32| self.links.get(index).map(|entry| entry.slot);
        let mut used: HashSet<u32> = wanted.keys().filter_map(known).collect();
        let mut indices: Vec<u32> = wanted.keys().copied().collect();
        indices.sort_unstable();
        for index in indices {
            let slot = known(&index).unwrap_or_else(|| {
                let own = index % LINK_COUNTERS as u32;
                std::iter::once(own)
                    .chain(0..LINK_COUNTERS as u32)
                    .find(|slot| !used.contains(slot))
                    .unwrap_or(own)
            });
            used.insert(slot);
            if let Some(entry) = wanted.get_mut(&index) {
                entry.slot = slot;
            }
        }
    }

    /// Writes the filter of our own IPv4 addresses: those of links, and what local routes claim
    /// (`fib_validate_source` looks at those too once there is one). It says which sources to look
    /// up; the table then tells. Bits are set before others are cleared.
    fn publish_own(&self) {
        let words = self.memory.own4.words();
        let mut wanted = vec![0u64; words.len()];
        let mut own = |ip: u32| {
            let bit = own_bit(ip);
            wanted[bit / 64] |= 1 << (bit % 64);
        };
        for address in &self.state.addresses {
            if let IpAddr::V4(ip) = address.local {
                own(ip.to_bits());
            }
        }
        let mut all = false;
        for prefix in self.local_prefixes() {
            match prefix.len {
                FEW_ADDRESSES.. => prefix.addresses().for_each(&mut own),
                _ => all = true,
            }
        }
        if all {
            wanted.fill(u64::MAX);
        }
        for (word, bits) in words.iter().zip(&wanted) {
            word.fetch_or(*bits, Ordering::Release);
        }
        for (word, bits) in words.iter().zip(&wanted) {
            word.store(*bits, Ordering::Release);
        }
    }

    /// The prefixes of local routes but 127.0.0.0/8, whose addresses are no sources anyway.
    fn local_prefixes(&self) -> impl Iterator<Item = Prefix<u32>> {
        let loopback = Prefix::new(127 << 24, 8);
        let table = self.state.v4.tables.get(&TABLE_LOCAL);
        table
            .into_iter()
            .flat_map(|table| table.iter())
            .filter(move |(prefix, _)| Prefix::new(prefix.addr, 8) != loopback || prefix.len < 8)
            .filter(|(_, slot)| {
                let kind = |id| self.state.attrs.get(id).kind;
                slot.ids().iter().any(|id| kind(*id) == RouteKind::Local)
            })
            .map(|(prefix, _)| prefix)
    }

    /// Writes the configuration. While it is not consistent everything goes to the kernel.
    fn publish_config(&mut self) {
        let settings = &self.state.settings;
        let mut config = Config {
            magic: MAGIC,
            flags: if self.hold { config_flags::HOLD } else { 0 },
            seed: settings.hash_seed,
            policy4: settings.hash_policy4,
            policy6: settings.hash_policy6,
            fields4: settings.hash_fields4 as u16,
            fields6: settings.hash_fields6 as u16,
            pad: [0; 2],
            deadline: self.config.deadline,
            sip_key: [0; 4],
            sip_mid: [[0; 4]; 256],
        };
        if let Some(seed) = Seed::new(settings.hash_seed) {
            config.flags |= config_flags::SEED_KNOWN;
            config.sip_key = keyed(seed);
            config.sip_mid = mid_states(seed);
        }
        if config == self.config {
            return;
        }
        let words = self.memory.config.words();
        if self.config.magic == MAGIC {
            words[0].store(0, Ordering::Release);
            (self.grace)();
        }
        image::store(&self.memory.config, 0, &config);
        self.config = config;
    }

    fn is_full(&self) -> bool {
        self.v4.views.iter().any(|view| view.full)
            || self.v6.views.iter().any(|view| view.full)
            || !self.groups.full().is_empty()
            || !self.groups.segments.full().is_empty()
    }

    /// How much of the image is used.
    pub fn usage(&self) -> Usage {
        Usage {
            routes4: self.state.v4.tables.values().map(|t| t.len()).sum(),
            routes6: self.state.v6.tables.values().map(|t| t.len()).sum(),
            entries4: self.v4.views.iter().map(View::routes).sum(),
            entries6: self.v6.views.iter().map(View::routes).sum(),
            groups: self.groups.used(),
            adjacencies: self.groups.adjacencies.used(),
            segments: self.groups.segments.used(),
            full: self.is_full(),
        }
    }
}

impl<A: Addr, L: Lpm<A>> Side<A, L> {
    /// The table in which packets from `link` are looked up, made if need be, and how many entries
    /// that took. None when rules decide by what engines do not look at, or there is no table left.
    fn table_for(
        &mut self,
        state: &State,
        family_number: u8,
        link: &Link,
        family: &Family<A>,
        groups: &mut Groups,
        at: &Publish<'_>,
    ) -> Option<(u32, usize)> {
        let tables = tables_for(&state.rules, family_number, &link.name).ok()?;
        self.view_of(tables, family, groups, at)
    }

    /// The view of these tables, made if need be, and how many entries that took. None when there is no
    /// table left.
    fn view_of(
        &mut self,
        tables: Vec<u32>,
        family: &Family<A>,
        groups: &mut Groups,
        at: &Publish<'_>,
    ) -> Option<(u32, usize)> {
        if let Some(view) = self.views.iter().find(|view| view.tables == tables) {
            return Some((view.id.index(), 0));
        }
        let id = self.lpm.create_table(self.views.is_empty()).ok()?;
        let mut view = View::new(tables, id);
        let built = view.rebuild(&mut self.lpm, groups, family, at);
        self.views.push(view);
        Some((id.index(), built))
    }

    fn all_in(&self, keep: &HashSet<u32>) -> bool {
        self.views
            .iter()
            .all(|view| keep.contains(&view.id.index()))
    }

    fn drop_unused(&mut self, keep: &HashSet<u32>, groups: &mut Groups, at: &Publish<'_>) {
        for i in (0..self.views.len()).rev() {
            if !keep.contains(&self.views[i].id.index()) {
                self.views.swap_remove(i).clear(&mut self.lpm, groups, at);
            }
        }
    }
}

/// The entry of a link that engines forward from, without tables and counter slot; none for others.
fn link_entry(state: &State, ports: &Ports, link: &Link) -> Option<LinkEntry> {
    if !ports.enabled.contains(&link.index) || link.index as usize >= MAX_LINKS {
        return None;
    }
    let settings = state.devices.get(&link.index).copied().unwrap_or_default();
    let mut flags = link_flags::ENABLED;
    for (on, flag) in [
        (settings.forwarding4, link_flags::FORWARD4),
        (settings.forwarding6, link_flags::FORWARD6),
        (settings.rp_filter != 0, link_flags::RP_FILTER),
        (settings.accept_local, link_flags::ACCEPT_LOCAL),
        (settings.seg6_require_hmac > 0, link_flags::HMAC_REQUIRED),
        (settings.seg6_require_hmac < 0, link_flags::HMAC_IGNORED),
    ] {
        if on {
            flags |= flag;
        }
    }
    let mac = link.mac?;
    Some(LinkEntry {
        flags,
        mac,
        mtu: link.mtu,
        ..LinkEntry::default()
    })
}

/// Local routes of this length or more have so few addresses that each has its bit in the filter of
/// our own; with a shorter one all sources are looked up.
const FEW_ADDRESSES: u8 = 24;

const DEADLINE_WORD: usize = std::mem::offset_of!(Config, deadline) / 8;

fn empty_config() -> Config {
    Config {
        magic: 0,
        flags: 0,
        seed: 0,
        policy4: 0,
        policy6: 0,
        fields4: 0,
        fields6: 0,
        pad: [0; 2],
        deadline: 0,
        sip_key: [0; 4],
        sip_mid: [[0; 4]; 256],
    }
}
