#![doc = include_str!("../README.md")]

pub mod bonds;
#[cfg(test)]
mod bonds_test;
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
