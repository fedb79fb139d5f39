//! Words of the IPv4 tables: what a root, a node and a leaf look like.

/// Address bits that one node resolves.
pub(super) const STRIDE: u8 = 5;
/// Address bits that choose one of the eight nodes of a child block.
pub(super) const CHILD_WIDTH: u8 = 3;
/// Nodes in a child block, and the unit in which nodes are handed out.
pub(super) const UNIT: u32 = 1 << CHILD_WIDTH;
/// Widths that a root can have, so that blocks always start at a byte of the address.
pub(super) const WIDTHS: [u8; 3] = [3, 11, 19];
/// In an entry (the 32-bit form of a leaf): this is a child block, not a value.
pub(super) const CHILD: u32 = 1 << 31;
/// In a leaf of a narrow node: this is a child block, not a value.
pub(super) const NARROW_CHILD: u32 = 1 << 15;
/// In a node word: a pair, which has its values in itself.
pub(super) const PAIR: u64 = 1 << 63;
/// Bits of a value in a pair.
const PAIR_BITS: u32 = 15;
/// Leaf cells at the start that are never handed out and stay zero.
pub(super) const RESERVED_CELLS: u32 = 4;

/// A root word: where the first node is, and how many address bits choose among them.
pub(super) fn root_word(first: u32, width: u8) -> u64 {
    u64::from(first) << 8 | u64::from(width)
}

/// The word of a node whose entries are at most two values that fit into 15 bits each: bit `i` of
/// the bitmap chooses the second value for slot `i`. Such a node needs no leaves, so that a look-up
/// reads memory once. None for other nodes.
#[inline]
pub(super) fn pair(entries: &Entries) -> Option<u64> {
    let first = entries[0];
    let second = entries
        .iter()
        .copied()
        .find(|entry| *entry != first)
        .unwrap_or(first);
    if (first | second) >> PAIR_BITS != 0 {
        return None;
    }
    let mut bitmap = 0u32;
    for (i, entry) in entries.iter().enumerate() {
        if *entry != first {
            if *entry != second {
                return None;
            }
            bitmap |= 1 << i;
        }
    }
    let values = u64::from(first) | u64::from(second) << PAIR_BITS;
    Some(PAIR | values << 32 | u64::from(bitmap))
}

/// The value that a pair has for slot `bit`.
#[inline(always)]
pub(super) fn pair_value(word: u64, bit: u32) -> u32 {
    let values = (word >> 32) as u32;
    values >> (PAIR_BITS * (word as u32 >> bit & 1)) & ((1 << PAIR_BITS) - 1)
}

/// The word of a node with leaves, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeWord {
    /// Where the entry changes; bit 0 is always set here.
    pub(super) bitmap: u32,
    /// First cell of the leaf run.
    pub(super) base: u32,
    /// Leaves are u16, not u32.
    pub(super) narrow: bool,
}

impl NodeWord {
    /// None for a pair.
    pub(super) fn parse(word: u64) -> Option<NodeWord> {
        if word & PAIR != 0 {
            return None;
        }
        let bitmap = word as u32;
        Some(NodeWord {
            bitmap: bitmap | 1,
            base: (word >> 32) as u32,
            narrow: bitmap & 1 != 0,
        })
    }

    pub(super) fn word(self) -> u64 {
        let bitmap = if self.narrow {
            self.bitmap | 1
        } else {
            self.bitmap & !1
        };
        u64::from(self.base) << 32 | u64::from(bitmap)
    }

    /// Leaves in the run.
    pub(super) fn leaves(self) -> u32 {
        self.bitmap.count_ones()
    }

    /// Cells in the run.
    pub(super) fn cells(self) -> u32 {
        self.leaves() << u32::from(!self.narrow)
    }
}

/// The entry of each of a node's 32 slots: a value, or [`CHILD`] and the unit of a child block.
pub(super) type Entries = [u32; 32];

/// Bit `i` is set where entry `i` differs from the one before; bit 0 is always set.
#[inline]
pub(super) fn changes(entries: &Entries) -> u32 {
    let mut bitmap = 1;
    for i in 1..32 {
        bitmap |= u32::from(entries[i] != entries[i - 1]) << i;
    }
    bitmap
}

/// Whether every entry fits into 15 bits and the child flag.
#[inline]
pub(super) fn fit_narrow(entries: &Entries) -> bool {
    entries.iter().fold(0, |all, entry| all | entry) & !(CHILD | (NARROW_CHILD - 1)) == 0
}

/// A narrow leaf as an entry.
#[inline]
pub(super) fn widen(leaf: u16) -> u32 {
    let leaf = u32::from(leaf);
    (leaf & NARROW_CHILD) << 16 | leaf & (NARROW_CHILD - 1)
}

/// An entry as a narrow leaf; it must fit.
#[inline]
pub(super) fn narrow(entry: u32) -> u16 {
    ((entry & CHILD) >> 16 | entry & (NARROW_CHILD - 1)) as u16
}

/// The `n` upper bits of `x`; 0 for none.
#[inline]
pub(super) fn top(x: u32, n: u8) -> u32 {
    x.checked_shr(32 - u32::from(n)).unwrap_or(0)
}

/// `x` without its `n` upper bits, moved up.
#[inline]
pub(super) fn below(x: u32, n: u8) -> u32 {
    x.checked_shl(u32::from(n)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_survive_narrowing() {
        for entry in [0, 1, 0x7fff, CHILD, CHILD | 0x7fff] {
            assert_eq!(widen(narrow(entry)), entry);
            assert!(fit_narrow(&[entry; 32]));
        }
        assert!(!fit_narrow(&[0x8000; 32]) && !fit_narrow(&[CHILD | 0x8000; 32]));
    }

    #[test]
    fn node_words_survive() {
        for word in [0, 0x1234_5678_8000_0001, 0x1234_5678_8000_0000] {
            assert_eq!(NodeWord::parse(word).map(NodeWord::word), Some(word));
        }
        assert_eq!(NodeWord::parse(PAIR), None);
        assert_eq!(NodeWord::parse(0x8000_0000).map(NodeWord::cells), Some(4));
        assert_eq!(NodeWord::parse(0x8000_0001).map(NodeWord::cells), Some(2));
    }

    #[test]
    fn pairs_hold_two_values_and_no_more() {
        let mut entries = [7; 32];
        entries[3] = 0x7fff;
        entries[31] = 0x7fff;
        let word = pair(&entries).unwrap();
        for (i, entry) in entries.iter().enumerate() {
            assert_eq!(pair_value(word, i as u32), *entry);
        }
        assert_eq!(pair(&[0; 32]), Some(PAIR));
        entries[4] = 8;
        assert_eq!(pair(&entries), None);
        assert_eq!(pair(&[0x8000; 32]), None);
        assert_eq!(pair(&[CHILD; 32]), None);
    }
}
