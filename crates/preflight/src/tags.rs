//! Tags that XDP does not see: some devices take them out of frames, and keep them beside these.
//!
//! * A NIC does so with what it receives (`rx-vlan-hw-parse`, `rx-vlan-stag-hw-parse`).
//! * A veth gets frames as its far end was given them, where the tag of a VLAN is beside the frame while the far end
//!   says that it would put it in (`tx-vlan-hw-insert`, `tx-vlan-stag-hw-insert`): `validate_xmit_vlan` does only if not.
//!   What the veth itself is set to does not matter.
//!
//! A frame of a VLAN then looks like an untagged one, or one with a tag like one with another. That is so in native and
//! in generic mode: both run before the kernel looks at the tag (`__netif_receive_skb_core`), but for generic programs of bonds, which are not
//! used ([`super::link`]).

use std::collections::BTreeMap;

use raddle_netlink::probe::ethtool::Offload;
use raddle_rib::event::Link;

use super::beneath::{bridge_of, is_upon_others};
use super::veth::{Fixes, Offloads, Stacked, State, command, conclude, describe, is_veth, settle};
use super::{Finding, Fix, Role, Scene};

/// A link whose frames have to have their tags in them.
pub(super) struct Asked<'a> {
    /// The link.
    pub(super) link: &'a Link,
    /// Whose frames would look like others: `frames of e0.5, which is upon it,`.
    whose: String,
}

/// Which links have to be asked, where packets that are forwarded from come in by `wires`: those that have a VLAN upon them, in
/// whatever network namespace, and every port of a bridge; the members of a bond in its place. Other links without VLANs are not asked.
///
/// A bridge takes tagged frames in whatever it does with them: where it filters no VLANs and has none upon it, those to its own MAC
/// address come up to it and are dropped there. Without its tag such a frame would be forwarded.
pub(super) fn to_ask<'a>(
    scene: &'a Scene,
    wires: &BTreeMap<u32, String>,
    stacked: &BTreeMap<u32, Stacked>,
) -> Vec<Asked<'a>> {
    let links: BTreeMap<u32, &Link> = scene.links.iter().map(|l| (l.index, l)).collect();
    let find = |index: u32| links.get(&index).copied();
    let vlan = |index: u32| Some(stacked.get(&index)?.vlans.first()?.as_str());
    let whose = |link: &Link| {
        if let Some(vlan) = vlan(link.index) {
            return Some(format!("frames of {vlan}, which is upon it,"));
        }
        let bridge = bridge_of(link, find)?;
        Some(match vlan(bridge.index) {
            Some(vlan) => format!("frames of {vlan}, which is upon {},", bridge.name),
            None => format!("tagged frames, which {} takes in,", bridge.name),
        })
    };
    let is_wire = |link: &&Link| {
        let is_one = link.bond.is_none() && !is_upon_others(link);
        is_one && wires.contains_key(&link.index)
    };
    let asked = scene.links.iter().filter(is_wire).filter_map(|link| {
        let of_bond = || find(link.master?).filter(|master| master.bond.is_some());
        let whose = whose(link).or_else(|| whose(of_bond()?))?;
        Some(Asked { link, whose })
    });
    asked.collect()
}

/// The offloads that must be off where a link gets its frames from. Both, whatever tags its VLANs have: with a tag less, a frame
/// with two of them looks like one with the other.
pub(super) fn of_giver(link: &Link) -> [Offload; 2] {
    match is_veth(link) {
        true => [Offload::TxVlan, Offload::TxServiceVlan],
        false => [Offload::RxVlan, Offload::RxServiceVlan],
    }
}

/// Decides about the links that are asked; `giver` is where a link gets its frames from, if that can be found.
///
/// 1. Both offloads are off, or the driver has none: fine.
/// 2. What is on at the far end of a veth is switched off, as far as `fix` lets: all of it, or the link is not forwarded from. A NIC
///    is left as it is, for many begin anew when that is changed, and others use it: the link is not forwarded from.
/// 3. The far end of a veth cannot be found or asked: not forwarded from.
/// 4. A veth for which it is not said that it may be fixed ([`Fixes`]): as if `fix` were never.
///
/// What is sent is not concerned.
pub(super) fn judge<'a, P: Offloads + 'a>(
    fixes: &Fixes,
    asked: &[Asked<'_>],
    giver: &mut dyn FnMut(&Link) -> Option<P>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Asked { link, whose } in asked {
        let giver = giver(link);
        let giver = giver.as_ref().map(|giver| giver as &dyn Offloads);
        let offloads = of_giver(link);
        let fix = match is_veth(link) {
            true => fixes.of(link),
            false => Fix::Never,
        };
        let (state, on) = match giver {
            Some(giver) => settle_all(giver, &offloads, fix),
            None => (State::Unknown, offloads.to_vec()),
        };
        let found = |severity, note: &str| {
            let what = match (is_veth(link), &state) {
                (true, State::Unknown) => {
                    format!("its {} may leave VLAN tags out of frames", describe(giver))
                }
                (true, _) => format!(
                    "its {} leaves VLAN tags out of frames{note}",
                    describe(giver)
                ),
                (false, State::Unknown) => "it may take VLAN tags out of frames".to_owned(),
                (false, _) => format!("it takes VLAN tags out of frames{note}"),
            };
            let why = format!("{whose} would look to XDP like others");
            let finding = Finding::new(severity, what, why).on(&link.name, Role::In);
            finding.fix(command(link, giver, &on, false))
        };
        findings.extend(conclude(state.clone(), true, &found));
    }
    findings
}

/// Brings all of some offloads to off as far as `fix` lets: the worst state that one is in, and which were on, or may be.
fn settle_all(of: &dyn Offloads, offloads: &[Offload], fix: Fix) -> (State, Vec<Offload>) {
    let mut worst = State::Fine;
    let mut on = Vec::new();
    let rank = |state: &State| match state {
        State::Fine => 0,
        State::Fixed => 1,
        State::Fixable => 2,
        State::Unknown => 3,
        State::Broken(_) => 4,
    };
    for offload in offloads {
        let state = settle(of, *offload, false, fix);
        if state != State::Fine {
            on.push(*offload);
        }
        if rank(&state) > rank(&worst) {
            worst = state;
        }
    }
    (worst, on)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;
    use crate::Severity;
    use raddle_netlink::probe::Error;
    use raddle_rib::event::{Bond, Bridge};

    /// A device: what is on, what stays on, and whether it answers.
    struct Fake<'a> {
        on: &'a RefCell<BTreeSet<Offload>>,
        fixed: Vec<Offload>,
        silent: bool,
    }

    fn refused() -> Error {
        Error::Io {
            what: "change an offload of a link",
            source: std::io::Error::from_raw_os_error(libc::EOPNOTSUPP),
        }
    }

    impl Offloads for Fake<'_> {
        fn is_on(&self, offload: Offload) -> Result<bool, Error> {
            match self.silent {
                true => Err(refused()),
                false => Ok(self.on.borrow().contains(&offload)),
            }
        }

        fn set(&self, offload: Offload, on: bool) -> Result<(), Error> {
            assert!(!on);
            if self.fixed.contains(&offload) {
                return Err(refused());
            }
            self.on.borrow_mut().remove(&offload);
            Ok(())
        }

        fn command(&self, offloads: &[Offload], on: bool) -> String {
            assert!(!on);
            let names: Vec<_> = offloads.iter().map(|it| it.name()).collect();
            names.join(",")
        }

        fn place(&self) -> String {
            "p in namespace far".to_owned()
        }
    }

    const NIC: [Offload; 2] = [Offload::RxVlan, Offload::RxServiceVlan];
    const FAR: [Offload; 2] = [Offload::TxVlan, Offload::TxServiceVlan];

    fn link(kind: Option<&str>) -> Link {
        Link {
            kind: kind.map(str::to_owned),
            ..Link::ethernet(2, "e0", [2; 6])
        }
    }

    /// What is found of a link, and what is on afterwards.
    fn judged(
        kind: Option<&str>,
        on: &[Offload],
        fixed: &[Offload],
        fix: Fix,
    ) -> (Option<Finding>, BTreeSet<Offload>) {
        let (on, link) = (RefCell::new(on.iter().copied().collect()), link(kind));
        let asked = [Asked {
            link: &link,
            whose: "frames of e0.5, which is upon it,".to_owned(),
        }];
        let mut found = judge(&Fixes::all(fix), &asked, &mut |_| {
            Some(Fake {
                on: &on,
                fixed: fixed.to_vec(),
                silent: false,
            })
        });
        assert!(found.len() < 2);
        (found.pop(), on.take())
    }

    #[test]
    fn a_nic_that_takes_tags_out_is_not_forwarded_from_and_left_as_it_is() {
        for kind in [None, Some("tun"), Some("veth")] {
            assert_eq!(judged(kind, &[], &[], Fix::Never).0, None);
        }
        let (found, _) = judged(None, &NIC[..1], &[], Fix::Never);
        let found = found.unwrap();
        assert_eq!(
            (found.severity, found.role),
            (Severity::LinkRejected, Role::In)
        );
        assert_eq!(found.what, "it takes VLAN tags out of frames");
        assert_eq!(found.fix.as_deref(), Some("rxvlan"));
        let (found, on) = judged(None, &NIC, &[], Fix::Do);
        let found = found.unwrap();
        assert!(!found.fixed && found.severity == Severity::LinkRejected);
        assert_eq!(found.fix.as_deref(), Some("rxvlan,rx-vlan-stag-hw-parse"));
        assert_eq!(on.len(), 2);
    }

    #[test]
    fn of_a_veth_the_far_end_counts() {
        // What it is set to itself does not.
        assert_eq!(judged(Some("veth"), &NIC, &[], Fix::Never).0, None);
        let (found, _) = judged(Some("veth"), &FAR, &[], Fix::Never);
        let found = found.unwrap();
        assert_eq!(
            (found.severity, found.role),
            (Severity::LinkRejected, Role::In)
        );
        assert_eq!(
            found.what,
            "its veth peer p in namespace far leaves VLAN tags out of frames"
        );
        assert_eq!(found.fix.as_deref(), Some("txvlan,tx-vlan-stag-hw-insert"));
        let (found, on) = judged(Some("veth"), &FAR[1..], &[], Fix::Do);
        assert!(found.unwrap().fixed && on.is_empty());
        let (found, on) = judged(Some("veth"), &FAR, &[], Fix::Would);
        let found = found.unwrap();
        assert_eq!(found.severity, Severity::Warning);
        assert!(found.what.contains("raddle run will fix it"));
        assert_eq!(on.len(), 2);
        // One of two stays on.
        let (found, on) = judged(Some("veth"), &FAR, &FAR[..1], Fix::Do);
        let found = found.unwrap();
        assert_eq!(found.severity, Severity::LinkRejected);
        assert!(found.what.contains("not supported"), "{}", found.what);
        assert_eq!(on, [Offload::TxVlan].into());
        let veth = link(Some("veth"));
        let asked = [Asked {
            link: &veth,
            whose: "frames of e0.5, which is upon it,".to_owned(),
        }];
        let found = judge(&Fixes::all(Fix::Do), &asked, &mut |_| None::<Fake<'_>>);
        assert_eq!(found[0].severity, Severity::LinkRejected);
        assert!(
            found[0].what.contains("cannot be found"),
            "{}",
            found[0].what
        );
        let on = RefCell::default();
        let found = judge(&Fixes::all(Fix::Do), &asked, &mut |_| {
            Some(Fake {
                on: &on,
                fixed: Vec::new(),
                silent: true,
            })
        });
        assert_eq!(found[0].severity, Severity::LinkRejected);
    }

    #[test]
    fn ports_of_bridges_are_asked() {
        let bridge = |filters_vlans| Link {
            kind: Some("bridge".into()),
            bridge: Some(Bridge {
                filters_vlans,
                protocol: 0x8100,
                is_special: false,
            }),
            ..Link::ethernet(2, "br0", [2; 6])
        };
        let of = |index, name: &str, master| Link {
            master: Some(master),
            ..Link::ethernet(index, name, [2; 6])
        };
        let bond = Link {
            bond: Some(Bond::default()),
            ..of(4, "b0", 2)
        };
        let asked = |filters, stacked: &[(u32, &str)]| -> Vec<String> {
            let scene = Scene {
                links: vec![bridge(filters), of(3, "p", 2), bond.clone(), of(5, "m", 4)],
                ..Scene::default()
            };
            let with = |name: &str| Stacked {
                vlans: vec![name.to_owned()],
                others: Vec::new(),
            };
            let stacked = stacked.iter().map(|(at, name)| (*at, with(name))).collect();
            let wires = (2..=5).map(|index| (index, String::new())).collect();
            let asked = to_ask(&scene, &wires, &stacked);
            let words = |it: &Asked<'_>| format!("{}: {}", it.link.name, it.whose);
            asked.iter().map(words).collect()
        };
        for filters in [false, true] {
            assert_eq!(
                asked(filters, &[]),
                [
                    "p: tagged frames, which br0 takes in,",
                    "m: tagged frames, which br0 takes in,"
                ]
            );
        }
        assert_eq!(
            asked(false, &[(2, "br0.5")]),
            [
                "p: frames of br0.5, which is upon br0,",
                "m: frames of br0.5, which is upon br0,"
            ]
        );
    }

    #[test]
    fn only_what_has_vlans_is_asked() {
        let bond = Link {
            bond: Some(Bond::default()),
            ..Link::ethernet(5, "b0", [2; 6])
        };
        let member = Link {
            master: Some(5),
            ..Link::ethernet(6, "e6", [2; 6])
        };
        let scene = Scene {
            links: vec![
                Link::ethernet(2, "e2", [2; 6]),
                Link::ethernet(3, "e3", [2; 6]),
                Link::ethernet(4, "e4", [2; 6]),
                bond,
                member,
            ],
            ..Scene::default()
        };
        let with = |name: &str| Stacked {
            vlans: vec![name.to_owned()],
            others: Vec::new(),
        };
        let stacked = [
            (2, with("e2.5")),
            (4, with("e4.5 in namespace x")),
            (5, with("b0.5")),
        ]
        .into();
        let asked = |wires: &[u32]| -> Vec<String> {
            let wires = wires.iter().map(|index| (*index, String::new())).collect();
            let asked = to_ask(&scene, &wires, &stacked);
            asked
                .iter()
                .map(|it| format!("{}: {}", it.link.name, it.whose))
                .collect()
        };
        assert_eq!(
            asked(&[2, 3, 4, 5, 6]),
            [
                "e2: frames of e2.5, which is upon it,",
                "e4: frames of e4.5 in namespace x, which is upon it,",
                "e6: frames of b0.5, which is upon it,"
            ]
        );
        assert_eq!(asked(&[3]), [""; 0]);
    }
}
