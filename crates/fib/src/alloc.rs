//! Hands out runs of units inside a region, and takes them back after a grace period.
//!
//! What is free is kept in a bitmap, so that neighbouring free runs are one run without any
//! bookkeeping. Everything else only says where to look: bins by length for short runs, a sweep
//! for long ones, and a chunk that is handed out piece by piece. Short runs are taken from the
//! lowest long run there is and long runs from the top, so that the two stay apart.
//!
//! Invariant: every maximal free run of at most [`SHORT`] units has an entry in some bin that
//! points into it, and every longer one ends beyond the place where the sweep stands.

use std::ops::Range;

/// Runs up to this length have bins of their own.
pub(crate) const SHORT: u32 = 512;
/// Units that are set aside at once to be handed out piece by piece.
const CHUNK: u32 = 4096;

/// An allocator of runs of units, numbered from 0.
#[derive(Debug)]
pub(crate) struct Runs {
    /// One bit a unit: in use, in limbo or in the chunk.
    taken: Vec<u64>,
    units: u32,
    free: u32,
    bins: Vec<Vec<u32>>,
    /// One bit a bin: not empty.
    stocked: [u64; (SHORT as usize >> 6) + 1],
    hints: usize,
    hints_allowed: usize,
    chunk: Range<u32>,
    sweep: u32,
    limbo: Vec<(u32, u32)>,
    limbo_units: u32,
}

impl Runs {
    /// `units` free units but for the first `reserved`, which are never handed out.
    pub(crate) fn new(units: usize, reserved: u32) -> Runs {
        let units = u32::try_from(units).unwrap_or(u32::MAX - SHORT);
        let mut runs = Runs {
            taken: vec![0; (units as usize).div_ceil(64)],
            units,
            free: units,
            bins: vec![Vec::new(); SHORT as usize + 1],
            stocked: [0; (SHORT as usize >> 6) + 1],
            hints: 0,
            hints_allowed: 0,
            chunk: 0..0,
            sweep: 0,
            limbo: Vec::new(),
            limbo_units: 0,
        };
        let reserved = reserved.min(units);
        runs.mark(0, reserved);
        runs.free -= reserved;
        runs.fill_bins();
        runs
    }

    /// All units there are.
    pub(crate) fn units(&self) -> usize {
        self.units as usize
    }

    /// Units that can be handed out, perhaps not in a row.
    pub(crate) fn free(&self) -> usize {
        self.free as usize
    }

    /// Units that wait for a grace period.
    pub(crate) fn limbo(&self) -> usize {
        self.limbo_units as usize
    }

    /// A run of `n > 0` units, or nothing when there is none as long as that. Amortised O(1) for
    /// short runs.
    pub(crate) fn alloc(&mut self, n: u32) -> Option<u32> {
        if n > SHORT {
            return self.alloc_high(n);
        }
        if n > self.free {
            return None;
        }
        self.exact(n)
            .or_else(|| self.chunked(n))
            .or_else(|| self.split(n))
    }

    /// The highest run of `n > 0` units. Cost: the number of free runs above it.
    pub(crate) fn alloc_high(&mut self, n: u32) -> Option<u32> {
        if n > self.free {
            return None;
        }
        let run = self.highest(n).or_else(|| {
            self.put_chunk_back();
            self.highest(n)
        })?;
        let start = run.end - n;
        self.take(start, n);
        self.note(run.start..start);
        Some(start)
    }

    /// Gives back a run that no reader can know of.
    pub(crate) fn release(&mut self, start: u32, n: u32) {
        debug_assert!((start..start + n).all(|u| self.is_taken(u)), "freed twice");
        self.clear(start, n);
        self.free += n;
        let run = self.around(start);
        self.note(run);
    }

    /// Gives back a run that readers may still hold, after the next [`Runs::reclaim`].
    pub(crate) fn retire(&mut self, start: u32, n: u32) {
        self.limbo.push((start, n));
        self.limbo_units += n;
    }

    /// Makes retired runs free. To be called after a grace period only.
    pub(crate) fn reclaim(&mut self) {
        for (start, n) in std::mem::take(&mut self.limbo) {
            self.release(start, n);
        }
        self.limbo_units = 0;
    }

    // ---- where to take from ------------------------------------------------------------------

    /// Takes a free run of exactly `n` units.
    fn exact(&mut self, n: u32) -> Option<u32> {
        while let Some(hint) = self.pop(n) {
            if self.is_taken(hint) {
                continue;
            }
            let run = self.around(hint);
            if run.end - run.start == n {
                self.take(run.start, n);
                return Some(run.start);
            }
            self.note(run);
        }
        None
    }

    /// Takes `n` units from the chunk, or from the next one.
    fn chunked(&mut self, n: u32) -> Option<u32> {
        while self.chunk.end - self.chunk.start < n {
            self.put_chunk_back();
            self.next_chunk()?;
        }
        let start = self.chunk.start;
        self.chunk.start += n;
        self.free -= n;
        Some(start)
    }

    /// Takes the start of a longer free run; what is left of it is noted.
    fn split(&mut self, n: u32) -> Option<u32> {
        while let Some(bin) = self.stocked_bin(n + 1) {
            let Some(hint) = self.pop(bin) else { continue };
            if self.is_taken(hint) {
                continue;
            }
            let run = self.around(hint);
            if run.end - run.start >= n {
                self.take(run.start, n);
                self.note(run.start + n..run.end);
                return Some(run.start);
            }
            self.note(run);
        }
        None
    }

    fn put_chunk_back(&mut self) {
        let chunk = std::mem::take(&mut self.chunk);
        if !chunk.is_empty() {
            self.clear(chunk.start, chunk.end - chunk.start);
            let run = self.around(chunk.start);
            self.note(run);
        }
    }

    /// Sets the next long free run aside, or a part of it.
    fn next_chunk(&mut self) -> Option<()> {
        let mut at = self.sweep;
        loop {
            let start = self.next_free(at);
            if start >= self.units {
                self.sweep = self.units;
                return None;
            }
            // What a chunk leaves behind must be long, or nobody would find it again.
            let limit = (start + CHUNK + SHORT + 1).min(self.units);
            let end = self.free_until(start, limit);
            if end - start > SHORT {
                let end = if end == limit && limit < self.units {
                    start + CHUNK
                } else {
                    end
                };
                self.mark(start, end - start);
                self.chunk = start..end;
                self.sweep = end;
                return Some(());
            }
            at = end;
        }
    }

    /// The highest free run of at least `n` units.
    fn highest(&self, n: u32) -> Option<Range<u32>> {
        let mut top = self.units;
        loop {
            let end = self.last_free(top)?;
            let start = self.free_from(end, 0);
            if end - start >= n {
                return Some(start..end);
            }
            top = start;
        }
    }

    // ---- bins --------------------------------------------------------------------------------

    /// Remembers a free run.
    fn note(&mut self, run: Range<u32>) {
        let len = run.end - run.start;
        if len == 0 {
            return;
        }
        if len > SHORT {
            self.sweep = self.sweep.min(run.start);
            return;
        }
        self.bins[len as usize].push(run.start);
        self.stocked[len as usize >> 6] |= 1 << (len & 63);
        self.hints += 1;
        if self.hints > self.hints_allowed {
            self.fill_bins();
        }
    }

    fn pop(&mut self, len: u32) -> Option<u32> {
        let hint = self.bins[len as usize].pop();
        match hint {
            Some(_) => self.hints -= 1,
            None => self.stocked[len as usize >> 6] &= !(1 << (len & 63)),
        }
        hint
    }

    fn stocked_bin(&self, from: u32) -> Option<u32> {
        let mut word = from as usize >> 6;
        let mut bits = self.stocked.get(word)? & (u64::MAX << (from & 63));
        while bits == 0 {
            word += 1;
            bits = *self.stocked.get(word)?;
        }
        Some((word as u32) << 6 | bits.trailing_zeros())
    }

    /// Fills the bins from the bitmap, which gets rid of entries that went stale.
    fn fill_bins(&mut self) {
        self.bins.iter_mut().for_each(Vec::clear);
        self.stocked = [0; (SHORT as usize >> 6) + 1];
        self.hints = 0;
        self.hints_allowed = usize::MAX;
        let mut at = 0;
        loop {
            let start = self.next_free(at);
            if start >= self.units {
                break;
            }
            at = self.free_until(start, self.units);
            self.note(start..at);
        }
        self.hints_allowed = 2 * self.hints + self.units as usize / 8 + 64;
    }

    // ---- the bitmap --------------------------------------------------------------------------

    fn take(&mut self, start: u32, n: u32) {
        self.mark(start, n);
        self.free -= n;
    }

    fn is_taken(&self, unit: u32) -> bool {
        self.taken[unit as usize >> 6] >> (unit & 63) & 1 != 0
    }

    /// The free run around a free unit, looking no further than makes it long.
    fn around(&self, unit: u32) -> Range<u32> {
        let start = self.free_from(unit, unit.saturating_sub(SHORT));
        start..self.free_until(unit, (unit + SHORT + 1).min(self.units))
    }

    fn mark(&mut self, start: u32, n: u32) {
        self.each_word(start, n, |word, bits| *word |= bits);
    }

    fn clear(&mut self, start: u32, n: u32) {
        self.each_word(start, n, |word, bits| *word &= !bits);
    }

    fn each_word(&mut self, start: u32, n: u32, change: impl Fn(&mut u64, u64)) {
        let (mut at, end) = (start, start + n);
        while at < end {
            let here = (64 - (at & 63)).min(end - at);
            let bits = (u64::MAX >> (64 - here)) << (at & 63);
            change(&mut self.taken[at as usize >> 6], bits);
            at += here;
        }
    }

    /// The first free unit at `at` or later, or the number of units.
    fn next_free(&self, mut at: u32) -> u32 {
        while at < self.units {
            let bits = !self.taken[at as usize >> 6] >> (at & 63);
            if bits != 0 {
                return (at + bits.trailing_zeros()).min(self.units);
            }
            at = (at | 63) + 1;
        }
        self.units
    }

    /// The first taken unit at `at` or later, or `limit`.
    fn free_until(&self, mut at: u32, limit: u32) -> u32 {
        while at < limit {
            let bits = self.taken[at as usize >> 6] >> (at & 63);
            if bits != 0 {
                return (at + bits.trailing_zeros()).min(limit);
            }
            at = (at | 63) + 1;
        }
        limit
    }

    /// The end of the last free run that ends at `top` or before.
    fn last_free(&self, mut top: u32) -> Option<u32> {
        while top > 0 {
            let last = top - 1;
            let bits = !self.taken[last as usize >> 6] << (63 - (last & 63));
            if bits != 0 {
                return Some(top - bits.leading_zeros());
            }
            top = last & !63;
        }
        None
    }

    /// The start of the free units before `end`, no lower than `floor`.
    fn free_from(&self, end: u32, floor: u32) -> u32 {
        let mut at = end;
        while at > floor {
            let last = at - 1;
            let bits = self.taken[last as usize >> 6] << (63 - (last & 63));
            if bits != 0 {
                return (at - bits.leading_zeros()).max(floor);
            }
            at = last & !63;
        }
        floor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// xorshift: tests here need speed and repeatability, not quality.
    struct Dice(u64);
    impl Dice {
        fn roll(&mut self, below: u32) -> u32 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (((self.0 >> 32) * u64::from(below)) >> 32) as u32
        }
    }

    /// Marks what the allocator says is ours, and fails where it was ours before.
    fn own(map: &mut [bool], start: u32, n: u32) {
        for unit in &mut map[start as usize..(start + n) as usize] {
            assert!(!*unit, "handed out twice");
            *unit = true;
        }
    }

    #[test]
    fn runs_do_not_overlap_and_everything_comes_back() {
        for units in [70u32, 513, 5000, 100_000] {
            let mut runs = Runs::new(units as usize, 3);
            let mut map = vec![false; units as usize];
            own(&mut map, 0, 3);
            let (mut held, mut dice) = (Vec::new(), Dice(0x9e37_79b9 + u64::from(units)));
            for _ in 0..40_000 {
                let n = match dice.roll(100) {
                    0 => 1 + dice.roll(2000),
                    1..5 => 1 + dice.roll(600),
                    _ => 1 + dice.roll(40),
                };
                if dice.roll(2) == 0 {
                    let run = if dice.roll(20) == 0 {
                        runs.alloc_high(n)
                    } else {
                        runs.alloc(n)
                    };
                    if let Some(start) = run {
                        own(&mut map, start, n);
                        held.push((start, n));
                    }
                } else if !held.is_empty() {
                    let i = dice.roll(held.len() as u32) as usize;
                    let (start, n) = held.swap_remove(i);
                    map[start as usize..(start + n) as usize].fill(false);
                    if dice.roll(2) == 0 {
                        runs.release(start, n);
                    } else {
                        runs.retire(start, n);
                        // Limbo must not be handed out, so it stays marked until it is free.
                        map[start as usize..(start + n) as usize].fill(true);
                        if dice.roll(50) == 0 {
                            for &(start, n) in &runs.limbo {
                                map[start as usize..(start + n) as usize].fill(false);
                            }
                            runs.reclaim();
                        }
                    }
                }
                assert!(runs.hints <= runs.hints_allowed);
            }
            runs.reclaim();
            for (start, n) in held {
                runs.release(start, n);
            }
            assert_eq!(runs.free(), units as usize - 3);
            assert_eq!(runs.alloc_high(units - 3), Some(3), "one run again");
        }
    }

    #[test]
    fn a_run_that_exists_is_found() {
        // Every run that the bitmap holds must be found, however the holes came about.
        let mut dice = Dice(77);
        for round in 0..200 {
            let units = 600 + dice.roll(2000);
            let mut runs = Runs::new(units as usize, 0);
            let mut held: Vec<(u32, u32)> = Vec::new();
            while let Some((start, n)) = {
                let n = 1 + dice.roll(30);
                runs.alloc(n).map(|s| (s, n))
            } {
                held.push((start, n));
            }
            for _ in 0..held.len() / 3 {
                let (start, n) = held.swap_remove(dice.roll(held.len() as u32) as usize);
                runs.release(start, n);
            }
            let mut longest = 0;
            let mut at = 0;
            while at < units {
                let start = runs.next_free(at);
                at = runs.free_until(start, units);
                longest = longest.max(at - start);
                at = at.max(start + 1);
            }
            let n = longest.min(SHORT);
            assert!(runs.alloc(n).is_some(), "round {round}: {n} units in a row");
        }
    }

    #[test]
    fn churn_at_high_fill_does_not_fragment_to_death() {
        let units = 1u32 << 16;
        let mut runs = Runs::new(units as usize, 1);
        let (mut held, mut dice) = (Vec::new(), Dice(4242));
        let mut used = 0;
        // Lengths like those of leaf runs: mostly short, some long.
        let length = |dice: &mut Dice| {
            let most = [5, 9, 17, 33][dice.roll(4) as usize];
            1 + dice.roll(most)
        };
        while used < units / 10 * 8 {
            let n = length(&mut dice);
            held.push((runs.alloc(n).unwrap(), n));
            used += n;
        }
        for round in 0..500_000 {
            let i = dice.roll(held.len() as u32) as usize;
            let n = length(&mut dice);
            if used + n > units / 100 * 81 {
                let (start, n) = held.swap_remove(i);
                runs.release(start, n);
                used -= n;
                continue;
            }
            let start = runs.alloc(n);
            assert!(
                start.is_some(),
                "round {round}: no run of {n} at {used} used"
            );
            held.extend(start.map(|s| (s, n)));
            used += n;
        }
    }

    #[test]
    fn long_runs_stay_away_from_short_ones() {
        let mut runs = Runs::new(100_000, 0);
        let short: Vec<u32> = (0..100).filter_map(|_| runs.alloc(1)).collect();
        let long = runs.alloc_high(256).unwrap();
        assert_eq!(long, 100_000 - 256);
        assert!(short.iter().all(|&s| s < 100));
        runs.release(long, 256);
        assert_eq!(runs.alloc(1), Some(100));
    }
}
