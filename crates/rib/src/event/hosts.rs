//! Destinations for which the kernel goes by more than its routes.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

/// IPv6 destinations whose packets only the kernel treats as it does: proxied neighbours, where
/// `net.ipv6.conf.all.proxy_ndp` is on. Neighbour discovery to them is the kernel's own, and what is link-local is dropped
/// (`ip6_forward_proxy_check`).
///
/// Destinations with a route exception, such as a path MTU that was learnt from an ICMPv6 error, are none of these,
/// though the kernel keeps to exceptions for forwarded packets, too (`rt6_find_cached_rt` in `ip6_pol_route`; measured on
/// 6.18.44: it answers a forwarded packet of 1498 bytes by "packet too big" after it has been told of 1400). Whoever can
/// send a packet can have a machine learn them for any destination, so that they would let strangers say what is not
/// forwarded; and to read them the kernel walks over its whole table under its lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KernelHosts {
    /// The destinations.
    pub hosts: BTreeSet<Ipv6Addr>,
}

impl KernelHosts {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }
}
