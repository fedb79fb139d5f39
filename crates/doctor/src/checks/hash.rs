//! What the hash looks at: policies, fields, and packets that carry another hash.

use super::super::facts::{Facts, Need, net};
use super::super::finding::{Found, Severity, count};
use super::Check;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "l3-policy",
        title: "hash policy 0 where several flows run between the same two hosts",
        source: "fib_multipath_hash, rt6_multipath_hash (policy 0)",
        needs: &[Need::Connections],
        run: l3_policy,
    },
    Check {
        id: "custom-fields",
        title: "hash policy 3 with fields that most packets do not have",
        source: "fib_multipath_custom_hash_skb, rt6_multipath_custom_hash_skb",
        needs: &[],
        run: custom_fields,
    },
    Check {
        id: "policies-differ",
        title: "IPv4 and IPv6 hash by different policies",
        source: "net.ipv4 and net.ipv6 .fib_multipath_hash_policy are two settings",
        needs: &[],
        run: policies_differ,
    },
    Check {
        id: "icmp-outer",
        title: "hash policy 1 in front of services: ICMP errors do not follow their flow",
        source: "fib_multipath_hash, rt6_multipath_hash (policy 1 does not look into ICMP \
                 errors); RFC 7690",
        needs: &[],
        run: icmp_outer,
    },
    Check {
        id: "flow-dissector",
        title: "a BPF flow dissector decides what is hashed",
        source: "__skb_flow_dissect, bpf_flow_dissect; BPF_FLOW_DISSECTOR",
        needs: &[Need::Dissector],
        run: flow_dissector,
    },
];

/// 1. Only with policy 0 and routes with several paths, family by family.
/// 2. Serious where this machine has three connections or more between the same two addresses over
///    such routes: all of them take one path.
/// 3. A warning with two, and where routes with several paths lead to single hosts: what goes there between two
///    hosts is all that the hash can spread.
/// 4. A note otherwise: many hosts on both sides are spread well.
fn l3_policy(facts: &Facts) -> Vec<Found> {
    let mut findings = Vec::new();
    for family in [4, 6] {
        let routes = facts.multipath_routes(family);
        if facts.policy(family) != 0 || routes == 0 {
            continue;
        }
        let ours = facts
            .connections
            .iter()
            .filter(|c| c.local.is_ipv4() == (family == 4));
        let most = ours.clone().map(|c| c.count).max().unwrap_or(0);
        let same = ours.map(|c| {
            let (n, local, remote) = (c.count, c.local, c.remote);
            format!("{n} TCP connections from {local} to {remote}")
        });
        let hosts: usize = facts.multipath(family).map(|paths| paths.hosts).sum();
        let severity = match (most, hosts) {
            (3.., _) => Severity::Serious,
            (2, _) | (_, 1..) => Severity::Warning,
            (_, 0) => Severity::Note,
        };
        let mut evidence = vec![format!(
            "{}.fib_multipath_hash_policy = 0, {} with several paths, {hosts} of them to one address",
            net(family),
            count(routes, &format!("IPv{family} route")),
        )];
        evidence.extend(same);
        let label = if family == 6 {
            ", flow label and next header"
        } else {
            ""
        };
        let found = Found::new(
            severity,
            format!("IPv{family} chooses paths by addresses alone (hash policy 0, L3)"),
            format!(
                "all packets with the same two addresses{label} take one path, however many \
                 connections they belong to"
            ),
        );
        let fix = format!("sysctl -w {}.fib_multipath_hash_policy=1", net(family));
        findings.push(found.evidence(evidence).fix(fix));
    }
    findings
}

const FLOW_LABEL: u32 = 0x8;
const OUTER: u32 = 0x3f;
const PORTS: u32 = 0x30 | 0xc00;

/// For policy 3 with routes of several paths:
///
/// 1. No outer field that the family has (IPv4 has no flow label): all packets that are not tunnelled
///    have one hash. Serious.
/// 2. No ports, neither outer nor inner, and no IPv6 flow label: as policy 0, a note.
fn custom_fields(facts: &Facts) -> Vec<Found> {
    let mut findings = Vec::new();
    let fields = [
        (4, facts.settings.hash_fields4),
        (6, facts.settings.hash_fields6),
    ];
    for (family, fields) in fields {
        if facts.policy(family) != 3 || facts.multipath_routes(family) == 0 {
            continue;
        }
        let outer = fields & OUTER & if family == 4 { !FLOW_LABEL } else { !0 };
        let evidence = format!("{}.fib_multipath_hash_fields = {fields:#x}", net(family));
        let (severity, what, effect) = if outer == 0 {
            (
                Severity::Serious,
                format!("the fields of the custom IPv{family} hash are not in plain packets"),
                "all packets that are not tunnelled take one path",
            )
        } else if fields & PORTS == 0 && outer & FLOW_LABEL == 0 {
            (
                Severity::Note,
                format!("the custom IPv{family} hash looks at no ports"),
                "connections between the same two hosts take one path",
            )
        } else {
            continue;
        };
        let fix = format!("sysctl -w {}.fib_multipath_hash_fields=0x37", net(family));
        findings.push(
            Found::new(severity, what, effect)
                .evidence([evidence])
                .fix(fix),
        );
    }
    findings
}

fn policies_differ(facts: &Facts) -> Vec<Found> {
    let (four, six) = (facts.settings.hash_policy4, facts.settings.hash_policy6);
    if four == six || facts.multipath_routes(4) == 0 || facts.multipath_routes(6) == 0 {
        return Vec::new();
    }
    let found = Found::new(
        Severity::Note,
        "IPv4 and IPv6 choose paths by different policies",
        "the two families spread the same traffic differently",
    );
    let evidence = format!(
        "net.ipv4.fib_multipath_hash_policy = {four}, net.ipv6.fib_multipath_hash_policy = {six}"
    );
    let policy = four.max(six);
    let mut fix = format!(
        "sysctl -w net.ipv4.fib_multipath_hash_policy={policy} \
         net.ipv6.fib_multipath_hash_policy={policy}"
    );
    if policy == 3 {
        // The family that has it says by which fields.
        let (other, fields) = match four {
            3 => (6, facts.settings.hash_fields4),
            _ => (4, facts.settings.hash_fields6),
        };
        fix += &format!(" {}.fib_multipath_hash_fields={fields:#x}", net(other));
    }
    vec![found.evidence([evidence]).fix(fix)]
}

/// A note for each family with policy 1 and routes with several paths to single addresses, which is
/// how services on several machines (anycast) look from here.
fn icmp_outer(facts: &Facts) -> Vec<Found> {
    let mut findings = Vec::new();
    for family in [4, 6] {
        let mut to_hosts = facts.multipath(family).filter(|paths| paths.hosts > 0);
        let Some(first) = to_hosts.next().filter(|_| facts.policy(family) == 1) else {
            continue;
        };
        let hosts = first.hosts + to_hosts.map(|paths| paths.hosts).sum::<usize>();
        let found = Found::new(
            Severity::Note,
            format!(
                "IPv{family} ICMP errors to {} with several paths are hashed by their own addresses",
                match hosts {
                    1 => "a single address".to_owned(),
                    n => format!("{n} single addresses"),
                }
            ),
            "where the paths lead to different servers with one address (anycast), \
             \"fragmentation needed\" and \"packet too big\" may reach another server than the \
             connection, which then hangs on large packets",
        );
        let evidence = format!(
            "{}.fib_multipath_hash_policy = 1; for example {}",
            net(family),
            first.host.unwrap_or(first.dst)
        );
        // Policy 0 looks into ICMP errors, but spreads by hosts only: no fix for all.
        findings.push(found.evidence([evidence]));
    }
    findings
}

fn flow_dissector(facts: &Facts) -> Vec<Found> {
    let Some(program) = facts.receive.dissector.filter(|_| facts.has_multipath()) else {
        return Vec::new();
    };
    let policies = [4, 6].map(|family| facts.policy(family));
    if policies.iter().all(|policy| *policy == 0) {
        return Vec::new();
    }
    let found = Found::new(
        Severity::Warning,
        "a BPF flow dissector decides which fields are hashed",
        "choices of forwarded packets can be predicted only as far as it finds the same fields as \
         the kernel's own dissector",
    );
    let evidence = format!(
        "program {program}; hash policies {} (IPv4) and {} (IPv6)",
        policies[0], policies[1]
    );
    let fix = format!("bpftool prog detach id {program} flow_dissector");
    vec![found.evidence([evidence]).fix(fix)]
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;
    use crate::facts::Connections;

    #[test]
    fn l3_policy_is_as_bad_as_what_it_does() {
        let mut facts = multipath();
        assert_clean("l3-policy", &facts);
        facts.settings.hash_policy4 = 0;
        assert_found(
            "l3-policy",
            &facts,
            Severity::Note,
            &["net.ipv4", "2 IPv4 routes", "hash_policy=1"],
        );
        let connection = |local: &str, count| Connections {
            local: local.parse().unwrap(),
            remote: "10.9.0.7".parse().unwrap(),
            count,
        };
        facts.connections = vec![connection("10.0.1.1", 4)];
        assert_found(
            "l3-policy",
            &facts,
            Severity::Serious,
            &["4 TCP connections from 10.0.1.1 to 10.9.0.7"],
        );
        facts.connections[0].count = 2;
        assert_found("l3-policy", &facts, Severity::Warning, &[]);
        // Connections of the other family are none of its business.
        facts.connections[0].local = "2001:db8::1".parse().unwrap();
        assert_found("l3-policy", &facts, Severity::Note, &[]);
        let facts = with(facts, &[plain("10.9.0.7/32", &[(1, 1), (2, 1)])]);
        assert_found(
            "l3-policy",
            &facts,
            Severity::Warning,
            &["1 of them to one address"],
        );
        let facts = with(facts, &[]);
        assert_clean("l3-policy", &facts);
    }

    #[test]
    fn custom_fields_must_be_in_packets() {
        let mut facts = multipath();
        facts.settings.hash_policy4 = 3;
        for (fields, severity) in [
            (0x8, Some(Severity::Serious)),
            (0xfc0, Some(Severity::Serious)),
            (0x3, Some(Severity::Note)),
            (0xc3, Some(Severity::Note)),
            (0x37, None),
            (0x10, None),
        ] {
            facts.settings.hash_fields4 = fields;
            match severity {
                Some(severity) => {
                    assert_found(
                        "custom-fields",
                        &facts,
                        severity,
                        &[&format!("{fields:#x}")],
                    );
                }
                None => assert_clean("custom-fields", &facts),
            }
        }
        facts.settings.hash_policy4 = 1;
        facts.settings.hash_policy6 = 3;
        facts.settings.hash_fields6 = 0x3;
        assert_found("custom-fields", &facts, Severity::Note, &["IPv6"]);
        // IPv6 has flow labels.
        facts.settings.hash_fields6 = 0x8;
        assert_clean("custom-fields", &facts);
    }

    #[test]
    fn policies_should_be_one() {
        let mut facts = multipath();
        assert_clean("policies-differ", &facts);
        facts.settings.hash_policy6 = 0;
        assert_found(
            "policies-differ",
            &facts,
            Severity::Note,
            &["hash_policy=1 net.ipv6"],
        );
        // Whoever takes it over takes its fields over.
        facts.settings.hash_policy4 = 3;
        facts.settings.hash_fields4 = 0x33;
        assert_found(
            "policies-differ",
            &facts,
            Severity::Note,
            &["net.ipv6.fib_multipath_hash_fields=0x33"],
        );
        assert_clean(
            "policies-differ",
            &with(facts, &[plain("10.9.0.0/24", &[(1, 1), (2, 1)])]),
        );
    }

    #[test]
    fn icmp_errors_matter_where_hosts_are_routed() {
        let facts = multipath();
        assert_clean("icmp-outer", &facts);
        let mut facts = with(
            facts,
            &[
                plain("10.9.0.7/32", &[(1, 1), (2, 1)]),
                plain("10.9.0.8/32", &[(1, 1), (2, 1)]),
            ],
        );
        assert_found(
            "icmp-outer",
            &facts,
            Severity::Note,
            &["2 single addresses", "10.9.0.7/32"],
        );
        facts.settings.hash_policy4 = 0;
        assert_clean("icmp-outer", &facts);
    }

    #[test]
    fn a_flow_dissector_counts_with_ports() {
        let mut facts = multipath();
        assert_clean("flow-dissector", &facts);
        facts.receive.dissector = Some(42);
        assert_found("flow-dissector", &facts, Severity::Warning, &["program 42"]);
        facts.settings.hash_policy4 = 0;
        facts.settings.hash_policy6 = 0;
        assert_clean("flow-dissector", &facts);
    }
}
