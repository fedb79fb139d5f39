//! Where calls went that were answered not long ago, and whose replies are remembered no more: what is repeated of them
//! goes there again, where the server knows it.

use std::collections::{HashMap, VecDeque};

use crate::journal::{Entry, Place, age};
use crate::replay::REMEMBER;

/// Calls of which it is known; a journal has as many of each kind.
const MOST: usize = 1 << 15;

/// The last of these calls, by [`crate::duplicate::Key::tag`].
#[derive(Default)]
pub(super) struct Places {
    of: HashMap<u64, Entry>,
    /// The same, oldest first, and some that have been replaced since.
    order: VecDeque<Entry>,
}

impl Places {
    /// At this second it is remembered that a call with this tag went there. O(1), spread over calls.
    pub(super) fn add(&mut self, tag: u64, place: Place, second: u32) {
        let entry = Entry {
            number: 0,
            second,
            tag,
            place,
        };
        self.of.insert(tag, entry);
        self.order.push_back(entry);
        let goes = |oldest: &Entry, count: usize| count > MOST || age(oldest, second) >= REMEMBER;
        while let Some(oldest) = self.order.front().copied()
            && goes(&oldest, self.order.len())
        {
            self.order.pop_front();
            if self.of.get(&oldest.tag) == Some(&oldest) {
                self.of.remove(&oldest.tag);
            }
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Where the call with this tag went.
    pub(super) fn find(&self, tag: u64, second: u32) -> Option<Entry> {
        let entry = self.of.get(&tag).copied();
        entry.filter(|entry| age(entry, second) < REMEMBER)
    }
}
