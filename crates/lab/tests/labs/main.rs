//! Labs of every kind, and the certainty of clean-up.

#![expect(clippy::unwrap_used, reason = "a test's way to fail")]

mod common;
mod fabric;
mod made;
#[path = "../common/traces.rs"]
mod traces;
mod vpn;
mod wires;
