//! `raddle route show`.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use raddle_rib::event::{ROUTE_FPM, ROUTE_STATIC, Route, RouteKind, RouteTarget};

use super::args::{Args, abbreviates};
use super::encap;
use super::lookup::{Path, Paths};
use super::metrics::print_metrics;
use super::out::Out;
use super::prefix::{Prefix, Range};
use super::{Context, Error, Family, nexthop, order};
use crate::names::{Names, parse_number};

pub(crate) const USAGE: &str = "\
Usage: raddle [ OPTIONS ] route [ { show | list } SELECTOR ]
SELECTOR := [ [ to ] { root | match | exact } PREFIX ] [ from { root | match | exact } PREFIX ]
            [ table { TABLE | all } ] [ dev DEVICE ] [ via ADDRESS ] [ src ADDRESS ]
            [ proto PROTOCOL ] [ type TYPE ] [ scope SCOPE ] [ metric NUMBER ] [ tos TOS ]
TYPE := { unicast | local | broadcast | anycast | multicast | blackhole | unreachable |
          prohibit | throw }
OPTIONS := [ -4 | -6 | -family { inet | inet6 } ] [ -json [ -pretty ] ] [ -details ]
           [ -statistics ] [ -oneline ] [ -Numeric ] [ --snapshot FILE ]
";

const MAIN: u32 = 254;
/// Set on routes of the exception cache, which are not part of a table.
const RTM_F_CLONED: u32 = 0x200;

/// `RTNH_F_*` and `RTM_F_*` flags in the order in which `ip` prints them.
const FLAGS: [(u32, &str); 13] = [
    (0x1, "dead"),
    (0x4, "onlink"),
    (0x2, "pervasive"),
    (0x8, "offload"),
    (0x40, "trap"),
    (0x100, "notify"),
    (0x10, "linkdown"),
    (0x20, "unresolved"),
    (0x4000, "rt_offload"),
    (0x8000, "rt_trap"),
    (0x2000_0000, "rt_offload_failed"),
    // Ours: the kernel does not have the route.
    (ROUTE_STATIC, "static"),
    (ROUTE_FPM, "fpm"),
];

/// Which routes are shown. What a filter fixes is not printed, because it is the same in all.
#[derive(Debug)]
pub(crate) struct Filter {
    /// None for all tables.
    table: Option<u32>,
    /// Which families; `None` for both.
    family: Option<Family>,
    to: Range,
    from: Range,
    protocol: Option<u8>,
    scope: Option<u8>,
    kind: Option<RouteKind>,
    tos: Option<u8>,
    metric: Option<u32>,
    device: Option<String>,
    via: Option<Prefix>,
    src: Option<Prefix>,
}

impl Filter {
    /// Parses a selector. Without a family it is that of the prefixes named, or else IPv4, or with
    /// `table all` both. (`ip route show 2001:db8::/32` shows nothing without `-6`.)
    pub(crate) fn parse(
        args: &mut Args<'_>,
        family: Option<Family>,
        names: &Names,
    ) -> Result<Filter, Error> {
        let mut filter = Filter {
            table: Some(MAIN),
            family,
            to: Range::default(),
            from: Range::default(),
            protocol: None,
            scope: None,
            kind: None,
            tos: None,
            metric: None,
            device: None,
            via: None,
            src: None,
        };
        while let Some(word) = args.next() {
            filter.parse_word(word, args, names)?;
        }
        let named = || filter.to.family().or(filter.from.family());
        filter.family = family.or_else(named).or(filter.table.map(|_| Family::Inet));
        Ok(filter)
    }

    /// One keyword, with its value; in `ip`'s order, which decides what `t` and `m` stand for.
    fn parse_word(&mut self, word: &str, args: &mut Args<'_>, names: &Names) -> Result<(), Error> {
        let is = |keyword| abbreviates(word, keyword);
        if is("table") {
            let table = args.value()?;
            self.table = match table {
                "all" | "0" => None,
                _ => Some(
                    names
                        .table_number(table)
                        .ok_or_else(|| Error::argument(table, "table id value is invalid"))?,
                ),
            };
        } else if word == "tos" || is("dsfield") {
            let why = "TOS value is invalid";
            self.tos = Some(args.parsed(|value| names.tos_number(value), why)?);
        } else if is("metric") || is("preference") && word.len() > 3 {
            self.metric = Some(args.parsed(parse_number, "\"metric\" value is invalid")?);
        } else if is("protocol") {
            let why = "invalid \"protocol\"";
            self.protocol = Some(args.parsed(|value| names.protocol_number(value), why)?);
        } else if is("scope") {
            let why = "invalid \"scope\"";
            self.scope = Some(args.parsed(|value| names.scope_number(value), why)?);
        } else if is("type") {
            self.kind = Some(args.parsed(Names::kind_number, "node type value is invalid")?);
        } else if word == "dev" || word == "oif" {
            self.device = Some(args.value()?.to_owned());
        } else if word == "via" {
            self.via = Some(parse_via(args)?);
        } else if word == "src" {
            self.src = Some(Prefix::parse(args.value()?, self.family)?);
        } else if is("from") {
            let word = args.value()?;
            self.from.parse(word, args, self.family)?;
        } else {
            let word = if word == "to" { args.value()? } else { word };
            self.to.parse(word, args, self.family)?;
        }
        Ok(())
    }

    fn selects(&self, route: &Route, kind: RouteKind, paths: &Paths<'_>, dev: Option<u32>) -> bool {
        let of = |family| match family {
            Family::Inet => route.dst.addr().is_ipv4(),
            Family::Inet6 => route.dst.addr().is_ipv6(),
        };
        let one = match paths {
            Paths::One(path) => *path,
            // As in `ip`, the nexthops of a multipath route do not count.
            Paths::Many(_) => Path::default(),
        };
        // A route without a source prefix is one from anywhere.
        let source = route.src.unwrap_or(match route.dst {
            IpNet::V4(_) => IpNet::V4(Ipv4Net::default()),
            IpNet::V6(_) => IpNet::V6(Ipv6Net::default()),
        });
        route.flags & RTM_F_CLONED == 0
            && self.family.is_none_or(of)
            && self.table.is_none_or(|table| table == route.table)
            && self.to.selects(&route.dst)
            && self.from.selects(&source)
            && self
                .protocol
                .is_none_or(|protocol| protocol == route.protocol)
            && self.scope.is_none_or(|scope| scope == route.scope)
            && self.kind.is_none_or(|wanted| wanted == kind)
            && self.tos.is_none_or(|tos| tos == route.tos)
            && self.metric.is_none_or(|metric| metric == route.metric)
            && dev.is_none_or(|dev| dev == one.index)
            && self.via.is_none_or(|via| via.selects(one.gateway))
            && self.src.is_none_or(|src| src.selects(route.prefsrc))
    }
}

/// `via [ FAMILY ] ADDRESS`.
fn parse_via(args: &mut Args<'_>) -> Result<Prefix, Error> {
    match args.value()? {
        "inet" => Prefix::parse(args.value()?, Some(Family::Inet)),
        "inet6" => Prefix::parse(args.value()?, Some(Family::Inet6)),
        address => Prefix::parse(address, None),
    }
}

impl Filter {
    /// The routes that it selects, as they come.
    pub(crate) fn select<'a>(
        &self,
        context: &Context<'_>,
        routes: &'a [Route],
    ) -> Result<Vec<&'a Route>, Error> {
        let dev = context.lookup.index(self.device.as_deref())?;
        let selects = |route: &&Route| {
            let (kind, paths) = context.lookup.expand(route);
            self.selects(route, kind, &paths, dev)
        };
        Ok(routes.iter().filter(selects).collect())
    }
}

/// Prints the routes that `filter` selects.
pub(crate) fn print(
    out: &mut Out<'_>,
    context: &Context<'_>,
    filter: &Filter,
    routes: &[Route],
) -> Result<(), Error> {
    let mut selected = filter.select(context, routes)?;
    selected.sort_by(|a, b| order::compare(a, b));
    out.begin_array("");
    for route in selected {
        out.begin_object("");
        print_route(out, context, filter, route);
        out.end_object();
        out.text('\n');
        out.spill().map_err(Error::Write)?;
    }
    out.end_array();
    Ok(())
}

pub(crate) fn print_route(
    out: &mut Out<'_>,
    context: &Context<'_>,
    filter: &Filter,
    route: &Route,
) {
    let Context {
        lookup,
        names,
        details,
        ..
    } = context;
    let (kind, paths) = lookup.expand(route);
    let one = match &paths {
        Paths::One(path) => *path,
        Paths::Many(_) => Path::default(),
    };
    if kind != RouteKind::Unicast || *details {
        out.string("type", "", names.kind(kind));
    }
    print_net(out, "dst", "", &route.dst);
    if let Some(src) = &route.src {
        print_net(out, "from", "from", src);
    }
    if let RouteTarget::Object(id) = route.target {
        out.number("nhid", "nhid", u64::from(id));
    }
    if let Some(carried) = one.carried(route) {
        encap::print(out, context, &carried);
    }
    if route.tos != 0 && filter.tos.is_none() {
        out.string("tos", "tos", names.tos(route.tos));
    }
    if let Some(gateway) = one.gateway
        && !(filter.via.is_some_and(|via| via.is_host()) && same_family(gateway, route))
    {
        print_gateway(out, route, gateway);
    }
    if one.index != 0 && filter.device.is_none() {
        out.string("dev", "dev", lookup.link(one.index));
    }
    if let Some(figures) = context.figures {
        figures.print_sent(out, one.index, one.gateway);
    }
    if filter.table.is_none() && (route.table != MAIN || *details) {
        out.string("table", "table", names.table(route.table));
    }
    if (route.protocol != 3 || *details) && filter.protocol.is_none() {
        out.string("protocol", "proto", names.protocol(route.protocol));
    }
    if (route.scope != 0 || *details) && filter.scope.is_none() {
        out.string("scope", "scope", names.scope(route.scope));
    }
    if let Some(src) = route
        .prefsrc
        .filter(|_| !filter.src.is_some_and(|src| src.is_host()))
    {
        out.string("prefsrc", "src", src);
    }
    // The kernel tells IPv6 metrics always, IPv4 ones only where they are not 0.
    if (route.metric != 0 || route.dst.addr().is_ipv6()) && filter.metric.is_none() {
        out.number("metric", "metric", u64::from(route.metric));
    }
    print_flags(out, route.flags | one.flags);
    if let Some(at) = route.expires {
        let seconds = at.saturating_sub(context.clock) / 1000;
        out.text(format_args!("expires {seconds}sec "));
        out.json_raw("expires", &seconds.to_string());
    }
    print_metrics(out, &route.metrics);
    if let Some(pref) = route.pref {
        print_preference(out, pref);
    }
    if let RouteTarget::Object(id) = route.target
        && let Some(object) = lookup.nexthop(id).filter(|_| *details)
    {
        out.text("\n\tnh_info ");
        out.begin_object("nh_info");
        nexthop::print_one(out, context, object);
        out.end_object();
    }
    if let Paths::Many(paths) = &paths {
        out.begin_array("nexthops");
        for path in paths {
            print_path(out, context, route, path);
        }
        out.end_array();
    }
}

/// A line of a multipath route.
fn print_path(out: &mut Out<'_>, context: &Context<'_>, route: &Route, path: &Path<'_>) {
    out.line_below();
    out.text("nexthop ");
    out.begin_object("");
    let carried = path.carried(route);
    if let Some(carried) = &carried {
        encap::print(out, context, carried);
    }
    if let Some(gateway) = path.gateway {
        print_gateway(out, route, gateway);
    }
    if path.index != 0 {
        out.string("dev", "dev", context.lookup.link(path.index));
    }
    out.number("weight", "weight", u64::from(path.weight));
    if let Some(figures) = context.figures {
        figures.print_sent(out, path.index, path.gateway);
        if let Some(carried) = carried.filter(|_| context.apart) {
            figures.print_apart(out, &carried, context.details);
        }
    }
    print_flags(out, path.flags);
    out.end_object();
}

fn same_family(address: IpAddr, route: &Route) -> bool {
    address.is_ipv4() == route.dst.addr().is_ipv4()
}

/// A gateway; one of the other family says so (`RTA_VIA`).
fn print_gateway(out: &mut Out<'_>, route: &Route, gateway: IpAddr) {
    if same_family(gateway, route) {
        return out.string("gateway", "via", gateway);
    }
    out.begin_object("via");
    out.string(
        "family",
        "via",
        if gateway.is_ipv4() { "inet" } else { "inet6" },
    );
    out.string("host", "", gateway);
    out.end_object();
}

/// A prefix: `default` for length 0, without its length where that is of an address.
fn print_net(out: &mut Out<'_>, key: &str, word: &str, net: &IpNet) {
    if net.prefix_len() == 0 {
        out.string(key, word, "default");
    } else if net.prefix_len() == net.max_prefix_len() {
        out.string(key, word, net.addr());
    } else {
        out.string(key, word, net);
    }
}

/// `RTNH_F_*` and `RTM_F_*` flags; an array in JSON, also when empty.
pub(crate) fn print_flags(out: &mut Out<'_>, flags: u32) {
    out.words(
        "flags",
        FLAGS
            .iter()
            .filter(|(bit, _)| flags & bit != 0)
            .map(|(_, name)| name),
    );
}

/// Router preference (RFC 4191), which `ip` prints without a space behind it.
fn print_preference(out: &mut Out<'_>, pref: u8) {
    let known = [(0, "medium"), (1, "high"), (3, "low")];
    match known.iter().find(|(number, _)| *number == pref) {
        Some((_, name)) => {
            out.text(format_args!("pref {name}"));
            out.json_string("pref", name);
        }
        None => {
            out.text(format_args!("pref {pref}"));
            out.json_number("pref", u64::from(pref));
        }
    }
}
