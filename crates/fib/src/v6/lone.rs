//! Which spans have one way only that leads on.

use super::control::{Interval, NONE, SpanId};
use crate::Value;

/// All of a span but one run of keys has the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lone {
    /// The first key of the run.
    pub(super) key: u16,
    /// Bits that its keys have in common; the run is all keys that begin with them.
    pub(super) len: u8,
    /// What holds for the run: a value, or what is below.
    pub(super) value: Value,
    pub(super) child: SpanId,
    /// The answer for the other keys.
    pub(super) outside: Value,
}

impl Lone {
    /// Rules, for the intervals of all keys of a span:
    /// 1. Of two intervals either may be the run, if it is one that rule 3 allows and the other has
    ///    no child; of two that may, the one beside which `background` holds.
    /// 2. Of three, the middle one, if rule 3 allows it and the other two have one value and no child.
    /// 3. A run is as long as a power of two, and begins at a multiple of its length.
    /// 4. One interval has no run, and more than three have several.
    pub(super) fn of(intervals: &[Interval], background: Value) -> Option<Lone> {
        match intervals {
            [a, b] => {
                let first = Lone::run(0, a, b);
                let second = Lone::run(u32::from(a.end) + 1, b, a);
                match first {
                    Some(lone) if lone.outside == background => first,
                    _ => second.or(first),
                }
            }
            [a, b, c] if c.child == NONE && c.value == a.value => {
                Lone::run(u32::from(a.end) + 1, b, a)
            }
            _ => None,
        }
    }

    fn run(first: u32, inside: &Interval, outside: &Interval) -> Option<Lone> {
        let keys = u32::from(inside.end) + 1 - first;
        (outside.child == NONE && keys.is_power_of_two() && first.is_multiple_of(keys)).then(|| {
            Lone {
                key: first as u16,
                len: 16 - keys.trailing_zeros() as u8,
                value: inside.value,
                child: inside.child,
                outside: outside.value,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lone(intervals: &[(u16, Value, SpanId)], background: Value) -> Option<Lone> {
        let intervals = intervals.iter().copied();
        let intervals: Vec<_> = intervals
            .map(|(end, value, child)| Interval { end, value, child })
            .collect();
        Lone::of(&intervals, background)
    }

    fn found(key: u16, len: u8, value: Value, child: SpanId, outside: Value) -> Option<Lone> {
        Some(Lone {
            key,
            len,
            value,
            child,
            outside,
        })
    }

    #[test]
    fn one_run_of_keys_is_found_wherever_it_is() {
        let end = u16::MAX;
        let middle = [(0x0fff, 5, NONE), (0x1fff, 6, NONE), (end, 5, NONE)];
        assert_eq!(lone(&middle, 5), found(0x1000, 4, 6, NONE, 5));
        let key = [(0x0fff, 5, NONE), (0x1000, 5, 7), (end, 5, NONE)];
        assert_eq!(lone(&key, 0), found(0x1000, 16, 5, 7, 5));
        let first = [(0, 5, 7), (end, 6, NONE)];
        assert_eq!(lone(&first, 0), found(0, 16, 5, 7, 6));
        let last = [(0xfffe, 5, NONE), (end, 6, 9)];
        assert_eq!(lone(&last, 0), found(end, 16, 6, 9, 5));
        let halves = [(0x7fff, 1, NONE), (end, 2, NONE)];
        assert_eq!(lone(&halves, 2), found(0, 1, 1, NONE, 2));
        assert_eq!(lone(&halves, 1), found(0x8000, 1, 2, NONE, 1));
    }

    #[test]
    fn other_spans_have_none() {
        let end = u16::MAX;
        assert_eq!(lone(&[(end, 5, NONE)], 5), None);
        let differ = [(0x0fff, 5, NONE), (0x1fff, 6, NONE), (end, 7, NONE)];
        assert_eq!(lone(&differ, 5), None);
        let odd = [(0x0fff, 5, NONE), (0x2fff, 6, NONE), (end, 5, NONE)];
        assert_eq!(lone(&odd, 5), None);
        let apart = [(0x0ffe, 5, NONE), (0x1ffe, 6, NONE), (end, 5, NONE)];
        assert_eq!(lone(&apart, 5), None);
        let children = [(0, 5, 1), (0xfffe, 5, NONE), (end, 5, 2)];
        assert_eq!(lone(&children, 5), None);
        let children = [(0, 5, 1), (1, 5, 2), (end, 5, NONE)];
        assert_eq!(lone(&children, 5), None);
    }
}
