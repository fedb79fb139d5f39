//! The memory of an image: readers and writers.

use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use raddle_fib::{Memory4, Memory6, Region};

use super::*;

/// The word of the configuration that has the deadline.
const DEADLINE: usize = offset_of!(Config, deadline) / 8;
/// A deadline that has passed already: everything is the kernel's. (0 would be none.)
pub const PASSED: u64 = 1;

/// The memory of one image.
#[derive(Debug)]
pub struct Memory {
    /// One [`Config`].
    pub config: Region,
    /// [`MAX_LINKS`] times [`LinkEntry`].
    pub links: Region,
    /// Links upon links, see [`Memory::step`].
    pub steps: Region,
    /// Where bridges have learnt which sources, see [`Memory::is_learnt`].
    pub learnt: Region,
    /// Filter of the IPv4 sources that the kernel may refuse: [`LOCAL_BITS`] bits, see [`local_bit`].
    pub local4: Region,
    /// Roots of the IPv4 tables, one word each ([`MAX_TABLES`]).
    pub roots4: Region,
    /// Nodes of the IPv4 tables.
    pub nodes4: Region,
    /// Leaves of the IPv4 tables, four to a word.
    pub leaves4: Region,
    /// Roots of the IPv6 tables, one word each ([`MAX_TABLES`]).
    pub roots6: Region,
    /// Everything else of the IPv6 tables.
    pub words6: Region,
    /// [`Group`] words.
    pub groups: Region,
    /// For each group the ways back that it is to IPv4 sources, a word of bits: [`ANY_WAY`], and those of links.
    pub ways4: Region,
    /// [`Ranges`] of addresses that a firewall may concern.
    pub firewall: Region,
    /// [`Member`] words.
    pub members: Region,
    /// [`Adjacency`] entries.
    pub adjacencies: Region,
    /// What all packets read of a [`Segment`]: [`SEGMENT_HEAD`] bytes each.
    pub segments: Region,
    /// Their targets or salts, [`SEGMENT_TARGET`] bytes each.
    pub segment_targets: Region,
    /// Headers that segments put in front of packets, in the order of the wire.
    pub templates: Region,
    /// Adjacencies from this number on were never used. No part of the image: engines do not see it.
    pub adjacencies_used: AtomicUsize,
    /// Segments from this number on were never an End.DX2, which leaves by a link without an adjacency. Likewise.
    pub dx2_used: AtomicUsize,
}

impl Memory {
    /// Memory on this process's heap.
    pub fn heap(capacity: &Capacity) -> Memory {
        Memory {
            config: Region::heap(size_of::<Config>()),
            links: Region::heap(MAX_LINKS * size_of::<LinkEntry>()),
            steps: Region::heap(STEP_BYTES),
            learnt: Region::heap(LEARNT_BYTES),
            local4: Region::heap(LOCAL_BITS / 8),
            roots4: Region::heap(MAX_TABLES * 8),
            nodes4: Region::heap(capacity.nodes4 * 8),
            leaves4: Region::heap(capacity.leaves4 * 2),
            roots6: Region::heap(MAX_TABLES * 8),
            words6: Region::heap(capacity.words6 * 8),
            groups: Region::heap(capacity.groups * 8),
            ways4: Region::heap(capacity.groups * 8),
            firewall: Region::heap(size_of::<Ranges>()),
            members: Region::heap(capacity.members * 8),
            adjacencies: Region::heap(capacity.adjacencies * size_of::<Adjacency>()),
            segments: Region::heap(capacity.segments * SEGMENT_HEAD),
            segment_targets: Region::heap(capacity.segments * SEGMENT_TARGET),
            templates: Region::heap(capacity.templates * 8),
            adjacencies_used: AtomicUsize::new(0),
            dx2_used: AtomicUsize::new(0),
        }
    }

    /// How much this memory can hold.
    pub fn capacity(&self) -> Capacity {
        Capacity {
            nodes4: self.nodes4.len() / 8,
            leaves4: self.leaves4.len() / 2,
            words6: self.words6.len() / 8,
            groups: self.groups.len() / 8,
            members: self.members.len() / 8,
            adjacencies: self.adjacencies.len() / size_of::<Adjacency>(),
            segments: self.segments.len() / SEGMENT_HEAD,
            templates: self.templates.len() / 8,
        }
    }

    /// Makes all memory zero, for a mirror that starts anew over memory that engines are reading.
    ///
    /// `grace` is called when the image has been marked as incomplete: everything goes to the
    /// kernel from then on, and no engine reads the rest when it returns.
    pub fn reset(&self, grace: impl Fn()) {
        self.config.words()[0].store(0, Ordering::Release);
        grace();
        let regions = [
            &self.config,
            &self.links,
            &self.steps,
            &self.learnt,
            &self.local4,
            &self.roots4,
            &self.nodes4,
            &self.leaves4,
            &self.roots6,
            &self.words6,
            &self.groups,
            &self.ways4,
            &self.firewall,
            &self.members,
            &self.adjacencies,
            &self.segments,
            &self.segment_targets,
            &self.templates,
        ];
        for word in regions.into_iter().flat_map(Region::words) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The configuration.
    pub fn config(&self) -> Config {
        load(&self.config, 0)
    }

    /// [`Config::label_key`].
    pub fn label_key(&self) -> [u64; 2] {
        const AT: usize = offset_of!(Config, label_key) / 8;
        [AT, AT + 1].map(|i| self.config.words()[i].load(Ordering::Acquire))
    }

    /// [`Config::port_key`].
    pub fn port_key(&self) -> [u64; 2] {
        const AT: usize = offset_of!(Config, port_key) / 8;
        [AT, AT + 1].map(|i| self.config.words()[i].load(Ordering::Acquire))
    }

    /// The part of the configuration that is looked at for every packet.
    #[inline]
    pub fn config_head(&self) -> ConfigHead {
        let word = |i: usize| self.config.words()[i].load(Ordering::Acquire);
        let (magic, flags, policies) = (word(0), word(1), word(2));
        ConfigHead {
            magic,
            flags: flags as u32,
            seed: (flags >> 32) as u32,
            policy4: policies as u8,
            policy6: (policies >> 8) as u8,
            fields4: (policies >> 16) as u16,
            fields6: (policies >> 32) as u16,
            deadline: word(DEADLINE),
        }
    }

    /// The link with this interface index; all zero when there is none.
    #[inline]
    pub fn link(&self, index: u32) -> LinkEntry {
        match usize::try_from(index) {
            Ok(i) if i < MAX_LINKS => load(&self.links, i),
            _ => LinkEntry::default(),
        }
    }

    /// The number of the group that an IPv4 address (host order) leads to in this table.
    #[inline]
    pub fn route4(&self, table: u32, address: u32) -> u32 {
        raddle_fib::lookup4(self, table, address)
    }

    /// The number of the group that an IPv6 address (host order) leads to in this table, or a value that names a
    /// segment.
    #[inline]
    pub fn route6(&self, table: u32, address: u128) -> u32 {
        raddle_fib::lookup6(self, table, address)
    }

    /// The group with this number, or the segment that the value names.
    #[inline]
    pub fn group(&self, number: u32) -> Group {
        if let Some(segment) = segment_of_value(number) {
            return Group::Segment(segment);
        }
        match self.groups.words().get(number as usize) {
            Some(word) => Group::from_word(word.load(Ordering::Acquire)),
            None => Group::Kernel(Reason::NoRoute),
        }
    }

    /// Whether what is not forwarded by the group with this number is dropped, see [`GROUP_NO_PUNT`].
    #[cold]
    pub fn group_never_punts(&self, number: u32) -> bool {
        if let Some(segment) = segment_of_value(number) {
            return self.segment(segment).flags & segment_flags::NO_PUNT != 0;
        }
        let word = self.groups.words().get(number as usize);
        word.is_some_and(|word| word.load(Ordering::Acquire) & GROUP_NO_PUNT != 0)
    }

    /// The member at this place.
    #[inline]
    pub fn member(&self, place: u32) -> Member {
        match self.members.words().get(place as usize) {
            Some(word) => Member::from_word(word.load(Ordering::Acquire)),
            None => Member {
                upper: 0x7fff_ffff,
                adjacency: u32::MAX,
            },
        }
    }

    /// The word of the members' memory at this place; zero beyond its end.
    #[inline]
    pub fn member_word(&self, place: u32) -> u64 {
        let word = self.members.words().get(place as usize);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// The adjacency with this number.
    #[inline]
    pub fn adjacency(&self, number: u32) -> Adjacency {
        let adjacency = self.adjacency_but_tags(number);
        match adjacency.state {
            ADJ_TAGGED | ADJ_TUNNEL => self.with_rest(adjacency, number),
            _ => adjacency,
        }
    }

    /// The same without what only one that is reached by another link has: `lower`, `tag` and `tunnel` are zero.
    #[inline]
    pub fn adjacency_but_tags(&self, number: u32) -> Adjacency {
        try_load(&self.adjacencies, number).unwrap_or_else(|| Adjacency {
            reason: Reason::Unresolved as u8,
            ..Adjacency::default()
        })
    }

    /// The segment with this number; one that is the kernel's when there is none. What its
    /// kind does not need is zero.
    #[inline]
    pub fn segment(&self, number: u32) -> Segment {
        let place = number as usize;
        if place >= self.segments.len() / SEGMENT_HEAD {
            return Segment {
                reason: Reason::Encap as u8,
                ..Segment::default()
            };
        }
        Segment::from_parts(load(&self.segments, place), || {
            load(&self.segment_targets, place)
        })
    }

    /// Whether any segment is not the kernel's. Reads them all.
    pub fn has_segments(&self) -> bool {
        let first_words = self.segments.words().iter();
        let mut first_words = first_words.step_by(SEGMENT_HEAD / 8);
        first_words.any(|word| word.load(Ordering::Acquire) as u8 != segment_kind::KERNEL)
    }

    /// A word of the templates, its bytes in the order of the wire; zero beyond their end.
    #[inline]
    pub fn template_word(&self, place: u32) -> u64 {
        let word = self.templates.words().get(place as usize);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Words of the templates, likewise; none where they do not hold all of them.
    #[inline]
    pub fn template(&self, first: u32, words: u32) -> Option<impl Iterator<Item = u64>> {
        let first = first as usize;
        let words = self
            .templates
            .words()
            .get(first..first.checked_add(words as usize)?)?;
        Some(words.iter().map(|word| word.load(Ordering::Acquire)))
    }

    /// Why the kernel may refuse packets with this IPv4 source (host order) from this link
    /// (`fib_validate_source`); none where it cannot. [`Memory::maybe_local`] says which sources to ask about.
    ///
    /// 1. The table of sources has nothing about it: it cannot.
    /// 2. An address of this machine: [`Reason::LocalSource`], unless the link takes
    ///    them (`accept_local`).
    /// 3. Anything else in the table is the reason itself.
    #[cold]
    pub fn refuses(&self, link: &LinkEntry, source: u32) -> Option<Reason> {
        match self.group(self.route4(link.sources4, source)) {
            Group::Kernel(Reason::Local) if link.flags & link_flags::ACCEPT_LOCAL != 0 => None,
            Group::Kernel(Reason::Local) => Some(Reason::LocalSource),
            Group::Kernel(Reason::NoRoute) => None,
            Group::Kernel(reason) => Some(reason),
            _ => None,
        }
    }

    /// Whether the kernel may refuse this IPv4 source (host order); a yes can be wrong, a no cannot.
    #[inline]
    pub fn maybe_local(&self, address: u32) -> bool {
        let bit = local_bit(address);
        self.local4.words()[bit / 64].load(Ordering::Relaxed) >> (bit % 64) & 1 != 0
    }
}

impl Memory4 for Memory {
    fn roots(&self) -> &Region {
        &self.roots4
    }

    fn nodes(&self) -> &Region {
        &self.nodes4
    }

    fn leaves(&self) -> &Region {
        &self.leaves4
    }
}

impl Memory6 for Memory {
    fn roots(&self) -> &Region {
        &self.roots6
    }

    fn words(&self) -> &Region {
        &self.words6
    }
}

/// Writers. Each publishes its record or word whole: a reader sees the old one or the new one.
impl Memory {
    /// Writes the configuration, its magic number last.
    pub fn store_config(&self, config: &Config) {
        store(&self.config, 0, config);
    }

    /// Writes the configuration but for its deadline, which is [`Memory::store_deadline`]'s and [`Memory::doubt`]'s
    /// alone: so nothing else takes a doubt back.
    pub fn change_config(&self, config: &Config) {
        store_but(&self.config, 0, config, Some(DEADLINE));
    }

    /// Until when readers may use the image: `CLOCK_MONOTONIC` in nanoseconds, 0 for ever.
    pub fn store_deadline(&self, nanoseconds: u64) {
        self.config.words()[DEADLINE].store(nanoseconds, Ordering::SeqCst);
    }

    /// Punts everything from now on, until [`Memory::store_deadline`] gives another deadline. One store: any thread
    /// may do it at any time.
    pub fn doubt(&self) {
        self.store_deadline(PASSED);
    }

    /// Writes the link with this interface index, which must be below [`MAX_LINKS`].
    pub fn store_link(&self, index: u32, link: &LinkEntry) {
        store(&self.links, index as usize, link);
    }

    /// Writes an adjacency, which must be inside the capacity.
    pub fn store_adjacency(&self, number: u32, adjacency: &Adjacency) {
        store(&self.adjacencies, number as usize, adjacency);
    }

    /// Writes a segment, its first word last; it must be inside the capacity.
    pub fn store_segment(&self, number: u32, segment: &Segment) {
        if segment.kind == segment_kind::END_DX2 {
            self.dx2_used
                .fetch_max(number as usize + 1, Ordering::Release);
        }
        let (head, rest) = segment.to_parts();
        store(&self.segment_targets, number as usize, &rest);
        store(&self.segments, number as usize, &head);
    }

    /// Writes a word of the templates, which must be inside the capacity.
    pub fn store_template_word(&self, place: u32, word: u64) {
        self.templates.words()[place as usize].store(word, Ordering::Release);
    }

    /// Writes a group, which must be inside the capacity.
    pub fn store_group(&self, number: u32, group: Group) {
        self.groups.words()[number as usize].store(group.to_word(), Ordering::Release);
    }

    /// Writes a member, which must be inside the capacity.
    pub fn store_member(&self, place: u32, member: Member) {
        self.store_member_word(place, member.to_word());
    }

    /// Writes a word of the members' memory, which must be inside the capacity.
    pub fn store_member_word(&self, place: u32, word: u64) {
        self.members.words()[place as usize].store(word, Ordering::Release);
    }
}

/// The bit that stands for an IPv4 address (host order) in the filter of sources.
#[inline]
pub fn local_bit(address: u32) -> usize {
    (address.wrapping_mul(0x9e37_79b1) >> 16) as usize
}

/// Plain data that the image holds as a run of words.
///
/// # Safety
/// The type must be `repr(C)` without padding, a multiple of 8 bytes long, and valid for any bits.
pub(crate) unsafe trait Record: Copy {
    /// Words that are in use. The rest of a record is zero, and so need not be read.
    const USED: usize;
}
// SAFETY: repr(C), every byte named, integers only.
unsafe impl Record for Config {
    const USED: usize = size_of::<Config>() / 8;
}
// SAFETY: as above.
unsafe impl Record for LinkEntry {
    const USED: usize = size_of::<LinkEntry>() / 8;
}
// SAFETY: as above.
unsafe impl Record for Adjacency {
    // What only those with tags have is read apart.
    const USED: usize = offset_of!(Adjacency, lower).div_ceil(8);
}
// SAFETY: as above.
unsafe impl Record for Ranges {
    const USED: usize = size_of::<Ranges>() / 8;
}
// SAFETY: words.
unsafe impl<const WORDS: usize> Record for [u64; WORDS] {
    const USED: usize = WORDS;
}

/// A record that must be inside the capacity.
#[inline]
fn load<T: Record>(region: &Region, i: usize) -> T {
    let words = size_of::<T>() / 8;
    load_from(&region.words()[i * words..(i + 1) * words])
}

/// A record; none beyond the capacity.
#[inline]
fn try_load<T: Record>(region: &Region, i: u32) -> Option<T> {
    let words = size_of::<T>() / 8;
    let first = (i as usize).checked_mul(words)?;
    let words = region.words().get(first..first.checked_add(words)?);
    words.map(load_from)
}

#[inline]
fn load_from<T: Record>(words: &[AtomicU64]) -> T {
    assert_eq!(words.len(), size_of::<T>() / 8, "all words of a record");
    let mut out = std::mem::MaybeUninit::<T>::zeroed();
    let to: *mut u64 = out.as_mut_ptr().cast();
    for (w, word) in words.iter().take(T::USED).enumerate() {
        // SAFETY: `w` stays below size_of::<T>() / 8, so the store is inside `out`; a record may
        // be aligned to 4 only, hence the unaligned store.
        unsafe { to.add(w).write_unaligned(word.load(Ordering::Acquire)) };
    }
    // SAFETY: all bytes are written, and a Record is valid for any bits.
    unsafe { out.assume_init() }
}

/// Writes a record, its first word last: whoever sees the first word sees the rest.
pub(crate) fn store<T: Record>(region: &Region, i: usize, record: &T) {
    store_but(region, i, record, None);
}

/// As [`store`], but for this word of it.
fn store_but<T: Record>(region: &Region, i: usize, record: &T, but: Option<usize>) {
    let words = size_of::<T>() / 8;
    let from: *const u64 = std::ptr::from_ref(record).cast();
    let cells: &[AtomicU64] = &region.words()[i * words..(i + 1) * words];
    for (w, cell) in cells.iter().enumerate().rev() {
        if but == Some(w) {
            continue;
        }
        // SAFETY: `w` stays below size_of::<T>() / 8, so the load is inside `record`.
        cell.store(unsafe { from.add(w).read_unaligned() }, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
