//! How much may be kept at once: who would exceed it waits before reading more. Each client has a share, so that one
//! that sends much, or takes no replies, leaves room for the others.

use std::collections::HashMap;
use std::net::IpAddr;

use super::arena::{Arena, Id};

/// What limits are kept by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum User {
    /// A user of this machine.
    Local(u32),
    /// Whoever is at an address, or has it: of IPv6 its /64, in which a machine takes as many as it likes.
    At(IpAddr),
}

/// Calls or replies: each kind has its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Calls,
    Replies,
}

/// A number of bytes that may be kept.
#[derive(Debug)]
pub(super) struct Memory {
    most: usize,
    used: usize,
    /// Bytes that are not here, and will be.
    expected: usize,
}

/// What one client has of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    used: usize,
    /// What of that is here.
    here: usize,
}

impl Share {
    /// Bytes of the client that are here.
    pub(super) fn here(self) -> usize {
        self.here
    }
}

/// A memory, what all clients of one user have of it together, and one of them.
pub(super) struct Of<'a> {
    pub(super) memory: &'a mut Memory,
    pub(super) user: &'a mut usize,
    pub(super) share: &'a mut Share,
}

impl Memory {
    /// Bytes that are not here, and will be.
    pub(super) fn expected(&self) -> usize {
        self.expected
    }

    /// One of so many bytes.
    pub(super) fn new(most: usize) -> Memory {
        Memory {
            most,
            used: 0,
            expected: 0,
        }
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Whether no other record may begin, whoever it is for.
    pub(super) fn is_full(&self) -> bool {
        self.used >= self.most
    }

    /// Whether so many bytes more of a client may come; none where another record is to begin, and nothing is
    /// known of it. What is expected counts as if it were here. The first rule that applies counts.
    ///
    /// 1. Nothing is free: no.
    /// 2. What it has and what its user has, together, are an eighth of what is free at most: yes. So it need not
    ///    wait for what is larger than its share, which may be never.
    /// 3. Otherwise what the client has and what its user has then, together, have to be less than what is free then.
    ///    So a client has a third at most while it is alone, and a user with many clients a half: of users that take
    ///    all they get, each leaves as much as it has.
    ///
    /// By rules 1 and 2 all is exceeded by one record at most.
    pub(super) fn has_room(&self, user: usize, share: Share, bytes: usize) -> bool {
        let taken = self.used + self.expected;
        let free = self.most.saturating_sub(taken);
        let had = share.used + user;
        // Each of the three numbers changes by these bytes.
        let then = had.saturating_add(bytes.saturating_mul(3));
        free > 0 && (had <= free / 8 || then < free)
    }
}

impl Of<'_> {
    /// So many bytes more are here.
    pub(super) fn add(&mut self, bytes: usize) {
        self.memory.used += bytes;
        self.share.here += bytes;
        self.share.used += bytes;
        *self.user += bytes;
    }

    /// So many bytes are here no more.
    pub(super) fn release(&mut self, bytes: usize) {
        self.memory.used -= bytes;
        self.share.here -= bytes;
        self.share.used -= bytes;
        *self.user -= bytes;
    }

    /// So many bytes more will come. Nobody but clients with more records waits for these.
    pub(super) fn expect(&mut self, bytes: usize) {
        self.memory.expected += bytes;
        self.share.used += bytes;
        *self.user += bytes;
    }

    /// So many bytes are expected no more.
    pub(super) fn expect_less(&mut self, bytes: usize) {
        self.memory.expected -= bytes;
        self.share.used -= bytes;
        *self.user -= bytes;
    }

    /// Bytes have come, of so many that are `expected`; how many of these are left.
    pub(super) fn arrived(&mut self, bytes: usize, expected: usize) -> usize {
        self.add(bytes);
        let came = bytes.min(expected);
        self.expect_less(came);
        expected - came
    }
}

/// What clients of a user keep together.
#[derive(Debug)]
pub(super) struct Kept {
    user: User,
    pub(super) calls: usize,
    pub(super) replies: usize,
    /// How many clients of it there are.
    clients: usize,
}

/// All users that have clients.
#[derive(Default)]
pub(super) struct Users {
    all: Arena<Kept>,
    by: HashMap<User, Id<Kept>>,
}

impl Users {
    /// A user has one client more.
    pub(super) fn enter(&mut self, user: User) -> Id<Kept> {
        let all = &mut self.all;
        let id = *self.by.entry(user).or_insert_with(|| {
            all.insert(Kept {
                user,
                calls: 0,
                replies: 0,
                clients: 0,
            })
        });
        if let Some(kept) = all.get_mut(id) {
            kept.clients += 1;
        }
        id
    }

    /// One client less, which keeps nothing.
    pub(super) fn leave(&mut self, id: Id<Kept>) {
        let Some(kept) = self.all.get_mut(id) else {
            return;
        };
        kept.clients -= 1;
        if kept.clients == 0 {
            self.by.remove(&kept.user);
            self.all.remove(id);
        }
    }

    /// What a user keeps.
    pub(super) fn kept(&self, id: Id<Kept>) -> Option<&Kept> {
        self.all.get(id)
    }

    /// The same, to be changed.
    pub(super) fn kept_mut(&mut self, id: Id<Kept>) -> Option<&mut Kept> {
        self.all.get_mut(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes records of so many bytes as long as it may; how many.
    fn fill(memory: &mut Memory, user: &mut usize, share: &mut Share, bytes: usize) -> usize {
        let mut count = 0;
        while memory.has_room(*user, *share, bytes) {
            Of {
                memory,
                user,
                share,
            }
            .add(bytes);
            count += 1;
        }
        count
    }

    #[test]
    fn nobody_takes_what_others_need() {
        let mut memory = Memory::new(1200);
        let mut shares = Vec::new();
        let mut take = |memory: &mut Memory, user: &mut usize| {
            let mut share = Share::default();
            let count = fill(memory, user, &mut share, 1);
            shares.push((share.here(), 0));
            count
        };
        let mut greedy = 0;
        // One client that takes all it gets has a third.
        assert_eq!(take(&mut memory, &mut greedy), 399);
        // With more and more connections its user has a half.
        for _ in 0..50 {
            take(&mut memory, &mut greedy);
        }
        assert!((590..=600).contains(&greedy), "{greedy}");
        // Another one like that leaves room, too; and so on.
        let mut second = [0; 5];
        let others: Vec<_> = second
            .iter_mut()
            .map(|user| take(&mut memory, user))
            .collect();
        assert!(others[0] >= 190 && others[4] > 30);
        let all = shares.iter().map(|(here, _)| here).sum::<usize>();
        assert_eq!(memory.used(), all);
        for here in shares.iter().map(|(here, _)| *here) {
            let mut share = Share { used: here, here };
            Of {
                memory: &mut memory,
                user: &mut here.clone(),
                share: &mut share,
            }
            .release(here);
        }
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn large_ones_take_no_more_together() {
        for bytes in [40, 100, 300, 700, 2000] {
            let mut memory = Memory::new(1200);
            let mut greedy = 0;
            for _ in 0..50 {
                fill(&mut memory, &mut greedy, &mut Share::default(), bytes);
            }
            assert!(greedy <= bytes.max(600), "{bytes}: {greedy}");
            // However large, one passes; and somebody else finds room unless that was all.
            assert!(greedy >= bytes);
            let room = memory.has_room(0, Share::default(), bytes);
            assert_eq!(room, bytes < 1200);
        }
    }

    #[test]
    fn what_comes_is_counted_once() {
        let (mut memory, mut user, mut share) = (Memory::new(1200), 0, Share::default());
        let mut of = Of {
            memory: &mut memory,
            user: &mut user,
            share: &mut share,
        };
        of.expect(300);
        let mut expected = 300;
        for (bytes, left) in [(100, 200), (190, 10), (14, 0)] {
            expected = of.arrived(bytes, expected);
            assert_eq!(expected, left);
            assert_eq!(of.share.used, of.share.here + left);
        }
        assert_eq!((of.memory.used(), of.share.used), (304, 304));
        of.release(304);
        assert_eq!((memory.used(), memory.expected, user), (0, 0, 0));
    }

    #[test]
    fn a_user_is_known_as_long_as_it_has_clients() {
        let mut users = Users::default();
        let one = users.enter(User::Local(1));
        assert_eq!(users.enter(User::Local(1)), one);
        users.leave(one);
        assert!(users.kept(one).is_some());
        users.leave(one);
        assert!(users.kept(one).is_none() && users.by.is_empty());
    }
}
