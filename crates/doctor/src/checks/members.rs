//! Links that cannot deliver what they are given.

use std::collections::BTreeMap;

use super::super::facts::{Facts, Member, Need, Paths, Target, net};
use super::super::finding::{Found, Severity, count};
use super::Check;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "linkdown-weighted",
        title: "a link without carrier keeps its share",
        source: "fib_rebalance, rt6_multipath_rebalance, ip_ignore_linkdown",
        needs: &[],
        run: linkdown_weighted,
    },
    Check {
        id: "stale-bounds",
        title: "the kernel still chooses a link that it shows as dead",
        source: "fib_rebalance runs on link events, not when ignore_routes_with_linkdown changes",
        needs: &[Need::Choices],
        run: stale_bounds,
    },
];

/// Whether a link that has no carrier gets no packets of a family.
pub(super) fn ignored(facts: &Facts, family: u8, index: u32) -> bool {
    let device = facts.device(index);
    if family == 4 {
        device.ignore_linkdown4
    } else {
        device.ignore_linkdown6
    }
}

/// Up, but without carrier.
pub(super) fn lacks_carrier(facts: &Facts, index: u32) -> bool {
    facts
        .links
        .get(&index)
        .is_some_and(|link| link.is_up() && !link.has_carrier())
}

/// A plain member that is down is dead, whatever settings say; groups have none.
pub(super) fn is_down(facts: &Facts, index: u32) -> bool {
    facts.links.get(&index).is_some_and(|link| !link.is_up())
}

/// `1 of 3, 33 %`: the weight of a member beside that of all that take part.
pub(super) fn share(facts: &Facts, paths: &Paths, member: &Member) -> String {
    let members = facts.members(paths);
    let plain = matches!(paths.target, Target::Plain(_));
    let dead = |m: &&Member| {
        let index = m.index;
        let ignored = lacks_carrier(facts, index) && ignored(facts, paths.family, index);
        plain && (is_down(facts, index) || ignored)
    };
    let part = members.iter().filter(|m| !dead(m));
    let total: u64 = part.map(|m| u64::from(m.weight)).sum();
    let percent = f64::from(member.weight) * 100.0 / (total.max(1) as f64);
    format!(
        "weight {} of {total}, {percent:.1} % of the hash space",
        member.weight
    )
}

/// For each family and each link that is up without carrier, and a member of plain multipath routes
/// while `ignore_routes_with_linkdown` is off for it: serious. (Nexthop objects go with the carrier.)
fn linkdown_weighted(facts: &Facts) -> Vec<Found> {
    let mut findings = Vec::new();
    for family in [4, 6] {
        let mut links: BTreeMap<u32, (usize, Vec<String>)> = BTreeMap::new();
        for paths in facts.multipath(family) {
            if matches!(paths.target, Target::Group(_)) {
                continue;
            }
            for member in facts.members(paths) {
                let index = member.index;
                if lacks_carrier(facts, index) && !ignored(facts, family, index) {
                    let (routes, lines) = links.entry(index).or_default();
                    *routes += paths.routes;
                    lines.push(format!("{paths}: {}", share(facts, paths, &member)));
                }
            }
        }
        for (index, (routes, lines)) in links {
            let name = facts.name(index);
            let setting = format!("{}.conf.{name}.ignore_routes_with_linkdown", net(family));
            let found = Found::new(
                Severity::Serious,
                format!(
                    "link {name} has no carrier, but keeps its share of {}",
                    count(routes, &format!("IPv{family} multipath route"))
                ),
                "flows of this share are lost, although other paths work",
            );
            // The setting alone changes nothing before the next event of the link.
            let fix = format!(
                "sysctl -w {setting}=1 && ip link set dev {name} down && ip link set dev {name} up"
            );
            let found = found.evidence([format!("{setting} = 0")]).evidence(lines);
            findings.push(found.fix(fix).advice(DOWN));
        }
    }
    findings
}

/// What `ip link set down` does besides.
const DOWN: &str = "routes with this link alone go with it, as do its IPv6 addresses unless \
                    keep_addr_on_down is set; put them back with the carrier";

/// The kernel was asked about flows over routes of which a link has no carrier and is to be
/// ignored. It must not be chosen; where it is, the bounds are those from before the setting. One
/// finding for each link.
fn stale_bounds(facts: &Facts) -> Vec<Found> {
    let mut links: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for choices in &facts.choices {
        let Some(paths) = facts.paths.get(choices.paths) else {
            continue;
        };
        for (index, chosen) in &choices.by_link {
            if lacks_carrier(facts, *index) && ignored(facts, paths.family, *index) {
                let line = format!("{paths}: {chosen} of {} flows asked about", choices.asked);
                links.entry(*index).or_default().push(line);
            }
        }
    }
    let found =
        links.into_iter().map(|(index, lines)| {
            let name = facts.name(index);
            Found::new(
            Severity::Serious,
            format!("the kernel still sends flows to {name}, which has no carrier"),
            "ignore_routes_with_linkdown was turned on after the carrier was lost: ip route shows \
             the nexthop as dead, but its share stays until the next event of the link",
        )
        .evidence(lines)
        .fix(format!("ip link set dev {name} down && ip link set dev {name} up"))
        .advice(DOWN)
        });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;
    use crate::facts::Choices;

    /// Up, without carrier.
    fn unplug(facts: &mut Facts, index: u32) {
        facts.links.get_mut(&index).unwrap().flags = 0x1;
    }

    #[test]
    fn a_link_without_carrier_must_be_ignored() {
        let mut facts = multipath();
        unplug(&mut facts, 2);
        assert_clean("linkdown-weighted", &facts);
        facts.devices.get_mut(&2).unwrap().ignore_linkdown4 = false;
        let said = [
            "eth2",
            "10.9.0.0/24: weight 1 of 2, 50.0 %",
            "sysctl -w net.ipv4.conf.eth2.ignore_routes_with_linkdown=1 && ip link set dev eth2 down",
        ];
        assert_found("linkdown-weighted", &facts, Severity::Serious, &said);
        facts.devices.get_mut(&2).unwrap().ignore_linkdown6 = false;
        assert_eq!(found("linkdown-weighted", &facts).len(), 2);
        // A link that is down is dead anyway.
        facts.links.get_mut(&2).unwrap().flags = 0;
        assert_clean("linkdown-weighted", &facts);
    }

    #[test]
    fn a_dead_link_must_not_be_chosen() {
        let mut facts = multipath();
        unplug(&mut facts, 2);
        let choices = |by_link: &[(u32, usize)]| Choices {
            paths: 0,
            asked: 64,
            by_link: by_link.iter().copied().collect(),
        };
        facts.choices = vec![choices(&[(1, 64)])];
        assert_clean("stale-bounds", &facts);
        facts.choices = vec![choices(&[(1, 30), (2, 34)])];
        assert_found(
            "stale-bounds",
            &facts,
            Severity::Serious,
            &["eth2", "34 of 64"],
        );
        // Not ignored: that it is chosen is another finding.
        facts.devices.get_mut(&2).unwrap().ignore_linkdown4 = false;
        assert_clean("stale-bounds", &facts);
    }
}
