//! Where tables live: the regions that a writer fills and readers walk.

use crate::Region;

/// The three regions of the IPv4 tables. See the crate's documentation for the layout.
pub trait Memory4: Send + Sync {
    /// One word a table.
    fn roots(&self) -> &Region;
    /// Nodes of 8 bytes; at most 2^32 of them are used.
    fn nodes(&self) -> &Region;
    /// Leaf cells of 2 bytes; at most 2^31 of them are used.
    fn leaves(&self) -> &Region;
}

/// The two regions of the IPv6 tables. See the crate's documentation for the layout.
pub trait Memory6: Send + Sync {
    /// One word a table.
    fn roots(&self) -> &Region;
    /// Everything else; at most 2^28 words of 8 bytes are used.
    fn words(&self) -> &Region;
}

/// IPv4 tables in memory of this process.
#[derive(Debug)]
pub struct Heap4 {
    roots: Region,
    nodes: Region,
    leaves: Region,
}

impl Heap4 {
    /// Room for so many tables, nodes (8 bytes) and leaf cells (2 bytes); each is rounded up to a
    /// cache line. A full table needs about 600,000 nodes and a million cells, and the same again
    /// to be replaced as a whole.
    pub fn new(tables: usize, nodes: usize, leaves: usize) -> Heap4 {
        Heap4 {
            roots: Region::heap(tables * 8),
            nodes: Region::heap(nodes * 8),
            leaves: Region::heap(leaves * 2),
        }
    }
}

impl Memory4 for Heap4 {
    fn roots(&self) -> &Region {
        &self.roots
    }
    fn nodes(&self) -> &Region {
        &self.nodes
    }
    fn leaves(&self) -> &Region {
        &self.leaves
    }
}

/// IPv6 tables in memory of this process.
#[derive(Debug)]
pub struct Heap6 {
    roots: Region,
    words: Region,
}

impl Heap6 {
    /// Room for so many tables and words (8 bytes); each is rounded up to a cache line.
    pub fn new(tables: usize, words: usize) -> Heap6 {
        Heap6 {
            roots: Region::heap(tables * 8),
            words: Region::heap(words * 8),
        }
    }
}

impl Memory6 for Heap6 {
    fn roots(&self) -> &Region {
        &self.roots
    }
    fn words(&self) -> &Region {
        &self.words
    }
}
