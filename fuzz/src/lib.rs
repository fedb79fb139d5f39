//! What the fuzz targets share: states made of bytes, and the image held against the mirror.
//!
//! A target is `fuzz_targets/NAME.rs`; its committed seeds are `seeds/NAME/`. `scripts/fuzz.sh`
//! builds and runs them all on stable Rust; `cargo fuzz run NAME` works too, and adds
//! AddressSanitizer where there is a nightly compiler.

mod events;
mod image;

pub use events::{address, event, link, neighbour, object, route};
pub use image::{Seen, compare, new_rib, seen_by_engines, seen_in_mirror};
