//! The forwarding pipeline over an image: what the XDP program does, in Rust, for captures,
//! benchmarks, predictions, and as the second opinion on the XDP program.
//!
//! Both engines take the same steps in the same order and give the same reasons. The steps:
//!
//! | step | | reason when it fails |
//! |---|---|---|
//! | P1 | the image is complete, not held, not too old | `held` |
//! | P2 | the input link is enabled, or the one upon it that P4 comes to | `not-enabled` |
//! | P3 | 14 bytes of Ethernet header | `truncated` |
//! | P4 | EtherType is IPv4 or IPv6, behind the tags of a link upon the one that the frame was seen on: a VLAN, a bridge, a macvlan | `vlan`, `bridge`, `not-ip` |
//! | P5 | sent to the link's own MAC address | `other-mac` |
//! | A1..A14 | IPv4, see [`Engine::forward`]'s module `ipv4` | |
//! | B1..B10 | IPv6, see module `ipv6` | |
//!
//! A route may lead to a segment (SRv6); rules S1..S10 of [`raddle_srv6`] then say what becomes of the
//! packet. What leaves or comes in by a tunnel: module `tunnel`, and rules T1..T7 of [`raddle_srv6::tunnel`].
//!
//! A packet that goes to the kernel is left untouched. Nothing is allocated for a packet, nothing
//! waits, and nothing depends on earlier packets, but for groups that go round robin because somebody asked
//! for it, and the packets of resilient groups that are shown to the kernel.

mod arrive;
mod bond;
mod choose;
mod context;
mod counters;
mod detour;
mod engine;
mod ipv4;
mod ipv6;
mod lookups;
mod parts;
mod rewrite;
mod slots;
mod srv6;
mod state;
mod tags;
mod tunnel;
mod upon;
mod vector;

pub use bond::leaves_by;
pub use context::{NO_ADJACENCY, Verdict};
pub use counters::{Count, Counters};
pub use engine::{Engine, HEADROOM};
pub use lookups::VECTOR;
pub use srv6::check_again;

/// Steps A5 and A6, or B4 and B5: whether packets with these addresses are forwarded at all, by their
/// addresses alone.
///
/// # Errors
/// Why not. Addresses of different families are [`raddle_image::Reason::BadHeader`].
pub fn check_addresses(
    src: std::net::IpAddr,
    dst: std::net::IpAddr,
) -> Result<(), raddle_image::Reason> {
    use std::net::IpAddr::{V4, V6};
    match (src, dst) {
        (V4(src), V4(dst)) => ipv4::check_addresses(src.to_bits(), dst.to_bits()),
        (V6(src), V6(dst)) => ipv6::check_addresses(src.to_bits(), dst.to_bits()),
        _ => Err(raddle_image::Reason::BadHeader),
    }
}
