//! Replies that nobody could foresee: how much room calls get for them, and which client has to go where they fill the
//! memory, and it takes none.
//!
//! A client's calls wait until there is room for their replies, so that it holds nobody up by taking none. That goes by
//! what the calls say. Where a reply is larger, all memory may be full, and no reply of any client can be read.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use super::{Actions, Core, Now};
use crate::program::GUESS;

/// How long a client may take next to nothing while the memory is full.
const PATIENCE: Duration = Duration::from_millis(250);
/// The part of what it holds that it has to take in that time.
const PART: usize = 8;
/// Memory that nobody finds full for so long is not full any more.
const GAP: Duration = Duration::from_millis(100);
/// How long the size of a reply counts, at least.
const COUNTS: Duration = Duration::from_secs(60);
/// The part of all memory that the room for one reply may be which nobody can foresee.
const SHARE: usize = 64;
/// What a reply may have, although a call asks for more, unless the server has given one as large.
const USUAL: u32 = 1 << 20;

/// How large replies are.
#[derive(Default)]
pub(super) struct Sizes {
    /// The largest.
    most: u32,
    /// The largest of those that nobody could foresee, since a moment and before.
    unforeseen: Option<(Instant, u32, u32)>,
}

impl Sizes {
    /// A reply of so many bytes has come.
    pub(super) fn saw(&mut self, bytes: usize, foreseen: bool, now: Instant) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.most = self.most.max(bytes);
        if !foreseen {
            let (since, of_late, before) = self.of_late(now).unwrap_or((now, 0, 0));
            self.unforeseen = Some((since, of_late.max(bytes), before));
        }
    }

    fn of_late(&self, now: Instant) -> Option<(Instant, u32, u32)> {
        let (since, of_late, before) = self.unforeseen?;
        match now.saturating_duration_since(since) {
            age if age < COUNTS => Some((since, of_late, before)),
            age if age < 2 * COUNTS => Some((since + COUNTS, 0, of_late)),
            _ => None,
        }
    }

    /// What a reply is taken for that nobody can foresee: as large as the largest of the last minute or two, at least
    /// [`GUESS`]; but of `memory` a 64th at most, so that a few such calls do not take a client's share.
    pub(super) fn guess(&self, memory: usize, now: Instant) -> usize {
        let seen = self.of_late(now);
        let seen = seen.map_or(0, |(_, of_late, before)| of_late.max(before));
        (seen.max(GUESS) as usize).min(memory / SHARE)
    }

    /// What a call gets that asks for so many bytes, as far as dispatch is concerned: a server gives less than a client
    /// may ask for, and a call that is taken for gigabytes would have a connection for itself.
    pub(super) fn given(&self, asked: u32) -> u32 {
        asked.min(self.most.max(USUAL))
    }
}

/// Since when the memory is full, and what clients held and had taken then.
struct Full {
    since: Instant,
    found: Instant,
    then: HashMap<u64, (usize, u64)>,
}

/// Whether the memory of replies is full.
#[derive(Default)]
pub(super) struct Pressure(Option<Full>);

/// A client with replies that it has not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder<U> {
    number: u64,
    user: U,
    /// Bytes that it holds.
    holds: usize,
    /// Bytes that it has taken since it was looked at last, and that it held then; none if it was not.
    took: Option<(u64, usize)>,
}

/// Which client has to go: one that has taken less than an eighth of what it held, of the user whose such clients hold
/// most the one that holds most.
fn slowest<U: Copy + Eq + Hash>(holders: &[Holder<U>]) -> Option<u64> {
    let is_slow = |holder: &&Holder<U>| {
        let slow = |(took, held)| (took as usize).saturating_mul(PART) < held;
        holder.took.is_some_and(slow)
    };
    let mut users: HashMap<U, usize> = HashMap::new();
    for holder in holders.iter().filter(is_slow) {
        *users.entry(holder.user).or_default() += holder.holds;
    }
    let slow = holders.iter().filter(is_slow);
    let most = slow.max_by_key(|holder| (users.get(&holder.user), holder.holds, holder.number));
    most.map(|holder| holder.number)
}

impl Core {
    /// The memory of replies is full, and all connections to servers wait: has the client go that takes none of it, once
    /// that has lasted.
    pub fn relieve(&mut self, now: Now, actions: &mut Actions) {
        self.now = now;
        self.find_slowest();
        actions.append(&mut self.actions);
    }

    fn find_slowest(&mut self) {
        let now = self.now.at;
        let clients = self.clients.iter().map(|(_, client)| client);
        let holders = clients.filter(|client| client.owed > 0);
        let full = &mut self.pressure.0;
        let present = full
            .as_mut()
            .filter(|full| now.saturating_duration_since(full.found) < GAP);
        let Some(present) = present else {
            let then = holders
                .map(|client| (client.number, (client.of_replies.here(), client.took)))
                .collect();
            *full = Some(Full {
                since: now,
                found: now,
                then,
            });
            return;
        };
        present.found = now;
        if now.saturating_duration_since(present.since) < PATIENCE {
            return;
        }
        let all: Vec<_> = holders
            .map(|client| Holder {
                number: client.number,
                user: client.user,
                holds: client.of_replies.here(),
                took: present
                    .then
                    .get(&client.number)
                    .map(|(held, took)| (client.took - took, *held)),
            })
            .collect();
        let Some(number) = slowest(&all) else {
            // All go on, and are looked at anew.
            *full = None;
            return;
        };
        present.then.remove(&number);
        let is = |client: &super::Client| client.number == number && client.owed > 0;
        let found = self.clients.iter().find(|(_, client)| is(client));
        if let Some(id) = found.map(|(id, _)| id) {
            let why = "it takes no replies, and they fill the memory";
            self.ended(id, why);
            self.disconnect(id, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_next_to_nothing_goes() {
        let holder = |number, user, holds, took| Holder {
            number,
            user,
            holds,
            took,
        };
        let slow = Some((10, 1000));
        let fast = Some((200, 1000));
        for (holders, number) in [
            (vec![], None),
            (vec![holder(1, 1, 900, fast), holder(2, 1, 900, None)], None),
            (
                vec![holder(1, 1, 900, fast), holder(2, 1, 5, slow)],
                Some(2),
            ),
            (
                vec![holder(1, 1, 90, slow), holder(2, 1, 80, slow)],
                Some(1),
            ),
            // Of the user that has most together, among those that are slow.
            (
                vec![
                    holder(1, 1, 90, slow),
                    holder(2, 2, 70, slow),
                    holder(3, 2, 60, slow),
                    holder(4, 1, 900, fast),
                ],
                Some(2),
            ),
        ] {
            assert_eq!(slowest(&holders), number, "{holders:?}");
        }
    }

    #[test]
    fn what_was_large_of_late_is_taken_for_large() {
        let (mut sizes, start) = (Sizes::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        const MEMORY: usize = 256 << 20;
        assert_eq!(sizes.guess(MEMORY, at(0)), GUESS as usize);
        sizes.saw(1 << 20, true, at(0));
        assert_eq!(sizes.guess(MEMORY, at(0)), GUESS as usize);
        sizes.saw(1 << 20, false, at(0));
        sizes.saw(100_000, false, at(30));
        for seconds in [30, 59, 61, 119] {
            assert_eq!(sizes.guess(MEMORY, at(seconds)), 1 << 20, "{seconds}");
        }
        sizes.saw(100_000, false, at(61));
        assert_eq!(sizes.guess(MEMORY, at(121)), 100_000);
        assert_eq!(sizes.guess(MEMORY, at(241)), GUESS as usize);
        // No reply takes more than a 64th.
        assert_eq!(sizes.guess(1 << 20, at(61)), 16 << 10);
    }

    #[test]
    fn what_is_asked_for_is_not_what_is_given() {
        let mut sizes = Sizes::default();
        assert_eq!((sizes.given(5), sizes.given(u32::MAX)), (5, 1 << 20));
        sizes.saw(4 << 20, true, Instant::now());
        assert_eq!(sizes.given(u32::MAX), 4 << 20);
    }
}
