//! Longest-prefix match for IPv4 and IPv6, in a layout that an XDP program reads as it stands.
//!
//! Every table lives in [`Region`]s: plain memory of fixed capacity that is either ours or a BPF
//! map mapped into this process. Updates are published in place by single-word stores, so that a
//! reader on another core, or in the kernel, sees the old answer or the new one and nothing else.

mod region;

pub use region::Region;
