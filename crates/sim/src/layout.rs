//! Which path each hash takes.

use raddle_select::{MAX_HASH, search_by};

/// How many hashes there are: 2^31.
pub const SPACE: u64 = 1 << 31;

/// A path's number; none where a hash leads nowhere that raddle knows.
pub type Path = Option<usize>;

/// Which path each hash takes. The empty layout leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Nowhere,
    /// Upper bounds, strictly ascending, the last one the largest hash; and paths.
    Ranges(Vec<(u32, usize)>),
    /// The path of each bucket; the bucket is the hash modulo their number.
    Buckets(Vec<usize>),
}

impl Layout {
    /// No hash has a path.
    pub fn nowhere() -> Layout {
        Layout(Kind::Nowhere)
    }

    /// One path for all hashes.
    pub fn one(path: usize) -> Layout {
        Layout(Kind::Ranges(vec![(MAX_HASH, path)]))
    }

    /// Hash-threshold: upper bounds and paths, ascending, as [`raddle_select::compile_threshold`] makes
    /// them. Without any, nowhere.
    pub fn ranges(ranges: Vec<(u32, usize)>) -> Layout {
        match ranges.is_empty() {
            true => Layout::nowhere(),
            false => Layout(Kind::Ranges(ranges)),
        }
    }

    /// A resilient group's buckets and their paths. Without any, nowhere.
    pub fn buckets(owners: Vec<usize>) -> Layout {
        match owners.is_empty() {
            true => Layout::nowhere(),
            false => Layout(Kind::Buckets(owners)),
        }
    }

    /// The same with other numbers for the paths.
    pub fn renumbered(&self, number: impl Fn(usize) -> usize) -> Layout {
        Layout(match &self.0 {
            Kind::Nowhere => Kind::Nowhere,
            Kind::Ranges(list) => {
                Kind::Ranges(list.iter().map(|(upper, p)| (*upper, number(*p))).collect())
            }
            Kind::Buckets(list) => Kind::Buckets(list.iter().map(|p| number(*p)).collect()),
        })
    }

    /// The path of a 31-bit hash. O(log n) for ranges, O(1) for buckets.
    #[inline]
    pub fn path(&self, hash31: u32) -> Path {
        match &self.0 {
            Kind::Nowhere => None,
            Kind::Ranges(list) => {
                let at = search_by(list.len(), hash31, |i| list[i].0);
                list.get(at).map(|(_, path)| *path)
            }
            Kind::Buckets(list) => list.get(hash31 as usize % list.len()).copied(),
        }
    }

    /// How many of the 2^31 hashes each path has, by number; paths that have none may be missing at
    /// the end.
    pub fn shares(&self) -> Vec<u64> {
        let mut shares = Vec::new();
        self.pieces_in(SPACE).for_each(|(path, hashes)| {
            if shares.len() <= path {
                shares.resize(path + 1, 0);
            }
            shares[path] += hashes;
        });
        shares
    }

    /// Paths and how many hashes below `space` each piece has.
    fn pieces_in(&self, space: u64) -> impl Iterator<Item = (usize, u64)> + '_ {
        let (ranges, buckets) = match &self.0 {
            Kind::Nowhere => (&[][..], &[][..]),
            Kind::Ranges(list) => (list.as_slice(), &[][..]),
            Kind::Buckets(list) => (&[][..], list.as_slice()),
        };
        let mut from = 0;
        let ranges = ranges.iter().map(move |(upper, path)| {
            let end = u64::from(*upper) + 1;
            (*path, end - std::mem::replace(&mut from, end))
        });
        let count = buckets.len() as u64;
        let buckets = buckets
            .iter()
            .enumerate()
            .map(move |(bucket, path)| (*path, below(space, bucket as u64, count)));
        ranges.chain(buckets)
    }

    /// Calls `each` with every pair of paths that one hash has before and after, and how many hashes
    /// below `space` that are; pairs may come several times. Ranges end at `space`.
    pub(crate) fn compare_in(
        &self,
        after: &Layout,
        space: u64,
        mut each: impl FnMut(Path, Path, u64),
    ) {
        match (&self.0, &after.0) {
            (Kind::Nowhere, Kind::Nowhere) => each(None, None, space),
            (Kind::Nowhere, _) => after
                .pieces_in(space)
                .for_each(|(p, n)| each(None, Some(p), n)),
            (_, Kind::Nowhere) => self
                .pieces_in(space)
                .for_each(|(p, n)| each(Some(p), None, n)),
            (Kind::Ranges(a), Kind::Ranges(b)) => ranges_and_ranges(a, b, each),
            (Kind::Ranges(a), Kind::Buckets(b)) => ranges_and_buckets(a, b, each),
            (Kind::Buckets(a), Kind::Ranges(b)) => {
                ranges_and_buckets(b, a, |to, from, n| each(from, to, n));
            }
            (Kind::Buckets(a), Kind::Buckets(b)) => buckets_and_buckets(a, b, space, each),
        }
    }
}

/// How many numbers below `end` leave the remainder `bucket` when divided by `count`.
fn below(end: u64, bucket: u64, count: u64) -> u64 {
    (end + count - 1 - bucket) / count
}

/// Both are walked together, from bound to bound.
fn ranges_and_ranges(
    a: &[(u32, usize)],
    b: &[(u32, usize)],
    mut each: impl FnMut(Path, Path, u64),
) {
    let (mut i, mut j, mut from) = (0, 0, 0);
    while let (Some((upper_a, path_a)), Some((upper_b, path_b))) = (a.get(i), b.get(j)) {
        let upper = *upper_a.min(upper_b);
        let end = u64::from(upper) + 1;
        if end > from {
            each(Some(*path_a), Some(*path_b), end - from);
        }
        from = end;
        i += usize::from(*upper_a == upper);
        j += usize::from(*upper_b == upper);
    }
}

/// Each range holds every bucket's hashes at equal distances.
fn ranges_and_buckets(
    ranges: &[(u32, usize)],
    buckets: &[usize],
    mut each: impl FnMut(Path, Path, u64),
) {
    let count = buckets.len() as u64;
    let mut from = 0;
    for (upper, path) in ranges {
        let end = u64::from(*upper) + 1;
        for (bucket, owner) in buckets.iter().enumerate() {
            let hashes = below(end, bucket as u64, count) - below(from, bucket as u64, count);
            if hashes > 0 {
                each(Some(*path), Some(*owner), hashes);
            }
        }
        from = end;
    }
}

/// The pair of buckets repeats after the least common multiple of their numbers.
fn buckets_and_buckets(
    a: &[usize],
    b: &[usize],
    space: u64,
    mut each: impl FnMut(Path, Path, u64),
) {
    let (n, m) = (a.len() as u64, b.len() as u64);
    let period = (n / greatest_common_divisor(n, m) * m).min(space);
    for (hash, (from, to)) in (0..period).zip(a.iter().cycle().zip(b.iter().cycle())) {
        each(Some(*from), Some(*to), below(space, hash, period));
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        _ => greatest_common_divisor(b, a % b),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const PATHS: usize = 5;

    /// Layouts of a space so small that every hash can be tried.
    fn layout(space: u64) -> impl Strategy<Value = Layout> {
        let cuts = proptest::collection::btree_set(0..(space - 1) as u32, 0..8);
        let owners = proptest::collection::vec(0..PATHS, 9);
        let ranges = (cuts, owners).prop_map(move |(cuts, owners)| {
            let uppers = cuts.into_iter().chain([(space - 1) as u32]);
            Layout::ranges(uppers.zip(owners).collect())
        });
        let buckets = proptest::collection::vec(0..PATHS, 1..40).prop_map(Layout::buckets);
        prop_oneof![4 => ranges, 4 => buckets, 1 => Just(Layout::nowhere())]
    }

    proptest! {
        #[test]
        fn comparing_agrees_with_trying_every_hash(
            (space, before, after) in (20_u64..3000)
                .prop_flat_map(|space| (Just(space), layout(space), layout(space)))
        ) {
            let mut ours: BTreeMap<(Path, Path), u64> = BTreeMap::new();
            before.compare_in(&after, space, |from, to, n| *ours.entry((from, to)).or_default() += n);
            let mut all: BTreeMap<(Path, Path), u64> = BTreeMap::new();
            for hash in 0..space as u32 {
                *all.entry((before.path(hash), after.path(hash))).or_default() += 1;
            }
            prop_assert_eq!(ours, all);
            let mut shares: BTreeMap<usize, u64> = BTreeMap::new();
            before.pieces_in(space).for_each(|(path, n)| *shares.entry(path).or_default() += n);
            for (path, share) in shares {
                let counted = (0..space as u32).filter(|h| before.path(*h) == Some(path)).count();
                prop_assert_eq!(counted as u64, share);
            }
        }

        #[test]
        fn renumbering_moves_nothing_else(layout in layout(500), hash in 0..500_u32) {
            let shifted = layout.renumbered(|path| path + 7);
            prop_assert_eq!(shifted.path(hash), layout.path(hash).map(|path| path + 7));
        }
    }

    #[test]
    fn shares_add_up_to_the_whole_space() {
        let even = Layout::buckets(vec![0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(even.shares().iter().sum::<u64>(), SPACE);
        assert_eq!(Layout::one(3).shares(), [0, 0, 0, SPACE]);
        assert_eq!(Layout::nowhere().shares(), []);
    }
}
