//! Links that XDP cannot be used on, or that the kernel treats in ways it would miss.

use std::collections::BTreeMap;

use raddle_image::MAX_LINKS;
use raddle_rib::event::{Bond, Link};
use raddle_rib::vrf_of;
use raddle_select::{BondMode, BondPolicy};

use super::{Finding, Role, Scene, Severity};

/// `IFF_LOOPBACK`.
const LOOPBACK: u32 = 8;

/// Kinds of device that look inside, or add to, what their lower device receives.
pub(super) fn is_stacked_kind(kind: &str) -> bool {
    matches!(
        kind,
        "vlan" | "macvlan" | "macvtap" | "ipvlan" | "ipvtap" | "macsec" | "dsa"
    )
}

/// Decides about every link. `stacked`: the devices on top of a link, by its index; those in other
/// namespaces are there too.
///
/// 1. Loopback, or not Ethernet with a 6-byte address: not used.
/// 2. An interface index that the image has no room for: not used.
/// 3. A port of a bridge, bond or team: not used. What comes in by it is the master's. One in a VRF is used: it is only
///    looked up elsewhere.
/// 4. A device made of other devices (bridge, VLAN, tunnel, ...): not used. XDP on it runs
///    late or not at all, and what is sent through it must pass its own code. A bond is used whose driver runs a program on all its
///    members and sends by them what XDP redirects to it ([`refused_bond`]), unless a member of it is one that would not be used
///    by rules 1, 2, 4, 5 or 6 itself.
/// 5. A device with VLANs or the like on top: not forwarded from. A tag that hardware or veth
///    has taken out of the frame is invisible to XDP, and packets for ipvlan look like our own.
/// 6. One with somebody else's XDP program: not forwarded from.
pub(super) fn judge(scene: &Scene, stacked: &BTreeMap<u32, Vec<String>>) -> Vec<Finding> {
    let names: BTreeMap<u32, &Link> = scene.links.iter().map(|l| (l.index, l)).collect();
    let mut findings = Vec::new();
    for link in &scene.links {
        let mut reject = |role, what: String, why: &str| {
            let finding = Finding::new(Severity::LinkRejected, what, why);
            findings.push(finding.on(&link.name, role));
        };
        if link.flags & LOOPBACK != 0 {
            reject(Role::Both, "loopback".into(), "there is nothing to forward");
            continue;
        }
        if !link.is_ethernet() || link.mac.is_none() {
            reject(
                Role::Both,
                "not Ethernet".into(),
                "raddle writes Ethernet headers only",
            );
            continue;
        }
        if link.index as usize >= MAX_LINKS {
            let what = format!("interface index {}", link.index);
            reject(
                Role::Both,
                what,
                &format!("raddle has room for indices below {MAX_LINKS}"),
            );
            continue;
        }
        let in_vrf = vrf_of(link, |index| names.get(&index).copied()).is_some();
        if let Some(master) = link.master.filter(|_| !in_vrf) {
            let what = match names.get(&master) {
                Some(m) => format!(
                    "part of {} {}",
                    m.kind.as_deref().unwrap_or("device"),
                    m.name
                ),
                None => format!("part of device {master}"),
            };
            reject(
                Role::Both,
                what,
                "what comes in by it is not routed on its own",
            );
            continue;
        }
        if let Some(bond) = link.bond {
            if let Some(why) = refused_bond(bond) {
                reject(
                    Role::Both,
                    why,
                    "the driver of bonds runs no XDP program there",
                );
                continue;
            }
            let members = || scene.links.iter().filter(|l| l.master == Some(link.index));
            if let Some(member) = members().find(|member| !is_end(member)) {
                let what = format!("its member {} is no Ethernet link of its own", member.name);
                reject(Role::Both, what, "the kernel forwards there");
                continue;
            }
            if let Some(member) = members().find(|member| member.bond_queue != 0) {
                let what = format!(
                    "its member {} has a queue_id, {}",
                    member.name, member.bond_queue
                );
                reject(
                    Role::Out,
                    what,
                    "packets of that queue leave by it in the kernel, and XDP has no queues",
                );
            }
            if let Some(member) = members().find(|member| member.xdp.is_some()) {
                let what = format!("its member {} has an XDP program", member.name);
                reject(
                    Role::In,
                    what,
                    "a bond gives its program to all its members",
                );
            }
            if let Some((member, upper)) = members().find_map(|member| {
                let upper = stacked.get(&member.index)?.first()?;
                Some((member, upper))
            }) {
                let what = format!("{upper} is stacked upon its member {}", member.name);
                reject(
                    Role::In,
                    what,
                    "frames for it can look to XDP like frames for the bond",
                );
            }
        } else if let Some(kind) = link.kind.as_deref().filter(|kind| !is_simple_kind(kind)) {
            let why = "XDP on it runs late or not at all; the kernel forwards there";
            reject(Role::Both, format!("{kind} device"), why);
            continue;
        }
        if let Some(upper) = stacked.get(&link.index).and_then(|all| all.first()) {
            let why = "frames for it can look to XDP like frames for this link; the kernel \
                       forwards from here";
            reject(Role::In, format!("{upper} is stacked upon it"), why);
        }
        if let Some(xdp) = link.xdp.filter(|_| !scene.attached.contains(&link.index)) {
            let mode = match xdp.mode {
                1 => "native",
                2 => "generic",
                3 => "offloaded",
                _ => "several modes",
            };
            let what = format!("XDP program {} is attached already ({mode})", xdp.program);
            let off = if xdp.mode == 2 {
                "xdpgeneric off"
            } else {
                "xdp off"
            };
            let why = format!(
                "a link has one XDP program; see: bpftool prog show id {}; what raddle has left there itself \
                 (on-exit = \"keep\") goes by raddle detach",
                xdp.program
            );
            let finding = Finding::new(Severity::LinkRejected, what, why).on(&link.name, Role::In);
            findings.push(finding.fix(format!("ip link set dev {} {off}", link.name)));
        }
    }
    findings
}

/// Bonds that are not sent through, `ins` being the links that are forwarded from.
///
/// The driver of bonds passes what is redirected on to a member's `ndo_xdp_xmit` without looking whether it has one (`bond_xdp_xmit`, to
/// Linux 6.18): without, the kernel crashes. It sees to it that all members have one, and refuses others, only while a program is on
/// the bond that runs in the drivers of its members (`bond_xdp_set`, `bond_enslave`).
pub(super) fn bonds_not_sent_through(
    scene: &Scene,
    generic: bool,
    ins: &BTreeMap<u32, String>,
) -> Vec<Finding> {
    let bonds = scene.links.iter().filter(|link| link.bond.is_some());
    let refused = bonds.filter(|link| generic || !ins.contains_key(&link.index));
    let found = refused.map(|link| {
        let why = "a bond is sent through only while the program is on it, in the drivers of its members: else a member whose driver \
                   knows no XDP could crash the kernel";
        let finding = Finding::new(Severity::LinkRejected, "the program is not on the bond", why);
        finding.on(&link.name, Role::Out)
    });
    found.collect()
}

/// Why XDP is not used on a bond, as far as that goes by how it is set; none where it can be (`bond_xdp_check`, Linux 5.15).
fn refused_bond(bond: Bond) -> Option<String> {
    // The monitor does not see what XDP takes (`bond_rcv_validate`).
    if bond.by_traffic {
        return Some(
            "bond whose members any packet keeps up (arp_interval, and arp_validate none or backup)"
                .to_owned(),
        );
    }
    let (mode, policy) = (
        BondMode::from_number(bond.mode),
        BondPolicy::from_number(bond.policy),
    );
    match (mode, policy) {
        (Some(BondMode::RoundRobin | BondMode::ActiveBackup), _) => None,
        (Some(BondMode::Xor | BondMode::Lacp), Some(policy)) => match policy {
            BondPolicy::VlanSrcMac => Some(format!("bond with xmit_hash_policy {}", policy.name())),
            _ => None,
        },
        (Some(BondMode::Xor | BondMode::Lacp), None) => {
            Some(format!("bond with xmit_hash_policy {}", bond.policy))
        }
        (Some(mode), _) => Some(format!("bond of mode {}", mode.name())),
        (None, _) => Some(format!("bond of mode {}", bond.mode)),
    }
}

/// Whether a link is the end of a wire, as far as XDP is concerned.
fn is_end(link: &Link) -> bool {
    let is_simple = link.kind.as_deref().is_none_or(is_simple_kind);
    is_simple && link.is_ethernet() && (link.index as usize) < MAX_LINKS
}

/// Kinds of device that are the end of a wire, as far as XDP is concerned. Physical ones have no
/// kind.
fn is_simple_kind(kind: &str) -> bool {
    matches!(kind, "veth" | "tun" | "netdevsim")
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_rib::event::XdpAttached;

    fn ethernet(index: u32, name: &str) -> Link {
        Link {
            index,
            name: name.into(),
            mac: Some([2, 0, 0, 0, 0, 1]),
            arp_type: 1,
            ..Link::default()
        }
    }

    fn judged(links: Vec<Link>, upper: &[(u32, &str)]) -> Vec<(String, Role, String)> {
        let mut stacked: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for (lower, name) in upper {
            stacked.entry(*lower).or_default().push((*name).to_owned());
        }
        let scene = Scene {
            links,
            attached: [40].into(),
            ..Scene::default()
        };
        judge(&scene, &stacked)
            .into_iter()
            .map(|f| (f.link.unwrap(), f.role, f.what))
            .collect()
    }

    #[test]
    fn each_rule_rejects_what_it_says() {
        let xdp = Some(XdpAttached {
            mode: 1,
            program: 7,
        });
        let kind = |kind: &str| Some(kind.to_owned());
        for (link, expected) in [
            (ethernet(2, "eth0"), None),
            (
                Link {
                    kind: kind("veth"),
                    ..ethernet(2, "v")
                },
                None,
            ),
            (
                Link {
                    flags: LOOPBACK,
                    ..ethernet(1, "lo")
                },
                Some((Role::Both, "loopback")),
            ),
            (
                Link {
                    arp_type: 65534,
                    ..ethernet(2, "wg0")
                },
                Some((Role::Both, "not Ethernet")),
            ),
            (
                Link {
                    mac: None,
                    ..ethernet(2, "ib0")
                },
                Some((Role::Both, "not Ethernet")),
            ),
            (ethernet(16_383, "high"), None),
            (
                ethernet(16_384, "high"),
                Some((Role::Both, "interface index 16384")),
            ),
            (
                Link {
                    master: Some(9),
                    ..ethernet(2, "port")
                },
                Some((Role::Both, "part of bridge br0")),
            ),
            (
                Link {
                    master: Some(8),
                    ..ethernet(2, "port")
                },
                Some((Role::Both, "part of device 8")),
            ),
            (
                Link {
                    kind: kind("vlan"),
                    ..ethernet(2, "v.5")
                },
                Some((Role::Both, "vlan device")),
            ),
            (
                Link {
                    kind: kind("dummy"),
                    ..ethernet(2, "d")
                },
                Some((Role::Both, "dummy device")),
            ),
            (
                ethernet(30, "base"),
                Some((Role::In, "base.5 is stacked upon it")),
            ),
            (
                Link {
                    xdp,
                    ..ethernet(2, "busy")
                },
                Some((Role::In, "XDP program 7 is attached already (native)")),
            ),
            (
                Link {
                    xdp,
                    ..ethernet(40, "ours")
                },
                None,
            ),
            (
                Link {
                    master: Some(7),
                    ..ethernet(2, "slave")
                },
                None,
            ),
        ] {
            let name = link.name.clone();
            let bridge = Link {
                kind: kind("bridge"),
                ..ethernet(9, "br0")
            };
            let vrf = Link {
                kind: kind("vrf"),
                ..ethernet(7, "red")
            };
            let found = judged(vec![link, bridge, vrf], &[(30, "base.5")]);
            let found: Vec<_> = found.iter().filter(|f| f.0 == name).collect();
            match (found.as_slice(), expected) {
                ([], None) => {}
                ([(_, role, what)], Some(expected)) => assert_eq!((*role, what.as_str()), expected),
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn bonds_are_used_whose_driver_runs_the_program() {
        let bond = |mode, policy| Link {
            kind: Some("bond".to_owned()),
            bond: Some(Bond {
                mode,
                policy,
                by_traffic: false,
            }),
            ..ethernet(2, "b0")
        };
        let member = |index, name: &str| Link {
            master: Some(2),
            ..ethernet(index, name)
        };
        let of = |links: Vec<Link>, upper: &[(u32, &str)]| -> Vec<(Role, String)> {
            let found = judged(links, upper).into_iter();
            let of_bond = found.filter(|(name, ..)| name == "b0");
            of_bond.map(|(_, role, what)| (role, what)).collect()
        };
        for (mode, policy, refused) in [
            (0, 0, None),
            (1, 5, None),
            (2, 1, None),
            (4, 4, None),
            (4, 5, Some("bond with xmit_hash_policy vlan+srcmac")),
            (3, 0, Some("bond of mode broadcast")),
            (5, 0, Some("bond of mode balance-tlb")),
            (9, 0, Some("bond of mode 9")),
        ] {
            let found = of(vec![bond(mode, policy), member(3, "e0")], &[]);
            let found: Vec<_> = found.iter().map(|(role, what)| (*role, &**what)).collect();
            let expected: Vec<_> = refused.map(|what| (Role::Both, what)).into_iter().collect();
            assert_eq!(found, expected, "{mode}, {policy}");
        }
        let mut by_traffic = bond(2, 1);
        by_traffic.bond = Some(Bond {
            mode: 2,
            policy: 1,
            by_traffic: true,
        });
        assert_eq!(of(vec![by_traffic], &[])[0].0, Role::Both);
        let scene = Scene {
            links: vec![bond(4, 1), member(3, "e0")],
            ..Scene::default()
        };
        let ins: BTreeMap<u32, String> = [(2, "b0".to_owned())].into();
        assert!(bonds_not_sent_through(&scene, false, &ins).is_empty());
        assert_eq!(bonds_not_sent_through(&scene, true, &ins).len(), 1);
        let found = bonds_not_sent_through(&scene, false, &BTreeMap::new());
        assert_eq!((found.len(), found[0].role), (1, Role::Out));
        let vlan = Link {
            kind: Some("vlan".to_owned()),
            ..member(4, "e1.5")
        };
        let found = of(vec![bond(4, 1), member(3, "e0"), vlan], &[]);
        assert_eq!(found[0].0, Role::Both);
        assert!(found[0].1.contains("its member e1.5"), "{found:?}");
        let queued = Link {
            bond_queue: 3,
            ..member(4, "e1")
        };
        let found = of(vec![bond(4, 1), member(3, "e0"), queued], &[]);
        assert_eq!(
            found,
            [(Role::Out, "its member e1 has a queue_id, 3".to_owned())]
        );
        let busy = Link {
            xdp: Some(XdpAttached {
                mode: 1,
                program: 7,
            }),
            ..member(4, "e1")
        };
        let found = of(vec![bond(4, 1), member(3, "e0"), busy], &[(3, "m0")]);
        let expected = [
            (Role::In, "its member e1 has an XDP program".to_owned()),
            (Role::In, "m0 is stacked upon its member e0".to_owned()),
        ];
        assert_eq!(found, expected);
    }
}
