#![doc = include_str!("../README.md")]

mod chart;
pub mod flows;
pub mod paths;
pub mod ports;
mod sockets;
pub mod spread;
#[cfg(test)]
mod state_test;
pub mod what_if;

pub use chart::Chart;
