//! Words that both families share: tables, values, how full the memory is.

use crate::FibError;
use crate::alloc::Runs;
use crate::error::Part;

/// What a route leads to: 1 to 0x7fff_ffff, in the image the number of a group or, of IPv6, a segment's. Lookups answer 0
/// where there is no route. Values below 0x8000 take half as much memory as larger ones.
pub type Value = u32;

pub(crate) fn check_value(value: Value) -> Result<(), FibError> {
    match value {
        1..=0x7fff_ffff => Ok(()),
        _ => Err(FibError::BadValue(value)),
    }
}

/// A table, by the place of its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(u32);

impl TableId {
    pub(crate) fn new(at: usize) -> TableId {
        TableId(at as u32)
    }

    pub(crate) fn at(self) -> usize {
        self.0 as usize
    }

    /// The number by which readers look the table up.
    pub fn index(self) -> u32 {
        self.0
    }
}

/// How full one part of the memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Which part; it also says in which unit the rest counts.
    pub what: Part,
    /// In use, without what is in limbo.
    pub used: usize,
    /// No longer in use, but readers may still hold it: free after the next grace period.
    pub limbo: usize,
    /// All there is.
    pub capacity: usize,
}

impl Usage {
    pub(crate) fn of(runs: &Runs, what: Part, unit: usize) -> Usage {
        Usage {
            what,
            used: (runs.units() - runs.free() - runs.limbo()) * unit,
            limbo: runs.limbo() * unit,
            capacity: runs.units() * unit,
        }
    }
}
