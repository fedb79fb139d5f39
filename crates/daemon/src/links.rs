//! Which links the engine uses, and for what.

use std::collections::BTreeMap;

use raddle_rib::event::Link;
use raddle_rib::{Ports, Rib, below};

use crate::Error;
use crate::config::Config;
use raddle_preflight::{Finding, Report, Role, Severity};

/// Of a link that was named, and has gone.
const GONE: &str = "there is no such link now";

/// What the engine shall use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Links to forward from, by index; VLANs among them.
    pub attach: BTreeMap<u32, String>,
    /// Links to attach the program to, by index: those that are forwarded from, and in place of a VLAN the link below it, whether
    /// that is forwarded from itself or not.
    pub programs: BTreeMap<u32, String>,
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

    /// Decides where programs go, for what is forwarded from.
    ///
    /// 1. To each link that is no VLAN.
    /// 2. For a VLAN to the link below it. Where that is not forwarded from itself, it is said why it has a program.
    fn place_programs(&mut self, rib: &Rib) {
        let mut only_for: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (index, name) in &self.attach {
            let carrier = carrier(rib, *index);
            let carrier_name = match carrier == *index {
                true => Some(name),
                false => rib.link(carrier).map(|link| &link.name),
            };
            let Some(carrier_name) = carrier_name else {
                continue;
            };
            self.programs.insert(carrier, carrier_name.clone());
            if !self.attach.contains_key(&carrier) {
                only_for.entry(carrier_name).or_default().push(name);
            }
        }
        for (name, vlans) in only_for {
            let program = format!("the program on it forwards from {}", vlans.join(", "));
            let why = self.left.entry(name.to_owned()).or_default();
            *why = match why.is_empty() {
                true => program,
                false => format!("{why}; {program}"),
            };
        }
    }

    /// Whether packets are forwarded from VLANs upon a link.
    pub(super) fn has_vlans_upon(&self, rib: &Rib, index: u32) -> bool {
        let mut all = self.attach.keys();
        all.any(|of| *of != index && carrier(rib, *of) == index)
    }

    /// Leaves a link that the program cannot be on to the kernel, and the VLANs upon it, which are forwarded from by it.
    pub(super) fn without_program(&mut self, rib: &Rib, index: u32, why: &str) {
        let Some(name) = self.programs.remove(&index) else {
            return;
        };
        let left = &mut self.left;
        self.attach.retain(|of, of_name| {
            if carrier(rib, *of) != index {
                return true;
            }
            let why = match *of == index {
                true => why.to_owned(),
                false => below_it(&name, why),
            };
            left.insert(of_name.clone(), why);
            false
        });
        left.insert(name, why.to_owned());
    }

    /// Leaves VLANs to the kernel that would leave by a link which is not sent through itself.
    pub(super) fn leave_vlans(&mut self, rib: &Rib) {
        let out: Vec<u32> = self.out.keys().copied().collect();
        let left = &mut self.left;
        self.out.retain(|index, name| {
            let lower = carrier(rib, *index);
            if out.binary_search(&lower).is_ok() {
                return true;
            }
            let lower = rib.link(lower).map_or("-", |link| link.name.as_str());
            let why = left
                .get(lower)
                .map_or("it is not sent through", String::as_str);
            let why = below_it(lower, why);
            left.insert(name.clone(), why);
            false
        });
    }
}

/// Why a VLAN is left to the kernel where the link below it is.
fn below_it(lower: &str, why: &str) -> String {
    format!("its lower link {lower}: {why}")
}

/// The link that carries the program for a link, and that its packets leave by: itself, or of a VLAN the link below it.
pub(super) fn carrier(rib: &Rib, index: u32) -> u32 {
    let link = rib.link(index);
    let below = link.and_then(|link| below(link, |index| rib.link(index)));
    below.map_or(index, |below| below.lower)
}

/// How packets of a link come to the program: as it is attached there, or by which link below.
pub(super) fn mode(rib: &Rib, index: u32, attached: Option<&str>) -> String {
    let carrier = carrier(rib, index);
    match rib.link(carrier).filter(|_| carrier != index) {
        Some(lower) => format!("by {}", lower.name),
        None => attached.unwrap_or("-").to_owned(),
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
            let carrier = carrier(rib, *index);
            let attached = match rib.link(carrier).filter(|_| carrier != *index) {
                Some(lower) => format!("would be forwarded from, by {}", lower.name),
                None => "would be attached".to_owned(),
            };
            match (
                plan.attach.contains_key(index),
                plan.out.contains_key(index),
            ) {
                (true, true) => format!("link {name}{state}: {attached}"),
                (true, false) => {
                    format!("link {name}{state}: {attached}, but not sent through: {why}")
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
/// 4. Programs go to the links that packets come in by ([`Plan::place_programs`]).
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
    plan.leave_vlans(rib);
    plan.place_programs(rib);
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
    use raddle_rib::event::{DeviceSettings, Event, Link, Vlan};

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

    /// As [`rib`], with `b.5` upon b and `b.5.6` upon that, which forward.
    fn with_vlans() -> Rib {
        let mut rib = rib();
        for (index, name, id, lower) in [(5, "b.5", 5, 3), (6, "b.5.6", 6, 5)] {
            rib.apply(Event::Link(Link {
                kind: Some("vlan".into()),
                vlan: Some(Vlan {
                    protocol: 0x8100,
                    id,
                    egress_qos: false,
                }),
                lower: Some(lower),
                ..Link::ethernet(index, name, [2; 6])
            }));
            let forwards = DeviceSettings {
                forwarding4: true,
                ..DeviceSettings::default()
            };
            rib.apply(Event::Device(index, forwards));
        }
        rib
    }

    fn named(names: &[&str]) -> Config {
        Config {
            links: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Config::default()
        }
    }

    fn indices(links: &BTreeMap<u32, String>) -> Vec<u32> {
        links.keys().copied().collect()
    }

    #[test]
    fn the_program_is_on_the_link_below_a_vlan() {
        let (rib, none) = (with_vlans(), Report::default());
        let all = plan(&rib, &Config::default(), &none).unwrap();
        assert_eq!(indices(&all.attach), [2, 3, 5, 6]);
        assert_eq!(indices(&all.programs), [2, 3]);
        assert_eq!(indices(&all.out), [2, 3, 4, 5, 6]);
        assert!(all.has_vlans_upon(&rib, 3) && !all.has_vlans_upon(&rib, 2));
        assert_eq!(all.ports().enabled, [2, 3, 5, 6].into());
        // By itself.
        let alone = plan(&rib, &named(&["b.5.6"]), &none).unwrap();
        assert_eq!(indices(&alone.attach), [6]);
        assert_eq!(indices(&alone.programs), [3]);
        assert_eq!(
            alone.left["b"],
            "not named: packets from it are the kernel's; the program on it forwards from b.5.6"
        );
        assert!(!alone.left["b.5"].contains("program"));
        assert_eq!(
            would(&alone, &rib)[1],
            format!(
                "link b (down): would be sent through only: {}",
                alone.left["b"]
            )
        );
        assert_eq!(
            would(&alone, &rib)[4],
            "link b.5.6: would be forwarded from, by b"
        );
        assert_eq!(mode(&rib, 6, None), "by b");
        assert_eq!(mode(&rib, 3, Some("native")), "native");
    }

    #[test]
    fn a_vlan_goes_with_what_is_below_it() {
        let (mut rib, none) = (with_vlans(), Report::default());
        let mut failed = plan(&rib, &Config::default(), &none).unwrap();
        failed.without_program(&rib, 3, "the driver refused");
        assert_eq!(indices(&failed.attach), [2]);
        assert_eq!(indices(&failed.programs), [2]);
        assert_eq!(failed.left["b"], "the driver refused");
        assert_eq!(failed.left["b.5.6"], "its lower link b: the driver refused");
        let mut failed = plan(&rib, &named(&["a", "b.5"]), &none).unwrap();
        failed.without_program(&rib, 3, "the driver refused");
        assert_eq!(indices(&failed.attach), [2]);
        assert_eq!(failed.left["b"], "the driver refused");
        // Out: by the link below only, and not without it.
        let out = plan(&rib, &Config::default(), &rejecting("b", Role::Out)).unwrap();
        assert_eq!(indices(&out.attach), [2, 3, 5, 6]);
        assert_eq!(indices(&out.out), [2, 4]);
        assert_eq!(out.left["b.5"], "its lower link b: odd: not for XDP");
        // The VLAN alone goes, then the link below it.
        rib.apply(Event::LinkGone(6));
        let fewer = plan(&rib, &named(&["b.5"]), &none).unwrap();
        assert_eq!(indices(&fewer.programs), [3]);
        rib.apply(Event::LinkGone(5));
        let gone = plan_of_present(&rib, &named(&["b.5"]), &none);
        assert!(gone.attach.is_empty() && gone.programs.is_empty());
        assert!(gone.left["b.5"].contains("no such link"));
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
