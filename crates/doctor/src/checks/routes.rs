//! Routes that look like several paths and are not, and settings that change what several paths mean.

use raddle_rib::event::{Route, RouteNexthop, RouteTarget};

use super::super::facts::{Facts, ip_family};
use super::super::finding::{Found, Severity, count};
use super::Check;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "metrics-differ",
        title: "routes to one prefix that differ in metric are no multipath",
        source: "fib_find_alias, fib6_add_rt2node: the metric is part of a route's key",
        needs: &[],
        run: metrics_differ,
    },
    Check {
        id: "appended",
        title: "IPv4 routes with the same key are no multipath: the first is used",
        source: "fib_table_insert (NLM_F_APPEND), fib_table_lookup",
        needs: &[],
        run: appended,
    },
    Check {
        id: "v6-device-only",
        title: "IPv6 routes without a gateway are never multipath",
        source: "rt6_qualify_for_ecmp",
        needs: &[],
        run: v6_device_only,
    },
    Check {
        id: "v6-host",
        title: "IPv6 multipath on a machine that does not forward IPv6",
        source: "fib6_select_path, rt6_score_route (RT6_LOOKUP_F_REACHABLE)",
        needs: &[],
        run: v6_host,
    },
    Check {
        id: "rp-filter-strict",
        title: "strict reverse-path filtering beside multipath routes",
        source: "__fib_validate_source (fib_info_nh_uses_dev), RFC 3704",
        needs: &[],
        run: rp_filter_strict,
    },
];

/// Routing daemons and people mean something by two routes; the kernel (2), router advertisements
/// (9) and DHCP (16) make one for each link.
fn is_meant(route: &Route) -> bool {
    !matches!(route.protocol, 2 | 9 | 16)
}

fn is_v4(route: &Route) -> bool {
    route.dst.addr().is_ipv4()
}

fn hops(route: &Route) -> &[RouteNexthop] {
    match &route.target {
        RouteTarget::Single(hop) => std::slice::from_ref(hop),
        RouteTarget::Multipath(hops) => hops,
        RouteTarget::None | RouteTarget::Object(_) => &[],
    }
}

fn describe(facts: &Facts, route: &Route) -> String {
    let mut text = match &route.target {
        RouteTarget::Object(id) => format!("nhid {id}"),
        _ => {
            let one = |hop: &RouteNexthop| {
                let via = hop.gateway.map_or(String::new(), |g| format!("via {g} "));
                format!("{via}dev {}", facts.name(hop.index))
            };
            hops(route).iter().map(one).collect::<Vec<_>>().join(", ")
        }
    };
    if route.metric != 0 {
        text += &format!(" metric {}", route.metric);
    }
    text
}

/// The command that makes one multipath route of several.
fn as_one(facts: &Facts, routes: &[&Route]) -> String {
    let nexthop = |hop: &RouteNexthop| {
        let via = hop.gateway.map_or(String::new(), |g| format!("via {g} "));
        let weight = if hop.weight > 1 {
            format!(" weight {}", hop.weight)
        } else {
            String::new()
        };
        format!("nexthop {via}dev {}{weight}", facts.name(hop.index))
    };
    let nexthops: Vec<String> = routes.iter().flat_map(|r| hops(r)).map(nexthop).collect();
    let first = routes[0];
    let family = ip_family(if is_v4(first) { 4 } else { 6 });
    let metric = match first.metric {
        0 => String::new(),
        metric => format!(" metric {metric}"),
    };
    let table = match first.table {
        raddle_rib::TABLE_MAIN => String::new(),
        table => format!(" table {table}"),
    };
    let remove = |route: &&Route| {
        let metric = match route.metric {
            0 => String::new(),
            metric => format!(" metric {metric}"),
        };
        format!("ip {family}route del {}{metric}{table}", route.dst)
    };
    let mut commands: Vec<String> = routes[1..].iter().map(remove).collect();
    let nexthops = nexthops.join(" ");
    commands.push(format!(
        "ip {family}route replace {}{metric}{table} {nexthops}",
        first.dst
    ));
    commands.join(" && ")
}

/// What routes look like that ought to be one: shown by prefix, with the command for the first.
fn report(
    facts: &Facts,
    prefixes: &[Vec<&Route>],
    severity: Severity,
    noun: &str,
    effect: &str,
) -> Vec<Found> {
    let Some(first) = prefixes.first() else {
        return Vec::new();
    };
    let found = Found::new(
        severity,
        format!(
            "{} {noun}",
            count(prefixes.len(), "prefix").replace("prefixs", "prefixes")
        ),
        effect,
    );
    let line = |routes: &Vec<&Route>| {
        let all: Vec<String> = routes.iter().map(|route| describe(facts, route)).collect();
        format!("{}: {}", routes[0].dst, all.join("; "))
    };
    let found = found.evidence(prefixes.iter().map(line));
    // Of nexthop objects a group has to be made instead.
    let objects = first
        .iter()
        .any(|route| matches!(route.target, RouteTarget::Object(_)));
    vec![if objects {
        found
    } else {
        found.fix(as_one(facts, first))
    }]
}

/// Routes to one prefix by the same protocol, neither the kernel's nor made for each link, whose
/// metrics are all different and whose out-links or gateways differ: a note.
fn metrics_differ(facts: &Facts) -> Vec<Found> {
    let prefixes: Vec<Vec<&Route>> = facts
        .rivals
        .iter()
        .filter_map(|routes| {
            let first = routes.first()?;
            let ours: Vec<&Route> = routes
                .iter()
                .filter(|r| {
                    is_meant(r)
                        && r.protocol == first.protocol
                        && r.tos == first.tos
                        && r.src == first.src
                })
                .collect();
            let differ = |a: &&Route, b: &&Route| a.metric != b.metric && a.target != b.target;
            let all = ours.windows(2).all(|pair| differ(&pair[0], &pair[1]));
            (ours.len() > 1 && all).then_some(ours)
        })
        .collect();
    report(
        facts,
        &prefixes,
        Severity::Note,
        "with several routes that differ in metric",
        "only the route with the lowest metric carries traffic; the others are in reserve. If they \
         were meant to share it, they have to be one multipath route",
    )
}

/// IPv4 routes with the same prefix, TOS and metric: a warning.
fn appended(facts: &Facts) -> Vec<Found> {
    let prefixes: Vec<Vec<&Route>> = facts
        .rivals
        .iter()
        .filter_map(|routes| {
            let first = routes.first().filter(|route| is_v4(route))?;
            let same = routes
                .iter()
                .filter(|r| (r.metric, r.tos) == (first.metric, first.tos));
            let same: Vec<&Route> = same.collect();
            (same.len() > 1 && same.iter().any(|r| is_meant(r))).then_some(same)
        })
        .collect();
    report(
        facts,
        &prefixes,
        Severity::Warning,
        "with several IPv4 routes of the same metric",
        "appended routes are no multipath: all traffic takes the first, the others wait until it is \
         gone",
    )
}

/// IPv6 routes with the same prefix and metric, not the kernel's own: a warning. With gateways they
/// would have become one multipath route.
fn v6_device_only(facts: &Facts) -> Vec<Found> {
    let prefixes: Vec<Vec<&Route>> = facts
        .rivals
        .iter()
        .filter_map(|routes| {
            let first = routes.first().filter(|route| !is_v4(route))?;
            let same = routes.iter().filter(|r| {
                r.metric == first.metric
                    && r.src == first.src
                    && is_meant(r)
                    && hops(r).iter().any(|hop| hop.gateway.is_none())
            });
            let same: Vec<&Route> = same.collect();
            (same.len() > 1).then_some(same)
        })
        .collect();
    let mut found = report(
        facts,
        &prefixes,
        Severity::Warning,
        "with several IPv6 routes that have no gateway",
        "routes without a gateway never become multipath: all traffic takes the first. Give them \
         gateways, or make a nexthop group",
    );
    // The command for routes with gateways does not help here.
    found.iter_mut().for_each(|found| found.fix = None);
    found
}

/// A note where IPv6 routes have several paths and no link forwards IPv6.
fn v6_host(facts: &Facts) -> Vec<Found> {
    let routes = facts.multipath_routes(6);
    let forwards = facts.devices.values().any(|device| device.forwarding6);
    if routes == 0 || forwards {
        return Vec::new();
    }
    let found = Found::new(
        Severity::Note,
        "IPv6 routes have several paths, but IPv6 forwarding is off",
        "a host looks at neighbours where a router does not: flows of a gateway that does not answer \
         take the route that the kernel found first, not the next in the order of hashes",
    );
    let evidence = format!(
        "net.ipv6.conf.all.forwarding = 0, {} with several paths",
        count(routes, "IPv6 route")
    );
    vec![
        found
            .evidence([evidence])
            .fix("sysctl -w net.ipv6.conf.all.forwarding=1")
            .advice("if it is a router"),
    ]
}

/// A note where IPv4 routes have several paths and links that forward have `rp_filter` 1.
fn rp_filter_strict(facts: &Facts) -> Vec<Found> {
    if facts.multipath_routes(4) == 0 {
        return Vec::new();
    }
    let links: Vec<String> = facts
        .in_links()
        .filter(|link| {
            facts.device(link.index).rp_filter == 1 && facts.device(link.index).forwarding4
        })
        .map(|link| link.name.clone())
        .collect();
    let Some(first) = links.first() else {
        return Vec::new();
    };
    let found = Found::new(
        Severity::Note,
        format!(
            "strict reverse-path filtering on {}",
            count(links.len(), "link")
        ),
        "packets may come back by any path of the best route to their source; by a path that is not \
         one of its members (other weights or metrics at the far end) they are dropped",
    );
    let fix = format!("sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.{first}.rp_filter=0");
    let lines = links.iter().map(|name| format!("{name}: rp_filter 1"));
    let found = found.evidence(lines).fix(fix);
    vec![found.advice("2 is loose filtering: a route back by any link will do")]
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;

    fn single(dst: &str, index: u32, metric: u32) -> Route {
        let family = if dst.contains(':') { 6 } else { 4 };
        Route {
            metric,
            ..route(dst, RouteTarget::Single(hop(family, index, 1)))
        }
    }

    fn direct(dst: &str, index: u32) -> Route {
        let hop = RouteNexthop {
            index,
            weight: 1,
            ..RouteNexthop::default()
        };
        Route {
            metric: 1024,
            ..route(dst, RouteTarget::Single(hop))
        }
    }

    #[test]
    fn metrics_keep_routes_apart() {
        let dst = "10.7.0.0/16";
        let facts = with(healthy(), &[single(dst, 1, 100), single(dst, 2, 200)]);
        let said = [
            "1 prefix with",
            "via 10.0.1.2 dev eth1 metric 100; via 10.0.2.2 dev eth2 metric 200",
            "ip route del 10.7.0.0/16 metric 200 && ip route replace 10.7.0.0/16 metric 100 \
             nexthop via 10.0.1.2 dev eth1 nexthop via 10.0.2.2 dev eth2",
        ];
        assert_found("metrics-differ", &facts, Severity::Note, &said);
        assert_clean("appended", &facts);
        // One for each link, as DHCP makes them.
        let dhcp = |route| Route {
            protocol: 16,
            ..route
        };
        let facts = with(
            healthy(),
            &[dhcp(single(dst, 1, 100)), dhcp(single(dst, 2, 200))],
        );
        assert_clean("metrics-differ", &facts);
        assert_clean(
            "metrics-differ",
            &with(
                healthy(),
                &[single(dst, 1, 100), single("10.6.0.0/16", 2, 200)],
            ),
        );
    }

    #[test]
    fn appended_routes_are_not_multipath() {
        let dst = "10.7.0.0/16";
        let facts = with(healthy(), &[single(dst, 1, 0), single(dst, 2, 0)]);
        assert_found(
            "appended",
            &facts,
            Severity::Warning,
            &["10.7.0.0/16", "ip route del"],
        );
        assert_clean("metrics-differ", &facts);
        assert_clean("appended", &multipath());
    }

    #[test]
    fn ipv6_without_gateways_is_not_multipath() {
        let dst = "2001:db8:7::/48";
        let facts = with(healthy(), &[direct(dst, 1), direct(dst, 2)]);
        assert_found(
            "v6-device-only",
            &facts,
            Severity::Warning,
            &["dev eth1 metric 1024"],
        );
        let kernel = |route| Route {
            protocol: 2,
            ..route
        };
        let facts = with(healthy(), &[kernel(direct(dst, 1)), kernel(direct(dst, 2))]);
        assert_clean("v6-device-only", &facts);
    }

    #[test]
    fn hosts_treat_ipv6_neighbours_otherwise() {
        let mut facts = multipath();
        assert_clean("v6-host", &facts);
        facts
            .devices
            .values_mut()
            .for_each(|device| device.forwarding6 = false);
        assert_found("v6-host", &facts, Severity::Note, &["forwarding=1"]);
        assert_clean(
            "v6-host",
            &with(facts, &[plain("10.9.0.0/24", &[(1, 1), (2, 1)])]),
        );
    }

    #[test]
    fn strict_filtering_is_noted() {
        let mut facts = multipath();
        for (value, clean) in [(0, true), (1, false), (2, true)] {
            facts.devices.get_mut(&3).unwrap().rp_filter = value;
            if clean {
                assert_clean("rp-filter-strict", &facts);
            } else {
                assert_found("rp-filter-strict", &facts, Severity::Note, &["eth3"]);
            }
        }
    }
}
