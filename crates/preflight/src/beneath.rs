//! What is beneath a link, and what is found there: packets of a link pass that, too.

use std::collections::{BTreeMap, BTreeSet};

use raddle_rib::below;
use raddle_rib::event::Link;

use super::{Finding, Scene, Severity};

/// By link, what packets that come in or leave by it pass besides.
pub type Beneath = BTreeMap<u32, Passed>;

/// What packets of a link pass besides it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// These links, by index with their names.
    pub links: BTreeMap<u32, String>,
    /// They have tags there: the link is a VLAN.
    pub tagged: bool,
}

/// What is beneath each of these links:
///
/// 1. Beneath a bond its members.
/// 2. Beneath a VLAN the VLANs that it is upon, the link below all of them, and if that is a bond, its members.
/// 3. Nothing beneath others, nor beneath VLANs that engines do not know ([`below`]).
pub fn beneath<'a>(links: impl Iterator<Item = &'a Link>) -> Beneath {
    let links: BTreeMap<u32, &Link> = links.map(|link| (link.index, link)).collect();
    let mut beneath = Beneath::new();
    for link in links.values() {
        if let Some(bond) = bond_of(link, |index| links.get(&index).copied()) {
            let passed = beneath.entry(bond.index).or_default();
            passed.links.insert(link.index, link.name.clone());
        }
    }
    let by_index = |index| links.get(&index).copied();
    for link in links.values().filter(|link| link.is_vlan()) {
        let lowers = lowers(link, by_index);
        let mut passed: BTreeMap<u32, String> = BTreeMap::new();
        for lower in &lowers {
            passed.insert(lower.index, lower.name.clone());
            if let Some(of_bond) = beneath.get(&lower.index).filter(|_| !lower.is_vlan()) {
                passed.extend(of_bond.links.clone());
            }
        }
        if !passed.is_empty() {
            let tagged = true;
            let links = passed;
            beneath.insert(link.index, Passed { links, tagged });
        }
    }
    beneath
}

/// Links, and what is beneath them: where packets meet what is on a device.
pub fn with_beneath(links: &BTreeMap<u32, String>, beneath: &Beneath) -> BTreeMap<u32, String> {
    let passed = links.keys().filter_map(|index| beneath.get(index));
    let own = links.iter().chain(passed.flat_map(|of| &of.links));
    own.map(|(index, name)| (*index, name.clone())).collect()
}

/// Beneath a VLAN the links that it is upon, the lowest first; none of other links, and where engines do not know the VLAN.
pub(crate) fn lowers<'a>(
    link: &'a Link,
    by_index: impl Fn(u32) -> Option<&'a Link> + Copy,
) -> Vec<&'a Link> {
    let Some(below) = below(link, by_index) else {
        return Vec::new();
    };
    let between = below.through.iter().map(|(index, _)| *index);
    let all = std::iter::once(below.lower).chain(between);
    all.filter(|index| *index != link.index)
        .filter_map(by_index)
        .collect()
}

/// The bond that a link is a member of.
fn bond_of<'a>(link: &Link, by_index: impl Fn(u32) -> Option<&'a Link>) -> Option<&'a Link> {
    by_index(link.master?).filter(|master| master.bond.is_some())
}

/// Findings, and what those about a member of a bond mean for it: it is not used in that role either.
pub(crate) fn of_bonds_too(findings: Vec<Finding>, scene: &Scene) -> Vec<Finding> {
    let links = by_index(scene);
    let bond = |link: &Link| bond_of(link, |index| links.get(&index).copied());
    let above = |link: &'_ Link| bond(link).into_iter().collect();
    and_above(findings, scene, "member", &above)
}

/// Findings, and what those about a link mean for the VLANs upon it: they are not used in that role either.
pub(crate) fn of_vlans_too(findings: Vec<Finding>, scene: &Scene) -> Vec<Finding> {
    let links = by_index(scene);
    let find = |index: u32| links.get(&index).copied();
    let mut above: BTreeMap<u32, Vec<&Link>> = BTreeMap::new();
    for vlan in scene.links.iter().filter(|link| link.is_vlan()) {
        for lower in lowers(vlan, find) {
            above.entry(lower.index).or_default().push(vlan);
        }
    }
    let above = |link: &Link| above.get(&link.index).cloned().unwrap_or_default();
    and_above(findings, scene, "lower link", &above)
}

fn by_index(scene: &Scene) -> BTreeMap<u32, &Link> {
    scene.links.iter().map(|link| (link.index, link)).collect()
}

/// Findings, and such about the links `above` those that are rejected, once for each.
fn and_above<'a>(
    mut findings: Vec<Finding>,
    scene: &'a Scene,
    what: &str,
    above: &dyn Fn(&'a Link) -> Vec<&'a Link>,
) -> Vec<Finding> {
    let named: BTreeMap<&str, &Link> = scene.links.iter().map(|l| (l.name.as_str(), l)).collect();
    let mut told = BTreeSet::new();
    let mut more = Vec::new();
    for finding in &findings {
        let link = finding.link.as_deref().and_then(|name| named.get(name));
        let Some(link) = link.filter(|_| finding.severity == Severity::LinkRejected) else {
            continue;
        };
        for upper in above(link) {
            let what = format!("its {what} {}: {}", link.name, finding.what);
            if told.insert((upper.index, finding.role, what.clone())) {
                more.push(Finding {
                    what,
                    link: Some(upper.name.clone()),
                    ..finding.clone()
                });
            }
        }
    }
    findings.append(&mut more);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;
    use raddle_rib::event::{Bond, Vlan};

    fn vlan(index: u32, name: &str, id: u16, lower: u32) -> Link {
        Link {
            kind: Some("vlan".into()),
            vlan: Some(Vlan {
                protocol: 0x8100,
                id,
                egress_qos: false,
            }),
            lower: Some(lower),
            ..Link::ethernet(index, name, [2; 6])
        }
    }

    fn scene() -> Scene {
        let bond = Link {
            kind: Some("bond".into()),
            bond: Some(Bond::default()),
            ..Link::ethernet(3, "b0", [2; 6])
        };
        let member = Link {
            master: Some(3),
            ..Link::ethernet(4, "e1", [2; 6])
        };
        Scene {
            links: vec![
                Link::ethernet(2, "e0", [2; 6]),
                bond,
                member,
                vlan(5, "e0.5", 5, 2),
                vlan(6, "e0.5.6", 6, 5),
                vlan(7, "b0.7", 7, 3),
            ],
            ..Scene::default()
        }
    }

    #[test]
    fn packets_pass_what_is_beneath() {
        let scene = scene();
        let found = beneath(scene.links.iter());
        let of = |index: u32| -> Vec<&str> {
            let passed = found.get(&index).into_iter();
            let links = passed.flat_map(|passed| passed.links.values());
            links.map(String::as_str).collect()
        };
        assert_eq!(of(2), [""; 0]);
        assert_eq!(of(3), ["e1"]);
        assert_eq!(of(5), ["e0"]);
        assert_eq!(of(6), ["e0", "e0.5"]);
        assert_eq!(of(7), ["b0", "e1"]);
        assert!(found[&7].tagged && !found[&3].tagged);
        let all = with_beneath(&[(6, "e0.5.6".to_owned())].into(), &found);
        assert_eq!(all.keys().copied().collect::<Vec<_>>(), [2, 5, 6]);
    }

    #[test]
    fn what_is_found_beneath_concerns_the_link() {
        let scene = scene();
        let told = |link: &str, severity| -> Vec<String> {
            let finding = Finding::new(severity, "tbf", "").on(link, Role::Out);
            let findings = of_vlans_too(of_bonds_too(vec![finding], &scene), &scene);
            assert!(findings.iter().all(|finding| finding.role == Role::Out));
            let told = findings.into_iter().skip(1);
            told.map(|f| format!("{}: {}", f.link.unwrap_or_default(), f.what))
                .collect()
        };
        let rejected = Severity::LinkRejected;
        assert_eq!(told("e0", Severity::Warning), [""; 0]);
        assert_eq!(
            told("e0", rejected),
            [
                "e0.5: its lower link e0: tbf",
                "e0.5.6: its lower link e0: tbf"
            ]
        );
        assert_eq!(told("e0.5", rejected), ["e0.5.6: its lower link e0.5: tbf"]);
        assert_eq!(
            told("e1", rejected),
            [
                "b0: its member e1: tbf",
                "b0.7: its lower link b0: its member e1: tbf"
            ]
        );
    }
}
