//! Fabrics on paper: what a change would move, which source ports cover all paths, how evenly flows
//! spread.
//!
//! Everything here is pure: no I/O, no kernel, no clock. *Paths* are numbers that the caller gives a
//! meaning (a nexthop, a link); [`Layout`] says which path each of the 2^31 hashes takes.
//!
//! * [`moves`] compares two layouts hash by hash, by interval arithmetic: exact integers, no sampling.
//! * [`order`] finds the order of members that a planned change disrupts least.
//! * [`resilient`] is the kernel's bucket table of a resilient group, and how it migrates.
//! * [`Predictor`] says which path flows and packets take, one by one or in batches.
//! * [`ports`] chooses source ports so that connections cover all paths.
//! * [`spread`] has loads, imbalance, and polarisation through several tiers.
//! * [`sample`] reads lists of flows and makes synthetic ones.
//!
//! ```
//! use raddle_select::{compile_threshold, upper_bounds};
//! use raddle_sim::{Layout, moves};
//!
//! // Four equal members, then without the last one: half of all flows move, a quarter would do.
//! let layout = |weights: &[Option<u32>]| {
//!     Layout::ranges(compile_threshold(&upper_bounds(weights), |_| true))
//! };
//! let before = layout(&[Some(1); 4]);
//! let after = layout(&[Some(1), Some(1), Some(1), None]);
//! let moved = moves(&before, &after);
//! assert!((moved.share() - 0.5).abs() < 1e-8);
//! assert!((moved.least_share() - 0.25).abs() < 1e-8);
//! ```

mod disruption;
mod layout;
pub mod order;
pub mod ports;
mod predict;
pub mod resilient;
pub mod sample;
pub mod spread;

pub use disruption::{Moves, moves, rehashed_share};
pub use layout::{Layout, Path, SPACE};
pub use predict::{Asker, Hashing, HashingError, Predictor};
