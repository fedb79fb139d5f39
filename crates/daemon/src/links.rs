//! Which links the engine uses, and for what.

use std::collections::{BTreeMap, BTreeSet};

use raddle_rib::event::{Link, TunnelKind};
use raddle_rib::{LowerLinks, Ports, Rib};
use raddle_select::BondMode;

use crate::Error;
use crate::config::Config;
use raddle_preflight::{
    Beneath, Finding, Report, Role, Severity, addressed, beneath, beneath_by, bridge_of,
    is_upon_others, routes,
};

/// Of a link that was named, and has gone.
const GONE: &str = "there is no such link now";

/// What the engine shall use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Links to forward from, by index; VLANs, bridges, macvlans and tunnels among them.
    pub attach: BTreeMap<u32, String>,
    /// Links to attach the program to, by index: those that are forwarded from, and in place of a link that has no driver of its own the
    /// links below it, whether these are forwarded from themselves or not.
    pub programs: BTreeMap<u32, String>,
    /// Links to send through, by index; ports of bridges among them.
    pub out: BTreeMap<u32, String>,
    /// Members of bonds that are sent through and choose by a hash: engines choose among them for what has tags.
    pub members: BTreeSet<u32>,
    /// Tunnels by which packets may come in, also to a bridge: what carries them comes by any link with the program.
    pub ends: BTreeSet<u32>,
    /// By link, those of `ends` that its packets come in by: itself, or ports of its bridge.
    pub by_tunnels: BTreeMap<u32, Vec<u32>>,
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
    /// 1. To each link that has a driver of its own.
    /// 2. For a VLAN or a macvlan to the link below it, for a bridge to those below its ports, but to none of which it is said why it
    ///    takes no program (`without`, by name). Where such a link is not forwarded from itself, it is said why it has a program.
    /// 3. For a tunnel to none: what carries its packets comes in by any of the others.
    /// 4. What then has none by which packets come in is not forwarded from; a tunnel, and a bridge by it, where there is none at all.
    fn place_programs(&mut self, rib: &Rib, without: &BTreeMap<String, String>) {
        let mut only_for: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let links = || rib.links().map(|link| (link.index, link));
        let by_index: BTreeMap<u32, &Link> = links().collect();
        let lower = rib.all_lower_links();
        for (index, name) in &self.attach {
            for carrier in lower.of(*index) {
                let Some(link) = by_index.get(&carrier) else {
                    continue;
                };
                if carrier != *index && without.contains_key(&link.name) {
                    continue;
                }
                self.programs.insert(carrier, link.name.clone());
                if !self.attach.contains_key(&carrier) {
                    only_for.entry(&link.name).or_default().push(name);
                }
            }
        }
        for (name, uppers) in only_for {
            let program = format!("the program on it forwards from {}", uppers.join(", "));
            let why = self.left.entry(name.to_owned()).or_default();
            *why = match why.is_empty() {
                true => program,
                false => format!("{why}; {program}"),
            };
        }
        self.leave_without_program(rib, "no link by which packets come in can have the program");
    }

    /// Leaves links to the kernel that no packets come in by that a program sees.
    fn leave_without_program(&mut self, rib: &Rib, why: &str) {
        let lower = rib.all_lower_links();
        let (programs, left) = (&self.programs, &mut self.left);
        let by_tunnels = &self.by_tunnels;
        self.attach.retain(|index, name| {
            let mut lower = lower.of(*index).into_iter();
            let sees = lower.any(|lower| programs.contains_key(&lower))
                || !programs.is_empty() && by_tunnels.contains_key(index);
            if !sees {
                left.insert(name.clone(), why.to_owned());
            }
            sees
        });
    }

    /// The links by which packets come in that links upon them are forwarded from, or that may leave by a tunnel or come in by one: with
    /// any tunnel all that have the program.
    pub(super) fn carriers(&self, rib: &Rib) -> BTreeSet<u32> {
        let mut used = self.out.keys().chain(&self.ends);
        match used.any(|index| rib.is_tunnel(*index)) {
            true => self.programs.keys().copied().collect(),
            false => carriers(rib, self.attach.keys().copied()),
        }
    }

    /// Leaves a link that the program cannot be on to the kernel, and the links upon it which are forwarded from by it alone.
    pub(super) fn without_program(&mut self, rib: &Rib, index: u32, why: &str) {
        let Some(name) = self.programs.remove(&index) else {
            return;
        };
        self.leave_without_program(rib, &below_it(&name, why));
        self.left.insert(name, why.to_owned());
    }

    /// Finds the members of bonds that are sent through.
    pub(super) fn follow_members(&mut self, rib: &Rib) {
        let of_bond = |link: &&Link| {
            let master = link.master.filter(|master| self.out.contains_key(master));
            let bond = master.and_then(|master| rib.link(master)?.bond);
            let mode = bond.and_then(|bond| BondMode::from_number(bond.mode));
            matches!(mode, Some(BondMode::Xor | BondMode::Lacp))
        };
        let members = rib.links().filter(of_bond);
        self.members = members.map(|link| link.index).collect();
    }

    /// Leaves links to the kernel that would leave by others of which none is sent through itself; tunnels where no other link is.
    pub(super) fn leave_uppers(&mut self, rib: &Rib) {
        let out: BTreeSet<u32> = self.out.keys().copied().collect();
        let is_wire = |index: &u32| rib.link(*index).is_some_and(|link| !is_upon_others(link));
        let has_wires = out.iter().any(is_wire);
        let by_tunnel = by_tunnels(rib, &out);
        let left = &mut self.left;
        let lower = rib.all_lower_links();
        self.out.retain(|index, name| {
            let lower = lower.of(*index);
            if !lower.is_disjoint(&out) || has_wires && by_tunnel.contains_key(index) {
                return true;
            }
            if rib.is_tunnel(*index) {
                let why = "no other link is sent through, which its packets would leave by";
                left.insert(name.clone(), why.to_owned());
                return false;
            }
            let lower = lower.first().and_then(|lower| rib.link(*lower));
            let lower = lower.map_or("-", |link| link.name.as_str());
            let why = left
                .get(lower)
                .map_or("it is not sent through", String::as_str);
            let why = below_it(lower, why);
            left.insert(name.clone(), why);
            false
        });
    }

    /// What packets pass beneath the links that are forwarded from: of bridges the ports that the program is on, or below.
    pub(super) fn beneath_in(&self, rib: &Rib) -> Beneath {
        let lower = rib.all_lower_links();
        let sees = |port: &Link| {
            let mut lower = lower.of(port.index).into_iter();
            lower.any(|lower| self.programs.contains_key(&lower))
        };
        let sees = |port: &Link| self.ends.contains(&port.index) || sees(port);
        beneath_by(rib.links(), sees, |_| false)
    }

    /// What they pass beneath those that are sent through: of bridges the ports that are sent through, of tunnels all links.
    pub(super) fn beneath_out(&self, rib: &Rib) -> Beneath {
        let sends = |link: &Link| self.out.contains_key(&link.index);
        beneath_by(rib.links(), sends, sends)
    }

    /// By which links below packets of a link come to the program: `by eth1, eth2`, or `tunnel`; none of a link that has a driver of its
    /// own.
    pub(super) fn by(&self, lower: &LowerLinks<'_>, index: u32) -> Option<String> {
        let rib = lower.rib();
        rib.link(index).filter(|link| is_upon_others(link))?;
        if rib.is_tunnel(index) {
            return Some("tunnel".to_owned());
        }
        let lower = lower.of(index).into_iter();
        let names = lower.filter_map(|lower| self.programs.get(&lower));
        let mut names: Vec<&str> = names.map(String::as_str).collect();
        let tunnels = self.by_tunnels.get(&index).into_iter().flatten();
        names.extend(tunnels.filter_map(|tunnel| Some(rib.link(*tunnel)?.name.as_str())));
        Some(format!("by {}", names.join(", ")))
    }

    /// How packets of a link come to the program: as it is attached there, or by which links below.
    pub(super) fn mode(
        &self,
        lower: &LowerLinks<'_>,
        index: u32,
        attached: Option<&str>,
    ) -> String {
        let by = self.by(lower, index);
        by.unwrap_or_else(|| attached.unwrap_or("-").to_owned())
    }

    /// Of the tunnels that packets of a link come in by those that nothing comes in by but by the kernel, and why: all of those are in
    /// `not_in`, by name.
    pub(super) fn not_in(
        &self,
        rib: &Rib,
        index: u32,
        not_in: &BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let tunnels = self.by_tunnels.get(&index).into_iter().flatten();
        let names = tunnels.filter_map(|tunnel| Some(&rib.link(*tunnel)?.name));
        let of = names.filter_map(|name| Some((name.clone(), not_in.get(name)?.clone())));
        of.collect()
    }
}

/// By link, those of these `tunnels` that its packets come in or leave by: itself, or ports of its bridge.
fn by_tunnels(rib: &Rib, tunnels: &BTreeSet<u32>) -> BTreeMap<u32, Vec<u32>> {
    if !tunnels.iter().any(|index| rib.is_tunnel(*index)) {
        return BTreeMap::new();
    }
    let beneath = beneath(rib.links());
    let used = beneath.iter().map(|(index, passed)| {
        let used = passed.tunnels.keys().copied();
        (index, used.filter(|of| tunnels.contains(of)).collect())
    });
    used.filter(|(_, used): &(u32, Vec<u32>)| !used.is_empty())
        .collect()
}

/// Why a link is left to the kernel where the one below it is.
fn below_it(lower: &str, why: &str) -> String {
    format!("its lower link {lower}: {why}")
}

/// The links by which packets come in that any of `uppers` is forwarded from, which is upon them: they have the program for that, and it
/// needs the programs that it calls.
pub(super) fn carriers(rib: &Rib, uppers: impl Iterator<Item = u32>) -> BTreeSet<u32> {
    let lower_links = rib.all_lower_links();
    let lower = uppers.flat_map(|upper| {
        let mut lower = lower_links.of(upper);
        lower.remove(&upper);
        lower
    });
    lower.collect()
}

/// Whether a link is a VXLAN that learns from what comes in.
fn is_learning(link: &Link) -> bool {
    let kind = link.tunnel.map(|tunnel| tunnel.kind);
    matches!(kind, Some(TunnelKind::Vxlan { learns: true, .. }))
}

/// Why nothing is forwarded from a port of a bridge for itself; none of other links.
fn is_bridges(rib: &Rib, link: &Link) -> Option<String> {
    let bridge = bridge_of(link, |index| rib.link(index))?;
    Some(format!(
        "part of bridge {}: what comes in by it is not routed on its own",
        bridge.name
    ))
}

/// Whether a link is a port of a bridge: then a program that cannot be on it is nothing to the bridge's other ports.
pub(super) fn is_port(rib: &Rib, index: u32) -> bool {
    rib.link(index)
        .is_some_and(|link| bridge_of(link, |index| rib.link(index)).is_some())
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
    let lower = rib.all_lower_links();
    links
        .into_iter()
        .map(|link| {
            let Link { name, index, .. } = link;
            let state = match state(link) {
                "up" => String::new(),
                state => format!(" ({state})"),
            };
            let why = plan.left.get(name).map_or("", String::as_str);
            let attached = match plan.by(&lower, *index) {
                Some(_) if rib.is_tunnel(*index) => "would be forwarded from".to_owned(),
                Some(by) => format!("would be forwarded from, {by}"),
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
///    all on which forwarding is on, but bridges and tunnels that are in no VRF and have no address of more than link scope.
/// 3. From a port of a bridge none are, for itself.
/// 4. Packets are sent through all of the rest.
/// 5. Programs go to the links that packets come in by ([`Plan::place_programs`]).
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
    let addressed = addressed(rib);
    let mut plan = Plan::default();
    for link in rib.links() {
        let named = config.links.contains(&link.name);
        let port = is_bridges(rib, link);
        if let Some(why) = port.as_ref().or_else(|| not_in.get(&link.name)) {
            if named {
                let (name, why) = (link.name.clone(), why.clone());
                return Err(Error::LinkRejected { name, why });
            }
            let also = port.as_ref().and(not_in.get(&link.name));
            let why = also.map_or_else(|| why.clone(), |also| format!("{why}; {also}"));
            plan.left.insert(link.name.clone(), why);
        } else if named || (config.links.is_empty() && forwards(rib, link, &addressed)) {
            plan.attach.insert(link.index, link.name.clone());
        } else {
            let without_address = !routes(link, &addressed);
            let why = match config.links.is_empty() {
                true if without_address && rib.is_tunnel(link.index) => {
                    "a tunnel without an address, and not named"
                }
                true if without_address => "a bridge without an address, and not named",
                true => "forwarding is off",
                false => "not named",
            };
            plan.left.insert(
                link.name.clone(),
                format!("{why}: packets from it are the kernel's"),
            );
        }
        if rib.is_tunnel(link.index) && !not_in.contains_key(&link.name) {
            plan.ends.insert(link.index);
        }
        match not_out.get(&link.name) {
            Some(why) => {
                let left = plan.left.entry(link.name.clone());
                let left = left.or_insert_with(|| why.clone());
                if port.is_some() && !left.contains(why) {
                    *left = format!("{left}; {why}");
                }
            }
            None => {
                plan.out.insert(link.index, link.name.clone());
            }
        }
    }
    // Of a VXLAN that is a port of a bridge nothing else says whether packets are taken from it: one that learns, engines take none from.
    let learns = |index: &u32| rib.link(*index).is_some_and(is_learning);
    let ends = &plan.ends;
    let is_port = |index: &u32| rib.is_tunnel(*index) && is_port(rib, *index);
    plan.out
        .retain(|index, _| !is_port(index) || ends.contains(index) || learns(index));
    plan.by_tunnels = by_tunnels(rib, &plan.ends);
    plan.leave_uppers(rib);
    plan.place_programs(rib, &not_in);
    Ok(plan)
}

/// Whether packets are forwarded from a link where none are named: forwarding is on, and if it is a bridge or a tunnel, it has an address
/// or is in a VRF ([`routes`]).
pub(super) fn forwards(rib: &Rib, link: &Link, addressed: &BTreeSet<u32>) -> bool {
    let device = rib.input_settings(link);
    routes(link, addressed) && (device.forwarding4 || device.forwarding6)
}

/// As [`plan`] for a daemon that runs: links that were named and have gone, or cannot be used now,
/// are left alone and the others go on.
pub(super) fn plan_of_present(rib: &Rib, config: &Config, report: &Report) -> Plan {
    let not_in = report.rejected(Role::In);
    let port = |name: &String| is_bridges(rib, rib.link_named(name)?);
    let is_there = |name: &&String| rib.link_named(name).is_some();
    let names =
        |names: &[String]| -> Vec<String> { names.iter().filter(is_there).cloned().collect() };
    let present = Config {
        links: names(&config.links)
            .into_iter()
            .filter(|name| !not_in.contains_key(name) && port(name).is_none())
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
        let why = match port(name).or_else(|| not_in.get(name).cloned()) {
            Some(why) => why,
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

/// A tunnel of this kind that raddle can use.
#[cfg(test)]
pub(crate) fn tunnel(kind: raddle_rib::event::TunnelKind) -> raddle_rib::event::Tunnel {
    raddle_rib::event::Tunnel {
        kind,
        local: Some([192, 0, 2, 1].into()),
        remote: Some([192, 0, 2, 2].into()),
        ttl: 64,
        tos: 0,
        df: raddle_rib::event::TunnelDf::Set,
        link: 0,
        is_special: false,
    }
}

#[cfg(test)]
pub(crate) const VXLAN: TunnelKind = vxlan(false);

/// The same, which may learn.
#[cfg(test)]
const fn vxlan(learns: bool) -> TunnelKind {
    TunnelKind::Vxlan {
        vni: 5,
        port: 4789,
        sports: (0, 0),
        learns,
        checksum: false,
        ttl_inner: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_rib::event::{
        Address, Bridge, BridgePort, DeviceSettings, Event, Link, Macvlan, TunnelKind, Vlan,
    };

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
        assert_eq!(all.carriers(&rib), [3].into());
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
        assert_eq!(alone.mode(&rib.all_lower_links(), 6, None), "by b");
        assert_eq!(
            alone.mode(&rib.all_lower_links(), 3, Some("native")),
            "native"
        );
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
        all_rejecting(&[name], role)
    }

    fn all_rejecting(names: &[&str], role: Role) -> Report {
        let finding = |name: &&str| Finding {
            severity: Severity::LinkRejected,
            link: Some((*name).to_owned()),
            role,
            what: "odd".into(),
            why: "not for XDP".into(),
            fix: None,
            fixed: false,
        };
        Report {
            findings: names.iter().map(finding).collect(),
        }
    }

    /// As [`rib`], where b and d are ports of the bridge br0, which `br0.5` is upon, and the macvlan m0 is upon a.
    fn with_bridge(has_address: bool) -> Rib {
        let mut rib = rib();
        let upon = |index, name: &str, kind: &str, lower| Link {
            kind: Some(kind.to_owned()),
            lower,
            ..Link::ethernet(index, name, [2; 6])
        };
        let bridge = Link {
            bridge: Some(Bridge::default()),
            ..upon(7, "br0", "bridge", None)
        };
        let vlan = Vlan {
            protocol: 0x8100,
            id: 5,
            egress_qos: false,
        };
        let vlan = Link {
            vlan: Some(vlan),
            ..upon(8, "br0.5", "vlan", Some(7))
        };
        let macvlan = Link {
            macvlan: Some(Macvlan { mode: 1 }),
            ..upon(9, "m0", "macvlan", Some(2))
        };
        let port = |index, name: &str| Link {
            master: Some(7),
            port: Some(BridgePort::default()),
            ..Link::ethernet(index, name, [2; 6])
        };
        let forwards = DeviceSettings {
            forwarding4: true,
            ..DeviceSettings::default()
        };
        for link in [bridge, vlan, macvlan, port(3, "b"), port(10, "d")] {
            let index = link.index;
            rib.apply(Event::Link(link));
            rib.apply(Event::Device(index, forwards));
        }
        if has_address {
            rib.apply(Event::Address(Address::new(7, [10, 0, 0, 1].into(), 24)));
        }
        rib
    }

    #[test]
    fn the_program_is_on_the_ports_of_a_bridge() {
        let (rib, none) = (with_bridge(true), Report::default());
        let all = plan(&rib, &Config::default(), &none).unwrap();
        assert_eq!(indices(&all.attach), [2, 7, 8, 9]);
        assert_eq!(indices(&all.programs), [2, 3, 10]);
        assert_eq!(indices(&all.out), [2, 3, 4, 7, 8, 9, 10]);
        assert_eq!(all.carriers(&rib), [2, 3, 10].into());
        let part = "part of bridge br0: what comes in by it is not routed on its own";
        assert_eq!(
            all.left["d"],
            format!("{part}; the program on it forwards from br0, br0.5")
        );
        assert_eq!(all.mode(&rib.all_lower_links(), 7, None), "by b, d");
        assert_eq!(all.mode(&rib.all_lower_links(), 9, None), "by a");
        assert!(
            would(&all, &rib).contains(&"link br0: would be forwarded from, by b, d".to_owned())
        );
        // By one of the ports; the other has its reason.
        let one = plan(&rib, &named(&["br0.5"]), &rejecting("d", Role::In)).unwrap();
        assert_eq!(indices(&one.attach), [8]);
        assert_eq!(indices(&one.programs), [3]);
        assert_eq!(one.mode(&rib.all_lower_links(), 8, None), "by b");
        assert_eq!(one.left["d"], format!("{part}; odd: not for XDP"));
        let passed =
            |beneath: &Beneath| -> Vec<u32> { beneath.links(8).map(|(index, _)| index).collect() };
        assert_eq!(passed(&one.beneath_in(&rib)), [3, 7]);
        assert_eq!(passed(&one.beneath_out(&rib)), [3, 7, 10]);
        // None by itself.
        for name in ["b", "d"] {
            let refused = plan(&rib, &named(&[name]), &none).unwrap_err().to_string();
            assert!(refused.contains("part of bridge br0"), "{refused}");
            let present = plan_of_present(&rib, &named(&[name, "a"]), &none);
            assert_eq!(indices(&present.attach), [2]);
            assert!(present.left[name].contains("part of bridge br0"));
        }
    }

    #[test]
    fn a_bridge_without_an_address_is_forwarded_from_where_it_is_named() {
        let (rib, none) = (with_bridge(false), Report::default());
        let all = plan(&rib, &Config::default(), &none).unwrap();
        assert_eq!(
            indices(&all.attach),
            [2, 8, 9],
            "the VLAN upon it all the same"
        );
        assert!(all.left["br0"].contains("without an address"));
        let alone = plan(&rib, &named(&["br0"]), &none).unwrap();
        assert_eq!(indices(&alone.attach), [7]);
        assert_eq!(indices(&alone.programs), [3, 10]);
    }

    #[test]
    fn a_bridge_goes_with_the_last_of_its_ports() {
        let (mut rib, none) = (with_bridge(true), Report::default());
        let mut failed = plan(&rib, &Config::default(), &none).unwrap();
        failed.without_program(&rib, 3, "the driver refused");
        assert_eq!(indices(&failed.attach), [2, 7, 8, 9]);
        assert_eq!(failed.left["b"], "the driver refused");
        failed.without_program(&rib, 10, "the driver refused");
        assert_eq!(indices(&failed.attach), [2, 9]);
        assert_eq!(failed.left["br0"], "its lower link d: the driver refused");
        let report = all_rejecting(&["b", "d"], Role::In);
        let kept = plan(&rib, &Config::default(), &report).unwrap();
        assert_eq!(indices(&kept.attach), [2, 9]);
        assert_eq!(indices(&kept.programs), [2]);
        // Out by those that are left.
        let out = plan(&rib, &Config::default(), &rejecting("b", Role::Out)).unwrap();
        assert_eq!(indices(&out.out), [2, 4, 7, 8, 9, 10]);
        let report = all_rejecting(&["b", "d"], Role::Out);
        let out = plan(&rib, &Config::default(), &report).unwrap();
        assert_eq!(indices(&out.out), [2, 4, 9]);
        assert!(out.left["br0"].starts_with("its lower link b: part of bridge br0"));
        assert!(out.left["br0"].ends_with("odd: not for XDP"));
        // Ports come and go.
        rib.apply(Event::LinkGone(3));
        let fewer = plan(&rib, &Config::default(), &none).unwrap();
        assert_eq!(indices(&fewer.programs), [2, 10]);
        rib.apply(Event::LinkGone(10));
        let empty = plan(&rib, &Config::default(), &none).unwrap();
        assert_eq!(indices(&empty.attach), [2, 9]);
    }

    /// As [`rib`], with the tunnel `gre1`, and the VXLAN `vxlan5` as the only port of the bridge `br5`, all of which forward; `gre2` has no
    /// address.
    fn with_tunnels() -> Rib {
        let mut rib = rib();
        let gre = |index, name: &str| Link {
            tunnel: Some(tunnel(TunnelKind::Ipip)),
            ..Link::ethernet(index, name, [2; 6])
        };
        let bridge = Link {
            bridge: Some(Bridge::default()),
            ..Link::ethernet(11, "br5", [2; 6])
        };
        let vxlan = Link {
            tunnel: Some(tunnel(VXLAN)),
            master: Some(11),
            port: Some(BridgePort::default()),
            ..Link::ethernet(12, "vxlan5", [2; 6])
        };
        let forwards = DeviceSettings {
            forwarding4: true,
            ..DeviceSettings::default()
        };
        for link in [gre(10, "gre1"), bridge, vxlan, gre(13, "gre2")] {
            let index = link.index;
            rib.apply(Event::Link(link));
            rib.apply(Event::Device(index, forwards));
        }
        for index in [10, 11] {
            rib.apply(Event::Address(Address::new(
                index,
                [10, 0, 0, index as u8].into(),
                24,
            )));
        }
        rib
    }

    #[test]
    fn tunnels_need_a_program_on_some_link() {
        let (rib, none) = (with_tunnels(), Report::default());
        let all = plan(&rib, &Config::default(), &none).unwrap();
        assert_eq!(indices(&all.attach), [2, 3, 10, 11]);
        assert_eq!(indices(&all.programs), [2, 3]);
        assert_eq!(indices(&all.out), [2, 3, 4, 10, 11, 12, 13]);
        assert_eq!(all.ends, [10, 12, 13].into());
        assert_eq!(all.carriers(&rib), [2, 3].into(), "all of them");
        assert_eq!(all.mode(&rib.all_lower_links(), 10, None), "tunnel");
        assert_eq!(all.mode(&rib.all_lower_links(), 11, None), "by vxlan5");
        assert!(all.left["gre2"].contains("a tunnel without an address"));
        assert!(would(&all, &rib).contains(&"link gre1: would be forwarded from".to_owned()));
        // What leaves by a tunnel passes the links that are sent through.
        let beneath = all.beneath_out(&rib);
        let links: Vec<u32> = beneath.links(10).map(|(index, _)| index).collect();
        assert_eq!(links, [2, 3, 4, 11, 12]);
        let inside = all.beneath_in(&rib);
        assert!(inside.get(11).unwrap().tunnels.contains_key(&12));
        let not_in = [("vxlan5".to_owned(), "a rule".to_owned())].into();
        assert_eq!(all.not_in(&rib, 11, &not_in), not_in);
        assert!(all.not_in(&rib, 10, &not_in).is_empty());
        // The bridge of an L3VNI has no address.
        let mut l3vni = with_tunnels();
        let own = Address::new(11, [10, 0, 0, 11].into(), 24);
        l3vni.apply(Event::AddressGone(own));
        let of = |rib: &Rib| plan(rib, &Config::default(), &none).unwrap().attach;
        assert_eq!(indices(&of(&l3vni)), [2, 3, 10]);
        let vrf = Link {
            kind: Some("vrf".into()),
            vrf_table: Some(1001),
            ..Link::ethernet(14, "red", [2; 6])
        };
        let in_vrf = Link {
            master: Some(14),
            ..l3vni.link(11).unwrap().clone()
        };
        l3vni.apply(Event::Link(vrf));
        l3vni.apply(Event::Link(in_vrf));
        assert!(of(&l3vni).contains_key(&11));
        // One by name.
        let one = plan(&rib, &named(&["a", "gre2"]), &none).unwrap();
        assert_eq!(indices(&one.attach), [2, 13]);
        let mut failed = one.clone();
        failed.without_program(&rib, 2, "the driver refused");
        assert!(failed.attach.is_empty());
        assert!(failed.left["gre2"].contains("the driver refused"));
        let alone = plan(&rib, &named(&["gre1"]), &none).unwrap();
        assert!(alone.attach.is_empty() && alone.left["gre1"].contains("no link"));
        // A VXLAN that nothing may come in by, and one that learns, by which engines take nothing in.
        let not_in = rejecting("vxlan5", Role::In);
        let neither = plan(&rib, &Config::default(), &not_in).unwrap();
        assert_eq!(indices(&neither.attach), [2, 3, 10]);
        assert!(!neither.out.contains_key(&12));
        let mut learning = with_tunnels();
        learning.apply(Event::Link(Link {
            tunnel: Some(tunnel(vxlan(true))),
            ..learning.link(12).unwrap().clone()
        }));
        let learns = plan(&learning, &Config::default(), &not_in).unwrap();
        assert!(learns.out.contains_key(&12));
        // Nothing to send by.
        let report = all_rejecting(&["a", "b", "c"], Role::Out);
        let out = plan(&rib, &Config::default(), &report).unwrap();
        assert_eq!(indices(&out.out), [0; 0]);
        assert!(out.left["gre2"].contains("no other link is sent through"));
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
