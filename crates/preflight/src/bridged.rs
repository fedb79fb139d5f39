//! What bridges have packets pass that are routed from them or to them: hooks of netfilter between the port and the bridge.
//!
//! `br_netfilter` (`net.bridge.bridge-nf-call-iptables` and others) matters in two cases only. With it the chains of prerouting run in the
//! bridge instead of behind it (`br_nf_pre_routing`, `ip_sabotage_in`), with the bridge as in-link, as they would without; those of forward
//! and postrouting are asked there about frames that are bridged only. But with `bridge-nf-filter-vlan-tagged` they run for tagged frames
//! with the bridge as in-link, and not for the VLAN upon it. So they do for frames without a tag that come in by a VLAN upon a bridge that
//! filters VLANs: they get their tag after that (`br_allowed_ingress`).

use raddle_netlink::probe::nft::{BaseChain, Family, Hook, Side};
use raddle_netlink::probe::{Error, ebtables};

/// What there is, besides nftables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bridged {
    /// The built-in chains of legacy ebtables.
    pub(super) ebtables: Vec<ebtables::Chain>,
    /// `net.bridge.bridge-nf-filter-vlan-tagged`, with anything that calls netfilter's chains.
    pub(super) filters_tagged: bool,
    /// `net.bridge.bridge-nf-call-iptables` or `-ip6tables`.
    pub(super) calls_ip: bool,
}

/// Asks the kernel. Costs little where there are no tables of ebtables.
pub(super) fn gather() -> Result<Bridged, Error> {
    let is_on = |name: &str| {
        let value = std::fs::read_to_string(format!("/proc/sys/net/bridge/bridge-nf-{name}"));
        value.is_ok_and(|value| value.trim() != "0")
    };
    let called = is_on("call-iptables") || is_on("call-ip6tables");
    Ok(Bridged {
        ebtables: ebtables::chains()?,
        filters_tagged: called && is_on("filter-vlan-tagged"),
        calls_ip: called,
    })
}

/// What packets meet that come in by a bridge, or leave by one: each in words, with the command that helps.
///
/// 1. Base chains of nftables' family `bridge` that have a rule, or drop by policy: of prerouting and input on the way in
///    (`br_handle_frame`, `br_pass_frame_up`), of output and postrouting on the way out (`__br_forward` for frames of this machine), and
///    of hooks that are not known on both. Those of forward see only what is bridged.
/// 2. Likewise chains of legacy ebtables; BROUTING is on the way in.
/// 3. `bridge-nf-filter-vlan-tagged`, on the way in.
pub(super) fn met(
    bridged: &Bridged,
    chains: &mut dyn Iterator<Item = &BaseChain>,
    side: Side,
) -> Vec<(String, String)> {
    let mut met = Vec::new();
    let is_met = |hook: Hook| match hook {
        Hook::Prerouting | Hook::Input => side == Side::From,
        Hook::Output | Hook::Postrouting => side == Side::To,
        Hook::Forward => false,
        _ => true,
    };
    let does = |rules: u32, drops: bool| rules > 0 || drops;
    for chain in chains {
        let of_bridges = chain.family == Family::Bridge && is_met(chain.hook);
        if of_bridges && does(chain.rules, chain.policy_drop) {
            let (table, name) = (&chain.table, &chain.name);
            let what = format!("nftables chain bridge {table} {name} (hook {})", chain.hook);
            met.push((what, format!("nft delete table bridge {table}")));
        }
    }
    for chain in &bridged.ebtables {
        let is_met = match chain.hook {
            "PREROUTING" | "INPUT" | "BROUTING" => side == Side::From,
            "OUTPUT" | "POSTROUTING" => side == Side::To,
            _ => false,
        };
        if is_met && does(chain.rules, chain.policy_drop) {
            let (table, hook) = (chain.table, chain.hook);
            let what = format!("ebtables-legacy table {table} chain {hook}");
            let accept = format!("ebtables-legacy -t {table} -F {hook}");
            let policy = format!(" && ebtables-legacy -t {table} -P {hook} ACCEPT");
            let policy = Some(policy).filter(|_| chain.policy_drop);
            met.push((what, accept + &policy.unwrap_or_default()));
        }
    }
    if bridged.filters_tagged && side == Side::From {
        let name = "net.bridge.bridge-nf-filter-vlan-tagged";
        met.push((format!("{name} is on"), format!("sysctl -w {name}=0")));
    }
    met
}

/// What else packets meet on the way in by a VLAN upon a bridge that filters VLANs, likewise: rules of IP, with the bridge as in-link.
pub(super) fn met_by_pvid(bridged: &Bridged) -> Option<(String, String)> {
    let names = ["call-iptables", "call-ip6tables"].map(|of| format!("net.bridge.bridge-nf-{of}"));
    let fix = names.iter().map(|name| format!("{name}=0"));
    let fix = fix.collect::<Vec<String>>().join(" ");
    let met = || {
        (
            format!("{} is on", names.join(" or ")),
            format!("sysctl -w {fix}"),
        )
    };
    bridged.calls_ip.then(met)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(family: Family, hook: Hook, rules: u32, policy_drop: bool) -> BaseChain {
        BaseChain {
            family,
            table: "t".into(),
            name: "c".into(),
            kind: "filter".into(),
            hook,
            priority: 0,
            devices: Vec::new(),
            policy_drop,
            rules,
        }
    }

    /// Whether something is met on the way in, and on the way out.
    fn ways(bridged: &Bridged, chains: &[BaseChain]) -> (usize, usize) {
        let of = |side| met(bridged, &mut chains.iter(), side).len();
        (of(Side::From), of(Side::To))
    }

    #[test]
    fn chains_of_bridges_are_met_between_port_and_bridge() {
        use Hook::{Forward, Input, Output, Postrouting, Prerouting};
        let none = Bridged::default();
        for (hook, expected) in [
            (Prerouting, (1, 0)),
            (Input, (1, 0)),
            (Forward, (0, 0)),
            (Output, (0, 1)),
            (Postrouting, (0, 1)),
            (Hook::Other(9), (1, 1)),
        ] {
            let of = |rules, drops| ways(&none, &[chain(Family::Bridge, hook, rules, drops)]);
            assert_eq!(of(1, false), expected, "{hook}");
            assert_eq!(of(0, true), expected, "{hook}");
            assert_eq!(of(0, false), (0, 0), "{hook}");
            let other = chain(Family::Inet, hook, 1, true);
            assert_eq!(ways(&none, &[other]), (0, 0), "not a bridge's");
        }
    }

    #[test]
    fn so_are_those_of_ebtables() {
        for (hook, expected) in [
            ("PREROUTING", (1, 0)),
            ("BROUTING", (1, 0)),
            ("INPUT", (1, 0)),
            ("FORWARD", (0, 0)),
            ("OUTPUT", (0, 1)),
            ("POSTROUTING", (0, 1)),
        ] {
            let of = |rules, policy_drop| Bridged {
                ebtables: vec![ebtables::Chain {
                    table: "nat",
                    hook,
                    rules,
                    policy_drop,
                }],
                ..Bridged::default()
            };
            assert_eq!(ways(&of(2, false), &[]), expected, "{hook}");
            assert_eq!(ways(&of(0, true), &[]), expected, "{hook}");
            assert_eq!(ways(&of(0, false), &[]), (0, 0), "{hook}");
        }
        let tagged = Bridged {
            filters_tagged: true,
            ..Bridged::default()
        };
        assert_eq!(ways(&tagged, &[]), (1, 0));
        let asks = Bridged {
            calls_ip: true,
            ..Bridged::default()
        };
        assert_eq!(ways(&asks, &[]), (0, 0));
        assert!(met_by_pvid(&asks).is_some() && met_by_pvid(&Bridged::default()).is_none());
    }
}
