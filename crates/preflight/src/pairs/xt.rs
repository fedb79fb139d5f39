//! iptables' rules as steps: extensions for both engines, legacy tables whole.

use std::collections::BTreeMap;

use raddle_netlink::probe::iptables::{self, Masked, Table, Target};
use raddle_netlink::probe::nft::Side;

use super::Version;
use super::model::{Base, Interval, Rule, Rules, Stage, Step, Test, Verdict, masked, number};

/// What a target does to a packet, and to those of the way back.
pub(super) enum Effect {
    /// Nothing.
    None,
    /// It is changed, held, counted or lost.
    Touches,
    /// It is translated to or from this machine.
    Local,
    /// It is translated.
    Translates {
        destination: bool,
        range: Option<Interval>,
    },
}

/// A match. Of those with data only `addrtype --dst-type LOCAL`, `mark` and the destination port of `udp` are known.
pub(super) fn test(name: &str, revision: u32, info: &[u8]) -> Test {
    match name {
        // struct xt_addrtype_info_v1: source, dest, flags (1, 2: inverted; 4, 8: by link)
        "addrtype" if revision == 1 && info.len() >= 8 => {
            let half = |at| u16::from_ne_bytes([info[at], info[at + 1]]);
            let flags = u32::from_ne_bytes([info[4], info[5], info[6], info[7]]);
            if half(0) == 0 && half(2) == 4 && flags & !2 == 0 {
                // Of IPv4, without a link, it asks table local whatever link the packet came in by (`inet_addr_type_dev_table`).
                return Test::Local {
                    inverted: flags & 2 != 0,
                    by_vrf: false,
                };
            }
            Test::Unknown
        }
        // struct xt_mark_mtinfo1: mark, mask, whether inverted; packets have none (rule 2 of the module above)
        "mark" if revision == 1 && info.len() >= 9 => {
            let mark = u32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
            Test::Constant((mark == 0) != (info[8] != 0))
        }
        // struct xt_udp: first and last source port, first and last destination port, what is inverted (1: source, 2: destination)
        "udp" if info.len() >= 9 => {
            let port = |at| u16::from_ne_bytes([info[at], info[at + 1]]);
            let (first, last) = (u128::from(port(4)), u128::from(port(6)));
            match (port(0), port(2), info[8]) {
                (0, u16::MAX, 0) => Test::DestinationPort(vec![(first, last)], false),
                (0, u16::MAX, 2) => Test::DestinationPort(vec![(first, last)], true),
                _ => Test::Unknown,
            }
        }
        "comment" => Test::Constant(true),
        "conntrack" | "state" | "connmark" | "connbytes" | "connlabel" | "connlimit" | "helper"
        | "cluster" => Test::Connection,
        _ => Test::Unknown,
    }
}

/// Matches that only look at the packet, its connection or its links. Others may change something by being asked: they count
/// (`limit`, `quota`, `recent`), log (`osf`), mark (`socket --restore-skmark`), run what others wrote (`bpf`), or drop what is in a
/// packet (`sctp`, `dccp`, `tcpmss`).
const PURE: [&str; 48] = [
    "addrtype",
    "ah",
    "cluster",
    "comment",
    "connbytes",
    "connlabel",
    "connmark",
    "conntrack",
    "cpu",
    "devgroup",
    "dscp",
    "dst",
    "ecn",
    "esp",
    "eui64",
    "frag",
    "hbh",
    "helper",
    "hl",
    "icmp",
    "icmp6",
    "ipcomp",
    "iprange",
    "ipv6header",
    "ipvs",
    "l2tp",
    "length",
    "mac",
    "mark",
    "mh",
    "multiport",
    "owner",
    "physdev",
    "pkttype",
    "policy",
    "realm",
    "rpfilter",
    "rt",
    "srh",
    "state",
    "string",
    "tcp",
    "time",
    "tos",
    "ttl",
    "u32",
    "udp",
    "udplite",
];

/// Whether a match is known to change nothing by being asked. One that looks for a TCP option drops headers whose length makes no sense.
pub(super) fn is_pure(name: &str, info: &[u8]) -> bool {
    // struct xt_tcp: four ports, then the option.
    let by_option = name == "tcp" && info.get(8) != Some(&0);
    PURE.contains(&name) && !by_option
}

/// Those that drop what they cannot read.
const STRICT: [&str; 19] = [
    "ah",
    "dccp",
    "dst",
    "esp",
    "eui64",
    "frag",
    "hbh",
    "icmp",
    "icmp6",
    "ipcomp",
    "l2tp",
    "mh",
    "multiport",
    "rt",
    "sctp",
    "tcp",
    "tcpmss",
    "udp",
    "udplite",
];

/// Whether a match drops packets of which the header that it looks for is cut short (`hotdrop`).
pub(super) fn is_strict(name: &str) -> bool {
    STRICT.contains(&name)
}

/// A target, by name.
pub(super) fn effect(name: &str, revision: u32, info: &[u8], version: Version) -> Effect {
    match name {
        "" | "NOTRACK" => Effect::None,
        // struct xt_ct_target_info begins with flags, of which 1 is --notrack
        "CT" if info.first_chunk().map(|f| u16::from_ne_bytes(*f)) == Some(1) => Effect::None,
        "MASQUERADE" | "REDIRECT" => Effect::Local,
        "SNAT" | "DNAT" => Effect::Translates {
            destination: name == "DNAT",
            range: addresses(revision, info, version),
        },
        "NETMAP" => Effect::Translates {
            destination: true,
            range: None,
        },
        _ => Effect::Touches,
    }
}

/// The addresses in what SNAT and DNAT bring along.
fn addresses(revision: u32, info: &[u8], version: Version) -> Option<Interval> {
    let word = |at: usize| info.get(at..)?.first_chunk::<4>().copied();
    // IPv4's revision 0 is a list of one range of IPv4 addresses; the others have 16 bytes each.
    let (flags, first, last) = match (version, revision) {
        (Version::V4, 0) => (4, 8, 12),
        _ => (0, 4, 20),
    };
    if u32::from_ne_bytes(word(flags)?) & 1 == 0 {
        return None;
    }
    let size = if version == Version::V4 { 4 } else { 16 };
    let address = |at: usize| number(info.get(at..at + size)?);
    address(first).zip(address(last))
}

/// All tables of one version.
pub(super) fn lower(tables: &[Table], version: Version) -> Rules {
    let family = match version {
        Version::V4 => iptables::Family::Ipv4,
        Version::V6 => iptables::Family::Ipv6,
    };
    let mut rules = Rules::default();
    for table in tables {
        let Some(first) = table.chains.first().filter(|c| c.family == family) else {
            continue;
        };
        let prefix = format!("{} -t {}", family.command(), first.table);
        let policies: BTreeMap<usize, &iptables::Chain> =
            table.chains.iter().map(|c| (c.span.1, c)).collect();
        for chain in &table.chains {
            let key = format!("{prefix} {}", chain.span.0);
            let stage = match chain.hook {
                "PREROUTING" => Some(Stage::Prerouting),
                "FORWARD" => Some(Stage::Forward),
                "POSTROUTING" => Some(Stage::Postrouting),
                "INPUT" => Some(Stage::Input),
                "OUTPUT" => Some(Stage::Output),
                _ => None,
            };
            rules.bases.extend(stage.map(|stage| Base {
                chain: key,
                stage,
                policy_drop: chain.policy_drop,
                text: format!("{prefix} {}", chain.hook),
            }));
        }
        // Built-in chains begin where the table says, user chains behind their heads, whether or not something leads there; one
        // ends where the next one begins.
        let starts = table.chains.iter().map(|c| c.span.0);
        let mut begins: Vec<usize> = starts.chain(table.user_chains.iter().copied()).collect();
        begins.sort_unstable();
        begins.dedup();
        for rule in &table.rules {
            let begin = match begins.binary_search(&rule.at) {
                Ok(i) => begins[i],
                Err(0) => continue,
                Err(i) => begins[i - 1],
            };
            // A built-in chain's policy is told of the chain.
            if policies.contains_key(&rule.at) {
                continue;
            }
            let key = format!("{prefix} {begin}");
            let lowered = one((rule, &table.user_chains), &prefix, version, &mut rules);
            rules.chains.entry(key).or_default().push(lowered);
        }
    }
    rules
}

/// A rule of a table whose user chains begin there.
fn one(
    (rule, user_chains): (&iptables::Rule, &[usize]),
    prefix: &str,
    version: Version,
    rules: &mut Rules,
) -> Rule {
    let text = format!("{prefix}: {}", rule.text);
    let mut steps = Vec::new();
    let sides = [Side::From, Side::To];
    for (side, link) in sides.into_iter().zip(&rule.links) {
        steps.extend(by(link, |within, inverted| {
            Test::Name(side, within, inverted)
        }));
    }
    for (side, address) in sides.into_iter().zip(&rule.addresses) {
        steps.extend(by(address, |within, inverted| {
            Test::Address(side, within, inverted)
        }));
    }
    if version == Version::V6 && (rule.asks_more || rule.protocol.is_some()) {
        steps.push(Step::Strict);
    }
    if let Some((protocol, inverted)) = rule.protocol {
        let within = vec![(protocol.into(), protocol.into())];
        steps.push(Step::Test(Test::Protocol(within, inverted)));
    }
    if rule.asks_more {
        steps.push(Step::Test(Test::Unknown));
    }
    for extension in &rule.matches {
        if !is_pure(&extension.name, &extension.info) {
            steps.push(Step::Effect);
        }
        if is_strict(&extension.name) {
            steps.push(Step::Strict);
        }
        steps.push(Step::Test(test(
            &extension.name,
            extension.revision,
            &extension.info,
        )));
    }
    match &rule.target {
        Target::Accept => steps.push(Step::Verdict(Verdict::Accept)),
        Target::Drop => steps.push(Step::Verdict(Verdict::Drop)),
        Target::Return => steps.push(Step::Verdict(Verdict::Return)),
        // That is what such a rule is for: to count.
        Target::Nothing => steps.push(Step::Effect),
        Target::Verdict(_) => steps.push(Step::Effect),
        // No tool makes one that leads into the middle of a chain.
        Target::Chain { at, .. } if user_chains.binary_search(at).is_err() => {
            steps.push(Step::Effect)
        }
        Target::Chain { at, goto } => {
            let chain = format!("{prefix} {at}");
            steps.push(Step::Verdict(match goto {
                true => Verdict::Goto(chain),
                false => Verdict::Jump(chain),
            }));
        }
        Target::Extension(e) => match effect(&e.name, e.revision, &e.info, version) {
            Effect::None => {}
            Effect::Touches => steps.push(Step::Effect),
            Effect::Local => {
                rules.translations.any = true;
                if e.name == "REDIRECT" {
                    let redirects = &mut rules.translations.redirects;
                    redirects.get_or_insert_with(|| text.clone());
                }
                steps.push(Step::Translation);
            }
            Effect::Translates { destination, range } => {
                let side = if destination { Side::From } else { Side::To };
                rules.translations.any = true;
                rules.translations.back.push((side, range, text.clone()));
                steps.push(Step::Translation);
            }
        },
    }
    Rule { steps, text }
}

/// A test for what is asked under a mask; none if anything will do.
fn by(asked: &Masked, test: impl Fn(Vec<Interval>, bool) -> Test) -> Option<Step> {
    if !asked.inverted && asked.mask.iter().all(|&b| b == 0) {
        return None;
    }
    Some(Step::Test(match masked(&asked.value, &asked.mask) {
        Some(range) => test(vec![range], asked.inverted),
        None => Test::Unknown,
    }))
}
