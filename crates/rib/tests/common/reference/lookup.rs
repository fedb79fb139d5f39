//! Which route decides about a packet: rules, tables, prefixes, and the routes of one prefix.

use std::net::IpAddr;

use ipnet::IpNet;
use raddle_image::{MAX_LINKS, Reason};
use raddle_rib::Rib;
use raddle_rib::event::{Link, ROUTE_FPM, RULE_OTHER_INVERT, Route, RouteKind, RouteTarget};

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

/// A table, and the length up to which its prefixes do not count.
type Asked = (u32, Option<u32>);

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
        let (tables, end) = self.tables(dst.is_ipv6(), link)?;
        let mut asked = tables.iter();
        let found = asked.find_map(|(table, suppress)| self.route_in(*table, *suppress, dst));
        Some(match found {
            None => Err(end),
            Some(Err(reason)) => Err(reason),
            Some(Ok((route, from))) => self.outcome(rib, (&route, from), dst),
        })
    }

    /// Where rules have a packet looked up that comes in by this link, asked one rule after the other as if for a packet
    /// with all selectors at hand (`fib_rules_lookup`); none where it takes the kernel to know.
    ///
    /// 1. While it is not known whether there are rules: local, main, and of IPv4 default.
    /// 2. A packet that is being forwarded has no out-link yet and no mark; in a VRF IPv6 comes in by that, and IPv4 by its
    ///    link, but for some kernels.
    /// 3. A rule that wants something of its addresses, or that is not modelled, is the kernel's where all else fits.
    pub(super) fn tables(&self, v6: bool, link: &Link) -> Option<(Vec<Asked>, Reason)> {
        let family = if v6 { 6 } else { 4 };
        let mut rules: Vec<_> = self.rules.iter().filter(|r| r.family == family).collect();
        if !self.families.contains(&family) {
            let mut tables = vec![(255, None), (254, None), (253, None)];
            tables.truncate(if v6 { 2 } else { 3 });
            return Some((tables, Reason::NoRoute));
        }
        let master = self.links.iter().find(|l| Some(l.index) == link.master);
        let vrf = master.filter(|l| l.kind.as_deref() == Some("vrf"));
        // Whether it comes in by the link of this name; none where kernels differ.
        let comes_by = |name: &String| match vrf {
            None => Some(*name == link.name),
            Some(vrf) if v6 => Some(*name == vrf.name),
            Some(vrf) => (*name != vrf.name).then_some(*name == link.name),
        };
        // Those of one priority stay in the order in which they came.
        rules.sort_by_key(|rule| rule.priority);
        let mut tables = Vec::new();
        let mut at = 0;
        while let Some(rule) = rules.get(at) {
            at += 1;
            let l3mdev = rule.other.contains(&19);
            let mut fits = Some(true);
            for (is_wanted, holds) in [
                (rule.oif.is_some(), false),
                (
                    rule.iif.is_some(),
                    rule.iif.as_ref().and_then(comes_by) != Some(false),
                ),
                (
                    rule.fwmark.is_some(),
                    rule.fwmark.is_some_and(|(m, k)| m & k == 0),
                ),
                (l3mdev, vrf.is_some()),
                (rule.uidrange.is_some_and(|(first, _)| first != 0), false),
            ] {
                if is_wanted && !holds {
                    fits = Some(false);
                }
            }
            let narrows = |net: Option<IpNet>| net.is_some_and(|net| net.prefix_len() > 0);
            // Frames of these tests have other addresses.
            if narrows(rule.from) || narrows(rule.to) {
                fits = Some(false);
            }
            let of_packets = rule
                .iif
                .as_ref()
                .is_some_and(|name| comes_by(name).is_none())
                || rule.uidrange.is_some_and(|(first, _)| first == 0)
                || rule
                    .other
                    .iter()
                    .any(|o| ![19, RULE_OTHER_INVERT].contains(o));
            if fits == Some(true) && of_packets {
                fits = None;
            }
            // One of these may change the result instead of asking for anything.
            let odd = rule
                .other
                .iter()
                .any(|o| ![19, RULE_OTHER_INVERT].contains(o));
            if rule.other.contains(&RULE_OTHER_INVERT) && odd {
                fits = None;
            }
            if rule.other.contains(&RULE_OTHER_INVERT) {
                fits = fits.map(|fits| !fits);
            }
            if !fits? {
                continue;
            }
            match rule.action {
                1 if l3mdev => tables.push((vrf?.vrf_table?, rule.suppress_prefixlength)),
                1 => tables.push((rule.table, rule.suppress_prefixlength)),
                2 => {
                    let target = rules.iter().position(|r| Some(r.priority) == rule.goto);
                    rule.goto?;
                    at = target.unwrap_or(at);
                }
                3 => {}
                7 => return Some((tables, Reason::Unreachable)),
                8 => return Some((tables, Reason::Prohibit)),
                _ => return None,
            }
        }
        Some((tables, Reason::NoRoute))
    }

    /// The route of a table that decides, or why nobody but the kernel knows which does.
    ///
    /// 1. The longest prefix that has any. No longer than `suppress`, it is as if there were none, unless it refuses.
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
        suppress: Option<u32>,
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
        let (length, refuses, decided) = lengths.find_map(|length| {
            let of = |(route, _): &&(&Route, From)| route.dst.prefix_len() == length;
            let prefix: Vec<_> = all.iter().filter(of).copied().collect();
            let refuses = |route: &Route| {
                use RouteKind::{Blackhole, Prohibit, Throw, Unreachable};
                [Blackhole, Prohibit, Throw, Unreachable].contains(&route.kind)
            };
            let all = prefix.iter().all(|(route, _)| refuses(route));
            let some = prefix
                .iter()
                .any(|(route, _)| refuses(route) || matches!(route.target, RouteTarget::Object(_)));
            let decided = self.route_of(&prefix, dst)?;
            Some((u32::from(length), (all, some), decided))
        })?;
        let suppressed = !refuses.0 && suppress.is_some_and(|most| length <= most);
        match (suppressed, refuses.1) {
            (false, _) => Some(decided),
            // The object may be a blackhole, or the packet's TOS is for the route that refuses.
            (true, true) => Some(Err(Reason::RouteFeature)),
            (true, false) => None,
        }
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
        use RouteKind::{Anycast, Broadcast, Local, Multicast};
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
        // Of table local, it may be asked together with main.
        let usual = [Local, Broadcast, Anycast, Multicast].contains(&first.kind);
        let is_told = all.len() == 1 && first.flags & ROUTE_FPM != 0;
        if first.dst.addr().is_ipv4() && first.table == 255 && !usual && !is_told {
            return Err(Reason::RouteFeature);
        }
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
