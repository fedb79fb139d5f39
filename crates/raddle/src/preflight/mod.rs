//! What `raddle run` must know before it attaches, and keeps an eye on afterwards.
//!
//! XDP forwards before netfilter, traffic control and xfrm see a packet, and past the qdisc of the
//! link it leaves by; and there are set-ups in which it loses packets without a trace. The probes
//! of [`raddle_netlink::probe`] tell what is there; the functions here decide what follows:
//!
//! * [`firewall`]: what would be bypassed (refused unless allowed);
//! * [`qdisc`]: links whose qdisc shapes what they send;
//! * [`link`]: links that XDP cannot be used on;
//! * [`veth`]: veth pairs that lose packets, and mending them;
//! * [`rules`]: routing rules that send a family's packets to the kernel;
//! * [`settings`]: what sends traffic to the kernel, or makes the kernel choose differently.
//!
//! Decisions are pure functions over facts. A probe that may not look is an error, not a pass.

mod firewall;
mod link;
mod qdisc;
mod rules;
mod settings;
mod veth;

pub(crate) use firewall::Known;
pub(crate) use settings::steering;
pub(crate) use veth::far_ends;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use raddle_netlink::probe::namespace::Namespace;
use raddle_netlink::probe::{Error, tc};
use raddle_rib::Rib;
use raddle_rib::event::{DeviceSettings, Link, Rule, Settings};
use serde::Serialize;

pub(crate) use self::rules::describe as describe_rule;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    /// Forwarded packets would bypass it: do not attach, or hand everything to the kernel.
    Refuse,
    /// The link is left to the kernel in its [`Role`].
    LinkRejected,
    /// It works, but not as well or as surely as it could.
    Warning,
}

/// What a link is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// Packets are forwarded from it.
    In,
    /// Packets are sent through it.
    Out,
    /// Either.
    Both,
}

/// What a finding is about: the module that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// Netfilter, tc filters, xfrm: [`firewall`].
    Firewall,
    /// A qdisc that shapes: [`qdisc`].
    Qdisc,
    /// A link that XDP cannot be used on: [`link`].
    Link,
    /// A link that loses what XDP redirects, or checksums: [`veth`].
    Loss,
    /// Settings: [`settings`].
    Settings,
}

/// Something that the user should know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The link that it is about; none for the whole namespace.
    pub link: Option<String>,
    /// In which role the link is concerned.
    pub role: Role,
    /// What was found.
    pub what: String,
    /// What follows from it.
    pub why: String,
    /// The command that mends it, or mended it.
    pub mend: Option<String>,
    /// It has been mended.
    pub mended: bool,
}

impl Finding {
    fn new(severity: Severity, what: impl Into<String>, why: impl Into<String>) -> Finding {
        Finding {
            severity,
            link: None,
            role: Role::Both,
            what: what.into(),
            why: why.into(),
            mend: None,
            mended: false,
        }
    }

    fn on(mut self, link: &str, role: Role) -> Finding {
        self.link = Some(link.to_owned());
        self.role = role;
        self
    }

    fn mend(mut self, command: impl Into<String>) -> Finding {
        self.mend = Some(command.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(link) = &self.link {
            write!(f, "link {link}: ")?;
        }
        write!(f, "{}: {}", self.what, self.why)?;
        match &self.mend {
            Some(command) if self.mended => write!(f, " (mended: {command})"),
            Some(command) => write!(f, "; to mend it: {command}"),
            None => Ok(()),
        }
    }
}

/// What to do about what can be mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mend {
    /// Nothing: what would lose packets is not used.
    Never,
    /// Say that it would be mended.
    Would,
    /// Mend it.
    Do,
}

/// What the user wants.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Links to forward from; when empty, all that can be used and forward.
    pub links: Vec<String>,
    /// Attach although something would be bypassed: such findings become warnings.
    pub allow_bypass: bool,
    /// Links whose qdisc may be bypassed.
    pub allow_qdisc: Vec<String>,
    /// Programs are attached in generic mode only, which has no trouble with veth.
    pub generic: bool,
    /// What to do about what can be mended.
    pub mend: Mend,
    /// The daemon itself will set the hash seed if it is 0.
    pub sets_seed: bool,
    /// This kernel has a hash seed that can be set.
    pub can_set_seed: bool,
    /// Links of which the program reads the NIC's receive hash, as the kernel does.
    pub reads_hash: BTreeSet<u32>,
}

/// What the daemon knows already.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
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
}

impl Scene {
    /// What a mirror knows, where `attached` are the links on which the XDP program is ours.
    pub(crate) fn of(rib: &Rib, attached: BTreeSet<u32>) -> Scene {
        let links: Vec<Link> = rib.links().cloned().collect();
        let takes_redirects = links
            .iter()
            .filter_map(|link| {
                let features = raddle_xdp::features(link.index).ok().flatten()?;
                Some((link.index, features.can_receive_redirects()))
            })
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
        }
    }

    fn device(&self, index: u32) -> DeviceSettings {
        self.devices.get(&index).copied().unwrap_or_default()
    }
}

/// All findings, the worst first.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Report {
    /// The findings.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Why not to attach at all.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(|f| f.severity == Severity::Refuse)
    }

    /// What may still be used, and what should be known about it.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(|f| f.severity == Severity::Warning)
    }

    /// The links that must not be used in a role, [`Role::In`] or [`Role::Out`], and why.
    pub(crate) fn rejected(&self, role: Role) -> BTreeMap<String, String> {
        let mut links = BTreeMap::new();
        for finding in self
            .findings
            .iter()
            .filter(|f| f.severity == Severity::LinkRejected)
        {
            if let Some(link) = finding.link.as_ref().filter(|_| concerns(finding, role)) {
                let mend = finding.mend.iter().map(|m| format!("; to mend it: {m}"));
                let why = format!("{}: {}", finding.what, finding.why) + &mend.collect::<String>();
                links.entry(link.clone()).or_insert(why);
            }
        }
        links
    }
}

fn concerns(finding: &Finding, role: Role) -> bool {
    finding.role == role || finding.role == Role::Both || role == Role::Both
}

/// Looks at everything, and mends what may be mended.
///
/// Costs some milliseconds, and a thread for each network namespace that is found: at start, and
/// when links have changed.
///
/// # Errors
/// A probe that is refused or whose answer makes no sense.
pub(crate) fn inspect(scene: &Scene, options: &Options) -> Result<Report, Error> {
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
pub(crate) fn inspect_by_topic(
    scene: &Scene,
    options: &Options,
) -> Result<Vec<(Topic, Finding)>, Error> {
    let qdiscs = tc::qdiscs()?;
    let namespaces = Namespace::all()?;
    let mut surroundings = veth::Surroundings::new(&scene.links, &namespaces);
    let stacked = surroundings.stacked();
    let mut findings = Vec::new();
    let mut add = |topic, found: Vec<Finding>| {
        findings.extend(found.into_iter().map(|finding| (topic, finding)));
    };
    let links = link::judge(scene, &stacked);
    let shaped = qdisc::judge(&scene.links, &qdiscs, &options.allow_qdisc);
    let mut known: Vec<Finding> = links.iter().chain(&shaped).cloned().collect();
    add(Topic::Link, links);
    add(Topic::Qdisc, shaped);
    let (ins, outs) = in_use(scene, options, &known);
    let lossy = veth::judge(scene, options, &ins, &outs, &mut surroundings);
    known.extend(lossy.iter().cloned());
    add(Topic::Loss, lossy);
    // A link that fell out now need not be looked at any more. The probes are asked even when none
    // is left, so that missing privilege is said first.
    let (ins, outs) = in_use(scene, options, &known);
    let hooks = firewall::gather(&ins, &outs, &qdiscs, &mut Known::default())?;
    if !ins.is_empty() {
        let severity = if options.allow_bypass {
            Severity::Warning
        } else {
            Severity::Refuse
        };
        let mut bypassed = firewall::judge(&hooks, &ins, &outs, severity);
        if options.allow_bypass {
            for finding in &mut bypassed {
                finding.why.push_str(", which --allow-bypass allows");
            }
        }
        add(Topic::Firewall, bypassed);
        let receive = settings::gather(&scene.links, &ins)?;
        add(
            Topic::Settings,
            settings::judge(scene, options, &ins, &receive),
        );
        add(Topic::Settings, rules::judge(scene, &ins));
    }
    Ok(findings)
}

/// Looks whether anything would be bypassed just now: `ins` are the links forwarded from, `outs`
/// those sent through, by index with their names; `known` is what earlier looks have found out.
///
/// Well below a millisecond while there is nothing to find: meant for every few seconds.
///
/// # Errors
/// A probe that is refused or whose answer makes no sense.
pub(crate) fn bypass(
    ins: &BTreeMap<u32, String>,
    outs: &BTreeMap<u32, String>,
    known: &mut Known,
) -> Result<Vec<Finding>, Error> {
    let hooks = firewall::gather(ins, outs, &tc::qdiscs()?, known)?;
    let mut findings = firewall::judge(&hooks, ins, outs, Severity::Refuse);
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// Which of these links have a qdisc just now that shapes what they send, unless it is `allowed`
/// to be bypassed. Costs one dump of qdiscs.
///
/// # Errors
/// A probe that is refused or whose answer makes no sense.
pub(crate) fn shaped(
    links: &BTreeMap<u32, String>,
    allowed: &[String],
) -> Result<Vec<Finding>, Error> {
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
        let device = scene.device(link.index);
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

#[cfg(test)]
mod tests;
