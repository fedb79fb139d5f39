//! What turns on connection tracking in the namespace, or the reassembly that comes with it.
//!
//! One rule that looks at connections hooks the kernel's tracking in for its family, at prerouting, before
//! routing, wherever that rule stands: forwarded packets meet it also when the rule is for input. Fragments are
//! reassembled then (and those that stay incomplete are dropped), and a full table drops. The kernel tells
//! of such hooks only where it has `NETFILTER_NETLINK_HOOK`, so they are inferred from who asks for them. [`of_hooks`] finds those that
//! nobody asks for.
//!
//! 1. nftables: expressions that look at, change or count connections, sets that keep such an expression for each
//!    element, and objects for these; also in chains that nothing jumps to, and in dormant tables, since the kernel
//!    counts from when a rule is made.
//! 2. xtables' matches and targets of this kind, over nftables or legacy iptables.
//! 3. What only reassembles: sockets and transparent proxies.
//! 4. Families: `ip` and iptables for IPv4, `ip6` and ip6tables for IPv6; `inet` and `bridge` for both.
//!    `netdev` and `arp` cannot ask for it.

use super::hooks::Hooked;
use super::{Error, iptables, nft};

/// Expressions of nftables that track connections.
const EXPRESSIONS: [&str; 7] = [
    "ct",
    "nat",
    "masq",
    "redir",
    "connlimit",
    "flow_offload",
    "synproxy",
];
/// Those that reassemble.
const REASSEMBLING: [&str; 2] = ["socket", "tproxy"];
/// Extensions of xtables that track connections, as iptables writes them.
const EXTENSIONS: [&str; 20] = [
    "-m conntrack",
    "-m state",
    "-m connmark",
    "-m connlimit",
    "-m connbytes",
    "-m connlabel",
    "-m helper",
    "-m cluster",
    "-j CT",
    "-j NOTRACK",
    "-j CONNMARK",
    "-j CONNSECMARK",
    "-j SNAT",
    "-j DNAT",
    "-j MASQUERADE",
    "-j REDIRECT",
    "-j NETMAP",
    "-j SYNPROXY",
    "-j CLUSTERIP",
    "-j FLOWOFFLOAD",
];
/// Those that reassemble.
const REASSEMBLING_EXTENSIONS: [&str; 2] = ["-m socket", "-j TPROXY"];
/// Objects of nftables that track connections (`NFT_OBJECT_*`): `ct helper`, `ct count`, `ct timeout`,
/// `ct expectation`, `synproxy`.
const OBJECTS: [u32; 5] = [3, 5, 7, 9, 10];

/// What is done to all packets of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Does {
    /// Connections are tracked, fragments reassembled.
    Tracks,
    /// Fragments are reassembled.
    Reassembles,
}

/// Somebody who asks for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tracker {
    /// For IPv4, for IPv6.
    pub families: [bool; 2],
    /// What for.
    pub does: Does,
    /// Who it is: `nftables rule inet t c handle 5 (ct)`, `iptables-legacy table filter (-m state)`.
    pub who: String,
}

/// Whether the namespace's table of connections is so full that packets of new ones may soon be dropped for want of room
/// (`nf_conntrack_alloc`): from seven eighths of `nf_conntrack_max`. Not where there is no such table.
///
/// # Errors
/// The table is there, and cannot be read.
pub fn is_nearly_full() -> Result<bool, Error> {
    let read = |name: &str| -> Result<Option<u64>, Error> {
        let path = format!("/proc/sys/net/netfilter/{name}");
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(text.trim().parse().ok()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Io {
                what: "read how full the table of connections is",
                source,
            }),
        }
    };
    let (count, most) = (read("nf_conntrack_count")?, read("nf_conntrack_max")?);
    // 0 is no limit.
    let most = most.filter(|most| *most > 0);
    Ok(count
        .zip(most)
        .is_some_and(|(count, most)| is_nearly(count, most)))
}

fn is_nearly(count: u64, most: u64) -> bool {
    count >= most - most / 8
}

/// Tracking that is hooked in, whoever asked for it (`nf_conntrack.enable_hooks`, Open vSwitch).
pub fn of_hooks(hooks: &[Hooked]) -> Vec<Tracker> {
    let does = |hooked: &Hooked| {
        let begins = |with: &str| hooked.function.starts_with(with);
        if begins("ipv4_conntrack_in") || begins("ipv6_conntrack_in") {
            return Some(Does::Tracks);
        }
        let reassembles = begins("ipv4_conntrack_defrag") || begins("ipv6_defrag");
        reassembles.then_some(Does::Reassembles)
    };
    let tracker = |hooked: &Hooked| {
        Some(Tracker {
            families: hooked.families,
            does: does(hooked)?,
            who: format!("netfilter hook {}", hooked.function),
        })
    };
    hooks.iter().filter_map(tracker).collect()
}

/// Whoever asks for tracking in these tables of legacy iptables.
pub fn of_iptables(tables: &[iptables::Table]) -> Vec<Tracker> {
    let mut trackers = Vec::new();
    for table in tables {
        let Some(chain) = table.chains.first() else {
            continue;
        };
        let found = table
            .extensions
            .iter()
            .find_map(|e| Some((e, extension(e)?)));
        trackers.extend(found.map(|(extension, does)| Tracker {
            families: match chain.family {
                iptables::Family::Ipv4 => [true, false],
                iptables::Family::Ipv6 => [false, true],
            },
            does,
            who: format!(
                "{} table {} ({extension})",
                chain.family.command(),
                chain.table
            ),
        }));
    }
    trackers
}

/// Whoever asks for tracking in nftables. Costs a dump of all rules, one of all sets and one of all objects.
///
/// # Errors
/// As [`nft::base_chains`].
pub fn of_nftables() -> Result<Vec<Tracker>, Error> {
    let mut trackers: Vec<Tracker> = nft::rules()?.iter().filter_map(of_rule).collect();
    trackers.extend(nft::sets()?.iter().filter_map(of_set));
    for object in nft::objects()? {
        if OBJECTS.contains(&object.kind)
            && let Some(families) = families(object.family)
        {
            let nft::Object {
                family,
                table,
                name,
                ..
            } = object;
            trackers.push(Tracker {
                families,
                does: Does::Tracks,
                who: format!("nftables object {family} {table} {name}"),
            });
        }
    }
    Ok(trackers)
}

fn of_rule(placed: &nft::Placed) -> Option<Tracker> {
    let (expression, does) = placed
        .rule
        .expressions
        .iter()
        .find_map(|e| Some((e, expression(e)?)))?;
    let nft::Placed {
        family,
        table,
        chain,
        rule,
    } = placed;
    Some(Tracker {
        families: families(*family)?,
        does,
        who: format!(
            "nftables rule {family} {table} {chain} handle {} ({expression})",
            rule.handle
        ),
    })
}

fn of_set(set: &nft::Set) -> Option<Tracker> {
    let (kept, does) = set.kept.iter().find_map(|e| Some((e, expression(e)?)))?;
    let nft::Set {
        family,
        table,
        name,
        ..
    } = set;
    Some(Tracker {
        families: families(*family)?,
        does,
        who: format!("nftables set {family} {table} {name} ({kept})"),
    })
}

/// Rule 4. A family that this version does not know may be both.
fn families(family: nft::Family) -> Option<[bool; 2]> {
    match family {
        nft::Family::Ip => Some([true, false]),
        nft::Family::Ip6 => Some([false, true]),
        nft::Family::Inet | nft::Family::Bridge | nft::Family::Other(_) => Some([true, true]),
        nft::Family::Netdev | nft::Family::Arp => None,
    }
}

/// Rules 1 to 3 for an expression, as [`nft::Rule::expressions`] has it.
fn expression(text: &str) -> Option<Does> {
    if let Some(kept) = text.strip_prefix("dynset ") {
        return kept.split(' ').find_map(expression);
    }
    if let Some(name) = text.strip_prefix("match ") {
        return extension(&format!("-m {name}"));
    }
    if let Some(name) = text.strip_prefix("target ") {
        return extension(&format!("-j {name}"));
    }
    does(text, &EXPRESSIONS, &REASSEMBLING)
}

/// Rules 2 and 3.
fn extension(text: &str) -> Option<Does> {
    does(text, &EXTENSIONS, &REASSEMBLING_EXTENSIONS)
}

fn does(text: &str, tracks: &[&str], reassembles: &[&str]) -> Option<Does> {
    if tracks.contains(&text) {
        return Some(Does::Tracks);
    }
    reassembles.contains(&text).then_some(Does::Reassembles)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_of_the_table_is_kept_free() {
        for (count, most, nearly) in [
            (0, 1, false),
            (1, 1, true),
            (55, 64, false),
            (56, 64, true),
            (100, 64, true),
            (u64::MAX, u64::MAX, true),
        ] {
            assert_eq!(is_nearly(count, most), nearly, "{count} of {most}");
        }
    }

    fn placed(family: nft::Family, expressions: &[&str]) -> nft::Placed {
        nft::Placed {
            family,
            table: "t".into(),
            chain: "input".into(),
            rule: nft::Rule {
                handle: 5,
                expressions: expressions.iter().map(|e| (*e).to_owned()).collect(),
                comment: None,
            },
        }
    }

    #[test]
    fn rules_that_look_at_connections_turn_tracking_on() {
        use nft::Family::{Arp, Bridge, Inet, Ip, Ip6, Netdev};
        let (v4, v6, both) = ([true, false], [false, true], [true, true]);
        for (family, expressions, expected) in [
            (
                Inet,
                &["ct", "bitwise", "cmp", "accept"][..],
                Some((both, Does::Tracks)),
            ),
            (
                Ip,
                &["meta", "match conntrack", "accept"],
                Some((v4, Does::Tracks)),
            ),
            (Ip6, &["target MASQUERADE"], Some((v6, Does::Tracks))),
            (
                Ip,
                &["payload", "dynset connlimit"],
                Some((v4, Does::Tracks)),
            ),
            (Ip, &["payload", "dynset limit counter"], None),
            (Bridge, &["ct"], Some((both, Does::Tracks))),
            (Inet, &["socket", "accept"], Some((both, Does::Reassembles))),
            (Ip, &["match socket"], Some((v4, Does::Reassembles))),
            (Netdev, &["ct"], None),
            (Arp, &["ct"], None),
            (Inet, &["meta", "cmp", "counter", "drop"], None),
            (Inet, &["match mark", "target MARK"], None),
        ] {
            let found = of_rule(&placed(family, expressions));
            let found = found.map(|tracker| (tracker.families, tracker.does));
            assert_eq!(found, expected, "{family} {expressions:?}");
        }
        let tracker = of_rule(&placed(Inet, &["ct", "accept"])).unwrap();
        assert_eq!(tracker.who, "nftables rule inet t input handle 5 (ct)");
    }
}
