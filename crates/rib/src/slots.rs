//! Numbers and runs in the image that may be given out again only when no reader can still hold
//! them.

use std::collections::VecDeque;

/// Numbers below a fixed capacity.
#[derive(Debug)]
pub(crate) struct Slots {
    next: u32,
    capacity: u32,
    /// What was given back first is given out first.
    free: VecDeque<u32>,
    /// Given back, but a reader may still hold them.
    limbo: Vec<u32>,
}

impl Slots {
    pub(crate) fn new(first: u32, capacity: usize) -> Slots {
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
        Slots {
            next: first,
            capacity,
            free: VecDeque::new(),
            limbo: Vec::new(),
        }
    }

    /// A number that nobody holds. Asks `grace` to wait for all readers when only that helps.
    pub(crate) fn take(&mut self, grace: &dyn Fn()) -> Option<u32> {
        if let Some(n) = self.free.pop_front() {
            return Some(n);
        }
        if self.next < self.capacity {
            self.next += 1;
            return Some(self.next - 1);
        }
        if self.limbo.is_empty() {
            return None;
        }
        grace();
        self.free.extend(self.limbo.drain(..));
        self.free.pop_front()
    }

    pub(crate) fn give_back(&mut self, n: u32) {
        self.limbo.push(n);
    }

    /// How many are in use.
    pub(crate) fn used(&self) -> usize {
        self.next as usize - self.free.len() - self.limbo.len()
    }
}

/// Runs of consecutive numbers, in sizes of powers of two.
#[derive(Debug)]
pub(crate) struct Runs {
    next: u32,
    capacity: u32,
    free: [Vec<u32>; 17],
    limbo: Vec<(u32, u8)>,
}

impl Runs {
    pub(crate) fn new(capacity: usize) -> Runs {
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
        Runs {
            next: 0,
            capacity,
            free: std::array::from_fn(|_| Vec::new()),
            limbo: Vec::new(),
        }
    }

    /// Runs are of at most 65,536 numbers.
    fn class(count: u32) -> Option<u8> {
        let class = count.checked_next_power_of_two()?.trailing_zeros() as u8;
        (class < 17).then_some(class)
    }

    pub(crate) fn take(&mut self, count: u32, grace: &dyn Fn()) -> Option<u32> {
        let class = Runs::class(count)?;
        if let Some(first) = self.take_free(class) {
            return Some(first);
        }
        let size = 1u32 << class;
        if self.capacity - self.next >= size {
            self.next += size;
            return Some(self.next - size);
        }
        if self.limbo.is_empty() {
            return None;
        }
        grace();
        for (first, class) in std::mem::take(&mut self.limbo) {
            self.free[usize::from(class)].push(first);
        }
        self.take_free(class)
    }

    /// A free run of this class, splitting a larger one where there is no other.
    fn take_free(&mut self, class: u8) -> Option<u32> {
        let from = (class..17).find(|&c| !self.free[usize::from(c)].is_empty())?;
        let first = self.free[usize::from(from)].pop()?;
        for c in (class..from).rev() {
            self.free[usize::from(c)].push(first + (1 << c));
        }
        Some(first)
    }

    pub(crate) fn give_back(&mut self, first: u32, count: u32) {
        if let Some(class) = Runs::class(count) {
            self.limbo.push((first, class));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_number_comes_back_only_after_grace() {
        let waited = Cell::new(0);
        let grace = || waited.set(waited.get() + 1);
        let mut slots = Slots::new(1, 3);
        assert_eq!((slots.take(&grace), slots.take(&grace)), (Some(1), Some(2)));
        assert_eq!(slots.take(&grace), None);
        slots.give_back(1);
        assert_eq!((slots.take(&grace), waited.get()), (Some(1), 1));
    }

    #[test]
    fn runs_do_not_overlap() {
        let mut runs = Runs::new(64);
        let a = runs.take(5, &|| ()).unwrap();
        let b = runs.take(3, &|| ()).unwrap();
        assert!(a + 8 <= b || b + 4 <= a);
        runs.give_back(a, 5);
        let mut got: Vec<u32> = std::iter::from_fn(|| runs.take(2, &|| ())).collect();
        got.sort_unstable();
        got.dedup();
        assert_eq!(got.len(), (64 - 4) / 2);
        assert!(got.iter().all(|&r| r + 2 <= b || r >= b + 4));
    }
}
