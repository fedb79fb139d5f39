//! Nexthop objects: groups that have lost members, cost of changes, resilient groups.

use std::collections::BTreeSet;

use raddle_rib::event::{Nexthop, NexthopKind};

use super::super::facts::{Facts, Need, Target, ip_family};
use super::super::finding::{Found, Severity, count};
use super::Check;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "frr-lost-ecmp",
        title: "FRR's nexthop group has lost paths that are there again",
        source: "nexthop_flush_dev removes members without a word; FRRouting/frr#13413 (seen with \
                 8.4; #14481, #18374, #23022 are related)",
        needs: &[],
        run: frr_lost_ecmp,
    },
    Check {
        id: "one-member-group",
        title: "routes over a nexthop group of one member",
        source: "nexthop_flush_dev, remove_nexthop; a group keeps its id when members go",
        needs: &[],
        run: one_member_group,
    },
    Check {
        id: "objects-go-with-carrier",
        title: "nexthop objects go when their link loses carrier, and do not come back",
        source: "nh_netdev_event, nexthop_flush_dev",
        needs: &[],
        run: objects_go,
    },
    Check {
        id: "compat-cost",
        title: "many routes behind a group, each of which is announced at every change of it",
        source: "nexthop_replace_notify, net.ipv4.nexthop_compat_mode",
        needs: &[Need::Settings],
        run: compat_cost,
    },
    Check {
        id: "resilient-idle-zero",
        title: "a resilient group whose idle timer is 0",
        source: "nh_res_bucket_should_migrate",
        needs: &[],
        run: resilient_idle_zero,
    },
    Check {
        id: "resilient-coarse",
        title: "a resilient group with too few buckets for its weights",
        source: "nh_res_group_rebalance: buckets are whole",
        needs: &[],
        run: resilient_coarse,
    },
];

/// `RTPROT_ZEBRA`: who installs FRR's nexthop objects.
const ZEBRA: u8 = 11;
/// Routes behind a group from which on announcing each is worth a word, and a warning.
const MANY: usize = 1_000;
const VERY_MANY: usize = 100_000;

/// Groups of one member that routes use, and how many routes.
fn lonely(facts: &Facts) -> impl Iterator<Item = (&Nexthop, usize)> {
    facts.nexthops.values().filter_map(|nexthop| {
        let routes = routes_over(facts, nexthop.id);
        (facts.group(nexthop.id).len() == 1 && routes > 0).then_some((nexthop, routes))
    })
}

fn routes_over(facts: &Facts, id: u32) -> usize {
    let over = facts
        .paths
        .iter()
        .filter(|paths| paths.target == Target::Group(id));
    over.map(|paths| paths.routes).sum()
}

fn single(facts: &Facts, id: u32) -> Option<(String, u32)> {
    let NexthopKind::Single { gateway, index, .. } = facts.nexthops.get(&id)?.kind else {
        return None;
    };
    let via = gateway.map_or(String::new(), |g| format!("via {g} "));
    Some((format!("id {id} {via}dev {}", facts.name(index)), index))
}

/// 1. A group of FRR's that routes use and that has one member only. FRR makes groups for several.
/// 2. Serious where another nexthop of FRR's over a working link is in no group: the path is back, and
///    FRR has not put it in again.
/// 3. A warning otherwise: FRR may mean it (a recursive route over one path), or the path is still
///    away.
fn frr_lost_ecmp(facts: &Facts) -> Vec<Found> {
    let grouped: BTreeSet<u32> = facts
        .nexthops
        .keys()
        .flat_map(|id| facts.group(*id))
        .map(|member| member.id)
        .collect();
    let idle: Vec<String> = facts
        .nexthops
        .values()
        .filter(|nexthop| nexthop.protocol == ZEBRA && !grouped.contains(&nexthop.id))
        .filter_map(|nexthop| single(facts, nexthop.id))
        .filter(|(_, index)| {
            facts
                .links
                .get(index)
                .is_some_and(|l| l.is_up() && l.has_carrier())
        })
        .map(|(text, _)| format!("{text}: over a working link, in no group"))
        .collect();
    let groups: Vec<String> = lonely(facts)
        .filter(|(nexthop, _)| nexthop.protocol == ZEBRA)
        .map(|(nexthop, routes)| {
            let member = facts.group(nexthop.id)[0].id;
            let member = single(facts, member).map_or(format!("id {member}"), |(text, _)| text);
            format!(
                "group {}: only {member} is left, {}",
                nexthop.id,
                count(routes, "route")
            )
        })
        .collect();
    if groups.is_empty() {
        return Vec::new();
    }
    let (severity, what) = if idle.is_empty() {
        (
            Severity::Warning,
            "nexthop groups of FRR's have one member only",
        )
    } else {
        (
            Severity::Serious,
            "nexthop groups of FRR's have lost paths that are there again",
        )
    };
    let found = Found::new(
        severity,
        what,
        "the kernel takes a nexthop out of its groups when the link fails, and FRR may believe for \
         ever that the group still has it: all traffic stays on what is left",
    );
    let mend = "vtysh -c 'configure terminal' -c 'zebra nexthop-group keep 1'";
    let advice = "then vtysh -c 'clear bgp *', or wait for the next change of the routes; 'no zebra \
                  nexthop kernel enable' does without groups; vtysh -c 'show nexthop-group rib' has \
                  what FRR believes, ip nexthop what is";
    let found = found.evidence(groups).evidence(idle);
    vec![found.mend(mend).advice(advice)]
}

/// Groups of one member that are not FRR's and that routes use: a warning.
fn one_member_group(facts: &Facts) -> Vec<Found> {
    let groups = lonely(facts).filter(|(nexthop, _)| nexthop.protocol != ZEBRA);
    let lines: Vec<String> = groups
        .map(|(nexthop, routes)| {
            let member = facts.group(nexthop.id)[0].id;
            let member = single(facts, member).map_or(format!("id {member}"), |(text, _)| text);
            format!("group {}: {member}; {}", nexthop.id, count(routes, "route"))
        })
        .collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let found = Found::new(
        Severity::Warning,
        format!("{} of one member only", count(lines.len(), "nexthop group")),
        "there is nothing to choose; if there were more, their link failed and the kernel took them \
         out for good",
    );
    let advice = "ip nexthop replace id GROUP group MEMBER/MEMBER once the others are there again; \
                  whoever made the group may do so when it is told";
    vec![found.evidence(lines).advice(advice)]
}

/// A note where routes with several paths go over groups.
fn objects_go(facts: &Facts) -> Vec<Found> {
    let groups: BTreeSet<u32> = [4, 6]
        .into_iter()
        .flat_map(|family| facts.multipath(family))
        .filter_map(|paths| match paths.target {
            Target::Group(id) => Some(id),
            Target::Plain(_) => None,
        })
        .collect();
    if groups.is_empty() {
        return Vec::new();
    }
    let found = Found::new(
        Severity::Note,
        format!(
            "{} several members",
            match groups.len() {
                1 => "a nexthop group in use has".to_owned(),
                n => format!("{n} nexthop groups in use have"),
            }
        ),
        "when a link goes down or loses carrier, its nexthops leave their groups without a \
         notification, and do not come back with the carrier: whoever made them has to make them \
         again (plain multipath routes come back by themselves)",
    );
    vec![
        found.evidence(
            groups
                .iter()
                .map(|id| format!("group {id}: {}", count(routes_over(facts, *id), "route"))),
        ),
    ]
}

/// With `nexthop_compat_mode` on, groups with many routes: a note from 1,000 on, a warning from 100,000.
fn compat_cost(facts: &Facts) -> Vec<Found> {
    if facts.tuning.compat_mode != Some(true) {
        return Vec::new();
    }
    let groups: Vec<(u32, usize)> = facts
        .nexthops
        .keys()
        .map(|id| (*id, routes_over(facts, *id)))
        .filter(|(_, routes)| *routes >= MANY)
        .collect();
    let Some(most) = groups.iter().map(|(_, routes)| *routes).max() else {
        return Vec::new();
    };
    let severity = if most >= VERY_MANY {
        Severity::Warning
    } else {
        Severity::Note
    };
    let found = Found::new(
        severity,
        format!("a change of one nexthop group announces {most} routes"),
        "with net.ipv4.nexthop_compat_mode = 1 the kernel sends every route of a group when the group \
         changes, which takes long and overruns listeners; without it, one message does",
    );
    let lines = groups
        .iter()
        .map(|(id, routes)| format!("group {id}: {routes} routes"));
    let advice = "if all that listens understands nexthop objects; ip and FRR do";
    let found = found.evidence(lines).advice(advice);
    vec![found.mend("sysctl -w net.ipv4.nexthop_compat_mode=0")]
}

fn resilient(facts: &Facts) -> impl Iterator<Item = (u32, u16, u32)> {
    facts
        .nexthops
        .values()
        .filter_map(|nexthop| match nexthop.kind {
            NexthopKind::Resilient {
                buckets,
                idle_timer,
                ..
            } => Some((nexthop.id, buckets, idle_timer)),
            _ => None,
        })
}

fn resilient_idle_zero(facts: &Facts) -> Vec<Found> {
    let found = resilient(facts).filter(|(_, _, idle)| *idle == 0).map(|(id, ..)| {
        Found::new(
            Severity::Warning,
            format!("resilient group {id} has an idle timer of 0"),
            "every bucket counts as idle at once, so that flows in use are moved when members change",
        )
        .evidence([format!("group {id}: {}", count(routes_over(facts, id), "route"))])
        .mend(format!("ip nexthop replace id {id} group {} type resilient idle_timer 120", words(facts, id)))
    });
    found.collect()
}

/// The members of a group as `ip` takes them.
fn words(facts: &Facts, id: u32) -> String {
    let members = facts.group(id).iter().map(|member| match member.weight {
        1 => member.id.to_string(),
        weight => format!("{},{weight}", member.id),
    });
    members.collect::<Vec<_>>().join("/")
}

/// How many buckets each member is to have (`nh_res_group_rebalance`).
fn wanted_buckets(weights: &[u16], buckets: u16) -> Vec<u64> {
    let total: u64 = weights.iter().map(|w| u64::from(*w)).sum::<u64>().max(1);
    let (mut so_far, mut before) = (0, 0);
    let wants = |weight: &u16| {
        so_far += u64::from(*weight);
        let end = (u64::from(buckets) * so_far + total / 2) / total;
        end - std::mem::replace(&mut before, end)
    };
    weights.iter().map(wants).collect()
}

/// Members whose number of buckets is more than 10 % off what their weight asks for: a warning,
/// and serious where a member gets none.
fn resilient_coarse(facts: &Facts) -> Vec<Found> {
    let mut findings = Vec::new();
    for (id, buckets, _) in resilient(facts) {
        let members = facts.group(id);
        let weights: Vec<u16> = members.iter().map(|m| m.weight).collect();
        let total: f64 = weights.iter().map(|w| f64::from(*w)).sum();
        let wants = wanted_buckets(&weights, buckets);
        let off: Vec<(String, bool)> = members
            .iter()
            .zip(&wants)
            .filter_map(|(member, wants)| {
                let ideal = f64::from(buckets) * f64::from(member.weight) / total;
                let error = 100.0 * (*wants as f64 - ideal) / ideal;
                let line = format!(
                    "member {} weight {}: {wants} of {buckets} buckets, {ideal:.2} would be right \
                     ({error:+.0} %)",
                    member.id, member.weight
                );
                (error.abs() > 10.0).then_some((line, *wants == 0))
            })
            .collect();
        if off.is_empty() {
            continue;
        }
        let severity = match off.iter().any(|(_, nothing)| *nothing) {
            true => Severity::Serious,
            false => Severity::Warning,
        };
        // The error is half a bucket at most at either end of a member's run.
        let least = weights
            .iter()
            .min()
            .map_or(1.0, |least| f64::from((*least).max(1)));
        let enough = ((10.0 * total / least).ceil() as u64).next_power_of_two();
        let found = Found::new(
            severity,
            format!("resilient group {id} has {buckets} buckets, too few for its weights"),
            "shares differ from the weights by more than 10 %",
        );
        let new = facts.nexthops.keys().last().map_or(1, |last| last + 1);
        let mut mend = format!(
            "ip nexthop add id {new} group {} type resilient buckets {}",
            words(facts, id),
            enough.min(65_535)
        );
        if let Some(paths) = facts.paths.iter().find(|p| p.target == Target::Group(id)) {
            let family = ip_family(paths.family);
            mend += &format!(" && ip {family}route replace {} nhid {new}", paths.dst);
        }
        let found = found
            .evidence(off.into_iter().map(|(line, _)| line))
            .mend(mend);
        let advice = "every route of the group wants it: buckets are fixed when a group is made";
        findings.push(found.advice(advice));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;

    fn of_zebra(facts: &mut Facts) {
        facts
            .nexthops
            .values_mut()
            .for_each(|nexthop| nexthop.protocol = ZEBRA);
    }

    #[test]
    fn a_group_of_frr_that_shrank_is_found() {
        let mut facts = healthy();
        group(&mut facts, &[1, 1]);
        of_zebra(&mut facts);
        let routes = [grouped("10.8.0.0/24", 100)];
        assert_clean("frr-lost-ecmp", &with(facts.clone(), &routes));
        group(&mut facts, &[1]);
        of_zebra(&mut facts);
        let facts = with(facts, &routes);
        let said = [
            "group 100: only id 11",
            "id 12 via 10.0.2.2 dev eth2",
            "nexthop-group keep 1",
        ];
        assert_found("frr-lost-ecmp", &facts, Severity::Serious, &said);
        assert_clean("one-member-group", &facts);
        let mut away = facts.clone();
        away.nexthops.retain(|id, _| [11, 100].contains(id));
        assert_found(
            "frr-lost-ecmp",
            &away,
            Severity::Warning,
            &["one member only"],
        );
        // Nobody's routes, or not FRR's.
        assert_clean("frr-lost-ecmp", &with(facts.clone(), &[]));
        let mut others = facts;
        others
            .nexthops
            .values_mut()
            .for_each(|nexthop| nexthop.protocol = 4);
        assert_clean("frr-lost-ecmp", &others);
        assert_found(
            "one-member-group",
            &others,
            Severity::Warning,
            &["group 100", "id 11"],
        );
    }

    #[test]
    fn groups_of_several_are_no_finding_of_loneliness() {
        assert_clean("one-member-group", &multipath());
    }

    #[test]
    fn objects_in_use_are_noted() {
        assert_found(
            "objects-go-with-carrier",
            &multipath(),
            Severity::Note,
            &["group 100: 1 route"],
        );
        let facts = with(healthy(), &[plain("10.9.0.0/24", &[(1, 1), (2, 1)])]);
        assert_clean("objects-go-with-carrier", &facts);
    }

    #[test]
    fn compatibility_costs_with_many_routes() {
        let mut facts = multipath();
        facts.tuning.compat_mode = Some(true);
        assert_clean("compat-cost", &facts);
        for (routes, severity) in [(1_000, Severity::Note), (200_000, Severity::Warning)] {
            facts.paths[1].routes = routes;
            assert_found("compat-cost", &facts, severity, &[&routes.to_string()]);
        }
        facts.tuning.compat_mode = Some(false);
        assert_clean("compat-cost", &facts);
    }

    fn resilient_group(weights: &[u16], buckets: u16, idle_timer: u32) -> Facts {
        let mut facts = healthy();
        let members = members(&mut facts, weights);
        let kind = NexthopKind::Resilient {
            members,
            buckets,
            idle_timer,
            unbalanced_timer: 0,
            unbalanced_time: 0,
        };
        object(&mut facts, 100, kind);
        with(facts, &[grouped("10.8.0.0/24", 100)])
    }

    #[test]
    fn an_idle_timer_of_zero_is_found() {
        assert_clean(
            "resilient-idle-zero",
            &resilient_group(&[1, 1], 128, 12_000),
        );
        let facts = resilient_group(&[2, 1], 128, 0);
        let said = [
            "group 100",
            "ip nexthop replace id 100 group 11,2/12 type resilient",
        ];
        assert_found("resilient-idle-zero", &facts, Severity::Warning, &said);
    }

    #[test]
    fn buckets_must_be_many_enough() {
        assert_clean("resilient-coarse", &resilient_group(&[1, 1], 8, 100));
        assert_clean("resilient-coarse", &resilient_group(&[7, 3, 2], 128, 100));
        let facts = resilient_group(&[1, 1, 1], 4, 100);
        let said = ["4 buckets", "2 of 4 buckets, 1.33", "+50 %", "buckets 32"];
        assert_found("resilient-coarse", &facts, Severity::Warning, &said);
        let facts = resilient_group(&[100, 1], 8, 100);
        assert_found(
            "resilient-coarse",
            &facts,
            Severity::Serious,
            &["0 of 8 buckets"],
        );
    }

    #[test]
    fn enough_buckets_are_enough() {
        for weights in [&[1, 1, 1][..], &[100, 1], &[7, 3, 2], &[5, 17, 90]] {
            let total: f64 = weights.iter().map(|w| f64::from(*w)).sum();
            let least = f64::from(*weights.iter().min().unwrap());
            let buckets = ((10.0 * total / least).ceil() as u64).next_power_of_two() as u16;
            for (wants, weight) in wanted_buckets(weights, buckets).iter().zip(weights) {
                let ideal = f64::from(buckets) * f64::from(*weight) / total;
                assert!(
                    (*wants as f64 - ideal).abs() / ideal <= 0.1,
                    "{weights:?} {buckets}"
                );
            }
        }
    }
}
