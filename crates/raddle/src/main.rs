//! `raddle`: multipath forwarding for Linux.

mod plot;
mod show;

fn main() {}
