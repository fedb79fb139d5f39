//! Longest-prefix match for IPv4 and IPv6, in a layout that an XDP program reads as it stands.
//!
//! Every table lives in [`Region`]s: plain memory of fixed capacity that is either ours or a BPF
//! map mapped into this process. Updates are published in place by single-word stores, so that a
//! reader on another core, or in the kernel, sees the old answer or the new one and nothing else.

mod alloc;
mod error;
mod memory;
mod prefix;
mod region;
mod table;
mod v4;
mod v6;

pub use error::{FibError, Part};
pub use memory::{Heap4, Heap6, Memory4, Memory6};
pub use prefix::{Prefix4, Prefix6};
pub use region::Region;
pub use table::{TableId, Usage, Value};
pub use v4::{Fib4, Routes4, lookup4, lookup4_batch};
pub use v6::{Fib6, Routes6, lookup6, lookup6_batch};
