#![doc = include_str!("../README.md")]

mod chart;
pub mod paths;
pub mod ports;
mod sockets;
#[cfg(test)]
mod state_test;

pub use chart::Chart;
