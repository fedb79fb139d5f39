//! What the packets meet that carry others through a tunnel: this machine sends them.
//!
//! 1. They pass output and postrouting, from the tunnel's own end to the other one, with the tunnel's protocol: what does anything to
//!    these there closes the tunnel.
//! 2. Where what comes back is judged by its connection, or translated, the kernel has to see what leaves, too.
//! 3. What is translated back concerns them where they have the addresses. Where something is redirected to this machine, what it sends
//!    may be.
//! 4. So do xfrm policies for what leaves, and what is hooked into output that is not known.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use raddle_netlink::probe::hooks::Place;
use raddle_netlink::probe::nft::Side;
use raddle_netlink::probe::xfrm;

use super::model::{Interval, Rules, Stage, prefix};
use super::walk::{Area, Identity, Walk};
use super::{Classes, Facts, Version};
use crate::beneath::Outer;

/// The out-links by which what leaves is put into packets that may meet something, and what.
pub(super) fn closed(facts: &Facts, rules: &Rules) -> BTreeMap<u32, String> {
    let tunnels = |index: &u32| {
        let beneath = facts.beneath[1].get(index).into_iter();
        beneath.flat_map(|of| of.tunnels.values())
    };
    let mut closed = BTreeMap::new();
    if facts.outs.keys().flat_map(tunnels).next().is_none() {
        return closed;
    }
    let ways = Ways::of(facts, rules);
    let mut judged: BTreeMap<&Outer, Option<String>> = BTreeMap::new();
    for index in facts.outs.keys() {
        for outer in tunnels(index) {
            let rule = judged.entry(outer).or_insert_with(|| ways.meets(outer));
            if let Some(rule) = rule {
                closed.entry(*index).or_insert_with(|| rule.clone());
            }
        }
    }
    closed
}

/// What is the same for all tunnels.
struct Ways<'a> {
    facts: &'a Facts,
    rules: &'a Rules,
    /// Links that packets may leave by, one of those that no test tells apart.
    outs: Vec<Identity>,
}

impl<'a> Ways<'a> {
    fn of(facts: &'a Facts, rules: &'a Rules) -> Ways<'a> {
        let classes = Classes::of(facts, rules);
        let mut seen = BTreeSet::new();
        let is_tunnel = |index: &u32| {
            let beneath = facts.beneath[1].get(index);
            beneath.is_some_and(|beneath| beneath.tunnels.contains_key(index))
        };
        let outs = facts.outs.keys().filter(|index| !is_tunnel(index));
        let outs = outs.filter(|index| seen.insert(classes.class(**index).to_vec()));
        Ways {
            facts,
            rules,
            outs: outs.map(|index| classes.identity(*index).clone()).collect(),
        }
    }

    /// What such packets may meet.
    fn meets(&self, outer: &Outer) -> Option<String> {
        let leaves = |rule: &str| format!("{rule} (what is sent in {} may meet it)", outer.name);
        let leaving = Area {
            src: vec![interval(outer.local)],
            dst: vec![interval(outer.remote)],
        };
        for out in &self.outs {
            let mut walk = self.walk(outer, Some(out));
            for stage in [Stage::Output, Stage::Postrouting, Stage::Anywhere] {
                walk.bases_of(&stage, &leaving);
            }
            if let Some(found) = walk.found.first() {
                return Some(leaves(&found.rule));
            }
        }
        let coming = Area {
            src: leaving.dst.clone(),
            dst: leaving.src.clone(),
        };
        let mut walk = self.walk(outer, None);
        walk.to_this = true;
        for stage in [Stage::Prerouting, Stage::Input] {
            walk.bases_of(&stage, &coming);
        }
        let asks = walk.asks_connection;
        let mut judges = walk.found.iter();
        if let Some(found) = judges.find(|found| asks || found.translates) {
            return Some(format!(
                "{} (goes by the connection, whose other direction is what is sent in {})",
                found.rule, outer.name
            ));
        }
        let translations = &self.rules.translations;
        let back = translations.back.iter().find(|(side, range, _)| {
            let own = match side {
                Side::From => leaving.src[0],
                Side::To => leaving.dst[0],
            };
            range.is_none_or(|range| range.0 <= own.1 && own.0 <= range.1)
        });
        let back = back
            .map(|(.., rule)| rule)
            .or(translations.redirects.as_ref());
        if let Some(rule) = back {
            return Some(format!(
                "{rule} (what is sent in {} may be translated back)",
                outer.name
            ));
        }
        let policy = |policy: &&xfrm::Policy| is_met(policy, outer, &leaving);
        if let Some(policy) = self.facts.policies.iter().find(policy) {
            return Some(leaves(&format!("xfrm policy {policy}")));
        }
        let local = self.facts.foreign_to_local.iter();
        let mut output = local.filter(|of| of.place == Place::Output && of.families[0]);
        let hooked = output.next()?;
        Some(leaves(&format!(
            "netfilter hook {} at {}",
            hooked.function, hooked.place
        )))
    }

    fn walk<'w>(&'w self, outer: &Outer, out: Option<&'w Identity>) -> Walk<'w> {
        Walk {
            tagged: false,
            rules: self.rules,
            version: Version::V4,
            links: [None, out],
            protocol: Some(outer.protocol),
            to_this: false,
            local_first: !self.facts.local_later[Version::V4 as usize],
            vrfs: !self.facts.masters.is_empty(),
            found: Vec::new(),
            asks_connection: false,
            strict: None,
            walked: 0,
        }
    }
}

/// Any address where it is not known.
fn interval(address: Option<Ipv4Addr>) -> Interval {
    match address {
        Some(address) => (u32::from(address).into(), u32::from(address).into()),
        None => (0, Version::V4.last()),
    }
}

/// Whether packets that leave may meet a policy.
fn is_met(policy: &xfrm::Policy, outer: &Outer, leaving: &Area) -> bool {
    let may = |(address, bits), own: Interval| {
        let (version, number) = Version::number(address);
        let range = prefix(number, u32::from(bits), version.size());
        // A selector without addresses may be of both versions.
        bits == 0 || version == Version::V4 && range.0 <= own.1 && own.0 <= range.1
    };
    policy.direction == xfrm::Direction::Out
        && policy.if_id == 0
        && (policy.protocol == 0 || policy.protocol == outer.protocol)
        && may(policy.src, leaving.src[0])
        && may(policy.dst, leaving.dst[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beneath::Passed;
    use raddle_netlink::probe::hooks::Hooked;

    fn facts() -> Facts {
        let outer = |remote| Outer {
            name: "t".into(),
            protocol: 47,
            local: Some([192, 0, 2, 1].into()),
            remote,
        };
        let passed = |index, remote| Passed {
            tunnels: [(index, outer(remote))].into(),
            ..Passed::default()
        };
        let beneath = [
            (3, passed(3, Some([192, 0, 2, 2].into()))),
            // A bridge by a VXLAN, which sends to anybody.
            (4, passed(5, None)),
        ];
        let links = [(2, "e0"), (3, "gre1"), (4, "br0")];
        Facts {
            outs: links.map(|(index, name)| (index, name.to_owned())).into(),
            beneath: [BTreeMap::new(), beneath.into()],
            ..Facts::default()
        }
    }

    fn which(facts: &Facts) -> Vec<u32> {
        closed(facts, &Rules::default()).into_keys().collect()
    }

    #[test]
    fn policies_concern_what_leaves_with_their_addresses() {
        let policy = |dst: [u8; 4], bits, protocol| xfrm::Policy {
            direction: xfrm::Direction::Out,
            src: ([0; 4].into(), 0),
            dst: (dst.into(), bits),
            protocol,
            blocks: false,
            if_id: 0,
        };
        let closes = |policy| {
            which(&Facts {
                policies: vec![policy],
                ..facts()
            })
        };
        assert_eq!(which(&facts()), [0; 0]);
        assert_eq!(closes(policy([192, 0, 2, 2], 32, 47)), [3, 4]);
        assert_eq!(closes(policy([192, 0, 2, 0], 24, 0)), [3, 4]);
        assert_eq!(closes(policy([192, 0, 2, 2], 32, 6)), [0; 0]);
        assert_eq!(closes(policy([198, 51, 100, 0], 24, 0)), [4]);
        let inward = xfrm::Policy {
            direction: xfrm::Direction::In,
            ..policy([192, 0, 2, 2], 32, 0)
        };
        assert_eq!(closes(inward), [0; 0]);
    }

    #[test]
    fn what_is_hooked_into_output_concerns_all() {
        let hooked = |place, ipv4| Facts {
            foreign_to_local: vec![Hooked {
                families: [ipv4, !ipv4],
                place,
                function: "f [m]".into(),
                is_bpf: false,
            }],
            ..facts()
        };
        assert_eq!(which(&hooked(Place::Output, true)), [3, 4]);
        assert_eq!(which(&hooked(Place::Output, false)), [0; 0]);
        assert_eq!(which(&hooked(Place::Input, true)), [0; 0]);
    }
}
