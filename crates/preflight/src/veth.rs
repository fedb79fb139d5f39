//! veth pairs and taps that lose packets without a trace, and fixing them.
//!
//! Two things go wrong between native XDP and a veth pair:
//!
//! * a redirect *to* a veth is lost unless its peer has an XDP program or GRO switched on
//!   (`veth_xdp_xmit` finds no NAPI there);
//! * a frame that a local socket sends on the peer comes *in* with its checksum left to the
//!   "hardware" (`CHECKSUM_PARTIAL`). XDP forwards it as it is, and the far end throws it away.
//!
//! Both are fixed on the peer, which is often in another network namespace. What virtual machines send by a tap comes in like the latter,
//! and nothing here can fix it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use raddle_netlink::probe::ethtool::{self, Offload};
use raddle_netlink::probe::namespace::{self, Namespace, Place};
use raddle_netlink::probe::{Error, tun};
use raddle_rib::event::Link;

use super::beneath::{beneath, bridge_of, is_upon_others, with_beneath};
use super::{Finding, Fix, Options, Role, Scene, Severity, link, tags};

/// Our links, and those of the namespaces around, read when they are asked for.
pub(super) struct Surroundings<'a> {
    ours: &'a [Link],
    namespaces: &'a [Namespace],
    /// By place in `namespaces`; none for one that could not be entered.
    links: HashMap<usize, Option<Vec<Link>>>,
    /// Taps of ours by which frames come in whose checksums may be unfinished.
    unfinished: BTreeSet<u32>,
}

impl<'a> Surroundings<'a> {
    /// `namespaces` as [`Namespace::all`] finds them: our own is the first.
    pub(super) fn new(ours: &'a [Link], namespaces: &'a [Namespace]) -> Self {
        Surroundings {
            ours,
            namespaces,
            links: HashMap::new(),
            unfinished: BTreeSet::new(),
        }
    }

    /// Asks which taps pass on what virtual machines leave unfinished, if there are any taps.
    pub(super) fn ask_taps(&mut self) -> Result<(), Error> {
        let mut ours = self.ours.iter();
        if ours.any(|link| link.kind.as_deref() == Some("tun")) {
            let taps = tun::tuns()?.into_iter().filter(|tap| tap.vnet_hdr);
            self.unfinished = taps.map(|tap| tap.index).collect();
        }
        Ok(())
    }

    fn links(&mut self, i: usize) -> Option<&[Link]> {
        let namespace = &self.namespaces[i];
        let links = self.links.entry(i);
        links
            .or_insert_with(|| namespace.run(namespace::links).ok())
            .as_deref()
    }

    /// The devices stacked upon our links, by our link's index; those in other namespaces as
    /// "NAME in namespace X".
    pub(super) fn stacked(&mut self) -> BTreeMap<u32, Stacked> {
        let mut stacked: BTreeMap<u32, Stacked> = BTreeMap::new();
        let upper = |l: &Link| l.kind.as_deref().is_some_and(link::is_stacked_kind);
        for l in self
            .ours
            .iter()
            .filter(|l| upper(l) && l.lower_netns.is_none())
        {
            self.stack(&mut stacked, l, l.name.clone());
        }
        let Some(here) = self.namespaces.first() else {
            return stacked;
        };
        for (i, namespace) in self.namespaces.iter().enumerate().skip(1) {
            let Some(links) = self.links(i) else { continue };
            let links: Vec<Link> = links
                .iter()
                .filter(|l| upper(l) && l.lower_netns.is_some())
                .cloned()
                .collect();
            if links.is_empty() {
                continue;
            }
            // What we are called over there.
            let Ok(Some(us)) = namespace.run(|| here.id()) else {
                continue;
            };
            for l in links.iter().filter(|l| l.lower_netns == Some(us)) {
                let name = format!("{} in {}", l.name, namespace.place);
                self.stack(&mut stacked, l, name);
            }
        }
        stacked
    }

    /// Notes a device, in whatever namespace, that is upon a link of ours.
    fn stack(&self, stacked: &mut BTreeMap<u32, Stacked>, upper: &Link, name: String) {
        let index = upper.lower.unwrap_or(0);
        let lower = self.ours.iter().find(|link| link.index == index);
        let below = stacked.entry(index).or_default();
        if upper.is_vlan() {
            below.vlans.push(name);
        } else if !link::takes_its_own_only(upper, lower) {
            below.others.push(name);
        }
    }

    /// Where a link gets its frames from: the far end of a veth pair, where it can be found, and the link itself if it is another.
    pub(super) fn giver(&mut self, link: &Link) -> Option<Peer<'a>> {
        if is_veth(link) {
            return self.peer(link);
        }
        Some(Peer {
            namespace: self.namespaces.first()?,
            link: link.clone(),
        })
    }

    /// The far end of a veth pair, where it can be found.
    fn peer(&mut self, link: &Link) -> Option<Peer<'a>> {
        let index = link.lower?;
        let i = match link.lower_netns {
            None => 0,
            Some(id) => self
                .namespaces
                .iter()
                .position(|n| n.id().is_ok_and(|n| n == Some(id)))?,
        };
        let links = if i == 0 {
            Some(self.ours)
        } else {
            self.links(i)
        };
        let peer = links?.iter().find(|l| l.index == index)?.clone();
        Some(Peer {
            namespace: &self.namespaces[i],
            link: peer,
        })
    }
}

/// What is stacked upon a link, but macvlans that take only what is to their own address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stacked {
    /// VLANs.
    pub(super) vlans: Vec<String>,
    /// Other devices, which see frames that XDP takes for the link's.
    pub(super) others: Vec<String>,
}

/// A device whose offloads are looked at: the far end of a veth pair, or a link itself.
pub(super) struct Peer<'a> {
    namespace: &'a Namespace,
    link: Link,
}

/// A device whose offloads can be read and set.
pub(super) trait Offloads {
    /// Whether an offload is on.
    fn is_on(&self, offload: Offload) -> Result<bool, Error>;
    /// Sets an offload.
    fn set(&self, offload: Offload, on: bool) -> Result<(), Error>;
    /// The command that sets offloads.
    fn command(&self, offloads: &[Offload], on: bool) -> String;
    /// What it is called, and where it is.
    fn place(&self) -> String;
}

impl Offloads for Peer<'_> {
    fn is_on(&self, offload: Offload) -> Result<bool, Error> {
        self.namespace
            .run(|| ethtool::is_on(&self.link.name, offload))
    }

    fn set(&self, offload: Offload, on: bool) -> Result<(), Error> {
        self.namespace
            .run(|| ethtool::set(&self.link.name, offload, on))
    }

    fn command(&self, offloads: &[Offload], on: bool) -> String {
        let name = quoted(&self.link.name);
        let command = format!("ethtool -K {name} {}", settings(offloads, on));
        self.namespace.place.command(&command)
    }

    fn place(&self) -> String {
        format!("{} in {}", self.link.name, self.namespace.place)
    }
}

impl Peer<'_> {
    fn is_ours(&self) -> bool {
        self.namespace.place == Place::Here
    }
}

/// Offloads as `ethtool -K` takes them.
fn settings(offloads: &[Offload], on: bool) -> String {
    let on = if on { "on" } else { "off" };
    let each = offloads.iter().map(|it| format!("{} {on}", it.name()));
    each.collect::<Vec<_>>().join(" ")
}

/// Whether a link is an end of a veth pair.
pub(super) fn is_veth(link: &Link) -> bool {
    link.kind.as_deref() == Some("veth")
}

/// What of the far end of a veth pair decides whether packets are lost there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarEnd {
    /// There is an XDP program.
    pub has_program: bool,
    /// GRO is on.
    pub gro: bool,
    /// Checksums are left to the other end (tx offload).
    pub tx_checksum: bool,
    /// Tags are left out of frames: that matters where there are VLANs upon the near end, in whatever namespace.
    pub hides_tags: bool,
}

/// The far ends of those of `ours` that are `watched`, by index. None where a far end cannot be
/// found or asked. Costs a look into every network namespace.
///
/// # Errors
/// The network namespaces cannot be listed.
pub fn far_ends(
    ours: &[Link],
    watched: &BTreeSet<u32>,
) -> Result<BTreeMap<u32, Option<FarEnd>>, Error> {
    let namespaces = Namespace::all()?;
    let mut surroundings = Surroundings::new(ours, &namespaces);
    let mut ends = BTreeMap::new();
    for link in ours.iter().filter(|link| watched.contains(&link.index)) {
        let state = surroundings.peer(link).and_then(|peer| {
            Some(FarEnd {
                has_program: peer.link.xdp.is_some(),
                gro: peer.is_on(Offload::Gro).ok()?,
                tx_checksum: peer.is_on(Offload::TxChecksum).ok()?,
                hides_tags: is_any_on(&peer, &tags::of_giver(link)).ok()?,
            })
        });
        ends.insert(link.index, state);
    }
    Ok(ends)
}

/// What became of a setting that loses packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is as it should be.
    Fine,
    /// It was not, and was fixed.
    Fixed,
    /// It is not, and will be fixed by `run`.
    Fixable,
    /// It is not, and stays so, for this reason.
    Broken(String),
    /// The peer could not be found or asked.
    Unknown,
}

/// Decides what a state means for the link.
///
/// 1. Fine: nothing to say.
/// 2. Fixed, or about to be: a warning that says so, since it changed the peer.
/// 3. Known to lose packets: the link is not used in this role.
/// 4. Unknown, but the kernel says that redirects are lost (`lost`): not used either.
/// 5. Unknown: a warning that says what to run at the peer.
pub(super) fn conclude(
    state: State,
    lost: bool,
    found: &dyn Fn(Severity, &str) -> Finding,
) -> Option<Finding> {
    match state {
        State::Fine => None,
        State::Fixed => Some(Finding {
            fixed: true,
            ..found(Severity::Warning, "")
        }),
        State::Fixable => Some(found(Severity::Warning, " (raddle run will fix it)")),
        State::Broken(why) => Some(found(Severity::LinkRejected, &why)),
        State::Unknown if lost => Some(found(Severity::LinkRejected, "")),
        State::Unknown => Some(found(Severity::Warning, "")),
    }
}

fn is_any_on(of: &dyn Offloads, offloads: &[Offload]) -> Result<bool, Error> {
    for offload in offloads {
        if of.is_on(*offload)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads an offload and brings it to `wanted` as far as `fix` lets.
pub(super) fn settle(of: &dyn Offloads, offload: Offload, wanted: bool, fix: Fix) -> State {
    match (of.is_on(offload), fix) {
        (Err(_), _) => State::Unknown,
        (Ok(on), _) if on == wanted => State::Fine,
        (Ok(_), Fix::Never) => State::Broken(String::new()),
        (Ok(_), Fix::Would) => State::Fixable,
        (Ok(_), Fix::Do) => match of.set(offload, wanted) {
            Ok(()) => State::Fixed,
            Err(e) => State::Broken(format!(" ({e})")),
        },
    }
}

/// What may be fixed at the far ends of veths.
pub(super) struct Fixes {
    fix: Fix,
    /// Not at those of these links.
    never: BTreeSet<u32>,
}

impl Fixes {
    /// The far ends of ports of a bridge are mostly containers': they are changed only for a bridge that the user has named, or a link
    /// upon it. Without that they are left as they are, and what comes in by such a port is the kernel's.
    pub(super) fn of_scene(scene: &Scene, options: &Options) -> Fixes {
        let named = scene.links.iter();
        let named = named.filter(|link| options.links.contains(&link.name));
        let named = named.map(|link| (link.index, link.name.clone())).collect();
        let named = with_beneath(&named, &beneath(scene.links.iter()));
        let find = |index: u32| scene.links.iter().find(|link| link.index == index);
        let ports = scene.links.iter();
        let ports = ports.filter(|link| bridge_of(link, find).is_some());
        let never = ports.map(|port| port.index);
        Fixes {
            fix: options.fix,
            never: never.filter(|index| !named.contains_key(index)).collect(),
        }
    }

    #[cfg(test)]
    pub(super) fn all(fix: Fix) -> Fixes {
        Fixes {
            fix,
            never: BTreeSet::new(),
        }
    }

    /// What may be done for a link.
    pub(super) fn of(&self, link: &Link) -> Fix {
        match self.never.contains(&link.index) {
            true => Fix::Never,
            false => self.fix,
        }
    }
}

/// Looks at all veths in use, and at other links that XDP cannot send to.
///
/// 1. In generic mode neither trap exists.
/// 2. A veth that is sent through: fine if the kernel says that it takes redirects, if its peer has
///    an XDP program, or will have ours. Otherwise the peer's GRO has to be on.
/// 3. A veth that is forwarded from: its peer has to leave no checksum to it.
/// 4. A VLAN, a bridge or a macvlan has no driver: what is below it is looked at.
/// 5. Any other link that is sent through, to which the kernel says XDP cannot redirect, is not
///    used, except one that our program is still to be attached to: many drivers only then can.
/// 6. A tap by which frames come with a header (`vnet_hdr`, as those of virtual machines have it) is not forwarded from: their checksums
///    may be unfinished.
pub(super) fn judge(
    scene: &Scene,
    options: &Options,
    ins: &BTreeMap<u32, String>,
    outs: &BTreeMap<u32, String>,
    surroundings: &mut Surroundings<'_>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if options.generic || ins.is_empty() {
        return findings;
    }
    let taps = scene.links.iter().filter(|link| {
        surroundings.unfinished.contains(&link.index) && ins.contains_key(&link.index)
    });
    findings.extend(taps.map(unfinished));
    let fixes = Fixes::of_scene(scene, options);
    for link in &scene.links {
        let is_in = ins.contains_key(&link.index);
        let takes = scene.takes_redirects.get(&link.index).copied();
        if is_upon_others(link) {
            continue;
        }
        if !is_veth(link) {
            let final_word = !is_in || scene.attached.contains(&link.index);
            if outs.contains_key(&link.index) && takes == Some(false) && final_word {
                findings.push(no_redirects(link));
            }
            continue;
        }
        let sends = outs.contains_key(&link.index) && takes != Some(true);
        if !is_in && !sends {
            continue;
        }
        let peer = surroundings.peer(link);
        if sends {
            let will_run = |p: &Peer<'_>| p.is_ours() && ins.contains_key(&p.link.index);
            let state = match &peer {
                Some(p) if p.link.xdp.is_some() || will_run(p) => State::Fine,
                Some(p) => settle(p, Offload::Gro, true, fixes.of(link)),
                None => State::Unknown,
            };
            let found = |severity, note: &str| gro_finding(link, peer.as_ref(), severity, note);
            findings.extend(conclude(state, takes == Some(false), &found));
        }
        if is_in {
            let state = match &peer {
                Some(p) => settle(p, Offload::TxChecksum, false, fixes.of(link)),
                None => State::Unknown,
            };
            let found =
                |severity, note: &str| checksum_finding(link, peer.as_ref(), severity, note);
            findings.extend(conclude(state, false, &found));
        }
    }
    findings
}

fn unfinished(link: &Link) -> Finding {
    let why = "what a virtual machine sends may have its checksum unfinished (vnet_hdr), and would be forwarded so; the kernel forwards \
               from there";
    Finding::new(Severity::LinkRejected, "tap of a virtual machine", why).on(&link.name, Role::In)
}

fn no_redirects(link: &Link) -> Finding {
    let why = "it has no ndo_xdp_xmit, so what XDP redirects to it would be lost; the kernel \
               sends there. Many drivers have it once an XDP program is attached: forward from \
               the link as well, or run with --mode generic";
    let what = "the driver takes no redirects";
    Finding::new(Severity::LinkRejected, what, why).on(&link.name, Role::Out)
}

fn gro_finding(link: &Link, peer: Option<&Peer<'_>>, severity: Severity, note: &str) -> Finding {
    let what = format!(
        "its {} has neither an XDP program nor GRO{note}",
        describe(peer.map(|p| p as _))
    );
    let why = "what XDP redirects to it is lost without a trace";
    let finding = match peer {
        Some(_) => Finding::new(severity, what, why),
        None => {
            let what = format!(
                "its {} may have neither an XDP program nor GRO",
                describe(peer.map(|p| p as _))
            );
            Finding::new(severity, what, format!("{why} then"))
        }
    };
    finding.on(&link.name, Role::Out).fix(command(
        link,
        peer.map(|p| p as _),
        &[Offload::Gro],
        true,
    ))
}

fn checksum_finding(
    link: &Link,
    peer: Option<&Peer<'_>>,
    severity: Severity,
    note: &str,
) -> Finding {
    let may = if peer.is_some() {
        "leaves"
    } else {
        "may leave"
    };
    let what = format!(
        "its {} {may} checksums unfinished (tx offload){note}",
        describe(peer.map(|p| p as _))
    );
    let why = "packets of sockets there would be forwarded with wrong checksums";
    let finding = Finding::new(severity, what, why).on(&link.name, Role::In);
    finding.fix(command(
        link,
        peer.map(|p| p as _),
        &[Offload::TxChecksum],
        false,
    ))
}

pub(super) fn describe(peer: Option<&dyn Offloads>) -> String {
    match peer {
        Some(p) => format!("veth peer {}", p.place()),
        None => "veth peer (in a network namespace that cannot be found)".to_owned(),
    }
}

/// A link's name as a word of a shell. Whoever rules the peer's namespace may have called it anything,
/// and the command is there to be copied by root.
fn quoted(name: &str) -> Cow<'_, str> {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-_.@+".contains(c);
    if name.chars().all(harmless) {
        return name.into();
    }
    format!("'{}'", name.replace('\'', r"'\''")).into()
}

/// What to run at the peer. When it cannot be found, where it is has to be left to the reader: its
/// index there is all that is known.
pub(super) fn command(
    link: &Link,
    peer: Option<&dyn Offloads>,
    offloads: &[Offload],
    on: bool,
) -> String {
    match peer {
        Some(peer) => peer.command(offloads, on),
        None => format!(
            "ethtool -K PEER {} (in the namespace of PEER, which is link {} there; its \
             `ip -d link` shows @if{})",
            settings(offloads, on),
            link.lower.unwrap_or(0),
            link.index
        ),
    }
}

#[cfg(test)]
mod tests {
    use raddle_rib::event::{Bridge, Vlan};

    use super::*;

    #[test]
    fn a_peer_may_not_name_commands() {
        for (name, expected) in [
            ("eth0", "eth0"),
            ("p-1.5@x", "p-1.5@x"),
            ("$(reboot)", "'$(reboot)'"),
            ("a';b", r"'a'\'';b'"),
        ] {
            assert_eq!(quoted(name), expected);
        }
    }

    #[test]
    fn each_state_has_its_consequence() {
        let found = |severity, note: &str| Finding::new(severity, format!("x{note}"), "y");
        for (state, lost, expected) in [
            (State::Fine, true, None),
            (State::Fixed, true, Some((Severity::Warning, true))),
            (State::Fixable, true, Some((Severity::Warning, false))),
            (
                State::Broken("why".into()),
                false,
                Some((Severity::LinkRejected, false)),
            ),
            (State::Unknown, true, Some((Severity::LinkRejected, false))),
            (State::Unknown, false, Some((Severity::Warning, false))),
        ] {
            let finding = conclude(state.clone(), lost, &found);
            assert_eq!(
                finding.map(|f| (f.severity, f.fixed)),
                expected,
                "{state:?} {lost}"
            );
        }
    }

    #[test]
    fn a_driver_without_redirects_is_judged_once_a_program_could_help_no_more() {
        let link = |index, name: &str| Link {
            index,
            name: name.into(),
            ..Link::default()
        };
        let scene = Scene {
            links: vec![
                link(2, "in"),
                link(3, "attached"),
                link(4, "out"),
                link(5, "good"),
            ],
            attached: [3].into(),
            takes_redirects: [(2, false), (3, false), (4, false), (5, true)].into(),
            ..Scene::default()
        };
        let ins = [(2, "in"), (3, "attached")]
            .map(|(i, n)| (i, n.to_owned()))
            .into();
        let outs: BTreeMap<_, _> = scene
            .links
            .iter()
            .map(|l| (l.index, l.name.clone()))
            .collect();
        let mut options = Options::default();
        let judged = |options: &Options| -> Vec<String> {
            let mut nothing = Surroundings::new(&scene.links, &[]);
            let findings = judge(&scene, options, &ins, &outs, &mut nothing);
            assert!(findings.iter().all(|f| f.role == Role::Out));
            findings.into_iter().filter_map(|f| f.link).collect()
        };
        assert_eq!(judged(&options), ["attached", "out"]);
        options.generic = true;
        assert!(judged(&options).is_empty());
    }

    #[test]
    fn far_ends_of_a_bridges_ports_are_changed_where_it_is_named() {
        let bridge = Link {
            kind: Some("bridge".into()),
            bridge: Some(Bridge::default()),
            ..Link::ethernet(2, "docker0", [2; 6])
        };
        let vlan = Link {
            kind: Some("vlan".into()),
            vlan: Some(Vlan {
                protocol: 0x8100,
                id: 5,
                egress_qos: false,
            }),
            lower: Some(2),
            ..Link::ethernet(5, "docker0.5", [2; 6])
        };
        let port = Link {
            master: Some(2),
            ..Link::ethernet(3, "veth0", [2; 6])
        };
        let own = Link::ethernet(4, "veth1", [2; 6]);
        let scene = Scene {
            links: vec![bridge, port.clone(), own.clone(), vlan],
            ..Scene::default()
        };
        let fixes = |links: &[&str]| {
            let options = Options {
                links: links.iter().map(|name| (*name).to_owned()).collect(),
                fix: Fix::Do,
                ..Options::default()
            };
            let fixes = Fixes::of_scene(&scene, &options);
            (fixes.of(&port), fixes.of(&own))
        };
        for links in [&[] as &[&str], &["veth1"]] {
            assert_eq!(fixes(links), (Fix::Never, Fix::Do));
        }
        for link in ["docker0", "docker0.5"] {
            assert_eq!(fixes(&[link]), (Fix::Do, Fix::Do));
        }
    }

    #[test]
    fn nothing_is_forwarded_from_taps_of_virtual_machines() {
        let tap = |index, name: &str| Link {
            kind: Some("tun".into()),
            ..Link::ethernet(index, name, [2; 6])
        };
        let scene = Scene {
            links: vec![tap(2, "vnet0"), tap(3, "tap0")],
            ..Scene::default()
        };
        let links = [(2, "vnet0"), (3, "tap0")].map(|(i, n)| (i, n.to_owned()));
        let links: BTreeMap<_, _> = links.into();
        let judged = |generic| -> Vec<_> {
            let options = Options {
                generic,
                ..Options::default()
            };
            let mut surroundings = Surroundings::new(&scene.links, &[]);
            surroundings.unfinished = [2].into();
            let found = judge(&scene, &options, &links, &links, &mut surroundings);
            found
                .into_iter()
                .map(|f| (f.link.unwrap(), f.role))
                .collect()
        };
        assert_eq!(judged(false), [("vnet0".to_owned(), Role::In)]);
        assert_eq!(judged(true), []);
    }

    #[test]
    fn a_peer_that_cannot_be_found_is_described_by_what_is_known() {
        let veth = Link {
            index: 5,
            name: "v".into(),
            kind: Some("veth".into()),
            lower: Some(9),
            lower_netns: Some(3),
            ..Link::default()
        };
        let scene = Scene {
            links: vec![veth],
            ..Scene::default()
        };
        let links: BTreeMap<_, _> = [(5, "v".to_owned())].into();
        let options = Options::default();
        let mut nothing = Surroundings::new(&scene.links, &[]);
        let found = judge(&scene, &options, &links, &links, &mut nothing);
        assert_eq!(found.len(), 2);
        assert!(
            found.iter().all(|f| f.severity == Severity::Warning),
            "{found:?}"
        );
        let command = found[0].fix.as_deref().unwrap();
        assert!(
            command.contains("gro on") && command.contains("link 9"),
            "{command}"
        );
        assert!(found[1].fix.as_deref().unwrap().contains("tx off"));
    }
}
