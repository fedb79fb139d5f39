//! Nexthops resolved to bytes, and kept that way while neighbours and links change.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use crate::counted::Ledger;
use crate::event::Link;
use crate::guards::Zones;
use crate::slots::Slots;
use crate::state::State;
use crate::vlan::{Below, below};
use raddle_image::Counter;
use raddle_image::{
    ADJ_FORWARD, ADJ_KERNEL, ADJ_SEGMENT, ADJ_TAGGED, Adjacency, MAX_TAGS, Memory, Reason, TAG,
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
}

/// Says what was counted by a number.
pub(crate) type Count = Box<dyn Fn(u32) -> Counter + Send + Sync>;

/// All adjacencies of an image.
pub(crate) struct Adjacencies {
    slots: Slots,
    entries: HashMap<u32, Entry>,
    by_key: HashMap<Key, u32>,
    by_neighbour: HashMap<(u32, IpAddr), Vec<u32>>,
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
        let now = resolve(at, &key);
        at.memory.store_adjacency(number, &now);
        let entry = Entry { key, refs: 1, now };
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

    /// One use less. The segment that it held one use of, if it led to one and that was the last.
    #[must_use = "the segment is to be given back, too"]
    pub(crate) fn give_back(&mut self, number: u32, memory: &Memory) -> Option<u32> {
        let entry = self.entries.get_mut(&number)?;
        entry.refs -= 1;
        if entry.refs > 0 {
            return None;
        }
        let key = entry.key;
        self.entries.remove(&number);
        self.by_key.remove(&key);
        if let Some(neighbour) = key.neighbour
            && let Some(list) = self.by_neighbour.get_mut(&(key.index, neighbour))
        {
            list.retain(|n| *n != number);
            if list.is_empty() {
                self.by_neighbour.remove(&(key.index, neighbour));
            }
        }
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
        for &number in numbers {
            let Some(entry) = self.entries.get_mut(&number) else {
                continue;
            };
            let wanted = resolve(at, &entry.key);
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

/// What compiling needs to know and where it writes.
pub(crate) struct Publish<'a> {
    pub(crate) state: &'a State,
    pub(crate) ports: &'a Ports,
    pub(crate) zones: &'a Zones,
    pub(crate) memory: &'a Memory,
    pub(crate) grace: &'a dyn Fn(),
}

/// Resolves a nexthop to bytes.
///
/// 0. A behaviour or an encapsulation: its segment says what becomes of the packet.
/// 1. Its link must exist, be up with carrier, be Ethernet, have a MAC address, and be allowed as an out-link. What
///    the kernel still sends by a link without carrier is lost, and it may know better.
/// 2. Of a VLAN all of this holds for every VLAN on the way, and for the link below them, but that VLANs on the way need not be
///    allowed; see [`State::passage`]. Its frames leave by that link, with the tags in them.
/// 3. Its neighbour must be valid and have a MAC address.
/// 4. What is longer than [`PathMtu::engine`] goes to the kernel.
fn resolve(at: &Publish<'_>, key: &Key) -> Adjacency {
    let (state, ports) = (at.state, at.ports);
    let kernel = |reason: Reason| Adjacency {
        reason: reason as u8,
        ..Adjacency::default()
    };
    if key.segment {
        return Adjacency {
            index: key.index,
            state: ADJ_SEGMENT,
            ..Adjacency::default()
        };
    }
    let link = state
        .links
        .get(&key.index)
        .filter(|link| link.is_up() && link.has_carrier() && link.is_ethernet());
    let Some((link, src_mac)) = link.and_then(|link| Some((link, link.mac?))) else {
        return kernel(Reason::OutLink);
    };
    if !ports.out.contains(&key.index) {
        return kernel(Reason::OutLink);
    }
    let way = match link.is_vlan() {
        false => None,
        true => match state.passage(link) {
            Some(below) if ports.out.contains(&below.lower) => Some(below),
            _ => return kernel(Reason::OutLink),
        },
    };
    let neighbour = key
        .neighbour
        .and_then(|dst| state.neighbour_at(key.index, dst));
    let Some(dst_mac) = neighbour.filter(|n| n.is_valid()).and_then(|n| n.mac) else {
        return kernel(Reason::Unresolved);
    };
    let adjacency = Adjacency {
        index: key.index,
        state: ADJ_FORWARD,
        zone: at.zones.of(key.index),
        dst_mac,
        src_mac,
        mtu: PathMtu::of(state, link, key.mtu).engine,
        ..Adjacency::default()
    };
    let Some(below) = way else {
        return adjacency;
    };
    let mut tag = [0; MAX_TAGS];
    for (to, vlan) in tag.iter_mut().zip(below.tags()) {
        *to = vlan.tag();
    }
    Adjacency {
        state: ADJ_TAGGED,
        tags: below.through.len() as u8,
        lower: below.lower,
        tag,
        ..adjacency
    }
}

impl State {
    /// What is below a VLAN, if an engine may send by it:
    ///
    /// 1. It is a VLAN that engines know: see [`below`].
    /// 2. All VLANs on the way and the link below them are up and have carrier, and that link is Ethernet.
    /// 3. No VLAN on the way gives its tags priorities by those of packets (`egress-qos-map`): the tags of an adjacency are the
    ///    same for all.
    pub(crate) fn passage(&self, link: &Link) -> Option<Below> {
        let by_index = |index: u32| self.links.get(&index);
        let below = below(link, by_index)?;
        let mut through = below.through.iter().map(|(index, _)| *index);
        let lives = |index: u32| by_index(index).filter(|link| link.is_up() && link.has_carrier());
        let passes = |index: u32| {
            let vlan = lives(index).and_then(|link| link.vlan);
            vlan.is_some_and(|vlan| !vlan.egress_qos)
        };
        let lower = lives(below.lower).filter(|lower| lower.is_ethernet());
        (through.all(passes) && lower.is_some()).then_some(below)
    }

    /// These links, and the VLANs upon them that engines know: what changes of a link changes how these send.
    pub(crate) fn with_above(&self, links: &BTreeSet<u32>) -> BTreeSet<u32> {
        let mut all = links.clone();
        if all.is_empty() {
            return all;
        }
        for _ in 0..MAX_TAGS {
            let upon = |link: &&Link| {
                let is_upon = link.lower.is_some_and(|lower| all.contains(&lower));
                is_upon && link.is_vlan() && !all.contains(&link.index)
            };
            let above: Vec<u32> = self
                .links
                .values()
                .filter(upon)
                .map(|link| link.index)
                .collect();
            if above.is_empty() {
                break;
            }
            all.extend(above);
        }
        all
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
    /// 4. Engines: the least of all of these. One adjacency serves both families, so both keep to it. Of a VLAN also the MTU of
    ///    each VLAN on the way; and what its frame has room for on the link below them beside the tags: that is its MTU, and
    ///    one tag more (`xdp_ok_fwd_dev`, which refuses what is longer).
    pub(crate) fn of(state: &State, link: &Link, route: u32) -> PathMtu {
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
                link.mtu.min(frame_room(state, link)),
            ),
        }
    }
}

/// The longest packet of a VLAN that engines may send through all that is below it; no limit of other links.
fn frame_room(state: &State, link: &Link) -> u32 {
    let by_index = |index: u32| state.links.get(&index);
    let Some(below) = below(link, by_index) else {
        return u32::MAX;
    };
    let mtu = |index: u32| by_index(index).map_or(0, |link| link.mtu);
    let tags = TAG as u32 * below.through.len() as u32;
    let lower = mtu(below.lower).saturating_add(TAG as u32);
    let through = below.through.iter().map(|(index, _)| mtu(*index));
    through.fold(lower.saturating_sub(tags), u32::min)
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
