//! Which paths this machine's own IPv4 connections take: a route's own nexthops are preferred by their
//! source address, and a socket without one gets it from the path that it is given first.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use raddle_explain::{hop_source, source_of};
use raddle_rib::{Hop, Rib};
use raddle_select::{
    Flow, KernelVersion, LocalHop, SourcePreference, compile_local4, upper_bounds,
};
use raddle_sim::ports::{Connection, Places};
use raddle_sim::{Hashing, Layout, Path};

use crate::paths::{Choice, Kind};

/// What this machine's own connections to a destination choose among.
#[derive(Clone, Copy)]
pub(crate) struct Sockets<'a> {
    rib: &'a Rib,
    choice: &'a Choice,
    preference: SourcePreference,
}

impl<'a> Sockets<'a> {
    /// Of this machine under this kernel; without a version, the newest that is known.
    pub(crate) fn new(
        rib: &'a Rib,
        choice: &'a Choice,
        kernel: Option<KernelVersion>,
    ) -> Sockets<'a> {
        let preference = SourcePreference::of(kernel.unwrap_or(KernelVersion::NEWEST));
        Sockets {
            rib,
            choice,
            preference,
        }
    }

    /// Which path each hash takes for packets with this source, where nexthops that are `gone` have
    /// failed. Sources make a difference to IPv4 routes with nexthops of their own alone
    /// ([`raddle_select::choose_local4`]).
    pub(crate) fn layout(&self, source: IpAddr, gone: impl Fn(usize) -> bool) -> Layout {
        let choice = self.choice;
        let hops = &choice.hops;
        let IpAddr::V4(source) = source else {
            return self.any_source(gone);
        };
        if choice.kind != Kind::Plain {
            return self.any_source(gone);
        }
        let weight = |i: usize| {
            let stays = !gone(i) && hops[i].upper.is_some();
            stays.then_some(u32::from(hops[i].weight))
        };
        let uppers = upper_bounds(&(0..hops.len()).map(weight).collect::<Vec<_>>());
        let scope = choice.route.scope;
        let local = |(hop, upper): (&Hop, Option<u32>)| LocalHop {
            upper,
            good: hop.eligible,
            has_source: hop_source(self.rib, hop, scope) == Some(source),
        };
        let local: Vec<LocalHop> = hops.iter().zip(uppers).map(local).collect();
        let sourced = !source.is_unspecified();
        Layout::ranges(compile_local4(self.preference, &local, sourced))
    }

    fn any_source(&self, gone: impl Fn(usize) -> bool) -> Layout {
        match (0..self.choice.hops.len()).any(&gone) {
            true => self.choice.without(gone),
            false => self.choice.layout.clone(),
        }
    }

    /// The source that each nexthop gives to an IPv4 socket without one, by number.
    pub(crate) fn sources(&self) -> Vec<Option<Ipv4Addr>> {
        let source = |hop| source_of(self.rib, hop, &self.choice.route);
        self.choice.hops.iter().map(source).collect()
    }
}

/// Connected IPv4 sockets that are bound to a port and to no address (`ip_route_connect`):
///
/// 1. A first look-up hashes 0.0.0.0, and its path gives the source.
/// 2. A second one with that source gives the path.
#[derive(Clone, Debug)]
pub(crate) struct Unbound<'a> {
    hashing: &'a Hashing,
    dst: IpAddr,
    /// One of them; all are alike but for the port.
    flow: Flow,
    sources: Vec<Option<Ipv4Addr>>,
    now: Looks,
    without: Vec<Looks>,
}

/// Which path each hash takes.
#[derive(Clone, Debug)]
struct Looks {
    /// In the first look-up.
    first: Layout,
    /// In the second, by source.
    second: BTreeMap<Ipv4Addr, Layout>,
}

impl<'a> Unbound<'a> {
    /// Connections to `dst` like `flow`, whose source does not count, with these failures: nexthops that fail
    /// together, by number.
    pub(crate) fn new(
        sockets: Sockets<'_>,
        hashing: &'a Hashing,
        (dst, flow): (IpAddr, &Flow),
        failures: &[Vec<usize>],
    ) -> Unbound<'a> {
        let sources = sockets.sources();
        let looks = |gone: &[usize]| {
            let layout = |source| sockets.layout(IpAddr::V4(source), |i| gone.contains(&i));
            let named = sources.iter().flatten();
            Looks {
                first: layout(Ipv4Addr::UNSPECIFIED),
                second: named.map(|source| (*source, layout(*source))).collect(),
            }
        };
        Unbound {
            hashing,
            dst,
            flow: *flow,
            now: looks(&[]),
            without: failures.iter().map(|gone| looks(gone)).collect(),
            sources,
        }
    }

    /// Source, hash and path of a connection that is opened with this source port; none where no source
    /// is known.
    pub(crate) fn connect(
        &self,
        failure: Option<usize>,
        port: u32,
    ) -> Option<(Ipv4Addr, u32, usize)> {
        let looks = failure.map_or(&self.now, |failure| &self.without[failure]);
        let first = self.hash31(Ipv4Addr::UNSPECIFIED, port)?;
        let source = *self.sources.get(looks.first.path(first)?)?.as_ref()?;
        let hash31 = self.hash31(source, port)?;
        let path = looks.second.get(&source)?.path(hash31)?;
        Some((source, hash31, path))
    }

    fn hash31(&self, source: Ipv4Addr, port: u32) -> Option<u32> {
        let ends = Flow::new(IpAddr::V4(source), self.dst)?;
        let flow = ends.ports(self.flow.proto, port as u16, self.flow.dport);
        Some(self.hashing.flow(&flow))
    }
}

impl Places for Unbound<'_> {
    fn shares(&self, failure: Option<usize>) -> Vec<u64> {
        let looks = failure.map_or(&self.now, |failure| &self.without[failure]);
        looks.first.shares()
    }

    fn opened(&self, failure: Option<usize>, value: u32) -> (u32, Path) {
        match self.connect(failure, value) {
            Some((_, hash31, path)) => (hash31, Some(path)),
            None => (0, None),
        }
    }

    /// By the source that the connection got when it was opened.
    fn kept(&self, failure: usize, connection: &Connection) -> Path {
        let (source, hash31, _) = self.connect(None, connection.value)?;
        self.without[failure].second.get(&source)?.path(hash31)
    }
}
