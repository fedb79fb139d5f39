#![doc = include_str!("../README.md")]

mod beneath;
mod bond;
mod bridged;
mod driver;
mod finding;
mod firewall;
mod kernel;
mod link;
mod pairs;
mod qdisc;
mod rules;
pub mod seed;
mod settings;
mod tags;
mod tunnel_mtu;
mod veth;

use std::collections::{BTreeMap, BTreeSet};

use raddle_netlink::probe::namespace::Namespace;
use raddle_netlink::probe::tc;
use raddle_rib::event::{DeviceSettings, Link, Rule, Settings};
use raddle_rib::{PuntedByRule, Rib};

pub use raddle_netlink::probe::Error;

pub use self::beneath::{
    Beneath, Outer, Passed, beneath, beneath_by, bridge_of, is_upon_others, with_beneath,
};
use self::beneath::{is_bridge, of_bonds_too, of_uppers_too};
// What raddle-bench calls it.
pub use self::bond::bond_members;
use self::finding::concerns;
pub use self::finding::{Finding, Report, Role, Severity};
pub use self::firewall::Known;
pub use self::kernel::{KernelError, running_kernel};
pub use self::link::is_usable_tunnel;
pub use self::pairs::{Ends, Punted, Verdicts, Version, Why};
pub use self::rules::{by_packet, by_way_out};
pub use self::settings::steering;
pub use self::veth::{FarEnd, far_ends};

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Netfilter, tc filters, xfrm.
    Firewall,
    /// A qdisc that shapes.
    Qdisc,
    /// A link that XDP cannot be used on.
    Link,
    /// A link that loses what XDP redirects, or checksums.
    Loss,
    /// Settings and routing rules that send traffic to the kernel, or make it choose differently.
    Settings,
}

/// What to do about what can be fixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fix {
    /// Nothing: what would lose packets is not used.
    #[default]
    Never,
    /// Say that it would be fixed.
    Would,
    /// Fix it.
    Do,
}

/// What the user wants; by default nothing is allowed and nothing is fixed.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Links to forward from; when empty, all that can be used and forward.
    pub links: Vec<String>,
    /// Attach although something would be bypassed: such findings become warnings.
    pub allow_bypass: bool,
    /// All packets of connections that the kernel tracks are left to it.
    pub punt_tracked: bool,
    /// Links whose qdisc may be bypassed.
    pub allow_qdisc: Vec<String>,
    /// Programs are attached in generic mode only, which has no trouble with veth.
    pub generic: bool,
    /// What to do about what can be fixed.
    pub fix: Fix,
    /// The daemon itself will set the hash seed if it is 0.
    pub sets_seed: bool,
    /// This kernel has a hash seed that can be set.
    pub can_set_seed: bool,
    /// Why the kernel's own hash key is not known, where no seed is set and it is to be gone by.
    pub no_key: Option<String>,
    /// Links of which the program reads the NIC's receive hash, as the kernel does.
    pub reads_hash: BTreeSet<u32>,
}

/// What the daemon knows already.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// The links of the namespace.
    pub links: Vec<Link>,
    /// Their settings, by index.
    pub devices: BTreeMap<u32, DeviceSettings>,
    /// Settings of the namespace.
    pub settings: Settings,
    /// Its routing rules.
    pub rules: Vec<Rule>,
    /// Links with an address that others than their neighbours may use, or in a VRF ([`addressed`]).
    pub addressed: BTreeSet<u32>,
    /// Links on which the XDP program is ours.
    pub attached: BTreeSet<u32>,
    /// Whether XDP can redirect to a link just now (`NETDEV_XDP_ACT_NDO_XMIT`), where the kernel
    /// tells.
    pub takes_redirects: BTreeMap<u32, bool>,
    /// By in-link, the out-links that `rp_filter` judges apart ([`Rib::filtered_apart`]).
    pub filtered_apart: BTreeMap<u32, BTreeSet<u32>>,
    /// By in-link and family, the packets that routing rules leave to the kernel ([`Rib::punted_by_rules`]).
    pub punted_by_rules: BTreeMap<(u32, u8), Vec<PuntedByRule>>,
}

impl Scene {
    /// What a mirror knows, where `attached` are the links on which the XDP program is ours.
    /// `takes_redirects` says of a link by index whether XDP can redirect to it just now
    /// (`NETDEV_XDP_ACT_NDO_XMIT`), where the kernel tells.
    pub fn of(
        rib: &Rib,
        attached: BTreeSet<u32>,
        takes_redirects: impl Fn(u32) -> Option<bool>,
    ) -> Scene {
        let mut links: Vec<Link> = rib.links().cloned().collect();
        links.sort_by_key(|link| link.index);
        let takes_redirects = links
            .iter()
            .filter_map(|link| Some((link.index, takes_redirects(link.index)?)))
            .collect();
        Scene {
            devices: links
                .iter()
                .map(|link| (link.index, rib.device(link.index)))
                .collect(),
            links,
            settings: *rib.settings(),
            rules: rib.rules().to_vec(),
            addressed: addressed(rib),
            attached,
            takes_redirects,
            filtered_apart: rib
                .links()
                .map(|link| (link.index, rib.filtered_apart(link.index)))
                .collect(),
            punted_by_rules: rib
                .links()
                .flat_map(|link| [(link.index, 4), (link.index, 6)])
                .map(|(link, family)| ((link, family), rib.punted_by_rules(link, family)))
                .collect(),
        }
    }

    fn device(&self, index: u32) -> DeviceSettings {
        self.devices.get(&index).copied().unwrap_or_default()
    }

    /// The settings that hold for packets that come in by a link.
    fn governing(&self, index: u32) -> DeviceSettings {
        // A mirror's are sorted.
        let by_index = |index| match self.links.binary_search_by_key(&index, |link| link.index) {
            Ok(place) => self.links.get(place),
            Err(_) => self.links.iter().find(|link| link.index == index),
        };
        let of = |index| self.device(index);
        match by_index(index) {
            Some(link) => DeviceSettings::of_input(link, by_index, of),
            None => of(index),
        }
    }
}

/// Whether a link is one that routes, where none are named: a bridge or a tunnel has to be one of these ([`addressed`]).
pub fn routes(link: &Link, addressed: &BTreeSet<u32>) -> bool {
    let needs_one = is_bridge(link) || link.tunnel.is_some();
    !needs_one || addressed.contains(&link.index)
}

/// The links that have an address of more than link scope, or are in a VRF, as the bridge of an L3VNI is, which needs no address. Another
/// bridge or tunnel without one routes nothing in most set-ups: it is forwarded from only where it is named.
pub fn addressed(rib: &Rib) -> BTreeSet<u32> {
    /// `RT_SCOPE_LINK`.
    const LINK: u8 = 253;
    let wide = rib.addresses().iter().filter(|own| own.scope < LINK);
    let in_vrf = rib.links();
    let in_vrf = in_vrf.filter(|link| raddle_rib::vrf_of(link, |index| rib.link(index)).is_some());
    wide.map(|own| own.index)
        .chain(in_vrf.map(|link| link.index))
        .collect()
}

/// Looks at everything, and fixes what may be fixed.
///
/// Costs some milliseconds, and a thread for each network namespace that is found: at start, and
/// when links have changed.
///
/// # Errors
/// A probe that is refused or whose answer makes no sense.
pub fn inspect(scene: &Scene, options: &Options) -> Result<Report, Error> {
    let by_topic = inspect_by_topic(scene, options)?;
    let mut findings: Vec<Finding> = by_topic.into_iter().map(|(_, finding)| finding).collect();
    findings.sort();
    findings.dedup();
    Ok(Report { findings })
}

/// As [`inspect`], each finding with what it is about, in no particular order.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_by_topic(scene: &Scene, options: &Options) -> Result<Vec<(Topic, Finding)>, Error> {
    let qdiscs = tc::qdiscs()?;
    let namespaces = Namespace::all()?;
    let mut surroundings = veth::Surroundings::new(&scene.links, &namespaces);
    surroundings.ask_taps()?;
    let stacked = surroundings.stacked();
    let mut findings = Vec::new();
    let mut add = |topic, found: Vec<Finding>| {
        findings.extend(found.into_iter().map(|finding| (topic, finding)));
    };
    let spread = |found, known: &[Finding]| of_uppers_too(of_bonds_too(found, scene), known, scene);
    let mut known = link::judge(scene, options.generic, &stacked);
    add(Topic::Link, known.clone());
    let shaped = qdisc::judge(&scene.links, &qdiscs, &options.allow_qdisc);
    let shaped = spread(shaped, &known);
    known.extend(shaped.iter().cloned());
    add(Topic::Qdisc, shaped);
    let (ins, _) = in_use(scene, options, &known);
    let asked = tags::to_ask(scene, &wires(scene, &ins, Role::In, &known), &stacked);
    let fixes = veth::Fixes::of_scene(scene, options);
    let hidden = tags::judge(&fixes, &asked, &mut |link| surroundings.giver(link));
    let hidden = spread(hidden, &known);
    known.extend(hidden.iter().cloned());
    add(Topic::Link, hidden);
    let (ins, outs) = in_use(scene, options, &known);
    let lossy = veth::judge(
        scene,
        options,
        &wires(scene, &ins, Role::In, &known),
        &wires(scene, &outs, Role::Out, &known),
        &mut surroundings,
    );
    let lossy = spread(lossy, &known);
    known.extend(lossy.iter().cloned());
    add(Topic::Loss, lossy);
    let (ins, _) = in_use(scene, options, &known);
    let with_program = wires(scene, &ins, Role::In, &known);
    let unused = link::bonds_not_sent_through(scene, options.generic, &with_program);
    let unused = of_uppers_too(unused, &known, scene);
    known.extend(unused.iter().cloned());
    add(Topic::Link, unused);
    let (ins, _) = in_use(scene, options, &known);
    let with_program = wires(scene, &ins, Role::In, &known);
    let alone = link::without_carrier(scene, &ins, &with_program);
    known.extend(alone.iter().cloned());
    add(Topic::Link, alone);
    // A link that fell out now need not be looked at any more. The probes are asked even when none
    // is left, so that missing privilege is said first.
    let (ins, outs) = in_use(scene, options, &known);
    let beneath_in = beneath_in_role(scene, Role::In, &known);
    let beneath_out = beneath_in_role(scene, Role::Out, &known);
    let (way_in, way_out) = (Way::of(&ins, &beneath_in), Way::of(&outs, &beneath_out));
    let (wires_in, wires_out) = (way_in.with_beneath(), way_out.with_beneath());
    let mut known = Known::default();
    let hooks = firewall::gather([way_in, way_out], &qdiscs, &mut known)?;
    if !ins.is_empty() {
        if !options.generic {
            let (nics, cpus) = driver::gather(&scene.links, &wires_out);
            add(Topic::Loss, driver::judge(&nics, cpus));
        }
        let mut bypassed = firewall::judge(&hooks, &wires_in, &wires_out, Severity::Refuse);
        if options.allow_bypass {
            for finding in &mut bypassed {
                finding.severity = Severity::Warning;
                finding.why.push_str(", which --allow-bypass allows");
            }
        } else if !bypassed.is_empty() || way_in.tunnels() || way_out.tunnels() {
            let mut verdicts = look(way_in, way_out, &mut known)?;
            if options.punt_tracked {
                verdicts.punt_tracked(way_in, way_out);
            }
            // What only tunnels meet keeps no start from being made.
            let frees = || !verdicts.frees_nothing(&ins, &outs, forwarded(scene, &ins));
            if bypassed.is_empty() || frees() {
                let punted = verdicts.punted(&ins, &outs).into_iter();
                bypassed = punted
                    .map(|it| Finding::new(Severity::Punted, &it.packets, it.why()))
                    .collect();
            }
        }
        add(Topic::Firewall, bypassed);
        // VLANs and bridges receive nothing by themselves, and what is told of tags above is not told again.
        let mut receivers = wires_in;
        let uppers = scene.links.iter().filter(|link| is_upon_others(link));
        uppers.for_each(|upper| _ = receivers.remove(&upper.index));
        let mut receive = settings::gather(&scene.links, &receivers)?;
        receive.tags_told(asked.iter().map(|asked| asked.link.index));
        add(
            Topic::Settings,
            settings::judge(scene, options, (&ins, &receivers), &receive),
        );
        add(Topic::Settings, rules::judge(scene, &ins));
        add(Topic::Settings, tunnel_mtu::judge(scene, &outs));
    }
    Ok(findings)
}

/// The families that are forwarded from any of these links.
fn forwarded(scene: &Scene, ins: &BTreeMap<u32, String>) -> [bool; 2] {
    let devices = || ins.keys().map(|index| scene.governing(*index));
    [
        devices().any(|device| device.forwarding4),
        devices().any(|device| device.forwarding6),
    ]
}

/// Links in one role, and what packets pass beneath them.
#[derive(Clone, Copy, Debug)]
pub struct Way<'a> {
    links: &'a BTreeMap<u32, String>,
    beneath: &'a Beneath,
}

impl<'a> Way<'a> {
    /// These links, by index with their names; what is on a link that is `beneath` one of them concerns it, too.
    pub fn of(links: &'a BTreeMap<u32, String>, beneath: &'a Beneath) -> Way<'a> {
        Way { links, beneath }
    }

    fn with_beneath(self) -> BTreeMap<u32, String> {
        with_beneath(self.links, self.beneath)
    }

    /// Whether packets come in or leave by a tunnel.
    fn tunnels(self) -> bool {
        !self.by_tunnels().is_empty()
    }

    /// The links by which they do.
    fn by_tunnels(self) -> BTreeSet<u32> {
        let by = |index: &u32| {
            let beneath = self.beneath.get(*index);
            beneath.is_some_and(|passed| !passed.tunnels.is_empty())
        };
        self.links.keys().copied().filter(by).collect()
    }

    /// The tunnels, by index with their names.
    fn each_tunnel(self) -> BTreeMap<u32, String> {
        let passed = self
            .links
            .keys()
            .filter_map(|index| self.beneath.get(*index));
        let tunnels = passed.flat_map(|passed| &passed.tunnels);
        tunnels
            .map(|(index, outer)| (*index, outer.name.clone()))
            .collect()
    }

    /// The first of the links that packets come in or leave by a bridge of.
    fn bridged(self) -> Option<&'a str> {
        let is_bridged = |index: &u32| {
            self.beneath
                .get(*index)
                .is_some_and(|passed| passed.bridged)
        };
        let mut links = self.links.iter();
        let (_, name) = links.find(|(index, _)| is_bridged(index))?;
        Some(name)
    }
}

/// Looks whether anything would be bypassed just now: `ins` are the links forwarded from, `outs` those sent through; `known` is what
/// earlier looks have found out.
///
/// Well below a millisecond while there is nothing to find: meant for every few seconds.
///
/// # Errors
/// A probe that is refused or whose answer makes no sense.
pub fn bypass(ins: Way<'_>, outs: Way<'_>, known: &mut Known) -> Result<Vec<Finding>, Error> {
    let hooks = firewall::gather([ins, outs], &tc::qdiscs()?, known)?;
    let (ins, outs) = (ins.with_beneath(), outs.with_beneath());
    let mut findings = firewall::judge(&hooks, &ins, &outs, Severity::Refuse);
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// Which packets the firewall may judge just now: of those that come in by one of `ins` and leave by
/// one of `outs`. `known` is what earlier looks have found out.
///
/// Well below a millisecond while nothing changed.
///
/// # Errors
/// A probe that is refused or whose answer makes no sense.
pub fn look(ins: Way<'_>, outs: Way<'_>, known: &mut Known) -> Result<Verdicts, Error> {
    pairs::gather::look(ins, outs, known)
}

/// Which of these links have a qdisc just now that shapes what they send, unless it is `allowed`
/// to be bypassed. Costs one dump of qdiscs.
///
/// # Errors
/// A probe that is refused or whose answer makes no sense.
pub fn shaped(links: &BTreeMap<u32, String>, allowed: &[String]) -> Result<Vec<Finding>, Error> {
    Ok(qdisc::judge_named(links, &tc::qdiscs()?, allowed))
}

/// The names of the links that findings reject in a role.
fn rejected(findings: &[Finding], role: Role) -> BTreeSet<&str> {
    let rejects = |f: &&Finding| f.severity == Severity::LinkRejected && concerns(f, role);
    let links = findings.iter().filter(rejects);
    links.filter_map(|f| f.link.as_deref()).collect()
}

/// What is beneath links, by those ports of bridges that are used in a role.
fn beneath_in_role(scene: &Scene, role: Role, findings: &[Finding]) -> Beneath {
    let rejected = rejected(findings, role);
    let used = |link: &Link| !rejected.contains(&*link.name);
    beneath_by(scene.links.iter(), used, |link| {
        role == Role::Out && used(link)
    })
}

/// Links, and the ones beneath by which packets come in or leave in this role.
fn wires(
    scene: &Scene,
    links: &BTreeMap<u32, String>,
    role: Role,
    findings: &[Finding],
) -> BTreeMap<u32, String> {
    with_beneath(links, &beneath_in_role(scene, role, findings))
}

/// The links forwarded from and sent through, as far as the findings let them.
///
/// 1. A link that is rejected in a role is not used in it.
/// 2. Packets are forwarded from the links that the user named; when none are named, from all on
///    which forwarding is on, but bridges and tunnels without an address.
/// 3. From a port of a bridge none are for itself.
/// 4. Packets are sent through every other link.
fn in_use(
    scene: &Scene,
    options: &Options,
    findings: &[Finding],
) -> (BTreeMap<u32, String>, BTreeMap<u32, String>) {
    let links: BTreeMap<u32, &Link> = scene.links.iter().map(|l| (l.index, l)).collect();
    let find = |index: u32| links.get(&index).copied();
    let wanted = |link: &Link| {
        if bridge_of(link, find).is_some() {
            return false;
        }
        if !options.links.is_empty() {
            return options.links.contains(&link.name);
        }
        let device = scene.governing(link.index);
        routes(link, &scene.addressed) && (device.forwarding4 || device.forwarding6)
    };
    let pick = |role, keep: &dyn Fn(&Link) -> bool| {
        let rejected = rejected(findings, role);
        let links = scene.links.iter();
        let links = links.filter(|l| keep(l) && !rejected.contains(&*l.name));
        links.map(|l| (l.index, l.name.clone())).collect()
    };
    (pick(Role::In, &wanted), pick(Role::Out, &|_| true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_rib::event::Bridge;

    #[test]
    fn bridges_are_forwarded_from_and_their_ports_sent_through() {
        let bridge = |index, name: &str| Link {
            kind: Some("bridge".into()),
            bridge: Some(Bridge::default()),
            ..Link::ethernet(index, name, [2; 6])
        };
        let port = Link {
            master: Some(2),
            ..Link::ethernet(4, "e0", [2; 6])
        };
        let forwards = DeviceSettings {
            forwarding4: true,
            ..DeviceSettings::default()
        };
        let scene = Scene {
            devices: (2..6).map(|index| (index, forwards)).collect(),
            links: vec![
                bridge(2, "br0"),
                bridge(3, "br1"),
                port,
                Link::ethernet(5, "e1", [2; 6]),
            ],
            addressed: [2].into(),
            ..Scene::default()
        };
        let used = |links: &[&str], findings: &[Finding]| {
            let options = Options {
                links: links.iter().map(|name| (*name).to_owned()).collect(),
                ..Options::default()
            };
            let (ins, outs) = in_use(&scene, &options, findings);
            let names =
                |links: BTreeMap<u32, String>| -> Vec<String> { links.into_values().collect() };
            (names(ins), names(outs))
        };
        let (ins, outs) = used(&[], &[]);
        assert_eq!(ins, ["br0", "e1"], "br1 has no address");
        assert_eq!(outs, ["br0", "br1", "e0", "e1"]);
        assert_eq!(used(&["br1", "e0"], &[]).0, ["br1"]);
        let refused = Finding::new(Severity::LinkRejected, "", "").on("e0", Role::In);
        let (ins, outs) = used(&[], std::slice::from_ref(&refused));
        assert_eq!(ins, ["br0", "e1"]);
        assert!(outs.contains(&"e0".to_owned()));
        let ins = [(2, "br0".to_owned())].into();
        let wires = |role| wires(&scene, &ins, role, std::slice::from_ref(&refused));
        assert_eq!(wires(Role::In).len(), 1);
        assert_eq!(wires(Role::Out).len(), 2);
    }
}
