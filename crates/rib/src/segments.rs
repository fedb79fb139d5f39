//! Behaviours of SIDs and encapsulations in the image, each kept once.
//!
//! A SID's segment is its route's, so that it counts for itself, and tables name it without a group in between
//! ([`image::segment_value`]). Encapsulations that are equal share one, which counts for the segment list.

mod build;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ipnet::IpNet;

use crate::adjacency::Publish;
use crate::rules::{Lookup, TABLE_LOCAL};
use crate::seg6::{Behaviour, Seg6, TableRef};
use crate::slots::{Runs, Slots};
use build::{Around, Built, build};
pub(crate) use build::{kernel_only, salt};
use raddle_image as image;
use raddle_image::{
    Capacity, LINK_TABLE, Memory, Reason, SEGMENT_VALUE, Segment, segment_flags, segment_kind,
};

/// Whose a segment is. Two of different owners are never one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A route's: that of a SID.
    Route {
        /// Table.
        table: u32,
        /// The SID, or the prefix of SIDs.
        dst: IpNet,
        /// Metric.
        metric: u32,
        /// Gateway of the nexthop, of which there may be several.
        gateway: Option<IpAddr>,
        /// Another one after each replacement of the route: what it counted is gone then, as in the
        /// kernel.
        generation: u32,
    },
    /// A nexthop object's, whatever routes lead there.
    Object {
        /// Its id.
        id: u32,
    },
    /// Of all routes that encapsulate in the same way.
    Shared,
}

/// What a segment of the image stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SegmentUse {
    /// The behaviour or encapsulation.
    pub what: Seg6,
    /// Whose it is.
    pub owner: Owner,
    /// The nexthop's link, by which the outer source is chosen; 0 for none.
    pub index: u32,
    /// The route's hop limit, which packets get that are put around IPv4; 0 for none: the link's.
    pub hop_limit: u8,
    /// Raddle's own: the kernel does not have it.
    pub own: bool,
}

impl SegmentUse {
    /// Whether it is an IPv6 route's own.
    pub(crate) fn is_routed(&self) -> bool {
        matches!(
            self.owner,
            Owner::Route {
                dst: IpNet::V6(_),
                ..
            }
        )
    }

    /// The link without which the route that it is the own of has no nexthop, if it has no other; raddle's need none.
    pub(crate) fn needs_link(&self) -> Option<u32> {
        (self.is_routed() && !self.own).then_some(self.index)
    }

    /// The tables, one for each family, that what comes out is looked up in, where they are not the
    /// link's.
    fn tables(&self) -> (Option<SidTable>, Option<SidTable>) {
        let Seg6::Sid(sid) = &self.what else {
            return (None, None);
        };
        let of = |table: TableRef| {
            Some(SidTable {
                number: table.number(),
                after_local: !self.own && matches!(table, TableRef::Vrf(_)),
            })
        };
        match sid.behaviour {
            Behaviour::T { table } => (None, of(TableRef::Table(table))),
            Behaviour::Dt6 { table } => (None, of(table)),
            Behaviour::Dt4 { table } => (of(table), None),
            Behaviour::Dt46 { table } => (of(table), of(table)),
            _ => (None, None),
        }
    }

    /// How packets of a family that come out are looked up, where that is not as the link's.
    pub(crate) fn lookup(&self, family: u8) -> Option<Lookup> {
        let (table4, table6) = self.tables();
        let table = if family == 4 { table4 } else { table6 };
        table.map(SidTable::lookup)
    }
}

/// The table that a SID names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SidTable {
    number: u32,
    /// A VRF's, into which packets come by the rules: table local comes first (`end_dt_vrf_core`, and then as for any packet that comes in
    /// by the VRF).
    after_local: bool,
}

impl SidTable {
    /// Where packets are looked up.
    pub(crate) fn lookup(self) -> Lookup {
        let local = self.after_local.then_some(TABLE_LOCAL);
        Lookup::plain(local.into_iter().chain([self.number]))
    }
}

/// What a segment of the image stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Meaning {
    /// SRv6.
    Srv6(Arc<SegmentUse>),
    /// The tunnels that end at an address of this machine; the kernel's where there are none that engines know.
    TunnelEnds(Ipv4Addr),
}

impl Meaning {
    /// [`SegmentUse::lookup`] of both families.
    fn lookups(&self) -> [Option<Lookup>; 2] {
        match self {
            Meaning::Srv6(what) => [4, 6].map(|family| what.lookup(family)),
            Meaning::TunnelEnds(_) => [None, None],
        }
    }
}

/// Views that are wanted beside those of links: by how many, and their number in the image once there is one.
#[derive(Debug, Default)]
pub(crate) struct TableUses {
    wanted: BTreeMap<Lookup, u32>,
    /// None where there is no room for another.
    known: HashMap<Lookup, Option<u32>>,
}

impl TableUses {
    pub(crate) fn of(&self, lookup: &Lookup) -> Result<u32, Reason> {
        let id = self.known.get(lookup).copied().flatten();
        id.ok_or(Reason::ImageFull)
    }

    pub(crate) fn want(&mut self, lookup: Option<Lookup>) {
        if let Some(lookup) = lookup {
            *self.wanted.entry(lookup).or_default() += 1;
        }
    }

    pub(crate) fn want_no_more(&mut self, lookup: Option<&Lookup>) {
        if let Some(lookup) = lookup
            && let Some(uses) = self.wanted.get_mut(lookup)
        {
            *uses -= 1;
            if *uses == 0 {
                self.wanted.remove(lookup);
            }
        }
    }

    /// Those that are wanted, and were not asked for yet.
    pub(crate) fn missing(&self) -> Vec<Lookup> {
        let unknown = |lookup: &&Lookup| !self.known.contains_key(*lookup);
        self.wanted.keys().filter(unknown).cloned().collect()
    }

    /// The number of a view; none when there is no room for it.
    pub(crate) fn set(&mut self, lookup: Lookup, id: Option<u32>) {
        self.known.insert(lookup, id);
    }

    /// Asks again for views that there was no room for, and forgets those that nobody wants.
    pub(crate) fn tidy(&mut self) {
        let wanted = &self.wanted;
        self.known
            .retain(|lookup, id| id.is_some() && wanted.contains_key(lookup));
    }

    /// The views in use.
    pub(crate) fn views(&self) -> impl Iterator<Item = u32> {
        self.known.values().copied().flatten()
    }
}

/// Views of single tables, of both families.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) v4: TableUses,
    pub(crate) v6: TableUses,
}

impl Tables {
    fn of4(&self, lookup: Option<&Lookup>) -> Result<u32, Reason> {
        lookup.map_or(Ok(LINK_TABLE), |lookup| self.v4.of(lookup))
    }

    fn of6(&self, lookup: Option<&Lookup>) -> Result<u32, Reason> {
        lookup.map_or(Ok(LINK_TABLE), |lookup| self.v6.of(lookup))
    }
}

#[derive(Debug)]
struct Entry {
    what: Meaning,
    refs: u32,
    /// What the image holds.
    now: Segment,
    /// The template, and where it is.
    run: Option<Run>,
}

/// First word and words of a template.
type Run = (u32, Vec<u64>);

/// Called with the number of a segment before it is used for something new.
type OnNew = Box<dyn Fn(u32) + Send + Sync>;

/// All segments of an image.
pub(crate) struct Segments {
    slots: Slots,
    runs: Runs,
    entries: HashMap<u32, Entry>,
    by_use: HashMap<Meaning, u32>,
    pub(crate) tables: Tables,
    /// Those whose template found no room.
    full: HashSet<u32>,
    pub(crate) on_new: OnNew,
}

impl std::fmt::Debug for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segments")
            .field("entries", &self.entries)
            .field("tables", &self.tables)
            .finish_non_exhaustive()
    }
}

impl Segments {
    pub(crate) fn new(capacity: &Capacity) -> Segments {
        Segments {
            slots: Slots::new(0, capacity.segments.min(SEGMENT_VALUE as usize)),
            runs: Runs::new(capacity.templates),
            entries: HashMap::new(),
            by_use: HashMap::new(),
            tables: Tables::default(),
            full: HashSet::new(),
            on_new: Box::new(|_| ()),
        }
    }

    /// The number of the segment for `what`, with one use more. None when there is no room.
    pub(crate) fn take(&mut self, what: &Meaning, at: &Publish<'_>) -> Option<u32> {
        if let Some(&number) = self.by_use.get(what) {
            if let Some(entry) = self.entries.get_mut(&number) {
                entry.refs += 1;
            }
            return Some(number);
        }
        let number = self.slots.take(at.grace)?;
        (self.on_new)(number);
        let [lookup4, lookup6] = what.lookups();
        self.tables.v4.want(lookup4);
        self.tables.v6.want(lookup6);
        let entry = Entry {
            what: what.clone(),
            refs: 1,
            now: Segment::default(),
            run: None,
        };
        self.entries.insert(number, entry);
        self.by_use.insert(what.clone(), number);
        let (wanted, _) = self.wanted(number, at);
        at.memory.store_segment(number, &wanted);
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.now = wanted;
        }
        Some(number)
    }

    /// More uses of a segment that is in use.
    pub(crate) fn keep(&mut self, number: u32, uses: u32) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.refs += uses;
        }
    }

    /// One use less.
    pub(crate) fn give_back(&mut self, number: u32, memory: &Memory) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        entry.refs -= 1;
        if entry.refs > 0 {
            return;
        }
        let Some(entry) = self.entries.remove(&number) else {
            return;
        };
        self.by_use.remove(&entry.what);
        self.full.remove(&number);
        let [lookup4, lookup6] = entry.what.lookups();
        self.tables.v4.want_no_more(lookup4.as_ref());
        self.tables.v6.want_no_more(lookup6.as_ref());
        // A reader may still come here by a group or an entry that it read before: the kernel takes over what is its.
        let gone = Segment {
            kind: segment_kind::KERNEL,
            reason: Reason::NoRoute as u8,
            flags: entry.now.flags & segment_flags::NO_PUNT,
            ..Segment::default()
        };
        put_first_word(memory, number, &gone);
        self.give_back_run(entry.run);
        self.slots.give_back(number);
    }

    fn give_back_run(&mut self, run: Option<Run>) {
        if let Some((first, words)) = run {
            self.runs.give_back(first, words.len() as u32);
        }
    }

    /// What a segment shall be, its template in its place already: a new one is written where nobody
    /// reads yet. The template that it had, to be given back when the image does not name it any more.
    fn wanted(&mut self, number: u32, at: &Publish<'_>) -> (Segment, Option<Run>) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return (Segment::default(), None);
        };
        let around = Around {
            state: at.state,
            ports: at.ports,
            tables: &self.tables,
        };
        let Built { segment, words } = build(&around, &entry.what);
        let before = entry.run.take();
        if words.is_empty() {
            self.full.remove(&number);
            return (segment, before);
        }
        let (run, before) = match before {
            Some(run) if run.1 == words => (Some(run), None),
            before => {
                let first = self.runs.take(words.len() as u32, at.grace);
                (first.map(|first| (first, words)), before)
            }
        };
        let Some((first, words)) = run else {
            self.full.insert(number);
            let full = Segment {
                reason: Reason::ImageFull as u8,
                flags: segment.flags & (segment_flags::HAS_COUNTERS | segment_flags::NO_PUNT),
                ..Segment::default()
            };
            return (full, before);
        };
        self.full.remove(&number);
        for (place, word) in (first..).zip(&words) {
            at.memory.store_template_word(place, *word);
        }
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.run = Some((first, words));
        }
        let segment = Segment {
            template: first,
            ..segment
        };
        (segment, before)
    }

    /// All segments.
    pub(crate) fn all(&self) -> Vec<u32> {
        self.entries.keys().copied().collect()
    }

    /// Those that look in a table of their own.
    pub(crate) fn with_tables(&self) -> Vec<u32> {
        let looks = |entry: &Entry| entry.what.lookups() != [None, None];
        let mine = self.entries.iter().filter(|(_, entry)| looks(entry));
        mine.map(|(number, _)| *number).collect()
    }

    /// Those to try again when room may have come.
    pub(crate) fn full(&self) -> Vec<u32> {
        self.full.iter().copied().collect()
    }

    /// Brings these segments up to date in the image, those as well that [`Memory::punt_link`] has punted.
    pub(crate) fn refresh(&mut self, numbers: &[u32], at: &Publish<'_>) {
        let mut rewrites = Vec::new();
        for &number in numbers {
            let Some(now) = self.entries.get(&number).map(|entry| entry.now) else {
                continue;
            };
            let (wanted, before) = self.wanted(number, at);
            if wanted == now && at.memory.segment_word(number) == wanted.first_word() {
                continue;
            }
            let same_rest = with_first_word(&now, &wanted) == wanted;
            let next = if wanted.kind == segment_kind::KERNEL || same_rest {
                put_first_word(at.memory, number, &wanted);
                // The rest of the image stays as it was until it is written anew.
                with_first_word(&now, &wanted)
            } else {
                let held = Segment {
                    kind: segment_kind::KERNEL,
                    reason: Reason::Held as u8,
                    ..wanted
                };
                put_first_word(at.memory, number, &held);
                rewrites.push(number);
                wanted
            };
            self.give_back_run(before);
            if let Some(entry) = self.entries.get_mut(&number) {
                entry.now = next;
            }
        }
        if rewrites.is_empty() {
            return;
        }
        // Until the rest is changed no reader may be between its look at the kind and its look at the
        // rest; the kernel forwards meanwhile.
        (at.grace)();
        for number in rewrites {
            if let Some(entry) = self.entries.get(&number) {
                at.memory.store_segment(number, &entry.now);
            }
        }
    }

    pub(crate) fn used(&self) -> usize {
        self.entries.len()
    }

    /// Number, meaning and form of all segments of SRv6.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &SegmentUse, &Segment)> {
        let entries = self.entries.iter();
        entries.filter_map(|(number, entry)| match &entry.what {
            Meaning::Srv6(what) => Some((*number, &**what, &entry.now)),
            Meaning::TunnelEnds(_) => None,
        })
    }

    /// The number of a segment of SRv6.
    pub(crate) fn number(&self, what: &SegmentUse) -> Option<u32> {
        let what = Meaning::Srv6(Arc::new(what.clone()));
        self.by_use.get(&what).copied()
    }

    /// A segment of SRv6.
    pub(crate) fn get(&self, number: u32) -> Option<(&SegmentUse, &Segment)> {
        let entry = self.entries.get(&number)?;
        match &entry.what {
            Meaning::Srv6(what) => Some((what, &entry.now)),
            Meaning::TunnelEnds(_) => None,
        }
    }

    /// The ends of tunnels: their number, their address, and what engines see.
    pub(crate) fn tunnel_ends(&self) -> impl Iterator<Item = (u32, Ipv4Addr, &Segment)> {
        let entries = self.entries.iter();
        entries.filter_map(|(number, entry)| match entry.what {
            Meaning::TunnelEnds(local) => Some((*number, local, &entry.now)),
            Meaning::Srv6(_) => None,
        })
    }
}

/// `rest` with the first word of `first`.
fn with_first_word(rest: &Segment, first: &Segment) -> Segment {
    Segment {
        kind: first.kind,
        reason: first.reason,
        flavours: first.flavours,
        flags: first.flags,
        block: first.block,
        csid: first.csid,
        size: first.size,
        ..*rest
    }
}

/// Stores only the first word.
fn put_first_word(memory: &Memory, number: u32, segment: &Segment) {
    let at = number as usize * (image::SEGMENT_HEAD / 8);
    memory.segments.words()[at].store(segment.first_word(), Ordering::Release);
}
