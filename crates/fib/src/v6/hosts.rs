//! Many host routes below one place: a hash table of what is left of their addresses.
//!
//! Where a large table has nothing but host routes (SRv6 segments, hosts of a fabric), a trie takes
//! several reads of memory that is in no cache; the hash table takes one line.
//!
//! A slot is two words: the first 64 bits of the rest of the address; then the next 32 bits above the
//! value. The second word is written last, and a slot's address is written once: a host that is gone
//! leaves its slot with [`GONE`], and only itself can have it again. So a reader never sees the halves of
//! two addresses together.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::Fib6;
use super::control::{Control, Place, Slots, SpanId, UNBUILT};
use super::image::{Image, Planned};
use super::layout::{Entry, POINTER, STRIDE};
use crate::{FibError, Memory6, Prefix6, Value};

/// Host routes from which on a span with nothing else becomes a hash table.
const HOSTS_FROM: u32 = 64;
/// Whoever has a hash table built anew, or undone, over and over pays for it: at least so many hosts' part of changes
/// has to pass in between.
const PART: u32 = 8;
/// Above, more bits of the address are left than a slot has room for.
const HOSTS_DEPTH: usize = 2;
/// Slots in a cache line, and words.
pub(super) const LINE_SLOTS: usize = 4;
const LINE_WORDS: usize = 8;
/// Lines that a look-up goes through at most.
pub(super) const MAX_LINES: usize = 16;
/// Words behind the last line in which a host belongs.
const BEHIND: usize = (MAX_LINES - 1) * LINE_WORDS;
/// The value in the slot of a host that is gone.
const GONE: u32 = POINTER;

/// The word at which the lines of a table at word `at` begin.
#[inline(always)]
pub(super) fn first_line(at: usize) -> usize {
    (at + LINE_WORDS) & !(LINE_WORDS - 1)
}

/// Words of a table: a word with the lines above the answer for what is not found, and one with the bits of
/// the address in front of what is looked up; then the lines, of which the first begins at most one line behind, and those that only ways from the last ones reach.
pub(super) fn hosts_words(lines: u32) -> u32 {
    (1 + lines) * LINE_WORDS as u32 + BEHIND as u32
}

/// The line in which to look first.
#[inline(always)]
pub(super) fn line_of(host: Host, lines: u32) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = (host.high ^ u64::from(host.low) << 29).wrapping_mul(FACTOR);
    hash = (hash ^ hash >> 32).wrapping_mul(FACTOR);
    (((hash >> 32) * u64::from(lines)) >> 32) as u32
}

/// What is left of an address: 96 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) high: u64,
    pub(super) low: u32,
}

impl Host {
    /// Of bits that are left, from the top bit down.
    #[inline(always)]
    pub(super) fn of(rest: u128) -> Host {
        Host {
            high: (rest >> 64) as u64,
            low: (rest >> 32) as u32,
        }
    }

    /// The words of its slot, in the order in which they are written.
    fn slot(self, value: u32) -> [u64; 2] {
        [self.high, u64::from(self.low) << 32 | u64::from(value)]
    }
}

/// What a slot says about a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// Nothing was ever here.
    Empty,
    /// Somebody else is.
    Other,
    /// Its value, or nothing since it is gone.
    Found(Option<Value>),
}

impl Slot {
    /// By its second word, and its first, which is read if it matters.
    #[inline(always)]
    pub(super) fn of(second: u64, first: impl FnOnce() -> u64, host: Host) -> Slot {
        let value = second as u32;
        if value == 0 {
            Slot::Empty
        } else if (second >> 32) as u32 != host.low || first() != host.high {
            Slot::Other
        } else {
            Slot::Found((value & POINTER == 0).then_some(value))
        }
    }
}

/// The first slot that is a host's or empty, counted from the first line, on the way from its line on.
fn find(words: impl Fn(usize) -> u64, lines: u32, host: Host) -> Option<(usize, Slot)> {
    let first = line_of(host, lines) as usize * LINE_SLOTS;
    (first..first + MAX_LINES * LINE_SLOTS).find_map(|at| {
        let slot = Slot::of(words(2 * at + 1), || words(2 * at), host);
        (slot != Slot::Other).then_some((at, slot))
    })
}

/// What became of a change of one host.
enum Changed {
    /// It is planned; so many slots are taken by it.
    Slots(u32),
    /// Too many slots are taken.
    NoRoom,
    /// All slots on its way are.
    Crowd,
}

impl<M: Memory6> Image<M> {
    /// Builds a hash table for a span at a depth, with an answer for what is not in it. None where hosts are too many for the lines in
    /// which they belong, however many lines there are.
    fn build_hosts(
        &mut self,
        depth: usize,
        outside: Value,
        hosts: &[(Host, Value)],
    ) -> Result<Option<u32>, FibError> {
        let least = (hosts.len() * 3 / 2).div_ceil(LINE_SLOTS).max(1) as u32;
        let spread = [least, 2 * least, 4 * least].into_iter();
        let Some((lines, slots)) = spread
            .into_iter()
            .find_map(|n| Some((n, spread_over(hosts, n)?)))
        else {
            return Ok(None);
        };
        let at = self.alloc(hosts_words(lines))? as usize;
        let words = self.memory().words().words();
        words[at].store(u64::from(lines) << 32 | u64::from(outside), Relaxed);
        words[at + 1].store(depth as u64 * u64::from(STRIDE), Relaxed);
        for (word, content) in words[first_line(at)..].iter().zip(slots) {
            word.store(content, Relaxed);
        }
        Ok(Some(Entry::Hosts(at).bits()))
    }

    /// Plans the value of one host, 0 for none, in the table at a word, of which `used` slots are taken.
    fn plan_host(&mut self, at: usize, used: u32, host: Host, value: Value) -> Changed {
        let words = self.memory().words().words();
        let lines = (words[at].load(Relaxed) >> 32) as u32;
        let first = first_line(at);
        let found = find(|i| words[first + i].load(Relaxed), lines, host);
        match (found, value) {
            (Some((slot, Slot::Found(_))), _) => {
                let [_, second] = host.slot(if value == 0 { GONE } else { value });
                self.plan(Planned::Word(first + 2 * slot + 1, second));
                Changed::Slots(0)
            }
            (_, 0) => Changed::Slots(0),
            (Some((slot, _)), _) if used < lines * LINE_SLOTS as u32 / 5 * 4 => {
                let [one, other] = host.slot(value);
                self.plan(Planned::Word(first + 2 * slot, one));
                self.plan(Planned::Word(first + 2 * slot + 1, other));
                Changed::Slots(1)
            }
            (Some(_), _) => Changed::NoRoom,
            (None, _) => Changed::Crowd,
        }
    }

    /// All hosts of the table at a word.
    fn hosts_in(&self, at: usize) -> Vec<(Host, Value)> {
        let words = &self.memory().words().words()[at..];
        let lines = (words[0].load(Relaxed) >> 32) as usize;
        let slots = words[first_line(at) - at..].chunks_exact(2);
        let value_of = |slot: &[AtomicU64]| {
            let (high, second) = (slot[0].load(Relaxed), slot[1].load(Relaxed));
            let low = (second >> 32) as u32;
            let value = second as u32;
            (value != 0 && value & POINTER == 0).then_some((Host { high, low }, value))
        };
        slots
            .take((lines * LINE_WORDS + BEHIND) / 2)
            .filter_map(value_of)
            .collect()
    }

    /// Plans another answer for what is not in the table at a word.
    fn plan_outside(&mut self, at: usize, outside: Value) {
        let head = self.memory().words().words()[at].load(Relaxed);
        let head = head >> 32 << 32 | u64::from(outside);
        self.plan(Planned::Word(at, head));
    }

    /// Words that a table takes.
    pub(super) fn hosts_len(&self, at: usize) -> u32 {
        hosts_words((self.memory().words().words()[at].load(Relaxed) >> 32) as u32)
    }
}

/// The words of so many lines with all hosts in them, if there is room for each on its way.
fn spread_over(hosts: &[(Host, Value)], lines: u32) -> Option<Vec<u64>> {
    let mut words = vec![0; lines as usize * LINE_WORDS + BEHIND];
    for &(host, value) in hosts {
        let (slot, _) = find(|i| words[i], lines, host)?;
        words[2 * slot..2 * slot + 2].copy_from_slice(&host.slot(value));
    }
    Some(words)
}

impl Control {
    /// Whether a span is to be a hash table. Rules:
    /// 1. It holds host routes only, and resolves what is left behind 32 bits or more.
    /// 2. It has [`HOSTS_FROM`] of them, or is a hash table already.
    /// 3. It was not found before that they crowd.
    /// 4. Where it was a hash table and had to be undone, an eighth as many changes have passed since as it had hosts.
    fn is_for_hash(&self, id: SpanId, depth: usize) -> bool {
        let span = self.span(id);
        let enough = span.hashed.is_some() || span.hosts >= HOSTS_FROM && span.rest == 0;
        depth >= HOSTS_DEPTH && span.others == 0 && enough && !span.crowded
    }

    /// All host routes below a span, which has no others, by what of their addresses is left there.
    fn hosts_below(&self, id: SpanId, shift: u32, rest: u128, out: &mut Vec<(Host, Value)>) {
        let span = self.span(id);
        for (local, value) in &span.prefixes {
            out.push((Host::of(rest | u128::from(local.key()) << shift), *value));
        }
        for (key, child) in &span.children {
            let rest = rest | u128::from(*key) << shift;
            self.hosts_below(*child, shift - u32::from(STRIDE), rest, out);
        }
    }

    /// Counts a route that comes (1) or goes (-1) in the spans on its way.
    pub(super) fn tally(&mut self, spans: &[SpanId], prefix: Prefix6, change: i32) {
        for id in spans {
            let span = self.span_mut(*id);
            let count = match prefix.len() {
                128 => &mut span.hosts,
                _ => &mut span.others,
            };
            *count = count.wrapping_add_signed(change);
            span.rest = span.rest.saturating_sub(1);
        }
    }

    /// Counts all routes below a span anew, and tells them: hosts and others.
    pub(super) fn tally_all(&mut self, id: SpanId, depth: usize) -> (u32, u32) {
        let span = self.span(id);
        let own = span.prefixes.len() as u32;
        // Prefixes of the last span have 113 to 128 bits.
        let host = |prefix: &&super::control::Local| depth == 7 && prefix.len() == STRIDE;
        let hosts = span.prefixes.keys().filter(host).count() as u32;
        let children: Vec<SpanId> = span.children.values().copied().collect();
        let mut all = (hosts, own - hosts);
        for child in children {
            let below = self.tally_all(child, depth + 1);
            all = (all.0 + below.0, all.1 + below.1);
        }
        let span = self.span_mut(id);
        (span.hosts, span.others) = all;
        all
    }
}

/// What became of a route in a span's hash table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hashed {
    /// It is planned; the span stays what it is.
    InPlace,
    /// The span has another entry.
    Anew,
    /// The span is no hash table, or is to be none any more.
    Not,
}

impl<M: Memory6> Fib6<M> {
    /// Brings a route up to date in the hash table on its way, or makes one of the first span that is to be one. The
    /// second is the span's depth: below it nothing is in the image unless it is none and was none.
    ///
    /// A span that is to be one and cannot be for now hides no hash table further down.
    pub(super) fn hash_route(
        &mut self,
        place: &Place,
        prefix: Prefix6,
    ) -> Result<Option<(Hashed, usize)>, FibError> {
        for depth in HOSTS_DEPTH..place.depth {
            let id = place.spans[depth];
            let span = self.control.span(id);
            let done = match (span.hashed, Entry::parse(span.entry)) {
                (Some(_), _) if !self.control.is_for_hash(id, depth) => {
                    let span = self.control.span_mut(id);
                    span.rest = span.hosts / PART;
                    Hashed::Not
                }
                (Some(slots), Entry::Hosts(at)) => self.rehash(id, (at, slots), prefix)?,
                _ if self.hash_anew(id)? => Hashed::Anew,
                _ => continue,
            };
            return Ok(Some((done, depth)));
        }
        Ok(None)
    }

    /// Brings one route up to date in the hash table at a word, of which these slots are taken. Rules where there is
    /// no slot for it:
    /// 1. All on its way are taken, and few hosts have come since it was built: hosts crowd, by accident hardly ever.
    ///    Built anew it would soon be the same.
    /// 2. It is built anew, without the hosts that are gone.
    fn rehash(
        &mut self,
        id: SpanId,
        (at, Slots { built, used }): (usize, Slots),
        prefix: Prefix6,
    ) -> Result<Hashed, FibError> {
        let depth = usize::from(self.control.span(id).depth);
        let value = self.control.value_below(id, depth, prefix);
        let host = Host::of(prefix.addr() << (u32::from(STRIDE) * depth as u32));
        match self.image.plan_host(at, used, host, value) {
            Changed::Slots(0) => return Ok(Hashed::InPlace),
            Changed::Slots(slots) => {
                self.note(id);
                let used = used + slots;
                self.control.span_mut(id).hashed = Some(Slots { built, used });
                return Ok(Hashed::InPlace);
            }
            Changed::Crowd if used - built < built / PART => {
                self.crowd(id);
                return Ok(Hashed::Not);
            }
            Changed::Crowd | Changed::NoRoom => {}
        }
        let mut hosts = self.image.hosts_in(at);
        hosts.push((host, value));
        Ok(match self.hash(id, &hosts)? {
            true => Hashed::Anew,
            false => Hashed::Not,
        })
    }

    /// Makes a span a hash table, built anew, if it is to be one and there is room. Whether it is.
    ///
    /// Not while a route is removed: removals take no more memory than they must.
    pub(super) fn hash_anew(&mut self, id: SpanId) -> Result<bool, FibError> {
        let span = self.control.span(id);
        let depth = usize::from(span.depth);
        if !self.control.is_for_hash(id, depth) || self.image.is_removing() {
            return Ok(false);
        }
        let mut hosts = Vec::with_capacity(span.hosts as usize);
        self.control.hosts_below(id, 112, 0, &mut hosts);
        match self.hash(id, &hosts) {
            Err(FibError::Full { .. }) => {
                // Not tried again with each route.
                self.control.span_mut(id).crowded = true;
                Ok(false)
            }
            done => done,
        }
    }

    /// Has the hash table of a span, if it is one, answer something else for what is not in it.
    pub(super) fn hash_outside(&mut self, id: SpanId) -> bool {
        let span = self.control.span(id);
        match Entry::parse(span.entry) {
            Entry::Hosts(at) if span.hashed.is_some() => {
                self.image.plan_outside(at, span.background);
                true
            }
            _ => false,
        }
    }

    fn hash(&mut self, id: SpanId, hosts: &[(Host, Value)]) -> Result<bool, FibError> {
        let span = self.control.span(id);
        let (depth, background) = (usize::from(span.depth), span.background);
        let Some(entry) = self.image.build_hosts(depth, background, hosts)? else {
            self.crowd(id);
            return Ok(false);
        };
        self.forget_below(id);
        self.set(id, entry, None);
        let built = hosts.len() as u32;
        self.control.span_mut(id).hashed = Some(Slots { built, used: built });
        Ok(true)
    }

    /// Hosts crowd in a span's hash table, or would.
    fn crowd(&mut self, id: SpanId) {
        self.note(id);
        self.control.span_mut(id).crowded = true;
    }

    /// Takes everything below a span out of the image.
    fn forget_below(&mut self, id: SpanId) {
        let children: Vec<SpanId> = self.control.span(id).children.values().copied().collect();
        for child in children {
            if self.control.span(child).background == UNBUILT {
                continue;
            }
            self.forget_below(child);
            self.set(child, 0, None);
            self.control.span_mut(child).background = UNBUILT;
        }
    }
}

#[cfg(test)]
mod tests;
