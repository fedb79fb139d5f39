//! Destinations for which the kernel goes by more than its routes.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

/// IPv6 destinations whose packets only the kernel treats as it does.
///
/// 1. Proxied neighbours, where `net.ipv6.conf.all.proxy_ndp` is on: neighbour discovery to them is the kernel's own, and
///    what is link-local is dropped (`ip6_forward_proxy_check`).
/// 2. Those with a route exception, such as a path MTU that was learnt from an ICMPv6 error: the kernel looks them up for
///    forwarded packets, too (`rt6_find_cached_rt` in `ip6_pol_route`). Measured on 6.18.44: after this machine has been
///    told of an MTU of 1400 bytes, it answers a forwarded packet of 1498 bytes by "packet too big", the link's MTU being 1500.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelHosts {
    /// The destinations.
    pub hosts: BTreeSet<Ipv6Addr>,
    /// There are more route exceptions than are told: any destination may have a path MTU of its own, from 1280 bytes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more_mtus: bool,
}

impl KernelHosts {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && !self.more_mtus
    }
}
