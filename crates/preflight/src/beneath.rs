//! What is beneath a link, and what is found there: packets of a link pass that, too.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use raddle_rib::below;
use raddle_rib::event::{Link, Tunnel, TunnelKind};

use super::finding::concerns;
use super::{Finding, Role, Scene, Severity};

/// By link, what packets that come in or leave by it pass besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beneath {
    links: BTreeMap<u32, Passed>,
    /// What carries tunnels: once for all of them, as there may be thousands.
    carriers: BTreeMap<u32, String>,
}

impl Beneath {
    /// Nothing beneath any link.
    pub fn new() -> Beneath {
        Beneath::default()
    }

    /// What packets of a link pass, if anything; [`Beneath::links`] has those that carry tunnels, too.
    pub fn get(&self, index: u32) -> Option<&Passed> {
        self.links.get(&index)
    }

    /// By index, all links of which anything is known.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Passed)> {
        self.links.iter().map(|(index, passed)| (*index, passed))
    }

    /// All links beneath one, by index with their names.
    pub fn links(&self, index: u32) -> impl Iterator<Item = (u32, &str)> {
        let passed = self.links.get(&index);
        let carriers = passed
            .filter(|passed| passed.carried)
            .map(|_| &self.carriers);
        let own = passed.map(|passed| &passed.links);
        let all = own.into_iter().chain(carriers).flatten();
        all.map(|(index, name)| (*index, name.as_str()))
    }

    /// What carries tunnels, where packets leave by these, likewise.
    pub fn carriers(&self) -> &BTreeMap<u32, String> {
        &self.carriers
    }
}

impl<const N: usize> From<[(u32, Passed); N]> for Beneath {
    fn from(links: [(u32, Passed); N]) -> Beneath {
        BTreeMap::from(links).into()
    }
}

impl From<BTreeMap<u32, Passed>> for Beneath {
    fn from(links: BTreeMap<u32, Passed>) -> Beneath {
        Beneath {
            links,
            ..Beneath::default()
        }
    }
}

/// What packets of a link pass besides it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// These links, by index with their names.
    pub links: BTreeMap<u32, String>,
    /// They may have tags there: the link is a VLAN, or by way of a bridge that filters VLANs.
    pub tagged: bool,
    /// A bridge is among them, or is the link: what the bridge has packets pass concerns it.
    pub bridged: bool,
    /// The link is a VLAN upon a bridge that filters VLANs, or upon such a VLAN: by an access port its frames come to the bridge without a
    /// tag, and get one there.
    pub by_pvid: bool,
    /// They leave by a tunnel, and so by what carries these ([`Beneath::carriers`]), too.
    pub carried: bool,
    /// Tunnels that packets may leave or come in by, by index: the link itself, or ports of its bridge.
    pub tunnels: BTreeMap<u32, Outer>,
}

/// The packets that carry others through a tunnel, as far as firewalls look at them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outer {
    /// The tunnel's name.
    pub name: String,
    /// Their protocol.
    pub protocol: u8,
    /// Of UDP, their destination port, in either direction.
    pub port: Option<u16>,
    /// The tunnel's own end; none where it may be any.
    pub local: Option<Ipv4Addr>,
    /// Its other end, likewise.
    pub remote: Option<Ipv4Addr>,
}

impl Outer {
    fn of(link: &Link, tunnel: &Tunnel) -> Outer {
        let is_vxlan = matches!(tunnel.kind, TunnelKind::Vxlan { .. });
        Outer {
            name: link.name.clone(),
            protocol: match tunnel.kind {
                TunnelKind::Ipip => 4,
                TunnelKind::Sit => 41,
                TunnelKind::Gre { .. } => 47,
                TunnelKind::Vxlan { .. } => 17,
            },
            port: match tunnel.kind {
                TunnelKind::Vxlan { port, .. } => Some(port),
                _ => None,
            },
            local: tunnel.local,
            // A VXLAN has others in its FDB.
            remote: tunnel.remote.filter(|_| !is_vxlan),
        }
    }
}

/// So many links are upon each other at most: a macvlan, two VLANs, a bridge, a VLAN as its port, a bond, a member. More are none that
/// engines know.
const DEEPEST: usize = 8;

/// What is beneath each of these links:
///
/// 1. Beneath a bond its members.
/// 2. Beneath a VLAN the VLANs that it is upon, the link below all of them, and what is beneath that.
/// 3. Beneath a bridge its ports, and what is beneath them.
/// 4. Beneath a macvlan the link that it is upon, and what is beneath that.
/// 5. Beneath a tunnel what carries it, for which see [`beneath_by`].
/// 6. Nothing beneath others, nor beneath VLANs that engines do not know ([`below`]).
pub fn beneath<'a>(links: impl Iterator<Item = &'a Link>) -> Beneath {
    beneath_by(links, |_| true, |_| false)
}

/// As [`beneath`], where packets come in or leave by those ports of bridges only that are `used`, and what is sent in a tunnel may leave
/// by each link that is no tunnel and `carries` it: all of these, and what is beneath them, are beneath tunnels. What is there sees
/// another packet than rules elsewhere do, as it does of what has tags.
pub fn beneath_by<'a>(
    links: impl Iterator<Item = &'a Link>,
    used: impl Fn(&Link) -> bool,
    carries: impl Fn(&Link) -> bool,
) -> Beneath {
    let links: BTreeMap<u32, &Link> = links.map(|link| (link.index, link)).collect();
    let mut members: BTreeMap<u32, Vec<&Link>> = BTreeMap::new();
    for link in links.values() {
        let bridge = bridge_of(link, |index| links.get(&index).copied());
        if let Some(master) = link.master.filter(|_| bridge.is_none() || used(link)) {
            members.entry(master).or_default().push(link);
        }
    }
    let mut known = Known {
        links,
        members,
        carriers: Passed::default(),
    };
    let mut carriers = Passed::default();
    let links = known.links.values();
    for link in links.filter(|link| link.tunnel.is_none() && carries(link)) {
        carriers.add(link);
        carriers.join(known.passed(link, 0));
    }
    carriers.tunnels.clear();
    carriers.carried = !carriers.links.is_empty();
    carriers.tagged |= carriers.carried;
    let all_carriers = std::mem::take(&mut carriers.links);
    known.carriers = carriers;
    let all = known.links.values();
    let all = all.filter_map(|link| Some((link.index, known.passed(link, 0)?)));
    Beneath {
        links: all.collect(),
        carriers: all_carriers,
    }
}

struct Known<'a> {
    links: BTreeMap<u32, &'a Link>,
    /// Members of bonds, ports of bridges.
    members: BTreeMap<u32, Vec<&'a Link>>,
    /// What is beneath each tunnel, but for the links.
    carriers: Passed,
}

impl<'a> Known<'a> {
    /// What is beneath a link, if anything is, or may be.
    fn passed(&self, link: &'a Link, depth: usize) -> Option<Passed> {
        let by_index = |index| self.links.get(&index).copied();
        let members = || self.members.get(&link.index).into_iter().flatten();
        if depth > DEEPEST {
            return None;
        }
        let mut passed = Passed::default();
        if link.bond.is_some() {
            members().for_each(|member| passed.add(member));
        } else if is_bridge(link) {
            passed.bridged = true;
            passed.tagged = link.bridge.is_some_and(|bridge| bridge.filters_vlans);
            for port in members() {
                passed.tagged |= port.is_vlan();
                passed.add(port);
                passed.join(self.passed(port, depth + 1));
            }
        } else if link.is_vlan() {
            passed.tagged = true;
            let lowers = lowers(link, by_index);
            lowers.iter().for_each(|lower| passed.add(lower));
            let filters = |lower: &&Link| lower.bridge.is_some_and(|bridge| bridge.filters_vlans);
            passed.by_pvid = lowers.iter().any(filters);
            passed.join(self.passed(lowers.first()?, depth + 1));
        } else if is_macvlan(link) {
            let lower = link.lower.filter(|_| link.lower_netns.is_none());
            let lower = lower.and_then(by_index)?;
            passed.add(lower);
            passed.join(self.passed(lower, depth + 1));
        } else if let Some(tunnel) = &link.tunnel {
            passed = self.carriers.clone();
            passed.tunnels.insert(link.index, Outer::of(link, tunnel));
        }
        let any = !passed.links.is_empty() || !passed.tunnels.is_empty();
        (any || passed.bridged).then_some(passed)
    }
}

impl Passed {
    fn add(&mut self, link: &Link) {
        self.links.insert(link.index, link.name.clone());
    }

    fn join(&mut self, beneath: Option<Passed>) {
        let beneath = beneath.unwrap_or_default();
        self.links.extend(beneath.links);
        self.tagged |= beneath.tagged;
        self.bridged |= beneath.bridged;
        self.carried |= beneath.carried;
        self.tunnels.extend(beneath.tunnels);
    }
}

/// Whether a link is a bridge, also one of which it is not known how it is set.
pub(crate) fn is_bridge(link: &Link) -> bool {
    link.bridge.is_some() || link.kind.as_deref() == Some("bridge")
}

/// Whether it is a macvlan, likewise.
pub(crate) fn is_macvlan(link: &Link) -> bool {
    link.kind.as_deref() == Some("macvlan")
}

/// Whether a link has no driver of its own, which packets would be received and sent by: that is below it, or of a tunnel wherever
/// the packets go that carry others.
pub fn is_upon_others(link: &Link) -> bool {
    link.is_vlan() || is_bridge(link) || is_macvlan(link) || link.tunnel.is_some()
}

/// The bridge that a link is a port of.
pub fn bridge_of<'a>(link: &Link, by_index: impl Fn(u32) -> Option<&'a Link>) -> Option<&'a Link> {
    by_index(link.master?).filter(|master| is_bridge(master))
}

/// Links, and what is beneath them: where packets meet what is on a device.
pub fn with_beneath(links: &BTreeMap<u32, String>, beneath: &Beneath) -> BTreeMap<u32, String> {
    let passed = || links.keys().filter_map(|index| beneath.get(*index));
    let carriers = passed().any(|of| of.carried).then(|| beneath.carriers());
    let own = links.iter().chain(passed().flat_map(|of| &of.links));
    own.chain(carriers.into_iter().flatten())
        .map(|(index, name)| (*index, name.clone()))
        .collect()
}

/// Beneath a VLAN the links that it is upon, the lowest first; none of other links, and where engines do not know the VLAN.
pub(crate) fn lowers<'a>(
    link: &'a Link,
    by_index: impl Fn(u32) -> Option<&'a Link> + Copy,
) -> Vec<&'a Link> {
    let Some(below) = below(link, by_index) else {
        return Vec::new();
    };
    let between = below.through.iter().map(|(index, _)| *index);
    let all = std::iter::once(below.lower).chain(between);
    all.filter(|index| *index != link.index)
        .filter_map(by_index)
        .collect()
}

/// The bond that a link is a member of.
fn bond_of<'a>(link: &Link, by_index: impl Fn(u32) -> Option<&'a Link>) -> Option<&'a Link> {
    by_index(link.master?).filter(|master| master.bond.is_some())
}

/// Findings, and what those about a member of a bond mean for it: it is not used in that role either.
pub(crate) fn of_bonds_too(findings: Vec<Finding>, scene: &Scene) -> Vec<Finding> {
    let links = by_index(scene);
    let bond = |link: &Link| bond_of(link, |index| links.get(&index).copied());
    let above = |link: &'_ Link| bond(link).into_iter().collect();
    and_above(findings, scene, "member", &above)
}

/// Findings, and what they mean for the links above those that they are about, where `known` are earlier ones:
///
/// 1. A VLAN is not used in a role where a link below it is not.
/// 2. A bridge is not used in a role where none of its ports is, or where there is none: what comes in by such a port is the kernel's, and
///    nothing leaves by it, which is nothing to the others.
/// 3. It is not forwarded from either where a port is a VLAN that is not for its own sake: the program may be on the link below that.
/// 4. Likewise VLANs upon such a bridge.
/// 5. A macvlan is not used in a role where the link below it is not.
pub(crate) fn of_uppers_too(
    findings: Vec<Finding>,
    known: &[Finding],
    scene: &Scene,
) -> Vec<Finding> {
    let mut all = of_vlans_too(findings.clone(), scene);
    let told: Vec<&Finding> = known.iter().chain(&all).collect();
    let bridges = of_bridges(&told, &findings, scene);
    all.extend(of_vlans_too(bridges, scene));
    of_macvlans_too(all, scene)
}

/// Rule 1.
fn of_vlans_too(findings: Vec<Finding>, scene: &Scene) -> Vec<Finding> {
    let links = by_index(scene);
    let find = |index: u32| links.get(&index).copied();
    let mut above: BTreeMap<u32, Vec<&Link>> = BTreeMap::new();
    for vlan in scene.links.iter().filter(|link| link.is_vlan()) {
        for lower in lowers(vlan, find) {
            above.entry(lower.index).or_default().push(vlan);
        }
    }
    let above = |link: &Link| above.get(&link.index).cloned().unwrap_or_default();
    and_above(findings, scene, "lower link", &above)
}

/// Rule 5.
fn of_macvlans_too(findings: Vec<Finding>, scene: &Scene) -> Vec<Finding> {
    let mut upon: BTreeMap<u32, Vec<&Link>> = BTreeMap::new();
    let macvlans = scene.links.iter().filter(|link| is_macvlan(link));
    for link in macvlans.filter(|link| link.lower_netns.is_none()) {
        if let Some(lower) = link.lower {
            upon.entry(lower).or_default().push(link);
        }
    }
    let above = |lower: &Link| upon.get(&lower.index).cloned().unwrap_or_default();
    and_above(findings, scene, "lower link", &above)
}

/// Rules 2 and 3: findings about bridges that are new with those `told` by now, `own` being the new ones about links themselves.
fn of_bridges(told: &[&Finding], own: &[Finding], scene: &Scene) -> Vec<Finding> {
    let links = by_index(scene);
    let find = |index: u32| links.get(&index).copied();
    let mut ports_of: BTreeMap<u32, Vec<&Link>> = BTreeMap::new();
    for link in &scene.links {
        if let Some(bridge) = bridge_of(link, find) {
            ports_of.entry(bridge.index).or_default().push(link);
        }
    }
    let by_link = |findings: &mut dyn Iterator<Item = &'_ Finding>| {
        let mut refused: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
        for finding in findings.filter(|finding| finding.severity == Severity::LinkRejected) {
            let link = finding.link.clone().unwrap_or_default();
            refused.entry(link).or_default().push(finding.clone());
        }
        refused
    };
    let (told, own) = (by_link(&mut told.iter().copied()), by_link(&mut own.iter()));
    let mut found = Vec::new();
    for bridge in scene.links.iter().filter(|link| is_bridge(link)) {
        let ports = ports_of.remove(&bridge.index).unwrap_or_default();
        for role in [Role::In, Role::Out] {
            let refuses = |of: &'_ BTreeMap<String, Vec<Finding>>, link: &Link| {
                let mut findings = of.get(&link.name).into_iter().flatten();
                findings.find(|finding| concerns(finding, role)).cloned()
            };
            if refuses(&told, bridge).is_some() {
                continue;
            }
            let why = |port: &&Link| refuses(&told, port);
            let vlans = ports
                .iter()
                .filter(|port| port.is_vlan() && role == Role::In);
            let by_vlan = vlans
                .into_iter()
                .find_map(|port| Some((*port, refuses(&own, port)?)));
            let reasons: Option<Vec<Finding>> = ports.iter().map(why).collect();
            let finding = match (by_vlan, reasons.as_deref(), ports.first()) {
                (Some((port, finding)), ..) => Finding {
                    what: format!("its port {}: {}", port.name, finding.what),
                    ..finding.clone()
                },
                (None, Some([]), _) => {
                    let why = "nothing comes in or leaves by it";
                    Finding::new(Severity::LinkRejected, "bridge without a port", why)
                }
                (None, Some([one]), Some(port)) => Finding {
                    what: format!("its port {}: {}", port.name, one.what),
                    ..one.clone()
                },
                (None, Some([one, ..]), Some(port)) => Finding {
                    what: format!(
                        "none of its ports can be used, as {}: {}",
                        port.name, one.what
                    ),
                    ..one.clone()
                },
                (None, ..) => continue,
            };
            found.push(finding.on(&bridge.name, role));
        }
    }
    found
}

fn by_index(scene: &Scene) -> BTreeMap<u32, &Link> {
    scene.links.iter().map(|link| (link.index, link)).collect()
}

/// Findings, and such about the links `above` those that are rejected, once for each.
fn and_above<'a>(
    mut findings: Vec<Finding>,
    scene: &'a Scene,
    what: &str,
    above: &dyn Fn(&'a Link) -> Vec<&'a Link>,
) -> Vec<Finding> {
    let named: BTreeMap<&str, &Link> = scene.links.iter().map(|l| (l.name.as_str(), l)).collect();
    let mut told = BTreeSet::new();
    let mut more = Vec::new();
    for finding in &findings {
        let link = finding.link.as_deref().and_then(|name| named.get(name));
        let Some(link) = link.filter(|_| finding.severity == Severity::LinkRejected) else {
            continue;
        };
        for upper in above(link) {
            let what = format!("its {what} {}: {}", link.name, finding.what);
            if told.insert((upper.index, finding.role, what.clone())) {
                more.push(Finding {
                    what,
                    link: Some(upper.name.clone()),
                    ..finding.clone()
                });
            }
        }
    }
    findings.append(&mut more);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_rib::event::{Bond, Bridge, Macvlan, Vlan};

    fn of_link(beneath: &Beneath, index: u32) -> &Passed {
        beneath.get(index).unwrap()
    }

    fn vlan(index: u32, name: &str, id: u16, lower: u32) -> Link {
        Link {
            kind: Some("vlan".into()),
            vlan: Some(Vlan {
                protocol: 0x8100,
                id,
                egress_qos: false,
            }),
            lower: Some(lower),
            ..Link::ethernet(index, name, [2; 6])
        }
    }

    fn scene() -> Scene {
        let bond = Link {
            kind: Some("bond".into()),
            bond: Some(Bond::default()),
            ..Link::ethernet(3, "b0", [2; 6])
        };
        let member = Link {
            master: Some(3),
            ..Link::ethernet(4, "e1", [2; 6])
        };
        Scene {
            links: vec![
                Link::ethernet(2, "e0", [2; 6]),
                bond,
                member,
                vlan(5, "e0.5", 5, 2),
                vlan(6, "e0.5.6", 6, 5),
                vlan(7, "b0.7", 7, 3),
            ],
            ..Scene::default()
        }
    }

    #[test]
    fn packets_pass_what_is_beneath() {
        let scene = scene();
        let found = beneath(scene.links.iter());
        let of = |index: u32| -> Vec<&str> { found.links(index).map(|(_, name)| name).collect() };
        assert_eq!(of(2), [""; 0]);
        assert_eq!(of(3), ["e1"]);
        assert_eq!(of(5), ["e0"]);
        assert_eq!(of(6), ["e0", "e0.5"]);
        assert_eq!(of(7), ["b0", "e1"]);
        assert!(of_link(&found, 7).tagged && !of_link(&found, 3).tagged);
        let all = with_beneath(&[(6, "e0.5.6".to_owned())].into(), &found);
        assert_eq!(all.keys().copied().collect::<Vec<_>>(), [2, 5, 6]);
    }

    #[test]
    fn what_is_found_beneath_concerns_the_link() {
        let scene = scene();
        let told = |link: &str, severity| -> Vec<String> {
            let finding = Finding::new(severity, "tbf", "").on(link, Role::Out);
            let findings = of_uppers_too(of_bonds_too(vec![finding], &scene), &[], &scene);
            assert!(findings.iter().all(|finding| finding.role == Role::Out));
            let told = findings.into_iter().skip(1);
            told.map(|f| format!("{}: {}", f.link.unwrap_or_default(), f.what))
                .collect()
        };
        let rejected = Severity::LinkRejected;
        assert_eq!(told("e0", Severity::Warning), [""; 0]);
        assert_eq!(
            told("e0", rejected),
            [
                "e0.5: its lower link e0: tbf",
                "e0.5.6: its lower link e0: tbf"
            ]
        );
        assert_eq!(told("e0.5", rejected), ["e0.5.6: its lower link e0.5: tbf"]);
        assert_eq!(
            told("e1", rejected),
            [
                "b0: its member e1: tbf",
                "b0.7: its lower link b0: its member e1: tbf"
            ]
        );
    }

    fn bridge(index: u32, name: &str, filters_vlans: bool) -> Link {
        Link {
            kind: Some("bridge".into()),
            bridge: Some(Bridge {
                filters_vlans,
                protocol: 0x8100,
                is_special: false,
            }),
            ..Link::ethernet(index, name, [2; 6])
        }
    }

    fn port(link: Link, bridge: u32) -> Link {
        Link {
            master: Some(bridge),
            ..link
        }
    }

    /// A bridge with a wire, a bond and a VLAN as ports, a VLAN upon it, and a macvlan upon the other wire.
    fn bridged(filters_vlans: bool) -> Scene {
        let bond = Link {
            bond: Some(Bond::default()),
            ..Link::ethernet(4, "b0", [2; 6])
        };
        let macvlan = Link {
            kind: Some("macvlan".into()),
            macvlan: Some(Macvlan { mode: 1 }),
            lower: Some(6),
            ..Link::ethernet(9, "m0", [4; 6])
        };
        Scene {
            links: vec![
                bridge(2, "br0", filters_vlans),
                port(Link::ethernet(3, "e0", [2; 6]), 2),
                port(bond, 2),
                port(Link::ethernet(5, "e1", [2; 6]), 4),
                Link::ethernet(6, "e2", [2; 6]),
                port(vlan(7, "e2.5", 5, 6), 2),
                vlan(8, "br0.7", 7, 2),
                macvlan,
            ],
            ..Scene::default()
        }
    }

    #[test]
    fn packets_pass_the_ports_of_their_bridge() {
        let scene = bridged(false);
        let of = |found: &Beneath, index: u32| -> Vec<u32> {
            let all: BTreeSet<u32> = found.links(index).map(|(index, _)| index).collect();
            all.into_iter().collect()
        };
        let all = beneath(scene.links.iter());
        assert_eq!(of(&all, 2), [3, 4, 5, 6, 7]);
        assert_eq!(of(&all, 8), [2, 3, 4, 5, 6, 7]);
        assert_eq!(of(&all, 9), [6]);
        assert!(
            of_link(&all, 2).bridged
                && of_link(&all, 8).bridged
                && !of_link(&all, 7).bridged
                && !of_link(&all, 9).bridged
        );
        assert!(of_link(&all, 2).tagged, "a port is a VLAN");
        let some = beneath_by(scene.links.iter(), |port| port.index == 4, |_| false);
        assert_eq!(of(&some, 2), [4, 5]);
        assert!(!of_link(&some, 2).tagged && of_link(&some, 8).tagged);
        let none = beneath_by(scene.links.iter(), |_| false, |_| false);
        assert!(of_link(&none, 2).links.is_empty() && of_link(&none, 2).bridged);
        assert!(!of_link(&all, 8).by_pvid);
        let filters = bridged(true);
        let some = beneath_by(filters.links.iter(), |port| port.index == 3, |_| false);
        assert!(
            of_link(&some, 2).tagged && of_link(&some, 8).by_pvid && !of_link(&some, 2).by_pvid
        );
    }

    #[test]
    fn what_is_sent_in_tunnels_passes_the_links_that_carry_it() {
        let tunnel = |index, name: &str, kind| Link {
            tunnel: Some(Tunnel {
                kind,
                local: Some([192, 0, 2, 1].into()),
                remote: Some([192, 0, 2, 2].into()),
                ttl: 64,
                tos: 0,
                df: raddle_rib::event::TunnelDf::Set,
                link: 0,
                is_special: false,
            }),
            ..Link::ethernet(index, name, [2; 6])
        };
        let gre = tunnel(
            10,
            "gre1",
            TunnelKind::Gre {
                ikey: None,
                okey: None,
            },
        );
        let vxlan = TunnelKind::Vxlan {
            vni: 5,
            port: 4789,
            sports: (0, 0),
            learns: false,
            checksum: false,
            ttl_inner: false,
        };
        let mut scene = bridged(false);
        let vxlan = port(tunnel(11, "vxlan5", vxlan), 2);
        scene.links.extend([gre, vxlan]);
        let of = |found: &Beneath, index: u32| -> Vec<u32> {
            let all: BTreeSet<u32> = found.links(index).map(|(index, _)| index).collect();
            all.into_iter().collect()
        };
        // In: by whatever comes.
        let ins = beneath(scene.links.iter());
        assert_eq!(of(&ins, 10), [0; 0]);
        assert!(!of_link(&ins, 10).tagged && !of_link(&ins, 10).bridged);
        assert_eq!(of_link(&ins, 10).tunnels[&10].protocol, 47);
        assert_eq!(
            of_link(&ins, 2).tunnels.keys().copied().collect::<Vec<_>>(),
            [11]
        );
        // Out: by a bridge of which a tunnel is a port, too, and that is no circle.
        let carries = |link: &Link| [2, 6].contains(&link.index);
        let outs = beneath_by(scene.links.iter(), |port| port.index != 7, carries);
        assert_eq!(of(&outs, 10), [2, 3, 4, 5, 6, 11]);
        assert!(of_link(&outs, 10).tagged && of_link(&outs, 10).bridged);
        assert_eq!(
            of_link(&outs, 10)
                .tunnels
                .keys()
                .copied()
                .collect::<Vec<_>>(),
            [10]
        );
        assert_eq!(of(&outs, 2), [2, 3, 4, 5, 6, 11]);
        let remote = |found: &Beneath| of_link(found, 2).tunnels[&11].remote;
        assert_eq!(remote(&outs), None, "its FDB has others");
        assert_eq!(of_link(&outs, 8).tunnels.len(), 1, "the VLAN upon it");
    }

    #[test]
    fn links_in_a_circle_end() {
        let links = [port(vlan(3, "a.5", 5, 2), 2), bridge(2, "a", false)];
        assert_eq!(beneath(links.iter()).links(2).count(), 2);
    }

    #[test]
    fn a_bridge_is_used_by_those_ports_that_can_be() {
        let scene = bridged(false);
        let reject =
            |link: &str, role| Finding::new(Severity::LinkRejected, "tbf", "").on(link, role);
        let told = |found: Vec<Finding>, known: &[Finding]| -> Vec<String> {
            let count = found.len();
            let all = of_uppers_too(of_bonds_too(found, &scene), known, &scene);
            let words = |f: &Finding| {
                let link = f.link.as_deref().unwrap_or_default();
                format!("{link} {:?}: {}", f.role, f.what)
            };
            all.iter().skip(count).map(words).collect()
        };
        use Role::{Both, In, Out};
        assert_eq!(told(vec![reject("e0", Both)], &[]), [""; 0]);
        assert_eq!(
            told(vec![reject("e1", Out), reject("e0", Both)], &[]),
            ["b0 Out: its member e1: tbf"]
        );
        // The last of its ports.
        let known = [reject("e0", Both), reject("e2.5", Out)];
        assert_eq!(
            told(vec![reject("b0", Both)], &known),
            [
                "br0 Out: none of its ports can be used, as e0: tbf",
                "br0.7 Out: its lower link br0: none of its ports can be used, as e0: tbf"
            ]
        );
        assert_eq!(
            told(
                vec![reject("b0", Out)],
                &[reject("br0", Out), reject("e0", Out), reject("e2.5", Out)]
            ),
            [""; 0],
            "told already"
        );
        // The link below a VLAN takes the program with it; what is on the VLAN itself does not.
        assert_eq!(
            told(vec![reject("e2", In)], &[]),
            [
                "e2.5 In: its lower link e2: tbf",
                "m0 In: its lower link e2: tbf"
            ]
        );
        assert_eq!(
            told(vec![reject("e2.5", In)], &[]),
            [
                "br0 In: its port e2.5: tbf",
                "br0.7 In: its lower link br0: its port e2.5: tbf"
            ]
        );
        let alone = Scene {
            links: vec![bridge(2, "br0", false)],
            ..Scene::default()
        };
        let found = of_uppers_too(Vec::new(), &[], &alone);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|f| f.what == "bridge without a port"));
        let one = Scene {
            links: vec![bridge(2, "br0", false), scene.links[1].clone()],
            ..Scene::default()
        };
        let found = of_uppers_too(vec![reject("e0", Out)], &[], &one);
        assert_eq!(found[1].what, "its port e0: tbf");
    }
}
