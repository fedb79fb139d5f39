//! The mirror and the image together: apply what the kernel says, publish what follows.

/// What publishing takes of a [`Rib`] (`$rib`), whose other fields stay free to be changed meanwhile.
macro_rules! publish {
    ($rib:expr) => {
        crate::adjacency::Publish {
            state: &$rib.state,
            ports: &$rib.ports,
            zones: &$rib.guards.zones,
            memory: &$rib.memory,
            grace: &*$rib.grace,
        }
    };
}

mod learnt;
mod links;
mod reverse;
mod sources;
mod tables;
mod upon;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use raddle_fib::{Fib4, Fib6};
use raddle_select::{Brings, HashKey, keyed, mid_states};

use crate::adjacency::Ports;
use crate::algo::AlgoRules;
use crate::counted::Sent;
use crate::event::Event;
use crate::firewall::Firewall;
use crate::groups::Groups;
use crate::guards::Guards;
use crate::prefix::Prefix;
use crate::state::State;
use crate::view::View;
use learnt::Learnt;
use raddle_image as image;
use raddle_image::Counter;
use raddle_image::Lack;
use raddle_image::{Capacity, Config, LinkEntry, MAGIC, Memory, Reason, config_flags};
pub use reverse::Back;
use reverse::WayBack;
pub use sources::Claim;
use sources::Sources;
use tables::Side;
use upon::Ways;

/// The mirrored state and the image compiled from it.
pub struct Rib {
    pub(crate) state: State,
    memory: Arc<Memory>,
    grace: Arc<dyn Fn() + Send + Sync>,
    ports: Ports,
    pub(crate) guards: Guards,
    pub(crate) groups: Groups,
    v4: Side<u32, Fib4<Memory>>,
    v6: Side<u128, Fib6<Memory>>,
    sources: Sources,
    way_back: WayBack,
    config: Config,
    label_key: [u64; 2],
    port_key: [u64; 2],
    /// The entries of the image of links that engines forward from.
    links: HashMap<u32, LinkEntry>,
    upon: Ways,
    learnt: Learnt,
    /// The link that each counter slot was given to last, and its name then.
    slot_owners: HashMap<u32, (u32, String)>,
    forget_received: Box<dyn Fn(u32) + Send + Sync>,
    ports_changed: bool,
    refresh: bool,
    hold: bool,
    one_buffer: bool,
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

/// What there was no room for in tables of a fixed size. The kernel has the frames concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithoutRoom {
    /// Ways from a link to one upon it: by tags, from ports of bridges, by MAC addresses.
    pub steps: usize,
    /// MAC addresses at ports of bridges that frames may come from.
    pub sources: usize,
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
            guards: Guards::default(),
            sources: Sources::default(),
            way_back: WayBack::default(),
            config: empty_config(),
            label_key: [0; 2],
            port_key: [0; 2],
            links: HashMap::new(),
            upon: Ways::default(),
            learnt: Learnt::default(),
            slot_owners: HashMap::new(),
            forget_received: Box::new(|_| ()),
            ports_changed: false,
            refresh: false,
            hold: false,
            one_buffer: false,
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

    /// Says what a look at the links of `looked_at` has found that forwarded packets meet in the kernel: that is punted then, for
    /// [`Reason::Firewall`]. On links that were not looked at everything is. None: nobody looks, and nothing is punted for it. Takes
    /// effect with [`Rib::commit_firewall`] or [`Rib::commit`], and while these change it engines forward nothing.
    pub fn set_firewall(&mut self, found: Option<(Ports, Firewall)>) {
        self.guards.set(found);
    }

    /// Has the next [`Rib::commit`] publish all adjacencies, segments and groups anew, also those that are as they were:
    /// somebody else may have changed what the image says of them ([`Memory::punt_link`]).
    pub fn refresh(&mut self) {
        self.refresh = true;
    }

    /// Says which routes spread their packets otherwise than by the namespace's hash policy, from the
    /// first route on: to be called before there are any.
    pub fn set_algos(&mut self, algos: AlgoRules) {
        self.state.algos = algos;
    }

    /// Tells the kernel's own key, by which it chooses while no seed is set; none where it is not known. The next
    /// [`Rib::commit`] goes by it. No snapshot has it.
    pub fn set_kernel_key(&mut self, key: Option<HashKey>) {
        self.state.dirty.settings |= self.state.kernel_key != key;
        self.state.kernel_key = key;
    }

    /// Tells what gives packets that come in by a link a hash, which the kernel then takes with policy 1, for who predicts its
    /// choices ([`Rib::brings`]). No image and no snapshot has it.
    pub fn set_brings(&mut self, index: u32, brings: Brings) {
        self.state.brings.insert(index, brings);
    }

    /// Takes over from another mirror of the same machine what no snapshot has: which routes are spread otherwise, the
    /// kernel's own key, what packets bring along. To be called before there are any routes.
    pub fn know_as(&mut self, other: &Rib) {
        self.set_algos(other.state.algos.clone());
        self.set_kernel_key(other.state.kernel_key);
        self.state.brings = other.state.brings.clone();
    }

    /// Gives the key by which flow labels are made of flows' hashes ([`Config::label_key`]), before the first [`Rib::commit`]: one that
    /// was drawn. Without one, labels tell of the key by which flows are hashed.
    pub fn set_label_key(&mut self, key: [u64; 2]) {
        self.label_key = key;
    }

    /// Gives the key by which source ports of UDP tunnels are chosen ([`Config::port_key`]): the kernel's, or one that was drawn. The next
    /// [`Rib::commit`] goes by it.
    pub fn set_port_key(&mut self, key: [u64; 2]) {
        self.state.dirty.settings |= self.port_key != key;
        self.port_key = key;
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

    /// Has `take_out` called with the number of each adjacency before it is given to another nexthop: it says what
    /// the engines counted by that number, and sets it to 0. No engine counts by it then. What numbers have counted
    /// that were not given out before is 0.
    pub fn on_passed_on(&mut self, take_out: impl Fn(u32) -> Counter + Send + Sync + 'static) {
        self.groups.adjacencies.take_out = Box::new(take_out);
    }

    /// Has `read` called with the number of each adjacency whose link is another now, or called otherwise: it says what
    /// the engines have counted by that number. They go on counting by it.
    pub fn on_renamed(&mut self, read: impl Fn(u32) -> Counter + Send + Sync + 'static) {
        self.groups.adjacencies.read = Box::new(read);
    }

    /// Has `forget` called with the counter slot of each link before it is given to another link, or to the same under
    /// another name: what it has counted is to be set to 0. No engine counts by it then. What slots have counted that
    /// were not given out before is 0.
    pub fn on_slot_passed_on(&mut self, forget: impl Fn(u32) + Send + Sync + 'static) {
        self.forget_received = Box::new(forget);
    }

    /// What was forwarded to each nexthop and through each link; `read` says what the engines have counted by a
    /// number. It never gets less, whatever comes and goes.
    pub fn sent(&self, read: impl Fn(u32) -> Counter) -> Sent {
        self.groups.adjacencies.ledger.sent(read)
    }

    /// Which links engines may use.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// The instant (`CLOCK_MONOTONIC` nanoseconds) after which engines punt everything
    /// unless it is set anew; 0 for never. Takes effect at once.
    pub fn set_deadline(&mut self, nanoseconds: u64) {
        self.config.deadline = nanoseconds;
        self.memory.store_deadline(nanoseconds);
    }

    /// Punts everything, or forwards again. Takes effect at once.
    pub fn set_hold(&mut self, hold: bool) {
        self.hold = hold;
        self.publish_config();
    }

    /// Punts what lies in several buffers, or forwards it again. Takes effect at once.
    pub fn set_one_buffer(&mut self, one_buffer: bool) {
        if self.one_buffer != one_buffer {
            self.one_buffer = one_buffer;
            self.publish_config();
        }
    }

    /// Whether anything waits for [`Rib::commit`].
    pub fn is_dirty(&self) -> bool {
        self.ports_changed
            || self.refresh
            || self.guards.is_changed()
            || !self.state.fpm.is_clean()
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
        let all = self.ports_changed || self.refresh || self.guards.is_changed();
        if dirty.nexthops.is_empty() || dirty.links || dirty.settings || all {
            return None;
        }
        let at = publish!(self);
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

    /// Publishes what follows for adjacencies, segments and groups where links have gone, gone down or lost their
    /// carrier, and where members of bonds have changed: nothing that waits to be gathered holds that up. As with [`Rib::commit_nexthops`], [`Rib::commit`] is
    /// still to be called. None when no link was lost.
    pub fn commit_links(&mut self) -> Option<Commit> {
        let start = Instant::now();
        let lost = std::mem::take(&mut self.state.dirty.lost_links);
        if lost.is_empty() {
            return None;
        }
        let changed = &self.state.dirty.changed_links;
        self.groups.adjacencies.see_links(changed, &self.state);
        let at = publish!(self);
        let silent = self.state.with_above(&lost);
        let mut adjacencies = self.groups.adjacencies.of_links(&silent);
        adjacencies.extend(self.groups.adjacencies.by_ports(&lost));
        self.groups.adjacencies.refresh(&adjacencies, &at);
        let segments = self.groups.segments.all();
        self.groups.segments.refresh(&segments, &at);
        let mut groups = self.groups.of_links(&self.state, &lost);
        let nexthops = &self.state.dirty.nexthops;
        groups.extend(self.groups.of_nexthops(&self.state, nexthops));
        for group in &groups {
            self.groups.compile(*group, &at);
        }
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
        self.state.note_fpm();
        if self.state.dirty.links {
            self.state.note_tunnels();
        }
        let dirty = std::mem::take(&mut self.state.dirty);
        let (bridges, fdb) = (&self.state.bridges, &dirty.fdb);
        self.learnt.forget(fdb, bridges, &self.memory);
        let adjacencies = &mut self.groups.adjacencies;
        adjacencies.see_links(&dirty.changed_links, &self.state);
        let metrics_changed = adjacencies.note_metrics(&self.state);
        let ports_changed = std::mem::take(&mut self.ports_changed);
        let refresh = std::mem::take(&mut self.refresh);
        if dirty.settings {
            self.publish_config();
        }
        let mut guards_change = ports_changed || self.guards.is_changed();
        let mut closes = false;
        let outgrown = self.guards.is_outgrown(&self.state);
        if dirty.links || dirty.rules || dirty.settings || guards_change || refresh || outgrown {
            closes |= self.guards.follow_rules(&self.state, &self.ports);
            self.guards.follow_filters(&self.state, &self.ports);
            guards_change |= self.guards.is_changed();
        }
        if guards_change {
            let own = self
                .links
                .iter()
                .filter(|(index, entry)| entry.index == **index);
            closes |= self
                .guards
                .follow(&self.ports, own.map(|(index, _)| *index));
        }
        if closes {
            // Zones, and what they mean on each link, cannot change at once.
            self.close_links();
            self.memory.store_ranges(&self.guards.ranges);
        }
        let everything = dirty.settings || guards_change || refresh;
        let at = publish!(self);
        let adjacencies = match everything {
            true => self.groups.adjacencies.all(),
            false => {
                let mut adjacencies = self.groups.adjacencies.of_neighbours(&dirty.neighbours);
                let changed = self.state.with_above(&dirty.changed_links);
                adjacencies.extend(self.groups.adjacencies.of_links(&changed));
                let changed = &dirty.changed_links;
                adjacencies.extend(self.groups.adjacencies.by_ports(changed));
                adjacencies.extend(self.groups.adjacencies.of_fdb(&dirty.fdb));
                adjacencies.extend(self.groups.adjacencies.of_vxlans(&dirty.tunnels));
                adjacencies.extend(self.groups.adjacencies.of_ends(&dirty.ends));
                if dirty.links || dirty.rules || metrics_changed {
                    adjacencies.extend(self.groups.adjacencies.by_tunnels());
                }
                adjacencies
            }
        };
        self.groups.adjacencies.refresh(&adjacencies, &at);
        // Addresses are sources of what is encapsulated.
        let mut segments = match everything || dirty.links {
            true => self.groups.segments.all(),
            false => self.groups.segments.full(),
        };
        if dirty.rules {
            segments.extend(self.groups.segments.with_tables());
        }
        self.groups.segments.refresh(&segments, &at);
        let groups = if everything {
            self.groups.all()
        } else {
            let mut groups = self.groups.of_neighbours(&dirty.neighbours);
            groups.extend(self.groups.of_nexthops(&self.state, &dirty.nexthops));
            groups.extend(self.groups.of_links(&self.state, &dirty.changed_links));
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
        let sources_changed = self.sources.note(&self.state)
            || dirty.links
            || dirty.rules
            || self.sources.full.is_some();
        let way_back_changed = self.way_back.note(&self.state);
        let hosts = dirty.neighbours.iter().map(|(_, ip)| *ip);
        let hosts = hosts.chain(dirty.kernel_hosts).collect();
        commit.entries = self.publish_tables(hosts, dirty.direct);
        commit.entries += self.make_segment_tables();
        if sources_changed {
            self.publish_sources();
        }
        let links = dirty.links || self.state.is_about_bridges(&dirty.fdb);
        if links || dirty.rules || closes || guards_change || refresh || way_back_changed {
            commit.entries += self.publish_links();
            // New views of links may have led to new SIDs.
            commit.entries += self.make_segment_tables();
        }
        let (bridges, fdb) = (&self.state.bridges, &dirty.fdb);
        self.learnt.learn(fdb, bridges, &self.memory);
        self.drop_unused_tables();
        let (v4, v6) = (&self.state.v4, &self.state.v6);
        self.state.generations.prune(|table, dst| match dst {
            IpNet::V4(_) => Prefix::from_net(dst).is_some_and(|p| v4.has(table, p)),
            IpNet::V6(_) => Prefix::from_net(dst).is_some_and(|p| v6.has(table, p)),
        });
        commit.full = self.is_full();
        commit.took = start.elapsed();
        commit
    }

    /// Writes the configuration. While it is not consistent nothing is chosen among several: no seed is known then,
    /// and all else does not depend on it.
    fn publish_config(&mut self) {
        let settings = &self.state.settings;
        let on = |is: bool, flag: u32| if is { flag } else { 0 };
        let mut config = Config {
            magic: MAGIC,
            flags: on(self.hold, config_flags::HOLD)
                | on(self.one_buffer, config_flags::ONE_BUFFER),
            seed: 0,
            policy4: settings.hash_policy4,
            policy6: settings.hash_policy6,
            fields4: settings.hash_fields4 as u16,
            fields6: settings.hash_fields6 as u16,
            pad: [0; 2],
            deadline: self.config.deadline,
            sip_key: [0; 4],
            sip_mid: [[0; 4]; 256],
            label_key: self.label_key,
            port_key: self.port_key,
        };
        if let Some(key) = self.state.hash_key() {
            config.flags |= config_flags::SEED_KNOWN;
            config.seed = key.number();
            config.sip_key = keyed(key);
            config.sip_mid = mid_states(key);
        }
        if config == self.config {
            return;
        }
        if self.config.magic != MAGIC {
            self.memory.change_config(&config);
            self.config = config;
            return;
        }
        let put = |flags: u32, seed: u32| {
            let word = u64::from(flags) | u64::from(seed) << 32;
            self.memory.config.words()[1].store(word, Ordering::Release);
        };
        let only_flags = Config {
            flags: config.flags,
            ..self.config
        };
        if config != only_flags {
            let closed = Config {
                flags: config.flags & !config_flags::SEED_KNOWN,
                ..config
            };
            put(closed.flags, self.config.seed);
            (self.grace)();
            self.memory.change_config(&closed);
            (self.grace)();
        }
        put(config.flags, config.seed);
        self.config = config;
    }

    /// Whether there are groups or segments that the last commit found no room for. The next one tries again, for
    /// what it gives back may be room for them.
    pub fn lacks_room(&self) -> bool {
        !self.groups.full().is_empty() || !self.groups.segments.full().is_empty()
    }

    /// What there was no room for in tables that no key of the configuration makes larger.
    pub fn without_room(&self) -> WithoutRoom {
        let (sources, places) = self.learnt.without_room();
        WithoutRoom {
            steps: self.upon.without_room + places,
            sources,
        }
    }

    fn is_full(&self) -> bool {
        !self.lacks().is_empty()
    }

    /// What there is not enough of.
    pub fn lacks(&self) -> BTreeSet<Lack> {
        let views4 = self.v4.views.iter().filter_map(|view| view.full);
        let views6 = self.v6.views.iter().filter_map(|view| view.full);
        let segments = self.groups.segments.full();
        let segments = segments.into_iter().map(|_| Lack::Sids);
        views4
            .chain(views6)
            .chain(self.groups.lacks())
            .chain(segments)
            .chain(self.sources.full)
            .collect()
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
        label_key: [0; 2],
        port_key: [0; 2],
    }
}
