#![doc = include_str!("../README.md")]

mod de;
mod error;
mod file;
mod mistake;
mod place;
mod values;

pub use error::Error;
pub use file::{At, File};
pub use mistake::Mistake;
pub use place::Place;
pub use toml::Spanned;
pub use values::{Address, OneOrMore, Within};
