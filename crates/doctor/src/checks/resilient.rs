//! Resilient groups: timers, and buckets enough.

use raddle_rib::event::NexthopKind;

use super::super::facts::{Facts, Target, ip_family};
use super::super::finding::{Found, Severity, count};
use super::Check;
use super::objects::{routes_over, words};

pub(super) const CHECKS: &[Check] = &[
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
        .fix(format!("ip nexthop replace id {id} group {} type resilient idle_timer 120", words(facts, id)))
    });
    found.collect()
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
        let mut fix = format!(
            "ip nexthop add id {new} group {} type resilient buckets {}",
            words(facts, id),
            enough.min(65_535)
        );
        if let Some(paths) = facts.paths.iter().find(|p| p.target == Target::Group(id)) {
            let family = ip_family(paths.family);
            fix += &format!(" && ip {family}route replace {} nhid {new}", paths.dst);
        }
        let found = found
            .evidence(off.into_iter().map(|(line, _)| line))
            .fix(fix);
        let advice = "every route of the group wants it: buckets are fixed when a group is made";
        findings.push(found.advice(advice));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;

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
