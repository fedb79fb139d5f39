//! The checks: pure functions from facts to findings, and the list of them.
//!
//! Each is named once, in [`ALL`]; `docs/doctor.md` has the same names. Facts that could not be seen
//! are missing from [`Facts`], and a check that needs them says nothing rather than guess; the
//! answer names it with what was not seen.

mod daemon;
mod hash;
mod kernel;
mod losses;
mod members;
mod neighbours;
mod objects;
mod receive;
mod resilient;
mod routes;
mod seeds;
mod source;
mod srv6;
mod weights;
mod xdp;

use super::facts::{Facts, Need};
use super::finding::Found;
use serde::Serialize;

/// A check.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Check {
    /// Its stable name.
    pub id: &'static str,
    /// What it looks for.
    pub title: &'static str,
    /// Where this is known from: kernel functions, commits, RFCs.
    pub source: &'static str,
    /// What it has to see besides the routing state.
    #[serde(skip)]
    pub needs: &'static [Need],
    /// The function: pure.
    #[serde(skip)]
    pub run: fn(&Facts) -> Vec<Found>,
}

/// All checks, in the order in which they run.
pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    ALL.iter().flat_map(|checks| checks.iter())
}

const ALL: &[&[Check]] = &[
    hash::CHECKS,
    seeds::CHECKS,
    members::CHECKS,
    neighbours::CHECKS,
    objects::CHECKS,
    resilient::CHECKS,
    weights::CHECKS,
    routes::CHECKS,
    receive::CHECKS,
    source::CHECKS,
    srv6::CHECKS,
    kernel::CHECKS,
    xdp::CHECKS,
    daemon::CHECKS,
    losses::CHECKS,
];

/// Made-up facts for tests of checks.
#[cfg(test)]
pub(crate) mod made_up {
    use std::net::IpAddr;

    use raddle_rib::event::{
        DeviceSettings, GroupMember, Link, Neighbour, Nexthop, NexthopKind, Route, RouteNexthop,
        RouteTarget, Settings,
    };

    use super::*;
    use crate::finding::Severity;
    use crate::gather::Routes;
    use raddle_select::KernelVersion;

    /// A router with three links (`eth1`, index 1, to `eth3`) that has nothing wrong.
    pub(crate) fn healthy() -> Facts {
        let mut facts = Facts {
            kernel: Some(KernelVersion::new(6, 18, 44)),
            settings: Settings {
                local_ports: (32768, 60999),
                default_ttl: 64,
                hash_policy4: 1,
                hash_policy6: 1,
                hash_fields4: 7,
                hash_fields6: 7,
                hash_seed: 77,
                use_neigh: true,
                forward_use_pmtu: false,
                min_pmtu: 552,
                seg6_flowlabel: 0,
                tunsrc: None,
            },
            ..Facts::default()
        };
        facts.tuning.compat_mode = Some(false);
        facts.tuning.txrehash = Some(false);
        facts.tuning.plb = Some(false);
        for index in 1..=3 {
            let link = Link {
                index,
                name: format!("eth{index}"),
                flags: 0x1_0041,
                arp_type: 1,
                mtu: 1500,
                ..Link::default()
            };
            facts.links.insert(index, link);
            let device = DeviceSettings {
                forwarding4: true,
                forwarding6: true,
                ignore_linkdown4: true,
                ignore_linkdown6: true,
                ..DeviceSettings::default()
            };
            facts.devices.insert(index, device);
            for gateway in [gateway(4, index), gateway(6, index)] {
                neighbour(&mut facts, index, gateway, 0x02);
            }
        }
        facts
    }

    /// The gateway behind a link.
    pub(crate) fn gateway(family: u8, index: u32) -> IpAddr {
        let text = match family {
            4 => format!("10.0.{index}.2"),
            _ => format!("2001:db8:{index}::2"),
        };
        text.parse().unwrap()
    }

    /// Sets a neighbour's state.
    pub(crate) fn neighbour(facts: &mut Facts, index: u32, dst: IpAddr, state: u16) {
        let neighbour = Neighbour {
            index,
            dst,
            mac: Some([2, 0, 0, 0, 0, 1]),
            state,
            flags: 0,
            protocol: 0,
        };
        facts.neighbours.insert((index, dst), neighbour);
    }

    /// A route to `dst`.
    pub(crate) fn route(dst: &str, target: RouteTarget) -> Route {
        Route {
            dst: dst.parse().unwrap(),
            protocol: 4,
            target,
            ..Route::default()
        }
    }

    /// A nexthop over a link.
    pub(crate) fn hop(family: u8, index: u32, weight: u16) -> RouteNexthop {
        RouteNexthop {
            gateway: Some(gateway(family, index)),
            index,
            weight,
            ..RouteNexthop::default()
        }
    }

    /// A multipath route of its own with these links and weights.
    pub(crate) fn plain(dst: &str, hops: &[(u32, u16)]) -> Route {
        let family = if dst.contains(':') { 6 } else { 4 };
        let hops = hops
            .iter()
            .map(|(index, weight)| hop(family, *index, *weight));
        route(dst, RouteTarget::Multipath(hops.collect()))
    }

    /// A route over a group.
    pub(crate) fn grouped(dst: &str, group: u32) -> Route {
        route(dst, RouteTarget::Object(group))
    }

    /// Adds an object.
    pub(crate) fn object(facts: &mut Facts, id: u32, kind: NexthopKind) {
        let nexthop = Nexthop {
            protocol: 4,
            ..Nexthop::new(id, 2, kind)
        };
        facts.nexthops.insert(id, nexthop);
    }

    /// Adds nexthop objects 11 to 13 over the links 1 to 3, and group 100 of these weights.
    pub(crate) fn group(facts: &mut Facts, weights: &[u16]) {
        let members = members(facts, weights);
        object(facts, 100, NexthopKind::Group(members));
    }

    /// Adds nexthop objects 11 to 13 over the links 1 to 3, and gives the first as members.
    pub(crate) fn members(facts: &mut Facts, weights: &[u16]) -> Vec<GroupMember> {
        for index in 1..=3 {
            let kind = NexthopKind::Single {
                gateway: Some(gateway(4, index)),
                index,
                encap: None,
            };
            object(facts, 10 + index, kind);
        }
        let member = |(n, weight): (u32, &u16)| GroupMember {
            id: 11 + n,
            weight: *weight,
        };
        (0..).zip(weights).map(member).collect()
    }

    /// The facts with these routes.
    pub(crate) fn with(mut facts: Facts, routes: &[Route]) -> Facts {
        let mut all = Routes::new(&facts.nexthops);
        routes.iter().for_each(|route| all.add(route.clone()));
        (facts.paths, facts.rivals) = all.into_parts();
        facts
    }

    /// The healthy router with a two-path route of each kind and family.
    pub(crate) fn multipath() -> Facts {
        let mut facts = healthy();
        group(&mut facts, &[1, 1]);
        with(
            facts,
            &[
                plain("10.9.0.0/24", &[(1, 1), (2, 1)]),
                grouped("10.8.0.0/24", 100),
                plain("2001:db8:9::/64", &[(1, 1), (2, 1)]),
            ],
        )
    }

    /// What the check with this name finds.
    pub(crate) fn found(id: &str, facts: &Facts) -> Vec<Found> {
        let check = all().find(|check| check.id == id);
        let found = (check.unwrap_or_else(|| panic!("no check {id}")).run)(facts);
        for found in &found {
            assert!(
                !found.what.ends_with('.') && !found.effect.ends_with('.'),
                "{found:?}"
            );
        }
        found
    }

    /// The check finds nothing.
    pub(crate) fn assert_clean(id: &str, facts: &Facts) {
        assert_eq!(found(id, facts), [], "{id}");
    }

    /// The check finds exactly one thing, of this severity, whose texts hold all of `said`.
    pub(crate) fn assert_found(id: &str, facts: &Facts, severity: Severity, said: &[&str]) {
        let found = found(id, facts);
        assert_eq!(found.len(), 1, "{id}: {found:?}");
        assert_eq!(found[0].severity, severity, "{id}: {found:?}");
        let Found {
            what,
            evidence,
            effect,
            fix,
            advice,
            ..
        } = &found[0];
        let [fix, advice] = [fix, advice].map(|text| text.as_deref().unwrap_or_default());
        let text = format!("{what}\n{}\n{effect}\n{fix}\n{advice}", evidence.join("\n"));
        for said in said {
            assert!(text.contains(said), "{id}: '{said}' is not in: {text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::made_up::{found, healthy, multipath};
    use super::*;

    #[test]
    fn names_are_kebab_case_and_each_is_there_once() {
        let mut seen = BTreeSet::new();
        for check in all() {
            let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(check.id.chars().all(fine), "{}", check.id);
            assert!(seen.insert(check.id), "{}", check.id);
            assert!(!check.title.is_empty() && !check.source.is_empty());
        }
    }

    #[test]
    fn a_healthy_router_has_findings_of_no_consequence_at_most() {
        use crate::finding::Severity;
        for check in all() {
            assert_eq!(found(check.id, &healthy()), [], "{}", check.id);
            for found in found(check.id, &multipath()) {
                assert_eq!(found.severity, Severity::Note, "{}: {found:?}", check.id);
            }
        }
    }

    #[test]
    fn nothing_known_is_nothing_found() {
        for check in all() {
            assert_eq!(found(check.id, &Facts::default()), [], "{}", check.id);
        }
    }

    /// The names in the first column of the tables in docs/doctor.md.
    #[test]
    fn the_documentation_names_every_check() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md");
        let text = std::fs::read_to_string(path).unwrap();
        let documented: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .collect();
        let known: Vec<&str> = all().map(|check| check.id).collect();
        assert_eq!(documented, known);
    }
}
