//! Kernel versions that choose otherwise than the rules say.

use super::super::facts::{Facts, Need, Target};
use super::super::finding::{Found, Severity, count};
use super::Check;
use super::neighbours::as_group;
use raddle_select::KernelVersion;
use raddle_select::faults::{DST_HINT, RANDOM_CONNECT, SIGNED_ORDER, SOURCE_TO_LAST, Span};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "kernel-source-to-last",
        title: "Linux 6.16 to 6.18.3 sends local traffic by one nexthop",
        source: "fib_select_multipath; 32607a332cfe (6.16), fixed by 6e17474aa9fe (6.18.4)",
        needs: &[Need::Kernel],
        run: source_to_last,
    },
    Check {
        id: "kernel-dst-hint",
        title: "Linux 5.5 to 6.5 takes one path for a batch of received packets",
        source: "ip_list_rcv_finish, ip_route_use_hint; fixed by 6ac66cb03ae3, 8423be8926aa (6.6, \
                 and stable series of September 2023)",
        needs: &[Need::Kernel],
        run: dst_hint,
    },
    Check {
        id: "kernel-signed-order",
        title: "Linux before 6.0 hashes the two directions of some flows differently",
        source: "__flow_hash_consistentify; fixed by 64ae13ed4784 (6.0, and stable series of \
                 September 2022)",
        needs: &[Need::Kernel],
        run: signed_order,
    },
    Check {
        id: "kernel-random-connect",
        title: "Linux from 6.16 on chooses at random for local TCP connections",
        source: "FLOWI_FLAG_ANY_SPORT, fib_multipath_hash, rt6_multipath_hash",
        needs: &[Need::Kernel],
        run: random_connect,
    },
    Check {
        id: "v6-local-moves",
        title: "local IPv6 connections change paths when a route changes",
        source: "inet6_csk_route_socket looks up anew when a dst goes stale; \
                 moehl.eu/blog/linux-ipv6-ecmp-instability",
        needs: &[Need::Connections],
        run: v6_local_moves,
    },
];

fn has(facts: &Facts, span: &Span) -> Option<KernelVersion> {
    facts.kernel.filter(|version| span.holds(*version))
}

/// Plain IPv4 multipath routes on a kernel that has the fault: serious. Nexthop groups return before it.
fn source_to_last(facts: &Facts) -> Vec<Found> {
    let plain: Vec<_> = facts
        .multipath(4)
        .filter(|paths| matches!(paths.target, Target::Plain(_)))
        .collect();
    let Some(version) = has(facts, &SOURCE_TO_LAST).filter(|_| !plain.is_empty()) else {
        return Vec::new();
    };
    let found = Found::new(
        Severity::Serious,
        format!(
            "Linux {version} sends local traffic over plain multipath routes by the last nexthop"
        ),
        "sockets whose source address belongs to none of the nexthops' links (an address on lo or a \
         dummy, as anycast services have) all use one path; forwarded packets are not concerned",
    );
    let advice = "fixed in Linux 6.18.4; nexthop groups have not the fault";
    let lines = plain.iter().map(|paths| paths.to_string());
    let found = found.evidence(lines).fix(as_group(facts, plain[0]));
    vec![found.advice(advice)]
}

/// Forwarding with several paths on a kernel that has the fault: a warning.
fn dst_hint(facts: &Facts) -> Vec<Found> {
    let forwards = facts.in_links().next().is_some();
    let Some(version) = has(facts, &DST_HINT).filter(|_| forwards && facts.has_multipath()) else {
        return Vec::new();
    };
    let found = Found::new(
        Severity::Warning,
        format!("Linux {version} chooses once for a batch of packets to one destination"),
        "flows to one destination that arrive together take the first one's path, so flows change \
         paths from batch to batch and shares are uneven",
    );
    let routes = facts.multipath_routes(4) + facts.multipath_routes(6);
    let found = found.evidence([format!("{} with several paths", count(routes, "route"))]);
    vec![found.advice(
        "update to Linux 6.6 or later (or 6.5.4, 6.1.54, 5.15.132, 5.10.195 of their series)",
    )]
}

/// A kernel that has the fault, with IPv4 routes of several paths: a note, serious with `--symmetric`.
fn signed_order(facts: &Facts) -> Vec<Found> {
    let Some(version) = has(facts, &SIGNED_ORDER).filter(|_| facts.multipath_routes(4) > 0) else {
        return Vec::new();
    };
    let severity = if facts.asked.symmetric {
        Severity::Serious
    } else {
        Severity::Note
    };
    let found = Found::new(
        severity,
        format!("Linux {version} does not put all pairs of IPv4 addresses in one order"),
        "for some pairs the two directions have different hashes, so they may take different ways \
         even with equal seeds; raddle predicts the order of newer kernels",
    );
    let evidence =
        "such as 192.168.37.178 and 192.168.37.50, whose difference is negative both ways";
    vec![
        found
            .evidence([evidence])
            .advice("update to Linux 6.0 or later (or 5.19.12, 5.15.71, 5.10.146 of their series)"),
    ]
}

/// Policy 1 with several paths on such a kernel: a note.
fn random_connect(facts: &Facts) -> Vec<Found> {
    let l4: Vec<u8> = [4, 6]
        .into_iter()
        .filter(|f| facts.policy(*f) == 1 && facts.multipath_routes(*f) > 0)
        .collect();
    let Some(version) = has(facts, &RANDOM_CONNECT).filter(|_| !l4.is_empty()) else {
        return Vec::new();
    };
    let found = Found::new(
        Severity::Note,
        "paths of this machine's own TCP connections are drawn at random",
        "a connection without a bound port looks its route up with a random one: connections to one \
         service spread well, but which path each takes cannot be predicted; bound ports can",
    );
    let families = l4
        .iter()
        .map(|f| format!("IPv{f}"))
        .collect::<Vec<_>>()
        .join(" and ");
    vec![found.evidence([format!("Linux {version}, hash policy 1 for {families}")])]
}

/// A note where this machine has IPv6 connections over several paths.
fn v6_local_moves(facts: &Facts) -> Vec<Found> {
    let lines: Vec<String> = facts
        .connections
        .iter()
        .filter(|c| c.local.is_ipv6() && facts.multipath_routes(6) > 0)
        .map(|c| {
            format!(
                "{} TCP connections from {} to {}",
                c.count, c.local, c.remote
            )
        })
        .collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let found = Found::new(
        Severity::Note,
        "local IPv6 connections may change paths while they last",
        "any change of the IPv6 routing table has connections look up their route again, by then with \
         other fields than at first, so one may move although its own route did not change",
    );
    vec![found.evidence(lines)]
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;
    use crate::facts::Connections;

    fn on(version: KernelVersion) -> Facts {
        Facts {
            kernel: Some(version),
            ..multipath()
        }
    }

    #[test]
    fn local_traffic_by_one_nexthop() {
        for version in [KernelVersion::new(6, 16, 0), KernelVersion::new(6, 18, 3)] {
            let said = ["10.9.0.0/24", "6.18.4"];
            assert_found(
                "kernel-source-to-last",
                &on(version),
                Severity::Serious,
                &said,
            );
        }
        for version in [
            KernelVersion::new(6, 15, 9),
            KernelVersion::new(6, 18, 4),
            KernelVersion::new(6, 19, 0),
        ] {
            assert_clean("kernel-source-to-last", &on(version));
        }
        let mut groups = on(KernelVersion::new(6, 17, 0));
        groups
            .paths
            .retain(|paths| matches!(paths.target, Target::Group(_)));
        assert_clean("kernel-source-to-last", &groups);
    }

    #[test]
    fn one_path_for_a_batch() {
        assert_found(
            "kernel-dst-hint",
            &on(KernelVersion::new(6, 1, 20)),
            Severity::Warning,
            &["6.1.20"],
        );
        assert_clean("kernel-dst-hint", &on(KernelVersion::new(6, 1, 54)));
        let mut host = on(KernelVersion::new(6, 1, 20));
        host.devices.clear();
        assert_clean("kernel-dst-hint", &host);
    }

    #[test]
    fn an_order_by_sign() {
        let mut facts = on(KernelVersion::new(5, 15, 70));
        assert_found("kernel-signed-order", &facts, Severity::Note, &["5.15.70"]);
        facts.asked.symmetric = true;
        assert_found("kernel-signed-order", &facts, Severity::Serious, &[]);
        assert_clean("kernel-signed-order", &on(KernelVersion::new(6, 1, 0)));
    }

    #[test]
    fn random_paths_of_connections() {
        assert_found(
            "kernel-random-connect",
            &on(KernelVersion::new(6, 18, 44)),
            Severity::Note,
            &["IPv4 and IPv6"],
        );
        assert_clean("kernel-random-connect", &on(KernelVersion::new(6, 12, 1)));
        let mut l3 = on(KernelVersion::new(6, 18, 44));
        (l3.settings.hash_policy4, l3.settings.hash_policy6) = (0, 0);
        assert_clean("kernel-random-connect", &l3);
    }

    #[test]
    fn ipv6_connections_may_move() {
        let mut facts = multipath();
        assert_clean("v6-local-moves", &facts);
        facts.connections = vec![Connections {
            local: "2001:db8::1".parse().unwrap(),
            remote: "2001:db8:9::1".parse().unwrap(),
            count: 3,
        }];
        assert_found(
            "v6-local-moves",
            &facts,
            Severity::Note,
            &["3 TCP connections"],
        );
    }
}
