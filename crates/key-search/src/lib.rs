//! Finds the seed by which a Linux router (6.11 or newer) chooses among paths, from flows and the links that they took.
//!
//! Each [`Observation`] says into which ranges of the 31-bit hash a flow has fallen. A path of four tells two bits, one of
//! 64 six; the seed has 32. [`Search`] tries every seed, many at once in vector registers, on all processors.
//!
//! ```
//! use raddle_key_search::{Found, Observation, Search};
//! use raddle_select::{Flow, Hasher, Policy, Seed, choose_plain, keys_of_plain_packet, upper_bounds};
//!
//! let seed = Seed::new(54_321).unwrap();
//! let uppers = upper_bounds(&[Some(1); 4]);
//! let observations = (0..20).map(|n| {
//!     let flow = Flow::new([10, 0, 0, n].into(), [198, 18, 0, 9].into()).unwrap();
//!     let keys = keys_of_plain_packet(&Policy::L4.into(), &flow.ports(17, 1000, 53));
//!     let took = choose_plain(&uppers, |_| true, Hasher::new(seed).hash31(&keys)).unwrap();
//!     Observation::of_member(&keys, &uppers, |member| member == took.member)
//! });
//! // The first 2^16 seeds alone, as this is an example; `Search::new` tries all.
//! let search = Search::new(observations.collect()).among(1..1 << 16);
//! assert!(matches!(search.run(|_| true), Found::One(found) if found == seed));
//! ```

mod file;
mod observation;
mod search;

pub use file::{Meaning, Observations, Router, RouterRoute};
pub use observation::Observation;
pub use search::{Found, Progress, Search};
