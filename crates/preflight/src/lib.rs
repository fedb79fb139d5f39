#![doc = include_str!("../README.md")]

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
mod veth;

use std::collections::{BTreeMap, BTreeSet};

use raddle_netlink::probe::namespace::Namespace;
use raddle_netlink::probe::tc;
use raddle_rib::event::{DeviceSettings, Link, Rule, Settings};
use raddle_rib::{PuntedByRule, Rib};

pub use raddle_netlink::probe::Error;

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

/// By bond, what it is made of: links by index with their names.
pub type Members = BTreeMap<u32, BTreeMap<u32, String>>;

/// What the bonds among these links are made of.
pub fn members<'a>(links: impl Iterator<Item = &'a Link>) -> Members {
    let links: Vec<&Link> = links.collect();
    let bonds = links.iter().filter(|link| link.bond.is_some());
    let bonds: BTreeSet<u32> = bonds.map(|link| link.index).collect();
    let mut members = Members::new();
    for link in links {
        if let Some(bond) = link.master.filter(|master| bonds.contains(master)) {
            let of_bond = members.entry(bond).or_default();
            of_bond.insert(link.index, link.name.clone());
        }
    }
    members
}

/// Links, and what the bonds among them are made of: where packets meet what is on a device.
fn with_members(links: &BTreeMap<u32, String>, members: &Members) -> BTreeMap<u32, String> {
    let of_bonds = links
        .keys()
        .filter_map(|index| members.get(index))
        .flatten();
    let own = links.iter().chain(of_bonds);
    own.map(|(index, name)| (*index, name.clone())).collect()
}

/// Findings, and what those about a member of a bond mean for it: it is not used in that role either.
fn of_bonds_too(mut findings: Vec<Finding>, scene: &Scene, members: &Members) -> Vec<Finding> {
    let name = |index: &u32| scene.links.iter().find(|l| l.index == *index);
    let mut more = Vec::new();
    for finding in &findings {
        if finding.severity != Severity::LinkRejected {
            continue;
        }
        let of = |(bond, of_bond): (&u32, &BTreeMap<u32, String>)| {
            let member = of_bond
                .values()
                .find(|member| finding.link.as_ref() == Some(*member))?;
            Some((name(bond)?.name.clone(), member.clone()))
        };
        if let Some((bond, member)) = members.iter().find_map(of) {
            more.push(Finding {
                what: format!("its member {member}: {}", finding.what),
                link: Some(bond),
                ..finding.clone()
            });
        }
    }
    findings.append(&mut more);
    findings
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
    let links = link::judge(scene, &stacked);
    let members = members(scene.links.iter());
    let shaped = qdisc::judge(&scene.links, &qdiscs, &options.allow_qdisc);
    let shaped = of_bonds_too(shaped, scene, &members);
    let mut known: Vec<Finding> = links.iter().chain(&shaped).cloned().collect();
    add(Topic::Link, links);
    add(Topic::Qdisc, shaped);
    let (ins, outs) = in_use(scene, options, &known);
    let wires = |of: &BTreeMap<u32, String>| with_members(of, &members);
    let lossy = veth::judge(
        scene,
        options,
        &wires(&ins),
        &wires(&outs),
        &mut surroundings,
    );
    let lossy = of_bonds_too(lossy, scene, &members);
    known.extend(lossy.iter().cloned());
    add(Topic::Loss, lossy);
    let unused =
        link::bonds_not_sent_through(scene, options.generic, &in_use(scene, options, &known).0);
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
            let mut verdicts = look(&ins, &outs, &members, &mut known)?;
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
        let receive = settings::gather(&scene.links, &wires_in)?;
        add(
            Topic::Settings,
            settings::judge(scene, options, (&ins, &wires_in), &receive),
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
/// those sent through, by index with their names; `members` is what bonds are made of, and `known` what earlier looks have found out.
///
/// Well below a millisecond while there is nothing to find: meant for every few seconds.
///
/// # Errors
/// A probe that is refused or whose answer makes no sense.
pub fn bypass(
    ins: &BTreeMap<u32, String>,
    outs: &BTreeMap<u32, String>,
    members: &Members,
    known: &mut Known,
) -> Result<Vec<Finding>, Error> {
    let (ins, outs) = (with_members(ins, members), with_members(outs, members));
    let hooks = firewall::gather(&ins, &outs, &tc::qdiscs()?, known)?;
    let mut findings = firewall::judge(&hooks, &ins, &outs, Severity::Refuse);
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// Which packets the firewall may judge just now: of those that come in by one of `ins` and leave by
/// one of `outs`, links by index with their names; what is on a member of a bond (`members`) concerns the bond. `known` is what earlier
/// looks have found out.
///
/// Well below a millisecond while nothing changed.
///
/// # Errors
/// A probe that is refused or whose answer makes no sense.
pub fn look(
    ins: &BTreeMap<u32, String>,
    outs: &BTreeMap<u32, String>,
    members: &Members,
    known: &mut Known,
) -> Result<Verdicts, Error> {
    pairs::gather::look(ins, outs, members, known)
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
