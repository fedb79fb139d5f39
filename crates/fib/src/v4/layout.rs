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
/// The node that answers 0 everywhere: narrow, one leaf, the reserved cell 0.
pub(super) const NOTHING: u64 = 1;
/// Leaf cells at the start that are never handed out and stay zero.
pub(super) const RESERVED_CELLS: u32 = 4;

/// A root word: where the first node is, and how many address bits choose among them.
pub(super) fn root_word(first: u32, width: u8) -> u64 {
    u64::from(first) << 8 | u64::from(width)
}

/// A node word taken apart.
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
    pub(super) fn parse(word: u64) -> NodeWord {
        let bitmap = word as u32;
        NodeWord {
            bitmap: bitmap | 1,
            base: (word >> 32) as u32,
            narrow: bitmap & 1 != 0,
        }
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

    /// One value for the whole node, in a cell that other nodes share.
    pub(super) fn shared(self) -> bool {
        self.narrow && self.bitmap == 1
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
        for word in [NOTHING, 0, 0x1234_5678_8000_0001, 0x1234_5678_8000_0000] {
            assert_eq!(NodeWord::parse(word).word(), word);
        }
        assert_eq!(NodeWord::parse(0x8000_0000).cells(), 4);
        assert_eq!(NodeWord::parse(0x8000_0001).cells(), 2);
    }
}
