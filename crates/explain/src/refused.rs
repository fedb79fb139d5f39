//! What keeps a forwarded flow from being forwarded before any route is looked up: its addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use raddle_image::Reason;
use raddle_rib::event::{Link, Route, RouteKind, Rule};
use raddle_rib::{Back, Claim, Hop, Resolved, TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN, Trace};
use serde_json::json;

use super::steps::Walk;

/// `RTPROT_KERNEL`: what the kernel makes by itself.
const RTPROT_KERNEL: u8 = 2;

impl Walk<'_> {
    /// Part of step 1, for flows that come in, in the kernel's order (`ip_route_input_slow`,
    /// `ip6_route_input`); for packets step K9.
    ///
    /// 1. Addresses that may not appear on the wire, and destinations that are not unicast, by the rules
    ///    of the engines ([`raddle_forward::check_addresses`]). A source that was not named is not
    ///    judged.
    /// 2. Of IPv6 packets, `::` and link-local sources are judged when the way out is known. A link-local
    ///    destination is this machine's, or looked for on the link; `::` is looked up like any.
    /// 3. IPv4 packets to all or to a group: see [`Walk::to_many`]; their sources and options are judged as well.
    /// 4. IPv4 behind a SID: a source that the kernel refuses, or may refuse, see [`Walk::source`].
    /// 5. IPv4 behind a SID of the kernel's, with `rp_filter`: the flow goes on, but engines leave it to the kernel, which
    ///    also looks the source up. As it came in, see [`Walk::filtered`].
    pub(super) fn addresses(&mut self) -> Result<(), Reason> {
        let Some(link) = self
            .words
            .iif
            .as_ref()
            .and_then(|name| self.view.rib.link_named(name))
        else {
            return Ok(());
        };
        let device = self.view.rib.input_settings(link);
        let (src, dst) = (self.words.src, self.words.dst);
        let unnamed = src.is_unspecified() && self.packet.is_none();
        let asks = self.received.is_some();
        let later = asks && is_judged_later(src);
        let judged = if unnamed || later { stand_in(dst) } else { src };
        // Engines leave sources of this kind to the kernel, which forwards them.
        let mapped = matches!(src, IpAddr::V6(src) if src.to_ipv4_mapped().is_some());
        if let IpAddr::V6(ip) = dst
            && asks
            && ip.is_unicast_link_local()
        {
            return Err(self.link_local(link.index, ip));
        }
        // IPv6 looks for a route to `::` like any.
        let nowhere = asks && dst.is_ipv6() && dst.is_unspecified();
        if !mapped
            && !nowhere
            && let Err(reason) = raddle_forward::check_addresses(judged, dst)
        {
            if let (Some(received), IpAddr::V4(src), IpAddr::V4(dst)) = (self.received, src, dst)
                && let Some(reason) = self.to_many(src, dst, reason)
            {
                // Who asks for an address has none that could be looked up.
                if src.octets()[0] != 0 {
                    self.source(src, device.accept_local)?;
                    self.rp_filter(device.rp_filter, src.into(), &link.name);
                }
                self.options4(received, true)?;
                return Err(self.refuse(reason, why(reason, src.into(), dst.into())));
            }
            let is_loopback = |ip: IpAddr| ip.is_ipv4() && ip.is_loopback();
            if is_loopback(src) || is_loopback(dst) {
                self.confidence
                    .unless("route_localnet is set for the link: then 127.0.0.0/8 is routed");
            }
            return Err(self.refuse(reason, why(reason, src, dst)));
        }
        if self.look_up > 1
            && let IpAddr::V4(src) = src
        {
            self.source(src, device.accept_local)?;
        }
        // A table of raddle's own is a VRF, in which the link is not.
        if self.look_up > 1 && self.is_v4() && !self.own {
            self.rp_filter(device.rp_filter, src, &link.name);
        }
        Ok(())
    }

    /// The doubt that `rp_filter` is.
    fn rp_filter(&mut self, rp_filter: u8, src: IpAddr, link: &str) {
        if rp_filter != 0 {
            self.confidence.unless(format!(
                "rp_filter of {link} refuses it: the kernel looks for a route back to {src}, and engines leave \
                 that to it"
            ));
        }
    }

    /// The reverse-path filter, of IPv4 that is routed as it came in (`__fib_validate_source`): [`raddle_rib::Rib::way_back`]. What
    /// nobody knows is a doubt, also where it depends on the way out.
    pub(super) fn filtered(
        &mut self,
        src: Ipv4Addr,
        link: &Link,
        trace: &Trace,
    ) -> Result<(), Reason> {
        let rib = self.view.rib;
        let rp_filter = rib.device(link.index).rp_filter;
        let how = match rp_filter {
            1 => "strict",
            _ => "loose",
        };
        let by_packet = rib.rule_back(&link.name, &self.words.fields()).is_some();
        let back = match by_packet || may_leave_by(trace, &rib.filtered_apart(link.index)) {
            true => Back::Unknown,
            false => rib.way_back(link.index, src),
        };
        let text = match back {
            Back::Passes => return Ok(()),
            Back::Unknown => {
                self.rp_filter(rp_filter.max(1), src.into(), &link.name);
                return Ok(());
            }
            Back::NoRoute(Reason::NoRoute) => {
                format!("{src} has no route: rp_filter {how} of {}", link.name)
            }
            Back::NoRoute(reason) => {
                format!(
                    "the route of {src} is {reason}: rp_filter {how} of {}",
                    link.name
                )
            }
            Back::Elsewhere(links) => {
                let links: Vec<String> = links.iter().map(|link| self.link_name(*link)).collect();
                let without = match rp_filter {
                    1 => "",
                    _ => ", as the link has no IPv4 address",
                };
                format!(
                    "the source's route leaves by {}, not by {}: rp_filter {how}{without}",
                    links.join(" and "),
                    link.name
                )
            }
        };
        Err(self.refuse(
            Reason::RpFilter,
            format!("{text}: the kernel drops the packet"),
        ))
    }

    /// What is for many, of IPv4 packets whose addresses engines refuse for `reason` (`ip_route_input_slow`,
    /// `ip_mc_validate_source`).
    ///
    /// 1. To 255.255.255.255, or from 0.0.0.0 to 0.0.0.0: a broadcast, from 0.0.0.0/8 as well.
    /// 2. To a group: from 0.0.0.0/8 only where the group is of the link (224.0.0.0/24), or by IGMP.
    fn to_many(&self, src: Ipv4Addr, dst: Ipv4Addr, reason: Reason) -> Option<Reason> {
        const IGMP: u8 = 2;
        let nobody = src.octets()[0] == 0;
        let fits = matches!(reason, Reason::Broadcast | Reason::Multicast);
        if dst.is_broadcast() || (src.is_unspecified() && dst.is_unspecified()) {
            return (nobody || fits).then_some(Reason::Broadcast);
        }
        let of_link = dst.octets()[..3] == [224, 0, 0] || self.words.proto == IGMP;
        match dst.is_multicast() {
            true if nobody => of_link.then_some(Reason::Multicast),
            true if fits => Some(Reason::Multicast),
            _ => None,
        }
    }

    /// A source that the kernel may refuse (`fib_validate_source`).
    ///
    /// 1. With `accept_local` it takes addresses of this machine, and others unless there is a realm.
    /// 2. An address of this machine it refuses, unless a rule leads its look-up past the local table.
    /// 3. Others it refuses when it looks sources up and the look-up ends there. It does from the first
    ///    routing rule or local route on that somebody adds, also when that is gone, and while there
    ///    is a realm.
    pub(super) fn source(&mut self, src: Ipv4Addr, accept_local: bool) -> Result<(), Reason> {
        let Some(claim) = self.view.rib.source_claim(src) else {
            return Ok(());
        };
        let what = match claim {
            Claim::Own => "a local address by a route",
            Claim::NotUnicast => "not a unicast address by a route",
        };
        if accept_local {
            if claim == Claim::NotUnicast {
                self.confidence.unless(format!(
                    "a route has a realm: {src} is {what}, and the kernel then refuses it"
                ));
            }
            return Ok(());
        }
        let rib = self.view.rib;
        let is_address = rib.addresses().iter().any(|a| a.local == IpAddr::V4(src));
        let local_first = match rib.rules().iter().find(|rule| rule.family == 4) {
            Some(rule) => is_default(rule) && rule.table == TABLE_LOCAL,
            None => true,
        };
        if is_address {
            let local = rib.trace_table(TABLE_LOCAL, src.into()).route;
            if !local_first || local.is_none_or(|route| route.kind != RouteKind::Local) {
                self.confidence.unless(format!(
                    "the kernel's own look-up of {src} does not end in the local table"
                ));
            }
            let text = format!("{src} is an address of this machine: the kernel drops the packet");
            return Err(self.refuse(Reason::LocalSource, text));
        }
        let added =
            |route: &Route| route.kind == RouteKind::Local && route.protocol != RTPROT_KERNEL;
        let mut rules = rib.rules().iter().filter(|rule| rule.family == 4);
        if !rules.all(is_default) || rib.routes4().any(|route| added(&route)) {
            self.confidence.unless(format!(
                "the kernel's own look-up of {src}, by the rules for the way back, ends elsewhere"
            ));
            let text = format!("{src} is {what}: the kernel looks it up and drops the packet");
            let reason = match claim {
                Claim::Own => Reason::LocalSource,
                Claim::NotUnicast => Reason::SourceCheck,
            };
            return Err(self.refuse(reason, text));
        }
        self.confidence.unless(format!(
            "there has ever been a routing rule or an added local route, or there is a realm: {src} is {what}, \
             and the kernel then refuses it (engines leave it to the kernel)"
        ));
        Ok(())
    }

    /// A link-local destination of a packet, which leaves the link for nowhere.
    fn link_local(&mut self, index: u32, dst: Ipv6Addr) -> Reason {
        let mut own = self.view.rib.addresses().iter();
        if own.any(|own| own.index == index && own.local == IpAddr::V6(dst)) {
            let text = format!("{dst} is this machine's own on this link: delivered here");
            return self.refuse(Reason::Local, text);
        }
        self.confidence.unknown(format!(
            "{dst} is looked for on the link that the packet came in on: if somebody there has it, the \
             kernel sends the packet back there"
        ));
        let text = format!("{dst} is of this link only: the packet leaves by no other");
        self.refuse(Reason::LinkLocal, text)
    }

    pub(super) fn is_host_address(&self, address: IpAddr) -> bool {
        let addresses = self.view.rib.addresses();
        addresses.iter().any(|own| own.local == address)
    }

    pub(super) fn refuse(&mut self, reason: Reason, text: String) -> Reason {
        let function = self.by_family("ip_route_input_slow", "ip6_rcv_core");
        let data = json!({ "reason": reason.name() });
        self.add(1, "addresses", function, text, data);
        reason
    }
}

/// Whether a rule is one of the three that the kernel begins with (`fib_default_rules_init`).
fn is_default(rule: &Rule) -> bool {
    let first = [
        (0, TABLE_LOCAL),
        (32766, TABLE_MAIN),
        (32767, TABLE_DEFAULT),
    ];
    let plain = Rule {
        family: rule.family,
        priority: rule.priority,
        table: rule.table,
        action: rule.action,
        protocol: rule.protocol,
        from: rule.from,
        to: rule.to,
        ..Rule::default()
    };
    let any = |net: Option<ipnet::IpNet>| net.is_none_or(|net| net.prefix_len() == 0);
    plain == *rule
        && any(rule.from)
        && any(rule.to)
        && rule.action == 1
        && first.contains(&(rule.priority, rule.table))
}

/// Whether `ip6_forward` looks at the source of a packet, and nobody before it.
fn is_judged_later(src: IpAddr) -> bool {
    matches!(src, IpAddr::V6(src) if src.is_unspecified() || src.is_unicast_link_local())
}

/// A source that nobody objects to.
fn stand_in(dst: IpAddr) -> IpAddr {
    match dst {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    }
}

fn why(reason: Reason, src: IpAddr, dst: IpAddr) -> String {
    match reason {
        Reason::MartianSource => {
            format!("{src} may not be the source of a packet: the kernel drops it")
        }
        Reason::MartianDestination => {
            format!("{dst} may not be the destination of a packet: the kernel drops it")
        }
        Reason::Multicast => format!("{dst} is a multicast address: the kernel's business"),
        Reason::Broadcast => format!("{dst} is the broadcast address: delivered here"),
        _ => format!("{src} or {dst} is of one link only: the kernel does not forward it"),
    }
}

/// Whether a packet that is looked up so may leave by one of these links.
fn may_leave_by(trace: &Trace, links: &BTreeSet<u32>) -> bool {
    let is_one = |hop: &Hop| links.contains(&hop.index);
    match &trace.resolved {
        _ if links.is_empty() => false,
        Resolved::One(hop) => is_one(hop),
        Resolved::Many { hops, .. } | Resolved::Resilient { hops, .. } => hops.iter().any(is_one),
        Resolved::Kernel(_) => trace.route.as_ref().is_some_and(|route| {
            let hops = route.target.hops();
            hops.is_empty() || hops.iter().any(|hop| links.contains(&hop.index))
        }),
    }
}
