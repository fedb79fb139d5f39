//! Routing rules that no engine follows: one of them sends all packets of its family to the kernel, or those that it asks for.

use std::collections::BTreeMap;

use raddle_image::Reason;
use raddle_rib::event::Rule;
use raddle_rib::{Arrival, PuntedByRule, RULES_BY_PACKET, describe_rule, rule_beyond_engines};

use super::{Finding, Punted, Role, Scene, Severity};

/// Decides what to warn of, for the links forwarded from.
///
/// 1. A rule that decides by what engines do not look at: all packets of its family that come in by
///    the links that it is asked for are the kernel's. Links on which the family is not forwarded do
///    not matter.
/// 2. What rules ask for by what packets show, where engines do not follow that: such packets are the kernel's.
/// 3. Out-links that `rp_filter` judges apart: IPv4 to them is the kernel's.
/// 4. One finding where that holds for all links, one for each link otherwise.
pub(super) fn judge(scene: &Scene, ins: &BTreeMap<u32, String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = |index: u32| {
        let mut links = scene.links.iter();
        links
            .find(|link| link.index == index)
            .map(|link| link.name.as_str())
    };
    let apart = ins
        .iter()
        .filter(|(index, _)| scene.governing(**index).forwarding4);
    let apart = apart.filter_map(|(index, link)| {
        let outs = scene.filtered_apart.get(index)?.iter();
        by_way_out(link, outs.filter_map(|out| name(*out)))
    });
    findings.extend(apart.map(|it| Finding::new(Severity::Punted, &it.packets, it.why())));
    for family in [4, 6] {
        let forwards = |index: &u32| {
            let device = scene.governing(*index);
            match family {
                4 => device.forwarding4,
                _ => device.forwarding6,
            }
        };
        let links: Vec<(&u32, &String)> = ins.iter().filter(|(index, _)| forwards(index)).collect();
        let mut punted = Vec::new();
        let by_index = |index| scene.links.iter().find(|link| link.index == index);
        let mut stopped: Vec<(&Rule, Vec<&String>)> = Vec::new();
        for (index, name) in &links {
            let arrival = match by_index(**index) {
                Some(link) => Arrival::of(link, by_index),
                None => Arrival::Link(name, &[]),
            };
            let of_link = scene.punted_by_rules.get(&(**index, family));
            punted.push((name.as_str(), of_link.cloned().unwrap_or_default()));
            if let Some(rule) = rule_beyond_engines(&scene.rules, family, arrival) {
                note(&mut stopped, rule, *name);
            }
        }
        let punted = by_packet(family, punted).into_iter();
        findings.extend(punted.map(|it| Finding::new(Severity::Punted, &it.packets, it.why())));
        for (rule, names) in stopped {
            if names.len() == links.len() {
                findings.push(finding(rule, "goes"));
                continue;
            }
            for name in names {
                findings.push(finding(rule, "from it goes").on(name, Role::In));
            }
        }
    }
    findings
}

/// Notes that something concerns a link.
fn note<T: PartialEq, N>(list: &mut Vec<(T, Vec<N>)>, what: T, name: N) {
    match list.iter_mut().find(|(known, _)| *known == what) {
        Some((_, names)) => names.push(name),
        None => list.push((what, vec![name])),
    }
}

/// The packets of a family that are punted because routing rules ask for what they show, of those that come in by these
/// links, by name.
pub fn by_packet(family: u8, links: Vec<(&str, Vec<PuntedByRule>)>) -> Vec<Punted> {
    let count = links.len();
    let mut asked: Vec<(PuntedByRule, Vec<&str>)> = Vec::new();
    for (name, of_rules) in links {
        for of_rule in of_rules {
            note(&mut asked, of_rule, name);
        }
    }
    let words = |(of_rule, names): (PuntedByRule, Vec<&str>)| {
        let PuntedByRule { asked, rule, back } = of_rule;
        let by = match names.len() == count {
            true => String::new(),
            false => format!(" that come in by {}", names.join(", ")),
        };
        let of = if back {
            "rp_filter, which asks for the way back: "
        } else {
            ""
        };
        Punted {
            packets: format!("IPv{family} packets{asked}{by}"),
            rule: format!("{of}routing rule {}", describe_rule(&rule)),
            reason: Reason::Rules.name().to_owned(),
        }
    };
    asked.into_iter().map(words).collect()
}

/// The IPv4 packets of a link that are punted because `rp_filter` judges them by the way out, where there are such out-links
/// besides the link itself: what goes back is the kernel's anyway.
pub fn by_way_out<'a>(link: &str, outs: impl Iterator<Item = &'a str>) -> Option<Punted> {
    let outs: Vec<&str> = outs.filter(|out| *out != link).collect();
    (!outs.is_empty()).then(|| Punted {
        packets: format!("IPv4 packets from {link} to {}", outs.join(", ")),
        rule: format!(
            "rp_filter of {link}: routing rules for packets from there decide where the way back is looked for"
        ),
        reason: Reason::RpFilter.name().to_owned(),
    })
}

fn finding(rule: &Rule, goes: &str) -> Finding {
    let family = rule.family;
    let what = format!("IPv{family} routing rule {}", describe_rule(rule));
    let why = format!(
        "all IPv{family} {goes} to the kernel (counted as rules), for raddle does not follow rules for a link's alternative name, with \
         attributes that it does not know, with users, or more than {RULES_BY_PACKET} that ask for what packets show"
    );
    let finding = Finding::new(Severity::Warning, what, why);
    if rule.iif.is_some() {
        return finding;
    }
    finding.fix(format!(
        "if it is for packets from some links only, name them in it: ip -{family} rule add iif DEV ..., and then \
         delete this one (ip -{family} rule del pref {})",
        rule.priority
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_rib::Asked;
    use raddle_rib::event::{DeviceSettings, Link};

    fn rule(priority: u32, table: u32) -> Rule {
        Rule {
            family: 4,
            priority,
            table,
            action: 1,
            ..Rule::default()
        }
    }

    fn judged(rules: Vec<Rule>) -> Vec<String> {
        let both = DeviceSettings {
            forwarding4: true,
            forwarding6: true,
            ..DeviceSettings::default()
        };
        let only6 = DeviceSettings {
            forwarding4: false,
            ..both
        };
        let scene = Scene {
            devices: [(2, both), (3, both), (4, only6)].into(),
            rules,
            ..Scene::default()
        };
        let ins = [(2, "a"), (3, "b"), (4, "c")].map(|(i, n)| (i, n.to_owned()));
        let findings = judge(&scene, &ins.into());
        assert!(findings.iter().all(|f| f.severity == Severity::Warning));
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_rule_and_its_effect_are_named() {
        let from = Rule {
            other: vec![13],
            ..rule(32765, 100)
        };
        let plain = [rule(0, 255), rule(32766, 254), rule(32767, 253)];
        assert_eq!(judged(plain.to_vec()), [""; 0]);
        let found = judged([&plain[..], &[from]].concat());
        assert_eq!(
            found,
            [
                "IPv4 routing rule 32765: from all suppress_ifgroup ... lookup 100: all IPv4 goes to the \
                 kernel (counted as rules), for raddle does not follow rules for a link's alternative name, with attributes that it does not know, with \
                 users, or more than 8 that ask for what packets show; to fix it: if it is for packets from some links only, name them in it: ip -4 rule add iif DEV ..., and \
                 then delete this one (ip -4 rule del pref 32765)"
            ]
        );
    }

    #[test]
    fn out_links_that_are_judged_apart_are_named() {
        let apart = [(2, [2, 3].into())];
        let links = [(2, "a"), (3, "b")].map(|(index, name)| Link::ethernet(index, name, [2; 6]));
        let forwards = DeviceSettings {
            forwarding4: true,
            ..DeviceSettings::default()
        };
        let scene = Scene {
            devices: [(2, forwards)].into(),
            links: links.into(),
            filtered_apart: apart.into(),
            ..Scene::default()
        };
        let found = judge(&scene, &[(2, "a".to_owned())].into());
        assert_eq!(found.len(), 1);
        let said = found[0].to_string();
        assert!(
            said.starts_with("IPv4 packets from a to b: rp_filter of a: "),
            "{said}"
        );
        assert!(said.ends_with("(counted as rp-filter)"), "{said}");
        assert!(by_way_out("a", ["a"].into_iter()).is_none());
    }

    #[test]
    fn packets_that_rules_leave_to_the_kernel_are_named() {
        let from = Rule {
            from: Some("10.50.1.0/24".parse().unwrap()),
            ip_proto: Some(6),
            dport: Some((80, 80)),
            other: vec![13],
            ..rule(32765, 100)
        };
        let of_rule = |asked, back| PuntedByRule {
            asked,
            rule: from.clone(),
            back,
        };
        let asked = Asked::of(&from);
        let found = by_packet(4, vec![("a", vec![of_rule(asked, false)])]);
        let words: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected = "IPv4 packets from 10.50.1.0/24 ipproto tcp dport 80: routing rule 32765: from 10.50.1.0/24 ipproto tcp \
                        dport 80 suppress_ifgroup ... lookup 100 (counted as rules)";
        assert_eq!(words, [expected]);
        let back = of_rule(asked.swapped(), true);
        let found = by_packet(4, vec![("a", vec![back]), ("b", Vec::new())]);
        let expected = "IPv4 packets to 10.50.1.0/24 ipproto tcp sport 80 that come in by a: rp_filter, which asks for the \
                        way back: routing rule 32765: ";
        assert!(found[0].to_string().starts_with(expected), "{}", found[0]);
    }

    #[test]
    fn a_rule_for_one_link_is_about_that_link() {
        let to = Rule {
            iif: Some("b".into()),
            other: vec![13],
            ..rule(9, 254)
        };
        // A mark, or a VRF's rule, is nothing to warn of.
        let marked = Rule {
            fwmark: Some((1, 0xff)),
            ..rule(8, 77)
        };
        let vrf = Rule {
            other: vec![19],
            ..rule(1000, 0)
        };
        let found = judged(vec![rule(0, 255), marked, to, vrf]);
        assert_eq!(found.len(), 1);
        let start = "link b: IPv4 routing rule 9: from all iif b suppress_ifgroup ... lookup main: all \
                     IPv4 from it goes to the kernel";
        assert!(found[0].starts_with(start), "{found:?}");
        assert!(!found[0].contains("to fix it"), "{found:?}");
    }
}
