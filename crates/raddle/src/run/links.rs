//! Which links the engine uses, and for what.

use std::collections::{BTreeMap, BTreeSet};

use raddle_rib::event::Link;
use raddle_rib::image::MAX_LINKS;
use raddle_rib::{Ports, Rib};

use crate::config::Config;

/// What the engine shall use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Links to attach to, by index.
    pub attach: BTreeMap<u32, String>,
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
}

/// Decides about every link.
///
/// 1. A link that is not Ethernet, has no MAC address, is part of a bridge or bond, or carries
///    other devices (VLANs), is left to the kernel: engines do not see such packets as the kernel
///    does.
/// 2. So is a link that a probe has rejected (`rejected`: name and why).
/// 3. Of the rest, packets are forwarded from those that the user named; when none are named, from
///    all on which forwarding is on.
/// 4. Packets are sent through all of the rest that have no shaping qdisc (`shaped`: name and
///    kind), or whose qdisc the user allows to be bypassed.
///
/// # Errors
/// A link that was named and does not exist or cannot be used.
pub(super) fn plan(
    rib: &Rib,
    config: &Config,
    rejected: &BTreeMap<String, String>,
    shaped: &BTreeMap<String, String>,
) -> Result<Plan, String> {
    let carriers: BTreeSet<u32> = rib
        .links()
        .filter(|link| link.kind.as_deref() != Some("veth") && link.lower_netns.is_none())
        .filter_map(|link| link.lower)
        .collect();
    let mut plan = Plan::default();
    for link in rib.links() {
        let named = config.links.contains(&link.name);
        let why = unfit(link, &carriers).or_else(|| rejected.get(&link.name).cloned());
        if let Some(why) = why {
            if named {
                return Err(format!("link {} cannot be used: {why}", link.name));
            }
            plan.left.insert(link.name.clone(), why);
            continue;
        }
        let device = rib.device(link.index);
        if named || (config.links.is_empty() && (device.forwarding4 || device.forwarding6)) {
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
        match shaped.get(&link.name) {
            Some(kind) if !config.allow_qdisc.contains(&link.name) => {
                let why = format!(
                    "qdisc {kind} shapes what it sends, and XDP would bypass it: the kernel sends \
                     there; to bypass it: --allow-qdisc {}",
                    link.name
                );
                plan.left.insert(link.name.clone(), why);
            }
            _ => {
                plan.out.insert(link.index, link.name.clone());
            }
        }
    }
    for name in config.links.iter().chain(&config.allow_qdisc) {
        if rib.link_named(name).is_none() {
            return Err(format!(
                "there is no link '{name}' in this network namespace"
            ));
        }
    }
    Ok(plan)
}

/// Rule 1.
fn unfit(link: &Link, carriers: &BTreeSet<u32>) -> Option<String> {
    if link.flags & 8 != 0 || link.arp_type == 772 {
        return Some("loopback".into());
    }
    if !link.is_ethernet() || link.mac.is_none() {
        return Some("not Ethernet".into());
    }
    if link.master.is_some() {
        return Some("part of a bridge, bond or VRF".into());
    }
    if carriers.contains(&link.index) {
        return Some("carries other devices (VLAN, macvlan): tags are hidden from XDP".into());
    }
    if matches!(
        link.kind.as_deref(),
        Some("vlan" | "bridge" | "bond" | "macvlan" | "ipvlan" | "vxlan" | "vrf" | "dummy")
    ) {
        return Some(format!(
            "{} device",
            link.kind.as_deref().unwrap_or_default()
        ));
    }
    if link.index as usize >= MAX_LINKS {
        return Some(format!(
            "interface index {} is not below {MAX_LINKS}",
            link.index
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_rib::event::{DeviceSettings, Event};

    fn rib(links: &[(u32, &str, Option<&str>)]) -> Rib {
        let mut rib = Rib::detached();
        for (index, name, kind) in links {
            rib.apply(Event::Link(Link {
                index: *index,
                name: (*name).to_owned(),
                mac: Some([2, 0, 0, 0, 0, 1]),
                mtu: 1500,
                flags: 1,
                arp_type: 1,
                kind: kind.map(str::to_owned),
                ..Link::default()
            }));
            let forwarding = DeviceSettings {
                forwarding4: true,
                ..DeviceSettings::default()
            };
            rib.apply(Event::Device(*index, forwarding));
        }
        rib
    }

    #[test]
    fn all_fit_links_are_used_unless_some_are_named() {
        let rib = rib(&[
            (2, "a", None),
            (3, "b", Some("veth")),
            (4, "br", Some("bridge")),
        ]);
        let none = BTreeMap::new();
        let all = plan(&rib, &Config::default(), &none, &none).unwrap();
        assert_eq!(all.attach.len(), 2);
        assert!(all.left["br"].contains("bridge"));
        let one = Config {
            links: vec!["b".into()],
            ..Config::default()
        };
        let one = plan(&rib, &one, &none, &none).unwrap();
        assert_eq!(one.attach.keys().copied().collect::<Vec<_>>(), [3]);
        assert_eq!(one.out.len(), 2);
        for bad in ["br", "nope"] {
            let config = Config {
                links: vec![bad.into()],
                ..Config::default()
            };
            assert!(plan(&rib, &config, &none, &none).unwrap_err().contains(bad));
        }
    }

    #[test]
    fn a_shaped_link_is_sent_through_by_name_only() {
        let rib = rib(&[(2, "a", None), (3, "b", None)]);
        let shaped = BTreeMap::from([("b".to_owned(), "tbf".to_owned())]);
        let plan_for = |config: &Config| plan(&rib, config, &BTreeMap::new(), &shaped).unwrap();
        let without = plan_for(&Config::default());
        assert!(!without.out.contains_key(&3) && without.attach.contains_key(&3));
        assert!(without.left["b"].contains("--allow-qdisc b"));
        let allowed = Config {
            allow_qdisc: vec!["b".into()],
            ..Config::default()
        };
        assert!(plan_for(&allowed).out.contains_key(&3));
    }
}
