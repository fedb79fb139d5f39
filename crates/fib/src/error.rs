//! What can go wrong when a table changes.

use std::fmt;

/// A part of the tables' memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// IPv4 nodes, counted in nodes of 8 bytes.
    Nodes4,
    /// IPv4 leaves, counted in cells of 2 bytes.
    Leaves4,
    /// IPv6 words of 8 bytes.
    Words6,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Nodes4 => "IPv4 nodes",
            Part::Leaves4 => "IPv4 leaves",
            Part::Words6 => "IPv6 words",
        })
    }
}

/// Why a table could not be changed. The table is as it was before the call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FibError {
    /// The memory is full, or too fragmented for a run of this length.
    #[error(
        "no room for {need} more {what} in a row, {used} of {capacity} are in use: \
         give the tables more memory or load fewer routes"
    )]
    Full {
        /// What ran out.
        what: Part,
        /// How many were needed in a row.
        need: usize,
        /// How many are in use, those that wait for a grace period included.
        used: usize,
        /// How many there are.
        capacity: usize,
    },
    /// No table has this number.
    #[error("there is no table {0}: create it first")]
    NoSuchTable(u32),
    /// Every root is taken.
    #[error("all {capacity} tables are in use: drop one first")]
    TooManyTables {
        /// How many there are.
        capacity: usize,
    },
    /// A value that the layout cannot hold.
    #[error("value {0} cannot be stored: values go from 1 to 2147483647")]
    BadValue(u32),
    /// A prefix longer than an address.
    #[error("prefix length {len} is longer than an address of {max} bits")]
    BadLength {
        /// The length asked for.
        len: u8,
        /// The longest there is.
        max: u8,
    },
}
