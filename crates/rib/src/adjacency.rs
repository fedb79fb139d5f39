//! Nexthops resolved to bytes, and kept that way while neighbours and links change.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;

use crate::attrs::Metrics4;
use crate::counted::Ledger;
use crate::egress::Egress;
use crate::event::Link;
use crate::guards::Zones;
use crate::rules::Lookup;
use crate::segments::TableUses;
use crate::slots::Slots;
use crate::state::{FdbKey, State, TunnelKey};
use crate::tunnels::{ALL_OTHERS, is_vxlan};
use raddle_image::Counter;
use raddle_image::{
    ADJ_FORWARD, ADJ_KERNEL, ADJ_SEGMENT, ADJ_TAGGED, ADJ_TUNNEL, Adjacency, MAX_TAGS, Memory,
    Reason,
};

/// What an adjacency stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) index: u32,
    /// The neighbour; none for a direct nexthop among several, which only the kernel can resolve.
    pub(crate) neighbour: Option<IpAddr>,
    /// The route's MTU; 0 when only the link's counts.
    pub(crate) mtu: u32,
    /// Not a neighbour: `index` is the number of a segment, of which this holds one use.
    pub(crate) segment: bool,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    refs: u32,
    /// What the image holds.
    now: Adjacency,
    hangs: Hangs,
}

/// What an adjacency hangs on, beside its link and its neighbour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Hangs {
    /// The entry of a bridge's FDB, whether it is there or not.
    fdb: Option<FdbKey>,
    /// The port of a bridge that it leads to, where frames leave by that. It may become another bridge's, of which this one is not told.
    port: Option<u32>,
    /// What a VXLAN knows of the MAC address; or if that is nothing, of all others.
    vxlan: Option<TunnelKey>,
    /// It leaves by a tunnel: it hangs on addresses, rules, and on what routes say.
    by_tunnel: bool,
    /// The ends of the tunnel: it hangs on what the kernel has learnt of the way.
    ends: Option<Ends>,
    /// Where the outer packet is looked up.
    lookup: Option<Lookup>,
}

/// This end of a tunnel and the other one.
type Ends = (Ipv4Addr, Ipv4Addr);

/// Says what was counted by a number.
pub(crate) type Count = Box<dyn Fn(u32) -> Counter + Send + Sync>;

/// All adjacencies of an image.
pub(crate) struct Adjacencies {
    slots: Slots,
    entries: HashMap<u32, Entry>,
    by_key: HashMap<Key, u32>,
    by_neighbour: HashMap<(u32, IpAddr), Vec<u32>>,
    /// Those that hang on an entry of an FDB. Most entries have none, and are looked up here when they change.
    by_fdb: HashMap<FdbKey, Vec<u32>>,
    /// The same of VXLANs.
    by_vxlan: HashMap<TunnelKey, Vec<u32>>,
    /// Those that leave by tunnels.
    by_tunnel: BTreeSet<u32>,
    /// The same by the tunnels' ends.
    by_ends: BTreeMap<Ends, Vec<u32>>,
    /// Views that outer packets are looked up in.
    pub(crate) tables: TableUses,
    /// What routes said that tunnels go by.
    saw_metrics: Metrics4,
    pub(crate) ledger: Ledger,
    /// Sets that to 0, too: the number is given to another now.
    pub(crate) take_out: Count,
    /// Leaves it as it is.
    pub(crate) read: Count,
}

impl std::fmt::Debug for Adjacencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adjacencies")
            .field("entries", &self.entries)
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}

/// Which links may be used, and for what. Decided by the daemon: the kernel does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Links whose packets engines forward.
    pub enabled: BTreeSet<u32>,
    /// Links that engines may send through.
    pub out: BTreeSet<u32>,
}

impl Adjacencies {
    pub(crate) fn new(capacity: usize) -> Adjacencies {
        Adjacencies {
            slots: Slots::new(0, capacity),
            entries: HashMap::new(),
            by_key: HashMap::new(),
            by_neighbour: HashMap::new(),
            by_fdb: HashMap::new(),
            by_vxlan: HashMap::new(),
            by_tunnel: BTreeSet::new(),
            by_ends: BTreeMap::new(),
            tables: TableUses::default(),
            saw_metrics: Metrics4::default(),
            ledger: Ledger::default(),
            take_out: Box::new(|_| Counter::default()),
            read: Box::new(|_| Counter::default()),
        }
    }

    /// The number of the adjacency for `key`, if it is in use.
    pub(crate) fn known(&self, key: &Key) -> Option<u32> {
        self.by_key.get(key).copied()
    }

    /// The number of the adjacency for `key`, with one use more. None when there is no room.
    pub(crate) fn take(&mut self, key: Key, at: &Publish<'_>) -> Option<u32> {
        if let Some(&number) = self.by_key.get(&key) {
            if let Some(entry) = self.entries.get_mut(&number) {
                entry.refs += 1;
            }
            return Some(number);
        }
        let number = self.slots.take(at.grace)?;
        self.ledger.give(number, key, at.state, &self.take_out);
        at.memory
            .adjacencies_used
            .fetch_max(number as usize + 1, Ordering::Release);
        let (now, hangs) = resolve(at, &self.tables, &key);
        at.memory.store_adjacency(number, &now);
        self.hang(number, &hangs);
        let entry = Entry {
            key,
            refs: 1,
            now,
            hangs,
        };
        self.entries.insert(number, entry);
        self.by_key.insert(key, number);
        if let Some(neighbour) = key.neighbour {
            self.by_neighbour
                .entry((key.index, neighbour))
                .or_default()
                .push(number);
        }
        Some(number)
    }

    /// Notes what an adjacency hangs on.
    fn hang(&mut self, number: u32, on: &Hangs) {
        if let Some(fdb) = on.fdb {
            self.by_fdb.entry(fdb).or_default().push(number);
        }
        for key in on.vxlan_keys() {
            self.by_vxlan.entry(key).or_default().push(number);
        }
        if on.by_tunnel {
            self.by_tunnel.insert(number);
        }
        if let Some(ends) = on.ends {
            self.by_ends.entry(ends).or_default().push(number);
        }
        self.tables.want(on.lookup.clone());
    }

    /// Forgets it.
    fn unhang(&mut self, number: u32, on: &Hangs) {
        if let Some(fdb) = on.fdb {
            take_from(&mut self.by_fdb, &fdb, number);
        }
        for key in on.vxlan_keys() {
            take_from(&mut self.by_vxlan, &key, number);
        }
        if on.by_tunnel {
            self.by_tunnel.remove(&number);
        }
        if let Some(ends) = on.ends
            && let Some(list) = self.by_ends.get_mut(&ends)
        {
            list.retain(|n| *n != number);
            if list.is_empty() {
                self.by_ends.remove(&ends);
            }
        }
        self.tables.want_no_more(on.lookup.as_ref());
    }

    /// One use less. The segment that it held one use of, if it led to one and that was the last.
    #[must_use = "the segment is to be given back, too"]
    pub(crate) fn give_back(&mut self, number: u32, memory: &Memory) -> Option<u32> {
        let entry = self.entries.get_mut(&number)?;
        entry.refs -= 1;
        if entry.refs > 0 {
            return None;
        }
        let entry = self.entries.remove(&number)?;
        let key = entry.key;
        self.by_key.remove(&key);
        if let Some(neighbour) = key.neighbour {
            take_from(&mut self.by_neighbour, &(key.index, neighbour), number);
        }
        self.unhang(number, &entry.hangs);
        // A reader may still come here by a group that it read before: the kernel takes over. A segment's
        // record says that by itself, and knows whether it is the kernel's at all.
        if !key.segment {
            let gone = Adjacency {
                reason: Reason::Unresolved as u8,
                ..Adjacency::default()
            };
            memory.store_adjacency_word(number, &gone);
        }
        self.slots.give_back(number);
        key.segment.then_some(key.index)
    }

    /// The adjacencies of these neighbours.
    pub(crate) fn of_neighbours(&self, neighbours: &HashSet<(u32, IpAddr)>) -> Vec<u32> {
        neighbours
            .iter()
            .filter_map(|key| self.by_neighbour.get(key))
            .flatten()
            .copied()
            .collect()
    }

    /// The adjacencies that hang on these entries of FDBs. Costs one look-up for each entry.
    pub(crate) fn of_fdb<'a>(
        &'a self,
        entries: &'a HashSet<FdbKey>,
    ) -> impl Iterator<Item = u32> + 'a {
        let lists = entries.iter().filter_map(|key| self.by_fdb.get(key));
        lists.flatten().copied()
    }

    /// The adjacencies that hang on what VXLANs know of these MAC addresses.
    pub(crate) fn of_vxlans<'a>(
        &'a self,
        keys: &'a HashSet<TunnelKey>,
    ) -> impl Iterator<Item = u32> + 'a {
        let lists = keys.iter().filter_map(|key| self.by_vxlan.get(key));
        lists.flatten().copied()
    }

    /// The adjacencies that leave by tunnels.
    pub(crate) fn by_tunnels(&self) -> Vec<u32> {
        self.by_tunnel.iter().copied().collect()
    }

    /// The adjacencies that leave between these ends of tunnels.
    pub(crate) fn of_ends<'a>(&'a self, ends: &'a HashSet<Ends>) -> impl Iterator<Item = u32> + 'a {
        let lists = ends.iter().filter_map(|ends| self.by_ends.get(ends));
        lists.flatten().copied()
    }

    /// The ends of tunnels that adjacencies leave between, each once and in their order.
    pub(crate) fn ends(&self) -> impl Iterator<Item = Ends> + '_ {
        self.by_ends.keys().copied()
    }

    /// Whether what routes say that tunnels go by is not what it was before.
    pub(crate) fn note_metrics(&mut self, state: &State) -> bool {
        let now = state.attrs.metrics4();
        std::mem::replace(&mut self.saw_metrics, now) != now
    }

    /// What an adjacency stands for.
    pub(crate) fn key(&self, number: u32) -> Option<Key> {
        self.entries.get(&number).map(|entry| entry.key)
    }

    /// The adjacencies on these links, whatever is below those.
    pub(crate) fn of_links(&self, links: &BTreeSet<u32>) -> Vec<u32> {
        let entries = self.entries.iter();
        let on = entries.filter(|(_, e)| !e.key.segment && links.contains(&e.key.index));
        on.map(|(number, _)| *number).collect()
    }

    /// The adjacencies that leave by one of these links as a port of a bridge, whatever bridge that is of now.
    pub(crate) fn by_ports<'a>(
        &'a self,
        links: &'a BTreeSet<u32>,
    ) -> impl Iterator<Item = u32> + 'a {
        let passes = |entry: &Entry| entry.hangs.port.is_some_and(|p| links.contains(&p));
        let entries = self.entries.iter().filter(move |(_, e)| passes(e));
        entries.map(|(number, _)| *number)
    }

    /// Learns what these links are called now: what was counted until now is that of the names that they had.
    pub(crate) fn see_links(&mut self, changed: &BTreeSet<u32>, state: &State) {
        let mut ledger = std::mem::take(&mut self.ledger);
        let numbers_of = |index| self.of_links(&BTreeSet::from([index]));
        ledger.see_links(changed, state, numbers_of, &self.read);
        self.ledger = ledger;
    }

    /// All adjacencies.
    pub(crate) fn all(&self) -> Vec<u32> {
        self.entries.keys().copied().collect()
    }

    /// Brings these adjacencies up to date in the image, those as well that [`Memory::punt_link`] has punted.
    pub(crate) fn refresh(&mut self, numbers: &[u32], at: &Publish<'_>) {
        let mut rewrites = Vec::new();
        // Once each: what is held would be taken for written the second time.
        let numbers: BTreeSet<u32> = numbers.iter().copied().collect();
        for number in numbers {
            let Some(entry) = self.entries.get(&number) else {
                continue;
            };
            let (wanted, hangs) = resolve(at, &self.tables, &entry.key);
            if hangs != entry.hangs {
                let before = entry.hangs.clone();
                self.unhang(number, &before);
                self.hang(number, &hangs);
            }
            let Some(entry) = self.entries.get_mut(&number) else {
                continue;
            };
            entry.hangs = hangs;
            if wanted == entry.now && at.memory.adjacency_word(number) == wanted.first_word() {
                continue;
            }
            let same_bytes = Adjacency {
                state: wanted.state,
                reason: wanted.reason,
                zone: wanted.zone,
                index: wanted.index,
                tags: wanted.tags,
                ..entry.now
            } == wanted;
            if wanted.state == ADJ_KERNEL || same_bytes {
                at.memory.store_adjacency_word(number, &wanted);
                // The bytes of the image stay as they were until they are written anew.
                entry.now = Adjacency {
                    state: wanted.state,
                    reason: wanted.reason,
                    zone: wanted.zone,
                    index: wanted.index,
                    tags: wanted.tags,
                    ..entry.now
                };
            } else {
                let held = Adjacency {
                    state: ADJ_KERNEL,
                    reason: Reason::Unresolved as u8,
                    tags: 0,
                    ..entry.now
                };
                at.memory.store_adjacency_word(number, &held);
                entry.now = wanted;
                rewrites.push(number);
            }
        }
        if !rewrites.is_empty() {
            // Until the bytes are changed no reader may be between its look at the state and
            // its look at the bytes; the kernel forwards meanwhile.
            (at.grace)();
            for number in rewrites {
                at.memory
                    .store_adjacency(number, &self.entries[&number].now);
            }
        }
    }

    pub(crate) fn used(&self) -> usize {
        self.slots.used()
    }

    /// Number, link, neighbour and state of all adjacencies.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Key, &Adjacency)> {
        self.entries
            .iter()
            .map(|(number, entry)| (*number, entry.key, &entry.now))
    }
}

impl Hangs {
    /// What of the FDB of a VXLAN it hangs on.
    fn vxlan_keys(&self) -> impl Iterator<Item = TunnelKey> {
        let keys = self.vxlan.map(|(index, mac)| {
            let others = Some(ALL_OTHERS).filter(|others| *others != mac);
            [Some(mac), others].map(|mac| mac.map(|mac| (index, mac)))
        });
        keys.into_iter().flatten().flatten()
    }
}

/// Takes a number out of a list, and the list away that is empty then.
fn take_from<K: Eq + Hash>(lists: &mut HashMap<K, Vec<u32>>, key: &K, number: u32) {
    if let Some(list) = lists.get_mut(key) {
        list.retain(|n| *n != number);
        if list.is_empty() {
            lists.remove(key);
        }
    }
}

/// What compiling needs to know and where it writes.
pub(crate) struct Publish<'a> {
    pub(crate) state: &'a State,
    pub(crate) ports: &'a Ports,
    pub(crate) zones: &'a Zones,
    pub(crate) memory: &'a Memory,
    pub(crate) grace: &'a dyn Fn(),
}

/// Resolves a nexthop to bytes; and says what that hangs on.
///
/// 0. A behaviour or an encapsulation: its segment says what becomes of the packet.
/// 1. Its link must exist, be up with carrier, and be allowed as an out-link. What the kernel still sends by a link without carrier is
///    lost, and it may know better.
/// 2. A tunnel whose packets have the same end all needs no more: [`by_tunnel`].
/// 3. Any other must be Ethernet, and have a MAC address.
/// 4. Its neighbour must be valid and have a MAC address.
/// 5. Frames to that leave as [`State::egress`] says: by a link that is allowed as an out-link, too, and by a port of a bridge that is.
///    (What else is between need not be.) If that is a VXLAN, they have no tags: [`by_tunnel`].
/// 6. With tags by a bond that hashes what is behind them: by members that [`State::by_bond`] knows.
/// 7. What is longer than [`PathMtu::engine`] goes to the kernel.
///
/// Where several of these do not hold, what does not hang on the neighbour is the reason.
fn resolve(at: &Publish<'_>, tables: &TableUses, key: &Key) -> (Adjacency, Hangs) {
    let (state, ports) = (at.state, at.ports);
    if key.segment {
        let segment = Adjacency {
            index: key.index,
            state: ADJ_SEGMENT,
            ..Adjacency::default()
        };
        return (segment, Hangs::default());
    }
    let link = state
        .links
        .get(&key.index)
        .filter(|link| link.is_up() && link.has_carrier() && ports.out.contains(&link.index));
    let Some(link) = link else {
        return (kernel(Reason::OutLink), Hangs::default());
    };
    let adjacency = Adjacency {
        index: key.index,
        state: ADJ_FORWARD,
        zone: at.zones.of(key.index),
        mtu: PathMtu::of(state, link, key.mtu, None).engine,
        ..Adjacency::default()
    };
    if state.has_one_end(key.index) {
        let hangs = Hangs::default();
        return by_tunnel((state, tables), link, [0; 6], adjacency, hangs);
    }
    let Some(src_mac) = link.mac.filter(|_| link.is_ethernet()) else {
        return (kernel(Reason::OutLink), Hangs::default());
    };
    let neighbour = key
        .neighbour
        .and_then(|dst| state.neighbour_at(key.index, dst));
    let mac = neighbour.filter(|n| n.is_valid()).and_then(|n| n.mac);
    let (fdb, egress) = state.egress(link, mac);
    let hangs = Hangs {
        fdb,
        port: egress.as_ref().ok().and_then(|egress| egress.port),
        ..Hangs::default()
    };
    let egress = match egress {
        Ok(egress) if egress.leaves_by_any_of(&ports.out) => egress,
        Ok(_) => return (kernel(Reason::OutLink), hangs),
        Err(reason) => return (kernel(reason), hangs),
    };
    let Some(dst_mac) = mac else {
        return (kernel(Reason::Unresolved), hangs);
    };
    let (members, egress) = match state.by_bond(&egress, (dst_mac, src_mac)) {
        Ok(Some(members)) => {
            let room = state.room_of_members(&members, egress.tags.len());
            let room = egress.room.min(room);
            (Some(members), Egress { room, ..egress })
        }
        Ok(None) => (None, egress),
        Err(reason) => return (kernel(reason), hangs),
    };
    let adjacency = Adjacency {
        dst_mac,
        src_mac,
        mtu: PathMtu::of(state, link, key.mtu, Some(&egress)).engine,
        ..adjacency
    };
    if let Some(vxlan) = state.links.get(&egress.lower).filter(|link| is_vxlan(link)) {
        return match egress.tags.is_empty() {
            true => by_tunnel((state, tables), vxlan, dst_mac, adjacency, hangs),
            false => (kernel(Reason::OutLink), hangs),
        };
    }
    if egress.lower == key.index {
        return (adjacency, hangs);
    }
    let mut tag = [0; MAX_TAGS];
    for (to, vlan) in tag.iter_mut().zip(&egress.tags) {
        *to = vlan.tag();
    }
    let tagged = Adjacency {
        state: ADJ_TAGGED,
        tags: egress.tags.len() as u8,
        lower: egress.lower,
        tag,
        ..adjacency
    };
    let tagged = match members {
        Some(members) => tagged.by_members(members),
        None => tagged,
    };
    (tagged, hangs)
}

fn kernel(reason: Reason) -> Adjacency {
    Adjacency {
        reason: reason as u8,
        ..Adjacency::default()
    }
}

/// What leaves by a tunnel, as a VXLAN in frames to this MAC address: put into what [`State::outer`] says. That is the kernel's where it
/// says nothing, where outer packets are looked up by what engines do not look at, and where there is no room for another table.
fn by_tunnel(
    (state, tables): (&State, &TableUses),
    tunnel: &Link,
    mac: [u8; 6],
    adjacency: Adjacency,
    hangs: Hangs,
) -> (Adjacency, Hangs) {
    let outer = state.outer(tunnel, mac);
    let hangs = Hangs {
        vxlan: is_vxlan(tunnel).then_some((tunnel.index, mac)),
        by_tunnel: true,
        ends: state.outer_ends(tunnel, mac),
        lookup: outer.as_ref().and_then(|outer| outer.lookup.clone()),
        ..hangs
    };
    let table = hangs.lookup.as_ref().map(|lookup| tables.of(lookup));
    match (outer, table) {
        (Some(outer), Some(Ok(lower))) => {
            let mtu = outer.mtu.unwrap_or(adjacency.mtu).min(adjacency.mtu);
            let adjacency = Adjacency {
                state: ADJ_TUNNEL,
                mtu,
                lower,
                tunnel: outer.tunnel,
                ..adjacency
            };
            (adjacency, hangs)
        }
        (_, Some(Err(reason))) => (kernel(reason), hangs),
        (_, None) | (None, _) => (kernel(Reason::OutLink), hangs),
    }
}

/// How long packets may be that are forwarded by a path: from the IP header on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// What the kernel forwards of IPv4 without fragmenting or refusing it.
    pub v4: u32,
    /// The same of IPv6.
    pub v6: u32,
    /// Set where the kernel may have learnt a smaller MTU, and keeps to that: what is no longer than this is
    /// forwarded all the same.
    pub learnt: Option<u32>,
    /// What engines forward themselves, of both families.
    pub engine: u32,
}

impl PathMtu {
    /// Of a path over this link, on a route with this MTU (0 where it has none).
    ///
    /// 1. IPv4: the route's MTU where there is one, even a larger one, else the link's
    ///    (`ip_dst_mtu_maybe_forward`).
    /// 2. IPv6: the least of the link's MTU for IPv6 (the link's own where that is not known), but not less
    ///    than 1280, and the route's where there is one (`ip6_forward`, then `ip6_finish_output`).
    /// 3. With `ip_forward_use_pmtu` the kernel keeps to path MTUs that it has learnt from ICMP errors. (Of IPv6 it always
    ///    does, and these are not followed: [`crate::event::KernelHosts`].)
    /// 4. Engines: the least of all of these, and the room that there is on the way down from the link ([`Egress::room`]). One
    ///    adjacency serves both families, so both keep to it.
    pub(crate) fn of(state: &State, link: &Link, route: u32, egress: Option<&Egress>) -> PathMtu {
        let mtu6 = state.devices.get(&link.index).map_or(0, |d| d.mtu6);
        let learnt = least_learnt_mtu(state);
        let least = |of: &[u32], most: u32| {
            let set = of.iter().copied().filter(|mtu| *mtu != 0);
            set.fold(most, u32::min)
        };
        let link6 = if mtu6 == 0 { link.mtu } else { mtu6 };
        PathMtu {
            v4: if route == 0 { link.mtu } else { route },
            v6: least(&[route], link6.max(IPV6_MIN_MTU)),
            learnt: (learnt != 0).then_some(learnt),
            engine: least(
                &[route, mtu6, learnt],
                egress.map_or(link.mtu, |egress| egress.room.min(link.mtu)),
            ),
        }
    }
}

/// What every IPv6 link takes (RFC 8200, section 5).
const IPV6_MIN_MTU: u32 = 1280;

/// What every path is sure to take where the kernel forwards by path MTUs that it has learnt
/// (`ip_dst_mtu_maybe_forward`); 0 where it does not. It learns none below `min_pmtu`
/// (`__ip_rt_update_pmtu`), and none below 68 where that cannot be read.
fn least_learnt_mtu(state: &State) -> u32 {
    match state.settings.forward_use_pmtu {
        true => state.settings.min_pmtu.max(68),
        false => 0,
    }
}
