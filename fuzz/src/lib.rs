//! What the fuzz targets share: states made of bytes, and the image held against the reference.
//!
//! A target is `fuzz_targets/NAME.rs`; its committed seeds are `seeds/NAME/`. `scripts/fuzz.sh`
//! builds and runs them all on stable Rust; `cargo fuzz run NAME` works too, and adds
//! AddressSanitizer where there is a nightly compiler.

mod events;
#[path = "../../crates/rib/tests/common/mod.rs"]
mod state;

pub use events::event;
pub use state::{
    Mirror, Seen, address, compare, link, neighbour, new_rib, object, route, seen_by_engines,
    seen_by_trace,
};
