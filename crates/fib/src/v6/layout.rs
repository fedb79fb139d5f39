//! Words of the IPv6 tables: what an entry is and what it points to.

/// Address bits that one entry resolves.
pub(super) const STRIDE: u8 = 16;
/// Nodes, and words, of a rank group.
pub(super) const RANK_NODES: u32 = 2048;
/// Words of a direct array.
pub(super) const DIRECT_WORDS: u32 = 1 << 15;
/// Words at the start that are never handed out and stay zero.
pub(super) const RESERVED_WORDS: u32 = 1;
/// Words that entries can point to.
pub(super) const MAX_WORDS: usize = 1 << 29;
/// Set in every entry that is not a value.
pub(super) const POINTER: u32 = 1 << 31;

const BLOCK: u32 = 0b10 << 30;
const RANK: u32 = 0b110 << 29;
const DIRECT: u32 = 0b111 << 29;

/// An entry taken apart: how 16 more bits of the address are resolved. Places count words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// The answer; 0 for none.
    Value(u32),
    /// Interval ends, then an entry for each interval.
    Block(usize),
    /// Nodes of 32 slots, as in IPv4 tables.
    Rank(usize),
    /// An entry for each of the 65536 keys.
    Direct(usize),
}

impl Entry {
    #[inline(always)]
    pub(super) fn parse(entry: u32) -> Entry {
        match entry >> 29 {
            0..=3 => Entry::Value(entry),
            4 | 5 => Entry::Block((entry & !(0b11 << 30)) as usize),
            6 => Entry::Rank((entry & !(0b111 << 29)) as usize),
            _ => Entry::Direct((entry & !(0b111 << 29)) as usize),
        }
    }

    pub(super) fn bits(self) -> u32 {
        match self {
            Entry::Value(value) => value,
            Entry::Block(at) => BLOCK | at as u32,
            Entry::Rank(at) => RANK | at as u32,
            Entry::Direct(at) => DIRECT | at as u32,
        }
    }
}

/// Words that a block of `n` intervals takes.
pub(super) fn block_words(n: u32) -> u32 {
    // Cells of two bytes: the count and n - 1 ends, up to a whole word, then n entries.
    n.div_ceil(4) + n.div_ceil(2)
}

/// Where the entries of a block of `n` intervals begin, counted in u32 from the block's start.
#[inline(always)]
pub(super) fn block_entries(n: usize) -> usize {
    2 * n.div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive() {
        for entry in [
            Entry::Value(0x7fff_ffff),
            Entry::Block((1 << 30) - 1),
            Entry::Rank(MAX_WORDS - 1),
            Entry::Direct(MAX_WORDS - 1),
            Entry::Block(1),
        ] {
            assert_eq!(Entry::parse(entry.bits()), entry);
            assert_eq!(
                entry.bits() & POINTER == 0,
                matches!(entry, Entry::Value(_))
            );
        }
    }

    #[test]
    fn blocks_hold_their_cells() {
        for n in 2..600 {
            let cells = 2 * block_entries(n) + 2 * n;
            assert!(cells >= n + 2 * n && block_words(n as u32) as usize == cells.div_ceil(4));
            assert_eq!(block_entries(n) % 2, 0, "entries begin with a word");
        }
    }
}
