//! The writer's own copy of the routes: a trie of spans of 16 address bits each.

use std::collections::BTreeMap;

use super::layout::{Compare, POINTER, STRIDE};
use crate::{Prefix6, Value};

/// Number of a span in [`Control`].
pub(super) type SpanId = u32;
/// No span.
pub(super) const NONE: SpanId = u32::MAX;
/// The background of a span that is not in the image yet.
pub(super) const UNBUILT: Value = u32::MAX;

/// A prefix inside a span: ordered by key, then by length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Local(u32);

impl Local {
    /// `len` is at most 16; bits of `key` beyond it are cleared.
    pub(super) fn new(key: u16, len: u8) -> Local {
        let mask = u32::MAX << (STRIDE - len);
        Local((u32::from(key) & mask) << 8 | u32::from(len))
    }

    pub(super) fn key(self) -> u16 {
        (self.0 >> 8) as u16
    }

    pub(super) fn len(self) -> u8 {
        self.0 as u8
    }

    pub(super) fn last(self) -> u16 {
        self.key() | (0xffffu32 >> self.len()) as u16
    }
}

/// 16 bits of the address below one place in the trie.
#[derive(Debug, Default)]
pub(super) struct Span {
    /// Prefixes that end in these bits.
    pub(super) prefixes: BTreeMap<Local, Value>,
    /// What goes on below a key.
    pub(super) children: BTreeMap<u16, SpanId>,
    /// What holds for the whole span in the image, coming from above; or [`UNBUILT`].
    pub(super) background: Value,
    /// The entry that the image has for it. A value below [`POINTER`] beside a compare says that the
    /// image has none: see there.
    pub(super) entry: u32,
    /// The span is a compare of this kind. It has an entry of its own unless it is a part of the
    /// compare of the span above.
    pub(super) compare: Option<Compare>,
    /// It is to be an array with an entry for each key.
    pub(super) direct: bool,
    /// Spans above it.
    pub(super) depth: u8,
    /// Host routes in it and below, and other routes.
    pub(super) hosts: u32,
    pub(super) others: u32,
    /// Where the image has it as a hash table. Nothing below is in the image then.
    pub(super) hashed: Option<Slots>,
    /// Changes that have to pass before it becomes a hash table again.
    pub(super) rest: u32,
    /// Its hosts crowd in a hash table.
    pub(super) crowded: bool,
}

/// Slots of a span's hash table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots {
    /// Those that were taken when it was built, one for each host.
    pub(super) built: u32,
    /// Those that are taken, by hosts that are gone, too.
    pub(super) used: u32,
}

impl Span {
    pub(super) fn is_empty(&self) -> bool {
        self.prefixes.is_empty() && self.children.is_empty()
    }

    /// Whether the image has an entry for it.
    pub(super) fn is_placed(&self) -> bool {
        self.compare.is_none() || self.entry & POINTER != 0
    }

    /// Prefixes and children: with `n` of them there are at most `2 * n + 1` intervals.
    pub(super) fn weight(&self) -> usize {
        self.prefixes.len() + self.children.len()
    }

    /// The value of the longest prefix of at most `len` bits that covers `key`.
    pub(super) fn cover(&self, key: u16, len: u8) -> Value {
        let mut upto = Local::new(key, len);
        loop {
            // The last prefix that is not after all that cover the key: either it is the longest
            // of them, or they all cover it too.
            let Some((&near, &value)) = self.prefixes.range(..=upto).next_back() else {
                return self.background;
            };
            if near.key() <= key && key <= near.last() {
                return value;
            }
            let common = (near.key() ^ key).leading_zeros() as u8;
            upto = Local::new(key, common);
        }
    }
}

/// Neighbouring keys with the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    /// The last key.
    pub(super) end: u16,
    /// The value of the longest prefix.
    pub(super) value: Value,
    /// A span below, always in an interval of its own: its entry can then change by one store.
    pub(super) child: SpanId,
}

/// Spans of all tables.
#[derive(Debug, Default)]
pub(super) struct Control {
    spans: Vec<Span>,
    vacant: Vec<SpanId>,
}

/// A prefix's place: the way to its span, and its name there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Spans from the root down to the last one that exists.
    pub(super) spans: [SpanId; 8],
    /// How many of them there are.
    pub(super) depth: usize,
    /// Spans that are missing below.
    pub(super) missing: usize,
    /// The prefix in its own span.
    pub(super) local: Local,
}

impl Place {
    /// The last span on the way that exists.
    pub(super) fn deepest(&self) -> SpanId {
        self.spans[self.depth - 1]
    }
}

/// Bits of the address that a span `depth` levels below the root resolves.
#[inline(always)]
pub(super) fn key(addr: u128, depth: usize) -> u16 {
    (addr >> (112 - 16 * depth as u32)) as u16
}

impl Control {
    pub(super) fn new_span(&mut self, depth: usize) -> SpanId {
        let span = Span {
            depth: depth as u8,
            background: UNBUILT,
            ..Span::default()
        };
        match self.vacant.pop() {
            Some(id) => {
                self.spans[id as usize] = span;
                id
            }
            None => {
                self.spans.push(span);
                self.spans.len() as SpanId - 1
            }
        }
    }

    pub(super) fn new_root(&mut self) -> SpanId {
        let root = self.new_span(0);
        self.span_mut(root).background = 0;
        root
    }

    #[inline]
    pub(super) fn span(&self, id: SpanId) -> &Span {
        &self.spans[id as usize]
    }

    #[inline]
    pub(super) fn span_mut(&mut self, id: SpanId) -> &mut Span {
        &mut self.spans[id as usize]
    }

    pub(super) fn locate(&self, root: SpanId, prefix: Prefix6) -> Place {
        // A prefix of 16 bits ends in the root, one of 17 in the next span.
        let level = usize::from(prefix.len().saturating_sub(1) / STRIDE);
        let mut spans = [NONE; 8];
        spans[0] = root;
        let mut depth = 1;
        while depth <= level {
            let above = self.span(spans[depth - 1]);
            let Some(&child) = above.children.get(&key(prefix.addr(), depth - 1)) else {
                break;
            };
            spans[depth] = child;
            depth += 1;
        }
        let len = prefix.len() - level as u8 * STRIDE;
        Place {
            spans,
            depth,
            missing: level + 1 - depth,
            local: Local::new(key(prefix.addr(), level), len),
        }
    }

    /// Adds a prefix with the spans that it needs, and tells the value that it had, or 0.
    pub(super) fn add(&mut self, place: &Place, prefix: Prefix6, value: Value) -> Value {
        let mut span = place.deepest();
        for depth in place.depth..place.depth + place.missing {
            let child = self.new_span(depth);
            let key = key(prefix.addr(), depth - 1);
            self.span_mut(span).children.insert(key, child);
            span = child;
        }
        self.set_value(span, place.local, value)
    }

    /// The value of a prefix, or 0, whose way leads through a span at a depth.
    pub(super) fn value_below(&self, id: SpanId, depth: usize, prefix: Prefix6) -> Value {
        let level = usize::from(prefix.len().saturating_sub(1) / STRIDE);
        let mut span = self.span(id);
        for depth in depth..level {
            let Some(child) = span.children.get(&key(prefix.addr(), depth)) else {
                return 0;
            };
            span = self.span(*child);
        }
        let len = prefix.len() - level as u8 * STRIDE;
        let local = Local::new(key(prefix.addr(), level), len);
        span.prefixes.get(&local).copied().unwrap_or(0)
    }

    /// Sets the value of one prefix, 0 for none, and tells the one before.
    pub(super) fn set_value(&mut self, span: SpanId, local: Local, value: Value) -> Value {
        let prefixes = &mut self.span_mut(span).prefixes;
        let old = match value {
            0 => prefixes.remove(&local),
            _ => prefixes.insert(local, value),
        };
        old.unwrap_or(0)
    }

    /// Forgets a span and everything below it, and gives the entries they have in the image.
    pub(super) fn drop_tree(&mut self, id: SpanId, entries: &mut Vec<u32>) {
        let span = std::mem::take(self.span_mut(id));
        self.vacant.push(id);
        if span.background != UNBUILT {
            entries.push(span.entry);
        }
        for child in span.children.into_values() {
            self.drop_tree(child, entries);
        }
    }

    /// Cuts the keys `first..=last` of a span into intervals.
    ///
    /// The range must be the one of some prefix: all that is shorter holds for the whole of it.
    pub(super) fn sweep(&self, id: SpanId, first: u16, last: u16, out: &mut Vec<Interval>) {
        let span = self.span(id);
        let len = (first ^ last).leading_zeros() as u8;
        let mut children = span.children.range(first..=last).peekable();
        let mut at = u32::from(first);
        // Appends keys up to `end` with one value, cut where children are.
        let mut extend = |end: u32, value: Value| {
            while at <= end {
                let child = children.next_if(|(key, _)| u32::from(**key) <= end);
                let plain = child.map_or(end + 1, |(key, _)| u32::from(*key));
                if at < plain {
                    push(out, (plain - 1) as u16, value, NONE);
                }
                at = plain;
                if let Some((key, &child)) = child {
                    push(out, *key, value, child);
                    at = plain + 1;
                }
            }
        };
        // Prefixes that are open at this point, the shortest first, with their last keys.
        let mut open = [(u32::from(last), span.cover(first, len)); STRIDE as usize + 1];
        let mut top = 0;
        let inside = Local::new(first, len).0 + 1..=u32::from(last) << 8 | u32::from(STRIDE);
        let inside = Local(*inside.start())..=Local(*inside.end());
        let inside = (!inside.is_empty()).then(|| span.prefixes.range(inside));
        for (local, &value) in inside.into_iter().flatten() {
            let start = u32::from(local.key());
            while open[top].0 < start {
                extend(open[top].0, open[top].1);
                top -= 1;
            }
            if start > 0 {
                extend(start - 1, open[top].1);
            }
            top += 1;
            open[top] = (u32::from(local.last()), value);
        }
        for (end, value) in open[..=top].iter().rev() {
            extend(*end, *value);
        }
    }
}

fn push(out: &mut Vec<Interval>, end: u16, value: Value, child: SpanId) {
    match out.last_mut() {
        Some(before) if child == NONE && before.child == NONE && before.value == value => {
            before.end = end;
        }
        _ => out.push(Interval { end, value, child }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(prefixes: &[(u16, u8, Value)], children: &[u16]) -> Control {
        let mut control = Control::default();
        let root = control.new_root();
        for &(key, len, value) in prefixes {
            control.set_value(root, Local::new(key, len), value);
        }
        for &key in children {
            control
                .span_mut(root)
                .children
                .insert(key, 1000 + u32::from(key));
        }
        control
    }

    #[test]
    fn covers_are_found_past_longer_neighbours() {
        let control = span(
            &[(0, 0, 1), (0x8000, 1, 2), (0x8000, 9, 3), (0x8100, 16, 4)],
            &[],
        );
        let root = control.span(0);
        assert_eq!(root.cover(0x8200, 16), 2);
        assert_eq!(root.cover(0x807f, 16), 3);
        assert_eq!((root.cover(0x8100, 16), root.cover(0x8100, 15)), (4, 2));
        assert_eq!((root.cover(0x7fff, 16), root.cover(0xffff, 0)), (1, 1));
    }

    #[test]
    fn intervals_nest_merge_and_stop_at_children() {
        let control = span(
            &[(0x1000, 4, 5), (0x1800, 5, 6), (0x2000, 4, 6)],
            &[0x1001, 0xffff],
        );
        let mut got = Vec::new();
        control.sweep(0, 0, 0xffff, &mut got);
        let want = [
            (0x0fff, 0, NONE),
            (0x1000, 5, NONE),
            (0x1001, 5, 1000 + 0x1001),
            (0x17ff, 5, NONE),
            (0x2fff, 6, NONE),
            (0xfffe, 0, NONE),
            (0xffff, 0, 1000 + 0xffff),
        ];
        let want = want.map(|(end, value, child)| Interval { end, value, child });
        assert_eq!(got, want);

        got.clear();
        control.sweep(0, 0x1800, 0x181f, &mut got);
        assert_eq!(
            got,
            [Interval {
                end: 0x181f,
                value: 6,
                child: NONE
            }]
        );
    }
}
