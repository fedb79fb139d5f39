//! A mirror, and the reference that is told the same.
#![allow(unreachable_pub, reason = "the fuzz targets hand it on")]
#![allow(dead_code, reason = "each test uses some of it")]

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;

use raddle_image::Capacity;
use raddle_rib::event::Event;
use raddle_rib::{AlgoRules, Commit, Ports, Rib};

use super::reference::{Filter, Reference};
use super::{Seen, parts};

/// A mirror with the reference beside it. Whoever changes the mirror does it by the methods here: what the mirror alone
/// were told the reference would not know.
pub struct Mirror {
    rib: Rib,
    reference: Reference,
}

/// A mirror over a small image of its own, with links 1 to 4 enabled.
pub fn new_rib(capacity: &Capacity) -> Mirror {
    Mirror {
        rib: parts::new_rib(capacity),
        reference: Reference::default(),
    }
}

impl Deref for Mirror {
    type Target = Rib;

    fn deref(&self) -> &Rib {
        &self.rib
    }
}

impl Mirror {
    /// [`Rib::apply`], and the same to the reference.
    pub fn apply(&mut self, event: Event) {
        self.reference.apply(event.clone());
        self.rib.apply(event);
    }

    /// What the reference says of packets to `dst` that come in by link `iif`.
    pub fn expected(&self, iif: u32, dst: IpAddr) -> Option<Seen> {
        self.reference.seen(&self.rib, iif, dst)
    }

    /// What the reference says of the reverse-path filter of link `iif`.
    pub fn filters(&self, iif: u32, source: Ipv4Addr) -> Filter {
        self.reference.filters(&self.rib, iif, source)
    }

    /// Whether the reference has packets filtered apart from `iif` to `out`.
    pub fn is_apart(&self, iif: u32, out: u32) -> Option<bool> {
        self.reference.is_apart(iif, out)
    }

    /// [`Rib::commit`].
    pub fn commit(&mut self) -> Commit {
        self.rib.commit()
    }

    /// [`Rib::commit_nexthops`].
    pub fn commit_nexthops(&mut self) -> Option<Commit> {
        self.rib.commit_nexthops()
    }

    /// [`Rib::commit_links`].
    pub fn commit_links(&mut self) -> Option<Commit> {
        self.rib.commit_links()
    }

    /// [`Rib::set_ports`].
    pub fn set_ports(&mut self, ports: Ports) {
        self.rib.set_ports(ports);
    }

    /// [`Rib::set_algos`].
    pub fn set_algos(&mut self, algos: AlgoRules) {
        self.rib.set_algos(algos);
    }
}
