//! What is noted of calls that are sent, until it is in the file: which, and when again. Without I/O or a clock.

use std::time::Duration;

use super::{Entry, Keys, Place, SLOTS};

/// How many calls may follow one without a reply before it is noted again, and how old its entry may get.
pub(super) const AGAIN: (u32, Duration) = (SLOTS / 4, Duration::from_secs(30));
/// Calls without a reply that a ring has room for, beside all that is noted until they are noted again.
pub const PENDING: usize = SLOTS as usize / 4;
/// How long nothing is noted when it could not be written.
pub(super) const PAUSE: Duration = Duration::from_secs(60);

/// When a call was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// How many calls had been noted in its ring.
    pub(super) count: u32,
    pub(super) second: u32,
}

/// One ring.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// Calls that were noted, each once.
    count: u32,
    /// The slot that the first of `waiting` goes to.
    pub(super) next: u32,
    /// Entries that are not in the file yet.
    pub(super) waiting: Vec<u8>,
}

/// Calls that are sent, to be noted in a file.
#[derive(Debug)]
pub struct Notes {
    /// Whether there is a file.
    pub(super) kept: bool,
    pub(super) keys: Keys,
    pub(super) number: u32,
    pub(super) rings: [Ring; 2],
    /// When it could not be written last, and whether it has been since.
    pub(super) failed: Option<(u32, bool)>,
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

    /// The keys of the hash that calls are known by.
    pub fn keys(&self) -> Keys {
        self.keys
    }

    /// Whether there is nothing to be written.
    pub fn is_empty(&self) -> bool {
        self.rings.iter().all(|ring| ring.waiting.is_empty())
    }

    /// It could not be written at this second, and is forgotten.
    pub(super) fn failed(&mut self, second: u32) {
        self.failed = Some((second, false));
        self.rings.iter_mut().for_each(|ring| ring.waiting.clear());
    }

    /// It was written; whether it could not be before.
    pub(super) fn works(&mut self) -> bool {
        let again = self.failed.as_mut().filter(|(_, works)| !*works);
        again.is_some_and(|(_, works)| !std::mem::replace(works, true))
    }

    /// Whether there is a file, and it is not known that it cannot be written.
    pub fn is_kept(&self, second: u32) -> bool {
        let pauses = |(at, works): (u32, bool)| !works && since(at, second) < PAUSE;
        self.kept && !self.failed.is_some_and(pauses)
    }

    /// Notes a call that is about to be sent at this second: one that writes or another. It is in the file after
    /// [`super::Book::write`].
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
