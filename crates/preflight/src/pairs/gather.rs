//! Asks the kernel for what pairs are judged by.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use raddle_netlink::probe::conntrack::Tracker;
use raddle_netlink::probe::hooks::Hooked;
use raddle_netlink::probe::tc::{self, Direction, Qdisc};
use raddle_netlink::probe::{Error, bpf, conntrack, iptables, ipvs, namespace, nft, xfrm};
use raddle_rib::is_local_first;

use super::{Facts, Links, Verdicts, judge};
use crate::Way;
use crate::bridged::{self, Bridged};
use crate::firewall::Known;
use raddle_netlink::probe::nft::Ruleset;

/// As [`crate::look`].
pub(crate) fn look(
    way_in: Way<'_>,
    way_out: Way<'_>,
    known: &mut Known,
) -> Result<Verdicts, Error> {
    let (ins, outs) = (way_in.links, way_out.links);
    let beneath = [way_in.beneath.clone(), way_out.beneath.clone()];
    // Asked for before the rules: what comes in between is a generation that is not known yet.
    let generation = nft::generation()?;
    let tables = iptables::tables()?;
    let mut trackers = conntrack::of_iptables(&tables);
    trackers.extend_from_slice(known.trackers()?);
    let (hooks, local): (Vec<_>, Vec<_>) = known
        .hooks()?
        .into_iter()
        .partition(|hooked| hooked.place.forwards());
    let of_hooks = conntrack::of_hooks(&hooks).into_iter().filter(|hooked| {
        let same = |t: &Tracker| {
            t.does == hooked.does && (0..2).all(|i| t.families[i] >= hooked.families[i])
        };
        !trackers.iter().any(same)
    });
    let of_hooks: Vec<Tracker> = of_hooks.collect();
    trackers.extend(of_hooks);
    if known
        .last
        .as_ref()
        .is_some_and(|(then, _)| (&then.ins, &then.outs, &then.beneath) != (ins, outs, &beneath))
    {
        known.forget_ruleset();
    }
    let full = !trackers.is_empty() && conntrack::is_nearly_full()?;
    let mut facts = Facts {
        full,
        ins: ins.clone(),
        outs: outs.clone(),
        bridged: match way_in.bridged().or(way_out.bridged()) {
            Some(_) => bridged::gather()?,
            None => Bridged::default(),
        },
        beneath,
        generation,
        trackers,
        foreign: hooks.into_iter().filter(is_foreign).collect(),
        foreign_to_local: local.into_iter().filter(is_foreign).collect(),
        services: ipvs::count()?,
        policies: xfrm::policies()?,
        defaults: xfrm::defaults()?,
        ..Facts::default()
    };
    let qdiscs = tc::qdiscs()?;
    // Many links may be above the same one.
    let mut asked: BTreeMap<(u32, Direction), Vec<String>> = BTreeMap::new();
    for (way, direction) in [(way_in, Direction::Ingress), (way_out, Direction::Egress)] {
        for (&link, name) in way.links {
            let passed = way.beneath.get(link);
            let links = passed.into_iter().flat_map(|of| &of.links);
            for (&index, name) in std::iter::once((&link, name)).chain(links) {
                let found = match asked.entry((index, direction)) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => new.insert(programs(index, name, direction, &qdiscs)?),
                };
                let found = found.iter().cloned();
                facts
                    .programs
                    .extend(found.map(|what| (link, direction, what)));
            }
        }
    }
    // One is enough, whichever tunnel it is.
    let carried = |link: &u32| way_out.beneath.get(*link).is_some_and(|of| of.carried);
    if outs.keys().any(carried) {
        for (&index, name) in way_out.beneath.carriers() {
            let found = match asked.get(&(index, Direction::Egress)) {
                Some(known) => known.first().cloned(),
                None => programs(index, name, Direction::Egress, &qdiscs)?
                    .into_iter()
                    .next(),
            };
            facts.on_carriers = facts.on_carriers.or(found);
        }
    }
    let ruleset = known.ruleset(generation)?;
    if !ruleset.rules.is_empty() || tables.iter().any(|t| t.chains.iter().any(|c| c.has_rules)) {
        facts.masters = masters(ins, outs)?;
        facts.local_later = local_later()?;
    }
    facts.tables = tables;
    if let Some((then, verdicts)) = &known.last
        && *then == facts
    {
        return Ok(verdicts.clone());
    }
    let mut verdicts = judge(&facts, &ruleset);
    verdicts.firewall.segments = is_any(&facts, &ruleset);
    known.last = Some((facts, verdicts.clone()));
    Ok(verdicts)
}

/// What packets pass on a link by which they come in or leave, in words.
fn programs(
    index: u32,
    name: &str,
    direction: Direction,
    qdiscs: &[Qdisc],
) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for filter in tc::filters(index, direction, qdiscs)? {
        let (kind, priority) = (&filter.kind, filter.priority);
        found.push(format!(
            "tc filter {kind} pref {priority} on {direction} of {name}"
        ));
    }
    for id in bpf::tcx(index, direction)? {
        found.push(format!("tcx program {id} on {direction} of {name}"));
    }
    Ok(found)
}

/// Whether there is anything at all that packets may meet, on whatever links.
fn is_any(facts: &Facts, ruleset: &Ruleset) -> bool {
    let mut legacy = facts.tables.iter().flat_map(|table| &table.chains);
    let mut ebtables = facts.bridged.ebtables.iter();
    let defaults = facts.defaults;
    !ruleset.rules.is_empty()
        || ruleset.chains.iter().any(|chain| chain.policy_drop)
        || legacy.any(|chain| chain.has_rules || chain.policy_drop)
        || ebtables.any(|chain| chain.rules > 0 || chain.policy_drop)
        || facts.bridged.filters_tagged
        || !facts.trackers.is_empty()
        || !facts.programs.is_empty()
        || facts.on_carriers.is_some()
        || !facts.policies.is_empty()
        || facts.services > 0
        || !facts.foreign.is_empty()
        || !facts.foreign_to_local.is_empty()
        || defaults.block_in
        || defaults.block_out
        || defaults.block_forward
}

/// The functions of hooks that are told better elsewhere, or that do nothing to what is forwarded.
const TOLD: [&str; 24] = [
    // Chains of nftables, tables of iptables.
    "nft_do_chain",
    "ipt_do_table",
    "ip6t_do_table",
    "iptable_",
    "ip6table_",
    // Tracking, reassembly, and what rules or services bring along.
    "ipv4_conntrack_",
    "ipv6_conntrack_",
    "ipv6_defrag",
    "nf_confirm",
    "ipv4_confirm",
    "ipv6_confirm",
    "ipv4_helper",
    "ipv6_helper",
    "nf_ct_",
    "nf_nat_",
    "ipv4_synproxy_",
    "ipv6_synproxy_",
    "ip_vs_",
    // Only looks at what came by a bridge.
    "ip_sabotage_in",
    // Security modules, without labels of packets.
    "selinux_",
    "smack_",
    "apparmor_",
    "nf_flow_offload_",
    "arpt_",
];

/// Rule 13.
fn is_foreign(hooked: &Hooked) -> bool {
    let is_told = |known: &&str| hooked.function.starts_with(*known);
    hooked.is_bpf || !TOLD.iter().any(is_told)
}

/// Of IPv4 and IPv6, whether packets may be looked up elsewhere before table local.
fn local_later() -> Result<[bool; 2], Error> {
    let rules = namespace::rules()?;
    Ok([4, 6].map(|family| !is_local_first(&rules, family)))
}

/// What the links belong to.
fn masters(ins: &Links, outs: &Links) -> Result<BTreeMap<u32, (u32, String)>, Error> {
    let links = namespace::links()?;
    let names: BTreeMap<u32, &String> = links.iter().map(|link| (link.index, &link.name)).collect();
    let name = |index: u32| {
        names
            .get(&index)
            .map(|name| (*name).clone())
            .unwrap_or_default()
    };
    Ok(links
        .iter()
        .filter(|l| ins.contains_key(&l.index) || outs.contains_key(&l.index))
        .filter_map(|l| Some((l.index, (l.master?, name(l.master?)))))
        .collect())
}
