//! Which links the engine uses, and for what.

use std::collections::BTreeMap;

use raddle_rib::event::Link;
use raddle_rib::{Ports, Rib};

use crate::Error;
use crate::config::Config;
use raddle_preflight::{Finding, Report, Role, Severity};

/// Of a link that was named, and has gone.
const GONE: &str = "there is no such link now";

/// What the engine shall use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Links to attach to, by index.
    pub attach: BTreeMap<u32, String>,
    /// Links to send through, by index.
    pub out: BTreeMap<u32, String>,
    /// Links that are left to the kernel, and why.
    pub left: BTreeMap<String, String>,
}

impl Plan {
    /// As the mirror wants it.
    pub(super) fn ports(&self) -> Ports {
        Ports {
            enabled: self.attach.keys().copied().collect(),
            out: self.out.keys().copied().collect(),
        }
    }
}

/// Whether packets can pass a link, in the words of `ip(8)`: nothing does while it is `down` or has
/// `no carrier`.
pub(super) fn state(link: &Link) -> &'static str {
    match (link.is_up(), link.has_carrier()) {
        (false, _) => "down",
        (true, false) => "no carrier",
        (true, true) => "up",
    }
}

/// What `raddle run --check` says of each link of the plan.
pub(super) fn would(plan: &Plan, rib: &Rib) -> Vec<String> {
    let mut links: Vec<&Link> = rib.links().collect();
    links.sort_by_key(|link| link.index);
    links
        .into_iter()
        .map(|link| {
            let Link { name, index, .. } = link;
            let state = match state(link) {
                "up" => String::new(),
                state => format!(" ({state})"),
            };
            let why = plan.left.get(name).map_or("", String::as_str);
            match (
                plan.attach.contains_key(index),
                plan.out.contains_key(index),
            ) {
                (true, true) => format!("link {name}{state}: would be attached"),
                (true, false) => {
                    format!("link {name}{state}: would be attached, but not sent through: {why}")
                }
                (false, true) => format!("link {name}{state}: would be sent through only: {why}"),
                (false, false) => format!("link {name}{state}: left to the kernel: {why}"),
            }
        })
        .collect()
}

/// Decides about every link.
///
/// 1. A link that the preflight rejects in a role is left to the kernel in that role.
/// 2. Of the rest, packets are forwarded from those that the user named; when none are named, from
///    all on which forwarding is on.
/// 3. Packets are sent through all of the rest.
///
/// # Errors
/// A link that was named and does not exist or cannot be used.
pub(super) fn plan(rib: &Rib, config: &Config, report: &Report) -> Result<Plan, Error> {
    for name in config.links.iter().chain(&config.allow_qdisc) {
        if rib.link_named(name).is_none() {
            return Err(Error::NoSuchLink(name.clone()));
        }
    }
    let (not_in, not_out) = (report.rejected(Role::In), report.rejected(Role::Out));
    let mut plan = Plan::default();
    for link in rib.links() {
        let named = config.links.contains(&link.name);
        let device = rib.input_settings(link);
        let forwards = device.forwarding4 || device.forwarding6;
        if let Some(why) = not_in.get(&link.name) {
            if named {
                let (name, why) = (link.name.clone(), why.clone());
                return Err(Error::LinkRejected { name, why });
            }
            plan.left.insert(link.name.clone(), why.clone());
        } else if named || (config.links.is_empty() && forwards) {
            plan.attach.insert(link.index, link.name.clone());
        } else {
            let why = if config.links.is_empty() {
                "forwarding is off"
            } else {
                "not named"
            };
            plan.left.insert(
                link.name.clone(),
                format!("{why}: packets from it are the kernel's"),
            );
        }
        match not_out.get(&link.name) {
            Some(why) => {
                plan.left
                    .entry(link.name.clone())
                    .or_insert_with(|| why.clone());
            }
            None => {
                plan.out.insert(link.index, link.name.clone());
            }
        }
    }
    Ok(plan)
}

/// As [`plan`] for a daemon that runs: links that were named and have gone, or cannot be used now,
/// are left alone and the others go on.
pub(super) fn plan_of_present(rib: &Rib, config: &Config, report: &Report) -> Plan {
    let not_in = report.rejected(Role::In);
    let is_there = |name: &&String| rib.link_named(name).is_some();
    let names =
        |names: &[String]| -> Vec<String> { names.iter().filter(is_there).cloned().collect() };
    let present = Config {
        links: names(&config.links)
            .into_iter()
            .filter(|name| !not_in.contains_key(name))
            .collect(),
        allow_qdisc: names(&config.allow_qdisc),
        ..config.clone()
    };
    let mut plan = match present.links.is_empty() && !config.links.is_empty() {
        // No link at all is something else than all links.
        true => Plan::default(),
        false => plan(rib, &present, report).unwrap_or_default(),
    };
    for name in &config.links {
        let why = match not_in.get(name) {
            Some(why) => why.clone(),
            None if rib.link_named(name).is_none() => GONE.to_owned(),
            None => continue,
        };
        plan.left.insert(name.clone(), why);
    }
    plan
}

/// Links that were to be forwarded from and are not there now: the daemon goes on without them, and whoever relies on
/// them is to know.
///
/// 1. Each that the configuration names.
/// 2. Where it names none: all, if nothing is left to forward from.
pub(super) fn missing(rib: &Rib, config: &Config, plan: &Plan) -> Vec<Finding> {
    let finding = |link: Option<&String>, what: &str, why: &str| Finding {
        severity: Severity::Warning,
        link: link.cloned(),
        role: Role::In,
        what: what.to_owned(),
        why: why.to_owned(),
        fix: None,
        fixed: false,
    };
    let gone = config.links.iter();
    let gone = gone.filter(|name| rib.link_named(name).is_none());
    let mut findings: Vec<Finding> = gone
        .map(|name| {
            finding(
                Some(name),
                GONE,
                "nothing is forwarded from it until a link has that name again",
            )
        })
        .collect();
    if config.links.is_empty() && plan.attach.is_empty() {
        findings.push(finding(
            None,
            "no link is left to forward from",
            "the kernel forwards everything until there is one",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_rib::event::{DeviceSettings, Event, Link};

    fn rib() -> Rib {
        let mut rib = Rib::detached();
        for (index, name) in [(2, "a"), (3, "b"), (4, "c")] {
            rib.apply(Event::Link(Link {
                index,
                name: name.into(),
                ..Link::default()
            }));
            let forwarding4 = name != "c";
            rib.apply(Event::Device(
                index,
                DeviceSettings {
                    forwarding4,
                    ..DeviceSettings::default()
                },
            ));
        }
        rib
    }

    fn rejecting(name: &str, role: Role) -> Report {
        Report {
            findings: vec![Finding {
                severity: Severity::LinkRejected,
                link: Some(name.to_owned()),
                role,
                what: "odd".into(),
                why: "not for XDP".into(),
                fix: None,
                fixed: false,
            }],
        }
    }

    #[test]
    fn links_that_go_are_warned_of() {
        let mut rib = rib();
        let said = |rib: &Rib, names: &[&str], attach: &[u32]| -> Vec<String> {
            let config = Config {
                links: names.iter().map(|name| (*name).to_owned()).collect(),
                ..Config::default()
            };
            let plan = Plan {
                attach: attach.iter().map(|index| (*index, String::new())).collect(),
                ..Plan::default()
            };
            let findings = missing(rib, &config, &plan);
            findings.iter().map(Finding::to_string).collect()
        };
        assert_eq!(said(&rib, &["a", "b"], &[2, 3]), [""; 0]);
        assert_eq!(said(&rib, &[], &[2]), [""; 0]);
        rib.apply(Event::LinkGone(3));
        let gone = "link b: there is no such link now: nothing is forwarded from it until a link has that name again";
        assert_eq!(said(&rib, &["a", "b"], &[2]), [gone]);
        assert_eq!(
            said(&rib, &[], &[]),
            ["no link is left to forward from: the kernel forwards everything until there is one"]
        );
    }

    #[test]
    fn each_link_is_told_once_with_its_state() {
        let mut rib = rib();
        let (up, carrier) = (1, 0x1_0040);
        for (index, name, flags) in [(2, "a", up | carrier), (3, "b", up), (4, "c", carrier)] {
            rib.apply(Event::Link(Link {
                index,
                name: name.into(),
                flags,
                ..Link::default()
            }));
        }
        let plan = plan(&rib, &Config::default(), &rejecting("b", Role::Out)).unwrap();
        assert_eq!(
            would(&plan, &rib),
            [
                "link a: would be attached",
                "link b (no carrier): would be attached, but not sent through: odd: not for XDP",
                "link c (down): would be sent through only: forwarding is off: packets from it \
                 are the kernel's",
            ]
        );
    }

    #[test]
    fn all_links_that_forward_are_used_unless_some_are_named() {
        let none = Report::default();
        let all = plan(&rib(), &Config::default(), &none).unwrap();
        assert_eq!(all.attach.keys().copied().collect::<Vec<_>>(), [2, 3]);
        assert_eq!(all.out.len(), 3);
        assert!(all.left["c"].contains("forwarding is off"));
        let one = Config {
            links: vec!["b".into()],
            ..Config::default()
        };
        let one = plan(&rib(), &one, &none).unwrap();
        assert_eq!(one.attach.keys().copied().collect::<Vec<_>>(), [3]);
        assert_eq!(one.out.len(), 3);
        let gone = Config {
            links: vec!["nope".into()],
            ..Config::default()
        };
        assert!(
            matches!(plan(&rib(), &gone, &none), Err(Error::NoSuchLink(name)) if name == "nope")
        );
    }

    #[test]
    fn a_rejected_link_is_not_used_in_that_role() {
        let in_only = plan(&rib(), &Config::default(), &rejecting("b", Role::In)).unwrap();
        assert!(!in_only.attach.contains_key(&3) && in_only.out.contains_key(&3));
        let out_only = plan(&rib(), &Config::default(), &rejecting("b", Role::Out)).unwrap();
        assert!(out_only.attach.contains_key(&3) && !out_only.out.contains_key(&3));
        assert!(out_only.left["b"].contains("not for XDP"));
        let named = Config {
            links: vec!["b".into()],
            ..Config::default()
        };
        let error = plan(&rib(), &named, &rejecting("b", Role::Both))
            .unwrap_err()
            .to_string();
        assert!(error.contains("link b cannot be used"));
    }

    #[test]
    fn named_links_come_and_go_while_it_runs() {
        let named = |names: &[&str]| Config {
            links: names.iter().map(|name| (*name).to_owned()).collect(),
            allow_qdisc: vec!["nope".into()],
            ..Config::default()
        };
        let attached = |config, report| {
            let plan = plan_of_present(&rib(), &config, report);
            (plan.attach.values().cloned().collect::<Vec<_>>(), plan.left)
        };
        let (none, rejects) = (Report::default(), rejecting("b", Role::In));
        let (links, left) = attached(named(&["a", "nope"]), &none);
        assert_eq!(links, ["a"]);
        assert!(left["nope"].contains("no such link"));
        let (links, left) = attached(named(&["a", "b"]), &rejects);
        assert_eq!(links, ["a"]);
        assert!(left["b"].contains("not for XDP"));
        let (links, left) = attached(named(&["nope"]), &none);
        assert_eq!(links, [""; 0], "not all of them");
        assert!(left["nope"].contains("no such link"));
        let (links, _) = attached(named(&[]), &none);
        assert_eq!(links, ["a", "b"]);
    }
}
