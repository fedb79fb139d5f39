//! Where the loader finds what it reads of `struct scratch` (`crates/xdp/bpf/maps.h`), the memory that belongs to one
//! CPU. C asserts that it is there.

/// Bytes of one CPU's.
pub const SCRATCH_SIZE: usize = 4352;
/// Where the neighbours are that packets lacked, in bytes; see [`crate::Wanted`].
pub const SCRATCH_WANTED: usize = 3968;
/// Where it is noted how often something was sent without a neighbour, and where to last, in bytes.
pub const SCRATCH_SENT: usize = 440;
