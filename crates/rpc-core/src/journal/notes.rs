//! What is noted of calls that are sent, until it is in the file: which, and when again. Without I/O or a clock.

use std::time::Duration;

use super::{ENTRY, Entry, Keys, Place, SLOTS, age, ring_at};
use crate::replay::RETURN;

/// How many calls may follow one without a reply before it is noted again, and how old its entry may get.
pub(super) const AGAIN: (u32, Duration) = (SLOTS / 4, Duration::from_secs(30));
/// Calls without a reply that a ring has room for, beside all that is noted until they are noted again.
pub const PENDING: usize = SLOTS as usize / 4;
/// How long nothing is noted when it could not be written.
const PAUSE: Duration = Duration::from_secs(60);

/// When a call was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// How many calls had been noted in its ring.
    count: u32,
    second: u32,
}

/// One ring.
#[derive(Debug, Default)]
struct Ring {
    /// Calls that were noted, each once.
    count: u32,
    /// The slot that the first entry that is not in the file goes to.
    next: u32,
    /// Entries for the file; the first `written` bytes are in it.
    waiting: Vec<u8>,
    written: usize,
}

impl Ring {
    /// Entries that are not in the file yet, as many as there is room for before the ring begins anew.
    fn unwritten(&self) -> &[u8] {
        let room = (SLOTS - self.next) as usize * ENTRY;
        let waiting = &self.waiting[self.written..];
        &waiting[..waiting.len().min(room)]
    }

    /// None waits any more.
    fn clear(&mut self) {
        self.waiting.clear();
        self.written = 0;
    }
}

/// Calls that are sent, to be noted in a file.
#[derive(Debug)]
pub struct Notes {
    /// Whether there is a file.
    kept: bool,
    keys: Keys,
    number: u32,
    rings: [Ring; 2],
    /// When it could not be written last, and whether it has been since.
    failed: Option<(u32, bool)>,
}

/// How long ago one second was at another.
fn since(at: u32, now: u32) -> Duration {
    Duration::from_secs(now.wrapping_sub(at).into())
}

impl Notes {
    /// Those of a proxy without a file: nothing outlives the process. Draw the keys.
    pub fn none(keys: Keys) -> Notes {
        Notes {
            kept: false,
            keys,
            number: 0,
            rings: Default::default(),
            failed: None,
        }
    }

    /// Those of a proxy with a file of these keys, whose rings have these bytes; and all entries that are not too old
    /// at this second. Numbers of old ones say nothing: they wrap.
    pub fn of_file(keys: Keys, rings: [&[u8]; 2], now: u32) -> (Notes, Vec<Entry>) {
        let mut notes = Notes::none(keys);
        notes.kept = true;
        let mut all = Vec::new();
        let mut newest: Option<Entry> = None;
        for (ring, bytes) in notes.rings.iter_mut().zip(rings) {
            let mut last: Option<(u32, Entry)> = None;
            for (slot, bytes) in (0..SLOTS).zip(bytes.as_chunks::<ENTRY>().0) {
                let entry = Entry::parse(bytes).filter(|entry| age(entry, now) < RETURN);
                let Some(entry) = entry else {
                    continue;
                };
                all.push(entry);
                let later = |before: &Entry| entry.number.wrapping_sub(before.number) as i32 > 0;
                if last.as_ref().is_none_or(|(_, before)| later(before)) {
                    last = Some((slot, entry));
                }
                if newest.as_ref().is_none_or(later) {
                    newest = Some(entry);
                }
            }
            ring.next = last.map_or(0, |(slot, _)| (slot + 1) % SLOTS);
        }
        notes.number = newest.map_or(0, |entry| entry.number.wrapping_add(1));
        (notes, all)
    }

    /// The keys of the hash that calls are known by.
    pub fn keys(&self) -> Keys {
        self.keys
    }

    /// Whether there is nothing to be written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rings.iter().all(|ring| ring.waiting.is_empty())
    }

    /// What is to be written next, and where in the file; none when all is. To be written before any of it is sent:
    /// [`Notes::wrote`] goes on to the next.
    #[inline]
    pub fn unwritten(&self) -> Option<(u64, &[u8])> {
        let mut rings = self.rings.iter().enumerate();
        rings.find_map(|(i, ring)| {
            let bytes = ring.unwritten();
            let at = ring_at(i) + u64::from(ring.next) * ENTRY as u64;
            (!bytes.is_empty()).then_some((at, bytes))
        })
    }

    /// What [`Notes::unwritten`] has given is in the file.
    pub fn wrote(&mut self) {
        let mut rings = self.rings.iter_mut();
        let Some(ring) = rings.find(|ring| !ring.unwritten().is_empty()) else {
            return;
        };
        let bytes = ring.unwritten().len();
        ring.next = (ring.next + (bytes / ENTRY) as u32) % SLOTS;
        ring.written += bytes;
        if ring.written == ring.waiting.len() {
            ring.clear();
        }
    }

    /// The file could not be written at this second: what waits is forgotten, and nothing is noted for a minute. Then
    /// it is tried again.
    pub fn failed(&mut self, second: u32) {
        self.failed = Some((second, false));
        self.rings.iter_mut().for_each(Ring::clear);
    }

    /// Something was written; whether that could not be done before.
    pub fn works(&mut self) -> bool {
        let again = self.failed.as_mut().filter(|(_, works)| !*works);
        again.is_some_and(|(_, works)| !std::mem::replace(works, true))
    }

    /// Whether there is a file, and it is not known that it cannot be written.
    pub fn is_kept(&self, second: u32) -> bool {
        let pauses = |(at, works): (u32, bool)| !works && since(at, second) < PAUSE;
        self.kept && !self.failed.is_some_and(pauses)
    }

    /// Notes a call that is about to be sent at this second: one that writes or another. It is to be in the
    /// file before ([`Notes::unwritten`]).
    pub fn note(&mut self, writes: bool, tag: u64, place: Place, second: u32) -> Noted {
        let ring = &mut self.rings[usize::from(writes)];
        ring.count = ring.count.wrapping_add(1);
        self.note_again(writes, tag, place, second)
    }

    /// Notes a call that was sent and has no reply yet.
    pub fn note_again(&mut self, writes: bool, tag: u64, place: Place, second: u32) -> Noted {
        let kept = self.is_kept(second);
        let ring = &mut self.rings[usize::from(writes)];
        if kept {
            let number = self.number;
            self.number = number.wrapping_add(1);
            let entry = Entry {
                number,
                second,
                tag,
                place,
            };
            ring.waiting.extend(entry.to_bytes());
        }
        Noted {
            count: ring.count,
            second,
        }
    }

    /// Whether a call without a reply has to be noted again.
    ///
    /// 1. None is where there is no file.
    /// 2. One that was not noted, or only when it could not be written, has to be.
    /// 3. So has one behind which an eighth of a ring has been noted, or whose entry is 30 s old. It is asked for each
    ///    time that [`Notes::step`] changes, so that no more than three eighths come between; what is noted again is
    ///    at most twice [`PENDING`] meanwhile.
    pub fn is_due(&self, writes: bool, noted: Option<Noted>, second: u32) -> bool {
        let is_old = |noted: Noted| {
            let count = self.rings[usize::from(writes)].count;
            let lost = |(at, _): (u32, bool)| noted.second.wrapping_sub(at) as i32 <= 0;
            count.wrapping_sub(noted.count) >= AGAIN.0 / 2
                || since(noted.second, second) >= AGAIN.1
                || self.failed.is_some_and(lost)
        };
        self.is_kept(second) && noted.is_none_or(is_old)
    }

    /// What changes whenever calls may have become due: with a quarter of a ring, every 30 s, and when it may be
    /// written again.
    pub fn step(&self, second: u32) -> [u32; 4] {
        let [others, writes] = self.rings.each_ref().map(|ring| ring.count / AGAIN.0);
        let time = second / AGAIN.1.as_secs() as u32;
        [others, writes, time, self.is_kept(second).into()]
    }
}
