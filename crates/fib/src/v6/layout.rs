//! Words of the IPv6 tables: what an entry is and what it points to.

/// Address bits that one entry resolves.
pub(super) const STRIDE: u8 = 16;
/// Nodes, and words, of a rank group.
pub(super) const RANK_NODES: u32 = 2048;
/// Words of a direct array.
pub(super) const DIRECT_WORDS: u32 = 1 << 15;
/// Words are handed out in runs of so many, so that two that are compared are in one cache line.
pub(super) const UNIT: u32 = 2;
/// Words at the start that are never handed out and stay zero.
pub(super) const RESERVED_WORDS: u32 = UNIT;
/// Words that entries can point to.
pub(super) const MAX_WORDS: usize = 1 << 28;
/// Set in every entry that is not a value.
pub(super) const POINTER: u32 = 1 << 31;

const BLOCK: u32 = 0b10 << 30;
const RANK: u32 = 0b1100 << 28;
const COMPARE: u32 = 0b1101 << 28;
/// Set in the entry of a compare of more than 64 bits: its place is even.
const LONG: u32 = 1;
const DIRECT: u32 = 0b1110 << 28;
const HOSTS: u32 = 0b1111 << 28;

/// An entry taken apart: how 16 more bits of the address are resolved. Places count words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// The answer; 0 for none.
    Value(u32),
    /// Interval ends, then an entry for each interval.
    Block(usize),
    /// Nodes of 32 slots, as in IPv4 tables.
    Rank(usize),
    /// Bits that the address has or has not: up to 64, or more.
    Compare(usize, bool),
    /// An entry for each of the 65536 keys.
    Direct(usize),
    /// A hash table of all the rest.
    Hosts(usize),
}

impl Entry {
    #[inline(always)]
    pub(super) fn parse(entry: u32) -> Entry {
        match entry >> 28 {
            0..=7 => Entry::Value(entry),
            8..=11 => Entry::Block((entry & !(0b11 << 30)) as usize),
            12 => Entry::Rank((entry & !(0b1111 << 28)) as usize),
            13 => Entry::Compare((entry & !(0b1111 << 28 | LONG)) as usize, entry & LONG != 0),
            14 => Entry::Direct((entry & !(0b1111 << 28)) as usize),
            _ => Entry::Hosts((entry & !(0b1111 << 28)) as usize),
        }
    }

    pub(super) fn bits(self) -> u32 {
        match self {
            Entry::Value(value) => value,
            Entry::Block(at) => BLOCK | at as u32,
            Entry::Rank(at) => RANK | at as u32,
            Entry::Compare(at, long) => COMPARE | at as u32 | u32::from(long),
            Entry::Direct(at) => DIRECT | at as u32,
            Entry::Hosts(at) => HOSTS | at as u32,
        }
    }
}

/// The next bits of the address as far as they have one way only that leads on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compare {
    /// What is expected, from the top bit down; 0 behind.
    pub(super) bits: u128,
    /// How many bits are, 1 to 128.
    pub(super) len: u8,
    /// The entry where they are found; a pointer only behind a multiple of 16 bits.
    pub(super) inside: u32,
    /// The answer where not, below [`MAX_OUTSIDE`].
    pub(super) outside: u32,
}

/// Words of a long compare.
const COMPARE_WORDS: usize = 4;
/// Values from here on do not fit beside the number of bits.
pub(super) const MAX_OUTSIDE: u32 = 1 << 26;

impl Compare {
    /// Whether it has more than 64 bits.
    pub(super) fn is_long(self) -> bool {
        self.len > 64
    }

    /// The first 64 bits that are expected; then, from the lowest bit on: how many of the last 64 do
    /// not count (6 bits), the answer where the rest is not found (26 bits), the entry where it is;
    /// and of a long one the bits behind the first 64, and nothing.
    pub(super) fn words(self) -> ([u64; COMPARE_WORDS], u32) {
        let (first, second) = ((self.bits >> 64) as u64, self.bits as u64);
        let past = u64::from(self.len).wrapping_neg() & 63;
        let rest = u64::from(self.inside) << 32 | u64::from(self.outside) << 6 | past;
        ([first, rest, second, 0], compare_words(self.is_long()))
    }
}

/// Words that a compare takes.
pub(super) fn compare_words(long: bool) -> u32 {
    if long { 4 } else { 2 }
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
            Entry::Block(MAX_WORDS - 1),
            Entry::Rank(MAX_WORDS - 1),
            Entry::Direct(MAX_WORDS - 1),
            Entry::Hosts(MAX_WORDS - 1),
            Entry::Compare(MAX_WORDS - 2, false),
            Entry::Compare(MAX_WORDS - 4, true),
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
