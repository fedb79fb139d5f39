//! Instructions that the hot paths take, under callgrind: `make counts`.
//!
//! Times are too noisy on shared machines to fail a change by; counts are the same in every run.
//! `limits.txt` has the highest that each may be, and `scripts/counts.sh` holds one against the other.
//! What a path works on is drawn from a fixed seed, and checked beforehand: a look-up that misses or a
//! frame that is handed over would be cheap for the wrong reason.
#![allow(missing_docs, reason = "gungraun's macros write public items")]

mod fib;
mod forward;
#[path = "../../../../crates/fib/tests/fib/tables/invented.rs"]
mod invented;
mod netlink;
mod rib;
mod router;
mod select;
mod srv6;
#[path = "../../../../crates/fib/tests/fib/tables/dice.rs"]
mod tables;

use fib::look_up;
use forward::engine;
use gungraun::{Callgrind, LibraryBenchmarkConfig};
use netlink::decoding;
use rib::changes;
use select::selection;
use srv6::segments;

gungraun::main!(
    config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"]));
    library_benchmark_groups = look_up, selection, engine, segments, decoding, changes
);
