//! Loopback addresses that a test has to itself.
//!
//! Every port of such an address is the test's own for as long as it runs: a connection can be
//! repeated from its port, and a listener come back to it, although other tests and programs take
//! free ports of 127.0.0.1 all the time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

/// Bits of an address that count a process's own; the 14 above them tell processes apart.
const COUNT: u32 = 10;

/// An address of 127.0.0.0/8 that no one else uses, and any port.
pub fn local_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = NEXT.fetch_add(1, Ordering::Relaxed) % (1 << COUNT);
    // From 1 on, and below the last: neither 127.0.0.1 nor the broadcast address.
    let process = std::process::id() % ((1 << (24 - COUNT)) - 2) + 1;
    let address = Ipv4Addr::from_bits(127 << 24 | process << COUNT | count);
    SocketAddr::new(IpAddr::V4(address), 0)
}
