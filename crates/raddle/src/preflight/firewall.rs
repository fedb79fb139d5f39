//! What forwarded packets meet in the kernel and would not meet in XDP.

use std::collections::BTreeMap;

use raddle_netlink::probe::nft::{BaseChain, Family, Hook, Rule};
use raddle_netlink::probe::tc::{Direction, Filter, Qdisc};
use raddle_netlink::probe::{Error, bpf, iptables, ipvs, nft, tc, xfrm};

use super::{Finding, Role, Severity};

/// Links by index.
type Links = BTreeMap<u32, String>;

/// What is hooked in on the way of forwarded packets.
#[derive(Debug, Default)]
pub(super) struct Hooks {
    /// nftables' base chains, with the first rule of those that matter.
    pub(super) nft: Vec<(BaseChain, Option<Rule>)>,
    /// The built-in chains of legacy iptables.
    pub(super) iptables: Vec<iptables::Chain>,
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

/// Asks the kernel.
pub(super) fn gather(ins: &Links, outs: &Links, qdiscs: &[Qdisc]) -> Result<Hooks, Error> {
    let mut hooks = Hooks {
        iptables: iptables::chains()?,
        services: ipvs::count()?,
        policies: xfrm::policies()?,
        defaults: xfrm::defaults()?,
        ..Hooks::default()
    };
    for chain in nft::base_chains()? {
        let rule = match met_by(&chain, ins, outs) {
            Some(_) if chain.rules > 0 => nft::first_rule(&chain).or_else(gone)?,
            _ => None,
        };
        hooks.nft.push((chain, rule));
    }
    for (links, direction) in [(ins, Direction::Ingress), (outs, Direction::Egress)] {
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
/// 4. `bridge` and `arp`: no, bridge ports are not forwarded from, and ARP is never forwarded.
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
        return Some(format!("{is} has {} rule(s){first}", chain.rules));
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
mod tests {
    use super::*;

    fn links(names: &[(u32, &str)]) -> Links {
        names.iter().map(|(i, n)| (*i, (*n).to_owned())).collect()
    }

    fn chain(family: Family, hook: Hook, devices: &[&str], rules: u32, drop: bool) -> BaseChain {
        BaseChain {
            family,
            table: "t".into(),
            name: "c".into(),
            kind: "filter".into(),
            hook,
            priority: 0,
            devices: devices.iter().map(|d| (*d).to_owned()).collect(),
            policy_drop: drop,
            rules,
        }
    }

    fn judged(hooks: &Hooks) -> Vec<String> {
        let (ins, outs) = (links(&[(2, "in0")]), links(&[(2, "in0"), (3, "out0")]));
        judge(hooks, &ins, &outs, Severity::Refuse)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn chains_on_the_way_count_when_they_do_something() {
        use Hook::{Egress, Forward, Ingress, Input, Output, Postrouting, Prerouting};
        for (chain, refused) in [
            (chain(Family::Inet, Forward, &[], 1, false), true),
            (chain(Family::Inet, Forward, &[], 0, true), true),
            (chain(Family::Inet, Forward, &[], 0, false), false),
            (chain(Family::Ip, Prerouting, &[], 1, false), true),
            (chain(Family::Ip6, Postrouting, &[], 1, false), true),
            (chain(Family::Inet, Input, &[], 9, true), false),
            (chain(Family::Ip, Output, &[], 9, true), false),
            (chain(Family::Netdev, Ingress, &["in0"], 1, false), true),
            (chain(Family::Netdev, Ingress, &["out0"], 1, false), false),
            (chain(Family::Inet, Ingress, &["in*"], 0, true), true),
            (chain(Family::Netdev, Egress, &["out0"], 1, false), true),
            (chain(Family::Netdev, Egress, &["eth9"], 1, false), false),
            (chain(Family::Bridge, Forward, &[], 1, true), false),
            (chain(Family::Arp, Hook::Other(0), &[], 1, true), false),
            (
                chain(Family::Other(99), Hook::Other(7), &[], 1, false),
                true,
            ),
        ] {
            let text = format!("{chain:?}");
            let hooks = Hooks {
                nft: vec![(chain, None)],
                ..Hooks::default()
            };
            assert_eq!(!judged(&hooks).is_empty(), refused, "{text}");
        }
    }

    #[test]
    fn a_filter_is_told_once() {
        let filter = |kind: &str, priority, program: Option<(&str, u32)>| {
            let program = program.map(|(name, id)| (name.to_owned(), id));
            let kind = kind.to_owned();
            let filter = Filter {
                kind,
                priority,
                program,
            };
            ("in0".to_owned(), Direction::Ingress, filter)
        };
        let hooks = Hooks {
            filters: vec![
                filter("bpf", 1, None),
                filter("bpf", 1, Some(("police", 7))),
                filter("u32", 2, None),
                filter("u32", 2, None),
            ],
            ..Hooks::default()
        };
        let found = judged(&hooks);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains("bpf (program police, id 7) pref 1"),
            "{found:?}"
        );
        assert!(found[1].contains("u32 pref 2"), "{found:?}");
    }

    #[test]
    fn the_first_rule_is_named() {
        let rule = Rule {
            handle: 5,
            expressions: vec!["ct".into(), "drop".into()],
            comment: Some("no guests".into()),
        };
        let chain = chain(Family::Inet, Hook::Forward, &[], 2, true);
        let hooks = Hooks {
            nft: vec![(chain, Some(rule))],
            ..Hooks::default()
        };
        assert_eq!(
            judged(&hooks),
            [
                "nftables chain inet t c (hook forward) has 2 rule(s), the first is handle 5 \
              \"no guests\": ct, drop: forwarded packets would no longer pass it"
            ]
        );
    }

    #[test]
    fn legacy_chains_count_when_forwarded_packets_meet_them() {
        let chain = |hook, first: Option<&str>, drop| iptables::Chain {
            family: iptables::Family::Ipv4,
            table: "filter".into(),
            hook,
            has_rules: first.is_some(),
            policy_drop: drop,
            first: first.map(str::to_owned),
        };
        for (chain, text) in [
            (chain("INPUT", Some("-j DROP"), true), None),
            (chain("OUTPUT", Some("-j DROP"), true), None),
            (chain("FORWARD", None, false), None),
            (
                chain("FORWARD", None, true),
                Some("chain FORWARD has policy DROP"),
            ),
            (
                chain("POSTROUTING", Some("-j X"), false),
                Some("the first is: -j X"),
            ),
            (
                chain("PREROUTING", Some("-j X"), false),
                Some("iptables-legacy table filter"),
            ),
        ] {
            let hooks = Hooks {
                iptables: vec![chain],
                ..Hooks::default()
            };
            match (judged(&hooks).as_slice(), text) {
                ([], None) => {}
                ([found], Some(text)) => assert!(found.contains(text), "{found}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn policies_count_when_forwarded_packets_meet_them() {
        use xfrm::Direction::{Forward, In, Out, Socket};
        let any = (std::net::IpAddr::from([0, 0, 0, 0]), 0);
        for (direction, if_id, refused) in [
            (Out, 0, true),
            (Forward, 0, true),
            (In, 0, false),
            (Socket, 0, false),
            (Out, 5, false),
        ] {
            let policy = xfrm::Policy {
                direction,
                src: any,
                dst: any,
                protocol: 0,
                blocks: false,
                if_id,
            };
            let hooks = Hooks {
                policies: vec![policy],
                ..Hooks::default()
            };
            assert_eq!(
                judged(&hooks).len(),
                usize::from(refused),
                "{direction} {if_id}"
            );
        }
        let defaults = xfrm::Defaults {
            block_out: false,
            block_forward: true,
        };
        assert_eq!(
            judged(&Hooks {
                defaults,
                ..Hooks::default()
            })
            .len(),
            1
        );
    }
}
