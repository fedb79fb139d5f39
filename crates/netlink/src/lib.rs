//! The kernel's routing state as typed events.
//!
//! * [`codec`] decodes and encodes rtnetlink messages;
//! * [`Socket`] talks to the kernel: requests, dumps, errors in the kernel's own words;
//! * [`mirror::Mirror`] hands on the whole state and then every change of it.
//! * [`fpm::Server`] takes what a routing daemon tells beside the kernel.

mod announced;
mod clock;
pub mod codec;
mod error;
pub mod fpm;
pub mod mirror;
pub mod probe;
mod request;
mod rules;
mod sid_counters;
mod socket;
mod wake;

pub use announced::Announced;
pub use clock::clock;
pub use error::Error;
pub use mirror::Mirror;
pub use request::{RouteAnswer, RouteQuery};
pub use sid_counters::EncapOf;
pub use socket::{Dump, RECEIVE_BUFFER, Socket};
