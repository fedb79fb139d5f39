//! Wire formats: header views, checksums and the flow dissector.
//!
//! Nothing here does I/O, allocates or knows a kernel. Views borrow the bytes they are given and never
//! read past them: a view can only be made of enough bytes (`new_checked`), and everything else
//! answers with an error or with nothing.
//!
//! Numbers are in host byte order once they have left a view; MAC and IP addresses keep the order of
//! the wire. "L3 bytes" always means a packet from its IP header on, ended where its IP header says
//! that it ends (Ethernet padding cut off).
//!
//! ```
//! use raddle_packet::{Family, Stop, dissect, dissect_plain};
//!
//! // A UDP datagram from 10.0.0.1:1000 to 198.18.0.9:53, without data.
//! let l3 = [
//!     0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 198, 18, 0, 9, // IPv4
//!     3, 232, 0, 53, 0, 8, 0, 0, // UDP
//! ];
//! let flow = dissect(&l3, Family::V4, Stop::AtEncap);
//! assert_eq!((flow.ip_proto, flow.sport, flow.dport), (17, 1000, 53));
//! ```
#![cfg_attr(not(test), no_std)]

pub mod arp;
mod bytes;
pub mod checksum;
mod dissect;
mod error;
pub mod ethernet;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod protocol;
pub mod srh;
pub mod transport;
mod walk;

pub use arp::Arp;
pub use dissect::{
    Addresses, Dissected, IcmpKey, MAX_HEADERS, OfBond, Stop, Whole, dissect, dissect_for_bond,
    dissect_plain, dissect_whole,
};
pub use error::{Error, Header};
pub use ethernet::{Ethernet, Vlan};
pub use icmp::Icmp;
pub use ipv4::Ipv4;
pub use ipv6::{Extension, Extensions, Fragment, Ipv6};
pub use srh::{Srh, SrhError};
pub use transport::{Tcp, Udp};

/// An address family that raddle forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl core::fmt::Display for Family {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}
