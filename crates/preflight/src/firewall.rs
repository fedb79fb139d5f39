//! What forwarded packets meet in the kernel and would not meet in XDP.

use std::collections::BTreeMap;
use std::sync::Arc;

use raddle_netlink::probe::conntrack::{self, Does, Tracker};
use raddle_netlink::probe::hooks::{self, Hooked};
use raddle_netlink::probe::nft::{BaseChain, Family, Hook, Rule, Ruleset, Side};
use raddle_netlink::probe::tc::{Direction, Filter, Qdisc};
use raddle_netlink::probe::{Error, bpf, iptables, ipvs, nft, tc, xfrm};

use super::bridged::{self, Bridged};
use super::pairs::{Facts, Verdicts};
use super::{Finding, Role, Severity, Way};

/// Links by index.
type Links = BTreeMap<u32, String>;

/// What is hooked in on the way of forwarded packets.
#[derive(Debug, Default)]
pub(super) struct Hooks {
    /// nftables' base chains, with the first rule of those that matter.
    pub(super) nft: Vec<(BaseChain, Option<Rule>)>,
    /// The built-in chains of legacy iptables.
    pub(super) iptables: Vec<iptables::Chain>,
    /// What bridges have packets pass, and a link by which they come in or leave by one.
    pub(super) bridged: Bridged,
    pub(super) by_bridge: [Option<String>; 2],
    /// What turns on connection tracking or reassembly.
    pub(super) trackers: Vec<Tracker>,
    /// IPVS services.
    pub(super) services: usize,
    /// Filters by link and side.
    pub(super) filters: Vec<(String, Direction, Filter)>,
    /// tcx programs by link and side.
    pub(super) tcx: Vec<(String, Direction, u32)>,
    /// xfrm policies.
    pub(super) policies: Vec<xfrm::Policy>,
    /// What xfrm does without a policy.
    pub(super) defaults: xfrm::Defaults,
}

/// What costs more to ask for, and the sign by which it is known to have changed.
#[derive(Debug, Default)]
pub struct Known {
    /// Of this generation of nftables' rules.
    trackers: Option<(u32, Vec<Tracker>)>,
    /// Likewise.
    ruleset: Option<(u32, Arc<Ruleset>)>,
    /// What was judged last, and how.
    pub(super) last: Option<(Facts, Verdicts)>,
    bpf_links: bpf::KnownLinks,
    /// The kernel cannot list hooks. It looks for a module to do it each time that it is asked.
    lists_no_hooks: bool,
}

impl Known {
    /// All of nftables, where its generation is `now`.
    pub(super) fn ruleset(&mut self, now: Option<u32>) -> Result<Arc<Ruleset>, Error> {
        let Some(now) = now else {
            return Ok(Arc::default());
        };
        match &self.ruleset {
            Some((then, ruleset)) if *then == now => Ok(Arc::clone(ruleset)),
            _ => {
                let ruleset = Arc::new(nft::ruleset()?);
                self.ruleset = Some((now, Arc::clone(&ruleset)));
                Ok(ruleset)
            }
        }
    }

    /// Nothing of nftables is known any more. Up to Linux 6.14 chains of devices go by what these are called now, and a new name is no
    /// new generation.
    pub(super) fn forget_ruleset(&mut self) {
        self.ruleset = None;
    }

    /// What is hooked into netfilter; none where the kernel tells neither of all hooks nor of BPF's.
    pub(super) fn hooks(&mut self) -> Result<Vec<Hooked>, Error> {
        if !self.lists_no_hooks {
            if let Some(hooks) = hooks::hooks()? {
                return Ok(hooks);
            }
            self.lists_no_hooks = true;
        }
        Ok(bpf::netfilter(&mut self.bpf_links)?.unwrap_or_default())
    }

    /// What of nftables turns on connection tracking.
    pub(super) fn trackers(&mut self) -> Result<&[Tracker], Error> {
        // Asked for before the rules: what comes in between is a generation that is not known yet.
        let Some(now) = nft::generation()? else {
            return Ok(&[]);
        };
        if self.trackers.as_ref().is_none_or(|(then, _)| *then != now) {
            self.trackers = Some((now, conntrack::of_nftables()?));
        }
        Ok(self.trackers.as_ref().map_or(&[], |(_, trackers)| trackers))
    }
}

/// Asks the kernel.
pub(super) fn gather(
    ways: [Way<'_>; 2],
    qdiscs: &[Qdisc],
    known: &mut Known,
) -> Result<Hooks, Error> {
    let by_bridge = ways.map(|way| way.bridged().map(str::to_owned));
    let [ins, outs] = ways.map(Way::with_beneath);
    let tables = iptables::tables()?;
    let mut trackers = conntrack::of_iptables(&tables);
    trackers.extend_from_slice(known.trackers()?);
    let mut hooks = Hooks {
        trackers,
        iptables: tables.into_iter().flat_map(|t| t.chains).collect(),
        services: ipvs::count()?,
        policies: xfrm::policies()?,
        defaults: xfrm::defaults()?,
        bridged: match by_bridge.iter().any(Option::is_some) {
            true => bridged::gather()?,
            false => Bridged::default(),
        },
        by_bridge,
        ..Hooks::default()
    };
    for chain in nft::base_chains()? {
        let rule = match met_by(&chain, &ins, &outs) {
            Some(_) if chain.rules > 0 => nft::first_rule(&chain).or_else(gone)?,
            _ => None,
        };
        hooks.nft.push((chain, rule));
    }
    for (links, direction) in [(&ins, Direction::Ingress), (&outs, Direction::Egress)] {
        for (&index, name) in links {
            let filters = tc::filters(index, direction, qdiscs)?;
            hooks
                .filters
                .extend(filters.into_iter().map(|f| (name.clone(), direction, f)));
            let programs = bpf::tcx(index, direction)?;
            hooks
                .tcx
                .extend(programs.into_iter().map(|p| (name.clone(), direction, p)));
        }
    }
    Ok(hooks)
}

/// A chain that went between being listed and being read.
fn gone(error: Error) -> Result<Option<Rule>, Error> {
    if error.errno() == Some(libc::ENOENT) {
        Ok(None)
    } else {
        Err(error)
    }
}

/// Whether a chain is on the way of a packet that comes in by one of `ins` and leaves by one of
/// `outs`; the name of the link where it is on one.
///
/// 1. prerouting, forward and postrouting of `inet`, `ip` and `ip6`: yes.
/// 2. input and output: no, forwarded packets are neither to nor from this machine.
/// 3. ingress (`netdev`, `inet`): if it is on one of `ins`. egress: if it is on one of `outs`.
/// 4. `bridge` and `arp`: no. Bridges have their own ([`bridged`]), and ARP is never forwarded.
/// 5. Hooks and families that this version does not know: yes, to be safe.
fn met_by<'a>(chain: &BaseChain, ins: &'a Links, outs: &'a Links) -> Option<Option<&'a str>> {
    let on = |links: &'a Links| {
        links
            .values()
            .find(|name| chain.is_on(name))
            .map(String::as_str)
    };
    match (chain.family, chain.hook) {
        (Family::Bridge | Family::Arp, _) => None,
        (_, Hook::Input | Hook::Output) => None,
        (_, Hook::Ingress) => on(ins).map(Some),
        (_, Hook::Egress) => on(outs).map(Some),
        _ => Some(None),
    }
}

/// Decides what would be bypassed.
///
/// 1. An nftables base chain on the way (see [`met_by`]) that has a rule, or drops by policy.
/// 2. A legacy iptables chain PREROUTING, FORWARD or POSTROUTING of any table, likewise.
/// 3. Any IPVS service: replies of its servers are translated as they are forwarded.
/// 4. A filter or tcx program on ingress of a link in `ins` or egress of a link in `outs`.
/// 5. An xfrm policy of direction `out` or `fwd` that is not an xfrm interface's, or a default that
///    blocks these. Direction `in` is for packets to this machine, a socket's policy for its own.
/// 6. Whatever turns on connection tracking or reassembly, also for input or output: that hooks in before
///    routing ([`raddle_netlink::probe::conntrack`]).
/// 7. What bridges have packets pass that come in or leave by one ([`bridged::met`]).
pub(super) fn judge(hooks: &Hooks, ins: &Links, outs: &Links, severity: Severity) -> Vec<Finding> {
    let found = |what, why: &str| Finding::new(severity, what, why);
    let mut findings = Vec::new();
    for (chain, rule) in &hooks.nft {
        let Some(link) = met_by(chain, ins, outs) else {
            continue;
        };
        let Some(what) = describe_chain(chain, rule.as_ref()) else {
            continue;
        };
        let finding = found(what, "forwarded packets would no longer pass it");
        findings.push(match link {
            Some(link) => finding.on(link, Role::Both),
            None => finding,
        });
    }
    for chain in &hooks.iptables {
        if let Some(what) = describe_legacy(chain) {
            findings.push(found(what, "forwarded packets would no longer pass it"));
        }
    }
    if hooks.services > 0 {
        let what = format!(
            "IPVS has {} virtual service(s) (ipvsadm -L)",
            hooks.services
        );
        findings.push(found(
            what,
            "replies of their servers would no longer be translated",
        ));
    }
    let chains = hooks.nft.iter().map(|(chain, _)| chain);
    for (link, side) in hooks.by_bridge.iter().zip([Side::From, Side::To]) {
        let Some(link) = link else { continue };
        for (what, fix) in bridged::met(&hooks.bridged, &mut chains.clone(), side) {
            let role = match side {
                Side::From => Role::In,
                Side::To => Role::Out,
            };
            let finding = found(what, "packets by a bridge would no longer pass it");
            findings.push(finding.on(link, role).fix(fix));
        }
    }
    findings.extend(judge_tracking(hooks, severity));
    findings.extend(judge_tc(hooks, severity));
    findings.extend(judge_xfrm(hooks, severity));
    findings
}

/// None for a chain that lets everything through.
fn describe_chain(chain: &BaseChain, rule: Option<&Rule>) -> Option<String> {
    let BaseChain {
        family,
        table,
        name,
        hook,
        ..
    } = chain;
    let is = format!("nftables chain {family} {table} {name} (hook {hook})");
    if chain.rules > 0 {
        let first = rule.map(describe_rule).unwrap_or_default();
        let policy = if chain.policy_drop {
            "policy drop and "
        } else {
            ""
        };
        return Some(format!("{is} has {policy}{} rule(s){first}", chain.rules));
    }
    chain.policy_drop.then(|| format!("{is} has policy drop"))
}

fn describe_rule(rule: &Rule) -> String {
    let comment = rule
        .comment
        .iter()
        .map(|c| format!(" \"{c}\""))
        .collect::<String>();
    format!(
        ", the first is handle {}{comment}: {}",
        rule.handle,
        rule.expressions.join(", ")
    )
}

fn describe_legacy(chain: &iptables::Chain) -> Option<String> {
    if !matches!(chain.hook, "PREROUTING" | "FORWARD" | "POSTROUTING") {
        return None;
    }
    let (command, table, hook) = (chain.family.command(), &chain.table, chain.hook);
    match &chain.first {
        Some(first) => Some(format!(
            "{command} table {table} chain {hook} has rules, the first is: {first}"
        )),
        None if chain.policy_drop => Some(format!(
            "{command} table {table} chain {hook} has policy DROP"
        )),
        None => None,
    }
}

/// One finding for all that do the same to the same families.
fn judge_tracking(hooks: &Hooks, severity: Severity) -> Vec<Finding> {
    let mut alike: BTreeMap<_, Vec<&Tracker>> = BTreeMap::new();
    for tracker in &hooks.trackers {
        let key = (tracker.families, tracker.does);
        alike.entry(key).or_default().push(tracker);
    }
    let finding = |((families, does), trackers): (([bool; 2], Does), Vec<&Tracker>)| {
        let families = match families {
            [true, false] => "IPv4",
            [false, _] => "IPv6",
            [true, true] => "IPv4 and IPv6",
        };
        let who = &trackers.first()?.who;
        let (turns_on, why) = match does {
            Does::Tracks => (
                "connection tracking",
                "fragments of forwarded packets would no longer be reassembled, nor packets dropped for which its table has no room",
            ),
            Does::Reassembles => (
                "reassembly",
                "fragments of forwarded packets would no longer be reassembled",
            ),
        };
        let more = match trackers.len() - 1 {
            0 => String::new(),
            n => format!(", as do {n} more"),
        };
        let what = format!("{who} turns on {turns_on} for {families}{more}");
        Some(Finding::new(severity, what, why))
    };
    alike.into_iter().filter_map(finding).collect()
}

fn judge_tc(hooks: &Hooks, severity: Severity) -> Vec<Finding> {
    let role = |direction| match direction {
        Direction::Ingress => Role::In,
        Direction::Egress => Role::Out,
    };
    let mut findings = Vec::new();
    // The kernel lists a filter by itself and then with each handle, which has the program.
    let told_better = |this: &(String, Direction, Filter)| {
        let same = |other: &&(String, Direction, Filter)| {
            let place = |it: &(String, Direction, Filter)| (it.0.clone(), it.1, it.2.priority);
            place(this) == place(other) && this.2.kind == other.2.kind
        };
        let mut others = hooks.filters.iter().filter(same);
        this.2.program.is_none() && others.any(|other| other.2.program.is_some())
    };
    let filters = hooks.filters.iter().filter(|this| !told_better(this));
    for (link, direction, filter) in filters {
        let program = match &filter.program {
            Some((name, id)) => format!(" (program {name}, id {id})"),
            None => String::new(),
        };
        let Filter { kind, priority, .. } = filter;
        let what = format!("tc filter {kind}{program} pref {priority} on {direction}");
        let why = format!(
            "forwarded packets would no longer pass it (tc filter show dev {link} \
                           {direction})"
        );
        findings.push(Finding::new(severity, what, why).on(link, role(*direction)));
    }
    for (link, direction, id) in &hooks.tcx {
        let what = format!("tcx program {id} on {direction}");
        let why = format!("forwarded packets would no longer pass it (bpftool prog show id {id})");
        findings.push(Finding::new(severity, what, why).on(link, role(*direction)));
    }
    // A filter with several handles is one finding.
    findings.dedup();
    findings
}

fn judge_xfrm(hooks: &Hooks, severity: Severity) -> Vec<Finding> {
    let mut findings = Vec::new();
    let met = |p: &&xfrm::Policy| {
        matches!(p.direction, xfrm::Direction::Out | xfrm::Direction::Forward) && p.if_id == 0
    };
    for policy in hooks.policies.iter().filter(met) {
        findings.push(Finding::new(
            severity,
            format!("xfrm policy {policy}"),
            "forwarded packets would leave without being checked or encrypted",
        ));
    }
    let blocks = [
        ("out", hooks.defaults.block_out),
        ("fwd", hooks.defaults.block_forward),
    ];
    for (direction, _) in blocks.into_iter().filter(|(_, blocks)| *blocks) {
        findings.push(Finding::new(
            severity,
            format!("xfrm blocks by default (direction {direction})"),
            "forwarded packets would pass all the same",
        ));
    }
    findings
}

#[cfg(test)]
mod tests;
