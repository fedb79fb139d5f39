//! Routing rules that no engine follows: one of them sends all packets of its family to the kernel.

use std::collections::BTreeMap;

use raddle_image::Reason;
use raddle_rib::event::Rule;
use raddle_rib::{Arrival, RULES_BY_ADDRESS, describe_rule, lookup_apart, rule_beyond_engines};

use super::{Finding, Punted, Role, Scene, Severity};

/// Decides what to warn of, for the links forwarded from.
///
/// 1. A rule that decides by what engines do not look at: all packets of its family that come in by
///    the links that it is asked for are the kernel's. Links on which the family is not forwarded do
///    not matter.
/// 2. A rule that decides by addresses: packets with these are the kernel's.
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
        let mut arrivals = Vec::new();
        let by_index = |index| scene.links.iter().find(|link| link.index == index);
        let mut stopped: Vec<(&Rule, Vec<&String>)> = Vec::new();
        for (index, name) in &links {
            let arrival = match by_index(**index) {
                Some(link) => Arrival::of(link, by_index),
                None => Arrival::Link(name),
            };
            arrivals.push((name.as_str(), arrival));
            if let Some(rule) = rule_beyond_engines(&scene.rules, family, arrival) {
                note(&mut stopped, rule, *name);
            }
        }
        let punted = by_address(&scene.rules, family, &arrivals).into_iter();
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

/// Notes that a rule concerns a link.
fn note<'a, N>(list: &mut Vec<(&'a Rule, Vec<N>)>, rule: &'a Rule, name: N) {
    match list.iter_mut().find(|(known, _)| *known == rule) {
        Some((_, names)) => names.push(name),
        None => list.push((rule, vec![name])),
    }
}

/// The packets of a family that are punted because routing rules ask for their addresses, of those that come in by these
/// links, each with its name.
pub fn by_address(rules: &[Rule], family: u8, links: &[(&str, Arrival<'_>)]) -> Vec<Punted> {
    let mut asked: Vec<(&Rule, Vec<&str>)> = Vec::new();
    for (name, arrival) in links {
        if let Ok(apart) = lookup_apart(rules, family, *arrival) {
            for rule in apart.by_address {
                note(&mut asked, rule, *name);
            }
        }
    }
    let net = |word: &str, net: Option<ipnet::IpNet>| match net {
        Some(net) if net.prefix_len() > 0 => format!(" {word} {net}"),
        _ => String::new(),
    };
    let words = |(rule, names): (&Rule, Vec<&str>)| {
        let by = match names.len() == links.len() {
            true => String::new(),
            false => format!(" that come in by {}", names.join(", ")),
        };
        let (from, to) = (net("from", rule.from), net("to", rule.to));
        Punted {
            packets: format!("IPv{family} packets{from}{to}{by}"),
            rule: format!("routing rule {}", describe_rule(rule)),
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
        "all IPv{family} {goes} to the kernel (counted as rules), for raddle does not follow rules \
         that decide by the packet (TOS, protocol, ports), more than {RULES_BY_ADDRESS} by address, or by users"
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
            other: vec![22],
            ..rule(32765, 100)
        };
        let plain = [rule(0, 255), rule(32766, 254), rule(32767, 253)];
        assert_eq!(judged(plain.to_vec()), [""; 0]);
        let found = judged([&plain[..], &[from]].concat());
        assert_eq!(
            found,
            [
                "IPv4 routing rule 32765: from all ipproto ... lookup 100: all IPv4 goes to the \
                 kernel (counted as rules), for raddle does not follow rules that decide by the \
                 packet (TOS, protocol, ports), more than 8 by address, or by users; to fix it: if it is for \
                 packets from some links only, name them in it: ip -4 rule add iif DEV ..., and \
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
    fn packets_that_rules_ask_for_are_named() {
        let from = Rule {
            from: Some("10.50.1.0/24".parse().unwrap()),
            ..rule(32765, 100)
        };
        let found = by_address(
            &[from.clone(), rule(32766, 254)],
            4,
            &[("a", Arrival::Link("a"))],
        );
        let words: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected = "IPv4 packets from 10.50.1.0/24: routing rule 32765: from 10.50.1.0/24 lookup 100 (counted as \
                        rules)";
        assert_eq!(words, [expected]);
        let of_a = Rule {
            iif: Some("a".into()),
            ..from
        };
        let links = ["a", "b"].map(|name| (name, Arrival::Link(name)));
        let found = by_address(&[of_a], 4, &links);
        assert_eq!(
            found[0].packets,
            "IPv4 packets from 10.50.1.0/24 that come in by a"
        );
    }

    #[test]
    fn a_rule_for_one_link_is_about_that_link() {
        let to = Rule {
            iif: Some("b".into()),
            other: vec![22],
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
        let start = "link b: IPv4 routing rule 9: from all iif b ipproto ... lookup main: all \
                     IPv4 from it goes to the kernel";
        assert!(found[0].starts_with(start), "{found:?}");
        assert!(!found[0].contains("to fix it"), "{found:?}");
    }
}
