//! Which pairs of links no firewall concerns.
//!
//! Of each IP version and pair of in-link and out-link, all packets are looked at at once: any that
//! come in by the one and leave by the other, with any addresses. A rule then certainly does not
//! match, may match, or certainly matches. "Free" is proved; whatever is not known is not free.
//!
//! 1. On the way are the base chains of prerouting (which knows the in-link), forward (both) and
//!    postrouting (the out-link), those of ingress of the in-link and of egress of the out-link, of
//!    nftables and of legacy iptables. Input and output are not, nor is what ARP has; for bridges see 15.
//! 2. Rules are walked in order, and through jumps. Tests of links, of the IP version and of addresses are
//!    decided; all others may hold. Where a link belongs to a VRF, either of the two may be seen.
//!    No forwarded packet is to an address of table local where all packets, also those of VRFs, are looked up there first.
//!    `addrtype` asks that table; `fib` may ask a VRF's, so it is decided only where there is none.
//!    The mark is 0: what may set it concerns the packet (rule 4), and so do tc filters; senders in other namespaces cannot.
//! 3. A rule that only accepts, returns or jumps does nothing to a packet. One that certainly matches
//!    and accepts ends its base chain, no other one.
//! 4. Everything else concerns the packet: drop and policy drop, reject, queue, translation, marks, log,
//!    limits, counters, sets that packets change, flow tables, what this version does not know.
//!    Only `notrack`, and the counter that every rule of iptables has, do not.
//! 5. What may be met by any packet closes the pair. What only some addresses meet is a range, and the rest of the
//!    pair is free. More than [`MOST_RANGES`] of a version close the pairs that they are on.
//! 6. What is translated is translated back: packets from the addresses that `dnat` sends to, or to those that
//!    `snat` writes, are ranges on all pairs; all are closed where these are not known. Replies to
//!    `masquerade` and `redirect` are to and from this machine, and are not forwarded.
//! 7. With translation, ICMP errors are the kernel's: they may tell of a translated flow. With connection
//!    tracking or reassembly, fragments are; and all packets while the table of connections is nearly full.
//! 8. A tc filter or tcx program closes its link's row (ingress) or column (egress). IPVS closes all, as does xfrm's
//!    default where it blocks. An xfrm policy is a range on all pairs, and
//!    ICMP errors are the kernel's: it asks about the packets that they quote (`xfrm_in_fwd_icmp`, Linux 6.9).
//! 9. A chain of `inet` at ingress drops IPv6 packets whose extension headers it cannot follow, whatever its rules
//!    (`nft_do_chain_inet_ingress`): with one, packets that have any are the kernel's, as with tracking.
//! 10. Where packets of a pair may be translated, or judged by their connection with more than one outcome, the kernel has to see
//!     the connection's other packets: what comes in by the pair's out-link or leaves by its in-link, and has the addresses that
//!     are concerned the other way round, is concerned, too.
//! 11. A rule is asked to translate by a connection's first packet, and the others are translated whatever links they come and go
//!     by: the addresses that such a rule concerns are concerned on all pairs.
//! 12. A match of xtables that looks at transport headers drops packets in which they are cut short or in a fragment, and
//!     `-p` of ip6tables those whose extension headers it cannot follow, whatever the rule does with others (`hotdrop`): where a
//!     pair may meet one, these are the kernel's.
//! 13. What is hooked into netfilter and is neither of the above nor known to be harmless closes all: programs of BPF, kernel modules.
//! 14. What is on a link beneath another ([`crate::Beneath`]) concerns that, too. Where packets of a VLAN pass it, they have tags, with
//!     which tests may see another EtherType and no addresses: there all tests may hold.
//! 15. What bridges have packets pass ([`crate::bridged`]) closes the rows of links that come in by a bridge, or the columns of those that
//!     leave by one.
//! 16. What leaves by a tunnel is sent by this machine in packets of its own: what these may meet closes the columns of the tunnel and of
//!     links above it ([`outer`]). What is on any link that they may leave by is beneath the tunnel (14). Likewise packets that what comes in
//!     by a tunnel is taken out of.
//! 17. Links that nothing of this tells apart are judged once ([`alike`]).

mod alike;
pub(crate) mod gather;
mod merge;
mod model;
mod nft;
mod outer;
mod walk;
mod words;
mod xt;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use raddle_netlink::probe::conntrack::{Does, Tracker};
use raddle_netlink::probe::hooks::Hooked;
use raddle_netlink::probe::nft::{BaseChain, Family, Hook, Ruleset, Side};
use raddle_netlink::probe::tc::Direction;
use raddle_netlink::probe::{iptables, xfrm};
use raddle_rib::firewall::{Firewall, Guarded, Pairs, Range};

use crate::Beneath;
use crate::bridged::{self, Bridged};

use self::alike::Few;
use self::merge::Merge;
use self::model::{Interval, Rules, Stage, Step, Test, prefix};
use self::walk::{Area, Found, Identity, Walk};
pub use self::words::Punted;

/// Links by index.
pub(crate) type Links = BTreeMap<u32, String>;

/// Ranges of one version that the programs can look at.
const MOST_RANGES: usize = 16;
/// In words.
const FULL: &str = "the table of connections is nearly full (nf_conntrack_count, nf_conntrack_max)";

/// What the firewall may judge, and what says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// What is the kernel's.
    pub firewall: Firewall,
    /// By which rules.
    pub why: Vec<Why>,
    /// What turns on connection tracking or reassembly, or looks at headers, for IPv4 and IPv6.
    pub tracked: [Option<String>; 2],
    /// Whether connections are tracked, of IPv4 and IPv6.
    pub connections: [bool; 2],
    /// What tunnels carry and only the kernel takes in ([`Firewall::tunnels`]), and what says so.
    pub ends: Vec<Ends>,
}

/// Packets that the kernel alone takes out of tunnels, and a rule that they may meet before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Those of some tunnels.
    Tunnels {
        /// Their names.
        tunnels: BTreeSet<String>,
        /// The rule.
        rule: String,
    },
    /// Those of any tunnel that come in by some links.
    Links {
        /// Their names.
        from: BTreeSet<String>,
        /// The rule.
        rule: String,
    },
}

/// A rule that concerns forwarded packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// Of which family.
    pub family: Version,
    /// The pairs of in-link and out-link that it concerns, by index.
    pub pairs: Pairs,
    /// Only packets of these addresses; else all of them.
    pub range: Option<Range>,
    /// The rule in the words of the tool that shows it.
    pub rule: String,
}

/// An IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Version::V4 => "IPv4",
            Version::V6 => "IPv6",
        })
    }
}

impl Version {
    /// Bytes of an address.
    fn size(self) -> usize {
        match self {
            Version::V4 => 4,
            Version::V6 => 16,
        }
    }

    fn last(self) -> u128 {
        prefix(0, 0, self.size()).1
    }

    fn nfproto(self) -> u128 {
        match self {
            Version::V4 => 2,
            Version::V6 => 10,
        }
    }

    fn ether(self) -> u128 {
        match self {
            Version::V4 => 0x0800,
            Version::V6 => 0x86dd,
        }
    }

    /// The address that begins at this offset of the header, and its size.
    fn address_at(self, offset: u32) -> Option<(Side, usize)> {
        match (self, offset) {
            (Version::V4, 12) | (Version::V6, 8) => Some((Side::From, self.size())),
            (Version::V4, 16) | (Version::V6, 24) => Some((Side::To, self.size())),
            _ => None,
        }
    }

    fn address(self, n: u128) -> IpAddr {
        match self {
            Version::V4 => Ipv4Addr::from(n as u32).into(),
            Version::V6 => Ipv6Addr::from(n).into(),
        }
    }

    fn number(address: IpAddr) -> (Version, u128) {
        match address {
            IpAddr::V4(a) => (Version::V4, u32::from(a).into()),
            IpAddr::V6(a) => (Version::V6, a.into()),
        }
    }

    /// A prefix where it is one.
    fn show(self, (first, last): Interval) -> String {
        let bits = 8 * self.size() as u32 - (first ^ last).count_ones();
        match prefix(first, bits, self.size()) == (first, last) {
            true if first == last => self.address(first).to_string(),
            true => format!("{}/{bits}", self.address(first)),
            false => format!("{}-{}", self.address(first), self.address(last)),
        }
    }
}

/// All that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    ins: Links,
    outs: Links,
    /// What is beneath these links, where they come in and where they leave: what is on it concerns them.
    beneath: [Beneath; 2],
    /// What bridges have packets pass.
    bridged: Bridged,
    /// The bridge, bond or VRF of a link that has one.
    masters: BTreeMap<u32, (u32, String)>,
    /// Its number, which stands for the whole of it.
    generation: Option<u32>,
    tables: Vec<iptables::Table>,
    trackers: Vec<Tracker>,
    /// The table of connections has hardly any room.
    full: bool,
    services: usize,
    /// What is hooked in that nobody else tells of.
    foreign: Vec<Hooked>,
    /// The same where only packets to or from this machine pass.
    foreign_to_local: Vec<Hooked>,
    /// Of IPv4 and IPv6, whether packets may be looked up elsewhere before table local.
    local_later: [bool; 2],
    /// Links by index, what is on them and on which side.
    programs: Vec<(u32, Direction, String)>,
    /// One of those that are on what carries tunnels, on the way out.
    on_carriers: Option<String>,
    policies: Vec<xfrm::Policy>,
    defaults: xfrm::Defaults,
}

/// Decides, by the rules of this module.
pub(crate) fn judge(facts: &Facts, ruleset: &Ruleset) -> Verdicts {
    let mut verdicts = Verdicts::default();
    let lowered = [Version::V4, Version::V6].map(|version| {
        let mut rules = nft::lower(ruleset, version);
        rules.append(xt::lower(&facts.tables, version));
        (version, rules)
    });
    let [(_, of_outer), _] = &lowered;
    let few = Few::of(facts, &lowered);
    let by_tunnels = outer::closed(facts, &few, of_outer);
    for (i, (version, rules)) in lowered.iter().enumerate() {
        let version = *version;
        let mut merge = Merge::new(version, &few.ins, &few.outs);
        let strict = by_rules(facts, &few, rules, &mut merge);
        for (side, range, rule) in &rules.translations.back {
            let mut area = Area::all(version);
            if let Some(range) = range {
                match side {
                    Side::From => area.src = vec![*range],
                    Side::To => area.dst = vec![*range],
                }
            }
            merge.all(&area, &format!("{rule} (translated back)"));
        }
        by_hooks(facts, version, &mut merge);
        for (tunnel, rule) in &by_tunnels {
            merge.some(&Area::all(version), rule, |pair| pair.1 == *tunnel);
        }
        by_bridges(facts, ruleset, &mut merge);
        let tracks = |t: &Tracker| t.families[i] && t.does == Does::Tracks;
        verdicts.connections[i] = facts.trackers.iter().any(tracks);
        if facts.full && verdicts.connections[i] {
            merge.all(&Area::all(version), FULL);
        }
        let by_policy = facts.policies.iter().any(meets);
        let (pairs, ranges, why) = merge.finish();
        verdicts.tracked[i] =
            tracker(&facts.trackers, i).or_else(|| parser(facts, ruleset, version));
        let drops =
            |rule| format!("{rule} drops headers that it cannot read, whatever else it says");
        verdicts.tracked[i] = verdicts.tracked[i].take().or_else(|| strict.map(drops));
        let guarded = Guarded {
            pairs,
            ranges,
            fragments: verdicts.tracked[i].is_some(),
            icmp_errors: rules.translations.any || by_policy,
        };
        match version {
            Version::V4 => verdicts.firewall.v4 = guarded,
            Version::V6 => verdicts.firewall.v6 = guarded,
        }
        verdicts.why.extend(why);
    }
    few.spread(&mut verdicts);
    let mut has_ranges = true;
    for (range, rule) in outer::ranges(facts, of_outer) {
        let known = &mut verdicts.firewall.v4.ranges;
        let holds = |wide: &Range| {
            let lies_in = |inner: (IpAddr, IpAddr), outer: (IpAddr, IpAddr)| {
                outer.0 <= inner.0 && inner.1 <= outer.1
            };
            lies_in(range.src, wide.src)
                && lies_in(range.dst, wide.dst)
                && range.ins.is_subset(&wide.ins)
        };
        if known.iter().any(holds) {
            continue;
        }
        if known.len() >= MOST_RANGES {
            has_ranges = false;
            continue;
        }
        known.push(range.clone());
        verdicts.why.push(Why {
            family: Version::V4,
            pairs: Pairs::of_blocks([merge::block(&range)]),
            range: Some(range),
            rule,
        });
    }
    let (tunnels, ends) = outer::closed_in(facts, &few, of_outer, ruleset, has_ranges);
    (verdicts.firewall.tunnels, verdicts.ends) = (tunnels, ends);
    verdicts
}

/// Who turns on connection tracking or reassembly for a family, in words.
fn tracker(trackers: &[Tracker], family: usize) -> Option<String> {
    let mut all = trackers.iter().filter(|t| t.families[family]);
    let first = all.next()?;
    let what = match first.does {
        Does::Tracks => "connection tracking",
        Does::Reassembles => "reassembly",
    };
    let more = match all.count() {
        0 => String::new(),
        n => format!(", as do {n} more"),
    };
    Some(format!("{} turns on {what}{more}", first.who))
}

/// Rule 9: a chain that drops what it cannot follow, in words.
fn parser(facts: &Facts, ruleset: &Ruleset, version: Version) -> Option<String> {
    let parses = |chain: &&BaseChain| {
        let ingress = (chain.family, chain.hook) == (Family::Inet, Hook::Ingress);
        let mut names = facts.ins.iter().flat_map(|(index, name)| {
            let beneath = facts.beneath[0].links(*index).map(|(_, name)| name);
            std::iter::once(name.as_str()).chain(beneath)
        });
        ingress && names.any(|name| chain.is_on(name))
    };
    let mut chains = ruleset.chains.iter();
    let chain = chains.find(parses).filter(|_| version == Version::V6)?;
    Some(format!(
        "nft {} {} {} (hook ingress) drops headers that it cannot follow",
        chain.family, chain.table, chain.name
    ))
}

/// Rules 1 to 5. Links that no test tells apart are walked once. The rule of rule 12, if there is one.
fn by_rules(facts: &Facts, few: &Few, rules: &Rules, merge: &mut Merge<'_>) -> Option<String> {
    if rules.bases.is_empty() {
        return None;
    }
    let version = merge.version;
    let classes = Classes::of(facts, rules);
    let walk_as = |tagged: bool, links: [Option<&Identity>; 2], stages: &[Stage]| {
        let mut walk = Walk {
            tagged,
            rules,
            version,
            links,
            protocol: None,
            port: None,
            to_this: false,
            local_first: !facts.local_later[version as usize],
            vrfs: !facts.masters.is_empty(),
            found: Vec::new(),
            asks_connection: false,
            strict: None,
            walked: 0,
        };
        for stage in stages {
            walk.bases(stage);
        }
        Rc::new(Met {
            found: walk.found,
            asks_connection: walk.asks_connection,
            strict: walk.strict,
        })
    };
    let walk = |links: [Option<&Identity>; 2], stages: &[Stage]| walk_as(false, links, stages);
    let devices = Devices { facts, rules };
    // Chains of a device see that, and not the bond or VLAN that is above it.
    let by_beneath = |side: Side, of: Vec<(Identity, bool, Vec<Stage>)>| -> Vec<Rc<Met>> {
        let walk = |(identity, tagged, stages): &(Identity, bool, Vec<Stage>)| {
            let links = match side {
                Side::From => [Some(identity), None],
                Side::To => [None, Some(identity)],
            };
            walk_as(*tagged, links, stages)
        };
        of.iter().map(walk).collect()
    };
    let carriers = by_beneath(Side::To, devices.of_carriers());
    let mut rows: Vec<(u32, Vec<Rc<Met>>)> = Vec::new();
    for (&index, name) in &few.ins {
        let mut stages = devices.on(Side::From, name);
        stages.extend([Stage::Prerouting, Stage::Anywhere]);
        let mut met = by_beneath(Side::From, devices.beneath(Side::From, index));
        met.push(walk([Some(classes.identity(index)), None], &stages));
        rows.push((index, met));
    }
    let mut columns: Vec<(u32, Vec<Rc<Met>>)> = Vec::new();
    for (&index, name) in &few.outs {
        let mut stages = devices.on(Side::To, name);
        stages.push(Stage::Postrouting);
        let mut met = by_beneath(Side::To, devices.beneath(Side::To, index));
        if facts.beneath[1]
            .get(index)
            .is_some_and(|passed| passed.carried)
        {
            met.extend(carriers.iter().cloned());
        }
        met.push(walk([None, Some(classes.identity(index))], &stages));
        columns.push((index, met));
    }
    let mut forward: BTreeMap<_, Rc<Met>> = BTreeMap::new();
    let mut judged = Judged::default();
    let mut strict = None;
    for (a, row) in &rows {
        for (b, column) in &columns {
            let key = (classes.class(*a), classes.class(*b));
            let both = forward.entry(key).or_insert_with(|| {
                let links = [Some(classes.identity(*a)), Some(classes.identity(*b))];
                walk(links, &[Stage::Forward])
            });
            let met: Vec<&Rc<Met>> = row.iter().chain([&*both]).chain(column).collect();
            let asks = met.iter().any(|met| met.asks_connection);
            let mut rules = met.iter().filter_map(|met| met.strict.clone());
            strict = strict.or_else(|| rules.next());
            for found in met.iter().flat_map(|met| &met.found) {
                merge.pair((*a, *b), &found.area, &found.rule);
                if asks || found.translates {
                    judged.note((*a, *b), found);
                }
                if found.translates {
                    let Area { src, dst } = found.area.clone();
                    let rule = judged.translated.entry((src, dst));
                    rule.or_insert_with(|| found.rule.clone());
                }
            }
        }
    }
    judged.other_ways(merge);
    strict
}

/// Chains of devices.
struct Devices<'a> {
    facts: &'a Facts,
    rules: &'a Rules,
}

impl Devices<'_> {
    /// The stages of those that are on a link of this name.
    fn on(&self, side: Side, name: &str) -> Vec<Stage> {
        let is_for = |device: &String| match device.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => device == name,
        };
        let devices = self.rules.bases.iter().map(|base| &base.stage);
        let met = devices.filter(|stage| match stage {
            Stage::Device(s, devices) => *s == side && devices.iter().any(is_for),
            _ => false,
        });
        let mut stages: Vec<Stage> = met.cloned().collect();
        stages.dedup();
        stages
    }

    /// Those of the links beneath one, but for what carries tunnels: how each is seen, whether packets have tags there, and the stages.
    fn beneath(&self, side: Side, upper: u32) -> Vec<(Identity, bool, Vec<Stage>)> {
        let passed = self.facts.beneath[side as usize].get(upper);
        let tagged = passed.is_some_and(|passed| passed.tagged);
        let links = passed.into_iter().flat_map(|passed| &passed.links);
        self.met(side, tagged, links)
    }

    /// Those of what carries tunnels, likewise.
    fn of_carriers(&self) -> Vec<(Identity, bool, Vec<Stage>)> {
        self.met(Side::To, true, self.facts.beneath[1].carriers().iter())
    }

    fn met<'l>(
        &self,
        side: Side,
        tagged: bool,
        links: impl Iterator<Item = (&'l u32, &'l String)>,
    ) -> Vec<(Identity, bool, Vec<Stage>)> {
        let met = links.filter_map(|(index, name)| {
            let stages = self.on(side, name);
            let identity: Identity = vec![(*index, model::name(name))];
            (!stages.is_empty()).then_some((identity, tagged, stages))
        });
        met.collect()
    }

    /// Whether there is one on a link or beneath it.
    fn is_met(&self, side: Side, index: u32, name: &str) -> bool {
        let any = self.rules.bases.iter();
        let mut any = any.filter(|base| matches!(base.stage, Stage::Device(..)));
        any.next().is_some()
            && (!self.on(side, name).is_empty() || !self.beneath(side, index).is_empty())
    }
}

/// What packets of a pair meet.
struct Met {
    found: Vec<Found>,
    /// Their connection is asked for.
    asks_connection: bool,
    /// A rule that drops what it cannot read.
    strict: Option<String>,
}

/// What is decided by connections: the addresses, by the out-links and by the in-links of pairs, and a rule.
#[derive(Default)]
struct Judged {
    by_link: BTreeMap<(u32, Side, Vec<Interval>, Vec<Interval>), String>,
    /// What is translated: sources, destinations, and a rule.
    translated: BTreeMap<(Vec<Interval>, Vec<Interval>), String>,
}

impl Judged {
    fn note(&mut self, (from, to): (u32, u32), found: &Found) {
        for (link, side) in [(to, Side::From), (from, Side::To)] {
            let Area { src, dst } = found.area.clone();
            let key = (link, side, src, dst);
            let rule = self.by_link.entry(key);
            rule.or_insert_with(|| found.rule.clone());
        }
    }

    /// Rules 10 and 11.
    fn other_ways(self, merge: &mut Merge<'_>) {
        for ((src, dst), rule) in self.translated {
            let rule = format!("{rule} (its connections, whatever links they come and go by)");
            merge.all(&Area { src, dst }, &rule);
        }
        for ((link, side, src, dst), rule) in self.by_link {
            let area = Area { src: dst, dst: src };
            let rule = format!("{rule} (goes by the connection, whose other direction this is)");
            merge.some(&area, &rule, |pair| match side {
                Side::From => pair.0 == link,
                Side::To => pair.1 == link,
            });
        }
    }
}

/// Rule 8.
fn by_hooks(facts: &Facts, version: Version, merge: &mut Merge<'_>) {
    let all = Area::all(version);
    if facts.services > 0 {
        let services = facts.services;
        merge.all(&all, &format!("IPVS has {services} virtual service(s)"));
    }
    for hooked in facts
        .foreign
        .iter()
        .filter(|hooked| hooked.families[version as usize])
    {
        merge.all(
            &all,
            &format!("netfilter hook {} at {}", hooked.function, hooked.place),
        );
    }
    for (link, direction, what) in &facts.programs {
        let met = |pair: (u32, u32)| match direction {
            Direction::Ingress => pair.0 == *link,
            Direction::Egress => pair.1 == *link,
        };
        merge.some(&all, what, met);
    }
    if let Some(what) = &facts.on_carriers {
        let carried = |out: u32| facts.beneath[1].get(out).is_some_and(|of| of.carried);
        merge.some(&all, what, |pair| carried(pair.1));
    }
    let blocks = [
        ("out", facts.defaults.block_out),
        ("fwd", facts.defaults.block_forward),
    ];
    for (direction, _) in blocks.into_iter().filter(|(_, blocks)| *blocks) {
        let rule = format!("xfrm blocks by default (direction {direction})");
        merge.all(&all, &rule);
    }
    for policy in facts.policies.iter().filter(|policy| meets(policy)) {
        let interval = |(address, bits): (IpAddr, u8)| {
            let (is, n) = Version::number(address);
            (is, prefix(n, bits.into(), is.size()))
        };
        let (src, dst) = (interval(policy.src), interval(policy.dst));
        let rule = format!("xfrm policy {policy}");
        // A selector without addresses may be of both versions.
        if policy.src.1 == 0 && policy.dst.1 == 0 {
            merge.all(&all, &rule);
        } else if src.0 == version && dst.0 == version {
            let area = Area {
                src: vec![src.1],
                dst: vec![dst.1],
            };
            merge.all(&area, &rule);
        }
    }
}

/// Rule 15.
fn by_bridges(facts: &Facts, ruleset: &Ruleset, merge: &mut Merge<'_>) {
    let all = Area::all(merge.version);
    for (side, beneath) in [Side::From, Side::To].into_iter().zip(&facts.beneath) {
        let is_bridged = |index: u32| beneath.get(index).is_some_and(|passed| passed.bridged);
        for (rule, _) in bridged::met(&facts.bridged, &mut ruleset.chains.iter(), side) {
            merge.some(&all, &rule, |pair| match side {
                Side::From => is_bridged(pair.0),
                Side::To => is_bridged(pair.1),
            });
        }
    }
    let by_pvid = |index: u32| {
        facts.beneath[0]
            .get(index)
            .is_some_and(|passed| passed.by_pvid)
    };
    if let Some((rule, _)) = bridged::met_by_pvid(&facts.bridged) {
        merge.some(&all, &rule, |pair| by_pvid(pair.0));
    }
}

/// Whether forwarded packets meet a policy.
fn meets(policy: &xfrm::Policy) -> bool {
    let forwards = matches!(
        policy.direction,
        xfrm::Direction::Out | xfrm::Direction::Forward
    );
    forwards && policy.if_id == 0
}

/// Links by what tests tell of them.
struct Classes {
    links: BTreeMap<u32, (Identity, Vec<u8>)>,
}

impl Classes {
    fn of(facts: &Facts, rules: &Rules) -> Classes {
        let mut tests: Vec<&Test> = Vec::new();
        for rule in rules.chains.values().flatten() {
            for step in &rule.steps {
                match step {
                    Step::Test(test) => tests.push(test),
                    Step::Map(elements) => tests.extend(elements.iter().map(|(test, _)| test)),
                    _ => {}
                }
            }
        }
        let within = |test: &Test, link: &(u32, u128)| match test {
            Test::Name(_, within, _) => Some(holds(within, link.1)),
            Test::Index(_, within, _) => Some(holds(within, link.0.into())),
            _ => None,
        };
        let mut links = BTreeMap::new();
        for (&index, name) in facts.ins.iter().chain(&facts.outs) {
            let mut identity = vec![(index, model::name(name))];
            let master = facts.masters.get(&index);
            identity.extend(master.map(|(index, name)| (*index, model::name(name))));
            let class = tests
                .iter()
                .filter_map(|test| {
                    let seen: Option<Vec<bool>> =
                        identity.iter().map(|link| within(test, link)).collect();
                    let seen = seen?;
                    let some = u8::from(seen.contains(&true));
                    Some(some << 1 | u8::from(!seen.contains(&false)))
                })
                .collect();
            links.insert(index, (identity, class));
        }
        Classes { links }
    }

    fn identity(&self, index: u32) -> &Identity {
        &self.links[&index].0
    }

    fn class(&self, index: u32) -> &[u8] {
        &self.links[&index].1
    }
}

fn holds(within: &[Interval], value: u128) -> bool {
    within.iter().any(|i| (i.0..=i.1).contains(&value))
}
