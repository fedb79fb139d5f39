//! Routes from a routing daemon by FPM (forwarding plane manager): FRR's zebra, with `-M dplane_fpm_nl` or the
//! older `-M fpm:netlink`, connects to us and sends its routes as netlink messages.
//!
//! [`Frames`] cuts the stream into frames, [`Reader`] makes of each what it says, and [`Server`] has the
//! connection: one at a time, with a resync after each, and some grace between two.
//!
//! Nothing is answered: zebra does not wait for it. Interface indexes are those of the namespace in which the daemon
//! runs, which has to be ours.

mod frame;
mod reader;
mod server;
mod user;

pub use frame::{FrameError, Frames};
pub use reader::{Reader, Tallies};
pub use server::{Options, Server, Stats};
