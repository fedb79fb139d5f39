//! What routes say apart from their prefix, kept once however many routes say it.
//!
//! A million routes of one daemon share a handful of these; that is what keeps the mirror small
//! and what makes one nexthop change one change.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::algo::MpAlgo;
use crate::event::{Metrics, Route, RouteKind, RouteTarget};
use crate::seg6;
use crate::tunnels::IPV6_IN_IPV4;

/// Number of an interned [`Attrs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AttrsId(pub(crate) u32);

/// A route without its table and prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attrs {
    pub(crate) src: Option<IpNet>,
    pub(crate) tos: u8,
    pub(crate) protocol: u8,
    pub(crate) scope: u8,
    pub(crate) kind: RouteKind,
    pub(crate) metric: u32,
    pub(crate) prefsrc: Option<IpAddr>,
    pub(crate) flags: u32,
    pub(crate) pref: Option<u8>,
    pub(crate) metrics: Metrics,
    /// See [`Route::expires`].
    pub(crate) expires: Option<i64>,
    pub(crate) mp_algo: Option<MpAlgo>,
    pub(crate) target: RouteTarget,
}

/// How many sets of attributes have what [`Metrics4`] is about.
#[derive(Debug, Default)]
struct Counts4 {
    hop_limit: usize,
    little_mtu: usize,
    locked_mtu: usize,
}

/// What any IPv4 route may have to say of packets of this machine, as those of tunnels are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metrics4 {
    /// A hop limit.
    pub(crate) hop_limit: bool,
    /// An MTU that leaves no room for the least one of IPv6 in a packet.
    pub(crate) little_mtu: bool,
    /// An MTU that is locked: packets may be fragmented then, whoever sends them.
    pub(crate) locked_mtu: bool,
}

/// `RTAX_LOCK`: which of the others are locked, by bits.
const RTAX_LOCK: u8 = 1;
/// `RTAX_MTU`.
const RTAX_MTU: u8 = 2;
/// `RTAX_HOPLIMIT`.
const RTAX_HOPLIMIT: u8 = 10;

impl Attrs {
    pub(crate) fn of(route: Route) -> (u32, IpNet, Attrs) {
        let Route {
            table,
            dst,
            src,
            tos,
            protocol,
            scope,
            kind,
            metric,
            prefsrc,
            flags,
            pref,
            metrics,
            expires,
            mp_algo,
            mut target,
        } = route;
        forget_counters(&mut target);
        let attrs = Attrs {
            src,
            tos,
            protocol,
            scope,
            kind,
            metric,
            prefsrc,
            flags,
            pref,
            metrics,
            expires,
            mp_algo,
            target,
        };
        (table, dst, attrs)
    }

    pub(crate) fn to_route(&self, table: u32, dst: IpNet) -> Route {
        let Attrs {
            src,
            tos,
            protocol,
            scope,
            kind,
            metric,
            prefsrc,
            flags,
            pref,
            metrics,
            expires,
            mp_algo,
            target,
        } = self.clone();
        Route {
            table,
            dst,
            src,
            tos,
            protocol,
            scope,
            kind,
            metric,
            prefsrc,
            flags,
            pref,
            metrics,
            expires,
            mp_algo,
            target,
        }
    }

    /// Whether it leads to what is a route's own: the behaviour of a SID.
    pub(crate) fn has_sid(&self) -> bool {
        self.target.has_sid()
    }

    /// The route's own MTU; 0 for none.
    pub(crate) fn mtu(&self) -> u32 {
        self.metric(RTAX_MTU)
    }

    /// The route's own hop limit; 0 for none.
    pub(crate) fn hop_limit(&self) -> u8 {
        // The kernel's own bound (`ip_metrics_convert`).
        u8::try_from(self.metric(RTAX_HOPLIMIT)).unwrap_or(u8::MAX)
    }

    /// Has a route counted that may be an IPv4 one: the kernel tells a preference of each IPv6 route (`rt6_fill_node`).
    fn metrics4(&self, counts: &mut Counts4, count: impl Fn(&mut usize, bool)) {
        if self.pref.is_some() {
            return;
        }
        count(&mut counts.hop_limit, self.hop_limit() != 0);
        let has_little = (1..IPV6_IN_IPV4).contains(&self.mtu());
        count(&mut counts.little_mtu, has_little);
        let locks = self.metric(RTAX_LOCK) & 1 << RTAX_MTU != 0;
        count(&mut counts.locked_mtu, locks);
    }

    fn metric(&self, kind: u8) -> u32 {
        let metric = self.metrics.iter().find(|(known, _)| *known == kind);
        metric.map_or(0, |(_, value)| *value)
    }
}

/// What SIDs have counted is told with their routes, and differs every time.
fn forget_counters(target: &mut RouteTarget) {
    let hops = match target {
        RouteTarget::Single(hop) => std::slice::from_mut(hop),
        RouteTarget::Multipath(hops) => hops,
        RouteTarget::None | RouteTarget::Object(_) => return,
    };
    for encap in hops.iter_mut().filter_map(|hop| hop.encap.as_mut()) {
        seg6::forget_counters(encap);
    }
}

#[derive(Debug)]
struct Entry {
    attrs: Arc<Attrs>,
    refs: u32,
}

/// The interned attributes, counted by use.
#[derive(Debug, Default)]
pub(crate) struct AttrsStore {
    entries: Vec<Option<Entry>>,
    ids: HashMap<Arc<Attrs>, AttrsId>,
    free: Vec<AttrsId>,
    /// Dumps come in runs of equal attributes; this saves hashing them.
    last: Option<AttrsId>,
    /// How many of them expire.
    expiring: usize,
    /// How many of them may be of IPv4 routes that have more to say of packets of this machine.
    metrics4: Counts4,
}

impl AttrsStore {
    /// The number of these attributes, with one use more.
    pub(crate) fn take(&mut self, attrs: Attrs) -> AttrsId {
        if let Some(id) = self.last
            && let Some(entry) = self.entries[id.0 as usize].as_mut()
            && *entry.attrs == attrs
        {
            entry.refs += 1;
            return id;
        }
        let id = match self.ids.get(&attrs) {
            Some(&id) => {
                self.keep(id);
                id
            }
            None => self.add(attrs),
        };
        self.last = Some(id);
        id
    }

    fn add(&mut self, attrs: Attrs) -> AttrsId {
        self.expiring += usize::from(attrs.expires.is_some());
        let counts = &mut self.metrics4;
        attrs.metrics4(counts, |count, has| *count += usize::from(has));
        let attrs = Arc::new(attrs);
        let entry = Some(Entry {
            attrs: Arc::clone(&attrs),
            refs: 1,
        });
        let id = match self.free.pop() {
            Some(id) => {
                self.entries[id.0 as usize] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                AttrsId(self.entries.len() as u32 - 1)
            }
        };
        self.ids.insert(attrs, id);
        id
    }

    /// One use more.
    pub(crate) fn keep(&mut self, id: AttrsId) {
        if let Some(Some(entry)) = self.entries.get_mut(id.0 as usize) {
            entry.refs += 1;
        }
    }

    /// One use less; says whether that was the last.
    pub(crate) fn drop_ref(&mut self, id: AttrsId) -> bool {
        let Some(place) = self.entries.get_mut(id.0 as usize) else {
            return false;
        };
        let Some(entry) = place.as_mut() else {
            return false;
        };
        entry.refs -= 1;
        if entry.refs > 0 {
            return false;
        }
        self.expiring -= usize::from(entry.attrs.expires.is_some());
        let counts = &mut self.metrics4;
        entry
            .attrs
            .metrics4(counts, |count, has| *count -= usize::from(has));
        self.ids.remove(&entry.attrs);
        *place = None;
        self.free.push(id);
        if self.last == Some(id) {
            self.last = None;
        }
        true
    }

    /// The attributes with this number.
    ///
    /// # Panics
    /// When the number is not in use, which would be a mistake in counting uses.
    pub(crate) fn get(&self, id: AttrsId) -> &Attrs {
        match self.entries.get(id.0 as usize) {
            Some(Some(entry)) => &entry.attrs,
            _ => panic!("attributes {} are not in use", id.0),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether any of them expires.
    pub(crate) fn has_expiring(&self) -> bool {
        self.expiring > 0
    }

    /// What IPv4 routes may have to say that tunnels go by.
    pub(crate) fn metrics4(&self) -> Metrics4 {
        Metrics4 {
            hop_limit: self.metrics4.hop_limit > 0,
            little_mtu: self.metrics4.little_mtu > 0,
            locked_mtu: self.metrics4.locked_mtu > 0,
        }
    }

    /// The numbers of those that `wanted` is true of. Costs a walk over all.
    pub(crate) fn numbers(&self, wanted: impl Fn(&Attrs) -> bool) -> impl Iterator<Item = AttrsId> {
        let all = self.ids.iter().filter(move |(attrs, _)| wanted(attrs));
        all.map(|(_, id)| *id)
    }
}
