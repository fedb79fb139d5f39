//! Routing rules that no engine follows: one of them sends all packets of its family to the kernel.

use std::collections::BTreeMap;

use raddle_rib::event::Rule;
use raddle_rib::{describe_rule, rule_beyond_engines};

use super::{Finding, Role, Scene, Severity};

/// Decides what to warn of, for the links forwarded from.
///
/// 1. A rule that decides by what engines do not look at: all packets of its family that come in by
///    the links that it is asked for are the kernel's. Links on which the family is not forwarded do
///    not matter.
/// 2. One finding where that holds for all links, one for each link otherwise.
pub(super) fn judge(scene: &Scene, ins: &BTreeMap<u32, String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for family in [4, 6] {
        let forwards = |index: &u32| {
            let device = scene.device(*index);
            match family {
                4 => device.forwarding4,
                _ => device.forwarding6,
            }
        };
        let links: Vec<&String> = ins
            .iter()
            .filter_map(|(index, name)| forwards(index).then_some(name))
            .collect();
        let mut stopped: Vec<(&Rule, Vec<&String>)> = Vec::new();
        for name in &links {
            let Some(rule) = rule_beyond_engines(&scene.rules, family, name) else {
                continue;
            };
            match stopped.iter_mut().find(|(known, _)| *known == rule) {
                Some((_, names)) => names.push(name),
                None => stopped.push((rule, vec![name])),
            }
        }
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

fn finding(rule: &Rule, goes: &str) -> Finding {
    let family = rule.family;
    let what = format!("IPv{family} routing rule {}", describe_rule(rule));
    let why = format!(
        "all IPv{family} {goes} to the kernel (counted as rules), for raddle follows only rules \
         that name a table, for all packets or those from one link"
    );
    let fix = format!(
        "choose by input link instead (ip -{family} rule add iif DEV lookup TABLE) and delete it \
         (ip -{family} rule del pref {})",
        rule.priority
    );
    Finding::new(Severity::Warning, what, why).fix(fix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_rib::event::DeviceSettings;

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
            from: Some("10.50.1.0/24".parse().unwrap()),
            ..rule(32765, 100)
        };
        let plain = [rule(0, 255), rule(32766, 254), rule(32767, 253)];
        assert_eq!(judged(plain.to_vec()), [""; 0]);
        let found = judged([&plain[..], &[from]].concat());
        assert_eq!(
            found,
            [
                "IPv4 routing rule 32765: from 10.50.1.0/24 lookup 100: all IPv4 goes to the \
                 kernel (counted as rules), for raddle follows only rules that name a table, for \
                 all packets or those from one link; to fix it: choose by input link instead (ip \
                 -4 rule add iif DEV lookup TABLE) and delete it (ip -4 rule del pref 32765)"
            ]
        );
    }

    #[test]
    fn a_rule_for_one_link_is_about_that_link() {
        let marked = Rule {
            iif: Some("b".into()),
            fwmark: Some((1, 0xff)),
            ..rule(9, 254)
        };
        let found = judged(vec![rule(0, 255), marked]);
        assert_eq!(found.len(), 1);
        let start = "link b: IPv4 routing rule 9: from all fwmark 0x1/0xff iif b lookup main: all \
                     IPv4 from it goes to the kernel";
        assert!(found[0].starts_with(start), "{found:?}");
    }
}
