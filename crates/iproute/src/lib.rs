#![doc = include_str!("../README.md")]

pub mod import;
mod names;
pub mod show;

pub use names::Names;
