//! Neighbours of members that do not answer, and routes that do not look.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::super::facts::{Facts, Paths, Target, ip_family};
use super::super::finding::{Found, Severity};
use super::Check;
use super::members::{is_down, lacks_carrier, share};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "failed-neighbour",
        title: "the neighbour of a member does not answer",
        source: "fib_good_nh, nexthop_select_path (ipv4_good_nh, ipv6_good_nh), fib6_select_path",
        needs: &[],
        run: failed_neighbour,
    },
    Check {
        id: "missing-neighbour",
        title: "the neighbour of a member has not been looked for yet",
        source: "fib_good_nh, ipv4_good_nh: no entry counts as good",
        needs: &[],
        run: missing_neighbour,
    },
    Check {
        id: "neighbour-unchecked",
        title: "plain multipath routes do not look whether neighbours answer",
        source: "fib_select_multipath (fib_multipath_use_neigh), fib6_select_path; nexthop groups \
                 always look (nexthop_select_path)",
        needs: &[],
        run: neighbour_unchecked,
    },
];

/// A neighbour that is a member's gateway, over a link that works.
type Gateway = (u32, IpAddr);

/// What the members behind one gateway come to.
#[derive(Default)]
struct Behind {
    /// Members of plain routes, for which nobody looks at the neighbour.
    unchecked: Vec<String>,
    /// Members for which the kernel does.
    checked: Vec<String>,
}

/// Gateways of one family's members for which `wanted` holds, with their routes.
fn gateways(
    facts: &Facts,
    family: u8,
    wanted: impl Fn(Gateway) -> bool,
) -> BTreeMap<Gateway, Behind> {
    let mut found: BTreeMap<Gateway, Behind> = BTreeMap::new();
    for paths in facts.multipath(family) {
        let plain = matches!(paths.target, Target::Plain(_));
        let checked = !plain || (family == 4 && facts.settings.use_neigh);
        for member in facts.members(paths) {
            let Some(gateway) = member.gateway else {
                continue;
            };
            let key = (member.index, gateway);
            if is_down(facts, member.index) || lacks_carrier(facts, member.index) || !wanted(key) {
                continue;
            }
            let behind = found.entry(key).or_default();
            let line = format!("{paths}: {}", share(facts, paths, &member));
            if checked {
                behind.checked.push(line);
            } else {
                behind.unchecked.push(line);
            }
        }
    }
    found
}

const NUD_INCOMPLETE: u16 = 0x01;

/// For each gateway whose neighbour entry exists and is not valid:
///
/// 1. Some route does not look (plain IPv6; plain IPv4 without `fib_multipath_use_neigh`): serious, its
///    flows are lost.
/// 2. All routes look: a warning, the flows are with the next member.
/// 3. While it is being asked for (incomplete, some seconds): one step less bad.
fn failed_neighbour(facts: &Facts) -> Vec<Found> {
    let mut findings = Vec::new();
    for family in [4, 6] {
        let bad = |key: Gateway| facts.neighbours.get(&key).is_some_and(|n| !n.is_valid());
        for ((index, gateway), behind) in gateways(facts, family, bad) {
            let name = facts.name(index);
            let state = facts
                .neighbours
                .get(&(index, gateway))
                .map_or(0, |n| n.state);
            let asking = state & NUD_INCOMPLETE != 0;
            let lost = !behind.unchecked.is_empty();
            let severity = match (lost, asking) {
                (true, false) => Severity::Serious,
                (true, true) | (false, false) => Severity::Warning,
                (false, true) => Severity::Note,
            };
            let what = match asking {
                true => format!("neighbour {gateway} on {name} has not answered yet"),
                false => format!("neighbour {gateway} on {name} does not answer"),
            };
            let effect = match lost {
                true => "flows of its share are lost: these routes do not look at neighbours",
                false => "its flows have gone to the next member of the group, which carries more",
            };
            let state = if asking { "incomplete" } else { "failed" };
            let found = Found::new(severity, what, effect)
                .evidence([format!("{gateway} dev {name}: {state}")])
                .evidence(behind.unchecked)
                .evidence(behind.checked);
            findings.push(match (lost, family) {
                (true, 4) => found.fix("sysctl -w net.ipv4.fib_multipath_use_neigh=1"),
                _ => {
                    let look = format!(
                        "look at the cable and the far end: ip {}neigh show {gateway} dev {name}",
                        ip_family(family)
                    );
                    found.advice(match lost {
                        true => {
                            look + "; neighbour-unchecked has the commands for a nexthop group, \
                                        which goes around it"
                        }
                        false => look,
                    })
                }
            });
        }
    }
    findings
}

/// Gateways without a neighbour entry: a note for each family.
fn missing_neighbour(facts: &Facts) -> Vec<Found> {
    let mut findings = Vec::new();
    for family in [4, 6] {
        let missing = |key: Gateway| !facts.neighbours.contains_key(&key);
        let missing: Vec<Gateway> = gateways(facts, family, missing).into_keys().collect();
        let Some((index, gateway)) = missing.first() else {
            continue;
        };
        let found = Found::new(
            Severity::Note,
            format!(
                "{} of IPv{family} multipath routes not resolved",
                match missing.len() {
                    1 => "a neighbour".to_owned(),
                    n => format!("{n} neighbours"),
                }
            ),
            "the first packets of their flows wait for an answer, and are lost if there is none",
        );
        let lines = missing
            .iter()
            .map(|(i, g)| format!("{g} dev {}: no entry", facts.name(*i)));
        let fix = format!("ping -c1 -I {} {gateway}", facts.name(*index));
        findings.push(found.evidence(lines).fix(fix));
    }
    findings
}

/// 1. Plain IPv4 multipath routes while `fib_multipath_use_neigh` is off: a warning.
/// 2. Plain IPv6 multipath routes, which never look: a note, with the commands that make a nexthop group
///    of the first.
fn neighbour_unchecked(facts: &Facts) -> Vec<Found> {
    let mut findings = Vec::new();
    for family in [4, 6] {
        let plain: Vec<&Paths> = facts
            .multipath(family)
            .filter(|paths| matches!(paths.target, Target::Plain(_)))
            .collect();
        let Some(first) = plain.first() else { continue };
        if family == 4 && facts.settings.use_neigh {
            continue;
        }
        let routes: usize = plain.iter().map(|paths| paths.routes).sum();
        let found = Found::new(
            if family == 4 {
                Severity::Warning
            } else {
                Severity::Note
            },
            format!(
                "{} without looking at neighbours",
                match routes {
                    1 => format!("a plain IPv{family} multipath route chooses"),
                    n => format!("{n} plain IPv{family} multipath routes choose"),
                }
            ),
            "a neighbour that stops answering while its link is up keeps its share, and those flows \
             are lost; routes over nexthop groups go around it",
        );
        let lines = plain.iter().map(|paths| paths.to_string());
        let found = match family {
            4 => found
                .evidence(["net.ipv4.fib_multipath_use_neigh = 0"])
                .evidence(lines),
            _ => found.evidence(lines),
        };
        findings.push(found.fix(match family {
            4 => "sysctl -w net.ipv4.fib_multipath_use_neigh=1".to_owned(),
            _ => as_group(facts, first),
        }));
    }
    findings
}

/// The commands that replace a plain route by one over a nexthop group.
pub(super) fn as_group(facts: &Facts, paths: &Paths) -> String {
    let first = facts.nexthops.keys().last().map_or(100, |last| last + 1);
    let mut commands = Vec::new();
    let mut group = Vec::new();
    for (member, id) in facts.members(paths).iter().zip(first..) {
        let family = ip_family(
            member
                .gateway
                .map_or(paths.family, |g| if g.is_ipv4() { 4 } else { 6 }),
        );
        let via = member
            .gateway
            .map_or(String::new(), |g| format!(" via {g}"));
        let name = facts.name(member.index);
        commands.push(format!("ip {family}nexthop add id {id}{via} dev {name}"));
        group.push(match member.weight {
            1 => id.to_string(),
            weight => format!("{id},{weight}"),
        });
    }
    let id = first + group.len() as u32;
    commands.push(format!("ip nexthop add id {id} group {}", group.join("/")));
    let table = match paths.table {
        raddle_rib::TABLE_MAIN => String::new(),
        table => format!(" table {table}"),
    };
    let family = ip_family(paths.family);
    commands.push(format!(
        "ip {family}route replace {} nhid {id}{table}",
        paths.dst
    ));
    commands.join(" && ")
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;

    #[test]
    fn a_failed_neighbour_is_worse_where_nobody_looks() {
        let plain4 = || with(healthy(), &[plain("10.9.0.0/24", &[(1, 3), (2, 1)])]);
        let mut facts = plain4();
        assert_clean("failed-neighbour", &facts);
        neighbour(&mut facts, 2, gateway(4, 2), 0x20);
        assert_found(
            "failed-neighbour",
            &facts,
            Severity::Warning,
            &["10.0.2.2", "25.0 %"],
        );
        facts.settings.use_neigh = false;
        assert_found(
            "failed-neighbour",
            &facts,
            Severity::Serious,
            &["lost", "use_neigh=1"],
        );
        neighbour(&mut facts, 2, gateway(4, 2), 0x01);
        assert_found(
            "failed-neighbour",
            &facts,
            Severity::Warning,
            &["incomplete"],
        );
        // Whose link is down does not matter.
        facts.links.get_mut(&2).unwrap().flags = 0x1;
        assert_clean("failed-neighbour", &facts);

        let mut facts = with(healthy(), &[plain("2001:db8:9::/64", &[(1, 1), (2, 1)])]);
        neighbour(&mut facts, 1, gateway(6, 1), 0x20);
        assert_found(
            "failed-neighbour",
            &facts,
            Severity::Serious,
            &["2001:db8:1::2"],
        );

        let mut facts = healthy();
        group(&mut facts, &[1, 1]);
        facts.settings.use_neigh = false;
        let mut facts = with(facts, &[grouped("10.8.0.0/24", 100)]);
        neighbour(&mut facts, 1, gateway(4, 1), 0x20);
        assert_found(
            "failed-neighbour",
            &facts,
            Severity::Warning,
            &["10.8.0.0/24"],
        );
    }

    #[test]
    fn a_missing_neighbour_is_a_note() {
        let mut facts = multipath();
        assert_clean("missing-neighbour", &facts);
        facts.neighbours.remove(&(1, gateway(4, 1)));
        let said = [
            "a neighbour",
            "10.0.1.2 dev eth1",
            "ping -c1 -I eth1 10.0.1.2",
        ];
        assert_found("missing-neighbour", &facts, Severity::Note, &said);
    }

    #[test]
    fn plain_routes_should_look_at_neighbours() {
        let mut facts = with(healthy(), &[plain("10.9.0.0/24", &[(1, 1), (2, 1)])]);
        assert_clean("neighbour-unchecked", &facts);
        facts.settings.use_neigh = false;
        assert_found(
            "neighbour-unchecked",
            &facts,
            Severity::Warning,
            &["a plain IPv4", "= 0"],
        );
        let facts = with(healthy(), &[plain("2001:db8:9::/64", &[(1, 2), (2, 1)])]);
        let said = "ip -6 nexthop add id 100 via 2001:db8:1::2 dev eth1 && \
                    ip -6 nexthop add id 101 via 2001:db8:2::2 dev eth2 && \
                    ip nexthop add id 102 group 100,2/101 && \
                    ip -6 route replace 2001:db8:9::/64 nhid 102";
        assert_found("neighbour-unchecked", &facts, Severity::Note, &[said]);
        let mut facts = healthy();
        facts.settings.use_neigh = false;
        group(&mut facts, &[1, 1]);
        assert_clean(
            "neighbour-unchecked",
            &with(facts, &[grouped("10.8.0.0/24", 100)]),
        );
    }
}
