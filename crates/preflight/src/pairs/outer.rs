//! What the packets meet that carry others through a tunnel: this machine sends and receives them.
//!
//! Out, by the tunnel:
//!
//! 1. They pass output and postrouting, from the tunnel's own end to the other one, with the tunnel's protocol: what does anything to
//!    these there closes the tunnel.
//! 2. Where what comes back is judged by its connection, or translated, the kernel has to see what leaves, too.
//! 3. What is translated back concerns them where they have the addresses. Where something is redirected to this machine, what it sends
//!    may be.
//! 4. So do xfrm policies for what leaves, and what is hooked into output that is not known.
//! 5. Where their connections are tracked, and the table of these is nearly full, all are the kernel's.
//!
//! In, by each link that packets come in by:
//!
//! 6. They pass what is on the link and beneath it, prerouting and input, from the other end to the own one: likewise.
//! 7. 2 to 5 the other way round: what leaves, judged by its connection or translated; xfrm policies and a default for what comes in; what
//!    is hooked into input that is not known. (Connections that are masqueraded are not told from others: their replies are for this
//!    machine, and one of another machine to the same other end with the tunnel's protocol may be among them.)
//! 8. What bridges have packets pass concerns what comes in by one.
//! 9. A VXLAN takes what anybody sends: of what is translated back, packets from those addresses are the kernel's, where there is room for
//!    these ranges ([`ranges`]).
//! 10. A tunnel that is closed on all links is closed itself. Of the others, a link is that all of them are closed on; on what is left, the
//!     tunnels are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use raddle_netlink::probe::conntrack::Does;
use raddle_netlink::probe::hooks::Place;
use raddle_netlink::probe::nft::{Ruleset, Side};
use raddle_netlink::probe::tc::Direction;
use raddle_netlink::probe::xfrm;
use raddle_rib::firewall::Range;

use super::alike::Few;
use super::model::{Interval, Rules, Stage, prefix};
use super::walk::{Area, Found, Identity, Walk};
use super::{Classes, Devices, Ends, Facts, Version};
use crate::beneath::Outer;
use crate::bridged;

/// What such packets show to rules. Many tunnels may be the same in that.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shown {
    protocol: u8,
    port: Option<u16>,
    local: Option<Ipv4Addr>,
    remote: Option<Ipv4Addr>,
}

impl Shown {
    pub(super) fn of(outer: &Outer) -> Shown {
        Shown {
            protocol: outer.protocol,
            port: outer.port,
            local: outer.local,
            remote: outer.remote,
        }
    }

    /// From the own end to the other one.
    fn leaving(&self) -> Area {
        Area {
            src: vec![interval(self.local)],
            dst: match self.remote {
                Some(_) => vec![interval(self.remote)],
                None => ANYBODY.to_vec(),
            },
        }
    }

    fn coming(&self) -> Area {
        let Area { src, dst } = self.leaving();
        Area { src: dst, dst: src }
    }
}

/// Tunnels by index with their names, by what their packets show.
type Tunnels<'a> = BTreeMap<Shown, BTreeMap<u32, &'a str>>;

/// The tunnels that packets come in by ([`Side::From`]), or leave by.
fn tunnels(facts: &Facts, side: Side) -> Tunnels<'_> {
    let links = match side {
        Side::From => &facts.ins,
        Side::To => &facts.outs,
    };
    let passed = links
        .keys()
        .filter_map(|index| facts.beneath[side as usize].get(*index));
    let mut tunnels = Tunnels::new();
    for (index, outer) in passed.flat_map(|passed| &passed.tunnels) {
        let alike = tunnels.entry(Shown::of(outer)).or_default();
        alike.insert(*index, &outer.name);
    }
    tunnels
}

/// The first of these, and how many more there are.
fn names(alike: &BTreeMap<u32, &str>) -> String {
    let first = alike.values().next().copied().unwrap_or_default();
    match alike.len() {
        0 | 1 => first.to_owned(),
        n => format!("{first} and {} more", n - 1),
    }
}

/// The out-links of `few` by which what leaves is put into packets that may meet something, and what.
pub(super) fn closed(facts: &Facts, few: &Few, rules: &Rules) -> BTreeMap<u32, String> {
    let tunnels = tunnels(facts, Side::To);
    if tunnels.is_empty() {
        return BTreeMap::new();
    }
    let ways = Ways::of(facts, few, rules);
    let mut judged: BTreeMap<&Shown, String> = BTreeMap::new();
    for (shown, alike) in &tunnels {
        if let Some(rule) = ways.meets_out(shown, &names(alike)) {
            judged.insert(shown, rule);
        }
    }
    let by = |index: u32| {
        let passed = facts.beneath[1].get(index)?;
        let mut shown = passed.tunnels.values().map(Shown::of);
        shown.find_map(|shown| judged.get(&shown)).cloned()
    };
    let outs = few.outs.keys();
    outs.filter_map(|index| Some((*index, by(*index)?)))
        .collect()
}

/// Of a tunnel that takes what anybody sends, outer packets from addresses that packets are translated back from: they are ranges of the
/// links that packets come in by, and the tunnel is not closed for these (`has_ranges`). With the rules.
pub(super) fn ranges(facts: &Facts, rules: &Rules) -> Vec<(Range, String)> {
    let open = tunnels(facts, Side::From).into_keys();
    let open: Vec<Shown> = open.filter(|shown| shown.remote.is_none()).collect();
    let ins = facts.ins.keys().copied();
    let ins: BTreeSet<u32> = ins
        .filter(|index| !is_by_tunnels(facts, Side::From, *index))
        .collect();
    let outs: BTreeSet<u32> = facts.outs.keys().copied().collect();
    let back = rules.translations.back.iter();
    let back = back.filter(|(side, ..)| *side == Side::From);
    let show = |(first, last): Interval| (Version::V4.address(first), Version::V4.address(last));
    let mut ranges = Vec::new();
    for (_, src, rule) in back {
        for shown in open.iter().filter(|_| src.is_some()) {
            let range = Range {
                src: show(src.unwrap_or_default()),
                dst: show(interval(shown.local)),
                ins: ins.clone(),
                outs: outs.clone(),
            };
            ranges.push((range, format!("{rule} (translated back)")));
        }
    }
    ranges
}

/// What comes in by tunnels and is the kernel's: tunnels and links ([`raddle_rib::firewall::Firewall::tunnels`]), and the same in words.
pub(super) fn closed_in(
    facts: &Facts,
    few: &Few,
    rules: &Rules,
    ruleset: &Ruleset,
    has_ranges: bool,
) -> (BTreeSet<u32>, Vec<Ends>) {
    let tunnels = tunnels(facts, Side::From);
    let mut closed = BTreeSet::new();
    if tunnels.is_empty() {
        return (closed, Vec::new());
    }
    let mut by_tunnel: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let ways = Ways::of(facts, few, rules);
    let links: Vec<u32> = few
        .ins
        .keys()
        .copied()
        .filter(|index| !is_by_tunnels(facts, Side::From, *index))
        .collect();
    let on_link = |link: &u32| ways.on_link(*link, ruleset);
    let on_links: Vec<Option<String>> = links.iter().map(on_link).collect();
    let mut rows: Vec<BTreeMap<&Shown, String>> = vec![BTreeMap::new(); links.len()];
    let mut close = |alike: &BTreeMap<u32, &str>, rule: String| {
        closed.extend(alike.keys());
        let names = alike.values().map(|name| (*name).to_owned());
        by_tunnel.entry(rule).or_default().extend(names);
    };
    let mut left: BTreeSet<&Shown> = BTreeSet::new();
    for (shown, alike) in &tunnels {
        if let Some(rule) = ways.meets_in(shown, has_ranges) {
            close(alike, rule);
            continue;
        }
        let mut by_class: BTreeMap<(&[u8], Option<u32>), Option<String>> = BTreeMap::new();
        let mut open = links.is_empty();
        for (i, link) in links.iter().enumerate() {
            let found = on_links[i].clone().or_else(|| {
                let alone = ways.devices.is_met(Side::From, *link, &few.ins[link]);
                let class = (ways.classes.class(*link), alone.then_some(*link));
                let found = by_class.entry(class);
                found.or_insert_with(|| ways.meets_on(shown, *link)).clone()
            });
            match found {
                Some(rule) => _ = rows[i].insert(shown, rule),
                None => open = true,
            }
        }
        if open {
            left.insert(shown);
        } else if let Some(rule) = rows.first().and_then(|row| row.get(shown)) {
            close(alike, rule.clone());
        }
    }
    let mut by_rule: BTreeMap<String, (BTreeSet<String>, BTreeSet<u32>)> = BTreeMap::new();
    for (link, row) in links.iter().zip(&mut rows) {
        row.retain(|shown, _| left.contains(shown));
        if row.len() < left.len() || row.is_empty() {
            continue;
        }
        let rule = row.values().next().cloned().unwrap_or_default();
        let (from, indices) = by_rule.entry(rule).or_default();
        for index in few.like(*link) {
            indices.insert(index);
            from.extend(facts.ins.get(&index).cloned());
        }
        row.clear();
    }
    for row in &mut rows {
        for (shown, rule) in std::mem::take(row) {
            if left.remove(shown) {
                close(&tunnels[shown], rule);
            }
        }
    }
    let mut ends: Vec<Ends> = by_tunnel
        .into_iter()
        .map(|(rule, tunnels)| Ends::Tunnels { tunnels, rule })
        .collect();
    for (rule, (from, indices)) in by_rule {
        closed.extend(indices);
        ends.push(Ends::Links { from, rule });
    }
    (closed, ends)
}

/// Whether packets of a link come in or leave by tunnels alone, as of one itself, and of a bridge that has no other ports: outer packets are
/// not among them, as raddle has no tunnels within tunnels.
pub(super) fn is_by_tunnels(facts: &Facts, side: Side, index: u32) -> bool {
    let passed = facts.beneath[side as usize].get(index);
    passed.is_some_and(|passed| {
        let mut links = passed.links.keys();
        !passed.tunnels.is_empty() && links.all(|link| passed.tunnels.contains_key(link))
    })
}

/// What is the same for all tunnels.
struct Ways<'a> {
    facts: &'a Facts,
    rules: &'a Rules,
    classes: Classes,
    devices: Devices<'a>,
    /// Links that packets may leave by, one of those that no test tells apart.
    outs: Vec<u32>,
    /// Likewise these and all by which packets come in.
    all: Vec<u32>,
}

impl<'a> Ways<'a> {
    fn of(facts: &'a Facts, few: &Few, rules: &'a Rules) -> Ways<'a> {
        let classes = Classes::of(facts, rules);
        let outs = few.outs.keys().copied();
        let outs = outs.filter(|index| !is_by_tunnels(facts, Side::To, *index));
        let ins = few.ins.keys().copied();
        let ins = ins.filter(|index| !is_by_tunnels(facts, Side::From, *index));
        Ways {
            outs: classes.one_of_each(outs.clone()),
            all: classes.one_of_each(outs.chain(ins)),
            facts,
            rules,
            classes,
            devices: Devices { facts, rules },
        }
    }

    /// Rules 1 to 5.
    fn meets_out(&self, shown: &Shown, name: &str) -> Option<String> {
        let leaves = |rule: &str| format!("{rule} (what is sent in {name} may meet it)");
        let (found, _) = self.leaving(shown, &self.outs);
        if let Some(found) = found.first() {
            return Some(leaves(&found.rule));
        }
        let (found, asks) = self.coming(shown, None);
        let mut judges = found.iter();
        if let Some(found) = judges.find(|found| asks || found.translates) {
            return Some(format!(
                "{} (goes by the connection, whose other direction is what is sent in {name})",
                found.rule
            ));
        }
        if let Some(rule) = self.translated_back(&shown.leaving(), true) {
            return Some(format!(
                "{rule} (what is sent in {name} may be translated back)"
            ));
        }
        let leaving = shown.leaving();
        let places = [Place::Output, Place::Postrouting];
        self.is_told(shown, &leaving, xfrm::Direction::Out, places)
            .map(|rule| leaves(&rule))
            .or_else(|| self.is_full())
    }

    /// Rule 7: on whatever link they come in.
    fn meets_in(&self, shown: &Shown, has_ranges: bool) -> Option<String> {
        let comes = |rule: String| format!("{rule} (outer packets may meet it)");
        let (found, asks) = self.leaving(shown, &self.all);
        let mut judges = found.iter();
        if let Some(found) = judges.find(|found| asks || found.translates) {
            return Some(format!(
                "{} (goes by the connection, whose other direction outer packets are)",
                found.rule
            ));
        }
        // A connection that is translated on one link is translated on all: NAT goes by the connection.
        let (found, _) = self.coming(shown, None);
        if let Some(found) = found.iter().find(|found| found.translates) {
            return Some(format!("{} (outer packets may meet it)", found.rule));
        }
        let all = shown.remote.is_some() || !has_ranges;
        if let Some(rule) = self.translated_back(&shown.coming(), all) {
            return Some(format!("{rule} (outer packets may be translated back)"));
        }
        let coming = shown.coming();
        let places = [Place::Prerouting, Place::Input];
        self.is_told(shown, &coming, xfrm::Direction::In, places)
            .or_else(|| {
                let blocks = self.facts.defaults.block_in;
                blocks.then(|| "xfrm blocks by default (direction in)".to_owned())
            })
            .map(comes)
            .or_else(|| self.is_full())
    }

    /// Rule 6, of what is in netfilter.
    fn meets_on(&self, shown: &Shown, link: u32) -> Option<String> {
        let (found, _) = self.coming(shown, Some(link));
        let rule = &found.first()?.rule;
        Some(format!("{rule} (outer packets may meet it)"))
    }

    /// Rules 6 and 8: what concerns all that comes in by a link.
    fn on_link(&self, link: u32, ruleset: &Ruleset) -> Option<String> {
        let passed = self.facts.beneath[0].get(link);
        let mut programs = self.facts.programs.iter();
        let program = programs.find(|of| of.0 == link && of.1 == Direction::Ingress);
        let program = program.map(|(.., what)| what.clone());
        let bridged = || {
            let is_bridged = passed.is_some_and(|passed| passed.bridged);
            let met = bridged::met(&self.facts.bridged, &mut ruleset.chains.iter(), Side::From);
            met.into_iter().next().filter(|_| is_bridged)
        };
        let by_pvid = || {
            let by_pvid = passed.is_some_and(|passed| passed.by_pvid);
            bridged::met_by_pvid(&self.facts.bridged).filter(|_| by_pvid)
        };
        let rule = program.or_else(|| Some(bridged().or_else(by_pvid)?.0))?;
        Some(format!("{rule} (outer packets may meet it)"))
    }

    /// What they meet that leave by any of these links, and whether their connection is asked for.
    fn leaving(&self, shown: &Shown, outs: &[u32]) -> (Vec<Found>, bool) {
        let (mut found, mut asks) = (Vec::new(), false);
        for out in outs {
            let mut walk = self.walk(shown, [None, Some(self.classes.identity(*out))]);
            for stage in [Stage::Output, Stage::Postrouting, Stage::Anywhere] {
                walk.bases_of(&stage, &shown.leaving());
            }
            asks |= walk.asks_connection;
            found.append(&mut walk.found);
        }
        (found, asks)
    }

    /// What they meet that come in by a link, with what is on that and beneath it; or by any, without.
    fn coming(&self, shown: &Shown, link: Option<u32>) -> (Vec<Found>, bool) {
        let coming = shown.coming();
        let identity = link.map(|link| self.classes.identity(link));
        let mut walk = self.walk(shown, [identity, None]);
        walk.to_this = true;
        let mut stages = vec![Stage::Prerouting, Stage::Input, Stage::Anywhere];
        let beneath = link.map(|link| {
            let name = &self.facts.ins[&link];
            stages.extend(self.devices.on(Side::From, name));
            self.devices.beneath(Side::From, link)
        });
        for stage in &stages {
            walk.bases_of(stage, &coming);
        }
        let (mut found, mut asks) = (walk.found, walk.asks_connection);
        for (identity, tagged, stages) in beneath.into_iter().flatten() {
            let mut walk = self.walk(shown, [Some(&identity), None]);
            (walk.to_this, walk.tagged) = (true, tagged);
            for stage in &stages {
                walk.bases_of(stage, &coming);
            }
            asks |= walk.asks_connection;
            found.append(&mut walk.found);
        }
        (found, asks)
    }

    /// What translates packets of this area back, but for what is known of its sources where these are not asked for.
    fn translated_back(&self, area: &Area, sources: bool) -> Option<&String> {
        let translations = &self.rules.translations;
        let all = translations.back.iter();
        let mut asked =
            all.filter(|(side, range, _)| sources || *side == Side::To || range.is_none());
        let back = asked.find(|(side, range, _)| {
            let own = match side {
                Side::From => &area.src,
                Side::To => &area.dst,
            };
            let meets =
                |range: Interval| own.iter().any(|own| range.0 <= own.1 && own.0 <= range.1);
            range.is_none_or(meets)
        });
        back.map(|(.., rule)| rule)
            .or(translations.redirects.as_ref())
    }

    /// The xfrm policy of a direction that packets of this area may meet, or what is hooked in and not known.
    fn is_told(
        &self,
        shown: &Shown,
        area: &Area,
        direction: xfrm::Direction,
        places: [Place; 2],
    ) -> Option<String> {
        let met = |policy: &&xfrm::Policy| {
            policy.direction == direction && is_met(policy, shown.protocol, area)
        };
        if let Some(policy) = self.facts.policies.iter().find(met) {
            return Some(format!("xfrm policy {policy}"));
        }
        // Outer packets are IPv4, whatever is inside.
        let all = self
            .facts
            .foreign
            .iter()
            .chain(&self.facts.foreign_to_local);
        let mut at = all.filter(|of| places.contains(&of.place));
        let hooked = at.find(|of| of.families[0])?;
        Some(format!(
            "netfilter hook {} at {}",
            hooked.function, hooked.place
        ))
    }

    /// Rule 5.
    fn is_full(&self) -> Option<String> {
        let tracks = |of: &raddle_netlink::probe::conntrack::Tracker| {
            of.families[0] && of.does == Does::Tracks
        };
        let full = self.facts.full && self.facts.trackers.iter().any(tracks);
        full.then(|| super::FULL.to_owned())
    }

    fn walk<'w>(&'w self, shown: &Shown, links: [Option<&'w Identity>; 2]) -> Walk<'w> {
        Walk {
            tagged: false,
            rules: self.rules,
            version: Version::V4,
            links,
            protocol: Some(shown.protocol),
            port: shown.port,
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

/// Addresses that others may have: neither 0.0.0.0, 127/8, multicast nor broadcast, which engines take nothing from and send nothing to.
const ANYBODY: [Interval; 3] = [
    (1, 0x7eff_ffff),
    (0x8000_0000, 0xdfff_ffff),
    (0xf000_0000, 0xffff_fffe),
];

/// Any address where it is not known.
fn interval(address: Option<Ipv4Addr>) -> Interval {
    match address {
        Some(address) => (u32::from(address).into(), u32::from(address).into()),
        None => (0, Version::V4.last()),
    }
}

/// Whether packets of this area may meet a policy.
fn is_met(policy: &xfrm::Policy, protocol: u8, area: &Area) -> bool {
    let may = |(address, bits), own: &[Interval]| {
        let (version, number) = Version::number(address);
        let range = prefix(number, u32::from(bits), version.size());
        let mut own = own.iter();
        // A selector without addresses may be of both versions.
        bits == 0 || version == Version::V4 && own.any(|own| range.0 <= own.1 && own.0 <= range.1)
    };
    policy.if_id == 0
        && (policy.protocol == 0 || policy.protocol == protocol)
        && may(policy.src, &area.src)
        && may(policy.dst, &area.dst)
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
            port: None,
            local: Some([192, 0, 2, 1].into()),
            remote,
        };
        let passed = |index, remote| Passed {
            tunnels: [(index, outer(remote))].into(),
            ..Passed::default()
        };
        let beneath: BTreeMap<u32, Passed> = [
            (3, passed(3, Some([192, 0, 2, 2].into()))),
            // A bridge by a VXLAN, which sends to anybody.
            (4, passed(5, None)),
        ]
        .into();
        let links = [(2, "e0"), (3, "gre1"), (4, "br0")];
        Facts {
            outs: links.map(|(index, name)| (index, name.to_owned())).into(),
            beneath: [beneath.clone().into(), beneath.into()],
            ins: links.map(|(index, name)| (index, name.to_owned())).into(),
            ..Facts::default()
        }
    }

    fn which(facts: &Facts) -> Vec<u32> {
        both(facts).0
    }

    /// Out-links that are closed, and tunnels and links for what comes in by tunnels.
    fn both(facts: &Facts) -> (Vec<u32>, Vec<u32>) {
        let rules = [Version::V4, Version::V6].map(|version| (version, Rules::default()));
        let few = Few::of(facts, &rules);
        let out = closed(facts, &few, &rules[0].1)
            .into_keys()
            .flat_map(|out| few.like(out));
        let (ends, why) = closed_in(facts, &few, &rules[0].1, &Ruleset::default(), true);
        assert_eq!(ends.is_empty(), why.is_empty());
        (out.collect(), ends.into_iter().collect())
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
        assert_eq!(closes(inward.clone()), [0; 0]);
        let of = |policy| {
            let facts = Facts {
                policies: vec![policy],
                ..facts()
            };
            both(&facts).1
        };
        assert_eq!(of(policy([192, 0, 2, 2], 32, 47)), [0; 0], "out");
        assert_eq!(of(inward.clone()), [0; 0], "to the other end");
        let to = |dst: [u8; 4]| xfrm::Policy {
            dst: (dst.into(), 32),
            ..inward.clone()
        };
        assert_eq!(of(to([192, 0, 2, 1])), [3, 5]);
        assert_eq!(of(to([192, 0, 2, 9])), [0; 0]);
        let from = xfrm::Policy {
            src: ([198, 51, 100, 1].into(), 32),
            ..to([192, 0, 2, 1])
        };
        assert_eq!(of(from), [5], "from anybody");
        let blocks = Facts {
            defaults: xfrm::Defaults {
                block_in: true,
                ..xfrm::Defaults::default()
            },
            ..facts()
        };
        assert_eq!(both(&blocks), (vec![], vec![3, 5]));
    }

    #[test]
    fn what_is_on_a_link_concerns_what_it_carries() {
        let on = |link| Facts {
            programs: vec![(link, Direction::Ingress, "tc".into())],
            ..facts()
        };
        // The only other link, then a second one.
        assert_eq!(both(&on(2)).1, [3, 5]);
        let mut two = on(2);
        two.ins.insert(6, "e1".into());
        assert_eq!(both(&two).1, [2]);
        assert_eq!(
            both(&on(3)).1,
            [0; 0],
            "the row of the tunnel is closed by itself"
        );
    }

    #[test]
    fn a_full_table_of_connections_leaves_tunnels_to_the_kernel() {
        let tracker = |families| raddle_netlink::probe::conntrack::Tracker {
            families,
            does: Does::Tracks,
            who: "a rule".into(),
        };
        let full = |families, full| Facts {
            full,
            trackers: vec![tracker(families)],
            ..facts()
        };
        assert_eq!(both(&full([true, false], true)), (vec![3, 4], vec![3, 5]));
        assert_eq!(both(&full([true, false], false)), (vec![], vec![]));
        assert_eq!(
            both(&full([false, true], true)),
            (vec![], vec![]),
            "what carries them is IPv4"
        );
    }

    #[test]
    fn a_thousand_tunnels_are_judged_once() {
        let mut all = facts();
        let outer = |index: u32| Outer {
            name: format!("x{index}"),
            protocol: 17,
            port: Some(4789),
            local: Some([192, 0, 2, 1].into()),
            remote: None,
        };
        let links = (0..1000).map(|n| (1000 + n, 5000 + n));
        let passed = |vxlan: u32| Passed {
            links: [(vxlan, format!("x{vxlan}"))].into(),
            bridged: true,
            tunnels: [(vxlan, outer(vxlan))].into(),
            ..Passed::default()
        };
        let beneath: BTreeMap<u32, Passed> = links
            .clone()
            .map(|(bridge, vxlan)| (bridge, passed(vxlan)))
            .collect();
        all.beneath = [beneath.clone().into(), beneath.into()];
        for (bridge, _) in links {
            all.ins.insert(bridge, format!("b{bridge}"));
            all.outs.insert(bridge, format!("b{bridge}"));
        }
        let rules = [Version::V4, Version::V6].map(|version| (version, Rules::default()));
        let few = Few::of(&all, &rules);
        assert_eq!((few.ins.len(), few.outs.len()), (2, 2), "{:?}", few.ins);
        assert_eq!(tunnels(&all, Side::From).len(), 1);
        let all = Facts {
            defaults: xfrm::Defaults {
                block_in: true,
                ..xfrm::Defaults::default()
            },
            ..all
        };
        assert_eq!(both(&all).1.len(), 1000);
    }

    #[test]
    fn what_is_hooked_in_concerns_all_that_passes_there() {
        let hook = |place, ipv4| Hooked {
            families: [ipv4, !ipv4],
            place,
            function: "f [m]".into(),
            is_bpf: false,
        };
        let hooked = |place, ipv4| Facts {
            foreign_to_local: match place {
                Place::Output | Place::Input => vec![hook(place, ipv4)],
                _ => Vec::new(),
            },
            foreign: match place {
                Place::Output | Place::Input => Vec::new(),
                _ => vec![hook(place, ipv4)],
            },
            ..facts()
        };
        assert_eq!(which(&hooked(Place::Output, true)), [3, 4]);
        assert_eq!(which(&hooked(Place::Output, false)), [0; 0]);
        assert_eq!(which(&hooked(Place::Input, true)), [0; 0]);
        // Whatever is inside.
        assert_eq!(which(&hooked(Place::Postrouting, true)), [3, 4]);
        assert_eq!(which(&hooked(Place::Postrouting, false)), [0; 0]);
        for place in [Place::Prerouting, Place::Input] {
            let closed = |ipv4| !both(&hooked(place, ipv4)).1.is_empty();
            assert_eq!([closed(true), closed(false)], [true, false], "{place}");
        }
    }
}
