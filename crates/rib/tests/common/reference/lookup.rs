//! Which route decides about a packet: rules, tables, prefixes, and the routes of one prefix.

use std::net::IpAddr;

use ipnet::IpNet;
use raddle_image::{MAX_LINKS, Reason};
use raddle_rib::Rib;
use raddle_rib::event::{RULE_OTHER_INVERT, Route, RouteKind};

use super::super::Seen;
use super::Reference;

/// Whose a route is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// Raddle's own: the kernel does not have it.
    Own,
    Kernel,
    /// Told by FPM, where the kernel has none.
    Fpm,
}

/// Milliseconds before its time from which on an expiring route is the kernel's.
const EXPIRES_SOON: i64 = 500;

impl Reference {
    /// What becomes of packets to `dst` that come in by link `iif`; none where all from there are the kernel's. The mirror
    /// says which links may be used, and how segments are numbered.
    pub fn seen(&self, rib: &Rib, iif: u32, dst: IpAddr) -> Option<Seen> {
        let link = self.links.iter().find(|link| link.index == iif)?;
        if !rib.ports().enabled.contains(&iif) || link.mac.is_none() || iif as usize >= MAX_LINKS {
            return None;
        }
        let tables = self.tables(dst.is_ipv6(), &link.name)?;
        let found = tables.iter().find_map(|table| self.route_in(*table, dst));
        Some(match found {
            None => Err(Reason::NoRoute),
            Some(Err(reason)) => Err(reason),
            Some(Ok((route, from))) => self.outcome(rib, (&route, from), dst),
        })
    }

    /// The tables that are looked in, in order (`fib_rules_lookup`); none where it takes the kernel to know.
    ///
    /// 1. Without rules: local, main, and of IPv4 default.
    /// 2. A rule for packets from another link is passed over, and so is one for packets by an out-link: a packet that is
    ///    being forwarded has none yet.
    /// 3. A rule that wants anything else of a packet, or something else done than looking in a table, is the kernel's.
    ///    So is one for what does not match it.
    pub(super) fn tables(&self, v6: bool, link: &str) -> Option<Vec<u32>> {
        let family = if v6 { 6 } else { 4 };
        let mut rules: Vec<_> = self.rules.iter().filter(|r| r.family == family).collect();
        if rules.is_empty() {
            return Some(if v6 {
                vec![255, 254]
            } else {
                vec![255, 254, 253]
            });
        }
        // Those of one priority stay in the order in which they came.
        rules.sort_by_key(|rule| rule.priority);
        let mut tables = Vec::new();
        for rule in rules {
            if !rule.other.contains(&RULE_OTHER_INVERT) {
                if rule.oif.is_some() {
                    continue;
                }
                if rule.iif.as_ref().is_some_and(|iif| iif != link) {
                    continue;
                }
            }
            let narrows = |net: Option<IpNet>| net.is_some_and(|net| net.prefix_len() > 0);
            let marks = rule
                .fwmark
                .is_some_and(|(mark, mask)| mark != 0 || mask != 0);
            let looks = rule.action == 1;
            if !looks || narrows(rule.from) || narrows(rule.to) || marks || !rule.other.is_empty() {
                return None;
            }
            tables.push(rule.table);
        }
        Some(tables)
    }

    /// The route of a table that decides, or why nobody but the kernel knows which does.
    ///
    /// 1. The longest prefix that has any.
    /// 2. There: raddle's own; else the kernel's; else the one that FPM tells, if that counts.
    /// 3. Of the kernel's IPv4 routes the first, which has the least metric where none has a TOS. One with a TOS is for some
    ///    packets only.
    /// 4. Of the kernel's IPv6 routes the one with the least metric. Several that are not one multipath route are asked by
    ///    rules that are not followed, and so are those for some sources.
    /// 5. Around the time when the first expires, only the kernel knows if it has.
    /// 6. Destinations of which the kernel knows more than routes, unless the route is none of its.
    pub(super) fn route_in(
        &self,
        table: u32,
        dst: IpAddr,
    ) -> Option<Result<(Route, From), Reason>> {
        let routes = match dst {
            IpAddr::V4(_) => &self.v4,
            IpAddr::V6(_) => &self.v6,
        };
        let fpm = routes.fpm.iter().map(|(route, _)| route);
        let own = routes.own.iter().map(|route| (route, From::Own));
        let kernel = routes.kernel.iter().map(|route| (route, From::Kernel));
        let all = own.chain(kernel).chain(fpm.map(|route| (route, From::Fpm)));
        let fits = |route: &Route| route.table == table && route.dst.contains(&dst);
        let all: Vec<(&Route, From)> = all.filter(|(route, _)| fits(route)).collect();
        let longest = if dst.is_ipv6() { 128 } else { 32 };
        let mut lengths = (0..=longest).rev();
        lengths.find_map(|length| {
            let of = |(route, _): &&(&Route, From)| route.dst.prefix_len() == length;
            let prefix: Vec<_> = all.iter().filter(of).copied().collect();
            self.route_of(&prefix, dst)
        })
    }

    /// The same of the routes of one prefix.
    fn route_of(
        &self,
        all: &[(&Route, From)],
        dst: IpAddr,
    ) -> Option<Result<(Route, From), Reason>> {
        let of = |from: From| {
            let told = all.iter().filter(move |(_, whose)| *whose == from);
            told.map(|(route, _)| *route)
        };
        if let Some(own) = of(From::Own).next() {
            return Some(Ok((own.clone(), From::Own)));
        }
        let kernel: Vec<&Route> = of(From::Kernel).collect();
        if let Some(first) = kernel.first() {
            let only_the_kernel = matches!(dst, IpAddr::V6(ip) if self.hosts.contains(&ip));
            return Some(match only_the_kernel {
                true => Err(Reason::RouteFeature),
                false => self.only(first, &kernel).map(|r| (r, From::Kernel)),
            });
        }
        let fpm = of(From::Fpm).next()?;
        let counts = self.as_it_counts(fpm)?;
        let plain = self.only(fpm, &[fpm]);
        Some(plain.and_then(|_| Ok((counts?, From::Fpm))))
    }

    /// Rules 3 to 5.
    fn only(&self, first: &Route, all: &[&Route]) -> Result<Route, Reason> {
        if first
            .expires
            .is_some_and(|at| at.saturating_sub(EXPIRES_SOON) <= self.now)
        {
            return Err(Reason::Expiring);
        }
        let several = all.iter().filter(|r| r.metric == first.metric).count() > 1;
        let by_source = all.iter().any(|route| route.src.is_some());
        let is_for_some = match first.dst.addr().is_ipv6() {
            true => several || by_source,
            false => first.tos != 0,
        };
        if is_for_some {
            return Err(Reason::RouteFeature);
        }
        Ok(first.clone())
    }

    /// What a route says by its kind, and else its nexthops.
    pub(super) fn outcome(&self, rib: &Rib, (route, from): (&Route, From), dst: IpAddr) -> Seen {
        let refuses = matches!(route.kind, RouteKind::Unreachable | RouteKind::Prohibit);
        if refuses && from == From::Fpm {
            // The kernel, which would say so to the sender, does not know of it.
            return Err(Reason::Blackhole);
        }
        if route.tos != 0 || route.src.is_some_and(|src| src.prefix_len() != 0) {
            return Err(Reason::RouteFeature);
        }
        match route.kind {
            RouteKind::Unicast => self.by_nexthops(rib, (route, from), dst),
            RouteKind::Local => Err(Reason::Local),
            RouteKind::Broadcast => Err(Reason::Broadcast),
            RouteKind::Anycast => Err(Reason::Anycast),
            RouteKind::Multicast => Err(Reason::Multicast),
            RouteKind::Blackhole => Err(Reason::Blackhole),
            RouteKind::Unreachable => Err(Reason::Unreachable),
            RouteKind::Prohibit => Err(Reason::Prohibit),
            RouteKind::Throw => Err(Reason::Throw),
            RouteKind::Unspec | RouteKind::Nat | RouteKind::Xresolve => Err(Reason::RouteFeature),
        }
    }
}
