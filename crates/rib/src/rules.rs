//! Which tables a packet is looked up in.

use std::fmt::Write;

use crate::event::{RULE_OTHER_INVERT, RULE_OTHER_TOS, Rule};
use raddle_image::Reason;

/// `RT_TABLE_LOCAL`.
pub const TABLE_LOCAL: u32 = 255;
/// `RT_TABLE_MAIN`.
pub const TABLE_MAIN: u32 = 254;
/// `RT_TABLE_DEFAULT`.
pub const TABLE_DEFAULT: u32 = 253;

/// `FR_ACT_TO_TBL`.
const TO_TABLE: u8 = 1;

/// The tables in which packets that come in on link `link` are looked up, in order.
///
/// 1. Without any rules known, the kernel's own: local, main and, for IPv4, default.
/// 2. Rules of the family are asked by priority. One for another input link, or for an output
///    link, never matches a packet that is being forwarded; an inverted one (`not iif ...`) may.
/// 3. A rule that looks into a table, without other selectors, adds its table.
/// 4. Any other rule decides by what engines do not look at (addresses, marks, ports, ...) or does
///    what they do not do: the kernel's business. [`rule_beyond_engines`] tells which one it is.
///
/// # Errors
/// [`Reason::Rules`] by rule 4.
pub fn tables_for(rules: &[Rule], family: u8, link: &str) -> Result<Vec<u32>, Reason> {
    if !rules.iter().any(|rule| rule.family == family) {
        let all = [TABLE_LOCAL, TABLE_MAIN, TABLE_DEFAULT];
        return Ok(all[..if family == 4 { 3 } else { 2 }].to_vec());
    }
    let mut tables = Vec::new();
    for rule in asked(rules, family, link) {
        if !is_plain(rule) {
            return Err(Reason::Rules);
        }
        if !tables.contains(&rule.table) {
            tables.push(rule.table);
        }
    }
    Ok(tables)
}

/// `FRA_L3MDEV`: look into the table of the VRF.
const L3MDEV: u16 = 19;

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
        if rule.other.contains(&L3MDEV) {
            return None;
        }
        if rule.action == TO_TABLE {
            tables.push(rule.table);
        }
    }
    Some(tables)
}

/// The rule because of which the kernel forwards all packets of a family that come in on link
/// `link`: the first by rule 4 of [`tables_for`]. None where engines can follow all of them.
pub fn rule_beyond_engines<'a>(rules: &'a [Rule], family: u8, link: &str) -> Option<&'a Rule> {
    asked(rules, family, link)
        .into_iter()
        .find(|rule| !is_plain(rule))
}

/// The rules that packets from a link may match, by priority.
fn asked<'a>(rules: &'a [Rule], family: u8, link: &str) -> Vec<&'a Rule> {
    let elsewhere =
        |rule: &Rule| rule.oif.is_some() || rule.iif.as_ref().is_some_and(|iif| iif != link);
    let mut asked: Vec<&Rule> = rules
        .iter()
        .filter(|rule| rule.family == family)
        .filter(|rule| !elsewhere(rule) || rule.other.contains(&RULE_OTHER_INVERT))
        .collect();
    asked.sort_by_key(|rule| rule.priority);
    asked
}

/// Whether a rule does nothing but look into a table, for every packet from its link.
fn is_plain(rule: &Rule) -> bool {
    let any = |net: &Option<ipnet::IpNet>| net.is_none_or(|net| net.prefix_len() == 0);
    rule.action == TO_TABLE
        && any(&rule.from)
        && any(&rule.to)
        && rule
            .fwmark
            .is_none_or(|(mark, mask)| (mark, mask) == (0, 0))
        && rule.other.is_empty()
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
    for attribute in rule.other.iter().filter(|a| **a != RULE_OTHER_INVERT) {
        let _ = write!(text, " {}", selector(*attribute));
    }
    match (rule.action, rule.table) {
        (1, TABLE_LOCAL) => text.push_str(" lookup local"),
        (1, TABLE_MAIN) => text.push_str(" lookup main"),
        (1, TABLE_DEFAULT) => text.push_str(" lookup default"),
        (1, table) => _ = write!(text, " lookup {table}"),
        (2, _) => text.push_str(" goto"),
        (3, _) => text.push_str(" nop"),
        (6, _) => text.push_str(" blackhole"),
        (7, _) => text.push_str(" unreachable"),
        (8, _) => text.push_str(" prohibit"),
        (action, _) => _ = write!(text, " action {action}"),
    }
    text
}

/// What a rule selects by or changes, `FRA_*` of `linux/fib_rules.h`, in the words of `ip rule`; its
/// value is not kept.
fn selector(attribute: u16) -> String {
    let word = match attribute {
        RULE_OTHER_TOS => "tos",
        4 => "goto",
        11 => "realms",
        12 => "tun_id",
        13 => "suppress_ifgroup",
        14 => "suppress_prefixlength",
        19 => "l3mdev",
        20 => "uidrange",
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

    #[test]
    fn plain_rules_name_their_tables_in_order() {
        let rules = [rule(32766, 254), rule(0, 255), rule(100, 7), rule(200, 254)];
        assert_eq!(tables_for(&rules, 4, "eth0"), Ok(vec![255, 7, 254]));
        assert_eq!(tables_for(&rules, 6, "eth0"), Ok(vec![255, 254]));
    }

    #[test]
    fn an_input_link_selects() {
        let iif = Rule {
            iif: Some("eth1".into()),
            ..rule(50, 9)
        };
        let rules = [rule(0, 255), iif, rule(32766, 254)];
        assert_eq!(tables_for(&rules, 4, "eth0"), Ok(vec![255, 254]));
        assert_eq!(tables_for(&rules, 4, "eth1"), Ok(vec![255, 9, 254]));
    }

    #[test]
    fn the_rule_that_stops_the_engines_is_named() {
        let from = |priority| Rule {
            from: Some("10.0.0.0/8".parse().unwrap()),
            ..rule(priority, 9)
        };
        let rules = [rule(32766, 254), from(60), from(50), rule(0, 255)];
        let found = rule_beyond_engines(&rules, 4, "eth0").unwrap();
        assert_eq!(found.priority, 50);
        assert_eq!(rule_beyond_engines(&rules, 6, "eth0"), None);
        assert_eq!(rule_beyond_engines(&rules[..1], 4, "eth0"), None);
    }

    #[test]
    fn what_is_not_modelled_is_the_kernels() {
        for odd in [
            Rule {
                from: Some("10.0.0.0/8".parse().unwrap()),
                ..rule(50, 9)
            },
            Rule {
                fwmark: Some((1, 0xff)),
                ..rule(50, 9)
            },
            Rule {
                action: 6,
                ..rule(50, 0)
            },
            Rule {
                other: vec![22],
                ..rule(50, 9)
            },
        ] {
            assert_eq!(
                tables_for(&[rule(0, 255), odd], 4, "eth0"),
                Err(Reason::Rules)
            );
        }
        // "not iif eth1" is about every other link, "not oif eth1" about all that is forwarded.
        for not in [
            Rule {
                iif: Some("eth1".into()),
                ..rule(50, 9)
            },
            Rule {
                oif: Some("eth1".into()),
                ..rule(50, 9)
            },
        ] {
            let not = Rule {
                other: vec![RULE_OTHER_INVERT],
                ..not
            };
            assert_eq!(
                tables_for(&[rule(0, 255), not], 4, "eth0"),
                Err(Reason::Rules)
            );
        }
        let output = Rule {
            oif: Some("eth1".into()),
            other: vec![22],
            ..rule(50, 9)
        };
        assert_eq!(
            tables_for(&[rule(0, 255), output], 4, "eth0"),
            Ok(vec![255])
        );
    }

    #[test]
    fn what_the_mirror_does_not_keep_is_named_all_the_same() {
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
        ] {
            assert_eq!(describe_rule(&odd), said);
        }
    }
}
