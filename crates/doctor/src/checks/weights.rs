//! Weights that do not come out as they were meant.

use std::collections::BTreeSet;

use raddle_select::{MAX_HASH, upper_bounds};

use super::super::facts::{Facts, Member, Need, Paths, Target};
use super::super::finding::{Found, Severity, count};
use super::Check;
use raddle_select::faults;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "small-share",
        title: "a member with less than a thousandth of the hash space",
        source: "fib_rebalance, nh_hthr_group_rebalance",
        needs: &[],
        run: small_share,
    },
    Check {
        id: "weight-capped",
        title: "a plain multipath route at the largest weight there is, 256",
        source: "rtnh_hops has 8 bits; nexthop groups have 16 (Linux 6.12)",
        needs: &[],
        run: weight_capped,
    },
    Check {
        id: "weight-truncated",
        title: "group weights above 256, which RTA_MULTIPATH shows modulo 256",
        source: "nexthop_mpath_fill_node, rtnh_hops; net.ipv4.nexthop_compat_mode",
        needs: &[Need::Settings],
        run: weight_truncated,
    },
    Check {
        id: "narrow-weights",
        title: "this kernel's nexthop groups have 8-bit weights",
        source: "NHA_GROUP, weight_high (Linux 6.12)",
        needs: &[Need::Kernel],
        run: narrow_weights,
    },
];

/// How many of the 2^31 hashes each member gets.
fn widths(members: &[Member]) -> Vec<u64> {
    let weights: Vec<Option<u32>> = members.iter().map(|m| Some(u32::from(m.weight))).collect();
    let mut before = 0;
    let width = |upper: Option<u32>| {
        let end = upper
            .map_or(before, |upper| u64::from(upper) + 1)
            .max(before);
        end - std::mem::replace(&mut before, end)
    };
    upper_bounds(&weights).into_iter().map(width).collect()
}

/// A resilient group has buckets, not bounds.
fn has_bounds(facts: &Facts, paths: &Paths) -> bool {
    use raddle_rib::event::NexthopKind::Resilient;
    let Target::Group(id) = paths.target else {
        return true;
    };
    !matches!(
        facts.nexthops.get(&id).map(|nh| &nh.kind),
        Some(Resilient { .. })
    )
}

/// Two findings at most:
///
/// 1. Members whose upper bound is not above that of the one before: never chosen. Serious.
/// 2. Members with less than 1/1000 of the hash space: a warning.
fn small_share(facts: &Facts) -> Vec<Found> {
    let all = u64::from(MAX_HASH) + 1;
    let (mut none, mut little) = (Vec::new(), Vec::new());
    for paths in [4, 6]
        .into_iter()
        .flat_map(|family| facts.multipath(family))
        .filter(|paths| has_bounds(facts, paths))
    {
        let members = facts.members(paths);
        for (member, width) in members.iter().zip(widths(&members)) {
            let member = facts.describe(member);
            if width == 0 {
                none.push(format!("{paths}: {member}: none of the hash space"));
            } else if width * 1000 < all {
                let part = all as f64 / width as f64;
                little.push(format!("{paths}: {member}: 1/{part:.0} of the hash space"));
            }
        }
    }
    let report = |severity, what: &str, effect: &str, lines: Vec<String>| {
        let what = format!("{} {what}", count(lines.len(), "member"));
        (!lines.is_empty()).then(|| Found::new(severity, what, effect).evidence(lines))
    };
    let none = report(
        Severity::Serious,
        "with no share at all",
        "a member whose upper bound is not above the one before it is never chosen",
        none,
    );
    let little = report(
        Severity::Warning,
        "with less than a thousandth of the hash space",
        "most of the time such a path carries nothing, so that a fault of it stays unseen",
        little,
    );
    none.into_iter().chain(little).collect()
}

/// A note where a plain route has unequal weights, the largest of which is 256.
fn weight_capped(facts: &Facts) -> Vec<Found> {
    let capped: Vec<String> = [4, 6]
        .into_iter()
        .flat_map(|family| facts.multipath(family))
        .filter_map(|paths| {
            let Target::Plain(hops) = &paths.target else {
                return None;
            };
            let (least, most) = (
                hops.iter().map(|h| h.weight).min()?,
                hops.iter().map(|h| h.weight).max()?,
            );
            (most >= 256 && least < most).then(|| format!("{paths}: weights {least} to {most}"))
        })
        .collect();
    if capped.is_empty() {
        return Vec::new();
    }
    let found = Found::new(
        Severity::Note,
        "plain multipath routes have the largest weight that they can have",
        "256 may stand for more: whoever installs the route has to scale its weights down to fit, \
         which rounds the small ones; weights of nexthop groups go to 65535",
    );
    vec![found.evidence(capped)]
}

/// The groups that routes use.
fn groups(facts: &Facts) -> BTreeSet<u32> {
    let group = |paths: &Paths| match paths.target {
        Target::Group(id) => Some(id),
        Target::Plain(_) => None,
    };
    facts.paths.iter().filter_map(group).collect()
}

/// Members of groups with a weight above 256, while routes are shown with the group's expansion
/// (`nexthop_compat_mode`): a warning.
fn weight_truncated(facts: &Facts) -> Vec<Found> {
    if facts.tuning.compat_mode != Some(true) {
        return Vec::new();
    }
    let lines: Vec<String> = groups(facts)
        .iter()
        .flat_map(|id| facts.group(*id).iter().map(move |member| (id, member)))
        .filter(|(_, member)| member.weight > 256)
        .map(|(id, member)| {
            let shown = (member.weight - 1) % 256 + 1;
            format!(
                "group {id}, member {}: weight {} is shown as {shown}",
                member.id, member.weight
            )
        })
        .collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let found = Found::new(
        Severity::Warning,
        "routes show other weights than their nexthop groups have",
        "the kernel chooses by the group's weights, but ip route and whoever reads RTA_MULTIPATH see \
         8 bits of them",
    );
    let found = found.evidence(lines).advice("ip nexthop shows them right");
    vec![found.fix("sysctl -w net.ipv4.nexthop_compat_mode=0")]
}

/// A note for kernels before 6.12 with groups of unequal weights.
fn narrow_weights(facts: &Facts) -> Vec<Found> {
    let Some(version) = facts
        .kernel
        .filter(|version| *version < faults::WIDE_WEIGHTS)
    else {
        return Vec::new();
    };
    let unequal = |id: &u32| {
        let mut weights = facts.group(*id).iter().map(|member| member.weight);
        let first = weights.next();
        weights
            .any(|weight| Some(weight) != first)
            .then(|| format!("group {id} has unequal weights"))
    };
    let lines: Vec<String> = groups(facts).iter().filter_map(unequal).collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let found = Found::new(
        Severity::Note,
        "weights of nexthop groups are limited to 256",
        "finer weights, such as those from link bandwidths, are rounded by whoever installs them",
    );
    vec![
        found
            .evidence([format!("Linux {version}; 6.12 has 65535")])
            .evidence(lines),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;
    use raddle_select::KernelVersion;

    #[test]
    fn a_thousandth_is_the_limit() {
        let weighted = |weights: &[u16]| {
            let mut facts = healthy();
            group(&mut facts, weights);
            with(facts, &[grouped("10.8.0.0/24", 100)])
        };
        assert_clean("small-share", &weighted(&[999, 1]));
        let said = [
            "1 member with less",
            "10.8.0.0/24: id 12 via 10.0.2.2 dev eth2 weight 1: 1/5001",
        ];
        assert_found(
            "small-share",
            &weighted(&[5000, 1]),
            Severity::Warning,
            &said,
        );
        // No kernel has a weight of 0, but a snapshot may.
        assert_found(
            "small-share",
            &weighted(&[1, 0]),
            Severity::Serious,
            &["none of the hash"],
        );
    }

    #[test]
    fn plain_weights_end_at_256() {
        let weighted = |weights: [u16; 2]| {
            let [a, b] = weights;
            with(healthy(), &[plain("10.9.0.0/24", &[(1, a), (2, b)])])
        };
        for weights in [[1, 255], [256, 256], [1, 1]] {
            assert_clean("weight-capped", &weighted(weights));
        }
        assert_found(
            "weight-capped",
            &weighted([256, 3]),
            Severity::Note,
            &["weights 3 to 256"],
        );
    }

    #[test]
    fn wide_weights_are_shown_modulo_256() {
        let mut facts = healthy();
        group(&mut facts, &[300, 256, 512]);
        let mut facts = with(facts, &[grouped("10.8.0.0/24", 100)]);
        assert_clean("weight-truncated", &facts);
        facts.tuning.compat_mode = Some(true);
        let said = ["weight 300 is shown as 44", "weight 512 is shown as 256"];
        assert_found("weight-truncated", &facts, Severity::Warning, &said);
        group(&mut facts, &[256, 1]);
        assert_clean("weight-truncated", &facts);
    }

    #[test]
    fn old_kernels_have_narrow_weights() {
        let mut facts = healthy();
        group(&mut facts, &[2, 1]);
        let mut facts = with(facts, &[grouped("10.8.0.0/24", 100)]);
        assert_clean("narrow-weights", &facts);
        facts.kernel = Some(KernelVersion::new(6, 11, 9));
        assert_found(
            "narrow-weights",
            &facts,
            Severity::Note,
            &["Linux 6.11.9", "group 100"],
        );
        group(&mut facts, &[2, 2]);
        assert_clean("narrow-weights", &facts);
    }
}
