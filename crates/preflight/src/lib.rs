#![doc = include_str!("../README.md")]

mod beneath;
mod bond;
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
mod veth;

use std::collections::{BTreeMap, BTreeSet};

use raddle_netlink::probe::namespace::Namespace;
use raddle_netlink::probe::tc;
use raddle_rib::event::{DeviceSettings, Link, Rule, Settings};
use raddle_rib::{PuntedByRule, Rib};

pub use raddle_netlink::probe::Error;

pub use self::beneath::{Beneath, Passed, beneath, with_beneath};
use self::beneath::{of_bonds_too, of_vlans_too};
// What raddle-bench calls it.
pub use self::bond::bond_members;
use self::finding::concerns;
pub use self::finding::{Finding, Report, Role, Severity};
pub use self::firewall::Known;
pub use self::kernel::{KernelError, running_kernel};
pub use self::pairs::{Punted, Verdicts, Version, Why};
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
        let links: Vec<Link> = rib.links().cloned().collect();
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
        let by_index = |index| self.links.iter().find(|link| link.index == index);
        let of = |index| self.device(index);
        match by_index(index) {
            Some(link) => DeviceSettings::of_input(link, by_index, of),
            None => of(index),
        }
    }
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
    let stacked = surroundings.stacked();
    let mut findings = Vec::new();
    let mut add = |topic, found: Vec<Finding>| {
        findings.extend(found.into_iter().map(|finding| (topic, finding)));
    };
    let links = link::judge(scene, options.generic, &stacked);
    let beneath = beneath(scene.links.iter());
    let shaped = qdisc::judge(&scene.links, &qdiscs, &options.allow_qdisc);
    let shaped = of_vlans_too(of_bonds_too(shaped, scene), scene);
    let mut known: Vec<Finding> = links.iter().chain(&shaped).cloned().collect();
    add(Topic::Link, links);
    add(Topic::Qdisc, shaped);
    let wires = |of: &BTreeMap<u32, String>| with_beneath(of, &beneath);
    let (ins, _) = in_use(scene, options, &known);
    let asked = tags::to_ask(scene, &wires(&ins), &stacked);
    let hidden = tags::judge(options.fix, &asked, &mut |link| surroundings.giver(link));
    let hidden = of_vlans_too(of_bonds_too(hidden, scene), scene);
    known.extend(hidden.iter().cloned());
    add(Topic::Link, hidden);
    let (ins, outs) = in_use(scene, options, &known);
    let lossy = veth::judge(
        scene,
        options,
        &wires(&ins),
        &wires(&outs),
        &mut surroundings,
    );
    let lossy = of_vlans_too(of_bonds_too(lossy, scene), scene);
    known.extend(lossy.iter().cloned());
    add(Topic::Loss, lossy);
    let with_program = wires(&in_use(scene, options, &known).0);
    let unused = link::bonds_not_sent_through(scene, options.generic, &with_program);
    let unused = of_vlans_too(unused, scene);
    known.extend(unused.iter().cloned());
    add(Topic::Link, unused);
    // A link that fell out now need not be looked at any more. The probes are asked even when none
    // is left, so that missing privilege is said first.
    let (ins, outs) = in_use(scene, options, &known);
    let mut known = Known::default();
    let (wires_in, wires_out) = (wires(&ins), wires(&outs));
    let hooks = firewall::gather(&wires_in, &wires_out, &qdiscs, &mut known)?;
    if !ins.is_empty() {
        let mut bypassed = firewall::judge(&hooks, &wires_in, &wires_out, Severity::Refuse);
        if options.allow_bypass {
            for finding in &mut bypassed {
                finding.severity = Severity::Warning;
                finding.why.push_str(", which --allow-bypass allows");
            }
        } else if !bypassed.is_empty() {
            let mut verdicts = look(&ins, &outs, &beneath, &mut known)?;
            if options.punt_tracked {
                verdicts.punt_tracked(&ins, &outs);
            }
            if !verdicts.frees_nothing(&ins, &outs, forwarded(scene, &ins)) {
                let punted = verdicts.punted(&ins, &outs).into_iter();
                bypassed = punted
                    .map(|it| Finding::new(Severity::Punted, &it.packets, it.why()))
                    .collect();
            }
        }
        add(Topic::Firewall, bypassed);
        // VLANs receive nothing by themselves, and what is told of tags above is not told again.
        let mut receivers = wires_in;
        let vlans = scene.links.iter().filter(|link| link.is_vlan());
        vlans.for_each(|vlan| _ = receivers.remove(&vlan.index));
        let mut receive = settings::gather(&scene.links, &receivers)?;
        receive.tags_told(asked.iter().map(|asked| asked.link.index));
        add(
            Topic::Settings,
            settings::judge(scene, options, (&ins, &receivers), &receive),
        );
        add(Topic::Settings, rules::judge(scene, &ins));
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

/// Looks whether anything would be bypassed just now: `ins` are the links forwarded from, `outs`
/// those sent through, by index with their names; `beneath` is what is beneath them, and `known` what earlier looks have found out.
///
/// Well below a millisecond while there is nothing to find: meant for every few seconds.
///
/// # Errors
/// A probe that is refused or whose answer makes no sense.
pub fn bypass(
    ins: &BTreeMap<u32, String>,
    outs: &BTreeMap<u32, String>,
    beneath: &Beneath,
    known: &mut Known,
) -> Result<Vec<Finding>, Error> {
    let (ins, outs) = (with_beneath(ins, beneath), with_beneath(outs, beneath));
    let hooks = firewall::gather(&ins, &outs, &tc::qdiscs()?, known)?;
    let mut findings = firewall::judge(&hooks, &ins, &outs, Severity::Refuse);
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// Which packets the firewall may judge just now: of those that come in by one of `ins` and leave by
/// one of `outs`, links by index with their names; what is on a link beneath one of them (`beneath`) concerns it, too. `known` is
/// what earlier looks have found out.
///
/// Well below a millisecond while nothing changed.
///
/// # Errors
/// A probe that is refused or whose answer makes no sense.
pub fn look(
    ins: &BTreeMap<u32, String>,
    outs: &BTreeMap<u32, String>,
    beneath: &Beneath,
    known: &mut Known,
) -> Result<Verdicts, Error> {
    pairs::gather::look(ins, outs, beneath, known)
}

/// Which of these links have a qdisc just now that shapes what they send, unless it is `allowed`
/// to be bypassed. Costs one dump of qdiscs.
///
/// # Errors
/// A probe that is refused or whose answer makes no sense.
pub fn shaped(links: &BTreeMap<u32, String>, allowed: &[String]) -> Result<Vec<Finding>, Error> {
    Ok(qdisc::judge_named(links, &tc::qdiscs()?, allowed))
}

/// The links forwarded from and sent through, as far as the findings let them.
///
/// 1. A link that is rejected in a role is not used in it.
/// 2. Packets are forwarded from the links that the user named; when none are named, from all on
///    which forwarding is on.
/// 3. Packets are sent through every other link.
fn in_use(
    scene: &Scene,
    options: &Options,
    findings: &[Finding],
) -> (BTreeMap<u32, String>, BTreeMap<u32, String>) {
    let rejected = |link: &Link, role| {
        findings.iter().any(|f| {
            f.severity == Severity::LinkRejected
                && f.link.as_deref() == Some(link.name.as_str())
                && concerns(f, role)
        })
    };
    let wanted = |link: &Link| {
        if !options.links.is_empty() {
            return options.links.contains(&link.name);
        }
        let device = scene.governing(link.index);
        device.forwarding4 || device.forwarding6
    };
    let pick = |keep: &dyn Fn(&Link) -> bool| {
        let links = scene.links.iter().filter(|l| keep(l));
        links.map(|l| (l.index, l.name.clone())).collect()
    };
    (
        pick(&|l| wanted(l) && !rejected(l, Role::In)),
        pick(&|l| !rejected(l, Role::Out)),
    )
}
