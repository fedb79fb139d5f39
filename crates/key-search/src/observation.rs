//! What is known of one flow: which hashes would have sent it where it went.

use std::ops::RangeInclusive;

use raddle_select::{Keys, Lanes, MAX_HASH, UnderSeeds, compile_threshold};

/// A flow, and the ranges of the 31-bit hash of which one holds its hash.
#[derive(Clone, Debug)]
pub struct Observation {
    hashed: UnderSeeds,
    ranges: Vec<RangeInclusive<u32>>,
}

impl Observation {
    /// A flow with these keys, whose hash lies in one of these ranges, which do not overlap.
    pub fn new(keys: &Keys, mut ranges: Vec<RangeInclusive<u32>>) -> Observation {
        ranges.retain(|range| !range.is_empty());
        Observation {
            hashed: UnderSeeds::new(keys),
            ranges,
        }
    }

    /// A flow that took one of the members that `took` names, of a route or group with these upper bounds, all of whose
    /// members are good ([`raddle_select::choose_plain`]).
    pub fn of_member(
        keys: &Keys,
        uppers: &[Option<u32>],
        took: impl Fn(usize) -> bool,
    ) -> Observation {
        let mut ranges = Vec::new();
        let mut low = 0;
        for (upper, member) in compile_threshold(uppers, |_| true) {
            if took(member) {
                ranges.push(low..=upper);
            }
            low = upper.saturating_add(1);
        }
        Observation::new(keys, ranges)
    }

    /// The share of all hashes that fit.
    pub fn share(&self) -> f64 {
        let fit = |range: &RangeInclusive<u32>| f64::from(range.end() - range.start()) + 1.0;
        let fitting: f64 = self.ranges.iter().map(fit).sum();
        fitting / (f64::from(MAX_HASH) + 1.0)
    }

    /// What it tells, in bits: 2 for one path of four equal ones.
    pub fn bits(&self) -> f64 {
        -self.share().log2()
    }

    /// Words that are hashed for one seed.
    pub(crate) fn cost(&self) -> usize {
        self.hashed.words()
    }

    /// Leaves in `seeds` those that fit, in order.
    pub(crate) fn keep_fitting(&self, lanes: Lanes, seeds: &mut Vec<u32>) {
        let mut hashes = [0; UnderSeeds::ROOM];
        let mut kept = 0;
        let mut from = 0;
        while from < seeds.len() {
            let to = seeds.len().min(from + UnderSeeds::ROOM);
            self.hashed.hash31(lanes, &seeds[from..to], &mut hashes);
            for (place, hash) in (from..to).zip(hashes) {
                // Without a branch: which seeds fit is a coin's toss. `kept` is never beyond `place`.
                seeds[kept] = seeds[place];
                kept += usize::from(self.fits(hash));
            }
            from = to;
        }
        seeds.truncate(kept);
    }

    #[inline]
    fn fits(&self, hash: u32) -> bool {
        match self.ranges.as_slice() {
            [range] => hash.wrapping_sub(*range.start()) <= range.end() - range.start(),
            ranges => ranges.iter().any(|range| range.contains(&hash)),
        }
    }
}
