//! What native XDP would lose or go around, as [`raddle_preflight`] finds it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::facts::{Facts, Need};
use super::super::finding::{Found, Severity, count};
use super::Check;
use raddle_preflight::{self as preflight, Finding, Topic};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "xdp-loss",
        title: "links on which native XDP loses packets silently",
        source: "veth_xdp_xmit, CHECKSUM_PARTIAL, ndo_xdp_xmit",
        needs: &[Need::Xdp],
        run: |facts| traps(facts, Topic::Loss),
    },
    Check {
        id: "xdp-firewall",
        title: "rules that XDP would go around, so that raddle run does not attach",
        source: "XDP runs before netfilter, tc and xfrm",
        needs: &[Need::Xdp],
        run: |facts| traps(facts, Topic::Firewall),
    },
    Check {
        id: "xdp-qdisc",
        title: "shaping qdiscs that XDP would go around",
        source: "xdp_do_redirect goes to ndo_xdp_xmit, past the qdisc",
        needs: &[Need::Xdp],
        run: |facts| traps(facts, Topic::Qdisc),
    },
    Check {
        id: "xdp-offloads",
        title: "receive offloads that change what XDP sees",
        source: "LRO (netif_disable_lro), NETIF_F_HW_VLAN_CTAG_RX",
        needs: &[Need::Offloads],
        run: offloads,
    },
];

/// Findings of one topic, those with the same consequence together. What is lost already, because a
/// link has an XDP program now, is serious; what would be lost or gone around is a warning; a qdisc
/// is a note, since raddle leaves such links to the kernel.
fn traps(facts: &Facts, topic: Topic) -> Vec<Found> {
    let running = facts.links.values().any(|link| link.xdp.is_some());
    let of_topic = || facts.traps.iter().filter(|(of, _)| *of == topic);
    let refuses = of_topic().any(|(_, trap)| trap.severity == preflight::Severity::Refuse);
    let (severity, what) = match topic {
        Topic::Loss if running => (Severity::Serious, "XDP loses packets on"),
        Topic::Loss => (Severity::Warning, "XDP would lose packets on"),
        Topic::Firewall if !refuses => {
            (Severity::Note, "raddle run leaves packets to the kernel on")
        }
        Topic::Firewall => (
            Severity::Warning,
            "raddle run does not attach: XDP would go around rules on",
        ),
        Topic::Qdisc => (Severity::Note, "XDP would go around the qdisc of"),
        Topic::Link | Topic::Settings => return Vec::new(),
    };
    let mut by_effect: BTreeMap<&str, Vec<&Finding>> = BTreeMap::new();
    for (_, trap) in of_topic() {
        by_effect.entry(&trap.why).or_default().push(trap);
    }
    let one = |(effect, traps): (&str, Vec<&Finding>)| {
        let links: BTreeSet<&str> = traps
            .iter()
            .filter_map(|trap| trap.link.as_deref())
            .collect();
        let on = match links.len() {
            0 => "this namespace".to_owned(),
            n => count(n, "link"),
        };
        let line = |trap: &&Finding| match &trap.link {
            Some(link) => format!("{link}: {}", trap.what),
            None => trap.what.clone(),
        };
        let fixes: Vec<&str> = traps
            .iter()
            .filter_map(|trap| trap.fix.as_deref())
            .collect();
        let found = Found::new(severity, format!("{what} {on}"), effect);
        let found = found.evidence(traps.iter().map(line));
        if fixes.is_empty() {
            found
        } else {
            found.fix(fixes.join(" && "))
        }
    };
    by_effect.into_iter().map(one).collect()
}

/// For links that packets are forwarded from: LRO is a warning, tags that are taken out a note.
fn offloads(facts: &Facts) -> Vec<Found> {
    let mut findings = Vec::new();
    for link in facts.receivers() {
        let name = &link.name;
        if facts.receive.merged.contains(&link.index) {
            let found = Found::new(
                Severity::Warning,
                format!("link {name} merges received packets (LRO)"),
                "merged packets are longer than the MTU: a router has to split them again or loses \
                 them, and XDP cannot be attached in many drivers",
            );
            let found = found.evidence([format!("{name}: large-receive-offload: on")]);
            findings.push(found.fix(format!("ethtool -K {name} lro off")));
        }
        if facts.receive.untagged.contains(&link.index) {
            let found = Found::new(
                Severity::Note,
                format!("link {name} takes VLAN tags out of frames"),
                "where the driver goes on with it under XDP, frames of a VLAN that has no device here \
                 look untagged",
            );
            let found = found.evidence([format!("{name}: rx-vlan-offload: on")]);
            findings.push(found.fix(format!("ethtool -K {name} rxvlan off")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::made_up::*;
    use super::*;
    use raddle_rib::event::{Link, Vlan, XdpAttached};

    fn trap(topic: Topic) -> (Topic, Finding) {
        let finding = Finding {
            severity: preflight::Severity::Warning,
            link: Some("eth2".into()),
            role: preflight::Role::Out,
            what: "its peer has neither".into(),
            why: "lost without a trace".into(),
            fix: Some("ethtool -K peer gro on".into()),
            fixed: false,
        };
        (topic, finding)
    }

    #[test]
    fn traps_are_shown_by_topic() {
        let mut facts = multipath();
        let ids = [
            ("xdp-loss", Topic::Loss, Severity::Warning),
            ("xdp-firewall", Topic::Firewall, Severity::Note),
            ("xdp-qdisc", Topic::Qdisc, Severity::Note),
        ];
        for (id, ..) in ids {
            assert_clean(id, &facts);
        }
        facts.traps = vec![trap(Topic::Link), trap(Topic::Settings)];
        for (id, topic, severity) in ids {
            assert_clean(id, &facts);
            facts.traps.push(trap(topic));
            let said = [
                "1 link",
                "eth2: its peer has neither",
                "ethtool -K peer gro on",
            ];
            assert_found(id, &facts, severity, &said);
        }
        // Where nothing at all would be forwarded.
        let all = facts.traps.iter_mut();
        all.for_each(|(_, trap)| trap.severity = preflight::Severity::Refuse);
        let said = ["raddle run does not attach"];
        assert_found("xdp-firewall", &facts, Severity::Warning, &said);
        // With an XDP program on a link it is not a matter of what would be.
        let xdp = XdpAttached {
            mode: 1,
            program: 3,
        };
        facts.links.get_mut(&1).unwrap().xdp = Some(xdp);
        assert_found("xdp-loss", &facts, Severity::Serious, &[]);
    }

    #[test]
    fn offloads_count_on_links_that_forward() {
        let mut facts = multipath();
        assert_clean("xdp-offloads", &facts);
        facts.receive.merged = vec![1];
        assert_found(
            "xdp-offloads",
            &facts,
            Severity::Warning,
            &["ethtool -K eth1 lro off"],
        );
        facts.receive.merged.clear();
        facts.receive.untagged = vec![2];
        assert_found(
            "xdp-offloads",
            &facts,
            Severity::Note,
            &["ethtool -K eth2 rxvlan off"],
        );
        // What a VLAN upon it receives it takes as well.
        let vlan = Link {
            vlan: Some(Vlan {
                protocol: 0x8100,
                id: 5,
                egress_qos: false,
            }),
            lower: Some(2),
            ..Link::ethernet(9, "eth2.5", [2; 6])
        };
        let forwards = facts.device(2);
        facts.devices.clear();
        assert_clean("xdp-offloads", &facts);
        facts.links.insert(9, vlan);
        facts.devices.insert(9, forwards);
        assert_found(
            "xdp-offloads",
            &facts,
            Severity::Note,
            &["ethtool -K eth2 rxvlan off"],
        );
    }
}
