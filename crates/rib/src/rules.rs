//! Which tables a packet is looked up in.

use std::fmt::Write;
use std::net::IpAddr;

use crate::event::{Link, RULE_OTHER_INVERT, RULE_OTHER_L3MDEV, RULE_OTHER_TOS, Rule};
use raddle_image::{RANGES, Reason};

/// `RT_TABLE_LOCAL`.
pub const TABLE_LOCAL: u32 = 255;
/// `RT_TABLE_MAIN`.
pub const TABLE_MAIN: u32 = 254;
/// `RT_TABLE_DEFAULT`.
pub const TABLE_DEFAULT: u32 = 253;

/// `FR_ACT_*`.
const TO_TABLE: u8 = 1;
const GOTO: u8 = 2;
const NOP: u8 = 3;
const UNREACHABLE: u8 = 7;
const PROHIBIT: u8 = 8;

/// Where packets are looked up: in tables, one after the other, until one has a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lookup {
    /// The tables, in the order in which they are asked.
    pub tables: Vec<TableLookup>,
    /// Why a packet is not forwarded that none of them has a route for: [`Reason::NoRoute`], or what a rule says.
    pub end: Reason,
}

/// One table that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableLookup {
    /// Its number.
    pub table: u32,
    /// Routes of this prefix length or less are passed over, and the next table is asked (`suppress_prefixlength`).
    pub suppress: Option<u8>,
}

impl TableLookup {
    /// All routes of a table.
    pub fn all(table: u32) -> TableLookup {
        TableLookup {
            table,
            suppress: None,
        }
    }

    /// Whether a route of this prefix length is passed over. Only those are that the kernel finds: one that refuses
    /// (`unreachable`, ...) ends the look-up whatever its length (`fib_rules_lookup`).
    pub(crate) fn passes_over(&self, length: u8, refuses: bool) -> bool {
        !refuses && self.suppress.is_some_and(|most| length <= most)
    }
}

impl Lookup {
    /// All routes of these tables.
    pub fn plain(tables: impl IntoIterator<Item = u32>) -> Lookup {
        Lookup {
            tables: tables.into_iter().map(TableLookup::all).collect(),
            end: Reason::NoRoute,
        }
    }
}

/// The link that packets come in by, as rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival<'a> {
    /// A link of its own.
    Link(&'a str),
    /// A link that is enslaved to a VRF: packets come in by that (`vrf_ip_rcv`), and are looked up in its table.
    Vrf {
        /// The VRF's name.
        name: &'a str,
        /// Its table; none where that is not known.
        table: Option<u32>,
    },
}

impl<'a> Arrival<'a> {
    /// How packets come in by `link`; `by_index` gives the others.
    pub fn of(link: &'a Link, by_index: impl FnOnce(u32) -> Option<&'a Link>) -> Arrival<'a> {
        match vrf_of(link, by_index) {
            Some(vrf) => Arrival::Vrf {
                name: &vrf.name,
                table: vrf.vrf_table,
            },
            None => Arrival::Link(&link.name),
        }
    }

    fn name(self) -> &'a str {
        match self {
            Arrival::Link(name) | Arrival::Vrf { name, .. } => name,
        }
    }
}

/// The VRF that a link is enslaved to.
pub fn vrf_of<'a>(link: &Link, by_index: impl FnOnce(u32) -> Option<&'a Link>) -> Option<&'a Link> {
    by_index(link.master?).filter(|master| master.kind.as_deref() == Some("vrf"))
}

/// Where packets are looked up that come in so (`fib_rules_lookup`, `fib_rule_match`).
///
/// 1. Without any rules known: local, main and, for IPv4, default.
/// 2. Rules of the family are asked by priority, each whether it matches the packets:
///    a. `iif`: those that come in by this link; in a VRF by that, not by its link.
///    b. `oif`: none, a packet that is forwarded has no output link yet.
///    c. `fwmark`: those whose mark is so. Nothing has marked what engines get, so the mark is 0: a firewall or a tc
///    filter that might mark a packet has it punted.
///    d. `l3mdev`: those that come in by a VRF.
///    e. `uidrange`: none but for a range with 0 in it, which is not followed.
///    f. `not` turns the answer round.
/// 3. A rule that matches looks into its table, or the VRF's (`l3mdev`), with `suppress_prefixlength` but for routes so
///    short; or it ends the look-up (`unreachable`, `prohibit`); or the next rule that is asked has the priority
///    that it names (`goto`), if there is one; or it does nothing (`nop`).
/// 4. A rule that matches by what else the packet shows (addresses, TOS, ports, ...), or that does something else, is
///    not followed: the kernel's business. [`rule_beyond_engines`] tells which one it is.
///
/// [`lookup_apart`] follows rules by addresses as far as they can be.
///
/// # Errors
/// [`Reason::Rules`] by rule 4.
pub fn lookup_for(rules: &[Rule], family: u8, arrival: Arrival<'_>) -> Result<Lookup, Reason> {
    match lookup_apart(rules, family, arrival) {
        Ok(Apart { lookup, by_address }) if by_address.is_empty() => Ok(lookup),
        _ => Err(Reason::Rules),
    }
}

/// How packets are looked up but for those whose addresses a rule asks for, which are the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apart<'a> {
    /// As all others are looked up.
    pub lookup: Lookup,
    /// The rules that ask for addresses, by priority; [`Rule::asks_for`] tells whose.
    pub by_address: Vec<&'a Rule>,
}

/// At most so many rules by addresses are followed for a link: each takes a range of the image, and another one for the
/// way back where there is `rp_filter`.
pub const RULES_BY_ADDRESS: usize = RANGES / 2;

impl Rule {
    /// Whether the rule may match a packet with these addresses other than one with none of those that it names (`from`,
    /// `to`). It does for all addresses where it names none.
    pub fn asks_for(&self, src: IpAddr, dst: IpAddr) -> bool {
        let covers = |net: &Option<ipnet::IpNet>, address: IpAddr| {
            net.is_none_or(|net| net.prefix_len() == 0 || net.contains(&address))
        };
        covers(&self.from, src) && covers(&self.to, dst)
    }
}

/// [`lookup_for`], where rules by addresses (`from`, `to`) do not send all packets to the kernel:
///
/// 1. Such a rule does not match packets with other addresses, or does with `not`, whatever else it wants. Those with
///    these addresses are the kernel's.
/// 2. There are at most [`RULES_BY_ADDRESS`] of them; the next one is not followed.
/// 3. What `not` turns round is not followed where the rule has what is not known here: that may change what it leads to.
///
/// # Errors
/// The rule that is not followed.
pub fn lookup_apart<'a>(
    rules: &'a [Rule],
    family: u8,
    arrival: Arrival<'_>,
) -> Result<Apart<'a>, &'a Rule> {
    let mut by_address = Vec::new();
    let lookup = walk(rules, family, arrival, &mut by_address)?;
    Ok(Apart { lookup, by_address })
}

/// The look-up of [`lookup_apart`].
fn walk<'a>(
    rules: &'a [Rule],
    family: u8,
    arrival: Arrival<'_>,
    by_address: &mut Vec<&'a Rule>,
) -> Result<Lookup, &'a Rule> {
    let mut asked: Vec<&Rule> = rules.iter().filter(|r| r.family == family).collect();
    if asked.is_empty() {
        let all = [TABLE_LOCAL, TABLE_MAIN, TABLE_DEFAULT];
        return Ok(Lookup::plain(all.into_iter().take(if family == 4 {
            3
        } else {
            2
        })));
    }
    asked.sort_by_key(|rule| rule.priority);
    let mut lookup = Lookup::plain([]);
    // Of a `goto`: rules before this priority are not asked.
    let mut from = 0;
    for rule in asked.iter().copied() {
        if rule.priority < from {
            continue;
        }
        let matches = matches(rule, arrival).ok_or(rule)?;
        if matches.by_address {
            if by_address.len() == RULES_BY_ADDRESS {
                return Err(rule);
            }
            by_address.push(rule);
        }
        if !matches.others {
            continue;
        }
        match rule.action {
            TO_TABLE => {
                let table = match (rule.other.contains(&RULE_OTHER_L3MDEV), arrival) {
                    (false, _) => rule.table,
                    (true, Arrival::Vrf { table, .. }) => table.ok_or(rule)?,
                    (true, Arrival::Link(_)) => return Err(rule),
                };
                let suppress = rule.suppress_prefixlength;
                let suppress = suppress.map(|most| u8::try_from(most).unwrap_or(u8::MAX));
                let next = TableLookup { table, suppress };
                let is_idle = |before: &TableLookup| {
                    before.table == table
                        && (before.suppress.is_none() || before.suppress == suppress)
                };
                if !lookup.tables.iter().any(is_idle) {
                    lookup.tables.push(next);
                }
            }
            GOTO => {
                let target = rule.goto.ok_or(rule)?;
                if asked.iter().any(|rule| rule.priority == target) {
                    from = target;
                }
            }
            NOP => {}
            UNREACHABLE => {
                lookup.end = Reason::Unreachable;
                return Ok(lookup);
            }
            PROHIBIT => {
                lookup.end = Reason::Prohibit;
                return Ok(lookup);
            }
            _ => return Err(rule),
        }
    }
    Ok(lookup)
}

/// Which packets a rule matches.
struct Matches {
    /// It asks for addresses; what it makes of those is not known.
    by_address: bool,
    /// It matches all others.
    others: bool,
}

/// Rule 2 of [`lookup_for`] and rule 1 of [`lookup_apart`]; none where something else of the packet decides.
fn matches(rule: &Rule, arrival: Arrival<'_>) -> Option<Matches> {
    let narrows = |net: &Option<ipnet::IpNet>| net.is_some_and(|net| net.prefix_len() > 0);
    let marked = rule.fwmark.is_some_and(|(mark, mask)| mark & mask != 0);
    let never = rule.oif.is_some()
        || rule.iif.as_ref().is_some_and(|iif| iif != arrival.name())
        || marked
        || rule.uidrange.is_some_and(|(first, _)| first > 0)
        || rule.other.contains(&RULE_OTHER_L3MDEV) && matches!(arrival, Arrival::Link(_));
    let known = [RULE_OTHER_L3MDEV, RULE_OTHER_INVERT];
    let by_address = !never && (narrows(&rule.from) || narrows(&rule.to));
    let by_packet = rule.uidrange.is_some_and(|(first, _)| first == 0)
        || rule.other.iter().any(|other| !known.contains(other));
    // Among what is not known may be what changes the result (`suppress_ifgroup`), not who matches.
    let inverted = rule.other.contains(&RULE_OTHER_INVERT);
    if (never || by_address) && inverted && rule.other.iter().any(|other| !known.contains(other)) {
        return None;
    }
    let base = match (never || by_address, by_packet) {
        (true, _) => false,
        (false, true) => return None,
        (false, false) => true,
    };
    Some(Matches {
        by_address,
        others: base != inverted,
    })
}

/// The tables in which the kernel may look up the source of an IPv4 packet that it forwards
/// (`__fib_validate_source`); none for all that there are. It asks the rules as for a packet the other way
/// round, which comes in by the out-link: any rule may be asked.
///
/// 1. Its own three, always.
/// 2. Those that rules name, whatever else the rules want.
/// 3. A rule for VRFs may lead to any.
pub(crate) fn tables_for_sources(rules: &[Rule]) -> Option<Vec<u32>> {
    let mut tables = vec![TABLE_LOCAL, TABLE_MAIN, TABLE_DEFAULT];
    for rule in rules.iter().filter(|rule| rule.family == 4) {
        if rule.other.contains(&RULE_OTHER_L3MDEV) {
            return None;
        }
        if rule.action == TO_TABLE {
            tables.push(rule.table);
        }
    }
    Some(tables)
}

/// The rule because of which the kernel forwards all packets of a family that come in so: the first by rule 4 of
/// [`lookup_for`] that [`lookup_apart`] does not follow. None where engines can follow all of them.
pub fn rule_beyond_engines<'a>(
    rules: &'a [Rule],
    family: u8,
    arrival: Arrival<'_>,
) -> Option<&'a Rule> {
    lookup_apart(rules, family, arrival).err()
}

/// A rule as `ip rule` prints it, as far as the mirror keeps it.
pub fn describe_rule(rule: &Rule) -> String {
    let net = |net: &Option<ipnet::IpNet>| match net {
        Some(net) if net.prefix_len() == net.max_prefix_len() => net.addr().to_string(),
        Some(net) if net.prefix_len() > 0 => net.to_string(),
        _ => "all".to_owned(),
    };
    let mut text = format!("{}:", rule.priority);
    if rule.other.contains(&RULE_OTHER_INVERT) {
        text.push_str(" not");
    }
    let _ = write!(text, " from {}", net(&rule.from));
    if rule.to.is_some_and(|to| to.prefix_len() > 0) {
        let _ = write!(text, " to {}", net(&rule.to));
    }
    if let Some((mark, mask)) = rule.fwmark {
        let _ = write!(text, " fwmark {mark:#x}");
        if mask != u32::MAX {
            let _ = write!(text, "/{mask:#x}");
        }
    }
    for (word, link) in [("iif", &rule.iif), ("oif", &rule.oif)] {
        if let Some(link) = link {
            let _ = write!(text, " {word} {link}");
        }
    }
    if let Some((first, last)) = rule.uidrange {
        let _ = write!(text, " uidrange {first}-{last}");
    }
    let l3mdev = rule.other.contains(&RULE_OTHER_L3MDEV);
    let named = [RULE_OTHER_INVERT, RULE_OTHER_L3MDEV];
    for attribute in rule.other.iter().filter(|a| !named.contains(a)) {
        let _ = write!(text, " {}", selector(*attribute));
    }
    match (rule.action, rule.table) {
        (1, _) if l3mdev => text.push_str(" lookup [l3mdev-table]"),
        (1, TABLE_LOCAL) => text.push_str(" lookup local"),
        (1, TABLE_MAIN) => text.push_str(" lookup main"),
        (1, TABLE_DEFAULT) => text.push_str(" lookup default"),
        (1, table) => _ = write!(text, " lookup {table}"),
        (2, _) => {
            text.push_str(" goto");
            if let Some(target) = rule.goto {
                let _ = write!(text, " {target}");
            }
        }
        (3, _) => text.push_str(" nop"),
        (6, _) => text.push_str(" blackhole"),
        (7, _) => text.push_str(" unreachable"),
        (8, _) => text.push_str(" prohibit"),
        (action, _) => _ = write!(text, " action {action}"),
    }
    if let Some(length) = rule.suppress_prefixlength {
        let _ = write!(text, " suppress_prefixlength {length}");
    }
    text
}

/// What a rule selects by or changes, `FRA_*` of `linux/fib_rules.h`, in the words of `ip rule`; its
/// value is not kept.
fn selector(attribute: u16) -> String {
    let word = match attribute {
        RULE_OTHER_TOS => "tos",
        11 => "realms",
        12 => "tun_id",
        13 => "suppress_ifgroup",
        22 => "ipproto",
        23 => "sport",
        24 => "dport",
        25 => "dscp",
        26 | 27 => "flowlabel",
        number => return format!("(attribute {number})"),
    };
    format!("{word} ...")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(priority: u32, table: u32) -> Rule {
        Rule {
            family: 4,
            priority,
            table,
            action: TO_TABLE,
            ..Rule::default()
        }
    }

    const ETH0: Arrival<'_> = Arrival::Link("eth0");
    const RED: Arrival<'_> = Arrival::Vrf {
        name: "red",
        table: Some(70),
    };

    fn all(tables: &[u32]) -> Result<Lookup, Reason> {
        Ok(Lookup::plain(tables.iter().copied()))
    }

    fn from() -> Rule {
        Rule {
            from: Some("10.0.0.0/8".parse().unwrap()),
            ..rule(50, 9)
        }
    }

    #[test]
    fn plain_rules_name_their_tables_in_order() {
        let rules = [rule(32766, 254), rule(0, 255), rule(100, 7), rule(200, 254)];
        assert_eq!(lookup_for(&rules, 4, ETH0), all(&[255, 7, 254]));
        assert_eq!(lookup_for(&rules, 6, ETH0), all(&[255, 254]));
    }

    #[test]
    fn an_input_link_selects() {
        let iif = Rule {
            iif: Some("eth1".into()),
            ..rule(50, 9)
        };
        let not = Rule {
            other: vec![RULE_OTHER_INVERT],
            ..iif.clone()
        };
        let eth1 = Arrival::Link("eth1");
        let rules = [rule(0, 255), iif, rule(32766, 254)];
        assert_eq!(lookup_for(&rules, 4, ETH0), all(&[255, 254]));
        assert_eq!(lookup_for(&rules, 4, eth1), all(&[255, 9, 254]));
        let rules = [rule(0, 255), not, rule(32766, 254)];
        assert_eq!(lookup_for(&rules, 4, ETH0), all(&[255, 9, 254]));
        assert_eq!(lookup_for(&rules, 4, eth1), all(&[255, 254]));
    }

    /// `wg-quick`'s: main's longer routes, then the tunnel's table for all that it has not sent itself.
    #[test]
    fn marks_are_zero_and_short_routes_are_passed_over() {
        let main = Rule {
            suppress_prefixlength: Some(0),
            ..rule(32764, 254)
        };
        let tunnel = Rule {
            fwmark: Some((0xca6c, u32::MAX)),
            other: vec![RULE_OTHER_INVERT],
            ..rule(32765, 51820)
        };
        let marked = Rule {
            fwmark: Some((0x80000, 0xff0000)),
            ..rule(5210, 52)
        };
        let unmarked = Rule {
            fwmark: Some((0, 0xff)),
            ..rule(5211, 53)
        };
        let rules = [
            rule(0, 255),
            marked,
            unmarked,
            main,
            tunnel,
            rule(32766, 254),
        ];
        let lookup = lookup_for(&rules, 4, ETH0).unwrap();
        let suppressed = TableLookup {
            table: 254,
            suppress: Some(0),
        };
        let expected = [
            TableLookup::all(255),
            TableLookup::all(53),
            suppressed,
            TableLookup::all(51820),
            TableLookup::all(254),
        ];
        assert_eq!(lookup.tables, expected);
        assert!(suppressed.passes_over(0, false));
        assert!(!suppressed.passes_over(0, true) && !suppressed.passes_over(1, false));
    }

    #[test]
    fn a_vrf_has_its_table_and_its_name() {
        let l3mdev = Rule {
            other: vec![RULE_OTHER_L3MDEV],
            ..rule(1000, 0)
        };
        let iif = Rule {
            iif: Some("red".into()),
            ..rule(2000, 9)
        };
        let rules = [rule(0, 255), l3mdev, iif, rule(32766, 254)];
        assert_eq!(lookup_for(&rules, 4, ETH0), all(&[255, 254]));
        assert_eq!(lookup_for(&rules, 4, RED), all(&[255, 70, 9, 254]));
        let unknown = Arrival::Vrf {
            name: "red",
            table: None,
        };
        assert_eq!(lookup_for(&rules, 4, unknown), Err(Reason::Rules));
        assert_eq!(rule_beyond_engines(&rules, 4, ETH0), None);
        let said = "1000: from all lookup [l3mdev-table]";
        assert_eq!(describe_rule(&rules[1]), said);
    }

    #[test]
    fn goto_passes_over_what_lies_between() {
        let goto = |target| Rule {
            action: GOTO,
            goto: Some(target),
            ..rule(50, 0)
        };
        let nop = Rule {
            action: NOP,
            ..rule(300, 0)
        };
        let last = rule(32766, 254);
        let between = |goto| [rule(0, 255), goto, rule(100, 7), nop.clone(), last.clone()];
        let found = lookup_for(&between(goto(300)), 4, ETH0);
        assert_eq!(found, all(&[255, 254]));
        // There is no such rule.
        let found = lookup_for(&between(goto(200)), 4, ETH0);
        assert_eq!(found, all(&[255, 7, 254]));
        assert_eq!(describe_rule(&goto(300)), "50: from all goto 300");
    }

    #[test]
    fn a_rule_that_refuses_ends_the_lookup() {
        for (action, end) in [(7, Reason::Unreachable), (8, Reason::Prohibit)] {
            let refuses = Rule {
                action,
                ..rule(100, 0)
            };
            let lookup = lookup_for(&[rule(0, 255), refuses, rule(32766, 254)], 4, ETH0).unwrap();
            let expected = (vec![TableLookup::all(255)], end);
            assert_eq!((lookup.tables, lookup.end), expected);
        }
    }

    #[test]
    fn the_rule_that_stops_the_engines_is_named() {
        let by_protocol = |priority| Rule {
            other: vec![22],
            ..rule(priority, 9)
        };
        let rules = [
            rule(32766, 254),
            by_protocol(60),
            by_protocol(50),
            rule(0, 255),
        ];
        let found = rule_beyond_engines(&rules, 4, ETH0).unwrap();
        assert_eq!(found.priority, 50);
        assert_eq!(rule_beyond_engines(&rules, 6, ETH0), None);
        assert_eq!(rule_beyond_engines(&rules[..1], 4, ETH0), None);
    }

    #[test]
    fn rules_by_address_set_their_packets_apart() {
        let not = Rule {
            priority: 51,
            other: vec![RULE_OTHER_INVERT],
            ..from()
        };
        let ports = Rule {
            priority: 52,
            other: vec![23],
            to: Some("10.9.0.0/16".parse().unwrap()),
            ..from()
        };
        let odd = Rule {
            other: vec![RULE_OTHER_INVERT, 13],
            ..ports.clone()
        };
        let rules = [rule(0, 255), from(), not, ports, rule(32766, 254)];
        let apart = lookup_apart(&rules, 4, ETH0).unwrap();
        assert_eq!(Ok(apart.lookup), all(&[255, 9, 254]));
        assert_eq!(apart.by_address, [&rules[1], &rules[2], &rules[3]]);
        assert_eq!(lookup_for(&rules, 4, ETH0), Err(Reason::Rules));
        assert_eq!(lookup_apart(std::slice::from_ref(&odd), 4, ETH0), Err(&odd));
        let [inside, outside, other] =
            ["10.9.1.2", "11.0.0.1", "10.8.0.1"].map(|ip| ip.parse().unwrap());
        let asks = |src, dst| rules.each_ref().map(|rule| rule.asks_for(src, dst))[3];
        assert!(asks(other, inside));
        assert!(!asks(outside, inside) && !asks(other, outside) && !asks(inside, other));
        let many: Vec<Rule> = (1..10)
            .map(|priority| Rule { priority, ..from() })
            .collect();
        assert!(lookup_apart(&many[..8], 4, ETH0).is_ok());
        assert_eq!(lookup_apart(&many, 4, ETH0), Err(&many[8]));
    }

    #[test]
    fn what_is_not_modelled_is_the_kernels() {
        let uids = |first| Rule {
            uidrange: Some((first, 2000)),
            ..rule(50, 9)
        };
        let odd = [
            from(),
            // A blackhole.
            Rule {
                action: 6,
                ..rule(50, 0)
            },
            Rule {
                other: vec![22],
                ..rule(50, 9)
            },
            uids(0),
            // Never, turned round, and with `suppress_ifgroup`.
            Rule {
                fwmark: Some((1, u32::MAX)),
                other: vec![RULE_OTHER_INVERT, 13],
                ..rule(50, 9)
            },
        ];
        for odd in odd {
            let rules = [rule(0, 255), odd];
            assert_eq!(lookup_for(&rules, 4, ETH0), Err(Reason::Rules));
        }
        // What never matches need not be known any better, and what always does not either.
        let output = Rule {
            oif: Some("eth1".into()),
            other: vec![22],
            ..rule(50, 9)
        };
        let not_output = Rule {
            other: vec![RULE_OTHER_INVERT],
            oif: Some("eth1".into()),
            ..from()
        };
        for (odd, tables) in [
            (output, &[255][..]),
            (uids(1000), &[255]),
            (not_output, &[255, 9]),
        ] {
            let rules = [rule(0, 255), odd];
            assert_eq!(lookup_for(&rules, 4, ETH0), all(tables));
        }
    }

    #[test]
    fn rules_are_told_as_ip_does() {
        for (odd, said) in [
            (
                Rule {
                    other: vec![RULE_OTHER_INVERT, 23],
                    to: Some("10.0.0.7/32".parse().unwrap()),
                    ..rule(5, 7)
                },
                "5: not from all to 10.0.0.7 sport ... lookup 7",
            ),
            (
                Rule {
                    action: 7,
                    from: Some("10.0.0.0/8".parse().unwrap()),
                    ..rule(5, 0)
                },
                "5: from 10.0.0.0/8 unreachable",
            ),
            (
                Rule {
                    uidrange: Some((5, 7)),
                    suppress_prefixlength: Some(16),
                    ..rule(5, 254)
                },
                "5: from all uidrange 5-7 lookup main suppress_prefixlength 16",
            ),
        ] {
            assert_eq!(describe_rule(&odd), said);
        }
    }
}
