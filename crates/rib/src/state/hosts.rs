//! Hosts that have entries of their own in views, whatever the routes: neighbours, and those that are the kernel's.

use std::net::IpAddr;

use super::State;
use crate::event::{KernelHosts, ROUTE_FPM, ROUTE_STATIC};
use crate::prefix::{Addr, Prefix};
use crate::table::Slot;

impl State {
    pub(super) fn set_kernel_hosts(&mut self, told: KernelHosts) {
        let changed = self.kernel_hosts.hosts.symmetric_difference(&told.hosts);
        let changed = changed.map(|ip| IpAddr::V6(*ip));
        self.dirty.kernel_hosts.extend(changed);
        self.kernel_hosts = told;
    }

    /// Whether packets to this address that go by these routes are the kernel's, see [`KernelHosts`]. It does not know
    /// what is raddle's own or an FPM route alone.
    pub(crate) fn is_kernels<A: Addr>(&self, address: A, slot: &Slot) -> bool {
        let is_one = match address.to_ip() {
            IpAddr::V6(ip) => self.kernel_hosts.hosts.contains(&ip),
            IpAddr::V4(_) => false,
        };
        is_one && self.attrs.get(slot.ids()[0]).flags & (ROUTE_STATIC | ROUTE_FPM) == 0
    }

    /// How many hosts may have entries of their own.
    pub(crate) fn hosts(&self) -> usize {
        self.neighbours.len() + self.kernel_hosts.hosts.len()
    }

    /// The hosts inside `prefix` that may have entries of their own, as host prefixes, each once.
    pub(crate) fn hosts_inside<A: Addr>(&self, prefix: Prefix<A>) -> Vec<Prefix<A>> {
        let range = prefix.addresses();
        let (first, last) = (range.start().to_ip(), range.end().to_ip());
        let neighbours = self.neighbours.range((first, 0)..=(last, u32::MAX));
        let mut hosts: Vec<Prefix<A>> = neighbours
            .filter_map(|((ip, _), _)| A::from_ip(*ip))
            .map(Prefix::host)
            .collect();
        if let (IpAddr::V6(first), IpAddr::V6(last)) = (first, last) {
            let kernels = self.kernel_hosts.hosts.range(first..=last);
            let kernels = kernels.filter_map(|ip| A::from_ip(IpAddr::V6(*ip)));
            hosts.extend(kernels.map(Prefix::host));
            hosts.sort_unstable();
        }
        hosts.dedup();
        hosts
    }
}
