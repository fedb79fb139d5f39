//! How much may be kept at once: who would exceed it waits before reading more. Each client has a share, so that one
//! that sends much, or takes no replies, leaves room for the others.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

/// How often somebody whose share is used up looks whether others have given some back.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// A number of bytes that may be kept.
#[derive(Debug)]
pub(super) struct Memory {
    most: usize,
    used: Cell<usize>,
    /// Bytes that are not here, and will be.
    expected: Cell<usize>,
    freed: Notify,
}

/// What all clients of one user have together.
pub(super) type User = Rc<Cell<usize>>;

/// What one client has of it.
#[derive(Debug)]
pub(super) struct Share {
    memory: Rc<Memory>,
    user: User,
    used: Cell<usize>,
    /// What of that is here.
    here: Cell<usize>,
    freed: Notify,
}

impl Memory {
    pub(super) fn new(most: usize) -> Rc<Memory> {
        Rc::new(Memory {
            most,
            used: Cell::new(0),
            expected: Cell::new(0),
            freed: Notify::new(),
        })
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> usize {
        self.used.get()
    }

    /// A client's share, and its user's.
    pub(super) fn share(self: &Rc<Memory>, user: &User) -> Rc<Share> {
        Rc::new(Share {
            memory: Rc::clone(self),
            user: Rc::clone(user),
            used: Cell::new(0),
            here: Cell::new(0),
            freed: Notify::new(),
        })
    }

    /// Whether no other record may begin, whoever it is for.
    pub(super) fn is_full(&self) -> bool {
        self.used.get() >= self.most
    }

    /// Waits until something is given back.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Has who waits behind us look for room, too.
    pub(super) fn pass_on(&self) {
        self.freed.notify_one();
    }

    /// Waits until another record may begin, whoever it is for.
    pub(super) async fn room(&self) {
        while self.is_full() {
            self.freed().await;
        }
        self.pass_on();
    }
}

impl Share {
    /// Whether so many bytes more of this client may come; none where another record is to begin, and nothing is
    /// known of it. What is expected counts as if it were here.
    ///
    /// 1. Nothing may while all is in use.
    /// 2. Who has next to nothing may: what the client has and what its user has are an eighth of what is free
    ///    together, at most. Else who sends records larger than a third of all would wait until its user has nothing
    ///    at all, which may be never.
    /// 3. Otherwise what the client has and what its user has then, together, have to be less than what is free then.
    ///    So a client has a third at most while it is alone, and a user with many clients a half: of users that take
    ///    all they get, each leaves as much as it has.
    ///
    /// By rules 1 and 2 all is exceeded by one record at most.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let taken = self.memory.used.get() + self.memory.expected.get();
        let free = self.memory.most.saturating_sub(taken);
        let had = self.used.get() + self.user.get();
        // Each of the three numbers changes by these bytes.
        let then = had.saturating_add(bytes.saturating_mul(3));
        free > 0 && (had <= free / 8 || then < free)
    }

    /// Bytes of the client that are here.
    pub(super) fn here(&self) -> usize {
        self.here.get()
    }

    /// Waits until so many bytes more of this client may come.
    pub(super) async fn room(&self, bytes: usize) {
        while !self.has_room(bytes) {
            // What others give back counts, too.
            let _ = timeout(LOOK, self.freed.notified()).await;
        }
    }

    /// Takes bytes, whether there is room or not.
    pub(super) fn charge(self: &Rc<Share>, bytes: usize) -> Charge {
        self.take(bytes, false)
    }

    /// Takes bytes that will come. Nobody but clients with more records waits for these.
    pub(super) fn expect(self: &Rc<Share>, bytes: usize) -> Charge {
        self.take(bytes, true)
    }

    fn take(self: &Rc<Share>, bytes: usize, expected: bool) -> Charge {
        let charge = Charge {
            share: Rc::clone(self),
            expected,
            bytes: Cell::new(0),
        };
        charge.add(bytes);
        charge
    }
}

/// Bytes in use; given back when dropped.
#[derive(Debug)]
pub(super) struct Charge {
    share: Rc<Share>,
    expected: bool,
    bytes: Cell<usize>,
}

impl Charge {
    /// So many bytes more, or less.
    fn change(&self, change: impl Fn(usize) -> usize) {
        let share = &self.share;
        let all = match self.expected {
            true => &share.memory.expected,
            false => &share.memory.used,
        };
        for used in [all, &share.user, &share.used] {
            used.set(change(used.get()));
        }
        if !self.expected {
            share.here.set(change(share.here.get()));
        }
    }

    /// Bytes that it is of.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// More bytes.
    pub(super) fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
        self.change(|used| used + bytes);
    }

    /// Bytes of `expected` have come, and are these now.
    pub(super) fn arrived(&self, bytes: usize, expected: &Charge) {
        self.add(bytes);
        let came = bytes.min(expected.bytes.get());
        expected.bytes.set(expected.bytes.get() - came);
        expected.change(|used| used - came);
    }

    /// Gives all of them back.
    pub(super) fn release(&self) {
        let bytes = self.bytes.take();
        self.change(|used| used - bytes);
        self.share.freed.notify_one();
        let memory = &self.share.memory;
        if memory.used.get() < memory.most {
            memory.freed.notify_one();
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes records of so many bytes as long as it may; how many.
    fn fill(share: &Rc<Share>, bytes: usize) -> Vec<Charge> {
        let mut all = Vec::new();
        while share.has_room(bytes) {
            all.push(share.charge(bytes));
        }
        all
    }

    #[test]
    fn nobody_takes_what_others_need() {
        let memory = Memory::new(1200);
        let user = || Rc::new(Cell::new(0));
        let greedy = user();
        // One client that takes all it gets has a third.
        let first = fill(&memory.share(&greedy), 1);
        assert_eq!(first.len(), 399);
        // With more and more connections its user has a half.
        let more: Vec<_> = (0..50).map(|_| fill(&memory.share(&greedy), 1)).collect();
        assert!((590..=600).contains(&greedy.get()), "{}", greedy.get());
        // Another one like that leaves room, too; and so on.
        let second: Vec<_> = (0..5).map(|_| user()).collect();
        let others: Vec<_> = second
            .iter()
            .map(|user| fill(&memory.share(user), 1))
            .collect();
        assert!(others[0].len() >= 190 && others[4].len() > 30);
        drop((first, more, others));
        assert_eq!((memory.used(), greedy.get()), (0, 0));
    }

    #[test]
    fn large_ones_take_no_more_together() {
        for bytes in [40, 100, 300, 700, 2000] {
            let memory = Memory::new(1200);
            let greedy = Rc::new(Cell::new(0));
            let all: Vec<_> = (0..50)
                .map(|_| fill(&memory.share(&greedy), bytes))
                .collect();
            assert!(greedy.get() <= bytes.max(600), "{bytes}: {}", greedy.get());
            // However large, one passes; and somebody else finds room unless that was all.
            assert!(greedy.get() >= bytes);
            let other = memory.share(&Rc::default());
            assert_eq!(other.has_room(bytes), bytes < 1200);
            drop(all);
        }
    }

    #[test]
    fn what_comes_is_counted_once() {
        let memory = Memory::new(1200);
        let share = memory.share(&Rc::default());
        let (expected, here) = (share.expect(300), share.charge(0));
        for (bytes, left) in [(100, 200), (190, 10), (14, 0)] {
            here.arrived(bytes, &expected);
            assert_eq!(expected.bytes.get(), left);
            assert_eq!(share.used.get(), here.bytes.get() + left);
        }
        assert_eq!((memory.used(), share.used.get()), (304, 304));
        drop((expected, here));
        assert_eq!((memory.used(), memory.expected.get()), (0, 0));
    }
}
