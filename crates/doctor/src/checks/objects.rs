//! Nexthop objects: groups that have lost members, and the cost of changes.

use std::collections::BTreeSet;

use raddle_rib::event::{Nexthop, NexthopKind};

use super::super::facts::{Facts, Need, Target};
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

/// How many routes lead over a group.
pub(super) fn routes_over(facts: &Facts, id: u32) -> usize {
    let over = facts
        .paths
        .iter()
        .filter(|paths| paths.target == Target::Group(id));
    over.map(|paths| paths.routes).sum()
}

/// A nexthop that is no group, as `ip` writes it.
fn single(facts: &Facts, id: u32) -> Option<String> {
    let NexthopKind::Single { gateway, index, .. } = facts.nexthops.get(&id)?.kind else {
        return None;
    };
    let via = gateway.map_or(String::new(), |g| format!("via {g} "));
    Some(format!("id {id} {via}dev {}", facts.name(index)))
}

/// 1. A group of FRR's that routes use and that has one member only. FRR makes groups for several.
/// 2. Serious where another of FRR's gateways, over a working link, is in no group: the path is back, and
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
    let is_zebra = |(nexthop, _): &(&Nexthop, usize)| nexthop.protocol == ZEBRA;
    let works = |index: &u32| {
        let link = facts.links.get(index);
        link.is_some_and(|link| link.is_up() && link.has_carrier())
    };
    let idle = facts
        .nexthops
        .values()
        .filter(|nexthop| match &nexthop.kind {
            NexthopKind::Single {
                gateway: Some(_),
                index,
                ..
            } => nexthop.protocol == ZEBRA && !grouped.contains(&nexthop.id) && works(index),
            _ => false,
        });
    let idle: Vec<String> = idle
        .filter_map(|nexthop| single(facts, nexthop.id))
        .map(|text| format!("{text}: over a working link, in no group"))
        .collect();
    let groups: Vec<String> = lonely(facts)
        .filter(is_zebra)
        .map(|(nexthop, routes)| {
            let member = facts.group(nexthop.id)[0].id;
            let member = single(facts, member).unwrap_or(format!("id {member}"));
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
    // Tried with FRR 8.4.4: what zebra takes for somebody else's change of its group has it send its
    // own again ("sending it back down"), also when nothing changes. Clearing BGP sessions does not.
    let fix = |(nexthop, _): (&Nexthop, usize)| {
        let id = nexthop.id;
        format!(
            "ip nexthop replace id {id} group {} proto zebra",
            words(facts, id)
        )
    };
    let fix: Vec<String> = lonely(facts).filter(is_zebra).map(fix).collect();
    let advice = "a change of the group makes FRR send its own again; 'zebra nexthop-group keep 1' in \
                  its configuration (or 'no zebra nexthop kernel enable') keeps it from happening; \
                  vtysh -c 'show nexthop-group rib' has what FRR believes, ip nexthop what is";
    let found = found.evidence(groups).evidence(idle);
    vec![found.fix(fix.join(" && ")).advice(advice)]
}

/// Groups of one member that are not FRR's and that routes use: a warning.
fn one_member_group(facts: &Facts) -> Vec<Found> {
    let groups = lonely(facts).filter(|(nexthop, _)| nexthop.protocol != ZEBRA);
    let lines: Vec<String> = groups
        .map(|(nexthop, routes)| {
            let member = facts.group(nexthop.id)[0].id;
            let member = single(facts, member).unwrap_or(format!("id {member}"));
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
    vec![found.fix("sysctl -w net.ipv4.nexthop_compat_mode=0")]
}

/// The members of a group as `ip` takes them.
pub(super) fn words(facts: &Facts, id: u32) -> String {
    let members = facts.group(id).iter().map(|member| match member.weight {
        1 => member.id.to_string(),
        weight => format!("{},{weight}", member.id),
    });
    members.collect::<Vec<_>>().join("/")
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
            "ip nexthop replace id 100 group 11 proto zebra",
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
}
